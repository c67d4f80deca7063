"""Who imports whom: one direction, and every library in its place."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bmfjax

ROOT = Path(bmfjax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PACKAGES = {
    "data",
    "models",
    "kernels",
    "diagnostics",
    "infer",
    "report",
    "variational",
    "optimize",
}

#: What a package may import of the others, at module level or inside a function.
MAY_IMPORT = {
    "data": set(),
    "kernels": {"data"},
    "models": {"data"},
    "diagnostics": {"data"},
    "optimize": {"data"},
    "variational": {"data", "kernels"},
    "infer": {"data", "models", "kernels", "diagnostics", "variational"},
}
NUMPYRO = {
    f"infer/{name}.py"
    for name in (
        "bind",
        "gibbs",
        "iasg",
        "kernel",
        "ormachine",
        "plates",
        "pmf",
        "relaxed",
        "to_arviz",
    )
}


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


def own(module):
    """Package or top-level module of bmfjax that an import names, or None."""
    parts = module.split(".")
    if parts[0] != "bmfjax":
        return None
    return parts[1] if len(parts) > 1 else "__init__"


def part_of(path):
    """The package a file is in; for a top-level module its own name."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


IMPORTS = {relative(path): imports(path) for path in FILES}


def files_importing(library):
    return {
        name
        for name, found in IMPORTS.items()
        if any(module.split(".")[0] == library for module, _ in found)
    }


def test_the_tree_is_read():
    assert {"data/matrix.py", "kernels/iasg.py", "infer/driver.py"} <= set(IMPORTS)
    assert ("jax", True) in IMPORTS["infer/driver.py"]
    assert ("bmfjax.kernels.base.Algorithm", True) in IMPORTS["infer/driver.py"]
    assert {part_of(path) for path in FILES if len(path.relative_to(ROOT).parts) > 1} == PACKAGES


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_what_lies_before_them(package):
    allowed = MAY_IMPORT[package] | {package}
    for path in FILES:
        if part_of(path) == package:
            others = {own(module) for module, _ in IMPORTS[relative(path)]} - {None}
            assert others <= allowed, relative(path)


def test_the_report_imports_anything_but_the_command_line():
    for path in FILES:
        if part_of(path) == "report":
            assert "cli" not in {own(module) for module, _ in IMPORTS[relative(path)]}


def test_top_level_modules_import_the_report_and_the_command_line_lazily():
    for path in FILES:
        name = relative(path)
        if part_of(path) in PACKAGES or name in ("cli.py", "__main__.py"):
            continue
        at_once = {own(module) for module, top in IMPORTS[name] if top}
        lazily = {own(module) for module, _ in IMPORTS[name]}
        assert "report" not in at_once, name
        assert "cli" not in lazily, name
    assert "report" not in {own(module) for module, top in IMPORTS["cli.py"] if top}


def test_numpyro_is_known_to_the_models_and_the_seam():
    outside = {name for name in files_importing("numpyro") if not name.startswith("models/")}
    assert outside <= NUMPYRO
    assert "kernels/iasg.py" not in outside and outside, "the reading of imports is broken"


def test_matplotlib_is_known_to_the_report():
    assert {name.split("/")[0] for name in files_importing("matplotlib")} <= {"report"}


@pytest.mark.parametrize("library", ["arviz", "arviz_base", "arviz_stats", "arviz_plots"])
def test_arviz_is_known_to_one_file(library):
    assert files_importing(library) <= {"diagnostics/arviz.py"}


def test_packages_do_not_import_each_other_in_a_circle():
    graph = {}
    for path in FILES:
        part = part_of(path)
        if part != "__init__":
            others = {own(module) for module, top in IMPORTS[relative(path)] if top}
            graph.setdefault(part, set()).update(others - {None, part})
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("data") < order.index("kernels") < order.index("infer")


def test_modules_do_not_import_each_other_in_a_circle():
    def module_of(path):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    modules = {module_of(path): relative(path) for path in FILES}
    graph = {}
    for module, name in modules.items():
        named = [m for m, top in IMPORTS[name] if top]
        # The longest prefix that is a module; a package's own parts are its business.
        targets = {
            next((p for p in (m, m.rpartition(".")[0]) if p in modules), None) for m in named
        }
        graph[module] = {t for t in targets - {None, module} if not module.startswith(f"{t}.")}
    TopologicalSorter(graph).prepare()  # raises CycleError
