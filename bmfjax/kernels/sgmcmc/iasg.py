r"""Iterate averaging stochastic gradient (IASG) over blocks of sites.

Constant-step stochastic gradient ascent on the log joint density, one block of
sites after the other, each from a minibatch of its own plates. One draw is the
average of a window of :math:`T` iterates (Mandt, Hoffman, Blei 2017; adapted to
matrix factorisation in Gonsior 2019, algorithms 3.1 and 3.2).

What it leaves invariant
    Nothing exactly. Inside the support and for a loss that is nearly quadratic,
    with curvature :math:`A` and covariance :math:`C` of the gradients of single
    cases, a long window average has covariance :math:`A^{-1}CA^{-1}/N` for any
    preconditioner. That is the posterior covariance :math:`A^{-1}/N` only where
    :math:`C=A`, which a well-specified likelihood (its noise scale included)
    gives for one block. Several blocks with minibatches of their own make C
    block-diagonal while A is not: directions that blocks share, such as the scale
    that one factor matrix can pass to the other, then spread too widely, though
    the product of the two is about right. For a finite window the variance is
    smaller by a factor that `bmfjax.kernels.sgmcmc.step_size` computes, with the step for
    which it is one. At an active bound the method is wrong in kind: the average
    of clamped iterates does not follow the truncated posterior. The share of
    clamped coordinates is therefore reported with every draw.

    C and A can be measured, and draws corrected by them: see `bmfjax.kernels.sgmcmc.calibration`.

Constant steps scaled by the curvature are stable near a mode. `adam_approach` brings a start there.

On a mesh
    All devices draw the same cases. A device moves its own lines of the sites of a block, and
    the devices tell each other after every step where these are (`Block.along`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.mesh import WHOLE, Along
from bmfjax.kernels.numerics.minibatch import minibatches
from bmfjax.kernels.numerics.precision import full_precision


class Block(NamedTuple):
    """Sites that move together, and how their gradient is estimated.

    Attributes
    ----------
    sites : tuple of str
        Names of the sites of this block.
    plates : dict
        ``{plate: (size, batch)}``: what is drawn for one gradient.
    gradient : callable
        ``gradient(position, indices, data, inverse_temperature) -> {site: array}``,
        the estimated gradient of the log joint density on those indices.
    gradient_and_variance : callable or None
        Same arguments; the gradient, and the variance of that estimate over the
        cases of a minibatch, from the gradients of single cases: two dicts.
    case_gradients : callable or None
        Same arguments, with the indices of one plate: ``{site: (case, ...)}``, the estimate
        from each case alone. Its mean over the cases is `gradient` there.
    sandwich : callable or None
        ``sandwich(position, data, inverse_temperature) -> {site: array}``: standard
        deviations of long averages, by noise and curvature there, over the posterior's.
    curvature : callable or None
        ``curvature(position, data, inverse_temperature)``: what `direction` needs
        to know of the density's curvature; taken once a window, on all data.
    direction : callable or None
        ``direction(gradient, free, curvature) -> {site: array}``: the gradient
        preconditioned, restricted to the coordinates that are `free` to move.
        None: step sizes act elementwise on the gradient.
    along : callable
        ``along(data)``: the devices that share the lines of the sites. What `gradient`,
        `gradient_and_variance` and `direction` return, and what `direction` is given, are
        then this device's lines alone. By default every device has all.
    """

    sites: tuple[str, ...]
    plates: dict[str, tuple[int, int]]
    gradient: Callable[..., dict]
    gradient_and_variance: Callable[..., tuple[dict, dict]] | None = None
    curvature: Callable[..., Any] | None = None
    direction: Callable[..., dict] | None = None
    case_gradients: Callable[..., dict] | None = None
    sandwich: Callable[..., dict] | None = None
    along: Callable[[Any], Along] = lambda data: WHOLE

    @property
    def fraction(self) -> float:
        """Share of the data that one minibatch holds, S/N."""
        return math.prod(batch / size for size, batch in self.plates.values())


class IASGState(NamedTuple):
    """`position`: the last iterate; `average`: the draw; `step_size`: per site.

    `calibration`: what was measured at the start (a `Calibration` of
    `bmfjax.kernels.sgmcmc.calibration`), or None. `optimizer`: its state, one a block, or None.
    """

    position: dict
    average: dict
    step_size: dict
    calibration: Any = None
    optimizer: Any = None


class IASGInfo(NamedTuple):
    """Statistics of one window.

    Attributes
    ----------
    log_joint : () float
        Log joint density at the draw (on all data, up to a constant).
    gradient : dict
        Mean over the window of the gradient estimates, per site.
    gradient_variance : dict
        Mean over the window of the case variance, per site; empty unless asked for.
    clamped : () float
        Share of the bounded coordinates that were held at a bound (or
        reflected), mean over the window.
    sandwich : dict
        Standard deviation of the averages before correction, by theory, over that of the
        posterior, per site. Measured at the start with calibration; with `report_variance`
        at the draw, where a block knows it; else empty.
    """

    log_joint: jax.Array
    gradient: dict
    gradient_variance: dict
    clamped: jax.Array
    sandwich: dict


class Calibrating(NamedTuple):
    """How `iasg` measures at the start, and what it makes of it; see `...sgmcmc.calibration`."""

    #: ``measure(key, position, data) -> (position, step sizes, Calibration)``
    measure: Callable[[jax.Array, dict, Any], tuple[dict, dict, Any]]
    #: ``curvatures(Calibration, position)``, of every block.
    curvatures: Callable[[Any, dict], Sequence[jax.Array]]
    #: ``correct(Calibration, average) -> (draw, Calibration)``, or None.
    correct: Callable[[Any, dict], tuple[dict, Any]] | None
    #: ``noise(Calibration, position, block, key) -> {site: array}``, added to each step, or None.
    noise: Callable[..., dict] | None = None


def iasg(
    log_joint: Callable[..., jax.Array],
    blocks: Sequence[Block],
    *,
    initial: Callable[[jax.Array, Any], dict],
    step_size: Mapping[str, float] | Callable[[jax.Array, dict, Any], dict],
    window: int | Mapping[str, int],
    bounds: Mapping[str, tuple[float, float]],
    boundary: str = "clamp",
    replace: bool = True,
    conditionals: Mapping[str, Callable[..., jax.Array]] | None = None,
    approach: Callable[[jax.Array, dict, Any], dict] | None = None,
    calibrating: Calibrating | None = None,
    optimizer: optax.GradientTransformation | None = None,
    report_variance: bool = False,
) -> Algorithm:
    """Build the algorithm from a density, its block gradients and settings.

    Parameters
    ----------
    log_joint : callable
        ``log_joint(position, data, inverse_temperature)``, a scalar.
    blocks : sequence of Block
        Updated in this order within every step (Gonsior 2019, algorithm 3.2).
    initial : callable
        ``initial(key, data) -> position``, a random start.
    step_size : mapping or callable
        A number or array per site, or ``step_size(key, position, data)`` that
        measures it once at the start (see `bmfjax.kernels.sgmcmc.step_size`).
    window : int or mapping
        Number T of iterates that one draw averages; ``{site: T}`` where sites differ: a
        draw then takes the largest number of steps, and averages the last T of them.
    bounds : mapping
        ``{site: (low, high)}`` for the sites on a box.
    boundary : {"clamp", "reflect"}
        What happens to an iterate that leaves its box.
    replace : bool
        Draw the cases of a minibatch with replacement.
    conditionals : mapping, optional
        ``{site: draw(key, position, data, inverse_temperature)}``: sites drawn
        from their exact conditional given the average, once per window.
    approach : callable, optional
        ``approach(key, position, data) -> position``, applied to the start (see
        `bmfjax.kernels.sgmcmc.iasg.adam_approach`).
    calibrating : Calibrating, optional
        Measures curvature, noise and steps at the start instead of `step_size`, and perhaps
        corrects draws.
    optimizer : optax.GradientTransformation, optional
        Makes the steps of each block from its gradient, instead of `step_size` and the
        block's `direction`.
    report_variance : bool
        Also report the case variance of the gradient (needs `gradient_and_variance`).

    Returns
    -------
    Algorithm

    Examples
    --------
    The mean of a Gaussian sample, posterior standard deviation 0.1:

    >>> y = 1.0 + random.normal(random.key(1), (100,))
    >>> block = Block(
    ...     ("mu",),
    ...     {"cases": (100, 10)},
    ...     lambda p, i, y, b: {"mu": b * 10.0 * jnp.sum(y[i["cases"]] - p["mu"])},
    ... )
    >>> algorithm = iasg(
    ...     lambda p, y, b: -0.5 * b * jnp.sum((y - p["mu"]) ** 2),
    ...     [block],
    ...     initial=lambda key, y: {"mu": jnp.zeros(())},
    ...     step_size={"mu": 0.5 / 100},
    ...     window=10,
    ...     bounds={},
    ... )
    >>> state, step = algorithm.init(random.key(0), None, y), jax.jit(algorithm.step)
    >>> for key in random.split(random.key(2), 20):
    ...     state, info = step(key, state, y)
    >>> bool(abs(state.average["mu"] - y.mean()) < 0.5)
    True
    """
    put_back = {"clamp": _clamp, "reflect": _reflect}[boundary]
    draws_exactly = dict(conditionals or {})
    moving = [s for block in blocks for s in block.sites]
    windows = dict(window) if isinstance(window, Mapping) else dict.fromkeys(moving, window)
    num_steps = max(windows.values())

    @full_precision
    def init(key, position, data):
        key_start, key_approach, key_scale = random.split(key, 3)
        if optimizer is not None and any(b.along(data).axis is not None for b in blocks):
            raise InputError("an optimizer does not run on a mesh; leave optimizer or mesh out")
        if position is None:
            # In types of their own: a weak one would change at the first step.
            position = {
                s: jnp.asarray(v, jnp.result_type(v)) for s, v in initial(key_start, data).items()
            }
        else:
            position = given_start(position, jax.eval_shape(lambda k: initial(k, data), key_start))
        position = {s: jnp.clip(v, *bounds[s]) if s in bounds else v for s, v in position.items()}
        if approach is not None:
            position = approach(key_approach, position, data)
        measured, rule = None, None
        if calibrating is not None:
            position, steps, measured = calibrating.measure(key_scale, position, data)
        elif optimizer is not None:
            steps = {}
            rule = tuple(optimizer.init({s: position[s] for s in b.sites}) for b in blocks)
        else:
            steps = step_size(key_scale, position, data) if callable(step_size) else step_size
        # Arrays: the state must keep its dtypes from step to step.
        steps = {s: jnp.asarray(h, position[s].dtype) for s, h in steps.items()}
        return IASGState(position, position, steps, measured, rule)

    def counted(site, t, value):
        """Return an iterate, or zero before the window of a site that has a shorter one."""
        if windows[site] == num_steps:
            return value
        return jnp.where(t >= num_steps - windows[site], value, 0.0)

    def proposed(block, here, steps, gradient, curvature, rule):
        """Return where one step takes a block, bounds aside, and the optimizer's next state."""
        if optimizer is not None:
            descent = {s: -gradient[s] for s in block.sites}
            updates, rule = optimizer.update(descent, rule, here)
            return optax.apply_updates(here, updates), rule
        direction = gradient
        if block.direction is not None:
            free = {
                s: _free(here[s], gradient[s], *bounds[s])
                if s in bounds and boundary == "clamp"
                else jnp.ones(gradient[s].shape, bool)
                for s in block.sites
            }
            direction = block.direction(gradient, free, curvature)
        return {s: here[s] + steps[s] * direction[s] for s in block.sites}, rule

    def move(block, along, position, steps, *how):
        """Move one block: return its own lines, and how many coordinates a bound held there."""
        here = own_lines_of_block(block, along, position)
        steps = {s: own_line(along, steps[s], position[s]) for s in block.sites if s in steps}
        moved, rule = proposed(block, here, steps, *how)
        held = jnp.zeros(())
        for s in block.sites:
            if s in bounds:
                moved[s], out = put_back(moved[s], *bounds[s])
                is_line = own_line(along, jnp.ones_like(position[s], bool), position[s])
                held = held + jnp.sum(out & is_line)  # not of what fills up
        return moved, rule, held

    def curvatures_of(state, data, inverse_temperature):
        if calibrating is not None:  # constant, as the theory of the correction has it
            return calibrating.curvatures(state.calibration, state.position)
        # Own sites at the last draw: where the curvature follows the last iterate its noise and the
        # step's are correlated, which shifts the mean (Ma, Chen, Fox 2015).
        places = [state.position | {s: state.average[s] for s in b.sites} for b in blocks]
        return [
            b.curvature and b.curvature(at, data, inverse_temperature)
            for b, at in zip(blocks, places, strict=True)
        ]

    def sandwich_of(measured, average, data, inverse_temperature):
        if measured is not None:
            return measured.ratio
        found = {}
        for block in blocks if report_variance else ():
            if block.sandwich is not None:
                found |= block.sandwich(average, data, inverse_temperature)
        return found

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        key_cases, key_exact = random.split(key)
        key_noise = random.fold_in(key_exact, len(draws_exactly))
        steps = state.step_size
        draw = _window_minibatches(key_cases, blocks, num_steps, replace)
        curvatures = curvatures_of(state, data, inverse_temperature)
        num_boxed = sum(state.position[s].size for s in moving if s in bounds)
        lies = [block.along(data) for block in blocks]

        def body(t, carry):
            position, total, gradients, variances, held, rules = carry
            moved_rules = []
            for b, block in enumerate(blocks):
                indices = {plate: draw[b, plate](t) for plate in block.plates}
                here = (position, indices, data, inverse_temperature)
                if report_variance:
                    gradient, variance = block.gradient_and_variance(*here)
                    variances = variances | {s: variances[s] + variance[s] for s in block.sites}
                else:
                    gradient = block.gradient(*here)
                how = (steps, gradient, curvatures[b], rules and rules[b])
                line = lies[b]
                if calibrating is not None and calibrating.noise is not None:
                    at = random.fold_in(random.fold_in(key_noise, t), b)
                    noise = calibrating.noise(state.calibration, position, b, at)
                    position = position | {s: position[s] + noise[s] for s in block.sites}
                moved, rule, out = move(block, line, position, *how)
                moved_rules.append(rule)
                position = position | joined(block, line, moved, position)
                total = total | {s: total[s] + counted(s, t, moved[s]) for s in block.sites}
                gradients = gradients | {s: gradients[s] + gradient[s] for s in block.sites}
                held = [*held[:b], held[b] + out, *held[b + 1 :]]
            return position, total, gradients, variances, held, rules and tuple(moved_rules)

        zeros = {}
        for block, line in zip(blocks, lies, strict=True):
            zeros |= jax.tree.map(jnp.zeros_like, own_lines_of_block(block, line, state.position))
        variances = zeros if report_variance else {}
        none = [jnp.zeros(())] * len(blocks)
        carry = (state.position, zeros, zeros, variances, none, state.optimizer)
        position, *sums, held, rules = lax.fori_loop(0, num_steps, body, carry)

        for block, line in zip(blocks, lies, strict=True):
            sums = [own | joined(block, line, own, position) if own else own for own in sums]
        total, gradients, variances = sums
        held = sum(line.total(own) for line, own in zip(lies, held, strict=True))
        average = position | {s: total[s] / windows[s] for s in moving}
        measured = state.calibration
        if calibrating is not None and calibrating.correct is not None:
            average, measured = calibrating.correct(measured, average)
        for i, (s, conditional) in enumerate(sorted(draws_exactly.items())):
            value = conditional(random.fold_in(key_exact, i), average, data, inverse_temperature)
            average, position = average | {s: value}, position | {s: value}
        info = IASGInfo(
            log_joint=log_joint(average, data, inverse_temperature),
            gradient={s: g / num_steps for s, g in gradients.items()},
            gradient_variance={s: v / num_steps for s, v in variances.items()},
            clamped=held / (num_steps * max(num_boxed, 1)),
            sandwich=sandwich_of(measured, average, data, inverse_temperature),
        )
        return IASGState(position, average, steps, measured, rules), info

    def observe(state, info):
        named = {f"gradient_{s}": g for s, g in info.gradient.items()}
        named |= {f"gradient_variance_{s}": v for s, v in info.gradient_variance.items()}
        return state.average | named | {"log_joint": info.log_joint, "clamped": info.clamped}

    return Algorithm(init, step, observe)


def own_line(along: Along, value, whole):
    """Return this device's lines of a value of the shape of `whole`, or of one number for all."""
    return along.own(value) if jnp.ndim(value) and jnp.shape(value) == jnp.shape(whole) else value


def own_lines_of_block(block: Block, along: Along, values: dict) -> dict:
    """Return this device's lines of the sites of a block."""
    return {s: own_line(along, values[s], values[s]) for s in block.sites}


def joined(block: Block, along: Along, own: dict, whole: dict) -> dict:
    """Return all lines of the sites of a block, from those of every device."""
    if along.axis is None:
        return {s: own[s] for s in block.sites}
    return {s: along.join(own[s], whole[s].shape[0]) for s in block.sites}


def given_start(position, expected):
    """Return a given start in the sites' dtypes; refuse other names or shapes than theirs."""
    for s in expected:
        if s not in position:
            raise InputError(f"the start lacks {s!r}; give a value for {', '.join(expected)}")
    for s, value in position.items():
        if s not in expected:
            raise InputError(f"the start names {s!r}; the sites are {', '.join(expected)}")
        if jnp.shape(value) != expected[s].shape:
            raise InputError(
                f"the start of {s!r} has shape {jnp.shape(value)}; it must be {expected[s].shape}"
            )
    return {s: jnp.asarray(v, expected[s].dtype) for s, v in position.items()}


def _window_minibatches(key, blocks, window, replace):
    """Return ``{(block, plate): at}`` with ``at(t)`` the indices of step t of the window."""
    draw = {}
    for b, block in enumerate(blocks):
        for plate, (size, batch) in sorted(block.plates.items()):
            key, key_plate = random.split(key)
            draw[b, plate] = minibatches(key_plate, size, batch, window, replace=replace)
    return draw


def draw_minibatch(key, block: Block, *, replace: bool = True) -> dict:
    """Draw one minibatch of a block's plates: ``{plate: indices}``."""
    return {
        plate: minibatches(random.fold_in(key, p), size, batch, 1, replace=replace)(0)
        for p, (plate, (size, batch)) in enumerate(sorted(block.plates.items()))
    }


def _clamp(x, low, high):
    return jnp.clip(x, low, high), (x <= low) | (x >= high)


def _reflect(x, low, high):
    width = high - low
    y = jnp.mod((x - low) / width, 2.0)
    return low + width * (1.0 - jnp.abs(1.0 - y)), (x < low) | (x > high)


def _free(x, gradient, low, high):
    """Return False where a coordinate sits at its bound and its gradient points outwards."""
    return ~(((x <= low) & (gradient < 0)) | ((x >= high) & (gradient > 0)))


def adam_approach(
    blocks: Sequence[Block],
    bounds: Mapping[str, tuple[float, float]],
    num_steps: int,
    learning_rate: float = 0.1,
) -> Callable[[jax.Array, dict, Any], dict]:
    """Return an ``approach`` of `iasg`: Adam on minibatch gradients, its step decaying to zero.

    A Newton step far from the mode of, say, a log scale can leave for infinity;
    Adam's steps are bounded by the learning rate.
    """
    # A short memory of squares: with 0.999 the gradients of a far start, a million times those
    # near the mode, would hold the steps near zero for the whole approach. With b1 = b2 no step
    # is longer than the learning rate.
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps)
    optimizer = optax.adam(schedule, b1=0.9, b2=0.9)
    moving = [s for block in blocks for s in block.sites]

    def approach(key, position, data):
        def body(t, carry):
            moved, moments = carry
            gradient = {}
            for b, block in enumerate(blocks):
                key_block = random.fold_in(random.fold_in(key, t), b)
                indices = draw_minibatch(key_block, block)
                here = block.gradient(position | moved, indices, data, 1.0)
                gradient |= joined(block, block.along(data), here, moved)
            descent = jax.tree.map(jnp.negative, gradient)
            updates, moments = optimizer.update(descent, moments, moved)
            moved = optax.apply_updates(moved, updates)
            return {
                s: jnp.clip(v, *bounds[s]) if s in bounds else v for s, v in moved.items()
            }, moments

        start = {s: position[s] for s in moving}
        moved, _ = lax.fori_loop(0, num_steps, body, (start, optimizer.init(start)))
        return position | moved

    return approach
