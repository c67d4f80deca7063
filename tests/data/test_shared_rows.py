"""A matrix of which every process has its own rows: the same answers as with all of them."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bmfjax
from bmfjax.data import BinaryMatrix, load, pack_bits
from bmfjax.data.bits import zero_words
from bmfjax.data.io.load import load_share
from bmfjax.data.stores import Share

#: Rows of each process, which overlap where 32 rows are in two parts; of the third there are none.
ROWS, COLUMNS = 100, 41
PARTS = [(0, 70), (64, 100), (100, 100)]
NAMES = [f"r{i}" for i in range(ROWS)]


def values(missing, density):
    rng = np.random.default_rng(0)
    found = (rng.random((ROWS, COLUMNS)) < density).astype(float)
    if missing:  # of the second process alone
        found[90:] = np.where(rng.random((10, COLUMNS)) < 0.3, np.nan, found[90:])
        found[90:, 3] = np.nan
        found[95] = np.nan
    return found


class Together:
    """Stands for the processes: threads of which each waits for the others at every question."""

    def __init__(self, number):
        self.barrier, self.given = threading.Barrier(number, timeout=600), [None] * number

    def gather(self, part):
        def gathered(array):
            self.given[part] = np.array(array)
            self.barrier.wait()
            found = np.stack(self.given)
            self.barrier.wait()
            return found

        return gathered

    def share(self, part):
        first, last = PARTS[part]
        answers = np.zeros(-(-ROWS // 32), bool)
        answers[[slice(0, 2), slice(2, 4), slice(0, 0)][part]] = True
        return Share(first, last, answers, self.gather(part))


def asked(matrix):
    """What a fit asks of a matrix before it samples."""
    rows, columns = np.array([3, 69, 70, 95, 99]), np.array([0, 3, 40])
    return [
        matrix.shape, matrix.num_ones, matrix.num_zeros, matrix.num_missing, matrix.fingerprint(),
        matrix.empty_rows.tolist(), matrix.empty_columns.tolist(), matrix.row_names[:2],
        [part.tolist() for part in matrix.part(rows, columns)],
    ]  # fmt: skip


def written(folder, kind, values):
    """A file of the matrix, in blocks that no part begins with."""
    if kind == "npz":
        words = [np.asarray(pack_bits(bits)) for bits in (values == 1, ~np.isnan(values))]
        matrix = BinaryMatrix.from_packed(words[0], COLUMNS, words[1], NAMES)
        return bmfjax.save(folder / "matrix.npz", matrix)
    frame = pd.DataFrame(values, index=NAMES, columns=[f"c{j}" for j in range(COLUMNS)])
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(folder / "matrix.parquet", row_group_size=30)
        return folder / "matrix.parquet"
    anndata = pytest.importorskip("anndata")
    table = anndata.AnnData(frame)
    if "sparse" in kind:
        table.X = sp.csr_matrix(values)
    if "zarr" in kind:
        pytest.importorskip("zarr")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the version of the format that is to come
            table.write_zarr(folder / "matrix.zarr")
        return folder / "matrix.zarr"
    table.write_h5ad(folder / f"{kind}.h5ad")
    return folder / f"{kind}.h5ad"


@pytest.mark.parametrize(
    ("kind", "missing", "density"),
    [("npz", False, 0.4), ("npz", True, 0.4), ("npz", True, 0.01), ("parquet", True, 0.4),
     ("h5ad", True, 0.4), ("sparse", False, 0.4), ("zarr", True, 0.4), ("sparse zarr", False, 0.4)],
)  # fmt: skip
@mock.patch("bmfjax.data.blocks.BLOCK", 7 * COLUMNS)
@mock.patch("bmfjax.data.io.formats.LARGE", 10)
@mock.patch("bmfjax.data.io.rows.LARGE", 10)
@mock.patch("bmfjax.data.io.npz.LARGE", 10)
@mock.patch("bmfjax.data.stores.LARGE", 10)
def test_processes_together_tell_what_one_does(tmp_path, kind, missing, density):
    made = BinaryMatrix(values(missing, density), row_names=NAMES)
    path = written(tmp_path, kind, values(missing, density))
    whole, together = load(path), Together(len(PARTS))

    def process(part):
        found = load_share(path, lambda shape: together.share(part))
        return found, asked(found)

    with ThreadPoolExecutor(len(PARTS)) as threads:
        found = list(threads.map(process, range(len(PARTS))))
    for (first, last), (matrix, told) in zip(PARTS, found, strict=True):
        assert matrix.is_shared and matrix.held_rows == last - first
        assert told == asked(whole) == asked(made)
        own, expected = (m.fill_rows(first, last, "rows", zero_words) for m in (matrix, made))
        np.testing.assert_array_equal(own.ones, expected.ones)
        assert (own.observed is None) == (expected.observed is None) == (not missing)
        np.testing.assert_array_equal(matrix.complete().dense(), made.dense())
    assert not whole.is_shared and whole.complete() is whole


def test_a_matrix_that_is_not_large_is_read_whole(tmp_path):
    path = bmfjax.save(tmp_path / "matrix.npz", bmfjax.load("zoo"))
    assert not load_share(path, lambda shape: 1 / 0).is_shared
