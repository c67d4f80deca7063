"""Log densities of observed entries under every draw, as ArviZ takes them, for the entries asked.

A number for every draw and entry outgrows everything else. So they are formed for the entries that
are asked for, and refused where one question asks for too many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from bmfjax.data import InputError, checks
from bmfjax.data.blocks import blocks, spaced
from bmfjax.infer.mcmc.log_likelihood import plate_log_likelihood
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.scores import observed_sample, predictive
from bmfjax.posterior.selection import MAX_ENTRIES, positions

#: Log densities that are formed at once: a quarter of a gigabyte.
MOST_DENSITIES = 2**25
#: Draws whose mean density approximates a predictive density, where ArviZ asks for that.
FEW_DRAWS = 100
#: Coordinates of a listed entry: positions of its row and column.
PLACES = ("row", "column")


def log_likelihood_fn(source) -> Callable[[xarray.DataArray, Any], xarray.DataArray]:
    r"""Return a function of log densities of observations, as ``az.loo(log_lik_fn=...)`` takes it.

    It is called with observations and with the container, and returns
    :math:`\log p(x_i \mid \theta_s)` of these observations under every draw. Nothing is formed of
    other entries. A call that asks for more than 33,554,432 numbers is refused.

    ArviZ 1.x has the argument `log_lik_fn`. ``az.loo`` itself asks for all observations of the
    container at once: list fewer of a large matrix by ``fit.to_arviz(entries=5000)``. For all of
    them take ``az.loo_subsample(data, 1000, method="plpd", log_lik_fn=..., reff=1.0)`` with
    ``data = fit.to_arviz(log_likelihood=True)``. The approximation that it needs of every entry is
    then the mean density over up to 100 draws of the fit, and not the density at mean parameters,
    which Boolean factors do not have. ArviZ 0.23 has no such argument: there ``az.loo`` takes the
    group `log_likelihood` of ``fit.to_arviz(log_likelihood=True)``.

    Parameters
    ----------
    source : Fit or numpyro.infer.MCMC
        A fit of any model; or a finished run of a NumPyro model whose data are picked by the
        indices of its plates, as `IASG` takes it. Observations that such a model masks have a log
        density of zero, which adds nothing to a sum.

    Returns
    -------
    callable
        ``log_lik_fn(observed, data)``, which returns an array (chain, draw, ...) float64. Draws
        that are left out of ``data.posterior`` are left out. For a posterior without draws, as
        ``method="plpd"`` has it, it returns an array (...).

    Raises
    ------
    InputError
        By the function: more numbers than are formed at once, missing observations, or
        observations that do not say which entries they are.

    References
    ----------
    Magnusson, Andersen, Jonasson, Vehtari (2019), "Bayesian leave-one-out cross-validation for
    large data", ICML.

    Examples
    --------
    >>> import bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
    ...     progress=False,
    ... )
    >>> idata = fit.to_arviz(entries=20)
    >>> observed = idata["observed_data"]["data"][:3]
    >>> log_likelihood_fn(fit)(observed, idata).shape
    (2, 100, 3)
    """
    if not hasattr(source, "_log_density"):
        return plate_log_likelihood(source, MOST_DENSITIES)

    def log_lik_fn(observed, data):
        i, j, values = _cells_of(source, observed)
        posterior = data.posterior
        axes = ("chain", "draw")
        if "sample" in posterior.dims:  # of a variational fit: leave-one-out knows chains alone
            chain, draw = np.zeros(1, int), posterior["sample"].values
        elif "chain" in posterior.dims:
            chain, draw = (posterior[axis].values for axis in axes)
        else:
            found = predictive_of_few(source, (i, j, values))
            return observed.copy(data=found.reshape(observed.shape))
        found = densities(source, (i, j, values), _numbers(source, chain, draw))
        return xarray.DataArray(
            found.reshape(len(chain), len(draw), *observed.shape),
            dims=(*axes, *observed.dims),
            coords={"chain": chain, "draw": draw, **observed.coords},
            name=observed.name,
        )

    return log_lik_fn


def _numbers(fit, chain, draw) -> np.ndarray:
    """Return the numbers (draw of all chains,) of draws, the first chain's first.

    Draws that are pooled in one chain, as those of a variational fit, are counted likewise.
    """
    return (np.asarray(chain)[:, None] * fit.usage_draws.shape[1] + np.asarray(draw)).ravel()


def _cells_of(fit, observed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and values (cell,) of observations, by their coordinates."""
    if all(place in observed.coords for place in PLACES):
        at = [observed.coords[place].broadcast_like(observed).values.ravel() for place in PLACES]
        i, j = (
            positions(a, names, n, True)
            for a, names, n in zip(at, _names(fit), PLACES, strict=True)
        )
    elif {"rows", "columns"} <= set(observed.coords):
        labels = [observed.coords[n].broadcast_like(observed) for n in ("rows", "columns")]
        i, j = (
            positions(a.values.ravel().tolist(), names, n)
            for a, names, n in zip(labels, _names(fit), PLACES, strict=True)
        )
    else:
        raise InputError(
            "the observations do not say which entries they are; take those of fit.idata or of "
            "fit.to_arviz()"
        )
    values = observed.values.ravel().astype(float)
    missing = int(np.isnan(values).sum())
    if missing:
        raise InputError(
            f"{missing} of the observations are missing, which ArviZ would take for observed; take "
            "fit.to_arviz(entries=...), which lists observed entries alone"
        )
    return i, j, values


def _names(fit):
    return fit.data.row_names, fit.data.column_names


def cell_list(data, number: int | None, seed: int = 0):
    """Return rows, columns and values (cell,) of all observed cells, or of so many at random."""
    seen = data.num_rows * data.num_columns - data.num_missing
    if number is None:
        if seen > MAX_ENTRIES:
            raise InputError(
                f"there are {seen:,} observed entries, and up to {MAX_ENTRIES:,} are listed; give "
                "a number of entries that are drawn at random, such as entries=5000"
            )
        number = seen
    return observed_sample(data, checks.whole("entries", number, 2), seed)


def densities(fit, cells, chosen=None) -> np.ndarray:
    """Return log densities (draw, cell) float64 of `cells` (rows, columns, values).

    `chosen` are numbers of draws, the first chain's first; default all. The draws of a block of
    cells are formed at a time.
    """
    i, j, values = cells
    number = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    drawn = number if chosen is None else len(chosen)
    refuse_too_many(drawn, len(i))
    found = np.empty((drawn, len(i)))
    for some in blocks(len(i), 4 * number):
        block = fit._log_density(i[some], j[some], values[some])
        found[:, some] = block if chosen is None else block[chosen]
    return found


def refuse_too_many(draws: int, entries: int, most: int = MOST_DENSITIES) -> None:
    """Refuse to form a number for each of so many draws and entries."""
    if draws * entries > most:
        raise InputError(
            f"{entries:,} entries under {draws:,} draws are {draws * entries:,} log densities, and "
            f"{most:,} are formed at once; take fewer entries by fit.to_arviz(entries=...), or "
            'az.loo_subsample(..., method="plpd", log_lik_fn=bmfjax.log_likelihood_fn(fit)) of '
            "ArviZ 1.x"
        )


def predictive_of_few(fit, cells) -> np.ndarray:
    """Return log mean densities (cell,) over up to `FEW_DRAWS` draws, spaced in every chain."""
    chains, draws = fit.usage_draws.shape[:2]
    return predictive(some_draws(fit, spaced(draws, max(1, FEW_DRAWS // chains))), cells)


def some_draws(fit, chosen):
    """Return the fit of some draws (draw,) of every chain, for `_log_density` alone."""
    usage, basis = (
        d.some(chosen) if isinstance(d, PackedDraws) else d[:, chosen]
        for d in (fit.usage_draws, fit.basis_draws)
    )
    others = {n: v[:, chosen] for n, v in fit.other_draws.items()}
    return dataclasses.replace(fit, usage_draws=usage, basis_draws=basis, other_draws=others)


def total_density(fit) -> np.ndarray:
    """Return the log likelihood of all observed cells under every draw, (draw,) float64."""
    i, j, values = cell_list(fit.data, None)
    number = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    total = np.zeros(number)
    for some in blocks(len(i), 4 * number):
        total += fit._log_density(i[some], j[some], values[some]).sum(1)
    return total


class Densities(BackendArray):
    """Log densities (chain, draw, entry) that are formed when they are read."""

    def __init__(self, fit, cells, shape: tuple[int, int]):
        self._fit, self._cells = fit, cells
        self._numbers = np.arange(shape[0] * shape[1]).reshape(shape)
        self.shape, self.dtype = (*shape, len(cells[0])), np.dtype(float)

    def __getitem__(self, key):
        outer = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, outer, self._read)

    def _read(self, key):
        chain, draw, entry = key
        numbers = self._numbers[chain][..., draw]
        cells = tuple(np.atleast_1d(part[entry]) for part in self._cells)
        found = densities(self._fit, cells, numbers.ravel())
        shape = numbers.shape if isinstance(entry, int | np.integer) else (*numbers.shape, -1)
        return found.reshape(shape)


def pointwise(fit, cells, shape: tuple[int, int]):
    """Return log densities (chain, draw, entry); those too many to be formed are read in part."""
    lazy = Densities(fit, cells, shape)
    if lazy.shape[0] * lazy.shape[1] * lazy.shape[2] > MOST_DENSITIES:
        return indexing.LazilyIndexedArray(lazy)
    return densities(fit, cells).reshape(lazy.shape)
