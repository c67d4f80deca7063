"""NumPyro's MCMC to ArviZ: names, statistics, what is missing, and nothing large unasked."""

import functools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import posterior_dataset
from bmfjax.infer.mcmc.to_arviz import _sites, to_arviz
from bmfjax.models import relaxed_bmf

ROWS, COLUMNS = 20, 16
VALUES = (np.random.default_rng(0).random((ROWS, COLUMNS)) < 0.4).astype(np.float32)
VALUES[2, 3] = np.nan
OBSERVED = np.random.default_rng(1).random((ROWS, COLUMNS)) < 0.8
MODEL = functools.partial(relaxed_bmf, rank=2, precision=2.0)


DRAWS = {
    "usage": np.random.default_rng(2).random((2, 3, ROWS, 2)).astype(np.float32),
    "basis": np.random.default_rng(3).random((2, 3, COLUMNS, 2)).astype(np.float32),
}
FIELDS = {
    "potential_energy": np.arange(6.0).reshape(2, 3),
    "clamped": np.full((2, 3), 0.25),
    "inner": {"position": np.zeros((2, 3))},
}


def finished(model=MODEL, draws=DRAWS, fields=FIELDS, args=(VALUES, OBSERVED)):
    """What `to_arviz` asks of an MCMC that has run; its doctest asks a real one."""
    chains = next(iter(draws.values())).shape[0]

    def get_samples(group_by_chain=False):
        flat = {n: v.reshape(-1, *v.shape[2:]) for n, v in draws.items()}
        return draws if group_by_chain else flat

    return SimpleNamespace(
        get_samples=get_samples,
        get_extra_fields=lambda group_by_chain: fields,
        sampler=SimpleNamespace(model=model),
        num_chains=chains,
        _args=args,
        _kwargs={},
    )


@functools.cache
def converted():
    return to_arviz(finished())


def groups(idata):
    """Names of the groups, of ArviZ before and after 1.0."""
    names = idata.groups() if callable(idata.groups) else idata.groups
    return {name.strip("/") for name in names} - {""}


def test_draws_have_named_dimensions():
    posterior = converted()["posterior"]
    assert posterior["usage"].dims == ("chain", "draw", "rows", "factor")
    assert posterior["basis"].dims == ("chain", "draw", "columns", "factor")
    for name in ("usage", "basis"):
        np.testing.assert_array_equal(posterior[name].values, DRAWS[name])


def test_statistics_go_by_arvizs_names():
    stats = converted()["sample_stats"]
    np.testing.assert_array_equal(stats["lp"].values, -FIELDS["potential_energy"])
    np.testing.assert_array_equal(stats["clamped"].values, FIELDS["clamped"])
    assert stats["lp"].dims == ("chain", "draw") and stats["lp"].shape == (2, 3)
    assert set(stats.data_vars) == {"lp", "clamped"}


def test_a_container_says_what_made_it():
    attrs = posterior_dataset(to_arviz(finished(), sampling_time=2.5)).attrs
    assert attrs["inference_library"] == "numpyro" and attrs["sampling_time"] == 2.5
    assert attrs["inference_library_version"] == numpyro.__version__ and attrs["created_at"]


def test_nuts_statistics_are_renamed():
    fields = {"accept_prob": jnp.ones((1, 3)), "num_steps": jnp.ones((1, 3), int), "diverging": 0}
    mcmc = finished(None, {"a": np.zeros((1, 3))}, fields)
    assert set(to_arviz(mcmc)["sample_stats"].data_vars) == {"acceptance_rate", "n_steps"}


def test_what_is_masked_is_missing():
    observed = converted()["observed_data"]["data"]
    assert observed.dims == ("rows", "columns")
    np.testing.assert_array_equal(observed.values, np.where(OBSERVED, VALUES, np.nan))


def test_what_is_observed_keeps_its_digits():
    y = np.array([0.1, 2.0**25 + 1, 3.0])

    def model(y):
        mean = numpyro.sample("mean", dist.Normal())
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        numpyro.sample("doubled", dist.Normal(mean, 1.0), obs=2 * jnp.asarray(y))

    idata = to_arviz(finished(model, {"mean": np.zeros((1, 5))}, {}, (y,)))
    np.testing.assert_array_equal(idata["observed_data"]["y"].values, y)
    np.testing.assert_allclose(idata["observed_data"]["doubled"].values, 2 * y, rtol=1e-6)


def test_no_pointwise_likelihood_unless_asked_for():
    assert groups(converted()) == {"posterior", "sample_stats", "observed_data"}
    asked = to_arviz(finished(), include_log_likelihood=True)
    pointwise = asked["log_likelihood"]["data"]
    assert pointwise.dims == ("chain", "draw", "rows", "columns")
    product = DRAWS["usage"][1, 2] @ DRAWS["basis"][1, 2].T
    expected = dist.Normal(product, 2.0**-0.5).log_prob(np.nan_to_num(VALUES))
    seen = OBSERVED & ~np.isnan(VALUES)
    found = pointwise.values[1, 2]
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-4)
    assert not np.nan_to_num(found[~seen]).any()


def test_rows_and_columns_may_be_labelled():
    names = {"rows": [f"row {i}" for i in range(ROWS)], "columns": list("abcdefghijklmnop")}
    idata = to_arviz(finished(), coords=names)
    for group, variable in (("posterior", "usage"), ("observed_data", "data")):
        assert idata[group][variable].coords["rows"].values.tolist() == names["rows"]
    assert idata["posterior"]["basis"].sel(columns="c").shape == (2, 3, 2)


def test_plates_name_the_dimensions_of_any_model():
    def model(y):
        with numpyro.plate("groups", 2, dim=-1):
            effect = numpyro.sample("effect", dist.Normal().expand([2, 3]).to_event(1).mask(True))
        with numpyro.plate("many", 4, dim=-2) as i, numpyro.plate("few", 2, dim=-1):
            numpyro.sample("y", dist.Normal(effect[:, 0], 1.0), obs=y[i])

    y = jnp.arange(8).reshape(4, 2)
    draws = {"effect": np.zeros((1, 5, 2, 3))}
    idata = to_arviz(finished(model, draws, {}, (y.astype(float),)))
    assert idata["posterior"]["effect"].dims == ("chain", "draw", "groups", "effect_dim_1")
    assert idata["observed_data"]["y"].dims == ("many", "few")
    np.testing.assert_array_equal(idata["observed_data"]["y"].values, y)


def of_plates(x, y):
    effect = numpyro.sample("effect", dist.Normal().expand([4]).to_event(1))
    with numpyro.plate("many", 4, dim=-2) as i, numpyro.plate("few", 3, dim=-1) as j:
        numpyro.sample("y", dist.Normal(effect[i][:, None] * x[j], 0.5), obs=y[i][:, j])


@pytest.fixture(scope="module")
def plated():
    rng = np.random.default_rng(4)
    x, y = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in (3, (4, 3)))
    draws = {"effect": rng.normal(size=(2, 5, 4)).astype(np.float32)}
    run = finished(of_plates, draws, {}, (x, y))
    expected = dist.Normal(draws["effect"][..., None] * x, 0.5).log_prob(y)
    return bmfjax.log_likelihood_fn(run), to_arviz(run), np.asarray(expected)


def test_a_model_with_plates_has_densities_of_some_observations(plated):
    fn, idata, expected = plated
    some = idata["observed_data"]["y"].isel(many=[3, 1], few=[0, 2])
    found = fn(some, idata)
    assert found.dims == ("chain", "draw", "many", "few")
    np.testing.assert_allclose(found, expected[:, :, [3, 1]][..., [0, 2]], rtol=1e-5)
    fewer = fn(some, idata.isel(draw=[4, 0]))
    np.testing.assert_allclose(fewer, found.values[:, [4, 0]], rtol=1e-6)
    mean = SimpleNamespace(posterior=posterior_dataset(idata).mean(("chain", "draw")))
    assert fn(some, mean).dims == ("many", "few")


def test_observations_that_no_plate_counts_are_refused(plated):
    fn, idata, _ = plated
    y = idata["observed_data"]["y"]
    with pytest.raises(InputError, match="no site 'z'"):
        fn(y.rename("z"), idata)
    with pytest.raises(InputError, match="axis 'many' of 'y' is no plate of the model with its"):
        fn(y.assign_coords(many=list("abcd")), idata)


def test_a_kernel_without_a_model_still_converts():
    idata = to_arviz(finished(None, {"a": np.zeros((1, 5, 2))}, {}))
    assert groups(idata) == {"posterior"}
    assert idata["posterior"]["a"].shape == (1, 5, 2)


@pytest.mark.parametrize("chains", [1, 2])
def test_a_scalar_site_needs_no_dimension(chains):
    model = functools.partial(numpyro.sample, "a", dist.Normal())
    idata = to_arviz(finished(model, {"a": np.zeros((chains, 5))}, {}, ()))
    assert idata["posterior"]["a"].dims == ("chain", "draw")


def test_a_model_may_pick_numpy_arrays_by_its_plates():
    x = np.arange(6.0, dtype=np.float32)

    def model(x):
        slope = numpyro.sample("slope", dist.Normal())
        with numpyro.plate("rows", len(x)) as i:
            numpyro.sample("y", dist.Normal(slope * x[i]), obs=x[i])

    dims, observed = _sites(model, (x,), {})
    assert dims == {"y": ["rows"]}
    np.testing.assert_array_equal(observed["y"], x)


def test_the_window_of_averages_is_an_attribute():
    """Of each site too where they differ; of a sampler without windows there is none."""
    for windows, expected in (
        ({"usage": 8, "basis": 8}, {"window": 8}),
        ({"usage": 1, "basis": 8}, {"window": 1, "window_usage": 1, "window_basis": 8}),
    ):
        mcmc = finished()
        mcmc.sampler.windows = windows
        attributes = to_arviz(mcmc)["posterior"].attrs
        assert {n: v for n, v in attributes.items() if n.startswith("window")} == expected
    assert "window" not in converted()["posterior"].attrs
