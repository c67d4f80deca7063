"""What a user says about priors and starts, checked and turned into arguments of the model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from bmfjax import models
from bmfjax.data import InputError


def model_arguments(priors, sampler) -> dict:
    """Keyword arguments of `relaxed_bmf` from what the user gave as priors."""
    given = dict(priors) if isinstance(priors, Mapping) else {}
    if priors is not None and not isinstance(priors, Mapping):
        given = {"usage": priors, "basis": priors}
    unknown = sorted(set(given) - {"usage", "basis", "precision", "rate"})
    if unknown:
        raise InputError(
            f"priors name {unknown[0]!r}; the relaxed model has usage, basis, precision, rate"
        )
    precision = given.get("precision", 1.0 if sampler == "thesis" else None)
    chosen = {site: given.get(site, "uniform") for site in ("usage", "basis")}
    return {
        # "ard" stays a name: its rates belong to the factors.
        **{
            f"{site}_prior": prior if prior == "ard" else models.resolve_prior(prior, site)
            for site, prior in chosen.items()
        },
        "precision": models.resolve_precision(precision),
        "rate": models.resolve_rate(given.get("rate"), chosen.values()),
    }


def sampled_sites(arguments) -> tuple[str, ...]:
    """Sites of the relaxed model that are sampled with these arguments."""
    learned = () if isinstance(arguments["precision"], float) else ("precision",)
    return ("usage", "basis", *learned, *(() if arguments["rate"] is None else ("rate",)))


def check_start(init) -> None:
    """Refuse a start that is not both factor matrices by name."""
    if not isinstance(init, Mapping) or set(init) != {"usage", "basis"}:
        raise InputError("init must hold exactly 'usage' and 'basis'")


def given_start(init, data, rank, num_chains, arguments) -> dict | None:
    """The position of every chain from the factors that a user gave; None without."""
    if init is None:
        return None
    check_start(init)
    start = {}
    for name, size in (("usage", data.num_rows), ("basis", data.num_columns)):
        values = np.asarray(init[name], np.float32)
        if values.shape != (size, rank):
            raise InputError(f"init {name!r} has shape {values.shape}; it must be {(size, rank)}")
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError(f"init {name!r} has values outside 0 to 1")
        start[name] = np.broadcast_to(values, (num_chains, size, rank))
    usage, basis = start["usage"][0], start["basis"][0]
    if "precision" in sampled_sites(arguments):
        # The conditional mean: a start with the wrong precision is left at the first step.
        squares = np.nansum((data.dense() - usage @ basis.T) ** 2)
        entries = data.num_rows * data.num_columns - data.num_missing
        mean = _gamma_mean(arguments["precision"], entries / 2, squares / 2)
        start["precision"] = np.full(num_chains, mean, np.float32)
    if "rate" in sampled_sites(arguments):
        total = usage.sum(0) + basis.sum(0)
        rate = _gamma_mean(arguments["rate"], data.num_rows + data.num_columns, total)
        start["rate"] = np.broadcast_to(rate.astype(np.float32), (num_chains, rank))
    return start


def _gamma_mean(prior, count, total):
    """Mean of a Gamma conditional; any other prior is refused later, where it is sampled."""
    shape = float(getattr(prior, "concentration", 1.0))
    return (shape + count) / (float(getattr(prior, "rate", 1.0)) + total)


def describe(prior) -> str:
    """A distribution by class and parameters, so that a resumed fit can be compared."""
    if prior is None or isinstance(prior, float | str):
        return repr(prior)
    inner = getattr(prior, "base_dist", None)
    names = [*sorted(prior.arg_constraints), *(["low", "high"] if inner is not None else [])]
    values = [f"{n}={np.asarray(getattr(prior, n)).tolist()}" for n in names if hasattr(prior, n)]
    if inner is not None:
        values.insert(0, describe(inner))
    return f"{type(prior).__name__}({', '.join(values)})"


def digest(position) -> str:
    """A short fingerprint of given starts."""
    digest = hashlib.sha256()
    for name in sorted(position):
        digest.update(np.ascontiguousarray(position[name]).tobytes())
    return f"given, {digest.hexdigest()[:16]}"
