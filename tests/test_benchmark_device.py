"""Every benchmark takes `--device`; one that is not there is refused, and one that is, is used."""

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

import jax
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
#: What runs nothing in JAX.
WITHOUT_JAX = {"__main__", "device"}


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "")
    before = jax.config.jax_platforms
    yield importlib.import_module("benchmarks.device")
    jax.config.update("jax_platforms", before)


def test_every_script_that_parses_options_takes_a_device():
    for path in BENCHMARKS.glob("**/*.py"):
        text = path.read_text()
        if path.stem not in WITHOUT_JAX:
            assert "ArgumentParser(" not in text and "parse_args(" not in text, path.name


def test_an_option_is_its_default_its_type_or_some_of_several(device, monkeypatch, capsys):
    options = {
        "rank": 10, "share": (0.5, "of all"), "warmup": int, "quick": False, "sizes": [1, 2],
        "kinds": device.some({"a": 1, "b": 2}), "max_time": (float, "seconds"),
    }  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["script.py", "zoo"])
    found = vars(device.command_line("Ask.", {"data": Path}, **options))
    names = ("data", *options, "output")
    expected = [Path("zoo"), 10, 0.5, None, False, [1, 2], ["a", "b"], None, None]
    assert [found[name] for name in names] == expected
    words = "zoo --rank 3 --share 1 --warmup 7 --quick --sizes 5 --kinds b --max-time 2 --output x"
    monkeypatch.setattr(sys, "argv", ["script.py", *words.split()])
    found = vars(device.command_line("Ask.", {"data": Path}, **options))
    expected = [Path("zoo"), 3, 1.0, 7, True, [5], ["b"], 2.0, Path("x")]
    assert [found[name] for name in names] == expected
    for wrong in (["zoo", "--kinds", "c"], ["zoo", "--rank", "much"], []):
        monkeypatch.setattr(sys, "argv", ["script.py", *wrong])
        with pytest.raises(SystemExit):
            device.command_line("Ask.", {"data": Path}, **options)
    assert "invalid choice: 'c'" in capsys.readouterr().err


def test_a_script_writes_its_record_whenever_it_has_more(device, monkeypatch, tmp_path, capsys):
    written = []

    def write_record(name, figures, folder, *, commit=None):
        written.append((name, dict(figures), folder, commit))
        return folder / f"{name}.json"

    monkeypatch.setattr("benchmarks.record.write_record", write_record)

    @device.script("Ask.", child=lambda options: {"twice": 2 * options.one}, one=int, commit=str)
    def parts(options):
        yield {"a": 1}
        options.record += "_whole"
        yield {"a": 1, "b": device.held(options)}

    @device.script("Ask.")
    def whole(options):
        return {"c": 3}

    folder, stem = tmp_path / "new", Path(__file__).stem
    monkeypatch.setattr(sys, "argv", ["script.py", "--output", str(folder), "--commit", "abc1234"])
    parts()
    last = {"a": 1, "b": {}}
    assert [*written] == [
        (name, figures, folder, "abc1234")
        for name, figures in ((stem, {"a": 1}), (f"{stem}_whole", last))
    ]
    (folder / f"{stem}_whole.json").write_text(json.dumps({"figures": last}))
    parts()
    assert written[-1][1]["b"] == last
    monkeypatch.setattr(sys, "argv", ["script.py", "--output", str(folder)])
    whole()
    assert written[-1] == (stem, {"c": 3}, folder, None)
    written.clear()
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["script.py", "--one", "4"])
    parts()
    assert json.loads(capsys.readouterr().out) == {"twice": 8} and not written


def test_a_device_that_is_not_there_is_refused(device, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script.py", "--device", "tpu"])
    monkeypatch.setattr(device, "_PROBE", "raise SystemExit(1)")  # as where JAX finds none
    with pytest.raises(SystemExit):
        device.parse(argparse.ArgumentParser())
    told = capsys.readouterr().err
    assert "--device is tpu, and JAX finds no TPU here; run where there is one, or leave" in told
    assert os.environ["JAX_PLATFORMS"] == ""
    with pytest.raises(RuntimeError, match=r"no GPU here; install bmfjax\[cuda12\]"):
        device.use("gpu")


def test_a_device_is_used_here_and_in_processes_that_follow(device, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script.py", "--device", "cpu"])
    assert device.parse(argparse.ArgumentParser()).device == "cpu"
    assert os.environ["JAX_PLATFORMS"] == jax.config.jax_platforms == "cpu"
    record = importlib.import_module("benchmarks.record")
    assert record._asked() == "cpu"


def test_what_a_script_finds_in_a_process_of_its_own(device, monkeypatch, tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, json, time\n"
        "print('on the way')\n"
        "if sys.argv[1] == 'fail': raise ValueError('no such set')\n"
        "time.sleep(float(sys.argv[2]))\n"
        "print(json.dumps({'asked': sys.argv[1:]}))\n"
    )
    monkeypatch.setattr(sys, "argv", [str(script), "--rank", "3"])
    assert device.apart("one", 0) == {"asked": ["one", "0"]}
    assert device.apart("fail", failed="stopped")["stopped"].endswith("ValueError: no such set")
    assert device.apart("one", 60, patience=0.2) == {"not_run": "given up after 0.2 s"}
    with pytest.raises(SystemExit):
        device.apart("fail")
    assert "no such set" in capfd.readouterr().err
