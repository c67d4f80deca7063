"""Score entries that were left out, by the draws given all; and stack posteriors by these scores.

One log density for every draw and entry outgrows everything else, so callers pass some entries at
a time.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.special import logsumexp

from bmfjax.data.errors import InputError

#: Above this shape of the tail an estimate is not reliable (Vehtari et al. 2024).
MAX_KHAT = 0.7
#: Fewest effective draws of bounded ratios: a relative standard error of about 0.3 an entry.
LEAST_EFFECTIVE = 10.0
#: Fewest draws in a tail, and what its quartile exceeds the rest by at least, of its largest.
LEAST_TAIL, LEAST_EXCESS = 5, 1e-100


class LeaveOneOut(NamedTuple):
    """Predictive scores of entries, each left out.

    Attributes
    ----------
    log_score : (entry,) float64
        Logarithm of the predictive density of the entry given all others.
    doubtful : (entry,) bool
        Whether the draws say too little of it: a tail with a shape above 0.7, or, of bounded
        ratios, fewer than 10 effective draws by the weights alone, as if draws were independent.
    """

    log_score: np.ndarray
    doubtful: np.ndarray


def leave_one_out(log_density, *, bounded: bool = False) -> LeaveOneOut:
    r"""Estimate the predictive density of every entry given all others.

    Draws given all entries become draws without one by the ratios :math:`1 / p(x_i \mid \theta)`:

    .. math:: p(x_i \mid x_{-i}) = \frac{\sum_s r_s\, p(x_i \mid \theta_s)}{\sum_s r_s}.

    The largest ratios are replaced by quantiles of a generalised Pareto distribution that is
    fitted to them, unless they are bounded.

    Parameters
    ----------
    log_density : (draw, entry) float
        Log density of each entry under each draw.
    bounded : bool
        Whether the density has a lower bound, as that of a flipped bit has. A tail of few
        different ratios is not Pareto, and ratios of finite variance need no smoothing.

    Returns
    -------
    LeaveOneOut

    Raises
    ------
    InputError
        An array of another shape, no draws, or densities that are not finite.

    References
    ----------
    Vehtari, Gelman, Gabry (2017), "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC", Statistics and Computing 27. Vehtari, Simpson, Gelman, Yao, Gabry
    (2024), "Pareto smoothed importance sampling", JMLR 25(72). Zhang, Stephens (2009), "A new and
    efficient estimation method for the generalized Pareto distribution", Technometrics 51(3).

    Examples
    --------
    >>> level = np.random.default_rng(0).normal(size=(1000, 1)) / 10
    >>> found = leave_one_out(-0.5 * (level - [0.0, 1.0]) ** 2)
    >>> found.log_score.round(1), found.doubtful
    (array([-0. , -0.5]), array([False, False]))
    """
    values = _checked(log_density)
    if bounded:
        ratios = -values
        effective = 2 * logsumexp(ratios, 0) - logsumexp(2 * ratios, 0)
        return LeaveOneOut(
            np.log(len(values)) - logsumexp(ratios, 0), effective < np.log(LEAST_EFFECTIVE)
        )
    values = -np.sort(-values, axis=0)  # the largest ratios come last
    ratios, shape = smoothed(values[0] - values)
    return LeaveOneOut(logsumexp(ratios + values, 0) - logsumexp(ratios, 0), ~(shape <= MAX_KHAT))


def left_out_means(log_density, values) -> np.ndarray:
    """Return means (..., entry) of `values` (..., draw, entry) over draws without each entry.

    They are weighed by the smoothed ratios of `leave_one_out`. The mean probability of a number at
    most as large as that of the entry is its probability integral transform, left out: LOO-PIT
    (Gelman et al. 2013, "Bayesian Data Analysis", third edition, chapter 7).

    Examples
    --------
    >>> level = np.random.default_rng(0).normal(size=(1000, 1)) / 10
    >>> left_out_means(-0.5 * (level - [0.0, 1.0]) ** 2, level + [[0.0, 1.0]]).round(1) + 0.0
    array([0., 1.])
    """
    density = _checked(log_density)
    order = np.argsort(-density, axis=0)
    density = np.take_along_axis(density, order, 0)
    ratios, _ = smoothed(density[0] - density)
    weights = np.exp(ratios - ratios[-1])
    weights /= weights.sum(0)
    each = np.asarray(values, float).reshape(-1, *density.shape)
    found = [(weights * np.take_along_axis(one, order, 0)).sum(0) for one in each]
    return np.reshape(found, (*np.shape(values)[:-2], -1))


def _checked(log_density) -> np.ndarray:
    values = np.asarray(log_density, np.float64)
    if values.ndim != 2 or len(values) == 0:
        raise InputError(f"log_density has shape {values.shape}; give (draw, entry)")
    if not np.isfinite(values).all():
        raise InputError("log_density has values that are not finite; give finite log densities")
    return values


def smoothed(ratios) -> tuple[np.ndarray, np.ndarray]:
    """Smooth sorted log ratios (draw, entry), and return the shape of each tail (entry,).

    The tail has the 3 sqrt(draws) largest, at most a fifth. One that is too short or is of few
    different ratios stays, with an infinite shape; a constant column has minus infinity.
    """
    number = len(ratios)
    size = int(np.ceil(min(0.2 * number, 3 * np.sqrt(number))))
    constant = ratios[-1] == ratios[0]
    shape = np.where(constant, -np.inf, np.inf)
    if size < LEAST_TAIL:
        return ratios, shape
    top = ratios[-1]
    cut = np.exp(ratios[-size - 1] - top)
    excess = np.exp(ratios[-size:] - top) - cut
    fitted = np.flatnonzero(excess[_quartile(size)] > LEAST_EXCESS)
    if not len(fitted):
        return ratios, shape
    excess = excess[:, fitted]
    k, scale = _pareto(excess)
    places = (np.arange(size) + 0.5)[:, None] / size
    with np.errstate(divide="ignore", invalid="ignore"):
        quantiles = np.where(
            k == 0, -np.log1p(-places), np.expm1(-k * np.log1p(-places)) / k
        ) * scale  # fmt: skip
    ratios = ratios.copy()
    # No smoothed ratio is larger than the largest that was seen.
    ratios[-size:, fitted] = np.minimum(np.log(quantiles + cut[fitted]), 0.0) + top[fitted]
    shape[fitted] = k
    return ratios, shape


def _quartile(size):
    return int(size / 4 + 0.5) - 1


def _pareto(excess):
    """Fit shape and scale (entry,) of generalised Pareto distributions to sorted (draw, entry)."""
    number = len(excess)
    grid = np.arange(1, 31 + int(np.sqrt(number)))
    slope = (1 - np.sqrt(len(grid) / (grid - 0.5)))[:, None]
    slope = slope / (3 * excess[_quartile(number)]) + 1 / excess[-1]
    shapes = np.stack([np.log1p(-b * excess).mean(0) for b in slope])
    with np.errstate(divide="ignore", invalid="ignore"):
        profile = number * (np.log(-slope / shapes) - shapes - 1)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    slope = (slope * np.exp(profile - logsumexp(profile, 0))).sum(0)
    shape = np.log1p(-slope * excess).mean(0)
    # A weak prior towards one half, worth ten draws.
    return (shape * number + 5) / (number + 10), -shape / slope


def stacking_weights(log_scores, *, tolerance: float = 1e-5, max_steps: int = 1000):
    r"""Return the weights of a mixture of posteriors that maximise its held-out log score.

    .. math:: \max_{w} \sum_i \log \sum_k w_k\, p_k(x_i \mid x_{-i}), \quad w_k \ge 0,
              \sum_k w_k = 1.

    The problem is concave. Each step goes towards the largest value of a quadratic approximation
    at nonnegative weights, as far as the score grows (Kim et al. 2020).

    Parameters
    ----------
    log_scores : (posterior, entry) float
        Log predictive density of every entry, as `leave_one_out` returns it.
    tolerance : float
        Distance at most from the largest mean log score.
    max_steps : int

    Returns
    -------
    (posterior,) float64
        They sum to 1.

    Raises
    ------
    InputError
        An array of another shape, or without posteriors or entries.

    References
    ----------
    Yao, Vehtari, Gelman (2022), "Stacking for non-mixing Bayesian computations: the curse and
    blessing of multimodal posteriors", JMLR 23(79), equation 4.

    Kim, Carbonetto, Stephens, Anitescu (2020), "A fast algorithm for maximum likelihood estimation
    of mixture proportions using sequential quadratic programming", JCGS 29(2), 261-273.

    Examples
    --------
    >>> stacking_weights(np.log([[0.9, 0.1, 0.9], [0.1, 0.9, 0.1]])).round(2)
    array([0.71, 0.29])
    """
    values = np.asarray(log_scores, np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"log_scores has shape {values.shape}; give (posterior, entry)")
    densities = np.exp(values - values.max(0))
    weights = np.full(len(values), 1 / len(values))
    for _ in range(max_steps):
        shares = densities / (weights @ densities)
        # By concavity no weights have a mean log score higher by more than this.
        if shares.mean(1).max() <= 1 + tolerance:
            break
        weights = _stepped(weights, shares)
    return weights


def _stepped(weights, shares):
    """Return better weights, where `shares` are the densities divided by that of the mixture."""
    gain = shares.mean(1)
    curvature = shares @ shares.T / shares.shape[1]
    # Posteriors that are alike share a weight; the ridge says so where the curvature does not.
    root = cholesky(curvature + 1e-8 * np.eye(len(weights)), lower=True)
    target, _ = nnls(root.T, solve_triangular(root, 2.0 * gain - 1.0, lower=True))
    if target.any():
        towards = target / target.sum() - weights
        for length in 0.5 ** np.arange(20):
            # Log score of the mixture after the step less that before.
            with np.errstate(divide="ignore"):
                gained = np.log1p(np.maximum(length * (towards @ shares), -1.0)).mean()
            if gained > 0.0:
                return weights + length * towards
    return weights * gain  # expectation maximisation, which never lowers the score


def percent(share: float, error: float) -> str:
    """Return a share and its standard error in words, in percent.

    Examples
    --------
    >>> percent(0.281, 0.012), percent(-0.001, 0.0004)
    ('28 ± 1 %', '0 %, ± less than 1 %')
    """
    if error < 0.005:
        return f"{100 * share:z.0f} %, ± less than 1 %"
    return f"{100 * share:z.0f} ± {100 * error:.0f} %"
