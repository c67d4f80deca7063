r"""Langevin dynamics with stochastic gradients, with and without momentum: SGLD and SGHMC.

All sites move together. With the gradient :math:`\hat g` of the log density, estimated from
minibatches, a preconditioner :math:`P`, the friction :math:`\alpha` and the step
:math:`\epsilon`,

.. math:: v \leftarrow (1-\alpha)\,v + \epsilon P\hat g(x) + \eta, \qquad x \leftarrow x + v,
          \qquad \eta\sim N(0, B),

is stochastic gradient Hamiltonian Monte Carlo (Chen, Fox, Guestrin 2014, equation 15). With
:math:`\alpha=1` no momentum is left, and with :math:`\epsilon=h/2` the step is that of stochastic
gradient Langevin dynamics (Welling and Teh 2011). P is the inverse curvature at the anchor, and
constant: there is no correction for a preconditioner that varies. In directions in which that
curvature is next to nothing beside the prior's, P has the inverse of the prior's. The density of a
factorisation, for example, is the same along rotations of its factors. The curvature there is
zero, and steps of the length that it allows would leave the ridge along its tangent.

Injected noise
    "langevin" injects :math:`B=2\alpha\epsilon P`, right as the step and the gradient's noise
    go to zero. "top-up" injects less, by what the gradient's noise and the length of the step
    put in already (stochastic gradient Fisher scoring: Ahn, Korattikara, Welling 2012). Let A
    be the curvature and V the covariance of :math:`\hat g`. Then

    .. math:: B = 2\alpha\epsilon P
              - \epsilon^2 P\Big(\frac{\alpha}{2-\alpha}A + V\Big)P.

    The recursion of x is autoregressive of second order. For a normal density its stationary
    covariance with this B is :math:`A^{-1}`, for *any* P, step and friction: with
    :math:`PA=a` in one direction, x has the coefficients :math:`2-\alpha-\epsilon a` and
    :math:`\alpha-1`, and the variance
    :math:`(2-\alpha)(B+\epsilon^2PVP)/(\alpha\,\epsilon a\,(4-2\alpha-\epsilon a))`.
Anchor and control variates
    The anchor is an optimum, found before the first draw: by steps of Adam on minibatches, then
    by Newton's method. A and V are measured there, V in the mean over the normal distribution
    with the curvature A. With control variates (Baker, Fearnhead, Fox, Nemeth 2019)

    .. math:: \hat g(x) = \nabla\log p(\hat x) + \hat g_B(x) - \hat g_B(\hat x),

    with the gradient of all data at the anchor :math:`\hat x` and two estimates from one
    minibatch B: the noise vanishes as x comes near the anchor.
Bounds
    Coordinates on an interval or a half-line are reflected, and their velocities with them,
    along the co-normal direction (`bmfjax.kernels.sgmcmc.boundary.reflect`). The bias near the
    bound is of the order of :math:`\epsilon`; no transformation is involved.

What it leaves invariant
    With noise "top-up": a normal density, but for the gradients' noise not being normal, at any
    step for which B is definite (`noise_share` below 1). Any other: as the step goes to zero.

Why SGHMC and not the Nosé-Hoover thermostat (SGNHT: Ding et al. 2014)
    The thermostat needs no estimate of the noise, but it can take out noise of one size in all
    directions only: one number adapts. Here the full V is measured, which B makes up for in every
    direction; and the recursion stays linear, so that what it does to a normal density is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.minibatch import minibatches
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.sgmcmc import sandwich
from bmfjax.kernels.sgmcmc.boundary import reflect
from bmfjax.kernels.sgmcmc.calibration import (
    FEW_POINTS,
    NUM_NEWTON,
    NUM_POINTS,
    flatten,
    newton_mode,
    noise_at,
    pairs,
    scaled,
    symmetric_root,
    unflatten,
)
from bmfjax.kernels.sgmcmc.iasg import Block, adam_approach, given_start

#: Coordinates up to which the noise is measured at `NUM_POINTS` points instead of `FEW_POINTS`.
MANY_COORDINATES = 64
#: Steps of Newton's method from the first anchor to that of other values of conditioned sites.
FEW_NEWTON = 3


class Measured(NamedTuple):
    """What was measured at the anchor, on all data; in the order of the blocks where it is flat."""

    anchor: dict  # position
    gradient: dict  # of the log joint density there, by site
    log_joint: jax.Array  # () float, there
    preconditioner: jax.Array | None  # P, (d, d); None: the identity
    noise_root: jax.Array | None  # symmetric root of B, (d, d); None: sqrt(2 alpha epsilon)
    step_size: jax.Array  # () float, epsilon
    #: () float: noise of the gradients as a share of the noise that can be left out for it; NaN
    #: where it is not measured. Above 1 draws spread too widely.
    noise_share: jax.Array
    #: () int: directions in which P has the inverse curvature of the prior; see the module.
    num_flat: jax.Array


class DynamicsState(NamedTuple):
    """`velocity` is (d,); `origin` the anchor that was found first."""

    position: dict
    velocity: jax.Array
    origin: dict
    measured: Measured


class DynamicsInfo(NamedTuple):
    """Statistics of one draw, all () float."""

    log_joint: jax.Array  # from the last minibatch, by an expansion about the anchor
    clamped: jax.Array  # share of bounded coordinates that were reflected, over the steps
    noise_share: jax.Array  # as in `Measured`


class Dynamics(NamedTuple):
    """The algorithm, and how its state follows where other sites, held fixed, have changed."""

    algorithm: Algorithm
    refresh: Callable[..., DynamicsState]  # refresh(state, data) -> state


def stochastic_dynamics(
    log_density: Callable[..., jax.Array],
    blocks: Sequence[Block],
    *,
    initial: Callable,
    bounds: Mapping[str, tuple[float, float]],
    friction: float,
    step_size: float | None,
    usual_step: float,
    num_steps: int,
    num_approach: int,
    top_up: bool = True,
    control_variates: bool = True,
    preconditioned: bool = True,
) -> Dynamics:
    r"""Build SGHMC, or SGLD with friction 1, from a density and the gradients of its blocks.

    Parameters
    ----------
    log_density : callable
        ``log_density(position, indices, data)``, a scalar: the log joint density as the
        cases with these indices estimate it, on all data where `indices` is empty.
    blocks : sequence of Block
        With `gradient`, and with `case_gradients` where `top_up`; their sites are all that
        moves. A batch of as many cases as there are takes all of them, else cases are
        drawn with replacement.
    initial : callable
        ``initial(key, data) -> position``, from which the anchor is looked for.
    bounds : mapping
        ``{site: (low, high)}`` of the sites that are reflected; `high` may be infinite.
    friction : float
        :math:`\alpha`, in (0, 1].
    step_size : float or None
        :math:`\epsilon`. None, with `top_up` only: `usual_step`, or less where the gradients'
        noise leaves no room for that.
    usual_step : float
    num_steps : int
        Steps of one draw.
    num_approach : int
        Steps of Adam towards the anchor.
    top_up, control_variates, preconditioned : bool
        See the module. `top_up` needs `preconditioned`.

    Returns
    -------
    Dynamics

    Examples
    --------
    The mean of a Gaussian sample, posterior standard deviation 0.1:

    >>> y = 1.0 + random.normal(random.key(1), (100,))
    >>> def log_density(p, i, y):
    ...     cases = i.get("cases", jnp.arange(100))
    ...     return -0.5 * 100 / len(cases) * jnp.sum((y[cases] - p["mu"]) ** 2)
    >>> def gradient(p, i, y, inverse_temperature):
    ...     return jax.grad(lambda p: inverse_temperature * log_density(p, i, y))(p)
    >>> def case_gradients(p, i, y, inverse_temperature):
    ...     return jax.vmap(lambda c: gradient(p, {"cases": c[None]}, y, 1.0))(i["cases"])
    >>> sgld, _ = stochastic_dynamics(
    ...     log_density,
    ...     [Block(("mu",), {"cases": (100, 10)}, gradient, case_gradients=case_gradients)],
    ...     initial=lambda key, y: {"mu": jnp.zeros(())},
    ...     bounds={}, friction=1.0, step_size=None, usual_step=0.15, num_steps=10,
    ...     num_approach=10,
    ... )
    >>> state, step = sgld.init(random.key(0), None, y), jax.jit(sgld.step)
    >>> for key in random.split(random.key(2), 20):
    ...     state, info = step(key, state, y)
    >>> bool(abs(state.position["mu"] - y.mean()) < 0.5)
    True
    """  # fmt: skip
    partial = [any(batch < size for size, batch in b.plates.values()) for b in blocks]
    approach = adam_approach(blocks, bounds, num_approach) if num_approach else None

    @full_precision
    def init(key, position, data):
        key_start, key_approach, key_measure, key_first = random.split(key, 4)
        if position is None:
            position = initial(key_start, data)
            position = {s: jnp.asarray(v, jnp.result_type(v)) for s, v in position.items()}
        else:
            position = given_start(position, jax.eval_shape(lambda k: initial(k, data), key_start))
        position = {s: jnp.clip(v, *bounds[s]) if s in bounds else v for s, v in position.items()}
        if approach is not None:
            position = approach(key_approach, position, data)
        measured = measure(key_measure, position, data, NUM_NEWTON)
        origin = measured.anchor
        flat = flatten(blocks, origin)
        if preconditioned:  # chains start at draws of the normal approximation
            spread = random.normal(key_first, flat.shape, flat.dtype)
            root = jnp.linalg.cholesky(measured.preconditioner)
            flat = jnp.clip(flat + root @ spread, *_ends(blocks, origin, bounds))
        position = unflatten(blocks, origin, flat)
        return DynamicsState(position, jnp.zeros_like(flat), origin, measured)

    def refresh(state, data):
        # A function of the conditioned sites alone, so that the step is one of their conditional.
        measured = measure(random.key(0), state.origin, data, FEW_NEWTON)
        return state._replace(measured=measured)

    def measure(key, position, data, num_newton):
        flat = flatten(blocks, position)
        low, high = _ends(blocks, position, bounds)

        def density(flat):
            return log_density(unflatten(blocks, position, flat), {}, data)

        def curvature_at(flat):
            return -jax.hessian(density)(flat)

        if preconditioned:
            flat = newton_mode(
                density, curvature_at, flat, num_newton, lambda x: jnp.clip(x, low, high)
            )
        anchor = unflatten(blocks, position, flat)
        gradient = {}
        for block in blocks:
            gradient |= block.gradient(anchor, {}, data, 1.0)
        value, nothing = density(flat), jnp.asarray(jnp.nan, flat.dtype)
        if not preconditioned:
            step = jnp.asarray(step_size, flat.dtype)
            return Measured(anchor, gradient, value, None, None, step, nothing, jnp.asarray(0))
        curvature = sandwich.definite(curvature_at(flat))
        slope = flatten(blocks, gradient)
        metric, num_flat = sandwich.at_least(curvature, prior_curvature(flat, position, data))
        metric = metric + jnp.diag(_scale_at_bounds(flat, slope, low, high))
        inverse = sandwich.covariance_at(metric)
        if not top_up:
            step = jnp.asarray(step_size, flat.dtype)
            root = symmetric_root(2.0 * friction * step * inverse)
            return Measured(anchor, gradient, value, inverse, root, step, nothing, num_flat)
        noise = noise_of(key, anchor, data, metric, low, high)
        half = jnp.linalg.cholesky(inverse)
        most = jnp.max(jnp.linalg.eigvalsh(half.T @ noise @ half))
        drag = friction / (2.0 - friction)
        # Half of the step at which nothing is left to inject.
        room = friction / (drag + most)
        step = jnp.minimum(usual_step, room) if step_size is None else jnp.asarray(step_size)
        step = step.astype(flat.dtype)
        lacking = 2.0 * friction * step * inverse - step**2 * (
            inverse @ (drag * curvature + noise) @ inverse
        )
        share = step * most / (2.0 * friction - step * drag)
        root = symmetric_root(lacking)
        return Measured(anchor, gradient, value, inverse, root, step, share, num_flat)

    def prior_curvature(flat, position, data):
        """Return minus the second derivative of the log prior, (d, d)."""

        def slope(flat):
            point, found = unflatten(blocks, position, flat), {}
            for block in blocks:
                found |= block.gradient(point, {}, data, 0.0)
            return flatten(blocks, found)

        return -jax.jacfwd(slope)(flat)

    def noise_of(key, anchor, data, metric, low, high):
        """Return V, in the mean over the normal approximation at the anchor."""
        shares = [1.0 / b.fraction if p else 0.0 for b, p in zip(blocks, partial, strict=True)]
        if not any(partial):
            return jnp.zeros_like(metric)
        key_cases, key_points = random.split(key)
        covariance = noise_at(
            blocks, key_cases, anchor, data, replace=True, relative=control_variates
        )
        number = NUM_POINTS if len(metric) <= MANY_COORDINATES else FEW_POINTS
        points = flatten(blocks, anchor) + scaled(pairs(key_points, len(metric), number), metric)
        sizes = [sum(jnp.size(anchor[s]) for s in b.sites) for b in blocks]
        weight = jnp.repeat(jnp.asarray(shares, metric.dtype), np.array(sizes))
        return weight * lax.map(covariance, jnp.clip(points, low, high)).mean(0)

    def estimate(position, measured, indices, data):
        """Return the gradient from these cases, flat."""
        found = {}
        for block, some, cases in zip(blocks, partial, indices, strict=True):
            gradient = block.gradient(position, cases, data, 1.0)
            if some and control_variates:
                there = block.gradient(measured.anchor, cases, data, 1.0)
                gradient = {s: g - there[s] + measured.gradient[s] for s, g in gradient.items()}
            found |= gradient
        return flatten(blocks, found)

    def estimated_log_joint(position, measured, indices, data):
        """Expand to first order about the anchor exactly, and the rest from these cases."""
        away = jax.tree.map(jnp.subtract, position, measured.anchor)
        known = sum(jnp.vdot(measured.gradient[s], d) for s, d in away.items())
        there, slope = jax.jvp(lambda x: log_density(x, indices, data), (measured.anchor,), (away,))
        here = log_density(position, indices, data)
        return measured.log_joint + known + (here - there - slope)

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        if not (isinstance(inverse_temperature, float) and inverse_temperature == 1.0):
            raise InputError("SGLD and SGHMC know no tempering; run them at temperature 1")
        key_cases, key_noise = random.split(key)
        draw = _draws(key_cases, blocks, num_steps)
        measured, shape = state.measured, state.position
        low, high = _ends(blocks, shape, bounds)
        bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        epsilon = measured.step_size

        def body(t, carry):
            x, velocity, outside = carry
            indices = [{p: at(t) for p, at in plates.items()} for plates in draw]
            gradient = estimate(unflatten(blocks, shape, x), measured, indices, data)
            noise = random.normal(random.fold_in(key_noise, t), x.shape, x.dtype)
            if measured.preconditioner is None:
                kick = epsilon * gradient + jnp.sqrt(2.0 * friction * epsilon) * noise
            else:
                kick = epsilon * (measured.preconditioner @ gradient) + measured.noise_root @ noise
            velocity = (1.0 - friction) * velocity + kick
            x = x + velocity
            if len(bounded):
                outside = outside + jnp.sum((x < low) | (x > high))
                x, velocity = reflect(
                    x, velocity, measured.preconditioner, low, high, tuple(bounded.tolist())
                )
            return x, velocity, outside

        start = (flatten(blocks, shape), state.velocity, jnp.zeros(()))
        x, velocity, outside = lax.fori_loop(0, num_steps, body, start)
        position = unflatten(blocks, shape, x)
        last = {p: at(num_steps - 1) for plates in reversed(draw) for p, at in plates.items()}
        info = DynamicsInfo(
            estimated_log_joint(position, measured, last, data),
            outside / (num_steps * max(len(bounded), 1)),
            measured.noise_share,
        )
        return state._replace(position=position, velocity=velocity), info

    def observe(state, info):
        return state.position | info._asdict()

    return Dynamics(Algorithm(init, step, observe), refresh)


def _draws(key, blocks, num_steps):
    """Return ``{plate: at}`` of every block with ``at(t)`` the cases of step t, unless all."""
    found = []
    for b, block in enumerate(blocks):
        found.append({})
        for p, (plate, (size, batch)) in enumerate(sorted(block.plates.items())):
            if batch < size:
                own = random.fold_in(random.fold_in(key, b), p)
                found[-1][plate] = minibatches(own, size, batch, num_steps)
    return found


def _ends(blocks, position, bounds):
    """Return the bounds of all coordinates, flat NumPy arrays, infinite where there are none."""
    ends = []
    for end, none in ((0, -math.inf), (1, math.inf)):
        parts = [
            np.full(np.size(position[s]), bounds[s][end] if s in bounds else none)
            for block in blocks
            for s in sorted(block.sites)
        ]
        ends.append(np.concatenate(parts).astype(position[blocks[0].sites[0]].dtype))
    return ends


def _scale_at_bounds(x, slope, low, high):
    """Return the curvature, for the preconditioner only, of what bounds alone keep together.

    On an interval that of a uniform distribution, 12 / width^2; where the anchor is at the end of a
    half-line, that of an exponential distribution with the slope there.
    """
    width = high - low
    interval = np.where(np.isfinite(width), 12.0 / width**2, 0.0)
    at_end = ((x <= low) & (slope < 0.0)) | ((x >= high) & (slope > 0.0))
    return jnp.where(at_end & ~np.isfinite(width), slope**2, interval).astype(x.dtype)
