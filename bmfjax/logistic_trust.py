"""Whether a variational fit of the logistic model can be trusted: figures, then one sentence."""

from __future__ import annotations

import numpy as np

from bmfjax import posterior
from bmfjax.diagnostics import ess_bulk, share_agreeing, split_rhat
from bmfjax.logistic_entries import with_effects
from bmfjax.trust import NUM_ENTRIES, RHAT_USABLE

#: Share of its own size by which the bound may rise in the last sixth of the steps.
RISE = 0.005


def assess(data, usage, basis, others, approximation, agreeing, elbo) -> dict:
    """Fit-level figures and the verdict.

    Parameters
    ----------
    data : BinaryMatrix
    usage, basis : (start, draw, rows or columns, rank) float
        Aligned draws.
    others : dict
        Draws of bias and effects.
    approximation : dict
        See `bmfjax.logistic_entries`.
    agreeing : (rank,) float
        Tile similarity across starts.
    elbo : (start, step) float
        The bound after every step of optimisation.

    Returns
    -------
    dict
        `elbo`, of the best start, and `elbo_spread` between the best and the worst; `elbo_rise`,
        the share of its size by which the best one rose in the last sixth of the steps;
        `rhat_product`, which 99 % of up to 1,000 log odds keep to, `rhat_product_worst`,
        `ess_product`; `factors_agreeing`; `exact` (False); `converged`; `rhat`; `verdict`.
    """
    starts, rank = usage.shape[0], usage.shape[-1]
    rows, columns = np.arange(data.num_rows), np.arange(data.num_columns)
    full = with_effects(usage, basis, others, rows, columns)
    entries = posterior.sampled_entries(*full, NUM_ENTRIES)
    rhat = split_rhat(entries)
    sixth = max(1, elbo.shape[1] // 6)
    late = [elbo[:, a:b].mean(1) for a, b in ((-2 * sixth, -sixth), (-sixth, None))]
    best = int(np.argmax(late[1]))
    rise = float((late[1] - late[0])[best] / abs(late[1][best]))
    figures = {
        "exact": False,
        "elbo": float(late[1][best]),
        "elbo_spread": float(np.ptp(late[1])),
        "elbo_rise": rise,
        "rhat_product": float(np.nanquantile(rhat, 0.99)),
        "rhat_product_worst": float(np.nanmax(rhat)),
        "ess_product": float(np.nanquantile(ess_bulk(entries), 0.01)),
        "factors_agreeing": float(share_agreeing(agreeing)) if starts > 1 else float("nan"),
    }
    figures["rhat"] = figures["rhat_product"]
    figures["converged"] = bool(starts > 1 and rise <= RISE and figures["rhat"] <= RHAT_USABLE)
    return figures | {"verdict": verdict(figures, starts, rank)}


def verdict(figures, starts: int, rank: int) -> str:
    """The sentence at the top of the report."""
    if figures["elbo_rise"] > RISE:
        return (
            "Do not rely on this fit, because the bound still rises (by "
            f"{100 * figures['elbo_rise']:.1f} % in the last sixth of the steps); take more steps "
            "(num_warmup, --warmup)."
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
        return (
            f"Usable, as an approximation: {mixed}; standard deviations of a mean-field "
            "approximation are too small as a rule."
        )
    return (
        "Use the probabilities, which average over the starts, but do not rely on factors or "
        f"standard deviations: the starts reached different solutions; {mixed}."
    )
