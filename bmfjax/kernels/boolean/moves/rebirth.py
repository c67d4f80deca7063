r"""Replace the kept vector of a factor while the bits of a whole group are summed out.

A birth (`bmfjax.kernels.boolean.moves.birth`) weighs a new factor against what all others cover
now. Where factors overlap, a better one is refused all the same: the bits of the others would have
to change with it. Here a group B of b factors is taken, one of them, k, gets a new vector
:math:`v_k` in the matrix that is kept, and the bits :math:`z_{iB}` of all lines i of the other
matrix are summed out, so that they answer to it. Given the factors outside of B,

.. math::

   m(v_B) = \prod_i \sum_{z \in \{0,1\}^b} p(z)\,
       \exp \sum_j g_{ij} \Big[\bigvee_{l \in B} z_l v_{jl} = 1\Big],

with :math:`g_{ij}` the log likelihood that covering the entry adds. One matrix product weighs the
states of all lines.

The proposal
    Without k the states of the lines have weights that leave entry (i, j) uncovered with
    probability :math:`c_{ij}`. Patterns are sought in :math:`g_{ij} c_{ij}`: each starts from what
    two badly explained lines have in common, and is improved by mean-field steps; candidates that
    are known beforehand may join them. The new vector is drawn from a mixture of these patterns,
    with an upper bound on how certain a bit is, and of the prior. The density of the factor among
    the lines summed out is drawn with it, from a Beta distribution about the share of lines that
    would use the vector. Patterns and this share depend on everything but the vector, the density
    and the summed bits of k, so that a move and its reverse have the same; the mixture can be
    evaluated for both.

Which factor
    :math:`s(k) \propto 1 / (1 + \ell_k)`, with :math:`-\ell_k` the log probability that no line
    uses factor k: one that the others make superfluous is taken often.

What it leaves invariant
    The posterior, at any inverse temperature: a Metropolis-Hastings step on the posterior without
    the bits summed out and without the densities of the kept vectors (Beta-Bernoulli), after
    which both are drawn from their conditionals, whether the proposal was accepted or not (van
    Dyk and Park 2008, "Partially collapsed Gibbs samplers", JASA 103).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random
from jax.nn import logsumexp

from bmfjax.data.checks import whole
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import MAX_JOINT
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.boolean.moves.birth import check_moved
from bmfjax.kernels.boolean.moves.summed_group import (
    Own,
    group_of,
    log_chances,
    settle,
    table_of,
)
from bmfjax.kernels.boolean.words import pack_last_axis
from bmfjax.kernels.numerics.control import accepted


def rebirth(
    density: BooleanDensity,
    *,
    block_size: int = 6,
    num_patterns: int = 8,
    summed: str = "longer",
    candidates=None,
) -> Callable:
    """Build the move.

    Parameters
    ----------
    density : BooleanDensity
    block_size : int
        Factors of a group, drawn at random in every move; 1 to 8.
    num_patterns : int
        Patterns looked for in every move.
    summed : {"longer", "usage", "basis"}
        The factor matrix that is summed out; by default the one with more lines.
    candidates : (number, lines kept) bool array, optional
        Vectors known beforehand, such as those of other runs; as many of them as there are
        patterns, drawn at random, join these in every move. Default: those of the data.

    Returns
    -------
    callable
        ``move(key, position, data, inverse_temperature=1.0) -> (position, acceptance)``, a global
        move of `bmfjax.kernels.boolean.gibbs.ormachine`; the acceptance probability is () float.
        Bits that the data fix stay as they are.

    Raises
    ------
    InputError
        For another size or side, or where there are no bits to move.

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
    >>> move, data = jax.jit(rebirth(density)), packed_data(BinaryMatrix(ones))
    >>> for key in random.split(random.key(0), 10):
    ...     empty, acceptance = move(key, empty, data)
    >>> f"{int(empty['basis'][0, 0]):012b}"
    '000000111111'
    """
    check_moved(density)
    whole("block_size", block_size, 1, MAX_JOINT)
    whole("num_patterns", num_patterns)
    sides = sides_of(density.shape, summed)
    size = min(block_size, density.rank)

    def move(key, position, data, inverse_temperature=1.0):
        keys = random.split(key, 7)
        order = random.permutation(keys[0], density.rank)
        weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
        group = group_of(density, sides, position, data, weights, order[:size], order[size:])
        table = table_of(group)
        chances = log_chances(table, size)
        chosen = random.categorical(keys[1], chances)
        k = order[chosen]

        own = Own(density, sides, data, k, group, chosen)
        known = data.candidates if candidates is None else candidates
        mixture = own.mixture(keys[2], num_patterns, known)
        old = group.vectors[chosen], own.density_of(position)
        new = own.propose(keys[3], mixture)
        changed = own.table_with(*new)
        log_ratio = jnp.sum(logsumexp(changed, axis=0) - logsumexp(table, axis=0))

        # The old and the new one beside each other: what they share is compiled once.
        def over(vector, chance):
            return own.log_prior(vector, chance) - own.log_proposal(mixture, vector, chance)

        both = [jnp.stack(pair) for pair in zip(new, old, strict=True)]
        of_new, of_old = jax.vmap(over)(*both)
        log_ratio += of_new - of_old
        log_ratio += log_chances(changed, size)[chosen] - chances[chosen]

        accept, probability = accepted(keys[4], log_ratio)
        vector, table = (jnp.where(accept, a, b) for a, b in ((new[0], old[0]), (changed, table)))
        position = position | {sides.kept: position[sides.kept].at[k].set(pack_last_axis(vector))}
        position = settle(keys[5:], density, sides, position, data, order[:size], table)
        return position, probability

    return move
