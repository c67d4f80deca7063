"""The page of the panel: what each model predicts, at what cost, and whether its word is true.

`python -m benchmarks.prediction.panel_page` also writes `docs/panel.md`, and the table in
`docs/models.md`.
"""

import itertools
import json
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.form import Records, number, percent, table
from benchmarks.prediction.panel_baselines import TUNED
from benchmarks.prediction.panel_data import PLANTED, RATED, SETS
from benchmarks.prediction.panel_models import FITS, RATINGS_FITS
from benchmarks.prediction.panel_ratings import METHODS

ROOT = Path(__file__).parents[2]
PAGE, MODELS_PAGE = ROOT / "docs" / "panel.md", ROOT / "docs" / "models.md"
MARKS = "<!-- made by benchmarks/prediction/panel_page.py -->", "<!-- end -->"
CLASSES, SIGNED, POSITIVE = "latent classes", "features, signed", "features, positive"
#: Names of models and matrices that readers would not know by the short one of the record.
LABELS = {
    "logistic": "logistic factorisation, tuned", "nmf": "NMF, tuned", "bmfjax nmf": "nmf",
    "bmfjax pmf": "pmf", "latent classes": "latent classes, tuned",
    "effects of users and items": "effects alone",
    "logistic, effects": "logistic, variational, effects and rank tried",
}  # fmt: skip
NAMES = {
    "bci": "trees", "bob-ross": "Bob Ross", "dna": "DNA", "fraction": "fractions",
    "lastfm": "artists", "mushroom": "mushrooms", "news100": "words", "pancan": "tumours",
    "pbmc": "cells", "movielens-100k": "MovieLens 100K", "movielens-small": "MovieLens small",
}  # fmt: skip
#: Nats below the best that are as good.
NEAR = 0.005
REFUSED = "Do not rely"
#: What a verdict says of a fit whose draws are of its warm-up, or of its start.
STARTED = "the warm-up was cut short"
#: What a verdict begins with where one chain alone found the solution, or there was one chain.
UNCHECKED = "Not checked:"
#: What is said of a part of a fit, for tables.
WORDS = {True: "holds", False: "does not", None: "not compared"}


def is_fit(cell: dict) -> bool:
    """Whether a cell is of a model of bmfjax, which has a verdict."""
    return "verdict" in cell


def scored(cells: dict) -> dict:
    """Return the cells that have a score."""
    return {name: cell for name, cell in cells.items() if "log_score" in cell}


def finished(cells: dict) -> dict:
    """Return the cells that have a score, but for fits whose time was up in the warm-up."""
    return {n: cell for n, cell in scored(cells).items() if STARTED not in cell.get("verdict", "")}


def models_of(sets: dict, names: Iterable[str], kept=scored) -> list[str]:
    """Return the models of some sets: those of bmfjax, then the others, each best first."""
    found: dict[str, list[float]] = {}
    fits = set()
    for name in names:
        cells = kept(sets.get(name, {}))
        best = max((cell["log_score"] for cell in cells.values()), default=0.0)
        for model, cell in cells.items():
            found.setdefault(model, []).append(cell["log_score"] - best)
            if is_fit(cell):
                fits.add(model)
    return sorted(found, key=lambda m: (m not in fits, -statistics.mean(found[m])))


def label(model: str) -> str:
    """Return the name of a model for readers; those of bmfjax as code."""
    return LABELS.get(model, model)


def is_calibrated(cell: dict) -> bool:
    """Whether the calibration error is one that chance gives a true model in 95 % of cases."""
    most = cell.get("calibration_error_by_draws", 0.0), cell["calibration_error_by_chance"]
    return cell["calibration_error"] <= max(most)


def is_compared(cell: dict) -> bool:
    """Whether more than one chain found what a fit says, so that its parts could be compared."""
    return UNCHECKED not in cell["verdict"]


def said_to_hold(cell: dict) -> bool | None:
    """Whether a verdict says that predictions hold; None where nothing was compared."""
    if not is_compared(cell):
        return None
    return (
        cell["holds"]["predictions"] if "holds" in cell else "predictions hold (" in cell["verdict"]
    )


def usual(sets: dict) -> str | None:
    """Return the processor of most fits; seconds of another one are marked."""
    found = Counter(
        cell.get("processor")
        for of in sets.values()
        for cell in filter(is_fit, scored(of).values())
    )
    return max(found, key=found.__getitem__, default=None)


def seconds(cells: Iterable[dict], processor: str | None, digits: int, mean=statistics.median):
    """Write the processor seconds of cells; with a star where they are of another processor."""
    cells = list(cells)
    here = [cell for cell in cells if cell.get("processor") == processor]
    text = number(mean(cell["cpu_seconds"] for cell in here or cells), digits)
    return text if here else f"{text} *"


def elsewhere(sets: dict) -> str:
    """Say what a star at seconds means, and how much slower or faster that processor is."""
    cells, here = [cell for of in sets.values() for cell in scored(of).values()], usual(sets)
    if not any(cell.get("processor") != here for cell in cells):
        return ""
    pairs = [
        (cell["elsewhere"]["cpu_seconds"], cell["cpu_seconds"])
        for cell in cells if "elsewhere" in cell
    ]  # fmt: skip
    ratios = [before / now for before, now in pairs if min(before, now) >= 1.0]
    return " With a star they are of another processor" + (
        f", on which plain models took {number(statistics.median(ratios), 1)} times as long "
        f"(median of {len(ratios)} cells that were run on both)."
        if ratios
        else "."
    )


def counts(sets: dict) -> dict[tuple[bool | None, bool], int]:
    """Return how many fits there are by whether predictions hold, said and by calibration."""
    found = {(said, so): 0 for said in WORDS for so in (True, False)}
    for name in SETS:
        for cell in filter(is_fit, finished(sets.get(name, {})).values()):
            found[said_to_hold(cell), is_calibrated(cell)] += 1
    return found


def against(sets: dict, model: str, other: str, within: float = 0.0) -> tuple[int, int]:
    """Return on how many matrices a model is at most `within` below another, and of how many."""
    both = [
        cells
        for cells in map(finished, map(lambda n: sets.get(n, {}), SETS))
        if {model, other} <= {*cells}
    ]
    better = [c for c in both if c[model]["log_score"] >= c[other]["log_score"] - within]
    return len(better), len(both)


# ---- tables --------------------------------------------------------------------------------------


def summary(sets: dict) -> str:
    """Return a table with a line a model, over the matrices of ones and zeros."""
    rows, processor = [], usual(sets)
    for model in models_of(sets, SETS, finished):
        cells = {n: c[model] for n in SETS if model in (c := finished(sets.get(n, {})))}
        best = {n: max(c["log_score"] for c in finished(sets[n]).values()) for n in cells}
        gains = [
            cell["log_score"] - sets[n][CLASSES]["log_score"]
            for n, cell in cells.items() if CLASSES in finished(sets[n])
        ]  # fmt: skip
        of = list(cells.values())
        fits = [cell for cell in of if is_fit(cell)]
        covered = [cell["coverage"] for cell in of if "coverage" in cell]
        memory = [cell["peak_mb"] for cell in of if "peak_mb" in cell]
        rows.append([
            label(model), len(of), number(statistics.mean(gains), 3) if gains else "",
            sum(cell["log_score"] >= best[n] - NEAR for n, cell in cells.items()),
            number(statistics.mean(cell["auc"] for cell in of), 3),
            sum(map(is_calibrated, of)),
            number(100 * statistics.mean(covered), 0) if covered else "",
            seconds(of, processor, 1),
            number(max(memory)) if memory else "",
            _share_that_holds(fits),
        ])  # fmt: skip
    header = [
        "model", "matrices", "gain", "best", "AUC", "calibrated", "coverage, %", "CPU s", "MB",
        "predictions hold",
    ]  # fmt: skip
    return table(header, rows)


def _share_that_holds(fits: list[dict]) -> str:
    """Write in how many fits predictions are said to hold, and how many were not compared."""
    said = [said_to_hold(fit) for fit in fits]
    alone = said.count(None)
    held = [f"{said.count(True)} of {len(said) - alone}"] * (alone < len(said))
    return ", ".join(held + [f"{alone} not compared"] * (alone > 0))


def score_tables(sets: dict, columns: int = 7) -> Iterable[str]:
    """Yield tables of log scores, models by matrices."""
    names, models = [n for n in SETS if n in sets], models_of(sets, SETS)
    for first in range(0, len(names), columns):
        some = names[first : first + columns]
        yield table(
            ["model", *(NAMES.get(n, n) for n in some)],
            [[label(model), *(_score(sets[n], model) for n in some)] for model in models],
        )


def mark(cell: dict) -> str:
    """Return the mark of a fit that says that it is not done."""
    said = cell.get("verdict", "")
    return " ‡" if STARTED in said else " †" if REFUSED in said else ""


def _score(cells: dict, model: str) -> str:
    cell = cells.get(model, {})
    if "log_score" not in cell:
        return (
            "none" if "stopped" in cell else "does not apply" * ("over" in cell.get("not_run", ""))
        )
    best = max(other["log_score"] for other in scored(cells).values())
    text = number(cell["log_score"], 3)
    text = f"**{text}**" if cell["log_score"] == best else text
    return text + mark(cell)


def absent(sets: dict) -> Iterable[str]:
    """Yield a line for each reason why cells are empty."""
    reasons: dict[str, dict[str, list[str]]] = {}
    kinds = ((SETS, ("column means", *TUNED, *FITS)), (RATED, (*METHODS, *RATINGS_FITS)))
    for names, models in kinds:
        for name, model in itertools.product(names, models):
            cell = sets.get(name, {}).get(model, {})
            if "log_score" in cell:
                continue
            why = cell.get("not_run") or ("ended without a result" if cell else "not reached")
            reasons.setdefault(why, {}).setdefault(label(model), []).append(NAMES.get(name, name))
    for why, of in reasons.items():
        told = "; ".join(
            f"{model} ({', '.join(n) if len(n) < len(SETS) else 'all'})" for model, n in of.items()
        )
        yield f"* {why}: {told}"


def cells_table(sets: dict) -> str:
    """Return a table of all cells of ones and zeros, those of fits with verdict and limit."""
    rows, processor = [], usual(sets)
    for name in SETS:
        for model, cell in scored(sets.get(name, {})).items():
            row = [
                NAMES.get(name, name), label(model), number(cell["log_score"], 4),
                number(cell["auc"], 3), number(cell["calibration_error"], 3),
                number(cell["calibration_error_by_chance"], 3),
                number(cell.get("calibration_error_by_draws"), 3),
                percent(cell.get("coverage"), 0), cell.get("rank", cell.get("number")),
                seconds([cell], processor, 1), number(cell.get("peak_mb")), "", "", "", "", "",
                cell["commit"],
            ]  # fmt: skip
            if is_fit(cell):
                row[11:16] = [
                    _allowed(cell),
                    cell["verdict"].split(",")[0].split(":")[0],
                    *_parts(cell),
                ]
            rows.append(row)
    header = [
        "matrix", "model", "log score", "AUC", "calibration error", "by chance", "by draws",
        "coverage, %", "factors", "CPU s", "MB", "allowed", "verdict", "predictions", "factors",
        "number", "commit",
    ]  # fmt: skip
    return table(header, rows)


def _parts(cell: dict) -> list[str]:
    """Write which parts of a verdict hold; an older cell has its sentence alone."""
    names = ("predictions", "factors", "number")
    if not is_compared(cell):
        return [WORDS[None]] * len(names)
    held = {"predictions": said_to_hold(cell)} | cell.get("holds", {})
    return [WORDS[held[part]] if part in held else "" for part in names]


def _allowed(cell: dict) -> str:
    for name, unit in (("max_cpu", "CPU s"), ("max_time", "s of sampling")):
        if cell.get(name) is not None:
            return f"{cell[name]:g} {unit}"
    return "any"


def ratings_table(sets: dict) -> str:
    """Return a table of the models of ratings."""
    processor = usual(sets)
    rows = [
        [NAMES.get(name, name), label(model) + mark(cell), number(cell["rmse"], 3),
         number(cell["log_score"], 3), number(100 * cell["coverage"], 1),
         number(cell["width"], 2), seconds([cell], processor, 0), number(cell.get("peak_mb")),
         cell.get("verdict", "").split(",")[0].split(":")[0]]
        for name in RATED
        for model in models_of(sets, [name])
        for cell in (sets[name][model],)
    ]  # fmt: skip
    header = [
        "ratings", "model", "RMSE", "log score", "coverage, %", "width", "CPU s", "MB", "verdict",
    ]  # fmt: skip
    return table(header, rows)


def planted_table(sets: dict) -> str:
    """Return a table of the models of the product that was planted, best first."""
    processor, cells = usual(sets), sets[PLANTED]
    rows = [
        [label(model) + mark(cell), number(cell["log_score"], 3), number(cell["auc"], 3),
         number(cell["calibration_error"], 3), number(cell["calibration_error_by_chance"], 3),
         cell.get("rank", cell.get("number")), seconds([cell], processor, 1),
         cell.get("verdict", "").split(",")[0].split(":")[0]]
        for model, cell in sorted(scored(cells).items(), key=lambda item: -item[1]["log_score"])
    ]  # fmt: skip
    header = ["model", "log score", "AUC", "calibration error", "by chance", "factors", "CPU s"]
    return table([*header, "verdict"], rows)


def trial_table(sets: dict) -> str:
    """Return the counts of what verdicts say of predictions, and what calibration says."""
    of = counts(sets)
    return table(
        ["predictions", "calibrated", "not calibrated"],
        [["said to hold", of[True, True], of[True, False]],
         ["not said to hold", of[False, True], of[False, False]],
         [WORDS[None], of[None, True], of[None, False]]],
    )  # fmt: skip


EXPLAINED = (
    "A tenth of the observed entries was hidden. Gain: mean log probability of a hidden entry "
    "(nats), less that of tuned latent classes, mean over matrices. Best: matrices on which it is "
    f"the best or at most {NEAR} nats below. Calibrated: matrices on which the calibration error "
    "in ten bins is not above the 95 % quantile that chance gives a true model. Coverage: of 90 % "
    "intervals for the ones hidden in a row or a column, mean over matrices. CPU s: median, with "
    "all compilation and the choice of settings. MB: the most of any process."
)
RULE = (
    "Fits of bmfjax find their number of factors by themselves. All other settings, and the number "
    "of the others, were chosen by a tenth of what is shown, without the hidden entries. "
    "Priors and starts of the features were chosen by trying Bob Ross, and some of votes, zoo and "
    "animals, on the same hidden entries."
)
DAGGER = (
    'The best of a matrix is bold. † marks fits whose verdict is "Do not rely on this run": they '
    "may predict best all the same, but say themselves that they are not done. ‡ marks those of "
    "them whose time was up in the warm-up, or before, while they compiled: what is scored is a "
    'start, and is left out of the means. "none": the fit ended without a result; "does not '
    'apply": the rank must be tried, or a sampler is slow, and the matrix is too large for that; '
    "what is empty was not reached. Why is told below."
)
COUNTED = (
    "Of all fits to ones and zeros but starts (‡): what the verdict says of predictions, and "
    "whether the hidden tenth is calibrated as well as chance allows. A true model would be "
    "refused by this calibration in 5 % of cases. Not compared are fits of which one chain found "
    'what the others took over ("Not checked").'
)


def tables(records: Records):
    for name, record in records.items():
        sets = record["figures"]["sets"]
        yield f"## {name}"
        yield (
            "The page of the panel has the tables of all models. Here are all cells: "
            "calibration error, beside its two quantiles by chance, of independent entries and of "
            "draws of the posterior; the most factors of any draw, or the number that was chosen; "
            "of fits the processor seconds that were allowed, and what the verdict begins with and "
            "says of its three parts; and the commit. Cells of earlier runs have no coverage and "
            f"no memory. CPU s have all compilation.{elsewhere(sets)}"
        )
        yield cells_table(sets)


# ---- pages of the guide --------------------------------------------------------------------------

#: What a matrix has, in words of those who collect such data.
ABOUT = {
    "bob-ross": "what 403 paintings show", "fraction": "right answers in a test",
    "animals": "attributes of 50 animals", "lastfm": "artists that listeners like",
    "news100": "words in posts", "pancan": "altered pathways of tumours",
    "pbmc": "genes that are on in cells", "mushroom": "attributes of mushrooms",
    "votes": "votes in a parliament", "zoo": "attributes of animals",
    "bci": "tree species on plots", "dna": "sequences near splice sites",
    "aggression": "answers to a questionnaire", "roles": "permissions of users",
}  # fmt: skip


def complete(sets: dict) -> list[str]:
    """Return the matrices that have a fit of bmfjax, and one of another."""
    return [n for n in SETS if {*map(is_fit, finished(sets.get(n, {})).values())} == {True, False}]


def best_of(cells: dict, fits: bool) -> tuple[str, dict]:
    """Return the best model of bmfjax, or the best of all others, and its cell."""
    some = {name: cell for name, cell in finished(cells).items() if is_fit(cell) == fits}
    return max(some.items(), key=lambda item: item[1]["log_score"])


def first_table(sets: dict) -> str:
    """Return a table of the best model of bmfjax, and of the best other one, for each matrix."""
    rows, processor = [], usual(sets)
    for name in complete(sets):
        (model, fit), (peer, other) = best_of(sets[name], True), best_of(sets[name], False)
        shape = " x ".join(number(n) for n in fit["shape"])
        texts = [number(cell["log_score"], 3) for cell in (fit, other)]
        best = int(other["log_score"] > fit["log_score"])
        texts[best] = f"**{texts[best]}**"
        texts[0] += mark(fit)
        rows.append([
            f"{ABOUT[name]} ({NAMES.get(name, name)}, {shape})",
            label(model), texts[0], seconds([fit], processor, 0),
            label(peer), texts[1], seconds([other], processor, 1),
        ])  # fmt: skip
    header = ["data", "best of bmfjax", "log score", "CPU s", "best other", "log score", "CPU s"]
    return table(header, rows)


#: Kinds of data, and the matrices of each.
KINDS = {
    "answers: tests, questionnaires, votes": ("fraction", "aggression", "votes"),
    "attributes, and species on plots": ("animals", "zoo", "mushroom", "bci"),
    "what is in paintings, texts, playlists": ("bob-ross", "news100", "lastfm"),
    "genes, cells, sequences": ("pancan", "pbmc", "dna"),
    "permissions of users: tiles that are nearly exact": ("roles",),
}


def gain(sets: dict, model: str, names: Iterable[str]) -> float | None:
    """Return the mean gain over latent classes; None where a matrix has no score of a model."""
    cells = [finished(sets.get(name, {})) for name in names]
    if not all({model, CLASSES} <= {*of} for of in cells):
        return None
    return statistics.mean(of[model]["log_score"] - of[CLASSES]["log_score"] for of in cells)


def kinds_table(sets: dict) -> str:
    """Return a table of what to try first, by the kind of data."""
    rows, processor = [], usual(sets)
    for kind, names in KINDS.items():
        row = [f"{kind} ({', '.join(NAMES.get(n, n) for n in names)})"]
        for fits in (True, False):
            found = [
                (value, model)
                for model in models_of(sets, names, finished)
                if any(is_fit(sets[n].get(model, {})) for n in names if n in sets) == fits
                and (value := gain(sets, model, names)) is not None
            ]
            value, model = max(found, default=(None, "none"))
            of = [sets[n][model] for n in names if value is not None]
            row += [label(model), number(value, 3)]
            row.append(seconds(of, processor, 0, statistics.mean) if of else "")
        rows.append(row)
    header = ["your data", "of bmfjax first", "gain", "CPU s", "best other", "gain", "CPU s"]
    return table(header, rows)


def ran(sets: dict) -> list[str]:
    """Return the models of bmfjax that have a score which is not of a start."""
    models = models_of(sets, SETS, finished)
    return [m for m in models if any(is_fit(sets[n].get(m, {})) for n in SETS if n in sets)]


def default_sentence(sets: dict, named: bool = True) -> str:
    """Return what the panel says of the default model; the others are `named` or were before."""
    others = [model for model in models_of(sets, SETS, finished) if model in TUNED]
    lines = []
    for model in (SIGNED, POSITIVE):
        told = [
            f"{label(other)} ({k} of {n})"
            for other in others
            for k, n in (against(sets, model, other),)
        ]
        lines.append(f"`{model}` is as good as or better than: {'; '.join(told)}.")
    names = [n for n in complete(sets) if SIGNED in finished(sets[n])]
    first = [n for n in names if best_of(sets[n], True)[0] == SIGNED]
    rest = [
        f"{NAMES.get(n, n)} ({label(model)}, by "
        f"{number(cell['log_score'] - sets[n][SIGNED]['log_score'], 3)})"
        for n in names
        if (found := best_of(sets[n], True))[0] != SIGNED
        for model, cell in (found,)
    ]  # fmt: skip
    if rest:
        lines.insert(0, f"Another is better on {'; '.join(rest)}.")
    return (
        f"The default, `features` with weights of both signs, is the best on {len(first)} of "
        f"{len(names)} matrices of the models of bmfjax that left their warm-up"
        f"{' (' + '; '.join(ran(sets)) + ')' if named else ''}. " + " ".join(lines)
    )


def section(sets: dict) -> str:
    """Return the part of the page on models that is made of the record."""
    return "\n\n".join([
        MARKS[0],
        "On {download}`a panel <../benchmarks/results/panel.json>` of "
        f"{sum(n in sets for n in SETS)} real matrices a tenth of the entries was hidden. [The "
        "panel](panel.md) has all models, costs and verdicts. The gain is the mean log probability "
        "of a hidden entry (nats), less that of tuned latent classes; CPU s are of a matrix, with "
        f"all compilation.{elsewhere(sets)} Of bmfjax these left their warm-up there: "
        f"{'; '.join(ran(sets))}. For tiles, and for models that are not among these, the table "
        "above holds:",
        kinds_table(sets),
        "Take the first where you need factors, intervals and a verdict. Where you need nothing "
        "but predicted entries, in seconds, the best other may do.",
        default_sentence(sets, named=False),
        MARKS[1],
    ])  # fmt: skip


def page_of(sets: dict) -> str:
    """Return the text of the page of the panel."""
    said = counts(sets)
    held, refused, alone = (said[word, True] + said[word, False] for word in (True, False, None))
    blocks = [
        "# Which model predicts best?",
        "A tenth of the entries of "
        f"{sum(n in sets for n in SETS)} real matrices of ones and zeros was hidden, and a part of "
        f"{sum(n in sets for n in RATED)} sets of ratings. A model gives each hidden entry a "
        "probability, or an interval; what was not reached is told below. "
        "`python -m benchmarks.prediction.panel_page` makes this page "
        "of {download}`the record <../benchmarks/results/panel.json>`; [the "
        "tables](benchmarks.md) say how it was made.",
        "![Mean gain over latent classes against processor seconds, a point for each "
        "model](pictures/panel.svg)",
        "*Upper left is best: more right, and sooner. Models of bmfjax are circles, others are "
        "squares; in brackets is the number of matrices, which are not the same for all. Above "
        "the dashed line a model predicts better than tuned latent classes. Column means are far "
        "below.*",
        EXPLAINED + elsewhere(sets),
        summary(sets),
        default_sentence(sets),
        "## Which model for which matrix",
        RULE,
        "The best model of bmfjax beside the best other one; the better of a line is bold. † marks "
        'fits whose verdict is "Do not rely on this run".',
        first_table(sets),
        "## All scores",
        "Mean log probability of a hidden entry, in nats. " + DAGGER,
        *score_tables(sets),
        "Cells without a score:",
        "\n".join(absent(sets)),
        "## Are the probabilities true?",
        "![Stated and observed probabilities of hidden entries, a panel for each model whose bins "
        "are in the record](pictures/panel-calibration.svg)",
        "*Entries of the matrices whose bins are in the record; their number is in brackets. "
        "Column means are left out. On the dashed line as many are ones as was stated; the size of "
        "a point says how many entries it has, and bars are two standard errors.*",
        COUNTED,
        trial_table(sets),
        f"Of {held} fits whose verdict says that predictions hold, {said[True, False]} are "
        "further from the shares of ones than chance allows; of "
        f"{refused} of which it does not say so, {said[False, False]} are; of {alone} that were "
        f"not compared, {said[None, False]} are.",
    ]
    if scored(sets.get(PLANTED, {})):
        blocks += [
            "## Where a Boolean product is true",
            "150 x 100 entries of a product of five Boolean factors, a tenth of which are flipped "
            "and a tenth hidden. Who knows the product has -0.325 in the mean. Samplers "
            "of NumPyro are given five factors.",
            planted_table(sets),
        ]
    if any(sets.get(rated) for rated in RATED):
        blocks += [
            "## Ratings",
            "MovieLens 100K has the first of its publisher's five folds hidden, the others a "
            "tenth. Errors and widths of 90 % intervals are in the unit of the publisher: stars, "
            "and points from -10 to 10 of jokes. Fits with † or ‡ had 20 to 90 processor seconds "
            "and say that they are not done; [the page on ratings](ratings.md) has some that are.",
            ratings_table(sets),
        ]
    return "\n\n".join(map(wrapped, blocks)) + "\n"


def wrapped(block: str) -> str:
    """Break a paragraph into lines; tables, lists and links stay."""
    if block.startswith(("|", "#", "*", "!", "<")):
        return block
    return textwrap.fill(block, 110, break_on_hyphens=False, break_long_words=False)


def with_section(page_text: str, sets: dict) -> str:
    """Return the page on models with its part made anew."""
    before, _, rest = page_text.partition(MARKS[0])
    blocks = section(sets).split("\n\n")
    return before + "\n\n".join(map(wrapped, blocks)) + rest.partition(MARKS[1])[2]


def main() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "panel.json").read_text())
    sets = record["figures"]["sets"]
    PAGE.write_text(page_of(sets))
    MODELS_PAGE.write_text(with_section(MODELS_PAGE.read_text(), sets))


if __name__ == "__main__":
    main()
