"""The package loads its names late, and they are all there."""

import ast
import importlib.metadata
import pickle
import subprocess
import sys
from pathlib import Path

import bmfjax
from bmfjax import errors
from bmfjax.families.base import versions_in_use

TREE = ast.parse(Path(bmfjax.__file__).read_text())


def test_public_names_are_there():
    for name in bmfjax.__all__:
        assert getattr(bmfjax, name) is not None
    assert {*bmfjax.__all__, "infer", "__version__"} <= set(dir(bmfjax))
    assert not hasattr(bmfjax, "fitt")


def test_type_checkers_see_the_names_that_are_loaded():
    told = {
        (f"{node.module}.{alias.name}", alias.name)
        for node in ast.walk(TREE)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("bmfjax")
        for alias in node.names
    }
    loaded = {(f"{home}.{name}", name) for name, home in bmfjax._HOME.items()}
    assert told == loaded | {("bmfjax.models", "models")}
    assert {name for _, name in told} == set(bmfjax.__all__)
    # A module of that name would take the place of the function once somebody imports it.
    modules = {path.stem for path in Path(bmfjax.__file__).parent.iterdir()}
    assert set(bmfjax._HOME).isdisjoint(modules)


def test_names_are_the_same_however_they_are_reached():
    from bmfjax import InputError
    from bmfjax.data import InputError as of_data

    assert InputError is of_data is bmfjax.InputError
    assert pickle.loads(pickle.dumps(bmfjax.fit)) is bmfjax.fit


def test_help_and_wrong_commands_load_no_jax():
    code = (
        "import sys, contextlib, bmfjax, bmfjax.cli as cli\n"
        "for arguments in ['--help'], ['predict', '--help'], ['predict', '--no'], ['fitt']:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        cli.main(arguments)\n"
        "print(sorted({'jax', 'numpy', 'pandas', 'scipy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_new_process_knows_all_fits_and_imports_what_is_large_late(tmp_path):
    """One process for all of it: each imports JAX, and ArviZ takes as long again."""
    code = (
        "import sys, bmfjax\n"
        "def names(kind):\n"
        "    return {kind.__name__}.union(*map(names, kind.__subclasses__()))\n"
        "print(sorted(names(bmfjax.Fit)))\n"
        "import bmfjax.diagnostics, bmfjax.report\n"
        "print(sorted({'arviz', 'matplotlib'} & set(sys.modules)))\n"
        "import bmfjax.diagnostics.arviz as files\n"
        "files.write_netcdf(files.datasets({'a': [[0.0, 1.0]]}), sys.argv[1])\n"
        "files.read_netcdf(sys.argv[1])\n"
        "assert 'arviz' not in sys.modules\n"
        "bmfjax.diagnostics.to_inference_data({'a': [[0.0, 1.0]]})\n"
        "bmfjax.diagnostics.posterior_dataset\n"
    )
    command = [sys.executable, "-W", "error::FutureWarning", "-c", code, tmp_path / "draws.nc"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    fits, imported = done.stdout.splitlines()
    assert "BooleanFit" in fits and imported == "[]"
    # So do the commands; the module of the class alone knows no family.
    commands = (Path(bmfjax.__file__).parent / "cli.py").read_text()
    assert "bmfjax.result" not in commands


def test_code_that_is_not_installed_has_no_version_and_says_so(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(errors, "version", absent)
    assert bmfjax.__version__ == versions_in_use()["bmfjax"] == "unknown"
