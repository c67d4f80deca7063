"""NumPyro's MCMC to ArviZ: named dimensions, statistics, observed data, nothing large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from numpyro.infer import log_likelihood
from numpyro.infer.mcmc import MCMC

from bmfjax.diagnostics import to_inference_data
from bmfjax.diagnostics.arviz import standard_attributes
from bmfjax.infer.mcmc.kernel import model_trace

#: ArviZ's names for statistics that go by another name in NumPyro.
STATISTICS = {"accept_prob": "acceptance_rate", "num_steps": "n_steps"}


def to_arviz(
    mcmc: MCMC,
    *,
    coords: Mapping[str, Sequence] | None = None,
    include_log_likelihood: bool = False,
    sampling_time: float | None = None,
) -> Any:
    """Return the draws of a finished ``MCMC`` as an ArviZ container.

    Parameters
    ----------
    mcmc : numpyro.infer.MCMC
        After ``run``, with any kernel that has a `model`.
    coords : mapping, optional
        Labels of dimensions, such as ``{"rows": names, "columns": names}``.
    include_log_likelihood : bool
        Also compute the pointwise log-likelihood: one number an entry and draw,
        a gigabyte for 1,000 draws of a 512 x 512 matrix.
    sampling_time : float, optional
        Seconds, which NumPyro does not keep; an attribute of the posterior.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        Groups `posterior`, `sample_stats` (with `lp`, the log joint density) and
        `observed_data`, where masked entries are NaN. For `IASG` the posterior has the
        attribute `window`: how many iterates a draw averages.

    Examples
    --------
    >>> import functools, bmfjax
    >>> data = (jax.random.uniform(jax.random.key(0), (80, 64)) < 0.3).astype(float)
    >>> kernel = bmfjax.TruncatedGibbs(functools.partial(bmfjax.models.relaxed_bmf, rank=2))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(1), data)
    >>> idata = to_arviz(mcmc)
    >>> idata["posterior"]["usage"].dims
    ('chain', 'draw', 'rows', 'factor')
    """
    posterior = {n: np.asarray(v) for n, v in mcmc.get_samples(group_by_chain=True).items()}
    args, kwargs = mcmc._args, mcmc._kwargs
    model = mcmc.sampler.model
    dims, observed = ({}, {}) if model is None else _sites(model, args, kwargs)
    likelihood = None
    if include_log_likelihood:
        flat = mcmc.get_samples()
        shape = (mcmc.num_chains, -1)
        likelihood = {
            n: np.asarray(v).reshape(*shape, *v.shape[1:])
            for n, v in log_likelihood(model, flat, *args, **kwargs).items()
        }
    return to_inference_data(
        posterior,
        sample_stats=_statistics(mcmc),
        observed_data=observed,
        log_likelihood=likelihood,
        dims=dims,
        coords=coords,
        attrs=standard_attributes("numpyro", sampling_time=sampling_time)
        | window_attributes(getattr(mcmc.sampler, "windows", None) or {}),
    )


def window_attributes(windows: Mapping[str, int]) -> dict[str, int]:
    """Return the smallest window of averages as "window", and each by site where they differ.

    >>> window_attributes({"usage": 2, "basis": 8})
    {'window': 2, 'window_usage': 2, 'window_basis': 8}
    """
    if not windows:
        return {}
    by_site = {f"window_{s}": t for s, t in windows.items()}
    return {"window": min(windows.values())} | (by_site if len(set(windows.values())) > 1 else {})


def _sites(model, args, kwargs):
    """Return names of the sites' dimensions, and what is observed with masked entries NaN."""
    dims, given = {}, {}

    def computed():
        trace = model_trace(model, jax.random.key(0), args, kwargs)
        dims.update({n: d for n, s in trace.items() if (d := _dims(n, s))})
        parts = {
            n: {"value": s["value"], "mask": getattr(s["fn"], "_mask", None)}
            for n, s in trace.items()
            if _is_data(s)
        }
        # What the model was given stays as it is, in its own dtype and out of the program.
        given.update({n: {k: v for k, v in p.items() if not _traced(v)} for n, p in parts.items()})
        return {n: {k: v for k, v in p.items() if _traced(v)} for n, p in parts.items()}

    try:  # in one program; run as it stands, every operation of the model compiles alone
        found = jax.device_get(jax.jit(computed)())
    except jax.errors.TracerArrayConversionError:  # the model picks NumPy arrays by its plates
        found = computed()
    return dims, {n: _observed(**given[n], **found[n]) for n in found}


def _traced(value):
    return isinstance(value, jax.core.Tracer)


def _dims(name, site):
    """Name each axis by its plate, and the last ones by what the site says of its event."""
    if site["type"] != "sample":
        return []
    event = site["fn"].event_dim
    batch = np.ndim(site["value"]) - event
    plates = {frame.dim: frame.name for frame in site["cond_indep_stack"]}
    axes = [plates.get(axis - batch) for axis in range(batch)]
    labels = list(site["infer"].get("event_dims", []))
    axes += labels if len(labels) == event else [None] * event
    if not any(axes):
        return []
    return [axis or f"{name}_dim_{k}" for k, axis in enumerate(axes)]


def _is_data(site):
    return site["type"] == "sample" and site["is_observed"]


def _observed(value, mask):
    value = np.asarray(value)
    if mask is None:
        return value
    return np.where(np.asarray(mask), value, np.float32(np.nan))


def _statistics(mcmc):
    out = {}
    for name, value in mcmc.get_extra_fields(group_by_chain=True).items():
        if isinstance(value, dict) or not hasattr(value, "shape"):
            continue
        if name == "potential_energy":
            out["lp"] = -np.asarray(value)
        else:
            out[STATISTICS.get(name, name)] = np.asarray(value)
    return out
