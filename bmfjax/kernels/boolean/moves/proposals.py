r"""Propose both vectors of one factor of a Boolean product, without regard to what they were.

All that the data say of factor k given the others are the entries that no other factor covers.
With :math:`F^1_i` and :math:`F^0_i` the uncovered ones and zeros of row i, and the densities of
the factor integrated out,

.. math::

   p(z, u \mid \text{rest}) \propto p(z)\,p(u)\,e^{\sum_i z_i g_i(u)}, \qquad
   g_i(u) = w_1 |F^1_i \cap u| + w_0 |F^0_i \cap u|, \qquad
   p(u) = \frac{B(a + |u|,\ b + m - |u|)}{B(a, b)},

with the weights of `bmfjax.kernels.boolean.bits`. A proposal is drawn from a mixture whose density
q can be evaluated anywhere, so that a Metropolis-Hastings step needs nothing else:

* *born*: the basis from one of several patterns found in the uncovered entries, the usage given it;
* *dead*: the basis from its prior, the usage given it; or the reverse; or both from their priors.
  These are the forms of a factor that explains nothing, which a birth has to be able to undo.

"Given" means independent bits with the conditional log odds :math:`g_i(u) + \operatorname{logit}
\rho`, :math:`\rho` a fixed point of :math:`\rho = (a + \sum_i \sigma(g_i + \operatorname{logit}
\rho)) / (a + b + n)`: a function of the basis alone, and exact where the density is fixed.

A pattern starts from what two rows have uncovered in common, the first row drawn uniformly and the
second by how much that is, and is then improved by Gibbs sampling of the factor (as the launch
states of Jain and Neal 2004, "A split-merge Markov chain Monte Carlo procedure for the Dirichlet
process mixture model", JCGS 13). Patterns depend on the rest and on chance, never on the factor's
own bits: a step conditions on them, and leaves the posterior invariant whatever they are.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.nn import log_sigmoid, logsumexp, softplus

from bmfjax.kernels.boolean.bits import Weights, as_mask, weigh
from bmfjax.kernels.boolean.density import log_presence, orientations
from bmfjax.kernels.boolean.words import PackedLines, count_bits, pack_last_axis, unpack_last_axis
from bmfjax.kernels.numerics.beta import draw_same_beta

#: Steps of the fixed point for a density, and alternations of Gibbs sampling for a pattern.
FIXED_POINT_STEPS, PATTERN_SWEEPS = 12, 2


class Free(NamedTuple):
    """Observed entries that the rest leaves uncovered, in one orientation: (lines, words)."""

    ones: jax.Array
    zeros: jax.Array


class Rest(NamedTuple):
    """What the proposal of a factor depends on."""

    usage: Free  # by rows
    basis: Free  # by columns
    weights: Weights
    given: dict  # by site, prior log odds of single bits, (lines,) or None


class Patterns(NamedTuple):
    """Candidates for the basis of a factor, found in what the rest leaves uncovered."""

    log_odds: jax.Array  # (number, columns), of the bits of the basis
    log_weight: jax.Array  # (number,)


def covered_once_twice(words, partner, size: int):
    """Return the entries that at least one factor covers, and at least two: (size, words) each."""

    def add(seen, factor):
        once, twice = seen
        bits, used = factor
        covered = as_mask(bits)[:, None] & used
        return (once | covered, twice | (once & covered)), None

    empty = jnp.zeros((size, partner.shape[1]), jnp.uint32)
    return lax.scan(add, (empty, empty), (unpack_last_axis(words, size), partner))[0]


def all_lines(lines: PackedLines, size: int):
    """Return the observed ones and zeros, (size, words); bits beyond a line mean nothing."""
    flat = lambda a: a.reshape(-1, a.shape[-1])[:size]  # noqa: E731
    ones = flat(lines.ones)
    observed = None if lines.observed is None else flat(lines.observed)
    return ones, ~ones if observed is None else observed & ~ones


def uncovered(density, position, data, weights: Weights, factors) -> Rest:
    """Return the rest of some factors (number,); its prior log odds are those of the first."""
    kept = jnp.ones((density.rank, 1), bool).at[factors].set(False)
    sides, given = {}, {}
    for site, other, lines, size in orientations(density, data):
        words = jnp.where(kept, position[site], 0)
        once, _ = covered_once_twice(words, position[other], size)
        sides[site] = Free(*(entries & ~once for entries in all_lines(lines, size)))
        given[site] = given_log_odds(data, site, factors[0])
    return Rest(sides["usage"], sides["basis"], weights, given)


def given_log_odds(data, site, factor):
    """Return the prior log odds of single bits of a factor, (lines,), or None."""
    given = getattr(data, f"{site}_log_odds")
    return None if given is None else given[factor]


def gains(free: Free, words, weights: Weights):
    """Return what a line adds to the log likelihood if it uses the factor: (..., lines)."""
    words = words[..., None, :]
    return weigh(weights, count_bits(free.ones & words), count_bits(free.zeros & words))


# ---- one vector: (lines,) bool -----------------------------------------------------------------


def log_marginal(prior, given, bits):
    """Return the log prior of the bits of one vector, its density integrated out.

    Where factors may not be there, `prior` knows the share of those that are.
    """
    free = True if given is None else jnp.isnan(given)
    size = bits.shape[-1] if given is None else jnp.sum(free, -1)
    ones = jnp.sum(bits & free, -1, dtype=jnp.int32)
    if prior.beta is not None:
        a, b = prior.beta
        betaln = jax.scipy.special.betaln
        total = betaln(a + ones, b + (size - ones)) - betaln(a, b)
        total = log_presence(prior, ones, total)
    else:
        total = ones * jnp.log(prior.chance) + (size - ones) * jnp.log1p(-prior.chance)
    if given is None:
        return total
    return total + jnp.sum(jnp.where(free, 0.0, log_sigmoid(jnp.where(bits, given, -given))), -1)


def draw_marginal(key, prior, given, size: int):
    """Draw the bits of one vector from the prior of `log_marginal`."""
    key_density, key_bits = random.split(key)
    if prior.beta is None:
        chance = prior.chance
    else:
        chance = draw_same_beta(key_density, *prior.beta, (), jnp.result_type(float))
    bits = draw_bits(key_bits, _with_given(jnp.log(chance) - jnp.log1p(-chance), given, size))
    if prior.presence is None:
        return bits
    return bits & random.bernoulli(random.fold_in(key_density, 1), prior.share)


def _with_given(log_odds, given, size):
    common = jnp.broadcast_to(log_odds, (size,))
    return common if given is None else jnp.where(jnp.isnan(given), common, given)


def conditional(prior, given, gain):
    """Return the log odds with which the bits of a vector are drawn given the other: (lines,)."""
    size = gain.shape[-1]
    if prior.beta is None:
        logit = jnp.log(prior.chance) - jnp.log1p(-prior.chance)
        return gain + _with_given(logit, given, size)
    a, b = prior.beta
    free = jnp.ones(size) if given is None else jnp.isnan(given).astype(gain.dtype)

    def again(_, logit):
        ones = jnp.sum(free * jax.nn.sigmoid(gain + logit))
        return jnp.log(a + ones) - jnp.log(b + jnp.sum(free) - ones)

    start = jnp.asarray(jnp.log(a) - jnp.log(b), gain.dtype)
    return gain + _with_given(lax.fori_loop(0, FIXED_POINT_STEPS, again, start), given, size)


def guess(prior, given, gain, count):
    """Return cheaper log odds than `conditional`, with the density that `count` ones suggest."""
    if prior.beta is None:
        return conditional(prior, given, gain)
    (a, b), size = prior.beta, gain.shape[-1]
    logit = jnp.log(a + count) - jnp.log(b + size - jnp.minimum(count, size))
    return gain + _with_given(logit, given, size)


def draw_bits(key, log_odds):
    """Draw independent bits: bool."""
    return random.logistic(key, log_odds.shape, log_odds.dtype) < log_odds


def log_bits(bits, log_odds):
    """Return the log probability of `draw_bits`, summed over the last axis."""
    return jnp.sum(log_sigmoid(jnp.where(bits, log_odds, -log_odds)), -1)


# ---- both vectors ------------------------------------------------------------------------------


def log_target(density, rest: Rest, usage, basis):
    """Return the log joint of a factor's bits given the rest, up to a constant."""
    gain = gains(rest.usage, pack_last_axis(basis), rest.weights)
    prior = log_marginal(density.usage, rest.given["usage"], usage)
    prior += log_marginal(density.basis, rest.given["basis"], basis)
    return jnp.sum(jnp.where(usage, gain, 0.0)) + prior


def find_patterns(key, density, rest: Rest, number: int) -> Patterns:
    """Look for patterns in what the rest leaves uncovered.

    Half the weight of a pattern is uniform, half proportional to the likelihood of its basis with
    the usage summed out: where many patterns are noise, the others are proposed.
    """
    log_odds, score = jax.vmap(lambda k: _find_pattern(k, density, rest))(random.split(key, number))
    weight = 0.5 / number + 0.5 * jax.nn.softmax(score)
    return Patterns(log_odds, jnp.log(weight))


def _find_pattern(key, density, rest):
    keys = random.split(key, 2 + 2 * PATTERN_SWEEPS)
    rows = density.shape[0]
    first = random.randint(keys[0], (), 0, rows)
    common = rest.usage.ones & rest.usage.ones[first]
    overlap = (rest.weights.one * count_bits(common)).at[first].set(-jnp.inf)
    second = jnp.argmax(overlap + random.gumbel(keys[1], overlap.shape, overlap.dtype))
    basis, count, score = common[second], jnp.float32(2.0), 0.0
    for k in range(PATTERN_SWEEPS):
        gain = gains(rest.usage, basis, rest.weights)
        odds = guess(density.usage, rest.given["usage"], gain, count)
        # Both are infinite for fixed bits, which say nothing of the basis.
        score = jnp.sum(jnp.where(jnp.isinf(odds), 0.0, softplus(odds) - softplus(odds - gain)))
        used = count_bits(basis)
        usage = draw_bits(keys[2 + 2 * k], odds)
        count = jnp.sum(usage, dtype=jnp.float32)
        gain = gains(rest.basis, pack_last_axis(usage), rest.weights)
        log_odds = guess(density.basis, rest.given["basis"], gain, used)
        basis = pack_last_axis(draw_bits(keys[3 + 2 * k], log_odds))
    return log_odds, score


def propose(key, density, rest: Rest, patterns: Patterns | None):
    """Draw usage and basis, (rows,) and (columns,) bool, from the mixture."""
    key_kind, key_pattern, key_basis, key_usage, key_dead = random.split(key, 5)
    rows, columns = density.shape
    given = rest.given
    dead_basis = draw_marginal(key_basis, density.basis, given["basis"], columns)
    dead_usage = draw_marginal(key_dead, density.usage, given["usage"], rows)
    kind = random.randint(key_kind, (), 0, 3 if patterns is None else 6)
    basis = dead_basis
    if patterns is not None:
        chosen = random.categorical(key_pattern, patterns.log_weight)
        basis = jnp.where(kind < 3, dead_basis, draw_bits(key_basis, patterns.log_odds[chosen]))
    by_row = draw_bits(key_usage, _odds_given("usage", density, rest, basis))
    by_column = draw_bits(key_usage, _odds_given("basis", density, rest, dead_usage))
    usage = jnp.where((kind == 1) | (kind == 2), dead_usage, by_row)
    return usage, jnp.where(kind == 1, by_column, basis)


def log_proposal(density, rest: Rest, patterns: Patterns | None, usage, basis):
    """Return the log density of `propose`."""
    prior_usage = log_marginal(density.usage, rest.given["usage"], usage)
    prior_basis = log_marginal(density.basis, rest.given["basis"], basis)
    from_basis = log_bits(usage, _odds_given("usage", density, rest, basis))
    from_usage = log_bits(basis, _odds_given("basis", density, rest, usage))
    parts = jnp.stack(
        [prior_basis + from_basis, prior_usage + from_usage, prior_usage + prior_basis]
    )
    dead = logsumexp(parts) - jnp.log(3.0)
    if patterns is None:
        return dead
    born = logsumexp(patterns.log_weight + log_bits(basis, patterns.log_odds)) + from_basis
    return jnp.logaddexp(born, dead) - jnp.log(2.0)


def _odds_given(site, density, rest, other):
    """Return the log odds of one vector given the bits of the other."""
    gain = gains(getattr(rest, site), pack_last_axis(other), rest.weights)
    return conditional(getattr(density, site), rest.given[site], gain)
