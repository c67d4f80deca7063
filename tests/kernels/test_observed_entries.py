"""Lists of observed entries, by row and by column."""

import numpy as np
import pytest

from bmfjax.data import InputError
from bmfjax.kernels.variants.observed_entries import line_sums, num_chunks, observed_entries


@pytest.mark.parametrize("fill", [None, 3])
def test_the_lists_hold_every_entry_once_on_either_side(fill):
    r = np.random.default_rng(0)
    seen = r.random((90, 50)) < 0.3
    seen[7] = False
    values = r.integers(0, 2, seen.shape)
    rows, columns = r.permutation(np.argwhere(seen)).T
    chunks = fill and (num_chunks(rows) + fill, num_chunks(columns) + fill)
    data = observed_entries(rows, columns, values[rows, columns], seen.shape, chunks=chunks)
    signs = np.where(seen, 2.0 * values - 1.0, 0.0)
    for lists, dense in ((data.by_row, signs), (data.by_column, signs.T)):
        found = np.zeros(dense.shape)
        line = np.broadcast_to(np.asarray(lists.line)[:, None], lists.other.shape)
        np.add.at(found, (line, np.asarray(lists.other)), np.asarray(lists.sign))
        np.testing.assert_array_equal(found, dense)
        np.testing.assert_array_equal(line_sums(lists, lists.sign), dense.sum(1))
        assert np.all(np.diff(lists.line) >= 0)
        assert int(lists.count.sum()) == seen.sum() == int((lists.sign != 0).sum())
    if fill:
        assert len(data.by_row.line) == chunks[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], [0, 1], [0, 1]), "rows are float64"),
        (([0, 1], [0.5, 1], [0, 1]), "columns are float64"),
        (([0, -1], [0, 1], [0, 1]), r"rows\[1\] is -1"),
        (([0, 1], [0, 3], [0, 1], (2, 3)), r"columns\[1\] is 3; give indices from 0 to 2"),
        (([0, 1], [0, 1], [0, 2]), r"values\[1\] is 2"),
        (([0, 1], [0, 1], [0, np.nan]), r"values\[1\] is nan"),
        (([0, 1, 0], [0, 1, 0], [0, 1, 1]), "row 0, column 0 is given twice, again at 2"),
        (([], [], []), "no observed entries"),
        (([0, 1], [0], [1]), "same length"),
    ],
)
def test_bad_entries_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        observed_entries(*arguments)


def test_too_few_chunks_are_refused():
    with pytest.raises(InputError, match="chunks is 1 and the entries fill 2"):
        observed_entries([0, 1], [0, 1], [0, 1], chunks=(1, 2))
