"""Draw every layer of a deep OrMachine once, from the data upwards."""

from __future__ import annotations

from jax import random

from bmfjax.kernels import ormachine
from bmfjax.kernels.deep_layers import DeepDensity, layer, renamed
from bmfjax.kernels.packed_lines import PackedData


def sweep(
    key, density: DeepDensity, position, data: PackedData, inverse_temperature, update, above=1.0
):
    """One sweep over all layers.

    Parameters
    ----------
    key : jax.Array
    density : DeepDensity
    position : dict
    data : PackedData
    inverse_temperature : float
        Power of the likelihood of the data.
    update : LineUpdate
    above : float
        Power of what each layer above the first says of the usage below it. Only at 1 is the joint
        density that of the model; below, it helps to start (`bmfjax.kernels.deep_starts`).

    Returns
    -------
    position : dict
    counts : tuple of ErrorCounts
        Of each layer at the new position: a layer's data are drawn before it.
    errors : tuple of () int32
    """
    position, counts, errors = dict(position), (), ()
    top = len(density.ranks)
    for number in range(1, top + 1):
        one = layer(number, density, position, data)
        if number < top:
            odds = above * one.data.usage_log_odds
            one = one._replace(data=one.data._replace(usage_log_odds=odds))
        power = inverse_temperature if number == 1 else above
        key_layer = random.fold_in(key, number)
        drawn, of_layer, wrong = ormachine.sweep(key_layer, *one, power, update)
        position |= renamed(density, number, drawn)
        counts, errors = (*counts, of_layer), (*errors, wrong)
    return position, counts, errors
