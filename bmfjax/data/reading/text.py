"""A text as lines of fields: its encoding, what separates the fields, and what is a comment.

The csv module reads, and not `pandas.read_csv`, which fills a line that is too short with missing
cells, takes what follows a closing quote into the cell, and cuts a line at a NUL, without a word.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from bmfjax.data.errors import InputError
from bmfjax.data.reading.cells import is_value

#: What separates fields, in the order in which it is preferred.
SEPARATORS = ("::", "\t", ";", ",", "|")
#: How files begin that are packed in ways that are not read.
PACKINGS = {
    b"\xfd7zXZ": "xz", b"BZh91AY&": "bzip2", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd",
    b"\x1f\x8b": "gzip",
}  # fmt: skip
#: Lines by which the separator is told.
HEAD = 20
Line = tuple[int, list[str]]


@dataclass(frozen=True)
class Lines:
    """The lines of a text that are not blank, as often as they are asked for."""

    path: object
    separator: str
    encoding: str
    skip: int  # lines at the beginning that are comments
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Line]:
        return _fields(self)

    def head(self, number: int) -> list[Line]:
        """Return some lines of the beginning."""
        return list(itertools.islice(self, number))


def read_lines(path, encoding=None, least=2) -> Lines:
    """Return the lines of a text; the separator gives all of them `least` fields, if one does."""
    encoding = encoding or _encoding(path)
    try:
        with opened_text(path, encoding) as stream:
            head = list(itertools.islice((line for line in stream if line.strip()), HEAD))
    except LookupError:
        raise InputError(f"encoding is {encoding!r}, which is not known; give another") from None
    except UnicodeError as err:
        raise _not_encoded(path, encoding) from err
    except OSError as err:
        raise InputError(f"it cannot be read: {err.strerror or err}; give another") from err
    if head and re.match(r"\ufeff?\s*<(!doctype\s+html|html)\b", head[0], re.IGNORECASE):
        raise InputError(
            "it is a page (HTML), such as one that asks to sign in; save the data themselves"
        )
    skip, notes, separator = 0, [], None
    said = re.fullmatch(r"\ufeff?sep=(.)\s*", head[0]) if head else None
    if said:
        separator, head, skip = said[1], head[1:], 1
    while separator is None and len(head) > 1 and _is_comment(head, path):
        notes = ["lines with # skipped"]
        head, skip = head[1:], skip + 1
    if ending_of(path) == ".tsv":
        separator = "\t"
    if separator is None:
        separator = separator_of(head, ending_of(path), least)
    return Lines(path, separator, encoding, skip, tuple(notes))


def ending_of(path) -> str:
    """Return the ending of a text below that of its packing."""
    return path.with_suffix("").suffix.lower() if path.suffix == ".gz" else path.suffix.lower()


def opened_text(path, encoding):
    """Open a text, packed or not."""
    open_it = gzip.open if path.suffix.lower() == ".gz" else open
    return open_it(path, "rt", encoding=encoding, newline="")


def _encoding(path) -> str:
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as stream:
        first = stream.read(8)
    for mark, packing in PACKINGS.items():
        if first.startswith(mark):
            raise InputError(f"packed by {packing}; unpack it first (gzip is read as .csv.gz)")
    return "utf-16" if first[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _is_comment(head, path) -> bool:
    """Say whether a first line begins with # and has fewer fields than what follows."""
    if not head[0].startswith("#"):
        return False
    rest = [line for line in head[1:] if not line.startswith("#")] or head[1:]
    separator = separator_of(rest, ending_of(path))
    return _bare(head[0]).count(separator) < _bare(rest[0]).count(separator)


def separator_of(lines, ending="", least=2) -> str:
    """Return what parts the lines into equally many fields, most of which are values."""
    found = []
    blanks = ending != ".csv" or least > 2
    for separator in (*SEPARATORS, " ") if blanks else SEPARATORS:
        try:
            rows = _split(lines, separator)
        except csv.Error:
            continue
        widths = {len(row) for row in rows}
        if len(widths) == 1 and min(widths) >= least:
            cells = [cell for row in rows[1:] or rows for cell in row[1:]]
            values = sum(is_value(cell.strip(), separator != ",") for cell in cells)
            # Names have blanks in them.
            found.append((separator != " ", values / len(cells), len(cells), separator))
    if found:
        return max(found, key=lambda f: f[:3])[-1]
    bare = list(map(_bare, lines))
    held = {s: sum(s in line for line in bare) for s in SEPARATORS}
    best = max(held, key=held.get)
    blanks = blanks and any(" " in line.strip() for line in bare)
    return best if held[best] else " " if blanks else ","


def _split(lines, separator) -> list[list[str]]:
    if len(separator) > 1:
        return [line.split(separator) for line in lines]
    rows = []
    try:
        for row in csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True):
            rows.append(row)
    except csv.Error as err:
        if "unexpected end" not in str(err):  # the lines may end within quotes
            raise
    return rows


def _bare(line) -> str:
    """Return a line without what stands in quotes."""
    return re.sub('"[^"]*"', "", line)


def _fields(lines) -> Iterator[Line]:
    path, separator, encoding, began = lines.path, lines.separator, lines.encoding, 1
    try:
        with opened_text(path, encoding) as stream:
            left = lines.skip
            while left:
                left -= bool(next(stream).strip())
                began += 1
            if len(separator) > 1:  # as MovieLens writes them, without quotes
                for line, text in enumerate(stream, start=began):
                    if text.strip():
                        yield line, [field.strip() for field in text.split(separator)]
                return
            before = began - 1
            reader = csv.reader(stream, delimiter=separator, skipinitialspace=True, strict=True)
            for fields in reader:
                if len(fields) > 1 or any(field.strip() for field in fields):
                    yield began, [field.strip() for field in fields]
                began = before + reader.line_num + 1
    except UnicodeError as err:
        raise _not_encoded(path, encoding) from err
    except csv.Error as err:
        raise InputError(
            f"line {began}: {err}; close every double quote, and write two for one inside"
        ) from err


def _not_encoded(path, encoding) -> InputError:
    """Return the error for a file of another encoding, with the line."""
    line = 1
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as stream:
        for line, text in enumerate(stream, start=1):  # noqa: B007
            try:
                text.decode(encoding)
            except UnicodeError:
                break
    what = "UTF-8" if encoding == "utf-8-sig" else encoding
    return InputError(
        f"line {line}: not {what}; save the file as UTF-8, or name its encoding, such as "
        "encoding='latin-1' (--encoding latin-1)"
    )


class Sheet(list):
    """The lines of the first sheet of an Excel file that are not blank, as texts."""

    separator = ","

    def __init__(self, path):
        try:
            with pd.ExcelFile(path) as book:
                names = book.sheet_names
                sheet = book.parse(names[0], header=None, dtype=object)
        except ImportError as err:
            raise InputError(
                "reading this format needs the package openpyxl; run pip install 'bmfjax[excel]'"
            ) from err
        texts = sheet.astype(object).where(sheet.notna(), "").map(lambda cell: str(cell).strip())
        lines = enumerate(texts.to_numpy().tolist(), start=1)
        super().__init__((i, row) for i, row in lines if any(row))
        self.notes = (f"sheet {names[0]!r} of {len(names)}",) if len(names) > 1 else ()

    def head(self, number: int) -> list[Line]:
        """Return some lines of the beginning."""
        return self[:number]
