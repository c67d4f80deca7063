"""The documentation site: ``sphinx-build -W -b html docs docs/_build/html``."""

import importlib
import os
import pkgutil
import re
import shutil
import sys
from importlib.metadata import version as version_of
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the build computes nothing

project = "bmfjax"
author = "The bmfjax authors"
release = version_of("bmfjax")

# The tables of the benchmarks stand beside their records, and Sphinx reads its own folder only.
_TABLES = Path(__file__).parent / "results"
shutil.rmtree(_TABLES, ignore_errors=True)
shutil.copytree(Path(__file__).parents[1] / "benchmarks" / "results", _TABLES)

sys.path.insert(0, str(Path(__file__).parent))
generate = importlib.import_module("generate")
generate.write()

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
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

# Formulas are MathML, which browsers show by themselves: pages load nothing from another host.
html_math_renderer = "mathml"

# The guide before the reference, and both before records and notebooks.
html_search_scorer = str(Path(__file__).parent / "scorer.js")

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
autosummary_filename_map = generate.files_apart()
autodoc_typehints = "none"  # numpydoc lists types
numpydoc_show_class_members = False

PUBLIC = (
    "bmfjax", "bmfjax.models", "bmfjax.infer", "bmfjax.kernels", "bmfjax.diagnostics",
    "bmfjax.optimize", "bmfjax.data", "bmfjax.comparison", "bmfjax.variational",
)  # fmt: skip

#: Words that readers search for, and the page that answers.
WORDS = {
    "accelerators": ("GPU", "TPU"),
    "chains": ("R-hat", "convergence"),
    "citing": ("cite",),
    "first-fit": ("probability", "new rows"),
    "missing": ("missing",),
    "rank": ("rank", "compare"),
    "your-data": ("CSV", "names"),
}
#: A tag by which a browser fetches something from another host by itself.
_FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.(?:https?:)?//[^>]*>")


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


def write_formula(writer, node):
    """Write a formula as MathML; warn of a command that latex2mathml does not know."""
    block = isinstance(node, nodes.math_block)
    formula = convert(node.astext(), display="block" if block else "inline")
    if "\\" in formula:  # it writes a command that it does not know as it stands
        text = "formula with a command that cannot be shown: %s"
        logging.getLogger(__name__).warning(text, node.astext(), location=node)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def index_words(app, docname, source):
    """Put the words of a page into the index, where the search looks first."""
    title, line, rest = source[0].partition("\n")
    words = "".join(f"\n```{{index}} ! {word}\n```\n" for word in WORDS.get(docname, ()))
    source[0] = title + line + words + rest


def check_nothing_is_fetched(app, error):
    """Warn of pages that load something from another host."""
    if error is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        found = _FETCHED.findall(page.read_text(encoding="utf-8"))
        if found:
            logging.getLogger(__name__).warning("%s loads %s", page.name, ", ".join(found))


def setup(app):
    """Register what Sphinx calls."""
    app.connect("source-read", index_words)
    app.connect("missing-reference", link_to_code)
    app.connect("build-finished", check_nothing_is_fetched)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
