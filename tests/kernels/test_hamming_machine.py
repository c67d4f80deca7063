"""The Hamming machine is exact: enumeration of a line, the model's own density."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax import random

from bmfjax.data import InputError
from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.boolean import words as packed_lines
from bmfjax.kernels.boolean.bits import update_bits
from bmfjax.kernels.boolean.density import BitPrior
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from bmfjax.kernels.variants import hamming as kernel
from bmfjax.kernels.variants.hamming import (
    DispersionPrior,
    HammingDensity,
    hamming_data,
    hamming_machine,
)
from bmfjax.kernels.variants.scores import ScoreWeights, score_basis, score_usage
from bmfjax.models.hamming_machine import hamming_machine as hamming_model
from tests.kernels.boolean_exactness import as_position, as_sites
from tests.kernels.exactness import fast_jit, model_log_joint, pearson_p_value

# ---- one line ----------------------------------------------------------------------------------

SHAPE, RANK, KEYS, DISPERSION = (19, 37), 3, 1500, 0.4
STATES = np.array(list(itertools.product([0, 1], repeat=RANK)))


def score(usage, basis, values):
    """Votes for the value of every entry less votes against."""
    return (2 * values - 1) * (usage @ (2 * basis - 1).T)


def problem(missing):
    r = np.random.default_rng(3)
    values = (r.random(SHAPE) < 0.5).astype(float)
    if missing:
        values[r.random(SHAPE) < 0.3] = np.nan
    usage, basis = ((r.random((n, RANK)) < 0.5).astype(int) for n in SHAPE)
    return values, usage, basis, r.normal(size=(2, max(SHAPE), RANK))


def log_density(site, values, usage, basis, line, log_odds):
    """Log density (state,) of the bits of one line.

    The line is a row of the usage, or a column's bits of all codes.
    """
    table = values[line] if site == "usage" else values[:, line]
    seen, found = ~np.isnan(table), []
    for state in STATES:
        votes = (2 * basis - 1) @ state if site == "usage" else usage @ (2 * state - 1)
        t = ((2 * table - 1) * votes)[seen]
        found.append(-np.logaddexp(0.0, -DISPERSION * t).sum())
    return np.array(found) + STATES @ log_odds


def law(log_p):
    """Transition matrix of a pass over the bits of a line."""
    total = np.eye(len(STATES))
    for k in range(RANK):
        step = np.zeros((len(STATES), len(STATES)))
        for s, state in enumerate(STATES):
            other = s ^ (1 << (RANK - 1 - k))
            step[s, other] = np.exp(min(0.0, log_p[other] - log_p[s]))
            step[s, s] = 1.0 - step[s, other]
            assert state[k] != STATES[other][k]
        total = total @ step
    return total


@functools.cache
def draws_of(site, missing):
    values, usage, basis, odds = problem(missing)
    bits, other = (usage, basis) if site == "usage" else (basis, usage)
    odds = odds[0, : len(bits)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_lines, "BLOCK_WORDS", 12)
        data = hamming_data(BinaryMatrix(values))
    lines = data.by_row if site == "usage" else data.by_column
    assert lines.ones.shape[0] > 1
    g = ScoreWeights(jax.nn.log_sigmoid(DISPERSION * jnp.arange(-RANK, RANK + 1.0)))
    update = score_usage if site == "usage" else score_basis

    @fast_jit
    def run(keys, words, partner, lines, odds):
        def one(key):
            return update_bits(key, words, partner, lines, len(bits), odds, g, update)

        return jax.lax.map(one, keys, batch_size=100)

    packed = (pack_last_axis(jnp.asarray(b.T == 1)) for b in (bits, other))
    keys = random.split(random.key(1), KEYS)
    words, counts = run(keys, *packed, lines, jnp.asarray(odds.T, jnp.float32))
    drawn = np.asarray(unpack_last_axis(words, len(bits))).transpose(0, 2, 1).astype(int)
    return values, usage, basis, odds, drawn, np.asarray(counts).sum(1)


def p_value(site, missing, factor=1.0):
    values, usage, basis, odds, drawn, _ = draws_of(site, missing)
    start = (usage if site == "usage" else basis) @ [4, 2, 1]
    found = drawn @ [4, 2, 1]

    def table(line):
        log_p = log_density(site, values, usage, basis, line, factor * odds[line])
        return np.bincount(found[:, line], minlength=8), KEYS * law(log_p)[start[line]]

    return pearson_p_value(map(table, range(found.shape[1])))


@pytest.mark.parametrize(("site", "missing"), [("usage", False), ("usage", True), ("basis", True)])
def test_a_pass_has_the_law_of_its_conditionals(site, missing):
    assert p_value(site, missing) > 1e-3
    assert p_value(site, missing, factor=1.2) < 1e-6  # a fault shows
    values, usage, basis, _, drawn, counts = draws_of(site, missing)
    for bits, count in zip(drawn[:5], counts[:5], strict=True):
        t = score(bits, basis, values) if site == "usage" else score(usage, bits, values)
        np.testing.assert_array_equal(count, [(t == c).sum() for c in range(-RANK, RANK + 1)])


# ---- the dispersion ----------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1.0, 0.2])
def test_the_dispersion_is_drawn_from_its_conditional(power):
    counts, scores = np.array([3, 6, 9, 14, 20]), np.arange(-2, 3)
    edges = np.linspace(0.0, 12.0, 6001)
    x = 0.5 * (edges[1:] + edges[:-1])
    log_p = power * (-np.logaddexp(0.0, -x[:, None] * scores) @ counts) - x
    cumulative = np.concatenate([[0.0], np.cumsum(scipy.special.softmax(log_p))])
    start = np.interp(np.random.default_rng(0).random(4000), cumulative, edges)

    @fast_jit
    def run(keys, start):
        def one(key, x):
            return kernel._draw_dispersion(key, x, jnp.asarray(counts), DispersionPrior(), power)

        for _ in range(2):
            keys, start = jax.vmap(lambda k: random.fold_in(k, 1))(keys), jax.vmap(one)(keys, start)
        return start

    drawn = np.asarray(run(random.split(random.key(0), 4000), jnp.asarray(start, jnp.float32)))
    assert (drawn != np.float32(start)).all()
    assert scipy.stats.kstest(np.interp(drawn, edges, cumulative), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(np.interp(1.1 * drawn, edges, cumulative), "uniform").pvalue < 1e-3


# ---- the model's own density -------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True])
def test_the_log_joint_is_that_of_the_model(fixed):
    values, usage, basis, _ = problem(True)
    options, density, odds = {}, HammingDensity(SHAPE, RANK), {}
    if fixed:
        p = np.random.default_rng(0).random((SHAPE[0], RANK))
        p[0], p[1] = (0.0, 1.0, 0.5), (1.0, 0.0, 0.5)
        options = {"dispersion": 0.7, "usage": p, "basis": 0.3}
        dispersion = DispersionPrior(value=0.7)
        density = HammingDensity(SHAPE, RANK, BitPrior(None), BitPrior(None, 0.3), dispersion)
        odds = {"usage_log_odds": scipy.special.logit(p)}
    data, algorithm = hamming_data(BinaryMatrix(values), **odds), hamming_machine(density)
    start = {n: jnp.full(RANK, 0.4) for n in ("usage_density", "basis_density")}
    start |= {"usage": usage, "basis": basis, "dispersion": jnp.float32(0.7)}

    @fast_jit
    def run(key, position, data):
        state, info = algorithm.step(key, algorithm.init(None, position, data), data)
        return state, info, kernel.log_likelihood(density)(state, data)

    with jax.debug_nans(True):
        state, info, again = run(random.key(0), as_position(start), data)
    sites = as_sites(state.position, SHAPE)
    model = functools.partial(hamming_model, rank=RANK, **options)
    expected = model_log_joint(model, values, sites)
    np.testing.assert_allclose(info.log_joint, expected, rtol=1e-5)
    np.testing.assert_allclose(again, info.log_likelihood, rtol=1e-5)
    t = score(np.asarray(sites["usage"]), np.asarray(sites["basis"]), values)
    assert info.errors == (t < 0).sum() and info.undecided == (t == 0).sum()
    if fixed:
        assert (np.asarray(sites["usage"])[:2, :2] == p[:2, :2]).all()
        assert state.position["dispersion"] == jnp.float32(0.7)


# ---- structure ---------------------------------------------------------------------------------


def test_the_sampler_stays_in_float32():
    values, *_ = problem(True)
    data, algorithm = hamming_data(BinaryMatrix(values)), hamming_machine(HammingDensity(SHAPE, 2))

    def run(data):
        return algorithm.step(random.key(0), algorithm.init(random.key(1), None, data), data)

    with jax.numpy_dtype_promotion("strict"):
        kinds = {x.dtype.name for x in jax.tree.leaves(jax.eval_shape(run, data))}
    assert kinds == {"float32", "uint32", "int32"}


def test_data_that_do_not_say_what_is_observed_are_refused():
    data = packed_data(BinaryMatrix(problem(False)[0]))
    algorithm = hamming_machine(HammingDensity(SHAPE, 1))
    with pytest.raises(InputError, match="make them by hamming_data"):
        jax.eval_shape(
            lambda d: algorithm.step(random.key(0), algorithm.init(random.key(0), None, d), d), data
        )
