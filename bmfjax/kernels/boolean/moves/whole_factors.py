r"""Change whole factors at once, with the other factor matrix summed out.

The columns of the kept factor matrix V are its factors :math:`v_k`. Modes of the posterior differ
in several factors, and in every line of them: drawing line after line does not cross from one to
the other. Two moves, both for `bmfjax.kernels.boolean.collapsed`:

* `xor`: :math:`v_k \leftarrow v_k \oplus v_l` for a random pair, its own inverse. It takes
  :math:`v_l` out of :math:`v_k`, joins two factors that share nothing, or puts a factor back into
  another.
* `rebirth`: :math:`v_k` and its density :math:`\pi_k` in the other matrix are drawn anew given the
  other factors. Several candidates are drawn from a distribution q that does not depend on what is
  replaced. One of them, or the old factor, is chosen with probability proportional to

  .. math::

     p(v_k \mid v_{-k})\, p(\pi_k)\, m(V, \theta)^\beta \big/ q(v_k, \pi_k).

  Given the other factors all candidates cost little more than one: with :math:`W_i(z)` the
  normalised weights of the states of the other factors in line i, and :math:`g_{ij}` the gain of
  covering an entry, a factor v multiplies the odds that the line uses it by

  .. math::

     r_i(v) = \sum_z W_i(z) \exp\Big(\sum_j v_j g_{ij} [\text{z leaves j uncovered}]\Big),

  and m by :math:`\prod_i (1 - \pi_k + \pi_k r_i(v))`.

Candidates
    A candidate copies a template t of three kinds: a line of the data, with all of its ones; what
    the other factors leave uncovered of a line; or one probability for all entries, which makes
    factors that hardly any line uses. Templates are chosen with probability :math:`w_t`, lines the
    more often the more of their ones are uncovered, and :math:`v_j = 1` with probability
    :math:`\rho_{tj}`:

    .. math::

       q(v) = \sum_t w_t \prod_j \rho_{tj}^{v_j} (1 - \rho_{tj})^{1 - v_j}.

    A move needs its way back: a factor of one mode is often unused in another, so that plain
    templates must be able to propose it. The logit of the density is normal about that of the
    expected share of lines that use the candidate where its density is one half.

What they leave invariant
    :math:`p(V)\,p(\theta)\,m(V, \theta)^\beta` with the densities of V integrated out: `xor` by the
    Metropolis rule, `rebirth` as iterated sampling importance resampling (Andrieu, Lee, Vihola
    2018, "Uniform ergodicity of the iterated conditional SMC and geometric ergodicity of particle
    Gibbs samplers", Bernoulli 24(2)). The densities of V must be drawn given V afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import logit, logsumexp
from jax.scipy.stats import norm

from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.density import log_prior_of_bits
from bmfjax.kernels.boolean.line_states import (
    gains,
    lines_of,
    log_prior_of_states,
    log_weights,
    odds_of_lines,
    patterns_of,
    sum_over_lines,
)
from bmfjax.kernels.boolean.marginal import is_line, log_marginal_of, log_prior_of_logit
from bmfjax.kernels.boolean.words import ONE, ZERO, pack_last_axis, unpack_last_axis
from bmfjax.kernels.numerics.control import acceptance, log_uniform

#: Probability that a candidate has an entry, by what its template holds there: a one; a one that
#: other factors cover; a zero; a missing entry.
HAD, COVERED, NOT, UNKNOWN = 0.93, 0.07, 0.04, 0.3
#: The templates with one probability for all entries.
PLAIN = (0.03, 0.1, 0.25, 0.5, 0.8)
#: How often templates of a kind are chosen: whole lines, what is uncovered of them, and the others.
KINDS = (0.4, 0.3, 0.3)
#: Candidates of a rebirth, beside the factor that is there.
CANDIDATES = 48
#: Every line counts as if it had at least so many uncovered ones.
LEAST = 0.1
#: Widens the proposal of densities, and the largest standard deviation of their logits.
WIDER, WIDEST = 1.3, 2.0


def xor(density, sides) -> Callable:
    """Build the move that adds one factor to another; see `rebirth` for its form."""
    if density.rank < 2:
        raise InputError("the move 'xor' needs two factors, and the rank is 1; leave it out")

    def move(key, position, value, data, beta):
        keys = random.split(key, 3)
        k = random.randint(keys[0], (), 0, density.rank)
        other = (k + 1 + random.randint(keys[1], (), 0, density.rank - 1)) % density.rank
        bits = unpack_last_axis(position[sides.kept], sides.short)
        # New densities, of one factor or of both, were measured to be accepted less often.
        new = position | {sides.kept: pack_last_axis(bits.at[k].set(bits[k] ^ bits[other]))}
        then = log_marginal_of(density, sides, new, data)
        gain = beta * (then - value)
        gain += log_prior_of_bits(sides.kept, density, new, data)
        gain -= log_prior_of_bits(sides.kept, density, position, data)
        taken = log_uniform(keys[2], (), gain.dtype) < gain
        position = {n: jnp.where(taken, new[n], old) for n, old in position.items()}
        return position, jnp.where(taken, then, value), acceptance(gain)

    return move


def rebirth(density, sides) -> Callable:
    """Build the move that replaces a factor.

    It is ``move(key, position, value, data, inverse_temperature) -> (position, value,
    acceptance)`` with `value` the log of m at the position.
    """
    name = f"{sides.summed}_density"
    learned = getattr(density, sides.summed).beta is not None

    def move(key, position, value, data, beta):
        keys = random.split(key, 4)
        k = random.randint(keys[0], (), 0, density.rank)
        bits, lines = unpack_last_axis(position[sides.kept], sides.short), lines_of(data, sides)
        others = _other_factors(density, sides, position, bits, k, data)
        templates = _templates(others, lines, sides)
        drawn = jax.vmap(lambda i: _draw_mixture(i, *templates))(random.split(keys[1], CANDIDATES))
        factors = jnp.concatenate([bits[k][None], drawn])
        log_ratio = lax.map(lambda factor: _log_ratio(others, factor), factors)
        log_q = jax.vmap(lambda factor: _log_mixture(*templates, factor))(factors)

        densities = jnp.broadcast_to(
            position.get(name, jnp.zeros(())), (len(factors), density.rank)
        )
        if learned:
            logits, log_q_logits = _logits(keys[2], log_ratio, lines, position[name][k], beta)
            # The old density itself: by way of its logit it would be rounded, even to one.
            chances = jax.nn.sigmoid(logits).at[0].set(position[name][k])
            densities = densities.at[:, k].set(chances)
            log_q += log_q_logits

        def weigh(factor, chance, log_ratio):
            new = position | {sides.kept: pack_last_axis(bits.at[k].set(factor))}
            new |= {name: chance} if learned else {}
            prior = log_prior_of_bits(sides.kept, density, new, data)
            prior += log_prior_of_logit(density, name, chance) if learned else 0.0
            odds = odds_of_lines(density, sides, new, data, lines)[k]
            return new, prior, sum_over_lines(_with_odds(odds, log_ratio), lines)

        new, prior, gain = jax.vmap(weigh)(factors, densities, log_ratio)
        weight = beta * gain + prior - log_q
        weight = jnp.where(jnp.isnan(weight), -jnp.inf, weight)
        chosen = random.categorical(keys[3], weight)
        position = {n: leaf[chosen] for n, leaf in new.items()}
        return position, value + (gain[chosen] - gain[0]), 1.0 - jax.nn.softmax(weight)[0]

    return move


class OtherFactors(NamedTuple):
    """What the other factors leave of every line."""

    log_share: jax.Array  # (states of them, lines): log of the normalised weights
    free: jax.Array  # (states of them, short): 1 for an entry that the state leaves uncovered
    gain: jax.Array  # (short, lines): of covering an entry, in log likelihood


def _other_factors(density, sides, position, bits, k, data) -> OtherFactors:
    """Weigh the states of all factors but k."""
    lines, weights = lines_of(data, sides), flip_rates.weights(position["flip_rate"])
    patterns = patterns_of(bits.at[k].set(False))
    # Only states that do not use factor k are looked at, whatever its odds are.
    odds = odds_of_lines(density, sides, position, data, lines).at[k].set(0.0)
    prior, number = log_prior_of_states(odds), density.flip_rate.num_rates
    numbers = np.arange(2 ** (density.rank - 1))
    states = (numbers >> k << (k + 1)) | (numbers & ((1 << k) - 1))
    log_states = log_weights(prior, lines, weights, patterns, number)[states]
    gain = jax.vmap(lambda j: gains(lines, weights, j))(np.arange(sides.short))
    free = (states[:, None] & patterns) == 0
    return OtherFactors(jax.nn.log_softmax(log_states, axis=0), free.astype(gain.dtype), gain)


def _log_ratio(others: OtherFactors, factor):
    """Return the log of r, by which a factor multiplies the odds of its use: (lines,)."""
    change = jnp.dot(others.free * factor, others.gain, precision=lax.Precision.HIGHEST)
    return logsumexp(others.log_share + change, axis=0)


def _with_odds(odds, log_ratio):
    """Return what a factor of these prior log odds adds to the log of m, line by line."""
    added = jax.nn.softplus(odds + log_ratio) - jax.nn.softplus(odds)
    # Bits that are fixed have infinite odds.
    return jnp.where(jnp.isinf(odds), jnp.where(odds > 0, log_ratio, 0.0), added)


def _logits(key, log_ratio, lines, old, beta):
    """Draw the logits of the candidates' densities, the first as it is; with their log density."""
    share = jnp.where(is_line(lines), jax.nn.sigmoid(log_ratio), 0.0)
    used = 0.5 + sum_over_lines(share, lines)
    unused = jnp.maximum(1.0 + len(lines.place) - used, 0.5)
    spread = WIDER * jnp.sqrt((1.0 / used + 1.0 / unused) / jnp.maximum(beta, 0.01))
    place, spread = jnp.log(used) - jnp.log(unused), jnp.minimum(spread, WIDEST)
    drawn = place + spread * random.normal(key, place.shape, place.dtype)
    logits = drawn.at[0].set(logit(old))
    return logits, norm.logpdf(logits, place, spread)


def _templates(others: OtherFactors, lines, sides):
    """Return the log probabilities of templates, and of their entries (short, templates)."""
    share = jnp.exp(others.log_share)
    uncovered = jnp.dot(others.free.T, share, precision=lax.Precision.HIGHEST)
    one, zero = lines.code == ONE, lines.code == ZERO
    other = jnp.where(zero, NOT, UNKNOWN)
    whole = jnp.where(one, HAD, other)
    left = jnp.where(one, COVERED + (HAD - COVERED) * uncovered, other)
    plain = jnp.broadcast_to(jnp.asarray(PLAIN, left.dtype), (sides.short, len(PLAIN)))
    badly = LEAST + jnp.sum(jnp.where(one, uncovered, 0.0), axis=0)
    copies = jnp.tile(lines.count, len(badly) // len(lines.count))
    chance = jnp.where(is_line(lines), jnp.log(copies) + 2.0 * jnp.log(badly), -jnp.inf)
    of_lines, even = jax.nn.log_softmax(chance), jnp.full(len(PLAIN), -np.log(len(PLAIN)))
    log_chance = [np.log(k) + c for k, c in zip(KINDS, (of_lines, of_lines, even), strict=True)]
    return jnp.concatenate(log_chance), jnp.concatenate([whole, left, plain], axis=1)


def _draw_mixture(key, log_chance, use):
    """Draw a template, and from it a factor (short,)."""
    key_template, key_bits = random.split(key)
    template = random.categorical(key_template, log_chance)
    return random.uniform(key_bits, use.shape[:1], use.dtype) < use[:, template]


def _log_mixture(log_chance, use, factor):
    """Return the log of q(v) of a factor (short,), normalised."""
    entries = jnp.where(factor[:, None], jnp.log(use), jnp.log1p(-use))
    return logsumexp(log_chance + jnp.sum(entries, axis=0))
