"""Whether a variational fit of the logistic model can be trusted: figures, then one sentence."""

from __future__ import annotations

import numpy as np

from bmfjax.diagnostics import share_agreeing
from bmfjax.logistic_entries import sampled_rhat
from bmfjax.trust import NUM_ENTRIES, RHAT_USABLE

#: Share of its size by which the bound may change in the last sixth of the steps, beyond noise.
RISE = 0.002
#: Standard errors of an estimated change that are noise.
NOISE = 3.0


def assess(data, approximation, agreeing, elbo) -> dict:
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

    Returns
    -------
    dict
        `elbo`, of the best start, and `elbo_spread` between the best and the worst (NaN for one
        start); `elbo_rise`, the share of its size by which the bound of the start that changed most
        changed from the last sixth of the steps but one to the last, and `settled`, whether that is
        small, or noise, in every start; `rhat_product`, which 99 % of the log odds of up to 1,000
        entries keep to, and `rhat_product_worst` (of the normals themselves, not of draws; NaN for
        one start); `factors_agreeing`; `exact` (False); `converged`; `rhat`; `verdict`.
    """
    starts = len(elbo)
    rhat = sampled_rhat(approximation, data, NUM_ENTRIES)
    last = last_part(elbo)
    rise, settled = _change(elbo)
    figures = {
        "exact": False,
        "elbo": float(last.mean(1).max()),
        "elbo_spread": float(np.ptp(last.mean(1))) if starts > 1 else float("nan"),
        "elbo_rise": rise,
        "settled": settled,
        "rhat_product": float(np.quantile(rhat, 0.99)),
        "rhat_product_worst": float(rhat.max()),
        "factors_agreeing": float(share_agreeing(agreeing)) if starts > 1 else float("nan"),
    }
    figures["rhat"] = figures["rhat_product"]
    # NaN, of one start, is not small.
    figures["converged"] = bool(settled and figures["rhat"] <= RHAT_USABLE)
    return figures | {"verdict": verdict(figures, starts, len(agreeing))}


def last_part(elbo) -> np.ndarray:
    """The last sixth of the steps of every start, one at least."""
    return elbo[:, -max(1, elbo.shape[1] // 6) :]


def _change(elbo) -> tuple[float, bool]:
    """Largest relative change of the bound at the end, and whether all starts have settled."""
    last = last_part(elbo)
    size = last.shape[1]
    before = elbo[:, -2 * size : -size]
    change = last.mean(1) - before.mean(1)
    noise = np.sqrt((last.var(1) + before.var(1)) / size)
    scale = np.abs(last.mean(1))
    settled = np.abs(change) <= RISE * scale + NOISE * noise
    worst = int(np.argmax(np.where(settled, 0.0, 1.0) + np.abs(change) / scale))
    return float(change[worst] / scale[worst]), bool(settled.all())


def verdict(figures, starts: int, rank: int) -> str:
    """The sentence at the top of the report."""
    if not figures["settled"]:
        way = "rises" if figures["elbo_rise"] > 0 else "falls"
        return (
            f"Do not rely on this fit, because the bound still {way} (by "
            f"{100 * abs(figures['elbo_rise']):.1f} % in the last sixth of the steps); take more "
            "steps (num_warmup, --warmup)."
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
    if found < rank:
        doubtful = "factors or standard deviations: the starts reached different solutions"
    return (
        "Use the probabilities, which average over the starts, but do not rely on "
        f"{doubtful}; {mixed}."
    )
