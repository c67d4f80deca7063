"""Whether a variational fit of the logistic model can be trusted: figures, then one sentence."""

from __future__ import annotations

import numpy as np

from bmfjax.diagnostics import share_agreeing
from bmfjax.infer.settling import WINDOW
from bmfjax.logistic_entries import sampled_rhat
from bmfjax.trust import NUM_ENTRIES, RHAT_USABLE


def assess(
    data, approximation, agreeing, elbo, steps, settled, num_steps: int, *, sampled: bool
) -> dict:
    """Fit-level figures and the verdict.

    Parameters
    ----------
    data : BinaryMatrix
    approximation : dict
        See `bmfjax.logistic_entries`.
    agreeing : (rank,) float
        Tile similarity across starts.
    elbo : (start, step) float
        The bound after every step of optimisation, exact or estimated.
    steps : (start,) int
        That every start has taken.
    settled : (start,) bool
        Whether its bound has settled (`bmfjax.infer.settling`).
    num_steps : int
        The most steps that were allowed.
    sampled : bool
        Whether steps looked at sampled entries. They shrink, so that their bound may settle below
        what all entries would reach: such a fit has not converged by this rule alone.

    Returns
    -------
    dict
        `elbo`, of the best start, and `elbo_spread` between the best and the worst (NaN for one
        start); `steps`, of the start that took most; `settled`, whether every start has;
        `complete`, whether no start was stopped before that; `elbo_rise`, the share of its size by
        which the mean bound of the last steps differs from that of as many before, in the start
        that changed most; `rhat_product`, which 99 % of the log odds of up to 1,000
        entries keep to, and `rhat_product_worst` (of the normals themselves, not of draws; NaN for
        one start); `factors_agreeing`; `exact` (False); `converged`; `rhat`; `verdict`.
    """
    starts, last = len(elbo), elbo[:, -1].astype(np.float64)
    rhat = sampled_rhat(approximation, data, NUM_ENTRIES)
    changes = np.array([_change(e[:n]) for e, n in zip(elbo, steps, strict=True)])
    most, everywhere = int(np.max(steps)), bool(np.all(settled))
    figures = {
        "exact": False,
        "elbo": float(last.max()),
        "elbo_spread": float(np.ptp(last)) if starts > 1 else float("nan"),
        "elbo_rise": float(changes[np.argmax(np.abs(changes))]),
        "steps": most,
        "settled": everywhere,
        "sampled": sampled,
        "complete": everywhere or most >= num_steps,
        "rhat_product": float(np.quantile(rhat, 0.99)),
        "rhat_product_worst": float(rhat.max()),
        "factors_agreeing": float(share_agreeing(agreeing)) if starts > 1 else float("nan"),
    }
    figures["rhat"] = figures["rhat_product"]
    # NaN, of one start, is not small.
    figures["converged"] = bool(everywhere and not sampled and figures["rhat"] <= RHAT_USABLE)
    return figures | {"verdict": verdict(figures, starts, len(agreeing))}


def _change(elbo) -> float:
    """Relative change of one start's bound from the steps before its last `WINDOW` to those."""
    size = min(WINDOW, len(elbo) // 2)
    if size == 0:
        return 0.0
    elbo = elbo.astype(np.float64)
    return float((elbo[-size:].mean() - elbo[-2 * size : -size].mean()) / abs(elbo[-1]))


def verdict(figures, starts: int, rank: int) -> str:
    """The sentence at the top of the report."""
    if not figures["settled"]:
        remedy = "take more steps (num_warmup, --warmup)"
        if not figures["complete"]:
            remedy = "give it more time, or resume it from its checkpoint (resume=True, --resume)"
        steps = f"{figures['steps']:,} step{'s' * (figures['steps'] > 1)}"
        return (
            f"Do not rely on this fit, because the bound had not settled after {steps} of "
            f"optimisation (it last changed by {figures['elbo_rise']:+.2%}); {remedy}."
        )
    if starts == 1:
        return (
            "Not checked: one start cannot show whether another finds the same; and standard "
            "deviations of a mean-field approximation are too small as a rule."
        )
    found = round(figures["factors_agreeing"] * rank)
    who = "both starts" if starts == 2 else f"all {starts} starts"
    mixed = (
        f"{found} of {rank} factors were found by {who}, and 99 % of the log odds have an R-hat "
        f"across starts of at most {figures['rhat_product']:.2f}"
    )
    if figures["converged"]:
        what = "Usable" if found == rank else "Use the probabilities, but not the factors"
        return (
            f"{what}, as an approximation: {mixed}; standard deviations of a mean-field "
            "approximation are too small as a rule, and only entries hidden from it show how well "
            "it predicts."
        )
    doubtful = "standard deviations: the starts differ by more than they spread"
    if figures["sampled"]:
        doubtful = (
            "factors or standard deviations: steps from sampled entries shrink, and their bound "
            "may have settled below what sampler='batch' reaches"
        )
    if found < rank:
        doubtful = "factors or standard deviations: the starts reached different solutions"
    return (
        "Use the probabilities, which average over the starts, but do not rely on "
        f"{doubtful}; {mixed}."
    )
