"""SGLD, SGHMC and AuxiliaryGibbs: their draws against known posteriors, and as NumPyro kernels."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import lax, random
from numpyro.infer import MCMC

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk
from bmfjax.infer import IASG, SGHMC, SGLD, AuxiliaryGibbs, ChainRun, TruncatedGibbs
from bmfjax.kernels.sgmcmc import dynamics, sandwich

N = 120
_R = np.random.default_rng(0)
X = _R.normal(size=(N, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
Y = X @ [1.0, -2.0] + _R.normal(size=N)
X, Y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
#: The posterior of `linear`, which is normal.
PRECISION = np.asarray(X.T @ X, float) + np.eye(2) / 4.0
MEAN = np.linalg.solve(PRECISION, np.asarray(X.T @ Y, float))

ONE = ((("a", "b"), {"rows": 30}),)
TWO = ((("a",), {"rows": 30}), (("b",), {"rows": 40}))
ALL = ((("a", "b"), {"rows": N}),)


def linear(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", N) as i:
        numpyro.sample("y", dist.Normal(a * x[i, 0] + b * x[i, 1], 1.0), obs=y[i])


def drawn(kernel, args, sites, chains=16, number=250):
    """(chain, draw) of every site in the model's own space, and the run."""
    bound = kernel.bind(*args)
    run = ChainRun(
        bound.algorithm, random.key(1), bound.data, num_chains=chains, num_warmup=30,
        num_samples=number, draws=dict.fromkeys((*sites, "noise_share", "log_joint"), 1),
    )  # fmt: skip
    run.finish()
    draws = run.draws()
    constrained = bound.constrain({s: draws[s] for s in sites})
    return draws | {s: np.asarray(v) for s, v in constrained.items()}, run


# ---- a normal posterior --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "variance"),
    [
        # Made up for: the noise of two minibatches, and the length of the step.
        (SGLD(linear, ONE, control_variates=False, num_approach=20), 1.0),
        pytest.param(
            SGHMC(linear, TWO, step_size=0.6, num_approach=20), 1.0, marks=pytest.mark.long
        ),
        # The recursion's own stationary variance, of exact gradients.
        (SGLD(linear, ALL, noise="langevin", step_size=0.8, num_approach=0), 1 / (1 - 0.8 / 4)),
        pytest.param(
            SGHMC(linear, ALL, noise="langevin", step_size=0.6, friction=0.4, num_approach=0),
            1 / (1 - 0.6 / (2 * 1.6)),
            marks=pytest.mark.long,
        ),
    ],
    ids=["SGLD", "SGHMC", "SGLD langevin", "SGHMC langevin"],
)
def test_the_stationary_covariance_of_a_normal_density(kernel, variance):
    draws, _ = drawn(kernel, (X, Y), ("a", "b"))
    both = np.stack([draws["a"], draws["b"]], -1)
    # In coordinates in which the posterior is standard normal.
    unit = (both - MEAN) @ np.linalg.cholesky(PRECISION)
    ess, ess_squares = ess_bulk(unit), ess_bulk(unit**2)
    assert min(ess.min(), ess_squares.min()) > 800
    assert np.abs(unit.mean((0, 1))).max() < 4.5 * np.sqrt(variance / ess.min())
    covariance = np.cov(unit.reshape(-1, 2).T)
    error = 4.5 * variance * np.sqrt(2 / ess_squares.min())
    np.testing.assert_allclose(covariance, variance * np.eye(2), atol=error)
    share = draws["noise_share"].mean()
    assert np.isnan(share) if kernel._noise == "langevin" else 0.0 < share < 0.8
    # Estimated from a minibatch, the log joint density is right but for noise.
    quadratic = -0.5 * (unit**2).sum(-1)
    assert np.corrcoef(quadratic.ravel(), draws["log_joint"].ravel())[0, 1] > 0.9
    assert draws["log_joint"].var() == pytest.approx(quadratic.var(), rel=0.3)


@pytest.mark.parametrize(
    "kernel",
    [
        SGLD(linear, ONE, control_variates=False, num_approach=20),
        SGHMC(linear, ONE, friction=0.4, num_approach=20),
    ],
    ids=["SGLD", "SGHMC"],
)
@pytest.mark.long
def test_the_covariance_is_right_with_a_metric_that_is_not_the_curvature(kernel, monkeypatch):
    """As where directions take the curvature of the prior."""
    more = 200.0 * np.array([[1.0, -0.5], [-0.5, 0.25]], np.float32)
    monkeypatch.setattr(sandwich, "at_least", lambda curvature, least: (curvature + more, 1))
    draws, _ = drawn(kernel, (X, Y), ("a", "b"), number=500)
    unit = (np.stack([draws["a"], draws["b"]], -1) - MEAN) @ np.linalg.cholesky(PRECISION)
    sizes = ess_bulk(unit**2)
    assert sizes.min() > 800
    error = 4.5 * np.sqrt(2 / sizes.min())
    np.testing.assert_allclose(np.cov(unit.reshape(-1, 2).T), np.eye(2), atol=error)


# ---- few cases -----------------------------------------------------------------------------------


def no_events(y):
    z = numpyro.sample("z", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", 5) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y[i])


@pytest.mark.parametrize(
    "kernel",
    [SGLD(no_events, step_size=1.0), pytest.param(SGHMC(no_events), marks=pytest.mark.long)],
)
def test_all_cases_give_the_posterior_whatever_its_shape(kernel):
    """A long tail on the left and a cliff on the right."""
    draws, _ = drawn(kernel, (jnp.zeros(5),), ("z",), number=500)
    grid = np.linspace(-20.0, 5.0, 5001)
    density = -(grid**2) / 18.0 - 5.0 * np.exp(grid)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    unit = (draws["z"] - mean) / sd
    sizes = ess_bulk(np.stack([unit, unit**2], -1))
    assert sizes.min() > 1000
    assert abs(unit.mean()) < 4.0 / np.sqrt(sizes[0])
    assert abs((unit**2).mean() - 1.0) < 4.0 * (unit**2).std() / np.sqrt(sizes[1])


def test_a_block_of_gibbs_keeps_the_step_that_its_first_draws_fitted(monkeypatch):
    """With nothing changed; the curvature at the anchor alone would allow longer steps."""
    monkeypatch.setattr(dynamics, "STABLE", 1 / 64)
    bound = SGHMC(no_events, num_approach=20).bind(jnp.zeros(5))
    before = jax.jit(bound.algorithm.init)(random.key(0), None, bound.data)
    refresh = jax.jit(bound.refresh)
    after = refresh(before, bound.data)
    assert float(before.measured.step_size) < 0.1 < SGHMC._usual_steps[0]
    for name in ("step_size", "preconditioner", "log_joint"):
        np.testing.assert_allclose(
            getattr(after.measured, name), getattr(before.measured, name), rtol=1e-3
        )
    # A step that was halved because it was refused stays so.
    short = before._replace(first=before.first._replace(most=jnp.float32(0.01)))
    found = refresh(short, bound.data)
    assert float(found.measured.step_size) == pytest.approx(0.01)
    scale = np.sqrt(0.01 / before.measured.step_size)
    np.testing.assert_allclose(found.velocity, scale * before.velocity, rtol=1e-5)


# ---- a ridge -------------------------------------------------------------------------------------


def ratings(rows, columns, share=0.0):
    """Entries of a matrix of rank 2: rows, columns, values; and a share that is hidden."""
    r = np.random.default_rng(0)
    truth = r.normal(size=(rows, 2)) @ r.normal(size=(columns, 2)).T
    values = truth + 0.3 * r.normal(size=truth.shape)
    hidden = r.random(truth.shape) < share
    y = jnp.asarray(values[~hidden], jnp.float32)
    return (*map(jnp.asarray, np.nonzero(~hidden)), y), hidden, truth


def factorisation(rows, columns, i, j, y):
    """Rotations of both factors leave the density as it is."""
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([rows, 2]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([columns, 2]).to_event(2))
    with numpyro.plate("ratings", len(y)) as r:
        numpyro.sample("y", dist.Normal((u[i[r]] * v[j[r]]).sum(-1), s), obs=y[r])


@pytest.mark.parametrize(
    ("kind", "batch", "found"),
    [
        (SGLD, 100, "measured"),
        (SGHMC, 100, "measured"),
        (IASG, None, "calibration"),
    ],
)
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the curvature", "ignore:the data say nothing of 1 directions")
def test_a_factorisation_is_as_nuts_has_it(kind, batch, found):
    """NUTS: hidden entries 0.158 from the truth, with sd 0.151; s 0.300 +- 0.0102."""
    data, hidden, truth = ratings(40, 25, 0.4)
    model = functools.partial(factorisation, 40, 25)
    kernel = kind(model, ((("s", "u", "v"), {"ratings": batch}),))
    mcmc = MCMC(kernel, num_warmup=100, num_samples=600, progress_bar=False)
    mcmc.run(random.key(1), *data)
    draws = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    entries = np.einsum("tik,tjk->tij", draws["u"], draws["v"])
    assert np.sqrt(((entries.mean(0) - truth)[hidden] ** 2).mean()) < 0.175
    assert entries.std(0).mean() == pytest.approx(0.151, rel=0.1)
    assert draws["s"].mean() == pytest.approx(0.300, abs=0.006)
    assert draws["s"].std() == pytest.approx(0.0102, rel=0.25)
    # One rotation of two factors.
    assert int(getattr(mcmc.last_state.inner, found).num_flat) == 1


@pytest.mark.parametrize(
    ("kind", "rows", "error", "spread", "s", "sd"),
    [(SGHMC, 9, 0.251, 0.179, 0.280, 0.0313), (SGLD, 10, 0.207, 0.188, 0.306, 0.0321)],
    ids=["9 x 8", "10 x 8"],
)
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the data say nothing of 1 directions")
# About half of the steps of a small factorisation are refused, which takes nothing of its draws.
@pytest.mark.filterwarnings("ignore:SGLD refuses most of its steps")
def test_a_small_factorisation_is_as_nuts_has_it(kind, rows, error, spread, s, sd):
    """With all entries in a batch; NUTS had the numbers."""
    data, _, truth = ratings(rows, 8)
    kernel = kind(functools.partial(factorisation, rows, 8))
    mcmc = MCMC(kernel, num_warmup=300, num_samples=3000, progress_bar=False)
    mcmc.run(random.key(1), *data)
    draws = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    entries = np.einsum("tik,tjk->tij", draws["u"], draws["v"])
    assert np.sqrt(((entries.mean(0) - truth) ** 2).mean()) == pytest.approx(error, rel=0.05)
    assert entries.std(0).mean() == pytest.approx(spread, rel=0.06)
    assert draws["s"].mean() == pytest.approx(s, abs=0.25 * sd)
    assert draws["s"].std() == pytest.approx(sd, rel=0.15)


# ---- bounds --------------------------------------------------------------------------------------


def on_bounds(prior, y):
    m = numpyro.sample("m", prior)
    with numpyro.plate("rows", 100) as i:
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y[i])


def centred(mean):
    y = np.random.default_rng(2).normal(size=100)
    return jnp.asarray(y - y.mean() + mean, jnp.float32)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "prior", "options"),
    [
        (SGLD, dist.TruncatedNormal(0.0, 100.0, low=0.0), {"boundary": {"m": "reflect"}}),
        (SGHMC, dist.Uniform(0.0, 1.0), {}),
        (SGLD, dist.Uniform(0.0, 1.0), {"boundary": "logit", "num_steps": 30}),
    ],
    ids=["SGLD on a half-line", "SGHMC in a box", "SGLD in the logit"],
)  # fmt: skip
def test_a_truncated_normal_posterior(kind, prior, options):
    """Its mode one standard deviation below the bound: clipping would leave an atom there."""
    kernel = kind(
        functools.partial(on_bounds, prior), ((("m",), {"rows": 50}),), num_approach=50, **options
    )
    draws, _ = drawn(kernel, (centred(-0.1),), ("m",), number=300)
    exact = scipy.stats.truncnorm(1.0, np.inf, loc=-0.1, scale=0.1)
    m = draws["m"]
    assert ess_bulk(m) > 1500 and m.min() >= 0.0
    assert abs(m.mean() - exact.mean()) < 0.11 * exact.std()
    assert m.std() == pytest.approx(exact.std(), rel=0.09)
    assert scipy.stats.kstest(m.ravel(), exact.cdf).statistic < 0.05
    assert (m == 0.0).mean() < 0.01


@pytest.mark.parametrize(
    ("kernel", "prior"),
    [
        (SGLD, dist.HalfNormal(10.0)),
        pytest.param(SGHMC, dist.Uniform(0.0, 5.0), marks=pytest.mark.long),
    ],
    ids=["SGLD on a half-line", "SGHMC in an interval"],
)
def test_reflected_sites_run_under_mcmc(kernel, prior):
    """Near a bound of an open support, against the truncated normal posterior."""

    def model(y):
        m = numpyro.sample("m", prior)
        with numpyro.plate("rows", len(y)) as i:
            numpyro.sample("y", dist.Normal(m, 1.0), obs=y[i])

    y = 0.05 + np.random.default_rng(0).normal(size=200)
    made = kernel(model, ((("m",), {"rows": 50}),), boundary={"m": "reflect"})
    mcmc = MCMC(made, num_warmup=50, num_samples=1500, progress_bar=False)
    mcmc.run(random.key(0), y)
    drawn = np.asarray(mcmc.get_samples()["m"])
    spread = 200**-0.5
    exact = scipy.stats.truncnorm(-y.mean() / spread, np.inf, y.mean(), spread)
    assert (drawn > 0).all()
    assert abs(drawn.mean() - exact.mean()) < 0.15 * exact.std()
    assert drawn.std() == pytest.approx(exact.std(), rel=0.12)


def test_iasg_moves_in_the_logit_where_it_is_told():
    model = functools.partial(on_bounds, dist.Uniform(0.0, 1.0))
    kernel = IASG(model, ((("m",), {"rows": 5}),), boundary="logit", num_approach=0)
    bound = kernel.bind(centred(0.5))
    moving = bound.unconstrain({"m": jnp.float32(0.2)})
    assert float(moving["m"]) == pytest.approx(np.log(0.25), rel=1e-5)
    assert float(kernel.postprocess_fn((centred(0.5),), {})(moving)["m"]) == pytest.approx(0.2)


# ---- under NumPyro's MCMC ------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(numpyro.infer, "Gibbs"), reason="an older NumPyro")
@pytest.mark.filterwarnings("ignore:SGLD shortens many of its steps")
@pytest.mark.long
def test_blocks_of_a_composite_gibbs_follow_each_other():
    """Anchors and their gradients would be of values that the other block has left."""
    options = {"num_approach": 5, "num_steps": 4, "step_size": 0.6}
    kernel = numpyro.infer.Gibbs([
        (SGLD(linear, ((("a",), {"rows": 60}),), **options), ["a"]),
        (SGLD(linear, ((("b",), {"rows": 60}),), **options), ["b"]),
    ])  # fmt: skip

    def chain(key):
        state = kernel.init(key, 30, None, (X, Y), {})

        def step(state, _):
            state = kernel.sample(state, (X, Y), {})
            return state, state.z

        return lax.scan(step, state, length=530)[1]

    # One program; `MCMC` would run what starts the blocks as hundreds.
    found = jax.jit(jax.vmap(chain))(random.split(random.key(0), 4))
    found = {site: np.asarray(values)[:, 30:] for site, values in found.items()}
    unit = (np.stack([found["a"], found["b"]], -1) - MEAN) @ np.linalg.cholesky(PRECISION)
    ess = min(ess_bulk(unit).min(), ess_bulk(unit**2).min())
    assert ess > 300
    assert np.abs(unit.mean((0, 1))).max() < 4.5 / np.sqrt(ess)
    np.testing.assert_allclose(
        np.cov(unit.reshape(-1, 2).T), np.eye(2), atol=4.5 * np.sqrt(2 / ess)
    )


@pytest.mark.skipif(not hasattr(numpyro.infer, "Gibbs"), reason="an older NumPyro")
@pytest.mark.filterwarnings("ignore:a draw of IASG averages only")
def test_iasg_is_a_block_of_a_composite_gibbs_unless_calibrated():
    """The states alone; programs are not compiled."""

    def after_a_sweep(**options):
        blocks = [
            (IASG(linear, (((site,), {"rows": 8}),), num_approach=2, **options), [site])
            for site in ("a", "b")
        ]
        kernel = numpyro.infer.Gibbs(blocks)
        state = jax.eval_shape(lambda key: kernel.init(key, 1, None, (X, Y), {}), random.key(0))
        return state, jax.eval_shape(lambda s: kernel.sample(s, (X, Y), {}), state)

    state, after = after_a_sweep()
    assert jax.tree.all(jax.tree.map(lambda x, y: x.shape == y.shape, state, after))
    assert set(after.z) == {"a", "b"}
    with pytest.raises(InputError, match="calibration measures at the start"):
        after_a_sweep(calibration="top-up")


# ---- the relaxed model ---------------------------------------------------------------------------


@functools.cache
def relaxed():
    """12 x 10 of rank 2, some missing: the model, its data and a start."""
    usage, basis = np.zeros((12, 2), np.float32), np.zeros((10, 2), np.float32)
    usage[:7, 0], usage[5:, 1], basis[:5, 0], basis[5:, 1] = 0.9, 0.8, 0.9, 0.7
    values = usage @ basis.T + 0.2 * np.random.default_rng(1).normal(size=(12, 10))
    values[2, 3] = values[8, 1] = np.nan
    model = functools.partial(bmfjax.models.relaxed_bmf, rank=2)
    start = {"usage": usage, "basis": basis, "precision": np.float32(25.0)}
    return model, values.astype(np.float32), start


@functools.cache
def relaxed_draws(kind, **options):
    model, values, start = relaxed()
    bound = kind(model, **options).bind(values)
    run = ChainRun(
        bound.algorithm, random.key(3), bound.data, num_chains=16, num_warmup=60, num_samples=400,
        position={n: np.stack([v] * 16) for n, v in start.items()}, draws=dict.fromkeys(start, 1),
    )  # fmt: skip
    run.finish()
    draws = run.draws()
    return np.concatenate([draws[n].reshape(16, 400, -1) for n in start], -1)


@pytest.mark.long
def test_auxiliary_gibbs_of_all_cases_is_exact():
    """Means and mean squares against Gibbs, with a learned precision."""
    exact, found = relaxed_draws(TruncatedGibbs), relaxed_draws(AuxiliaryGibbs, num_steps=3)
    for power in (1, 2):
        a, b = ((x - exact.mean((0, 1))) ** power for x in (found, exact))
        sizes = [ess_bulk(x) for x in (a, b)]
        assert min(s.min() for s in sizes) > 300
        error = np.sqrt(sum(x.var((0, 1)) / s for x, s in zip((a, b), sizes, strict=True)))
        scores = (a.mean((0, 1)) - b.mean((0, 1))) / error
        assert np.abs(scores).max() < 4.5 and np.sqrt((scores**2).mean()) < 1.5


def test_sgld_of_the_relaxed_model_takes_the_steps_of_its_own_kernel():
    model, values, start = relaxed()
    bound = SGLD(model, batch_size={"rows": 6, "columns": 10}, boundary="logit").bind(values)
    state = jax.eval_shape(bound.algorithm.init, random.key(0), start, bound.data)
    assert set(state.position) == set(start) and state.track is not None


# ---- refusals ------------------------------------------------------------------------------------

_BETA = functools.partial(on_bounds, dist.Beta(0.5, 0.5))
_M = ((("m",), {"rows": 10}),)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGLD(linear, ONE, boundary="clamp"), "boundary is 'clamp'; choose from reflect"),
        (lambda: SGLD(linear, ONE, noise="none"), "noise is 'none'"),
        (lambda: SGLD(linear, ONE, step_size=0.0), "step_size is 0.0; give a positive number"),
        (lambda: SGLD(linear, ONE, preconditioner=None), "give noise='langevin' with it"),
        (lambda: SGLD(linear, ONE, batch_size=3), "leave batch_size out"),
        (lambda: SGLD(linear, ONE, step_size=4.0), "step_size is 4.0; .* one below 4"),
        (lambda: SGHMC(linear, ONE, friction=0.0), "friction is 0.0; give a number above 0"),
        (lambda: SGLD(linear, ONE, noise="langevin").bind(X, Y), "give a step_size"),
        (lambda: SGLD(linear, ((("a", "b"), {}),)).bind(X, Y), "exactly one plate a block"),
        (lambda: SGLD(linear, ONE[:1], boundary={"a": "reflect"}).bind(X, Y), "boundary names 'a'"),
        (lambda: SGLD(_BETA, _M).bind(centred(0.5)), r"boundary=\{'m': 'logit'\}"),
        (lambda: SGLD(relaxed()[0], num_approach=3).bind(relaxed()[1]), "num_approach is for"),
        (lambda: SGLD(relaxed()[0], boundary={}).bind(relaxed()[1]), "have one boundary"),
        (lambda: AuxiliaryGibbs(linear).bind(X, Y), "samples .* and no other model; use SGLD"),
        (lambda: AuxiliaryGibbs(relaxed()[0], batch_size=1).bind(relaxed()[1]), "batch of rows"),
    ],
)
def test_what_cannot_be_sampled_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_too_much_noise_is_told_once():
    kernel = SGLD(linear, ((("a", "b"), {"rows": 2}),), control_variates=False, step_size=1.0,
                  num_steps=1, num_approach=5)  # fmt: skip
    with pytest.warns(UserWarning, match="times the noise that a step of this length"):
        kernel.init(random.key(0), 0, None, (X, Y), {})


def test_short_steps_are_told_once():
    """Noise of the gradients far from the anchor that leaves no room for steps."""
    kernel = SGLD(linear, ONE)
    measured = SimpleNamespace(
        log_joint=jnp.zeros(()), noise_share=jnp.array(0.5), step_size=jnp.array(0.001),
        num_flat=jnp.array([0, 1]),
    )  # fmt: skip
    with (
        pytest.warns(UserWarning, match="leaves room for steps of 0.002 only, instead of 0.3"),
        pytest.warns(UserWarning, match="the data say nothing of 1 directions at the optimum"),
    ):
        kernel._check_measured(measured)
    kernel._check_measured(measured)  # warnings are errors here
    measured.num_flat = jnp.array(0)
    SGLD(linear, ONE, step_size=0.002)._check_measured(measured)
