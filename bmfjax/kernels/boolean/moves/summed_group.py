r"""A group of factors whose bits in one matrix are summed out, for moves of their kept vectors.

Given the factors outside of the group B the lines i of the matrix that is summed out are
independent, and

.. math::

   m(v_B) = \prod_i \sum_{z \in \{0,1\}^b} p(z)\,
       \exp \sum_j g_{ij} \Big[\bigvee_{l \in B} z_l v_{jl} = 1\Big],

with :math:`g_{ij}` the log likelihood that covering the entry adds. One matrix product weighs the
states of all lines (`table_of`). A move changes kept vectors :math:`v_l` and densities of the
group by what this says, and draws the bits and all densities from their conditionals afterwards
(`settle`). `Own` is what is known of one factor of the group given the others, and a proposal for
its vector and its density; `bmfjax.kernels.boolean.moves.rebirth` describes it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.nn import log_sigmoid, logsumexp, sigmoid
from jax.scipy.special import betaln

from bmfjax.kernels.boolean.bits import covered_by, states_of
from bmfjax.kernels.boolean.density import draw_densities, log_odds
from bmfjax.kernels.boolean.line_states import draw_states, log_prior_of_states, packed_bits
from bmfjax.kernels.boolean.moves.proposals import (
    all_lines,
    draw_bits,
    draw_marginal,
    given_log_odds,
    log_bits,
    log_marginal,
)
from bmfjax.kernels.boolean.words import unpack_last_axis
from bmfjax.kernels.numerics.beta import draw_beta

#: Mean-field steps of a pattern, and the largest log odds of one of its bits.
STEPS, MOST_CERTAIN = 4, 8.0
#: Weight of the prior in the mixture.
DEAD = 0.25
#: Share of the lines, and most of them, that the proposal of a density counts.
SHARE, MOST_COUNTED = 0.5, 4000.0


class Group(NamedTuple):
    """What a move conditions on: the gains, and the factors of the group."""

    gains: jax.Array  # (lines summed out, lines kept), zero where missing or covered by the rest
    log_odds: jax.Array  # (size, lines summed out), prior of the bits summed out
    vectors: jax.Array  # (size, lines kept) bool


class Mixture(NamedTuple):
    """Patterns from which a vector is drawn, and what its density follows."""

    log_odds: jax.Array  # (patterns, lines kept)
    log_weight: jax.Array  # (patterns,)
    residual: jax.Array  # (lines summed out, lines kept), gains where the others leave uncovered


def group_of(density, sides, position, data, weights, factors, rest) -> Group:
    """Return the group; entries that the rest covers gain nothing."""
    lines = data.by_row if sides.summed == "usage" else data.by_column
    ones, zeros = all_lines(lines, sides.long)
    bits = unpack_last_axis(position[sides.summed], sides.long)[rest]
    free = ~covered_by(bits, position[sides.kept][rest])
    ones, zeros = (unpack_last_axis(entries & free, sides.short) for entries in (ones, zeros))
    gains = jnp.where(ones, weights.one, jnp.where(zeros, weights.zero, 0.0))
    odds = log_odds(sides.summed, density, position, data)
    odds = jnp.broadcast_to(odds, (density.rank, sides.long))[factors]
    return Group(gains, odds, unpack_last_axis(position[sides.kept][factors], sides.short))


def table_of(group: Group):
    """Return the log weights of all states of the group in every line: (states, lines)."""
    states = states_of(len(group.vectors)).astype(group.gains.dtype)
    covers = (product(states, group.vectors.astype(group.gains.dtype)) > 0.5).astype(
        group.gains.dtype
    )
    return log_prior_of_states(group.log_odds) + product(covers, group.gains.T)


def settle(keys, density, sides, position, data, factors, table):
    """Draw the bits that are summed out, of these factors, and all densities: the position."""
    key_bits, key_density = keys
    drawn = draw_states(key_bits, table, jnp.arange(table.shape[1]))
    drawn = packed_bits(drawn, len(factors))
    position = position | {sides.summed: position[sides.summed].at[factors].set(drawn)}
    return position | draw_densities(key_density, density, position, data)


def product(a, b):
    """Multiply matrices in full precision."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)


def log_chances(table, size: int):
    """Return the log probability that each factor of the group is taken: (size,)."""
    share = jnp.exp(table - jnp.max(table, axis=0))
    absent = jnp.asarray(~states_of(size).T, share.dtype)
    tiny = jnp.finfo(share.dtype).tiny
    without = jnp.log(jnp.maximum(product(absent, share), tiny))
    lost = jnp.sum(jnp.log(jnp.sum(share, axis=0)) - without, axis=1)
    return jax.nn.log_softmax(-jnp.log1p(jnp.maximum(lost, 0.0)))


class Own:
    """Everything but the vector, the density and the summed bits of the factor that is replaced."""

    def __init__(self, density, sides, data, k, group: Group, chosen):
        self.priors = getattr(density, sides.summed), getattr(density, sides.kept)
        self.given = tuple(given_log_odds(data, s, k) for s in (sides.summed, sides.kept))
        self.name, self.k, self.chosen = f"{sides.summed}_density", k, chosen
        self.group, self.size = group, len(group.vectors)
        states = states_of(self.size)
        #: Numbers of the states in which a factor is absent: (size, states / 2).
        absent = np.stack([np.flatnonzero(~s) for s in states.T])
        self.absent = jnp.asarray(absent)[chosen]
        # Where every state is among those without the factor and those with it.
        there = absent + 2 ** np.arange(self.size)[:, None]
        places = np.argsort(np.concatenate([absent, there], axis=1), axis=1)
        self.places = jnp.asarray(places)[chosen]
        kind = group.gains.dtype
        others = jnp.asarray(states, kind)[self.absent]
        open_ = product(others, group.vectors.astype(kind)) < 0.5
        self.open = open_.astype(kind)  # (states / 2, lines kept)
        # Without the factor's own prior, which may make its absence impossible.
        free = group._replace(log_odds=group.log_odds.at[chosen].set(0.0))
        self.kept = table_of(free)[self.absent] + np.log(2.0)

    def density_of(self, position):
        """Return the density of the factor among the lines summed out; 1/2 where it is known."""
        return position[self.name][self.k] if self.priors[0].beta else jnp.asarray(0.5)

    def odds(self, chance):
        """Return the prior log odds of the factor's summed bits, (lines,), at this density."""
        if self.priors[0].beta is None:
            return self.group.log_odds[self.chosen]
        common = jnp.broadcast_to(jnp.log(chance) - jnp.log1p(-chance), self.kept.shape[1:])
        given = self.given[0]
        return common if given is None else jnp.where(jnp.isnan(given), common, given)

    def table_with(self, vector, chance):
        """Return the log weights of all states where the factor has this vector and density."""
        odds = self.odds(chance)
        gain = product(self.open * vector, self.group.gains.T)
        halves = jnp.concatenate(
            [self.kept + log_sigmoid(-odds), self.kept + log_sigmoid(odds) + gain]
        )
        return halves[self.places]

    def log_prior(self, vector, chance):
        """Return the log prior of vector, its density integrated out, and density."""
        total = log_marginal(self.priors[1], self.given[1], vector)
        if self.priors[0].beta is None:
            return total
        return total + log_beta(chance, *self.priors[0].beta)

    def residual(self):
        """Return the gains times the probability that the others leave the entry uncovered."""
        share = jax.nn.softmax(self.kept, axis=0)
        return self.group.gains * product(share.T, self.open)

    def mixture(self, key, number: int, candidates=None) -> Mixture:
        """Look for patterns in what the others leave uncovered; some candidates join them."""
        key_pattern, key_known = random.split(key)
        residual = self.residual()
        keys = random.split(key_pattern, number)
        log_odds, score = jax.vmap(lambda k: self._pattern(k, residual))(keys)
        if candidates is not None:
            few = min(number, len(candidates))
            chosen = random.choice(key_known, len(candidates), (few,), replace=False)
            known = jnp.asarray(candidates)[chosen]
            gain = product(known.astype(residual.dtype), residual.T)
            log_odds = jnp.concatenate([log_odds, jnp.where(known, 1.0, -1.0) * MOST_CERTAIN])
            score = jnp.concatenate([score, jax.vmap(self._score)(gain)])
        weight = 0.5 / len(score) + 0.5 * jax.nn.softmax(score)
        return Mixture(log_odds, jnp.log(weight), residual)

    def _pattern(self, key, residual):
        key_first, key_second = random.split(key)
        ones = jnp.maximum(residual, 0.0)
        missed = jnp.sum(ones, axis=1)
        first = random.categorical(key_first, jnp.log(missed + 1e-3 * jnp.max(missed) + 1e-30))
        common = jnp.minimum(ones, ones[first])
        overlap = jnp.sum(common, axis=1).at[first].set(-jnp.inf)
        noise = random.gumbel(key_second, overlap.shape, overlap.dtype)
        second = jnp.argmax(overlap + noise)
        vector = (common[second] > 0.5 * jnp.max(ones)).astype(residual.dtype)
        log_odds, gain = self.improved(vector, residual)
        return log_odds, self._score(gain)

    def improved(self, vector, residual):
        """Return the log odds of a vector after mean-field steps, and the last gain of lines."""

        def again(_, carry):
            vector, *_ = carry
            gain = product(residual, vector)
            used = self._used(gain)[1]
            log_odds = product(used, residual) + self.kept_odds(vector)
            return sigmoid(log_odds), log_odds, gain

        start = vector, jnp.zeros_like(vector), jnp.zeros_like(residual[:, 0])
        _, log_odds, gain = lax.fori_loop(0, STEPS, again, start)
        return jnp.clip(log_odds, -MOST_CERTAIN, MOST_CERTAIN), gain

    def _score(self, gain):
        """Return what lines of this gain, (lines,), add to the log likelihood, bits summed out."""
        odds = self._used(gain)[0]
        # Both are infinite for fixed bits, which say nothing of the vector.
        more = jax.nn.softplus(odds) - jax.nn.softplus(odds - gain)
        return jnp.sum(jnp.where(jnp.isinf(odds), 0.0, more))

    def _used(self, gain):
        """Return log odds and probability that each line uses a vector of this gain."""
        prior, given = self.priors[0], self.given[0]
        if prior.beta is None:
            odds = gain + self.group.log_odds[self.chosen]
            return odds, sigmoid(odds)
        a, b = prior.beta
        free = jnp.ones_like(gain) if given is None else jnp.isnan(given).astype(gain.dtype)
        count = jnp.sum(free * (gain > 0))

        def again(_, carry):
            count, _ = carry
            logit = jnp.log(a + count) - jnp.log(b + jnp.sum(free) - count)
            own = logit if given is None else jnp.where(jnp.isnan(given), logit, given)
            odds = gain + own
            return jnp.sum(free * sigmoid(odds)), odds

        _, odds = lax.fori_loop(0, 2, again, (count, gain))
        return odds, sigmoid(odds)

    def kept_odds(self, vector):
        """Return the prior log odds of kept bits, by how many ones a vector has: () or (lines,)."""
        prior, given = self.priors[1], self.given[1]
        if prior.beta is None:
            own = jnp.log(prior.chance) - jnp.log1p(-prior.chance)
        else:
            (a, b), count = prior.beta, jnp.sum(vector)
            own = jnp.log(a + count) - jnp.log(b + len(vector) - count)
        return own if given is None else jnp.where(jnp.isnan(given), own, given)

    def propose(self, key, mixture: Mixture):
        """Draw a vector, (lines kept,) bool, and a density, ()."""
        key_kind, key_pattern, key_bits, key_prior, key_density = random.split(key, 5)
        prior, given = self.priors[1], self.given[1]
        size = mixture.log_odds.shape[1]
        chosen = random.categorical(key_pattern, mixture.log_weight)
        born = draw_bits(key_bits, own_odds(given, mixture.log_odds[chosen]))
        dead = draw_marginal(key_prior, prior, given, size)
        vector = jnp.where(random.bernoulli(key_kind, DEAD), dead, born)
        if self.priors[0].beta is None:
            return vector, jnp.asarray(0.5)
        tiny = jnp.finfo(mixture.residual.dtype)
        drawn = draw_beta(key_density, *self._beta_of(mixture, vector))
        return vector, jnp.clip(drawn, tiny.tiny, 1.0 - tiny.epsneg)

    def log_proposal(self, mixture: Mixture, vector, chance):
        """Return the log density of `propose`."""
        prior, given = self.priors[1], self.given[1]
        odds = own_odds(given, mixture.log_odds)
        born = logsumexp(mixture.log_weight + log_bits(vector, odds))
        dead = log_marginal(prior, given, vector)
        total = jnp.logaddexp(born + jnp.log(1.0 - DEAD), dead + jnp.log(DEAD))
        if self.priors[0].beta is None:
            return total
        return total + log_beta(chance, *self._beta_of(mixture, vector))

    def _beta_of(self, mixture, vector):
        """Return the Beta distribution of the density of a factor with this vector."""
        a, b = self.priors[0].beta
        gain = product(mixture.residual, vector.astype(mixture.residual.dtype))
        used = self._used(gain)[1]
        given = self.given[0]
        free = jnp.ones_like(used) if given is None else jnp.isnan(given).astype(used.dtype)
        size, count = jnp.sum(free), jnp.sum(free * used)
        share = jnp.minimum(SHARE, MOST_COUNTED / jnp.maximum(size, 1.0))
        return a + share * count, b + share * (size - count)


def own_odds(given, log_odds):
    """Return log odds of a proposal that leaves fixed bits fixed, whatever a pattern says."""
    if given is None:
        return log_odds
    return jnp.where(jnp.isnan(given), log_odds, given)


def log_beta(value, a, b):
    """Return the log density of a Beta distribution."""
    return (a - 1.0) * jnp.log(value) + (b - 1.0) * jnp.log1p(-value) - betaln(a, b)
