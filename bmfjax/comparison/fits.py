"""Compare fits of the same data: their factors, how well they predict, and their verdicts."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from bmfjax.data import InputError, checks
from bmfjax.data.names import in_words
from bmfjax.posterior.modes import SAME, Solutions, tile_cosines, turned
from bmfjax.posterior.scores import MAX_SCORED, observed_sample, scored_together
from bmfjax.result import Fit
from bmfjax.specs import with_fields_refused

#: Standard errors that a difference must exceed to be seen.
TELLING = 2.0
#: Share of doubtful scores from which on the sentence speaks of them.
MANY_DOUBTFUL = 0.05
IN_A_LIST = (
    "compare takes two or more fits; give a list, such as compare([fit1, fit2]) (on the command "
    "line: bmfjax compare DIR DIR)"
)
NO_PATHS = (
    "compare takes fits, and {what} is a path; load them first, such as "
    "compare([bmfjax.Fit.load({what}), ...]) (on the command line: bmfjax compare DIR DIR)"
)
#: How the numbers of the table are printed.
DIGITS = {
    "log_score": ".1f",
    "difference": ".1f",
    "se": ".1f",
    "doubtful": ".1%",
    "log_evidence": ".1f",
    "log_evidence_error": ".2f",
    "rhat": ".2f",
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a fit: `model`, `sampler`, `rank`, `seed`; `log_score`: log predictive density of
        all observed entries, each left out in turn; `difference` to the best fit, and its
        standard error `se`; `doubtful`: the share of entries whose score the draws say too
        little of; `remarks`: what the sentence says against the score, in words, empty where
        nothing; `log_evidence` and `log_evidence_error` where a fit has them; `partners`: factors
        that have one in the first fit, NA for that itself; `rhat`: the largest of the log joint
        density, of scalars and of 99 % of the entries, whether or not the verdict asks it of them;
        `status` of the verdict, in a word, and `verdict`, its text.
    factors : pandas.DataFrame
        One row a factor of the first fit and other fit: `fit`, `factor`, `other`, `partner`, the
        factor of the other fit, and `similarity`, the cosine of their tiles. Factors are matched
        one to one, and those that are empty, or in too few draws, are left out. A factor without
        partner has NA, and so has `factor` where one of the other fit has none in the first;
        `similarity` is then that to `nearest`, the most similar factor across: below 0.8, or taken
        by another. `turned`: a binary feature with signed weights is turned round there, which is
        the same model: the rows that lack it have it, with weights of the other sign.
    best : int or None
        Position of the fit that predicts better than all others by more than two standard
        errors; None where that cannot be seen. Where many scores are doubtful, hide entries to be
        sure (`bmfjax.fit`, `check`).
    sentence : str
        Which fit predicts better, and by how much.
    """

    table: pd.DataFrame
    factors: pd.DataFrame
    best: int | None
    sentence: str

    def __repr__(self) -> str:
        return "\n".join([self.printed.to_string(), *self.lines])

    @property
    def printed(self) -> pd.DataFrame:
        """The table as text, a column a fit, without the verdicts, which stand below it."""
        shown = self.table.drop(columns="verdict").astype(object)
        for name in shown.columns.intersection(DIGITS):
            shown[name] = [
                "-" if pd.isna(value) else f"{value:z,{DIGITS[name]}}" for value in shown[name]
            ]
        if not shown["remarks"].any():
            shown = shown.drop(columns="remarks")
        shown["partners"] = ["-" if pd.isna(value) else value for value in shown["partners"]]
        return shown.astype(str).T.rename_axis(index="figure", columns=None)

    @property
    def lines(self) -> list[str]:
        """What is said below the table: partners of factors, verdicts, and the sentence."""
        pairs = [_partners(part) for _, part in self.factors.groupby("other", sort=False)]
        verdicts = [f"Verdict of {name}: {text}" for name, text in self.table["verdict"].items()]
        return [*pairs, *verdicts, self.sentence]


def _of_a_list(function):
    """Return `compare` that says of fits one after the other how to give them."""

    @functools.wraps(function)
    def checked(*fits, **given):
        _refuse_paths(fits)
        if len(fits) > 1:
            raise InputError(IN_A_LIST)
        return function(*fits, **given)

    return checked


@with_fields_refused
@_of_a_list
def compare(
    fits: Sequence[Fit],
    *,
    names: Sequence[str] | None = None,
    max_entries: int = MAX_SCORED,
    seed: int = 0,
) -> Comparison:
    r"""Compare fits of the same data that differ in rank, model, sampler or seed.

    Every fit is scored by the log predictive density of observed entries given all others,

    .. math:: \sum_{ij} \log p(x_{ij} \mid x_{-ij}),

    estimated from its draws by Pareto-smoothed importance sampling, or by plain importance
    sampling for flipped bits, whose ratios are bounded. Beyond `max_entries` observed entries
    the sum is estimated from entries drawn at random, the same for all fits. Predictions of the
    chains of a fit are averaged, also where these are in different modes: see `Fit.modes`.

    Parameters
    ----------
    fits : sequence of Fit
        Two or more, of the same data.
    names : sequence of str, optional
        What to call them; default "fit 1", "fit 2", ...
    max_entries : int
        Entries that are scored, at most.
    seed : int
        Seed of the choice of entries.

    Returns
    -------
    Comparison
        With `table`, `factors`, `best` and `sentence`; printed whole.

    Raises
    ------
    InputError
        Fewer than two fits, fits of different data, or fits whose log scores are of different
        kinds: a probability of a one and a density of a number cannot be compared.

    References
    ----------
    Vehtari, Gelman, Gabry (2017), "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC", Statistics and Computing 27.

    Examples
    --------
    >>> import bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
    ...     progress=False,
    ... )
    >>> bmfjax.compare([fit, fit.restricted(0)]).table["rank"].tolist()
    [2, 2]
    """
    fits = [fits] if isinstance(fits, str) or not isinstance(fits, Sequence) else list(fits)
    names = (
        [f"fit {n}" for n in range(1, len(fits) + 1)] if names is None else list(map(str, names))
    )
    _check(fits, names)
    checks.whole("max_entries", max_entries, 2)
    cells = observed_sample(fits[0].data, max_entries, seed)
    found = [scored_together(fit, cells) for fit in fits]
    scores = np.stack([f.log_score for f in found])
    observed = fits[0].data.num_rows * fits[0].data.num_columns - fits[0].data.num_missing
    # No score of starts, whose draws are copies, looks doubtful.
    doubtful = [
        math.nan if fit.verdict.is_of_starts else float(one.doubtful.mean())
        for fit, one in zip(fits, found, strict=True)
    ]
    factors = _factors(fits, names)
    predicts = [fit.verdict.holds("predictions") for fit in fits]
    table = _table(fits, names, scores, observed, doubtful, factors)
    table.insert(table.columns.get_loc("doubtful") + 1, "remarks", _remarks(doubtful, predicts))
    best, sentence = _sentence(table, predicts)
    return Comparison(table, factors, best, sentence)


def _refuse_paths(fits) -> None:
    for path in fits:
        if isinstance(path, str | os.PathLike):
            raise InputError(NO_PATHS.format(what=repr(str(path))))


def _check(fits, names) -> None:
    """Refuse what is no two fits of the same data and kind, or has no names of its own."""
    _refuse_paths(fits)
    if len(fits) < 2 or not all(isinstance(fit, Fit) for fit in fits):
        raise InputError(IN_A_LIST)
    if len(names) != len(fits) or len(set(names)) != len(names):
        raise InputError(f"names are {names} for {len(fits)} fits; give a different one for each")
    first = fits[0]
    for name, fit in zip(names[1:], fits[1:], strict=True):
        if fit.data.fingerprint() != first.data.fingerprint():
            raise InputError(
                f"{names[0]} is of {_described(first.data)} and {name} of {_described(fit.data)}, "
                "which are not the same data; give fits of the same data"
            )
        if fit._scored != first._scored:
            raise InputError(
                f"log scores of {names[0]} ({first.model}) are {first._scored} and those of {name} "
                f"({fit.model}) are {fit._scored}, which cannot be compared; give models of "
                "one kind"
            )


def _described(data) -> str:
    """Return name and size of data, and the first digits of their fingerprint."""
    size = f"{data.num_rows:,} x {data.num_columns:,}, fingerprint {data.fingerprint()[:8]}"
    return f"{data.name or 'a matrix'} ({size})"


# ---- tables --------------------------------------------------------------------------------------


def _table(fits, names, scores, observed, doubtful, factors) -> pd.DataFrame:
    """Return one row a fit; sums over all observed entries are estimated by those scored."""
    number = scores.shape[1]
    behind = scores - scores[int(np.argmax(scores.sum(1)))]
    pairs = factors.dropna(subset=["factor", "partner"]).groupby("other").size()
    partners = [pd.NA, *(int(pairs.get(name, 0)) for name in names[1:])]
    table = pd.DataFrame(
        {
            "fit": names,
            "model": [fit.model for fit in fits],
            "sampler": [fit.sampler for fit in fits],
            "rank": [fit.rank for fit in fits],
            "seed": [fit.settings.get("seed") for fit in fits],
            "log_score": observed * scores.mean(1),
            "difference": observed * behind.mean(1),
            "se": observed * behind.std(1, ddof=1) / math.sqrt(number),
            "doubtful": doubtful,
            **_evidence(fits),
            "partners": pd.array(partners, "Int64"),
            "rhat": [fit.figures.get("rhat") for fit in fits],
            "status": [str(fit.verdict.status) for fit in fits],
            "verdict": [str(fit.verdict) for fit in fits],
        }
    )
    return table.set_index("fit")


def _remarks(doubtful, predicts) -> list[str]:
    """Return what is to be said of the score of each fit, as `_sentence` says it of all."""
    return [
        "; ".join(
            ["scores doubtful"] * (share > MANY_DOUBTFUL) + ["predictions do not hold"] * (not hold)
        )
        for share, hold in zip(doubtful, predicts, strict=True)
    ]


def _evidence(fits) -> dict:
    """Return log evidence and its standard deviation where some fit has it."""
    columns = ("log_evidence", "log_evidence_error")
    if not any(getattr(fit.figures, columns[0]) is not None for fit in fits):
        return {}
    return {name: [float(fit.figures.get(name)) for fit in fits] for name in columns}


def _factors(fits, names) -> pd.DataFrame:
    """Return which factor of the first fit is which of every other, one to one."""
    kept = [_there(fit) for fit in fits]
    means = [Solutions(fit._usage[None], fit._basis[None]) for fit in fits]
    rows = []
    for name, other, mean, theirs in zip(names[1:], fits[1:], means[1:], kept[1:], strict=True):
        cosines = tile_cosines(means[0], mean)[0, :, 0]
        of_turned = np.full_like(cosines, -np.inf)
        if fits[0]._turns and other._turns:
            of_turned = tile_cosines(means[0], turned(mean))[0, :, 0]
        is_turned, cosines = of_turned > cosines, np.maximum(cosines, of_turned)
        ours = kept[0]
        is_turned, cosines = (x[np.ix_(ours, theirs)] for x in (is_turned, cosines))
        rank, other_rank = cosines.shape
        # What is unlike is no pair, so that no two that are alike are left without one.
        pairs = linear_sum_assignment(np.where(cosines >= SAME, cosines, 0.0), maximize=True)
        partners = {
            a: (b, float(cosines[a, b]))
            for a, b in np.transpose(pairs).tolist()
            if cosines[a, b] >= SAME
        }
        for a in range(rank):
            near = int(cosines[a].argmax()) if other_rank else None
            b, s = partners.get(a, (None, float(cosines[a].max(initial=0.0))))
            across = b is not None and bool(is_turned[a, b])
            found = [None if at is None else theirs[at] + 1 for at in (b, near)]
            rows.append((names[0], ours[a] + 1, name, found[0], s, across, found[1]))
        taken = {b for b, _ in partners.values()}
        for b in range(other_rank):
            if b not in taken:
                near = ours[int(cosines[:, b].argmax())] + 1 if rank else None
                most = float(cosines[:, b].max(initial=0.0))
                rows.append((names[0], None, name, theirs[b] + 1, most, False, near))
    columns = ["fit", "factor", "other", "partner", "similarity", "turned", "nearest"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype(dict.fromkeys(("factor", "partner", "nearest"), "Int64"))


def _there(fit) -> np.ndarray:
    """Return the factors of a fit, from 0: not those that are empty or in too few draws."""
    away = fit._in_few_draws if fit._empty is None else fit._in_few_draws | fit._empty
    return np.flatnonzero(~away)


def _partners(part) -> str:
    """Say which factors of the first fit are which of another, in one line."""
    first, other = part["fit"].iloc[0], part["other"].iloc[0]
    both = part.dropna(subset=["factor", "partner"])
    pairs = ", ".join(
        f"{r.factor} is {r.partner} ({r.similarity:.2f}{', turned round' * r.turned})"
        for r in both.itertuples()
    )
    line = f"Factors of {first} in {other}: {pairs or 'none'}"
    for side, across, of, to in (
        ("factor", "partner", first, other),
        ("partner", "factor", other, first),
    ):
        left = part[part[across].isna()]
        unlike = left.loc[left["similarity"] < SAME, side]
        if len(unlike):
            line += f"; only in {of}: {', '.join(map(str, unlike))}"
        # One to one: what it is like is more like another.
        line += "".join(
            f"; {r[side]} of {of} is like {r['nearest']} of {to} ({r['similarity']:.2f}), which "
            "has another partner"
            for _, r in left[left["similarity"] >= SAME].iterrows()
        )
    return f"{line}."


# ---- the sentence --------------------------------------------------------------------------------


def _sentence(table, predicts) -> tuple[int | None, str]:
    """Return the position of the best fit, if one is seen to be best, and the sentence.

    `predicts` says of each fit whether its predictions hold.
    """
    many = np.flatnonzero(table["doubtful"] > MANY_DOUBTFUL).tolist()
    order = np.argsort(-table["log_score"].to_numpy(), kind="stable")
    names, behind, error = (
        [column[at] for at in order]
        for column in (list(table.index), table["difference"].to_list(), table["se"].to_list())
    )
    level = [n for n in range(1, len(names)) if not -behind[n] > TELLING * error[n]]
    if level:
        last = level[-1]
        same = [names[0], *(names[n] for n in level)]
        text = (
            f"It is open which of {in_words(same)} predicts better: their log scores differ "
            f"by {_amount(-behind[last], error[last])}"
        )
    else:
        seems = "seems to predict" if many else "predicts"
        text = (
            f"{names[0]} {seems} left-out entries better than {names[1]}: its log score is higher "
            f"by {_amount(-behind[1], error[1])}"
        )
    open_ = list(table.index[~np.asarray(predicts)])
    if open_:
        text += f", but predictions of {in_words(open_)} do not hold"
    if many:
        share = table["doubtful"].iloc[many].max()
        text += (
            f"; up to {share:.0%} of the scores of {in_words(list(table.index[many]))} are "
            "doubtful: to be sure, fit with hidden entries (check=0.1, --check 0.1)"
        )
    return (None if level else int(order[0])), f"{text}.{_by_evidence(table)}"


def _by_evidence(table) -> str:
    """Say which fit has the largest evidence, where two have one."""
    if "log_evidence" not in table or table["log_evidence"].notna().sum() < 2:
        return ""
    known = table.dropna(subset=["log_evidence"]).sort_values("log_evidence", ascending=False)
    error = float(np.sqrt((known["log_evidence_error"].iloc[:2] ** 2).sum()))
    ahead = known["log_evidence"].iloc[0] - known["log_evidence"].iloc[1]
    if not ahead > TELLING * error:
        return (
            f" The evidence cannot tell {known.index[0]} from {known.index[1]}: their logarithms "
            f"differ by {_amount(ahead, error)}; take more particles (num_particles)."
        )
    return (
        f" By the evidence {known.index[0]} is ahead of {known.index[1]}: the log evidence is "
        f"higher by {_amount(ahead, error)}."
    )


def _amount(value, error) -> str:
    # "z": what rounds to zero has no sign.
    return f"{value:z,.1f}, with a standard error of {error:,.1f}"
