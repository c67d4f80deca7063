"""Step sizes for IASG: as calibrated in the thesis, and matched to the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.sgmcmc.iasg import Block, draw_minibatch


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
            variance = _streamed_variance(one, keys)
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
    a = 1.0 - step_size
    if not 0.0 < step_size < 2.0:
        raise InputError(f"step_size is {step_size}; give a value strictly between 0 and 2")
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

    Longer steps leave the region in which the density is quadratic: with half a
    Newton step the iterates spread by N/(3S) posterior variances, with a whole one
    by N/S. `fractions` holds S/N of every block.
    """
    for window in range(int(1.0 / max(fractions)), 1, -1):
        if all(matched_step_size(window, f, replace=replace) <= 0.5 for f in fractions):
            return window
    return 1
