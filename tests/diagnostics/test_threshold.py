"""Thresholds by grid search, against plain loops over every threshold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data.errors import InputError
from bmfjax.diagnostics import reconstruction
from bmfjax.diagnostics.reconstruction import boolean_errors, boolean_product
from bmfjax.diagnostics.threshold import (
    PAIR_GRID,
    Threshold,
    oracle_threshold,
    threshold,
    threshold_pairs,
)


def _case(seed, rows=9, columns=7, rank=3):
    rng = np.random.default_rng(seed)
    return (
        rng.random((rows, rank)),
        rng.random((columns, rank)),
        rng.random((rows, columns)) < 0.4,
        rng.random((rows, columns)) < 0.7,
    )


def _plain_errors(usage, basis, reference, observed):
    wrong = 0
    for i, j in zip(*np.nonzero(observed), strict=True):
        wrong += int((usage[i] & basis[j]).any() != reference[i, j])
    return wrong


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_errors_are_counted_one_by_one(seed):
    usage, basis, data, observed = _case(seed)
    usage, basis = usage > 0.5, basis > 0.5
    assert boolean_errors(usage, basis, data, observed) == _plain_errors(
        usage, basis, data, observed
    )
    assert boolean_errors(usage, basis, boolean_product(usage, basis)) == 0
    # What stands at entries that are not observed does not matter.
    assert boolean_errors(usage, basis, np.where(observed, data, -1), observed) == boolean_errors(
        usage, basis, data, observed
    )


def test_blocks_of_rows_do_not_show(monkeypatch):
    usage, basis, data, observed = _case(0, rows=50)
    expected = threshold(usage, basis, data, observed).errors
    monkeypatch.setattr(reconstruction, "BLOCK_ENTRIES", 3 * 7)
    np.testing.assert_array_equal(threshold(usage, basis, data, observed).errors, expected)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_the_best_of_all_thresholds_is_found(seed):
    usage, basis, data, observed = _case(seed)
    best = threshold(usage, basis, data, observed)
    errors = [
        _plain_errors(usage > tau, basis > tau, data, observed) for tau in np.arange(1, 100) / 100
    ]
    np.testing.assert_array_equal(best.errors, errors)
    assert best.error == min(errors)
    assert errors[round(100 * best.tau_min) - 1] == errors[round(100 * best.tau_max) - 1]
    assert best.error_at_half == errors[49]
    assert best.tau_min <= best.tau <= best.tau_max
    assert boolean_errors(usage > best.tau, basis > best.tau, data, observed) == best.error


def test_the_threshold_to_use_lies_in_the_longest_run():
    grid = np.arange(1, 10) / 10
    errors = np.array([0, 0, 0, 5, 0, 5, 5, 0, 0])
    assert Threshold(0, 0.1, 0.9, 0, grid, errors).tau == 0.2
    errors = np.array([0, 5, 5, 5, 5, 5, 0, 5, 5])
    assert Threshold(0, 0.1, 0.7, 5, grid, errors).tau == 0.7  # nearer to a half


def test_half_is_judged_even_off_the_grid():
    usage, basis, data, _ = _case(3)
    best = threshold(usage, basis, data, grid=[0.2, 0.8])
    assert best.error_at_half == boolean_errors(usage > 0.5, basis > 0.5, data)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_pairs_contain_the_single_thresholds(seed):
    usage, basis, data, observed = _case(seed)
    pair = threshold_pairs(usage, basis, data, observed)
    single = threshold(usage, basis, data, observed, grid=PAIR_GRID)
    np.testing.assert_array_equal(np.diag(pair.errors), single.errors)
    assert pair.error == pair.errors.min() <= single.error
    found = usage > pair.tau_usage, basis > pair.tau_basis
    assert boolean_errors(*found, data, observed) == pair.error


def test_the_two_thresholds_are_not_mixed_up():
    usage, basis = np.array([[0.9], [0.6]]), np.array([[0.3], [0.2]])
    pair = threshold_pairs(usage, basis, [[1, 1], [0, 0]])
    assert pair.error == 0 and 0.6 <= pair.tau_usage < 0.9 and pair.tau_basis < 0.2


def test_the_pair_nearest_to_the_middle_is_taken():
    usage, basis = np.array([[1.0]]), np.array([[1.0]])
    pair = threshold_pairs(usage, basis, [[1]])
    assert (pair.tau_usage, pair.tau_basis) == (0.5, 0.5)


def test_the_oracle_sees_the_truth_and_the_user_the_data():
    rng = np.random.default_rng(4)
    usage, basis = rng.random((40, 3)) < 0.4, rng.random((30, 3)) < 0.4
    truth = boolean_product(usage, basis)
    data = truth ^ (rng.random(truth.shape) < 0.1)
    assert oracle_threshold(0.6 * usage, 0.6 * basis, truth).error == 0
    assert threshold(0.6 * usage, 0.6 * basis, data).error == np.count_nonzero(data != truth)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"usage": np.zeros((9, 2))}, "give \\(rows, rank\\)"),
        ({"usage": np.full((9, 3), np.nan)}, "nan or inf"),
        ({"data": np.zeros((9, 8))}, "reference has"),
        ({"data": np.full((9, 7), 0.5)}, "neither 0 nor 1"),
        ({"observed": np.ones((7, 9), bool)}, "observed has shape"),
        ({"grid": []}, "grid"),
        ({"grid": [0.5, 0.2]}, "grid"),
    ],
)
def test_bad_input_is_refused(change, message):
    usage, basis, data, _ = _case(6)
    arguments = {"usage": usage, "basis": basis, "data": data} | change
    with pytest.raises(InputError, match=message):
        threshold(**arguments)
    with pytest.raises(InputError, match=message):
        threshold_pairs(**arguments)


def test_relaxed_factors_have_no_boolean_errors():
    usage, basis, data, _ = _case(7)
    with pytest.raises(InputError, match="threshold them first"):
        boolean_errors(usage, basis, data)
