"""Groups of a fit for ArviZ: listed entries, their log densities, the prior's, and replicates."""

from __future__ import annotations

import numpy as np
import xarray

from bmfjax.diagnostics.arviz import datasets, is_legacy
from bmfjax.posterior.pointwise import PLACES, cell_list, pointwise, refuse_too_many, total_density

#: Axes of draws that ArviZ's leave-one-out functions know; its summaries also take "sample".
CHAINS, SAMPLES = ("chain", "draw"), ("sample",)


def groups_of(
    fit, arrays, *, log_likelihood=False, log_prior=False, posterior_predictive=False,
    entries=None, seed=0,
) -> dict[str, xarray.Dataset]:  # fmt: skip
    """Return the groups of `Fit.to_arviz` by name; `arrays` are the arguments of `datasets`."""
    groups = datasets(**arrays)
    chains, draws = fit.usage_draws.shape[:2]
    lists = log_likelihood or posterior_predictive or entries is not None
    if fit._is_variational:
        # Independent draws of a mixture in equal parts: starts are no chains.
        bare = not (lists or log_prior or is_legacy())
        groups = {name: _pooled(g, SAMPLES if bare else CHAINS) for name, g in groups.items()}
        chains, draws = 1, chains * draws
    axes = {axis: np.arange(n) for axis, n in zip(CHAINS, (chains, draws), strict=True)}
    if log_prior:
        prior = fit._log_prior_of_draws().reshape(chains, draws)
        groups["log_prior"] = xarray.Dataset({"parameters": (CHAINS, prior)}, axes)
    if log_prior and fit._is_variational:
        of_all = total_density(fit).reshape(chains, draws)
        both = {"log_p": prior + of_all, "log_q": fit.log_proposal().reshape(chains, draws)}
        groups["sample_stats"] = xarray.Dataset({n: (CHAINS, v) for n, v in both.items()}, axes)
    if not lists:
        return groups
    cells = cell_list(fit.data, entries, seed)
    i, j, values = cells
    at = {
        "entry": np.arange(len(i)),
        **{n: ("entry", p) for n, p in zip(PLACES, (i, j), strict=True)},
    }
    groups["observed_data"] = xarray.Dataset({"data": ("entry", _kept(fit, values))}, at)
    if log_likelihood:
        found = pointwise(fit, cells, (chains, draws))
        groups["log_likelihood"] = xarray.Dataset({"data": ((*CHAINS, "entry"), found)}, axes | at)
    if posterior_predictive:
        refuse_too_many(chains * draws, len(i))
        found = _kept(fit, fit._replicated(i, j, seed)).reshape(chains, draws, -1)
        groups["posterior_predictive"] = xarray.Dataset(
            {"data": ((*CHAINS, "entry"), found)}, axes | at
        )
    return groups


def _kept(fit, values) -> np.ndarray:
    """Return observations as whole numbers where the model is of such: ArviZ smooths those."""
    return values.astype(np.int64) if fit._scored != "densities of numbers" else values


def _pooled(group: xarray.Dataset, axes) -> xarray.Dataset:
    """Return a group whose draws of all starts are pooled, along `axes`; others stay."""
    if "chain" not in group.dims:
        return group
    starts, draws = (group.sizes[axis] for axis in CHAINS)
    lead = (1,) * (len(axes) - 1) + (starts * draws,)
    variables = {
        name: ((*axes, *v.dims[2:]), v.values.reshape(*lead, *v.shape[2:]))
        for name, v in group.data_vars.items()
    }
    coords = {n: c for n, c in group.coords.items() if n not in CHAINS}
    coords |= {axis: np.arange(n) for axis, n in zip(axes, lead, strict=True)}
    coords["start"] = (axes[-1], np.repeat(np.arange(starts), draws))
    return xarray.Dataset(variables, coords, group.attrs)
