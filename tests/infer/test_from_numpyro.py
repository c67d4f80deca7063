"""ArviZ's own `from_numpyro` takes the runs of every kernel: draws, statistics, densities, data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC

import bmfjax
from bmfjax.diagnostics import group, posterior_dataset
from bmfjax.diagnostics.arviz import _import_arviz
from bmfjax.models import (
    deep_ormachine,
    hamming_machine,
    nmf,
    one_hot_machine,
    ormachine,
    ormachine_effects,
    pmf,
    relaxed_bmf,
)

ROWS, COLUMNS = 6, 5
REAL = np.random.default_rng(0).gamma(1.0, size=(ROWS, COLUMNS)).astype(np.float32)
ONES = (np.median(REAL) < REAL).astype(np.float32)


def regression(y):
    level = numpyro.sample("level", dist.Normal())
    with numpyro.plate("rows", ROWS) as i:
        numpyro.sample("data", dist.Normal(level, 1.0), obs=y[i])


def with_rank(model, **options):
    return functools.partial(model, rank=2, **options)


KERNELS = {
    "IASG": lambda: (bmfjax.IASG(with_rank(relaxed_bmf)), ONES),
    "IASG of plates": lambda: (
        bmfjax.IASG(regression, blocks=((("level",), {"rows": 3}),), num_approach=2),
        jnp.asarray(REAL[:, 0]),
    ),
    "IASG.thesis": lambda: (
        bmfjax.IASG.thesis(with_rank(relaxed_bmf, precision=1.0), batch_size=4, num_calibration=50),
        ONES,
    ),
    "SGLD": lambda: (
        bmfjax.SGLD(regression, blocks=((("level",), {"rows": 3}),), num_approach=2),
        jnp.asarray(REAL[:, 0]),
    ),
    "SGHMC": lambda: (
        bmfjax.SGHMC(regression, blocks=((("level",), {"rows": 3}),), num_approach=2),
        jnp.asarray(REAL[:, 0]),
    ),
    "SGLD of the relaxed model": lambda: (
        bmfjax.SGLD(with_rank(relaxed_bmf), batch_size=4, num_steps=2),
        ONES,
    ),
    "AuxiliaryGibbs": lambda: (bmfjax.AuxiliaryGibbs(with_rank(relaxed_bmf), batch_size=4), ONES),
    "TruncatedGibbs": lambda: (bmfjax.TruncatedGibbs(with_rank(relaxed_bmf)), ONES),
    "NMFGibbs": lambda: (bmfjax.NMFGibbs(with_rank(nmf)), REAL),
    "OrMachineGibbs": lambda: (bmfjax.OrMachineGibbs(with_rank(ormachine)), ONES),
    "EffectsGibbs": lambda: (
        bmfjax.infer.EffectsGibbs(with_rank(ormachine_effects, shape=ONES.shape)),
        *np.nonzero(ONES >= 0),
        ONES.ravel(),
    ),
    "DeepOrMachineGibbs": lambda: (
        bmfjax.infer.DeepOrMachineGibbs(
            functools.partial(deep_ormachine, ranks=(2, 1)), num_start=0
        ),
        ONES,
    ),
    "HammingGibbs": lambda: (bmfjax.infer.HammingGibbs(with_rank(hamming_machine)), ONES),
    "OneHotGibbs": lambda: (bmfjax.infer.OneHotGibbs(with_rank(one_hot_machine)), ONES),
    "PMFGibbs": lambda: (bmfjax.PMFGibbs(with_rank(pmf)), REAL),
}


def staying(bind):
    """`bind` with a start and steps that take no time to compile: all numbers are a half.

    Steps stay there, and tell of nothing but a hundredth.
    """

    @functools.wraps(bind)
    def bound(*args, **kwargs):
        found = bind(*args, **kwargs)

        def init(key, position, data):
            state = jax.eval_shape(found.algorithm.init, key, position, data)

            def half(a):
                if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                    return jnp.broadcast_to(key, a.shape)
                return jnp.full(
                    a.shape, 0.5 if jnp.issubdtype(a.dtype, jnp.floating) else 0, a.dtype
                )

            return jax.tree.map(half, state)

        def step(key, state, data):
            _, info = jax.eval_shape(found.algorithm.step, key, state, data)
            return state, jax.tree.map(lambda a: jnp.full(a.shape, 0.01, a.dtype), info)

        return found._replace(algorithm=found.algorithm._replace(init=init, step=step))

    return bound


#: Their starts take longest to compile.
LONG = (
    "IASG", "IASG.thesis", "SGLD", "SGLD of the relaxed model", "AuxiliaryGibbs", "NMFGibbs",
    "OrMachineGibbs", "EffectsGibbs", "DeepOrMachineGibbs", "OneHotGibbs", "PMFGibbs",
)  # fmt: skip


def test_every_kernel_is_here():
    kernels = {n for n in dir(bmfjax) if n.endswith("Gibbs") or n in ("IASG", "SGLD", "SGHMC")}
    kernels.remove("Gibbs")  # the sampler of a fit, as a value
    assert kernels <= set(KERNELS)


# Of so few cases, of a state that nothing was measured for, and of draws that stay.
@pytest.mark.filterwarnings("ignore:a draw of IASG averages only", "ignore:IASG holds coordinates")
@pytest.mark.filterwarnings("ignore:the curvature of the log density changes by 50%")
@pytest.mark.filterwarnings("ignore:.* does not move")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in KERNELS],
)
def test_arviz_takes_the_run_of_a_kernel(name):
    """Of a start and steps of no kernel: these are run by the examples of each."""
    kernel, *arguments = KERNELS[name]()
    kernel.bind, kernel._compiles_start = staying(kernel.bind), True
    mcmc = MCMC(kernel, num_warmup=0, num_samples=2, progress_bar=False)
    mcmc.run(jax.random.key(0), *arguments)
    idata = _import_arviz().from_numpyro(mcmc, log_likelihood=True)
    posterior, draws = posterior_dataset(idata), mcmc.get_samples(group_by_chain=True)
    assert set(posterior.data_vars) == set(draws)
    for site, values in draws.items():
        np.testing.assert_array_equal(posterior[site].values, np.asarray(values))
    stats = group(idata, "sample_stats")
    data = arguments[-1]
    energy = np.asarray(mcmc.get_extra_fields(group_by_chain=True)["potential_energy"])
    np.testing.assert_array_equal(stats["lp"].values, -energy)
    np.testing.assert_array_equal(group(idata, "observed_data")["data"].values, data)
    found = group(idata, "log_likelihood")["data"].values
    assert found.shape == (1, 2, *data.shape) and np.isfinite(found).all()
