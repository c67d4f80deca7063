"""How XLA compiles the programs of the package, and where compiled ones are kept."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from bmfjax.errors import InputError
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.kept_programs import keep_programs_in
from bmfjax.kernels.numerics.programs import jit_equal

LEVEL, PASSES = "xla_backend_optimization_level", "xla_disable_hlo_passes"
#: On a CPU half of the compilation are LLVM's later passes, which neither what runs once nor the
#: loops of the chains give back. And XLA divides loops among threads, small ones too, which costs
#: more than it gains where the cores are busy with other chains.
OPTIONS = {LEVEL: 1, PASSES: "cpu-parallel-task-assigner"}
#: On a GPU, to choose between variants of a program by their time takes longer than what runs for
#: seconds gives back; and products are those of a library, which need not be compiled.
QUICK = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
#: What lets JAX's own kernel draw random words on a GPU.
RANDOM_KERNEL = "jax_threefry_gpu_kernel_lowering"
#: The first jaxlib known to take a list as a compiler option.
LISTS = (0, 10)
#: Set to 0, it switches `use_compilation_cache` off.
SWITCH = "BMFJAX_COMPILATION_CACHE"
#: Bytes of compiled programs that are kept, the most recently used ones.
MAX_CACHE = 256 * 2**20
#: Seconds after which whoever waits for XLA is asked whether to wait on.
ASKED_SECONDS = 0.2

#: The lowest priority of a thread.
LOWEST_PRIORITY = 19

_compiling: set[threading.Thread] = set()


def use_compilation_cache(path: str | os.PathLike | None = None) -> Path | None:
    """Keep compiled programs on disk, so that later processes need not compile them again.

    The command line does so by default. A cache that JAX has been set to use, by
    ``JAX_COMPILATION_CACHE_DIR`` or ``jax.config``, stays as it is. On Linux samplers are kept
    beside it by what they do, which need not be traced again, and how long runs took. Up to 256 MiB
    of either kind are kept, without the programs that were used longest ago.

    Parameters
    ----------
    path : path, optional
        Folder. Programs are run from it, so it must be the user's own, no link, and not writable by
        others; so must be the default one.
        Default: ``bmfjax`` in the user's cache folder (``XDG_CACHE_HOME`` or ``~/.cache``;
        ``~/Library/Caches`` on a Mac, ``LOCALAPPDATA`` on Windows), and in it one folder for each
        kind of processor.

    Returns
    -------
    Path or None
        The folder in use. None without a cache: where the default folder cannot be written to, or
        others can, of which a warning tells; or the environment variable
        ``BMFJAX_COMPILATION_CACHE`` is 0.

    Raises
    ------
    InputError
        For a `path` that cannot be written to, or that others can write to.

    Examples
    --------
    >>> import bmfjax
    >>> folder = bmfjax.use_compilation_cache()
    """
    if os.environ.get(SWITCH) == "0":
        return None
    if (chosen := jax.config.jax_compilation_cache_dir) is not None:
        return Path(chosen)
    home = _cache_home()
    if path is None and home is None:
        return None
    parent = home / "bmfjax" if path is None else Path(path)
    folder = parent / f"xla-{_processor()}"
    if not _can_write(folder):
        if path is None:
            return None
        raise InputError(f"compiled programs cannot be kept in {path}; check its permissions")
    if fault := next(filter(None, map(_fault, (parent, folder))), None):
        if path is not None:
            raise InputError(f"compiled programs cannot be kept in {path}: {fault}")
        warnings.warn(f"compiled programs are not kept on disk: {fault}", stacklevel=2)
        return None
    jax.config.update("jax_compilation_cache_max_size", MAX_CACHE)
    # Small programs too: a fit has dozens, and to read one takes a tenth of compiling it.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Elsewhere the instructions that a processor has are not known, and a folder may be shared.
    keep_programs_in(folder if Path("/proc/cpuinfo").exists() else None)
    reset_cache()  # JAX looks once, at its first program
    return folder


def _cache_home() -> Path | None:
    """Return the folder in which this user's programs keep what can be made again, if known."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without a name, as in some containers
        home = None
    if sys.platform == "win32":
        given, below = os.environ.get("LOCALAPPDATA", ""), "AppData/Local"
    elif sys.platform == "darwin":
        given, below = "", "Library/Caches"
    else:
        given, below = os.environ.get("XDG_CACHE_HOME", ""), ".cache"
    if Path(given).is_absolute():
        return Path(given)
    return None if home is None else home / below


def _processor() -> str:
    """Return a digest of the processor: what is compiled for one may not run on another."""
    described = {platform.machine(), platform.processor()}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described.update(x for x in lines if x.startswith(("model name", "flags", "Features")))
    return hashlib.sha256("\n".join(sorted(described)).encode()).hexdigest()[:12]


def _can_write(folder: Path) -> bool:
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for made in (folder.parent, folder):
            made.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _fault(folder: Path) -> str:
    """Say who else could put programs into a folder, and the cure; nothing where nobody can."""
    if not hasattr(os, "geteuid"):  # Windows, whose folders of a user are the user's own
        return ""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"{folder} is a link, which may lead to a folder of others; put a folder there"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to another user; delete it, or give a folder of yours"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {folder}; delete it, or take that right away (chmod go-w)"
    return ""


def jit_once(f: Callable) -> Callable:
    """``jax.jit`` of what runs once a fit, the same for functions that are equal."""
    return jit_equal(f, compiler_options=once_options())


def once_options() -> dict | None:
    """Return compiler options of what runs once."""
    return _options(LEVEL)


def chain_options(is_short: bool = False) -> dict | None:
    """Return compiler options of chains, each of which has a core of its own.

    On a GPU those of a short run are compiled in less time.
    """
    return _options(LEVEL, PASSES, is_short=is_short)


def _options(*names, is_short: bool = True) -> dict | None:
    """Return our values of options, but for those that the user has set in XLA_FLAGS."""
    check_fork()
    flags, backend = os.environ.get("XLA_FLAGS", ""), jax.default_backend()
    if backend == "gpu" and is_short:
        return {n: value for n, value in QUICK.items() if n not in flags} or None
    if backend != "cpu":
        return None
    if jaxlib.version.__version_info__ < LISTS:
        names = [n for n in names if n != PASSES]
    return {n: OPTIONS[n] for n in names if n not in flags}


_quick = {"number": 0, "before": None}
_quick_lock = threading.Lock()


@contextlib.contextmanager
def quick_random(is_short: bool = True):
    """Let programs of short runs that are traced meanwhile draw random words by JAX's own kernel.

    On a GPU: the words are the same. Otherwise the instructions of each of dozens of draws become a
    part of several kernels, which takes half of their compilation. Other threads that trace
    programs meanwhile get it too.
    """
    if not is_short or jax.default_backend() != "gpu" or not hasattr(jax.config, RANDOM_KERNEL):
        yield
        return
    with _quick_lock:
        if _quick["number"] == 0:
            _quick["before"] = getattr(jax.config, RANDOM_KERNEL)
            jax.config.update(RANDOM_KERNEL, True)
        _quick["number"] += 1
    try:
        yield
    finally:
        with _quick_lock:
            _quick["number"] -= 1
            if _quick["number"] == 0:
                jax.config.update(RANDOM_KERNEL, _quick["before"])


class Compilation:
    """A compilation in a thread of its own: XLA cannot be interrupted, but need not be waited for.

    A process that ends waits for the thread, which would crash in an interpreter that takes itself
    apart; one that ends by ``os._exit`` need not (`is_compiling`).
    """

    def __init__(self, compile: Callable[[], Any]):
        self._compile = compile
        self._found: Future | None = self._begun()
        self._is_late = False  # whether somebody waited in vain

    @classmethod
    def over(cls, program: Any) -> Compilation:
        """Return the compilation of a program that is there."""
        made = cls.__new__(cls)
        made._compile, made._found, made._is_late = None, Future(), False
        made._found.set_result(program)
        return made

    def _begun(self) -> Future:
        found = Future()

        def work():
            try:
                made = self._compile()
                self._compile = None  # it holds what XLA has read
                found.set_result(made)
            except BaseException as error:
                found.set_exception(error)
            finally:
                _compiling.discard(thread)

        thread = threading.Thread(target=work, name="bmfjax compilation")
        _compiling.add(thread)
        thread.start()
        return found

    @property
    def is_over(self) -> bool:
        """Whether nobody has to wait for it."""
        return self._found is not None and self._found.done()

    def program(self, seconds: float | None = None, stops: Callable[[], bool] | None = None) -> Any:
        """Return what was compiled, or raise TimeoutError where it is not there in time.

        Nor is it waited for where it `stops`, which is asked often.
        """
        found = self._found
        # Memory may suffice by now. Whoever asked before has not heard of the failure.
        if found is None or (self._is_late and found.done() and found.exception() is not None):
            found = self._found = self._begun()
        end = time.monotonic() + (math.inf if seconds is None else seconds)
        while not found.done():
            left = end - time.monotonic()
            self._is_late = left <= 0.0 or (stops is not None and stops())
            if self._is_late:
                raise TimeoutError
            wait([found], min(left, ASKED_SECONDS))
        try:
            return found.result()
        except Exception:
            self._found = None  # whoever asks again begins again
            raise


def is_compiling() -> bool:
    """Tell whether XLA compiles in a thread."""
    return bool(_compiling)


def let_compilations_wait() -> None:
    """Let threads in which XLA still compiles take only what others leave of the machine.

    So do threads that they start from then on. For a process that is about to end: they stay so. On
    Linux, where threads have priorities; elsewhere nothing changes.
    """
    if sys.platform != "linux":
        return
    for number in [thread.native_id for thread in tuple(_compiling)]:
        # One may have ended meanwhile, and one not have begun.
        with contextlib.suppress(OSError, TypeError):
            os.setpriority(os.PRIO_PROCESS, number, LOWEST_PRIORITY)
