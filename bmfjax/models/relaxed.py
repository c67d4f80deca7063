r"""The relaxed Boolean matrix factorisation, as a NumPyro model."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.models.missing import split_missing
from bmfjax.specs.priors import factor_prior, gamma, is_positive


def relaxed_bmf(
    data=None,
    observed=None,
    *,
    rank,
    prior="uniform",
    usage=None,
    basis=None,
    precision=None,
    rate=None,
    upper=1.0,
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
        [0, 1], "beta" (Beta(1/2, 1/2)), "ard" (exponential, truncated to [0, 1],
        with a rate of each factor's own that is learned: automatic relevance
        determination), or any scalar distribution on [0, 1].
    usage, basis : like `prior`, optional
        Prior of one factor matrix, in place of `prior`.
    precision : float or numpyro.distributions.Distribution, optional
        Noise precision :math:`\tau`: a number fixes it, a distribution is its
        prior. Default: Gamma(1, 1).
    rate : numpyro.distributions.Gamma, optional
        Prior of the rates of "ard" (that prior only). Default: Gamma(1, 1).
    upper : {1.0, inf}
        Upper bound of the factors. With infinity this is a non-negative
        factorisation with Gaussian noise (Schmidt, Winther, Hansen 2009): "normal"
        is then half-normal, "laplace" and "ard" are exponential, and "uniform",
        which would be improper, and "beta" are refused.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For an unknown prior, one with support outside [0, upper] or improper there,
        a rank below 1, or neither data nor shape.

    Notes
    -----
    Sites: `usage` (rows, rank), `basis` (columns, rank), `precision` () where it
    is learned, `rate` (rank,) with "ard", `data` (rows, columns). Plates: `rows`,
    `columns`.

    Examples
    --------
    >>> import functools, jax, numpy as np
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(relaxed_bmf, rank=2, shape=(4, 3))
    >>> draws = Predictive(model, num_samples=5)(jax.random.key(0))
    >>> draws["usage"].shape, draws["data"].shape
    ((5, 4, 2), (5, 4, 3))
    """
    whole("rank", rank)
    if data is None and shape is None:
        raise InputError("relaxed_bmf needs data, or shape=(rows, columns) to simulate some")
    rows, columns = shape if data is None else jnp.shape(data)
    values, seen = split_missing(data, observed)

    priors = {
        "usage": prior if usage is None else usage,
        "basis": prior if basis is None else basis,
    }
    hyper = resolve_rate(rate, priors.values())
    if hyper is not None:
        hyper = numpyro.sample("rate", hyper.expand([rank]).to_event(1))
    usage = _factor("usage", "rows", rows, rank, priors["usage"], hyper, upper)
    basis = _factor("basis", "columns", columns, rank, priors["basis"], hyper, upper)
    tau = resolve_precision(precision)
    if isinstance(tau, dist.Distribution):
        tau = numpyro.sample("precision", tau)

    with numpyro.plate("rows", rows, dim=-2) as i, numpyro.plate("columns", columns, dim=-1) as j:
        noise = dist.Normal(usage[i] @ basis[j].T, 1.0 / jnp.sqrt(tau))
        if seen is not None:
            noise = noise.mask(seen[i][:, j])
        numpyro.sample("data", noise, obs=None if values is None else values[i][:, j])


def _factor(name, plate, size, rank, prior, rate, upper):
    ard = isinstance(prior, str) and prior == "ard"
    entry = exponential(rate, upper) if ard else resolve_prior(prior, name, upper)
    infer = {"event_dims": [plate, "factor"]}
    return numpyro.sample(name, entry.expand([size, rank]).to_event(2), infer=infer)


def exponential(rate, upper):
    """Return the exponential distribution with these rates, truncated to [0, upper]."""
    if upper == jnp.inf:
        return dist.Exponential(rate)
    return dist.TruncatedDistribution(dist.Laplace(0.0, 1.0 / rate), low=0.0, high=upper)


def resolve_rate(rate, priors):
    """Return the prior of the learned rates, or None where no prior is "ard".

    Parameters
    ----------
    rate : numpyro.distributions.Gamma or None
        None stands for Gamma(1, 1).
    priors : iterable
        Priors of the factors' entries.

    Returns
    -------
    numpyro.distributions.Gamma or None

    Raises
    ------
    InputError
        For a rate that no prior uses, or that is not a Gamma distribution.

    Examples
    --------
    >>> resolve_rate(None, ["uniform"]) is None
    True
    """
    if not any(isinstance(p, str) and p == "ard" for p in priors):
        if rate is not None:
            raise InputError('rate is the prior of the rates of "ard"; give prior="ard" with it')
        return None
    rate = dist.Gamma(1.0, 1.0) if rate is None else rate
    return gamma("rate", rate)


def resolve_prior(prior, site="factor", upper=1.0) -> dist.Distribution:
    """Return the scalar distribution on [0, upper] that a prior's name stands for.

    Parameters
    ----------
    prior : str or numpyro.distributions.Distribution
        Not "ard", whose rates belong to the factors.
    site : str
        For the message.
    upper : float
        1 or infinity.

    Returns
    -------
    numpyro.distributions.Distribution

    Raises
    ------
    InputError
        For an unknown name, a distribution that is not scalar, or support outside
        [0, upper].

    Examples
    --------
    >>> resolve_prior("beta").concentration1
    0.5
    """
    if upper not in (1.0, jnp.inf):
        raise InputError(f"upper is {upper}; the factors are on [0, 1] or, with inf, on [0, inf)")
    if isinstance(prior, str) and prior == "ard":
        raise InputError(
            f"the prior of {site} is 'ard', whose rates belong to the factors; give another"
        )
    prior = factor_prior(f"the prior of {site}", prior, upper)
    return _named_prior(prior, site, upper) if isinstance(prior, str) else prior


def _named_prior(prior, site, upper):
    if upper == jnp.inf:
        if prior in ("uniform", "beta"):
            why = "improper" if prior == "uniform" else "not defined"
            raise InputError(
                f"prior {prior!r} of {site} is {why} on [0, inf); give 'normal' (half-normal), "
                "'laplace' or 'ard' (exponential)"
            )
        return dist.HalfNormal(1.0) if prior == "normal" else dist.Exponential(0.5)
    return {
        "uniform": lambda: dist.Uniform(0.0, 1.0),
        "normal": lambda: dist.TruncatedNormal(0.0, 1.0, low=0.0, high=1.0),
        "laplace": lambda: exponential(0.5, 1.0),
        "beta": lambda: dist.Beta(0.5, 0.5),
    }[prior]()


def resolve_precision(precision):
    """Return a positive number, or the prior distribution of a learned noise precision.

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
        if precision.batch_shape or precision.event_shape:
            raise InputError(
                f"the prior of precision has shape {precision.shape()}; give a scalar distribution"
            )
        return precision
    if is_positive(precision):
        return float(precision)
    raise InputError(f"precision is {precision!r}; give a positive number or a distribution")


def gamma_parameters(prior, name: str) -> tuple[float, float]:
    """Return shape and rate of a scalar Gamma prior, also given as a pair; None is Gamma(1, 1)."""
    if prior is None:
        return 1.0, 1.0
    if isinstance(prior, dist.Gamma) and not prior.batch_shape:
        prior = prior.concentration, prior.rate
    if isinstance(prior, dist.Distribution):
        raise InputError(
            f"the prior of {name} is {type(prior).__name__}; it is drawn from its Gamma "
            "conditional: give a scalar Gamma prior"
        )
    shape, rate = map(float, prior)
    return shape, rate
