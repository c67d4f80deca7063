r"""Calibration of IASG: curvature and gradient noise are measured, step and draws fitted to them.

At the start, on all data:

1. Newton's method finds the mode of the moving sites together.
2. From there the normal :math:`q = N(m, A^{-1})` is found for which the gradient is zero and the
   curvature :math:`A`, both in the mean over q (the Gaussian variational approximation of Opper
   and Archambeau 2009), with a few points in the place of q. It is about where iterates with the
   posterior's spread are, and closer to a skewed posterior than its mode.
3. The noise covariance :math:`C` of the gradients of single cases (by ``vmap``) is averaged over
   q. So it has the part that minibatches have from the noise of their curvature. It is taken in
   full from all cases, or from 4,096 of them; of a matrix of more than 256 coordinates these are
   too few, and it is then a Kronecker product (`bmfjax.kernels.sgmcmc.kronecker`).

Then, by `kind`,

"step"
    each block gets the Newton step for which its averages have the posterior's variance, on
    average over coordinates, by :math:`\operatorname{tr}(A^{-1}C)` instead of the assumption
    :math:`C = A`. Draws stay as they are.
"sandwich"
    each gets the step for which the *iterates* have that variance: the skewness of the density
    then shifts their mean about as far from the mode as it does the posterior's. Draws are moved
    by :math:`x \to \bar x + L(x - \bar x)`, with the mean of the averages so far and the L of
    `bmfjax.kernels.sgmcmc.sandwich`.
"top-up"
    the same with the noise that the gradients lack: to those of a block, of which S cases leave
    :math:`\tfrac NSC_b`, normal noise with covariance
    :math:`\tfrac{2-\epsilon}\epsilon A_b - \tfrac NSC_b` is added (stochastic gradient Fisher
    scoring: Ahn, Korattikara, Welling 2012). Iterates then have the covariance
    :math:`A^{-1}` in every direction, with any number of blocks: for a normal density the step is
    an overrelaxed Gibbs step. L makes up for the averaging alone.

What all need: a density that is nearly quadratic where the posterior is, with the curvature
nearly constant, and no active bounds. `Calibration.departure` says by how much the curvature at
the mode differs from A. In directions in which the curvature is next to nothing, such as
rotations of factors, A has the prior's. Where the prior says more than the cases, C is small
against A: "sandwich" then has to stretch much, and "top-up" does not.
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

from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.sgmcmc import sandwich
from bmfjax.kernels.sgmcmc.iasg import Block, Calibrating
from bmfjax.kernels.sgmcmc.kronecker import kronecker_factors
from bmfjax.kernels.sgmcmc.step_size import LONGEST_STEP, unchecked_variance_ratio

#: Points in the place of a normal, in pairs around its mean; fewer where there are many cases, as
#: the posterior is then normal. Rounds in which the normal is found.
NUM_POINTS, FEW_POINTS, MANY_CASES = 64, 8, 50_000
NUM_ROUNDS = 10
#: Coordinates of a block of which C is estimated in full from some of the cases.
FULL_COORDINATES = 256
#: Cases from which the noise is measured, at most; steps of Newton's method and their lengths.
MAX_CASES = 4096
NUM_NEWTON = 30
LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
#: Posterior standard deviations that may be left to the mode, and to the closest normal.
NEAR = 0.01
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
    top_up : tuple of (d, d) float
        For each block a root of the covariance of the noise that is added to its step; empty
        unless the kind is "top-up".
    num_flat : () int
        Directions in which the curvature is next to nothing beside the prior's, which A has there.
    """

    curvature: jax.Array
    noise: jax.Array
    correction: jax.Array
    ratio: dict
    departure: jax.Array
    mean: jax.Array
    count: jax.Array
    top_up: tuple
    num_flat: jax.Array


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


@full_precision
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


@full_precision
def added_noise(blocks, calibration: Calibration, position: dict, b: int, key) -> dict:
    """Draw what is added to a step of block `b`."""
    root = calibration.top_up[b]
    unravel = ravel_pytree({s: position[s] for s in blocks[b].sites})[1]
    return unravel(root @ random.normal(key, (len(root),), root.dtype))


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

    `kind` is "step", "sandwich" or "top-up". `step_size` is used where it is given, and must be
    without `newton` steps. Every block has one plate and its `case_gradients`.
    """

    @full_precision
    def calibrate(key, position, data):
        key_cases, key_points, key_steps = random.split(key, 3)

        def density(flat, power=1.0):
            return log_joint(position | unflatten(blocks, position, flat), data, power)

        def curvature_at(flat):
            return -jax.hessian(density)(flat)

        mode = newton_mode(density, curvature_at, flatten(blocks, position), NUM_NEWTON)
        prior = -jax.hessian(density)(mode, 0.0)
        at_mode, num_flat = sandwich.at_least(sandwich.definite(curvature_at(mode)), prior)
        covariance_at = noise_at(blocks, key_cases, position, data, replace=replace)
        most = max(n for b in blocks for n, _ in b.plates.values())
        few = most > MANY_CASES or len(mode) > FULL_COORDINATES
        normal = pairs(key_points, len(mode), FEW_POINTS if few else NUM_POINTS)
        mean, curvature = _closest_normal(
            mode, at_mode, normal, jax.grad(density), curvature_at, prior
        )
        noise = lax.map(covariance_at, mean + scaled(normal, curvature)).mean(0)
        found = position | unflatten(blocks, position, mean)
        parts = _slices(blocks, position)
        shares = [(1.0 if replace else 1.0 - b.fraction) / b.fraction for b in blocks]
        steps = {}
        if step_size is None:
            for block, part, share in zip(blocks, parts, shares, strict=True):
                values = _relative(curvature[part, part], noise[part, part])
                step = _step(kind, values, window, block.fraction, share, replace)
                steps |= dict.fromkeys(block.sites, step)
        else:
            steps = step_size(key_steps, found, data) if callable(step_size) else dict(step_size)
        matrices = [
            _preconditioner(block, steps, position, curvature[part, part] if newton else None)
            for block, part in zip(blocks, parts, strict=True)
        ]
        total = [share * noise[part, part] for part, share in zip(parts, shares, strict=True)]
        top_up = []
        if kind == "top-up":
            for b, (block, part) in enumerate(zip(blocks, parts, strict=True)):
                step = steps[block.sites[0]]
                lacking = (2.0 - step) / step * curvature[part, part] - total[b]
                top_up.append(matrices[b] @ symmetric_root(lacking))
                total[b] = total[b] + lacking
        covariance = sandwich.average_covariance(
            sandwich.sweep(
                curvature, jax.scipy.linalg.block_diag(*total), matrices, [1.0] * len(total)
            ),
            window,
        )
        return (
            found,
            steps,
            Calibration(
                curvature,
                noise,
                sandwich.calibrating_map(curvature, covariance),
                unflatten(blocks, position, sandwich.sd_ratios(curvature, covariance)),
                jnp.max(jnp.abs(_relative(curvature, at_mode) - 1.0)),
                mean,
                jnp.asarray(WEIGHT_OF_MODE, mode.dtype),
                tuple(top_up),
                num_flat,
            ),
        )

    return Calibrating(
        calibrate,
        functools.partial(block_curvatures, blocks),
        None if kind == "step" else functools.partial(corrected, blocks),
        functools.partial(added_noise, blocks) if kind == "top-up" else None,
    )


def _slices(blocks, position):
    """Return where each block lies in the vector of all."""
    parts, start = [], 0
    for block in blocks:
        size = sum(jnp.size(position[s]) for s in block.sites)
        parts.append(slice(start, start + size))
        start += size
    return parts


def newton_mode(density, curvature_at, start, num_steps, project=lambda x: x):
    """Return the mode: Newton steps, each of the length of a few with which the density is best.

    They end with one shorter than `NEAR` standard deviations: with many cases each takes a second.
    `project` brings points back into the support.
    """
    lengths = jnp.asarray(LENGTHS, start.dtype)

    @full_precision
    def one(carry):
        n, flat, _ = carry
        curvature = sandwich.definite(curvature_at(flat))
        move = jnp.linalg.solve(curvature, jax.grad(density)(flat))
        values = jax.vmap(lambda length: density(project(flat + length * move)))(lengths)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        # The longest that is as good as any but for rounding.
        good = values >= jnp.max(values) - 1e-6 * jnp.abs(jnp.max(values))
        step = lengths[jnp.argmax(good)] * move
        moved = jnp.where(jnp.isfinite(jnp.max(values)), project(flat + step), flat)
        away = moved - flat
        return n + 1, moved, away @ curvature @ away > NEAR**2

    def goes_on(carry):
        return (carry[0] < num_steps) & carry[2]

    return lax.while_loop(goes_on, one, (0, start, jnp.asarray(num_steps > 0)))[1]


def noise_at(blocks, key, position, data, *, replace, relative=False):
    """Return the function from a point to C, from the same cases at every point.

    `relative` to `position`: that of control variates, of differences to the gradients there.
    """
    cases = []
    for b, block in enumerate(blocks):
        ((plate, (size, _)),) = block.plates.items()
        some = random.permutation(random.fold_in(key, b), size)[:MAX_CASES]
        cases.append((plate, size, some if size > MAX_CASES else jnp.arange(size)))

    def covariance_at(flat):
        point = position | unflatten(blocks, position, flat)
        parts = []
        for block, (plate, size, some) in zip(blocks, cases, strict=True):
            each = block.case_gradients(point, {plate: some}, data, 1.0)
            if relative:
                there = block.case_gradients(position, {plate: some}, data, 1.0)
                each = {s: g - there[s] for s, g in each.items()}
            # Floats: the product of two numbers of cases may be no int32.
            weight = len(some) / (float(size) * (len(some) - (0 if replace else 1)))
            parts.append(weight * _covariance(each, size))
        return jax.scipy.linalg.block_diag(*parts)

    return covariance_at


@full_precision
def _covariance(each, size):
    """Return the covariance (d, d) of single-case gradients, of some of so many cases.

    For many coordinates, about which some cases say too little, that of a matrix is a Kronecker
    product.
    """
    # As `ravel_pytree` orders them: by name.
    arrays = [each[s] - each[s].mean(0) for s in sorted(each)]
    cases = len(arrays[0])
    coordinates = sum(a.size for a in arrays) // cases
    if coordinates > FULL_COORDINATES and cases < size:
        (matrix,) = arrays
        return jnp.kron(*kronecker_factors(matrix))
    rows = jnp.concatenate([a.reshape(cases, -1) for a in arrays], axis=1)
    return rows.T @ rows / cases


def pairs(key, size, number):
    """Return so many standard normal points (point, size), each with its opposite."""
    half = random.normal(key, (number // 2, size))
    return jnp.concatenate([half, -half])


@full_precision
def scaled(normal, curvature):
    """Return points with the inverse of the curvature as covariance."""
    root = jnp.linalg.cholesky(curvature).T
    return solve_triangular(root, normal.astype(root.dtype).T).T


def _closest_normal(mode, at_mode, normal, gradient_at, curvature_at, prior):
    """Return the mean and curvature with which gradient and curvature agree in the mean.

    The curvature is at least that of the `prior`.
    A round that leaves the finite numbers is not taken; the rounds end with one that changes the
    normal by less than `NEAR` standard deviations.
    """

    @full_precision
    def one(carry):
        n, mean, curvature, _ = carry
        points = mean + scaled(normal, curvature)
        gradients, curvatures = lax.map(lambda x: (gradient_at(x), curvature_at(x)), points)
        found = sandwich.at_least(sandwich.definite(curvatures.mean(0)), prior)[0]
        away = jnp.linalg.solve(found, gradients.mean(0))
        usable = jnp.isfinite(found).all() & jnp.isfinite(away).all()
        change = jnp.max(jnp.abs(_relative(found, curvature) - 1.0))
        far = (away @ found @ away > NEAR**2) | (change > NEAR)
        moved = jnp.where(usable, mean + away, mean), jnp.where(usable, found, curvature)
        return n + 1, *moved, usable & far

    def goes_on(carry):
        return (carry[0] < NUM_ROUNDS) & carry[3]

    return lax.while_loop(goes_on, one, (0, mode, at_mode, jnp.asarray(True)))[1:3]


@full_precision
def _relative(curvature, noise):
    """Return the eigenvalues of a symmetric matrix in coordinates with unit curvature."""
    root = jnp.linalg.cholesky(curvature)
    half = solve_triangular(root, noise, lower=True)
    return jnp.linalg.eigvalsh(solve_triangular(root, half.T, lower=True))


@full_precision
def symmetric_root(matrix):
    """Return a symmetric root of a matrix that is definite but for rounding."""
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T


def _step(kind, values, window, fraction, share, replace):
    """Return the Newton step by the eigenvalues of the noise, all one if C = A."""
    if kind != "step":
        # step / (2 - step), times the noise of a step: the variance of the iterates, to be one on
        # average, or to leave something to add in every direction.
        present = share * (jnp.mean(values) if kind == "sandwich" else jnp.max(values))
        return jnp.minimum(2.0 / (1.0 + present), LONGEST_STEP)
    scale = jnp.mean(values)

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
    return lengths[:, None] * sandwich.covariance_at(curvature)
