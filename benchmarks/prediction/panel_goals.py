"""What the panel was to show, and what its record shows: aims, the weakest models, and gaps.

All is counted from the record. Typed are the aims, and for a weak model what would mend it.
"""

import re
import statistics
from collections import Counter

from benchmarks.form import number, table
from benchmarks.prediction.panel_cells import (
    CLASSES,
    NAMES,
    POSITIVE,
    SIGNED,
    against,
    counts,
    finished,
    is_fit,
    label,
    models_of,
)
from benchmarks.prediction.panel_data import SETS
from benchmarks.prediction.panel_models import FITS, RATINGS_FITS

#: The matrices for which aims were set beforehand; the last two came later.
AIMED = tuple(SETS)[:12]
TUNED_BOTH = CLASSES, "logistic"
#: Fewer matrices say little about a model.
FEWEST = 3
#: Models of bmfjax that have no row, and why.
LEFT_OUT = {"poisson": "its data are counts"}
NOT_MODELS = (
    "Of `relaxed` and `logistic` the samplers by minibatches are left out, which approximate the "
    "same posterior for larger data; so are `smc`, which is for at most 8 factors, and optimisers, "
    "which give no probabilities."
)
#: What would mend a model that is far below the best, where it has been looked into.
MENDS = {
    "logistic, variational": (
        "its relevance priors take away factors that predict, and rows and columns have no "
        "effects; choose the number by validation, let both have effects, or draw from the "
        "posterior"
    ),
    "bmfjax nmf": (
        "its noise is normal and of one size, which ones and zeros are not, and it has no effects "
        "of rows and columns; a Bernoulli likelihood would mend it, which `features` has"
    ),
    "bmfjax pmf": "normal noise of one size; a link for ones and zeros, which `probit` has",
    "ormachine-effects": (
        "chains end in different modes; exchange between temperatures within the time, and a "
        "number of factors that the fit finds"
    ),
    "ormachine, one rate": "one rate of flips: ones that lack are far more than zeros that turn",
    "ormachine, two rates": "rates of columns and rows, which `ormachine-effects` has",
    "logistic, effects": "a number of factors that the fit finds, and draws in place of a bound",
    "logistic, gibbs": "effects of rows and columns, and a number of factors that the fit finds",
    "deep-ormachine": "effects of rows and columns; layers add nothing to what single entries say",
    "one-hot": "one factor a row is too few for these data; more factors, or features that add up",
    "hamming": "codes weigh all columns alike; a weight of each column, which `features` has",
    "probit": "a warm-up that ends in the time",
    "relaxed": "a Bernoulli likelihood; its noise is normal",
}


def _passed(found, asked, at_most: bool = False) -> str:
    return "yes" if (found <= asked if at_most else found >= asked) else "no"


def aims(sets: dict) -> str:
    """Return a table of what was asked beforehand, what was found, and whether it is met."""
    said = counts(sets)
    sets = {name: finished(sets[name]) for name in AIMED if name in sets}
    have = {n: of for n, of in sets.items() if {SIGNED, *TUNED_BOTH} <= {*of}}
    below = {
        n: max(of[m]["log_score"] for m in TUNED_BOTH) - of[SIGNED]["log_score"]
        for n, of in have.items()
    }
    ahead, most = sum(gap <= 0 for gap in below.values()), max(below, key=below.get, default=None)
    classes, of_positive = against(sets, POSITIVE, CLASSES)
    signed = [of[SIGNED] for of in sets.values() if SIGNED in of]
    true = sum(c["calibration_error"] <= c["calibration_error_by_chance"] for c in signed)
    held, wrong = said[True, True] + said[True, False], said[True, False]
    rows = [
        [f"{label(SIGNED)}: at or above {' and '.join(map(label, TUNED_BOTH))}",
         f"10 of {len(AIMED)}", f"{ahead} of {len(have)}", _passed(ahead, 10)],
        [f"{label(SIGNED)}: furthest below the better of the two, nats", "0.005",
         f"{number(max(below[most], 0.0), 4)} ({NAMES.get(most, most)})" if below else "",
         _passed(max(below.values(), default=1.0), 0.005, at_most=True)],
        [f"{label(POSITIVE)}: at or above {label(CLASSES)}", f"8 of {len(AIMED)}",
         f"{classes} of {of_positive}", _passed(classes, 8)],
        [f"{label(SIGNED)}: calibration error at most the 95 % quantile by chance",
         f"10 of {len(AIMED)}", f"{true} of {len(signed)}", _passed(true, 10)],
        ["all fits that say that predictions hold: not calibrated", "at most 5 %",
         f"{wrong} of {held}", _passed(wrong, 0.05 * held, at_most=True)],
    ]  # fmt: skip
    return table(["aim", "asked", "found", "met"], rows)


def gaps(sets: dict, model: str) -> dict[str, float]:
    """Return by how much a model is below the best of any kind, for each matrix that it has."""
    cells = {name: finished(sets.get(name, {})) for name in SETS}
    return {
        name: max(cell["log_score"] for cell in of.values()) - of[model]["log_score"]
        for name, of in cells.items()
        if model in of
    }


def weakest(sets: dict, most: int = 3) -> list[str]:
    """Return the models of bmfjax that are the furthest below the best, in the mean."""
    found = {
        model: statistics.mean(below.values())
        for model in models_of(sets, SETS, finished)
        if any(is_fit(sets.get(n, {}).get(model, {})) for n in SETS)
        and len(below := gaps(sets, model)) >= FEWEST
    }
    return sorted(found, key=found.__getitem__, reverse=True)[:most]


def advice(sets: dict, model: str) -> str:
    """Write what verdicts of a model advise most often."""
    said = [
        found[1]
        for n in SETS
        if model in finished(sets.get(n, {}))
        and (found := re.search(r"Next, ([^,;.(]+)", sets[n][model]["verdict"]))
    ]
    if not said:
        return ""
    text, times = Counter(said).most_common(1)[0]
    return f"{text.strip()} ({times} of {len(gaps(sets, model))})"


def relatives(sets: dict, model: str) -> str:
    """Write the model of the same kind that predicts best on the same matrices, if any is better.

    A kind is a class of bmfjax, such as the logistic model, with or without effects.
    """
    found = {}
    for other in FITS:
        shared = gaps(sets, model).keys() & gaps(sets, other).keys()
        if FITS[other].kind == FITS[model].kind and len(shared) >= FEWEST:
            gained = [sets[n][other]["log_score"] - sets[n][model]["log_score"] for n in shared]
            found[other] = statistics.mean(gained), len(gained)
    best = max(found, key=found.__getitem__, default=None)
    if best is None or found[best][0] <= 0:
        return ""
    return f"{label(best)}: {number(found[best][0], 3)} better on {found[best][1]}"


def weakest_table(sets: dict) -> str:
    """Return a table of the weakest models: how far below the best, where, and what would help."""
    rows = []
    for model in weakest(sets):
        below = gaps(sets, model)
        worst = max(below, key=below.__getitem__)
        of = finished(sets[worst])
        best = max(of, key=lambda m: of[m]["log_score"])
        rows.append([
            label(model), len(below), number(statistics.mean(below.values()), 3),
            f"{NAMES.get(worst, worst)} ({number(below[worst], 3)} below {label(best)})",
            relatives(sets, model), advice(sets, model),
        ])  # fmt: skip
    header = ["model", "matrices", "below the best", "furthest", "of its kind", "verdicts advise"]
    return table(header, rows)


def mended(sets: dict) -> str:
    """Write what would mend each of the weakest models."""
    return "\n".join(
        f"* {label(model)}: {MENDS[model]}." for model in weakest(sets) if model in MENDS
    )


def furthest_of_default(sets: dict, most: int = 3) -> str:
    """Write where the default is the furthest below the best."""
    below = gaps(sets, SIGNED)
    told = []
    for name in sorted(below, key=below.__getitem__, reverse=True)[:most]:
        if below[name] > 0:
            of = finished(sets[name])
            best = max(of, key=lambda m: of[m]["log_score"])
            told.append(f"{NAMES.get(name, name)} ({number(below[name], 3)} below {label(best)})")
    return f"The default is the furthest below the best on {'; '.join(told)}." if told else ""


def left_out() -> str:
    """Write which models of bmfjax have no row at all, and why."""
    told = "; ".join(f"`{model}`, because {why}" for model, why in LEFT_OUT.items())
    of = sorted({model.kind for model in (*FITS.values(), *RATINGS_FITS.values())})
    return (
        f"Rows are of {len(of)} models of bmfjax, some of them with several settings. "
        f"No row is of {told}. {NOT_MODELS}"
    )
