"""The panel of models: how hidden entries are scored, how cells are kept, and what pages say."""

import argparse
import json
import os
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest

import bmfjax
from benchmarks import record
from benchmarks.prediction import panel as script
from benchmarks.prediction import (
    panel_baselines,
    panel_data,
    panel_goals,
    panel_models,
    panel_page,
    panel_ratings,
)
from bmfjax.families import FAMILIES
from bmfjax.kernels.numerics import compiling

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def test_intervals_of_a_true_model_cover_as_often_as_they_say():
    """The numbers are small and whole, so that ends of intervals count by their share."""
    coverage = panel_data.coverage
    rng = np.random.default_rng(0)
    rows, columns = np.indices((60, 12)).reshape(2, -1)
    chance = rng.random(60 * 12)
    replicates = rng.random((400, len(chance))) < chance
    found = [
        coverage(replicates, rng.random(len(chance)) < chance, rows, columns) for _ in range(9)
    ]
    assert np.mean(found) == pytest.approx(0.9, abs=0.02)
    narrow = np.broadcast_to(chance > 0.5, replicates.shape)  # as if all were known
    assert coverage(narrow, rng.random(len(chance)) < chance, rows, columns) < 0.5


def test_scores_are_those_of_a_hand():
    chance, ones = np.array([[0.05, 0.15, 0.95]]), np.array([[False, True, True]])
    found = panel_data.scores(chance, ones, np.ones_like(ones))
    assert found["log_score"] == pytest.approx(np.log([0.95, 0.15, 0.95]).mean())
    assert found["auc"] == 1.0
    assert found["calibration_error"] == pytest.approx((0.05 + 0.85 + 0.05) / 3)
    assert found["calibration"]["number"] == [1, 1, *[0] * 7, 1]
    assert found["calibration"]["ones"] == [0, 1, *[0] * 7, 1]


def test_settings_are_chosen_by_the_shown_entries_alone(monkeypatch):
    """A model that knows the hidden entries is told nothing of them."""
    seen = []

    def model(ones, observed, number, seed):
        seen.append(observed)
        return np.full(ones.shape, number / 10)

    asked = panel_baselines.Tuned(model, [(number, {}) for number in (1, 3, 9)], (1, 1))
    monkeypatch.setitem(panel_baselines.TUNED, "constant", asked)
    rng = np.random.default_rng(0)
    ones, observed = rng.random((40, 30)) < 0.3, rng.random((40, 30)) < 0.8
    probability, chosen = panel_baselines.tuned("constant", ones | ~observed, observed)
    assert chosen == {"number": 3} and (probability == 0.3).all()
    assert not any((shown & ~observed).any() for shown in seen)
    assert [shown.sum() < observed.sum() for shown in seen] == [True, True, True, False]
    seen.clear()
    monkeypatch.setitem(panel_baselines.TUNED, "constant", asked._replace(settings=[(3, {})]))
    probability, chosen = panel_baselines.tuned("constant", ones, observed)
    assert chosen == {"number": 3} and (probability == 0.3).all() and len(seen) == 1


@pytest.mark.long
def test_numpyros_samplers_see_the_shown_entries_alone(monkeypatch):
    pytest.importorskip("funsor")
    lengths = {"num_warmup": 20, "num_samples": 20, "num_chains": 1}
    monkeypatch.setattr(panel_baselines, "LENGTHS", lengths)
    rng = np.random.default_rng(0)
    ones, observed = rng.random((8, 5)) < 0.4, rng.random((8, 5)) < 0.8
    for model in (panel_baselines.numpyro_boolean, panel_baselines.numpyro_logistic):
        given = [model(truth, observed, 2, 0) for truth in (ones, ones ^ ~observed)]
        assert given[0].shape == ones.shape and given[0].min() > 0 and given[0].max() < 1
        np.testing.assert_allclose(*given)


def test_the_rank_of_ratings_is_chosen_by_a_tenth_of_those_that_are_shown(monkeypatch):
    rng, given = np.random.default_rng(0), []
    cells = rng.permutation(30 * 20)[:400]
    table = np.column_stack([cells // 20, cells % 20, rng.integers(1, 6, 400)])
    asked = panel_ratings.Problem(table[:300], table[300:], (30, 20))

    def fit(data, model, *, max_time, **_):
        given.append((model.rank, data.num_ratings, max_time))
        return argparse.Namespace(rank=model.rank)

    def told_by(fitted, part):
        mean = part.test[:, 2] + (fitted.rank == 5)  # whole ratings off, of the lower rank
        return panel_ratings.of_point(mean, 1.0, part.test)

    monkeypatch.setattr(bmfjax, "fit", fit)
    monkeypatch.setattr(panel_ratings, "told_by", told_by)
    monkeypatch.setattr(panel_models, "told", lambda fitted: {"rank": fitted.rank})
    options = argparse.Namespace(seed=0, max_cpu=30.0)
    answer, told = panel_models.rated("pmf, rank tried", asked, options)
    part = panel_ratings.without_a_tenth(asked, 0)
    assert len(part.train) + len(part.test) == 300 and 15 < len(part.test) < 50
    assert given == [(5, len(part.train), 10.0), (10, len(part.train), 10.0), (10, 300, 10.0)]
    assert told == {"rank": 10, "number": 10} and len(answer.mean) == 100
    for model, rank in (("pmf", None), ("pmf, rank found", "auto")):
        given.clear()
        panel_models.rated(model, asked, options)
        assert given == [(rank, 300, 30.0)]


@pytest.fixture
def panel(monkeypatch, tmp_path):
    """The script with a stub in place of the process that scores a cell."""
    for path in ("uci-zoo/zoo.npz", "bob-ross/bob-ross.npz"):
        (tmp_path / "data" / path).parent.mkdir(parents=True)
        (tmp_path / "data" / path).touch()
    script.scored = []

    def scored(options, name, model):
        script.scored.append((name, model))
        return {"log_score": -float(len(script.scored)), "auc": 0.5}

    def run(*words, sets=("zoo", "bob-ross")):
        script.scored.clear()
        words = ["--data", str(tmp_path / "data"), "--output", str(tmp_path), *words]
        monkeypatch.setattr(sys, "argv", ["panel.py", *words, "--sets", *sets])
        script.main()
        return json.loads((tmp_path / "panel.json").read_text())["figures"]["sets"]

    monkeypatch.setattr(script, "in_a_process", scored)
    monkeypatch.setattr(record, "write_pages", lambda *_, **__: None)
    script.run = run
    return script


def test_a_run_goes_on_where_the_last_stopped(panel, monkeypatch):
    some = ("--models", "features, signed", "column means", "--commit", "abc1234")
    sets = panel.run(*some)
    assert panel.scored == [
        (name, model) for model in ("column means", "features, signed")
        for name in ("bob-ross", "zoo")
    ]  # fmt: skip
    assert {cell["commit"] for of in sets.values() for cell in of.values()} == {"abc1234"}
    assert panel.run(*some) == sets and panel.scored == []
    monkeypatch.setattr(panel, "sampler_of", lambda model: "changed")
    after = panel.run(*some)
    assert panel.scored == [("bob-ross", "features, signed"), ("zoo", "features, signed")]
    assert after["zoo"]["column means"] == sets["zoo"]["column means"]
    panel.run(*some, "--again")
    assert len(panel.scored) == 4
    assert "product" in panel.run(*some, sets=["product"]) and len(panel.scored) == 2


def test_cells_of_parts_are_taken_over(panel, tmp_path):
    """But for those that ended without a score where the record has one."""
    some = ("--models", "column means", "--commit", "abc1234")
    before = panel.run(*some)
    (tmp_path / "panel.json").rename(tmp_path / "part.json")
    panel.run("--models", "nmf", "--commit", "abc1234")
    part = json.loads((tmp_path / "part.json").read_text())
    part["figures"]["sets"]["zoo"]["nmf"] = {"stopped": "a reason"}
    (tmp_path / "part.json").write_text(json.dumps(part))
    joined = panel.run("--join", str(tmp_path / "part.json"))
    assert {name: of["column means"] for name, of in joined.items()} == {
        name: of["column means"] for name, of in before.items()
    }
    assert "log_score" in joined["zoo"]["nmf"]


def test_a_failure_takes_nothing_from_the_record(panel, monkeypatch):
    some = ("--models", "column means", "--commit", "abc1234")
    before = panel.run(*some)
    monkeypatch.setattr(panel, "in_a_process", lambda *_: {"stopped": "a reason"})
    assert panel.run(*some, "--again") == before


def test_cells_of_another_processor_are_taken_and_marked(panel, monkeypatch, tmp_path):
    some = ("--models", "latent classes", "column means", "--commit", "abc1234")
    plain = lambda seconds: lambda *_: cell(-0.2, cpu_seconds=seconds)  # noqa: E731
    monkeypatch.setattr(panel, "processor", lambda: "slow")
    monkeypatch.setattr(panel, "in_a_process", plain(6.0))
    panel.run(*some)
    other = tmp_path / "other.json"
    found = cell(-0.2, cpu_seconds=2.0, processor="fast")
    fit = cell(-0.1, verdict="Usable: predictions hold (to within 0.05).", processor="fast")
    of = {"latent classes": found, "column means": {"stopped": "x"}, "features, signed": fit}
    other.write_text(json.dumps({"figures": {"sets": {"zoo": of}}}))
    after = panel.run("--join", str(other), "--commit", "abc1234")
    before = {"processor": f"slow, {os.cpu_count()} cores", "cpu_seconds": 6.0}
    assert after["zoo"]["latent classes"] == found | {"elsewhere": before}
    assert after["zoo"]["features, signed"] == fit
    assert after["zoo"]["column means"]["processor"] == before["processor"]
    assert panel.run("--join", str(other), "--commit", "abc1234") == after
    assert "took 3.0 times as long (median of 1 cells" in panel_page.elsewhere(after)
    table = panel_page.summary(after)
    assert "| 2.0 |" in table and "| column means | 2 |" in table and "| 6.0 * |" in table


def test_compilation_is_waited_for_by_processor_seconds(monkeypatch):
    """While other work has the machine none pass, and nothing is given up."""
    monkeypatch.setattr(time, "monotonic", time.monotonic)
    monkeypatch.setattr(time, "process_time", lambda: 3.0)
    turns, event = [], threading.Event()

    def wait(found, seconds):
        turns.append(seconds)
        if len(turns) == 5:
            event.set()
            futures.wait(found)

    monkeypatch.setattr(compiling, "wait", wait)
    panel_models.on_processor_time()
    assert time.monotonic() == 3.0
    assert compiling.Compilation(lambda: event.wait() and "made").program(1.0) == "made"
    assert len(turns) == 5
    turns.clear()
    event.clear()
    late = compiling.Compilation(event.wait)
    passed = iter((0.0, 0.5, 1.5))
    monkeypatch.setattr(time, "monotonic", lambda: next(passed))
    with pytest.raises(TimeoutError):
        late.program(1.0)
    event.set()
    assert len(turns) == 1


def test_a_peer_that_is_absent_is_told(monkeypatch):
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    assert script.in_a_process(argparse.Namespace(), "zoo", "nbmf-mm") == {
        "not_run": "nbmf_mm is not installed"
    }
    assert script.missing_package("latent classes") is None


def cell(score, error=0.01, verdict=None, **more):
    found = {
        "log_score": score, "auc": 0.9, "calibration_error": error, "cpu_seconds": 1.0,
        "calibration_error_by_chance": 0.02, "shape": [3, 2], "commit": "abc1234", "rank": 2,
    }  # fmt: skip
    return found | ({} if verdict is None else {"verdict": verdict}) | more


def test_a_part_of_a_record_has_its_tables():
    of_ratings = {"rmse": 0.9, "log_score": -1.3, "coverage": 0.9, "width": 2.9, "cpu_seconds": 9.0}
    for sets in (
        {"zoo": {"nbmf-mm": cell(-0.2)}},
        {"zoo": {"probit": cell(-0.2, verdict="Usable: predictions hold (to within 0.05).")}},
        {"zoo": {"probit": {"stopped": "a reason"}}, "jokes": {"pmf": of_ratings}},
    ):
        blocks = list(panel_page.tables({"panel": {"figures": {"sets": sets}}}))
        assert all(isinstance(block, str) for block in blocks)


def test_aims_are_counted_from_the_record():
    """Each changes its word where the figure that it asks for does."""
    names = list(panel_data.SETS)[:12]
    signed, positive, classes, logistic = "features, signed", "features, positive", -0.2, -0.3
    holds = "Usable: predictions hold (to within 0.05); y."

    def made(score, of_positive=-0.2, error=0.01):
        sets = {
            name: {
                signed: cell(score, error, holds), positive: cell(of_positive, 0.01, holds),
                "latent classes": cell(classes), "logistic": cell(logistic),
            } for name in names
        }  # fmt: skip
        return sets | {"roles": {signed: cell(-9.0, 0.01, holds), "logistic": cell(-1.0)}}

    def met(sets):
        return [line.rsplit("| ", 1)[1] for line in panel_goals.aims(sets).splitlines()[2:]]

    assert met(made(-0.2)) == ["yes |"] * 5
    assert met(made(-0.204)) == ["no |", *["yes |"] * 4]  # behind, and by less than 0.005
    assert met(made(-0.21)) == ["no |", "no |", *["yes |"] * 3]
    assert met(made(-0.1, -0.21)) == ["yes |", "yes |", "no |", "yes |", "yes |"]
    assert met(made(-0.1, -0.1, 0.03)) == [*["yes |"] * 3, "no |", "no |"]
    some = made(-0.1) | {n: {"logistic": cell(-0.3)} for n in names[:3]}
    assert "| 10 of 12 | 9 of 9 | no |" in panel_goals.aims(some)
    assert len(met({})) == 5


def test_the_weakest_models_are_those_furthest_below_the_best_of_any_kind():
    holds = "Usable: predictions hold (to within 0.05); y. Next, allow more factors (--rank)."
    sets = {
        name: {
            "latent classes": cell(-0.1 - lag), "features, signed": cell(-0.2, verdict=holds),
            "logistic, variational": cell(-0.5 - 2 * lag, verdict=holds),
            "logistic, effects": cell(-0.4, verdict=holds),
            "column means": cell(-9.0),
        } for name, lag in (("zoo", 0.0), ("votes", 0.05), ("animals", 0.02))
    }  # fmt: skip
    sets["roles"] = {"relaxed": cell(-5.0, verdict=holds)}  # one matrix says little
    assert panel_goals.gaps(sets, "features, signed")["zoo"] == pytest.approx(0.1)
    assert panel_goals.weakest(sets, 2) == ["logistic, variational", "logistic, effects"]
    row = panel_goals.weakest_table(sets).splitlines()[2]
    effects = panel_page.label("logistic, effects")
    assert row == (
        "| logistic, variational | 3 | 0.423 | votes (0.450 below latent classes, tuned) | "
        f"{effects}: 0.147 better on 3 | allow more factors (3 of 3) |"
    )
    assert panel_goals.furthest_of_default(sets).startswith(
        "The default is the furthest below the best on zoo (0.100 below latent classes, tuned)"
    )


def test_every_model_has_a_row_or_a_reason_why_not():
    rows = {m.kind for m in (*panel_models.FITS.values(), *panel_models.RATINGS_FITS.values())}
    named = {name: family.models[name].__name__ for name, family in FAMILIES.items()}
    assert {name for name, kind in named.items() if kind not in rows} == {*panel_goals.LEFT_OUT}
    assert panel_goals.MENDS.keys() <= panel_models.FITS.keys()


def test_pages_are_what_the_record_makes():
    sets = json.loads((RESULTS / "panel.json").read_text())["figures"]["sets"]
    assert panel_page.PAGE.read_text() == panel_page.page_of(sets), "run panel_page.py"
    text = panel_page.MODELS_PAGE.read_text()
    assert text == panel_page.with_section(text, sets), "run panel_page.py"
    weakest = panel_goals.weakest(sets)
    assert len(weakest) == 3 and {*weakest} <= panel_goals.MENDS.keys(), "say what would mend it"
    assert panel_page.section(sets).splitlines()[0] in text


def test_what_is_too_unsure_states_too_much_of_zeros_and_too_little_of_ones():
    bins = {"stated": [0.1, 0.9], "number": [100, 100]}
    for ones, told in (([5, 95], True), ([15, 85], False), ([15, 97], True), ([15, 94], False)):
        assert panel_page.too_unsure(bins | {"ones": ones}) == told
