r"""The density of Bayesian matrix factorisation, and how a rating follows from its fit.

`PMFDensity` holds the parameters (`bmfjax.models.pmf`), `log_prior` is the density of a position.
A rating y follows from its fit :math:`e` by one of three links:

identity
    :math:`y \sim N(e, \tau^{-1})`.
probit
    :math:`P(y = 1) = \Phi(e)`; a value is +1 or -1.
ordered
    :math:`P(y = k) = \Phi(c_k - e) - \Phi(c_{k-1} - e)` with cut points
    :math:`-\infty = c_{-1} < c_0 < \dots < c_{K-1} = \infty`; a value is the category from 0.

The latter two are thresholds of a latent :math:`z \sim N(e, 1)`, which `latent` draws given
the rating (Albert, Chib 1993, "Bayesian analysis of binary and polychotomous response data",
JASA 88, equations 3 and 13).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln, log_ndtr, ndtri

from bmfjax.data.checks import one_of, positive, whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics import normal_wishart
from bmfjax.kernels.numerics.normal_interval import between, interval
from bmfjax.kernels.numerics.normal_wishart import NormalWishart
from bmfjax.kernels.ratings.attributes import explained
from bmfjax.kernels.ratings.attributes import log_prob as log_prob_of_coefficients

LINKS = ("identity", "probit", "ordered")
#: Sides of the matrix, the factor matrices that belong to them, and of each side the other one.
FACTORS = {"row": "usage", "column": "basis"}
OTHER = {"row": "column", "column": "row"}
#: For the sites of vectors those of the coefficients of attributes, of their prior precisions
#: relative to those of the vectors, and of the precisions of these.
COEFFICIENTS = {
    "usage": "usage_coefficients", "row_effect": "row_coefficients",
    "basis": "basis_coefficients", "column_effect": "column_coefficients",
}  # fmt: skip
RIDGES, PRECISIONS = (
    {name: site.replace("coefficients", what) for name, site in COEFFICIENTS.items()}
    for what in ("ridge", "precision")
)


def latent(key, link: str, value, fit, cutpoints=None):
    """Draw the latent value of every entry, (...); of "identity" it is the value itself."""
    if link == "identity":
        return value
    u = random.uniform(key, fit.shape, fit.dtype)
    if link == "probit":
        own = value * fit
        # Above zero, which rounding could reach.
        least = jnp.finfo(fit.dtype).tiny
        return value * jnp.maximum(own + between(u, -own, jnp.inf), least)
    low, high = bounds(value, cutpoints)
    return jnp.clip(fit + between(u, low - fit, high - fit), low, high)


def bounds(value, cutpoints):
    """Return the ends of the interval in which the latent value of each category lies."""
    end = jnp.full(1, jnp.inf, cutpoints.dtype)
    ends = jnp.concatenate([-end, cutpoints, end])
    category = value.astype(jnp.int32)
    return ends[category], ends[category + 1]


def log_probabilities(link: str, value, fit, precision=1.0, cutpoints=None):
    """Return the log likelihood of every entry, (...) float."""
    if link == "identity":
        return 0.5 * (jnp.log(precision / (2.0 * jnp.pi)) - precision * (value - fit) ** 2)
    if link == "probit":
        return log_ndtr(value * fit)
    low, high = bounds(value, cutpoints)
    return log_interval(low - fit, high - fit)


def log_interval(low, high):
    r"""Return :math:`\log(\Phi(b) - \Phi(a))` for :math:`a < b`, accurate in both tails."""
    return interval(low, high).log_mass


def are_distinct(cutpoints):
    """Return whether cut points keep to distances that floating point numbers can tell: () bool.

    Nearer ones would meet when all of them are moved, and would never part again.
    """
    ends = jnp.maximum(1.0, jnp.max(jnp.abs(cutpoints), initial=0.0))
    return jnp.all(jnp.diff(cutpoints) > 64 * jnp.finfo(cutpoints.dtype).eps * ends)


def level_of(link: str, counts):
    """Return the levels that give these shares: a fit of a probit, (), or all cut points."""
    # Half a count more: a category that does not occur has its place too.
    below = jnp.cumsum(counts + 0.5)
    tiny = jnp.finfo(counts.dtype).eps
    cuts = ndtri(jnp.clip(below[:-1] / below[-1], tiny, 1.0 - tiny))
    if link == "probit":
        return -cuts[0]
    # The ends of rare categories among many entries would round to one number.
    least = 1e-3 * jnp.arange(cuts.shape[0], dtype=cuts.dtype)
    return lax.cummax(cuts - least) + least


class PMFDensity(NamedTuple):
    """Parameters of the model (`bmfjax.models.pmf`)."""

    rank: int  # 0 leaves the effects alone
    link: str = "identity"
    categories: int = 2  # of "ordered"
    effects: bool = True  # of rows and of columns
    precision: float | None = None  # of the noise, for "identity"; None: it is learned
    precision_gamma: tuple[float, float] = (1.0, 1.0)  # shape and rate
    effect_gamma: tuple[float, float] = (1.0, 1.0)
    factors: NormalWishart = NormalWishart()  # prior of mean and precision of either factor matrix
    #: In its place, with means of zero: shape and rate of the Gamma prior of the precision that
    #: each column of either factor matrix has of its own.
    relevance: tuple[float, float] | None = None
    #: The usage is so many times a matrix whose prior is that of the basis, as `factors` or
    #: `relevance` say it: the product has the unit of the ratings, and the usage carries it.
    usage_unit: float = 1.0
    #: Mean and standard deviation of the intercept, or of every cut point before they are ordered.
    level: tuple[float, float] = (0.0, 10.0)
    #: Sides with attributes in the prior means of their vectors, and shape and rate of the prior of
    #: the precision that their coefficients have, relative to that of the vectors.
    attributes: tuple[str, ...] = ()
    ridge: tuple[float, float] = (0.5, 0.01)

    @property
    def learns_precision(self) -> bool:
        """Whether `precision` is a site."""
        return self.link == "identity" and self.precision is None

    @property
    def width(self) -> int:
        """Length of a row's vector: its factors, then its effect."""
        return self.rank + self.effects

    def unit_of(self, side: str) -> float:
        """Return what the factors of a side are counted in."""
        return self.usage_unit if side == "row" else 1.0

    def wishart_of(self, side: str) -> NormalWishart:
        """Return the prior of mean and precision of a side's factors."""
        return self.factors.times(self.unit_of(side))

    def relevance_of(self, side: str) -> tuple[float, float]:
        """Return shape and rate of the prior of the precisions of a side's columns."""
        shape, rate = self.relevance
        return shape, rate * self.unit_of(side) ** 2

    def vectors(self, side: str) -> tuple[str, ...]:
        """Return the sites that hold a side's vectors: factors and effects."""
        names = (FACTORS[side], f"{side}_effect")
        return tuple(n for n, held in zip(names, (self.rank, self.effects), strict=True) if held)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of what a position holds."""
        found = ["cutpoints" if self.link == "ordered" else "intercept"]
        for side, factors in FACTORS.items():
            if self.rank:
                mean = [] if self.relevance else [f"{factors}_mean"]
                found += [factors, *mean, f"{factors}_precision"]
            if self.effects:
                found += [f"{side}_effect", f"{side}_precision"]
            for name in self.vectors(side) if side in self.attributes else ():
                found += [COEFFICIENTS[name], RIDGES[name]]
        return tuple(found) + (("precision",) if self.learns_precision else ())


def check_density(density: PMFDensity) -> None:
    """Refuse parameters without a density."""
    rank, degrees = whole("rank", density.rank, 0), density.factors.degrees
    if density.width == 0:
        raise InputError("rank is 0 and effects is False; give a factor or the effects")
    if one_of("link", density.link, LINKS) == "ordered":
        whole("categories", density.categories, 2)
    if degrees is not None and not degrees > rank - 1:
        raise InputError(
            f"degrees is {degrees}, too few for a Wishart distribution at rank {rank}; give more "
            f"than {rank - 1}"
        )
    scales = {
        "precision": 1.0 if density.precision is None else density.precision,
        "strength": density.factors.strength,
        "scale": density.factors.scale,
        "usage_unit": density.usage_unit,
        "the standard deviation of level": density.level[1],
        "precision_gamma": min(density.precision_gamma),
        "effect_gamma": min(density.effect_gamma),
        "ridge": min(density.ridge),
        "relevance": 1.0 if density.relevance is None else min(density.relevance),
    }
    for name, value in scales.items():
        positive(name, value)
    if density.attributes and density.relevance:
        raise InputError("attributes go with a Normal-Wishart prior; leave relevance out")


def explained_by_attributes(name: str, side: str, position, density: PMFDensity, data):
    """Return what a side's attributes add to the prior means of factors or effects, () if none.

    `name` is the site of the vectors, `data` are `EntryBlocks`.
    """
    if side not in density.attributes:
        return 0.0
    return explained(position[COEFFICIENTS[name]], data.attributes(side))


def log_prior(density: PMFDensity, position, data=None):
    """Return the log density of a position, () float; for cut points that of their order.

    `data` are the `EntryBlocks` that hold the attributes of rows and columns, if there are any.
    """
    mean, sd = density.level
    if density.link == "ordered":
        cuts = position["cutpoints"]
        total = _normal(cuts, mean, sd) + gammaln(1.0 * density.categories)
    else:
        total = _normal(position["intercept"], mean, sd)
    if density.learns_precision:
        total += _gamma(position["precision"], density.precision_gamma)
    for side, factors in FACTORS.items():
        if density.rank and density.relevance:
            precision = position[f"{factors}_precision"]
            total += jnp.sum(_gamma(precision, density.relevance_of(side)))
            total += _normal(position[factors], 0.0, precision**-0.5)
        elif density.rank:
            shared = position[f"{factors}_mean"], position[f"{factors}_precision"]
            total += normal_wishart.log_prob(*shared, density.wishart_of(side))
            deviation = position[factors] - explained_by_attributes(
                factors, side, position, density, data
            )
            total += normal_wishart.log_prob_of_vectors(deviation, *shared)
        if density.effects:
            precision = position[f"{side}_precision"]
            total += _gamma(precision, density.effect_gamma)
            effect = f"{side}_effect"
            mean = explained_by_attributes(effect, side, position, density, data)
            total += _normal(position[effect], mean, precision**-0.5)
        for name in density.vectors(side) if side in density.attributes else ():
            coefficients, ridge = position[COEFFICIENTS[name]], position[RIDGES[name]]
            total += jnp.sum(_gamma(ridge, density.ridge))
            total += log_prob_of_coefficients(
                coefficients.reshape(coefficients.shape[0], -1), ridge,
                jnp.atleast_2d(position[PRECISIONS[name]]), data.attributes(side),
            )  # fmt: skip
    return total


def noise_precision(position, density: PMFDensity):
    """Return the learned or the fixed precision, or the one of a latent value."""
    if density.learns_precision:
        return position["precision"]
    return density.precision if density.link == "identity" else 1.0


def _normal(x, mean, sd):
    return jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * math.log(2.0 * math.pi))


def _gamma(x, parameters):
    shape, rate = parameters
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1.0) * jnp.log(x) - rate * x
