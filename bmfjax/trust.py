"""Whether a fit can be trusted: figures that need no alignment first, then one sentence."""

from __future__ import annotations

import numpy as np

from bmfjax import posterior
from bmfjax.diagnostics import boolean_errors, ess_bulk, share_agreeing, split_rhat

#: Vehtari et al. (2021) ask for 1.01; for draws that are approximate anyway we accept 1.05.
RHAT_GOOD, RHAT_USABLE = 1.01, 1.05
ESS_PER_CHAIN = 50
#: Above this share of coordinates at a bound IASG's spread says little (see `bmfjax.kernels.iasg`).
MANY_CLAMPED = 0.2
NUM_ENTRIES = 1000


def assess(data, usage, basis, binary, agreeing, trace, num_warmup) -> dict:
    """Fit-level figures and the verdict.

    Parameters
    ----------
    data : BinaryMatrix
    usage, basis : arrays
        Aligned draws (chain, draw, rows or columns, rank).
    binary : Binarized
    agreeing : (rank,) float
        Tile similarity across chains.
    trace : dict
        `log_joint` and `clamped`, (chain, step).
    num_warmup : int

    Returns
    -------
    dict
        `rhat_product` and `ess_product`: R-hat and effective draws that 99 % of up to
        1,000 entries of the reconstruction keep to, and `rhat_product_worst`;
        `rhat_log_joint`, `ess_log_joint`; `factors_agreeing`: share of
        factors that all chains found (NaN for one chain); `clamped`: mean share of
        coordinates at a bound; `errors`: wrong observed entries of the Boolean product;
        `verdict`.
    """
    chains = usage.shape[0]
    # Rows and columns without information follow the prior alone, which IASG does not sample.
    rows = np.setdiff1d(np.arange(data.num_rows), data.empty_rows)
    columns = np.setdiff1d(np.arange(data.num_columns), data.empty_columns)
    product = posterior.sampled_entries(usage[:, :, rows], basis[:, :, columns], NUM_ENTRIES)
    rhat = split_rhat(product)
    log_joint = trace["log_joint"][:, num_warmup:]
    ones = np.nan_to_num(data.dense()) > 0.5
    figures = {
        "rhat_product": _quantile(rhat, 0.99),
        "rhat_product_worst": _quantile(rhat, 1.0),
        "ess_product": _quantile(ess_bulk(product), 0.01),
        "rhat_log_joint": float(split_rhat(log_joint)),
        "ess_log_joint": float(ess_bulk(log_joint)),
        "factors_agreeing": float(share_agreeing(agreeing)) if chains > 1 else float("nan"),
        "clamped": float(trace["clamped"][:, num_warmup:].mean()),
        "errors": int(boolean_errors(binary.usage, binary.basis, ones, data.observed())),
    }
    figures["converged"] = bool(
        chains > 1
        and figures["rhat_product"] <= RHAT_USABLE
        and figures["rhat_log_joint"] <= RHAT_USABLE
        and figures["ess_product"] >= ESS_PER_CHAIN * chains
        and figures["factors_agreeing"] == 1.0
    )
    return figures | {"verdict": verdict(figures, chains, len(agreeing))}


def _quantile(values, q: float) -> float:
    """Over the entries that move: one that never does has no R-hat, and speaks for nothing."""
    moving = np.asarray(values, float)
    moving = moving[~np.isnan(moving)]
    return (
        float(np.quantile(moving, q, method="higher" if q > 0.5 else "lower"))
        if len(moving)
        else float("nan")
    )


def verdict(figures: dict, num_chains: int, rank: int) -> str:
    """One sentence for the top of the report: trust it or not, and why."""
    share = f"{100 * figures['clamped']:.0f} % of the coordinates were held at a bound of [0, 1]"
    if num_chains == 1:
        return f"Not checked: one chain cannot show whether another start finds the same; {share}."
    found = round(figures["factors_agreeing"] * rank)
    chains = "both chains" if num_chains == 2 else f"all {num_chains} chains"
    mixed = (
        f"{found} of {rank} factors were found by {chains}, and 99 % of the reconstructed entries "
        f"have an R-hat of at most {figures['rhat_product']:.2f} (the worst "
        f"{figures['rhat_product_worst']:.2f}) with at least {figures['ess_product']:.0f} "
        "effective draws"
    )
    if not figures["converged"]:
        return f"Do not rely on this run: {mixed}; {share}."
    if figures["clamped"] > MANY_CLAMPED:
        return (
            "Use the factors, but do not rely on standard deviations and probabilities: "
            f"{share}, where this sampler's spread is not the posterior's; {mixed}."
        )
    return (
        f"Usable, as an approximation: {mixed}; {share}, and the standard deviations of this "
        "sampler are approximate."
    )
