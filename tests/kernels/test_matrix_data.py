"""What samplers ask of the data, dense or sparse, complete or not, against NumPy."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data import InputError
from bmfjax.kernels.relaxed import data as matrix
from bmfjax.kernels.relaxed.data import (
    WIDTHS,
    MatrixData,
    MissingCells,
    ObservedCells,
    SparseMatrixData,
    cross_product,
    gather_lines,
    matrix_data,
    num_observed,
    residual_sum_of_squares,
    sparse_matrix_data,
    transposed_product,
)
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK = 24, 16, 3
cross = fast_jit(cross_product, static_argnames="factor")
rss = fast_jit(residual_sum_of_squares)


def entries(kind, seed=0):
    """(values with NaN where missing, data) of the kinds of data that samplers know."""
    r = np.random.default_rng(seed)
    values = np.where(r.random((ROWS, COLUMNS)) < 0.3, r.normal(size=(ROWS, COLUMNS)), 0.0)
    values = values.astype(np.float32).astype(float)
    if kind in ("few missing", "sparse, missing"):
        # One or two a row, spread over the columns: at most an eighth of every line.
        values[np.arange(ROWS), np.arange(ROWS) % COLUMNS] = np.nan
        values[0, 1] = values[0, 0]
    elif kind == "mask":
        values[r.random(values.shape) < 0.4] = np.nan
    elif kind == "few observed":
        seen = np.zeros(values.shape, bool)
        seen[np.arange(ROWS), np.arange(ROWS) % COLUMNS] = True
        values[~seen] = np.nan
    if not kind.startswith("sparse"):
        return values, matrix_data(values)
    missing = np.isnan(values)
    row, column = np.nonzero(np.where(missing, 0, values))
    order = r.permutation(len(row))  # given in any order
    row, column = row[order], column[order]
    gaps = np.stack(np.nonzero(missing)) if missing.any() else None
    given = sp.coo_array((values[row, column], (row, column)), shape=values.shape)
    return values, sparse_matrix_data(given, gaps)


KINDS = {
    "complete": (MatrixData, type(None)),
    "few missing": (MatrixData, MissingCells),
    "mask": (MatrixData, type(None)),
    "few observed": (MatrixData, ObservedCells),
    "sparse": (SparseMatrixData, type(None)),
    "sparse, missing": (SparseMatrixData, MissingCells),
}
made = functools.cache(entries)


def factors(seed=1):
    r = np.random.default_rng(seed)
    return r.random((ROWS, RANK), np.float32), r.random((COLUMNS, RANK), np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_are_those_of_numpy(kind):
    values, data = made(kind)
    usage, basis = factors()
    seen = ~np.isnan(values)
    filled = np.where(seen, values, 0.0)
    assert isinstance(data, KINDS[kind][0])
    assert isinstance(data.by_row, KINDS[kind][1]) and isinstance(data.by_column, KINDS[kind][1])
    assert float(num_observed(data)) == seen.sum()

    products = {"usage": filled @ basis, "basis": filled.T @ usage}
    for (factor, expected), other in zip(products.items(), (basis, usage), strict=True):
        found = cross(data, factor, other)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected.T, rtol=1e-5, atol=1e-5)

    residual = np.where(seen, filled - usage.astype(float) @ basis.T, 0.0)
    found = rss(usage, basis, data)
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx((residual**2).sum(), rel=3e-6)


@pytest.mark.parametrize("kind", ["few missing", "few observed", "sparse, missing"])
def test_the_lists_are_the_cells(kind):
    values, data = made(kind)
    listed = ~np.isnan(values) if kind == "few observed" else np.isnan(values)
    for lines, cells in ((listed, data.by_row.index), (listed.T, data.by_column.index)):
        assert cells.shape == (lines.sum(1).max(), len(lines)) and cells.dtype == jnp.int32
        for line, column in zip(lines, np.asarray(cells).T, strict=True):
            found = column[column < lines.shape[1]]
            np.testing.assert_array_equal(found, np.flatnonzero(line))
            assert (column[len(found) :] == lines.shape[1]).all()  # padding, at the end
    usage, _ = factors()
    gathered = np.asarray(gather_lines(usage, data.by_column.index))
    assert gathered.shape == (data.by_column.index.shape[0], RANK, COLUMNS)
    expected = [usage[line].sum(0) for line in listed.T]
    np.testing.assert_allclose(gathered.sum(0).T, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, (None, None)),
        (2, (MissingCells, MissingCells)),
        (3, (None, None)),
        (13, (None, None)),
        (14, (ObservedCells, ObservedCells)),
        (16, (ObservedCells, ObservedCells)),
    ],
)
def test_lists_are_kept_up_to_an_eighth_of_every_line(share, expected):
    """`share` of 16 missing, the same in every row and column; all missing is none observed."""
    lag = (np.arange(16)[:, None] - np.arange(16)) % 16
    values = np.where(lag < share, np.nan, 1.0)
    data = matrix_data(values)
    for kind, cells in zip(expected, (data.by_row, data.by_column), strict=True):
        assert cells is None if kind is None else isinstance(cells, kind)
    assert (data.observed is None) == (share == 0)


def test_one_long_line_leaves_its_orientation_without_lists():
    values = np.ones((40, 16))
    values[7, :10] = np.nan  # a row that misses most; every column misses one of 40
    data = matrix_data(values)
    assert data.by_row is None and isinstance(data.by_column, MissingCells)


def test_a_mask_and_nan_say_the_same():
    values, data = made("mask")
    masked = matrix_data(np.where(np.isnan(values), 5.0, values), ~np.isnan(values))
    jax.tree.map(np.testing.assert_array_equal, data, masked)
    assert float(data.values.sum()) == pytest.approx(np.nansum(values), rel=1e-5)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.sampled_from([16, 64]))
@settings(max_examples=8)
def test_sparse_products_are_those_of_the_dense_matrix(seed, density, block):
    """Whatever lines are empty or full, and however many blocks and pieces they make."""
    r = np.random.default_rng(seed)
    values = np.where(r.random((23, 9)) < density, r.normal(size=(23, 9)), 0.0)
    values[r.random(23) < 0.3], values[:, r.random(9) < 0.3] = 0.0, 0.0
    values[r.integers(23)] = 1.0
    usage, basis = (r.random((size, 2), np.float32) for size in values.shape)

    def answers(data, usage, basis):
        found = [cross_product(data, f, o) for f, o in (("usage", basis), ("basis", usage))]
        return *found, residual_sum_of_squares(usage, basis, data)

    with mock.patch.object(matrix, "BLOCK", block):
        data = sparse_matrix_data(sp.csr_array(values))
        *found, residual = fast_jit(answers)(data, usage, basis)
    np.testing.assert_allclose(found[0], (values @ basis).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], (values.T @ usage).T, rtol=1e-5, atol=1e-5)
    assert float(residual) == pytest.approx(((values - usage @ basis.T) ** 2).sum(), rel=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
def test_lines_are_cut_into_wide_pieces_where_few_places_stay_empty(width):
    """Lines of one width each: the pieces are as wide, and none is empty."""
    values = np.zeros((40, 3 * width))
    values[::2, ::3] = 1.0
    entries = sparse_matrix_data(sp.csr_array(values)).of_rows
    assert entries.value.shape == (width, 20)
    np.testing.assert_array_equal(entries.line, np.arange(0, 40, 2))
    assert (entries.value == 1.0).all()


# ---- accuracy ----------------------------------------------------------------------------------


@functools.cache
def close_fit(missing, share):
    """Sparse data with a residual of `share` of their sum of squares, and the float64 answer."""
    rows, columns, rank = 3000, 400, 4
    r = np.random.default_rng(5)
    usage = np.where(r.random((rows, rank)) < 0.05, r.uniform(0.5, 1, (rows, rank)), 0.0)
    basis = np.where(r.random((columns, rank)) < 0.1, r.uniform(0.5, 1, (columns, rank)), 0.0)
    usage, basis = usage.astype(np.float32), basis.astype(np.float32)
    fit = usage.astype(float) @ basis.T.astype(float)
    noise = np.sqrt(share * (fit**2).sum() / (fit > 0).sum())
    values = np.where(fit > 0, fit + noise * r.normal(size=fit.shape), 0.0).astype(np.float32)
    gaps = None
    if missing:
        gone = r.random(values.shape) < 0.02
        gaps = np.stack(np.nonzero(gone))
        values[gone], fit[gone] = 0.0, 0.0
    data = sparse_matrix_data(sp.csr_array(values), gaps)
    exact = ((values.astype(float) - fit) ** 2).sum()
    assert exact / (values.astype(float) ** 2).sum() == pytest.approx(share, rel=0.1)
    return usage, basis, data, exact


@pytest.mark.parametrize("share", [1e-2, 1e-4])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
def test_a_small_residual_of_sparse_data_keeps_its_digits_in_float32(missing, share):
    usage, basis, data, exact = close_fit(missing, share)
    found = rss(usage, basis, data)
    assert found.dtype == jnp.float32
    # What is lost is 2e-8 of the sum of squares of the data.
    assert float(found) == pytest.approx(exact, rel=2e-8 / share)


def test_a_perfect_fit_of_sparse_data_is_not_negative():
    usage, basis = np.zeros((30, 2), np.float32), np.zeros((20, 2), np.float32)
    usage[::3, 0], basis[::2, 0] = 0.7, 0.9
    data = sparse_matrix_data(sp.csr_array(usage @ basis.T))
    assert 0.0 <= float(rss(usage, basis, data)) < 1e-5


def test_double_precision_stays(x64):
    values, data = entries("sparse, missing")
    usage, basis = (x.astype(float) for x in factors())
    found = rss(usage, basis, data)
    assert found.dtype == jnp.float64
    residual = np.nan_to_num(values - usage @ basis.T)
    assert float(found) == pytest.approx((residual**2).sum(), rel=1e-13)


def test_the_transposed_product_is_one():
    r = np.random.default_rng(0)
    values, other = r.random((6, 4), np.float32), r.random((6, 2), np.float32)
    found = fast_jit(transposed_product)(values, other)
    np.testing.assert_allclose(found, values.T @ other, rtol=1e-6)


# ---- input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ([[4], [0]], "a row index is outside 0 to 3"),
        ([[-1], [0]], "a row index"),
        ([[0], [3]], "a column index is outside 0 to 2"),
    ],
)
def test_positions_outside_the_shape_are_refused(missing, message):
    with pytest.raises(InputError, match=message):
        sparse_matrix_data(sp.csr_array((4, 3)), missing)


def test_a_matrix_without_ones_is_data_too():
    data = sparse_matrix_data(sp.csr_array((4, 3)))
    usage, basis = np.ones((4, 2), np.float32), np.full((3, 2), 0.5, np.float32)
    assert float(num_observed(data)) == 12
    assert float(rss(usage, basis, data)) == pytest.approx(12.0)
    np.testing.assert_array_equal(cross(data, "usage", basis), np.zeros((2, 4)))
