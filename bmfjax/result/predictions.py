"""What a fit says of entries of its matrix, and of rows that it has not seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import ndtr

from bmfjax.data import BinaryMatrix, InputError, checks
from bmfjax.data.blocks import spaced
from bmfjax.data.new_rows import opened
from bmfjax.infer.mcmc.truncated import numbers
from bmfjax.posterior import cells, products, scores, selection
from bmfjax.posterior.selection import is_all, selected
from bmfjax.result import tables
from bmfjax.verdict.undrawn import of_draws

#: What `Fit.predict` tells of an entry.
PREDICTED = ("mean", "sd", "interval")


class PredictionsMixin:
    """Predictions of entries and of single cells, and scores of what was observed."""

    @of_draws
    def predict(
        self,
        rows: Sequence | None = None,
        columns: Sequence | None = None,
        kind: str = "mean",
        level: float = 0.9,
        *,
        positions: bool = False,
        frame: bool = False,
    ):
        r"""Return the reconstruction :math:`y_i^\top x_j`: its mean, spread or interval.

        Of "features", the default for ones and zeros, of "logistic" and of "hamming" it is the
        **log odds** of a one, effects and bias included, and no probability: for probabilities
        call `probability`. That of the Boolean model and its variants is 0 or 1, and its mean is
        `probability`. For "pmf" and "ordered-probit" it is the expected rating, effects included;
        for "probit" the probability of a one. See `predict_cells` for single cells, and for
        observations with their noise.

        Parameters
        ----------
        rows, columns : sequence of int or str, optional
            As for `probability`.
        kind : {"mean", "sd", "interval"}
        level : float
            Probability of the central interval.
        positions : bool
            As for `probability`.
        frame : bool
            Return a data frame with the names of rows and columns; of "interval" `lower` and
            `upper` stand above the columns. Where it holds log odds, its columns are named so.

        Returns
        -------
        (rows, columns) float64, or (2, rows, columns) for "interval", or pandas.DataFrame
            For the noise-free reconstruction, not a noisy observation.
        """
        if kind not in PREDICTED:
            chances = " (probabilities are those of fit.probability())" * self._is_of_ones
            raise InputError(f"kind is {kind!r}; choose 'mean', 'sd' or 'interval'{chances}")
        i, j = selected(self.data, rows, columns, positions)
        found = self._predict(i, j, kind, level)
        if not checks.switch("frame", frame):
            return found
        return tables.of_entries(self.data, found, i, j, self._predicts_of)

    @of_draws
    def predict_cells(
        self,
        rows,
        columns,
        kind: str = "mean",
        level: float = 0.9,
        *,
        noisy: bool = False,
        positions: bool = False,
    ) -> np.ndarray:
        """Return predictions of single cells, such as those that were held out.

        The same as `predict` and `probability` have for these entries. Memory grows with the
        cells alone; time with cells x draws x rank.

        Parameters
        ----------
        rows, columns : (cell,) sequences of int or str
            Names or positions, one each a cell. Integers are positions, unless the names of the
            data are whole numbers.
        kind : {"mean", "sd", "interval", "probability"}
            The first three are of what `predict` returns, of some models log odds, unless `noisy`.
            "probability" is of a one, for models of ones and zeros, and of every star for
            "ordered-probit".
        level : float
            Probability of the central interval.
        noisy : bool
            Predict an observation of the cell, for judging hidden ones; else what is expected of
            it. It is the same call for every model. For models of zeros and ones, those that have
            `probability` but for "relaxed", "mean" and "probability" are the predictive probability
            of a one, with flips and effects, and there is no "interval". For "pmf", "relaxed" and
            "nmf" normal noise is added with its drawn (or fixed) precision; only intervals need
            random numbers. For "ordered-probit" it is of stars.
        positions : bool
            Whether integers are positions also where names are whole numbers.

        Returns
        -------
        (cell,) float64, (2, cell) for "interval", (cell, star) for "probability" of stars
            Means and intervals of ratings are held inside of their scale where they declare one;
            "sd" is of the values before that. Stars are in the order of ``settings["stars"]``,
            and their probabilities sum to 1.

        Raises
        ------
        InputError
            For cells that there are not, lists of different lengths, and kinds that the model
            does not have.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> rows, columns = ["Laura Mandeville", "Evelyn Jefferson"], [0, 13]
        >>> bool((fit.predict_cells(rows, columns, "probability") <= 1).all())
        True
        >>> fit.predict_cells(rows, columns, "interval").shape
        (2, 2)
        """
        i = selection.positions(rows, self.data.row_names, "row", positions)
        j = selection.positions(columns, self.data.column_names, "column", positions)
        return self._tell_cells(i, j, (kind,), level, noisy)[kind]

    def _tell_cells(self, i, j, kinds, level: float, noisy: bool) -> dict[str, np.ndarray]:
        """Return predictions of single cells by position, several kinds at once."""
        if i.shape != j.shape:
            raise InputError(f"there are {len(i)} rows and {len(j)} columns; give one each a cell")
        cells.check_probability(level)
        for kind in kinds:
            self._check_kind(kind, noisy)
        if not noisy or "interval" in self._noisy_kinds:
            return self._cells(i, j, kinds, level, noisy)
        # An observation is a zero or a one, so that the probability of a one says all.
        chance = self._cells(i, j, ("probability",), level, self._adds_flips)
        sd = np.sqrt(chance["probability"] * (1.0 - chance["probability"]))
        return {kind: sd if kind == "sd" else chance["probability"] for kind in kinds}

    @of_draws
    def score_new(self, new, i, j, values, *, seed: int = 0) -> np.ndarray:
        """Return the log predictive density of further cells of new rows.

        Each is given the cells of its row that `new` observes and the fitted data. The usage of the
        new rows is inferred for every draw of everything else: of the Boolean model summed over all
        sets of factors up to rank 8, and drawn beyond; of matrix factorisations and of "features"
        drawn. For the relaxed and the nonnegative model it is the least-squares fit to what is
        observed, as Owen and Perry (2009, section 5) have it; of the logistic model its variational
        posterior, and drawn where the fit is by sampler "gibbs".

        Parameters
        ----------
        new : data of the fitted kind, or array
            As for `transform`; the cells that are scored are missing in it.
        i, j : (cell,) int
            Positions of rows in `new`, and of columns.
        values : (cell,) float
            What was observed there.
        seed : int
            Seed of usage that is drawn.

        Returns
        -------
        (cell,) float64

        Raises
        ------
        InputError
            For positions outside of the matrix, lists of different lengths, or observed values
            that the model does not have.

        References
        ----------
        Owen, Perry (2009), "Bi-cross-validation of the SVD and the nonnegative matrix
        factorization", Annals of Applied Statistics 3(2).

        Examples
        --------
        >>> import bmfjax, numpy as np
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> row = fit.data.dense()[:1].copy()
        >>> row[0, 13] = np.nan
        >>> bool(fit.score_new(row, [0], [13], [0.0])[0] < 0)
        True
        """
        new = opened(new, self)
        i, j, values = _cells_of_new(self.data, new, i, j, values)
        self._check_observed(values)
        return self._score_new(new, i, j, values, checks.seed_number(seed))

    @of_draws
    def transform(self, new_rows, *, kind: str = "mean", frame: bool = False):
        r"""Usage of new rows, given the fitted basis.

        For the Boolean model the posterior mean given draws of everything else, which the new rows
        do not change: exact for each draw up to rank 8, else from a few Gibbs sweeps. So it is for
        its variants, but for "ormachine-effects", whose rows have effects that are drawn, too. For
        the relaxed model, for every kept draw of the basis, the usage in [0, 1] that fits the new
        rows best (the mode under a uniform prior), averaged over the draws; for the nonnegative
        model the same without the upper bound. For the logistic model the mean of the variational
        posterior, averaged over the starts (zero, that of the prior, for a row of which nothing is
        observed), and by sampler "gibbs" the mean of draws given every kept draw, each from a few
        sweeps. So it is for "features", whose rows have effects too; for "pmf" and probit models
        the posterior mean, from `given_new`, which has its spread and predictions as well.

        Parameters
        ----------
        new_rows : BinaryMatrix, array, path, or what the model was fitted to
            As for `BinaryMatrix`, or a file of the kind that was fitted. Columns that have names
            are found by name, in any order, and those that the fit has not are left out (ratings
            of them are refused). Columns without names are the same in the same order. Each row of
            ones and zeros may be a list of the names of its ones. Missing entries are left out.
        kind : {"mean", "sd"}
            "sd" returns the posterior standard deviation. The mean m of the Boolean models and
            "features" is the probability that a row has the factor, and their standard deviation
            :math:`\sqrt{m (1-m)}`.
            The relaxed and the nonnegative model find one usage for each draw, and have none.
        frame : bool
            Return a data frame with the names of rows and factors.

        Returns
        -------
        (rows, rank) float64, or pandas.DataFrame

        Raises
        ------
        InputError
            For another kind, one that the model does not have, and rows that cannot be read.
        """
        found = self._transform if self._is_mean_usage(kind) else self._sd_of_new
        new_rows = opened(new_rows, self)
        return self._as_usage(found(new_rows), new_rows, frame)

    def _is_mean_usage(self, kind: str) -> bool:
        """Whether this kind of usage of new rows is the mean, and not "sd"; refuse others."""
        if kind not in ("mean", "sd"):
            raise InputError(f"kind is {kind!r}; choose 'mean' or 'sd'")
        return kind == "mean"

    def _sd_of_new(self, new_rows) -> np.ndarray:
        """Return posterior standard deviations of the usage of new rows, (rows, rank)."""
        if self._is_boolean:
            mean = self._transform(new_rows)
            return np.sqrt(mean * (1.0 - mean))
        raise InputError(
            f"model {self.model!r} finds one usage of new rows for each draw, and no sd; leave "
            "kind out"
        )

    def _transform(self, new_rows) -> np.ndarray:
        """Return what `transform` does, as an array."""
        raise NotImplementedError

    def _as_usage(self, usage, new_rows, frame: bool):
        """Return usage of new rows, as a frame with the names of these and of the factors."""
        if not checks.switch("frame", frame):
            return usage
        return pd.DataFrame(usage, tables.names_of_rows(new_rows), list(self.factor_names))

    def _product_draws(self, rows, columns) -> tuple[Any, Any]:
        """Return draws of two matrices whose product is the reconstruction, at some positions."""
        usage, basis = self.usage_draws, self.basis_draws
        # Packed draws of the whole matrix stay packed, and are formed one at a time.
        if is_all(rows, self.data.num_rows) and is_all(columns, self.data.num_columns):
            return usage, basis
        return usage[:, :, rows], basis[:, :, columns]

    def _factors(self, i, j):
        """Return draws of the factors of some rows and columns, packed if they can be."""
        return self._product_draws(i, j)

    def _log_density(self, i, j, values) -> np.ndarray:
        """Return the log density of observed cells (cell,) under every draw, (draw, cell).

        One number for every draw and cell outgrows everything else: ask for some cells at a time.
        """
        return scores.normal_density(values, self._fits(i, j), cells.noise_sd(self))

    def _below(self, i, j, values) -> np.ndarray:
        """Return probabilities (1, draw, cell) of a smaller number than that of a cell.

        For stars they are two, the other that of these or the star itself, (2, draw, cell).
        """
        return ndtr((values - self._fits(i, j)) / cells.noise_sd(self)[:, None])[None]

    def _fits(self, i, j) -> np.ndarray:
        """Return draws (draw, cell) of the reconstruction of cells, effects included, no link."""
        return cells.cell_draws(self, i, j)

    def _score_new(self, new, i, j, values, seed) -> np.ndarray:
        """Return what `score_new` does, of arrays."""
        return scores.predictive(self._with_rows(new, seed), (i, j, values))

    def _check_observed(self, values) -> None:
        """Refuse values that no cell can have."""
        if (isinstance(self.data, BinaryMatrix) or self._is_of_ones) and (
            not np.isin(values, (0, 1)).all()
        ):
            raise InputError("values has a number other than 0 and 1; give what was observed")
        if not np.isfinite(values).all():
            raise InputError("values has numbers that are not finite; give what was observed")

    def _spaced_draws(self, number) -> np.ndarray:
        """Return up to `number` draws, by their number among those of all chains."""
        chains, kept = self.usage_draws.shape[:2]
        return spaced(chains * kept, number, down=True)

    def _with_rows(self, new, seed) -> Self:
        """Return a fit whose rows are new ones, for `_log_density` alone."""
        raise NotImplementedError

    def _with_best_usage(self, new, upper: float) -> Self:
        """Return `_with_rows` of the usage in [0, `upper`] that fits best, of up to 100 draws."""
        number = self.usage_draws.shape[0] * self.usage_draws.shape[1]
        chosen = spaced(number, products.NUM_FITTED, down=True)
        basis, others = (
            {n: v.reshape(1, number, *v.shape[2:])[:, chosen] for n, v in draws.items()}
            for draws in ({"basis": self.basis_draws}, self.other_draws)
        )
        usage = np.stack(list(products.best_usages(numbers(new), basis["basis"][0], upper=upper)))
        return dataclasses.replace(
            self, data=new, usage_draws=usage[None], basis_draws=basis["basis"], other_draws=others
        )

    def _with_drawn(self, new, drawn: Mapping) -> Self:
        """Return the fit of new rows whose usage, and effects, were drawn."""
        others = {n: v for n, v in drawn.items() if n != "usage"}
        return dataclasses.replace(
            self, data=new, usage_draws=drawn["usage"], other_draws=dict(self.other_draws) | others
        )

    #: What `_log_density` is of: fits are compared where it is the same.
    _scored: ClassVar[str] = "densities of numbers"

    def _predict(self, i, j, kind, level) -> np.ndarray:
        """Return what `predict` does, of positions."""
        usage, basis = self._factors(i, j)
        if kind == "interval":
            return products.interval(usage, basis, level)
        return products.moments(usage, basis)[kind == "sd"]

    def _check_kind(self, kind, noisy) -> None:
        """Refuse a kind of prediction that the model does not have."""
        if kind not in cells.KINDS:
            raise InputError(f"kind is {kind!r}; choose 'mean', 'sd', 'interval' or 'probability'")
        if noisy and kind not in self._noisy_kinds:
            raise InputError(self._no_noise.format(model=self.model, kind=kind))

    #: Whether the probability of an observed one is another than that of the entry.
    _adds_flips: ClassVar[bool] = False
    _no_noise: ClassVar[str] = (
        "an observation of model {model!r} is 0 or 1 and has no {kind}; choose kind 'probability'"
    )

    def _cells(self, i, j, kinds, level, noisy) -> dict[str, np.ndarray]:
        """Return predictions of cells, checked, each (..., cell) float64."""
        rng = np.random.default_rng(0) if noisy else None
        parts = [
            self._block(i[some], j[some], kinds, level, rng)
            for some in cells.blocks(len(i), self._width())
        ]
        return {kind: np.concatenate([part[kind] for part in parts], -1) for kind in kinds}

    def _width(self) -> int:
        """Return how many numbers are formed at once for each cell."""
        return self.usage_draws.shape[0] * self.usage_draws.shape[1]

    def _block(self, i, j, kinds, level, rng) -> dict[str, np.ndarray]:
        """Return predictions of cells whose draws are formed at once; with noise from `rng`."""
        values, found = cells.cell_draws(self, i, j), {}
        for kind in kinds:
            if kind == "probability" and rng is not None:
                above = (values - 0.5) / cells.noise_sd(self)[:, None]
                found[kind] = ndtr(above).mean(0, dtype=float)
            elif kind == "probability":
                found[kind] = (values >= 0.5).mean(0)
            elif rng is not None:
                found[kind] = cells.with_normal_noise(self, values, kind, level, rng)
            else:
                found[kind] = cells.summarised(values, kind, level)
        return found

    def _replicated(self, i, j, seed: int = 0) -> np.ndarray:
        """Return an observation of each cell from every draw, noise included: (draw, cell)."""
        rng = np.random.default_rng(checks.seed_number(seed))
        return self._replicates(np.asarray(i), np.asarray(j), rng)

    def _replicates(self, i, j, rng) -> np.ndarray:
        """Return what `_replicated` does, from normal noise."""
        fits = self._fits(i, j)
        return fits + cells.noise_sd(self)[:, None] * rng.standard_normal(fits.shape)


def _cells_of_new(data, new, i, j, values) -> tuple[np.ndarray, ...]:
    """Return positions and values of cells of new rows, checked."""
    i, j = np.asarray(i), np.asarray(j)
    if i.shape != j.shape or i.ndim != 1:
        raise InputError(
            f"i has shape {i.shape} and j {j.shape}; give one list each, of a position a cell"
        )
    values = checks.numeric("values", values, i.shape, float)
    number = new.num_rows if hasattr(new, "num_rows") else np.shape(new)[0]
    for name, at, size in (("i", i, number), ("j", j, data.num_columns)):
        if at.dtype.kind not in "iu" or ((at < 0) | (at >= size)).any():
            raise InputError(f"{name} has a value that is no position from 0 to {size - 1}")
    return i, j, values
