"""The exception for bad input, calls that do not fit, texts for a terminal, installed versions."""

import difflib
import functools
import inspect
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

#: Categories of characters that steer a terminal or break a line, and characters that turn the
#: direction of what follows.
_STEERING = {"Cc", "Cs", "Zl", "Zp"}
_TURNING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

#: What other programs call something, and what it may be called here: as an argument, an attribute
#: or, with hyphens, an option of the command line. The first that is there is meant.
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    name: here
    for names, here in (
        (
            "k n_components num_components factors n_factors num_factors n_latent num_latent "
            "latent latent_dim n_topics num_topics",
            ("rank", "ranks", "n_components"),
        ),
        ("components", ("basis", "rank", "n_components")),
        ("samples n_samples num_samples draws n_draws num_draws iter_sampling iter iters n_iter "
         "num_iter max_iter iterations n_iterations num_iterations",
         ("num_samples", "samples", "draws")),
        ("warmup n_warmup num_warmup tune n_tune burnin burn_in num_burnin iter_warmup",
         ("num_warmup", "warmup")),
        ("chains n_chains num_chains", ("num_chains", "chains")),
        ("random_state random_seed seed rng", ("seed", "random_state")),
        ("w", ("usage",)),
        ("h", ("basis",)),
        ("fit_transform", ("usage",)),
        ("predict_proba", ("probability",)),
    )
    for name in names.split()
}  # fmt: skip


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


class ArgumentError(InputError, TypeError):
    """A call that does not fit what is called: an argument is unknown, missing or one too many."""


def meant(text: str, names: Iterable) -> str | None:
    """Return the name that a text nearly is, or that others have for it; None where there is none.

    Case does not matter, nor do hyphens of options.

    Examples
    --------
    >>> [meant(text, ["sampler", "num_samples", "rank"]) for text in ("samples", "K", "n_factors")]
    ['num_samples', 'rank', 'rank']
    >>> meant("--num-samples", ["--samples", "--seed"]), meant("components_", ["rank", "basis"])
    ('--samples', 'basis')
    >>> meant("--iter", ["--samples", "--zero"]), meant("--factors", ["--rank", "--anchors"])
    ('--samples', '--rank')
    >>> meant("feature", ["features", "relaxed"]), meant("Q1", ["q1", "q2"]), meant("x", ["y"])
    ('features', 'q1', None)
    """
    names = [str(name) for name in names]
    bare, here = _bare(text), {_bare(name): name for name in names}
    for name in _ELSEWHERE.get(bare, ()):
        if name in here:
            return here[name]
    # Hyphens of options are alike in all of them, and say nothing.
    close = difflib.get_close_matches(bare, here, n=1)
    return here[close[0]] if close else None


def _bare(name: str) -> str:
    return name.lower().strip("-_").replace("-", "_")


def did_you_mean(text: object, names: Iterable) -> str:
    """Return what ends a message about a text that is none of the names, if it nearly is one.

    Examples
    --------
    >>> did_you_mean("feature", ["features", "relaxed"]), did_you_mean(3, ["features"])
    ("; did you mean 'features'?", '')
    """
    close = meant(text, names) if isinstance(text, str) else None
    return "" if close is None else f"; did you mean {close!r}?"


def checking_call(function: Callable, name: str = "") -> Callable:
    """Return a function that refuses a call which does not fit it in one clear sentence.

    `name` is what users call it; default its own.

    Examples
    --------
    >>> fit = checking_call(lambda data, rank=None, *, seed=0: (data, rank, seed), "fit")
    >>> fit("davis", 3)
    ('davis', 3, 0)
    >>> for args, given in (((1,), {"rnak": 3}), ((), {"rank": 3}), ((1, 2, 3), {})):
    ...     try:
    ...         fit(*args, **given)
    ...     except TypeError as error:
    ...         print(error)
    rnak is no argument of fit; did you mean 'rank'?
    fit needs data; give data=...
    fit is given 3 values without a name, and takes 2 (data, rank); name others, such as seed=...
    """
    signature, name = inspect.signature(function), name or function.__name__

    @functools.wraps(function)
    def checked(*args, **given):
        try:
            return function(*args, **given)
        except TypeError:
            # What a call that fits raises is its own; only of one that fails arguments are bound.
            if not (why := _misfit(signature, name, args, given)):
                raise
            raise ArgumentError(why) from None

    checked.checks_call = True
    return checked


def with_calls_checked(kind: type, called: str) -> None:
    """Let all public methods of a class, and of those it is made of, check how they are called.

    `called` is what users call an object of it.
    """
    for own in kind.__mro__[:-1]:
        for name, method in list(vars(own).items()):
            is_static = isinstance(method, staticmethod)
            function = method.__func__ if is_static else method
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if not hasattr(function, "checks_call"):
                of = own.__name__ if is_static else called
                found = checking_call(function, f"{of}.{name}")
                setattr(own, name, staticmethod(found) if is_static else found)


def _misfit(signature: inspect.Signature, name: str, args: Sequence, given: Mapping) -> str:
    """Say why arguments are not those of a function; nothing where they are."""
    try:
        signature.bind(*args, **given)
    except TypeError as error:
        return _why(signature.parameters, name, args, given) or f"{name}: {error}"
    return ""


def _why(parameters: Mapping, name: str, args: Sequence, given: Mapping) -> str:
    placed = [n for n, p in parameters.items() if p.kind == p.POSITIONAL_OR_KEYWORD]
    named = [n for n in parameters if n != "self"]
    for n in given:
        if n not in named:
            hint = did_you_mean(n, named) or f"; it has {', '.join(named) or 'none'}"
            return f"{n} is no argument of {name}{hint}"
    is_method = placed[:1] == ["self"]
    if len(args) > len(placed):
        number, known = len(args) - is_method, placed[is_method:]
        rest = [n for n in named if n not in known]
        takes = f"{len(known)} ({', '.join(known)})" if known else "none"
        more = f"; name others, such as {rest[0]}=..." if rest else ""
        values = f"{number} value{'s' * (number > 1)}"
        return f"{name} is given {values} without a name, and takes {takes}{more}"
    for n in placed[: len(args)]:
        if n in given:
            return f"{name} is given {n} twice, by its place and by its name; leave one out"
    needed = [n for n in named if parameters[n].default is inspect.Parameter.empty]
    lacking = [n for n in needed if n not in given and n not in placed[: len(args)]]
    if lacking:
        return f"{name} needs {', '.join(lacking)}; give {', '.join(f'{n}=...' for n in lacking)}"
    return ""


def outside() -> int:
    """Return the level, for `warnings.warn` of who calls this, of the first caller of the package.

    Examples
    --------
    >>> own = {"__name__": f"{__name__.partition('.')[0]}.made_up", "outside": outside}
    >>> exec("def deep(n): return deep(n - 1) if n else outside()", own)
    >>> users = {"__name__": "script", "deep": own["deep"]}
    >>> exec("def ask(n): return deep(n)", users)
    >>> users["ask"](0), users["ask"](2)
    (2, 4)
    """
    level, frame = 1, sys._getframe(1)
    while frame is not None and _is_own(frame):
        level, frame = level + 1, frame.f_back
    return level


def _is_own(frame) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]


def kind_of(value: object) -> str:
    """Return what a value is, with its article, for a message.

    Examples
    --------
    >>> kind_of(3), kind_of([3])
    ('an int', 'a list')
    """
    name = type(value).__name__
    # U is not among them: a user, a uint.
    return f"a{'n' * (name[:1].lower() in 'aeio')} {name}"


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
