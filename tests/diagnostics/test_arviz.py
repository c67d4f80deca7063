"""The container holds what was given, in memory and on disk, under either version of ArviZ."""

import os
import shutil

import numpy as np
import pytest

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.arviz import (
    _import_arviz,
    datasets,
    group,
    is_legacy,
    load_netcdf,
    posterior_dataset,
    save_netcdf,
    summary,
    to_inference_data,
    write_netcdf,
)
from bmfjax.diagnostics.convergence import ess_bulk, ess_tail, split_rhat


def _container():
    rng = np.random.default_rng(0)
    return to_inference_data(
        {
            "usage": rng.random((2, 10, 3, 2)) < 0.5,
            "basis": rng.random((2, 10, 4, 2), dtype=np.float32),
            "noise": rng.random((2, 10)),
        },
        sample_stats={"lp": rng.normal(size=(2, 10))},
        observed_data={"data": np.eye(3, 4, dtype=np.uint8)},
        dims={"usage": ["row", "factor"], "basis": ["column", "factor"], "data": ["row", "column"]},
        coords={"row": np.array(["ä", "b", "c"]), "column": ["w", "x", "y", "z"]},
        attrs={"model": "ormachine", "rank": 2, "noise": np.float64(0.5)},
    )


def _same(one, other):
    for name in ("posterior", "sample_stats", "observed_data"):
        assert group(one, name).identical(group(other, name)), name


def test_the_container_is_that_of_the_installed_version():
    kind = type(_container()).__name__
    assert kind == ("InferenceData" if is_legacy() else "DataTree")


def test_arrays_axes_and_labels():
    idata = _container()
    posterior = posterior_dataset(idata)
    assert posterior["usage"].dims == ("chain", "draw", "row", "factor")
    assert posterior["usage"].dtype == np.uint8
    assert posterior["basis"].dtype == np.float32
    assert posterior["row"].values.tolist() == ["ä", "b", "c"]
    assert posterior["factor"].values.tolist() == [0, 1]
    assert posterior.attrs == {"model": "ormachine", "rank": 2, "noise": 0.5}
    observed = group(idata, "observed_data")
    assert observed["data"].dims == ("row", "column") and "chain" not in observed.sizes
    assert observed["data"].sel(row="b", column="x") == 1
    # The one way of reading a variable that is the same in both versions.
    assert idata["posterior"]["noise"].shape == (2, 10)


def test_axes_have_names_by_default():
    posterior = posterior_dataset(to_inference_data({"a": np.zeros((1, 2, 3))}))
    assert posterior["a"].dims == ("chain", "draw", "a_dim_0")


def test_a_file_gives_back_what_was_saved(tmp_path):
    idata = _container()
    save_netcdf(idata, tmp_path / "posterior.nc")
    _same(load_netcdf(tmp_path / "posterior.nc"), idata)
    # Read whole: the file is closed and can be written over.
    save_netcdf(load_netcdf(tmp_path / "posterior.nc"), tmp_path / "posterior.nc")
    _same(load_netcdf(tmp_path / "posterior.nc"), idata)
    assert [path.name for path in tmp_path.iterdir()] == ["posterior.nc"]


class _CountedBits:
    """Bits that know how many of them were read at once."""

    dtype, most = np.dtype(bool), 0

    def __init__(self, bits):
        self.bits, self.shape = bits, bits.shape

    def __getitem__(self, key):
        found = self.bits[key]
        self.most = max(self.most, found.size)
        return found


def test_bits_are_read_and_written_a_few_draws_at_a_time(tmp_path, monkeypatch):
    bits = np.random.default_rng(0).random((2, 7, 30, 2)) < 0.5
    given = {"usage": _CountedBits(bits), "noise": np.ones((2, 7))}
    options = {"dims": {"usage": ["rows", "factor"]}, "coords": {"rows": list("abcdef" * 5)}}
    groups = datasets(given, **options, lazily=True)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 3 * 30 * 2)
    write_netcdf(groups, tmp_path / "posterior.nc")
    assert given["usage"].most == 3 * 30 * 2
    whole = datasets(given | {"usage": bits}, **options)["posterior"]
    assert posterior_dataset(load_netcdf(tmp_path / "posterior.nc")).equals(whole)


def test_arviz_reads_our_files_and_we_read_its(tmp_path):
    idata = _container()
    save_netcdf(idata, tmp_path / "ours.nc")
    theirs = _import_arviz().from_netcdf(tmp_path / "ours.nc", engine="h5netcdf")
    _same(theirs, idata)
    theirs.close()
    idata.to_netcdf(str(tmp_path / "theirs.nc"), engine="h5netcdf")
    _same(load_netcdf(tmp_path / "theirs.nc"), idata)


def test_a_disk_that_is_full_is_known_before_and_after_the_writing(tmp_path, monkeypatch):
    import xarray

    path = tmp_path / "posterior.nc"
    save_netcdf(_container(), path)
    before = path.read_bytes()
    write = xarray.Dataset.to_netcdf

    def cut(dataset, target, **kwargs):  # HDF5 may close such a file without a word
        write(dataset, target, **kwargs)
        if kwargs["group"] == "observed_data":
            os.truncate(target, target.stat().st_size - 100)

    with monkeypatch.context() as patched:
        patched.setattr(xarray.Dataset, "to_netcdf", cut)
        with pytest.raises(InputError, match="could not be read back as it was written"):
            save_netcdf(_container(), path)
    left = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: left)
    with pytest.raises(InputError, match=r"it may take .* MB and 0\.0 MB are free"):
        save_netcdf(_container(), path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.98])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = tmp_path / "posterior.nc"
    save_netcdf(_container(), path)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(InputError, match="damaged or not a netCDF file"):
        load_netcdf(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "notes.nc").write_text("not a posterior")
    with pytest.raises(InputError, match="damaged"):
        load_netcdf(tmp_path / "notes.nc")
    with pytest.raises(InputError, match="there is no file"):
        load_netcdf(tmp_path / "missing.nc")
    with pytest.raises(InputError, match="there is no file"):
        load_netcdf(tmp_path)


def test_summary_has_our_numbers():
    idata = _container()
    noise = posterior_dataset(idata)["noise"].values
    table = summary(idata, ["noise"])
    assert list(table.columns) == ["mean", "sd", "ess_bulk", "ess_tail", "r_hat"]
    expected = [noise.mean(), ess_bulk(noise), ess_tail(noise), split_rhat(noise)]
    found = table.loc["noise", ["mean", "ess_bulk", "ess_tail", "r_hat"]]
    np.testing.assert_allclose(found.to_numpy(float), expected, rtol=1e-6)
    assert len(summary(idata, ["usage", "noise"])) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"posterior": {}}, "posterior is empty"),
        ({"posterior": {"a": np.zeros(3)}}, "a has 1 axes"),
        ({"dims": {"a": ["x"]}}, "dims name 1"),
        ({"coords": {"a_dim_0": [1, 2, 3]}}, "do not fit"),
        ({"posterior": {"a": np.zeros((1, 4)), "b": np.zeros((1, 5))}}, "do not fit"),
        ({"sample_stats": {"lp": np.zeros((1, 3))}}, "posterior has 4 draws and sample_stats 3"),
        ({"attrs": {"priors": {"rate": 1}}}, "priors is a dict"),
        ({"attrs": {"done": True}}, "done is a bool"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        to_inference_data(**({"posterior": {"a": np.zeros((1, 4, 2, 2))}} | arguments))


def test_unknown_names_are_refused():
    idata = _container()
    with pytest.raises(InputError, match="group is 'prior'; choose from posterior"):
        group(idata, "prior")
    with pytest.raises(InputError, match="variable is 'rank'; choose from"):
        summary(idata, ["rank"])
