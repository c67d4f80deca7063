"""Fits in ArviZ: log densities for what is asked, leave-one-out, priors, replicates, draws."""

import dataclasses
import functools
import re
import tracemalloc
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib import pyplot
from numpyro.infer.util import log_density
from scipy import stats

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import group, leave_one_out, posterior_dataset, summary
from bmfjax.diagnostics.arviz import _import_arviz, is_legacy
from bmfjax.posterior import pointwise
from bmfjax.posterior.pointwise import total_density
from tests import small_fits
from tests.shared_fits import davis, shared_fit
from tests.test_cells import CHAINS, DRAWS, MODELS, fit_of

az = _import_arviz()
new_arviz = pytest.mark.skipif(is_legacy(), reason="ArviZ 1.x has it")
SAMPLED = ("ormachine", "relaxed", "nmf", "logistic")


#: All that there is of densities.
EFFECTS = bmfjax.Logistic(row_effects=True, column_effects=True)


def fitted(model, rank=small_fits.RANK):
    if model == "ormachine":
        return davis()
    if model == "logistic":
        return shared_fit("davis", rank, model=EFFECTS, **small_fits.SIZES)
    data = small_fits.real() if model in ("nmf", "pmf") else small_fits.ones()
    return shared_fit(data, rank, model=model, **small_fits.SIZES)


@functools.cache
def with_densities(model, rank=small_fits.RANK):
    return fitted(model, rank).to_arviz(log_likelihood=True, log_prior=True)


@pytest.fixture(scope="module", params=MODELS)
def fit(request):
    return fit_of(request.param)


def quietly(function, *arguments, **options):
    """Call a function of ArviZ, which warns of heavy tails where draws are few or made up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def observed_of(idata):
    return group(idata, "observed_data")["data"]


# ---- log densities -------------------------------------------------------------------------------


def test_the_function_has_the_densities_of_the_entries_asked_for(fit, monkeypatch):
    asked = []
    whole = type(fit)._log_density
    monkeypatch.setattr(
        type(fit), "_log_density", lambda f, i, j, v: asked.append(len(i)) or whole(f, i, j, v)
    )
    idata = fit.to_arviz(entries=60)
    some = observed_of(idata)[[40, 3, 17]]
    found = bmfjax.log_likelihood_fn(fit)(some, idata)
    assert sum(asked) == 3 and found.dims == ("chain", "draw", "entry")
    expected = fit._log_density(some["row"].values, some["column"].values, some.values)
    np.testing.assert_allclose(found.values.reshape(-1, 3), expected, rtol=1e-5)
    np.testing.assert_array_equal(found["entry"], some["entry"])


def test_entries_of_a_matrix_go_by_their_names(fit):
    idata = fit.idata
    some = observed_of(idata)[5:8, 2:4]
    found = bmfjax.log_likelihood_fn(fit)(some, idata)
    i, j = (a.ravel() for a in np.meshgrid([5, 6, 7], [2, 3], indexing="ij"))
    expected = fit._log_density(i, j, some.values.ravel())
    assert found.dims[-2:] == ("rows", "columns")
    np.testing.assert_allclose(found.values.reshape(-1, 6), expected, rtol=1e-5)


def test_draws_that_are_left_out_are_left_out():
    fit = fit_of("ormachine")
    idata = fit.to_arviz(entries=10)
    fewer = idata.isel(chain=[1], draw=slice(2, None, 5))
    some = observed_of(idata)
    whole = fit._log_density(some["row"].values, some["column"].values, some.values)
    found = bmfjax.log_likelihood_fn(fit)(some, fewer).values
    np.testing.assert_allclose(found, whole.reshape(CHAINS, DRAWS, 10)[1:, 2::5], rtol=1e-6)


def test_missing_entries_are_not_scored():
    fit = fitted("relaxed")
    with pytest.raises(InputError, match=r"7 of the observations are missing.*entries="):
        bmfjax.log_likelihood_fn(fit)(observed_of(fit.idata), fit.idata)
    listed = observed_of(with_densities("relaxed"))
    assert listed.sizes["entry"] == fit.data.num_rows * fit.data.num_columns - 7
    np.testing.assert_array_equal(listed, fit.data.dense()[listed["row"], listed["column"]])
    with pytest.raises(InputError, match="do not say which entries"):
        bmfjax.log_likelihood_fn(fit)(listed.drop_vars(["row", "column"]), fit.idata)


def test_too_many_densities_are_read_in_part(monkeypatch):
    fit = fit_of("pmf")
    whole = group(fit.to_arviz(log_likelihood=True), "log_likelihood")["data"].values
    monkeypatch.setattr(pointwise, "MOST_DENSITIES", CHAINS * DRAWS * 20)
    monkeypatch.setattr(pointwise.refuse_too_many, "__defaults__", (CHAINS * DRAWS * 20,))
    idata = fit.to_arviz(log_likelihood=True)
    lazy = group(idata, "log_likelihood")["data"]
    np.testing.assert_allclose(
        lazy[:, 3:9, [30, 2, 7]].values, whole[:, 3:9][..., [30, 2, 7]], 1e-5
    )
    np.testing.assert_allclose(lazy[1, 4, 11].values, whole[1, 4, 11], rtol=1e-5)
    with pytest.raises(InputError, match=r"1,480 entries under 50 draws are 74,000 log densities"):
        lazy.values.sum()
    with pytest.raises(InputError, match="log densities, and 1,000 are formed at once"):
        bmfjax.log_likelihood_fn(fit)(observed_of(idata), idata)


@new_arviz
def test_a_subsample_needs_no_matrix_of_draws_by_entries():
    """160,000 entries under 300 draws, 384 MB, of which 50 entries are scored."""
    fit = fit_of("nmf", bmfjax.RealMatrix(np.random.default_rng(5).random((400, 400))),
                 rows=400, columns=400, draws=150)  # fmt: skip
    idata = fit.to_arviz(log_likelihood=True)
    fn = bmfjax.log_likelihood_fn(fit)
    tracemalloc.start()
    found = quietly(
        az.loo_subsample, idata, 50, method="plpd", log_lik_fn=fn, reff=1.0, pointwise=True
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    at = found.loo_subsample_observations
    some = observed_of(idata)[at]
    alone = loo_of(idata.isel(entry=at), log_lik_fn=fn)
    np.testing.assert_allclose(found.elpd_i.values[at], alone.elpd_i.values, rtol=1e-5)
    assert fn(some, idata).shape == (2, 150, 50)


# ---- leave-one-out -------------------------------------------------------------------------------


def loo_of(idata, **options):
    return quietly(az.loo, idata, pointwise=True, reff=1.0, **options)


def elpd_of(found):
    return (found.loo_i if is_legacy() else found.elpd_i).values


@pytest.mark.parametrize("model", ["relaxed", "nmf"])
def test_leave_one_out_is_ours(model):
    """The same smoothing, of all chains together."""
    idata = with_densities(model)
    ours = leave_one_out(group(idata, "log_likelihood")["data"].values.reshape(60, -1))
    theirs = loo_of(idata)
    np.testing.assert_allclose(elpd_of(theirs), ours.log_score, rtol=1e-5, atol=1e-6)
    if not is_legacy():
        found = loo_of(idata, log_lik_fn=bmfjax.log_likelihood_fn(fitted(model)))
        np.testing.assert_allclose(elpd_of(found), ours.log_score, rtol=1e-4, atol=1e-5)


# ---- priors --------------------------------------------------------------------------------------


def model_of(fit):
    """The NumPyro model of a small fit, at its default priors."""
    rank = {"rank": fit.rank}
    if fit.model == "nmf":
        values = fit.data.dense(np.float64)
        scale = bmfjax.models.priors_by_scale(
            fit.rank, float(np.nanmean(values)), float(np.nanmean(values**2))
        )
        return functools.partial(bmfjax.models.nmf, **rank, **scale)
    effects = {"row_effects": True, "column_effects": True} if fit.model == "logistic" else {}
    name = "relaxed_bmf" if fit.model == "relaxed" else fit.model
    return functools.partial(getattr(bmfjax.models, name), **rank, **effects)


@pytest.mark.parametrize("model", SAMPLED)
def test_the_log_prior_is_that_of_numpyro(model):
    """Its own density of the model with nothing observed, and with all: that is `log_p`."""
    fit, idata = fitted(model), with_densities(model)
    shape = fit.usage_draws.shape[:2]
    prior = group(idata, "log_prior")["parameters"].values.reshape(shape)
    joint = prior + group(idata, "log_likelihood")["data"].values.sum(-1).reshape(shape)
    data, nothing = fit.data.dense(), np.zeros(fit.data.shape, bool)

    @jax.jit
    def of(draw):
        return [log_density(model_of(fit), (data, seen), {}, draw)[0] for seen in (None, nothing)]

    for at in ((0, 0), (0, 17), (1, 29)):
        expected = of({n: v[at] for n, v in fit.draws().items()})
        np.testing.assert_allclose([joint[at], prior[at]], expected, rtol=2e-5, atol=2e-3)
    if model == "logistic":
        np.testing.assert_allclose(
            group(idata, "sample_stats")["log_p"].values.ravel(), joint.ravel()
        )


def test_turned_factors_have_the_likelihood_that_the_sampler_had():
    """Of a matrix factorisation the prior is that of the draws before they are turned."""
    fit = fitted("pmf")
    precision = fit.other_draws["precision"].astype(float)
    seen = fit.data.num_rows * fit.data.num_columns - fit.data.num_missing
    squares = fit._kept_trace("residual")
    expected = 0.5 * seen * np.log(precision / (2 * np.pi)) - 0.5 * precision * squares
    joint = fit._kept_trace("log_joint")
    np.testing.assert_allclose(fit._log_prior_of_draws(), joint - expected, rtol=1e-3, atol=1e-2)


def test_the_prior_of_left_out_factors_is_not_told():
    fit = fitted("relaxed")
    for name in ("finds_rank", "given_new"):
        other = dataclasses.replace(fit, settings=dict(fit.settings) | {name: True})
        with pytest.raises(InputError, match="do not tell log_prior"):
            other.to_arviz(log_prior=True)
    with pytest.raises(InputError, match="by variational inference"):
        fit.log_proposal()


# ---- variational fits ----------------------------------------------------------------------------


def test_draws_of_the_approximation_have_its_density():
    """By SciPy, of one draw under both starts."""
    fit = fitted("logistic")
    found, a, draws = fit.log_proposal(), fit.approximation, fit.draws()
    logs = []
    for s in range(2):
        total = stats.norm.logpdf(
            draws["bias"][1, 4], a["bias_mean"][s], a["bias_variance"][s] ** 0.5
        )
        own, other = (
            np.concatenate([draws[n][1, 4], draws[e][1, 4][:, None]], 1)
            for n, e in (("usage", "row_effect"), ("basis", "column_effect"))
        )
        for side, values, kept in (("usage", own, [0, 1, 2]), ("basis", other, [0, 1, 3])):
            mean, variance = (a[f"{side}_{m}"][s][:, kept] for m in ("mean", "variance"))
            total += stats.norm.logpdf(values, mean, variance**0.5).sum()
        logs.append(total)
    assert found.shape == (2, 30)
    assert found[1, 4] == pytest.approx(np.logaddexp(*logs) - np.log(2), rel=1e-5)


def test_draws_of_the_approximation_are_no_chains():
    fit = fitted("logistic")
    posterior = posterior_dataset(fit.to_arviz())
    usage = fit.usage_draws.reshape(60, *fit.usage_draws.shape[2:])
    if is_legacy():
        assert dict(posterior.sizes)["chain"] == 1 and posterior.sizes["draw"] == 60
    else:
        assert posterior["usage"].dims == ("sample", "rows", "factor")
    np.testing.assert_array_equal(posterior["usage"].values.reshape(usage.shape), usage)
    np.testing.assert_array_equal(posterior["start"], np.repeat([0, 1], 30))
    assert posterior_dataset(with_densities("logistic")).sizes["chain"] == 1
    bias = fit.draws()["bias"]
    found = summary(fit.to_arviz(), ["bias"])
    assert found.loc["bias", "mean"] == pytest.approx(bias.mean(), rel=1e-5)


# ---- replicates and attributes -------------------------------------------------------------------


def test_replicates_have_the_moments_of_their_density(fit):
    i, j = np.array([3, 20]), np.array([1, 30])
    copies = np.stack([fit._replicated(i, j, seed) for seed in range(200)]).mean(0)
    if fit._scored == "densities of numbers":
        sd = bmfjax.posterior.cells.noise_sd(fit)[:, None]
        expected, spread = bmfjax.posterior.cells.cell_draws(fit, i, j), np.tile(sd, 2)
    else:
        values = fit.settings.get("stars") or [0.0, 1.0]
        if fit._scored == "probabilities of counts":
            values = np.arange(150.0)
        chance = [np.exp(fit._log_density(i, j, np.full(2, v))) for v in values]
        np.testing.assert_allclose(np.sum(chance, 0), 1.0, rtol=1e-5)
        expected = sum(v * c for v, c in zip(values, chance, strict=True))
        spread = np.sqrt(sum((v - expected) ** 2 * c for v, c in zip(values, chance, strict=True)))
    score = (copies - expected) / np.maximum(spread, 1e-9) * 200**0.5
    assert abs(score[spread > 0.05]).max() < 5


def test_a_container_says_what_made_it():
    fit = fitted("relaxed")
    attrs = posterior_dataset(fit.idata).attrs
    assert attrs["inference_library"] == "bmfjax"
    assert attrs["inference_library_version"] == fit.versions["bmfjax"]
    assert attrs["sampling_time"] == fit.figures.seconds > 0
    assert attrs["created_at"].startswith("20") and attrs["created_at"].endswith("+00:00")


def test_the_likelihood_is_summed_over_blocks(monkeypatch):
    fit = fit_of("ormachine")
    i, j = np.divmod(np.arange(fit.data.num_rows * fit.data.num_columns), fit.data.num_columns)
    expected = fit._log_density(i, j, fit.data.dense()[i, j]).sum(1)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 10_000)
    np.testing.assert_allclose(total_density(fit), expected)


# ---- the page ------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "numpyro.md"
LINES = re.findall(r"^\|.*\| `(.*?)` \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def names():
    """What the page has made before its lines."""
    fit, ranking = fitted("ormachine"), fitted("logistic")
    asked = {"log_likelihood": True, "log_prior": True}
    made = {"fit": fit, "ranking": ranking, "arviz": az, "bmfjax": bmfjax}
    made["more"] = fit.to_arviz(**asked, posterior_predictive=True)
    made["other"] = with_densities("logistic")
    made["likely"] = bmfjax.log_likelihood_fn(fit)
    made["wrapper"] = bmfjax.sampling_wrapper(fit, lambda data: fit, entries=50)
    yield made
    pyplot.close("all")


@pytest.mark.parametrize("line", [
    line for line, versions in LINES
    if "mcmc" not in line and ("0.x" if is_legacy() else "1.x") in versions
])  # fmt: skip
def test_a_line_of_the_page_runs(line, names):
    assert quietly(eval, line, dict(names)) is not None
