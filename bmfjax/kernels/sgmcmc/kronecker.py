r"""The covariance of the gradients of a factor matrix as a Kronecker product.

The gradient of one case in a matrix of m lines and r factors is the outer product of what is left
of the case, in m places, and its r coordinates. Where the two do not depend on each other the
covariance of such gradients, in row-major order, is :math:`U\otimes V` with U (m, m) and V (r, r):
:math:`m^2+r^2` numbers instead of :math:`(mr)^2`. Fewer cases tell them.

With gradients :math:`Z_i` (m, r) about their mean, each factor is the second moment in coordinates
in which the other is the unit matrix,

.. math:: U = \frac1{nr}\sum_i Z_iV^{-1}Z_i^\top, \qquad V = \frac1{nm}\sum_i Z_i^\top U^{-1}Z_i,

in turn until they settle (Dutilleul 1999). For normal gradients this is maximum likelihood. For
any others of covariance :math:`U\otimes V` it converges to that, as
:math:`\operatorname{E}ZB^{-1}Z^\top = U\operatorname{tr}(VB^{-1})` for every B.
"""

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.numerics.precision import full_precision

#: Rounds, and the share of the mean variance by which the factors are kept definite.
NUM_ROUNDS, RIDGE = 20, 1e-5


@full_precision
def kronecker_factors(gradients: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return U (m, m) and V (r, r), with trace r, of gradients (case, m, r) about their mean.

    >>> from jax import random
    >>> z = random.normal(random.key(0), (5000, 2, 2)) * jnp.array([[1.0], [2.0]])
    >>> rows, columns = kronecker_factors(z)
    >>> jnp.diagonal(rows).round(1).tolist(), jnp.diagonal(columns).round(1).tolist()
    ([1.0, 4.0], [1.0, 1.0])
    """
    n, m, r = gradients.shape

    def one(_, columns):
        rows = jnp.einsum("iab,bc,idc->ad", gradients, _inverse(columns), gradients) / (n * r)
        columns = jnp.einsum("iab,ac,icd->bd", gradients, _inverse(rows), gradients) / (n * m)
        return columns * (r / jnp.trace(columns))

    columns = lax.fori_loop(0, NUM_ROUNDS, one, jnp.eye(r, dtype=gradients.dtype))
    rows = jnp.einsum("iab,bc,idc->ad", gradients, _inverse(columns), gradients) / (n * r)
    return rows, columns


def _inverse(matrix):
    scale = jnp.trace(matrix) / len(matrix)
    scale = jnp.where(scale > 0.0, scale, 1.0)
    return jnp.linalg.inv(matrix + RIDGE * scale * jnp.eye(len(matrix), dtype=matrix.dtype))
