r"""The one-hot machine: Gibbs sampling of a clustering of the rows by binary codes.

Every row is a noisy copy of one code,

.. math::

   s_i \sim \mathrm{Categorical}(w), \quad w \sim \mathrm{Dirichlet}(\alpha), \qquad
   P(x_{ij} = 1 \mid u_{j s_i} = 0) = f_0, \quad P(x_{ij} = 0 \mid u_{j s_i} = 1) = f_1,

the OrMachine (Rukat, Holmes, Titsias, Yau 2017, "Bayesian Boolean Matrix Factorisation", ICML)
where a row uses exactly one factor. The log likelihood of a row under each code is a weighted sum
of population counts, and the code of the row is drawn from all of them at once. As no two factors
meet in a row, the bits of the codes are independent given the clusters and drawn exactly.

What it leaves invariant
    The posterior, at any inverse temperature of the likelihood, with the flip rates drawn (the
    default) or fixed; see `bmfjax.kernels.boolean.gibbs` for the other rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from scipy import special

from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import bytes_of_block, draw_choice, gibbs, update_bits
from bmfjax.kernels.boolean.density import (
    BitPrior,
    BooleanDensity,
    draw_density,
    draw_prior_of,
    log_odds,
    log_prior_of,
)
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import (
    OrMachineInfo,
    error_counts,
    observed_state,
    product_errors,
    start_from,
)
from bmfjax.kernels.boolean.words import PackedData, count_bits, pack_last_axis, packed_data


class OneHotDensity(NamedTuple):
    """The joint density.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns.
    rank : int
        Number of codes.
    concentration : tuple of float, or None
        Those of the weights' Dirichlet prior, one a code; None where the data hold the weights.
    basis : BitPrior
    flip_rate : FlipRatePrior
    """

    shape: tuple[int, int]
    rank: int
    concentration: tuple[float, ...] | None
    basis: BitPrior = BitPrior()
    flip_rate: FlipRatePrior = FlipRatePrior()


class OneHotData(NamedTuple):
    """The matrix, and the weights of the codes where they are known."""

    packed: PackedData
    log_weights: jax.Array | None  # (rank, 1) or (rank, rows); minus infinity excludes a code


def one_hot_data(matrix: BinaryMatrix, weights=None, basis_log_odds=None) -> OneHotData:
    """Pack a matrix for the sampler, with known weights if there are any.

    Parameters
    ----------
    matrix : BinaryMatrix
    weights : (rank,) or (rows, rank) array, optional
        Known probabilities of the codes.
    basis_log_odds : (columns, rank) array, optional
        As for `packed_data`.

    Returns
    -------
    OneHotData

    Examples
    --------
    >>> one_hot_data(BinaryMatrix([[1, 0], [0, 1]]), [0.5, 0.5]).log_weights.shape
    (2, 1)
    """
    log_weights = None if weights is None else log_weights_of(weights)
    return OneHotData(packed_data(matrix, basis_log_odds=basis_log_odds), log_weights)


def log_weights_of(weights) -> jax.Array:
    """Return the logarithms of known weights (rank,) or (rows, rank): (rank, 1) or (rank, rows)."""
    with np.errstate(divide="ignore"):
        table = np.log(np.atleast_2d(np.asarray(weights, float))).T
    return jax.device_put(table.astype(jnp.result_type(float)))


def one_hot_machine(density: OneHotDensity, *, initial: Callable | None = None) -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    density : OneHotDensity
    initial : callable, optional
        ``initial(key, data) -> position``; default a draw from the prior.

    Returns
    -------
    Algorithm
        For data that are `OneHotData`. The position has `cluster` (rows,) int32, `basis` (rank,
        words of the columns) uint32, `flip_rate` () or (2,), and where they are learned `weights`
        and `basis_density` (rank,).

    Examples
    --------
    >>> data = one_hot_data(BinaryMatrix(jnp.kron(jnp.eye(2), jnp.ones((12, 12)))), [0.5, 0.5])
    >>> bits, rate = BitPrior(None, 0.5), FlipRatePrior(value=0.1)
    >>> algorithm = one_hot_machine(OneHotDensity((24, 24), 2, None, bits, rate))
    >>> step = jax.jit(algorithm.step)
    >>> state = jax.jit(algorithm.init)(random.key(0), None, data)
    >>> for key in random.split(random.key(1), 30):
    ...     state, info = step(key, state, data)
    >>> jnp.bincount(state.position["cluster"]).tolist(), int(info.errors)
    ([12, 12], 0)
    """
    initial = initial or (lambda key, data: draw_prior(key, density, data))

    def step(key, state, data, inverse_temperature=1.0):
        position, counts, errors = sweep(key, density, state.position, data, inverse_temperature)
        return State(position), _info(density, position, data, counts, errors)

    return Algorithm(init_from(initial), step, observed_state)


def _info(density, position, data, counts, errors):
    likelihood = flip_rates.log_likelihood(position["flip_rate"], counts)
    joint = likelihood + log_prior(density, position, data)
    return OrMachineInfo(joint, likelihood, errors, {})


def info_of(density: OneHotDensity, position, data: OneHotData) -> OrMachineInfo:
    """Return the statistics of a position, from the position alone."""
    factors = position | {"usage": members(position["cluster"], density.rank)}
    return _info(density, position, data, *product_errors(density, factors, data.packed))


def position_from(density: OneHotDensity, data: OneHotData, given: dict) -> dict:
    """Return the position with given codes, and whatever else is given.

    `given` has `basis` (columns, rank), zeros and ones, and `cluster` (rows,). Weights, densities
    and flip rates follow from these.
    """
    cluster = jnp.asarray(given["cluster"], jnp.int32)
    bits = cluster[:, None] == jnp.arange(density.rank)
    one = BooleanDensity(
        density.shape, density.rank, BitPrior(beta=None), density.basis, density.flip_rate
    )
    position = start_from(one, data.packed, {**given, "usage": bits})
    del position["usage"]
    if density.concentration is not None:
        total = jnp.sum(bits, axis=0) + jnp.asarray(density.concentration)
        position["weights"] = jnp.asarray(given.get("weights", total / jnp.sum(total)))
    return position | {"cluster": cluster}


def sweep(key, density: OneHotDensity, position, data: OneHotData, inverse_temperature):
    """Draw everything once: the new position, its `ErrorCounts`, and its number of errors."""
    keys, position = random.split(key, 5), dict(position)
    weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
    cluster = _draw_clusters(keys[0], density, position, data, weights)
    users = members(cluster, density.rank)
    position["cluster"] = cluster.astype(position["cluster"].dtype)
    odds = log_odds("basis", density, position, data.packed)
    position["basis"], seen = update_bits(
        keys[1], position["basis"], users, data.packed.by_column, density.shape[1], odds, weights,
        gibbs,
    )  # fmt: skip
    position |= draw_density(keys[2], "basis", density, position, data.packed)
    if density.concentration is not None:
        position["weights"] = _draw_weights(keys[3], density, count_bits(users))
    counts, errors = error_counts(seen, data.packed, density.shape)
    position["flip_rate"] = flip_rates.draw_flip_rate(
        keys[4], position["flip_rate"], counts, density.flip_rate, inverse_temperature
    )
    return position, counts, errors


def members(cluster, rank) -> jax.Array:
    """Return the rows of each cluster: (rank, words of the rows) uint32."""
    return pack_last_axis(cluster == jnp.arange(rank, dtype=cluster.dtype)[:, None])


def _draw_clusters(key, density, position, data, weights):
    """Draw the code of every row, (rows,) int32, from all codes at once."""
    rows, lines = density.shape[0], data.packed.by_row

    def one_block(block):
        ones, observed = block

        def of_code(code):
            zeros = code & ~ones if observed is None else code & ~ones & observed
            return count_bits(code & ones), count_bits(zeros)

        return lax.map(of_code, position["basis"])  # (rank, lines) each

    blocks, size = (lines.ones, lines.observed), bytes_of_block(0, *lines.ones.shape[1:])
    counts = [
        c.transpose(1, 0, 2).reshape(density.rank, -1)[:, :rows]
        for c in lines.budget.map(one_block, blocks, size)
    ]
    log_weights = _log_weights(position, data)
    return draw_choice(key, log_weights, weights, counts).astype(jnp.int32)


def _log_weights(position, data):
    """Return the log weights of the codes: (rank, 1) or (rank, rows)."""
    if data.log_weights is not None:
        return data.log_weights
    return jnp.log(position["weights"])[:, None]


def _draw_weights(key, density, counts):
    kind = jnp.result_type(float)
    total = jnp.asarray(density.concentration, kind) + counts.astype(kind)
    drawn = jax.nn.softmax(random.loggamma(key, total, dtype=kind))
    return jnp.maximum(drawn, jnp.finfo(kind).tiny)


def log_likelihood(density: OneHotDensity) -> Callable:
    """Build ``log_likelihood(state, data)``, untempered, for `bmfjax.kernels.tempering`."""

    def of_state(state: State, data: OneHotData) -> jax.Array:
        return info_of(density, state.position, data).log_likelihood

    return of_state


def log_prior(density: OneHotDensity, position, data: OneHotData) -> jax.Array:
    """Return the log density of clusters, weights, codes, densities and flip rates."""
    total = flip_rates.log_prior(position["flip_rate"], density.flip_rate)
    total += log_prior_of("basis", density, position, data.packed)
    log_weights, cluster = _log_weights(position, data), position["cluster"]
    shape = (density.rank, density.shape[0])
    chosen = jnp.take_along_axis(jnp.broadcast_to(log_weights, shape), cluster[None], axis=0)
    total += jnp.sum(chosen)
    if density.concentration is not None:
        alpha = np.asarray(density.concentration, float)
        normaliser = special.gammaln(alpha).sum() - special.gammaln(alpha.sum())
        powers = jnp.asarray(alpha - 1.0, log_weights.dtype)
        total += jnp.sum(powers * log_weights[:, 0]) - float(normaliser)
    return total


def draw_prior(key, density: OneHotDensity, data: OneHotData) -> dict:
    """Draw a position from the prior; a learned flip rate starts at 0.2."""
    kind, keys, position = jnp.result_type(float), random.split(key, 4), {}
    if density.concentration is not None:
        none = jnp.zeros(density.rank, jnp.int32)
        position["weights"] = _draw_weights(keys[0], density, none)
    shape = (density.rank, density.shape[0])
    log_weights = jnp.broadcast_to(_log_weights(position, data), shape)
    noise = random.gumbel(keys[1], shape, kind)
    position["cluster"] = jnp.argmax(log_weights + noise, axis=0).astype(jnp.int32)
    position |= draw_prior_of("basis", keys[2:], density, data.packed)
    return position | {"flip_rate": flip_rates.start_rate(density.flip_rate)}
