"""Factorisation of counts, as a value."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bmfjax.errors import InputError
from bmfjax.specs import priors
from bmfjax.specs.base import Kernel, Model, Prior, a_positive, parameter, value_class
from bmfjax.specs.samplers import Gibbs


def checked_offset(name: str, value: Any) -> np.ndarray:
    """Return one positive number for each row."""
    values = priors.as_numbers(value)
    if values.ndim != 1 or values.dtype.kind not in "fiu" or not (values > 0).all():
        raise InputError(f"{name} is {value!r}; give a positive number for each row")
    if not np.isfinite(values).all():
        raise InputError(f"{name} has a number that is not finite; give a positive one a row")
    return values.astype(float)


@value_class
class Poisson(Model):
    """Counts that are sums over factors: a row's amount of each, spread over the columns.

    Gamma-Poisson factorisation (Cemgil 2009; Gopalan, Hofman, Blei 2015): mutations by signatures,
    words by topics, clicks by tastes. Every column of the basis is a distribution over the columns
    of the data, and the usage is in counts. The density is that of `bmfjax.models.poisson`. Where
    the number of factors is found, all numbers up to the rank are equally probable beforehand, and
    a factor that the data do not need is absent from the draws.

    `anchors` are known spectra, in any unit.

    {parameters}

    Examples
    --------
    >>> from bmfjax import Poisson
    >>> Poisson("auto", dispersion_scale=1.0)
    Poisson('auto', dispersion_scale=1.0)
    """

    name: ClassVar = "poisson"
    samplers: ClassVar = {
        Gibbs: Kernel("bmfjax.kernels.poisson.gibbs:poisson_gibbs", ("log_joint",))
    }

    usage_shape: float = parameter(
        1.0,
        "shape of the Gamma prior of the usage; below 1 rows use few of the factors",
        a_positive("shape"),
    )
    basis_concentration: float | None = parameter(
        None,
        "parameter of the symmetric Dirichlet prior of each spectrum, below 1 for sparse ones; "
        "learned by default",
        a_positive("concentration"),
        kind="float, optional",
    )
    rate: Prior = parameter(
        None,
        "Gamma prior of the rates of the usage, one for each factor; default by the scale of the "
        "data, as `bmfjax.models.poisson_rate_by_scale` has it",
        priors.gamma,
        kind="Gamma, optional",
    )
    offset: Prior = parameter(
        None,
        "known multiples of the rows' rates, such as exposures or sequencing depths, (rows,); "
        "1 by default",
        checked_offset,
        kind="array, optional",
    )
    dispersion_scale: float | None = parameter(
        None,
        "scale of the half normal prior of the standard deviation by which rates scatter: counts "
        "are negative binomial; None: Poisson",
        a_positive("scale"),
        kind="float, optional",
    )
