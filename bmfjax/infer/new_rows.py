r"""The usage of rows that a Boolean fit has not seen, given its draws of everything else.

Given the basis, the flip rates and the densities, rows are independent of each other. Up to
`MAX_SUMMED_RANK` factors `expected_usage` sums over every set of factors:

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
from scipy.special import expit, log_expit

from bmfjax.data import BinaryMatrix
from bmfjax.data.blocks import blocks, spaced
from bmfjax.data.errors import InputError
from bmfjax.infer.given_draws import given_every_draw
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import gibbs, update_bits
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.variants import deep, effects
from bmfjax.kernels.variants.hamming import score_weights, with_mask
from bmfjax.kernels.variants.observed_entries import observed_entries
from bmfjax.kernels.variants.scores import score_usage

#: Factors up to which all 2^rank sets are summed over.
MAX_SUMMED_RANK = 8
#: Draws of the fit that are used, evenly spread, and Gibbs sweeps over the new rows for each.
MAX_DRAWS, SWEEPS = 400, 3
#: Sweeps with effects for each draw, and visits of the first draw before.
EFFECT_SWEEPS, SETTLE = 5, 20
#: Rates and densities keep this far from 0 and 1, where impossible rows would have no mean.
EDGE = 1e-12


def usage_of_new_rows(new: BinaryMatrix, basis_draws, others: Mapping) -> np.ndarray:
    """Return the posterior means (rows, rank) of the usage of new rows, averaged over draws.

    `basis_draws` are `PackedDraws`; `others` holds `flip_rate` (chain, draw) or (chain, draw, 2),
    and `usage_density` (chain, draw, rank). A row of which nothing is observed gets the densities.
    """
    density = learned_density(others)
    usage = expected_usage if basis_draws.shape[-1] <= MAX_SUMMED_RANK else sampled_usage
    return usage(new, basis_draws, others["flip_rate"], density)


def chance_in_new_rows(new: BinaryMatrix, basis_draws, others: Mapping, i, j) -> np.ndarray:
    """Return the probability that an observation is a one, of further cells (cell,) of new rows.

    Given the cells of the rows `i` that `new` observes, averaged over draws; arguments as of
    `usage_of_new_rows`.
    """
    density = learned_density(others)
    cells = expected_cells if basis_draws.shape[-1] <= MAX_SUMMED_RANK else sampled_cells
    return cells(new, basis_draws, others["flip_rate"], density, i, j)


def learned_density(others: Mapping) -> np.ndarray:
    """Return the densities (chain, draw, rank) of the usage, or refuse to tell of new rows."""
    if "usage_density" not in others:
        raise InputError(
            "the prior of the usage was given bit by bit and says nothing of new rows; fit with a "
            "density to transform others"
        )
    return others["usage_density"]


# ---- few factors: the sum over all sets ----------------------------------------------------------


def expected_usage(new: BinaryMatrix, basis_draws, flip_rate, usage_density) -> np.ndarray:
    """Return the means (rows, rank), exact for every draw of everything else.

    For a fitted row they estimate the same as the draws of its usage do, with less noise.
    """
    return usage_by_sets(new, basis_draws, flip_rate, *independent_bits(usage_density))


def usage_by_sets(new: BinaryMatrix, basis_draws, flip_rate, sets, log_prior) -> np.ndarray:
    """Return the means (rows, rank) by the sum over sets (sets, rank) that a row may use.

    ``log_prior(draw)`` (sets,) is what a draw of everything else, by its number among those of all
    chains, says of the sets beforehand.
    """
    out = np.zeros((new.num_rows, basis_draws.shape[-1]))
    for block, weights, _, _ in _weighted_sets(new, basis_draws, flip_rate, sets, log_prior):
        out[block] += weights @ sets
    return np.clip(out, 0.0, 1.0)


def expected_cells(new: BinaryMatrix, basis_draws, flip_rate, usage_density, i, j) -> np.ndarray:
    """Return the probability that an observation is a one, of cells (cell,) of new rows.

    Sums over the sets of a row's factors for every draw of everything else, as `expected_usage`.
    """
    return cells_by_sets(new, basis_draws, flip_rate, *independent_bits(usage_density), i, j)


def cells_by_sets(new, basis_draws, flip_rate, sets, log_prior, i, j) -> np.ndarray:
    """Return what `expected_cells` does, by the sum over sets that `usage_by_sets` makes."""
    out = np.zeros(len(i))
    for block, weights, cover, (f0, f1) in _weighted_sets(
        new, basis_draws, flip_rate, sets, log_prior
    ):
        at = np.flatnonzero((i >= block.start) & (i < block.stop))
        covered = (weights @ cover)[i[at] - block.start, j[at]]
        # The weights of a row sum to the share of a draw.
        out[at] += f0 * weights[0].sum() + (1 - f0 - f1) * covered
    return np.clip(out, 0.0, 1.0)


def all_sets(rank: int) -> np.ndarray:
    """Return every set of factors, (2^rank, rank) float."""
    return (np.arange(2**rank)[:, None] >> np.arange(rank) & 1).astype(float)


def independent_bits(usage_density):
    """Return all sets and their log prior for bits with densities (chain, draw, rank)."""
    rank = usage_density.shape[-1]
    densities = np.clip(np.reshape(usage_density, (-1, rank)).astype(float), EDGE, 1 - EDGE)
    sets = all_sets(rank)
    return sets, lambda draw: sets @ (np.log(densities[draw]) - np.log1p(-densities[draw]))


def one_of_each(weights):
    """Return the sets of one factor, and their log prior for weights (chain, draw, rank)."""
    rank = weights.shape[-1]
    flat = np.reshape(weights, (-1, rank)).astype(float)
    return np.eye(rank), lambda draw: np.log(np.maximum(flat[draw], EDGE))


def layered_bits(basis_draws, flip_rates, usage_density):
    r"""Return all sets of the first layer's factors, and their log prior by the layers above.

    .. math::
        p(z^{(1)}) = \sum_{z^{(L)}} p(z^{(L)}) \sum_{z^{(L - 1)}} p(z^{(L - 1)} \mid z^{(L)}) \cdots
        p(z^{(1)} \mid z^{(2)})

    `basis_draws` (chain, draw, rank below, rank) and `flip_rates` are of the layers above the
    first, from the second upwards; `usage_density` is of the top layer.
    """
    tops, of_top = independent_bits(usage_density)
    layers = [np.reshape(b, (-1, *b.shape[2:])).astype(float) for b in basis_draws]
    rates = [rates_of_draws(f, len(layers[0])) for f in flip_rates]

    def log_prior(draw):
        score, above = of_top(draw), tops
        chance = np.exp(score - np.logaddexp.reduce(score))
        for basis, rate in reversed(list(zip(layers, rates, strict=True))):
            f0, f1 = rate[draw]
            one = np.where(above @ basis[draw].T > 0.5, 1 - f1, f0)  # (sets above, rank below)
            below = all_sets(basis.shape[1])
            chance = chance @ np.exp(np.log(one) @ below.T + np.log1p(-one) @ (1 - below).T)
            above = below
        return np.log(np.maximum(chance, 1e-300))

    return all_sets(layers[0].shape[1]), log_prior


def rates_of_draws(flip_rate, number) -> np.ndarray:
    """Return the rates of zeros and of ones of every draw, (number, 2) float64."""
    rates = np.asarray(flip_rate, float).reshape(number, -1)
    return np.clip(np.broadcast_to(rates, (number, 2)), EDGE, 1 - EDGE)


def _weighted_sets(new, basis_draws, flip_rate, sets, log_prior):
    """Yield blocks of rows, for every draw: the posterior weight of each set of factors of a row.

    That is (slice of rows, (row, sets) weights that sum to 1 over sets and draws, (sets, columns)
    columns that each set covers, both flip rates).
    """
    chains, draws, num_columns, _ = basis_draws.shape
    rates = rates_of_draws(flip_rate, chains * draws)
    chosen = spaced(chains * draws, MAX_DRAWS, down=True)
    priors = [log_prior(c) for c in chosen]
    covered = [covers(sets, basis_draws[c // draws, c % draws]) for c in chosen]
    for block in blocks(new.num_rows, max(num_columns, len(sets))):
        # Counts are whole numbers, so that sums do not depend on the rows beside a row.
        rows, columns = np.arange(new.num_rows)[block], np.arange(num_columns)
        ones, missing = (part.astype(np.float32) for part in new.part(rows, columns))
        missing = missing if missing.any() else None
        for cover, rate, prior in zip(covered, rates[chosen], priors, strict=True):
            scores = prior + _log_likelihood(ones, missing, cover, *rate)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True) * len(chosen)
            yield block, weights, cover, rate


def covers(sets, basis):
    """Return the columns that each set of factors covers, (sets, columns)."""
    return (sets @ np.asarray(basis, float).T > 0.5).astype(np.float32)


def _log_likelihood(ones, missing, cover, f0, f1):
    """Return it of each row under each set of factors, less the empty set's: (rows, sets)."""
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
    look = look_at_usage(new.num_rows)
    return _mean_over_draws(new, basis_draws, flip_rate, usage_density, look).T


def sampled_cells(new: BinaryMatrix, basis_draws, flip_rate, usage_density, i, j) -> np.ndarray:
    """Return the probability that an observation is a one, of cells (cell,) of new rows.

    As `sampled_usage`, from draws of the bits.
    """
    look = look_at_cells(new.shape, i, j)
    return _mean_over_draws(new, basis_draws, flip_rate, usage_density, look)


def _flips(new, rank):
    """Return new rows as lines, the update of bits by flips, and its weights of flip rates."""
    return packed_data(new).by_row, gibbs, flip_rates.weights


def _mean_over_draws(new, basis_draws, flip_rate, usage_density, look, rule=_flips) -> np.ndarray:
    """Return the mean of ``look(words of the usage, words of the basis, flip rate)``.

    ``rule(new, rank)`` are the rows as lines, the update of bits of a likelihood, and what its
    weights are of a flip rate.
    """
    draws = [v.reshape(-1, *v.shape[2:]) for v in (basis_draws.words, flip_rate, usage_density)]
    chosen = spaced(len(draws[0]), MAX_DRAWS, down=True)
    kept = [jnp.asarray(d[chosen]) for d in draws]
    lines, *rule = rule(new, basis_draws.shape[-1])
    total = _total_over_draws(random.key(0), lines, *kept, new.num_rows, look, rule)
    return np.asarray(total, np.float64) / len(chosen)


def _total_over_draws(key, lines, basis, rates, densities, size, look, rule):
    update, weights_of = rule

    def one_draw(carry, draw):
        words, total = carry
        key, partner, rate, density = draw
        odds = (jnp.log(density) - jnp.log1p(-density))[:, None]

        def sweep(i, words):
            k, weights = random.fold_in(key, i), weights_of(rate)
            return update_bits(k, words, partner, lines, size, odds, weights, update)[0]

        words = lax.fori_loop(0, SWEEPS, sweep, words)
        return (words, total + look(words, partner, rate)), None

    check_fork()

    @jax.jit
    def run(key, lines, basis, rates, densities):
        keys = random.split(key, len(basis))
        start = jnp.zeros((basis.shape[1], -(-size // 32)), jnp.uint32)
        shown = jax.eval_shape(look, start, basis[0], rates[0])
        total = jnp.zeros(shown.shape, jnp.promote_types(shown.dtype, jnp.int32))
        return lax.scan(one_draw, (start, total), (keys, basis, rates, densities))[0][1]

    return run(key, lines, basis, rates, densities)


# ---- layers: Gibbs sampling ----------------------------------------------------------------------


def sampled_layers(new: BinaryMatrix, ranks, draws: Mapping, look) -> np.ndarray:
    """Return the mean of ``look(words of the usage, words of the basis, flip rate)`` over draws.

    The usage of all layers is drawn, a few sweeps for each draw of the rest, from where those of
    the draw before ended. `draws` has the sites of a position of `bmfjax.kernels.deep_ormachine`
    but for the usage, each (draw, ...), the bases packed.
    """
    density = deep.DeepDensity(new.shape, tuple(ranks))
    chosen = spaced(len(draws["basis_1"]), MAX_DRAWS, down=True)
    kept, data = {n: jnp.asarray(v[chosen]) for n, v in draws.items()}, deep.deep_data(new)
    empty = {
        f"usage_{number}": jnp.zeros((rank, -(-new.num_rows // 32)), jnp.uint32)
        for number, rank in enumerate(ranks, 1)
    }

    def shown(usage, known):
        return look(usage["usage_1"], known["basis_1"], known["flip_rate_1"])

    check_fork()

    @jax.jit
    def run(key, kept, data):
        def one_draw(carry, at):
            usage, total = carry
            key, known = at

            def sweep(i, usage):
                key_sweep = random.fold_in(key, i)
                drawn = deep.usage_sweep(key_sweep, density, known | usage, data)
                return {n: drawn[n] for n in usage}

            usage = lax.fori_loop(0, SWEEPS, sweep, usage)
            return (usage, total + shown(usage, known)), None

        first = jax.tree.map(lambda leaf: leaf[0], kept)
        like = jax.eval_shape(shown, empty, first)
        total = jnp.zeros(like.shape, jnp.promote_types(like.dtype, jnp.int32))
        keys = random.split(key, len(chosen))
        return lax.scan(one_draw, (empty, total), (keys, kept))[0][1]

    return np.asarray(run(random.key(0), kept, data), np.float64) / len(chosen)


def look_at_usage(size: int):
    """Return the `look` of `sampled_layers` at the bits of the usage, (rank, rows)."""
    return lambda words, basis, rate: unpack_last_axis(words, size)


def look_at_cells(shape, i, j):
    """Return the `look` at the probability that an observation of a cell is a one, (cell,)."""
    rows, columns = shape

    def chance(words, basis, rate):
        bits = unpack_last_axis(words, rows)[:, i] & unpack_last_axis(basis, columns)[:, j]
        f0, f1 = jnp.broadcast_to(rate, (2,))
        return jnp.where(bits.any(0), 1 - f1, f0)

    return chance


# ---- the Hamming machine -------------------------------------------------------------------------


def usage_by_codes(new: BinaryMatrix, basis_draws, others: Mapping) -> np.ndarray:
    """Return what `usage_of_new_rows` does, of the Hamming machine; `others` has `dispersion`."""
    size, density = others["dispersion"], learned_density(others)
    if basis_draws.shape[-1] > MAX_SUMMED_RANK:
        look = look_at_usage(new.num_rows)
        return _mean_over_draws(new, basis_draws, size, density, look, _scores).T
    out = np.zeros((new.num_rows, basis_draws.shape[-1]))
    for block, weights, _ in _weighted_codes(new, basis_draws, size, density):
        out[block] += weights @ all_sets(out.shape[1])
    return np.clip(out, 0.0, 1.0)


def chance_by_codes(new: BinaryMatrix, basis_draws, others: Mapping, i, j) -> np.ndarray:
    """Return what `chance_in_new_rows` does, of the Hamming machine."""
    size, density = others["dispersion"], learned_density(others)
    if basis_draws.shape[-1] > MAX_SUMMED_RANK:
        rows, columns = new.shape

        def look(words, basis, rate):
            used, code = unpack_last_axis(words, rows)[:, i], unpack_last_axis(basis, columns)[:, j]
            return jax.nn.sigmoid(rate * jnp.sum(used * (2 * code.astype(int) - 1), axis=0))

        return _mean_over_draws(new, basis_draws, size, density, look, _scores)
    out = np.zeros(len(i))
    for block, weights, log_odds in _weighted_codes(new, basis_draws, size, density):
        at = np.flatnonzero((i >= block.start) & (i < block.stop))
        out[at] += (weights @ expit(log_odds))[i[at] - block.start, j[at]]
    return np.clip(out, 0.0, 1.0)


def _scores(new, rank):
    """Return new rows as lines, the update of bits by scores, and its weights of a dispersion."""
    lines = with_mask(packed_data(new), new.shape).by_row
    return lines, score_usage, lambda dispersion: score_weights(dispersion, rank)


def _weighted_codes(new, basis_draws, dispersion, usage_density):
    """Yield blocks of rows, for every draw, as `_weighted_sets` does.

    That is (slice of rows, (row, sets) weights that sum to 1 over sets and draws, (sets, columns)
    log odds of a one).
    """
    chains, draws, num_columns, _ = basis_draws.shape
    sets, log_prior = independent_bits(usage_density)
    chosen, sizes = spaced(chains * draws, MAX_DRAWS, down=True), np.ravel(dispersion).astype(float)
    for block in blocks(new.num_rows, max(num_columns, len(sets))):
        ones, missing = new.part(np.arange(new.num_rows)[block], np.arange(num_columns))
        ones, missing = ones.astype(float), missing.astype(float)
        for c in chosen:
            codes = 2.0 * np.asarray(basis_draws[c // draws, c % draws], float).T - 1.0
            log_odds = sizes[c] * (sets @ codes)
            of_ones, of_zeros = log_expit(log_odds), log_expit(-log_odds)
            scores = log_prior(c) + ones @ of_ones.T + (1.0 - ones - missing) @ of_zeros.T
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True) * len(chosen)
            yield block, weights, log_odds


# ---- effects: Gibbs sampling ---------------------------------------------------------------------


def drawn_with_effects(new: BinaryMatrix, basis_draws, others: Mapping, seed: int) -> dict:
    """Draw the usage and the effects of new rows given every draw of the rest.

    A draw sweeps over the bits and the effects of the rows `EFFECT_SWEEPS` times, from where the
    draw before ended; the first draw is visited `SETTLE` times. Returns `usage`, packed words
    (chain, draw, rank, words), and `row_effect` (chain, draw, rows).
    """
    rows, columns = new.shape
    i, j = np.nonzero(new.observed())
    data = observed_entries(i, j, new.dense()[i, j] > 0.5, (rows, columns))
    names = ("usage_density", "dispersion", "intercept", "column_effect", "row_precision")
    known = {n: np.asarray(others[n]) for n in names} | {"words": basis_draws.words}
    rank = basis_draws.shape[-1]
    start = {"usage": jnp.zeros((rows, rank), jnp.int32), "row_effect": jnp.zeros(rows)}

    def sweep(key, drawn, known, data):
        key_bits, key_effect = random.split(key)
        basis = unpack_last_axis(known["words"], columns).T.astype(jnp.int32)
        position = known | {"basis": basis} | drawn
        position, _ = effects.draw_bits(key_bits, "row", position, data)
        position, _ = effects.draw_effects(key_effect, "row", position, data)
        return {n: position[n] for n in drawn}

    return given_every_draw(
        sweep, start, known, data, sweeps=EFFECT_SWEEPS, settle=SETTLE, seed=seed,
        keep=lambda drawn: drawn | {"usage": pack_last_axis(drawn["usage"].T != 0)},
    )  # fmt: skip
