"""Recall of held-out ones, against its definition."""

import numpy as np
import pytest

from bmfjax.data import InputError
from bmfjax.diagnostics import recall_at


@pytest.mark.parametrize("ties", [False, True])
def test_recall_is_the_mean_over_random_orders_of_ties(ties):
    rng = np.random.default_rng(0)
    scores = rng.permutation(600).reshape(40, 15).astype(float)
    scores = scores // 150 if ties else scores
    training = rng.random(scores.shape) < 0.3
    training[:, 0] = False
    held_out = np.array([rng.choice(np.flatnonzero(~t)) for t in training])
    held_out[3] = -1
    hits = []
    for _ in range(400):
        shaken = scores + 0.5 * rng.random(scores.shape)
        for i in np.flatnonzero(held_out >= 0):
            zeros = np.flatnonzero(~training[i])
            best = zeros[np.argsort(-shaken[i, zeros])[:5]]
            hits.append(held_out[i] in best)
    error = np.std(hits) / np.sqrt(400) if ties else 1e-9
    assert abs(recall_at(scores, training, held_out, 5) - np.mean(hits)) <= 4 * error


def test_bad_input_is_refused():
    scores, training = np.ones((2, 3)), np.eye(2, 3, dtype=bool)
    with pytest.raises(InputError, match="held-out one of row 1 is a one"):
        recall_at(scores, training, np.array([1, 1]))
    with pytest.raises(InputError, match="no row has a held-out one"):
        recall_at(scores, training, np.array([-1, -1]))
    with pytest.raises(InputError, match="do not fit"):
        recall_at(scores, training, np.array([1]))
