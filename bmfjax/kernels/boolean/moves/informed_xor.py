r"""Add one factor to another, the pair chosen by what every pair would change.

`bmfjax.kernels.boolean.moves.whole_factors.xor` takes a pair of factors at random, and most pairs
are refused. Here the neighbours of a state x are the states :math:`y_{kl}` in which
:math:`v_k \oplus v_l` replaces :math:`v_k`, for all ordered pairs of factors. One of them is
proposed with probability

.. math::

   \frac{g(\pi(y_{kl}) / \pi(x))}{Z(x)}, \qquad
   Z(x) = \sum_{kl} g(\pi(y_{kl}) / \pi(x)), \qquad g(t) = \frac{t}{1 + t},

and accepted with probability :math:`\min\{1, Z(x) / Z(y)\}` (Zanella 2020, "Informed proposals for
local MCMC in discrete spaces", JASA 115). The same pair leads back from y, and the function g is
*balancing*, :math:`g(t) = t\,g(1/t)`: nothing else remains of the ratio of Metropolis and Hastings.
Pairs with an empty :math:`v_l` change nothing and are left out.

At small :math:`\beta`, where a pair at random is often accepted, `xor` is the cheaper move.

All neighbours at once
    Given the bits z of a line, :math:`v_k \oplus v_l` in place of :math:`v_k` changes what is
    covered only if :math:`z_k = 1` and :math:`z_l = 0`: with both bits the union is the same, and
    without :math:`z_k` nothing is. For :math:`v_l` in place of :math:`v_k` the entries covered are
    the same ones. An unordered pair therefore needs a quarter of the :math:`2^r` states, and all
    neighbours together as many as :math:`r(r-1)/8` likelihoods.

What it leaves invariant
    :math:`p(V)\,p(\theta)\,m(V, \theta)^\beta`, as the moves of
    `bmfjax.kernels.boolean.moves.whole_factors`, with the densities of V integrated out. They must
    be drawn given V afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.nn import log_sigmoid
from jax.scipy.special import logsumexp

from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import states_of
from bmfjax.kernels.boolean.line_states import (
    lines_of,
    log_prior_of_states,
    odds_of_lines,
    patterns_of,
    sum_over_lines,
    with_covered,
)
from bmfjax.kernels.boolean.marginal import state_weights
from bmfjax.kernels.boolean.moves.proposals import log_marginal
from bmfjax.kernels.boolean.words import pack_last_axis, unpack_last_axis


def informed_xor(density, sides) -> Callable:
    """Build the move; see `bmfjax.kernels.boolean.moves.whole_factors.rebirth` for its form."""
    if density.rank < 2:
        raise InputError(
            "the move 'informed_xor' needs two factors, and the rank is 1; leave it out"
        )

    def move(key, position, value, data, beta):
        pairs = jnp.asarray(_ordered_pairs(density.rank))
        key_pair, key_accept = random.split(key)
        bits = unpack_last_axis(position[sides.kept], sides.short)

        def weigh(bits):
            """Return the changes of log m, and the log of g: both (ordered pairs,)."""
            gain = neighbour_gains(density, sides, position, bits, data)
            ratio = beta * gain + _change_of_prior(density, sides, bits, data)
            ratio = jnp.where(jnp.isnan(ratio) | ~jnp.any(bits, 1)[pairs[1]], -jnp.inf, ratio)
            return gain, log_balanced(ratio)

        gain, weight = weigh(bits)
        pair = random.categorical(key_pair, weight)
        k, l = pairs[:, pair]  # noqa: E741
        proposed = bits.at[k].set(bits[k] ^ bits[l])
        log_ratio = logsumexp(weight) - logsumexp(weigh(proposed)[1])
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        taken = -random.exponential(key_accept, (), weight.dtype) < log_ratio
        kept = pack_last_axis(jnp.where(taken, proposed, bits))
        value += jnp.where(taken, gain[pair], 0.0)
        return position | {sides.kept: kept}, value, jnp.exp(jnp.minimum(log_ratio, 0.0))

    return move


def log_balanced(log_ratio) -> jax.Array:
    """Return the log of the balancing function g."""
    return log_sigmoid(log_ratio)


def neighbour_gains(density, sides, position, bits, data) -> jax.Array:
    """Return the change of log m where factor l is added to factor k: (ordered pairs,).

    `bits` (rank, short) are the kept ones; pairs are in the order of `_ordered_pairs`. An unordered
    pair is weighed at a time, with a quarter of the memory of one likelihood.
    """
    rank, num_rates = density.rank, density.flip_rate.num_rates
    lines, weights = lines_of(data, sides), flip_rates.weights(position["flip_rate"])
    patterns, odds = patterns_of(bits), odds_of_lines(density, sides, position, data, lines)
    now = position | {sides.kept: pack_last_axis(bits)}
    log_states = state_weights(density, sides, now, data)
    most = jnp.max(log_states, axis=0)
    shares = jnp.exp(log_states - most)
    log_total = jnp.log(jnp.sum(shares, axis=0))
    states = states_of(rank)
    into, added = _ordered_pairs(rank)
    same = jnp.asarray(~(states[:, into] & ~states[:, added]).T, shares.dtype)
    # By ordered pair, of the states that stay as they are: (2, pairs, lines).
    log_same = jnp.log(jnp.dot(same, shares, precision=lax.Precision.HIGHEST))
    log_same = log_same.reshape(2, -1, log_same.shape[1])
    on, off = log_sigmoid(odds), log_sigmoid(-odds)

    def one_pair(pair):
        k, l, rest, log_same = pair  # noqa: E741
        others = jnp.sum(states_of(rank - 2) << rest, axis=1, dtype=patterns.dtype)
        covered = ((others[:, None] & patterns) != 0) | (bits[k] ^ bits[l])
        prior = log_prior_of_states(odds[rest]) - most
        changed = logsumexp(with_covered(prior, covered, lines, weights, num_rates), axis=0)
        own = jnp.stack([on[k] + off[l], on[l] + off[k]])
        return sum_over_lines(jnp.logaddexp(log_same, changed + own) - log_total, lines)

    half = len(into) // 2
    rest = np.array([np.setdiff1d(np.arange(rank), p) for p in zip(into, added, strict=True)])
    pairs = into[:half], added[:half], rest[:half], log_same.transpose(1, 0, 2)
    return lax.map(one_pair, tuple(map(jnp.asarray, pairs))).T.reshape(-1)


def _ordered_pairs(rank):
    """Return which factor changes and which is added, all k < l first, then the same reversed."""
    pairs = np.array(list(combinations(range(rank), 2)))
    return np.concatenate([pairs, pairs[:, ::-1]]).T


def _change_of_prior(density, sides, bits, data):
    """Return the change of the log prior of V for every ordered pair."""
    prior, given = getattr(density, sides.kept), getattr(data, f"{sides.kept}_log_odds")
    into, added = _ordered_pairs(density.rank)
    own = None if given is None else given[into]
    old = log_marginal(prior, given, bits)
    return log_marginal(prior, own, bits[into] ^ bits[added]) - old[into]
