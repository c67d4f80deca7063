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
column are weighed at once and one is drawn; column follows column, and the bits of
the usage are drawn at the end from their conditional. Exchanging rows and columns sums the basis
out.

What it leaves invariant
    The posterior, at any inverse temperature: Gibbs steps on the posterior without the bits that
    are summed out, which are then drawn given the rest (van Dyk and Park 2008, "Partially collapsed
    Gibbs samplers", JASA 103). Bits that the data fix stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.data.checks import whole
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import MAX_JOINT
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.line_states import (
    draw_patterns,
    draw_states,
    lines_of,
    log_prior_of_states,
    log_weights,
    odds_of_kept,
    odds_of_lines,
    packed_bits,
    patterns_of,
    sides_of,
    without_covered,
)
from bmfjax.kernels.boolean.words import unpack_last_axis

#: Weights of states that a move computes: it visits as many lines as this allows.
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
        move of `bmfjax.kernels.boolean.gibbs.ormachine`. It is always accepted.

    Raises
    ------
    InputError
        For another size or side.

    Examples
    --------
    >>> import jax
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean.density import draw_prior
    >>> from bmfjax.kernels.boolean.words import packed_data
    >>> data = packed_data(BinaryMatrix(np.kron(np.eye(2), np.ones((9, 5)))))
    >>> density = BooleanDensity((18, 10), rank=2)
    >>> position = draw_prior(random.key(0), density, data)
    >>> position, acceptance = jax.jit(collapsed(density))(random.key(1), position, data)
    >>> position["basis"].shape, float(acceptance)
    ((2, 1), 1.0)
    """
    whole("block_size", block_size, 1, MAX_JOINT)
    sides = sides_of(density.shape, summed)
    summed, kept, long, short = sides
    size = min(block_size, density.rank)
    visits = int(np.clip(WORK // (long * 2**size), 1, short))

    def move(key, position, data, inverse_temperature=1.0):
        keys = random.split(key, 4)
        order = random.permutation(keys[0], density.rank)
        group, rest = order[:size], order[size:]
        weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
        bits = unpack_last_axis(position[kept], short)
        # Given the other factors every line is of its own kind: none are merged.
        lines = lines_of(data._replace(distinct_rows=None, distinct_columns=None), sides)
        lines = without_covered(lines, bits[rest], position[summed][rest])
        prior = log_prior_of_states(odds_of_lines(density, sides, position, data, lines)[group])
        log_patterns = log_prior_of_states(odds_of_kept(density, sides, position, data)[group])
        patterns = patterns_of(bits[group])
        log_states = log_weights(prior, lines, weights, patterns, density.flip_rate.num_rates)
        chosen = random.permutation(keys[1], short)[:visits]
        log_states, patterns = draw_patterns(
            keys[2], log_states, lines, weights, patterns, log_patterns, chosen
        )
        new = dict(position)
        drawn = draw_states(keys[3], log_states, lines.place)
        new[summed] = position[summed].at[group].set(packed_bits(drawn, size))
        new[kept] = position[kept].at[group].set(packed_bits(patterns, size))
        return new, jnp.ones((), log_states.dtype)

    return move
