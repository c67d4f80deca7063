"""Every record has one form, and says which code it measured."""

import importlib
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import device, pages, stale
from benchmarks.record import Record, join

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORDS = {p.stem: json.loads(p.read_text()) for p in (BENCHMARKS / "results").glob("*.json")}
FILE = "bmfjax/infer/mcmc/iasg.py"


def test_every_record_has_the_form():
    assert len(RECORDS) > 100
    for name, record in RECORDS.items():
        try:
            made = Record(**record)
        except (TypeError, ValueError) as error:
            pytest.fail(f"{name}: {error}")
        assert made.script in stale.scripts(), name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"date": "27.11.2026"}, "date is '27.11.2026', which no record has"),
        ({"commit": "main"}, "commit is 'main'"),
        ({"command": "iasg_memory.py"}, "command is 'iasg_memory.py'"),
        ({"device": {"kind": "cpu"}}, "name kind, platform, cores, machine"),
        ({"versions": {}}, "name python, bmfjax and jax"),
        ({"figures": {}}, "there are no figures"),
        ({"code": {FILE: "abc"}}, "which is no file with its hash"),
    ],
)
def test_what_has_another_form_is_refused(changed, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Record(**(RECORDS["iasg_memory"] | changed))
    with pytest.raises(TypeError, match="minutes"):
        Record(**RECORDS["iasg_memory"], minutes=3)


def test_the_code_of_a_script_is_that_of_its_sampler():
    files = stale.files_of("iasg_memory")
    assert "bmfjax/infer/mcmc/iasg.py" in files
    assert not any("/boolean/" in file or "/report/" in file for file in files)
    # Whole fits, of one kind of model: nothing of the others.
    fits = stale.files_of("recommend_speed")
    assert any("/kernels/ratings/" in file for file in fits)
    assert not any("/kernels/boolean/" in file for file in fits)


#: What git says of a file of which three lines have changed, and of one that has moved.
DIFF = f"2\t1\t{FILE}\x000\t0\t\x00bmfjax/old.py\x00bmfjax/new.py\x004\t0\tbmfjax/other.py\0"
ALL = len(Path(stale.ROOT / FILE).read_text().splitlines())


@pytest.mark.parametrize(
    ("script", "told", "code", "found"),
    [
        ("iasg_memory", None, {}, None),  # no commit, no hash: nobody knows
        ("iasg_memory", None, {FILE: stale.hashed(FILE)}, {}),
        ("iasg_memory", None, {FILE: "0" * 12}, {FILE: ALL}),
        ("iasg_memory", DIFF, {FILE: "0" * 12, "bmfjax/old.py": "0" * 12}, {FILE: 3}),
        ("iasg_memory", DIFF, {}, {FILE: 3}),
        ("iasg_memory", "", {}, {}),
        ("a script that is gone", DIFF, {}, None),
    ],
)
def test_a_record_is_as_stale_as_its_code_has_changed(monkeypatch, script, told, code, found):
    stale.changed_lines.cache_clear()
    monkeypatch.setattr(stale, "_git", lambda *words: told)
    assert stale.changed(script, "abc1234 with changes", code) == found
    stale.changed_lines.cache_clear()


@pytest.mark.parametrize(
    ("asked", "run"),
    [
        (["iasg_memory", "--help"], ["iasg_memory.py", "--help"]),
        (["tile_fdr"], ["tile_fdr.py", "--runs", "200"]),
        (
            ["nmf_coverage_small"],
            [
                "nmf_coverage.py",
                "--only",
                "small, one mode",
                "small, two modes",
                "small, infinite modes",
                "--name",
                "nmf_coverage_small",
            ],
        ),
        (["ormachine_speed_h200"], ["ormachine_speed.py", "--device", "gpu", "--rounds", "7"]),
    ],
)
def test_scripts_run_by_name_and_records_as_they_were_made(monkeypatch, asked, run):
    began, run_path = [], runpy.run_path
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--run", *asked])
    monkeypatch.setattr(runpy, "run_path", lambda path, run_name: began.extend(sys.argv))
    run_path(str(BENCHMARKS), run_name="__main__")
    assert [Path(began[0]).name, *began[1:]] == run


class Read(Exception):
    """The options of a script were read."""


def test_the_command_of_every_record_is_one_that_its_script_takes(monkeypatch, capsys):
    def read(parser):
        parser.add_argument("--device")
        parser.parse_args()
        raise Read

    monkeypatch.setattr(device, "parse", read)
    refused = {}
    for name, record in RECORDS.items():
        _, _, module, *options = shlex.split(pages.command_now(record["command"]))
        monkeypatch.setattr(sys, "argv", [module, *options])
        try:
            importlib.import_module(module).main()
        except Read:
            continue
        except SystemExit:
            refused[name] = capsys.readouterr().err.splitlines()[-1].partition("error: ")[2]
    # XLA's division of loops can no longer be switched off alone.
    assert refused == {"pmf_speed_2_threads_undivided": "unrecognized arguments: --undivided"}


def test_what_no_script_or_record_is_called_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--run", "nothing"])
    with pytest.raises(SystemExit, match="no script or record is called nothing"):
        runpy.run_path(str(BENCHMARKS), run_name="__main__")


def test_parts_of_whole_rows_are_mixed_as_draws_of_all_fits_are():
    from benchmarks.prediction.whole_rows import mixtures

    one, two = [[-1.0, -2.0], [-3.0, -1.5]], [[-2.0, -5.0], [-1.0, -4.0]]
    runs = [{"set": "nltcs", "rank": 8, "scores": scores} for scores in (one, two)]
    alone = {"set": "nltcs", "rank": 10, "scores": one}
    (found,) = mixtures([*runs, alone])
    assert (found["rank"], found["fits"]) == (8, 2)
    for name, parts in zip(("validation", "test"), zip(one, two, strict=True), strict=True):
        expected = np.log(np.exp(parts).mean(0)).mean()
        assert found[name][0] == pytest.approx(expected, abs=1e-4)


def test_parts_of_planted_features_keep_every_fit_of_a_matrix():
    from benchmarks.rank.planted_features import joined, least_to_most

    def part(seed, commit, **of):
        run = {"seed": seed, "commit": commit, "cpu_seconds": 2.0, **of}
        return {"runs": {"tiles": [run], "positive": []}}

    one, less, other = {"features": {"found": 3}}, {"features": {"found": 1}}, {"two rates": {}}
    parts = [part(3, "a", **one), part(1, "a", **one), part(3, "b", **less), part(3, "b", **other)]
    runs = joined(parts)["tiles"]
    assert [run["seed"] for run in runs] == [1, 3, 3, 3]
    assert [run for run in parts[2]["runs"]["tiles"] if run in runs]
    fits = [run for run in runs if "features" in run]
    for order in (fits, fits[::-1]):
        assert least_to_most(order, "features", "found") == "4 to 6"
    assert least_to_most(fits[:1], "features", "found") == "3"
    with pytest.raises(ValueError, match="two parts hold the same run: tiles, seed 1"):
        joined([*parts, parts[1]])
    same, changed = (part(3, commit, matrix=m, **one) for commit, m in (("c", 1), ("d", 2)))
    assert len(joined([*parts, same])["tiles"]) == 5
    with pytest.raises(ValueError, match="two parts have other matrices of tiles, seed 3"):
        joined([*parts, same, changed])


def test_a_record_of_parts_says_where_each_was_made(tmp_path, monkeypatch):
    from benchmarks import record

    monkeypatch.setattr(record, "write_pages", lambda *_, **__: None)
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, commit in zip(paths, ("abc1234", "def5678"), strict=True):
        made = RECORDS["whole_rows"] | {"benchmark": path.stem, "commit": commit}
        path.write_text(json.dumps(made))
    written = record.write_joined("whole_rows", paths, {"runs": [1]}, tmp_path)
    found = json.loads(written.read_text())
    assert (found["benchmark"], found["commit"]) == ("whole_rows", "abc1234")
    assert found["device"] == RECORDS["whole_rows"]["device"] and found["figures"]["runs"] == [1]
    parts = [(part["part"], part["commit"]) for part in found["figures"]["parts"]]
    assert parts == [("one", "abc1234"), ("other", "def5678")]


def test_tiles_are_found_from_what_is_known_as_far_as_the_noise_allows():
    from benchmarks.rank import planted_features as study

    ones, usage, basis, *_ = study.tiles_of(0)
    true = study._both(usage, basis)
    assert (study.jaccard(true, true).diagonal() == 1).all()
    exact = usage @ basis.T.astype(int) > 0
    found = study._both(*study.tiles_when_known(exact, usage, basis, 0.99, 0.01))
    assert study.jaccard(true, found).diagonal().min() > 0.95
    noisy = study._both(*study.tiles_when_known(ones, usage, basis, 0.5, 0.499))
    assert study.jaccard(true, noisy).diagonal().max() < 0.5


def part(percent: str, figures: dict, **changed) -> dict:
    """A record of a share."""
    command = f"python benchmarks/prediction/movielens.py ml-1m --splits 1 --percent {percent}"
    figures = {"splits": 1, "observed_percent": {percent: figures}}
    return RECORDS["iasg_memory"] | {"command": command, "figures": figures} | changed


def test_parts_of_a_record_become_one():
    parts = [part("1", {"right": 0.6}), part("95", {"right": 0.7}, date="2100-01-01")]
    made = Record(**join("movielens_1m", parts))
    assert made.figures == {
        "splits": 1, "observed_percent": {"1": {"right": 0.6}, "95": {"right": 0.7}}
    }  # fmt: skip
    assert made.command.endswith("ml-1m --splits 1 --percent 1 95")
    assert (made.benchmark, made.date) == ("movielens_1m", "2100-01-01")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"commit": "abc1234"}, "differ in their commit"),
        ({"figures": {"splits": 2}}, "figures, splits differ: 1 and 2"),
        ({"command": "python benchmarks/scale/kills.py"}, "of several scripts"),
    ],
)
def test_records_that_are_no_parts_of_one_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        join("movielens_1m", [part("1", {}), part("5", {}) | changed])
