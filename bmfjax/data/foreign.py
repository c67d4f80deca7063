"""Files that other libraries read: Matrix Market, scipy's sparse .npz, AnnData, Parquet."""

import warnings

import pandas as pd
import scipy.io
import scipy.sparse as sp

from bmfjax.data.declared import (
    BINARIZED_ENTRY,
    BINARY_ENTRY,
    NAME,
    check_dense,
    check_matrix_market,
    check_sparse,
)
from bmfjax.data.errors import InputError
from bmfjax.data.files import threshold
from bmfjax.data.matrix import BinaryMatrix
from bmfjax.data.memory import require_memory
from bmfjax.data.names import names_of_index


def read_matrix_market(path, *, binarize):
    """Read a Matrix Market file (pattern, integer or real; coordinates or a full array)."""
    with warnings.catch_warnings():
        # From 1.18 scipy warns that its kind of sparse matrix will change; either is read here.
        warnings.filterwarnings("ignore", "The default value for `spmatrix`", DeprecationWarning)
        # By its path: given a stream, scipy's reader ends the whole process on some broken files.
        check_matrix_market(scipy.io.mminfo(str(path)), path.stat().st_size, binarize)
        values = scipy.io.mmread(str(path))
    return BinaryMatrix(threshold(values, binarize), name=path.stem)


def read_scipy_npz(path, *, binarize):
    """Read a file that ``scipy.sparse.save_npz`` wrote."""
    with open(path, "rb") as stream:
        values = sp.load_npz(stream)
    if values.format in ("csr", "csc", "bsr"):
        # Scipy believes the pointers of the file and would follow a wrong one out of the array.
        values.check_format(full_check=True)
    if values.ndim == 2:
        check_sparse(values.shape, values.nnz)
    return BinaryMatrix(threshold(values, binarize), name=path.stem)


def read_h5ad(path, *, binarize, label_column):
    """Read the matrix X of an AnnData file; its observations and variables become names."""
    try:
        import anndata
        import h5py
    except ImportError as err:
        raise _extra("anndata", "h5ad") from err
    with h5py.File(path) as file:
        _check_h5ad(file, h5py.Dataset, binarize)
    table = anndata.read_h5ad(path)
    if table.X is None:
        raise InputError("it holds no matrix X; store the values as X")
    labels = None
    if label_column is not None:
        if label_column not in table.obs:
            raise _no_column(label_column, table.obs.columns, "obs")
        labels = table.obs[label_column].tolist()
    return BinaryMatrix(
        threshold(table.X, binarize),
        row_names=table.obs_names,
        column_names=table.var_names,
        row_labels=labels,
        name=path.stem,
    )


def read_parquet(path, *, binarize, row_names, label_column):
    """Read a Parquet table; its index, or else its first column if that is text, names the rows."""
    try:
        from pyarrow import parquet  # pandas' own message for its absence is a page long
    except ImportError as err:
        raise _extra("pyarrow", "parquet") from err
    _check_parquet(parquet.read_metadata(path), binarize)
    frame = pd.read_parquet(path, engine="pyarrow")
    labels = None
    if label_column is not None:
        if label_column not in frame:
            raise _no_column(label_column, frame.columns, "the table")
        labels = frame.pop(label_column).tolist()
    if row_names is False:
        frame = frame.reset_index(drop=True)
    elif names_of_index(frame.index) is None and frame.shape[1]:
        first = frame.columns[0]
        if row_names is True or pd.api.types.is_string_dtype(frame[first].dropna()):
            frame = frame.set_index(first)
    frame.columns = frame.columns.map(str)
    return BinaryMatrix(threshold(frame, binarize), row_labels=labels, name=path.stem)


def _check_h5ad(file, dataset, binarize):
    """Refuse an AnnData file that does not fit: all arrays are read, and X becomes a matrix."""
    sizes = []

    def add(_, item):
        if isinstance(item, dataset):
            # A text is an object of its own.
            sizes.append((item.size or 0) * (NAME if item.dtype.hasobject else item.dtype.itemsize))

    file.visititems(add)
    require_memory(sum(sizes), "what the file declares", "store fewer cells, or X alone")
    values = file.get("X")
    if isinstance(values, dataset):
        if values.ndim == 2:
            entry = BINARY_ENTRY if binarize is None else BINARIZED_ENTRY
            check_dense(values.shape, values.dtype.itemsize + entry)
    elif values is not None:
        shape = values.attrs.get("shape", values.attrs.get("h5sparse_shape"))
        if shape is not None:
            check_sparse(shape, values["data"].size)


def _check_parquet(meta, binarize):
    """Refuse a table whose columns do not fit: as Arrow, as a frame and as an array."""
    each = BINARY_ENTRY if binarize is None else BINARIZED_ENTRY
    width = 0
    for kind in meta.schema.to_arrow_schema().types:
        try:
            cell = max(kind.bit_width // 8, 1)
        except ValueError:  # text
            cell = NAME
        width += 3 * cell + each
    rows, columns = meta.num_rows, meta.num_columns
    check_dense((rows, columns), width / max(columns, 1))


def _extra(package, extra):
    return InputError(
        f"reading this format needs the package {package}; run pip install 'bmfjax[{extra}]'"
    )


def _no_column(label_column, columns, where):
    known = ", ".join(map(str, list(columns)[:8])) or "none"
    return InputError(
        f"label_column is {label_column!r} and {where} has no such column; it has {known}"
    )
