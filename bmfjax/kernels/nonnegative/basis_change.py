r"""Moves along which the product of two factor matrices stays what it is.

For an invertible Q, :math:`Y Q` and :math:`X Q^{-\top}` have the product :math:`Y X^\top` of Y
and X: the likelihood does not see such a change of basis, and only the priors and the constraint
hold it. Single entries cannot make it where the noise is small. The two kinds of matrices that
generate all others with positive determinant are moved along in turn, each by a draw from its
conditional:

* shears, :math:`y_l \leftarrow y_l + t\,y_k,\ x_k \leftarrow x_k - t\,x_l` for a pair of factors
  (determinant one). With exponential priors and a soft constraint
  (`bmfjax.kernels.nonnegative.soft_constraint`) the log density of t is concave and piecewise
  linear, with a kink where an entry changes its sign: t is drawn exactly;
* scales, :math:`y_k \leftarrow s\,y_k,\ x_k \leftarrow x_k / s`, whose density is
  :math:`s^{n-m-1} e^{-as - b/s}` for n rows and m columns (a generalised inverse Gaussian
  distribution; the power of s is the Jacobian), by a slice step in :math:`\log s`.
"""

from __future__ import annotations

from itertools import permutations

import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.nonnegative.soft_constraint import HARD
from bmfjax.kernels.numerics.slice import slice_sample
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile

#: Width of the window around log s in which a scale is looked for.
WINDOW = 3.0
#: Kinks of the density of a shear are looked for up to here.
FAR = 1e12


def change_basis(key, usage, basis, usage_rate, basis_rate, hardness=None, held=0):
    """Pass once over all shears, in both directions, and all scales; the product stays.

    `usage` is (rows, rank), `basis` (columns, rank), and their priors have rates (rank,). Without
    a `hardness` of the constraint the factors are nonnegative and stay so. The first `held` columns
    of the basis stay: there are no scales of these, and no shears that change them.
    """
    rank = usage.shape[1]
    key_shears, key_scales = random.split(key)
    first, second = (jnp.array(p, jnp.int32) for p in _pairs(rank, held))
    rates = jnp.concatenate(
        [
            jnp.broadcast_to(usage_rate[:, None], (rank, usage.shape[0])),
            jnp.broadcast_to(basis_rate[:, None], (rank, basis.shape[0])),
        ],
        axis=1,
    )
    rows = usage.shape[0]
    inside = jnp.arange(rates.shape[1]) < rows

    def shear(n, stacked):
        k, l = first[n], second[n]  # noqa: E741
        of_k, of_l = stacked[k], stacked[l]
        # Entries that move: those of the usage's factor l and of the basis' factor k.
        position = jnp.where(inside, of_l, of_k)
        direction = jnp.where(inside, of_k, -of_l)
        rate = jnp.where(inside, rates[l], rates[k])
        key = random.fold_in(key_shears, n)
        if hardness is None:
            t = draw_nonnegative_shift(key, position, direction, rate)
            moved = jnp.maximum(position + t * direction, jnp.finfo(position.dtype).tiny)
        else:
            t = draw_shift(key, position, direction, rate, hardness * rate)
            moved = position + t * direction
            # Rounding must not violate a hard constraint.
            moved = jnp.where(hardness >= HARD, jnp.maximum(moved, 0.0), moved)
        stacked = stacked.at[l].set(jnp.where(inside, moved, of_l))
        return stacked.at[k].set(jnp.where(inside, of_k, moved))

    # A factor a row, its usage beside its basis.
    stacked = jnp.concatenate([usage.T, basis.T], axis=1)
    if len(first):
        stacked = lax.fori_loop(0, len(first), shear, stacked)
    scale = _draw_scales(key_scales, stacked, rates, inside, hardness)
    scale = jnp.where(jnp.arange(rank) < held, 1.0, scale)
    stacked = stacked * jnp.where(inside, scale[:, None], 1.0 / scale[:, None])
    return stacked[:, :rows].T, stacked[:, rows:].T


def _pairs(rank, held):
    """Return the ordered pairs of different factors as two lists, the first none that is held."""
    pairs = [(k, l) for k, l in permutations(range(rank), 2) if k >= held]  # noqa: E741
    return [k for k, _ in pairs], [l for _, l in pairs]  # noqa: E741


def draw_nonnegative_shift(key, position, direction, rate):
    """Draw as `draw_shift` does, of a nonnegative position that stays so: () float.

    The distribution is exponential, truncated to where every entry stays nonnegative.
    """
    bound = -position / jnp.where(direction != 0, direction, 1.0)
    low = jnp.max(jnp.where(direction > 0, bound, -FAR))
    high = jnp.min(jnp.where(direction < 0, bound, FAR))
    u = random.uniform(key, (), position.dtype)
    slope = -jnp.sum(rate * direction)
    t = truncated_normal_quantile(u, slope, jnp.zeros_like(slope), low, high)
    return jnp.where(high > low, jnp.clip(t, low, high), 0.0)


def draw_shift(key, position, direction, rate, negative_rate):
    r"""Draw t from the density proportional to :math:`\prod_m g_m(p_m + t\,d_m)`.

    With :math:`\log g_m(x) = -\lambda_m x` for :math:`x \ge 0` and :math:`\omega_m x` below;
    :math:`\lambda` is `rate` and :math:`\omega` `negative_rate`, all (number,). Not all directions
    are zero. Slopes and values are summed outwards from where they vanish, so that those of very
    hard constraints do not swallow the others.
    """
    size = jnp.abs(direction)
    moves = size > 0
    kink = jnp.where(moves, -position / jnp.where(moves, direction, 1.0), 0.0)
    kink = jnp.clip(kink, -FAR, FAR)  # of an entry that hardly moves, and matters nowhere
    rising = direction > 0
    # What an entry adds to the slope before its kink, and takes from it behind.
    before = size * jnp.where(rising, negative_rate, rate)
    behind = size * jnp.where(rising, rate, negative_rate)
    kink, before, behind = lax.sort((kink, before, behind), num_keys=1)
    zero = jnp.zeros((1,), kink.dtype)
    slope = jnp.concatenate([jnp.cumsum(before[::-1])[::-1], zero])
    slope = slope - jnp.concatenate([zero, jnp.cumsum(behind)])
    value = _values_at_kinks(kink, slope)

    # The length of each piece and the value at its upper end, in both senses.
    far = jnp.full((1,), jnp.inf, kink.dtype)
    length = jnp.concatenate([far, jnp.diff(kink), far])
    top = jnp.maximum(jnp.concatenate([-far, value]), jnp.concatenate([value, -far]))
    steep = jnp.abs(slope)
    drop = jnp.where(steep > 0, steep * length, 0.0)
    flat = drop < 1e-5
    mass = jnp.where(
        flat,
        jnp.where(flat, length, 1.0) * (1.0 - 0.5 * jnp.where(flat, drop, 0.0)),
        -jnp.expm1(-drop) / jnp.where(flat, 1.0, steep),
    )
    share = jnp.exp(top) * mass
    share = share / jnp.max(share)

    u_piece, u_within = random.uniform(key, (2,), kink.dtype, minval=2.0**-24)
    summed = jnp.cumsum(share)
    piece = jnp.minimum(jnp.sum(summed < u_piece * summed[-1]), len(share) - 1)
    ends = jnp.concatenate([kink[:1], kink]), jnp.concatenate([kink, kink[-1:]])
    down = slope[piece] <= 0
    from_end = jnp.where(
        flat[piece],
        u_within * jnp.where(flat[piece], length[piece], 0.0),
        -jnp.log1p(u_within * jnp.expm1(-drop[piece])) / jnp.maximum(steep[piece], 1e-30),
    )
    return jnp.where(down, ends[0][piece] + from_end, ends[1][piece] - from_end)


def _values_at_kinks(kink, slope):
    """Return the log density at the kinks, zero at the highest of them."""
    inner, place = slope[1:-1] * jnp.diff(kink), jnp.arange(len(kink) - 1)
    # Concave: rising pieces come first.
    highest = jnp.sum(slope[1:-1] > 0)
    zero = jnp.zeros((1,), kink.dtype)
    falls = jnp.cumsum(jnp.where(place >= highest, inner, 0.0))
    rises = jnp.cumsum(jnp.where(place < highest, inner, 0.0)[::-1])[::-1]
    return jnp.concatenate([zero, falls]) - jnp.concatenate([rises, zero])


def _draw_scales(key, stacked, rates, inside, hardness):
    """Draw the scales of all factors, (rank,), by one slice step of each in its logarithm."""
    costs = rates * stacked
    if hardness is not None:
        costs = jnp.where(stacked >= 0, costs, -hardness * costs)
    of_usage = jnp.sum(jnp.where(inside, costs, 0.0), axis=1)
    of_basis = jnp.sum(jnp.where(inside, 0.0, costs), axis=1)
    power = jnp.sum(jnp.where(inside, 1.0, -1.0))

    def log_density(x):
        return power * x - of_usage * jnp.exp(x) - of_basis * jnp.exp(-x)

    # A window placed at random around where it stands (Neal 2003, section 4).
    key_window, key_slice = random.split(key)
    left = -WINDOW * random.uniform(key_window, of_usage.shape, stacked.dtype)
    zero = jnp.zeros_like(of_usage)
    return jnp.exp(slice_sample(key_slice, zero, log_density, left, left + WINDOW))
