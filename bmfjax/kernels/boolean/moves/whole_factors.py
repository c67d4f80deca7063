r"""Change whole factors at once, with the other factor matrix summed out.

The columns of the kept factor matrix V are its factors :math:`v_k`. Modes of the posterior differ
in several factors, and in every line of them: drawing line after line does not cross from one to
the other. Two proposals, both for `bmfjax.kernels.boolean.collapsed`:

* `xor`: :math:`v_k \leftarrow v_k \oplus v_l` for a random pair, its own inverse. It takes
  :math:`v_l` out of :math:`v_k`, joins two factors that share nothing, or puts a factor back into
  another.
* `rebirth`: :math:`v_k` is drawn anew given the other factors, as the noisy copy of a line of the
  data that they explain badly. A line i is chosen with probability :math:`w_i`, which grows with
  the number of its ones that they do not cover, and :math:`v_{jk} = 1` with probability
  :math:`\rho_{ij}`. The density of the proposal,

  .. math::

     q(v) = \sum_i w_i \prod_j \rho_{ij}^{v_j} (1 - \rho_{ij})^{1 - v_j},

  does not depend on the factor that it replaces: the same function weighs the way back.

With a reborn factor goes a new density in the other matrix, as another number of lines use it. Its
logit is normal about that of the expected share of lines that use the factor, given the bits
proposed and a density of one half for this factor. The way back is weighed by the same function at
the old bits.

What they leave invariant
    :math:`p(V)\,p(\theta)\,m(V, \theta)^\beta` with the densities of V integrated out, by the
    Metropolis-Hastings rule (Green 1995). The densities of V must be drawn given V afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random
from jax.scipy.special import logit, logsumexp
from jax.scipy.stats import norm

from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean.density import log_prior_of_bits
from bmfjax.kernels.boolean.line_states import lines_of, patterns_of
from bmfjax.kernels.boolean.marginal import (
    expected_coverage,
    expected_usage,
    is_line,
    log_marginal_of,
    log_prior_of_logit,
    state_weights,
)
from bmfjax.kernels.boolean.words import ONE, ZERO, pack_last_axis, unpack_last_axis

#: Probability that a reborn factor uses an entry: of a one that is covered, of a one that is not,
#: of a zero and of an entry that is missing.
COVERED, UNCOVERED, NOT, UNKNOWN = 0.35, 0.9, 0.08, 0.3
#: What a line that is explained well counts as: so many uncovered ones.
LEAST = 0.1
#: Widens the proposal of densities, and the largest standard deviation of their logits.
WIDER, WIDEST = 1.3, 2.0


def xor(density, sides) -> Callable:
    """Build the move that adds one factor to another; see `rebirth` for its form."""
    if density.rank < 2:
        raise InputError("the move 'xor' needs two factors, and the rank is 1; leave it out")

    def propose(key, position, data):
        keys = random.split(key)
        k = random.randint(keys[0], (), 0, density.rank)
        other = (k + 1 + random.randint(keys[1], (), 0, density.rank - 1)) % density.rank
        bits = unpack_last_axis(position[sides.kept], sides.short)
        # New densities, of one factor or of both, were measured to be accepted less often.
        return bits.at[k].set(bits[k] ^ bits[other]), None, 0.0

    return _metropolis(density, sides, propose)


def rebirth(density, sides) -> Callable:
    """Build the move that replaces a factor.

    It is ``move(key, position, value, data, inverse_temperature) -> (position, value,
    acceptance)`` with `value` the log of m at the position.
    """

    def propose(key, position, data):
        keys = random.split(key, 3)
        k = random.randint(keys[0], (), 0, density.rank)
        bits = unpack_last_axis(position[sides.kept], sides.short)
        log_chance, use = _templates(density, sides, position, bits.at[k].set(False), data)
        line = random.categorical(keys[1], log_chance)
        new = random.uniform(keys[2], (sides.short,), use.dtype) < use[:, line]
        ratio = _log_mixture(log_chance, use, bits[k]) - _log_mixture(log_chance, use, new)
        return bits.at[k].set(new), k, ratio

    return _metropolis(density, sides, propose)


def _templates(density, sides, position, rest, data):
    """Return the log probability of every line, and of every entry of its noisy copy.

    `rest` are the bits without the factor that is replaced; of the density of that factor nothing
    depends.
    """
    lines = lines_of(data, sides)
    without = position | {sides.kept: pack_last_axis(rest)}
    log_states = state_weights(density, sides, without, data)
    uncovered = 1.0 - expected_coverage(log_states, patterns_of(rest))
    one = lines.code == ONE
    badly = LEAST + jnp.sum(jnp.where(one, uncovered, 0.0), axis=0)
    copies = jnp.tile(lines.count, len(badly) // len(lines.count))
    use = jnp.where(one, COVERED + (UNCOVERED - COVERED) * uncovered, UNKNOWN)
    use = jnp.where(lines.code == ZERO, NOT, use)
    log_chance = jnp.where(is_line(lines), jnp.log(copies) + 2.0 * jnp.log(badly), -jnp.inf)
    return jax.nn.log_softmax(log_chance), use


def _log_mixture(log_chance, use, factor):
    """Return log q of a factor (short,), up to nothing."""
    entries = jnp.where(factor[:, None], jnp.log(use), jnp.log1p(-use))
    return logsumexp(log_chance + jnp.sum(entries, axis=0))


def _metropolis(density, sides, propose):
    """Build the move of ``propose(key, position, data) -> (bits, renewed, log ratio)``.

    `renewed` is the factor that gets a new density, if any; the ratio is that of the densities of
    proposing the old bits and the new.
    """

    def move(key, position, value, data, beta):
        keys = random.split(key, 3)
        bits, renewed, ratio = propose(keys[0], position, data)
        new = position | {sides.kept: pack_last_axis(bits)}
        ratio += log_prior_of_bits(sides.kept, density, new, data)
        ratio -= log_prior_of_bits(sides.kept, density, position, data)
        if renewed is not None and getattr(density, sides.summed).beta is not None:
            new, more = _with_density(keys[1], density, sides, position, new, renewed, data, beta)
            ratio += more
        then = log_marginal_of(density, sides, new, data)
        gain = beta * (then - value) + ratio
        gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
        taken = -random.exponential(keys[2], (), gain.dtype) < gain
        position = {n: jnp.where(taken, new[n], old) for n, old in position.items()}
        return position, jnp.where(taken, then, value), jnp.exp(jnp.minimum(gain, 0.0))

    return move


def _with_density(key, density, sides, old, new, k, data, beta):
    """Draw the density of factor k: the position with it, and its log ratio."""
    name = f"{sides.summed}_density"
    places = [_share_of_lines(density, sides, p, k, data, beta) for p in (old, new)]
    before = logit(old[name][k])
    after = places[1][0] + places[1][1] * random.normal(key, (), before.dtype)
    back, forth = (norm.logpdf(x, *p) for x, p in zip((before, after), places, strict=True))
    chance = old[name].at[k].set(jax.nn.sigmoid(after))
    ratio = log_prior_of_logit(density, name, chance) - log_prior_of_logit(density, name, old[name])
    return new | {name: chance}, ratio + back - forth


def _share_of_lines(density, sides, position, k, data, beta):
    """Return the place and the scale of the logit of a density: see the module's docstring."""
    name, lines = f"{sides.summed}_density", lines_of(data, sides)
    even = position | {name: position[name].at[k].set(0.5)}
    used = 0.5 + expected_usage(state_weights(density, sides, even, data), lines)[k]
    unused = jnp.maximum(1.0 + sides.long - used, 0.5)
    spread = WIDER * jnp.sqrt((1.0 / used + 1.0 / unused) / jnp.maximum(beta, 0.01))
    return jnp.log(used) - jnp.log(unused), jnp.minimum(spread, WIDEST)
