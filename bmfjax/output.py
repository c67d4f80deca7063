"""Where a fit may be written: no file of a user is replaced, and one run writes at a time.

Files of a fit are known by their content, so that those of a run that was killed are known too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from bmfjax.data import InputError
from bmfjax.data.files import OF_FIT, npz_names
from bmfjax.diagnostics.arviz import posterior_attributes
from bmfjax.infer.checkpoint import NEWEST, PREVIOUS

#: What a fit's directory holds; `probability.npz` only for matrices of up to 10^7 entries.
FILES = ("data.npz", "factors.npz", "posterior.nc", "probability.npz", "summary.json")
PAGE = "report.html"
CHECKPOINT = "checkpoint"
LOCK = "bmfjax.lock"
#: The first lines of a page hold it.
PAGE_MARK = '<meta name="generator" content="bmfjax">'
SUMMARY_KEYS = {"verdict", "model", "sampler", "settings", "scalars", "versions"}
POSTERIOR_KEYS = {"verdict", "model", "sampler"}
STATES = (NEWEST, PREVIOUS)
LOCK_TEXT = re.compile(rb"(\d+\n[^\n]*\n(\d+\n)?)?")
CHECKPOINT_NAME = re.compile(r"(state|previous|part-\d+)\.(npz|tmp)")


# ---- what is there ------------------------------------------------------------------------


def check_output(
    directory: str | os.PathLike,
    overwrite: bool,
    names: Sequence[str] = (*FILES, CHECKPOINT),
    source: str | os.PathLike | None = None,
) -> None:
    """Refuse a directory that cannot be used: before any work is done, and writing nothing.

    Parameters
    ----------
    directory : path
    overwrite : bool
        Files of a fit may be replaced; all others never.
    names : sequence of str
        What will be written or deleted.
    source : path, optional
        File of the data, which is not replaced.
    """
    folder = Path(directory)
    _check_folder(folder)
    refuse_in_use(folder)
    refuse_in_use(folder / CHECKPOINT)
    check_files(folder, overwrite, names, source)


def check_files(
    folder: Path,
    overwrite: bool,
    names: Sequence[str] = (*FILES, CHECKPOINT),
    source: str | os.PathLike | None = None,
) -> None:
    """Refuse a directory in which a file is in the way; arguments as of `check_output`."""
    there = [folder / name for name in names if os.path.lexists(folder / name)]
    for path in there:
        if source is not None and _same_file(path, source):
            raise InputError(f"{path} is the data and would be replaced; give another directory")
        if not is_of_fit(path):
            raise _in_the_way(_foreign(path), "fit")
    # A run that was killed before its first checkpoint has left nothing to lose.
    there = [path for path in there if path.is_file() or holds_checkpoint(path)]
    if there and not overwrite:
        interrupted = " an interrupted" if there[0].name == CHECKPOINT else " a"
        resume = ", --resume" if holds_checkpoint(folder / CHECKPOINT) else ""
        raise InputError(
            f"{folder} already holds{interrupted} fit ({there[0].name}); give another directory"
            f"{resume}, or --overwrite (overwrite=True)"
        )


def _foreign(path):
    """What is in the way at a path: of a folder of checkpoints, the file inside."""
    if path.name != CHECKPOINT or path.is_symlink() or not path.is_dir():
        return path
    return _foreign_in_checkpoint(path)[0]


def _foreign_in_checkpoint(folder):
    """Files that no run wrote. One that cannot be read is known by whole ones beside it."""
    paths = sorted(folder.iterdir())
    other = [path for path in paths if not _is_of_checkpoint(path)]
    if any(path.suffix == ".npz" for path in paths if path not in other):
        other = [path for path in other if not _is_damaged(path)]
    return other


def _is_damaged(path):
    """Whether a file has the name of a checkpoint's and is no readable archive."""
    named = CHECKPOINT_NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    return bool(named) and not zipfile.is_zipfile(path)


def _in_the_way(path, writer):
    return InputError(
        f"{path} is in the way: no {writer} wrote it, so it is not replaced; move it away, or give "
        "another directory"
    )


def _same_file(path, other):
    return path.exists() and os.path.exists(other) and os.path.samefile(path, other)


def _check_folder(folder):
    """Refuse what is no directory and cannot become one."""
    nearest = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if not nearest.is_dir():
        raise InputError(f"{nearest} is no directory; give a directory for the output")


def is_of_fit(path: Path) -> bool:
    """Whether a fit wrote a file, or a run its checkpoint; known by name and content."""
    if path.is_symlink():
        return False
    if path.name == CHECKPOINT:
        return path.is_dir() and not _foreign_in_checkpoint(path)
    if not path.is_file():
        return False
    if path.name == PAGE:
        return is_page(path)
    if path.suffix == ".npz":
        return OF_FIT in npz_names(path)
    if path.suffix == ".nc":
        return posterior_attributes(path) >= POSTERIOR_KEYS
    try:
        return set(json.loads(path.read_bytes())) >= SUMMARY_KEYS
    except (ValueError, TypeError, RecursionError):
        return False


def holds_checkpoint(folder: Path) -> bool:
    """Whether a run can be resumed from a folder."""
    return any((folder / name).is_file() for name in STATES)


def is_page(path: Path) -> bool:
    """Whether a file is a page of `write_report`."""
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return PAGE_MARK.encode() in file.read(1000)


def check_page(path: str | os.PathLike, overwrite: bool) -> Path:
    """Refuse a path where a page may not be written; return it as a `Path`."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file for the report")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it, or give another path")
    refuse_in_use(path.parent)
    if not os.path.lexists(path):
        return path
    if not is_page(path):
        raise InputError(
            f"{path} already exists and is no page of bmfjax; move it away, or give another file"
        )
    if not overwrite:
        raise InputError(
            f"{path} already exists; give another file, or replace it by --overwrite "
            "(overwrite=True)"
        )
    return path


def _is_of_checkpoint(path):
    if path.name == LOCK:
        return _is_lock(path)
    if not CHECKPOINT_NAME.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return False
    if path.suffix == ".tmp":
        return True
    names = npz_names(path)
    if path.name in STATES:
        return "about" in names
    return bool(names) and all(name.startswith(("draws/", "trace/")) for name in names)


def remove_checkpoint(directory: str | os.PathLike) -> None:
    """Delete a checkpoint; a folder that holds anything else stays with it."""
    folder = Path(directory)
    foreign = _foreign_in_checkpoint(folder)
    for path in set(folder.iterdir()).difference(foreign):
        path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


# ---- who writes ---------------------------------------------------------------------------


@contextlib.contextmanager
def hold(directory: str | os.PathLike) -> Iterator[Path]:
    """Make a directory and keep all other runs out of it; the system frees it if we die.

    A directory that was made and stays empty is removed.
    """
    folder = Path(directory)
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_place(folder, error) from error
        with _locked(folder):
            yield folder
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


@contextlib.contextmanager
def held_checkpoint(directory: str | os.PathLike) -> Iterator[Path]:
    """Keep other runs out of a checkpoint folder; refuse files that only look like theirs."""
    _check_folder(Path(directory))
    with hold(directory) as folder:
        for path in _foreign_in_checkpoint(folder):
            if path.name in STATES or path.stem.startswith("part-") or path.suffix == ".tmp":
                raise _in_the_way(path, "run")
        yield folder


def refuse_in_use(directory: str | os.PathLike) -> None:
    """Refuse a directory that a run writes to."""
    folder = Path(directory)
    if os.path.lexists(folder / LOCK):
        with _locked(folder):
            pass


@contextlib.contextmanager
def _locked(folder):
    path = folder / LOCK
    if os.path.lexists(path) and not _is_lock(path):
        raise InputError(f"{path} is in the way: it is no lock of bmfjax; move it away")
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise InputError(_in_use(path, lock)) from None
    except OSError as error:
        raise _no_place(folder, error) from error
    # Where the file system has no locks, filelock has written the same two lines itself.
    soft = isinstance(lock, SoftFileLock)
    try:
        if not soft:
            with contextlib.suppress(OSError):  # they only tell others who we are
                path.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
        yield
    finally:
        if not soft:
            with contextlib.suppress(OSError):  # the lock is what counts, not the file
                path.unlink()
        lock.release()


def _no_place(folder, error):
    return InputError(
        f"{folder} cannot be written to: {error.strerror or error}; give another directory"
    )


def _is_lock(path):
    """Whether a file is a lock: the lines of process and host, or nothing yet."""
    if path.is_symlink() or path.is_dir():
        return False
    try:
        text = b"" if path.stat().st_size > 1000 else path.read_bytes()
        return path.stat().st_size <= 1000 and LOCK_TEXT.fullmatch(text) is not None
    except FileNotFoundError:  # the run that held it has just ended
        return True


def _in_use(path, lock):
    """Who holds a lock, since when, and what to do."""
    who = "another run"
    with contextlib.suppress(OSError, ValueError):
        process, host = path.read_text().splitlines()[:2]
        began = datetime.fromtimestamp(path.stat().st_mtime)
        who = f"process {process} on {host}, since {began:%Y-%m-%d %H:%M:%S},"
    # Without locks of the system, that of a run that died elsewhere stays.
    stale = f"; if that process is gone, delete {path}" if isinstance(lock, SoftFileLock) else ""
    return (
        f"{path.parent} is in use: {who} writes to it; wait for it, stop it, or give another "
        f"directory{stale}"
    )
