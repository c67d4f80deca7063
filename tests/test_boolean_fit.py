"""`bmfjax.fit` with the Boolean model: the answer, its uncertainty, and the refusals."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.sparse as sp

import bmfjax
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import boolean_product, most_probable_factors, posterior_dataset
from bmfjax.diagnostics.most_probable import log_posterior
from bmfjax.families import ask
from bmfjax.families.base import Chains
from bmfjax.families.boolean import (
    BooleanFit,
    agreement_of,
    align_packed,
    held_by,
)
from bmfjax.families.memory import HOST, PARTS, Held, require_room
from bmfjax.families.tiles import tile_fit
from bmfjax.posterior.packed import PackedDraws
from bmfjax.report import facts
from bmfjax.verdict import Status
from tests.said import said
from tests.small_fits import RANK, SIZES, ones, start

QUICK = {"num_chains": 2, "num_warmup": 60, "num_samples": 80, "progress": False}


@pytest.fixture(scope="module")
def product():
    made = bmfjax.generate_product(60, 40, 3, density=0.4, flip=0.1, seed=3)
    hidden = np.random.default_rng(0).random((60, 40)) < 0.2
    return made, hidden, np.where(hidden, np.nan, made.data.dense())


@pytest.fixture(scope="module")
def fitted(product):
    """Without moves, which are half of the program and not missed from a start this good."""
    alone = bmfjax.Gibbs(moves=[])
    return bmfjax.fit(product[2], 3, alone, seed=1, model=bmfjax.OrMachine(num_rates=2), **QUICK)


def test_recovers_the_product_and_the_flip_rates(product, fitted):
    made, hidden, _ = product
    recovered = boolean_product(fitted.usage_binary, fitted.basis_binary)
    assert (recovered != made.clean).mean() < 0.02
    assert ((fitted.probability() > 0.5) != made.clean)[hidden].mean() < 0.04
    rates = fitted.draws()["flip_rate"]
    assert rates.shape == (2, 80, 2)
    low, high = np.quantile(rates, [0.001, 0.999], axis=(0, 1))
    assert (low < 0.1).all() and (high > 0.1).all()
    assert fitted.figures.exact and fitted.figures.chains_apart < 0.05
    assert fitted.settings["sampler_options"]["update"] == "collapsed"


def test_a_fit_of_starts_has_them_as_they_are_and_no_search(product, monkeypatch):
    """It is what there is when the time is up, and a search would come after it."""
    monkeypatch.setattr("bmfjax.families.tiles.boolean_factors", None)
    shared = {n: v for n, v in QUICK.items() if n != "progress"}
    init = {"usage": np.eye(60)[:, :3], "basis": np.arange(40)[:, None] >= [5, 10, 20]}
    model = bmfjax.OrMachine(num_rates=2)
    problem = ask(product[2], 3, bmfjax.Gibbs(moves=[]), model=model, init=init, **shared)
    chains = problem.chains()
    run = chains.run(problem)
    run.end_warmup()
    run.timed_out = True
    chains.stand(run)
    found = problem.family.result(problem, chains, run)
    assert (
        "tile" not in repr(found) and found.doubts
    )  # where the verdict says that nothing was drawn
    assert found.verdict.is_of_starts and np.isnan(found.figures.expected_errors)
    with pytest.warns(UserWarning, match="before the sampler drew"):
        np.testing.assert_array_equal(found.usage_binary, init["usage"])
    np.testing.assert_array_equal(found.basis_binary, init["basis"])
    named = [fact.name for fact in facts.errors(found)]
    assert named == ["Entries unlike the data"]


def test_probabilities_are_shares_of_draws(fitted):
    usage, basis = (np.asarray(f) for f in (fitted.usage_draws, fitted.basis_draws))
    covered = np.einsum("cdik,cdjk->cdij", usage.astype(int), basis.astype(int)) > 0
    np.testing.assert_allclose(fitted.probability(), covered.mean((0, 1)), atol=1e-12)
    np.testing.assert_allclose(fitted.predict(), covered.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(fitted.predict(kind="sd"), covered.std((0, 1), ddof=0), atol=2e-3)
    f0, f1 = np.moveaxis(fitted.draws()["flip_rate"], -1, 0)[..., None, None]
    one = np.where(covered, 1 - f1, f0).mean((0, 1))
    np.testing.assert_allclose(fitted.probability(noisy=True), one, atol=1e-6)
    np.testing.assert_allclose(
        fitted.probability(rows=[5], columns=[1, 2], noisy=True), one[5:6, 1:3], atol=1e-6
    )
    np.testing.assert_allclose(fitted.usage, usage.mean((0, 1)))


def test_new_rows_go_by_the_names_of_their_columns(fitted):
    """The fitted matrix has no names, so any will do; else they are put in order."""
    frame = pd.DataFrame(fitted.data.dense()[:2], columns=[f"c{j}" for j in range(40)])
    assert fitted.transform(frame).shape == (2, 3)
    named = replace(fitted, data=BinaryMatrix(fitted.data.dense(), column_names=frame.columns))
    turned = frame.iloc[:, ::-1]
    for new in (turned, BinaryMatrix(turned)):
        np.testing.assert_array_equal(named.transform(new), named.transform(frame))


def test_densities_follow_their_factors(fitted):
    """Each is a Beta draw given the bits of its own factor, after alignment and ordering."""
    ones = np.asarray(fitted.usage_draws).sum(2)
    a, b = 1 + ones, 1 + 60 - ones
    sd = np.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
    scores = (fitted.other_draws["usage_density"] - a / (a + b)) / sd
    assert abs(scores.mean()) < 0.2
    assert 0.8 < scores.std() < 1.2


def test_usage_of_the_fitted_rows_is_found_again(product, fitted):
    again = fitted.transform(product[2])
    assert np.abs(again - fitted.usage).max() < 0.25
    assert np.abs(again - fitted.usage).mean() < 0.02


def test_arviz_gets_bits_as_numbers(fitted):
    posterior = posterior_dataset(fitted.idata)
    assert posterior["usage"].dims == ("chain", "draw", "rows", "factor")
    assert posterior["usage"].dtype == np.uint8
    assert posterior["basis_density"].dims == ("chain", "draw", "factor")


def test_a_resumed_fit_has_the_draws_of_an_unbroken_one(tmp_path):
    options = SIZES | {"num_samples": 600, "num_warmup": 10, "init": start()}
    options["sampler"] = bmfjax.Gibbs(update="gibbs", moves=[])  # quick to compile
    whole = bmfjax.fit(ones(), RANK, **options)
    assert whole.figures.thinning > 1
    path = tmp_path / "checkpoint"
    part = bmfjax.fit(ones(), RANK, max_time=1e-3, checkpoint=path, **options)
    assert part.figures.num_draws == part.usage_draws.shape[1] == 4
    assert part.figures.planned_warmup == 10 and "the warm-up was cut short" in str(part.verdict)
    # What is stored is not lost to a fit that does not ask for it, be it of other data.
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    for data in (ones(), 1 - ones()):
        with pytest.raises(InputError, match="holds the checkpoint of an earlier run; go on with"):
            bmfjax.fit(data, RANK, checkpoint=path, **options)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    resumed = bmfjax.fit(ones(), RANK, checkpoint=path, resume=True, **options)
    assert resumed.figures.complete
    np.testing.assert_array_equal(resumed.usage_draws.words, whole.usage_draws.words)


def test_resuming_does_not_look_for_a_start_again(product, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("looked for a start")

    monkeypatch.setattr("bmfjax.families.boolean.ascent_starts", fail)
    request = ask(product[2], 3, num_samples=10, sampler=bmfjax.Gibbs(update="metropolis"))
    chains = request.chains()
    assert chains.run(request, resume=True).steps_done == 0
    with pytest.raises(AssertionError, match="looked for a start"):
        chains.run(request)


FEW = QUICK | {"num_warmup": 10, "num_samples": 20}


def test_known_bits_stay(product):
    made, _, values = product
    known = np.full((60, 3), 0.5)
    known[:4] = made.usage[:4]
    init = {"usage": made.usage, "basis": made.basis}
    quick = bmfjax.Gibbs(update="gibbs", moves=[])  # quick to compile
    found = bmfjax.fit(values, 3, quick, init=init, model=bmfjax.OrMachine(usage=known), **FEW)
    draws = np.asarray(found.usage_draws)[:, :, :4]
    assert (draws == draws[0, 0]).all()
    np.testing.assert_array_equal(np.sort(draws[0, 0], 1), np.sort(made.usage[:4], 1))
    with pytest.raises(InputError, match="says nothing of new rows"):
        found.transform(values)


def test_the_published_rule_is_not_called_exact(product):
    made, _, values = product
    init = {"usage": made.usage, "basis": made.basis}
    as_published = bmfjax.Gibbs(dispersion="mle", moves=())
    found = bmfjax.fit(values, 3, as_published, init=init, **FEW)
    assert not found.figures.exact
    assert "started from the solution that was given" in str(found.verdict)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "iasg"}, "model 'ormachine' has gibbs"),
        ({"priors": {"precision": 1.0}}, "model 'ormachine' has no 'precision'; it has usage"),
        ({"priors": {"usage": 1.5}}, "give a density between 0 and 1"),
        ({"priors": {"basis": np.zeros((4, 3))}}, r"shape \(4, 3\)"),
        ({"priors": {"flip_rate": 0.7}}, r"a flip rate is in \(0, 1/2\]"),
        ({"priors": {"num_rates": 3}}, "num_rates is 3"),
        ({"priors": {"usage": dist.Normal(0, 1)}}, "give a scalar numpyro.distributions.Beta"),
        ({"init": {"usage": np.zeros((60, 3))}}, "init must hold exactly"),
        (
            {"init": {"usage": np.full((60, 3), 0.5), "basis": np.zeros((40, 3))}},
            "values other than 0 and 1",
        ),
        ({"options": {"moves": ("leap",)}}, "moves is 'leap'; choose from"),
        ({"options": {"speed": 1}}, "sampler 'gibbs' of model 'ormachine' has no option 'speed'"),
        (
            {"options": {"num_anneal": 200}},
            r"num_anneal is 200 and num_warmup \(--warmup\) 60",
        ),
    ],
)
def test_bad_options_are_refused_in_a_sentence(product, options, message):
    with pytest.raises(InputError, match=message) as refused:
        bmfjax.fit(product[2], 3, **said(**{**QUICK, **options}))
    assert "\n" not in str(refused.value)


def test_a_matrix_that_a_device_cannot_hold_is_refused_with_what_fits(monkeypatch):
    class Asked:
        size, mesh, data = "a matrix", None, SimpleNamespace(num_rows=1000)
        family, sampler = SimpleNamespace(on_mesh=("gibbs",)), SimpleNamespace(name="gibbs")

    def require(words, chains=50, asked=Asked):
        require_room(
            asked,
            [
                Held("words", (words, 2**10), 2**10, PARTS),
                Held("kept draws", (2**40,), 1, HOST),
                Held("chains", (chains,), 2**20),
            ],
        )

    monkeypatch.setattr("bmfjax.data.memory.available_memory", lambda: 2**42)
    require(1500)  # a CPU has the memory of the host
    for module in ("bmfjax.kernels.numerics.budget", "bmfjax.families.memory"):
        monkeypatch.setattr(f"{module}.device_memory", lambda: 2000 * 2**20)
    said = r"about 2.0 GiB of the memory of a device, and 2.0 GiB are there; "
    with pytest.raises(InputError, match=said + r"give a mesh of at least 2 .* about 994 rows$"):
        require(1502)  # 2000 - 50 - 256 for programs - 200 for blocks, of words in MiB
    require(1493)
    with pytest.raises(InputError, match="choose fewer rows or columns, or a lower rank"):
        require(900, chains=2**11)
    Asked.family.on_mesh = ()
    with pytest.raises(InputError, match=r"are there; choose at most about 994 rows$"):
        require(1502)


def test_states_that_fill_the_memory_are_refused(monkeypatch):
    """Of 256 states, four temperatures and four chains; the same matrix at rank 2 is no trouble."""
    monkeypatch.setattr("bmfjax.families.check_programs", lambda: None)
    monkeypatch.setattr("bmfjax.data.memory.available_memory", lambda: 2**29)
    data = np.random.default_rng(0).random((5000, 9)) < 0.5
    tempered = bmfjax.Gibbs(update="collapsed", inverse_temperatures=(1.0, 0.6, 0.3, 0.1))
    with pytest.raises(
        InputError, match=r"weights of 256 states a line .*programs 256 MiB.* are available"
    ):
        ask(data, 8, tempered).chains()
    ask(data, 2, tempered).chains()


def test_a_large_sparse_matrix_takes_its_words_and_little_more():
    """1.3 million x 20,000: 6.5 GB of words, where a byte an entry would be 26 GB."""
    ones = sp.csr_array(([True], ([0], [0])), shape=(1_300_000, 20_000))
    held = held_by(bmfjax.BinaryMatrix(ones), 5, 4, 8, {})
    assert held[0].name == "packed words"
    assert held[0].size == pytest.approx(2 * 1.3e6 * 2e4 / 8, rel=1e-3)
    assert sum(arrays.size for arrays in held) < 7.5e9


def test_no_program_holds_the_data_as_a_constant():
    """A copy of them, and of a large matrix minutes of compiling; JAX warns, here an error."""
    name = "jax_captured_constants_warn_bytes"
    if not hasattr(jax.config, name):  # before JAX 0.8
        pytest.skip("this JAX does not tell")
    values = np.random.default_rng(0).random((200, 320)) < 0.5  # 8,000 bytes of words
    first = {"usage": np.ones((200, 2), bool), "basis": np.ones((320, 2), bool)}
    before = getattr(jax.config, name)
    jax.config.update(name, 4_000)
    try:
        request = ask(
            values, 2, init=first, num_chains=1, num_warmup=1, num_samples=4,
            sampler=bmfjax.Gibbs(update="gibbs", moves=[]),
        )  # fmt: skip
        request.chains().run(request).advance()
    finally:
        jax.config.update(name, before)


@pytest.mark.long
def test_after_the_draws_memory_follows_the_kept_draws(tmp_path):
    """From aligned draws to a saved fit: a byte a bit of them at most, and pieces beside."""
    rng = np.random.default_rng(0)
    usage, basis = (
        PackedDraws(rng.integers(0, 2**32, (4, 250, 16, 8), np.uint32) & 0x11111111, 256)
        for _ in range(2)
    )
    data = bmfjax.BinaryMatrix(rng.random((256, 256)) < 0.5)
    aligned = align_packed(usage, basis, (0, 0))
    trace = {"log_joint": rng.normal(size=(4, 250))}
    others = {"flip_rate": np.full((4, 250, 2), 0.1, np.float32)}
    request = ask(data, 8, model="ormachine", num_warmup=0)
    chains = Chains(None, None, request.settings(thinning=1))
    run = SimpleNamespace(
        warmup_steps=0, num_warmup=0, planned_warmup=0, stood=False, num_draws=250,
        is_complete=True, timed_out=False, seconds=0.0, earlier_steps=0, num_starts=0,
        search_ends=None,
        intervals=lambda: {"usage": 1},
    )  # fmt: skip
    kept, peaks = usage.words.nbytes + basis.words.nbytes, {}
    tracemalloc.start()

    def peak_of(name, step):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = step()
        peaks[name] = tracemalloc.get_traced_memory()[1] - before
        return result

    fit = peak_of(
        "outcome",
        lambda: tile_fit(
            BooleanFit, request, chains, run, aligned, agreement_of(aligned), trace, others
        ),
    )
    peak_of("summary", fit.summary)
    fit.save(tmp_path / "first")  # imports what it needs
    peak_of("save", lambda: fit.save(tmp_path / "fit"))
    tracemalloc.stop()
    # Pieces of some megabytes, whatever the draws; a file holds a byte a bit, or 8 times as much.
    assert peaks["outcome"] < 8 * kept + 48e6 and peaks["summary"] < 8e6, peaks
    assert peaks["save"] < 10 * kept + 4e6, peaks


# ---- rates of flips ----------------------------------------------------------------------------


@pytest.mark.long
def test_tiles_of_which_ones_are_missing_more_often_than_zeros_turn_are_real():
    """Under one rate two of the three are not in the draws, and the verdict is the same."""
    rng = np.random.default_rng(1)
    usage, basis = rng.random((200, 3)) < 0.35, rng.random((60, 3)) < 0.3
    true = (usage.astype(int) @ basis.T.astype(int)) > 0
    data = rng.random(true.shape) < np.where(true, 0.6, 0.15)
    fit = bmfjax.fit(data, bmfjax.OrMachine(3), seed=0, num_chains=2, progress=False)
    assert fit.verdict.status == Status.RELIABLE
    tiles = np.einsum("nk,dk->knd", fit.usage_binary, fit.basis_binary)
    for planted in np.einsum("nk,dk->knd", usage, basis):
        alike = (tiles & planted).sum((1, 2)) / (tiles | planted).sum((1, 2))
        assert alike.max() > 0.85
    assert (fit.tiles()["p_real"] > 0.9).all() and len(fit.tiles()) == 3
    assert ((fit.probability() > 0.5) != true).mean() < 0.03
    rates = fit.other_draws["flip_rate"].mean((0, 1))
    assert rates == pytest.approx([0.15, 0.4], abs=0.02)


@pytest.mark.parametrize("rates", [1, 2])
def test_the_factors_that_are_shown_have_the_rates_of_the_draws(rates):
    """Searched under the model that was sampled: no other start does better there."""
    made = bmfjax.generate_tiles(48, 40, 3, noise=(0.02, 0.3), seed=3)
    r = np.random.default_rng(0)
    draws = [
        (f[None, None] ^ (r.random((1, 30, *f.shape)) < 0.1)).astype(np.float32)
        for f in (made.usage > 0, made.basis > 0)
    ]
    flips = np.full((1, 30) + (2,) * (rates == 2), 0.1)
    found, _ = BooleanFit._best_factors(made.data, *draws, None, {"flip_rate": flips})
    ones, observed = made.data.dense() > 0.5, made.data.observed()
    other = most_probable_factors([found[:2]], ones, observed, num_rates=rates)
    assert other.log_posterior == log_posterior(*found[:2], ones, observed, rates)
    wrong, _ = BooleanFit._best_factors(
        made.data, *draws, None, {"flip_rate": np.full((1, 30) + (2,) * (rates == 1), 0.1)}
    )
    assert log_posterior(*wrong[:2], ones, observed, rates) < other.log_posterior
