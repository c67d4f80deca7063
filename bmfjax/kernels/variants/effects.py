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
from jax.scipy.special import betaln, gammaln, logit, xlog1py, xlogy

from bmfjax.data.bits import WORD, pack_bits, unpack_bits
from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.variants.effect_moves import (
    logistic_terms,
    move_effects,
    move_levels,
    rescale_effects,
    translate,
)
from bmfjax.kernels.variants.observed_entries import EntryLists, ObservedEntries, line_sums

SIDES = ("row", "column")
FACTORS = {"row": "usage", "column": "basis"}


class EffectsPrior(NamedTuple):
    r"""Parameters of the priors.

    Attributes
    ----------
    precision : (float, float)
        Shape and rate of the Gamma priors of both precisions of effects.
    intercept_sd : float
        Standard deviation of the intercept's normal prior, with mean zero.
    dispersion_rate : float
        Rate of the exponential prior of :math:`\lambda`.
    density : (float, float)
        Parameters of the Beta prior of every factor's density.
    """

    precision: tuple[float, float] = (1.0, 1.0)
    intercept_sd: float = 10.0
    dispersion_rate: float = 1.0
    density: tuple[float, float] = (1.0, 1.0)


class EffectsInfo(NamedTuple):
    """Statistics of one sweep, all of them () float."""

    log_joint: jax.Array  # at the draw, tempered
    log_likelihood: jax.Array  # at the draw, untempered
    bits_flipped: jax.Array  # share of the factors' bits that changed
    row_acceptance: jax.Array  # mean probability with which effects were accepted
    column_acceptance: jax.Array
    level_acceptance: jax.Array  # probability with which the levels were accepted


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
        For data that are `ObservedEntries`. It observes the position and the statistics of
        `EffectsInfo`. With factors the position has `usage`, `basis` (int32), `usage_density`,
        `basis_density` and `dispersion`; with effects `row_effect`, `column_effect`,
        `row_precision`, `column_precision` and `intercept`.

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
    >>> from bmfjax.kernels.variants.observed_entries import observed_entries
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
    prior = EffectsPrior() if prior is None else prior
    if whole("rank", rank, 0) == 0 and not effects:
        raise InputError("rank is 0 and effects is False; give a factor or the effects")

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
        return State(position), info

    def observe(state, info):
        return {**state.position, **info._asdict()}

    init = init_from(lambda key, data: random_position(key, data.shape, rank, effects))
    return Algorithm(init, step, observe)


def random_position(key, shape, rank, effects):
    """Draw a start that uses the factors: sparse random bits, a small dispersion, no effects."""
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


def position_from(given, *, shape, effects) -> dict:
    """Return the position with given factors, and whatever else is given.

    Densities follow from the bits, and effects start at zero, unless they are given too.
    """
    position = {}
    for side, size in zip(SIDES, shape, strict=True):
        name = FACTORS[side]
        if name in given:
            position[name] = (jnp.asarray(given[name]) > 0.5).astype(jnp.int32)
            position[name + "_density"] = (position[name].sum(0) + 1.0) / (size + 2.0)
            position["dispersion"] = jnp.asarray(1.0)
        if effects:
            position[side + "_effect"] = jnp.zeros(size)
            position[side + "_precision"] = jnp.ones(())
            position["intercept"] = jnp.zeros(())
    rest = {n: jnp.asarray(v) for n, v in given.items() if n not in FACTORS.values()}
    return position | rest


# ---- the density --------------------------------------------------------------------------------


def entry_logits(position, rows, columns):
    """Return the logit of the probability of a one at any entries, observed or not.

    Parameters
    ----------
    position : dict
        As `ormachine_effects` observes it.
    rows, columns : (entry,) int

    Returns
    -------
    (entry,) float

    Examples
    --------
    >>> one = {"usage": jnp.ones((2, 1), jnp.int32), "basis": jnp.array([[1], [0]])}
    >>> entry_logits({**one, "dispersion": 2.0}, jnp.array([0, 1]), jnp.array([0, 1])).tolist()
    [2.0, -2.0]
    """
    logits = 0.0
    if "row_effect" in position:
        row, column = position["row_effect"][rows], position["column_effect"][columns]
        logits = position["intercept"] + row + column
    if "usage" in position:
        used, has = (
            pack_bits(position[f])[index] for f, index in (("usage", rows), ("basis", columns))
        )
        sign = jnp.where(jnp.any(used & has != 0, axis=-1), 1.0, -1.0)
        logits = logits + position["dispersion"] * sign
    return logits


def covered(lists: EntryLists, words, other_words):
    """Return whether some factor covers each entry; words (words, lines), entries' (words, ...)."""
    result = False
    for mine, theirs in zip(words, other_words, strict=True):
        result |= mine[lists.line][:, None] & theirs != 0
    return result


def side_lists(side, data: ObservedEntries) -> EntryLists:
    """Return the lists of the rows or of the columns."""
    return data.by_row if side == "row" else data.by_column


def effect_logits(side, position, data: ObservedEntries, with_own=True):
    """Return intercept plus effects at the entries, (chunk, width), in the order of one side."""
    lists = side_lists(side, data)
    if "intercept" not in position:
        return jnp.zeros_like(lists.sign)
    other = "column" if side == "row" else "row"
    logits = position["intercept"] + position[other + "_effect"][lists.other]
    return logits + position[side + "_effect"][lists.line][:, None] if with_own else logits


def entry_signs(side, position, data: ObservedEntries):
    """Return +1 where an entry is covered and -1 where not, (chunk, width); 0 with rank 0."""
    lists = side_lists(side, data)
    if "usage" not in position:
        return jnp.zeros_like(lists.sign)
    own, other = ("usage", "basis") if side == "row" else ("basis", "usage")
    words, others = (pack_bits(position[n]).T for n in (own, other))
    ones = covered(lists, words, [w[lists.other] for w in others])
    return jnp.where(ones, 1.0, -1.0).astype(lists.sign.dtype)


def log_likelihood(position, data: ObservedEntries):
    """Return the log likelihood of the observed entries."""
    logits = effect_logits("row", position, data)
    logits = logits + position.get("dispersion", 0.0) * entry_signs("row", position, data)
    return logistic_terms(data.by_row.sign, logits)[0].sum()


def log_prior(position, prior: EffectsPrior):
    """Return the normalised log density of the priors."""
    total = jnp.zeros(())
    if "intercept" in position:
        total += _log_normal(position["intercept"], prior.intercept_sd**-2)
        a, b = prior.precision
        for side in SIDES:
            precision = position[side + "_precision"]
            total += a * jnp.log(b) - gammaln(a) + (a - 1) * jnp.log(precision) - b * precision
            total += _log_normal(position[side + "_effect"], precision).sum()
    if "usage" in position:
        rate = prior.dispersion_rate
        total += jnp.log(rate) - rate * position["dispersion"]
        a, b = prior.density
        for factor in FACTORS.values():
            bits, density = position[factor], position[factor + "_density"]
            total += jnp.sum(xlogy(a - 1, density) + xlog1py(b - 1, -density) - betaln(a, b))
            total += jnp.where(bits != 0, jnp.log(density), jnp.log1p(-density)).sum()
    return total


def _log_normal(x, precision):
    return 0.5 * (jnp.log(precision) - jnp.log(2 * jnp.pi)) - 0.5 * precision * x**2


# ---- one side ---------------------------------------------------------------------------


def draw_bits(key, side, position, data: ObservedEntries, inverse_temperature=1.0):
    """Draw the bits of one factor matrix, factor by factor; returns position and changed bits."""
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

    Returns the position, the acceptance probability and the log likelihoods of the entries by row.
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
    """Draw the effects' level against the intercept, their scale and their precisions.

    Returns the position and the log likelihoods of the entries by row.
    """
    if "intercept" not in position:
        return position, values
    line, other, sign, _ = data.by_row
    signs = entry_signs("row", position, data) * position.get("dispersion", 0.0)
    index = {"row": line[:, None], "column": other}
    a, b = prior.precision
    key, key_gamma = random.split(key)
    # One call for all, because this sampler takes long to compile.
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
    # Draws may round to 0 or 1, where log odds are infinite.
    exact = jnp.finfo(dtype)
    drawn = jnp.clip(drawn, exact.tiny, 1.0 - exact.epsneg)
    return position | dict(zip(names, drawn, strict=True))
