"""The polish: never more wrong entries, and a local optimum, by brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bmfjax.data import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.diagnostics import boolean_errors
from bmfjax.optimize import polish
from bmfjax.optimize.polish import _Search


def problem(seed, rows=7, columns=6, rank=3, missing=0.2):
    r = np.random.default_rng(seed)
    values, observed = r.random((rows, columns)) < 0.45, r.random((rows, columns)) >= missing
    factors = r.random((rows, rank)) < 0.4, r.random((columns, rank)) < 0.4
    return values, observed, factors


def wrong_of_every_state(mine, partner, values, observed):
    """Wrong entries of each line of one side in each of its states, (lines, 2^rank)."""
    states = np.array(list(itertools.product([False, True], repeat=mine.shape[1])))
    products = states @ partner.T
    return ((products[None] != values[:, None]) & observed[:, None]).sum(axis=2)


@settings(max_examples=40)
@example(seed=133, block=3, rank=3)  # where the last pass ends with an idle factor or line
@given(seed=st.integers(0, 10**6), block=st.integers(1, 4), rank=st.integers(1, 4))
def test_errors_never_rise_and_no_line_can_be_improved(seed, block, rank):
    values, observed, factors = problem(seed, rank=rank)
    found = polish(*factors, BinaryMatrix(values, observed), block=block, patience=1, seed=seed)
    error = boolean_errors(found.usage, found.basis, values, observed)
    assert found.error == error <= boolean_errors(*factors, values, observed)
    assert found.settled and found.usage.dtype == found.basis.dtype == bool
    assert (found.usage.any(axis=0) == found.basis.any(axis=0)).all()
    for k in np.flatnonzero(found.usage.any(axis=0)):  # no factor is idle
        others = np.arange(rank) != k
        without = found.usage[:, others], found.basis[:, others]
        assert boolean_errors(*without, values, observed) > error
    if block >= rank:
        sides = (found.usage, found.basis, values, observed), (
            found.basis, found.usage, values.T, observed.T,
        )  # fmt: skip
        for side in sides:
            assert wrong_of_every_state(*side).min(axis=1).sum() == error
    else:
        for mine, partner, ones, counted in (
            (found.usage, found.basis, values, observed),
            (found.basis, found.usage, values.T, observed.T),
        ):
            for i, k in np.ndindex(mine.shape):
                flipped = mine.copy()
                flipped[i, k] ^= True
                assert boolean_errors(flipped, partner, ones, counted) >= error


@pytest.mark.parametrize("move", ["swap", "merge", "block", "coordinate"])
def test_every_move_alone_never_raises_the_errors(move):
    values, observed, (usage, basis) = problem(3, 12, 10, 5)
    gain = np.where(values, 1.0, -1.0).astype(np.float32) * observed
    search = _Search(gain, usage, basis, 3, np.random.default_rng(0), np.inf)
    moves = {
        "swap": lambda n: search.attempt([n % 5]),
        "merge": lambda n: search.attempt([n % 5, search.partner(n % 5)]),
        "block": lambda n: search.lines([n % 5, (n + 1) % 5], ("usage", "basis")[n % 2]),
        "coordinate": lambda n: search.coordinates(),
    }
    errors = []
    for n in range(12):
        factors = search.usage > 0, search.basis > 0
        errors.append(boolean_errors(*factors, values, observed))
        assert errors[-1] == (values & observed).sum() - search.value()
        np.testing.assert_array_equal(search.covers, search.usage @ search.basis.T)
        moves[move](n)
    assert (np.diff(errors) <= 0).all() and errors[-1] < errors[0]


def test_a_swap_leaves_a_tile_for_a_larger_one():
    # No line of the small tile gains anything alone by moving to the large one.
    truth = np.zeros((14, 14), bool)
    truth[:4, :4] = truth[5:13, 5:13] = True
    usage, basis = np.zeros((14, 1), bool), np.zeros((14, 1), bool)
    usage[:4] = basis[:4] = True
    assert polish(usage, basis, BinaryMatrix(truth)).error == 16


def test_a_merge_frees_a_factor_for_a_tile_that_no_swap_reaches():
    # Two factors share one tile, each with a column of its own, and another tile has none. With
    # one factor taken out its half (6 x 13) gains more than the other tile, so that a swap puts it
    # back; the merge loses the columns of their own, 12 entries, and gains 25.
    truth = np.zeros((20, 20), bool)
    truth[:12, :12] = truth[:6, 12] = truth[6:12, 13] = truth[14:19, 14:19] = True
    usage, basis = np.zeros((20, 2), bool), np.zeros((20, 2), bool)
    usage[:6, 0] = usage[6:12, 1] = basis[:12] = basis[12, 0] = basis[13, 1] = True
    assert boolean_errors(usage, basis, truth) == 25
    assert polish(usage, basis, BinaryMatrix(truth), block=1).error == 12


def test_it_settles_where_no_line_gains_and_nothing_is_idle():
    for seed in range(5):
        values, observed, (usage, basis) = problem(seed)
        gain = np.where(values, 1.0, -1.0).astype(np.float32) * observed
        search = _Search(gain, usage, basis, 4, np.random.default_rng(seed), np.inf)
        search.settle()
        usage, basis = search.usage > 0, search.basis > 0
        error = boolean_errors(usage, basis, values, observed)
        assert (usage.any(axis=0) == basis.any(axis=0)).all()
        for side in ((usage, basis, values, observed), (basis, usage, values.T, observed.T)):
            assert wrong_of_every_state(*side).min(axis=1).sum() == error


def test_tiny_matrices_are_factorised_as_well_as_possible():
    masks = np.array(list(itertools.product([False, True], repeat=4)))
    for seed in range(6):
        values = np.random.default_rng(seed).random((6, 4)) < 0.5
        least = min(  # every basis of two columns, with the best usage of each row
            wrong_of_every_state(np.zeros((6, 2), bool), np.stack(pair, 1), values, values | True)
            .min(axis=1)
            .sum()
            for pair in itertools.combinations(masks, 2)
        )
        nothing = np.zeros((6, 2), bool), np.zeros((4, 2), bool)
        found = polish(*nothing, BinaryMatrix(values), perturbations=20)
        assert found.error == least


def test_the_seed_decides_and_time_ends_it():
    values, observed, factors = problem(1, 30, 20, 6)
    data = BinaryMatrix(values, observed)
    one, other = (polish(*factors, data, seed=4) for _ in range(2))
    assert (one.usage == other.usage).all() and (one.basis == other.basis).all()
    cut = polish(*factors, data, perturbations=10**6, max_time=0.05)
    assert not cut.settled and cut.error <= boolean_errors(*factors, values, observed)


def test_no_factor_at_all_is_a_factorisation():
    values, observed, _ = problem(0)
    found = polish(np.zeros((7, 0), bool), np.zeros((6, 0), bool), BinaryMatrix(values, observed))
    assert found.error == (values & observed).sum() and found.usage.shape == (7, 0)


@pytest.mark.parametrize("options", [{"block": 13}, {"patience": 0}, {"max_time": 0.0}])
def test_refusals(options):
    values, observed, (usage, basis) = problem(0)
    data = BinaryMatrix(values, observed)
    with pytest.raises(InputError):
        polish(usage, basis, data, **options)
    with pytest.raises(InputError, match="not Boolean"):
        polish(usage.astype(float), basis, data)
    with pytest.raises(InputError, match="shape"):
        polish(usage[1:], basis, data)
