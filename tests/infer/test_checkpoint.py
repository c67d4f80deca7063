"""Checkpoints: the resumed run is the unbroken one, and what is damaged is refused."""

import functools
import os
import shutil
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.data import InputError
from bmfjax.infer import ChainRun, histogram, moments
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.kernels import Algorithm

IDENTITY = {"seed": 0, "rank": 3, "data": "abc"}

WALK = Algorithm(
    lambda key, position, data: {"x": random.normal(key, (2,)), "n": jnp.zeros((), jnp.int32)},
    lambda key, s, data, inverse_temperature=1.0: (
        {"x": 0.9 * s["x"] + random.normal(key, (2,)), "n": s["n"] + 1},
        None,
    ),
    lambda state, info: state,
)


def new(**options):
    settings = {
        "num_chains": 2,
        "num_warmup": 4,
        "num_samples": 30,
        "draws": {"x": 2},
        "trace": {"n": 1, "x": 5},
        "reducers": {"moments": moments("x"), "counts": histogram("x", low=-4, high=4)},
    }
    return ChainRun(WALK, random.key(0), None, **(settings | options))


@functools.cache
def unbroken():
    run = new()
    run.finish()
    return run


def assert_same(a, b):
    for of in (ChainRun.draws, ChainRun.trace, ChainRun.reduced):
        jax.tree.map(np.testing.assert_array_equal, of(a), of(b))
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(a.state), jax.device_get(b.state))


def written(folder, *steps):
    """A folder with one part for each number of steps."""
    store, run = Checkpoint(folder, IDENTITY), new()
    for n in steps:
        run.advance(n)
        store.write(run)
    return run


def resumed(folder, **identity):
    run = new()
    store = Checkpoint(folder, IDENTITY | identity)
    store.read(run)
    return run, store


@pytest.fixture(scope="module")
def two_parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two-parts")
    written(folder, 7, 9)
    return folder


@pytest.fixture
def folder(two_parts, tmp_path):
    """A copy of a checkpoint of two parts, to be spoiled."""
    return shutil.copytree(two_parts, tmp_path / "copy")


# ---- resuming ----------------------------------------------------------------------------------


def test_a_resumed_run_is_the_unbroken_one(folder):
    run, store = resumed(folder)
    assert run.steps_done == 16
    run.advance(3)
    store.write(run)  # appends to what was read
    again, _ = resumed(folder)
    assert sorted(f.name for f in folder.iterdir()) == [
        "part-00000.npz",
        "part-00001.npz",
        "part-00002.npz",
        "state.npz",
    ]
    for continued in (run, again):
        continued.finish()
        assert_same(continued, unbroken())


def test_a_finished_run_is_read_back(tmp_path):
    written(tmp_path, 34)
    run, _ = resumed(tmp_path)
    assert run.steps_done == run.num_steps and run.advance() == 0
    assert_same(run, unbroken())


@pytest.mark.parametrize("steps", [(), (3,)], ids=["nothing", "warmup"])
def test_a_run_without_a_draw_is_resumed_too(tmp_path, steps):
    written(tmp_path, *steps) if steps else Checkpoint(tmp_path, IDENTITY).write(new())
    run, _ = resumed(tmp_path)
    run.finish()
    assert_same(run, unbroken())


def test_writing_twice_adds_nothing(folder):
    run, store = resumed(folder)
    store.write(run)
    assert len(list(folder.iterdir())) == 3
    again, _ = resumed(folder)
    again.finish()
    assert_same(again, unbroken())


def test_a_part_that_no_state_counts_is_ignored_and_overwritten(folder):
    (folder / "part-00002.npz").write_bytes(b"half of a part")
    (folder / "part-00002.tmp").write_bytes(b"half of another")
    run, store = resumed(folder)
    run.finish()
    assert_same(run, unbroken())
    store.write(run)
    again, _ = resumed(folder)
    assert_same(again, unbroken())


def killed_in_the_middle(folder):
    """For a child process: die after the third part is in place and before its state is."""
    calls, replace = [], os.replace

    def die_at_the_third_state(source, target):
        calls.append(target)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = die_at_the_third_state
    written(folder, 7, 9, 5)


def test_a_killed_run_goes_on_with_the_same_draws(tmp_path):
    child = "import runpy, sys; runpy.run_path(sys.argv[1])['killed_in_the_middle'](sys.argv[2])"
    died = subprocess.run([sys.executable, "-c", child, __file__, tmp_path], timeout=120)
    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / "part-00002.npz").exists()
    run, _ = resumed(tmp_path)
    assert run.steps_done == 16
    run.finish()
    assert_same(run, unbroken())


def test_a_run_begun_anew_leaves_no_state_that_fits_other_parts(folder, monkeypatch):
    """Killed between its first part and its first state, it must not look like the earlier run."""

    def die(source, target):
        if target.name == "state.npz":
            raise KeyboardInterrupt
        os.rename(source, target)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        written(folder, 2)
    assert not Checkpoint(folder, IDENTITY).exists()


# ---- refusals ----------------------------------------------------------------------------------

DAMAGED = r"is missing or damaged, so that the fit cannot be resumed; start it anew"


def test_nothing_to_resume(tmp_path):
    assert not Checkpoint(tmp_path / "none", IDENTITY).exists()
    with pytest.raises(InputError, match=r"none holds no checkpoint to resume from"):
        resumed(tmp_path / "none")


@pytest.mark.parametrize("name", ["state.npz", "part-00000.npz", "part-00001.npz"])
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "array", "other"])
def test_damage_is_refused(folder, name, damage):
    path = folder / name
    whole = path.read_bytes()
    if damage == "array":
        with open(path, "wb") as file:
            np.save(file, np.ones(3))
    elif damage == "other":
        with open(path, "wb") as file:
            np.savez(file, something=np.ones(3))
    else:
        with np.load(path) as stored:
            largest = max((stored[n] for n in stored.files), key=lambda a: a.nbytes)
        at = whole.index(largest.tobytes()) + 3
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        kinds = {"empty": b"", "cut": whole[:-40], "flipped": flipped, "text": b"not a zip file"}
        path.write_bytes(kinds[damage])
    with pytest.raises(InputError, match=rf"{name} {DAMAGED}"):
        resumed(folder)


def test_a_missing_part_is_refused(folder):
    (folder / "part-00000.npz").unlink()
    with pytest.raises(InputError, match=rf"part-00000.npz {DAMAGED}"):
        resumed(folder)


def test_a_part_of_another_length_is_refused(folder):
    shutil.copy(folder / "part-00000.npz", folder / "part-00001.npz")
    with pytest.raises(InputError, match=DAMAGED):
        resumed(folder)


def test_a_run_of_another_shape_is_refused(folder):
    with pytest.raises(InputError, match=DAMAGED):
        Checkpoint(folder, IDENTITY).read(new(num_chains=3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, r"belongs to another fit: seed is 0 there and 1 here"),
        ({"data": "xyz"}, r"data is abc there and xyz here"),
        ({"extra": 5}, r"extra is None there and 5 here"),
    ],
)
def test_another_identity_is_refused_and_named(folder, change, message):
    before = {f.name: f.read_bytes() for f in folder.iterdir()}
    with pytest.raises(InputError, match=message):
        resumed(folder, **change)
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before


def test_a_setting_that_is_gone_is_named(folder):
    with pytest.raises(InputError, match=r"rank is 3 there and None here"):
        Checkpoint(folder, {"seed": 0, "data": "abc"}).read(new())
