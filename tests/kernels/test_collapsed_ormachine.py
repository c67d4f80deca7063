"""The sampler with one factor matrix summed out: exact, by enumeration, hot and cold."""

import functools

import jax
import numpy as np
import pytest
from jax import lax, random
from jax import numpy as jnp
from scipy.special import logsumexp
from scipy.stats import binom, chisquare

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import ess_bulk
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean import collapsed
from bmfjax.kernels.boolean.collapsed import collapsed_ormachine, log_marginal
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity, log_prior_of
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import log_likelihood, state_info
from bmfjax.kernels.boolean.line_states import merge_lines, sides_of
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from bmfjax.kernels.tempering import parallel_tempering
from tests.kernels.boolean_exactness import every
from tests.kernels.exactness import fast_jit, moment_scores
from tests.kernels.test_ormachine import TINY, A, B, tiny_posterior

ROWS, COLUMNS, RANK, BETA = 5, 3, 2, 0.4
VALUES = (np.random.default_rng(3).random((ROWS, COLUMNS)) < 0.5).astype(float)
VALUES[1, 2] = np.nan
VALUES[4] = VALUES[0]
DATA = merge_lines(packed_data(BinaryMatrix(VALUES)), sides_of((ROWS, COLUMNS), "usage"))


def position_of(usage, basis, **rates):
    bits = {"usage": usage, "basis": basis}
    words = {n: pack_last_axis(jnp.asarray(b.T > 0)) for n, b in bits.items()}
    return words | {n: jnp.asarray(v) for n, v in rates.items()}


RATES = {
    "flip_rate": np.array([0.1, 0.3]),
    "usage_density": np.array([0.2, 0.6]),
    "basis_density": np.array([0.5, 0.7]),
}


@pytest.mark.parametrize("summed", ["usage", "basis"])
@pytest.mark.device
def test_the_marginal_is_the_sum_over_the_bits(summed):
    density = BooleanDensity((ROWS, COLUMNS), RANK, flip_rate=FlipRatePrior(2))
    rng = np.random.default_rng(0)
    usage, basis = rng.random((ROWS, RANK)) < 0.5, rng.random((COLUMNS, RANK)) < 0.5
    likelihood = log_likelihood(density)

    @fast_jit
    @jax.vmap
    def joint(usage, basis):
        state = State(position_of(usage, basis, **RATES))
        return likelihood(state, DATA) + log_prior_of(summed, density, state.position, DATA)

    kept_shape = (COLUMNS if summed == "usage" else ROWS, RANK)
    states = every(ROWS if summed == "usage" else COLUMNS)
    kept = np.broadcast_to(basis if summed == "usage" else usage, (len(states), *kept_shape))
    pairs = (states, kept) if summed == "usage" else (kept, states)
    expected = logsumexp(joint(*pairs))
    state = State(position_of(usage, basis, **RATES))
    found = fast_jit(log_marginal(density, summed=summed))(state, DATA)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.fixture(scope="module")
def enumerated():
    """Of known rates: log marginal likelihood of every basis, its log prior, and its product."""
    f0, f1 = 0.1, 0.3
    bases, rows = every(COLUMNS), every(1)[:, 0]
    product = np.einsum("zk,bjk->bzj", rows, bases) > 0
    one = np.where(product, 1 - f1, f0)[:, None]
    x = VALUES[None, :, None]
    entry = np.where(np.isnan(x), 0.0, np.where(x == 1, np.log(one), np.log1p(-one)))
    prior = binom.logpmf(rows, 1, 0.3).sum(-1)
    weight = entry.sum(-1) + prior
    log_m = logsumexp(weight, axis=-1).sum(-1)
    return log_m, binom.logpmf(bases, 1, 0.3).sum((1, 2))


def chains(algorithm):
    """``run(keys, *power)``: the number of the basis that each step draws, (chain, step)."""

    def chain(key, *power):
        def body(state, key):
            state, _ = algorithm.step(key, state, DATA, *power)
            bits = unpack_last_axis(of_first(state).position["basis"], COLUMNS)
            return state, jnp.sum(bits.T.reshape(-1) << jnp.arange(COLUMNS * RANK))

        keys = random.split(key, 401)
        return jax.lax.scan(body, algorithm.init(keys[0], None, DATA), keys[1:])[1]

    def of_first(state):
        if hasattr(state, "replica"):
            return jax.tree.map(lambda leaf: leaf[0], state.inner)
        return state

    return fast_jit(lambda keys, *power: jax.vmap(lambda key: chain(key, *power))(keys))


@functools.cache
def collapsed_chains():
    return chains(collapsed_ormachine(known_density(), summed="usage"))


def frequencies(run, *power, num_chains=64):
    """How often each basis was drawn, with the Monte Carlo error over chains."""
    drawn = np.asarray(run(random.split(random.key(1), num_chains), *power))
    each = np.stack([(drawn[:, 20:] == b).mean(1) for b in range(2 ** (COLUMNS * RANK))], -1)
    return each.mean(0), each.std(0, ddof=1) / np.sqrt(num_chains)


def known_density():
    fixed = BitPrior(None, 0.3)
    return BooleanDensity((ROWS, COLUMNS), RANK, fixed, fixed, FlipRatePrior(2, value=(0.1, 0.3)))


@pytest.mark.parametrize("beta", [1.0, BETA])
@pytest.mark.device
def test_the_basis_has_its_tempered_marginal_posterior(enumerated, beta):
    log_m, log_prior = enumerated
    found, error = frequencies(collapsed_chains(), beta)
    expected = np.exp(log_prior + beta * log_m - logsumexp(log_prior + beta * log_m))
    often = expected > 2e-3
    scores = (found - expected)[often] / error[often]
    assert often.sum() > 15 and np.abs(scores).max() < 4.2 and (scores**2).mean() < 2
    # The other temperature is told apart.
    other = np.exp(log_prior + 0.7 * log_m - logsumexp(log_prior + 0.7 * log_m))
    assert np.abs((found - other)[often] / error[often]).max() > 6


def test_a_step_of_power_zero_forgets_where_it_was(enumerated):
    """Its draws have the distribution of the prior, and successive ones are independent."""
    drawn = np.asarray(collapsed_chains()(random.split(random.key(0), 64), 0.0))[:, 1:]
    ones = np.asarray(jax.lax.population_count(drawn))
    expected = binom.pmf(np.arange(COLUMNS * RANK + 1), COLUMNS * RANK, 0.3) * ones.size
    counts = np.bincount(ones.ravel(), minlength=len(expected))
    assert chisquare(counts, expected).pvalue > 1e-3
    together = np.corrcoef(ones[:, :-1].ravel(), ones[:, 1:].ravel())[0, 1]
    assert abs(together) < 4 / np.sqrt(ones.size)
    cold = collapsed_chains()(random.split(random.key(0), 64), 1.0)
    cold = np.asarray(jax.lax.population_count(cold))
    assert np.corrcoef(cold[:, 1:-1].ravel(), cold[:, 2:].ravel())[0, 1] > 0.02


def test_tempered_chains_have_the_posterior_at_the_first_temperature(enumerated):
    log_m, log_prior = enumerated
    density = known_density()
    algorithm = parallel_tempering(
        collapsed_ormachine(density, summed="usage"),
        log_marginal(density, summed="usage"),
        (1.0, 0.3),
        describe=state_info(density),
    )
    found, error = frequencies(chains(algorithm))
    expected = np.exp(log_prior + log_m - logsumexp(log_prior + log_m))
    often = expected > 2e-3
    assert np.abs((found - expected)[often] / error[often]).max() < 4.2


@pytest.mark.parametrize(
    "alone", ["both", *(pytest.param(n, marks=pytest.mark.long) for n in ("conditionals", "walk"))]
)
def test_hot_rates_have_their_tempered_distribution(monkeypatch, alone):
    """One factor, one column, all bits of the basis known: rates against a grid.

    With each of the two moves alone as with both, so that neither hides the other.
    """
    if alone == "walk":
        keep = lambda key, density, sides, position, data: position  # noqa: E731
        monkeypatch.setattr(collapsed, "_given_bits", keep)
    if alone == "conditionals":
        monkeypatch.setattr(collapsed, "SCALES", (1e-9, 1e-8))
    beta, ones, zeros = 0.3, 14, 6
    data = packed_data(
        BinaryMatrix(np.repeat([1.0, 0.0], [ones, zeros])[:, None]),
        basis_log_odds=np.full((1, 1), np.inf),
    )
    density = BooleanDensity((ones + zeros, 1), 1, basis=BitPrior(None))
    algorithm = collapsed_ormachine(density, summed="usage")

    def chain(key):
        def body(state, key):
            state, info = algorithm.step(key, state, data, beta)
            p = state.position
            used = unpack_last_axis(p["usage"], ones + zeros).sum()
            return state, (p["flip_rate"], p["usage_density"][0], used, info.accepted["rates"])

        keys = random.split(key, 401)
        return jax.lax.scan(body, algorithm.init(keys[0], None, data), keys[1:])[1]

    drawn = fast_jit(jax.vmap(chain))(random.split(random.key(0), 50))
    flip, chance, used, accepted = (np.asarray(d)[:, 50:] for d in drawn)
    assert accepted.mean() > 0.3 and (alone == "walk" or accepted.mean() < 1.0)
    f, d = np.meshgrid((np.arange(200) + 0.5) / 400, (np.arange(200) + 0.5) / 200)
    one = d * (1 - f) + (1 - d) * f
    p = one ** (beta * ones) * (1 - one) ** (beta * zeros)
    p /= p.sum()
    for draws, grid in ((flip, f), (chance, d)):
        mean, square = (grid * p).sum(), (grid**2 * p).sum()
        for values, expected in ((draws, mean), (draws**2, square)):
            each = values.mean(1)
            assert abs(each.mean() - expected) < 4 * each.std(ddof=1) / np.sqrt(len(each))
    # The bits that are summed out have their conditional at these very rates.
    given = ones * chance * (1 - flip) / (chance * (1 - flip) + (1 - chance) * flip)
    given += zeros * chance * flip / (chance * flip + (1 - chance) * (1 - flip))
    each = ((used - given) * chance).mean(1)
    assert abs(each.mean()) < 4 * each.std(ddof=1) / np.sqrt(len(each))
    # And not that of another power.
    q = one**ones * (1 - one) ** zeros
    wrong = (d * q).sum() / q.sum()
    each = chance.mean(1)
    assert abs(each.mean() - wrong) > 6 * each.std(ddof=1) / np.sqrt(len(each))


@pytest.mark.long
@pytest.mark.parametrize(("num_rates", "summed"), [(1, "usage"), (2, "basis")])
@pytest.mark.device
def test_learned_rates_and_densities_are_those_by_enumeration(num_rates, summed):
    """At the first of two temperatures, which exchange their states."""
    density = BooleanDensity((3, 3), 2, flip_rate=FlipRatePrior(num_rates, A, B))
    algorithm = parallel_tempering(
        collapsed_ormachine(density, summed=summed, moves=("xor", "rebirth")),
        log_marginal(density, summed=summed), (1.0, 0.4), describe=state_info(density),
    )  # fmt: skip
    data = packed_data(BinaryMatrix(TINY))

    def chain(key):
        def body(state, key):
            state, info = algorithm.step(key, state, data)
            seen = algorithm.observe(state, info)
            usage, basis = (
                unpack_last_axis(seen[n], 3).astype(jnp.int32) for n in ("usage", "basis")
            )
            product = usage.T @ basis > 0
            return state, {
                "errors": seen["errors"], "entry": product[0, 0], "missing": product[1, 1],
                "usage": usage.sum(), "basis": basis.sum(), "trade": usage[0, 0] ^ usage[1, 0],
                "rate": seen["flip_rate"].ravel()[0], "swap": seen["swap_probability"].mean(),
            }  # fmt: skip

        start, run = random.split(key)
        return jax.lax.scan(body, algorithm.init(start, None, data), random.split(run, 90))[1]

    draws = fast_jit(jax.vmap(chain))(random.split(random.key(5), 80))
    assert np.nanmean(draws.pop("swap")) > 0.2
    for name, moments in tiny_posterior(num_rates, 1.0).items():
        scores, size = moment_scores(np.asarray(draws[name], float)[:, 15:], moments)
        assert size > 500, name
        # The first moment alone of what is 0 or 1.
        assert np.abs(scores[: 1 if name in ("entry", "missing", "trade") else 2]).max() < 4, name


@pytest.mark.long
def test_bits_that_are_fixed_stay():
    odds = np.full((6, 2), np.nan)
    odds[0], odds[1] = np.inf, -np.inf
    data = packed_data(BinaryMatrix(np.eye(6)), usage_log_odds=odds)
    for summed in ("usage", "basis"):
        algorithm = collapsed_ormachine(BooleanDensity((6, 6), 2), summed=summed)

        @fast_jit
        def chain(keys, algorithm=algorithm):
            def step(state, key):
                state, _ = algorithm.step(key, state, data, 0.5)
                return state, unpack_last_axis(state.position["usage"], 6)

            return lax.scan(step, algorithm.init(keys[0], None, data), keys)[1]

        usage = np.asarray(chain(random.split(random.key(1), 5)))
        assert usage[:, :, 0].all() and not usage[:, :, 1].any()


@pytest.mark.parametrize(
    ("density", "options", "message"),
    [
        (BooleanDensity((20, 20), 9), {}, "all 512 states of 9 factors"),
        (BooleanDensity((4, 3), 2), {"summed": "rows"}, "summed is 'rows'"),
        (BooleanDensity((4, 3), 2, flip_rate=FlipRatePrior(rule="mle")), {}, "dispersion is 'mle'"),
    ],
)
def test_bad_options_are_refused(density, options, message):
    with pytest.raises(InputError, match=message):
        collapsed_ormachine(density, **options)


def test_densities_of_a_factor_are_independent_without_data():
    """Which fails if a step has the random numbers of another."""
    values = np.full((12, 4), np.nan)
    values[0, 0] = 1.0
    data = packed_data(BinaryMatrix(values))
    density = BooleanDensity(values.shape, 2, flip_rate=FlipRatePrior(value=0.4999999))
    algorithm = collapsed_ormachine(density)
    start = algorithm.init(random.key(0), None, data)

    def step(state, key):
        state, _ = algorithm.step(key, state, data)
        return state, [state.position[f"{n}_density"][0] for n in ("usage", "basis")]

    keys = random.split(random.key(1), 10_000)
    usage, basis = map(np.asarray, jax.jit(lambda: lax.scan(step, start, keys)[1])())
    products = ((usage - 0.5) * (basis - 0.5))[None].astype(float)
    error = products.std() / ess_bulk(products) ** 0.5
    assert abs(products.mean()) < 4 * error and error < 0.003
    assert abs(usage.mean() - 0.5) < 0.03 and abs(basis.mean() - 0.5) < 0.03
