r"""The Hamming machine: Gibbs sampling on packed words where rows are pulled to their codes.

Every factor that a row uses pulls the row towards its code, by the Hamming distance between them,

.. math::

   P(x_{ij} = 1) = \sigma\Big(\lambda \sum_k z_{ik} (2 u_{jk} - 1)\Big),

a variant of the OrMachine (Rukat, Holmes, Titsias, Yau 2017, "Bayesian Boolean Matrix
Factorisation", ICML). The bits are drawn as in `bmfjax.kernels.variants.scores`. Given them, the
likelihood of the dispersion depends on the data through the number of entries of each score alone,
and the dispersion is drawn by slice sampling.

What it leaves invariant
    The posterior, at any inverse temperature of the likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.boolean.bits import Lines, update_bits
from bmfjax.kernels.boolean.density import (
    BitPrior,
    BooleanDensity,
    draw_density,
    draw_prior_of,
    log_odds,
    log_prior_of,
    orientations,
)
from bmfjax.kernels.boolean.gibbs import start_from
from bmfjax.kernels.boolean.words import PackedData, packed_data
from bmfjax.kernels.numerics.slice import slice_sample
from bmfjax.kernels.variants.scores import ScoreWeights, score_basis, score_counts, score_usage


class DispersionPrior(NamedTuple):
    """Prior of the dispersion, by default Exponential(1), or its known value."""

    log_prob: Callable = jnp.negative  # normalised log density on [0, inf)
    value: float | None = None


class HammingDensity(NamedTuple):
    """The joint density.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns.
    rank : int
    usage, basis : BitPrior
    dispersion : DispersionPrior
    """

    shape: tuple[int, int]
    rank: int
    usage: BitPrior = BitPrior()
    basis: BitPrior = BitPrior()
    dispersion: DispersionPrior = DispersionPrior()


class HammingInfo(NamedTuple):
    """Statistics of one sweep, at the draw; the likelihood is untempered in both."""

    log_joint: jax.Array  # () float
    log_likelihood: jax.Array  # () float
    errors: jax.Array  # () int32: entries with a negative score
    undecided: jax.Array  # () int32: entries with a score of zero


def hamming_data(matrix: BinaryMatrix, usage_log_odds=None, basis_log_odds=None) -> PackedData:
    """Pack a matrix as `packed_data` does, always with its mask of observed entries.

    Examples
    --------
    >>> hamming_data(BinaryMatrix([[1, 0, 1]])).by_row.observed.tolist()
    [[[7]]]
    """
    return with_mask(packed_data(matrix, usage_log_odds, basis_log_odds), matrix.shape)


def with_mask(data: PackedData, shape) -> PackedData:
    """Return the data with a mask of observed entries, if they have none: all of them."""
    if data.by_row.observed is not None:
        return data
    full = packed_data(BinaryMatrix(np.ones(shape, bool)))
    return data._replace(
        by_row=data.by_row._replace(observed=full.by_row.ones),
        by_column=data.by_column._replace(observed=full.by_column.ones),
    )


def hamming_machine(density: HammingDensity, *, initial: Callable | None = None) -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    density : HammingDensity
    initial : callable, optional
        ``initial(key, data) -> position``; default a draw from the prior. From such a start the
        factors may stay empty, because random codes suit no row: see `rows_as_codes`.

    Returns
    -------
    Algorithm
        For data of `hamming_data`. The position has `usage` (rank, words of the rows) and `basis`
        (rank, words of the columns) uint32, `dispersion` (), and where they are learned
        `usage_density` and `basis_density` (rank,).

    Examples
    --------
    >>> data = hamming_data(BinaryMatrix(jnp.kron(jnp.eye(2), jnp.ones((12, 12)))))
    >>> even, known = BitPrior(None, 0.5), DispersionPrior(value=2.0)
    >>> density = HammingDensity((24, 24), 2, even, even, known)
    >>> algorithm = hamming_machine(density)
    >>> step, start = jax.jit(algorithm.step), rows_as_codes(random.key(0), density, data)
    >>> state = algorithm.init(None, start, data)
    >>> for key in random.split(random.key(1), 10):
    ...     state, info = step(key, state, data)
    >>> int(info.errors), int(info.undecided)
    (0, 0)
    """
    initial = initial or (lambda key, data: draw_prior(key, density, data))

    def step(key, state, data, inverse_temperature=1.0):
        position, counts = sweep(key, density, state.position, data, inverse_temperature)
        return State(position), _info(density, position, data, counts)

    def observe(state, info):
        return dict(state.position) | info._asdict()

    return Algorithm(init_from(initial), step, observe)


def _info(density, position, data, counts) -> HammingInfo:
    likelihood = _log_likelihood(position["dispersion"], counts)
    joint = likelihood + log_prior(density, position, data)
    rank = density.rank
    return HammingInfo(joint, likelihood, jnp.sum(counts[:rank]), counts[rank])


def info_of(density: HammingDensity, position, data: PackedData) -> HammingInfo:
    """Return the statistics of a position, from the position alone."""

    def keep(key, lines: Lines, partner, weights):
        return lines.bits, score_counts(lines, partner)

    odds = jnp.zeros((density.rank, 1))
    _, counts = update_bits(
        random.key(0), position["basis"], position["usage"], data.by_column, density.shape[1],
        odds, None, keep,
    )  # fmt: skip
    return _info(density, position, data, jnp.sum(counts, axis=0))


def position_from(density: HammingDensity, data: PackedData, given: dict) -> dict:
    """Return the position with given factors, and whatever else is given.

    `given` has `usage` (rows, rank) and `basis` (columns, rank), zeros and ones. Densities follow
    from these; a learned dispersion starts at 1.
    """
    one = BooleanDensity(density.shape, density.rank, density.usage, density.basis)
    position = start_from(one, data, given)
    del position["flip_rate"]
    start = density.dispersion.value
    start = given.get("dispersion", 1.0) if start is None else start
    return position | {"dispersion": jnp.asarray(start, jnp.result_type(float))}


def sweep(key, density: HammingDensity, position, data: PackedData, inverse_temperature):
    """Draw everything once: the new position, and the number of entries of each score."""
    if data.by_row.observed is None or data.by_column.observed is None:
        raise InputError("the data lack the mask of observed entries; make them by hamming_data")
    keys, position = random.split(key, 5), dict(position)
    by_score = _log_likelihoods(position["dispersion"], density.rank) * inverse_temperature
    for k, (site, other, lines, size) in zip(keys, orientations(density, data), strict=False):
        update = score_usage if site == "usage" else score_basis
        odds = log_odds(site, density, position, data)
        position[site], counts = update_bits(
            k, position[site], position[other], lines, size, odds, ScoreWeights(by_score), update
        )
    for k, site in zip(keys[2:4], ("usage", "basis"), strict=True):
        position |= draw_density(k, site, density, position, data)
    counts = jnp.sum(counts, axis=0)
    if density.dispersion.value is None:
        position["dispersion"] = _draw_dispersion(
            keys[4], position["dispersion"], counts, density.dispersion, inverse_temperature
        )
    return position, counts


def log_likelihood(density: HammingDensity) -> Callable:
    """Build ``log_likelihood(state, data)``, untempered, for `bmfjax.kernels.tempering`."""

    return lambda state, data: info_of(density, state.position, data).log_likelihood


def log_prior(density: HammingDensity, position, data) -> jax.Array:
    """Return the log density of bits, densities and dispersion, without the data."""
    total = sum(log_prior_of(site, density, position, data) for site in ("usage", "basis"))
    if density.dispersion.value is None:
        total += density.dispersion.log_prob(position["dispersion"])
    return total


def draw_prior(key, density: HammingDensity, data: PackedData) -> dict:
    """Draw a position from the prior; a learned dispersion starts at 1."""
    keys = random.split(key, 4)
    position = draw_prior_of("usage", keys[:2], density, data)
    position |= draw_prior_of("basis", keys[2:], density, data)
    start = 1.0 if density.dispersion.value is None else density.dispersion.value
    return position | {"dispersion": jnp.asarray(start, jnp.result_type(float))}


def rows_as_codes(key, density: HammingDensity, data: PackedData) -> dict:
    """Return a position to start from: the codes are random rows of the data, the rest is drawn."""
    key_rows, key_rest = random.split(key)
    rows, rank = density.shape[0], density.rank
    chosen = random.choice(key_rows, rows, (rank,), replace=rank > rows)
    words = data.by_row.ones.reshape(-1, data.by_row.ones.shape[-1])
    return draw_prior(key_rest, density, data) | {"basis": words[chosen]}


def score_weights(dispersion, rank) -> ScoreWeights:
    """Return the log likelihoods of an entry by its score."""
    return ScoreWeights(_log_likelihoods(dispersion, rank))


def _log_likelihoods(dispersion, rank):
    """Return the log likelihood of an entry of each score, from -rank to rank."""
    scores = jnp.arange(-rank, rank + 1, dtype=dispersion.dtype)
    return jax.nn.log_sigmoid(dispersion * scores)


def _log_likelihood(dispersion, counts):
    rank = len(counts) // 2
    return jnp.sum(counts.astype(dispersion.dtype) * _log_likelihoods(dispersion, rank))


def _draw_dispersion(key, dispersion, counts, prior, inverse_temperature):
    """Draw the dispersion v / (1 - v) by slice sampling of the share v."""

    def log_density(share):
        value = share / (1.0 - share)
        tempered = inverse_temperature * _log_likelihood(value, counts)
        return tempered + prior.log_prob(value) - 2.0 * jnp.log1p(-share)

    share = slice_sample(key, dispersion / (1.0 + dispersion), log_density, 0.0, 1.0)
    # At most the largest share below one: a share of one would be an infinite dispersion.
    share = jnp.minimum(share, 1.0 - jnp.finfo(share.dtype).epsneg)
    return share / (1.0 - share)
