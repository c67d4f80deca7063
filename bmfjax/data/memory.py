"""How much memory there is, and one refusal for what would need more."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import psutil

from bmfjax.data.errors import InputError

#: Share of the memory left that one step may ask for; the rest is for what follows it.
SHARE = 0.8
#: Bytes that the programs of a fit take beside its data on a CPU: at least, where all of them are
#: read from the folder of compiled programs, and at most, where all are compiled. Peak resident
#: sizes of `bmfjax fit` on small matrices (`ru_maxrss`), less that of a process that has loaded the
#: package: 180 to 450 MiB in a second run, 280 to 890 MiB in a first.
PROGRAMS, COMPILING = 256 * 2**20, 2**30
_CGROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def available_memory() -> int:
    """Return the bytes that this process can still allocate without swapping.

    The smaller of what the machine has left and what its control group (a container, a job of a
    cluster) has left.
    """
    return min([psutil.virtual_memory().available, *_left_in_groups()])


def require_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse what (`what`, the subject of the sentence) needs more bytes than are left."""
    available = available_memory()
    if needed > SHARE * available:
        raise InputError(
            f"{what} needs about {size_text(needed)} of memory, and {size_text(available)} are "
            f"available here; {remedy}"
        )


def check_programs() -> None:
    """Refuse to compile where there is surely no room for it, and warn where there may be none.

    The system ends a process that takes more than there is without a word.
    """
    available = available_memory()
    if available < PROGRAMS:
        raise InputError(
            f"the programs of a fit take {size_text(PROGRAMS)} of memory at least, and "
            f"{size_text(available)} are available here; use a machine or a container with 2 GiB"
        )
    if available < COMPILING:
        _tell_of_compiling()


@functools.cache
def _tell_of_compiling() -> None:
    """Warn once: programs that are compiled are there for the fits that follow."""
    warnings.warn(
        f"compiling the programs of a fit may take up to {size_text(COMPILING)} of memory, and "
        f"{size_text(available_memory())} are available here; if the system ends this process "
        "without a word, give it 2 GiB",
        stacklevel=4,
    )


def size_text(size: float) -> str:
    """Return a number of bytes as a person reads it."""
    gigabytes = size / 2**30
    if gigabytes >= 1:
        return f"{gigabytes:,.1f} GiB" if gigabytes < 100 else f"{gigabytes:,.0f} GiB"
    return f"{max(size / 2**20, 1):.0f} MiB"


def _left_in_groups():
    """Yield the bytes left in every control group that this process is in, where they are limited.

    Version 2 of control groups has one tree; version 1 a tree for memory of its own.
    """
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _left(_CGROUPS, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(_CGROUPS / "memory", path, *names)


def _left(root, path, limit, usage, cache):
    """Yield the bytes left in a group and its parents; a container may see its own as the root."""
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        if folder == root.parent:
            return
        try:
            most = int((folder / limit).read_text())  # "max" where there is no limit
            used = int((folder / usage).read_text())
            stat = (folder / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            continue
        # Files that were read count as used, and make way when memory is asked for.
        cached = next((int(s.split()[1]) for s in stat if s.split()[0] == cache), 0)
        yield max(most - used + cached, 0)
