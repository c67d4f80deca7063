"""How much memory there is, and one refusal for what would need more."""

from __future__ import annotations

from pathlib import Path

import psutil

from bmfjax.data.errors import InputError

#: Share of the memory left that one step may ask for; the rest is for what follows it.
SHARE = 0.8
_CGROUPS = Path("/sys/fs/cgroup")


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
        lines = Path("/proc/self/cgroup").read_text().splitlines()
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
