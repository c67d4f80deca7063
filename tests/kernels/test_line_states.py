"""Weights of all states of a line: sums and logarithms that neither cancel nor overflow."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random
from scipy.special import logsumexp
from scipy.stats import betabinom, chi2, chisquare, kstest

from bmfjax.data import BinaryMatrix
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean.collapsed import log_marginal
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity, draw_independent
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.line_states import (
    _groups,
    draw_states,
    lines_of,
    merge_lines,
    sides_of,
    sum_of_logs,
    sums_of_patterns,
)
from bmfjax.kernels.boolean.words import DistinctLines, pack_last_axis, packed_data
from tests.kernels.boolean_exactness import every
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK = 40, 5, 3


def few_kinds_of_rows():
    r = np.random.default_rng(0)
    kinds = (r.random((13, COLUMNS)) < 0.4).astype(float)
    kinds[r.random(kinds.shape) < 0.1] = np.nan
    return kinds[np.concatenate([np.arange(13), r.integers(0, 4, ROWS - 13)])]


def test_subset_sums_do_not_cancel():
    """Where covering an entry gains a factor of a million, of weights far apart."""
    r = np.random.default_rng(1)
    weights = np.exp(-15.0 * r.random((32, 6))).astype(np.float32)
    factor = np.float32([1e6, 1e-6, 1.0, 3.0, 1e12, 0.5])
    states = np.arange(32)
    meets = ((states[:, None] & states) != 0)[:, :, None]
    expected = (weights.astype(float) * np.where(meets, factor.astype(float), 1.0)).sum(1)
    found = jax.jit(sums_of_patterns)(weights, factor)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_logarithms_of_products_do_not_overflow(kind):
    with jax.enable_x64(kind is np.float64):
        count = np.array([1.0, 2.0, 5.0])
        lines = DistinctLines(None, None, None, jnp.asarray(count), None, None)
        values = np.exp(80.0 * np.random.default_rng(2).uniform(-1, 1, (4, 24))).astype(kind)
        values[2], values[3] = 1e-37, 1e38
        expected = np.log(values.astype(float)) @ np.tile(count, 8)
        found = sum_of_logs(jnp.asarray(values), lines)
        assert found.dtype == kind
        np.testing.assert_allclose(found, expected, rtol=3e-6 if kind is np.float32 else 1e-13)


def test_groups_hold_every_line_once():
    counts = np.array([1, 3, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1])
    slots, repeats = _groups(counts)
    width = len(slots) // len(repeats)
    assert width > 1 and sorted(slots[slots >= 0]) == list(range(12))
    assert (counts[slots] == np.tile(repeats, width))[slots >= 0].all()


@pytest.mark.parametrize("given", [False, True])
def test_merged_lines_weigh_what_all_lines_do(given):
    """The log marginal likelihood, in float64 by NumPy, of tiny flip rates as of large ones."""
    values, r = few_kinds_of_rows(), np.random.default_rng(3)
    odds = r.choice([np.nan, np.inf, -1.0], (ROWS, RANK)) if given else None
    data = packed_data(BinaryMatrix(values), odds)
    density = BooleanDensity((ROWS, COLUMNS), RANK, flip_rate=FlipRatePrior(2))
    sides = sides_of(density.shape, "usage")
    merged = merge_lines(data, sides)
    assert merged.distinct_rows.code.shape[1] < ROWS or given
    find = fast_jit(lambda position, d: log_marginal(density)(State(position), d))
    basis, chance = r.random((COLUMNS, RANK)) < 0.4, np.array([0.2, 0.6, 1e-6])
    states = every(1, RANK)[:, 0]
    for rates in ((0.3, 0.1), (1e-9, 1e-12)):
        position = {
            "basis": pack_last_axis(jnp.asarray(basis.T)),
            "flip_rate": jnp.asarray(rates, jnp.float32),
            "usage_density": jnp.asarray(chance, jnp.float32),
        }
        covered = states @ basis.T > 0
        log_one = np.where(covered, np.log1p(-rates[1]), np.log(rates[0]))
        log_zero = np.where(covered, np.log(rates[1]), np.log1p(-rates[0]))
        x = values[:, None, :]
        entries = np.where(np.isnan(x), 0.0, np.where(x == 1, log_one, log_zero)).sum(2)
        p = np.broadcast_to(chance, (ROWS, RANK))
        if given:
            p = np.where(np.isnan(odds), p, 1 / (1 + np.exp(-odds)))
        with np.errstate(divide="ignore"):
            prior = np.where(states[None] == 1, np.log(p)[:, None], np.log1p(-p)[:, None]).sum(2)
        expected = logsumexp(entries + prior, axis=1).sum()
        for held in (data, merged):
            np.testing.assert_allclose(find(position, held), expected, rtol=1e-6)


def test_every_line_draws_a_state_of_its_own():
    """From lines that are merged, with states that cannot be and states that are rare."""
    data = packed_data(BinaryMatrix(few_kinds_of_rows()))
    sides = sides_of((ROWS, COLUMNS), "usage")
    lines = lines_of(merge_lines(data, sides), sides)
    weights = np.random.default_rng(4).random((8, lines.code.shape[1]))
    weights[2], weights[5] = 0.0, 1e-3
    drawn = jax.jit(jax.vmap(lambda key: draw_states(key, jnp.log(weights), lines.place)))(
        random.split(random.key(0), 4000)
    )
    p = (weights / weights.sum(0))[:, lines.place]
    counts = np.stack([(np.asarray(drawn) == z).sum(0) for z in range(8)])
    assert (counts[2] == 0).all()
    seen, p = np.delete(counts, 2, 0), np.delete(p, 2, 0)
    statistic = ((seen - 4000 * p) ** 2 / (4000 * p)).sum()
    assert chi2.sf(statistic, 6 * ROWS) > 1e-3
    # Equal lines do not draw together.
    same = np.flatnonzero(np.asarray(lines.place) == lines.place[0])[:2]
    assert len(same) == 2 and (drawn[:, same[0]] != drawn[:, same[1]]).mean() > 0.5


def test_what_a_power_of_zero_draws_is_the_prior():
    """The bits, their densities and the flip rate, whatever the position was."""
    # Parameters as models give them, one for each rate.
    flip = FlipRatePrior(2, np.ones(2), np.ones(2))
    density = BooleanDensity((ROWS, COLUMNS), 2, basis=BitPrior((2.0, 3.0)), flip_rate=flip)
    data = packed_data(BinaryMatrix(few_kinds_of_rows()))
    start = {"flip_rate": jnp.full(2, 1e-3, jnp.float32)}
    draw = fast_jit(jax.vmap(lambda key: draw_independent(key, density, start, data)))
    position = draw(random.split(random.key(1), 3000))
    assert kstest(2 * np.asarray(position["flip_rate"], float).ravel(), "uniform").pvalue > 1e-3
    assert kstest(np.asarray(position["usage_density"]).ravel(), "uniform").pvalue > 1e-3
    ones = np.asarray(jax.lax.population_count(position["basis"])[:, :, 0])
    expected = betabinom.pmf(np.arange(COLUMNS + 1), COLUMNS, 2.0, 3.0) * ones.size
    assert chisquare(np.bincount(ones.ravel(), minlength=COLUMNS + 1), expected).pvalue > 1e-3
