r"""The relaxed Boolean matrix factorisation, as a NumPyro model."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bmfjax.data.errors import InputError

#: The priors of Gonsior 2019, equations 3.3 to 3.6, restricted to [0, 1].
PRIORS = ("uniform", "normal", "laplace", "beta")


def relaxed_bmf(
    data=None,
    observed=None,
    *,
    rank,
    prior="uniform",
    usage_prior=None,
    basis_prior=None,
    precision=None,
    shape=None,
):
    r"""Gaussian likelihood around a product of factors in [0, 1].

    .. math::

       d_{ij} \sim \mathcal N\Big(\sum_k y_{ik} x_{jk},\ \tau^{-1}\Big), \qquad
       y_{ik} \sim p_Y,\quad x_{jk} \sim p_X,\quad \tau \sim \mathrm{Gamma}(1, 1),

    Gonsior 2019, equation 3.2 (there :math:`\tau = 1`). With the precision fixed at
    one the posterior of a binary matrix hardly leaves the prior; learned, it finds
    the noise that the data have.

    The plates are full and the data are indexed by the plates' indices, so that
    `Predictive`, `log_likelihood`, NUTS and SVI see the whole model and `IASG`
    chooses its own minibatches.

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    prior : str or numpyro.distributions.Distribution
        Prior of every entry of both factor matrices: "uniform", "normal"
        (standard normal), "laplace" (scale 2), the latter two truncated to
        [0, 1], "beta" (Beta(1/2, 1/2)), or any scalar distribution on [0, 1].
    usage_prior, basis_prior : like `prior`, optional
        Prior of one factor matrix, in place of `prior`.
    precision : float or numpyro.distributions.Distribution, optional
        Noise precision :math:`\tau`: a number fixes it, a distribution is its
        prior. Default: Gamma(1, 1).
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For an unknown prior, one with support outside [0, 1], a rank below 1, or
        neither data nor shape.

    Notes
    -----
    Sites: `usage` (rows, rank), `basis` (columns, rank), `precision` () where it
    is learned, `data` (rows, columns). Plates: `rows`, `columns`.

    Examples
    --------
    >>> import functools, jax, numpy as np
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(relaxed_bmf, rank=2, shape=(4, 3))
    >>> draws = Predictive(model, num_samples=5)(jax.random.key(0))
    >>> draws["usage"].shape, draws["data"].shape
    ((5, 4, 2), (5, 4, 3))
    """
    if rank < 1:
        raise InputError(f"rank is {rank}; give a number of factors of at least 1")
    if data is None and shape is None:
        raise InputError("relaxed_bmf needs data, or shape=(rows, columns) to simulate some")
    rows, columns = shape if data is None else jnp.shape(data)
    values, seen = _split_missing(data, observed)

    usage_prior = prior if usage_prior is None else usage_prior
    basis_prior = prior if basis_prior is None else basis_prior
    usage = _factor("usage", "rows", rows, rank, usage_prior)
    basis = _factor("basis", "columns", columns, rank, basis_prior)
    tau = resolve_precision(precision)
    if isinstance(tau, dist.Distribution):
        tau = numpyro.sample("precision", tau)

    with numpyro.plate("rows", rows, dim=-2) as i, numpyro.plate("columns", columns, dim=-1) as j:
        noise = dist.Normal(usage[i] @ basis[j].T, 1.0 / jnp.sqrt(tau))
        if seen is not None:
            noise = noise.mask(seen[i][:, j])
        numpyro.sample("data", noise, obs=None if values is None else values[i][:, j])


def _split_missing(data, observed):
    """Values with zeros for what is missing (a NaN would poison gradients), and the mask."""
    if data is None:
        return None, None
    values = jnp.asarray(data, jnp.result_type(float))
    seen = ~jnp.isnan(values)
    if observed is not None:
        seen = seen & jnp.asarray(observed, bool)
    return jnp.where(seen, values, 0.0), seen


def _factor(name, plate, size, rank, prior):
    entry = resolve_prior(prior, name)
    infer = {"event_dims": [plate, "factor"]}
    return numpyro.sample(name, entry.expand([size, rank]).to_event(2), infer=infer)


def resolve_prior(prior, site="factor") -> dist.Distribution:
    """The scalar distribution on [0, 1] that a prior's name stands for.

    Parameters
    ----------
    prior : str or numpyro.distributions.Distribution
    site : str
        For the message.

    Returns
    -------
    numpyro.distributions.Distribution

    Raises
    ------
    InputError
        For an unknown name, a distribution that is not scalar, or support outside
        [0, 1].

    Examples
    --------
    >>> resolve_prior("beta").concentration1
    0.5
    """
    if isinstance(prior, str):
        if prior not in PRIORS:
            raise InputError(
                f"prior {prior!r} of {site} is unknown; choose from {', '.join(PRIORS)} "
                "or give a NumPyro distribution on [0, 1]"
            )
        return {
            "uniform": lambda: dist.Uniform(0.0, 1.0),
            "normal": lambda: dist.TruncatedNormal(0.0, 1.0, low=0.0, high=1.0),
            "laplace": lambda: dist.TruncatedDistribution(
                dist.Laplace(0.0, 2.0), low=0.0, high=1.0
            ),
            "beta": lambda: dist.Beta(0.5, 0.5),
        }[prior]()
    if not isinstance(prior, dist.Distribution):
        raise TypeError(
            f"prior of {site} is a {type(prior).__name__}; give a name or a NumPyro distribution"
        )
    if prior.batch_shape or prior.event_shape:
        raise InputError(f"prior of {site} has shape {prior.shape()}; give a scalar distribution")
    low, high = box(prior.support) or (None, None)
    if low is None or low < 0.0 or high > 1.0:
        raise InputError(
            f"prior of {site} has support {prior.support}; give a distribution on [0, 1]"
        )
    return prior


def box(support):
    """(low, high) of an interval with constant ends, else None.

    Examples
    --------
    >>> box(constraints.unit_interval), box(constraints.real)
    ((0.0, 1.0), None)
    """
    support = getattr(support, "base_constraint", support)  # of an independent event
    if support is constraints.unit_interval:
        return 0.0, 1.0
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if low is None or high is None or not (jnp.ndim(low) == jnp.ndim(high) == 0):
        return None
    return (float(low), float(high)) if getattr(support, "is_discrete", False) is False else None


def resolve_precision(precision):
    """A positive number, or the prior distribution of a learned noise precision.

    Parameters
    ----------
    precision : float or numpyro.distributions.Distribution or None
        None stands for Gamma(1, 1).

    Returns
    -------
    float or numpyro.distributions.Distribution

    Raises
    ------
    InputError
        For a number that is not positive.

    Examples
    --------
    >>> resolve_precision(1.0)
    1.0
    """
    if precision is None:
        return dist.Gamma(1.0, 1.0)
    if isinstance(precision, dist.Distribution):
        return precision
    if jnp.ndim(precision) == 0 and float(precision) > 0:
        return float(precision)
    raise InputError(f"precision is {precision!r}; give a positive number or a distribution")
