r"""Sampling of nonnegative factorisations that reaches more than one of the solutions.

The posterior of Schmidt, Winther, Hansen (2009), "Bayesian non-negative matrix factorization":
:math:`D = Y X^\top + E` with normal noise and exponential priors on the entries of Y (`usage`) and
X (`basis`). Their sampler draws one entry, or one column, after another
(`bmfjax.kernels.truncated_gibbs`). Where the noise is small it hardly moves: other solutions of the
same fit are a change of basis away. Two things are added here, both of which leave the posterior
invariant.

* Moves: changes of basis (`bmfjax.kernels.basis_change`) and of whole lines
  (`bmfjax.kernels.regression_moves`), after every sweep. They travel through connected sets of
  solutions.
* Walls: replicas of the chain in which entries may be negative, at a price
  :math:`\kappa` times their prior rate that falls from one replica to the next
  (`bmfjax.kernels.soft_wall`), and exchange their states. Solutions that are isolated, because a
  path from one to the other leaves the nonnegative matrices, are joined where walls are soft; as
  the likelihood is the same in all replicas, how many these must be depends on the number of
  entries that are near zero, which grows with rows and columns, and not on the noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.basis_change import change_basis
from bmfjax.kernels.regression_moves import move_lines
from bmfjax.kernels.relaxed import RelaxedDensity, draw_factor_rate, draw_precision
from bmfjax.kernels.soft_wall import HARD, draw_two_sided
from bmfjax.kernels.truncated_gibbs import (
    TruncatedGibbsState,
    sweep_info,
    truncated_gibbs,
    update_factor,
)

MOVES = ("basis", "lines")


def nonnegative_gibbs(density: RelaxedDensity, initial, moves: Sequence[str] = MOVES) -> Algorithm:
    """Sweeps over the columns, and the moves after each.

    Parameters
    ----------
    density : RelaxedDensity
        With exponential priors on [0, inf).
    initial : callable
        ``initial(key, data) -> position``, a random start.
    moves : sequence of {"basis", "lines"}

    Returns
    -------
    Algorithm

    Raises
    ------
    InputError
        For other priors, or an unknown move.
    """
    check_exponential(density)
    moves = checked_moves(moves)
    plain = truncated_gibbs(density, initial)

    @jax.default_matmul_precision("highest")
    def step(key, state, data, inverse_temperature=1.0):
        key_sweep, key_moves = random.split(key)
        state, info = plain.step(key_sweep, state, data, inverse_temperature)
        if not moves:
            return state, info
        weight = inverse_temperature * density.noise_precision(state.position)
        position = move(key_moves, density, state.position, data, weight, moves)
        info = sweep_info(density, position, data, inverse_temperature)
        return TruncatedGibbsState(position), info

    return Algorithm(plain.init, step, plain.observe)


def move(key, density: RelaxedDensity, position, data, weight, moves, wall=None) -> dict:
    """The chosen moves, one after another; the posterior at this hardness stays invariant.

    Parameters
    ----------
    key : jax.Array
    density : RelaxedDensity
    position : dict
    data : MatrixData or SparseMatrixData
    weight : () float
        Noise precision times inverse temperature.
    moves : sequence of str
        "lines" for a nonnegative position alone.
    wall : () float, optional
        Hardness of the walls; None: the position is nonnegative.

    Returns
    -------
    dict
    """
    keys = random.split(key, 3)
    position = dict(position)
    rates = factor_rates(density, position)
    if "basis" in moves:
        pair = position["usage"], position["basis"]
        pair = change_basis(keys[0], *pair, rates["usage"], rates["basis"], wall)
        position["usage"], position["basis"] = pair
    if "lines" in moves:
        for factor, other, k in (("usage", "basis", keys[1]), ("basis", "usage", keys[2])):
            position[factor] = move_lines(
                k, factor, position[factor], position[other], data, rates[factor], weight
            )
    return position


def soft_gibbs(density: RelaxedDensity, initial, moves: Sequence[str] = MOVES) -> Algorithm:
    """The same with walls of hardness `HARD` times the inverse temperature.

    The likelihood is never tempered. Lines are not moved: their density has kinks inside.

    Parameters
    ----------
    density, initial, moves
        As for `nonnegative_gibbs`.

    Returns
    -------
    Algorithm
        Its info is of the position as if the walls were hard.
    """
    plain = truncated_gibbs(density, initial)
    basis_alone = tuple(m for m in moves if m == "basis")

    @jax.default_matmul_precision("highest")
    def step(key, state, data, inverse_temperature=1.0):
        wall = HARD * inverse_temperature
        keys = random.split(key, 5)
        position, weight = dict(state.position), density.noise_precision(state.position)
        rates = factor_rates(density, position)
        for factor, other, k in (("usage", "basis", keys[0]), ("basis", "usage", keys[1])):
            position[factor] = update_factor(
                k, factor, position[factor], position[other], data, getattr(density, factor),
                weight, draw=_behind_walls(k, rates[factor], wall),
            )  # fmt: skip
        if density.precision is None:
            position["precision"] = draw_precision(density, keys[2], position, data)
        if density.rate_gamma is not None:
            beyond = {n: _cost(position[n], wall) for n in ("usage", "basis")}
            position["rate"] = draw_factor_rate(density, keys[3], position | beyond)
        position = move(keys[4], density, position, data, weight, basis_alone, wall)
        return TruncatedGibbsState(position), sweep_info(density, position, data)

    return Algorithm(plain.init, step, plain.observe)


def _behind_walls(key, rates, wall):
    """The draw of one column's entries, for `update_factor`."""

    def draw(k, old, linear, precision, rate):
        return draw_two_sided(random.fold_in(key, k), linear, precision, rates[k], wall)

    return draw


def _cost(x, wall):
    """What an entry costs in units of its rate: minus its log density over the rate."""
    return jnp.where(x >= 0, x, -wall * x)


def factor_rates(density: RelaxedDensity, position) -> dict:
    """Rates of the exponential priors of both factor matrices, (rank,) each."""
    rank = position["usage"].shape[1]
    return {
        n: position["rate"]
        if getattr(density, n).learned_rate
        else jnp.full((rank,), getattr(density, n).quadratic[0], position[n].dtype)
        for n in ("usage", "basis")
    }


def checked_moves(moves) -> tuple[str, ...]:
    """Moves as a tuple, a single one named by itself; `InputError` for others."""
    found = (moves,) if isinstance(moves, str) else moves
    try:
        found = tuple(found)
        good = set(found) <= set(MOVES)
    except TypeError:  # no sequence, or one of lists
        good = False
    if not good:
        raise InputError(f"moves is {moves!r}; give a sequence of any of {', '.join(MOVES)}")
    return found


def check_exponential(density: RelaxedDensity) -> None:
    """Refuse priors other than exponential ones on [0, inf)."""
    for name in ("usage", "basis"):
        prior = getattr(density, name)
        good = prior.quadratic is not None and prior.quadratic[1] == 0
        if prior.low != 0.0 or prior.high != float("inf") or not good:
            raise InputError(
                f"the prior of {name} is not exponential on [0, inf); the moves and walls of a "
                "nonnegative factorisation are for those"
            )
