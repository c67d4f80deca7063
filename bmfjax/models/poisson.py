r"""Nonnegative factorisation of a matrix of counts, as a NumPyro model."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from bmfjax.data.checks import positive, whole
from bmfjax.data.errors import InputError
from bmfjax.models.missing import split_missing
from bmfjax.models.relaxed import gamma_parameters


def poisson(
    data=None,
    observed=None,
    *,
    rank,
    usage_shape=1.0,
    basis_concentration=None,
    rate=None,
    offset=None,
    dispersion_scale=None,
    shape=None,
):
    r"""Observe counts that are sums over factors: a row's amount of each, spread over the columns.

    .. math::

       n_{ij} &\sim \mathrm{Poisson}\Big(o_i \sum_k y_{ik} x_{jk}\Big), \qquad
       y_{ik} \sim \mathrm{Gamma}(a, \beta_k), \\
       x_{\cdot k} &\sim \mathrm{Dirichlet}(c, \dots, c), \qquad
       \beta_k \sim \mathrm{Gamma}(g, h).

    Column k of the basis, :math:`x_{\cdot k}`, is a distribution over the columns of the data, so
    that :math:`y_{ik}` is the expected number of counts of row i that are of factor k, for an
    offset of one. This is Gamma-Poisson factorisation (Cemgil 2009, "Bayesian inference for
    nonnegative matrix factorisation models", Computational Intelligence and Neuroscience, equations
    8 to 13; Gopalan, Hofman, Blei 2015, "Scalable recommendation with hierarchical Poisson
    factorization", UAI) with a Dirichlet for the basis, which fixes the scale that usage and basis
    would share.

    With `dispersion_scale` counts are negative binomial, with the same mean and variance
    :math:`\lambda + s^2 \lambda^2`, :math:`s \sim N^+(0, \mathrm{scale}^2)`.

    Parameters
    ----------
    data : (rows, columns) array, optional
        Counts; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    usage_shape : float
        The a of the equations: below 1 rows use few of the factors.
    basis_concentration : float, optional
        The c of the equations: below 1 spectra are sparse. None: learned, from an exponential prior
        with mean 1. A number that is too large for sparse spectra spreads some of a factor's counts
        over columns that it does not have.
    rate : numpyro.distributions.Gamma, optional
        Prior of :math:`\beta_k`. Default: Gamma(1, 1).
    offset : (rows,) array, optional
        Known factors of the rows' rates, such as exposures or depths. Default: 1.
    dispersion_scale : float, optional
        Scale of the half normal prior of s; None: Poisson counts.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a rank below 1, numbers that are not positive, a `rate` that is no scalar Gamma
        distribution, or neither data nor shape.

    Notes
    -----
    Sites: `rate` (rank,), `usage` (rows, rank), `spectra` (rank, columns) and, the same transposed,
    `basis` (columns, rank); `concentration` () where it is learned; `dispersion` () with
    `dispersion_scale`; `data` (rows, columns).

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(poisson, rank=2, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["usage"].shape, draws["basis"].shape, draws["data"].shape
    ((5, 4, 2), (5, 3, 2), (5, 4, 3))
    """
    whole("rank", rank)
    positive("usage_shape", usage_shape)
    if basis_concentration is not None:
        positive("basis_concentration", basis_concentration)
    values, seen = split_missing(data, observed)
    if values is None and shape is None:
        raise InputError("poisson needs data, or the shape of the matrix to draw; give shape=")
    rows, columns = values.shape if values is not None else shape
    offset = jnp.ones(rows) if offset is None else jnp.asarray(offset, jnp.result_type(float))
    prior = dist.Gamma(1.0, 1.0) if rate is None else dist.Gamma(*gamma_parameters(rate, "rate"))
    of_factors = numpyro.sample("rate", prior.expand([rank]).to_event(1))
    usage = numpyro.sample(
        "usage", dist.Gamma(usage_shape, of_factors).expand([rows, rank]).to_event(2)
    )
    if basis_concentration is None:
        basis_concentration = numpyro.sample("concentration", dist.Exponential(1.0))
    flat = dist.Dirichlet(jnp.full(columns, basis_concentration, jnp.result_type(float)))
    spectra = numpyro.sample("spectra", flat.expand([rank]).to_event(1))
    numpyro.deterministic("basis", spectra.T)
    mean = offset[:, None] * (usage @ spectra)
    if dispersion_scale is None:
        counts = dist.Poisson(mean)
    else:
        positive("dispersion_scale", dispersion_scale)
        size = numpyro.sample("dispersion", dist.HalfNormal(dispersion_scale)) ** -2.0
        counts = dist.GammaPoisson(size, size / mean)
    with handlers.mask(mask=True if seen is None else seen):
        numpyro.sample("data", counts, obs=values)


def poisson_rate_by_scale(rank: int, usage_shape: float, total: float) -> dist.Gamma:
    """Return the prior of the rates of `poisson`, for data of any size.

    Parameters
    ----------
    rank : int
    usage_shape : float
    total : float
        Mean sum of the counts of a row, over its offset.

    Returns
    -------
    numpyro.distributions.Gamma
        With shape 1, and ten times as large a mean as the rate with which `rank` factors have this
        total: wide enough for factors of a hundredth of the counts and of all of them.

    Examples
    --------
    >>> round(float(poisson_rate_by_scale(2, 1.0, 100.0).mean), 3)
    0.2
    """
    return dist.Gamma(1.0, 0.1 * total / (rank * usage_shape))
