"""R-hat and effective sample sizes for whole matrices of scalars at once.

ArviZ computes these one scalar at a time, in several milliseconds each, which is minutes for the
entries of two factor matrices. Here the same estimators run over blocks of scalars in plain
arrays: the cost is one sort and one Fourier transform a scalar, and the working memory does not
grow with the number of scalars.

A scalar which never moved has no R-hat and no effective sample size. It is given as nan *and*
marked by :func:`is_constant`, so that a nan is never taken for a fault; draws that are not
finite are refused. Chains stuck at different constants have R-hat inf.
"""

from collections.abc import Callable, Mapping

import numpy as np
import xarray

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.estimators import (
    effective_size,
    folded,
    normal_scores,
    potential_scale_reduction,
    split_chains,
)

MIN_DRAWS = 4  # two halves of two draws: the least that has a within-chain variance
BLOCK_ELEMENTS = 2**19  # draws worked on at a time: 4 MiB in double precision, near the cache size
TAIL_PROBABILITIES = (0.05, 0.95)
WINDOW = 5.0  # autocorrelation times up to which lags are summed (Sokal 1997)


def split_rhat(draws):
    """Return the rank-normalised split R-hat, the larger of its bulk and folded version.

    Parameters
    ----------
    draws : array, (chain, draw, ...)
        At least 4 draws a chain; boolean, integer or float. One chain is split like any other and
        then says only whether its halves agree.

    Returns
    -------
    array, (...), float64
        1 at convergence; nan where :func:`is_constant`; inf where every half chain is constant
        but they differ.

    Raises
    ------
    InputError
        Fewer than 4 draws, fewer than two axes, or draws that are not finite.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2),
    equations 3 and 4 on the ranks of section 4.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> draws[0, :, 1] += 3.0
    >>> split_rhat(draws).round(1)
    array([1. , 1.5])
    """
    return _in_blocks(draws, _rank_rhat)


def nested_rhat(draws, chains_each=1):
    r"""Return the nested R-hat of many short chains, in groups that started at one place each.

    With the mean :math:`\bar\theta_{mk}` and the variance :math:`s^2_{mk}` of chain m of group k,
    of K groups of M chains,

    .. math::

       \hat B = \frac{1}{K-1} \sum_k (\bar\theta_k - \bar\theta)^2, \qquad
       \hat W = \frac1K \sum_k \Big( \frac{1}{M-1} \sum_m (\bar\theta_{mk} - \bar\theta_k)^2
                 + \frac1M \sum_m s^2_{mk} \Big), \qquad
       \hat R = \sqrt{1 + \hat B / \hat W}.

    A chain need not be long enough to have an R-hat of its own: one draw of each suffices where
    groups have several chains. It is then about :math:`\sqrt{1 + 1/M}` where draws are independent.

    Parameters
    ----------
    draws : array, (chain, draw, ...)
        Chains of a group stand side by side. They are not ranked, nor split.
    chains_each : int
        Chains of a group. They must have started at one place: chains with starts of their own
        hide in one group how far apart these were. Take 1 for them.

    Returns
    -------
    array, (...), float64
        nan where no draw differs from another; inf where draws differ between groups alone.

    Raises
    ------
    InputError
        Draws that are not finite, fewer than two groups, chains that do not fill the groups, or one
        draw of one chain in each.

    References
    ----------
    Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari, Gelman (2024), "Nested R-hat: assessing the
    convergence of Markov chain Monte Carlo when running many short chains", Bayesian Analysis.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(64, 5))
    >>> shifted = draws + np.repeat([0.0, 0.0, 0.0, 2.0], 16)[:, None]
    >>> float(nested_rhat(draws, 16).round(2)), float(nested_rhat(shifted, 16).round(2))
    (1.0, 1.32)
    """
    draws = np.asarray(draws, float)
    if draws.ndim < 2 or draws.size == 0:
        raise InputError(f"draws have shape {draws.shape}; give them as (chain, draw, ...)")
    if not np.isfinite(draws).all():
        raise InputError("draws hold nan or inf; look for the chain that diverged")
    chains, length = draws.shape[:2]
    whole("chains_each", chains_each)
    if chains % chains_each or chains // chains_each < 2:
        raise InputError(
            f"there are {chains} chains and chains_each is {chains_each}; give at least two groups "
            "of as many chains each"
        )
    if chains_each == length == 1:
        raise InputError("there is one draw of one chain a group; give more of either")
    groups = draws.reshape(-1, chains_each, *draws.shape[1:])
    means = groups.mean(2)
    within = np.zeros(draws.shape[2:])
    if chains_each > 1:
        within = within + means.var(1, ddof=1).mean(0)
    if length > 1:
        within = within + groups.var(2, ddof=1).mean((0, 1))
    between = means.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(1.0 + between / within)
    # Means of equal numbers may differ by their rounding.
    return np.where(np.ptp(draws, axis=(0, 1)) == 0, np.nan, found)[()]


def ess_bulk(draws):
    """Return the effective sample size of the rank-normalised draws, for the centre.

    Parameters
    ----------
    draws : array, (chain, draw, ...)
        As for :func:`split_rhat`.

    Returns
    -------
    array, (...), float64
        nan where :func:`is_constant`. Draws that alternate may give more than were drawn.

    Raises
    ------
    InputError
        As :func:`split_rhat`.

    References
    ----------
    Vehtari et al. (2021), section 3.2; the sum of autocorrelations is cut by the initial monotone
    sequence of Geyer (1992), "Practical Markov chain Monte Carlo", Statistical Science 7(4).

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1500 < ess_bulk(independent) < 2500)
    True
    """
    return _in_blocks(draws, lambda x: effective_size(normal_scores(split_chains(x))))


def ess_tail(draws):
    """Return the smaller effective sample size of the 5 % and 95 % quantiles.

    Parameters
    ----------
    draws : array, (chain, draw, ...)
        As for :func:`split_rhat`.

    Returns
    -------
    array, (...), float64
        nan where :func:`is_constant`.

    Raises
    ------
    InputError
        As :func:`split_rhat`.

    References
    ----------
    Vehtari et al. (2021), section 4.

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1200 < ess_tail(independent) < 2500)
    True
    """
    return _in_blocks(draws, _tail_size)


def mcse_mean(draws):
    """Return the Monte Carlo standard error of the mean over all chains.

    Parameters
    ----------
    draws : array, (chain, draw, ...)
        As for :func:`split_rhat`.

    Returns
    -------
    array, (...), float64
        In the units of `draws`; nan where :func:`is_constant`.

    Raises
    ------
    InputError
        As :func:`split_rhat`.

    References
    ----------
    Vehtari et al. (2021), section 3.2: the standard deviation over the root of the effective
    sample size, here of the draws themselves and not of their ranks.

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(0.9 < mcse_mean(independent) * 2000**0.5 < 1.1)
    True
    """
    return _in_blocks(draws, _mean_error)


def is_constant(draws):
    """Say whether a scalar has one value in all draws of all chains.

    With an odd number of draws the middle one is left out, as it is from both half chains.

    Parameters
    ----------
    draws : array, (chain, draw, ...)
        As for :func:`split_rhat`.

    Returns
    -------
    array, (...), bool

    Raises
    ------
    InputError
        As :func:`split_rhat`.

    Examples
    --------
    >>> is_constant(np.ones((2, 4, 3), bool))
    array([ True,  True,  True])
    """
    return np.isnan(_in_blocks(draws, lambda x: np.zeros(len(x))))


def integrated_time(draws) -> np.ndarray:
    r"""Return how many draws are worth an independent one: :math:`1 + 2 \sum_t \rho_t`.

    Autocorrelations are averaged over the chains, each about its own mean, and summed up to the
    first lag of at least five times the sum so far (Sokal 1997, "Monte Carlo methods in
    statistical mechanics", section 3).

    Parameters
    ----------
    draws : (chain, draw, ...) float

    Returns
    -------
    (...) float64
        NaN for chains that never move.

    Raises
    ------
    InputError
        For fewer than four draws.

    Examples
    --------
    >>> independent = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(abs(integrated_time(independent) - 1) < 0.1)
    True
    """
    draws = np.asarray(draws, float)
    if draws.ndim < 2 or draws.shape[1] < 4:
        raise InputError(f"draws are {draws.shape}; give (chain, draw, ...), four draws at least")
    shape, number = draws.shape[2:], draws.shape[1]
    flat = draws.reshape(*draws.shape[:2], -1)
    power = np.abs(np.fft.rfft(flat - flat.mean(1, keepdims=True), 2 * number, axis=1)) ** 2
    covariance = np.fft.irfft(power, axis=1)[:, :number].mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = 2.0 * np.cumsum(covariance / covariance[0], axis=0) - 1.0
    enough = np.arange(number)[:, None] >= WINDOW * times
    last = np.where(enough.any(0), enough.argmax(0), number - 1)
    return times[last, np.arange(times.shape[1])].reshape(shape)


def summarise(draws: Mapping[str, np.ndarray]):
    """Return the mean, spread and convergence of a few named scalars.

    Parameters
    ----------
    draws : mapping of str to array, (chain, draw)
        One entry a scalar, such as the log joint density or the number of errors.

    Returns
    -------
    xarray.Dataset
        Along `scalar` (the names): `mean`, `sd`, `mcse_mean`, `ess_bulk`, `ess_tail`, `r_hat`,
        float64, and `constant`, bool. ``.to_dataframe()`` prints as a table.

    Raises
    ------
    InputError
        No scalar, one that is not (chain, draw), or as :func:`split_rhat`.

    Examples
    --------
    >>> table = summarise({"noise": np.random.default_rng(0).normal(5.0, size=(2, 400))})
    >>> round(float(table["mean"].sel(scalar="noise")))
    5
    """
    if not draws:
        raise InputError("no scalar to summarise; give at least one name with its draws")
    columns: dict[str, list] = {}
    for name, values in draws.items():
        if np.ndim(values) != 2:
            raise InputError(f"{name} has {np.ndim(values)} axes; give draws as (chain, draw)")
        for key, value in _summary_row(np.asarray(values)).items():
            columns.setdefault(key, []).append(value)
    return xarray.Dataset(
        {key: ("scalar", np.array(values)) for key, values in columns.items()},
        coords={"scalar": list(draws)},
    )


def _rank_rhat(x):
    halves = split_chains(x)
    bulk = potential_scale_reduction(normal_scores(halves))
    tails = potential_scale_reduction(normal_scores(folded(halves)))
    # Draws of two values, half of them each, fold to a constant: the folded version says nothing.
    return np.fmax(bulk, tails)


def _tail_size(x):
    quantiles = np.quantile(x, TAIL_PROBABILITIES, axis=(1, 2), keepdims=True)
    return np.min([effective_size(split_chains(x <= quantile)) for quantile in quantiles], axis=0)


def _mean_error(x):
    return x.std(axis=(1, 2), ddof=1) / np.sqrt(effective_size(split_chains(x)))


def _summary_row(values):
    return {
        "mean": values.mean(dtype=float),
        "sd": values.std(ddof=1, dtype=float),
        "mcse_mean": mcse_mean(values)[()],
        "ess_bulk": ess_bulk(values)[()],
        "ess_tail": ess_tail(values)[()],
        "r_hat": split_rhat(values)[()],
        "constant": is_constant(values)[()],
    }


def _in_blocks(draws, estimate: Callable[[np.ndarray], np.ndarray]):
    """Apply `estimate`, (scalar, chain, draw) -> (scalar,), to blocks of the trailing axes."""
    draws = np.asarray(draws)
    if draws.ndim < 2 or 0 in draws.shape[:1]:
        raise InputError(f"draws have shape {draws.shape}; give them as (chain, draw, ...)")
    chains, length = draws.shape[:2]
    if length < MIN_DRAWS:
        raise InputError(f"draws hold {length} a chain; draw at least {MIN_DRAWS} for convergence")
    columns = draws.reshape(chains, length, -1)
    result = np.empty(columns.shape[2])
    step = max(1, BLOCK_ELEMENTS // (chains * length))
    for start in range(0, len(result), step):
        block = np.ascontiguousarray(np.moveaxis(columns[..., start : start + step], 2, 0), float)
        if not np.isfinite(block).all():
            raise InputError("draws hold nan or inf; look for the chain that diverged")
        halves = split_chains(block)
        constant = halves.max(axis=(1, 2)) == halves.min(axis=(1, 2))
        result[start : start + step] = np.where(constant, np.nan, estimate(block))
    return result.reshape(draws.shape[2:])
