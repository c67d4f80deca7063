"""Factors that move together with their rates: the conditional."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from jax import lax, random

from bmfjax.infer.mcmc.relaxed import entry_prior
from bmfjax.kernels.relaxed import scales
from bmfjax.kernels.relaxed.data import matrix_data, sparse_matrix_data
from bmfjax.kernels.relaxed.density import RelaxedDensity, log_joint
from tests.kernels.exactness import fast_jit

INF = float("inf")
OBSERVED = np.ones((5, 4), bool)
OBSERVED[[0, 2, 3], [1, 2, 0]] = False


def density_of(upper, precision=3.0):
    prior = entry_prior("ard", upper=upper)
    return RelaxedDensity(prior, prior, precision, None, None, (1.5, 0.5))


@pytest.mark.parametrize(
    ("upper", "held"),
    [
        (1.0, "complete"),
        (INF, "gaps"),
        *(
            pytest.param(upper, held, marks=pytest.mark.long)
            for upper, held in ((1.0, "gaps"), (1.0, "sparse"), (INF, "complete"), (INF, "sparse"))
        ),
    ],
)
def test_a_factor_is_moved_along_its_density(upper, held):
    """Against quadrature of the joint density along the line, and its Jacobian."""
    rng = np.random.default_rng(0)
    values = rng.normal(0.4, 0.5, OBSERVED.shape)
    if held == "gaps":
        values[~OBSERVED] = np.nan
    data = sparse_matrix_data(sp.csr_array(values)) if held == "sparse" else matrix_data(values)
    density, power = density_of(upper), 0.7
    start = {
        "usage": jnp.asarray(rng.uniform(0.1, 0.8, (5, 1)), jnp.float32),
        "basis": jnp.asarray(rng.uniform(0.1, 0.8, (4, 1)), jnp.float32),
        "rate": jnp.array([0.9], jnp.float32),
    }

    @fast_jit
    def many(keys):
        def chain(key):
            def step(position, key):
                return scales.move_scales(key, density, position, data, power), None

            return lax.scan(step, start, random.split(key, 12))[0]["rate"][0]

        return jax.vmap(chain)(keys)

    drawn = -np.log(np.asarray(many(random.split(random.key(1), 1500)), float) / 0.9)
    most = float(scales._most(density, start["usage"], start["basis"])[0])
    t = np.linspace(-9.0, min(most, 3.0), 4001)

    def along(t):
        s = jnp.exp(t)
        moved = {n: start[n] * s for n in ("usage", "basis")} | {"rate": start["rate"] / s}
        # s^9 from the nine entries, 1/s from the rate.
        return log_joint(density, moved, data, power) + 8.0 * t

    logs = np.asarray(fast_jit(jax.vmap(along))(jnp.asarray(t, jnp.float32)), float)
    mass = np.concatenate([[0.0], np.cumsum(np.exp(logs - logs.max()))])[:-1]
    scores = np.interp(drawn, t, mass / mass[-1])
    assert scipy.stats.kstest(scores, "uniform").pvalue > 1e-3


def test_pulls_of_a_close_fit_keep_their_digits():
    """What is left of two large sums that cancel, in float32, against float64."""
    rng = np.random.default_rng(3)
    usage, basis = (
        np.where(rng.random((n, 3)) < 0.3, rng.uniform(0.5, 1, (n, 3)), 0).astype(np.float32)
        for n in (3000, 400)
    )
    product = usage.astype(float) @ basis.T.astype(float)
    values = sp.csr_array(np.where(product > 0, product + rng.normal(0, 1e-2, product.shape), 0))
    values.data = values.data.astype(np.float32).astype(float)
    exact = (usage * ((values.toarray() - product) @ basis)).sum(0)
    found = fast_jit(scales._sparse_pulls)(usage, basis, sparse_matrix_data(values))
    # Sums in float32 are off by four times as much.
    np.testing.assert_allclose(found, exact, rtol=0, atol=5e-8 * (values.data**2).sum())


def test_a_factor_that_explains_nothing_has_a_rate_of_the_prior():
    data, density = matrix_data(np.zeros((5, 4))), density_of(INF, precision=1e-12)
    start = {
        "usage": jnp.full((5, 3), 0.01),
        "basis": jnp.full((4, 3), 0.01),
        "rate": jnp.full(3, 1.0),
    }
    many = fast_jit(
        lambda keys: jax.vmap(
            lambda key: lax.scan(
                lambda p, k: (scales.move_scales(k, density, p, data), None),
                start, random.split(key, 12),
            )[0]["rate"]
        )(keys)
    )  # fmt: skip
    rates = np.asarray(many(random.split(random.key(2), 500))).ravel()
    assert scipy.stats.kstest(rates, scipy.stats.gamma(1.5, scale=2.0).cdf).pvalue > 1e-3
