"""Files that declare more than the memory holds are refused before anything is allocated."""

import io
import os
import socket
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bmfjax.data import (
    BinaryMatrix,
    InputError,
    Ratings,
    RealMatrix,
    load,
    load_ratings,
    load_real,
    load_truth,
    memory,
    save,
)
from bmfjax.data.io.formats import ANY_ENDING, BINARY, RATINGS, READERS, REAL
from bmfjax.data.reading.door import read_named_lines

HUGE = (2_000_000_000, 2_000_000_000)
MARKET = "%%MatrixMarket matrix coordinate pattern general\n"


@pytest.fixture
def little(monkeypatch):
    """A machine with one megabyte left."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2**20)


def refused(read, path, *parts):
    """The sentence with which a file is refused: its path first, and what to do."""
    with pytest.raises(InputError) as error:
        read(path)
    said = str(error.value)
    assert said.startswith(f"{path}: ") and "\n" not in said and said.count(";") == 1
    for part in parts:
        assert part in said
    return said


def archive(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def npy(shape, dtype="<f8"):
    """The header of an array, without the array."""
    stream = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


# -- Matrix Market ------------------------------------------------------------------------------


def test_a_header_of_two_thousand_million_rows_is_refused_at_once(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(f"{MARKET}% a comment\n2000000000 2000000000 1\n1 1\n")
    said = refused(load, path, "2,000,000,000 rows x 2,000,000,000 columns with 1 entry")
    assert "needs about 89.4 GiB of memory" in said and "check the header" in said


def test_what_may_be_sparse_is_not_judged_as_dense(tmp_path, monkeypatch):
    """Of 20,000 million entries two are listed, and the limit is two megabytes."""
    path = tmp_path / "m.mtx"
    path.write_text(f"{MARKET}20000 1000000 2\n1 1\n20000 1000000\n")
    monkeypatch.setattr(memory, "available_memory", lambda: 2**21)
    assert load(path).num_ones == 2
    with pytest.raises(InputError, match="naming 1,000,000 columns needs about 76 MiB"):
        _ = load(path).column_names


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("3 3 1000000000000000000", "declares 1,000,000,000,000,000,000 entries and the file has"),
        ("3 3 99", "too few for them; check that the file is whole"),
        ("3 3 3", "cannot be read as .mtx (Truncated file"),
        ("3 3 1", "cannot be read as .mtx (Line 5: Too many lines in file"),
        ("-3 3 2", "Matrix dimensions can't be negative"),
        ("3 3 -2", "Matrix NNZ can't be negative"),
        ("3 x 2", "Invalid integer value"),
        ("3 3 1" + "0" * 40, "Integer out of range"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, size, message):
    path = tmp_path / "m.mtx"
    path.write_text(f"{MARKET}% a comment\n{size}\n1 1\n2 2")
    with pytest.raises(InputError) as error:
        load(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_the_shortest_files_that_hold_what_they_declare_are_read(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(f"{MARKET}3 3 2\n1 1\n2 2")
    assert load(path).num_ones == 2
    path.write_text("%%MatrixMarket matrix array integer symmetric\n3 3\n1\n0\n1\n1\n0\n1")
    assert load(path).num_ones == 5


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_a_full_array_is_judged_by_all_its_entries(tmp_path, little, symmetry):
    path = tmp_path / "m.mtx"
    lines = "0\n" * (400 * 400)
    path.write_text(f"%%MatrixMarket matrix array integer {symmetry}\n400 400\n{lines}")
    refused(load, path, "a matrix of 400 rows x 400 columns", "needs about 2 MiB")


# -- archives and arrays ------------------------------------------------------------------------


def test_a_small_archive_of_many_bytes_is_refused(tmp_path, little):
    """A zip bomb: two thousand to one."""
    path = archive(tmp_path / "m.npz", kind="binary", bits=np.zeros((2000, 1000), np.uint8))
    assert path.stat().st_size < 10_000
    refused(load, path, "what the file holds (2,00", "when unpacked")


@pytest.mark.parametrize("shape", [HUGE, (1000, 1000)])
def test_an_array_that_declares_more_than_its_archive_holds_is_refused(tmp_path, shape):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("kind.npy", npy(shape))
    refused(load, path, "its array 'kind' declares", "whole")


@pytest.mark.parametrize(
    "fields",
    [
        {"bits": np.zeros((1, 1), np.uint8)},
        {"indptr": np.arange(20_000), "indices": np.zeros(19_999, np.int16)},
    ],
)
def test_own_files_of_a_huge_shape_are_refused(tmp_path, little, fields):
    shape = (19_999, 3) if "indptr" in fields else HUGE
    path = archive(tmp_path / "m.npz", kind="binary", shape=np.array(shape), **fields)
    refused(load, path, "matrix of", "as the file declares it, needs about")


def test_truths_and_ratings_of_a_huge_shape_are_refused(tmp_path, little):
    one = np.ones((1, 1), np.uint8)
    bits = {"truth_rank": 1, "truth_usage": np.repeat(one, 1500, 0)}
    bits |= {"truth_basis": bits["truth_usage"]}
    path = archive(tmp_path / "t.npz", kind="binary", shape=[1500, 1500], **bits)
    refused(load_truth, path, "1,500 rows x 1,500 columns")
    save(tmp_path / "r.npz", Ratings([0], [0], [1.0], shape=HUGE))
    refused(load_ratings, tmp_path / "r.npz", "1 ratings of 2,000,000,000 rows", "59.6 GiB")


@pytest.mark.parametrize("form", [sp.coo_array, sp.csc_array, sp.dia_array])
def test_scipy_files_of_a_huge_shape_are_refused(tmp_path, form):
    path = tmp_path / "m.npz"
    entries = form(sp.coo_array(([1.0], ([0], [0])), shape=(1, 3)))
    sp.save_npz(path, entries)
    with np.load(path) as arrays:
        fields = dict(arrays)
    archive(path, **fields | {"shape": np.array([2_000_000_000, 3])})
    refused(load, path, "sparse matrix of 2,000,000,000 rows x 3 columns with 1 entry")


@pytest.mark.parametrize(
    ("form", "key"),
    [
        (sp.csr_array, "indices"),
        (sp.csr_array, "indptr"),
        (sp.csc_array, "indices"),
        (sp.coo_array, "row"),
        (sp.dia_array, "offsets"),
    ],
)
def test_scipy_files_with_positions_that_are_no_integers_are_refused(tmp_path, form, key):
    path = tmp_path / "m.npz"
    sp.save_npz(path, form(np.eye(3)))
    with np.load(path) as arrays:
        fields = dict(arrays)
    archive(path, **fields | {key: fields[key] + 0.5})
    for read in (load, load_real):
        refused(read, path, f"its array '{key}' has dtype float64; write it again, with integers")


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.bsr_array])
def test_scipy_files_with_pointers_that_end_with_zero_are_refused(tmp_path, form):
    path = tmp_path / "m.npz"
    sp.save_npz(path, form(np.eye(3)))
    with np.load(path) as arrays:
        fields = dict(arrays)
    archive(path, **fields | {"indptr": np.array([0, 2**30, 2**30, 0])})
    for read in (load, load_real):
        refused(read, path, "its pointers do not fit its entries")


@pytest.mark.parametrize("version", [1, 2])
def test_arrays_of_a_huge_shape_are_refused(tmp_path, little, version):
    path = tmp_path / "m.npy"
    path.write_bytes(npy(HUGE))
    refused(load_real, path, "declares 32,000,000,000,000,000,000 bytes and the file has 128")
    with open(path, "wb") as stream:
        np.lib.format.write_array(stream, np.ones((250, 200)), version=(version, 0))
    refused(load_real, path, "a matrix of 250 rows x 200 columns", "needs about 1 MiB")
    np.save(path, np.eye(2))
    assert load_real(path).shape == (2, 2)


def test_a_binary_matrix_that_does_not_fit_as_real_numbers_is_refused(tmp_path, little):
    values = sp.csr_array(np.eye(500))
    path = save(tmp_path / "m.npz", BinaryMatrix(values))
    assert load_real(path).is_sparse
    values.data[0] = np.nan  # of which a dense matrix is made
    save(path, BinaryMatrix(values), overwrite=True)
    assert load(path).num_ones == 499
    refused(load_real, path, "a matrix of 500 rows x 500 columns", "needs about 6 MiB")
    save(path, RealMatrix(np.eye(250)), overwrite=True)
    refused(load_real, path, "a matrix of 250 rows x 250 columns")


# -- AnnData and Parquet ------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [None, True])
def test_anndata_of_a_huge_shape_is_refused(tmp_path, chunks):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("anndata")
    path = tmp_path / "m.h5ad"
    with h5py.File(path, "w") as file:
        shape = (2_000_000, 2_000_000)
        file.create_dataset("X", shape, "f4", chunks=chunks, compression="gzip" if chunks else None)
    assert path.stat().st_size < 10_000  # nothing was ever written to it
    refused(load, path, "a matrix of 2,000,000 rows x 2,000,000 columns", "needs about 1,118 GiB")


def test_sparse_anndata_of_a_huge_shape_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    anndata = pytest.importorskip("anndata")
    path = tmp_path / "m.h5ad"
    anndata.AnnData(sp.csr_matrix(np.eye(3, dtype=np.float32))).write_h5ad(path)
    assert load(path).num_ones == 3
    with h5py.File(path, "r+") as file:
        file["X"].attrs["shape"] = np.array(HUGE)
    refused(load, path, "sparse matrix of 2,000,000,000 rows", "with 3 entries")


def test_dense_anndata_and_tables_are_judged_as_what_they_become(tmp_path, little):
    pytest.importorskip("pyarrow")
    anndata = pytest.importorskip("anndata")
    values = np.zeros((400, 300), np.float32)
    values[0] = 1
    anndata.AnnData(values).write_h5ad(tmp_path / "m.h5ad", compression="gzip")
    refused(load, tmp_path / "m.h5ad", "needs about")
    frame = pd.DataFrame(values).rename(columns=str)
    frame.to_parquet(tmp_path / "m.parquet")
    refused(load, tmp_path / "m.parquet", "a matrix of 400 rows x 300 columns", "2 MiB")
    frame.iloc[:30, :30].to_parquet(tmp_path / "m.parquet")
    assert load(tmp_path / "m.parquet").shape == (30, 30)


@pytest.mark.parametrize("key", ["row_names", "col_names", "y", "y_names"])
def test_names_in_own_files_are_compared_with_the_matrix(tmp_path, key):
    """Unread: they may be many more than the matrix is large."""
    names = {"row_names": ["a", "b"], "column_names": ["c", "d"], "row_labels": ["e", "e"]}
    path = save(tmp_path / "m.npz", BinaryMatrix(np.eye(2), **names))
    with np.load(path) as arrays:
        fields = dict(arrays)
    archive(path, **fields | {key: np.resize(fields[key], 3)})
    refused(load, path, f"its array {key!r} has the shape (3,) beside a matrix of 2 rows x 2")


# -- positions that no number of 32 bits can be -------------------------------------------------

LONG = 2**31


@pytest.mark.parametrize("shape", [(2, LONG), (LONG, 2)])
def test_too_many_rows_or_columns_are_refused_in_files(tmp_path, shape):
    said = f"the matrix has 2,147,483,648 {'columns' if shape[1] == LONG else 'rows'}, and there"
    market, archived = tmp_path / "m.mtx", tmp_path / "m.npz"
    market.write_text(f"{MARKET}{shape[0]} {shape[1]} 1\n1 1\n")
    for read in (load, load_real):
        refused(read, market, said, "may be 2,147,483,647")
    sparse = {"indptr": np.zeros(3, int), "indices": np.zeros(0, int)}
    for kind in ("binary", "real", "table of ratings"):
        empty = {"values": np.zeros(0), "rows": np.zeros(0, int), "columns": np.zeros(0, int)}
        more = sparse if kind != "table of ratings" else {}
        more |= empty if kind != "binary" else {}
        archive(archived, kind=kind, shape=np.array(shape), **more)
        if kind == "table of ratings":
            refused(load_ratings, archived, said)
        elif shape[1] == LONG:  # of rows as many pointers would have to be there
            refused(load if kind == "binary" else load_real, archived, said)
    entries = sp.coo_array(([1.0], ([0], [0])), shape=(2, 2))
    sp.save_npz(archived, entries)
    with np.load(archived) as arrays:
        fields = dict(arrays)
    archive(archived, **fields | {"shape": np.array(shape)})
    for read in (load, load_real):
        refused(read, archived, said)


def test_too_many_rows_or_columns_are_refused_in_memory():
    wide = sp.coo_array(([1.0], ([0], [LONG])), shape=(2, LONG + 1))
    for make in (
        lambda: BinaryMatrix(wide),
        lambda: RealMatrix(wide),
        lambda: Ratings([0], [LONG], [1.0], shape=(1, LONG + 1)),
        lambda: Ratings([0], [0], [1.0], shape=(1, LONG)),
        lambda: Ratings.without_any((LONG, 1)),
        lambda: BinaryMatrix.from_packed(np.zeros((1, 1), np.uint32), LONG),
    ):
        with pytest.raises(InputError, match=r"the matrix has 2,147,483,64\d (rows|columns), and"):
            make()


# -- text ---------------------------------------------------------------------------------------


def test_items_of_transactions_may_have_any_number(tmp_path, monkeypatch):
    path = tmp_path / "m.dat"
    path.write_bytes(b"1 999999999999999999\n7\n")
    assert load(path).shape == (2, 3)
    path.write_bytes(b" ".join(b"%d" % k for k in range(8000)))
    monkeypatch.setattr(memory, "available_memory", lambda: 2**20)
    refused(load, path, "reading 8,000 items of transactions needs about 1 MiB")


@pytest.mark.parametrize("read", [load, load_real])
@pytest.mark.parametrize("line", ["0.5," * 50 + "1\n", "0," * 50_000, "x" * 50_000])
def test_tables_as_text_are_judged_by_their_size(tmp_path, little, read, line):
    path = tmp_path / "m.csv"
    path.write_text(line * (600_000 // len(line)))
    refused(read, path, "reading a table as text of", "give it as .npz")


def test_small_tables_are_read_in_little_memory(tmp_path, little):
    path = tmp_path / "m.csv"
    path.write_text("1,0\n0,1\n" * 1000)
    assert load(path).shape == (2000, 2)


@pytest.mark.parametrize("line", ["1,2,3\n", "x" * 50_000])
def test_ratings_as_text_are_judged_by_their_size(tmp_path, little, line):
    path = tmp_path / "m.csv"
    path.write_text(line * (600_000 // len(line)))
    with pytest.raises(InputError, match=r"reading ratings from a text of .* needs about"):
        load_ratings(path)


# -- what is no file ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("ending", [*READERS, ".txt"])
@pytest.mark.parametrize("what", ["a device", "a pipe", "a socket"])
def test_devices_and_pipes_are_refused_at_once(tmp_path, monkeypatch, ending, what):
    """Behind links, too: one would never end, and the other never begin."""
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    target = "/dev/zero" if what == "a device" else tmp_path / "target"
    if what == "a pipe":
        os.mkfifo(target)
    elif what == "a socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("target")
    path = tmp_path / f"m{ending}"
    path.symlink_to("link")
    (tmp_path / "link").symlink_to(target)
    of_kinds = {BINARY: load, REAL: load_real, RATINGS: load_ratings}
    readers = [of_kinds[kind] for kind in READERS.get(ending, ANY_ENDING)]
    readers += [load_truth] if ending == ".npz" else []
    for read in (*readers, lambda path: read_named_lines(path, "things", "fields")):
        with pytest.raises(InputError) as error:
            read(path)
        assert str(error.value).startswith(f"{path} is {what}; write its content to a file")


# -- lines of Matrix Market ---------------------------------------------------------------------


@pytest.mark.parametrize("read", [load, load_real])
@pytest.mark.parametrize(
    ("header", "lines", "wrong"),
    [
        ("coordinate integer", "2 2 1\n1 1 1\0\n", (3, r"1 1 1\x00")),  # the process would end
        ("coordinate integer", "2 2 1\n1 1 1\0", (3, r"1 1 1\x00")),
        ("coordinate integer", "2 2 1\n1 1 1x", (3, "1 1 1x")),
        ("coordinate pattern", "2 2 2\n2 2\n1 1 ", (4, "1 1 ")),
        ("array real", "1 2\n1\n0\r", (4, r"0\r")),
        ("array real", "1 2\n1\n1d0\n", (4, "1d0")),  # a number of Fortran
        ("coordinate integer", "2 2 1\n% a\n1 1 1.7\n", (3, "% a")),
        ("coordinate integer", "% a\n\n2 2 1\n1 1 1.7\n", (5, "1 1 1.7")),
        ("coordinate integer", "2 2 1\n\n1 1 1 7\n", (4, "1 1 1 7")),
        ("coordinate pattern", "2 2 1\n1 1 7\n", (3, "1 1 7")),
    ],
)
def test_a_line_that_is_no_entry_is_refused(tmp_path, read, header, lines, wrong):
    """Of most scipy takes what it understands; the others end the whole process."""
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix {header} general\n{lines}", newline="")
    refused(read, path, f"line {wrong[0]}: '{wrong[1]}' is no entry ({header.replace(' ', ', ')}")


def test_headers_of_zero_bytes_are_refused(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(f"{MARKET}% a \0 comment\n3 3 1\n1 1\n")
    refused(load, path, "line 2 of its header is no text")


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("coordinate real", "1 3 3\n1 1 1.0 \r\n\n1 2 0.1234567890123456789012e-400\r\n1 3 nan"),
        ("array double", "1 3\n1\n0.\nNaN\n"),
        ("coordinate unsigned-integer", " \n1\t3 1\n\t1 \t 1  1\n\n \n"),
    ],
)
def test_lines_that_are_entries_are_read(tmp_path, header, lines):
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix {header} general\n{lines}", newline="")
    assert load_real(path).shape == (1, 3) and load(path, binarize=0).num_ones == 1


def test_lines_of_matrix_market_are_looked_at_in_blocks(tmp_path, monkeypatch):
    path = tmp_path / "m.mtx"
    entries = "".join(f"{k} {k}\n" for k in range(1, 9))
    monkeypatch.setattr("bmfjax.data.io.market._BLOCK", 60)
    path.write_text(f"{MARKET}9 9 9\n{entries}9 9\n")
    assert load(path).num_ones == 9
    path.write_text(f"{MARKET}9 9 9\n{entries}9 9x\n")
    refused(load, path, "line 11: '9 9x'")
