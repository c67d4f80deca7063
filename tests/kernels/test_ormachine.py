"""The OrMachine is exact: enumeration, and the model's own density."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from jax import lax, random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.diagnostics import ess_bulk
from bmfjax.infer import ChainRun
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean import gibbs as kernel
from bmfjax.kernels.boolean.bits import gibbs, joint, metropolis
from bmfjax.kernels.boolean.density import (
    BitPrior,
    BooleanDensity,
    _redraw_unused,
    draw_unused,
    is_empty,
    log_empty,
)
from bmfjax.kernels.boolean.flip_rates import ErrorCounts, FlipRatePrior, draw_flip_rate
from bmfjax.kernels.boolean.gibbs import ormachine, start_from
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from bmfjax.models.ormachine import ormachine as ormachine_model
from tests.kernels.boolean_exactness import as_position, as_sites
from tests.kernels.exactness import fast_jit, model_log_joint, moment_scores

# ---- flip rates --------------------------------------------------------------------------------


@functools.partial(fast_jit, static_argnums=3)
def draw_flip_rates(keys, start, counts, prior, power):
    return jax.vmap(lambda k, rate: draw_flip_rate(k, rate, counts, prior, power))(keys, start)


@pytest.mark.parametrize(
    ("wrong", "right", "power"), [(9.0, 40.0, 1.0), (9.0, 40.0, 0.3), (14.0, 12.0, 1.0)]
)
@pytest.mark.device
def test_flip_rates_are_drawn_from_the_truncated_beta(wrong, right, power):
    """Started there: where most proposals lie beyond one half, many rates stay."""
    a, b = 2.0 + power * np.array([wrong, 3.0]), 3.0 + power * np.array([right, 30.0])
    inside = scipy.special.betainc(a, b, 0.5)
    start = scipy.special.betaincinv(a, b, np.random.default_rng(0).random((6000, 2)) * inside)
    counts = ErrorCounts(np.float32([wrong, 3.0]), np.float32([right, 30.0]))
    prior = FlipRatePrior(num_rates=2, a=2.0, b=3.0)
    keys = random.split(random.key(1), 6000)
    found = np.asarray(draw_flip_rates(keys, np.float32(start), counts, prior, np.float32(power)))
    assert (found > 0).all() and (found <= 0.5).all() and (found != start).mean() > 0.9
    for k in range(2):
        scores = scipy.special.betainc(a[k], b[k], found[:, k]) / inside[k]
        assert scipy.stats.kstest(scores, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("rule", "rates", "expected"),
    [
        ("mle", 0.3, 10 / 100),
        ("mle", (0.3, 0.3), (8 / 40, 2 / 60)),
        ("laplace", 0.3, 11 / 102),
        ("laplace", (0.3, 0.3), (9 / 42, 3 / 62)),
    ],
)
def test_the_rules_set_the_rate_to_what_they_say(rule, rates, expected):
    counts = ErrorCounts(jnp.array([8.0, 2.0]), jnp.array([32.0, 58.0]))
    prior = FlipRatePrior(num_rates=1 + np.ndim(rates), rule=rule)
    found = draw_flip_rate(random.key(0), jnp.float32(rates), counts, prior, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_perfect_fit_and_a_hopeless_one_keep_the_rate_inside():
    none, all_wrong = jnp.zeros(2), jnp.array([50.0, 50.0])
    for rule in ("mle", "laplace"):
        prior = FlipRatePrior(rule=rule)
        low = draw_flip_rate(None, jnp.float32(0.2), ErrorCounts(none, all_wrong), prior, 1.0)
        high = draw_flip_rate(None, jnp.float32(0.2), ErrorCounts(all_wrong, none), prior, 1.0)
        assert 0.0 < low < 0.01 and high == 0.5


# ---- the model's own density -------------------------------------------------------------------

ROWS, COLUMNS, RANK = 9, 35, 3


def prior_matrix(size):
    """Probabilities of single bits, some of which fix the bit."""
    p = np.random.default_rng(size).random((size, RANK))
    p[0], p[1] = (0.0, 1.0, 0.5), (1.0, 0.0, 0.25)
    return p


#: Of the first two factors; the rest is learned.
KNOWN = np.where(np.arange(2 * COLUMNS) % 7 < 3, np.arange(2 * COLUMNS) % 2, np.nan).reshape(-1, 2)
CASES = {
    "learned": ({}, BooleanDensity((ROWS, COLUMNS), RANK)),
    "two rates": (
        {"num_rates": 2, "flip_rate": dist.Beta(2.0, 5.0), "usage": dist.Beta(0.5, 2.0),
         "basis": 0.3},
        BooleanDensity(
            (ROWS, COLUMNS), RANK, BitPrior((0.5, 2.0)), BitPrior(None, 0.3),
            FlipRatePrior(2, 2.0, 5.0),
        ),
    ),
    "unknown number": (
        {"usage": dist.Beta(2.0, 3.0), "presence_prior": dist.Beta(1.5, 2.0)},
        BooleanDensity((ROWS, COLUMNS), RANK, BitPrior((2.0, 3.0), presence=(1.5, 2.0))),
    ),
    "known factors": (
        {"basis": dist.Beta(2.0, 3.0), "anchors": KNOWN},
        BooleanDensity((ROWS, COLUMNS), RANK, basis=BitPrior((2.0, 3.0))),
    ),
    "single bits": (
        {"flip_rate": 0.2, "usage": prior_matrix(ROWS), "basis": prior_matrix(COLUMNS)},
        BooleanDensity(
            (ROWS, COLUMNS), RANK, BitPrior(None), BitPrior(None), FlipRatePrior(value=0.2)
        ),
    ),
}  # fmt: skip


def values_with_gaps():
    r = np.random.default_rng(7)
    values = (r.random((ROWS, COLUMNS)) < 0.4).astype(float)
    values[r.random(values.shape) < 0.2] = np.nan
    return values


def of_case(case):
    options, density = CASES[case]
    odds = {}
    if case == "single bits":
        odds = {f"{n}_log_odds": scipy.special.logit(options[n]) for n in ("usage", "basis")}
    if case == "known factors":
        known = np.pad(KNOWN, ((0, 0), (0, RANK - 2)), constant_values=np.nan)
        odds = {"basis_log_odds": np.where(np.isnan(known), np.nan, np.inf * (2 * known - 1))}
    data = packed_data(BinaryMatrix(values_with_gaps()), **odds)
    options = {"num_rates": density.flip_rate.num_rates} | options
    return functools.partial(ormachine_model, rank=RANK, **options), density, data


#: Each takes a program of its own.
OFTEN = ("learned", "known factors")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.long] * (c not in OFTEN)) for c in CASES]
)
@pytest.mark.device
def test_the_log_joint_is_that_of_the_model(case):
    model, density, data = of_case(case)
    algorithm, values = ormachine(density, update=gibbs), values_with_gaps()

    @fast_jit
    def run(key, sites, data):
        state = algorithm.init(None, as_position(sites), data)
        state, info = algorithm.step(key, state, data)
        sites = as_sites(state.position, values.shape)
        return sites, info, kernel.log_likelihood(density)(state, data)

    r = np.random.default_rng(3)
    sites = {n: r.random((size, RANK)) < 0.4 for n, size in (("usage", ROWS), ("basis", COLUMNS))}
    sites |= {f"{n}_density": jnp.full(RANK, 0.4) for n in sites}
    sites["flip_rate"] = jnp.full(() if density.flip_rate.num_rates == 1 else 2, 0.2)
    if case == "unknown number":  # the last factor is not there
        sites["usage"][:, -1], sites["usage_presence"] = False, jnp.float32(0.6)
        sites["usage_density"] = jnp.array([0.4, 0.4, 0.0])
    given = ~np.isnan(KNOWN)
    if case == "known factors":
        sites["basis"][:, :2][given] = KNOWN[given] == 1
    sites, info, again = run(random.key(1), sites, data)
    expected = model_log_joint(model, values, sites)
    np.testing.assert_allclose(info.log_joint, expected, rtol=1e-5)
    np.testing.assert_allclose(again, info.log_likelihood, rtol=1e-5)
    product = np.asarray(sites["usage"]) @ np.asarray(sites["basis"]).T > 0
    assert info.errors == ((product != values) & ~np.isnan(values)).sum()
    if case == "known factors":
        np.testing.assert_array_equal(np.asarray(sites["basis"])[:, :2][given], KNOWN[given])
    if case == "single bits":
        for n, size in (("usage", ROWS), ("basis", COLUMNS)):
            p = prior_matrix(size)
            assert (np.asarray(sites[n])[(p == 0) | (p == 1)] == p[(p == 0) | (p == 1)]).all()


# ---- a tiny matrix by enumeration --------------------------------------------------------------

TINY = np.array([[1.0, 1.0, 0.0], [1.0, np.nan, 0.0], [0.0, 1.0, 1.0]])
A, B = 1.5, 4.0  # the Beta prior of the flip rates


def tiny_posterior(num_rates, power):
    """Moments (2,) of statistics, over all factors; rates and densities are integrated out."""
    bits = np.array(list(itertools.product([0, 1], repeat=12)))
    usage, basis = bits[:, :6].reshape(-1, 3, 2), bits[:, 6:].reshape(-1, 3, 2)
    product = np.einsum("sik,sjk->sij", usage, basis) > 0
    seen = ~np.isnan(TINY)
    miss = product != (TINY == 1)
    cells = [(product == c) & seen for c in (False, True)]
    wrong = np.stack([(c & miss).sum((1, 2)) for c in cells], axis=1).astype(float)
    right = np.stack([(c & ~miss).sum((1, 2)) for c in cells], axis=1).astype(float)
    errors = wrong.sum(1)
    if num_rates == 1:
        wrong, right = wrong.sum(1, keepdims=True), right.sum(1, keepdims=True)
    a, b = A + power * wrong, B + power * right

    def log_mass(a, b):
        return scipy.special.betaln(a, b) + np.log(scipy.special.betainc(a, b, 0.5))

    log_p = log_mass(a, b).sum(1)
    for factor in (usage, basis):
        ones = factor.sum(1)
        log_p += scipy.special.betaln(1 + ones, 1 + 3 - ones).sum(1)
    p = scipy.special.softmax(log_p)
    rates = [
        np.exp(log_mass(a[:, :1] + k, b[:, :1]) - log_mass(a[:, :1], b[:, :1])) for k in (1, 2)
    ]
    found = {"errors": errors, "entry": product[:, 0, 0], "missing": product[:, 1, 1],
             "usage": usage.sum((1, 2)), "basis": basis.sum((1, 2)),
             "trade": (usage[:, 0, 0] ^ usage[:, 0, 1])}  # fmt: skip
    moments = {n: (p @ x, p @ (x.astype(float) ** 2)) for n, x in found.items()}
    return moments | {"rate": tuple(p @ r[:, 0] for r in rates)}


@pytest.mark.parametrize(
    ("update", "num_rates"), [(metropolis, 1), pytest.param(joint(2), 2, marks=pytest.mark.long)]
)
@pytest.mark.device
def test_the_posterior_of_a_tiny_matrix_is_that_by_enumeration(update, num_rates):
    rate = FlipRatePrior(num_rates, A, B)
    algorithm = ormachine(BooleanDensity((3, 3), 2, flip_rate=rate), update=update)
    data = packed_data(BinaryMatrix(TINY))

    def one(key, power, data):
        def body(state, key):
            state, info = algorithm.step(key, state, data, power)
            usage, basis = (
                unpack_last_axis(state.position[n], 3).astype(jnp.int32) for n in ("usage", "basis")
            )
            product = usage.T @ basis > 0
            seen = {"errors": info.errors, "entry": product[0, 0], "missing": product[1, 1],
                    "usage": usage.sum(), "basis": basis.sum(), "trade": usage[0, 0] ^ usage[1, 0],
                    "rate": state.position["flip_rate"].ravel()[0]}  # fmt: skip
            return state, seen

        start, run = random.split(key)
        return lax.scan(body, algorithm.init(start, None, data), random.split(run, 150))[1]

    powers = np.repeat([1.0, 0.3], 60)
    run = fast_jit(jax.vmap(one, (0, 0, None)))
    draws = run(random.split(random.key(2), 120), jnp.asarray(powers), data)
    for power in (1.0, 0.3):
        for name, moments in tiny_posterior(num_rates, power).items():
            found = np.asarray(draws[name], float)[powers == power, 25:]
            scores, size = moment_scores(found, moments)
            first_alone = name in ("entry", "missing", "trade")  # 0 or 1
            assert size > 600, name
            assert np.abs(scores[:1] if first_alone else scores).max() < 4, name


# ---- factors that nothing is known of ----------------------------------------------------------


@functools.partial(fast_jit, static_argnums=1)
def redrawn(keys, density, position, data):
    return jax.vmap(lambda k: _redraw_unused(k, "basis", "usage", density, position, data))(keys)


@pytest.mark.parametrize("case", ["learned", "known factors", "unknown number"])
def test_unused_factors_are_drawn_from_the_prior(case):
    """Density and bits together, where the usage is empty; all else stays."""
    _, density, data = of_case(case)
    a, b = (2.0, 3.0) if density.basis.beta == (2.0, 3.0) else (1.0, 1.0)
    bits = np.random.default_rng(1).random((RANK, COLUMNS)) < 0.5
    if case == "known factors":
        bits = np.where(np.isnan(data.basis_log_odds), bits, np.asarray(data.basis_log_odds) > 0)
    density = density._replace(basis=BitPrior((a, b), presence=density.usage.presence))
    position = {
        "usage": pack_last_axis(jnp.zeros((RANK, ROWS), bool).at[0, 3].set(True)),
        "basis": pack_last_axis(jnp.asarray(bits)),
        "basis_density": jnp.array([0.3, 0.4, 0.5]),
    }
    if case == "unknown number":  # the second is not there
        position["basis_density"] = jnp.array([0.3, 0.0, 0.5])
        position["basis"] = position["basis"].at[1].set(0)
    found = redrawn(random.split(random.key(2), 4000), density, position, data)
    drawn = np.asarray(unpack_last_axis(found["basis"], COLUMNS))
    chance = np.asarray(found["basis_density"], float)
    stays = (0, 1) if case == "unknown number" else (0,)
    for k in stays:
        assert (chance[:, k] == float(position["basis_density"][k])).all()
        assert (found["basis"][:, k] == position["basis"][k]).all()
    assert (found["usage"] == position["usage"]).all()
    for k in set(range(RANK)) - set(stays):
        assert scipy.stats.kstest(chance[:, k], scipy.stats.beta(a, b).cdf).pvalue > 1e-3
        free = np.ones(COLUMNS, bool)
        if case == "known factors":
            free = np.isnan(np.asarray(data.basis_log_odds)[k])
            assert (drawn[:, k, ~free] == bits[k, ~free]).all()
        number = scipy.stats.betabinom(int(free.sum()), a, b)
        ones = drawn[:, k, free].sum(-1)
        # Spread over the steps of the distribution function, counts are uniform.
        within = np.random.default_rng(3).random(len(ones))
        scores = number.cdf(ones - 1) + within * number.pmf(ones)
        assert scipy.stats.kstest(scores, "uniform").pvalue > 1e-3


@functools.partial(fast_jit, static_argnums=1)
def drawn_unused(key, density, position, data):
    def again(position, key):
        position = draw_unused(key, density, position, data)
        empty = is_empty(position["usage"]), is_empty(position["basis"])
        return position, (*empty, position["usage_density"], position["basis_density"])

    return lax.scan(again, position, random.split(key, 20_000))[1]


@pytest.mark.parametrize("case", ["learned", pytest.param("known factors", marks=pytest.mark.long)])
def test_spare_factors_have_their_prior_given_that_the_product_is_empty(case):
    """Which matrix is empty, and the densities then, by the probabilities of the prior."""
    _, density, data = of_case(case)
    density = density._replace(usage=BitPrior((1.0, 4.0)))
    bits = np.zeros((RANK, COLUMNS), bool)
    if case == "known factors":
        bits |= np.asarray(data.basis_log_odds) > 0
    usage = np.zeros((RANK, ROWS), bool)
    position = {
        "usage": pack_last_axis(jnp.asarray(usage)),
        "basis": pack_last_axis(jnp.asarray(bits)),
        "usage_density": jnp.full(RANK, 0.5),
        "basis_density": jnp.full(RANK, 0.5),
    }
    found = drawn_unused(random.key(3), density, position, data)
    no_usage, no_basis, of_usage = (np.asarray(a) for a in found[:3])
    assert (no_usage | no_basis).all()
    e_u, e_v = (np.exp(np.asarray(log_empty(n, density, data), float)) for n in ("usage", "basis"))
    by_hand = np.exp(scipy.special.betaln(1, 4 + ROWS) - scipy.special.betaln(1, 4))
    assert e_u[2] == pytest.approx(by_hand, rel=1e-5)
    for k in range(RANK):
        if case == "known factors" and bits[k].any():
            assert e_v[k] == 0 and not no_basis[:, k].any()
            continue
        expected = e_v[k] / (e_u[k] + e_v[k] - e_u[k] * e_v[k])
        apart = no_basis[:, k].mean() - expected
        error = (expected * (1 - expected) / ess_bulk(no_basis[None, :, k].astype(float))) ** 0.5
        assert abs(apart) < 4 * error and error < 0.02
        # Given that it is empty a usage has few ones to expect, and else its prior.
        some = of_usage[no_usage[:, k] & ~no_basis[:, k], k]
        assert some.mean() == pytest.approx(1 / (5 + ROWS), abs=0.01)


@pytest.mark.parametrize("update", [metropolis, gibbs], ids=["flips", "gibbs"])
def test_steps_of_a_sweep_have_random_numbers_of_their_own(update):
    """Without data a density knows nothing of the bits of another factor."""
    values = np.full((8, 6), np.nan)
    values[0, 0] = 1.0
    odds = np.tile([np.inf, -np.inf], (6, 1))
    data = packed_data(BinaryMatrix(values), np.tile([-1.0, np.nan], (8, 1)), odds)
    density = BooleanDensity(values.shape, 2, flip_rate=FlipRatePrior(value=0.4999999))
    algorithm = ormachine(density, update=update)
    start = algorithm.init(random.key(0), None, data)

    def step(state, key):
        state, _ = algorithm.step(key, state, data)
        return state, (state.position["usage"], state.position["usage_density"])

    keys = random.split(random.key(1), 8000)
    words, drawn = jax.jit(lambda: lax.scan(step, start, keys)[1])()
    first = np.asarray(unpack_last_axis(words, 8))[:, 0]
    for row in range(3):
        for value in (False, True):
            some = np.asarray(drawn)[first[:, row] == value, 1]
            assert some.mean() == pytest.approx(0.5, abs=5 * 12**-0.5 / len(some) ** 0.5)


@pytest.mark.long
def test_the_joint_density_of_spare_factors_is_soon_forgotten():
    """A tile and two factors too many: their densities are not a slow walk."""
    rng = np.random.default_rng(0)
    values = np.zeros((20, 300))
    values[:10, :150] = 1
    values = np.where(rng.random(values.shape) < 0.02, 1 - values, values)
    density, data = BooleanDensity(values.shape, 3), packed_data(BinaryMatrix(values))
    factors = {"usage": np.zeros((20, 3), bool), "basis": rng.random((300, 3)) < [1, 0.1, 0.6]}
    factors["usage"][:10, 0], factors["basis"][150:, 0] = True, False
    start = start_from(density, data, factors)
    run = ChainRun(
        ormachine(density), random.key(0), data, num_chains=2, num_samples=600,
        position=jax.tree.map(lambda a: np.stack([a, a]), start), trace={"log_joint": 1},
    )  # fmt: skip
    run.finish()
    assert ess_bulk(run.trace()["log_joint"]) > 100


# ---- structure ---------------------------------------------------------------------------------


def test_one_compilation_serves_a_run(compilations):
    some = BitPrior(None, 0.3)
    density = BooleanDensity((ROWS, COLUMNS), RANK, some, some, FlipRatePrior(rule="mle"))
    run = ChainRun(
        ormachine(density), random.key(0), of_case("learned")[2], num_chains=2,
        num_warmup=5, num_samples=20, chunk_size=8, draws={"usage": 1, "flip_rate": 1},
        trace=dict.fromkeys(("log_joint", "errors", "dispersion"), 1),
    )  # fmt: skip
    run.advance()
    compilations()
    while run.advance():
        pass
    assert compilations() == 0
    draws, rate = run.draws(), run.draws()["flip_rate"]
    assert draws["usage"].shape == (2, 20, RANK, 1) and draws["usage"].dtype == np.uint32
    trace = run.recorded_between(0, 25)["trace"]
    np.testing.assert_allclose(
        trace["dispersion"][:, 5:], -scipy.special.logit(rate.astype(float)), rtol=1e-5
    )
    assert trace["errors"].dtype == np.int32 and np.isfinite(trace["log_joint"]).all()


def test_a_move_named_again_is_one_loop_with_the_draws_of_single_moves():
    """Each with random numbers of its own; the acceptance told is the mean."""
    traced = []

    def move(key, position, data, power):
        traced.append(key)
        kept = random.uniform(key)
        return position | {"flip_rate": kept * position["flip_rate"]}, kept

    def same(*given):
        return move(*given)

    def moved(*moves):
        traced.clear()
        start = {"flip_rate": jnp.float32(1.0)}
        return *kernel._moved(random.key(1), moves, start, None, 1.0), len(traced)

    found, accepted, times = moved(*[("a", move)] * 3, ("b", move))
    single, alone, _ = moved(("a", move), ("c", same), ("d", move), ("b", move))
    assert times == 2 and len(set(map(float, alone.values()))) == 4
    assert found["flip_rate"] == pytest.approx(float(single["flip_rate"]), rel=1e-6)
    expected = np.mean([alone[name] for name in "acd"])
    told = [float(accepted[name]) for name in "ab"]
    assert told == pytest.approx([float(expected), float(alone["b"])], rel=1e-6)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("update", [metropolis, gibbs, joint(2)], ids=["flips", "gibbs", "joint"])
def test_the_sampler_stays_in_float32(case, update):
    _, density, data = of_case(case)
    algorithm = ormachine(density, update=update)
    with jax.numpy_dtype_promotion("strict"):
        state, info = jax.eval_shape(
            lambda data: algorithm.step(
                random.key(0), algorithm.init(random.key(1), None, data), data
            ),
            data,
        )
    kinds = {x.dtype.name for x in jax.tree.leaves((state, info))}
    assert kinds == {"float32", "uint32", "int32"}


def test_double_precision_counts_in_double_precision(x64):
    _, density, data = of_case("two rates")
    algorithm = ormachine(density)
    state, info = jax.eval_shape(
        lambda data: algorithm.step(random.key(0), algorithm.init(random.key(1), None, data), data),
        data,
    )
    assert data.num_zeros.dtype == info.log_joint.dtype == jnp.float64
    assert {state.position[n].dtype.name for n in ("flip_rate", "usage_density")} == {"float64"}


@pytest.mark.parametrize("update", [metropolis, joint(2)], ids=["flips", "joint"])
def test_fixed_bits_and_rates_at_their_ends_make_no_nan(update):
    """Infinite log odds, weights of zero, and of as much as there is."""
    _, density, data = of_case("single bits")
    step = fast_jit(ormachine(density, update=update).step)
    position = as_position({n: np.ones((m, RANK)) for n, m in (("usage", 9), ("basis", 35))})
    for rate in (0.5, 1e-30):
        state = State(position | {"flip_rate": jnp.float32(rate)})
        with jax.debug_nans(True):
            _, info = step(random.key(1), state, data)
        assert np.isfinite(info.log_joint)


@pytest.mark.device
def test_errors_are_counted_beyond_what_float32_holds():
    """20,000,000 entries of which all ones but one are errors: a number float32 rounds."""
    shape = (5000, 4000)
    ones = np.ones(shape, bool)
    ones[17, 3] = False
    never = np.full((shape[0], 1), -np.inf)
    density = BooleanDensity(shape, 1, BitPrior(None), BitPrior(None), FlipRatePrior(rule="mle"))
    algorithm = ormachine(density)
    data = packed_data(BinaryMatrix(ones), usage_log_odds=never)
    state = fast_jit(algorithm.init)(random.key(0), None, data)
    state, info = fast_jit(algorithm.step)(random.key(1), state, data)
    assert info.errors == ones.sum() == 19_999_999
    assert np.float32(ones.sum()) != ones.sum()
    assert state.position["flip_rate"] == 0.5
