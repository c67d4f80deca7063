"""Store a run on disk so that it continues with the same draws, also after a kill.

A folder holds numbered parts (recorded draws and traces, appended) and one
`state.npz`, replaced in one move, that says how many parts belong to it. A part
that was being written when the process died is not counted and is overwritten.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.infer.driver import ChainRun


class Checkpoint:
    """A folder with the state of one `ChainRun`.

    Parameters
    ----------
    folder : path
        Created when first written.
    identity : mapping
        What must be the same for the draws to be the same: settings, fingerprint
        of the data, versions. Strings and numbers.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp
    >>> from bmfjax.kernels.base import Algorithm
    >>> walk = Algorithm(
    ...     init=lambda key, position, data: jnp.zeros(()),
    ...     step=lambda key, x, data, inverse_temperature=1.0: (x + jax.random.normal(key), None),
    ...     observe=lambda state, info: {"x": state},
    ... )
    >>> def new():
    ...     return ChainRun(walk, jax.random.key(0), None, num_samples=20, draws={"x": 1})
    >>> whole = new()
    >>> whole.finish()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = new()
    ...     _ = first.advance(7)
    ...     Checkpoint(folder, {"seed": 0}).write(first)
    ...     second = new()
    ...     Checkpoint(folder, {"seed": 0}).read(second)
    ...     second.finish()
    >>> bool((second.draws()["x"] == whole.draws()["x"]).all())
    True
    """

    def __init__(self, folder: str | os.PathLike, identity: Mapping):
        self.folder = Path(folder)
        self.identity = json.loads(json.dumps(dict(identity)))
        self._parts: list[tuple[int, int]] = []

    def exists(self) -> bool:
        """Whether there is a state to continue from."""
        return (self.folder / "state.npz").is_file()

    def write(self, run: ChainRun) -> None:
        """Append what was recorded since the last write, then replace the state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self._parts[-1][1] if self._parts else 0
        if not self._parts:
            # The state of an earlier run must not be read with the parts of this one.
            (self.folder / "state.npz").unlink(missing_ok=True)
        if run.steps_done > first:
            arrays = _flat(run.recorded_between(first, run.steps_done))
            self._replace(self._part(len(self._parts)), arrays)
            self._parts.append((first, run.steps_done))
        leaves = {f"leaf-{i}": a for i, a in enumerate(jax.tree.leaves(run.snapshot()))}
        about = {"identity": self.identity, "parts": self._parts, "steps_done": run.steps_done}
        self._replace(self.folder / "state.npz", {"about": np.array(json.dumps(about)), **leaves})

    def read(self, run: ChainRun) -> None:
        """Bring a fresh run of the same settings to where the stored one stopped.

        Raises
        ------
        InputError
            Where nothing is stored, a file is damaged, or the identity differs.
        """
        if not self.exists():
            raise InputError(f"{self.folder} holds no checkpoint to resume from; fit without it")
        state = self._load(self.folder / "state.npz")
        if "about" not in state:
            raise self._damaged(self.folder / "state.npz")
        about = json.loads(str(state["about"]))
        self._compare(about["identity"])
        leaves, structure = jax.tree.flatten(run.snapshot())
        stored = [state.get(f"leaf-{i}") for i in range(len(leaves))]
        if [np.shape(a) for a in stored] != [np.shape(a) for a in leaves]:
            raise self._damaged(self.folder / "state.npz")
        recorded: dict[str, dict[str, list]] = {"draws": {}, "trace": {}}
        for i, (first, last) in enumerate(about["parts"]):
            part = self._load(self._part(i))
            expected = _flat(run.recorded_between(first, last))
            if {n: a.shape for n, a in part.items()} != {n: a.shape for n, a in expected.items()}:
                raise self._damaged(self._part(i))
            for key, array in part.items():
                kind, name = key.split("/", 1)
                recorded[kind].setdefault(name, []).append(array)
        joined = {
            kind: {name: np.concatenate(arrays, axis=1) for name, arrays in named.items()}
            for kind, named in recorded.items()
        }
        run.restore(jax.tree.unflatten(structure, stored), about["steps_done"], joined)
        self._parts = [tuple(part) for part in about["parts"]]

    def _compare(self, stored: dict) -> None:
        for name in sorted(set(stored) | set(self.identity)):
            there, here = stored.get(name), self.identity.get(name)
            if there != here:
                raise InputError(
                    f"the checkpoint in {self.folder} belongs to another fit: {name} is {there} "
                    f"there and {here} here; resume with the same data, options and versions"
                )

    def _part(self, i: int) -> Path:
        return self.folder / f"part-{i:05d}.npz"

    @staticmethod
    def _replace(path: Path, arrays: dict) -> None:
        """Write beside, then move: a reader sees the old file or the new one, never half."""
        beside = path.with_suffix(".tmp")
        with open(beside, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

    @staticmethod
    def _load(path: Path) -> dict:
        try:
            # Opened here: NumPy leaves a damaged file open.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise Checkpoint._damaged(path) from error

    @staticmethod
    def _damaged(path: Path) -> InputError:
        return InputError(
            f"{path} is missing or damaged, so that the fit cannot be resumed; start it anew"
        )


def _flat(recorded: dict) -> dict:
    """``{"draws/usage": array}`` from ``{"draws": {"usage": array}}``."""
    return {f"{kind}/{name}": a for kind, named in recorded.items() for name, a in named.items()}
