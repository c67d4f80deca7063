"""Chains that run apart, in processes that do not talk to each other, and are merged afterwards.

A folder `chains` holds what was asked for, `request.json` with its arrays and the data beside it,
and for each process a folder with the checkpoint of its chains, such as `3` or `3-4`. What was
asked for is the same for all of them: whoever comes first writes it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bmfjax.data import InputError
from bmfjax.data.anchors import Anchors
from bmfjax.data.attributes import AttributeTable
from bmfjax.data.io.files import OF_FIT, replacing_all
from bmfjax.data.io.npz import matrix_fields, read_stored
from bmfjax.data.io.stored import DamagedFile, opened_stored, reading_stored
from bmfjax.errors import checking_call, kind_of
from bmfjax.families import FAMILIES
from bmfjax.families.base import Chains, Problem
from bmfjax.families.sampling import identity
from bmfjax.infer.checkpoint import Checkpoint, DamagedCheckpoint, Stored
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.models.by_name import from_name, named
from bmfjax.result import Fit
from bmfjax.specs import sampler_of
from bmfjax.store import MARK, holds_checkpoint, is_in_use, is_of_fit

CHAINS = "chains"
REQUEST, DATA, ARRAYS = "request.json", "data.npz", "arrays.npz"
#: A folder of chains: their numbers.
PLACE = re.compile(r"\d+(-\d+)*")
#: Names in `ARRAYS`.
ARRAY = re.compile(rf"array-\d+|{OF_FIT}")
#: Fields of a `Problem` that are plain values.
PLAIN = (
    "rank",
    "num_chains",
    "num_warmup",
    "num_samples",
    "seed",
    "finds_rank",
)
#: What was given for the model, the start and the sampler, which may be arrays.
GIVEN = ("priors", "init", "sampler_options")


def check_apart(problem: Problem, chains: Chains) -> None:
    """Refuse to run some chains alone where they need to know of each other while they run."""
    if not chains.independent:
        raise InputError(
            f"sampler {problem.sampler.name!r} of model {problem.model.name!r} ends when all "
            "chains are done, and chains that run apart do not know of each other; leave chains "
            "(--chain) out"
        )


def place_of(
    problem: Problem,
    chains: Chains,
    folder: str | os.PathLike,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> tuple[Path, bool]:
    """Return where the chains of a problem go, and whether they go on from what is stored there.

    What was asked for is written beside them. Processes that start at the same moment all write it,
    each file at once and with the same content: none waits for another.

    Raises
    ------
    InputError
        Where the chains need to know of each other while they run; where the folder holds chains of
        another fit, other files, or these chains without `resume` or `overwrite`; where a prior or
        an option cannot be written.
    """
    check_apart(problem, chains)
    top = Path(folder) / CHAINS
    whole, names = _shared(problem, chains), (DATA, ARRAYS, REQUEST)
    if (top / REQUEST).exists():
        _compare(top, whole)
    if not all((top / name).is_file() for name in names):
        _check_free(top)
        _write(top, problem, whole)
        _compare(top, whole)  # another fit may have begun at the same moment
    place = top / "-".join(str(c) for c in problem.chain_numbers)
    stored = holds_checkpoint(place)
    if stored and not (resume or overwrite):
        raise InputError(
            f"{place} already holds chains; go on with them by resume=True (--resume), or begin "
            "anew in another folder (or by --overwrite)"
        )
    return place, resume and stored


def check_merge(folder: str | os.PathLike, output: str | os.PathLike) -> None:
    """Refuse a folder without chains, and to write a fit among them."""
    top = Path(folder) / CHAINS
    _read_json(top)
    if Path(output).resolve().is_relative_to(top.resolve()):
        raise InputError(f"{output} is where the chains are; give another directory")


def data_of(folder: str | os.PathLike) -> Path:
    """Return the file in which chains that ran apart keep their data."""
    return Path(folder) / CHAINS / DATA


@checking_call
def merge(folder: str | os.PathLike, *, missing: bool = False) -> Fit:
    """Merge chains that ran apart into the fit that they would have been in one run.

    Parameters
    ----------
    folder : path
        The `checkpoint` of ``bmfjax.fit(..., chains=[...])``, or the ``--output`` of
        ``bmfjax fit --chain``: a folder that all processes could write to, or into which theirs
        were copied.
    missing : bool
        Leave out chains that are not there or not complete. Otherwise they are an error, which
        names them.

    Returns
    -------
    Fit
        With the draws, figures and verdict of one run with as many chains; on CPUs of one kind bit
        for bit. Its `seconds` are those of the slowest process.

    Raises
    ------
    InputError
        Where the folder holds no chains, where chains are missing, not complete, or still running,
        where a chain is there twice, and where files are damaged or of other versions.

    Notes
    -----
    Names of rows and columns are those of the process that came first.

    Examples
    --------
    >>> import bmfjax, numpy as np, tempfile
    >>> data = np.kron(np.eye(2), np.ones((8, 5)))
    >>> folder = tempfile.mkdtemp()
    >>> for chain in (1, 2):  # in processes of their own
    ...     part = bmfjax.fit(
    ...         data, bmfjax.OrMachine(2), chains=[chain], num_chains=2, num_warmup=300,
    ...         num_samples=200, checkpoint=folder, progress=False,
    ...     )
    >>> fit = bmfjax.merge(folder)
    >>> fit.figures.num_chains, fit.summary()[["rows", "columns"]].to_numpy().tolist()
    (2, [[8, 5], [8, 5]])
    """
    check_fork()
    top = Path(folder) / CHAINS
    problem = _read(top)
    chains = problem.chains()
    found, lacking = _complete(top, problem, chains)
    if lacking and not missing:
        raise InputError(
            f"{top} lacks {'; '.join(lacking)}. Run or resume these, or leave them out with "
            "missing=True (--missing)"
        )
    if not found:
        raise InputError(f"no chain in {top} is complete: {'; '.join(lacking)}")
    numbers = tuple(sorted(found))
    if len(numbers) < problem.num_chains:
        problem = replace(problem, chain_numbers=numbers)
        chains = problem.chains()
    run = chains.run(problem, resume=True)
    try:
        with reading_stored(top):
            _restore(run, [found[c] for c in numbers])
    except DamagedFile as error:
        raise InputError(
            f"the checkpoints in {top} do not fit together; run the chains again in another folder"
        ) from error
    return problem.family.result(problem.of_result, chains, run)


def _restore(run, stored) -> None:
    """Bring a run of all chains to where each of them ended; `stored` has (chain's place, its)."""
    structure = jax.tree.structure(run.snapshot())
    leaves = [
        np.concatenate([part.leaves[n][at : at + 1] for at, part in stored])
        for n in range(structure.num_leaves)
    ]
    recorded = {
        kind: {
            name: np.concatenate([part.recorded[kind][name][at : at + 1] for at, part in stored])
            for name in named_arrays
        }
        for kind, named_arrays in stored[0][1].recorded.items()
    }
    run.restore(jax.tree.unflatten(structure, leaves), stored[0][1].steps_done, recorded)
    run.seconds = max(part.seconds for _, part in stored)
    run.num_starts, run.search_ends = stored[0][1].num_starts, stored[0][1].search_ends


# ---- the chains that are there --------------------------------------------------------------


def _complete(top: Path, problem: Problem, chains: Chains) -> tuple[dict, list[str]]:
    """Return the complete chains, {number: (place in its part, part)}, and what else there is."""
    steps = chains.num_warmup + chains.num_samples
    found: dict[int, tuple[int, Stored]] = {}
    unfinished: dict[int, str] = {}
    for place in sorted(p for p in top.iterdir() if p.is_dir() and PLACE.fullmatch(p.name)):
        numbers = [int(c) for c in place.name.split("-")]
        said, part = _part(place, numbers, problem, chains)
        for at, c in enumerate(numbers):
            if c in found and part is not None:
                raise InputError(
                    f"chain {c} is in two folders of {top}; delete the one that is not wanted"
                )
            if part is not None and part.steps_done == steps:
                found[c] = (at, part)
            else:
                unfinished[c] = said or f"{part.steps_done:,} of {steps:,} steps are done"
    lacking = [
        f"chain {c} ({unfinished.get(c, 'not there')})"
        for c in range(1, problem.num_chains + 1)
        if c not in found
    ]
    return found, lacking


def _part(place, numbers, problem, chains) -> tuple[str, Stored | None]:
    """Return what a process has stored; if nothing can be read, why."""
    if is_in_use(place):
        return "it is still running", None
    if not holds_checkpoint(place):
        return "no step is stored", None
    store = Checkpoint(place, identity(problem, chains) | {"chains": numbers})
    try:
        return "", store.contents()
    except DamagedCheckpoint:
        return "its checkpoint is damaged", None


# ---- what was asked for ---------------------------------------------------------------------


def _shared(problem: Problem, chains: Chains) -> dict:
    """Return what must be the same of all chains, as it is written."""
    whole = {n: v for n, v in identity(problem, chains).items() if n != "chains"}
    return json.loads(json.dumps(whole))


def _compare(top, whole) -> None:
    there = _read_json(top)["identity"]
    for name in sorted(there.keys() | whole.keys()):
        if there.get(name) != whole.get(name):
            raise InputError(
                f"{top} holds chains of another fit: {name} is {there.get(name)} there and "
                f"{whole.get(name)} here; give the same data and options, or another folder (or "
                f"delete {top}, with all its chains)"
            )


def _check_free(top) -> None:
    """Refuse files that are in the way, and make the folder."""
    for path in (top / DATA, top / ARRAYS):
        if os.path.lexists(path) and not is_of_fit(path):
            raise InputError(
                f"{path} is in the way: no fit wrote it, so it is not replaced; move it away, or "
                "give another folder"
            )
    try:
        top.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{top} cannot be written to: {error.strerror or error}; give another folder"
        ) from error


def _write(top, problem: Problem, whole: dict) -> None:
    arrays: dict[str, np.ndarray] = {}
    about = {"identity": whole, **{n: getattr(problem, n) for n in PLAIN}}
    about |= {"model": problem.model.name, "sampler": problem.sampler.name}
    about["rank_is_default"] = problem.rank_is_default
    given = problem.given_priors, problem.init, dict(problem.options)
    about |= {n: _plain(n, v, arrays) for n, v in zip(GIVEN, given, strict=True)}
    if problem.anchors is not None:
        about["anchors"] = _plain("anchors", tuple(problem.anchors), arrays)
    about["attributes"] = {
        side: _plain(f"{side}_attributes", tuple(table), arrays)
        for side, table in problem.attributes.items()
    }
    # One at a time: several are moved aside before new ones come, and another process would miss
    # them.
    with replacing_all([top / DATA]) as (data,):
        np.savez_compressed(data, **MARK, **matrix_fields(problem.data))
    with replacing_all([top / ARRAYS]) as (kept,):
        np.savez_compressed(kept, **MARK, **arrays)
    with replacing_all([top / REQUEST]) as (text,):
        text.write_text(json.dumps(about, indent=1, default=lambda value: value.item()) + "\n")


def _read_json(top) -> dict:
    try:
        with reading_stored(top / REQUEST):
            about = json.loads((top / REQUEST).read_text())
            if not isinstance(about["identity"], dict):
                raise DamagedFile(top / REQUEST)
            return about
    except DamagedFile as error:
        if not top.parent.exists():
            raise InputError(f"{top.parent} does not exist; check the path") from None
        if error.is_missing:
            raise InputError(
                f"{top.parent} holds no chains that ran apart; give the folder of bmfjax fit "
                "--chain, or the checkpoint of bmfjax.fit(..., chains=[...])"
            ) from None
        raise InputError(
            f"{top / REQUEST} is damaged, or no fit wrote it; move it away and run the chains again"
        ) from error


def _read(top) -> Problem:
    """Return the problem of all chains."""
    about = _read_json(top)
    try:
        with opened_stored(top / ARRAYS, ARRAY.fullmatch) as stored:
            arrays = {n: stored[n] for n in stored}
        data = read_stored(top / DATA)
        with reading_stored(top / REQUEST):
            return _problem(about, data, arrays)
    except DamagedFile as error:
        raise InputError(
            f"what was asked for in {top} is incomplete or damaged ({error.path.name} "
            f"{error.said}); run one of the chains again, which writes it anew"
        ) from error


def _problem(about, data, arrays) -> Problem:
    """Return the problem that `_write` wrote."""
    given = {n: _value(about[n], arrays) for n in GIVEN}
    anchors = Anchors(*_value(about["anchors"], arrays)) if "anchors" in about else None
    attributes = {
        side: AttributeTable(*_value(table, arrays))
        for side, table in about.get("attributes", {}).items()
    }
    if data.fingerprint() != about["identity"]["data"]:
        raise ValueError
    plain = {n: about[n] for n in PLAIN}
    family = FAMILIES[about["model"]]
    kind = family.models[about["model"]]
    return Problem(
        family,
        data,
        model=kind(**(given["priors"] or {})),
        sampler=sampler_of(about["sampler"], kind, **(given["sampler_options"] or {})),
        init=given["init"],
        anchors=anchors,
        attributes=attributes,
        rank_is_default=about.get("rank_is_default", False),
        **plain,
    )


def _plain(name: str, value: Any, arrays: dict) -> Any:
    """Return a value as JSON has it; arrays go to `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {"mapping": {str(n): _plain(f"{name} {n!r}", v, arrays) for n, v in value.items()}}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_plain(name, v, arrays) for v in value]}
    if hasattr(value, "arg_constraints"):
        kind, arguments = named(value)
        return {"distribution": kind, "arguments": _plain(name, arguments, arrays)}
    if isinstance(value, np.generic):
        return _plain(name, value.item(), arrays)
    if isinstance(value, np.ndarray | jax.Array) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "biufUS":
            arrays[key := f"array-{len(arrays)}"] = array
            return {"array": key}
    raise InputError(
        f"{name} is {kind_of(value)}, which cannot be written to a file; chains that run "
        "apart take numbers, texts, arrays and distributions of NumPyro"
    )


def _value(plain: Any, arrays: Mapping) -> Any:
    """Return the value that `_plain` wrote."""
    if not isinstance(plain, Mapping):
        return plain
    if "mapping" in plain:
        return {n: _value(v, arrays) for n, v in plain["mapping"].items()}
    if "array" in plain:
        return arrays[plain["array"]]
    if "distribution" in plain:
        return from_name(plain["distribution"], _value(plain["arguments"], arrays))
    kind = tuple if "tuple" in plain else list
    return kind(_value(v, arrays) for v in plain["tuple" if kind is tuple else "list"])
