"""From a NumPyro model that is `relaxed_bmf` to its density, and to its blocks for IASG."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse as sp
from jax.sharding import Mesh
from numpyro.distributions import truncated

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.blocks import bound_algorithm, check_batch
from bmfjax.infer.mcmc.kernel import BoundAlgorithm, arguments_of, model_trace
from bmfjax.kernels.relaxed import density as relaxed_kernel
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.relaxed.density import EntryPrior, RelaxedDensity
from bmfjax.kernels.sgmcmc.relaxed_blocks import relaxed_blocks
from bmfjax.kernels.sgmcmc.step_size import default_batch
from bmfjax.models.nmf import nmf, nmf_priors
from bmfjax.models.relaxed import (
    exponential,
    gamma_parameters,
    relaxed_bmf,
    resolve_precision,
    resolve_prior,
    resolve_rate,
)
from bmfjax.specs.priors import support_interval
from bmfjax.specs.relaxed import IterateAveraging

LATENT = ("usage", "basis", "precision", "rate")
#: Blocks of IASG: the basis moves from rows, the usage from columns.
BLOCKS = {"basis": "rows", "usage": "columns"}
TRUNCATED = (
    truncated.LeftTruncatedDistribution,
    truncated.RightTruncatedDistribution,
    truncated.TwoSidedTruncatedDistribution,
)


def relaxed_arguments(model: Callable, args: tuple, kwargs: dict) -> dict | None:
    """Return the arguments of `relaxed_bmf`; None unless `model` is that, `nmf`, or a partial."""
    found = arguments_of(relaxed_bmf, model, args, kwargs)
    if found is None and (given := arguments_of(nmf, model, args, kwargs)) is not None:
        rates = {n: given.pop(n) for n in ("usage_rate", "basis_rate", "rate")}
        found = arguments_of(relaxed_bmf, relaxed_bmf, (), given | nmf_priors(**rates))
    return found


def relaxed_density(arguments: dict) -> RelaxedDensity:
    """Return the density of `relaxed_bmf` called with these arguments."""
    upper = arguments["upper"]
    priors = _priors(arguments)
    rate = resolve_rate(arguments["rate"], priors.values())
    precision = resolve_precision(arguments["precision"])
    learned = isinstance(precision, dist.Distribution)
    gamma = gamma_parameters(precision, "precision") if learned else None
    return RelaxedDensity(
        usage=entry_prior(priors["usage"], "usage", upper),
        basis=entry_prior(priors["basis"], "basis", upper),
        precision=None if gamma else precision,
        precision_log_prior=precision.log_prob if gamma else None,
        precision_gamma=gamma,
        rate_gamma=None if rate is None else gamma_parameters(rate, "rate"),
        max_precision=_max_precision(arguments),
    )


def _max_precision(arguments):
    """Return where a learned precision is held: of factors without a bound by the data's unit."""
    data = arguments["data"]
    if data is None or arguments["upper"] == 1.0:
        return relaxed_kernel.MAX_PRECISION
    return relaxed_kernel.MAX_PRECISION / _mean_square(data, arguments["observed"])


def _mean_square(data, observed):
    """Return the mean of the squares of the observed entries, 1 where all of them are zero."""
    traced = any(isinstance(x, jax.core.Tracer) for x in (data, observed))
    xp = jnp if traced else np
    size = math.prod(np.shape(data))
    values = xp.asarray(data.data if sp.issparse(data) else data, jnp.result_type(float))
    missing = xp.isnan(values)
    if observed is not None:
        missing = missing | ~xp.asarray(observed, bool)
    values = xp.where(missing, 0.0, values)
    mean = xp.sum(values * values) / xp.maximum(size - xp.sum(missing), 1)
    return jnp.where(mean > 0, mean, 1.0) if traced else float(mean) or 1.0


def relaxed_start(arguments: dict) -> Callable:
    """Return ``initial(key, data) -> position``: a draw from the prior of `relaxed_bmf`."""
    shape = np.shape(arguments["data"])
    fixed = {n: v for n, v in arguments.items() if n not in ("data", "observed", "shape")}

    def initial(key, data):
        trace = model_trace(relaxed_bmf, key, (), {"shape": shape, **fixed})
        return {n: trace[n]["value"] for n in LATENT if n in trace}

    return initial


def entry_prior(prior, site: str = "factor", upper: float = 1.0) -> EntryPrior:
    """Return what samplers need to know of a prior of factor entries, "ard" included."""
    if isinstance(prior, str) and prior == "ard":
        resolve_prior("laplace", site, upper)  # checks `upper`
        return EntryPrior(
            lambda x, rate: exponential(rate, upper).log_prob(x),
            0.0, float(upper), 0.0, quadratic=(0.0, 0.0), learned_rate=True,
        )  # fmt: skip
    prior = resolve_prior(prior, site, upper)
    low, high = support_interval(prior.support)
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
    """Return (slope, curvature) of a log density that is quadratic on its support, else None."""
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


def relaxed_conditionals(density: RelaxedDensity) -> dict[str, Callable]:
    """Return ``{site: draw(key, position, data, inverse_temperature)}`` of the learned sites."""

    def draw_rate(key, position, data, inverse_temperature):
        return relaxed_kernel.draw_factor_rate(density, key, position)

    learned = {}
    if density.precision is None:
        learned["precision"] = functools.partial(relaxed_kernel.draw_precision, density)
    if density.rate_gamma is not None:
        learned["rate"] = draw_rate
    return learned


def relaxed_boxes(arguments: dict) -> dict[str, tuple[float, float]]:
    """Return (low, high) of both factor matrices: [0, upper], or less where a prior says so."""
    upper = arguments["upper"]
    return {
        site: (0.0, float(upper)) if isinstance(p, str) and p == "ard"
        else support_interval(resolve_prior(p, site, upper).support)
        for site, p in _priors(arguments).items()
    }  # fmt: skip


def _priors(arguments):
    """Return the prior given for each factor matrix, by name or as a distribution."""
    priors = {}
    for site in ("usage", "basis"):
        own = arguments[site]
        priors[site] = arguments["prior"] if own is None else own
    return priors


def _constant_curvature(prior) -> float:
    """Return the part of minus the second derivative that holds everywhere, at least 0."""
    with jax.ensure_compile_time_eval():  # a number, also where a model is being traced
        low, high = support_interval(prior.support)
        quadratic = _quadratic(prior, low)
        if quadratic is not None:
            return quadratic[1]
        if high == float("inf"):
            return 0.0
        inside = low + (high - low) * jnp.linspace(0.05, 0.95, 19)
        second = jax.vmap(jax.grad(jax.grad(prior.log_prob)))(inside)
        return max(0.0, float(jnp.min(-second)))


# ---- IASG -------------------------------------------------------------------------------


def has_standard_blocks(settings: IterateAveraging) -> bool:
    """Tell whether the hand-written gradients serve: `BLOCKS`, and nothing else drawn exactly."""
    if settings.conditionals or settings.boundary == "logit":
        return False
    if settings.blocks is None:
        return True
    return sorted((*s, *p) for s, p in settings.blocks) == sorted(BLOCKS.items())


def bind_relaxed(
    settings: IterateAveraging, arguments: dict, mesh: Mesh | None = None
) -> BoundAlgorithm:
    """Build IASG for `relaxed_bmf` with its hand-written gradients.

    On a `mesh` each device along the rows has its own rows and its own columns.
    """
    if arguments["data"] is None:
        raise InputError("IASG needs data, and the model was called without")
    density = relaxed_density(arguments)
    data = matrix_data(arguments["data"], arguments["observed"], mesh)
    shape = np.shape(arguments["data"])
    sizes = dict(zip(("rows", "columns"), shape, strict=True))
    given = _given_batches(settings, sizes)
    batches = {
        p: default_batch(n, arguments["rank"], replace=settings.replace)
        if given[p] is None else given[p]
        for p, n in sizes.items()
    }  # fmt: skip
    for plate, batch in batches.items():
        check_batch(sizes, plate, batch, settings.replace)
    blocks = relaxed_blocks(
        density,
        shape,
        (batches["rows"], batches["columns"]),
        newton=settings.preconditioner == "newton",
        scale_likelihood=settings.scale_likelihood,
    )
    if settings.calibration == "auto":  # all sites are on a box
        settings = dataclasses.replace(settings, calibration=None)
    return bound_algorithm(
        settings,
        functools.partial(relaxed_kernel.log_joint, density),
        blocks,
        relaxed_boxes(arguments),
        relaxed_conditionals(density),
        relaxed_start(arguments),
        data,
        planned=[given[plate] is None for plate in ("rows", "columns")],
        instead="the exact TruncatedGibbs (sampler='gibbs' of bmfjax.fit)",
    )


def plate_conditionals(arguments: dict, given: Mapping) -> dict[str, Callable]:
    """Return `relaxed_conditionals` for blocks of plates, of the sites that are not `given`."""
    if "precision" in given:  # whose prior need not be a Gamma distribution then
        arguments = arguments | {"precision": 1.0}

    def on_matrix(draw):
        def drawn(key, values, data, inverse_temperature):
            matrix = matrix_data(arguments["data"], arguments["observed"])
            return draw(key, values, matrix, inverse_temperature)

        return drawn

    return {n: on_matrix(d) for n, d in relaxed_conditionals(relaxed_density(arguments)).items()}


def _given_batches(settings, sizes) -> dict:
    """Return the batch of every plate as the user gave it, None where it is to be chosen."""
    if settings.blocks is not None:
        return {p: b for _, plates in settings.blocks for p, b in plates.items()}
    return given_batches(settings.batch_size, sizes)


def given_batches(batch_size, sizes) -> dict:
    """Return the batch of rows and of columns from one number, a mapping, or None."""
    named = isinstance(batch_size, Mapping)
    batches = dict(batch_size) if named else dict.fromkeys(sizes, batch_size)
    if set(batches) != set(sizes):
        raise InputError(f"batch_size names {sorted(batches)}; it must name 'rows' and 'columns'")
    return batches
