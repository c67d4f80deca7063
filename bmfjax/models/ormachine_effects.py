r"""The OrMachine with row and column effects, as a NumPyro model of the observed entries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError


def ormachine_effects(
    rows,
    columns,
    values=None,
    *,
    shape,
    rank,
    effects=True,
    effect_precision=(1.0, 1.0),
    intercept_sd=10.0,
    dispersion_rate=1.0,
    density=(1.0, 1.0),
):
    r"""Logistic likelihood of a Boolean product and effects of rows and columns.

    .. math::

       \operatorname{logit} P(x_{ij} = 1) &= \mu + \lambda(2 c_{ij} - 1) + \alpha_i + \beta_j,
       \qquad c_{ij} = \bigvee_k z_{ik} u_{jk}, \\
       \mu &\sim N(0, s^2), \quad \lambda \sim \mathrm{Exp}(r), \quad
       \alpha_i \sim N(0, \tau_\alpha^{-1}), \quad \beta_j \sim N(0, \tau_\beta^{-1}), \\
       \tau_\alpha, \tau_\beta &\sim \mathrm{Gamma}(a, b), \quad
       z_{ik} \sim \mathrm{Bernoulli}(p_k), \quad u_{jk} \sim \mathrm{Bernoulli}(q_k), \quad
       p_k, q_k \sim \mathrm{Beta}(c, d).

    Without effects it is the OrMachine of Rukat et al. 2017 with
    :math:`\lambda = -\operatorname{logit}` of the flip rate; with rank 0 the factors and
    :math:`\lambda` are left out. The dispersion's prior falls from zero on: factors that the data
    say nothing about then hardly move a prediction.

    Parameters
    ----------
    rows, columns : (entry,) array of int
        Positions of the observed entries, from 0.
    values : (entry,) array, optional
        0 or 1. None: draw from the prior predictive.
    shape : (int, int)
        Rows and columns of the matrix.
    rank : int
        Number of factors, at least 0.
    effects : bool
        False: without intercept and effects.
    effect_precision : (float, float)
        Shape and rate of the Gamma priors of both precisions.
    intercept_sd, dispersion_rate : float
    density : (float, float)
        Parameters of the Beta priors of the densities.

    Raises
    ------
    InputError
        For a rank below 0, or nothing to model.

    Notes
    -----
    Sites: `usage` (rows, rank), `basis` (columns, rank), `usage_density` (rank,), `basis_density`
    (rank,), `dispersion` (); `row_effect` (rows,), `column_effect` (columns,), `row_precision`
    (), `column_precision` (), `intercept` (); `data` (entry,). Plate: `entries`.

    References
    ----------
    Rukat, Holmes, Titsias, Yau (2017), "Bayesian Boolean matrix factorisation", ICML.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from numpyro import handlers
    >>> rows, columns = np.array([0, 0, 2]), np.array([1, 0, 1])
    >>> model = handlers.seed(ormachine_effects, jax.random.key(0))
    >>> trace = handlers.trace(model).get_trace(rows, columns, shape=(3, 2), rank=4)
    >>> trace["usage"]["value"].shape, trace["data"]["value"].shape
    ((3, 4), (3,))
    """
    if whole("rank", rank, 0) == 0 and not effects:
        raise InputError("rank is 0 and effects is False; give a factor or the effects")
    rows, columns = jnp.asarray(rows), jnp.asarray(columns)
    logits = jnp.zeros(rows.shape)
    if effects:
        logits += numpyro.sample("intercept", dist.Normal(0.0, intercept_sd))
        logits += _effect("row", shape[0], effect_precision)[rows]
        logits += _effect("column", shape[1], effect_precision)[columns]
    if rank:
        usage = _bits("usage", shape[0], rank, density)
        basis = _bits("basis", shape[1], rank, density)
        dispersion = numpyro.sample("dispersion", dist.Exponential(dispersion_rate))
        covered = jnp.any((usage[rows] != 0) & (basis[columns] != 0), axis=-1)
        logits += jnp.where(covered, dispersion, -dispersion)
    values = None if values is None else jnp.asarray(values, int)
    with numpyro.plate("entries", len(rows)):
        numpyro.sample("data", dist.Bernoulli(logits=logits), obs=values)


def _effect(side, size, prior) -> jax.Array:
    precision = numpyro.sample(f"{side}_precision", dist.Gamma(*prior))
    effect = dist.Normal(0.0, precision**-0.5).expand([size]).to_event(1)
    return numpyro.sample(f"{side}_effect", effect)


def _bits(factor, size, rank, prior) -> jax.Array:
    beta = dist.Beta(*prior).expand([rank]).to_event(1)
    density = numpyro.sample(f"{factor}_density", beta)
    bits = dist.Bernoulli(density).expand([size, rank]).to_event(2)
    return numpyro.sample(factor, bits)
