"""Updates of packed bits: the law of a whole pass over the factors, by enumeration in NumPy.

Every line starts from bits that are given, and the probability of each of its next states is that
of the pass, written out as a product of matrices over the states of a line.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax import random

from bmfjax.data import InputError
from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.boolean import bits as bits_module
from bmfjax.kernels.boolean import fused
from bmfjax.kernels.boolean import words as packed_lines
from bmfjax.kernels.boolean.bits import Lines, Weights, gibbs, joint, metropolis, update_bits, weigh
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from tests.kernels.exactness import fast_jit, pearson_p_value

SHAPE, RANK, KEYS = (70, 41), 3, 1500
WEIGHTS = (0.45, -0.3)
STATES = np.array(list(itertools.product([False, True], repeat=RANK)))  # (state, rank)
UPDATES = {"metropolis": metropolis, "gibbs": gibbs} | {
    f"joint({size})": joint(size) for size in (1, 2, 3)
}


# ---- the conditional and the pass, written out -------------------------------------------------


def log_densities(values, other, log_odds, weights):
    """Log likelihood (line, state) and prior (line, state, rank), up to a constant of the line.

    `values` (line, entry) with NaN for missing, `other` (entry, rank), `log_odds` (line, rank).
    """
    covered = (STATES[:, None, :] & other).any(-1)  # (state, entry)
    gain = weights[0] * (values == 1) + weights[1] * (values == 0)
    odds = np.where(STATES, 1, -1) * log_odds[:, None]
    return gain @ covered.T, -np.logaddexp(0.0, -odds)


def moved(mask, likelihood, prior, kind):
    """Transition matrix (state, state) of a step that changes the factors of `mask` alone."""
    matrix = np.zeros((len(STATES), len(STATES)))
    log_p = likelihood + prior[:, mask].sum(-1)
    for s, state in enumerate(STATES):
        near = np.flatnonzero((STATES[:, ~mask] == state[~mask]).all(-1))
        p, now = scipy.special.softmax(log_p[near]), near == s
        if kind == "metropolis":
            (stay,), (leave,) = p[now], p[~now]
            ratio = 1.0 if leave >= stay else leave / stay
            p = np.where(now, 1.0 - ratio, ratio)
        matrix[s, near] = p
    return matrix


def law(kind, *densities):
    """Transition matrix of one pass over the factors of a line, random orders averaged."""
    if kind in ("metropolis", "gibbs"):
        steps = [moved(np.arange(RANK) == k, *densities, kind) for k in range(RANK)]
        return functools.reduce(np.matmul, steps)
    size, passes = int(kind[-2]), []
    for order in itertools.permutations(range(RANK)):
        groups = [np.isin(np.arange(RANK), order[i : i + size]) for i in range(0, RANK, size)]
        passes.append(functools.reduce(np.matmul, [moved(g, *densities, "gibbs") for g in groups]))
    return np.mean(passes, axis=0)


# ---- a problem ---------------------------------------------------------------------------------


def problem(side, missing, odds):
    """Values of the lines (line, entry), bits to start from, the other factor's, log odds."""
    r = np.random.default_rng(3)
    values = (r.random(SHAPE) < 0.5).astype(float)
    if missing:
        values[r.random(SHAPE) < 0.3] = np.nan
        values[5], values[:, 7] = np.nan, np.nan  # a whole row and column
    matrix = BinaryMatrix(values)
    values = values if side == "by_row" else values.T
    size, entries = values.shape
    bits = r.random((size, RANK)) < 0.5
    other = r.random((entries, RANK)) < 0.25
    log_odds = r.normal(size=(size, RANK))
    if odds == "of factors":
        log_odds = np.broadcast_to(log_odds[:1], log_odds.shape)
    if odds == "fixed":  # some bits, that start wrong here and there
        log_odds = np.where(r.random(log_odds.shape) < 0.2, np.inf * np.sign(log_odds), log_odds)
    return matrix, values, bits, other, log_odds


def draws_of(side, missing, odds, kind, weights=WEIGHTS, block_words=40, is_fused=False):
    """The problem, and (key, line, rank) draws with their (key, 3) counts."""
    matrix, values, bits, other, log_odds = problem(side, missing, odds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_lines, "BLOCK_WORDS", block_words)
        lines = getattr(packed_data(matrix), side)
    lines = lines._replace(budget=dataclasses.replace(lines.budget, fused=is_fused))
    assert (lines.ones.shape[0] > 1) == (block_words < 100)
    given = log_odds[:1].T if odds == "of factors" else log_odds.T
    weights = Weights(*(jnp.float32(w) for w in weights))
    words, partner = (pack_last_axis(jnp.asarray(b.T)) for b in (bits, other))

    @fast_jit
    def run(keys, words, partner, lines, given):
        def one(key):
            drawn, seen = update_bits(
                key, words, partner, lines, len(values), given, weights, UPDATES[kind]
            )
            return drawn, jnp.stack([c.sum() for c in seen])

        return jax.lax.map(one, keys, batch_size=100)

    keys = random.split(random.key(1), KEYS)
    words, counts = run(keys, words, partner, lines, jnp.asarray(given, jnp.float32))
    np.testing.assert_array_equal(words, pack_last_axis(unpack_last_axis(words, len(values))))
    drawn = np.asarray(unpack_last_axis(words, len(values))).transpose(0, 2, 1)
    return (values, bits, other, log_odds), drawn, np.asarray(counts)


def law_p_value(kind, given, drawn, weights=WEIGHTS):
    """Of Pearson's chi-square of the next states of all lines together."""
    values, bits, other, log_odds = given
    densities = log_densities(values, other, log_odds, weights)
    number = np.arange(2**RANK).reshape((2,) * RANK)
    start = number[tuple(bits.T.astype(int))]
    found = number[tuple(np.moveaxis(drawn.astype(int), -1, 0))]  # (key, line)

    def table(line):
        expected = KEYS * law(kind, *(d[line] for d in densities))[start[line]]
        return np.bincount(found[:, line], minlength=2**RANK), expected

    return pearson_p_value(map(table, range(len(values))))


CASES = [
    ("by_row", True, "each", "metropolis"),
    ("by_column", False, "of factors", "metropolis"),
    ("by_row", False, "fixed", "metropolis"),
    ("by_row", True, "of factors", "gibbs"),
    ("by_column", True, "fixed", "gibbs"),
    ("by_row", False, "each", "joint(1)"),
    ("by_column", True, "fixed", "joint(2)"),
    ("by_row", True, "of factors", "joint(3)"),
]


@pytest.mark.parametrize(
    ("side", "missing", "odds", "kind", "is_fused"),
    [(*case, False) for case in CASES]
    + [(*CASES[1], True), pytest.param(*CASES[4], True, marks=pytest.mark.long)],
)
@pytest.mark.device
def test_a_pass_has_the_law_of_its_conditionals(side, missing, odds, kind, is_fused):
    given, drawn, counts = draws_of(side, missing, odds, kind, is_fused=is_fused)
    assert law_p_value(kind, given, drawn) > 1e-3
    values, _, other, _ = given
    covered = np.einsum("slk,ek->sle", drawn[:5].astype(int), other) > 0
    expected = [covered & (values == 1), covered & (values == 0), ~covered & (values == 1)]
    np.testing.assert_array_equal(counts[:5].T, [e.sum((1, 2)) for e in expected])


def test_metropolis_is_not_gibbs_and_the_test_sees_it():
    given, drawn, _ = draws_of("by_row", True, "each", "metropolis")
    assert law_p_value("gibbs", given, drawn) < 1e-8
    assert law_p_value("metropolis", given, drawn, weights=(0.5, -0.3)) < 1e-8


@pytest.mark.device
def test_draws_do_not_depend_on_other_lines_of_the_last_block():
    """One block or several: the law is the same, and bits fixed beforehand are as they must be."""
    given, drawn, _ = draws_of("by_row", False, "fixed", "gibbs", block_words=8192)
    assert law_p_value("gibbs", given, drawn) > 1e-3
    fixed = np.isinf(given[3])
    assert (drawn[:, fixed] == (given[3][fixed] > 0)).all() and fixed.sum() > 20


@pytest.mark.parametrize("kind", ["metropolis", pytest.param("gibbs", marks=pytest.mark.long)])
def test_a_loop_over_factors_that_is_unrolled_draws_the_same_bits(kind, monkeypatch):
    """Large data have the loop unrolled, at ranks that compile soon enough."""
    arguments = "by_row", True, "each", kind
    _, looped, counts = draws_of(*arguments)
    monkeypatch.setattr(bits_module, "UNROLLED_WORDS", 2)
    _, unrolled, same = draws_of(*arguments)
    np.testing.assert_array_equal(unrolled, looped)
    np.testing.assert_array_equal(same, counts)


def test_the_loop_is_unrolled_by_the_words_of_all_lines_and_the_rank(monkeypatch):
    asked = []

    def update(key, lines, partner, weights):
        asked.append(lines.unroll)
        return metropolis(key, lines, partner, weights)

    def lower(size, rank):
        matrix = BinaryMatrix(np.zeros((size, 64), bool))
        words, partner = (jnp.zeros((rank, -(-n // 32)), jnp.uint32) for n in (size, 64))
        weights, odds = Weights(*jnp.ones(2)), jnp.zeros((rank, 1))
        lines = packed_data(matrix).by_row
        jax.eval_shape(
            lambda key: update_bits(key, words, partner, lines, size, odds, weights, update),
            random.key(0),
        )
        return asked[-1]

    monkeypatch.setattr(bits_module, "UNROLLED_WORDS", 200)
    monkeypatch.setattr(bits_module, "UNROLLED_RANK", 5)
    assert [lower(99, 5), lower(100, 5), lower(100, 6)] == [1, 5, 1]


# ---- one kernel for all lines -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "missing", "kind", "tiles"),
    [
        ((13, 3, 3), True, "metropolis", None),
        ((9, 40, 5), False, "gibbs", fused.Tiles(2, 1, 1)),
        pytest.param((6, 70, 4), True, "metropolis", fused.Tiles(4, 2, 2), marks=pytest.mark.long),
        # Two words of factors, and counts that 16 bits do not hold.
        pytest.param(
            (5, 33, 40), False, "metropolis", fused.Tiles(1, 1, 2), marks=pytest.mark.long
        ),
        pytest.param((3, 2100, 2), True, "gibbs", fused.Tiles(1, 1, 4), marks=pytest.mark.long),
    ],
)
def test_one_kernel_draws_the_bits_of_the_array_code(shape, missing, kind, tiles):
    size, width, rank = shape
    r = np.random.default_rng(0)
    words = lambda *shape: r.integers(0, 2**32, shape, dtype=np.uint32)  # noqa: E731
    observed = words(size, width) | words(size, width) if missing else np.uint32(0xFFFFFFFF)
    ones, partner = words(size, width) & observed, words(rank, width) & words(rank, width)
    bits, odds = r.random((rank, size)) < 0.4, r.normal(size=(rank, size)).astype(np.float32)
    odds[0, 0], odds[1, -1] = -np.inf, np.inf
    weights = Weights(jnp.float32(0.03), jnp.float32(-0.05))
    lines = Lines(*map(jnp.asarray, (ones, observed, bits, odds)))
    lines = lines if missing else dataclasses.replace(lines, observed=None)
    key, thresholds = random.key(1), bits_module.THRESHOLDS[UPDATES[kind]]

    @fast_jit
    def both(lines, partner):
        drawn, seen = UPDATES[kind](key, lines, partner, weights)
        noise = thresholds(key, bits.shape, odds.dtype)
        given = lines.ones, lines.observed, partner, lines.bits, lines.log_odds, noise, weights
        return (drawn, jnp.stack(seen)), fused.draw(kind, *given, tiles)

    (drawn, seen), (found, counts) = both(lines, jnp.asarray(partner))
    np.testing.assert_array_equal(found, drawn)
    np.testing.assert_array_equal(counts.sum(1), seen)
    assert 0.1 < (drawn != bits).mean() < 0.9


def test_all_blocks_are_drawn_in_one_kernel_with_the_random_numbers_of_their_own():
    arguments = "by_column", True, "each", "metropolis"
    _, drawn, counts = draws_of(*arguments)
    _, found, same = draws_of(*arguments, is_fused=True)
    np.testing.assert_array_equal(found, drawn)
    np.testing.assert_array_equal(same, counts)


@pytest.mark.parametrize("shape", [(1, 1, 1), (10, 10**6, 40_000), (64, 100, 10**5), (20, 500, 9)])
def test_tiles_are_few_lines_of_many_factors_and_counts_fit_into_half_a_word(shape):
    rank, lines, words = shape
    each, warps, unrolled = fused.tiles_for(rank, lines, words)
    assert each == 1 or each * rank <= fused.MOST_MASKS
    assert warps * fused.MOST_CHUNKS * 32 >= words and 1 <= unrolled <= fused.UNROLLED
    assert fused.knows(rank, words) and not fused.knows(65, words) and not fused.knows(1, 10**7)


# ---- counts that float32 does not hold ---------------------------------------------------------


def test_large_counts_that_nearly_balance_are_weighed_to_the_entry():
    """Of 2^25 entries one more one than zeros: float32 would take both for 2^24."""
    ones, zeros = jnp.int32(2**24 + 1), jnp.int32(2**24)
    with jax.numpy_dtype_promotion("strict"):
        one_rate = weigh(Weights(jnp.float32(2.0), jnp.float32(-2.0)), ones, zeros)
        two_rates = weigh(Weights(jnp.float32(2.0), jnp.float32(-1.0)), ones, zeros)
    assert one_rate == 2.0 and one_rate.dtype == jnp.float32
    np.testing.assert_allclose(two_rates, 2.0 * (2**24 + 1) - 2**24, rtol=1e-6)


@pytest.mark.parametrize("kind", ["metropolis", "gibbs", "joint(2)"])
@pytest.mark.device
def test_a_million_entries_that_nearly_balance_leave_the_bit_undecided(kind):
    """The log odds are 0.4, a difference of two numbers of ten millions."""
    words, size, odds = 2**20 // 32, 16, -40.0
    ones = jnp.full((size, words), 0x55555555, jnp.uint32).at[:, 0].set(0x55555557)
    weights = Weights(jnp.float32(20.2), jnp.float32(-20.2))  # times two more ones than zeros
    odds_now = 2 * 20.2 + odds
    chance = 1 - np.exp(-odds_now) if kind == "metropolis" else scipy.special.expit(odds_now)
    lines = Lines(ones, None, jnp.ones((1, size), bool), jnp.full((1, size), odds))
    partner = jnp.full((1, words), 0xFFFFFFFF, jnp.uint32)

    @fast_jit
    def run(keys, *given):
        return jax.lax.map(lambda key: UPDATES[kind](key, *given)[0].mean(), keys)

    drawn = run(random.split(random.key(0), 50), lines, partner, weights)
    assert abs(drawn.mean() - chance) < 0.07


def test_metropolis_never_makes_an_impossible_move():
    """The logarithm of the smallest uniform number, zero, is below all log odds."""
    size, weights = 2**20, Weights(jnp.float32(1.0), jnp.float32(-1.0))
    uniform = fast_jit(lambda key: random.uniform(key, (1, size)).min())
    key = next(k for k in map(random.key, range(100)) if uniform(k) == 0.0)
    none = jnp.zeros((size, 0), jnp.uint32)
    lines = Lines(none, None, jnp.zeros((1, size), bool), jnp.full((1, size), -500.0))
    bits, _ = fast_jit(metropolis)(key, lines, none[:1], weights)
    assert not bits.any()


# ---- structure ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 9])
def test_groups_of_no_or_too_many_factors_are_refused(size):
    with pytest.raises(InputError, match=f"block_size is {size}; give a whole number from 1 to 8"):
        joint(size)
