r"""Langevin sampling of the relaxed model from minibatches, with four rules at the bounds.

One draw takes a number of inner steps. Each moves the usage on a minibatch of columns,
then the basis on a minibatch of rows (`bmfjax.kernels.sgmcmc.gradients`), with the
block's own curvature, :math:`A = \tau G + \kappa I` for the Gram matrix G of the other
factor matrix, as preconditioner (`bmfjax.kernels.sgmcmc.boundary`). That curvature is shared by
all lines and does not depend on what moves, so that there is no correction for a
preconditioner that varies. Then the noise precision is drawn from its exact Gamma
conditional, and learned rates from theirs.

The sum of squared residuals that this takes, and that is reported, is of all data. One
exception: with control variates, complete data and minibatches of rows it follows from a fixed
anchor and a minibatch of rows of its own, so that no draw costs rows times columns. What is
estimated is of second order in the steps away from the anchor. Where its noise would widen the
precision by more than half a per cent, all data are looked at.

What it leaves invariant
    With ``boundary="truncate"`` and all cases in every batch: the posterior, exactly,
    at any step size. With minibatches and ``noise="top-up"`` the same to the extent that
    the gradient's noise is normal with the variance estimated, independent between
    coordinates, and small enough to be made up for (`noise_share` below 1), and that an
    estimated residual is close to its own. With the other rules at the bounds: the
    posterior as the step goes to zero.

Control variates
    Their anchor follows the chain for `num_anchor` draws and stays from there on
    (`bmfjax.kernels.sgmcmc.anchors`): make these draws part of the warm-up. What comes after
    them is a Markov chain.

On a mesh
    A device moves its own rows of the usage and its own columns of the basis, with the rule
    "truncate"; all devices draw the same cases.

Papers: Welling and Teh 2011 (minibatches); Baker, Fearnhead, Fox, Nemeth 2019 (control
variates); Ahn, Korattikara, Welling 2012 (topping up the noise).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.checks import one_of, whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.control import run_if
from bmfjax.kernels.numerics.minibatch import minibatches
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.data import FACTORS, OTHER, residual_sum_of_squares
from bmfjax.kernels.relaxed.density import RelaxedDensity
from bmfjax.kernels.sgmcmc.anchors import AnchorTrack, follow, start_track
from bmfjax.kernels.sgmcmc.boundary import clamp_step, logit_step, reflect_step, truncate_step
from bmfjax.kernels.sgmcmc.gradients import (
    anchored_residual,
    check_density,
    end_draw,
    estimate_gradient,
    missing_noise,
    own_lines,
    scale_curvature,
    start_position,
)

#: The step, and the default step size and number of inner steps. At 512 x 512, rank 30 and
#: batches of 64 more inner steps of "truncate" cost as much as the draws they make up for.
BOUNDARIES = {
    "truncate": (truncate_step, 0.95, 1),
    "reflect": (reflect_step, 0.1, 10),
    "logit": (logit_step, 0.5, 10),
    "clamp": (clamp_step, 0.1, 10),
}
NOISES = ("langevin", "top-up")
#: Most variance of an estimated residual, as a share of its own. The standard deviation of the
#: precision grows by half of that.
MAX_RESIDUAL_NOISE = 0.01


class LangevinState(NamedTuple):
    """State of the chain."""

    position: dict  # `usage`, `basis` and, where they are learned, `precision` and `rate`
    track: AnchorTrack | None  # with control variates, where not all cases are in every batch


class LangevinInfo(NamedTuple):
    """Statistics of one draw, all () float; the first three as of `truncated_gibbs`.

    Where the residual is estimated, so are they.
    """

    log_joint: jax.Array
    log_likelihood: jax.Array
    residual: jax.Array
    clamped: jax.Array  # share of coordinates that the last inner step brought back into the box
    #: The gradient's noise at the last inner step, as a share of the noise that can be left out
    #: for it. Above 1 it is too noisy: take larger batches, smaller steps or control variates.
    noise_share: jax.Array


def langevin(
    density: RelaxedDensity,
    shape: tuple[int, int],
    *,
    initial: Callable,
    batch: tuple[int, int],
    boundary: str = "truncate",
    step_size: float | None = None,
    num_steps: int | None = None,
    noise: str = "top-up",
    control_variates: bool = False,
    num_anchor: int = 256,
) -> Algorithm:
    """Build the sampler of a density.

    Parameters
    ----------
    density : RelaxedDensity
    shape : (int, int)
        Rows and columns of the data.
    initial : callable
        ``initial(key, data) -> position``, a random start.
    batch : (int, int)
        Rows drawn for the basis, columns drawn for the usage, without replacement, at
        least 2. As many as there are: the exact gradient.
    boundary : {"truncate", "reflect", "logit", "clamp"}
        See `bmfjax.kernels.sgmcmc.boundary`. "truncate" needs priors that are quadratic, "logit"
        finite boxes, the other two priors that are finite at the bounds.
    step_size : float, optional
        For "truncate" below 1: what is missing to 1 is room for the gradient's noise. For
        the others the step h in units of the block's own covariance, below 4. Default:
        0.95, "logit" 0.5, the others 0.1.
    num_steps : int, optional
        Inner steps of one draw. Default: 1 for "truncate", 10 for the others.
    noise : {"top-up", "langevin"}
        Inject what the gradient's noise leaves wanting, or all of it.
    control_variates : bool
        Estimate gradients relative to an anchor: far less noise, at no more cost.
    num_anchor : int
        Number of draws in which the anchor is moved.

    Returns
    -------
    Algorithm
        For data that are a `MatrixData`.

    Raises
    ------
    InputError
        For settings out of range, or priors that the boundary rule cannot take.

    Examples
    --------
    >>> from bmfjax.kernels.relaxed.data import matrix_data
    >>> from bmfjax.kernels.relaxed.density import EntryPrior
    >>> uniform = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
    >>> density = RelaxedDensity(uniform, uniform, 100.0, None, None)
    >>> data = matrix_data(jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> half = {"usage": jnp.full((3, 1), 0.5), "basis": jnp.full((3, 1), 0.5)}
    >>> algorithm = langevin(density, (3, 3), batch=(2, 2), initial=lambda key, data: half)
    >>> state = algorithm.init(random.key(0), None, data)
    >>> step = jax.jit(algorithm.step)
    >>> for key in random.split(random.key(1), 20):
    ...     state, info = step(key, state, data)
    >>> (state.position["usage"][:, 0] > 0.5).tolist()
    [True, True, False]
    """
    take_step, usual_size, usual_number = BOUNDARIES[one_of("boundary", boundary, BOUNDARIES)]
    step_size = usual_size if step_size is None else step_size
    num_steps = usual_number if num_steps is None else num_steps
    _check_settings(shape, batch, step_size, num_steps, noise, num_anchor, boundary)
    check_density(density, at_bounds=boundary in ("clamp", "reflect"))
    _check_boundary(density, boundary)
    cases_of = {"usage": (shape[1], batch[1]), "basis": (shape[0], batch[0])}
    has_anchor = control_variates and tuple(batch) != tuple(shape)

    @full_precision
    def init(key, position, data):
        position = initial(key, data) if position is None else position
        position = start_position(density, position, data)
        if data.along.axis is not None and boundary != "truncate":
            raise InputError(f"boundary={boundary!r} does not run on a mesh; give 'truncate'")
        if data.along.axis is None and data.values.shape != tuple(shape):
            raise InputError(f"the data are {data.values.shape}; the sampler is for {tuple(shape)}")
        track = start_track(_lines(position), data) if has_anchor else None
        return LangevinState(position, track)

    def curvature(factor, position, weight):
        """Return that of every line, for a preconditioner at least the prior's."""
        other, prior = position[OTHER[factor]], getattr(density, factor)
        diagonal = prior.curvature
        if boundary in ("clamp", "reflect"):
            diagonal = diagonal + scale_curvature(prior, position.get("rate"))
        return weight * (other @ other.T) + diagonal * jnp.eye(other.shape[0], dtype=other.dtype)

    def move(key, factor, cases, position, data, anchor, inverse_temperature):
        key_step, key_missing = random.split(key)
        prior, size, along = getattr(density, factor), position[factor].shape[1], data.along
        position, anchor = own_lines(factor, position, anchor, along)
        weight = inverse_temperature * density.noise_precision(position)
        gradient, variance = estimate_gradient(
            density, factor, position, data, cases, anchor, inverse_temperature
        )
        if boundary == "truncate":
            gradient = gradient + missing_noise(
                key_missing, factor, position, data, weight, cases, size
            )
        on_mesh = {} if along.axis is None else {"size": size, "along": along}
        moved = take_step(
            key_step, position[factor], gradient, variance, curvature(factor, position, weight),
            (prior.low, prior.high), step_size, noise == "top-up", **on_mesh,
        )  # fmt: skip
        return moved._replace(x=along.join(moved.x, size, 1))

    def batches(key, factor):
        size, count = cases_of[factor]
        if count == size:
            return lambda t: None
        return minibatches(key, size, count, num_steps, replace=False)

    def estimated_residual(key, track, factors, data):
        """Return the sum of squared residuals from the anchor; None where it takes all data."""
        if track is None or data.observed is not None or batch[0] == shape[0]:
            return None
        rows = minibatches(key, shape[0], batch[0], 1, replace=False)(0)
        estimate, share = anchored_residual(factors, track.anchor, data, rows)

        def of_all_data(_, factors):
            return residual_sum_of_squares(factors["usage"].T, factors["basis"].T, data)

        # Exact while the anchor moves, and where it is too far away or the rows are too short.
        exact = (track.draws <= num_anchor) | ~(share <= MAX_RESIDUAL_NOISE)
        return run_if(exact, of_all_data, estimate, (factors,))

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        key_cases, key_steps, key_end = random.split(key, 3)
        draw = {f: batches(k, f) for f, k in zip(FACTORS, random.split(key_cases), strict=True)}
        anchor = None if state.track is None else state.track.anchor
        fixed = {n: v for n, v in state.position.items() if n not in FACTORS}

        def inner(t, carry):
            factors, _, _ = carry
            held, shares = [], []
            for i, factor in enumerate(FACTORS):
                key = random.fold_in(random.fold_in(key_steps, t), i)
                moved = move(
                    key, factor, draw[factor](t), fixed | factors, data, anchor, inverse_temperature
                )
                factors = factors | {factor: moved.x}
                held.append(moved.held)
                shares.append(moved.noise_share)
            return factors, sum(held) / 2, sum(shares) / 2

        zero = jnp.zeros((), data.values.dtype)
        factors = _lines(state.position)
        factors, held, share = lax.fori_loop(0, num_steps, inner, (factors, zero, zero))
        position = state.position | {f: factors[f].T for f in FACTORS}
        rss = estimated_residual(random.fold_in(key_end, 2), state.track, factors, data)
        track = state.track and follow(state.track, factors, data, num_anchor)
        position, statistics = end_draw(density, key_end, position, data, inverse_temperature, rss)
        return LangevinState(position, track), LangevinInfo(*statistics, held, share)

    def observe(state, info):
        return {**state.position, **info._asdict()}

    return Algorithm(init, step, observe)


def _lines(position):
    """Return the factor matrices with one factor a row."""
    return {f: position[f].T for f in FACTORS}


def _check_settings(shape, batch, step_size, num_steps, noise, num_anchor, boundary):
    for name, size, count in zip(("rows", "columns"), shape, batch, strict=True):
        if count != size:
            whole(f"the batch of {name}", count, 2, size)
    most = 1.0 if boundary == "truncate" else 4.0
    if not 0.0 < step_size < most:
        raise InputError(
            f"step_size is {step_size}; with boundary={boundary!r} give a number between 0 and "
            f"{most:g}, both excluded"
        )
    whole("num_steps", num_steps)
    whole("num_anchor", num_anchor)
    one_of("noise", noise, NOISES)


def _check_boundary(density: RelaxedDensity, boundary: str) -> None:
    for name in FACTORS:
        prior = getattr(density, name)
        if boundary == "truncate" and prior.quadratic is None:
            raise InputError(
                f"the prior of {name} is not quadratic in its logarithm, so that its conditionals "
                'are not truncated normal; choose a boundary other than "truncate"'
            )
        if boundary == "logit" and prior.high == float("inf"):
            raise InputError(
                f'the prior of {name} reaches to infinity; boundary="logit" needs a finite interval'
            )
