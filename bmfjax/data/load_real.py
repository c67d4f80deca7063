"""From a file to a RealMatrix."""

from pathlib import Path

import numpy as np

from bmfjax.data.declared import REAL_ENTRY, check_array, check_dense
from bmfjax.data.errors import InputError
from bmfjax.data.files import opened_npz, reading
from bmfjax.data.real import RealMatrix
from bmfjax.data.storage import read_matrix
from bmfjax.data.text import read_real_table

ENDINGS = (".csv", ".tsv", ".npy", ".npz")


def load_real(path, *, missing=(), header="auto", row_names="auto", label_column=None):
    """Load a matrix of real numbers from a file.

    Parameters
    ----------
    path : str or path
        A .csv or .tsv table, a .npy array (NaN is missing), or a .npz of `bmfjax.save`.
    missing, header, row_names, label_column
        As for `bmfjax.load`, of a .csv or .tsv.

    Returns
    -------
    RealMatrix

    Raises
    ------
    InputError
        If there is no such file, its format is unknown, it is broken, or a cell is no number.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "spectra.csv").write_text("name,a,b\\nfirst,0.5,\\nsecond,2,1e-3\\n")
    ...     load_real(f"{folder}/spectra.csv")
    RealMatrix 'spectra': 2 rows x 2 columns, values from 0.001 to 2, 1 missing
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist: no such file; check the path")
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"{path} has the ending {path.suffix!r}; real numbers are read from "
            f"{', '.join(ENDINGS)}"
        )
    marks = (missing,) if isinstance(missing, str) else tuple(missing)
    with reading(path):
        if ending in (".csv", ".tsv"):
            return read_real_table(
                path, missing=marks, header=header, row_names=row_names, label_column=label_column
            )
        if marks or header != "auto" or row_names != "auto" or label_column is not None:
            raise InputError(
                "missing, header, row_names and label_column are for .csv and .tsv files; "
                "leave them out"
            )
        return _binary_file(path, ending)


def _binary_file(path, ending):
    if ending == ".npy":
        with open(path, "rb") as stream:
            check_array(stream, path.stat().st_size)
        return RealMatrix(np.load(path, allow_pickle=False), name=path.stem)
    with opened_npz(path) as arrays:
        if "kind" not in arrays:
            raise InputError("it holds no matrix; give a file written by bmfjax.save")
        matrix = read_matrix(arrays, path.stem)
    if isinstance(matrix, RealMatrix):
        return matrix
    check_dense(matrix.shape, 8 + REAL_ENTRY)
    return RealMatrix(
        matrix.dense(np.float64),
        None,
        matrix.row_names if matrix.has_row_names else None,
        matrix.column_names if matrix.has_column_names else None,
        row_labels=matrix.row_labels,
        name=matrix.name,
    )
