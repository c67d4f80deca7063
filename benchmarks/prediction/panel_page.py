"""The page of the panel: what each model predicts, at what cost, and whether its word is true.

`python -m benchmarks.prediction.panel_page` also writes `docs/panel.md`, and the part of
`docs/models.md` that says what to try first.
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
from benchmarks.prediction.panel_cells import (
    CLASSES,
    NAMES,
    NEAR,
    POSITIVE,
    SIGNED,
    WORDS,
    against,
    counts,
    elsewhere,
    finished,
    gain,
    is_calibrated,
    is_compared,
    is_fit,
    label,
    mark,
    models_of,
    said_to_hold,
    scored,
    seconds,
    usual,
)
from benchmarks.prediction.panel_data import PLANTED, RATED, SETS
from benchmarks.prediction.panel_goals import (
    AIMED,
    FEWEST,
    aims,
    furthest_of_default,
    left_out,
    mended,
    weakest_table,
)
from benchmarks.prediction.panel_models import FITS, RATINGS_FITS
from benchmarks.prediction.panel_ratings import METHODS

ROOT = Path(__file__).parents[2]
PAGE, MODELS_PAGE = ROOT / "docs" / "panel.md", ROOT / "docs" / "models.md"
MARKS = "<!-- made by benchmarks/prediction/panel_page.py -->", "<!-- end -->"


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
            why = cell.get("not_run") or (
                "ended without a result" if cell else "not reached, for want of processor time"
            )
            reasons.setdefault(why, {}).setdefault(label(model), []).append(NAMES.get(name, name))
    for why, of in reasons.items():
        alike: dict[str, list[str]] = {}
        for model, missing in of.items():
            alike.setdefault(_some(missing), []).append(model)
        told = "; ".join(f"`{'`, `'.join(models)}` ({some})" for some, models in alike.items())
        yield f"* {why}: {told}"


def _some(names: list[str]) -> str:
    """Write names of matrices, or those that are not among them where these are fewer."""
    rest = [name for name in (NAMES.get(n, n) for n in SETS) if name not in names]
    if len(rest) >= len(names) or not {*names} <= {NAMES.get(n, n) for n in SETS}:
        return ", ".join(names)
    return f"all but {', '.join(rest)}" if rest else "all"


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


OURS = SIGNED, POSITIVE
#: Kinds of data, and the matrices of each.
KINDS = {
    "answers: tests, questionnaires, votes": ("fraction", "aggression", "votes"),
    "attributes, and species on plots": ("animals", "zoo", "mushroom", "bci"),
    "what is in paintings, texts, playlists": ("bob-ross", "news100", "lastfm"),
    "genes, cells, sequences": ("pancan", "pbmc", "dna"),
    "permissions of users: tiles that are nearly exact": ("roles",),
}


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
    header = ["your data", "best of bmfjax", "gain", "CPU s", "best other", "gain", "CPU s"]
    return table(header, rows)


def default_sentence(sets: dict) -> str:
    """Return what the panel says of the default model, beside the other models of bmfjax."""
    names = [n for n in complete(sets) if SIGNED in finished(sets[n])]
    first = [n for n in names if best_of(sets[n], True)[0] == SIGNED]
    rest = [
        f"{NAMES.get(n, n)} ({label(model)}, by "
        f"{number(cell['log_score'] - sets[n][SIGNED]['log_score'], 3)})"
        for n in names
        if (found := best_of(sets[n], True))[0] != SIGNED
        for model, cell in (found,)
    ]  # fmt: skip
    more = f" Another is better on {'; '.join(rest)}." if rest else ""
    return (
        f"The default, `features` with weights of both signs, is the best on {len(first)} of "
        f"{len(names)} matrices of the models of bmfjax that left their warm-up.{more}"
    )


def others_table(sets: dict) -> str:
    """Return a table of how often features are as good as each other model."""
    others = [model for model in models_of(sets, SETS, finished) if model in TUNED]
    rows = [
        [label(other), *("{} of {}".format(*against(sets, model, other)) for model in OURS)]
        for other in others
    ]
    return table(["other model", *(f"{label(model)}: at or above" for model in OURS)], rows)


def ratings_sentence(sets: dict) -> str:
    """Return the errors of `pmf` on ratings, beside the best other model."""
    told = []
    for name in RATED:
        of = scored(sets.get(name, {}))
        others = {model: cell for model, cell in of.items() if not is_fit(cell)}
        if "pmf" in of and others:
            best = min(others, key=lambda model: others[model]["rmse"])
            told.append(
                f"{NAMES.get(name, name)} {number(of['pmf']['rmse'], 3)} "
                f"({label(best)} {number(others[best]['rmse'], 3)})"
            )
    return f"Errors of `pmf` on ratings, and of the best other: {'; '.join(told)}." if told else ""


def section(sets: dict) -> str:
    """Return the part of the page on models that is made of the record."""
    return "\n\n".join([
        MARKS[0],
        "### What a panel says",
        "On {download}`a panel <../benchmarks/results/panel.json>` of "
        f"{sum(n in sets for n in SETS)} real matrices a tenth of the entries was hidden. For each "
        "kind of data here are the model of bmfjax that predicted it best, and the best other one. "
        "The gain is the mean log probability of a hidden entry (nats), less that of tuned latent "
        "classes: at 0.02 what was hidden had a probability that is 2 % higher, in the geometric "
        f"mean. CPU s are of a matrix, with all compilation.{elsewhere(sets)} "
        "[The panel](panel.md) has all models, costs and verdicts.",
        kinds_table(sets),
        "Take the first where you need factors, intervals and a verdict. Where you need nothing "
        "but predicted entries, in seconds, the best other may do.",
        default_sentence(sets),
        ratings_sentence(sets),
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
        "On how many matrices features are as good as another model, or better:",
        others_table(sets),
        "Aims were set before these fits were made, those of scores for the first "
        f"{len(AIMED)} matrices, that of verdicts for all:",
        aims(sets),
        "## Which model for which matrix",
        RULE,
        "The best model of bmfjax beside the best other one; the better of a line is bold. † marks "
        'fits whose verdict is "Do not rely on this run".',
        first_table(sets),
        "## All scores",
        "Mean log probability of a hidden entry, in nats. " + DAGGER,
        *score_tables(sets),
        left_out() + " Cells without a score:",
        "\n".join(absent(sets)),
        "## The weakest models",
        "How far a model is below the best of any kind, mean over its matrices; those of bmfjax "
        f"with at least {FEWEST} matrices. Beside it is where it is the furthest below, which "
        "other setting of the same model predicts better, and what its verdicts advise most often.",
        weakest_table(sets),
        "What would mend them:",
        mended(sets),
        furthest_of_default(sets),
        "## Are the probabilities true?",
        "![Stated and observed probabilities of hidden entries, a panel for each model whose bins "
        "are in the record](pictures/panel-calibration.svg)",
        "*Models with at least three matrices whose bins are in the record; their number is in "
        "brackets. "
        "Column means are left out. On the dashed line as many are ones as was stated; the size of "
        "a point says how many entries it has, and bars are two standard errors.*",
        COUNTED,
        trial_table(sets),
        f"Of {held} fits whose verdict says that predictions hold, {said[True, False]} are "
        "further from the shares of ones than chance allows; of "
        f"{refused} of which it does not say so, {said[False, False]} are; of {alone} that were "
        f"not compared, {said[None, False]} are.{_wrong(sets)}",
        f"In shares these are {said[True, False] / max(held, 1):.0%} and "
        f"{said[False, False] / max(refused, 1):.0%}".replace("%", " %")
        + ": whether predictions hold does not tell whether they are calibrated as well as chance "
        "allows. The verdict asks of predictions that chains agree, and lets pass an error of "
        "calibration that is at most 0.025 beyond that of chance ([the report](report.md)). "
        "`fit.check()` says how large it is.",
        unsure_of_default(sets),
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
            "and points from -10 to 10 of jokes. Fits with † or ‡ say that they were not "
            "done when their time was up; [the page on ratings](ratings.md) has some that are.",
            ratings_table(sets),
        ]
    return "\n\n".join(map(wrapped, blocks)) + "\n"


def _wrong(sets: dict) -> str:
    """Say of which models the fits are whose predictions hold by their word, and not by ours."""
    found = Counter(
        label(model)
        for name in SETS
        for model, cell in finished(sets.get(name, {})).items()
        if is_fit(cell) and said_to_hold(cell) and not is_calibrated(cell)
    )
    told = "; ".join(f"{model} ({n})" for model, n in found.most_common())
    return f" Those that are said to hold, and are not calibrated, are of: {told}." * bool(found)


def unsure_of_default(sets: dict) -> str:
    """Say how many fits by default that are not calibrated are less sure than they should be."""
    wrong = [
        cell["calibration"]
        for name in SETS
        for model, cell in finished(sets.get(name, {})).items()
        if model == SIGNED and not is_calibrated(cell) and "calibration" in cell
    ]
    unsure = sum(map(too_unsure, wrong))
    return (
        f"Of the {len(wrong)} fits by default that are not calibrated {unsure} are less sure "
        "than they should be: their small probabilities are too large, and their large ones too "
        "small. They are means over draws, and over chains, that differ much: the mean of "
        "forecasts that are calibrated each by itself is too unsure (Ranjan, Gneiting 2010, "
        "*Combining probability forecasts*, JRSS B 72). It scores better all the same."
    )


def too_unsure(bins: dict) -> bool:
    """Tell whether ones are rarer than small probabilities say, and zeros than large ones do."""
    ones = zip(bins["stated"], bins["number"], bins["ones"], strict=True)
    return sum((number * p - ones) * (1 if p < 0.5 else -1) for p, number, ones in ones) > 0


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
