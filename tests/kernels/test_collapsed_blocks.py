"""Bits with one factor matrix summed out: exact, by enumeration of the whole posterior."""

import numpy as np
import pytest
from jax import numpy as jnp
from jax import random, vmap
from scipy.stats import chi2

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.moves import collapsed_line as collapsed_blocks
from bmfjax.kernels.boolean.moves.collapsed_line import collapsed
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK, DENSITY, RATES = 4, 3, 2, 0.3, (0.1, 0.2)
NUM_DRAWS = 40_000


@pytest.fixture(scope="module")
def posterior():
    """The data, and the probability of every usage (first axis) and basis."""
    rng = np.random.default_rng(0)
    values = (rng.random((ROWS, COLUMNS)) < 0.5).astype(float)
    values[1, 2] = np.nan
    usages, bases = (every(lines) for lines in (ROWS, COLUMNS))
    product = np.einsum("aik,bjk->abij", usages, bases) > 0
    one = np.where(product, 1 - RATES[1], RATES[0])
    likelihood = np.where(values == 1, np.log(one), np.log1p(-one))
    log_p = np.where(np.isnan(values), 0.0, likelihood).sum((2, 3))
    for axis, bits in enumerate((usages, bases)):
        ones = bits.sum((1, 2))
        log_prior = ones * np.log(DENSITY) + (bits[0].size - ones) * np.log1p(-DENSITY)
        log_p += np.expand_dims(log_prior, 1 - axis)
    p = np.exp(log_p - log_p.max())
    return values, p / p.sum()


def every(lines, rank=RANK):
    """All bits (state, lines, rank)."""
    numbers = np.arange(2 ** (lines * rank))[:, None]
    return ((numbers >> np.arange(lines * rank)) & 1).reshape(-1, lines, rank)


def number_of(words, lines):
    bits = np.asarray(unpack_last_axis(words, lines)).transpose(0, 2, 1)
    return (bits.reshape(len(bits), -1).astype(int) << np.arange(lines * RANK)).sum(1)


def moved(posterior, rates=RATES, temperature=1.0, **options):
    """One move from exact draws: counts of the states after it, and the share that changed."""
    values, p = posterior
    drawn = np.random.default_rng(1).choice(p.size, NUM_DRAWS, p=p.ravel())
    usage, basis = np.divmod(drawn, p.shape[1])
    position = {
        "usage": pack_last_axis(jnp.asarray(every(ROWS)[usage].transpose(0, 2, 1) > 0)),
        "basis": pack_last_axis(jnp.asarray(every(COLUMNS)[basis].transpose(0, 2, 1) > 0)),
        "flip_rate": jnp.tile(jnp.asarray(rates), (NUM_DRAWS, 1)),
    }
    fixed = BitPrior(None, DENSITY)
    density = BooleanDensity((ROWS, COLUMNS), RANK, fixed, fixed, FlipRatePrior(2, value=rates))
    move, data = collapsed(density, **options), packed_data(BinaryMatrix(values))
    run = fast_jit(vmap(lambda k, q: move(k, q, data, temperature)[0]))
    after = run(random.split(random.key(2), NUM_DRAWS), position)
    states = number_of(after["usage"], ROWS), number_of(after["basis"], COLUMNS)
    counts = np.zeros(p.shape)
    np.add.at(counts, states, 1)
    return counts, (states[1] != basis).mean()


def p_value(counts, p):
    """Of the chi-squared test, states that are rare taken together."""
    expected = NUM_DRAWS * p
    often = expected >= 5
    seen = np.append(counts[often], counts[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    return chi2.sf(((seen - expected) ** 2 / expected).sum(), len(seen) - 1)


@pytest.mark.parametrize("options", [{"summed": "usage"}, {"summed": "basis", "block_size": 1}])
def test_the_posterior_is_left_as_it_is(posterior, options):
    counts, changed = moved(posterior, **options)
    assert p_value(counts, posterior[1]) > 1e-3
    assert changed > 0.3


def test_a_move_at_another_temperature_or_with_other_rates_does_not(posterior):
    assert p_value(moved(posterior, temperature=0.8)[0], posterior[1]) < 1e-6
    assert p_value(moved(posterior, rates=(0.13, 0.2))[0], posterior[1]) < 1e-6


def test_few_lines_are_visited_where_all_are_too_much_work(posterior, monkeypatch):
    monkeypatch.setattr(collapsed_blocks, "WORK", 1)
    counts, _ = moved(posterior, summed="usage")
    assert p_value(counts, posterior[1]) > 1e-3


def test_bits_that_are_fixed_stay():
    odds = np.full((6, 2), np.nan)
    odds[0], odds[1] = np.inf, -np.inf
    data = packed_data(BinaryMatrix(np.eye(6)), usage_log_odds=odds)
    density = BooleanDensity((6, 6), 2, BitPrior(None, 0.5), BitPrior(None, 0.5))
    start = np.zeros((6, 2), bool)
    start[0] = True
    position = {
        "usage": pack_last_axis(jnp.asarray(start.T)),
        "basis": pack_last_axis(jnp.asarray(start.T)),
        "flip_rate": jnp.asarray(0.2),
    }
    for summed in ("usage", "basis"):
        move = fast_jit(collapsed(density, summed=summed))
        for key in random.split(random.key(0), 5):
            position, _ = move(key, position, data)
            usage = np.asarray(unpack_last_axis(position["usage"], 6))
            assert usage[:, 0].all() and not usage[:, 1].any()


def test_bad_options_are_refused():
    density = BooleanDensity((4, 3), 2)
    with pytest.raises(InputError, match="block_size is 9"):
        collapsed(density, block_size=9)
    with pytest.raises(InputError, match="summed is 'rows'"):
        collapsed(density, summed="rows")
