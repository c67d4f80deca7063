"""Latent classes, the reference of the report: what they explain of entries hidden from them."""

from types import SimpleNamespace

import numpy as np
import pytest

from bmfjax.data import BinaryMatrix
from bmfjax.posterior import latent_classes
from bmfjax.posterior.latent_classes import predicted_by_classes
from bmfjax.report import model_fit
from tests.posterior.test_model_check import Bernoulli


def of_classes(seed=0, shape=(240, 20)):
    """Ones of four classes, and their true probabilities."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.7, 0.7, (4, shape[1]))[rng.integers(0, 4, shape[0])]
    return (rng.random(shape) < chance).astype(float), chance


def scored(values, one):
    return np.log(np.where(values > 0.5, one, 1 - one)).mean()


def test_classes_that_were_planted_are_predicted_as_well_as_they_can_be():
    ones, chance = of_classes()
    ones[np.random.default_rng(1).random(ones.shape) < 0.1] = np.nan
    i, j = np.nonzero(~np.isnan(ones))
    found = predicted_by_classes(BinaryMatrix(ones), (i, j, ones[i, j])).mean()
    truth = scored(ones[i, j], np.clip(chance[i, j], 1e-4, 1 - 1e-4))
    plain = scored(ones[i, j], np.nanmean(ones, 0)[j])
    assert truth - 0.05 < found < truth + 0.01 and found > plain + 0.5 * (truth - plain)


def test_no_entry_predicts_itself():
    """Of independent columns classes explain nothing."""
    rng = np.random.default_rng(2)
    ones = (rng.random((60, 12)) < np.linspace(0.2, 0.8, 12)).astype(float)
    i, j = np.nonzero(ones >= 0)
    found = predicted_by_classes(BinaryMatrix(ones), (i, j, ones[i, j])).mean()
    assert found < scored(ones[i, j], ones.mean(0)[j])


def test_large_matrices_are_left_alone(monkeypatch):
    ones, _ = of_classes(shape=(30, 10))
    i, j = np.nonzero(ones >= 0)
    cells = i, j, ones[i, j]
    assert predicted_by_classes(BinaryMatrix(ones), tuple(c[:4] for c in cells)) is None
    monkeypatch.setattr(latent_classes, "MOST_ENTRIES", 299)
    assert predicted_by_classes(BinaryMatrix(ones), cells) is None


@pytest.mark.parametrize(("classes", "words"), [
    (-0.2, "(independent columns 0\xa0%, latent classes 29\xa0%)"),
    (None, "(independent columns 0\xa0%; latent classes are not fitted to a matrix of this size)"),
])  # fmt: skip
def test_the_bar_stands_beside_latent_classes(classes, words, monkeypatch):
    ones, chance = of_classes(shape=(40, 10))

    class Shown(Bernoulli):
        _can_be_checked = True
        verdict = SimpleNamespace(is_of_starts=False)

        @property
        def _left_out(self):
            found = model_fit.LeftOut(
                0.4,
                0.02,
                "independent columns",
                -0.17,
                -0.28,
                400,
                None,
                0.0,
                0.0,
                None,
                None,
                None,
            )
            return found

    seen = None if classes is None else np.full(400, classes)
    monkeypatch.setattr(model_fit, "predicted_by_classes", lambda data, cells: seen)
    bar = str(model_fit.explained_bar(Shown(BinaryMatrix(ones), chance)))
    assert f"<b>Explained: 40 ± 2 %</b> {words}" in bar
    assert ('<em style="left: 28.6%">' in bar) == (classes is not None)
