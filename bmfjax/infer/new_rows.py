r"""The usage of rows that a Boolean fit has not seen, given its draws of everything else.

Given the basis, the flip rates and the densities, rows are independent of each other. Up to
`MAX_RANK` factors `expected_usage` sums over every set of factors:

.. math::
    E[z_i \mid x_i, u, f, \pi] \propto \sum_z z \prod_k \pi_k^{z_k} (1 - \pi_k)^{1 - z_k}
    \prod_j P\bigl(x_{ij} \mid \textstyle\bigvee_k z_k u_{jk}\bigr)

(likelihood: Rukat, Holmes, Titsias, Yau 2017), so that a row's means do not depend on the rows
beside it. Its cost grows with 2^rank; with more factors `sampled_usage` draws the bits of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data import BinaryMatrix
from bmfjax.data.blocks import blocks, spaced
from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import gibbs, update_bits
from bmfjax.kernels.boolean.words import packed_data, unpack_last_axis

#: Factors up to which all 2^rank sets are summed over.
MAX_RANK = 8
#: Draws of the fit that are used, evenly spread, and Gibbs sweeps over the new rows for each.
MAX_DRAWS, SWEEPS = 400, 3
#: Rates and densities keep this far from 0 and 1, where impossible rows would have no mean.
EDGE = 1e-12


def usage_of_new_rows(new: BinaryMatrix, basis_draws, others: Mapping) -> np.ndarray:
    """Return the posterior means (rows, rank) of the usage of new rows, averaged over draws.

    `basis_draws` are `PackedDraws`; `others` holds `flip_rate` (chain, draw) or (chain, draw, 2),
    and `usage_density` (chain, draw, rank). A row of which nothing is observed gets the densities.
    """
    if "usage_density" not in others:
        raise InputError(_NO_DENSITY)
    usage = expected_usage if basis_draws.shape[-1] <= MAX_RANK else sampled_usage
    return usage(new, basis_draws, others["flip_rate"], others["usage_density"])


def chance_in_new_rows(new: BinaryMatrix, basis_draws, others: Mapping, i, j) -> np.ndarray:
    """Return the probability that an observation is a one, of further cells (cell,) of new rows.

    Given the cells of the rows `i` that `new` observes, averaged over draws; arguments as of
    `usage_of_new_rows`.
    """
    if "usage_density" not in others:
        raise InputError(_NO_DENSITY)
    cells = expected_cells if basis_draws.shape[-1] <= MAX_RANK else sampled_cells
    return cells(new, basis_draws, others["flip_rate"], others["usage_density"], i, j)


_NO_DENSITY = (
    "the prior of the usage was given bit by bit and says nothing of new rows; fit with a density "
    "to transform others"
)


# ---- few factors: the sum over all sets ----------------------------------------------------------


def expected_usage(new: BinaryMatrix, basis_draws, flip_rate, usage_density) -> np.ndarray:
    """Return the means (rows, rank), exact for every draw of everything else.

    Of a fitted row they estimate the same as the draws of its usage do, with less noise.
    """
    out = np.zeros((new.num_rows, basis_draws.shape[-1]))
    for block, weights, sets, _, _ in _weighted_sets(new, basis_draws, flip_rate, usage_density):
        out[block] += weights @ sets
    return np.clip(out, 0.0, 1.0)


def expected_cells(new: BinaryMatrix, basis_draws, flip_rate, usage_density, i, j) -> np.ndarray:
    """Return the probability that an observation is a one, of cells (cell,) of new rows.

    Sums over the sets of a row's factors for every draw of everything else, as `expected_usage`.
    """
    out = np.zeros(len(i))
    for block, weights, _, cover, (f0, f1) in _weighted_sets(
        new, basis_draws, flip_rate, usage_density
    ):
        at = np.flatnonzero((i >= block.start) & (i < block.stop))
        covered = (weights @ cover)[i[at] - block.start, j[at]]
        # The weights of a row sum to the share of a draw.
        out[at] += f0 * weights[0].sum() + (1 - f0 - f1) * covered
    return np.clip(out, 0.0, 1.0)


def _weighted_sets(new, basis_draws, flip_rate, usage_density):
    """Yield blocks of rows, for every draw: the posterior weight of each set of factors of a row.

    That is (slice of rows, (row, sets) weights that sum to 1 over sets and draws, (sets, rank)
    sets, (sets, columns) columns that each set covers, both flip rates).
    """
    chains, draws, num_columns, rank = basis_draws.shape
    rates = np.asarray(flip_rate, float).reshape(chains * draws, -1)
    rates = np.clip(np.broadcast_to(rates, (chains * draws, 2)), EDGE, 1 - EDGE)
    densities = np.clip(np.reshape(usage_density, (-1, rank)).astype(float), EDGE, 1 - EDGE)
    chosen = spaced(chains * draws, MAX_DRAWS, down=True)
    sets = (np.arange(2**rank)[:, None] >> np.arange(rank) & 1).astype(float)
    covers = [_covers(sets, basis_draws[c // draws, c % draws]) for c in chosen]
    for block in blocks(new.num_rows, max(num_columns, len(sets))):
        # Counts are whole numbers, so that sums do not depend on the rows beside a row.
        rows, columns = np.arange(new.num_rows)[block], np.arange(num_columns)
        ones, missing = (part.astype(np.float32) for part in new.part(rows, columns))
        missing = missing if missing.any() else None
        for cover, rate, density in zip(covers, rates[chosen], densities[chosen], strict=True):
            prior = sets @ (np.log(density) - np.log1p(-density))
            scores = prior + _log_likelihood(ones, missing, cover, *rate)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True) * len(chosen)
            yield block, weights, sets, cover, rate


def _covers(sets, basis):
    """Columns that each set of factors covers, (sets, columns)."""
    return (sets @ np.asarray(basis, float).T > 0.5).astype(np.float32)


def _log_likelihood(ones, missing, cover, f0, f1):
    """Of each row under each set of factors, less that under the empty set; (rows, sets)."""
    hits = (ones @ cover.T).astype(float)
    seen = cover.sum(1, dtype=float)
    if missing is not None:
        seen = seen - missing @ cover.T
    return hits * np.log((1 - f1) / f0) + (seen - hits) * np.log(f1 / (1 - f0))


# ---- more factors: Gibbs sampling ----------------------------------------------------------------


def sampled_usage(new: BinaryMatrix, basis_draws, flip_rate, usage_density) -> np.ndarray:
    """Return the means (rows, rank) of draws of the usage, a few sweeps for each draw of the rest.

    The sweeps start where those of the draw before ended.
    """
    size = new.num_rows
    return _mean_over_draws(
        new, basis_draws, flip_rate, usage_density,
        lambda words, basis, rate: unpack_last_axis(words, size),
    ).T  # fmt: skip


def sampled_cells(new: BinaryMatrix, basis_draws, flip_rate, usage_density, i, j) -> np.ndarray:
    """Return the probability that an observation is a one, of cells (cell,) of new rows.

    As `sampled_usage`, from draws of the bits.
    """
    rows, columns = new.shape

    def chance(words, basis, rate):
        bits = unpack_last_axis(words, rows)[:, i] & unpack_last_axis(basis, columns)[:, j]
        f0, f1 = jnp.broadcast_to(rate, (2,))
        return jnp.where(bits.any(0), 1 - f1, f0)

    return _mean_over_draws(new, basis_draws, flip_rate, usage_density, chance)


def _mean_over_draws(new, basis_draws, flip_rate, usage_density, look) -> np.ndarray:
    """Return the mean of ``look(words of the usage, words of the basis, flip rate)``."""
    draws = [v.reshape(-1, *v.shape[2:]) for v in (basis_draws.words, flip_rate, usage_density)]
    chosen = spaced(len(draws[0]), MAX_DRAWS, down=True)
    kept = [jnp.asarray(d[chosen]) for d in draws]
    total = _total_over_draws(random.key(0), packed_data(new).by_row, *kept, new.num_rows, look)
    return np.asarray(total, np.float64) / len(chosen)


def _total_over_draws(key, lines, basis, rates, densities, size, look):
    def one_draw(carry, draw):
        words, total = carry
        key, partner, rate, density = draw
        odds = (jnp.log(density) - jnp.log1p(-density))[:, None]

        def sweep(i, words):
            k, weights = random.fold_in(key, i), flip_rates.weights(rate)
            return update_bits(k, words, partner, lines, size, odds, weights, gibbs)[0]

        words = lax.fori_loop(0, SWEEPS, sweep, words)
        return (words, total + look(words, partner, rate)), None

    @jax.jit
    def run(key, lines, basis, rates, densities):
        keys = random.split(key, len(basis))
        start = jnp.zeros((basis.shape[1], -(-size // 32)), jnp.uint32)
        shown = jax.eval_shape(look, start, basis[0], rates[0])
        total = jnp.zeros(shown.shape, jnp.promote_types(shown.dtype, jnp.int32))
        return lax.scan(one_draw, (start, total), (keys, basis, rates, densities))[0][1]

    return run(key, lines, basis, rates, densities)
