"""Compare numbers of factors: how well each predicts, how probable it is, and which to take."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bmfjax import store
from bmfjax.clock import clock_running
from bmfjax.comparison.choice import recommended
from bmfjax.comparison.held_out import left_out_rows, side_by_side
from bmfjax.data import BinaryMatrix, InputError, checks
from bmfjax.data.io.files import replacing_all
from bmfjax.data.names import in_words
from bmfjax.families import ask
from bmfjax.families.base import Chains, Problem, RankError
from bmfjax.families.sampling import finish
from bmfjax.posterior.code_length import code_length
from bmfjax.posterior.evidence import LogEvidence, rank_probabilities
from bmfjax.posterior.scores import observed_sample, scored_together
from bmfjax.progress import counted
from bmfjax.report.ranks import ranks_figure
from bmfjax.report.style import png
from bmfjax.result import Fit
from bmfjax.specs import SMC, sampler_of, with_fields_refused
from bmfjax.specs.base import AUTO, Model, Sampler
from bmfjax.verdict import Status

#: What may be left out, because it takes fits of its own.
OPTIONAL = {"evidence": "P(rank)", "entries": "hidden entries", "blocks": "bi-cross-validation"}
#: Share of a rank's seconds that each kind of fit may take, beside the others.
SHARES = {"all data": 1.0, "entries": 1.0, "blocks": 1.0, "evidence": 2.0}
#: What is written: the first is known by its content, and vouches for the picture.
FILES = ("ranks.json", "table.csv", "ranks.png")
#: Scores of the table by their names there.
SCORES = ("entries", "blocks", "loo")
MAX_TIME = 120.0
#: Draws of each chain before the time may end a fit.
LEAST_DRAWS = 100
#: Numbers of factors that one range may name.
MOST_RANKS = 1000


@dataclass(frozen=True, repr=False)
class RankComparison:
    """What `compare_ranks` found.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a rank; what is not known is NaN.

        `p_rank`, `p_rank_se`: posterior probability of the rank, from the evidence,
        under a uniform prior on the ranks that have one; `log_evidence` and `log_evidence_se`.

        `entries`: mean log predictive density of hidden cells, with its standard error
        `entries_se`; `entries_difference` to the best rank, and `entries_difference_se`, that of
        the paired difference. `blocks`: the same by bi-cross-validation. `loo`: the same of
        observed cells, each left out in turn by importance sampling; `doubtful` of the `scored`
        ones have a tail with a Pareto shape above 0.7 (of flipped bits, whose ratios are bounded,
        fewer than 10 effective draws).

        `code_length`: bits that the data take, described by the rounded factors.

        `shared`: factors that all chains found; `rhat`, as in `Comparison`; `verdict` in a word;
        `seconds` of all fits of the rank.
    recommended : int
        The rank to take.
    reason : str
        Why, in one sentence.
    notes : tuple of str
        What could not be computed, and why; what to beware of.
    settings : dict
        What the fits had in common.
    """

    table: pd.DataFrame
    recommended: int
    reason: str
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        return "\n".join([self.printed.to_string(index=False), *self.lines])

    @property
    def printed(self) -> pd.DataFrame:
        """The table as text: of a score its value where it is best, else how far it is behind."""
        shown: dict[str, list] = {"rank": [str(rank) for rank in self.table.index]}
        table = self.table
        if table["p_rank"].notna().any():
            pairs = zip(table["p_rank"], table["p_rank_se"], strict=True)
            shown["P(rank)"] = [_with_error(*pair, 2) for pair in pairs]
        for name, heading in zip(SCORES, ("entries", "blocks", "PSIS-LOO"), strict=True):
            if table[name].notna().any():
                shown[heading] = [_score(table.loc[rank], name) for rank in table.index]
        shown["doubtful"] = [f"{d / n:.1%}" for d, n in table[["doubtful", "scored"]].to_numpy()]
        if table["code_length"].notna().any():
            shown["bits"] = [f"{bits:,.0f}" for bits in table["code_length"]]
        shown["shared"] = [
            "" if math.isnan(number) else f"{number:.0f} of {rank}"
            for rank, number in table["shared"].items()
        ]
        shown["R-hat"] = [_number(value, 2) for value in table["rhat"]]
        shown["verdict"] = list(table["verdict"])
        shown["s"] = [f"{seconds:,.0f}" for seconds in table["seconds"]]
        return pd.DataFrame(shown)

    @property
    def lines(self) -> list[str]:
        """What is said below the table: how to read it, notes, and the reason."""
        return [_READING, *self.notes, self.reason]

    def plot(self) -> Any:
        """Draw the table: scores, probabilities, code lengths and shared factors by rank.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return ranks_figure(self.table, self.recommended)

    def save(self, folder, *, overwrite: bool = False) -> Path:
        """Write table.csv, ranks.json and the picture ranks.png.

        Parameters
        ----------
        folder : path
            Made where it does not exist.
        overwrite : bool
            Replace a comparison that is there; never files of others.

        Returns
        -------
        pathlib.Path
            The folder.

        Raises
        ------
        InputError
            Where a file is in the way, or the folder cannot be written to.
        """
        folder = check_folder(folder, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing_all([folder / name for name in FILES]) as drafts:
            draft = dict(zip(FILES, drafts, strict=True))
            draft["ranks.json"].write_text(json.dumps(self._record(), indent=1) + "\n")
            self.table.to_csv(draft["table.csv"], float_format="%.7g")
            draft["ranks.png"].write_bytes(png(self.plot()))
            check_folder(folder, overwrite)  # again: files may have come during the work
        return folder

    def _record(self) -> dict:
        table = self.table.astype(object).where(self.table.notna(), None)
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "notes": list(self.notes),
            "settings": dict(self.settings),
            "ranks": json.loads(json.dumps(table.reset_index().to_dict("records"), default=float)),
        }


_READING = (
    "Scores are mean log densities of a cell with standard errors: the best rank's own, and how "
    "far the others are from it."
)


def _score(row, name) -> str:
    if math.isnan(row[name]):
        return ""
    if row[f"{name}_difference"] == 0:
        return f"best: {_with_error(row[name], row[f'{name}_se'], 4)}"
    return _with_error(row[f"{name}_difference"], row[f"{name}_difference_se"], 4)


def _with_error(value, error, digits) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f} ± {error:.{digits}f}"


def _number(value, digits) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


# ---- the comparison ------------------------------------------------------------------------------


@with_fields_refused
def compare_ranks(
    data: Any,
    ranks: Iterable[int] | str,
    *,
    model: str | Model | None = None,
    sampler: str | Sampler | None = None,
    num_chains: int = 4,
    num_warmup: int | str = AUTO,
    num_samples: int | str = AUTO,
    max_time: float = MAX_TIME,
    seed: int = 0,
    progress: bool = True,
    hidden: float = 0.1,
    without: Sequence[str] = (),
) -> RankComparison:
    r"""Compare numbers of factors side by side, and recommend one.

    Every rank is fitted to all data; to data without some cells, which are then predicted
    ("entries"); and, twice, to half of the rows, for bi-cross-validation ("blocks"): the usage of
    the other rows is inferred from four fifths of the columns, and the last fifth is predicted.
    The scores are :math:`\log p(x_{ij} \mid \text{what was not hidden})`. For the Boolean model
    of small matrices, up to rank 8, sequential Monte Carlo estimates the evidence
    ("evidence"), from which

    .. math:: P(r \mid D) = Z_r / \textstyle\sum_q Z_q.

    The rank that is recommended is the smallest whose held-out scores are within two standard
    errors of the best, those of the paired difference: more factors predict no better, as far as
    can be seen.

    Parameters
    ----------
    data : as of `bmfjax.fit`
    ranks : iterable of int, or str
        Two or more ranks; "2:12" is all from 2 to 12, and "2,4,8" these.
    model, sampler, num_chains, num_warmup, num_samples
        For every fit, as for `bmfjax.fit`; the model has no rank, and by default is that of the
        largest.
    max_time : float
        Seconds for a rank, divided among its fits; ``float("inf")`` is no limit. A fit goes on
        until it has 100 draws a chain, and what it took beyond its share is missing to the fits of
        the rank that follow. An estimate of the evidence that is not done by then is left out.
    seed : int
        Seed of the fits and of the hidden cells. The fit to all data is that of `bmfjax.fit` with
        this seed, unless the time was up.
    progress : bool
        Show on standard error which fit runs, and what it does.
    hidden : float
        Share of the observed cells that are hidden at once, at most 20,000 cells.
    without : sequence of {"evidence", "entries", "blocks"}
        What to leave out, to save its fits.

    Returns
    -------
    RankComparison
        With `table`, `recommended`, `reason`, `notes`, `plot()` and `save()`; printed whole.

    Raises
    ------
    InputError
        For ranks that are no increasing whole numbers from 1 on or more than the matrix has, and
        for bad data or options.
    KeyboardInterrupt
        After Ctrl-C: what was fitted is not kept.

    Notes
    -----
    Owen and Perry fit the rows and columns outside of a block; here the fit sees all columns of
    the rows outside, so that one fit serves all blocks of columns. Usage is summed over, or drawn,
    given each draw of the basis; of the relaxed and the nonnegative model it is fitted by least
    squares, as there (`bmfjax.Fit.score_new`). Bi-cross-validation is left out for a rank above
    half of the rows, and where priors are given bit by bit.

    Standard errors treat cells of different rows as independent. Scores of models are of
    different kinds where `bmfjax.compare` says so, and are to be compared within a model.

    References
    ----------
    Owen, Perry (2009), "Bi-cross-validation of the SVD and the nonnegative matrix factorization",
    Annals of Applied Statistics 3(2). Vehtari, Gelman, Gabry (2017), "Practical Bayesian model
    evaluation using leave-one-out cross-validation and WAIC", Statistics and Computing 27.
    Miettinen, Vreeken (2014), "MDL4BMF: minimum description length for Boolean matrix
    factorization", ACM Transactions on Knowledge Discovery from Data 8(4).

    Examples
    --------
    >>> import bmfjax
    >>> found = bmfjax.compare_ranks(
    ...     "davis", [1, 2], model="ormachine", num_chains=2, num_warmup=200, num_samples=100,
    ...     progress=False, without=("evidence", "entries", "blocks"),
    ... )  # fmt: skip
    >>> found.table.index.tolist(), found.recommended in (1, 2)
    ([1, 2], True)
    """
    ranks, without = read_ranks(ranks), _read_without(without)
    if max_time != math.inf:
        checks.positive("max_time", max_time, "number of seconds")
    if not isinstance(hidden, int | float) or not 0 < hidden < 1:
        raise InputError(f"hidden is {hidden!r}; give a share between 0 and 1, such as 0.1")
    asked = functools.partial(
        ask, sampler=sampler, num_chains=num_chains,
        num_warmup=num_warmup, num_samples=num_samples, seed=seed,
    )  # fmt: skip
    try:
        first = asked(data, ranks[-1], model=model)
    except RankError as error:
        such = f", such as {min(2, error.most - 1)}:{error.most}" if error.most > 1 else ""
        raise InputError(
            f"ranks go up to {ranks[-1]}, and the smaller side of the matrix is {error.most}; give "
            f"two or more whole numbers from 1 to {error.most}{such}"
        ) from None
    if model is None:
        model = dataclasses.replace(first.model, rank=None)
    problems = {rank: asked(first.data, rank, model=model) for rank in ranks}
    for problem in (problems[ranks[0]], problems[ranks[-1]]):
        problem.chains()  # refuses what only the family can check, before anything runs
    plan = _Plan.of(first, hidden, without)
    number = sum(len(plan.tasks(problem)) for problem in problems.values())
    with counted(number, progress) as show:
        found = {rank: _one_rank(problem, plan, max_time, show)
                 for rank, problem in problems.items()}  # fmt: skip
    table, notes = _table(found, plan)
    rank, reason = recommended(table)
    notes += _beware(table, rank)
    settings = {
        "data": first.data.name, "model": first.model.name, "sampler": first.sampler.name,
        "seed": int(seed), "num_chains": num_chains,
        "max_time": max_time if max_time < math.inf else None,
        "hidden": hidden, "without": sorted(without),
    }  # fmt: skip
    return RankComparison(table, rank, reason, tuple(notes), settings)


def read_ranks(ranks: Iterable[int] | str) -> list[int]:
    """Return ranks in increasing order; "2:5" is all from 2 to 5, and "2,5" these two.

    >>> read_ranks("2:5"), read_ranks("2,4,8")
    ([2, 3, 4, 5], [2, 4, 8])
    """
    said = f"ranks are {ranks!r}"
    form = "give two or more whole numbers from 1 on, such as 2:12 or 2,4,8"
    if isinstance(ranks, str):
        if whole := re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", ranks):
            low, high = map(int, whole.groups())
            if low >= high:
                raise InputError(f"{said}, and {low} is not below {high}; {form}")
            if high - low >= MOST_RANKS:
                raise InputError(f"{said}, more than {MOST_RANKS} numbers; {form}")
            ranks = range(low, high + 1)
        elif re.fullmatch(r"[\d\s,]+", ranks):
            ranks = [int(number) for number in re.findall(r"\d+", ranks)]
        else:
            ends = re.fullmatch(r"\s*(\d+)\s*(?:-|\u2013|\.\.+|to)\s*(\d+)\s*", ranks)
            hint = f"; did you mean '{ends[1]}:{ends[2]}'?" if ends else ""
            raise InputError(f"{said}; {form}{hint}")
    ranks = list(ranks) if isinstance(ranks, Iterable) else [ranks]
    whole = all(isinstance(r, int | np.integer) and not isinstance(r, bool) for r in ranks)
    if not whole or len(ranks) < 2 or min(ranks) < 1:
        raise InputError(f"{said}; {form}")
    if len(set(ranks)) < len(ranks):
        raise InputError(f"{said}, one of them twice; {form}")
    return sorted(map(int, ranks))


def _read_without(without) -> set[str]:
    without = {without} if isinstance(without, str) else set(without)
    for name in without:
        checks.one_of("without", name, OPTIONAL)
    return without


# ---- the fits of a rank --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What is scored, the same for every rank."""

    cells: tuple  # of the fit to all data
    hidden: Any = None
    parts: Sequence = ()
    evidence: bool = False
    seed: int = 0
    why_no_parts: str = ""

    @classmethod
    def of(cls, problem: Problem, share, without) -> _Plan:
        data, seed = problem.data, problem.seed
        hidden = None if "entries" in without else problem.hidden_cells(share)
        parts, why = (), ""
        if "blocks" not in without:
            try:
                parts = left_out_rows(data, seed)
            except InputError as error:
                why = str(error)
        cells = observed_sample(data, seed=seed)
        return cls(cells, hidden, parts, "evidence" not in without, seed, why)

    def tasks(self, problem: Problem) -> list[str]:
        """Return the fits of a rank, by what they are for."""
        named = ["all data"] + ["entries"] * (self.hidden is not None)
        named += ["blocks"] * len(self.parts)
        return named + ["evidence"] * (self.evidence and _by_evidence(problem) is not None)


@dataclass
class _Budget:
    """Seconds of a rank: every task takes its share of what is left, and leaves what it spares."""

    seconds: float
    tasks: list[str]

    def next(self) -> float:
        """Return the seconds of the next task."""
        shares = [SHARES[task] for task in self.tasks]
        self.tasks.pop(0)
        return max(self.seconds * shares[0] / sum(shares), 1e-3)

    def spend(self, seconds: float) -> None:
        """Take off what a task took."""
        self.seconds = max(self.seconds - seconds, 0.0)


@dataclass
class _Found:
    """What the fits of a rank say."""

    row: dict
    loo: np.ndarray
    entries: np.ndarray | None = None
    blocks: np.ndarray | None = None
    why_no_blocks: str = ""
    evidence: LogEvidence | None = None
    why_no_evidence: str = ""


def _one_rank(problem: Problem, plan: _Plan, max_time, show) -> _Found:
    """Run the fits of one rank; each is dropped once it is scored."""
    budget = _Budget(max_time, plan.tasks(problem))

    def fitted(task, data=None, patient=True, **changed):
        show(f"rank {problem.rank}: {task}")
        own = problem if data is None else dataclasses.replace(problem, data=data)
        own = dataclasses.replace(own, **changed)
        seconds = budget.next()
        with clock_running():
            chains = _with_draws(own.chains(), own) if patient else own.chains()
            fit = finish(own, chains, max_time=seconds, patient=patient)
        _stop_if_interrupted(fit, problem)
        budget.spend(min(seconds, fit.figures.seconds))
        spent.append(fit.figures.seconds)
        return fit

    spent: list[float] = []
    fit = fitted("all data")
    scored = scored_together(fit, plan.cells)
    found = _Found(
        _row_of(fit, scored), scored.log_score, evidence=getattr(fit, "log_evidence", None)
    )
    del fit
    if plan.hidden is not None:
        found.entries = plan.hidden.score(fitted("entries", plan.hidden.data))
    if plan.parts:
        try:
            found.blocks = np.concatenate(
                [p.score(fitted("blocks", p.data), plan.seed) for p in plan.parts]
            )
        except InputError as error:  # such as a rank above the rows that are left
            found.why_no_blocks = _given_for_rows(problem) or str(error)
            budget.tasks = [task for task in budget.tasks if task != "blocks"]
    if plan.evidence and found.evidence is None:
        found.evidence, found.why_no_evidence = _evidence(problem, fitted)
    found.row["seconds"] = sum(spent)
    return found


def _given_for_rows(problem: Problem) -> str:
    """Say which prior has a value for every row of the data, so that it is of no part of them."""
    rows = problem.data.num_rows
    names = [n for n, v in problem.given_priors.items() if np.shape(v)[:1] == (rows,)]
    if not names:
        return ""
    return f"{names[0]} has a value for each of the {rows:,} rows, and the fits are of half of them"


def _with_draws(chains: Chains, problem: Problem) -> Chains:
    """Return chains that have a result only with draws enough for a score, if they draw at all."""
    if not chains.sites:
        return chains
    least = min(LEAST_DRAWS, problem.most_samples)
    return dataclasses.replace(
        chains, enough=lambda run: chains.enough(run) and run.num_draws >= least
    )


def _stop_if_interrupted(fit: Fit, problem: Problem) -> None:
    """Raise KeyboardInterrupt where Ctrl-C ended a fit, which makes a result of its draws."""
    if not (fit.figures.complete or fit.figures.timed_out):
        raise KeyboardInterrupt(f"at rank {problem.rank}; nothing was written")


def _row_of(fit: Fit, scored) -> dict:
    """Return what the fit to all data says of itself."""
    agreeing, found = fit.figures.get("factors_agreeing"), fit.figures.factors_found
    bits = math.nan
    if isinstance(fit.data, BinaryMatrix) and fit.binary is not None:
        bits = code_length(fit.data, fit._usage_binary, fit._basis_binary)
    return {
        "doubtful": int(scored.doubtful.sum()),
        "scored": len(scored.doubtful),
        "code_length": bits,
        "shared": round(agreeing * fit.rank, 6) if found is None else found,
        "rhat": float(fit.figures.get("rhat")),
        "verdict": str(fit.verdict.status),
    }


def _by_evidence(problem: Problem) -> str | None:
    """Return the sampler that estimates the evidence, where the model has one for this size."""
    name = problem.family.other_sampler(problem)
    return name if name == SMC.name else None  # populations of particles estimate it


def _evidence(problem: Problem, fitted) -> tuple[LogEvidence | None, str]:
    """Return the evidence by the sampler of the model that estimates it, or why there is none."""
    name = _by_evidence(problem)
    if name is None:
        return None, "no sampler estimates it for this model, rank and size"
    try:
        fit = fitted(
            "evidence", patient=False, sampler=sampler_of(name, type(problem.model)),
            num_warmup=AUTO, num_samples=AUTO,
        )  # fmt: skip
    except InputError as error:
        return None, "the time was up" if "max_time" in str(error) else str(error)
    return fit.log_evidence, ""


# ---- the table -----------------------------------------------------------------------------------


def _table(found: Mapping[int, _Found], plan: _Plan) -> tuple[pd.DataFrame, list[str]]:
    """Return one row a rank, and notes on what is missing."""
    rows = {rank: dict(f.row) for rank, f in found.items()}
    of_cells = {
        "entries": plan.hidden.cells[0] if plan.hidden is not None else None,
        "blocks": np.concatenate([p.cell_rows for p in plan.parts]) if plan.parts else None,
        "loo": plan.cells[0],
    }
    for name in SCORES:
        scores = {r: getattr(f, name) for r, f in found.items() if getattr(f, name) is not None}
        for figure, values in side_by_side(scores, of_cells[name]).items():
            column = name if figure == "mean" else f"{name}_{figure}"
            for rank in rows:
                rows[rank][column] = values.get(rank, math.nan)
    _add_probabilities(rows, found)
    table = pd.DataFrame.from_dict(rows, orient="index")[_COLUMNS]
    return table.rename_axis("rank"), _notes(found, plan)


_COLUMNS = [
    "p_rank", "p_rank_se", "log_evidence", "log_evidence_se",
    *(f"{name}{end}" for name in SCORES for end in ("", "_se", "_difference", "_difference_se")),
    "doubtful", "scored", "code_length", "shared", "rhat", "verdict", "seconds",
]  # fmt: skip


def _add_probabilities(rows, found) -> None:
    known = {rank: f.evidence for rank, f in found.items() if f.evidence is not None}
    chance = None
    if len(known) > 1:
        chance = rank_probabilities(
            *zip(*((e.value, e.error) for e in known.values()), strict=True)
        )
    for rank, row in rows.items():
        evidence = known.get(rank)
        row["log_evidence"] = math.nan if evidence is None else evidence.value
        row["log_evidence_se"] = math.nan if evidence is None else evidence.error
        at = list(known).index(rank) if rank in known and chance is not None else None
        row["p_rank"] = math.nan if at is None else float(chance.probability[at])
        row["p_rank_se"] = math.nan if at is None else float(chance.error[at])


def _notes(found, plan) -> list[str]:
    """Say what is not known, and why."""
    notes = []
    if plan.why_no_parts:
        notes.append(f"No bi-cross-validation: {plan.why_no_parts}.")
    for rest, what, why in (
        ("bi-cross-validation", "blocks", "why_no_blocks"),
        ("evidence", "evidence", "why_no_evidence"),
    ):
        reasons: dict[str, list[int]] = {}
        for rank, f in found.items():
            if getattr(f, what) is None and getattr(f, why):
                reasons.setdefault(getattr(f, why), []).append(rank)
        notes += [f"No {rest} at {_ranks(of)}: {text}." for text, of in reasons.items()]
    known = [rank for rank, f in found.items() if f.evidence is not None]
    if 1 < len(known) < len(found):
        notes.append(f"P(rank) is among {_ranks(known)} alone.")
    return notes


def _beware(table, rank) -> list[str]:
    """Say what to beware of at the rank that is recommended."""
    notes = []
    if rank == table.index[-1]:
        notes.append(f"Rank {rank} is the highest that was compared; try higher ones.")
    if table.loc[rank, "verdict"] in (Status.UNRELIABLE, Status.UNCHECKED):
        notes.append(
            f"Chains at rank {rank} are {table.loc[rank, 'verdict']}; fit it with more time before "
            "you rely on its factors."
        )
    shared = table.loc[rank, "shared"]
    if table.loc[rank, "verdict"] == Status.IN_PART and shared < rank:
        notes.append(
            f"At rank {rank} all chains found {shared:.0f} of {rank} factors; fit it with more "
            "time before you rely on the others."
        )
    return notes


def _ranks(ranks) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {in_words(list(map(str, ranks)))}"


# ---- files ---------------------------------------------------------------------------------------


def check_folder(folder: str | os.PathLike, overwrite: bool) -> Path:
    """Refuse a folder into which a comparison may not be written; return it as a `Path`.

    With `overwrite` a comparison of ranks is replaced, and nothing else.
    """
    folder = Path(folder)
    store.check_output(folder, overwrite, names=())
    there = [name for name in FILES if os.path.lexists(folder / name)]
    if not there:
        return folder
    if not _is_ours(folder):
        raise InputError(
            f"{folder / there[0]} is in the way: no comparison of ranks wrote it, so it is not "
            "replaced; move it away, or give another directory"
        )
    if not overwrite:
        raise InputError(
            f"{folder} already holds a comparison of ranks ({there[0]}); give another directory, "
            "or --overwrite (overwrite=True)"
        )
    return folder


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder holds a comparison: its record, and a table with its header."""
    paths = [folder / name for name in FILES]
    if any(path.is_symlink() or (path.exists() and not path.is_file()) for path in paths):
        return False
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        known = set(json.loads(paths[0].read_bytes())) >= {"recommended", "reason", "ranks"}
        header = ",".join(["rank", *_COLUMNS])
        table = not paths[1].exists() or paths[1].read_text().startswith(header)
        return known and table
    return False
