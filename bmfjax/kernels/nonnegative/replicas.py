"""Tempering of the nonnegativity constraint: replicas with softer constraints exchange states.

It is a parallel tempering (`bmfjax.kernels.tempering`) whose temperatures soften the constraint and
not the likelihood. The option that sets it is called `walls`: the hardness of the walls at zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax import random

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.nonnegative.gibbs import (
    MOVES,
    check_exponential,
    checked_moves,
    factor_rates,
    move,
    soft_constraint_gibbs,
)
from bmfjax.kernels.nonnegative.soft_constraint import HARD, violation
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.density import RelaxedDensity
from bmfjax.kernels.relaxed.gibbs import TruncatedGibbsState, sweep_info
from bmfjax.kernels.tempering import parallel_tempering
from bmfjax.specs.samplers import checked_walls


def behind_walls(
    density: RelaxedDensity, initial, walls: Sequence[float], moves: Sequence[str] = MOVES
) -> Algorithm:
    r"""Build a nonnegative chain with replicas behind soft walls.

    The replicas have the densities

    .. math:: p(D \mid Y, X)\,\prod \lambda e^{-\lambda c_\kappa(x)}, \qquad
              c_\kappa(x) = x \text{ for } x \ge 0,\ \kappa |x| \text{ below},

    for :math:`\kappa` infinite and as `walls` says. Neighbours i, j exchange their states with
    probability :math:`\min\{1, \exp[(\kappa_i - \kappa_j)(E_i - E_j)]\}`, E the sum of
    :math:`\lambda |x|` over negative entries: those of an infinite wall only with a state that
    has none.

    What it leaves invariant
        The product of these densities, hence the posterior at the first replica, of which the
        draws are.

    Parameters
    ----------
    density : RelaxedDensity
        With exponential priors on [0, inf).
    initial : callable
        ``initial(key, data) -> position``, a random start.
    walls : sequence of float
        Hardness of the soft walls, falling; see `wall_ladder`.
    moves : sequence of {"basis", "lines"}
        Moves of the first replica; the others change their basis where it does.

    Returns
    -------
    Algorithm
        State and observations as of `parallel_tempering`, `replica` included.

    Raises
    ------
    InputError
        For other priors, unknown moves, or walls that do not fall.

    References
    ----------
    Geyer (1991) for the exchange; see `parallel_tempering`.
    """
    check_exponential(density)
    moves = checked_moves(moves)
    ladder = (1.0, *(float(w) / HARD for w in checked_walls("walls", walls)))

    def energy(state, data):
        return -HARD * violation(state.position, factor_rates(density, state.position))

    inner = parallel_tempering(
        soft_constraint_gibbs(density, initial, moves), energy, ladder,
        describe=lambda info, s, data, b: sweep_info(density, s.position, data),
    )  # fmt: skip

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        key_step, key_lines = random.split(key)
        state, info = inner.step(key_step, state, data)
        if "lines" not in moves:
            return state, info
        position = jax.tree.map(lambda leaf: leaf[0], state.inner.position)
        weight = density.noise_precision(position)
        position = move(key_lines, density, position, data, weight, ("lines",))
        moved = {n: state.inner.position[n].at[0].set(position[n]) for n in position}
        state = state._replace(inner=TruncatedGibbsState(moved))
        return state, info._replace(inner=sweep_info(density, position, data))

    return Algorithm(inner.init, step, inner.observe)


def wall_ladder(hardest: float, softest: float, number: int) -> tuple[float, ...]:
    """Return the hardness of soft walls in equal ratios.

    In units of the priors' rates: a wall of hardness 1 makes a Laplace prior, whose sign means
    nothing, and is the softest of use. The hardest should let the first replica exchange states: of
    the order of one over the standard deviation of an entry that is near zero, times the rate.
    There are enough of them where `swap_rates` of a run are above a tenth or so, and `round_trips`
    many; what is asked for grows with how many entries are near zero.

    The softest need not be soft: the ladder can end where chains pass between solutions, which of a
    matrix of 500 x 50 and rank 3 is at about 100. Replicas are needed close to each other there,
    and may be far apart where walls are hard.

    Parameters
    ----------
    hardest, softest : float
    number : int

    Returns
    -------
    tuple of float

    Raises
    ------
    InputError
        For numbers out of range.

    Examples
    --------
    >>> [round(w, 2) for w in wall_ladder(100.0, 1.0, 3)]
    [100.0, 10.0, 1.0]
    """
    whole("number", number)
    if not 0 < softest <= hardest < 1e12:
        raise InputError(
            f"walls from {hardest} to {softest}; give positive numbers below 1e12, the first the "
            "larger"
        )
    return tuple(float(w) for w in np.geomspace(hardest, softest, number))
