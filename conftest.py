"""How tests and the examples of docstrings run: compiled quickly and once, and counted."""

import codecs
import contextlib
import ctypes
import functools
import gc
import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import types

# The same programs are compiled by many tests, in workers and in processes that tests start:
# compile each once. All of them inherit the directory, which is of this run alone, so that a test
# never sees what an earlier version of the code compiled. Set before JAX is imported.
_OWN_CACHE = "BMFJAX_TEST_CACHE" not in os.environ
if _OWN_CACHE:
    os.environ["BMFJAX_TEST_CACHE"] = tempfile.mkdtemp(prefix="bmfjax-tests-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["BMFJAX_TEST_CACHE"]
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
# Where in the source an operation stands is written into each program; nothing here reads it.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# JAX writes an entry in place, so one process may read what another has half written. It then
# compiles for itself and warns; here, and in pytest's filters, where warnings are errors, that is
# no failure.
_QUIET = "ignore:Error reading persistent compilation cache entry"
os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), _QUIET]))

# Most of the time went into compiling large programs that are then run for a moment. These flags
# compile in a quarter of the time what runs up to four times slower; XLA_FLAGS= (empty, or others)
# in the environment keeps what users have. An unknown flag aborts the process, and XLA drops flags
# from release to release: ask a process of its own.
_QUICK_COMPILER = (
    "--xla_backend_optimization_level=0",
    "--xla_disable_hlo_passes=simplification,cpu-parallel-task-assigner,"
    "simplify-while-loops,while-loop-invariant-code-motion",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
)


def _asked(number):
    """A process that ends well where the first so many flags are known, and these flags."""
    flags = " ".join(_QUICK_COMPILER[:number])
    probe = [sys.executable, "-c", "import jax; jax.devices()"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(probe, env={**os.environ, "XLA_FLAGS": flags}, **quiet), flags


_ASKED = None if "XLA_FLAGS" in os.environ else _asked(len(_QUICK_COMPILER))


def _link_installed_bytecode(prefix):
    """Let the bytecode of a run begin with what was installed compiled: thousands of files."""
    for installed in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}:
        for folder, inside, files in os.walk(installed):
            # Tests of packages are not imported, nor those of another environment.
            inside[:] = [n for n in inside if n not in ("site-packages", "test", "tests")]
            if os.path.basename(folder) != "__pycache__":
                continue
            here = prefix + os.path.dirname(folder)
            os.makedirs(here, exist_ok=True)
            for name in files:
                if name.endswith(f"{sys.implementation.cache_tag}.pyc"):
                    with contextlib.suppress(OSError):  # of an earlier lane, or without links
                        os.symlink(os.path.join(folder, name), os.path.join(here, name))


# Where the environment forbids bytecode, every worker compiles all tests anew, and every process
# that a test starts the whole package. None is written beside the source then: it is of this run.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(os.environ["BMFJAX_TEST_CACHE"], "bytecode")
    _link_installed_bytecode(os.environ["PYTHONPYCACHEPREFIX"])
    sys.pycache_prefix, sys.dont_write_bytecode = os.environ["PYTHONPYCACHEPREFIX"], False

# What tests write need not outlive the machine, and each of thousands of files would wait for the
# disk. Processes that tests start do wait.
os.fsync = lambda file: None

# Modules and what is collected stay: to look through them again and again takes a sixth of the
# time that they take.
gc.disable()

# Workers wait for the process that starts them: it imports no more than it needs, and not what
# extends Hypothesis for Trio, which comes with Selenium.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
import hypothesis  # noqa: E402
import pytest  # noqa: E402

# The same examples on every machine, however busy it is.
hypothesis.settings.register_profile(
    "repeatable",
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

if _ASKED is not None:
    others = map(_asked, reversed(range(1, len(_QUICK_COMPILER))))
    known = (flags for probe, flags in itertools.chain([_ASKED], others) if probe.wait() == 0)
    os.environ["XLA_FLAGS"] = next(known, "")

#: Programs that this process, and its workers, asked for, and found compiled in the run's cache.
_PROGRAMS = {"asked": 0, "found": 0}


def _count_program(event, _duration, **_):
    _PROGRAMS["asked"] += event.endswith("backend_compile_duration")


def _count_found(event, **_):
    _PROGRAMS["found"] += event.endswith("compilation_cache/cache_hits")


_NOTHING = types.SimpleNamespace(params={})


def _is_binary(value):
    return len(value) > 20 and (b"\0" in value or not value.isascii())


def _as_id(value):
    """Return the name that pytest gives to bytes."""
    return codecs.escape_encode(value)[0].decode("ascii")


def pytest_collection_modifyitems(items):
    from tests.shared_fits import LONG_EXAMPLES, LONG_MODULES

    for item in items:
        if item.name in LONG_EXAMPLES or item.name.startswith(LONG_MODULES):
            item.add_marker(pytest.mark.long)
        for value in getattr(item, "callspec", _NOTHING).params.values():
            # Files in memory hold the time at which they were made; workers then tell of tests that
            # differ, and only where a second passed between them.
            if isinstance(value, bytes) and _is_binary(value) and _as_id(value) in item.name:
                raise pytest.UsageError(f"{item.nodeid}: give bytes a name by ids")


def pytest_collection_finish(session):
    from jax import monitoring

    from tests.shared_fits import with_shared_fits

    monitoring.register_event_duration_secs_listener(_count_program)
    monitoring.register_event_listener(_count_found)
    for item in session.items:
        if hasattr(item, "dtest"):
            item.runtest = functools.partial(with_shared_fits, item.runtest)
    # Workers come to hold gigabytes of compiled programs, of which little is ever garbage: to look
    # through all of it again and again took a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    gc.enable()


#: Seconds that no fit takes.
_NO_LIMIT = 1e6


@pytest.fixture(scope="session", autouse=True)
def no_limit_of_time():
    """No fit ends, on a machine that is slow, by a limit of time that its test does not set.

    Otherwise it is the fit that users have; tests of their limit ask for `limit_of_users`.
    """
    from bmfjax.families import base

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "MAX_TIME", _NO_LIMIT)
        yield


#: GiB that a worker may hold before it lets go of compiled programs, and by how much more again.
_MOST_MEMORY = {"now": 3.5, "more": 1.0}


def _memory():
    """GiB that this process holds; zero where no file tells."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**30
    except OSError:
        return 0.0


def pytest_runtest_logfinish():
    """Let go of compiled programs where they hold much memory: JAX keeps all of them.

    Those that later tests ask for again are traced, and found in the cache of the run.
    """
    if _memory() > _MOST_MEMORY["now"]:
        import jax

        from bmfjax.kernels.numerics.programs import forget_programs

        forget_programs()
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # of other C libraries
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        _MOST_MEMORY["now"] = max(_MOST_MEMORY["now"], _memory() + _MOST_MEMORY["more"])


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["programs"] = _PROGRAMS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    for name, count in getattr(node, "workeroutput", {}).get("programs", {}).items():
        _PROGRAMS[name] += count


def pytest_terminal_summary(terminalreporter):
    asked, found = _PROGRAMS["asked"], _PROGRAMS["found"]
    terminalreporter.write_line(f"{asked - found} programs compiled, {found} compiled before")


def pytest_unconfigure(config):
    if _OWN_CACHE:
        shutil.rmtree(os.environ["BMFJAX_TEST_CACHE"], ignore_errors=True)
