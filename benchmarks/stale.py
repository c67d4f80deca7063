"""Which code a record measured, and whether it has changed since.

That code is what draws: the kernels, models and runs of bmfjax that the script imports, and those
that these import in turn. `bmfjax.fit` runs all models; of these count the ones that the script
names.
"""

from __future__ import annotations

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


def changed(script: str, commit: str, code: dict[str, str]) -> str | None:
    """Return a file in which the code of a record has changed; "" for none, None for unknown.

    Comments and docstrings do not count, where the repository still has the commit.
    """
    commit = commit.split()[0]
    if code:
        differing = [file for file, own in code.items() if hashed(file) != own]
    elif script in scripts():
        differing = _git("diff", "--name-only", commit, "--", *files_of(script))
        differing = None if differing is None else differing.split()
    else:
        differing = None
    if differing is None:
        return None
    return next((f for f in sorted(differing, key=_first) if _is_other_code(f, commit)), "")


def _first(file: str) -> tuple[bool, str]:
    """Kernels before the rest: a change in one is told first."""
    return "/kernels/" not in file, file


def _is_other_code(file: str, commit: str) -> bool:
    """Whether a file and that of a commit differ by more than comments and docstrings."""
    before, path = _git("show", f"{commit}:{file}"), ROOT / file
    return before is None or not path.exists() or _bare(before) != _bare(path.read_text())


@functools.cache
def _bare(text: str) -> str:
    """Return code without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0].value
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                first.value = ""
    return ast.dump(tree)


@functools.cache
def _git(*words: str) -> str | None:
    """Return what git says, or None where it says nothing of use."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
