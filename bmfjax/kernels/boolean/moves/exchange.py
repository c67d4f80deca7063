r"""Exchange factors between the members of a population: replicas at temperatures, or particles.

A member i is a state x at an inverse temperature :math:`\beta_i`. Factor k of i changes places with
factor l of j, with its densities: the columns of the bits and the entries of the densities. Chains
that stay in modes with different factors learn from each other that way, where a whole state would
be refused. The proposal is its own reverse, and the prior does not change where all factors have
the same, so that it is accepted with probability

.. math::

   \min\{1, \exp[\beta_i (\ell(x_i') - \ell(x_i)) + \beta_j (\ell(x_j') - \ell(x_j))]\}.

Two forms
    Where the longer factor matrix is summed out (`bmfjax.kernels.boolean.collapsed`) only bits of
    the other one travel, :math:`\ell` is the log of the marginal likelihood m, and the bits that
    are summed out are drawn anew from their conditional. Otherwise both columns of a factor travel
    and :math:`\ell` is the log likelihood.

Which factors
    Each pair of members exchanges one factor or more: one half of the time one, a quarter two, and
    so on. They are drawn whatever the factors are. Bits with prior log odds of their own make the
    prior differ between factors: the ratio then holds it.

What it leaves invariant
    The product over the members of their tempered posteriors, which where a factor matrix is
    summed out are :math:`p(V)\,p(\theta)\,m(V, \theta)^{\beta}\,p(Z \mid V, \theta, X)`.

References
    Liang, Wong (2001), "Real-parameter evolutionary Monte Carlo with applications to Bayesian
    mixture models", JASA 96: crossover between tempered chains.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean.collapsed import draw_summed
from bmfjax.kernels.boolean.density import BooleanDensity, log_prior_of
from bmfjax.kernels.boolean.gibbs import log_likelihood as plain_likelihood
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.numerics.control import accepted

#: Probability that one more factor is exchanged.
MORE = 0.5


def exchange_move(
    density: BooleanDensity,
    *,
    collapsed: bool = False,
    summed: str = "longer",
    num_rounds: int = 1,
    reach: float | None = None,
) -> Callable:
    """Build the move.

    The factor matrix `summed` is summed out where `collapsed`, as by the update "collapsed". In
    each of `num_rounds` every member but at most one meets another, all pairs side by side: one
    that is about `reach` places apart, which is of use for temperatures, or any.

    The move is ``move(key, states, data, inverse_temperatures, log_likelihood=None) -> (states,
    log_likelihood, acceptance)``, with stacked positions in `states`. The log likelihoods (member,)
    are untempered, without the prior, and computed where they are not given. `acceptance` is the
    mean probability with which pairs were accepted, 0 without pairs. It is the `population_move` of
    `bmfjax.kernels.tempering.parallel_tempering`, and for particles.

    Examples
    --------
    Two members have each one of the two factors that the data need:

    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
    >>> from bmfjax.kernels.boolean.words import packed_data
    >>> from bmfjax.kernels.boolean.density import BitPrior
    >>> known, rate = BitPrior(None, 0.5), FlipRatePrior(value=0.1)
    >>> density = BooleanDensity((12, 2), 2, known, known, rate)
    >>> data = packed_data(BinaryMatrix(jnp.repeat(jnp.eye(2), 6, axis=0)))
    >>> move = jax.jit(exchange_move(density, collapsed=True, num_rounds=20))
    >>> basis = jnp.array([[[1], [1]], [[2], [2]]], jnp.uint32)
    >>> usage = jnp.zeros((2, 2, 1), jnp.uint32)
    >>> states = State({"usage": usage, "basis": basis, "flip_rate": jnp.full(2, 0.1)})
    >>> states, _, _ = move(random.key(0), states, data, jnp.ones(2))
    >>> jnp.sort(states.position["basis"][..., 0]).tolist()
    [[1, 2], [1, 2]]
    """
    whole("num_rounds", num_rounds)
    if reach is not None and not reach > 0:
        raise InputError(f"reach is {reach}; give a positive number of places")
    sides = sides_of(density.shape, summed)
    sites = (sides.kept,) if collapsed else ("usage", "basis")
    redraw = draw_summed(density, summed=summed)
    plain = plain_likelihood(density)

    def measure(key, position, data):
        """Return the log likelihood of a member, and the position with the other bits drawn."""
        if collapsed:
            return redraw(key, position, data)
        return position, plain(State(position), data)

    def move(key, states, data, inverse_temperatures, log_likelihood=None):
        if log_likelihood is None:
            keys = random.split(random.fold_in(key, num_rounds), len(inverse_temperatures))
            positions, log_likelihood = jax.vmap(measure, (0, 0, None))(keys, states.position, data)
        else:
            positions = states.position

        def one_round(i, carry):
            positions, value, total = carry
            key_pairs, key_try = random.split(random.fold_in(key, i))
            pairs = _pairs(key_pairs, len(value), reach)
            mates = jax.tree.map(lambda a: a[pairs], (positions, value, inverse_temperatures))
            tried = jax.vmap(lambda k, *mates: one_pair(k, *mates, data))
            new, then, probability = tried(random.split(key_try, len(pairs)), *mates)
            positions, value = jax.tree.map(
                lambda a, b: a.at[pairs].set(b), (positions, value), (new, then)
            )
            return positions, value, total + jnp.sum(probability)

        start = positions, log_likelihood, jnp.zeros((), log_likelihood.dtype)
        positions, value, total = lax.fori_loop(0, num_rounds, one_round, start)
        met = num_rounds * (len(value) // 2)
        return State(positions), value, total / max(met, 1)

    def one_pair(key, positions, value, beta, data):
        """Propose an exchange between two members, (2, ...): what they are after it."""
        key_factors, key_draw, key_accept = random.split(key, 3)
        source = _exchanged(key_factors, density.rank)
        new = dict(positions)
        for site in (*sites, *(n for n in ("usage_density", "basis_density") if n in positions)):
            both = positions[site].reshape(2 * density.rank, *positions[site].shape[2:])
            new[site] = both[source]
        keys = random.split(key_draw)
        new, then = jax.vmap(measure, (0, 0, None))(keys, new, data)
        gain = jnp.sum(beta * (then - value))
        for site in sites:
            if getattr(data, f"{site}_log_odds") is not None:
                prior = jax.vmap(lambda p, s=site: log_prior_of(s, density, p, data))
                gain += jnp.sum(prior(new) - prior(positions))
        accept, probability = accepted(key_accept, gain)
        after = jax.tree.map(lambda a, b: jnp.where(accept, a, b), (new, then), (positions, value))
        return *after, probability

    return move


def _pairs(key, number, reach):
    """Draw disjoint pairs of members: (number // 2, 2) int."""
    if reach is None:
        order = random.permutation(key, number)
    else:
        order = jnp.argsort(jnp.arange(number) + reach * random.uniform(key, (number,)))
        # The one without a mate is the first as often as the last; so are pairs of an even number.
        order = jnp.roll(order, -random.bernoulli(random.fold_in(key, 1)).astype(int))
    return order[: 2 * (number // 2)].reshape(-1, 2)


def _exchanged(key, rank):
    """Draw which factors change places: for each of two members, (2, rank), from which of both."""
    key_number, *keys = random.split(key, 3)
    first, second = (random.permutation(k, rank) for k in keys)
    more = random.bernoulli(key_number, MORE, (max(rank - 1, 0),))
    # Up to the first that says no.
    moved = jnp.concatenate([jnp.ones(1, bool), jnp.cumprod(more) > 0])[:rank]
    own = jnp.arange(2 * rank)
    there = jnp.where(moved, second + rank, first), jnp.where(moved, first, second + rank)
    source = own.at[first].set(there[0]).at[second + rank].set(there[1])
    return source.reshape(2, rank)
