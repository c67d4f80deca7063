"""Matrices of other libraries' files, read some rows at a time where they are large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import scipy.sparse as sp

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import WORD
from bmfjax.data.blocks import blocks
from bmfjax.data.errors import InputError
from bmfjax.data.intake import read_blocks
from bmfjax.data.io.declared import PACKED_ENTRY, check_dense, check_sparse
from bmfjax.data.io.files import thresholded
from bmfjax.data.names import check_labels, checked_sides
from bmfjax.data.stores import LARGE, read_rows


class Rows(NamedTuple):
    """A matrix in a file, of which some rows can be read."""

    shape: tuple[int, int]
    stored: int | None  # entries that a sparse one stores; None: it is dense
    read: Callable[[slice], Any]  # an array or a sparse matrix
    chunk: int = 1  # rows that lie together
    in_blocks: bool = True  # columns one by one cannot be read as blocks of rows

    @property
    def is_packed(self) -> bool:
        """Whether a binary matrix is read in blocks and kept as words."""
        size = self.shape[0] * self.shape[1]
        # Words are smaller than positions.
        few = self.stored is not None and WORD * self.stored <= size
        return size > LARGE and self.in_blocks and not few

    def check(self, bytes_an_entry: float, *, real: bool = False, share_of=None) -> None:
        """Refuse a matrix that does not fit; a dense one takes so many bytes an entry.

        As words only the rows of ``share_of(shape)`` are held.
        """
        if self.is_packed and not real:
            check_words(self.shape, share_of)
        elif self.stored is None:
            check_dense(self.shape, bytes_an_entry)
        else:
            check_sparse(self.shape, self.stored)

    def all(self):
        """Return the whole matrix."""
        return self.read(slice(0, self.shape[0]))


def check_words(shape, share_of) -> None:
    """Refuse packed words that do not fit; of a shared matrix those of this process's rows."""
    rows = read_rows(share_of, shape)[1]
    check_dense((rows.stop - rows.start, shape[1]), PACKED_ENTRY)


def binary_of_rows(rows: Rows, binarize, names, labels, name, share_of=None) -> BinaryMatrix:
    """Return a binary matrix; of a large one a block of rows at a time is formed.

    If it is large and kept as words, only the rows of ``share_of(shape)`` are read.
    """
    if not rows.is_packed:
        values = thresholded(rows.all(), binarize)
        return BinaryMatrix(values, None, *names, row_labels=labels, name=name)
    share, own = read_rows(share_of, rows.shape)
    height = own.stop - own.start
    parts = (
        thresholded(rows.read(slice(own.start + some.start, own.start + some.stop)), binarize)
        for some in blocks(height, rows.shape[1], multiple=rows.chunk)
        if some.stop > some.start
    )
    return binary_of_blocks(parts, rows.shape, names, labels, name, share)


def binary_of_blocks(parts, shape, names, labels, name, share) -> BinaryMatrix:
    """Return a binary matrix of blocks of its rows, or of the rows of a share."""
    sides = checked_sides(shape, names, (None, None))
    store = read_blocks(parts, shape, *sides, share=share)
    return BinaryMatrix._from_store(store, *sides, check_labels(labels, shape[0]), name)


def sparse_rows(shape, data, indices, indptr, *, by_column: bool) -> Rows:
    """Return the rows of a CSR, or of a CSC, whose entries are read by slices of arrays."""
    for name, array in (("indices", indices), ("indptr", indptr)):
        check_positions(name, array)
    shape, pointers = tuple(map(int, shape)), indptr[:]
    lines = shape[1] if by_column else shape[0]
    whole = pointers.shape == (lines + 1,) and pointers[0] == 0
    whole = whole and (pointers[1:] >= pointers[:-1]).all()
    if not whole or not pointers[-1] == data.shape[0] == indices.shape[0]:
        raise _no_pointers()
    kind = sp.csc_array if by_column else sp.csr_array

    def read(some):
        own = pointers[some.start : some.stop + 1] if not by_column else pointers
        entries = slice(int(own[0]), int(own[-1]))
        size = shape if by_column else (some.stop - some.start, shape[1])
        # Copies: what a library hands out may not be written to.
        return checked(kind((data[entries], indices[entries], own - own[0]), shape=size))

    return Rows(shape, int(data.shape[0]), read, in_blocks=not by_column)


def checked(found):
    """Return what was read; refuse a sparse matrix with positions outside of it.

    Scipy would follow them out of its arrays. Its own check skips all of them where the last
    pointer is zero.
    """
    if sp.issparse(found) and found.format in ("csr", "csc", "bsr"):
        if (found.indptr[1:] < found.indptr[:-1]).any():
            raise _no_pointers()
        found.check_format(full_check=True)
    return found


def _no_pointers():
    return InputError(
        "its pointers do not fit its entries; check that the file is whole and what wrote it"
    )


def check_positions(name, array) -> None:
    """Refuse an array of positions that are no integers, which scipy would cut to such."""
    if array.dtype.kind not in "iu":
        raise InputError(
            f"its array {name!r} has dtype {array.dtype}; write it again, with integers"
        )


def labels_of(frame, label_column, where):
    """Take the columns of labels out of a frame; None where none is asked for."""
    if label_column is None:
        return None
    taken = []
    for name in names_in(label_column):
        if name not in frame:
            known = ", ".join(map(str, list(frame.columns)[:8])) or "none"
            raise InputError(
                f"label_column is {name!r} and {where} has no such column; it has {known}"
            )
        taken.append(frame.pop(name).tolist())
    if len(taken) == 1:
        return taken[0]
    return [" / ".join(map(str, row)) for row in zip(*taken, strict=True)]


def names_in(label_column) -> list[str]:
    """Return one name of a column or several as a list; None is none."""
    if label_column is None:
        return []
    return [label_column] if isinstance(label_column, str) else list(label_column)


def needs_package(package, extra) -> InputError:
    """Return the error of a format whose package is not installed."""
    return InputError(
        f"reading this format needs the package {package}; run pip install 'bmfjax[{extra}]'"
    )
