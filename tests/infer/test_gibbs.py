"""TruncatedGibbs under NumPyro's MCMC: its draws against NUTS, chains, fields, refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.sparse as sp
from jax import lax, random
from numpyro.infer import MCMC
from numpyro.infer.util import log_density

from bmfjax.data import InputError
from bmfjax.infer import TruncatedGibbs
from bmfjax.infer.mcmc.truncated import relaxed_data
from bmfjax.kernels.relaxed.data import MatrixData, SparseMatrixData, cross_product
from bmfjax.kernels.tempering import AnnealedState
from bmfjax.models import relaxed_bmf
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, CHAINS, WARMUP, DRAWS = 8, 6, 4, 50, 600


def values():
    r = np.random.default_rng(0)
    block = np.outer(r.random(ROWS) < 0.5, r.random(COLUMNS) < 0.6).astype(np.float32)
    block[0, 0] = 1 - block[0, 0]
    block[2, 3] = np.nan
    return block


VALUES = values()
MODEL = functools.partial(relaxed_bmf, rank=1, precision=5.0)
START = {
    "usage": np.full((CHAINS, ROWS, 1), 0.5, np.float32),
    "basis": np.full((CHAINS, COLUMNS, 1), 0.5, np.float32),
}


@functools.cache
def finished():
    mcmc = MCMC(
        TruncatedGibbs(MODEL),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(random.key(1), VALUES, init_params=START, extra_fields=("i", "residual"))
    return mcmc


def test_draws_come_with_their_statistics():
    mcmc = finished()
    draws, fields = mcmc.get_samples(), mcmc.get_extra_fields(group_by_chain=True)
    assert {n: v.shape for n, v in draws.items()} == {
        "usage": (CHAINS * DRAWS, ROWS, 1),
        "basis": (CHAINS * DRAWS, COLUMNS, 1),
    }
    assert len(np.unique(draws["usage"][:, 0])) > 0.9 * CHAINS * DRAWS
    np.testing.assert_array_equal(fields["i"][2], WARMUP + 1 + np.arange(DRAWS))

    some = {n: v[:5] for n, v in mcmc.get_samples(group_by_chain=True).items()}
    some = {n: v[0, :5] for n, v in some.items()}
    joint = fast_jit(jax.vmap(lambda p: log_density(MODEL, (VALUES,), {}, p)[0]))(some)
    np.testing.assert_allclose(fields["potential_energy"][0, :5], -joint, rtol=1e-4, atol=1e-4)
    residual = np.nan_to_num(VALUES - np.einsum("dik,djk->dij", some["usage"], some["basis"]))
    np.testing.assert_allclose(fields["residual"][0, :5], (residual**2).sum((1, 2)), rtol=1e-4)


def test_a_chain_draws_the_same_alone_and_beside_others():
    kernel = TruncatedGibbs(MODEL)

    @fast_jit
    def alone(key, start):
        state = kernel.init(key, WARMUP, start, (VALUES,), {})

        def step(state, _):
            state = kernel.sample(state, (VALUES,), {})
            return state, state.sample

        return lax.scan(step, state, None, length=WARMUP + 3)[1]

    chain = 2
    key = random.split(random.key(1), CHAINS)[chain]  # as MCMC splits it
    found = alone(key, {n: x[chain] for n, x in START.items()})
    for name, draws in finished().get_samples(group_by_chain=True).items():
        np.testing.assert_allclose(found[name][WARMUP:], draws[chain, :3], rtol=2e-3, atol=1e-4)


def test_the_diagnostics_string_is_short():
    mcmc = finished()
    state = jax.tree.map(lambda x: x[0], mcmc.last_state)
    assert mcmc.sampler.get_diagnostics_str(state).startswith("log joint ")


# ---- start and annealing -----------------------------------------------------------------------


def test_a_random_start_is_a_draw_from_the_prior():
    model = functools.partial(relaxed_bmf, rank=2, prior="ard", precision=1.0)
    bound = TruncatedGibbs(model).bind(VALUES)
    init = fast_jit(jax.vmap(lambda key: bound.algorithm.init(key, None, bound.data)))
    first = init(random.split(random.key(0), 1000)).position
    assert {n: x.shape[1:] for n, x in first.items()} == {
        "usage": (ROWS, 2),
        "basis": (COLUMNS, 2),
        "rate": (2,),
    }
    assert abs(first["rate"].mean() - 1) < 4 / np.sqrt(2000)  # Gamma(1, 1)
    # Exponential with that rate, on [0, 1].
    rate = np.asarray(first["rate"], float)
    mean = (1 / rate - 1 / np.expm1(rate)).mean()
    assert abs(first["usage"].mean() - mean) < 0.01


def test_annealing_warms_the_first_sweeps_and_one_compilation_serves_all(compilations):
    """A state whose types change from the first sweep to the second would need another."""
    bound = TruncatedGibbs(MODEL, num_anneal=4, lowest=0.1).bind(VALUES)
    start = {n: jnp.asarray(x[0]) for n, x in START.items()}
    state = bound.algorithm.init(None, start, bound.data)
    assert isinstance(state, AnnealedState)
    step = fast_jit(lambda key, state: bound.algorithm.step(key, state, bound.data))
    keys = list(random.split(random.key(0), 6))
    counts, infos = [], []
    compilations()
    for key in keys:
        state, info = step(key, state)
        counts.append(compilations())
        infos.append(info)
    assert counts == [1, 0, 0, 0, 0, 0]

    powers = np.array([info.inverse_temperature for info in infos])
    expected = [0.1, 0.1**0.75, 0.1**0.5, 0.1**0.25, 1.0, 1.0]
    np.testing.assert_allclose(powers, expected, rtol=1e-5)
    # The joint density that is reported is that of the sweep's own temperature.
    likelihoods = np.array([info.inner.log_likelihood for info in infos])
    joint = np.array([info.inner.log_joint for info in infos])
    np.testing.assert_allclose(joint, powers * likelihoods, atol=1e-4)  # the priors are uniform


# ---- data and refusals -------------------------------------------------------------------------


def test_large_sparse_matrices_are_held_sparse():
    large = np.zeros((3000, 2000), np.float32)
    large[np.arange(2000), np.arange(2000)] = 1.0
    assert isinstance(relaxed_data(large), SparseMatrixData)
    large[0, 5] = np.nan
    observed = np.ones(large.shape, bool)
    observed[7, 8] = False
    data = relaxed_data(large, observed)
    assert isinstance(data, SparseMatrixData) and float(data.count) == large.size - 2
    assert isinstance(relaxed_data(large[:1000]), MatrixData)
    one_row_missing = large.copy()
    one_row_missing[3] = np.nan
    assert isinstance(relaxed_data(one_row_missing), MatrixData)  # its list would be whole
    large[:300] = 1.0
    assert isinstance(relaxed_data(large), MatrixData)


def test_sparse_matrices_stay_sparse_where_dense_ones_would_take_several_times_the_memory():
    sparse = sp.random_array((3000, 2000), density=0.1, rng=0, format="coo")
    sparse.data[0] = np.nan  # a missing entry
    data = relaxed_data(sparse)
    assert isinstance(data, SparseMatrixData) and float(data.count) == 3000 * 2000 - 1
    other = np.random.default_rng(0).random((2000, 2))
    found = cross_product(data, "usage", jnp.asarray(other, jnp.float32))
    np.testing.assert_allclose(found.T, np.nan_to_num(sparse.toarray()) @ other, rtol=1e-4)
    for dense in (sp.csr_array(sparse)[:1000], sp.random_array((3000, 2000), density=0.3, rng=0)):
        assert isinstance(relaxed_data(dense), MatrixData)
    hidden = np.ones(sparse.shape, bool)
    hidden[0] = False
    assert isinstance(relaxed_data(sparse, hidden), MatrixData)


def test_a_mask_reaches_the_sampler():
    observed = np.ones(VALUES.shape, bool)
    observed[5] = False
    data = TruncatedGibbs(MODEL).bind(VALUES, observed).data
    assert float(data.observed.sum()) == VALUES.size - 1 - COLUMNS


def other_model(data):
    numpyro.sample("x", dist.Normal())


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (other_model, (VALUES,), "samples bmfjax.models.relaxed_bmf and no other model"),
        (functools.partial(relaxed_bmf, rank=2, shape=(4, 3)), (), "needs data"),
        (functools.partial(MODEL, precision=dist.HalfNormal(1.0)), (VALUES,), "is HalfNormal"),
        (functools.partial(MODEL, prior=dist.Gamma(2.0), upper=np.inf), (VALUES,), "to infinity"),
        (functools.partial(MODEL, prior="uniform", upper=np.inf), (VALUES,), "improper"),
    ],
    ids=["another model", "no data", "precision", "half line", "improper"],
)
def test_what_it_cannot_sample_is_refused_in_a_sentence(model, args, message):
    with pytest.raises(InputError, match=message):
        TruncatedGibbs(model).bind(*args)
