"""The study of the thesis: its runs are those of table 3.2, go on where they were cut off, and are
drawn."""

import importlib
import json
import sys

import numpy as np
import pytest

import bmfjax


@pytest.fixture
def study(monkeypatch):
    # Workers have no name of a script, which records give as their command.
    monkeypatch.setattr(sys, "argv", ["benchmarks/papers/thesis.py"])
    return importlib.import_module("benchmarks.papers.thesis")


@pytest.fixture
def pictures(study):
    return importlib.import_module("benchmarks.papers.thesis_figures")


@pytest.fixture
def small(study, monkeypatch):
    """Matrices of 40 x 40 with three tiles in place of the thesis's, and a run on them."""
    noise = {"clean": (0.01, 0.05), "noisy": (0.05, 0.15)}

    def matrix(kind, tiles="8x8", seed=0):
        return bmfjax.generate_tiles(40, 40, 3, noise=noise[kind], seed=seed)

    monkeypatch.setattr(study, "thesis_matrix", matrix)
    monkeypatch.setattr(study, "TRUE_RANK", 3)
    return study.Run(60_000, "clean", "Normal", "optimum", 4, 10, 0)


def test_the_runs_are_those_of_table_3_2(study):
    runs = study.runs_of_table([0])
    lengths = [sum(r.draws == n and r.prior != "Beta" for r in runs) for n in (60_000, 600_000)]
    assert lengths == [2 * 3 * 2 * 3 * 3, 2 * 2 * 2 * 3]
    assert [r.data for r in runs if r.draws == 2_000_000] == ["clean", "noisy"]
    assert len(set(runs)) == len(runs)
    assert sum(bool(r.published) for r in runs) == 36
    row = study.Run(60_000, "noisy", "PanPAL", "optimum", 30, 512, 0)
    assert row.published == (48, 32, 0.53, 0.53)  # the last row of table 4.2


def test_the_optimum_is_cut_or_filled_up(study, small):
    truth = study.thesis_matrix("clean")
    more = study.start_of(small, truth)["usage"][0]
    np.testing.assert_array_equal(more[:, :3], truth.usage)
    assert more.shape == (40, 4) and 0.3 < more[:, 3].mean() < 0.7 and len(set(more[:, 3])) == 40
    fewer = study.start_of(small._replace(rank=2), truth)["basis"][0]
    np.testing.assert_array_equal(fewer, truth.basis[:, :2])
    assert study.start_of(small._replace(start="random"), truth) is None


def kept_run(study, run, level):
    """What is kept of a run whose means are the truth, moved by `level`."""
    truth, r = study.thesis_matrix(run.data, "8x8", run.seed), np.random.default_rng(0)
    kept = {"seconds": 1.0, "log_joint": np.linspace(-9, -5, 6000), "clamped": np.full(6000, 0.2)}
    for name in study.FACTORS:
        mean = np.clip(getattr(truth, name) + level, 0, 1).astype(float)
        kept[f"{name}_mean"] = mean
        kept[f"{name}_variance"] = 0.01 * r.uniform(size=mean.shape)
        kept[f"gradient_{name}_mean"] = r.normal(size=mean.shape)
        kept[f"{name}_histogram"] = np.ones((*mean.shape, 50), np.uint32)
    return kept


def keep(study, folder, levels):
    """Put finished runs into a folder, each at its level."""
    folder.mkdir(exist_ok=True)
    for run, level in levels.items():
        np.savez(folder / f"{run.name}.npz", **kept_run(study, run, level))


def test_the_records_hold_all_runs_of_the_folder_and_the_page_their_spread(
    study, small, tmp_path, monkeypatch
):
    monkeypatch.setattr(study, "TRUE_RANK", 30)
    tables = [run for run in study.runs_of_table([0]) if run.draws == 60_000 and run.rank == 30]
    tables += [tables[0]._replace(seed=seed) for seed in (1, 2)]
    runs = [*tables, small._replace(rank=20, batch=75)]
    keep(study, tmp_path, {run: -0.3 if place else 0.0 for place, run in enumerate(runs)})
    (tmp_path / "60000-clean-Normal-random-20-75-0.part").write_text("half written")
    study.write_records(tmp_path, 1, tmp_path / "records")
    figures = json.loads((tmp_path / "records" / "thesis_tables.json").read_text())["figures"]
    rows = figures["rows"]
    assert len(rows) == 36 + 2 and {row["seed"] for row in rows} == {0, 1, 2}
    assert rows[0]["error_at_half"] == rows[0]["error"] == 0 and rows[0]["thesis_error"] == 72
    assert rows[3]["tau_max"] == 0.69
    page = (tmp_path / "records" / "thesis_tables.md").read_text()
    assert "| 0.0 ± 0.0 of 3 | 0.0 | 0 to 0 |" in page

    others = json.loads((tmp_path / "records" / "thesis_runs.json").read_text())["figures"]
    # Beta at its three batches, two starts and two matrices; and one at another rank.
    assert len(others["rows"]) == 12 + 1
    assert others["runs_of_table_3_2_left"] == 146 - 36 - 12 - 1
    row = others["rows"][0]
    assert row["draws_near_zero"] == row["draws_near_one"] == 0.02


def test_cuts_of_the_analogue_have_their_maxima_where_algebra_has_them(pictures):
    x, y = np.meshgrid(pictures.GRID, pictures.GRID, indexing="ij")

    def at(z, ones, normal):
        return pictures.GRID[pictures.maxima(pictures.analogue(x, y, z, ones, normal))].tolist()

    assert at(1.0, (1, 1, 1), False) == [[1, 1]]
    # Section 4.1.2: total confusion along both axes, then two optima, then one.
    assert len(at(0.0, (0, 0, 0), False)) == 2 * 101 - 1
    # At y = 1 the derivative x + (x / 2 - 1) / 2 vanishes at 0.4.
    assert at(0.5, (0, 1, 1), False) == [[0.4, 1.0], [1.0, 0.4]]
    # The Normal prior moves y from 1 to where (y - 1) + y vanishes.
    assert at(1.0, (0, 0, 1), False) == [[0.0, 1.0]]
    assert at(1.0, (0, 0, 1), True) == [[0.0, 0.5]]


def test_a_sampler_is_held_against_the_exact_one(study):
    samplers = importlib.import_module("benchmarks.papers.thesis_samplers")
    truth = bmfjax.generate_tiles(40, 40, 3, noise=(0.0, 0.0), seed=0)
    factors = {n: np.asarray(getattr(truth, n), float) for n in ("usage", "basis")}
    mean = np.concatenate([factors[n].ravel() for n in ("usage", "basis")])
    exact = factors | {"draws": 5, "seconds": 1.0, "log_joint": -3.0, "precision": None}
    exact |= {"mean": mean, "variance": np.full(mean.shape, 0.04)}
    row = samplers.row_of(exact, None, truth)
    assert row["error"] == row["error_at_half"] == 0 and "sd_ratio" not in row
    assert row["mean_sd"] == 0.2
    other = exact | {"mean": mean + 0.1, "variance": np.full(mean.shape, 0.01)}
    row = samplers.row_of(other, exact, truth)
    assert (row["mean_difference"], row["sd_ratio"]) == (0.5, 0.5)
    # From the truth a little inside the bounds; with a precision only where one is learned.
    assert "precision" not in samplers.start_of(truth, learned=False)
    start = samplers.start_of(truth, learned=True)
    assert start["precision"].shape == (1,) and start["usage"].shape == (1, 40, 3)
    assert 0 < start["usage"].min() < start["usage"].max() < 1
