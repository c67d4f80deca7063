"""Store a run on disk so that it continues with the same draws, also after a kill.

A folder holds numbered parts (recorded draws and traces, appended) and two states: `state.npz` and
the one before it, `previous.npz`. A state names its parts and their checksums. Every file is
written beside, synced, read back and checked before it takes its place; parts that neither state
names are removed. If the newest state or its last part is damaged, a run continues from the state
before it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.data.io.files import DRAFT, flush, flush_names, written
from bmfjax.data.memory import size_text
from bmfjax.infer.run import ChainRun

NEWEST, PREVIOUS = "state.npz", "previous.npz"
#: Part of the identity: files of another layout are refused.
FORMAT = 2


class _Part(NamedTuple):
    """What steps `first` to `last` recorded."""

    number: int
    first: int
    last: int
    checksum: str


class Stored(NamedTuple):
    """What a checkpoint holds of its run."""

    steps_done: int
    earlier: tuple[int, ...]  # steps of each run before it
    seconds: float
    leaves: list[np.ndarray]  # of the snapshot, each with a leading axis of chains
    recorded: dict[str, dict[str, np.ndarray]]  # (chain, record, ...), as `ChainRun.restore` takes


class DamagedCheckpoint(InputError):
    """No state of a checkpoint is whole."""


class _Damaged(Exception):
    """A file that is missing or is not as it was written."""


class Checkpoint:
    """A folder with the state of one `ChainRun`, or of the last of several that follow each other.

    `identity` holds what must be the same for the draws to be the same: settings, fingerprint of
    the data, versions. `steps_done`, and `earlier`, the steps of each run before this one, are of
    the state that was written or read last.
    """

    def __init__(self, folder: str | os.PathLike, identity: Mapping):
        self.folder = Path(folder)
        self.identity = json.loads(json.dumps({"checkpoint_format": FORMAT, **identity}))
        self._parts: list[_Part] = []
        # Which states are known to be whole and of this run.
        self._whole: set[str] = set()
        self.steps_done: int | None = None
        self.earlier: tuple[int, ...] = ()

    def exists(self) -> bool:
        """Whether there is a state to continue from."""
        return any((self.folder / name).is_file() for name in (NEWEST, PREVIOUS))

    def check_room(self, run: ChainRun) -> None:
        """Refuse a disk without room for the checkpoints of a run: before any work is done."""
        state, draws = run.stored_bytes
        # The two states and the one that is being written; and the draws, which are never less.
        needed = 3 * state + draws
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise InputError(
                f"the checkpoints need {size_text(needed)}, and the disk of {self.folder} has "
                f"{size_text(free)} left; free some of it, or give another folder"
            )

    def write(self, run: ChainRun, earlier: Sequence[int] = ()) -> None:
        """Store what was recorded since the last write, then the state; keep the one before."""
        earlier = tuple(earlier)
        if (earlier, run.steps_done) == (self.earlier, self.steps_done):
            return  # Two states that share their last part would be damaged together.
        snapshot = run.snapshot()  # to which all processes of a mesh add their parts
        if not run.writes:
            self.earlier, self.steps_done = earlier, run.steps_done
            return
        if not self._whole:
            # States of an earlier run must not be read with the parts of this one.
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in (NEWEST, PREVIOUS):
                (self.folder / name).unlink(missing_ok=True)
            flush_names(self.folder.parent)
        old, parts = self._parts, self._parts
        if earlier != self.earlier:
            parts = []  # Of the run before.
        if parts and run.intervals(parts[-1].last) != run.intervals():
            parts = []  # Written again with the draws that are still kept, which are fewer.
        first = parts[-1].last if parts else 0
        if run.steps_done > first:
            number = old[-1].number + 1 if old else 0
            arrays = _flat(run.recorded_between(first, run.steps_done))
            checksum = _put(self._part(number), arrays)
            parts = [*parts, _Part(number, first, run.steps_done, checksum)]
        leaves = {f"leaf-{i}": a for i, a in enumerate(jax.tree.leaves(snapshot))}
        about = {"identity": self.identity, "parts": parts, "steps_done": run.steps_done}
        about |= {"earlier": earlier, "seconds": run.seconds}
        newest, previous = self.folder / NEWEST, self.folder / PREVIOUS
        replaces = previous if NEWEST in self._whole else None
        _put(newest, {"about": np.array(json.dumps(about)), **leaves}, replaces)
        self._whole.add(NEWEST)
        self._parts, self.earlier, self.steps_done = parts, earlier, run.steps_done
        self._tidy({part.number for part in (*old, *parts)})

    def read(self, run_of: Callable[[tuple[int, ...]], ChainRun]) -> ChainRun:
        """Bring a fresh run of the same settings to where the stored one stopped, and return it.

        Where the newest state is damaged, to where the state before it was stored, with a warning.
        ``run_of(earlier)`` makes the fresh run.
        """
        return self._first_whole(lambda name: self._restore(name, run_of))

    def contents(self) -> Stored:
        """Return what is stored; where the newest state is damaged, that of the state before it."""
        return self._first_whole(lambda name: self._stored(name)[0])

    def _first_whole(self, take: Callable[[str], Any]) -> Any:
        """Return what `take` makes of the newest state that is whole, with a warning if need be."""
        if not self.exists():
            raise InputError(f"{self.folder} holds no checkpoint to resume from; fit without it")
        try:
            found = take(NEWEST)
            self._whole = {NEWEST}
        except _Damaged as newest:
            try:
                found = take(PREVIOUS)
            except _Damaged as previous:
                raise self._lost(newest, previous) from previous
            self._whole = {PREVIOUS}
            self.steps_done = None  # as if nothing were stored: it is written again
            warnings.warn(
                f"{newest} is missing or damaged; the fit goes on from the checkpoint before it, "
                f"{found.steps_done} steps, with the same draws",
                stacklevel=3,
            )
        return found

    def _stored(self, name: str) -> tuple[Stored, list[_Part]]:
        """Return what one of the states holds."""
        state = _load(self.folder / name)
        if "about" not in state:
            raise _Damaged(self.folder / name)
        about = json.loads(str(state["about"]))
        self._compare(about["identity"])
        leaves = [state[f"leaf-{i}"] for i in range(sum(n.startswith("leaf-") for n in state))]
        parts = [_Part(*part) for part in about["parts"]]
        recorded: dict[str, dict[str, list]] = {"draws": {}, "trace": {}}
        for part in parts:
            arrays = _load(self._part(part.number), part.checksum)
            for key, array in arrays.items():
                kind, site = key.split("/", 1)
                recorded[kind].setdefault(site, []).append(array)
        joined = {
            kind: {site: np.concatenate(arrays, axis=1) for site, arrays in named.items()}
            for kind, named in recorded.items()
        }
        earlier, seconds = tuple(about.get("earlier", ())), about.get("seconds", 0.0)
        return Stored(about["steps_done"], earlier, seconds, leaves, joined), parts

    def _restore(self, name: str, run_of: Callable[[tuple[int, ...]], ChainRun]) -> ChainRun:
        """Return a run that is brought to one of the states."""
        stored, parts = self._stored(name)
        run = run_of(stored.earlier)
        leaves, structure = jax.tree.flatten(run.snapshot())
        if [np.shape(a) for a in stored.leaves] != [np.shape(a) for a in leaves]:
            raise _Damaged(self.folder / name)
        snapshot = jax.tree.unflatten(structure, stored.leaves)
        run.restore(snapshot, stored.steps_done, stored.recorded)
        run.seconds = stored.seconds
        self._parts, self.earlier, self.steps_done = parts, stored.earlier, run.steps_done
        return run

    def _lost(self, newest: _Damaged, previous: _Damaged) -> DamagedCheckpoint:
        files = dict.fromkeys(Path(str(damaged)).name for damaged in (newest, previous))
        there = [name for name in files if (self.folder / name).exists()]
        what = " and ".join(there or files)
        return DamagedCheckpoint(
            f"the checkpoint in {self.folder} cannot be resumed: {what} "
            f"{'are' if len(there or files) > 1 else 'is'} missing or damaged, and no earlier "
            "checkpoint is whole; start the fit anew (--overwrite in place of --resume, or "
            "resume=False)"
        )

    def _compare(self, stored: dict) -> None:
        for name in sorted(set(stored) | set(self.identity)):
            there, here = stored.get(name), self.identity.get(name)
            if there != here:
                raise InputError(
                    f"the checkpoint in {self.folder} belongs to another fit: {name} is {there} "
                    f"there and {here} here; resume with the same data, options and versions"
                )

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.npz"

    def _tidy(self, needed: set[int]) -> None:
        """Remove parts that neither state names, and what was left half written."""
        names = {self._part(number).name for number in needed}
        for path in self.folder.glob("*"):
            part = path.name.startswith("part-") and path.name not in names
            if part or DRAFT.fullmatch(path.name):
                path.unlink(missing_ok=True)


def _put(path: Path, arrays: dict, moved_to: Path | None = None) -> str:
    """Write a file that is read back before it takes its place; return its checksum.

    The old file is moved to `moved_to`, if given.
    """
    with written([path]) as (draft,):
        np.savez(draft, **arrays)
        flush(draft)
        checksum = _checked(draft)
        if moved_to is not None:
            os.replace(path, moved_to)
    return checksum


def _checked(path: Path) -> str:
    """Read a file back and compare it with the checksums of what was to be written."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as stored:
                whole = stored.testzip() is None
        except zipfile.BadZipFile:
            whole = False
        if not whole:
            raise OSError(errno.EIO, "it could not be read back as it was written", str(path))
        return _checksum(file)


def _checksum(file) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _load(path: Path, checksum: str | None = None) -> dict:
    """The arrays of a file; its checksum is compared where it is known."""
    try:
        # Opened here: NumPy leaves a damaged file open.
        with open(path, "rb") as file:
            if checksum is not None and _checksum(file) != checksum:
                raise _Damaged(path)
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
    except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _Damaged(path) from error


def _flat(recorded: dict) -> dict:
    """``{"draws/usage": array}`` from ``{"draws": {"usage": array}}``."""
    return {f"{kind}/{name}": a for kind, named in recorded.items() for name, a in named.items()}
