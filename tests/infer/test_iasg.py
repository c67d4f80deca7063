"""IASG under NumPyro's MCMC: chains, resuming, fields; and its draws against NUTS."""

import functools
import os
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro.infer import MCMC, NUTS

from bmfjax.infer import IASG, SGLD, ChainRun
from bmfjax.models import relaxed_bmf

N = 40
Y = jnp.asarray(np.random.default_rng(0).normal(2.0, 0.5, N), jnp.float32)
BLOCKS = ((("mu", "sigma"), {"cases": 8}),)
VALUES = (np.random.default_rng(1).random((10, 8)) < 0.4).astype(np.float32)
RELAXED = functools.partial(relaxed_bmf, rank=2)

#: Small plates serve here, and the warning of them is tested in `test_bind`.
pytestmark = pytest.mark.filterwarnings("ignore:a draw of IASG averages only")


def model(y, scale=None, kind="normal"):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("cases", N) as i:
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y[i])


class Counting(IASG):
    """Counts how often MCMC starts it anew."""

    starts = 0

    def init(self, *args, **kwargs):
        self.starts += 1
        return super().init(*args, **kwargs)


def small(num_samples=6, *, kernel=None, keys=None, extra=(), run=None, **options):
    """A run of the small model with plain gradient steps, which compile fast."""
    kernel = kernel or plain()
    mcmc = MCMC(kernel, num_warmup=2, num_samples=num_samples, progress_bar=False, **options)
    mcmc.run(random.key(0) if keys is None else keys, Y, extra_fields=extra, **(run or {}))
    return mcmc


def plain(kind=IASG):
    return kind(model, BLOCKS, preconditioner=None, step_size=1e-3, window=5)


def by_adam():
    return IASG(model, BLOCKS, optimizer=optax.adam(1e-2), window=5)


def by_langevin():
    return SGLD(model, BLOCKS, num_steps=2, num_approach=5)


@functools.cache
def one_chain():
    return small(extra=("gradient.mu", "i", "inner.step_size"), kernel=plain(Counting))


# ---- under MCMC ----------------------------------------------------------------------------------


def test_draws_come_in_the_models_own_space_with_their_statistics():
    mcmc = one_chain()
    draws, fields = mcmc.get_samples(), mcmc.get_extra_fields()
    assert {n: v.shape for n, v in draws.items()} == {"mu": (6,), "sigma": (6,)}
    assert bool((draws["sigma"] > 0).all()) and len(np.unique(draws["mu"])) == 6
    assert {"potential_energy", "clamped", "gradient.mu", "i"} <= set(fields)
    assert fields["gradient.mu"].shape == (6,)
    np.testing.assert_array_equal(fields["i"], np.arange(3, 9))  # two draws of warm-up before

    # potential_energy is NumPyro's, at the draw.
    unconstrained = {"mu": draws["mu"], "sigma": jnp.log(draws["sigma"])}
    potential = functools.partial(numpyro.infer.util.potential_energy, model, (Y,), {})
    expected = jax.jit(jax.vmap(potential))(unconstrained)
    np.testing.assert_allclose(fields["potential_energy"], expected, rtol=1e-4)


@pytest.mark.parametrize("chain_method", ["sequential", "vectorized"])
def test_chains_make_the_draws_of_their_keys(chain_method):
    keys = jnp.stack([random.key(0), random.key(1)])
    both = small(keys=keys, num_chains=2, chain_method=chain_method).get_samples(True)
    alone = one_chain().get_samples()
    for name, values in both.items():
        assert values.shape == (2, 6)
        np.testing.assert_allclose(values[0], alone[name], rtol=1e-5)
        assert not np.allclose(values[0], values[1])


def test_two_short_runs_are_one_long_run_and_the_start_is_made_once():
    kernel = plain(Counting)
    mcmc = small(3, kernel=kernel)
    first = mcmc.get_samples()
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(mcmc.last_state.rng_key, Y)
    assert kernel.starts == 1
    whole = one_chain().get_samples()
    for name, values in mcmc.get_samples().items():
        np.testing.assert_array_equal(jnp.concatenate([first[name], values]), whole[name])


def test_gradient_descent_by_optax_is_the_plain_step():
    kernel = IASG(model, BLOCKS, optimizer=optax.sgd(1e-3), window=5)
    found, expected = small(kernel=kernel).get_samples(), one_chain().get_samples()
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5)


def test_the_state_of_an_optimizer_goes_on_with_the_run():
    """Adam's moments and its count of steps; each chain has its own."""
    whole, half = small(kernel=by_adam()), small(3, kernel=by_adam())
    first = half.get_samples()
    half.post_warmup_state = half.last_state
    half.run(half.last_state.rng_key, Y)
    for name, values in half.get_samples().items():
        joined = jnp.concatenate([first[name], values])
        np.testing.assert_array_equal(joined, whole.get_samples()[name])
    (rule,) = whole.last_state.inner.optimizer
    assert int(rule[0].count) == 8 * 5  # two draws of warm-up and six, of five steps each
    keys = jnp.stack([random.key(0), random.key(1)])
    both = small(kernel=by_adam(), keys=keys, num_chains=2, chain_method="vectorized")
    for name, values in both.get_samples(True).items():
        np.testing.assert_allclose(values[0], whole.get_samples()[name], rtol=1e-4)
        assert not np.allclose(values[0], values[1])


def test_a_pickled_kernel_starts_anew_and_draws_the_same():
    used = one_chain().sampler
    assert used._sample_fn is not None
    copy = pickle.loads(pickle.dumps(plain()))
    assert copy._sample_fn is None
    copied = pickle.loads(pickle.dumps(used))
    assert copied._sample_fn is None and copied._settings == used._settings


def test_model_arguments_may_be_traced_and_need_not_all_be_arrays():
    traced = small(jit_model_args=True).get_samples()
    static = small(run={"kind": "normal", "scale": None}).get_samples()
    for name, values in one_chain().get_samples().items():
        np.testing.assert_allclose(traced[name], values, rtol=1e-4)
        np.testing.assert_array_equal(static[name], values)


def test_the_diagnostics_string_is_short():
    mcmc = one_chain()
    text = mcmc.sampler.get_diagnostics_str(mcmc.last_state)
    assert text.startswith("log joint -") and text.endswith("clamped 0%")


@pytest.mark.filterwarnings("ignore:IASG does not move")
def test_the_relaxed_model_runs_from_a_start_in_its_own_space():
    """With traced arguments, so that the mask of missing entries is traced too."""
    values = VALUES.copy()
    values[2, 3] = np.nan
    start = {
        "usage": np.full((10, 2), 0.25),
        "basis": np.full((8, 2), 0.75),
        "precision": 3.0,
    }
    kernel = IASG(RELAXED, batch_size=4, step_size=1e-12, window=1, delta=0.0, report_variance=True)
    fields = ("gradient.usage", "gradient_variance.usage", "sandwich.usage")
    mcmc = MCMC(kernel, num_warmup=0, num_samples=2, progress_bar=False, jit_model_args=True)
    mcmc.run(random.key(0), values, init_params=start, extra_fields=fields)
    reported, draws = mcmc.get_extra_fields(), mcmc.get_samples()
    assert all(reported[name].shape == (2, 10, 2) for name in fields)
    assert bool((reported["gradient_variance.usage"] > 0).any())
    assert bool((draws["precision"] > 0).all())
    # Steps of no length leave the factors where the user put them, not at their logits.
    np.testing.assert_allclose(draws["usage"], 0.25, rtol=1e-6)
    np.testing.assert_allclose(draws["basis"], 0.75, rtol=1e-6)


PARALLEL = """
import jax, jax.numpy as jnp, numpy as np, runpy, sys, warnings
here = runpy.run_path(sys.argv[1])
assert jax.local_device_count() == 2
keys = jnp.stack([jax.random.key(0), jax.random.key(1)])
draws = here["small"](keys=keys, num_chains=2, chain_method="parallel").get_samples(True)
parallel = {"keys": keys, "num_chains": 2, "chain_method": "parallel"}
adam = here["small"](kernel=here["by_adam"](), **parallel).get_samples(True)
sgld = here["small"](kernel=here["by_langevin"](), **parallel).get_samples(True)
np.save(sys.argv[2], np.stack([draws["mu"], adam["mu"], sgld["mu"]]))
"""


@pytest.mark.long
def test_chains_on_several_devices(tmp_path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    command = [sys.executable, "-W", "error", "-c", PARALLEL, __file__, tmp_path / "mu.npy"]
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    both, adam, sgld = np.load(tmp_path / "mu.npy")
    alone = small(kernel=by_adam()).get_samples()["mu"]
    np.testing.assert_allclose(adam[0], alone, rtol=1e-4)
    alone = small(kernel=by_langevin()).get_samples()["mu"]
    np.testing.assert_allclose(sgld[0], alone, rtol=1e-3)
    np.testing.assert_allclose(both[0], one_chain().get_samples()["mu"], rtol=1e-5)
    assert not np.allclose(both[0], both[1])


# ---- what the draws are --------------------------------------------------------------------------


@functools.cache
def regression_data():
    r = np.random.default_rng(0)
    x = r.normal(size=(300, 2))
    y = 20.0 + x @ [1.0, -2.0] + 0.3 * r.normal(size=300)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def regression(x, y):
    """An intercept far from where the chains start, and a scale to be learned."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 30.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
    with numpyro.plate("cases", 300) as i:
        numpyro.sample("y", dist.Normal(intercept + x[i] @ beta, sigma), obs=y[i])


@pytest.mark.long
def test_a_regression_agrees_with_nuts_from_any_start():
    """Where C = A, as with the learned scale of a right model; from starts without any hint."""

    @jax.jit
    def nuts(key, x, y):
        kernel = NUTS(regression, max_tree_depth=5)
        mcmc = MCMC(kernel, num_warmup=500, num_samples=1000, progress_bar=False)
        start = {"intercept": 20.0, "beta": jnp.array([1.0, -2.0]), "sigma": jnp.log(0.3)}
        mcmc.run(key, x, y, init_params=start)
        return mcmc.get_samples()

    oracle = nuts(random.key(0), *regression_data())
    blocks = ((("intercept", "beta", "sigma"), {"cases": None}),)
    bound = IASG(regression, blocks).bind(*regression_data())
    run = ChainRun(
        bound.algorithm,
        random.key(1),
        bound.data,
        num_chains=8,
        num_warmup=50,
        num_samples=250,
        draws={n: 1 for n in oracle},
    )
    run.finish()
    draws = bound.constrain(run.draws())
    for name, exact in oracle.items():
        exact, found = np.asarray(exact), np.asarray(draws[name])
        sd = exact.std(0)
        assert (np.abs(found.mean((0, 1)) - exact.mean(0)) < 0.2 * sd).all(), name
        ratio = found.std((0, 1)) / sd
        assert ((ratio > 0.85) & (ratio < 1.15)).all(), (name, ratio)
