r"""The OrMachine with one factor matrix summed out: for matrices with a short side.

Up to rank 8 the bits of a row have at most 256 states, and the longer factor matrix can be summed
out of the posterior altogether. What is left are the bits of the shorter one, V, the densities and
the flip rates, :math:`\theta`, with the marginal likelihood

.. math::

   m(V, \theta) = \prod_i \sum_{z \in \{0,1\}^r} p(z \mid \theta)
       \prod_j p\Big(x_{ij} \,\Big|\, \bigvee_k z_k v_{jk}, \theta\Big).

A step draws every row of V as a whole (:mod:`bmfjax.kernels.line_states`), then the bits Z that are
summed out from their conditional, and the densities and the flip rates given both.

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
from bmfjax.kernels import flip_rates
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.bit_blocks import MAX_JOINT
from bmfjax.kernels.boolean_density import (
    BooleanDensity,
    draw_density,
    draw_prior,
    log_odds,
)
from bmfjax.kernels.line_states import (
    LineGains,
    draw_patterns,
    draw_states,
    log_prior_of_states,
    log_weights,
    packed_bits,
    patterns_of,
    sides_of,
)
from bmfjax.kernels.ormachine import (
    OrMachineInfo,
    OrMachineState,
    error_counts,
    observed_state,
    product_coverage,
    state_info,
)
from bmfjax.kernels.packed_lines import count_bits, unpack_last_axis

#: Smallest and largest scale of the random walk on logits.
SCALES = (0.02, 2.0)


def collapsed_ormachine(density: BooleanDensity, *, summed: str = "longer") -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    density : BooleanDensity
        Of rank 8 at most, with flip rates drawn or known.
    summed : {"longer", "usage", "basis"}
        The factor matrix that is summed out; by default the one with more lines.

    Returns
    -------
    Algorithm
        State and info as of `bmfjax.kernels.ormachine.ormachine`. `accepted` has "rates": the
        probability with which the densities and flip rates were, one at temperature one.

    Raises
    ------
    InputError
        For a higher rank, another side, or flip rates that are set and not drawn.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.packed_lines import count_bits, packed_data
    >>> data = packed_data(BinaryMatrix(jnp.kron(jnp.eye(2), jnp.ones((12, 6)))))
    >>> algorithm = collapsed_ormachine(BooleanDensity((24, 12), rank=2))
    >>> step = jax.jit(algorithm.step)
    >>> state = jax.jit(algorithm.init)(random.key(0), None, data)
    >>> for key in random.split(random.key(1), 20):
    ...     state, info = step(key, state, data)
    >>> count_bits(state.position["basis"]).tolist(), int(info.errors)
    ([6, 6], 0)
    """
    sides, describe = sides_of(density.shape, summed), state_info(density)
    _check(density)

    def init(key, position, data):
        start = draw_prior(key, density, data) if position is None else position
        return OrMachineState({n: jnp.asarray(v) for n, v in start.items()})

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
        new, info = OrMachineState(position), OrMachineInfo(None, None, None, {"rates": accepted})
        return new, describe(info, new, data)

    return Algorithm(init, step, observed_state)


def log_marginal(density: BooleanDensity, *, summed: str = "longer") -> Callable:
    """The log of the marginal likelihood m of a state, as `bmfjax.infer.tempering` takes it.

    Parameters
    ----------
    density : BooleanDensity
    summed : {"longer", "usage", "basis"}

    Returns
    -------
    callable
        ``log_marginal(state, data)``, () float.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.packed_lines import packed_data
    >>> data = packed_data(BinaryMatrix([[1, 1]]))
    >>> position = {"usage": jnp.zeros((1, 1), jnp.uint32), "flip_rate": jnp.float32(0.25),
    ...             "basis": jnp.array([[0b11]], jnp.uint32), "usage_density": jnp.array([0.5]),
    ...             "basis_density": jnp.array([0.5])}
    >>> value = log_marginal(BooleanDensity((1, 2), 1), summed="usage")
    >>> float(jnp.exp(value(OrMachineState(position), data)))  # (.75^2 + .25^2) / 2
    0.3125...
    """
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
    """Log weights of the states of every line summed out, and what they are made of."""
    lines = data.by_column if sides.summed == "usage" else data.by_row
    none = jnp.zeros((0, sides.short), bool), position[sides.summed][:0]
    gains = LineGains(lines, sides.long, flip_rates.weights(position["flip_rate"]), *none)
    patterns = patterns_of(unpack_last_axis(position[sides.kept], sides.short))
    odds, kept_odds = (
        jnp.broadcast_to(log_odds(s, density, position, data), (density.rank, size))
        for s, size in sides.of_both
    )
    log_states = log_weights(log_prior_of_states(odds), gains, patterns, density.rank)
    return log_states, gains, patterns, kept_odds


def _log_marginal(density, sides, position, data):
    log_states = _table(density, sides, position, data)[0]
    return _sum_out(log_states, sides, position["flip_rate"], data)


def _sum_out(log_states, sides, flip_rate, data):
    # Line by line: sums over all of them would cancel, and lose what floats hold of small changes.
    ones, zeros = _counts_of_lines(sides, data)
    f0, _ = flip_rates.both_rates(flip_rate)
    uncovered = ones * jnp.log(f0) + zeros * jnp.log1p(-f0)
    return jnp.sum(logsumexp(log_states, axis=0) + uncovered.astype(log_states.dtype))


def _counts_of_lines(sides, data):
    """Observed ones and zeros of every line that is summed out: (long,) int32 each."""
    lines = data.by_row if sides.summed == "usage" else data.by_column
    ones = count_bits(lines.ones).reshape(-1)[: sides.long]
    if lines.observed is None:
        return ones, sides.short - ones
    return ones, count_bits(lines.observed).reshape(-1)[: sides.long] - ones


def _draw_bits(key, density, sides, position, data, beta):
    """Both factor matrices: the kept one with the other summed out, then that one; and log m."""
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
    """The position with densities and flip rates from their conditionals."""
    keys = random.split(key, 3)
    new = dict(position)
    for k, site in zip(keys, (sides.kept, sides.summed), strict=False):
        new |= draw_density(k, site, density, position, data)
    counts, _ = error_counts(product_coverage(density, position, data), data, density.shape)
    new["flip_rate"] = flip_rates.draw_flip_rate(
        keys[2], position["flip_rate"], counts, density.flip_rate, 1.0
    )
    return new


def _tempered_rates(key, density, sides, position, value, proposed, data, beta):
    """Accept what the conditionals proposed, then walk, then draw the bits that are summed out.

    Returns the position and the probability with which the proposal was accepted.
    """
    # The density of the kept bits depends on these alone: nothing of it is tempered.
    kept = f"{sides.kept}_density"
    if kept in position:
        position = position | {kept: proposed[kept]}
    sites = [s for s in ("flip_rate", f"{sides.summed}_density") if s in _uncertain(density)]
    rates = {s: position[s] for s in sites}
    if not sites:
        return position, jnp.ones_like(beta)

    def propose(i, carry):
        """Number 0 is the proposal of the conditionals; the others walk, one site each."""
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
    """Sites of rates and densities that are not known."""
    sites = [f"{s}_density" for s in ("usage", "basis") if getattr(density, s).beta is not None]
    return sites + (["flip_rate"] if density.flip_rate.value is None else [])


def _log_prior_of_logit(density, site, values):
    """Log prior density of the logit of rates or densities; minus infinity outside."""
    if site == "flip_rate":
        prior = density.flip_rate
        inside = jnp.all((values <= 0.5) & (values >= flip_rates.LEAST_RATE))
        a, b = prior.a, prior.b
    else:
        inside = jnp.all((values > 0.0) & (values < 1.0))
        a, b = getattr(density, site.removesuffix("_density")).beta
    return jnp.where(inside, jnp.sum(a * jnp.log(values) + b * jnp.log1p(-values)), -jnp.inf)
