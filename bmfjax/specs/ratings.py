"""Models of ratings, as values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from bmfjax.errors import InputError
from bmfjax.specs import checks
from bmfjax.specs.base import (
    PRECISION,
    SIDES,
    Flag,
    Kernel,
    Model,
    a_choice,
    a_positive,
    gamma_pair,
    pair,
    parameter,
    value_class,
)
from bmfjax.specs.priors import RELEVANCE
from bmfjax.specs.samplers import Gibbs

#: Factors of ratings where their number is not given: their precision matrix is learned, and
#: shrinks those that few ratings tell of.
RATINGS_RANK = 10
#: Shape and rate of the prior of the relative precision of coefficients of attributes.
RIDGE = (0.5, 0.01)
#: What the lines of attributes know of their cells: the sides of each choice.
RATED = {"rows": ("row",), "columns": ("column",), "both": ("row", "column")}


def _level(name, value) -> list[float]:
    """Return the mean and standard deviation of a normal prior, checked."""
    wanted = "a mean and a positive standard deviation, such as [3.5, 2]"
    mean, sd = pair(name, value, wanted)
    if not (math.isfinite(mean) and 0 < sd < math.inf):
        raise InputError(f"{name} is {value!r}; give {wanted}")
    return [mean, sd]


def _both(value) -> bool:
    """Return whether --effects asks for them."""
    if value not in ("both", "none"):
        raise InputError(
            f"--effects {value} is for the logistic model; models of ratings have both or none"
        )
    return value == "both"


@value_class
class RatingsModel(Model):
    """What models of ratings have in common: real factors whose mean and precision are learned."""

    samplers: ClassVar = {Gibbs: Kernel("bmfjax.kernels.ratings.gibbs:pmf_gibbs", ("log_joint",))}

    effects: bool = parameter(
        True,
        "whether rows and columns have effects",
        checks.switch,
        flag=Flag(
            "--effects", "rows and columns have biases of their own (both where not given)", SIDES,
            _both,
        ),
    )  # fmt: skip
    effect_gamma: Sequence[float] | None = parameter(
        None,
        "shape and rate of the prior of the effects' precisions; default 1 and a quarter of the "
        "variance of the values, 1 and 1 behind a probit",
        gamma_pair,
        kind="pair of float, optional",
    )
    strength: float = parameter(2.0, "of the Normal-Wishart prior", a_positive("number"))
    degrees: float | None = parameter(
        None, "the same; default the rank", a_positive("number"), kind="float, optional"
    )
    scale: float | None = parameter(
        None, "the same; default 1", a_positive("number"), kind="float, optional"
    )
    relevance: Sequence[float] | None = parameter(
        None,
        'with rank "auto" in place of these: shape and rate of the Gamma prior of the precision '
        "that each column of either factor matrix has of its own; default "
        f"{RELEVANCE[0]} and {RELEVANCE[1]}",
        gamma_pair,
        kind="pair of float, optional",
    )
    level: Sequence[float] | None = parameter(
        None,
        "mean and standard deviation of the normal prior of the intercept, or of every cut point "
        "before they are put in order; default the mean of the values and 10 times their standard "
        "deviation, 0 and 1 of the intercept behind a probit, and 0 and 2 of cut points",
        _level,
        kind="pair of float, optional",
    )
    rated: str | None = parameter(
        None,
        'whether the factors and effects of "rows", "columns" or "both" depend on which of their '
        "cells are rated, beside their attributes; default none",
        a_choice(*RATED),
        flag=Flag(
            "--rated", "factors of these depend on which of their cells are rated",
            {"choices": list(RATED)},
        ),
    )  # fmt: skip
    ridge: Sequence[float] = parameter(
        RIDGE,
        "with attributes: shape and rate of the prior of the precision of their coefficients, "
        "relative to that of what they leave unexplained",
        gamma_pair,
        kind="pair of float",
    )


@value_class
class PMF(RatingsModel):
    """Ratings with normal noise, real factors, and effects of rows and columns.

    The mean and precision matrix of the factors are learned (Salakhutdinov, Mnih 2008). The density
    is that of `bmfjax.models.pmf`. Where the number of factors is found, each column of a factor
    matrix has a precision of its own, and vanishes where the data do not need it.

    {parameters}
    """

    name: ClassVar = "pmf"
    default_rank: ClassVar = RATINGS_RANK

    precision: float | None = parameter(
        None, "fixes the noise precision (2 in the paper)", a_positive("number"), flag=PRECISION,
        kind="float, optional",
    )  # fmt: skip
    precision_gamma: Sequence[float] | None = parameter(
        None,
        "shape and rate of the prior of the noise precision; default 1 and a quarter of the "
        "variance of the values",
        gamma_pair,
        kind="pair of float, optional",
    )
    usage_unit: float | None = parameter(
        None,
        "so many times larger than the basis the usage is beforehand; default half the standard "
        "deviation of the values, or 1 where `scale` or `relevance` is given",
        a_positive("number"),
        kind="float, optional",
    )


@value_class
class Probit(RatingsModel):
    """Real factors behind a probit, for ones and zeros.

    `PMF` without its noise (Albert, Chib 1993); the density is that of `bmfjax.models.pmf`.

    {parameters}
    """

    name: ClassVar = "probit"


@value_class
class OrderedProbit(RatingsModel):
    """Real factors behind a probit, for stars.

    `PMF` without its noise, and with cut points between the stars; the density is that of
    `bmfjax.models.pmf`.

    {parameters}
    """

    name: ClassVar = "ordered-probit"
    default_rank: ClassVar = RATINGS_RANK
