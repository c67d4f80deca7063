r"""Step sizes for IASG: as calibrated in the thesis, and matched to the window.

An average has the right spread only if batch, step and window fit each other. Given the
share S/N of the data in a batch and the window T, `matched_step_size` has the Newton step.
A batch can also be too small: the curvature of S cases is not that of all, and the step,
which takes it for that of all, is then longer in some directions than it should be. For r
normal coordinates a case this multiplies the variance by

.. math:: k = \frac{2-\epsilon}{2-\epsilon\,(1+(r+1)/S)},

and the iterates leave for infinity where the denominator is not positive. `averaging_batch`
chooses the batch for a window of `ENOUGH` iterates with both in mind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.sgmcmc.iasg import Block, draw_minibatch, joined

#: Iterates of which a draw is an average, at least, and the cases of a plate that allow it.
ENOUGH, ENOUGH_CASES = 8, 64
#: Longer steps leave the region in which the density is quadratic: with half a Newton step the
#: iterates spread by N/(3S) posterior variances, with a whole one by N/S.
LONGEST_STEP = 0.5
#: The same of batches that are chosen here: the iterates then spread by less than two posterior
#: variances. A smaller batch with a shorter step sees as much data for as many effective draws.
PLANNED_STEP = 0.25
#: The noise of the curvature may widen the draws by so much more than it does with single cases.
MOST_INFLATION = 1.1


def calibrated_step_size(
    blocks: Sequence[Block],
    bounds: Mapping[str, tuple[float, float]],
    *,
    num_samples: int = 2500,
    replace: bool = True,
    likelihood_scaled: bool = False,
) -> Callable[[jax.Array, dict, Any], dict]:
    r"""Return the ``step_size`` of `iasg` by Gonsior 2019, algorithm 3.1: one per coordinate.

    .. math:: \epsilon = 2\,\frac{S}{N}\,\frac{1}{\widehat{\mathrm{var}}(C)},

    with :math:`C` the gradient summed over a minibatch, taken at `num_samples`
    uniformly drawn points of the box.

    The variance over uniform points is mostly variance *between* points and not
    minibatch noise, so that the steps come out far too small (they also leave
    out the finite window). Offered to reproduce the thesis; not the default. With
    `likelihood_scaled` the block gradients carry the factor N/S, which is taken out for C and put
    back. Every site of a block needs bounds.
    """

    def measure(key, position, data):
        steps = {}
        for b, block in enumerate(blocks):
            fraction = block.fraction

            def one(k, block=block):
                key_point, key_cases = random.split(k)
                point = dict(position)
                for i, s in enumerate(sorted(bounds)):
                    v = position[s]
                    low, high = bounds[s]
                    point[s] = random.uniform(
                        random.fold_in(key_point, i), v.shape, v.dtype, low, high
                    )
                indices = draw_minibatch(key_cases, block, replace=replace)
                return block.gradient(point, indices, data, 1.0)

            keys = random.split(random.fold_in(key, b), num_samples)
            variance = joined(block, block.along(data), _streamed_variance(one, keys), position)
            # A gradient with the factor N/S is 1/fraction larger, its variance 1/fraction^2:
            # 2 fraction / var of the plain sum is then 2 / (fraction var), times fraction.
            scale = 2.0 if likelihood_scaled else 2.0 * fraction
            # No variance: nothing is seen of this coordinate, which then stays where it is.
            steps |= {s: jnp.where(v > 0, scale / v, 0.0) for s, v in variance.items()}
        return steps

    return measure


def _streamed_variance(one, keys):
    """Return the sample variance over keys by Welford's update, whose memory does not grow."""
    shape = jax.eval_shape(one, keys[0])
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shape)

    def add(carry, key):
        n, mean, m2 = carry
        x = one(key)
        n = n + 1.0
        d = jax.tree.map(jnp.subtract, x, mean)
        mean = jax.tree.map(lambda m, e: m + e / n, mean, d)
        m2 = jax.tree.map(lambda q, e, y, m: q + e * (y - m), m2, d, x, mean)
        return (n, mean, m2), None

    (n, _, m2), _ = lax.scan(add, (jnp.zeros(()), zeros, zeros), keys)
    return jax.tree.map(lambda q: q / (n - 1.0), m2)


def variance_ratio(step_size: float, window: int, fraction: float, *, replace: bool = True):
    r"""Return the variance of a window average over :math:`A^{-1}CA^{-1}/N`, for a Newton step.

    With preconditioner :math:`\epsilon A^{-1}` the error of the iterates is an
    autoregression with coefficient :math:`a=1-\epsilon`, and the average of T of
    them has

    .. math:: \frac{N}{S T}\left(1-\frac{2a(1-a^T)}{T(1-a^2)}\right)

    times the limit variance (for small :math:`\epsilon` and T = N/S this is
    :math:`r(x)=1-(1-e^{-x})/x`, :math:`x=\epsilon T`). The step is in (0, 2), `window` is T and
    `fraction` S/N. Without replacement the noise is smaller by 1 - S/N.
    """
    if not 0.0 < step_size < 2.0:
        raise InputError(f"step_size is {step_size}; give a value strictly between 0 and 2")
    return unchecked_variance_ratio(step_size, window, fraction, replace=replace)


def unchecked_variance_ratio(step_size, window: int, fraction: float, *, replace: bool = True):
    """Return `variance_ratio` of a step that may be traced, and in (0, 2)."""
    a = 1.0 - step_size
    finite = 1.0 - 2.0 * a * (1.0 - a**window) / (window * (1.0 - a * a))
    noise = 1.0 if replace else 1.0 - fraction
    return noise * finite / (fraction * window)


def matched_step_size(window: int, fraction: float, *, replace: bool = True) -> float:
    """Return the Newton step in (0, 1] for which a window average has the limit variance.

    It is one where even independent iterates vary too little for this window.
    """
    if variance_ratio(1.0, window, fraction, replace=replace) <= 1.0:
        return 1.0
    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if variance_ratio(middle, window, fraction, replace=replace) < 1.0:
            low = middle
        else:
            high = middle
    return high


def matched_window(fractions: Sequence[float], *, replace: bool = True) -> int:
    """Return the longest window whose matched steps stay at or below one half, at least 1.

    `fractions` holds S/N of every block.
    """
    for window in range(int(1.0 / max(fractions)), 1, -1):
        if all(matched_step_size(window, f, replace=replace) <= LONGEST_STEP for f in fractions):
            return window
    return 1


def matched_windows(
    fractions: Sequence[float], planned: Sequence[bool], *, replace: bool = True
) -> list[int]:
    """Return the window of every block: as long as its batch allows.

    A block whose batch is `planned` by `averaging_batch` averages `ENOUGH` iterates. None of
    the others averages more than the one that can average least, or than `ENOUGH`.
    """
    longest = [matched_window([f], replace=replace) for f in fractions]
    most = max(ENOUGH, min(longest))
    return [
        min(own, ENOUGH if chosen else most) for own, chosen in zip(longest, planned, strict=True)
    ]


def curvature_inflation(step_size: float, batch: int, coordinates: int) -> float:
    """Return by how much the noise of a minibatch's curvature multiplies the variance.

    `coordinates` is the number r of them that a case informs together. Infinite where the
    iterates leave for infinity.
    """
    left = 2.0 - step_size * (1.0 + (coordinates + 1) / batch)
    return (2.0 - step_size) / left if left > 0.0 else math.inf


def averaging_batch(size: int, coordinates: int, *, replace: bool = True) -> int | None:
    """Return the largest batch with which an average of `ENOUGH` iterates has the right spread.

    Its matched step is at most `PLANNED_STEP`, and the noise of its curvature widens the draws by
    at most `MOST_INFLATION` times what that of single cases would. None where a plate of `size`
    cases is too small: fewer than `ENOUGH_CASES`, or too few for so many coordinates.
    """

    def inflation(batch):
        step = matched_step_size(ENOUGH, batch / size, replace=replace)
        return curvature_inflation(step, batch, coordinates)

    if size < ENOUGH_CASES or math.isinf(inflation(1)):
        return None
    # The batch for which the longest step is the matched one.
    ratio = variance_ratio(PLANNED_STEP, ENOUGH, 1.0)
    most = int(size * (ratio if replace else ratio / (1.0 + ratio)))
    limit = MOST_INFLATION * inflation(1)
    return next(batch for batch in range(most, 0, -1) if inflation(batch) <= limit)


def small_batch(size: int, coordinates: int) -> int:
    """Return the batch of a plate that is too small to average: an eighth of it, or enough.

    Enough is four cases a coordinate, but at most half: steps as long as a full batch asks for
    leave the quadratic region.
    """
    return max(1, -(-size // 8), min(-(-size // 2), 4 * coordinates))


def default_batch(size: int, coordinates: int, *, replace: bool = True) -> int:
    """Return `averaging_batch`, or `small_batch` where there is none."""
    return averaging_batch(size, coordinates, replace=replace) or small_batch(size, coordinates)
