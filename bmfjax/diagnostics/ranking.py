"""How good predictions are: how they rank entries, and how large probabilities are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bmfjax.data.checks import probabilities, whole
from bmfjax.data.errors import InputError


def recall_at(scores, training, held_out, k: int = 10) -> float:
    """Return the share of rows whose held-out one is among the k highest ranked zeros.

    A held-out one is a zero of the training matrix. As many ties count as would by chance.

    Parameters
    ----------
    scores : (rows, columns) float
        Probabilities, or anything that rises with them.
    training : (rows, columns) bool
        Ones that were seen; they are not ranked.
    held_out : (rows,) int
        For each row the column of a one that was not; -1 where it has none.
    k : int

    Returns
    -------
    float

    Raises
    ------
    InputError
        For shapes that do not fit, NaN, a held-out one that was seen, or none at all.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.5, 0.1], [0.2, 0.3, 0.4]])
    >>> recall_at(scores, scores == 0.9, np.array([1, 0]), k=1)
    0.5
    """
    scores, training, held_out = (np.asarray(a) for a in (scores, training, held_out))
    if training.shape != scores.shape or held_out.shape != scores.shape[:1]:
        raise InputError(
            f"scores {scores.shape}, training {training.shape} and held_out {held_out.shape} do "
            "not fit; give two (rows, columns) matrices and a column for every row"
        )
    _refuse_nan("training", training)
    whole("k", k)
    if np.isnan(scores).any():
        raise InputError("scores have NaN, which has no rank; give a number for every entry")
    rows = np.flatnonzero(held_out >= 0)
    if not len(rows):
        raise InputError("no row has a held-out one; give at least one")
    target = held_out[rows]
    if target.max() >= scores.shape[1]:
        raise InputError(
            f"held_out names column {target.max()} of {scores.shape[1]}; count columns from 0"
        )
    if training[rows, target].any():
        row = int(rows[np.argmax(training[rows, target])])
        raise InputError(f"the held-out one of row {row} is a one of the training matrix as well")
    ranked = np.where(training[rows], -np.inf, scores[rows])
    own = ranked[np.arange(len(rows)), target][:, None]
    above, equal = (ranked > own).sum(1), (ranked == own).sum(1)
    return float(np.clip((k - above) / equal, 0.0, 1.0).mean())


def ranking_scores(scores, relevance, k: int = 10, *, seen=None) -> dict[str, float]:
    r"""Return how good the first `k` of a ranking are, as means over rows with something relevant.

    As many ties count as would by chance.

    Parameters
    ----------
    scores : (rows, columns) float
        What columns are ranked by in each row, the highest first: expected ratings, or
        probabilities.
    relevance : (rows, columns) bool or float
        What a column is worth in each row, at least 0, such as ones or stars that were held out;
        of what was seen it is not looked at.
    k : int
    seen : (rows, columns) bool, optional
        Columns that are not ranked, such as those in the training data.

    Returns
    -------
    dict
        `precision`: share of the first `k` that is relevant (worth more than 0); `recall`: share
        of the relevant ones that is among the first `k`; `ndcg`: normalised discounted cumulative
        gain, :math:`\sum_{p \le k} g_p / \log_2(1 + p)` over its largest value (Järvelin,
        Kekäläinen 2002); `rows`: how many have something relevant.

    Raises
    ------
    InputError
        For shapes that do not fit, NaN, a negative worth, or nothing relevant.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.5, 0.1, 0.3]])
    >>> found = ranking_scores(scores, np.array([[0, 1, 0, 1]]), k=2)
    >>> {name: round(value, 3) for name, value in found.items()}
    {'precision': 0.5, 'recall': 0.5, 'ndcg': 0.387, 'rows': 1}
    """
    scores, worth = np.asarray(scores, float), np.asarray(relevance, float)
    hidden = np.zeros(scores.shape, bool) if seen is None else np.asarray(seen)
    whole("k", k)
    if scores.ndim != 2 or worth.shape != scores.shape or hidden.shape != scores.shape:
        raise InputError(
            f"scores {scores.shape}, relevance {worth.shape} and seen {hidden.shape} do not fit; "
            "give matrices of one shape (rows, columns)"
        )
    _refuse_nan("seen", hidden)
    hidden = hidden.astype(bool)
    worth = np.where(hidden, 0.0, worth)
    if np.isnan(scores).any() or not (worth >= 0).all():
        raise InputError("scores or relevance have NaN, or relevance is negative; give numbers")
    rows = worth.any(1)
    if not rows.any():
        raise InputError("nothing is relevant; give at least one entry that is worth more than 0")
    ranked, worth = np.where(hidden, -np.inf, scores)[rows], worth[rows]
    first = _expected_at(ranked, worth, k)
    relevant = _expected_at(ranked, worth > 0, k).sum(1)
    discount = 1.0 / np.log2(np.arange(first.shape[1]) + 2.0)
    best = -np.sort(-worth, axis=1)[:, :k]
    return {
        "precision": float((relevant / k).mean()),
        "recall": float((relevant / (worth > 0).sum(1)).mean()),
        "ndcg": float((first @ discount / (best @ discount)).mean()),
        "rows": int(rows.sum()),
    }


def _refuse_nan(name, seen) -> None:
    if seen.dtype.kind == "f" and np.isnan(seen).any():
        raise InputError(f"{name} has NaN; give True for the ones that were seen, False elsewhere")


def _expected_at(ranked, worth, k) -> np.ndarray:
    """Return what the first `k` places of each row are worth, (row, place), of ties their mean."""
    order = np.argsort(-ranked, axis=1, kind="stable")
    ranked, worth = (np.take_along_axis(a, order, 1) for a in (ranked, np.asarray(worth, float)))
    starts = np.ones(ranked.shape, bool)  # of a group of ties
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    group = np.cumsum(starts.ravel()) - 1
    mean = np.bincount(group, worth.ravel()) / np.bincount(group)
    return mean[group].reshape(ranked.shape)[:, :k]


def prediction_scores(values, probability, bins: int = 10) -> dict[str, float]:
    r"""Return scores of predicted probabilities on binary entries.

    Parameters
    ----------
    values : (...) bool or 0 and 1
        What the entries turned out to be.
    probability : (...) float
        Predicted probabilities of a one.
    bins : int
        Groups of equal size, by rising probability, for the calibration error; ties are shared
        out among the groups that they reach into.

    Returns
    -------
    dict
        `auc`: probability that a one is ranked above a zero, ties counted half;
        `average_precision`: mean over the ones of the precision at their rank, where of ties all
        count; `log_loss`: :math:`-\log p` of what happened, mean in nats, with probabilities kept
        :math:`10^{-12}` away from 0 and 1; `calibration_error`: mean over the entries of the
        distance between mean probability and share of ones in their bin.

    Raises
    ------
    InputError
        For shapes that differ, values other than 0 and 1 (missing ones too), probabilities outside
        [0, 1], values of one kind alone, or no bins.

    Examples
    --------
    >>> scores = prediction_scores([True, False, True, False], [0.9, 0.6, 0.4, 0.1], bins=2)
    >>> {name: round(value, 3) for name, value in scores.items()}
    {'auc': 0.75, 'average_precision': 0.833, 'log_loss': 0.511, 'calibration_error': 0.25}
    """
    ones, p = np.asarray(values, float).ravel(), np.asarray(probability, float).ravel()
    if ones.shape != p.shape:
        raise InputError(
            f"values {np.shape(values)} and probabilities {np.shape(probability)} do not fit; give "
            "one probability for every value"
        )
    if not np.isin(ones, (0.0, 1.0)).all():
        raise InputError("values have others than 0 and 1; leave out what is missing")
    if bins < 1:
        raise InputError(f"bins is {bins}; give at least 1")
    ones = ones == 1.0
    probabilities(p)
    count = int(ones.sum())
    if count in (0, len(ones)):
        raise InputError(
            f"of {len(ones)} values {count} are ones, and without both kinds nothing can be "
            "ranked; give ones and zeros"
        )
    ranks = pd.Series(p).rank().to_numpy()
    auc = (ranks[ones].sum() - count * (count + 1) / 2) / (count * (len(ones) - count))
    # Entries, and ones among them, that are ranked at least as high.
    order = np.sort(p)
    above = len(p) - np.searchsorted(order, p[ones])
    ones_above = count - np.searchsorted(np.sort(p[ones]), p[ones])
    kept = np.clip(p, 1e-12, 1 - 1e-12)
    happened = np.where(ones, kept, 1.0 - kept)
    # Each of some tied probabilities stands for all of them, whatever their order.
    _, tied, size = np.unique(p, return_inverse=True, return_counts=True)
    share = (np.bincount(tied, ones) / size)[tied]
    groups = np.array_split(np.argsort(p, kind="stable"), bins)
    gaps = [abs(p[g].sum() - share[g].sum()) for g in groups]
    return {
        "auc": float(auc),
        "average_precision": float((ones_above / above).mean()),
        "log_loss": float(-np.log(happened).mean()),
        "calibration_error": float(sum(gaps) / len(p)),
    }
