"""Matrix Market: a header, then a line for each entry, all of which scipy must be able to read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import BinaryIO

import scipy.io

from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import check_matrix_market

_INTEGER = rb"[+-]?+[0-9]++"
_REAL = (
    rb"[+-]?+(?:(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+|(?i:nan|inf(?:inity)?+))"
)
_BLANK = rb"[ \t]++"
#: What a line says of the value of its entry, by the field of the header.
_VALUES = {
    "pattern": (),
    "integer": (_INTEGER,),
    "unsigned-integer": (_INTEGER,),
    "real": (_REAL,),
    "double": (_REAL,),
    "complex": (_REAL, _REAL),
}
#: Bytes that are looked at together, and the most that a line may have.
_BLOCK = 1 << 22


def market_matrix(path, bytes_an_entry):
    """Return the matrix of a file that fits, with so many bytes an entry of a full array."""
    with warnings.catch_warnings():
        # From 1.18 scipy warns that its kind of sparse matrix will change; either is read here.
        warnings.filterwarnings("ignore", "The default value for `spmatrix`", DeprecationWarning)
        # By its path: given a stream, scipy's reader ends the whole process on some broken files.
        info = scipy.io.mminfo(str(path))
        check_matrix_market(info, path.stat().st_size, bytes_an_entry)
        with open(path, "rb") as stream:
            check_lines(stream, *info[3:5])
        return scipy.io.mmread(str(path))


def check_lines(stream: BinaryIO, layout: str, field: str) -> None:
    """Refuse a file with a line that is not one entry as its header says.

    scipy drops what follows the entry in such a line, so that 1.7 becomes 1 in a file of integers.
    After a zero byte, or in a last line without an end, it reads beyond its memory instead.
    """
    first = _skip_header(stream)
    positions = (rb"[0-9]++", rb"[0-9]++") if layout == "coordinate" else ()
    entry = rb"[ \t]*+" + _BLANK.join((*positions, *_VALUES[field]))
    lines = re.compile(rb"(?:(?:" + entry + rb")?+[ \t\r]*+\n)*+")
    last = re.compile(rb"(?:" + entry + rb")?+")
    for block in _blocks(stream):
        end = lines.match(block).end()
        if end < len(block) and not last.fullmatch(block, end):
            number = first + block.count(b"\n", 0, end)
            text = block[end:].partition(b"\n")[0][:60].decode("latin-1")
            raise InputError(
                f"line {number}: {text!r} is no entry ({layout}, {field}, as the header says); "
                "write one entry a line, and end the last line, too"
            )
        first += block.count(b"\n")


def _skip_header(stream) -> int:
    """Read on to the first line after the sizes; return its number, from 1."""
    number = 0
    while line := stream.readline(_BLOCK):
        number += 1
        if b"\0" in line or len(line) == _BLOCK:
            raise InputError(
                f"line {number} of its header is no text; check that the file is whole and what "
                "wrote it"
            )
        if number > 1 and line.strip() and not line.lstrip().startswith(b"%"):
            break
    return number + 1


def _blocks(stream) -> Iterator[bytes]:
    """Yield the rest of a stream in blocks of whole lines."""
    while block := stream.read(_BLOCK):
        block += stream.readline(_BLOCK)
        yield block
