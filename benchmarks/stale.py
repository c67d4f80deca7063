"""Which code a record measured, and how far it has changed since.

That code is what draws: the kernels, models and runs of bmfjax that the script imports, and those
that these import in turn. `bmfjax.fit` runs all models; of these count the ones that the script
names.
"""

import ast
import functools
import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.pages import HERE, scripts
from bmfjax.families import FAMILIES

ROOT = HERE.parent
#: Rooms of bmfjax that draw.
DRAWING = {"infer", "kernels", "models", "optimize", "variational"}
#: What runs any model.
FITTING = {"families", "fitting.py"}


def files_of(script: str) -> list[str]:
    """Return the files of bmfjax that draw where a script runs, relative to the repository."""
    own = _reached([scripts()[script]], lambda room, rest: room == "benchmarks" and len(rest) == 2)
    used = {path for one in own for path in _imports(one)} - own
    if any(_room(path)[0] == "bmfjax" and _room(path)[1] in FITTING for path in used):
        used |= _models_of("\n".join(path.read_text() for path in sorted(own)))
    drawing = _reached(used, lambda room, rest: room == "bmfjax" and rest[0] in DRAWING)
    return sorted(path.relative_to(ROOT).as_posix() for path in drawing)


def _models_of(text: str) -> set[Path]:
    """Return the files of families whose models a text names, or of all where it names none."""
    words = set(re.findall(r"\w+", text))
    named = {
        name for name, family in FAMILIES.items()
        if f'"{name}"' in text or family.models[name].__name__ in words
    }  # fmt: skip
    modules = {type(FAMILIES[name]).__module__ for name in named or FAMILIES}
    families = _reached(
        (ROOT.joinpath(*module.split(".")).with_suffix(".py") for module in modules),
        lambda room, rest: rest[0] == "families" and rest[-1] != "__init__.py",
    )
    return {path for family in families for path in _imports(family)}


def _reached(starts: Iterable[Path], goes_on: Callable[..., bool]) -> set[Path]:
    """Return the files that imports lead to, through such files alone."""
    seen: set[Path] = set()
    left = list(starts)
    while left:
        path = left.pop()
        room, *rest = _room(path)
        if path not in seen and goes_on(room, rest):
            seen.add(path)
            left += _imports(path)
    return seen


def _room(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).parts


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def _imports(path: Path) -> set[Path]:
    """Return the files of the repository that a file imports by name, or by ``bmfjax.NAME``."""
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {_file(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(_file(ast.unparse(node.value), node.attr))
    return found - {None, ROOT / "bmfjax" / "__init__.py"}


@functools.cache
def _file(module: str, name: str) -> Path | None:
    """Return the file in which a name stands, through the packages that only pass it on."""
    if module.split(".")[0] not in ("bmfjax", "benchmarks"):
        return None
    place = ROOT.joinpath(*module.split("."))
    own = [(place / name).with_suffix(".py"), place / name / "__init__.py"]
    own += [place.with_suffix(".py"), place / "__init__.py"]
    path = next((p for p in own if p.exists()), None)
    if path == own[-1]:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("bmfjax"):
                for alias in node.names:
                    if name == (alias.asname or alias.name):
                        return _file(node.module, alias.name)
    return path


@functools.cache
def hashed(file: str) -> str:
    """Return a hash of a file of the repository; none where there is no such file."""
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.exists() else ""


def code_of(script: str) -> dict[str, str]:
    """Return the hashes of the files that draw where a script runs; nothing for no script here."""
    return {file: hashed(file) for file in files_of(script)} if script in scripts() else {}


# ---- what has changed -----------------------------------------------------------------------


def changed(script: str, commit: str, code: dict[str, str]) -> dict[str, int] | None:
    """Return how many lines of the files of a record have changed since; None for unknown.

    Comments count too, and all lines of a file whose earlier text the repository does not have.
    """
    lines = changed_lines(commit.split()[0])
    if code:
        differing = [file for file, own in code.items() if hashed(file) != own]
        return {file: n for file in differing if (n := (lines or {}).get(file, _length(file)))}
    if lines is None or script not in scripts():
        return None
    return {file: lines[file] for file in files_of(script) if lines.get(file)}


@functools.cache
def changed_lines(commit: str) -> dict[str, int] | None:
    """Return how many lines of each file of bmfjax were added or taken away since a commit."""
    told = _git("diff", "--numstat", "-M", "-z", commit, "--", "bmfjax/*.py")
    if told is None:
        return None
    found, words = {}, iter(told.split("\0")[:-1])
    for word in words:
        added, deleted, file = word.split("\t")
        # A file that has moved is told by both its names.
        for name in [file] if file else [next(words), next(words)]:
            found[name] = int(added) + int(deleted)
    return found


def _length(file: str) -> int:
    path = ROOT / file
    return len(path.read_text().splitlines()) if path.exists() else 1


def _git(*words: str) -> str | None:
    """Return what git says, or None where it says nothing of use."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
