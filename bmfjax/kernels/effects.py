r"""The OrMachine with row and column effects, over the observed entries only.

.. math::

   \operatorname{logit} P(x_{ij} = 1) = \mu + \lambda(2 c_{ij} - 1) + \alpha_i + \beta_j, \qquad
   c_{ij} = \bigvee_k z_{ik} u_{jk},

with :math:`\lambda \ge 0` (`dispersion`), :math:`\mu` (`intercept`),
:math:`\alpha_i \sim N(0, \tau_\alpha^{-1})` (`row_effect`) and
:math:`\beta_j \sim N(0, \tau_\beta^{-1})` (`column_effect`) with learned precisions. Without
effects, :math:`\mu = \alpha_i = \beta_j = 0`, it is the OrMachine of Rukat et al. 2017; with rank
0 the effects are left alone, a logistic model of rows and columns.

A sweep draws
    the usage bits, factor by factor and all rows at once, by metropolised Gibbs from

    .. math::

       \operatorname{logit} P(z_{ik} = 1 \mid \cdot) = \operatorname{logit} p_k
       + \sum_{j:\ u_{jk} = 1,\ \text{no other factor covers } (i, j)}
       \log\frac{\sigma(s_{ij}(\eta_{ij} + \lambda))}{\sigma(s_{ij}(\eta_{ij} - \lambda))},
       \qquad \eta = \mu + \alpha + \beta,\quad s = 2x - 1;

    the row effects, all at once, each by a Metropolis step around its Newton step; then basis and
    column effects in the same way; the two levels :math:`\mu \mp \lambda` of the logit, of
    entries that are not covered and that are, together; a translation between the intercept and
    either kind of effects; a scaling of either kind together with its precision; precisions from
    their Gamma and densities from their Beta conditionals.

What it leaves invariant
    The posterior, exactly (to the accuracy of the floating point numbers), at any inverse
    temperature of the likelihood.

Cost
    A few passes over the observed entries for the effects, and one over their packed factors for
    each factor; nothing costs rows times columns.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logit

from bmfjax.data.errors import InputError
from bmfjax.data.packed import WORD, pack_bits, unpack_bits
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.effect_moves import (
    logistic_terms,
    move_effects,
    move_levels,
    rescale_effects,
    translate,
)
from bmfjax.kernels.effects_density import (
    FACTORS,
    SIDES,
    EffectsPrior,
    covered,
    effect_logits,
    entry_signs,
    log_prior,
    side_lists,
)
from bmfjax.kernels.observed_entries import ObservedEntries, line_sums


class EffectsState(NamedTuple):
    """`position`: with factors `usage`, `basis` (int32), `usage_density`, `basis_density` and
    `dispersion`; with effects `row_effect`, `column_effect`, `row_precision`, `column_precision`
    and `intercept`.
    """

    position: dict


class EffectsInfo(NamedTuple):
    """Statistics of one sweep, all of them () float.

    Attributes
    ----------
    log_joint, log_likelihood : at the draw, the likelihood untempered in the latter
    bits_flipped : share of the factors' bits that changed
    row_acceptance, column_acceptance : mean probability with which effects were accepted
    level_acceptance : probability with which the levels were accepted
    """

    log_joint: jax.Array
    log_likelihood: jax.Array
    bits_flipped: jax.Array
    row_acceptance: jax.Array
    column_acceptance: jax.Array
    level_acceptance: jax.Array


def ormachine_effects(
    rank: int, *, effects: bool = True, prior: EffectsPrior | None = None
) -> Algorithm:
    """Build the sampler.

    Parameters
    ----------
    rank : int
        Number of factors; 0 leaves the effects alone.
    effects : bool
        False: the OrMachine without intercept and effects.
    prior : EffectsPrior, optional

    Returns
    -------
    Algorithm
        For data that are `ObservedEntries`. It observes the position (see `EffectsState`) and
        the statistics of `EffectsInfo`.

    Raises
    ------
    InputError
        For a rank below 0, or nothing to sample.

    References
    ----------
    Rukat, Holmes, Titsias, Yau (2017), "Bayesian Boolean matrix factorisation", ICML: the
    likelihood without effects and the conditionals of its bits. Liu (1996), "Peskun's theorem and
    a modified discrete-state Gibbs sampler", Biometrika 83: the metropolised flips.

    Examples
    --------
    >>> import numpy as np
    >>> from bmfjax.kernels.observed_entries import observed_entries
    >>> row, column = np.divmod(np.arange(600), 20)
    >>> data = observed_entries(row, column, (row < 15) & (column < 10))
    >>> algorithm = ormachine_effects(1, effects=False)
    >>> state = algorithm.init(random.key(0), None, data)
    >>> step = jax.jit(algorithm.step)
    >>> for key in random.split(random.key(1), 30):
    ...     state, info = step(key, state, data)
    >>> state.position["usage"][:, 0].tolist() == [1] * 15 + [0] * 15
    True
    """
    if rank < 0:
        raise InputError(f"rank is {rank}; give a number of factors of at least 0")
    prior = EffectsPrior() if prior is None else prior
    if rank == 0 and not effects:
        raise InputError("rank is 0 and effects is False; give a factor or the effects")

    def init(key, position, data):
        start = random_position(key, data.shape, rank, effects) if position is None else position
        return EffectsState({n: jnp.asarray(v) for n, v in start.items()})

    def step(key, state, data, inverse_temperature=1.0):
        keys = random.split(key, 4)
        position, accepted, flips = dict(state.position), {}, jnp.zeros(())
        for side, k in zip(SIDES, keys, strict=False):
            k_bits, k_effect = random.split(k)
            if rank:
                position, flipped = draw_bits(k_bits, side, position, data, inverse_temperature)
                flips += flipped
            if effects:
                position, accepted[side] = draw_effects(
                    k_effect, side, position, data, inverse_temperature
                )
        position, level_accepted, values = draw_levels(
            keys[2], position, data, prior, inverse_temperature
        )
        k_scales, k_densities = random.split(keys[3])
        position, values = draw_scales(k_scales, position, values, data, prior, inverse_temperature)
        position = draw_densities(k_densities, position, prior)
        likelihood = values.sum()
        one = jnp.ones((), likelihood.dtype)
        info = EffectsInfo(
            inverse_temperature * likelihood + log_prior(position, prior),
            likelihood,
            flips / max(rank * sum(data.shape), 1),
            accepted.get("row", one),
            accepted.get("column", one),
            level_accepted,
        )
        return EffectsState(position), info

    def observe(state, info):
        return {**state.position, **info._asdict()}

    return Algorithm(init, step, observe)


def random_position(key, shape, rank, effects):
    """A start from which the factors are used: sparse random bits, a small dispersion, no effects.

    Parameters
    ----------
    key : jax.Array
    shape : (int, int)
    rank : int
    effects : bool

    Returns
    -------
    dict
        As in `EffectsState`.
    """
    position = {}
    for side, size, k in zip(SIDES, shape, random.split(key), strict=True):
        if rank:
            # Half the entries covered, half of them by rows and half by columns.
            share = (1.0 - 0.5 ** (1.0 / rank)) ** 0.5
            name = FACTORS[side]
            position[name] = random.bernoulli(k, share, (size, rank)).astype(jnp.int32)
            position[name + "_density"] = jnp.full(rank, share)
        if effects:
            position[side + "_effect"] = jnp.zeros(size)
            position[side + "_precision"] = jnp.ones(())
    if rank:
        position["dispersion"] = jnp.asarray(0.5)
    if effects:
        position["intercept"] = jnp.zeros(())
    return position


# ---- one side ---------------------------------------------------------------------------


def draw_bits(key, side, position, data: ObservedEntries, inverse_temperature=1.0):
    """Draw the bits of one factor matrix, factor by factor, given everything else.

    Returns
    -------
    position : dict
    flips : () float
        How many bits changed.
    """
    lists = side_lists(side, data)
    own, other = ("usage", "basis") if side == "row" else ("basis", "usage")
    lines, rank = position[own].shape
    # What covering an entry adds to the log likelihood.
    eta = effect_logits(side, position, data)
    up, down = (
        logistic_terms(lists.sign, eta + x)[0]
        for x in (position["dispersion"], -position["dispersion"])
    )
    gain = inverse_temperature * (up - down)
    other_words = [w[lists.other] for w in pack_bits(position[other]).T]
    prior = logit(position[own + "_density"])
    threshold = jnp.log(random.uniform(key, (rank, lines), gain.dtype, minval=1e-37))
    start = pack_bits(position[own]).T

    def factor(k, carry):
        words, flips = carry
        bit = jnp.uint32(1) << (k % WORD).astype(jnp.uint32)
        mask = jnp.where(jnp.arange(len(start)) == k // WORD, bit, jnp.uint32(0))
        rest = words & ~mask[:, None]
        has = False
        for m, w in zip(mask, other_words, strict=True):
            has |= w & m != 0
        alone = has & ~covered(lists, rest, other_words)
        odds = prior[k] + line_sums(lists, jnp.where(alone, gain, 0.0))
        one = jnp.any(words & mask[:, None] != 0, axis=0)
        # Metropolised: propose the other value, accept with the ratio of the conditionals.
        flip = threshold[k] < jnp.where(one, -odds, odds)
        new = jnp.where(one ^ flip, mask[:, None], jnp.uint32(0))
        return rest | new, flips + flip.sum()

    words, flips = lax.fori_loop(0, rank, factor, (start, jnp.zeros((), jnp.int32)))
    bits = unpack_bits(words.T, rank).astype(position[own].dtype)
    return position | {own: bits}, flips.astype(gain.dtype)


def draw_effects(key, side, position, data: ObservedEntries, inverse_temperature=1.0):
    """Move the effects of one side; returns the position and the mean acceptance probability."""
    lists = side_lists(side, data)
    offset = effect_logits(side, position, data, with_own=False)
    if "usage" in position:
        offset = offset + position["dispersion"] * entry_signs(side, position, data)
    name = side + "_effect"
    effect, accepted = move_effects(
        key, lists, position[name], offset, position[side + "_precision"], inverse_temperature
    )
    return position | {name: effect}, accepted


def draw_levels(key, position, data: ObservedEntries, prior, inverse_temperature=1.0):
    """Move intercept and dispersion together.

    Returns
    -------
    position : dict
    accepted : () float
    values : (chunk, width) float
        Log likelihoods of the entries, by row.
    """
    effects = effect_logits("row", position, data) - position.get("intercept", 0.0)
    signs = entry_signs("row", position, data)
    intercept, dispersion, accepted, values = move_levels(
        key, data.by_row.sign, effects, signs, position.get("intercept"),
        position.get("dispersion"), prior, inverse_temperature,
    )  # fmt: skip
    moved = {"intercept": intercept, "dispersion": dispersion}
    return position | {n: moved[n] for n in moved if n in position}, accepted, values


def draw_scales(key, position, values, data: ObservedEntries, prior, inverse_temperature=1.0):
    """Draw what the effects share: their level against the intercept, their scale, precisions.

    Returns
    -------
    position : dict
    values : (chunk, width) float
        Log likelihoods of the entries, by row.
    """
    if "intercept" not in position:
        return position, values
    line, other, sign, _ = data.by_row
    signs = entry_signs("row", position, data) * position.get("dispersion", 0.0)
    index = {"row": line[:, None], "column": other}
    a, b = prior.precision
    key, key_gamma = random.split(key)
    # In one call, as below: it is these samplers that take long to compile.
    shapes = jnp.array([a + 0.5 * position[s + "_effect"].size for s in SIDES], sign.dtype)
    gammas = random.gamma(key_gamma, shapes, dtype=sign.dtype)
    for side, gamma, k in zip(SIDES, gammas, random.split(key), strict=True):
        keys = random.split(k)
        effect, precision = position[side + "_effect"], position[side + "_precision"]
        intercept, effect = translate(
            keys[0], position["intercept"], effect, precision, prior.intercept_sd
        )
        rival = "column" if side == "row" else "row"
        rest = signs + intercept + position[rival + "_effect"][index[rival]]
        effect, _, values = rescale_effects(
            keys[1], sign, values, effect, precision, index[side], rest,
            prior.precision, inverse_temperature,
        )  # fmt: skip
        precision = gamma / (b + 0.5 * jnp.sum(effect**2))
        position = position | {
            "intercept": intercept, side + "_effect": effect, side + "_precision": precision
        }  # fmt: skip
    return position, values


def draw_densities(key, position, prior):
    """Draw the factors' densities from their Beta conditionals; returns the position."""
    if "usage" not in position:
        return position
    a, b = prior.density
    names = [f + "_density" for f in FACTORS.values()]
    dtype = position[names[0]].dtype
    bits = [position[f] for f in FACTORS.values()]
    ones = jnp.stack([x.sum(0) for x in bits]).astype(dtype)
    sizes = jnp.array([[len(x)] for x in bits], dtype)
    drawn = random.beta(key, a + ones, b + sizes - ones, dtype=dtype)
    # Not the 0 or 1 that they may round to, where log odds are infinite.
    exact = jnp.finfo(dtype)
    drawn = jnp.clip(drawn, exact.tiny, 1.0 - exact.epsneg)
    return position | dict(zip(names, drawn, strict=True))
