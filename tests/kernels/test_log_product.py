"""Logarithms of products beyond the range of a float."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmfjax.kernels.numerics.log_product import TOGETHER, log_product


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_product_beyond_all_floats_has_its_logarithm(kind):
    with jax.enable_x64(kind is np.float64):
        powers = np.random.default_rng(0).uniform(-60, 60, (TOGETHER, 500))
        powers[:, :3] = 60.0, -60.0, 0.0
        numbers = np.exp2(powers).astype(kind)
        found = jax.jit(lambda x: log_product(list(x)))(jnp.asarray(numbers))
        assert found.dtype == kind
        exact = np.log(numbers.astype(np.longdouble)).sum(0)
        rounding = np.finfo(kind).eps
        np.testing.assert_allclose(found, exact, rtol=4 * rounding, atol=100 * rounding)
