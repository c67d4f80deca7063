"""The command line, as a user meets it: files, exit codes, one sentence for bad input."""

import dataclasses
import errno
import functools
import html
import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import bmfjax
from bmfjax import families, progress
from bmfjax.cli import (
    _choose_model,
    _cores_to_share,
    _end,
    _has_modes,
    _kept_back,
    _prepare_page,
    _tell,
    build_parser,
    main,
)
from bmfjax.clock import clock_running
from bmfjax.errors import InputError
from bmfjax.families import FAMILIES
from bmfjax.infer import ChainRun
from bmfjax.kernels.numerics import compiling, mesh
from bmfjax.kernels.ratings.gibbs import PMFDensity, pmf_gibbs
from bmfjax.posterior.held_out import HeldOut
from bmfjax.report import page
from bmfjax.store import FILES, LOCK
from bmfjax.verdict import Figures, Verdict
from tests.toy import set_clock

QUICK = ["--rank", "2", "--chains", "2", "--warmup", "40", "--samples", "30", "--quiet"]

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
#: The model that is compiled and loaded the fastest.
RELAXED = ["fit", "davis", "--model", "relaxed"]
#: More draws than are kept, and as many as the device holds at once.
LONG = ["--model", "relaxed", *QUICK[:4], "--warmup", "50", "--quiet", "--samples", "600"]


def run(*arguments):
    return main([str(a) for a in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "davis"
    assert run(*RELAXED, *QUICK, "--output", folder) == 0
    return folder


def test_fit_writes_everything_and_no_checkpoint_stays(fitted):
    names = {path.name for path in fitted.iterdir()}
    assert names == {*FILES, "report.html"}


@pytest.mark.parametrize(
    "given, cores, shared",
    [
        ("--chains 1", 2, 2),
        ("--chains 2", 2, 2),
        ("--chains 4", 2, None),  # two pairs
        ("--chains 4", 16, 8),
        ("--chains 1", 1, None),
        ("--chains 1 --mesh none", 2, None),
        ("--chains 1 --rank auto", 2, None),
        ("--chains 1 --option moves=birth", 2, None),
        ("--chains 1 --sampler smc", 2, None),
        ("--chains 1 --model relaxed", 2, None),
        ("--chains 1 --model pmf", 2, 2),
        ("--chains 2 --model pmf", 2, None),  # each has a core
        ("--chains 3 --model pmf", 4, 4),
        ("--chains 4 --model ordered-probit", 4, None),
    ],
)
def test_cores_that_chains_leave_share_the_rows_of_large_data(given, cores, shared, monkeypatch):
    monkeypatch.setattr(mesh, "num_cores", lambda: cores)
    options = build_parser().parse_args(["fit", "--model", "ormachine", *given.split()])
    large = bmfjax.BinaryMatrix.from_packed(np.zeros((2**20 + 1, 1), np.uint32), 16)
    if FAMILIES[options.model].kind(options.model) is bmfjax.Ratings:
        cells = np.divmod(np.arange(2**18 + 1), 2**10)
        large = bmfjax.Ratings(*cells, np.tile([1, 2], 2**17 + 1)[:-1], shape=(2**10, 2**10))
    assert _cores_to_share(options, large) == shared
    assert _cores_to_share(options, bmfjax.load("davis")) is None


def test_chains_of_ratings_have_a_core_each():
    assert pmf_gibbs(PMFDensity(2)).serial
    assert (FAMILIES["pmf"].chains_a_core, FAMILIES["ormachine"].chains_a_core) == (1, 2)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is another device")
def test_a_device_that_is_not_there_is_refused(tmp_path, capsys):
    platforms = jax.config.jax_platforms
    assert run("fit", "davis", *QUICK, "--device", "gpu", "--output", tmp_path / "fit") == 2
    said = (
        "--device is gpu, and JAX finds no GPU here; install bmfjax[cuda12], or leave --device out"
    )
    assert said in capsys.readouterr().err
    assert jax.config.jax_platforms == platforms and not (tmp_path / "fit").exists()


def test_what_was_sampled_is_told(fitted, capsys):
    fit = bmfjax.Fit.load(fitted)
    _tell(fit, fitted)
    assert _end(fit, [], fitted) == 0
    said = capsys.readouterr().out
    assert "\n2 chains of 30 draws after 40 steps of warm-up\n" in said
    assert "were hidden" not in said
    assert build_parser().parse_args(["fit", "davis", "--check", "0.1"]).check == 0.1
    _tell(hidden := with_hidden(fit), fitted)
    assert f"\n{hidden.held_out}\n" in capsys.readouterr().out


def with_hidden(fit):
    """The fit, as if entries had been hidden from a first one."""
    found = HeldOut(
        share=0.1, num_entries=25, explained=0.1, explained_error=0.05, baseline="columns",
        log_score=-0.5, baseline_score=-0.7, calibration_error=0.1, error_by_chance=0.2,
        complete=True,
    )  # fmt: skip
    return dataclasses.replace(fit, settings={**fit.settings, "held_out": found.stored()})


def test_a_tenth_that_was_hidden_is_in_the_verdict_the_page_and_the_files(tmp_path):
    """Of a fit whose chains went on with all entries."""
    few = {"num_chains": 2, "num_warmup": 40, "num_samples": 30, "progress": False}
    fit = bmfjax.fit("davis", 2, model="relaxed", check=0.1, **few)
    found = fit.held_out
    assert found.num_entries == 25 and found.complete and fit.data.num_missing == 0
    # The verdict rests on the one of the two estimates that has the smaller error.
    surest = min((found, fit.check()), key=lambda one: one.explained_error)
    assert fit.figures.explained == surest.explained
    assert found.explained != fit.check().explained
    fit.save(tmp_path / "fit")
    again = bmfjax.Fit.load(tmp_path / "fit")
    # NaN is no calibration error, and unlike itself.
    assert again.held_out.stored() == found.stored() and str(again.verdict) == str(fit.verdict)
    assert html.escape(str(found)) in page.render(again)
    summary = json.loads((tmp_path / "fit" / "summary.json").read_text())
    assert summary["settings"]["held_out"] == found.stored()
    assert summary["settings"]["check"] == 0.1


def test_summary_says_what_was_fitted(fitted):
    summary = json.loads((fitted / "summary.json").read_text())
    assert summary["data"]["fingerprint"] == bmfjax.load("davis").fingerprint()
    assert summary["settings"]["rank"] == 2
    assert set(summary["versions"]) >= {"bmfjax", "jax", "numpyro", "python"}
    page, judged = html.unescape((fitted / "report.html").read_text()), summary["judged"]
    parts = [judged[part]["said"] for part in ("predictions", "factors", "number")]
    assert all(said[1:] in page and said in summary["verdict"] for said in parts)
    assert summary["scalars"]["complete"] is True


def test_ratings_are_read_line_by_line_as_the_page_has_them(
    tmp_path, capsys, monkeypatch, quick_page
):
    lines = [line.strip() for line in PAGE.read_text().splitlines()]
    write = next(line for line in lines if line.startswith("printf"))
    fit = next(line for line in lines if line.startswith("bmfjax fit films.csv"))
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-c", write], check=True)
    words = [*shlex.split(fit)[1:], *QUICK[2:]]
    assert run(*words, "--scale", 1, 3) == 2
    assert "outside the scale from 1 to 3" in capsys.readouterr().err
    assert not (tmp_path / "films").exists()
    # Of its own, the smaller side of three users and films, where the page gives one.
    words.remove("--rank"), words.remove("1")
    assert run(*words, *STARTS) == 3
    out = capsys.readouterr().out
    assert "pmf model, rank 3 by default" in out
    assert "their number is 3 by default" in " ".join(out.split())
    fit = bmfjax.Fit.load(tmp_path / "films")
    assert fit.verdict.number.default == 3 and not fit.verdict.number.given
    judged = json.loads((tmp_path / "films" / "summary.json").read_text())["judged"]
    assert (judged["number"]["default"], judged["number"]["given"]) == (3, False)
    assert fit.data.scale == (1, 5) and fit.data.column_names == ("Heat", "Me, Myself", "Alien")
    assert run("fit", "davis", *QUICK, "--scale", 0, 1, "--output", tmp_path / "no") == 2
    assert "--scale belongs to models of ratings" in capsys.readouterr().err


#: Where chains start, for which no sampler is compiled: the command ends with 3.
STARTS = ["--max-time", 0.001]


def test_models_and_options_of_samplers_are_passed_on(tmp_path, capsys, quick_page):
    model = ["--model", "logistic", "--sampler", "svi", "--effects", "columns"]
    option = ["--option", "sampling=uniform", "--option", "step_entries=3000"]
    option += ["--prior-value", "scale=0.5"]
    words = [*QUICK, *STARTS, *model, *option, "--output", tmp_path / "out"]
    assert run("fit", "davis", *words, "--export", "csv") == 3
    told = capsys.readouterr()
    assert "logistic model, rank 2" in told.out and "nothing was drawn that" in told.err
    assert not (tmp_path / "out" / "factors.csv").exists()
    settings = json.loads((tmp_path / "out" / "summary.json").read_text())["settings"]
    assert settings["sampler_options"] == {"sampling": "uniform", "step_entries": 4096}
    assert settings["priors"]["column_effects"] and not settings["priors"]["row_effects"]
    assert settings["priors"]["scale"] == 0.5


def test_a_directory_that_holds_a_fit_is_refused_before_anything_is_loaded(
    tmp_path, capsys, monkeypatch
):
    def loads(_):
        raise InputError("it loads")

    monkeypatch.setattr("bmfjax.cli.say", loads)
    summary = tmp_path / "summary.json"
    words = ["fit", "davis", "--output", str(tmp_path)]
    held = json.dumps({"verdict": {}, "model": "pmf", "sampler": "gibbs"})
    for text, more, refused in (
        (held, [], True), (held, ["--overwrite"], False), (held, ["--resume"], False),
        (held, ["--chain", "1/2"], False), ("{}", [], False), ("3", [], False), ("{", [], False),
    ):  # fmt: skip
        summary.write_text(text)
        assert main([*words, *more]) == 2
        said = "already holds a fit (summary.json); give another directory, or --overwrite"
        assert (said if refused else "it loads") in capsys.readouterr().err


def test_an_existing_fit_is_kept_unless_told(fitted, capsys):
    before = {p.name: p.stat().st_mtime_ns for p in fitted.iterdir()}
    assert run("fit", "davis", *QUICK, "--output", fitted) == 2
    assert "already holds a fit" in capsys.readouterr().err
    # A refusal after --overwrite must not have removed anything either.
    assert run("fit", "davis", "--rank", 99, "--output", fitted, "--overwrite") == 2
    assert {p.name: p.stat().st_mtime_ns for p in fitted.iterdir()} == before


def test_generated_files_hold_their_truth(tmp_path, capsys):
    tiles, product = tmp_path / "tiles.npz", tmp_path / "product.npz"
    size = ["--rows", 128, "--columns", 128, "--rank", 10]
    assert run("generate", "tiles", *size, "--noise", 0.0, 0.0, "--output", tiles) == 0
    assert run("generate", "product", *size, "--flip", 0.1, "--output", product) == 0
    for path, flipped in ((tiles, 0.0), (product, 0.1)):
        truth = bmfjax.data.load_truth(path)
        data = bmfjax.load(path)
        clean = truth.usage.astype(int) @ truth.basis.T.astype(int) > 0
        assert abs((data.dense(bool) != clean).mean() - flipped) < 0.02
    assert "rank 10" in capsys.readouterr().out
    assert run("generate", "tiles", *size, "--output", tiles) == 2
    assert run("generate", "tiles", *size, "--output", tiles, "--overwrite") == 0


def test_a_word_that_is_nearly_right_is_told_the_right_one(capsys):
    for words, meant in (
        (["fitt"], "fit"),
        (["fit", "--model", "feature"], "features"),
        (["fit", "--require", "factor"], "factors"),
        (["fit", "--model", "xyz"], None),
        (["fit", "davis", "--rnk", "3"], "--rank"),
        (["fit", "davis", "--k", "3"], "--rank"),
        (["fit", "davis", "--n-components=3"], "--rank"),
        (["fit", "davis", "--num-samples", "3"], "--samples"),
        (["fit", "davis", "--random-state", "3"], "--seed"),
        (["fit", "davis", "--factors", "3"], "--rank"),
        (["fit", "davis", "--iter", "3"], "--samples"),
        (["generate", "product", "--rnk=3", "--output", "x"], "--rank"),
    ):
        with pytest.raises(SystemExit):
            build_parser().parse_args(words)
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and ("invalid choice" in said) is not str(meant).startswith(
            "--"
        )
        assert (f"; did you mean {meant!r}?" in said) == (meant is not None) == ("did" in said)
    with pytest.raises(SystemExit):
        build_parser().parse_args(["fit", "--binarize", "5s"])
    assert "'5s' is no number; give one; bmfjax fit" in capsys.readouterr().err


def test_numbers_out_of_bounds_are_refused_by_their_option_when_it_is_read(capsys):
    fit, product = ["fit", "davis"], ["generate", "product", "--output", "x.npz"]
    whole, share = "whole number of at least", "number between 0 and 1"
    for words, option, fine, wrong, what in (
        (fit, "--rank", "1", "0 -2 three 2.5", f"{whole} 1"),
        (fit, "--max-rank", "1", "0", f"{whole} 1"),
        (fit, "--chains", "1", "0 x", f"{whole} 1"),
        (fit, "--warmup", "0", "-1", f"{whole} 0"),
        (fit, "--samples", "4", "-1 3", f"{whole} 4"),
        (fit, "--seed", "4294967295", "-1 4294967296", "whole number from 0 to 4294967295"),
        (fit, "--max-time", "inf", "0 -5 nan 5s", "number above 0"),
        (fit, "--mc-error", "0.05", "0 0.06", "number above 0 and up to 0.05"),
        (fit, "--check", "0.5", "0 2", "number above 0 and up to 0.5"),
        (fit, "--fdr", "0.5", "0 1.5", share),
        (["rank"], "--hidden", "0.5", "0 1", share),
        (["predict", "x", "--cells", "y"], "--level", "0.5", "0 2", share),
        (["recommend", "x"], "-k", "1", "0", f"{whole} 1"),
        (["compare", "x"], "--entries", "2", "1", f"{whole} 2"),
        (product, "--rows", "1", "0", f"{whole} 1"),
        (product, "--flip", "1", "1.5", "number from 0 to 1"),
    ):
        parser = build_parser()
        name = option.lstrip("-").replace("-", "_")
        assert getattr(parser.parse_args([*words, option, fine]), name) == float(fine)
        for text in wrong.split():
            with pytest.raises(SystemExit) as stop:
                parser.parse_args([*words, option, text])
            auto = ", or auto" * (option in ("--rank", "--warmup", "--samples"))
            said = capsys.readouterr().err
            assert stop.value.code == 2 and said.count("\n") == 1
            assert f"argument {option}: {text!r} is no {what}; give one{auto}; bmfjax" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "no-such.csv"], "no-such.csv"),
        (["fit", "house-vote"], "house-votes"),
        (["fit", "davis", "--rank", "15"], "from 1 to 14"),
        (["fit", "davis", "--model", "relaxed", "--precision", "-1"], "precision is -1.0"),
        (["fit", "davis", "--precision", "2"], "--precision belongs to relaxed, nmf, pmf"),
        (
            ["fit", "davis", "--model", "relaxed", "--flip-rates", "2"],
            "belongs to ormachine",
        ),
        (["fit", "davis", "--sampler", "iasg"], "model 'features' has gibbs"),
        (["fit", "davis", "--resume"], "no interrupted fit to resume"),
        ([*RELAXED, "--batch-size", "0", "--sampler", "iasg"], "give a whole number of at least 1"),
        ([*RELAXED, "--batch-size", "5"], "'gibbs' of model 'relaxed' has no option 'batch_size'"),
        (["fit", "davis", "--effects", "rows"], "--effects belongs to logistic, pmf"),
        (["fit", "davis", "--option", "moves"], "--option moves has no name and value"),
        (
            [*RELAXED, "--sampler", "iasg", "--option", "scale_likelihood=False"],
            "does not fit the curvature",
        ),
        (["fit", "davis", "--option", "moves=leap"], "is 'leap'; choose from"),
        (["fit", "davis", "--option", "num_anneal=[1]"], "num_anneal is [1]"),
        (["fit", "davis", "--option", "x=1", "--option", "x=2"], "x is given twice"),
        (["fit", "davis", "--prior-value", "scale"], "--prior-value scale has no name and value"),
        (
            ["fit", "davis", "--prior-value", "scale=2"],
            "model 'features' has no 'scale'; it has",
        ),
        (
            ["fit", "davis", "--flip-rates", "2", "--prior-value", "num_rates=1"],
            "--prior-value num_rates is given by another option as well",
        ),
        (["fit", "bad.csv"], "2"),
        (["fit", "empty.csv"], "empty.csv"),
        (["fit", "cut.npz"], "cut.npz"),
        (["report", "."], "holds no fit"),
        (["report", "nofit"], "nofit does not exist; give a directory of bmfjax fit"),
        (["generate", "tiles", "--rank", "900", "--output", "x.npz"], "900"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b\n1,0\n2,1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 not the rest")
    before = sorted(tmp_path.iterdir())
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("bmfjax: ") and message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_running_out_of_time_is_no_failure(tmp_path, capsys, monkeypatch, quick_page):
    # The same at every look, on any machine.
    for module in ("cli", "infer.run", "clock", "families.sampling"):
        set_clock(monkeypatch, functools.partial(next, itertools.count(0.0, 0.25)), [module])
    set_clock(monkeypatch, lambda: 0.0, ["kernels.numerics.compiling"])
    # Whoever waits for a compilation asks the clock as often as it takes long.
    monkeypatch.setattr("bmfjax.kernels.numerics.compiling.ASKED_SECONDS", 600.0)
    out = tmp_path / "out"
    # Steps of the warm-up as below, and more draws than the device holds: the same program.
    arguments = [*LONG[:-1], 20_000, "--max-time", 22]
    assert run("fit", "davis", *arguments, "--output", out) == 0
    found = bmfjax.Fit.load(out)
    drawn = found.figures.num_draws
    said = f"the time was up (--max-time) after {drawn:,} of 20,000 draws a chain"
    assert said in capsys.readouterr().err
    assert 4 <= drawn < 20_000 and found.usage_draws.shape[1] >= min(drawn, 125)
    assert not found.figures.complete and found.figures.timed_out
    assert found.verdict.notes[0] == f"the time was up after {drawn:,} of 20,000 draws a chain"


def test_datasets_lists_what_ships(capsys):
    assert run("datasets") == 0
    out = capsys.readouterr().out
    assert all(d.name in out for d in bmfjax.datasets())


def test_a_part_that_is_required_decides_the_exit_code(tmp_path):
    figures = Figures(num_chains=4, exact=True, factors_agreeing=0.5, complete=True)
    result = types.SimpleNamespace(figures=figures, verdict=Verdict(figures))
    for required, code in (
        (None, 0), ("all", 4), ("predictions", 0), ("factors", 4), ("number", 0),
    ):  # fmt: skip
        assert _end(result, [], tmp_path, (), required) == code
        assert _end(result, ["report.html"], tmp_path, (), required) == 3
    assert build_parser().parse_args(["fit", "--require", "all"]).require == "all"


def test_modes_are_searched_only_where_chains_differ():
    """To look whether a fit has them must not search them, which may take longer than the draws."""

    class Result:
        figures, _has_modes = Figures(converged=True), True

        @property
        def modes(self):
            raise AssertionError("modes were searched")

    assert not _has_modes(Result())
    Result.figures = Figures(converged=False)
    assert _has_modes(Result())
    assert not _has_modes(types.SimpleNamespace(figures=Result.figures, _has_modes=False))
    for name in FAMILIES:
        kind = bmfjax.Fit._of_model(name)
        assert kind._has_modes == hasattr(kind, "modes")


def test_a_command_says_when_it_stopped_and_what_is_kept_for_the_report():
    with clock_running() as clock:
        assert _kept_back() == ""
        clock.ended = 31.7, 8.2
        said = _kept_back()
        assert said == " (sampling ended at 0:31, and 8 s were kept for the report)"
        progress.say("loading")
        clock.limit = clock.spent - 40.0  # and nothing was done after the end
        assert _kept_back().endswith(", and the command ended 0:40 after the limit)")


@pytest.mark.parametrize("drew", [True, False])
def test_a_command_says_what_it_did_after_the_limit(monkeypatch, drew):
    now = types.SimpleNamespace(wall=0.0)
    monkeypatch.setattr("bmfjax.clock.time.monotonic", lambda: now.wall)
    work = "sampling" if drew else "compiling the sampler"
    with clock_running() as clock:
        clock.limit = 60.0
        progress.say("loading")
        now.wall = 2.0
        progress.say(work, "1 of 300")
        now.wall = 61.0
        progress.say(work, "2 of 300")
        clock.note_end()
        now.wall = 64.0
        progress.say("writing the results")
        now.wall, shown = 84.0, progress._Status()
        said, shown.phase = _kept_back(drew), "writing the results"
        assert shown.text == "1:24, 0:24 over the limit  writing the results"
        began = "sampling ended" if drew else f"{work} was given up"
        assert said == (
            f" ({began} at 1:01, and the command ended 0:24 after the limit: ending {work} 3 s, "
            "writing the results 20 s)"
        )


def test_what_is_still_compiled_leaves_the_processor_to_the_report(monkeypatch):
    """The threads that compile and no others, even where one of them ends meanwhile."""
    put_back, over, compile = {}, threading.Event(), []

    def put(_, number, priority):
        put_back[number] = priority
        if len(put_back) == 1:
            raise ProcessLookupError

    monkeypatch.setattr(os, "setpriority", put, raising=False)
    monkeypatch.setattr(compiling, "_compiling", set())
    compiling.let_compilations_wait()
    assert put_back == {}
    late = [
        compiling.Compilation(lambda: compile.append(threading.get_native_id()) or over.wait(60))
        for _ in range(2)
    ]
    assert not any(one.is_over for one in late)
    compiling.let_compilations_wait()
    over.set()
    assert all(one.program() and one.is_over for one in late)
    on_linux = sys.platform == "linux"
    assert put_back == dict.fromkeys(compile * on_linux, compiling.LOWEST_PRIORITY)


def test_the_report_is_prepared_once_while_something_is_waited_for(monkeypatch):
    done = []
    with clock_running() as clock:
        clock.use_wait()
        clock.meanwhile = lambda: done.append(1)
        clock.use_wait()
        clock.use_wait()
    assert done == [1]
    monkeypatch.setattr("bmfjax.report.style.new_figure", lambda *_: 1 / 0)
    _prepare_page()  # what is wrong is said of the page


# ---- interruption: a process of its own ----------------------------------------------------


@pytest.fixture(scope="module")
def unbroken():
    few = {"num_chains": 2, "num_warmup": 50, "num_samples": 600, "progress": False}
    return bmfjax.fit("davis", rank=2, model="relaxed", **few)


def start(arguments, steps):
    # Small chunks and a checkpoint after each. After so many steps the run waits to be hit.
    code = (
        "import sys, time, bmfjax.families.sampling as job, bmfjax.report.page as page\n"
        "import bmfjax.cli as cli, bmfjax.infer.run as driver\n"
        "from bmfjax.infer.interrupt import is_interrupted\n"
        "job.CHECKPOINT_SECONDS = 0.0\n"
        "page.render = lambda fit: page.PAGE_MARK\n"
        "take = driver.ChainRun.advance\n"
        "def slow(self, n=None):\n"
        f"    while self.steps_done >= {steps} and not is_interrupted():\n"
        "        time.sleep(0.01)\n"
        "    return take(self, min(n or 10, 10))\n"
        "driver.ChainRun.advance = slow\n"
        f"sys.exit(cli.main({[str(a) for a in arguments]!r}))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


def terminated_after(steps):
    """`ChainRun.advance`, which sends SIGTERM to this process after so many steps."""
    advance = ChainRun.advance

    def patched(run, num_steps=None):
        taken = advance(run, min(num_steps or 50, 50))
        if run.steps_done >= steps:
            signal.raise_signal(signal.SIGTERM)
        return taken

    return patched


def newest_part(folder):
    parts = (folder / "checkpoint").glob("part-*.npz")
    return max((int(p.stem[5:]) for p in parts), default=-1)


def wait_for_parts(folder, process, number):
    """Until there are so many parts of a checkpoint more than now."""
    deadline, number = time.monotonic() + 600, newest_part(folder) + number
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        if newest_part(folder) >= number:
            return
        time.sleep(0.02)
    raise AssertionError("no checkpoint was written in time")


@pytest.mark.long
@pytest.mark.usefixtures("signals_of_a_terminal")
def test_killed_terminated_and_interrupted_it_ends_with_the_draws_of_an_unbroken_run(
    tmp_path, unbroken, capsys, monkeypatch, quick_page
):
    """One fit goes on after each: a process costs seconds."""
    folder = tmp_path / "out"
    given = ["fit", "davis", *LONG, "--output", folder]

    process = start(given, 150)
    wait_for_parts(folder, process, 8)
    for more in ([], ["--overwrite"], ["--resume"]):
        assert run(*given, *more) == 2
        assert f"{folder} is in use: process {process.pid} on" in capsys.readouterr().err
    process.kill()
    process.communicate()
    assert not (folder / "summary.json").exists() and (folder / LOCK).exists()
    assert run(*given) == 2
    assert "already holds an interrupted fit (checkpoint)" in capsys.readouterr().err

    # SIGTERM leaves no result, and says how to go on.
    with monkeypatch.context() as patched, warnings.catch_warnings():
        # It may have been killed between the renames of two states: then the earlier one is read.
        warnings.filterwarnings("ignore", ".* is missing or damaged; the fit goes on")
        patched.setattr(ChainRun, "advance", terminated_after(200))
        assert run(*given, "--resume") == 143
    error = capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == {"checkpoint"}
    line = error.splitlines()[-1]
    assert re.search(r"^bmfjax: terminated after [\d,]+ of 600 draws a chain, kept in ", line)
    command = shlex.split(line.partition("to continue: ")[2])
    assert command[:2] == ["bmfjax", "fit"]

    # Damage costs one checkpoint; Ctrl-C keeps what was drawn, as a result.
    state = folder / "checkpoint" / "state.npz"
    state.write_bytes(state.read_bytes()[:-40])
    process = start(command[1:], 400)
    wait_for_parts(folder, process, 4)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=600)
    assert process.returncode == 130, error
    assert f"bmfjax: {state} is missing or damaged; the fit goes on from" in error
    assert "bmfjax: interrupted after" in error and f"results in {folder}" in error
    assert not (folder / LOCK).exists() and not (folder / "checkpoint" / LOCK).exists()
    partial = bmfjax.Fit.load(folder)
    drawn = partial.figures.num_draws
    assert f"{drawn:,} of 600 draws a chain" in error
    assert 4 <= drawn < 600 and partial.figures.complete is False
    assert f"The run was interrupted after {drawn:,} of 600 draws a chain." in str(partial.verdict)
    assert partial.usage_draws.shape[1] >= min(drawn, 125)
    trace = unbroken.trace["log_joint"][:, : 50 + drawn]
    np.testing.assert_array_equal(partial.trace["log_joint"], trace)

    # Another matrix cannot continue it, and its files stay.
    assert run("fit", "zoo", *LONG, "--output", folder, "--resume") == 2
    assert "belongs to another fit: data is" in capsys.readouterr().err
    assert run(*given, "--resume") == 0
    found = bmfjax.Fit.load(folder)
    assert found.figures.thinning == unbroken.figures.thinning > 1
    np.testing.assert_array_equal(found.usage_draws, unbroken.usage_draws)
    np.testing.assert_array_equal(found.trace["log_joint"], unbroken.trace["log_joint"])


@pytest.mark.usefixtures("signals_of_a_terminal")
def test_ctrl_c_while_modules_load_is_one_line(capsys, monkeypatch):
    def interrupted(models):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("bmfjax.cli.build_parser", interrupted)
    assert run("fit", "davis") == 130
    assert capsys.readouterr().err == "bmfjax: interrupted before anything was done\n"


def test_a_full_disk_behind_the_standard_output_is_named():
    code = "import sys; from bmfjax.cli import main; sys.exit(main(['datasets']))"
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert found.returncode == 2
    assert found.stderr == "bmfjax: cannot use the standard output: No space left on device\n"


@pytest.mark.usefixtures("signals_of_a_terminal")
def test_a_terminal_that_is_gone_ends_no_run(monkeypatch, capsys):
    """SIGHUP comes where a terminal goes, which then takes no line and no bar."""

    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    def terminated(*args, **kwargs):
        with progress.status_line():
            progress.say("reading")
        signal.raise_signal(signal.SIGHUP)

    monkeypatch.setattr("bmfjax.cli._read", terminated)
    monkeypatch.setattr(sys, "stderr", Gone())
    assert run("fit", "davis", *QUICK) == 129


def test_sigterm_before_the_sampling_is_one_line_too(tmp_path, capsys, monkeypatch):
    def terminated(*args, **kwargs):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("bmfjax.families.sampling.Checkpoint", terminated)
    given = ["fit", "davis", *QUICK, "--quiet", "--over", "--output", tmp_path / "out"]
    assert run(*given) == 143
    assert capsys.readouterr().err == "bmfjax: terminated before the sampling\n"
    monkeypatch.setattr("bmfjax.cli._read", terminated)
    assert run(*given) == 143
    assert capsys.readouterr().err == "bmfjax: terminated before anything was done\n"


@pytest.mark.parametrize(("code", "ends"), [(0, "finalised"), (2, "finalised"), (143, "")])
def test_a_command_that_a_signal_ended_leaves_the_interpreter_as_it_is(code, ends):
    """Threads that compile crash in one that is taken apart."""
    program = (
        "import atexit; from bmfjax import cli; atexit.register(print, 'finalised')\n"
        f"cli.main = lambda **_: print('told ', end='') or {code}\ncli.run()"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.returncode, found.stdout.strip()) == (code, f"told {ends}".strip())


def test_the_most_factors_that_are_allowed_count_where_a_model_is_chosen(monkeypatch):
    asked = []

    def default_of(data, *given):
        asked.append(given)
        return types.SimpleNamespace(model="features", why="")

    monkeypatch.setattr(families, "default_of", default_of)
    for more in ([], ["--max-rank", "3"]):
        options = build_parser().parse_args(["fit", "table.csv", "--rank", "auto", *more])
        _choose_model(options, None)
        assert options.model == "features"
    assert [given[:2] for given in asked] == [("auto", None), ("auto", 3)]
