r"""Rounds of coordinate ascent over all entries, a block of rows at a time.

What the entries of a row say of its vector is summed up in its statistics
(`bmfjax.variational.statistics`), and what all rows say of a column in one table with a line a
column. Blocks of rows pass by one after the other. Memory grows with rows + columns, and the matrix
itself takes a bit an entry, two where entries are missing.

In every half of a round the bias moves together with the vectors of one side. Given the other side
and the curvatures of the bound, the best means of the vectors are linear in the bias,
:math:`\bar u_i = a_i - \bar z b_i`, and the best bias follows from the sums over all lines. Apart
from each other they would take several times as many rounds, for the bias of a sparse matrix has
a long way to go.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bmfjax.data import BinaryMatrix
from bmfjax.kernels.logistic.signs import (
    SignBlocks,
    budget_of,
    by_block,
    bytes_of_block,
    counts,
    of_block,
)
from bmfjax.kernels.numerics.budget import device_budget
from bmfjax.kernels.numerics.linalg import solve_many
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.variational import posterior as lp
from bmfjax.variational.relevance import LEARN_AFTER

#: Entries of a block of rows, and the least rows of one: what is in memory at once.
BLOCK, LEAST_ROWS = 2**16, 8


class Evidence(NamedTuple):
    """Sums over the entries of each line of one side, given the vectors v of the other.

    With the features f of v (`_features`) and y = 1 or -1.
    """

    weighted: jax.Array  # (lines, features): of curvature(xi) f
    half: jax.Array  # (lines, width): of y / 2 times the mean of v
    total: jax.Array  # (): of y / 2, over all lines


class BatchState(NamedTuple):
    """State between two rounds."""

    posterior: lp.LogisticPosterior
    columns: Evidence  # of the columns, given the rows
    rounds: jax.Array  # () int32


class _Lines(NamedTuple):
    """Vectors whose means are ``at_zero - bias * slope``."""

    at_zero: jax.Array
    slope: jax.Array
    variance: jax.Array

    def given(self, bias) -> lp.Gaussian:
        return lp.Gaussian(self.at_zero - bias * self.slope, self.variance)


class _BiasTerms(NamedTuple):
    """Sums over lines: precision and shift of the bias, and by how much the lines follow it."""

    precision: jax.Array
    shift: jax.Array
    followed: jax.Array


def sign_blocks(data: BinaryMatrix) -> SignBlocks:
    """Return the matrix in blocks of rows, as words.

    Parameters
    ----------
    data : BinaryMatrix

    Returns
    -------
    bmfjax.kernels.logistic.signs.SignBlocks
        Rows beyond the last are missing.

    Examples
    --------
    >>> blocks = sign_blocks(BinaryMatrix([[1, 0, None], [0, 1, 1]]))
    >>> blocks.shape, blocks.ones.tolist(), blocks.observed.tolist()
    ((1, 2, 3), [[[1], [6]]], [[[3], [7]]])
    """
    rows, columns = data.shape
    size = _rows_of_block(rows, columns)
    number = -(-rows // size)

    def in_blocks(lines):
        filled = np.pad(lines, ((0, number * size - rows), (0, 0)))
        return jax.device_put(filled.reshape(number, size, -1))

    ones, observed = data.packed()
    return SignBlocks(
        in_blocks(ones),
        None if observed is None else in_blocks(observed),
        jax.device_put(np.arange(number * size).reshape(number, size) < rows),
        jax.device_put(np.zeros((columns, 0), np.int8)),
        device_budget(),
    )


def _rows_of_block(rows: int, columns: int) -> int:
    """Return the number of rows that are looked at together."""
    return min(rows, max(BLOCK // columns, LEAST_ROWS))


def batch_start(posterior: lp.LogisticPosterior) -> BatchState:
    """Return the state before the first round."""
    basis = posterior.basis.mean
    zeros = functools.partial(jnp.zeros, dtype=basis.dtype)
    nothing = Evidence(
        zeros((len(basis), _features(posterior.basis).shape[1])), zeros(basis.shape), zeros(())
    )
    return BatchState(posterior, nothing, jnp.zeros((), jnp.int32))


def batch_update(state: BatchState, prior: lp.LogisticPrior, signs) -> tuple[BatchState, jax.Array]:
    """Take one round of coordinate ascent: the columns with the bias, then the rows with it.

    Where precisions of the factors are learned they come last, after the first `LEARN_AFTER`
    rounds. The bound does not fall, beyond rounding. The first round leaves the columns, of which
    nothing is known yet.

    Parameters
    ----------
    state : BatchState
    prior : LogisticPrior
    signs : SignBlocks or (blocks, rows of a block, columns) int8
        See `sign_blocks`; or 1 for ones, -1 for zeros, 0 where missing.

    Returns
    -------
    state : BatchState
    bound : () float
        The evidence lower bound, from all entries.

    Examples
    --------
    >>> from jax import random
    >>> prior, signs = lp.LogisticPrior(1), sign_blocks(BinaryMatrix(np.eye(4)))
    >>> state = batch_start(lp.start(random.key(0), (4, 4), prior, 0.0))
    >>> update = jax.jit(batch_update, static_argnums=1)
    >>> state, first = update(state, prior, signs)
    >>> state, second = update(state, prior, signs)
    >>> bool(second > first)
    True
    """
    usage, *old = state.posterior.normals
    precision = lp.prior_precision(prior, state.posterior.relevance, usage.mean.dtype)
    lines, terms = _lines(state.columns, prior, precision, "basis")
    bias = _bias(terms, state.columns.total, prior)
    new = lines.given(bias.mean), bias
    basis, bias = jax.tree.map(lambda a, b: jnp.where(state.rounds > 0, a, b), new, tuple(old))
    blocks = _in_blocks(usage, signs)
    lines, bias = _rows(blocks, basis, bias, prior, precision, signs)
    blocks = lines.given(bias.mean)
    columns, bounds = _columns(blocks, basis, bias, signs, state.columns)
    usage = lp.Gaussian(*(a.reshape(-1, prior.width)[: len(usage.mean)] for a in blocks))
    posterior = state.posterior._replace(usage=usage, basis=basis, bias=bias)
    posterior = lp.with_best_relevance(posterior, prior, state.rounds >= LEARN_AFTER)
    bound = jnp.sum(bounds) - lp.divergence(posterior, prior)
    return BatchState(posterior, columns, state.rounds + 1), bound


@functools.partial(jax.jit, static_argnames=("prior", "num_updates"))
def batch_fit(posterior, values, observed, *, prior: lp.LogisticPrior, num_updates: int):
    """Take many rounds of `batch_update`, and return the bound after each.

    Parameters
    ----------
    posterior : LogisticPosterior
    values, observed : (rows, columns) bool
    prior : LogisticPrior
    num_updates : int

    Returns
    -------
    posterior : LogisticPosterior
    elbos : (num_updates,) float
    """
    rows, columns = values.shape
    size = _rows_of_block(rows, columns)
    signs = jnp.where(observed, jnp.where(values, 1, -1), 0).astype(jnp.int8)
    signs = jnp.pad(signs, ((0, -rows % size), (0, 0))).reshape(-1, size, columns)

    def body(state, _):
        return batch_update(state, prior, signs)

    state, elbos = lax.scan(body, batch_start(posterior), None, length=num_updates)
    return state.posterior, elbos


@full_precision
def _rows(blocks, basis, bias, prior, precision, signs):
    """Return the lines of all rows, in blocks, and the bias that goes with them."""
    features, curved = _features(basis), _curved_given(basis, bias, signs)

    def one(block):
        signs, _, _, weight = curved(*block)
        evidence = Evidence(weight @ features, 0.5 * (signs @ basis.mean), 0.5 * jnp.sum(signs))
        lines, new = _lines(evidence, prior, precision, "usage")
        return new, lines

    nothing = jnp.zeros((), basis.mean.dtype)
    around, size = (blocks, by_block(signs)), bytes_of_block(signs, prior.width)
    like = _BiasTerms(nothing, nothing, nothing)
    terms, lines = budget_of(signs).total(one, like, around, size)
    # Counts: exact as whole numbers, which single precision is not above 2^24. Twice the ones may
    # be more than an int32 holds.
    ones, observed = counts(signs)
    total = 0.5 * (ones - (observed - ones)).astype(nothing.dtype)
    return lines, _bias(terms, total, prior)


def _columns(blocks, basis, bias, signs, like: Evidence):
    """Return the evidence of the rows on the columns, and the likelihood's bound of every block."""
    curved = _curved_given(basis, bias, signs)

    @full_precision
    def one(block):
        usage, _ = block
        signs, mean, xi, weight = curved(*block)
        bound = jax.nn.log_sigmoid(xi) + 0.5 * (signs * mean - xi)
        new = Evidence(
            weight.T @ _features(usage), 0.5 * (signs.T @ usage.mean), 0.5 * jnp.sum(signs)
        )
        return new, jnp.sum(jnp.where(signs == 0, 0.0, bound))

    size = bytes_of_block(signs, basis.mean.shape[1])
    return budget_of(signs).total(one, like, (blocks, by_block(signs)), size)


def _lines(evidence: Evidence, prior, precision, site) -> tuple[_Lines, _BiasTerms]:
    """Return the best means and variances of all lines as functions of the bias."""
    width, free = prior.width, jnp.asarray(prior.free(site))
    first, second = np.triu_indices(width)
    place = np.zeros((width, width), int)
    place[first, second] = place[second, first] = np.arange(len(first))
    moment, cross, weight = jnp.split(2.0 * evidence.weighted, [len(first), len(first) + width], 1)
    precision = jnp.diag(precision) + moment[:, place]
    # Coordinates that are fixed to one stay there, whatever the bias.
    system = jnp.where(free[:, None], precision, jnp.eye(width))
    right = jnp.stack([jnp.where(free, evidence.half, 1.0), jnp.where(free, cross, 0.0)], -1)
    solved = solve_many(system, right)
    at_zero = jnp.where(free, solved[..., 0], 1.0)
    slope = jnp.where(free, solved[..., 1], 0.0)
    diagonal = jnp.diagonal(precision, axis1=-2, axis2=-1)
    terms = _BiasTerms(jnp.sum(weight), jnp.sum(cross * at_zero), jnp.sum(cross * slope))
    return _Lines(at_zero, slope, jnp.where(free, 1.0 / diagonal, 0.0)), terms


def _bias(terms: _BiasTerms, total, prior) -> lp.Gaussian:
    of_prior = prior.bias_scale**-2.0
    precision = of_prior + terms.precision
    # Lines that follow leave it less; rounding must not leave it nothing.
    left = jnp.maximum(precision - terms.followed, of_prior)
    return lp.Gaussian((total - terms.shift) / left, 1.0 / precision)


def _features(vectors: lp.Gaussian) -> jax.Array:
    """Return second moments, each pair once, then the means, then a one: (lines, features)."""
    first, second = np.triu_indices(vectors.mean.shape[-1])
    mean, variance = vectors
    moment = mean[:, first] * mean[:, second]
    moment += jnp.where(first == second, variance[:, first], 0.0)
    return jnp.concatenate([moment, mean, jnp.ones_like(mean[:, :1])], axis=1)


def _curved_given(basis: lp.Gaussian, bias: lp.Gaussian, signs):
    """Return a function of a block's vectors and signs: signs, mean log odds, xi and curvature."""
    unpacked = of_block(signs)
    both = jnp.concatenate([basis.variance, basis.mean**2 + basis.variance], axis=1)

    @full_precision
    def curved(usage, packed):
        signs = unpacked(packed).astype(basis.mean.dtype)
        mean = usage.mean @ basis.mean.T + bias.mean
        variance = jnp.concatenate([usage.mean**2, usage.variance], axis=1) @ both.T
        xi = jnp.sqrt(mean**2 + (variance + bias.variance))
        return signs, mean, xi, jnp.where(signs == 0, 0.0, lp.curvature(xi))

    return curved


def _in_blocks(usage: lp.Gaussian, signs) -> lp.Gaussian:
    blocks, size, _ = signs.shape
    missing = blocks * size - len(usage.mean)
    return lp.Gaussian(
        *(jnp.pad(a, ((0, missing), (0, 0))).reshape(blocks, size, -1) for a in usage)
    )
