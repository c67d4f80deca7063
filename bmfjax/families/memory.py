"""Memory of a fit: the arrays that it holds, and the refusal where there is less than they take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from bmfjax.data import InputError
from bmfjax.data.memory import PROGRAMS, require_memory, size_text
from bmfjax.kernels.numerics.budget import device_budget, device_memory
from bmfjax.kernels.numerics.mesh import num_shards

#: Where an array is: with the host alone, on the device, or in parts on the devices of a mesh.
HOST, DEVICE, PARTS = "host", "device", "parts"
SMALLER = "choose fewer rows or columns, or a lower rank"


class Held(NamedTuple):
    """Arrays of one shape that a fit holds, all together."""

    name: str  # for the refusal
    shape: tuple[int, ...]
    each: float  # bytes of an element, of all the arrays
    place: str = DEVICE

    @property
    def size(self) -> float:
        """Bytes of all."""
        return float(self.each * math.prod(self.shape))


def dense(data: Any, each: float) -> tuple[Held, ...]:
    """Return what a model holds that keeps so many bytes for every entry."""
    return (Held("the dense matrix and its residuals", data.shape, each, PARTS),)


def nonzero(number: int) -> tuple[Held, ...]:
    """Return what a sampler holds of a sparse matrix: both orientations, and what they come of."""
    return (
        Held(f"{number:,} nonzero entries", (number,), 20.0, PARTS),
        Held("putting them in order", (number,), 80.0, HOST),
    )


def require_room(problem: Any, held: Iterable[Held], remedy: str = SMALLER) -> None:
    """Refuse a fit that holds more than the host, or a device, has memory for."""
    sizes = {a.name: a.size for a in held if a.size} | {"programs": PROGRAMS}
    listed = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items())
    require_memory(sum(sizes.values()), f"a fit of {problem.size} ({listed})", remedy)
    memory = device_memory()
    if memory is None:  # a CPU, whose memory is the host's
        return
    whole, parts = (sum(a.size for a in held if a.place == p) for p in (DEVICE, PARTS))
    devices = num_shards(problem.mesh)
    left = memory - whole - PROGRAMS - device_budget().bytes
    if parts / devices <= left:
        return
    if parts and left > 0:
        rows = int(problem.data.num_rows * left * devices / parts)
        remedy = f"choose at most about {rows:,} rows"
        if problem.sampler.name in problem.family.on_mesh:
            number = math.ceil(parts / left)
            remedy = f"give a mesh of at least {number} such devices along the rows, or {remedy}"
    raise InputError(
        f"a fit of {problem.size} needs about {size_text(memory - left + parts / devices)} of the "
        f"memory of a device, and {size_text(memory)} are there; {remedy}"
    )
