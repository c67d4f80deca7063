r"""Penalties that pull the entries of factors to 0 and 1, and their proximal operators.

The proximal operator of a penalty :math:`\phi` at a point x is

.. math:: \operatorname{prox}_\phi(x) = \operatorname{argmin}_z \tfrac12 (z - x)^2 + \phi(z).

Both penalties here are sums over the entries, so that the operators act entry by entry.
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


def elastic_penalty(x, l1, l2):
    r"""Return the elastic binary penalty of each entry: an elastic net around the nearer of 0, 1.

    .. math:: \min_{b \in \{0, 1\}} \kappa |x - b| + \tfrac{\lambda}{2} (x - b)^2,

    and infinity below zero.

    Parameters
    ----------
    x : array, float
    l1, l2 : float
        :math:`\kappa` and :math:`\lambda`; nonnegative.

    Returns
    -------
    array of the shape of `x`

    References
    ----------
    Dalleiger, Vreeken (2022), "Efficiently factorizing Boolean matrices using proximal gradient
    descent", NeurIPS 35.

    Examples
    --------
    >>> elastic_penalty(jnp.array([-1.0, 0.0, 0.5, 1.0]), 1.0, 2.0).tolist()
    [inf, 0.0, 0.75, 0.0]
    """
    away = jnp.minimum(jnp.abs(x), jnp.abs(x - 1.0))
    return jnp.where(x < 0, jnp.inf, l1 * away + 0.5 * l2 * away**2)


def prox_elastic(x, l1, l2):
    r"""Return the proximal operator of :func:`elastic_penalty`.

    .. math:: \operatorname{prox}(x) = b + \frac{\operatorname{sign}(x - b)
              \max(|x - b| - \kappa, 0)}{1 + \lambda}

    with b = 0 for x up to 1/2 and else 1, and zero where this is negative.

    Parameters
    ----------
    x : array, float
    l1, l2 : float
        :math:`\kappa` and :math:`\lambda`; nonnegative. In PALM both are multiplied by the step.

    Returns
    -------
    array of the shape of `x`, nonnegative

    Notes
    -----
    As published the operator lacks the maximum: it subtracts :math:`\kappa \operatorname{sign}
    (x - b)` also within :math:`\kappa` of b, where it steps over b, and so does not minimise its
    definition there. The difference is at most :math:`\kappa`.

    References
    ----------
    Dalleiger, Vreeken (2022).

    Examples
    --------
    >>> prox_elastic(jnp.array([-1.0, 0.1, 0.5, 0.75, 2.0]), 0.25, 1.0).tolist()
    [0.0, 0.0, 0.125, 1.0, 1.375]
    """
    nearer = jnp.where(x <= 0.5, 0.0, 1.0)
    away = x - nearer
    shrunk = jnp.sign(away) * jnp.maximum(jnp.abs(away) - l1, 0.0) / (1.0 + l2)
    return jnp.maximum(nearer + shrunk, 0.0)
