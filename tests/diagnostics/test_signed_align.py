"""Order and signs of real factors."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.diagnostics import align_signed


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(0, 2**31))
def test_permuted_and_reflected_factors_are_brought_together(rank, seed):
    rng = np.random.default_rng(seed)
    usage, basis = rng.normal(size=(12, rank)), rng.normal(size=(9, rank))
    moved = [(usage, basis)]
    for _ in range(3):
        order, sign = rng.permutation(rank), rng.choice([-1, 1], rank)
        noise = [0.01 * rng.normal(size=f.shape) for f in (usage, basis)]
        moved.append(
            tuple(f[:, order] * sign + n for f, n in zip((usage, basis), noise, strict=True))
        )
    usages, bases = (np.array(f) for f in zip(*moved, strict=True))
    found = align_signed(usages, bases, pivot=int(rng.integers(4)))
    usages, bases = found.apply(usages), found.apply(bases)
    np.testing.assert_allclose(usages - usages[:1], 0.0, atol=0.15)
    np.testing.assert_allclose(bases - bases[:1], 0.0, atol=0.15)
    # Products are what they were; sizes fall, and the heavier end of a basis column is positive.
    np.testing.assert_allclose(usages[0] @ bases[0].T, usage @ basis.T, atol=1e-9)
    size = np.linalg.norm(usages[0], axis=0) * np.linalg.norm(bases[0], axis=0)
    assert (np.diff(size) <= 0.2 * size[:-1]).all()
    assert ((bases[0] ** 3).sum(0) > -0.5).all()


def test_variances_are_permuted_without_signs():
    usage = np.array([[[1.0, 3.0]], [[-3.0, 1.0]]])
    found = align_signed(usage, np.ones((2, 4, 2)) * np.array([[1, 1]]))
    np.testing.assert_array_equal(found.apply(usage, signed=False)[1], [[-3.0, 1.0]])
    assert found.sign.tolist() == [[1, 1], [1, 1]]


def test_draws_follow_their_chain():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 5, 6, 3))
    usage, basis = draws.mean(1), rng.normal(size=(2, 4, 3))
    found = align_signed(usage, basis)
    np.testing.assert_allclose(found.apply(draws).mean(1), found.apply(usage))
