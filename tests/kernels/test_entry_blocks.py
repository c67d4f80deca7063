"""Blocks hold every entry once, with little padding and in bounded tables."""

import numpy as np
import pytest

from bmfjax.data import InputError
from bmfjax.kernels.ratings.entries import (
    MAX_KINDS,
    MAX_WIDTH,
    best_widths,
    common_layout,
    entry_blocks,
    flat_values,
)


def triples(lists):
    """(line, other, value) of every entry that the tables hold."""
    found = set()
    for line, other, value in zip(lists.line, lists.other, lists.value, strict=True):
        line, other, value = map(np.asarray, (line, other, value))
        seen = other < int(lists.padding)
        lines = np.broadcast_to(line[..., None], other.shape)
        found |= set(zip(lines[seen], other[seen], value[seen].tolist(), strict=True))
        assert (value[~seen] == 0).all()
    return found


def heavy_tailed(rng):
    """A matrix with lines that fill several tables, and some with nothing."""
    seen = rng.random((40, 700)) < rng.beta(0.3, 0.6, (40, 1))
    seen[:3] = False
    seen[:, 5] = False
    rows, columns = np.nonzero(seen)
    return rows, columns, np.arange(1.0, len(rows) + 1.0)


def test_a_common_layout_gives_data_sets_tables_of_one_shape():
    layout = common_layout([([0, 0, 1], [0, 1, 1]), ([1], [0])], (2, 2))
    first = entry_blocks([0, 0, 1], [0, 1, 1], [1.0, 2.0, 3.0], (2, 2), layout=layout)
    second = entry_blocks([1], [0], [1.0], (2, 2), layout=layout)
    for one, other in zip(first[:2], second[:2], strict=True):
        assert [v.shape for v in one.value] == [v.shape for v in other.value]


@pytest.mark.parametrize("size", [None, 1, 16])
def test_every_entry_is_there_once(size):
    rng = np.random.default_rng(0)
    rows, columns, values = heavy_tailed(rng)
    mixed = rng.permutation(len(rows))
    data = entry_blocks(rows[mixed], columns[mixed], values[mixed], (40, 700), block_size=size)
    expected = set(zip(rows, columns, values.tolist(), strict=True))
    assert triples(data.by_row) == expected
    assert {(i, j, v) for j, i, v in triples(data.by_column)} == expected
    assert data.shape == (40, 700)
    np.testing.assert_array_equal(data.by_row.count, np.bincount(rows, minlength=40))
    flat, seen = flat_values(data.by_column)
    assert sorted(np.asarray(flat)[seen]) == sorted(values)


def test_blocks_lead_to_the_tables_of_their_lines():
    rows, columns, values = heavy_tailed(np.random.default_rng(1))
    lists = entry_blocks(rows, columns, values, (40, 700)).by_row
    size = lists.line[0].shape[1]
    for line, place in enumerate(np.asarray(lists.place)):
        block = place // size
        k, first = int(lists.kind[block]), int(lists.first[block])
        for t in range(first, first + int(lists.number[block])):
            assert int(lists.line[k][t, place % size]) == line
    assert int(lists.number.max()) > 1, "several tables a block are untried"
    assert max(o.shape[-1] for o in lists.other) == MAX_WIDTH


def test_padding_is_bounded():
    rng = np.random.default_rng(2)
    cells = rng.choice(10**6, 60_000, replace=False)
    data = entry_blocks(*np.divmod(cells, 500), np.ones(len(cells)), (2000, 500))
    for lists in (data.by_row, data.by_column):
        assert sum(o.size for o in lists.other) < 1.35 * len(cells)
        assert len(lists.other) <= MAX_KINDS


def test_widths_are_the_best_of_all_choices():
    degrees = np.array([3, 4, 9, 17, 18, 40, 41, 100])
    total = {
        k: np.take(best_widths(degrees, k), np.searchsorted(best_widths(degrees, k), degrees)).sum()
        for k in (1, 2, 3)
    }
    needed = sorted({-(-d // 4) * 4 for d in degrees})
    pairs = [(w, 100) for w in needed]
    best = min(np.take(p, np.searchsorted(p, degrees)).sum() for p in pairs)
    triple = [(v, w, 100) for v in needed for w in needed if v < w < 100]
    assert total[1] == 800 and total[2] == best
    assert total[3] == min(np.take(p, np.searchsorted(p, degrees)).sum() for p in triple)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [0, 1], [1.0]), "give three lists of one length"),
        (([], [], []), "at least one entry"),
    ],
)
def test_bad_lists_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        entry_blocks(*arguments, (2, 2))
    with pytest.raises(InputError, match="block_size is 0"):
        entry_blocks([0], [0], [1.0], (2, 2), block_size=0)
