"""How well predicted probabilities rank the zeros that are really ones."""

from __future__ import annotations

import numpy as np

from bmfjax.data.errors import InputError


def recall_at(scores, training, held_out, k: int = 10) -> float:
    """Share of rows whose held-out one is among the k zeros that are ranked highest.

    A held-out one is a zero of the training matrix. Of ties as many count as would by chance.

    Parameters
    ----------
    scores : (rows, columns) float
        Probabilities, or anything that rises with them.
    training : (rows, columns) bool
        Ones that were seen; they are not ranked.
    held_out : (rows,) int
        Of every row the column of a one that was not; -1 where it has none.
    k : int

    Returns
    -------
    float

    Raises
    ------
    InputError
        For shapes that do not fit, a held-out one that was seen, or none at all.

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
    rows = np.flatnonzero(held_out >= 0)
    if not len(rows):
        raise InputError("no row has a held-out one; give at least one")
    target = held_out[rows]
    if training[rows, target].any():
        row = int(rows[np.argmax(training[rows, target])])
        raise InputError(f"the held-out one of row {row} is a one of the training matrix as well")
    ranked = np.where(training[rows], -np.inf, scores[rows])
    own = ranked[np.arange(len(rows)), target][:, None]
    above, equal = (ranked > own).sum(1), (ranked == own).sum(1)
    return float(np.clip((k - above) / equal, 0.0, 1.0).mean())
