"""Recall of held-out ones and scores of probabilities, against definitions and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.metrics import ndcg_score

from bmfjax.data import InputError
from bmfjax.diagnostics import prediction_scores, ranking_scores, recall_at


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


def by_definition(scores, worth, seen, k):
    """Precision, recall and NDCG of one row without ties, place by place."""
    order = [j for j in np.argsort(-scores) if not seen[j]]
    gains = [worth[j] / np.log2(place + 2) for place, j in enumerate(order[:k])]
    ideal = sorted((worth[j] for j in order), reverse=True)[:k]
    best = sum(gain / np.log2(place + 2) for place, gain in enumerate(ideal))
    relevant = [j for j in order if worth[j] > 0]
    hits = len(set(order[:k]) & set(relevant))
    return hits / k, hits / len(relevant), sum(gains) / best


def test_ranking_scores_are_those_of_their_definition():
    rng = np.random.default_rng(7)
    scores, seen = rng.random((9, 12)), rng.random((9, 12)) < 0.3
    worth = rng.integers(0, 5, (9, 12)) * (rng.random((9, 12)) < 0.5)
    worth[4] = 0  # a row that is left out
    rows = [i for i in range(9) if (worth * ~seen)[i].any()]
    expected = np.mean([by_definition(scores[i], worth[i], seen[i], 4) for i in rows], axis=0)
    found = ranking_scores(scores, worth, 4, seen=seen)
    # What was seen may be worth anything.
    assert found == ranking_scores(scores, np.where(seen, np.nan, worth), 4, seen=1.0 * seen)
    assert found.pop("rows") == len(rows) < 9
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-12)
    np.testing.assert_allclose(
        ranking_scores(scores[rows], worth[rows], 4)["ndcg"],
        ndcg_score(worth[rows], scores[rows], k=4),
    )


def test_ties_count_as_they_would_by_chance():
    rng = np.random.default_rng(8)
    scores, worth = rng.integers(0, 3, (1, 8)) / 2, rng.integers(0, 3, (1, 8))
    found = ranking_scores(scores, worth, 3)
    np.testing.assert_allclose(found["ndcg"], ndcg_score(worth, scores, k=3))
    broken = [ranking_scores(scores + 1e-6 * rng.random((1, 8)), worth, 3) for _ in range(4000)]
    for name in ("precision", "recall"):
        drawn = [one[name] for one in broken]
        assert abs(found[name] - np.mean(drawn)) <= 4 * np.std(drawn) / 4000**0.5 + 1e-12


@pytest.mark.parametrize(
    ("worth", "options", "message"),
    [
        ([[1, 0, 1]], {}, r"scores \(1, 2\), relevance \(1, 3\) and seen"),
        ([[1, -1]], {}, "relevance is negative"),
        ([[0, 0]], {}, "nothing is relevant"),
        ([[1, 0]], {"seen": [[True, False]]}, "nothing is relevant"),
        ([[1, 0]], {"seen": [[0.0, np.nan]]}, "seen has NaN; give True for the ones that were"),
        ([[1, np.nan]], {}, "relevance have NaN"),
        ([[1, 0]], {"k": 0}, "k is 0"),
    ],
)
def test_rankings_without_an_answer_are_refused(worth, options, message):
    with pytest.raises(InputError, match=message):
        ranking_scores([[0.3, 0.2]], worth, **options)
