"""What memory there is, also in a control group, and the refusal of what needs more."""

from pathlib import Path

import numpy as np
import psutil
import pytest

import bmfjax
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


def test_compiling_is_refused_or_warned_of_where_it_may_not_fit(monkeypatch):
    memory._tell_of_compiling.cache_clear()
    monkeypatch.setattr(memory, "available_memory", lambda: memory.COMPILING)
    memory.check_programs()
    monkeypatch.setattr(memory, "available_memory", lambda: 700 * 2**20)
    with pytest.warns(UserWarning, match=r"up to 1.0 GiB of memory, and 700 MiB are .* 2 GiB"):
        memory.check_programs()
    memory.check_programs()  # once is enough
    monkeypatch.setattr(memory, "available_memory", lambda: 200 * 2**20)
    with pytest.raises(InputError, match="256 MiB of memory at least, and 200 MiB are available"):
        bmfjax.fit(np.eye(2), 1)
    memory._tell_of_compiling.cache_clear()


def test_version_1_of_control_groups_is_read_too(monkeypatch, tmp_path):
    folder = tmp_path / "memory" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("1000\n")
    (folder / "memory.usage_in_bytes").write_text("700\n")
    (folder / "memory.stat").write_text("cache 300\ntotal_inactive_file 50\n")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text("3:cpu:/\n4:cpuacct,memory:/job\n0::/\n")
    assert memory.available_memory() == 350


def test_what_does_not_fit_is_refused_and_what_fits_is_not(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    memory.require_memory(0.7 * 2**30, "it", "take less")
    with pytest.raises(InputError, match=r"it needs about 1.0 GiB .* and 1.0 GiB .*; take less"):
        memory.require_memory(2**30, "it", "take less")
