"""Compiled programs are kept where they should be, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from jax import monitoring
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import bmfjax
from bmfjax import InputError
from bmfjax.kernels.numerics import compiling

#: Told where a program is found on disk.
HIT = "/jax/compilation_cache/cache_hits"
SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture
def no_cache(monkeypatch):
    """JAX without a cache, for the length of a test."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def test_programs_are_kept_and_found_again(no_cache, tmp_path):
    """Found by an equal function: to clear all that JAX holds would cost the tests that follow."""
    jax.jit(lambda x: x + 1.0)(1.0)  # a program from before does not prevent it
    folder = bmfjax.use_compilation_cache(tmp_path)
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o077 == 0
    found = []
    monitoring.register_event_listener(count := lambda event, **_: found.append(event))
    try:
        jax.jit(lambda x: x * 3.0 - 1.0)(1.0)
        kept = set(folder.glob("*-cache"))
        assert kept and HIT not in found
        jax.jit(lambda x: x * 3.0 - 1.0)(1.0)
        assert set(folder.glob("*-cache")) == kept and HIT in found
    finally:
        monitoring.unregister_event_listener(count)


def test_a_cache_of_the_users_own_stays(no_cache, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    size = jax.config.jax_compilation_cache_max_size
    assert bmfjax.use_compilation_cache(tmp_path / "other") == tmp_path / "own"
    assert jax.config.jax_compilation_cache_max_size == size and not (tmp_path / "other").exists()


def test_it_can_be_switched_off(no_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("BMFJAX_COMPILATION_CACHE", "0")
    assert bmfjax.use_compilation_cache(tmp_path) is None
    assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_cannot_be_written_stops_nothing(no_cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert bmfjax.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None
    with pytest.raises(InputError, match="file; check its permissions"):
        bmfjax.use_compilation_cache(tmp_path / "file")


@pytest.mark.skipif(sys.platform != "linux", reason="the cache folder of a user elsewhere")
def test_the_command_line_keeps_programs_in_the_users_folder(tmp_path):
    given = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "BMFJAX_"))}
    code = "import bmfjax.cli, jax; bmfjax.cli.main(['datasets']); jax.jit(lambda x: x + 1.0)(1.0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=given | {"XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert list(Path(tmp_path, "bmfjax").glob("xla-*/*-cache"))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights of Unix")
@pytest.mark.parametrize("which", ["bmfjax", "inner"])
@pytest.mark.parametrize(
    "make, said",
    [
        (lambda folder: folder.chmod(0o770), "others may write to"),
        (lambda folder: folder.chmod(0o702), "others may write to"),
        (lambda folder: folder.rename(folder.with_name("own")), "is a link"),
    ],
    ids=["group", "others", "link"],
)
def test_a_folder_of_others_is_not_used(no_cache, monkeypatch, tmp_path, which, make, said):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    old = os.umask(0o002)  # as many systems have it: what is made is the user's own all the same
    try:
        inner = bmfjax.use_compilation_cache()
    finally:
        os.umask(old)
    jax.config.update("jax_compilation_cache_dir", None)
    folder = inner if which == "inner" else inner.parent
    make(folder)
    if not folder.exists():
        folder.symlink_to("own")
    with pytest.warns(UserWarning, match=f"not kept on disk: .*{said}"):
        assert bmfjax.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None
    with pytest.raises(bmfjax.InputError, match=said):
        bmfjax.use_compilation_cache(tmp_path / "bmfjax")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights of Unix")
def test_a_folder_of_another_user_is_not_used(no_cache, monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    bmfjax.use_compilation_cache(folder)
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(bmfjax.InputError, match="belongs to another user"):
        bmfjax.use_compilation_cache(folder)


def test_what_is_short_is_compiled_quickly_on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("XLA_FLAGS", "")
    quick = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
    assert compiling.once_options() == compiling.chain_options(is_short=True) == quick
    assert compiling.chain_options() is None
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=3")
    assert compiling.once_options() == {"xla_gpu_enable_triton_gemm": False}
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert compiling.chain_options(is_short=True) is None


def test_short_runs_are_traced_with_the_random_kernel_of_a_gpu(monkeypatch):
    """Also where several threads trace at once: the setting stays until the last has ended."""
    is_set = lambda: getattr(jax.config, compiling.RANDOM_KERNEL)  # noqa: E731
    before = is_set()
    with compiling.quick_random():
        assert is_set() == before  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with compiling.quick_random(is_short=False):
        assert is_set() == before
    one, two = compiling.quick_random(), compiling.quick_random()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert is_set() is True
    two.__exit__(None, None, None)
    assert is_set() == before
    with pytest.raises(KeyError), compiling.quick_random():
        raise KeyError
    assert is_set() == before
