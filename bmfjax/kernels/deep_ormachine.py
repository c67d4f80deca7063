r"""The deep OrMachine: layers of Boolean factorisations, sampled together.

A step sweeps the layers from the data upwards. Each is an ordinary sweep of the OrMachine
(`bmfjax.kernels.ormachine.sweep`), whose data are the usage of the layer below and whose usage has
the prior that the layer above gives (`bmfjax.kernels.deep_layers`): the bits of a middle layer so
hear from both sides.

What it leaves invariant
    The joint posterior of all layers, at any inverse temperature. It tempers the likelihood of the
    data, :math:`p(x \mid c^{(1)}, f^{(1)})`; the layers above are the prior of the first usage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.data.errors import InputError
from bmfjax.kernels import boolean_density, flip_rates, ormachine
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.bit_updates import LineUpdate, metropolis
from bmfjax.kernels.deep_layers import DeepDensity, Layer, covered, layer, layer_ranks
from bmfjax.kernels.deep_starts import draw_prior
from bmfjax.kernels.deep_sweep import sweep
from bmfjax.kernels.flip_rates import ErrorCounts
from bmfjax.kernels.ormachine import error_counts
from bmfjax.kernels.packed_lines import PackedData, unpack_last_axis


class DeepOrMachineState(NamedTuple):
    """`position`: for layer l `usage_l` (rank, words of the rows) and `basis_l` (rank, words of
    the columns or of the factors below) uint32, `flip_rate_l` () or (2,) and `basis_density_l`
    (rank,) where learned; and `usage_density` (rank,) of the top layer, where learned.
    """

    position: dict


class DeepOrMachineInfo(NamedTuple):
    """Statistics of one sweep.

    Attributes
    ----------
    log_joint, log_likelihood : () float
        At the draw; the likelihood is that of the data, untempered.
    errors : tuple of () int32
        Entries of each layer's data that differ from its product; of the first, observed ones.
    """

    log_joint: jax.Array
    log_likelihood: jax.Array
    errors: tuple[jax.Array, ...]


def deep_ormachine(
    density: DeepDensity,
    *,
    update: LineUpdate = metropolis,
    initial: Callable | None = None,
) -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    density : DeepDensity
    update : LineUpdate
        How bits are drawn: `bmfjax.kernels.bit_updates.metropolis` (as published), `gibbs`, or
        `bmfjax.kernels.bit_blocks.joint`.
    initial : callable, optional
        ``initial(key, data) -> position``, such as
        `bmfjax.kernels.deep_starts.greedy_start`; default a draw from the prior.

    Returns
    -------
    Algorithm
        For data that `bmfjax.kernels.deep_layers.deep_data` makes. Of the statistics it observes,
        `errors` and `dispersion` are those of the data, `errors_2`, `dispersion_2` and so on those
        of the layers above.

    Raises
    ------
    InputError
        For ranks below 1 or none at all.

    Warns
    -----
    UserWarning
        If a layer has more factors than the one below.

    Examples
    --------
    >>> from jax import random
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.deep_layers import deep_data
    >>> data = deep_data(BinaryMatrix([[1, 1, 0], [1, 1, 0], [0, 0, 1]] * 5))
    >>> density = DeepDensity((15, 3), (2, 1))
    >>> algorithm = deep_ormachine(density)
    >>> state, step = algorithm.init(random.key(0), None, data), jax.jit(algorithm.step)
    >>> for key in random.split(random.key(3), 40):
    ...     state, info = step(key, state, data)
    >>> sorted(state.position)[-3:], int(info.errors[0])
    (['usage_1', 'usage_2', 'usage_density'], 0)
    """
    density = density._replace(ranks=layer_ranks(density.ranks))
    initial = initial or (lambda key, data: draw_prior(key, density, data))

    def init(key, position, data):
        start = initial(key, data) if position is None else position
        return DeepOrMachineState({n: jnp.asarray(v) for n, v in start.items()})

    def step(key, state, data, inverse_temperature=1.0):
        position, counts, errors = sweep(
            key, density, state.position, data, inverse_temperature, update
        )
        likelihood = flip_rates.log_likelihood(position["flip_rate_1"], counts[0])
        joint = _log_joint(density, position, data, counts)
        return DeepOrMachineState(position), DeepOrMachineInfo(joint, likelihood, errors)

    def observe(state, info):
        named = {"log_joint": info.log_joint}
        for number, errors in enumerate(info.errors, 1):
            suffix = "" if number == 1 else f"_{number}"
            rate = state.position[f"flip_rate_{number}"]
            named |= {f"errors{suffix}": errors, f"dispersion{suffix}": flip_rates.dispersion(rate)}
        return dict(state.position) | named

    return Algorithm(init, step, observe)


def log_likelihood(density: DeepDensity) -> Callable:
    """The untempered log likelihood of the data, as `bmfjax.infer.tempering` takes it.

    Parameters
    ----------
    density : DeepDensity

    Returns
    -------
    callable
        ``log_likelihood(state, data)``, () float, of a `DeepOrMachineState`.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.deep_layers import deep_data
    >>> data, word = deep_data(BinaryMatrix([[1, 1], [0, None]])), jnp.array([[0b11]], jnp.uint32)
    >>> one = jnp.array([[0b1]], jnp.uint32)
    >>> state = DeepOrMachineState({
    ...     "usage_1": word, "basis_1": word, "flip_rate_1": jnp.float32(0.25),
    ...     "usage_2": word, "basis_2": one, "flip_rate_2": jnp.float32(0.1),
    ... })
    >>> float(jnp.exp(log_likelihood(DeepDensity((2, 2), (1, 1)))(state, data)))  # 0.75^2 0.25
    0.140625...
    """

    def of_state(state: DeepOrMachineState, data: PackedData) -> jax.Array:
        one = layer(1, density, state.position, data)
        return flip_rates.log_likelihood(state.position["flip_rate_1"], _errors(one))

    return of_state


def log_joint(density: DeepDensity, position: dict, data: PackedData) -> jax.Array:
    """Log density of all layers and the data: () float.

    From the position alone; a sweep reports the same from the counts that it makes anyway.

    Parameters
    ----------
    density : DeepDensity
    position : dict
    data : PackedData

    Returns
    -------
    () float

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.deep_layers import deep_data
    >>> from bmfjax.kernels.flip_rates import FlipRatePrior
    >>> from bmfjax.kernels.boolean_density import BitPrior
    >>> density = DeepDensity((1, 1), (1,), *[BitPrior(None, 0.5)] * 2, FlipRatePrior(value=0.25))
    >>> word, rate = jnp.array([[0b1]], jnp.uint32), jnp.float32(0.25)
    >>> position = {"usage_1": word, "basis_1": word, "flip_rate_1": rate}
    >>> float(jnp.exp(log_joint(density, position, deep_data(BinaryMatrix([[1]])))))  # 0.5^2 0.75
    0.1875
    """
    numbers = range(1, len(density.ranks) + 1)
    counts = [_errors(layer(number, density, position, data)) for number in numbers]
    return _log_joint(density, position, data, counts)


def _errors(one: Layer) -> ErrorCounts:
    """Wrong and right entries of a layer's data."""
    return error_counts(ormachine.product_coverage(*one), one.data, one.density.shape)[0]


def _log_joint(density, position, data, counts: Sequence[ErrorCounts]):
    total = jnp.zeros((), jnp.result_type(float))
    for number, of_layer in enumerate(counts, 1):
        one = layer(number, density, position, data)
        rate = one.position["flip_rate"]
        total += flip_rates.log_likelihood(rate, of_layer)
        total += flip_rates.log_prior(rate, one.density.flip_rate)
        total += boolean_density.log_prior_of("basis", *one)
    return total + boolean_density.log_prior_of("usage", *one)


def reconstruction(density: DeepDensity, position: dict) -> jax.Array:
    """The Boolean product of the first layer: (rows, columns) bool.

    Its mean over draws is the probability that an entry, missing ones too, is covered.

    Examples
    --------
    >>> words = jnp.array([[0b01], [0b10]], jnp.uint32)
    >>> reconstruction(DeepDensity((2, 2), (2,)), {"usage_1": words, "basis_1": words}).tolist()
    [[True, False], [False, True]]
    """
    columns = covered(position["usage_1"], position["basis_1"], density.shape[1])
    return unpack_last_axis(columns, density.shape[0]).T


def fed_forward(density: DeepDensity, position: dict, number: int) -> jax.Array:
    r"""The factors of a layer as they appear in the data: (columns, rank of the layer) bool.

    The Boolean product of the bases :math:`u^{(1)} u^{(2)} \cdots u^{(l)}`: what a row shows that
    uses one factor of layer l and in which no bit is flipped.

    Parameters
    ----------
    density : DeepDensity
    position : dict
    number : int
        The layer, from 1.

    Returns
    -------
    (columns, rank) bool

    Raises
    ------
    InputError
        If there is no such layer.

    Examples
    --------
    >>> words = [jnp.array(w, jnp.uint32)[:, None] for w in ([0b0011, 0b1100], [0b11])]
    >>> position = {"basis_1": words[0], "basis_2": words[1]}
    >>> fed_forward(DeepDensity((5, 4), (2, 1)), position, 2).tolist()
    [[True], [True], [True], [True]]
    """
    if not 1 <= number <= len(density.ranks):
        raise InputError(f"there is no layer {number}; the layers are 1 to {len(density.ranks)}")
    sizes = (density.shape[1], *density.ranks)
    words = position[f"basis_{number}"]
    for below in range(number - 1, 0, -1):
        # Factors of the layer in the place of columns: their bits on each factor below.
        factors = unpack_last_axis(words, sizes[below])
        words = jax.vmap(lambda used, basis: _join(used, basis), (0, None))(
            factors, position[f"basis_{below}"]
        )
    return unpack_last_axis(words, sizes[0]).T


def _join(used, words):
    """The union of the lines that are used: (words,) uint32."""
    chosen = jnp.where(used[:, None], words, jnp.uint32(0))
    return lax.reduce(chosen, jnp.uint32(0), lax.bitwise_or, (0,))
