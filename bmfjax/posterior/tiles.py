r"""How often the tiles of a fit are in its draws.

Alignment gives every factor of every draw a place, also one that wanders. So the factors of each
draw are matched to the tiles again, by how much of them they share. With :math:`T_k` the cells of
tile k and :math:`S_l = A_l \times B_l` those of factor l of a draw,

.. math:: J_{kl} = \frac{|T_k \cap S_l|}{|T_k \cup S_l|},

and tiles and factors are matched one to one, so that the sum of :math:`J_{kl}` over pairs with
:math:`J_{kl} \ge 1/2` is largest. A tile is present in a draw if it has a match, and the draw's
other factors leave more than a tenth of the matched cells to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import betaincinv

from bmfjax.data.bits import count_ones, pack_on_host
from bmfjax.data.blocks import blocks, spaced
from bmfjax.diagnostics import mcse_mean
from bmfjax.diagnostics.convergence import MIN_DRAWS
from bmfjax.posterior.packed import PackedDraws

#: Jaccard index from which on a factor is the same tile.
SAME = 0.5
#: Share of a tile's cells of which the others must leave more, so that it explains anything.
LEFT = 0.1
#: Real factors belong to a tile from here on.
MEMBER = 0.5
#: Rows and columns of a tile by which it is found what other factors leave to it.
MOST_MEMBERS = 100
#: Words that are compared at most; of more draws, evenly spaced ones are looked at.
MAX_WORDS, LEAST_DRAWS = 2_000_000_000, 50
#: Ends of an interval of 90 %.
TAILS = (0.05, 0.95)


class Presence(NamedTuple):
    """Where the tiles of a fit are in its draws."""

    #: The factor of every draw that is matched to each tile, -1 for none: (chain, draw, tile) int.
    match: np.ndarray
    #: Whether each tile is present in every draw: (chain, draw, tile) bool.
    present: np.ndarray

    @property
    def probability(self) -> np.ndarray:
        """Share of the draws in which each tile is present, (tile,) float64."""
        return self.present.mean((0, 1))

    @property
    def of_chains(self) -> np.ndarray:
        """The same of every chain alone, (chain, tile) float64."""
        return self.present.mean(1)


def as_bits(draws) -> PackedDraws:
    """Return draws as bits: real factors in [0, 1] belong to a tile from one half on."""
    if isinstance(draws, PackedDraws):
        return draws
    return PackedDraws.pack(np.asarray(draws) >= MEMBER)


def few_draws(usage_draws: PackedDraws, basis_draws: PackedDraws) -> tuple[PackedDraws, ...]:
    """Return as many evenly spaced draws of every chain as can be compared in seconds."""
    chains, draws, rank, words = usage_draws.words.shape
    one = chains * rank**2 * (words + basis_draws.words.shape[-1])
    some = spaced(draws, max(LEAST_DRAWS, MAX_WORDS // one))
    return usage_draws.some(some), basis_draws.some(some)


def presence(usage_draws: PackedDraws, basis_draws: PackedDraws, usage, basis) -> Presence:
    """Find tiles in draws.

    The tiles are `usage` (rows, tile) and `basis` (columns, tile), bool. If two of them are alike,
    the first counts where a draw has one such factor.
    """
    shared, alike = _overlap(usage_draws, basis_draws, usage, basis)
    match = _match(alike)
    present = match >= 0
    for k in np.flatnonzero(present.any((0, 1))):
        # Copies of a tile do not explain it, unless they are the match of one before it.
        before = _one_hot(match[..., :k], alike.shape[-1]).any(-2)
        others = (alike[..., k, :] < SAME) | before
        # Counted one by one, others cover at least as much as together: few draws are left.
        own = np.take_along_axis(shared[..., k, :], match[..., k, None], -1)[..., 0]
        covered = (shared[..., k, :] * others).sum(-1)
        unsure = present[..., k] & (covered >= (1 - LEFT) * own)
        draws = (f.words[unsure][None] for f in (usage_draws, basis_draws))
        draws = map(PackedDraws, draws, (usage_draws.size, basis_draws.size))
        lines = (_members(f[:, k]) for f in (usage, basis))
        left = _share_left(*draws, *lines, match[unsure][:, k], others[unsure])
        present[unsure, k] = left > LEFT
    return Presence(match, present)


def _overlap(usage_draws, basis_draws, usage, basis) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells that tiles and factors share, and their Jaccard index.

    (chain, draw, tile, rank) float32 each.
    """
    shared, sizes, own = 1.0, 1.0, 1.0
    for draws, tiles in ((usage_draws, usage), (basis_draws, basis)):
        shared = shared * _common(draws, pack_on_host(np.asarray(tiles, bool), transposed=True))
        sizes = sizes * count_ones(draws.words).astype(np.float32)
        own = own * np.asarray(tiles).sum(0, dtype=np.float32)
    union = sizes[..., None, :] + own[:, None] - shared
    return shared, np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)


def _common(draws: PackedDraws, tiles) -> np.ndarray:
    """Count the lines that tiles (tile, words) and factors share: (chain, draw, tile, rank)."""
    chains, number, rank, words = draws.words.shape
    found = np.empty((chains, number, len(tiles), rank), np.float32)
    for chain in range(chains):
        for some in blocks(number, len(tiles) * rank * words):
            both = draws.words[chain, some, None] & tiles[:, None]
            found[chain, some] = count_ones(both)
    return found


def _match(alike) -> np.ndarray:
    """Match tiles and factors of every draw one to one: (chain, draw, tile) int, -1 for none."""
    same = alike >= SAME
    match = np.where(same.any(-1), same.argmax(-1), -1)
    # Where a tile is like two factors, or a factor like two tiles, the best sum decides.
    unclear = (same.sum(-1) > 1).any(-1) | (same.sum(-2) > 1).any(-1)
    for draw in np.argwhere(unclear):
        at = tuple(draw)
        tiles, factors = linear_sum_assignment(np.where(same[at], alike[at], 0.0), maximize=True)
        match[at] = -1
        kept = same[at][tiles, factors]
        match[at][tiles[kept]] = factors[kept]
    return match


def _share_left(usage_draws, basis_draws, rows, columns, match, others) -> np.ndarray:
    """Return the share of a match's cells in some lines that the other factors leave to it.

    (draw,), of draws (1, draw, lines, rank); `others` (draw, rank) bool says which factors count.
    """
    draws, rank = others.shape
    left = np.ones(draws)
    width = max(len(rows) * len(columns), rank * (len(rows) + len(columns)))
    for some in blocks(draws, width):
        used, items = (
            usage_draws.some(some).lines(rows)[0],
            basis_draws.some(some).lines(columns)[0],
        )
        at = match[some, None, None]
        i, j = (np.take_along_axis(f, at, 2)[..., 0] for f in (used, items))
        cells = i[:, :, None] & j[:, None, :]
        by_others = (used & others[some, None]).astype(np.float32)
        covered = by_others @ np.swapaxes(items, 1, 2).astype(np.float32) > 0
        total = cells.sum((1, 2))
        # A match whose cells are all between the lines looked at is left whole.
        np.divide((cells & ~covered).sum((1, 2)), total, out=left[some], where=total > 0)
    return left


def _members(inside) -> np.ndarray:
    """Return up to 100 evenly spaced lines of a tile."""
    members = np.flatnonzero(inside)
    return members[spaced(len(members), MOST_MEMBERS)]


def _one_hot(match, rank) -> np.ndarray:
    """Say which factors are matched: (..., tile) int to (..., tile, rank) bool."""
    return match[..., None] == np.arange(rank)


# ---- members ---------------------------------------------------------------------------------


def membership(draws: PackedDraws, found: Presence, k: int) -> np.ndarray:
    """Return the share of the draws with tile k in which each line belongs to it, (lines,) float64.

    NaN where no draw has the tile.
    """
    share = found.present[..., k].mean()
    if share == 0:
        return np.full(draws.size, np.nan)
    return _matched(draws, found, k).mean()[:, 0] / share


def membership_interval(draws: PackedDraws, found: Presence, k: int, lines, share):
    """Return how well the draws know the `membership` of some lines: (2, lines) float64.

    The ends of a central interval of 90 %, of the Beta distribution that as many independent draws
    as these are worth leave under Jeffreys' prior. For a line that never changes, every draw with
    the tile counts. NaN where no draw has the tile.
    """
    with_tile = found.present[..., k]
    number, share = with_tile.sum(), np.asarray(share, float)
    if number == 0:
        return np.full((2, len(lines)), np.nan)
    worth = np.full(len(lines), float(number))
    if with_tile.shape[1] >= MIN_DRAWS:
        bits = _matched(draws, found, k).lines(lines)[..., 0]
        # The error of a ratio of means: what is averaged is zero where the tile is absent.
        error = mcse_mean((bits - share) * with_tile[..., None]) / with_tile.mean()
        moves = error > 0  # not so where it is NaN
        worth[moves] = np.minimum(number, (share * (1 - share))[moves] / error[moves] ** 2)
    ends = [betaincinv(worth * share + 0.5, worth * (1 - share) + 0.5, tail) for tail in TAILS]
    return np.stack([np.minimum(ends[0], share), np.maximum(ends[1], share)])


def _matched(draws: PackedDraws, found: Presence, k: int) -> PackedDraws:
    """Return the factor that is tile k in every draw, without members where it is absent."""
    at = np.maximum(found.match[..., k], 0)[..., None, None]
    words = np.take_along_axis(draws.words, at, 2)
    return PackedDraws(words * found.present[..., k, None, None], draws.size)
