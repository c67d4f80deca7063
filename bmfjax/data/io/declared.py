"""What a file says that it holds, compared with the memory there is before any of it is read.

A header of 100 bytes can declare a matrix that fills every machine. The bytes per entry below were
measured as the peak of reading and checking, not as the size of the result.
"""

from __future__ import annotations

import gzip
import re
import sys
import zipfile
from collections.abc import Sequence

import numpy as np

from bmfjax.data.checks import check_sides
from bmfjax.data.errors import InputError
from bmfjax.data.memory import require_memory
from bmfjax.data.reading.record import BINARY

#: Bytes for each entry that a sparse file stores: triples, their CSR, its copies with ones.
STORED_ENTRY = 64
#: Pointers for each row of a sparse matrix: CSR and copies.
ROW_POINTERS = 12
#: Bytes for each entry of a dense matrix of ones and zeros, besides the array that was read; the
#: second where a threshold is applied first.
BINARY_ENTRY, BINARIZED_ENTRY = 4, 20
#: Bytes for each entry of a matrix that is read and kept in packed words: ones and observed bits.
PACKED_ENTRY = 0.3
#: Bytes for each entry of a matrix of real numbers, besides the array that was read.
REAL_ENTRY = 17
#: Bytes for each rating: triples, their order, and copies in that order.
RATING = 120
#: Bytes for each name that the file does not hold as text: a string, its place in a table.
NAME = 150
#: Characters of a text file from which the memory for all of it is estimated.
_SAMPLE = 1 << 16
SMALLER = "choose fewer rows or columns, or use a machine with more memory"


def bytes_an_entry(kind, binarize) -> int:
    """Return the bytes for each entry of a dense matrix, besides the array that was read."""
    if kind != BINARY:
        return REAL_ENTRY
    return BINARY_ENTRY if binarize is None else BINARIZED_ENTRY


def check_sparse(shape, num_stored) -> None:
    """Refuse a sparse matrix whose entries or rows do not fit; zeros cost nothing."""
    check_sides(shape)
    pointer = 4 if max(*shape, num_stored) < 1 << 31 else 8
    needed = STORED_ENTRY * int(num_stored) + ROW_POINTERS * pointer * int(shape[0])
    entries = "1 entry" if num_stored == 1 else f"{num_stored:,} entries"
    require_memory(
        needed, f"a sparse matrix of {_dimensions(shape)} with {entries}, as the file declares it,",
        "check the header, leave out rows without entries, or use a machine with more memory",
    )  # fmt: skip


def check_dense(shape, bytes_an_entry) -> None:
    """Refuse a matrix that does not fit with every entry of it in memory."""
    check_sides(shape)
    needed = bytes_an_entry * (int(shape[0]) * int(shape[1]))
    remedy = f"check the header, or {SMALLER}"
    require_memory(needed, f"a matrix of {_dimensions(shape)}, as the file declares it,", remedy)


def check_length(name, shape, of_matrix, axis) -> None:
    """Refuse an array about the rows (axis 0) or columns of a matrix with another number.

    Before it is read: the matrix may be small, and the array of names as large as the memory.
    """
    if tuple(shape[:1]) != tuple(of_matrix[axis : axis + 1]):
        raise InputError(
            f"its array {name!r} has the shape {tuple(map(int, shape))} beside a matrix of "
            f"{_dimensions(of_matrix)}; check that the file is whole and what wrote it"
        )


def check_matrix_market(info, size, bytes_an_entry) -> None:
    """Check what `scipy.io.mminfo` says of a file of `size` bytes.

    A full array takes so many bytes an entry beside itself.
    """
    rows, columns, entries, layout, _, symmetry = info
    # "1 1" or "0" and the end of a line; of a symmetric array nearly half is written.
    least = 4 * entries if layout == "coordinate" else 2 * entries
    if layout == "array" and symmetry != "general":
        least //= 4
    if least > size + 1:  # the last line need not end
        raise InputError(
            f"its header declares {entries:,} entries and the file has {size:,} bytes, too few "
            "for them; check that the file is whole"
        )
    if layout == "coordinate":
        check_sparse((rows, columns), entries * (1 if symmetry == "general" else 2))
    else:
        check_dense((rows, columns), 8 + bytes_an_entry)


def check_archive(archive: zipfile.ZipFile, without: Sequence[str] = ()) -> None:
    """Refuse an .npz whose arrays do not fit, however small they were packed.

    Those named in `without` are not counted.
    """
    total = 0
    for info in archive.infolist():
        declared = info.file_size
        if info.filename.endswith(".npy"):
            with archive.open(info) as stream:
                header = array_header(stream)
            declared = array_size(*header)
            if declared > info.file_size and not header[1].hasobject:
                raise InputError(
                    f"its array {info.filename[:-4]!r} declares {declared:,} bytes and holds at "
                    f"most {info.file_size:,}; check that the file is whole and what wrote it"
                )
        total += 0 if info.filename.removesuffix(".npy") in without else declared
    what = f"what the file holds ({total:,} bytes when unpacked)"
    require_memory(total, what, SMALLER)


def array_header(stream):
    """Return (shape, dtype) from the header of an .npy file; read no more."""
    shape, _, dtype = array_layout(stream)
    return shape, dtype


def array_layout(stream):
    """Return shape, whether columns lie together, and dtype from the header of an .npy file."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise InputError("an array in it is of records; give an array of plain numbers")


def check_array(stream, size) -> None:
    """Refuse an .npy file of `size` bytes whose real numbers do not fit."""
    shape, dtype = array_header(stream)
    declared = array_size(shape, dtype)
    if declared > size - stream.tell() and not dtype.hasobject:
        raise InputError(
            f"it declares {declared:,} bytes and the file has {size:,}; check that the file is "
            "whole and what wrote it"
        )
    if len(shape) == 2:
        check_dense(shape, dtype.itemsize + REAL_ENTRY)


def array_size(shape, dtype) -> int:
    """Return the bytes of an array; Python's integers do not overflow."""
    size = int(dtype.itemsize)
    for length in shape:
        size *= int(length)
    return size


def check_text(path, what, remedy, *, strings=True, a_line=0, a_cell=0, a_filled=0) -> None:
    """Refuse a text that does not fit, with so many bytes a line, a cell and a filled cell.

    With `strings`, all of its cells are in memory as such first. What its lines hold is estimated
    from its size and its beginning.
    """
    packed = path.suffix.lower() == ".gz"
    open_it, num_bytes = gzip.open if packed else open, path.stat().st_size
    if packed:
        with gzip.open(path) as stream:
            num_bytes = sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
    with open_it(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as stream:
        sample = stream.read(_SAMPLE)
    lines = sample.splitlines()
    cells = [cell for line in lines for cell in re.split("[,;\t ]", line)]
    needed = a_line * len(lines) + a_cell * len(cells) + a_filled * sum(map(bool, cells))
    if strings:
        # One character is a string that Python has already; of others it keeps a string each.
        needed += sum(8 + (sys.getsizeof(cell) if len(cell) > 1 else 0) for cell in cells)
        needed += 150 * len(lines)
    needed *= num_bytes / max(len(sample.encode()), 1)
    # At least a line as it is read, in a buffer and as a string: it may be the whole file.
    require_memory(max(needed, 3 * num_bytes), f"reading {what} of {num_bytes:,} bytes", remedy)


def check_ratings(shape, num_ratings) -> None:
    """Refuse ratings that do not fit, or whose rows and columns cannot even be counted."""
    check_sides(shape)
    require_memory(
        RATING * int(num_ratings) + 16 * (int(shape[0]) + int(shape[1])),
        f"{num_ratings:,} ratings of {_dimensions(shape)}, as the file declares them,",
        "check the header, leave out rows and columns without ratings, or use a machine with more "
        "memory",
    )


def _dimensions(shape):
    return f"{shape[0]:,} rows x {shape[1]:,} columns"
