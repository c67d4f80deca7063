"""Draws from counts by code: the counts, and that bits are those of the array code."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.boolean import codes
from bmfjax.kernels.boolean import words as packed_lines
from bmfjax.kernels.boolean.bits import Weights, gibbs, metropolis, update_bits
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.gibbs import ormachine
from bmfjax.kernels.boolean.words import PackedLines, pack_last_axis, packed_data
from tests.kernels.exactness import fast_jit

FULL = codes.ROUND * codes.ROUNDS
ENTRIES, WORDS, RANK = 2 * FULL + 90, 2, 3
WEIGHTS = Weights(jnp.float32(0.03), jnp.float32(-0.05))


@functools.cache
def counting():
    def run(code, data):
        pieces = codes.pieces_of(code, RANK)
        return pieces, codes.count(data, pieces, warps=1)

    return fast_jit(run)


@pytest.mark.device
@given(
    runs=st.lists(st.tuples(st.integers(0, 2**RANK - 1), st.integers(1, 400)), min_size=1),
    seed=st.integers(0, 99),
    chance=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_counts_by_code_are_those_of_the_bits(runs, seed, chance):
    r = np.random.default_rng(seed)
    every = np.concatenate([np.full(length, code, np.int32) for code, length in runs])
    code = r.permutation(np.resize(every, ENTRIES))
    values = r.random((ENTRIES, 32 * WORDS)) < chance
    words = np.asarray(pack_last_axis(values))
    pieces, found = jax.tree.map(np.asarray, counting()(code, words))
    assert sorted(pieces.order) == list(range(ENTRIES))
    # Every place of the order is in one piece, and that has its code.
    places = [np.arange(b, e) for b, e in zip(pieces.begin, pieces.end, strict=True)]
    np.testing.assert_array_equal(np.sort(np.concatenate(places)), np.arange(ENTRIES))
    for own, at in zip(pieces.code, places, strict=True):
        assert (code[pieces.order[at]] == own).all() and len(at) <= FULL
    counts = found[:, :, :WORDS].swapaxes(1, 2).reshape(len(found), -1)
    expected = [values[pieces.order[at]].sum(0) for at in places]
    np.testing.assert_array_equal(counts, expected)


@given(
    rank=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    skew=st.sampled_from([0.0, 0.5, 3.0]),
    most=st.integers(1, 50),
)
def test_as_many_pieces_suffice_as_are_made(rank, seed, skew, most):
    r = np.random.default_rng(seed)
    chance = np.exp(skew * r.normal(size=2**rank))
    entries = r.integers(1, 5000)
    each = r.multinomial(entries, chance / chance.sum())
    for number, size in (codes.num_pieces(rank, entries), (entries // most + 2**rank, most)):
        assert (-(-each // size)).sum() <= number
    assert codes.num_pieces(rank, entries)[0] <= max(2**rank, codes.PIECES) + 2**rank


def problem(shape, rank, missing, used):
    """Return packed data, the bits of rows and of columns, packed, and log odds of the latter."""
    r = np.random.default_rng(1)
    values = (r.random(shape) < 0.4).astype(float)
    if missing:
        values[r.random(shape) < 0.3] = np.nan
        values[3], values[:, 2] = np.nan, np.nan
    usage, basis = r.random((rank, shape[0])) < used, r.random((rank, shape[1])) < 0.4
    odds = r.normal(size=(rank, shape[1])).astype(np.float32)
    odds[0, 0], odds[-1, -1] = -np.inf, np.inf
    factors = (pack_last_axis(jnp.asarray(bits)) for bits in (usage, basis))
    return packed_data(BinaryMatrix(values)), *factors, jnp.asarray(odds)


def always(monkeypatch):
    """Let draws be from counts by code, however small the data are."""
    monkeypatch.setattr(codes, "LEAST_WORK", 0)
    monkeypatch.setattr(codes, "ENTRIES", 0)
    monkeypatch.setattr(codes, "FACTORS", range(1, 13))


def with_kernels(lines):
    return lines._replace(budget=dataclasses.replace(lines.budget, bytes=2**30, fused=True))


@pytest.mark.parametrize(
    ("shape", "rank", "missing", "used", "update"),
    [
        ((2 * FULL + 7, 70), 3, True, 0.4, metropolis),  # several pieces of a code
        ((300, 33), 5, False, 0.1, gibbs),  # empty codes, a word of one column
        pytest.param((90, 41), 1, True, 1.0, gibbs, marks=pytest.mark.long),  # one code
        pytest.param((70, 130), 2, False, 0.0, metropolis, marks=pytest.mark.long),
    ],
)
@pytest.mark.device
def test_bits_and_counts_are_those_of_the_array_code(
    shape, rank, missing, used, update, monkeypatch
):
    monkeypatch.setattr(packed_lines, "BLOCK_WORDS", 60)
    data, usage, basis, odds = problem(shape, rank, missing, used)
    always(monkeypatch)
    lines = data.by_column
    assert lines.ones.shape[0] > 1

    @fast_jit
    def run(key, basis, usage, lines, across):
        return update_bits(
            key, basis, usage, lines, shape[1], odds, WEIGHTS, update, across=across
        )  # fmt: skip

    drawn, seen = run(random.key(2), basis, usage, lines, None)
    found, counts = run(random.key(2), basis, usage, with_kernels(lines), data.by_row)
    np.testing.assert_array_equal(found, drawn)
    np.testing.assert_array_equal(jnp.stack(counts), jnp.stack(seen))
    moved = np.bitwise_count(np.asarray(drawn ^ basis)).sum() / (rank * shape[1])
    assert 0.1 < moved < 0.9


@pytest.mark.long
@pytest.mark.device
def test_chains_side_by_side_draw_what_each_draws_alone(monkeypatch):
    """Their codes differ, and the data are the same."""
    shape, rank = (200, 40), 2
    always(monkeypatch)
    data, usage, basis, odds = problem(shape, rank, True, 0.3)
    lines, usages = with_kernels(data.by_column), jnp.stack([usage, ~usage & usage[::-1]])

    def one(key, usage, lines):
        return update_bits(
            key, basis, usage, lines, shape[1], odds, WEIGHTS, metropolis, across=data.by_row
        )

    keys = random.split(random.key(0), 2)
    found, counts = fast_jit(jax.vmap(one, (0, 0, None)))(keys, usages, lines)
    for chain in range(2):
        drawn, seen = fast_jit(one)(keys[chain], usages[chain], data.by_column)
        np.testing.assert_array_equal(found[chain], drawn)
        np.testing.assert_array_equal([c[chain].sum() for c in counts], [c.sum() for c in seen])


def test_a_sweep_counts_rows_for_columns_and_columns_for_rows(monkeypatch):
    always(monkeypatch)
    shape, asked = (300, 40), []
    data = packed_data(BinaryMatrix(np.zeros(shape)))
    quick = data._replace(
        by_row=with_kernels(data.by_row), by_column=with_kernels(data.by_column)
    )  # fmt: skip
    algorithm = ormachine(BooleanDensity(shape, 2))
    state = jax.eval_shape(algorithm.init, random.key(0), None, data)

    def count(words, pieces):
        asked.append((words.shape, len(pieces.order)))
        return jnp.zeros((len(pieces.code), 32, words.shape[1]), jnp.int32)

    monkeypatch.setattr(codes, "count", count)
    jax.eval_shape(algorithm.step, random.key(1), state, quick)
    assert asked == [((40, 10), 40), ((300, 2), 300)]
    jax.eval_shape(algorithm.step, random.key(1), state, data)
    assert len(asked) == 2  # a device without kernels of our own has arrays


def test_few_long_lines_of_few_factors_are_counted_where_memory_holds_the_counts():
    def across(entries, missing=False):
        words = types.SimpleNamespace(shape=(1, entries, 9))
        return PackedLines(words, words if missing else None)

    large = across(1_300_000)
    memory = 8 * 2043 * 20_000
    assert codes.num_pieces(10, 1_300_000) == (2043, 1275)
    assert codes.pays(10, 20_000, large, memory) and not codes.pays(10, 20_000, large, memory - 1)
    assert not codes.pays(10, 20_000, across(1_300_000, missing=True), memory)
    assert codes.pays(10, 20_000, across(1_300_000, missing=True), 2 * memory)
    assert not codes.pays(10, 1_300_000, across(20_000), 10**12)  # rows, for which codes are many
    assert not codes.pays(13, 10**5, across(10**8), 10**12)
    assert codes.num_pieces(4, 1_300_000) == (1035, 1275)  # few codes, and as short pieces
    assert not codes.pays(7, 20_000, large, 10**12)  # soon drawn in another way
    assert codes.pays(10, 5_000, across(300_000), 10**12)
    assert not codes.pays(10, 4_000, across(300_000), 10**12)
