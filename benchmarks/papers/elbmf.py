r"""Boolean factors by an elastic pull to 0 and 1 that grows (ELBMF).

.. math:: \min_{Y, X \ge 0} \tfrac12\|D - Y X^T\|_F^2 + R_t(Y) + R_t(X),

with :math:`R_t` the elastic penalty (:func:`elastic_penalty`), whose quadratic part grows by a
constant factor every step, so that the factors are Boolean in the end (Dalleiger, Vreeken 2022,
"Efficiently factorizing Boolean matrices using proximal gradient descent", NeurIPS 35), and with
inertia (Pock, Sabach 2016, "Inertial proximal alternating linearized minimization (iPALM) for
nonconvex and nonsmooth problems", SIAM Journal on Imaging Sciences 9).

The proximal operator is the exact one, which differs from the published one near 0 and 1. The
published program ends where the squared error changes by less than 1e-8 in a step; in single
precision that is no change at all, which is seen long before the factors are Boolean. Here it ends
where no entry changes any more.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.diagnostics.reconstruction import count_wrong_entries
from bmfjax.optimize.palm import (
    Factors,
    Palm,
    Penalty,
    Smooth,
    arrays_of,
    matrix_of,
    palm,
    squared_error,
)

#: As published: both rates of the penalty, the growth of the second, the factor of the moduli and
#: the inertia.
L1, L2, GROWTH, GAMMA, INERTIA = 0.01, 0.02, 1.02, 1.1, 1e-4
#: The largest second rate, above which nothing moves any more and single precision would overflow,
#: and the largest change of an entry in a step at which it stops.
MOST_L2, TOLERANCE = 1e12, 1e-6


class Elbmf(NamedTuple):
    """Boolean factors, their wrong observed entries, and the factors before they are rounded."""

    usage: np.ndarray
    basis: np.ndarray
    error: int
    relaxed: Factors


def elbmf(key, data: BinaryMatrix, rank: int, *, max_steps: int = 3000, num_starts: int = 1):
    """Factorise a binary matrix by ELBMF; of random starts return that with the fewest errors.

    Factors that stay are rounded to the nearer of 0 and 1, the proximal operator in the limit.
    Missing entries do not count.
    """
    ones, counted = arrays_of(data)
    matrix = matrix_of(ones, counted)
    keys = random.split(key)
    start = Factors(
        *(random.uniform(k, (num_starts, n, rank)) for k, n in zip(keys, data.shape, strict=True))
    )
    found = _settled(elastic(), start, matrix, max_steps)
    results = []
    for relaxed in zip(*map(np.asarray, found), strict=True):
        usage, basis = (factor > 0.5 for factor in relaxed)
        error = count_wrong_entries(usage, basis, ones, counted)
        results.append(Elbmf(usage, basis, error, Factors(*relaxed)))
    return min(results, key=lambda result: result.error)


@functools.cache
def elastic() -> Palm:
    """Return the optimiser: PALM with an elastic penalty whose second rate grows."""

    def rate(time):
        return jnp.minimum(L2 * GROWTH ** time.astype(jnp.float32), MOST_L2)

    penalty = Penalty(
        lambda x, time: elastic_penalty(x, L1, rate(time)),
        lambda x, step, time: prox_elastic(x, L1 * step, rate(time) * step),
    )
    smooth = Smooth(squared_error, _frobenius, _frobenius)
    return palm(smooth, penalty, gamma=GAMMA, inertia=INERTIA)


def _frobenius(other, matrix):
    # As published: at least the spectral norm, and cheaper.
    return jnp.linalg.norm(other.T @ other)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _settled(optimiser, starts, matrix, max_steps):
    """Run from every start until the factors stay."""

    def one(start):
        def unfinished(carry):
            factors, state = carry
            changes = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), factors, state.previous)
            moves = jnp.maximum(*changes) > TOLERANCE
            return (state.time < max_steps) & (moves | (state.time == 0))

        carry = start, optimiser.init(start)
        return lax.while_loop(unfinished, lambda both: optimiser.update(*both, matrix), carry)[0]

    return jax.vmap(one)(starts)


def elastic_penalty(x, l1, l2):
    r"""Return the elastic binary penalty of each entry: an elastic net around the nearer of 0, 1.

    .. math:: \min_{b \in \{0, 1\}} \kappa |x - b| + \tfrac{\lambda}{2} (x - b)^2,

    and infinity below zero.
    """
    away = jnp.minimum(jnp.abs(x), jnp.abs(x - 1.0))
    return jnp.where(x < 0, jnp.inf, l1 * away + 0.5 * l2 * away**2)


def prox_elastic(x, l1, l2):
    r"""Return the proximal operator of :func:`elastic_penalty`.

    .. math:: \operatorname{prox}(x) = b + \frac{\operatorname{sign}(x - b)
              \max(|x - b| - \kappa, 0)}{1 + \lambda}

    with b = 0 for x up to 1/2 and else 1, and zero where this is negative. As published it lacks
    the maximum: within :math:`\kappa` of b it steps over b, and so does not minimise its
    definition there. The difference is at most :math:`\kappa`.
    """
    nearer = jnp.where(x <= 0.5, 0.0, 1.0)
    away = x - nearer
    shrunk = jnp.sign(away) * jnp.maximum(jnp.abs(away) - l1, 0.0) / (1.0 + l2)
    return jnp.maximum(nearer + shrunk, 0.0)
