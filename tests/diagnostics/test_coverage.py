"""Distances up to order and scale by brute force, covers by enumeration, and known solutions."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data import InputError
from bmfjax.diagnostics import coverage, covering_number, integrated_time, pairwise_distances

#: Laurberg's matrix at a = 1/2 and the change of basis to its other solution (equation 7).
LAURBERG = np.array([[0.5, 1, 1, 0.5, 0, 0], [1, 0.5, 0, 0, 0.5, 1], [0, 0, 0.5, 1, 1, 0.5]]).T
CHANGE = np.array([[-1, 2, 2], [2, -1, 2], [2, 2, -1]]) / 3


def by_brute_force(one, other, metric):
    norm = 1 if metric == "l1" else 2
    one, other = (f / np.linalg.norm(f, norm, axis=0) for f in (one, other))
    best = None
    for order in itertools.permutations(range(one.shape[1])):
        if metric == "l1":
            each = np.abs(one - other[:, order]).sum(0)
        else:
            each = np.degrees(np.arccos(np.clip((one * other[:, order]).sum(0), -1, 1)))
        if best is None or each.mean() < best.mean():
            best = each
    return best.mean() if metric == "l1" else best.max()


@pytest.mark.parametrize("metric", ["angle", "l1"])
@pytest.mark.parametrize("rank", [1, 3, 4, 5, 6])
def test_distances_are_those_over_all_orders(rank, metric):
    rng = np.random.default_rng(rank)
    draws, others = rng.exponential(size=(4, 7, rank)), rng.exponential(size=(3, 7, rank))
    draws[0] = 0.9 * others[0] + 0.1 * draws[0]
    found = pairwise_distances(draws, others, metric)
    expected = [[by_brute_force(a, b, metric) for b in others] for a in draws]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    alone = pairwise_distances(draws, metric=metric)
    np.testing.assert_allclose(alone, pairwise_distances(draws, draws, metric), atol=1e-5)


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(0, 2**31), st.sampled_from(["angle", "l1"]))
def test_order_and_scale_do_not_matter(rank, seed, metric):
    rng = np.random.default_rng(seed)
    draws = rng.exponential(size=(5, 8, rank))
    moved = np.stack([d[:, rng.permutation(rank)] * rng.exponential(size=rank) for d in draws])
    found = pairwise_distances(draws, moved, metric)
    np.testing.assert_allclose(np.diagonal(found), 0.0, atol=1e-5)
    np.testing.assert_allclose(found, pairwise_distances(draws, metric=metric), atol=1e-5)


def test_signs_of_real_factors_mean_nothing_to_lines():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(6, 7, 3))
    turned = draws * rng.choice([-1, 1], size=(6, 1, 3))
    found = pairwise_distances(draws, turned, "line")
    np.testing.assert_allclose(np.diagonal(found), 0.0, atol=1e-5)
    assert found.max() <= 90 and pairwise_distances(draws, turned).max() > 100


def test_l1_distances_obey_the_triangle_inequality():
    draws = np.random.default_rng(0).exponential(size=(12, 6, 4))
    d = pairwise_distances(draws, metric="l1")
    assert (d[:, None] <= d[:, :, None] + d[None] + 1e-12).all()


def test_laurbergs_two_solutions_are_as_far_apart_as_is_published():
    """Table 3: 36.97 degrees and .67 with noise."""
    solutions = np.stack([LAURBERG, LAURBERG @ CHANGE])
    assert pairwise_distances(solutions)[0, 1] == pytest.approx(np.degrees(np.arccos(0.8)))
    assert pairwise_distances(solutions, metric="l1")[0, 1] == pytest.approx(2 / 3)


def test_blocks_do_not_matter(monkeypatch):
    draws = np.random.default_rng(0).exponential(size=(23, 5, 3))
    whole = pairwise_distances(draws)
    monkeypatch.setattr(sys.modules["bmfjax.diagnostics.coverage"], "BLOCK", 23 * 9 * 4)
    np.testing.assert_allclose(pairwise_distances(draws), whole, atol=1e-12)


def test_columns_of_zeros_and_equal_draws_have_a_value():
    zero = np.array([[0.0, 1.0], [0.0, 0.0]])
    other = np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(pairwise_distances(np.stack([zero, zero, other]))[0], [0, 0, 90])
    found = pairwise_distances(np.stack([zero, zero, other]), metric="l1")[0]
    np.testing.assert_allclose(found, [0, 0, 0.5])
    # Nearly equal draws are not lost in rounding.
    near = other + np.array([[1e-6, 0.0], [0.0, 0.0]])
    assert pairwise_distances(np.stack([other, near]))[0, 1] == pytest.approx(
        np.degrees(1e-6), rel=0.05
    )


@settings(max_examples=30)
@given(st.integers(1, 7), st.integers(0, 2**31), st.floats(0.0, 1.5))
def test_covers_are_covers_and_hardly_too_large(number, seed, radius):
    points = np.random.default_rng(seed).random((number, 2))
    d = np.linalg.norm(points[:, None] - points[None], axis=-1)

    def covers(chosen):
        return (d[list(chosen)].min(0) <= radius).all()

    sizes = range(1, number + 1)
    smallest = next(k for k in sizes if any(map(covers, itertools.combinations(range(number), k))))
    found = covering_number(d, radius)
    assert smallest <= found <= np.ceil(smallest * (1 + np.log(number)))
    assert covering_number(d, radius, exact=True) == smallest
    fewest = coverage(d, 5, exact=True)
    assert fewest.covering.tolist() == [covering_number(d, r, exact=True) for r in fewest.radii]


def test_two_modes_persist():
    rng = np.random.default_rng(0)
    solutions = np.stack([LAURBERG, LAURBERG @ CHANGE])
    draws = solutions[rng.integers(0, 2, 60)] + 0.01 * rng.random((60, 6, 3))
    found = coverage(pairwise_distances(draws))
    assert found.largest == pytest.approx(36.9, abs=0.8)
    assert found.persistence(2) > 0.9
    assert found.covering[0] == 60 and found.covering[-1] == 1
    assert (np.diff(found.covering) <= 0).all()
    alone = coverage(pairwise_distances(draws[:1]))
    assert (alone.largest, alone.mean, alone.persistence(1)) == (0.0, 0.0, 1.0)
    assert (alone.covering == 1).all()


def test_autocorrelation_time_of_an_autoregression():
    """(1 + rho) / (1 - rho); constants have none; a single chain will do."""
    rng = np.random.default_rng(0)
    rho, noise = np.array([0.0, 0.5, 0.9]), rng.normal(size=(4, 20_000, 3))
    x = noise.copy()
    for t in range(1, x.shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    np.testing.assert_allclose(integrated_time(x), (1 + rho) / (1 - rho), rtol=0.1)
    assert integrated_time(x[:1, :, 1]) == pytest.approx(3.0, rel=0.15)
    assert np.isnan(integrated_time(np.ones((2, 50))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pairwise_distances(np.ones((2, 3))), r"draws are \(2, 3\)"),
        (lambda: pairwise_distances(np.ones((0, 3, 2))), "one draw at least"),
        (lambda: pairwise_distances(np.full((2, 3, 2), np.nan)), "not finite"),
        (lambda: pairwise_distances(np.ones((2, 3, 2)), np.ones((2, 4, 2))), "one shape"),
        (lambda: pairwise_distances(np.ones((2, 3, 2)), metric="l2"), "metric is 'l2'"),
        (lambda: coverage(np.ones((2, 3))), "all pairs of draws"),
        (lambda: coverage(np.zeros((2, 2)), 0), "number of radii is 0"),
        (lambda: integrated_time(np.ones((1, 3))), "four draws at least"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
