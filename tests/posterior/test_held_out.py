"""Cells that are hidden from a fit: which they are, and how well they are predicted."""

import json
import types

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.posterior.held_out import HeldOut, hidden_cells
from bmfjax.posterior.held_out import held_out as predicted
from tests.posterior.test_model_check import Bernoulli, Normal, chances, drawn


def with_figures(fit, complete=True):
    """The fit, which says whether it ended by itself."""
    object.__setattr__(fit, "figures", types.SimpleNamespace(complete=complete))
    return fit


@pytest.mark.parametrize("kind", ["dense", "sparse", "numbers", "ratings"])
def test_no_line_is_emptied(kind):
    """Half of the entries are hidden of a matrix whose lines have few."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (30, 12)).astype(float)
    observed = rng.random(values.shape) < 0.2
    observed[np.arange(30), rng.integers(0, 12, 30)] = True
    observed[3], observed[:, 4] = False, False
    data = BinaryMatrix(np.where(observed, values, np.nan))
    if kind == "sparse":
        data = BinaryMatrix(scipy.sparse.csr_array(values * observed), observed=observed)
    if kind == "numbers":
        data = RealMatrix(np.where(observed, values + 0.5, np.nan))
    if kind == "ratings":
        data = Ratings(*np.nonzero(observed), values[observed] + 1.0, shape=values.shape)
    for seed in range(5):
        hidden = hidden_cells(data, 0.5, seed, keeps_lines=True)
        left, (i, j, _) = observed.copy(), hidden.cells
        left[i, j] = False
        np.testing.assert_array_equal(left, ~np.isnan(hidden.data.dense()))
        np.testing.assert_array_equal(left.any(0), observed.any(0))
        np.testing.assert_array_equal(left.any(1), observed.any(1))
        # Lines with one entry alone are left whole, and most others are not.
        assert 0.25 * observed.sum() < len(i) <= 0.5 * observed.sum()


def test_what_is_explained_is_the_deviance_beside_shares_of_the_rest():
    chance = chances(shape=(80, 12))
    hidden = hidden_cells(drawn(chance, 1), 0.1, 0, keeps_lines=True)
    found = predicted(with_figures(Bernoulli(hidden.data, chance)), hidden.cells, 0.1)
    i, j, values = hidden.cells
    dense = hidden.data.dense()
    ones = ((dense == 1).sum(0) + 0.5) / ((~np.isnan(dense)).sum(0) + 1)
    plain = np.log(np.where(values > 0.5, ones[j], 1 - ones[j]))
    own = np.log(np.where(values > 0.5, chance[i, j], 1 - chance[i, j]))
    assert found.explained == pytest.approx(1 - own.sum() / plain.sum(), rel=1e-6)
    assert found.is_calibrated and found.num_entries == len(i) == round(0.1 * (~np.isnan(
        drawn(chance, 1).dense())).sum())  # fmt: skip
    wrong = predicted(with_figures(Bernoulli(hidden.data, 1 - chance)), hidden.cells, 0.1)
    assert wrong.explained < 0 and not wrong.is_calibrated


def test_hidden_numbers_are_compared_with_effects_of_the_rest():
    rng = np.random.default_rng(3)
    product = rng.normal(0, 1, (70, 2)) @ rng.normal(0, 1, (2, 30))
    data = RealMatrix(product + rng.normal(0, 0.5, product.shape))
    hidden = hidden_cells(data, 0.1, 0, keeps_lines=True)
    found = predicted(with_figures(Normal(hidden.data, product)), hidden.cells, 0.1)
    i, j, values = hidden.cells
    seen = ~np.isnan(hidden.data.dense())
    design = np.hstack([np.eye(70)[np.nonzero(seen)[0]], np.eye(30)[np.nonzero(seen)[1]]])
    effects = np.linalg.lstsq(design, hidden.data.dense()[seen], rcond=None)[0]
    residual = values - effects[i] - effects[70 + j]
    plain = scipy.stats.norm.logpdf(residual, scale=np.sqrt(np.mean(residual**2)))
    own = scipy.stats.norm.logpdf(values, product[i, j], 0.5)
    assert found.explained == pytest.approx(1 - np.exp(-2 * (own - plain).mean()), abs=1e-4)
    assert np.isnan(found.calibration_error) and found.is_calibrated
    inside = np.abs(values - product[i, j]) < 0.5 * scipy.stats.norm.ppf(0.95)
    assert found.coverage == pytest.approx(inside.mean()) and found.intervals.holds
    assert str(found).endswith(f"90 % intervals hold {100 * inside.mean():.0f} % of them.")
    assert HeldOut.of_stored(json.loads(json.dumps(found.stored()))) == found
    # Rows scatter as what was fitted says.
    row = np.random.default_rng(0).normal(size=(70, 1)) > 0
    noisy = RealMatrix(product + rng.normal(0, np.where(row, 1.0, 0.1), product.shape))
    hidden = hidden_cells(noisy, 0.2, 0, keeps_lines=True)
    found = predicted(with_figures(Normal(hidden.data, product)), hidden.cells, 0.2)
    assert found.coverage_scattered < 0.7 < found.coverage and not found.intervals.holds


def test_it_is_stored_as_plain_values_and_said_in_words():
    found = HeldOut(
        share=0.1, num_entries=1200, explained=0.31, explained_error=0.02,
        baseline="independent columns", log_score=-0.4, baseline_score=-0.6,
        calibration_error=0.021, error_by_chance=0.03, complete=True,
    )  # fmt: skip
    assert str(found) == (
        "1,200 entries, 10 %, were hidden from a first fit: it explains 31 ± 2 % of what "
        "independent columns leave, and its probabilities are calibrated (error 0.021, by chance "
        "up to 0.030)."
    )
    stored = {n: v for n, v in found.stored().items() if not n.startswith("coverage")}
    assert not HeldOut.of_stored(json.loads(json.dumps(stored))).intervals.figures  # older ones
    of_numbers = HeldOut(**{
        **found.stored(), "calibration_error": np.nan, "error_by_chance": np.nan, "complete": False,
    })  # fmt: skip
    again = HeldOut.of_stored(json.loads(json.dumps(of_numbers.stored(), allow_nan=False)))
    assert np.isnan(again.calibration_error)
    assert str(again).endswith("that was cut short: it explains 31 ± 2 % of what independent "
                               "columns leave.")  # fmt: skip


def test_too_few_entries_are_refused():
    data = BinaryMatrix(np.where(np.eye(4), 1.0, np.nan))
    hidden = hidden_cells(data, 0.5, 0, keeps_lines=True)
    with pytest.raises(InputError, match=r"leave check \(--check\) out"):
        predicted(with_figures(Bernoulli(hidden.data, np.full((4, 4), 0.5))), hidden.cells, 0.5)
