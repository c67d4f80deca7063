"""A matrix of ones and zeros in blocks of rows, as signs: 1 for ones, -1 for zeros, 0 if missing.

Either as it is, (blocks, rows of a block, columns) int8, or with a bit an entry: a block at a time
is unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bmfjax.kernels.boolean.words import count_bits, unpack_last_axis
from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget

#: Numbers that are made of an entry, at most at a time.
AN_ENTRY = 12


class SignBlocks(NamedTuple):
    """Signs as words; rows beyond the last are missing."""

    ones: jax.Array  # (blocks, rows of a block, words) uint32
    observed: jax.Array | None  # the same; None: all entries of the rows that there are
    rows: jax.Array  # (blocks, rows of a block) bool: False beyond the last
    columns: jax.Array  # (columns, 0): an empty array that carries their number
    budget: Budget = ONE_BY_ONE  # of blocks that are worked on at once

    @property
    def shape(self) -> tuple[int, int, int]:
        """Blocks, rows of a block, and columns."""
        return *self.rows.shape, len(self.columns)


def by_block(signs: jax.Array | SignBlocks):
    """Return what a loop over blocks takes of them one after the other."""
    return tuple(signs[:3]) if isinstance(signs, SignBlocks) else signs


def budget_of(signs: jax.Array | SignBlocks) -> Budget:
    """Return how much the blocks that are worked on at once may take."""
    return signs.budget if isinstance(signs, SignBlocks) else ONE_BY_ONE


def bytes_of_block(signs: jax.Array | SignBlocks, width: int) -> int:
    """Return the bytes of what is made of a block on the way: of entries, and of all columns."""
    _, rows, columns = signs.shape
    return 4 * columns * (AN_ENTRY * rows + (width + 1) * (width + 2) // 2)


def of_block(signs: jax.Array | SignBlocks) -> Callable:
    """Return the function that makes signs, (rows of a block, columns) int8, of one of these."""
    if not isinstance(signs, SignBlocks):
        return lambda block: block
    columns = signs.shape[2]

    def unpacked(block):
        ones, observed, rows = block
        found = 2 * unpack_last_axis(ones, columns).astype(jnp.int8) - 1
        seen = rows[:, None]
        if observed is not None:
            seen = seen & unpack_last_axis(observed, columns)
        return jnp.where(seen, found, jnp.int8(0))

    return unpacked


def counts(signs: jax.Array | SignBlocks) -> tuple[jax.Array, jax.Array]:
    """Return the numbers of ones and of observed entries: whole, and exact below 2^31."""
    if not isinstance(signs, SignBlocks):
        return jnp.sum(signs > 0), jnp.sum(signs != 0)
    ones = count_bits(signs.ones, axis=None)
    if signs.observed is not None:
        return ones, count_bits(signs.observed, axis=None)
    return ones, jnp.sum(signs.rows) * len(signs.columns)
