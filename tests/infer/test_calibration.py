"""IASG calibrated: measured curvature and noise, and draws with the covariance of the posterior."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import MCMC

from bmfjax.diagnostics import ess_bulk
from bmfjax.infer import IASG, ChainRun
from bmfjax.infer.mcmc.iasg import _warn_of
from bmfjax.kernels.sgmcmc.calibration import NUM_POINTS, _closest_normal, newton_mode

N, TAU, PRIOR = 240, 4.0, 2.0
CHAINS, DRAWS = 32, 250


@functools.cache
def regression():
    """Regressors, and residuals whose size depends on them, so that C is not A."""
    r = np.random.default_rng(0)
    x = np.column_stack([np.ones(N), r.normal(size=(N, 2)) @ [[1.0, 0.7], [0.0, 0.7]]])
    y = x @ [0.5, 1.0, -0.5] + (0.2 + 0.5 * np.abs(x[:, 1])) * r.normal(size=N)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def linear(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, PRIOR))
    b = numpyro.sample("b", dist.Normal(0.0, PRIOR).expand([2]).to_event(1))
    with numpyro.plate("rows", N) as i:
        numpyro.sample("y", dist.Normal(a + x[i, 1:] @ b, TAU**-0.5), obs=y[i])


BLOCKS = {
    "together": ((("a", "b"), {"rows": None}),),
    "apart": ((("a",), {"rows": None}), (("b",), {"rows": 30})),
}


def exact():
    """Curvature and mean of the posterior, and C of single cases over that posterior."""
    x, y = (np.asarray(v, float) for v in regression())
    curvature = TAU * x.T @ x + np.eye(3) / PRIOR**2
    mean = np.linalg.solve(curvature, TAU * x.T @ y)
    # Over the posterior: squared residuals grow by x'A^-1 x, and the sum of gradients varies by A
    # but for the prior.
    spread = np.einsum("nk,kl,nl->n", x, np.linalg.inv(curvature), x)
    squares = (y - x @ mean) ** 2 + spread
    total = TAU * x.T @ x
    mean_square = total @ np.linalg.inv(curvature) @ total
    at_mode = TAU * x.T @ (y - x @ mean)
    noise = TAU**2 * (x * squares[:, None]).T @ x - (mean_square + np.outer(at_mode, at_mode)) / N
    return curvature, mean, noise


@functools.cache
def drawn(blocks, calibration):
    """Draws (chain, draw, 3) of the regression, and the calibration of the first chain."""
    bound = IASG(linear, BLOCKS[blocks], calibration=calibration, num_approach=0).bind(
        *regression()
    )
    assert bound.caution == ""
    run = ChainRun(
        bound.algorithm, random.key(1), bound.data,
        num_chains=CHAINS, num_warmup=20, num_samples=DRAWS, draws={"a": 1, "b": 1},
    )  # fmt: skip
    run.finish()
    found = run.draws()
    draws = np.concatenate([found["a"][..., None], found["b"]], -1).astype(float)
    return draws, jax.tree.map(lambda v: np.asarray(v[0], float), run.state.calibration)


def whitened(draws, covariance):
    """Covariance of draws where `covariance` is the unit matrix, and four Monte Carlo errors."""
    root = np.linalg.cholesky(np.linalg.inv(covariance)).T
    found = np.cov((draws.reshape(-1, 3) @ root.T).T)
    return found, 4 * np.sqrt(2.0 / ess_bulk(draws).min())


@pytest.mark.parametrize("blocks", BLOCKS)
def test_curvature_and_noise_are_measured(blocks):
    curvature, _, noise = exact()
    measured = drawn(blocks, "sandwich")[1]
    np.testing.assert_allclose(measured.curvature, curvature, rtol=1e-4, atol=1e-2)
    if blocks == "apart":
        noise[0, 1:] = noise[1:, 0] = 0.0  # minibatches of their own
    # The mean over the posterior is of a few points.
    np.testing.assert_allclose(measured.noise, noise, rtol=0.05, atol=0.02 * noise.max())
    assert measured.departure == pytest.approx(0.0, abs=1e-3)
    assert NUM_POINTS % 2 == 0


@pytest.mark.parametrize(
    "calibration", ["sandwich", pytest.param("top-up", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("blocks", BLOCKS)
def test_corrected_draws_have_mean_and_covariance_of_the_posterior(blocks, calibration):
    curvature, mean, _ = exact()
    draws, measured = drawn(blocks, calibration)
    posterior = np.linalg.inv(curvature)
    found, error = whitened(draws, posterior)
    assert error < 0.2
    np.testing.assert_allclose(found, np.eye(3), atol=error)
    shift = (draws.mean((0, 1)) - mean) / np.sqrt(np.diag(posterior))
    assert np.abs(shift).max() < 4 / np.sqrt(ess_bulk(draws).min())
    uncorrected = np.concatenate([np.ravel(measured.ratio[s]) for s in "ab"])
    if calibration == "sandwich":
        assert np.abs(uncorrected - 1).max() > 0.15, "the case must need a correction"


@pytest.mark.long
def test_measured_steps_give_the_posterior_variance_on_average_and_the_ratios_tell_of_each():
    curvature, _, _ = exact()
    draws, measured = drawn("together", "step")
    posterior = np.linalg.inv(curvature)
    found, error = whitened(draws, posterior)
    assert error < 0.15
    assert np.trace(found) / 3 == pytest.approx(1.0, abs=error / np.sqrt(3))
    ratios = draws.std((0, 1)) / np.sqrt(np.diag(posterior))
    expected = np.concatenate([np.ravel(measured.ratio[s]) for s in "ab"])
    np.testing.assert_allclose(ratios, expected, rtol=error / 2)
    assert np.ptp(expected) > 0.1, "the case must tell the coordinates apart"


@pytest.mark.long
def test_topped_up_iterates_have_the_covariance_of_the_posterior():
    """The steps themselves, from two blocks with minibatches of their own."""
    curvature, _, _ = exact()
    kernel = IASG(linear, BLOCKS["apart"], calibration="top-up", num_approach=0)
    bound = kernel.bind(*regression())

    @jax.jit
    @jax.vmap
    def chain(key):
        def one(state, key):
            state, _ = bound.algorithm.step(key, state, bound.data)
            return state, jnp.append(state.position["a"], state.position["b"])

        start = bound.algorithm.init(key, None, bound.data)
        return jax.lax.scan(one, start, random.split(key, 270))[1]

    iterates = np.asarray(chain(random.split(random.key(3), CHAINS)), float)[:, 20:]
    found, error = whitened(iterates, np.linalg.inv(curvature))
    assert error < 0.2
    np.testing.assert_allclose(found, np.eye(3), atol=error)


def test_the_closest_normal_of_a_skewed_density():
    """Of 3x - exp(x): gradient 3 - exp(m + v/2) = 0 and curvature exp(m + v/2) = 1/v."""
    normal = np.random.default_rng(0).normal(size=(2000, 1))
    mean, curvature = _closest_normal(
        jnp.log(jnp.array([3.0])),
        jnp.array([[3.0]]),
        jnp.asarray(np.concatenate([normal, -normal]), jnp.float32),
        lambda x: 3.0 - jnp.exp(x),
        lambda x: jnp.exp(x)[:, None],
        jnp.zeros((1, 1)),
    )
    assert float(curvature[0, 0]) == pytest.approx(3.0, rel=0.02)
    assert float(mean[0]) == pytest.approx(np.log(3.0) - 1 / 6, abs=0.01)


def test_newtons_method_ends_at_the_mode():
    """A second step finds that the first one, of a quadratic density, has led there."""
    seen = []

    def curvature_at(x):
        jax.debug.callback(lambda: seen.append(1))
        return jnp.diag(jnp.array([4.0, 9.0]))

    def density(x):
        return -0.5 * ((x - 1.0) ** 2 @ jnp.array([4.0, 9.0]))

    mode = newton_mode(density, curvature_at, jnp.zeros(2), 30)
    jax.effects_barrier()
    np.testing.assert_allclose(mode, 1.0, atol=1e-5)
    assert len(seen) == 2


def test_a_million_cases_are_measured():
    """No product of numbers of cases may leave the integers: shapes alone show it."""

    def model(y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)) as i:
            numpyro.sample("y", dist.Normal(b, 1.0), obs=y[i])

    kernel = IASG(model, ((("b",), {"rows": None}),), calibration="top-up")
    bound = kernel.bind(jnp.zeros(1_000_000))
    found = jax.eval_shape(lambda: bound.algorithm.init(random.key(0), None, bound.data))
    assert found.calibration.noise.shape == (1, 1)


def test_one_program_serves_all_steps():
    kernel = IASG(linear, BLOCKS["together"], calibration="top-up", num_approach=0)
    bound = kernel.bind(*regression())
    init, step = jax.jit(bound.algorithm.init), jax.jit(bound.algorithm.step)
    state = init(random.key(0), None, bound.data)
    for key in random.split(random.key(1), 3):
        state, _ = step(key, state, bound.data)
    assert step._cache_size() == 1


def test_ratios_are_fields_of_the_run_and_a_run_goes_on_where_it_stopped():
    def run(num_samples):
        kernel = IASG(linear, BLOCKS["together"], calibration="sandwich", num_approach=0)
        mcmc = MCMC(kernel, num_warmup=0, num_samples=num_samples, progress_bar=False)
        mcmc.run(random.key(0), *regression(), extra_fields=("sandwich.b",))
        return mcmc

    whole, half = run(6), run(3)
    first = half.get_samples()["b"]
    half.post_warmup_state = half.last_state
    half.run(half.last_state.rng_key, *regression())
    joined = jnp.concatenate([first, half.get_samples()["b"]])
    np.testing.assert_array_equal(joined, whole.get_samples()["b"])
    ratios = whole.get_extra_fields()["sandwich.b"]
    assert ratios.shape == (6, 2)
    np.testing.assert_allclose(ratios[0], whole.last_state.inner.calibration.ratio["b"])


# ---- a posterior that is not normal ----------------------------------------------------------


def logistic(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 2.5).expand([4]).to_event(1))
    with numpyro.plate("rows", 1000) as i:
        numpyro.sample("y", dist.Bernoulli(logits=x[i] @ b), obs=y[i])


def logistic_data():
    r = np.random.default_rng(0)
    x = np.column_stack([np.ones(1000), r.normal(size=(1000, 3))])
    x[:, 2] = 0.6 * x[:, 1] + 0.8 * x[:, 2]
    return x, r.random(1000) < 1 / (1 + np.exp(-x @ [-1.5, 1.0, -1.5, 0.5]))


def logistic_moments(x, y):
    """Mean and standard deviation by importance sampling from a normal around the mode."""
    b = np.zeros(4)
    for _ in range(20):
        p = 1 / (1 + np.exp(-x @ b))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + np.eye(4) / 2.5**2
        b = b + np.linalg.solve(curvature, x.T @ (y - p) - b / 2.5**2)
    r, scale = np.random.default_rng(1), 1.2
    z = r.normal(size=(20_000, 4))
    points = b + scale * z @ np.linalg.inv(np.linalg.cholesky(curvature))
    logits = points @ x.T
    log_density = logits @ y - np.logaddexp(0, logits).sum(1) - (points**2).sum(1) / 2 / 2.5**2
    log_weight = log_density + (z**2).sum(1) / 2
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 8000
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


@pytest.mark.long
@pytest.mark.parametrize("calibration", ["sandwich", "top-up"])
def test_a_logistic_regression_has_its_means_and_standard_deviations(calibration):
    """Within 5 % and 0.05 standard deviations; uncorrected steps shift the means by more."""
    x, y = logistic_data()
    mean, sd = logistic_moments(x, y)
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    kernel = IASG(logistic, ((("b",), {"rows": None}),), calibration=calibration, num_approach=0)
    bound = kernel.bind(*data)
    run = ChainRun(
        bound.algorithm, random.key(1), bound.data,
        num_chains=32, num_warmup=20, num_samples=300, draws={"b": 1},
    )  # fmt: skip
    run.finish()
    draws = run.draws()["b"].astype(float)
    assert ess_bulk(draws).min() > 2000
    np.testing.assert_allclose(draws.std((0, 1)) / sd, 1.0, atol=0.05)
    np.testing.assert_allclose((draws.mean((0, 1)) - mean) / sd, 0.0, atol=0.05)


# ---- a hierarchy -----------------------------------------------------------------------------

GROUPS, ROWS = 20, 2000


def groups_of_rows(group, y):
    """Nothing is seen of `mu` but by way of the groups."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    level = numpyro.sample("level", dist.Normal(mu, 0.5).expand([GROUPS]).to_event(1))
    with numpyro.plate("rows", ROWS) as i:
        numpyro.sample("y", dist.Normal(level[group[i]], 1.0), obs=y[i])


@pytest.mark.long
def test_a_site_without_data_of_its_own_has_its_spread_by_default():
    """Averages that are not calibrated have an eighth of it."""
    r = np.random.default_rng(0)
    group = np.arange(ROWS) % GROUPS
    y = 1.0 + 0.5 * r.normal(size=GROUPS)[group] + r.normal(size=ROWS)
    kernel = IASG(groups_of_rows, ((("mu", "level"), {"rows": None}),), num_approach=0)
    bound = kernel.bind(jnp.asarray(group), jnp.asarray(y, jnp.float32))
    run = ChainRun(
        bound.algorithm, random.key(1), bound.data,
        num_chains=16, num_warmup=20, num_samples=200, draws={"mu": 1},
    )  # fmt: skip
    run.finish()
    draws = run.draws()["mu"]
    # The means of the groups are normal around mu.
    sd = (1 / 25 + GROUPS / (0.25 + GROUPS / ROWS)) ** -0.5
    sizes = ess_bulk(draws[..., None])
    assert sizes.min() > 1000
    assert draws.std() == pytest.approx(sd, rel=4 / np.sqrt(2 * sizes.min()))
    assert draws.mean() == pytest.approx(
        y.mean() * (1 - sd**2 / 25), abs=4 * sd / np.sqrt(sizes.min())
    )


def on_a_box(x, y):
    a = numpyro.sample("a", dist.Uniform(-9.0, 9.0))
    with numpyro.plate("rows", N) as i:
        numpyro.sample("y", dist.Normal(a * x[i, 1], TAU**-0.5), obs=y[i])


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (IASG(on_a_box, ((("a",), {"rows": None}),)), "'a' is on a box"),
        (IASG(linear, ((("a", "b"), {}),), window=8), "exactly one plate a block"),
        (
            IASG(
                linear, ((("b",), {"rows": 12}),),
                conditionals={"a": lambda key, sites, *data: sites["a"]},
            ),
            r"\['a'\] are drawn exactly",
        ),
    ],
    ids=["box", "plates", "conditional"],
)  # fmt: skip
def test_draws_that_cannot_be_calibrated_by_default_are_told(kernel, reason):
    with pytest.warns(UserWarning, match=f"IASG are not calibrated, .*{reason}.*; use NUTS"):
        kernel.bind(*regression())


def test_steps_of_the_users_own_are_not_calibrated():
    for own in ({"preconditioner": None, "step_size": 1e-3}, {"step_size": 0.2}):
        bound = IASG(linear, BLOCKS["together"], **own).bind(*regression())
        state = jax.eval_shape(lambda b=bound: b.algorithm.init(random.key(0), None, b.data))
        assert state.calibration is None and bound.caution == ""


def test_active_bounds_are_told():
    (found,) = IASG(linear)._doubts(SimpleNamespace(clamped=jnp.array([0.1, 0.3]))).items()
    assert "at their bounds" in found[0] and found[1].tolist() == [False, True]


# ---- where it is doubtful ----------------------------------------------------------------------


def measured(departure=0.0, ratio=1.0, num_flat=0):
    return SimpleNamespace(
        departure=jnp.array(departure), ratio={"b": jnp.array([1.0, ratio])},
        num_flat=jnp.array(num_flat),
    )  # fmt: skip


def test_doubtful_calibrations_are_told():
    _warn_of(measured(), "sandwich")  # warnings are errors here
    _warn_of(measured(ratio=0.1), "top-up")
    with pytest.warns(UserWarning, match="curvature of the log density changes by 50%"):
        _warn_of(measured(departure=0.5), "top-up")
    with pytest.warns(UserWarning, match=r"averages of 'b' have 10% of the posterior's"):
        _warn_of(measured(ratio=0.1), "sandwich")
    _warn_of(measured(ratio=0.85), "step")
    for ratio, words in ((0.7, "70%"), (1.4, "140%")):
        with pytest.warns(UserWarning, match=f"of 'b' have {words} of .* is one step for all"):
            _warn_of(measured(ratio=ratio), "step")
    with pytest.warns(UserWarning, match="2 directions .*, such as rotations.* use bmfjax.SGLD"):
        _warn_of(measured(num_flat=2), "top-up")
    with pytest.raises(FloatingPointError, match="found no mode"):
        _warn_of(measured(departure=np.nan), "step")
