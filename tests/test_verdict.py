"""How far apart the draws of a fit are, what to try next, and the sentence that says so."""

import dataclasses
import itertools
import json
import re
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bmfjax
from bmfjax.cli import build_parser
from bmfjax.data import BinaryMatrix
from bmfjax.diagnostics.align import agreements
from bmfjax.families import FAMILIES
from bmfjax.families.base import what_was_tried
from bmfjax.posterior.features import features_of
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.searches import SearchCounts
from bmfjax.posterior.trust import presence_in, steady_in
from bmfjax.specs import MODELS, Gibbs
from bmfjax.verdict import (
    MAX_LINES,
    RHAT_USABLE,
    TIGHT,
    Figures,
    Mixing,
    Tried,
    Verdict,
    agrees,
    factors_differ,
    farther_spread,
    fewest_draws,
    mixing,
    mixing_of_entries,
    of_chains,
    of_ratings,
    of_starts,
    spread,
    status_of,
    suffices,
    with_fit,
    with_interruption,
    with_short_warmup,
)
from bmfjax.verdict.remedies import GO_ON, RESUME, remedy_of_chains, remedy_of_usable
from tests import small_fits
from tests.test_cells import fit_of

ONE, OTHER = np.eye(6)[:, :3], np.eye(6)[:, [0, 1, 5]]


def chains(*bases, draws=40):
    return np.stack([np.stack([b] * draws) for b in bases])


def test_the_same_factors_in_any_order_are_one_solution():
    found = spread(chains(ONE, ONE[:, ::-1], 2.5 * ONE))
    assert found.largest == pytest.approx(0.0, abs=1e-5)


def test_chains_in_two_modes_are_two_solutions():
    found = spread(chains(ONE, ONE, OTHER, OTHER))
    assert found.largest == pytest.approx(90.0)
    assert found.mean == pytest.approx(45.0)
    assert found.persistence(2) > 0.95
    assert len(found.radii) == len(found.covering) == 100


def test_few_draws_of_a_few_lines_speak_for_all():
    """All chains are heard, and both ends of them; of long columns some lines."""
    draws = np.repeat(chains(ONE, draws=1000), 400, axis=2)
    draws[0, -1] = np.repeat(OTHER, 400, axis=0)
    assert draws.shape[2] > MAX_LINES
    assert spread(draws).largest == pytest.approx(90.0, abs=1e-3)
    assert spread(draws, num_draws=1).largest == 0.0


def test_packed_draws_are_the_same():
    bits = np.random.default_rng(0).random((2, 30, 40, 3)) < 0.4
    assert spread(PackedDraws.pack(bits)).largest == spread(bits).largest


def test_of_two_factor_matrices_the_one_whose_draws_are_farther_apart_speaks():
    same = np.ones((2, 1, 3, 1))
    other = np.array([[[[1.0], [0.0]]], [[[0.0], [1.0]]]])
    assert farther_spread(other, same).largest == farther_spread(same, other).largest == 90.0


# ---- what to try next ----------------------------------------------------------------------------

APART = Figures(num_chains=4, converged=False, factors_agreeing=0.5, rhat=2.3, ess_product=9.0)
ALONE = dataclasses.replace(APART, num_chains=1)
SURE = dataclasses.replace(APART, chains_apart=0.01, mc_error=0.04)
SLOW = Figures(num_chains=4, converged=False, factors_agreeing=1.0, rhat=1.04, ess_product=60.0)
FLAT = np.random.default_rng(0).normal(size=(4, 100))
#: Chains that come together, and chains that stay apart.
FALLING = FLAT + np.array([0, 3, 6, 9])[:, None] * np.exp(-np.arange(100) / 15)
STUCK = FLAT + np.array([0, 3, 6, 9])[:, None] * np.linspace(0.5, 1, 100)


@pytest.mark.parametrize(
    ("figures", "tried", "log_joint", "words"),
    [
        (APART, Tried(ladder=False), STUCK, "--option inverse_temperatures=[1,0.6,0.36,0.2]"),
        (APART, Tried(ladder=True, other_sampler="smc"), STUCK, "--sampler smc"),
        (APART, Tried(ladder=None, other_sampler="gibbs"), STUCK, "--sampler gibbs"),
        (APART, Tried(ladder=True, rank=8), STUCK, "rank=7 (--rank 7)"),
        (APART, Tried(rank=4, more=8), STUCK, "a larger rank, rank=8 (--rank 8), or use one mode"),
        (APART, Tried(large=True, rank=4, more=8), STUCK, ", a larger rank, rank=8 (--rank 8), or"),
        (APART, Tried(ladder=True, rank=8, stopped=True), FALLING, "--resume --max-time"),
        (APART, Tried(ladder=True, rank=8, stopped=True), STUCK, "rank=7 (--rank 7)"),
        (APART, Tried(ladder=True, rank=1, draws=300), STUCK, "--samples 3000"),
        (APART, Tried(ladder=True, rank=1, draws=300, stopped=True), STUCK, "--resume --max-time"),
        (APART, Tried(apart=True, draws=300, stopped=True), STUCK, "more chains, num_chains="),
        (APART, Tried(apart=True, draws=300, stopped=True), FALLING, "--resume --max-time"),
        (SLOW, Tried(ladder=False, draws=300), FLAT, "num_samples=2000 (--samples 2000)"),
        (SLOW, Tried(ladder=False, stopped=True), STUCK, "--resume --max-time"),
        (APART, Tried(ladder=False, rank=8, draws=100), STUCK, "(--samples auto), so that chains"),
        (APART, Tried(ladder=True, rank=8, draws=100, stopped=True), STUCK, "--resume --max-time"),
        (APART, Tried(ladder=True, rank=8, draws=250), STUCK, "rank=7 (--rank 7)"),
        (
            APART,
            Tried(ladder=False, large=True, rank=8),
            STUCK,
            "take more draws, num_samples=1000 (--samples 1000), a smaller rank, rank=7 (--rank "
            "7), or use the factors that all modes share (fit.modes.common)",
        ),
        (
            APART,
            Tried(ladder=False, large=True, stopped=True),
            STUCK,
            "more time, max_time=SECONDS (--max-time SECONDS), or use the factors that all",
        ),
        (APART, Tried(ladder=False, large=True, stopped=True), FALLING, "--resume --max-time"),
        (SLOW, Tried(ladder=False, large=True, draws=300), FLAT, "--samples 2000"),
        (SURE, Tried(ladder=False, draws=100, ended=True), STUCK, "leave until out (--until all)"),
        (APART, Tried(ladder=True, rank=8, ended=True), STUCK, "rank=7 (--rank 7)"),
        (APART, Tried(particles=512), STUCK, "--option num_particles=2048"),
        (dataclasses.replace(SLOW, converged=True), Tried(), FLAT, ""),
    ],
)
def test_the_remedy_depends_on_what_is_wrong_and_what_was_tried(figures, tried, log_joint, words):
    remedy = remedy_of_chains(figures, log_joint, tried)
    assert words in remedy if words else remedy == ""
    assert "--chains 4" in remedy_of_chains(ALONE, log_joint[:1], Tried())


def test_temperatures_are_advised_for_small_boolean_matrices_alone():
    for model, columns, large in (
        ("ormachine", 1024, False), ("ormachine", 1025, True), ("nmf", 1025, False),
    ):  # fmt: skip
        family, data = FAMILIES[model], BinaryMatrix(np.eye(128, columns))
        request = types.SimpleNamespace(
            family=family, data=data, rank=8, kernel=next(iter(family.samplers.values())),
            sampler=Gibbs(), has=MODELS[model].samplers[Gibbs].options, finds_rank=False,
            chain_numbers=None, is_auto=True, until="predictions",
        )  # fmt: skip
        run = types.SimpleNamespace(num_draws=500, is_complete=True, is_enough=True)
        tried = what_was_tried(request, types.SimpleNamespace(trace=()), run)
        assert tried.ended and remedy_of_chains(SURE, STUCK, tried).startswith("leave until out")
        run.is_enough = False  # all steps that there are were taken
        assert not what_was_tried(request, types.SimpleNamespace(trace=()), run).ended
        request.until = "all"
        tried = what_was_tried(request, types.SimpleNamespace(trace=()), run)
        assert tried.large is large and tried.ladder is False
        assert (family.ladder[0] in remedy_of_chains(APART, STUCK, tried)) is not large


@pytest.mark.parametrize(
    ("model", "rank", "finds_rank", "more"),
    [
        ("features", 6, False, 12), ("features", 6, True, 0), ("features", 20, False, 30),
        ("features", 30, False, 0), ("ormachine", 6, False, 0),
    ],
)  # fmt: skip
def test_a_larger_rank_is_advised_where_factors_may_be_absent(model, rank, finds_rank, more):
    family = FAMILIES[model]
    problem = types.SimpleNamespace(
        family=family, data=BinaryMatrix(np.eye(40, 30)), rank=rank, sampler=Gibbs(), has=(),
        finds_rank=finds_rank, chain_numbers=None, is_auto=True, until="all",
        kernel=next(iter(family.samplers.values())),
    )  # fmt: skip
    run = types.SimpleNamespace(num_draws=500, is_complete=True, is_enough=False)
    tried = what_was_tried(problem, types.SimpleNamespace(trace=()), run)
    assert tried.more == more


def test_remedies_name_options_that_there_are():
    known = build_parser().parse_args(["fit"])
    for model in ("ormachine", "relaxed", "nmf"):
        assert FAMILIES[model].ladder[0] in MODELS[model].samplers[Gibbs].options
    for figures, tried in ((APART, Tried(ladder=False)), (APART, Tried(ladder=True, rank=2)),
                           (SLOW, Tried()), (SLOW, Tried(stopped=True))):  # fmt: skip
        for flag in re.findall(r"--([a-z-]+)", remedy_of_chains(figures, STUCK, tried)):
            assert hasattr(known, flag.replace("-", "_"))


def test_the_sentence_says_what_to_do_why_and_what_next():
    entries, trace = Mixing(np.full(5, 1.8), np.full(5, 20.0), 0.1), {"log_joint": STUCK}
    agreeing = np.array([1.0, 1.0, 0.3])
    found = of_chains(entries, 4, 3, agreeing, trace, exact=True, tried=Tried(ladder=False))
    assert str(found) == (
        "Usable in part: predictions do not hold yet (R-hat 1.80); factors 1 and 2 hold, "
        "factor 3 does not; their number was given. The modes are in fit.modes and in the "
        f"report. Next, {found.remedy}."
    )
    alone = of_chains(entries, 1, 3, agreeing, {"log_joint": FLAT[:1]}, exact=True)
    assert str(alone).endswith("Next, fit with num_chains=4 (--chains 4).")
    few = of_ratings(entries, 4, agreeing, trace, tried=Tried(draws=1000))
    assert str(few).endswith("Next, take more draws, num_samples=10000 (--samples 10000).")
    good = Mixing(np.ones(5), np.full(5, 900.0), 0.1)
    found = of_chains(good, 4, 3, np.ones(3), {"log_joint": FLAT}, exact=True)
    assert found.figures.converged and found.remedy == "" and "Next" not in str(found)


def test_where_nothing_holds_there_is_a_next_step():
    """Also where no draws, no chains and no other number of factors are known to help."""
    figures = Figures(
        num_chains=4, exact=True, factors_agreeing=1.0, chains_apart=0.0, mc_error=0.01,
        calibration_error=0.4, calibration_by_chance=0.1, explained=0.1, explained_error=0.01,
        factors_holding=(), factors_differing=(), factors_in_few_draws=("1", "2"),
    )  # fmt: skip
    found = Verdict(figures)
    assert found.status == "unreliable"
    assert str(found).endswith(
        "Next, try another model (model, --model), or give more data: these say too little of it."
    )
    other = Verdict(figures, remedies={"model": "fit another"})
    assert str(other).endswith("Next, fit another.")


def test_chains_that_are_stuck_with_the_same_factors_are_said_to_be():
    stuck = Mixing(np.full(9, np.inf), np.full(9, 900.0))
    found = of_chains(stuck, 4, 3, np.ones(3), {"log_joint": FLAT}, exact=True)
    assert not found.figures.converged
    assert found.predictions.said == "predictions do not hold yet (chains are stuck)"


def test_chains_that_shared_their_starts_are_said_to_have():
    good, said = Mixing(np.ones(9), np.full(9, 900.0)), "shared the factors"
    for number, shared in ((4, True), (4, False), (1, True)):
        trace = {"log_joint": FLAT[:number]}
        found = of_chains(good, number, 3, np.ones(3), trace, exact=True, shared_starts=shared)
        assert found.figures.shared_starts == (said in str(found)) == (shared and number > 1)


#: Four chains that mix at once, and four that agree but wander: few effective draws, R-hat near 1.
QUICK = np.random.default_rng(1).normal(size=(4, 400))
SLOW_TRACE = np.sin(np.arange(400) * 2 * np.pi / 100)[None] * np.ones((4, 1))
GOOD = Mixing(np.ones(9), np.full(9, 900.0))


def judged(family, **trace):
    """Judge good entries by a family's rule, with this trace beside them."""
    trace = {"log_joint": QUICK} | trace
    if family == "boolean":
        return of_chains(GOOD, 4, 3, np.ones(2), trace, exact=True)
    return of_ratings(GOOD, 4, np.ones(2), trace, joint_counts=family == "logistic")


@pytest.mark.parametrize("family", ["boolean", "ratings", "logistic"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("log_joint", "the log joint density"),
        ("precision", "the noise precision"),
        ("dispersion", "the dispersion"),
        ("rank", "the number of factors"),
    ],
)
def test_effective_draws_of_all_that_counts_are_asked_for(family, name, words):
    """The log joint of learned priors does not count: no prediction depends on all of it.

    That of factors which all chains found may be slow, and so may be their number where each chain
    has the range that is said, though both keep a run from its end.
    """
    if name == "rank" or (family, name) == ("boolean", "log_joint"):
        found = judged(family, **{name: SLOW_TRACE})
        assert found.figures.converged and found.status == "usable"
        assert not suffices(found.figures) and fewest_draws(found.figures)[0] == words
        return
    counts = family == "boolean" or name == "precision"
    counts = counts or (family, name) == ("logistic", "log_joint")
    found = judged(family, **{name: SLOW_TRACE})
    assert found.figures.rhat <= 1.01
    assert found.figures.converged is suffices(found.figures) is not counts
    if counts:
        what, number = fewest_draws(found.figures)
        assert what == words and number < 200
        assert re.search(rf"{int(number)} of \d+ effective draws", str(found))
        assert found.remedy.startswith("take more draws")


@given(
    rhat=st.floats(0.99, 1.1),
    draws=st.floats(150.0, 260.0),
    agreeing=st.lists(st.sampled_from([0.2, 0.79, 0.8, 1.0]), min_size=2, max_size=2),
    empty=st.sampled_from([None, [False, False], [True, False], [True, True]]),
    chains=st.sampled_from([1, 2, 4]),
    exact=st.booleans(),
)
def test_draws_that_suffice_have_converged(rhat, draws, agreeing, empty, chains, exact):
    """A run that ends by itself is one to rely on; one chain compares nothing."""
    entries = Mixing(np.full(4, rhat), np.full(4, draws))
    trace, agreeing = {"log_joint": QUICK[:chains]}, np.array(agreeing)
    alone = np.full(2, np.nan)
    options = {"exact": exact, "empty": None if empty is None else np.array(empty)}
    boolean = of_chains(entries, chains, 3, agreeing if chains > 1 else alone, trace, **options)
    ratings = of_ratings(entries, chains, agreeing if chains > 1 else alone, trace, exact=exact)
    for found in (boolean, ratings):
        bounds = TIGHT if exact else TIGHT._replace(rhat=RHAT_USABLE)
        assert suffices(found.figures) is agrees(found.figures, bounds)
        assert found.figures.converged is (chains > 1 and agrees(found.figures))
        assert found.figures.converged or chains == 1 or not suffices(found.figures)
        assert found.status == status_of(found.figures)
        whole = found.status in ("reliable", "usable")
        assert whole is found.figures.converged
        assert all(part.holds for part in found.parts) is whole or found is ratings
    # The factors of ratings say nothing against predictions.
    full = np.ones(2, bool) if empty is None else ~np.array(empty)
    apart = chains > 1 and bool((agreeing < 0.8)[full].any())
    assert factors_differ(boolean.figures) is apart and not factors_differ(ratings.figures)
    assert not (apart and suffices(boolean.figures))


@pytest.mark.parametrize("family", ["boolean", "ratings", "logistic"])
def test_what_never_moves_needs_no_effective_draws(family):
    """A run whose log joint, rates and entries are the same in every draw ends."""
    still = np.zeros((4, 400))
    found = judged(family, log_joint=still, precision=still, rank=still)
    assert (
        np.isnan(found.figures.ess_log_joint)
        and found.figures.converged
        and suffices(found.figures)
    )
    apart = still + np.arange(4)[:, None]
    for name in ("precision", "rank"):
        found = judged(family, **{name: apart})
        assert (
            found.figures.rhat == np.inf
            and not found.figures.converged
            and not suffices(found.figures)
        )


def test_entries_that_never_move_do_not_hide_those_that_do():
    half = Mixing(np.array([np.nan, 1.0]), np.array([np.nan, 20.0]))
    for judge, errors in ((of_chains, (3,)), (of_ratings, ())):
        found = judge(half, 4, *errors, np.ones(2), {"log_joint": QUICK}, exact=True)
        assert (
            found.figures.ess_product == 20.0
            and not found.figures.converged
            and not suffices(found.figures)
        )


def test_a_run_that_did_not_draw_is_of_starts_and_no_mode_or_mixture_is():
    cut = Verdict(Figures(num_chains=4, num_warmup=0, planned_warmup=300))
    assert cut.is_of_starts and not dataclasses.replace(cut, scope="Mode 1 of 2").is_of_starts
    assert not any(
        cut.changed(**f).is_of_starts for f in ({"num_warmup": 2}, {"planned_warmup": None})
    )


def test_factors_that_are_empty_when_rounded_are_not_found():
    trace = {"log_joint": QUICK}
    for agreeing, empty, words in (
        ([1.0, 1.0, 1.0], [0, 0, 1], "factors 1 and 2 hold (one more is empty)"),
        ([1.0, 0.3, 1.0], [0, 0, 1], "factor 1 holds, factor 2 does not (one more is empty)"),
        ([1.0, 1.0, 0.3], [0, 0, 1], "factors 1 and 2 hold (one more is empty)"),
        ([0.3, 0.3, 0.3], [1, 1, 1], "no factor is there"),
        ([1.0, 1.0, 1.0], [1, 1, 1], "no factor is there"),
        ([1.0, 1.0, 1.0], [1, 1, 0], "factor 3 holds (2 more are empty)"),
        ([1.0, 1.0, 1.0], [0, 0, 0], "factors 1 to 3 hold"),
    ):  # fmt: skip
        judged = of_chains(GOOD, 4, 3, np.array(agreeing), trace, exact=True, empty=np.array(empty))
        assert judged.factors.said == words
        full = [a for a, e in zip(agreeing, empty, strict=True) if not e]
        share = np.mean(np.array(full) == 1.0) if full else 1.0
        assert judged.figures.factors_agreeing == share
        assert judged.figures.converged is suffices(judged.figures) is bool(share == 1.0)
        assert judged.figures.factors_empty == sum(empty)
        assert judged.figures.factors_found == sum(a == 1.0 for a in full)
    many = of_chains(GOOD, 4, 3, np.eye(2, 9), trace, exact=True).factors
    assert many.said == "factors 1 and 2 hold, 7 others do not (factor 2 not in all chains)"
    alone = of_chains(GOOD, 1, 3, np.full(2, np.nan), {"log_joint": QUICK[:1]}, exact=True,
                      empty=np.array([0, 1]))  # fmt: skip
    assert alone.figures.factors_empty == 1 and alone.figures.factors_found is None


def test_a_factor_that_one_of_four_chains_lacks_holds_and_the_run_goes_on():
    """The mean of all chains, which is shown, is that factor, whatever the fourth has in its place.

    Chains that differ have log joint densities of their own; that is no further reason.
    """
    usage, basis = (np.repeat(np.eye(n, 3)[None], 4, 0) for n in (6, 5))
    usage[3, :, 2], basis[3, :, 2] = np.eye(6)[5], np.eye(5)[4]
    apart = {"log_joint": STUCK}

    def said(usage, basis, trace):
        return of_chains(GOOD, len(usage), 3, agreements(usage, basis), trace, exact=True)

    found = said(usage, basis, apart)
    assert found.factors.said == "factors 1 to 3 hold (factor 3 not in all chains)"
    assert (found.factors.of_most, found.factors.differing) == (("3",), ())
    assert found.status == "usable" and found.figures.chains_differ
    assert factors_differ(found.figures) and not suffices(found.figures)
    whole = found.figures.known() | {"factors_of_most": ["3"]}
    assert Verdict.of_stored({"scalars": whole}) == Verdict(found.figures)
    two = np.array([0, 1, 3, 3])  # of which half lack it
    assert said(usage[two], basis[two], apart).factors.differing == ("3",)
    pair = said(usage[2:], basis[2:], {"log_joint": QUICK[:2]})
    assert pair.factors.differing == ("3",)


@pytest.mark.parametrize(
    ("found_by", "status"), [(None, "reliable"), (2, "reliable"), (1, "in part")]
)
def test_chains_that_took_over_what_one_had_found_do_not_confirm_it(found_by, status):
    """Four chains agree where one has found a mode; another run finds it less often.

    Its predictions are held to entries left out, as others are; factors are compared with none.
    """
    trace = {"log_joint": QUICK}
    judged = of_chains(
        GOOD, 4, 3, np.ones(2), trace, exact=True, found_by=found_by,
        shared_starts=found_by == 1, starts=found_by or 0,
    )  # fmt: skip
    alone = found_by == 1
    assert judged.status == status and judged.figures.converged is not alone
    assert judged.predictions.holds and judged.factors.holds is not alone
    assert ("num_chains=8" in judged.remedy) == alone and bool(judged.factors.holding) is not alone
    told = judged.changed(chains_apart=0.0, mc_error=0.02, explained=0.6)
    said = (
        "Usable in part: predictions hold (to within 0.02; 60 % explained); "
        "factors not compared: one chain found them for all; their number was given."
    )
    assert (told.sentence == said) == alone
    number = judged.changed(rank=2, rank_probability=0.9).number
    assert number.holds is not alone and ("not compared" in number.said) == alone
    for wrong, why in (
        ({"chains_apart": 0.5}, "chains differ by 0.50"),
        ({"mc_error": 0.2}, "to within 0.20 only"),
        ({"rhat_precision": 1.06}, "R-hat 1.06 of the noise"),
        ({"calibration_error": 0.3, "calibration_by_chance": 0.02}, "probabilities off by 0.30"),
        ({"coverage_error": 0.06} | NARROW, "90 % intervals hold 79 % where rows and columns"),
    ):
        doubted = judged.changed(**{"chains_apart": 0.01, "mc_error": 0.02} | wrong)
        assert why in doubted.predictions.said and not doubted.predictions.holds
        assert doubted.status == ("unreliable" if alone else "in part")


def searched(*found, number=4, ranks=(2, 2, 2, 2), own=False):
    return SearchCounts(number, np.array(found), np.array(ranks), np.full(number, own))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((2, 4), "factors 1 and 2 hold"),
        ((4, 1), "factor 1 holds, factor 2 was found by 1 of 4 searches"),
        ((1, 1), "factors 1 and 2 were found by 1 of 4 searches"),
        ((0, 1), "factors 1 and 2 were found by 0 or 1 of 4 searches"),
    ],
)
def test_factors_hold_that_other_searches_found_by_themselves(found, said):
    """Chains agree on all; the one chain that others took over speaks of what searches found."""
    trace = {"log_joint": QUICK}
    start = {"found_by": 1, "shared_starts": True, "starts": 1}
    judged = of_chains(
        GOOD, 4, 3, np.ones(2), trace, exact=True, searches=searched(*found), **start
    )
    judged = judged.changed(chains_apart=0.0, mc_error=0.02)
    holds = min(found) >= 2
    assert judged.factors.said == said and judged.factors.holds is holds
    assert judged.status == ("usable" if holds else "in part")
    assert judged.factors.holding == tuple(str(k + 1) for k in range(2) if found[k] >= 2)
    assert judged.factors.rarely_found == tuple(str(k + 1) for k in range(2) if found[k] < 2)
    assert judged.figures.factors_searches == found
    assert judged.predictions.holds
    assert "All chains began where one search ended" in str(judged)
    # More draws do not change it, and more chains do.
    assert judged.figures.converged and suffices(judged.figures)
    assert suffices(judged.figures, "usable") and ("num_chains=8" in judged.remedy) is not holds
    assert len(judged.sentence.split()) <= 42
    again = Verdict.of_stored({"scalars": judged.figures.known(), "judged": judged.stored()})
    assert again == judged and again.factors.rarely_found == judged.factors.rarely_found
    # An earlier version had other names, and one remedy for all.
    names = {
        "factors_rarely_found": "factors_alone",
        "factors_rarely_found_by": "factors_alone_found",
    }
    earlier = {names.get(n, n): v for n, v in judged.figures.known().items()}
    more = {
        "chains": judged.remedies["searches"] * (not holds),
        "usable": judged.remedies["usable"],
    }
    more = judged.stored() | {"remedies": more}
    assert Verdict.of_stored({"scalars": earlier, "judged": more}) == judged


def test_searches_that_ended_far_below_the_only_best_one_are_not_asked():
    """All chains began at its end: each has what that one alone found."""
    rank = np.random.default_rng(2).choice([3, 4], p=[0.2, 0.8], size=(4, 400))
    start = {"found_by": 1, "shared_starts": True, "starts": 1}
    trace = {"log_joint": QUICK, "rank": rank}
    for own, holds in (((True, False, False, False), True), ((False,) * 4, False)):
        counts = searched(4, 1, ranks=(4, 9, 9, 9))._replace(own=np.array(own))
        assert counts.with_rank(rank) == 1
        judged = of_chains(
            GOOD, 4, 3, np.ones(2), trace, exact=True, searches=counts, **start
        )  # fmt: skip
        assert judged.factors.holding == (("1", "2") if holds else ("1",))
        # Both parts ask as many searches.
        assert judged.figures.factors_searches == (4, 1) and judged.number.holds is holds
        assert judged.status == ("usable" if holds else "in part")
        # What one search found others may miss: the sentence says so, and what helps.
        assert judged.factors.said.endswith("hold, from one start") is holds
        assert judged.figures.searches_needed == (1 if holds else 2)
        assert "ask more chains, num_chains=8" in judged.factors.remedy
        again = {"scalars": judged.figures.known(), "judged": judged.stored()}
        assert Verdict.of_stored(json.loads(json.dumps(again))) == judged
        lost = searched(4, 0)._replace(own=np.array(own))
        judged = of_chains(GOOD, 4, 3, np.ones(2), trace, exact=True, searches=lost, **start)
        assert judged.factors.rarely_found == ("2",)


def planted_draws(shares, *, boolean: bool, draws=40):
    """Return draws (chain, draw, lines, 3): a factor in all of them, one in some, and an empty one.

    Each chain has the second one in this share of its draws; the third has members in no draw.
    """
    rng = np.random.default_rng(4)
    usage, basis = (np.zeros((len(shares), draws, n, 3), np.float32) for n in (30, 20))
    usage[..., :15, 0], basis[..., :10, 0] = 1, 1 if boolean else 2.5
    for c, share in enumerate(shares):
        has = rng.permutation(draws) < share * draws
        usage[c, has, 15:, 1], basis[c, has, 10:, 1] = 1, 1 if boolean else -2.0
    return usage, basis


@pytest.mark.parametrize("boolean", [False, True], ids=["features", "tiles"])
@pytest.mark.parametrize(
    ("shares", "holds"),
    [((0.4,) * 4, False), ((0.6, 0.6, 0.4, 0.4), False), ((0.6, 0.6, 0.6, 0.4), True)],
)
def test_a_factor_that_few_draws_have_does_not_hold(shares, holds, boolean):
    """Its means agree in all chains, and half of the searches or more found it."""
    usage, basis = planted_draws(shares, boolean=boolean)
    alike = agreements(usage.mean(1), basis.mean(1))
    assert (alike[:, :2] > 0.99).all()
    if boolean:
        _, there = presence_in((usage, basis), *(f.max((0, 1)) > 0 for f in (usage, basis)))
        present = there.of_chains
    else:
        present = features_of(usage, basis).there.mean(1)
    np.testing.assert_allclose(present[:, 1], shares, atol=0.03)
    judged = of_chains(
        GOOD, 4, 3, alike, {"log_joint": QUICK}, exact=True, empty=np.array([False, False, True]),
        present=present, searches=searched(4, 3, 0),
    )  # fmt: skip
    few = () if holds else ("2",)
    assert judged.factors.in_few_draws == few and judged.figures.factors_chains == (
        4,
        sum(share >= 0.5 for share in shares),
        0,
    )
    assert judged.factors.holding == (("1", "2") if holds else ("1",))
    said = "factors 1 and 2 hold" if holds else "factor 1 holds, factor 2 is in too few draws"
    assert judged.factors.said == f"{said} (one more is empty)"
    assert judged.figures.factors_found == 1 + holds
    # The draws tell that they do not tell: more of them change nothing, nor does it end no run.
    assert judged.status == "reliable" and judged.remedy == "" and suffices(judged.figures)
    assert suffices(judged.figures, "usable")
    again = {"scalars": judged.figures.known(), "judged": judged.stored()}
    assert Verdict.of_stored(json.loads(json.dumps(again))) == judged


def test_a_run_does_not_wait_for_factors_in_few_draws():
    """Nor where no other factor is there, and factors do not hold."""
    alike = np.array([[1.0, 0.1], [1.0, 0.9]])
    options = dict(exact=True, searches=searched(4, 1))
    apart = of_chains(GOOD, 4, 3, alike, {"log_joint": QUICK}, **options)
    assert not suffices(apart.figures) and apart.factors.rarely_found == ("2",)
    few = of_chains(
        GOOD,
        4,
        3,
        alike[1:],
        {"log_joint": QUICK},
        present=[[0.9, 0.4]] + [[0.9, 0.2]] * 3,
        **options,
    )
    assert suffices(few.figures) and few.factors.in_few_draws == ("2",)
    assert few.factors.rarely_found == few.factors.of_most == ()
    none = of_chains(
        GOOD,
        4,
        3,
        alike[1:],
        {"log_joint": QUICK},
        present=[[0.6, 0.6]] * 2 + [[0.4, 0.4]] * 2,
        **options,
    )
    assert none.factors.said == "factors 1 and 2 are in too few draws"
    assert none.factors.status == "does not hold" and none.factors.remedy == ""
    assert suffices(none.figures, "usable") and none.status == "in part"
    # Chains that disagree are no posterior of which the draws say anything.
    lost = of_chains(
        GOOD, 4, 3, alike[:1], {"log_joint": QUICK}, present=[[0.9, 0.1]] * 4, exact=True
    )
    assert lost.factors.differing == ("2",) and not lost.factors.in_few_draws
    # Nor are some that have a factor, and some that do not, nor one that a chain always has, while
    # another never does.
    some = [[0.9, 0.9]] * 2 + [[0.9, 0.3]] * 2
    split = of_chains(GOOD, 4, 3, np.ones(2), {"log_joint": QUICK}, present=some, exact=True)
    assert split.factors.differing == ("2",) and not suffices(split.figures)
    # As every fit of Boolean factors does, this says what a chain has in place of the factor: the
    # factor itself. Seldom there in one chain and never in others is no such difference.
    for shares, differs in (
        ((0.95, 0.45, 0.45, 0.0), True), ((0.45, 0.0, 0.0, 0.0), True),
        ((0.49, 0.49, 0.0, 0.0), True), ((0.25, 0.0, 0.0, 0.0), False),
        ((0.95, 0.48, 0.48, 0.48), False), ((0.6, 0.2, 0.2, 0.2), False),
    ):  # fmt: skip
        some = np.array([[0.9, share] for share in shares])
        for steady in (None, some):
            split = of_chains(
                GOOD, 4, 3, np.ones(2), {"log_joint": QUICK}, present=some, steady=steady,
                exact=True,
            )  # fmt: skip
            assert split.factors.differing == ("2",) * differs
            assert split.factors.in_few_draws == ("2",) * (not differs)
            assert suffices(split.figures) is not differs
    # Nor one whose mean is another in one chain.
    few_draws = [[0.9, 0.3]] * 4
    other = of_chains(GOOD, 4, 3, alike, {"log_joint": QUICK}, present=few_draws, exact=True)
    assert other.factors.differing == ("2",) and not other.factors.in_few_draws
    many = few.changed(factors_in_few_draws=tuple("abcdef"))
    assert many.factors.said == "factor 1 holds, 6 others are in too few draws"


@pytest.mark.parametrize("boolean", [False, True], ids=["features", "tiles"])
def test_what_comes_and_goes_in_each_chain_is_no_disagreement(boolean):
    """Four chains with another factor each disagree; the same in few of their draws do not."""
    rng, draws = np.random.default_rng(3), 40
    for share, differs in ((1.0, True), (0.4, False)):
        usage, basis = planted_draws((0.0,) * 4, boolean=boolean)
        for c in range(4):
            rows, columns = 15 + 3 * c + np.arange(3), 10 + 2 * c + np.arange(2)
            has = np.flatnonzero(rng.permutation(draws) < share * draws)
            usage[c, has[:, None], rows, 1] = 1
            basis[c, has[:, None], columns, 1] = 1 if boolean else 2.5
        if boolean:
            tiles = (f.mean((0, 1)) >= 0.2 for f in (usage, basis))
            present = presence_in((usage, basis), *tiles)[1].of_chains
            steady = steady_in((usage, basis))
        else:
            found = features_of(usage, basis)
            present, steady = found.there.mean(1), found.steady
        assert (present[:, 1] == 0).all() and (steady[:, 0] == 1).all()
        assert ((steady[:, 1] >= 0.5) == differs).all()
        alike = agreements(usage.mean(1), basis.mean(1))
        assert (alike[:, 1] < 0.5).all()
        judged = of_chains(
            GOOD, 4, 3, alike, {"log_joint": QUICK}, exact=True,
            empty=np.array([False, False, True]), present=present, steady=steady,
        )  # fmt: skip
        assert judged.factors.differing == ("2",) * differs
        assert judged.factors.in_few_draws == ("2",) * (not differs)
        assert suffices(judged.figures) is not differs


def test_a_factor_that_chains_lose_does_not_come_and_go():
    """All chains have it in their first draws alone, which is alike in whole chains."""
    there = np.zeros((4, 101, 3), bool)
    there[..., 0] = True
    there[:, :45, 1] = True
    there[:, :10, 2] = True
    for mixed in (False, True):
        if mixed:
            there = np.random.default_rng(6).permuted(there, axis=1)
        judged = of_chains(
            GOOD, 4, 3, np.ones(3), {"log_joint": QUICK}, exact=True, present=there,
            steady=there.mean(1),
        )  # fmt: skip
        assert judged.factors.differing == ("2",) * (not mixed)
        assert judged.factors.in_few_draws == (("2", "3") if mixed else ("3",))
        assert judged.figures.factors_chains == (4, 0, 0)


def test_the_range_that_is_said_of_the_number_holds_in_each_chain():
    """It may hold where chains mix too slowly for the number itself, and not where one lacks it."""
    rng = np.random.default_rng(5)
    for shift, holds in ((0.6, True), (3.0, False)):
        rank = np.round(13 + 2 * rng.standard_normal((4, 800))).astype(int)
        rank[0] = np.round(rank[0] + shift)
        judged = of_chains(
            GOOD, 4, 3, np.ones(2), {"log_joint": QUICK, "rank": rank}, exact=True
        )  # fmt: skip
        (low, high), figures = judged.number.between, judged.figures
        inside = ((rank >= low) & (rank <= high)).mean(1)
        assert figures.rank_between_least == inside.min() and inside.mean() >= 0.9
        assert judged.number.holds is holds
        assert holds is bool(inside.min() >= 0.8 and figures.rhat_rank <= 1.2)
        assert (f"between {low} and {high}" if holds else "do") in judged.number.said
        # As it was judged before, and is for the end of a run.
        old = judged.changed(rank_between_least=None)
        assert old.number.holds is bool(figures.rhat_rank <= 1.05)
        assert not suffices(figures)


def test_factors_that_chains_lack_are_told_apart_from_those_that_searches_lack():
    agreeing = np.array([[1.0, 0.3, 1.0, 0.5, 0.9], [1.0, 0.4, 1.0, 0.9, 0.9]])
    empty = np.array([False, False, False, False, True])
    judged = of_chains(
        GOOD, 4, 3, agreeing, {"log_joint": QUICK}, exact=True, empty=empty, found_by=1,
        searches=searched(4, 1, 1, 2, 0),
    )  # fmt: skip
    assert judged.factors.said == (
        "factors 1 and 4 hold, factor 2 does not, factor 3 was found by 1 of 4 searches "
        "(factor 4 not in all chains; one more is empty)"
    )
    assert judged.factors.status == "does not hold" and judged.figures.is_found_by_one
    many = judged.changed(
        factors_rarely_found=tuple("abcdef"), factors_rarely_found_by=(0, 2) * 3,
        factors_differing=(),
    )  # fmt: skip
    assert "6 others were found by 0 to 2 of 4 searches" in many.factors.said


@pytest.mark.parametrize(
    ("stopped", "more"),
    [
        (True, "give it more time, max_time=600; with checkp"),
        (False, "take more draws, num_samples=4000"),
    ],
)
def test_each_part_says_what_mends_it(stopped, more):
    """More chains where searches lack a factor, and draws or time where a number has not mixed."""
    rank = np.repeat(np.random.default_rng(2).choice([3, 4, 5], size=(4, 4)), 100, 1)
    judged = of_chains(
        GOOD, 4, 3, np.ones(2), {"log_joint": QUICK, "rank": rank}, exact=True,
        searches=searched(4, 1), tried=Tried(draws=400, stopped=stopped),
    )  # fmt: skip
    assert judged.factors.remedy == "ask more chains, num_chains=8 (--chains 8)"
    assert judged.number.remedy.startswith(more) and judged.number.status == "not yet"
    assert re.search(r"\(\d+ of 20 effective draws\)|R-hat", judged.number.said)
    assert judged.remedy == f"{judged.factors.remedy}; and {judged.number.remedy}"
    # An earlier version had one remedy for all.
    old = dataclasses.replace(judged, remedies={"chains": "try more"})
    assert old.factors.remedy == old.number.remedy == "try more"


def test_the_number_holds_that_other_searches_ended_with():
    rank = np.random.default_rng(2).choice([3, 4], p=[0.2, 0.8], size=(4, 400))
    for ranks, own, holds in (
        ((4, 3, 1, 9), False, True), ((4, 8, 2, 9), False, False), ((4, 8, 2, 9), True, True),
    ):  # fmt: skip
        judged = of_chains(
            GOOD, 4, 3, np.ones(2), {"log_joint": QUICK, "rank": rank}, exact=True, found_by=1,
            searches=searched(4, 4, ranks=ranks, own=own),
        )  # fmt: skip
        assert judged.number.holds is holds and suffices(judged.figures)
        if not holds:
            assert judged.number.said == "their number, 4, was found by 1 of 4 searches"
            assert judged.status == "in part" and "num_chains=8" in judged.remedy


def test_one_chain_has_found_nothing_for_others():
    trace, alone = {"log_joint": QUICK[:1]}, np.full(2, np.nan)
    found = of_chains(
        GOOD, 1, 3, alone, trace, exact=True, found_by=1, shared_starts=True, starts=1
    )
    assert found.status == "unchecked" and found.figures.found_by is None
    assert found.factors.said == "factors not compared"
    # Nor where a fit has the figure.
    assert found.changed(found_by=1).sentence == found.sentence


@pytest.mark.parametrize("family", ["boolean", "ratings"])
def test_a_good_verdict_says_how_probable_the_number_of_factors_is(family):
    rank = np.random.default_rng(2).choice([3, 4], p=[0.2, 0.8], size=(4, 400))
    found = judged(family, rank=rank)
    assert found.figures.converged and found.number.rank == 4 and found.number.holds
    # Two factors hold, or three, and no draw has fewer.
    assert found.number.said == "draws use between 3 and 4 (1.00)"
    three = "1", "2", "3"
    assert found.changed(factors_holding=three).number.said == found.number.said
    assert found.changed(factors_holding=(*three, "4")).number.said == (
        "their number is between 3 and 4 (1.00)"
    )
    assert (found.number.between, found.number.between_probability) == ((3, 4), 1.0)
    rank[:, 10:] = 4
    assert judged(family, rank=rank).number.said.startswith(
        "their number is 4 with probability 0.9"
    )
    same = str(judged(family, rank=np.full((4, 400), 3)))
    assert "their number is 3 with probability 1.00" in same
    assert judged(family).number.given
    # The default holds as what was given does, and changes no status.
    default = judged(family).changed(rank_default=10)
    assert default.number.default == 10 and not default.number.given and default.number.holds
    assert "their number is 10 by default" in str(default)
    assert default.status == judged(family).status


def test_chains_that_started_from_a_given_solution_are_said_to_have():
    """In every judge; one chain compares nothing."""
    said = "started from the solution that was given, so that"
    for number, was_given in ((4, True), (4, False), (1, True)):
        trace, alone = {"log_joint": QUICK[:number]}, np.full(2, np.nan)
        agreeing = np.ones(2) if number > 1 else alone
        elbo, settled = np.tile(-100.0, (number, 60)), np.ones(number, bool)
        for found in (
            of_chains(GOOD, number, 3, agreeing, trace, exact=True, given_start=was_given),
            of_ratings(GOOD, number, agreeing, trace, given_start=was_given),
            of_starts(
                GOOD, agreeing, elbo, np.full(number, 60), settled, 60, sampled=False,
                given_start=was_given,
            ),
        ):  # fmt: skip
            told = was_given and number > 1
            assert found.figures.given_start == (said in str(found)) == told
            if number > 1:
                assert found.figures.converged


def test_a_family_tells_its_verdict_of_a_given_start():
    """The others do in tests of their own fits."""
    init = {name: bits.astype(float) for name, bits in small_fits.start().items()}
    more = {"model": "logistic", "sampler": "gibbs", "init": init} | small_fits.SIZES
    fit = bmfjax.fit(small_fits.ones(), small_fits.RANK, **more)
    assert fit.figures.given_start
    assert "started from the solution that was given" in str(fit.verdict)


def test_many_chains_have_a_nested_rhat():
    """Of 16 chains on; that of short chains which do not agree is high, as R-hat is."""
    rng = np.random.default_rng(3)
    lines = {"rows": np.arange(6), "columns": np.arange(6)}
    usage, basis = (rng.random((16, 8, 6, 2)) for _ in range(2))
    figures = []
    for shift in (0.0, 3.0):
        moved = usage + shift * (np.arange(16) < 8)[:, None, None, None]
        trace = {"log_joint": rng.normal(size=(16, 8))}
        for judge in (of_chains, of_ratings):
            entries = mixing(lines, moved, basis)
            errors = (0,) * (judge is of_chains)
            figures.append(
                judge(entries, 16, *errors, np.ones(2), trace, exact=True).figures.rhat_nested
            )
    assert max(figures[:2]) < 1.3 and min(figures[2:]) > 1.5
    assert mixing(lines, usage[:15], basis[:15]).nested is None


# ---- the record ----------------------------------------------------------------------------------

#: Of a fit whose intervals hold too little of half of the entries.
NARROW = {"coverage": 0.89, "coverage_scattered": 0.79, "coverage_by_chance": 0.02}
GOOD_FIGURES = Figures(
    num_chains=4, rhat_log_joint=1.0, factors_agreeing=1.0, exact=True, clamped=float("nan")
)
GOOD_STARTS = Figures(num_chains=4, factors_agreeing=1.0, exact=False, settled=True)


@pytest.mark.parametrize(
    ("figures", "changes", "status"),
    [
        (GOOD_FIGURES, {}, "reliable"),
        (GOOD_FIGURES, {"rhat_log_joint": 1.03}, "usable"),
        (GOOD_FIGURES, {"rhat_log_joint": 1.19}, "usable"),
        (GOOD_FIGURES, {"rhat_log_joint": 1.21}, "in part"),
        (GOOD_FIGURES, {"rhat_log_joint": 1.19, "ess_log_joint": 21.0}, "usable"),
        (GOOD_FIGURES, {"rhat_log_joint": 1.19, "ess_log_joint": 19.0}, "in part"),
        (GOOD_FIGURES, {"rank": 4, "rank_bounded": True}, "in part"),
        (GOOD_FIGURES, {"factors_agreeing": 0.5}, "in part"),
        (GOOD_FIGURES, {"factors_agreeing": 0.5, "agreement_counts": False}, "reliable"),
        (GOOD_FIGURES, {"rhat_product": 1.3}, "in part"),
        (GOOD_FIGURES, {"rhat_product": 1.3, "chains_apart": 0.04, "mc_error": 0.05}, "reliable"),
        (GOOD_FIGURES, {"chains_apart": 0.06, "mc_error": 0.01}, "usable"),
        (GOOD_FIGURES, {"chains_apart": 0.01, "mc_error": 0.06}, "usable"),
        (GOOD_FIGURES, {"chains_apart": 0.19, "mc_error": 0.01}, "usable"),
        (GOOD_FIGURES, {"chains_apart": 0.21, "mc_error": 0.01}, "in part"),
        (GOOD_FIGURES, {"chains_apart": 0.01, "mc_error": 0.11}, "in part"),
        (GOOD_FIGURES, {"explained": 0.02, "explained_error": 0.01}, "in part"),
        # Chains that all found no factor say nothing of factors.
        (
            GOOD_FIGURES,
            {
                "explained": 0.0,
                "explained_error": 0.01,
                "factors_holding": (),
                "factors_differing": (),
            },
            "unreliable",
        ),
        (GOOD_FIGURES, {"explained": 0.03, "explained_error": 0.01}, "reliable"),
        (GOOD_FIGURES, {"calibration_error": 0.026, "calibration_by_chance": 0.02}, "usable"),
        (GOOD_FIGURES, {"calibration_error": 0.044, "calibration_by_chance": 0.02}, "usable"),
        (GOOD_FIGURES, {"calibration_error": 0.046, "calibration_by_chance": 0.02}, "in part"),
        (GOOD_FIGURES, {"calibration_error": 0.026, "calibration_by_chance": 0.04}, "reliable"),
        (GOOD_FIGURES, {"calibration_error": 0.024, "calibration_by_chance": 0.002}, "reliable"),
        (GOOD_FIGURES, {"calibration_error": 0.3}, "in part"),
        (GOOD_FIGURES, {**NARROW, "coverage_error": 0.046}, "in part"),
        (GOOD_FIGURES, {**NARROW, "coverage_error": 0.044}, "usable"),
        (GOOD_FIGURES, {**NARROW, "coverage_error": 0.019}, "reliable"),
        (GOOD_FIGURES, {"calibration_error": 0.024}, "reliable"),
        (GOOD_FIGURES, {"shared_starts": True}, "usable"),
        (GOOD_FIGURES, {"given_start": True}, "usable"),
        (GOOD_FIGURES, {"exact": False}, "usable"),
        (GOOD_FIGURES, {"exact": False, "noise_share": 0.9}, "usable"),
        (GOOD_FIGURES, {"exact": False, "noise_share": 1.1}, "in part"),
        (GOOD_FIGURES, {"exact": False, "clamped": 0.3}, "in part"),
        (GOOD_FIGURES, {"rhat_product": 1.3, "factors_agreeing": 0.5}, "unreliable"),
        (GOOD_FIGURES, {"rhat_product": 1.3, "factors_agreeing": 0.6}, "in part"),
        (GOOD_FIGURES, {"rhat_product": 1.3, "rhat_log_joint": 1.3}, "unreliable"),
        (GOOD_FIGURES, {"factors_agreeing": np.nan}, "unchecked"),
        (GOOD_STARTS, {}, "usable"),
        (GOOD_STARTS, {"factors_agreeing": 0.5}, "in part"),
        (GOOD_STARTS, {"factors_agreeing": 0.5, "rank": 0}, "usable"),
        (GOOD_STARTS, {"chains_apart": 0.21}, "in part"),
        (GOOD_STARTS, {"sampled": True}, "in part"),
        (GOOD_STARTS, {"factors_agreeing": np.nan}, "unchecked"),
        (GOOD_STARTS, {"factors_agreeing": np.nan, "settled": False}, "unreliable"),
    ],
)
def test_the_status_follows_from_the_figures_alone(figures, changes, status):
    assert status_of(dataclasses.replace(figures, **changes)) == status


@pytest.mark.parametrize(
    "unsure",
    [
        {"planned_warmup": 500},
        {"chains_apart": 0.4, "mc_error": 0.01},
        {"chains_apart": 0.0, "mc_error": 0.2},
    ],
    ids=["warm-up", "apart", "few draws"],
)
def test_a_model_is_not_blamed_for_chains_that_have_not_come_together(unsure):
    wrong = {"calibration_error": 0.2, "calibration_by_chance": 0.02}
    remedies = {"chains": "take more draws", "model": "fit another model"}
    figures = dataclasses.replace(GOOD_FIGURES, **wrong, **unsure)
    found = Verdict(figures, remedies=remedies).predictions
    settled = "chains_apart" in unsure and unsure["chains_apart"] > 0.0
    assert found.status == ("does not hold" if settled else "not yet")
    assert found.remedy == "take more draws" and "off by" not in found.said
    done = Verdict(dataclasses.replace(GOOD_FIGURES, **wrong), remedies=remedies).predictions
    assert done.status == "does not hold" and done.remedy == "fit another model"
    off = Verdict(dataclasses.replace(GOOD_FIGURES, **{**wrong, "calibration_error": 0.04}),
                  remedies=remedies)  # fmt: skip
    assert off.predictions.said == "predictions hold (probabilities off by 0.04 on average)"
    assert off.status == "usable" and off.remedy == "fit another model"
    few = {"calibration_error": 0.22, "calibration_by_chance": 0.2}
    few = Verdict(dataclasses.replace(GOOD_FIGURES, **few), remedies=remedies)
    assert few.predictions.said == "predictions hold (too few entries to tell calibration)"
    assert few.status == "usable" and few.remedy == ""
    near = dataclasses.replace(GOOD_FIGURES, chains_apart=0.0, mc_error=0.1003)
    assert Verdict(near).predictions.said == "predictions do not hold yet (to within 0.11 only)"
    nothing = dataclasses.replace(GOOD_FIGURES, explained=-0.1, explained_error=0.02)
    assert Verdict(nothing).sentence.startswith("The model explains nothing")
    cut = Verdict(dataclasses.replace(nothing, planned_warmup=500))
    assert not cut.predictions.lead
    apart = Verdict(dataclasses.replace(nothing, chains_apart=0.4, mc_error=0.01))
    assert apart.sentence.startswith("This fit explains nothing (-10 ± 2 %).")


def test_stacking_is_not_advised_to_chains_whose_warm_up_was_cut():
    weights = {"stacking_weights": (0.7, 0.3), "stacking_gain": 0.01, "stacking_gain_error": 0.002}
    apart = Verdict(dataclasses.replace(GOOD_FIGURES, chains_apart=0.4, mc_error=0.01))
    said = "by stacking weights (0.70, 0.30), gain 0.010 ± 0.002 nats an entry"
    assert said in str(with_fit(apart, weights))
    unsure = str(with_fit(apart, {**weights, "stacking_gain_error": 0.006}))
    assert "averaged over chains alike: stacking weights gain nothing (0.010 ± 0.006" in unsure
    assert "stacking" not in str(with_fit(apart.changed(planned_warmup=500), weights))


def test_chains_of_one_start_must_have_left_it():
    """They agree from the first draw on: entries that are slow say that they are there still."""
    found = dict(
        factors_holding=("1",), factors_differing=(), chains_apart=0.01, mc_error=0.02,
        ess_log_joint=400.0, rhat_product=1.3, ess_product=15.0,
    )  # fmt: skip
    own = dataclasses.replace(GOOD_FIGURES, **found)
    assert Verdict(own).factors.holds and suffices(own)
    for start in ("shared_starts", "given_start"):
        shared = dataclasses.replace(own, **{start: True})
        judged = Verdict(shared)
        assert judged.factors.said == "factors do not hold yet (R-hat 1.30)"
        assert judged.status == "in part" and not suffices(shared)
        few = judged.changed(rhat_product=1.04)
        assert few.factors.said == "factors do not hold yet (15 of 20 effective draws)"
        assert not suffices(few.figures)
        slow = judged.changed(rhat_product=1.2, ess_product=25.0)
        assert slow.factors.holds and not suffices(slow.figures)
        moved = dataclasses.replace(slow.figures, rhat_product=1.04, rhat_log_joint=1.03)
        assert Verdict(moved).factors.holds and suffices(moved)
        # Of bits R-hat is of the few that are unsure.
        assert Verdict(dataclasses.replace(shared, entries_uncertain=0.01)).factors.holds


def test_factors_whose_number_is_not_sure_hold_by_name():
    """The log joint density follows the number; a run goes on for both."""
    found = dict(factors_holding=("1", "2"), factors_differing=(), rhat_log_joint=1.23)
    own = dataclasses.replace(GOOD_FIGURES, rank=3, rank_probability=0.6, rhat_rank=1.3, **found)
    assert Verdict(own).factors.said == "factors 1 and 2 hold" and not Verdict(own).number.holds
    assert not suffices(dataclasses.replace(own, rhat_rank=1.0))
    given = dataclasses.replace(own, rank=None)
    assert Verdict(given).factors.said == "factors do not hold yet (R-hat 1.23)"


def test_the_parts_say_where_chains_compared_one_start_or_none():
    found = dataclasses.replace(GOOD_FIGURES, factors_holding=("1", "2"), factors_differing=())
    assert Verdict(found).factors.said == "factors 1 and 2 hold"
    for start in ("shared_starts", "given_start"):
        shared = Verdict(dataclasses.replace(found, **{start: True}))
        assert shared.factors.said == "factors 1 and 2 hold, from one start"
    of_chains = (Verdict(dataclasses.replace(found, starts=k)).factors.said for k in (2, 3, 4))
    ends = [said.removeprefix("factors 1 and 2 hold") for said in of_chains]
    assert ends == [", from 2 starts", ", from 3 starts", ""]
    alone = Verdict(Figures(num_chains=1, factors_agreeing=float("nan"), explained=0.6))
    assert alone.sentence == (
        "Not checked: predictions (not compared; 60 % explained); factors not compared; their "
        "number was given."
    )


def test_a_stored_verdict_is_the_same_again():
    """Whatever JSON can hold of it; an older summary has a sentence of its own, and the figures."""
    figures = Figures(
        num_chains=4, rhat_product=2.0, converged=False, factors_agreeing=0.5, exact=True,
        layers_agreeing=(0.5, 1.0), factors_holding=("1",), factors_differing=("2",),
    )  # fmt: skip
    verdict = Verdict(figures, ("three",), {"chains": "take more draws"}, "One mode of 2 alone")
    assert str(verdict) == (
        "One mode of 2 alone. Do not rely on this run: predictions do not hold yet (R-hat 2.00); "
        "factor 1 holds, factor 2 does not; their number was given. Three. Next, take more draws."
    )
    scalars = figures.known() | {"remedy": verdict.remedy, "gone": 1}
    summary = {"verdict": str(verdict), "judged": verdict.stored(), "scalars": scalars}
    again = Verdict.of_stored(json.loads(json.dumps(summary)))
    assert again == verdict and again.figures == figures
    assert summary["judged"]["factors"]["differing"] == ["2"]
    assert summary["judged"]["predictions"]["status"] == "not yet"
    names = ("num_chains", "factors_holding", "factors_differing")
    summary["scalars"] = {n: v for n, v in scalars.items() if n not in names}
    summary["settings"] = {"num_chains": 4}
    for judged in (
        {"status": "unreliable", "opening": "Do not", "remedy": "take more draws"},
        None,
    ):
        summary["judged"] = judged
        if judged is None:
            del summary["judged"]
        older = Verdict.of_stored(json.loads(json.dumps(summary)))
        assert (older.status, older.remedy) == (verdict.status, verdict.remedy)
        assert "50 % of the factors hold" in str(older) and older.figures.num_chains == 4


# ---- the parts -----------------------------------------------------------------------------------


def test_chains_may_differ_by_chance_and_no_more():
    """By the error within chains: another mode does not widen it."""
    rng = np.random.default_rng(5)
    same = 0.5 + 0.3 * rng.normal(size=(4, 400, 200))
    found = mixing_of_entries(same, predicted=same)
    assert np.quantile(found.apart, 0.99) < 0.01
    np.testing.assert_allclose(found.error, 2 * 0.3 / np.sqrt(1600), rtol=0.3)
    other = same + np.array([0, 0, 0, 0.2])[:, None, None]
    found = mixing_of_entries(other, predicted=other)
    assert 0.1 < np.median(found.apart) < 0.2
    np.testing.assert_allclose(found.error, 2 * 0.3 / np.sqrt(1600), rtol=0.3)
    halves = np.repeat(np.array([0.4, 0.1, 0.4, 0.1])[:, None, None], 50, 1)
    assert mixing_of_entries(halves, predicted=halves).apart == pytest.approx(0.3)
    still = np.repeat(np.array([0.1, 0.9])[:, None, None], 50, 1)
    assert mixing_of_entries(still, predicted=still).apart == pytest.approx(0.8)
    assert mixing_of_entries(still).apart is None


def test_entries_that_are_surely_zero_do_not_mix_badly():
    """Log odds of -9 in one chain and -20 in others predict the same; those of 2 and 0 do not."""
    rng = np.random.default_rng(3)
    odds = rng.normal(size=(4, 400, 40))
    odds[0, :, :20] -= 9.0
    odds[1:, :, :20] -= 20.0
    chances = 1.0 / (1.0 + np.exp(-odds))
    found = mixing_of_entries(odds, predicted=chances, chances=True)
    assert np.isnan(found.rhat[:20]).all() and found.rhat[20:].max() < 1.05
    assert found.ess.shape == found.apart.shape == (40,) and found.apart.max() < 0.01
    whole = mixing_of_entries(odds, predicted=chances)
    assert whole.rhat[:20].min() > 1.5
    np.testing.assert_array_equal(whole.rhat[20:], found.rhat[20:])
    odds[0, :, 20:] += 2.0
    chances = 1.0 / (1.0 + np.exp(-odds))
    assert mixing_of_entries(odds, predicted=chances, chances=True).rhat[20:].min() > 1.2
    # Where all are nearly sure, the least sure ones speak.
    rare = odds[..., :20] + 6.0
    few = mixing_of_entries(rare, predicted=1.0 / (1.0 + np.exp(-rare)), chances=True)
    assert np.isfinite(few.rhat).sum() >= 2 and np.nanmin(few.rhat) > 1.5


def test_a_misfit_is_said_first():
    """Chains agree, and the model says hardly more than column means; or nothing."""
    good = dataclasses.replace(GOOD_FIGURES, chains_apart=0.0, mc_error=0.02)
    little = Verdict(dataclasses.replace(good, explained=0.036, explained_error=0.012))
    assert str(little).startswith("The model explains little (4 ± 1 %). Reliable: ")
    other = {"model": "fit with model='features'"}
    nothing = dataclasses.replace(good, explained=0.02, explained_error=0.011)
    nothing = Verdict(nothing, remedies=other)
    assert str(nothing).startswith(
        "The model explains nothing (2 ± 1 %). Usable in part: predictions are no better than "
        "without factors (to within 0.02)"
    )
    assert str(nothing).endswith("Next, fit with model='features'.")
    assert nothing.predictions.holds and nothing.factors.holds
    # What is 0 % in words is nothing, however surely it is more than zero.
    hardly = {"explained": 0.004, "explained_error": 0.001}
    assert nothing.changed(explained=0.006, explained_error=0.001).status == "reliable"
    assert str(nothing.changed(**hardly)).startswith(
        "The model explains nothing (0 %, ± less than 1 %). Usable in part: "
    )
    none = nothing.changed(**hardly, factors_holding=(), factors_differing=())
    assert none.factors.said == "no factor is there" and none.status == "unreliable"
    # What holds is no reason not to rely on a run.
    found = {"rank": 0, "rank_probability": 0.98}
    for number, apart in (({}, ""), (found, "Their number is 0 with probability 0.98.")):
        reasons = none.changed(**number).sentence.partition("Do not rely on this run: ")[2]
        assert "hold" not in reasons and reasons.partition(". ")[2] == apart
    worse = nothing.changed(explained=-0.03, explained_error=0.011)
    assert worse.predictions.said == "predictions do not hold (worse than without factors)"
    # Of entries that are not left out calibration is not known, and does not count.
    known = {"explained": 0.4, "explained_error": 0.01, "calibration_by_chance": 0.01}
    for error in (0.0, 0.2):
        most = nothing.changed(**known, calibration_error=error, doubtful=0.8)
        every = most.changed(doubtful=1.0)
        assert most.status == ("in part" if error else "reliable")
        assert every.status == "usable" and every.predictions.said == (
            "predictions hold (to within 0.02; calibration not known: too few draws to leave "
            "entries out)"
        )
        assert np.isnan(every.predictions.explained) and not every.remedy
        assert every.lacking == ("calibration not known: too few draws to leave entries out",)
    few = Verdict(dataclasses.replace(good, explained=0.2, explained_error=0.15))
    assert few.sentence.startswith(
        "Reliable: predictions hold (to within 0.02; 20 ± 15 % explained)"
    )
    whole = Verdict(dataclasses.replace(good, explained=0.4, explained_error=0.01))
    assert whole.predictions.said == "predictions hold (to within 0.02; 40 % explained)"
    assert whole.predictions.lead == "" and whole.remedy == ""
    # One chain of four that is so far from the others: two standard errors of the mean are half.
    moved = Verdict(dataclasses.replace(good, chains_apart=0.16))
    assert moved.predictions.said == "predictions hold (to within 0.10)"


def test_the_sentence_says_all_in_few_words():
    """Whatever differs, with as many factors as are found."""
    numbers = [str(k) for k in range(1, 41)]
    for holding in ([], numbers[:1], numbers[::2], numbers[:39], numbers[::7], numbers):
        figures = Figures(
            num_chains=4, exact=True, factors_agreeing=len(holding) / 40, rank=40,
            rank_probability=0.3, rank_bounded=True, rank_at_bound=0.3, chains_apart=0.1,
            mc_error=0.1, explained=0.01, explained_error=0.02, factors_empty=3,
            factors_holding=tuple(holding),
            factors_differing=tuple(k for k in numbers if k not in holding),
        )  # fmt: skip
        for chains in (1, 4):
            found = Verdict(dataclasses.replace(figures, num_chains=chains))
            assert len(found.sentence.split()) <= 42 and len(found.parts) == 3


def test_a_run_may_end_when_its_predictions_hold():
    apart = dataclasses.replace(
        GOOD_FIGURES, factors_agreeing=0.5, chains_apart=0.01, mc_error=0.02
    )
    assert not suffices(apart) and suffices(apart, "predictions")
    assert not suffices(apart, "predictions", 0.01) and suffices(apart, "predictions", 0.03)
    assert not suffices(dataclasses.replace(apart, mc_error=0.06), "predictions")


def test_a_run_that_is_to_be_usable_ends_where_it_is():
    """But for factors that one chain found, which more draws do not compare; and once it mixed."""
    seen, grid = set(), itertools.product(
        (0.01, 0.19, 0.21), (0.09, 0.11), (0.02, 0.06), ((), ("3",)), ((), ("4",)),
        ({}, {"rank": 3}, {"rank": 3, "rhat_rank": 1.1}, {"rank": 3, "rank_bounded": True}),
        (1.0, 1.19, 1.3), (1.0, 1.06),
        ({}, {"shared_starts": True}, {"found_by": 2}, {"found_by": 1, "shared_starts": True}),
    )  # fmt: skip
    for apart, error, off, most, lost, number, rhat, rhat_noise, start in grid:
        figures = Figures(
            num_chains=4, exact=True, chains_apart=apart, mc_error=error, calibration_error=off,
            calibration_by_chance=0.02, factors_agreeing=0.6 if most or lost else 1.0,
            factors_holding=("1", "2", "3"), factors_of_most=most, factors_differing=lost,
            rank_probability=0.8, rhat_log_joint=rhat, rhat_product=rhat,
            rhat_precision=rhat_noise, **number, **start,
        )  # fmt: skip
        ends, status = suffices(figures, "usable"), status_of(figures)
        if figures.is_alone:
            assert ends is (agrees(figures) and rhat < 1.2)
            assert status in ("in part", "unreliable")
        else:
            assert ends is (status in ("usable", "reliable") and rhat < 1.2)
        seen.add((ends, status))
    assert {status for ends, status in seen if ends} >= {"usable", "in part"}
    # Nor do they mend the spread of a sampler.
    wrong = dataclasses.replace(GOOD_FIGURES, exact=False, clamped=0.5)
    assert suffices(wrong, "usable") and status_of(wrong) == "in part"


def test_chains_that_jumped_are_said_to_have():
    """They began apart: that some left what they had found is said, and of no start."""
    for found_by, words in (
        (1, "by themselves 1 of 4 were as high as the best"), (2, "2 of 4"), (4, ""), (None, ""),
    ):  # fmt: skip
        found = of_chains(
            GOOD, 4, 3, np.ones(2), {"log_joint": QUICK}, exact=True, found_by=found_by
        )
        assert ("Chains that disagreed jumped" in str(found)) is bool(words) and words in str(found)
        assert "before they started" not in str(found) and "start" not in found.sentence
    shared = dict(found_by=2, starts=2)
    began = of_chains(GOOD, 4, 3, np.ones(2), {"log_joint": QUICK}, exact=True, **shared)
    assert "jumped" not in str(began) and "from 2 starts" in str(began)


def test_no_factor_is_named_before_the_warm_up_is_over():
    early = dataclasses.replace(
        GOOD_FIGURES, planned_warmup=300, factors_holding=("1",), factors_differing=("2",),
        factors_agreeing=0.5,
    )  # fmt: skip
    factors = Verdict(early).factors
    assert (factors.status, factors.holding, factors.differing) == ("not yet", (), ())
    # Nor do chains that are nowhere yet have modes to print.
    assert not early.chains_differ
    later = dataclasses.replace(early, planned_warmup=None)
    assert Verdict(later).factors.holding == ("1",) and later.chains_differ


@pytest.mark.parametrize(
    ("taken", "planned", "drawn", "note", "said"),
    [
        (0, 300, 0, "the time was up before the sampler drew", "nothing was drawn"),
        (20, 300, 4, "the time was up after 20 of 300 steps of warm-up", "warm-up was cut short"),
        (300, 300, 1, "the time was up after 1 draw, fewer than a result", "are too few draws"),
        (0, 0, 5, "the time was up after 5 draws, fewer than a result", "there are too few draws"),
    ],
)
def test_the_verdict_says_where_the_time_was_up(taken, planned, drawn, note, said):
    figures = dataclasses.replace(GOOD_FIGURES, num_warmup=taken)
    found = with_short_warmup(Verdict(figures), planned, drawn)
    assert found.notes[0].startswith(note) and said in found.predictions.said
    assert found.status == "unreliable"
    # Copies of a start have not converged.
    of_chains = ("rhat", "ess_", "chains_apart", "mc_error", "factors_found", "factors_agreeing")
    left = {n for n, v in found.figures.known().items() if n.startswith(of_chains) and v == v}
    assert bool(left) is (taken + drawn > 0)
    # By default a run takes five minutes; of a warm-up that was cut, as many steps again follow.
    seconds = {0: 600, 20: 3000}.get(taken, 600)
    assert f"max_time={seconds}" in found.remedy and f"--max-time {seconds})" in found.remedy
    # Where nothing was drawn, the default: compiling may take as long on a busy machine.
    least = str(60 if taken or not planned else 300)
    assert found.changed(seconds=1e-3).remedy == found.remedy.replace(str(seconds), least)
    # Of what did not draw there is nothing to resume.
    assert ("--resume" in str(found)) is (taken + drawn > 0)
    assert ("--overwrite" in str(found)) is (taken + drawn == 0)


def test_an_interrupted_run_says_so_and_how_it_goes_on():
    """Also where all parts hold; and it was not the time that was up."""
    good = with_interruption(Verdict(GOOD_FIGURES, ("one",)), "90 of 600 draws")
    assert good.notes == ("the run was interrupted after 90 of 600 draws", "one")
    assert good.status == "reliable" and good.remedy == GO_ON
    apart = dataclasses.replace(GOOD_FIGURES, rhat_log_joint=1.5, converged=False)
    for remedy, left in ((RESUME, GO_ON), ("take more draws", "take more draws")):
        found = with_interruption(Verdict(apart, remedies={"chains": remedy}), "90 draws")
        assert found.remedy == left
    stored = {"judged": good.stored(), "scalars": GOOD_FIGURES.known()}
    assert Verdict.of_stored(json.loads(json.dumps(stored))) == good


USABLE = Figures(
    num_chains=4, exact=True, factors_agreeing=1.0, chains_apart=0.01, mc_error=0.02,
    rhat_log_joint=1.005, ess_log_joint=900.0, explained=0.6, explained_error=0.01,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "lacking", "tried", "remedy"),
    [
        ({}, "", Tried(draws=1000), ""),
        (
            {"mc_error": 0.056},
            "predictions with a Monte Carlo error of 0.06, where 0.05 is asked",
            Tried(draws=1000),
            "take more draws, num_samples=2000 (--samples 2000)",
        ),
        (
            {"chains_apart": 0.08},
            "chains whose predictions differ by 0.08, where 0.05 is asked",
            Tried(draws=1000, ended=True),
            "leave until out (--until all), so that chains run until all of it is reliable",
        ),
        (
            {"rhat_log_joint": 1.03},
            "R-hat 1.030 of the log joint density, where 1.01 is asked",
            Tried(draws=1000, stopped=True),
            "give it more time, max_time=80; with checkpoint= also resume=True (--resume --max-time"
            " 80)",
        ),
        (
            {"ess_log_joint": 150.0},
            "150 of 200 effective draws of the log joint density",
            Tried(draws=1000),
            "take more draws, num_samples=2000 (--samples 2000)",
        ),
        # All that must change is said, not what is found first.
        (
            {"mc_error": 0.056, "chains_apart": 0.08, "rhat_log_joint": 1.07,
             "ess_log_joint": 45.0},
            "chains whose predictions differ by 0.08, where 0.05 is asked; predictions with a "
            "Monte Carlo error of 0.06, where 0.05 is asked; R-hat 1.070 of the log joint density, "
            "where 1.01 is asked; 45 of 200 effective draws of the log joint density",
            Tried(draws=1000),
            "take more draws, num_samples=7000 (--samples 7000)",
        ),
        (
            {"rhat_log_joint": 1.07, "rank": 2, "rank_agreeing": 1.0, "rhat_rank": 1.02,
             "ess_rank": 180.0},
            "R-hat 1.070 of the log joint density, where 1.01 is asked; R-hat 1.020 of the number "
            "of factors, where 1.01 is asked; 180 of 200 effective draws of the number of factors",
            Tried(draws=1000),
            "take more draws, num_samples=2000 (--samples 2000)",
        ),
        (
            {"rhat_product": 1.06, "ess_product": 25.0, "given_start": True},
            "chains began at one start; R-hat 1.06 of the reconstruction, where 1.05 is asked",
            Tried(),
            "leave init out, so that",
        ),
        (
            {"factors_agreeing": 0.5, "factors_holding": ("1", "2"), "factors_differing": (),
             "factors_of_most": ("2",)},
            "factors (factor 2 not in all chains)",
            Tried(draws=1000),
            "take more draws, num_samples=2000 (--samples 2000)",
        ),
        ({"given_start": True}, "chains began at one start", Tried(), "leave init out, so that"),
        ({"shared_starts": True}, "chains began at one start", Tried(), "fit with another seed"),
        # What the sentence says is not said twice.
        (
            {"exact": False}, "", Tried(other_sampler="gibbs"),
            "draw from the posterior itself, sampler='gibbs' (--sampler gibbs)",
        ),
        ({"calibration_error": 0.03, "calibration_by_chance": 0.01}, "", Tried(), ""),
        ({"chains_apart": 0.3}, "", Tried(), ""),
    ],
)  # fmt: skip
def test_what_is_usable_says_what_is_short_of_reliable_and_what_to_do(
    changes, lacking, tried, remedy
):
    figures = dataclasses.replace(USABLE, seconds=40.0, converged=True, **changes)
    found = Verdict(figures, remedies={"usable": remedy_of_usable(figures, tried)})
    assert found.shortfall == (f'Short of "reliable": {lacking}.' if lacking else "")
    assert found.shortfall in str(found) and len(found.shortfall.split()) <= 50
    assert found.remedy.startswith(remedy) and bool(found.remedy) is bool(remedy)
    # A program finds all that is lacking in one place, also what the sentence says.
    assert bool(found.lacking) is (found.status != "reliable")
    said = found.lacking[-len(lacking.split("; ")) :] if lacking else ()
    assert "; ".join(said) == lacking and len(set(found.lacking)) == len(found.lacking)
    named = {"exact": "the sampler is approximate", "calibration_error": "probabilities off by"}
    for name, words in named.items():
        assert (name in changes) is any(reason.startswith(words) for reason in found.lacking)
    stored = {"judged": found.stored(), "scalars": figures.known()}
    assert Verdict.of_stored(json.loads(json.dumps(stored))) == found


@pytest.mark.parametrize(("empty", "said"), [(0, "allow more factors, rank=6 (--rank 6)"), (1, "")])
def test_more_factors_are_advised_where_none_is_empty(empty, said):
    figures = dataclasses.replace(GOOD_FIGURES, factors_empty=empty)
    assert fit_of("features")._judged(Verdict(figures))._other_model == said
