r"""Which factors of a draw are used: those that add more to the product than noise does.

Priors of relevance (a rate or a precision of each factor's own, which is learned) shrink factors
that the data do not need, but never to zero. A factor is *used* where it adds to the product
:math:`Y X^\top` of the factors before it more than the noise edge

.. math:: \sigma\,\sqrt{(\sqrt n + \sqrt m)^2 + n + m}\ \sqrt{nm / |\Omega|}.

An n x m matrix of noise with standard deviation :math:`\sigma` has no larger singular value than
:math:`\sigma\,(\sqrt n + \sqrt m)` (Geman 1980, "A limit theorem for the norm of random matrices",
Annals of Probability 8), which is the most of it that a factor fits. A draw of the factor scatters
around that fit, independently, by :math:`\sigma^2` in each of its n + m directions where the prior
does not shrink it: the squares add up.
Where :math:`|\Omega|` entries are observed, the matrix with zeros for the others has a share
:math:`|\Omega|/nm` of the signal, and the root of this share of the noise.

Factors are chosen as columns are in a QR decomposition with pivoting (Businger, Golub 1965,
"Linear least squares solutions by Householder transformations", Numerische Mathematik 7). With
:math:`v_k` the direction of column k of X, orthogonal to those chosen before, the next is the
factor with the largest :math:`\|R\,v_k\|`, R the rest of the product. What all factors have in this
direction counts then, and R is made orthogonal to it on both sides. So two factors that share a
direction, on either side, count once, however their sum is divided between them; a third one of
another direction is chosen before either of them counts again.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.precision import full_precision

#: What is left of a column, as a share of it, below which it has no direction of its own.
LEAST_SHARE = 1e-5


def edge_in_noise(rows: int, columns: int, observed: int) -> float:
    r"""Return the noise edge in standard deviations of the noise.

    Parameters
    ----------
    rows, columns : int
        Those with an observed entry.
    observed : int
        Number of observed entries.

    Examples
    --------
    >>> edge_in_noise(64, 64, 64 * 64), edge_in_noise(64, 64, 64 * 16)
    (19.59..., 39.19...)
    """
    squares = (rows**0.5 + columns**0.5) ** 2 + rows + columns
    return float((squares * rows * columns / observed) ** 0.5)


@full_precision
def used_factors(usage, basis, edge) -> jax.Array:
    """Tell which factors add more than the edge to those before them, (rank,) bool.

    Parameters
    ----------
    usage, basis : (rows, rank), (columns, rank) float
    edge : () float

    Returns
    -------
    (rank,) bool

    Examples
    --------
    >>> usage = jnp.array([[3.0, 2.0, 0.0], [3.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    >>> basis = jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> used_factors(usage, basis, 0.5).tolist()  # the second shares its direction with the first
    [True, False, True]
    >>> used_factors(usage, basis, 2.0).tolist()
    [True, False, False]
    """
    # In coordinates of orthonormal bases of both sides: all that follows is (rank, rank).
    left, right = _triangle(usage), _triangle(basis)
    whole, tiny = _lengths(right), jnp.finfo(right.dtype).tiny

    @full_precision
    def choose(_, carry):
        left, right, used = carry
        length = _lengths(right)
        remains = (length > LEAST_SHARE * whole) & ~used
        unit = right / jnp.where(remains, length, 1.0)
        along = left @ (right.T @ unit)
        adds = jnp.where(remains, _lengths(along), 0.0)
        k = jnp.argmax(adds)
        u, v = along[:, k] / jnp.maximum(adds[k], tiny), unit[:, k]
        # Once none adds enough, none will: the rest of the product is as it was.
        more = adds[k] > edge
        left = jnp.where(more, left - jnp.outer(u, u @ left), left)
        right = jnp.where(more, right - jnp.outer(v, v @ right), right)
        return left, right, used.at[k].set(used[k] | more)

    rank = usage.shape[1]
    return lax.fori_loop(0, rank, choose, (left, right, jnp.zeros(rank, bool)))[2]


def _lengths(x):
    return jnp.sqrt(jnp.sum(x * x, axis=0))


def _triangle(x):
    """Return the triangle of the QR decomposition of x (n, rank), by modified Gram-Schmidt.

    A Gram matrix would hold squares, and no digit of a factor a thousandth as large as another.
    """
    rank, tiny = x.shape[1], jnp.finfo(x.dtype).tiny

    @full_precision
    def eliminate(k, carry):
        x, found = carry
        column = x[:, k]
        unit = column / jnp.maximum(jnp.sqrt(jnp.sum(column * column)), tiny)
        row = jnp.where(jnp.arange(rank) >= k, unit @ x, 0.0)
        return x - jnp.outer(unit, row), found.at[k].set(row)

    return lax.fori_loop(0, rank, eliminate, (x, jnp.zeros((rank, rank), x.dtype)))[1]


def counting(
    algorithm: Algorithm, edge: float, noise_sd: Callable, lines: tuple = (None, None)
) -> Algorithm:
    """Return the algorithm that also observes `rank`, how many factors are used: () int32.

    `edge` is that of `edge_in_noise`, ``noise_sd(observed)`` the standard deviation of the noise at
    what is observed of a step, and `lines` the rows and columns that are looked at (None: all).
    """

    def observe(state, info):
        found = algorithm.observe(state, info)
        factors = [
            found[n] if chosen is None else found[n][np.asarray(chosen)]
            for n, chosen in zip(("usage", "basis"), lines, strict=True)
        ]
        used = used_factors(*factors, edge * noise_sd(found))
        return {**found, "rank": jnp.sum(used, dtype=jnp.int32)}

    return algorithm._replace(observe=observe)
