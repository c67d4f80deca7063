r"""Attributes of rows and columns in the prior means of their vectors ("side information").

On one side with attributes :math:`x_i`, in groups g, factors and effects have the prior

.. math::

   u_i \sim N\big(\mu_U + \sum_g B_g^\top x_{ig}, \Lambda_U^{-1}\big), \quad
   B_g \sim \mathrm{MN}\big(0, (\lambda_g I)^{-1}, \Lambda_U^{-1}\big), \quad
   \lambda_g \sim \mathrm{Gamma}, \qquad
   a_i \sim N\big(\sum_g \beta_g^\top x_{ig}, \tau_a^{-1}\big),\quad
   \beta_g \sim N\big(0, (\lambda_g' \tau_a)^{-1} I\big)

(Simm, Arany, Zakeri, Haber, Wegner, Chupakhin, Ceulemans, Moreau 2017, "Macau: scalable Bayesian
factorization with high-dimensional side information using MCMC", IEEE MLSP, equations 2 to 7, which
have one group and no effects). An effect is treated as a vector of length one. A group of columns
of X that say which cells were rated, :math:`|N_i|^{-1/2}` where row i has rated, gives the factors
of SVD++ (Koren 2008, "Factorization meets the neighborhood", KDD, equation 15).

A sweep
    With :math:`X_g = P S Q^\top`, a thin singular value decomposition that is made once, no sweep
    solves a system in the attributes. Given :math:`C_g = Q^\top B_g`, which is all of B that the
    vectors depend on, mean and precision are drawn from the Normal-Wishart conditional of the
    residuals :math:`u_i - B^\top x_i`, to whose scatter :math:`\lambda_g C_g^\top C_g` is added and
    to whose number the directions are. Then each group in turn, with R the vectors less the mean
    and the other groups and :math:`y_k = R^\top p_k`:

    .. math::

       p(\lambda_g \mid R, \Lambda) \propto p(\lambda_g) \prod_k
       N\Big(y_k;\, 0,\, \frac{s_k^2 + \lambda_g}{\lambda_g} \Lambda^{-1}\Big),

    by a slice step in the logarithm, with B summed out; and, exactly,

    .. math::

       c_k \sim N\Big(\frac{s_k y_k}{s_k^2 + \lambda_g},\ \frac{\Lambda^{-1}}{s_k^2 + \lambda_g}
       \Big),

    the rest of B, across the directions, from its prior.

What it leaves invariant
    The conditional distribution of means, precisions, B and their prior precisions given the
    vectors. Mean and precision are drawn with the rest of B summed out, which is drawn anew
    afterwards (a partially collapsed sampler; van Dyk, Park 2008, JASA 103).

Cost
    Lines plus attributes, times directions, times rank + 1. The directions are at most the smaller
    of the two.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.kernels.numerics.linalg import back_substitute, factor, log_determinant
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.slice import slice_sample

#: Width of the window of the slice step, in the logarithm of the prior precision.
WINDOW = 3.0
#: Singular values below this share of the largest are taken for zero.
LEAST = 1e-6


class Group(NamedTuple):
    """One group of attributes X = P S Q' of the lines of a side; all float."""

    left: jax.Array  # P, (lines, directions)
    size: jax.Array  # S, (directions,)
    right: jax.Array | None  # Q, (attributes, directions); None for the identity: P S is X itself


#: The attributes of a side; those of B are listed group after group.
Attributes = tuple[Group, ...]


def decomposed(values) -> Group:
    """Return one group from its attributes (lines, attributes), an array.

    By the eigenvectors of the smaller Gram matrix, in double precision.
    """
    x = np.asarray(values, np.float64)
    wide = x.shape[0] < x.shape[1]
    square, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    kept = square > LEAST**2 * max(square.max(initial=0.0), np.finfo(float).tiny)
    size, vectors = np.sqrt(square[kept]), vectors[:, kept]
    other = (x.T if wide else x) @ vectors / size
    left, right = (vectors, other) if wide else (other, vectors)
    dtype = jnp.result_type(float)
    return Group(*jax.device_put([a.astype(dtype) for a in (left, size, right)]))


def plain(values) -> Group:
    """Return a group that is only multiplied by, of new lines: its attributes as they are."""
    x = jnp.asarray(values, jnp.result_type(float))
    return Group(x, jnp.ones(x.shape[1], x.dtype), None)


def num_attributes(attributes: Attributes) -> int:
    """Return the number of all attributes."""
    return sum(_length(group) for group in attributes)


def num_directions(attributes: Attributes) -> int:
    """Return the number of coordinates of B that vectors depend on, of one coordinate of these."""
    return sum(group.size.shape[0] for group in attributes)


def _length(group: Group) -> int:
    return (group.size if group.right is None else group.right).shape[0]


def _by_group(coefficients, attributes: Attributes):
    ends = np.cumsum([_length(group) for group in attributes])[:-1]
    return jnp.split(coefficients, ends)


@full_precision
def _directions(coefficients, group: Group):
    """Return C = Q' B, (directions, width)."""
    return coefficients if group.right is None else group.right.T @ coefficients


@full_precision
def _explained(directions, group: Group):
    return group.left @ (group.size[:, None] * directions)


def explained(coefficients, attributes: Attributes):
    """Return X B, what the attributes add to the prior means: (lines,) or (lines, width)."""
    table = coefficients.reshape(coefficients.shape[0], -1)
    total = sum(
        _explained(_directions(b, group), group)
        for b, group in zip(_by_group(table, attributes), attributes, strict=True)
    )
    return total.reshape(total.shape[:1] + coefficients.shape[1:])


class Spread(NamedTuple):
    """What the vectors and C tell of their mean and precision."""

    residual: jax.Array  # (lines, width): the vectors less X B
    scatter: jax.Array  # (width, width): sum over groups of lambda C' C


@full_precision
def spread(vectors, coefficients, ridge, attributes: Attributes) -> Spread:
    """Return residuals and what C adds to their scatter; `ridge` (groups,) are the lambdas."""
    parts = [
        _directions(b, group)
        for b, group in zip(_by_group(coefficients, attributes), attributes, strict=True)
    ]
    fits = (_explained(c, group) for c, group in zip(parts, attributes, strict=True))
    scatter = sum(weight * c.T @ c for weight, c in zip(ridge, parts, strict=True))
    return Spread(vectors - sum(fits), scatter)


def draw_coefficients(key, centred, coefficients, ridge, precision, attributes, prior):
    """Draw B and the lambdas, group by group, given vectors less their mean (lines, width).

    `precision` (width, width) is theirs; `prior` the shape and rate of the lambdas. Return
    (attributes, width) and (groups,).
    """
    upper = factor(precision)
    drawn = _by_group(coefficients, attributes)
    ridge = list(ridge)
    fits = [_explained(_directions(b, g), g) for b, g in zip(drawn, attributes, strict=True)]
    for at, (k, group) in enumerate(zip(random.split(key, len(drawn)), attributes, strict=True)):
        rest = centred - sum(fit for other, fit in enumerate(fits) if other != at)
        ridge[at], drawn[at] = _draw_group(k, rest, ridge[at], precision, upper, group, prior)
        fits[at] = _explained(_directions(drawn[at], group), group)
    return jnp.concatenate(drawn), jnp.stack(ridge)


@full_precision
def _draw_group(key, rest, ridge, precision, upper, group: Group, prior):
    """Draw lambda with B summed out, and B given it."""
    key_window, key_slice, key_noise = random.split(key, 3)
    along = group.left.T @ rest
    cost = jnp.sum((along @ precision) * along, axis=1)
    square = group.size**2
    shape, rate = prior
    width = rest.shape[1]

    def log_density(x):
        weight = jnp.exp(x)
        share = weight / (square + weight)
        terms = width * jnp.log(share) - cost * share
        return shape * x - rate * weight + 0.5 * jnp.sum(terms)

    now = jnp.log(ridge)
    low = now - WINDOW * random.uniform(key_window, (), now.dtype)
    ridge = jnp.exp(slice_sample(key_slice, now, log_density, low, low + WINDOW))
    best = (group.size / (square + ridge))[:, None] * along
    noise = random.normal(key_noise, (width, _length(group)), rest.dtype)
    noise = back_substitute(upper[..., None], noise).T  # (attributes, width), covariance Lambda^-1
    # Along the directions narrower than the prior's 1 / lambda, across them as that.
    narrow = (square + ridge) ** -0.5 - ridge**-0.5
    moved = best + narrow[:, None] * _directions(noise, group)
    drawn = ridge**-0.5 * noise + (moved if group.right is None else group.right @ moved)
    return ridge, drawn


@full_precision
def log_prob(coefficients, ridge, precision, attributes: Attributes):
    """Return the log density of B (attributes, width) given the lambdas (groups,)."""
    width = precision.shape[0]
    total, of_one = 0.0, log_determinant(precision) - width * jnp.log(2.0 * jnp.pi)
    for b, weight in zip(_by_group(coefficients, attributes), ridge, strict=True):
        constant = b.shape[0] * (of_one + width * jnp.log(weight))
        total += 0.5 * (constant - weight * jnp.sum((b @ precision) * b))
    return total
