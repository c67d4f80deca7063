"""Checkpoints: the resumed run is the unbroken one, and what is damaged is refused."""

import functools
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.data import InputError
from bmfjax.infer import ChainRun, checkpoint, histogram, moments
from bmfjax.infer.checkpoint import Checkpoint, identity_in
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


def test_a_folder_says_whose_checkpoint_it_holds(tmp_path):
    """Also where the newest state is damaged."""
    assert identity_in(tmp_path) == {}
    written(tmp_path, 2, 2)
    assert identity_in(tmp_path).items() >= IDENTITY.items()
    (tmp_path / "state.npz").write_bytes(b"?")
    assert identity_in(tmp_path).items() >= IDENTITY.items()
    (tmp_path / "previous.npz").unlink()
    assert identity_in(tmp_path) == {}


def resumed(folder, options=None, **identity):
    run = new(**(options or {}))
    store = Checkpoint(folder, IDENTITY | identity)
    store.read(lambda earlier: run)
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
        "previous.npz",
        "state.npz",
    ]
    for continued in (run, again):
        continued.finish()
        assert_same(continued, unbroken())


def test_contents_are_those_of_the_newest_state_that_is_whole(folder):
    store = Checkpoint(folder, IDENTITY)
    found = store.contents()
    run, _ = resumed(folder)
    jax.tree.map(np.testing.assert_array_equal, found.leaves, jax.tree.leaves(run.snapshot()))
    jax.tree.map(np.testing.assert_array_equal, found.recorded, run.recorded_between(0, 16))
    (folder / "state.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="from the checkpoint before it, 7 steps"):
        assert store.contents().steps_done == 7


def test_seconds_are_those_of_all_parts(tmp_path):
    run, store = new(), Checkpoint(tmp_path, IDENTITY)
    run.advance(7)
    run.seconds = 2.5
    store.write(run)
    assert resumed(tmp_path)[0].seconds == 2.5


def test_a_disk_that_is_too_full_is_refused(tmp_path, monkeypatch):
    run, store = new(), Checkpoint(tmp_path, IDENTITY)
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(run.snapshot()))
    needed = 3 * state + 2 * 15 * 2 * 4  # chains, draws, numbers, bytes
    usage = shutil.disk_usage(tmp_path)
    for free in (needed, needed - 1):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, f=free: usage._replace(free=f))
        if free == needed:
            store.check_room(run)
            continue
        with pytest.raises(InputError, match=f"the disk of {tmp_path} has .* left"):
            store.check_room(run)


@pytest.mark.parametrize("steps", [(), (3,)], ids=["nothing", "warmup"])
def test_a_run_without_a_draw_is_resumed_too(tmp_path, steps):
    written(tmp_path, *steps) if steps else Checkpoint(tmp_path, IDENTITY).write(new())
    run, _ = resumed(tmp_path)
    run.finish()
    assert_same(run, unbroken())


def test_writing_twice_adds_nothing(folder):
    run, store = resumed(folder)
    store.write(run)
    assert len(list(folder.iterdir())) == 4
    again, _ = resumed(folder)
    again.finish()
    assert_same(again, unbroken())


def test_a_part_that_no_state_counts_is_ignored_and_overwritten(folder):
    (folder / "part-00002.npz").write_bytes(b"half of a part")
    (folder / f".unfinished-{2**22 + 1}-0123abcd-part-00003.npz").write_bytes(b"half of another")
    (folder / "notes.tmp").write_bytes(b"of a user")
    run, store = resumed(folder)
    run.finish()
    assert_same(run, unbroken())
    store.write(run)
    assert not list(folder.glob(".unfinished*")) and (folder / "notes.tmp").exists()
    again, _ = resumed(folder)
    assert_same(again, unbroken())


def test_a_run_begun_anew_harms_the_earlier_one_only_by_its_own_state(folder, monkeypatch):
    """Killed between its first part and its first state, it leaves the earlier run whole."""

    def die(source, target):
        if target.name == "state.npz":
            raise KeyboardInterrupt
        os.rename(source, target)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        written(folder, 2)
    monkeypatch.undo()
    earlier, _ = resumed(folder)
    assert earlier.steps_done == 16
    assert_same(earlier, written(folder / "whole", 7, 9))
    # Its own first state leaves nothing of the earlier run beside it.
    written(folder, 2)
    assert resumed(folder)[0].steps_done == 2
    assert len(list(folder.glob("*.npz"))) == 2


# ---- draws that lie closer while the run is under way --------------------------------------------

#: Of 30 draws 5 are kept, until then at most 8: 1, 3 and 6 draws apart.
CLOSE = {"draws": {"x": 6}, "most_kept": 8}


@functools.cache
def unbroken_close():
    run = new(**CLOSE)
    run.finish()
    np.testing.assert_array_equal(run.draws()["x"], unbroken().draws()["x"][:, 2::3])
    return run


def test_resumed_anywhere_the_draws_are_those_of_an_unbroken_run(tmp_path):
    """Written after every three steps; resumed there, and from the checkpoint before."""
    run, store = new(**CLOSE), Checkpoint(tmp_path, IDENTITY)
    apart = []
    while run.advance(3):
        store.write(run)
        apart.append(run.thinning("x"))
        kept = run.recorded_between(0, run.steps_done)
        again, _ = resumed(tmp_path, CLOSE)
        jax.tree.map(np.testing.assert_array_equal, again.recorded_between(0, run.steps_done), kept)
        if run.steps_done in (9, 15, 30):  # one, three and six draws apart
            (tmp_path / "state.npz").write_bytes(b"")
            with pytest.warns(UserWarning, match=f" {run.steps_done - 3} steps"):
                run, store = resumed(tmp_path, CLOSE)
            assert run.advance(3) == 3
            store.write(run)
        if run.steps_done in (12, 30):
            again.finish()
            assert_same(again, unbroken_close())
    assert set(apart) == {1, 3, 6}
    assert_same(run, unbroken_close())
    # What neither state needs is gone: the last one was written whole at the last interval.
    assert len(list(tmp_path.glob("part-*.npz"))) < len(apart) / 2


# ---- damage --------------------------------------------------------------------------------------


def damaged(path, damage):
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "array":
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


def fallen_back(folder, name):
    with pytest.warns(
        UserWarning, match=rf"{name} is missing or damaged; the fit goes on .* 7 steps"
    ):
        return resumed(folder)


@pytest.mark.parametrize("name", ["state.npz", "part-00001.npz"])
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "array", "other", "missing"])
def test_a_damaged_checkpoint_leaves_the_one_before_it(folder, name, damage):
    damaged(folder / name, damage)
    run, _ = fallen_back(folder, name)
    assert run.steps_done == 7
    if damage == "flipped":
        run.finish()
        assert_same(run, unbroken())


def test_two_states_never_share_their_last_part(folder):
    run, store = resumed(folder)
    store.write(run)
    damaged(folder / "part-00001.npz", "cut")
    assert fallen_back(folder, "part-00001.npz")[0].steps_done == 7


def test_a_part_of_another_run_is_damage_too(folder):
    shutil.copy(folder / "part-00000.npz", folder / "part-00001.npz")
    fallen_back(folder, "part-00001.npz")


def test_after_damage_the_whole_checkpoint_stays_until_there_are_two(folder):
    damaged(folder / "state.npz", "cut")
    run, store = fallen_back(folder, "state.npz")
    run.advance(2)
    store.write(run)
    assert resumed(folder)[0].steps_done == 9
    damaged(folder / "state.npz", "cut")
    run, _ = fallen_back(folder, "state.npz")
    run.finish()
    assert_same(run, unbroken())


def test_what_is_not_read_back_as_written_replaces_nothing(folder, monkeypatch):
    """A disk that changes a byte, here of the first array, after it was written."""
    run, store = resumed(folder)
    run.advance(3)
    monkeypatch.setattr(os, "fsync", lambda file: os.pwrite(file, b"?", 64))
    with pytest.raises(OSError, match="could not be read back as it was written"):
        store.write(run)
    monkeypatch.undo()
    assert resumed(folder)[0].steps_done == 16
    store.write(run)  # goes on where there is room again
    assert resumed(folder)[0].steps_done == 19


# ---- refusals ----------------------------------------------------------------------------------

LOST = r"(is|are) missing or damaged, and no earlier checkpoint is whole; start the fit anew"


def test_nothing_to_resume(tmp_path):
    assert not Checkpoint(tmp_path / "none", IDENTITY).exists()
    with pytest.raises(InputError, match=r"none holds no checkpoint to resume from"):
        resumed(tmp_path / "none")


@pytest.mark.parametrize(
    "names",
    [("part-00000.npz",), ("state.npz", "previous.npz"), ("part-00001.npz", "previous.npz")],
)
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_damage_to_both_is_refused(folder, names, damage):
    for name in names:
        damaged(folder / name, damage)
    if names == ("state.npz", "previous.npz") and damage == "missing":
        names, message = (), "holds no checkpoint"
    else:
        message = rf"cannot be resumed: {' and '.join(names)} {LOST}"
    with pytest.raises(InputError, match=message):
        resumed(folder)


def test_a_run_of_another_shape_is_refused(folder):
    with pytest.raises(InputError, match=LOST):
        Checkpoint(folder, IDENTITY).read(lambda earlier: new(num_chains=3))


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


def test_files_of_another_layout_are_named(folder, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    with pytest.raises(InputError, match="checkpoint_format is 2 there and 3 here"):
        resumed(folder)
