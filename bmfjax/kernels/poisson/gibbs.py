r"""An exact sampler of factorisations of counts, by allocation.

What it leaves invariant
------------------------
The posterior of `bmfjax.kernels.poisson.density`. A sweep draws in turn, each given all others,

* the factor that each count is of (`bmfjax.kernels.poisson.allocation`), which leaves
  :math:`n_{ik}` counts of row i, and :math:`m_{jk}` of column j, with factor k;
* the usage, :math:`y_{ik} \sim \mathrm{Gamma}(a + n_{ik},\ \beta_k + \sum_j w_{ij} x_{jk})`, where
  w is the offset of the row where an entry is observed, and 0 where it is missing;
* the basis. Where nothing is missing it is Dirichlet with parameters :math:`c + m_{jk}`, since its
  columns sum to one (Cemgil 2009, with a Dirichlet in place of Gamma priors). Else a factor meets
  with :math:`W_{jk} = \sum_i w_{ij} y_{ik}` in column j, and :math:`e^{-x_{jk} W_{jk}}` is not the
  same for all. Counts that were not seen, Poisson with rate
  :math:`x_{jk} (\max_l W_{lk} - W_{jk})`, make it so: added to :math:`m_{jk}` they leave a
  Dirichlet again. Where their concentration c is learned, it is drawn before, by a slice, with the
  spectra summed out;
* usage and basis again, where the density has trajectories, along these
  (`bmfjax.kernels.poisson.trajectories`), by the rates of entries, without allocations;
* the rates :math:`\beta_k`, Gamma.

Overdispersed counts have a factor of their own in every entry, Gamma with mean 1 and variance
:math:`s^2`, drawn at the start of a sweep and multiplied into w. Before that s is drawn by a slice,
with these factors summed out.

Cost
----
A sweep takes, for each entry that is not zero, as many numbers as there are factors; zeros cost
nothing. Missing entries take two dense products, overdispersion a Gamma draw an entry, and a
trajectory three dense products a step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.numerics.beta import draw_gamma
from bmfjax.kernels.numerics.binomial import log_rising
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.slice import slice_sample
from bmfjax.kernels.poisson.allocation import allocate
from bmfjax.kernels.poisson.density import (
    LEAST,
    PoissonData,
    PoissonDensity,
    exposures,
    log_likelihood,
    log_prior,
    negative_binomial,
)
from bmfjax.kernels.poisson.split_merge import draw_presence, split_or_merge
from bmfjax.kernels.poisson.trajectories import follow

#: Proposals to divide or join factors in every sweep, where these may be absent.
PROPOSALS = 2
#: Between these the standard deviation of overdispersed rates is held, and the concentration of
#: spectra.
DISPERSIONS = CONCENTRATIONS = (1e-3, 1e2)


class PoissonInfo(NamedTuple):
    """Statistics of one sweep, of what it has drawn: () float."""

    log_joint: jax.Array


def poisson_gibbs(density: PoissonDensity, columns: int) -> Algorithm:
    """Build the sampler of a density, for counts with so many columns.

    The data are `PoissonData`. Without a start the columns of the basis are drawn from flat
    Dirichlets, and rows use all factors alike; known columns of the basis are those of a start.

    Examples
    --------
    >>> from bmfjax.kernels.poisson.density import poisson_data
    >>> import numpy as np
    >>> counts = np.array([[3.0, 0.0, 1.0], [0.0, 40.0, 2.0]])
    >>> data = poisson_data(counts, np.ones(2))
    >>> algorithm = poisson_gibbs(PoissonDensity(rank=2), 3)
    >>> init, step = jax.jit(algorithm.init), jax.jit(algorithm.step)
    >>> state, info = step(random.key(1), init(random.key(0), None, data), data)
    >>> state.position["basis"].sum(0).round(4).tolist(), bool(info.log_joint < 0)
    ([1.0, 1.0], True)
    """

    def initial(key, data):
        return random_position(key, density, columns, data)

    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        if inverse_temperature != 1.0:
            raise InputError("the model of counts is not tempered; leave inverse_temperature out")
        position = sweep(key, dict(state.position), density, data)
        log_joint = log_likelihood(density, position, data) + log_prior(density, position)
        return State(position), PoissonInfo(log_joint)

    def observe(state, info):
        found = {**state.position, **info._asdict()}
        if density.presence:
            found["rank"] = jnp.sum(found["presence"] > 0, dtype=jnp.int32)
        return found

    return Algorithm(init_from(initial), step, observe)


def random_position(key, density: PoissonDensity, columns: int, data: PoissonData) -> dict:
    """Return a start: random columns of the basis, and the usage that explains all counts."""
    rows, kind = len(data.offset), data.offset.dtype
    row, _, count = data.entries
    totals = jnp.zeros(rows, kind).at[row].add(count, mode="drop")
    usage = (totals + 1.0) / (jnp.maximum(data.offset, LEAST) * density.rank)
    found = {
        "usage": jnp.tile(usage[:, None], (1, density.rank)),
        "basis": random.dirichlet(key, jnp.ones(columns, kind), (density.rank,)).T,
    }
    found["rate"] = density.rank * density.usage_shape / jnp.full(density.rank, jnp.mean(usage))
    if density.basis_concentration is None:
        found["concentration"] = jnp.asarray(0.5, kind)
    if density.dispersion_scale is not None:
        found["dispersion"] = jnp.asarray(0.5 * density.dispersion_scale, kind)
    if density.presence:
        found["presence"] = jnp.ones(density.rank, kind)
    return found


def sweep(key, position: dict, density: PoissonDensity, data: PoissonData) -> dict:
    """Draw all unknowns once."""
    keys = random.split(key, 9)
    factors = None
    if density.dispersion_scale is not None:
        position["dispersion"] = draw_dispersion(keys[5], position, density, data)
        factors = draw_factors(keys[4], position, data)
    weights = weights_of(data, factors)
    if density.presence and density.rank > 1:

        def propose(position, key):
            return split_or_merge(key, position, weights, density, data), None

        position, _ = lax.scan(propose, position, random.split(keys[7], PROPOSALS))
    of_rows, of_columns = allocate(keys[0], position["usage"], position["basis"], data)
    if density.presence:
        position = draw_presence(keys[6], position, of_rows, weights, density, exposures)
    if weights.ndim == 1:
        # Spectra do not depend on the usage then: one loop draws both, which compiles faster.
        position |= learned_concentration(keys[2], position, of_columns, density)
        position |= _draw_both(keys[1], position, of_rows, of_columns, weights, density)
    else:
        position["usage"] = draw_usage(keys[1], position, of_rows, weights, density)
        position |= draw_basis(keys[2], position, of_columns, weights, density)

    def along(position, key):
        return position | follow(key, position, weights, density, data), None

    if density.trajectories:
        moves = random.split(keys[8], density.trajectories)
        position, _ = lax.scan(along, position, moves)
    position["rate"] = draw_rates(keys[3], position, density)
    return position


def weights_of(data: PoissonData, factors=None) -> jax.Array:
    """Return what rates of entries are multiplied by, zero where these are missing.

    They are (rows,) where all columns have the same, else (rows, columns).
    """
    if data.observed is None and factors is None:
        return data.offset
    weights = data.offset[:, None]
    for part in (data.observed, factors):
        weights = weights if part is None else weights * part
    return weights


def _there(position) -> jax.Array | bool:
    """Tell which factors are there."""
    return position["presence"] > 0 if "presence" in position else True


def draw_usage(key, position, of_rows, weights, density: PoissonDensity) -> jax.Array:
    """Draw the usage (rows, rank) given the counts of every row that are of each factor."""
    drawn = draw_gamma(key, density.usage_shape + of_rows.astype(weights.dtype))
    return _as_usage(drawn, position, weights)


def draw_basis(key, position, of_columns, weights, density: PoissonDensity) -> dict:
    """Draw the columns of the basis that are not known, and their concentration.

    The weights are of entries, (rows, columns).
    """
    basis = position["basis"]
    key_unseen, key_learn, key_draw = random.split(key, 3)
    met = weights.T @ position["usage"]
    unseen = random.poisson(key_unseen, basis * (jnp.max(met, 0) - met))
    counts = (of_columns + unseen).astype(basis.dtype)
    learned = learned_concentration(key_learn, position, counts, density)
    drawn = draw_gamma(key_draw, density.concentration(position | learned) + counts)
    return learned | {"basis": _as_basis(drawn, position, density)}


def learned_concentration(key, position, counts, density: PoissonDensity) -> dict:
    r"""Draw the concentration of the spectra, which are summed out, given counts (columns, rank).

    By a slice of its log. Each factor that is there, and not known, has the likelihood
    :math:`\Gamma(Jc) / \Gamma(Jc + n) \prod_j \Gamma(c + m_j) / \Gamma(c)`.
    """
    if density.basis_concentration is not None:
        return {}
    counts = counts.astype(position["basis"].dtype)
    columns, rank = counts.shape
    used = _there(position) & (jnp.arange(rank) >= density.anchored)

    def log_density(log_c):
        c = jnp.exp(log_c)
        own = jnp.sum(log_rising(c, counts), 0) - log_rising(columns * c, jnp.sum(counts, 0))
        return log_c - c + jnp.sum(jnp.where(used, own, 0.0))

    low, high = jnp.log(jnp.asarray(CONCENTRATIONS, counts.dtype))
    found = slice_sample(key, jnp.log(position["concentration"]), log_density, low, high)
    return {"concentration": jnp.exp(found)}


def _draw_both(key, position, of_rows, of_columns, weights, density: PoissonDensity) -> dict:
    """Draw usage and basis, each as it is drawn alone, where weights are of rows."""
    shapes = (density.usage_shape + of_rows, density.concentration(position) + of_columns)
    drawn = draw_gamma(key, jnp.concatenate(shapes).astype(weights.dtype))
    rows = len(of_rows)
    return {
        "usage": _as_usage(drawn[:rows], position, weights),
        "basis": _as_basis(drawn[rows:], position, density),
    }


def _as_usage(drawn, position, weights):
    rate = position["rate"] + exposures(weights, position["basis"])
    return jnp.where(_there(position), jnp.maximum(drawn / rate, LEAST), 0.0)


def _as_basis(drawn, position, density: PoissonDensity):
    drawn = jnp.maximum(drawn, LEAST)
    drawn = jnp.maximum(drawn / jnp.sum(drawn, 0), LEAST)
    known = jnp.arange(density.rank) < density.anchored
    return jnp.where(known | ~jnp.asarray(_there(position)), position["basis"], drawn)


def draw_rates(key, position, density: PoissonDensity) -> jax.Array:
    """Draw the rates of the priors of the usage, (rank,)."""
    usage, (shape, rate) = position["usage"], density.rate
    shape = shape + len(usage) * density.usage_shape * jnp.broadcast_to(
        _there(position), usage.shape[1:]
    )
    return draw_gamma(key, shape.astype(usage.dtype)) / (rate + jnp.sum(usage, 0))


def draw_factors(key, position, data: PoissonData) -> jax.Array:
    """Draw what overdispersed rates are multiplied by, (rows, columns)."""
    size = position["dispersion"] ** -2.0
    rate = data.offset[:, None] * (position["usage"] @ position["basis"].T)
    return draw_gamma(key, size + data.dense) / (size + rate)


def draw_dispersion(key, position, density: PoissonDensity, data: PoissonData) -> jax.Array:
    """Draw by how much overdispersed rates scatter, given the counts: by a slice of its log."""
    rate = data.offset[:, None] * (position["usage"] @ position["basis"].T)
    seen = 1.0 if data.observed is None else data.observed

    def log_density(log_sd):
        sd = jnp.exp(log_sd)
        prior = log_sd - 0.5 * (sd / density.dispersion_scale) ** 2
        return jnp.sum(seen * negative_binomial(data.dense, rate, sd)) + prior

    low, high = jnp.log(jnp.asarray(DISPERSIONS, rate.dtype))
    return jnp.exp(slice_sample(key, jnp.log(position["dispersion"]), log_density, low, high))
