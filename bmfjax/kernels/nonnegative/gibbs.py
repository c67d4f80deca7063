r"""Sampling of nonnegative factorisations that reaches more than one of the solutions.

The posterior of Schmidt, Winther, Hansen (2009), "Bayesian non-negative matrix factorization":
:math:`D = Y X^\top + E` with normal noise and exponential priors on the entries of Y (`usage`) and
X (`basis`). Their sampler draws one entry, or one column, after another
(`bmfjax.kernels.truncated_gibbs`). Where the noise is small it hardly moves: other solutions of the
same fit are a change of basis away. Two things are added here, both of which leave the posterior
invariant.

* Moves: changes of basis (`bmfjax.kernels.nonnegative.basis_change`) and of whole lines
  (`bmfjax.kernels.nonnegative.line_moves`), after every sweep. They travel through connected sets
  of solutions.
* Tempering of the constraint (`bmfjax.kernels.nonnegative.replicas`): in replicas of the chain
  entries may be negative, at a price of :math:`\kappa` times their prior rate that falls from one
  replica to the next (`bmfjax.kernels.nonnegative.soft_constraint`). The replicas exchange their
  states. Solutions that are isolated, because a path from one to the other leaves the nonnegative
  matrices, are joined where the constraint is soft. The likelihood is the same in all replicas: how
  many these must be depends on the number of entries near zero, which grows with rows and columns,
  and not on the noise.

Known columns of the basis (`RelaxedDensity.anchored`) stay in all of these: no entry of them is
drawn, and of the changes of basis there are those that do not change them. What is left invariant
is then the posterior given these columns.

On a mesh the devices share sweeps and the moves of lines; changes of basis, which look at all of
both matrices, every device makes alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.nonnegative.basis_change import change_basis
from bmfjax.kernels.nonnegative.line_moves import move_lines
from bmfjax.kernels.nonnegative.soft_constraint import HARD, draw_two_sided
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.data import FACTORS, OTHER
from bmfjax.kernels.relaxed.density import RelaxedDensity, draw_factor_rate, draw_precision
from bmfjax.kernels.relaxed.gibbs import (
    TruncatedGibbsState,
    sweep_info,
    truncated_gibbs,
    update_factor,
)
from bmfjax.kernels.relaxed.scales import has_scales, move_scales

MOVES = ("basis", "lines")


def nonnegative_gibbs(density: RelaxedDensity, initial, moves: Sequence[str] = MOVES) -> Algorithm:
    """Build the sampler: sweeps over the columns, and the moves after each.

    The priors are exponential on [0, inf); ``initial(key, data) -> position`` is a random start.
    """
    check_exponential(density)
    moves = checked_moves(moves)
    plain = truncated_gibbs(density, initial)

    @full_precision
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


def move(key, density: RelaxedDensity, position, data, weight, moves, hardness=None) -> dict:
    """Make the chosen moves in turn; the posterior at this hardness stays invariant.

    `weight` is the noise precision times the inverse temperature. Without a `hardness` the position
    is nonnegative, which "lines" needs.
    """
    keys = random.split(key, 3)
    position = dict(position)
    rates = factor_rates(density, position)
    if "basis" in moves:
        pair = position["usage"], position["basis"]
        pair = change_basis(
            keys[0], *pair, rates["usage"], rates["basis"], hardness, density.anchored
        )
        position["usage"], position["basis"] = pair
    if "lines" in moves:
        for factor, k in zip(FACTORS, keys[1:], strict=True):
            position[factor] = move_lines(
                k, factor, position[factor], position[OTHER[factor]], data, rates[factor], weight,
                density.first_free(factor),
            )  # fmt: skip
    return position


def soft_constraint_gibbs(density: RelaxedDensity, initial, moves: Sequence[str]) -> Algorithm:
    """Build the same for a constraint of hardness `HARD` times the inverse temperature.

    The likelihood is never tempered. Lines are not moved: their density has kinks inside. The info
    is that of the position as if the constraint were hard.
    """
    plain = truncated_gibbs(density, initial)
    basis_alone = tuple(m for m in moves if m == "basis")

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        hardness = HARD * inverse_temperature
        keys = random.split(key, 5)
        position, weight = dict(state.position), density.noise_precision(state.position)
        rates = factor_rates(density, position)
        for factor, k in zip(FACTORS, keys[:2], strict=True):
            position[factor] = update_factor(
                k, factor, position[factor], position[OTHER[factor]], data,
                getattr(density, factor), weight,
                draw=_column_draw(k, rates[factor], hardness, len(position[factor]), data.along),
                first=density.first_free(factor),
            )  # fmt: skip
        if density.precision is None:
            position["precision"] = draw_precision(density, keys[2], position, data)
        if density.rate_gamma is not None:
            costs = {n: _cost(position[n], hardness) for n in FACTORS}
            position["rate"] = draw_factor_rate(density, keys[3], position | costs)
            if has_scales(density, data):
                position = move_scales(random.fold_in(keys[3], 1), density, position, data)
        position = move(keys[4], density, position, data, weight, basis_alone, hardness)
        return TruncatedGibbsState(position), sweep_info(density, position, data)

    return Algorithm(plain.init, step, plain.observe)


def _column_draw(key, rates, hardness, size, along):
    """Return ``draw`` of `update_factor` under the soft constraint."""

    def draw(k, old, linear, precision, rate):
        key_column = random.fold_in(key, k)
        return draw_two_sided(key_column, linear, precision, rates[k], hardness, size, along)

    return draw


def _cost(x, hardness):
    """Return minus the log density of entries in units of their rates."""
    return jnp.where(x >= 0, x, -hardness * x)


def factor_rates(density: RelaxedDensity, position) -> dict:
    """Return the rates of the exponential priors of both factor matrices, (rank,) each."""
    rank = position["usage"].shape[1]
    return {
        n: position["rate"]
        if getattr(density, n).learned_rate
        else jnp.full((rank,), getattr(density, n).quadratic[0], position[n].dtype)
        for n in FACTORS
    }


def checked_moves(moves) -> tuple[str, ...]:
    """Return moves, or a single one named by itself, as a tuple; refuse others."""
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
    for name in FACTORS:
        prior = getattr(density, name)
        good = prior.quadratic is not None and prior.quadratic[1] == 0
        if prior.low != 0.0 or prior.high != float("inf") or not good:
            raise InputError(
                f"the prior of {name} is not exponential on [0, inf); the moves and walls of a "
                "nonnegative factorisation are for those"
            )
