r"""Where chains of counts start: near the best of some ascents, each chain from its own.

An ascent takes steps of expectation and maximisation, by which every count is shared between the
factors (Lee, Seung 1999, "Learning the parts of objects by non-negative matrix factorization",
Nature 401; for the divergence of Poisson counts). Where the number of factors is to be found,
chains start with that which a rough evidence favours,

.. math:: \log L - \tfrac12 r (n + m) \log(1 + N / (r (n + m))),

N the sum of the counts of n rows and m columns, r the number of factors: half a log of the counts
that each parameter has (Schwarz 1978, "Estimating the dimension of a model", Annals of Statistics
6). The sampler may leave it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.poisson.density import (
    LEAST,
    PoissonData,
    PoissonDensity,
    exposures,
    log_likelihood,
    shares,
)
from bmfjax.kernels.poisson.gibbs import random_position, weights_of

#: Ascents of a chain, and of a number of factors; steps of an ascent, and the most numbers that
#: all of its steps form.
ASCENTS, STEPS, MOST_NUMBERS = 4, 300, 4e9


def ascended(position: dict, density: PoissonDensity, data: PoissonData, number) -> tuple:
    """Go up the likelihood of a position by some steps; return it with its log likelihood.

    A column of the basis that is zero stays so: that factor is absent. Known columns stay.
    """
    weights = weights_of(data)
    there = jnp.sum(position["basis"], 0) > 0
    known = jnp.arange(density.rank) < density.anchored

    def shared(usage, basis):
        def block(sums, part):
            row, column, count = part
            of = shares(usage, basis, row, column)
            of = of * (count / jnp.maximum(jnp.sum(of, 1), 1e-30))[:, None]
            return (sums[0].at[row].add(of, mode="drop"), sums[1].at[column].add(of)), None

        start = (jnp.zeros_like(usage), jnp.zeros_like(basis))
        return lax.scan(block, start, data.entries)[0]

    @full_precision
    def climb(_, pair):
        usage, basis = pair
        of_rows, of_columns = shared(usage, basis)
        usage = jnp.maximum(of_rows / jnp.maximum(exposures(weights, basis), LEAST), LEAST)
        usage = jnp.where(there, usage, 0.0)
        met = weights.T @ usage if weights.ndim == 2 else jnp.ones_like(basis)
        higher = of_columns / jnp.maximum(met, LEAST) + LEAST
        higher = jnp.where(there, higher / jnp.sum(higher, 0), 0.0)
        return usage, jnp.where(known, basis, higher)

    usage, basis = lax.fori_loop(0, number, climb, (position["usage"], position["basis"]))
    found = {**position, "usage": usage, "basis": basis}
    return found, log_likelihood(density._replace(dispersion_scale=None), found, data)


def starts(
    key, density: PoissonDensity, columns: int, data: PoissonData, num_chains: int, known=None
) -> dict:
    """Return the position of every chain, each the best of ascents of its own.

    `known` are the first columns of the basis, (columns, number), where they are.
    """
    key_number, key_chains = random.split(key)
    numbers = sum(part.size for part in data.entries[:1]) * density.rank * ASCENTS
    steps = int(np.clip(MOST_NUMBERS / max(numbers, 1), 20, STEPS))

    @jax.jit
    def climb(keys, number, steps):
        def one(key):
            position = random_position(key, density, columns, data)
            if known is not None:
                basis = position["basis"].at[:, : known.shape[1]].set(known)
                position = position | {"basis": basis}
            there = jnp.arange(density.rank) < number
            usage = jnp.where(there, position["usage"] * density.rank / number, 0.0)
            basis = jnp.where(there, position["basis"], 0.0)
            return ascended(position | {"usage": usage, "basis": basis}, density, data, steps)

        found, height = jax.vmap(one)(keys)
        best = jnp.argmax(height)
        return {n: v[best] for n, v in found.items()}, height[best]

    number = density.rank
    if density.presence:
        number = _rough_number(key_number, climb, density, columns, data, steps)
    found = [
        climb(random.split(key, ASCENTS), number, steps)[0]
        for key in random.split(key_chains, num_chains)
    ]
    return _completed({n: np.stack([f[n] for f in found]) for n in found[0]}, density, number)


def _rough_number(key, climb, density: PoissonDensity, columns: int, data, steps: int) -> int:
    """Return the number of factors that a rough evidence favours; a third of the steps will do."""
    total = float(sum(np.sum(part[2]) for part in (data.entries,)))
    best, keys = (-np.inf, 1), random.split(key, density.rank)
    for number in range(1, density.rank + 1):
        _, height = climb(random.split(keys[number - 1], ASCENTS), number, max(steps // 3, 20))
        parameters = number * (len(data.offset) + columns)
        evidence = float(height) - 0.5 * parameters * np.log1p(total / parameters)
        best = max(best, (evidence, number))
        if number > best[1] + 3:  # it falls from here on
            break
    return best[1]


def _completed(position: dict, density: PoissonDensity, number: int) -> dict:
    """Return starts whose usage is no zero where a factor is, with rates that go with it."""
    there = np.arange(density.rank) < number
    usage, (shape, rate) = position["usage"], density.rate
    least = 0.1 * density.usage_shape * usage.mean(1, keepdims=True) / len(usage[0]) + LEAST
    usage = np.where(there, np.maximum(usage, least), 0.0)
    basis = np.maximum(position["basis"], 1e-6 / len(position["basis"][0]))
    basis = np.where(there, basis / basis.sum(1, keepdims=True), 0.0)
    basis[..., : density.anchored] = position["basis"][..., : density.anchored]
    shape = shape + density.usage_shape * len(usage[0]) * there
    rates = shape / (rate + usage.sum(1))
    found = position | {"usage": usage, "basis": basis, "rate": rates}
    if density.presence:
        found["presence"] = np.broadcast_to(there, rates.shape)
    kind = position["usage"].dtype
    return {n: np.asarray(v, kind) for n, v in found.items()}
