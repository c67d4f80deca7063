r"""Stochastic variational inference of logistic matrix factorisation from sampled entries.

With the bound of `bmfjax.variational.posterior` the factors of a row have Gaussian conditionals.
What the entries of row i say of them is summed up by a precision matrix and a shift,

.. math::

   P_i = \sum_j 2 \Lambda(\xi_{ij})\, E[v_j v_j^T], \qquad
   h_i = \sum_j \big[ y_{ij} / 2 - 2 \Lambda(\xi_{ij}) \bar z \big] \bar v_j,

and the best mean field given the rest has the means :math:`\bar u_i = (P_i + A)^{-1} h_i`, jointly,
and the variances :math:`1 / (P_i + A)_{dd}`, with the diagonal matrix A of the prior's precisions.
A minibatch of entries drawn with probabilities p gives estimates of P and h without bias, each
entry divided by :math:`p(j \mid i)`; averages of them over the minibatches,

.. math:: P_i \leftarrow (1 - \rho) P_i + \rho\, \frac{1}{n(i)} \sum_s P_i^{(s)}, \qquad
   \rho = (1 + t_i)^{-0.7},

over the :math:`n(i)` entries that fall into the row, are steps of natural gradients
(Hernandez-Lobato, Houlsby, Ghahramani 2014, sections 5 and 6). The paper keeps the natural
parameters of each coordinate alone, and updates coordinates in turn with noisy values of the
others; kept together, P and h are averages of unbiased terms, and have the same fixed point.

On a mesh the devices along the rows share the entries of a minibatch, and then the lines: each adds
up what all of them found for its own rows and columns, and tells the others where these went.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.checks import whole
from bmfjax.kernels.numerics.mesh import WHOLE, Along
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.variational import posterior as lp
from bmfjax.variational.entry_sampling import Entries, EntrySampler, draw_entries
from bmfjax.variational.relevance import LEARN_AFTER
from bmfjax.variational.statistics import (
    Statistics,
    mean_field,
    nothing_seen,
    second_moment,
    with_prior,
)

#: Entries of a chunk: what is in memory at once.
CHUNK = 4096
#: Exponent of the step sizes.
DECAY = -0.7
#: Bound on the relative squared error of a minibatch's average, times its probability.
ERROR = 2.0


class Side(NamedTuple):
    """State of all rows, or of all columns."""

    statistics: Statistics
    updates: jax.Array  # (lines,) int32: minibatches that had an entry of the line
    #: (lines, 2 width): moving averages of the natural parameters that single entries ask for.
    first: jax.Array
    second: jax.Array  # the same of their squares


class SVIState(NamedTuple):
    """State between two minibatches."""

    posterior: lp.LogisticPosterior
    usage: Side
    basis: Side
    bias: Statistics  # of precision () and shift ()
    updates: jax.Array  # () int32: minibatches so far
    chunks: jax.Array  # () int32: chunks of entries drawn so far
    size: jax.Array  # () float: entries that a minibatch should have; see `num_chunks`


class _Sums(NamedTuple):
    """Sums over the entries of a minibatch, per line."""

    precision: jax.Array
    shift: jax.Array
    asked: jax.Array
    squares: jax.Array
    count: jax.Array


def init(posterior: lp.LogisticPosterior, prior: lp.LogisticPrior) -> SVIState:
    """Return the state before the first minibatch of five entries a line of the longer side."""
    kind = posterior.bias.mean.dtype

    def side(size):
        zeros = jnp.zeros((size, 2 * prior.width), kind)
        seen = nothing_seen(size, prior.width, kind)
        return Side(seen, jnp.zeros(size, jnp.int32), zeros, zeros)

    rows, columns = posterior.usage.mean.shape[0], posterior.basis.mean.shape[0]
    nothing = jnp.zeros((), jnp.int32)
    return SVIState(
        posterior, side(rows), side(columns),
        Statistics(jnp.asarray(prior.bias_scale**-2.0, kind), jnp.zeros((), kind)),
        nothing, nothing, jnp.asarray(5.0 * max(rows, columns), kind),
    )  # fmt: skip


def num_chunks(state: SVIState) -> jax.Array:
    """Return how many chunks the next minibatch draws: () int32.

    Its size is rounded up to whole chunks, since one that is drawn in part costs as much.
    """
    return jnp.maximum(jnp.ceil(state.size / CHUNK), 1.0).astype(jnp.int32)


def step(
    key, state: SVIState, sampler: EntrySampler, prior: lp.LogisticPrior, along: Along = WHOLE
) -> SVIState:
    """Draw a minibatch of entries, average what they ask for, and step towards it.

    Precisions of the factors that are learned follow from the lines after it, but for the first
    `LEARN_AFTER` minibatches.
    """
    chunks = num_chunks(state)
    sums = minibatch_sums(key, state.posterior, sampler, prior, chunks, along)
    drawn = (chunks * CHUNK).astype(state.size.dtype)
    precision = lp.prior_precision(prior, state.posterior.relevance, drawn.dtype)
    sides, posterior, wanted = {}, {}, []
    for site, log_line in (("usage", sampler.log_row), ("basis", sampler.log_column)):
        before = jax.tree.map(along.own, getattr(state, site))
        side, size = _stepped(before, sums[site], along.own(jnp.exp(log_line)))
        best = mean_field(with_prior(side.statistics, precision), prior.free(site))
        join = functools.partial(along.join, number=log_line.shape[0])
        sides[site], posterior[site] = jax.tree.map(join, (side, best))
        wanted.append(along.total(size))
    rate = (1.0 + state.updates).astype(drawn.dtype) ** DECAY
    target = Statistics(sums["bias"].precision / drawn, sums["bias"].shift / drawn)
    bias = jax.tree.map(lambda old, new: old + rate * (new - old), state.bias, target)
    posterior["bias"] = lp.Gaussian(bias.shift / bias.precision, 1.0 / bias.precision)
    rows, columns = (log.shape[0] for log in (sampler.log_row, sampler.log_column))
    size = jnp.clip(sum(wanted) / (rows + columns), max(rows, columns), 2.0**24)
    new = state.posterior._replace(**posterior)
    return SVIState(
        lp.with_best_relevance(new, prior, state.updates >= LEARN_AFTER),
        sides["usage"], sides["basis"], bias,
        state.updates + 1, state.chunks + chunks, size,
    )  # fmt: skip


def _stepped(side: Side, sums: _Sums, chance):
    """Return a side after a step, and the sum of the minibatch sizes that its lines ask for."""
    seen = sums.count > 0
    count = jnp.maximum(sums.count, 1.0)
    rate = jnp.where(seen, (1.0 + side.updates).astype(count.dtype) ** DECAY, 0.0)

    def towards(old, total):
        shape = (-1,) + (1,) * (old.ndim - 1)
        return old + rate.reshape(shape) * (total / count.reshape(shape) - old)

    statistics = Statistics(
        towards(side.statistics.precision, sums.precision),
        towards(side.statistics.shift, sums.shift),
    )
    first, second = towards(side.first, sums.asked), towards(side.second, sums.squares)
    # For each coordinate: variance and squared mean of shift and precision together.
    both = lambda a: sum(jnp.split(a, 2, axis=-1))  # noqa: E731
    noise, signal = both(jnp.maximum(second - first**2, 0.0)), both(first**2)
    wanted = jnp.where(signal > 0, noise / (ERROR * chance[:, None] * signal), 0.0)
    wanted = jnp.where(jnp.isfinite(wanted), wanted, 0.0)
    return Side(statistics, side.updates + seen, first, second), jnp.mean(wanted, -1).sum()


def minibatch_sums(
    key, posterior, sampler: EntrySampler, prior, chunks, along: Along = WHOLE
) -> dict:
    """Return sums of what each entry of a minibatch asks for, in expectation those of all entries.

    `usage` and `basis` hold sums per line, and `asked` of them has the prior in each term; `bias`
    holds `Statistics`, with the prior in each term. On a mesh a device draws every so many-th
    chunk, and the lines are its own.
    """
    kind, width = posterior.bias.mean.dtype, prior.width

    def empty(site):
        return jnp.zeros((getattr(posterior, site).mean.shape[0], _length(width)), kind)

    part, parts = along.part()

    def one_chunk(t, sums):
        key_chunk = random.fold_in(key, part + parts * t)
        return _add_chunk(key_chunk, sums, posterior, sampler, prior)

    nothing = jnp.zeros((), kind)
    start = {n: empty(n) for n in ("usage", "basis")} | {"bias": Statistics(nothing, nothing)}
    # The first parts have one chunk more where these do not divide.
    sums = lax.fori_loop(0, (chunks + parts - 1 - part) // parts, one_chunk, start)
    of_lines = {n: _unpacked(along.own_total(sums[n]), width) for n in ("usage", "basis")}
    return of_lines | {"bias": jax.tree.map(along.total, sums["bias"])}


def _length(width: int) -> int:
    return width * width + 5 * width + 1


def _packed(terms: _Sums) -> jax.Array:
    """Return all terms of an entry in one row: adding rows costs by their number, not length."""
    size = terms.count.shape[0]
    return jnp.concatenate([t.reshape(size, -1) for t in terms], axis=-1)


def _unpacked(sums, width: int) -> _Sums:
    ends = np.cumsum([width * width, width, 2 * width, 2 * width])
    precision, shift, asked, squares, count = jnp.split(sums, ends, axis=-1)
    return _Sums(precision.reshape(-1, width, width), shift, asked, squares, count[:, 0])


@full_precision
def _add_chunk(key, sums, posterior, sampler, prior):
    entries = draw_entries(key, sampler, CHUNK)
    u = lp.Gaussian(*(a[entries.row] for a in posterior.usage))
    v = lp.Gaussian(*(a[entries.column] for a in posterior.basis))
    mean, variance = lp.moments(u, v, posterior.bias)
    curved = 2.0 * lp.curvature(jnp.sqrt(mean**2 + variance))
    half = jnp.where(entries.value, 0.5, -0.5)
    free_of_bias = mean - posterior.bias.mean
    of_prior = lp.prior_precision(prior, posterior.relevance, mean.dtype)
    new = {}
    for site, line, log_line, own, other in (
        ("usage", entries.row, sampler.log_row, u, v),
        ("basis", entries.column, sampler.log_column, v, u),
    ):
        weight = jnp.exp(log_line[line] - entries.log_probability)
        precision = (weight * curved)[:, None, None] * second_moment(other)
        shift = (weight * (half - curved * posterior.bias.mean))[:, None] * other.mean
        diagonal = jnp.diagonal(precision, axis1=-2, axis2=-1)
        # What coordinate d alone would go to, the others as they are.
        alone = shift - jnp.einsum("sde,se->sd", precision, own.mean) + diagonal * own.mean
        diagonal = diagonal + of_prior
        asked = jnp.concatenate([alone, diagonal], axis=-1)
        terms = _Sums(precision, shift, asked, asked**2, jnp.ones_like(weight))
        new[site] = sums[site].at[line].add(_packed(terms))
    weight = jnp.exp(-entries.log_probability)
    precision = jnp.sum(weight * curved + prior.bias_scale**-2.0)
    shift = jnp.sum(weight * (half - curved * free_of_bias))
    new["bias"] = Statistics(sums["bias"].precision + precision, sums["bias"].shift + shift)
    return new


def run(
    key, state: SVIState, sampler: EntrySampler, prior, chunks, along: Along = WHOLE
) -> SVIState:
    """Take minibatches until at least so many chunks have been drawn in all.

    Compile it: ``jax.jit(run, static_argnames="prior")``.
    """
    whole("rank", prior.rank)

    def body(state):
        return step(random.fold_in(key, state.updates), state, sampler, prior, along)

    return lax.while_loop(lambda s: s.chunks < chunks, body, state)


def estimated_elbo(posterior, entries: Entries, prior, along: Along = WHOLE) -> jax.Array:
    """Return an unbiased estimate of the evidence lower bound from entries drawn at random."""
    number, weight = len(entries.row), along.own(jnp.exp(-entries.log_probability))
    entries = jax.tree.map(along.own, entries)
    u = lp.Gaussian(*(a[entries.row] for a in posterior.usage))
    v = lp.Gaussian(*(a[entries.column] for a in posterior.basis))
    bound = lp.entry_bound(entries.value, *lp.moments(u, v, posterior.bias))
    return along.total(jnp.sum(bound * weight)) / number - lp.divergence(posterior, prior)
