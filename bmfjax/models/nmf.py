r"""Bayesian nonnegative matrix factorisation, as a NumPyro model."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro.distributions as dist

from bmfjax.data.errors import InputError
from bmfjax.models.relaxed import relaxed_bmf
from bmfjax.specs.priors import positive_number


def nmf(
    data=None,
    observed=None,
    *,
    rank,
    usage_rate=None,
    basis_rate=None,
    rate=None,
    precision=None,
    shape=None,
):
    r"""Observe a product of nonnegative factors with exponential priors.

    .. math::

       d_{ij} \sim \mathcal N\Big(\sum_k y_{ik} x_{jk},\ \tau^{-1}\Big), \qquad
       y_{ik} \sim \mathrm{Exp}(\lambda_Y),\quad x_{jk} \sim \mathrm{Exp}(\lambda_X)

    (Schmidt, Winther, Hansen 2009, equations 1 to 4, with a Gamma prior of the precision
    :math:`\tau`). Sampled exactly by `bmfjax.NMFGibbs`, and as any NumPyro model by NUTS, or by
    HMC on the logarithms of the entries:
    ``HMC(functools.partial(nmf, rank=3), num_steps=100)``.

    With `rate` every factor has a rate of its own, which usage and basis share and which is
    learned: :math:`\lambda_k \sim \mathrm{Gamma}(a, b)` and :math:`y_{ik}, x_{jk} \sim
    \mathrm{Exp}(\lambda_k)`. Rates of factors that the data do not need become high: automatic
    relevance determination (Tan, Févotte 2013, "Automatic relevance determination in nonnegative
    matrix factorization with the beta-divergence", IEEE TPAMI 35(7), with the scale
    :math:`1/\lambda_k` inverse-Gamma, their :math:`\ell_1` case).

    Parameters
    ----------
    data : (rows, columns) array, optional
        Real numbers; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    usage_rate, basis_rate : float, optional
        Rates of the exponential priors; only their product matters to the fit. Default: 1.
    rate : numpyro.distributions.Gamma, optional
        Prior of the rates of the factors, in place of `usage_rate` and `basis_rate`.
    precision : float or numpyro.distributions.Distribution, optional
        Noise precision: a number fixes it, a distribution is its prior. Default: Gamma(1, 1).
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For rates that are not positive numbers, `rate` beside one of them, or arguments that
        `relaxed_bmf` refuses.

    Notes
    -----
    Sites: `usage` (rows, rank), `basis` (columns, rank), `rate` (rank,) where it is given a
    prior, `precision` () where it is learned, `data` (rows, columns).

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(nmf, rank=2, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["basis"].shape, bool((draws["usage"] >= 0).all())
    ((5, 3, 2), True)
    """
    return relaxed_bmf(
        data,
        observed,
        rank=rank,
        precision=precision,
        shape=shape,
        **nmf_priors(usage_rate, basis_rate, rate),
    )


def priors_by_scale(rank: int, mean: float, square: float) -> dict:
    """Return priors of `nmf` for data of any unit.

    Parameters
    ----------
    rank : int
    mean, square : float
        Means of the observed entries and of their squares; the mean is positive.

    Returns
    -------
    dict
        Equal rates with which the product has this mean a priori, and Gamma(1, square / 10^6) for
        the precision: it counts like two entries with noise of a thousandth of the data's size.

    Examples
    --------
    >>> priors_by_scale(2, 0.5, 1.0)["usage_rate"]
    2.0
    """
    rate = (rank / mean) ** 0.5
    precision = dist.Gamma(1.0, 1e-6 * square)
    return {"usage_rate": rate, "basis_rate": rate, "precision": precision}


def relevance_by_scale(mean: float) -> dist.Gamma:
    """Return the prior of rates of `nmf` with which factors may all but vanish, for any unit.

    Parameters
    ----------
    mean : float
        Mean of the observed entries, positive; 1 suits the rates of "ard" in `relaxed_bmf`.

    Returns
    -------
    numpyro.distributions.Gamma
        With shape 1, and so large a mean that a factor adds a ten-thousandth of the data's mean or
        so, unless the data ask for more.

    Examples
    --------
    >>> float(relevance_by_scale(4.0).mean)
    50.0
    """
    return dist.Gamma(1.0, 0.01 * mean**0.5)


def nmf_priors(usage_rate, basis_rate, rate=None) -> dict:
    """Return the arguments of `relaxed_bmf` that make it `nmf`."""
    given = {"usage_rate": usage_rate, "basis_rate": basis_rate}
    if rate is not None:
        for name, value in given.items():
            if value is not None:
                raise InputError(
                    f"{name} is {value!r}, and rate is the prior of rates that usage and basis "
                    "share; leave one of them out"
                )
        return {"upper": jnp.inf, "prior": "ard", "rate": rate}
    priors = {"upper": jnp.inf}
    for name, value in given.items():
        rate = 1.0 if value is None else positive_number(name, value)
        priors[name.removesuffix("_rate")] = dist.Exponential(rate)
    return priors
