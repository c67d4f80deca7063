"""Nonnegative matrix factorisation, as a value."""

from __future__ import annotations

from typing import ClassVar

from bmfjax.specs import priors
from bmfjax.specs.base import (
    PRECISION,
    Kernel,
    Model,
    Prior,
    parameter,
    value_class,
)
from bmfjax.specs.samplers import ANNEALED, Gibbs


@value_class
class NMF(Model):
    """Nonnegative factors with exponential priors and normal noise.

    See Schmidt, Winther and Hansen (2009); the density is that of `bmfjax.models.nmf`. Where the
    number of factors is found, each has a rate that usage and basis share and that is learned, and
    vanishes where the data do not need it.

    {parameters}
    """

    name: ClassVar = "nmf"
    samplers: ClassVar = {
        Gibbs: Kernel(
            "bmfjax.infer.mcmc.nonnegative:NMFGibbs", ("log_joint", "residual"),
            ("moves", "walls", *ANNEALED),
        )
    }  # fmt: skip

    usage_rate: Prior = parameter(
        None,
        "rate of the exponential prior; default by the scale of the data, as "
        "`bmfjax.models.priors_by_scale` has it",
        priors.positive_number,
        kind="float, optional",
    )
    basis_rate: Prior = parameter(
        None, "the same of the basis", priors.positive_number, kind="float, optional"
    )
    rate: Prior = parameter(
        None,
        'with rank "auto" in place of these: the Gamma prior of each factor\'s own rate; default '
        "by the scale of the data, as `bmfjax.models.relevance_by_scale` has it",
        priors.gamma,
        kind="Gamma, optional",
    )
    precision: Prior = parameter(
        None,
        "a number fixes the noise precision, a Gamma distribution is its prior",
        priors.gamma_or_number,
        flag=PRECISION,
        kind="float or Gamma, optional",
    )
