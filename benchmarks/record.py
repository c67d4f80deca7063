"""One form for all benchmark records: figures, device, versions, commit, date, code.

The page of a record, a table of its figures, is made with it: see `pages`.
"""

import datetime
import functools
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import jax

from benchmarks.device import processor
from benchmarks.pages import RESULTS, place_of, write_pages
from benchmarks.stale import code_of

PACKAGES = ("bmfjax", "jax", "jaxlib", "numpyro", "arviz", "numpy", "scipy")


#: What a string of a record looks like.
FORMS = {
    "benchmark": r"[\w-]+",
    "command": r"python benchmarks/(?:\w+/)?\w+\.py(?: .*)?",
    "date": r"\d{4}-\d{2}-\d{2}",
    "commit": r"(?:[0-9a-f]{7,}|unknown)(?: with changes)?",
}


@dataclass(frozen=True)
class Record:
    """What every file in `results/` holds; a value of another form is refused.

    The name of the question, the command that makes it again, when and by which code it was made,
    where it ran and with what, what was measured, and the files of bmfjax that drew with a hash of
    each, which older records lack.
    """

    benchmark: str
    command: str
    date: str
    commit: str
    device: dict[str, str | int]
    versions: dict[str, str]
    figures: dict
    code: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for name, form in FORMS.items():
            value = getattr(self, name)
            if not isinstance(value, str) or not re.fullmatch(form, value):
                raise ValueError(f"{name} is {value!r}, which no record has")
        if not {"kind", "platform", "cores", "machine"} <= self.device.keys():
            raise ValueError(f"the device is {self.device}; name kind, platform, cores, machine")
        if not {"python", "bmfjax", "jax"} <= self.versions.keys():
            raise ValueError(f"the versions are {self.versions}; name python, bmfjax and jax")
        if not self.figures:
            raise ValueError("there are no figures")
        for file, own in self.code.items():
            if not re.fullmatch(r"bmfjax/[\w/]+\.py [0-9a-f]{12}", f"{file} {own}"):
                raise ValueError(f"the code has {file!r}: {own!r}, which is no file with its hash")

    @property
    def script(self) -> str:
        """Name of the script that made it."""
        return Path(shlex.split(self.command)[1]).stem


def commit_of() -> str:
    """Return the commit of the code that runs, and whether files differ from it.

    The variable `BMFJAX_COMMIT` says it of a copy of the code, whose repository may know an earlier
    one or be absent.
    """
    if told := os.environ.get("BMFJAX_COMMIT"):
        return told
    try:
        run = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": True}
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **run).stdout.strip()
        # Not the records and their pages: a run writes them.
        code = ["../bmfjax", "*.py", "*.c"]
        dirty = subprocess.run(["git", "status", "--porcelain", *code], **run).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + (" with changes" if dirty else "")


def figures_of(paths) -> list[dict]:
    """Return the figures of records, or of parts of one that several processes have made."""
    return [json.loads(Path(path).read_text())["figures"] for path in paths]


def _command() -> str:
    """As typed, but for where the record went, where files lie and what the record says anyway."""
    words = sys.argv[1:]
    for option in ("--output", "--commit"):
        if option in words:
            place = words.index(option)
            del words[place : place + 2]
    # Files are named, not where they lie on this machine.
    words = [Path(w).name if Path(w).is_absolute() else w for w in words]
    return shlex.join(["python", "benchmarks/" + place_of(Path(sys.argv[0]).name), *words])


def _asked() -> str:
    """The platform that JAX was told to use, by ``--device`` or by the user."""
    return os.environ.get("JAX_PLATFORMS") or "default"


def versions_of(packages) -> dict[str, str]:
    """Return the versions of packages by name."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def write_record(
    name: str,
    figures: dict,
    output: Path | None = None,
    *,
    device: dict | None = None,
    commit: str | None = None,
) -> Path:
    """Write ``<name>.json`` with the figures and where they come from, and the page that shows it.

    `output` is the folder, by default `benchmarks/results`. `device` has its `platform` and `kind`,
    by default those that JAX uses here, and `commit` is that of the code, by default that of the
    repository.
    """
    folder = RESULTS if output is None else Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    if device is None:
        here = jax.devices()[0]
        device = {"platform": here.platform, "kind": here.device_kind}
    about = {"cores": os.cpu_count(), "machine": platform.machine(), "processor": processor()}
    record = Record(
        benchmark=name,
        command=_command(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=commit or commit_of(),
        device={"asked": _asked(), **device, **about},
        versions={"python": platform.python_version()} | versions_of(PACKAGES),
        figures=figures,
        code=code_of(Path(sys.argv[0]).stem),
    )
    path = folder / f"{name}.json"
    path.write_text(json.dumps(vars(record), indent=1) + "\n")
    write_pages(folder, of_record=name)
    return path


# ---- records that were made in parts ---------------------------------------------------------


def join(name: str, records: list[dict]) -> dict:
    """Return a record of several of the same script, commit and device, each a part of it.

    Of an option with several values the command has those of all parts. What is no table must be
    the same in all.
    """
    first, *rest = records
    for key in ("commit", "device", "versions", "code"):
        if any(record.get(key) != first.get(key) for record in rest):
            raise ValueError(f"the parts of {name} differ in their {key}")
    commands = [shlex.split(record["command"]) for record in records]
    if len({words[1] for words in commands}) > 1:
        raise ValueError(f"the parts of {name} are of several scripts")
    return first | {
        "benchmark": name,
        "command": shlex.join(_options_of_all(commands)),
        "date": max(record["date"] for record in records),
        "figures": functools.reduce(_merged, (record["figures"] for record in records)),
    }


def write_joined(name: str, paths, figures: dict, output: Path | None = None) -> Path:
    """Write a record of parts by what the caller makes of their figures, and where each was made.

    Parts may be of several commits and machines: the record is of those of the first.
    """
    records = [json.loads(Path(path).read_text()) for path in paths]
    parts = [
        {
            "part": record["benchmark"], "command": record["command"], "commit": record["commit"],
            "cores": record["device"]["cores"], "jax": record["versions"]["jax"],
        }
        for record in records
    ]  # fmt: skip
    folder = RESULTS if output is None else Path(output)
    own = {"benchmark": name, "figures": figures | {"parts": parts}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(vars(Record(**records[0] | own)), indent=1) + "\n")
    write_pages(folder, of_record=name)
    return path


def _merged(one, other, place: str = "figures"):
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            name: _merged(one[name], other[name], f"{place}, {name}")
            if name in one and name in other
            else one.get(name, other.get(name))
            for name in one | other
        }
    if one != other:
        raise ValueError(f"{place} differ: {one} and {other}")
    return one


def _options_of_all(commands: list[list[str]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for words in commands:
        option = ""
        for word in words:
            if word.startswith("--"):
                option = word
            values = found.setdefault(option, [])
            if word != option and word not in values:
                values.append(word)
    return [word for option, values in found.items() for word in (option, *values) if word]
