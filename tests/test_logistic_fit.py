"""`bmfjax.fit` with the logistic model: probabilities, log odds, starts, and the refusals."""

import contextlib
import math
import types

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

import bmfjax
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import posterior_dataset, prediction_scores, split_rhat
from bmfjax.families import FAMILIES, ask
from bmfjax.families.sampling import identity
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.kernels.numerics.programs import forget_programs
from bmfjax.posterior.mixture import rhat
from bmfjax.variational import LogisticPosterior, LogisticPrior, batch_fit
from bmfjax.variational.chains import posterior_of
from bmfjax.variational.posterior import Gaussian
from bmfjax.variational.settling import WINDOW, has_settled, no_values, with_value
from bmfjax.verdict import Mixing, mixing_of_starts, of_starts
from tests.said import has_its_summary, said

QUICK = {"num_chains": 2, "num_warmup": 120, "num_samples": 200, "progress": False}
EFFECTS = {"row_effects": True, "column_effects": True}


@pytest.fixture(scope="module")
def made():
    """Values with a fifth hidden, what is hidden, and the true probabilities."""
    rng = np.random.default_rng(2)
    usage, basis = rng.normal(size=(90, 2)), rng.normal(size=(40, 2))
    truth = expit(2.5 * usage @ basis.T + rng.normal(size=(90, 1)) - 0.5)
    ones, hidden = rng.random(truth.shape) < truth, rng.random(truth.shape) < 0.2
    hidden[7] = True
    return np.where(hidden, np.nan, ones), hidden, ones, truth


@pytest.fixture(scope="module")
def fitted(made):
    data = BinaryMatrix(made[0], column_names=[f"c{j}" for j in range(40)])
    return bmfjax.fit(data, 2, model=bmfjax.Logistic(**EFFECTS), seed=1, **QUICK)


#: A run of a few steps, which has not settled.
SHORT = QUICK | {"model": "logistic", "num_warmup": 6, "num_samples": 10}


@pytest.fixture(scope="module")
def short(made):
    return bmfjax.fit(made[0], 2, sampler="batch", **SHORT)


def test_hidden_entries_are_foretold_nearly_as_well_as_by_the_truth(made, fitted):
    _, hidden, ones, truth = made
    found = prediction_scores(ones[hidden], fitted.probability()[hidden])
    best = prediction_scores(ones[hidden], truth[hidden])
    assert found["auc"] > best["auc"] - 0.05
    assert found["log_loss"] < best["log_loss"] + 0.08
    assert fitted.sampler == "batch" and fitted.figures.converged


def test_probabilities_and_log_odds_are_those_of_the_draws(fitted):
    usage, basis = fitted._product_draws(np.arange(90), np.arange(40))
    log_odds = np.einsum("cdik,cdjk->cdij", usage, basis)
    drawn = expit(log_odds).mean((0, 1))
    error = expit(log_odds).std((0, 1)) / np.sqrt(400)
    # The corrected logistic is within .02 of the integral.
    assert (abs(fitted.probability() - drawn) <= 5 * error + 0.02).all()
    spread = log_odds.std((0, 1))
    away = (log_odds.mean((0, 1)) - fitted.predict()) / (spread / np.sqrt(400))
    assert np.abs(away).max() < 5 and (away**2).mean() < 1.3
    np.testing.assert_allclose(fitted.predict(kind="sd"), spread, rtol=0.25)
    assert np.mean(spread / fitted.predict(kind="sd")) == pytest.approx(1.0, abs=0.02)
    low, high = fitted.predict(rows=[3], columns=["c1", "c2"], kind="interval", level=0.8)
    expected = np.quantile(log_odds[:, :, 3, 1:3], [0.1, 0.9], axis=(0, 1))
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=1e-4)
    np.testing.assert_allclose(fitted.probability([3], [1]), fitted.probability()[3:4, 1:2])


def test_draws_are_of_the_stored_normals(fitted):
    """Means and variances of 400 draws, of factors, effects and bias."""
    at, drawn = fitted.approximation, fitted.draws()
    pairs = [
        (drawn["usage"], at["usage_mean"][..., :2], at["usage_variance"][..., :2]),
        (drawn["basis"], at["basis_mean"][..., :2], at["basis_variance"][..., :2]),
        (drawn["row_effect"], at["usage_mean"][..., 2], at["usage_variance"][..., 2]),
        (drawn["column_effect"], at["basis_mean"][..., 3], at["basis_variance"][..., 3]),
        (drawn["bias"], at["bias_mean"], at["bias_variance"]),
    ]
    for draws, mean, variance in pairs:
        z = (draws - mean[:, None]) / np.sqrt(variance)[:, None]
        assert z.mean() == pytest.approx(0.0, abs=5 / np.sqrt(z.size))
        assert z.std() == pytest.approx(1.0, abs=5 / np.sqrt(z.size))
    assert (at["usage_mean"][..., 3] == 1).all() and (at["basis_mean"][..., 2] == 1).all()


def test_an_empty_row_has_the_prior(fitted):
    at = fitted.approximation
    np.testing.assert_allclose(at["usage_mean"][:, 7, :3], 0.0, atol=1e-5)
    np.testing.assert_allclose(at["usage_variance"][:, 7, :3], 1.0, rtol=1e-5)


def test_new_rows_that_are_old_ones_get_their_usage(made, fitted):
    means = fitted.approximation["usage_mean"][..., :2].mean(0)
    np.testing.assert_allclose(fitted.transform(made[0]), means, atol=0.02)
    one_empty = np.stack([np.full(40, np.nan), made[0][0]])
    assert np.abs(fitted.transform(one_empty)[0]).max() < 1e-6
    sd = fitted.transform(one_empty, kind="sd")
    np.testing.assert_allclose(sd[0], 1.0, rtol=1e-5)  # that of the prior
    at = {n: fitted.approximation[f"usage_{n}"][:, 0, :2] for n in ("mean", "variance")}
    total = at["variance"].mean(0) + at["mean"].var(0)
    np.testing.assert_allclose(sd[1], np.sqrt(total), rtol=0.05)
    with pytest.raises(InputError, match="new rows have 39 columns"):
        fitted.transform(made[0][:, 1:])


def test_a_fit_comes_back_from_disk_and_writes_its_page(fitted, tmp_path):
    again = bmfjax.Fit.load(fitted.save(tmp_path / "fit"))
    np.testing.assert_array_equal(again.probability(), fitted.probability())
    assert again.binary is None and has_its_summary(again, fitted)
    page = again.report(tmp_path / "page.html").read_text()
    assert "Lower bound" in page and "Tile" not in page
    assert all(part.said[1:] in page for part in fitted.verdict.parts)
    posterior = posterior_dataset(fitted.idata)
    assert posterior["column_effect"].dims[-1] == "columns"
    assert list(fitted.summary().columns) == ["size", "rows", "columns", "agreement", "sd"]


@pytest.mark.long
def test_a_resumed_fit_of_sampled_entries_is_the_unbroken_one(made, tmp_path):
    """That of all entries is below, resumed from where it was stopped."""
    options = SHORT | {"sampler": "svi"}
    whole = bmfjax.fit(made[0], 2, **options)
    request = ask(made[0], 2, **{n: v for n, v in options.items() if n != "progress"})
    chains = request.chains()
    run = chains.run(request)
    run.advance(4)
    Checkpoint(tmp_path, identity(request, chains)).write(run)
    again = bmfjax.fit(made[0], 2, checkpoint=tmp_path, resume=True, **options)
    np.testing.assert_array_equal(again.usage_draws, whole.usage_draws)
    np.testing.assert_array_equal(again.trace["elbo"], whole.trace["elbo"])


def test_only_very_large_matrices_have_their_entries_sampled_by_default():
    """Above 100 million entries."""
    of = {n: FAMILIES["logistic"].default_sampler(BinaryMatrix(csr_array((10_000, n), dtype=bool)))
          for n in (100, 10_000, 10_001)}  # fmt: skip
    assert of == {100: "batch", 10_000: "batch", 10_001: "svi"}


def test_steps_draw_entries_for_every_line(made):
    chains = ask(made[0], 2, model="logistic", sampler="svi", num_warmup=10).chains()
    assert chains.settings["sampler_options"] == {"sampling": "biased", "step_entries": 4096}


def test_optimisation_ends_when_the_bound_has_settled(made, fitted):
    """Early, and hundreds of rounds more would raise the bound by less than a thousandth."""
    steps = fitted.figures.steps
    assert fitted.figures.settled and fitted.figures.complete
    assert 2 * WINDOW <= steps < QUICK["num_warmup"] == fitted.figures.num_warmup
    assert fitted.trace["elbo"].shape == (2, steps)
    at = {n: a[0] for n, a in fitted.approximation.items()}
    start = LogisticPosterior(
        *(Gaussian(at[f"{n}_mean"], at[f"{n}_variance"]) for n in ("usage", "basis", "bias"))
    )
    values, seen = made[0] == 1, ~np.isnan(made[0])
    _, further = batch_fit(start, values, seen, prior=LogisticPrior(2, **EFFECTS), num_updates=300)
    reached = fitted.trace["elbo"][0, -1]
    assert reached <= further[-1] + 0.01 and further[-1] - reached < 1e-3 * abs(reached)


@pytest.mark.parametrize("way", ["max_time", "Ctrl-C"])
def test_a_fit_stopped_while_it_optimises_has_a_result_and_resumes(
    made, short, tmp_path, monkeypatch, way
):
    whole, options = short, SHORT
    assert whole.sampler == ask(made[0], 2, model="logistic").sampler.name == "batch"
    assert whole.figures.steps == 6 and whole.figures.complete
    assert "had not settled after 6 steps" in str(whole.verdict) and "num_warmup" in str(
        whole.verdict
    )
    with monkeypatch.context() as patch:
        if way == "Ctrl-C":
            pressed = contextlib.nullcontext(
                types.SimpleNamespace(requested=True, terminated=False)
            )
            patch.setattr(bmfjax.families.sampling, "interrupt_requests", lambda: pressed)
        limit, most = (1e-9 if way == "max_time" else None), 1
        part = bmfjax.fit(made[0], 2, max_time=limit, checkpoint=tmp_path, **options)
    reached = part.figures.steps
    assert 1 <= reached <= most and not part.figures.complete
    said = f"The run was interrupted after {reached} of 6 steps of optimisation. "
    assert (said in str(part.verdict)) is (way == "Ctrl-C")
    assert "had not settled after" in str(part.verdict)
    next_ = (
        "let it go on, by the same checkpoint=" if way == "Ctrl-C" else "give it more time, max_"
    )
    assert f"Next, {next_}" in str(part.verdict) and "resume=True" in part.verdict.remedy
    assert part.usage_draws.shape == (2, 10, 90, 2)
    assert f"stopped after step {reached} of" in part.report(tmp_path / "page.html").read_text()
    again = bmfjax.fit(made[0], 2, checkpoint=tmp_path, resume=True, **options)
    np.testing.assert_array_equal(again.usage_draws, whole.usage_draws)
    np.testing.assert_array_equal(again.trace["elbo"], whole.trace["elbo"])


def test_without_time_for_a_step_there_is_a_result_of_the_starts(made, tmp_path):
    forget_programs()  # for which there would be no time
    part = bmfjax.fit(made[0], 2, max_time=1e-9, **SHORT)
    assert part.verdict.is_of_starts and part.figures.timed_out and not part.figures.complete
    assert str(part.verdict).startswith("Do not rely on this run")
    with pytest.warns(UserWarning, match="not those of the posterior") as warned:
        assert np.isnan(part.summary()["agreement"]).all()
    assert warned[0].filename == __file__
    assert part.usage_draws.shape == (2, 10, 90, 2)
    problem = ask(made[0], 2, **{n: v for n, v in SHORT.items() if n != "progress"})
    begins = posterior_of(problem.chains().run(problem).state)
    aligned = np.sort(np.abs(part.approximation["usage_mean"][..., :2]), -1)
    np.testing.assert_array_equal(aligned, np.sort(np.abs(begins.usage.mean[..., :2]), -1))
    page = part.report(tmp_path / "page.html").read_text()
    assert "before the first step" in page and "stopped after step" not in page
    # Nothing was drawn, and no probability is the model's.
    with pytest.raises(InputError, match="before the sampler drew"):
        part.plot.calibration()
    with pytest.raises(InputError, match="no draws to check"):
        part.check()


def test_a_given_start_is_where_all_begin(made):
    usage, basis = np.full((90, 1), 0.3), np.full((40, 1), -0.2)
    start = {"usage": usage, "basis": basis}
    request = ask(made[0], 1, model="logistic", sampler="svi", init=start, num_chains=3)
    posterior = posterior_of(request.chains().run(request).state)
    np.testing.assert_array_equal(posterior.usage.mean, np.full((3, 90, 1), np.float32(0.3)))
    np.testing.assert_array_equal(posterior.basis.mean, np.full((3, 40, 1), np.float32(-0.2)))


def test_few_draws_do_not_make_starts_differ(made, tmp_path):
    """R-hat is of what the starts reached: that of one way gone twice is one."""
    start = {"usage": np.full((90, 1), 0.3), "basis": np.full((40, 1), 0.2)}
    options = QUICK | {"model": "logistic", "num_chains": 1, "num_samples": 4, "init": start}
    one = bmfjax.fit(made[0], 1, sampler="batch", **options)
    assert np.isnan(one.figures.rhat_product) and str(one.verdict).startswith("Not checked")
    twice = {n: np.concatenate([a, a]) for n, a in one.approximation.items()}
    elbo = np.concatenate([one.trace["elbo"]] * 2)
    steps = np.full(2, elbo.shape[1])
    entries = mixing_of_starts(one.data, twice)
    settled = np.ones(1), elbo, steps, np.full(2, True), 120
    judged = of_starts(entries, *settled, sampled=False)
    assert judged.figures.rhat_product_worst == 1.0 and judged.figures.converged
    # The bound of sampled entries settles because their steps shrink.
    judged = of_starts(entries, *settled, sampled=True)
    assert judged.figures.settled and not judged.figures.converged
    assert "below what sampler='batch' reaches" in str(judged)
    assert "Lower bound" in one.report(tmp_path / "one.html").read_text()


def test_rhat_across_starts_is_that_of_many_draws():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(4, 3)), rng.uniform(0.5, 2.0, size=(4, 3))
    draws = mean[:, None] + np.sqrt(variance)[:, None] * rng.normal(size=(4, 20_000, 3))
    np.testing.assert_allclose(rhat(mean, variance), split_rhat(draws), rtol=0.12)
    same = rhat(np.ones((4, 3)), variance)
    np.testing.assert_array_equal(same, 1.0)


@pytest.mark.parametrize(
    ("slope", "settled"), [(0.0, True), (0.004, True), (0.006, False), (-0.006, False)]
)
def test_a_bound_has_settled_when_two_windows_of_steps_have_one_mean(slope, settled):
    """Changes are told apart that single precision resolves in small numbers only."""
    recent = no_values(np.float32)
    for step in range(2 * WINDOW):
        assert not has_settled(recent, 1e-4)
        recent = with_value(recent, np.float32(-1000.0 + slope * step))
    assert bool(has_settled(recent, 1e-4)) is settled


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priors": {"scale": 0}}, "scale is 0; give a positive"),
        ({"priors": {"row_effects": 1}}, "row_effects is 1; give True or False"),
        ({"num_warmup": 1}, r"num_warmup \(--warmup\) is 1; of the logistic model"),
        ({"sampler": "svi", "options": {"sampling": "odd"}}, "sampling is 'odd'"),
        ({"sampler": "svi", "options": {"step_entries": 0}}, "step_entries is 0"),
        (
            {"sampler": "batch", "options": {"sampling": "biased"}},
            "'batch' has none; 'svi' has sampling, step_entries; 'gibbs' has none",
        ),
        ({"sampler": "svi", "options": {"step_entries": 4097}}, "more than the matrix has"),
        ({"init": {"usage": np.zeros((90, 3)), "basis": 0}}, r"has shape \(90, 3\)"),
        ({"init": {"usage": np.zeros((90, 2))}}, "init must hold exactly"),
        ({"init": {"usage": "abc", "basis": 0}, "num_chains": 1}, "'usage' is not numeric"),
        ({"init": {"usage": np.zeros((90, 2)), "basis": np.zeros((40, 2))}}, "give num_chains=1"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(made, options, message):
    with pytest.raises(InputError, match=message) as refused:
        ask(made[0], 2, **said("logistic", **options)).chains()
    assert "\n" not in str(refused.value)


def test_zeros_that_biased_draws_would_miss_are_told_of():
    """A block of ones fills the rows and columns in which zeros are looked for."""
    block = np.zeros((1200, 1200))
    block[:900, :900] = 1
    with pytest.raises(InputError, match="give sampling='balanced'"):
        ask(block, 1, model="logistic", sampler="svi").chains()
    ask(block, 1, bmfjax.SVI(sampling="balanced"), model="logistic").chains()


def test_the_verdict_says_what_is_wrong():
    elbo = np.linspace(-10.0, -9.9, 70)[None].repeat(4, 0)

    def said(apart=0.0, agreeing=(1.0, 1.0, 1.0), settled=True, starts=4, sampled=False):
        near = np.full(5, apart)
        entries = Mixing(np.full(5, 3.0), None, apart=near, error=np.zeros(5))
        steps, ends = np.full(starts, 70), np.full(starts, settled)
        return str(
            of_starts(entries, np.array(agreeing), elbo[:starts], steps, ends, 70, sampled=sampled)
        )

    assert said().startswith("Usable, as an approximation: predictions hold (to within 0.01)")
    assert "Standard deviations of a mean-field approximation are too small" in said()
    rising = said(settled=False)
    assert "not settled after 70 steps" in rising and "take more steps" in rising
    assert rising.startswith("Do not rely on this run: predictions do not hold yet (the bound has")
    assert said(agreeing=[math.nan] * 3, starts=1).startswith("Not checked")
    two = said(agreeing=[1.0, 0.3, 0.3], starts=2)
    assert two.startswith(
        "Usable in part: predictions hold (to within 0.01); factor 1 holds, factors 2"
    )
    assert said(apart=0.3).startswith(
        "Usable in part: predictions do not hold (chains differ by 0.30"
    )
    assert said(sampled=True).startswith("Usable in part: predictions hold")
