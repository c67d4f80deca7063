"""Loaders: the same matrix through every format, and one sentence for what cannot be read."""

import builtins
import functools
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from bmfjax.data import BinaryMatrix, InputError, RealMatrix, load, load_ratings, load_real
from bmfjax.data.io.formats import BINARY, READERS, REAL, Reader

NAN = np.nan
FULL = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 1]], dtype=float)
HOLED = np.array([[1, NAN, 0, 1], [0, 1, NAN, 0], [NAN, 1, 0, 1]])
ROWS, COLUMNS = ("ann", "bob", "eve"), ("a", "b", "c", "d")


def written(path, kind, values):
    """Write `values` in one of the formats and return the path."""
    if kind == "scipy.npz":
        sp.save_npz(path / "m.npz", sp.coo_array(values))
        return path / "m.npz"
    if kind.endswith("mtx"):
        target = sp.coo_array(values) if kind == "coordinates.mtx" else values
        scipy.io.mmwrite(path / "m.mtx", target)
        return path / "m.mtx"
    if kind == "pattern.mtx":
        scipy.io.mmwrite(path / "m.mtx", sp.coo_array(values), field="pattern")
        return path / "m.mtx"
    frame = pd.DataFrame(values, index=list(ROWS), columns=list(COLUMNS))
    if kind == "h5ad":
        anndata = pytest.importorskip("anndata")
        anndata.AnnData(
            sp.csr_matrix(values.astype(np.float32)), frame[[]], frame.T[[]]
        ).write_h5ad(path / "m.h5ad")
        return path / "m.h5ad"
    if kind == "array.zarr":
        saved_array(path / "m.zarr", values)
        return path / "m.zarr"
    if kind == "cells.zarr":
        saved_cells(path / "m.zarr", values, frame[[]], frame.T[[]])
        return path / "m.zarr"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path / "m.parquet")
        return path / "m.parquet"
    frame.to_csv(path / f"m.{kind}", sep="\t" if kind == "tsv" else ",", na_rep="NA")
    return path / f"m.{kind}"


def saved_array(path, values, rows=2):
    """Write a zarr array whose chunks have so many rows."""
    zarr = pytest.importorskip("zarr")
    array = zarr.open(
        str(path), mode="w", shape=values.shape, chunks=(rows, values.shape[1]), dtype=values.dtype
    )
    array[:] = values


def saved_cells(path, values, obs, var, form=sp.csr_matrix):
    """Write the zarr group of an AnnData object."""
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the version of the format that is to come
        with anndata.settings.override(zarr_write_format=2):
            anndata.AnnData(form(values.astype(np.float32)), obs, var).write_zarr(path)


KINDS = [
    "scipy.npz", "coordinates.mtx", "array.mtx", "csv", "tsv", "h5ad", "parquet", "array.zarr",
    "cells.zarr",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [FULL, HOLED], ids=["full", "holed"])
def test_every_format_gives_the_same_matrix(tmp_path, kind, values):
    matrix = load(written(tmp_path, kind, values))
    assert matrix.fingerprint() == BinaryMatrix(values).fingerprint()
    assert matrix.name == "m"
    if kind in ("csv", "tsv", "h5ad", "parquet", "cells.zarr"):
        assert matrix.row_names == ROWS and matrix.column_names == COLUMNS
    else:
        assert not matrix.has_row_names and not matrix.has_column_names


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_refuses_other_values_until_there_is_a_threshold(tmp_path, kind):
    values = np.array([[0.0, 3.0, 1.0, 0.5], [0.0, 0.0, NAN, 2.0], [1.0, 0.0, 0.0, 0.0]])
    path = written(tmp_path, kind, values)
    with pytest.raises(InputError, match=r"value 3(\.0)? at row 1.*column 2.*(binarize=0|one=)"):
        load(path)
    expected = np.where(np.isnan(values), NAN, values > 0.5)
    assert load(path, binarize=0.5).fingerprint() == BinaryMatrix(expected).fingerprint()


@pytest.mark.parametrize("field", ["pattern", "integer"])
def test_matrix_market_pattern_and_integer(tmp_path, field):
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(FULL.astype(int)), field=field)
    matrix = load(tmp_path / "m.mtx")
    assert matrix.is_sparse and matrix.fingerprint() == BinaryMatrix(FULL).fingerprint()


@pytest.mark.parametrize(
    ("field", "entries", "total"),
    [("pattern", "1 1\n3 2\n3 2\n", 2), ("integer", "1 1 1\n3 2 4\n3 2 -1\n", 3)],
)
def test_matrix_market_entries_that_are_listed_twice(tmp_path, field, entries, total):
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate {field} general\n3 3 3\n{entries}")
    message = f"row 3, column 2 .* is listed twice, and its values add up to {total}; .*binarize 0"
    with pytest.raises(InputError, match=message):
        load(path)
    assert load(path, binarize=0).dense(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_fimi_transactions(tmp_path):
    path = tmp_path / "m.dat"
    path.write_bytes(b"10 2 10\r\n\n7 2 \n100\n")
    matrix = load(path)
    assert matrix.column_names == ("2", "7", "10", "100") and matrix.is_sparse
    expected = [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]]
    assert matrix.dense(int).tolist() == expected
    path.write_bytes(b"1 2\n\n3 x 4\n")
    with pytest.raises(InputError, match="item 'x' on line 3 is not a non-negative integer"):
        load(path)


@pytest.mark.parametrize("density", [0.01, 0.5])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_a_large_anndata_is_read_in_blocks_of_rows(tmp_path, monkeypatch, form, density):
    """Kept as words, or as positions where these are fewer; every block has a hole if dense."""
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    values = np.where(rng.random((60, 40)) < density, 3.0, 0.0).astype(np.float32)
    if form is np.asarray:
        values[::7, 3] = np.nan
    names = pd.DataFrame(index=[f"cell {i}" for i in range(60)])
    cells = anndata.AnnData(form(values), names)
    cells.write_h5ad(tmp_path / "m.h5ad")
    expected = BinaryMatrix(np.where(np.isnan(values), np.nan, values > 0.5))
    monkeypatch.setattr("bmfjax.data.io.rows.LARGE", 100)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 400)
    for source in (tmp_path / "m.h5ad", cells):
        found = load(source, binarize=0.5)
        assert found.fingerprint() == expected.fingerprint()
        assert found.row_names == tuple(names.index)
    assert found.is_packed == (form is np.asarray or (form is sp.csr_matrix and density > 1 / 32))
    with h5py.File(tmp_path / "m.h5ad", "r+") as file:
        del file["X"]
    with pytest.raises(InputError, match="it holds no matrix X"):
        load(tmp_path / "m.h5ad")
    (tmp_path / "m.h5ad").unlink()
    i, j = np.argwhere(values == 3.0)[-1]
    values[:] = np.where(values == 3.0, 1.0, values)
    values[i, j] = 3.0
    anndata.AnnData(form(values), names).write_h5ad(tmp_path / "m.h5ad")
    with pytest.raises(
        InputError, match=rf"value 3.0 at row {i + 1} \('cell {i}'\), column {j + 1}"
    ):
        load(tmp_path / "m.h5ad")


@pytest.mark.parametrize("density", [0.01, 0.5])
@pytest.mark.parametrize("form", ["array", sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_a_large_zarr_is_read_in_blocks_of_rows(tmp_path, monkeypatch, form, density):
    """As an .h5ad: kept as words, or as positions where these are fewer."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((60, 40)) < density, 3.0, 0.0).astype(np.float32)
    path, expected = tmp_path / "m.zarr", BinaryMatrix(values > 0.5)
    names = pd.DataFrame(index=[f"cell {i}" for i in range(60)])
    if form == "array":
        saved_array(path, values, rows=7)
    else:
        columns = pd.DataFrame(index=[f"gene {j}" for j in range(40)])
        saved_cells(path, values, names, columns, form)
    monkeypatch.setattr("bmfjax.data.io.rows.LARGE", 100)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 400)
    found = load(path, binarize=0.5)
    assert found.fingerprint() == expected.fingerprint()
    assert found.has_row_names == (form != "array")
    is_dense = form in ("array", np.asarray)
    assert found.is_packed == (is_dense or (form is sp.csr_matrix and density > 1 / 32))
    with pytest.raises(InputError, match=r"value 3.0 at row .*, column .*binarize"):
        load(path)
    real = load_real(path)
    assert real.is_sparse == (not is_dense)
    assert real.fingerprint() == RealMatrix(values).fingerprint()


def test_a_zarr_that_is_no_matrix_is_refused(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.open(str(tmp_path / "cube.zarr"), mode="w", shape=(2, 3, 4), dtype="f4")
    array[:] = 0
    with pytest.raises(InputError, match="its array has 3 dimensions"):
        load(tmp_path / "cube.zarr")
    zarr.open_group(str(tmp_path / "none.zarr"), mode="w")
    with pytest.raises(InputError, match="it holds no matrix X"):
        load(tmp_path / "none.zarr")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(InputError, match=r"empty.zarr cannot be read as .zarr"):
        load(tmp_path / "empty.zarr")
    saved_array(tmp_path / "m.zarr", FULL)
    with pytest.raises(InputError, match="it is an array, which has no labels"):
        load(tmp_path / "m.zarr", label_column="side")
    written(tmp_path, "cells.zarr", FULL)
    pointers = zarr.open(str(tmp_path / "m.zarr"), mode="r+")["X"]["indptr"]
    pointers[1] = 99
    with pytest.raises(InputError, match="its pointers do not fit its entries"):
        load(tmp_path / "m.zarr")


@pytest.mark.parametrize("kind", ["scipy.npz", "coordinates.mtx", "h5ad", "cells.zarr"])
def test_sparse_files_of_numbers_stay_sparse(tmp_path, kind):
    values = np.array([[0.0, 3.0, 1.0, 0.5], [0.0, 0.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0]])
    found = load_real(written(tmp_path, kind, values))
    assert found.is_sparse and found.fingerprint() == RealMatrix(values).fingerprint()
    assert found.has_row_names == (kind in ("h5ad", "cells.zarr"))


@pytest.mark.parametrize(
    "named", ["index", "first column", "categories", "asked for", "not", "refused"]
)
def test_a_large_parquet_is_read_in_blocks_of_rows(tmp_path, monkeypatch, named):
    """As a small one, whatever names its rows; a table of several groups of rows, with holes."""
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    values = rng.choice([0.0, 3.0, np.nan], (60, 40), p=[0.6, 0.3, 0.1])
    frame = pd.DataFrame(values, columns=[f"gene {j}" for j in range(40)])
    frame["side"] = rng.choice(["a", "b"], 60)
    who = [f"cell {i}" for i in range(60)]
    options = {"binarize": 0.5, "label_column": "side"}
    if named == "index":
        frame.index = who
    elif named in ("first column", "categories", "refused"):
        frame.insert(0, "who", pd.Categorical(who) if named == "categories" else who)
    elif named == "asked for":
        frame.insert(0, "who", np.arange(60))
        options["row_names"] = True
    if named == "refused":
        options["row_names"] = False
    frame.to_parquet(tmp_path / "m.parquet", row_group_size=17)
    load_it = functools.partial(load, tmp_path / "m.parquet")
    expected = None if named == "refused" else load_it(**options)
    monkeypatch.setattr("bmfjax.data.io.formats.LARGE", 100)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 400)
    if named == "refused":
        with pytest.raises(InputError, match="column 'who' is not numeric"):
            load_it(**options)
        return
    found = load_it(**options)
    assert found.is_packed
    assert found.fingerprint() == expected.fingerprint()
    for side in ("row_names", "column_names", "row_labels", "name"):
        assert getattr(found, side) == getattr(expected, side)
    with pytest.raises(InputError, match=r"value 3.0 at row .*gene"):
        load_it(**options | {"binarize": None})
    with pytest.raises(InputError, match=r"has no such column; it has .*gene 0"):
        load_it(**options | {"label_column": "nobody"})


@pytest.mark.parametrize("large", [10**6, 1])
@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("list", [[1], [0], [1]]),
        ("fixed", [[1], [0], [1]]),
        ("struct", [{"x": 1}, {"x": 0}, None]),
        ("map", [[("x", 1)], [], []]),
        ("extension", [[[1.0]], [[0.0]], [[1.0]]]),
    ],
)
def test_parquet_columns_of_several_values_a_cell_are_refused(
    tmp_path, monkeypatch, kind, cells, large
):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    kinds = {
        "fixed": lambda: pyarrow.list_(pyarrow.int64(), 1),
        "map": lambda: pyarrow.map_(pyarrow.string(), pyarrow.int64()),
    }
    if kind == "extension":
        column = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(np.array(cells))
    else:
        column = pyarrow.array(cells, kinds[kind]() if kind in kinds else None)
    parquet.write_table(pyarrow.table({"a": [1, 0, 1], "odd": column}), tmp_path / "m.parquet")
    monkeypatch.setattr("bmfjax.data.io.formats.LARGE", large)
    for options in ({}, {"binarize": 0}, {"label_column": "odd"}):
        with pytest.raises(InputError, match=r"column 'odd' is of .*, several values in a cell"):
            load(tmp_path / "m.parquet", **options)


def test_names_in_a_large_parquet_are_judged_too(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"who": [f"p{i}" for i in range(3000)], "a": 1})
    frame.to_parquet(tmp_path / "m.parquet")
    monkeypatch.setattr("bmfjax.data.io.formats.LARGE", 1)
    assert load(tmp_path / "m.parquet").num_ones == 3000
    monkeypatch.setattr("bmfjax.data.memory.available_memory", lambda: 2**18)
    with pytest.raises(InputError, match="text for 3,000 rows, as the file declares them, needs"):
        load(tmp_path / "m.parquet")


def test_a_large_parquet_with_a_name_twice_is_refused(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = [pyarrow.array(np.zeros(30)) for _ in range(5)]
    parquet.write_table(
        pyarrow.Table.from_arrays(columns, names=list("abcda")), tmp_path / "m.parquet"
    )
    said = []
    for large in (10**6, 100):
        monkeypatch.setattr("bmfjax.data.io.formats.LARGE", large)
        with pytest.raises(InputError, match=r"twice|repeat|same") as refused:
            load(tmp_path / "m.parquet")
        said.append(str(refused.value))
    assert said[0] == said[1]


# -- labels -------------------------------------------------------------------------------------


def test_labels_from_h5ad_zarr_and_parquet(tmp_path):
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(FULL, index=list(ROWS), columns=list(COLUMNS))
    obs = pd.DataFrame({"side": ["x", "y", "x"]}, index=list(ROWS))
    anndata.AnnData(FULL, obs, frame.T[[]]).write_h5ad(tmp_path / "m.h5ad")
    saved_cells(tmp_path / "m.zarr", FULL, obs, frame.T[[]])
    obs.join(frame).to_parquet(tmp_path / "m.parquet")
    obs.join(frame).reset_index(names="who").to_parquet(tmp_path / "flat.parquet")
    for name in ("m.h5ad", "m.zarr", "m.parquet", "flat.parquet"):
        matrix = load(tmp_path / name, label_column="side")
        assert matrix.row_labels == ("x", "y", "x") and matrix.row_names == ROWS
        assert matrix.fingerprint() == BinaryMatrix(FULL).fingerprint()
        # As the command line gives them.
        assert load(tmp_path / name, label_column=["side"]).row_labels == ("x", "y", "x")
        with pytest.raises(InputError, match="'nope'"):
            load(tmp_path / name, label_column="nope")
    assert load(tmp_path / "m.parquet", row_names=False, label_column="side").num_rows == 3


@pytest.mark.parametrize(
    ("ending", "package"), [("h5ad", "anndata"), ("parquet", "pyarrow"), ("zarr", "zarr")]
)
def test_an_absent_package_is_named_with_its_extra(tmp_path, monkeypatch, ending, package):
    path = tmp_path / f"m.{ending}"
    path.write_bytes(b"")
    imported = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == package:
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=rf"needs the package {package}; .*bmfjax\[{ending}\]"):
        load(path)


# -- what cannot be read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("house-vote", "no such file; did you mean 'house-votes'.* are house-votes, zoo, mushroom"),
        ("xyzzy", "'xyzzy' is no shipped matrix, and there is no such file; the shipped ones are"),
        ("none.csv", "none.csv does not exist: no such file"),
        ("folder", "folder is a folder; give a file in it"),
        ("fitted", r"fitted is a fit; read it by bmfjax\.Fit\.load\('fitted'\)"),
        ("fitted/report.html", r"a page \(HTML\), made of a fit; .*Fit\.load\('fitted'\)"),
        ("page.html", r"page.html is a page \(HTML\), and holds no data"),
        ("page.csv", r"page.csv: it is a page \(HTML\), such as one that asks to sign in"),
        ("m.txt", r"ending '.txt', which is not known; give one of .npz.*ratings, say model='pmf'"),
    ],
)
def test_sources_that_are_neither_name_nor_file(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "fitted"):
        (tmp_path / name).mkdir()
    (tmp_path / "fitted" / "summary.json").touch()
    for name in ("m.txt", "page.csv", "page.html", "fitted/report.html"):
        (tmp_path / name).write_text("<!DOCTYPE html>\n<html></html>\n" * ("page" in name))
    with pytest.raises(InputError, match=message):
        load(source)
    with pytest.raises(TypeError, match="source is a ndarray"):
        load(np.eye(2))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.mtx", b""),
        ("m.mtx", b"\x00\xff\xfegibberish\n\n1 2"),
        ("m.mtx", b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n"),
        ("m.mtx", b"%%MatrixMarket matrix coordinate real general\n3 3 1\n9 9 1\n"),
        ("m.mtx", b"%%MatrixMarket matrix array complex general\n1 1\n1 0\n"),
        ("m.npz", b"PK\x03\x04 and no more"),
        ("m.dat", b"\xff\xfe\x00"),
        ("m.dat", b"\n\n"),
        ("m.dat", b"9" * 40),
        ("m.csv", b"\xff\xfa0\x00"),
        ("m.csv", b'0,"1\n0,1\n'),
        ("m.csv", b"\n\n"),
    ],
)
def test_broken_files_give_one_sentence_with_the_path(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        load(path)
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("package", "ending"), [("anndata", "h5ad"), ("pyarrow", "parquet")])
def test_broken_files_of_the_extras(tmp_path, package, ending):
    pytest.importorskip(package)
    path = written(tmp_path, ending, FULL)
    whole = path.read_bytes()
    for content in (b"", b"gibberish", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"m\.{ending} cannot be read as \.{ending}"):
            load(path)


# -- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("house-votes", {"binarize": 0}, "house-votes.npz: binarize means nothing"),
        ("m.mtx", {"missing": "?"}, "missing means nothing for .*m.mtx: it is for .csv .tsv .xlsx"),
        ("m.mtx", {"row_names": True}, "row_names means nothing"),
        ("m.mtx", {"scale": (1, 5)}, "m.mtx: it is for text .npz .* files of ratings data; leave"),
        ("m.mtx", {"binarize": -1}, "binarize is -1 and the file is sparse"),
        ("m.mtx", {"binarize": NAN}, "binarize is nan; give a finite number"),
        ("m.mtx", {"header": "yes"}, "header is 'yes'; give True, False or 'auto'"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path, source, options, message):
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(FULL))
    with pytest.raises(InputError, match=message):
        load(tmp_path / source if "." in source else source, **options)


def test_options_of_a_wrong_kind_are_type_errors():
    for options in ({"binarize": "1"}, {"missing": object()}, {"label_column": 2}):
        with pytest.raises(TypeError, match=next(iter(options))):
            load("zoo", **options)


def test_ten_thousand_columns_are_read(tmp_path):
    values = np.random.default_rng(0).random((100, 10_000)) < 0.3
    np.savetxt(tmp_path / "wide.csv", values, fmt="%d", delimiter=",")
    matrix = load(tmp_path / "wide.csv")
    np.testing.assert_array_equal(matrix.dense(bool), values)


@pytest.mark.parametrize(("loader", "kind"), [(load, BINARY), (load_real, REAL)])
def test_the_docstring_lists_every_format(loader, kind):
    doc = " ".join(loader.__doc__.split())
    assert "{" not in doc.partition("Parameters")[0]
    for ending, row in READERS.items():
        assert kind not in row or (ending in doc and row[kind].about in doc)


def test_a_new_format_is_one_row_of_the_table(tmp_path, monkeypatch):
    def read(path, kind, *, binarize=None):
        assert kind == BINARY
        return BinaryMatrix(np.eye(int(path.read_text())), name=path.stem)

    monkeypatch.setitem(READERS, ".eye", {BINARY: Reader(read, ("binarize",))})
    path = tmp_path / "m.eye"
    path.write_text("3")
    assert load(path).num_ones == 3 and load(path, binarize=0).name == "m"
    with pytest.raises(InputError, match="missing means nothing"):
        load(path, missing="?")
    for read in (load_real, load_ratings):
        with pytest.raises(
            InputError, match=r"the ending '\.eye', of which no .* data are read; g"
        ):
            read(path)
    path.write_text("three")
    with pytest.raises(InputError, match=r"m\.eye cannot be read as \.eye"):
        load(path)
