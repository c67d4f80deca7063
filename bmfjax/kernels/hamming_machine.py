r"""The Hamming machine: Gibbs sampling on packed words where the factors of a row vote.

Every factor that a row uses pulls the row towards its code, by the Hamming distance between them,

.. math::

   P(x_{ij} = 1) = \sigma\Big(\lambda \sum_k z_{ik} (2 u_{jk} - 1)\Big),

a variant of the OrMachine (Rukat, Holmes, Titsias, Yau 2017, "Bayesian Boolean Matrix
Factorisation", ICML). The bits are drawn as in `bmfjax.kernels.bit_votes`. Given them, the
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

from bmfjax.data.errors import InputError
from bmfjax.data.matrix import BinaryMatrix
from bmfjax.data.packed import PackedMatrix, pack_on_host
from bmfjax.kernels import boolean_density
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.beta import draw_beta
from bmfjax.kernels.bit_updates import Lines, update_bits
from bmfjax.kernels.bit_votes import ScoreWeights, score_counts, vote_basis, vote_usage
from bmfjax.kernels.boolean_density import BitPrior
from bmfjax.kernels.packed_lines import PackedData, blocks_of_lines, pack_last_axis, packed_data
from bmfjax.kernels.slice import slice_sample


class DispersionPrior(NamedTuple):
    """What is known of the dispersion beforehand.

    Attributes
    ----------
    log_prob : callable
        Log density on [0, inf), normalised: ``log_prob(dispersion) -> () float``. Default:
        Exponential(1).
    value : float, optional
        Of a dispersion that is known and never changes.
    """

    log_prob: Callable = jnp.negative
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


class HammingState(NamedTuple):
    """`position`: `usage` (rank, words of the rows) and `basis` (rank, words of the columns)
    uint32, `dispersion` (), `usage_density` and `basis_density` (rank,) where learned.
    """

    position: dict


class HammingInfo(NamedTuple):
    """Statistics of one sweep.

    Attributes
    ----------
    log_joint, log_likelihood : () float
        At the draw, the likelihood untempered.
    errors, undecided : () int32
        Observed entries with more votes against their value than for it, and with as many.
    """

    log_joint: jax.Array
    log_likelihood: jax.Array
    errors: jax.Array
    undecided: jax.Array


def hamming_data(matrix: BinaryMatrix, usage_log_odds=None, basis_log_odds=None) -> PackedData:
    """The data of the sampler: as `packed_data`, and what is observed always said.

    Examples
    --------
    >>> hamming_data(BinaryMatrix([[1, 0, 1]])).by_row.observed.tolist()
    [[[7]]]
    """
    data = packed_data(matrix, usage_log_odds, basis_log_odds)
    if data.by_row.observed is not None:
        return data

    def everything(lines, shape):
        ones = pack_on_host(np.ones(shape, bool))
        return lines._replace(observed=blocks_of_lines(PackedMatrix(ones, None)).ones)

    return data._replace(
        by_row=everything(data.by_row, matrix.shape),
        by_column=everything(data.by_column, matrix.shape[::-1]),
    )


def hamming_machine(density: HammingDensity, *, initial: Callable | None = None) -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    density : HammingDensity
    initial : callable, optional
        ``initial(key, data) -> position``; default a draw from the prior. A row that uses no code
        takes none of random bits, so that such a start may stay empty: see `rows_as_codes`.

    Returns
    -------
    Algorithm
        For data of `hamming_data`.

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

    def init(key, position, data):
        start = initial(key, data) if position is None else position
        return HammingState({n: jnp.asarray(v) for n, v in start.items()})

    def step(key, state, data, inverse_temperature=1.0):
        position, counts = sweep(key, density, state.position, data, inverse_temperature)
        likelihood = _log_likelihood(position["dispersion"], counts)
        joint = likelihood + log_prior(density, position, data)
        rank = density.rank
        info = HammingInfo(joint, likelihood, jnp.sum(counts[:rank]), counts[rank])
        return HammingState(position), info

    def observe(state, info):
        return dict(state.position) | info._asdict()

    return Algorithm(init, step, observe)


def sweep(key, density: HammingDensity, position, data: PackedData, inverse_temperature):
    """Draw everything once: the new position, and the entries of each score."""
    if data.by_row.observed is None or data.by_column.observed is None:
        raise InputError("the data do not say what is observed; make them by hamming_data")
    keys, position = random.split(key, 5), dict(position)
    by_score = _log_likelihoods(position["dispersion"], density.rank) * inverse_temperature
    sides = (
        ("usage", "basis", data.by_row, density.shape[0], vote_usage),
        ("basis", "usage", data.by_column, density.shape[1], vote_basis),
    )
    for k, (site, other, lines, size, update) in zip(keys, sides, strict=False):
        odds = boolean_density.log_odds(site, density, position, data)
        position[site], counts = update_bits(
            k, position[site], position[other], lines, size, odds, ScoreWeights(by_score), update
        )
    for k, site in zip(keys[2:4], ("usage", "basis"), strict=True):
        position |= boolean_density.draw_density(k, site, density, position, data)
    counts = jnp.sum(counts, axis=0)
    if density.dispersion.value is None:
        position["dispersion"] = _draw_dispersion(
            keys[4], position["dispersion"], counts, density.dispersion, inverse_temperature
        )
    return position, counts


def log_likelihood(density: HammingDensity) -> Callable:
    """The untempered log likelihood of a state, as `bmfjax.infer.tempering` takes it.

    Returns
    -------
    callable
        ``log_likelihood(state, data)``, () float.
    """

    def of_state(state: HammingState, data: PackedData) -> jax.Array:
        def keep(key, lines: Lines, partner, weights):
            return lines.bits, score_counts(lines, partner)

        words, other = (state.position[n] for n in ("basis", "usage"))
        odds = jnp.zeros((density.rank, 1))
        _, counts = update_bits(
            random.key(0), words, other, data.by_column, density.shape[1], odds, None, keep
        )
        return _log_likelihood(state.position["dispersion"], jnp.sum(counts, axis=0))

    return of_state


def log_prior(density: HammingDensity, position, data) -> jax.Array:
    """Log density of bits, densities and dispersion, without the data: () float."""
    sites = ("usage", "basis")
    total = sum(boolean_density.log_prior_of(site, density, position, data) for site in sites)
    if density.dispersion.value is None:
        total += density.dispersion.log_prob(position["dispersion"])
    return total


def draw_prior(key, density: HammingDensity, data: PackedData) -> dict:
    """A position from the prior; a learned dispersion starts at 1."""
    kind = jnp.result_type(float)
    position, keys = {}, random.split(key, 4)
    for i, (site, size) in enumerate(zip(("usage", "basis"), density.shape, strict=True)):
        prior = getattr(density, site)
        if prior.beta is not None:
            a, b = (jnp.full(density.rank, c, kind) for c in prior.beta)
            position[f"{site}_density"] = jnp.clip(draw_beta(keys[2 * i], a, b), 0.01, 0.99)
        odds = boolean_density.log_odds(site, density, position, data)
        shape = (density.rank, size)
        position[site] = pack_last_axis(random.logistic(keys[2 * i + 1], shape, kind) < odds)
    start = 1.0 if density.dispersion.value is None else density.dispersion.value
    position["dispersion"] = jnp.asarray(start, kind)
    return position


def rows_as_codes(key, density: HammingDensity, data: PackedData) -> dict:
    """A position to start from, whose codes are rows of the data at random; the rest as a draw."""
    key_rows, key_rest = random.split(key)
    rows, rank = density.shape[0], density.rank
    chosen = random.choice(key_rows, rows, (rank,), replace=rank > rows)
    words = data.by_row.ones.reshape(-1, data.by_row.ones.shape[-1])
    return draw_prior(key_rest, density, data) | {"basis": words[chosen]}


def _log_likelihoods(dispersion, rank):
    """Of an entry of each score, from -rank to rank."""
    scores = jnp.arange(-rank, rank + 1, dtype=dispersion.dtype)
    return jax.nn.log_sigmoid(dispersion * scores)


def _log_likelihood(dispersion, counts):
    rank = len(counts) // 2
    return jnp.sum(counts.astype(dispersion.dtype) * _log_likelihoods(dispersion, rank))


def _draw_dispersion(key, dispersion, counts, prior, inverse_temperature):
    """Slice sampling of the share v, of which the dispersion is v / (1 - v)."""

    def log_density(share):
        value = share / (1.0 - share)
        tempered = inverse_temperature * _log_likelihood(value, counts)
        return tempered + prior.log_prob(value) - 2.0 * jnp.log1p(-share)

    share = slice_sample(key, dispersion / (1.0 + dispersion), log_density, 0.0, 1.0)
    # The largest share below one: what is rounded to one would be infinite.
    share = jnp.minimum(share, 1.0 - jnp.finfo(share.dtype).epsneg)
    return share / (1.0 - share)
