r"""Reflected MALA: Langevin proposals folded into the box, accepted or rejected line by line.

Given the other factor matrix the lines (rows) of a factor matrix are independent, and
each is moved by its own Metropolis step (Roberts and Tweedie 1996). The proposal is

.. math:: x_k' = \operatorname{fold}\big(\mu_k(x) + s_k\xi_k\big),\qquad
   \mu(x) = x + \tfrac12 s^2\odot\nabla\log p(x) \text{ clipped to the box},\qquad
   s_k^2 = u^2 h / A_{kk},

with :math:`A_{kk}` the curvature in that coordinate, which depends on the other factor
matrix alone, and u uniform on [0, 1], drawn for each line and step: a line in a corner of
the box where the gradient is large rejects long steps for ever, and leaves by short ones.
Folding by reflection at :math:`l` and :math:`u = l + w` makes its density
a sum over images, :math:`\sum_k N(2kw + l \pm (x'-l); \mu, s^2)`; with s at most w/3 and
the mean in the box the images :math:`k\in\{-1,0,1\}` are all of it in double precision
but for :math:`10^{-8}`. On :math:`[l, \infty)` there is one image besides the point. The
mean is held in the box as one far outside would be folded far inside, and rejected.

What it leaves invariant
    The posterior, exactly, at any inverse temperature of the likelihood and for any
    prior that is finite at its bounds. Every step takes all data.

The change of a quadratic log likelihood is taken from the gradients at both ends,
:math:`\tfrac12(g(x)+g(x'))^\top(x'-x)`: exact, and nothing cancels.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.checks import positive, whole
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.data import FACTORS, OTHER, MatrixData, cross_product, oriented
from bmfjax.kernels.relaxed.density import EntryPrior, RelaxedDensity
from bmfjax.kernels.sgmcmc.gradients import (
    check_density,
    end_draw,
    prior_gradient,
    scale_curvature,
    start_position,
)


def fold(x, low, high):
    r"""Reflect numbers into [low, high], however far outside they are.

    With :math:`y \sim N(\mu, s^2)`, :math:`l` the lower end and :math:`w` the width, every y of
    the form :math:`l + 2kw \pm (x - l)` becomes x, so that the density of x
    (`folded_log_density`) is the sum of the normal density over these images. The upper end may
    be infinite.
    """
    if high == float("inf"):
        return low + jnp.abs(x - low)
    width = high - low
    y = jnp.mod((x - low) / width, 2.0)
    return low + width * (1.0 - jnp.abs(1.0 - y))


def folded_log_density(x, mean, variance, low, high):
    r"""Return the log density of a folded normal variable, up to :math:`-\tfrac12\log(2\pi s^2)`.

    The mean lies in the interval and the variance is at most a ninth of its squared width. No
    image of x is then nearer to the mean than x: relative to x the images add at most five, and
    cannot overflow.
    """
    a, b = x - low, mean - low
    # (a - b)^2 minus the squared distance of the image from b, all of them at most 0.
    images = [-4.0 * a * b]
    if high < float("inf"):
        w = high - low
        images += [
            -4.0 * (w - a) * (w - b),
            -4.0 * (w + a) * (w + b),
            -4.0 * w * (w + a - b),
            -4.0 * w * (w - a + b),
        ]
    half = 0.5 / variance
    return jnp.log1p(sum(jnp.exp(i * half) for i in images)) - half * (a - b) ** 2


#: Widest proposal, as a share of the box.
WIDEST = 1 / 3


class MalaState(NamedTuple):
    """`position`: `usage`, `basis` and, where they are learned, `precision` and `rate`."""

    position: dict


class MalaInfo(NamedTuple):
    """Statistics of one draw, all () float; the first three as of `truncated_gibbs`."""

    log_joint: jax.Array
    log_likelihood: jax.Array
    residual: jax.Array
    acceptance: jax.Array  # share accepted, over lines, both factor matrices and steps


def reflected_mala(
    density: RelaxedDensity, *, initial: Callable, step_size: float = 0.5, num_steps: int = 10
) -> Algorithm:
    """Build the sampler of a density for data that are a `MatrixData`.

    `initial(key, data)` is a random start. `step_size` is h, in units of a coordinate's variance
    given all others. Of the `num_steps` of each factor matrix in one draw those after the first
    take no product with the data where nothing is missing.
    """
    positive("step_size", step_size)
    whole("num_steps", num_steps)
    check_density(density, at_bounds=True)

    def init(key, position, data):
        position = initial(key, data) if position is None else position
        return MalaState(start_position(density, position, data))

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        *keys, key_end = random.split(key, 3)
        position = dict(state.position)
        weight = inverse_temperature * density.noise_precision(position)
        accepted = []
        for factor, k in zip(FACTORS, keys, strict=True):
            moved, share = update_factor(
                k, factor, position[factor].T, position[OTHER[factor]].T, data,
                getattr(density, factor), weight, step_size, num_steps, position.get("rate"),
            )  # fmt: skip
            position[factor] = moved.T
            accepted.append(share)
        position, statistics = end_draw(density, key_end, position, data, inverse_temperature)
        return MalaState(position), MalaInfo(*statistics, sum(accepted) / 2)

    def observe(state, info):
        return {**state.position, **info._asdict()}

    return Algorithm(init, step, observe)


def update_factor(
    key, factor, x, other, data, prior: EntryPrior, weight, step_size, num_steps, rate=None
):
    """Move one factor matrix `x` (rank, m) by Metropolis steps, every line by its own.

    Return it with the share of accepted steps. `weight` is the noise precision times the inverse
    temperature.
    """
    box = (prior.low, prior.high)
    likelihood_gradient, curvature = _likelihood(factor, other, data, weight)
    diagonal = jnp.broadcast_to(scale_curvature(prior, rate), x.shape[:1])[:, None]
    widest = step_size / (curvature + prior.curvature + diagonal)
    widest = jnp.minimum(widest, (WIDEST * (prior.high - prior.low)) ** 2)

    def mean(x, likelihood, variance):
        total = likelihood + prior_gradient(prior, x, rate)
        return jnp.clip(x + 0.5 * variance * total, *box)

    def step(t, carry):
        x, likelihood, accepted = carry
        key_move, key_lines = random.split(random.fold_in(key, t))
        length, u = random.uniform(key_lines, (2, x.shape[1]), x.dtype)
        # A step of no length has no density.
        variance = jnp.maximum(length, 1e-3) ** 2 * widest
        ahead = mean(x, likelihood, variance)
        noise = jnp.sqrt(variance) * random.normal(key_move, x.shape, x.dtype)
        proposal = fold(ahead + noise, *box)
        new = likelihood_gradient(proposal)
        back = mean(proposal, new, variance)
        ratio = jnp.sum(
            0.5 * (likelihood + new) * (proposal - x)
            + _prior_change(prior, x, proposal, rate)
            + folded_log_density(x, back, variance, *box)
            - folded_log_density(proposal, ahead, variance, *box),
            axis=0,
        )
        taken = jnp.log(u) < ratio  # false where it is not a number
        x, likelihood = jnp.where(taken, proposal, x), jnp.where(taken, new, likelihood)
        return x, likelihood, accepted + jnp.mean(taken, dtype=x.dtype)

    start = (x, likelihood_gradient(x), jnp.zeros((), x.dtype))
    x, _, accepted = lax.fori_loop(0, num_steps, step, start)
    return x, accepted / num_steps


@full_precision
def _likelihood(factor, other, data: MatrixData, weight):
    """Return the log likelihood's gradient as a function of x, and minus its second derivatives."""
    values, observed = oriented(factor, data)
    if observed is None:
        cross, gram = cross_product(data, factor, other.T), other @ other.T
        return lambda x: weight * (cross - gram @ x), weight * jnp.diagonal(gram)[:, None]
    ot = lax.optimization_barrier(other.T)

    @full_precision
    def gradient(x):
        return weight * (other @ ((values - ot @ x) * observed))

    return gradient, weight * ((other * other) @ observed)


def _prior_change(prior: EntryPrior, x, new, rate):
    """Return the change of the log prior density, elementwise."""
    if prior.quadratic is None:
        return (prior.log_prob(new.T, rate) - prior.log_prob(x.T, rate)).T
    ends = prior_gradient(prior, x, rate) + prior_gradient(prior, new, rate)
    return 0.5 * ends * (new - x)
