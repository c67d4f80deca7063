r"""The OrMachine: Gibbs sampling of a Boolean matrix factorisation on packed words.

The data are the Boolean product of two binary factor matrices, each entry flipped with a small
probability,

.. math::

   c_{ij} = \bigvee_k z_{ik} u_{jk}, \qquad
   P(x_{ij} = 1 \mid c_{ij} = 0) = f_0, \quad P(x_{ij} = 0 \mid c_{ij} = 1) = f_1,

with :math:`f_0 = f_1 = \sigma(-\lambda)` as published (Rukat, Holmes, Titsias, Yau 2017, "Bayesian
Boolean Matrix Factorisation", ICML) or a rate for each direction. Every factor has a density of
its own in either matrix, with a Beta prior: a factor that the data do not need empties itself. A
sweep draws the usage, the basis, the densities, what the other matrix leaves empty anew from the
prior, which of the two is the empty one, and the flip rates.

Where the number of factors is unknown (`BitPrior.presence`) a factor is there with probability
:math:`w`, which has a Beta prior, and has density zero otherwise. With :math:`w \sim U(0, 1)` all
numbers of factors that are there, from none to the rank, are equally probable beforehand, and one
that is there is as in a model of fixed rank. Single flips can empty a factor, but not fill one that
is not there: the moves do that, with the densities integrated out.

What it leaves invariant
    The posterior, at any inverse temperature of the likelihood, with the flip rates drawn (the
    default) or fixed. The published rule, which sets the rate to its maximum given the rest, and
    the Laplace rule are not draws: the uncertainty of the rate is then missing, and the chain does
    not sample a posterior.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import (
    Coverage,
    Lines,
    LineUpdate,
    bytes_of_block,
    coverage,
    covered_by,
    metropolis,
    update_bits,
)
from bmfjax.kernels.boolean.density import (
    BooleanDensity,
    draw_density,
    draw_independent,
    draw_prior,
    draw_unused,
    log_odds,
    log_prior,
    orientations,
)
from bmfjax.kernels.boolean.flip_rates import ErrorCounts
from bmfjax.kernels.boolean.words import PackedData, count_bits, own_bits, pack_last_axis

#: Above this number of entries counts are summed in floating point: int32 would overflow.
MANY_ENTRIES = 2**31 - 1


class OrMachineInfo(NamedTuple):
    """Statistics of one sweep, at the draw; the likelihood is untempered in both."""

    log_joint: jax.Array  # () float
    log_likelihood: jax.Array  # () float
    errors: jax.Array  # () wrong entries: int32, above MANY_ENTRIES float32
    accepted: dict  # of each global move, the acceptance probability of its proposal


def ormachine(
    density: BooleanDensity,
    *,
    update: LineUpdate = metropolis,
    initial: Callable | None = None,
    moves: Sequence[tuple[str, Callable]] = (),
) -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    density : BooleanDensity
    update : LineUpdate
        How bits are drawn: `bmfjax.kernels.boolean.bits.metropolis` (as published), `gibbs`, or
        `bmfjax.kernels.boolean.bits.joint`.
    initial : callable, optional
        ``initial(key, data) -> position``; default a draw from the prior.
    moves : sequence of (str, callable)
        Names and global moves, made before every sweep, each
        ``move(key, position, data, inverse_temperature) -> (position, acceptance)``. One that is
        named several times in a row is made as often.

    Returns
    -------
    Algorithm
        For data that are a `PackedData`. The position has `usage` (rank, words of the rows) and
        `basis` (rank, words of the columns) uint32, `flip_rate` () or (2,), and where they are
        learned `usage_density` and `basis_density` (rank,).

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean.words import packed_data
    >>> data = packed_data(BinaryMatrix(jnp.kron(jnp.eye(2), jnp.ones((12, 12)))))
    >>> algorithm = ormachine(BooleanDensity((24, 24), rank=2))
    >>> step = jax.jit(algorithm.step)
    >>> state = jax.jit(algorithm.init)(random.key(0), None, data)
    >>> for key in random.split(random.key(1), 30):
    ...     state, info = step(key, state, data)
    >>> count_bits(state.position["usage"]).tolist(), int(info.errors)
    ([12, 12], 0)
    """
    initial = initial or (lambda key, data: draw_prior(key, density, data))

    def step(key, state, data, inverse_temperature=1.0):
        key_moves, key_sweep = random.split(key)
        # Moves look at all of the matrix: on a mesh every device makes the same ones.
        whole = data if data.whole is None else data.whole
        position, accepted = _moved(key_moves, moves, state.position, whole, inverse_temperature)
        position, counts, errors = sweep(
            key_sweep, density, position, data, inverse_temperature, update
        )
        info = _info(density, position, data, counts, errors, accepted)
        return State(position), info

    return Algorithm(init_from(initial), step, observed_state)


def _moved(key, moves, position, data, inverse_temperature):
    """Make the moves: the position, and the mean acceptance probability of each name."""
    position, accepted, first = dict(position), {}, 0
    # A move that is made again and again is a loop: it is compiled once.
    for (name, move), same in itertools.groupby(moves):
        number = len(list(same))

        def again(i, carry, move=move):
            position, total = carry
            new, probability = move(random.fold_in(key, i), position, data, inverse_temperature)
            return dict(new), total + probability

        start = position, jnp.zeros((), jnp.result_type(float))
        if number == 1:
            position, total = again(first, start)
        else:
            position, total = lax.fori_loop(first, first + number, again, start)
        accepted[name], first = total / number, first + number
    return position, accepted


def state_info(density: BooleanDensity) -> Callable:
    """Build the function that computes the info of a state anew, for `bmfjax.kernels.tempering`."""

    def describe(info: OrMachineInfo, state: State, data, inverse_temperature=1.0):
        counts, errors = product_errors(density, state.position, data)
        return _info(density, state.position, data, counts, errors, info.accepted)

    return describe


def prior_refresh(density: BooleanDensity) -> Callable:
    """Build ``refresh(key, state, data)``, a draw from the prior, for tempering."""
    return lambda key, state, data: State(draw_independent(key, density, state.position, data))


def _info(density, position, data, counts, errors, accepted):
    likelihood = flip_rates.log_likelihood(position["flip_rate"], counts)
    joint = likelihood + log_prior(density, position, data)
    return OrMachineInfo(joint, likelihood, errors, accepted)


def observed_state(state: State, info: OrMachineInfo) -> dict:
    """Return what a Boolean sampler observes: its position and named scalars."""
    named = {
        "log_joint": info.log_joint,
        "errors": info.errors,
        "dispersion": flip_rates.dispersion(state.position["flip_rate"]),
    }
    if any(name.endswith("_presence") for name in state.position):
        named["rank"] = used_rank(state.position)
    return dict(state.position) | named | {f"{n}_accepted": v for n, v in info.accepted.items()}


def used_rank(position) -> jax.Array:
    """Count the factors with ones in both matrices: () int32."""
    used = [jnp.any(position[site] != 0, axis=-1) for site in ("usage", "basis")]
    return jnp.sum(used[0] & used[1], dtype=jnp.int32)


def sweep(key, density, position, data: PackedData, inverse_temperature, update):
    """Draw everything once: the new position, its `ErrorCounts`, and its number of errors."""
    *keys, key_unused = random.split(key, 6)
    position = dict(position)
    weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
    sides = orientations(density, data)
    for k, (site, other, lines, size) in zip(keys, sides, strict=False):
        odds = log_odds(site, density, position, data)
        across = data.by_column if lines is data.by_row else data.by_row
        position[site], seen = update_bits(
            k, position[site], position[other], lines, size, odds, weights, update, data.along,
            across,
        )  # fmt: skip
    for k, site in zip(keys[2:4], ("usage", "basis"), strict=True):
        position |= draw_density(k, site, density, position, data)
    position = draw_unused(key_unused, density, position, data)
    counts, errors = error_counts(seen, data, density.shape)
    position["flip_rate"] = flip_rates.draw_flip_rate(
        keys[4], position["flip_rate"], counts, density.flip_rate, inverse_temperature
    )
    return position, counts, errors


def log_likelihood(density: BooleanDensity) -> Callable:
    """Build ``log_likelihood(state, data)``, untempered, for `bmfjax.kernels.tempering`."""

    def of_state(state: State, data: PackedData) -> jax.Array:
        counts, _ = product_errors(density, state.position, data)
        return flip_rates.log_likelihood(state.position["flip_rate"], counts)

    return of_state


def product_coverage(density: BooleanDensity, position, data: PackedData) -> Coverage:
    """Count how the product explains each block of the data: (blocks,) counts."""
    here, lines, width = data.by_row.ones.shape
    bits = own_bits(position["usage"], data.along, here * lines)
    bits = bits.reshape(density.rank, here, lines)

    def one_block(block):
        ones, observed, bits = block
        return coverage(Lines(ones, observed, bits, None), covered_by(bits, position["basis"]))

    words, size = data.by_row, bytes_of_block(0, lines, width)
    blocks = (words.ones, words.observed, bits.transpose(1, 0, 2))
    counts = data.along.gather(words.budget.map(one_block, blocks, size))
    return Coverage(*(c[: -(-density.shape[0] // lines)] for c in counts))


def error_counts(seen: Coverage, data: PackedData, shape) -> tuple[ErrorCounts, jax.Array]:
    """Return the wrong and right entries from the counts of blocks, and the number of errors."""
    covered_ones, covered_zeros, uncovered_ones = (_total(c, shape) for c in seen)
    kind = data.num_zeros.dtype
    wrong = jnp.stack([uncovered_ones, covered_zeros]).astype(kind)
    # Rounded sums of more than 2^31 entries must not fall below zero.
    uncovered_zeros = jnp.maximum(data.num_zeros - wrong[1], 0.0)
    right = jnp.stack([uncovered_zeros, covered_ones.astype(kind)])
    return ErrorCounts(wrong, right), uncovered_ones + covered_zeros


def _total(counts, shape):
    """Sum the int32 counts of blocks: exact as long as int32 holds the number of entries."""
    if shape[0] * shape[1] <= MANY_ENTRIES:
        return jnp.sum(counts)
    return jnp.sum(counts.astype(jnp.float32))


def product_errors(density, position, data: PackedData) -> tuple[ErrorCounts, jax.Array]:
    """Form the product anew and return its `ErrorCounts` and its number of errors."""
    return error_counts(product_coverage(density, position, data), data, density.shape)


def start_from(density: BooleanDensity, data: PackedData, factors: dict) -> dict:
    """Return the position with given factors.

    `factors` has `usage` (rows, rank) and `basis` (columns, rank), zeros and ones. Densities and
    `flip_rate` follow from these unless they are given too; a rate that is known stays.
    """
    kind, position = jnp.result_type(float), {}
    for site, size in zip(("usage", "basis"), density.shape, strict=True):
        position[site] = pack_last_axis(jnp.asarray(factors[site]).T > 0.5)
        prior, name = getattr(density, site), f"{site}_density"
        if prior.beta is not None:
            a, b = prior.beta
            mean = (count_bits(position[site]) + a) / (size + a + b)
            position[name] = jnp.asarray(factors.get(name, mean), kind)
        if prior.presence is not None:
            there = (jnp.sum(position[name] > 0) + 1.0) / (density.rank + 2.0)
            name = f"{site}_presence"
            position[name] = jnp.asarray(factors.get(name, there), kind)
    counts, _ = product_errors(density, position, data)
    rates = jnp.zeros(() if density.flip_rate.num_rates == 1 else (2,), kind)
    rule = density.flip_rate._replace(rule="laplace")
    start = density.flip_rate.value
    if start is None:
        start = factors.get("flip_rate")
    if start is None:
        start = flip_rates.draw_flip_rate(None, rates, counts, rule, 1.0)
    position["flip_rate"] = jnp.broadcast_to(jnp.asarray(start, kind), rates.shape)
    return position
