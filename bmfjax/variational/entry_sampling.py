r"""Draw entries of a sparse binary matrix with unequal probabilities, and weigh them rightly.

An entry (i, j) with value x is drawn with probability

.. math::

   p(i, j) = s_x \frac{a^x_i b^x_j}{\sum_{(k, l): x_{kl} = x} a^x_k b^x_l},

:math:`s_x` the share of draws that have that value. The strategies of Hernandez-Lobato, Houlsby,
Ghahramani (2014), section 7, are

* ``uniform``: all weights one, :math:`s_x` the share of entries with that value;
* ``balanced``: all weights one, :math:`s_x = 1/2`;
* ``biased``: :math:`s_x = 1/2`, and :math:`a^x_i`, :math:`b^x_j` the number of entries of the
  *other* value in that row and column, at least one: a one counts for more where ones are rare.

What an entry says of row i is then divided by :math:`p(j \mid i)`, of column j by
:math:`p(i \mid j)`, and of what all entries share by :math:`p(i, j)`: sums over the draws are sums
over the matrix in expectation.

Ones are listed. Zeros are not: a row and a column are drawn by their weights, and drawn again
where the entry is a one or missing. Time and memory follow the ones and the missing entries, never
rows times columns. Weights are rounded to multiples of :math:`2^{-32}` before anything is computed
from them, so that draws and probabilities agree exactly.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data import BinaryMatrix
from bmfjax.data.checks import one_of
from bmfjax.data.errors import InputError
from bmfjax.specs.logistic import STRATEGIES

#: Below this share of accepted proposals, zeros are too few to be found by trying.
LEAST_ACCEPTANCE = 1e-3
WHOLE = 2**32


class EntrySampler(NamedTuple):
    """What entries are drawn from: all arrays, a pytree.

    Attributes
    ----------
    share_of_ones : () float
        Share of ones among the draws.
    ones, zero_row, zero_column : (number - 1,) uint32
        Where the next begins, of the listed ones, and of rows and columns proposed for zeros.
    one_row, one_column : (ones,) int32
    one_log_probability : (ones,) float
        Log of :math:`p(i, j)`.
    zero_log_row : (rows,) float
    zero_log_column : (columns,) float
        Their sum is the log of :math:`p(i, j)` of a zero.
    filled_start, filled_column : (rows + 1,), (ones and missing,) int32
        Entries that are no zeros, row by row, columns ascending.
    log_row, log_column : (rows,), (columns,) float
        Logs of :math:`p(i)` and :math:`p(j)`.
    """

    share_of_ones: jax.Array
    ones: jax.Array
    zero_row: jax.Array
    zero_column: jax.Array
    one_row: jax.Array
    one_column: jax.Array
    one_log_probability: jax.Array
    zero_log_row: jax.Array
    zero_log_column: jax.Array
    filled_start: jax.Array
    filled_column: jax.Array
    log_row: jax.Array
    log_column: jax.Array


class Entries(NamedTuple):
    """Entries that were drawn, (entries,) each."""

    row: jax.Array  # int32
    column: jax.Array  # int32
    value: jax.Array  # bool
    log_probability: jax.Array  # log p(i, j)


def entry_sampler(data: BinaryMatrix, strategy: str = "biased") -> EntrySampler:
    """Prepare to draw entries.

    Parameters
    ----------
    data : BinaryMatrix
    strategy : {"biased", "balanced", "uniform"}

    Returns
    -------
    EntrySampler

    Raises
    ------
    InputError
        For another strategy, a matrix without ones or without zeros, or one where hardly any
        entry is a zero.

    Examples
    --------
    >>> sampler = entry_sampler(BinaryMatrix([[1, 0, 0], [0, 0, None]]), "balanced")
    >>> entries = draw_entries(random.key(0), sampler, 1000)
    >>> sorted(set(zip(entries.row.tolist(), entries.column.tolist())))
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    >>> np.unique(np.exp(entries.log_probability).round(3)).tolist()  # four zeros, one one
    [0.125, 0.5]
    """
    one_of("sampling", strategy, STRATEGIES)
    ones, missing = data.ones().tocsr(), data.missing().tocsr()
    num_ones, num_observed = ones.nnz, data.num_rows * data.num_columns - missing.nnz
    _check_classes(num_ones, num_observed - num_ones)
    share = num_ones / num_observed if strategy == "uniform" else 0.5
    ones.sort_indices()
    filled = (ones.astype(np.int32) + missing.astype(np.int32)).tocsr()
    filled.sort_indices()
    zero_weights, one_weights = _weights(strategy, ones, missing)
    i, j = _rows_of(ones), ones.indices
    ones_start, p_one = _table(one_weights[0][i] * one_weights[1][j])
    (row_start, a), (column_start, b) = (_table(w) for w in zero_weights)
    row, column = _rows_of(filled), filled.indices
    refused_row = np.bincount(row, b[column], len(a))
    refused_column = np.bincount(column, a[row], len(b))
    accepted = 1.0 - (a * refused_row).sum()
    share_of_zeros = (num_observed - num_ones) / (len(a) * len(b))
    if accepted < LEAST_ACCEPTANCE <= share_of_zeros:  # under the weights of "biased" alone
        raise InputError(
            "sampling 'biased' proposes zeros in the rows and columns with most ones, where this "
            "matrix has hardly any; give sampling='balanced'"
        )
    if accepted < LEAST_ACCEPTANCE:
        raise InputError(
            f"{num_observed - num_ones} of {len(a) * len(b)} entries are zeros, too few to be "
            "found by trying; exchange ones and zeros, or use batch inference"
        )
    p_row = share * np.bincount(i, p_one, len(a))
    p_row += (1 - share) * a * (1.0 - refused_row) / accepted
    p_column = share * np.bincount(j, p_one, len(b))
    p_column += (1 - share) * b * (1.0 - refused_column) / accepted
    floats, whole = (
        functools.partial(jnp.asarray, dtype=d) for d in (jnp.result_type(float), jnp.int32)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        # A line whose entries are all missing has probability zero, but for rounding.
        log = lambda p: floats(np.log(np.maximum(p, 0.0)))  # noqa: E731
        return EntrySampler(
            floats(share), ones_start, row_start, column_start, whole(i), whole(j),
            log(share * p_one), log(a * (1 - share) / accepted), log(b),
            whole(filled.indptr), whole(filled.indices), log(p_row), log(p_column),
        )  # fmt: skip


def draw_entries(key, sampler: EntrySampler, number: int) -> Entries:
    """Draw entries, independently and with replacement.

    Parameters
    ----------
    key : jax.Array
    sampler : EntrySampler
    number : int

    Returns
    -------
    Entries
    """
    key_class, key_one, key_zero = random.split(key, 3)
    is_one = random.uniform(key_class, (number,)) < sampler.share_of_ones
    which = _draw(key_one, sampler.ones, number)

    def propose(carry):
        key, row, column, open_ = carry
        key, key_row, key_column = random.split(key, 3)
        row = jnp.where(open_, _draw(key_row, sampler.zero_row, number), row)
        column = jnp.where(open_, _draw(key_column, sampler.zero_column, number), column)
        return key, row, column, open_ & _is_filled(sampler, row, column)

    nothing = jnp.zeros(number, jnp.int32)
    start = key_zero, nothing, nothing, ~is_one
    _, row, column, _ = lax.while_loop(lambda carry: jnp.any(carry[3]), propose, start)
    zero_log = sampler.zero_log_row[row] + sampler.zero_log_column[column]
    return Entries(
        jnp.where(is_one, sampler.one_row[which], row),
        jnp.where(is_one, sampler.one_column[which], column),
        is_one,
        jnp.where(is_one, sampler.one_log_probability[which], zero_log),
    )


def _is_filled(sampler: EntrySampler, row, column) -> jax.Array:
    """Return whether entries are ones or missing, by bisection in their row."""
    low, high = sampler.filled_start[row], sampler.filled_start[row + 1]
    end = high
    steps = max(1, int(sampler.filled_column.shape[0]).bit_length())

    def halve(_, carry):
        low, high = carry
        middle = (low + high) // 2
        right = sampler.filled_column[jnp.minimum(middle, len(sampler.filled_column) - 1)] < column
        searching = low < high
        low = jnp.where(searching & right, middle + 1, low)
        return low, jnp.where(searching & ~right, middle, high)

    low, _ = lax.fori_loop(0, steps, halve, (low, high))
    found = sampler.filled_column[jnp.minimum(low, len(sampler.filled_column) - 1)]
    return (low < end) & (found == column)


def _check_classes(num_ones: int, num_zeros: int) -> None:
    """Refuse a matrix whose observed entries are all alike."""
    for count, value in ((num_ones, "ones"), (num_zeros, "zeros")):
        if count == 0:
            raise InputError(
                f"the matrix has no {value} among its observed entries, and without both values "
                "there is nothing to distinguish; look at what was read"
            )


def _weights(strategy, ones, missing):
    """Return weights of the rows and of the columns, of zeros and then of ones."""
    rows, columns = ones.shape
    if strategy != "biased":
        return ((np.ones(rows), np.ones(columns)),) * 2
    found = []
    for axis, size in ((1, columns), (0, rows)):
        of_ones = np.asarray(ones.sum(axis), float).ravel()
        of_zeros = size - of_ones - np.asarray(missing.sum(axis), float).ravel()
        found.append((np.maximum(of_ones, 1.0), np.maximum(of_zeros, 1.0)))
    (ones_of_row, zeros_of_row), (ones_of_column, zeros_of_column) = found
    return (ones_of_row, ones_of_column), (zeros_of_row, zeros_of_column)


def _rows_of(matrix):
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _table(weights):
    """Return where each but the first begins in the numbers of 32 bits, and the probabilities."""
    counts = np.maximum(np.floor(weights / weights.sum() * WHOLE), 1.0).astype(np.int64)
    counts[np.argmax(counts)] += WHOLE - counts.sum()
    ends = np.cumsum(counts)[:-1]
    return jnp.asarray(ends, jnp.uint32), counts / WHOLE


def _draw(key, starts, number):
    bits = random.bits(key, (number,), jnp.uint32)
    return jnp.searchsorted(starts, bits, side="right").astype(jnp.int32)
