"""What memory there is, also in a control group, and the refusal of what needs more."""

from pathlib import Path

import psutil
import pytest

from bmfjax.data import InputError, memory


def group(folder: Path, limit: str, used: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\n")


def test_what_is_available_is_positive_and_no_more_than_there_is():
    assert 0 < memory.available_memory() <= psutil.virtual_memory().total


def test_the_tightest_group_above_the_process_counts(tmp_path):
    group(tmp_path / "slurm", "1000", used=900, cached=200)
    group(tmp_path / "slurm" / "step", "max", used=100)
    names = ("memory.max", "memory.current", "inactive_file")
    assert list(memory._left(tmp_path, "/slurm/step", *names)) == [300]


def test_a_group_that_is_not_there_limits_nothing(tmp_path):
    names = ("memory.max", "memory.current", "inactive_file")
    assert list(memory._left(tmp_path, "/elsewhere", *names)) == []


def test_what_does_not_fit_is_refused_and_what_fits_is_not(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    memory.require_memory(0.7 * 2**30, "it", "take less")
    with pytest.raises(InputError, match=r"it needs about 1.0 GiB .* and 1.0 GiB .*; take less"):
        memory.require_memory(2**30, "it", "take less")
