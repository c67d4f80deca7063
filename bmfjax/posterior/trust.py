"""Which tiles of a fit to trust: probabilities, selection, remarks, members, and a sentence.

`bmfjax.posterior.tiles` says when a tile is in a draw, and `bmfjax.diagnostics.select_tiles` which
ones are kept. Here they become the tables of `bmfjax.Fit.tiles`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from bmfjax.data import checks
from bmfjax.diagnostics import density_bound, noise_rates, select_tiles
from bmfjax.diagnostics.trust import check_level
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.tiles import (
    Presence,
    as_bits,
    few_draws,
    membership,
    membership_interval,
    presence,
)

#: The level at which the page and the printed verdict speak.
LEVEL = 0.05
#: Factors in doubt that a sentence names; the table and the report have all of them.
NAMED = 5
#: Share of a chain's draws from which on it has found a tile, and difference of the shares of two
#: chains from which on they disagree about it.
FOUND, DIFFER = 0.5, 0.5
#: Share of a chain's draws up to which it may have by chance what others lack.
SELDOM = 0.25
#: Lines outside of a tile are listed from this membership on.
LISTED = 0.05
#: Remarks on a factor.
EMPTY, REDUNDANT, LOW, SOME = "empty", "redundant", "low support", "in some chains only"
FEW, UNLIKE, CHANGING = "in too few draws", "chains differ", "changes from draw to draw"
ROBUST = "robust"
OF_TILE = ("p_real", "kept", "rows", "columns", "density", "bound", "chains", "remarks")
OF_MEMBER = ("side", "name", "member", "membership", "lower", "upper")
#: The first line of a file of members.
HEADER = re.escape(",".join(("factor", *OF_TILE, *OF_MEMBER)))
HEADER += "(,searches)?(,anchor)?(,factor_name)?"
# In earlier versions the first of them had another name.
HEADER = HEADER.replace("p_real", "(p_real|probability)")


class WholeTable(pd.DataFrame):
    """A table that is printed with all of its columns, however narrow the terminal is."""

    def __repr__(self) -> str:
        if self.empty:
            return "No lines: where no tile is kept, all=True has every factor."
        options = {n: pd.get_option(f"display.{n}") for n in ("max_rows", "min_rows")}
        cut = options["max_rows"] is not None and len(self) > options["max_rows"]
        return self.to_string(**options, show_dimensions=cut)


def chosen_table(fit, tables, found, fdr, all, members) -> WholeTable:
    """Return the table of factors, or of `members`: the kept ones, or all.

    `tables` are the functions that make these two of a fit.
    """
    for name, value in (("all", all), ("members", members)):
        checks.switch(name, value)
    table = fit._with_names(tables[members](fit, found, fdr))
    if not all:
        table = table[table["kept"]]
    # Lines of members are counted; those of factors have the number of theirs.
    return WholeTable(table.reset_index(drop=True) if members else table)


class Trust(NamedTuple):
    """What the draws and the data say of every tile of a fit."""

    found: Presence
    draws: tuple[PackedDraws, PackedDraws]  # usage and basis of the draws that were looked at
    probability: np.ndarray  # (rank,) float64
    bound: np.ndarray  # (rank,) float64: of `density_bound`
    redundant: np.ndarray  # (rank,) bool; empty ones are


def trust_of(fit) -> Trust:
    """Return what the draws and the data of a fit say of its tiles."""
    usage, basis = fit._usage_binary, fit._basis_binary
    draws, found = presence_in((fit.usage_draws, fit.basis_draws), usage, basis)
    ones, observed = fit.data.tile_counts(usage, basis)
    bound = density_bound(
        usage.sum(0), basis.sum(0), ones, observed,
        shape=fit.data.shape, noise=noise_rates(fit.data, usage, basis),
    )  # fmt: skip
    alone = presence(*(PackedDraws.pack(f[None, None]) for f in (usage, basis)), usage, basis)
    # Others cover it, as reported or in most of the draws that have it.
    matched, needed = (found.match >= 0).mean((0, 1)), found.probability
    covered = ~alone.present[0, 0] | (needed < matched / 2)
    return Trust(found, draws, needed, bound, covered)


def presence_in(draws, usage, basis) -> tuple[tuple[PackedDraws, PackedDraws], Presence]:
    """Return those of the `draws` of both factor matrices that are looked at, and what is there.

    The tiles are `usage` (rows, tile) and `basis` (columns, tile), bool.
    """
    few = few_draws(*map(as_bits, draws))
    return few, presence(*few, usage, basis)


def steady_in(draws) -> np.ndarray:
    """Return which share of the draws of a chain have what most of them have, (chain, tile).

    That is the tile of the chain itself, in the place of each tile of the fit.
    """
    few, found = few_draws(*map(as_bits, draws)), []
    for chain in range(few[0].words.shape[0]):
        own = tuple(f.some(slice(None), slice(chain, chain + 1)) for f in few)
        tiles = (np.asarray(f.mean((0, 1))) >= 0.5 for f in own)
        found.append(presence(*own, *tiles).of_chains[0])
    return np.array(found)


def chains_with(shares) -> np.ndarray:
    """Return how many chains have each factor, by the shares (chain, rank) of their draws with it.

    Examples
    --------
    >>> chains_with([[1.0, 0.4], [0.5, 0.9]]).tolist()
    [2, 1]
    """
    return (np.asarray(shares) >= FOUND).sum(0)


def shares_of_halves(there) -> np.ndarray:
    """Return the share of the draws of each half of a chain that have each factor, (half, rank).

    `there` (chain, draw, rank) says which draws have it. The one between two halves of an odd
    number is left out.

    Examples
    --------
    >>> shares_of_halves([[[1], [1], [0], [0], [1]]]).tolist()
    [[1.0], [0.5]]
    """
    there = np.asarray(there, float)
    half = max(1, there.shape[1] // 2)
    return np.concatenate([there[:, :half].mean(1), there[:, -half:].mean(1)])


def rhat_of_shares(shares) -> np.ndarray:
    """Return R-hat of whether a draw has each factor, by the `shares` as above; inf if none moves.

    They are those of chains, or of their halves.

    Examples
    --------
    >>> rhat_of_shares([[0.6, 1.0, 0.9], [0.2, 0.0, 0.9]]).round(2).tolist()
    [1.18, inf, 1.0]
    """
    shares = np.asarray(shares, float)
    within, between = (shares * (1.0 - shares)).mean(0), shares.var(0, ddof=1)
    ratio = np.divide(between, within, out=np.full_like(within, np.inf), where=within > 0)
    return np.sqrt(1.0 + np.where(between > 0, ratio, 0.0))


def chains_split(shares) -> np.ndarray:
    """Say for which factors the `shares`, as above, of two chains differ by half or more.

    Examples
    --------
    >>> chains_split([[1.0, 0.4], [0.5, 0.8]]).tolist()
    [True, False]
    """
    return np.ptp(shares, axis=0) >= DIFFER


def tile_table(fit, trust: Trust, fdr: float = LEVEL) -> pd.DataFrame:
    """Return the line of each factor in `Fit.tiles`, kept or not."""
    level, empty = check_level(fdr), fit._empty
    kept = np.zeros(fit.rank, bool)
    # A factor without a tile is nothing to discover.
    kept[~empty] = select_tiles(trust.probability[~empty], level)
    shares = trust.found.of_chains
    chains, differ = chains_with(shares), chains_split(shares)
    robust = (trust.probability >= 1 - level) & in_all_chains(fit, chains)
    ones, observed = fit.data.tile_counts(fit._usage_binary, fit._basis_binary)
    table = {
        "factor": np.arange(1, fit.rank + 1),
        "p_real": trust.probability,
        "kept": kept,
        "rows": fit._usage_binary.sum(0),
        "columns": fit._basis_binary.sum(0),
        "density": ones / np.where(observed > 0, observed, np.nan),
        "bound": trust.bound,
        "chains": chains,
        "remarks": [
            remarks(
                {EMPTY: empty[k]},
                {
                    REDUNDANT: trust.redundant[k],
                    LOW: trust.bound[k] > level,
                    **remarks_of_chains(fit, k, differ[k] and chains[k] < fit._num_chains),
                },
                {ROBUST: robust[k], CHANGING: not kept[k]},
            )
            for k in range(fit.rank)
        ],
    }
    return pd.DataFrame(table).set_index("factor")


def in_all_chains(fit, chains) -> np.ndarray:
    """Say which factors all of several chains have, in most draws and by the verdict, too."""
    not_in_all = fit._is_named(fit.figures.factors_of_most)
    return (chains == fit._num_chains) & (fit._num_chains > 1) & ~not_in_all


def remarks_of_chains(fit, k: int, in_some: bool) -> dict:
    """Return the remarks on what chains say of a factor, and whether each is to be made."""
    unlike = fit._is_named(fit.figures.factors_differing)[k]
    few = fit._in_few_draws[k]
    return {SOME: in_some and not few, FEW: few, UNLIKE: unlike and not in_some}


def remarks(*groups) -> str:
    """Return the remarks that hold in the first group of which any does, joined by commas."""
    held = ([remark for remark, holds in group.items() if holds] for group in groups)
    return ", ".join(next(filter(None, held), []))


def member_table(fit, trust: Trust, fdr: float = LEVEL) -> pd.DataFrame:
    """Return a line for each row and column of each tile, beside what is said of the tile."""
    tiles = tile_table(fit, trust, fdr)
    sides = (
        ("row", fit.data.row_names, fit._usage_binary, trust.draws[0]),
        ("column", fit.data.column_names, fit._basis_binary, trust.draws[1]),
    )
    parts = []
    for k in range(fit.rank):
        lines = [found for side in sides if len(found := _members(trust.found, k, *side))]
        # A factor without members has a line all the same.
        parts += [part.assign(factor=k + 1) for part in lines or [_no_member()]]
    table = pd.concat(parts, ignore_index=True)
    return tiles.reset_index().merge(table, on="factor")[["factor", *OF_TILE, *OF_MEMBER]]


def _no_member() -> pd.DataFrame:
    line = dict.fromkeys(OF_MEMBER, np.nan) | {"side": None, "name": None, "member": False}
    return pd.DataFrame([line])


def _members(found: Presence, k: int, side, names, inside, draws) -> pd.DataFrame:
    share = membership(draws, found, k)
    lines = np.flatnonzero(inside[:, k] | (share >= LISTED))
    # The surest first.
    lines = lines[np.lexsort((-share[lines], ~inside[lines, k]))]
    lower, upper = membership_interval(draws, found, k, lines, share[lines])
    return pd.DataFrame(
        {
            "side": side,
            "name": np.array(names, object)[lines],
            "member": inside[lines, k],
            "membership": share[lines],
            "lower": lower,
            "upper": upper,
        }
    )


# ---- in words ----------------------------------------------------------------------------------


def in_words(line, num_chains: int) -> str:
    """Say what speaks against a tile, from its line of `tile_table`; empty where nothing does."""
    remarks = line["remarks"].split(", ")
    said = []
    if EMPTY in remarks:
        return "it is empty"
    if REDUNDANT in remarks:
        said.append("other factors cover it")
    if SOME in remarks:
        said.append(f"{line['chains']} of {num_chains} chains have it in most draws")
    if FEW in remarks:
        said.append("too few draws have it")
    if UNLIKE in remarks:
        said.append("chains differ about it")
    if LOW in remarks:
        said.append("noise alone may hold a tile as dense")
    if CHANGING in remarks:
        said.append("its cells change from draw to draw")
    return ", ".join(said)


def doubts(fit, table: pd.DataFrame) -> str:
    """Say which factors of `tile_table` are not kept, and what speaks against those that are.

    Empty where all are kept and nothing speaks against them.
    """
    kept, empty = table["kept"], table["remarks"] == EMPTY
    doubted = kept & table["remarks"].str.contains(f"{REDUNDANT}|{LOW}|{SOME}|{UNLIKE}")
    if kept.all() and not doubted.any():
        return ""
    others = _real(fit, table[~kept & ~empty], " ({})")
    if empty.any():
        verb = "factor {} is" if empty.sum() == 1 else "factors {} are"
        others.append(f"{verb.format(', '.join(map(str, table.index[empty])))} empty")
    number = int(kept.sum())
    said = f"{number} of {fit.rank} factors" if number else "No factor"
    said += f" {'are kept as tiles' if number > 1 else 'is kept as a tile'}"
    said += f" at a false discovery rate of {100 * LEVEL:.0f} %"
    if others:
        # Without a word between, the others read as those that are kept.
        said += f"{'. Among the others, ' if number else ': '}{'; '.join(others)}"
    if doubted.any():
        said += f". Among those kept, {'; '.join(_real(fit, table[doubted], ', but {}'))}"
    return f"{said}."


def _real(fit, lines: pd.DataFrame, why: str) -> list[str]:
    """Say how probably some factors are real, and `why` they may not be; count those past a few."""
    said = []
    for k, line in lines.head(NAMED).iterrows():
        name = f" ({fit._given_names[k]})" if k in fit._given_names else ""
        against = in_words(line, fit._num_chains)
        said.append(f"factor {k}{name} is real with probability {line['p_real']:.2f}")
        said[-1] += why.format(against) if against else ""
    if len(lines) > NAMED:
        number = len(lines) - NAMED
        verb = "is" if number == 1 else "are"
        said.append(f"{number} more {verb} in doubt (tiles(all=True) and the report say why)")
    return said
