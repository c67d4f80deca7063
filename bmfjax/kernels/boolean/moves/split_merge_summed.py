r"""Split a factor in two, or merge two, while the bits of a whole group are summed out.

`bmfjax.kernels.boolean.moves.split_merge` proposes the vectors of two factors in both matrices.
Where the longer matrix has thousands of lines hardly any such proposal is accepted: each of the
bits has to be right. Here only the vectors of the shorter matrix, which is kept, are proposed. The
bits of the longer one, of the two factors and of others in a random group, are summed out of the
acceptance ratio (`bmfjax.kernels.boolean.moves.summed_group`), and drawn afterwards.

Two configurations of an ordered pair of factors (k, l) are exchanged, given all the others R:

* *merged*, m: k has the vector U and the density :math:`\pi`, l anything, say
  :math:`(v_0, \pi_0)`;
* *split*, s: k and l have vectors a and b, and densities :math:`\pi_a, \pi_b`. Mostly, but not
  necessarily, the union of a and b is U: an entry of the union that pays for two factors may not
  pay for one.

A merge draws :math:`U, \pi` from :math:`q_1(\cdot \mid a, b, R)`, then a new factor l from the
mixture :math:`q_0(\cdot \mid U, \pi, R)` of `bmfjax.kernels.boolean.moves.rebirth`. A split
forgets l, and draws both parts from a mixture :math:`q_2(\cdot \mid U, R)`.

Proposals
    :math:`q_1` is independent over entries, with the log odds that some mean-field steps end with.
    They start from the union of a and b, or from what the lines that use either have in common.
    :math:`q_2` starts from anchors: a line that uses U, drawn at
    random, and a second one that has many ones in U which the first has not; or the first line and
    what is left of U. Mean-field steps of both factors, lines given entries and entries given
    lines, turn the pair of lines into probabilities of being in a, in b, in both or in neither,
    with an upper bound on how certain they are. The parts are then named k and l at random, so that
    :math:`q_2` is the mean over both ways round. Densities are drawn from their prior, or from Beta
    distributions about the expected shares of lines that use the vectors, the bits of the others
    summed out: narrow ones only where the data tell which lines do.

The ratio
    Anchors and patterns depend on R, U and :math:`\pi` alone, which are the same in m and s: a
    move and its reverse draw them alike. With p the posterior without the bits that are summed
    out and without the densities of the kept vectors, and :math:`p_s(k, l \mid m)` and
    :math:`p_m(k, l \mid s)` the probabilities that a split, or a merge, takes this pair (either is
    tried half the time),

    .. math::

       \rho = \frac{p(s \mid R)\;p_m(k, l \mid s)\;q_1(U, \pi \mid a, b, R)\;
                    q_0(v_0, \pi_0 \mid U, \pi, R)}
                   {p(m \mid R)\;p_s(k, l \mid m)\;q_2(a, b, \pi_a, \pi_b \mid U, R)}.

    A split is accepted with probability :math:`\min(1, \rho)`, a merge with
    :math:`\min(1, 1/\rho)`.

Which pair
    A split takes as l a factor of the group that is superfluous, as a rebirth does, and any other
    as k. A merge takes any pair of the group half the time, and half the time one with much in
    common: with a probability proportional to the square of the larger Jaccard index, of their
    vectors or of the expected lines that use them.

What it leaves invariant
    The posterior, at any inverse temperature, as a rebirth: a Metropolis-Hastings step on p,
    after which the bits and all densities are drawn from their conditionals, whether the proposal
    was accepted or not (van Dyk and Park 2008, "Partially collapsed Gibbs samplers", JASA 103).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.nn import log_softmax, logsumexp, softmax

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import MAX_JOINT, states_of
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.boolean.moves.birth import check_moved
from bmfjax.kernels.boolean.moves.proposals import draw_bits, log_bits
from bmfjax.kernels.boolean.moves.summed_group import (
    DEAD,
    MOST_CERTAIN,
    MOST_COUNTED,
    SHARE,
    STEPS,
    Group,
    Own,
    group_of,
    log_beta,
    log_chances,
    own_odds,
    product,
    settle,
    table_of,
)
from bmfjax.kernels.boolean.words import pack_last_axis
from bmfjax.kernels.numerics.beta import draw_beta

#: Steps of the fixed point for the densities of two factors, and bound of the log odds there.
FIXED_POINT_STEPS, MOST_ODDS = 3, 30.0
#: Keeps the weights of pairs that have nothing in common from summing to zero.
TINY = 1e-6


class Vectors(NamedTuple):
    """Kept vectors of one or two factors, and their densities in the matrix summed out."""

    bits: jax.Array  # (factors, lines kept) bool
    chances: jax.Array  # (factors,); not looked at where they are known


class Launch(NamedTuple):
    """What the two parts of a split are drawn from: patterns with their weights."""

    log_states: jax.Array  # (patterns, 4, lines kept): in none, the first, the second, in both
    log_weight: jax.Array  # (patterns,)


def split_merge_summed(
    density: BooleanDensity,
    *,
    block_size: int = 6,
    num_patterns: int = 8,
    summed: str = "longer",
) -> Callable:
    """Build the move.

    Parameters
    ----------
    density : BooleanDensity
        Of rank 2 at least.
    block_size : int
        Factors of a group, drawn at random in every move; 2 to 8.
    num_patterns : int
        Patterns looked for in every move, for the parts of a split and for the factor that a
        merge sets free.
    summed : {"longer", "usage", "basis"}
        The factor matrix that is summed out; by default the one with more lines.

    Returns
    -------
    callable
        ``move(key, position, data, inverse_temperature=1.0) -> (position, acceptance)``, a global
        move of `bmfjax.kernels.boolean.gibbs.ormachine`; the acceptance probability is () float.
        Bits that the data fix stay as they are.

    Raises
    ------
    InputError
        For a single factor, or another size or side.

    Examples
    --------
    Two overlapping blocks that one factor holds, while the other is empty, become two factors:

    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
    >>> from bmfjax.kernels.boolean.words import packed_data
    >>> ones = jnp.zeros((24, 24)).at[:8, :12].set(1).at[8:16, 4:16].set(1)
    >>> density = BooleanDensity((24, 24), rank=2, flip_rate=FlipRatePrior(value=0.1))
    >>> merged = {"usage": jnp.array([[0xFFFF], [0]], jnp.uint32), "flip_rate": jnp.float32(0.1),
    ...           "basis": jnp.array([[0xFFFF], [0]], jnp.uint32),
    ...           "usage_density": jnp.full(2, 0.5), "basis_density": jnp.full(2, 0.5)}
    >>> move, data = jax.jit(split_merge_summed(density)), packed_data(BinaryMatrix(ones))
    >>> for key in random.split(random.key(0), 20):
    ...     merged, acceptance = move(key, merged, data)
    >>> sorted(f"{v:016b}" for v in merged["basis"][:, 0].tolist())
    ['0000111111111111', '1111111111110000']
    """
    check_moved(density)
    if density.rank < 2:
        raise InputError(f"split_merge_summed needs two factors, but the rank is {density.rank}")
    whole("block_size", block_size, 2, MAX_JOINT)
    whole("num_patterns", num_patterns)
    sides = sides_of(density.shape, summed)
    size = min(block_size, density.rank)

    def move(key, position, data, inverse_temperature=1.0):
        keys = random.split(key, 13)
        order = random.permutation(keys[0], density.rank)
        weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
        group = group_of(density, sides, position, data, weights, order[:size], order[size:])
        is_split = random.bernoulli(keys[1])
        first, table = _with_pair_first(keys[2], group, table_of(group), is_split)
        group, factors = Group(*(group.gains, *(a[first] for a in group[1:]))), order[:size][first]

        pair = _Pair(density, sides, data, factors, group)
        chances = position.get(f"{sides.summed}_density", jnp.full(density.rank, 0.5))[factors[:2]]
        now = Vectors(group.vectors[:2], chances)
        bits = pair.draw_whole(keys[3], now.bits)
        bits = jnp.where(is_split, now.bits[:1], bits)
        either, log_either = pair.with_chances(keys[4], bits, now.chances[:1], is_split)
        freed, patterns = pair.freed(keys[5], either, num_patterns)
        launch = pair.launch(keys[6], either.bits, num_patterns)
        bits = jnp.where(is_split, pair.draw_parts(keys[7], launch), now.bits)
        parts, log_parts = pair.with_chances(keys[8], bits, now.chances, ~is_split)
        new = Vectors(*(v[None] for v in freed.propose(keys[9], patterns)))
        spare = _choose(is_split, Vectors(now.bits[1:], now.chances[1:]), new)
        merged = Vectors(*map(jnp.concatenate, zip(either, spare, strict=True)))

        proposed = _choose(is_split, parts, merged)
        changed = pair.table_with(proposed)
        at_split, at_merged = _choose(is_split, (changed, table), (table, changed))
        log_ratio = jnp.sum(logsumexp(at_split, axis=0) - logsumexp(at_merged, axis=0))
        log_ratio += pair.log_prior(parts) - pair.log_prior(merged)
        log_ratio += _log_pairs(parts.bits, group, at_split)[0, 1]
        log_ratio -= log_chances(at_merged, size)[1] - jnp.log(size - 1.0)
        log_ratio += pair.log_whole(either.bits, parts.bits) + log_either
        log_ratio += freed.log_proposal(patterns, spare.bits[0], spare.chances[0])
        log_ratio -= pair.log_parts(parts.bits, launch) + log_parts
        log_ratio = jnp.where(is_split, log_ratio, -log_ratio)

        # Stay if both are impossible.
        probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accept = random.uniform(keys[10], (), probability.dtype) < probability
        bits, table = _choose(accept, (proposed.bits, changed), (now.bits, table))
        kept = position[sides.kept].at[factors[:2]].set(pack_last_axis(bits))
        position = position | {sides.kept: kept}
        position = settle(keys[11:], density, sides, position, data, factors, table)
        return position, probability

    return move


def _choose(wanted, first, second):
    return jax.tree.map(lambda a, b: jnp.where(wanted, a, b), first, second)


# ---- which pair --------------------------------------------------------------------------------


def _with_pair_first(key, group: Group, table, is_split):
    """Draw the factors k and l of a split or a merge.

    Returns the order of the factors of the group with k and l first, and the table of that order.
    """
    size = len(group.vectors)
    key_any, key_other = random.split(key)
    superfluous = random.categorical(key_other, log_chances(table, size))
    other = random.randint(key_any, (), 0, size - 1)
    other += other >= superfluous
    alike = random.categorical(key_other, _log_pairs(group.vectors[:2], group, table).ravel())
    k, l = jnp.divmod(alike, size)  # noqa: E741
    k, l = jnp.where(is_split, other, k), jnp.where(is_split, superfluous, l)  # noqa: E741
    places = jnp.arange(size).at[k].set(-2).at[l].set(-1)
    first = jnp.argsort(places)
    return first, table[jnp.sum(jnp.left_shift(states_of(size), first), axis=1)]


def _log_pairs(bits, group: Group, table):
    """Return the log probability that each ordered pair of the group is merged: (size, size).

    `bits` are the vectors of the first two factors. Half of it is uniform, half proportional to the
    square of the larger Jaccard index.
    """
    vectors = group.vectors.at[:2].set(bits).astype(table.dtype)
    used = _uses(softmax(table, axis=0))

    def jaccard(rows):
        both, ones = product(rows, rows.T), jnp.sum(rows, axis=1)
        return both / jnp.maximum(ones[:, None] + ones - both, 1.0)

    alike = jnp.maximum(jaccard(vectors), jaccard(used)) ** 2
    other = 1.0 - jnp.eye(len(alike))
    alike = other * (alike + TINY)
    return jnp.log(0.5 * alike / alike.sum() + 0.5 * other / other.sum())


def _uses(shares):
    """Return the probability that lines use each factor, (factors, lines).

    Sums, and no product of matrices: XLA was seen to return NaN for one of so few rows.
    """
    lines = shares.shape[1]
    halves = [shares.reshape(-1, 2, 2**k, lines)[:, 1] for k in range(len(shares).bit_length() - 1)]
    return jnp.stack([jnp.sum(half, axis=(0, 1)) for half in halves])


def _joined(odds):
    """Return the sum of the odds of the factors in use, (states, lines), of one or two factors."""
    states = [jnp.zeros_like(odds[0]), *odds]
    return jnp.stack(states if len(odds) == 1 else [*states, odds[0] + odds[1]])


# ---- the two factors given the others ----------------------------------------------------------


class _Pair:
    """The first two factors of a group given the others: what they are drawn from."""

    def __init__(self, density, sides, data, factors, group: Group):
        self.group = group
        self.arguments = density, sides, data
        self.factors = factors
        alone = Group(group.gains, *(jnp.delete(a, 1, axis=0) for a in group[1:]))
        #: Of factor k where l is absent, and of l for what its data fix.
        self.own = Own(*self.arguments, factors[0], alone, 0)
        self.other = self._own_of_other(group.log_odds[0], group.vectors[0])
        self.residual = self.own.residual()
        self.log_share = log_softmax(self.own.kept, axis=0)

    def _own_of_other(self, odds, vector):
        """Return what is known of l where k has these prior log odds and this vector."""
        swap = lambda a, k: jnp.concatenate([a[1:2], k[None], a[2:]])  # noqa: E731
        group, factor = self.group, self.factors[1]
        beside = Group(group.gains, swap(group.log_odds, odds), swap(group.vectors, vector))
        return Own(*self.arguments, factor, beside, 0)

    @property
    def owns(self):
        return self.own, self.other

    def freed(self, key, either: Vectors, number: int):
        """Return what is known of l where k is the whole, and patterns for it."""
        own = self._own_of_other(self.own.odds(either.chances[0]), either.bits[0])
        return own, own.mixture(key, number)

    def table_with(self, vectors: Vectors):
        """Return the log weights of all states of the group with these vectors and densities."""
        odds = [o.odds(c) for o, c in zip(self.owns, vectors.chances, strict=True)]
        log_odds = self.group.log_odds.at[:2].set(jnp.stack(odds))
        bits = self.group.vectors.at[:2].set(vectors.bits)
        return table_of(Group(self.group.gains, log_odds, bits))

    def log_prior(self, vectors: Vectors):
        """Return the log prior of both vectors and densities."""
        return sum(o.log_prior(*v) for o, *v in zip(self.owns, *vectors, strict=True))

    # -- densities

    def _ratios(self, bits):
        """Return the log likelihood ratios of lines using none, the first, ...: (states, lines).

        The bits of the others are summed out; `bits` are (factors, lines kept).
        """
        joined = [bits[0]] if len(bits) == 1 else [bits[0], bits[1], bits[0] | bits[1]]

        def ratio(vector):
            gain = product(self.own.open * vector, self.group.gains.T)
            return logsumexp(self.log_share + gain, axis=0)

        ratios = [ratio(v) for v in joined]
        return jnp.stack([jnp.zeros_like(ratios[0]), *ratios])

    def _shares(self, ratios):
        """Return the states of lines at a fixed point of the densities, and what it counts.

        Probabilities (states, lines) and their log normalisers (lines,), which are relative to not
        using the factors; ones and bits (factors,) that follow the densities.
        """
        prior, owns = self.own.priors[0], self.owns[: len(ratios).bit_length() - 1]
        given = self.group.log_odds[: len(owns)]
        free = jnp.zeros(given.shape, bool)
        if prior.beta is not None:
            nothing = jnp.full(ratios.shape[1:], jnp.nan, ratios.dtype)
            given = jnp.stack([nothing if o.given[0] is None else o.given[0] for o in owns])
            free = jnp.isnan(given)
        given = jnp.where(free, 0.0, jnp.clip(given, -MOST_ODDS, MOST_ODDS))
        size = jnp.sum(free, axis=1).astype(ratios.dtype)

        def count_of(weight):
            count = jnp.sum(jnp.where(free, _uses(softmax(weight, axis=0)), 0.0), axis=1)
            return jnp.minimum(count, size)

        def again(_, carry):
            count = carry[0]
            logit = jnp.zeros_like(count)
            if prior.beta is not None:
                a, b = prior.beta
                logit = jnp.log(a + count) - jnp.log(b + size - count)
            odds = jnp.where(free, logit[:, None], given)
            weight = ratios + _joined(odds)
            return count_of(weight), odds, weight

        start = count_of(ratios), jnp.zeros_like(given), ratios
        count, odds, weight = lax.fori_loop(0, FIXED_POINT_STEPS, again, start)
        base = jnp.sum(jax.nn.softplus(odds), axis=0)
        return softmax(weight, axis=0), logsumexp(weight, axis=0) - base, count, size

    def with_chances(self, key, bits, chances, kept):
        """Draw the densities that go with vectors, or keep these; returns their log density too."""
        if self.own.priors[0].beta is None:
            return Vectors(bits, chances), 0.0
        prior = self.own.priors[0].beta
        beta = self._betas(bits)
        key_kind, key_prior, key_lines = random.split(key, 3)
        of_prior = draw_beta(key_prior, *(jnp.full(len(bits), c) for c in prior))
        from_prior = random.bernoulli(key_kind, DEAD, (len(bits),))
        tiny = jnp.finfo(self.residual.dtype)
        drawn = jnp.where(from_prior, of_prior, draw_beta(key_lines, *beta))
        drawn = jnp.clip(drawn, tiny.tiny, 1.0 - tiny.epsneg)
        chances = jnp.where(kept, chances, drawn)
        of_lines = jnp.log(1.0 - DEAD) + log_beta(chances, *beta)
        log_density = jnp.logaddexp(of_lines, jnp.log(DEAD) + log_beta(chances, *prior))
        return Vectors(bits, chances), jnp.sum(log_density)

    def _betas(self, bits):
        """Return Beta distributions of the densities about the expected use: (factors,) each.

        They count lines as far as these tell whether they use a factor: by the share of the
        variance of the bits that the data take away.
        """
        a, b = self.own.priors[0].beta
        shares, _, count, size = self._shares(self._ratios(bits))
        used = _uses(shares)
        left = jnp.sum(used * (1.0 - used), axis=1) * size
        known = jnp.clip(1.0 - left / jnp.maximum(count * (size - count), TINY), 0.0, 1.0)
        share = known * jnp.minimum(SHARE, MOST_COUNTED / jnp.maximum(size, 1.0))
        return a + share * count, b + share * (size - count)

    # -- the whole

    def _odds_of_whole(self, parts):
        """Return the log odds of the whole, (2, lines kept): by its entries, and by its lines."""
        kind = self.residual.dtype
        union = (parts[0] | parts[1]).astype(kind)
        using = 1.0 - self._shares(self._ratios(parts))[0][0]
        by_lines = jax.nn.sigmoid(product(using, self.residual) + self.own.kept_odds(union))
        improve = jax.vmap(lambda start: self.own.improved(start, self.residual)[0])
        return own_odds(self.own.given[1], improve(jnp.stack([union, by_lines])))

    def draw_whole(self, key, parts):
        """Draw the vector of the merged factor, (1, lines kept), given both of the parts."""
        key_start, key_bits = random.split(key)
        start = random.bernoulli(key_start).astype(jnp.int32)
        return draw_bits(key_bits, self._odds_of_whole(parts)[start])[None]

    def log_whole(self, whole, parts):
        """Return the log density of `draw_whole`."""
        return logsumexp(log_bits(whole, self._odds_of_whole(parts))) - jnp.log(2.0)

    # -- the parts

    def launch(self, key, whole, number: int) -> Launch:
        """Look for ways to split the whole, (1, lines kept)."""
        used = self._shares(self._ratios(whole))[0][1]
        split = jax.vmap(lambda k: self._pattern(k, whole[0], used))
        log_states, score = split(random.split(key, number))
        return Launch(log_states, jnp.log(0.5 / number + 0.5 * softmax(score)))

    def _pattern(self, key, whole, used):
        """Split the whole by two lines that use it, and improve the parts by mean-field steps.

        `used` (lines,) are the probabilities that lines use it.
        """
        keys = random.split(key, 3)
        whole = whole.astype(self.residual.dtype)
        ones = jnp.maximum(self.residual, 0.0) * whole
        most = jnp.max(ones)

        def anchor(key, weight):
            line = random.categorical(key, jnp.log(used * weight + 1e-6 * most + 1e-30))
            return (ones[line] > 0.5 * most).astype(ones.dtype)

        first = anchor(keys[0], jnp.sum(ones, axis=1))
        second = anchor(keys[1], product(ones, 1.0 - first))
        second = jnp.where(random.bernoulli(keys[2]), second, whole * (1.0 - first))
        return self._improved(first, second)

    def _improved(self, first, second):
        """Return log probabilities of (4, lines kept) states, and a score of the pair."""

        def again(_, carry):
            first, second, either, *_ = carry
            gain = product(self.residual, jnp.stack([first, second, either], axis=1)).T
            ratios = jnp.concatenate([jnp.zeros_like(gain[:1]), gain])
            shares, score, *_ = self._shares(ratios)
            by_state = jnp.concatenate([_uses(shares), 1.0 - shares[:1]])
            odds = [o.kept_odds(v) for o, v in zip(self.owns, (first, second), strict=True)]
            odds = [jnp.clip(o, -MOST_ODDS, MOST_ODDS) for o in odds]
            odds = _joined([jnp.broadcast_to(o, first.shape) for o in odds])
            more = product(by_state, self.residual)
            log_states = odds + jnp.concatenate([jnp.zeros_like(more[:1]), more])
            states = softmax(log_states, axis=0)
            first, second, either = states[1] + states[3], states[2] + states[3], 1.0 - states[0]
            return first, second, either, log_states, jnp.sum(score)

        start = first, second, jnp.maximum(first, second), jnp.zeros((4, len(first)), first.dtype)
        *_, log_states, score = lax.fori_loop(0, STEPS, again, (*start, jnp.zeros((), first.dtype)))
        log_states -= jnp.max(log_states, axis=0)
        log_states = jnp.maximum(log_states, -MOST_CERTAIN)
        return log_softmax(self._possible(log_states), axis=0), score

    def _possible(self, log_states):
        """Take the states out that bits fixed by the data exclude."""
        for own, bits in zip(self.owns, states_of(2).T, strict=True):
            if (given := own.given[1]) is not None:
                wrong = jnp.where(bits[:, None], given == -jnp.inf, given == jnp.inf)
                log_states = jnp.where(wrong, -jnp.inf, log_states)
        return log_states

    def draw_parts(self, key, launch: Launch):
        """Draw the vectors of both parts, (2, lines kept), and name them at random."""
        key_pattern, key_states, key_name = random.split(key, 3)
        chosen = random.categorical(key_pattern, launch.log_weight)
        state = random.categorical(key_states, launch.log_states[chosen], axis=0)
        bits = jnp.stack([state % 2 == 1, state >= 2])
        return jnp.where(random.bernoulli(key_name), bits[::-1], bits)

    def log_parts(self, parts, launch: Launch):
        """Return the log density of `draw_parts`."""

        def one_way(first, second):
            state = (first + 2 * second)[None, None]
            logs = jnp.take_along_axis(launch.log_states, state, axis=1)[:, 0]
            return logsumexp(launch.log_weight + jnp.sum(logs, axis=1))

        first, second = parts.astype(jnp.int32)
        return jnp.logaddexp(one_way(first, second), one_way(second, first)) - jnp.log(2.0)
