"""From a NumPyro model with plates to the gradients that samplers from minibatches need.

Every plate is written full in the model (``with numpyro.plate("rows", n) as i``)
and indexes its data by ``i``; a minibatch is the same model with other indices
substituted, which NumPyro rescales by N/S itself.

Sites on a box with constant ends move in their own coordinates; any other site
moves in unconstrained coordinates, with the log Jacobian in the density. `at_bounds` chooses
otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.initialization import init_to_uniform

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.blocks import bound_algorithm, check_batch, takes_newton_steps
from bmfjax.infer.mcmc.kernel import BoundAlgorithm, latent_values, model_trace
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.sgmcmc import sandwich
from bmfjax.kernels.sgmcmc.iasg import Block
from bmfjax.kernels.sgmcmc.step_size import default_batch
from bmfjax.specs.priors import support_box, support_interval
from bmfjax.specs.relaxed import IterateAveraging

#: A dense Hessian of a block is formed up to this many coordinates.
MAX_NEWTON_SIZE = 1000
#: Cases a coordinate below which averages that are not calibrated are told to vary too little.
FEW_CASES = 5
#: Log density of a prior, and its slope, from which on a bound counts as a pole or a zero of it.
STEEPEST = 1e12

#: How data follow a plate, of an error.
_INDEXED = (
    "index all data by the plate: with numpyro.plate({!r}, n) as i: numpyro.sample(..., obs=y[i])"
)


class ModelSites(NamedTuple):
    """Latent sites, plates and observed sites of a model, by their names."""

    shapes: dict[str, tuple[int, ...]]  # of the latent sites
    boxes: dict[str, tuple[float, float]]  # (low, high) of the latent sites on a box
    transforms: dict[str, Any]  # from unconstrained coordinates, of the other latent sites
    plates: dict[str, int]  # their sizes
    observed_plates: dict[str, tuple[str, ...]]  # plates around every observed site
    latent_plates: dict[str, tuple[str, ...]]  # plates around every latent site
    priors: dict[str, Any]  # distributions of the latent sites


def inspect_model(model: Callable, args: tuple, kwargs: dict) -> ModelSites:
    """Trace a model once and read its sites, supports and plates."""
    # Supports may not depend on values, so that any start will do here.
    trace = model_trace(model, jax.random.key(0), args, kwargs)
    shapes, boxes, transforms, plates, seen, latent, priors = {}, {}, {}, {}, {}, {}, {}
    for name, site in trace.items():
        if site["type"] == "plate":
            plates[name] = _full_size(name, *site["args"])
        if site["type"] != "sample":
            continue
        around = tuple(frame.name for frame in site["cond_indep_stack"])
        if site["is_observed"]:
            seen[name] = around
            continue
        if site["fn"].support.is_discrete:
            raise InputError(
                f"site {name!r} is discrete and this sampler moves by gradients; "
                "marginalise it out of the model"
            )
        shapes[name], latent[name] = jnp.shape(site["value"]), around
        priors[name] = site["fn"]
        ends = support_box(site["fn"].support)
        if ends is None:
            transforms[name] = biject_to(site["fn"].support)
        else:
            boxes[name] = ends
    return ModelSites(shapes, boxes, transforms, plates, seen, latent, priors)


def _full_size(name, size, drawn) -> int:
    if drawn is not None and drawn != size:
        raise InputError(
            f"plate {name!r} has subsample_size={drawn}, and this sampler draws the minibatches "
            f"itself; leave subsample_size out, and give blocks=((sites, {{{name!r}: {drawn}}}),)"
        )
    return size


def found_blocks(
    model: Callable, sites: ModelSites, args: tuple, kwargs: dict, drawn_exactly=()
) -> tuple:
    """Return the blocks of a model: which sites move from minibatches of which plate.

    Where each plate has data of its own, all sites move from the largest that is around no
    latent site, and other data are taken whole. Where plates are around the same data, such as
    rows and columns, a site moves from the largest whose cases have no entries of it to
    themselves: factors of rows move from columns, those of columns from rows.
    """
    inside = {p for around in sites.latent_plates.values() for p in around}
    around = [[p for p in a if p not in inside] for a in sites.observed_plates.values()]
    if not any(around):
        raise _unknown_blocks("no plate is around data alone")
    names = tuple(n for n in sites.shapes if n not in drawn_exactly)
    shared = list(dict.fromkeys(p for a in around if len(a) > 1 for p in a))
    if not shared:
        return ((names, {max((p for a in around for p in a), key=sites.plates.get): None}),)
    owners, blocks = _owners(model, sites, shared, args, kwargs), {}
    for name in names:
        free = [p for p in shared if p not in owners[name]]
        if not free:
            plates = " and of ".join(map(repr, shared))
            raise _unknown_blocks(f"{name!r} has entries for single cases of {plates}")
        blocks.setdefault(max(free, key=sites.plates.get), []).append(name)
    return tuple((tuple(moved), {plate: None}) for plate, moved in blocks.items())


def _unknown_blocks(why: str) -> InputError:
    return InputError(
        f"the blocks of this model are not known, because {why}; "
        "give blocks=((sites, {plate: batch}), ...)"
    )


def _owners(model, sites: ModelSites, plates, args, kwargs) -> dict[str, set[str]]:
    """Return the plates whose cases have entries to themselves, of every site.

    Then no entry has a gradient from either half of the cases.
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))):
        names = " and ".join(map(repr, plates))
        raise _unknown_blocks(f"the plates {names} are around the same data, which are traced")

    @jax.jit
    def moved_by_halves(position):
        def moved(plate, cases):
            def density(position, power):
                return log_density(model, sites, position, {plate: cases}, args, kwargs, power)

            with_data, without = (jax.grad(density)(position, power) for power in (1.0, 0.0))
            return {n: with_data[n] != without[n] for n in position}

        cases = {p: jnp.arange(sites.plates[p]) for p in plates}
        return {p: [moved(p, half) for half in jnp.array_split(cases[p], 2)] for p in plates}

    with jax.ensure_compile_time_eval():  # also where the model is being traced
        start = latent_values(model, jax.random.key(0), args, kwargs, init_to_uniform)
        found = jax.device_get(moved_by_halves(unconstrain(sites, start)))
    return {
        n: {
            p
            for p, (first, second) in found.items()
            if first[n].any() and second[n].any() and not (first[n] & second[n]).any()
        }
        for n in start
    }


def check_minibatches(model: Callable, sites: ModelSites, blocks, args, kwargs) -> None:
    """Refuse a model whose data do not follow the indices of the plates of its blocks."""
    for plate in {p for _, batches in blocks for p in batches if sites.plates.get(p, 0) > 2}:
        fixed = handlers.substitute(model, data={plate: jnp.arange(2)})
        try:
            trace = model_trace(fixed, jax.random.key(0), args, kwargs)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the model fails on two cases of plate {plate!r} ({str(error).splitlines()[0]}); "
                f"{_INDEXED.format(plate)}"
            ) from error
        for name, site in trace.items():
            if site["type"] != "sample" or not site["is_observed"]:
                continue
            dims = [frame.dim for frame in site["cond_indep_stack"] if frame.name == plate]
            shape = jnp.shape(site["value"])
            shape = shape[: len(shape) - site["fn"].event_dim]
            if dims and len(shape) >= -dims[0] and shape[dims[0]] != 2:
                raise InputError(
                    f"the data of site {name!r} have {shape[dims[0]]} cases where a minibatch of "
                    f"plate {plate!r} has two; {_INDEXED.format(plate)}"
                )


def at_bounds(sites: ModelSites, boundary: str | Mapping[str, str]) -> ModelSites:
    """Return the sites with "reflect" ones in their own coordinates and "logit" ones in others.

    A word is of all sites on an interval, a mapping of the sites that it names, which may be on a
    half-line too.
    """
    boxes, transforms = dict(sites.boxes), dict(sites.transforms)
    if isinstance(boundary, str):
        chosen = dict.fromkeys(sites.boxes, boundary)
    else:
        chosen = dict.fromkeys(sites.boxes, "reflect") | dict(boundary)
    for name, way in chosen.items():
        ends = support_interval(sites.priors[name].support) if name in sites.priors else None
        if ends is None:
            raise InputError(
                f"boundary names {name!r}, which is not a site on an interval or a half-line with "
                "constant ends; leave it out"
            )
        if way == "logit":
            boxes.pop(name, None)
            transforms[name] = biject_to(sites.priors[name].support)
        else:
            boxes[name] = _inside(ends)
            _check_at_ends(name, sites.priors[name], boxes[name])
            transforms.pop(name, None)
    return sites._replace(boxes=boxes, transforms=transforms)


def _inside(ends) -> tuple[float, float]:
    """Return the ends of an interval, moved inwards by the smallest step.

    Many supports are open: NumPyro gives the end itself no density.
    """
    kind = np.dtype(jnp.result_type(float)).type

    def moved(end, sign):
        if not math.isfinite(end):
            return end
        # Beside zero numbers are so small that devices take them for zero.
        inner = sign * np.finfo(kind).tiny if end == 0 else np.nextafter(kind(end), sign * np.inf)
        return float(inner)

    return moved(ends[0], 1.0), moved(ends[1], -1.0)


def _check_at_ends(name, prior, ends) -> None:
    """Refuse to reflect where the prior density ends in a pole or in a zero."""
    both = jax.value_and_grad(lambda x: jnp.sum(prior.log_prob(x)))
    finite = [jnp.full(prior.shape(), e, jnp.result_type(float)) for e in ends if math.isfinite(e)]
    with jax.ensure_compile_time_eval():  # also where a model is being traced
        values = jax.tree.leaves([both(end) for end in finite])
    if any(isinstance(v, jax.core.Tracer) for v in values):
        return  # of parameters that are known when the program runs
    if not all(bool(jnp.all(jnp.abs(v) < STEEPEST)) for v in values):
        raise InputError(
            f"the prior of {name!r} is not finite at its bounds, where nothing can be reflected; "
            f"give boundary={{{name!r}: 'logit'}}"
        )


def constrain(sites: ModelSites, position: Mapping) -> dict:
    """Map the coordinates in which sites move to the model's own."""
    return {n: sites.transforms[n](v) if n in sites.transforms else v for n, v in position.items()}


def unconstrain(sites: ModelSites, values: Mapping) -> dict:
    """Invert `constrain`."""
    return {
        n: sites.transforms[n].inv(v) if n in sites.transforms else v for n, v in values.items()
    }


def log_density(
    model, sites: ModelSites, position, indices, args, kwargs, likelihood_powers=None
) -> jax.Array:
    """Return the log joint density in moving coordinates, on the given indices of some plates.

    `likelihood_powers` is the power of every observed site's likelihood, or a dict of them.
    """
    values = constrain(sites, position)
    fixed = handlers.substitute(model, data={**values, **indices})
    trace = handlers.trace(fixed).get_trace(*args, **kwargs)
    total = jnp.zeros(())
    for name, site in trace.items():
        if site["type"] != "sample":
            continue
        power = likelihood_powers
        if site["is_observed"]:
            power = power[name] if isinstance(power, dict) else power
            if isinstance(power, float) and power == 0.0:
                continue  # the prior alone takes no pass over the data
        log_prob = jnp.sum(site["fn"].log_prob(site["value"]))
        if site["scale"] is not None:
            log_prob = site["scale"] * log_prob
        if site["is_observed"] and power is not None:
            log_prob = power * log_prob
        total = total + log_prob
    for name, transform in sites.transforms.items():
        jacobian = transform.log_abs_det_jacobian(position[name], values[name])
        total = total + jnp.sum(jacobian)
    return total


def bind_plates(
    model: Callable, settings: IterateAveraging, args: tuple, kwargs: dict, learned: Mapping
) -> BoundAlgorithm:
    """Build IASG for a model with its blocks' gradients by automatic differentiation.

    `learned` are sites drawn exactly, ``{site: draw(key, values, data, inverse_temperature)}`` in
    the model's own space, beside the conditionals of the settings.
    """
    sites = inspect_model(model, args, kwargs)
    if settings.blocks is None:
        exactly = {*(settings.conditionals or ()), *learned}
        settings = dataclasses.replace(
            settings, blocks=found_blocks(model, sites, args, kwargs, exactly)
        )
    if settings.boundary == "logit":
        sites = at_bounds(sites, "logit")
    drawn = settings.conditionals or {}
    given = {n: functools.partial(_untempered, n, d) for n, d in drawn.items()}
    conditionals = {
        name: functools.partial(_in_moving_coordinates, sites, name, draw)
        for name, draw in ({**learned, **given}).items()
    }
    newton = settings.preconditioner == "newton"
    given = _with_batches(sites, settings)
    check_blocks(
        sites,
        given,
        conditionals,
        replace=settings.replace,
        newton=newton,
        variance=settings.report_variance,
    )
    check_minibatches(model, sites, given, args, kwargs)
    blocks = [
        plate_block(
            model, sites, names, batches, newton=newton, scale_likelihood=settings.scale_likelihood
        )
        for names, batches in given
    ]

    def log_joint(position, data, inverse_temperature):
        return log_density(model, sites, position, {}, *data, inverse_temperature)

    def start(key, data):
        return unconstrain(sites, latent_values(model, key, *data, init_to_uniform))

    bound = bound_algorithm(
        settings,
        log_joint,
        blocks,
        sites.boxes,
        conditionals,
        start,
        (args, kwargs),
        planned=[None in batches.values() for _, batches in settings.blocks],
        instead="NUTS",
        # The relaxed model's Newton steps are stable from anywhere; another model's need not be.
        default_approach=1000 if newton else 0,
        constrain=functools.partial(constrain, sites),
        unconstrain=functools.partial(unconstrain, sites),
    )
    calibrated = settings.calibration not in ("auto", None) or (
        settings.calibration == "auto" and takes_newton_steps(settings)
    )
    if bound.caution or calibrated:
        return bound
    return bound._replace(caution=_few_cases(blocks, sites))


def _few_cases(blocks, sites: ModelSites) -> str:
    """Say of which block gradients vary too little, because the cases fit too well; or nothing."""
    for block in blocks:
        size = sum(math.prod(sites.shapes[n]) for n in block.sites)
        cases = min((n for n, _ in block.plates.values()), default=math.inf)
        if cases < FEW_CASES * size:
            return (
                f"{cases} cases for the {size} coordinates of {', '.join(block.sites)} are few: "
                "averages that are not calibrated have too small standard deviations; leave "
                "calibration out, or use NUTS"
            )
    return ""


def _with_batches(sites: ModelSites, settings: IterateAveraging) -> tuple:
    """Return the blocks with a batch where None was given, for a window of enough iterates."""
    return tuple(
        (
            names,
            {
                p: default_batch(
                    sites.plates.get(p, 1),
                    sum(math.prod(sites.shapes.get(n, ())) for n in names),
                    replace=settings.replace,
                )
                if batch is None
                else batch
                for p, batch in batches.items()
            },
        )
        for names, batches in settings.blocks
    )


def _untempered(name, draw, key, values, data, inverse_temperature):
    """Call a user's conditional, which knows no tempering."""
    if not (isinstance(inverse_temperature, float) and inverse_temperature == 1.0):
        raise InputError(f"the conditional of {name!r} knows no tempering; run it at temperature 1")
    args, kwargs = data
    return draw(key, values, *args, **kwargs)


def _in_moving_coordinates(sites, name, draw, key, position, data, inverse_temperature):
    value = draw(key, constrain(sites, position), data, inverse_temperature)
    return unconstrain(sites, {name: value})[name]


def plate_block(
    model,
    sites: ModelSites,
    names: tuple[str, ...],
    batches: dict[str, int],
    *,
    newton: bool,
    scale_likelihood: bool,
) -> Block:
    """Return a block whose gradients come from the model by automatic differentiation.

    Its functions take ``data = (args, kwargs)``. With `newton` it is preconditioned by the inverse
    of its Hessian (eigenvalues made positive; the prior's where the data say nothing), taken on
    all data once a window. With `scale_likelihood` the likelihood of S cases is multiplied by
    N/S; Gonsior 2019 does not.
    """

    def powers(inverse_temperature, drawn):
        """Undo NumPyro's N/S where the likelihood is not to be scaled."""
        out = {}
        for name, around in sites.observed_plates.items():
            within = [p for p in batches if p in around]
            undo = math.prod(drawn[p] / sites.plates[p] for p in within)
            out[name] = inverse_temperature * (1.0 if scale_likelihood else undo)
        return out

    def gradient_at(position, indices, data, likelihood):
        rest = {n: v for n, v in position.items() if n not in names}

        def of(moving):
            return log_density(model, sites, rest | moving, indices, *data, likelihood)

        return jax.grad(of)({n: position[n] for n in names})

    def gradient(position, indices, data, inverse_temperature):
        return gradient_at(position, indices, data, powers(inverse_temperature, batches))

    def case_gradients(position, indices, data, inverse_temperature):
        # The mean over cases of N times each case's gradient (plus the prior's) is the
        # minibatch gradient itself.
        ((plate, cases),) = indices.items()
        likelihood = powers(inverse_temperature, batches)
        return jax.vmap(lambda i: gradient_at(position, {plate: i[None]}, data, likelihood))(cases)

    def gradient_and_variance(position, indices, data, inverse_temperature):
        each = case_gradients(position, indices, data, inverse_temperature)
        (count,) = batches.values()
        mean = jax.tree.map(lambda g: g.mean(0), each)
        return mean, jax.tree.map(lambda g: g.var(0) / count, each)

    @full_precision
    def hessian(position, data, inverse_temperature):
        rest = {n: v for n, v in position.items() if n not in names}
        flat, unravel = ravel_pytree({n: position[n] for n in names})

        def negative(x, power):
            return -log_density(model, sites, rest | unravel(x), {}, *data, power)

        values, vectors = jnp.linalg.eigh(jax.hessian(negative)(flat, inverse_temperature))
        # Away from the mode the density may curve upwards; its scale is still the right one.
        values = jnp.maximum(jnp.abs(values), 1e-6 * jnp.max(jnp.abs(values)))
        curvature = (vectors * values) @ vectors.T
        return sandwich.at_least(curvature, jax.hessian(negative)(flat, 0.0))[0]

    def direction(gradient, free, curvature):
        g, unravel = ravel_pytree(gradient)
        mask = ravel_pytree(jax.tree.map(lambda m: m.astype(g.dtype), free))[0]
        system = curvature * mask[:, None] * mask[None, :] + jnp.diag(1.0 - mask)
        return unravel(jnp.linalg.solve(system, g * mask))

    return Block(
        sites=tuple(names),
        plates={p: (sites.plates[p], b) for p, b in batches.items()},
        gradient=gradient,
        gradient_and_variance=gradient_and_variance,
        case_gradients=case_gradients,
        curvature=hessian if newton else None,
        direction=direction if newton else None,
    )


def check_blocks(
    sites: ModelSites, blocks, drawn_exactly, *, replace: bool, newton: bool, variance: bool
) -> None:
    """Refuse blocks that do not fit the model, in one sentence each."""
    placed = list(drawn_exactly)
    for name in placed:
        if name not in sites.shapes:
            raise InputError(
                f"conditional of {name!r}: not a latent site of the model; "
                f"it has {', '.join(sites.shapes)}"
            )
    for names, batches in blocks:
        placed += list(names)
        for name in names:
            if name not in sites.shapes:
                raise InputError(
                    f"block site {name!r} is not a latent site of the model; "
                    f"it has {', '.join(sites.shapes)}"
                )
        for plate, batch in batches.items():
            check_batch(sites.plates, plate, batch, replace)
            for name, around in sites.latent_plates.items():
                if plate in around:
                    raise InputError(
                        f"site {name!r} lies inside plate {plate!r}, from which minibatches are "
                        "drawn; declare it outside with .expand(...).to_event(...)"
                    )
        if variance and len(batches) != 1:
            raise InputError(
                f"report_variance needs exactly one plate a block, and the block of {names[0]!r} "
                f"has {len(batches)}"
            )
        size = sum(math.prod(sites.shapes[n]) for n in names)
        if newton and size > MAX_NEWTON_SIZE:
            raise InputError(
                f"the block of {names[0]!r} has {size} coordinates, too many for a dense Hessian "
                f"(at most {MAX_NEWTON_SIZE}); use preconditioner='calibrated' or a step_size"
            )
    for name in sites.shapes:
        if placed.count(name) != 1:
            many = "no block, so that it would never move" if name not in placed else "two blocks"
            raise InputError(f"site {name!r} is in {many}; put it in exactly one")
