"""The project's own file: one ``.npz`` that holds a matrix and, if known, its true factors.

Arrays of the file (every one but `kind` and `shape` and the ones, or values, may be absent):

==========================  ====================================================================
kind, format_version        "binary", "real" or "table of ratings", 1
shape                       int64 (2,)
bits                        uint8 (rows, ceil(columns / 8)), the ones, lowest bit first
values                      of a real matrix, float64 (rows, columns), NaN where missing, or
                            (nonzero,) beside `indptr` and `indices`; of ratings float64 (rating,)
rows, columns, scale        of ratings: int64 (rating,) twice, and float64 (2,)
indptr, indices             in place of `bits`: the ones as CSR
mask_indptr, mask_indices   the missing entries as CSR
observed_indptr,            in place of these, where they are fewer, the observed entries as CSR
observed_indices
observed_bits               the same, packed like `bits`
row_names, col_names, name  text
reading                     how the matrix was read, JSON
y, y_names                  side label of each row: an index into `y_names`, -1 where unknown
truth_usage, truth_basis    uint8, packed like `bits`, `truth_rank` entries a row
truth_clean                 uint8, packed like `bits`: the matrix without noise
==========================  ====================================================================

Nothing in it is a pickle, so that a file from a stranger can do no more than be refused.
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import full_line, pack_csr, product_on_host, zero_words
from bmfjax.data.blocks import blocks
from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import (
    PACKED_ENTRY,
    REAL_ENTRY,
    array_header,
    array_layout,
    check_dense,
    check_length,
    check_ratings,
    check_sparse,
)
from bmfjax.data.io.files import OF_FIT, check_new_file, replacing
from bmfjax.data.io.stored import npz_names, opened_stored
from bmfjax.data.names import check_labels, checked_sides
from bmfjax.data.ratings import Ratings
from bmfjax.data.reading.record import Reading
from bmfjax.data.real import RealMatrix
from bmfjax.data.stores import (
    LARGE,
    PackedStore,
    SharedStore,
    canonical,
    num_missing,
    read_rows,
    sparse_store,
)

FORMAT_VERSION = 1
#: Kind of a file of ratings that this module writes.
RATINGS_KIND = "table of ratings"


#: Arrays of which some rows can be read alone.
BITS = ("bits", "observed_bits")
#: Arrays that `matrix_fields` may return, and the mark of a fit.
STORED = {
    "kind", "format_version", "shape", "bits", "values", "rows", "columns", "scale", "indptr",
    "indices", "mask_indptr", "mask_indices", "observed_indptr", "observed_indices",
    "observed_bits", "row_names", "col_names", "name", "y", "y_names", "reading", OF_FIT,
}  # fmt: skip


class Truth(NamedTuple):
    """True factors of a matrix and the matrix without noise.

    Attributes
    ----------
    usage : bool array (rows, rank)
    basis : bool array (columns, rank)
    clean : bool array (rows, columns)
    """

    usage: np.ndarray
    basis: np.ndarray
    clean: np.ndarray


def save(path, matrix, *, usage=None, basis=None, clean=None, overwrite=False):
    """Write a matrix, and its true factors where they are known, to one compressed ``.npz`` file.

    The file appears whole or not at all. What reads it back: `bmfjax.data.load` a binary matrix,
    `load_real` one of real numbers, `load_ratings` ratings, and `load_truth` the true factors.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz``; its folder exists.
    matrix : BinaryMatrix, RealMatrix or Ratings
    usage, basis : bool or 0/1 arrays (rows, rank) and (columns, rank), optional
        True factors of a binary matrix, given together.
    clean : bool or 0/1 array (rows, columns), optional
        The matrix without noise, where it is not the Boolean product of the factors.
    overwrite : bool
        Whether a file that `save` wrote may be replaced. Any other file stays.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        If the file exists and `overwrite` is false or `save` did not write it, the folder does not
        exist or cannot be written to, the ending is another, or the truth does not fit the matrix.
    TypeError
        If `matrix` is none of these.

    Examples
    --------
    >>> import tempfile
    >>> from bmfjax.data import generate_product, load_truth
    >>> truth = generate_product(6, 5, 2, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(f"{folder}/six.npz", truth.data, usage=truth.usage, basis=truth.basis)
    ...     bool((load_truth(path).clean == truth.clean).all())
    True
    """
    if not isinstance(matrix, BinaryMatrix | RealMatrix | Ratings):
        raise TypeError(
            f"matrix is a {type(matrix).__name__}; give a BinaryMatrix, RealMatrix or Ratings"
        )
    path = check_target(path, overwrite)
    fields = matrix_fields(matrix) | _truth_fields(matrix, usage, basis, clean)
    with replacing(path) as draft, open(draft, "xb") as stream:
        np.savez_compressed(stream, **fields)
    return path


def check_target(path, overwrite):
    """Refuse a path where `save` may not write; return it as a `Path`."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path} does not end in .npz, the only format written; rename it")
    return check_new_file(path, overwrite, _is_saved, "file of bmfjax.save or bmfjax generate")


def _is_saved(path):
    """Say whether `save` wrote a file; the data file of a fit has one more array."""
    names = npz_names(path)
    return names >= {"kind", "format_version", "shape"} and OF_FIT not in names


def read_saved(arrays, name=None, share_of=None):
    """Return the data in an opened ``.npz`` of this project; `name` if they have none.

    If not None, only the rows of ``share_of(shape)`` of a large matrix that is kept as words.
    """
    _check_version(arrays)
    kind = str(arrays["kind"])
    if kind == RATINGS_KIND:
        found = _read_ratings(arrays, name)
    elif kind == "real" and "values" in arrays:
        found = _read_real(arrays, name)
    elif kind == "binary" and "shape" in arrays:
        found = _read_binary(arrays, name, share_of)
    else:
        raise InputError(f"its kind is {kind!r}, and it is not whole; give a file of bmfjax.save")
    if "reading" in arrays:
        found._reading = Reading.of_text(str(arrays["reading"]))
    return found


def _read_binary(arrays, name, share_of):
    shape = _shape(arrays)
    share, rows = read_rows(
        share_of if "bits" in arrays and shape[0] * shape[1] > LARGE else None, shape
    )
    if "bits" in arrays:
        check_dense((rows.stop - rows.start, shape[1]), PACKED_ENTRY)
    missing = (
        _csr(arrays, "mask_indptr", "mask_indices", shape) if "mask_indptr" in arrays else None
    )
    if "bits" in arrays:
        store = _packed_store(arrays, missing, shape, rows)
        if share is not None:
            store = SharedStore(store, share, shape[0])
    else:
        store = sparse_store(
            _csr(arrays, "indptr", "indices", shape),
            missing=missing,
            observed=_csr(arrays, "observed_indptr", "observed_indices", shape)
            if "observed_indptr" in arrays
            else None,
        )
    if share is None and num_missing(store) == shape[0] * shape[1]:
        raise InputError("it has no observed entry; give a matrix with at least one 0 or 1")
    sides = _sides(arrays, name, shape)
    names = sides["row_names"], sides["column_names"]
    return BinaryMatrix._from_store(
        store,
        *checked_sides(shape, names, (None, None)),
        check_labels(sides["row_labels"], shape[0]),
        sides["name"],
    )


def read_stored(path):
    """Read the matrix that a fit keeps of its data; raise `DamagedFile` where it is damaged."""
    with opened_stored(path, STORED.__contains__) as arrays:
        return read_saved(arrays)


def _read_ratings(arrays, name):
    shape, values = _shape(arrays), arrays["values"]
    check_ratings(shape, values.size)
    triples = arrays["rows"], arrays["columns"], values
    sides = _sides(arrays, name, shape)
    if not values.size:
        names = {n: v for n, v in sides.items() if n.endswith("_names")}
        return Ratings.without_any(shape, scale=arrays.get("scale"), **names)
    return Ratings(*triples, shape=shape, scale=arrays.get("scale"), **sides)


def _read_real(arrays, name):
    values = arrays["values"]
    if "indptr" in arrays:
        values = _csr(arrays, "indptr", "indices", _shape(arrays), values)
    elif values.ndim == 2:
        check_dense(values.shape, REAL_ENTRY)
    shape = values.shape if values.ndim == 2 else _shape(arrays)
    return RealMatrix(values, **_sides(arrays, name, shape))


def _sides(arrays, name, shape):
    """Return names, labels and title as arguments of a matrix; `name` if it has none."""
    for key, axis in (("row_names", 0), ("col_names", 1), ("y", 0), ("y_names", 0)):
        if key not in arrays:
            continue
        # From its header: texts in a list take many times the bytes of the file.
        with arrays.zip.open(f"{key}.npy") as stream:
            found, _ = array_header(stream)
        if key != "y_names" or not found or found[0] > shape[0]:
            check_length(key, found, shape, axis)
    return {
        "row_names": _texts(arrays, "row_names"),
        "column_names": _texts(arrays, "col_names"),
        "row_labels": _labels(arrays),
        "name": str(arrays["name"]) if "name" in arrays else name,
    }


def read_truth(arrays):
    """Return the `Truth` in an opened ``.npz`` of this project."""
    if "truth_usage" not in arrays:
        raise InputError(
            "it holds no true factors; give a file that save or generate wrote them to"
        )
    _check_version(arrays)
    rows, columns = _shape(arrays)
    rank = int(arrays["truth_rank"])
    usage = _unpack(arrays, "truth_usage", (rows, rank))
    basis = _unpack(arrays, "truth_basis", (columns, rank))
    if "truth_clean" in arrays:
        return Truth(usage, basis, _unpack(arrays, "truth_clean", (rows, columns)))
    check_dense((rows, columns), 1)
    return Truth(usage, basis, product_on_host(usage, basis))


def matrix_fields(matrix):
    """Return the arrays of a matrix, by their names in the file."""
    kind = {RealMatrix: "real", Ratings: RATINGS_KIND}.get(type(matrix), "binary")
    fields = {
        "kind": np.array(kind),
        "format_version": np.array(FORMAT_VERSION),
        "shape": np.array(matrix.shape, dtype=np.int64),
    }
    if isinstance(matrix, RealMatrix) and matrix.is_sparse:
        fields["indptr"], fields["indices"] = _narrow(matrix.nonzero())
        fields["values"] = matrix.nonzero().data
    elif isinstance(matrix, RealMatrix):
        fields["values"] = matrix.dense(np.float64)
    elif isinstance(matrix, Ratings):
        fields |= {"rows": matrix.rows, "columns": matrix.columns, "values": matrix.values}
        if matrix.scale is not None:
            fields["scale"] = np.array(matrix.scale)
    else:
        fields |= _entries(matrix)
    if matrix.has_row_names:
        fields["row_names"] = np.array(matrix.row_names)
    if matrix.has_column_names:
        fields["col_names"] = np.array(matrix.column_names)
    if matrix.row_labels is not None:
        names, index = np.unique(matrix.row_labels, return_inverse=True)
        fields["y_names"], fields["y"] = names, index.astype(np.int32)
    if matrix.name is not None:
        fields["name"] = np.array(matrix.name)
    if matrix._reading is not None:
        fields["reading"] = np.array(matrix.reading.as_text())
    return fields


def _entries(matrix):
    """Return the ones and the missing entries of a binary matrix."""
    fields = {}
    if matrix.is_sparse:
        # Not the missing ones of a matrix of which little is observed: they may be too many.
        ones, marks, mask = matrix._store
        fields["indptr"], fields["indices"] = _narrow(ones)
        if mask is not None:
            names = {"missing": "mask", "observed": "observed"}[marks]
            fields[f"{names}_indptr"], fields[f"{names}_indices"] = _narrow(mask)
        return fields
    words = matrix.packed()
    fields["bits"] = _octets_of(words.ones, matrix.num_columns)
    if words.observed is not None:
        fields["observed_bits"] = _octets_of(words.observed, matrix.num_columns)
    return fields


def _truth_fields(matrix, usage, basis, clean):
    if usage is None and basis is None and clean is None:
        return {}
    shape = matrix.shape
    if not isinstance(matrix, BinaryMatrix):
        raise InputError("true factors are kept of binary matrices alone; leave them out")
    if usage is None or basis is None:
        raise InputError(
            "usage, basis and clean are one truth; give usage and basis, or none of them"
        )
    rank = np.shape(usage)[-1] if np.ndim(usage) else 0
    fields = {"truth_rank": np.array(rank)}
    for key, array, expected in (
        ("usage", usage, (shape[0], rank)),
        ("basis", basis, (shape[1], rank)),
        ("clean", clean, shape),
    ):
        if array is None:
            continue
        array = np.asarray(array)
        if array.shape != expected or rank == 0:
            raise InputError(
                f"{key} has shape {array.shape} beside a matrix of shape {shape} and a usage of "
                f"shape {np.shape(usage)}; give it the shape {expected}"
            )
        if not np.isin(array, (0, 1)).all():
            raise InputError(f"{key} has values beside 0 and 1; give Boolean factors")
        fields[f"truth_{key}"] = _pack(array)
    return fields


def _pack(array):
    return np.packbits(np.asarray(array).astype(bool), axis=1, bitorder="little")


def _octets_of(words, num_columns):
    return words.astype("<u4", copy=False).view(np.uint8)[:, : -(-num_columns // 8)]


def _packed_store(arrays, missing, shape, rows):
    """Return the store of some rows, a slice; bits stay packed."""

    def read(key):
        words = zero_words(rows.stop - rows.start, shape[1])
        _fill_octets(arrays, key, shape, rows.start, words.view(np.uint8))
        words[:, -1] &= full_line(shape[1])[-1]
        return words

    ones, observed = read("bits"), None
    if "observed_bits" in arrays:
        observed = read("observed_bits")
    elif missing is not None and missing.nnz:
        observed = full_line(shape[1]) & ~pack_csr(missing[rows])
    if observed is not None:
        ones &= observed
    return PackedStore(ones, observed, shape[1])


def _fill_octets(arrays, key, shape, first, octets):
    """Read the rows of a packed array from `first` on into octets, some at a time."""
    with arrays.zip.open(f"{key}.npy") as stream:
        found, by_columns, kind = array_layout(stream)
        width = -(-shape[1] // 8)
        if kind != np.uint8 or found != (shape[0], width):
            raise _no_bits(key, shape)
        if by_columns:
            octets[:, :width] = arrays[key][first : first + len(octets)]
            return
        stream.seek(first * width, os.SEEK_CUR)
        for some in blocks(len(octets), width):
            read = stream.read((some.stop - some.start) * width)
            octets[some, :width] = np.frombuffer(read, np.uint8).reshape(-1, width)


def _unpack(arrays, key, shape):
    bits = arrays[key]
    if bits.dtype != np.uint8 or bits.shape != (shape[0], -(-shape[1] // 8)):
        raise _no_bits(key, shape)
    check_dense(shape, 2)
    return np.unpackbits(bits, axis=1, bitorder="little", count=shape[1]).astype(bool)


def _no_bits(key, shape):
    return InputError(f"its array {key!r} does not fit the shape {shape}; write it again")


def _narrow(csr):
    """Return the positions of a CSR in the smallest of the integers that the format knows."""
    index = np.int16 if csr.shape[1] <= 1 << 15 else np.int32
    return csr.indptr, csr.indices.astype(index)


def _shape(arrays):
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 1:
        raise InputError("its array 'shape' is not two positive integers; write it again")
    return int(shape[0]), int(shape[1])


def _csr(arrays, indptr_key, indices_key, shape, values=None):
    """Return the CSR of these arrays: of `values`, or of the positions of marks as bool."""
    indptr, indices = arrays[indptr_key], arrays[indices_key]
    whole = indptr.dtype.kind in "iu" and indices.dtype.kind in "iu"
    whole = whole and indptr.shape == (shape[0] + 1,) and indices.ndim == 1
    # Checked here: scipy would follow a wrong pointer out of the array.
    if whole:
        whole = indptr[0] == 0 and indptr[-1] == len(indices) and (np.diff(indptr) >= 0).all()
    if whole and len(indices):
        whole = indices.min() >= 0 and indices.max() < shape[1]
    if values is not None:
        whole = whole and values.shape == indices.shape and values.dtype.kind == "f"
    if not whole:
        raise InputError(
            f"its arrays {indptr_key!r} and {indices_key!r} are no CSR of shape {shape}; "
            "write it again"
        )
    check_sparse(shape, len(indices))
    index = np.int32 if max(len(indices), *shape) < 1 << 31 else np.int64
    positions = indices.astype(index), indptr.astype(index)
    if values is not None:
        return sp.csr_array((values, *positions), shape=shape)
    data = np.ones(len(indices), dtype=bool)
    return canonical(sp.csr_array((data, *positions), shape=shape))


def _texts(arrays, key):
    return arrays[key].tolist() if key in arrays else None


def _labels(arrays):
    labels, names = _texts(arrays, "y"), _texts(arrays, "y_names")
    if labels is None or names is None:
        return labels
    if any(label >= len(names) for label in labels):
        raise InputError("its array 'y' counts beyond 'y_names'; write it again")
    return [names[label] if label >= 0 else None for label in labels]


def _check_version(arrays):
    version = int(arrays["format_version"]) if "format_version" in arrays else 1
    if version > FORMAT_VERSION:
        raise InputError(
            f"it has format {version} and this bmfjax reads up to {FORMAT_VERSION}; update bmfjax"
        )
