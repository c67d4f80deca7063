r"""Bits of all rows, in blocks of a few features, from the Bernoulli likelihood itself.

Given weights and effects the rows are independent. The :math:`2^b` states of a block of b features
in a row are enumerated, and one is drawn. Its log likelihood is
:math:`-\sum_d \log(1 + e^{-s_{nd} \psi_{nd}})`. With :math:`\psi` the sum of a part that the block
leaves alone and one that the state fixes for every column, the exponential is a product of two that
are known beforehand, and one logarithm serves several columns. A factor is cut at
:math:`2^{60}`: an observed cell against which a state has odds of a trillion million and more is
as improbable in it as one with these odds.

A row effect and the bits explain much alike, and either holds the other where it is. So the effect
of each row moves with the bits of the first block summed out: e is proposed to be
:math:`a e + \sqrt{1 - a^2} \tau \epsilon`, a uniform and :math:`\epsilon` normal, which leaves its
prior as it is (Neal 1998), and accepted by the ratio of the sums over states; the bits follow.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.features.density import FeatureData, FeatureDensity, present
from bmfjax.kernels.numerics.log_product import TOGETHER, log_product
from bmfjax.kernels.numerics.uniforms import normals

#: Most bits of a block. Where six features of a small matrix were one block, sweeps cost more, and
#: as many of them made an effective draw.
BLOCK = 4
#: Log odds beyond any, and where exponents and factors are cut.
SURE, STEEP, MOST = 1e9, 80.0, 2.0**60


def block_size(rank: int) -> int:
    """Return the number of bits of a row that are drawn at once: blocks are about equal.

    Examples
    --------
    >>> [block_size(rank) for rank in (1, 4, 6, 7, 16)]
    [1, 4, 3, 4, 4]
    """
    return -(-rank // -(-rank // BLOCK))


def membership_shapes(rank: int, rows: int, size: int) -> list[tuple[int, ...]]:
    """Return the shapes of the uniform numbers that `draw_memberships` takes."""
    number = -(-rank // size)
    return [(number * size,), (number, rows), (3, rows)]


def draw_memberships(
    uniforms, psi, position, data: FeatureData, density: FeatureDensity, power, size
):
    """Draw the bits of all rows, in random blocks of so many, and move row effects with the first.

    The uniform numbers have the `membership_shapes`. Returned are what was drawn, the log odds, and
    the log probability of the drawn bits, each block given the rest.
    """
    rank = density.rank
    odds = jnp.log(position["usage_density"]) - jnp.log1p(-position["usage_density"])
    odds = jnp.where(present(density, position), odds, -SURE)[:, None]
    odds = jnp.broadcast_to(odds, (rank, len(position["usage"])))
    if data.known_usage is not None:
        known = data.known_usage.T
        odds = jnp.where(jnp.isnan(known), odds, jnp.where(known > 0.5, SURE, -SURE))
    beyond = -rank % size
    odds = jnp.pad(odds, ((0, beyond), (0, 0)), constant_values=-SURE)
    basis = jnp.pad(position["basis"], ((0, 0), (0, beyond)))
    usage = jnp.pad(position["usage"], ((0, 0), (0, beyond))).T
    number = (rank + beyond) // size
    order, uniforms, moves = uniforms
    order = jnp.argsort(order).reshape(number, size)

    def parts(psi, usage, chosen):
        weights = basis[:, chosen]
        return psi - weights @ usage[chosen], weights, odds[chosen]

    def block(carry, at):
        psi, usage = carry
        uniform, chosen = at
        rest, weights, own = parts(psi, usage, chosen)
        drawn, chance, _ = _draw_states(uniform, rest, weights, own, data.signs, power)
        return (rest + weights @ drawn, usage.at[chosen].set(drawn)), chance.sum()

    found, total = {}, 0.0
    if "row_effect" in position:
        rest, weights, own = parts(psi, usage, order[0])
        effect, rest, drawn, chance = _draw_with_effects(
            moves, uniforms[0], rest, weights, own, data.signs, power, position
        )
        psi, usage = rest + weights @ drawn, usage.at[order[0]].set(drawn)
        found, total = {"row_effect": effect}, chance.sum()
        uniforms, order = uniforms[1:], order[1:]
    if len(order):
        (psi, usage), chances = lax.scan(block, (psi, usage), (uniforms, order))
        total += chances.sum()
    return found | {"usage": usage[:rank].T}, psi, total


def _draw_with_effects(moves, uniform, rest, weights, odds, signs, power, position):
    """Move row effects with the bits of a block summed out, and draw these bits.

    Returned are the effects, the log odds with them and without the block, the bits, and the log
    probability of these.
    """
    effect, (share, noise, level) = position["row_effect"], moves
    noise = jnp.sqrt(1.0 - share**2) * position["row_scale"] * normals(noise)
    further = share * effect + noise - effect

    def way(shift):
        return _draw_states(uniform, rest + shift, weights, odds, signs, power)

    *drawn, totals = lax.map(way, jnp.stack([jnp.zeros_like(further), further]))
    moved = jnp.log(level) < totals[1] - totals[0]
    shift = jnp.where(moved, further, 0.0)
    drawn, chance = (jnp.where(moved, new, old) for old, new in drawn)
    return effect + shift, rest + shift, drawn, chance


def _draw_states(uniform, rest, weights, odds, signs, power):
    """Draw the bits (bits, rows) of a block, with `rest` the log odds without it.

    Then follow for each row the log probability of what was drawn, and the log of the sum over all
    states. One uniform number a row makes the draw.
    """
    size, kind = weights.shape[1], rest.dtype
    likelihood = state_likelihood(rest, signs)
    # A bit that is known adds nothing: beside such odds the likelihood would be rounded away.
    sure = (odds > 0.5 * SURE).astype(kind)

    def state(number):
        bits = ((number >> jnp.arange(size)) & 1).astype(kind)
        return power * likelihood(weights @ bits) + jnp.sum((bits[:, None] - sure) * odds, 0)

    numbers = jnp.arange(2**size)
    value = lax.map(state, numbers)
    best = value.max(0)
    # Added in order: what an impossible state adds, nothing, must leave the sum as it is.
    sums = lax.scan(lambda s, x: (s + x, s + x), jnp.zeros_like(best), jnp.exp(value - best))[1]
    chosen = jnp.sum(sums <= uniform * sums[-1], 0)
    total = best + jnp.log(sums[-1])
    own = jnp.sum(jnp.where(numbers[:, None] == chosen, value, 0.0), 0)
    return ((chosen >> jnp.arange(size)[:, None]) & 1).astype(kind), own - total, total


def state_likelihood(rest, signs):
    """Return the function that gives the log likelihoods of rows (rows,) of what a state adds.

    That is (columns,), added to the log odds `rest` (columns, rows).
    """
    columns, rows = rest.shape
    number = -(-columns // TOGETHER)
    together = 2 * -(-columns // (2 * number))
    beyond = together * number - columns
    # Columns that are taken together follow each other in steps of the number of logarithms.
    shape = together, number, rows
    signs, rest = (jnp.pad(x, ((0, beyond), (0, 0))).reshape(shape) for x in (signs, rest))
    factor = jnp.where(signs == 0, 0.0, jnp.exp(jnp.clip(-signs * rest, -STEEP, STEEP)))
    factor, is_one = list(factor), list(signs > 0)

    def likelihood(added):
        raised = jnp.exp(jnp.clip(jnp.pad(added, (0, beyond)), -STEEP, STEEP))
        raised = raised.reshape(together, number, 1)
        cells = zip(factor, is_one, raised, 1.0 / raised, strict=True)
        odds = [own * jnp.where(one, down, up) for own, one, up, down in cells]
        terms = log_product([jnp.minimum(x, MOST) + 1.0 for x in odds])
        # A product of matrices: a sum over columns would take all above out of vector instructions.
        # Its ones are each chain's own: those of all chains would have the terms transposed.
        return -((1.0 + 0.0 * raised[:1, :, 0]) @ terms)[0]

    return likelihood
