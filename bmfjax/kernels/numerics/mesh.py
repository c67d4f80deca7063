"""Several devices for one run: a mesh whose axes are called "chains" and "rows".

All devices run one program (`jax.shard_map`). Each of them has its own chains, along the axis
"chains", and its own blocks of the data, along the axis "rows"; devices that share chains hold the
same state of these. What a sampler computes from its own blocks it gathers (`Along.gather`), and
everything else is computed on all devices alike. Sums are then taken in one order, whatever the
mesh, and draws do not depend on it. Models of real numbers add up what the devices have summed
(`Along.total`); their draws depend on the mesh by rounding alone.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bmfjax.errors import InputError, kind_of

CHAINS, ROWS = "chains", "rows"
#: Bytes of a refusal that processes tell each other.
_SENTENCE = 4096
_EXAMPLE = f"jax.make_mesh((1, 2), ({CHAINS!r}, {ROWS!r}))"


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Along:
    """Says along which axis of a mesh blocks of data lie; None: every device holds all of them."""

    axis: str | None = None

    def part(self) -> tuple[jax.Array | int, int]:
        """Return the number of this device's part, and how many parts there are."""
        if self.axis is None:
            return 0, 1
        return lax.axis_index(self.axis), lax.psum(1, self.axis)

    def gather(self, arrays: Any) -> Any:
        """Join the parts of all devices, along the first axis of every array."""
        if self.axis is None:
            return arrays
        return jax.tree.map(lambda a: lax.all_gather(a, self.axis, tiled=True), arrays)

    def own(self, array: jax.Array, axis: int = 0) -> jax.Array:
        """Return this device's lines, which lie along an axis of an array that all devices have.

        All devices have as many: the last lines are zeros where the devices do not divide them.
        """
        if self.axis is None:
            return array
        part, parts = self.part()
        size = -(-array.shape[axis] // parts)
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, parts * size - array.shape[axis])
        return lax.dynamic_slice_in_dim(jnp.pad(array, widths), part * size, size, axis)

    def join(self, own: jax.Array, number: int, axis: int = 0) -> jax.Array:
        """Return all lines, of which there are so many, from those of every device."""
        if self.axis is None:
            return own
        joined = lax.all_gather(own, self.axis, axis=axis, tiled=True)
        return lax.slice_in_dim(joined, 0, number, axis=axis)

    def own_total(self, array: jax.Array) -> jax.Array:
        """Return the sum of an array over all devices, of this device's lines alone."""
        if self.axis is None:
            return array
        short = -len(array) % self.part()[1]
        filled = jnp.pad(array, [(0, short)] + [(0, 0)] * (array.ndim - 1))
        return lax.psum_scatter(filled, self.axis, tiled=True)

    def total(self, own: jax.Array) -> jax.Array:
        """Return the sum of what the devices have.

        In one order on all of them: their states must not drift apart by rounding.
        """
        return own if self.axis is None else jnp.sum(lax.all_gather(own, self.axis), axis=0)


#: Every device holds all blocks.
WHOLE = Along()


def checked_mesh(mesh: Any) -> Mesh:
    """Return a mesh with the axes "chains" and "rows", or refuse what is none.

    Its axes are of the type Auto: functions of arrays on Explicit axes refuse much.
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"mesh is {kind_of(mesh)}; give a jax.sharding.Mesh, such as {_EXAMPLE}")
    if set(mesh.axis_names) != {CHAINS, ROWS}:
        raise InputError(
            f"mesh has the axes {', '.join(map(repr, mesh.axis_names))}, and a fit runs on "
            f"{CHAINS!r} and {ROWS!r}; give such a mesh, as {_EXAMPLE} is one"
        )
    devices = mesh.devices if mesh.axis_names[0] == CHAINS else mesh.devices.T
    return Mesh(devices, (CHAINS, ROWS), axis_types=(AxisType.Auto,) * 2)


def num_shards(mesh: Mesh | None) -> int:
    """Return the number of devices along the rows."""
    return 1 if mesh is None else mesh.shape[ROWS]


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chains_of_device(number: int, mesh: Mesh | None) -> int:
    """Return how many of the chains a device runs, or refuse a mesh that does not divide them."""
    if mesh is None:
        return number
    each, rest = divmod(number, mesh.shape[CHAINS])
    if rest:
        raise InputError(
            f"{number} chains run, and mesh has {mesh.shape[CHAINS]} devices along {CHAINS!r}; "
            "give a number of chains that these divide, or another mesh"
        )
    return each


def several_processes(mesh: Mesh | None) -> bool:
    """Tell whether the devices of a mesh belong to several processes."""
    return mesh is not None and len({d.process_index for d in mesh.devices.flat}) > 1


def is_first(mesh: Mesh | None) -> bool:
    """Tell whether this process is the one that writes files, of those of a mesh."""
    return not several_processes(mesh) or jax.process_index() == 0


def gathered(array: Any) -> np.ndarray:
    """Return the arrays that all processes have, of one shape and type: (process, ...)."""
    array = np.ascontiguousarray(array)
    # As bytes: JAX would make 32 bits of 64.
    every = multihost_utils.process_allgather(array.reshape(-1).view(np.uint8))
    return every.view(array.dtype).reshape(-1, *array.shape)


def agreed(mesh: Mesh | None, act: Callable[[], Any]) -> Any:
    """Do what may be refused; where one process of a mesh refuses, all do, in its words.

    Without this the others would wait for it. `act` must not wait for other processes itself.
    """
    if not several_processes(mesh):
        return act()
    found, refusal = None, None
    try:
        found = act()
    except Exception as error:  # whatever ends this process alone
        refusal = error
    said = b"" if refusal is None else (str(refusal) or repr(refusal)).encode()
    every = gathered(np.frombuffer(said[:_SENTENCE].ljust(_SENTENCE, b"\0"), np.uint8))
    if refusal is not None:
        raise refusal
    for words in every:
        if text := bytes(words).rstrip(b"\0").decode(errors="ignore"):
            raise InputError(text)
    return found


def place(array: Any, mesh: Mesh, *axes: str | None) -> jax.Array:
    """Put an array of the host on a mesh, its axes along those named; a device gets its own part.

    Every process gives the same array.
    """
    array = np.asarray(array)
    sharding = NamedSharding(mesh, P(*axes))
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def place_lines(array: Any, mesh: Mesh, fill: int = 0) -> jax.Array:
    """Put an array of the host on a mesh, its last axis along the rows, and fill that up."""
    array = np.asarray(array)
    short = -array.shape[-1] % num_shards(mesh)
    widths = [(0, 0)] * (array.ndim - 1) + [(0, short)]
    filled = np.pad(array, widths, constant_values=fill) if short else array
    return place(filled, mesh, *[None] * (array.ndim - 1), ROWS)


def place_whole(arrays: Any, mesh: Mesh) -> Any:
    """Put on every device of a mesh what is not on the mesh yet."""

    def one(array):
        sharding = getattr(array, "sharding", None)
        there = isinstance(sharding, NamedSharding) and sharding.mesh == mesh
        return array if there else place(array, mesh)

    return jax.tree.map(one, arrays)


def specs_of(arrays: Any) -> Any:
    """Return how arrays on a mesh lie there, as `over_mesh` takes it."""
    return jax.tree.map(lambda a: a.sharding.spec, arrays)


def over_mesh(f: Callable, mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable:
    """Let every device of a mesh run ``f`` on its own parts."""
    # What is the same on all devices is so by construction, which types cannot show.
    return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
