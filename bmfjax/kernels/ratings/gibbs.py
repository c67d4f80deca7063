r"""Gibbs sampling of Bayesian matrix factorisation over the observed entries.

.. math::

   e_{ij} = \mu + a_i + b_j + \sum_k u_{ik} v_{jk},

with factors :math:`u_i \sim N(\mu_U, \Lambda_U^{-1})` and :math:`v_j` alike, means and precision
matrices from Normal-Wishart priors, effects :math:`a_i \sim N(0, \tau_a^{-1})` and :math:`b_j`
alike, and ratings that follow from the fit by one of three links
(`bmfjax.kernels.ratings.density`).

A sweep draws, at inverse temperature :math:`\beta` of the likelihood,
    the latent values of all entries where the link has them; then every row's vector
    :math:`w_i = (u_i, a_i)`, given what multiplies it, :math:`f_j = (v_j, 1)`, from

    .. math::

       w_i \sim N\big(A_i^{-1} h_i, A_i^{-1}\big), \qquad
       A_i = P + \beta\tau\sum_j f_j f_j^\top,\quad
       h_i = P m + \beta\tau\sum_j f_j (z_{ij} - \mu - b_j),

    with mean m and precision P of its prior (Salakhutdinov, Mnih 2008, equations 11 to 13); the
    same, latent values included, of the columns; the intercept, of the other links together with
    the cut points and the scale of the fits by a Metropolis-Hastings step with the latent values
    summed out (as Cowles 1996 proposes of the cut points, see `bmfjax.kernels.ratings.cutpoints`);
    a translation between level and either kind of effects, and one between the mean of either
    factor matrix and the other side's effects; the noise precision where it is learned; means,
    precision matrices and the effects' precisions.

Relevance of columns
    In place of the Normal-Wishart priors every column of either factor matrix may have a mean of
    zero and a precision of its own, :math:`u_{ik} \sim N(0, \alpha_k^{-1})`, with a Gamma prior
    (`PMFDensity.relevance`). It is drawn from

    .. math::

       \alpha_k \mid u \sim \mathrm{Gamma}\big(a + n/2,\ b + \tfrac12\sum_i u_{ik}^2\big),

    and is high where the data do not need the factor (automatic relevance determination; Bishop
    1999, "Variational principal components", ICANN, whose prior this is).

Attributes of rows and columns
    Prior means may depend on what is known of a row or a column (`PMFDensity.attributes`), by
    coefficients that are drawn after means and precisions: see `bmfjax.kernels.ratings.attributes`.

Known coordinates
    The first of the columns' factors may be known (`EntryBlocks.known`):
    :math:`v_j = (a_j, w_j)`. They are data, of the vectors as the entries are of the fits. What is
    drawn given everything else are then the coordinates :math:`w_j` and the effect of a column
    alone, from the normal distribution above conditioned on :math:`a_j`,

    .. math::

       w_j \sim N\big(A_{ww}^{-1} (h_w - A_{wa} a_j), A_{ww}^{-1}\big),

    with A and h in blocks; a translation of the columns' mean moves :math:`w_j` alone. Mean and
    precision matrix are drawn given whole vectors, as ever: known coordinates inform them.

What it leaves invariant
    The posterior, exactly (to the accuracy of the floating point numbers). Links other than the
    identity at inverse temperature 1 only.

Cost
    Entries times the square of rank + 1 for the matrices, and rows plus columns times its cube
    over three for their Cholesky factors. Memory beside data and state: a few numbers an entry, and
    what one block of lines needs.

References
    Salakhutdinov, Mnih (2008), "Bayesian probabilistic matrix factorization using Markov chain
    Monte Carlo", ICML. Albert, Chib (1993), "Bayesian analysis of binary and polychotomous
    response data", JASA 88. Cowles (1996), "Accelerating Monte Carlo Markov chain convergence for
    cumulative-link generalized linear models", Statistics and Computing 6. Gamerman (1997),
    "Sampling from the posterior distribution in generalized linear mixed models", the same 7.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.normal_wishart import draw_normal_wishart, gamma_shapes, moments
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.ratings.attributes import (
    Spread,
    draw_coefficients,
    num_attributes,
    num_directions,
    spread,
)
from bmfjax.kernels.ratings.cutpoints import draw_levels
from bmfjax.kernels.ratings.density import (
    COEFFICIENTS,
    FACTORS,
    PRECISIONS,
    RIDGES,
    PMFDensity,
    check_density,
    level_of,
    log_prior,
    log_probabilities,
    noise_precision,
)
from bmfjax.kernels.ratings.entries import EntryBlocks, flat_values
from bmfjax.kernels.ratings.vectors import draw_side, entry_fits


class PMFState(NamedTuple):
    """State between two sweeps."""

    position: dict  # the sites of `PMFDensity.sites`


class PMFInfo(NamedTuple):
    """Statistics of one sweep, all of them () float."""

    log_joint: jax.Array  # likelihood tempered
    log_likelihood: jax.Array  # not tempered
    residual: jax.Array  # sum of squares; 0 for links other than the identity
    cut_acceptance: jax.Array  # 0 where a step of cut points and scale was rejected, else 1


def pmf_gibbs(density: PMFDensity) -> Algorithm:
    """Build the sampler of a density, for data that are `EntryBlocks`.

    Values are real numbers for the identity, +1 and -1 for the probit, and categories from 0 for
    the ordered probit. It observes the sites of the density and `PMFInfo`.
    """
    check_density(density)

    def init(key, position, data):
        start = _random_position(key, data, density) if position is None else position
        return PMFState({n: jnp.asarray(start[n]) for n in density.sites})

    # Some accelerators round the factors of a float32 product to 10 bits.
    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        if density.link != "identity" and inverse_temperature != 1.0:
            raise InputError(
                f"link {density.link!r} is not tempered; leave inverse_temperature out"
            )
        keys = random.split(key, 5)
        position = dict(state.position)
        for side, k in zip(FACTORS, keys, strict=False):
            position |= draw_side(k, side, position, data, density, inverse_temperature)
        fit = entry_fits("column", position, data.by_column, density, data.budget)
        position, fit, accepted, likelihood = draw_levels(
            keys[2], position, fit, data, density, inverse_temperature
        )
        gammas = _draw_gammas(keys[4], data, density, inverse_temperature)
        position |= _draw_shared(keys[3], position, gammas, data, density)
        value, seen = flat_values(data.by_column)
        residual = jnp.zeros((), fit.dtype)
        if density.link == "identity":
            residual = jnp.sum(jnp.where(seen, value - fit, 0.0) ** 2)
        if density.learns_precision:
            rate = density.precision_gamma[1] + 0.5 * inverse_temperature * residual
            position["precision"] = gammas["noise"] / rate
        if likelihood is None:
            terms = log_probabilities(density.link, value, fit, noise_precision(position, density))
            likelihood = jnp.sum(jnp.where(seen, terms, 0.0))
        joint = inverse_temperature * likelihood + log_prior(density, position, data)
        info = PMFInfo(joint, likelihood, residual, accepted)
        return PMFState(position), info

    def observe(state, info):
        return {**state.position, **info._asdict()}

    return Algorithm(init, step, observe, serial=True)


# ---- starts -----------------------------------------------------------------------------


def _random_position(key, data: EntryBlocks, density: PMFDensity) -> dict:
    """Return a start: small random factors, no effects, levels that give the data's shares.

    Ratings with normal noise set the unit of the usage and of the effects, as they do of their
    priors: a factor on the ratings changes no more than units.
    """
    position, spread = _level_and_spread(data, density)
    rank, dtype = density.rank, spread.dtype
    if density.learns_precision:
        position["precision"] = 1.0 / spread**2
    for (side, factors), size, k in zip(
        FACTORS.items(), data.shape, random.split(key), strict=True
    ):
        if rank:
            unit = spread if side == "row" else 1.0
            position[factors] = unit * random.normal(k, (size, rank), dtype) / math.sqrt(rank)
            if data.num_known(side):
                known = data.known.astype(dtype)
                position[factors] = position[factors].at[:, : known.shape[1]].set(known)
            position[f"{factors}_mean"] = jnp.zeros(rank, dtype)
            precision = jnp.ones(rank) if density.relevance else jnp.eye(rank)
            position[f"{factors}_precision"] = rank * precision.astype(dtype) / unit**2
        if density.effects:
            position[f"{side}_effect"] = jnp.zeros(size, dtype)
            position[f"{side}_precision"] = 1.0 / spread**2
        for name in density.vectors(side) if side in density.attributes else ():
            attributes = data.attributes(side)
            like = position[name].shape[1:]
            position[COEFFICIENTS[name]] = jnp.zeros((num_attributes(attributes), *like), dtype)
            position[RIDGES[name]] = jnp.ones(len(attributes), dtype)
    return position


def _level_and_spread(data: EntryBlocks, density: PMFDensity):
    """Return the level at the start, and the standard deviation of ratings, () float.

    That of latent values is 1, and so is that of ratings that are all the same.
    """
    values, seen = flat_values(data.by_row)
    number, one = jnp.sum(data.by_row.count), jnp.ones((), values.dtype)
    if density.link == "ordered":
        counts = _category_counts(data, density.categories)
        return {"cutpoints": level_of("ordered", counts)}, one
    if density.link == "probit":
        ones = jnp.sum(values > 0)
        counts = jnp.stack([number - ones, ones]).astype(values.dtype)
        return {"intercept": level_of("probit", counts)}, one
    mean = jnp.sum(values) / number
    spread = jnp.sqrt(jnp.sum(jnp.where(seen, values - mean, 0.0) ** 2) / number)
    # Asked of the values: the mean of numbers that are all the same is not always that number.
    differ = jnp.max(values, where=seen, initial=-jnp.inf) > jnp.min(
        values, where=seen, initial=jnp.inf
    )
    return {"intercept": mean}, jnp.where(differ, spread, one)


def _category_counts(data: EntryBlocks, categories: int):
    """Return how often each category occurs, (categories,) float."""
    value, seen = flat_values(data.by_column)
    which = value[:, None] == jnp.arange(categories, dtype=value.dtype)
    return jnp.sum(which & seen[:, None], 0).astype(value.dtype)


# ---- what the vectors share -----------------------------------------------------------------


def _draw_gammas(key, data: EntryBlocks, density: PMFDensity, inverse_temperature=1.0) -> dict:
    """Draw all Gamma variates of a sweep in one call: their sampler takes long to compile.

    With rate 1: `factors` (2, rank), `effects` (2,) and `noise` ().
    """
    rank, relevance = density.rank, density.relevance
    entries = inverse_temperature * jnp.sum(data.by_row.count)
    # Coefficients of attributes tell of the precisions as so many more lines do.
    numbers = [
        n + (num_directions(data.attributes(side)) if side in density.attributes else 0)
        for side, n in zip(FACTORS, data.shape, strict=True)
    ]
    shapes = [
        *(
            jnp.full(rank, relevance[0] + 0.5 * n)
            if relevance
            else gamma_shapes(n, rank, density.factors)
            for n in numbers
        ),
        jnp.array([density.effect_gamma[0] + 0.5 * n for n in numbers]),
        (density.precision_gamma[0] + 0.5 * entries)[None],
    ]
    drawn = random.gamma(key, jnp.concatenate(shapes))
    ends = drawn[2 * rank :]
    return {"factors": drawn[: 2 * rank].reshape(2, rank), "effects": ends[:2], "noise": ends[2]}


def _draw_shared(key, position, gammas, data: EntryBlocks, density: PMFDensity) -> dict:
    """Draw means and precision matrices of the factors, and the effects' precisions.

    And the coefficients of attributes, with their prior precisions.
    """
    drawn = {}
    key_shared, *keys = random.split(key, 1 + 2 * len(FACTORS)) if density.attributes else (key,)
    if density.relevance:
        for (side, factors), gamma in zip(FACTORS.items(), gammas["factors"], strict=True):
            squares = jnp.sum(position[factors] ** 2, axis=0)
            rate = density.relevance_of(side)[1]
            drawn[f"{factors}_precision"] = gamma / (rate + 0.5 * squares)
    elif density.rank:
        both = []
        for side, factors in FACTORS.items():
            own = _spread(factors, side, position, density, data)
            found = moments(own.residual)
            both.append(found._replace(scatter=found.scatter + own.scatter))
        scales = jnp.stack([jnp.asarray(density.wishart_of(side).scale) for side in FACTORS])

        def draw(key, found, gammas, scale):
            prior = density.factors._replace(scale=scale)
            return draw_normal_wishart(key, found, prior, gammas)

        mean, precision = jax.vmap(draw)(
            random.split(key_shared), jax.tree.map(lambda *leaves: jnp.stack(leaves), *both),
            gammas["factors"], scales,
        )  # fmt: skip
        for i, factors in enumerate(FACTORS.values()):
            drawn |= {f"{factors}_mean": mean[i], f"{factors}_precision": precision[i]}
    if density.effects:
        for side, gamma in zip(FACTORS, gammas["effects"], strict=True):
            own = _spread(f"{side}_effect", side, position, density, data)
            squares = jnp.sum(own.residual**2) + jnp.sum(own.scatter)
            drawn[f"{side}_precision"] = gamma / (density.effect_gamma[1] + 0.5 * squares)
    for side in density.attributes:
        for name in density.vectors(side):
            drawn |= _draw_coefficients(keys.pop(), name, side, position | drawn, density, data)
    return drawn


def _spread(name, side, position, density, data) -> Spread:
    """Return residuals of vectors (lines, width), and what coefficients add to their scatter."""
    vectors = position[name].reshape(position[name].shape[0], -1)
    if side not in density.attributes:
        return Spread(vectors, jnp.zeros((), vectors.dtype))
    coefficients = position[COEFFICIENTS[name]]
    table = coefficients.reshape(coefficients.shape[0], -1)
    return spread(vectors, table, position[RIDGES[name]], data.attributes(side))


def _draw_coefficients(key, name, side, position, density, data) -> dict:
    """Draw the coefficients of the attributes of factors or effects, and their precisions."""
    vectors, coefficients = position[name], position[COEFFICIENTS[name]]
    centred = vectors - position.get(f"{name}_mean", 0.0)
    drawn, ridge = draw_coefficients(
        key,
        centred.reshape(centred.shape[0], -1),
        coefficients.reshape(coefficients.shape[0], -1),
        position[RIDGES[name]],
        jnp.atleast_2d(position[PRECISIONS[name]]),
        data.attributes(side),
        density.ridge,
    )
    return {COEFFICIENTS[name]: drawn.reshape(coefficients.shape), RIDGES[name]: ridge}
