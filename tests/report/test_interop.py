"""A fit in other programs: the table of factors, AnnData, and a notebook."""

import re
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest

from bmfjax.data import InputError
from bmfjax.predictions import check_export, remove_exported, write_table
from bmfjax.report import interop
from tests.shared_fits import davis, shared_fit
from tests.small_fits import SIZES, ones
from tests.test_cells import fit_of


@pytest.fixture(scope="module")
def fit():
    return davis()


@pytest.fixture(scope="module")
def unnamed():
    return shared_fit(ones(), 2, model="relaxed", **SIZES)


def test_the_table_has_every_mean_and_member_once(fit):
    table = fit.to_frame()
    assert re.fullmatch(interop.HEADER, ",".join(table.columns))
    for side, what, names in (
        ("row", "usage", fit.data.row_names),
        ("column", "basis", fit.data.column_names),
    ):
        part = table[table["side"] == side]
        for column, values in (
            ("mean", getattr(fit, what)),
            ("sd", getattr(fit, f"{what}_sd")),
            ("member", getattr(fit, f"{what}_binary")),
        ):
            wide = part.pivot(index="name", columns="factor", values=column)
            wide = wide.loc[list(names), list(fit.factor_names)]
            np.testing.assert_array_equal(wide.to_numpy(), values)


def test_lines_are_found_by_name_whatever_their_order(fit, tmp_path):
    rows = [*reversed(fit.data.row_names), "nobody"]
    columns = ["nothing", *fit.data.column_names]
    adata = anndata.AnnData(
        np.zeros((len(rows), len(columns)), np.float32),
        pd.DataFrame(index=rows), pd.DataFrame(index=columns),
    )  # fmt: skip
    assert fit.to_anndata(adata) is adata
    adata.write_h5ad(tmp_path / "fit.h5ad")
    found = anndata.read_h5ad(tmp_path / "fit.h5ad")
    np.testing.assert_array_equal(found.obsm["X_bmf"][:-1], fit.usage[::-1])
    np.testing.assert_array_equal(found.varm["bmf_basis_sd"][1:], fit.basis_sd)
    np.testing.assert_array_equal(found.varm["bmf_basis_binary"][1:], fit.basis_binary)
    assert np.isnan(found.obsm["X_bmf"][-1]).all() and np.isnan(found.varm["bmf_basis"][0]).all()
    assert not found.obsm["bmf_usage_binary"][-1].any()
    about = found.uns["bmf"]
    assert about["verdict"] == str(fit.verdict) and list(about["factor_names"]) == [
        *fit.factor_names
    ]
    assert about["scalars"]["rhat"] == fit.figures.rhat


def test_a_new_object_holds_the_data(fit, unnamed):
    np.testing.assert_array_equal(fit.to_anndata().X.toarray(), fit.data.dense())
    made = unnamed.to_anndata(key="other")
    np.testing.assert_array_equal(np.asarray(made.X), unnamed.data.dense())
    assert list(made.obs_names) == list(unnamed.data.row_names)


def test_without_names_lines_are_found_by_their_order(unnamed):
    rows, columns = unnamed.data.shape
    adata = unnamed.to_anndata(anndata.AnnData(np.zeros((rows, columns), np.float32)))
    np.testing.assert_array_equal(adata.obsm["X_bmf"], unnamed.usage)
    with pytest.raises(InputError, match=r"the columns of the fit have no names, and are"):
        unnamed.to_anndata(anndata.AnnData(np.zeros((rows, columns + 1), np.float32)))


def test_what_is_there_is_not_replaced_and_what_is_not_is_named(fit):
    adata = fit.to_anndata()
    with pytest.raises(InputError, match=r"obsm\['X_bmf'\], .*uns\['bmf'\] already"):
        fit.to_anndata(adata)
    assert "X_two" in fit.to_anndata(adata, key="two").obsm
    fit.to_anndata(adata, overwrite=True)
    with pytest.raises(InputError, match="row 'Evelyn Jefferson' of the fit is not in obs_names"):
        fit.to_anndata(adata[~adata.obs_names.str.startswith("Evelyn J")].copy(), key="three")
    with warnings.catch_warnings():  # pytest.warns would give other warnings a module of its own
        warnings.filterwarnings("ignore", ".* not unique", UserWarning)
        twice = anndata.concat([adata, adata])
    with pytest.raises(InputError, match=r"has .* twice"):
        fit.to_anndata(twice, key="four")
    with pytest.raises(InputError, match="key is ''"):
        fit.to_anndata(key="")


def test_a_notebook_shows_the_verdict_and_a_line_for_each_factor(fit, monkeypatch):
    shown = fit._repr_html_()
    assert shown.count("<tr") == 1 + 1 + fit.rank  # names of columns, of the index
    assert str(fit.verdict).split(",")[0] in shown and "more factors" not in shown
    monkeypatch.setattr(interop, "SHOWN", 1)
    assert "1 more factors" in fit._repr_html_()


def test_a_real_fit_leaves_no_boolean_factors_of_an_older_one(fit):
    adata, (rows, columns) = fit.to_anndata(), fit.data.shape
    real = fit_of("logistic", fit.data, rows=rows, columns=columns, rank=1)
    with pytest.raises(InputError, match=r"obsm\['bmf_usage_binary'\]"):
        real.to_anndata(adata)
    real.to_anndata(adata, overwrite=True)
    assert adata.obsm["X_bmf"].shape[1] == 1
    assert not {"bmf_usage_binary"} & set(adata.obsm) | {"bmf_basis_binary"} & set(adata.varm)


def test_an_exported_table_goes_with_its_fit_and_nothing_else_does(fit, tmp_path):
    path = tmp_path / "factors.csv"
    write_table(fit.to_frame(), path, False)
    for name in ("other.csv", "factors.parquet"):
        (tmp_path / name).write_text("side,mine\n")
    check_export(path, True, tmp_path / "other.csv")
    with pytest.raises(InputError, match="is there already, and --export writes it"):
        check_export(path, False, None)
    with pytest.raises(InputError, match="give another file to --tiles"):
        check_export(path, True, path)
    remove_exported(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["factors.parquet", "other.csv"]
    path.write_text("mine\n")
    with pytest.raises(InputError, match="move it away"):
        check_export(path, True, None)
