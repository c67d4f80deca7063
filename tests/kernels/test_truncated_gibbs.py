"""Truncated Gibbs is exact: conditionals and posteriors by quadrature, Geweke's test, calibration.

And its structure: what a sweep forms, what it refuses, where it is bounded.
"""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import lax, random

from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk, geweke_scores, rank_statistics, rank_uniformity
from bmfjax.infer import relaxed as infer_relaxed
from bmfjax.infer.relaxed import entry_prior, relaxed_arguments, relaxed_density
from bmfjax.kernels.matrix_data import (
    MissingCells,
    ObservedCells,
    matrix_data,
    sparse_matrix_data,
)
from bmfjax.kernels.relaxed import (
    MAX_PRECISION,
    draw_factor_rate,
    draw_precision,
    log_joint,
)
from bmfjax.kernels.truncated_gibbs import truncated_gibbs, update_factor
from bmfjax.models import relaxed_bmf
from tests.kernels.exactness import (
    broken,
    entry_scores,
    fast_jit,
    moment_scores,
    new_problem,
    rank_one_posterior,
    simulator,
    uniform_scores,
)

INF = float("inf")

# ---- one column at a time ----------------------------------------------------------------------

ROWS, COLUMNS, RANK, TAU = 9, 8, 3, 20.0
EMPTY = 2  # the factor that is zero in the matrix that is given
SHAPES = {"usage": ROWS, "basis": COLUMNS}
KEYS, SWEEPS = 300, 10
RATE = np.array([0.5, 3.0, 1.5], np.float32)


def small_values(missing):
    """0 or 1, and NaN: nothing missing, few cells, many or most of them."""
    r = np.random.default_rng(1)
    values = (r.random((ROWS, COLUMNS)) < 0.4).astype(np.float32)
    diagonal = np.eye(ROWS, COLUMNS, dtype=bool)
    if missing == "few":
        values[diagonal] = np.nan
    if missing == "many":
        values[r.random(values.shape) < 0.5] = np.nan
    if missing == "most":
        values = np.where(diagonal, 1.0, np.nan)
    return values


def as_data(values, held):
    """The data in lists of cells (or complete), with a mask, or sparse."""
    data = matrix_data(values)
    if held == "lists" and np.isnan(values).any():
        kind = MissingCells if np.isnan(values).mean() < 0.5 else ObservedCells
        assert isinstance(data.by_row, kind) and isinstance(data.by_column, kind)
    if held == "sparse":
        gone = np.isnan(values)
        row, column = np.nonzero(np.where(gone, 0, values))
        return sparse_matrix_data(values.shape, row, column, missing=np.stack(np.nonzero(gone)))
    if held == "mask":
        return data._replace(by_row=None, by_column=None)
    return data


def log_prior(prior, x, k=0):
    """Log density of entries of factor k, up to a constant, written out."""
    with np.errstate(divide="ignore"):
        return {
            "uniform": lambda: 0.0 * x,
            "normal": lambda: -0.5 * x**2,
            "laplace": lambda: -0.5 * x,
            "ard": lambda: -RATE[k] * x,
            "beta": lambda: -0.5 * np.log(x) - 0.5 * np.log1p(-x),
            "Beta(2, 3)": lambda: np.log(x) + 2.0 * np.log1p(-x),
            "Kumaraswamy(2, 1.5)": lambda: np.log(x) + 0.5 * np.log1p(-(x**2)),
        }[prior]()


OWN = {"Beta(2, 3)": dist.Beta(2.0, 3.0), "Kumaraswamy(2, 1.5)": dist.Kumaraswamy(2.0, 1.5)}
#: What is missing, how the data are held, whose conditional, prior and upper bound.
CONDITIONALS = [
    ("none", "lists", "usage", "normal", INF),
    ("none", "sparse", "usage", "normal", INF),
    ("none", "lists", "basis", "Beta(2, 3)", 1.0),
    ("none", "sparse", "basis", "beta", 1.0),
    ("few", "lists", "usage", "ard", INF),
    ("few", "sparse", "usage", "ard", INF),
    ("few", "lists", "basis", "normal", 1.0),
    ("few", "mask", "basis", "normal", 1.0),
    ("few", "sparse", "basis", "normal", 1.0),
    ("most", "lists", "usage", "Kumaraswamy(2, 1.5)", 1.0),
    ("most", "lists", "basis", "ard", 1.0),
    ("most", "mask", "basis", "ard", 1.0),
    ("many", "mask", "usage", "uniform", 1.0),
]


def density_of(prior="uniform", upper=1.0, **options):
    arguments = {"rank": RANK, "prior": OWN.get(prior, prior), "upper": upper} | options
    # Seconds of differentiation, for the preconditioners of other samplers.
    with mock.patch.object(infer_relaxed, "_constant_curvature", lambda prior: 0.0):
        return relaxed_density(relaxed_arguments(relaxed_bmf, (np.zeros((1, 1)),), arguments))


def given():
    """Usage and basis, to start from and to be given; the last factor is empty."""
    r = np.random.default_rng(2)
    used = np.arange(RANK) != EMPTY
    return {f: jnp.asarray(r.random((n, RANK)) * used, jnp.float32) for f, n in SHAPES.items()}


@functools.cache
def conditional_draws(missing, held, factor, prior, upper):
    """Draws at inverse temperatures 1 and 0.2, (2, key, m, rank)."""
    own = getattr(density_of(prior, upper, precision=TAU), factor)
    data = as_data(small_values(missing), held)
    position = given()
    other = position["basis" if factor == "usage" else "usage"]

    def run(key, weight):
        def sweep(x, key):
            return update_factor(key, factor, x, other, data, own, weight, jnp.asarray(RATE)), None

        # More than one, so that slice sampling forgets its start.
        return lax.scan(sweep, position[factor], random.split(key, SWEEPS))[0]

    many = fast_jit(jax.vmap(run, (0, None)))
    keys = random.split(random.key(3), KEYS)
    return np.stack([many(keys, TAU * power) for power in (1.0, 0.2)])


def scores_of(case):
    """(2, m, rank, key) of `conditional_draws`."""
    missing, _, factor, prior, upper = case
    values = small_values(missing)
    other = given()["basis" if factor == "usage" else "usage"]

    def scores(draws, power, place):
        return entry_scores(
            draws,
            other,
            values if factor == "usage" else values.T,
            TAU * power,
            lambda x: log_prior(prior, x, place[1]),
            place,
            upper,
        )

    found = []
    for power, draws in zip((1.0, 0.2), conditional_draws(*case), strict=True):
        assert np.isfinite(draws).all() and (draws >= 0).all() and (draws <= upper).all()
        places = np.ndindex(draws.shape[1:])
        found.append(np.reshape([scores(draws, power, p) for p in places], (*draws.shape[1:], -1)))
    return np.stack(found)


@pytest.mark.parametrize("case", CONDITIONALS, ids=lambda case: ", ".join(map(str, case)))
def test_a_column_is_drawn_from_its_conditional(case):
    """By quadrature, an entry given the rest of its row; the empty factor from its prior."""
    for of_power in scores_of(case):
        # The worst of 48. Rows are independent; the entries of one nearly are, by their scores.
        for scores in (of_power[:, :EMPTY], of_power[:, EMPTY]):
            assert scipy.stats.kstest(scores.ravel(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("missing", "factor", "prior", "upper", "ways"),
    [
        ("none", "usage", "normal", INF, ("lists", "sparse")),
        ("few", "usage", "ard", INF, ("lists", "sparse")),
        ("few", "basis", "normal", 1.0, ("lists", "mask", "sparse")),
        ("most", "basis", "ard", 1.0, ("lists", "mask")),
    ],
)
def test_all_ways_to_hold_the_data_give_the_same_draws(missing, factor, prior, upper, ways):
    first, *rest = (conditional_draws(missing, held, factor, prior, upper) for held in ways)
    for draws in rest:
        np.testing.assert_allclose(draws, first, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("prior", "upper"),
    [
        *[(p, 1.0) for p in ("uniform", "normal", "laplace", "ard")],
        *[(p, INF) for p in ("normal", "laplace", "ard")],
        (dist.TruncatedNormal(2.0, 0.5, low=0.0), INF),
        (dist.TruncatedNormal(0.3, 0.2, low=0.1, high=0.9), 1.0),
        (dist.Exponential(3.0), INF),
        (dist.HalfNormal(0.7), INF),
    ],
)
def test_the_quadratic_form_is_the_log_density(prior, upper):
    own = entry_prior(prior, "usage", upper)
    x = np.linspace(own.low + 0.01, min(own.high, 3.0) - 0.01, 9, dtype=np.float32)[:, None]
    rate = np.float32([2.5]) if own.learned_rate else None
    slope, curvature = own.quadratic
    slope = 2.5 if own.learned_rate else slope
    left = np.asarray(fast_jit(own.log_prob)(x, rate)) + slope * x + 0.5 * curvature * x**2
    np.testing.assert_allclose(left, left[0, 0] * np.ones_like(x), rtol=1e-5, atol=1e-5)


# ---- precision and rates -----------------------------------------------------------------------


@functools.partial(fast_jit, static_argnums=(0, 2))
def log_joint_over(density, position, site, power, index, values, data):
    """With `values` in the place of one scalar of a site."""

    def at(value):
        moved = position | {site: position[site].at[index].set(value)}
        return log_joint(density, moved, data, power)

    return jax.vmap(at)(values)


def scalar_scores(density, position, data, power, site, index, draws):
    """Scores of draws of one scalar, by quadrature of the log joint density."""

    def log_density(x):
        values = jnp.asarray(x[:, 0])
        found = log_joint_over(density, position, site, power, index, values, data)
        return np.asarray(found)[:, None]

    return uniform_scores(log_density, draws, INF)


def test_the_precision_is_drawn_from_its_conditional():
    density = density_of("laplace", precision=dist.Gamma(2.0, 3.0))
    data = as_data(small_values("few"), "lists")
    position = given() | {"precision": jnp.ones(())}

    @fast_jit
    def draw(keys, power):
        one = functools.partial(draw_precision, density, position=position, data=data)
        return jax.vmap(lambda key: one(key, inverse_temperature=power))(keys)

    keys = random.split(random.key(0), 4000)
    for power in (1.0, 0.2):
        draws = np.asarray(draw(keys, power))
        scores = scalar_scores(density, position, data, power, "precision", (), draws)
        assert scipy.stats.kstest(scores, "uniform").pvalue > 0.01


@pytest.mark.parametrize("upper", [1.0, INF])
def test_the_rates_are_drawn_from_their_conditional(upper):
    density = density_of("ard", upper, rate=dist.Gamma(2.0, 0.5))
    data = as_data(small_values("none"), "lists")
    position = {n: x + 0.001 for n, x in given().items()}  # NumPyro's support is open at zero
    position |= {"precision": jnp.ones(()), "rate": jnp.asarray(RATE)}

    @fast_jit
    def run(keys):
        def one(key):
            def step(rate, key):
                return draw_factor_rate(density, key, position | {"rate": rate}), None

            return lax.scan(step, position["rate"], random.split(key, 20))[0]

        return jax.vmap(one)(keys)

    draws = np.asarray(run(random.split(random.key(1), 4000)))
    scores = [
        scalar_scores(density, position, data, 1.0, "rate", (k,), draws[:, k]) for k in (0, EMPTY)
    ]
    assert min(scipy.stats.kstest(s, "uniform").pvalue for s in scores) > 0.005


# ---- the posterior of a tiny matrix ------------------------------------------------------------

TINY = np.array([[1.0, 0.9, 0.1], [0.8, np.nan, 0.3], [0.1, 0.0, 0.6]])


@pytest.mark.parametrize(
    ("priors", "precision"),
    [(("laplace", "normal"), (5.0, 1.0)), (("uniform", "uniform"), 8.0)],
    ids=["learned", "fixed"],
)
def test_the_posterior_of_a_tiny_matrix_is_that_by_quadrature(priors, precision):
    learned = np.ndim(precision) == 1
    density = density_of(
        usage_prior=priors[0],
        basis_prior=priors[1],
        precision=dist.Gamma(*precision) if learned else precision,
    )
    algorithm = truncated_gibbs(density, None)
    data = matrix_data(TINY)
    start = {f: jnp.full((3, 1), 0.5) for f in SHAPES}
    start |= {"precision": jnp.ones(())} if learned else {}

    @fast_jit
    def run(keys):
        def one(key):
            def body(state, key):
                state, _ = algorithm.step(key, state, data)
                position = state.position
                kept = {"reconstruction": position["usage"] @ position["basis"].T}
                return state, kept | {n: position[n] for n in ("precision",) if learned}

            state = algorithm.init(key, start, data)
            return lax.scan(body, state, random.split(key, 700))[1]

        return jax.vmap(one)(keys)

    draws = run(random.split(random.key(5), 50))
    expected = rank_one_posterior(
        TINY, *(functools.partial(log_prior, p) for p in priors), precision
    )
    for name, found in draws.items():
        scores, size = moment_scores(found[:, 40:], expected[name])
        assert size.min() > 2000
        assert np.abs(scores).max() < 4, name


# ---- Geweke's test and calibration -------------------------------------------------------------

OBSERVED = np.ones((4, 3), bool)
OBSERVED[[1, 3], [1, 0]] = False
#: Statistics that do not depend on which factor is which; the last are for Geweke's test alone.
INVARIANT = ("entry", "missing entry", "log joint", "precision", "rates", "usage", "basis")
STATISTICS = (*INVARIANT, "log precision", "log rates", "fit of data", "datum", "usage entry")
RIGHT, WRONG_SLOPE, WRONG_PRECISION = (1.0, 1.0), (-1.0, 1.0), (1.0, 1.2)
CHAINS, DRAWS, KEPT = 1000, 45, 31


@functools.cache
def simulated_chains():
    """``run(key, redraw, *faults) -> (truth, draws)``, one program for all the tests below."""
    problem = new_problem(
        OBSERVED,
        rank=2,
        usage_prior="ard",
        basis_prior="laplace",
        precision=dist.Gamma(5.0, 0.2),
        rate=dist.Gamma(3.0, 2.0),
    )

    def statistics(position, data):
        usage, basis, tau, rate = (position[n] for n in ("usage", "basis", "precision", "rate"))
        fit = usage @ basis.T
        found = {
            "entry": fit[0, 0],
            "missing entry": fit[1, 1],
            "log joint": log_joint(problem.density, position, data),
            "precision": tau,
            "rates": rate.sum(),
            "usage": usage.mean(),
            "basis": basis.mean(),
            "log precision": jnp.log(tau),
            "log rates": jnp.log(rate).sum(),
            "fit of data": (fit * data.values).sum(),
            "datum": data.values[0, 0],
            "usage entry": usage[2, 1],
        }
        return jnp.stack([found[n] for n in STATISTICS])

    def make(density, *faults):
        return truncated_gibbs(broken(density, *faults), None)

    return simulator(problem, make, statistics, num_chains=CHAINS, num_draws=DRAWS, thin=3)


def joint_distribution_scores(faults):
    """Geweke's z-scores (2, statistic), and the smallest effective sample size."""
    marginal, successive = simulated_chains()(random.key(0), True, *faults)
    return geweke_scores(marginal, successive), ess_bulk(successive).min()


def calibration_p_values(faults):
    truth, draws = simulated_chains()(random.key(2), False, *faults)
    size = len(INVARIANT)
    return rank_uniformity(rank_statistics(draws[:, -KEPT:, :size], truth[:, :size]), KEPT)


def test_the_joint_distribution_is_that_of_the_model():
    scores, size = joint_distribution_scores(RIGHT)
    assert size > 2000
    assert np.abs(scores).max() < 3.7  # of 24


def test_ranks_of_the_truth_among_the_draws_are_uniform():
    assert calibration_p_values(RIGHT).min() > 1e-3  # of 7


@pytest.mark.parametrize(
    ("faults", "statistic", "least"),
    [(WRONG_SLOPE, "basis", 12.0), (WRONG_PRECISION, "precision", 6.0)],
    ids=["prior's slope", "precision"],
)
def test_the_joint_distribution_shows_a_fault(faults, statistic, least):
    """The slope of one prior with the wrong sign; factors drawn with 1.2 times the precision."""
    scores, _ = joint_distribution_scores(faults)
    assert abs(scores[0, STATISTICS.index(statistic)]) > least


def test_the_ranks_show_a_fault():
    p_values = calibration_p_values(WRONG_PRECISION)
    assert p_values[INVARIANT.index("log joint")] < 1e-8


# ---- structure ---------------------------------------------------------------------------------


def sizes_of_intermediates(jaxpr):
    """Sizes of all that is computed, inside loops and calls too."""
    for equation in jaxpr.eqns:
        yield from (v.aval.size for v in equation.outvars)
        for parameter in equation.params.values():
            for inner in jax.tree.leaves(parameter, is_leaf=lambda p: hasattr(p, "jaxpr")):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from sizes_of_intermediates(inner)


@pytest.mark.parametrize("factor", SHAPES)
@pytest.mark.parametrize(
    ("share", "largest"), [(0.0, 2), (0.02, 8), (0.4, None)], ids=["none", "few", "many"]
)
def test_only_many_missing_entries_need_arrays_as_large_as_the_data(factor, share, largest):
    rows, columns, rank = 100, 120, 2
    values = np.ones((rows, columns), np.float32)
    values[np.random.default_rng(0).random(values.shape) < share] = np.nan
    data = matrix_data(values)
    lines, cells = (rows, columns) if factor == "usage" else (columns, rows)
    update = functools.partial(update_factor, prior=density_of().usage, weight=1.0)
    jaxpr = jax.make_jaxpr(lambda x, other, data: update(random.key(0), factor, x, other, data))(
        jnp.ones((lines, rank)), jnp.ones((cells, rank)), data
    )
    found = max(sizes_of_intermediates(jaxpr.jaxpr))
    if largest is None:
        assert found >= rows * columns
    else:
        listed = 0 if data.by_row is None else max(data.by_row.index.shape[0], 1)
        assert found <= rank * max(lines, cells) * max(largest, 2 * listed) < rows * columns


def wide_data(kind):
    """Data that tempt a sampler to divide by zero or to overflow, all held with a mask."""
    rows, columns = 6, 5
    values = np.zeros((rows, columns), np.float32)
    observed = np.ones((rows, columns), bool)
    if kind == "nothing observed":
        observed[:] = False
    elif kind == "a line of each unobserved":
        observed[2], observed[:, 3] = False, False
    elif kind == "no noise":
        values = np.outer(np.linspace(0.2, 0.9, rows), np.linspace(0.9, 0.3, columns))
    elif kind == "far outside":
        values = np.full((rows, columns), 1e6)
    template = matrix_data(np.where(np.eye(rows, columns), np.nan, 0.0))
    template = template._replace(by_row=None, by_column=None)
    values = jnp.asarray(np.where(observed, values, 0.0), jnp.float32)
    observed = jnp.asarray(observed, jnp.float32)
    return template._replace(
        values=values, transposed=values.T, observed=observed, observed_transposed=observed.T
    )


@functools.cache
def wide_chain():
    """``run(data, start) -> observed``; a weak prior of the precision."""
    density = density_of(usage_prior="ard", precision=dist.Gamma(1.0, 1e-6))
    algorithm = truncated_gibbs(density, None)

    @fast_jit
    def run(data, start):
        def body(state, key):
            state, info = algorithm.step(key, state, data)
            return state, algorithm.observe(state, info)

        state = algorithm.init(None, start, data)
        return lax.scan(body, state, random.split(random.key(0), 200))[1]

    return run


@pytest.mark.parametrize(
    "kind",
    ["zeros", "nothing observed", "a line of each unobserved", "no noise", "far outside"],
)
def test_draws_stay_finite_and_in_bounds_whatever_the_data(kind):
    start = {
        "usage": jnp.linspace(0.2, 0.9, 6)[:, None],
        "basis": jnp.linspace(0.9, 0.3, 5)[:, None],
        "precision": jnp.float32(1e7 if kind == "no noise" else 1.0),
        "rate": jnp.ones(1),
    }
    drawn = wide_chain()(wide_data(kind), start)
    for name, values in drawn.items():
        assert values.dtype == jnp.float32, name
        assert bool(jnp.isfinite(values).all()), name
    for name in SHAPES:
        assert bool((drawn[name] >= 0).all() and (drawn[name] <= 1).all())
    assert float(drawn["precision"].max()) <= MAX_PRECISION
    if kind == "no noise":  # data without noise, and a prior that says nothing against it
        assert float(drawn["precision"][-50:].min()) > 1e5


def test_the_precision_of_data_without_noise_is_bounded():
    """By its prior, and where that says nothing at `MAX_PRECISION`."""
    density = density_of(precision=dist.Gamma(1.0, 1.0))
    position = {"usage": jnp.full((6, 1), 0.5), "basis": jnp.full((5, 1), 0.5)}
    data = matrix_data(np.full((6, 5), 0.25))

    @fast_jit
    def draw(keys, rate):
        own = density._replace(precision_gamma=(1.0, rate))
        return jax.vmap(lambda key: draw_precision(own, key, position, data))(keys)

    keys = random.split(random.key(0), 1000)
    assert scipy.stats.kstest(draw(keys, 1.0), scipy.stats.gamma(16.0).cdf).pvalue > 0.01
    assert set(np.asarray(draw(keys, 1e-20))) == {np.float32(MAX_PRECISION)}


@pytest.mark.parametrize(
    ("prior", "upper"),  # NumPyro's truncated normal promotes by itself
    [("ard", 1.0), ("ard", INF), ("beta", 1.0), ("uniform", 1.0), ("normal", INF)],
)
def test_a_sweep_promotes_no_types(prior, upper):
    density = density_of(prior, upper, precision=dist.Gamma(1.0, 1.0))
    algorithm = truncated_gibbs(density, None)
    start = {"usage": jnp.ones((6, 1)), "basis": jnp.ones((5, 1)), "precision": jnp.ones(())}
    start |= {"rate": jnp.ones(1)} if prior == "ard" else {}
    with jax.numpy_dtype_promotion("strict"):
        state, info = jax.eval_shape(
            lambda data: algorithm.step(random.key(0), algorithm.init(None, start, data), data),
            wide_data("zeros"),
        )
    assert {x.dtype for x in jax.tree.leaves((state, info))} == {jnp.dtype("float32")}


# ---- what is refused ---------------------------------------------------------------------------


def test_priors_on_the_half_line_that_are_not_quadratic_are_refused():
    with pytest.raises(InputError, match="the prior of usage reaches to infinity and is neither"):
        truncated_gibbs(density_of(dist.Gamma(2.0, 1.0), INF), None)


def test_improper_priors_are_refused():
    density = density_of("normal", INF)
    for slope in (0.0, -1.0):
        flat = density.basis._replace(quadratic=(slope, 0.0))
        with pytest.raises(InputError, match=r"the prior of basis is flat on \[0, inf\)"):
            truncated_gibbs(density._replace(basis=flat), None)
    with pytest.raises(InputError, match="'uniform' of usage is improper"):
        density_of("uniform", INF)


def test_a_precision_without_a_gamma_prior_is_refused():
    with pytest.raises(InputError, match="the prior of precision is LogNormal"):
        density_of(precision=dist.LogNormal(0.0, 1.0))
    density = density_of()._replace(precision_gamma=None)
    with pytest.raises(InputError, match="prior that is not Gamma"):
        truncated_gibbs(density, None)


def test_a_beta_prior_that_floats_cannot_hold_is_refused():
    with pytest.raises(InputError, match=r"the prior of usage is Beta\(0\.1"):
        truncated_gibbs(density_of(dist.Beta(0.1, 0.5)), None)


# ---- faults that were found --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "upper"),
    [
        (dist.LogNormal(0.0, 1.0), INF),
        (dist.TransformedDistribution(dist.Normal(), dist.transforms.SigmoidTransform()), 1.0),
        (dist.FoldedDistribution(dist.Normal(1.0, 1.0)), INF),
    ],
    ids=["log normal", "logit normal", "folded normal"],
)
def test_a_transformed_normal_is_not_taken_for_a_truncated_one(prior, upper):
    assert density_of(prior, upper).usage.quadratic is None


def test_the_smallest_uniform_number_does_not_draw_the_bound():
    """NumPyro's densities on (0, inf) are none at zero, and the log joint would be -inf."""

    def smallest(key, shape=(), dtype=float, minval=0.0, maxval=1.0):
        return jnp.full(shape, minval, dtype)

    own, position = density_of("normal", INF).usage, given()
    data = as_data(small_values("none"), "lists")
    update = functools.partial(update_factor, factor="usage", data=data, prior=own, weight=TAU)
    with mock.patch.object(random, "uniform", smallest):
        x = fast_jit(update)(random.key(0), x=position["usage"], other=position["basis"])
    assert bool((x > 0).all())
    assert bool(jnp.isfinite(fast_jit(own.log_prob)(x, None)).all())


def test_a_beta_draw_is_not_the_bound():
    """The sine rounded to one, where the density is infinite, and so was the log joint."""
    own = density_of("beta").usage
    data = matrix_data(np.ones((2000, 1)))
    half = jnp.full((2000, 1), 0.5)
    draw = fast_jit(lambda key: update_factor(key, "usage", half, half[:1], data, own, 1e6))
    x = draw(random.key(0))
    assert bool((x > 0).all() and (x < 1).all())
    assert bool(jnp.isfinite(fast_jit(own.log_prob)(x, None)).all())
