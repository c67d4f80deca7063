"""Ratings: what they keep, and what they refuse in a sentence."""

import pickle
from datetime import date

import numpy as np
import pandas as pd
import pytest

from bmfjax.data import InputError, Ratings, latest


def some(**options):
    given = {"rows": [2, 0, 0], "columns": [1, 3, 0], "values": [4.0, 2.0, 5.0]} | options
    return Ratings(**given)


def test_triples_are_kept_in_one_order_with_what_is_empty():
    ratings = some(shape=(4, 5), scale=(1, 5), name="stars")
    assert ratings.shape == (4, 5) and ratings.num_missing == 17 and ratings.range == (2.0, 5.0)
    assert ratings.rows.tolist() == [0, 0, 2] and ratings.columns.tolist() == [0, 3, 1]
    assert ratings.empty_rows.tolist() == [1, 3] and ratings.empty_columns.tolist() == [2, 4]
    assert ratings.fingerprint() == some(shape=(4, 5), scale=(1, 5)).fingerprint()
    assert ratings.fingerprint() != some(shape=(4, 6), scale=(1, 5)).fingerprint()
    table = ratings.dense()
    assert table[2, 1] == 4 and np.isnan(table).sum() == 17
    np.testing.assert_array_equal(ratings.T.dense(), table.T)
    assert ratings.sparse().nnz == 3
    with pytest.raises(ValueError, match="read-only"):
        ratings.values[0] = 1


def test_names_are_taken_as_they_come_or_looked_up():
    ratings = Ratings(["b", "a", "b"], ["x", "x", "y"], [1, 2, 3])
    assert ratings.row_names == ("b", "a") and ratings.has_column_names
    again = Ratings(["b", "a", "b"], ["x", "x", "y"], [1, 2, 3], row_names=["a", "b", "c"])
    assert again.rows.tolist() == [0, 1, 1] and again.empty_rows.tolist() == [2]
    counted = Ratings([1, 0], [0, 0], [1, 2], row_names=["a", "b", "c"])
    assert counted.row_names == ("a", "b", "c") and not counted.has_column_names
    assert Ratings([0, 1], [0, 0], [1, 2]).row_names == ("row 1", "row 2")


def test_a_copy_is_the_same():
    ratings = some(scale=(0, 5), row_names=["a", "b", "c"], row_labels=["x", None, "y"])
    again = pickle.loads(pickle.dumps(ratings))
    assert again.fingerprint() == ratings.fingerprint() and again.row_labels == ("x", "", "y")


def test_a_table_of_three_columns_is_read():
    frame = pd.DataFrame({"user": [7, 9, 7], "film": ["f", "f", "g"], "stars": [1, 2, 3], "t": 0})
    ratings = Ratings.from_frame(frame, scale=(1, 5))
    assert ratings.row_names == ("7", "9") and ratings.values.tolist() == [1, 3, 2]
    films = list(reversed(ratings.column_names))
    assert Ratings.from_frame(frame, column_names=films).column_names == tuple(films)
    with pytest.raises(InputError, match="2 columns; give three"):
        Ratings.from_frame(frame.iloc[:, :2])
    with pytest.raises(InputError, match="line 2 has no row"):
        Ratings.from_frame(frame.assign(user=[7, None, 9]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": [0.0, 1.0, 1.0]}, "row ids are floating-point numbers"),
        ({"columns": [0, 1.5, 1]}, "column ids are floating-point .*1.5"),
        ({"rows": [True, False, True]}, "row ids are bool"),
        ({"rows": [0, 1]}, "rows has shape \\(2,\\) and there are 3 ratings"),
        ({"rows": [0, 0, -1]}, r"rows\[2\] is -1"),
        ({"shape": (2, 4)}, r"rows\[0\] is 2; give positions from 0 to 1, or a larger shape"),
        ({"row_names": ["a", "b"]}, "one for each of the row names"),
        ({"rows": ["a", "b", "z"], "row_names": ["a", "b"]}, "'z' is not among the row names"),
        ({"rows": ["a", "b", "c"], "shape": (4, 4)}, "shape has 4 rows, and 3 are named; give row"),
        ({"rows": [0, 0, 0], "columns": [1, 1, 0]}, "row 1, column 2 .* is rated twice, 4 and 2"),
        ({"values": [4, 2, np.nan]}, "row 1 .*, column 1 .* is missing; leave out"),
        ({"values": [4, 2, np.inf]}, "row 1 .*, column 1 .* is too large"),
        ({"values": ["a", 2, 3]}, "not all numbers"),
        ({"rows": [], "columns": [], "values": []}, "there are no ratings"),
        ({"scale": (1, 4)}, "the rating 5 at row 1 .*, column 1 .* outside the scale from 1 to 4"),
        ({"scale": (5, 1)}, "give the lower number first"),
        ({"scale": 5}, "give the lowest and the highest"),
    ],
)
def test_bad_ratings_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        some(**options)


def test_the_latest_ratings_are_told_by_time_of_all_or_of_each_user():
    times = [5, 1, 2, 2, 9, 8]
    assert latest(times, 0.4).nonzero()[0].tolist() == [4, 5]
    # Of equal times all or none.
    assert latest(times, 0.7).nonzero()[0].tolist() == [0, 4, 5]
    users = ["ann", "ann", "ann", "bob", "bob", "cid"]
    assert latest(times, 0.5, users=users).nonzero()[0].tolist() == [0, 4]
    dates = ["2024-03-01", "2023-12-31", "2024-02-01"]
    assert latest(dates, 0.4).tolist() == [True, False, False]
    # Of two zones, and as dates.
    zones = ["2024-03-01T09:00+02:00", "2024-03-01T08:00Z", "2024-03-01T09:30:15+02:00"]
    assert latest(zones, 0.4).tolist() == [False, True, False]
    as_dates = list(map(date.fromisoformat, dates))
    assert latest(as_dates, 0.4).tolist() == [True, False, False]
    for wrong, message in (
        ({"times": ["2024-03-01", None]}, "times has none at position 1"),
        ({"times": ["2024-03-01", "soon"]}, "times has 'soon' at position 1; give dates as 2020-"),
        ({"times": ["05/01/2020", "13/03/2020"]}, "times has '05/01/2020' at position 0; .* dayf"),
        ({"times": [1, 2], "users": ["ann"]}, "there are 2 times and 1 users"),
        ({"times": [1, 2], "share": 1}, "share is 1; give a share of the ratings"),
    ):
        with pytest.raises(InputError, match=message):
            latest(**wrong)
