r"""Replace one factor of a Boolean product as a whole: birth, death, exchange.

Bit by bit a factor cannot leave one block of ones for another, and one that has emptied itself
finds a new one only by chance. Here a factor is taken, a new one is drawn from a mixture of
patterns that the others leave uncovered and of empty ones
(`bmfjax.kernels.boolean.moves.proposals`), and accepted with probability

.. math::

   \min\left\{1,\ \frac{p(z', u' \mid \text{rest})\,q(z, u \mid \text{rest}, L)\,s(k \mid z', u')}
   {p(z, u \mid \text{rest})\,q(z', u' \mid \text{rest}, L)\,s(k \mid z, u)}\right\},

L the patterns found and :math:`s(k \mid \cdot)` the probability that k is taken in that state.

Which factor
    :math:`s(k) \propto 1 / (1 + c_k)`, with :math:`c_k` the ones that factor k alone covers: a
    factor that the others make superfluous is taken often.

What it leaves invariant
    The posterior, at any inverse temperature. The densities of the factor are integrated out of
    the ratio (Beta-Bernoulli), and all densities are drawn from their conditionals afterwards,
    whether the proposal was accepted or not: a Metropolis-Hastings step on the joint of everything
    but these densities, followed by their exact draw. The patterns are auxiliary variables: they
    are drawn from the rest alone, the same for a proposal and its reverse.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import as_mask
from bmfjax.kernels.boolean.density import BooleanDensity, draw_density, with_shares
from bmfjax.kernels.boolean.moves import proposals
from bmfjax.kernels.boolean.words import count_bits, pack_last_axis, unpack_last_axis
from bmfjax.kernels.numerics.control import accepted


def birth_move(density: BooleanDensity, *, num_patterns: int = 16) -> Callable:
    """Build the move.

    Parameters
    ----------
    density : BooleanDensity
    num_patterns : int
        Patterns looked for in every move; the time is proportional to them.

    Returns
    -------
    callable
        ``move(key, position, data, inverse_temperature=1.0) -> (position, acceptance)``, a global
        move of `bmfjax.kernels.boolean.gibbs.ormachine`; the acceptance probability is () float.
        Bits that the data fix stay as they are.

    Raises
    ------
    InputError
        If there is no pattern to look for.

    Examples
    --------
    An empty factor, and ones that nothing covers:

    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
    >>> from bmfjax.kernels.boolean.words import packed_data
    >>> ones = jnp.zeros((12, 12)).at[:6, :6].set(1)
    >>> density = BooleanDensity((12, 12), rank=1, flip_rate=FlipRatePrior(value=0.1))
    >>> empty = {"usage": jnp.zeros((1, 1), jnp.uint32), "basis": jnp.zeros((1, 1), jnp.uint32),
    ...          "flip_rate": jnp.float32(0.1), "usage_density": jnp.full(1, 0.5),
    ...          "basis_density": jnp.full(1, 0.5)}
    >>> move, data = jax.jit(birth_move(density)), packed_data(BinaryMatrix(ones))
    >>> for key in random.split(random.key(0), 10):
    ...     empty, acceptance = move(key, empty, data)
    >>> f"{int(empty['usage'][0, 0]):012b}"
    '000000111111'
    """
    check_moved(density)
    whole("num_patterns", num_patterns)

    def move(key, position, data, inverse_temperature=1.0):
        key_factor, key_patterns, key_new, key_accept, key_density = random.split(key, 5)
        known = with_shares(density, position)
        weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
        chances = log_chances(density, position, data)
        k = random.categorical(key_factor, chances)

        rest = proposals.uncovered(density, position, data, weights, k[None])
        patterns = proposals.find_patterns(key_patterns, known, rest, num_patterns)
        old = factor_bits(density, position, k)
        new = proposals.propose(key_new, known, rest, patterns)
        proposed = with_factor(position, k, new)

        def log_density(factor):
            target = proposals.log_target(known, rest, *factor)
            return target - proposals.log_proposal(known, rest, patterns, *factor)

        log_ratio = log_density(new) - log_density(old)
        log_ratio += log_chances(density, proposed, data)[k] - chances[k]
        return decide(key_accept, key_density, density, data, position, proposed, log_ratio)

    return move


def check_moved(density: BooleanDensity) -> None:
    """Refuse a density without bits to move."""
    if min(*density.shape, density.rank) < 1:
        raise InputError(
            f"a {density.shape[0]} x {density.shape[1]} matrix of rank {density.rank} has no bits "
            "to move; leave out the global moves"
        )


def log_chances(density, position, data):
    """Return the log probability that each factor is taken: (rank,)."""
    rows = density.shape[0]
    ones, _ = proposals.all_lines(data.by_row, rows)
    once, twice = proposals.covered_once_twice(position["usage"], position["basis"], rows)
    alone = once & ~twice & ones

    def count(factor):
        bits, used = factor
        return count_bits(alone & as_mask(bits)[:, None] & used, axis=None)

    usage = unpack_last_axis(position["usage"], rows)
    counts = jax.lax.map(count, (usage, position["basis"]))
    return jax.nn.log_softmax(-jnp.log1p(counts.astype(jnp.result_type(float))))


def factor_bits(density, position, k):
    """Return usage and basis of factor k: (rows,) and (columns,) bool."""
    rows, columns = density.shape
    usage, basis = position["usage"][k], position["basis"][k]
    return unpack_last_axis(usage, rows), unpack_last_axis(basis, columns)


def with_factor(position, k, factor):
    """Return the position with other bits of factor k."""
    usage, basis = map(pack_last_axis, factor)
    return position | {
        "usage": position["usage"].at[k].set(usage),
        "basis": position["basis"].at[k].set(basis),
    }


def decide(key_accept, key_density, density, data, position, proposed, log_ratio):
    """Accept or not, then draw the densities; returns the position and the probability."""
    accept, probability = accepted(key_accept, log_ratio)
    position = jax.tree.map(lambda a, b: jnp.where(accept, a, b), proposed, position)
    for site, key in zip(("usage", "basis"), random.split(key_density), strict=True):
        position = position | draw_density(key, site, density, position, data)
    return position, probability
