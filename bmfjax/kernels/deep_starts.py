r"""Starts of a deep OrMachine: a draw from the prior, or greedily layer by layer."""

from __future__ import annotations

from collections.abc import Callable

from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels import boolean_density, ormachine
from bmfjax.kernels.bit_updates import LineUpdate, metropolis
from bmfjax.kernels.boolean_density import BitPrior
from bmfjax.kernels.deep_layers import DeepDensity, Layer, layer, renamed
from bmfjax.kernels.deep_sweep import sweep
from bmfjax.kernels.packed_lines import PackedData


def draw_prior(key, density: DeepDensity, data: PackedData) -> dict:
    """A position from the prior, from the top downwards; learned flip rates start at 0.2."""
    position = {}
    for number in reversed(range(1, len(density.ranks) + 1)):
        one = layer(number, density, position, data)
        drawn = boolean_density.draw_prior(random.fold_in(key, number), one.density, one.data)
        position |= renamed(density, number, drawn)
    return position


def greedy_start(
    density: DeepDensity,
    num_sweeps: int,
    *,
    num_joining: int = 0,
    lowest: float = 0.05,
    update: LineUpdate = metropolis,
) -> Callable:
    r"""Start layer by layer, then let the layers come together.

    First factorise the data, then their usage, then the usage of that. Every layer is annealed
    alone, sweep t at the inverse temperature :math:`\beta_t =` ``lowest ** (1 - t / num_sweeps)``,
    without the layers above: its usage has learned densities, or in the top layer the prior that
    it has. What the data leave open the first layer has then settled by chance, and the others
    have taken for structure. So join them slowly: `num_joining` sweeps of all layers, the data at
    full power and all that the layers above say raised to :math:`\beta_t`, from `lowest` to one.

    Parameters
    ----------
    density : DeepDensity
    num_sweeps : int
        Of each layer alone, at least 1.
    num_joining : int
        Of all layers.
    lowest : float
        First power of either schedule, above 0 and at most 1.
    update : LineUpdate

    Returns
    -------
    callable
        ``initial(key, data) -> position`` for `bmfjax.kernels.deep_ormachine`.

    Raises
    ------
    InputError
        For numbers out of range.

    Examples
    --------
    >>> import jax
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.deep_layers import deep_data
    >>> data = deep_data(BinaryMatrix([[1, 1, 0], [0, 0, 1]] * 4))
    >>> density = DeepDensity((8, 3), (2, 1))
    >>> position = jax.jit(greedy_start(density, 30))(random.key(0), data)
    >>> position["usage_1"].shape, position["basis_2"].shape
    ((2, 1), (1, 1))
    """
    if num_sweeps < 1 or num_joining < 0 or not 0 < lowest <= 1:
        raise InputError(
            f"num_sweeps is {num_sweeps}, num_joining {num_joining} and lowest {lowest}; give at "
            "least one sweep, none or some to join the layers, and a power above 0 and at most 1"
        )
    top = len(density.ranks)

    def initial(key, data):
        position = draw_prior(key, density, data)
        for number in range(1, top + 1):
            one = layer(number, density, position, data)
            if number < top:
                given = one.data._replace(usage_log_odds=None)
                alone = one.density._replace(usage=BitPrior())
                one = Layer(alone, one.position, given)
            key_layer = random.fold_in(key, top + number)
            drawn = _anneal(key_layer, one, num_sweeps, lowest, update)
            position |= renamed(density, number, drawn)
        if num_joining == 0 or top == 1:
            return position

        def join(t, position):
            above = lowest ** (1.0 - t / num_joining)
            key_sweep = random.fold_in(random.fold_in(key, 0), t)
            return sweep(key_sweep, density, position, data, 1.0, update, above)[0]

        return lax.fori_loop(0, num_joining, join, position)

    return initial


def _anneal(key, one: Layer, num_sweeps, lowest, update):
    """The position of a layer after sweeps from hot to cold."""
    start = boolean_density.draw_prior(random.fold_in(key, num_sweeps), one.density, one.data)

    def body(t, position):
        power = lowest ** (1.0 - t / num_sweeps)
        return ormachine.sweep(
            random.fold_in(key, t), one.density, position, one.data, power, update
        )[0]

    return lax.fori_loop(0, num_sweeps, body, start)
