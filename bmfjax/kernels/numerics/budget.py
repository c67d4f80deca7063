"""How many blocks of lines a device works on at once.

Samplers cut long lists of lines into blocks whose intermediate results stay in the cache of a CPU,
which takes one block after the other. A GPU or a TPU takes as many side by side as a share of its
memory holds. Every block has random numbers of its own, so that draws do not depend on how many
are taken at once. The choice is made where data are packed, and travels with them.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

#: The share of a device's memory that intermediate results of blocks may take: one in so many.
SHARE = 10
#: Bytes of memory where a device that is no CPU does not tell.
UNKNOWN = 8 * 2**30


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Budget:
    """The bytes that blocks which are worked on side by side may take; 0: one after the other.

    `fused` says that the device runs kernels of our own, for what has one.
    """

    bytes: int = 0
    fused: bool = False

    def number(self, blocks: int, size: int) -> int:
        """Return how many of so many blocks to take at once, each of which takes `size` bytes."""
        if blocks == 0:
            return 1
        most = max(1, min(blocks, self.bytes // max(size, 1)))
        rounds = -(-blocks // most)
        return -(-blocks // rounds)  # rounds of one length: a shorter one compiles once more

    def map(self, f: Callable, blocks: Any, size: int) -> Any:
        """Return ``f`` of every block, as `jax.lax.map` does: leaves have the blocks first."""
        total = len(jax.tree.leaves(blocks)[0])
        number = self.number(total, size)
        if number == 1:
            return lax.map(f, blocks)
        if number == total:
            return jax.vmap(f)(blocks)
        return lax.map(f, blocks, batch_size=number)

    def total(self, f: Callable, like: Any, blocks: Any, size: int) -> tuple[Any, Any]:
        """Return the sum over all blocks of what ``f`` returns first, and of each what is second.

        The sums have the shapes of `like`. Their rounding depends on how many are taken at once.
        """
        total = len(jax.tree.leaves(blocks)[0])
        number = self.number(total, size)
        zero = jax.tree.map(jnp.zeros_like, like)

        def one(sums, block):
            first, second = f(block)
            return jax.tree.map(jnp.add, sums, first), second

        if number == 1:
            return lax.scan(one, zero, blocks)

        def several(sums, some):
            first, second = jax.vmap(f)(some)
            return jax.tree.map(lambda a, b: a + jnp.sum(b, axis=0), sums, first), second

        whole = total // number * number
        rounds = jax.tree.map(lambda a: a[:whole].reshape(-1, number, *a.shape[1:]), blocks)
        sums, found = lax.scan(several, zero, rounds)
        found = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)
        if whole == total:
            return sums, found
        sums, last = several(sums, jax.tree.map(lambda a: a[whole:], blocks))
        return sums, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), found, last)


#: Triton, with which kernels of our own are compiled, knows no older devices.
LEAST_CAPABILITY = 8.0
#: One block after the other, as on a CPU.
ONE_BY_ONE = Budget()


def device_budget() -> Budget:
    """Return the budget of the device on which JAX puts data.

    Examples
    --------
    >>> device_budget() == ONE_BY_ONE or jax.default_backend() != "cpu"
    True
    """
    memory = device_memory()
    return ONE_BY_ONE if memory is None else Budget(memory // SHARE, runs_kernels())


def runs_kernels() -> bool:
    """Tell whether JAX has a compiler for kernels of our own on this device.

    It has one for devices of NVIDIA from compute capability 8.0 on.
    """
    device = jax.local_devices()[0]
    if "cuda" not in device.client.platform_version.lower():
        return False
    if float(getattr(device, "compute_capability", 0)) < LEAST_CAPABILITY:
        return False
    try:
        importlib.import_module("jax.experimental.pallas.triton")
    except ImportError:
        return False
    return True


def device_memory() -> int | None:
    """Return the bytes that programs may take on the device, None on a CPU."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return None
    return int((device.memory_stats() or {}).get("bytes_limit", UNKNOWN))


def divided(data: Any, number: int) -> Any:
    """Return data whose budgets are shared among so many chains or replicas, side by side."""

    def part(leaf):
        if not isinstance(leaf, Budget):
            return leaf
        return dataclasses.replace(leaf, bytes=leaf.bytes // number)

    return jax.tree.map(part, data, is_leaf=lambda leaf: isinstance(leaf, Budget))
