"""The search for the fewest wrong entries: its starts, and that it is never worse than them."""

import itertools

import numpy as np
import pytest

from bmfjax.data import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.diagnostics import boolean_errors
from bmfjax.optimize import best_reconstruction, polish
from tests.toy import set_clock

R = np.random.default_rng(0)
VALUES, OBSERVED = R.random((7, 5)) < 0.45, R.random((7, 5)) < 0.8
DATA = BinaryMatrix(VALUES, OBSERVED)


def least(rank):
    """The fewest wrong entries of all factorisations, by the best usage for every basis."""
    masks = [np.array(m) for m in itertools.product([False, True], repeat=VALUES.shape[1])]
    found = []
    for basis in itertools.combinations(masks, rank):
        rows = [
            np.any([b for b, used in zip(basis, bits, strict=True) if used], axis=0)
            | np.zeros(VALUES.shape[1], bool)
            for bits in itertools.product([False, True], repeat=rank)
        ]
        wrong = ((np.array(rows)[None] != VALUES[:, None]) & OBSERVED[:, None]).sum(axis=2)
        found.append(wrong.min(axis=1).sum())
    return min(found)


@pytest.fixture
def looks_of_a_second(monkeypatch):
    """A clock that goes on by one second whenever it is read, on any machine."""
    seconds = itertools.count(1.0)
    set_clock(monkeypatch, lambda: next(seconds), ("optimize.best", "optimize.polish"))


@pytest.mark.usefixtures("looks_of_a_second")
@pytest.mark.parametrize("wide", [False, True])
def test_it_finds_the_optimum_of_a_tiny_matrix(wide):
    data = DATA.transpose() if wide else DATA
    found = best_reconstruction(data, 2, max_time=1000.0)
    factors = (found.basis, found.usage) if wide else (found.usage, found.basis)
    assert found.error == boolean_errors(*factors, VALUES, OBSERVED) == least(2)
    assert set(found.errors_from) == {"nothing", "rows" if wide else "columns"}
    assert sorted(map(len, found.errors_from.values())) == [1, 4]
    assert all(found.error <= error for some in found.errors_from.values() for error in some)


def test_it_ends_where_no_entry_is_wrong():
    found = best_reconstruction(DATA, 8, max_time=3600.0)  # more factors than columns
    assert found.error == 0 and found.usage.shape == (7, 8) and found.basis.shape == (5, 8)
    start = best_reconstruction(DATA, 5, max_time=3600.0)[:2]
    again = polish(*start, DATA, perturbations=10**6)
    assert again.error == 0 and again.passes <= 2


def test_it_is_never_worse_than_a_start_that_is_given():
    start = polish(*(np.zeros((n, 3), bool) for n in DATA.shape), DATA, perturbations=50)
    found = best_reconstruction(DATA, 3, max_time=1e-6, start=start)  # no time to move at all
    assert found.error <= start.error == found.errors_from["start"][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"max_time": 0.0}, "max_time"),
        ({"seed": -1}, "seed"),
        ({"data": VALUES}, "BinaryMatrix"),
        ({"start": (np.ones((7, 3), bool), np.ones((5, 3), bool))}, "rank is 2"),
        ({"start": (np.ones((6, 2), bool), np.ones((5, 2), bool))}, "shape"),
    ],
)
def test_refusals(change, words):
    with pytest.raises(InputError, match=words):
        best_reconstruction(**{"data": DATA, "rank": 2, "max_time": 0.01, **change})
