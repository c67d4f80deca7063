"""PanPal and Primp: their costs, the thresholds, and the rank they find."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax import random

from bmfjax.data import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.threshold import PAIR_GRID
from bmfjax.optimize import (
    Factors,
    panpal,
    primp,
    regularised_error,
    tile_code_length,
    trusted,
)
from bmfjax.optimize.tiling import _code_length, _cut, _errors_and_ones

TRUTH = np.kron(np.eye(3, dtype=bool), np.ones((14, 12), bool))


def boolean(rows, columns):
    return hnp.arrays(bool, (rows, columns))


def written_out(usage, basis, data):
    """Length of the code, word by word: every row, then the table."""
    wrong = ((usage @ basis.T) > 0) != data
    words = [("tile", k) for row in usage for k in np.flatnonzero(row)]
    words += [("column", j) for row in wrong for j in np.flatnonzero(row)]
    length = {w: -math.log(words.count(w) / len(words)) for w in set(words)}
    counts = np.maximum(data.sum(axis=0), 1)
    item = [-math.log(c / max(1, data.sum())) for c in counts]
    total = sum(length[w] for w in words)
    for kind, number in length:
        columns = np.flatnonzero(basis[:, number]) if kind == "tile" else [number]
        total += length[kind, number] + sum(item[j] for j in columns)
    return total


@settings(max_examples=60)
@given(usage=boolean(5, 3), basis=boolean(4, 3), data=boolean(5, 4))
def test_the_code_length_is_that_of_the_words_written_out(usage, basis, data):
    assert math.isclose(
        tile_code_length(usage, basis, data), written_out(usage, basis, data), abs_tol=1e-9
    )


@settings(max_examples=100)
@given(
    used=hnp.arrays(int, 4, elements=st.integers(1, 50)),
    wrong=hnp.arrays(int, 6, elements=st.integers(0, 50)),
)
def test_primps_relaxation_bounds_the_words_of_the_data(used, wrong):
    # Hess, Morik, Piatkowski 2017: mu |N| + |Y| and the entropy of the tiles alone.
    both = np.concatenate([used, wrong[wrong > 0]])
    words = -(both * np.log(both / both.sum())).sum()
    tiles = -(used * np.log(used / used.sum())).sum()
    assert words <= (1 + math.log(len(wrong))) * wrong.sum() + used.sum() + tiles + 1e-9


def test_costs_leave_out_what_is_not_observed():
    usage, basis, data = np.ones((2, 1), bool), np.ones((3, 1), bool), np.ones((2, 3))
    data[0, 0] = np.nan
    observed = np.isfinite(data)
    assert regularised_error(usage, basis, data, observed) == 5.0
    data[1, 1] = 0
    assert regularised_error(usage, basis, data, observed) == 6.0
    assert tile_code_length(usage, basis, data, observed) > 0


@pytest.mark.parametrize(
    ("method", "cost"), [(panpal, regularised_error), (primp, tile_code_length)]
)
def test_planted_tiles_are_found_with_their_number(method, cost):
    data = BinaryMatrix(TRUTH)
    found = method(random.key(0), data, rank_step=5, num_starts=8)
    assert found.usage.shape[1] == 3 and (found.usage @ found.basis.T == TRUTH).all()
    assert math.isclose(found.cost, cost(found.usage, found.basis, TRUTH), rel_tol=1e-9)
    for factor in found.relaxed:
        assert factor.shape[1] == 5 and factor.min() >= 0 and factor.max() <= 1


@pytest.mark.parametrize("method", [panpal, primp])
def test_what_is_trusted_of_a_tiling_are_planted_tiles(method):
    ones = TRUTH | (np.random.default_rng(0).random(TRUTH.shape) < 0.1)
    data = BinaryMatrix(ones)
    tiling = method(random.key(0), data, rank_step=5, max_rank=5, num_starts=8)
    found = trusted(tiling, data)
    assert len(found.kept) == tiling.usage.shape[1] and found.kept.sum() >= 3
    np.testing.assert_array_equal(found.usage, tiling.usage[:, found.kept])
    np.testing.assert_array_equal(found.basis, tiling.basis[:, found.kept])
    inside = (found.usage.T.astype(int) @ TRUTH @ found.basis).diagonal()
    assert (inside > 0.8 * found.usage.sum(0) * found.basis.sum(0)).all()


@pytest.mark.parametrize(
    ("inner", "cost"), [(_errors_and_ones, regularised_error), (_code_length, tile_code_length)]
)
def test_the_pair_of_thresholds_is_the_best_of_the_grid(inner, cost):
    r = np.random.default_rng(0)
    usage, basis = (
        0.6 * r.random((n, 3)) * (r.random((n, 3)) < 0.5) for n in (TRUTH.shape[0], TRUTH.shape[1])
    )
    usage[:14, 0] += 0.4
    basis[:12, 0] += 0.25
    pairs = {}
    for tau, sigma in itertools.product(PAIR_GRID, PAIR_GRID):
        u, b = usage > tau, basis > sigma
        used = u.any(axis=0) & b.any(axis=0)
        pairs[tau, sigma] = cost(u[:, used], b[:, used], TRUTH)
    found = _cut(Factors(usage, basis), inner, TRUTH, None)
    assert found.cost == pytest.approx(min(pairs.values()))
    assert pairs[found.tau_usage, found.tau_basis] == pytest.approx(found.cost)
    assert found.tau_usage > 0 < found.tau_basis


def test_the_rank_rises_until_factors_are_left_over():
    found = primp(random.key(0), BinaryMatrix(TRUTH), rank_step=2)
    assert found.relaxed.usage.shape[1] in (4, 6, 8) and found.usage.shape[1] >= 3
    fixed = primp(random.key(0), BinaryMatrix(TRUTH), 2)
    assert fixed.relaxed.usage.shape[1] == 2


def test_tiles_are_found_with_entries_missing():
    observed = np.random.default_rng(0).random(TRUTH.shape) < 0.8
    found = primp(random.key(1), BinaryMatrix(TRUTH, observed), 4, num_starts=8)
    assert (found.usage @ found.basis.T == TRUTH).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"num_starts": 0}, "num_starts"),
        ({"rank_step": 1.5}, "rank_step"),
    ],
)
def test_refusals(options, words):
    for search in (panpal, primp):
        with pytest.raises(InputError, match=r"key is 0; give a random key, such as jax"):
            search(0, BinaryMatrix(TRUTH))
    with pytest.raises(InputError, match=words):
        panpal(random.key(0), BinaryMatrix(TRUTH), **options)
    with pytest.raises(InputError, match="BinaryMatrix"):
        primp(random.key(0), TRUTH)
