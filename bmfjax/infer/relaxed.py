"""The relaxed model's density, read from a NumPyro model that is `relaxed_bmf`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bmfjax.data.errors import InputError
from bmfjax.kernels.relaxed import RelaxedDensity
from bmfjax.models.relaxed import box, relaxed_bmf, resolve_precision, resolve_prior


def relaxed_arguments(model: Callable, args: tuple, kwargs: dict) -> dict | None:
    """Arguments of `relaxed_bmf` where `model` is that function, plain or partial.

    Returns
    -------
    dict or None
        All arguments by name, defaults included; None for any other model.

    Examples
    --------
    >>> model = functools.partial(relaxed_bmf, rank=3)
    >>> relaxed_arguments(model, (jnp.eye(2),), {})["rank"]
    3
    >>> relaxed_arguments(lambda data: None, (), {}) is None
    True
    """
    while isinstance(model, functools.partial):
        args, kwargs = (*model.args, *args), {**model.keywords, **kwargs}
        model = model.func
    if model is not relaxed_bmf:
        return None
    bound = inspect.signature(relaxed_bmf).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def relaxed_density(arguments: dict) -> RelaxedDensity:
    """The density of `relaxed_bmf` called with these arguments.

    Parameters
    ----------
    arguments : dict
        As `relaxed_arguments` returns them.

    Returns
    -------
    RelaxedDensity

    Raises
    ------
    InputError
        Where the precision has a prior other than a Gamma distribution.
    """
    priors = _priors(arguments)
    precision = resolve_precision(arguments["precision"])
    gamma = None
    if isinstance(precision, dist.Distribution):
        if not isinstance(precision, dist.Gamma):
            raise InputError(
                f"the prior of precision is {type(precision).__name__}; IASG draws it from its "
                "Gamma conditional: give a Gamma prior or a fixed number"
            )
        gamma = (float(precision.concentration), float(precision.rate))
    return RelaxedDensity(
        usage_log_prior=priors["usage"].log_prob,
        basis_log_prior=priors["basis"].log_prob,
        usage_curvature=_constant_curvature(priors["usage"]),
        basis_curvature=_constant_curvature(priors["basis"]),
        precision=None if gamma else precision,
        precision_log_prior=precision.log_prob if gamma else None,
        precision_gamma=gamma,
    )


def relaxed_boxes(arguments: dict) -> dict[str, tuple[float, float]]:
    """(low, high) of the two factor matrices: [0, 1], or less where a prior says so."""
    return {site: box(prior.support) for site, prior in _priors(arguments).items()}


def _priors(arguments):
    priors = {}
    for site in ("usage", "basis"):
        own = arguments[f"{site}_prior"]
        priors[site] = resolve_prior(arguments["prior"] if own is None else own, site)
    return priors


def _constant_curvature(prior) -> float:
    """The part of minus the second derivative that holds everywhere, at least 0."""
    with jax.ensure_compile_time_eval():  # a number, also where a model is being traced
        low, high = box(prior.support)
        inside = low + (high - low) * jnp.linspace(0.05, 0.95, 19)
        second = jax.vmap(jax.grad(jax.grad(prior.log_prob)))(inside)
        return max(0.0, float(jnp.min(-second)))
