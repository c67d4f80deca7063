r"""Calibration of IASG: curvature and gradient noise are measured, step and draws fitted to them.

At the start, on all data:

1. Newton's method finds the mode of the moving sites together.
2. The curvature :math:`A` and the noise covariance :math:`C` of the gradients of single cases
   (by ``vmap``) are averaged over points :math:`N(\text{mode}, A^{-1})`, which is about where
   the iterates will be. So C has the part that minibatches have from their curvature.
3. "step": each block gets the Newton step for which its averages have the posterior's variance,
   on average over coordinates, by :math:`\operatorname{tr}(A^{-1}C)` instead of the assumption
   :math:`C = A`. "sandwich": each gets the step for which the *iterates* have it, and draws are
   moved by :math:`x \to m + L(x - m)`, with m the mean of the averages so far and L that of
   `bmfjax.kernels.sgmcmc.sandwich`. Then the skewness of the density shifts the iterates' mean
   about as far from the mode as it does the posterior's.

What this needs: a density that is nearly quadratic where the posterior is, with the curvature
nearly constant, and no active bounds. `Calibration.departure` says by how much the curvature at
the mode differs from the mean over those points.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from bmfjax.kernels.sgmcmc import sandwich
from bmfjax.kernels.sgmcmc.iasg import Block, Calibrating
from bmfjax.kernels.sgmcmc.step_size import LONGEST_STEP, unchecked_variance_ratio

#: Points over which curvature and noise are averaged, in pairs around the mode.
NUM_POINTS = 32
#: Cases from which the noise is measured, at most; steps of Newton's method and their lengths.
MAX_CASES = 4096
NUM_NEWTON = 30
LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
#: Draws that the mode counts for in the mean about which draws are corrected.
WEIGHT_OF_MODE = 8.0


class Calibration(NamedTuple):
    """What was measured at the start, in the order of the blocks, sites by name within each.

    Attributes
    ----------
    curvature : (d, d) float
        A, minus the second derivative of the log density of all data.
    noise : (d, d) float
        C, N times the covariance of gradients of single cases; zero between blocks.
    correction : (d, d) float
        L, which gives draws the covariance of the posterior.
    ratio : dict
        Standard deviations of averages, by theory, over the posterior's: one a coordinate.
    departure : () float
        Largest relative difference of the curvature at the mode from its mean over the posterior.
    mean, count : (d,) float, () float
        Mean of the averages before correction, and how many it is of.
    """

    curvature: jax.Array
    noise: jax.Array
    correction: jax.Array
    ratio: dict
    departure: jax.Array
    mean: jax.Array
    count: jax.Array


def flatten(blocks: Sequence[Block], values: dict) -> jax.Array:
    """Return the values of all moving sites as one vector, block after block."""
    return jnp.concatenate([ravel_pytree({s: values[s] for s in b.sites})[0] for b in blocks])


def unflatten(blocks: Sequence[Block], values: dict, flat: jax.Array) -> dict:
    """Invert `flatten`; `values` tells the shapes."""
    out, start = {}, 0
    for block in blocks:
        part, unravel = ravel_pytree({s: values[s] for s in block.sites})
        out |= unravel(flat[start : start + part.size])
        start += part.size
    return out


def corrected(blocks, calibration: Calibration, average: dict) -> tuple[dict, Calibration]:
    """Move a draw so that draws have the posterior's covariance; take it into their mean."""
    flat = flatten(blocks, average)
    count = calibration.count + 1.0
    mean = calibration.mean + (flat - calibration.mean) / count
    moved = mean + calibration.correction @ (flat - mean)
    return unflatten(blocks, average, moved), calibration._replace(mean=mean, count=count)


def block_curvatures(blocks, calibration: Calibration, position: dict) -> list[jax.Array]:
    """Return the part of the curvature that belongs to each block."""
    parts = _slices(blocks, position)
    return [calibration.curvature[part, part] for part in parts]


def calibrating(
    log_joint: Callable[..., jax.Array],
    blocks: Sequence[Block],
    *,
    window: int,
    replace: bool,
    kind: str,
    step_size: dict | Callable | None,
    newton: bool,
) -> Calibrating:
    """Return how to calibrate: from a position and the data to mode, steps and `Calibration`.

    `kind` is "step" or "sandwich". `step_size` is used where it is given, and must be without
    `newton` steps. Every block has one plate and its `case_gradients`.
    """

    def calibrate(key, position, data):
        key_cases, key_points, key_steps = random.split(key, 3)

        def density(flat):
            return log_joint(position | unflatten(blocks, position, flat), data, 1.0)

        def curvature_at(flat):
            return -jax.hessian(density)(flat)

        mode = _newton(density, curvature_at, flatten(blocks, position))
        at_mode = sandwich.definite(curvature_at(mode))
        curvature, noise = _mean_over_posterior(
            mode,
            at_mode,
            key_points,
            curvature_at,
            _noise_at(blocks, key_cases, position, data, replace),
        )
        found = position | unflatten(blocks, position, mode)
        parts = _slices(blocks, position)
        fractions = [block.fraction for block in blocks]
        if step_size is None:
            steps = {}
            for block, part, fraction in zip(blocks, parts, fractions, strict=True):
                inverse = sandwich.inverse(curvature[part, part])
                scale = jnp.trace(inverse @ noise[part, part]) / len(inverse)
                step = _step(kind, scale, window, fraction, replace)
                steps |= dict.fromkeys(block.sites, step)
        else:
            steps = step_size(key_steps, found, data) if callable(step_size) else dict(step_size)
        matrices = [
            _preconditioner(block, steps, position, curvature[part, part] if newton else None)
            for block, part in zip(blocks, parts, strict=True)
        ]
        shares = [(1.0 if replace else 1.0 - f) / f for f in fractions]
        covariance = sandwich.average_covariance(
            sandwich.sweep(curvature, noise, matrices, shares), window
        )
        return (
            found,
            steps,
            Calibration(
                curvature,
                noise,
                sandwich.calibrating_map(curvature, covariance),
                unflatten(blocks, position, sandwich.sd_ratios(curvature, covariance)),
                _departure(at_mode, curvature),
                mode,
                jnp.asarray(WEIGHT_OF_MODE, mode.dtype),
            ),
        )

    return Calibrating(
        calibrate,
        functools.partial(block_curvatures, blocks),
        functools.partial(corrected, blocks) if kind == "sandwich" else None,
    )


def _slices(blocks, position):
    """Return where each block lies in the vector of all."""
    parts, start = [], 0
    for block in blocks:
        size = sum(jnp.size(position[s]) for s in block.sites)
        parts.append(slice(start, start + size))
        start += size
    return parts


def _newton(density, curvature_at, start):
    """Return the mode: Newton steps, each of the length of a few with which the density is best."""
    lengths = jnp.asarray(LENGTHS, start.dtype)

    def one(_, flat):
        move = jnp.linalg.solve(sandwich.definite(curvature_at(flat)), jax.grad(density)(flat))
        values = jax.vmap(lambda length: density(flat + length * move))(lengths)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        # The longest that is as good as any but for rounding.
        good = values >= jnp.max(values) - 1e-6 * jnp.abs(jnp.max(values))
        return flat + lengths[jnp.argmax(good)] * move

    return lax.fori_loop(0, NUM_NEWTON, one, start)


def _noise_at(blocks, key, position, data, replace):
    """Return the function from a point to C, from the same cases at every point."""
    cases = []
    for b, block in enumerate(blocks):
        ((plate, (size, _)),) = block.plates.items()
        some = random.permutation(random.fold_in(key, b), size)[:MAX_CASES]
        cases.append((plate, size, some if size > MAX_CASES else jnp.arange(size)))

    def noise_at(flat):
        point = position | unflatten(blocks, position, flat)
        parts = []
        for block, (plate, size, some) in zip(blocks, cases, strict=True):
            each = block.case_gradients(point, {plate: some}, data, 1.0)
            # As `ravel_pytree` orders them: by name.
            rows = jnp.concatenate([each[s].reshape(len(some), -1) for s in sorted(each)], axis=1)
            rows = rows - rows.mean(0)
            parts.append(rows.T @ rows / (size * (len(some) - (0 if replace else 1))))
        return jax.scipy.linalg.block_diag(*parts)

    return noise_at


def _mean_over_posterior(mode, at_mode, key, curvature_at, noise_at):
    """Return the means of curvature and noise over the posterior; at the mode if one diverges."""
    root = jnp.linalg.cholesky(at_mode).T
    normal = random.normal(key, (NUM_POINTS // 2, len(mode)), mode.dtype)
    away = solve_triangular(root, normal.T).T
    points = jnp.concatenate([mode + away, mode - away])
    curvatures, noises = lax.map(lambda x: (curvature_at(x), noise_at(x)), points)
    curvature, noise = curvatures.mean(0), noises.mean(0)
    usable = jnp.isfinite(curvature).all() & jnp.isfinite(noise).all()
    usable = usable & (jnp.linalg.eigvalsh(jnp.where(usable, curvature, at_mode))[0] > 0.0)
    curvature = jnp.where(usable, curvature, at_mode)
    return sandwich.definite(curvature), jnp.where(usable, noise, noise_at(mode))


def _step(kind, scale, window, fraction, replace):
    """Return the Newton step by the noise, `scale` times that of the assumption C = A."""
    if kind == "sandwich":
        # step / (2 - step), times scale N / S: the variance of the iterates, to be one.
        share = fraction / (scale * (1.0 if replace else 1.0 - fraction))
        return jnp.minimum(2.0 * share / (1.0 + share), LONGEST_STEP)

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        ratio = scale * unchecked_variance_ratio(middle, window, fraction, replace=replace)
        return jnp.where(ratio < 1.0, middle, low), jnp.where(ratio < 1.0, high, middle)

    ends = (jnp.full_like(scale, 1e-6), jnp.full_like(scale, LONGEST_STEP))
    return lax.fori_loop(0, 30, halve, ends)[1]


def _preconditioner(block, steps, position, curvature):
    """Return the matrix by which a block's gradient is multiplied in a step."""
    sizes = {s: jnp.broadcast_to(steps[s], jnp.shape(position[s])) for s in block.sites}
    lengths = ravel_pytree(sizes)[0]
    if curvature is None:
        return jnp.diag(lengths)
    return lengths[:, None] * sandwich.inverse(curvature)


def _departure(at_mode, curvature):
    root = jnp.linalg.cholesky(curvature)
    relative = solve_triangular(root, solve_triangular(root, at_mode, lower=True).T, lower=True)
    return jnp.max(jnp.abs(jnp.linalg.eigvalsh(relative) - 1.0))
