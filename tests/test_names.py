"""Names that users gave come back: of rows, columns and factors, in tables and on disk."""

import re
import types

import numpy as np
import pandas as pd
import pytest
import xarray

import bmfjax
from bmfjax.families.base import in_columns_of
from bmfjax.families.ratings import _matrix
from bmfjax.result.tables import _shares_of_ones, names_of_rows
from tests.shared_fits import davis
from tests.test_cells import data_of, fit_of


@pytest.fixture(scope="module")
def named():
    return davis().rename({1: "the elder"})


def test_tables_have_the_names_of_the_data_and_of_the_factors(named):
    data, factors = named.data, ["the elder", "factor 2"]
    for of, names in (("usage", data.row_names), ("basis_sd", data.column_names)):
        table = named.to_frame(of)
        assert (table.index.tolist(), table.columns.tolist()) == (list(names), factors)
        np.testing.assert_array_equal(table, getattr(named, of))
    assert set(named.to_frame()["factor"]) == set(factors)
    some = named.probability([2, 0], [1], frame=True)
    assert some.index.tolist() == [data.row_names[2], data.row_names[0]]
    np.testing.assert_array_equal(some, named.probability([2, 0], [1]))
    assert named.probability(frame=True).shape == data.shape
    ends = named.predict([0], [1], "interval", frame=True)
    assert ends.columns.tolist() == [(end, data.column_names[1]) for end in ("lower", "upper")]
    assert ends.columns.names == [None, None]
    with pytest.raises(bmfjax.InputError, match="of is 'wrong'"):
        named.to_frame("wrong")


def test_new_rows_of_a_frame_are_found_by_name_in_any_order(named):
    dense = named.data.dense()[:3]
    frame = pd.DataFrame(dense, ["x", "y", "z"], list(named.data.column_names))
    mixed = frame.iloc[:, ::-1]
    usage = named.transform(mixed, frame=True)
    np.testing.assert_array_equal(usage, named.transform(dense))
    # Bits have the standard deviation of their probability.
    sd = named.transform(mixed, kind="sd", frame=True)
    np.testing.assert_allclose(sd, np.sqrt(usage * (1 - usage)))
    assert sd.index.equals(usage.index) and sd.columns.equals(usage.columns)
    assert usage.index.tolist() == ["x", "y", "z"]
    assert usage.columns.tolist() == ["the elder", "factor 2"]
    # A matrix is as a frame: what the fit has not is left out.
    for values in (mixed.assign(other=1), mixed.assign(other=1).astype(pd.SparseDtype(float, 0))):
        np.testing.assert_array_equal(named.transform(bmfjax.BinaryMatrix(values)), usage)
    mixed = mixed.astype(float)
    mixed.iloc[0, 0] = np.nan
    whole = named.complete(mixed, frame=True)
    assert whole.columns.tolist() == list(named.data.column_names)
    np.testing.assert_array_equal(whole, named.complete(mixed[whole.columns].to_numpy()))
    # Columns that the fit has not are left out, whatever is in them.
    more = mixed.assign(other=["p", "q", None], sum=3.5)
    np.testing.assert_array_equal(named.complete(more), whole)
    first, second, *rest = named.data.column_names
    for other, said in (
        (frame.rename(columns={first: "other"}), f"column {first!r} of the fitted matrix is not in "
         "the new rows, which have 'other' beside; give the same columns"),
        (frame.drop(columns=[first, second]), f"columns {first!r} and {second!r} of the fitted "
         "matrix are not in the new rows; give the same columns, those of which nothing is known "
         "with NaN"),
        (frame[[first]], f"columns {second!r}, {rest[0]!r}, {rest[1]!r} and {len(rest) - 2} more "
         "of the fitted matrix are not in"),
        (bmfjax.BinaryMatrix(frame.iloc[:, :0:-1]), f"column {first!r} of the fitted matrix is not "
         "in the new rows; give the same"),
    ):  # fmt: skip
        with pytest.raises(bmfjax.InputError, match=re.escape(said)):
            named.transform(other)


def test_new_rows_of_any_kind_keep_their_names():
    fit, values = fit_of("nmf"), data_of("nmf").dense()[:2]
    array = xarray.DataArray(values, {"cell": ["x", "y"]}, ("cell", "gene"))
    assert fit.transform(array, frame=True).index.tolist() == ["x", "y"]
    assert fit.transform(values, frame=True).index.tolist() == [0, 1]
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(values, pd.DataFrame(index=["x", "y"]))
    assert names_of_rows(cells) == ["x", "y"]


@pytest.mark.parametrize("names", [list("ab"), [3, 7]])
def test_the_order_of_columns_is_that_of_the_fit(names):
    frame = pd.DataFrame([[1.0, 2.0]], columns=names)
    fitted = bmfjax.RealMatrix(frame)
    pd.testing.assert_frame_equal(in_columns_of(fitted, frame.iloc[:, ::-1]), frame)
    given = types.SimpleNamespace(link="identity", data=fitted)
    np.testing.assert_array_equal(_matrix(frame.iloc[:, ::-1], given, "rows").dense(), frame)
    beside = frame.assign(c=3.0).iloc[:, ::-1]
    np.testing.assert_array_equal(in_columns_of(fitted, beside), frame)
    # What lacks columns is left to what refuses it.
    for other in (frame[names[:1]], frame.set_axis(["a", "c"], axis=1), [[2.0, 1.0]]):
        assert in_columns_of(fitted, other) is other


def test_a_name_is_in_the_verdict_and_the_report(named):
    held = davis().figures.factors_holding, named.figures.factors_holding
    assert tuple("the elder" if k == "1" else k for k in held[0]) == held[1]
    assert named.summary()["factor_name"].tolist() == ["the elder", ""]
    assert named.tiles(all=True)["factor_name"].tolist() == ["the elder", ""]
    assert "factor_name" not in davis().summary()
    again = named.rename({1: "ladies", 2: "others"})
    assert again.factor_names == ("ladies", "others")
    assert "the elder" not in str(again.figures.factors_holding)


def test_a_name_is_stored_and_goes_to_other_programs(named, tmp_path):
    again = bmfjax.Fit.load(named.save(tmp_path / "fit"))
    assert again.factor_names == named.factor_names and again.verdict == named.verdict
    assert named.to_arviz()["posterior"]["factor"].values.tolist() == ["the elder", "factor 2"]
    adata = named.to_anndata(obs=True)
    np.testing.assert_array_equal(adata.obs["bmf the elder"], named.usage[:, 0])
    assert adata.uns["bmf"]["factor_names"].tolist() == ["the elder", "factor 2"]
    with pytest.raises(bmfjax.InputError, match=r"has .*obs\['bmf the elder'\].* already"):
        named.to_anndata(adata, obs=True)


@pytest.mark.parametrize(
    "names, said",
    [
        ({0: "a"}, "names has 0; give numbers of factors, 1 to 2"),
        ({1: " "}, "the name of factor 1 is ' '; give a text"),
        ({1: "factor 2"}, "names gives two factors one name: factor 2, factor 2"),
        ({1: "2"}, "names gives two factors one name: 2, 2"),
    ],
)
def test_wrong_names_are_refused(names, said):
    with pytest.raises(bmfjax.InputError, match=said):
        davis().rename(names)


def test_a_rare_column_is_not_specific_by_its_rarity():
    """The only column that all rows of a small factor have comes first."""
    rng = np.random.default_rng(0)
    ones = rng.random((1000, 40)) < 0.002
    ones[:, 0] = rng.random(1000) < 0.3
    ones[:3] = np.arange(40) == 0
    ones[:, 39] = False
    observed = np.arange(40) < np.full((1000, 1), 38)  # nothing is seen of the last two
    usage = np.zeros((1000, 2), bool)
    usage[:3, 0] = True
    shares = _shares_of_ones(bmfjax.BinaryMatrix(ones, observed), usage)
    inside, outside, ratio = shares
    assert inside[0, 0] == 1.0 and ratio[0].argmax() == 0 and ratio[0, 0] > 0.5
    assert (abs(ratio[0, 1:]) < 0.1).all() and not ratio[0, 38:].any()
    # A factor without rows.
    assert np.isnan(inside[1]).all() and not np.isnan(outside[1, :38]).any()
    assert not ratio[1].any()


def test_specific_columns_come_first(named):
    """Shares are those of a loop over the entries."""
    table = named.to_frame("specific")
    dense, inside = named.data.dense(), named.usage_binary[:, 0]
    of_first = table[table["factor"] == "the elder"]
    assert of_first["log2_ratio"].is_monotonic_decreasing and len(of_first) == 14
    for line in of_first.itertuples():
        column = dense[:, named.data.column_names.index(line.name)]
        assert line.inside == column[inside].mean() and line.outside == column[~inside].mean()
    with pytest.raises(bmfjax.InputError, match="use to_frame\\('basis'\\)"):
        fit_of("nmf").to_frame("specific")


def test_new_rows_of_a_file_are_completed_by_name(named, tmp_path):
    names, paths = list(named.data.column_names), []
    row = named.data.dense()[:1].copy()
    row[0, 0] = np.nan
    for turn in (1, -1):
        new = bmfjax.BinaryMatrix(row[:, ::turn], None, ["z"], names[::turn])
        paths.append(bmfjax.data.save(tmp_path / f"{turn}.npz", new) or tmp_path / f"{turn}.npz")
    known, turned = (named.complete(path, frame=True) for path in paths)
    pd.testing.assert_frame_equal(turned, known)
    np.testing.assert_array_equal(known, named.complete(row))
    assert known.index.tolist() == ["z"] and known.columns.tolist() == names
    # In a list of pairs what is not listed is a zero, and what the fit has not is left out.
    listed = tmp_path / "pairs.csv"
    pairs = [("ann", names[3]), ("ann", "other"), ("bob", names[5]), ("bob", names[3])]
    pd.DataFrame(pairs, columns=["user", "item"]).to_csv(listed, index=False)
    ones = np.zeros((2, len(names)))
    ones[[0, 1, 1], [3, 3, 5]] = 1
    found = named.transform(listed, frame=True)
    np.testing.assert_array_equal(found, named.transform(ones))
    assert found.index.tolist() == ["ann", "bob"]
    # Lists of items may begin with many of the names.
    ones[0, :8], lists = 1, [[*names[:8], "other"], [names[5], names[3]]]
    listed.write_text("\n".join(map(",".join, lists)))
    for new in (listed, lists, tuple(map(set, lists))):
        np.testing.assert_array_equal(named.transform(new), named.transform(ones))
    np.testing.assert_array_equal(named.transform(lists[1:]), named.transform(ones[1:]))
    with pytest.raises(bmfjax.InputError, match="are not in the new rows, which have 'x', 'y' and"):
        named.transform([["x", "y"], ["z"]])
    with pytest.raises(bmfjax.InputError, match="has 3 dimensions"):
        named.transform([[names[:2], names[2:4]]])
