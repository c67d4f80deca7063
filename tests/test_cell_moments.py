"""Streamed predictions of cells are those of the draws themselves."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr

from benchmarks.calibration.cell_moments import cell_fits, cell_moments, expected_value

ROWS, COLUMNS = np.array([0, 2, 2, 1]), np.array([1, 0, 1, 1])


def draws(number=6):
    rng = np.random.default_rng(0)
    shapes = {
        "usage": (3, 2), "basis": (2, 2), "row_effect": (3,), "column_effect": (2,),
        "intercept": (), "cutpoints": (3,),
    }  # fmt: skip
    made = [{n: rng.normal(size=s) for n, s in shapes.items()} for _ in range(number)]
    return [
        {n: jnp.asarray(np.sort(v) if n == "cutpoints" else v) for n, v in d.items()} for d in made
    ]


def whole(draw):
    table = draw["usage"] @ draw["basis"].T
    return np.asarray(
        draw["intercept"] + draw["row_effect"][:, None] + draw["column_effect"] + table
    )


def test_fits_are_those_of_the_whole_table():
    draw = draws(1)[0]
    np.testing.assert_allclose(
        cell_fits(draw, ROWS, COLUMNS), whole(draw)[ROWS, COLUMNS], rtol=1e-5
    )
    factors = {n: draw[n] for n in ("usage", "basis")}
    expected = np.asarray(draw["usage"] @ draw["basis"].T)[ROWS, COLUMNS]
    np.testing.assert_allclose(cell_fits(factors, ROWS, COLUMNS), expected, rtol=1e-5)


@pytest.mark.parametrize("link", ["identity", "probit", "ordered"])
def test_moments_are_those_of_all_draws(link):
    stars = (1.0, 2.0, 4.0, 5.0)
    reducer = cell_moments(ROWS, COLUMNS, expected_value(link, stars))
    made = draws()
    carry = reducer.init(made[0])
    for draw in made:
        carry = reducer.update(carry, draw)
    values = []
    for draw in made:
        fits = whole(draw)[ROWS, COLUMNS]
        if link == "probit":
            fits = np.asarray(ndtr(fits))
        if link == "ordered":
            below = np.asarray(ndtr(draw["cutpoints"] - fits[:, None]))
            ends = np.concatenate([np.zeros((4, 1)), below, np.ones((4, 1))], axis=1)
            fits = np.diff(ends) @ np.array(stars)
        values.append(fits)
    found = reducer.value(carry)
    np.testing.assert_allclose(found["mean"], np.mean(values, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["variance"], np.var(values, 0, ddof=1), rtol=1e-3, atol=1e-5)
