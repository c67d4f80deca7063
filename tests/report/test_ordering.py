"""The order of rows and columns, and the pooling of pixels."""

import numpy as np
import pytest

from bmfjax.data.blocks import spaced
from bmfjax.report import ordering


def runs(values):
    """Number of stretches of equal neighbours along the first axis."""
    return 1 + int((np.diff(values.astype(int), axis=0) != 0).any(1).sum())


def sequence(binary):
    """The factors of one-factor lines in the order in which they come."""
    return list(dict.fromkeys(binary.argmax(1).tolist()))


def shuffled_blocks(seed, sizes=((5, 3), (4, 6), (7, 2), (2, 4))):
    rng = np.random.default_rng(seed)
    usage = np.repeat(np.eye(len(sizes), dtype=bool), [r for r, _ in sizes], axis=0)
    basis = np.repeat(np.eye(len(sizes), dtype=bool), [c for _, c in sizes], axis=0)
    return rng.permutation(usage), rng.permutation(basis)


@pytest.mark.parametrize("seed", range(5))
def test_disjoint_tiles_become_blocks_along_the_diagonal(seed):
    usage, basis = shuffled_blocks(seed)
    order = ordering.order_factors(usage, basis)
    rows, columns = usage[order.rows], basis[order.columns]
    assert runs(rows) == runs(columns) == 4
    # The blocks follow one another in the same order on both sides.
    np.testing.assert_array_equal(sequence(rows), sequence(columns))


@pytest.mark.parametrize("shape", [(1, 1, 1), (12, 8, 2), (40, 300, 6), (900, 20, 12)])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_it_is_a_permutation_that_keeps_equal_lines_together(shape, density):
    rows, columns, rank = shape
    rng = np.random.default_rng(0)
    usage, basis = rng.random((rows, rank)) < density, rng.random((columns, rank)) < density
    order = ordering.order_factors(usage, basis, rng.random(rows), rng.random(columns))
    for chosen, binary in zip(order, (usage, basis), strict=True):
        np.testing.assert_array_equal(np.sort(chosen), np.arange(len(binary)))
        assert runs(binary[chosen]) == len(np.unique(binary, axis=0))


def test_a_row_of_two_factors_stands_between_them():
    codes = np.array([[1, 0], [0, 1], [1, 1]], bool)
    usage = np.repeat(codes, 5, axis=0)
    basis = np.repeat(np.eye(2, dtype=bool), 4, axis=0)
    rows = ordering.order_factors(usage, basis).rows
    np.testing.assert_array_equal(usage[rows][5:10], np.ones((5, 2), bool))
    assert usage[rows][0, 0]  # the first factor on top


def test_rare_combinations_stand_beside_a_common_one_that_is_near():
    codes = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], bool)
    usage = np.vstack([np.repeat(codes, 200, axis=0), [[1, 1, 0]]])
    basis = np.repeat(np.eye(3, dtype=bool), [9, 2, 9], axis=0)
    rows = ordering.order_factors(usage, basis).rows
    place = int(np.flatnonzero(rows == 600)[0])
    assert usage[rows][place - 1, 0]


def test_lines_without_factors_and_without_information_come_last():
    usage = np.array([[0, 0], [1, 0], [0, 1], [1, 0]], bool)
    order = ordering.order_factors(usage, np.eye(2, dtype=bool), empty_rows=[1])
    assert order.rows[-2:].tolist() == [0, 1]


def test_within_equal_lines_the_weight_falls():
    usage = np.ones((4, 1), bool)
    order = ordering.order_factors(usage, np.ones((2, 1), bool), [1.0, 3.0, 2.0, 4.0])
    assert order.rows.tolist() == [3, 1, 2, 0]


def test_pooling_keeps_means():
    values = np.random.default_rng(0).random((60, 40))
    np.testing.assert_allclose(ordering.pool(values, 5, 8).mean(), values.mean())
    uneven = ordering.pool(values, 7, 9)
    weights = np.outer([7] * 8 + [4], [9] * 4 + [4])
    np.testing.assert_allclose((uneven * weights).sum() / weights.sum(), values.mean())
    np.testing.assert_array_equal(ordering.pool(values, 1, 1), values)


def test_pooling_leaves_missing_out():
    values = np.array([[1.0, np.nan, np.nan], [0.0, np.nan, 1.0]])
    np.testing.assert_array_equal(ordering.pool(values, 2, 1), [[0.5, np.nan, 1.0]])


@pytest.mark.parametrize(("number", "most"), [(1, 1), (10, 3), (600, 600), (601, 600), (8124, 600)])
def test_spacing_and_blocks(number, most):
    chosen = spaced(number, most)
    assert len(np.unique(chosen)) == len(chosen) == min(number, most)
    size = ordering.block_size(number, most)
    assert -(-number // size) <= most
