"""Starts that climb: they find the truth, from either side, and from a part of a large matrix."""

import numpy as np
import pytest
from jax import random

import bmfjax
from bmfjax.data import BinaryMatrix
from bmfjax.infer import ascent_start, ascent_starts, boolean_start
from bmfjax.infer.ascent_start import can_climb


@pytest.mark.parametrize("turned", [False, True])
def test_starts_are_closer_to_the_truth_than_the_data(turned):
    made = bmfjax.generate_product(60, 30, 3, density=0.4, flip=0.05, seed=1)
    values, clean = made.data.dense(), made.clean
    if turned:
        values, clean = values.T, clean.T
    for start in ascent_starts(random.key(0), BinaryMatrix(values), 3, 2):
        wrong = ((start["usage"] @ start["basis"].T) != clean).mean()
        assert wrong < 0.03


def test_a_large_matrix_is_represented_by_a_part(monkeypatch):
    monkeypatch.setattr(boolean_start, "MAX_ENTRIES", 60 * 30)
    monkeypatch.setattr(boolean_start, "LEAST_SIDE", 20)
    made = bmfjax.generate_product(400, 40, 2, density=0.4, flip=0.01, seed=3)
    (start,) = ascent_starts(random.key(0), made.data, 2, 1)
    rows, columns = start["usage"].any(1), start["basis"].any(1)
    assert 10 <= rows.sum() <= 100  # the chain's first sweeps find the others
    product = (start["usage"] @ start["basis"].T)[np.ix_(rows, columns)]
    assert (product != made.clean[np.ix_(rows, columns)]).mean() < 0.02


def test_climbing_is_for_few_factors():
    assert can_climb((435, 16), 10) and not can_climb((435, 16), 11)
    assert not can_climb((5000, 5000), 8)


def test_of_long_lines_fewer_are_looked_at():
    """They say more each, and steps cost as much more."""
    rng = np.random.default_rng(0)
    few = ascent_start._lines_of(rng.random((800, 700)).round(), 8, ascent_start.WORK, 2000)
    assert len(few.count) == ascent_start.ENTRIES // 700 < ascent_start.LINES[0]
    short = ascent_start._lines_of(rng.random((800, 60)).round(), 8, ascent_start.WORK, 2000)
    assert len(short.count) == 800
