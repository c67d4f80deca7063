"""Whether to trust a fit: what its chains, or starts, say, and what to do next.

`of_chains` judges the Boolean, relaxed and nonnegative models, `of_ratings` the matrix
factorisations, `of_starts` the variational fits of the logistic model; `with_bound` says where more
factors may be there. Each returns a `Verdict`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bmfjax.diagnostics import ess_bulk, share_agreeing, split_rhat
from bmfjax.infer import round_trips
from bmfjax.kernels.sgmcmc.step_size import ENOUGH
from bmfjax.variational.settling import WINDOW
from bmfjax.verdict.entries import Mixing
from bmfjax.verdict.record import (
    ESS_PER_CHAIN,
    NAN,
    RHAT_GOOD,
    RHAT_USABLE,
    Figures,
    Status,
    Verdict,
    agrees,
    factors_differ,
    fewest_draws,
    has_wrong_spread,
    status_of,
)

#: From this probability of the most factors that were allowed, there may be more.
AT_BOUND = 0.05
_NO_WINDOWS = MappingProxyType({})


# ---- the number of factors -----------------------------------------------------------------------


def of_rank(drawn) -> dict:
    """Say what draws (chain, draw) of the number of factors tell of it."""
    most = _mode(drawn)
    return {
        "rank": most,
        "rank_probability": float(np.mean(drawn == most)),
        "rank_mean": float(np.mean(drawn)),
        "rhat_rank": float(split_rhat(drawn)),
        "ess_rank": float(ess_bulk(drawn)),
    }


def with_bound(judged: Verdict, drawn, bound: int, most: int, *, cramped: bool = False) -> Verdict:
    """Say in a verdict where the factors that were allowed may be too few.

    `drawn` are draws of the number of factors, `bound` is the most that were allowed, `most` the
    most that a matrix of this shape can have. A fit that is `cramped` had no time to start anew
    with more.

    Examples
    --------
    >>> good = Figures(rhat=1.0, factors_agreeing=1.0, exact=True, converged=True)
    >>> judged = Verdict(status_of(good), "Reliable", ("they agree",), figures=good)
    >>> str(with_bound(judged, np.array([[3, 3, 4, 3]]), 8, 20))
    'Reliable: they agree.'
    >>> str(with_bound(judged, np.array([[4, 4, 4, 4]]), 4, 6)).split(".")[0]
    'Usable for at most 4 factors: they agree'
    """
    share = float(np.mean(drawn == bound))
    bounded = share >= AT_BOUND and bound < most
    found = judged.changed(rank_at_bound=share, rank_bounded=bounded, rank_cramped=cramped)
    if not bounded:
        return found
    more = min(2 * bound, most)
    allow = f"allow more, max_rank={more} (--max-rank {more})"
    if cramped:
        allow = "give it more time, max_time=SECONDS (--max-time SECONDS), to start with more"
    # After advice that comes first this is a second piece.
    lead = "; to look for them, " if judged.remedy else ". Next, "
    number = (
        f"There may be more: all that were allowed are there with probability {share:.2f}{lead}"
        f"{allow}."
    )
    if judged.status == Status.RELIABLE:
        found = dataclasses.replace(found, opening=f"Usable for at most {bound} factors")
    return dataclasses.replace(found, status=status_of(found.figures), number=number)


# ---- a warm-up that was cut short ----------------------------------------------------------------


def with_short_warmup(judged: Verdict, planned: int) -> Verdict:
    """Say in a verdict that the time was up in the warm-up, of which so many steps were planned.

    Examples
    --------
    >>> figures = Figures(num_warmup=20, factors_agreeing=1.0, converged=True)
    >>> judged = Verdict(status_of(figures), "Usable", ("they agree",), figures=figures)
    >>> str(with_short_warmup(judged, 300)).split(", so that")[0]
    'Do not rely on this run, because the time was up after 20 of 300 steps of warm-up'
    """
    steps = judged.figures.num_warmup
    why = (
        f"the time was up after {steps:,} of {planned:,} steps of warm-up, so that its draws tell "
        "where the chains were and not the posterior"
    )
    figures = dataclasses.replace(judged.figures, planned_warmup=planned, converged=False)
    return dataclasses.replace(
        judged, status=status_of(figures), opening="Do not rely on this run, because",
        reasons=(why,), notes=(), remedy=_RESUME, figures=figures,
    )  # fmt: skip


def _mode(drawn) -> int:
    """Return the most frequent number, the smallest of several."""
    numbers, counts = np.unique(drawn, return_counts=True)
    return int(numbers[counts.argmax()])


# ---- what a run has tried ------------------------------------------------------------------------


class Tried(NamedTuple):
    """What a run has tried, and what is left to try."""

    draws: int = 0  # of each chain
    rank: int = 1
    stopped: bool = False  # before all draws were taken
    #: Temperatures (or walls) were used; None where the sampler has none.
    ladder: bool | None = None
    #: The matrix is so large that temperatures have not been seen to help.
    large: bool = False
    #: The option that turns temperatures on: its name, and a value as JSON.
    ladder_option: tuple[str, str] = ("inverse_temperatures", "[1, 0.6, 0.36, 0.2]")
    #: A sampler that is left to try: one that estimates the evidence, or an exact one.
    other_sampler: str | None = None
    particles: int = 0  # of each run, of a sampler that has them
    remedy: str = ""  # what is known already to be the next thing to try


UNKNOWN = Tried()


# ---- Boolean, relaxed and nonnegative factors ----------------------------------------------------


def of_chains(
    entries: Mixing, chains: int, errors, agreeing, trace, *, exact: bool,
    empty=None, residual_floor: float = 0.0, shared_starts: bool = False,
    given_start: bool = False, windows: Mapping = _NO_WINDOWS, tried: Tried = UNKNOWN,
) -> Verdict:  # fmt: skip
    """Judge chains over nonnegative factors.

    `errors` counts the observed entries that the Boolean product gets wrong, `agreeing` (rank,) is
    the tile similarity across chains, `empty` (rank,) tells which factors have no tile when they
    are rounded (None: none are rounded), and `trace` holds (chain, step) without the warm-up:
    `log_joint`, and where the sampler has them `precision`, `dispersion`, `residual`, `clamped`,
    `noise_share`, the number of factors `rank`, `replica`, of which the figures hold the
    `round_trips`, and `dispersion_2` and so on of layers above the first.
    A sum of squared residuals below `residual_floor`, twice the rate of the precision's Gamma
    prior, says less about the noise than the prior does: then the fit is `noise_free`.

    Chains with `shared_starts` took over factors of each other before they started; those with a
    `given_start` all started from the solution that a user gave.
    `windows` says how many iterates a draw of each factor matrix averages, of a sampler that
    averages; `window` is the smallest.
    `clamped` is the mean share of coordinates at a bound. The remedy follows from what was `tried`.
    """
    figures = {
        "exact": exact,
        "rhat_product": _moving_quantile(entries.rhat, 0.99),
        "rhat_product_worst": _moving_quantile(entries.rhat, 1.0),
        "ess_product": _moving_quantile(entries.ess, 0.01),
        **_of_many(entries),
        **_of_scalar(trace, "log_joint"),
        **_of_scalar(trace, "precision"),
        **_of_scalar(trace, "dispersion"),
        "entries_uncertain": entries.uncertain,
        **_of_factors(agreeing, empty, chains),
        "clamped": _of(trace, "clamped", np.mean),
        "noise_free": bool(_of(trace, "residual", np.mean) < residual_floor),
        "shared_starts": bool(shared_starts and chains > 1),
        "given_start": bool(given_start and chains > 1),
        "errors": errors,
    }
    if "noise_share" in trace:
        figures["noise_share"] = _of(trace, "noise_share", np.mean)
    if windows:
        figures["window"] = min(windows.values())
    if "rank" in trace:
        figures |= of_rank(trace["rank"])
    if above := [name for name in trace if name.startswith("dispersion_")]:
        worst = [np.nan_to_num(_of(trace, name, split_rhat), nan=1.0) for name in above]
        figures["rhat_layers"] = max(worst)
    if "replica" in trace:
        figures["round_trips"] = int(round_trips(trace["replica"]).sum())
    found = _with_worst(figures, _MIXING.values(), chains)
    remedy = remedy_of_chains(found, chains, trace["log_joint"], tried)
    return _said_of_chains(found, chains, len(agreeing), windows, remedy)


_MIXING = {
    "the reconstruction": "rhat_product",
    "the log joint density": "rhat_log_joint",
    "the noise precision": "rhat_precision",
    "the dispersion": "rhat_dispersion",
    "the number of factors": "rhat_rank",
    "the dispersion of a layer above": "rhat_layers",
}


def _said_of_chains(figures, chains, rank, windows, remedy) -> Verdict:
    status, limits = status_of(figures), _limits(figures, windows)
    if chains == 1:
        return Verdict(status, *_NOT_CHECKED, limits, remedy, figures=figures)
    if not figures.converged:
        modes = []
        if factors_differ(figures):
            modes = ["fit.modes and the report show the modes"]
        elif figures.rhat > RHAT_USABLE:
            modes = ["fit.modes and the report show where they differ"]
        return Verdict(
            status, "Do not rely on this run, because", _reasons(figures, chains, rank),
            (*limits, *modes), remedy, figures=figures,
        )  # fmt: skip
    mixed = f"{_found(figures, rank, _everyone(chains))}, and {_entries_text(figures)}"
    notes = (mixed, *_number_found(figures), *limits)
    if figures.exact:
        return Verdict(status, *_exact(status), notes, figures=figures)
    opening, reasons = "Usable, as an approximation", ()
    if has_wrong_spread(figures):
        opening = "Use the factors, but do not rely on standard deviations and probabilities"
        reasons = (_noise_of_batches(figures) or "this sampler's spread is not the posterior's",)
    elif figures.noise_share is not None:
        notes = (f"{'; '.join(notes)}. {_noise_of_batches(figures)}",)
    else:
        said = "the standard deviations of this sampler are approximate"
        notes = (f"{'; '.join(notes)}, and {said}",)
    return Verdict(status, opening, reasons, notes, figures=figures)


def _noise_of_batches(figures) -> str:
    """Say how far a sampler is from exact that makes up for the noise of its gradients."""
    share = figures.noise_share
    if share is None:
        return ""
    if share > 1.0:
        return (
            f"gradients from minibatches have {share:.1f} times the noise that the sampler can "
            "make up for (larger batches have less: batch_size, --batch-size)"
        )
    return (
        f"Gradients from minibatches have {share:.0%} of the noise that the sampler can make up "
        "for; but for the shape of that noise it is exact"
    )


def _entries_text(figures) -> str:
    """Say how the entries of the reconstruction mixed."""
    if np.isnan(figures.rhat_product):
        return "no entry of the reconstruction is uncertain"
    which = "reconstructed" if np.isnan(figures.entries_uncertain) else "uncertain"
    return f"99 % of the {which} entries have {_mixing(figures)}"


def _limits(figures, windows) -> tuple[str, ...]:
    """Say what qualifies the result whatever the chains do."""
    limits = [_averaged(windows)] if windows else []
    if not np.isnan(figures.clamped):
        share = 100 * figures.clamped
        limits.append(f"{share:.0f} % of the coordinates were held at a bound of [0, 1]")
    if figures.noise_free:
        limits.append(
            "the factors reproduce the data almost without noise, so that the noise precision is "
            "bounded by its prior, or by the arithmetic, alone"
        )
    if figures.shared_starts:
        limits.append(
            "the chains shared the factors they had found before they started, so that R-hat does "
            "not show modes which they left"
        )
    if figures.given_start:
        limits.append(_given("chains", "R-hat does not show other modes"))
    return tuple(limits)


def _given(what: str, hidden: str) -> str:
    """Say that chains or starts began at one solution, and what they do not show therefore."""
    return f"the {what} started from the solution that was given, so that {hidden}"


def _averaged(windows) -> str:
    """Say how many iterates a draw averages, and what to use instead where they are too few."""
    sites = " and ".join(f"{t} of the {site}" for site, t in windows.items())
    least = min(windows.values())
    same = f"{least} iterate{'s' * (least > 1)}"
    averaged = same if len(set(windows.values())) == 1 else f"iterates, {sites}"
    if least >= ENOUGH:
        return f"a draw averages {averaged}"
    return (
        f"a draw averages {averaged}, and fewer than {ENOUGH} are too few for its theory: use "
        "sampler='gibbs' (--sampler gibbs)"
    )


def _reasons(figures, chains, rank) -> tuple[str, ...]:
    """Say what keeps the run from having converged: factors, the worst R-hat, or few draws."""
    reasons = []
    if factors_differ(figures):
        reasons.append(f"only {_found(figures, rank, _everyone(chains))}")
    known = {what: figures.get(name) for what, name in _MIXING.items()}
    worst = max(known, key=lambda what: np.nan_to_num(known[what]))
    if known[worst] > RHAT_USABLE:
        stuck = np.isinf(known[worst])
        of = "an infinite R-hat (chains are stuck)" if stuck else f"an R-hat of {known[worst]:.2f}"
        reasons.append(f"{worst} has {of}")
    if not reasons:
        what, number = fewest_draws(figures)
        reasons = [f"{number:.0f} effective draws of {what} are fewer than {ESS_PER_CHAIN} a chain"]
    return tuple(reasons)


# ---- what to try next ----------------------------------------------------------------------------


def remedy_of_chains(figures: Figures, chains: int, log_joint, tried: Tried) -> str:
    """Say what to try next, in Python and on the command line; empty where nothing is wrong."""
    if figures.converged:
        return ""
    if tried.remedy:
        return tried.remedy
    if chains == 1:
        return _FOUR_CHAINS
    if tried.particles:
        more = 4 * tried.particles
        return (
            f"take more particles, sampler=bmfjax.SMC(num_particles={more}) (--option "
            f"num_particles={more})"
        )
    apart = factors_differ(figures) or figures.rhat > RHAT_SLOW
    if tried.stopped and (not apart or _comes_together(log_joint)):
        return _RESUME
    if not apart:
        return _more_draws(figures, chains, tried)
    if tried.ladder is False and not tried.large:
        name, value = tried.ladder_option
        return (
            f"let the chains cross between modes, sampler=bmfjax.Gibbs({name}={value}) (--option "
            f"{name}={value.replace(' ', '')})"
        )
    if tried.other_sampler is not None:
        return f"fit with sampler='{tried.other_sampler}' (--sampler {tried.other_sampler})"
    if tried.large:
        return _where_large(tried)
    if tried.rank > 1:
        less = tried.rank - 1
        return f"fit with a smaller rank, rank={less} (--rank {less}), or use one mode alone"
    return _more_draws(figures, chains, tried)


#: Up to this R-hat chains that found the same factors are slow, and not apart.
RHAT_SLOW = 1.2
_FOUR_CHAINS = "fit with num_chains=4 (--chains 4)"
_RESUME = (
    "give it more time, max_time=SECONDS; with checkpoint= also resume=True (--resume --max-time "
    "SECONDS)"
)


def _where_large(tried) -> str:
    """Say what helps where chains are apart and temperatures cost more than they are known to."""
    more = "take more draws (num_samples, --samples)"
    if tried.stopped:
        more = "give it more time (max_time, --max-time)"
    less = tried.rank - 1
    smaller = f" a smaller rank, rank={less} (--rank {less})," * (less > 0)
    return f"{more},{smaller} or use the factors that all modes share (fit.modes.common)"


def _comes_together(log_joint) -> bool:
    """Say whether the chains were closer in the second half of the draws than in the first."""
    half = log_joint.shape[1] // 2
    if half < 4:
        return True
    return bool(split_rhat(log_joint[:, half:]) < split_rhat(log_joint[:, :half]))


def _more_draws(figures, chains, tried) -> str:
    """Say how many draws may be enough: at most ten times as many, in round numbers."""
    short = ESS_PER_CHAIN * chains / max(fewest_draws(figures)[1], 1.0)
    wanted = min(max(2.0, 1.5 * short), 10.0) * max(tried.draws, 100)
    digit = 10.0 ** math.floor(math.log10(wanted))
    number = int(math.ceil(wanted / digit) * digit)
    return f"take more draws, num_samples={number} (--samples {number})"


# ---- matrix factorisations -----------------------------------------------------------------------


def of_ratings(
    entries: Mixing, chains: int, agreeing, trace, cutpoints=None, *, exact: bool = True,
    what: str = "fits", joint_counts: bool = False, given_start: bool = False,
    tried: Tried = UNKNOWN,
) -> Verdict:  # fmt: skip
    """Judge a matrix factorisation by entries of `what` it reconstructs.

    `cutpoints` (chain, draw, categories - 1), of "ordered-probit", count with their distances.
    The log joint density counts where `joint_counts`. Where priors are learned it has parts that no
    prediction depends on, such as how the factors share the scale, and does not count. Nor do the
    factors themselves, which the sentence tells of.
    """
    figures = {
        "exact": exact,
        **_quantiles(entries.rhat),
        "ess_product": _quantile(entries.ess, 0.01),
        **_of_many(entries),
        **_of_scalar(trace, "log_joint"),
        "log_joint_counts": joint_counts,
        **_of_scalar(trace, "precision"),
        "factors_agreeing": _agreeing(agreeing, chains),
        "agreement_counts": False,
        "given_start": bool(given_start and chains > 1),
        "noise_free": False,
    }
    if cutpoints is not None:
        figures |= _of_cutpoints(cutpoints)
    if "rank" in trace:
        figures |= of_rank(trace["rank"])
    doubts = ["rhat_product", "rhat_precision", "rhat_cutpoints", "rhat_rank"]
    doubts += ["rhat_log_joint"] * joint_counts
    found = _with_worst(figures, doubts, chains)
    remedy = _remedy_of_ratings(found, chains, tried)
    return _said_of_ratings(found, chains, len(agreeing), what, remedy)


def _of_cutpoints(cutpoints) -> dict:
    """R-hat and effective draws of the cut points and of their distances."""
    # What a star is worth shows in the distances.
    gaps = np.concatenate([cutpoints, np.diff(cutpoints, axis=-1)], -1)
    # One that never changes says nothing of the others; it has not been seen to move.
    rounding = 4 * np.finfo(np.float32).eps * max(1.0, np.abs(cutpoints).max())
    stuck = np.ptp(gaps, axis=(0, 1)) <= rounding
    return {
        "rhat_cutpoints": float(np.nanmax(np.where(stuck, np.inf, split_rhat(gaps)))),
        "ess_cutpoints": float(np.nanmin(np.where(stuck, 0.0, ess_bulk(gaps)))),
    }


def _remedy_of_ratings(figures, chains, tried) -> str:
    """Say what to try next: chains of a matrix factorisation are slow rather than apart."""
    if chains == 1:
        return _FOUR_CHAINS
    if figures.converged:
        return ""
    return _RESUME if tried.stopped else _more_draws(figures, chains, tried)


def _said_of_ratings(figures, chains, rank, what, remedy) -> Verdict:
    status = status_of(figures)
    if chains == 1:
        return Verdict(status, *_NOT_CHECKED, remedy=remedy, figures=figures)
    mixed = [f"99 % of the {what} have {_mixing(figures)}", *_more_mixing(figures, chains)]
    found = round(figures.factors_agreeing * rank)
    if found < rank:
        mixed.append(
            f"the factors behind them are less sure, {found} of {rank} found by {_everyone(chains)}"
        )
    if figures.given_start:
        mixed.append(_given("chains", "R-hat does not show other modes"))
    if not figures.converged:
        opening = "Do not rely on this run yet"
        return Verdict(status, opening, tuple(mixed), (), remedy, figures=figures)
    opening, reasons = _exact(status)
    if not figures.exact:
        reasons = (
            "chains that agree, and new lines drawn from nearly what each draw says of them",
        )
    return Verdict(status, opening, reasons, tuple(mixed), figures=figures)


def _more_mixing(figures, chains) -> list[str]:
    """Say how the rest mixed that counts: what is above the limits, and the number of factors."""
    mixed, least = [], ESS_PER_CHAIN * chains
    if figures.rhat == figures.rhat_log_joint > RHAT_GOOD:
        mixed.append(f"the log joint density has an R-hat of {figures.rhat_log_joint:.2f}")
    if figures.rhat_precision > RHAT_GOOD:
        mixed.append(f"the noise has an R-hat of {figures.rhat_precision:.2f}")
    if figures.converged:
        mixed += _number_found(figures)
    elif figures.get("rhat_rank") > RHAT_GOOD:
        mixed.append(f"the number of factors has an R-hat of {figures.rhat_rank:.2f}")
    if figures.get("ess_cutpoints") < least or figures.get("rhat_cutpoints") > RHAT_GOOD:
        mixed.append(
            "the cut points and their distances have an R-hat of "
            f"{figures.rhat_cutpoints:.2f} with at least {figures.ess_cutpoints:.0f} "
            "effective draws"
        )
    what, number = fewest_draws(figures)
    if number < least and what not in ("the reconstruction", "the cut points"):
        mixed.append(f"{what} has {number:.0f} effective draws, fewer than {ESS_PER_CHAIN} a chain")
    return mixed


# ---- variational fits ----------------------------------------------------------------------------


def of_starts(
    entries: Mixing, agreeing, elbo, steps, settled, num_steps: int, *, sampled: bool, ranks=None,
    given_start: bool = False,
) -> Verdict:  # fmt: skip
    """Judge a variational fit of the logistic model by its starts.

    `elbo` (start, step) is the bound after every step, `steps` and `settled` (start,) say how many
    steps each start took and whether its bound has settled. Steps from `sampled` entries shrink, so
    that their bound may settle below what all entries would reach: such a fit has not converged by
    this rule alone.

    `elbo` of the result is the best start's, `elbo_spread` the distance to the worst; `complete`:
    no start was stopped before its bound settled; `elbo_rise`: by what share of its size the mean
    bound of the last steps differs from that of as many before, in the start that changed most.
    R-hat is that of the normals, not of draws. `ranks` (start, draw) is the number of factors,
    where it is found; `rank_agreeing` is the share of starts in which that of the fit is the most
    probable, and another number in any of them keeps the fit from having converged.
    """
    starts, last = len(elbo), elbo[:, -1].astype(np.float64)
    changes = np.array([_change(e[:n]) for e, n in zip(elbo, steps, strict=True)])
    most, everywhere = int(np.max(steps)), bool(np.all(settled))
    figures = {
        "exact": False,
        "elbo": float(last.max()),
        "elbo_spread": float(np.ptp(last)) if starts > 1 else NAN,
        "elbo_rise": float(changes[np.argmax(np.abs(changes))]),
        "steps": most,
        "settled": everywhere,
        "sampled": sampled,
        "complete": everywhere or most >= num_steps,
        **_quantiles(entries.rhat),
        "factors_agreeing": _agreeing(agreeing, starts),
        "given_start": bool(given_start and starts > 1),
    }
    if ranks is not None:
        figures |= of_rank(ranks)
        figures["rank_agreeing"] = float(np.mean([_mode(r) == figures["rank"] for r in ranks]))
    converged = (
        everywhere
        and not sampled
        # NaN, of one start, is not small.
        and figures["rhat_product"] <= RHAT_USABLE
        and figures.get("rank_agreeing", 1.0) == 1.0
    )
    found = Figures(**figures, rhat=figures["rhat_product"], converged=bool(converged))
    return said_of_starts(found, starts, len(agreeing))


def _change(elbo) -> float:
    """Relative change of one start's bound from the steps before its last `WINDOW` to those."""
    size = min(WINDOW, len(elbo) // 2)
    if size == 0:
        return 0.0
    elbo = elbo.astype(np.float64)
    return float((elbo[-size:].mean() - elbo[-2 * size : -size].mean()) / abs(elbo[-1]))


def said_of_starts(figures: Figures, starts: int, rank: int) -> Verdict:
    """Return what these figures of `starts` say of a fit of `rank` factors."""
    status = status_of(figures)
    if not figures.settled:
        remedy = "take more steps (num_warmup, --warmup)"
        if not figures.complete:
            remedy = "give it more time, or resume it from its checkpoint (resume=True, --resume)"
        steps = f"{figures.steps:,} step{'s' * (figures.steps > 1)}"
        why = (
            f"the bound had not settled after {steps} of optimisation (it last changed by "
            f"{figures.elbo_rise:+.2%})"
        )
        opening = "Do not rely on this fit, because"
        return Verdict(status, opening, (why,), remedy=remedy, figures=figures)
    too_small = "standard deviations of a mean-field approximation are too small as a rule"
    number = _number(figures, starts)
    if starts == 1:
        why = "one start cannot show whether another finds the same"
        notes = (f"and {too_small}", *number)
        return Verdict(status, "Not checked", (why,), notes, _FOUR_CHAINS, figures=figures)
    none = figures.rank == 0
    all_found = none or round(figures.factors_agreeing * rank) == rank
    found = _found(figures, rank, _everyone(starts, "starts"))
    mixed = (
        f"{'no factor stands out of the noise' if none else found}, and 99 % of the log odds have "
        f"an R-hat across starts of at most {figures.rhat_product:.2f}",
        *number,
    )
    if figures.given_start:
        mixed += (_given("starts", "their agreement does not show other solutions"),)
    if figures.converged:
        what = "Usable" if all_found else "Use the probabilities, but not the factors"
        notes = (
            *mixed,
            f"{too_small}, and only entries hidden from it show how well it predicts",
        )
        return Verdict(status, f"{what}, as an approximation", (), notes, figures=figures)
    doubtful, why = "standard deviations", "the starts differ by more than they spread"
    if figures.sampled:
        doubtful = "factors or standard deviations"
        why = (
            "steps from sampled entries shrink, and their bound may have settled below what "
            "sampler='batch' reaches"
        )
    if not all_found:
        doubtful, why = "factors or standard deviations", "the starts reached different solutions"
    if figures.rank_agreeing is not None and figures.rank_agreeing < 1.0:
        doubtful, why = "the number of factors, the factors or standard deviations", _STARTS_DIFFER
    opening = f"Use the probabilities, which average over the starts, but do not rely on {doubtful}"
    return Verdict(status, opening, (why,), mixed, figures=figures)


_STARTS_DIFFER = "the starts disagree"


def _number(figures, starts) -> tuple[str, ...]:
    """Say what the starts tell of the number of factors, where it is found."""
    if figures.rank_agreeing is None:
        return ()
    agreeing = round(figures.rank_agreeing * starts)
    return (
        f"{figures.rank} is the most probable number of factors in {agreeing} of {starts} "
        f"start{'s' * (starts > 1)}, and P(rank) is that of a variational approximation, which is "
        "too narrow and counts too few factors in small data, of which model 'probit' finds the "
        "number by an exact sampler",
    )


# ---- what they share -----------------------------------------------------------------------------

#: Opening and reasons of one chain.
_NOT_CHECKED = "Not checked", ("one chain cannot show whether another start finds the same",)


def _exact(status) -> tuple[str, tuple[str, ...]]:
    """Return opening and reasons of exact draws that agree."""
    opening = "Reliable" if status == Status.RELIABLE else "Usable"
    return opening, ("an exact sampler, and chains that agree",)


def _found(figures, rank, everyone) -> str:
    """Say how many factors `everyone` found; one that is empty when rounded is not found."""
    number, empty = number_agreeing(figures, rank), figures.factors_empty or 0
    if not empty:
        return f"{number} of {rank} factors were found by {everyone}"
    if empty == rank:
        return "no factor has a tile when rounded"
    more = f"{empty} more {_are(empty)} empty when rounded"
    return f"{number} of {rank - empty} factors with a tile were found by {everyone} ({more})"


def number_agreeing(figures: Figures, rank: int) -> int:
    """Return how many factors with a tile were found, of a fit whose factors are rounded or not."""
    found = figures.factors_found
    return round(figures.factors_agreeing * rank) if found is None else found


def rank_text(figures: Figures, rank: int) -> str:
    """Say how many factors a fit has, and how many of them are empty when rounded.

    Examples
    --------
    >>> rank_text(Figures(), 1), rank_text(Figures(factors_empty=1), 4)
    ('1 factor', '4 factors, 1 of them empty when rounded')
    """
    empty = figures.factors_empty or 0
    return _factors(rank) + f", {empty} of them empty when rounded" * (empty > 0)


def _factors(number) -> str:
    return f"{number} factor{'s' * (number != 1)}"


def _are(number) -> str:
    return "is" if number == 1 else "are"


def _number_found(figures) -> tuple[str, ...]:
    """Say how probable the number of factors is, where chains find it; else nothing."""
    if figures.rank_probability is None:
        return ()
    mixed = "the same in every draw"
    if not np.isnan(figures.rhat_rank):
        mixed = f"R-hat {figures.rhat_rank:.2f}, {figures.ess_rank:.0f} effective draws"
    return (
        f"the number of factors is {figures.rank} with probability "
        f"{figures.rank_probability:.2f} ({mixed})",
    )


def _everyone(number, what="chains") -> str:
    return f"both {what}" if number == 2 else f"all {number} {what}"


def _mixing(figures) -> str:
    return (
        f"an R-hat of at most {figures.rhat_product:.2f} (the worst "
        f"{figures.rhat_product_worst:.2f}) with at least {figures.ess_product:.0f} "
        "effective draws"
    )


def _agreeing(agreeing, chains) -> float:
    """Share of the factors that all chains found; NaN for one chain."""
    return float(share_agreeing(agreeing)) if chains > 1 else NAN


def _of_factors(agreeing, empty, chains) -> dict:
    """Return the share of factors that agree, how many are empty, and how many chains found.

    Empty factors explain nothing, and whatever chains have there says nothing against them.
    """
    if empty is None:
        return {"factors_agreeing": _agreeing(agreeing, chains)}
    empty = np.asarray(empty, bool)
    full = np.asarray(agreeing)[~empty]
    # Where all are empty there is none to differ in.
    share = _agreeing(full, chains) if len(full) or chains == 1 else 1.0
    found = {"factors_agreeing": share, "factors_empty": int(empty.sum())}
    return found | ({"factors_found": round(share * len(full))} if chains > 1 else {})


def _of(trace, name, statistic) -> float:
    return float(statistic(trace[name])) if name in trace else NAN


def _of_scalar(trace, name) -> dict:
    """Return R-hat and effective draws of a scalar of the trace; NaN where there is none."""
    return {
        f"rhat_{name}": _of(trace, name, split_rhat),
        f"ess_{name}": _of(trace, name, ess_bulk),
    }


def _with_worst(figures: dict, names, chains: int) -> Figures:
    """Return figures with the worst R-hat of those with these `names`, and whether chains agree.

    What never moved, or is not there, is no reason against a run.
    """
    rhats = [figures.get(name, NAN) for name in names]
    worst = float(max(1.0 if np.isnan(rhat) else rhat for rhat in rhats))
    found = Figures(**figures, rhat=worst)
    return dataclasses.replace(found, converged=bool(chains > 1 and agrees(found, chains)))


def _quantiles(rhat) -> dict:
    return {"rhat_product": _quantile(rhat, 0.99), "rhat_product_worst": _quantile(rhat, 1.0)}


def _quantile(values, q: float) -> float:
    """Quantile over the values that are there; NaN where none is."""
    moving = values[~np.isnan(values)]
    return float(np.quantile(moving, q)) if len(moving) else NAN


def _of_many(entries: Mixing) -> dict:
    """Nested R-hat of many chains, and nothing of few."""
    if entries.nested is None:
        return {}
    return {"rhat_nested": _moving_quantile(entries.nested, 0.99)}


def _moving_quantile(values, q: float) -> float:
    """Quantile over the entries that move: one that never does has no R-hat."""
    values = np.asarray(values, float)
    moving = values[~np.isnan(values)]
    method = "higher" if q > 0.5 else "lower"
    return float(np.quantile(moving, q, method=method)) if len(moving) else NAN
