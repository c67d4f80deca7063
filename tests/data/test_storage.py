"""The project's own file: what is saved is loaded, whole or not at all."""

import io
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from bmfjax.data import (
    BinaryMatrix,
    InputError,
    generate_product,
    generate_tiles,
    load,
    load_truth,
    save,
)
from bmfjax.data.parts import repeated, rows_of, without_cells

NAN = np.nan


@settings(max_examples=30)
@given(
    array_shapes(min_dims=2, max_dims=2, max_side=20).flatmap(
        lambda shape: arrays(float, shape, elements=st.sampled_from([0.0, 1.0, NAN]))
    ),
    st.booleans(),
)
def test_random_matrices_come_back(tmp_path_factory, values, sparse):
    if np.isnan(values).all():
        return
    matrix = BinaryMatrix(sp.csr_array(values) if sparse else values)
    path = tmp_path_factory.getbasetemp() / "random.npz"
    assert save(path, matrix, overwrite=True) == path
    again = load(path)
    assert again.is_sparse == sparse and again.fingerprint() == matrix.fingerprint()
    np.testing.assert_array_equal(again.dense(), values)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_names_labels_and_the_name_come_back(tmp_path, form):
    matrix = BinaryMatrix(
        form(np.array([[1, NAN, 0], [0, 1, 1]])),
        row_names=["ann", "bob"],
        column_names=["ä", "b", "c"],
        row_labels=["", "left"],
        name="three",
    )
    again = load(save(tmp_path / "three.npz", matrix))
    for field in ("row_names", "column_names", "row_labels", "name", "num_missing"):
        assert getattr(again, field) == getattr(matrix, field)
    assert again.has_row_names and again.has_column_names
    bare = load(save(tmp_path / "bare.npz", BinaryMatrix(form(np.eye(2)))))
    assert not bare.has_row_names and bare.row_labels is None and bare.name == "bare"


def test_the_truth_comes_back(tmp_path):
    made = generate_tiles(60, 45, 3, seed=2)
    path = save(tmp_path / "t.npz", made.data, usage=made.usage, basis=made.basis.astype(int))
    truth = load_truth(str(path))
    np.testing.assert_array_equal(truth.usage, made.usage)
    np.testing.assert_array_equal(truth.basis, made.basis)
    np.testing.assert_array_equal(truth.clean, made.clean)
    assert load(path).fingerprint() == made.data.fingerprint()
    other = ~made.clean
    save(path, made.data, usage=made.usage, basis=made.basis, clean=other, overwrite=True)
    np.testing.assert_array_equal(load_truth(path).clean, other)


def test_a_file_in_the_documented_layout_is_read(tmp_path):
    """As other tools write it: no version, narrow indices, labels by number."""
    ones, missing = np.array([[1, 0, 1], [0, 0, 0]], bool), np.array([[0, 1, 0], [0, 0, 1]], bool)
    fields = {"kind": "binary", "shape": np.array([2, 3]), "y": np.array([1, -1], np.int8)}
    fields |= {"y_names": np.array(["left", "right"]), "col_names": np.array(["a", "b", "c"])}
    fields |= {
        "mask_indptr": np.array([0, 1, 2], np.int32),
        "mask_indices": np.array([1, 2], np.int16),
    }
    bits = {"bits": np.packbits(ones | missing, axis=1, bitorder="little")}
    rows = {"indptr": np.array([0, 2, 2]), "indices": np.array([0, 2], np.int16)}
    for stored in (bits, rows):
        np.savez_compressed(tmp_path / "m.npz", **fields, **stored)
        matrix = load(tmp_path / "m.npz")
        np.testing.assert_array_equal(matrix.ones().toarray(), ones)
        np.testing.assert_array_equal(matrix.missing().toarray(), missing)
        assert matrix.row_labels == ("right", "") and matrix.column_names == ("a", "b", "c")
    np.savez(tmp_path / "n.npz", kind="binary", shape=[1, 1], bits=np.ones((1, 1), np.uint8), y=[7])
    assert load(tmp_path / "n.npz").row_labels == ("7",)


# -- nothing is lost ----------------------------------------------------------------------------


def test_a_file_is_not_overwritten_unless_told(tmp_path):
    path = save(tmp_path / "m.npz", BinaryMatrix(np.eye(2)))
    before = path.read_bytes()
    message = r"m\.npz already exists; give another file.*overwrite=True"
    with pytest.raises(InputError, match=message):
        save(path, BinaryMatrix(np.ones((2, 2))))
    assert path.read_bytes() == before
    save(path, BinaryMatrix(np.ones((2, 2))), overwrite=True)
    assert load(path).num_ones == 4


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = save(tmp_path / "m.npz", BinaryMatrix(np.eye(2)))
    before = path.read_bytes()

    def full(stream, **_):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left"):
        save(path, BinaryMatrix(np.ones((2, 2))), overwrite=True)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.npz"]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    path = save(tmp_path / "m.npz", BinaryMatrix(np.eye(2)))
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("name", "truth", "message"),
    [
        ("m.csv", {}, "does not end in .npz"),
        ("no/m.npz", {}, "no is not a directory"),
        ("m.npz", {"usage": np.eye(4)}, "give usage and basis, or none"),
        ("m.npz", {"clean": np.eye(4)}, "give usage and basis, or none"),
        ("m.npz", {"usage": np.eye(3), "basis": np.eye(4)[:3]}, r"usage has shape \(3, 3\)"),
        ("m.npz", {"usage": np.eye(4), "basis": np.eye(4)}, r"basis has shape .*shape \(3, 4\)"),
        ("m.npz", {"usage": np.eye(4) / 2, "basis": np.eye(4)[:3]}, "usage has values beside"),
        (
            "m.npz",
            {"usage": np.eye(4), "basis": np.eye(4)[:3], "clean": np.eye(4)},
            r"clean has shape \(4, 4\)",
        ),
    ],
)
def test_what_cannot_be_saved_is_refused_and_nothing_written(tmp_path, name, truth, message):
    with pytest.raises(InputError, match=message):
        save(tmp_path / name, generate_product(4, 3, 2).data, **truth)
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError, match="matrix is a ndarray"):
        save(tmp_path / "m.npz", np.eye(2))


# -- broken files -------------------------------------------------------------------------------

GOOD = {"kind": "binary", "shape": [2, 3], "bits": np.ones((2, 1), np.uint8)}
RATED = {"kind": "table of ratings", "shape": [2, 3], "rows": [0], "columns": [2], "values": [5.0]}
ROWS = {"kind": "binary", "shape": [2, 3], "indptr": [0, 1, 2], "indices": [0, 2]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (RATED, "holds ratings, not a matrix"),
        (GOOD | {"kind": "other"}, "its kind is 'other', and it is not whole"),
        (GOOD | {"format_version": 2}, "has format 2 and this bmfjax reads up to 1"),
        (GOOD | {"shape": [2, 0]}, "'shape' is not two positive integers"),
        (GOOD | {"shape": [2.0, 3.0]}, "'shape' is not two positive integers"),
        (GOOD | {"shape": [2, 9]}, "'bits' does not fit"),
        (GOOD | {"row_names": ["a", "a"]}, "row name 'a' is given twice"),
        (GOOD | {"col_names": ["a"]}, r"'col_names' has the shape \(1,\) beside .* 3 columns"),
        (GOOD | {"y": [0, 2], "y_names": ["l", "r"]}, "'y' counts beyond 'y_names'"),
        (GOOD | {"mask_indptr": [0, 3, 6], "mask_indices": [0, 1, 2] * 2}, "no observed entry"),
        (GOOD | {"mask_indptr": [0, 9, 1], "mask_indices": [0]}, "'mask_indptr' and .* no CSR"),
        (ROWS | {"indices": [0, 3]}, "'indptr' and 'indices' are no CSR"),
        (ROWS | {"indices": [-1, 0]}, "are no CSR"),
        (ROWS | {"indptr": [0, 2]}, "are no CSR"),
        (ROWS | {"indptr": [0, 5, 2]}, "are no CSR"),
        (ROWS | {"indices": [0.0, 1.0]}, "are no CSR"),
        ({"kind": "binary", "shape": [2, 3]}, "cannot be read as .npz"),
        ({"weights": [1.0]}, "holds the arrays weights and not a matrix"),
        ({"kind": np.array(["binary", None], object)}, "allow_pickle=False"),
    ],
)
def test_files_with_wrong_arrays_are_refused(tmp_path, fields, message):
    path = tmp_path / "m.npz"
    np.savez(path, **fields)
    with pytest.raises(InputError, match=message) as refused:
        load(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_files_without_factors_have_no_truth(tmp_path):
    with pytest.raises(InputError, match="holds no true factors"):
        load_truth("house-votes")
    (tmp_path / "m.csv").write_text("1,0\n")
    with pytest.raises(InputError, match=r"only a \.npz file"):
        load_truth(tmp_path / "m.csv")


@pytest.mark.parametrize("write", [save, lambda path, m: sp.save_npz(path, m.ones())])
def test_an_archive_cut_short_anywhere_or_damaged_is_refused(tmp_path, write):
    path = tmp_path / "m.npz"
    write(path, generate_product(30, 40, 3).data)
    whole = path.read_bytes()
    cuts = [whole[:length] for length in np.linspace(0, len(whole) - 1, 12).astype(int)]
    flipped = bytearray(whole)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        last = max(archive.infolist(), key=lambda info: info.compress_size)
    flipped[last.header_offset + 80] ^= 255
    for content in [*cuts, bytes(flipped), b"gibberish", np.lib.format.MAGIC_PREFIX]:
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"m\.npz"):
            load(path)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_large_matrix_stays_packed_from_file_to_file(tmp_path, monkeypatch, hidden):
    """Generated, saved and loaded a bit an entry, with the content of a small one."""
    small = generate_product(40, 37, 3, flip=0.1, seed=1)
    monkeypatch.setattr("bmfjax.data.io.npz.LARGE", 100)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 200)
    made = generate_product(40, 37, 3, flip=0.1, seed=1)
    expected, data = small.data, made.data
    assert made.num_clean_ones == small.clean.sum()
    if hidden:
        cells = np.array([5, 39, 5]), np.array([36, 0, 0])
        expected, data = (without_cells(d, *cells) for d in (expected, data))
    again = load(save(tmp_path / "large.npz", data))
    assert data.is_packed and again.is_packed
    assert expected.fingerprint() == data.fingerprint() == again.fingerprint()


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.5, 0.9])
def test_parts_and_files_keep_the_smaller_of_what_is_missing_and_observed(tmp_path, missing):
    r = np.random.default_rng(0)
    values = (r.random((40, 50)) < 0.3).astype(np.float32)
    values[r.random(values.shape) < missing] = np.nan
    seen, hidden = ~np.isnan(values), np.nonzero(r.random(values.shape) < 0.05)
    cut, rows = values.copy(), np.array([3, 1, 30, 7])
    cut[hidden] = np.nan
    dense = BinaryMatrix(values)
    words = dense.packed()
    kinds = {
        "sparse": BinaryMatrix(sp.csr_array(np.nan_to_num(values)), observed=sp.csr_array(seen)),
        "dense": dense,
        "packed": BinaryMatrix.from_packed(words.ones, 50, observed=words.observed),
    }
    for name, matrix in kinds.items():
        for part, expected in (
            (rows_of(matrix, rows), values[rows]),
            (without_cells(matrix, *hidden), cut),
            (repeated(matrix, 3), np.tile(values, (3, 1))),
        ):
            np.testing.assert_array_equal(part.dense(), expected, err_msg=name)
            assert part.fingerprint() == BinaryMatrix(expected).fingerprint()
        again = load(save(tmp_path / f"{name}.npz", matrix))
        assert again.fingerprint() == matrix.fingerprint()
        assert (again.is_sparse, again.is_packed) == (matrix.is_sparse, not matrix.is_sparse)
    # Of a matrix of which little is observed the missing entries would be most of the file.
    kept = set(np.load(tmp_path / "sparse.npz").files)
    few = 2 * seen.sum() < seen.size
    assert ("observed_indices" in kept) == few
    assert ("mask_indices" in kept) == (missing > 0 and not few)
