"""A fit of the nonnegative model, from numbers to files."""

import functools
import re

import numpy as np
import pytest

import bmfjax
from bmfjax.cli import main
from bmfjax.diagnostics import laurberg, solution_line
from bmfjax.report.page import render
from tests.said import said

SIZE = {"num_chains": 2, "num_warmup": 150, "num_samples": 100, "progress": False}


def spectra(seed=0):
    r = np.random.default_rng(seed)
    usage, basis = r.exponential(size=(30, 2)), r.exponential(size=(12, 2))
    values = 3 * usage @ basis.T + 0.2 * r.normal(size=(30, 12))
    hidden = r.random(values.shape) < 0.1
    return values, np.where(hidden, np.nan, values), hidden, 3 * usage @ basis.T


@pytest.fixture(scope="module")
def fit():
    _, seen, _, _ = spectra()
    data = bmfjax.RealMatrix(seen, row_labels=["a", "b"] * 15, name="spectra")
    return bmfjax.fit(data, 2, model="nmf", seed=1, **SIZE)


def test_it_predicts_what_was_hidden_and_learns_the_noise(fit):
    _, _, hidden, exact = spectra()
    error = fit.predict()[hidden] - exact[hidden]
    assert np.sqrt((error**2).mean()) < 0.15
    low, high = fit.predict(kind="interval", level=0.9)
    assert ((low <= exact) & (exact <= high))[hidden].mean() > 0.7
    assert abs((fit.other_draws["precision"] ** -0.5).mean() - 0.2) < 0.03
    assert (np.asarray(fit.usage_draws) >= 0).all() and (np.asarray(fit.basis_draws) >= 0).all()
    assert fit.figures.exact and "coverage_largest" in fit.summary().attrs


def test_its_factors_are_those_of_the_data(fit):
    assert fit.figures.factors_agreeing == 1.0
    sizes = fit.summary()["size"].to_numpy()
    assert (np.diff(sizes) <= 0).all()


def test_new_rows_have_the_usage_that_fits_them(fit):
    values, _, _, _ = spectra()
    found = fit.transform(values[:5])
    assert (found >= 0).all()
    np.testing.assert_allclose(found, fit.usage[:5], rtol=0.35, atol=0.25)
    np.testing.assert_allclose(fit.transform(1000 * values[:5]), 1000 * found, rtol=0.01, atol=1.0)


def test_its_page_speaks_of_numbers(fit):
    page = re.sub(r'base64,[^"]*', "", render(fit))
    for words in ("neither of which is", "Solutions apart", "fit.predict(rows", "its standard dev"):
        assert words in page
    for words in ("log odds", "Boolean product", "fit.probability", "nan"):
        assert words not in page


def test_the_command_line_reads_numbers(tmp_path, capsys):
    """Those of `fit`, whose program it runs."""
    path = tmp_path / "spectra.csv"
    np.savetxt(path, spectra()[1], delimiter=",", fmt="%.17g")
    options = ["--model", "nmf", "--rank", "2", "--chains", "2", "--warmup", "150"]
    options += ["--samples", "100", "--quiet", "--output", str(tmp_path / "out")]
    assert main(["fit", str(path), *options]) == 0
    assert "nmf model, rank 2" in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").exists()
    assert main(["fit", str(path), *options, "--overwrite", "--binarize", "0"]) == 2
    assert "--binarize is for models of ones and zeros" in capsys.readouterr().err


def test_solutions_that_share_the_basis_are_seen():
    """Of the line of solutions only the last row of the usage differs."""
    problem = solution_line()
    usage, basis = problem.solution(0.5)
    noisy = problem.exact + 1e-3 * np.random.default_rng(0).normal(size=problem.exact.shape)
    found = bmfjax.fit(
        noisy, 6, model=bmfjax.NMF(precision=1e6), init={"usage": usage, "basis": basis},
        sampler=bmfjax.Gibbs(moves=("lines",)), num_chains=2, num_warmup=50, num_samples=100,
        progress=False,
    )  # fmt: skip
    assert found.figures.coverage_largest > 40


def test_one_missing_cell_of_a_sparse_matrix_is_no_obstacle():
    values = np.zeros((2100, 2100), np.float32)
    values[:30, :40] = 2.0
    values[5, 5] = np.nan
    bound = bmfjax.NMFGibbs(functools.partial(bmfjax.models.nmf, rank=1)).bind(values)
    assert bound.data.observed is not None


def test_noise_that_cannot_be_resolved_is_said():
    r = np.random.default_rng(0)
    exact = r.exponential(size=(12, 1)) @ r.exponential(size=(1, 10))
    found = bmfjax.fit(exact, 1, model="nmf", sampler=bmfjax.Gibbs(moves=()), **SIZE)
    assert found.figures.noise_free and "almost without noise" in str(found.verdict)


def test_a_start_and_walls_are_taken():
    problem = laurberg(0.5)
    usage, basis = problem.solution(0.0)
    noisy = problem.exact + 0.01 * np.random.default_rng(0).normal(size=(6, 6))
    found = bmfjax.fit(
        noisy, 3, model=bmfjax.NMF(precision=1e4), init={"usage": usage, "basis": basis},
        sampler=bmfjax.Gibbs(moves=(), walls=[30.0, 5.0]), num_chains=2, num_warmup=5,
        num_samples=8, progress=False,
    )  # fmt: skip
    assert found.trace["replica"].shape == (2, 13, 3)
    assert found.settings["init"].startswith("given") and "precision" not in found.other_draws
    assert "started from the solution that was given" in str(found.verdict)


VARIED = 1.0 + np.eye(4)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (-VARIED, {}, r"value -\d.* is negative, and model 'nmf' is of numbers of at least 0"),
        (1e-15 * VARIED, {}, "in a unit in which it is between"),
        (VARIED, {"init": {"usage": np.ones((4, 2))}}, "init must hold exactly"),
        (
            VARIED,
            {"init": {"usage": -np.ones((4, 2)), "basis": np.ones((4, 2))}},
            "negative or not finite",
        ),
        (
            VARIED,
            {"init": {"usage": np.ones((4, 3)), "basis": np.ones((4, 2))}},
            "it must be",
        ),
        (VARIED, {"options": {"walls": [1.0, 2.0]}}, "that fall"),
        (np.array([[1.0, np.inf]]), {}, "too large to compute with"),
        (bmfjax.Ratings([0, 1], [0, 1], [1.0, 2.0]), {}, "is of matrices"),
    ],
)
def test_bad_input_gets_one_sentence(data, options, message):
    with pytest.raises(bmfjax.InputError, match=message):
        bmfjax.fit(data, 2, **said(**SIZE | {"model": "nmf"} | options))
