"""Pages that the build writes: of models and samplers, from their fields, and of notebooks.

`conf.py` calls `write`. A page of a model or a sampler says what its fields say, so that nothing is
written twice; that of a notebook has the outputs that it stores; and the BibTeX file is made of
`CITATION.cff`.
"""

import base64
import inspect
import json
import re
import shutil
import unicodedata
from collections import Counter
from pathlib import Path

import yaml

from bmfjax.errors import InputError
from bmfjax.families import FAMILIES
from bmfjax.specs import MODELS, SAMPLERS
from bmfjax.specs.base import OF_RANK, parameters

DOCS = Path(__file__).parent
#: Folders that hold these pages, and nothing else.
REFERENCE, NOTEBOOKS = DOCS / "reference", DOCS / "notebook"


def write() -> None:
    """Write all pages anew."""
    for folder in (REFERENCE, NOTEBOOKS):
        shutil.rmtree(folder, ignore_errors=True)
    for kind, known, page in (("models", MODELS, model), ("samplers", SAMPLERS, sampler)):
        (REFERENCE / kind).mkdir(parents=True)
        for name in known:
            (REFERENCE / kind / f"{name}.md").write_text(page(name), encoding="utf-8")
    (REFERENCE / "bmfjax.bib").write_text(bibtex(), encoding="utf-8")
    NOTEBOOKS.mkdir()
    for path in sorted((DOCS.parent / "notebooks").glob("*.ipynb")):
        notebook(path, NOTEBOOKS)


def files_apart() -> dict[str, str]:
    """Return files for names that differ by case alone, which some disks hold to be the same."""
    pages = (DOCS / "api").glob("*.rst")
    names = [
        f"{module[1]}.{name}"
        for text in (page.read_text(encoding="utf-8") for page in pages)
        if (module := re.search(r"^\.\. module:: (\S+)", text, re.MULTILINE))
        for name in re.findall(r"^   (\w+)$", text, re.MULTILINE)
    ]
    count = Counter(name.lower() for name in names)
    return {
        name: f"{name}-{'class' if name.rpartition('.')[2][0].isupper() else 'function'}"
        for name in names
        if count[name.lower()] > 1
    }


# ---- models and samplers -------------------------------------------------------------------------


def model(name: str) -> str:
    """Return the page of a model."""
    kind, family = MODELS[name], FAMILIES[name]
    samplers = [
        f"| [{one.name}](../samplers/{one.name}.md) | {'exact' if made.exact else 'approximate'} "
        f"| {', '.join(f'`{option}`' for option in made.options) or 'none'} "
        f"| {_yes(one.name in family.finds_rank)} | {_yes(one.name in family.on_mesh)} |"
        for one, made in kind.samplers.items()
    ]
    lines = [
        f"# Model {name}",
        f'{{py:obj}}`bmfjax.{kind.__name__}`, or `model="{name}"`; `--model {name}` on the command '
        "line, where `--prior-value NAME=VALUE` sets parameters without a flag.",
        _about(kind),
        f"Anchors (known factors): {_yes(family.takes_anchors)}. "
        f"Attributes of rows and columns: {_yes(family.takes_attributes)}.",
        "## Parameters",
        _table(kind),
        "## Samplers",
        "The first is the default.\n",
        "| sampler | draws | its options here | finds the number of factors | runs on a mesh |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n\n".join(lines[:-2]) + "\n" + "\n".join([*lines[-2:], *samplers]) + "\n"


def sampler(name: str) -> str:
    """Return the page of a sampler."""
    kind = SAMPLERS[name]
    of = [m for m in MODELS.values() if kind in m.samplers]
    has = "\n".join(
        f"| [{m.name}](../models/{m.name}.md) | "
        f"{'exact' if m.samplers[kind].exact else 'approximate'} | "
        f"{', '.join(f'`{option}`' for option in m.samplers[kind].options) or 'none'} |"
        for m in of
    )
    lines = [
        f"# Sampler {name}",
        f'{{py:obj}}`bmfjax.{kind.__name__}`, or `sampler="{name}"`; `--sampler {name}` on the '
        "command line. See [how the samplers work](../../samplers/index.rst).",
        _about(kind),
        "## Options",
        _table(kind),
        "## Models",
        f"| model | draws | options |\n| --- | --- | --- |\n{has}",
    ]
    return "\n\n".join(lines) + "\n"


def _about(kind) -> str:
    """Return what the documentation of a class says beside its parameters, in Markdown."""
    text = re.split(r"^\w[\w ]*\n-{3,}$", inspect.getdoc(kind), maxsplit=1, flags=re.MULTILINE)[0]
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text.replace("``", "`"))
    block = r"\.\. math::\n+((?:[ ]+.*\n?|\n)+)"
    return re.sub(block, lambda m: f"$$\n{inspect.cleandoc(m[1])}\n$$\n\n", text).strip()


def _table(kind) -> str:
    rows = ["| name | default | takes | flag | what it is |", "| --- | --- | --- | --- | --- |"]
    for name, known in parameters(kind).items():
        default = "" if known.default is None else f"`{known.default!r}`"
        flag = f"`{known.flag.name}`" if known.flag else ""
        if name in OF_RANK:
            flag = f"`--{name.replace('_', '-')}`"
        cells = [f"`{name}`", default, taken(known), flag, known.sentence.replace("``", "`")]
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows)


def taken(known) -> str:
    """Return what a field takes, in the words by which its check refuses all else."""
    try:
        known.check(known.name, object())
    except InputError as refused:
        wanted = str(refused).partition("; ")[2]
        return wanted.removeprefix("give ").replace("choose from", "one of")
    return known.kind


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


# ---- citations -----------------------------------------------------------------------------------

#: Entries of BibTeX for types of a citation file, and the fields that each has.
_TYPES = {"software": "software", "thesis": "mastersthesis", "article": "article"}
_TYPES |= {"conference-paper": "inproceedings", "generic": "misc"}
_FIELDS = {"journal": "journal", "collection-title": "booktitle", "volume": "volume"}
_FIELDS |= {"issue": "number", "version": "version", "year": "year"}


def bibtex() -> str:
    """Return the software and the papers of `CITATION.cff` as BibTeX."""
    known = yaml.safe_load((DOCS.parent / "CITATION.cff").read_text(encoding="utf-8"))
    return "\n\n".join(map(_entry, [known, *known["references"]])) + "\n"


def _entry(work) -> str:
    people = [
        one.get("name") or f"{one['family-names']}, {one['given-names']}" for one in work["authors"]
    ]
    # Names of groups are no names and surnames.
    people = [f"{{{one}}}" if "," not in one else one for one in people]
    fields = {"author": " and ".join(people), "title": f"{{{work['title']}}}"}
    fields |= {name: work[key] for key, name in _FIELDS.items() if key in work}
    if "institution" in work:
        fields["school"] = work["institution"]["name"]
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{_TYPES[work['type']]}{{{_key(work, people)},\n{lines}\n}}"


def _key(work, people) -> str:
    """Return a key such as rukat2017, without accents."""
    first = "bmfjax" if work["type"] == "software" else people[0].partition(",")[0]
    plain = unicodedata.normalize("NFKD", f"{first}{work.get('year', '')}")
    return re.sub(r"[^a-z0-9]", "", plain.lower())


# ---- notebooks -----------------------------------------------------------------------------------


#: A data frame as pandas writes it for a notebook, and as the theme shows tables.
_TABLE = re.compile(r'<table border="1" class="dataframe">(.*?)</table>', re.DOTALL)
_FRAME = """````{{raw}} html
<div class="table-wrapper docutils container"><table class="docutils">{}</table></div>
````"""


def notebook(path: Path, folder: Path) -> None:
    """Write a notebook as a page with its outputs, and its pictures beside it."""
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            # Links to other scripts lead to their pages.
            parts.append(re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", source))
            continue
        parts.append(f"````python\n{source}\n````")
        for at, output in enumerate(cell["outputs"]):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{path.stem}-{number}-{at}.png"
                (folder / name).write_bytes(base64.b64decode("".join(data["image/png"])))
                parts.append(f"![what the cell draws]({name})")
            elif table := _TABLE.search("".join(data.get("text/html", ""))):
                parts.append(_FRAME.format(table[1]))
            else:
                parts.append(f"````text\n{''.join(data['text/plain']).rstrip()}\n````")
    script = f"{{download}}`{path.stem}.py <../../notebooks/{path.stem}.py>`"
    stored = f"{{download}}`{path.name} <../../notebooks/{path.name}>`"
    parts.append(f"The script is {script}, and the notebook {stored}.")
    (folder / f"{path.stem}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
