"""Zarr stores of strangers, and stores of which a part was lost."""

import json
import os
import pickle
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bmfjax.data import BinaryMatrix, InputError, load, load_real, memory
from tests.data.test_load import saved_array, saved_cells

zarr = pytest.importorskip("zarr")

ONES = (np.arange(84).reshape(12, 7) % 3 == 0).astype(np.float32)
#: Names as objects, of which all versions of AnnData make plain arrays.
CELLS = pd.Index([f"cell {i}" for i in range(12)], dtype=object)
ROWS = pd.DataFrame({"kind": np.array(list("ab" * 6), object)}, index=CELLS)
COLUMNS = pd.DataFrame(index=pd.Index([f"gene {j}" for j in range(7)], dtype=object))


@pytest.fixture
def cells(tmp_path):
    """A store of AnnData with a sparse X."""
    saved_cells(tmp_path / "x.zarr", ONES, ROWS, COLUMNS)
    return tmp_path / "x.zarr"


def metadata(path, **changed):
    """Change what an array of version 2 says of itself, in its own file alone."""
    said = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps(said | changed))


class Payload:
    """Sets a flag where it is unpickled."""

    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return os.mkdir, (str(self.flag),)


# -- codecs -------------------------------------------------------------------------------------


def planted(path, flag, **changed):
    """Make an array of texts one that is to be unpickled."""
    (path / "0").write_bytes(pickle.dumps(Payload(flag)))
    metadata(path, **{"compressor": None, "filters": None} | changed)


@pytest.mark.parametrize(
    "named",
    [
        {"filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]},
        {"compressor": {"id": "pickle"}, "filters": [{"id": "vlen-utf8"}]},
        {"filters": [{"id": "zstd", "name": "pickle"}]},
        {"filters": [{"id": "numcodecs.pickle"}]},
        {"compressor": ["pickle"]},
        {"filters": {"id": ["pickle"]}},
    ],
)
@pytest.mark.parametrize("array", ["obs/_index", "obs/kind/categories"])
def test_a_codec_that_runs_code_is_refused_before_anything_is_decoded(
    cells, tmp_path, monkeypatch, named, array
):
    numcodecs = pytest.importorskip("numcodecs")
    # As in numcodecs before 0.16.6, which asks nobody.
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    planted(cells / array, tmp_path / "flag", **named)
    (cells / ".zmetadata").unlink()
    for read in (load, load_real):
        message = f"{cells}: its array {array!r} is stored with the codec"
        with pytest.raises(InputError, match=re.escape(message)) as refused:
            read(cells, label_column="kind")
        assert "pickle" in str(refused.value)
    assert not (tmp_path / "flag").exists()


@pytest.mark.parametrize("name", ["pickle", "numcodecs.pickle", "no_such_codec"])
def test_codecs_within_codecs_and_of_consolidated_metadata_are_seen(tmp_path, name):
    shard = {"chunk_shape": [2, 7], "codecs": ["bytes"], "index_codecs": [{"name": name}]}
    array = {"node_type": "array", "codecs": [{"name": "sharding_indexed", "configuration": shard}]}
    group = {"node_type": "group", "consolidated_metadata": {"metadata": {"obs/who": array}}}
    for folder, said in (("a.zarr", array), ("b.zarr", group)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "zarr.json").write_text(json.dumps(said))
    for folder, where in (("a.zarr", "."), ("b.zarr", "obs/who")):
        with pytest.raises(InputError, match=f"array '{where}' is stored with the codec '{name}'"):
            load(tmp_path / folder)
    said = {"metadata": {"X/.zarray": {"filters": [{"id": name}]}}}
    (tmp_path / "b.zarr" / ".zmetadata").write_text(json.dumps(said))
    (tmp_path / "b.zarr" / "zarr.json").unlink()
    with pytest.raises(InputError, match=f"codec '{name}'"):
        load(tmp_path / "b.zarr")


@pytest.mark.parametrize("version", [2, 3])
def test_codecs_that_are_in_use_are_read(tmp_path, version):
    numcodecs = pytest.importorskip("numcodecs")
    options = {"zarr_format": version, "chunks": (2, 7)}
    if version == 3:
        options |= {"shards": (4, 7), "compressors": zarr.codecs.BloscCodec()}
    else:
        options |= {"filters": numcodecs.Delta("f4"), "compressors": numcodecs.LZ4()}
    zarr.create_array(str(tmp_path / "m.zarr"), data=ONES, **options)
    assert load(tmp_path / "m.zarr").fingerprint() == BinaryMatrix(ONES).fingerprint()


# -- chunks that were lost ----------------------------------------------------------------------


@pytest.mark.parametrize("part", ["X/data", "X/indices", "X/indptr", "obs/_index", "var/_index"])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
def test_a_sparse_matrix_or_names_with_a_lost_chunk_are_refused(tmp_path, part, form):
    path = tmp_path / "x.zarr"
    saved_cells(path, ONES, ROWS, COLUMNS, form)
    assert load(path).num_ones == 28
    (path / part / "0").unlink()
    for read in (load, load_real):
        message = f"{path}: its array {part!r} lacks 1 of 1 chunks; copy or write it again"
        with pytest.raises(InputError, match=re.escape(message)):
            read(path)


def test_a_sparse_matrix_without_entries_needs_no_chunks(tmp_path):
    saved_cells(tmp_path / "x.zarr", np.zeros((12, 7)), ROWS, COLUMNS)
    (tmp_path / "x.zarr" / "X" / "indptr" / "0").unlink(missing_ok=True)
    assert load(tmp_path / "x.zarr").num_ones == 0


@pytest.mark.parametrize("folder", ["m.zarr", "cells.zarr"])
def test_chunks_of_a_dense_matrix_without_a_file_are_warned_of_once(tmp_path, folder):
    path, what = tmp_path / folder, "the array"
    if folder == "cells.zarr":
        saved_cells(path, ONES, ROWS, COLUMNS, np.asarray)
        lost, what, said = path / "X" / "0.0", "X", "1 of 1 chunks"
    else:
        saved_array(path, ONES, rows=5)
        lost, said = path / "c" / "1" / "0", "1 of 3 chunks"
    lost.unlink()
    with pytest.warns(UserWarning, match=f"{folder}: {said} of {what} are not there and") as warned:
        found = load(path)
    assert len(warned) == 1 and found.num_ones < 28


def test_a_lost_shard_is_warned_of_and_chunks_that_were_not_written_are_not(tmp_path):
    path, values = tmp_path / "m.zarr", np.kron(np.eye(2, dtype="f4"), np.ones((4, 4)))
    zarr.create_array(str(path), data=values, chunks=(2, 2), shards=(4, 8))
    assert load(path).num_ones == 32
    (path / "c" / "1" / "0").unlink()
    with pytest.warns(UserWarning, match=r"m.zarr: 1 of 2 chunks .* read as 0"):
        assert load(path).num_ones == 16


def test_labels_with_a_lost_chunk_are_warned_of(cells):
    (cells / "obs" / "kind" / "codes" / "0").unlink()
    assert not load(cells).row_labels
    with pytest.warns(UserWarning, match="1 of 1 chunks of obs/kind/codes are not there"):
        load(cells, label_column="kind")


def test_a_mask_in_which_nothing_is_missing_needs_no_chunk(tmp_path):
    rows = ROWS.assign(number=pd.array(range(1, 13), dtype="Int64"))
    saved_cells(tmp_path / "x.zarr", ONES, rows, COLUMNS)
    (tmp_path / "x.zarr" / "obs" / "number" / "mask" / "0").unlink(missing_ok=True)
    assert load(tmp_path / "x.zarr", label_column="number").row_labels[:2] == ("1", "2")


# -- what leads elsewhere, and what declares too much -------------------------------------------


def test_links_out_of_a_store_are_refused(cells, tmp_path):
    inside, outside = cells / "X" / "data" / "0", tmp_path / "elsewhere"
    shutil.move(inside, outside)
    for target in (outside, os.path.relpath(outside, inside.parent)):
        inside.symlink_to(target)
        with pytest.raises(InputError, match="its 'X/data/0' is a link to another place"):
            load(cells)
        inside.unlink()
    shutil.move(outside, cells / "moved")
    inside.symlink_to("../../moved")
    assert load(cells).num_ones == 28
    os.symlink(cells, tmp_path / "link.zarr")  # the user's own, to the whole store
    assert load(tmp_path / "link.zarr").num_ones == 28
    (cells / "obs" / "more").symlink_to("/")
    with pytest.raises(InputError, match="its 'obs/more' is a link to another place"):
        load(cells)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_in_a_store_is_refused_at_once(cells):
    (cells / "X" / "data" / "0").unlink()
    os.mkfifo(cells / "X" / "data" / "0")
    with pytest.raises(InputError, match="its '0' is neither a file nor a folder"):
        load(cells)


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "x.zarr").write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match=r"x\.zarr: it is no folder; give the folder"):
        load(tmp_path / "x.zarr")


def test_names_of_other_lengths_than_the_matrix_are_refused_unread(cells):
    (cells / ".zmetadata").unlink()
    metadata(cells / "obs" / "_index", shape=[10_000_000], chunks=[12])
    with pytest.raises(InputError, match=r"'obs/_index' has the shape \(10000000,\) beside a mat"):
        load(cells)


def test_a_chunk_that_does_not_fit_is_refused_unread(cells, monkeypatch):
    (cells / ".zmetadata").unlink()
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    for array in ("X/data", "obs/_index"):
        kept = (cells / array / ".zarray").read_text()
        metadata(cells / array, chunks=[2**40])
        with pytest.raises(InputError, match=f"a chunk of {array}, as the store declares it, need"):
            load(cells)
        (cells / array / ".zarray").write_text(kept)
    assert load(cells).num_ones == 28
