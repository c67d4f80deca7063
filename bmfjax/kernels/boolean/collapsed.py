r"""The OrMachine with one factor matrix summed out: for matrices with a short side.

Up to rank 8 the bits of a row have at most 256 states, and the longer factor matrix can be summed
out of the posterior altogether. What is left are the bits of the shorter one, V, the densities and
the flip rates, :math:`\theta`, with the marginal likelihood

.. math::

   m(V, \theta) = \prod_i \sum_{z \in \{0,1\}^r} p(z \mid \theta)
       \prod_j p\Big(x_{ij} \,\Big|\, \bigvee_k z_k v_{jk}, \theta\Big).

A step draws every row of V as a whole (:mod:`bmfjax.kernels.boolean.line_states`), then the bits Z
that are summed out from their conditional, and the densities and the flip rates given both.

Tempering
    At the inverse temperature :math:`\beta` the *marginal* likelihood is raised to the power
    :math:`\beta`, and Z keeps its conditional at temperature one. Modes of this posterior differ
    by a few units of log m where their joint densities, Z included, are hundreds apart: a ladder
    needs few temperatures then (`log_marginal` is what its swaps compare).

What it leaves invariant
    :math:`p(V) p(\theta) m(V, \theta)^\beta p(Z \mid V, \theta, X)`, at :math:`\beta = 1` the
    posterior. For :math:`\theta` a draw from its conditional given V and Z is a proposal,
    accepted with probability :math:`\min\{1, [m(V, \theta') / m(V, \theta)]^{\beta - 1}\}`, hence
    always at :math:`\beta = 1`: the factor :math:`m^{\beta - 1}` is all that the target has more
    than the posterior. Below one a random walk on the logits of :math:`\theta` follows, of random
    scale, with Z summed out, for wide distributions that the conditionals would cross slowly.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logit, logsumexp

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import MAX_JOINT
from bmfjax.kernels.boolean.density import BooleanDensity, draw_density, draw_prior
from bmfjax.kernels.boolean.gibbs import (
    OrMachineInfo,
    observed_state,
    product_errors,
    state_info,
)
from bmfjax.kernels.boolean.line_states import (
    draw_patterns,
    draw_states,
    log_prior_of_states,
    packed_bits,
    sides_of,
    weigh_states,
)
from bmfjax.kernels.boolean.words import count_bits

#: Smallest and largest scale of the random walk on logits.
SCALES = (0.02, 2.0)


def collapsed_ormachine(density: BooleanDensity, *, summed: str = "longer") -> Algorithm:
    """Build the sampler, for a rank of at most 8 and flip rates that are drawn or known.

    `summed` is "usage", "basis" or "longer", the one with more lines. State and info are those of
    `bmfjax.kernels.boolean.gibbs.ormachine`; `accepted` has "rates", the probability with which
    densities and flip rates were accepted, which is 1 at temperature one.
    """
    sides, describe = sides_of(density.shape, summed), state_info(density)
    _check(density)

    def step(key, state, data, inverse_temperature=1.0):
        key_bits, key_rates, key_walk = random.split(key, 3)
        beta = jnp.asarray(inverse_temperature, jnp.result_type(float))
        position, value = _draw_bits(key_bits, density, sides, state.position, data, beta)
        proposed = _given_bits(key_rates, density, sides, position, data)
        position, accepted = lax.cond(
            beta < 1.0,
            lambda: _tempered_rates(
                key_walk, density, sides, position, value, proposed, data, beta
            ),
            lambda: (proposed, jnp.ones_like(beta)),
        )
        new, info = State(position), OrMachineInfo(None, None, None, {"rates": accepted})
        return new, describe(info, new, data)

    init = init_from(lambda key, data: draw_prior(key, density, data))
    return Algorithm(init, step, observed_state)


def log_marginal(density: BooleanDensity, *, summed: str = "longer") -> Callable:
    """Build ``log_marginal(state, data)``, the log of m, for `bmfjax.kernels.tempering`."""
    sides = sides_of(density.shape, summed)
    return lambda state, data: _log_marginal(density, sides, state.position, data)


def _check(density):
    if density.rank > MAX_JOINT:
        raise InputError(
            f"the collapsed sampler weighs all {2**density.rank} states of {density.rank} "
            f"factors; take a rank of at most {MAX_JOINT}, or another update"
        )
    if density.flip_rate.value is None and density.flip_rate.rule != "sample":
        raise InputError(
            f"the collapsed sampler draws the flip rates, and dispersion is "
            f"{density.flip_rate.rule!r}; choose 'sample', give the rate, or take another update"
        )


def _table(density, sides, position, data):
    """Weigh the states of all factors: see `weigh_states`."""
    weights = flip_rates.weights(position["flip_rate"])
    return weigh_states(density, sides, position, data, weights)


def _log_marginal(density, sides, position, data):
    log_states = _table(density, sides, position, data)[0]
    return _sum_out(log_states, sides, position["flip_rate"], data)


def _sum_out(log_states, sides, flip_rate, data):
    # Line by line: sums over all lines would cancel, and lose small changes to rounding.
    ones, zeros = _counts_of_lines(sides, data)
    f0, _ = flip_rates.both_rates(flip_rate)
    uncovered = ones * jnp.log(f0) + zeros * jnp.log1p(-f0)
    return jnp.sum(logsumexp(log_states, axis=0) + uncovered.astype(log_states.dtype))


def _counts_of_lines(sides, data):
    """Count the observed ones and zeros of every line summed out: (long,) int32 each."""
    lines = data.by_row if sides.summed == "usage" else data.by_column
    ones = count_bits(lines.ones).reshape(-1)[: sides.long]
    if lines.observed is None:
        return ones, sides.short - ones
    return ones, count_bits(lines.observed).reshape(-1)[: sides.long] - ones


def _draw_bits(key, density, sides, position, data, beta):
    """Draw the kept factor matrix with the other summed out, then the other; and return log m."""
    key_order, key_patterns, key_states = random.split(key, 3)
    log_states, gains, patterns, kept_odds = _table(density, sides, position, data)
    order = random.permutation(key_order, sides.short)
    log_states, patterns = draw_patterns(
        key_patterns, log_states, gains, patterns, log_prior_of_states(kept_odds), order, beta
    )
    drawn = draw_states(key_states, log_states)
    bits = {
        sides.kept: packed_bits(patterns, density.rank),
        sides.summed: packed_bits(drawn, density.rank),
    }
    return position | bits, _sum_out(log_states, sides, position["flip_rate"], data)


def _given_bits(key, density, sides, position, data):
    """Draw densities and flip rates from their conditionals; returns the position."""
    keys = random.split(key, 3)
    new = dict(position)
    for k, site in zip(keys, (sides.kept, sides.summed), strict=False):
        new |= draw_density(k, site, density, position, data)
    counts, _ = product_errors(density, position, data)
    new["flip_rate"] = flip_rates.draw_flip_rate(
        keys[2], position["flip_rate"], counts, density.flip_rate, 1.0
    )
    return new


def _tempered_rates(key, density, sides, position, value, proposed, data, beta):
    """Accept what the conditionals proposed, then walk, then draw the bits that are summed out.

    Returns the position and the probability with which the proposal was accepted.
    """
    # The density of the kept bits depends on these bits alone, which are not tempered.
    kept = f"{sides.kept}_density"
    if kept in position:
        position = position | {kept: proposed[kept]}
    sites = [s for s in ("flip_rate", f"{sides.summed}_density") if s in _uncertain(density)]
    rates = {s: position[s] for s in sites}
    if not sites:
        return position, jnp.ones_like(beta)

    def propose(i, carry):
        """Make proposal i: that of the conditionals for 0, else a walk of one site."""
        rates, value, first = carry
        keys = random.split(random.fold_in(key, i), 2 + len(sites))
        low, high = jnp.log(jnp.asarray(SCALES, value.dtype))
        scale = jnp.exp(random.uniform(keys[0], (), value.dtype, low, high))
        new, prior = {}, jnp.zeros_like(value)
        for n, site in enumerate(sites):
            old = rates[site]
            step = scale * random.normal(keys[2 + n], old.shape, old.dtype)
            walked = jnp.where(i == n + 1, jax.nn.sigmoid(logit(old) + step), old)
            new[site] = jnp.where(i == 0, proposed[site], walked)
            change = _log_prior_of_logit(density, site, new[site])
            prior += jnp.where(i == 0, 0.0, change - _log_prior_of_logit(density, site, old))
        then = _log_marginal(density, sides, position | new, data)
        gain = jnp.where(i == 0, beta - 1.0, beta) * (then - value) + prior
        gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
        taken = jnp.log(random.uniform(keys[1], (), gain.dtype)) < gain
        rates = {s: jnp.where(taken, new[s], rates[s]) for s in sites}
        accepted = jnp.where(i == 0, jnp.exp(jnp.minimum(gain, 0.0)), first)
        return rates, jnp.where(taken, then, value), accepted

    start = rates, value, jnp.ones_like(value)
    rates, _, accepted = lax.fori_loop(0, 1 + len(sites), propose, start)
    position = position | rates
    log_states = _table(density, sides, position, data)[0]
    drawn = draw_states(random.fold_in(key, 1 + len(sites)), log_states)
    return position | {sides.summed: packed_bits(drawn, density.rank)}, accepted


def _uncertain(density):
    """List the sites of rates and densities that are not known."""
    sites = [f"{s}_density" for s in ("usage", "basis") if getattr(density, s).beta is not None]
    return sites + (["flip_rate"] if density.flip_rate.value is None else [])


def _log_prior_of_logit(density, site, values):
    """Return the log prior density of the logit of rates or densities, -inf outside."""
    if site == "flip_rate":
        prior = density.flip_rate
        inside = jnp.all((values <= 0.5) & (values >= flip_rates.LEAST_RATE))
        a, b = prior.a, prior.b
    else:
        inside = jnp.all((values > 0.0) & (values < 1.0))
        a, b = getattr(density, site.removesuffix("_density")).beta
    return jnp.where(inside, jnp.sum(a * jnp.log(values) + b * jnp.log1p(-values)), -jnp.inf)
