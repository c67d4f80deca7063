"""How far apart the draws of a fit are: one number and one curve."""

import numpy as np
import pytest

from bmfjax.posterior.packed import PackedDraws
from bmfjax.verdict import MAX_LINES, farther_spread, spread

ONE, OTHER = np.eye(6)[:, :3], np.eye(6)[:, [0, 1, 5]]


def chains(*bases, draws=40):
    return np.stack([np.stack([b] * draws) for b in bases])


def test_the_same_factors_in_any_order_are_one_solution():
    found = spread(chains(ONE, ONE[:, ::-1], 2.5 * ONE))
    assert found.largest == pytest.approx(0.0, abs=1e-5)


def test_chains_in_two_modes_are_two_solutions():
    found = spread(chains(ONE, ONE, OTHER, OTHER))
    assert found.largest == pytest.approx(90.0)
    assert found.mean == pytest.approx(45.0)
    assert found.persistence(2) > 0.95
    assert len(found.radii) == len(found.covering) == 100


def test_few_draws_of_a_few_lines_speak_for_all():
    """All chains are heard, and both ends of them; of long columns some lines."""
    draws = np.repeat(chains(ONE, draws=1000), 400, axis=2)
    draws[0, -1] = np.repeat(OTHER, 400, axis=0)
    assert draws.shape[2] > MAX_LINES
    assert spread(draws).largest == pytest.approx(90.0, abs=1e-3)
    assert spread(draws, num_draws=1).largest == 0.0


def test_packed_draws_are_the_same():
    bits = np.random.default_rng(0).random((2, 30, 40, 3)) < 0.4
    assert spread(PackedDraws.pack(bits)).largest == spread(bits).largest


def test_of_two_factor_matrices_the_one_whose_draws_are_farther_apart_speaks():
    same = np.ones((2, 1, 3, 1))
    other = np.array([[[[1.0], [0.0]]], [[[0.0], [1.0]]]])
    assert farther_spread(other, same).largest == farther_spread(same, other).largest == 90.0
