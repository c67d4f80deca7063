"""The one exception for bad input, what of a text a terminal may show, and installed versions."""

import difflib
import unicodedata
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

#: Categories of characters that steer a terminal or break a line, and characters that turn the
#: direction of what follows.
_STEERING = {"Cc", "Cs", "Zl", "Zp"}
_TURNING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class InputError(ValueError):
    """Input that cannot be used: the message says what, where and what to do.

    The command line prints the message alone and exits with code 2.

    Examples
    --------
    >>> raise InputError("rank is 0; give a number from 1 to 16")
    Traceback (most recent call last):
        ...
    bmfjax.errors.InputError: rank is 0; give a number from 1 to 16
    """


def meant(text: str, names: Iterable) -> str | None:
    """Return the name that a text nearly is, in whatever case; None where there is no such name.

    Examples
    --------
    >>> meant("feature", ["features", "relaxed"]), meant("Q1", ["q1", "q2"]), meant("x", ["y"])
    ('features', 'q1', None)
    """
    known = {str(name).lower(): str(name) for name in names}
    close = difflib.get_close_matches(text.lower(), known, n=1)
    return known[close[0]] if close else None


def did_you_mean(text: object, names: Iterable) -> str:
    """Return what ends a message about a text that is none of the names, if it nearly is one.

    Examples
    --------
    >>> did_you_mean("feature", ["features", "relaxed"]), did_you_mean(3, ["features"])
    ("; did you mean 'features'?", '')
    """
    close = meant(text, names) if isinstance(text, str) else None
    return "" if close is None else f"; did you mean {close!r}?"


def printable(text):
    r"""Return a text as a terminal may show it: characters that would steer it are escaped.

    Examples
    --------
    >>> print(printable("red \x1b[31m, and\na line"))
    red \x1b[31m, and\na line
    """
    if text.isprintable():
        return text
    return "".join(
        repr(c)[1:-1] if c in _TURNING or unicodedata.category(c) in _STEERING else c for c in text
    )


def version_of(package: str) -> str:
    """Return the version of a package; "unknown" where its code lies beside and is not installed.

    Examples
    --------
    >>> version_of("a package that is not there")
    'unknown'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
