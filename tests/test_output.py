"""No file of a user is lost: what may be replaced, by whom, and when."""

import contextlib
import dataclasses
import os
import re
import shutil
import socket
import types
from pathlib import Path

import numpy as np
import pytest

import bmfjax
from bmfjax import cli, store
from bmfjax.cli import main
from bmfjax.data.io.files import replacing
from bmfjax.families import sampling
from bmfjax.kernels.numerics import compiling
from bmfjax.store import (
    CHECKPOINT,
    FILES,
    LOCK,
    PAGE,
    check_output,
    hold,
    is_of_fit,
    remove_checkpoint,
)
from bmfjax.verdict import Figures, Verdict
from bmfjax.verdict.remedies import RESUME
from tests.shared_fits import davis

FIT = ["fit", "davis", "--model", "ormachine", "--rank", "2"]
FIT += ["--chains", "2", "--warmup", "40", "--samples", "30"]


def run(*arguments):
    return main([str(a) for a in arguments])


def contents(folder):
    """Every file below a folder and what is in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def fitted():
    return davis()


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    folder = fitted.save(tmp_path_factory.mktemp("output") / "davis")
    fitted.report(folder / PAGE)
    return folder


@pytest.fixture
def sampled(monkeypatch, fitted, quick_page):
    """The command line with a sampler that has its draws already; what it was asked for."""
    calls = []

    @contextlib.contextmanager
    def run_to_the_end(request, chains, *, checkpoint, **_):
        calls.append(checkpoint)
        with store.held_checkpoint(checkpoint):
            np.savez(checkpoint / "state.npz", about="{}")
        yield types.SimpleNamespace(fit=fitted, is_stored=True)

    monkeypatch.setattr(sampling, "sampled", run_to_the_end)
    monkeypatch.setattr(sampling, "result_of", lambda stage: stage.fit)
    return calls


@pytest.fixture
def no_sampling(monkeypatch):
    def begin(*_, **__):
        raise AssertionError("it sampled before it looked at the output")

    monkeypatch.setattr(sampling, "sampled", begin)


def foreign_files(folder):
    """Files of a user under the names that a fit writes; each in a folder of its own."""
    arrays = {"factors.npz": "usage", "probability.npz": "probability"}
    for name in (*FILES, PAGE):
        place = folder / name.replace(".", "-")
        place.mkdir()
        if name == "data.npz":
            truth = bmfjax.data.generate_product(8, 6, 2)
            bmfjax.save(place / name, truth.data, usage=truth.usage, basis=truth.basis)
        elif name in arrays:
            np.savez(place / name, **{arrays[name]: np.eye(3)})
        else:
            (place / name).write_text('{"model": "mine"}')
        yield place, name


# ---- what may be replaced ------------------------------------------------------------------


def test_files_that_no_fit_wrote_stay_with_and_without_overwrite(
    tmp_path, fitted, no_sampling, capsys
):
    for folder, name in foreign_files(tmp_path):
        before = contents(folder)
        for more in ([], ["--overwrite"]):
            assert run(*FIT, "--output", folder, *more) == 2
            error = capsys.readouterr().err
            assert f"{folder / name} is in the way" in error and "move it away" in error
            assert error.count("\n") == 1
        if name in FILES:
            for overwrite in (False, True):
                with pytest.raises(bmfjax.InputError, match=f"{name} is in the way"):
                    fitted.save(folder, overwrite=overwrite)
        assert contents(folder) == before


def test_links_and_directories_under_the_names_of_a_fit_stay(
    tmp_path, saved, fitted, no_sampling, capsys
):
    for name in FILES:
        link, directory = tmp_path / "link" / name, tmp_path / "directory" / name
        for path in (link, directory):
            shutil.rmtree(path.parent, ignore_errors=True)
            path.parent.mkdir()
        link.symlink_to(saved / name)
        directory.mkdir()
        for path in (link, directory):
            assert run(*FIT, "--output", path.parent, "--overwrite") == 2
            assert f"{path} is in the way" in capsys.readouterr().err
            with pytest.raises(bmfjax.InputError, match="is in the way"):
                fitted.save(path.parent, overwrite=True)
        assert link.is_symlink() and directory.is_dir()
    link.unlink()
    link.symlink_to(tmp_path / "nothing")
    assert run(*FIT, "--output", link.parent) == 2 and link.is_symlink()


def test_a_fit_is_replaced_whole_when_told(tmp_path, saved, fitted, sampled, capsys):
    out = shutil.copytree(saved, tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    for name in (*FILES, PAGE):
        assert store.is_of_fit(out / name), name
    for name in ("data.npz", "factors.npz"):
        (out / name).write_bytes((out / name).read_bytes()[:-100])
        assert store.is_of_fit(out / name), f"{name}, cut short"
    assert run(*FIT, "--output", out) == 2
    assert "already holds a fit" in capsys.readouterr().err and not sampled
    assert run(*FIT, "--output", out, "--overwrite") == 0 and sampled == [out / CHECKPOINT]
    assert {path.name for path in out.iterdir()} == {*FILES, PAGE, "notes.txt"}
    # From Python no page is written, and the one of the older fit does not stay beside the new.
    fitted.save(out, overwrite=True)
    assert {path.name for path in out.iterdir()} == {*FILES, "notes.txt"}


def test_a_page_beside_no_fit_is_kept(tmp_path, fitted, quick_page):
    path = fitted.report(tmp_path / PAGE)
    fitted.save(tmp_path)
    assert path.exists()


def test_checkpoints_with_files_of_others(tmp_path, no_sampling, capsys):
    folder = tmp_path / CHECKPOINT
    folder.write_text("mine")
    assert run(*FIT, "--output", tmp_path, "--overwrite") == 2
    folder.unlink()
    folder.mkdir()
    np.savez(folder / "state.npz", weights=np.eye(2))
    before = contents(tmp_path)
    for more in ([], ["--overwrite"], ["--resume"]):
        assert run(*FIT, "--output", tmp_path, *more) == 2
        assert f"{folder / 'state.npz'} is in the way" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", [b"", b"\0" * 100], ids=["empty", "zeros"])
def test_a_checkpoint_of_which_one_file_is_damaged_is_still_ones_own(tmp_path, damage):
    folder = tmp_path / CHECKPOINT
    folder.mkdir()
    (folder / "state.npz").write_bytes(damage)
    assert not is_of_fit(folder)  # nothing says whose it is
    np.savez(folder / "previous.npz", about=np.array("{}"))
    assert is_of_fit(folder)
    remove_checkpoint(folder)
    assert not folder.exists()


def test_from_python_a_checkpoint_replaces_only_checkpoints(tmp_path):
    np.savez(tmp_path / "own.npz", weights=np.eye(2))
    whole = (tmp_path / "own.npz").read_bytes()
    for name in ("state.npz", "part-00000.npz", "part-one.txt"):
        (tmp_path / name).write_bytes(whole[:-50])
        before = contents(tmp_path)
        with pytest.raises(bmfjax.InputError, match=f"{name} is in the way"):
            bmfjax.fit("davis", bmfjax.OrMachine(2), progress=False, checkpoint=tmp_path)
        assert contents(tmp_path) == before
        (tmp_path / name).unlink()


def test_a_finished_checkpoint_goes_without_what_others_put_there(tmp_path):
    np.savez(tmp_path / "state.npz", about="{}")
    np.savez(tmp_path / "part-00000.npz", **{"draws/usage": np.eye(2)})
    (tmp_path / ".unfinished-12-0123abcd-state.npz").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    remove_checkpoint(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_an_interrupted_fit_is_kept_unless_told(tmp_path, sampled, capsys):
    out = tmp_path / "out"
    (out / CHECKPOINT).mkdir(parents=True)
    # Before its first checkpoint a killed run has left nothing.
    (out / CHECKPOINT / LOCK).write_text("1\nelsewhere\n")
    check_output(out, overwrite=False)
    state = out / CHECKPOINT / "state.npz"
    np.savez(state, about="{}")
    assert run(*FIT, "--output", out) == 2 and not sampled
    assert "already holds an interrupted fit (checkpoint)" in capsys.readouterr().err
    assert run(*FIT, "--output", out, "--resume") == 0


@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--resume"]])
def test_the_data_are_never_replaced(tmp_path, saved, no_sampling, capsys, more):
    out = shutil.copytree(saved, tmp_path / "out")
    before = contents(out)
    (tmp_path / "link").symlink_to(out)
    data = tmp_path / "link" / "data.npz"
    assert run("fit", data, *FIT[2:], "--output", out, *more) == 2
    assert f"{out / 'data.npz'} is the data" in capsys.readouterr().err
    assert contents(out) == before


def test_single_files_are_replaced_by_their_like(tmp_path, saved, fitted, quick_page, capsys):
    mine, other, link = tmp_path / "a.html", tmp_path / "b.html", tmp_path / "c.html"
    other.write_text("<html>mine</html>")
    assert run("report", saved, "--output", mine) == 0
    link.symlink_to(mine)
    before = contents(tmp_path)
    assert run("report", saved, "--output", mine) == 2
    assert "or replace it by --overwrite" in capsys.readouterr().err
    refused = dict.fromkeys((other, link), "already exists and is no page of bmfjax")
    for path, why in (refused | {saved / "factors.npz": "ends in .npz"}).items():
        assert run("report", saved, "--output", path, "--overwrite") == 2
        assert f"{path} {why}" in capsys.readouterr().err
        with pytest.raises(bmfjax.InputError, match=why):
            fitted.report(path, overwrite=True)
    assert contents(tmp_path) == before
    assert run("report", saved, "--output", mine, "--overwrite") == 0


def test_generated_matrices_replace_only_matrices(tmp_path, saved, monkeypatch, capsys):
    make = ["generate", "product", "--rows", 8, "--columns", 6, "--rank", 2, "--output"]
    mine, ours, link = (tmp_path / f"{name}.npz" for name in ("mine", "ours", "link"))
    np.savez(mine, kind="binary", values=np.eye(2))
    assert run(*make, ours) == 0
    link.symlink_to(ours)
    before = contents(tmp_path) | contents(saved)
    with monkeypatch.context() as patched:
        patched.setattr(bmfjax.data, "generate_product", lambda **_: pytest.fail("made first"))
        for path in (mine, link, saved / "data.npz", saved / "factors.npz"):
            assert run(*make, path, "--overwrite") == 2
            assert (
                f"{path} already exists and is no file of bmfjax.save or" in capsys.readouterr().err
            )
        assert run(*make, ours) == 2
        assert run(*make, tmp_path / "none" / "x.npz") == 2
    assert contents(tmp_path) | contents(saved) == before
    assert run(*make, ours, "--overwrite", "--seed", 1) == 0
    assert contents(tmp_path)["ours.npz"] != before["ours.npz"]


def test_places_that_are_no_directories(tmp_path, fitted, no_sampling, capsys):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for place in ("file", "file/sub/sub", "link", "link/sub"):
        assert run(*FIT, "--output", tmp_path / place) == 2
        nearest = tmp_path / place.split("/")[0]
        assert f"{nearest} is no directory" in capsys.readouterr().err
        with pytest.raises(bmfjax.InputError, match="is no directory"):
            fitted.save(tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_place_that_cannot_be_written_is_told_before_the_sampling(
    tmp_path, no_sampling, monkeypatch, capsys
):
    def refuse(self, blocking):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.FileLock, "acquire", refuse)
    assert run(*FIT, "--output", tmp_path / "new" / "out") == 2
    error = capsys.readouterr().err
    assert "cannot be written to: Permission denied" in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == []


# ---- who writes ---------------------------------------------------------------------------


def test_one_run_at_a_time(tmp_path, saved, fitted, no_sampling, quick_page, capsys):
    out = shutil.copytree(saved, tmp_path / "out")
    (out / CHECKPOINT).mkdir()
    np.savez(out / CHECKPOINT / "state.npz", about="{}")
    before = contents(out)
    who = f"in use: process {os.getpid()} on {socket.gethostname()}, since 20"
    for held in (out, out / CHECKPOINT):
        with hold(held):
            for more in ([], ["--overwrite"], ["--resume"]):
                assert run(*FIT, "--output", out, *more) == 2
                error = capsys.readouterr().err
                assert f"{held} is {who}" in error and "wait for it, stop it" in error
            with pytest.raises(bmfjax.InputError, match=who):
                fitted.save(out, overwrite=True)
        assert contents(out) == before
    with hold(out):
        assert run("report", out, "--overwrite") == 2
        assert who in capsys.readouterr().err
        with pytest.raises(bmfjax.InputError, match=who):
            fitted.report(out / PAGE, overwrite=True)
    assert run("report", out, "--overwrite") == 0


def test_two_python_runs_on_one_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "_sample", lambda *_: pytest.fail("it sampled"))
    with hold(tmp_path), pytest.raises(bmfjax.InputError, match="in use: process"):
        bmfjax.fit("davis", bmfjax.OrMachine(2), progress=False, checkpoint=tmp_path)


def test_the_lock_goes_with_the_run(tmp_path):
    for error in (None, ValueError, KeyboardInterrupt):
        with pytest.raises(error or SystemExit), hold(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b" / LOCK).is_file()
            raise error or SystemExit
        assert os.listdir(tmp_path) == []


def test_a_lock_that_goes_while_it_is_looked_at_holds_nobody(tmp_path, monkeypatch):
    lock = tmp_path / LOCK
    lock.write_text("123\nelsewhere\n")
    stat = Path.stat

    def gone(path, **options):
        if path == lock:
            lock.unlink(missing_ok=True)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", gone)
    check_output(tmp_path, overwrite=False)


def test_the_lock_of_a_dead_run_holds_nobody_and_a_file_of_a_user_is_none(tmp_path):
    lock = tmp_path / LOCK
    lock.write_text("123\nelsewhere\n")
    check_output(tmp_path, overwrite=False)
    with hold(tmp_path):
        assert lock.read_text().startswith(f"{os.getpid()}\n")
    assert not lock.exists()
    lock.write_text("my notes")
    for overwrite in (False, True):
        with pytest.raises(bmfjax.InputError, match="is no lock of bmfjax; move it away"):
            check_output(tmp_path, overwrite)
    assert lock.read_text() == "my notes"


# ---- writes that fail ---------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_files_that_come_during_the_sampling_stay(
    tmp_path, fitted, sampled, monkeypatch, capsys, more
):
    run_to_the_end = sampling.sampled

    def slow(*asked, **options):
        np.savez(tmp_path / "factors.npz", mine=np.eye(2))
        return run_to_the_end(*asked, **options)

    monkeypatch.setattr(sampling, "sampled", slow)
    assert run(*FIT, "--output", tmp_path, *more) == 2
    error = capsys.readouterr().err
    assert "factors.npz is in the way" in error and "the draws are kept in" in error
    assert "mine" in np.load(tmp_path / "factors.npz")
    assert sorted(os.listdir(tmp_path)) == [CHECKPOINT, "factors.npz"]


def test_an_interrupt_while_files_are_written_says_so(tmp_path, sampled, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_store", stop)
    assert run(*FIT, "--output", tmp_path / "out") == 130
    assert "interrupted before all results were written; to continue" in capsys.readouterr().err


def full(*_, **__):
    raise OSError(28, "HDF5 says a lot")


def test_a_directory_without_a_name_is_refused(fitted):
    with pytest.raises(bmfjax.InputError, match="directory is empty"):
        fitted.save("")


@pytest.mark.parametrize(
    ("names", "where"),
    [(("write_netcdf", "_write_arrays"), "out/posterior.npz"), (("_plain",), "out/summary.json")],
)
def test_a_failed_write_leaves_the_older_fit_whole(
    tmp_path, saved, fitted, sampled, monkeypatch, capsys, names, where
):
    out = shutil.copytree(saved, tmp_path / "out")
    before = contents(out)
    for name in names:
        monkeypatch.setattr(store, name, full)
    with pytest.raises(bmfjax.InputError, match=rf"{where} cannot be written: No space left"):
        fitted.save(out, overwrite=True)
    assert contents(out) == before
    assert run(*FIT, "--output", out, "--overwrite") == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error and "--resume" in error
    after = contents(out)
    assert {name: after[name] for name in before} == before
    assert set(after) == {*before, CHECKPOINT, f"{CHECKPOINT}/state.npz"}


@pytest.mark.parametrize("is_stored", [True, False])
def test_draws_are_said_to_be_kept_where_they_are(
    tmp_path, sampled, monkeypatch, capsys, is_stored
):
    run_to_the_end = sampling.sampled

    @contextlib.contextmanager
    def ended(*asked, **options):
        with run_to_the_end(*asked, **options) as stage:
            stage.is_stored = is_stored
            yield stage

    monkeypatch.setattr(sampling, "sampled", ended)
    monkeypatch.setattr(store, "_plain", full)
    assert run(*FIT, "--output", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "summary.json cannot be written: No space left" in error
    assert ("the draws are kept in" in error) is is_stored
    assert ("the draws since the one before are lost" in error) is not is_stored
    # Of chains that run apart the checkpoint is all that there is.
    stage = types.SimpleNamespace(is_stored=is_stored, run=RUN)
    monkeypatch.setattr(sampling, "sampled", lambda *_, **__: contextlib.nullcontext(stage))
    assert run(*FIT, "--output", tmp_path / "out", "--chain", "1/2") == (0 if is_stored else 2)
    told, error = capsys.readouterr()
    assert ("when all are there: bmfjax merge" in told) is is_stored
    assert ("was not written" in error and "--resume" in error) is not is_stored


RUN = types.SimpleNamespace(is_complete=True, num_draws=30, num_samples=30, timed_out=False)


@pytest.mark.parametrize("limit", [["--max-time", "60"], ["--max-t=60"], ["--max-time=60"], []])
def test_a_command_that_continues_is_named_with_the_time_that_the_verdict_asks(
    tmp_path, capsys, limit
):
    figures = Figures(
        complete=False, timed_out=True, num_draws=3, seconds=47.0, num_chains=4, rhat_product=1.32
    )
    judged = Verdict(figures, remedies={"chains": RESUME})
    result = types.SimpleNamespace(
        figures=figures, settings={"num_samples": 30}, _is_variational=False, verdict=judged
    )
    given = ["fit", "zoo", *limit, "--max-rank", "6"]
    for arguments in (given, ()):
        assert cli._end(result, [], tmp_path, arguments) == 0
        error = capsys.readouterr().err
        named = error.partition("to continue: ")[2].split()
        assert "these" in error.splitlines()[-1] and bool(named) is bool(arguments)
        if named:
            asked = re.search(r"--max-time \d+", judged.remedy)[0]
            assert " ".join(named) == f"bmfjax fit --resume zoo --max-rank 6 {asked}"
    # Whoever interrupted it has not asked for more time.
    result.figures = dataclasses.replace(figures, timed_out=False)
    assert cli._end(result, [], tmp_path, given) == 130
    assert capsys.readouterr().err.rstrip().endswith(" ".join(["--resume zoo", *given[2:]]))


def test_an_older_table_that_cannot_be_deleted_or_replaced_is_named(
    tmp_path, sampled, monkeypatch, capsys
):
    out = tmp_path / "out"
    assert run(*FIT, "--output", out, "--export", "csv") == 0
    with monkeypatch.context() as patched:
        patched.setattr("bmfjax.predictions.write_table", broken)
        assert run(*FIT, "--output", out, "--export", "csv", "--overwrite") == 3
    assert not (out / "factors.csv").exists()  # one of another fit would lie
    assert run(*FIT, "--output", out, "--export", "csv", "--overwrite") == 0
    capsys.readouterr()
    unlink = Path.unlink

    def refused(path, **options):
        if path.name == "factors.csv":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refused)
    assert run(*FIT, "--output", out, "--overwrite") == 3
    assert f"{out / 'factors.csv'} is of an older fit and was not deleted" in (
        capsys.readouterr().err
    )


def test_a_fit_that_cannot_be_placed_is_one_sentence(tmp_path, fitted):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(bmfjax.InputError, match=r"file/fit cannot be written: Not a directory"):
        store.write(fitted._record(), tmp_path / "file" / "fit")


def test_a_summary_that_may_not_be_read_is_not_called_foreign(tmp_path, saved, monkeypatch):
    path = shutil.copytree(saved, tmp_path / "out") / "summary.json"

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(bmfjax.InputError, match=r"summary.json cannot be read: Permission denied"):
        is_of_fit(path)


def broken(*_, **__):
    raise RuntimeError("no \x1b[2J here")


def test_netcdf_that_fails_costs_only_itself(tmp_path, saved, fitted, monkeypatch):
    out = shutil.copytree(saved, tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(store, "write_netcdf", broken)
        with pytest.warns(UserWarning, match=r"posterior\.nc was not written .*RuntimeError"):
            fitted.save(out, overwrite=True)
    assert {path.name for path in out.iterdir()} == {*FILES, store.DRAWS} - {"posterior.nc"}
    found = bmfjax.Fit.load(out)
    np.testing.assert_array_equal(found.usage_draws[:], fitted.usage_draws[:])
    np.testing.assert_array_equal(found.other_draws["flip_rate"], fitted.other_draws["flip_rate"])
    assert dict(found.idata["posterior"].sizes) == dict(fitted.idata["posterior"].sizes)
    found.save(out, overwrite=True)
    assert {path.name for path in out.iterdir()} == set(FILES)


def test_draws_do_not_replace_a_file_of_others(tmp_path, fitted, monkeypatch):
    monkeypatch.setattr(store, "write_netcdf", broken)
    (tmp_path / store.DRAWS).write_text("mine")
    with pytest.raises(bmfjax.InputError, match=r"posterior\.npz is in the way"):
        fitted.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [store.DRAWS]


def test_what_fails_beside_the_fit_costs_only_itself(tmp_path, sampled, monkeypatch, capsys):
    out, page = tmp_path / "a fit", "bmfjax.report.page.render"
    with monkeypatch.context() as patched:
        for name in ("bmfjax.store.write_netcdf", page, "bmfjax.predictions.write_table"):
            patched.setattr(name, broken)
        assert run(*FIT, "--output", out, "--export", "csv") == 3
    told, error = capsys.readouterr()
    assert str(bmfjax.Fit.load(out).verdict) in told and "; open " not in told
    for name in ("posterior.nc", PAGE, "factors.csv"):
        assert f"{out / name} was not written (RuntimeError: no \\x1b[2J here)" in error
    assert f"bmfjax report '{out}' writes it" in error
    assert CHECKPOINT not in os.listdir(out)
    assert run("report", out) == 0 and (out / PAGE).exists()


def test_only_where_the_process_ends_compilations_wait_for_the_report(
    tmp_path, sampled, monkeypatch
):
    waits = []
    monkeypatch.setattr(compiling, "let_compilations_wait", lambda: waits.append(1))
    for ends in (False, True):
        assert main([*FIT, "--output", str(tmp_path / str(ends))], ends_process=ends) == 0
        assert len(waits) == ends


def test_the_verdict_is_told_before_anything_is_written(
    tmp_path, sampled, fitted, monkeypatch, capsys
):
    def store_nothing(*_):
        assert str(fitted.verdict)[:30] in capsys.readouterr().out
        raise bmfjax.InputError("no room")

    monkeypatch.setattr(cli, "_store", store_nothing)
    assert run(*FIT, "--output", tmp_path / "out") == 2


def test_a_fit_is_stored_where_it_cannot_be_told(tmp_path, sampled, monkeypatch):
    monkeypatch.setattr(cli, "_print_table", broken)
    with pytest.raises(RuntimeError):
        run(*FIT, "--output", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*FILES, PAGE}


def test_drafts_of_killed_processes_are_deleted(tmp_path, monkeypatch):
    dead, alive = (f".unfinished-{process}-0123abcd-a.txt" for process in (2**22 + 1, os.getppid()))
    for name in (dead, alive, ".unfinished-mine-a.txt"):
        (tmp_path / name).write_text("half")
    with replacing(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    assert set(os.listdir(tmp_path)) == {"a.txt", alive, ".unfinished-mine-a.txt"}
