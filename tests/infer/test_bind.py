"""What IASG makes of a model and its options: blocks, windows, steps, and what it refuses."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random

from bmfjax.data import InputError
from bmfjax.infer import IASG
from bmfjax.kernels.sgmcmc.step_size import matched_step_size
from bmfjax.models import relaxed_bmf

N = 40
Y = jnp.asarray(np.random.default_rng(0).normal(size=N), jnp.float32)
VALUES = (np.random.default_rng(1).random((20, 16)) < 0.4).astype(np.float32)
RELAXED = functools.partial(relaxed_bmf, rank=2, precision=1.0)
SGD = optax.sgd(0.1)
MU, SIGMA = (("mu",), {"cases": 5}), (("sigma",), {"cases": 5})

#: Small plates serve here, and the warning of them is tested by itself.
pytestmark = pytest.mark.filterwarnings("ignore:a draw of IASG averages only")


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("cases", N) as i:
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y[i])


def with_a_plate_of_latents(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("groups", 2):
        effect = numpyro.sample("effect", dist.Normal())
    with numpyro.plate("cases", N) as i:
        local = numpyro.sample("local", dist.Normal())
        numpyro.sample("y", dist.Normal(mu + effect[0] + local, 1.0), obs=y[i])


def discrete(y):
    numpyro.sample("z", dist.Poisson(3.0))


def large(y):
    numpyro.sample("many", dist.Normal().expand([1001]).to_event(1))
    with numpyro.plate("cases", N) as i:
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y[i])


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preconditioner": "adam"}, r"preconditioner is 'adam'; choose from newton"),
        ({"preconditioner": None}, r"plain gradient steps .* need a step_size"),
        ({"boundary": "bounce"}, r"boundary is 'bounce'; choose from clamp, reflect"),
        ({"delta": 0.5}, r"delta is 0\.5; give a share of the box"),
        ({"delta": -0.1}, r"delta is -0\.1"),
        ({"window": 0}, r"window is 0; give a whole number of at least 1"),
        ({"window": 2.5}, r"window is 2\.5"),
        ({"window": "all"}, r"window is 'all'"),
        (
            {"boundary": "reflect"},
            r"averages of reflected Newton steps do not follow .*use preconditioner=",
        ),
        ({"scale_likelihood": False}, r"does not fit the curvature.*use preconditioner="),
        ({"num_approach": -1}, r"num_approach is -1; give a whole number of at least 0"),
        ({"num_calibration": 1}, r"num_calibration is 1; give a whole number of at least 2"),
        ({"blocks": (MU,), "batch_size": 3}, r"blocks already say the batch sizes"),
        ({"blocks": ()}, r"blocks is empty; give at least one"),
        ({"calibration": "affine"}, r"calibration is 'affine'; choose from"),
        ({"optimizer": SGD, "step_size": 0.1}, r"makes the whole step, and step_size is given"),
        (
            {"optimizer": SGD, "preconditioner": "newton"},
            r"whole step, and preconditioner is given",
        ),
        ({"optimizer": SGD, "calibration": "step"}, r"leave calibration or the optimizer out"),
        (
            {"calibration": "sandwich", "preconditioner": "calibrated"},
            r"calibration needs steps on the density of all data; use preconditioner='newton'",
        ),
        (
            {"calibration": "sandwich", "conditionals": {"mu": print}},
            r"\['mu'\] are drawn exactly; put them into a block",
        ),
        ({"calibration": "step", "step_size": 0.1}, r"calibration='step' chooses the step_size"),
    ],
)
def test_options_that_fit_no_model(options, message):
    with pytest.raises(InputError, match=message):
        IASG(model, **options)


@pytest.mark.parametrize(
    ("of", "blocks", "options", "message"),
    [
        (
            model,
            ((("mu", "nu"), {"cases": 5}), SIGMA),
            {},
            r"block site 'nu' is not a latent site of the model; it has mu, sigma",
        ),
        (model, ((("mu", "y"), {"cases": 5}),), {}, r"block site 'y' is not a latent site"),
        (
            model,
            ((("mu", "sigma"), {"rows": 5}),),
            {},
            r"plate 'rows' is not in the model; its plates: cases",
        ),
        (model, (MU,), {}, r"site 'sigma' is in no block, so that it would never move"),
        (model, (MU, SIGMA, MU), {}, r"site 'mu' is in two blocks; put it in exactly one"),
        (
            model,
            (MU, SIGMA),
            {"conditionals": {"mu": print}},
            r"site 'mu' is in two blocks",
        ),
        (
            model,
            (MU, SIGMA),
            {"conditionals": {"tau": print}},
            r"conditional of 'tau': not a latent site of the model; it has mu, sigma",
        ),
        (
            model,
            ((("mu", "sigma"), {"cases": 0}),),
            {},
            r"batch of plate 'cases' is 0; give at least 1$",
        ),
        (
            model,
            ((("mu", "sigma"), {"cases": N}),),
            {"replace": False},
            r"batch of plate 'cases' is 40; give at least 1 and, without replacement, fewer than 4",
        ),
        (
            with_a_plate_of_latents,
            ((("mu", "effect", "local"), {"cases": 5}),),
            {},
            r"site 'local' lies inside plate 'cases', from which minibatches are drawn",
        ),
        (
            with_a_plate_of_latents,
            ((("mu", "effect"), {"cases": 5}), (("local",), {})),
            {},
            r"site 'local' lies inside plate 'cases'",
        ),
        (discrete, ((("z",), {}),), {}, r"site 'z' is discrete"),
        (large, ((("many",), {"cases": 5}),), {}, r"'many' has 1001 coordinates, too many"),
        (
            model,
            ((("mu", "sigma"), {}),),
            {"report_variance": True},
            r"report_variance needs exactly one plate a block, and the block of 'mu' has 0",
        ),
        (
            model,
            (MU, SIGMA),
            {"preconditioner": "calibrated"},
            r"'calibrated' draws points from boxes, and site 'mu' has none",
        ),
        (
            model,
            (MU, SIGMA),
            {"step_size": {"mu": 0.1}},
            r"step_size must name the moving sites .*differs in \['sigma'\]",
        ),
        (
            model,
            ((("mu", "sigma"), {}),),
            {"calibration": "sandwich"},
            r"calibration needs exactly one plate a block, and the block of 'mu' has 0",
        ),
        (
            large,
            ((("many",), {"cases": 5}),),
            {"calibration": "sandwich", "preconditioner": None, "step_size": 0.1},
            r"1001 coordinates together, too many to measure .*at most 1000\)",
        ),
        (model, (MU, SIGMA), {"step_size": -0.1}, r"step_size is -0\.1; give a positive"),
        (
            model,
            (MU, SIGMA),
            {"step_size": {"mu": 0.1, "sigma": 0.0}},
            r"step_size of 'sigma' is 0\.0; give a positive number",
        ),
    ],
)
def test_what_does_not_fit_the_model(of, blocks, options, message):
    with pytest.raises(InputError, match=message):
        IASG(of, blocks, **options).bind(Y)


@pytest.mark.parametrize(
    ("model_options", "options", "message"),
    [
        ({}, {"batch_size": {"rows": 3}}, r"batch_size names \['rows'\]; it must name 'rows' and"),
        ({}, {"batch_size": 0}, r"batch_size is 0; give"),
        (
            {},
            {"batch_size": {"rows": 5, "columns": 16}, "replace": False},
            r"batch of plate 'columns' is 16; give at least 1 and, without replacement, fewer",
        ),
        (
            {},
            {"calibration": "sandwich"},
            r"sites without bounds, and 'basis' is on a box.*or use the exact TruncatedGibbs",
        ),
        ({"precision": dist.HalfNormal(1.0)}, {}, r"prior of precision is HalfNormal"),
        ({"prior": dist.Normal(0.0, 1.0)}, {}, r"prior of usage has support"),
    ],
)
def test_what_does_not_fit_the_relaxed_model(model_options, options, message):
    with pytest.raises(InputError, match=message):
        IASG(functools.partial(RELAXED, **model_options), **options).bind(VALUES)


def test_the_relaxed_model_needs_data():
    with pytest.raises(InputError, match=r"IASG needs data"):
        IASG(functools.partial(RELAXED, shape=(4, 3))).bind()


def test_a_start_must_fit():
    algorithm = IASG(RELAXED).bind(VALUES).algorithm
    start = {"usage": jnp.ones((20, 2)), "basis": jnp.ones((16, 2))}
    data = IASG(RELAXED).bind(VALUES).data
    with pytest.raises(InputError, match=r"the start lacks 'basis'; give a value for"):
        algorithm.init(random.key(0), {"usage": start["usage"]}, data)
    with pytest.raises(InputError, match=r"start of 'usage' has shape \(16, 2\).*\(20, 2\)"):
        algorithm.init(random.key(0), start | {"usage": start["basis"]}, data)


# ---- windows, steps, bounds ----------------------------------------------------------------------


def bound_and_state(kernel, values=VALUES):
    bound = kernel.bind(values)
    rows, columns = values.shape
    middle = {"usage": jnp.full((rows, 2), 0.5), "basis": jnp.full((columns, 2), 0.5)}
    return bound, jax.jit(bound.algorithm.init)(random.key(0), middle, bound.data)


def test_default_batches_average_eight_iterates_of_large_plates():
    """Batches of 7 of 100 rows; 16 columns are too few, and half of them are drawn."""
    values = (np.random.default_rng(1).random((100, 16)) < 0.4).astype(np.float32)
    kernel = IASG(RELAXED)
    bound, state = bound_and_state(kernel, values)
    assert bound.windows == kernel.windows == {"basis": 8, "usage": 1} and bound.window == 8
    assert float(state.step_size["basis"]) == pytest.approx(matched_step_size(8, 7 / 100))
    assert float(state.step_size["usage"]) == pytest.approx(matched_step_size(1, 8 / 16))


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        (
            IASG(RELAXED),
            np.zeros((100, 16), np.float32),
            r"averages only 1 iterate of usage, from 8 of the 16 cases of plate 'columns'.*"
            r"TruncatedGibbs \(sampler='gibbs'",
        ),
        (
            IASG(model, (MU, (("sigma",), {"cases": 20})), calibration=None),
            Y,
            r"averages only 6 iterates of mu, from 5 of the 40 cases of plate 'cases'; and "
            r"1 iterate of sigma, from 20 of .*use NUTS",
        ),
    ],
)
def test_short_windows_are_told_once(kernel, arguments, message):
    with pytest.warns(UserWarning, match=message):
        kernel.bind(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel.bind(arguments)


def test_few_cases_a_coordinate_are_told_where_draws_are_not_calibrated():
    def many(number, y):
        b = numpyro.sample("b", dist.Normal().expand([number]).to_event(1))
        with numpyro.plate("cases", N) as i:
            numpyro.sample("y", dist.Normal(b.sum(), 1.0), obs=y[i])

    def caution(number, **options):
        return IASG(functools.partial(many, number), window=3, **options).bind(Y).caution

    with pytest.warns(UserWarning, match="40 cases for the 9 coordinates of b are few"):
        caution(9, calibration=None)
    with pytest.warns(UserWarning, match="40 cases for the 9 coordinates"):
        caution(9, preconditioner=None, step_size=0.1)
    assert caution(8, calibration=None) == caution(9) == ""


@pytest.mark.parametrize("window", ["pass", 3])
def test_a_window_that_was_asked_for_is_not_warned_of(window):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert IASG(RELAXED, window=window).bind(VALUES).caution == ""


def test_a_batch_of_none_is_chosen_for_any_model():
    y = jnp.zeros(200)

    def larger(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("cases", 200) as i:
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = IASG(larger, ((("mu",), {"cases": None}),), num_approach=0, calibration=None)
        bound = kernel.bind(y)
    state = bound.algorithm.init(random.key(0), None, bound.data)
    assert bound.windows == {"mu": 8}
    assert float(state.step_size["mu"]) == pytest.approx(matched_step_size(8, 15 / 200))


def test_default_batches_of_small_plates_are_those_of_before():
    """Batches of max(N / 8, 4 rank) cases: 8 of 20 rows and 8 of 16 columns here."""
    bound, state = bound_and_state(IASG(RELAXED))
    assert bound.window == 1  # with 8 of 16 columns even two iterates vary too little
    assert float(state.step_size["basis"]) == pytest.approx(matched_step_size(1, 8 / 20))
    assert float(state.step_size["usage"]) == pytest.approx(matched_step_size(1, 8 / 16))


@pytest.mark.parametrize(
    ("window", "expected"), [("pass", 7), (5, 5), ("matched", 4)], ids=["pass", "given", "matched"]
)
def test_window(window, expected):
    """One pass is the largest N/S: 20/3, of the rows."""
    kernel = IASG(RELAXED, batch_size={"rows": 3, "columns": 4}, window=window)
    bound, state = bound_and_state(kernel)
    assert bound.window == expected
    step = matched_step_size(expected, 3 / 20)
    assert float(state.step_size["basis"]) == pytest.approx(step, rel=1e-5)


def test_step_sizes_may_be_given_for_all_or_by_site():
    state = bound_and_state(IASG(RELAXED, step_size=0.25))[1]
    assert {s: float(h) for s, h in state.step_size.items()} == {"usage": 0.25, "basis": 0.25}
    by_site = {"usage": 0.5, "basis": 0.125}
    state = bound_and_state(IASG(RELAXED, step_size=by_site))[1]
    assert {s: float(h) for s, h in state.step_size.items()} == by_site


def test_iterates_and_draws_stay_in_the_box():
    bound, state = bound_and_state(IASG(RELAXED, delta=0.1, batch_size=4))
    low, high = np.float32(0.1), np.float32(0.9)

    @jax.jit
    def run(state):
        def one(state, key):
            state, _ = bound.algorithm.step(key, state, bound.data)
            return state, (state.position, state.average)

        return jax.lax.scan(one, state, random.split(random.key(0), 30))[1]

    values = np.concatenate([np.ravel(v) for v in jax.tree.leaves(run(state))])
    assert values.min() == low and values.max() == high


def test_the_box_is_that_of_the_prior():
    model = functools.partial(RELAXED, usage=dist.Uniform(0.25, 0.5))
    bound = IASG(model, delta=0.1).bind(VALUES)
    start = {"usage": jnp.ones((20, 2)), "basis": jnp.ones((16, 2))}
    state = bound.algorithm.init(random.key(0), start, bound.data)
    assert float(state.position["usage"].max()) == pytest.approx(0.475)
    assert float(state.position["basis"].max()) == pytest.approx(0.9)


def test_only_the_standard_blocks_take_the_hand_written_path():
    """Its data are the matrix in both orientations; elsewhere the model's arguments."""
    standard = ((("usage",), {"columns": 4}), (("basis",), {"rows": 4}))
    together = ((("usage", "basis"), {"columns": 4}),)
    assert hasattr(IASG(RELAXED, standard).bind(VALUES).data, "transposed")
    args, kwargs = IASG(RELAXED, together).bind(VALUES).data
    assert np.array_equal(args[0], VALUES) and kwargs == {}
    assert hasattr(IASG(RELAXED).bind(data=VALUES, observed=VALUES > 2).data, "transposed")


# ---- the thesis ----------------------------------------------------------------------------------


def test_thesis_is_the_published_algorithm():
    """Calibrated steps of 2 (S/N) / var, an unscaled likelihood, a clamp, a pass a window."""
    kernel = IASG.thesis(RELAXED, batch_size=4, num_calibration=400)
    s = kernel._settings
    assert (s.preconditioner, s.boundary, s.replace) == ("calibrated", "clamp", True)
    assert (s.scale_likelihood, s.delta, s.step_size, s.num_approach) == (False, 1e-3, None, None)
    values = VALUES.copy()
    values[:, 3] = np.nan
    bound, state = bound_and_state(kernel, values)
    assert bound.window == 5  # 20 rows, 4 in a batch

    # Algorithm 3.1 by hand: gradients of plain sums over 4 rows at uniform points.
    r = np.random.default_rng(0)
    points = 4000
    usage, basis = r.random((points, 20, 2)), r.random((points, 16, 2))
    rows = r.integers(0, 20, (points, 4))
    y = np.take_along_axis(usage, rows[:, :, None], 1)
    seen = np.arange(16) != 3
    residual = np.where(seen, values[rows] - y @ basis.transpose(0, 2, 1), 0.0)
    gradient = residual.transpose(0, 2, 1) @ y
    expected = 2 * (4 / 20) / gradient.var(0)[seen]
    found = state.step_size["basis"]
    np.testing.assert_allclose(found[seen], expected, rtol=0.35)
    assert float(jnp.mean(found[seen])) == pytest.approx(expected.mean(), rel=0.05)

    # A column without an entry does not move, and spoils nothing.
    assert not found[3].any()
    state, info = jax.jit(bound.algorithm.step)(random.key(0), state, bound.data)
    assert all(bool(jnp.isfinite(v).all()) for v in jax.tree.leaves((state, info)))
    np.testing.assert_array_equal(state.average["basis"][3], 0.5)


def test_thesis_takes_blocks_of_another_model():
    def two_boxes(y):
        a = numpyro.sample("a", dist.Uniform(0.0, 1.0))
        with numpyro.plate("cases", N) as i:
            numpyro.sample("y", dist.Normal(a, 1.0), obs=y[i])

    bound = IASG.thesis(two_boxes, ((("a",), {"cases": 8}),)).bind(Y)
    assert bound.window == 5
