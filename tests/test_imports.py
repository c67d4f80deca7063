"""Who imports whom: one direction, no circle, and every library in its place.

All imports count, those inside functions too.
"""

import ast
import functools
import itertools
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bmfjax
from bmfjax.diagnostics.arviz import is_legacy

ROOT = Path(bmfjax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

#: Rooms in the order in which they may import: each any that stands before its own line.
ORDER = (
    {"errors"},
    {"clock"},
    {"progress"},
    {"specs"},
    {"data"},
    {"kernels"},
    {"models"},
    {"diagnostics"},
    {"variational", "optimize"},
    {"infer"},
    {"posterior"},
    {"verdict", "store"},
    {"report"},
    {"result"},
    {"families"},
    {"fitting"},
    {"predictions", "comparison"},
    {"sklearn", "__init__"},
    {"cli"},
    {"__main__"},
)
#: The same within the kernels. What is not named here stands beside the variants.
KERNELS = (
    {"base", "numerics"},
    {"ladders", "smc"},
    {"tempering"},
    {"boolean", "relaxed", "ratings"},
    {"nonnegative", "sgmcmc", "variants"},
    {"features"},
    {"__init__"},
)
#: Libraries that are imported where they are needed: plots, and extras that need not be there.
LATE = {"matplotlib", "anndata", "h5py", "pyarrow", "zarr", "arviz"}  # ArviZ 0.x brings matplotlib
#: Files that import what a command needs where the command is run.
LATE_FILES = {"cli.py"}
NUMPYRO = {"models", "infer/mcmc"}
MOST_ROOT_MODULES = 10


def relative(path):
    return path.relative_to(ROOT).as_posix()


def imports(path):
    """(module, whether at module level) of every import statement, `from` names included."""
    found = []

    def visit(node, top):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{relative(path)} imports relatively"
                found.extend((f"{child.module}.{alias.name}", top) for alias in child.names)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            visit(child, top and not inside)

    visit(ast.parse(path.read_text()), True)
    return found


@functools.cache
def all_imports():
    return {relative(path): imports(path) for path in FILES}


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): relative(path) for path in FILES}


def target(name):
    """The module of bmfjax that an imported name is, or is in; None for other libraries."""
    return next((m for m in (name, name.rpartition(".")[0]) if m in MODULES), None)


def room(module, depth=1):
    """The package or module below bmfjax (or, at depth 2, below its packages)."""
    parts = module.split(".")
    return parts[depth] if len(parts) > depth else "__init__"


def check_order(order, modules, depth):
    rank = {name: place for place, names in enumerate(order) for name in names}
    if depth == 2:
        rank = dict.fromkeys((room(m, depth) for m in modules), rank["variants"]) | rank
    for module in modules:
        here = room(module, depth)
        assert here in rank, f"{module}: give the room {here!r} a place in the order"
        for name, _ in all_imports()[MODULES[module]]:
            other = target(name)
            if other is None or (depth == 2 and room(other) != "kernels"):
                continue
            there = room(other, depth)
            assert there == here or rank[there] < rank[here], f"{module} imports {name}"


def files_importing(library):
    return {
        name
        for name, found in all_imports().items()
        if any(module.split(".")[0] == library for module, _ in found)
    }


def test_the_tree_is_read():
    assert {"data/binary.py", "kernels/sgmcmc/iasg.py", "infer/run.py"} <= set(all_imports())
    assert ("jax", True) in all_imports()["infer/run.py"]
    assert ("bmfjax.kernels.base.Algorithm", True) in all_imports()["infer/run.py"]
    assert any(not top for _, top in all_imports()["cli.py"])


def test_rooms_import_only_what_lies_before_them():
    check_order(ORDER, MODULES, 1)
    check_order(KERNELS, [m for m in MODULES if room(m) == "kernels"], 2)


def test_the_root_holds_few_modules():
    inside = sorted(path.name for path in ROOT.glob("*.py"))
    assert len(inside) <= MOST_ROOT_MODULES, inside


def test_imports_inside_functions_are_of_plots_extras_and_the_command_line():
    for name, found in all_imports().items():
        late = {module.split(".")[0] for module, top in found if not top}
        assert name in LATE_FILES or late <= LATE, f"{name} imports {sorted(late - LATE)} late"


def test_modules_do_not_import_each_other_in_a_circle():
    graph = {
        module: {target(name) for name, _ in all_imports()[file]} - {None, module}
        for module, file in MODULES.items()
    }
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    places = [order.index(f"bmfjax.{m}") for m in ("errors", "kernels.base", "infer.run")]
    assert all(a < b for a, b in itertools.pairwise(places))


def test_numpyro_is_known_to_the_models_and_their_kernels():
    inside = {name.rpartition("/")[0] for name in files_importing("numpyro")}
    assert inside == NUMPYRO


def test_matplotlib_is_known_to_the_report():
    assert {name.split("/")[0] for name in files_importing("matplotlib")} == {"report"}


@pytest.mark.parametrize("library", ["arviz", "arviz_base", "arviz_stats", "arviz_plots"])
def test_arviz_is_known_to_one_file(library):
    assert files_importing(library) <= {"diagnostics/arviz.py"}


@pytest.mark.skipif(is_legacy(), reason="ArviZ 1.x loads NumPyro late")
def test_arviz_may_be_imported_first():
    """It leaves NumPyro to be loaded where it is used, whose modules then lack their parts."""
    subprocess.run([sys.executable, "-c", "import arviz, bmfjax.fitting"], check=True)


def test_models_are_told_apart_by_their_families_alone():
    """No `fit.model == ...` outside of `families`: what differs is a method."""
    for path in FILES:
        if room(module_of(path)) == "families":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                of_fit = [s for s in sides if isinstance(s, ast.Attribute) and s.attr == "model"]
                named = [s for side in sides for s in ast.walk(side) if isinstance(s, ast.Constant)]
                assert not (of_fit and named), f"{relative(path)}:{node.lineno} names a model"
