"""A fit on disk: one directory of plain records, every file whole or not there.

No file of a user is replaced, and one run writes at a time. Files of a fit are known by their
content, so that those of a run that was killed are known too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, SoftFileLock, Timeout

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, checks
from bmfjax.data.blocks import blocks
from bmfjax.data.io.files import (
    DRAFT,
    OF_FIT,
    check_folder,
    check_new_file,
    naming,
    reason,
    replacing_all,
)
from bmfjax.data.io.npz import matrix_fields, read_stored
from bmfjax.data.io.stored import (
    DamagedFile,
    is_damaged_npz,
    npz_names,
    opened_stored,
    reading_stored,
)
from bmfjax.diagnostics.arviz import datasets, posterior_attributes, stored_groups, write_netcdf
from bmfjax.infer.checkpoint import NEWEST, PREVIOUS

#: What a directory of a fit holds; `probability.npz` only where the record has probabilities.
FILES = ("data.npz", "factors.npz", "posterior.nc", "probability.npz", "summary.json")
#: The draws alone, where `posterior.nc` could not be written.
DRAWS = "posterior.npz"
PAGE = "report.html"
CHECKPOINT = "checkpoint"
LOCK = "bmfjax.lock"
#: The first lines of a page hold it.
PAGE_MARK = '<meta name="generator" content="bmfjax">'
SUMMARY_KEYS = {"verdict", "model", "sampler", "settings", "scalars", "versions"}
POSTERIOR_KEYS = {"verdict", "model", "sampler"}
STATES = (NEWEST, PREVIOUS)
LOCK_TEXT = re.compile(rb"(\d+\n[^\n]*\n(\d+\n)?)?")
CHECKPOINT_NAME = re.compile(r"(state|previous|part-\d+)\.npz")
#: Written first, so that a file that was cut is known too.
MARK = {OF_FIT: np.array(True)}
#: Arrays of a record that are not draws.
FACTORS = re.compile(
    r"(usage|basis)(_sd|_binary)?|agreement|(row|column)_names|anchors|(trace|approximation)_.+|"
    rf".+_effect|(row|column)_attributes_.+|searched_.+|{OF_FIT}",
    re.DOTALL,
)
#: What is drawn, in `DRAWS`.
SITE = re.compile(r"\w+")


# ---- a fit as a record ----------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """A fit as plain values, without what can be computed from its data and draws."""

    data: BinaryMatrix | RealMatrix | Ratings
    #: The texts and numbers of `SUMMARY_KEYS` and more; NaN and infinity are read back as NaN.
    summary: Mapping[str, Any]
    #: Arrays that are not draws, by name: means, rounded factors, agreement, traces.
    factors: Mapping[str, np.ndarray]
    #: Groups of an ArviZ container, by name: the draws in "posterior".
    posterior: Mapping[str, Any]
    #: Probability of a one of every entry, (rows, columns); read back as None.
    probability: np.ndarray | None = None


def write(record: Record, folder: Path) -> list[str]:
    """Write all files of a fit over those of an older one, or leave these as they are.

    Return a sentence on every file that could not be written and that the fit does not need: on
    `posterior.nc`, whose draws are then in a file of NumPy.
    """
    whole = record.probability is not None
    names = [name for name in (DRAWS, *FILES) if whole or name != "probability.npz"]
    # The older fit goes whole, and its summary first: where there is one, files belong together.
    older, absent = [folder / "summary.json", folder / "probability.npz"], []
    if older[0].exists():
        older += [folder / name for name in (PAGE, DRAWS) if is_of_fit(folder / name)]
    with replacing_all([folder / name for name in names], older, absent) as drafts:
        # The folder may have gone while the fit was made, which is no reason to lose the fit.
        with naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
        draft = dict(zip(names, drafts, strict=True))
        _put(draft["data.npz"], matrix_fields(record.data))
        _put(draft["factors.npz"], record.factors)
        failure = _write_draws(record.posterior, draft, folder)
        absent.append(folder / (DRAWS if failure is None else "posterior.nc"))
        if whole:
            values = {"probability": record.probability.astype(np.float32)}
            _put(draft["probability.npz"], values)
        with naming(draft["summary.json"]):
            text = json.dumps(_plain(record.summary), indent=1, allow_nan=False)
            draft["summary.json"].write_text(text + "\n")
        older += [path for path in absent if is_of_fit(path)]
    if failure is None:
        return []
    return [
        f"{absent[0]} was not written ({type(failure).__name__}: {reason(failure)}); the fit is "
        f"stored, with its draws in {DRAWS}, and bmfjax.Fit.load({str(folder)!r})"
        f".save({str(folder)!r}, overwrite=True) writes it"
    ]


def _put(path, arrays):
    with naming(path):
        np.savez_compressed(path, **MARK, **arrays)


def _write_draws(posterior, draft, folder) -> Exception | None:
    """Write the draws as netCDF, or as arrays where that fails; return why it failed."""
    try:
        write_netcdf(posterior, draft["posterior.nc"])
        return None
    # Whatever HDF5 and its libraries raise, such as where a disk has no locks for them.
    except Exception as error:
        if os.path.lexists(folder / DRAWS) and not is_of_fit(folder / DRAWS):
            raise _in_the_way(folder / DRAWS, "fit") from error
        with naming(draft[DRAWS]):
            _write_arrays(posterior["posterior"], draft[DRAWS])
        return error


def _write_arrays(dataset, path) -> None:
    """Write the variables (chain, draw, ...) of a dataset, some draws at a time."""
    np.savez(path, **MARK)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name in dataset:
            variable = dataset[name].variable
            chains, draws, *inner = variable.shape
            about = {"shape": variable.shape, "fortran_order": False}
            about["descr"] = np.lib.format.dtype_to_descr(variable.dtype)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, about)
                for chain in range(chains):
                    for some in blocks(draws, math.prod(inner)):
                        file.write(np.ascontiguousarray(variable[chain, some].values).tobytes())


def _read_draws(folder) -> Mapping[str, Any]:
    """Read what `_write_draws` wrote."""
    if not is_of_fit(folder / DRAWS):
        return stored_groups(folder / "posterior.nc")
    with opened_stored(folder / DRAWS, SITE.fullmatch) as arrays:
        return datasets({name: arrays[name] for name in arrays if name != OF_FIT})


def read(directory: str | os.PathLike) -> Record:
    """Read what `write` wrote; refuse a directory without a fit, and files that are damaged."""
    folder = Path(checks.path_of("directory", directory))
    with refusing_damaged(folder):
        summary, factors = _read_summary(folder), stored_factors(folder / "factors.npz")
        data, posterior = read_stored(folder / "data.npz"), _read_draws(folder)
        if not {"usage", "basis"} <= set(posterior.get("posterior", ())):
            raise DamagedFile(folder / "posterior.nc")
        return Record(data, summary, factors, posterior)


def stored_factors(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a fit that are not draws, by name."""
    with opened_stored(path, FACTORS.fullmatch) as arrays:
        factors = {name: arrays[name] for name in arrays if name != OF_FIT}
    if "agreement" not in factors:
        raise DamagedFile(path)
    return factors


@contextlib.contextmanager
def refusing_damaged(folder: str | os.PathLike) -> Iterator[None]:
    """Refuse a stored fit of which a file is damaged."""
    try:
        yield
    except DamagedFile as error:
        raise InputError(
            f"the fit in {folder} is incomplete or damaged ({error.path.name} {error.said}); "
            "fit again"
        ) from error


def _read_summary(folder):
    """Return the texts and numbers of a fit."""
    path = folder / "summary.json"
    try:
        with reading_stored(path):
            summary = json.loads(path.read_text())
            if not set(summary) >= SUMMARY_KEYS:
                raise DamagedFile(path)
            scalars = {n: math.nan if v is None else v for n, v in summary["scalars"].items()}
            return summary | {"scalars": scalars}
    except DamagedFile as error:
        if not error.is_missing:
            raise
        if not os.path.lexists(folder):
            raise InputError(f"{folder} does not exist; give a directory of bmfjax fit") from None
        raise InputError(
            f"{folder} holds no fit (no summary.json); give a directory of bmfjax fit"
        ) from None


def _plain(value):
    """Turn NumPy scalars into Python's, and numbers that JSON does not know into null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# ---- what is there ------------------------------------------------------------------------


def check_output(
    directory: str | os.PathLike,
    overwrite: bool,
    names: Sequence[str] = (*FILES, CHECKPOINT),
    source: str | os.PathLike | None = None,
) -> None:
    """Refuse a directory that cannot be used: before any work is done, and writing nothing.

    `overwrite` allows to replace files of a fit, and no others; `names` are what will be written or
    deleted; `source` is the file of the data, which is never replaced.
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
    """Return what is in the way at a path: of a folder of checkpoints, the file inside."""
    if path.name != CHECKPOINT or path.is_symlink() or not path.is_dir():
        return path
    return _foreign_in_checkpoint(path)[0]


def _foreign_in_checkpoint(folder):
    """Return files that no run wrote; whole ones vouch for a damaged one beside them."""
    paths = sorted(folder.iterdir())
    other = [path for path in paths if not _is_of_checkpoint(path)]
    known = [path for path in paths if path not in other and not DRAFT.fullmatch(path.name)]
    if any(path.suffix == ".npz" for path in known):
        other = [path for path in other if not _is_damaged(path)]
    return other


def _is_damaged(path):
    """Say whether a file has the name of a checkpoint and is not as it was written."""
    named = CHECKPOINT_NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    return bool(named) and is_damaged_npz(path)


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
    """Say whether a fit wrote a file, or a run its checkpoint, by name and content."""
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
        with reading_stored(path):
            return set(json.loads(path.read_bytes())) >= SUMMARY_KEYS
    except DamagedFile:
        return False


def holds_checkpoint(folder: Path) -> bool:
    """Say whether a run can be resumed from a folder."""
    return any((folder / name).is_file() for name in STATES)


def is_page(path: Path) -> bool:
    """Say whether a file is a page of `write_report`."""
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return PAGE_MARK.encode() in file.read(1000)


def check_page(path: str | os.PathLike, overwrite: bool) -> Path:
    """Refuse a path where a page may not be written; return it as a `Path`."""
    path = Path(checks.path_of("path", path, "file"))
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise InputError(
            f"{path} ends in {path.suffix}, and the page is HTML; give a name that ends in .html "
            "(a browser prints it to PDF)"
        )
    if path.parent.is_dir():
        refuse_in_use(path.parent)
    return check_new_file(path, overwrite, is_page, "page of bmfjax")


def _is_of_checkpoint(path):
    if path.name == LOCK:
        return _is_lock(path)
    draft = DRAFT.fullmatch(path.name)
    name = draft["name"] if draft else path.name
    if not CHECKPOINT_NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
        return False
    if draft:
        return True
    names = npz_names(path)
    if path.name in STATES:
        return "about" in names
    return bool(names) and all(name.startswith(("draws/", "trace/")) for name in names)


def remove_checkpoint(directory: str | os.PathLike) -> None:
    """Delete a checkpoint; a folder that holds anything else stays with it.

    What cannot be deleted stays too: it is no longer needed.
    """
    folder = Path(directory)
    if not folder.is_dir():
        return
    foreign = _foreign_in_checkpoint(folder)
    # The states first: without its parts one would seem damaged.
    own = set(folder.iterdir()).difference(foreign)
    for path in sorted(own, key=lambda path: path.name not in STATES):
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


# ---- who writes ---------------------------------------------------------------------------


@contextlib.contextmanager
def hold(directory: str | os.PathLike) -> Iterator[Path]:
    """Make a directory and keep all other runs out of it; the system frees it if we die.

    Whether files can be locked, synced and renamed there is tried. A directory that was made and
    stays empty is removed.
    """
    folder = Path(directory)
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_place(folder, error) from error
        with _locked(folder):
            check_folder(folder)
            yield folder
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


@contextlib.contextmanager
def opened(directory: str | os.PathLike, overwrite: bool) -> Iterator[Path]:
    """Hold a directory into which a fit may be written, and yield it."""
    check_output(directory, overwrite)
    with hold(directory) as folder:
        check_files(folder, overwrite)
        yield folder


@contextlib.contextmanager
def held_checkpoint(directory: str | os.PathLike) -> Iterator[Path]:
    """Keep other runs out of a checkpoint folder; refuse files that only look like theirs."""
    _check_folder(Path(directory))
    with hold(directory) as folder:
        for path in _foreign_in_checkpoint(folder):
            if path.name in STATES or path.stem.startswith("part-"):
                raise _in_the_way(path, "run")
        yield folder


def refuse_in_use(directory: str | os.PathLike) -> None:
    """Refuse a directory that a run writes to."""
    folder = Path(directory)
    if os.path.lexists(folder / LOCK):
        with _locked(folder):
            pass


def is_in_use(directory: str | os.PathLike) -> bool:
    """Say whether a run writes to a directory; the lock is left as it is."""
    path = Path(directory) / LOCK
    if not path.is_file():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # such as a copy that cannot be written to
        return False
    lock.release()
    return False


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
        # What was done while it was held is done, whatever the system says now.
        with contextlib.suppress(OSError):
            lock.release()


def _no_place(folder, error):
    return InputError(f"{folder} cannot be written to: {reason(error)}; give another directory")


def _is_lock(path):
    """Say whether a file is a lock: the lines of process and host, or nothing yet."""
    if path.is_symlink() or path.is_dir():
        return False
    try:
        text = b"" if path.stat().st_size > 1000 else path.read_bytes()
        return path.stat().st_size <= 1000 and LOCK_TEXT.fullmatch(text) is not None
    except FileNotFoundError:  # the run that held it has just ended
        return True


def _in_use(path, lock):
    """Return the sentence on who holds a lock, since when, and what to do."""
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
