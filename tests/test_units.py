"""Numbers in another unit: a factor on the data changes nothing but units, at every step."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax import lax, random

import bmfjax
from bmfjax.data import InputError
from bmfjax.families import ask
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels.ratings.attributes import decomposed
from bmfjax.kernels.ratings.density import PMFDensity
from bmfjax.kernels.ratings.entries import entry_blocks
from bmfjax.kernels.ratings.gibbs import pmf_gibbs
from bmfjax.posterior import products
from bmfjax.report import facts
from bmfjax.report.section import digits
from bmfjax.specs import model_of
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK = 30, 20, 2
SMALL = {"num_chains": 2, "num_warmup": 40, "num_samples": 24, "progress": False, "seed": 3}
#: The last is a power of two, of which no floating point number loses a digit.
UNITS = (1.0, 1e-3, 1e3, 1e-6, 1e6, 2.0**-20)


@functools.cache
def table():
    """(values that spread by about one, which cells are observed, values without noise)."""
    rng = np.random.default_rng(0)
    exact = rng.gamma(2.0, size=(ROWS, RANK)) @ rng.gamma(2.0, size=(RANK, COLUMNS))
    exact = exact / exact.std()
    seen = rng.random(exact.shape) < 0.7
    return exact + 0.1 * rng.normal(size=exact.shape), seen, exact


@functools.cache
def fitted(model, unit=1.0):
    values, seen, _ = table()
    return bmfjax.fit(np.where(seen, unit * values, np.nan), RANK, model=model, **SMALL)


# ---- whole fits --------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("model", ["pmf", "nmf"])
def test_a_factor_on_the_data_changes_nothing_but_units(model):
    """Of one unit; the samplers' own are tested in many, below."""
    unit = 1e-3
    (values, seen, exact), one, other = table(), fitted(model), fitted(model, unit)
    i, j = np.nonzero(~seen)
    for fit, scale in ((one, 1.0), (other, unit)):
        error = fit.predict_cells(i, j) / scale - exact[i, j]
        assert np.sqrt((error**2).mean()) < 0.35 * exact.std()
    for noisy in (False, True):
        for kind in ("mean", "sd", "interval"):
            expected = one.predict_cells(i, j, kind, noisy=noisy)
            found = other.predict_cells(i, j, kind, noisy=noisy)
            np.testing.assert_allclose(found / unit, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        other.other_draws["precision"] * unit**2, one.other_draws["precision"], rtol=1e-3
    )
    for draws in ("usage_draws", "basis_draws"):
        ours, theirs = np.asarray(getattr(other, draws)), np.asarray(getattr(one, draws))
        np.testing.assert_allclose(ours / unit**0.5, theirs, rtol=0.01, atol=0.01)
    assert other.verdict == one.verdict
    assert other.figures.rhat == pytest.approx(one.figures.rhat, abs=1e-3)
    shift = other._log_density(i, j, unit * values[i, j]) - one._log_density(i, j, values[i, j])
    np.testing.assert_allclose(shift, -np.log(unit), atol=0.05)
    guests, expected = other.transform(unit * values[:3]), one.transform(values[:3])
    np.testing.assert_allclose(guests / unit**0.5, expected, rtol=0.01, atol=0.01)
    note = "of {}s"
    for fact in (*facts.precision(other), *facts.effects(other, note=note)):
        assert any(digit in fact.value for digit in "123456789"), fact


@pytest.mark.long
def test_recommendations_are_in_the_unit_of_the_ratings():
    one, other = (f.recommend(2, k=4) for f in (fitted("pmf"), fitted("pmf", 1e-3)))
    assert list(other["item"]) == list(one["item"])
    for name in ("mean", "sd", "lower", "upper"):
        np.testing.assert_allclose(1e3 * other[name], one[name], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(other["p_liked"], one["p_liked"], atol=1e-3)


# ---- the sampler of ratings --------------------------------------------------------------------


def scaled(data, unit):
    """Return entries whose values are so many times as large."""
    return data._replace(
        **{
            side: lists._replace(value=tuple(unit * v for v in lists.value))
            for side in ("by_row", "by_column")
            for lists in [getattr(data, side)]
        }
    )


@pytest.mark.parametrize(
    "what",
    [
        "effects",
        *(pytest.param(w, marks=pytest.mark.long) for w in ("relevance", "attributes", "known")),
    ],
)
def test_chains_of_ratings_are_the_same_in_every_unit(what):
    """In float32, as far as a millionth and a million: a unit may be a traced number here."""
    values, seen, exact = table()
    data = entry_blocks(*np.nonzero(seen), values[seen], values.shape)
    if what == "known":
        data = data._replace(known=jnp.asarray(exact[:1].T, jnp.float32))
    if what == "attributes":
        about = np.random.default_rng(1).normal(size=(ROWS, 3))
        data = data._replace(row_attributes=(decomposed(about),))
    density = PMFDensity(
        RANK,
        relevance=(0.5, 0.0005) if what == "relevance" else None,
        attributes=("row",) if what == "attributes" else (),
    )
    mean, sd = values[seen].mean(), values[seen].std()

    def chain(unit):
        variance = (unit * sd) ** 2
        own = density._replace(
            precision_gamma=(1.0, variance), effect_gamma=(1.0, variance), usage_unit=unit * sd,
            level=(unit * mean, 10.0 * unit * sd),
        )  # fmt: skip
        with mock.patch("bmfjax.kernels.ratings.gibbs.check_density"):
            algorithm = pmf_gibbs(own)
        observed = scaled(data, unit)

        def step(state, key):
            state, info = algorithm.step(key, state, observed)
            return state, algorithm.observe(state, info)

        start = algorithm.init(random.key(0), None, observed)
        return lax.scan(step, start, random.split(random.key(1), 30))[1]

    drawn = fast_jit(lambda units: lax.map(chain, units))(jnp.array(UNITS, jnp.float32))
    powers = {"intercept": 1, "precision": -2, "residual": 2, "basis": 0, "usage": 1}
    powers |= {f"{side}_effect": 1 for side in ("row", "column")}
    powers |= {f"{side}_precision": -2 for side in ("usage", "row", "column")}
    powers |= {"basis_precision": 0, "usage_coefficients": 1, "row_coefficients": 1}
    powers |= {"usage_ridge": 0, "row_ridge": 0, "usage_mean": 1, "basis_mean": 0}
    assert set(drawn) - set(powers) == {"log_joint", "log_likelihood", "cut_acceptance"}
    assert all(np.isfinite(v).all() for v in drawn.values())
    for name in powers.keys() & drawn.keys():
        found = np.asarray(drawn[name], float)
        inverse = np.asarray(UNITS).reshape(-1, *[1] * (found.ndim - 1)) ** -powers[name]
        first, *others = found * inverse
        size = np.abs(first).max()
        for unit, other in zip(UNITS[1:], others, strict=True):
            np.testing.assert_allclose(other, first, atol=2e-3 * size, err_msg=f"{name} {unit}")


@pytest.mark.parametrize(("value", "apart", "spread"), [(3.3, 0.0, 1.0), (3e-6, 1e-6, 1e-6)])
def test_ratings_that_are_all_the_same_have_a_unit_of_one(value, apart, spread):
    """Their mean in float32 is not 3.3, and nothing is divided by the difference."""
    values = np.full(1000, value) + apart * np.resize([-1.0, 1.0], 1000)
    data = entry_blocks(*np.divmod(np.arange(1000), 20), values, (50, 20))
    found = fast_jit(lambda data: pmf_gibbs(PMFDensity(1)).init(random.key(0), None, data))(data)
    assert float(found.position["precision"]) == pytest.approx(spread**-2, rel=1e-3)
    assert float(found.position["row_precision"]) == pytest.approx(spread**-2, rel=1e-3)


# ---- priors ------------------------------------------------------------------------------------


def test_priors_that_are_given_stay_in_the_unit_of_the_user():
    values, seen, _ = table()
    data = np.where(seen, 1e-3 * values, np.nan)

    def found(model="pmf", rank=RANK, **priors):
        return ask(data, rank, model=model_of(model, **priors)).chains().settings["priors"]

    spread = 1e-3 * values[seen].std()
    assert found()["usage_unit"] == pytest.approx(spread / 2)
    assert found()["level"] == pytest.approx([1e-3 * values[seen].mean(), 10 * spread])
    for name in ("precision_gamma", "effect_gamma"):
        assert found()[name] == pytest.approx([1.0, spread**2 / 4])
        assert found(**{name: (2.0, 3.0)})[name] == [2.0, 3.0]
    given = found(scale=4.0, level=(0.0, 7.0))
    assert (given["scale"], given["usage_unit"], given["level"]) == (4.0, 1.0, [0.0, 7.0])
    assert found(scale=4.0, usage_unit=0.5)["usage_unit"] == 0.5
    given = found(rank="auto", relevance=(2.0, 1.0))
    assert (given["relevance"], given["usage_unit"]) == ([2.0, 1.0], 1.0)
    assert found(rank="auto")["usage_unit"] == pytest.approx(spread / 2)
    assert found("nmf", usage_rate=3.0)["usage_rate"] == "3.0"
    with pytest.raises(InputError, match="has no 'usage_unit'"):
        model_of("probit", usage_unit=2.0)


def test_numbers_that_floating_point_cannot_square_are_refused():
    values, _, _ = table()
    for model, unit, message in (
        ("pmf", 1e-20, "differ by .*e-20, too little to compute with .* in a smaller unit"),
        ("nmf", 1e-20, "in which it is between 1e-12 and 1e.12"),
        ("nmf", 1e20, "in which it is between 1e-12 and 1e.12"),
    ):
        with pytest.raises(InputError, match=message):
            ask(unit * values, 2, model=model).chains()


# ---- nonnegative factors -----------------------------------------------------------------------


def test_the_bound_of_a_learned_precision_is_in_the_unit_of_the_data():
    def bound(data, upper=np.inf, **given):
        model = functools.partial(
            bmfjax.models.relaxed_bmf, rank=1, upper=upper, prior="laplace", **given
        )
        return float(relaxed_density(relaxed_arguments(model, (data,), {})).max_precision)

    assert bound(np.array([[300], [400]], np.int16)) == pytest.approx(1e8 / 125_000)
    gap = np.array([[3e-6, np.nan], [4e-6, 1.0]])
    assert bound(gap, observed=np.array([[1, 1], [1, 0]])) == pytest.approx(1e8 / 12.5e-12)
    assert bound(sp.csr_array(np.diag([2.0, 2.0]))) == pytest.approx(1e8 / 2.0)
    assert bound(np.zeros((2, 2))) == bound(gap, upper=1.0) == 1e8
    assert float(jax.jit(bound_of_traced)(gap)) == pytest.approx(1e8 / 12.5e-12, rel=1e-5)


def bound_of_traced(data):
    model = functools.partial(bmfjax.models.nmf, rank=1, observed=np.array([[1, 1], [1, 0]]))
    return relaxed_density(relaxed_arguments(model, (data,), {})).max_precision


@pytest.mark.parametrize("missing", [False, True])
def test_usage_of_new_rows_is_in_the_unit_of_the_data(missing):
    rng = np.random.default_rng(2)
    basis, values = rng.gamma(1.0, size=(3, 9, 2)), rng.gamma(1.0, size=(5, 9))
    if missing:
        values[0, 3] = np.nan
    expected = products.best_usage(values, basis, upper=np.inf)
    for unit in (1e-9, 1e9):
        found = products.best_usage(unit * values, unit**0.5 * basis, upper=np.inf)
        np.testing.assert_allclose(found / unit**0.5, expected, rtol=1e-6, atol=1e-9)


# ---- pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "text"),
    [(0.0, "0.00"), (1.234, "1.23"), (-12.0, "-12.00"), (1.234e-4, "0.000123"), (2e7, "2e+07")],
)
def test_numbers_of_any_unit_are_written_with_digits(size, text):
    assert f"{size:{digits(size)}}" == text
