"""A disk that fails at any one call, or goes: no finished fit is lost and no older one harmed."""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from bmfjax import store
from bmfjax.data import InputError
from bmfjax.families import sampling
from bmfjax.infer.checkpoint import Checkpoint
from tests.counted_runs import CHUNKS, STEPS, Counted, asked, record

OLDER, NEWER = 1.0, 2.0
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def after_every_chunk(monkeypatch):
    monkeypatch.setattr(sampling, "CHECKPOINT_SECONDS", -1.0)


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """A folder with a fit, and with the checkpoint of another run that was stopped."""
    folder = tmp_path_factory.mktemp("older") / "out"
    with store.hold(folder):
        store.write(record(OLDER, 3), folder)
    run = Counted()
    with store.hold(folder / store.CHECKPOINT):
        held = Checkpoint(folder / store.CHECKPOINT, sampling.identity(*asked(seed=1)))
        for run.steps_done in (7, 9):
            held.write(run)
    return folder


def sampled_and_written(folder, drawn, between=None, **options):
    """Do what the command line does, and tell in `drawn` what was drawn."""
    with store.hold(folder):
        store.check_files(folder, overwrite=True)
        given = {"checkpoint": folder / store.CHECKPOINT, "overwrite": True}
        with sampling.sampled(*asked(2, between), **(given | options)) as stage:
            drawn.append(stage.run.num_draws)
            store.write(record(NEWER, stage.run.num_draws), folder)
            store.remove_checkpoint(folder / store.CHECKPOINT)


def outcome(folder, **options):
    """Return what was drawn, why it was refused, and the warnings."""
    drawn, refused = [], None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            sampled_and_written(folder, drawn, **options)
        except InputError as error:
            refused = error
    return drawn, refused, [str(warning.message) for warning in said]


def stored_mark(folder):
    return store.read(folder).summary["scalars"]["mark"]


# ---- calls that fail ---------------------------------------------------------------------------

#: What a system may refuse, and its reason.
CALLS = {
    "rename": ([(os, "replace")], errno.EIO),
    "fsync": ([(os, "fsync")], errno.EIO),
    "delete": ([(os, "unlink")], errno.EIO),
    "lock": ([(fcntl, "flock")], errno.ENOLCK),
    "space": (
        [
            (np, "savez"),
            (np, "savez_compressed"),
            (Path, "write_text"),
            (Path, "write_bytes"),
            (store, "write_netcdf"),
        ],
        errno.ENOSPC,
    ),
}


@contextlib.contextmanager
def failing(kind, fails, happens=False):
    """Let those calls fail whose number `fails` picks, before or after they have done their work.

    Yield a list with their names.
    """
    names, made = CALLS[kind], []

    def counted(name, real):
        def call(*given, **named):
            made.append(name)
            wrong = fails(len(made) - 1)
            if happens or not wrong:
                found = real(*given, **named)
            if wrong:
                raise OSError(names[1], os.strerror(names[1]))
            return found

        return call

    with pytest.MonkeyPatch.context() as patch:
        for where, name in names[0]:
            patch.setattr(where, name, counted(name, getattr(where, name)))
        yield made


def copied(older, folder):
    return shutil.copytree(older, folder)


#: Hundreds of runs together; those of the others are of the same kind.
OFTEN = ("rename", "lock", "space")


@pytest.mark.parametrize(
    ("kind", "happens"),
    [
        *(pytest.param(k, False, marks=[pytest.mark.long] * (k not in OFTEN)) for k in CALLS),
        *(pytest.param(k, True, marks=pytest.mark.long) for k in ("rename", "space")),
    ],
)
def test_one_failing_call_loses_no_fit_and_harms_no_older_one(tmp_path, older, kind, happens):
    with failing(kind, lambda n: False) as made:
        drawn, why, _ = outcome(copied(older, tmp_path / "whole"))
    assert drawn == [CHUNKS * STEPS] and why is None and stored_mark(tmp_path / "whole") == NEWER
    ends = set()
    for number in range(len(made)):
        folder = copied(older, tmp_path / str(number))
        with failing(kind, lambda n, number=number: n == number, happens):
            drawn, why, said = outcome(folder)
        if not drawn:  # refused before the sampling: nothing has changed
            assert "cannot be written to" in str(why) and stored_mark(folder) == OLDER
            held = Checkpoint(folder / store.CHECKPOINT, sampling.identity(*asked(seed=1)))
            assert held.contents().steps_done == 9 and not said
            ends.add("refused")
        elif why:  # the older fit is whole, and the draws of the new one are kept
            assert stored_mark(folder) == OLDER and "check permissions and disk space" in str(why)
            drawn, why, said = outcome(folder, resume=True)
            assert drawn == [CHUNKS * STEPS] and not (why or said)
            assert stored_mark(folder) == NEWER
            ends.add("kept")
        else:
            assert drawn == [CHUNKS * STEPS] and stored_mark(folder) == NEWER
            assert len(said) <= 1 and all("was not written" in text for text in said)
            ends.add(f"{len(said)} warnings")
        assert kind == "delete" or not list(folder.rglob(".unfinished-*"))
        shutil.rmtree(folder)
    expected = {
        "rename": {"refused", "kept", "1 warnings"},
        "fsync": {"refused", "kept", "1 warnings", "0 warnings"},
        "delete": {"0 warnings"},
        "lock": {"refused", "0 warnings"},
        "space": {"refused", "kept", "1 warnings", "0 warnings"},
    }
    assert ends == expected[kind]


@pytest.mark.parametrize("kind", CALLS)
def test_calls_that_fail_from_one_on_end_no_sampling(tmp_path, older, kind):
    with failing(kind, lambda n: False) as made:
        outcome(copied(older, tmp_path / "whole"))
    for number in range(0, len(made), 3):
        folder = copied(older, tmp_path / str(number))
        with failing(kind, lambda n, number=number: n >= number):
            drawn, why, said = outcome(folder)
        assert drawn == [CHUNKS * STEPS] or "cannot be written to" in str(why)
        assert len(said) <= 1
        shutil.rmtree(folder)


def test_a_disk_that_is_full_only_when_it_is_synced_names_the_file(tmp_path):
    with failing("fsync", lambda n: True) as made, pytest.raises(InputError) as refused:
        store.write(record(NEWER, 3), tmp_path)
    assert made and "data.npz cannot be written: Input/output error" in str(refused.value)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_run_says_whether_its_last_checkpoint_was_written(tmp_path, monkeypatch, breaks):
    def between(run):
        if breaks and run.steps_done == CHUNKS * STEPS:
            monkeypatch.setattr(Checkpoint, "_write", full)

    given = {"checkpoint": tmp_path / "held"}
    with contextlib.ExitStack() as held:
        if breaks:
            held.enter_context(pytest.warns(UserWarning, match="the one before it stays"))
        with sampling.sampled(*asked(1, between), **given) as stage:
            assert stage.is_stored is not breaks
    with sampling.sampled(*asked(1)) as stage:
        assert not stage.is_stored


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [RuntimeError("encrypted"), EOFError(), NotImplementedError()])
def test_whatever_reading_back_raises_costs_the_checkpoint_alone(tmp_path, monkeypatch, error):
    def damaged(archive):
        raise error

    monkeypatch.setattr("zipfile.ZipFile.testzip", damaged)
    with pytest.raises(OSError, match="could not be read back as it was written"):
        Checkpoint(tmp_path / "held", {}).write(Counted())


# ---- a folder that goes, and a process that dies -------------------------------------------------


@pytest.mark.parametrize("which", ["fit", "checkpoint"])
@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_a_folder_that_goes_while_the_run_goes_on_costs_nothing(tmp_path, older, how, which):
    folder = copied(older, tmp_path / "out")
    gone = folder if which == "fit" else folder / store.CHECKPOINT

    def between(run):
        if run.steps_done == 2 * STEPS:
            shutil.rmtree(gone) if how == "deleted" else gone.rename(tmp_path / "elsewhere")

    drawn, why, said = outcome(folder, between=between)
    assert drawn == [CHUNKS * STEPS] and not (why or said) and stored_mark(folder) == NEWER


def test_after_a_folder_has_gone_the_checkpoint_is_whole_again(tmp_path):
    held, run = Checkpoint(tmp_path / "held", {}), Counted()
    for run.steps_done in (7, 9):
        held.write(run)
    shutil.rmtree(tmp_path / "held")
    run.steps_done = 12
    held.write(run)
    np.testing.assert_array_equal(
        held.contents().recorded["draws"]["x"], run.recorded_between(0, 12)["draws"]["x"]
    )


#: Of a process in which a child dies at the call that it is told.
DYING = """
import os, sys, pathlib
from bmfjax.infer.checkpoint import Checkpoint
from tests.counted_runs import Counted
top, number, ended = pathlib.Path(sys.argv[1]), 0, False
while not ended:
    child = os.fork()
    if not child:
        made = [0]
        def dying(real):
            def call(*given, **named):
                made[0] += 1
                if made[0] > number:
                    os._exit(9)
                return real(*given, **named)
            return call
        for name in ("replace", "fsync", "unlink"):
            setattr(os, name, dying(getattr(os, name)))
        run, held = Counted(), Checkpoint(top / str(number), {})
        for run.steps_done in (3, 5, 9):
            held.write(run)
            (top / f"{number}-done").write_text(str(run.steps_done))
        os._exit(0)
    ended, number = os.waitpid(child, 0)[1] == 0, number + 1
"""


def test_a_process_that_dies_at_any_call_leaves_the_last_checkpoint_or_the_next(tmp_path):
    subprocess.run([sys.executable, "-c", DYING, str(tmp_path)], check=True, cwd=ROOT)
    steps = [0, 3, 5, 9]
    deaths = sorted(tmp_path.glob("*-done"), key=lambda path: int(path.name.split("-")[0]))
    assert len(deaths) > 15
    for done in deaths:
        last = int(done.read_text())
        held, run = Checkpoint(tmp_path / done.name.split("-")[0], {}), Counted()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held.read(lambda earlier, run=run: run)
        assert run.steps_done in (last, *steps[steps.index(last) + 1 :][:1])
        # It goes on, beside whatever was left half written.
        run.steps_done = 12
        held.write(run)
        assert held.contents().steps_done == 12 and not list(held.folder.glob(".unfinished-*"))
