"""The permanent against its definition."""

import itertools

import numpy as np
from scipy.special import logsumexp

from bmfjax.kernels.numerics.permanent import log_permanent


def test_all_permutations():
    logs = np.random.default_rng(0).normal(0.0, 30.0, (5, 5))
    logs[1, 3] = logs[2, 0] = -np.inf
    rows = np.arange(5)
    exact = logsumexp([logs[rows, list(p)].sum() for p in itertools.permutations(rows)])
    np.testing.assert_allclose(log_permanent(logs.astype(np.float32)), exact, rtol=1e-5)


def test_none_at_all():
    assert log_permanent(np.full((2, 2), -np.inf, np.float32)) == -np.inf
