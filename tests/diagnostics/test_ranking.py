"""Recall of held-out ones and scores of probabilities, against definitions and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from bmfjax.data import InputError
from bmfjax.diagnostics import prediction_scores, recall_at


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
    with pytest.raises(InputError, match="k is 0"):
        recall_at(scores, training, np.array([1, 0]), 0)
    with pytest.raises(InputError, match="names column 3 of 3"):
        recall_at(scores, training, np.array([1, 3]))
    with pytest.raises(InputError, match="training has NaN"):
        recall_at(scores, np.where(training, np.nan, 0.0), np.array([1, 0]))
    with pytest.raises(InputError, match="scores have NaN"):
        recall_at(scores * np.nan, training, np.array([1, 0]))


def test_ties_are_calibrated_whatever_their_order():
    assert prediction_scores([1, 1, 0, 0], [0.5] * 4, bins=2)["calibration_error"] == 0.0
    assert prediction_scores([1, 1, 1, 0], [0.5] * 4, bins=3)["calibration_error"] == 0.25


@settings(max_examples=50)
@given(st.integers(2, 60), st.integers(0, 2**31), st.booleans())
def test_scores_are_those_of_scikit_learn(number, seed, ties):
    rng = np.random.default_rng(seed)
    ones = np.append([True, False], rng.random(number) < 0.4)
    p = rng.random(len(ones))
    p = np.round(p, 1) if ties else p
    scores = prediction_scores(ones, p)
    assert scores["auc"] == pytest.approx(metrics.roc_auc_score(ones, p))
    assert scores["average_precision"] == pytest.approx(metrics.average_precision_score(ones, p))
    kept = np.clip(p, 1e-12, 1 - 1e-12)
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(ones, kept))


def test_calibration_error_is_small_where_probabilities_are_true():
    rng = np.random.default_rng(0)
    p = rng.random(200_000) ** 2
    ones = rng.random(p.shape) < p
    assert prediction_scores(ones, p)["calibration_error"] < 0.005
    # In every bin of squared probabilities the gap is E[p - p^2]; on the whole 1/3 - 1/5.
    assert prediction_scores(ones, p**2)["calibration_error"] == pytest.approx(2 / 15, abs=0.005)


@pytest.mark.parametrize(
    ("ones", "p", "message"),
    [
        ([1, 0], [0.5], "do not fit"),
        ([1, 0], [0.5, 1.5], r"outside of \[0, 1\]"),
        ([1, 0], [0.5, np.nan], r"outside of \[0, 1\]"),
        ([1, 1], [0.5, 0.5], "of 2 values 2 are ones"),
        ([1, 0, np.nan], [0.5, 0.5, 0.5], "others than 0 and 1"),
    ],
)
def test_bad_predictions_are_refused(ones, p, message):
    with pytest.raises(InputError, match=message):
        prediction_scores(ones, p)
