"""`bmfjax.fit` with binary features: what it finds, and everything that a fit can do."""

import dataclasses
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import bmfjax
from bmfjax import cli
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.data.memory import PROGRAMS
from bmfjax.diagnostics.align import align_turned
from bmfjax.families import ask
from bmfjax.families.features import (
    BYTES_AN_ENTRY,
    WARMUP,
    _without_unknown,
    in_order,
    turned,
)
from bmfjax.families.sampling import identity
from bmfjax.infer import run as driver
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.infer.feature_start import Search
from bmfjax.kernels.base import State
from bmfjax.kernels.tempering import AnnealedState
from bmfjax.posterior.features import FEWEST, HEADER, are_told, features_of
from bmfjax.report import checks, page
from bmfjax.report.factors import summary_with_trust
from bmfjax.report.features import feature_card
from bmfjax.verdict import Verdict
from tests.said import has_its_summary
from tests.test_cells import fit_of

QUICK = {"num_chains": 2, "num_warmup": 200, "num_samples": 200, "progress": False}
ROWS, COLUMNS = 120, 24


@pytest.fixture(scope="module")
def planted():
    """Values with a tenth hidden, memberships and weights of two features, hidden cells."""
    rng = np.random.default_rng(3)
    usage = rng.random((ROWS, 2)) < (0.4, 0.3)
    basis = np.zeros((COLUMNS, 2))
    basis[:9, 0], basis[6:14, 1], basis[20:, 1] = 2.8, 2.8, -2.5
    log_odds = usage @ basis.T + rng.normal(-0.7, 0.4, COLUMNS) + 0.3 * rng.normal(size=(ROWS, 1))
    ones = rng.random(log_odds.shape) < expit(log_odds)
    hidden = rng.random(ones.shape) < 0.1
    hidden[5] = True
    return np.where(hidden, np.nan, ones), usage, basis, hidden, expit(log_odds)


def named(values):
    return BinaryMatrix(
        values,
        row_names=[f"person {i}" for i in range(ROWS)],
        column_names=[f"item {j}" for j in range(COLUMNS)],
    )


@pytest.fixture(scope="module")
def fitted(planted):
    """Two births a sweep, of 14 by default, take half of the time."""
    few = bmfjax.Gibbs(rebirths=2)
    return bmfjax.fit(named(planted[0]), "auto", few, model="features", max_rank=4, seed=2, **QUICK)


def test_planted_features_are_found(planted, fitted):
    _, usage, basis, hidden, truth = planted
    hidden = hidden.copy()
    assert min(fitted.rank_probabilities) == 2
    table = fitted.tiles()
    assert len(table) == 2 and (table["p_real"] > 0.95).all()
    for k in range(2):
        at = int(np.argmin([np.mean(fitted.usage_binary[:, i] != usage[:, k]) for i in range(2)]))
        informed = np.arange(ROWS) != 5
        assert np.mean(fitted.usage_binary[informed, at] != usage[informed, k]) < 0.09
        true = basis[:, k] != 0
        found = np.sign(fitted.basis[:, at]) * fitted.basis_binary[:, at]
        np.testing.assert_array_equal(found[true], np.sign(basis[true, k]))
        assert (fitted.found.concerned[~true, at] < 0.9).all()
        low, high = (fitted.found.log_odds[i][true, at] for i in (1, 2))
        inside = (low < basis[true, k]) & (basis[true, k] < high)
        assert inside.mean() > 0.5  # of 90 %
    hidden[5] = False
    assert np.sqrt(((fitted.probability() - truth)[hidden] ** 2).mean()) < 0.14
    # What a feature adds outweighs what it takes away.
    assert (fitted.basis[:, :2].sum(0) > 0).all()


def test_settings_say_what_was_asked_and_used_and_the_summary_stays(fitted, tmp_path):
    settings = fitted.settings
    assert settings["call"] == (
        "bmfjax.fit(data, bmfjax.Features('auto', max_rank=4), bmfjax.Gibbs(rebirths=2), "
        "num_chains=2, num_warmup=200, num_samples=200, seed=2)"
    )
    assert (settings["rank"], settings["max_rank"], settings["max_time"]) == ("auto", 4, None)
    assert settings["thinning"] == fitted.figures.thinning
    assert has_its_summary(bmfjax.Fit.load(fitted.save(tmp_path / "fit")), fitted)


@pytest.mark.long
def test_the_call_that_is_stored_makes_the_fit_again(fitted):
    again = eval(fitted.settings["call"], {"bmfjax": bmfjax, "data": fitted.data})
    for name, draws in fitted.draws().items():
        np.testing.assert_array_equal(again.draws()[name], draws)
    assert again.settings == fitted.settings and str(again.verdict) == str(fitted.verdict)


def test_an_empty_feature_is_in_no_angle():
    """Where it is in some draws, with other rows in each, it is at 90 degrees from itself."""
    fit, rng = fit_of("features"), np.random.default_rng(4)
    usage, basis = (np.array(f, float) for f in (fit.usage_draws, fit.basis_draws))
    usage[..., 1] = rng.random(usage.shape[:3]) < 0.2
    basis[..., 1] = np.where(rng.random(basis.shape[:3]) < 0.2, 1.0, 0.0)
    usage[..., 0], basis[..., 0] = usage[0, 0, :, 0], 1.0 + np.arange(basis.shape[2])
    usage[..., 0, 0] = 1.0
    usage[..., 2:] = 0.0
    fit = dataclasses.replace(fit, usage_draws=usage, basis_draws=basis)
    assert fit._empty.tolist() == [False] + [True] * (fit.rank - 1)
    assert fit.spread.largest < 1e-3 and "are the same" in checks.spread(fit).html
    every = dataclasses.replace(fit, usage_draws=0 * usage)
    assert checks.spread(every) is None


def test_probabilities_are_those_of_the_draws(fitted):
    d = fitted.draws()
    log_odds = np.einsum("cdik,cdjk->cdij", d["usage"], d["basis"])
    log_odds += d["column_effect"][:, :, None] + d["row_effect"][..., None]
    np.testing.assert_allclose(fitted.probability(), expit(log_odds).mean((0, 1)), rtol=1e-4)
    found = fitted.predict_cells([3, 4], [2, 5], "sd")
    np.testing.assert_allclose(found, log_odds[:, :, [3, 4], [2, 5]].std((0, 1), ddof=1), rtol=1e-3)


def test_the_tables_name_rows_columns_and_odds(fitted, tmp_path):
    members = fitted.tiles(members=True)
    columns = members.query("side == 'column' and factor == 1 and member")
    columns = columns.dropna()
    assert (columns["lower"] <= columns["odds_ratio"]).all()
    ratio = np.exp(fitted.found.log_odds[0, int(columns.iloc[0]["name"].split()[1]), 0])
    assert columns.iloc[0]["odds_ratio"] == pytest.approx(ratio)
    size = np.abs(np.log(columns["odds_ratio"])) * columns["membership"]
    assert size.is_monotonic_decreasing
    again = bmfjax.Fit.load(fitted.save(tmp_path / "fit"))
    pd.testing.assert_frame_equal(again.tiles(all=True), fitted.tiles(all=True))
    np.testing.assert_array_equal(again.probability(), fitted.probability())
    # What each search had found is kept, and tables have it where they have the chains.
    assert all(map(np.array_equal, again._search_ends, fitted._search_ends))
    found = fitted.figures.factors_searches
    assert fitted.figures.searches == 2 == max(found) and len(found) == fitted.rank
    assert tuple(again._search_counts.found) == found and str(again.verdict) == str(fitted.verdict)
    for table in (fitted.summary(), fitted.tiles(all=True)):
        # An empty factor is nothing that a search finds.
        assert table["searches"].isna().tolist() == fitted._empty.tolist()
        assert all(n == found[k - 1] for k, n in table["searches"].dropna().items())
    # A feature is in the draws of as many chains as the verdict counts.
    assert tuple(fitted.tiles(all=True)["chains"]) == fitted.figures.factors_chains
    assert members["searches"].tolist() == [found[k - 1] for k in members["factor"]]
    assert re.fullmatch(HEADER, ",".join(members.columns))
    assert fitted.summary()["agreement"].isna().tolist() == fitted._empty.tolist()
    assert "searches" not in dataclasses.replace(fitted, verdict=Verdict()).summary()


def test_the_page_shows_what_is_common_before_what_is_special(fitted, tmp_path):
    text = fitted.report(tmp_path / "page.html").read_text()
    assert text.index("What is common") < text.index("The factors")
    assert "<h3>All rows <span>" in text and text.count("<h3>Factor 1") == 1
    assert "odds x" in text and "Real with probability" in text and "person" in text
    for number in fitted.figures.factors_searches[:2]:
        assert f"Found by {number} of 2 searches." in text
    searched = fitted.settings["num_warmup"] - fitted.figures.num_warmup
    assert searched > 0 and f"({searched:,} before them searched for starts)" in text
    assert f" ({searched:,} before them searched for starts)" in cli._sampled(fitted)
    assert " without them)<" in text and "without them); odds" not in text
    # What the first line counts are the columns that are not grey, shown at once or on a click.
    card = feature_card(fitted, summary_with_trust(fitted).loc[1], 0)
    own = sum("outside" not in bar.look for bar in card.first + card.more)
    assert f"rows; concerns {own} column" in card.size
    assert not card.more or card.said_of_more in text
    # What is counted as concerned is what the bars say is known to be, here and in the tables.
    rather = fitted.basis_binary[:, 0]
    unknown = rather & ~are_told(fitted)[:, 0]
    said = re.search(r"rows; concerns (\d+) columns?(?:, and perhaps (\d+) more)?", text)
    said = [int(n or 0) for n in said.groups()]
    assert said == [rather.sum() - unknown.sum(), unknown.sum()] and min(said) > 0
    for table in (fitted.summary(), fitted.tiles()):
        assert table.loc[1, ["columns", "unknown"]].tolist() == said
    table = fitted.tiles(members=True).query("factor == 1 and side == 'column' and member")
    assert set(table["name"][table["lower"].isna()]) == {f"item {j}" for j in unknown.nonzero()[0]}


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_column_is_told_where_the_data_change_its_odds(share):
    """Of a column with a probability of at least one half, where they raise them."""
    odds, fit = share / (1 - share) * np.array([1, 2.9, 3.1, 1 / 2.9, 1 / 3.1]), SimpleNamespace()
    after = np.array([0.0, 1.0, *odds / (1 + odds)])
    fit.other_draws = {"basis_density": np.full((2, 5, 1), share)}
    fit._found = SimpleNamespace(concerned=after[:, None])
    expected = [True, True, False, False, True, False, share < 0.5]
    assert are_told(fit)[:, 0].tolist() == expected


def test_a_feature_of_few_draws_has_no_intervals_and_no_members_in_its_card(fitted):
    again, line = dataclasses.replace(fitted), fitted.summary().loc[1]
    line = pd.concat([line, fitted.tiles(all=True).loc[1]])
    line = line[~line.index.duplicated()]
    there = fitted.found.there.copy()
    assert there[0].size > 2 * FEWEST
    for number in (FEWEST, FEWEST - 1):
        there[..., 0].flat = np.arange(there[..., 0].size) < number
        again.__dict__["_found"] = fitted.found._replace(there=there)
        table = again.tiles(members=True).query("factor == 1 and side == 'column' and member")
        few = number < FEWEST
        assert (table[["odds_ratio", "lower", "upper"]].isna() == few).all(axis=None)
        card = feature_card(again, line, 0)
        assert few == (not card.first) == (not card.names)
        said = f"in {number} of {there[..., 0].size} draws: too few to tell its rows and columns"
        assert (card.size == said) == few


def test_new_rows_have_the_memberships_of_enumeration(planted, fitted):
    """Of one draw, whose rows are summed over all states on a fine grid of their effects.

    It has a further feature, which is absent.
    """
    further = {"usage_density": 0.7, "basis_density": 0.5, "factor_precision": 1.0, "presence": 0.0}

    def repeated(draws, value=None):
        end = [(0, 0)] * (draws.ndim - 1) + [(0, value is not None)]
        one = np.pad(draws[:1, -1:], end, constant_values=value or 0.0)
        return np.repeat(one, 400, 1)

    few = dataclasses.replace(
        fitted,
        usage_draws=repeated(fitted.usage_draws, 0.0),
        basis_draws=repeated(fitted.basis_draws, 0.0),
        other_draws={n: repeated(v, further.get(n)) for n, v in fitted.other_draws.items()},
    )
    values = np.array(planted[0][:5])
    found, d = few.transform(values), few.draws()
    np.testing.assert_allclose(few.transform(values, kind="sd"), np.sqrt(found * (1 - found)))
    basis, level = d["basis"][0, 0], d["column_effect"][0, 0]
    scale, chance = d["row_scale"][0, 0], (d["usage_density"] * d["presence"])[0, 0]
    nodes = np.linspace(-5, 5, 201)
    sets = np.array(list(itertools.product([0, 1], repeat=few.rank)))
    psi = (sets @ basis.T)[:, None] + level + scale * nodes[:, None]
    prior = np.where(sets == 1, chance, 1 - chance).prod(1)[:, None] * np.exp(-0.5 * nodes**2)
    for row, own in zip(values, found, strict=True):
        seen = ~np.isnan(row)
        mass = prior * expit(np.where(row == 1, 1, -1) * psi)[..., seen].prod(-1)
        np.testing.assert_allclose(own, sets.T @ (mass.sum(1) / mass.sum()), atol=0.15)
        score = few.score_rows(row[None], num_draws=1)
        assert score[0] == pytest.approx(np.log(mass.sum() / prior.sum()), abs=2e-3)


def test_the_row_without_entries_has_the_densities_for_memberships(fitted):
    share = fitted.other_draws["usage_density"].mean((0, 1))
    np.testing.assert_allclose(fitted.usage[5, :2], share[:2], atol=0.12)


def test_exports_say_who_is_a_member(fitted):
    table = fitted.to_frame().query("factor == 'factor 1'").set_index("name")["member"]
    members = fitted.tiles(members=True).query("factor == 1 and member")["name"]
    assert set(table.index[table]) == set(members)
    adata = pytest.importorskip("anndata") and fitted.to_anndata()
    np.testing.assert_array_equal(adata.varm["bmf_basis_binary"], fitted.basis_binary)


def test_draws_have_modes_and_a_mode_is_a_fit(fitted):
    assert abs(fitted.modes.weights.sum() - 1.0) < 1e-9
    one = fitted.restricted(0)
    assert str(one.verdict).startswith("One mode")
    assert one.figures.factors_searches == tuple(one._search_counts.found)


@pytest.mark.long
def test_a_resumed_fit_is_the_unbroken_one_and_starts_where_it_is_told(
    planted, tmp_path, programs_asked
):
    options = QUICK | {"num_samples": 30, "num_warmup": 20}
    start = {"usage": planted[1] * 1.0, "basis": np.ones((COLUMNS, 2))}
    asked = {n: v for n, v in options.items() if n != "progress"}
    problem = ask(planted[0], 2, model="features", init=start, **asked)
    chains = problem.chains()
    run = chains.run(problem)
    position = run.state.inner.position
    np.testing.assert_array_equal(position["usage"], np.stack([start["usage"]] * 2))
    np.testing.assert_array_equal(position["basis"], 1.0)
    run.advance(35)
    Checkpoint(tmp_path, identity(problem, chains)).write(run)
    again = bmfjax.fit(
        planted[0], 2, model="features", init=start, checkpoint=tmp_path, resume=True, **options
    )
    whole = bmfjax.fit(planted[0], 2, model="features", init=start, **options)
    np.testing.assert_array_equal(again.usage_draws, whole.usage_draws)
    np.testing.assert_array_equal(again.basis_draws, whole.basis_draws)
    # A fit of other data of this shape, from reading to the verdict, asks for no program.
    programs_asked()
    bmfjax.fit(planted[0][::-1], 2, model="features", init=start, **(options | {"seed": 9}))
    assert programs_asked() == 0


# ---- what is known -------------------------------------------------------------------------------


@pytest.mark.long
def test_known_columns_and_memberships_stay(planted):
    values, usage, *_ = planted
    known = np.full((ROWS, 2), np.nan)
    known[:60, 0] = usage[:60, 0]
    anchors = pd.DataFrame({"which": [1.0] * 9 + [np.nan] + [0.0] * 14})
    fit = bmfjax.fit(
        values, bmfjax.Features(2, usage=known, weights="positive"), anchors=anchors,
        num_chains=1, num_warmup=20, num_samples=60, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(fit.usage[:60, 0], usage[:60, 0])
    assert np.mean(fit.usage_binary[60:, 0] != usage[60:, 0]) < 0.15
    concerned = np.delete(fit.found.concerned[:, 0], 9)
    np.testing.assert_array_equal(concerned, np.delete(anchors["which"], 9))
    assert (fit.basis_draws >= 0).all() and (fit.basis[:9, 0] > 1.0).all()
    assert fit.basis[:9, 0].std() > 0.1 and fit.factor_names[0] == "which"


def test_what_cannot_be_is_refused(planted):
    values = planted[0]
    with pytest.raises(InputError, match="weights is 'real'; choose from signed, positive"):
        bmfjax.Features(2, weights="real")
    with pytest.raises(InputError, match="give shape and rate"):
        bmfjax.Features(2, slab=3.0)
    with pytest.raises(InputError, match=r"has shape \(3, 2\); give 0, 1 or NaN for each of 120"):
        ask(values, bmfjax.Features(2, usage=np.zeros((3, 2)))).chains()
    second = np.full((ROWS, 2), np.nan)
    second[0, 1] = 1.0
    with pytest.raises(InputError, match="memberships of feature 2 and none of one before it"):
        ask(values, bmfjax.Features(2, usage=second)).chains()
    start = {"usage": np.full((ROWS, 2), 0.5), "basis": np.zeros((COLUMNS, 2))}
    with pytest.raises(InputError, match="values other than 0 and 1; give memberships"):
        ask(values, 2, model="features", init=start)
    anchors = pd.DataFrame({"down": [-2.5] * 9 + [0.0] * 15})
    with pytest.raises(InputError, match="anchors have negative weights"):
        ask(values, bmfjax.Features(2, weights="positive"), anchors=anchors).chains()
    with pytest.raises(InputError, match="rebirths is -1"):
        bmfjax.Gibbs(rebirths=-1)
    with pytest.raises(InputError, match="has no option 'moves'"):
        ask(values, 2, bmfjax.Gibbs(moves=["birth"]), model="features")


# ---- order and sides -----------------------------------------------------------------------------


def test_a_warmup_that_is_given_is_what_searches_and_chains_have_together():
    values = np.eye(12)[:, :6]
    for given in (0, 1, 3, 7, 20, 60, 150, 1_000, 3_000):
        chains = ask(values, bmfjax.Features(2), num_warmup=given).chains()
        search = chains.search.keywords["search"] if chains.search else Search(0, 0, 0, 1.0)
        assert search.steps + chains.num_warmup == given
        # Chains that took over the end of another search forget it.
        assert chains.num_warmup >= min(WARMUP[1], given // 4)
        assert search.num_anneal <= search.sweeps <= given
    anchors = {"first": [1, 1, 0, 0, 0, 0], "second": [0, 0, 0, 1, 1, 0]}  # all are known
    chains = ask(values, bmfjax.Features(2), num_warmup=1_000, anchors=anchors).chains()
    assert chains.search.keywords["search"].rounds == 1 and chains.num_warmup >= 900


def test_more_rows_than_a_device_holds_are_refused_with_what_fits(monkeypatch):
    values = np.random.default_rng(0).random((2000, 1000)) < 0.3
    each, chains, data = 32.0, 4, BinaryMatrix(values)
    assert each == BYTES_AN_ENTRY  # a device has half of what they take, and a tenth for blocks
    memory = int((PROGRAMS + each * chains * 2000 * 1000 / 2) / 0.9)
    for module in ("bmfjax.kernels.numerics.budget", "bmfjax.families.memory"):
        monkeypatch.setattr(f"{module}.device_memory", lambda: memory)
    with pytest.raises(InputError, match=r"memory of a device.*; choose at most about (999|1,000)"):
        ask(data, 2, model="features", num_chains=chains).chains()


def test_features_that_are_turned_and_exchanged_are_matched_again():
    rng = np.random.default_rng(0)
    usage = rng.random((2, 30, 25, 3)) < 0.02
    usage = (usage ^ (rng.random((25, 3)) < 0.4)).astype(float)
    basis = rng.normal(0, 0.1, (2, 30, 12, 3)) + rng.normal(0, 2, (12, 3))
    drawn = {
        "usage": usage, "basis": basis, "column_effect": rng.normal(size=(2, 30, 12)),
        "usage_density": rng.random((2, 30, 3)),
    }  # fmt: skip
    sides = rng.random((2, 30, 3)) < 0.5
    sides[0, 0] = False
    other = drawn | turned(drawn, sides)
    moved = rng.permuted(np.tile(np.arange(3), (2, 30, 1)), axis=-1)
    moved[0, 0] = np.arange(3)
    shown = {n: np.take_along_axis(other[n], moved[:, :, None], -1) for n in ("usage", "basis")}
    order = align_turned(shown["usage"], shown["basis"], starts=[0, 0])
    found = np.take_along_axis(moved, order.permutation, -1)
    np.testing.assert_array_equal(found, np.broadcast_to(np.arange(3), found.shape))
    np.testing.assert_array_equal(order.sign < 0, sides)


def test_a_feature_that_is_turned_leaves_the_log_odds():
    rng = np.random.default_rng(1)
    drawn = {
        "usage": (rng.random((1, 4, 9, 2)) < 0.5) * 1.0, "basis": rng.normal(size=(1, 4, 5, 2)),
        "column_effect": rng.normal(size=(1, 4, 5)), "usage_density": rng.random((1, 4, 2)),
    }  # fmt: skip
    other = turned(drawn, np.array([[[True, False]] * 4]))

    def log_odds(d):
        return np.einsum("cdik,cdjk->cdij", d["usage"], d["basis"]) + d["column_effect"][:, :, None]

    np.testing.assert_allclose(log_odds(other), log_odds(drawn), rtol=1e-12)
    assert np.abs(other["basis"] - drawn["basis"]).max() > 0.5


def test_a_known_feature_keeps_its_place_and_its_side():
    """The second is larger, and the first takes away more than it adds; it stays all the same."""
    usage, basis = np.array([[1, 0], [0, 1], [1, 1], [0, 0]]), np.array([[-2.0, 3.0], [0.0, 3.0]])
    known = np.full(usage.shape, np.nan)
    known[:, 0] = usage[:, 0]
    problem = ask(np.eye(4)[:, :2], bmfjax.Features(2, usage=known))
    sites = {
        "usage": np.tile(usage, (1, 3, 1, 1)), "basis": np.tile(basis, (1, 3, 1, 1)),
        "usage_density": np.full((1, 3, 2), 0.5), "column_effect": np.zeros((1, 3, 2)),
    }  # fmt: skip
    seen = SimpleNamespace(sites=sites, best=(0, 0), at_draws=lambda name: np.zeros((1, 3)))
    drawn = in_order(problem, seen)
    np.testing.assert_array_equal(drawn["usage"], sites["usage"])
    np.testing.assert_array_equal(drawn["basis"], sites["basis"])
    free = in_order(ask(np.eye(4)[:, :2], bmfjax.Features(2)), seen)
    np.testing.assert_array_equal(free["usage"][..., 1], 1 - sites["usage"][..., 0])


def test_a_feature_that_another_takes_the_place_of_is_not_there():
    rng = np.random.default_rng(2)
    usage = np.repeat((rng.random((2, 1, 40, 1)) < 0.5) * 1.0, 20, 1)
    usage[1] = usage[0]
    basis = rng.normal(1.0, 0.1, (2, 20, 7, 1))
    usage[1, 15:, :, 0] = rng.random((5, 40)) < 0.5
    basis[0, :4, 2:] = 0.0
    basis[:, :, 6] = 0.0
    found = features_of(usage, basis)
    assert found.there.mean(1)[:, 0] == pytest.approx([1.0, 0.75])
    # Of the draws that have it.
    assert found.concerned[5, 0] == pytest.approx(31 / 35)
    own = np.concatenate([basis[0, 4:, 5, 0], basis[1, :15, 5, 0]])
    ends = np.quantile(own, [0.05, 0.95])
    np.testing.assert_allclose(found.log_odds[:, 5, 0], [own.mean(), *ends])
    assert np.isnan(found.log_odds[:, 6]).all() and not found.concerned[6, 0]
    assert set(np.unique(found.members)) == {0.0, 1.0}
    assert not found.too_few.any()


def test_time_that_is_up_before_a_step_leaves_the_shares_of_columns(planted, monkeypatch):
    monkeypatch.setattr(driver.ChainRun, "is_ready", lambda run, *_: False)
    values = planted[0]
    fit = bmfjax.fit(named(values), 2, max_time=60, progress=False)
    assert "The time was up before the sampler drew" in str(fit.verdict)
    assert fit.verdict.status == "unreliable" and fit.figures.timed_out
    ones, seen = np.nansum(values, 0), np.sum(~np.isnan(values), 0)
    text = page.render(fit)  # without a warning: it has the verdict
    assert not fit.usage_draws.any() and not fit.basis_draws.any()
    with pytest.warns(UserWarning, match="before the sampler drew") as warned:
        told = fit.probability()
    assert warned[0].filename == __file__
    np.testing.assert_allclose(told, np.tile((ones + 0.5) / (seen + 1), (ROWS, 1)), rtol=1e-5)
    bare = re.sub("<style.*?</style>|<[^>]*>", "", text, flags=re.DOTALL)
    said = " ".join(bare.split())
    for word in (
        "Do the chains agree",
        "Traces",
        "Explained",
        "alibrated",
        "% to ",
        "warm-up steps",
        "posterior itself",
        "R-hat",
        "Effective draws",
        "Factors found",
    ):
        assert word not in said.partition("Words")[0]
    assert "in 2 factors, 2 of them empty: starts, no draws" in said
    assert "this page shows where chains began" in said and "drawsnone: starts" in said
    assert "Columns" not in said.partition("The factors")[2].partition("Empty: ")[2]
    assert cli._sampled(fit) == "4 starts, and no draws"
    # Copies of starts have no figures of convergence, in no table.
    attrs = fit.summary().attrs
    assert not [n for n in attrs if n.startswith(("rhat", "ess_", "chains_apart", "mc_error"))]
    table = bmfjax.compare([fit, fit])
    assert table.printed.loc[["rhat", "doubtful"]].to_numpy().tolist() == [["-", "-"]] * 2
    # What is known stays.
    ones = {name: np.ones((1, 3, 2)) for name in ("usage", "basis")}
    state = AnnealedState(State(ones | {"presence": np.ones((1, 2))}), 0)
    (left, _), _ = _without_unknown((state, {}), 1)
    assert all((x == [1, 0]).all() for x in left.position.values())
