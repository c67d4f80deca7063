"""A figure in the README or on a page of the site has a record, which is linked where it stands.

A section without a link to a record, or to a question of the benchmarks, has no figure but bounds
of rules, widths of intervals and versions. In one with links, every decimal of three digits or more
is a figure of one of these records, or of one in another unit where a unit stands behind it, at the
head of its table or right before that. A figure of a record of many numbers has a key or a name on
its way through the record that stands beside it, too, and these records have a page that is made
from them. How many figures with other digits pass nevertheless, `test_other_digits_are_seen` holds.
"""

import functools
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import pages

ROOT = Path(__file__).parents[1]
RECORDS = pages.read_records(pages.RESULTS)
#: Pages that are made from records as a whole.
MADE = {"panel.md", "from-the-papers.md", "benchmarks.md"}
PAGES = [ROOT / "README.md", *(p for p in (ROOT / "docs").glob("*.md") if p.name not in MADE)]
#: What is not measured: page, section, and what stands there.
NOT_MEASURED = {
    ("README.md", "Try it"): {"3.11", "3.12", "3.13"},
    ("accelerators.md", "Memory"): {"30 %"},
    ("chains.md", "How large R-hat may be"): {"0.05", "0.95", "1.01", "1.05"},
    # The last three are what one, two or three of four chains say by Bayes' rule.
    ("chains.md", "What it looks like"): {
        "99 %", "95 %", "0.025", "0.05", "0.25", "1.01", "0.28", "0.12", "0.04",
    },
    ("first-fit.md", "Fit"): {"90 %"},
    ("first-fit.md", "Look at the factors"): {"90 %"},
    ("install.md", "Install"): {"3.11", "3.12", "3.13"},
    ("large.md", "Several fits in processes of Python"): {"3.13"},
    ("models.md", "Binary features"): {"90 %"},
    ("numpyro.md", "A fit in ArviZ"): {"0.22", "3.11", "3.12", "3.13"},
    ("ratings.md", "Predict cells that were held out"): {"90 %"},
    ("ratings.md", "Priors"): {"10 s"},
    ("ratings.md", "Recommend"): {"90 %"},
    ("report.md", "Do the chains agree?"): {"1.01", "1.05"},
    ("report.md", "Does the model fit?"): {"60 %", "90 %", "95 %", "0.025"},
    ("report.md", "The factors"): {"0.95"},
    ("report.md", "The verdict"): {
        "99 %", "95 %", "90 %", "5 %", "0.025", "0.05", "0.002 nats",
    },
}  # fmt: skip
#: In the answers: bounds, what is published or computed from a record, and numbers of figures.
NOT_IN_RECORD = {
    "logistic_recall": {"0.398"}, "long_matrix": {"1.01"}, "movielens": {"0.845"},
    "mushroom": {"1.01"}, "ormachine_figures": {"14.9"},
    "ormachine_starts": {"103.2", "103.5", "108.3", "96.4"},
    "planted_features": {"0.979", "0.992", "95.8", "97.8", "97.9", "98.7"},
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
    found = {}
    for name, module in pages.every().items():
        place = place_of(module)
        own = pages.pages_of(name, module)
        found[place] = [r for r in RECORDS if any(page.shows(r) for page in own)]
    return found


def unmeasured(page: str, text: str) -> list[str]:
    """Return figures of sections without a link to what was measured."""
    found = []
    for title, section in sections(text):
        if not any(pattern.search(section) for pattern in (_RECORD, _QUESTION, _PAGE)):
            figures = {figure[0] for figure in _FIGURE.finditer(without_targets(section))}
            found += sorted(figures - NOT_MEASURED.get((page, title), set()))
    return found


def words_of(text: str) -> frozenset[str]:
    """Return the words and the whole numbers of a text."""
    found = re.findall(r"[A-Za-z]{3,}|(?<![\d.])\d+(?!\.?\d)", text)
    return frozenset(map(str.lower, found))


def leaves(value, words: frozenset[str] = frozenset()):
    """Yield all numbers of a record with the words on their way: keys, and names in their row."""
    if isinstance(value, dict):
        beside = words.union(*(words_of(part) for part in value.values() if isinstance(part, str)))
        for key, part in value.items():
            yield from leaves(part, beside | words_of(key))
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part, words)
    elif isinstance(value, (int, float)):
        yield abs(float(value)), words


@functools.cache
def known(name: str, words: frozenset[str]) -> np.ndarray:
    """Return the numbers of a record; of one of many those that words beside a figure lead to.

    Words that three quarters of its numbers have lead nowhere.
    """
    found = RECORDS[name]["figures"]
    every = [*numbers(found)]
    if len(every) > MANY:
        way = [*leaves(found)]
        count = Counter(word for _, own in way for word in own)
        common = {word for word, times in count.items() if times > 0.75 * len(way)}
        every = [number for number, own in way if not own - common or (own - common) & words]
    return np.array([number for number in every if number < 1e15])


def decimals(section: str):
    """Yield decimals with the units that they may have, and what stands beside."""
    before = ""
    for block in re.split(r"\n\s*\n", section):
        text = without_targets(block)
        lines = text.strip().splitlines()
        is_table = bool(lines) and lines[0].startswith("|")
        head = f"{before} {lines[0]}" if is_table else ""
        units = set(re.findall(rf"(?<!\w)(?:{_UNITS})", head))
        for found in _DECIMAL.finditer(text):
            behind = _BEHIND.match(re.sub(r"\s+", " ", text[found.end() :]))
            yield found[0], units | ({behind[1]} if behind else set()), f"{head} {text}"
        before = text


def measured(text: str, answers: dict[str, list[str]]):
    """Yield decimals of sections with links: section, text, and whether a text of its kind fits."""
    for title, section in sections(text):
        linked = set(_RECORD.findall(section))
        for place in _QUESTION.findall(section):
            linked |= set(answers.get(place.replace("-s-", "s-"), answers.get(place, ())))
        for decimal, units, beside in decimals(section) if linked else ():
            if len(re.sub(r"\D", "", decimal).lstrip("0")) < 3:
                continue
            words = words_of(f"{title} {beside}")
            values = np.concatenate([known(name, words) for name in sorted(linked)])
            scales = {1.0}.union(*(SCALES[unit] for unit in units))

            def fits(decimal, values=values, scales=scales):
                value = float(decimal.replace(",", ""))
                most = 0.500001 / 10 ** len(decimal.partition(".")[2])
                return any((np.abs(values * scale - value) <= most).any() for scale in scales)

            yield title, decimal, fits


def unrecorded(text: str, answers: dict[str, list[str]]) -> list[str]:
    """Return decimals of sections that are in none of the records which these link."""
    found = measured(text, answers)
    return [f"{title}: {decimal}" for title, decimal, fits in found if not fits(decimal)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_figure_has_a_record(path, answers):
    text = path.read_text()
    assert not unmeasured(path.name, text), "link the record of these figures"
    found = unrecorded(text, answers)
    assert not found, "these are in none of the records that their sections link"


def texts_of_answers(answers):
    """Yield names of scripts, and their answers with links to all records of their pages."""
    for name, module in pages.every().items():
        text = re.sub(r"(?m)^\| published.*$", "", getattr(module, "ANSWER", ""))
        own = answers[place_of(module)] + re.findall(r"results/([\w-]+)\.json", text)
        links = (f"benchmarks/results/{record}.json" for record in own if record in RECORDS)
        yield name, f"{text} {' '.join(links)}"


def test_a_figure_of_an_answer_is_in_its_record(answers):
    for name, text in texts_of_answers(answers):
        found = {one.rpartition(" ")[2] for one in unrecorded(text, {})}
        assert found <= NOT_IN_RECORD.get(name, set()), f"{name}: {found}"


def test_other_digits_are_seen(answers):
    """Of figures whose digits are drawn anew few pass."""
    texts = {path.name: (path.read_text(), answers) for path in PAGES}
    texts |= {name: (text, {}) for name, text in texts_of_answers(answers)}
    passed = {}
    for name, given in texts.items():
        rng = np.random.default_rng(0)  # so that no text decides the digits of another
        for _, decimal, fits in measured(*given):
            others = (
                re.sub(r"[1-9]", lambda _, rng=rng: str(rng.integers(1, 10)), decimal)
                for _ in range(40)
            )
            passed.setdefault(name, []).append(np.mean([fits(other) for other in others]))
    assert np.mean(np.concatenate([*passed.values()])) < 0.12
    many = {name: np.mean(of) for name, of in passed.items() if len(of) >= 10}
    weak = {name: share for name, share in many.items() if share > 0.35}
    assert not weak


def test_a_figure_without_a_record_is_seen(answers, monkeypatch):
    text = "## Speed\n\nA sweep takes 85 ms, 0.123 of `0.999` s.\n"
    assert unmeasured("page.md", text) == ["0.123", "85 ms"]
    figures = {"rows": [{"seconds": 0.0851}], "best": {"12.34": None}}
    monkeypatch.setitem(RECORDS, "speed", {"figures": figures})
    linked = text.replace("A sweep", "[A sweep](../benchmarks/results/speed.json)")
    assert unmeasured("page.md", linked) == []
    assert unrecorded(linked, answers) == ["Speed: 0.123"]
    assert unrecorded(linked.replace("0.123 of", "12.34 or 85.1 ms of"), answers) == []
    # In milliseconds or per cent, and not without a unit.
    assert unrecorded(linked.replace("0.123", "85.1"), answers) == ["Speed: 85.1"]
    assert unrecorded(linked.replace("0.123", "8.51 %"), answers) == []
    table = "# A\n[A](benchmarks/results/speed.json)\n\n| time, ms |\n| --- |\n| 85.1 |"
    assert unrecorded(table, answers) == []
    assert unrecorded(table.replace(", ms", ""), answers) == ["A: 85.1"]
    # Of a record of many numbers those alone that words beside lead to.
    many = {"zoo": {f"row {k}": 0.001 * k for k in range(600)}, "votes": [0.9876]}
    monkeypatch.setitem(RECORDS, "large", {"figures": many})
    text = "# A\n[A](benchmarks/results/large.json): 0.988 on votes"
    assert unrecorded(text, answers) == []
    assert unrecorded(text.replace("votes", "the zoo"), answers) == ["A: 0.988"]
    assert unrecorded(text.replace("0.988 on votes", "0.123 of row 123"), answers) == []
    assert unrecorded(text.replace("0.988 on votes", "0.123 of row 122"), answers) == ["A: 0.123"]


def test_large_records_have_a_page_that_is_made():
    every = [page for n, m in pages.every().items() for page in pages.pages_of(n, m)]
    for name, record in RECORDS.items():
        if len(list(numbers(record["figures"]))) > MANY:
            assert any(page.shows(name) for page in every), name
