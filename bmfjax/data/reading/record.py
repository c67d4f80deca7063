"""What is asked of a reading, and what was decided: two records."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from bmfjax.data.errors import InputError

BINARY, REAL, RATINGS = "binary", "real", "ratings"
AUTO = "auto"
#: What the lines of a text, or of a frame, can be.
LAYOUTS = ("table", "triples", "pairs", "baskets")
#: What to do with a cell that is listed more than once.
DUPLICATES = ("error", "last", "mean", "sum")


@dataclass(frozen=True)
class Asked:
    """The options of a reading: what the user says of the data; the rest is decided by them.

    `bmfjax.load` describes them.
    """

    header: bool | str = AUTO
    row_names: bool | str = AUTO
    layout: str = AUTO
    columns: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    label_column: tuple[str, ...] = ()
    one: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    binarize: float | None = None
    one_hot: tuple[str, ...] = ()
    duplicates: str = "error"
    decimal: str = AUTO
    encoding: str | None = None
    scale: tuple[float, float] | None = None
    #: Names of the columns of a fit, of new rows for it.
    fitted: tuple[str, ...] = ()

    @classmethod
    def of(cls, **given: Any) -> Asked:
        """Check the options of a call."""
        for name in ("columns", "ignore", "label_column", "one", "zero", "missing", "one_hot"):
            if given.get(name) is not None:
                given[name] = _texts(name, given[name])
            elif name != "columns":
                given.pop(name, None)
        for name in ("header", "row_names"):
            value = given.get(name, AUTO)
            if not isinstance(value, bool) and value != AUTO:
                raise InputError(f"{name} is {value!r}; give True, False or 'auto'")
        for name, known in (
            ("layout", (AUTO, *LAYOUTS)), ("duplicates", DUPLICATES), ("decimal", (AUTO, ".", ",")),
        ):  # fmt: skip
            if given.get(name, known[0]) not in known:
                raise InputError(f"{name} is {given[name]!r}; choose from {', '.join(known)}")
        binarize = given.get("binarize")
        if isinstance(binarize, bool | np.bool_ | str) or not np.isscalar(binarize or 0):
            raise TypeError(f"binarize is a {type(binarize).__name__}; give a number or None")
        if binarize is not None and not np.isfinite(binarize):
            raise InputError(f"binarize is {binarize}; give a finite number")
        asked = cls(**given)
        both = set(asked.one) & set(asked.zero) or set(asked.missing) & {*asked.one, *asked.zero}
        if both:
            raise InputError(f"{min(both)!r} is given two meanings by one, zero, missing; give one")
        if asked.binarize is not None and (asked.one or asked.zero):
            raise InputError("binarize makes ones of numbers, and one and zero name them; give one")
        return asked

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return {f.name: held[f.name] for f in fields(self) if held[f.name] != f.default}


def _texts(name, given) -> tuple[str, ...]:
    """Return one or several names, texts or numbers as texts."""
    several = [given] if isinstance(given, str | int | float) and name != "label_column" else given
    several = [several] if isinstance(several, str) else several
    try:
        held = list(several)
    except TypeError:
        raise TypeError(f"{name} is a {type(given).__name__}; give a text or several") from None
    return tuple((f"{v:g}" if isinstance(v, float) else str(v)).strip() for v in held)


@dataclass(frozen=True)
class Reading:
    """What was read, and how: `print` gives one line.

    Attributes
    ----------
    layout : str
        "table", "triples" (row, column, value), "pairs", "baskets" or "matrix", an array.
    shape : (int, int)
    row_names, column_names : str
        What names the rows and the columns, in long data fields; "" where they have no names.
    first, last : str
        Names of the first and the last column.
    values : str
        What the values are, such as "Yes/No".
    labels, ignored : tuple of str
        Columns that label the rows, and columns that were left out.
    share_missing : float
        Share of the entries that are missing.
    empty : str
        Columns and rows without any value, such as "column 'tax'".
    notes : tuple of str
        Further decisions.
    """

    layout: str
    shape: tuple[int, int]
    row_names: str = ""
    column_names: str = ""
    first: str = ""
    last: str = ""
    values: str = ""
    labels: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    share_missing: float = 0.0
    empty: str = ""
    notes: tuple[str, ...] = field(default=())

    def as_text(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Reading:
        """Return the record of a JSON text, or refuse what is none."""
        try:
            held = json.loads(text)
            found = cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in held.items()})
            str(found)
            return found
        except (ValueError, TypeError, AttributeError):
            raise InputError("its array 'reading' is no record of a reading") from None

    def __str__(self) -> str:
        rows, columns = self.shape
        names = f" {self.first!r}" if self.first else ""
        names += f" ... {self.last!r}" if self.first and columns > 1 else ""
        by_field = self.column_names if self.layout in ("triples", "pairs") else ""
        if by_field:
            names = f" named by {by_field} ({names.strip()})"
        how = {"triples": "lines of row, column, value: ", "pairs": "a list of pairs: ",
               "baskets": "lines of items: "}.get(self.layout, "")  # fmt: skip
        by = f" named by {self.row_names}" if self.row_names else ""
        of = f" of {self.values}" if self.values else ""
        sides = f"{_counted(rows, 'row')}{by} x {_counted(columns, 'column')}{names}"
        said = [f"read as {how}{sides}{of}"]
        if self.labels:
            many = "s" if len(self.labels) > 1 else ""
            said.append(f"{quoted(self.labels)} {'a ' * (not many)}label{many}")
        if self.ignored:
            said.append(f"{quoted(self.ignored)} left out (columns=, --columns)")
        said += self.notes
        if self.share_missing and "ratings" not in self.values:
            whole = f", all of {self.empty}" if self.empty else ""
            said.append(f"{100 * self.share_missing:.3g} % missing{whole}")
        elif self.empty:
            said.append(f"no value in {self.empty}")
        if self.column_names and not by_field:
            said.append(f"{self.column_names} taken for names (header=, --header)")
        return "; ".join(said)


class Found(NamedTuple):
    """What a reading found: the arguments of `BinaryMatrix`, `RealMatrix` or `Ratings`."""

    given: dict[str, Any]
    reading: Reading
    notes: tuple[str, ...] = ()

    def renamed(self, row_names, column_names) -> dict[str, Any]:
        """Return the sides of ratings under names that are given, all of them, in their order."""
        more, shape = {}, list(self.given.get("shape", (None, None)))
        for k, (side, names) in enumerate((("row", row_names), ("column", column_names))):
            if names is None:
                continue
            own = self.given.get(f"{side}_names")
            if own is not None:  # both have names, and are matched
                more[f"{side}s"] = np.take(np.array(own, object), self.given[f"{side}s"])
            more[f"{side}_names"], shape[k] = names, len(names)
        return more | ({"shape": shape} if "shape" in self.given else {})


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def quoted(names: Sequence[str], most: int = 6) -> str:
    """Write some names, each in quotes."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{name}'" for name in names[:most]) + more


def option(name: str, value: str) -> str:
    """Write an option as both Python and the command line have it."""
    return f"{name}={value!r} (--{name.replace('_', '-')} {shlex.quote(value)})"
