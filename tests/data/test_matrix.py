"""BinaryMatrix: one content, however it is given and in whichever form it is asked for."""

import copy
import pickle
import tracemalloc
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.data.bits import pack_on_host

NAN = np.nan
SMALL = np.array([[1, 0, NAN, 0], [0, 1, 1, NAN], [NAN, NAN, NAN, NAN]])


def ternary():
    """Matrices of 0, 1 and NaN with an observed entry."""
    shapes = array_shapes(min_dims=2, max_dims=2, max_side=40)
    return shapes.flatmap(
        lambda shape: arrays(float, shape, elements=st.sampled_from([0.0, 1.0, NAN]))
    ).filter(lambda values: not np.isnan(values).all())


def assert_content(matrix, values):
    """Compare every representation with an array of 0, 1 and NaN."""
    missing, ones = np.isnan(values), values == 1
    assert matrix.shape == values.shape == (matrix.num_rows, matrix.num_columns)
    assert (matrix.num_ones, matrix.num_missing) == (ones.sum(), missing.sum())
    assert matrix.num_zeros == (values == 0).sum()
    assert matrix.density == pytest.approx(np.nanmean(values))
    np.testing.assert_array_equal(matrix.dense(), values.astype(np.float32))
    np.testing.assert_array_equal(matrix.dense(int, missing=-1), np.where(missing, -1, ones))
    np.testing.assert_array_equal(matrix.observed(), ~missing)
    np.testing.assert_array_equal(matrix.ones().toarray(), ones)
    np.testing.assert_array_equal(matrix.missing().toarray(), missing)
    np.testing.assert_array_equal(matrix.empty_rows, np.flatnonzero(missing.all(axis=1)))
    np.testing.assert_array_equal(matrix.empty_columns, np.flatnonzero(missing.all(axis=0)))
    rows, columns = np.arange(values.shape[0])[::-2], np.arange(values.shape[1])[::3]
    for found, whole in zip(matrix.part(rows, columns), (ones, missing), strict=True):
        np.testing.assert_array_equal(found, whole[np.ix_(rows, columns)])
    for found, whole in zip(matrix.at(*np.nonzero(~ones)), (ones, missing), strict=True):
        np.testing.assert_array_equal(found, whole[~ones])
    for orientation, turn in (("rows", lambda x: x), ("columns", np.transpose)):
        words = matrix.packed(orientation)
        np.testing.assert_array_equal(words.ones, pack_on_host(turn(ones)))
        if missing.any():
            np.testing.assert_array_equal(words.observed, pack_on_host(turn(~missing)))
        else:
            assert words.observed is None


def all_forms(values):
    """Yield the matrix from a dense array, from a sparse one, and from both kinds of mask."""
    missing = np.isnan(values)
    # The values under the mask are not looked at: neither 0 nor 1 here.
    filled = np.where(missing, 7, values)
    yield BinaryMatrix(values)
    yield BinaryMatrix(sp.csr_array(values))
    yield BinaryMatrix(filled.astype(int), observed=~missing)
    yield BinaryMatrix(sp.coo_array(filled), observed=sp.csc_array(~missing))
    yield BinaryMatrix(sp.csc_array(filled), observed=~missing)
    yield BinaryMatrix(filled, observed=sp.csr_array(~missing))
    ones, seen = pack_on_host(values == 1), pack_on_host(~missing)
    yield BinaryMatrix.from_packed(ones, values.shape[1], seen)


@settings(max_examples=40)
@given(ternary())
def test_every_form_has_the_same_content_and_fingerprint(values):
    fingerprints = set()
    for matrix in all_forms(values):
        assert_content(matrix, values)
        assert_content(matrix.T, values.T)
        fingerprints.add(matrix.fingerprint())
    assert len(fingerprints) == 1
    assert BinaryMatrix(values).T.T.fingerprint() in fingerprints
    # Of large matrices groups of rows are hashed: their words, or where the ones are few, places.
    with mock.patch("bmfjax.data.stores.LARGE", 10):
        large = {matrix.fingerprint() for matrix in all_forms(values)}
    assert len(large) == 1 and (large != fingerprints) == (values.size > 10)


@settings(max_examples=40)
@given(ternary(), st.data())
def test_the_fingerprint_tells_every_change_of_an_entry(values, data):
    i = data.draw(st.integers(0, values.shape[0] - 1))
    j = data.draw(st.integers(0, values.shape[1] - 1))
    other = values.copy()
    other[i, j] = data.draw(st.sampled_from([0.0, 1.0, NAN]))
    if np.isnan(other).all() or np.array_equal(other, values, equal_nan=True):
        return
    assert BinaryMatrix(other).fingerprint() != BinaryMatrix(values).fingerprint()


def test_the_fingerprint_tells_shapes_but_not_names():
    zeros = BinaryMatrix(np.zeros((2, 6)))
    assert zeros.fingerprint() != BinaryMatrix(np.zeros((6, 2))).fingerprint()
    named = BinaryMatrix(np.zeros((2, 6)), row_names=["a", "b"])
    assert zeros.fingerprint() == named.fingerprint()


@pytest.mark.parametrize("form", ["dense", "sparse", "packed"])
def test_positions_that_are_none_are_refused(form):
    values = np.eye(3, 40)
    matrix = {
        "dense": lambda: BinaryMatrix(values),
        "sparse": lambda: BinaryMatrix(sp.csr_array(values)),
        "packed": lambda: BinaryMatrix.from_packed(pack_on_host(values > 0), 40),
    }[form]()
    for rows, columns, message in [
        ([0], [40], "columns has positions from 40 to 40; give some from 0 to 39"),
        ([-1], [0], "rows has positions from -1"),
        ([0.5], [0], "rows is float64 with 1 axes"),
        (np.ones(3, bool), [0], "rows is bool"),
        (0, [0], "with 0 axes"),
    ]:
        with pytest.raises(InputError, match=message):
            matrix.at(rows, columns)
        with pytest.raises(InputError, match=message):
            matrix.part(rows, columns)
    with pytest.raises(InputError, match="rows has 1 positions and columns 2"):
        matrix.at([0], [1, 2])
    assert [len(x) for x in matrix.at([], [])] == [0, 0]
    assert [x.shape for x in matrix.part([], [1])] == [(0, 1), (0, 1)]


def test_packed_words_are_the_matrix_s_own():
    words = pack_on_host(np.ones((4, 40), bool))
    for mine in (words, words[:2]):
        matrix = BinaryMatrix.from_packed(mine, np.int16(40))
        mine[0] = 0
        assert matrix.packed().ones.all() and matrix.ones().nnz == matrix.num_ones
        mine[0] = matrix.packed().ones[0]


NONE = np.zeros((2, 2), np.uint32)


@pytest.mark.parametrize(
    ("ones", "observed", "message"),
    [
        (np.zeros((2, 1), np.uint64), None, "ones is uint64 of shape"),
        (np.zeros((2, 3), np.uint32), None, r"give uint32 words of shape \(rows, 2\)"),
        (NONE + np.uint32(2**31), None, "bits beyond column 40"),
        (NONE, np.zeros((3, 2), np.uint32), "observed has 3 rows and ones 2"),
        (NONE + np.uint32(1), NONE, "bits set that observed has not"),
        (NONE, NONE, "no entry is observed"),
    ],
)
def test_packed_words_that_are_no_matrix_are_refused(ones, observed, message):
    with pytest.raises(InputError, match=message):
        BinaryMatrix.from_packed(ones, 40, observed)


DTYPES = [bool, np.uint8, np.int64, np.float64]


@pytest.mark.parametrize(
    ("wrap", "dtype"),
    [(wrap, dtype) for wrap in (np.asarray, sp.csr_array, pd.DataFrame) for dtype in DTYPES]
    + [(np.asarray, np.float16), (np.asarray, object), (pd.DataFrame, object)]
    + [(sp.lil_array, bool), (sp.dia_array, float), (jnp.asarray, bool), (jnp.asarray, np.int32)],
)
def test_dtypes_and_kinds(wrap, dtype):
    values = np.array([[1, 0, 0], [0, 1, 1]])
    assert_content(BinaryMatrix(wrap(values.astype(dtype))), values.astype(float))


def test_bfloat16_masked_arrays_and_lists():
    assert_content(BinaryMatrix(jnp.asarray(SMALL, jnp.bfloat16)), SMALL)
    masked = np.ma.array(np.nan_to_num(SMALL, nan=1).astype(int), mask=np.isnan(SMALL))
    assert_content(BinaryMatrix(masked), SMALL)
    assert_content(
        BinaryMatrix([[1, None, pd.NA], [True, 0.0, NAN]]), np.array([[1, NAN, NAN], [1, 0, NAN]])
    )


def test_sparse_duplicates_of_bool_are_one_and_of_numbers_are_added():
    position = ([0, 0], [1, 1])
    assert BinaryMatrix(sp.coo_array(([True, True], position), shape=(2, 2))).num_ones == 1
    with pytest.raises(ValueError, match=r"row 1, column 2 .* is listed twice"):
        BinaryMatrix(sp.coo_array(([1, 1], position), shape=(2, 2)))


def test_an_entry_is_missing_if_either_its_value_or_the_mask_says_so():
    # Hides a one, a zero and an entry whose value is missing already.
    observed = np.array([[False, True, False, True], [False, True, True, True], [True] * 4])
    expected = np.where(observed, SMALL, NAN)
    assert_content(BinaryMatrix(SMALL, observed), expected)
    assert_content(BinaryMatrix(sp.csr_array(SMALL), sp.csr_array(observed)), expected)


# -- names --------------------------------------------------------------------------------------


def test_names_and_labels():
    matrix = BinaryMatrix(SMALL, row_names=["a", "b", 3], row_labels=["x", None, "x"], name="small")
    assert matrix.row_names == ("a", "b", "3") and matrix.has_row_names
    assert matrix.column_names == ("column 1", "column 2", "column 3", "column 4")
    assert not matrix.has_column_names
    assert matrix.row_labels == ("x", "", "x")
    assert matrix.T.column_names == ("a", "b", "3") and matrix.T.row_labels is None
    assert repr(matrix) == (
        "BinaryMatrix 'small': 3 rows x 4 columns, 3 ones (50 % of the observed entries), 6 missing"
    )


def test_data_frames_give_names_unless_they_merely_count():
    plain = BinaryMatrix(pd.DataFrame(SMALL))
    assert not plain.has_row_names and not plain.has_column_names
    frame = pd.DataFrame(SMALL, columns=list("abcd"), index=[10, 20, 30])
    named = BinaryMatrix(frame)
    assert named.row_names == ("10", "20", "30") and named.column_names == ("a", "b", "c", "d")
    assert BinaryMatrix(frame[1:]).row_names == ("20", "30")
    assert BinaryMatrix(frame, row_names=["x", "y", "z"]).row_names == ("x", "y", "z")
    keyed = frame.set_index(pd.MultiIndex.from_tuples([("u", 1), ("u", 2), ("v", 1)]))
    assert BinaryMatrix(keyed).row_names == ("u / 1", "u / 2", "v / 1")


def test_data_frames_of_pandas_own_dtypes():
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 0], dtype="Int64"),
            "truth": pd.array([True, False, None], dtype="boolean"),
            "plain": [True, False, True],
            "kinds": pd.Categorical([1, 0, 1]),
        }
    )
    expected = np.array([[1, 1, 1, 1], [NAN, 0, 0, 0], [0, NAN, 1, 1]])
    assert_content(BinaryMatrix(frame), expected)
    assert_content(BinaryMatrix(frame[["whole", "truth"]]), expected[:, :2])
    sparse = BinaryMatrix(pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix([[0, 1], [1, 0]])))
    assert sparse.is_sparse and sparse.num_ones == 2


# -- never changes, never grows -----------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_what_is_handed_out_is_kept_and_read_only(form):
    matrix = BinaryMatrix(form(SMALL))
    for ask in (
        matrix.dense,
        matrix.observed,
        lambda: matrix.ones().data,
        lambda: matrix.missing().indices,
        lambda: matrix.packed().ones,
        lambda: matrix.packed("columns").observed,
        lambda: matrix.empty_rows,
    ):
        assert np.shares_memory(ask(), ask())
        with pytest.raises(ValueError, match="read-only"):
            ask()[...] = 0
    with pytest.raises(AttributeError):
        matrix.name = "other"
    assert matrix.dense() is not matrix.dense(float)


@pytest.mark.parametrize("form", [np.array, sp.csr_array, sp.csr_matrix, sp.csc_array])
def test_neither_the_input_nor_the_matrix_changes_with_the_other(form):
    values = form(np.array([[1.0, 0.0], [0.0, 1.0]]))
    before = values.copy()
    matrix = BinaryMatrix(values)
    values[0, 0] = 0.0
    np.testing.assert_array_equal(matrix.dense(), np.eye(2))
    before[1, 1] = 5.0  # writable still


def test_a_sparse_input_with_duplicates_out_of_order_is_left_as_it_is():
    arrays_of = np.array([True, True, True]), np.array([2, 0, 2]), np.array([0, 3])
    values = sp.csr_array(arrays_of, shape=(1, 3))
    assert BinaryMatrix(values, observed=values).num_ones == 2
    assert values.nnz == 3 and values.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_copies_and_pickles_are_the_same_and_locked(again, form):
    matrix = BinaryMatrix(form(SMALL), row_names=["a", "b", "c"], row_labels=["x"] * 3, name="m")
    matrix.dense()
    other = again(matrix)
    assert_content(other, SMALL)
    assert (other.row_names, other.row_labels, other.name) == (("a", "b", "c"), ("x",) * 3, "m")
    with pytest.raises(ValueError, match="read-only"):
        other.ones().data[...] = False


def test_a_large_sparse_matrix_is_never_made_dense():
    rng = np.random.default_rng(0)
    shape, num = (200_000, 100_000), 50_000
    rows, columns = rng.integers(0, shape[0], num), rng.integers(0, shape[1], num)
    values = sp.coo_array((np.ones(num, dtype=bool), (rows, columns)), shape=shape)
    hidden = sp.coo_array(([NAN, NAN], ([0, 5], [7, 7])), shape=shape)
    tracemalloc.start()
    try:
        matrix = BinaryMatrix(values)
        few = BinaryMatrix(values, observed=values)  # nearly everything is missing
        most = BinaryMatrix(values.astype(float) + hidden)
        prints = {m.fingerprint() for m in (matrix, few, most)}
        counts = [m.num_missing for m in (matrix, few, most)]
        assert few.T.num_ones == matrix.num_ones and len(few.empty_columns) > 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6  # of 20,000e6 entries
    assert counts == [0, 20_000_000_000 - matrix.num_ones, 2]
    assert few.num_zeros == 0 and few.density == 1 and len(prints) == 3
