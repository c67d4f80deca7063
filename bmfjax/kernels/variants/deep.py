r"""The deep OrMachine: layers of Boolean factorisations, sampled together.

With :math:`z^{(0)} = x`, layers :math:`l = 1, \ldots, L` and one more for the top,

.. math::

   c^{(l)}_{ij} = \bigvee_k z^{(l)}_{ik} u^{(l)}_{jk}, \qquad
   p(x, z, u, f) = p(z^{(L)}) \prod_{l=1}^{L}
       p\big(z^{(l-1)} \mid c^{(l)}, f^{(l)}\big)\, p(u^{(l)})\, p(f^{(l)}),

where :math:`z^{(l-1)}` is :math:`c^{(l)}` with each entry flipped at the rate of layer l (Rukat,
Holmes, Titsias, Yau 2017, and their slides, "Multi-layer OrMachine"). A layer is therefore an
OrMachine (`bmfjax.kernels.boolean.gibbs`) of its own: its data are the usage of the layer below,
and the prior log odds of its usage come from the layer above,
:math:`\operatorname{logit}(1 - f_1)` where :math:`c^{(l+1)} = 1` and
:math:`\operatorname{logit} f_0` where it is 0. `layer` makes that view.

A step makes an ordinary sweep of every layer, from the data upwards. The bits of a middle layer
depend on both its neighbours.

What it leaves invariant
    The joint posterior of all layers, at any inverse temperature. It tempers the likelihood of the
    data, :math:`p(x \mid c^{(1)}, f^{(1)})`; the layers above are the prior of the first usage.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import WORD, PackedMatrix
from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.boolean import density as boolean
from bmfjax.kernels.boolean import flip_rates, gibbs
from bmfjax.kernels.boolean.bits import LineUpdate, covered_by, metropolis, update_bits
from bmfjax.kernels.boolean.bits import gibbs as gibbs_update
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import ErrorCounts, FlipRatePrior, both_rates
from bmfjax.kernels.boolean.words import (
    PackedData,
    blocks_of_lines,
    count_bits,
    pack_last_axis,
    packed_data,
    unpack_last_axis,
)
from bmfjax.kernels.numerics.budget import Budget

#: Bits whose prior the layer above gives, one by one.
FROM_ABOVE = BitPrior(beta=None)


class DeepDensity(NamedTuple):
    """The joint density of OrMachines on top of each other.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the data.
    ranks : tuple of int
        Factors of each layer, from the data upwards.
    usage : BitPrior
        Prior of the top layer's usage; that of a lower layer is given by the layer above.
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
    """One layer as an OrMachine, by the names of `bmfjax.kernels.boolean.gibbs`."""

    density: BooleanDensity
    position: dict
    data: PackedData  # the usage of the layer below, and the log odds that the layer above gives


class DeepOrMachineInfo(NamedTuple):
    """Statistics of one sweep, at the draw; the likelihood is that of the data, untempered."""

    log_joint: jax.Array  # () float
    log_likelihood: jax.Array  # () float
    errors: tuple[jax.Array, ...]  # () int32 each: entries of a layer's data unlike its product


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
        How bits are drawn: `bmfjax.kernels.boolean.bits.metropolis` (as published), `gibbs`, or
        `bmfjax.kernels.boolean.bits.joint`.
    initial : callable, optional
        ``initial(key, data) -> position``, such as
        `bmfjax.kernels.variants.deep.greedy_start`; default a draw from the prior.

    Returns
    -------
    Algorithm
        For data that `deep_data` makes. For layer l the position has `usage_l` (rank, words of the
        rows) and `basis_l` (rank, words of the columns or of the factors below) uint32,
        `flip_rate_l` () or (2,), and `basis_density_l` (rank,) where learned; for the top layer
        also `usage_density` (rank,) where learned. The statistics `errors` and `dispersion` are
        those of the data, `errors_2`, `dispersion_2` and so on those of the layers above.

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
    >>> data = deep_data(BinaryMatrix([[1, 1, 0], [1, 1, 0], [0, 0, 1]] * 5))
    >>> density = DeepDensity((15, 3), (2, 1))
    >>> algorithm = deep_ormachine(density)
    >>> init, step = jax.jit(algorithm.init), jax.jit(algorithm.step)
    >>> state = init(random.key(0), None, data)
    >>> errors = []
    >>> for key in random.split(random.key(3), 40):
    ...     state, info = step(key, state, data)
    ...     errors.append(int(info.errors[0]))
    >>> sorted(state.position)[-3:], min(errors)
    (['usage_1', 'usage_2', 'usage_density'], 0)
    """
    density = density._replace(ranks=layer_ranks(density.ranks))
    initial = initial or (lambda key, data: draw_prior(key, density, data))

    def step(key, state, data, inverse_temperature=1.0):
        position, counts, errors = sweep(
            key, density, state.position, data, inverse_temperature, update
        )
        likelihood = flip_rates.log_likelihood(position["flip_rate_1"], counts[0])
        joint = _log_joint(density, position, data, counts)
        return State(position), DeepOrMachineInfo(joint, likelihood, errors)

    def observe(state, info):
        named = {"log_joint": info.log_joint}
        for number, errors in enumerate(info.errors, 1):
            suffix = "" if number == 1 else f"_{number}"
            rate = state.position[f"flip_rate_{number}"]
            named |= {f"errors{suffix}": errors, f"dispersion{suffix}": flip_rates.dispersion(rate)}
        return dict(state.position) | named

    return Algorithm(init_from(initial), step, observe)


def log_likelihood(density: DeepDensity) -> Callable:
    """Build the untempered ``log_likelihood(state, data)``, for `bmfjax.kernels.tempering`."""

    def of_state(state: State, data: PackedData) -> jax.Array:
        one = layer(1, density, state.position, data)
        return flip_rates.log_likelihood(state.position["flip_rate_1"], _errors(one))

    return of_state


def log_joint(density: DeepDensity, position: dict, data: PackedData) -> jax.Array:
    """Return the log density of all layers and the data, from the position alone.

    A sweep reports the same from the counts that it makes anyway.
    """
    numbers = range(1, len(density.ranks) + 1)
    counts = [_errors(layer(number, density, position, data)) for number in numbers]
    return _log_joint(density, position, data, counts)


def errors_of(density: DeepDensity, position: dict, data: PackedData, number: int):
    """Return the `ErrorCounts` of a layer's data, and the number of its errors."""
    return gibbs.product_errors(*layer(number, density, position, data))


def _errors(one: Layer) -> ErrorCounts:
    """Count the wrong and right entries of a layer's data."""
    return gibbs.product_errors(*one)[0]


def _log_joint(density, position, data, counts: Sequence[ErrorCounts]):
    total = jnp.zeros((), jnp.result_type(float))
    for number, of_layer in enumerate(counts, 1):
        one = layer(number, density, position, data)
        rate = one.position["flip_rate"]
        total += flip_rates.log_likelihood(rate, of_layer)
        total += flip_rates.log_prior(rate, one.density.flip_rate)
        total += boolean.log_prior_of("basis", *one)
    return total + boolean.log_prior_of("usage", *one)


def sweep(
    key, density: DeepDensity, position, data: PackedData, inverse_temperature, update, above=1.0
):
    """Sweep once over all layers.

    Beside the position it returns each layer's `ErrorCounts` and number of errors at that position,
    because a layer's data are drawn before the layer. What each layer above the first says of the
    usage below it is raised to the power `above`. Only at 1 is the joint density that of the model;
    less helps to start.
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
        drawn, of_layer, wrong = gibbs.sweep(key_layer, *one, power, update)
        position |= renamed(density, number, drawn)
        counts, errors = (*counts, of_layer), (*errors, wrong)
    return position, counts, errors


def usage_sweep(key, density: DeepDensity, position, data: PackedData) -> dict:
    """Draw the usage of every layer once by Gibbs, all else given; return the position."""
    position = dict(position)
    for number in range(1, len(density.ranks) + 1):
        one, own, lines = layer(number, density, position, data)
        odds = boolean.log_odds("usage", one, own, lines)
        key_layer, weights = random.fold_in(key, number), flip_rates.weights(own["flip_rate"])
        drawn, _ = update_bits(
            key_layer, own["usage"], own["basis"], lines.by_row, density.shape[0], odds, weights,
            gibbs_update,
        )  # fmt: skip
        position[f"usage_{number}"] = drawn
    return position


def reconstruction(density: DeepDensity, position: dict) -> jax.Array:
    """Return the Boolean product of the first layer: (rows, columns) bool.

    Its mean over draws is the probability that an entry, observed or missing, is covered.
    """
    columns = covered(position["usage_1"], position["basis_1"], density.shape[1])
    return unpack_last_axis(columns, density.shape[0]).T


def fed_forward(density: DeepDensity, position: dict, number: int) -> jax.Array:
    r"""Return the factors of a layer as they appear in the data: (columns, rank of the layer) bool.

    This is the Boolean product of the bases :math:`u^{(1)} u^{(2)} \cdots u^{(l)}`: the row that
    uses one factor of layer l and in which no bit is flipped.
    """
    whole("layer", number, 1, len(density.ranks))
    sizes = (density.shape[1], *density.ranks)
    words = position[f"basis_{number}"]
    for below in range(number - 1, 0, -1):
        # Factors of this layer take the place of columns: their bits on each factor below.
        factors = unpack_last_axis(words, sizes[below])
        words = jax.vmap(lambda used, basis: _join(used, basis), (0, None))(
            factors, position[f"basis_{below}"]
        )
    return unpack_last_axis(words, sizes[0]).T


def _join(used, words):
    """Return the union of the lines that are used: (words,) uint32."""
    chosen = jnp.where(used[:, None], words, jnp.uint32(0))
    return lax.reduce(chosen, jnp.uint32(0), lax.bitwise_or, (0,))


# ---- one layer ----------------------------------------------------------------------------------


def layer_ranks(ranks: Sequence[int]) -> tuple[int, ...]:
    """Check the number of factors of each layer, at least 1, from the data upwards.

    Warns where a layer has more factors than the one below: it could repeat that layer's factors
    and add nothing. This may be meant where factors stand for clusters of rows.
    """
    every = tuple(ranks) if isinstance(ranks, Iterable) else ()
    if not every:
        raise InputError(f"ranks is {ranks!r}; give the number of factors of every layer")
    ranks = tuple(whole(f"the rank of layer {n}", rank) for n, rank in enumerate(every, 1))
    for number, (below, rank) in enumerate(itertools.pairwise(ranks), 2):
        if rank > below:
            warnings.warn(
                f"layer {number} has {rank} factors and the layer below only {below}, so that "
                "it can copy that layer instead of summarising it; give ranks that decrease from "
                "the data upwards, unless its factors are to stand for clusters of rows",
                UserWarning,
                stacklevel=2,
            )
    return ranks


def deep_data(matrix: BinaryMatrix, usage_log_odds=None, basis_log_odds=()) -> PackedData:
    """Pack a matrix for a deep OrMachine.

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
    """Return the names of a layer's sites in the position, by their names in an OrMachine."""
    names = {n: f"{n}_{number}" for n in ("usage", "basis", "flip_rate", "basis_density")}
    if number == len(density.ranks):
        names["usage_density"] = "usage_density"
    return names


def renamed(density: DeepDensity, number: int, own: dict) -> dict:
    """Return the part of a position that belongs to a layer, from that of the layer alone."""
    names = sites(density, number)
    return {names[n]: value for n, value in own.items() if n in names}


def layer(number: int, density: DeepDensity, position: dict, data: PackedData) -> Layer:
    """View one layer as an OrMachine, at the present state of the layers beside it.

    Where the position lacks the layers below, the layer's data are None.
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
        none = PackedData(None, None, None, None)
        data = none if words is None else usage_as_data(words, rows, data.by_row.budget)
    return Layer(one, own, data._replace(usage_log_odds=odds, basis_log_odds=basis_odds))


def _of_layer(option, kind, number):
    return option if isinstance(option, kind) else option[number - 1]


def usage_as_data(words: jax.Array, rows: int, budget: Budget) -> PackedData:
    """Return the usage of a layer as the data of the next: complete, its factors the columns."""
    ones = jnp.sum(count_bits(words)).astype(jnp.result_type(float))
    zeros = words.shape[0] * rows - ones
    by_row = _pack_first_axis(unpack_last_axis(words, rows))
    lines = (blocks_of_lines(PackedMatrix(w, None), budget) for w in (by_row, words))
    return PackedData(*lines, ones, zeros)


def _pack_first_axis(bits) -> jax.Array:
    """Pack bool bits along the first axis: (n, lines) to (lines, ceil(n / 32)) uint32."""
    size = bits.shape[0]

    def word(start):
        some = bits[start : start + WORD].astype(jnp.uint32)
        shifts = jnp.arange(len(some), dtype=jnp.uint32)[:, None]
        return jnp.sum(some << shifts, axis=0, dtype=jnp.uint32)

    return jnp.stack([word(start) for start in range(0, size, WORD)], axis=1)


def log_odds_from_above(number: int, density: DeepDensity, position: dict) -> jax.Array:
    """Return the prior log odds of a layer's usage bits, from the layer above: (rank, rows)."""
    above, rank = number + 1, density.ranks[number - 1]
    words = covered(position[f"usage_{above}"], position[f"basis_{above}"], rank)
    f0, f1 = both_rates(position[f"flip_rate_{above}"])
    zero, one = jnp.log(f0) - jnp.log1p(-f0), jnp.log1p(-f1) - jnp.log(f1)
    return jnp.where(unpack_last_axis(words, density.shape[0]), one, zero)


def covered(usage, basis, columns: int) -> jax.Array:
    """Return the Boolean product of two factor matrices: (columns, words of the rows) uint32."""
    return covered_by(unpack_last_axis(basis, columns), usage)


# ---- where to start -----------------------------------------------------------------------------


def draw_prior(key, density: DeepDensity, data: PackedData) -> dict:
    """Draw a position from the prior, from the top downwards; learned flip rates start at 0.2."""
    position = {}
    for number in reversed(range(1, len(density.ranks) + 1)):
        one = layer(number, density, position, data)
        drawn = boolean.draw_prior(random.fold_in(key, number), one.density, one.data)
        position |= renamed(density, number, drawn)
    return position


def position_from(density: DeepDensity, data: PackedData, given: dict) -> dict:
    """Return the position with given bits of the first layer, and whatever else is given.

    `given` has `usage_1` (rows, rank) and `basis_1` (columns, rank), zeros and ones. A factor of a
    layer above starts as a copy of one below. Densities and flip rates follow from the bits.
    """
    top, bits = len(density.ranks), {}
    for number, rank in enumerate(density.ranks, 1):
        if number > 1:
            below = bits[f"usage_{number - 1}"]
            copied = np.arange(rank) % below.shape[1]
            same = np.arange(below.shape[1])[:, None] == copied
            bits |= {f"usage_{number}": below[:, copied], f"basis_{number}": same}
        own = (f"usage_{number}", f"basis_{number}")
        bits |= {n: jnp.asarray(given[n]) > 0.5 for n in own if n in given}
    position = {n: pack_last_axis(b.T) for n, b in bits.items()}
    for number in range(1, top + 1):
        one_rate = _of_layer(density.flip_rate, FlipRatePrior, number)
        position[f"flip_rate_{number}"] = flip_rates.start_rate(one_rate)
    for number in range(1, top + 1):
        one, _, own_data = layer(number, density, position, data)
        names = sites(density, number)
        known = {n: given[name] for n, name in names.items() if name in given}
        known |= {n: bits[names[n]] for n in ("usage", "basis")}
        position |= renamed(density, number, gibbs.start_from(one, own_data, known))
    return position


def greedy_start(
    density: DeepDensity,
    num_sweeps: int,
    *,
    num_joining: int = 0,
    num_starts: int = 1,
    lowest: float = 0.4,
    update: LineUpdate = metropolis,
) -> Callable:
    r"""Build ``initial(key, data) -> position``: layer by layer, then all layers together.

    First factorise the data, then their usage, then the usage of that. Every layer is annealed
    alone, sweep t at the inverse temperature :math:`\beta_t =` ``lowest ** (1 - t / num_sweeps)``,
    without the layers above: its usage has learned densities, or in the top layer the prior that
    it has. The first layer has then settled by chance what the data leave open, and the layers
    above have taken it for structure. So join them slowly: `num_joining` sweeps of all layers, the
    data at full power and all that the layers above say raised to :math:`\beta_t`, from `lowest` to
    one. The most probable of `num_starts` such positions is returned; the sampler
    `bmfjax.infer.DeepOrMachineGibbs` makes one.
    """
    whole("num_sweeps", num_sweeps)
    whole("num_starts", num_starts)
    whole("num_joining", num_joining, 0)
    if not 0 < lowest <= 1:
        raise InputError(f"lowest is {lowest}; give a power above 0 and at most 1")
    top = len(density.ranks)

    def one_start(key, data):
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

    def initial(key, data):
        def start(key):
            position = one_start(key, data)
            return position, log_joint(density, position, data)

        found, joint = lax.map(start, random.split(key, num_starts))
        best = jnp.argmax(joint)
        return jax.tree.map(lambda a: a[best], found)

    return one_start if num_starts == 1 else initial


def _anneal(key, one: Layer, num_sweeps, lowest, update):
    """Return the position of a layer after sweeps from hot to cold."""
    start = boolean.draw_prior(random.fold_in(key, num_sweeps), one.density, one.data)

    def body(t, position):
        power = lowest ** (1.0 - t / num_sweeps)
        key_sweep = random.fold_in(key, t)
        return gibbs.sweep(key_sweep, one.density, position, one.data, power, update)[0]

    return lax.fori_loop(0, num_sweeps, body, start)
