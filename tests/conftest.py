"""Fixtures that the tests of several packages share."""

import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

# The same programs are compiled by many tests, in workers and in processes that tests start:
# compile each once. All of them inherit the directory, which is of this run alone, so that a test
# never sees what an earlier version of the code compiled. Set before JAX is imported.
_OWN_CACHE = "BMFJAX_TEST_CACHE" not in os.environ
if _OWN_CACHE:
    os.environ["BMFJAX_TEST_CACHE"] = tempfile.mkdtemp(prefix="bmfjax-tests-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["BMFJAX_TEST_CACHE"]
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
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
    "--xla_cpu_use_fusion_emitters=false",
)


def _known(flags):
    probe = [sys.executable, "-c", "import jax; jax.devices()"]
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags)}
    return subprocess.run(probe, env=environment, capture_output=True).returncode == 0


if "XLA_FLAGS" not in os.environ:
    candidates = (_QUICK_COMPILER, _QUICK_COMPILER[:1])
    os.environ["XLA_FLAGS"] = " ".join(next(filter(_known, candidates), ()))

import jax  # noqa: E402
import pytest  # noqa: E402
from jax import monitoring  # noqa: E402

_COUNTS = {"listening": False, "compilations": 0}


def _listen(event, duration, **_):
    if _COUNTS["listening"] and event.endswith("backend_compile_duration"):
        _COUNTS["compilations"] += 1


monitoring.register_event_duration_secs_listener(_listen)


#: Files that take longest. Workers take files in order: were these last, one would wait for the
#: other. First what compiles programs that other files run too. `result` has docstrings' examples.
_LONGEST = (
    "test_site", "result", "test_rank", "test_apart", "test_relevance", "test_boolean_moves",
    "test_boolean_fit", "test_documents", "test_ormachine", "test_deep_ormachine", "test_cli",
    "test_pmf", "test_collapsed_ormachine", "test_effects", "test_pmf_fit", "test_whole_factors",
    "test_nmf", "test_fit", "test_calibration", "test_logistic_fit", "test_anchors",
    "test_to_arviz_of_fits", "test_boolean_start", "test_sklearn", "test_langevin", "apart",
    "test_from_numpyro", "test_smc", "test_pmf_relevance", "test_nmf_fit", "test_logistic_rank",
    "test_stopping", "test_logistic", "test_ranks", "test_iasg", "test_truncated_gibbs",
    "test_split_merge_summed", "pointwise", "test_factor_scales", "fits", "split_merge_summed",
    "ranks", "fitting", "test_interrupt", "test_report", "test_one_hot", "test_hamming_machine",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


_FITS = {}


def _shared_fit(fit, *args, **options):
    """Fit once what several examples fit: those of a shipped matrix, by its name."""
    key = (args, tuple(sorted(options.items())))
    try:
        hash(key)
    except TypeError:
        return fit(*args, **options)
    if key not in _FITS:
        _FITS[key] = fit(*args, **options)
    return _FITS[key]


def _with_shared_fits(run):
    import bmfjax

    with mock.patch.object(bmfjax, "fit", functools.partial(_shared_fit, bmfjax.fit)):
        run()


def pytest_collection_finish(session):
    # The examples of docstrings each begin with a fit, most of them with the same.
    for item in session.items:
        if hasattr(item, "dtest"):
            item.runtest = functools.partial(_with_shared_fits, item.runtest)
    # Workers come to hold gigabytes of compiled programs, of which little is ever garbage: to look
    # through all of it again and again took a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def pytest_unconfigure(config):
    if _OWN_CACHE:
        shutil.rmtree(os.environ["BMFJAX_TEST_CACHE"], ignore_errors=True)


@pytest.fixture
def compilations():
    """How many programs XLA has compiled since the last question: ``compilations()``."""
    _COUNTS.update(listening=True, compilations=0)

    def since_the_last_question():
        count, _COUNTS["compilations"] = _COUNTS["compilations"], 0
        return count

    yield since_the_last_question
    _COUNTS["listening"] = False


@pytest.fixture
def quick_page(monkeypatch):
    """Pages without their figures, which take seconds to draw."""
    from bmfjax.report import page

    monkeypatch.setattr(page, "render", lambda _: f"<html><head>{page.PAGE_MARK}</head></html>")


@pytest.fixture
def small_figures(monkeypatch):
    """Pages whose figures are drawn with few pixels; `tests/report` has them whole."""
    from bmfjax.report import style

    png = style.png
    monkeypatch.setattr(style, "png", lambda figure, dpi=None: png(figure, 20))


@pytest.fixture
def x64():
    """Double precision for the length of a test."""
    enable = getattr(jax, "enable_x64", None)
    if enable is None:  # before JAX 0.8
        from jax.experimental import enable_x64 as enable
    with enable(True):
        yield
