"""Modes of draws whose modes are known, their weights, and the fit of one mode alone."""

import dataclasses

import numpy as np
import pytest
from scipy.special import softmax

import bmfjax
from bmfjax.data import InputError
from bmfjax.families import FAMILIES
from bmfjax.posterior.cells import cell_draws
from bmfjax.posterior.model_check import COUNTS
from bmfjax.posterior.modes import (
    ROUNDING,
    SAME,
    Solutions,
    _at_most,
    _best_orders,
    _Draws,
    _least_alike,
    _products,
    _sides,
    best_match,
    entry_rhat,
    mode_labels,
    tile_cosines,
)
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.scores import observed_sample, scored
from bmfjax.report import checks
from bmfjax.verdict import Figures, Verdict
from bmfjax.verdict.undrawn import said_elsewhere
from tests.test_cells import data_of, fit_of

ROWS, COLUMNS, RANK, DRAWS = 60, 30, 3, 60
RNG = np.random.default_rng(0)
USAGE = RNG.random((ROWS, RANK)) < 0.4
#: Two solutions that differ in their last factor.
ONE = RNG.random((COLUMNS, RANK)) < 0.4
OTHER = np.concatenate([ONE[:, :2], RNG.random((COLUMNS, 1)) < 0.4], 1)
FIGURES = Figures(
    num_warmup=5, thinning=2, num_draws=2 * DRAWS, errors=0, exact=True, noise_free=False,
    complete=True, factors_agreeing=2 / 3, converged=False, rhat=2.0,
)  # fmt: skip
VERDICT = Verdict(FIGURES, remedies={"chains": "try more"})


def product(usage, basis):
    return usage.astype(int) @ basis.T.astype(int) > 0


def draws_of(sequence, seed=0, noise=0.02):
    """Draws (chain, draw, ...) in the solutions that `sequence` (chain, draw) names, with noise."""
    rng = np.random.default_rng(seed)
    sequence = np.asarray(sequence)
    basis = np.where(sequence[..., None, None] == 0, ONE, OTHER)
    usage = np.broadcast_to(USAGE, (*sequence.shape, ROWS, RANK))
    usage, basis = (f ^ (rng.random(f.shape) < noise) for f in (usage, basis))
    # Every chain has an order of its own.
    orders = [rng.permutation(RANK) for _ in sequence]
    return tuple(np.stack([f[c][..., o] for c, o in enumerate(orders)]) for f in (usage, basis))


def fit_in(sequence, truth=ONE, remedy="try more", **figures):
    """A Boolean fit of data of one solution, whose draws are in those of `sequence`."""
    rng, sequence = np.random.default_rng(1), np.asarray(sequence)
    usage, basis = map(PackedDraws.pack, draws_of(sequence))
    x = product(USAGE, truth) ^ (rng.random((ROWS, COLUMNS)) < 0.05)
    steps = np.concatenate([np.zeros((len(sequence), 5)), np.repeat(sequence, 2, 1)], 1)
    return dataclasses.replace(
        fit_of("ormachine"),
        data=bmfjax.BinaryMatrix(x),
        usage_draws=usage,
        basis_draws=basis,
        other_draws={"flip_rate": np.full(sequence.shape, 0.06)},
        trace={"log_joint": -500 - 20 * steps + rng.normal(size=steps.shape)},
        agreement=np.array([1.0, 1.0, 0.2]),
        verdict=dataclasses.replace(VERDICT.changed(**figures), remedies={"chains": remedy}),
    )


APART = np.repeat([[0], [1], [0], [0]], DRAWS, 1)
MOVING = np.random.default_rng(3).integers(0, 2, (4, 40)).repeat(10, 1)


@pytest.fixture(scope="module")
def apart():
    return fit_in(APART)


# ---- which draw is in which mode -----------------------------------------------------------------


def test_chains_that_agree_are_in_one_mode():
    assert not mode_labels(*draws_of(np.zeros((4, DRAWS)))).any()
    assert not mode_labels(*draws_of(np.zeros((1, 4)))).any()  # a single segment
    modes = fit_in(np.zeros((2, DRAWS)), converged=True, rhat=1.0, remedy="").modes
    assert len(modes) == 1 and modes.weights.tolist() == [1.0] and modes.common.all()
    assert repr(modes) == "All draws have the same factors: there is one mode."


def test_chains_apart_are_in_modes_of_their_own():
    usage, basis = draws_of(APART)
    np.testing.assert_array_equal(mode_labels(usage, basis), APART)
    # Real factors, of any size.
    rng = np.random.default_rng(0)
    scaled = (f * rng.gamma(50, 1 / 50, f.shape) for f in (usage, basis))
    np.testing.assert_array_equal(mode_labels(*scaled), APART)


def test_a_chain_may_visit_several_modes():
    visits = np.zeros((2, DRAWS), int)
    visits[0, 37:] = 1  # within a segment
    np.testing.assert_array_equal(mode_labels(*draws_of(visits)), visits)


def test_short_excursions_and_factors_that_no_line_uses_are_no_modes():
    excursion = np.zeros((2, DRAWS), int)
    excursion[1, 20:23] = 1
    assert not mode_labels(*draws_of(excursion)).any()
    # What is left of an unused factor is noise, of other lines in every chain.
    rng = np.random.default_rng(0)
    usage, basis = (
        np.concatenate(
            [f, rng.random((*f.shape[:3], 1)) < 0.4 * rng.random((3, 1, f.shape[2], 1))], -1
        )
        for f in draws_of(np.zeros((3, DRAWS)))
    )
    assert mode_labels(usage, basis).any()
    assert not mode_labels(usage, basis, in_unit=True).any()


def test_draws_are_compared_as_every_match_would_compare_them():
    rng = np.random.default_rng(5)
    rank, number = 5, 60
    shared = rng.random((2, 20, rank)) < 0.4
    for signed in (False, True):
        usage = shared[0] ^ (rng.random((number, 20, rank)) < 0.15)
        basis = (shared[1] ^ (rng.random((number, 20, rank)) < 0.15)).astype(float)
        basis *= rng.normal(size=basis.shape) if signed else 1
        usage[rng.integers(0, number, 40), :, rng.integers(0, rank, 40)] = 0  # empty tiles
        orders = np.stack([rng.permutation(rank) for _ in range(number)])
        every = Solutions(usage.astype(float), basis).reordered(orders)
        draws = _Draws.of(every.usage[None], every.basis[None])
        cosines = tile_cosines(every, every)
        alike = np.array([[best_match(cosines[a, :, b])[1].sum() for b in range(number)]
                          for a in range(number)])  # fmt: skip
        others = draws.cosines(every)
        np.testing.assert_allclose(others, cosines.transpose(0, 1, 3, 2), atol=1e-5)
        for a in range(number):
            above = _at_most(others[a]) - alike[a]
            assert above.min() >= 0 and above.mean() < 0.5
            found = np.take_along_axis(others[a], _best_orders(others[a]).T[:, None], 1)
            np.testing.assert_allclose(found[:, 0].sum(0), alike[a], atol=1e-5)
        apart = alike + np.diag(np.full(number, np.inf))
        a, b = _least_alike(every)
        assert apart[a, b] == pytest.approx(apart.min(), abs=ROUNDING)
        # Whatever the first guess at the matches is.
        guess = np.stack([rng.permuted(np.tile(np.arange(rank)[:, None], number), axis=0)] * 2)
        sides = _sides(draws.cosines(every.some([a, b])), guess)
        clear = np.abs(alike[a] - alike[b]) > ROUNDING
        np.testing.assert_array_equal(sides[clear], (alike[b] > alike[a])[clear])
        assert 0 < sides.sum() < number and clear.mean() > 0.9
        # Sums of matched draws, of which some were matched before.
        for members in (np.arange(7, 30, 3), np.arange(4, 40)):
            total = draws.total(members, 9)
            order = [best_match(cosines[9, :, b])[0] for b in members]
            plain = every.some(members).reordered(order)
            for one, other in zip(total, plain, strict=True):
                np.testing.assert_allclose(one, other.sum(0).T, atol=1e-4)


def test_products_in_parts_are_products():
    rng = np.random.default_rng(0)
    for shape in ((1300, 400), (3, 5), (0, 4)):
        one, other = rng.random(shape), rng.random((130, shape[1]))
        np.testing.assert_allclose(_products(one, other), one @ other.T)


# ---- weights -------------------------------------------------------------------------------------


def test_the_mode_that_the_data_are_of_is_first(apart):
    modes = apart.modes
    assert modes.weighted_by == "stacking, approximate" and len(modes) == 2
    assert modes[0].chains == {0: DRAWS, 2: DRAWS, 3: DRAWS} and modes[1].chains == {1: DRAWS}
    assert modes.weights.sum() == pytest.approx(1) and modes.weights[0] > 0.95
    assert modes[0].figures["log_joint"] == pytest.approx(-500, abs=1)
    assert modes[1].figures["log_joint"] == pytest.approx(-520, abs=1)
    # Data of the other solution turn it around, though fewer chains found it.
    turned = fit_in(APART, truth=OTHER).modes
    assert turned[0].chains == {1: DRAWS} and turned.weights[0] > 0.95


def test_common_factors_are_those_of_both_solutions(apart):
    modes = apart.modes
    assert modes.common.sum() == 2
    own = int(np.flatnonzero(~modes.common)[0])
    assert (modes[1].likeness < SAME).nonzero()[0].tolist() == [own]
    bases = [set(map(tuple, (mode.basis > 0.5).T.tolist())) for mode in modes]
    truths = [set(map(tuple, basis.T.tolist())) for basis in (ONE, OTHER)]
    assert bases == truths
    shared = modes[0].basis[:, modes.common] > 0.5, modes[1].basis[:, modes.common] > 0.5
    np.testing.assert_array_equal(*shared)
    text = repr(modes)
    assert "2 modes, weights by stacking, approximate" in text and "are common to all" in text
    assert text.endswith("Next, try more.") and "fit.restricted(0)" in text
    assert modes.table.loc[2, "differs"] == str(own + 1)
    assert modes.table.loc[1, "chains"] == "1, 3, 4"


def test_chains_that_move_between_modes_weigh_them_by_visits():
    modes = fit_in(MOVING).modes
    assert modes.weighted_by == "visits"
    share = max(MOVING.mean(), 1 - MOVING.mean())
    assert modes.weights[0] == pytest.approx(share, abs=0.02)


def test_the_evidence_of_runs_weighs_modes_where_there_is_one():
    evidence = [-100.0, -99.0, -101.0, -102.0]
    modes = fit_in(APART, log_evidence_runs=evidence).modes
    assert modes.weighted_by == "evidence"
    weights = softmax(evidence)
    assert modes.weights[0] == pytest.approx(max(weights[1], 1 - weights[1]))


def test_a_large_matrix_is_sampled_where_it_is_observed(monkeypatch):
    values = np.random.default_rng(0).random((40, 30)).round()
    values[::3, ::2] = np.nan
    data = bmfjax.BinaryMatrix(values)
    whole = observed_sample(data, 2000)
    assert len(whole[0]) == np.isfinite(values).sum()
    monkeypatch.setattr("bmfjax.posterior.scores.MAX_ENTRIES", 10)
    for number in (50, 2000):
        i, j, found = observed_sample(data, number)
        assert len(i) == min(number, len(whole[0])) == len(set(zip(i, j, strict=True)))
        np.testing.assert_array_equal(found, values[i, j])


# ---- one mode alone ------------------------------------------------------------------------------


def test_a_restricted_fit_has_the_draws_of_its_mode(apart):
    alone = apart.restricted(0)
    assert alone.usage_draws.shape == (3, DRAWS, ROWS, RANK)
    assert str(alone.verdict).startswith(
        "One mode of 2 alone, of weight 1.00 (stacking, approximate). "
    )
    assert alone.trace["log_joint"].shape == (3, DRAWS)
    replicas = np.zeros((4, apart.trace["log_joint"].shape[1], 2), int)
    tempered = dataclasses.replace(apart, trace={**apart.trace, "replica": replicas})
    # Of steps that are left out no round trip is counted.
    assert "replica" not in tempered.restricted(0).trace
    assert (alone.agreement > SAME).all() and len(alone.modes) == 1
    np.testing.assert_allclose(alone.usage, apart.modes[0].usage, atol=1e-12)
    np.testing.assert_allclose(alone.basis, apart.modes[0].basis, atol=1e-12)
    assert alone.figures.errors == alone.data.count_errors(*alone.binarize())
    assert alone.idata["sample_stats"]["lp"].shape == (3, DRAWS)
    named = apart.rename(dict(enumerate("abc", 1)))
    vars(named)["modes"] = apart.modes
    other = named.restricted(1)
    assert other.figures.num_chains == 1 and str(other.verdict).endswith("Next, try more.")
    # Only factors that are those of the first mode have their names.
    names = [(name, f"factor {k}") for k, name in enumerate("abc", 1)]
    shared = apart.modes.common.tolist()
    assert other.factor_names == tuple(
        (given if same else number) for (given, number), same in zip(names, shared, strict=True)
    )
    assert named._settings_of_mode(0)["factor_names"] == named.settings["factor_names"]
    told = dataclasses.replace(named, settings={**named.settings, "call": "bmfjax.fit(data, 3)"})
    assert told._settings_of_mode(1)["call"] == "bmfjax.fit(data, 3).restricted(1)"
    with pytest.raises(InputError, match=r"give one from 0 to 1, of fit\.modes"):
        apart.restricted(2)
    with pytest.raises(InputError, match="give a whole number"):
        apart.restricted(0.5)


def test_chains_of_a_mode_are_cut_to_one_length():
    visits = np.zeros((2, DRAWS), int)
    visits[0, 20:] = 1
    fit = fit_in(visits)
    modes = fit.modes
    at = next(m for m in range(2) if len(modes[m].chains) == 2)
    # 60 of one chain are more than twice 20 of both.
    assert fit.restricted(at).usage_draws.shape[:2] == (1, DRAWS)
    assert fit.restricted(1 - at).usage_draws.shape[:2] == (1, 40)


def test_restricted_fits_of_nonnegative_factors_stay_of_their_kind():
    rng, (usage, basis) = np.random.default_rng(0), draws_of(APART, noise=0.0)
    usage, basis = (f * rng.gamma(200, 1 / 200, f.shape) for f in (usage, basis))
    fit = dataclasses.replace(
        fit_of("nmf"),
        data=bmfjax.RealMatrix(USAGE @ ONE.T.astype(float) + rng.normal(0, 0.3, (ROWS, COLUMNS))),
        usage_draws=usage, basis_draws=basis,
        other_draws={"precision": rng.gamma(400, 10 / 400, APART.shape)},
        trace={"log_joint": rng.normal(size=(4, 2 * DRAWS + 5))}, verdict=VERDICT,
    )  # fmt: skip
    assert fit.modes.weights[0] > 0.95 and fit.modes.doubtful < 0.05
    assert fit.modes[0].figures["precision"] == pytest.approx(10, rel=0.1)
    alone = fit.restricted(0)
    np.testing.assert_allclose(alone.basis, fit.modes[0].basis)
    assert type(alone) is type(fit) and "One mode of 2" in str(alone.verdict)


def test_the_page_shows_modes_where_chains_disagree(apart):
    shown = checks.modes(apart)
    assert shown.heading == "Modes" and "<td>1, 3, 4</td>" in shown.html
    assert "no posterior probabilities" in shown.html and "common to all modes" in shown.html
    agreeing = dataclasses.replace(apart, verdict=apart.verdict.changed(converged=True))
    assert checks.modes(agreeing) is None
    assert checks.modes(fit_in(np.zeros((1, DRAWS)))) is None  # nothing to compare


# ---- one mode, whose chains do not agree ---------------------------------------------------------


def stuck_fit(**figures):
    """Four chains without noise in one mode, of which one or two differ in three of its bits."""
    usage, basis = (np.tile(f, (4, DRAWS, 1, 1)) for f in (USAGE, ONE))
    usage[0, :, 7, [0, 2]] ^= True
    basis[:2, :, 3, 1] ^= True
    # Chains differ here, too, but each changes.
    usage[:, ::3, 20, 1] ^= np.array([True, False, False, False])[:, None]
    fit = fit_in(np.zeros((4, DRAWS)), **figures)
    return dataclasses.replace(
        fit, usage_draws=PackedDraws.pack(usage), basis_draws=PackedDraws.pack(basis)
    )


def test_chains_that_are_stuck_in_one_mode_are_told_with_lines_and_the_remedy():
    fit = stuck_fit(factors_agreeing=1.0, rhat=np.inf, rhat_product=np.inf)
    modes, rows, columns = fit.modes, fit.data.row_names, fit.data.column_names
    assert len(modes) == 1
    assert modes.differences.to_numpy().tolist() == [
        ["row", rows[7], 2, 2], ["column", columns[3], 1, 1], ["row", rows[20], 1, 0],
    ]  # fmt: skip
    assert repr(modes) == (
        "All draws have the same factors: there is one mode. Yet the chains differ in 4 entries of "
        f"these factors, 3 of which never change within a chain: in row {rows[7]} (2) and in "
        f"column {columns[3]} (1). Next, try more."
    )
    shown = checks.modes(fit)
    assert shown.heading == "Modes" and f"<td>{rows[7]}</td>" in shown.html
    assert "Next, try more." in shown.html
    assert stuck_fit(converged=True, rhat=1.0).modes.differences is None


def test_rhat_of_entries_is_that_of_gelman_and_rubin():
    """Packed or not; infinite where chains are stuck apart, NaN where nothing moves."""
    bits = np.random.default_rng(2).random((4, 30, 5, 2)) < 0.3
    bits[:, :, 0], bits[:, :, 1] = np.array([0, 1, 1, 0], bool)[:, None, None], True
    found, x = entry_rhat(PackedDraws.pack(bits)), bits[:, :, 2, 0].astype(float)
    np.testing.assert_allclose(found, entry_rhat(bits.astype(float)))
    assert np.isinf(found[0]).all() and np.isnan(found[1]).all()
    between, within = 30 * x.mean(1).var(ddof=1), x.var(1, ddof=1).mean()
    assert found[2, 0] == pytest.approx(((29 * within + between) / (30 * within)) ** 0.5)


# ---- every family --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", FAMILIES)
def test_modes_are_of_factors_that_the_data_determine(model):
    fit = fit_of(model)
    # Weights of "features" have signs, but its memberships do not.
    if fit._is_signed and model != "features":
        with pytest.raises(InputError, match=f"model '{model}' has no modes, which '"):
            fit.modes  # noqa: B018
    else:
        assert fit.modes.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("model", FAMILIES)
def test_log_densities_are_those_that_the_model_predicts_with(model, monkeypatch):
    """Their mean over the draws is what `predict_cells` says of an observation."""
    fit, data = fit_of(model), data_of(model)
    i, j, values = observed_sample(data, 40)
    density = fit._log_density(i, j, values)
    assert density.shape == (50, 40) and np.isfinite(density).all()
    mean = np.exp(density).mean(0)
    if model == "ordered-probit":
        share = fit.predict_cells(i, j, "probability")
        np.testing.assert_allclose(mean, share[np.arange(40), values.astype(int) - 1], atol=1e-6)
    elif fit._scored == "probabilities of ones and zeros":
        noisy = fit._is_boolean and len(fit._noisy_kinds) > 0
        one = fit.predict_cells(i, j, "probability", noisy=noisy)
        # Of the logistic model an approximation of the mixture, and not the mean of its draws.
        some = {"atol": 0.3} if model == "logistic" else {"rtol": 1e-5}
        np.testing.assert_allclose(mean, np.where(values > 0.5, one, 1 - one), **some)
    elif fit._scored == COUNTS:  # p(n + 1) / p(n) is the rate over n + 1
        fits = np.exp(fit._log_density(i, j, values + 1) - density) * (values + 1)
        np.testing.assert_allclose(fits, cell_draws(fit, i, j), rtol=1e-5)
    else:
        shifted = fit._log_density(i, j, values + 1e-3)
        slope = (shifted - density) / 1e-3  # minus precision times residual
        precision = np.asarray(fit.other_draws.get("precision", 4.0), float).reshape(-1, 1)
        fits = values + slope / precision
        np.testing.assert_allclose(fits, cell_draws(fit, i, j), atol=0.02)
    whole = scored(fit, (i, j, values))[0]
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 2000)
    np.testing.assert_allclose(scored(fit, (i, j, values))[0].log_score, whole.log_score)


def test_modes_do_not_advise_another_model():
    fit = fit_in(APART, explained=0.0, explained_error=0.01)
    both = {"chains": "try more", "model": "fit another"}
    fit = dataclasses.replace(fit, verdict=dataclasses.replace(fit.verdict, remedies=both))
    assert fit.verdict.predictions.remedy == "fit another"
    assert fit.modes.remedy == "try more" and "another" not in fit.modes.sentence


def test_modes_of_a_run_that_drew_nothing_come_with_a_warning():
    """Also where the page had them before, which says so in the verdict."""
    cut = fit_in(np.zeros((4, DRAWS), int), num_warmup=0, planned_warmup=300)
    with said_elsewhere(cut):
        assert len(cut.modes) == 1
    with pytest.warns(UserWarning, match="draws repeat where chains began"):
        assert len(cut.modes) == 1
    assert len(cut.modes) == 1
