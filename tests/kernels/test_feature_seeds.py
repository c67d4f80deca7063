"""A feature that begins anew where two columns have more in common than the others explain."""

import numpy as np
import pytest

from bmfjax.kernels.features.seeds import reseeded

ROWS, COLUMNS = 200, 12


def position_of(rng, rank=3):
    """Two features, of which the data know nothing, and a third that is absent."""
    usage = (rng.random((ROWS, rank)) < 0.5) * 1.0
    basis = 0.1 * np.ones((COLUMNS, rank))
    usage[:, -1], basis[:, -1] = 0.0, 0.0
    return {
        "usage": usage, "basis": basis, "column_effect": np.zeros(COLUMNS),
        "row_effect": np.zeros(ROWS), "presence": np.array([1.0] * (rank - 1) + [0.0]),
    }  # fmt: skip


@pytest.mark.parametrize("signed", [True, False])
def test_the_rows_that_two_columns_share_are_taken_first(signed):
    """Columns 3 and 5 are one; 7 is another's opposite, which positive weights do not take."""
    rng = np.random.default_rng(0)
    ones = rng.random((COLUMNS, ROWS)) < 0.5
    ones[5] = ones[3]
    ones[7] = ~ones[8]
    signs = np.where(ones, 1, -1).astype(np.int8)
    signs[3, :20] = 0
    position, taken = position_of(rng), []
    before = {name: values.copy() for name, values in position.items()}
    for _ in range(60):
        found = reseeded(rng, position, signs, signed=signed)
        columns = np.flatnonzero(found["basis"][:, 2])
        taken.append(tuple(columns.tolist()))
        if taken[-1] == (3, 5):
            np.testing.assert_array_equal(found["usage"][:, 2], ones[5])
            assert (found["basis"][[3, 5], 2] > 0).all()
        assert found["presence"].all()
        np.testing.assert_array_equal(found["usage"][:, :2], before["usage"][:, :2])
    assert 10 < taken.count((3, 5)) <= 60
    assert (taken.count((7, 8)) > 10) is signed
    for name, values in before.items():
        np.testing.assert_array_equal(position[name], values)


def test_known_features_stay_and_what_nothing_is_left_of_changes_nothing():
    rng = np.random.default_rng(1)
    position = position_of(rng) | {"basis": np.ones((COLUMNS, 3)), "usage": np.ones((ROWS, 3))}
    signs = np.where(rng.random((COLUMNS, ROWS)) < 0.5, 1, -1)
    for _ in range(20):
        found = reseeded(rng, position, signs, signed=True, known=1)
        assert (found["basis"][:, 0] == 1.0).all() and (found["usage"][:, 0] == 1.0).all()
        assert ((found["basis"] != 1.0).any(0)).sum() == 1
    assert reseeded(rng, position, 0 * signs, signed=True) is position
