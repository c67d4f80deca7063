"""The OrMachine under NumPyro, and the usage of new rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random

import bmfjax
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.infer import OrMachineGibbs
from bmfjax.infer.mcmc import ormachine as ormachine_kernel
from bmfjax.infer.new_rows import MAX_SUMMED_RANK, sampled_usage, usage_of_new_rows
from bmfjax.kernels.boolean.collapsed import collapsed_ormachine
from bmfjax.posterior.packed import PackedDraws

VALUES = np.kron(np.eye(2), np.ones((6, 5)))
VALUES[0, 0] = 0
VALUES[3, 7] = np.nan


def test_a_start_of_bits_gets_densities_and_rates_that_fit_it():
    model = functools.partial(bmfjax.models.ormachine, rank=2, num_rates=1)
    kernel = OrMachineGibbs(model)
    bound, _ = kernel.bind_packed(BinaryMatrix(VALUES))
    truth = {
        "usage": np.kron(np.eye(2), np.ones((6, 1))),
        "basis": np.kron(np.eye(2), np.ones((5, 1))),
    }
    position = bound.unconstrain(truth)
    assert np.isclose(position["flip_rate"], (1 + 1) / (119 + 2))
    np.testing.assert_allclose(position["usage_density"], (6 + 1) / (12 + 2))


@pytest.mark.parametrize(("ladder", "fresh"), [(None, False), ((1, 0.3), False), ((1, 0.0), True)])
def test_draws_from_the_prior_are_made_where_a_temperature_asks_for_them(
    monkeypatch, ladder, fresh
):
    asked = []

    def build(*arguments, from_prior, **options):
        asked.append(from_prior)
        return collapsed_ormachine(*arguments, from_prior=from_prior, **options)

    monkeypatch.setattr(ormachine_kernel, "collapsed_ormachine", build)
    model = functools.partial(bmfjax.models.ormachine, rank=1, num_rates=1)
    OrMachineGibbs(model, update="collapsed", inverse_temperatures=ladder).bind(VALUES)
    assert asked == [fresh]


def test_traced_data_are_packed_as_given_ones_are():
    kernel = OrMachineGibbs(functools.partial(bmfjax.models.ormachine, rank=1, num_rates=1))

    @jax.jit
    def pack(values):
        return kernel.bind_packed(values)[0].data

    given = kernel.bind_packed(VALUES)[0].data
    jax.tree.map(np.testing.assert_array_equal, pack(jnp.asarray(VALUES)), given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "swap"}, "update is 'swap'; choose from metropolis"),
        ({"dispersion": "map"}, "dispersion is 'map'"),
        ({"moves": "jump"}, "update 'metropolis' is 'jump'"),
        ({"update": "joint", "block_size": 0}, "block_size is 0"),
        ({"update": "collapsed", "block_size": 3}, "block_size is 3, which the update 'collapsed'"),
        ({"update": "collapsed", "moves": "birth"}, "collapsed' is 'birth'; choose from xor"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        OrMachineGibbs(bmfjax.models.ormachine, **options)


def test_other_models_and_no_data_are_refused():
    with pytest.raises(InputError, match=r"samples bmfjax.models.ormachine and no other"):
        OrMachineGibbs(bmfjax.models.relaxed_bmf).bind(VALUES)
    with pytest.raises(InputError, match="needs data"):
        OrMachineGibbs(
            functools.partial(bmfjax.models.ormachine, rank=1, num_rates=1, shape=(3, 3))
        ).bind()


@pytest.mark.parametrize("options", [{"num_anneal": 9}, {"num_adapt": 9}])
def test_draws_of_a_ladder_that_changes_are_refused(options):
    model = functools.partial(bmfjax.models.ormachine, rank=1, num_rates=1)
    kernel = OrMachineGibbs(model, inverse_temperatures=(1.0, 0.5), **options)
    with pytest.raises(InputError, match=r"the first 9 steps .* num_warmup is 8"):
        kernel.init(random.key(0), 8, None, (VALUES,), {})


def test_usage_of_new_rows_is_their_posterior_mean():
    """Against enumeration of the usage of each row, given two draws of everything else."""
    rng = np.random.default_rng(0)
    basis = rng.random((2, 7, 3)) < 0.5
    new = (rng.random((5, 7)) < 0.5).astype(float)
    new[0, 2], new[4] = np.nan, np.nan
    rates, densities = np.array([0.1, 0.2]), np.array([[0.3, 0.5, 0.6], [0.2, 0.4, 0.9]])
    states = (np.arange(8)[:, None] >> np.arange(3)) & 1
    expected = np.zeros((5, 3))
    for u, f, d in zip(basis, rates, densities, strict=True):
        covered = states @ u.T.astype(int) > 0
        one = np.where(covered, 1 - f, f)[None]
        entries = np.where(new[:, None] == 1, np.log(one), np.log1p(-one))
        log_p = np.where(np.isnan(new[:, None]), 0, entries).sum(-1)
        log_p = log_p + np.log(np.where(states == 1, d, 1 - d)).sum(1)
        p = np.exp(log_p - log_p.max(1, keepdims=True))
        expected += (p / p.sum(1, keepdims=True)) @ states / 2
    many = PackedDraws.pack(np.repeat(basis[:, None], 200, axis=1))  # two chains, a draw each
    rates, densities = (np.repeat(v[:, None], 200, 1) for v in (rates, densities))
    rows = BinaryMatrix(new, observed=~np.isnan(new))
    others = {"flip_rate": rates, "usage_density": densities}
    np.testing.assert_allclose(usage_of_new_rows(rows, many, others), expected, atol=1e-6)
    found = sampled_usage(rows, many, rates, densities)
    # 400 draws, correlated a little: the standard error is at most 0.05.
    assert np.abs(found - expected).max() < 0.12
    assert np.abs(found - expected).mean() < 0.03


def test_more_factors_than_can_be_summed_over_are_sampled():
    rng = np.random.default_rng(0)
    basis = PackedDraws.pack(rng.random((1, 5, 12, MAX_SUMMED_RANK + 1)) < 0.3)
    rates, densities = np.full((1, 5), 0.1), rng.uniform(0.2, 0.8, (1, 5, MAX_SUMMED_RANK + 1))
    rows = BinaryMatrix(rng.random((4, 12)) < 0.5)
    others = {"flip_rate": rates, "usage_density": densities}
    found = usage_of_new_rows(rows, basis, others)
    np.testing.assert_array_equal(found, sampled_usage(rows, basis, rates, densities))


def test_new_rows_need_a_density():
    with pytest.raises(InputError, match="given bit by bit and says nothing of new rows"):
        usage_of_new_rows(BinaryMatrix([[1, 0]]), np.zeros((1, 1, 2, 1), bool), {})


def test_priors_are_read_from_the_model():
    from bmfjax.infer.mcmc.ormachine import boolean_density

    arguments = {
        "rank": 2, "usage": dist.Beta(2.0, 3.0), "basis": np.full((4, 2), 0.25),
        "flip_rate": 0.1, "num_rates": 1,
    }  # fmt: skip
    density, given = boolean_density((5, 4), **arguments)
    assert density.usage.beta == (2.0, 3.0)
    np.testing.assert_allclose(given["basis_log_odds"], np.log(1 / 3) * np.ones((2, 4)), rtol=1e-6)
    assert density.flip_rate.value == 0.1
