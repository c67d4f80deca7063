"""Fits that find the number of factors by relevance: all models but the Boolean one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import random
from numpyro import handlers

import bmfjax
from bmfjax import models, verdict
from bmfjax.data import InputError
from bmfjax.families import ask
from bmfjax.families.relevance import handed_over, noise_edge, used_draws
from bmfjax.posterior.principal import num_needed, principal_draws
from bmfjax.report.page import render
from tests.kernels.exactness import fast_jit
from tests.said import said
from tests.test_rank import three_tiles

MAX_RANK = 6
SIZE = {"max_rank": MAX_RANK, "num_chains": 2, "num_warmup": 200, "num_samples": 100}
SIZE |= {"progress": False}


def parts():
    """Three nonnegative factors with noise."""
    r = np.random.default_rng(0)
    usage, basis = (r.exponential(size=(n, 3)) * (r.random((n, 3)) < 0.6) for n in (30, 24))
    product = usage @ basis.T
    return product + product.std() / 4 * r.normal(size=product.shape)


def fits(seed=0, rows=40, columns=30):
    """Three real factors of like size."""
    r = np.random.default_rng(seed)
    return np.sqrt(3.0) * r.normal(size=(rows, 3)) @ r.normal(size=(3, columns)) / 1.5


def ratings():
    r = np.random.default_rng(1)
    values = 3.0 + 0.5 * r.normal(size=(40, 1)) + fits() + 0.5 * r.normal(size=(40, 30))
    return np.where(r.random(values.shape) < 0.8, values, np.nan)


def bits():
    return (fits(2, 50, 40) + np.random.default_rng(3).normal(size=(50, 40)) > 0).astype(float)


def stars():
    noisy = fits(4) + np.random.default_rng(5).normal(size=(40, 30))
    return np.digitize(noisy, [-2.0, -0.7, 0.7, 2.0]) + 1.0


def noise(model):
    """Of the shape of the model's problem, and so with its program."""
    r, shape = np.random.default_rng(6), PROBLEMS[model]().shape
    if model == "relaxed":
        return (r.random(shape) < 0.4).astype(float)
    return 2.0 + 0.3 * r.normal(size=shape)


def transposed(matrices):
    return matrices.swapaxes(-1, -2)


PROBLEMS = {
    "relaxed": three_tiles, "nmf": parts, "pmf": ratings, "probit": bits, "ordered-probit": stars
}  # fmt: skip


#: The log odds of bits grow slowly: within 200 steps a fourth factor is still there in two of three
#: seeds, within 600 in none.
LONGER = {"probit": {"num_warmup": 600}}


@functools.cache
def fitted(model):
    return bmfjax.fit(PROBLEMS[model](), "auto", model=model, **SIZE | LONGER.get(model, {}))


#: The links of ratings differ from `pmf` in what they observe, and factors of "nmf" are counted as
#: those of "relaxed" are.
LONG = ("nmf", "probit", "ordered-probit")


@pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=[pytest.mark.long] * (model in LONG)) for model in PROBLEMS],
)
def test_the_number_of_factors_is_found(model):
    fit = fitted(model)
    found = fit.rank_probabilities
    assert max(found, key=found.get) == fit.figures.rank == fit.rank == 3
    assert sum(found.values()) == pytest.approx(1.0)
    # The same in every draw, or with an R-hat.
    assert len(found) == 1 or fit.figures.rhat_rank < 1.1
    assert fit.trace["rank"].shape == fit.trace["log_joint"].shape
    assert fit.agreement.shape == (3,) and fit.agreement.min() > 0.6
    assert fit.settings["rank"] == "auto" and fit.settings["max_rank"] == MAX_RANK


@pytest.mark.parametrize(
    "model", ["relaxed", *(pytest.param(m, marks=pytest.mark.long) for m in ("nmf", "pmf"))]
)
def test_noise_has_hardly_any_factors(model):
    """Of nonnegative ones one that is the mean, which a matrix of ratings has in its effects."""
    fit = bmfjax.fit(noise(model), "auto", model=model, **SIZE)
    most = 0 if model == "pmf" else 1
    assert sum(p for n, p in fit.rank_probabilities.items() if n <= most) > 0.5
    assert fit.rank == 1  # a result has a column


def test_predictions_keep_factors_that_are_each_as_weak_as_noise():
    """Six of one size, at the edge of the noise; most draws count two of them or fewer."""
    r = np.random.default_rng(0)
    left, right = (np.linalg.qr(r.normal(size=(n, 6)))[0] for n in (40, 30))
    truth = 3.0 + 0.21 * np.sqrt(40 * 30) * left @ right.T
    noisy = truth + 0.5 * r.normal(size=truth.shape)
    hidden = r.random(truth.shape) >= 0.8
    fit = bmfjax.fit(np.where(hidden, np.nan, noisy), "auto", model="pmf", **SIZE)
    counted = max(fit.figures.rank, 1)
    assert fit.figures.rank_predicting == fit.rank > counted
    assert fit.verdict.number.rank == fit.figures.rank

    def error(predicted):
        return np.sqrt(np.mean((predicted - truth)[hidden] ** 2))

    rest = fit.usage_draws[..., counted:] @ transposed(fit.basis_draws[..., counted:])
    kept = fit.predict(kind="mean")
    assert error(kept) < 0.9 * error(kept - rest.mean((0, 1)))


def test_relaxed_chains_start_where_annealed_ones_have_come():
    """At the truth, each at its own point, with precision and rates at their conditional means."""
    data = bmfjax.BinaryMatrix(three_tiles())
    request = ask(data, "auto", model="relaxed", max_rank=MAX_RANK, num_chains=2)
    start = request.chains().start(False)
    usage, basis = start["usage"], start["basis"]
    assert usage.shape == (2, 30, MAX_RANK) and (usage > 0).all() and (usage <= 1).all()
    assert np.abs(usage[0] - usage[1]).max() > 0.1
    product = usage @ transposed(basis)
    clean = three_tiles(0.0)
    # Well below the share of entries that noise has flipped, on any machine.
    flipped = np.mean(three_tiles() != clean)
    assert (np.mean((product > 0.5) != clean, axis=(1, 2)) < 0.75 * flipped).all()
    squares = np.sum((three_tiles() - product) ** 2, axis=(1, 2))
    np.testing.assert_allclose(start["precision"], 720 / squares, rtol=0.1)
    totals = usage.sum(1) + basis.sum(1)
    np.testing.assert_allclose(start["rate"], 54 / totals, rtol=0.25)


@pytest.mark.parametrize("model", ["relaxed", pytest.param("nmf", marks=pytest.mark.long)])
def test_what_is_kept_is_what_was_counted(model):
    """The rule that counts at every step, and that of the draws that are kept, are one."""
    fit = fitted(model)
    used = (fit.usage_draws != 0).any(2)
    kept = fit.trace["rank"][:, int(fit.figures.num_warmup) :]
    kept = kept[:, int(fit.figures.thinning) - 1 :: int(fit.figures.thinning)]
    np.testing.assert_array_equal(used.sum(-1), np.minimum(kept, fit.rank))
    assert fit.other_draws["rate"].shape == used.shape
    if model == "nmf":  # whose factors are the same in every draw
        assert (fit.other_draws["rate"] < 20).all()
        product = fit.usage_draws.mean((0, 1)) @ fit.basis_draws.mean((0, 1)).T
        assert np.corrcoef(product.ravel(), parts().ravel())[0, 1] > 0.95


def test_the_verdict_speaks_of_the_number_of_factors():
    r = np.random.default_rng(0)
    trace = {"log_joint": r.normal(size=(2, 100)), "rank": np.repeat([[2], [3]], 100, axis=1)}
    trace["rank"][0, 0] = 3
    entries = verdict.Mixing(np.ones(5), np.full(5, 1e3))
    for judged in (
        verdict.of_chains(entries, 2, np.nan, np.ones(2), trace, exact=True),
        verdict.of_ratings(entries, 2, np.ones(2), trace),
    ):
        assert "their number does not hold yet (R-hat " in str(judged)
        assert judged.status == "in part" and judged.figures.rhat_rank > 1.2


def test_what_a_draw_does_not_use_goes_to_the_factor_it_is_like():
    r = np.random.default_rng(0)
    usage, basis = r.exponential(size=(1, 2, 9, 3)), r.exponential(size=(1, 2, 7, 3))
    basis[0, 0, :, 2] = 0.5 * basis[0, 0, :, 0]  # alike in the basis, in the first draw,
    usage[0, 1, :, 2] = 2.0 * usage[0, 1, :, 1]  # and in the usage in the second
    used = np.array([[[True, True, False], [True, True, False]]])
    new = handed_over(usage, basis, used)
    np.testing.assert_allclose(new[0] @ transposed(new[1]), usage @ transposed(basis))
    assert not new[0][..., 2].any() and not new[1][..., 2].any()
    assert handed_over(usage, basis, used, upper=1.0)[0].max() == 1.0
    assert not handed_over(usage, basis, np.zeros_like(used))[0].any()
    for side, same in enumerate(handed_over(usage, basis, np.ones_like(used))):
        np.testing.assert_allclose(same, (usage, basis)[side], rtol=1e-12)
    # One that takes from factors on both sides ends near the best product of one factor.
    usage, basis = usage[:, :1], basis[:, :1]
    usage[..., 1], basis[..., 2] = 300.0 * usage[..., 1], 300.0 * basis[..., 2]
    basis[..., 1] = basis[..., 0] * r.uniform(0.9, 1.1, 7)
    usage[..., 2] = usage[..., 0] * r.uniform(0.9, 1.1, 9)
    before = (usage @ transposed(basis))[0, 0]
    one = handed_over(usage, basis, np.array([[[True, False, False]]]))
    wrong = np.linalg.norm((one[0] @ transposed(one[1]))[0, 0] - before)
    least = np.sqrt((np.linalg.svd(before)[1][1:] ** 2).sum())
    assert wrong < 1.01 * least


def test_lines_without_entries_do_not_count():
    values = np.where(np.arange(12)[:, None] < 10, parts()[:12, :10], np.nan)
    data = bmfjax.RealMatrix(values)
    edge = noise_edge(data)
    assert len(edge.rows) == 10 and edge.columns is None
    usage, basis = np.zeros((1, 2, 12, 1), np.float32), np.ones((1, 2, 10, 1), np.float32)
    usage[..., 10:, 0] = 1e6  # drawn from the prior
    assert not used_draws(data, usage, basis, 1.0).any()
    assert used_draws(data, usage + 1e3, basis, np.ones((1, 2))).all()


def test_the_largest_principal_factors_keep_their_prior():
    """Means and precisions of what is left are those of a linear map of the vectors."""
    r = np.random.default_rng(1)
    drawn = {n: r.normal(size=(1, 2, s, 4)) for n, s in (("usage", 9), ("basis", 8))}
    for n in ("usage", "basis"):
        root = r.normal(size=(1, 2, 4, 4))
        drawn |= {f"{n}_mean": r.normal(size=(1, 2, 4)), f"{n}_precision": root @ transposed(root)}
    whole, some = principal_draws(drawn, (0, 0)), principal_draws(drawn, (0, 0), number=2)
    size = np.linalg.svd(drawn["usage"] @ transposed(drawn["basis"]), compute_uv=False)[..., :2]
    product = some["usage"] @ transposed(some["basis"])
    np.testing.assert_allclose(np.linalg.svd(product, compute_uv=False)[..., :2], size)
    for n in ("usage", "basis"):
        covariance = np.linalg.inv(whole[f"{n}_precision"])
        for d in range(2):
            # Which of the four the two are, up to their signs.
            cosine = (
                np.abs(whole[n][0, d].T @ some[n][0, d]) / (whole[n][0, d] ** 2).sum(0)[:, None]
            )
            k = cosine.argmax(0)
            np.testing.assert_allclose(cosine[k, [0, 1]], 1.0)
            found = np.linalg.inv(some[f"{n}_precision"][0, d])
            np.testing.assert_allclose(np.abs(found), np.abs(covariance[0, d][np.ix_(k, k)]))


def test_factors_that_cancel_at_a_cell_are_needed_both():
    turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    usage, basis = turn * [1.1, 1.0], turn * [1.0, -1.0]  # 0.55 and -0.5 at the first cell
    needed = [num_needed(usage[None, None], basis[None, None], ([0], [0]), r) for r in (0.1, 0.6)]
    assert needed == [2, 0]


def test_ratings_of_new_rows_follow_from_the_factors_that_are_kept():
    fit = fitted("pmf")
    assert fit.other_draws["usage_precision"].shape[-2:] == (3, 3)
    seen = ratings()[:6]
    found = fit.given_new(seen).predict()
    ok = ~np.isnan(seen)
    assert np.corrcoef(found[ok], seen[ok])[0, 1] > 0.9


@pytest.mark.parametrize("model", [pytest.param("nmf", marks=pytest.mark.long), "pmf"])
def test_a_fit_is_saved_loaded_and_shown(model, tmp_path):
    fit = fitted(model)
    assert fit.transform(PROBLEMS[model]()[:4]).shape == (4, 3)
    fit.save(tmp_path / "fit")
    again = bmfjax.Fit.load(tmp_path / "fit")
    assert again.rank_probabilities == fit.rank_probabilities and again.rank == 3
    page = render(again)
    assert "How many factors are there?" in page and "fits noise alone" in page
    assert again.idata.posterior["usage"].shape[-1] == 3


@pytest.mark.long
def test_a_run_ends_by_itself_and_more_factors_follow_where_all_are_there(monkeypatch):
    """At most two factors at first, then four, of which three are there."""
    monkeypatch.setattr("bmfjax.families.base.MAX_RANK", 2)
    monkeypatch.setattr("bmfjax.families.base.LOOKS", (250, 500))
    fit = bmfjax.fit(ratings(), "auto", model="pmf", num_chains=2, progress=False)
    assert fit.rank == fit.figures.rank == 3 and fit.settings["max_rank"] == 4
    assert fit.figures.earlier_steps >= 250 and fit.figures.complete
    assert fit.figures.rank_at_bound < 0.05 and "There may be more" not in str(fit.verdict)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("logistic", {"priors": {"scale": 2.0}}, "scale is of all factors alike"),
        (
            "logistic",
            {"rank": 2, "priors": {"relevance": [1, 1]}},
            "relevance is of .* rank is 2",
        ),
        ("logistic", {"priors": {"relevance": [1, 0]}}, "give a positive shape and rate"),
        ("relaxed", {"sampler": "iasg"}, "sampler 'iasg' does not find the number"),
        ("relaxed", {"priors": {"usage": "normal"}}, "usage is 'normal', under which no factor"),
        ("relaxed", {"priors": {"basis": "uniform"}}, "basis is 'uniform', under which"),
        ("nmf", {"priors": {"usage_rate": 1.0}}, "usage_rate is one rate of all factors"),
        ("pmf", {"priors": {"strength": 3.0}}, "strength is of one precision matrix"),
        ("nmf", {"anchors": {"one": [1.0] * 24}}, "anchors are factors that are there in any case"),
        ("pmf", {"rank": 2, "priors": {"relevance": [1, 1]}}, "relevance is of .* rank is 2"),
        ("nmf", {"rank": 2, "priors": {"rate": dist.Gamma(1.0, 1.0)}}, "rate is of .* rank is 2"),
    ],
)
def test_what_would_have_no_say_is_refused(model, options, message):
    options = {"rank": "auto", "progress": False} | options
    data = three_tiles() if model in ("relaxed", "logistic") else parts()
    with pytest.raises(InputError, match=message):
        bmfjax.fit(data, **said(model, **options))


def test_the_nmf_model_has_rates_that_usage_and_basis_share():
    model = functools.partial(models.nmf, rank=2, rate=dist.Gamma(2.0, 1.0))
    names = ("usage", "basis", "rate")

    @fast_jit
    def drawn(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=(5, 4))
        found = sum(jnp.sum(trace[n]["fn"].log_prob(trace[n]["value"])) for n in names)
        return {n: trace[n]["value"] for n in (*names, "precision")}, found

    position, found = drawn(random.key(0))
    density = bmfjax.infer.NMFGibbs(model).bind(np.ones((5, 4)))
    assert set(jax.eval_shape(density.algorithm.init, random.key(0), position, None).position) == {
        "usage", "basis", "rate", "precision"
    }  # fmt: skip
    rate = np.asarray(position["rate"])
    expected = scipy.stats.gamma.logpdf(rate, 2.0).sum() + sum(
        scipy.stats.expon.logpdf(position[n], scale=1 / rate).sum() for n in ("usage", "basis")
    )
    assert float(found) == pytest.approx(expected, rel=1e-5)
    for name in ("usage_rate", "basis_rate"):
        with pytest.raises(InputError, match=f"{name} is 2.0, and rate is the prior of rates"):
            bmfjax.infer.NMFGibbs(functools.partial(model, **{name: 2.0})).bind(np.ones((5, 4)))
        with pytest.raises(InputError, match=f"{name} is 2.0"):
            handlers.seed(model, random.key(0))(shape=(5, 4), **{name: 2.0})
