"""A matrix of real numbers: what it keeps, what it refuses, and its files."""

import pickle
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bmfjax import BinaryMatrix, InputError, RealMatrix, load, save
from bmfjax.data import load_real, parts


@settings(max_examples=30)
@given(
    arrays(
        float, st.tuples(st.integers(1, 5), st.integers(1, 4)),
        elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan)),
    ).filter(lambda x: not np.isnan(x).all())
)  # fmt: skip
def test_keeps_values_and_what_is_missing(tmp_path_factory, values):
    matrix = RealMatrix(values)
    np.testing.assert_array_equal(matrix.dense(np.float64), values)
    assert matrix.num_missing == np.isnan(values).sum()
    np.testing.assert_array_equal(matrix.observed(), ~np.isnan(values))
    np.testing.assert_array_equal(matrix.T.dense(np.float64), values.T)
    np.testing.assert_array_equal(matrix.empty_rows, np.flatnonzero(np.isnan(values).all(1)))
    again = load_real(save(tmp_path_factory.mktemp("real") / "m.npz", matrix))
    assert again.fingerprint() == matrix.fingerprint()


@settings(max_examples=30)
@given(
    arrays(
        float, st.tuples(st.integers(1, 5), st.integers(1, 4)),
        # Half of the smallest subnormal number is none.
        elements=st.one_of(st.just(0.0), st.floats(-1e6, 1e6, allow_subnormal=False)),
    ),
    st.sampled_from([0, 1 << 26]),
)  # fmt: skip
def test_a_sparse_matrix_answers_as_the_dense_one(tmp_path_factory, values, large):
    """Whatever is empty, and by either kind of fingerprint."""
    listed = sp.coo_array(values)  # of which every entry is given in two halves
    halves = (np.tile(listed.data / 2, 2), tuple(np.tile(at, 2) for at in (listed.row, listed.col)))
    sparse, dense = RealMatrix(sp.coo_array(halves, shape=values.shape)), RealMatrix(values)
    assert sparse.is_sparse and not dense.is_sparse
    with mock.patch("bmfjax.data.real.LARGE", large):
        assert sparse.fingerprint() == dense.fingerprint()
    assert sparse.range == dense.range and sparse.shape == dense.shape and not sparse.num_missing
    i, j = np.arange(values.shape[0])[::-1], np.arange(values.shape[1])[::2]
    cells = np.repeat(i, len(j)), np.tile(j, len(i))
    for found, expected in (
        (sparse.dense(np.float64), values),
        (sparse.observed(), dense.observed()),
        (sparse.T.dense(np.float64), values.T),
        (sparse.nonzero().toarray(), dense.nonzero().toarray()),
        (sparse.part(i, j), dense.part(i, j)),
        (sparse.at(*cells), dense.at(*cells)),
        (sparse.empty_columns, dense.empty_columns),
        (parts.rows_of(sparse, i).dense(), parts.rows_of(dense, i).dense()),
        (parts.repeated(sparse, 2).dense(), parts.repeated(dense, 2).dense()),
        (
            parts.without_cells(parts.repeated(sparse, 2), i[:1], j[:1]).dense(),
            parts.without_cells(parts.repeated(dense, 2), i[:1], j[:1]).dense(),
        ),
    ):
        np.testing.assert_array_equal(found, expected)
    again = load_real(save(tmp_path_factory.mktemp("real") / "m.npz", sparse))
    assert again.is_sparse
    np.testing.assert_array_equal(again.dense(np.float64), values)
    assert pickle.loads(pickle.dumps(sparse)).is_sparse


def test_sparse_matrices_that_are_refused_or_made_dense():
    values = sp.csr_array([[0.0, 1e39], [2.0, 0.0]])
    with pytest.raises(InputError, match=r"value 1e\+39 at row 1, column 2 .*too large"):
        RealMatrix(values)
    values.data[0] = np.nan
    assert not RealMatrix(values).is_sparse and RealMatrix(values).num_missing == 1
    assert not RealMatrix(sp.csr_array(np.eye(2)), observed=np.eye(2, dtype=bool)).is_sparse
    with pytest.raises(InputError, match="the matrix is empty"):
        RealMatrix(sp.csr_array((0, 3)))


def test_every_kind_of_input_gives_the_same_matrix():
    values = np.array([[1.5, 0.0], [0.0, -2.0]])
    frame = pd.DataFrame(values, index=["a", "b"], columns=["x", "y"])
    for given_ in (values.tolist(), values, frame, sp.csr_array(values), np.ma.array(values)):
        assert RealMatrix(given_).fingerprint() == RealMatrix(values).fingerprint()
    assert RealMatrix(frame).row_names == ("a", "b")
    stored = RealMatrix(frame.astype(pd.SparseDtype(float, 0.0)))
    assert (
        stored.is_sparse and stored.fingerprint() == RealMatrix(sp.csr_array(values)).fingerprint()
    )
    nullable = pd.DataFrame({"x": pd.array([1.5, None], "Float64"), "y": pd.array([0, 2], "Int64")})
    np.testing.assert_array_equal(RealMatrix(nullable).dense(), [[1.5, 0.0], [np.nan, 2.0]])
    hidden = RealMatrix(values, observed=values != 0)
    assert hidden.num_missing == 2 and hidden.range == (-2.0, 1.5)
    assert RealMatrix(np.ma.array(values, mask=values < 0)).num_missing == 1
    assert RealMatrix([[1, None], [True, 0]]).num_missing == 1


def test_it_never_changes():
    values = np.ones((2, 2))
    matrix = RealMatrix(values)
    values[0, 0] = 5.0
    assert matrix.dense()[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        matrix.dense()[0, 0] = 2.0
    assert pickle.loads(pickle.dumps(matrix)).fingerprint() == matrix.fingerprint()


def test_equal_content_has_one_fingerprint():
    assert RealMatrix([[0.0, 1]]).fingerprint() == RealMatrix([[-0.0, 1]]).fingerprint()
    assert RealMatrix([[0.0, 1]]).fingerprint() != RealMatrix([[np.nan, 1]]).fingerprint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RealMatrix([[1.0, np.inf]]), "value inf at row 1, column 2"),
        (lambda: RealMatrix([["a", 1]]), "not all numbers"),
        (lambda: RealMatrix([[1, 2], [3]]), "rows of values have different lengths"),
        (lambda: RealMatrix([1.0, 2.0]), "values is one-dimensional; give a matrix"),
        (lambda: RealMatrix([[np.nan]]), "no entry is observed"),
        (lambda: RealMatrix(np.ones((0, 2))), "is empty"),
        (lambda: RealMatrix([[1.0]], observed=[[2]]), "give True where"),
        (lambda: RealMatrix([[1.0]], observed=[[True, True]]), "one shape"),
        (lambda: RealMatrix([[1.0]], row_names=["a", "b"]), "row_names has 2 entries"),
    ],
)
def test_bad_input_gets_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_kinds_of_matrices_are_not_mixed_up():
    with pytest.raises(TypeError, match="BinaryMatrix"):
        RealMatrix(BinaryMatrix([[1, 0]]))


def test_tables_and_arrays_are_read(tmp_path):
    (tmp_path / "t.tsv").write_text("\tx\ty\nann\t1.5\t-\nbob\t2e3\t0\n")
    table = load_real(tmp_path / "t.tsv", missing="-")
    assert table.row_names == ("ann", "bob") and table.column_names == ("x", "y")
    np.testing.assert_array_equal(table.dense(), [[1.5, np.nan], [2000, 0]])
    np.save(tmp_path / "a.npy", np.array([[0.25, np.nan]]))
    assert load_real(tmp_path / "a.npy").range == (0.25, 0.25)
    binary = save(tmp_path / "b.npz", BinaryMatrix([[1, None]], row_names=["ann"]))
    assert load_real(binary).row_names == ("ann",)
    real = save(tmp_path / "r.npz", table)
    assert isinstance(load(real), RealMatrix)


def test_files_that_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,four\n")
    with pytest.raises(InputError, match=r"'four' at row 2, column 2 .*line 3"):
        load_real(tmp_path / "t.csv", row_names=False)
    with pytest.raises(InputError, match="no such file"):
        load_real(tmp_path / "none.csv")
    (tmp_path / "t.xls").write_text("")
    with pytest.raises(InputError, match=r"ending '\.xls'"):
        load_real(tmp_path / "t.xls")
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(InputError, match=r"missing means nothing for .*: it is for \.csv \.tsv"):
        load_real(tmp_path / "a.npy", missing="-")
