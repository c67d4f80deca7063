"""Ladders of temperatures, trips along them, and rates of swaps."""

import numpy as np

from bmfjax.kernels.ladders import geometric_ladder, round_trips, swap_rates
from bmfjax.kernels.tempering import parallel_tempering
from tests.infer.targets import (
    metropolis,
    two_modes,
)

# ---- ladders, trips, rates ---------------------------------------------------------------------


def test_the_ladder_has_equal_ratios_and_its_ends_exactly():
    for lowest, number in ((0.01, 7), (0.3, 2)):
        ladder = geometric_ladder(lowest, number)
        assert (len(ladder), ladder[0], ladder[-1]) == (number, 1.0, lowest)
        np.testing.assert_allclose(np.diff(np.log(ladder)), np.log(lowest) / (number - 1))
        parallel_tempering(metropolis(), two_modes, ladder)


def trips_one_by_one(replica):
    """The definition, walked through step by step."""
    count = 0
    last = replica.shape[1] - 1
    for r in range(replica.shape[1]):
        stage = "new"
        for at in np.argmax(replica == r, axis=1):
            if at == 0:
                count += stage == "hot"
                stage = "cold"
            elif at == last and stage == "cold":
                stage = "hot"
    return count


def test_round_trips():
    def trips(*rows):
        return round_trips(np.array([rows])).tolist()

    assert trips([0, 1, 2]) == [0]
    assert trips([0, 1, 2], [1, 0, 2], [1, 2, 0]) == [0], "there only"
    assert trips([0, 1, 2], [1, 0, 2], [0, 1, 2]) == [0], "not as far as the hot end"
    # 0 and 2 change places twice: replica 2 began hot and was not cold before.
    assert trips([0, 1, 2], [2, 1, 0], [0, 1, 2]) == [1]
    assert trips([0, 1, 2], [2, 1, 0], [0, 1, 2], [2, 1, 0]) == [2]
    assert trips([0], [0], [0]) == [0]
    assert round_trips(np.zeros((2, 0, 3), int)).tolist() == [0, 0]

    rng = np.random.default_rng(4)
    replica = rng.permuted(np.broadcast_to(np.arange(4), (3, 200, 4)), axis=2)
    expected = [trips_one_by_one(chain) for chain in replica]
    assert min(expected) > 20 and len(set(expected)) > 1
    assert round_trips(replica).tolist() == expected


def test_swap_rates_ignore_what_was_not_proposed():
    nan = np.nan
    p = [[[0.2, nan, nan], [0.4, 1.0, nan]], [[nan, 0.0, nan], [0.5, 0.5, nan]]]
    np.testing.assert_allclose(swap_rates(p), [[0.3, 1.0, nan], [0.5, 0.25, nan]])
    assert swap_rates(np.float32(p)).dtype == np.float64
    assert np.isnan(swap_rates(np.zeros((1, 0, 2)))).all()
