r"""A feature is born again, or dies: Metropolis-Hastings with a proposal that ignores its state.

Given all other features and effects, the rows z, the columns u and the weights v of one feature are
proposed anew. Its densities and its precision are summed out: their values fit the old rows and
columns, and would hold a feature with others back. A sweep draws them next.

* z is drawn with probability 1/5 from its prior with the density summed out, and otherwise from a
  mixture over some pairs of columns. A column j is drawn uniformly, and another one by the square
  of the statistic of `bmfjax.kernels.features.seeds`, of the residuals that the other features
  leave. Rows in which both residuals add up to more than nothing start an EM algorithm. It takes
  damped Newton steps to the weights, and finds the chances of the rows given the weights of those
  columns that are rather concerned than not. These are the component's. Pairs are drawn anew for
  every move, and do not depend on the state of the feature;
* u and v, given z, are drawn column by column from the Laplace approximation of their posterior: a
  logistic regression in one weight, about a point that a fixed number of damped Newton steps
  reaches. Density and precision of the weights are those that a first approximation finds.

The density of the proposal is known, so that the ratio is exact. Where the number of features is
unknown the feature is with probability 1/2 one of those that are not there, which is to be born,
and otherwise one of those that are, which is to die with probability 1/2.
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

#: Pairs of columns from which rows are sought, and rounds of that.
SEEDS, ROUNDS = 3, 4
#: Size of a pair's statistic up to which it says nothing.
NOISE = 1.0
#: Chance that rows are drawn from the prior; the least and most log odds of rows that are not.
COMMON, SURE = 0.2, 8.0
#: Log odds that a column is concerned, at first.
SPIKE = -1.0
#: Approximations, of which each finds density and precision for the next; Newton steps of one, and
#: the longest.
ATTEMPTS, NEWTON, LONGEST = 2, 3, 3.0


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
    return [(rank,), (SEEDS,), (SEEDS, columns), (5,), (rows,), (2, columns)]


def reborn(uniforms, position, psi, data: FeatureData, density: FeatureDensity, power, first: int):
    """Let one feature, at random from `first` on, be born again or die.

    It takes uniform numbers of the `rebirth_shapes`. Returned are the position, the log odds, and
    whether the feature has changed, () bool.
    """
    finds, rank = density.presence is not None, density.rank
    which, firsts, seconds, one, own_rows, weights = uniforms
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
    seeds = _row_odds(firsts, seconds, cells, density, power)

    def over(usage, laplace, basis, likelihood):
        """Return the log of target over proposal of a feature that is there.

        The likelihood is in units of that without the feature.
        """
        of_usage, of_basis = _log_priors(usage, basis, density)
        of_columns = power * likelihood - _log_proposed_weights(basis, laplace, density)
        return of_columns.sum() + of_basis + of_usage - _log_proposed_rows(usage, of_usage, seeds)

    # The old way and the new one beside each other: what they share is compiled once.
    new_usage = _propose_rows(one[:3], own_rows, seeds)
    usages = jnp.stack([usage, new_usage])
    ways = jax.vmap(lambda z: _laplace(cells, z, density, power))(usages)
    new_basis = _propose_weights(weights, Laplace(*(x[1] for x in ways)), density)
    bases = jnp.stack([basis, new_basis])
    likelihoods = jax.vmap(cells.gain)(bases, usages)
    old, new = jax.vmap(over)(usages, ways, bases, likelihoods)
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


def _log_priors(usage, basis, density: FeatureDensity):
    """Return the log priors of rows and of weights, densities and precision summed out: () each."""
    (shape, rate), half, active = density.slab, 0.5 * (density.moment + 1), basis != 0
    rows, columns = (x.sum(dtype=basis.dtype) for x in (usage, active))
    shapes = [rows, len(usage) - rows, columns, len(basis) - columns, shape + half * columns - 1.0]
    found = gammaln(1.0 + jnp.stack(shapes))
    some = jnp.where(active, basis, 1.0)
    # What does not depend on the precision.
    slabs = log_slab(density, some, 1.0) + half * some**2
    weights = jnp.where(active, slabs, 0.0).sum() + found[2:].sum()
    weights -= (shape + half * columns) * jnp.log(rate + half * jnp.sum(basis**2))
    weights += shape * math.log(rate) - math.lgamma(shape) - math.lgamma(2.0 + len(basis))
    return found[:2].sum() - math.lgamma(2.0 + len(usage)), weights


def _row_odds(firsts, seconds, cells: Contrary, density: FeatureDensity, power):
    """Return log odds of all rows, (pair, rows): those that seem to have a feature."""
    wrong = cells.odds / (1.0 + cells.odds)
    residuals, variances = cells.signs * wrong, wrong / (1.0 + cells.odds)
    first = integers(firsts, len(residuals))
    score = residuals[first] @ residuals.T
    score *= lax.rsqrt(variances[first] @ variances.T + 1e-6)
    score = jnp.where(jnp.arange(len(residuals)) == first[:, None], 0.0, score)
    size = jnp.abs(score) if density.is_signed else score
    weights = 2.0 * jnp.log(jnp.maximum(size - NOISE, 1e-12))
    second = jnp.argmax(weights + gumbels(seconds), 1)
    sign = jnp.sign(jnp.take_along_axis(score, second[:, None], 1))
    starts = (residuals[first] + sign * residuals[second] > 0).astype(residuals.dtype)
    return lax.map(lambda start: _refined(start, cells, density, power), starts)


def _refined(start, cells: Contrary, density: FeatureDensity, power):
    """Return log odds that rows have a feature, (rows,), found from bits at the start.

    A round of this EM algorithm takes a Newton step to the weights given the chances of the rows,
    and then finds the chances given the weights of the columns that are rather concerned than not.
    """
    own, moment = _own_precision(density), density.moment

    def one_round(_, at):
        v, odds, spike = at
        r = jax.nn.sigmoid(odds)
        counts = r * power
        slope, bend = _slopes(v, counts, cells, own, density)
        v = _stepped(v, slope, bend, density)
        change = jnp.log((1.0 + cells.odds) / (1.0 + cells.at(v)))
        gained = change @ counts - 0.5 * own * v * v + 0.5 * jnp.log(own / bend)
        if moment:
            gained += log_moment(density, v, own)
        concerned = (gained + spike > 0).astype(v.dtype)
        odds = jnp.clip(power * (concerned @ change) + _share(r), -SURE, SURE)
        return v, odds, _share(concerned)

    v = jnp.full_like(cells.odds[:, 0], math.sqrt(moment / own))
    odds = jnp.where(start > 0.5, SURE, -SURE)
    start = v, odds, jnp.full((), SPIKE, v.dtype)
    return lax.fori_loop(0, ROUNDS, one_round, start)[1]


def _own_precision(density: FeatureDensity) -> float:
    """Return the precision of the normal part of the density of weights that are proposed."""
    shape, rate = density.slab
    return normal_precision(density, shape / rate)


def _share(chances):
    """Return the log odds of a bit beside others that are ones with these chances."""
    ones = chances.sum()
    return jnp.log((1.0 + ones) / (1.0 + len(chances) - ones))


def _slopes(v, counts, cells: Contrary, own, density: FeatureDensity):
    """Return slope and curvature (columns,) of the log posteriors of weights v."""
    odds = cells.at(v)
    rest = 1.0 / (1.0 + odds)
    wrong = odds * rest
    # Products of matrices, which run in vector instructions where sums of rows do not.
    slope = (cells.signs * wrong) @ counts - own * v
    bend = (wrong * rest) @ counts + own
    if not density.moment:
        return slope, bend
    return slope + density.moment / v, bend + density.moment / v**2


def _stepped(v, slope, bend, density: FeatureDensity):
    """Return where a damped Newton step leads."""
    new = v + jnp.clip(slope / bend, -LONGEST, LONGEST)
    # Half of the way to zero, where a power of the weight has no slope.
    return new if density.is_signed else jnp.maximum(new, 0.5 * v)


def _propose_rows(uniforms, uniform, seeds):
    """Propose the rows of a feature, by three uniform numbers and one for each row."""
    way, chosen, common = uniforms
    informed = jax.nn.sigmoid(seeds[integers(chosen, len(seeds))])
    return (uniform < jnp.where(way < COMMON, common, informed)).astype(seeds.dtype)


def _log_proposed_rows(usage, of_usage, seeds):
    informed = seeds @ usage - jnp.sum(jax.nn.softplus(seeds), 1)
    informed = logsumexp(informed) - math.log(len(seeds))
    return jnp.logaddexp(math.log(1.0 - COMMON) + informed, math.log(COMMON) + of_usage)


def _laplace(cells: Contrary, usage, density: FeatureDensity, power) -> Laplace:
    """Approximate the posterior of the weights of a feature with these rows.

    Density and precision of its weights are first guessed, and then found from a first one.
    """
    counts, moment = usage * power, density.moment
    units, half, (shape, rate) = moment + 1, 0.5 * (moment + 1), density.slab

    def attempt(_, at):
        _, v, own, spike = at

        def newton(_, at):
            v = _stepped(*at, density)
            return v, *_slopes(v, counts, cells, own, density)

        # The first step is none, and finds the slopes there.
        start = v, jnp.zeros_like(v), jnp.ones_like(v)
        v, slope, bend = lax.fori_loop(0, NEWTON + 1, newton, start)
        gained = power * cells.gain(v, usage) - 0.5 * own * v * v
        gained += 0.5 * (slope * slope / bend + jnp.log(own / bend))
        mean = v + slope / bend
        if not density.is_signed:
            gained += log_moment(density, v, own) + log_ndtr(mean * jnp.sqrt(bend))
        chance = jax.nn.sigmoid(spike + gained)
        spike = _share(chance)
        own = units * (shape + half * chance.sum()) / (rate + half * chance @ (v * v))
        return Laplace(mean, bend, spike + gained), v, own, spike

    # The mode of the prior, which is zero without a moment.
    own = jnp.asarray(_own_precision(density), cells.odds.dtype)
    v = jnp.full_like(cells.odds[:, 0], math.sqrt(moment / _own_precision(density)))
    start = Laplace(v, v, v), v, own, jnp.full((), SPIKE, v.dtype)
    return lax.fori_loop(0, ATTEMPTS, attempt, start)[0]


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
