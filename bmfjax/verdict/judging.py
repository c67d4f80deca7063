"""Judge a run: what its chains, or starts, say, which notes qualify it, and what to try next.

`of_chains` judges the Boolean, relaxed and nonnegative models, `of_ratings` the matrix
factorisations, `of_starts` the variational fits of the logistic model. `with_bound` says where more
factors may be there, and `with_fit` what entries left out say of the model. All return a `Verdict`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from bmfjax.diagnostics import ess_bulk, share_agreeing, split_rhat
from bmfjax.diagnostics.align import two_thirds
from bmfjax.infer import round_trips
from bmfjax.kernels.sgmcmc.step_size import ENOUGH
from bmfjax.posterior.modes import SAME
from bmfjax.posterior.searches import SearchCounts
from bmfjax.posterior.trust import FOUND, SELDOM, chains_with, rhat_of_shares, shares_of_halves
from bmfjax.variational.settling import WINDOW
from bmfjax.verdict.entries import Mixing
from bmfjax.verdict.factors import factors_differ
from bmfjax.verdict.figures import FACTOR_NAMES, NAN, Figures
from bmfjax.verdict.number import shortest_range
from bmfjax.verdict.part import SLOW, WIDE, unfinished
from bmfjax.verdict.record import Verdict, agrees, has_wrong_spread
from bmfjax.verdict.remedies import (
    AGAIN,
    FOUR_CHAINS,
    GO_ON,
    RESUME,
    UNKNOWN,
    Tried,
    more_chains,
    remedy_of_chains,
    remedy_of_ratings,
    remedy_of_usable,
)

#: From this probability of the most factors that were allowed, there may be more.
AT_BOUND = 0.05
_NO_WINDOWS = MappingProxyType({})


# ---- the number of factors -----------------------------------------------------------------------


def of_rank(drawn) -> dict:
    """Say what draws (chain, draw) of the number of factors tell of it."""
    most = _mode(drawn)
    numbers, counts = np.unique(drawn, return_counts=True)
    low, high, share = shortest_range(
        dict(zip(numbers.tolist(), counts / counts.sum(), strict=True))
    )
    return {
        "rank": most,
        "rank_probability": float(np.mean(drawn == most)),
        "rank_between": (low, high),
        "rank_between_probability": share,
        "rank_between_least": float(((drawn >= low) & (drawn <= high)).mean(-1).min()),
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
    >>> judged = Verdict(Figures(num_chains=4, rank=4, rank_probability=1.0))
    >>> with_bound(judged, np.array([[3, 3, 4, 3]]), 8, 20).number.holds
    True
    >>> with_bound(judged, np.array([[4, 4, 4, 4]]), 4, 6).number.remedy
    'allow more factors, max_rank=6 (--max-rank 6)'
    """
    share = float(np.mean(drawn == bound))
    bounded = share >= AT_BOUND and bound < most
    more = min(2 * bound, most)
    remedy = f"allow more factors, max_rank={more} (--max-rank {more})"
    if cramped:
        remedy = "give it more time, max_time=SECONDS (--max-time SECONDS), to start with more"
    found = judged.changed(rank_at_bound=share, rank_bounded=bounded, rank_cramped=cramped)
    return dataclasses.replace(found, remedies={**judged.remedies, "number": remedy})


# ---- a run that was stopped ----------------------------------------------------------------------

#: Figures of convergence, which a fit without draws does not have.
OF_CHAINS = (
    *(one.name for one in dataclasses.fields(Figures) if one.name.startswith(("rhat", "ess_"))),
    "chains_apart", "mc_error", "factors_found", "factors_chains", "layers_agreeing",
    "rank_agreeing", "round_trips",
)  # fmt: skip


def with_short_warmup(judged: Verdict, planned: int, drawn: int) -> Verdict:
    """Say in a verdict that the time was up in the warm-up, or at fewer draws than a result takes.

    So many steps of warm-up were `planned`, and so many draws `drawn` by steps.

    Examples
    --------
    >>> judged = Verdict(Figures(num_chains=4, num_warmup=20, factors_agreeing=1.0, exact=True))
    >>> with_short_warmup(judged, 300, 4).status.value, judged.status.value
    ('unreliable', 'reliable')
    """
    taken = judged.figures.num_warmup
    after = f"{taken:,} of {planned:,} steps of warm-up"
    if taken == planned:
        after = f"{drawn:,} draw{'s' * (drawn != 1)}, fewer than a result takes"
    why = (
        f"the time was up after {after}, so that the draws tell where the chains were and not the "
        "posterior"
    )
    is_start = taken == drawn == 0
    if is_start:
        why = "the time was up before the sampler drew, so that the draws repeat where chains began"
    found = judged.changed(planned_warmup=planned, converged=False)
    if is_start:  # copies of starts look as if chains had converged
        found = found.changed(factors_agreeing=NAN, **dict.fromkeys(OF_CHAINS))
    return dataclasses.replace(
        found, notes=(why,), remedies={"chains": AGAIN if is_start else RESUME}
    )


def with_time_up(judged: Verdict, reached: str) -> Verdict:
    """Say in a verdict that the time was up, and how far the run was then.

    Examples
    --------
    >>> with_time_up(Verdict(Figures(num_chains=4)), "6,645 draws a chain").notes
    ('the time was up after 6,645 draws a chain',)
    """
    notes = (f"the time was up after {reached}", *judged.notes)
    return dataclasses.replace(judged, notes=notes)


def with_interruption(judged: Verdict, reached: str) -> Verdict:
    """Say in a verdict that somebody interrupted the run, and how far it was then.

    Examples
    --------
    >>> with_interruption(Verdict(Figures(num_chains=4)), "90 draws a chain").notes
    ('the run was interrupted after 90 draws a chain',)
    """
    remedies = {**judged.remedies, "stopped": GO_ON}
    if remedies.get("chains") == RESUME:  # it was not the time that was up
        remedies["chains"] = GO_ON
    notes = (f"the run was interrupted after {reached}", *judged.notes)
    return dataclasses.replace(judged, notes=notes, remedies=remedies)


def _mode(drawn) -> int:
    """Return the most frequent number, the smallest of several."""
    numbers, counts = np.unique(drawn, return_counts=True)
    return int(numbers[counts.argmax()])


# ---- Boolean, relaxed and nonnegative factors ----------------------------------------------------


def of_chains(
    entries: Mixing, chains: int, errors, agreeing, trace, *, exact: bool,
    empty=None, present=None, steady=None, residual_floor: float = 0.0, shared_starts: bool = False,
    given_start: bool = False, starts: int = 0, found_by: int | None = None,
    searches: SearchCounts | None = None, windows: Mapping = _NO_WINDOWS, tried: Tried = UNKNOWN,
) -> Verdict:  # fmt: skip
    """Judge chains over nonnegative factors.

    `errors` counts the observed entries that the Boolean product gets wrong, `agreeing` (2, rank)
    is the tile similarity across all chains, and of two thirds of them to their mean, or (rank,)
    the first alone, `empty` (rank,) tells which factors have no tile when they are rounded (None:
    none are rounded), `present` (chain, draw, rank) which draws have each factor, or (chain, rank)
    in which share of its draws each chain has it (None: it is not looked at), `steady` (chain,
    rank) in which share a chain has what is in the place of the factor in the mean of its own
    draws, and `trace` holds (chain, step) without the warm-up:
    `log_joint`, and where the sampler has them `precision`, `dispersion`, `residual`, `clamped`,
    `noise_share`, the number of factors `rank`, `replica`, of which the figures hold the
    `round_trips`, and `dispersion_2` and so on of layers above the first.
    A sum of squared residuals below `residual_floor`, twice the rate of the precision's Gamma
    prior, says less about the noise than the prior does: then the fit is `noise_free`.

    Chains with `shared_starts` took over factors of each other before they started; those with a
    `given_start` all started from the solution that a user gave. `starts` is how many of their
    starts differ, 0 where that was not looked at; `found_by` is how many chains were by
    themselves as high as the best, which the others took over, None where they did not; and
    `searches` what the own ends of those searches say.
    `windows` says how many iterates a draw of each factor matrix averages, of a sampler that
    averages; `window` is the smallest.
    `clamped` is the mean share of coordinates at a bound. The remedy follows from what was `tried`.
    """
    figures = {
        "exact": exact,
        **_of_predictions(entries),
        "rhat_product": _moving_quantile(entries.rhat, 0.99),
        "rhat_product_worst": _moving_quantile(entries.rhat, 1.0),
        "ess_product": _moving_quantile(entries.ess, 0.01),
        **_of_many(entries),
        **_of_scalar(trace, "log_joint"),
        **_of_scalar(trace, "precision"),
        **_of_scalar(trace, "dispersion"),
        "entries_uncertain": entries.uncertain,
        **found_factors(agreeing, empty, chains, searches, present, steady),
        "clamped": _of(trace, "clamped", np.mean),
        "noise_free": bool(_of(trace, "residual", np.mean) < residual_floor),
        "shared_starts": bool(shared_starts and chains > 1),
        "given_start": bool(given_start and chains > 1),
        "errors": errors,
    }
    if starts:
        figures["starts"] = starts
    if found_by is not None and chains > 1:
        figures["found_by"] = found_by
    if "noise_share" in trace:
        figures["noise_share"] = _of(trace, "noise_share", np.mean)
    if windows:
        figures["window"] = min(windows.values())
    if "rank" in trace:
        figures |= of_rank(trace["rank"])
        if searches is not None and chains > 1:
            figures["rank_searches"] = searches.with_rank(trace["rank"])
    if above := [name for name in trace if name.startswith("dispersion_")]:
        worst = [np.nan_to_num(_of(trace, name, split_rhat), nan=1.0) for name in above]
        figures["rhat_layers"] = max(worst)
    if "replica" in trace:
        figures["round_trips"] = int(round_trips(trace["replica"]).sum())
    found = _with_worst(figures, _MIXING.values(), chains)
    remedies = {
        "chains": remedy_of_chains(found, trace["log_joint"], tried),
        "searches": more_chains(found, tried),
        "usable": remedy_of_usable(found, tried),
    }
    return Verdict(found, _notes(found, windows), remedies)


#: R-hat of what counts.
_MIXING = {
    "the reconstruction": "rhat_product",
    "the log joint density": "rhat_log_joint",
    "the noise precision": "rhat_precision",
    "the dispersion": "rhat_dispersion",
    "the number of factors": "rhat_rank",
    "the dispersion of a layer above": "rhat_layers",
}


def _notes(figures, windows) -> tuple[str, ...]:
    """Say what qualifies the result whatever the chains do, and where the modes are."""
    notes = [_averaged(windows)] if windows else []
    if not np.isnan(figures.clamped):
        share = 100 * figures.clamped
        notes.append(f"{share:.0f} % of the coordinates were held at a bound of [0, 1]")
    if figures.noise_free:
        notes.append(
            "the factors reproduce the data almost without noise, so that the noise precision is "
            "bounded by its prior, or by the arithmetic, alone"
        )
    if figures.shared_starts:
        began = "the chains shared the factors they had found before they started"
        if figures.starts == 1:
            began = "all chains began where one search ended"
        notes.append(f"{began}, so that R-hat does not show other modes")
    if not figures.starts and (figures.found_by or figures.num_chains) < figures.num_chains:
        notes.append(
            "chains that disagreed jumped to what others had found, and by themselves "
            f"{figures.found_by} of {figures.num_chains} were as high as the best, so that R-hat "
            "does not show other modes"
        )
    if figures.given_start:
        notes.append(_given("chains", "R-hat does not show other modes"))
    if not figures.exact and figures.num_chains > 1:
        notes.append(_spread_of(figures))
    if factors_differ(figures) and figures.chains_differ:
        notes.append("the modes are in fit.modes and in the report")
    return tuple(notes)


def _spread_of(figures) -> str:
    """Say how far the spread of an approximate sampler is that of the posterior."""
    wrong = "do not rely on standard deviations and probabilities: "
    if figures.noise_share is None:
        if has_wrong_spread(figures):
            return f"{wrong}this sampler's spread is not the posterior's"
        return "the standard deviations of this sampler are approximate"
    if has_wrong_spread(figures):
        return (
            f"{wrong}gradients from minibatches have {figures.noise_share:.1f} times the noise "
            "that the sampler can make up for (larger batches have less: batch_size, --batch-size)"
        )
    return (
        f"gradients from minibatches have {figures.noise_share:.0%} of the noise that the sampler "
        "can make up for; but for the shape of that noise it is exact"
    )


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


# ---- matrix factorisations -----------------------------------------------------------------------


def of_ratings(
    entries: Mixing, chains: int, agreeing, trace, cutpoints=None, *, exact: bool = True,
    joint_counts: bool = False, given_start: bool = False,
    tried: Tried = UNKNOWN,
) -> Verdict:  # fmt: skip
    """Judge a matrix factorisation by entries that it reconstructs.

    `cutpoints` (chain, draw, categories - 1), of "ordered-probit", count with their distances.
    The log joint density counts where `joint_counts`. Where priors are learned it has parts that no
    prediction depends on, such as how the factors share the scale, and does not count. Nor do the
    factors themselves, of which the data determine the product alone.
    """
    figures = {
        "exact": exact,
        **_of_predictions(entries),
        **_quantiles(entries.rhat),
        "ess_product": _quantile(entries.ess, 0.01),
        **_of_many(entries),
        **_of_scalar(trace, "log_joint"),
        "log_joint_counts": joint_counts,
        **_of_scalar(trace, "precision"),
        **found_factors(agreeing, None, chains),
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
    notes = []
    if found.given_start:
        notes.append(_given("chains", "R-hat does not show other modes"))
    if not exact:
        notes.append("new lines are drawn from nearly what each draw says of them")
    remedies = {
        "chains": remedy_of_ratings(found, tried), "usable": remedy_of_usable(found, tried)
    }  # fmt: skip
    return Verdict(found, tuple(notes), remedies)


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


# ---- variational fits ----------------------------------------------------------------------------


def of_starts(
    entries: Mixing, agreeing, elbo, steps, settled, num_steps: int, *, sampled: bool, ranks=None,
    given_start: bool = False, exact_sampler: str | None = None,
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
    probable, and another number in any of them keeps the fit from having converged. An
    `exact_sampler` is what the model has beside the optimisation.
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
        "num_chains": starts,
        **_of_predictions(entries),
        **_quantiles(entries.rhat),
        **found_factors(agreeing, None, starts),
        "given_start": bool(given_start and starts > 1),
    }
    if ranks is not None:
        figures |= of_rank(ranks)
        figures["rank_agreeing"] = float(np.mean([_mode(r) == figures["rank"] for r in ranks]))
    found = Figures(**figures, rhat=figures["rhat_product"])
    converged = starts > 1 and everywhere and not sampled and agrees(found)
    found = dataclasses.replace(found, converged=bool(converged))
    remedies = {
        "chains": _remedy_of_starts(found),
        "usable": remedy_of_usable(found, Tried(other_sampler=exact_sampler)),
    }
    return Verdict(found, _notes_of_starts(found), remedies)


def _remedy_of_starts(figures) -> str:
    if figures.settled:
        return FOUR_CHAINS if figures.num_chains == 1 else ""
    if figures.complete:
        steps = 2 * figures.steps
        return f"take more steps, num_warmup={steps} (--warmup {steps})"
    return RESUME


def _notes_of_starts(figures) -> tuple[str, ...]:
    """Say what qualifies the result of an optimisation."""
    if not figures.settled:
        steps = f"{figures.steps:,} step{'s' * (figures.steps > 1)}"
        return (
            f"the bound had not settled after {steps} of optimisation (it last changed by "
            f"{figures.elbo_rise:+.2%})",
        )
    notes = ["standard deviations of a mean-field approximation are too small as a rule"]
    if figures.sampled:
        notes.append(
            "steps from sampled entries shrink, and their bound may have settled below what "
            "sampler='batch' reaches"
        )
    if figures.rank_agreeing is not None:
        notes.append(
            "P(rank) is that of a variational approximation, which is too narrow and counts too "
            "few factors in small data; model 'probit' finds the number by an exact sampler"
        )
    if figures.given_start:
        notes.append(_given("starts", "their agreement does not show other solutions"))
    return tuple(notes)


def _change(elbo) -> float:
    """Relative change of one start's bound from the steps before its last `WINDOW` to those."""
    size = min(WINDOW, len(elbo) // 2)
    if size == 0:
        return 0.0
    elbo = elbo.astype(np.float64)
    return float((elbo[-size:].mean() - elbo[-2 * size : -size].mean()) / abs(elbo[-1]))


# ---- the model -----------------------------------------------------------------------------------


def with_fit(judged: Verdict, found: Mapping, other_model: str = "") -> Verdict:
    """Say in a verdict what entries left out say of the model; and which model has what it lacks.

    `found` are figures: `explained` and its error, the `baseline`, `calibration_error` with what it
    is by chance, and the `stacking_weights` of chains. Where chains predict differently, these
    are said.
    """
    notes, apart = judged.notes, judged.figures.get("chains_apart") > WIDE.apart
    if apart and not unfinished(judged.figures) and found.get("stacking_weights"):
        notes += (_of_stacking(found),)
    remedies = {**judged.remedies, "model": other_model}
    return dataclasses.replace(judged.changed(**found), notes=notes, remedies=remedies)


def _of_stacking(found: Mapping) -> str:
    """Say how chains that predict differently are averaged, and whether weights would be better."""
    gain, error = found["stacking_gain"], found["stacking_gain_error"]
    if gain <= 2.0 * error:
        return (
            "predictions are averaged over chains alike: stacking weights gain nothing "
            f"({gain:z.3f} ± {error:.3f} nats an entry)"
        )
    weights = ", ".join(f"{weight:.2f}" for weight in found["stacking_weights"])
    return (
        f"predictions are averaged over chains alike; those of fit.stacked(), by stacking weights "
        f"({weights}), gain {gain:.3f} ± {error:.3f} nats an entry"
    )


# ---- what they share -----------------------------------------------------------------------------


def found_factors(
    agreeing, empty, chains, searches: SearchCounts | None = None, present=None, steady=None
) -> dict:
    """Return the share of factors that agree, their names, and how many are empty.

    `agreeing`, `empty`, `present` and `steady` are those of `of_chains`. Empty factors explain
    nothing, and whatever chains have there says nothing against them. The same is true of a factor
    that fewer than two thirds of the chains have in half of their draws, if it comes and goes in
    each chain: the posterior leaves open whether it is there. If it does not, such a factor
    differs. Any other on which chains agree holds where half of the `searches`, two at least, found
    it, too; or the only one that counts (`SearchCounts.needed`).

    Examples
    --------
    >>> present = [[1.0, 0.6, 1.0, 0.2]] * 2 + [[0.9, 0.3, 0.1, 0.1]] * 2
    >>> found = found_factors([1.0, 1.0, 0.9, 0.2], None, 4, present=present)
    >>> [found[f"factors_{which}"] for which in ("holding", "in_few_draws", "differing")]
    [('1',), ('2',), ('3', '4')]
    >>> found_factors([1.0, 0.7, 0.9, 0.2], None, 4, None, present, present)["factors_differing"]
    ('3',)
    """
    agreeing, of_most = np.atleast_2d(np.asarray(agreeing, float))[[0, -1]]
    counted = np.ones(len(agreeing), bool) if empty is None else ~np.asarray(empty, bool)
    found = {} if empty is None else {"factors_empty": int((~counted).sum())}
    if chains == 1:
        return found | {"factors_agreeing": NAN}
    if present is not None:
        shares = halves = np.asarray(present)
        if shares.ndim == 3:
            shares, halves = shares.mean(1), shares_of_halves(shares)
        found["factors_chains"] = tuple(int(n) for n in chains_with(shares))
        lacking = chains_with(shares) < two_thirds(chains)
        few = counted & lacking & _comes_and_goes(agreeing, shares, halves, steady)
        found["factors_in_few_draws"] = _numbers(few)
        counted = counted & ~few
        agreeing, of_most = (np.where(lacking, 0.0, a) for a in (agreeing, of_most))
    of_all = agreeing >= SAME
    most = ~of_all & (of_most >= SAME)
    full = agreeing[counted]
    # Where all are empty there is none to differ in.
    found["factors_agreeing"] = float(share_agreeing(full, SAME)) if len(full) else 1.0
    if empty is not None:
        found["factors_found"] = int(of_all[counted].sum())
    lonely = np.zeros(len(counted), bool)
    if searches is not None:
        found |= {"searches": searches.number, "searches_needed": searches.needed}
    if searches is not None and searches.found is not None:
        lonely = counted & (of_all | most) & (searches.found < searches.needed)
        found["factors_searches"] = tuple(int(n) for n in searches.found)
        found["factors_rarely_found_by"] = tuple(int(n) for n in searches.found[lonely])
        found["factors_rarely_found"] = _numbers(lonely)
    whose = (of_all | most) & ~lonely, most, ~of_all & ~most
    for name, which in zip(FACTOR_NAMES[:3], whose, strict=True):
        found[name] = _numbers(counted & which)
    return found


def _comes_and_goes(agreeing, shares, halves, steady) -> np.ndarray:
    """Whether each factor is there in some draws of a chain and not in others, alike in all chains.

    `shares` (chain, rank) are those of the draws that have it, `halves` the same of half a chain
    each. Chains agree on what it is: their means do, or no chain has something else in its place in
    half of its draws. And draws move between both states no slower than those of the log joint
    density may, or no chain claims anything: each has the factor seldom, and nothing else there in
    half of its draws.
    """
    same = agreeing >= SAME
    none = np.zeros(len(same), bool)
    if steady is not None:
        own = np.asarray(steady) >= FOUND
        same, none = same | ~(own & (shares < FOUND)).any(0), ~(own | (shares > SELDOM)).any(0)
    return none | same & (rhat_of_shares(halves) <= SLOW.rhat)


def _numbers(which) -> tuple[str, ...]:
    return tuple(str(k + 1) for k in np.flatnonzero(which))


def number_agreeing(figures: Figures, rank: int) -> int:
    """Return how many factors with a tile were found, of a fit whose factors are rounded or not."""
    found = figures.factors_found
    return round(figures.factors_agreeing * rank) if found is None else found


def rank_text(figures: Figures, rank: int) -> str:
    """Say how many factors a fit has, or shows where it finds their number; how many are empty.

    Examples
    --------
    >>> rank_text(Figures(), 1), rank_text(Figures(factors_empty=1, rank=3), 4)
    ('1 factor', '4 factors shown, 1 of them empty')
    """
    shown = " shown" * (figures.rank is not None)
    return f"{rank} factor{'s' * (rank != 1)}{shown}{and_empty(figures)}"


def rank_given(figures: Figures, rank: int) -> str:
    """Say the number of factors of a fit that did not find it, whose default it is, what is empty.

    Examples
    --------
    >>> rank_given(Figures(), 4), rank_given(Figures(rank_default=4, factors_empty=1), 4)
    ('rank 4', 'rank 4 by default, 1 of them empty')
    """
    return f"rank {rank}{' by default' * (figures.rank_default is not None)}{and_empty(figures)}"


def and_empty(figures: Figures) -> str:
    """Say how many of the factors are empty, behind how many there are; nothing where none is."""
    empty = figures.factors_empty or 0
    return f", {empty} of them empty" * (empty > 0)


def _of_predictions(entries: Mixing) -> dict:
    """Return how far chains are apart in their predictions, and their Monte Carlo error."""
    if entries.apart is None:
        return {}
    return {
        "chains_apart": _highest(entries.apart),
        "mc_error": _highest(entries.error),
    }


def _highest(values) -> float:
    """Return what 99 % of the entries have at most: nothing where there is no entry."""
    return float(np.quantile(values, 0.99)) if np.size(values) else 0.0


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
    found = Figures(num_chains=chains, **figures, rhat=worst)
    return dataclasses.replace(found, converged=bool(not found.is_alone and agrees(found)))


def _quantiles(rhat) -> dict:
    return {"rhat_product": _quantile(rhat, 0.99), "rhat_product_worst": _quantile(rhat, 1.0)}


def _quantile(values, q: float) -> float:
    """Quantile over the values that are there; NaN where none is.

    Examples
    --------
    >>> _quantile(np.array([1.0, 2.0, NAN]), 0.5), _quantile(np.array([1.0, np.inf, np.inf]), 0.9)
    (1.5, inf)
    """
    moving = values[~np.isnan(values)]
    if not len(moving):
        return NAN
    # Between infinite ones, of chains that do not move, NumPy finds none.
    above = np.quantile(moving, q, method="higher")
    return float(above if np.isinf(above) else np.quantile(moving, q))


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
