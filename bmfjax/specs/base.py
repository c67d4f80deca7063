"""What models and samplers are: values whose fields say their default, check, sentence and flag.

A value is frozen, and equal to another of its class whose fields are equal; distributions and
arrays count by what is in them. This room does without JAX, so that the command line can name all
models before it loads.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bmfjax.errors import InputError, did_you_mean
from bmfjax.specs import checks
from bmfjax.specs.run import BATCH

#: What the run, or the plan of a fit, finds itself.
AUTO = "auto"
#: A number, an array or a distribution of NumPyro.
Prior = Any


class Flag(NamedTuple):
    """An option of the command line; a field that has it is set to ``read(value)``."""

    name: str
    help: str
    parse: Mapping[str, Any] = MappingProxyType({})
    read: Callable[[Any], Any] = lambda value: value


PRECISION = Flag(
    "--precision", "fix the noise precision (learned where not given)", {"type": float}
)
#: Arguments of the flag of effects.
SIDES = {"choices": ["rows", "columns", "both", "none"]}


class Parameter(NamedTuple):
    """What a field says of itself."""

    name: str
    default: Any
    about: str  # a sentence, without its first capital and its full stop
    check: Callable[[str, Any], Any]
    flag: Flag | None
    kind: str  # as documentation has it

    @property
    def sentence(self) -> str:
        """The sentence, with the default where it says none itself."""
        text = self.about[0].upper() + self.about[1:]
        plain = self.default is None or self.default == AUTO or "default" in self.about
        return f"{text}." if plain else f"{text}. Default: {self.default!r}."


def parameter(
    default: Any,
    about: str,
    check: Callable[[str, Any], Any] = lambda name, value: value,
    *,
    flag: Flag | None = None,
    kind: str = "",
    positional: bool = False,
) -> Any:
    """Return a field of a value: its default, its sentence, its check, and its flag.

    `check(name, value)` returns the value, or refuses it; the default is not checked. `kind` is
    the type as documentation has it, where that is not the annotation.
    """
    said = {"about": about, "check": check, "flag": flag, "kind": kind}
    return dataclasses.field(default=default, metadata=said, kw_only=not positional)


def parameters(kind: type[Value]) -> dict[str, Parameter]:
    """Return what the fields of a class of values say, by name."""
    return {
        f.name: Parameter(
            f.name, f.default, f.metadata["about"], f.metadata["check"], f.metadata["flag"],
            f.metadata["kind"] or str(f.type),
        )
        for f in dataclasses.fields(kind)
    }  # fmt: skip


def value_class(kind: type) -> type:
    """Make a class of values of a class with fields; its docstring lists them at {parameters}."""
    kind = dataclass(frozen=True, eq=False, repr=False)(kind)
    kind.__init__ = _named(kind.__init__)
    if kind.__doc__:
        doc = inspect.cleandoc(kind.__doc__).replace("{batch}", f"{BATCH:,}")
        kind.__doc__ = doc.replace("{parameters}", _listed(kind))
    return kind


def _named(make: Callable) -> Callable:
    """Return the constructor of a value, which refuses fields that the value lacks."""

    @functools.wraps(make)
    def init(self, *args, **given):
        known = parameters(type(self))
        for name in given:
            if name not in known:
                has = f"{', '.join(known) or 'no field'}{did_you_mean(name, known)}"
                raise InputError(f"{type(self).__name__} has no {name!r}; it has {has}")
        if len(args) > ("rank" in known):
            raise InputError(
                f"{type(self).__name__} is given {len(args)} values without a name; name all "
                f"{'but the rank' if 'rank' in known else 'of them'}"
            )
        make(self, *args, **given)

    return init


def _listed(kind) -> str:
    """Return the section of the parameters, as numpydoc has it."""
    fill = functools.partial(
        textwrap.fill, width=92, initial_indent=" " * 4, subsequent_indent=" " * 4,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip
    lines = ["Parameters", "----------"]
    for name, known in parameters(kind).items():
        lines += [f"{name} : {known.kind}", fill(known.sentence)]
    return "\n".join(lines)


# ---- checks of fields ------------------------------------------------------------------------


def a_positive(what: str) -> Callable[[str, Any], float]:
    """Return a check of one positive number; `what` ends "give a positive"."""
    return lambda name, value: checks.positive(name, value, what)


def a_whole(least: int, most: int | None = None) -> Callable[[str, Any], int]:
    """Return a check of a whole number between bounds."""
    return lambda name, value: checks.whole(name, value, least, most)


def a_choice(*choices: Any) -> Callable[[str, Any], Any]:
    """Return a check of a choice."""
    return lambda name, value: checks.one_of(name, value, choices)


def _rank(name: str, value: Any) -> int | str:
    """Return a number of factors, or "auto"."""
    try:
        return AUTO if isinstance(value, str) and value == AUTO else checks.whole(name, value)
    except InputError:
        raise InputError(
            f"{name} is {value!r}; give a whole number of factors, at least 1, or 'auto'"
        ) from None


def pair(name: str, value: Any, wanted: str) -> tuple[float, float]:
    """Return two numbers, or refuse what is none; `wanted` says which two."""
    try:
        first, second = map(float, value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; give {wanted}") from None
    return first, second


def gamma_pair(name: str, value: Any) -> list[float]:
    """Return shape and rate of a Gamma prior, checked."""
    shape, rate = pair(name, value, "shape and rate")
    if not (0 < shape < math.inf and 0 < rate < math.inf):
        raise InputError(f"{name} is {value!r}; give a positive shape and rate")
    return [shape, rate]


# ---- values ---------------------------------------------------------------------------------


class Value:
    """A frozen record of parameters."""

    #: What `bmfjax.fit`, the command line and files call it.
    name: ClassVar[str]

    def __post_init__(self):
        for name, known in parameters(type(self)).items():
            value = getattr(self, name)
            if text_of(_frozen(value)) != text_of(known.default):
                value = _checked(known, value)
            object.__setattr__(self, name, _frozen(value))
        self._check()

    def _check(self) -> None:
        """Refuse fields that do not go together."""

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, by name."""
        known = parameters(type(self))
        return {
            name: value
            for name, value in self.fields().items()
            if text_of(value) != text_of(known[name].default)
        }

    @property
    def called(self) -> str:
        """The call that makes it; `...` stands for arrays, and what else has no text."""
        given = {name: _as_called(value) for name, value in self.given().items()}
        first = [given.pop("rank")] if "rank" in given else []
        parts = first + [f"{name}={text}" for name, text in given.items()]
        return f"bmfjax.{type(self).__name__}({', '.join(parts)})"

    def fields(self) -> dict[str, Any]:
        """Return all fields by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @functools.cached_property
    def _key(self) -> str:
        return text_of(self.fields())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key == other._key

    def __hash__(self) -> int:
        return hash((type(self), self._key))

    def __repr__(self) -> str:
        said = self.given()
        first = [repr(said.pop("rank"))] if "rank" in said else []
        parts = first + [f"{name}={_shown(value)}" for name, value in said.items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of the documentation, without its full stop."""
        return (cls.__doc__ or cls.__name__).split("\n", 1)[0].removesuffix(".")


@value_class
class Sampler(Value):
    """A way to sample a model."""


class Kernel(NamedTuple):
    """What samples a model for a sampler, and what it reports."""

    #: Module and name of ``make(what it samples, **options)``.
    place: str
    trace: tuple[str, ...]  # scalars reported at every step
    options: tuple[str, ...] = ()  # those of the sampler that it has
    exact: bool = True  # whether its draws are from the posterior itself

    @property
    def make(self) -> Callable[..., Any]:
        """What is at the place: imported now, as values do without JAX."""
        module, name = self.place.split(":")
        module = importlib.import_module(module)
        return functools.reduce(getattr, name.split("."), module)


@value_class
class Model(Value):
    """A model; what `bmfjax.fit` fits."""

    #: What samples it for each of its samplers; the first is the default.
    samplers: ClassVar[Mapping[type[Sampler], Kernel]]
    #: The number of factors where none is given; None: it must be.
    default_rank: ClassVar[int | None] = None

    rank: int | str | None = parameter(
        None,
        'number of factors, "auto" where it is to be found, or None where `bmfjax.fit` is given it',
        _rank,
        kind='int, "auto" or None',
        positional=True,
    )
    max_rank: int | None = parameter(
        None,
        'most factors that there may be, where the rank is "auto"; None where `bmfjax.fit` is '
        "given it, or leaves it to the data",
        a_whole(1),
        kind="int, optional",
    )

    def _check(self):
        if self.max_rank is not None and self.rank not in (None, AUTO):
            raise InputError(
                f"max_rank is {self.max_rank}, and rank is {self.rank}; max_rank is for rank='auto'"
            )

    def priors(self) -> dict[str, Any]:
        """Return all fields but the number of factors."""
        return {n: v for n, v in self.fields().items() if n not in OF_RANK}

    def given_priors(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, but the number of factors."""
        return {n: v for n, v in self.given().items() if n not in OF_RANK}


#: Fields of every model.
OF_RANK = tuple(parameters(Model))


def prior_names(kind: type[Model]) -> list[str]:
    """Return the fields of a class of models that `--prior-value` may name."""
    return [n for n in parameters(kind) if n not in OF_RANK]


def _checked(known: Parameter, value: Any) -> Any:
    """Return the value of a field, or refuse it: what may be "auto" offers this, too."""
    try:
        return known.check(known.name, value)
    except InputError as error:
        if known.default != AUTO:
            raise
        raise InputError(f"{error}, or {AUTO!r}") from None


# ---- values by what is in them ---------------------------------------------------------------


def _frozen(value: Any) -> Any:
    """Return a value that nobody changes from outside: tuples of lists, arrays of their own."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(map(_frozen, value))
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.setflags(write=False)
    return dict(value) if isinstance(value, Mapping) else value


def text_of(value: Any) -> str:
    """Return what a value is as text: the same for equal values."""
    if hasattr(value, "arg_constraints"):
        return settings_text(value)
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{n!r}: {text_of(v)}' for n, v in sorted(value.items()))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(text_of, value))})"
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return f"{array.shape}, {digest({'': array})}"
    return f"{type(value).__name__} {id(value)}"


def _shown(value: Any) -> str:
    """Return a value as it is printed: a distribution by its parameters, an array by its shape."""
    if hasattr(value, "arg_constraints"):
        return settings_text(value)
    return f"<array of shape {np.shape(value)}>" if hasattr(value, "__array__") else repr(value)


def _as_called(value: Any) -> str:
    """Return a value as it is written in a call, where it can be."""
    if hasattr(value, "arg_constraints"):
        return settings_text(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{n!r}: {_as_called(v)}' for n, v in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_as_called, value))}]"
    is_plain = value is None or isinstance(value, bool | int | float | str | np.generic)
    return repr(getattr(value, "item", lambda: value)()) if is_plain else "..."


def settings_text(value: Any) -> str:
    """Return a prior as text: a distribution by class and parameters, an array by its digest."""
    if not hasattr(value, "arg_constraints"):
        return digest({"prior": np.asarray(value, float)}) if np.ndim(value) else repr(value)
    inner = getattr(value, "base_dist", None)
    names = [*sorted(value.arg_constraints), *(["low", "high"] if inner is not None else [])]
    texts = [f"{n}={np.asarray(getattr(value, n)).tolist()}" for n in names if hasattr(value, n)]
    if inner is not None:
        texts.insert(0, settings_text(inner))
    return f"{type(value).__name__}({', '.join(texts)})"


def digest(position: Mapping) -> str:
    """Return a short fingerprint of a start that was given."""
    found = hashlib.sha256()
    for name in sorted(position):
        found.update(np.ascontiguousarray(position[name]).tobytes())
    return f"given, {found.hexdigest()[:16]}"
