"""The command for an accelerator: a phase that fails or hangs leaves what it has found."""

import importlib
import json
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

#: In place of the phases: finds something, and then ends, fails or hangs.
PROGRAM = """
import os, sys, time, json
name, path = sys.argv[1:]
found = {"platform": "gpu", "kind": "NVIDIA H100 80GB HBM3"} if name == "device" else {"a": 1}
open(path + ".new", "w").write(json.dumps(found))
os.replace(path + ".new", path)
if name == "votes": raise RuntimeError("out of memory")
if name == "first answer": time.sleep(600)
if name == "ratings": open(path, "w").write("{half")
"""


class Begun(subprocess.Popen):
    """A process whose seconds count from when it has found something: some begin slowly."""

    def wait(self, timeout=None):
        while timeout is not None and self.poll() is None and not Path(self.args[-1]).exists():
            time.sleep(0.01)
        return super().wait(timeout)


@pytest.fixture
def accelerator(monkeypatch, tmp_path):
    module = importlib.import_module("benchmarks.speed.accelerator")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(module, "PROGRAM", program)
    monkeypatch.setitem(
        module.PHASES, "first answer", module.PHASES["first answer"]._replace(seconds=0.5)
    )
    names = {"STDOUT": subprocess.STDOUT, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(module, "subprocess", types.SimpleNamespace(Popen=Begun, **names))
    return module


def test_phases_that_fail_or_hang_leave_their_message_and_what_they_found(
    accelerator, monkeypatch, tmp_path, capsys
):
    chosen = ["--only", "votes", "first answer", "ratings", "starts", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["accelerator.py", *chosen, "--commit", "abc1234"])
    accelerator.main()
    record = json.loads((tmp_path / "accelerator_h100.json").read_text())
    ends = record["figures"]["phases"]
    assert list(ends) == ["device", "votes", "ratings", "starts", "first answer"]
    assert "RuntimeError: out of memory" in ends["votes"]["stopped"]
    assert (
        ends["first answer"]["stopped"] == "at its limit" and ends["first answer"]["seconds"] < 600
    )
    assert "stopped" not in ends["starts"]
    assert [record["figures"][n] for n in ("starts", "votes", "first answer")] == [{"a": 1}] * 3
    assert record["figures"]["ratings"] == {}
    assert record["device"]["kind"] == "NVIDIA H100 80GB HBM3" and record["commit"] == "abc1234"
    assert "abc1234" not in record["command"]
    assert "no page was written: TypeError" in capsys.readouterr().out  # of such figures


def test_no_phase_begins_when_the_time_is_over(accelerator, monkeypatch, tmp_path, capsys):
    chosen = ["--only", "votes", "--limit", "5", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["accelerator.py", *chosen])
    accelerator.main()
    (path,) = tmp_path.glob("accelerator_*.json")
    ends = json.loads(path.read_text())["figures"]["phases"]
    assert {end["stopped"] for end in ends.values()} == {"not begun: no time was left"}


def test_a_page_of_the_accelerator_tells_errors(accelerator):
    tables = importlib.import_module("benchmarks.pages")
    found = {"boolean": {"large": {"error": "MemoryError: needs 9 GB"}}, "phases": {}}
    found |= {"tests": {"tests": {"finished": True, "passed": 7, "not passed": ["a.py::b"]}}}
    record = {"figures": found, "device": {"kind": "NVIDIA H100"}, "command": "c", "date": "d"}
    text = tables.text_of(tables.PAGES["accelerator"], {"accelerator_h100": record})
    assert "| large | MemoryError: needs 9 GB |" in text
    assert "7 passed. Not passed: `a.py::b`." in text


def test_records_are_named_by_the_device(accelerator):
    kinds = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "cpu", "TPU v5 lite")
    assert [accelerator.slug(kind) for kind in kinds] == ["h100", "h200", "cpu", "tpu_v5_lite"]
