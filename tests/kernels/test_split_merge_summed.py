"""Split and merge with the bits of a group summed out, where the group has other factors too.

Positions are drawn from the prior and weighed by the likelihood, as in `test_whole_factors`; the
enumeration of two factors is in `test_boolean_moves`.
"""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random

from bmfjax.data import BinaryMatrix
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.moves.split_merge_summed import split_merge_summed
from bmfjax.kernels.boolean.words import packed_data, unpack_last_axis
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK, RATE, DRAWS = 4, 3, 4, 0.25, 20_000
VALUES = np.array([[1, 1, 0], [1, 0, 1], [0, np.nan, 1], [np.nan, 1, 1]])
PRIORS = {"usage": (1.0, 2.0), "basis": (1.0, 1.0)}
DENSITY = BooleanDensity(
    (ROWS, COLUMNS), RANK, *map(BitPrior, PRIORS.values()), FlipRatePrior(value=RATE)
)


@functools.cache
def from_prior():
    """Exact draws of the prior, with a leading axis of draws, and the log likelihood of each."""
    r = np.random.default_rng(0)
    position, bits = {"flip_rate": np.full(DRAWS, RATE, np.float32)}, {}
    for (site, beta), lines in zip(PRIORS.items(), VALUES.shape, strict=True):
        chance = r.beta(*beta, (DRAWS, RANK, 1))
        bits[site] = r.random((DRAWS, RANK, lines)) < chance
        position[site] = (bits[site] << np.arange(lines)).sum(2, dtype=np.uint32)[..., None]
        position[f"{site}_density"] = chance[..., 0].astype(np.float32)
    product = np.einsum("dki,dkj->dij", *(b.astype(int) for b in bits.values())) > 0
    log = np.where(product == (VALUES == 1), np.log(1 - RATE), np.log(RATE))
    log = np.where(np.isnan(VALUES), 0.0, log).sum((1, 2))
    return jax.tree.map(jnp.asarray, position), log


@functools.cache
def moved():
    """A program of the move, three factors of four in a group, and of functions of positions."""
    move = split_merge_summed(DENSITY, num_patterns=2, block_size=3)
    data = packed_data(BinaryMatrix(VALUES))

    def one(key, position, beta):
        after, _ = move(key, position, data, beta)
        changed = jnp.any(after["basis"] != position["basis"])
        return functions(position), functions(after), changed

    return fast_jit(jax.vmap(one, (0, 0, None)))


def functions(position):
    """Functions that notice where bits and densities go together."""
    usage, basis = (
        unpack_last_axis(position[s], n).astype(jnp.float32)
        for s, n in (("usage", ROWS), ("basis", COLUMNS))
    )
    size, used = basis.sum(1), usage.sum(1)
    chance, kept = position["usage_density"], position["basis_density"]
    both = jnp.einsum("ki,kj->ij", usage, basis)
    return jnp.array(
        [
            size.sum(), used.sum(), (size * used).sum(), (size == 0).sum(), (used == 0).sum(),
            size[0] * size[1], (basis[0] * basis[1]).sum(), (usage[2] * usage[3]).sum(),
            chance.sum(), (chance**2).sum(), (chance * used).sum(), (chance * size).sum(),
            (kept * size).sum(), (both > 0).sum(), (both > 1).sum(), both[2, 1], both[3, 0],
        ]
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_a_group_of_more_than_two_is_left_invariant(beta):
    position, log = from_prior()
    before, after, changed = moved()(random.split(random.key(1), DRAWS), position, beta)
    weight = np.exp(beta * (log - log.max()))
    assert np.mean(weight * np.asarray(changed)) > 0.1 * weight.mean()
    change = weight[:, None] * (np.asarray(after, float) - np.asarray(before, float))
    scores = change.mean(0) / (change.std(0) / np.sqrt(DRAWS))
    assert np.abs(scores).max() < 4 and (scores**2).mean() < 2.5
