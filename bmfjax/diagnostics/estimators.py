"""The arithmetic of R-hat and effective sample size on blocks of scalars.

Every function takes an array (scalar, chain, draw) and none loops over scalars. The public face,
with the checks and the meaning of the special values, is :mod:`bmfjax.diagnostics.convergence`.
"""

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

BLOM_OFFSET = 3 / 8  # Blom (1958), the offset which Vehtari et al. (2021) take


def split_chains(x):
    """Halve every chain: (scalar, chain, draw) -> (scalar, 2 chain, draw // 2).

    The middle draw of an odd number is left out.
    """
    half = x.shape[2] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=1)


def folded(x):
    """Return the distance of every draw from the median of its scalar."""
    return np.abs(x - np.median(x, axis=(1, 2), keepdims=True))


def normal_scores(x):
    """Return normal quantiles of the ranks of the draws over all chains of a scalar.

    Tied draws share the mean of their ranks. `scipy.stats.rankdata` along an axis gives the same
    ranks at 15 times the cost, and the normal quantile is needed only at the 2 n possible ranks.
    """
    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    twice_rank = _twice_mean_rank(np.take_along_axis(flat, order, axis=1))
    score_of = ndtri((np.arange(2, 2 * size + 1) / 2 - BLOM_OFFSET) / (size + 1 - 2 * BLOM_OFFSET))
    scores = np.empty(flat.shape)
    np.put_along_axis(scores, order, score_of[twice_rank - 2], axis=1)
    return scores.reshape(x.shape)


def _twice_mean_rank(ordered):
    """Return twice the mean rank of each run of equal values, an integer."""
    size = ordered.shape[1]
    position = np.arange(1, size + 1)
    starts = np.ones(ordered.shape, bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    if starts.all():
        return np.broadcast_to(2 * position, ordered.shape)
    ends = np.ones(ordered.shape, bool)
    ends[:, :-1] = starts[:, 1:]
    first = np.maximum.accumulate(np.where(starts, position, 1), axis=1)
    last = np.minimum.accumulate(np.where(ends, position, size)[:, ::-1], axis=1)[:, ::-1]
    return first + last


def potential_scale_reduction(x):
    """Return R-hat of the given chains, unsplit: (scalar,).

    The root of the pooled over the within-chain variance (Vehtari et al. 2021, equations 3 and 4).
    inf where no chain moves but they differ, nan where nothing differs at all.
    """
    length = x.shape[2]
    within = x.var(axis=2, ddof=1).mean(axis=1)
    between = x.mean(axis=2).var(axis=1, ddof=1)
    # Rounding may leave a variance just above zero, so standing still is read off the draws.
    still = (x == x[..., :1]).all(axis=2).all(axis=1)
    same = still & (x[..., 0] == x[:, :1, 0]).all(axis=1)
    ratio = np.divide(between, within, out=np.full(len(x), np.inf), where=~still)
    return np.where(same, np.nan, np.sqrt(ratio + (length - 1) / length))


def effective_size(x):
    """Return the effective sample size of the mean of the given chains, unsplit: (scalar,).

    Pairs of autocorrelations are added up to the first pair that is not positive, after each has
    been lowered to the smallest before it (Geyer 1992; Vehtari et al. 2021, section 3.2). A scalar
    of one value has the size of its draws.
    """
    x = np.asarray(x, float)
    scalars, chains, length = x.shape
    size = chains * length
    rho = _autocorrelation(x)
    last_pair = max(0, (length - 3) // 2)
    pairs = rho[:, : 2 * last_pair + 2].reshape(scalars, last_pair + 1, 2).sum(axis=2)
    stops = pairs <= 0
    stops[:, last_pair] = True
    stop = stops.argmax(axis=1)
    total = np.cumsum(np.minimum.accumulate(pairs, axis=1), axis=1)
    rows = np.arange(scalars)
    before = np.where(stop > 0, total[rows, stop - 1], 0.0)
    # The first half of the pair that stopped the sum still counts when it is positive.
    time = -1 + 2 * before + np.maximum(rho[rows, 2 * stop], 0.0)
    constant = x.max(axis=(1, 2)) == x.min(axis=(1, 2))
    return np.where(constant, size, size / np.maximum(time, 1 / np.log10(size)))


def _autocorrelation(x):
    """Return the autocorrelation over all chains, (scalar, lag); disagreement raises it."""
    length = x.shape[2]
    means = x.mean(axis=2)
    padded = next_fast_len(2 * length, real=True)
    spectrum = rfft(x - means[..., None], n=padded, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariance = irfft(power, n=padded, axis=1)[:, :length] / length
    within = covariance[:, :1] * length / (length - 1)
    pooled = covariance[:, :1] + means.var(axis=1, ddof=1)[:, None]
    rho = 1 - np.divide(
        within - covariance, pooled, out=np.zeros_like(covariance), where=pooled > 0
    )
    rho[:, 0] = 1.0
    return rho
