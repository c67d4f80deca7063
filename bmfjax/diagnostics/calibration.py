"""Whether a sampler draws from the posterior of the model that simulated its data.

Two tests that need no known posterior, only a model that can be simulated. Simulation-based
calibration (Talts et al. 2018) draws parameters from the prior and data given them: among
posterior draws given those data the parameters then have a uniform rank. The joint distribution
test (Geweke 2004) alternates the sampler with fresh data given its parameters: that chain then
has the prior for its distribution, and the moments of independent draws from it.
"""

import numpy as np
from scipy.special import chdtrc

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.convergence import MIN_DRAWS, mcse_mean

MAX_BINS = 20  # more cost power against the smooth deviations that samplers show
LEAST_EXPECTED = 10  # in a bin, for the chi-square approximation to hold also far in its tail


def rank_statistics(draws, truth, *, seed=0):
    """Return the rank of the truth among the posterior draws, by replicate and quantity.

    Parameters
    ----------
    draws : array, (replicate, draw, ...)
        Posterior draws given the data of each replicate, thinned until they are nearly
        independent: dependent ones have ranks that are not uniform.
    truth : array, (replicate, ...)
        The values that the data were simulated from.
    seed : int or numpy.random.Generator
        Breaks ties: a truth equal to some draws takes any place among them.

    Returns
    -------
    array, (replicate, ...), int
        Number of draws below the truth, 0 ... number of draws.

    Raises
    ------
    InputError
        Shapes that do not belong together, no draws, or values that are nan.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari, Gelman (2018), "Validating Bayesian inference algorithms
    with simulation-based calibration", arXiv:1804.06788, theorem 1 and algorithm 1.

    Examples
    --------
    >>> rank_statistics([[0.1, 0.2, 0.9], [0.4, 0.5, 0.6]], [0.3, 0.7])
    array([2, 3])
    """
    draws, truth = np.asarray(draws), np.asarray(truth)
    if draws.ndim < 2 or draws.shape[1] == 0 or draws.shape[:1] + draws.shape[2:] != truth.shape:
        raise InputError(
            f"draws have shape {draws.shape} and truth {truth.shape}; give (replicate, draw, ...) "
            "and (replicate, ...)"
        )
    if np.isnan(draws).any() or np.isnan(truth).any():
        raise InputError("draws or truth hold nan, which has no rank; look for a failed replicate")
    below = (draws < truth[:, None]).sum(axis=1)
    ties = (draws == truth[:, None]).sum(axis=1)
    return below + np.random.default_rng(seed).integers(0, ties + 1)


def rank_uniformity(ranks, num_draws, *, bins=None):
    """Return p-values of a chi-square test that ranks are uniform, one for each quantity.

    Parameters
    ----------
    ranks : array, (replicate, ...), int
        As :func:`rank_statistics` gives them.
    num_draws : int
        Number of draws that they are ranks among.
    bins : int, optional
        Neighbouring ranks are counted together in so many bins, with the exact probabilities
        where these are not of equal size. Default: 20, or fewer where there are fewer ranks or
        a bin would expect less than 10 replicates.

    Returns
    -------
    array, (...), float64

    Raises
    ------
    InputError
        Ranks that are not whole numbers from 0 to `num_draws`, or a number of bins below 2,
        above `num_draws` + 1, or so large that a bin expects less than 10 replicates.

    References
    ----------
    Talts et al. (2018), section 5.1, for the ranks and their bins. The test is Pearson's; its
    p-values of several quantities of one run depend on each other.

    Examples
    --------
    >>> ranks = np.random.default_rng(0).integers(0, 32, size=(1000, 2))
    >>> bool((rank_uniformity(ranks, 31) > 0.01).all())
    True
    >>> bool((rank_uniformity(np.maximum(ranks, 3), 31) < 1e-6).all())
    True
    """
    ranks = np.asarray(ranks)
    integers = np.issubdtype(ranks.dtype, np.integer) and ranks.ndim > 0
    if not integers or ranks.size == 0 or ranks.min() < 0 or ranks.max() > num_draws:
        raise InputError(f"ranks are not whole numbers from 0 to {num_draws}; see rank_statistics")
    replicates, places = len(ranks), num_draws + 1
    if bins is None:
        bins = max(2, min(MAX_BINS, places, replicates // LEAST_EXPECTED))
    whole("bins", bins, 2, places)  # one for each rank at most
    sizes = np.bincount(np.arange(places) * bins // places, minlength=bins)
    expected = replicates * sizes / places
    if expected.min() < LEAST_EXPECTED and not np.isclose(expected.min(), LEAST_EXPECTED):
        raise InputError(
            f"{replicates} replicates in {bins} bins are {expected.min():.1f} a bin, too few for a "
            f"chi-square test; run more replicates or take fewer bins"
        )
    which = (ranks * bins // places).reshape(replicates, -1)
    counts = np.stack([(which == b).sum(axis=0) for b in range(bins)])
    statistic = ((counts - expected[:, None]) ** 2 / expected[:, None]).sum(axis=0)
    return chdtrc(bins - 1, statistic).reshape(ranks.shape[1:])[()]


def geweke_scores(marginal, successive):
    """Return the z-scores of Geweke's joint distribution test.

    They are of the means, and of the second moments about the mean of `marginal` (Geweke's about
    zero say little of statistics whose mean is far from it). All are near standard normal if the
    sampler is right, however the statistics depend on each other.

    Parameters
    ----------
    marginal : array, (draw, statistic)
        Statistics of independent draws of parameters and data from the model.
    successive : array, (draw, statistic) or (chain, draw, statistic)
        The same of the chain that alternates the sampler with new data given its parameters. The
        Monte Carlo error is that of :func:`bmfjax.diagnostics.mcse_mean`: look at the effective
        sample size too, of some hundreds at least.

    Returns
    -------
    array, (2, statistic), float64
        First and second moments: successive less marginal, over the standard error. nan for one
        that never moves in the chain.

    Raises
    ------
    InputError
        Shapes that do not belong together, fewer than 4 draws, or values that are not finite.

    References
    ----------
    Geweke (2004), "Getting it right: joint distribution tests of posterior simulators", Journal
    of the American Statistical Association 99(467), section 3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = geweke_scores(rng.normal(size=(4000, 1)), rng.normal(0.3, 1.0, size=(4000, 1)))
    >>> bool(scores[0, 0] > 5)
    True
    """
    marginal, successive = np.asarray(marginal, float), np.asarray(successive, float)
    if successive.ndim == 2:
        successive = successive[None]
    if marginal.ndim != 2 or successive.ndim != 3 or marginal.shape[-1:] != successive.shape[-1:]:
        raise InputError(
            f"marginal has shape {marginal.shape} and successive {successive.shape}; give both as "
            "(draw, statistic), with the same statistics"
        )
    if len(marginal) < MIN_DRAWS or not np.isfinite(marginal).all():
        raise InputError(f"marginal draws must be finite and at least {MIN_DRAWS}")
    centre = marginal.mean(axis=0)
    scores = []
    for power in (1, 2):
        independent, chain = (marginal - centre) ** power, (successive - centre) ** power
        difference = chain.mean(axis=(0, 1)) - independent.mean(axis=0)
        error = independent.std(axis=0, ddof=1) / np.sqrt(len(independent))
        scores.append(difference / np.hypot(error, mcse_mean(chain)))
    return np.stack(scores)
