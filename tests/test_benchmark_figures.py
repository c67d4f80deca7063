"""A figure in the README or on a page of the site has a record, which is linked where it stands.

A section without a link to a record, or to a question of the benchmarks, has no figure but bounds
of rules, widths of intervals and versions. In one with links, every decimal of three digits or more
is a figure of one of these records, or of one in another unit where a unit stands behind it, at the
head of its table or right before that. Of records of many numbers this says little: these have a
page that is made from them, as `test_large_records_have_a_page_that_is_made` holds.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import pages

ROOT = Path(__file__).parents[1]
#: Pages that are made from records as a whole.
MADE = {"panel.md", "from-the-papers.md", "benchmarks.md"}
PAGES = [ROOT / "README.md", *(p for p in (ROOT / "docs").glob("*.md") if p.name not in MADE)]
#: What is not measured: page, section, and what stands there.
NOT_MEASURED = {
    ("README.md", "Try it"): {"3.11", "3.12", "3.13"},
    ("accelerators.md", "Memory"): {"30 %"},
    ("chains.md", "How large R-hat may be"): {"1.01", "1.05"},
    ("chains.md", "What it looks like"): {"99 %", "95 %", "0.025", "0.05", "1.01"},
    ("first-fit.md", "Look at the factors"): {"90 %"},
    ("install.md", "Install"): {"3.11", "3.12", "3.13"},
    ("large.md", "Several fits in processes of Python"): {"3.13"},
    ("models.md", "Binary features"): {"90 %"},
    ("numpyro.md", "A fit in ArviZ"): {"0.22", "3.11", "3.12", "3.13"},
    ("ratings.md", "Predict cells that were held out"): {"90 %"},
    ("ratings.md", "Priors"): {"10 s"},
    ("ratings.md", "Recommend"): {"90 %"},
    ("report.md", "Do the chains agree?"): {"1.01", "1.05"},
    ("report.md", "Does the model fit?"): {"60 %", "95 %"},
    ("report.md", "The verdict"): {"99 %", "95 %", "5 %", "0.025", "0.05", "0.002 nats"},
}
#: In the answers: bounds, what is published or computed from a record, and numbers of figures.
NOT_IN_RECORD = {
    "logistic_recall": {"0.398"}, "long_matrix": {"1.01"}, "movielens": {"0.845"},
    "mushroom": {"1.01"}, "ormachine_figures": {"14.9"},
    "ormachine_starts": {"103.2", "103.5", "108.3", "96.4"},
    "planted_features": {"0.912", "0.949", "95.3", "97.9", "98.9"},
    "panpal_pull": {"2.16"}, "pmf_calibration": {"89.6"}, "scaling": {"1.05"},
    "thesis_figures": {"4.12"},
}  # fmt: skip
_UNIT = r"(?:ms|s|seconds|minutes|hours|GB|MB|times|nats)\b|%"
_FIGURE = re.compile(
    rf"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:\s(?:to|and)\s\d[\d,.]*)?\s(?:{_UNIT})|(?<![\w.-])\d+\.\d\d+"
)
_DECIMAL = re.compile(r"(?<![\w.,-])[\d,]*\d\.\d+(?![\d.]*\w)")
_RECORD = re.compile(r"benchmarks/results/([\w-]+)\.json")
_QUESTION = re.compile(r"benchmarks(?:\.md|/README\.md)#([\w-]+)")
_PAGE = re.compile(r"(?:measured|from-the-papers|panel|benchmarks)\.md")
#: From the unit of a record to that of a page: shares, seconds or milliseconds, bytes or MB.
SCALES = {
    "%": (1e2,), "per cent": (1e2,), "ms": (1e3,), "s": (1e-3,), "seconds": (1e-3,),
    "minutes": (1 / 60,), "hours": (1 / 3600,), "MB": (1e-6, 2.0**-20, 2.0**-10),
    "GB": (1e-9, 1e-3, 2.0**-30, 2.0**-10), "billion": (1e-9,),
}  # fmt: skip
_UNITS = "|".join(rf"{unit}(?!\w)" for unit in SCALES)
#: What follows a figure: an error, or more figures of the same unit, and the unit.
_BEHIND = re.compile(rf"(?:,? (?:±|to|and|or|beside)? ?[\d,.]*\d(?= ))*[\s-]*({_UNITS})")
#: Numbers above which nearly any decimal is near one.
MANY = 500


def sections(text: str):
    """Yield titles of sections, and what stands there but code and formulas."""
    for pattern in (r"(?ms)^ *(`{3,}).*?^ *\1 *$", r"(?s)<!--.*?-->", r"(?s)\$\$.*?\$\$|\$[^$]*\$"):
        text = re.sub(pattern, "", text)
    for section in re.split(r"(?m)^(?=#{1,4} )", text):
        yield section.partition("\n")[0].lstrip("# "), re.sub(r"(?<![\w}])`[^`\n]*`", "", section)


def without_targets(section: str) -> str:
    """Return what a reader reads of links."""
    return re.sub(r"\([^)\s]*\.(?:md|json|png)[^)]*\)|<[^>]*>", "", section)


def numbers(value):
    """Yield all numbers of a record, keys among them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part)
            if re.fullmatch(r"[\d.]+", key):
                yield float(key)
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, (int, float)):
        yield abs(float(value))


def place_of(module) -> str:
    """Return where the question of a script stands on the page of benchmarks."""
    return re.sub(r"[^\w\- ]", "", pages.question(module).lower()).replace(" ", "-")


@pytest.fixture(scope="module")
def answers() -> dict[str, list[str]]:
    """The records behind every question, by its place on the page of benchmarks."""
    found, records = {}, pages.read_records(pages.RESULTS)
    for name, module in pages.every().items():
        place = place_of(module)
        own = pages.pages_of(name, module)
        found[place] = [r for r in records if any(page.shows(r) for page in own)]
    return found


def unmeasured(page: str, text: str) -> list[str]:
    """Return figures of sections without a link to what was measured."""
    found = []
    for title, section in sections(text):
        if not any(pattern.search(section) for pattern in (_RECORD, _QUESTION, _PAGE)):
            figures = {figure[0] for figure in _FIGURE.finditer(without_targets(section))}
            found += sorted(figures - NOT_MEASURED.get((page, title), set()))
    return found


def decimals(section: str):
    """Yield decimals with the units that they may have."""
    before = ""
    for block in re.split(r"\n\s*\n", section):
        lines = block.strip().splitlines()
        is_table = bool(lines) and lines[0].startswith("|")
        head = f"{before} {lines[0]}" if is_table else ""
        units = set(re.findall(rf"(?<!\w)(?:{_UNITS})", head))
        for found in _DECIMAL.finditer(block):
            behind = _BEHIND.match(re.sub(r"\s+", " ", block[found.end() :]))
            yield found[0], units | ({behind[1]} if behind else set())
        before = block


def unrecorded(text: str, answers: dict[str, list[str]], records) -> list[str]:
    """Return decimals of sections that are in none of the records which these link."""
    found = []
    for title, section in sections(text):
        linked = set(_RECORD.findall(section))
        for place in _QUESTION.findall(section):
            linked |= set(answers.get(place.replace("-s-", "s-"), answers.get(place, ())))
        known = np.unique([n for name in linked for n in numbers(records[name]["figures"])])
        known = known[known < 1e15]
        for decimal, units in decimals(without_targets(section)) if linked else ():
            value, digits = float(decimal.replace(",", "")), len(decimal.partition(".")[2])
            scales = {1.0}.union(*(SCALES[unit] for unit in units))
            near = [
                np.abs(known * scale - value).min() <= 0.500001 / 10**digits for scale in scales
            ]
            if len(re.sub(r"\D", "", decimal).lstrip("0")) >= 3 and not any(near):
                found.append(f"{title}: {decimal}")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_figure_has_a_record(path, answers):
    text = path.read_text()
    assert not unmeasured(path.name, text), "link the record of these figures"
    found = unrecorded(text, answers, pages.read_records(pages.RESULTS))
    assert not found, "these are in none of the records that their sections link"


def test_a_figure_of_an_answer_is_in_its_record(answers):
    records = pages.read_records(pages.RESULTS)
    for name, module in pages.every().items():
        text = re.sub(r"(?m)^\| published.*$", "", getattr(module, "ANSWER", ""))
        own = answers[place_of(module)] + re.findall(r"results/([\w-]+)\.json", text)
        linked = " ".join(
            f"benchmarks/results/{record}.json" for record in own if record in records
        )
        found = {one.rpartition(" ")[2] for one in unrecorded(f"{text} {linked}", {}, records)}
        assert found <= NOT_IN_RECORD.get(name, set()), f"{name}: {found}"


def test_a_figure_without_a_record_is_seen(answers):
    text = "## Speed\n\nA sweep takes 85 ms, 0.123 of `0.999` s.\n"
    assert unmeasured("page.md", text) == ["0.123", "85 ms"]
    record = {"speed": {"figures": {"rows": [{"seconds": 0.0851}], "best": {"12.34": None}}}}
    linked = text.replace("A sweep", "[A sweep](../benchmarks/results/speed.json)")
    assert unmeasured("page.md", linked) == []
    assert unrecorded(linked, answers, record) == ["Speed: 0.123"]
    assert unrecorded(linked.replace("0.123 of", "12.34 or 85.1 ms of"), answers, record) == []
    # In milliseconds or per cent, and not without a unit.
    assert unrecorded(linked.replace("0.123", "85.1"), answers, record) == ["Speed: 85.1"]
    assert unrecorded(linked.replace("0.123", "8.51 %"), answers, record) == []
    table = "# A\n[A](benchmarks/results/speed.json)\n\n| time, ms |\n| --- |\n| 85.1 |"
    assert unrecorded(table, answers, record) == []
    assert unrecorded(table.replace(", ms", ""), answers, record) == ["A: 85.1"]


def test_large_records_have_a_page_that_is_made():
    every = [page for n, m in pages.every().items() for page in pages.pages_of(n, m)]
    for name, record in pages.read_records(pages.RESULTS).items():
        if len(list(numbers(record["figures"]))) > MANY:
            assert any(page.shows(name) for page in every), name
