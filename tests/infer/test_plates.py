"""A model's density and its gradients on some cases, against NumPyro's own and the kernels'."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.util import potential_energy

from bmfjax.data import InputError
from bmfjax.infer import IASG, SGHMC
from bmfjax.infer.mcmc import plates
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels import IASGState
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.sgmcmc.relaxed_blocks import relaxed_blocks
from bmfjax.models import relaxed_bmf

N = 30
X = jnp.asarray(np.random.default_rng(0).normal(size=(N, 2)), jnp.float32)
Y = jnp.asarray(np.random.default_rng(1).normal(0.5, 1.0, N), jnp.float32)
KEY = random.key(0)
CASES = jnp.array([3, 3, 0, 17, 29, 8])


def regression(x, y):
    """Sites on the line, on the half-line, on a simplex and on a box."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(3.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([2.0, 1.0, 3.0])))
    numpyro.sample("whole", dist.Normal(beta.sum(), 1.0), obs=0.3)  # in no plate
    with numpyro.plate("cases", N) as i:
        numpyro.sample("y", dist.Normal(x[i] @ beta + weights[0], sigma), obs=y[i])


def on_a_box(x, y):
    return numpyro.sample("share", dist.Uniform(-1.0, 3.0))


@functools.cache
def on_regression():
    with jax.ensure_compile_time_eval():  # also where it is first asked for in a program
        return plates.inspect_model(regression, (X, Y), {})


POSITION = {
    "beta": jnp.array([0.4, -0.8]),
    "sigma": jnp.array(0.3),  # log sigma
    "weights": jnp.array([0.2, -0.5]),  # stick-breaking coordinates
}


def block(names=("beta", "sigma"), *, scaled=True):
    return plates.plate_block(
        regression,
        on_regression(),
        names,
        {"cases": len(CASES)},
        newton=True,
        scale_likelihood=scaled,
    )


@functools.cache
def reference():
    """NumPyro's potential with CASES substituted, by observed site; and its gradients."""

    def minus_potential(position, cases, hidden):
        model = handlers.substitute(regression, data={} if cases is None else {"cases": cases})
        return -potential_energy(handlers.block(model, hide=list(hidden)), (X, Y), {}, position)

    settings = {
        "all": (None, ()),
        "cases": (CASES, ()),
        "no y": (CASES, ("y",)),
        "prior": (CASES, ("y", "whole")),
    }

    @jax.jit
    def together(position):
        return {
            name: jax.value_and_grad(minus_potential)(position, cases, hidden)
            for name, (cases, hidden) in settings.items()
        }

    return together(POSITION)


# ---- what a trace tells --------------------------------------------------------------------------


def test_sites_supports_and_plates_are_found():
    found = on_regression()
    assert found.shapes == {"beta": (2,), "sigma": (), "weights": (3,)}
    assert found.boxes == {} and set(found.transforms) == {"beta", "sigma", "weights"}
    assert found.plates == {"cases": N}
    assert found.observed_plates == {"whole": (), "y": ("cases",)}
    assert found.latent_plates == {"beta": (), "sigma": (), "weights": ()}


def test_a_site_on_a_box_moves_in_its_own_coordinates():
    sites = plates.inspect_model(on_a_box, (X, Y), {})
    assert sites.boxes == {"share": (-1.0, 3.0)} and sites.transforms == {}
    assert plates.constrain(sites, {"share": 2.0}) == {"share": 2.0}
    density = plates.log_density(on_a_box, sites, {"share": 2.0}, {}, (X, Y), {})
    assert float(density) == pytest.approx(-np.log(4.0))


def test_discrete_sites_are_refused():
    def model():
        numpyro.sample("z", dist.Bernoulli(0.5))

    with pytest.raises(InputError, match=r"site 'z' is discrete.*marginalise"):
        plates.inspect_model(model, (), {})


def test_constrain_and_unconstrain_are_inverse():
    values = plates.constrain(on_regression(), POSITION)
    assert float(values["sigma"]) == pytest.approx(np.exp(0.3))
    assert values["weights"].shape == (3,) and float(values["weights"].sum()) == pytest.approx(1.0)
    back = plates.unconstrain(on_regression(), values)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), back, POSITION
    )


# ---- densities and gradients ---------------------------------------------------------------------


@jax.jit
def density(position, indices, powers=None):
    return plates.log_density(regression, on_regression(), position, indices, (X, Y), {}, powers)


@pytest.mark.parametrize(("which", "cases"), [("all", None), ("cases", CASES)])
def test_density_is_minus_numpyros_potential(which, cases):
    """In unconstrained coordinates with the Jacobian; on some cases, with N/S."""
    indices = {} if cases is None else {"cases": cases}
    found = density(POSITION, indices)
    assert float(found) == pytest.approx(float(reference()[which][0]), rel=1e-5)


def test_likelihood_powers_temper_observed_sites_alone():
    everything, without_y, prior = (float(reference()[n][0]) for n in ("cases", "no y", "prior"))

    def found(powers):
        return float(density(POSITION, {"cases": CASES}, powers))

    assert found(0.25) == pytest.approx(prior + 0.25 * (everything - prior), rel=1e-4)
    assert found({"y": 0.5, "whole": 3.0}) == pytest.approx(
        prior + 0.5 * (everything - without_y) + 3.0 * (without_y - prior), rel=1e-4
    )


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
def test_block_gradient_is_that_of_numpyros_potential(scaled):
    found = jax.jit(block(scaled=scaled).gradient)(POSITION, {"cases": CASES}, ((X, Y), {}), 0.5)
    assert set(found) == {"beta", "sigma"}
    everything, without_y, prior = (reference()[n][1] for n in ("cases", "no y", "prior"))
    for site, gradient in found.items():
        share = 1.0 if scaled else len(CASES) / N
        of_y, of_whole = everything[site] - without_y[site], without_y[site] - prior[site]
        # A site outside the plate is not in the minibatch: it is never multiplied by N/S.
        expected = prior[site] + 0.5 * (share * of_y + of_whole)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
def test_case_variance_is_that_of_single_case_gradients(scaled):
    b = block(scaled=scaled)
    arguments = (POSITION, {"cases": CASES}, ((X, Y), {}), 0.5)
    mean, variance = jax.jit(b.gradient_and_variance)(*arguments)
    one = jax.jit(
        lambda i: plates.plate_block(
            regression,
            on_regression(),
            b.sites,
            {"cases": 1},
            newton=False,
            scale_likelihood=scaled,
        ).gradient(POSITION, {"cases": i[None]}, ((X, Y), {}), 0.5)
    )
    each = [one(i) for i in CASES]
    whole, count = jax.jit(b.gradient)(*arguments), len(CASES)
    for site in b.sites:
        np.testing.assert_allclose(mean[site], whole[site], rtol=1e-4)
        of_cases = np.var([g[site] for g in each], axis=0)
        expected = of_cases / count if scaled else of_cases * count
        np.testing.assert_allclose(variance[site], expected, rtol=1e-3)


def test_newton_direction_solves_with_the_hessian_on_the_free_coordinates():
    b = block()
    data = ((X, Y), {})

    def minus(flat):
        moved = POSITION | {"beta": flat[:2], "sigma": flat[2]}
        return -plates.log_density(regression, on_regression(), moved, {}, *data)

    hessian = jax.jit(jax.hessian(minus))(jnp.append(POSITION["beta"], POSITION["sigma"]))
    assert np.linalg.eigvalsh(hessian).min() > 0
    curvature = jax.jit(b.curvature)(POSITION, data, 1.0)
    np.testing.assert_allclose(curvature, hessian, rtol=1e-3, atol=1e-3)
    gradient = {"beta": jnp.array([1.0, -2.0]), "sigma": jnp.array(3.0)}
    free = {"beta": jnp.array([True, False]), "sigma": jnp.array(True)}
    found = jax.jit(b.direction)(gradient, free, curvature)
    expected = np.linalg.solve(np.asarray(hessian)[::2, ::2], [1.0, 3.0])
    np.testing.assert_allclose(
        [found["beta"][0], found["beta"][1], found["sigma"]],
        [expected[0], 0.0, expected[1]],
        rtol=1e-3,
    )


def test_where_the_density_curves_upwards_its_scale_is_kept():
    def saddle(y):
        a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("bowl", -1.5 * a**2 + 4.0 * b**2)

    position = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    none = {"a": None, "b": None}
    sites = plates.ModelSites(
        {"a": (), "b": ()}, {}, {}, {}, {"bowl": ()}, {n: () for n in none}, {}
    )
    b = plates.plate_block(saddle, sites, ("a", "b"), {}, newton=True, scale_likelihood=True)
    curvature = jax.jit(b.curvature)(position, ((Y,), {}), 1.0)
    np.testing.assert_allclose(curvature, np.diag([3.0, 8.0]), atol=1e-4)


# ---- the generic path against the hand-written one -----------------------------------------------


@pytest.mark.filterwarnings("ignore:20 cases for the 32 coordinates of basis are few")
def test_both_paths_make_the_same_draws_of_the_relaxed_model():
    """The same minibatches, gradients and averages, through other code altogether."""
    rows, columns, rank = 20, 16, 2
    r = np.random.default_rng(0)
    values = (r.random((rows, columns)) < 0.4).astype(np.float32)
    model = functools.partial(relaxed_bmf, rank=rank)

    def draw_precision(key, sites, data):
        shape = 1.0 + data.size / 2
        rate = 1.0 + ((data - sites["usage"] @ sites["basis"].T) ** 2).sum() / 2
        return random.gamma(key, shape) / rate

    settings = {"window": 3, "step_size": 0.005, "preconditioner": None}
    blocks = ((("basis",), {"rows": 8}), (("usage",), {"columns": 6}))
    kernels = {
        "structured": IASG(model, blocks, **settings),
        "generic": IASG(
            lambda data: model(data),
            blocks,
            conditionals={"precision": draw_precision},
            **settings,
        ),
    }
    start = {
        "usage": jnp.asarray(r.uniform(0.3, 0.7, (rows, rank)), jnp.float32),
        "basis": jnp.asarray(r.uniform(0.3, 0.7, (columns, rank)), jnp.float32),
        "precision": jnp.asarray(2.0),
    }
    draws, infos = {}, {}
    for name, kernel_ in kernels.items():
        bound = kernel_.bind(jnp.asarray(values))
        position = bound.unconstrain(start)
        steps = {"usage": jnp.asarray(0.005), "basis": jnp.asarray(0.005)}
        state = IASGState(position, position, steps)
        state, infos[name] = jax.jit(bound.algorithm.step)(random.key(1), state, bound.data)
        draws[name] = bound.constrain(state.average)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    for site in ("usage", "basis", "precision"):
        close(draws["generic"][site], draws["structured"][site])
    a, b = infos["structured"], infos["generic"]
    for site in ("usage", "basis"):
        close(b.gradient[site], a.gradient[site], rtol=1e-3, atol=1e-3)
    close(b.clamped, a.clamped)
    # The generic path moves log(precision): its density has the Jacobian.
    close(b.log_joint, a.log_joint + np.log(draws["structured"]["precision"]))


def test_unscaled_gradients_agree_too():
    values = jnp.asarray(np.random.default_rng(0).random((20, 16)) < 0.4, jnp.float32)
    model = functools.partial(relaxed_bmf, rank=2, precision=0.7)
    sites = plates.inspect_model(model, (values,), {})
    density = relaxed_density(relaxed_arguments(model, (values,), {}))
    position = {"usage": jnp.full((20, 2), 0.4), "basis": jnp.full((16, 2), 0.6)}
    indices = {"rows": jnp.array([1, 1, 6])}
    hand, _ = relaxed_blocks(density, (20, 16), (3, 3), scale_likelihood=False)
    auto = plates.plate_block(
        model, sites, ("basis",), {"rows": 3}, newton=False, scale_likelihood=False
    )
    np.testing.assert_allclose(
        jax.jit(auto.gradient)(position, indices, ((values,), {}), 0.5)["basis"],
        jax.jit(hand.gradient)(position, indices, matrix_data(values), 0.5)["basis"],
        rtol=1e-4,
    )


@pytest.mark.long
def test_the_relaxed_blocks_know_the_sandwich_of_their_single_cases():
    """Line by line, from gradients of single cases by automatic differentiation."""
    values = np.random.default_rng(0).random((20, 16)).astype(np.float32)
    values[2, 3:6] = np.nan
    values = jnp.asarray(values)
    model = functools.partial(relaxed_bmf, rank=2, precision=2.0, prior="normal")
    sites = plates.inspect_model(model, (values,), {})
    density = relaxed_density(relaxed_arguments(model, (values,), {}))
    r = np.random.default_rng(1)
    position = {"usage": r.uniform(0.2, 0.8, (20, 2)), "basis": r.uniform(0.2, 0.8, (16, 2))}
    position = {n: jnp.asarray(v, jnp.float32) for n, v in position.items()}
    data = matrix_data(values)
    for block in relaxed_blocks(density, (20, 16), (3, 3)):
        ((plate, (size, _)),), (site,) = block.plates.items(), block.sites
        auto = plates.plate_block(
            model, sites, (site,), {plate: 3}, newton=False, scale_likelihood=True
        )
        every = {plate: jnp.arange(size)}
        each = jax.jit(auto.case_gradients)(position, every, ((values,), {}), 1.0)[site]
        inverse = np.linalg.inv(block.curvature(position, data, 1.0))
        for j, found in enumerate(block.sandwich(position, data, 1.0)[site]):
            noise = np.cov(np.asarray(each[:, j]).T, ddof=0) / size
            expected = np.diag(inverse @ noise @ inverse) / np.diag(inverse)
            np.testing.assert_allclose(found, np.sqrt(expected), rtol=1e-3)


# ---- minibatches of the user's model -------------------------------------------------------------


def level_of(kind, y):
    """One level, and data in plates as users write them."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    if kind == "two plates":
        with numpyro.plate("others", 8) as j:
            numpyro.sample("z", dist.Normal(mu, 1.0), obs=jnp.zeros(8)[j])
    if kind == "sites of an entry":
        entry = numpyro.sample("entry", dist.Normal(mu, 1.0).expand([4, 3]).to_event(2))
        with numpyro.plate("rows", 3) as i, numpyro.plate("columns", 4) as j:
            numpyro.sample(
                "z", dist.Normal(entry[j[:, None], i]), obs=jnp.zeros((4, 3))[j[:, None], i]
            )
    if kind == "a plate of groups":
        with numpyro.plate("groups", 4):
            numpyro.sample("level", dist.Normal(mu, 1.0))
    if kind == "no plate":
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([N]).to_event(1), obs=y)
        return
    drawn = 5 if kind == "subsampled" else None
    scale = jnp.ones(N) if kind == "scales of all" else 1.0
    with numpyro.plate("cases", N, subsample_size=drawn) as i:
        taken = y if kind == "data of all" else y[i]
        numpyro.sample("y", dist.Normal(mu, scale), obs=taken)


def kinds_of(kind):
    return functools.partial(level_of, kind)


def found_of(model, y):
    return plates.found_blocks(model, plates.inspect_model(model, (y,), {}), (y,), {})


@pytest.mark.parametrize(
    ("kind", "sites"),
    [("one plate", ("mu",)), ("a plate of groups", ("mu", "level")), ("two plates", ("mu",))],
)
def test_the_largest_plate_around_data_makes_one_block_of_all_sites(kind, sites):
    assert found_of(kinds_of(kind), Y) == ((sites, {"cases": None}),)
    for kernel in (IASG(kinds_of(kind)), SGHMC(kinds_of(kind))):
        bound = kernel.bind(Y)
        assert set(jax.eval_shape(bound.algorithm.init, KEY, None, bound.data).position) == {*sites}


def factors(y):
    """Nothing is known of the first row."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    u = numpyro.sample("u", dist.Normal().expand([5, 2]).to_event(2))
    v = numpyro.sample("v", dist.Normal().expand([4, 2]).to_event(2))
    with numpyro.plate("rows", 5, dim=-2) as i, numpyro.plate("columns", 4, dim=-1) as j:
        entries = dist.Normal(u[i] @ v[j].T, scale).mask((i > 0)[:, None])
        numpyro.sample("y", entries, obs=y[i[:, None], j])


@pytest.mark.long
def test_factors_of_rows_move_from_columns_and_those_of_columns_from_rows():
    blocks = ((("scale", "v"), {"rows": None}), (("u",), {"columns": None}))
    assert found_of(factors, jnp.zeros((5, 4))) == blocks
    # Also from NumPy's arrays while a program is traced, but not from traced ones.
    kernel, y = SGHMC(factors), np.zeros((5, 4), np.float32)
    shapes = jax.eval_shape(lambda key: start_of(kernel.bind(y), key), KEY).position
    assert set(shapes) == {"scale", "u", "v"}
    with pytest.raises(InputError, match="around the same data, which are traced; give blocks="):
        jax.eval_shape(lambda y: start_of(kernel.bind(y), KEY), y)


def start_of(bound, key):
    return bound.algorithm.init(key, None, bound.data)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "sites of an entry",
            "'entry' has entries for single cases of 'columns' and of 'rows'; give",
        ),
        ("no plate", "no plate is around data alone; give blocks="),
        ("subsampled", "'cases' has subsample_size=5, .*; leave subsample_size out"),
        ("data of all", "'cases'.*index all data by the plate: with numpyro.plate"),
        ("scales of all", "fails on two cases of plate 'cases' .*; index all data by the plate"),
    ],
)
def test_models_that_minibatches_do_not_fit_are_refused_in_the_users_words(kind, message):
    for kernel in (IASG(kinds_of(kind)), SGHMC(kinds_of(kind))):
        with pytest.raises(InputError, match=message):
            kernel.bind(Y)


def test_data_that_do_not_follow_their_plate_are_seen_by_their_shape():
    """NumPyro takes them where the distribution has one case only."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("cases", N):
            numpyro.factor("y", -0.5 * (y - mu) ** 2)

    with pytest.raises(InputError, match="index all data by the plate"):
        SGHMC(model).bind(Y)
