"""Whether a fit can be trusted: figures that need no alignment first, then one sentence."""

from __future__ import annotations

import numpy as np

from bmfjax import posterior
from bmfjax.diagnostics import ess_bulk, share_agreeing, split_rhat

#: Vehtari et al. (2021) ask for 1.01; with few kept draws R-hat scatters more than that.
RHAT_GOOD, RHAT_USABLE = 1.01, 1.05
ESS_PER_CHAIN = 50
#: Above this share of coordinates at a bound IASG's spread says little (see `bmfjax.kernels.iasg`).
MANY_CLAMPED = 0.2
NUM_ENTRIES = 1000


def assess(
    data, usage, basis, errors, agreeing, trace, *, exact: bool, residual_floor: float = 0.0
) -> dict:
    """Fit-level figures and the verdict.

    Parameters
    ----------
    data : BinaryMatrix
    usage, basis : arrays
        Aligned draws (chain, draw, rows or columns, rank).
    errors : int
        Wrong observed entries of the Boolean product.
    agreeing : (rank,) float
        Tile similarity across chains.
    trace : dict
        What the sampler reports at every step, (chain, step), without the warm-up: `log_joint`,
        and where it has them `precision`, `dispersion`, `residual`, `clamped`.
    exact : bool
        Whether the draws are from the posterior and not from an approximation.
    residual_floor : float
        Twice the rate of the precision's Gamma prior: a smaller sum of squared residuals says
        less about the noise than the prior does.

    Returns
    -------
    dict
        `rhat_product` and `ess_product`: R-hat and effective draws that 99 % of up to
        1,000 entries of the reconstruction keep to, and `rhat_product_worst`;
        `rhat_log_joint`, `ess_log_joint`, `rhat_precision`, `rhat_dispersion`; for Boolean factors
        the entries are up to 500 whose mean is in [.05, .95], and `entries_uncertain` is the share
        of all entries that are such; `factors_agreeing`: share of
        factors that all chains found (NaN for one chain); `clamped`: mean share of
        coordinates at a bound (NaN for the exact sampler, which holds none); `noise_free`:
        the factors leave no noise to learn a precision from; `errors`: wrong observed entries
        of the Boolean product; `exact`; `converged`; `verdict`.
    """
    chains = usage.shape[0]
    # Rows and columns without information follow the prior alone, which IASG does not sample.
    informed = {
        "rows": np.setdiff1d(np.arange(data.num_rows), data.empty_rows),
        "columns": np.setdiff1d(np.arange(data.num_columns), data.empty_columns),
    }
    share = float("nan")
    if usage.dtype == bool:
        # An entry that is surely a one, or a zero, has no R-hat.
        product, share = posterior.uncertain_entries(usage, basis, NUM_ENTRIES // 2, **informed)
    else:
        product = posterior.sampled_entries(usage, basis, NUM_ENTRIES, **informed)
    rhat = split_rhat(product)
    log_joint = trace["log_joint"]
    figures = {
        "exact": exact,
        "rhat_product": _quantile(rhat, 0.99),
        "rhat_product_worst": _quantile(rhat, 1.0),
        "ess_product": _quantile(ess_bulk(product), 0.01),
        "rhat_log_joint": float(split_rhat(log_joint)),
        "ess_log_joint": float(ess_bulk(log_joint)),
        "rhat_precision": _of(trace, "precision", split_rhat),
        "rhat_dispersion": _of(trace, "dispersion", split_rhat),
        "entries_uncertain": share,
        "factors_agreeing": float(share_agreeing(agreeing)) if chains > 1 else float("nan"),
        "clamped": _of(trace, "clamped", np.mean),
        "noise_free": bool(_of(trace, "residual", np.mean) < residual_floor),
        "errors": errors,
    }
    names = ("rhat_product", "rhat_log_joint", "rhat_precision", "rhat_dispersion")
    # What never moved, or is not there, has none: it is no reason against the run.
    worst = max(np.nan_to_num(figures[n], nan=1.0) for n in names)
    figures["rhat"] = float(worst)
    figures["converged"] = bool(
        chains > 1
        and worst <= RHAT_USABLE
        and not figures["ess_product"] < ESS_PER_CHAIN * chains
        and figures["factors_agreeing"] == 1.0
    )
    return figures | {"verdict": verdict(figures, chains, len(agreeing))}


def _of(trace, name, statistic) -> float:
    return float(statistic(trace[name])) if name in trace else float("nan")


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
    exact = figures["exact"]
    limits = _limits(figures)
    if num_chains == 1:
        return (
            "Not checked: one chain cannot show whether another start finds the same"
            f"{limits and '; '}{limits}."
        )
    found = round(figures["factors_agreeing"] * rank)
    chains = "both chains" if num_chains == 2 else f"all {num_chains} chains"
    mixed = f"{found} of {rank} factors were found by {chains}, and {_entries(figures)}"
    if limits:
        mixed = f"{mixed}; {limits}"
    if not figures["converged"]:
        return f"Do not rely on this run, because {_reasons(figures, num_chains, rank)}: {mixed}."
    if exact:
        word = "Reliable" if figures["rhat"] <= RHAT_GOOD else "Usable"
        return f"{word}: an exact sampler, and chains that agree; {mixed}."
    if figures["clamped"] > MANY_CLAMPED:
        return (
            "Use the factors, but do not rely on standard deviations and probabilities: this "
            f"sampler's spread is not the posterior's; {mixed}."
        )
    return (
        f"Usable, as an approximation: {mixed}, and the standard deviations of this sampler are "
        "approximate."
    )


def _entries(figures) -> str:
    """How the entries of the reconstruction mixed."""
    if np.isnan(figures["rhat_product"]):
        return "no entry of the reconstruction is uncertain"
    which = "reconstructed" if np.isnan(figures["entries_uncertain"]) else "uncertain"
    return (
        f"99 % of the {which} entries have an R-hat of at most {figures['rhat_product']:.2f} "
        f"(the worst {figures['rhat_product_worst']:.2f}) with at least "
        f"{figures['ess_product']:.0f} effective draws"
    )


def _limits(figures) -> str:
    """What qualifies the result whatever the chains do."""
    said = []
    if not np.isnan(figures["clamped"]):
        share = 100 * figures["clamped"]
        said.append(f"{share:.0f} % of the coordinates were held at a bound of [0, 1]")
    if figures["noise_free"]:
        said.append(
            "the factors reproduce the data almost without noise, so that the noise precision is "
            "bounded by its prior, or by the arithmetic, alone"
        )
    return "; ".join(said)


def _reasons(figures, num_chains, rank) -> str:
    """What keeps the run from having converged."""
    names = {
        "the reconstruction": "rhat_product",
        "the log joint density": "rhat_log_joint",
        "the noise precision": "rhat_precision",
        "the dispersion": "rhat_dispersion",
    }
    said = [
        f"{n} has an R-hat of {figures[k]:.2f}"
        for n, k in names.items()
        if figures[k] > RHAT_USABLE
    ]
    if figures["ess_product"] < ESS_PER_CHAIN * num_chains:
        said.append(
            f"{figures['ess_product']:.0f} effective draws of the reconstruction are fewer than "
            f"{ESS_PER_CHAIN} a chain"
        )
    if figures["factors_agreeing"] != 1.0:
        said.append("the chains did not all find the same factors")
    return ", ".join(said[:-1]) + (" and " if len(said) > 1 else "") + (said or ["of NaN"])[-1]
