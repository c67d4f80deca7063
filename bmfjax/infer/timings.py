"""How long the phases of earlier runs took on this machine, so that the next one can say it before.

Seconds are kept beside compiled programs, and only where `bmfjax.use_compilation_cache` has chosen
their folder. They are those of a machine without other work: what a run took is divided by its
share of the machine, and multiplied by that of the run that asks.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bmfjax.clock import running_clock
from bmfjax.kernels.numerics.kept_programs import kept_folder

#: Kinds of runs that are kept, those of the last runs.
MOST_KINDS = 200
_NAME = "seconds.json"


def expected(kind: str) -> dict[str, float]:
    """Return the seconds that each phase of a run of this kind may take now; {} if unknown."""
    slowness = running_clock().slowness
    return {name: seconds * slowness for name, seconds in _read().get(kind, {}).items()}


def remember(kind: str, seconds: Mapping[str, float]) -> None:
    """Keep what phases of a run of this kind took, beside what is known of others."""
    if (folder := kept_folder()) is None:
        return
    slowness, known = running_clock().slowness, _read()
    own = known.pop(kind, {}) | {n: round(s / slowness, 3) for n, s in seconds.items()}
    known[kind] = own
    last = dict(list(known.items())[-MOST_KINDS:])
    with (
        contextlib.suppress(OSError),
        tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as new,
    ):
        json.dump(last, new)
        new.close()
        Path(new.name).replace(folder / _NAME)


def _read() -> dict[str, dict[str, float]]:
    if (folder := kept_folder()) is None:
        return {}
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / _NAME).read_text())
        if isinstance(found, dict):
            return {k: v for k, v in found.items() if isinstance(v, dict)}
    return {}
