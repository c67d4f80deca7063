"""Binary features, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmfjax.specs import checks, priors
from bmfjax.specs.base import (
    Flag,
    Kernel,
    Model,
    Prior,
    a_choice,
    a_positive,
    gamma_pair,
    parameter,
    value_class,
)
from bmfjax.specs.samplers import ANNEALED, Gibbs


@value_class
class Features(Model):
    """Binary features of rows, each of which changes the log odds of a one in some columns.

    Beside intercepts and row effects. A latent feature model (Griffiths, Ghahramani 2011) with
    spike-and-slab weights; in psychometrics the main effects of the log-linear cognitive diagnosis
    model (Henson, Templin, Willse 2009). The density is that of `bmfjax.models.features`. All
    numbers of features that are there, up to the rank, are equally probable beforehand: a feature
    that the data do not need is absent from the draws.

    `anchors` that are all 0 or 1 say which columns a known feature concerns, and its
    weights are learned; other numbers are the weights.

    {parameters}

    Examples
    --------
    >>> from bmfjax import Features
    >>> Features("auto", weights="positive")
    Features('auto', weights='positive')
    """

    name: ClassVar = "features"
    samplers: ClassVar = {
        Gibbs: Kernel(
            "bmfjax.kernels.features.gibbs:features_gibbs", ("log_joint",), ("rebirths", *ANNEALED)
        )
    }

    weights: str = parameter(
        "signed",
        '"signed", which predict best, or "positive", where features only raise odds: tiles that '
        "are easy to read",
        a_choice("signed", "positive"),
        flag=Flag(
            "--weights", "weights of features (signed where not given)",
            {"choices": ["signed", "positive"]},
        ),
    )  # fmt: skip
    slab: Sequence[float] = parameter(
        (3.0, 9.0),
        "shape and rate of the Gamma prior of the precision of a feature's weights, one over "
        "their mean square, which keeps them away from zero",
        gamma_pair,
        kind="pair of float",
    )
    row_effects: bool = parameter(True, "whether rows have effects of their own", checks.switch)
    row_scale: float = parameter(
        0.5, "scale of the half normal prior of their standard deviation", a_positive("scale")
    )
    usage: Prior = parameter(
        None,
        "memberships that are known, (rows, rank): 0 or 1, and NaN elsewhere; none by default. "
        "Known features come first",
        priors.memberships,
        kind="array, optional",
    )
