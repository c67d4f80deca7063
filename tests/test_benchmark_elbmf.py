"""ELBMF: factors become Boolean as the pull grows, and missing entries do not count."""

import jax
import numpy as np
import pytest
from jax import random

from benchmarks.papers.elbmf import elastic, elbmf
from bmfjax.data import BinaryMatrix
from bmfjax.optimize import Factors, Matrix

TRUTH = np.kron(np.eye(3, dtype=bool), np.ones((9, 8), bool))


@pytest.mark.parametrize("missing", [False, True])
def test_planted_tiles_are_found(missing):
    observed = np.random.default_rng(0).random(TRUTH.shape) < 0.8 if missing else None
    found = elbmf(random.key(0), BinaryMatrix(TRUTH, observed), 3, num_starts=4)
    assert found.error == 0 and (found.usage @ found.basis.T == TRUTH).all()
    for relaxed, rounded in zip(found.relaxed, (found.usage, found.basis), strict=True):
        np.testing.assert_allclose(relaxed, rounded, atol=1e-3)


def test_the_pull_grows_until_every_entry_is_zero_or_one():
    r = np.random.default_rng(1)
    data = Matrix(jax.numpy.asarray((r.random((8, 7)) < 0.5).astype(np.float32)))
    factors = Factors(*(jax.numpy.asarray(r.random((n, 2), np.float32)) for n in (8, 7)))
    optimiser = elastic()
    step = jax.jit(lambda factors, state: optimiser.update(factors, state, data))
    away, state = [], optimiser.init(factors)
    for time in range(900):
        factors, state = step(factors, state)
        if time % 300 == 299:
            away.append(max(float(abs(f - f.round()).max()) for f in factors))
    assert away[0] > 0.01 and away[2] < 1e-5, away
