"""The density of the Bayesian matrix factorisation: its parameters, positions and logarithm."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import gammaln

from bmfjax.data.errors import InputError
from bmfjax.kernels import normal_wishart
from bmfjax.kernels.normal_wishart import NormalWishart
from bmfjax.kernels.pmf_links import LINKS

#: Sides of the matrix and the factor matrices that belong to them.
FACTORS = {"row": "usage", "column": "basis"}


class PMFDensity(NamedTuple):
    """What is fixed of the model (`bmfjax.models.pmf`).

    Attributes
    ----------
    rank : int
        Number of factors; 0 leaves the effects alone.
    link : {"identity", "probit", "ordered"}
        See `bmfjax.kernels.pmf_links`.
    categories : int
        Of "ordered".
    effects : bool
        Whether rows and columns have effects of their own.
    precision : float, optional
        Of "identity": fixed noise precision; None where it is learned.
    precision_gamma, effect_gamma : (float, float)
        Shape and rate of the priors of a learned precision, and of the effects' precisions.
    factors : NormalWishart
        Prior of the mean and precision matrix of either factor matrix.
    level : (float, float)
        Mean and standard deviation of the prior of the intercept; of "ordered" of every cut point
        before they are put in order.
    """

    rank: int
    link: str = "identity"
    categories: int = 2
    effects: bool = True
    precision: float | None = None
    precision_gamma: tuple[float, float] = (1.0, 1.0)
    effect_gamma: tuple[float, float] = (1.0, 1.0)
    factors: NormalWishart = NormalWishart()
    level: tuple[float, float] = (0.0, 10.0)

    @property
    def learns_precision(self) -> bool:
        """Whether `precision` is a site."""
        return self.link == "identity" and self.precision is None

    @property
    def width(self) -> int:
        """Length of a row's vector: its factors, then its effect."""
        return self.rank + self.effects

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of what a position holds."""
        found = ["cutpoints" if self.link == "ordered" else "intercept"]
        for side, factors in FACTORS.items():
            if self.rank:
                found += [factors, f"{factors}_mean", f"{factors}_precision"]
            if self.effects:
                found += [f"{side}_effect", f"{side}_precision"]
        return tuple(found) + (("precision",) if self.learns_precision else ())


def check_density(density: PMFDensity) -> None:
    """Refuse a density that is none.

    Raises
    ------
    InputError
    """
    rank, degrees = density.rank, density.factors.degrees
    if rank < 0:
        raise InputError(f"rank is {rank}; give a number of factors of at least 0")
    if density.width == 0:
        raise InputError("rank is 0 and effects is False; give a factor or the effects")
    if density.link not in LINKS:
        raise InputError(f"link is {density.link!r}; choose from {', '.join(LINKS)}")
    if density.link == "ordered" and density.categories < 2:
        raise InputError(f"categories is {density.categories}; give at least 2")
    if degrees is not None and not degrees > rank - 1:
        raise InputError(
            f"degrees is {degrees}, too few for a Wishart distribution at rank {rank}; give more "
            f"than {rank - 1}"
        )
    positive = {
        "precision": 1.0 if density.precision is None else density.precision,
        "strength": density.factors.strength,
        "scale": density.factors.scale,
        "the standard deviation of level": density.level[1],
        "precision_gamma": min(density.precision_gamma),
        "effect_gamma": min(density.effect_gamma),
    }
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} is {value}; give a positive number")


def log_prior(density: PMFDensity, position):
    """Log density of a position, () float; of cut points that of their order."""
    mean, sd = density.level
    if density.link == "ordered":
        cuts = position["cutpoints"]
        total = _normal(cuts, mean, sd) + gammaln(1.0 * density.categories)
    else:
        total = _normal(position["intercept"], mean, sd)
    if density.learns_precision:
        total += _gamma(position["precision"], density.precision_gamma)
    for side, factors in FACTORS.items():
        if density.rank:
            shared = position[f"{factors}_mean"], position[f"{factors}_precision"]
            total += normal_wishart.log_prob(*shared, density.factors)
            total += normal_wishart.log_prob_of_vectors(position[factors], *shared)
        if density.effects:
            precision = position[f"{side}_precision"]
            total += _gamma(precision, density.effect_gamma)
            total += _normal(position[f"{side}_effect"], 0.0, precision**-0.5)
    return total


def noise_precision(position, density: PMFDensity):
    """Learned, fixed, or the one of a latent value."""
    if density.learns_precision:
        return position["precision"]
    return density.precision if density.link == "identity" else 1.0


def _normal(x, mean, sd):
    return jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * math.log(2.0 * math.pi))


def _gamma(x, parameters):
    shape, rate = parameters
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1.0) * jnp.log(x) - rate * x
