"""Draws of Boolean factors, kept as packed words."""

from __future__ import annotations

import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.data.packed import WORD


class PackedDraws:
    """Draws of a binary factor matrix, a bit each; indexed like the bool array that they stand for.

    Parameters
    ----------
    words : (chain, draw, rank, ceil(lines / 32)) uint32
        Bit ``i % 32`` of word ``i // 32`` is line i, the least significant first.
    size : int
        Number of lines (rows or columns).

    Examples
    --------
    >>> draws = PackedDraws(np.array([[[[5]]]], np.uint32), 3)
    >>> draws.shape, draws[0, 0, :, 0].tolist(), draws.mean((0, 1))[:, 0].tolist()
    ((1, 1, 3, 1), [True, False, True], [1.0, 0.0, 1.0])
    """

    def __init__(self, words, size: int):
        words = np.asarray(words)
        if words.dtype != np.uint32 or words.ndim != 4 or words.shape[-1] != -(-size // WORD):
            raise InputError(
                f"packed draws of {size} lines need uint32 words of shape (chain, draw, rank, "
                f"{-(-size // WORD)}); they are {words.dtype} of shape {words.shape}"
            )
        self.words, self.size = words, int(size)

    @classmethod
    def pack(cls, bits) -> PackedDraws:
        """From an array (chain, draw, lines, rank) of zeros and ones."""
        bits = np.moveaxis(np.asarray(bits) != 0, -1, -2)
        octets = np.packbits(bits, axis=-1, bitorder="little")
        words = -(-bits.shape[-1] // WORD)
        padded = np.zeros((*bits.shape[:-1], 4 * words), np.uint8)
        padded[..., : octets.shape[-1]] = octets
        return cls(padded.view("<u4").astype(np.uint32, copy=False), bits.shape[-1])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(chain, draw, lines, rank)."""
        chains, draws, rank, _ = self.words.shape
        return chains, draws, self.size, rank

    @property
    def dtype(self):
        """bool, of what indexing returns."""
        return np.dtype(bool)

    @property
    def ndim(self) -> int:
        """4."""
        return 4

    def reordered(self, order) -> PackedDraws:
        """With the factors permuted: `order` (rank,), or (chain, draw, rank) for every draw."""
        order = np.asarray(order)
        if order.ndim == 1:
            return PackedDraws(self.words[:, :, order], self.size)
        return PackedDraws(np.take_along_axis(self.words, order[..., None], 2), self.size)

    def lines(self, chosen) -> np.ndarray:
        """Some lines of all draws: (chain, draw, chosen, rank) bool."""
        chosen = np.asarray(chosen, np.int64)
        words = self.words[..., chosen // WORD]
        bits = (words >> (chosen % WORD).astype(np.uint32)) & 1
        return np.moveaxis(bits.astype(bool), -1, -2)

    def __array__(self, dtype=None, copy=None):
        whole = self.lines(np.arange(self.size))
        return whole if dtype is None else whole.astype(dtype)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        lead = index[:2] + (slice(None),) * (2 - len(index))
        if not all(isinstance(i, slice | int | np.integer) for i in lead):
            return np.asarray(self)[index]
        # Unpack the chains, draws and lines that are asked for, and no others.
        words = self.words[tuple(i if isinstance(i, slice) else slice(i, i + 1) for i in lead)]
        rest = index[2:]
        chosen = np.arange(self.size)
        paired = len(rest) == 2 and np.ndim(rest[1]) == 1
        if rest and np.ndim(rest[0]) == 1:
            mask = np.asarray(rest[0])
            chosen = np.flatnonzero(mask) if mask.dtype == bool else mask
            rest = (np.arange(len(chosen)) if paired else slice(None), *rest[1:])
        bits = PackedDraws(words, self.size).lines(chosen)
        bits = bits[tuple(slice(None) if isinstance(i, slice) else 0 for i in lead)]
        kept = sum(isinstance(i, slice) for i in lead)
        return bits[(slice(None),) * kept + rest]

    def mean(self, axis=(0, 1), dtype=np.float64) -> np.ndarray:
        """Share of ones over axes of chains and draws, never the whole array at once."""
        axes = (axis,) if np.ndim(axis) == 0 else tuple(axis)
        if not set(axes) <= {0, 1}:
            raise InputError(f"axis is {axis}; packed draws average over chains (0) and draws (1)")
        chains, draws, size, rank = self.shape
        if 1 not in axes:
            return np.asarray(self).mean(axis, dtype=dtype)
        total = np.zeros((chains, size, rank), np.int32)
        for d in range(draws):
            total += PackedDraws(self.words[:, d : d + 1], size).lines(np.arange(size))[:, 0]
        mean = total / dtype(draws)
        return mean.mean(0) if 0 in axes else mean

    def std(self, axis=(0, 1), dtype=np.float64) -> np.ndarray:
        """Standard deviation over all chains and draws."""
        share = self.mean(axis, dtype)
        return np.sqrt(share * (1.0 - share))
