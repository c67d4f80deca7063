r"""A feature is born again, or dies: Metropolis-Hastings with a proposal that ignores its state.

Given all other features, effects and scales, the rows z, the columns u and the weights v of one
feature are proposed anew:

* z with probability 1/2 from its prior with the density summed out, and otherwise from a mixture
  over some columns j: with R the residuals (zero where missing), the rows whose residuals are like
  those of the rows with more ones in column j than expected,
  :math:`t_{\cdot j} = R^\top R R_{j \cdot}`, have the feature with the probability
  :math:`\sigma(g (t_{nj} - o))`, t standardised. The columns are drawn anew for every move, and do
  not depend on the state;
* u and v, given z, column by column from the Laplace approximation of their posterior: a logistic
  regression in one weight, about a point that a fixed number of damped Newton steps reaches.

The density of the proposal is known, so that the ratio is exact. Where the number of features is
unknown the feature is with probability 1/2 one of those that are not there, which is to be born,
and otherwise one of those that are, which is to die with probability 1/2. A feature that is not
there has precision and density of weights from the prior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betaln, log_ndtr, logsumexp

from bmfjax.kernels.features.density import (
    HALF_LOG_2PI,
    FeatureData,
    FeatureDensity,
    log_bits,
    log_likelihood,
    log_moment,
    log_slab,
    normal_precision,
)
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile
from bmfjax.kernels.numerics.uniforms import draw_uniforms, gumbels, integers, logistics, normals

#: Columns that propose rows, the steepness of their chances, where these are one half (in standard
#: deviations of the scores), and the least and most of them.
SEEDS, GAIN, OFFSETS, LEAST = 16, 3.0, (0.0, 1.0), 0.02
#: Newton steps to the weights, and the longest.
NEWTON, LONGEST = 6, 3.0


class Laplace(NamedTuple):
    """Normal approximations of the weights of all columns, (columns,) each."""

    mean: jax.Array
    precision: jax.Array
    log_odds: jax.Array  # that the feature concerns the column


def reborn(key, position, psi, data: FeatureData, density: FeatureDensity, power, first: int):
    """Let one feature, at random from `first` on, be born again or die.

    Returns the position, the log odds, and whether the feature has changed, () bool.
    """
    finds, (columns, rows), rank = density.presence is not None, psi.shape, density.rank
    which, seeds, one, own_rows, weights = draw_uniforms(
        key, psi.dtype, (rank,), (SEEDS,), (5,), (rows,), (2, columns)
    )
    present = position["presence"] > 0 if finds else jnp.ones(rank, bool)
    may = jnp.arange(rank) >= first
    k = jnp.argmax(jnp.where(may, _log_chosen(present, may), -jnp.inf) + gumbels(which))
    usage, basis, there = position["usage"][:, k], position["basis"][:, k], present[k]
    rest = psi - basis[:, None] * usage
    seeds = _row_chances(seeds, rest, data.signs)
    of = position["factor_precision"][k], position["basis_density"][k]

    def over(usage, laplace, basis, likelihood):
        """Return the log of target over proposal of a feature that is there."""
        active = basis != 0
        target = power * likelihood + _log_usage(usage)
        target += log_bits(active.sum(), len(basis), of[1])
        target += jnp.sum(jnp.where(active, log_slab(density, basis, of[0]), 0.0))
        proposal = _log_proposed_rows(usage, seeds)
        proposal += _log_proposed_weights(basis, laplace, density)
        return target - proposal

    # The old way and the new one beside each other: what they share is compiled once.
    new_usage = _propose_rows(one[:3], own_rows, seeds)
    usages = jnp.stack([usage, new_usage])
    ways = jax.vmap(lambda z: _laplace(rest, z, data.signs, of, density, power))(usages)
    new_basis = _propose_weights(weights, Laplace(*(x[1] for x in ways)), density)
    bases = jnp.stack([basis, new_basis])
    added = (jnp.pad(x, ((0, 1), (0, 0))) for x in (bases, usages))
    # One after the other: XLA would find out for each number whose it is.
    likelihoods = lax.map(
        lambda own: log_likelihood(data.signs, rest + own[0][:, None] * own[1]), tuple(added)
    )
    old, new = jax.vmap(over)(usages, ways, bases, likelihoods[:2])
    born = jnp.asarray(True)
    if finds:
        share = position["presence_share"]
        absent = power * likelihoods[2] + jnp.log1p(-share)
        # While the likelihood counts less than in full, features would die that are there.
        born = (one[3] < 0.5) | ~there | (jnp.asarray(power) < 1.0)
        # The other way is proposed for another number of features, and a birth is never another.
        ways = [_log_chosen(present.at[k].set(now), may)[k] for now in (True, False)]
        own = jnp.log(share) + ways[0] - math.log(2.0)
        old = jnp.where(there, old + own, absent + ways[1])
        new = jnp.where(born, new + own, absent + ways[1])
    accepted = jnp.log(one[4]) < new - old
    new_usage, new_basis = (jnp.where(born, x, 0.0) for x in (new_usage, new_basis))
    usage = jnp.where(accepted, new_usage, usage)
    basis = jnp.where(accepted, new_basis, basis)
    position = position | {
        "usage": position["usage"].at[:, k].set(usage),
        "basis": position["basis"].at[:, k].set(basis),
    }
    if finds:
        there = jnp.where(accepted, born, there).astype(psi.dtype)
        position["presence"] = position["presence"].at[k].set(there)
    return position, rest + basis[:, None] * usage, accepted


def _log_chosen(present, may):
    """Return the log chances of features to be chosen, (rank,), of those that may be."""
    absent, present = may & ~present, may & present
    numbers = jnp.where(present, present.sum(), absent.sum())
    halves = jnp.where(present.any() & absent.any(), math.log(2.0), 0.0)
    return -jnp.log(jnp.maximum(numbers, 1)) - halves


def _log_usage(usage):
    """Return the log prior of the rows of a feature, its density summed out."""
    ones = usage.sum()
    return betaln(1.0 + ones, 1.0 + len(usage) - ones)


def _row_chances(uniform, rest, signs):
    """Return the chances of all rows, (component, rows)."""
    residuals = jnp.where(signs != 0, 0.5 * signs - 0.5 * jnp.tanh(0.5 * rest), 0.0)
    chosen = residuals[integers(uniform, len(signs))]
    score = (chosen @ residuals.T) @ residuals
    score -= score.mean(1, keepdims=True)
    score /= jnp.sqrt((score**2).mean(1, keepdims=True)) + jnp.finfo(score.dtype).tiny
    found = [jax.nn.sigmoid(GAIN * (score - offset)) for offset in OFFSETS]
    return jnp.clip(jnp.concatenate(found), LEAST, 1.0 - LEAST)


def _propose_rows(uniforms, uniform, seeds):
    """Propose the rows of a feature, by three uniform numbers and one for each row."""
    way, chosen, common = uniforms
    informed = seeds[integers(chosen, len(seeds))]
    return (uniform < jnp.where(way < 0.5, common, informed)).astype(seeds.dtype)


def _log_proposed_rows(usage, seeds):
    odds = jnp.log(seeds) - jnp.log1p(-seeds)
    informed = odds @ usage + jnp.sum(jnp.log1p(-seeds), 1)
    informed = logsumexp(informed) - math.log(len(seeds))
    return jnp.logaddexp(informed, _log_usage(usage)) - math.log(2.0)


def _laplace(rest, usage, signs, of, density: FeatureDensity, power) -> Laplace:
    """Approximate the posterior of the weights of a feature with these rows."""
    (precision, chance), counts, moment = of, usage * power, density.moment
    own = normal_precision(density, precision)

    def over_rows(terms):
        # A product of matrices, which runs in vector instructions where a sum of rows does not.
        return jnp.where(signs != 0, terms, 0.0) @ counts

    def newton(_, at):
        v, slope, bend = at
        new = v + jnp.clip(slope / bend, -LONGEST, LONGEST)
        # Half of the way to zero, where a power of the weight has no slope.
        v = new if density.is_signed else jnp.maximum(new, 0.5 * v)
        p = jax.nn.sigmoid(rest + v[:, None])
        slope = over_rows((signs > 0) - p) - own * v
        bend = over_rows(p * (1.0 - p)) + own
        return (v, slope + moment / v, bend + moment / v**2) if moment else (v, slope, bend)

    # The mode of the prior, which is zero without a moment.
    start = jnp.full_like(rest[:, 0], jnp.sqrt(moment / own) if moment else 0.0)
    # The first step is none, and finds the slopes there.
    start = start, jnp.zeros_like(start), jnp.ones_like(start)
    v, slope, bend = lax.fori_loop(0, NEWTON + 1, newton, start)
    here, there = (jax.nn.log_sigmoid(signs * x) for x in (rest, rest + v[:, None]))
    gained = over_rows(there - here) - 0.5 * own * v * v
    gained += 0.5 * (slope * slope / bend + jnp.log(own / bend))
    mean = v + slope / bend
    if not density.is_signed:
        gained += log_moment(density, v, own) + log_ndtr(mean * jnp.sqrt(bend))
    return Laplace(mean, bend, jnp.log(chance) - jnp.log1p(-chance) + gained)


def _propose_weights(uniforms, laplace: Laplace, density: FeatureDensity):
    """Propose the weights of all columns, by two uniform numbers for each."""
    (spike, slab), (mean, precision, odds) = uniforms, laplace
    if density.is_signed:
        slab = mean + normals(slab) * lax.rsqrt(precision)
    else:
        slab = truncated_normal_quantile(slab, mean * precision, precision, 0.0, jnp.inf)
    return jnp.where(odds > logistics(spike), slab, 0.0)


def _log_proposed_weights(basis, laplace: Laplace, density: FeatureDensity):
    mean, precision, odds = laplace
    active = basis != 0
    slab = 0.5 * jnp.log(precision) - HALF_LOG_2PI - 0.5 * precision * (basis - mean) ** 2
    if not density.is_signed:
        slab -= log_ndtr(mean * jnp.sqrt(precision))
    spikes = jax.nn.log_sigmoid(jnp.where(active, odds, -odds))
    return jnp.sum(spikes + jnp.where(active, slab, 0.0))
