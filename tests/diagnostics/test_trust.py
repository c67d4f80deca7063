"""Selection at a false discovery rate, and the bound on the tiles of noise."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from bmfjax.data import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.diagnostics import boolean_product, density_bound, noise_rates, select_tiles

# ---- selection ---------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 20), max_size=7).map(lambda n: np.array(n) / 20),
    st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5]),
)
def test_it_selects_as_many_as_any_set_within_the_level(p, level):
    kept = select_tiles(p, level)
    sets = [np.array(s, bool) for s in itertools.product([0, 1], repeat=len(p))]
    within = [s for s in sets if not s.any() or np.mean(1 - p[s]) <= level + 1e-9]
    assert any((kept == s).all() for s in within)
    most = max(int(s.sum()) for s in within)
    assert kept.sum() == most
    # Among sets of that size none is expected to be better.
    assert p[kept].sum() >= max(p[s].sum() for s in within if s.sum() == most) - 1e-9


def test_the_order_of_the_tiles_does_not_matter():
    p = np.array([0.2, 0.97, 0.88, 1.0, 0.5])
    order = np.array([3, 0, 4, 1, 2])
    np.testing.assert_array_equal(select_tiles(p[order], 0.1), select_tiles(p, 0.1)[order])


@pytest.mark.parametrize("level", [0, 1, -0.1, np.nan, "0.05", True, None])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises(InputError, match="between 0 and 1"):
        select_tiles([0.5], level)


def test_what_is_no_probability_is_refused():
    with pytest.raises(InputError, match="outside"):
        select_tiles([0.5, np.nan])


# ---- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["chernoff", "hoeffding"])
def test_it_is_above_the_probability_of_one_tile_and_of_some_tile(tail):
    """Of one tile alone by the binomial tail; of all 2 x 2 tiles of 4 x 4 by all matrices."""
    p, n = 0.2, 4
    weights, best = np.zeros(2**16), np.zeros(2**16, int)
    bits = (np.arange(2**16)[:, None] >> np.arange(16)) & 1
    matrices = bits.reshape(-1, n, n)
    for rows in itertools.combinations(range(n), 2):
        for columns in itertools.combinations(range(n), 2):
            best = np.maximum(best, matrices[:, rows][:, :, columns].sum((1, 2)))
    weights = p ** bits.sum(1) * (1 - p) ** (16 - bits.sum(1))
    for ones in (1, 2, 3, 4):
        bound = density_bound([2], [2], [ones], [4], shape=(n, n), noise=p, tail=tail)[0]
        assert bound >= weights[best >= ones].sum()
        alone = density_bound([2], [2], [ones], [4], shape=(2, 2), noise=p, tail=tail)[0]
        assert alone >= binom.sf(ones - 1, 4, p)


@given(st.integers(0, 30), st.floats(0, 1))
def test_the_published_tail_is_never_smaller(ones, noise):
    counts = {"shape": (60, 40), "noise": noise}
    tight, published = (
        density_bound([6], [5], [ones], [30], tail=t, **counts)[0]
        for t in ("chernoff", "hoeffding")
    )
    assert 0 <= tight <= published * (1 + 1e-9) <= 1 + 1e-9


def test_empty_and_thin_tiles_are_bounded_by_one():
    found = density_bound([0, 3, 3], [4, 3, 3], [0, 2, 0], [0, 9, 0], shape=(9, 9), noise=0.3)
    np.testing.assert_array_equal(found, 1.0)
    # Noise without ones makes no tile.
    assert density_bound([2], [2], [1], [4], shape=(9, 9), noise=0.0)[0] == 0.0


@pytest.mark.parametrize(
    "counts", [([2], [2], [5], [4]), ([2], [2], [1], [5]), ([12], [1], [1], [1])]
)
def test_counts_that_contradict_each_other_are_refused(counts):
    with pytest.raises(InputError, match="fit into 9 x 9"):
        density_bound(*counts, shape=(9, 9), noise=0.1)


def test_noise_outside_of_probabilities_is_refused():
    with pytest.raises(InputError, match="noise is"):
        density_bound([1], [1], [1], [1], shape=(9, 9), noise=1.5)


@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_noise_is_that_outside_of_the_other_tiles(hidden):
    rng = np.random.default_rng(4)
    values = (rng.random((70, 41)) < 0.3).astype(float)
    values[rng.random(values.shape) < hidden] = np.nan
    usage, basis = rng.random((70, 4)) < 0.4, rng.random((41, 4)) < 0.4
    found = noise_rates(BinaryMatrix(values), usage, basis)
    for k in range(4):
        others = np.arange(4) != k
        outside = ~boolean_product(usage[:, others], basis[:, others]) & ~np.isnan(values)
        expected = (values[outside].sum() + 0.5) / (outside.sum() + 1)
        assert found[k] == pytest.approx(expected, abs=1e-12)
