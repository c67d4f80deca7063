"""Fits of counts: planted spectra, offsets, new rows, an unknown number, refusals."""

import functools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import bmfjax
from bmfjax.data import InputError, RealMatrix
from bmfjax.families import poisson
from tests.said import has_its_summary

ROWS, COLUMNS = 30, 12
SHORT = {"num_chains": 2, "num_warmup": 60, "num_samples": 60, "progress": False}
SPECTRA = np.kron(np.eye(3), np.full((4, 1), 0.25))  # (columns, factors)


@functools.cache
def planted():
    """Counts, with offsets of the rows, and the amounts of the factors at an offset of one."""
    rng = np.random.default_rng(0)
    usage, offset = rng.gamma(1.0, 40.0, (ROWS, 3)), rng.choice([0.5, 2.0], ROWS)
    return rng.poisson(offset[:, None] * (usage @ SPECTRA.T)), usage, offset


@functools.cache
def fitted():
    counts, _, offset = planted()
    frame = pd.DataFrame(counts, columns=[f"type {j}" for j in range(COLUMNS)])
    return bmfjax.fit(frame, bmfjax.Poisson(3, offset=offset), **SHORT)


def order_of(fit):
    """The planted factor of each factor."""
    return (fit.basis.T @ SPECTRA).argmax(1)


def test_planted_spectra_are_found_and_the_usage_is_in_counts():
    fit, (_, usage, offset) = fitted(), planted()
    order = order_of(fit)
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(fit.basis.sum(0), 1.0, rtol=1e-4)
    assert np.abs(fit.basis - SPECTRA[:, order]).max() < 0.05
    far = np.abs(fit.usage - usage[:, order]) / fit.usage_sd
    assert np.mean(far < 1.645) == pytest.approx(0.9, abs=0.08)
    known = fit.usage_draws.mean((0, 1)) @ fit.basis.T * offset[:, None]
    assert np.corrcoef(fit.predict().ravel(), known.ravel())[0, 1] > 0.999
    assert fit.check().explains and "totals of rows and columns" in str(fit.check())


def test_observations_have_the_noise_of_counts():
    fit, (counts, *_) = fitted(), planted()
    i, j = np.divmod(np.arange(counts.size), COLUMNS)
    low, high = fit.predict_cells(i, j, "interval", noisy=True)
    assert np.mean((counts.ravel() >= low) & (counts.ravel() <= high)) > 0.88
    mean = fit.predict_cells(i, j)
    sd = fit.predict_cells(i, j, "sd"), fit.predict_cells(i, j, "sd", noisy=True)
    np.testing.assert_allclose(sd[1] ** 2, sd[0] ** 2 + mean, rtol=1e-5)
    with pytest.raises(InputError, match="is of counts, which have no probability of a one"):
        fit.predict_cells([0], [0], "probability")


def test_new_rows_have_the_usage_of_rows_like_them(tmp_path):
    fit, (counts, _, offset) = fitted(), planted()
    found = fit.transform(pd.DataFrame(counts[:6], columns=fit.data.column_names), offset[:6])
    np.testing.assert_allclose(found, fit.usage[:6], rtol=0.1, atol=2.0)
    sd = fit.transform(counts[:6], offset[:6], kind="sd")
    np.testing.assert_allclose(sd, fit.usage_sd[:6], rtol=0.5, atol=1.0)
    with pytest.raises(InputError, match="that of new rows is not known; give transform"):
        fit.transform(counts[:6])
    fit.save(tmp_path / "fit")
    again = bmfjax.Fit.load(tmp_path / "fit")
    assert has_its_summary(again, fit)
    np.testing.assert_array_equal(again.predict(), fit.predict())
    np.testing.assert_array_equal(again.transform(counts[:6], offset[:6]), found)


@pytest.mark.long
def test_counts_that_scatter_are_negative_binomial():
    rng = np.random.default_rng(1)
    mean = planted()[1] @ SPECTRA.T
    counts = rng.poisson(mean * rng.gamma(4.0, 0.25, mean.shape)).astype(float)
    counts[rng.random(counts.shape) < 0.05] = np.nan
    fit = bmfjax.fit(counts, bmfjax.Poisson(3, dispersion_scale=1.0), **SHORT)
    sd = fit.other_draws["dispersion"]
    assert abs(sd.mean() - 0.5) < 3.0 * sd.std() < 0.3
    i, j, values = [0], [1], np.array([7.0])
    size = sd.reshape(-1)[0] ** -2.0
    rate = (fit.usage_draws[0, 0, 0] * fit.basis_draws[0, 0, 1]).sum()
    known = stats.nbinom(size, size / (size + rate)).logpmf(7)
    np.testing.assert_allclose(fit._log_density(i, j, values)[0], known, rtol=1e-4)


@pytest.mark.long
def test_the_number_of_factors_is_found():
    fit = bmfjax.fit(planted()[0], bmfjax.Poisson("auto", max_rank=5, offset=planted()[2]), **SHORT)
    probabilities = fit.rank_probabilities
    assert fit.rank == 3 and max(probabilities, key=probabilities.get) == 3


@pytest.mark.long
def test_known_spectra_stay_in_their_unit():
    counts, usage, offset = planted()
    known = pd.DataFrame({"first": 100 * SPECTRA[:, 0]})
    fit = bmfjax.fit(counts, bmfjax.Poisson(3, offset=offset), anchors=known, **SHORT)
    np.testing.assert_allclose(fit.basis[:, 0], 100 * SPECTRA[:, 0])
    again = fit.transform(counts, offset)
    np.testing.assert_allclose(again[:, 0], fit.usage[:, 0], rtol=0.1, atol=0.03)
    far = np.abs(100 * fit.usage[:, 0] - usage[:, 0]) / (100 * fit.usage_sd[:, 0])
    assert np.mean(far < 2.0) > 0.85


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        ([[1.5, 2], [0, 1]], bmfjax.Poisson(1), "value 1.5 at row 1.* is no count"),
        ([[1, -2], [0, 1]], bmfjax.Poisson(1), "value -2 .* is no count"),
        ([[3e9, 2], [0, 1]], bmfjax.Poisson(1), "the largest count is 3000000000"),
        ([[3, 2], [0, 1]], bmfjax.Poisson(1, offset=[1.0]), "offset has 1 numbers; give one for"),
    ],
)
def test_what_are_no_counts_is_refused(data, model, message):
    with pytest.raises(InputError, match=message):
        bmfjax.fit(np.array(data, float), model, **SHORT)
    with pytest.raises(InputError, match="give a positive number for each row"):
        bmfjax.Poisson(1, offset=[1.0, 0.0])


@pytest.mark.parametrize(
    ("counts", "rank", "number"),
    [
        (np.full((8, 5), 1), 3, poisson.TRAJECTORIES),
        (np.eye(8, 5) * 4, 3, poisson.TRAJECTORIES),  # 0.5 an entry
        (np.eye(8, 5) * 3.9 // 1, 3, 0),  # fewer
        (np.full((8, 5), 1), poisson.MOST_NUMBERS // 40, poisson.TRAJECTORIES),
        (np.full((8, 5), 1), poisson.MOST_NUMBERS // 40 + 1, 0),
        (np.full((8, 5), np.sqrt(poisson.MOST_SQUARES / 40) // 1), 3, poisson.TRAJECTORIES),
        (np.full((8, 5), np.sqrt(poisson.MOST_SQUARES / 40) // 1 + 1), 3, 0),
    ],
)
def test_trajectories_are_followed_where_counts_are_many_and_the_matrix_is_small(
    counts, rank, number
):
    problem = SimpleNamespace(data=RealMatrix(np.asarray(counts, float)), rank=rank)
    assert poisson._trajectories(problem) == number
