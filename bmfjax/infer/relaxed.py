"""The relaxed model's density, read from a NumPyro model that is `relaxed_bmf`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import truncated

from bmfjax.data.errors import InputError
from bmfjax.infer.arguments import arguments_of
from bmfjax.kernels.priors import EntryPrior
from bmfjax.kernels.relaxed import RelaxedDensity
from bmfjax.models.nmf import nmf, nmf_priors
from bmfjax.models.relaxed import (
    exponential,
    interval,
    relaxed_bmf,
    resolve_precision,
    resolve_prior,
    resolve_rate,
)

TRUNCATED = (
    truncated.LeftTruncatedDistribution,
    truncated.RightTruncatedDistribution,
    truncated.TwoSidedTruncatedDistribution,
)


def relaxed_arguments(model: Callable, args: tuple, kwargs: dict) -> dict | None:
    """Arguments of `relaxed_bmf` where `model` is that function, or `nmf`, plain or partial.

    Returns
    -------
    dict or None
        All arguments by name, defaults included; None for any other model.

    Examples
    --------
    >>> import functools
    >>> model = functools.partial(relaxed_bmf, rank=3)
    >>> relaxed_arguments(model, (jnp.eye(2),), {})["rank"]
    3
    >>> relaxed_arguments(lambda data: None, (), {}) is None
    True
    """
    found = arguments_of(relaxed_bmf, model, args, kwargs)
    if found is None and (given := arguments_of(nmf, model, args, kwargs)) is not None:
        rates = {n: given.pop(n) for n in ("usage_rate", "basis_rate")}
        found = arguments_of(relaxed_bmf, relaxed_bmf, (), given | nmf_priors(**rates))
    return found


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
    upper = arguments["upper"]
    priors = _priors(arguments)
    rate = resolve_rate(arguments["rate"], priors.values())
    precision = resolve_precision(arguments["precision"])
    gamma = None
    if isinstance(precision, dist.Distribution):
        if not isinstance(precision, dist.Gamma):
            raise InputError(
                f"the prior of precision is {type(precision).__name__}; it is drawn from its "
                "Gamma conditional: give a Gamma prior or a fixed number"
            )
        gamma = (float(precision.concentration), float(precision.rate))
    return RelaxedDensity(
        usage=entry_prior(priors["usage"], "usage", upper),
        basis=entry_prior(priors["basis"], "basis", upper),
        precision=None if gamma else precision,
        precision_log_prior=precision.log_prob if gamma else None,
        precision_gamma=gamma,
        rate_gamma=None if rate is None else (float(rate.concentration), float(rate.rate)),
    )


def entry_prior(prior, site: str = "factor", upper: float = 1.0) -> EntryPrior:
    """What samplers need to know of the prior of a factor's entries.

    Parameters
    ----------
    prior : str or numpyro.distributions.Distribution
        As for `relaxed_bmf`, "ard" included.
    site : str
        For messages.
    upper : float
        As for `relaxed_bmf`.

    Returns
    -------
    EntryPrior

    Examples
    --------
    >>> entry_prior("laplace").quadratic, entry_prior("normal").quadratic
    ((0.5, 0.0), (0.0, 1.0))
    """
    if isinstance(prior, str) and prior == "ard":
        resolve_prior("laplace", site, upper)  # checks `upper`
        return EntryPrior(
            lambda x, rate: exponential(rate, upper).log_prob(x),
            0.0, float(upper), 0.0, quadratic=(0.0, 0.0), learned_rate=True,
        )  # fmt: skip
    prior = resolve_prior(prior, site, upper)
    low, high = interval(prior.support)
    beta = None
    if isinstance(prior, dist.Beta):
        beta = (float(prior.concentration1), float(prior.concentration0))
    return EntryPrior(
        lambda x, rate: prior.log_prob(x),
        low,
        high,
        _constant_curvature(prior),
        quadratic=_quadratic(prior, low),
        beta=beta,
    )


def _quadratic(prior, low) -> tuple[float, float] | None:
    """(slope, curvature) of a log density that is quadratic on its support, else None."""
    if isinstance(prior, dist.Uniform):
        return 0.0, 0.0
    if isinstance(prior, dist.Exponential):
        return float(prior.rate), 0.0
    if isinstance(prior, dist.HalfNormal):
        return 0.0, float(prior.scale) ** -2
    if not isinstance(prior, TRUNCATED):  # others have a `base_dist` too, and transform it
        return None
    base = prior.base_dist
    if isinstance(base, dist.Normal):
        curvature = float(base.scale) ** -2
        return 0.0 - float(base.loc) * curvature, curvature
    if isinstance(base, dist.Laplace) and float(base.loc) <= low:
        return 1.0 / float(base.scale), 0.0
    return None


def relaxed_boxes(arguments: dict) -> dict[str, tuple[float, float]]:
    """(low, high) of the two factor matrices: [0, upper], or less where a prior says so."""
    upper = arguments["upper"]
    return {
        site: (0.0, float(upper)) if isinstance(p, str) and p == "ard"
        else interval(resolve_prior(p, site, upper).support)
        for site, p in _priors(arguments).items()
    }  # fmt: skip


def _priors(arguments):
    """What was given for each of the two, by name or as a distribution."""
    priors = {}
    for site in ("usage", "basis"):
        own = arguments[f"{site}_prior"]
        priors[site] = arguments["prior"] if own is None else own
    return priors


def _constant_curvature(prior) -> float:
    """The part of minus the second derivative that holds everywhere, at least 0."""
    with jax.ensure_compile_time_eval():  # a number, also where a model is being traced
        low, high = interval(prior.support)
        quadratic = _quadratic(prior, low)
        if quadratic is not None:
            return quadratic[1]
        if high == float("inf"):
            return 0.0
        inside = low + (high - low) * jnp.linspace(0.05, 0.95, 19)
        second = jax.vmap(jax.grad(jax.grad(prior.log_prob)))(inside)
        return max(0.0, float(jnp.min(-second)))
