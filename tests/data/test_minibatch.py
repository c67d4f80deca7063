"""Minibatches are uniform, of the right size, and independent from step to step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import random

from bmfjax.kernels.numerics.minibatch import minibatches

COUNT = 3200


@functools.partial(jax.jit, static_argnames=("size", "batch", "replace"))
def draw(key, size, batch, replace):
    return jax.vmap(minibatches(key, size, batch, COUNT, replace=replace))(jnp.arange(COUNT))


def all_batches(size, batch, replace, seed=0):
    return np.asarray(draw(random.key(seed), size, batch, replace))


@pytest.mark.parametrize("replace", [True, False])
def test_shape_and_range(replace):
    for size, batch in ((24, 3), (5, 5)):
        drawn = all_batches(size, batch, replace)
        assert drawn.shape == (COUNT, batch)
        assert drawn.dtype == np.int32
        assert set(np.unique(drawn)) == set(range(size))


def test_cases_come_twice_in_a_batch_only_with_replacement():
    def share_distinct(replace):
        return np.mean([len(set(batch)) == 5 for batch in all_batches(5, 5, replace)])

    assert share_distinct(False) == 1
    assert share_distinct(True) == pytest.approx(120 / 5**5, abs=0.015)


@pytest.mark.parametrize("replace", [True, False])
def test_every_case_and_every_place_are_equally_likely(replace):
    for place in all_batches(24, 3, replace).T:
        assert scipy.stats.chisquare(np.bincount(place, minlength=24)).pvalue > 1e-3


@pytest.mark.parametrize("replace", [True, False])
def test_steps_are_independent_so_that_a_pass_does_not_balance_itself(replace):
    """Going through a shuffled set, every case would come exactly once in eight steps."""
    passes = all_batches(24, 3, replace).reshape(-1, 24)
    counts = np.stack([np.bincount(one, minlength=24) for one in passes])
    of_a_step = 3 / 24 * (1 - 1 / 24) if replace else 3 / 24 * (1 - 3 / 24)
    assert counts.mean() == 1
    assert counts.var() == pytest.approx(8 * of_a_step, rel=0.06)


@pytest.mark.parametrize("replace", [True, False])
def test_a_traced_step_gives_the_same_indices(replace):
    at = minibatches(random.key(0), 24, 3, COUNT, replace=replace)
    np.testing.assert_array_equal(at(5), all_batches(24, 3, replace)[5])


@pytest.mark.parametrize("replace", [True, False])
def test_the_key_decides(replace):
    first, other = all_batches(24, 3, replace), all_batches(24, 3, replace, seed=1)
    np.testing.assert_array_equal(first, all_batches(24, 3, replace))
    assert (first != other).mean() > 0.9
