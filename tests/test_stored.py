"""Damage to stored files: the same content, the state before, or one sentence; nothing else."""

import errno
import importlib
import shutil
import zipfile

import h5py
import numpy as np
import pytest

from bmfjax import store
from bmfjax.data import InputError
from bmfjax.data.io.stored import DamagedFile, opened_stored
from bmfjax.diagnostics.arviz import load_netcdf, posterior_attributes
from bmfjax.infer.checkpoint import Checkpoint
from tests.counted_runs import Counted, record

IDENTITY = {"data": "abc"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A stored fit, and in a folder of it the checkpoint of a run."""
    folder = tmp_path_factory.mktemp("stored") / "fit"
    with store.hold(folder):
        store.write(record(1.0, 3), folder)
    run, held = Counted(), Checkpoint(folder / store.CHECKPOINT, IDENTITY)
    for run.steps_done in (4, 9):
        held.write(run)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy, to be spoiled."""
    return shutil.copytree(whole, tmp_path / "fit")


# ---- single bits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "data.npz",
        "factors.npz",
        *(f"checkpoint/{n}.npz" for n in ("state", "previous", "part-00001")),
    ],
)
def test_a_flipped_bit_is_never_read_as_something_else(folder, monkeypatch, name):
    """Some bits of every file; of a part that a state vouches for, none is the same content."""
    study = importlib.import_module("benchmarks.scale.flipped_bits")
    path, rng = folder / name, np.random.default_rng(0)
    of_fit = {"data.npz": study.data_reader, "factors.npz": study.factors_reader}
    if name in of_fit:
        reader = of_fit[name](path)
    else:
        identity = Checkpoint(path.parent, IDENTITY)
        reader = study.checkpoint_reader(path.parent, identity.identity)
    bits = np.sort(rng.choice(8 * path.stat().st_size, 250, replace=False))
    counts, wrong = study.outcomes(path, bits, reader)
    assert not wrong and (counts[study.SAME] > 0) == ("part" not in name)
    other = study.SENTENCE if path.parent == folder else study.BEFORE
    assert name.endswith("previous.npz") or counts[other] > 0


@pytest.mark.parametrize("field", [31, 33], ids=["extra", "comment"])
def test_an_array_that_hides_the_next_is_damage(folder, field):
    """A length in the list of arrays, by which the next of the list is taken for a comment."""
    path = folder / "factors.npz"
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"PK\x01\x02") + field] |= 0x40
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"factors.npz is damaged"):
        store.read(folder)


# ---- what is no damage, and what a format has not -----------------------------------------------


@pytest.mark.parametrize("name", ["summary.json", "data.npz", "factors.npz", "posterior.nc"])
def test_a_fit_that_may_not_be_read_is_not_called_damaged(folder, monkeypatch, name):
    opened = open

    def refused(path, *given, **named):
        if str(path) == str(folder / name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *given, **named)

    monkeypatch.setattr("builtins.open", refused)
    monkeypatch.setattr("io.open", refused)
    with pytest.raises(InputError, match=f"{name} cannot be read: Permission denied; the file may"):
        store.read(folder)


def test_a_checkpoint_that_may_not_be_read_is_not_passed_over(folder, monkeypatch):
    opened = open

    def refused(path, *given, **named):
        if str(path).endswith("state.npz"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *given, **named)

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(InputError, match=r"state.npz cannot be read: Permission denied"):
        Checkpoint(folder / store.CHECKPOINT, IDENTITY).contents()


def changed(path, **more):
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **(arrays | more))


@pytest.mark.parametrize("name", ["data.npz", "factors.npz"])
def test_arrays_that_the_format_does_not_have_are_refused(folder, name):
    changed(folder / name, payload=np.eye(2))
    with pytest.raises(InputError, match=rf"{name} holds 'payload', which no such file has"):
        store.read(folder)


def test_a_state_with_other_arrays_is_passed_over(folder):
    place = folder / store.CHECKPOINT
    changed(place / "state.npz", payload=np.eye(2))
    with pytest.warns(UserWarning, match="from the checkpoint before it, 4 steps"):
        assert Checkpoint(place, IDENTITY).contents().steps_done == 4


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 62, 1 << 62), (-1, 4)])
def test_a_declared_size_is_compared_with_what_is_there(tmp_path, shape):
    path = tmp_path / "crafted.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("usage.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(b"few bytes")
    with pytest.raises(DamagedFile), opened_stored(path, lambda name: True):
        pass


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{}", "null", '{"scalars": 3}', "\x00", '{"model": 1e999}']
)
def test_a_damaged_summary_is_one_sentence(folder, text):
    (folder / "summary.json").write_text(text)
    with pytest.raises(InputError, match=r"incomplete or damaged \(summary.json is damaged\)"):
        store.read(folder)


@pytest.mark.parametrize("name", ["data.npz", "factors.npz", "posterior.nc"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"incomplete or damaged \({name} is missing\)"):
        store.read(folder)


def test_the_damaged_state_of_a_run_is_known_as_its_own(folder):
    """A name that differs in one bit, in the list at the end of the archive alone."""
    place = folder / store.CHECKPOINT
    for name, first in (("state.npz", b"about.npy"), ("part-00001.npz", b"draws/x.npy")):
        path, whole = place / name, (place / name).read_bytes()
        at = whole.rindex(first)
        path.write_bytes(whole[:at] + b"b" + whole[at + 1 :])
        assert store.is_of_fit(place)
        path.write_bytes(whole)


# ---- what HDF5 takes on trust --------------------------------------------------------------------


def with_one_axis(group):
    """The draws as one axis, beside as many dimension scales as there were axes."""
    scales, values = group["usage"].attrs.get_id("DIMENSION_LIST"), group["usage"][:].ravel()
    kept = group["usage"].attrs["DIMENSION_LIST"]
    kind, shape = scales.dtype, scales.shape
    del group["usage"]
    group["usage"] = values
    group["usage"].attrs.create("DIMENSION_LIST", kept, shape, kind)


def with_numbers_for_scales(group):
    shape = group["usage"].attrs["DIMENSION_LIST"].shape
    group["usage"].attrs["DIMENSION_LIST"] = np.zeros((*shape, 3))


def with_scales_that_are_none(group):
    for name in ("CLASS", "NAME"):
        group["factor"].attrs.pop(name)


def with_a_long_class(group):
    group["factor"].attrs["CLASS"] = np.array([b"DIMENSION_SCALE"] * 50)


def with_labels(group):
    group["usage"].attrs["DIMENSION_LABELS"] = np.zeros(40)


def with_a_link(group):
    group["other"] = h5py.ExternalLink("/etc/hostname", "/")


def with_itself(group):
    group["again"] = group


def with_values_elsewhere(group):
    group.create_dataset("other", (3,), "f8", external=[("elsewhere.raw", 0, 24)])


def with_virtual_values(group):
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "x", (3,))
    group.create_virtual_dataset("other", layout)


@pytest.mark.parametrize(
    "spoil",
    [
        with_one_axis, with_numbers_for_scales, with_scales_that_are_none, with_a_long_class,
        with_labels, with_a_link, with_itself, with_values_elsewhere, with_virtual_values,
    ],
)  # fmt: skip
def test_a_file_that_could_crash_hdf5_is_refused_before_it_is_opened(folder, spoil):
    path = folder / "posterior.nc"
    with h5py.File(path, "a") as file:
        spoil(file["posterior"])
    with pytest.raises(InputError, match=r"incomplete or damaged \(posterior.nc is damaged: "):
        store.read(folder)
    with pytest.raises(InputError, match="damaged or not a netCDF file"):
        load_netcdf(path)
    assert posterior_attributes(path) == set()


def test_draws_that_need_more_memory_are_refused_and_not_called_damaged(folder):
    path = folder / "posterior.nc"
    with h5py.File(path, "a") as file:
        file["posterior"].create_dataset("other", (1 << 50,), "f8", chunks=(1024,))
    for read in (store.read, lambda folder: load_netcdf(folder / "posterior.nc")):
        with pytest.raises(InputError, match=r"posterior.nc: .* use a machine with more memory"):
            read(folder)
    assert store.is_of_fit(path)  # to say whose it is takes no memory
