"""Fixtures that the tests of several packages share."""

import tempfile

import jax
import pytest
from jax import monitoring

# The same small programs are compiled by many tests: compile each once. A directory of this
# run alone, so that a test never sees what an earlier version of the code compiled.
_CACHE = tempfile.TemporaryDirectory(prefix="bmfjax-tests-")
jax.config.update("jax_compilation_cache_dir", _CACHE.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

_COUNTS = {"listening": False, "compilations": 0}


def _listen(event, duration, **_):
    if _COUNTS["listening"] and event.endswith("backend_compile_duration"):
        _COUNTS["compilations"] += 1


monitoring.register_event_duration_secs_listener(_listen)


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
def x64():
    """Double precision for the length of a test."""
    enable = getattr(jax, "enable_x64", None)
    if enable is None:  # before JAX 0.8
        from jax.experimental import enable_x64 as enable
    with enable(True):
        yield
