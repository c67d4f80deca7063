"""How XLA compiles the programs of the package, and where compiled ones are kept."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jaxlib.version
from jax import lax
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jax.experimental.xla_metadata import set_xla_metadata

from bmfjax.errors import InputError

LEVEL, PASSES = "xla_backend_optimization_level", "xla_disable_hlo_passes"
#: On a CPU half of the compilation are LLVM's later passes, which neither what runs once nor the
#: loops of the chains give back. And XLA divides loops among threads, small ones too, which costs
#: more than it gains where the cores are busy with other chains.
OPTIONS = {LEVEL: 1, PASSES: "cpu-parallel-task-assigner"}
#: The first jaxlib known to take a list as a compiler option.
LISTS = (0, 10)
#: From where to where jaxlib was tried with calls that are one kernel: others may refuse them.
KERNELS = ((0, 10), (0, 11))
#: What tells the CPU compiler to make one kernel of a call, and not to undo the call before.
_ONE_KERNEL = {"inlineable": "false", "xla_cpu_small_call": "true"}
#: Set to 0, it switches `use_compilation_cache` off.
SWITCH = "BMFJAX_COMPILATION_CACHE"
#: Bytes of compiled programs that are kept, the most recently used ones.
MAX_CACHE = 256 * 2**20


def use_compilation_cache(path: str | os.PathLike | None = None) -> Path | None:
    """Keep compiled programs on disk, so that later processes need not compile them again.

    The command line does so by default. A cache that JAX has been told to use, by
    ``JAX_COMPILATION_CACHE_DIR`` or ``jax.config``, stays as it is. Up to 256 MiB are kept, without
    the programs that were used longest ago.

    Parameters
    ----------
    path : path, optional
        Folder, which nobody else should be able to write to, since programs are run from it.
        Default: ``bmfjax`` in the user's cache folder (``XDG_CACHE_HOME`` or ``~/.cache``;
        ``~/Library/Caches`` on a Mac, ``LOCALAPPDATA`` on Windows), and in it one folder for each
        kind of processor.

    Returns
    -------
    Path or None
        The folder in use. None without a cache: where the default folder cannot be written to, or
        the environment variable ``BMFJAX_COMPILATION_CACHE`` is 0.

    Raises
    ------
    InputError
        For a `path` that cannot be written to.

    Examples
    --------
    >>> import bmfjax
    >>> folder = bmfjax.use_compilation_cache()
    """
    if os.environ.get(SWITCH) == "0":
        return None
    if (told := jax.config.jax_compilation_cache_dir) is not None:
        return Path(told)
    home = _cache_home()
    if path is None and home is None:
        return None
    folder = (home / "bmfjax" if path is None else Path(path)) / f"xla-{_processor()}"
    if not _can_write(folder):
        if path is None:
            return None
        raise InputError(f"compiled programs cannot be kept in {path}; check its permissions")
    jax.config.update("jax_compilation_cache_max_size", MAX_CACHE)
    # Small programs too: a fit has dozens, and to read one takes a tenth of compiling it.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    reset_cache()  # JAX looks once, at its first program
    return folder


def _cache_home() -> Path | None:
    """Return the folder in which this user's programs keep what can be made again, if known."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without a name, as in some containers
        home = None
    if sys.platform == "win32":
        told, below = os.environ.get("LOCALAPPDATA", ""), "AppData/Local"
    elif sys.platform == "darwin":
        told, below = "", "Library/Caches"
    else:
        told, below = os.environ.get("XDG_CACHE_HOME", ""), ".cache"
    if Path(told).is_absolute():
        return Path(told)
    return None if home is None else home / below


def _processor() -> str:
    """Return a digest of the processor: what is compiled for one may not run on another."""
    told = {platform.machine(), platform.processor()}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        told.update(line for line in lines if line.startswith(("model name", "flags", "Features")))
    return hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()[:12]


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def one_kernel(f: Callable) -> Callable:
    """Let a CPU run ``f`` as one kernel, its loops included; other devices run it as ever.

    Otherwise a CPU starts a kernel for each operation of each pass of a loop, and gives some of
    them to other threads, which costs more than small operations themselves. ``f`` must return new
    arrays, use all that it is given, and have no sorting, no matrix products, and nothing of LAPACK
    or of other devices: XLA ends the process where it cannot compile it, so try all shapes.
    """
    if not KERNELS[0] <= jaxlib.version.__version_info__ < KERNELS[1]:
        return f
    called = jax.jit(f)

    def on_cpu(*given):
        return set_xla_metadata(called(*given), **_ONE_KERNEL)

    @functools.wraps(f)
    def run(*given):
        return lax.platform_dependent(*given, cpu=on_cpu, default=f)

    return run


def jit_once(f: Callable) -> Callable:
    """``jax.jit`` of what runs once."""
    return jax.jit(f, compiler_options=_options(LEVEL))


def chain_options() -> dict | None:
    """Return compiler options of chains, each of which has a core of its own."""
    return _options(LEVEL, PASSES)


def _options(*names) -> dict | None:
    """Return our values of options, but for those that the user has set in XLA_FLAGS."""
    if jax.default_backend() != "cpu":
        return None
    flags = os.environ.get("XLA_FLAGS", "")
    if jaxlib.version.__version_info__ < LISTS:
        names = [n for n in names if n != PASSES]
    return {n: OPTIONS[n] for n in names if n not in flags}
