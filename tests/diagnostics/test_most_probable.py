"""The most probable Boolean factors: against enumeration, recovery, and refusals."""

import itertools

import numpy as np
import pytest
from scipy.special import betaln, logsumexp

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import boolean_product, most_probable_factors
from bmfjax.diagnostics.most_probable import log_posterior


@pytest.mark.parametrize("num_rates", [1, 2])
def test_log_posterior_is_the_joint_with_rates_and_densities_integrated_out(num_rates):
    """Against quadrature of the Bernoulli likelihoods over Jeffreys priors."""
    r = np.random.default_rng(0)
    usage, basis = r.random((5, 2)) < 0.5, r.random((4, 2)) < 0.5
    ones, observed = r.random((5, 4)) < 0.5, r.random((5, 4)) < 0.8
    angle = (np.arange(20_000) + 0.5) / 20_000 * np.pi / 2
    p = np.sin(angle) ** 2  # uniform in the angle is the Jeffreys prior of p

    def evidence(wrong, right):
        return logsumexp(wrong * np.log(p) + right * np.log1p(-p)) - np.log(len(p))

    product = boolean_product(usage, basis)
    expected, wrong = 0.0, ones != product
    for where in [product, ~product] if num_rates == 2 else [np.ones_like(product)]:
        here = observed & where
        flipped = int(wrong[here].sum())
        expected += evidence(flipped, int(here.sum()) - flipped)
    for factor in (usage, basis):
        for members in factor.sum(0):
            expected += evidence(members, len(factor) - members)
    # The Beta functions are not divided by that of the prior, one of each rate and factor's side.
    constant = (num_rates + 4) * betaln(0.5, 0.5)
    found = log_posterior(usage, basis, ones, observed, num_rates)
    assert np.isclose(found - constant, expected, atol=1e-3)


@pytest.mark.parametrize("num_rates", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_end_cannot_be_improved_by_flipping_a_bit(seed, num_rates):
    made = bmfjax.generate_tiles(48, 40, 3, noise=(0.03, 0.1), seed=seed)
    r = np.random.default_rng(seed)
    start = [f ^ (r.random(f.shape) < 0.08) for f in (made.usage > 0, made.basis > 0)]
    ones, observed = made.data.dense() > 0.5, np.ones(made.clean.shape, bool)
    found = most_probable_factors([start], ones, num_rates=num_rates)
    assert found.log_posterior > log_posterior(*start, ones, observed, num_rates)
    for i, factor in enumerate((found.usage, found.basis)):
        for line, k in np.ndindex(*factor.shape):
            flipped = [found.usage.copy(), found.basis.copy()]
            flipped[i][line, k] ^= True
            assert log_posterior(*flipped, ones, observed, num_rates) <= found.log_posterior + 1e-9


def test_of_two_equal_factors_one_is_emptied():
    ones = np.ones((6, 5), bool)
    twice = np.ones((6, 2), bool), np.ones((5, 2), bool)
    found = most_probable_factors([twice], ones)
    assert found.usage.any(0).sum() <= 1


def test_the_best_of_all_small_factors_is_found():
    ones = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]], bool).repeat(2, 0)
    observed = np.ones_like(ones)
    bits = np.array(list(itertools.product([False, True], repeat=4)))
    rows = [np.array(u).repeat(2)[:, None] for u in bits]
    scores = {
        (i, j): log_posterior(u, v[:, None], ones, observed)
        for (i, u), (j, v) in itertools.product(enumerate(rows), enumerate(bits))
    }
    starts = [(u, v[:, None]) for u, v in itertools.product(rows, bits)]
    found = most_probable_factors(starts, ones)
    assert np.isclose(found.log_posterior, max(scores.values()))
    assert found.usage[:, 0].tolist() == [True] * 6 + [False] * 2
    assert found.basis[:, 0].tolist() == [True, True, False, False]


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_noisy_tiles_are_recovered_from_a_bad_start(missing):
    made = bmfjax.generate_tiles(128, 128, 8, noise=(0.05, 0.15), seed=1)
    r = np.random.default_rng(2)
    start = [f ^ (r.random(f.shape) < 0.05) for f in (made.usage > 0, made.basis > 0)]
    observed = r.random(made.clean.shape) >= missing
    ones = (made.data.dense() > 0.5) | ~observed  # what is not observed must not matter
    before = (boolean_product(*start) != made.clean).sum()
    found = most_probable_factors([start], ones, observed)
    after = (boolean_product(found.usage, found.basis) != made.clean).sum()
    assert before > 500
    assert after < 10
    again = most_probable_factors([start], ones & observed, observed)
    np.testing.assert_array_equal(again.usage, found.usage)


def test_a_row_stays_out_of_a_small_tile_that_it_matches_by_chance():
    """Three of eight columns hit by chance: likely in one of 500 rows, unlikely in a member."""
    ones = np.zeros((500, 60), bool)
    ones[:8, :8] = True
    ones[:4, 7] = False
    ones[100, :3] = True
    ones[200:, 20:] = np.random.default_rng(0).random((300, 40)) < 0.05
    start = np.zeros((500, 1), bool), np.zeros((60, 1), bool)
    start[0][:8] = start[1][:8] = True
    found = most_probable_factors([start], ones)
    assert found.usage[:, 0].sum() == 8
    assert not found.usage[100, 0]


def test_the_best_start_wins_and_an_empty_factor_is_empty_on_both_sides():
    made = bmfjax.generate_tiles(64, 64, 4, noise=(0.02, 0.05), seed=0)
    truth = made.usage > 0, made.basis > 0
    nothing = np.zeros_like(truth[0]), np.zeros_like(truth[1])
    lone = nothing[0].copy(), nothing[1].copy()
    lone[0][:3, 2] = True
    ones = made.data.dense() > 0.5
    found = most_probable_factors([nothing, lone, truth], ones)
    assert found.log_posterior == most_probable_factors([truth], ones).log_posterior
    ended = most_probable_factors([lone], ones)
    np.testing.assert_array_equal(ended.usage.any(0), ended.basis.any(0))


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([], "no start is given"),
        ([(np.ones((3, 1)), np.ones((2, 1)))], "factors are not Boolean"),
        ([(np.ones((3, 1), bool), np.ones((4, 1), bool))], "shape"),
    ],
)
def test_bad_starts_are_refused(starts, message):
    with pytest.raises(InputError, match=message):
        most_probable_factors(starts, np.zeros((3, 2)))


def test_known_columns_stay_whatever_the_starts_have():
    ones = np.kron(np.eye(2), np.ones((6, 5)))
    usage, basis = np.repeat(np.eye(2, dtype=bool), 6, 0), np.repeat(np.eye(2, dtype=bool), 5, 0)
    known = np.c_[basis[:, 1], np.zeros(10)].astype(float)
    known[9, 0] = np.nan  # learned: a one
    known[[3, 7], 1] = 1.0  # a factor that the data do not have
    start = (usage[:, [1, 1, 0]], basis[:, [1, 1, 0]])
    start[1][[2, 9], 0] = True, False  # the first is known to be a zero
    found = most_probable_factors([start], ones, known=known)
    np.testing.assert_array_equal(found.basis[:, 0], basis[:, 1])
    np.testing.assert_array_equal(found.basis[:, 1], known[:, 1] == 1)
    np.testing.assert_array_equal(found.usage, np.c_[usage[:, 1], np.zeros(12), usage[:, 0]])
    np.testing.assert_array_equal(found.basis[:, 2], basis[:, 0])
