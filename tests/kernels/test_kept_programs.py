"""Programs of samplers on disk: a later process runs them without tracing or compiling."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from bmfjax.errors import version_of
from bmfjax.families import ask
from bmfjax.kernels.base import init_from
from bmfjax.kernels.ladders import equalised_ladder, geometric_ladder
from bmfjax.kernels.numerics import kept_programs
from bmfjax.kernels.numerics.kept_programs import (
    file_of,
    keep_programs_in,
    read_program,
    write_program,
)
from bmfjax.kernels.numerics.programs import forget_programs, form_of, value_of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "kept_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def no_cache():
    """JAX without its own cache, from which nothing is kept."""
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", before)
    reset_cache()


def run_of(seed):
    """Return the chains of a small model at their start, as a new process would."""
    forget_programs()
    init = {"usage": np.full((6, 1), 0.5), "basis": np.full((4, 1), 0.5)}
    values, lengths = np.kron(np.eye(2), np.ones((3, 2))), {"num_warmup": 3, "num_samples": 9}
    problem = ask(values, 1, model="relaxed", num_chains=2, **lengths, seed=seed, init=init)
    return problem.chains().run(problem)


def drawn(run):
    return {name: np.array(of) for name, of in (run.draws() | run.trace()).items()}


def drawn_so_far(run):
    """Return copies of what was recorded, which a run goes on to write to."""
    return jax.tree.map(np.array, run.recorded_between(0, run.steps_done))


def draws_of(seed):
    run = run_of(seed)
    run.finish()
    return drawn(run)


def test_a_later_process_traces_and_compiles_nothing_and_has_the_same_draws(
    folder, no_cache, programs_asked
):
    run, donated, half = run_of(1), [], None
    while not run.is_complete:
        held = jax.tree.leaves(run._carries[0])
        run.advance(5)
        donated.append([leaf.is_deleted() for leaf in held])
        stopped = run.snapshot(), run.steps_done, drawn_so_far(run)
        half = stopped if run.steps_done == 5 else half
    first = drawn(run)
    files = {file: file.stat().st_size for file in folder.glob("*.program")}
    assert len(files) == 3 and programs_asked() > 2
    found = draws_of(1)
    assert programs_asked() <= 2  # that place the data, no chains
    assert {file: file.stat().st_size for file in folder.glob("*.program")} == files
    for name, of in first.items():
        np.testing.assert_array_equal(found[name], of)
    # It goes on from what the program stored that was compiled, and takes over the same arrays.
    again = run_of(1)
    held = jax.tree.leaves(again._carries[0])
    again.advance(5)
    assert [leaf.is_deleted() for leaf in held] == donated[0] and any(donated[0])
    again = run_of(1)
    again.restore(*half)
    again.finish()
    for name, of in drawn(again).items():
        np.testing.assert_array_equal(of, first[name])
    # Of a file that is damaged there is nothing to run.
    for file in files:
        held = bytearray(file.read_bytes())
        held[len(held) // 2] ^= 1
        file.write_bytes(held)
    assert all(read_program(file) is None for file in files)


KEY = (
    value_of(init_from(functools.partial(geometric_ladder, 0.5, 4))),
    form_of({"a": np.zeros(3)}),
)


def test_other_functions_forms_and_sources_have_other_files(folder, monkeypatch):
    assert file_of(KEY) == file_of(KEY) and file_of(KEY).parent == folder
    different = [
        (value_of(init_from(functools.partial(geometric_ladder, 0.5, 5))), KEY[1]),
        (value_of(init_from(functools.partial(equalised_ladder, 0.5, 4))), KEY[1]),
        (KEY[0], form_of({"a": np.zeros(4)})),
        (KEY[0], form_of({"b": np.zeros(3)})),
        (KEY[0], form_of({"a": jnp.zeros(3)})),
    ]
    files = {file_of(key) for key in (KEY, *different)}
    assert len(files) == 6
    monkeypatch.setattr(kept_programs, "_source", lambda: "another version")
    assert not {file_of(key) for key in (KEY, *different)} & files
    # So have those of other packages, whose functions are in keys too.
    monkeypatch.undo()
    monkeypatch.setattr(kept_programs, "kept_folder", lambda: folder)
    before = file_of(KEY)
    for package in ("numpyro", "scipy"):
        kept_programs._versions.cache_clear()
        other = lambda name, p=package: "another" if name == p else version_of(name)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(kept_programs, "version_of", other)
            assert file_of(KEY) != before
    kept_programs._versions.cache_clear()
    assert file_of(KEY) == before
    # What a user wrote may be another function of the same name tomorrow.
    assert file_of(value_of(lambda x: x)) is None


def test_functions_in_one_line_have_names_of_their_own():
    """They differ in a constant, or in one of a function inside, or in what that one takes."""
    # fmt: off
    pairs = [
        (lambda x: x * 2.0, lambda x: x * 3.0), (lambda x: x * 0.0, lambda x: x * -0.0),
        (lambda x: x + 1, lambda x: x + True), (lambda x: x in {1, 2}, lambda x: x in {1, 3}),
        (lambda x: [lambda y: y * 2.0, x], lambda x: [lambda y: y * 3.0, x]),
        (lambda x, y: x, lambda x, *, y: x), (lambda x: x[..., 0], lambda x: x[None, 0]),
    ]
    # fmt: on
    for one, other in pairs:
        found = {kept_programs._named(f.__code__) for f in (one, other)}
        assert len(found) == 2 and kept_programs._named(one.__code__) in found


def test_the_source_is_read_as_soon_as_there_is_a_folder(tmp_path, monkeypatch):
    """Files that change while a process runs are not those that it has imported."""
    monkeypatch.setattr(kept_programs, "_place", {"folder": None})
    read = []
    monkeypatch.setattr(kept_programs, "_source", lambda: read.append("source"))
    keep_programs_in(None)
    assert not read
    keep_programs_in(tmp_path)
    assert read == ["source"]


def test_nothing_is_kept_without_a_folder_that_the_package_chose():
    assert file_of(KEY) is None
    write_program(None, None, "nowhere")
    assert read_program(None) is None


def test_a_key_has_one_name_in_all_processes():
    code = (
        "import functools, numpy as np;"
        "from bmfjax.kernels.base import init_from;"
        "from bmfjax.kernels.ladders import geometric_ladder;"
        "from bmfjax.kernels.numerics.kept_programs import _named;"
        "from bmfjax.kernels.numerics.programs import form_of, value_of;"
        "print(_named((value_of(init_from(functools.partial(geometric_ladder, 0.5, 4))),"
        "form_of({'a': np.zeros(3)}))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == kept_programs._named(KEY), done.stderr


def test_programs_that_were_used_last_stay(folder, monkeypatch):
    monkeypatch.setattr(kept_programs, "MOST_BYTES", 2_000)
    for number in range(3):
        file = folder / f"{number}.program"
        write_program(file, None, "x" * 900)
        os.utime(file, (number, number))
    assert [(folder / f"{n}.program").exists() for n in range(3)] == [False, True, True]
    assert read_program(folder / "1.program")[1] == "x" * 900
    os.chmod(folder / "2.program", 0o620)  # by which others could run what they like
    assert read_program(folder / "2.program") is None
    write_program(folder / "3.program", None, "x" * 900)  # the one that was just read stays
    assert [(folder / f"{n}.program").exists() for n in range(4)] == [False, True, False, True]
