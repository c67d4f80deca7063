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
    posterior. For :math:`\theta` a draw from its conditional given V and Z is a proposal, accepted
    with probability :math:`\min\{1, [m(V, \theta') / m(V, \theta)]^{\beta - 1}\}`, hence always at
    :math:`\beta = 1`. (Where V leaves a factor empty, its bits in Z and their density come from the
    prior instead: neither m nor the rest knows them.) The factor :math:`m^{\beta - 1}` is all that
    the target has more than the posterior. Below one a random walk on the logits of :math:`\theta`
    follows, of random scale, with Z summed out, for wide distributions that the conditionals would
    cross slowly.
    At :math:`\beta = 0` a step starts from a draw of the prior, and ends in one that does not
    depend on where the chain has been (but Z is always drawn given the data, and a learned flip
    rate stays where none of eight draws from a lopsided Beta prior is in [0, 1/2]).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logit

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import MAX_JOINT
from bmfjax.kernels.boolean.density import (
    BooleanDensity,
    draw_density,
    draw_independent,
    draw_prior,
    is_empty,
    redraw_factors,
)
from bmfjax.kernels.boolean.gibbs import (
    OrMachineInfo,
    observed_state,
    product_errors,
    state_info,
)
from bmfjax.kernels.boolean.line_states import (
    draw_patterns,
    draw_states,
    lines_of,
    log_prior_of_states,
    odds_of_kept,
    packed_bits,
    patterns_of,
    sides_of,
)
from bmfjax.kernels.boolean.marginal import (
    log_marginal_of,
    log_prior_of_logit,
    state_weights,
    sum_out,
)
from bmfjax.kernels.boolean.moves.jump import jump
from bmfjax.kernels.boolean.moves.whole_factors import rebirth, xor
from bmfjax.kernels.boolean.words import unpack_last_axis
from bmfjax.kernels.numerics.control import acceptance, log_uniform, run_if

#: Smallest and largest scale of the random walk on logits.
SCALES = (0.02, 2.0)


#: Moves of whole factors, by name.
COLLAPSED_MOVES = {"xor": xor, "rebirth": rebirth, "jump": jump}


def collapsed_ormachine(
    density: BooleanDensity,
    *,
    summed: str = "longer",
    moves: Sequence[str] = (),
    walks: int = 1,
    from_prior: bool = True,
) -> Algorithm:
    r"""Build the sampler, for a rank of at most 8 and flip rates that are drawn or known.

    `summed` is "usage", "basis" or "longer", the one with more lines; `walks` the number of steps
    of the walk below temperature one, for each site of :math:`\theta`. State and info are those of
    `bmfjax.kernels.boolean.gibbs.ormachine`; `accepted` has "rates", the probability with which
    densities and flip rates were accepted, which is 1 at temperature one, and the mean of that of
    every move. `moves` names those of `COLLAPSED_MOVES` that every step makes, each as often as it
    occurs (`bmfjax.kernels.boolean.moves.whole_factors`, and `bmfjax.kernels.boolean.moves.jump`,
    for data with solutions). With `from_prior` a step at an
    inverse temperature of 0 starts from a draw of the prior; the program is larger then.
    """
    sides, describe = sides_of(density.shape, summed), state_info(density)
    _check(density)
    number = Counter(moves).items()
    chosen = [(name, COLLAPSED_MOVES[name](density, sides), n) for name, n in number]

    def step(key, state, data, inverse_temperature=1.0):
        key_prior, key_kept, key_moves, key_summed, key_rates, key_walk = random.split(key, 6)
        beta = jnp.asarray(inverse_temperature, jnp.result_type(float))
        position = state.position
        if from_prior:
            position = _refreshed(key_prior, density, position, data, beta)
        position = _draw_kept(key_kept, density, sides, position, data, beta)
        position, moved = _move_factors(key_moves, density, sides, chosen, position, data, beta)
        position, value = _draw_summed(key_summed, density, sides, position, data)
        proposed = _given_bits(key_rates, density, sides, position, data)

        def tempered(_):
            return _tempered_rates(
                key_walk, density, sides, position, value, proposed, data, beta, walks
            )

        position, accepted = run_if(beta < 1.0, tempered, (proposed, jnp.ones_like(beta)))
        new, info = State(position), OrMachineInfo(None, None, None, {"rates": accepted} | moved)
        return new, describe(info, new, data)

    init = init_from(lambda key, data: draw_prior(key, density, data))
    return Algorithm(init, step, observed_state)


def log_marginal(density: BooleanDensity, *, summed: str = "longer") -> Callable:
    """Build ``log_marginal(state, data)``, the log of m, for `bmfjax.kernels.tempering`."""
    sides = sides_of(density.shape, summed)
    return lambda state, data: log_marginal_of(density, sides, state.position, data)


def draw_summed(density: BooleanDensity, *, summed: str = "longer") -> Callable:
    """Build ``draw(key, position, data) -> (position, log m)``.

    It draws the bits that are summed out from their conditional.
    """
    sides = sides_of(density.shape, summed)

    return lambda key, position, data: _draw_summed(key, density, sides, position, data)


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


def _refreshed(key, density, position, data, beta):
    """Return the position, or at an inverse temperature of zero a new one from the prior."""
    new = draw_independent(key, density, position, data)
    return {name: jnp.where(beta == 0.0, new[name], old) for name, old in position.items()}


def _draw_kept(key, density, sides, position, data, beta):
    """Draw the kept factor matrix with the other summed out: the position without the other's."""
    key_order, key_patterns = random.split(key)
    lines = lines_of(data, sides)
    patterns = patterns_of(unpack_last_axis(position[sides.kept], sides.short))
    _, patterns = draw_patterns(
        key_patterns,
        state_weights(density, sides, position, data),
        lines,
        flip_rates.weights(position["flip_rate"]),
        patterns,
        log_prior_of_states(odds_of_kept(density, sides, position, data)),
        random.permutation(key_order, sides.short),
        beta,
    )
    return position | {sides.kept: packed_bits(patterns, density.rank)}


def _move_factors(key, density, sides, chosen, position, data, beta):
    """Make the chosen moves; returns the position and the mean acceptance probability of each."""
    accepted = {}
    if not chosen:
        return position, accepted
    value = log_marginal_of(density, sides, position, data)
    for name, move, times in chosen:
        key, key_move = random.split(key)

        def again(i, carry, key=key_move, move=move):
            position, value, total = carry
            position, value, probability = move(random.fold_in(key, i), position, value, data, beta)
            return position, value, total + probability

        carry = position, value, jnp.zeros_like(value)
        position, value, total = lax.fori_loop(0, times, again, carry)
        accepted[name] = total / times
    return position, accepted


def _draw_summed(key, density, sides, position, data):
    """Draw the bits that are summed out from their conditional; returns log m too."""
    lines, log_states = lines_of(data, sides), state_weights(density, sides, position, data)
    drawn = draw_states(key, log_states, lines.place)
    position = position | {sides.summed: packed_bits(drawn, density.rank)}
    return position, sum_out(log_states, position["flip_rate"], lines)


def _given_bits(key, density, sides, position, data):
    """Draw densities and flip rates from their conditionals; returns the position."""
    *keys, key_unused = random.split(key, 4)
    new = dict(position)
    for k, site in zip(keys, (sides.kept, sides.summed), strict=False):
        new |= draw_density(k, site, density, position, data)
    # What the kept bits leave empty. Not the other way round: below temperature one, empty bits
    # that are summed out do tell of the kept ones.
    if getattr(density, sides.summed).beta is not None:
        unused = is_empty(new[sides.kept])
        new = redraw_factors(key_unused, sides.summed, unused, density, new, data)
    counts, _ = product_errors(density, position, data)
    new["flip_rate"] = flip_rates.draw_flip_rate(
        keys[2], position["flip_rate"], counts, density.flip_rate, 1.0
    )
    return new


def _tempered_rates(key, density, sides, position, value, proposed, data, beta, walks):
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
        """Make proposal i: that of the conditionals for 0, else a walk of one site in turn."""
        rates, value, first = carry
        keys = random.split(random.fold_in(key, i), 2 + len(sites))
        low, high = jnp.log(jnp.asarray(SCALES, value.dtype))
        scale = jnp.exp(random.uniform(keys[0], (), value.dtype, low, high))
        new, prior = {}, jnp.zeros_like(value)
        for n, site in enumerate(sites):
            old = rates[site]
            step = scale * random.normal(keys[2 + n], old.shape, old.dtype)
            walked = jnp.where(
                (i > 0) & (i % len(sites) == n), jax.nn.sigmoid(logit(old) + step), old
            )
            new[site] = jnp.where(i == 0, proposed[site], walked)
            change = log_prior_of_logit(density, site, new[site])
            prior += jnp.where(i == 0, 0.0, change - log_prior_of_logit(density, site, old))
        then = log_marginal_of(density, sides, position | new, data)
        gain = jnp.where(i == 0, beta - 1.0, beta) * (then - value) + prior
        taken = log_uniform(keys[1], (), gain.dtype) < gain
        rates = {s: jnp.where(taken, new[s], rates[s]) for s in sites}
        accepted = jnp.where(i == 0, acceptance(gain), first)
        return rates, jnp.where(taken, then, value), accepted

    start = rates, value, jnp.ones_like(value)
    rates, _, accepted = lax.fori_loop(0, 1 + walks * len(sites), propose, start)
    key_summed = random.fold_in(key, 1 + walks * len(sites))
    position, _ = _draw_summed(key_summed, density, sides, position | rates, data)
    return position, accepted


def _uncertain(density):
    """List the sites of rates and densities that are not known."""
    sites = [f"{s}_density" for s in ("usage", "basis") if getattr(density, s).beta is not None]
    return sites + (["flip_rate"] if density.flip_rate.value is None else [])
