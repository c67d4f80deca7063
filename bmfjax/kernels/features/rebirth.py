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
from jax.scipy.special import gammaln, log_ndtr, logsumexp

from bmfjax.kernels.features.density import (
    HALF_LOG_2PI,
    FeatureData,
    FeatureDensity,
    log_moment,
    log_slab,
    normal_precision,
)
from bmfjax.kernels.features.memberships import MOST, STEEP
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile
from bmfjax.kernels.numerics.uniforms import gumbels, integers, logistics, normals

#: Columns that propose rows, the steepness of their chances, where these are one half (in standard
#: deviations of the scores), and the least and most of them as log odds.
SEEDS, GAIN, OFFSETS, SURE = 16, 3.0, (0.0, 1.0), math.log(49.0)
#: So many numbers of at most 50 have a product that float32 holds.
FACTORS = 16
#: Newton steps to the weights, and the longest.
NEWTON, LONGEST = 6, 3.0


class Contrary(NamedTuple):
    """Odds of what was not observed, all at a weight of zero: (columns, rows) each.

    They are 0 where nothing was, and cut at `MOST`, as `bmfjax.kernels.features.memberships` says.
    The exponential function of a weight changes them, so that a cell needs no other.
    """

    odds: jax.Array
    of_ones: jax.Array  # where a one was observed, and 0 elsewhere
    of_zeros: jax.Array
    signs: jax.Array  # those of the data, of the type of the odds

    def at(self, weights) -> jax.Array:
        """Return the odds in rows with a feature that has these weights (columns,)."""
        raised = jnp.exp(jnp.clip(weights, -STEEP, STEEP))[:, None]
        return jnp.minimum(self.of_ones / raised + self.of_zeros * raised, MOST)

    def gain(self, weights, usage) -> jax.Array:
        """Return what a feature adds to the log likelihood of each column, (columns,)."""
        ratio = jnp.where(usage > 0.5, (1.0 + self.odds) / (1.0 + self.at(weights)), 1.0)
        odd = ratio.shape[1] % 2
        ratio = jnp.pad(ratio, ((0, 0), (0, odd)), constant_values=1.0)
        half = ratio.shape[1] // 2
        # One logarithm serves two cells.
        terms = jnp.log(ratio[:, :half] * ratio[:, half:])
        return terms @ jnp.ones(half, terms.dtype)


def contrary_odds(signs, rest) -> Contrary:
    """Return the odds of what was not observed, of signs and log odds (columns, rows)."""
    odds = jnp.exp(jnp.clip(-signs * rest, -STEEP, STEEP))
    odds = jnp.where(signs == 0, 0.0, jnp.minimum(odds, MOST))
    return Contrary(
        odds, jnp.where(signs > 0, odds, 0.0), jnp.where(signs < 0, odds, 0.0),
        signs.astype(rest.dtype),
    )  # fmt: skip


class Laplace(NamedTuple):
    """Normal approximations of the weights of all columns, (columns,) each."""

    mean: jax.Array
    precision: jax.Array
    log_odds: jax.Array  # that the feature concerns the column


def rebirth_shapes(rank: int, rows: int, columns: int) -> list[tuple[int, ...]]:
    """Return the shapes of the uniform numbers that `reborn` takes."""
    return [(rank,), (SEEDS,), (5,), (rows,), (2, columns)]


def reborn(uniforms, position, psi, data: FeatureData, density: FeatureDensity, power, first: int):
    """Let one feature, at random from `first` on, be born again or die.

    It takes uniform numbers of the `rebirth_shapes`. Returned are the position, the log odds, and
    whether the feature has changed, () bool.
    """
    finds, rank = density.presence is not None, density.rank
    which, seeds, one, own_rows, weights = uniforms
    present = position["presence"] > 0 if finds else jnp.ones(rank, bool)
    may = jnp.arange(rank) >= first
    # How many may be chosen that are absent, and that are there.
    numbers = jnp.stack([may & ~present, may & present]).sum(1)
    chances = jnp.where(present, *_log_chosen(numbers)[::-1])
    which = jnp.argmax(jnp.where(may, chances, -jnp.inf) + gumbels(which))
    pick = jnp.arange(rank) == which

    def picked(x):
        return jnp.sum(jnp.where(pick, x, 0.0), -1)

    usage, basis = picked(position["usage"]), picked(position["basis"])
    there = jnp.any(pick & present)
    rest = psi - basis[:, None] * usage
    cells = contrary_odds(data.signs, rest)
    seeds = _row_odds(seeds, cells)
    of = picked(position["factor_precision"]), picked(position["basis_density"])
    spikes = jnp.log(of[1]), jnp.log1p(-of[1])

    def over(usage, of_usage, laplace, basis, likelihood):
        """Return the log of target over proposal of a feature that is there.

        The likelihood is in units of that without the feature.
        """
        active = basis != 0
        of_columns = jnp.where(active, spikes[0] + log_slab(density, basis, of[0]), spikes[1])
        of_columns += power * likelihood - _log_proposed_weights(basis, laplace, density)
        return of_columns.sum() + of_usage - _log_proposed_rows(usage, of_usage, seeds)

    # The old way and the new one beside each other: what they share is compiled once.
    new_usage = _propose_rows(one[:3], own_rows, seeds)
    usages = jnp.stack([usage, new_usage])
    ways = jax.vmap(lambda z: _laplace(cells, z, of, density, power))(usages)
    new_basis = _propose_weights(weights, Laplace(*(x[1] for x in ways)), density)
    bases = jnp.stack([basis, new_basis])
    likelihoods, of_usages = jax.vmap(cells.gain)(bases, usages), _log_usage(usages)
    old, new = jax.vmap(over)(usages, of_usages, ways, bases, likelihoods)
    born = jnp.asarray(True)
    if finds:
        share = position["presence_share"]
        absent = jnp.log1p(-share)
        # While the likelihood counts less than in full, features would die that are there.
        born = (one[3] < 0.5) | ~there | (jnp.asarray(power) < 1.0)
        # The other way is proposed for another number of features, and a birth is never another.
        others = numbers - jnp.stack([~there, there])
        now_absent, now_there = others + jnp.array([1, 0]), others + jnp.array([0, 1])
        own = jnp.log(share) + _log_chosen(now_there)[1] - math.log(2.0)
        absent += _log_chosen(now_absent)[0]
        old = jnp.where(there, old + own, absent)
        new = jnp.where(born, new + own, absent)
    accepted = jnp.log(one[4]) < new - old
    new_usage, new_basis = (jnp.where(born, x, 0.0) for x in (new_usage, new_basis))
    usage = jnp.where(accepted, new_usage, usage)
    basis = jnp.where(accepted, new_basis, basis)
    position = position | {
        "usage": jnp.where(pick, usage[:, None], position["usage"]),
        "basis": jnp.where(pick, basis[:, None], position["basis"]),
    }
    if finds:
        there = jnp.where(accepted, born, there).astype(psi.dtype)
        position["presence"] = jnp.where(pick, there, position["presence"])
    return position, rest + basis[:, None] * usage, accepted


def _log_chosen(numbers):
    """Return the log chances (2,) of one of the features that are absent, and that are there."""
    halves = jnp.where(jnp.all(numbers > 0), math.log(2.0), 0.0)
    return -jnp.log(jnp.maximum(numbers, 1)) - halves


def _log_usage(usages):
    """Return the log priors of the rows of features (feature, rows), the density summed out."""
    ones, rows = usages.sum(1), usages.shape[1]
    return gammaln(1.0 + jnp.stack([ones, rows - ones])).sum(0) - math.lgamma(2.0 + rows)


def _row_odds(uniform, cells: Contrary):
    """Return the log odds of all rows, (component, rows), which are at most `SURE`."""
    residuals = cells.signs * cells.odds / (1.0 + cells.odds)
    chosen = residuals[integers(uniform, len(residuals))]
    score = (chosen @ residuals.T) @ residuals
    score -= score.mean(1, keepdims=True)
    score /= jnp.sqrt((score**2).mean(1, keepdims=True)) + jnp.finfo(score.dtype).tiny
    found = jnp.concatenate([GAIN * (score - offset) for offset in OFFSETS])
    return jnp.clip(found, -SURE, SURE)


def _propose_rows(uniforms, uniform, seeds):
    """Propose the rows of a feature, by three uniform numbers and one for each row."""
    way, chosen, common = uniforms
    informed = jax.nn.sigmoid(seeds[integers(chosen, len(seeds))])
    return (uniform < jnp.where(way < 0.5, common, informed)).astype(seeds.dtype)


def _log_proposed_rows(usage, of_usage, seeds):
    # One logarithm serves as many rows as their product has room for.
    beyond, width = -seeds.shape[1] % FACTORS, -(-seeds.shape[1] // FACTORS)
    factors = jnp.pad(1.0 + jnp.exp(seeds), ((0, 0), (0, beyond)), constant_values=1.0)
    while factors.shape[1] > width:
        half = factors.shape[1] // 2
        factors = factors[:, :half] * factors[:, half:]
    informed = seeds @ usage - jnp.sum(jnp.log(factors), 1)
    informed = logsumexp(informed) - math.log(len(seeds))
    return jnp.logaddexp(informed, of_usage) - math.log(2.0)


def _laplace(cells: Contrary, usage, of, density: FeatureDensity, power) -> Laplace:
    """Approximate the posterior of the weights of a feature with these rows."""
    (precision, chance), counts, moment = of, usage * power, density.moment
    own = normal_precision(density, precision)

    def newton(_, at):
        v, slope, bend = at
        new = v + jnp.clip(slope / bend, -LONGEST, LONGEST)
        # Half of the way to zero, where a power of the weight has no slope.
        v = new if density.is_signed else jnp.maximum(new, 0.5 * v)
        odds = cells.at(v)
        rest = 1.0 / (1.0 + odds)
        wrong = odds * rest
        # Products of matrices, which run in vector instructions where sums of rows do not.
        slope = (cells.signs * wrong) @ counts - own * v
        bend = (wrong * rest) @ counts + own
        return (v, slope + moment / v, bend + moment / v**2) if moment else (v, slope, bend)

    # The mode of the prior, which is zero without a moment.
    start = jnp.full_like(cells.odds[:, 0], jnp.sqrt(moment / own) if moment else 0.0)
    # The first step is none, and finds the slopes there.
    start = start, jnp.zeros_like(start), jnp.ones_like(start)
    v, slope, bend = lax.fori_loop(0, NEWTON + 1, newton, start)
    gained = power * cells.gain(v, usage) - 0.5 * own * v * v
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
    """Return the log densities of the weights of all columns, (columns,)."""
    mean, precision, odds = laplace
    active = basis != 0
    slab = 0.5 * jnp.log(precision) - HALF_LOG_2PI - 0.5 * precision * (basis - mean) ** 2
    if not density.is_signed:
        slab -= log_ndtr(mean * jnp.sqrt(precision))
    spikes = jax.nn.log_sigmoid(jnp.where(active, odds, -odds))
    return spikes + jnp.where(active, slab, 0.0)
