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
from jax import lax, random
from jax.scipy.special import betaln, log_ndtr, logsumexp

from bmfjax.kernels.features.density import (
    HALF_LOG_2PI,
    FeatureData,
    FeatureDensity,
    log_bits,
    log_slab,
)
from bmfjax.kernels.numerics.truncated_normal import truncated_normal

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
    finds = density.presence is not None
    keys = random.split(key, 5)
    present = position["presence"] > 0 if finds else jnp.ones(density.rank, bool)
    may = jnp.arange(density.rank) >= first
    k = random.categorical(keys[0], jnp.where(may, _log_chosen(present, may), -jnp.inf))
    usage, basis, there = position["usage"][:, k], position["basis"][:, k], present[k]
    rest = psi - basis[:, None] * usage
    seeds = _row_chances(keys[1], rest, data.signs)
    of = position["factor_precision"][k], position["basis_density"][k]

    def evaluate(usage, laplace, basis):
        """Return the log of target over proposal of a feature that is there."""
        added = basis[:, None] * usage
        target = power * _log_likelihood(rest + added, data.signs) + _log_usage(usage)
        active = basis != 0
        target += log_bits(active.sum(), len(basis), of[1])
        target += jnp.sum(jnp.where(active, log_slab(density, basis, of[0]), 0.0))
        proposal = _log_proposed_rows(usage, seeds)
        proposal += _log_proposed_weights(basis, laplace, density)
        return target - proposal

    new_usage = _propose_rows(keys[2], seeds, usage.shape[0])
    both = jnp.stack([usage, new_usage])
    ways = jax.vmap(lambda z: _laplace(rest, z, data.signs, of, density, power))(both)
    own, other = Laplace(*(x[0] for x in ways)), Laplace(*(x[1] for x in ways))
    new_basis = _propose_weights(keys[3], other, density)
    old = evaluate(usage, own, basis)
    new = evaluate(new_usage, other, new_basis)
    born = jnp.asarray(True)
    key_kind, key_accept = random.split(keys[4])
    if finds:
        share = position["presence_share"]
        absent = power * _log_likelihood(rest, data.signs) + jnp.log1p(-share)
        # While the likelihood counts less than in full, features would die that are there.
        born = random.bernoulli(key_kind) | ~there | (jnp.asarray(power) < 1.0)
        # The other way is proposed for another number of features, and a birth is never another.
        ways = [_log_chosen(present.at[k].set(now), may)[k] for now in (True, False)]
        own = jnp.log(share) + ways[0] - math.log(2.0)
        old = jnp.where(there, old + own, absent + ways[1])
        new = jnp.where(born, new + own, absent + ways[1])
    accepted = jnp.log(random.uniform(key_accept)) < new - old
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


def _log_likelihood(psi, signs):
    """Return the log likelihood, column after column: sums of more terms would round."""
    terms = jnp.where(signs != 0, jax.nn.log_sigmoid(signs * psi), 0.0)
    return jnp.sum(jnp.sum(terms, 1))


def _log_usage(usage):
    """Return the log prior of the rows of a feature, its density summed out."""
    ones = usage.sum()
    return betaln(1.0 + ones, 1.0 + len(usage) - ones)


def _row_chances(key, rest, signs):
    """Return the chances of all rows, (component, rows)."""
    residuals = jnp.where(signs != 0, 0.5 * signs - 0.5 * jnp.tanh(0.5 * rest), 0.0)
    chosen = residuals[random.randint(key, (SEEDS,), 0, len(signs))]
    score = (chosen @ residuals.T) @ residuals
    score -= score.mean(1, keepdims=True)
    score /= jnp.sqrt((score**2).mean(1, keepdims=True)) + jnp.finfo(score.dtype).tiny
    found = [jax.nn.sigmoid(GAIN * (score - offset)) for offset in OFFSETS]
    return jnp.clip(jnp.concatenate(found), LEAST, 1.0 - LEAST)


def _propose_rows(key, seeds, rows):
    keys = random.split(key, 4)
    uniform = random.uniform(keys[0], (rows,), seeds.dtype)
    chosen = seeds[random.randint(keys[1], (), 0, len(seeds))]
    common = random.uniform(keys[2], (), seeds.dtype)
    chance = jnp.where(random.bernoulli(keys[3]), common, chosen)
    return (uniform < chance).astype(seeds.dtype)


def _log_proposed_rows(usage, seeds):
    odds = jnp.log(seeds) - jnp.log1p(-seeds)
    informed = odds @ usage + jnp.sum(jnp.log1p(-seeds), 1)
    informed = logsumexp(informed) - math.log(len(seeds))
    return jnp.logaddexp(informed, _log_usage(usage)) - math.log(2.0)


def _laplace(rest, usage, signs, of, density: FeatureDensity, power) -> Laplace:
    """Approximate the posterior of the weights of a feature with these rows."""
    precision, chance = of
    counts = jnp.where(signs != 0, usage, 0.0) * power

    def slopes(v):
        p = jax.nn.sigmoid(rest + v[:, None])
        slope = jnp.sum(counts * ((signs > 0) - p), 1) - precision * v
        return slope, jnp.sum(counts * p * (1.0 - p), 1) + precision

    def newton(_, v):
        slope, bend = slopes(v)
        v = v + jnp.clip(slope / bend, -LONGEST, LONGEST)
        return v if density.is_signed else jnp.maximum(v, 0.0)

    def height(v):
        return jnp.sum(counts * jax.nn.log_sigmoid(signs * (rest + v[:, None])), 1)

    v = lax.fori_loop(0, NEWTON, newton, jnp.zeros_like(rest[:, 0]))
    slope, bend = slopes(v)
    gained = height(v) - height(jnp.zeros_like(v)) - 0.5 * precision * v * v
    gained += 0.5 * (slope * slope / bend + jnp.log(precision / bend))
    mean = v + slope / bend
    if not density.is_signed:
        gained += math.log(2.0) + log_ndtr(mean * jnp.sqrt(bend))
    return Laplace(mean, bend, jnp.log(chance) - jnp.log1p(-chance) + gained)


def _propose_weights(key, laplace: Laplace, density: FeatureDensity):
    key_spike, key_slab = random.split(key)
    mean, precision, odds = laplace
    active = odds > random.logistic(key_spike, odds.shape, odds.dtype)
    if density.is_signed:
        slab = mean + random.normal(key_slab, mean.shape, mean.dtype) * lax.rsqrt(precision)
    else:
        slab = truncated_normal(key_slab, mean * precision, precision, 0.0, jnp.inf)
    return jnp.where(active, slab, 0.0)


def _log_proposed_weights(basis, laplace: Laplace, density: FeatureDensity):
    mean, precision, odds = laplace
    active = basis != 0
    slab = 0.5 * jnp.log(precision) - HALF_LOG_2PI - 0.5 * precision * (basis - mean) ** 2
    if not density.is_signed:
        slab -= log_ndtr(mean * jnp.sqrt(precision))
    spikes = jax.nn.log_sigmoid(jnp.where(active, odds, -odds))
    return jnp.sum(spikes + jnp.where(active, slab, 0.0))
