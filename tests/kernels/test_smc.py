"""Sequential Monte Carlo: evidence and draws against exact ones, normal and Boolean."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random
from scipy.integrate import quad
from scipy.special import betaln, logsumexp
from scipy.stats import norm

import bmfjax
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.infer import OrMachineSMC
from bmfjax.kernels import smc as module
from bmfjax.kernels.base import Algorithm, State
from bmfjax.kernels.boolean.collapsed import collapsed_ormachine, log_marginal
from bmfjax.kernels.boolean.density import draw_whole_prior
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior, prior_rate
from bmfjax.kernels.boolean.moves.exchange import exchange_move
from bmfjax.kernels.boolean.words import unpack_last_axis
from bmfjax.kernels.smc import smc
from tests.kernels.boolean_exactness import every  # fmt: skip
from tests.kernels.exactness import fast_jit
from tests.kernels.test_collapsed_ormachine import COLUMNS, DATA, RANK, enumerated, known_density

__all__ = ["enumerated"]  # a fixture

Y, NOISE = 2.0, 0.3


def runs(algorithm, data, number, seed=0):
    """The last states of independent runs, with a leading axis."""

    def one(key):
        key_init, key_run = random.split(key)

        def body(carry):
            state, t = carry
            return algorithm.step(random.fold_in(key_run, t), state, data)[0], t + 1

        start = algorithm.init(key_init, None, data), 0
        return jax.lax.while_loop(lambda c: ~c[0].finished, body, start)[0]

    return fast_jit(lambda keys: jax.lax.map(one, keys))(random.split(random.key(seed), number))


def ratio(states, exact):
    """Estimates of the evidence over the exact one: their mean, and its standard error."""
    each = np.exp(np.asarray(states.log_evidence, float) - exact)
    return each.mean(), each.std(ddof=1) / np.sqrt(len(each))


# ---- a normal ----------------------------------------------------------------------------------


def log_density(x, y):
    return norm.logpdf(y, x, NOISE) if isinstance(x, float) else (
        -0.5 * ((y - x) / NOISE) ** 2 - 0.5 * np.log(2 * np.pi * NOISE**2)
    )  # fmt: skip


def walk(key, x, y, inverse_temperature=1.0):
    key_step, key_accept = random.split(key)
    new = x + 0.7 * random.normal(key_step)
    log_p = lambda x: -0.5 * x**2 + inverse_temperature * log_density(x, y)  # noqa: E731
    accepted = jnp.log(random.uniform(key_accept)) < log_p(new) - log_p(x)
    return jnp.where(accepted, new, x), None


NORMAL = Algorithm(lambda key, position, y: random.normal(key), walk, lambda x, info: {"x": x})
EXACT = norm.logpdf(Y, 0.0, np.sqrt(1.0 + NOISE**2))


def normal_runs(population_move=None, number=300):
    options = {"num_particles": 256, "chain_length": 8, "population_move": population_move}
    return runs(smc(NORMAL, log_density, **options), Y, number)


def test_the_evidence_of_a_normal_is_unbiased_and_its_error_honest():
    states = normal_runs()
    mean, error = ratio(states, EXACT)
    assert error < 0.02 and abs(mean - 1.0) < 4 * error
    off = np.asarray(states.log_evidence) - EXACT
    known = np.sqrt(np.asarray(states.variance))
    # Chains are related, which the estimate from one run does not see: somewhat too small.
    assert 0.6 < np.sqrt((known**2).mean()) / off.std() < 1.2
    assert (np.abs(off) < 3 * known).mean() > 0.95
    means = np.asarray(states.particles).mean((1, 2))
    expected = Y / (1.0 + NOISE**2)
    assert abs(means.mean() - expected) < 4 * means.std() / np.sqrt(len(means))


def test_without_weights_in_the_resampling_it_is_not(monkeypatch):
    unweighted = module._systematic
    monkeypatch.setattr(module, "_systematic", lambda k, w, n: unweighted(k, jnp.ones_like(w), n))
    mean, error = ratio(normal_runs(number=100), EXACT)
    assert abs(mean - 1.0) > 8 * error


def test_moves_between_particles_keep_their_chains_apart():
    def turn(key, states, data, betas, values):
        assert states.shape == betas.shape == values.shape == (16,)
        # The same move for all of a group: a reflection of the prior, always proposed.
        new = -states
        gain = betas * (log_density(new, data) - log_density(states, data))
        accepted = jnp.log(random.uniform(key, (16,))) < gain
        then = jnp.where(accepted, log_density(new, data), values)
        return jnp.where(accepted, new, states), then, None

    states = normal_runs(turn, number=100)
    mean, error = ratio(states, EXACT)
    assert abs(mean - 1.0) < 4 * error
    np.testing.assert_allclose(
        states.log_likelihood, log_density(np.asarray(states.particles), Y), rtol=1e-4, atol=1e-4
    )


def test_systematic_resampling_keeps_the_order_and_the_expected_numbers():
    weights = jnp.array([0.0, 0.5, 0.0, 2.0, 1.5, 0.0])
    found = jax.vmap(lambda k: module._systematic(k, weights, 8))(random.split(random.key(0), 500))
    assert (np.diff(found, axis=1) >= 0).all()
    counts = (np.asarray(found)[..., None] == np.arange(6)).sum(1)
    assert (abs(counts - 8 * weights / 4.0) < 1).all()


def test_likelihoods_of_zero_or_nan_die():
    values = np.float32([[0.0, -1.0], [-np.inf, np.nan], [-2.0, -1.5], [0.0, -0.5]])
    particles, zero = np.arange(8, dtype=np.int32).reshape(4, 2), np.float32(0.0)
    state = module.SMCState(particles, values, jnp.int32(2), zero, zero, zero)
    new = jax.jit(module._next_temperature)(random.key(0), state, 0.5)
    assert np.isfinite(new.log_evidence) and new.inverse_temperature == 1.0
    assert not np.isin(np.asarray(new.particles[:, 0]), (2, 3)).any()
    np.testing.assert_allclose(
        new.log_evidence, logsumexp([0.0, -1.0, -2.0, -1.5, 0.0, -0.5]) - np.log(8), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_particles": 100, "chain_length": 8}, "give a multiple"),
        ({"num_particles": 8, "chain_length": 8}, "num_particles is 8"),
        ({"num_particles": 8, "chain_length": 1}, "chain_length is 1"),
        ({"num_particles": 8, "chain_length": 2, "ess": 1.0}, "ess is 1.0"),
    ],
)
def test_bad_populations_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        smc(NORMAL, log_density, **options)


def test_starts_and_temperatures_are_its_own():
    algorithm = smc(NORMAL, log_density, num_particles=8, chain_length=2)
    with pytest.raises(InputError, match="leave the position out"):
        algorithm.init(random.key(0), 0.0, Y)
    state = algorithm.init(random.key(0), None, Y)
    with pytest.raises(InputError, match="temperatures of their own"):
        algorithm.step(random.key(0), state, Y, 0.5)


# ---- bits --------------------------------------------------------------------------------------


@pytest.mark.long
def test_bits_have_the_evidence_and_the_posterior_by_enumeration(enumerated):
    """Factors are exchanged between particles too."""
    log_m, log_prior = enumerated
    density = known_density()
    collapsed = collapsed_ormachine(density, summed="usage", moves=("xor", "rebirth"))
    start = lambda key, position, data: State(draw_whole_prior(key, density, data))  # noqa: E731
    move = exchange_move(density, collapsed=True, summed="usage")
    algorithm = smc(
        collapsed._replace(init=start), log_marginal(density, summed="usage"),
        num_particles=128, chain_length=4, ess=0.8, population_move=move,
    )  # fmt: skip
    states = runs(algorithm, DATA, 100)
    exact = logsumexp(log_m + log_prior)
    mean, error = ratio(states, exact)
    assert error < 0.03 and abs(mean - 1.0) < 4 * error
    bits = unpack_last_axis(states.particles.position["basis"], COLUMNS)
    numbers = jnp.sum(
        jnp.swapaxes(bits, -1, -2).reshape(*bits.shape[:-2], -1) << jnp.arange(COLUMNS * RANK), -1
    )
    shares = (np.asarray(numbers)[..., None] == np.arange(len(every(COLUMNS)))).mean((1, 2))
    expected = np.exp(log_m + log_prior - exact)
    often = expected > 5e-3
    scores = (shares.mean(0) - expected)[often] / (shares.std(0, ddof=1)[often] / 10)
    assert often.sum() > 10 and np.abs(scores).max() < 4.2 and (scores**2).mean() < 2


@pytest.mark.long
def test_learned_rates_and_densities_have_the_evidence_by_enumeration():
    """One factor: bits are summed, densities integrated analytically, the rate by quadrature."""
    rng = np.random.default_rng(1)
    values = (rng.random((4, 3)) < 0.6).astype(float)
    values[0, 0] = np.nan
    seen, total = ~np.isnan(values), []
    usages, bases = (every_bits(n) for n in (4, 3))
    for u in usages:
        for v in bases:
            wrong = int((np.outer(u, v) != values)[seen].sum())
            right = int(seen.sum()) - wrong
            likelihood = quad(lambda f, w=wrong, r=right: 2 * f**w * (1 - f) ** r, 0, 0.5)[0]
            log_prior = sum(betaln(1 + b.sum(), 1 + len(b) - b.sum()) for b in (u, v))
            total.append(np.log(likelihood) + log_prior)
    model = functools.partial(bmfjax.models.ormachine, rank=1, num_rates=1)
    bound = OrMachineSMC(model, num_particles=128, chain_length=4).bind(BinaryMatrix(values))
    states = runs(bound.algorithm, bound.data, 100)
    mean, error = ratio(states, logsumexp(total))
    assert error < 0.05 and abs(mean - 1.0) < 4 * error


def every_bits(size):
    return (np.arange(2**size)[:, None] >> np.arange(size)) & 1


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (8.0, 1.5)])
def test_rates_are_drawn_from_their_truncated_prior(a, b, apart):
    """Also of numbers for each of two rates, as the model has them."""
    prior = FlipRatePrior(2, *(np.full(2, c) if apart else c for c in (a, b)))
    drawn = np.asarray(jax.vmap(lambda k: prior_rate(k, prior))(random.split(random.key(0), 4000)))
    mass = quad(lambda f: f ** (a - 1) * (1 - f) ** (b - 1), 0, 0.5)[0]
    for power in (1, 2):
        mean = quad(lambda f, p=power: f ** (a - 1 + p) * (1 - f) ** (b - 1), 0, 0.5)[0] / mass
        each = drawn.ravel() ** power
        assert abs(each.mean() - mean) < 4 * each.std() / np.sqrt(each.size)
