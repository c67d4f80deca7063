"""The likelihood of a Boolean factorisation with one factor matrix summed out, and its prior.

See `bmfjax.kernels.boolean.collapsed` for the model, and `line_states` for the sums.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.line_states import (
    lines_of,
    log_prior_of_states,
    log_weights,
    odds_of_lines,
    patterns_of,
    sum_over_lines,
)
from bmfjax.kernels.boolean.words import unpack_last_axis


def state_weights(density, sides, position, data) -> jax.Array:
    """Weigh the states of all factors in every distinct line summed out: see `log_weights`."""
    lines = lines_of(data, sides)
    weights = flip_rates.weights(position["flip_rate"])
    prior = log_prior_of_states(odds_of_lines(density, sides, position, data, lines))
    patterns = patterns_of(unpack_last_axis(position[sides.kept], sides.short))
    return log_weights(prior, lines, weights, patterns, density.flip_rate.num_rates)


def log_marginal_of(density, sides, position, data) -> jax.Array:
    """Return the log of m, a scalar."""
    log_states = state_weights(density, sides, position, data)
    return sum_out(log_states, position["flip_rate"], lines_of(data, sides))


def sum_out(log_states, flip_rate, lines) -> jax.Array:
    """Return the log of m from the weights of `state_weights`."""
    # Line by line: sums over all lines would cancel, and lose small changes to rounding.
    f0, _ = flip_rates.both_rates(flip_rate)
    uncovered = lines.ones * jnp.log(f0) + lines.zeros * jnp.log1p(-f0)
    most = jnp.max(log_states, axis=0)
    total = most + jnp.log(jnp.sum(jnp.exp(log_states - most), axis=0))
    return sum_over_lines(total + uncovered.astype(log_states.dtype), lines)


def is_line(lines) -> jax.Array:
    """Tell the distinct lines from what fills groups up to a common size: (distinct lines,)."""
    return jnp.zeros(lines.code.shape[1], bool).at[lines.place].set(True)


def log_prior_of_logit(density, site, values) -> jax.Array:
    """Return the log prior density of the logit of rates or densities, -inf outside."""
    if site == "flip_rate":
        prior = density.flip_rate
        inside = jnp.all((values <= 0.5) & (values >= flip_rates.LEAST_RATE))
        a, b = prior.a, prior.b
    else:
        inside = jnp.all((values > 0.0) & (values < 1.0))
        a, b = getattr(density, site.removesuffix("_density")).beta
    return jnp.where(inside, jnp.sum(a * jnp.log(values) + b * jnp.log1p(-values)), -jnp.inf)
