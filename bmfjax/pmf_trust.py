"""Whether a matrix factorisation by Gibbs sampling can be trusted: figures, then one sentence."""

from __future__ import annotations

import math

import numpy as np

from bmfjax import posterior
from bmfjax.diagnostics import ess_bulk, share_agreeing, split_rhat
from bmfjax.trust import ESS_PER_CHAIN, NUM_ENTRIES, RHAT_GOOD, RHAT_USABLE

CUTS = "rhat_cutpoints"


def informed(data) -> dict:
    """Positions of the `rows` and `columns` of which something is observed, (line,) int each."""
    return {
        "rows": np.setdiff1d(np.arange(data.num_rows), data.empty_rows),
        "columns": np.setdiff1d(np.arange(data.num_columns), data.empty_columns),
    }


def assess(lines, usage, basis, agreeing, trace, cutpoints=None, *, exact: bool = True) -> dict:
    """Fit-level figures and the verdict.

    Parameters
    ----------
    lines : dict
        `rows` and `columns` between which fits are looked at, as of `informed`.
    usage, basis : (chain, draw, rows or columns, width) float
        Draws whose products are the fits, effects included.
    agreeing : (rank,) float
        Tile similarity across chains.
    trace : dict
        (chain, step) without the warm-up.
    cutpoints : (chain, draw, categories - 1) float, optional
        Of "ordered-probit": they count as well, with their distances.
    exact : bool
        Whether the draws are from the posterior itself.

    Returns
    -------
    dict
        `rhat_product`, `rhat_product_worst`, `ess_product`: R-hat and effective draws that 99 % of
        up to 1,000 fits keep to; `rhat_log_joint`, `ess_log_joint`, and `rhat_precision` of a
        learned noise precision; `rhat_cutpoints` and `ess_cutpoints` of "ordered-probit";
        `factors_agreeing`; `exact`; `rhat`, the worst of fits, precision and cut points;
        `converged`; `noise_free`; `verdict`. The log joint density has parts that no prediction
        depends on, such as how the scale is shared by the factors, and does not count.
    """
    chains = usage.shape[0]
    fits = posterior.sampled_entries(usage, basis, NUM_ENTRIES, **lines)
    rhat, size = split_rhat(fits), ess_bulk(fits)
    precision = trace.get("precision")
    figures = {
        "exact": exact,
        "rhat_product": float(np.quantile(rhat, 0.99)),
        "rhat_product_worst": float(rhat.max()),
        "ess_product": float(np.quantile(size, 0.01)),
        "rhat_log_joint": float(split_rhat(trace["log_joint"])),
        "ess_log_joint": float(ess_bulk(trace["log_joint"])),
        "rhat_precision": float("nan") if precision is None else float(split_rhat(precision)),
        "factors_agreeing": float(share_agreeing(agreeing)) if chains > 1 else float("nan"),
        "noise_free": False,
    }
    if cutpoints is not None:
        # What a star is worth shows in their distances.
        gaps = np.concatenate([cutpoints, np.diff(cutpoints, axis=-1)], -1)
        # One that never changes says nothing of the others; it has not been seen to move.
        rounding = 4 * np.finfo(np.float32).eps * max(1.0, np.abs(cutpoints).max())
        stuck = np.ptp(gaps, axis=(0, 1)) <= rounding
        figures["rhat_cutpoints"] = float(np.nanmax(np.where(stuck, np.inf, split_rhat(gaps))))
        figures["ess_cutpoints"] = float(np.nanmin(np.where(stuck, 0.0, ess_bulk(gaps))))
    doubts = [figures.get(n, float("nan")) for n in ("rhat_product", "rhat_precision", CUTS)]
    figures["rhat"] = float(np.nanmax(doubts))
    figures["converged"] = bool(
        chains > 1
        and figures["rhat"] <= RHAT_USABLE
        and figures["ess_product"] >= ESS_PER_CHAIN * chains
        and figures.get("ess_cutpoints", np.inf) >= ESS_PER_CHAIN * chains
    )
    return figures | {"verdict": verdict(figures, chains, len(agreeing))}


def verdict(figures, num_chains: int, rank: int) -> str:
    """The sentence at the top of the report."""
    if num_chains == 1:
        return "Not checked: one chain cannot show whether another start finds the same."
    mixed = (
        f"99 % of the fits have an R-hat of at most {figures['rhat_product']:.2f} (the worst "
        f"{figures['rhat_product_worst']:.2f}) with at least {figures['ess_product']:.0f} "
        "effective draws"
    )
    if figures.get("rhat_precision", 0.0) > RHAT_GOOD:
        mixed += f"; the noise has an R-hat of {figures['rhat_precision']:.2f}"
    few = figures.get("ess_cutpoints", math.inf) < ESS_PER_CHAIN * num_chains
    if few or figures.get(CUTS, 0.0) > RHAT_GOOD:
        mixed += (
            f"; the cut points and their distances have an R-hat of {figures[CUTS]:.2f} with at "
            f"least {figures['ess_cutpoints']:.0f} effective draws"
        )
    found = round(figures["factors_agreeing"] * rank)
    chains = "both chains" if num_chains == 2 else f"all {num_chains} chains"
    if found < rank:
        mixed += f"; the factors behind them are less sure, {found} of {rank} found by {chains}"
    if not figures["converged"]:
        return f"Do not rely on this run yet: {mixed}; take more draws."
    if not figures["exact"]:
        return (
            "Usable: chains that agree, and new lines drawn from nearly what each draw says of "
            f"them; {mixed}."
        )
    word = "Reliable" if figures["rhat"] <= RHAT_GOOD else "Usable"
    return f"{word}: an exact sampler, and chains that agree; {mixed}."
