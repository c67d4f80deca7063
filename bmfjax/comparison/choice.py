"""Which rank to take: a rule on the table of ranks, and the sentence that gives its reason."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bmfjax.comparison.fits import MANY_DOUBTFUL, TELLING
from bmfjax.data.names import in_words

#: What the scores are called in sentences, the held-out ones first.
SCORES = {
    "entries": "hidden entries",
    "blocks": "bi-cross-validation",
    "loo": "PSIS-LOO",
}
HELD_OUT = ("entries", "blocks")
#: Standard error of a probability from which on it distinguishes no ranks.
VAGUE = 0.25


def recommended(table: pd.DataFrame) -> tuple[int, str]:
    """Return the rank to take, and why, in one sentence.

    It is the smallest rank whose held-out scores, by hidden entries and by bi-cross-validation,
    are both within two standard errors of the best, those of the paired difference: more factors
    then predict no better, as far as can be seen (`bmfjax.compare` asks for as much). If no rank is
    so by both, hidden entries decide. Without held-out scores it is the same rule on the scores of
    entries left out in turn. What other criteria prefer is said.
    """
    held_out = [name for name in HELD_OUT if _known(table, name)]
    names = held_out or ["loo"]
    close = {name: _close(table, name) for name in names}
    both = set.intersection(*close.values())
    used = names if both else names[:1]
    rank = min(both or close[names[0]])
    text = (
        f"Rank {rank} is the smallest within two standard errors of the best score of "
        f"{' and of '.join(SCORES[name] for name in used)}"
    )
    agreeing, others = [], []
    for criterion, prefers in preferences(table).items():
        if criterion in [SCORES[name] for name in used]:
            continue
        if prefers == rank:
            agreeing.append(_named(table, criterion, rank))
        else:
            others.append(_said(table, criterion, prefers))
    if agreeing:
        text += f"; {in_words(agreeing)} {'agrees' if len(agreeing) == 1 else 'agree'}"
    if others:
        text += f"; the criteria disagree: {in_words(others)}"
    return rank, f"{text}."


def preferences(table: pd.DataFrame) -> dict[str, int]:
    """Return the rank that each criterion prefers, where it is known well enough to tell."""
    found = {SCORES[n]: min(_close(table, n)) for n in SCORES if _known(table, n)}
    if "doubtful" in table and _known(table, "loo"):
        share = table["doubtful"] / table["scored"]
        if share[found[SCORES["loo"]]] > MANY_DOUBTFUL:
            found.pop(SCORES["loo"])
    chance = table["p_rank"].dropna()
    if len(chance) and table["p_rank_se"].max() < VAGUE:
        found["P(rank)"] = int(chance.idxmax())
    if table["code_length"].notna().any():
        found["code length"] = int(table["code_length"].idxmin())
    return found


def _known(table, name) -> bool:
    return table[name].notna().sum() > 1


def _close(table, name) -> set[int]:
    """Return the ranks that cannot be distinguished from the best."""
    behind, error = (table[f"{name}_difference{end}"] for end in ("", "_se"))
    return {int(rank) for rank in table.index[behind >= -TELLING * np.nan_to_num(error)]}


def _named(table, criterion, rank) -> str:
    """Name a criterion that prefers the rank."""
    if criterion == "P(rank)":
        return f"P(rank) of {table.loc[rank, 'p_rank']:.2f}"
    return criterion


def _said(table, criterion, rank) -> str:
    """Name a criterion and the rank that it prefers."""
    if criterion == "P(rank)":
        return f"P(rank) is highest at {rank} ({table.loc[rank, 'p_rank']:.2f})"
    if criterion == "code length":
        return f"the code is shortest at {rank}"
    return f"{criterion} takes {rank}"
