"""`bmfjax.fit`: the answer, its reproducibility, and the refusals."""

import dataclasses
import signal

import numpy as np
import numpyro
import pytest

import bmfjax
from bmfjax import verdict
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import boolean_product
from bmfjax.families import ask
from bmfjax.families.base import is_exact
from bmfjax.infer import ChainRun
from bmfjax.infer.interrupt import Terminated
from bmfjax.posterior.selection import informed
from bmfjax.verdict.judging import _spread_of
from tests.small_fits import SIZES, ones

QUICK = {
    "model": "relaxed",
    "num_chains": 2,
    "num_warmup": 150,
    "num_samples": 100,
    "progress": False,
}


@pytest.fixture(scope="module")
def product():
    return bmfjax.generate_product(40, 24, 3, density=0.4, flip=0.03, seed=3)


@pytest.fixture(scope="module")
def fitted(product):
    return bmfjax.fit(product.data, rank=3, seed=1, **QUICK)


def test_recovers_a_known_product(product, fitted):
    recovered = boolean_product(fitted.usage_binary, fitted.basis_binary)
    wrong = (recovered != product.clean).mean()
    flipped = (np.nan_to_num(product.data.dense()) != product.clean).mean()
    assert wrong < flipped < 0.06  # closer to the truth than the data are
    called = fitted.probability() > 0.5
    assert (called != product.clean).mean() < flipped


def test_noise_precision_matches_the_residuals(product, fitted):
    """Every precision is a draw from Gamma(1 + N/2, 1 + RSS/2) at its own factors."""
    draws = np.einsum("cdik,cdjk->cdij", fitted.usage_draws, fitted.basis_draws)
    squares = ((product.data.dense() - draws) ** 2).sum((2, 3))
    shape, rate = 1 + 40 * 24 / 2, 1 + squares / 2
    scores = (fitted.other_draws["precision"] - shape / rate) / (np.sqrt(shape) / rate)
    assert abs(scores.mean()) < 5 / np.sqrt(scores.size)
    assert 0.8 < scores.std() < 1.2


def test_summaries_agree_with_the_draws(fitted):
    np.testing.assert_allclose(fitted.usage, fitted.draws()["usage"].mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(
        fitted.basis_sd, fitted.draws()["basis"].std((0, 1)), rtol=1e-3, atol=1e-5
    )
    draws = np.einsum("cdik,cdjk->cdij", fitted.usage_draws, fitted.basis_draws)
    np.testing.assert_allclose(fitted.probability(), (draws >= 0.5).mean((0, 1)), atol=1e-2)
    np.testing.assert_allclose(fitted.predict(), draws.mean((0, 1)), atol=1e-5)
    np.testing.assert_allclose(fitted.predict(kind="sd"), draws.std((0, 1)), rtol=2e-2, atol=1e-4)
    low, high = fitted.predict(kind="interval", level=0.8)
    flat = draws.reshape(-1, *draws.shape[2:])
    np.testing.assert_allclose(low, np.quantile(flat, 0.1, axis=0), atol=1e-4)
    np.testing.assert_allclose(high, np.quantile(flat, 0.9, axis=0), atol=1e-4)


def test_entries_by_position_and_by_name(fitted):
    rows = [fitted.data.row_names[5], fitted.data.row_names[0]]
    part = fitted.probability(rows=rows, columns=[2])
    np.testing.assert_array_equal(part, fitted.probability()[[5, 0]][:, [2]])
    with pytest.raises(InputError, match="row 'nobody' is not in the matrix"):
        fitted.probability(rows=["nobody"])
    with pytest.raises(InputError, match="column 24 is outside 0 to 23"):
        fitted.predict(columns=[24])
    mask = np.arange(40) > 37
    np.testing.assert_array_equal(fitted.predict(rows=mask), fitted.predict(rows=[38, 39]))
    with pytest.raises(InputError, match=r"row 1.7 is neither a position nor a name"):
        fitted.predict(rows=[1.7])
    with pytest.raises(InputError, match="row True is neither"):
        fitted.predict(rows=[True])


def test_summary_has_one_row_a_factor_with_right_counts(product, fitted):
    table = fitted.summary()
    ones = product.data.dense()
    assert len(table) == 3
    for k, row in enumerate(table.itertuples()):
        u, v = fitted.usage_binary[:, k], fitted.basis_binary[:, k]
        assert (row.rows, row.columns) == (u.sum(), v.sum())
        assert np.isclose(row.density, ones[u][:, v].mean())
        assert np.isclose(row.p_one, fitted.probability()[u][:, v].mean())
    assert (
        table.attrs["errors"]
        == (boolean_product(fitted.usage_binary, fitted.basis_binary) != ones).sum()
    )


def test_transform_gives_the_usage_of_the_fitted_rows(product, fitted):
    again = fitted.transform(product.data)
    assert np.abs(again - fitted.usage).mean() < 0.1
    assert np.corrcoef(again.ravel(), fitted.usage.ravel())[0, 1] > 0.95
    empty = np.full((1, 24), np.nan)
    both = np.vstack([empty, product.data.dense()[:1]])
    out = fitted.transform(both)
    assert np.isnan(out[0]).all()
    np.testing.assert_allclose(out[1], again[0], atol=1e-5)
    with pytest.raises(InputError, match="kind is 'median'; choose 'mean' or 'sd'"):
        fitted.transform(both, kind="median")
    with pytest.raises(InputError, match="finds one usage of new rows for each draw, and no sd"):
        fitted.transform(both, kind="sd")
    with pytest.raises(InputError, match="5 columns and the fitted matrix 24"):
        fitted.transform(np.zeros((2, 5)))


@pytest.mark.parametrize("method", ["map", "expected", "threshold", "pairs"])
def test_every_rule_gives_boolean_factors_of_the_product(product, fitted, method):
    usage, basis = fitted.binarize(method)
    assert usage.dtype == basis.dtype == bool
    assert (boolean_product(usage, basis) != product.clean).mean() < 0.05


def test_rules_that_form_the_matrix_are_for_small_ones(fitted, monkeypatch):
    monkeypatch.setattr(type(fitted), "_is_small", False)
    fitted.binarize("map")
    for method in ("expected", "threshold", "pairs"):
        with pytest.raises(
            InputError, match=f"'{method}' forms the whole .* 960 entries; .* 'map'"
        ):
            fitted.binarize(method)


@pytest.fixture(scope="module")
def masked(product):
    """A fit with a fifth of the entries hidden, and a row and a column; what is hidden."""
    values = product.data.dense().copy()
    hidden = np.random.default_rng(0).random(values.shape) < 0.2
    values[hidden], values[3], values[:, 7] = np.nan, np.nan, np.nan
    hidden[3], hidden[:, 7] = False, False
    return bmfjax.fit(values, rank=3, seed=1, **QUICK), hidden


def test_missing_entries_are_not_zeros(product, masked):
    found, hidden = masked
    called = found.probability() > 0.5
    right = (called == product.clean)[hidden].mean()
    assert right > 0.85  # 40 % of these entries are ones: calling them zeros gives 0.6
    assert np.isnan(found.idata["observed_data"]["data"].values[hidden]).all()


def test_rows_and_columns_without_information_are_kept_and_reported(masked):
    found, _ = masked
    assert found.usage.shape == (40, 3)
    # Nothing was observed there: the posterior is the uniform prior, in every chain.
    draws = found.usage_draws[:, :, 3]
    assert np.abs(draws.mean((1, 2)) - 0.5).max() < 5 * np.sqrt(1 / 12 / 300)
    assert np.abs(draws.std((1, 2)) - np.sqrt(1 / 12)).max() < 0.05
    assert found.figures.rows_without_information == 1
    assert found.figures.columns_without_information == 1


@pytest.mark.long
def test_minibatches_say_how_exact_they_are(product, fitted):
    """All rows and columns in a batch: exact. Else the noise of the gradients is in the verdict."""
    request = ask(product.data, 3, model="relaxed", sampler="minibatch")
    assert is_exact(request, request.chains())
    some = bmfjax.Minibatch(batch_size=12, num_steps=12)
    fit = bmfjax.fit(product.data, 3, some, seed=1, **QUICK)
    share = fit.figures.noise_share
    assert not fit.figures.exact and 0.0 < share < 1.0
    assert f"have {share:.0%} of the noise that the sampler can make up for" in str(fit.verdict)
    assert np.abs(fit.predict() - fitted.predict()).max() < 0.15
    assert fit.other_draws["precision"].mean() == pytest.approx(
        fitted.other_draws["precision"].mean(), rel=0.1
    )
    assert "have 1.7 times the noise" in _spread_of(verdict.Figures(noise_share=1.7))


def test_thesis_sampler_fixes_the_precision_at_one():
    found = bmfjax.fit(ones(), rank=2, model="relaxed", sampler="thesis", **SIZES)
    assert "precision" not in found.other_draws
    assert found.settings["priors"]["precision"] == "1.0"


def test_settings_tell_priors_apart(product):
    """A checkpoint of one prior must not be continued under another."""
    import numpyro.distributions as dist

    from bmfjax.models import resolve_prior
    from bmfjax.specs.base import settings_text

    priors = [resolve_prior(name) for name in ("uniform", "normal", "laplace", "beta")]
    priors += [dist.TruncatedNormal(m, 1.0, low=0.0, high=1.0) for m in (0.1, 0.2)]
    priors += [dist.TruncatedDistribution(dist.Laplace(0.0, b), 0.0, 1.0) for b in (0.1, 1.0)]
    assert len({settings_text(p) for p in priors}) == len(priors)


@pytest.fixture
def signal_after(monkeypatch):
    """Send a signal to this process when so many draws of a chain are there."""
    advance = ChainRun.advance

    def send(which, draws):
        def patched(run, num_steps=None):
            left = draws + run.num_warmup - run.steps_done
            taken = advance(run, min(num_steps, left) if left > 0 else num_steps)
            if run.num_draws == draws:
                signal.raise_signal(which)
            return taken

        monkeypatch.setattr(ChainRun, "advance", patched)

    return send


PLANNED = QUICK | {"num_warmup": 20, "num_samples": 3000}


def test_a_run_that_is_stopped_early_keeps_its_draws(product, signal_after):
    signal_after(signal.SIGINT, 100)
    found = bmfjax.fit(product.data, rank=2, **PLANNED)
    assert found.settings["thinning"] == found.figures.thinning == 1
    assert found.usage_draws.shape[1] == found.figures.num_draws == 100
    assert not found.figures.complete and not found.figures.timed_out
    lp = found.idata["sample_stats"]["lp"].values
    np.testing.assert_array_equal(lp, found.trace["log_joint"][:, 20:])


def test_sigterm_leaves_a_checkpoint_and_no_result(product, signal_after, tmp_path):
    signal_after(signal.SIGTERM, 400)
    path, before = tmp_path / "run", signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated, match=r"after 400 of 3,000 draws a chain, kept in .*run") as end:
        bmfjax.fit(product.data, rank=2, checkpoint=path, **PLANNED)
    assert end.value.code == 143 and signal.getsignal(signal.SIGTERM) is before
    # It goes on from there, to be stopped again under a handler of the user's own, which returns.
    signal_after(signal.SIGTERM, 500)
    seen = []
    signal.signal(signal.SIGTERM, lambda signum, frame: seen.append(signum))
    try:
        found = bmfjax.fit(product.data, rank=2, checkpoint=path, resume=True, **PLANNED)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
    assert (found.figures.num_draws, found.figures.thinning) == (500, 3)
    assert found.usage_draws.shape[1] == 500 // 3


def test_the_verdict_doubts_chains_that_disagree(product):
    from bmfjax import verdict

    rng = np.random.default_rng(0)
    usage = rng.random((2, 50, 40, 3)) * np.array([0.1, 1.0])[:, None, None, None]
    basis = rng.random((2, 50, 24, 3))
    trace = {"log_joint": rng.normal(size=(2, 60)), "residual": np.full((2, 60), 100.0)}
    lines, options = informed(product.data), {"exact": True, "residual_floor": 2.0}
    entries = verdict.mixing(lines, usage, basis)
    apart = verdict.of_chains(entries, 2, 0, np.ones(3), trace, **options)
    assert apart.figures.rhat_product > 1.5
    assert not apart.figures.converged
    assert str(apart).startswith("Usable in part: predictions do not hold yet")
    first = {n: t[:1] for n, t in trace.items()}
    entries = verdict.mixing(lines, usage[:1], basis[:1])
    alone = verdict.of_chains(entries, 1, 0, np.full(3, np.nan), first, **options)
    assert str(alone).startswith("Not checked: predictions (not compared)")

    # The same factors in every chain, with little noise of their own: now it can be relied on.
    jitter = rng.normal(0, 0.02, (2, 500, 40, 3)), rng.normal(0, 0.02, (2, 500, 24, 3))
    together = [f[:1, :1].clip(0.1, 0.9) + e for f, e in zip((usage, basis), jitter, strict=True)]
    trace = {"log_joint": rng.normal(size=(2, 500)), "residual": np.full((2, 500), 100.0)}
    entries = verdict.mixing(lines, *together)
    agree = verdict.of_chains(entries, 2, 0, np.ones(3), trace, **options)
    assert agree.figures.converged
    assert str(agree).startswith(("Reliable", "Usable"))
    assert "without noise" not in str(agree)
    for windows, text in (
        ({"usage": 8, "basis": 8}, " A draw averages 8 iterates."),
        ({"usage": 9, "basis": 1}, "A draw averages iterates, 9 of the usage and 1 of the basis, "),
    ):
        averaged = verdict.of_chains(entries, 2, 0, np.ones(3), trace, windows=windows, **options)
        assert averaged.figures.window == min(windows.values()) and text in str(averaged)
        assert ("use sampler='gibbs'" in str(averaged)) == (averaged.figures.window < 8)
    # One scalar of the whole that has not mixed is enough to doubt it.
    stuck = {**trace, "precision": np.repeat([[1.0], [2.0]], 500, 1) + rng.normal(0, 0.1, (2, 500))}
    doubted = verdict.of_chains(entries, 2, 0, np.ones(3), stuck, **options)
    assert doubted.predictions.said.startswith("predictions do not hold yet (R-hat ")
    assert not doubted.figures.converged


def test_data_without_noise_give_a_bounded_precision_and_say_so():
    clean = np.repeat(np.repeat(np.eye(3), [14, 13, 13], axis=0), 8, axis=1)
    found = bmfjax.fit(clean, rank=3, seed=0, **QUICK)
    # The residual cannot fall below what the prior's rate is worth: Gamma(1 + N/2, 1 + RSS/2).
    assert np.isfinite(found.other_draws["precision"]).all()
    assert found.other_draws["precision"].max() < 1.5 * (1 + clean.size / 2)
    few = QUICK | {"model": bmfjax.Relaxed(precision=numpyro.distributions.Gamma(1.0, 40.0))}
    assert "almost without noise" in str(bmfjax.fit(clean, rank=3, seed=0, **few).verdict)


def test_a_given_start_is_kept_until_the_data_move_it(product):
    """The start's precision fits it: at precision one the first sweep would forget it."""
    init = {"usage": product.usage.astype(float), "basis": product.basis.astype(float)}
    few = {"num_chains": 2, "num_warmup": 0, "num_samples": 4}
    request = ask(product.data, 3, model="relaxed", init=init, **few)
    chains = request.chains()
    assert chains.settings["sampler_options"]["num_anneal"] == "0"
    run = chains.run(request)
    start = run.state.position["usage"]
    np.testing.assert_allclose(start[1], product.usage, atol=2e-3)  # inside the box by delta
    run.advance(2)
    now = np.asarray(run.state.position["usage"])
    assert np.abs(now - product.usage).mean() < 0.15


@pytest.mark.long
def test_parallel_tempering_describes_the_draw_after_the_exchange(product):
    ladder = bmfjax.Gibbs(inverse_temperatures=(1.0, 0.97, 0.94))
    few = {"num_chains": 1, "num_warmup": 100, "num_samples": 60}
    request = ask(product.data, 3, ladder, model="relaxed", **few)
    run = request.chains().run(request)
    run.finish()
    drawn, trace = run.draws(), run.trace()
    fitted = np.einsum("cdik,cdjk->cdij", drawn["usage"], drawn["basis"])
    squares = ((product.data.dense() - fitted) ** 2).sum((2, 3))
    np.testing.assert_allclose(trace["residual"][:, 100:], squares, rtol=1e-4)
    swapped = trace["replica"][:, 101:, 0] != trace["replica"][:, 100:-1, 0]
    assert swapped.sum() > 5  # otherwise nothing was tested


ARD = bmfjax.Relaxed(usage="ard", basis="ard")


@pytest.mark.long
def test_learned_rates_are_drawn_and_stored(product):
    found = bmfjax.fit(product.data, rank=5, seed=0, **QUICK | {"model": ARD})
    assert found.settings["priors"]["usage"] == "'ard'"
    wrong = boolean_product(found.usage_binary, found.basis_binary) != product.clean
    assert wrong.mean() < 0.06
    # Rates belong to the factors as aligned: n over the sum of a factor's entries.
    size = found.usage_draws.sum(2) + found.basis_draws.sum(2)
    assert found.idata["posterior"]["rate"].shape == (2, 100, 5)
    by_factor = [
        np.corrcoef(found.other_draws["rate"][c].mean(0), size[c].mean(0))[0, 1] for c in (0, 1)
    ]
    assert max(by_factor) < -0.8
    with pytest.warns(UserWarning, match="averages only"):
        iasg = bmfjax.fit(ones(), 2, model=ARD, sampler="iasg", **SIZES)
    assert np.isfinite(iasg.trace["log_joint"]).all()
    window = iasg.figures.window
    assert window < 8 and iasg.idata["posterior"].attrs["window"] == window
    assert f"averages {window} iterate" in str(iasg.verdict) and "use sampler='gibbs'" in str(
        iasg.verdict
    )
    assert found.figures.window is None and "averages" not in str(found.verdict)


def test_a_run_that_leaves_the_finite_numbers_is_not_returned(product):
    with pytest.raises(FloatingPointError, match="not finite after"):
        bmfjax.fit(
            product.data, rank=2, **QUICK | {"model": bmfjax.Relaxed(precision=1e37)}
        )  # fmt: skip


def test_a_fit_is_not_changed(fitted):
    for name in ("usage", "usage_draws", "anything"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(fitted, name, 1)


def test_a_stored_fit_has_its_rounded_factors_and_its_probability(tmp_path, fitted):
    folder = fitted.save(tmp_path / "out")
    again = bmfjax.Fit.load(folder)
    for name in ("usage_binary", "agreement"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fitted, name))
    with np.load(folder / "probability.npz") as stored:
        np.testing.assert_allclose(stored["probability"], fitted.probability(), atol=1e-6)


def test_arviz_container_has_names_and_statistics(fitted):
    posterior = fitted.idata["posterior"]
    assert posterior["usage"].dims == ("chain", "draw", "rows", "factor")
    assert list(posterior["basis"]["columns"].values) == list(fitted.data.column_names)
    lp = fitted.idata["sample_stats"]["lp"].values
    assert lp.shape == fitted.other_draws["precision"].shape
    warmup, every = fitted.figures.num_warmup, fitted.figures.thinning
    np.testing.assert_array_equal(lp, fitted.trace["log_joint"][:, warmup + every - 1 :: every])


def test_shipped_name_path_and_matrix_are_the_same_data(tmp_path):
    zoo = bmfjax.load("zoo")
    bmfjax.save(tmp_path / "zoo.npz", zoo)
    for source in ("zoo", tmp_path / "zoo.npz", BinaryMatrix(zoo.dense())):
        request = ask(source, 2, model="relaxed", num_samples=4)
        assert request.data.fingerprint() == zoo.fingerprint()
