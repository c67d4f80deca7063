r"""Which features of a fit to trust, what they concern, and how strongly.

A feature is reported by the posterior means of its memberships and weights. In a draw, which may
have another feature in its place or none, it is there if

.. math:: \operatorname{cor}(z_k, \bar z_k) \cos(w_k, \bar w_k) \ge \tfrac12.

Features that the data do not need are absent from a draw, by the prior of their presence. So the
share of the draws in which a feature is there is its probability beside the model without it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from bmfjax.data.blocks import blocks
from bmfjax.diagnostics import select_tiles
from bmfjax.diagnostics.trust import check_level
from bmfjax.posterior.trust import (
    CHANGING,
    EMPTY,
    LEVEL,
    LISTED,
    ROBUST,
    chains_split,
    chains_with,
    in_all_chains,
    remarks,
    remarks_of_chains,
)

#: Likeness from which on a draw has the feature, and ends of intervals of 90 %.
ALIKE, ENDS = 0.5, (0.05, 0.95)
#: Draws with a feature from which on its members and intervals are told; of fewer draws in all than
#: twice as many, half of them.
FEWEST = 20
#: Bayes factors from which on they are worth a mention (Kass, Raftery 1995).
TOLD = 3.0
OF_FEATURE = ("p_real", "kept", "rows", "columns", "unknown", "density", "chains", "remarks")
OF_MEMBER = ("side", "name", "member", "membership", "odds_ratio", "lower", "upper")
#: The first line of a file of members.
HEADER = re.escape(",".join(("factor", *OF_FEATURE, *OF_MEMBER)))
HEADER += "(,searches)?(,anchor)?(,factor_name)?"
# As in earlier versions.
HEADER = HEADER.replace("p_real", "(p_real|probability)").replace(",unknown", "(,unknown)?")


class Features(NamedTuple):
    """What the draws say of the features of a fit.

    Attributes
    ----------
    there : (chain, draw, rank) bool
    steady : (chain, rank) float64
        Share of the draws of a chain that have what is in this place of the chain itself.
    members : (rows, rank) float64
        Probability that a row has the feature, given that it is there.
    concerned : (columns, rank) float64
        Probability that the feature concerns a column.
    log_odds : (3, columns, rank) float64
        Mean of the log odds ratio, given that the column is concerned, and the ends of an interval
        of 90 %. NaN where no draw has it.
    """

    there: np.ndarray
    steady: np.ndarray
    members: np.ndarray
    concerned: np.ndarray
    log_odds: np.ndarray

    @property
    def too_few(self) -> np.ndarray:
        """Features that too few draws have to tell their members, (rank,) bool."""
        return self.there.sum((0, 1)) < min(FEWEST, self.there[..., 0].size / 2)


def features_of(usage, basis) -> Features:
    """Return what draws (chain, draw, lines, rank) of memberships and weights say."""
    there = likeness(usage, basis) >= ALIKE
    steady = [likeness(u[None], b[None]) >= ALIKE for u, b in zip(usage, basis, strict=True)]
    rank, columns = usage.shape[-1], basis.shape[2]
    members, concerned = np.zeros((usage.shape[2], rank)), np.zeros((columns, rank))
    log_odds = np.full((3, columns, rank), np.nan)
    for k in range(rank):
        # A feature that no draw has is described by all draws.
        chosen = there[..., k] if there[..., k].any() else np.ones_like(there[..., k])
        members[:, k] = usage[chosen][..., k].mean(0, dtype=float)
        of_feature = basis[..., k][chosen]
        for some in blocks(columns, len(of_feature)):
            weights = of_feature[:, some].astype(float)
            concerned[some, k] = (weights != 0).mean(0)
            log_odds[:, some, k] = _mean_and_ends(weights)
    return Features(there, np.concatenate(steady).mean(1), members, concerned, log_odds)


def _mean_and_ends(weights) -> np.ndarray:
    """Return mean and ends of an interval (3, columns) of weights (draw, columns) but zeros."""
    # In order, with zeros last, as NaN. Column by column it takes far longer.
    weights = np.sort(np.where(weights != 0, weights, np.nan), axis=0)
    number = (~np.isnan(weights)).sum(0)
    found = np.full((3, weights.shape[1]), np.nan)
    np.divide(np.nansum(weights, 0), number, out=found[0], where=number > 0)
    for end, at in zip(found[1:], ENDS, strict=True):
        place = at * np.maximum(number - 1, 0)
        first = place.astype(int)
        both = np.stack([first, np.minimum(first + 1, np.maximum(number - 1, 0))])
        low, high = np.take_along_axis(weights, both, axis=0)
        end[:] = low + (place - first) * (high - low)
    return found


def likeness(usage, basis) -> np.ndarray:
    """Return how alike features of draws and the means of all are, (chain, draw, rank)."""
    found = np.empty((*usage.shape[:2], usage.shape[-1]))
    mean_usage, mean_basis = (f.mean((0, 1), dtype=float) for f in (usage, basis))
    mean_usage -= mean_usage.mean(0)
    for c, d in np.ndindex(found.shape[:2]):
        of_draw = usage[c, d] - usage[c, d].mean(0, dtype=float)
        found[c, d] = _cosine(of_draw, mean_usage) * _cosine(basis[c, d], mean_basis)
    return found


def likenesses(usage, basis, other_usage, other_basis) -> np.ndarray:
    """Return how alike features of one solution are to those of another, (rank, other rank)."""
    centred = (np.asarray(f, float) - f.mean(0, dtype=float) for f in (usage, other_usage))
    return _cosines(*centred) * _cosines(np.asarray(basis, float), np.asarray(other_basis, float))


def _cosines(one, other):
    norm = np.sqrt(np.outer((one**2).sum(0), (other**2).sum(0)))
    return np.divide(one.T @ other, norm, out=np.zeros_like(norm), where=norm > 0)


def _cosine(one, other):
    norm = np.sqrt((one**2).sum(0) * (other**2).sum(0))
    return np.divide((one * other).sum(0), norm, out=np.zeros_like(norm), where=norm > 0)


def are_told(fit) -> np.ndarray:
    """Say whether the data tell that each feature concerns a column, or not, (columns, rank) bool.

    In a small table a feature may concern nearly all columns, and its share of them is learned: a
    column of which the data say nothing has about that probability. Nor do they tell of a column
    that has a lower one, of at least one half, that it is concerned.
    """
    before = fit.other_draws["basis_density"].mean((0, 1), dtype=float)
    after = np.clip(fit._found.concerned, 1e-6, 1 - 1e-6)
    gain = logit(after) - logit(before)
    return np.where(after >= 0.5, gain, abs(gain)) >= np.log(TOLD)


def feature_table(fit, found: Features, fdr: float = LEVEL) -> pd.DataFrame:
    """Return the line of each feature in `Fit.tiles`, kept or not."""
    level = check_level(fdr)
    usage, basis = fit._usage_binary, fit._basis_binary
    known = basis & are_told(fit)
    empty, probability = ~(usage.any(0) & basis.any(0)), found.there.mean((0, 1))
    kept = np.zeros(fit.rank, bool)
    kept[~empty] = select_tiles(probability[~empty], level)
    shares = found.there.mean(1)
    chains, differ = chains_with(shares), chains_split(shares)
    robust = (probability >= 1 - level) & in_all_chains(fit, chains)
    ones, observed = fit.data.tile_counts(usage, known)
    table = {
        "factor": np.arange(1, fit.rank + 1),
        "p_real": probability,
        "kept": kept,
        "rows": usage.sum(0),
        "columns": known.sum(0),
        "unknown": (basis & ~known).sum(0),
        "density": ones / np.where(observed > 0, observed, np.nan),
        "chains": chains,
        "remarks": [
            remarks(
                {EMPTY: empty[k]},
                remarks_of_chains(fit, k, differ[k] and chains[k] < fit._num_chains),
                {ROBUST: robust[k], CHANGING: not kept[k]},
            )
            for k in range(fit.rank)
        ],
    }
    return pd.DataFrame(table).set_index("factor")


def member_table(fit, found: Features, fdr: float = LEVEL) -> pd.DataFrame:
    """Return a line for each row and column of each feature, beside what is said of the feature."""
    parts, known = [], are_told(fit)
    for k in range(fit.rank):
        rows = np.flatnonzero(found.members[:, k] >= LISTED)
        rows = rows[np.argsort(-found.members[rows, k], kind="stable")]
        of_rows = _lines("row", fit.data.row_names, rows, found.members[:, k])
        columns = special_first(found, k)
        columns = columns[found.concerned[columns, k] >= LISTED]
        of_columns = _lines("column", fit.data.column_names, columns, found.concerned[:, k])
        for name, values in zip(("odds_ratio", "lower", "upper"), found.log_odds, strict=True):
            is_known = known[columns, k] & ~found.too_few[k]
            of_columns[name] = np.where(is_known, np.exp(values[columns, k]), np.nan)
        some = [part for part in (of_rows, of_columns) if len(part)]
        # A feature without members has a line all the same.
        some = some or [_lines(None, [None], np.array([0]), np.zeros(1)).assign(membership=np.nan)]
        parts += [part.assign(factor=k + 1) for part in some]
    table = pd.concat(parts, ignore_index=True)
    whole = feature_table(fit, found, fdr).reset_index().merge(table, on="factor")
    return whole.reindex(columns=["factor", *OF_FEATURE, *OF_MEMBER])


def _lines(side, names, lines, share) -> pd.DataFrame:
    found = {
        "side": side,
        "name": np.array(names, object)[lines],
        "member": share[lines] >= 0.5,
        "membership": share[lines],
    }
    return pd.DataFrame(found)


def special_first(found: Features, k: int) -> np.ndarray:
    """Return the columns of a feature, those first on which it has the largest effect."""
    size = np.abs(np.nan_to_num(found.log_odds[0, :, k])) * found.concerned[:, k]
    return np.argsort(-size, kind="stable")
