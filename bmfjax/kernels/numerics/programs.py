"""Programs that are made once for functions that are equal, and used by all later fits.

JAX knows a function by its identity, and every fit makes its own: closures over a model, priors and
options. To trace and compile them again takes longer than most fits. Here two functions are equal
if their code is the same and all that they enclose is equal, down to numbers and the bytes of
arrays. That holds of functions of this package, of JAX and of NumPyro, whose globals are constants.
Any other function, such as one that a user wrote, is equal to itself alone.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import jax
import numpy as np

#: Programs that are kept, those used last.
MOST_PROGRAMS = 64
#: Where functions and classes are that are told apart by what they hold.
_PACKAGES = ("bmfjax", "jax", "jaxlib", "numpyro")
_KNOWN = tuple(
    str(Path(spec.origin).parent) + os.sep
    for spec in map(importlib.util.find_spec, _PACKAGES)
    if spec is not None
)
#: Settings of JAX on which a program depends, beside its arguments.
_SETTINGS = (
    "jax_debug_infs",
    "jax_debug_nans",
    "jax_default_device",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disable_jit",
    "jax_enable_checks",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_platforms",
    "jax_threefry_partitionable",
)

_made: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def made_once(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return what ``make()`` returned for an equal key under the same settings of JAX."""
    whole = with_settings(key)
    with _lock:
        if whole in _made:
            _made.move_to_end(whole)
            return _made[whole]
    found = make()
    with _lock:
        _made[whole] = found
        while len(_made) > MOST_PROGRAMS:
            _made.popitem(last=False)
    return found


def is_made(key: Hashable) -> bool:
    """Whether `made_once` has what an equal key made under the same settings of JAX."""
    return with_settings(key) in _made


def with_settings(key: Hashable) -> Hashable:
    """Return a key with the settings of JAX on which a program depends."""
    return key, tuple(getattr(jax.config, name) for name in _SETTINGS)


def jit_equal(f: Callable, **options) -> Callable:
    """``jax.jit(f, **options)``, the same for functions that are equal."""
    return made_once(("jit", value_of((f, options))), lambda: jax.jit(f, **options))


def forget_programs() -> None:
    """Forget all that `made_once` has kept."""
    with _lock:
        _made.clear()


def form_of(arguments: Any) -> Hashable:
    """Return shapes, types and places of arrays: what a program of them depends on."""
    leaves, structure = jax.tree.flatten(arguments)

    def form(leaf):
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            weak = getattr(leaf, "weak_type", False)
            return leaf.shape, leaf.dtype, weak, getattr(leaf, "sharding", None)
        return type(leaf), leaf

    return structure, tuple(map(form, leaves))


class _Itself:
    """An object that equals itself alone."""

    def __init__(self, of):
        self.of = of

    def __eq__(self, other):
        return isinstance(other, _Itself) and self.of is other.of

    def __hash__(self):
        return id(self.of)


def value_of(found: Any) -> Hashable:
    """Return what is equal for functions that do the same, and for equal values.

    Examples
    --------
    >>> from bmfjax.kernels.ladders import geometric_ladder
    >>> two = [functools.partial(geometric_ladder, 0.5, n) for n in (4, 4, 5)]
    >>> [value_of(one) == value_of(two[0]) for one in two]
    [True, True, False]
    """
    return _Walk().value(found)


class _Walk:
    """A walk through what a function encloses."""

    def __init__(self):
        self._places: dict[int, int] = {}
        self._seen: list[Any] = []  # which keeps their addresses

    def value(self, found: Any) -> Hashable:
        if found is None or isinstance(found, bool | int | str | bytes | np.dtype | type):
            return type(found), found
        if isinstance(found, float | complex):
            return type(found), repr(found)  # zeros have signs, and NaN equals NaN
        if isinstance(found, np.generic):
            return type(found), found.tobytes()
        if id(found) in self._places:
            return "seen", self._places[id(found)]
        self._places[id(found)] = len(self._places)
        self._seen.append(found)
        return self._parts(found)

    def _parts(self, found) -> Hashable:
        """Return the value of what has parts."""
        if isinstance(found, jax.Array | np.ndarray):
            return _of_array(found)
        if isinstance(found, types.FunctionType):
            return self._of_function(found)
        if isinstance(found, types.MethodType):
            return "method", self.value(found.__func__), self.value(found.__self__)
        if isinstance(found, tuple | list):
            return type(found), tuple(map(self.value, found))
        if isinstance(found, dict | types.MappingProxyType):
            pairs = ((self.value(name), self.value(v)) for name, v in found.items())
            return type(found), tuple(pairs)
        if isinstance(found, functools.partial):
            return "partial", *map(self.value, (found.func, found.args, found.keywords))
        kind = type(found)
        if kind.__module__.split(".")[0] in _PACKAGES and hasattr(found, "__wrapped__"):
            return kind, self.value(found.__wrapped__)  # such as of jax.jit
        if kind.__module__.split(".")[0] in _PACKAGES and hasattr(found, "__dict__"):
            return kind, self.value(vars(found))
        return _Itself(found)

    def _of_function(self, found) -> Hashable:
        code = found.__code__
        if not code.co_filename.startswith(_KNOWN):
            return _Itself(found)
        # The same lines of two files, with other globals, are equal code.
        own = code.co_filename, code
        if found.__closure__ is None and not found.__defaults__ and not found.__kwdefaults__:
            return own
        enclosed = tuple(cell.cell_contents for cell in found.__closure__ or ())
        return *own, *map(self.value, (enclosed, found.__defaults__, found.__kwdefaults__))


def _of_array(found) -> Hashable:
    if isinstance(found, jax.core.Tracer) or not getattr(found, "is_fully_addressable", True):
        return _Itself(found)
    if jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key):
        return str(found.dtype), _of_array(jax.random.key_data(found))
    held = np.asarray(found)
    if held.dtype.hasobject:
        return _Itself(found)
    digest = hashlib.sha256(np.ascontiguousarray(held)).digest()
    weak = getattr(found, "weak_type", False)
    return type(found).__name__, held.shape, str(held.dtype), weak, digest
