"""What the cells of the panel say: which are fits, which are done, and how they compare."""

import statistics
from collections import Counter
from collections.abc import Iterable

from benchmarks.form import number
from benchmarks.prediction.panel_data import SETS

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


def gain(sets: dict, model: str, names: Iterable[str]) -> float | None:
    """Return the mean gain over latent classes; None where a matrix has no score of a model."""
    cells = [finished(sets.get(name, {})) for name in names]
    if not all({model, CLASSES} <= {*of} for of in cells):
        return None
    return statistics.mean(of[model]["log_score"] - of[CLASSES]["log_score"] for of in cells)


def mark(cell: dict) -> str:
    """Return the mark of a fit that says that it is not done."""
    said = cell.get("verdict", "")
    return " ‡" if STARTED in said else " †" if REFUSED in said else ""
