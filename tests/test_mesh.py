"""One chain on several devices and in several processes: the draws are those of one device."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

import bmfjax
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.families import ask
from bmfjax.kernels.numerics.mesh import checked_mesh
from tests import small_fits

SCRIPT = Path(__file__).with_name("mesh_checks.py")
AXES = ("chains", "rows")


def mesh_of(shape=(1, 1), axes=AXES):
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(shape), axes)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes with two devices each find."""
    folder = tmp_path_factory.mktemp("mesh")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(port), str(number), str(folder)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    of_real = [json.loads((folder / f"real_{process}.json").read_text()) for process in (0, 1)]
    return json.loads((folder / "found.json").read_text()) | of_real[0] | of_real[1]


@pytest.mark.long
def test_draws_do_not_depend_on_the_mesh_nor_on_a_resume_on_another(found):
    assert found["start"] and found["same"]
    assert found["steps"] == 16 and found["changes"] > 10


@pytest.mark.long
def test_a_device_has_its_own_rows_alone(found):
    assert found["rows_of_a_device"] == [[4, 15, 2], [4, 15, 2]]


@pytest.mark.long
def test_processes_that_read_their_own_rows_draw_what_one_does_with_all(found):
    """Starts apart; and a checkpoint of theirs is of the same data as that of one process."""
    assert found["held_0"] == [True, 60] and found["held_1"] == [True, 67]
    assert found["shared"] == [True, True] and found["whole"]


@pytest.mark.long
def test_what_one_process_refuses_all_refuse(found):
    assert found["refused_0"] == found["refused_1"] == "process 1 has no file"


@pytest.mark.long
def test_ratings_do_not_depend_on_the_mesh(found):
    """But for rounding; chains are divided in the other tests."""
    assert found["ratings_apart"] < 1e-4


@pytest.mark.long
@pytest.mark.parametrize(
    "sampler", ["gibbs", "minibatch", "nonnegative", "svi", "iasg", "thesis", "sparse"]
)
def test_draws_of_real_factors_do_not_depend_on_the_mesh(found, sampler):
    """But for rounding: missing entries, lines that do not divide, and a resume on one device."""
    assert found[sampler] < 1e-4


@pytest.mark.long
def test_chains_that_a_mesh_does_not_divide_are_refused(found):
    assert found["refusal"] == (
        "3 chains run, and mesh has 2 devices along 'chains'; give a number of chains that these "
        "divide, or another mesh"
    )


@pytest.mark.long
def test_a_fit_on_a_mesh_of_one_has_the_draws_of_a_fit_without():
    options = {"sampler": bmfjax.Gibbs(update="joint", moves=[]), **small_fits.SIZES}
    fits = [bmfjax.fit(small_fits.ones(), 2, mesh=m, **options) for m in (None, mesh_of())]
    for name in fits[0].trace:
        np.testing.assert_array_equal(*(fit.trace[name] for fit in fits))
    calls = [fit.settings.pop("call").replace(" mesh=...,", "") for fit in fits]
    assert calls[0] == calls[1] and fits[0].settings == fits[1].settings
    np.testing.assert_array_equal(*(fit.usage_draws.words for fit in fits))


def test_axes_are_found_by_their_names_and_made_auto():
    mesh = checked_mesh(mesh_of(axes=("rows", "chains")))
    assert mesh.axis_names == AXES and set(mesh.axis_types) == {AxisType.Auto}


def test_what_is_no_mesh_of_a_fit_is_refused():
    with pytest.raises(InputError, match=r"mesh is an int; give a jax\.sharding\.Mesh"):
        ask(small_fits.ones(), 2, mesh=2)
    with pytest.raises(InputError, match="the axes 'x', 'y', and a fit runs on 'chains' and"):
        ask(small_fits.ones(), 2, mesh=mesh_of(axes=("x", "y")))
    with pytest.raises(InputError, match="'batch' does not run on a mesh; choose sampler 'svi'"):
        ask(small_fits.ones(), 2, model="logistic", sampler="batch", mesh=mesh_of())
    blocks = bmfjax.IterateAveraging(blocks=((("basis",), {"rows": 5}),))
    with pytest.raises(InputError, match="leave blocks, conditionals and boundary='logit' out"):
        ask(small_fits.ones(), 2, blocks, model="relaxed", mesh=mesh_of()).chains()
    with pytest.raises(InputError, match="'smc' does not run on a mesh; choose sampler 'gibbs'"):
        ask(small_fits.ones(), 2, sampler="smc", mesh=mesh_of())
    with pytest.raises(InputError, match="does not run on a mesh; choose model ormachine, relaxed"):
        ask(small_fits.ones(), 2, model="hamming", mesh=mesh_of())


def test_the_command_line_refuses_what_is_no_mesh(tmp_path, capsys):
    fit = ["fit", "zoo", "--output", str(tmp_path / "fit"), "--quiet"]
    for shape in ("2", "0x2", "2x2x2"):
        with pytest.raises(SystemExit):
            main([*fit, "--mesh", shape])
        assert f"{shape!r} is no mesh; give CxR" in capsys.readouterr().err
    assert main([*fit, "--distributed"]) == 2
    assert "there is no --mesh for them" in capsys.readouterr().err
    assert main([*fit, "--distributed", "--chain", "1/2"]) == 2
    assert "leave one of them out" in capsys.readouterr().err
    assert not (tmp_path / "fit").exists()
