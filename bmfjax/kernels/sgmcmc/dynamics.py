r"""Langevin dynamics with stochastic gradients, with and without momentum: SGLD and SGHMC.

All sites move together. With the gradient :math:`\hat g` of the log density, estimated from
minibatches, a preconditioner :math:`P`, the friction :math:`\alpha` and the step
:math:`\epsilon`,

.. math:: v \leftarrow (1-\alpha)\,v + \epsilon P\hat g(x) + \eta, \qquad x \leftarrow x + v,
          \qquad \eta\sim N(0, B),

is stochastic gradient Hamiltonian Monte Carlo (Chen, Fox, Guestrin 2014, equation 15). With
:math:`\alpha=1` no momentum is left, and with :math:`\epsilon=h/2` the step is that of stochastic
gradient Langevin dynamics (Welling and Teh 2011). P is an inverse curvature, and constant: there is
no correction for a preconditioner that varies.

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
    by Newton's method. With control variates (Baker, Fearnhead, Fox, Nemeth 2019)

    .. math:: \hat g(x) = \nabla\log p(\hat x) + \hat g_B(x) - \hat g_B(\hat x),

    with the gradient of all data at the anchor :math:`\hat x` and two estimates from one
    minibatch B: the noise vanishes as x comes near the anchor.
First draws
    At the anchor the curvature may be next to nothing beside the prior's. The density of a
    factorisation, for example, is the same along rotations of its factors. Steps of the length
    that such a curvature allows would leave the ridge along its tangent, where gradients are many
    times as long, and the recursion would go to infinity. So the chain starts with short steps
    and the prior's curvature there, and A and V are measured anew, three times, in the mean over
    its draws. The mean curvature is also the covariance of the gradients of any density, as at
    the mode it is of a normal one only. The step is at most an eighth of what is stable at the
    largest curvature that was met. P is the inverse not of A alone, but of A and a share of V, so
    that in every direction half of the noise that a step has is left to inject. Where other sites,
    held fixed, have changed, anchor and gradient are found anew. A and V are then measured in the
    mean over the same draws, as far from the new anchor in units of the curvature there.
Shortened gradients
    A gradient with more than twice its usual norm by P is shortened to that (the truncated
    drift of Roberts and Tweedie 1996), so that no density sends the recursion to infinity.
All cases
    Where every minibatch has all cases and nothing is reflected, the density is known as well as
    its gradient. With noise "top-up" a step is then one of Metropolised dynamics with partly
    refreshed momentum (Horowitz 1991), which is accepted or refused. Draws are from the
    posterior, whatever the density is. With :math:`\alpha=1` this is the Metropolis-adjusted
    Langevin algorithm.
Bounds
    Coordinates on an interval or a half-line are reflected, and their velocities with them,
    along the co-normal direction (`bmfjax.kernels.sgmcmc.boundary.reflect`). The bias near the
    bound is of the order of :math:`\epsilon`; no transformation is involved.

What it leaves invariant
    The posterior, where steps are accepted or refused. Else, with noise "top-up": a normal density,
    but for the gradients' noise not being normal, at any step for which B is definite
    (`noise_share` below 1). Any other: as the step goes to zero.

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
from jax.scipy.linalg import solve_triangular

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.control import accepted
from bmfjax.kernels.numerics.minibatch import minibatches
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.sgmcmc import sandwich
from bmfjax.kernels.sgmcmc.boundary import reflect
from bmfjax.kernels.sgmcmc.calibration import (
    MAX_CASES,
    NUM_NEWTON,
    flatten,
    newton_mode,
    noise_at,
    scaled,
    symmetric_root,
    unflatten,
)
from bmfjax.kernels.sgmcmc.iasg import Block, adam_approach, given_start

#: Coordinates up to which the noise is measured at `FIRST_DRAWS`, not at `NUM_CURVATURES`.
MANY_COORDINATES = 64
#: Steps of Newton's method from the first anchor to that of other values of conditioned sites.
FEW_NEWTON = 3
#: Lengths of steps in the rounds of first draws, in usual ones; draws of a round, steps of a draw.
FIRST_LENGTHS = (1 / 16, 1 / 4, 1.0)
FIRST_DRAWS, FIRST_STEPS = 64, 10
#: First draws at which the curvature is measured, and steps of the power method for its largest.
NUM_CURVATURES, NUM_POWERS = 16, 20
#: Longest step, in the longest one that is stable at the largest curvature of the first draws.
STABLE = 1 / 8
#: Weight of a draw in the running share of refused steps.
RECENT = 0.05
#: Share of refused steps of a round from which on steps are halved.
MOST_REFUSED = 0.3


class Measured(NamedTuple):
    """What was measured at the anchor, on all data; in the order of the blocks where it is flat."""

    anchor: dict  # position
    gradient: dict  # of the log joint density there, by site
    log_joint: jax.Array  # () float, there
    preconditioner: jax.Array | None  # P, (d, d); None: the identity
    #: Symmetric root of B, (d, d); None: sqrt(2 alpha epsilon). The lower triangular root of P
    #: where steps are adjusted.
    noise_root: jax.Array | None
    step_size: jax.Array  # () float, epsilon
    longest: jax.Array  # () float: gradients with a longer norm, by P, are shortened to this one
    #: () float: noise of the gradients as a share of the noise that can be left out for it; NaN
    #: where it is not measured. Above 1 draws spread too widely.
    noise_share: jax.Array
    #: () int: directions at the anchor of which the data say nothing; see the module.
    num_flat: jax.Array


class FirstDraws(NamedTuple):
    """What first draws say of steps, also once other sites, held fixed, have changed."""

    #: Their distances to the anchor, (number, d), in units of the posterior by the curvature there.
    spread: jax.Array
    most: jax.Array  # () float: longest step of which enough were accepted


class DynamicsState(NamedTuple):
    """`velocity` is (d,); `origin` the anchor that was found first."""

    position: dict
    velocity: jax.Array
    origin: dict
    measured: Measured
    curbed: jax.Array  # () float: running share of steps that were refused or shortened
    first: FirstDraws | None  # None: without a preconditioner


class DynamicsInfo(NamedTuple):
    """Statistics of one draw, all () float."""

    log_joint: jax.Array  # from the last minibatch, by an expansion about the anchor
    clamped: jax.Array  # share of bounded coordinates that were reflected, over the steps
    noise_share: jax.Array  # as in `Measured`
    refused: jax.Array  # share of steps that were refused, over some hundred of them
    shortened: jax.Array  # share of steps whose gradient was shortened, over the same


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
    >>> init, step = jax.jit(sgld.init), jax.jit(sgld.step)
    >>> state = init(random.key(0), None, y)
    >>> for key in random.split(random.key(2), 20):
    ...     state, info = step(key, state, y)
    >>> bool(abs(state.position["mu"] - y.mean()) < 0.5)
    True
    """  # fmt: skip
    partial = [any(batch < size for size, batch in b.plates.values()) for b in blocks]
    adjusted = top_up and not any(partial) and not bounds
    approach = adam_approach(blocks, bounds, num_approach) if num_approach else None

    @full_precision
    def init(key, position, data):
        key_start, key_approach, key_cases, key_first = random.split(key, 4)
        if position is None:
            position = initial(key_start, data)
            position = {s: jnp.asarray(v, jnp.result_type(v)) for s, v in position.items()}
        else:
            position = given_start(position, jax.eval_shape(lambda k: initial(k, data), key_start))
        position = {s: jnp.clip(v, *bounds[s]) if s in bounds else v for s, v in position.items()}
        if approach is not None:
            position = approach(key_approach, position, data)
        measured, there = at_anchor(position, data, NUM_NEWTON)
        origin, first = measured.anchor, None
        flat = flatten(blocks, origin)
        velocity = jnp.zeros_like(flat)
        if preconditioned:
            measured = with_steps(measured, *there, 0.0 * there[1], length=FIRST_LENGTHS[0])
            known = by_some(key_cases, measured, data)
            flat, velocity, measured, first = settle(key_first, measured, known, there[1], data)
        position = unflatten(blocks, origin, flat)
        return DynamicsState(position, velocity, origin, measured, jnp.zeros_like(flat[0]), first)

    @full_precision
    def refresh(state, data):
        # A function of the conditioned sites alone, so that the step is one of their conditional.
        measured, there = at_anchor(state.origin, data, FEW_NEWTON)
        if not preconditioned:
            return state._replace(measured=measured)
        flat, key = flatten(blocks, measured.anchor), random.key(0)
        points = jnp.clip(
            flat + scaled(state.first.spread, there[1]), *_ends(blocks, state.origin, bounds)
        )
        known = by_some(key, measured, data)
        measured = at_draws(key, measured, known, points, data, state.first.most)
        velocity = state.velocity
        if adjusted:  # normal, with the step as variance
            velocity = velocity * jnp.sqrt(measured.step_size / state.measured.step_size)
        return state._replace(velocity=velocity, measured=measured)

    def at_anchor(position, data, num_newton):
        """Return what is at the anchor, and A and the metric there, or None."""
        flat = flatten(blocks, position)
        low, high = _ends(blocks, position, bounds)

        def density(flat):
            return log_density(unflatten(blocks, position, flat), {}, data)

        def curvature_at(flat):
            return curvature_of(flat, position, {}, data)

        if preconditioned:
            flat = newton_mode(
                density, curvature_at, flat, num_newton, lambda x: jnp.clip(x, low, high)
            )
        anchor = unflatten(blocks, position, flat)
        gradient = {}
        for block in blocks:
            gradient |= block.gradient(anchor, {}, data, 1.0)
        value, nothing = density(flat), jnp.asarray(jnp.nan, flat.dtype)
        step = jnp.asarray(usual_step if step_size is None else step_size, flat.dtype)
        measured = Measured(
            anchor, gradient, value, None, None, step, nothing, nothing, jnp.asarray(0)
        )
        if not preconditioned:
            return measured, None
        curvature = sandwich.definite(curvature_at(flat))
        metric, num_flat = sandwich.at_least(curvature, prior_curvature(flat, position, data))
        metric = metric + scale_at_bounds(measured)
        return measured._replace(num_flat=num_flat), (curvature, metric)

    def scale_at_bounds(measured):
        flat, slope = flatten(blocks, measured.anchor), flatten(blocks, measured.gradient)
        ends = _ends(blocks, measured.anchor, bounds)
        return jnp.diag(_scale_at_bounds(flat, slope, *ends))

    def with_steps(measured, curvature, metric, noise, most=jnp.inf, length=1.0):
        """Return what steps need, from A, the inverse of P, and V.

        A step that is chosen here is at most `most`; then it is taken times `length`.
        """
        drag = friction / (2.0 - friction)
        if step_size is None:  # where V is large, steps are short for it
            metric = metric + noise / (friction / usual_step - drag)
        inverse = sandwich.covariance_at(metric)
        half = jnp.linalg.cholesky(inverse)
        largest = jnp.max(jnp.linalg.eigvalsh(half.T @ noise @ half))
        step = jnp.minimum(usual_step, most) if step_size is None else jnp.asarray(step_size)
        step = (length * step).astype(metric.dtype)
        if not top_up:
            root = symmetric_root(2.0 * friction * step * inverse)
            return measured._replace(preconditioner=inverse, noise_root=root, step_size=step)
        lacking = 2.0 * friction * step * inverse - step**2 * (
            inverse @ (drag * curvature + noise) @ inverse
        )
        return measured._replace(
            preconditioner=inverse,
            noise_root=half if adjusted else symmetric_root(lacking),
            step_size=step,
            # Twice the usual norm, and two more for the sake of a single coordinate.
            longest=2.0 + 2.0 * jnp.sqrt(jnp.trace(inverse @ (curvature + noise))),
            noise_share=step * largest / (2.0 * friction - step * drag),
        )

    def by_some(key, measured, data):
        """Return some cases, and what these do not tell of the curvature."""
        sizes = {p: size for block in blocks for p, (size, _) in block.plates.items()}
        some = {
            p: random.permutation(random.fold_in(key, n), size)[:MAX_CASES]
            for n, (p, size) in enumerate(sorted(sizes.items()))
            if size > MAX_CASES
        }
        if not some:
            return some, 0.0
        flat, shape = flatten(blocks, measured.anchor), measured.anchor
        return some, curvature_of(flat, shape, {}, data) - curvature_of(flat, shape, some, data)

    def curvature_of(flat, shape, cases, data):
        def density(x):
            return log_density(unflatten(blocks, shape, x), cases, data)

        return -jax.hessian(density)(flat)

    def at_draws(key, measured, known, points, data, most, length=1.0):
        """Return what steps need, from A and V in the mean over draws (number, d)."""
        shape, (some, rest) = measured.anchor, known
        each, priors = lax.map(
            lambda x: (curvature_of(x, shape, some, data) + rest, prior_curvature(x, shape, data)),
            points[:: FIRST_DRAWS // NUM_CURVATURES],
        )
        curvature = sandwich.definite(each.mean(0))
        metric = sandwich.at_least(curvature, priors.mean(0))[0] + scale_at_bounds(measured)
        noise = noise_of(key, shape, data, points)
        found = STABLE * (4.0 - 2.0 * friction) / _largest(each, metric)
        return with_steps(measured, curvature, metric, noise, jnp.minimum(most, found), length)

    def settle(key, measured, known, metric, data):
        """Draw from the anchor on, and measure A and V again where the draws are.

        `metric` is that at the anchor.

        Returns
        -------
        flat, velocity : (d,) float
            Where the chain is then.
        measured : Measured
        first : FirstDraws
        """
        start = flatten(blocks, measured.anchor)

        def one(n, carry):
            x, velocity, measured, most, _ = carry
            key_draws, key_noise = random.split(random.fold_in(key, n))
            length = jnp.asarray((*FIRST_LENGTHS, 1.0), start.dtype)

            def draw(carry, key):
                x, velocity, curbed, _ = advance(key, *carry, measured, data, FIRST_STEPS)
                return (x, velocity), (x, curbed)

            keys = random.split(key_draws, FIRST_DRAWS)
            (x, velocity), (points, curbed) = lax.scan(draw, (x, velocity), keys)
            refused = curbed.mean() > MOST_REFUSED
            most = jnp.where(refused, 0.5 * measured.step_size / length[n], most)
            measured = at_draws(key_noise, measured, known, points, data, most, length[n + 1])
            return x, velocity, measured, most, points

        none = jnp.zeros((FIRST_DRAWS, len(start)), start.dtype)
        carry = start, jnp.zeros_like(start), measured, jnp.asarray(jnp.inf, start.dtype), none
        x, velocity, measured, most, points = lax.fori_loop(0, len(FIRST_LENGTHS), one, carry)
        spread = (points - start) @ jnp.linalg.cholesky(metric)
        return x, velocity, measured, FirstDraws(spread.astype(start.dtype), most)

    def prior_curvature(flat, position, data):
        """Return minus the second derivative of the log prior, (d, d)."""

        def slope(flat):
            point, found = unflatten(blocks, position, flat), {}
            for block in blocks:
                found |= block.gradient(point, {}, data, 0.0)
            return flatten(blocks, found)

        return -jax.jacfwd(slope)(flat)

    def noise_of(key, anchor, data, points):
        """Return V, in the mean over points (number, d)."""
        if not top_up or not any(partial):
            return jnp.zeros((points.shape[1],) * 2, points.dtype)
        covariance = noise_at(blocks, key, anchor, data, replace=True, relative=control_variates)
        shares = [1.0 / b.fraction if p else 0.0 for b, p in zip(blocks, partial, strict=True)]
        sizes = [sum(jnp.size(anchor[s]) for s in b.sites) for b in blocks]
        weight = jnp.repeat(jnp.asarray(shares, points.dtype), np.array(sizes))
        if points.shape[1] > MANY_COORDINATES:
            points = points[:: len(points) // NUM_CURVATURES]
        return weight * lax.map(covariance, points).mean(0)

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
        measured = state.measured
        x, velocity, curbed, outside = advance(
            key, flatten(blocks, state.position), state.velocity, measured, data, num_steps
        )
        curbed = state.curbed + RECENT * (curbed - state.curbed)
        position = unflatten(blocks, state.position, x)
        draw = _draws(random.split(key)[0], blocks, num_steps)
        last = {p: at(num_steps - 1) for plates in reversed(draw) for p, at in plates.items()}
        info = DynamicsInfo(
            estimated_log_joint(position, measured, last, data),
            outside,
            measured.noise_share,
            curbed if adjusted else jnp.zeros_like(curbed),
            jnp.zeros_like(curbed) if adjusted else curbed,
        )
        return state._replace(position=position, velocity=velocity, curbed=curbed), info

    def advance(key, x, velocity, measured, data, num_steps):
        """Take steps; return where they end, and the shares refused and brought back to bounds."""
        if adjusted:
            return *accepted_steps(key, x, velocity, measured, data, num_steps), jnp.zeros(())
        key_cases, key_noise = random.split(key)
        draw = _draws(key_cases, blocks, num_steps)
        shape = measured.anchor
        low, high = _ends(blocks, shape, bounds)
        bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        epsilon = measured.step_size

        def body(t, carry):
            x, velocity, shortened, outside = carry
            indices = [{p: at(t) for p, at in plates.items()} for plates in draw]
            gradient = estimate(unflatten(blocks, shape, x), measured, indices, data)
            noise = random.normal(random.fold_in(key_noise, t), x.shape, x.dtype)
            if measured.preconditioner is None:
                kick = epsilon * gradient + jnp.sqrt(2.0 * friction * epsilon) * noise
            else:
                move = measured.preconditioner @ gradient
                if top_up:
                    share = measured.longest / jnp.sqrt(gradient @ move)
                    shortened = shortened + (share < 1.0)
                    move = jnp.minimum(share, 1.0) * move
                kick = epsilon * move + measured.noise_root @ noise
            velocity = (1.0 - friction) * velocity + kick
            x = x + velocity
            if len(bounded):
                outside = outside + jnp.sum((x < low) | (x > high))
                x, velocity = reflect(
                    x, velocity, measured.preconditioner, low, high, tuple(bounded.tolist())
                )
            return x, velocity, shortened, outside

        start = x, velocity, jnp.zeros(()), jnp.zeros(())
        x, velocity, shortened, outside = lax.fori_loop(0, num_steps, body, start)
        return x, velocity, shortened / num_steps, outside / (num_steps * max(len(bounded), 1))

    def accepted_steps(key, x, velocity, measured, data, num_steps):
        """Take steps on all data, accepted or refused; the velocity is in units of P."""
        root = measured.noise_root
        epsilon = 2.0 * measured.step_size / (2.0 - friction)

        @jax.value_and_grad
        def density(x):
            return log_density(unflatten(blocks, measured.anchor, x), {}, data)

        def body(t, carry):
            x, velocity, value, gradient, refused = carry
            key_noise, key_accept = random.split(random.fold_in(key, t))
            noise = random.normal(key_noise, x.shape, x.dtype)
            kept = 1.0 - friction
            velocity = kept * velocity + jnp.sqrt((1.0 - kept**2) * epsilon) * noise
            middle = velocity + 0.5 * epsilon * root.T @ gradient
            there = x + root @ middle
            value_there, gradient_there = density(there)
            last = middle + 0.5 * epsilon * root.T @ gradient_there
            gain = value_there - value - (last @ last - velocity @ velocity) / (2.0 * epsilon)
            # Not where the density has left the finite numbers.
            takes = accepted(key_accept, gain)[0] & jnp.isfinite(value_there + gain)
            new = there, last, value_there, gradient_there
            old = x, -velocity, value, gradient
            return *jax.tree.map(lambda a, b: jnp.where(takes, a, b), new, old), refused + ~takes

        start = x, velocity, *density(x), jnp.zeros(())
        x, velocity, _, _, refused = lax.fori_loop(0, num_steps, body, start)
        return x, velocity, refused / num_steps

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


@full_precision
def _largest(matrices, metric):
    """Return the largest eigenvalue of curvatures (number, d, d), in size, in units of a metric."""
    root = jnp.linalg.cholesky(metric)

    def power(_, vectors):
        vectors = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        moved = jnp.einsum("nij,nj->ni", matrices, solve_triangular(root.T, vectors.T).T)
        return solve_triangular(root, moved.T, lower=True).T

    start = random.normal(random.key(0), matrices.shape[:2], matrices.dtype)
    found = lax.fori_loop(0, NUM_POWERS, power, start)
    return jnp.max(jnp.linalg.norm(found, axis=1))
