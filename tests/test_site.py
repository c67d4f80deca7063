"""The pages of the site: their code runs, their links lead somewhere, and nothing is left out."""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import math
import pkgutil
import re
import shlex
from pathlib import Path

import jax
import numpy as np
import numpyro.infer
import pandas as pd
import pytest

import bmfjax
from bmfjax.cli import build_parser
from bmfjax.data import InputError
from bmfjax.families import FAMILIES, ask, asked_model
from bmfjax.specs import MODELS, SAMPLERS
from bmfjax.specs.base import Model, parameters
from tests.printed import difference

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def script(name):
    """A script of the folder of pages, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


pages = script("pages")

README = ROOT / "README.md"
PAGES = [README, *pages.pages()]
RUN = [path for path in PAGES if pages.printed_below(path.read_text())]
PACKAGES = ("models", "infer", "kernels", "diagnostics", "optimize")

#: What a small fit is asked for beside what a page asks for, in the call that is stored with it.
SMALL = (", num_chains=2, num_warmup=50, num_samples=30", "rebirths=1")
_WHOLE_FIT, _WHOLE_RANKS = bmfjax.fit, bmfjax.compare_ranks
_WHOLE_MCMC = numpyro.infer.MCMC
_FITS = {}
#: Models of fits that are drawn, of pages whose words or checks need draws; None of all. Other fits
#: are where chains start, for which no sampler is compiled.
DRAWN = {
    "README": None, "cells": None, "first-fit": None, "missing": None,
    "ratings": None, "report": None, "models": ("poisson",), "variants": ("ormachine-effects",),
}  # fmt: skip


def small_fit(data, rank=None, sampler=None, *, drawn, **options):
    """Check what is asked for, and fit with few draws or none, once for all pages.

    No time is up before, however slow the machine is.
    """
    options.pop("max_time", None)
    kept = {n: v for n, v in options.items() if n not in ("checkpoint", "resume", "progress")}
    named = ask(data, rank, sampler, **kept).model.name
    options |= {"num_chains": 2, "progress": False, "seed": options.get("seed", 0)}
    model = None if isinstance(rank, Model) else options.pop("model", None) or named
    model = asked_model(rank, model, options.pop("max_rank", None))
    if sampler == "smc":
        sampler = bmfjax.SMC(num_particles=32)
    else:
        options |= {"num_warmup": 5 if model.name == "logistic" else 50, "num_samples": 30}
    rank = 2 if model.rank == "auto" else model.rank  # `test_rank.py` has it whole
    model = dataclasses.replace(model, rank=None, max_rank=None)
    if model.name == "ormachine" and sampler is None:
        # One sampler, without temperatures, and one rank of the votes: fewer programs to compile.
        sampler = bmfjax.Gibbs(update="collapsed")
        rank = 4 if isinstance(data, str) and data == "house-votes" else rank
    if model.name == "features" and sampler is None:
        sampler = bmfjax.Gibbs(rebirths=1)  # of up to 20 a sweep
    if "checkpoint" in options:
        return _WHOLE_FIT(data, rank, sampler, model=model, **options)
    if drawn is not None and model.name not in drawn and not isinstance(sampler, bmfjax.SMC):
        options["max_time"] = 1e-6
        if model.name == "deep-ormachine":
            sampler = bmfjax.Gibbs(num_start=0)
    # A page may hand over the matrix that another names.
    named = isinstance(data, bmfjax.BinaryMatrix) and data.name
    key = (
        model,
        rank,
        sampler,
        repr(options),
        named or (data if isinstance(data, str) else _bytes(data)),
    )
    if key not in _FITS:
        _FITS[key] = _WHOLE_FIT(data, rank, sampler, model=model, **options)
    return _FITS[key]


def _bytes(data):
    if isinstance(data, np.ndarray):
        return data.tobytes(), data.shape
    return data.fingerprint() if hasattr(data, "fingerprint") else id(data)


def small_ranks(data, ranks, **options):
    """Compare two ranks without what takes fits of its own."""
    options |= {"num_chains": 2, "num_warmup": 50, "num_samples": 30, "progress": False}
    options |= {"sampler": bmfjax.Gibbs(update="collapsed"), "max_time": math.inf}
    return _WHOLE_RANKS(data, "2:3", without=("evidence", "entries", "blocks"), **options)


#: Models of runs of which pages show words and names alone: of users, beside the regression, which
#: is run, and of the variants.
TRACED = ("factorisation", "hierarchy", "counts", "ormachine_effects")


def small_mcmc(kernel, **options):
    """Run the Boolean kernel for little; those of minibatches are quick.

    NUTS is NumPyro's, and the kernels run in `tests/infer` and in their examples on models like
    those above: here they are traced, not compiled.
    """
    model = getattr(kernel.model, "func", kernel.model)
    if isinstance(kernel, numpyro.infer.NUTS) or model.__name__ in TRACED:
        return Traced(kernel)
    if not isinstance(kernel, bmfjax.IASG | bmfjax.SGLD | bmfjax.SGHMC):
        options |= {"num_warmup": 10, "num_samples": 8, "num_chains": 2, "progress_bar": False}
    return _WHOLE_MCMC(kernel, **options)


class Traced:
    """A run of which the start and one step are traced: its draws are all of them one."""

    def __init__(self, kernel):
        self.kernel = kernel

    def run(self, key, *args):
        """Trace the start and one step, and what a step's sites are in the model's space."""

        def two(key):
            state = self.kernel.sample(self.kernel.init(key, 0, None, args, {}), args, {})
            draw = getattr(state, self.kernel.sample_field)
            return self.kernel.postprocess_fn(args, {})(draw)

        self.sites = jax.eval_shape(two, key)

    def get_samples(self):
        """Return eight draws of every site."""
        return {n: np.ones((8, *a.shape), a.dtype) for n, a in self.sites.items()}


@pytest.fixture
def small(path, tmp_path, quick_page):
    """Patch what pages call, of which no program is made, so that pages share their programs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _patch(path, monkeypatch, tmp_path)
        yield


def _patch(path, monkeypatch, tmp_path):
    fit = functools.partial(small_fit, drawn=DRAWN.get(path.stem, ()))
    monkeypatch.chdir(tmp_path)
    votes = bmfjax.load("house-votes")
    table = pd.DataFrame(votes.dense(), columns=list(votes.column_names))
    table.to_csv("votes.csv", index=False)  # what a reader of the README has
    monkeypatch.setattr(bmfjax, "fit", fit)
    monkeypatch.setattr(bmfjax, "compare_ranks", small_ranks)
    monkeypatch.setattr(importlib.import_module("bmfjax.sklearn"), "fit", fit)
    monkeypatch.setattr(numpyro.infer, "MCMC", small_mcmc)
    monkeypatch.setattr(bmfjax, "use_compilation_cache", lambda: tmp_path)


#: Pages whose programs take more than ten seconds to compile, alone or together.
LONG = (
    "chains", "variants", "numpyro", "rank", "coming-from", "ratings", "large", "models", "sklearn",
    "best-reconstruction", "first-fit", "report",
)  # fmt: skip


def page_to_run(path):
    return pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.stem in LONG))


@pytest.mark.filterwarnings("ignore:the time was up before the sampler drew")  # see `DRAWN`
@pytest.mark.filterwarnings("default")  # as for a reader, to whom a warning is no error
@pytest.mark.parametrize("path", [page_to_run(path) for path in RUN])
def test_the_code_of_a_page_runs(path, small):
    names, told = pages.run(path.read_text(), str(path))
    for block, below, output in told:
        for asked in SMALL:
            output = output.replace(asked, "")
        printed = bool(output.strip())
        assert printed == (below is not None), f"{path.name}: output and code differ\n{block.text}"
        wrong = printed and difference(block.text, below.text, output)
        assert not wrong, f"{path.name}: {wrong}\n{block.text}"
    check = CHECKS.get(path.stem)
    if check is not None:
        check(names)


def _votes_are_fitted(names):
    assert names["fit"].usage.shape == (435, 4)


def _regression_is_right(names):
    assert names["idata"]["posterior"]["basis"].shape == (2, 8, 16, 4)
    beta = np.asarray(names["mcmc"].get_samples()["beta"]).mean(0)
    assert np.abs(beta - [1.0, -2.0]).max() < 0.15


def _held_out_votes_are_predicted(names):
    right = (names["chance"] > 0.5) == names["truth"]
    assert right.mean() > 0.7


def _hidden_ratings_are_predicted(names):
    assert np.sqrt(np.mean((names["mean"] - names["truth"]) ** 2)) < 0.8 * names["truth"].std()


#: What must hold of what a page made, also at small size.
CHECKS = {
    "README": _votes_are_fitted,
    "numpyro": _regression_is_right,
    "missing": _held_out_votes_are_predicted,
    "ratings": _hidden_ratings_are_predicted,
}


@pytest.mark.parametrize(
    "code, page, now, seen",
    [
        ("print(x.shape)", "(20, 3)", "(20, 3)", False),
        ("print(x.shape)", "(20, 4)", "(20, 3)", True),
        ("print(x)", "error: 0.55\n", "error: 1.2\n", False),
        ("print(x)", "errors: 0.55\n", "error: 1.2\n", True),
        ("print(x)", "[7 6]", "[ 7 10]", False),
        ("print(x)", "a 1\nb 2\n", "a 1\n", True),
        ("print(fit.verdict)", "Reliable: an exact sampler.", "Do not rely on this run.", False),
        ("print(fit.verdict)", "Dependable: an exact sampler.", "Do not rely on this run.", True),
    ],
)
def test_a_changed_word_of_a_printed_text_is_seen(code, page, now, seen):
    assert bool(difference(code, page, now)) == seen


def test_code_of_the_pages_is_marked_by_what_is_done_with_it():
    """`py` is the code of other libraries, on the two pages that show it."""
    for path in PAGES:
        found = {block.language for block in pages.blocks(path.read_text())}
        allowed = {"python", "text", "console"} | (
            {"py"} if path.stem in ("coming-from", "large") else set()
        )
        assert found <= allowed, path.name


def commands():
    """Every line of a page that calls bmfjax from a shell."""
    for path in PAGES:
        text = path.read_text()
        lines = [b.text for b in pages.blocks(text) if b.language == "console"]
        lines += re.findall(r"^    (\S.*)$", text, flags=re.MULTILINE) if path == README else []
        lines += re.findall(r"`(bmfjax [a-z][^`]*)`", text)
        for line in "\n".join(lines).splitlines():
            for command in line.split("&&"):
                words = shlex.split(command)
                if words and Path(words[0]).name == "bmfjax" and "COMMAND" not in words:
                    yield path.name, words[1:]


def test_commands_of_the_pages_are_commands(capsys):
    parser, seen = build_parser(), 0
    for page, words in commands():
        if words == ["--version"]:
            continue
        try:
            parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{page}: bmfjax {' '.join(words)}: {capsys.readouterr().err}")
        seen += 1
    assert seen > 20


@functools.cache
def anchors(path):
    """Names of the headings of a page, as MyST makes them."""
    text = path.read_text()
    if included := re.search(r"```\{include\} (\S+)", text):
        return anchors((path.parent / included[1]).resolve())
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,3} (.+)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower().replace("'", "-")) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_links_of_a_page_lead_somewhere(path):
    text = path.read_text()
    targets = re.findall(r"\]\((?!http)([^)\s]+)\)", text)
    targets += re.findall(r"\{download\}`[^<`]*<([^>]+)>`", text)
    for target in targets:
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{path.name}: {target}"


def test_every_page_is_in_the_contents():
    listed = set(re.findall(r"^[a-z][\w/-]*$", (DOCS / "index.md").read_text(), re.MULTILINE))
    assert {path.stem for path in pages.pages()} - {"index"} <= listed


def test_every_page_of_the_guide_has_a_picture():
    """And each picture is one that the script draws, is small, and is shown."""
    parts = re.findall(
        r":caption: (\w.*)\n\n((?:[a-z][\w/-]*\n)+)", (DOCS / "index.md").read_text()
    )
    guide = [name for caption, names in parts if caption != "Reference" for name in names.split()]
    shown = {
        name: dict(re.findall(r"!\[[^\]]{10,}\]\(((?:pictures/)?([\w.-]+))\)", path.read_text()))
        for name, path in ((path.stem, path) for path in pages.pages())
    }
    assert len(guide) > 15 and [name for name in guide if not shown[name]] == []
    drawn = script("pictures")
    names = {f"{name}.png" for name in (*drawn.PICTURES, *drawn.SHEETS)}
    names |= {f"{name}.svg" for name in drawn.SINGLE}
    assert {name for found in shown.values() for name in found.values()} == {
        *names,
        f"{drawn.FIRST}.svg",
    }
    assert {path.name for path in drawn.FOLDER.iterdir()} == names
    assert max(path.stat().st_size for path in drawn.FOLDER.iterdir()) < 100_000


@pytest.mark.parametrize("package", ["bmfjax", *(f"bmfjax.{name}" for name in PACKAGES)])
def test_every_public_name_is_on_its_page(package):
    page = (DOCS / "api" / f"{package.rpartition('.')[2]}.rst").read_text()
    listed = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    listed |= set(re.findall(r"`bmfjax\.(\w+)`", page))
    module = importlib.import_module(package)
    names = {n for n in module.__all__ if not inspect.ismodule(getattr(module, n))}
    assert names <= listed
    assert listed <= set(dir(bmfjax)) | set(module.__all__)


def test_every_sampler_is_on_a_page():
    """Modules of kernels are listed, but for helpers and for what only gathers names."""
    listed = "\n".join(path.read_text() for path in (DOCS / "samplers").glob("*.rst"))
    listed = set(re.findall(r"automodule:: (\S+)", listed))
    kernels = importlib.import_module("bmfjax.kernels")
    modules = pkgutil.walk_packages(kernels.__path__, "bmfjax.kernels.")
    found = {m.name for m in modules if not m.ispkg and ".numerics." not in m.name}
    assert found <= listed


def test_the_page_on_models_has_every_model_and_sampler():
    text = (DOCS / "models.md").read_text()
    for model, family in FAMILIES.items():
        assert f"`{model}`" in text
        for sampler in family.samplers:
            assert f"`{sampler}`" in text
    # What a name builds.
    for name, kind in SAMPLERS.items():
        row = next(line for line in text.splitlines() if f"`{kind.__name__}`" in line)
        assert f"`{name}`" in row


# ---- pages that the build writes -----------------------------------------------------------------


@pytest.fixture(scope="module")
def generated():
    pytest.importorskip("yaml", reason="PyYAML comes with the packages of the site")
    return script("generate")


@pytest.mark.parametrize("name", [*MODELS, *SAMPLERS])
def test_a_page_of_the_reference_says_what_the_fields_say(generated, name):
    kind, page = (MODELS, generated.model) if name in MODELS else (SAMPLERS, generated.sampler)
    text = page(name)
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    known = parameters(kind[name])
    assert known.keys() == rows.keys() and kind[name].summary() in text
    for field, row in rows.items():
        assert known[field].sentence.replace("``", "`").replace("|", "\\|") in row
        assert known[field].flag is None or f"`{known[field].flag.name}`" in row
        taken = generated.taken(known[field])
        with pytest.raises(InputError, match=re.escape(taken.replace("one of", "choose from"))):
            known[field].check(field, object())
    assert ":math:" not in text and "{parameters}" not in text


def test_a_notebook_becomes_a_page_with_its_outputs(generated, tmp_path):
    frame = pd.DataFrame({"a": ["<b>"]})._repr_html_()
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[next](how_sure.py)"]},
        {
            "cell_type": "code",
            "source": ["print(1)"],
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": "x"}},
                {"output_type": "execute_result", "data": {"text/html": frame, "text/plain": "x"}},
            ],
        },
    ]
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": cells}))
    generated.notebook(tmp_path / "one.ipynb", tmp_path)
    text = (tmp_path / "one.md").read_text()
    assert text.startswith(
        "# Title\n[next](how_sure.md)\n\n````python\nprint(1)\n````\n\n````text\n1\n"
    )
    assert "<td>&lt;b&gt;</td>" in text and "<style" not in text and "border" not in text
    assert "(one-1-1.png)" in text and (tmp_path / "one-1-1.png").read_bytes() == bytes(3)


def test_every_work_of_the_citation_file_is_in_bibtex(generated):
    text = generated.bibtex()
    keys = re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE)
    works = (ROOT / "CITATION.cff").read_text().count("\n  - type: ")
    assert len(set(keys)) == len(keys) == works + 1 and "Rukat, Tammo and Holmes, Chris" in text
    page = (DOCS / "citing.md").read_text()
    cited = set(re.findall(r"\b[a-z]+(?:19|20)\d\d\b", page))
    assert cited and cited <= set(keys)
    assert all(f"`{name}`" in page for name in (*MODELS, *SAMPLERS, "SGLD", "SGHMC"))


def test_names_that_differ_by_case_alone_have_files_of_their_own(generated):
    apart, files = generated.files_apart(), []
    assert apart["bmfjax.fit"] != apart["bmfjax.Fit"]
    for page in (DOCS / "api").glob("*.rst"):
        module = re.search(r"module:: (\S+)", page.read_text())
        listed = re.findall(r"^   ([A-Za-z]\w+)$", page.read_text(), re.MULTILINE)
        files += [f"{module[1]}.{name}" for name in listed if module]
    names = {apart.get(name, name).lower() for name in files}
    assert len(names) == len(files) > 100
