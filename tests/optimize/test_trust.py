"""The bound on the density of tiles holds, by enumeration of all matrices and by simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from bmfjax.data.errors import InputError
from bmfjax.optimize import density_bound, tile_density_bound

SIDE, NOISE = 3, 0.2


@pytest.fixture(scope="module")
def every_matrix():
    """All 3 x 3 matrices and their probabilities."""
    bits = np.array(list(itertools.product([False, True], repeat=SIDE**2)))
    weights = np.prod(np.where(bits, NOISE, 1 - NOISE), axis=1)
    return bits.reshape(-1, SIDE, SIDE), weights


@pytest.mark.parametrize("size", [(2, 2), (3, 2), (1, 3)])
def test_no_tile_of_noise_is_dense_more_often_than_bounded(size, every_matrix):
    matrices, weights = every_matrix
    most = np.zeros(len(matrices), int)
    for rows in itertools.combinations(range(SIDE), size[0]):
        for columns in itertools.combinations(range(SIDE), size[1]):
            most = np.maximum(most, matrices[:, rows][:, :, columns].sum(axis=(1, 2)))
    entries = size[0] * size[1]
    for ones in range(entries + 1):
        probability = weights[most >= ones].sum()
        bound = float(density_bound(*size, ones / entries, NOISE, (SIDE, SIDE)))
        assert probability <= math.exp(bound) + 1e-12
    # It is a bound of some use: all ones are rare, and it says so.
    assert math.exp(float(density_bound(3, 3, 1.0, NOISE, (3, 3)))) == pytest.approx(NOISE**9)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 9),
    share=st.floats(0, 1),
    noise=st.floats(0.01, 0.99),
)
def test_it_is_above_the_binomial_tail_and_below_hoeffdings(rows, columns, share, noise):
    entries = rows * columns
    ones = round(share * entries)
    density, shape = ones / entries, (12, 9)
    bound = float(density_bound(rows, columns, density, noise, shape))
    choices = math.log(math.comb(12, rows) * math.comb(9, columns))
    tail = binom.logsf(ones - 1, entries, noise) + choices
    assert bound >= min(tail, 0.0) - 1e-9
    if density > noise:
        assert bound <= min(0.0, choices - 2 * entries * (density - noise) ** 2) + 1e-9
    else:
        assert bound == 0


def test_factors_are_judged_by_what_is_observed_in_them():
    r = np.random.default_rng(0)
    data = r.random((40, 30)) < 0.05
    data[:10, :10] = r.random((10, 10)) < 0.9
    usage, basis = np.zeros((40, 3), bool), np.zeros((30, 3), bool)
    usage[:10, 0] = basis[:10, 0] = True  # the tile
    usage[20:24, 1] = basis[20:22, 1] = True  # noise; the third factor is empty
    logs = tile_density_bound(usage, basis, data, 0.05)
    assert logs[0] < -50 and logs[1] == 0 and logs[2] == 0
    observed = np.ones(data.shape, bool)
    observed[:10, :5] = False
    hidden = np.where(observed, data, 7)
    fewer = tile_density_bound(usage, basis, hidden, 0.05, observed)
    density = data[:10, 5:10].mean()
    assert fewer[0] == pytest.approx(float(density_bound(10, 10, density, 0.05, (40, 30), 50)))


def test_refusals():
    with pytest.raises(InputError, match="noise is 0"):
        density_bound(2, 2, 0.5, 0.0, (3, 3))
    with pytest.raises(InputError, match="does not fit"):
        density_bound(4, 2, 0.5, 0.1, (3, 3))
