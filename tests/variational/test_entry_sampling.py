"""Entries are drawn with the probabilities that they are weighed by."""

import numpy as np
import pytest
from jax import random
from scipy.stats import chisquare

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.variational.entry_sampling import STRATEGIES, draw_entries, entry_sampler

VALUES = (np.random.default_rng(0).random((7, 9)) < 0.3).astype(float)
VALUES[2], VALUES[:, 4] = 0.0, 1.0  # a row without ones but one, a column of ones
VALUES[[0, 3, 5], [1, 1, 8]] = np.nan
VALUES[6] = np.nan
NUMBER = 200_000


def wanted(strategy):
    """The definition, entry by entry."""
    ones, zeros = VALUES == 1, VALUES == 0
    row = {1: np.maximum(zeros.sum(1), 1), 0: np.maximum(ones.sum(1), 1)}
    column = {1: np.maximum(zeros.sum(0), 1), 0: np.maximum(ones.sum(0), 1)}
    p = np.zeros(VALUES.shape)
    for value, cells in ((1, ones), (0, zeros)):
        weight = np.ones(VALUES.shape)
        if strategy == "biased":
            weight = row[value][:, None] * column[value][None, :]
        share = cells.sum() / (ones | zeros).sum() if strategy == "uniform" else 0.5
        p += share * np.where(cells, weight, 0) / weight[cells].sum()
    return p


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_entries_are_drawn_as_they_are_weighed(strategy):
    sampler, p = entry_sampler(BinaryMatrix(VALUES), strategy), wanted(strategy)
    drawn = draw_entries(random.key(1), sampler, NUMBER)
    row, column = np.asarray(drawn.row), np.asarray(drawn.column)
    np.testing.assert_allclose(np.exp(drawn.log_probability), p[row, column], rtol=2e-5)
    np.testing.assert_array_equal(drawn.value, VALUES[row, column] == 1)
    counts = np.zeros(VALUES.shape)
    np.add.at(counts, (row, column), 1)
    some = p > 0
    assert not counts[~some].any()
    assert chisquare(counts[some], NUMBER * p[some]).pvalue > 1e-3
    for log, axis in ((sampler.log_row, 1), (sampler.log_column, 0)):
        np.testing.assert_allclose(np.exp(log), p.sum(axis), rtol=2e-5, atol=1e-9)


def test_strategies_differ():
    biased, balanced = (wanted(s) for s in ("biased", "balanced"))
    assert np.abs(biased - balanced).max() > 0.003


@pytest.mark.parametrize(
    ("values", "strategy", "message"),
    [
        (np.zeros((3, 4)), "biased", "the matrix has no ones"),
        ([[1, np.nan], [1, 1]], "balanced", "the matrix has no zeros"),
        (np.eye(3), "even", "sampling is 'even'; choose from uniform, balanced, biased"),
    ],
)
def test_bad_input_is_refused(values, strategy, message):
    with pytest.raises(InputError, match=message):
        entry_sampler(BinaryMatrix(np.asarray(values)), strategy)


def test_zeros_too_rare_to_be_found_are_refused():
    values = np.ones((60, 60))
    values[3, 5] = 0
    with pytest.raises(InputError, match="1 of 3600 entries are zeros"):
        entry_sampler(BinaryMatrix(values))
