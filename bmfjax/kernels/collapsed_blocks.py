r"""Draw the bits of some factors with one factor matrix summed out.

A bit of the basis is held in place by all rows that use its factor: for it to change, many bits of
the usage would have to change with it, and one after the other they never do. Summing them out
sets it free. For a set B of b factors, the rest given, the rows are independent and the bits
:math:`z_{iB}` of a row have :math:`2^b` states of weight :math:`W_i(z)`. Without column j,

.. math::

   p(u_{jB} = q \mid \cdot) \propto p(q) \prod_i \sum_z W_i^{-j}(z)\,
       e^{g_{ij}\,[z \wedge q \ne 0]}

with :math:`g_{ij}` the log likelihood that covering the
entry adds, zero where it is missing or covered by another factor. All :math:`2^b` patterns q of a
column are weighed by one matrix product and one is drawn; column follows column, and the bits of
the usage are drawn at the end from their conditional. Exchanging rows and columns sums the basis
out.

What it leaves invariant
    The posterior, at any inverse temperature: Gibbs steps on the posterior without the bits that
    are summed out, which are then drawn given the rest (van Dyk and Park 2008, "Partially collapsed
    Gibbs samplers", JASA 103). Bits that the data fix stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels import flip_rates
from bmfjax.kernels.bit_blocks import MAX_JOINT, covered_by_states, states_of
from bmfjax.kernels.bit_updates import weigh
from bmfjax.kernels.ormachine import BooleanDensity, log_odds
from bmfjax.kernels.packed_lines import PackedLines, pack_last_axis, unpack_last_axis

#: Multiplications of a move: so many lines are visited in each that it keeps to about this.
WORK = 2**24


def collapsed(density: BooleanDensity, *, block_size: int = 4, summed: str = "longer") -> Callable:
    """Build the move.

    Parameters
    ----------
    density : BooleanDensity
    block_size : int
        Factors of a group, drawn at random in every move; 1 to 8.
    summed : {"longer", "usage", "basis"}
        The factor matrix that is summed out; by default the one with more lines.

    Returns
    -------
    callable
        ``move(key, position, data, inverse_temperature=1.0) -> (position, acceptance)``, a global
        move of `bmfjax.kernels.ormachine.ormachine`. It is always accepted.

    Raises
    ------
    InputError
        For another size or side.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.ormachine import draw_prior
    >>> from bmfjax.kernels.packed_lines import packed_data
    >>> data = packed_data(BinaryMatrix(np.kron(np.eye(2), np.ones((9, 5)))))
    >>> density = BooleanDensity((18, 10), rank=2)
    >>> position = draw_prior(random.key(0), density, data)
    >>> position, acceptance = jax.jit(collapsed(density))(random.key(1), position, data)
    >>> position["basis"].shape, float(acceptance)
    ((2, 1), 1.0)
    """
    if not 1 <= block_size <= MAX_JOINT:
        raise InputError(f"block_size is {block_size}; give a number from 1 to {MAX_JOINT}")
    if summed not in ("longer", "usage", "basis"):
        raise InputError(f"summed is {summed!r}; choose 'longer', 'usage' or 'basis'")
    if summed == "longer":
        summed = "usage" if density.shape[0] >= density.shape[1] else "basis"
    kept = "basis" if summed == "usage" else "usage"
    long, short = density.shape if summed == "usage" else density.shape[::-1]
    size = min(block_size, density.rank)
    visits = int(np.clip(WORK // (long * 4**size), 1, short))

    def move(key, position, data, inverse_temperature=1.0):
        keys = random.split(key, 4)
        # Lines of the matrix that is kept, each with an entry for every line summed out.
        lines = data.by_column if summed == "usage" else data.by_row
        odds = {
            site: jnp.broadcast_to(log_odds(site, density, position, data), (density.rank, length))
            for site, length in ((summed, long), (kept, short))
        }
        order = random.permutation(keys[0], density.rank)
        group, rest = order[:size], order[size:]
        table = _Table(lines, long, flip_rates.weights(position["flip_rate"], inverse_temperature))
        others = position[summed][rest]
        bits = unpack_last_axis(position[kept], short)
        patterns = jnp.sum(bits[group] << jnp.arange(size)[:, None], axis=0, dtype=jnp.int32)
        covers_rest = bits[rest]

        log_states = _log_prior(odds[summed][group])
        log_states = _add_lines(log_states, table, patterns, covers_rest, others, size)
        chosen = random.permutation(keys[1], short)[:visits]
        log_patterns = _log_prior(odds[kept][group])
        log_states, patterns = _visit(
            keys[2], log_states, table, patterns, covers_rest, others, log_patterns, chosen, size
        )
        noise = random.gumbel(keys[3], log_states.shape, log_states.dtype)
        drawn = jnp.argmax(log_states + noise, axis=0)
        as_bits = lambda values: (values >> jnp.arange(size)[:, None]) & 1 == 1  # noqa: E731
        new = dict(position)
        new[summed] = position[summed].at[group].set(pack_last_axis(as_bits(drawn)))
        new[kept] = position[kept].at[group].set(pack_last_axis(as_bits(patterns)))
        return new, jnp.ones((), log_states.dtype)

    return move


class _Table:
    """What covering the entries of a line adds to the log likelihood."""

    def __init__(self, lines: PackedLines, length: int, weights):
        flat = lambda a: None if a is None else a.reshape(-1, a.shape[-1])  # noqa: E731
        self.ones, self.observed = flat(lines.ones), flat(lines.observed)
        self.length, self.weights = length, weights

    def gain(self, j, covers_rest, others):
        """Of line j: (length,) float, zero where other factors cover it."""
        covered = jnp.where(covers_rest[:, j, None], others, jnp.uint32(0))
        covered = lax.reduce(covered, np.uint32(0), lax.bitwise_or, (0,))
        free = ~covered if self.observed is None else ~covered & self.observed[j]
        one = unpack_last_axis(self.ones[j] & free, self.length)
        zero = unpack_last_axis(~self.ones[j] & free, self.length)
        return weigh(self.weights, one.astype(jnp.int32), zero.astype(jnp.int32))


def _log_prior(log_odds):
    """Of every state of a group: (states, lines) from (size, lines)."""
    states = states_of(log_odds.shape[0])
    own = jnp.where(states[:, :, None], log_odds[None], -log_odds[None])
    return jnp.sum(jax.nn.log_sigmoid(own), axis=1)


def _meets(size):
    """Whether a state covers an entry of a pattern: (patterns, states) bool."""
    numbers = np.arange(2**size)
    return (numbers[:, None] & numbers[None, :]) != 0


def _add_lines(log_states, table, patterns, covers_rest, others, size):
    """Log weights of the states with the likelihood of all lines."""

    def add(j, weights_of_patterns):
        # Lines of one pattern weigh alike: their sum is spread over the states once, at the end.
        return weights_of_patterns.at[patterns[j]].add(table.gain(j, covers_rest, others))

    gains = lax.fori_loop(0, patterns.shape[0], add, jnp.zeros_like(log_states))
    return log_states + covered_by_states(gains, size)


def _visit(key, log_states, table, patterns, covers_rest, others, log_patterns, chosen, size):
    """Draw the patterns of the chosen lines, one after the other."""
    meets = jnp.asarray(_meets(size), log_states.dtype)
    noise = random.gumbel(key, (len(chosen), 2**size), log_states.dtype)

    def one_line(t, carry):
        log_states, patterns = carry
        j = chosen[t]
        gain = table.gain(j, covers_rest, others)
        log_states = log_states - meets[patterns[j]][:, None] * gain
        share = jax.nn.softmax(log_states, axis=0)
        # Both parts are summed, for one less the other would be rounding where it is small.
        met, unmet = (
            jnp.dot(m, share, precision=lax.Precision.HIGHEST) for m in (meets, 1 - meets)
        )
        density = jnp.sum(jnp.log(unmet + met * jnp.exp(gain)), axis=1) + log_patterns[:, j]
        pattern = jnp.argmax(density + noise[t]).astype(patterns.dtype)
        log_states = log_states + meets[pattern][:, None] * gain
        return log_states, patterns.at[j].set(pattern)

    return lax.fori_loop(0, len(chosen), one_line, (log_states, patterns))
