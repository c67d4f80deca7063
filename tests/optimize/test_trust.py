"""Which tiles are trusted: none of noise, the planted ones, and by the published bound."""

import numpy as np
import pytest

from bmfjax.data import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.diagnostics import density_bound, noise_rates
from bmfjax.optimize import polish, trusted

LEVEL = 0.05


def noisy(shape, density, seed):
    return np.random.default_rng(seed).random(shape) < density


def polished(ones, rank, seed):
    nothing = (np.zeros((size, rank), bool) for size in ones.shape)
    return polish(*nothing, BinaryMatrix(ones), patience=1, seed=seed)


def overlap(a, b):
    """Jaccard index of the entries of each tile of one pair of factors and each of another."""
    (u, v), (s, t) = ((f.astype(float) for f in pair) for pair in (a, b))
    both = (u.T @ s) * (v.T @ t)
    sizes = (u.sum(0) * v.sum(0))[:, None] + s.sum(0) * t.sum(0)
    return both / (sizes - both)


def test_noise_alone_leaves_a_tile_in_at_most_the_level_of_runs():
    runs = [
        trusted(polished(noisy((24, 16), p, seed), 3, seed), BinaryMatrix(noisy((24, 16), p, seed)))
        for p in (0.05, 0.2, 0.45)
        for seed in range(20)
    ]
    assert np.mean([run.kept.any() for run in runs]) <= LEVEL
    # The polish found tiles in all of them, denser than their noise.
    assert all(len(run.kept) == 3 and (run.noise < 0.55).all() for run in runs)


def test_planted_tiles_are_kept_and_of_what_is_kept_at_most_the_level_is_false():
    usage, basis = np.zeros((40, 3), bool), np.zeros((30, 3), bool)
    for k, (rows, columns) in enumerate(((12, 8), (8, 12), (10, 10))):
        usage[12 * k : 12 * k + rows, k] = basis[10 * k : 10 * k + columns, k] = True
    inside = usage.astype(int) @ basis.T.astype(int) > 0
    kept = false = hit = given = 0
    for seed in range(12):
        flips = np.random.default_rng(seed).random(inside.shape) < 0.1
        ones = (inside & ~flips) | noisy(inside.shape, 0.15, 100 + seed)
        found = trusted(polished(ones, 6, seed), BinaryMatrix(ones), LEVEL)
        assert found.usage.shape[1] == found.basis.shape[1] == found.kept.sum()
        share = overlap((found.usage, found.basis), (usage, basis))
        # False is a tile of which most is noise.
        of_noise = [
            (~inside)[np.ix_(*f)].mean() for f in zip(found.usage.T, found.basis.T, strict=True)
        ]
        kept, false = kept + len(share), false + (np.array(of_noise) > 0.5).sum()
        hit, given = hit + (share.max(axis=0) >= 0.5).sum(), given + len(found.kept)
    assert false <= LEVEL * kept and hit >= 35 and given == 72


def test_the_bound_is_that_of_the_tiles_that_remain():
    """The ones of a tile that is left out are noise for the others."""
    ones = noisy((30, 20), 0.1, 1)
    ones[:10, :8] = True
    observed = ~noisy((30, 20), 0.1, 2)
    usage, basis = np.zeros((30, 3), bool), np.zeros((20, 3), bool)
    usage[:10, 0] = basis[:8, 0] = usage[20:23, 1] = basis[15:17, 1] = True
    ones[20:23, 15:17] = True  # six ones, which noise has somewhere; the third tile is empty
    data = BinaryMatrix(ones, observed)
    found = trusted((usage, basis), data)
    assert found.kept.tolist() == [True, False, False] and found.bound[2] == 1
    alone = usage[:, :1], basis[:, :1]
    counts = data.tile_counts(*alone)
    for noise, given in ((noise_rates(data, *alone), None), (0.3, 0.3)):
        bound = density_bound([10], [8], *counts, shape=(30, 20), noise=noise)
        again = trusted((usage, basis), data, noise=given)
        assert again.bound[0] == pytest.approx(bound[0], rel=1e-9)
        np.testing.assert_allclose(again.noise[0], noise)
    assert noise_rates(data, *alone)[0] > noise_rates(data, usage, basis)[0]


def test_a_tile_answers_for_what_it_adds():
    """A tile with more of the noise around it is as dense, and is no second one."""
    ones = noisy((30, 20), 0.1, 3)
    ones[:10, :8] = True
    usage, basis = np.zeros((30, 2), bool), np.zeros((20, 2), bool)
    usage[:10], basis[:8] = True, True
    basis[8:10, 1] = True
    data = BinaryMatrix(ones)
    found = trusted((usage, basis), data)
    assert found.kept.tolist() == [True, False]
    counts = ones[:10, 8:10].sum(), 20
    alone = density_bound([10], [10], *counts, shape=(30, 20), noise=found.noise[1])
    assert found.bound[1] == alone[0]
    # By all its entries it would pass.
    full = density_bound([10], [10], ones[:10, :10].sum(), 100, shape=(30, 20), noise=0.15)
    assert full[0] < LEVEL


def test_nothing_found_leaves_nothing():
    found = trusted((np.zeros((4, 0), bool), np.zeros((3, 0), bool)), BinaryMatrix(np.eye(4, 3)))
    assert found.usage.shape == (4, 0) and found.kept.shape == found.bound.shape == (0,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fdr": 1.0}, "fdr is 1.0"),
        ({"noise": 1.5}, "noise is"),
        ({"data": np.eye(4, 3)}, "BinaryMatrix"),
        ({"data": BinaryMatrix(np.eye(4, 4))}, "in which they were found"),
        ({"tiling": (np.ones((4, 1)), np.ones((3, 1)))}, "not Boolean"),
        ({"tiling": (np.ones((4, 1), bool), np.ones((3, 2), bool))}, "usage has shape"),
    ],
)
def test_refusals(change, words):
    given = {"tiling": (np.ones((4, 1), bool), np.ones((3, 1), bool))}
    with pytest.raises(InputError, match=words):
        trusted(**{**given, "data": BinaryMatrix(np.eye(4, 3)), **change})
