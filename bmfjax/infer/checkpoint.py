"""Store a run on disk so that it continues with the same draws, also after a kill.

A folder holds numbered parts (recorded draws and traces, appended) and two states: `state.npz` and
the one before it, `previous.npz`. A state names its parts and their checksums. Every file is
written beside, synced, read back and checked before it takes its place, and no part is written
over; parts that neither state names are removed. If the newest state or its last part is damaged,
a run continues from the state before it.

What is there is looked up before every write: a write may have failed half way, or the folder may
have gone. A write that fails costs itself alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.data.io.files import DRAFT, flush, naming, written
from bmfjax.data.io.stored import DamagedFile, opened_stored, reading_stored
from bmfjax.data.memory import size_text
from bmfjax.infer.run import ChainRun
from bmfjax.infer.search_ends import SearchEnds

NEWEST, PREVIOUS = "state.npz", "previous.npz"
#: Part of the identity: files of another layout are refused.
FORMAT = 2
SEARCHED = "searched-"
LEAF = re.compile(r"about|leaf-\d+|searched-\w+")
RECORDED = re.compile(r"(draws|trace)/.+", re.DOTALL)


class _Part(NamedTuple):
    """What steps `first` to `last` recorded."""

    number: int
    first: int
    last: int
    checksum: str


class _About(NamedTuple):
    """What a state says of itself; two states that say the same are the same."""

    steps_done: int
    earlier: tuple[int, ...]
    parts: tuple[_Part, ...]

    @property
    def place(self) -> tuple[tuple[int, ...], int]:
        """Where in the work it was stored: the runs before, and the steps of this one."""
        return self.earlier, self.steps_done


class Stored(NamedTuple):
    """What a checkpoint holds of its run."""

    steps_done: int
    earlier: tuple[int, ...]  # steps of each run before it
    seconds: float
    num_starts: int
    leaves: list[np.ndarray]  # of the snapshot, each with a leading axis of chains
    recorded: dict[str, dict[str, np.ndarray]]  # (chain, record, ...), as `ChainRun.restore` takes
    search_ends: SearchEnds | None = None


class DamagedCheckpoint(InputError):
    """No state of a checkpoint is whole."""


class Checkpoint:
    """A folder with the state of one `ChainRun`, or of the last of several that follow each other.

    `identity` holds what must be the same for the draws to be the same: settings, fingerprint of
    the data, versions. `steps_done`, and `earlier`, the steps of each run before this one, are of
    the newest state that is there of this run, None and () where there is none.
    """

    def __init__(self, folder: str | os.PathLike, identity: Mapping):
        self.folder = Path(folder)
        self.identity = json.loads(json.dumps({"checkpoint_format": FORMAT, **identity}))
        # States of this run that were read back whole, wherever they are now.
        self._whole: set[_About] = set()
        self.steps_done: int | None = None
        self.earlier: tuple[int, ...] = ()
        #: Whether the last write failed.
        self.failed = False

    def exists(self) -> bool:
        """Tell whether there is a state to continue from."""
        return any((self.folder / name).is_file() for name in (NEWEST, PREVIOUS))

    def check_room(self, run: ChainRun) -> None:
        """Refuse a disk without room for the checkpoints of a run: before any work is done."""
        state, draws = run.stored_bytes
        # The two states and the one that is being written; and the draws, which are never less.
        needed = 3 * state + draws
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:  # a system that does not say
            return
        if needed > free:
            raise InputError(
                f"the checkpoints need {size_text(needed)}, and the disk of {self.folder} has "
                f"{size_text(free)} left; free some of it, or give another folder"
            )

    def write(self, run: ChainRun, earlier: Sequence[int] = ()) -> None:
        """Store what was recorded since the last write, then the state; keep the one before.

        Raises
        ------
        OSError
            Where it cannot be stored. The states that were there are there still, and `steps_done`
            is of the newest of them.
        """
        snapshot = run.snapshot()  # to which all processes of a mesh add their parts
        if not run.writes:
            self.earlier, self.steps_done = tuple(earlier), run.steps_done
            return
        self.failed = True
        try:
            self._write(run, tuple(earlier), jax.tree.leaves(snapshot))
            self.failed = False
        finally:
            held = self._held()
            self.earlier, self.steps_done = _newest(held).place if held else ((), None)

    def _write(self, run: ChainRun, earlier: tuple[int, ...], leaves: list[np.ndarray]) -> None:
        held = self._held()
        if NEWEST in held and held[NEWEST].place == (earlier, run.steps_done):
            return  # Two states that share their last part would be damaged together.
        self.folder.mkdir(parents=True, exist_ok=True)
        parts = _newest(held).parts if held else ()
        if held and _newest(held).earlier != earlier:
            parts = ()  # They are of the run before.
        if parts and run.intervals(parts[-1].last) != run.intervals():
            parts = ()  # Written again with the draws that are still kept, which are fewer.
        first = parts[-1].last if parts else 0
        if run.steps_done > first:
            number = self._unused_number()
            arrays = _flat(run.recorded_between(first, run.steps_done))
            checksum = _put(self._part(number), arrays)
            parts = (*parts, _Part(number, first, run.steps_done, checksum))
        about = _About(run.steps_done, earlier, parts)
        text = {"identity": self.identity, **about._asdict()}
        text |= {"seconds": run.seconds, "num_starts": run.num_starts}
        arrays = {"about": np.array(json.dumps(text))}
        arrays |= {f"leaf-{i}": leaf for i, leaf in enumerate(leaves)}
        if run.search_ends is not None:
            arrays |= run.search_ends.arrays(SEARCHED)
        # Whole by the time it has a name, even if the system then says that it has none.
        self._whole.add(about)
        kept = held.get(PREVIOUS)
        if NEWEST in held:
            _put(self.folder / NEWEST, arrays, moved_to=self.folder / PREVIOUS)
            kept = held[NEWEST]
        else:
            _put(self.folder / NEWEST, arrays)
        self._tidy(about, kept)

    def _held(self) -> dict[str, _About]:
        """Return the states of this run that are there, with all their parts, by their names."""
        found = {}
        for name in (NEWEST, PREVIOUS):
            with contextlib.suppress(InputError):
                about = _read_state(self.folder / name)[1]
                there = all(self._part(part.number).is_file() for part in about.parts)
                if about in self._whole and there:
                    found[name] = about
        return found

    def read(self, run_of: Callable[[tuple[int, ...]], ChainRun]) -> ChainRun:
        """Bring a fresh run of the same settings to where the stored one stopped, and return it.

        Where the newest state is damaged, to where the state before it was stored, with a warning.
        ``run_of(earlier)`` makes the fresh run.
        """
        run, stored = self._first_whole(lambda name: self._restore(name, run_of))
        self.earlier, self.steps_done = stored.earlier, stored.steps_done
        return run

    def contents(self) -> Stored:
        """Return what is stored; where the newest state is damaged, that of the state before it."""
        return self._first_whole(lambda name: (None, self._stored(name)))[1]

    def _first_whole(self, take: Callable[[str], tuple[Any, Stored]]) -> tuple[Any, Stored]:
        """Return what `take` makes of the newest state that is whole, with a warning if need be."""
        if not self.exists():
            raise InputError(f"{self.folder} holds no checkpoint to resume from; fit without it")
        try:
            return take(NEWEST)
        except DamagedFile as newest:
            try:
                made, stored = take(PREVIOUS)
            except DamagedFile as previous:
                raise self._lost(newest, previous) from previous
            warnings.warn(
                f"{newest.path} is missing or damaged; the fit goes on from the checkpoint before "
                f"it, {stored.steps_done} steps, with the same draws",
                stacklevel=4,
            )
            return made, stored

    def _stored(self, name: str) -> Stored:
        """Return what one of the states holds."""
        path = self.folder / name
        state = _load(path, LEAF)
        with reading_stored(path):
            identity, about, *of_run = _said(state["about"])
        self._compare(identity)
        with reading_stored(path):
            number = sum(name.startswith("leaf-") for name in state)
            leaves = [state[f"leaf-{i}"] for i in range(number)]
            ends = SearchEnds.of_arrays(state, SEARCHED)
        recorded: dict[str, dict[str, list]] = {"draws": {}, "trace": {}}
        for part in about.parts:
            for key, array in _load(self._part(part.number), RECORDED, part.checksum).items():
                kind, site = key.split("/", 1)
                recorded[kind].setdefault(site, []).append(array)
        with reading_stored(path):
            joined = {
                kind: {site: np.concatenate(arrays, axis=1) for site, arrays in named.items()}
                for kind, named in recorded.items()
            }
        self._whole.add(about)
        return Stored(about.steps_done, about.earlier, *of_run, leaves, joined, ends)

    def _restore(self, name: str, run_of: Callable[[tuple[int, ...]], ChainRun]) -> tuple:
        """Return a run that is brought to one of the states, and what was stored."""
        stored = self._stored(name)
        run = run_of(stored.earlier)
        leaves, structure = jax.tree.flatten(run.snapshot())
        fits = [_form(a) for a in stored.leaves] == [_form(a) for a in leaves]
        if stored.steps_done > 0:
            fits = fits and _forms(stored.recorded) == _forms(run.recorded_between(0, 0))
        if not fits:
            raise DamagedFile(self.folder / name)
        with reading_stored(self.folder / name):
            snapshot = jax.tree.unflatten(structure, stored.leaves)
            run.restore(snapshot, stored.steps_done, stored.recorded)
        run.seconds, run.num_starts = stored.seconds, stored.num_starts
        run.search_ends = stored.search_ends
        return run, stored

    def _lost(self, newest: DamagedFile, previous: DamagedFile) -> DamagedCheckpoint:
        files = dict.fromkeys(damaged.path.name for damaged in (newest, previous))
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

    def _unused_number(self) -> int:
        """Return the number of a part that is not there: no state of another run may name it."""
        numbers = (path.stem.removeprefix("part-") for path in self.folder.glob("part-*.npz"))
        return max((int(number) for number in numbers if number.isdecimal()), default=-1) + 1

    def _tidy(self, newest: _About, previous: _About | None) -> None:
        """Remove what is of neither state: parts, what was left half written, an older state."""
        states = [about for about in (newest, previous) if about is not None]
        needed = {self._part(part.number) for about in states for part in about.parts}
        # What cannot be removed now is removed after the next write.
        with contextlib.suppress(OSError):
            if previous is None:
                (self.folder / PREVIOUS).unlink(missing_ok=True)
            for path in self.folder.glob("*"):
                part = path.name.startswith("part-") and path not in needed
                if part or DRAFT.fullmatch(path.name):
                    path.unlink(missing_ok=True)


def identity_in(folder: str | os.PathLike) -> dict:
    """Return the identity that the states of a checkpoint say, {} where none can be read."""
    for name in (NEWEST, PREVIOUS):
        with contextlib.suppress(InputError):
            return _read_state(Path(folder) / name)[0]
    return {}


def _read_state(path: Path) -> tuple[dict, _About, float, int]:
    """Return what a state says, as `_said` does."""
    # Opened here: NumPy leaves a damaged file open.
    with reading_stored(path), open(path, "rb") as file, np.load(file) as state:
        return _said(state["about"])


def _newest(held: dict[str, _About]) -> _About:
    """Return the newest of the states that are there."""
    return held[NEWEST] if NEWEST in held else held[PREVIOUS]


def _said(text: np.ndarray) -> tuple[dict, _About, float, int]:
    """Return identity, what a state says of itself, and of the run; raise ValueError at nonsense.

    What it says of the run are its seconds, and the number of its starts.
    """
    said = json.loads(str(text))
    parts = tuple(_Part(*part) for part in said["parts"])
    about = _About(said["steps_done"], tuple(said["earlier"]), parts)
    numbers = [about.steps_done, *about.earlier, *(n for part in parts for n in part[:3])]
    ends = [0, *(part.last for part in parts)]
    whole = all(type(n) is int for n in numbers) and [part.first for part in parts] == ends[:-1]
    if not (whole and ends[-1] == about.steps_done and isinstance(said["identity"], dict)):
        raise ValueError
    return said["identity"], about, float(said["seconds"]), int(said["num_starts"])


def _form(array: np.ndarray) -> tuple:
    return np.shape(array), np.asarray(array).dtype


def _forms(recorded: dict) -> dict:
    """Return what is the same of recorded arrays (chain, record, ...) however many there are."""
    return {name: _form(np.asarray(array)[:, :0]) for name, array in _flat(recorded).items()}


def _put(path: Path, arrays: dict, moved_to: Path | None = None) -> str:
    """Write a file that is read back before it takes its place; return its checksum.

    The old file is moved to `moved_to`, if given.
    """
    with naming(path), written([path]) as (draft,):
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
        except OSError:
            raise
        except Exception:  # a single bit decides which of a dozen classes zipfile raises
            whole = False
        if not whole:
            raise OSError(errno.EIO, "it could not be read back as it was written", str(path))
        return _checksum(file)


def _checksum(file) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _load(path: Path, known: re.Pattern, checksum: str | None = None) -> dict:
    """Return the arrays of a file; its checksum is compared where it is known."""
    if checksum is not None:
        with reading_stored(path), open(path, "rb") as file:
            if _checksum(file) != checksum:
                raise DamagedFile(path)
    with opened_stored(path, known.fullmatch) as stored:
        return {name: stored[name] for name in stored}


def _flat(recorded: dict) -> dict:
    """``{"draws/usage": array}`` from ``{"draws": {"usage": array}}``."""
    return {f"{kind}/{name}": a for kind, named in recorded.items() for name, a in named.items()}
