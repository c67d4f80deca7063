"""What the gradient samplers of the relaxed density share: checks, scales, the end of a draw."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.data.errors import InputError
from bmfjax.kernels.matrix_data import MatrixData, residual_sum_of_squares
from bmfjax.kernels.priors import EntryPrior, is_improper
from bmfjax.kernels.relaxed import (
    RelaxedDensity,
    draw_factor_rate,
    draw_precision,
    log_likelihood,
    log_prior,
)

FACTORS = ("usage", "basis")
OTHER = {"usage": "basis", "basis": "usage"}


class DrawStatistics(NamedTuple):
    """`log_joint` (likelihood tempered), `log_likelihood` (not), `residual`; all () float."""

    log_joint: jax.Array
    log_likelihood: jax.Array
    residual: jax.Array


def end_draw(density: RelaxedDensity, key, position, data, inverse_temperature=1.0):
    """Draw what is learned besides the factors, from its conditionals.

    Parameters
    ----------
    density : RelaxedDensity
    key : jax.Array
    position : dict
        With the new factors, `usage` (rows, rank) and `basis` (columns, rank).
    data : MatrixData
    inverse_temperature : float

    Returns
    -------
    position : dict
    statistics : DrawStatistics

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> flat = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
    >>> density = RelaxedDensity(flat, flat, 2.0, None, None)
    >>> position = {"usage": jnp.ones((2, 1)), "basis": jnp.ones((3, 1))}
    >>> position, statistics = end_draw(
    ...     density, random.key(0), position, matrix_data(jnp.zeros((2, 3)))
    ... )
    >>> float(statistics.residual)
    6.0
    """
    key_precision, key_rate = random.split(key)
    rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    if density.precision is None:
        drawn = draw_precision(density, key_precision, position, data, inverse_temperature, rss)
        position = position | {"precision": drawn}
    if density.rate_gamma is not None:
        position = position | {"rate": draw_factor_rate(density, key_rate, position)}
    likelihood = log_likelihood(density, position, data, rss)
    joint = inverse_temperature * likelihood + log_prior(density, position)
    return position, DrawStatistics(joint, likelihood, rss)


def start_position(density: RelaxedDensity, position, data) -> dict:
    """The start as arrays in the data's precision, its factors clipped to their boxes.

    Raises
    ------
    InputError
        Where the data are sparse, or their shape is not the start's.

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> flat = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
    >>> density = RelaxedDensity(flat, flat, 2.0, None, None)
    >>> start = {"usage": [[2.0]], "basis": [[0.5]]}
    >>> start_position(density, start, matrix_data([[1.0]]))["usage"].tolist()
    [[1.0]]
    """
    if not isinstance(data, MatrixData):
        raise InputError(
            f"the data are {type(data).__name__}; gradient samplers take dense data, as "
            "matrix_data makes them"
        )
    position = {n: jnp.asarray(v, data.values.dtype) for n, v in position.items()}
    found = tuple(position[f].shape[0] for f in FACTORS)
    if found != data.values.shape:
        raise InputError(
            f"the start has {found[0]} rows and {found[1]} columns; the data have "
            f"{data.values.shape[0]} and {data.values.shape[1]}"
        )
    for factor in FACTORS:
        prior = getattr(density, factor)
        position[factor] = jnp.clip(position[factor], prior.low, prior.high)
    return position


def scale_curvature(prior: EntryPrior, rate=None):
    """Curvature, for preconditioners only, of a factor that nothing uses.

    Its coordinates spread over the whole prior: uniform over the box, or with the
    prior's own scale.

    Parameters
    ----------
    prior : EntryPrior
    rate : (rank,) float, optional

    Returns
    -------
    float or (rank,) float
        Inverse variance: 12 / width^2 on a finite box, else the squared rate.

    Examples
    --------
    >>> scale_curvature(EntryPrior(lambda x, rate: -3.0 * x, 0.0, jnp.inf, 0.0, (3.0, 0.0)))
    9.0
    """
    width = prior.high - prior.low
    if width < float("inf"):
        return 12.0 / width**2
    if prior.learned_rate:
        return rate**2
    # A prior that is neither exponential nor half-normal: its scale is not known.
    slope, curvature = (0.0, 1e-6) if prior.quadratic is None else prior.quadratic
    return slope**2 + curvature


def prior_gradient(prior: EntryPrior, x, rate=None) -> jax.Array:
    """Gradient of the log prior density of a factor matrix.

    Parameters
    ----------
    prior : EntryPrior
    x : (rank, m) float
    rate : (rank,) float, optional
        Where the prior learns its rates.

    Returns
    -------
    (rank, m) float

    Examples
    --------
    >>> slope = EntryPrior(lambda x, rate: -2.0 * x, 0.0, 1.0, 0.0, (2.0, 0.0))
    >>> prior_gradient(slope, jnp.zeros((1, 2))).tolist()
    [[-2.0, -2.0]]
    """
    if prior.quadratic is None:
        return jax.grad(lambda x: jnp.sum(prior.log_prob(x.T, rate)))(x)
    slope, curvature = prior.quadratic
    if prior.learned_rate:
        slope = rate[:, None]
    return -slope - curvature * x


def check_density(density: RelaxedDensity, *, at_bounds: bool) -> None:
    """Refuse a density that a gradient sampler cannot draw from.

    Parameters
    ----------
    density : RelaxedDensity
    at_bounds : bool
        The sampler takes gradients at the bounds, where they must be finite.

    Raises
    ------
    InputError

    Examples
    --------
    >>> beta = EntryPrior(lambda x, rate: -0.5 * jnp.log(x), 0.0, 1.0, 0.0)
    >>> check_density(RelaxedDensity(beta, beta, 1.0, None, None), at_bounds=True)
    Traceback (most recent call last):
    bmfjax.data.errors.InputError: the prior of usage is not finite at its bounds; ...
    """
    if density.precision is None and density.precision_gamma is None:
        raise InputError(
            "the noise precision has a prior that is not Gamma; it is drawn from its Gamma "
            "conditional: give a Gamma prior or a fixed number"
        )
    for name in FACTORS:
        prior = getattr(density, name)
        if is_improper(prior):
            raise InputError(
                f"the prior of {name} is flat on [0, inf), which is improper; give an exponential "
                "or half-normal prior"
            )
        if at_bounds and not _finite_at_bounds(prior):
            raise InputError(
                f"the prior of {name} is not finite at its bounds; give one that is, or sample it "
                'with boundary="logit" or exactly'
            )


def _finite_at_bounds(prior: EntryPrior) -> bool:
    if prior.quadratic is not None:
        return True
    with jax.ensure_compile_time_eval():  # also where a model is being traced
        ends = jnp.array([[e] for e in (prior.low, prior.high) if e < float("inf")])
        value, gradient = jax.value_and_grad(lambda x: jnp.sum(prior.log_prob(x, None)))(ends)
        return bool(jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)))
