"""AnnData files of strangers: what lies elsewhere, is not there or does not fit."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bmfjax.data import InputError, load, load_real, memory

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")

ONES = (np.arange(84).reshape(12, 7) % 3 == 0).astype(np.float32)
#: Names as objects, of which all versions of AnnData make plain arrays.
CELLS = pd.Index([f"cell {i}" for i in range(12)], dtype=object)
ROWS = pd.DataFrame({"size": range(12)}, index=CELLS)
COLUMNS = pd.DataFrame(index=pd.Index([f"gene {j}" for j in range(7)], dtype=object))
SECRET = np.ones((12, 7), np.float32)


def written(folder, form=sp.csr_matrix, **parts):
    """Write an .h5ad and return its path."""
    path = folder / "m.h5ad"
    anndata.AnnData(form(ONES), ROWS, COLUMNS, **parts).write_h5ad(path)
    return path


def refused(path, message):
    """Neither kind of matrix is read, and the sentence begins with the path."""
    for read in (load, load_real):
        with pytest.raises(InputError, match=re.escape(f"{path}: ") + message) as error:
            read(path)
        assert "\n" not in str(error.value)


@pytest.fixture
def secret(tmp_path):
    """A file of its own, as HDF5 and as bytes."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["X"] = SECRET
    SECRET.tofile(tmp_path / "secret.bin")
    return tmp_path / "secret.h5"


# -- other files --------------------------------------------------------------------------------


def linked(file, secret):
    file["X"] = h5py.ExternalLink(str(secret), "/X")


def stored_outside(file, secret):
    outside = [(str(secret.with_suffix(".bin")), 0, SECRET.nbytes)]
    file.create_dataset("X", SECRET.shape, "f4", external=outside)


def virtual(file, secret):
    layout = h5py.VirtualLayout(SECRET.shape, "f4")
    layout[:] = h5py.VirtualSource(str(secret), "X", SECRET.shape)
    file.create_virtual_dataset("X", layout)


@pytest.mark.parametrize(
    ("point", "what"),
    [
        (linked, "a link to another file"),
        (stored_outside, "stored in another file"),
        (virtual, "made of parts of other data sets"),
    ],
)
@pytest.mark.parametrize("where", ["X", "obsm/X"])
def test_a_file_that_points_to_others_is_refused(tmp_path, secret, point, what, where):
    path = written(tmp_path, np.asarray)
    group = where.rpartition("/")[0] or "/"
    with h5py.File(path, "r+") as file:
        if where in file:
            del file[where]
        point(file[group], secret)
        assert file[where][:].sum() == 84  # h5py itself reads the other file
    refused(path, f"its '{where}' is {what}; give a file that holds all of it")


def test_a_link_within_the_file_is_read(tmp_path):
    path = written(tmp_path)
    with h5py.File(path, "r+") as file:
        file.move("X", "layers/X")
        file["X"] = h5py.SoftLink("/layers/X")
    assert load(path).num_ones == 28


# -- what is not there, and what does not fit ---------------------------------------------------


@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr", "obs/_index", "var/_index"])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("chunks", [None, (3,)])
def test_arrays_that_were_never_written_are_refused(tmp_path, name, form, chunks):
    path = written(tmp_path, form)
    assert load(path).num_ones == 28
    with h5py.File(path, "r+") as file:
        kind, shape, said = file[name].dtype, file[name].shape, dict(file[name].attrs)
        del file[name]
        file.create_dataset(name, shape, kind, chunks=chunks).attrs.update(said)
    refused(path, rf"its array '{name}' lacks (\d+) of \1 chunks; copy or write it again")


def test_rows_of_a_dense_matrix_that_were_never_written_are_warned_of(tmp_path):
    path = written(tmp_path, np.asarray)
    with h5py.File(path, "r+") as file:
        said = dict(file["X"].attrs)
        del file["X"]
        values = file.create_dataset("X", ONES.shape, "f4", chunks=(5, 7))
        values[:5], values[10:] = ONES[:5], ONES[10:]
        values.attrs.update(said)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)  # and others as everywhere
        assert load(path).num_ones == 16
    (said,) = (str(warning.message) for warning in told)
    assert re.search(r"h5ad: 1 of 3 chunks of X are not .* read as 0", said)


@pytest.mark.parametrize("lines", [12, 10_000_000])
@pytest.mark.parametrize("part", ["values", "mask"])
def test_names_with_a_mask_are_looked_at_like_others(tmp_path, part, lines):
    """As AnnData writes texts that may be missing, and names with pandas 3."""
    path = written(tmp_path)
    with h5py.File(path, "r+") as file:
        values = file["obs/_index"][:]
        del file["obs/_index"]
        names = file.create_group("obs/_index")
        names.attrs.update({"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"})
        names["values"], names["mask"] = values, np.zeros(12, bool)
        names["values"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        names["mask"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    assert load(path).row_names == tuple(CELLS)
    with h5py.File(path, "r+") as file:
        kind, said = names_of(file, part)
        file.create_dataset(f"obs/_index/{part}", lines, kind, chunks=(5,)).attrs.update(said)
    what = "lacks 3 of 3 chunks" if lines == 12 else r"has the shape \(10000000,\) beside a matrix"
    refused(path, rf"its array 'obs/_index/{part}' {what}")


def names_of(file, part):
    """Take an array of the names out of a file; return its kind and attributes."""
    array = file[f"obs/_index/{part}"]
    kind, said = array.dtype, dict(array.attrs)
    del file[f"obs/_index/{part}"]
    return kind, said


@pytest.mark.parametrize("name", ["obs/_index", "obs/size", "var/_index"])
def test_names_of_other_lengths_than_the_matrix_are_refused_unread(tmp_path, name):
    path = written(tmp_path)
    with h5py.File(path, "r+") as file:
        kind, said = file[name].dtype, dict(file[name].attrs)
        del file[name]
        file.create_dataset(name, (10_000_000,), kind).attrs.update(said)
    refused(path, rf"its array '{name}' has the shape \(10000000,\) beside a matrix of 12 rows x 7")


def test_chunks_that_do_not_fit_are_refused_unread_and_other_values_need_not_fit(
    tmp_path, monkeypatch
):
    path = written(tmp_path, sp.csc_matrix, raw=anndata.AnnData(ONES).raw)
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    with h5py.File(path, "r+") as file:
        file.create_dataset("raw/X", (12, 2**26), "f4")
    assert load(path).num_ones == 28
    with pytest.raises(InputError, match="12 rows x 67,108,864 columns, as the file declares it"):
        load_real(path, use_raw=True)
    with h5py.File(path, "r+") as file:
        file.create_dataset("uns/wide", (1, 2**28), "f8", chunks=(1, 2**28))
    refused(path, "a chunk of 'uns/wide', as the file declares it, needs about 2.0 GiB")


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("wrong", [-1, 12, 2**31 - 1])
def test_positions_outside_the_matrix_are_refused(tmp_path, form, wrong):
    path = written(tmp_path, form)
    with h5py.File(path, "r+") as file:
        file["X/indices"][3] = wrong
    with pytest.raises(InputError, match=r"m\.h5ad cannot be read as \.h5ad \(.*ind"):
        load(path)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
def test_pointers_that_end_with_zero_are_refused(tmp_path, form):
    """Scipy looks at none of them then, and ends the process later."""
    path = written(tmp_path, form)
    with h5py.File(path, "r+") as file:
        file["X/indptr"][1:] = [2**30] * (len(file["X/indptr"]) - 2) + [0]
    with pytest.raises(InputError, match=r"m\.h5ad"):
        load(path)


def test_positions_that_are_no_integers_are_refused(tmp_path):
    path = written(tmp_path)
    with h5py.File(path, "r+") as file:
        positions = file["X/indices"][:] + 0.5
        del file["X/indices"]
        file["X/indices"] = positions
    refused(path, "its array 'indices' has dtype float64; write it again, with integers")


def test_the_command_of_the_docs_writes_a_file_of_a_stranger_as_npz(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "command-line.md"
    code = re.search(r'^timeout \d+ python -c "(import bmfjax; .*)"$', page.read_text(), re.M)[1]
    written(tmp_path).rename(tmp_path / "theirs.h5ad")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert load("theirs.npz").num_ones == 28
