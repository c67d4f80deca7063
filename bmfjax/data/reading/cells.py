"""The cells of a column: which are numbers, which are missing, and which are neither."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from bmfjax.data.checks import is_real
from bmfjax.data.errors import InputError

#: What pandas takes for a missing cell, in lower case.
MISSING_MARKS = frozenset(
    ["", "#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan"]
) | {"<na>", "n/a", "na", "nan", "none", "null"}
#: What answers beside two words say, and mean no answer; in lower case.
NO_ANSWERS = frozenset(
    ["don't know", "do not know", "dont know", "no answer", "not answered", "not applicable"]
) | {"prefer not to say", "prefer not to answer", "refused", "not stated"}
#: Texts for a one and a zero, in lower case.
PAIRS = (("1", "0"), ("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"), ("+", "-"))
WORDS = frozenset(word for pair in PAIRS for word in pair)
_WORDS = {"true": 1.0, "false": 0.0}
_COMMA = re.compile(r"[+-]?(\d{1,3}([. ']\d{3})+|\d+)?,\d+([eE][+-]?\d+)?")
# A zero stands before no thousands.
_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_ONE_POINT = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
#: What has a comma and may be a number, or a list of some.
_FIGURES = re.compile(r"[+-]?[\d. ']*(,\d[\d. ']*)+([eE][+-]?\d+)?")


def number(text, decimal: str = ".") -> float | None:
    """Return the number of a text, or None; Python would take 1_0 for digits apart."""
    if decimal == "," and (_COMMA.fullmatch(text) or _POINTS.fullmatch(text)):
        text = re.sub("[. ']", "", text).replace(",", ".")
    elif decimal == "," and "." in text:
        return None
    elif decimal == "thousands" and _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def any_number(text) -> float | None:
    """Return the number of a text, whatever its decimal sign."""
    value = number(text)
    return number(text, ",") if value is None else value


def is_missing(text) -> bool:
    """Say whether a text is one of the usual marks of a missing cell."""
    return text.lower() in MISSING_MARKS


def is_value(text, comma: bool = False) -> bool:
    """Say whether a text is a number, or missing, and so no name."""
    known = text.lower() in MISSING_MARKS or text.lower() in _WORDS or number(text) is not None
    return known or (comma and bool(_COMMA.fullmatch(text)))


def decimal_of(texts: Iterable[str], asked: str, separator: str) -> str:
    """Return the decimal sign of some texts: "." or ",", or "thousands" for commas of these.

    Commas in other texts, such as names of rows or <0,05, say nothing. What may be either is
    refused.
    """
    commas = sorted(filter(_FIGURES.fullmatch, texts))
    thousands = bool(commas) and all(_THOUSANDS.fullmatch(text) for text in commas)
    if asked != "auto" or not commas:
        if asked == "auto" and separator == ";":
            _check_points(texts)
        return "thousands" if asked == "." and thousands else asked.replace("auto", ".")
    points = any("." in text and "," not in text and number(text) is not None for text in texts)
    points |= any("." in text for text in commas if thousands)
    several = any(text.count(",") > 1 for text in commas)
    if thousands and (points or several):
        return "thousands"
    if not all(_COMMA.fullmatch(text) for text in commas) or points:
        return "."  # they are no numbers
    if thousands:
        raise _unclear_sign("comma", commas[0], ",", ".")
    return ","


def _check_points(texts: Iterable[str]) -> None:
    """Refuse numbers of which every point may be one of thousands, of a text without commas.

    The cells of such a text are not parted by commas, as where these are decimal signs.
    """
    points = sorted(text for text in texts if "." in text and number(text) is not None)
    if len(points) > 1 and all(map(_ONE_POINT.fullmatch, points)):
        raise _unclear_sign("point", points[0], ".", ",")


def _unclear_sign(what, text, decimal, thousands) -> InputError:
    """Return the error for a sign in a number: it is the `decimal` one, or that is another."""
    small, large = (float(re.sub("[.,]", own, text)) for own in (".", ""))
    return InputError(
        f"the {what} of {text!r} may be a decimal or a thousands sign; say decimal={decimal!r} "
        f"(--decimal {decimal}) if it is {small:g}, or decimal={thousands!r} (--decimal "
        f"{thousands}) if it is {large:g}"
    )


class Column:
    """A column: its name, and for every cell a number, or that it is missing, or a text."""

    def __init__(self, name, codes, texts, missing_marks=(), decimal="."):
        self.name, self.codes = name, codes
        self.texts = texts
        self._mark(missing_marks, [number(t, decimal) for t in texts])

    def _mark(self, marks, numbers):
        equal = {number(mark) for mark in marks} - {None}
        numbers = [_WORDS.get(t.lower()) if v is None else v
                   for t, v in zip(self.texts, numbers, strict=True)]  # fmt: skip
        self.gone = np.array(
            [
                t in marks or is_missing(t) or (v is not None and (v in equal or v != v))
                for t, v in zip(self.texts, numbers, strict=True)
            ],
            bool,
        )
        self.numbers = np.array([np.nan if v is None else v for v in numbers], float)
        self.numbers[self.gone] = np.nan

    @classmethod
    def of_texts(cls, name, cells: Sequence[str], missing_marks=(), decimal=".") -> Column:
        """Make a column of texts."""
        codes, texts = pd.factorize(np.asarray(cells, dtype=object))
        return cls(name, codes, [str(text) for text in texts], missing_marks, decimal)

    @classmethod
    def of_series(cls, series: pd.Series, missing_marks=()) -> Column:
        """Make a column of one of a data frame; what is missing there is a blank text."""
        codes, kept = pd.factorize(series, use_na_sentinel=True)
        texts = [_text(value) for value in kept]
        if (codes < 0).any():
            codes = np.where(codes < 0, len(texts), codes)
            texts.append("")
        found = cls(str(series.name), codes, texts, missing_marks)
        if is_real(series.dtype) and len(kept):  # not by way of texts
            exact = np.asarray(kept, float)
            found.numbers[: len(exact)] = np.where(found.gone[: len(exact)], np.nan, exact)
        return found

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def values(self) -> np.ndarray:
        """Numbers, NaN where a cell is missing or a text."""
        return self.numbers[self.codes]

    @property
    def missing(self) -> np.ndarray:
        """Whether each cell is missing."""
        return self.gone[self.codes]

    @property
    def words(self) -> list[str]:
        """The distinct texts that are not missing."""
        return [text for text, gone in zip(self.texts, self.gone, strict=True) if not gone]

    @property
    def seen(self) -> np.ndarray:
        """The distinct numbers."""
        return self.numbers[~np.isnan(self.numbers)]

    @property
    def is_numeric(self) -> bool:
        """Whether every cell is a number or missing, and one is a number."""
        return bool((self.gone | ~np.isnan(self.numbers)).all()) and not self.gone.all()

    @property
    def is_text(self) -> bool:
        """Whether no cell is a number, and some are texts."""
        return not len(self.seen) and not self.gone.all()

    @property
    def is_whole(self) -> bool:
        """Whether every cell is a whole number, none of them twice."""
        seen = self.numbers
        return self.is_distinct and not np.isnan(seen).any() and bool((seen == np.rint(seen)).all())

    @property
    def is_distinct(self) -> bool:
        """Whether no text stands there twice."""
        return len(self.texts) == len(self.codes)

    @property
    def rises(self) -> bool:
        """Whether the numbers rise from line to line."""
        return len(self) > 1 and bool((np.diff(self.values) > 0).all())

    def odd(self) -> int | None:
        """Return the first cell that is neither a number nor missing."""
        wrong = (np.isnan(self.numbers) & ~self.gone)[self.codes]
        return int(np.argmax(wrong)) if wrong.any() else None

    def text(self, i) -> str:
        """Return the text of a cell."""
        return self.texts[self.codes[i]]

    def all_texts(self) -> list[str]:
        """Return the text of every cell."""
        return np.array([*self.texts, ""], object)[self.codes].tolist()

    def counts(self) -> dict[str, int]:
        """Count every text that is not missing."""
        each = np.bincount(self.codes, minlength=len(self.texts))
        return {t: int(c) for t, c, g in zip(self.texts, each, self.gone, strict=True) if not g}


def _text(value) -> str:
    """Write a cell of a data frame as a text file has it."""
    if isinstance(value, float | np.floating) and value == np.rint(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value).strip()
