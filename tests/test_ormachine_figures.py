"""What is counted for the pictures of the OrMachine."""

import importlib

import numpy as np
import pytest


@pytest.fixture
def pictures():
    return importlib.import_module("benchmarks.papers.ormachine_figures")


def test_calibrated_means_have_no_calibration_error_and_shifted_ones_their_shift(pictures):
    r = np.random.default_rng(0)
    means = r.uniform(size=200_000)
    truth = r.uniform(size=means.shape) < means
    found = pictures.in_bins(means, truth)
    assert sum(found["entries"]) == len(means) and len(found["entries"]) == pictures.NUM_BINS
    # A uniform mean is sure in two bins of twenty and wrong in a quarter of all cases.
    assert found["sure"] == pytest.approx(0.1, abs=0.005)
    assert found["wrong_share"] == pytest.approx(0.25, abs=0.005)
    assert found["wrong_of_the_sure"] == pytest.approx(0.025, abs=0.005)
    # Of 20 bins with 10,000 entries each, the standard errors are at most 0.005.
    assert found["calibration_error"] < 0.006
    overconfident = np.where(means > 0.5, 1.0, 0.0)
    assert pictures.in_bins(overconfident, truth)["calibration_error"] == pytest.approx(
        0.25, abs=0.005
    )


def test_a_factor_is_used_where_both_of_its_sides_have_a_bit(pictures):
    usage = np.array([[0.9, 0.1], [0.5, 0.5], [0.8, 0.2], [0.0, 0.6]])
    basis = np.array([[0.0, 0.7, 0.2], [0.9, 0.9, 0.9], [0.1, 0.2, 0.5], [0.51, 0.0, 0.0]])
    assert pictures.used_factors(usage, basis).tolist() == [True, False, False, True]
