r"""Langevin steps on a box, all lines of a factor matrix at once, four ways at the bounds.

Every line (row of a factor matrix) has the same curvature :math:`A` and a gradient of
its own, :math:`g`, perhaps an estimate. With :math:`H = A^{-1}`, :math:`\xi` standard
normal and step :math:`h`, in units of the covariance :math:`H`:

"clamp"
    :math:`x + \tfrac h2 Hg + \sqrt h\,H^{1/2}\xi`, projected onto the box (Bubeck, Eldan,
    Lehec 2018; Lamperski 2021). Leaves an atom on the bounds of order :math:`\sqrt h`.
"reflect"
    The same proposal, reflected. The bias is of order h.

    For both, the flux of probability through a bound vanishes for the target density
    only if points come back along :math:`He_k`, the co-normal direction (Lions and
    Sznitman 1984): a coordinate k that is below its bound by :math:`\delta` moves the
    point by :math:`2\delta He_k/H_{kk}`, and by half of that in a projection in the
    metric of :math:`H^{-1}`. Clipping or folding each coordinate by itself has a bias
    that stays as h goes to zero, where coordinates are correlated.
"logit"
    Langevin in :math:`w = \operatorname{logit} u`, u the coordinate in units of the box,
    with the gradient :math:`u(1-u)\,g + (1-2u)` (the second part is the Jacobian's) and
    the constant preconditioner :math:`(A/16 + I/2)^{-1}`, as :math:`u(1-u)\le 1/4`.
"truncate"
    An auxiliary variable. Let D be diagonal with :math:`Q = D - A \ge 0`, and
    :math:`z \mid x \sim N(x, Q^{-1})`. For a density with constant curvature A on the
    box, :math:`x \mid z` then has precision :math:`A + Q = D`: independent truncated
    normal coordinates. With :math:`Qz = Qx + Q^{1/2}\xi` its mean before truncation is

    .. math:: x + D^{-1}\big(g + Q^{1/2}\xi\big),

    a Langevin step with normal noise drawn in two parts. It leaves the density
    invariant *exactly*, at any D, at the bounds too. A gradient with normal noise of
    covariance :math:`V \le Q` takes the place of part of :math:`Q^{1/2}\xi`: drawing
    :math:`(Q-V)^{1/2}\xi` keeps the step exact. Here
    :math:`D = D_1/h`, :math:`h<1`, with
    :math:`D_{1,k} = A_{kk}\sum_l|A_{kl}|/\sqrt{A_{kk}A_{ll}}`, the row sums after scaling
    to a unit diagonal, for which :math:`D_1 - A` is diagonally dominant; and
    :math:`Q = (D_1 - A) + (D - D_1)`: one Cholesky factor serves the first part for all
    lines, V is taken off the second, elementwise.

Noise in the gradient widens the others as well: by :math:`\tfrac{h^2}4 HVH`, for which
the injected noise is reduced to :math:`(h - \tfrac{h^2}4 v)_+H`, with
:math:`v = \operatorname{mean}_k V_{kk}/A_{kk}` for each line (stochastic gradient Fisher
scoring: Ahn, Korattikara, Welling 2012; Mandt, Hoffman, Blei 2016).

Arrays are (rank, m), one factor a row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.linalg import solve_triangular

from bmfjax.kernels.numerics.mesh import WHOLE
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile

#: Times that all coordinates are returned in turn; what is still outside is clipped.
PASSES = 2
#: Relative margin that keeps D_1 - A, which is singular, definite in float32.
MARGIN = 1e-3
#: Ends of the logit scale: one ulp of float32 from the upper end of the box.
LOGIT_RANGE = 15.9


class Step(NamedTuple):
    """What a step did."""

    x: jax.Array  # (rank, m)
    held: jax.Array  # () float: share of coordinates that had to be brought back into the box
    #: () float: noise of the gradient as a share of the noise that can be left out for it.
    noise_share: jax.Array


@full_precision
def clamp_step(key, x, gradient, variance, curvature, box, step_size, top_up) -> Step:
    """Take a Langevin step with the preconditioner ``inv(curvature)``, projected onto the box.

    `x`, the gradient and the variance of its estimate are (rank, m), `curvature` is (rank, rank),
    `box` a pair of numbers, and `step_size` is h in units of ``inv(curvature)``. With `top_up`
    the injected noise is less what the gradient's has put in.
    """
    proposal, root, share = _proposal(key, x, gradient, variance, curvature, step_size, top_up)
    moved = conormal_return(proposal, root.T @ root, box, 1.0)
    return Step(moved, _share_outside(proposal, box), share)


@full_precision
def reflect_step(key, x, gradient, variance, curvature, box, step_size, top_up) -> Step:
    """Take the step of `clamp_step`, reflected into the box instead."""
    proposal, root, share = _proposal(key, x, gradient, variance, curvature, step_size, top_up)
    moved = conormal_return(proposal, root.T @ root, box, 2.0)
    return Step(moved, _share_outside(proposal, box), share)


def conormal_return(x, preconditioner, box, times: float, num_passes: int = PASSES) -> jax.Array:
    """Bring points (rank, m) back into a box along the columns of the preconditioner.

    They go `times` the distance to the bound: 2 reflects, 1 projects. Returning one coordinate can
    push another out; what is outside after the passes is clipped.
    """
    low, high = box
    rank = x.shape[0]
    directions = times * (preconditioner / jnp.diagonal(preconditioner)).T

    def one(t, x):
        k = t % rank
        inwards = jnp.maximum(low - x[k], 0.0) - jnp.maximum(x[k] - high, 0.0)
        return x + directions[k][:, None] * inwards

    return jnp.clip(lax.fori_loop(0, num_passes * rank, one, x), low, high)


def reflect(x, velocity, preconditioner, low, high, bounded: tuple[int, ...]):
    """Reflect a point and its velocity, both (d,), at the ends of the coordinates in `bounded`.

    A coordinate k is reflected along column k of the preconditioner (d, d), the velocity with it in
    the metric of its inverse (Afshar and Domke 2015), both one coordinate after the other; None is
    the identity. `low` and `high` are (d,); what is still outside after the passes is clipped.
    """
    if preconditioner is None:
        inside = jnp.where(x < low, 2.0 * low - x, jnp.where(x > high, 2.0 * high - x, x))
        outside = (x < low) | (x > high)
        return jnp.clip(inside, low, high), jnp.where(outside, -velocity, velocity)
    places, low_ends, high_ends = (jnp.asarray(a) for a in (bounded, low, high))

    def one(t, carry):
        x, velocity = carry
        k = places[t % len(bounded)]
        direction = 2.0 * preconditioner[:, k] / preconditioner[k, k]
        inwards = jnp.maximum(low_ends[k] - x[k], 0.0) - jnp.maximum(x[k] - high_ends[k], 0.0)
        turned = velocity - jnp.where(inwards != 0.0, velocity[k], 0.0) * direction
        return x + direction * inwards, turned

    x, velocity = lax.fori_loop(0, PASSES * len(bounded), one, (x, velocity))
    return jnp.clip(x, low, high), velocity


def logit_step(key, x, gradient, variance, curvature, box, step_size, top_up) -> Step:
    """Take a Langevin step in the logits of the coordinates; `curvature` may be singular."""
    low, high = box
    width = high - low
    u = (x - low) / width
    # A coordinate on a bound has no logit; in float32 1 - u has no more digits than this.
    edge = 1.0 / (1.0 + math.exp(LOGIT_RANGE))
    u = jnp.clip(u, edge, 1.0 - edge)
    slope = u * (1.0 - u)
    identity = jnp.eye(x.shape[0], dtype=x.dtype)
    w, _, share = _proposal(
        key,
        jnp.log(u) - jnp.log1p(-u),
        slope * width * gradient + (1.0 - 2.0 * u),
        (slope * width) ** 2 * variance,
        width**2 / 16.0 * curvature + 0.5 * identity,
        step_size,
        top_up,
    )
    held = jnp.mean(jnp.abs(w) >= LOGIT_RANGE, dtype=x.dtype)
    w = jnp.clip(w, -LOGIT_RANGE, LOGIT_RANGE)
    return Step(low + width * jax.nn.sigmoid(w), held, share)


@full_precision
def truncate_step(
    key, x, gradient, variance, curvature, box, step_size, top_up, size=None, along=WHOLE
) -> Step:
    """Take an auxiliary-variable step, exact for a normal density truncated to the box.

    `curvature` is minus the second derivative of the log density, and `step_size` less than 1: what
    is missing to 1 is room for the gradient's noise. `held` counts coordinates that came out equal
    to a bound, which is rounding. On a mesh m may be this device's part of `size` lines: their
    random numbers are those that they have without one.
    """
    key_shared, key_own, key_x = random.split(key, 3)
    whole = (x.shape[0], x.shape[1] if size is None else size)

    def drawn(draw, key):
        return along.own(draw(key, whole, x.dtype), 1)

    def mean(values):
        own = along.own(jnp.ones(whole[1], x.dtype))  # not of what fills up
        return along.total(jnp.sum(values * own)) / math.prod(whole)

    least, root = _dominant_diagonal(curvature)
    precision = least / step_size
    own = (precision - least)[:, None]
    left = jnp.maximum(own - variance, 0.0) if top_up else jnp.broadcast_to(own, x.shape)
    noise = root @ drawn(random.normal, key_shared)
    noise = noise + jnp.sqrt(left) * drawn(random.normal, key_own)
    linear = precision[:, None] * x + gradient + noise
    uniform = drawn(random.uniform, key_x)
    # One factor at a time: XLA on CPU would compute parts of it again for all that follows.
    moved = lax.map(
        lambda factor: truncated_normal_quantile(*factor, *box), (uniform, linear, precision)
    )
    share = mean(variance / jnp.maximum(own, jnp.finfo(x.dtype).tiny))
    return Step(moved, mean((moved <= box[0]) | (moved >= box[1])), share)


@full_precision
def _proposal(key, x, gradient, variance, curvature, step_size, top_up):
    """Return a noisy Newton step, a root R of the preconditioner R'R, and the noise share."""
    identity = jnp.eye(x.shape[0], dtype=x.dtype)
    root = solve_triangular(jnp.linalg.cholesky(curvature), identity, lower=True)
    relative = jnp.mean(variance / jnp.diagonal(curvature)[:, None], axis=0)
    present = 0.25 * step_size**2 * relative
    wanted = jnp.maximum(step_size - present, 0.0) if top_up else jnp.full_like(present, step_size)
    noise = jnp.sqrt(wanted) * random.normal(key, x.shape, x.dtype)
    move = root.T @ (0.5 * step_size * (root @ gradient) + noise)
    return x + move, root, jnp.mean(present) / step_size


def _dominant_diagonal(curvature):
    """Return a diagonal matrix that is more than A, as a vector, and a root of the difference."""
    scale = jnp.sqrt(jnp.diagonal(curvature))
    # A factor that nothing uses has no curvature at all.
    inverse = jnp.where(scale > 0.0, 1.0 / jnp.where(scale > 0.0, scale, 1.0), 0.0)
    unit = curvature * inverse[:, None] * inverse
    sums = jnp.maximum((1.0 + MARGIN) * jnp.sum(jnp.abs(unit), axis=1), 1.0)
    return scale**2 * sums, scale[:, None] * jnp.linalg.cholesky(jnp.diag(sums) - unit)


def _share_outside(x, box):
    return jnp.mean((x <= box[0]) | (x >= box[1]), dtype=x.dtype)
