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
column are weighed by one matrix product and one is drawn; column follows column, and the bits of
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

from bmfjax.data.errors import InputError
from bmfjax.kernels import flip_rates
from bmfjax.kernels.bit_blocks import MAX_JOINT
from bmfjax.kernels.boolean_density import BooleanDensity, log_odds
from bmfjax.kernels.line_states import (
    LineGains,
    draw_patterns,
    draw_states,
    log_prior_of_states,
    log_weights,
    packed_bits,
    patterns_of,
    sides_of,
)
from bmfjax.kernels.packed_lines import unpack_last_axis

#: Multiplications of a move: so many lines are visited in each that it keeps to about this.
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
        move of `bmfjax.kernels.ormachine.ormachine`. It is always accepted.

    Raises
    ------
    InputError
        For another size or side.

    Examples
    --------
    >>> import jax
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean_density import draw_prior
    >>> from bmfjax.kernels.packed_lines import packed_data
    >>> data = packed_data(BinaryMatrix(np.kron(np.eye(2), np.ones((9, 5)))))
    >>> density = BooleanDensity((18, 10), rank=2)
    >>> position = draw_prior(random.key(0), density, data)
    >>> position, acceptance = jax.jit(collapsed(density))(random.key(1), position, data)
    >>> position["basis"].shape, float(acceptance)
    ((2, 1), 1.0)
    """
    if not 1 <= block_size <= MAX_JOINT:
        raise InputError(f"block_size is {block_size}; give a number from 1 to {MAX_JOINT}")
    sides = sides_of(density.shape, summed)
    summed, kept, long, short = sides
    size = min(block_size, density.rank)
    visits = int(np.clip(WORK // (long * 4**size), 1, short))

    def move(key, position, data, inverse_temperature=1.0):
        keys = random.split(key, 4)
        lines = data.by_column if summed == "usage" else data.by_row
        odds = {
            site: jnp.broadcast_to(log_odds(site, density, position, data), (density.rank, length))
            for site, length in sides.of_both
        }
        order = random.permutation(keys[0], density.rank)
        group, rest = order[:size], order[size:]
        bits = unpack_last_axis(position[kept], short)
        weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
        gains = LineGains(lines, long, weights, bits[rest], position[summed][rest])
        patterns = patterns_of(bits[group])

        log_states = log_prior_of_states(odds[summed][group])
        log_states = log_weights(log_states, gains, patterns, size)
        chosen = random.permutation(keys[1], short)[:visits]
        log_patterns = log_prior_of_states(odds[kept][group])
        log_states, patterns = draw_patterns(
            keys[2], log_states, gains, patterns, log_patterns, chosen
        )
        new = dict(position)
        drawn = draw_states(keys[3], log_states)
        new[summed] = position[summed].at[group].set(packed_bits(drawn, size))
        new[kept] = position[kept].at[group].set(packed_bits(patterns, size))
        return new, jnp.ones((), log_states.dtype)

    return move
