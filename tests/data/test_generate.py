"""Generators: sizes exactly, densities and noise within their binomial errors."""

import math

import numpy as np
import pytest

from bmfjax.data import InputError, generate_product, generate_tiles, thesis_matrix


def assert_rate(flips, p):
    """The share of flips is within five standard errors of p (exact at p = 0 and 1)."""
    error = math.sqrt(p * (1 - p) / flips.size)
    assert abs(flips.mean() - p) <= 5 * error


def assert_truth(truth, rates):
    product = (truth.usage.astype(int) @ truth.basis.T.astype(int)) > 0
    np.testing.assert_array_equal(truth.clean, product)
    flips = truth.clean ^ truth.data.dense(bool)
    assert_rate(flips[~truth.clean], rates[0])
    assert_rate(flips[truth.clean], rates[1])


@pytest.mark.parametrize(("kind", "rates"), [("clean", (0.01, 0.05)), ("noisy", (0.05, 0.15))])
@pytest.mark.parametrize(
    ("tiles", "side", "ones"), [("printed", 39, (41_200, 41_700)), ("8x8", 8, (1900, 1920))]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_thesis_matrices(kind, rates, tiles, side, ones, seed):
    truth = thesis_matrix(kind, tiles=tiles, seed=seed)
    assert truth.data.shape == (512, 512) and truth.usage.shape == truth.basis.shape == (512, 30)
    for factor in (truth.usage, truth.basis):
        assert factor.dtype == bool
        assert (factor.sum(axis=0) == side).all()
        # Six rows for each factor which no other has, then the pattern alone.
        np.testing.assert_array_equal(factor[:180], np.kron(np.eye(30), np.ones((6, 1))) > 0)
    assert ones[0] <= truth.clean.sum() <= ones[1]
    assert_truth(truth, rates)


def test_block_sizes_follow_each_side_of_an_oblong_matrix():
    truth = generate_tiles(250, 90, 4, pattern_fraction=0.29, noise=(0, 0))
    # ceil(250 / 100) = 3, floor((250 - 12) 0.29) = 69; ceil(90 / 100) = 1, floor((90 - 4) 0.29)
    assert (truth.usage.sum(axis=0) == 3 + 69).all()
    assert (truth.basis.sum(axis=0) == 1 + 24).all()
    assert_truth(truth, (0, 0))


def test_the_pattern_size_is_the_floor_of_the_fraction_as_written():
    # 0.29 * 100 is 28.999999999999996 in floating point.
    truth = generate_tiles(100, 100, 1, index_size=0, pattern_fraction=0.29)
    assert truth.usage.sum() == 29


@pytest.mark.parametrize("noise", [(0.0, 1.0), (1.0, 0.0), (0.3, 0.02)])
def test_each_flip_rate_has_its_own_side(noise):
    assert_truth(generate_tiles(120, 80, 5, noise=noise, seed=3), noise)


@pytest.mark.parametrize(("rank", "density"), [(1, 0.3), (5, 0.5), (12, 0.1)])
def test_products_have_the_density_that_is_asked_for(rank, density):
    truths = [generate_product(60, 50, rank, density=density, flip=0.1, seed=s) for s in range(60)]
    p = math.sqrt(1 - (1 - density) ** (1 / rank))
    assert_rate(np.stack([t.usage for t in truths]), p)
    assert_rate(np.stack([t.basis for t in truths]), p)
    # The entries of one product depend on each other: the error is that of independent products.
    shares = np.array([t.clean.mean() for t in truths])
    assert abs(shares.mean() - density) < 5 * shares.std(ddof=1) / math.sqrt(len(shares))
    assert_truth(truths[0], (0.1, 0.1))


@pytest.mark.parametrize(("density", "ones"), [(0.0, 0), (1.0, 600)])
def test_products_at_the_ends(density, ones):
    assert generate_product(20, 30, 2, density=density).data.num_ones == ones


def test_a_seed_gives_one_matrix_and_its_arrays_are_read_only():
    prints = {generate_tiles(60, 60, 2, seed=s).data.fingerprint() for s in (0, 0, 1)}
    prints |= {generate_product(60, 60, 2, seed=s).data.fingerprint() for s in (0, 0, 1)}
    assert len(prints) == 4
    truth = generate_product(5, 4, 2)
    with pytest.raises(ValueError, match="read-only"):
        truth.clean[0, 0] = True
    with pytest.raises(AttributeError):
        truth.clean = None
    assert truth.data.name == "product 5x4 rank 2"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate_tiles(rank=0), "rank is 0; give a whole number of at least 1"),
        (lambda: generate_tiles(rows=-3), "rows is -3"),
        (lambda: generate_tiles(20, 20, 5, index_size=6), "need 30 rows and there are 20"),
        (lambda: generate_tiles(40, 20, 5, index_size=6), "need 30 columns and there are 20"),
        (lambda: generate_tiles(20, 20, 2, index_size=5, pattern_size=11), "leave 10 rows"),
        (lambda: generate_tiles(pattern_size=-1), "pattern_size is -1"),
        (lambda: generate_tiles(pattern_fraction=1.5), "pattern_fraction is 1.5"),
        (lambda: generate_tiles(pattern_fraction=0.2, pattern_size=3), "both given"),
        (lambda: generate_tiles(noise=(0.1, 2)), "p- of noise is 2"),
        (lambda: generate_tiles(noise=(float("nan"), 0)), "p\\+ of noise is nan"),
        (lambda: generate_tiles(noise=0.1), "two probabilities"),
        (lambda: generate_tiles(seed=-1), "seed is -1"),
        (lambda: generate_product(5, 5, 1, density=-0.1), "density is -0.1"),
        (lambda: generate_product(5, 5, 1, flip=1.1), "flip is 1.1"),
        (lambda: thesis_matrix("dirty"), "kind is 'dirty'; choose from clean, noisy"),
        (
            lambda: thesis_matrix("clean", tiles="9x9"),
            "tiles is '9x9'; choose from printed, 8x8",
        ),
    ],
)
def test_bad_parameters_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("argument", [{"rows": 5.0}, {"rank": True}, {"seed": None}])
def test_numbers_of_a_wrong_kind_are_refused(argument):
    with pytest.raises(InputError, match="give a whole number"):
        generate_tiles(**argument)
