"""The usage of rows that a Boolean fit has not seen, given its draws of everything else."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.kernels import flip_rates
from bmfjax.kernels.bit_updates import gibbs, update_bits
from bmfjax.kernels.packed_lines import packed_data, unpack_last_axis

#: Draws of the fit that are used, evenly spread, and sweeps over the new rows for each.
MAX_DRAWS, SWEEPS = 400, 3


def usage_of_new_rows(new: BinaryMatrix, basis_words, others: Mapping) -> np.ndarray:
    """Posterior means of the usage of new rows, given draws of basis, densities and flip rates.

    Parameters
    ----------
    new : BinaryMatrix
    basis_words : (chain, draw, rank, words) uint32
    others : dict
        `flip_rate` (chain, draw) or (chain, draw, 2), and `usage_density` (chain, draw, rank).

    Returns
    -------
    (rows, rank) float64
        A row of which nothing is observed gets the densities.

    Raises
    ------
    InputError
        Where the usage has no densities, so that nothing is known of a new row's bits.

    Examples
    --------
    >>> basis = np.array([[[[0b0011], [0b1100]]]], np.uint32)
    >>> others = {"flip_rate": np.full((1, 1), 0.001), "usage_density": np.full((1, 1, 2), 0.5)}
    >>> usage_of_new_rows(BinaryMatrix([[1, 1, 0, 0]]), basis, others).round().tolist()
    [[1.0, 0.0]]
    """
    if "usage_density" not in others:
        raise InputError(
            "the prior of the usage was given bit by bit and says nothing of new rows; fit with a "
            "density to transform others"
        )

    def flat(values):
        return values.reshape(-1, *values.shape[2:])

    draws = flat(basis_words), flat(others["flip_rate"]), flat(others["usage_density"])
    chosen = np.unique(np.linspace(0, len(draws[0]) - 1, MAX_DRAWS).astype(int))
    kept = [jnp.asarray(d[chosen]) for d in draws]
    total = _sum_of_usage(random.key(0), packed_data(new).by_row, *kept, size=new.num_rows)
    return np.asarray(total, np.float64).T / len(chosen)


def _sum_of_usage(key, lines, basis, rates, densities, *, size):
    def one_draw(carry, draw):
        words, total = carry
        key, partner, rate, density = draw
        odds = (jnp.log(density) - jnp.log1p(-density))[:, None]

        def sweep(i, words):
            k, weights = random.fold_in(key, i), flip_rates.weights(rate)
            return update_bits(k, words, partner, lines, size, odds, weights, gibbs)[0]

        words = lax.fori_loop(0, SWEEPS, sweep, words)
        return (words, total + unpack_last_axis(words, size)), None

    @jax.jit
    def run(key, lines, basis, rates, densities):
        keys = random.split(key, len(basis))
        start = jnp.zeros((basis.shape[1], -(-size // 32)), jnp.uint32)
        carry = (start, jnp.zeros((basis.shape[1], size), jnp.int32))
        return lax.scan(one_draw, carry, (keys, basis, rates, densities))[0][1]

    return run(key, lines, basis, rates, densities)
