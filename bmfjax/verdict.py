"""Whether to trust a fit: R-hat, effective draws, the spread of the solutions, and one sentence.

`of_chains` judges the Boolean, relaxed and nonnegative models, `of_ratings` the matrix
factorisations, `of_starts` the variational fits of the logistic model. Each returns a dict of

* `rhat_product`, `ess_product`: 99 % of up to 1,000 entries of the reconstruction are at least as
  good; `rhat_product_worst`: the worst entry;
* `rhat_log_joint`, `rhat_precision`, `rhat_dispersion`, `rhat_cutpoints`, and the same with `ess_`
  for effective draws: of what the model samples besides;
* `rhat_rank`, `ess_rank`: of the number of factors, where it is found; `rhat_layers`: the worst of
  the dispersions of layers above the first;
* `rhat_nested`: 99 % of these entries have at most this nested R-hat
  (`bmfjax.diagnostics.nested_rhat`), of at least 16 chains, each a group of its own;
* `factors_agreeing`: the share of the factors with a tile in which all chains agree, NaN for one
  chain; `factors_found` are so many, and `factors_empty` have no tile when rounded and do not
  count;
* `rhat`: the worst of those that count; `exact`, `converged`, and the sentence `verdict`.

What a model does not have is NaN or absent. `spread` measures how far apart the solutions are
that the draws hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bmfjax.data.blocks import spaced
from bmfjax.diagnostics import (
    Coverage,
    coverage,
    ess_bulk,
    nested_rhat,
    pairwise_distances,
    share_agreeing,
    split_rhat,
)
from bmfjax.infer import round_trips
from bmfjax.kernels.sgmcmc.step_size import ENOUGH
from bmfjax.posterior import products
from bmfjax.posterior.mixture import sampled_rhat
from bmfjax.posterior.packed import subset
from bmfjax.variational.settling import WINDOW

#: Vehtari et al. (2021) ask for 1.01; with few kept draws R-hat scatters more than that.
RHAT_GOOD, RHAT_USABLE = 1.01, 1.05
ESS_PER_CHAIN = 50
#: From this probability of the most factors that were allowed, there may be more.
AT_BOUND = 0.05
#: Above this share of coordinates at a bound the spread of IASG says little.
MANY_CLAMPED = 0.2
NUM_ENTRIES = 1000
#: Chains from which on the nested R-hat is reported.
MANY_CHAINS = 16
#: Draws of all chains together that `spread` compares, and columns of the matrix that it looks at.
NUM_DRAWS, MAX_LINES = 100, 500

_NAN = float("nan")
_NO_WINDOWS = MappingProxyType({})


# ---- entries of the reconstruction ---------------------------------------------------------------


class Mixing(NamedTuple):
    """How some entries of the reconstruction mixed."""

    rhat: np.ndarray  # (entry,), NaN where nothing moved
    ess: np.ndarray | None  # (entry,) effective draws; None where nothing is drawn
    uncertain: float = _NAN  # share of Boolean entries that are neither surely a one nor a zero
    nested: np.ndarray | None = None  # (entry,) nested R-hat, of many chains


#: Entries of which nothing is known, and nothing held against the draws.
UNSEEN = Mixing(np.ones(1), np.full(1, 1e9))


def mixing(lines: Mapping, usage, basis, number: int = NUM_ENTRIES) -> Mixing:
    """Return R-hat and effective draws of up to `number` entries of products of draws.

    Of Boolean factors the entries are half as many with a mean in [0.05, 0.95]: one that is surely
    a one, or a zero, has no R-hat. `lines` holds the `rows` and `columns` that are looked at: those
    without information follow the prior alone, which IASG does not sample.
    """
    share = _NAN
    if usage.dtype == bool:
        entries, share = products.uncertain_entries(usage, basis, number // 2, **lines)
    else:
        entries = products.sampled_entries(usage, basis, number, **lines)
    return mixing_of_entries(entries, share)


def mixing_of_entries(entries, uncertain: float = _NAN) -> Mixing:
    """Return R-hat and effective draws of entries (chain, draw, entry) of the reconstruction."""
    # Chains of a fit have starts of their own, so that each is a group.
    nested = nested_rhat(entries) if len(entries) >= MANY_CHAINS else None
    return Mixing(split_rhat(entries), ess_bulk(entries), uncertain, nested)


#: What the first word of a verdict comes to.
WORDS = {
    "Reliable": "reliable",
    "Usable": "usable",
    "Use": "in part",
    "Not": "unchecked",
    "Do": "unreliable",
}


def word_of(sentence: str) -> str:
    """Return a verdict in a word.

    >>> word_of("Do not rely on this run, because ...")
    'unreliable'
    """
    first = sentence.replace(":", " ").replace(",", " ").split()
    return WORDS.get(first[0] if first else "", "unknown")


#: Effective draws, by what they are of.
_EFFECTIVE = {
    "the reconstruction": "ess_product",
    "the log joint density": "ess_log_joint",
    "the noise precision": "ess_precision",
    "the dispersion": "ess_dispersion",
    "the cut points": "ess_cutpoints",
    "the number of factors": "ess_rank",
}


def fewest_draws(figures: Mapping) -> tuple[str, float]:
    """Return what has the fewest effective draws of all that counts, and how many it has.

    What never moved, or is not there, has none to count; infinity if that is everything.

    Examples
    --------
    >>> fewest_draws({"ess_product": float("nan"), "ess_log_joint": 5.0, "ess_rank": 6.0})
    ('the log joint density', 5.0)
    """
    known = {what: figures.get(name, _NAN) for what, name in _EFFECTIVE.items()}
    if not figures.get("log_joint_counts", True):
        del known["the log joint density"]
    known = {what: math.inf if np.isnan(number) else number for what, number in known.items()}
    return min(known.items(), key=lambda pair: pair[1])


def factors_differ(figures: Mapping) -> bool:
    """Whether chains disagree about a factor, where that counts; one chain compares nothing."""
    return bool(figures.get("agreement_counts", True) and figures["factors_agreeing"] < 1.0)


def agrees(figures: Mapping, chains: int, most: float = RHAT_USABLE) -> bool:
    """Whether draws with these figures agree, at an R-hat of at most `most`.

    This is the rule that judges a run, and that ends it. Besides R-hat it asks for effective draws
    of all that counts, and for the same factors in all chains.

    Examples
    --------
    >>> good = {"rhat": 1.009, "factors_agreeing": 1.0, "ess_product": 900.0}
    >>> agrees(good, 4), agrees(good, 4, 1.005), agrees(good | {"factors_agreeing": 0.5}, 4)
    (True, False, False)
    """
    enough = fewest_draws(figures)[1] >= ESS_PER_CHAIN * chains
    return bool(figures["rhat"] <= most and enough and not factors_differ(figures))


def suffices(figures: Mapping, chains: int) -> bool:
    """Whether draws with these figures need no more beside them.

    They agree at the R-hat that "Reliable" asks for, or "Usable" where the sampler is not exact.

    Examples
    --------
    >>> good = {"rhat": 1.009, "exact": True, "factors_agreeing": 1.0, "ess_product": 900.0}
    >>> suffices(good, 4), suffices(good | {"ess_log_joint": 5.0}, 4)
    (True, False)
    """
    return agrees(figures, chains, RHAT_GOOD if figures["exact"] else RHAT_USABLE)


def mixing_of_starts(data, approximation) -> Mixing:
    """Return R-hat of the log odds of up to 1,000 entries, of normals and not of draws."""
    return Mixing(sampled_rhat(approximation, data, NUM_ENTRIES), None)


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


def of_bound(drawn, bound: int, most: int, sentence: str, *, cramped: bool = False) -> dict:
    """Say in the verdict where the factors that were allowed may be too few.

    `drawn` are draws of the number of factors, `bound` is the most that were allowed, `most` the
    most that a matrix of this shape can have, and `sentence` the verdict so far. A fit that is
    `cramped` had no time to start anew with more.

    Examples
    --------
    >>> of_bound(np.array([[3, 3, 4, 3]]), 8, 20, "Reliable.")["verdict"]
    'Reliable.'
    >>> of_bound(np.array([[4, 4, 4, 4]]), 4, 6, "Reliable: they agree.")["verdict"].split(".")[0]
    'Usable for at most 4 factors: they agree'
    """
    share = float(np.mean(drawn == bound))
    bounded = share >= AT_BOUND and bound < most
    if bounded:
        more = min(2 * bound, most)
        allow = f"allow more, max_rank={more} (--max-rank {more})"
        if cramped:
            allow = "give it more time, max_time=SECONDS (--max-time SECONDS), to start with more"
        # After advice that comes first this is a second piece.
        lead = "; to look for them, " if "Next, " in sentence else ". Next, "
        sentence = (
            f"{sentence.replace('Reliable', f'Usable for at most {bound} factors', 1)} There may "
            f"be more: all that were allowed are there with probability {share:.2f}{lead}{allow}."
        )
    return {
        "rank_at_bound": share, "rank_bounded": bounded, "rank_cramped": cramped,
        "verdict": sentence,
    }  # fmt: skip


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
) -> dict:  # fmt: skip
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
    `clamped` is the mean share of coordinates at a bound. `remedy` is what to try next where the
    chains do not agree, given what was `tried`, and empty where they do.
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
    figures["rhat"] = _worst(figures, _MIXING.values())
    figures["converged"] = bool(chains > 1 and agrees(figures, chains))
    figures["remedy"] = remedy_of_chains(figures, chains, trace["log_joint"], tried)
    return figures | {"verdict": _sentence_of_chains(figures, chains, len(agreeing), windows)}


_MIXING = {
    "the reconstruction": "rhat_product",
    "the log joint density": "rhat_log_joint",
    "the noise precision": "rhat_precision",
    "the dispersion": "rhat_dispersion",
    "the number of factors": "rhat_rank",
    "the dispersion of a layer above": "rhat_layers",
}


def _sentence_of_chains(figures, chains, rank, windows) -> str:
    limits = _limits(figures, windows)
    if chains == 1:
        return f"{_NOT_CHECKED}{limits and '; '}{limits}. Next, {figures['remedy']}."
    if not figures["converged"]:
        modes = ""
        if factors_differ(figures):
            modes = "; fit.modes and the report show the modes"
        elif figures["rhat"] > RHAT_USABLE:
            modes = "; fit.modes and the report show where they differ"
        why = f"{_reasons(figures, chains, rank)}{limits and '; '}{limits}{modes}"
        return f"Do not rely on this run, because {why}. Next, {figures['remedy']}."
    mixed = f"{_found(figures, rank, _everyone(chains))}, and {_entries_text(figures)}"
    mixed = "; ".join(filter(None, [mixed, _number_found(figures), limits]))
    if figures["exact"]:
        return _exact(figures, mixed)
    if "noise_share" in figures:
        return _from_minibatches(figures["noise_share"], mixed)
    if figures["clamped"] > MANY_CLAMPED:
        return (
            "Use the factors, but do not rely on standard deviations and probabilities: this "
            f"sampler's spread is not the posterior's; {mixed}."
        )
    return (
        f"Usable, as an approximation: {mixed}, and the standard deviations of this sampler are "
        "approximate."
    )


def _from_minibatches(share, mixed) -> str:
    """Say how far a sampler is from exact that makes up for the noise of its gradients."""
    if share > 1.0:
        return (
            "Use the factors, but do not rely on standard deviations and probabilities: gradients "
            f"from minibatches have {share:.1f} times the noise that the sampler can make up for "
            f"(larger batches have less: batch_size, --batch-size); {mixed}."
        )
    return (
        f"Usable, as an approximation: {mixed}. Gradients from minibatches have {share:.0%} of the "
        "noise that the sampler can make up for; but for the shape of that noise it is exact."
    )


def _entries_text(figures) -> str:
    """Say how the entries of the reconstruction mixed."""
    if np.isnan(figures["rhat_product"]):
        return "no entry of the reconstruction is uncertain"
    which = "reconstructed" if np.isnan(figures["entries_uncertain"]) else "uncertain"
    return f"99 % of the {which} entries have {_mixing(figures)}"


def _limits(figures, windows) -> str:
    """Say what qualifies the result whatever the chains do."""
    limits = [_averaged(windows)] if windows else []
    if not np.isnan(figures["clamped"]):
        share = 100 * figures["clamped"]
        limits.append(f"{share:.0f} % of the coordinates were held at a bound of [0, 1]")
    if figures["noise_free"]:
        limits.append(
            "the factors reproduce the data almost without noise, so that the noise precision is "
            "bounded by its prior, or by the arithmetic, alone"
        )
    if figures["shared_starts"]:
        limits.append(
            "the chains shared the factors they had found before they started, so that R-hat does "
            "not show modes which they left"
        )
    if figures["given_start"]:
        limits.append(_given("chains", "R-hat does not show other modes"))
    return "; ".join(limits)


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


def _reasons(figures, chains, rank) -> str:
    """Say what keeps the run from having converged: factors, the worst R-hat, or few draws."""
    reasons = []
    if factors_differ(figures):
        reasons.append(f"only {_found(figures, rank, _everyone(chains))}")
    known = {what: figures[name] for what, name in _MIXING.items() if name in figures}
    worst = max(known, key=lambda what: np.nan_to_num(known[what]))
    if known[worst] > RHAT_USABLE:
        stuck = np.isinf(known[worst])
        of = "an infinite R-hat (chains are stuck)" if stuck else f"an R-hat of {known[worst]:.2f}"
        reasons.append(f"{worst} has {of}")
    if not reasons:
        what, number = fewest_draws(figures)
        reasons = [f"{number:.0f} effective draws of {what} are fewer than {ESS_PER_CHAIN} a chain"]
    return " and ".join(reasons)


# ---- what to try next ----------------------------------------------------------------------------


def remedy_of_chains(figures: Mapping, chains: int, log_joint, tried: Tried) -> str:
    """Say what to try next, in Python and on the command line; empty where nothing is wrong."""
    if figures["converged"]:
        return ""
    if tried.remedy:
        return tried.remedy
    if chains == 1:
        return _FOUR_CHAINS
    if tried.particles:
        more = 4 * tried.particles
        return (
            f"take more particles, sampler_options={{'num_particles': {more}}} (--option "
            f"num_particles={more})"
        )
    apart = factors_differ(figures) or figures["rhat"] > RHAT_SLOW
    if tried.stopped and (not apart or _comes_together(log_joint)):
        return _RESUME
    if not apart:
        return _more_draws(figures, chains, tried)
    if tried.ladder is False and not tried.large:
        name, value = tried.ladder_option
        return (
            f"let the chains cross between modes, sampler_options={{'{name}': {value}}} (--option "
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
) -> dict:  # fmt: skip
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
    figures["rhat"] = _worst(figures, doubts)
    figures["converged"] = bool(chains > 1 and agrees(figures, chains))
    figures["remedy"] = _remedy_of_ratings(figures, chains, tried)
    return figures | {"verdict": _sentence_of_ratings(figures, chains, len(agreeing), what)}


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
    if figures["converged"]:
        return ""
    return _RESUME if tried.stopped else _more_draws(figures, chains, tried)


def _sentence_of_ratings(figures, chains, rank, what) -> str:
    if chains == 1:
        return f"{_NOT_CHECKED}. Next, {figures['remedy']}."
    mixed = f"99 % of the {what} have {_mixing(figures)}"
    if figures["rhat"] == figures["rhat_log_joint"] > RHAT_GOOD:
        mixed += f"; the log joint density has an R-hat of {figures['rhat_log_joint']:.2f}"
    if figures["rhat_precision"] > RHAT_GOOD:
        mixed += f"; the noise has an R-hat of {figures['rhat_precision']:.2f}"
    if figures["converged"] and (number := _number_found(figures)):
        mixed += f"; {number}"
    elif figures.get("rhat_rank", 0.0) > RHAT_GOOD:
        mixed += f"; the number of factors has an R-hat of {figures['rhat_rank']:.2f}"
    few = figures.get("ess_cutpoints", math.inf) < ESS_PER_CHAIN * chains
    if few or figures.get("rhat_cutpoints", 0.0) > RHAT_GOOD:
        mixed += (
            "; the cut points and their distances have an R-hat of "
            f"{figures['rhat_cutpoints']:.2f} with at least {figures['ess_cutpoints']:.0f} "
            "effective draws"
        )
    what, number = fewest_draws(figures)
    if number < ESS_PER_CHAIN * chains and what not in ("the reconstruction", "the cut points"):
        mixed += f"; {what} has {number:.0f} effective draws, fewer than {ESS_PER_CHAIN} a chain"
    found = round(figures["factors_agreeing"] * rank)
    if found < rank:
        mixed += (
            f"; the factors behind them are less sure, {found} of {rank} found by "
            f"{_everyone(chains)}"
        )
    if figures["given_start"]:
        mixed += f"; {_given('chains', 'R-hat does not show other modes')}"
    if not figures["converged"]:
        return f"Do not rely on this run yet: {mixed}. Next, {figures['remedy']}."
    if not figures["exact"]:
        return (
            "Usable: chains that agree, and new lines drawn from nearly what each draw says of "
            f"them; {mixed}."
        )
    return _exact(figures, mixed)


# ---- variational fits ----------------------------------------------------------------------------


def of_starts(
    entries: Mixing, agreeing, elbo, steps, settled, num_steps: int, *, sampled: bool, ranks=None,
    given_start: bool = False,
) -> dict:  # fmt: skip
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
        "elbo_spread": float(np.ptp(last)) if starts > 1 else _NAN,
        "elbo_rise": float(changes[np.argmax(np.abs(changes))]),
        "steps": most,
        "settled": everywhere,
        "sampled": sampled,
        "complete": everywhere or most >= num_steps,
        **_quantiles(entries.rhat),
        "factors_agreeing": _agreeing(agreeing, starts),
        "given_start": bool(given_start and starts > 1),
    }
    figures["rhat"] = figures["rhat_product"]
    # NaN, of one start, is not small.
    if ranks is not None:
        figures |= of_rank(ranks)
        figures["rank_agreeing"] = float(np.mean([_mode(r) == figures["rank"] for r in ranks]))
    figures["converged"] = bool(
        everywhere
        and not sampled
        and figures["rhat"] <= RHAT_USABLE
        and figures.get("rank_agreeing", 1.0) == 1.0
    )
    return figures | {"verdict": sentence_of_starts(figures, starts, len(agreeing))}


def _change(elbo) -> float:
    """Relative change of one start's bound from the steps before its last `WINDOW` to those."""
    size = min(WINDOW, len(elbo) // 2)
    if size == 0:
        return 0.0
    elbo = elbo.astype(np.float64)
    return float((elbo[-size:].mean() - elbo[-2 * size : -size].mean()) / abs(elbo[-1]))


def sentence_of_starts(figures: Mapping, starts: int, rank: int) -> str:
    """Return the sentence at the top of the report of a variational fit."""
    if not figures["settled"]:
        remedy = "take more steps (num_warmup, --warmup)"
        if not figures["complete"]:
            remedy = "give it more time, or resume it from its checkpoint (resume=True, --resume)"
        steps = f"{figures['steps']:,} step{'s' * (figures['steps'] > 1)}"
        return (
            f"Do not rely on this fit, because the bound had not settled after {steps} of "
            f"optimisation (it last changed by {figures['elbo_rise']:+.2%}); {remedy}."
        )
    too_small = "standard deviations of a mean-field approximation are too small as a rule"
    if starts == 1:
        return (
            f"Not checked: one start cannot show whether another finds the same; and {too_small}"
            f"{_number(figures, starts)}. Next, {_FOUR_CHAINS}."
        )
    none = figures.get("rank") == 0
    all_found = none or round(figures["factors_agreeing"] * rank) == rank
    found = _found(figures, rank, _everyone(starts, "starts"))
    mixed = (
        f"{'no factor stands out of the noise' if none else found}, and 99 % of the log odds have "
        f"an R-hat across starts of at most {figures['rhat_product']:.2f}{_number(figures, starts)}"
    )
    if figures.get("given_start"):
        mixed += f"; {_given('starts', 'their agreement does not show other solutions')}"
    if figures["converged"]:
        what = "Usable" if all_found else "Use the probabilities, but not the factors"
        return (
            f"{what}, as an approximation: {mixed}; {too_small}, and only entries hidden from it "
            "show how well it predicts."
        )
    doubtful = "standard deviations: the starts differ by more than they spread"
    if figures["sampled"]:
        doubtful = (
            "factors or standard deviations: steps from sampled entries shrink, and their bound "
            "may have settled below what sampler='batch' reaches"
        )
    if not all_found:
        doubtful = "factors or standard deviations: the starts reached different solutions"
    if figures.get("rank_agreeing", 1.0) < 1.0:
        doubtful = "the number of factors, the factors or standard deviations: the starts disagree"
    return (
        "Use the probabilities, which average over the starts, but do not rely on "
        f"{doubtful}; {mixed}."
    )


def _number(figures, starts) -> str:
    """Say what the starts tell of the number of factors, where it is found."""
    if "rank_agreeing" not in figures:
        return ""
    agreeing = round(figures["rank_agreeing"] * starts)
    return (
        f"; {figures['rank']} is the most probable number of factors in {agreeing} of {starts} "
        f"start{'s' * (starts > 1)}, and P(rank) is that of a variational approximation, which is "
        "too narrow and counts too few factors in small data, of which model 'probit' finds the "
        "number by an exact sampler"
    )


# ---- what they share -----------------------------------------------------------------------------

_NOT_CHECKED = "Not checked: one chain cannot show whether another start finds the same"


def _exact(figures, mixed) -> str:
    word = "Reliable" if figures["rhat"] <= RHAT_GOOD else "Usable"
    return f"{word}: an exact sampler, and chains that agree; {mixed}."


def _found(figures, rank, everyone) -> str:
    """Say how many factors `everyone` found; one that is empty when rounded is not found."""
    number, empty = _number_agreeing(figures, rank), figures.get("factors_empty", 0)
    if not empty:
        return f"{number} of {rank} factors were found by {everyone}"
    if empty == rank:
        return "no factor has a tile when rounded"
    more = f"{empty} more {_are(empty)} empty when rounded"
    return f"{number} of {rank - empty} factors with a tile were found by {everyone} ({more})"


def _number_agreeing(figures, rank) -> int:
    """Return how many factors with a tile were found, of a fit whose factors are rounded or not."""
    return figures.get("factors_found", round(figures["factors_agreeing"] * rank))


def rank_text(figures: Mapping, rank: int) -> str:
    """Say how many factors a fit has, and how many of them are empty when rounded.

    Examples
    --------
    >>> rank_text({}, 1), rank_text({"factors_empty": 1}, 4)
    ('1 factor', '4 factors, 1 of them empty when rounded')
    """
    empty = figures.get("factors_empty", 0)
    return _factors(rank) + f", {empty} of them empty when rounded" * (empty > 0)


def _factors(number) -> str:
    return f"{number} factor{'s' * (number != 1)}"


def _are(number) -> str:
    return "is" if number == 1 else "are"


def _number_found(figures) -> str:
    """Say how probable the number of factors is, where chains find it; empty where they do not."""
    if "rank_probability" not in figures:
        return ""
    mixed = "the same in every draw"
    if not np.isnan(figures["rhat_rank"]):
        mixed = f"R-hat {figures['rhat_rank']:.2f}, {figures['ess_rank']:.0f} effective draws"
    return (
        f"the number of factors is {figures['rank']} with probability "
        f"{figures['rank_probability']:.2f} ({mixed})"
    )


def _everyone(number, what="chains") -> str:
    return f"both {what}" if number == 2 else f"all {number} {what}"


def _mixing(figures) -> str:
    return (
        f"an R-hat of at most {figures['rhat_product']:.2f} (the worst "
        f"{figures['rhat_product_worst']:.2f}) with at least {figures['ess_product']:.0f} "
        "effective draws"
    )


def _agreeing(agreeing, chains) -> float:
    """Share of the factors that all chains found; NaN for one chain."""
    return float(share_agreeing(agreeing)) if chains > 1 else _NAN


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
    return float(statistic(trace[name])) if name in trace else _NAN


def _of_scalar(trace, name) -> dict:
    """Return R-hat and effective draws of a scalar of the trace; NaN where there is none."""
    return {
        f"rhat_{name}": _of(trace, name, split_rhat),
        f"ess_{name}": _of(trace, name, ess_bulk),
    }


def _worst(figures, names) -> float:
    """Return the largest R-hat: what never moved, or is not there, is no reason against a run."""
    known = [figures.get(name, _NAN) for name in names]
    return float(max(1.0 if np.isnan(rhat) else rhat for rhat in known))


def _quantiles(rhat) -> dict:
    return {"rhat_product": _quantile(rhat, 0.99), "rhat_product_worst": _quantile(rhat, 1.0)}


def _quantile(values, q: float) -> float:
    """Quantile over the values that are there; NaN where none is."""
    moving = values[~np.isnan(values)]
    return float(np.quantile(moving, q)) if len(moving) else _NAN


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
    return float(np.quantile(moving, q, method=method)) if len(moving) else _NAN


# ---- how far apart the solutions are -------------------------------------------------------------


def spread(draws, num_draws: int = NUM_DRAWS, *, signed: bool = True) -> Coverage:
    """Cover draws of a factor matrix by the largest angle between matched factors, in degrees.

    Of `draws` (chain, draw, lines, rank), packed or not, up to `num_draws` are compared, as many
    of each chain, by up to 500 lines. `signed` is False for real factors whose signs mean nothing.
    """
    chains, kept, lines, rank = draws.shape
    chosen = spaced(kept, max(1, num_draws // chains))
    some = np.asarray(subset(draws, chosen, spaced(lines, MAX_LINES)), float)
    some = some.reshape(-1, some.shape[2], rank)
    return coverage(pairwise_distances(some, metric="angle" if signed else "line"))


def farther_spread(usage, basis) -> Coverage:
    """Return `spread` of the factor matrix whose draws are farther apart.

    Nonnegative solutions may share one of the two.
    """
    return max(spread(usage), spread(basis), key=lambda found: found.largest)
