"""Compiled programs on disk by what they do, which a later process neither traces nor compiles.

JAX keeps programs by their text. To write the text of a sampler takes seconds, of which half are in
Python, and it is looked up only then. Here a program is known by the functions and the values of
which it is made (`bmfjax.kernels.numerics.programs.value_of`), by the form of its arguments, and by
the versions of JAX, NumPyro and SciPy, and of this package, of which every line counts.

Programs are kept where `bmfjax.use_compilation_cache` has chosen the folder, one for each kind of
processor, which is the user's own: they are run from there. A file that is not, or that others may
write to, is not read. What cannot be read, or written, is compiled as if it were not there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import stat
import tempfile
import threading
import types
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import jaxlib.version
import numpy as np
from jax.experimental import serialize_executable
from jax.tree_util import PyTreeDef

from bmfjax.errors import version_of
from bmfjax.kernels.numerics.programs import with_settings

#: Bytes of programs that are kept, the most recently used ones.
MOST_BYTES = 256 * 2**20
#: Environment variables on which compiled programs depend.
_VARIABLES = ("XLA_FLAGS", "JAX_ENABLE_X64", "JAX_PLATFORMS")
_SUFFIX = ".program"
#: Bytes of a file before what it holds.
_DIGEST = hashlib.sha256().digest_size

_read_by_jax = threading.local()
_place: dict[str, Path | None] = {"folder": None}


def keep_programs_in(folder: Path | None) -> None:
    """Keep programs in a folder from now on, which must be the user's own; None: nowhere."""
    if folder is not None:
        _source()  # now, while files are those that were imported
    _place["folder"] = folder


def kept_folder() -> Path | None:
    """Return the folder in which programs are kept; None where they are not."""
    folder = _place["folder"]
    # Whoever gives JAX another one, or none, has ours no longer.
    return folder if jax.config.jax_compilation_cache_dir == str(folder) else None


def file_of(key: Hashable) -> Path | None:
    """Return where the program of a key is kept; None where it cannot be.

    Those of CPUs are, of which the folder tells the kind. A key has a name where it holds nothing
    that another process cannot know, such as a function that a user wrote.
    """
    folder = kept_folder()
    if folder is None or jax.default_backend() != "cpu":
        return None
    try:
        named = _named((with_settings(key), _here()))
    except _NamelessError:
        return None
    return folder / (hashlib.sha256(named.encode()).hexdigest()[:32] + _SUFFIX)


def read_program(file: Path | None) -> Any:
    """Return the program that is kept in a file, and what is kept with it; None where none is."""
    if file is None:
        return None
    with contextlib.suppress(Exception):  # of a file that is damaged
        if not _is_own(file):
            return None
        held = file.read_bytes()
        digest, held = held[:_DIGEST], held[_DIGEST:]
        if hashlib.sha256(held).digest() == digest:
            program, more = pickle.loads(held)
            found = program and serialize_executable.deserialize_and_load(*program)
            os.utime(file)
            return found, more
    return None


def _is_own(file: Path) -> bool:
    """Tell whether a file is this user's, and nobody else may write to it."""
    about = file.lstat()
    if not stat.S_ISREG(about.st_mode):
        return False
    if not hasattr(os, "geteuid"):  # Windows, whose folders of a user are the user's own
        return True
    return about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def compiled_and_kept(file: Path | None, compile: Callable[[], jax.stages.Compiled]):
    """Return what was compiled, and keep it in a file.

    A program that JAX has read from its own cache would be written without parts of it.
    """
    if file is None:
        return compile()
    _listen()
    before = getattr(_read_by_jax, "number", 0)
    program = compile()
    if getattr(_read_by_jax, "number", 0) == before:
        write_program(file, program)
    return program


@functools.cache
def _listen() -> None:
    """Count the programs that JAX reads from its own cache, of each thread."""

    def count(event, **_):
        if event.endswith("/cache_hits"):
            _read_by_jax.number = getattr(_read_by_jax, "number", 0) + 1

    jax.monitoring.register_event_listener(count)


def write_program(file: Path | None, program: jax.stages.Compiled | None, more: Any = None) -> None:
    """Keep a program, if there is one, and what can be pickled in a file."""
    if file is None:
        return
    with contextlib.suppress(Exception):  # not all can be written, nor is there always room
        held = pickle.dumps((program and serialize_executable.serialize(program), more))
        _make_room(file.parent, len(held))
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as new:
            new.write(hashlib.sha256(held).digest() + held)
        Path(new.name).replace(file)


def _make_room(folder: Path, size: int) -> None:
    """Delete programs that were used longest ago where there are too many."""
    files = [(f.stat().st_mtime, f.stat().st_size, f) for f in folder.glob(f"*{_SUFFIX}")]
    total = size + sum(of for _, of, _ in files)
    for _, own, file in sorted(files):
        if total <= MOST_BYTES:
            break
        file.unlink(missing_ok=True)
        total -= own


def _here() -> tuple:
    """Return what a program depends on beside its key."""
    devices = tuple(map(str, jax.devices()))
    return _source(), _versions(), devices, tuple(os.environ.get(name) for name in _VARIABLES)


@functools.cache
def _versions() -> tuple[str, ...]:
    """Return the versions of all packages whose functions programs are made of."""
    own = jax.__version__, jaxlib.version.__version__, np.__version__
    return *own, *map(version_of, ("numpyro", "scipy"))


@functools.cache
def _source() -> str:
    """Return a digest of all that this package is made of, as it is when this is first asked."""
    home, found = Path(__file__).parents[2], hashlib.sha256()
    for file in sorted(home.rglob("*.py")):
        found.update(str(file.relative_to(home)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


class _NamelessError(Exception):
    """What only this process knows is in a key."""


def _named(value: Any) -> str:
    """Write a key as a text that is the same in every process, or raise."""
    if isinstance(value, tuple):
        return f"({','.join(map(_named, value))})"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, np.dtype) or isinstance(getattr(value, "type", None), type):  # of keys
        return f"dtype:{value}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.CodeType):
        # Its text is in the digest of the source, but two may stand in one line. What it encloses
        # is named beside it.
        own = value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
        counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount
        inside = _named((*own, *counts, value.co_flags, value.co_consts))
        return f"{value.co_filename}:{value.co_firstlineno}:{value.co_qualname}:{inside}"
    if isinstance(value, frozenset):  # of constants
        return f"{{{','.join(sorted(map(_named, value)))}}}"
    if value is Ellipsis:
        return "..."
    if isinstance(value, PyTreeDef | jax.sharding.Sharding):
        return f"{type(value).__name__}:{value}"
    raise _NamelessError
