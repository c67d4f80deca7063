r"""Factors that are there or not: two become one, one becomes two, empty ones come and go.

With `PoissonDensity.presence` all numbers of factors up to the rank are equally probable, and so
are all sets of as many. A factor that is not there has no usage and no spectrum.

*Empty factors.* One of which no count is has the likelihood
:math:`\prod_i (\beta_k / (\beta_k + e_{ik}))^a` with its usage summed out, e the exposures of the
rows; it is there, or not, by this and the prior.

*Two and one.* The counts of a pair, z, are drawn from their conditional; then the usage and the
spectra of both are summed out, so that what is compared are

.. math::

   \prod_i \frac{\Gamma(a + n_i)\, \beta^a}{\Gamma(a) (\beta + e_i)^{a + n_i}} \cdot
   \frac{\Gamma(Jc)}{\Gamma(Jc + n)} \prod_j \frac{\Gamma(c + m_j)}{\Gamma(c)}

for one factor with all counts and for two. How counts are divided is proposed in two ways, each the
reverse of a merger of its own:

* *apart*, as restricted Gibbs sampling does (Jain, Neal 2004, "A split-merge Markov chain Monte
  Carlo procedure for the Dirichlet process mixture model", JCGS 13): from a random start some steps
  of maximisation, which see the sums of the pair alone, and then a binomial draw an entry. It finds
  two factors that one stands for. A merger is judged by the probability of that draw;
* *evenly*, in every row by a share that is drawn from its prior, Beta(a, a), and is the same for
  all columns: the reverse of which joins two factors with one spectrum.

The rate of a new factor is proposed near its conditional mode. Pairs with like spectra are proposed
more often, which the ratio takes into account.

Where exposures differ by column (missing entries, overdispersion), counts that were not seen make
them equal, as in `bmfjax.kernels.poisson.gibbs`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.beta import draw_gamma, draw_same_beta
from bmfjax.kernels.numerics.binomial import draw_binomial, log_beta
from bmfjax.kernels.poisson.density import LEAST, PoissonData, PoissonDensity, log_prior_number

#: Steps of maximisation before counts are divided; how much more like pairs are proposed.
STEPS, CONTRAST = 12, 8.0


class Cells(NamedTuple):
    """Entries that may hold counts of a pair of factors."""

    row: jax.Array  # (cell,) int32; a row beyond the last pads
    column: jax.Array  # (cell,) int32
    count: jax.Array  # (cell,) float, observed
    unseen: jax.Array | None  # (cell,) float: exposure that it lacks
    exposure: jax.Array  # (rows,) float, the same for all columns


# ---- empty factors -------------------------------------------------------------------------------


def draw_presence(key, position: dict, of_rows, weights, density: PoissonDensity, exposed) -> dict:
    """Draw which factors without counts are there, one after the other.

    `exposed(basis)` returns the exposures (rows, rank) of spectra. The usage is as it was: it is
    drawn next.
    """
    key_prior, key_there = random.split(key)
    rank, columns = density.rank, len(position["basis"])
    kind = position["basis"].dtype
    there = position["presence"] > 0
    shape, rate = density.rate
    of_prior = jnp.full((columns + 1, rank), shape, kind)
    of_prior = of_prior.at[:columns].set(density.concentration(position))
    drawn = draw_gamma(key_prior, of_prior)
    spectra = jnp.maximum(drawn[:columns], LEAST)
    basis = jnp.where(there, position["basis"], spectra / jnp.sum(spectra, 0))
    rates = jnp.where(there, position["rate"], drawn[columns] / rate)
    # That a factor has no count, its usage summed out.
    log_none = -density.usage_shape * jnp.sum(jnp.log1p(exposed(weights, basis) / rates), 0)
    is_empty = jnp.sum(of_rows, 0) == 0
    number = jnp.sum(there)

    def draw(number, part):
        own, none, empty, uniform = part
        others = number - own
        log_odds = none + log_prior_number(density, others + 1) - log_prior_number(density, others)
        present = jnp.where(empty, jnp.log(uniform) - jnp.log1p(-uniform) < log_odds, own)
        present = present | (others == 0)
        return others + present, present

    uniforms = random.uniform(key_there, (rank,), kind, minval=1e-7)
    _, present = lax.scan(draw, number, (there, log_none, is_empty, uniforms))
    found = {"presence": present.astype(kind), "rate": rates}
    return position | found | {"basis": jnp.where(present, basis, 0.0)}


# ---- two and one ---------------------------------------------------------------------------------


def split_or_merge(
    key, position: dict, weights, density: PoissonDensity, data: PoissonData
) -> dict:
    """Propose to divide a factor, or to join two, and accept by Metropolis and Hastings."""
    keys = random.split(key, 6)
    usage, basis, rate = (position[name] for name in ("usage", "basis", "rate"))
    rows, columns = len(usage), len(basis)
    uniforms = random.uniform(keys[0], (5,), usage.dtype, minval=1e-7)
    there = position["presence"] > 0
    number = jnp.sum(there)
    merges, is_even = uniforms[0] < 0.5, uniforms[1] < 0.5
    k = _choose(uniforms[2], jnp.where(there, 0.0, -jnp.inf))
    like = _likeness(basis, there, k)
    other = _choose(uniforms[3], jnp.where(merges, like, jnp.where(there, -jnp.inf, 0.0)))
    possible = jnp.where(merges, number > 1, number < density.rank)
    cells = cells_of(weights, data)

    # The counts of the pair.
    first, second = (
        usage.at[cells.row, f].get(mode="fill", fill_value=0.0) * basis[cells.column, f]
        for f in (k, other)
    )
    whole = jnp.sum(usage.at[cells.row].get(mode="fill", fill_value=1.0) * basis[cells.column], 1)
    both = draw_binomial(keys[1], cells.count, (first + second) / whole)
    if cells.unseen is not None:
        key_unseen = random.fold_in(keys[1], 1)
        both += random.poisson(key_unseen, cells.unseen * (first + second)).astype(both.dtype)
    a, c = density.usage_shape, density.concentration(position)
    share = launched(keys[2], both, cells, (a, c), rows, columns)
    even = draw_same_beta(random.fold_in(keys[2], 1), a, a, (rows,), usage.dtype)
    even = even.at[cells.row].get(mode="fill", fill_value=0.5)
    known = first / jnp.maximum(first + second, LEAST**2)
    proposed = jnp.where(is_even, even, share)
    own = draw_binomial(keys[3], both, jnp.where(merges, known, proposed))
    pair = [_sums(part, cells, rows, columns) for part in (own, both - own)]
    sums = [jnp.stack([x, y, x + y]) for x, y in zip(*pair, strict=True)]
    log_apart = jnp.sum(_times_log(own, share) + _times_log(both - own, 1.0 - share))
    log_even = jnp.sum(log_beta(a + sums[0][0], a + sums[0][1]) - log_beta(a, jnp.asarray(a)))
    log_proposed = jnp.where(is_even, log_even, log_apart)
    # For the first, the second and both together.
    modes = rate_mode(sums[0], cells.exposure, density)
    given = jnp.stack([rate[k], rate[other], rate[k]])
    is_given = jnp.stack([merges, merges, ~merges])
    # The last is of a factor that is joined to another, whose rate has its prior.
    shapes = jnp.full(3, _proposal_shape(density, rows), rate.dtype)
    cubes = draw_gamma(keys[4], jnp.append(shapes, density.rate[0]).astype(rate.dtype))
    rates = jnp.where(is_given, given, modes * cubes[:3] / shapes)
    of_rates = log_rates_near(rates, modes, density, rows)
    drawn_usage, drawn_basis = draw_factors(keys[5], sums, rates, cells.exposure, (a, c))
    # The state with two factors, in which the pair may be chosen.
    new = basis.at[:, k].set(drawn_basis[0]).at[:, other].set(drawn_basis[1])
    of_two = _likeness(jnp.where(merges, basis, new), there.at[other].set(True), k)
    fewer = number - merges
    log_choose = (
        jax.nn.log_softmax(of_two)[other] - jnp.log(fewer + 1.0)  # two to be joined
        + jnp.log(fewer) + jnp.log(density.rank - fewer)  # one to be divided, and a place
    )  # fmt: skip
    log_ratio = (
        log_split_ratio(sums, rates, cells.exposure, c, density)
        - log_proposed - of_rates[0] - of_rates[1] + of_rates[2] + log_choose
        + log_prior_number(density, fewer + 1) - log_prior_number(density, fewer)
    )  # fmt: skip
    log_ratio = jnp.where(merges, -log_ratio, log_ratio)
    accepted = possible & (jnp.log(uniforms[4]) < log_ratio)

    prior = cubes[3] / density.rate[1]
    alone = jnp.where(merges, 2, 0)  # what is in the place of factor k
    moved = {
        "usage": usage.at[:, k].set(drawn_usage[alone])
        .at[:, other].set(jnp.where(merges, 0.0, drawn_usage[1])),
        "basis": basis.at[:, k].set(drawn_basis[alone])
        .at[:, other].set(jnp.where(merges, 0.0, drawn_basis[1])),
        "rate": rate.at[k].set(rates[alone]).at[other].set(jnp.where(merges, prior, rates[1])),
        "presence": position["presence"].at[other].set(jnp.where(merges, 0.0, 1.0)),
    }  # fmt: skip
    return position | {n: jnp.where(accepted, v, position[n]) for n, v in moved.items()}


def cells_of(weights, data: PoissonData) -> Cells:
    """Return the entries at which factors have counts: all, where some counts were not seen."""
    if weights.ndim == 1:
        row, column, count = (part.ravel() for part in data.entries)
        return Cells(row, column, count, None, weights)
    shape, most = weights.shape, jnp.max(weights, 1)
    row, column = (part.ravel() for part in jnp.indices(shape, jnp.int32))
    entry, of, number = (part.ravel() for part in data.entries)
    count = jnp.zeros(shape, weights.dtype).at[entry, of].add(number, mode="drop")
    return Cells(row, column, count.ravel(), (most[:, None] - weights).ravel(), most)


def _choose(uniform, log_weights) -> jax.Array:
    """Return the factor that a uniform number stands for under log weights; any if all are none."""
    below = jnp.cumsum(jax.nn.softmax(jnp.maximum(log_weights, -1e30)))
    return jnp.minimum(jnp.sum(below < uniform * below[-1]), len(below) - 1)


def _likeness(basis, there, k) -> jax.Array:
    """Return log weights (rank,) with which factors are chosen to be joined with factor k."""
    length = jnp.sqrt(jnp.sum(basis**2, 0))
    cosine = basis.T @ basis[:, k] / jnp.maximum(length * length[k], LEAST)
    return jnp.where(there & (jnp.arange(len(there)) != k), CONTRAST * cosine, -jnp.inf)


def launched(key, both, cells: Cells, prior: tuple, rows: int, columns: int):
    """Return the probability (cell,) that a count of a pair is of the first, found from the sums.

    From random tendencies of rows and columns, by steps of expectation and maximisation. `prior` is
    the shape of the usage and the concentration of the spectra.
    """
    normal = random.normal(key, (rows + columns,), both.dtype)
    tendency = normal[:rows].at[cells.row].get(mode="fill", fill_value=0.0)
    tendency += normal[rows + cells.column]
    a, c = prior

    def climb(_, share):
        odds = 1.0
        for own, power in ((both * share, 1.0), (both - both * share, -1.0)):
            of_rows, of_columns = _sums(own, cells, rows, columns)
            spread = (of_columns + c) / (jnp.sum(of_columns) + columns * c)
            padded = (of_rows + a).at[cells.row].get(mode="fill", fill_value=1.0)
            odds *= (padded * spread[cells.column]) ** power
        return odds / (1.0 + odds)

    share = lax.fori_loop(0, STEPS, climb, jax.nn.sigmoid(tendency))
    return jnp.clip(share, 1e-6, 1.0 - 1e-6)


def _sums(part, cells: Cells, rows: int, columns: int):
    """Return the sums of counts (cell,) of every row and of every column."""
    return (
        jnp.zeros(rows, part.dtype).at[cells.row].add(part, mode="drop"),
        jnp.zeros(columns, part.dtype).at[cells.column].add(part),
    )


def _times_log(count, share):
    return jnp.where(count > 0, count * jnp.log(share), 0.0)


def draw_factors(key, sums, rates, exposure, prior: tuple):
    """Draw usage (factor, rows) and spectra (factor, columns) of factors given their counts."""
    rows = sums[0].shape[1]
    shapes = tuple(start + part for start, part in zip(prior, sums, strict=True))
    drawn = draw_gamma(key, jnp.concatenate(shapes, 1))
    usage, spectra = drawn[:, :rows], jnp.maximum(drawn[:, rows:], LEAST)
    usage = usage / (rates[:, None] + exposure)
    spectra = spectra / jnp.sum(spectra, 1, keepdims=True)
    return jnp.maximum(usage, LEAST), jnp.maximum(spectra, LEAST)


# ---- rates ---------------------------------------------------------------------------------------


def rate_mode(of_rows, exposure, density: PoissonDensity) -> jax.Array:
    """Return about the rates (factor,) that factors with these counts (factor, rows) have."""
    a, (g, h) = density.usage_shape, density.rate
    # Rows of which nothing is observed have no say.
    seen = exposure > 0
    most, unit = g + a * jnp.sum(seen), jnp.where(seen, exposure, 1.0)

    def better(_, rate):
        usage = (a + of_rows) / (rate[:, None] + unit)
        return most / (h + jnp.sum(jnp.where(seen, usage, 0.0), 1))

    first = better(0, jnp.zeros(len(of_rows), of_rows.dtype))
    return lax.fori_loop(0, 8, better, first)


def log_rates_near(rates, modes, density: PoissonDensity, rows: int) -> jax.Array:
    """Return the log densities of rates proposed about their modes, wider than the conditionals."""
    shape = _proposal_shape(density, rows)
    slope = shape / modes
    return (
        shape * jnp.log(slope) + (shape - 1.0) * jnp.log(rates) - slope * rates - math.lgamma(shape)
    )


def _proposal_shape(density: PoissonDensity, rows: int) -> float:
    return 0.5 * (density.rate[0] + rows * density.usage_shape)


# ---- the ratio -----------------------------------------------------------------------------------


def log_split_ratio(sums, rates, exposure, c, density: PoissonDensity) -> jax.Array:
    """Return the log ratio of two factors' counts to those of one, usage and spectra summed out.

    Sums of rows and of columns, and rates, are of the first, the second and both together. Without
    the multinomial coefficients, which those of the proposal cancel.
    """
    of_rows, of_columns = sums
    a, (g, h) = density.usage_shape, density.rate
    total = jnp.sum(log_excess(of_rows[0], of_rows[1], a))
    total += jnp.sum(log_excess(of_columns[0], of_columns[1], c))
    whole = jnp.sum(of_columns, 1)
    total -= log_excess(whole[0], whole[1], of_columns.shape[1] * c)
    exposed = exposure > 0
    unit = jnp.where(exposed, exposure, 1.0)
    own = a * jnp.log(rates[:, None]) - (a + of_rows) * jnp.log1p(rates[:, None] / unit)
    own = jnp.sum(jnp.where(exposed, own, 0.0), 1)
    own += g * jnp.log(h) - math.lgamma(g) + (g - 1.0) * jnp.log(rates) - h * rates
    return total + own[0] + own[1] - own[2] - a * jnp.sum(jnp.where(exposed, jnp.log(unit), 0.0))


def log_excess(x, y, start) -> jax.Array:
    r"""Return :math:`\log \Gamma(s + x) \Gamma(s + y) / (\Gamma(s + x + y) \Gamma(s))`."""
    return log_beta(start + x, start + y) - log_beta(start + x + y, start + jnp.zeros_like(x))
