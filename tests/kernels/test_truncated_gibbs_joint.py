"""The exact sampler's joint distribution: Geweke's test, calibration, and faults."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random

from bmfjax.diagnostics import ess_bulk, geweke_scores, rank_statistics, rank_uniformity
from bmfjax.kernels.relaxed.density import (
    log_joint,
)
from bmfjax.kernels.relaxed.gibbs import truncated_gibbs
from tests.kernels.exactness import (
    broken,
    new_problem,
    simulator,
)

# ---- Geweke's test and calibration -------------------------------------------------------------

OBSERVED = np.ones((4, 3), bool)
OBSERVED[[1, 3], [1, 0]] = False
#: Statistics that do not depend on which factor is which; the last are for Geweke's test alone.
INVARIANT = ("entry", "missing entry", "log joint", "precision", "rates", "usage", "basis")
STATISTICS = (*INVARIANT, "log precision", "log rates", "fit of data", "datum", "usage entry")
RIGHT, WRONG_SLOPE, WRONG_PRECISION = (1.0, 1.0), (-1.0, 1.0), (1.0, 1.5)
CHAINS, DRAWS, KEPT = 320, 45, 15


@functools.cache
def simulated_chains():
    """``run(key, redraw, *faults) -> (truth, draws)``, one program for all the tests below."""
    problem = new_problem(
        OBSERVED,
        rank=2,
        usage_prior="ard",
        basis_prior="laplace",
        precision=dist.Gamma(5.0, 0.2),
        rate=dist.Gamma(3.0, 2.0),
    )

    def statistics(position, data):
        usage, basis, tau, rate = (position[n] for n in ("usage", "basis", "precision", "rate"))
        fit = usage @ basis.T
        found = {
            "entry": fit[0, 0],
            "missing entry": fit[1, 1],
            "log joint": log_joint(problem.density, position, data),
            "precision": tau,
            "rates": rate.sum(),
            "usage": usage.mean(),
            "basis": basis.mean(),
            "log precision": jnp.log(tau),
            "log rates": jnp.log(rate).sum(),
            "fit of data": (fit * data.values).sum(),
            "datum": data.values[0, 0],
            "usage entry": usage[2, 1],
        }
        return jnp.stack([found[n] for n in STATISTICS])

    def make(density, *faults):
        return truncated_gibbs(broken(density, *faults), None)

    return simulator(problem, make, statistics, num_chains=CHAINS, num_draws=DRAWS, thin=3)


def joint_distribution_scores(faults):
    """Geweke's z-scores (2, statistic), and the smallest effective sample size."""
    marginal, successive = simulated_chains()(random.key(0), True, *faults)
    return geweke_scores(marginal, successive), ess_bulk(successive).min()


def calibration_p_values(faults):
    truth, draws = simulated_chains()(random.key(2), False, *faults)
    size = len(INVARIANT)
    return rank_uniformity(rank_statistics(draws[:, -2 * KEPT :: 2, :size], truth[:, :size]), KEPT)


def test_the_joint_distribution_is_that_of_the_model():
    scores, size = joint_distribution_scores(RIGHT)
    assert size > 1000
    assert np.abs(scores).max() < 3.7  # of 24


def test_ranks_of_the_truth_among_the_draws_are_uniform():
    assert calibration_p_values(RIGHT).min() > 1e-3  # of 7


@pytest.mark.parametrize(
    ("faults", "statistic", "least"),
    [(WRONG_SLOPE, "basis", 9.0), (WRONG_PRECISION, "precision", 6.0)],
    ids=["prior's slope", "precision"],
)
def test_the_joint_distribution_shows_a_fault(faults, statistic, least):
    """The slope of one prior with the wrong sign; factors drawn with 1.5 times the precision."""
    scores, _ = joint_distribution_scores(faults)
    assert abs(scores[0, STATISTICS.index(statistic)]) > least


def test_the_ranks_show_a_fault():
    p_values = calibration_p_values(WRONG_PRECISION)
    assert p_values[INVARIANT.index("log joint")] < 1e-8
