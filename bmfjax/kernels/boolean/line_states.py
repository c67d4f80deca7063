r"""Weigh all states of the bits of a line together, with one factor matrix summed out.

Given the other factor matrix the lines of one are independent, and b bits of a line i have
:math:`2^b` states z, of weight :math:`W_i(z)`. Lines of the other matrix enter by their *pattern*
q, the bits that they use: a state covers an entry where :math:`z \wedge q \ne 0`, and that adds
the *gain* :math:`g_{ij}` to the log likelihood. Hence, without line j,

.. math::

   F_i(q) = \sum_z W_i^{-j}(z)\, e^{g_{ij} [z \wedge q \ne 0]}
     = \sum_{z \wedge q = 0} W_i^{-j}(z) + e^{g_{ij}} \sum_{z \wedge q \ne 0} W_i^{-j}(z)

for all patterns q at once by b passes over the :math:`2^b` weights (`sums_of_patterns`), as in
Yates's zeta transform. All terms are positive: nothing cancels, however large the gains are.

Equal lines weigh alike. They are merged with their number where the data are bound
(`merge_lines`), and every line draws its own state at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.checks import one_of
from bmfjax.kernels.boolean.bits import covered_by, states_of
from bmfjax.kernels.boolean.density import log_odds
from bmfjax.kernels.boolean.words import (
    MISSING,
    ONE,
    ZERO,
    DistinctLines,
    PackedData,
    pack_last_axis,
    unpack_last_axis,
)

#: Lines of a group at most: their weights are multiplied before one logarithm is taken.
GROUP = 8
#: What a line costs beside a logarithm, in logarithms: groups that need many fillers are smaller.
LINE_COST = 3.0


class Sides(NamedTuple):
    """Which factor matrix is summed out, which is kept, and how many lines they have."""

    summed: str
    kept: str
    long: int
    short: int


def sides_of(shape: tuple[int, int], summed: str) -> Sides:
    """Choose the factor matrix that is summed out: "usage", "basis", or the "longer" one."""
    one_of("summed", summed, ("longer", "usage", "basis"))
    rows, columns = shape
    if summed == "usage" or (summed == "longer" and rows >= columns):
        return Sides("usage", "basis", rows, columns)
    return Sides("basis", "usage", columns, rows)


# ---- the lines that are summed out -------------------------------------------------------------


def merge_lines(data: PackedData, sides: Sides) -> PackedData:
    """Add the distinct lines of the side that is summed out, on the host; not of traced data."""
    # One program, where every operation would be one by itself.
    code = jax.jit(_codes, static_argnames="sides")(data, sides=sides)
    given = getattr(data, f"{sides.summed}_log_odds")
    if any(isinstance(array, jax.core.Tracer) for array in (code, given)):
        return data
    code = np.asarray(code).T  # (long, short)
    # Lines whose bits have log odds of their own are equal only if these are equal too.
    keys = [code.view(np.uint8)]
    if given is not None:
        keys.append(np.ascontiguousarray(np.asarray(given).T).view(np.uint8))
    _, first, which, counts = np.unique(
        np.concatenate(keys, axis=1), axis=0, return_index=True, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    slots, repeats = _groups(counts)
    filler = slots < 0
    place = np.empty(len(first), np.int32)
    place[slots[~filler]] = np.flatnonzero(~filler)
    code = np.where(filler, np.int8(MISSING), code[first[slots]].T)
    lines = DistinctLines(
        code,
        *_counts(code),
        repeats.astype(jnp.result_type(float)),
        place[which.reshape(-1)],
        np.where(filler, 0, first[slots]).astype(np.int32),
    )
    return data._replace(**{_field(sides): jax.device_put(lines)})


def _groups(counts) -> tuple[np.ndarray, np.ndarray]:
    """Put lines with as many copies side by side: the line in each place, -1 for a filler, and
    the number of copies of each group.
    """
    numbers = np.unique(counts)

    def cost(width):
        groups = sum(-(-np.sum(counts == n) // width) for n in numbers)
        return groups * (width * LINE_COST + 1.0)

    width = min((GROUP, 4, 2, 1), key=cost)
    groups, repeats = [], []
    for n in numbers:
        lines = np.flatnonzero(counts == n)
        lines = np.pad(lines, (0, -len(lines) % width), constant_values=-1)
        groups.append(lines.reshape(-1, width))
        repeats += [n] * len(groups[-1])
    return np.concatenate(groups).T.reshape(-1), np.array(repeats)


def lines_of(data: PackedData, sides: Sides) -> DistinctLines:
    """Return the lines that are summed out; every line by itself where they are not merged."""
    merged = getattr(data, _field(sides))
    if merged is not None:
        return merged
    groups = -(-sides.long // GROUP)
    filled = GROUP * groups
    code = jnp.pad(_codes(data, sides), ((0, 0), (0, filled - sides.long)))
    first = np.minimum(np.arange(filled, dtype=np.int32), sides.long - 1)
    count = jnp.ones(groups, jnp.result_type(float))
    return DistinctLines(code, *_counts(code), count, np.arange(sides.long, dtype=np.int32), first)


def _counts(code):
    """Count the observed ones and zeros of every line."""
    return [(code == c).sum(axis=0, dtype=np.int32) for c in (ONE, ZERO)]


def _field(sides):
    return "distinct_rows" if sides.summed == "usage" else "distinct_columns"


def _codes(data, sides):
    """Return what each entry is, (short, long) int8."""
    kept = data.by_column if sides.summed == "usage" else data.by_row
    bits = lambda a: unpack_last_axis(a.reshape(-1, a.shape[-1])[: sides.short], sides.long)  # noqa: E731
    code = jnp.where(bits(kept.ones), np.int8(ONE), np.int8(ZERO))
    return code if kept.observed is None else jnp.where(bits(kept.observed), code, np.int8(MISSING))


def without_covered(lines: DistinctLines, kept_bits, words) -> DistinctLines:
    """Take entries out that other factors cover, given all their bits; of lines not merged.

    `kept_bits` (factors, short) are those of the kept matrix, `words` (factors, words) of the
    other.
    """
    covered = unpack_last_axis(covered_by(kept_bits, words), len(lines.place))
    covered = jnp.pad(covered, ((0, 0), (0, lines.code.shape[1] - covered.shape[1])))
    return lines._replace(code=jnp.where(covered, np.int8(MISSING), lines.code))


def gains(lines: DistinctLines, weights, j) -> jax.Array:
    """Return what covering entry j of every line adds to its log likelihood: (lines,)."""
    code = lines.code[j]
    return jnp.where(code == ONE, weights.one, jnp.where(code == ZERO, weights.zero, 0.0))


def sum_over_lines(values, lines: DistinctLines) -> jax.Array:
    """Sum (..., lines) over all lines of the data."""
    by_group = values.reshape(*values.shape[:-1], -1, len(lines.count))
    return jnp.sum(by_group * lines.count.astype(values.dtype), axis=(-2, -1))


# ---- states and patterns -----------------------------------------------------------------------


def log_prior_of_states(log_odds) -> jax.Array:
    """Return the log prior of every state, (states, lines), from log odds of bits (size, lines)."""
    states = states_of(log_odds.shape[0])
    own = jnp.where(states[:, :, None], log_odds[None], -log_odds[None])
    return jnp.sum(jax.nn.log_sigmoid(own), axis=1)


def patterns_of(bits) -> jax.Array:
    """Return a number for each pattern of bits (size, lines): (lines,) int32."""
    return jnp.sum(bits << jnp.arange(bits.shape[0])[:, None], axis=0, dtype=jnp.int32)


def bits_of(numbers, size: int) -> jax.Array:
    """Return the bits of numbered states or patterns (lines,): (size, lines) bool."""
    return (numbers >> jnp.arange(size)[:, None]) & 1 == 1


def packed_bits(numbers, size: int) -> jax.Array:
    """Pack the bits of numbered states or patterns (lines,): (size, words) uint32."""
    return pack_last_axis(bits_of(numbers, size))


def log_weights(log_prior, lines: DistinctLines, weights, patterns, num_rates: int) -> jax.Array:
    """Return log prior plus log likelihood of the states of every line: (states, lines).

    Zero is the log likelihood of a state that covers nothing. `log_prior` is (states, lines) or
    (states, 1).
    """
    covered = (np.arange(len(log_prior))[:, None] & patterns) != 0
    return with_covered(log_prior, covered, lines, weights, num_rates)


def with_covered(total, covered, lines: DistinctLines, weights, num_rates: int) -> jax.Array:
    """Add to `total` the log likelihood of lines with these entries covered: (states, lines).

    `covered` is (states, short) bool, `total` (states, lines) or (states, 1).
    """
    kind = total.dtype
    covered = covered.astype(kind)
    one, zero = ((lines.code == c).astype(kind) for c in (ONE, ZERO))
    # Counts of covered entries, exact; as in `bits.weigh`, their difference and their sum.
    count = lambda entries: jnp.dot(covered, entries, precision=lax.Precision.HIGHEST)  # noqa: E731
    total = total + 0.5 * (weights.one - weights.zero) * count(one - zero)
    if num_rates == 1:  # covering a one adds what covering a zero takes away
        return total
    return total + 0.5 * (weights.one + weights.zero) * count(one + zero)


def odds_of_lines(density, sides: Sides, position, data, lines: DistinctLines) -> jax.Array:
    """Return the prior log odds of the bits that are summed out: (rank, lines) or (rank, 1)."""
    odds = log_odds(sides.summed, density, position, data)
    return odds if odds.shape[1] == 1 else odds[:, lines.first]


def odds_of_kept(density, sides: Sides, position, data) -> jax.Array:
    """Return the prior log odds of the bits that are kept: (rank, short)."""
    odds = log_odds(sides.kept, density, position, data)
    return jnp.broadcast_to(odds, (density.rank, sides.short))


def sums_of_patterns(weights, factor) -> jax.Array:
    r"""Return :math:`F(q)` of all patterns, (states, lines), from weights (states, lines).

    `factor` (lines,) is :math:`e^g`. Pass k turns bit k of the state into bit k of the pattern:

    .. math::

       F(\cdot, q_k = 0) = F(\cdot, z_k = 0) + F(\cdot, z_k = 1), \qquad
       F(\cdot, q_k = 1) = F(\cdot, z_k = 0) + e^g T(\cdot, z_k = 1),

    T the sum of what the earlier bits may be, which is F of the pattern that uses none of them.
    """
    states, lines = weights.shape
    uses = (np.arange(2) == 1)[:, None, None]
    sums = weights
    for k in range(states.bit_length() - 1):
        halves = sums.reshape(-1, 2, 2**k, lines)
        covered = halves[:, 1, :1] * factor
        # A choice between two arrays, as stacking two halves would write every number twice.
        sums = halves[:, :1] + jnp.where(uses, covered[:, None], halves[:, 1:])
    return sums.reshape(states, lines)


def sum_of_logs(values, lines: DistinctLines, beside=None) -> jax.Array:
    """Sum the logarithms of positive normal numbers (states, lines) over all lines: (states,).

    Those of the state `beside` are subtracted before the sum, where only differences matter: over
    many lines the sums themselves would round them away.

    One logarithm is taken for the lines of a group, that of the product of their mantissas, which
    neither overflows nor underflows; exponents are summed as integers.
    """
    kind = jnp.finfo(values.dtype)
    whole = np.int32 if kind.bits == 32 else np.int64
    octets = lax.bitcast_convert_type(values, whole)
    one = np.array(1.0, kind.dtype).view(whole)
    exponent = (octets - one) >> kind.nmant
    mantissa = lax.bitcast_convert_type(octets - (exponent << kind.nmant), kind.dtype)
    exponent, mantissa = (
        a.reshape(len(values), -1, len(lines.count)) for a in (exponent, mantissa)
    )
    width = mantissa.shape[1]
    product = mantissa[:, 0]
    for n in range(1, width):
        product = product * mantissa[:, n]
    logs = jnp.log(product) + np.log(2.0) * jnp.sum(exponent, axis=1).astype(kind.dtype)
    if beside is not None:
        logs = logs - logs[beside]
    return jnp.dot(logs, lines.count.astype(kind.dtype), precision=lax.Precision.HIGHEST)


# ---- draws -------------------------------------------------------------------------------------


def draw_patterns(key, log_states, lines, weights, patterns, log_patterns, chosen, power=1.0):
    """Draw the patterns of the chosen lines (visits,), one after the other, the states summed out.

    `log_states` (states, lines summed out) are those of `log_weights`, `log_patterns`
    (patterns, lines) the prior of the patterns. No line is chosen twice. The marginal likelihood
    is raised to `power`. Returns the new `log_states`, each line up to a constant of its own, and
    the new `patterns`.
    """
    numbers = np.arange(len(log_states))[:, None]
    noise = random.gumbel(key, (len(chosen), len(numbers)), log_states.dtype)

    def one_line(t, carry):
        log_states, patterns = carry
        j = chosen[t]
        gain = gains(lines, weights, j)
        log_states = log_states - jnp.where((numbers & patterns[j]) != 0, gain, 0.0)
        # A factor common to all states of a line is common to its patterns, and cancels.
        log_states = log_states - jnp.max(log_states, axis=0)
        sums = sums_of_patterns(jnp.exp(log_states), jnp.exp(gain))
        density = power * sum_of_logs(sums, lines, patterns[j])
        pattern = jnp.argmax(density + log_patterns[:, j] + noise[t]).astype(patterns.dtype)
        log_states = log_states + jnp.where((numbers & pattern) != 0, gain, 0.0)
        return log_states, patterns.at[j].set(pattern)

    return lax.fori_loop(0, len(chosen), one_line, (log_states, patterns))


def draw_states(key, log_states, place) -> jax.Array:
    """Draw a state of every line of the data: (all lines,) int32.

    `place` (all lines,) is the column of `log_states` that weighs the states of the line.

    Bit after bit, the last first, each given those before by sums over what is left. Every bit
    has a random number of its own, so that rare states are right down to 1e-7 a bit.
    """
    sums = [jnp.exp(log_states - jnp.max(log_states, axis=0))]
    width = log_states.shape[1]
    size = len(log_states).bit_length() - 1
    for _ in range(size - 1):
        sums.append(jnp.sum(sums[-1].reshape(-1, 2, width), axis=1))
    levels = random.uniform(key, (size, len(place)), log_states.dtype)
    state = jnp.zeros(len(place), jnp.int32)
    for level, of_nodes in zip(levels, reversed(sums), strict=True):
        without, used = (of_nodes[2 * state + b, place] for b in (0, 1))
        state = 2 * state + (level * (without + used) >= without)
    return state
