"""The OrMachine with effects is exact: its density, its bits by enumeration.

And its lists of entries: sums, packed words beyond one, and what is refused.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import lax, random
from numpyro import handlers
from numpyro.infer.util import log_density

from bmfjax.data import InputError
from bmfjax.kernels.variants.effect_moves import move_effects, move_levels
from bmfjax.kernels.variants.effects import (
    EffectsPrior,
    draw_bits,
    entry_logits,
    entry_signs,
    log_likelihood,
    log_prior,
    ormachine_effects,
    random_position,
)
from bmfjax.kernels.variants.observed_entries import observed_entries
from bmfjax.models.ormachine_effects import ormachine_effects as model
from tests.kernels.exactness import fast_jit

PRIOR = EffectsPrior((4.0, 3.0), 0.7, 1.5, (2.0, 3.0))
MODEL_PRIOR = {
    "effect_precision": PRIOR.precision,
    "intercept_sd": PRIOR.intercept_sd,
    "dispersion_rate": PRIOR.dispersion_rate,
    "density": PRIOR.density,
}
SHAPE, RANK = (4, 3), 2
SEEN = np.ones(SHAPE, bool)
SEEN[[1, 3, 3], [1, 0, 1]] = False
ROWS, COLUMNS = np.nonzero(SEEN)
VALUES = np.random.default_rng(0).integers(0, 2, len(ROWS))


@functools.partial(jax.jit, static_argnames=("rank", "effects"))
def draw_joint(key, rank=RANK, effects=True):
    """A position and values of the entries, from the NumPyro model."""
    seeded = handlers.seed(model, key)
    trace = handlers.trace(seeded).get_trace(
        ROWS, COLUMNS, shape=SHAPE, rank=rank, effects=effects, **MODEL_PRIOR
    )
    position = {n: site["value"] for n, site in trace.items() if site["type"] == "sample"}
    return position, position.pop("data")


@functools.partial(jax.jit, static_argnums=(1, 2))
def model_log_density(position, rank=RANK, effects=True):
    options = {"shape": SHAPE, "rank": rank, "effects": effects, **MODEL_PRIOR}
    return log_density(model, (ROWS, COLUMNS, VALUES), options, position)[0]


@functools.partial(fast_jit, static_argnums=1)
def a_start(key, rank):
    return random_position(key, SHAPE, rank, True)


signs = fast_jit(entry_signs, static_argnums=0)


@fast_jit
def kernel_log_joint(position, data):
    return log_likelihood(position, data) + log_prior(position, PRIOR)


@pytest.mark.parametrize(("rank", "effects"), [(2, True), (3, False), (0, True)])
def test_the_log_joint_is_that_of_the_model(rank, effects):
    data = observed_entries(ROWS, COLUMNS, VALUES, SHAPE)
    for seed in range(3):
        position, _ = draw_joint(random.key(seed), rank, effects)
        found = kernel_log_joint(position, data)
        expected = model_log_density(position, rank, effects)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.long
def test_the_log_joint_of_a_step_is_that_of_its_draw():
    data = observed_entries(ROWS, COLUMNS, VALUES, SHAPE)
    algorithm = ormachine_effects(RANK, prior=PRIOR)
    state = algorithm.init(random.key(0), None, data)
    step = fast_jit(algorithm.step)
    for key in random.split(random.key(1), 5):
        state, info = step(key, state, data)
        observed = algorithm.observe(state, info)
        np.testing.assert_allclose(
            observed["log_joint"], model_log_density(state.position), rtol=1e-4
        )
    logits = entry_logits(state.position, ROWS, COLUMNS)
    likelihood = jax.nn.log_sigmoid((2 * VALUES - 1) * logits).sum()
    np.testing.assert_allclose(observed["log_likelihood"], likelihood, rtol=1e-5)


# ---- bits --------------------------------------------------------------------------------------


def position_for_bits():
    """Factors that overlap, a dispersion that matters, effects of different lines."""
    position, _ = draw_joint(random.key(4))
    return position | {
        "usage": jnp.array([[1, 0], [1, 1], [0, 1], [1, 1]]),
        "basis": jnp.array([[1, 1], [1, 0], [0, 1]]),
        "usage_density": jnp.array([0.4, 0.6]),
        "basis_density": jnp.array([0.6, 0.5]),
        "dispersion": jnp.asarray(1.0),
        "row_effect": jnp.array([0.8, -0.5, 0.3, -1.0]),
    }


@functools.cache
def conditional(side):
    """All values of two lines' bits and their probabilities given everything else."""
    factor, lines = ("usage", (0, 3)) if side == "row" else ("basis", (0, 1))
    position = position_for_bits()
    cases = np.array(list(itertools.product((0, 1), repeat=2 * RANK)))

    def at(bits):
        whole = position[factor].at[jnp.array(lines)].set(bits.reshape(2, RANK))
        return model_log_density(position | {factor: whole})

    logs = np.asarray(fast_jit(jax.vmap(at))(cases), float)
    weights = np.exp(logs - logs.max())
    return factor, lines, cases, weights / weights.sum()


def bits_after_a_sweep(side, inverse_temperature, size=20_000):
    """Counts of the cases after one sweep that starts at draws from the conditional."""
    factor, lines, cases, weights = conditional(side)
    data = observed_entries(ROWS, COLUMNS, VALUES, SHAPE)
    start = np.random.default_rng(1).choice(len(cases), size, p=weights)

    @fast_jit
    def run(keys, bits):
        def one(key, bits):
            position = position_for_bits()
            whole = position[factor].at[jnp.array(lines)].set(bits.reshape(2, RANK))
            moved, _ = draw_bits(key, side, position | {factor: whole}, data, inverse_temperature)
            return moved[factor][jnp.array(lines)].reshape(-1)

        return jax.vmap(one)(keys, bits)

    bits = np.asarray(run(random.split(random.key(2), size), jnp.asarray(cases[start])))
    assert (bits != cases[start]).mean() > 0.1
    return np.bincount(bits @ 2 ** np.arange(2 * RANK)[::-1], minlength=len(cases)), weights * size


@pytest.mark.parametrize("side", ["row", pytest.param("column", marks=pytest.mark.long)])
def test_a_sweep_of_bits_leaves_their_enumerated_conditional(side):
    found, expected = bits_after_a_sweep(side, 1.0)
    assert expected.min() > 5
    assert scipy.stats.chisquare(found, expected).pvalue > 1e-3
    found, expected = bits_after_a_sweep(side, 2.0)
    assert scipy.stats.chisquare(found, expected).pvalue < 1e-6


def test_bits_beyond_the_first_word_have_their_conditional():
    """Densities of 0 and 1 hold all factors but the 35th, one of them a rival at column 0."""
    rank, k, rival = 36, 34, 2
    data = observed_entries(ROWS, COLUMNS, VALUES, SHAPE)
    factor = jnp.arange(rank)
    position = a_start(random.key(0), rank)
    position |= {
        "usage": jnp.zeros((4, rank), jnp.int32).at[:, rival].set(1),
        "basis": jnp.zeros((3, rank), jnp.int32).at[:, k].set(1).at[0, rival].set(1),
        "row_effect": jnp.array([0.5, -1.0, 0.0, 1.0]),
        "usage_density": jnp.where(factor == k, 0.3, jnp.where(factor == rival, 1.0, 0.0)),
    }
    half = position | {"usage_density": jnp.full(rank, 0.5)}

    def at(bits):
        return model_log_density(half | {"usage": position["usage"].at[:, k].set(bits)}, rank)

    base = at(jnp.zeros(4, bool))
    odds = np.array([at(jnp.arange(4) == i) - base for i in range(4)]) + np.log(0.3 / 0.7)

    draw = fast_jit(jax.vmap(lambda key: draw_bits(key, "row", position, data)[0]["usage"]))
    drawn = np.asarray(draw(random.split(random.key(1), 4000)))
    assert (np.delete(drawn, k, 2) == np.delete(np.asarray(position["usage"]), k, 1)).all()
    probability = np.minimum(np.exp(odds), 1.0)
    assert probability.min() < 0.3 < probability.max()
    error = np.sqrt(probability * (1.0 - probability) / len(drawn))
    assert np.all(np.abs(drawn[:, :, k].mean(0) - probability) <= 4 * error)


# ---- effects and levels ------------------------------------------------------------------------


def test_effects_come_back_from_far_out():
    """A Newton step from where the likelihood is flat would overshoot for good."""
    rows, columns = np.divmod(np.arange(2000), 20)
    lists = observed_entries(rows, columns, np.zeros(2000, int)).by_row
    offset = jnp.zeros_like(lists.sign)
    effect = jnp.full(100, 8.0)

    def step(effect, key):
        return move_effects(key, lists, effect, offset, 0.5)[0], None

    run = fast_jit(lambda keys: lax.scan(step, effect, keys)[0])
    assert run(random.split(random.key(0), 20)).max() < 1.0


@pytest.mark.parametrize("effects", [True, False])
def test_the_dispersion_stays_in_its_range_where_the_bits_contradict_the_data(effects):
    sign = jnp.where(jnp.arange(500) % 2 == 0, 1.0, -1.0)
    start = (jnp.zeros(()) if effects else None, jnp.asarray(1.0))

    def step(levels, key):
        mu, scale, accepted, _ = move_levels(
            key, sign, jnp.zeros(500), -sign, levels[0], levels[1], PRIOR
        )
        return (mu if effects else None, scale), (scale, accepted)

    run = fast_jit(lambda keys: lax.scan(step, start, keys)[1])
    scale, accepted = run(random.split(random.key(0), 300))
    assert scale.min() >= 0.0 and scale[-100:].max() < 0.5
    assert len(np.unique(scale)) > 5 and accepted.max() > 0.2


@pytest.mark.parametrize("rank", [1, 32, 33])
def test_covered_entries_are_those_of_the_boolean_product(rank):
    data = observed_entries(ROWS, COLUMNS, VALUES, SHAPE)
    position = a_start(random.key(rank), rank)
    product = np.asarray(position["usage"]) @ np.asarray(position["basis"]).T > 0
    for side, lists in (("row", data.by_row), ("column", data.by_column)):
        seen = np.asarray(lists.sign) != 0
        line = np.broadcast_to(np.asarray(lists.line)[:, None], seen.shape)
        dense = product if side == "row" else product.T
        expected = np.where(dense[line, np.asarray(lists.other)], 1.0, -1.0)
        np.testing.assert_array_equal(np.asarray(signs(side, position, data))[seen], expected[seen])


def test_a_step_promotes_no_types():
    data = observed_entries(ROWS, COLUMNS, VALUES, SHAPE)
    for rank, effects in ((2, True), (2, False), (0, True)):
        algorithm = ormachine_effects(rank, effects=effects)
        state = algorithm.init(random.key(0), None, data)
        after, info = jax.eval_shape(algorithm.step, random.key(1), state, data)
        before = jax.eval_shape(lambda s: s, state)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
            lambda x: (x.shape, x.dtype), before
        )
        assert {x.dtype for x in info} == {jnp.dtype("float32")}


def test_bad_ranks_are_refused():
    for make in (
        ormachine_effects,
        lambda rank, effects=True: draw_joint(random.key(0), rank, effects),
    ):
        with pytest.raises(InputError, match="rank is -1"):
            make(-1)
        with pytest.raises(InputError, match="rank is 0 and effects is False"):
            make(rank=0, effects=False)
