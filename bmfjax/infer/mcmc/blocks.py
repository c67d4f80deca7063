"""From IASG's options and blocks of sites to the algorithm."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence

import jax

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import BoundAlgorithm
from bmfjax.kernels.sgmcmc.calibration import FULL_COORDINATES, MAX_CASES, calibrating
from bmfjax.kernels.sgmcmc.iasg import adam_approach, iasg
from bmfjax.kernels.sgmcmc.step_size import (
    ENOUGH,
    ENOUGH_CASES,
    calibrated_step_size,
    matched_step_size,
    matched_windows,
)
from bmfjax.specs.relaxed import IterateAveraging

#: Coordinates of all blocks together up to which calibration measures full covariances.
MAX_CALIBRATED = 1000


def takes_newton_steps(settings: IterateAveraging) -> bool:
    """Tell whether the steps are those that calibration can choose."""
    newton = settings.preconditioner == "newton"
    return newton and settings.step_size is None and settings.optimizer is None


def bound_algorithm(
    settings: IterateAveraging,
    log_joint,
    blocks,
    boxes,
    conditionals,
    initial,
    data,
    *,
    planned: Sequence[bool],
    instead: str,
    default_approach=0,
    **transforms,
) -> BoundAlgorithm:
    """Choose windows, bounds and step sizes, and build the algorithm with them.

    `planned` says of every block whether its batch was chosen here and not by the user, and
    `instead` names the sampler to use where a window is too short.
    """
    moving = {s for block in blocks for s in block.sites}
    bounds = {}
    for site in sorted(moving & set(boxes)):
        low, high = boxes[site]
        margin = settings.delta * (high - low if high < math.inf else 1.0)
        bounds[site] = (low + margin, high - margin)
    windows = _windows(settings, blocks, planned)
    steps = _step_sizes(settings, blocks, bounds, windows)
    calibrates, doubt = None, ""
    if settings.calibration is not None:
        doubt = against_calibration(blocks, bounds, conditionals, initial, data)
        if doubt and settings.calibration != "auto":
            raise InputError(f"{doubt}; leave calibration out, or use {instead}")
    kind = settings.calibration
    if kind == "auto":
        kind = "top-up" if takes_newton_steps(settings) and not doubt else None
    if kind is not None:
        # One window for all: their averages are corrected together.
        windows = dict.fromkeys(windows, max(windows.values()))
        default_approach = default_approach or 1000
        calibrates = calibrating(
            log_joint,
            blocks,
            window=max(windows.values()),
            replace=settings.replace,
            kind=kind,
            step_size=None if settings.step_size is None else steps,
            newton=settings.preconditioner == "newton",
        )
    num_approach = default_approach if settings.num_approach is None else settings.num_approach
    algorithm = iasg(
        log_joint,
        blocks,
        initial=initial,
        step_size=steps,
        window=windows,
        bounds=bounds,
        # Nothing has bounds in the logit.
        boundary="clamp" if settings.boundary == "logit" else settings.boundary,
        replace=settings.replace,
        conditionals=conditionals,
        approach=adam_approach(blocks, bounds, num_approach) if num_approach else None,
        calibrating=calibrates,
        optimizer=settings.optimizer,
        report_variance=settings.report_variance,
    )
    # A correction makes up for a short window.
    is_short = settings.window == "matched" and kind is None
    caution = _caution(blocks, windows, instead) if is_short else ""
    if doubt and takes_newton_steps(settings) and not caution:
        caution = (
            f"draws of IASG are not calibrated, and their standard deviations may be far from the "
            f"posterior's: {doubt}; use {instead}, or give calibration=None if this is as it "
            "should be"
        )
    return BoundAlgorithm(
        algorithm,
        data,
        window=max(windows.values()),
        windows=windows,
        caution=caution,
        **transforms,
    )


def against_calibration(blocks, bounds, conditionals, initial, data) -> str:
    """Say why the theory of calibration does not hold; empty where it does."""
    if bounds:
        return (
            f"calibration is for sites without bounds, and {min(bounds)!r} is on a box, where "
            "averages do not follow the posterior"
        )
    if conditionals:
        return (
            f"calibration covers sites that move by gradients, and {sorted(conditionals)} are "
            "drawn exactly"
        )
    for block in blocks:
        if len(block.plates) != 1:
            return (
                f"calibration needs exactly one plate a block, and the block of "
                f"{block.sites[0]!r} has {len(block.plates)}"
            )
    start = jax.eval_shape(lambda: initial(jax.random.key(0), data))
    sizes = [sum(start[s].size for s in block.sites) for block in blocks]
    if sum(sizes) > MAX_CALIBRATED:
        return (
            f"the blocks have {sum(sizes)} coordinates together, too many to measure the "
            f"covariance of their gradients (at most {MAX_CALIBRATED})"
        )
    for block, size in zip(blocks, sizes, strict=True):
        ((cases, _),) = block.plates.values()
        is_matrix = len(block.sites) == 1 and start[block.sites[0]].ndim == 2
        if size > FULL_COORDINATES and cases > MAX_CASES and not is_matrix:
            return (
                f"the block of {block.sites[0]!r} has {size} coordinates, too many to measure the "
                f"covariance of their gradients from {MAX_CASES} cases (at most "
                f"{FULL_COORDINATES}, unless it is one matrix)"
            )
    return ""


def _windows(settings, blocks, planned) -> dict[str, int]:
    """Return how many iterates of every site a draw averages."""
    fractions = [block.fraction for block in blocks]
    if settings.window == "matched" and settings.optimizer is not None:
        windows = [max(ENOUGH, math.ceil(max(1.0 / f for f in fractions) - 1e-9))] * len(blocks)
    elif settings.window == "matched":
        windows = matched_windows(fractions, planned, replace=settings.replace)
    elif settings.window == "pass":
        windows = [math.ceil(max(1.0 / f for f in fractions) - 1e-9)] * len(blocks)
    else:
        windows = [settings.window] * len(blocks)
    return {s: t for block, t in zip(blocks, windows, strict=True) for s in block.sites}


def _caution(blocks, windows, instead) -> str:
    """Say of which plates too few iterates are averaged; empty where there are enough of all."""
    short = []
    for block in blocks:
        window = windows[block.sites[0]]
        if window < ENOUGH:
            cases = " and ".join(
                f"{batch} of the {size} cases of plate {plate!r}"
                for plate, (size, batch) in block.plates.items()
            )
            iterates = "1 iterate" if window == 1 else f"{window} iterates"
            short.append(f"{iterates} of {', '.join(block.sites)}, from {cases or 'all cases'}")
    if not short:
        return ""
    return (
        f"a draw of IASG averages only {'; and '.join(short)}: fewer than {ENOUGH}, too few for "
        f"its theory; use {instead} instead, or give smaller batches where the plate has "
        f"{ENOUGH_CASES} cases or more"
    )


def _step_sizes(settings, blocks, bounds, windows):
    if settings.optimizer is not None:
        return {}
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
            s: matched_step_size(windows[s], block.fraction, replace=settings.replace)
            for block in blocks
            for s in block.sites
        }
    for site, factor in factors.items():
        if isinstance(factor, str | bool) or not factor > 0:
            raise InputError(f"step_size of {site!r} is {factor!r}; give a positive number")
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


def check_batch(sizes: Mapping[str, int], plate: str, batch: int, replace: bool) -> None:
    """Refuse a batch of a plate that does not exist, is empty, or leaves no noise."""
    if plate not in sizes:
        names = ", ".join(sizes) or "none"
        raise InputError(f"plate {plate!r} is not in the model; its plates: {names}")
    number = isinstance(batch, numbers.Integral) and not isinstance(batch, bool)
    if not number or batch < 1 or (not replace and batch >= sizes[plate]):
        limit = "" if replace else f" and, without replacement, fewer than {sizes[plate]}"
        raise InputError(f"batch of plate {plate!r} is {batch!r}; give at least 1{limit}")
