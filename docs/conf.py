"""The documentation site: ``sphinx-build -W -b html docs docs/_build/html``."""

import importlib
import os
import pkgutil
import shutil
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.util.nodes import make_refnode

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the build computes nothing

project = "bmfjax"
author = "The bmfjax authors"
release = version_of("bmfjax")

# The tables of the benchmarks stand beside their records, and Sphinx reads its own folder only.
_TABLES = Path(__file__).parent / "results"
shutil.rmtree(_TABLES, ignore_errors=True)
shutil.copytree(Path(__file__).parents[1] / "benchmarks" / "results", _TABLES)

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = "bmfjax"
# Printed sentences are as wide as a terminal.
_NARROW = {"code-font-size": "0.72rem"}
html_theme_options = {"light_css_variables": _NARROW, "dark_css_variables": _NARROW}

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# A name in single backticks is a link where the site has it, and code where not. A name that starts
# with `bmfjax.` must exist; arguments, and names of other libraries, need not be on the site.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!bmfjax\.).*")]
# Fields of different classes may have one name.
suppress_warnings = ["ref.python"]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc lists types
numpydoc_show_class_members = False

PUBLIC = (
    "bmfjax", "bmfjax.models", "bmfjax.infer", "bmfjax.kernels", "bmfjax.diagnostics",
    "bmfjax.optimize", "bmfjax.data", "bmfjax.comparison", "bmfjax.variational",
)  # fmt: skip


def link_to_code(app, env, node, contnode):
    """Link a name of the code that has no entry of its own; None for one that does not exist.

    A docstring may name an object by its file. The link goes to its public name, else to where the
    site has its file. What is on no page stays as it is.
    """
    name = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not name.startswith("bmfjax."):
        return None
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return None
    objects = env.get_domain("py").objects
    names = [f"{p}.{name.rpartition('.')[2]}" for p in PUBLIC]
    names = [n for n in names if _is_at(n, found)] + [name.rpartition(".")[0]]
    for place in names:
        if place in objects:
            page, anchor = objects[place].docname, objects[place].node_id
            return make_refnode(app.builder, node["refdoc"], page, anchor, contnode, place)
    return contnode


def _is_at(name, found) -> bool:
    package, _, last = name.rpartition(".")
    return getattr(importlib.import_module(package), last, None) is found


def setup(app):
    """Register what Sphinx calls."""
    app.connect("missing-reference", link_to_code)
