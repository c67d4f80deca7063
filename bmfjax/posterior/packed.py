"""Draws of Boolean factors, kept as packed words."""

from __future__ import annotations

import numpy as np

from bmfjax.data.bits import WORD
from bmfjax.data.blocks import blocks
from bmfjax.data.errors import InputError


class PackedDraws:
    """Draws of a binary factor matrix, a bit each; indexed like the bool array that they stand for.

    `words` is (chain, draw, rank, ceil(size / 32)) uint32: bit ``i % 32`` of word ``i // 32``, the
    least significant first, is line i of `size` rows or columns.
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
        """Pack an array (chain, draw, lines, rank) of zeros and ones."""
        bits = np.asarray(bits)
        chains, draws, size, rank = bits.shape
        words = np.empty((chains, draws, rank, -(-size // WORD)), np.uint32)
        for chain, some in _pieces(chains, draws, size * rank):
            lines_last = np.moveaxis(bits[chain, some] != 0, -1, -2)
            words[chain, some] = _packed(lines_last)
        return cls(words, size)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(chain, draw, lines, rank)."""
        chains, draws, rank, _ = self.words.shape
        return chains, draws, self.size, rank

    @property
    def dtype(self):
        """bool, which indexing returns."""
        return np.dtype(bool)

    @property
    def ndim(self) -> int:
        """4."""
        return 4

    def reordered(self, order) -> PackedDraws:
        """Permute the factors: `order` is (rank,), or (chain, draw, rank) for every draw."""
        order = np.asarray(order)
        if order.ndim == 1:
            return PackedDraws(self.words[:, :, order], self.size)
        return PackedDraws(np.take_along_axis(self.words, order[..., None], 2), self.size)

    def some(self, draws, chains: slice = slice(None)) -> PackedDraws:
        """Choose draws of every chain (or of some), by a slice or positions (draw,)."""
        return PackedDraws(self.words[chains, draws], self.size)

    def lines(self, chosen) -> np.ndarray:
        """Return some lines of all draws: (chain, draw, chosen, rank) bool."""
        return np.moveaxis(_bits(self.words, np.asarray(chosen, np.int64)).view(bool), -1, -2)

    def packed_lines(self, chosen) -> PackedDraws:
        """Return some lines of all draws, packed."""
        chosen = np.asarray(chosen, np.int64)
        chains, draws, _, rank = self.shape
        words = np.empty((chains, draws, rank, -(-len(chosen) // WORD)), np.uint32)
        for chain, some in _pieces(chains, draws, len(chosen) * rank):
            words[chain, some] = _packed(_bits(self.words[chain, some], chosen))
        return PackedDraws(words, len(chosen))

    def __array__(self, dtype=None, copy=None):
        whole = _all_bits(self.words)[..., : self.size].view(bool)
        whole = np.moveaxis(whole, -1, -2)
        return whole if dtype is None else whole.astype(dtype)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        lead = index[:2] + (slice(None),) * (2 - len(index))
        if not all(isinstance(i, slice | int | np.integer) for i in lead):
            return np.asarray(self)[index]
        # Unpack the chains, draws and lines that are asked for, and no others.
        lead = [
            i if isinstance(i, slice) else range(number)[i]  # from the end, too
            for i, number in zip(lead, self.shape, strict=False)
        ]
        words = self.words[tuple(i if isinstance(i, slice) else slice(i, i + 1) for i in lead)]
        rest = index[2:]
        bits = PackedDraws(words, self.size)
        paired = len(rest) == 2 and np.ndim(rest[1]) == 1
        if rest and np.ndim(rest[0]) == 1:
            mask = np.asarray(rest[0])
            chosen = np.flatnonzero(mask) if mask.dtype == bool else mask
            rest = (np.arange(len(chosen)) if paired else slice(None), *rest[1:])
            bits = bits.lines(chosen)
        else:
            bits = np.asarray(bits)
        bits = bits[tuple(slice(None) if isinstance(i, slice) else 0 for i in lead)]
        kept = sum(isinstance(i, slice) for i in lead)
        return bits[(slice(None),) * kept + rest]

    def mean(self, axis=(0, 1), dtype=np.float64) -> np.ndarray:
        """Return the share of ones over axes of chains and draws, a few draws at a time."""
        axes = (axis,) if np.ndim(axis) == 0 else tuple(axis)
        if not set(axes) <= {0, 1}:
            raise InputError(f"axis is {axis}; packed draws average over chains (0) and draws (1)")
        if 1 not in axes:
            return np.asarray(self).mean(axis, dtype=dtype)
        chains, draws, size, rank = self.shape
        if 0 not in axes:
            return np.stack([_counts(w, size) / dtype(draws) for w in self.words])
        total = np.zeros((size, rank), dtype)
        for words in self.words:
            total += _counts(words, size) / dtype(draws)
        return total / dtype(chains)

    def std(self, axis=(0, 1), dtype=np.float64) -> np.ndarray:
        """Return the standard deviation over all chains and draws."""
        share = self.mean(axis, dtype)
        return np.sqrt(share * (1.0 - share))


def as_packed(draws) -> PackedDraws:
    """Return draws of Boolean factors as `PackedDraws`."""
    return draws if isinstance(draws, PackedDraws) else PackedDraws.pack(draws)


def subset(draws, which, lines) -> np.ndarray:
    """Return some lines of some draws, packed or not: (chain, which, lines, rank)."""
    if isinstance(draws, PackedDraws):
        return draws.some(which).lines(lines)
    return draws[:, np.asarray(which)[:, None], lines]


def chosen_draws(draws, chains, which, order):
    """Return draws `which` (chain, draw) of some chains, packed or not, factors permuted by chain.

    `chains` is (chain,), `order` (chain, rank).
    """
    at = np.asarray(chains)[:, None], which
    if isinstance(draws, PackedDraws):
        found = PackedDraws(draws.words[at], draws.size)
        return found.reordered(np.broadcast_to(order[:, None], (*np.shape(which), order.shape[1])))
    return np.take_along_axis(draws[at], order[:, None, None], -1)


def octets(words) -> np.ndarray:
    """Return the same bits eight at a time: (..., words) uint32 to (..., 4 words) uint8."""
    return np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8)


def factor_sets(words) -> np.ndarray:
    """Return the factors of each line of one draw: (rank, words) to (octets, lines) uint8."""
    return np.packbits(_all_bits(words), axis=0, bitorder="little")


def _all_bits(words):
    """(..., words) uint32 to (..., 32 words) uint8."""
    return np.unpackbits(octets(words), axis=-1, bitorder="little")


def _bits(words, chosen):
    """Return chosen bits of (..., words) as uint8."""
    found = np.take(octets(words), chosen // 8, axis=-1)
    found >>= (chosen % 8).astype(np.uint8)
    found &= 1
    return found


def _packed(bits):
    """Pack the last axis into words."""
    size = bits.shape[-1]
    words = np.zeros((*bits.shape[:-1], 4 * -(-size // WORD)), np.uint8)
    words[..., : -(-size // 8)] = np.packbits(bits, axis=-1, bitorder="little")
    return words.view("<u4").astype(np.uint32, copy=False)


def _pieces(chains, draws, bits):
    """Yield chains, and draws of which `bits` each fit in a block."""
    for chain in range(chains):
        for some in blocks(draws, bits):
            yield chain, some


def _counts(words, size):
    """Count the ones of every line and factor over (draw, rank, words): (lines, rank) int32."""
    total = np.zeros((size, words.shape[1]), np.int32)
    # Bytes hold the counts of up to 255 draws.
    for some in blocks(len(words), size * words.shape[1], most=255):
        counts = _all_bits(words[some]).sum(0, dtype=np.uint8)
        total += counts[:, :size].T
    return total
