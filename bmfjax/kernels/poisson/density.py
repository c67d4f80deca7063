r"""The posterior of the model of counts, `bmfjax.models.poisson`, and the counts as it takes them.

With :math:`\lambda_{ij} = o_i \sum_k y_{ik} x_{jk}`, offsets o that are known, D the observed
entries, and every column of X (`basis`) a distribution over the columns of the data, the log joint
density is

.. math::

   \sum_{(i,j) \in D} \log p(n_{ij} \mid \lambda_{ij})
   + \sum_{ik} \log \mathrm{Gamma}(y_{ik} \mid a, \beta_k)
   + \sum_k \log \mathrm{Dirichlet}(x_{\cdot k} \mid c)
   + \sum_k \log \mathrm{Gamma}(\beta_k \mid g, h) - c,

the last term where c is learned, with an exponential prior. Here p is Poisson, or negative binomial
with mean :math:`\lambda` and variance :math:`\lambda + s^2 \lambda^2`, and then s has a half normal
prior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax
from jax.scipy.special import xlogy

from bmfjax.kernels.numerics.binomial import log_gamma, log_rising

#: Counts up to which every single one is a draw of its own; of larger ones shares are drawn.
MOST_SINGLE = 48
#: Below this a usage or a share of a column is rounded up: products of both are float32 numbers.
LEAST = 1e-18
#: Entries, or single counts, that are looked at at once.
BLOCK = 2**15


class PoissonDensity(NamedTuple):
    """Number of factors, and the parameters of the priors."""

    rank: int
    usage_shape: float = 1.0
    basis_concentration: float | None = 0.5  # None: learned
    rate: tuple[float, float] = (1.0, 1.0)  # shape and rate of the prior of the usage's rates
    dispersion_scale: float | None = None  # None: Poisson
    anchored: int = 0  # first columns of the basis that are known
    presence: bool = False  # whether factors may be absent
    trajectories: int = 0  # in a sweep; they need the counts as a matrix

    @property
    def sites(self) -> tuple[str, ...]:
        """What is sampled, by name."""
        learned = {
            "concentration": self.basis_concentration is None,
            "dispersion": self.dispersion_scale is not None,
            "presence": self.presence,
        }
        return ("usage", "basis", "rate", *(name for name, is_there in learned.items() if is_there))

    def concentration(self, position) -> jax.Array | float:
        """Return the parameter of the prior of the spectra: () float."""
        fixed = self.basis_concentration
        return position["concentration"] if fixed is None else fixed


class PoissonData(NamedTuple):
    """Counts that are not zero, in blocks; a row beyond the last pads these."""

    #: Row and column of every entry, (block, entry) int32, and its count (block, entry) float.
    entries: tuple[jax.Array, jax.Array, jax.Array]
    #: Row and column of every single count of the small ones, (block, count) int32.
    singles: tuple[jax.Array, jax.Array]
    #: Entries with a count above `MOST_SINGLE`, as `entries`.
    large: tuple[jax.Array, jax.Array, jax.Array]
    offset: jax.Array  # (rows,) float
    #: (rows, columns) float, 1 where an entry is observed; None: all are.
    observed: jax.Array | None
    #: (rows, columns) float, 0 where missing; None where nothing needs them all.
    dense: jax.Array | None
    constant: jax.Array  # () float: sum of log n! of the counts


def poisson_data(counts, offset, *, dense: bool = False) -> PoissonData:
    """Return counts (rows, columns), an array with NaN where missing or a CSR, as they are taken.

    With `dense` they are there as a matrix, too, which overdispersed ones and trajectories need.
    """
    kind = jnp.result_type(float)
    observed = None
    if not sp.issparse(counts):
        seen = ~np.isnan(counts)
        observed = None if seen.all() else jax.device_put(seen.astype(kind))
        counts = np.where(seen, counts, 0.0)
    table = sp.coo_array(counts)
    row, column, count = table.row, table.col, table.data
    row, column, count = (part[count > 0] for part in (row, column, count))
    small = count <= MOST_SINGLE
    times = count[small].astype(np.int64)
    beyond = counts.shape[0]
    return PoissonData(
        _in_blocks(beyond, row, column, count),
        _in_blocks(beyond, np.repeat(row[small], times), np.repeat(column[small], times))[:2],
        _in_blocks(beyond, row[~small], column[~small], count[~small]),
        jax.device_put(np.array(offset, kind)),
        observed,
        jax.device_put(table.toarray().astype(kind)) if dense else None,
        jax.device_put(np.array(math.fsum(map(math.lgamma, count + 1.0)), kind)),
    )


def _in_blocks(beyond: int, row, column, count=None):
    """Return entries in blocks of equal size, the last one padded by a row beyond the last."""
    number = len(row)
    size = max(1, min(BLOCK, number))
    blocks = -(-number // size)
    added = blocks * size - number
    parts = [np.pad(row, (0, added), constant_values=beyond), np.pad(column, (0, added))]
    count = np.zeros(number) if count is None else count
    parts = [part.reshape(blocks, size).astype(np.int32) for part in parts]
    padded = np.pad(count, (0, added)).reshape(blocks, size)
    return jax.device_put((*parts, padded.astype(jnp.result_type(float))))


def shares(usage, basis, row, column) -> jax.Array:
    """Return what every factor adds to the rate of some entries, (entry, rank)."""
    return usage.at[row].get(mode="fill", fill_value=1.0) * basis[column]


def exposures(weights, basis) -> jax.Array:
    """Return what a unit of usage adds to the expected counts of each row, (rows, rank).

    `weights` are offsets (rows,), or of all entries (rows, columns), zero where missing.
    """
    if weights.ndim == 1:  # columns of the basis sum to one
        return jnp.broadcast_to(weights[:, None], (len(weights), basis.shape[1]))
    return weights @ basis


def log_likelihood(density: PoissonDensity, position, data: PoissonData) -> jax.Array:
    """Return the log probability of the observed counts: () float."""
    usage, basis = position["usage"], position["basis"]
    if density.dispersion_scale is not None:
        rate = data.offset[:, None] * (usage @ basis.T)
        seen = 1.0 if data.observed is None else data.observed
        return jnp.sum(seen * negative_binomial(data.dense, rate, position["dispersion"]))

    def block(total, part):
        row, column, count = part
        own = jnp.log(jnp.sum(shares(usage, basis, row, column), 1))
        own += jnp.log(data.offset).at[row].get(mode="fill", fill_value=0.0)
        return total + jnp.sum(jnp.where(count > 0, count * own, 0.0)), None

    total, _ = lax.scan(block, jnp.zeros((), usage.dtype), data.entries)
    weights = data.offset if data.observed is None else data.offset[:, None] * data.observed
    return total - jnp.sum(usage * exposures(weights, basis)) - data.constant


def negative_binomial(count, rate, sd) -> jax.Array:
    """Return log probabilities of counts with means `rate`, which scatter by a relative `sd`."""
    size = sd**-2.0
    hit = xlogy(count, rate / (size + rate))
    return log_rising(size, count) - log_gamma(count + 1.0) + hit - size * jnp.log1p(rate / size)


def log_prior_number(density: PoissonDensity, number) -> jax.Array:
    """Return the log prior probability of one set of so many factors that are there: () float."""
    rank = density.rank
    sets = log_gamma(rank + 1.0) - log_gamma(number + 1.0) - log_gamma(rank - number + 1.0)
    return -math.log(rank) - sets


def log_prior(density: PoissonDensity, position) -> jax.Array:
    """Return the log prior density of a position, constants included: () float."""
    usage, basis, rate = (position[name] for name in ("usage", "basis", "rate"))
    a, c, (g, h) = density.usage_shape, density.concentration(position), density.rate
    rows, columns = len(usage), len(basis)
    total = jnp.sum((g - 1.0) * jnp.log(rate) - h * rate)
    total += density.rank * (g * math.log(h) - math.lgamma(g))
    there = position["presence"] > 0 if density.presence else jnp.ones(density.rank, bool)
    usage = jnp.where(there, usage, 1.0)
    own = jnp.sum((a - 1.0) * jnp.log(usage) - rate * usage, 0) + rows * a * jnp.log(rate)
    total += jnp.sum(jnp.where(there, own - rows * math.lgamma(a), 0.0))
    spectrum = (c - 1.0) * jnp.sum(jnp.log(jnp.where(there, basis, 1.0)), 0)
    spectrum += log_gamma(columns * jnp.asarray(c)) - columns * log_gamma(jnp.asarray(c))
    free = there & (jnp.arange(density.rank) >= density.anchored)
    total += jnp.sum(jnp.where(free, spectrum, 0.0))
    if density.basis_concentration is None:
        total -= c
    if density.presence:
        total += log_prior_number(density, jnp.sum(there))
    if density.dispersion_scale is not None:
        scaled = position["dispersion"] / density.dispersion_scale
        total += 0.5 * math.log(2.0 / math.pi) - math.log(density.dispersion_scale)
        total -= 0.5 * scaled**2
    return total
