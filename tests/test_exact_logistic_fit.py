"""`bmfjax.fit` with the logistic model by its exact sampler: what its fits tell, from draws."""

import numpy as np
import pytest
from scipy.special import expit, log_expit

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk
from bmfjax.families import ask
from bmfjax.families.logistic import ExactLogisticFit, LogisticFit
from bmfjax.posterior.products import factor_sizes
from bmfjax.posterior.rotations import rotated_draws
from tests.said import has_its_summary
from tests.small_fits import COLUMNS, RANK, ROWS, SIZES, ones

OPTIONS = SIZES | {"sampler": "gibbs", "num_samples": 400}
OPTIONS |= {"model": bmfjax.Logistic(row_effects=True, column_effects=True, scale=1.2)}


@pytest.fixture(scope="module")
def fitted():
    return bmfjax.fit(ones(), RANK, **OPTIONS)


def log_odds(fit):
    drawn = fit.draws()
    product = np.einsum("cdik,cdjk->cdij", drawn["usage"], drawn["basis"])
    effects = drawn["row_effect"][..., None] + drawn["column_effect"][:, :, None]
    return product + effects + drawn["bias"][..., None, None]


def test_entries_are_those_of_the_draws(fitted):
    assert isinstance(fitted, ExactLogisticFit) and not hasattr(fitted, "approximation")
    values = log_odds(fitted)
    chance = expit(values)
    np.testing.assert_allclose(fitted.probability(), chance.mean((0, 1)), rtol=1e-5)
    some = fitted.probability(rows=[4, 1], columns=[2, 0, 5])
    np.testing.assert_allclose(some, fitted.probability()[np.ix_([4, 1], [2, 0, 5])], rtol=1e-6)
    found = fitted.predict_cells([1, 3], [0, 5], "probability")
    np.testing.assert_allclose(found, fitted.probability()[[1, 3], [0, 5]], rtol=1e-6)
    for kind, expected in (("mean", values.mean((0, 1))), ("sd", values.std((0, 1), ddof=1))):
        np.testing.assert_allclose(fitted.predict(kind=kind), expected, rtol=5e-3, atol=1e-5)
    np.testing.assert_allclose(fitted.predict_cells([1, 3], [0, 5], "interval", 0.8),
        np.quantile(values[:, :, [1, 3], [0, 5]], [0.1, 0.9], (0, 1)), rtol=1e-4)  # fmt: skip


def test_the_verdict_is_of_a_sampler(fitted):
    assert fitted.figures.exact and "mean-field" not in str(fitted.verdict)
    assert not fitted.verdict.factors.counts and fitted.figures.rhat_product < 1.1
    assert fitted.figures.rhat >= fitted.figures.rhat_log_joint > 0.9


def test_the_density_of_a_turned_draw_is_what_the_sampler_reports(fitted):
    """Prior and likelihood of the kept draws, whose factors were turned."""
    prior, drawn = fitted._log_prior_of_draws(), fitted.draws()
    expected = -0.5 * (drawn["bias"] / 5.0) ** 2 - np.log(5.0 * np.sqrt(2 * np.pi))
    for name in ("usage", "basis", "row_effect", "column_effect"):
        x = drawn[name].reshape(*drawn["bias"].shape, -1) / 1.2
        expected = expected - 0.5 * (x**2).sum(-1) - x.shape[-1] * np.log(1.2 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(prior, expected, rtol=1e-4)


def test_turning_changes_no_product_and_no_length():
    rng = np.random.default_rng(0)
    drawn = {"usage": rng.normal(size=(2, 5, 7, 3)), "basis": rng.normal(size=(2, 5, 4, 3))}
    found = rotated_draws(drawn, (1, 2))
    products = [np.einsum("cdik,cdjk->cdij", d["usage"], d["basis"]) for d in (drawn, found)]
    np.testing.assert_allclose(*products, atol=1e-12)
    for name in drawn:
        np.testing.assert_allclose((found[name] ** 2).sum(-1), (drawn[name] ** 2).sum(-1))
    spread = sum(found[n].var((0, 1)).sum() for n in drawn)
    assert spread < sum(drawn[n].var((0, 1)).sum() for n in drawn)
    assert (np.diff(factor_sizes(found["usage"], found["basis"])) < 0).all()
    mean = np.concatenate([found[n].mean((0, 1)) for n in drawn])
    gram = mean.T @ mean  # of principal axes
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 0.2 * np.diag(gram).min()


def test_new_rows_that_are_old_ones_get_their_usage(fitted):
    """The mean of what is drawn anew, within Monte Carlo errors of both; an empty row's is zero."""
    new = ones()
    new[0] = np.nan
    found, usage = fitted.transform(new), fitted.usage_draws
    size = np.clip(ess_bulk(usage), 20, None)
    error = usage.std((0, 1)) / np.sqrt(size)
    assert (np.abs(found - usage.mean((0, 1)))[1:] < 6 * error[1:]).all()
    assert np.abs(found[0]).max() < 0.35
    with pytest.raises(InputError, match=f"new rows have {COLUMNS - 1} columns"):
        fitted.transform(new[:, 1:])


def test_hidden_entries_of_new_rows_are_scored_given_the_others(fitted):
    """Against draws of the prior of a row, weighted by its likelihood: no chain is run."""
    row = np.array([[1.0, 0.0, 1.0, np.nan, *[np.nan] * (COLUMNS - 4)]])
    found = fitted.score_new(row, [0], [3], [1.0])
    rng, drawn = np.random.default_rng(0), fitted.draws()
    basis, offset = (drawn[n].reshape(-1, *drawn[n].shape[2:]) for n in ("basis", "column_effect"))
    offset = offset + drawn["bias"].reshape(-1, 1)
    vector = 1.2 * rng.normal(size=(2_000, 1, RANK + 1))
    psi = np.einsum("pdk,djk->pdj", vector[..., :RANK], basis[:, :4])
    psi += vector[..., RANK:] + offset[:, :4]
    weight = np.exp(log_expit(psi[..., :3] * [1, -1, 1]).sum(-1))
    exact = (weight * expit(psi[..., 3])).sum(0) / weight.sum(0)
    assert np.exp(found[0]) == pytest.approx(exact.mean(), abs=0.05)


def test_a_fit_comes_back_from_disk_and_writes_its_page(fitted, tmp_path):
    again = bmfjax.Fit.load(fitted.save(tmp_path / "fit"))
    assert has_its_summary(again, fitted)
    assert type(again) is ExactLogisticFit and not isinstance(again, LogisticFit)
    np.testing.assert_array_equal(again.probability(), fitted.probability())
    page = again.report(tmp_path / "page.html").read_text()
    assert "up to a rotation" in page and "Lower bound" not in page
    assert all(part.said[1:] in page for part in fitted.verdict.parts)


def test_a_given_start_is_where_chains_begin():
    start = {"usage": np.full((ROWS, 1), 0.3), "basis": np.full((COLUMNS, 1), -0.2)}
    request = ask(ones(), 1, **{n: v for n, v in OPTIONS.items() if n != "progress"}, init=start)
    position = request.chains().run(request).state.position
    np.testing.assert_array_equal(position["usage"], np.full((2, ROWS, 1), np.float32(0.3)))
    np.testing.assert_array_equal(position["row_effect"], 0.0)
