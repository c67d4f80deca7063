r"""The layers of a deep OrMachine: what each is to the layer below and to the layer above.

With :math:`z^{(0)} = x`, layers :math:`l = 1, \ldots, L` and one more for the top,

.. math::

   c^{(l)}_{ij} = \bigvee_k z^{(l)}_{ik} u^{(l)}_{jk}, \qquad
   p(x, z, u, f) = p(z^{(L)}) \prod_{l=1}^{L}
       p\big(z^{(l-1)} \mid c^{(l)}, f^{(l)}\big)\, p(u^{(l)})\, p(f^{(l)}),

where :math:`z^{(l-1)}` is :math:`c^{(l)}` with each entry flipped at the rate of layer l (Rukat,
Holmes, Titsias, Yau 2017, and their slides, "Multi-layer OrMachine"). A layer is therefore an
OrMachine (`bmfjax.kernels.ormachine`) of its own: its data are the usage of the layer below, and
the prior log odds of its usage are what the layer above says of each bit,
:math:`\operatorname{logit}(1 - f_1)` where :math:`c^{(l+1)} = 1` and
:math:`\operatorname{logit} f_0` where it is 0. `layer` makes that view.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bmfjax.data.errors import InputError
from bmfjax.data.matrix import BinaryMatrix
from bmfjax.data.packed import WORD
from bmfjax.kernels.bit_updates import as_mask
from bmfjax.kernels.boolean_density import BitPrior, BooleanDensity
from bmfjax.kernels.flip_rates import FlipRatePrior, both_rates
from bmfjax.kernels.packed_lines import (
    PackedData,
    PackedLines,
    block_shape,
    count_bits,
    packed_data,
    unpack_last_axis,
)

#: Bits whose prior the layer above gives, one by one.
FROM_ABOVE = BitPrior(beta=None)


class DeepDensity(NamedTuple):
    """The joint density of OrMachines on top of each other.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the data.
    ranks : tuple of int
        Factors of each layer, from the data upwards; see `layer_ranks`.
    usage : BitPrior
        Of the top layer's usage; that of a lower layer is given by the layer above.
    basis : BitPrior, or a tuple of them
        One for every layer, or one each.
    flip_rate : FlipRatePrior, or a tuple of them
        Likewise.
    """

    shape: tuple[int, int]
    ranks: tuple[int, ...]
    usage: BitPrior = BitPrior()
    basis: BitPrior | tuple[BitPrior, ...] = BitPrior()
    flip_rate: FlipRatePrior | tuple[FlipRatePrior, ...] = FlipRatePrior()


class Layer(NamedTuple):
    """One layer as an OrMachine.

    Attributes
    ----------
    density : BooleanDensity
    position : dict
        By the names of `bmfjax.kernels.ormachine`.
    data : PackedData
        The usage of the layer below, and the prior log odds that the layer above gives.
    """

    density: BooleanDensity
    position: dict
    data: PackedData


def layer_ranks(ranks: Sequence[int]) -> tuple[int, ...]:
    """Check the number of factors of each layer.

    Parameters
    ----------
    ranks : sequence of int
        From the data upwards.

    Returns
    -------
    tuple of int

    Raises
    ------
    InputError
        If there is none, or one is not a whole number from 1.

    Warns
    -----
    UserWarning
        If a layer has more factors than the one below: it could repeat that layer's factors and
        so say nothing. Where factors are to stand for clusters of rows it may be meant.

    Examples
    --------
    >>> layer_ranks([10, 4, 2])
    (10, 4, 2)
    """
    try:
        ranks = tuple(operator.index(rank) for rank in ranks)
    except TypeError:
        raise InputError(
            f"ranks is {ranks!r}; give the number of factors of every layer, as whole numbers"
        ) from None
    if not ranks:
        raise InputError("ranks is empty; give the number of factors of every layer")
    for layer, rank in enumerate(ranks, 1):
        if rank < 1:
            raise InputError(f"layer {layer} has rank {rank}; give a number from 1")
    for layer in range(1, len(ranks)):
        below, rank = ranks[layer - 1 : layer + 1]
        if rank > below:
            warnings.warn(
                f"layer {layer + 1} has {rank} factors and the layer below only {below}, so that "
                "it can copy that layer instead of summarising it; give ranks that decrease from "
                "the data upwards, unless its factors are to stand for clusters of rows",
                UserWarning,
                stacklevel=2,
            )
    return ranks


def deep_data(matrix: BinaryMatrix, usage_log_odds=None, basis_log_odds=()) -> PackedData:
    """The data of a deep OrMachine.

    Parameters
    ----------
    matrix : BinaryMatrix
    usage_log_odds : (rows, rank) float array, optional
        Prior log odds of single bits of the top layer's usage; infinite where a bit is fixed.
    basis_log_odds : sequence of ((rank below or columns, rank) float array or None)
        The same of each layer's basis, from the data upwards.

    Returns
    -------
    PackedData
        `usage_log_odds` is that of the top layer, `basis_log_odds` a tuple.

    Examples
    --------
    >>> deep_data(BinaryMatrix([[1, 0, 1], [0, 1, None]])).basis_log_odds
    ()
    """
    data = packed_data(matrix, usage_log_odds)
    kind = jnp.result_type(float)
    given = (None if a is None else jnp.asarray(np.asarray(a).T, kind) for a in basis_log_odds)
    return data._replace(basis_log_odds=tuple(given))


def sites(density: DeepDensity, number: int) -> dict[str, str]:
    """Names in the position of a layer's sites, by their names in an OrMachine.

    Examples
    --------
    >>> sites(DeepDensity((5, 4), (3, 2)), 1)["usage"]
    'usage_1'
    """
    names = {n: f"{n}_{number}" for n in ("usage", "basis", "flip_rate", "basis_density")}
    if number == len(density.ranks):
        names["usage_density"] = "usage_density"
    return names


def renamed(density: DeepDensity, number: int, own: dict) -> dict:
    """The part of a position that belongs to a layer, from that of the layer alone."""
    names = sites(density, number)
    return {names[n]: value for n, value in own.items() if n in names}


def layer(number: int, density: DeepDensity, position: dict, data: PackedData) -> Layer:
    """One layer as an OrMachine, at the present state of the layers beside it.

    Parameters
    ----------
    number : int
        From 1, the layer next to the data.
    density : DeepDensity
    position : dict
        May lack the layers below, if there are any: the layer's data are None then.
    data : PackedData

    Returns
    -------
    Layer
    """
    top = len(density.ranks)
    rows = density.shape[0]
    below = (density.shape[1], *density.ranks)[number - 1]
    one = BooleanDensity(
        (rows, below),
        density.ranks[number - 1],
        density.usage if number == top else FROM_ABOVE,
        _of_layer(density.basis, BitPrior, number),
        _of_layer(density.flip_rate, FlipRatePrior, number),
    )
    names = sites(density, number)
    own = {n: position[name] for n, name in names.items() if name in position}
    odds = data.usage_log_odds if number == top else log_odds_from_above(number, density, position)
    given = data.basis_log_odds or ()
    basis_odds = given[number - 1] if number <= len(given) else None
    if number > 1:
        words = position.get(f"usage_{number - 1}")
        data = PackedData(None, None, None, None) if words is None else usage_as_data(words, rows)
    return Layer(one, own, data._replace(usage_log_odds=odds, basis_log_odds=basis_odds))


def _of_layer(option, kind, number):
    return option if isinstance(option, kind) else option[number - 1]


def usage_as_data(words: jax.Array, rows: int) -> PackedData:
    """The usage of a layer as the data of the next: complete, its factors the columns.

    Parameters
    ----------
    words : (rank, ceil(rows / 32)) uint32
    rows : int

    Returns
    -------
    PackedData

    Examples
    --------
    >>> data = usage_as_data(jnp.array([[0b101], [0b001]], jnp.uint32), 3)
    >>> data.by_row.ones.ravel().tolist(), float(data.num_ones)
    ([3, 0, 1], 3.0)
    """
    ones = jnp.sum(count_bits(words)).astype(jnp.result_type(float))
    zeros = words.shape[0] * rows - ones
    by_row = _in_blocks(pack_first_axis(unpack_last_axis(words, rows)))
    return PackedData(by_row, _in_blocks(words), ones, zeros)


def pack_first_axis(bits) -> jax.Array:
    """Words of bool bits along the first axis: (n, lines) to (lines, ceil(n / 32)) uint32."""
    size = bits.shape[0]

    def word(start):
        some = bits[start : start + WORD].astype(jnp.uint32)
        shifts = jnp.arange(len(some), dtype=jnp.uint32)[:, None]
        return jnp.sum(some << shifts, axis=0, dtype=jnp.uint32)

    return jnp.stack([word(start) for start in range(0, size, WORD)], axis=1)


def _in_blocks(words):
    lines, length = words.shape
    blocks, size = block_shape(lines, length)
    padded = jnp.pad(words, ((0, blocks * size - lines), (0, 0)))
    return PackedLines(padded.reshape(blocks, size, length), None)


def log_odds_from_above(number: int, density: DeepDensity, position: dict) -> jax.Array:
    """Prior log odds of the usage bits of a layer, from the layer above: (rank, rows) float."""
    above, rank = number + 1, density.ranks[number - 1]
    words = covered(position[f"usage_{above}"], position[f"basis_{above}"], rank)
    f0, f1 = both_rates(position[f"flip_rate_{above}"])
    zero, one = jnp.log(f0) - jnp.log1p(-f0), jnp.log1p(-f1) - jnp.log(f1)
    return jnp.where(unpack_last_axis(words, density.shape[0]), one, zero)


def covered(usage, basis, columns: int) -> jax.Array:
    """The Boolean product of two factor matrices in words, column by column.

    Parameters
    ----------
    usage : (rank, words of the rows) uint32
    basis : (rank, ceil(columns / 32)) uint32
    columns : int

    Returns
    -------
    (columns, words of the rows) uint32

    Examples
    --------
    >>> usage = jnp.array([[0b101], [0b010]], jnp.uint32)
    >>> covered(usage, jnp.array([[0b01], [0b11]], jnp.uint32), 2).ravel().tolist()
    [7, 2]
    """

    def join(product, factor):
        rows, columns = factor
        return product | (as_mask(columns)[:, None] & rows), None

    empty = jnp.zeros((columns, usage.shape[1]), usage.dtype)
    return lax.scan(join, empty, (usage, unpack_last_axis(basis, columns)))[0]
