"""Models of real factors, as values: relaxed, logistic, nonnegative, and those of ratings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from bmfjax.errors import InputError
from bmfjax.specs import checks, priors
from bmfjax.specs.base import (
    Flag,
    Model,
    Prior,
    gamma_pair,
    one_of,
    pair,
    parameter,
    parameters,
    positive,
    value_class,
)
from bmfjax.specs.samplers import (
    ANNEALED,
    SVI,
    TEMPERED,
    Batch,
    Gibbs,
    IterateAveraging,
    Minibatch,
    ThesisAveraging,
)

#: Shape and rate of the prior of a factor's precision, where the number of factors is found. A
#: column that has its means is a two-thousandth as large as one that explains all of the values.
RELEVANCE = (0.5, 0.0005)
#: Shape and rate of the prior of the relative precision of coefficients of attributes.
RIDGE = (0.5, 0.01)
#: What the lines of attributes know of their cells: the sides of each choice.
RATED = {"rows": ("row",), "columns": ("column",), "both": ("row", "column")}

_PRECISION = Flag(
    "--precision", "fix the noise precision (learned where not given)", {"type": float}
)
_PRIOR = Flag(
    "--prior",
    "prior of the factors' entries (uniform where not given)",
    {"choices": list(priors.NAMED)},
)
_SIDES = {"choices": ["rows", "columns", "both", "none"]}


@value_class
class Relaxed(Model):
    """Factors in [0, 1], with a Gaussian likelihood.

    Of Gonsior (2019, equation 3.2); the density is that of `bmfjax.models.relaxed_bmf`. Where the
    number of factors is found, each has a rate that is learned, and vanishes where the data do not
    need it (automatic relevance determination). One that is near the edge of the noise may keep
    the chains apart, and the verdict says so.

    {parameters}
    """

    name: ClassVar = "relaxed"
    samplers: ClassVar = {
        Gibbs: TEMPERED,
        **{s: tuple(parameters(s)) for s in (Minibatch, IterateAveraging, ThesisAveraging)},
    }

    usage: Prior = parameter(
        None,
        'prior of the entries: "uniform" (default), "normal", "laplace", "beta", "ard" (always '
        'where the rank is "auto") or a NumPyro distribution on [0, 1]',
        priors.entry_prior,
        flag=_PRIOR,
        kind="str or distribution, optional",
    )
    basis: Prior = parameter(
        None, "the same of the basis", priors.entry_prior, flag=_PRIOR,
        kind="str or distribution, optional",
    )  # fmt: skip
    precision: Prior = parameter(
        None,
        "a number that fixes the noise precision; default a Gamma(1, 1) prior, and 1 for sampler "
        '"thesis"',
        priors.gamma_or_number,
        flag=_PRECISION,
        kind="float or Gamma, optional",
    )
    rate: Prior = parameter(
        None,
        'Gamma prior of the rates of "ard"; default Gamma(1, 1), and with rank "auto" Gamma(1, '
        "0.01), with which factors may all but vanish",
        priors.gamma,
        kind="Gamma, optional",
    )


@value_class
class Logistic(Model):
    """Real factors, whose product is the log odds of a one.

    For large sparse matrices and rankings of their zeros (Hernandez-Lobato, Houlsby, Ghahramani
    2014). The density is that of `bmfjax.models.logistic`. Samplers "batch" and "svi" optimise an
    approximation, which is too narrow: so are the probabilities of numbers of factors, which mix
    the starts in equal parts. "gibbs" is exact, by Polya-Gamma draws of every entry (Polson, Scott,
    Windle 2013), and takes hundreds of sweeps over all entries a chain. The default is "batch", and
    "svi" for more than {batch} entries.

    {parameters}
    """

    name: ClassVar = "logistic"
    samplers: ClassVar = {Batch: (), SVI: tuple(parameters(SVI)), Gibbs: ()}

    scale: float = parameter(
        1.0,
        'standard deviation of factors and effects, with rank "auto" of effects alone',
        positive("standard deviation"),
    )
    bias_scale: float = parameter(
        5.0, "standard deviation of the bias", positive("standard deviation")
    )
    relevance: Sequence[float] | None = parameter(
        None,
        'with rank "auto": shape and rate of the Gamma prior of the precision that each factor has '
        f"of its own; default {RELEVANCE[0]} and {RELEVANCE[1]}",
        gamma_pair,
        kind="pair of float, optional",
    )
    row_effects: bool = parameter(
        False,
        "whether rows have biases of their own",
        checks.switch,
        flag=Flag(
            "--effects", "rows or columns have biases of their own (none where not given)", _SIDES,
            lambda value: value in ("rows", "both"),
        ),
    )  # fmt: skip
    column_effects: bool = parameter(
        False,
        "whether columns have",
        checks.switch,
        flag=Flag(
            "--effects", "rows or columns have biases of their own (none where not given)", _SIDES,
            lambda value: value in ("columns", "both"),
        ),
    )  # fmt: skip


@value_class
class Features(Model):
    """Binary features of rows, each of which changes the log odds of a one in some columns.

    Beside intercepts and row effects. A latent feature model (Griffiths, Ghahramani 2011) with
    spike-and-slab weights; in psychometrics the main effects of the log-linear cognitive diagnosis
    model (Henson, Templin, Willse 2009). The density is that of `bmfjax.models.features`. All
    numbers of features that are there, up to the rank, are equally probable beforehand: a feature
    that the data do not need is absent from the draws.

    Of `anchors` numbers that are all 0 or 1 say which columns a known feature concerns, and its
    weights are learned; other numbers are the weights.

    {parameters}

    Examples
    --------
    >>> from bmfjax import Features
    >>> Features("auto", weights="positive")
    Features('auto', weights='positive')
    """

    name: ClassVar = "features"
    samplers: ClassVar = {Gibbs: ("rebirths", *ANNEALED)}

    weights: str = parameter(
        "signed",
        '"signed", which predict best, or "positive", where features only raise odds: tiles that '
        "are easy to read",
        one_of("signed", "positive"),
        flag=Flag(
            "--weights", "weights of features (signed where not given)",
            {"choices": ["signed", "positive"]},
        ),
    )  # fmt: skip
    slab: Sequence[float] = parameter(
        (3.0, 9.0),
        "shape and rate of the Gamma prior of the precision of a feature's weights, which keeps "
        "them away from zero",
        gamma_pair,
        kind="pair of float",
    )
    row_effects: bool = parameter(True, "whether rows have effects of their own", checks.switch)
    row_scale: float = parameter(
        0.5, "scale of the half normal prior of their standard deviation", positive("scale")
    )
    usage: Prior = parameter(
        None,
        "memberships that are known, (rows, rank): 0 or 1, and NaN elsewhere; none by default. "
        "Known features come first",
        priors.memberships,
        kind="array, optional",
    )


@value_class
class NMF(Model):
    """Nonnegative factors with exponential priors and normal noise.

    Of Schmidt, Winther and Hansen (2009); the density is that of `bmfjax.models.nmf`. Where the
    number of factors is found, each has a rate that usage and basis share and that is learned, and
    vanishes where the data do not need it.

    {parameters}
    """

    name: ClassVar = "nmf"
    samplers: ClassVar = {Gibbs: ("moves", "walls", *ANNEALED)}

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
        flag=_PRECISION,
        kind="float or Gamma, optional",
    )


# ---- ratings ---------------------------------------------------------------------------------


def _level(name, value) -> list[float]:
    """Return mean and standard deviation of a normal prior, checked."""
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

    samplers: ClassVar = {Gibbs: ()}

    effects: bool = parameter(
        True,
        "whether rows and columns have effects",
        checks.switch,
        flag=Flag(
            "--effects", "rows and columns have biases of their own (both where not given)", _SIDES,
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
    strength: float = parameter(2.0, "of the Normal-Wishart prior", positive("number"))
    degrees: float | None = parameter(
        None, "the same; default the rank", positive("number"), kind="float, optional"
    )
    scale: float | None = parameter(
        None, "the same; default 1", positive("number"), kind="float, optional"
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
        one_of(*RATED),
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

    precision: float | None = parameter(
        None, "fixes the noise precision (2 in the paper)", positive("number"), flag=_PRECISION,
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
        positive("number"),
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
