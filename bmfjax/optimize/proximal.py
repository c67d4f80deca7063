r"""The penalty that pulls the entries of factors to 0 and 1, and its proximal operator.

The proximal operator of a penalty :math:`\phi` at a point x is

.. math:: \operatorname{prox}_\phi(x) = \operatorname{argmin}_z \tfrac12 (z - x)^2 + \phi(z).

The penalty is a sum over the entries, so that the operator acts entry by entry.
"""

from __future__ import annotations

import jax.numpy as jnp


def binary_penalty(x):
    r"""Return PanPAL's penalty of each entry: :math:`1 - |1 - 2x|` in [0, 1], infinite outside.

    Parameters
    ----------
    x : array, float

    Returns
    -------
    array of the shape of `x`
        Zero at 0 and 1, one at 1/2.

    References
    ----------
    Hess, Morik, Piatkowski (2017), "The PRIMPING routine: tiling through proximal alternating
    linearized minimization", Data Mining and Knowledge Discovery 31.

    Examples
    --------
    >>> binary_penalty(jnp.array([0.0, 0.25, 1.5])).tolist()
    [0.0, 0.5, inf]
    """
    inside = (x >= 0) & (x <= 1)
    return jnp.where(inside, 1.0 - jnp.abs(1.0 - 2.0 * x), jnp.inf)


def prox_binary(x, strength):
    r"""Return the proximal operator of `strength` times :func:`binary_penalty`.

    .. math:: \operatorname{prox}(x) = \begin{cases} \max(0, x - 2\rho) & x \le 1/2 \\
              \min(1, x + 2\rho) & x > 1/2 \end{cases}

    with :math:`\rho` the strength.

    Parameters
    ----------
    x : array, float
    strength : float
        Nonnegative; in PALM the size of the step.

    Returns
    -------
    array of the shape of `x`, in [0, 1]

    References
    ----------
    Gonsior (2019), "Probabilistic Boolean matrix factorisation", equation 2.13; Hess, Morik,
    Piatkowski (2017).

    Examples
    --------
    >>> prox_binary(jnp.array([-1.0, 0.25, 0.75, 3.0]), 0.0625).tolist()
    [0.0, 0.125, 0.875, 1.0]
    """
    down, up = jnp.maximum(x - 2 * strength, 0.0), jnp.minimum(x + 2 * strength, 1.0)
    return jnp.where(x <= 0.5, down, up)
