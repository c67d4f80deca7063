"""Climbing with a factor matrix summed out: the function that is climbed, its steps, its jumps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.infer.ascent_start import _together, _without_low
from bmfjax.kernels.boolean import ascent
from tests.kernels.exactness import fast_jit

RANK = 3
#: One program, not one per operation.
step = fast_jit(ascent.step, static_argnums=3)


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    found = (rng.random((40, 7)) < 0.4).astype(float)
    found[rng.random(found.shape) < 0.15] = np.nan
    return found


@pytest.fixture(scope="module")
def lines(values):
    return ascent.distinct_lines(values)


def member(seed, num_rates):
    rng = np.random.default_rng(seed)
    rates = [0.3, 0.12] if num_rates == 2 else [0.3, 0.3]
    return ascent.Member(
        jnp.asarray(rng.random((7, RANK)) < 0.5, jnp.float32),
        *(jnp.asarray(rng.uniform(0.2, 0.6, RANK), jnp.float32) for _ in range(2)),
        jnp.asarray(rates, jnp.float32),
        jnp.float32(-jnp.inf),
    )


def log_chances(values, m):
    """Log p(line, state) by the definition, (lines, states), and the states."""
    states = np.array(list(itertools.product([0, 1], repeat=RANK)))[:, ::-1]
    vectors, share, (f0, f1) = (np.asarray(a, float) for a in (m.vectors, m.share, m.rates))
    table = np.zeros((len(values), len(states)))
    for i, s in itertools.product(range(len(values)), range(len(states))):
        table[i, s] = np.log(np.where(states[s], share, 1 - share)).sum()
        for j, x in enumerate(values[i]):
            if not np.isnan(x):
                one = 1 - f1 if (states[s] * vectors[j]).any() else f0
                table[i, s] += np.log(one if x else 1 - one)
    return table, states


@pytest.mark.parametrize("num_rates", [1, 2])
def test_what_is_climbed_is_the_posterior_with_bits_summed_out(values, lines, num_rates):
    m = member(1, num_rates)
    table, _ = log_chances(values, m)
    expected = np.logaddexp.reduce(table, axis=1).sum()
    vectors, density = np.asarray(m.vectors), np.asarray(m.density, float)
    expected += np.log(np.where(vectors, density, 1 - density)).sum()
    for rate in (m.density, m.share, m.rates):
        expected += np.log(np.asarray(rate, float) * (1 - np.asarray(rate, float))).sum()
    found = step(lines, m, 1.0, num_rates).value
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_step_gives_every_line_its_best_pattern(values, lines):
    m = member(2, 2)._replace(density=jnp.asarray([1e-4, 0.5, 1 - 1e-4], jnp.float32))
    table, states = log_chances(values, m)
    weights = np.exp(table - np.logaddexp.reduce(table, axis=1, keepdims=True))
    density, (f0, f1) = np.asarray(m.density, float), np.asarray(m.rates, float)
    best = []
    for x in values.T:
        scores = []
        for pattern in states:
            one = np.where((states * pattern).any(1), 1 - f1, f0)
            seen = ~np.isnan(x)
            entry = np.where(x[seen, None] == 1, np.log(one), np.log1p(-one))
            prior = np.log(np.where(pattern, density, 1 - density)).sum()
            scores.append((weights[seen] * entry).sum() + prior)
        best.append(states[np.argmax(scores)])
    np.testing.assert_array_equal(step(lines, m, 1.0, 2).vectors, best)


@pytest.mark.parametrize("num_rates", [1, 2])
def test_a_step_ends_where_densities_and_rates_are_best_given_the_weights(values, lines, num_rates):
    m = member(4, num_rates)
    table, states = log_chances(values, m)
    weights = jnp.asarray(np.exp(table - np.logaddexp.reduce(table, axis=1, keepdims=True)))
    end = step(lines, m, 1.0, num_rates)
    covers = states @ np.asarray(end.vectors).T > 0  # (states, columns)
    ones, zeros = (jnp.asarray(values == v, jnp.float32) for v in (1, 0))

    def expected(density, share, rates):
        f0, f1 = rates if num_rates == 2 else (rates[0], rates[0])
        of_one = jnp.where(covers, jnp.log1p(-f1), jnp.log(f0))
        of_zero = jnp.where(covers, jnp.log(f1), jnp.log1p(-f0))
        total = jnp.sum(weights * (ones @ of_one.T + zeros @ of_zero.T))
        total += jnp.sum(weights @ (states * jnp.log(share) + (1 - states) * jnp.log1p(-share)))
        total += jnp.sum(end.vectors * jnp.log(density) + (1 - end.vectors) * jnp.log1p(-density))
        priors = density, share, jnp.stack([f0, f1])
        return total + sum(jnp.sum(jnp.log(q) + jnp.log1p(-q)) for q in priors)

    at = end.density, end.share, end.rates[:num_rates]
    assert float(end.rates.max()) < 0.5  # inside, where the best rate is stationary
    for slope in fast_jit(jax.grad(expected, argnums=(0, 1, 2)))(*at):
        np.testing.assert_allclose(slope, 0.0, atol=5e-3)


@pytest.mark.parametrize("num_rates", [1, 2])
def test_no_step_goes_down(lines, num_rates):
    for seed in range(5):
        m, heights = member(seed, num_rates), []
        for _ in range(15):
            m = step(lines, m, 1.0, num_rates)
            heights.append(float(m.value))
        assert np.diff(heights).min() > -1e-3  # rounding of sums near 250
        assert heights[-1] > heights[0] + 1.0


def test_bits_are_drawn_from_their_conditional(values):
    m, line = member(3, 2), values[:1]
    table, states = log_chances(line, m)
    exact = np.exp(table[0] - np.logaddexp.reduce(table[0]))
    ones, zeros = (jnp.asarray(line[0] == v, jnp.float32) for v in (1, 0))
    draw = jax.jit(jax.vmap(lambda k: ascent.draw_bits(k, ones, zeros, m)))
    drawn = np.asarray(draw(random.split(random.key(0), 4000)))
    seen = [(drawn == (s == 1)).all(1).mean() for s in states]
    assert np.abs(seen - exact).max() < 4 * np.sqrt(0.25 / 4000)


def test_members_that_lack_factors_end_as_high_as_the_one_that_has_all():
    truth = np.kron(np.eye(3), np.ones((9, 4)))
    lines = ascent.distinct_lines(truth)
    blocks = np.kron(np.eye(3), np.ones((4, 1)))
    found = ascent.Member(
        jnp.asarray(np.stack([blocks, blocks * [1, 1, 0], blocks * [1, 0, 0]]), jnp.float32),
        *[jnp.full((3, 3), 0.3)] * 2, jnp.full((3, 2), 0.05), jnp.full(3, -jnp.inf),
    )  # fmt: skip
    ends = _together(random.key(0), found, lines, 2)
    for vectors in np.asarray(ends.vectors):
        assert {tuple(v) for v in vectors.T} == {tuple(v) for v in blocks.T}
    np.testing.assert_allclose(ends.value, ends.value[0], rtol=1e-4)


def test_a_member_far_below_the_highest_begins_again_from_there():
    heights = jnp.array([-104.0, -100.0, -115.0, -103.0])
    found = ascent.Member(*[jnp.arange(4.0)] * 4, heights)
    left = _without_low(found)
    np.testing.assert_array_equal(left.value, [-104.0, -100.0, -100.0, -103.0])
    np.testing.assert_array_equal(left.vectors, [0.0, 1.0, 1.0, 3.0])


def test_vectors_of_others_are_proposed_as_they_are():
    rng = np.random.default_rng(0)
    target = np.arange(12) < 8
    values = np.zeros((60, 12))
    values[:30, :8] = rng.random((30, 8)) < 0.7  # no line, and no two lines, have it whole
    lines = ascent.distinct_lines(values)
    rates = jnp.full(2, 0.1)
    alone = ascent.Member(
        jnp.zeros((12, 1)), jnp.full(1, 0.5), jnp.full(1, 0.3), rates, jnp.float32(-1e6)
    )

    @jax.jit
    def highest(others):
        """F at the best proposal: a climb of one step tells where it began."""
        keys = random.split(random.key(1), 100)
        found = jax.vmap(lambda k: ascent.jump(k, lines, alone, others, jnp.ones(1), 2))(keys)
        return found.value.max()

    with_it = alone._replace(vectors=jnp.asarray(target[:, None], jnp.float32))
    at_target = step(lines, with_it, 1.0, 2).value
    np.testing.assert_allclose(
        highest(jnp.asarray(target[None], jnp.float32)), at_target, rtol=1e-5
    )
    assert highest(jnp.zeros((1, 12))) < at_target - 1.0


def test_equal_lines_are_merged_and_what_is_missing_is_neither_one_nor_zero():
    values = np.array([[1, 0, np.nan], [1, 0, 1], [1, 0, np.nan], [0, 0, 0]])
    lines = ascent.distinct_lines(values)
    assert sorted(lines.count.tolist()) == [1.0, 1.0, 2.0]
    twice = int(np.argmax(lines.count))
    assert lines.ones[twice].tolist() == [1, 0, 0] and lines.zeros[twice].tolist() == [0, 1, 0]
