"""From a model, its arguments and IASG's settings to an algorithm with its data."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.initialization import init_to_sample, init_to_uniform

from bmfjax.data.errors import InputError
from bmfjax.infer import plates
from bmfjax.infer.kernel import BoundAlgorithm
from bmfjax.infer.relaxed import relaxed_arguments, relaxed_boxes, relaxed_density
from bmfjax.kernels import relaxed as relaxed_kernel
from bmfjax.kernels.approach import adam_approach
from bmfjax.kernels.iasg import iasg
from bmfjax.kernels.matrix_data import matrix_data
from bmfjax.kernels.relaxed_blocks import relaxed_blocks
from bmfjax.kernels.step_size import calibrated_step_size, matched_step_size, matched_window

#: Blocks of the relaxed model: the basis moves from rows, the usage from columns.
RELAXED_BLOCKS = {"basis": "rows", "usage": "columns"}


@dataclass(frozen=True)
class IASGSettings:
    """Options of `IASG`, checked; its docstring says what they mean."""

    blocks: tuple | None
    batch_size: int | Mapping[str, int] | None
    preconditioner: str | None
    step_size: float | Mapping[str, float] | None
    window: int | str
    boundary: str
    delta: float
    replace: bool
    scale_likelihood: bool
    conditionals: Mapping[str, Callable]
    num_calibration: int
    num_approach: int | None
    report_variance: bool

    def __post_init__(self):
        if self.preconditioner not in ("newton", "calibrated", None):
            raise InputError(
                f"preconditioner is {self.preconditioner!r}; choose 'newton', 'calibrated' or None"
            )
        if self.preconditioner is None and self.step_size is None:
            raise InputError("plain gradient steps (preconditioner=None) need a step_size")
        if self.boundary not in ("clamp", "reflect"):
            raise InputError(f"boundary is {self.boundary!r}; choose 'clamp' or 'reflect'")
        if not 0.0 <= self.delta < 0.5:
            raise InputError(f"delta is {self.delta}; give a share of the box from 0 to below 0.5")
        numbered = isinstance(self.window, int) and self.window >= 1
        if not numbered and self.window not in ("matched", "pass"):
            raise InputError(f"window is {self.window!r}; give at least 1, or 'matched' or 'pass'")
        if self.num_approach is not None and self.num_approach < 0:
            raise InputError(f"num_approach is {self.num_approach}; give 0 or more")
        if self.num_calibration < 2:
            raise InputError(f"num_calibration is {self.num_calibration}; give at least 2")
        if self.preconditioner == "newton" and not self.scale_likelihood:
            raise InputError(
                "a likelihood that is not scaled to the data does not fit the curvature of all of "
                "it; with scale_likelihood=False use preconditioner='calibrated' or None"
            )
        if self.preconditioner == "newton" and self.boundary == "reflect":
            raise InputError(
                "reflected Newton steps do not settle near a bound; with boundary='reflect' use "
                "preconditioner='calibrated' or None"
            )
        if self.blocks is not None and self.batch_size is not None:
            raise InputError("blocks already say the batch sizes; leave batch_size out")
        if self.blocks is not None and not self.blocks:
            raise InputError("blocks is empty; give at least one (sites, {plate: batch})")


def bind(model: Callable, settings: IASGSettings, args: tuple, kwargs: dict) -> BoundAlgorithm:
    """Find plates and blocks, and build the algorithm.

    Parameters
    ----------
    model : callable
        A NumPyro model.
    settings : IASGSettings
    args, kwargs
        The model's arguments.

    Returns
    -------
    BoundAlgorithm

    Raises
    ------
    InputError
        Where blocks, plates or batch sizes do not fit the model.
    """
    # NumPy arrays cannot be indexed by the traced indices of a plate.
    args, kwargs = jax.tree.map(
        lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype.kind in "biuf" else x,
        (args, kwargs),
    )
    arguments = relaxed_arguments(model, args, kwargs)
    if arguments is not None and _fits_relaxed(settings):
        return _bind_relaxed(model, settings, arguments, args, kwargs)
    if settings.blocks is None:
        raise InputError(
            "the blocks of this model are not known; give blocks=((sites, {plate: batch}), ...)"
        )
    return _bind_plates(model, settings, arguments, args, kwargs)


def _fits_relaxed(settings):
    """The hand-written gradients serve the standard blocks with nothing else drawn exactly."""
    if settings.conditionals:
        return False
    if settings.blocks is None:
        return True
    return sorted((*s, *p) for s, p in settings.blocks) == sorted(RELAXED_BLOCKS.items())


def _bind_relaxed(model, settings, arguments, args, kwargs):
    if arguments["data"] is None:
        raise InputError("IASG needs data, and relaxed_bmf was called without")
    density = relaxed_density(arguments)
    data = matrix_data(arguments["data"], arguments["observed"])
    sizes = dict(zip(("rows", "columns"), data.values.shape, strict=True))
    batches = _relaxed_batches(settings, sizes, arguments["rank"])
    blocks = relaxed_blocks(
        density,
        data.values.shape,
        (batches["rows"], batches["columns"]),
        newton=settings.preconditioner == "newton",
        scale_likelihood=settings.scale_likelihood,
    )
    conditionals = {}
    if density.precision is None:
        conditionals["precision"] = functools.partial(relaxed_kernel.draw_precision, density)
    if density.rate_gamma is not None:
        conditionals["rate"] = functools.partial(_relaxed_rate, density)

    algorithm, window = _algorithm(
        settings,
        functools.partial(relaxed_kernel.log_joint, density),
        blocks,
        relaxed_boxes(arguments),
        conditionals,
        lambda key, data: _start(model, key, args, kwargs),
    )
    return BoundAlgorithm(algorithm, data, dict, dict, window)


def _relaxed_plate_rate(sites, density, key, position, data, inverse_temperature):
    value = relaxed_kernel.draw_factor_rate(density, key, plates.constrain(sites, position))
    return plates.unconstrain(sites, {"rate": value})["rate"]


def _relaxed_rate(density, key, position, data, inverse_temperature):
    return relaxed_kernel.draw_factor_rate(density, key, position)


def _relaxed_batches(settings, sizes, rank):
    if settings.blocks is not None:
        batches = {p: b for _, plates_ in settings.blocks for p, b in plates_.items()}
    elif isinstance(settings.batch_size, Mapping):
        batches = dict(settings.batch_size)
    elif settings.batch_size is not None:
        batches = dict.fromkeys(sizes, settings.batch_size)
    else:
        # An eighth of the cases, or enough for a well-conditioned Gram matrix, but at most
        # half: steps as long as a full batch asks for leave the quadratic region.
        batches = {p: max(1, -(-n // 8), min(-(-n // 2), 4 * rank)) for p, n in sizes.items()}
    if set(batches) != set(sizes):
        raise InputError(f"batch_size names {sorted(batches)}; it must name 'rows' and 'columns'")
    for plate, batch in batches.items():
        plates.check_batch(sizes, plate, batch, settings.replace)
    return batches


def _bind_plates(model, settings, arguments, args, kwargs):
    sites = plates.inspect_model(model, args, kwargs)
    conditionals = {
        name: functools.partial(_from_conditional, sites, name, draw)
        for name, draw in settings.conditionals.items()
    }
    if arguments is not None and "precision" in sites.shapes and "precision" not in conditionals:
        conditionals["precision"] = functools.partial(
            _relaxed_precision, sites, relaxed_density(arguments), arguments
        )
    if arguments is not None and "rate" in sites.shapes and "rate" not in conditionals:
        conditionals["rate"] = functools.partial(
            _relaxed_plate_rate, sites, relaxed_density(arguments)
        )
    newton = settings.preconditioner == "newton"
    plates.check_blocks(
        sites,
        settings.blocks,
        conditionals,
        replace=settings.replace,
        newton=newton,
        variance=settings.report_variance,
    )
    blocks = [
        plates.plate_block(
            model, sites, names, batches, newton=newton, scale_likelihood=settings.scale_likelihood
        )
        for names, batches in settings.blocks
    ]

    def log_joint(position, data, inverse_temperature):
        return plates.log_density(model, sites, position, {}, *data, inverse_temperature)

    def start(key, data):
        return plates.unconstrain(sites, _start(model, key, *data, init_to_uniform))

    # The relaxed model's Newton steps are stable from anywhere; another model's need not be.
    approach = 1000 if newton else 0
    algorithm, window = _algorithm(
        settings, log_joint, blocks, sites.boxes, conditionals, start, approach
    )
    return BoundAlgorithm(
        algorithm,
        (args, kwargs),
        functools.partial(plates.constrain, sites),
        functools.partial(plates.unconstrain, sites),
        window,
    )


def _from_conditional(sites, name, draw, key, position, data, inverse_temperature):
    """Call a user's conditional with constrained values, and bring its draw back."""
    if not (isinstance(inverse_temperature, float) and inverse_temperature == 1.0):
        raise InputError(f"the conditional of {name!r} knows no tempering; run it at temperature 1")
    args, kwargs = data
    value = draw(key, plates.constrain(sites, position), *args, **kwargs)
    return plates.unconstrain(sites, {name: value})[name]


def _relaxed_precision(sites, density, arguments, key, position, data, inverse_temperature):
    values = plates.constrain(sites, position)
    matrix = matrix_data(arguments["data"], arguments["observed"])
    value = relaxed_kernel.draw_precision(density, key, values, matrix, inverse_temperature)
    return plates.unconstrain(sites, {"precision": value})["precision"]


def _start(model, key, args, kwargs, strategy=init_to_sample):
    """Latent values by one of NumPyro's initialisation strategies."""
    start = handlers.substitute(handlers.seed(model, key), substitute_fn=strategy)
    trace = handlers.trace(start).get_trace(*args, **kwargs)
    return {
        n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]
    }


def _algorithm(settings, log_joint, blocks, boxes, conditionals, initial, default_approach=0):
    """Window, bounds and step sizes, and the algorithm with them."""
    moving = {s for block in blocks for s in block.sites}
    bounds = {}
    for site in sorted(moving & set(boxes)):
        low, high = boxes[site]
        margin = settings.delta * (high - low if high < math.inf else 1.0)
        bounds[site] = (low + margin, high - margin)
    fractions = [block.fraction for block in blocks]
    if settings.window == "matched":
        window = matched_window(fractions, replace=settings.replace)
    elif settings.window == "pass":
        window = math.ceil(max(1.0 / f for f in fractions) - 1e-9)
    else:
        window = settings.window
    num_approach = default_approach if settings.num_approach is None else settings.num_approach
    algorithm = iasg(
        log_joint,
        blocks,
        initial=initial,
        step_size=_step_sizes(settings, blocks, bounds, window),
        window=window,
        bounds=bounds,
        boundary=settings.boundary,
        replace=settings.replace,
        conditionals=conditionals,
        approach=adam_approach(blocks, bounds, num_approach) if num_approach else None,
        report_variance=settings.report_variance,
    )
    return algorithm, window


def _step_sizes(settings, blocks, bounds, window):
    given = settings.step_size
    sites = [s for block in blocks for s in block.sites]
    if isinstance(given, Mapping):
        missing = sorted(set(sites) ^ set(given))
        if missing:
            raise InputError(f"step_size must name the moving sites {sites}; differs in {missing}")
        factors = dict(given)
    elif given is not None:
        factors = dict.fromkeys(sites, given)
    elif settings.preconditioner == "calibrated":
        factors = dict.fromkeys(sites, 1.0)
    else:
        factors = {
            s: matched_step_size(window, block.fraction, replace=settings.replace)
            for block in blocks
            for s in block.sites
        }
    for site, factor in factors.items():
        if not factor > 0:
            raise InputError(f"step_size of {site!r} is {factor}; give a positive number")
    if settings.preconditioner != "calibrated":
        return factors
    for site in sites:
        if site not in bounds:
            raise InputError(
                f"preconditioner 'calibrated' draws points from boxes, and site {site!r} has none; "
                "use 'newton', or None with a step_size"
            )
    calibrated = calibrated_step_size(
        blocks,
        bounds,
        num_samples=settings.num_calibration,
        replace=settings.replace,
        likelihood_scaled=settings.scale_likelihood,
    )
    return lambda key, position, data: {
        s: factors[s] * h for s, h in calibrated(key, position, data).items()
    }
