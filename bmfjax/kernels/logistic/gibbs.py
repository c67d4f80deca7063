r"""An exact sampler of the logistic model by Polya-Gamma augmentation.

What it leaves invariant
------------------------
The posterior of `bmfjax.kernels.logistic.density`. A cell with log odds :math:`\psi` has the
likelihood

.. math::

   \sigma(s \psi) = \tfrac12 e^{\kappa \psi} \int_0^\infty e^{-\omega \psi^2 / 2}
   p(\omega)\, d\omega, \qquad \kappa = s / 2, \quad p(\omega) = PG(\omega \mid 1, 0)

(Polson, Scott, Windle 2013, "Bayesian inference for logistic models using Polya-Gamma latent
variables", JASA 108, theorem 1). Given :math:`\omega` it is that of a normal observation
:math:`\kappa / \omega` with precision :math:`\omega`. A sweep draws in turn

* :math:`\omega_{ij} \mid \psi_{ij} \sim PG(1, \psi_{ij})`
  (`bmfjax.kernels.logistic.polya_gamma`);
* the vector :math:`(u_i, a_i)` of every row given the columns, the bias and :math:`\omega`, a
  normal with precision :math:`\tau^{-2} I + \sum_j \omega_{ij} x_j x_j^\top`,
  :math:`x_j = (v_j, 1)`;
* the bias z and the vectors :math:`(v_j, b_j)` of all columns given the rows and the same
  :math:`\omega`, at once: the bias from its normal density with the columns summed out, then the
  columns given the bias. Drawn one given the other, the bias of a sparse matrix would wander
  slowly.

Cost
----
A sweep takes a Polya-Gamma draw a cell, observed or not, and two products with the pairs of
coordinates of a vector, :math:`O(n m r^2)`. Blocks of rows pass by one after the other; memory
beside the matrix, a byte a cell, grows with :math:`(n + m) r` and :math:`m r^2`.

Missing entries
---------------
They have :math:`\omega = \kappa = 0`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.logistic.density import (
    LogisticDensity,
    check_density,
    log_likelihood,
    log_prior,
)
from bmfjax.kernels.logistic.polya_gamma import draw_polya_gamma
from bmfjax.kernels.logistic.signs import budget_of, by_block, bytes_of_block, counts, of_block
from bmfjax.kernels.numerics.linalg import back_substitute, cholesky
from bmfjax.kernels.numerics.precision import full_precision


class LogisticInfo(NamedTuple):
    """Statistics of one sweep, of what it has drawn: () float."""

    log_joint: jax.Array
    log_likelihood: jax.Array


class Sums(NamedTuple):
    """What weighted cells say of the vectors of one side, given regressors x of the other."""

    pairs: jax.Array  # (lines, pairs): sums of omega x_k x_l, k <= l
    shift: jax.Array  # (lines, width): sums of (kappa - omega offset) x


def logistic_gibbs(density: LogisticDensity, shape: tuple[int, int]) -> Algorithm:
    """Build the sampler of a density, for a matrix of this shape in blocks of rows.

    The data are signs in blocks of rows (`bmfjax.kernels.logistic.signs`), as
    `bmfjax.variational.sign_blocks` makes them. It observes the sites of the density and
    `LogisticInfo`.

    Examples
    --------
    >>> signs = jnp.where(jnp.eye(4) == 1, 1, -1).astype(jnp.int8)[None]
    >>> algorithm = logistic_gibbs(LogisticDensity(rank=1), (4, 4))
    >>> init, step = jax.jit(algorithm.init), jax.jit(algorithm.step)
    >>> state, info = step(random.key(1), init(random.key(0), None, signs), signs)
    >>> state.position["usage"].shape, bool(info.log_likelihood < 0)
    ((4, 1), True)
    """
    check_density(density)

    def initial(key, data):
        return _random_position(key, shape, data, density)

    # Some accelerators round the factors of a float32 product to 10 bits.
    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        if inverse_temperature != 1.0:
            raise InputError("the logistic model is not tempered; leave inverse_temperature out")
        key_rows, key_columns = random.split(key)
        rows, sums = draw_rows(key_rows, state.position, data, density)
        position = {**state.position, **rows}
        position |= draw_columns(key_columns, sums, density)
        likelihood = _likelihood(position, data, density)
        info = LogisticInfo(likelihood + log_prior(density, position), likelihood)
        return State(position), info

    def observe(state, info):
        return {**state.position, **info._asdict()}

    return Algorithm(init_from(initial), step, observe)


def _random_position(key, shape, data, density: LogisticDensity) -> dict:
    """Return a draw from the prior, but for the bias, which gives the share of ones."""
    ones, observed = counts(data)
    kind = jnp.result_type(float)
    position = {"bias": jnp.log((1.0 + ones) / (1.0 + observed - ones)).astype(kind)}
    sizes = {"usage": (shape[0], density.rank), "basis": (shape[1], density.rank)}
    sizes |= {"row_effect": shape[:1], "column_effect": shape[1:]}
    names = [name for name in density.sites if name in sizes]
    for name, k in zip(names, random.split(key, len(names)), strict=True):
        position[name] = density.scale * random.normal(k, sizes[name], kind)
    return position


# ---- rows ---------------------------------------------------------------------------------------


@full_precision
def draw_rows(key, position, data, density: LogisticDensity) -> tuple[dict, Sums]:
    """Draw the vectors of all rows, and sum up what they then say of the columns.

    Returns
    -------
    rows : dict
        `usage`, and `row_effect` where there is one.
    sums : Sums
        Sums of the columns, from the same Polya-Gamma draws; regressors are (u, 1).
    """
    rank, width = density.rank, density.rank + density.row_effects
    beside = _with_ones(position["basis"], density.row_effects)
    pairs, offset = _pairs(beside), _column_offset(position, density)
    kind, unpacked = pairs.dtype, of_block(data)

    def block(at):
        key, packed, usage, *effect = at
        signs = unpacked(packed)
        key_augment, key_draw = random.split(key)
        log_odds = usage @ position["basis"].T + sum(effect, offset)
        omega = draw_polya_gamma(key_augment, log_odds, budget_of(data))
        omega = jnp.where(signs != 0, omega, 0.0)
        half = 0.5 * signs.astype(kind)
        of_rows = Sums(omega @ pairs, (half - omega * offset) @ beside)
        drawn = _draw(key_draw, _systems(of_rows, density.scale))
        own = _with_ones(drawn[:, :rank], True)
        rest = half - omega * drawn[:, rank:] if density.row_effects else half
        return Sums(omega.T @ _pairs(own), rest.T @ own), drawn

    columns = data.shape[2]
    like = Sums(
        jax.ShapeDtypeStruct((columns, (rank + 1) * (rank + 2) // 2), kind),
        jax.ShapeDtypeStruct((columns, rank + 1), kind),
    )
    blocks = (random.split(key, data.shape[0]), by_block(data))
    blocks += tuple(_row_vectors(position, data, density))
    sums, drawn = budget_of(data).total(block, like, blocks, bytes_of_block(data, width))
    drawn = drawn.reshape(-1, width)[: len(position["usage"])]
    found = {"usage": drawn[:, :rank]}
    return found | ({"row_effect": drawn[:, rank]} if density.row_effects else {}), sums


def _column_offset(position, density):
    """Return what is added to the log odds of every row: bias and column effects, (columns,)."""
    offset = jnp.broadcast_to(position["bias"], position["basis"].shape[:1])
    return offset + position["column_effect"] if density.column_effects else offset


def _row_vectors(position, data, density) -> list:
    """Return usage, and row effects where there are any, as the blocks of the data have them.

    Each is (blocks, rows of a block, width), with zeros beyond the last row.
    """
    vectors = [position["usage"]]
    if density.row_effects:
        vectors.append(position["row_effect"][:, None])
    blocks, size, _ = data.shape
    beyond = blocks * size - len(vectors[0])
    return [jnp.pad(x, ((0, beyond), (0, 0))).reshape(blocks, size, -1) for x in vectors]


# ---- columns and bias ---------------------------------------------------------------------------


def draw_columns(key, sums: Sums, density: LogisticDensity) -> dict:
    r"""Draw the bias, and the vectors of all columns given it.

    With G the sums of the pairs of a column, g their part that belongs to the bias and h its shift,
    the column given the bias is :math:`N(S^{-1} (h - z g), S^{-1})`, and summed out it leaves the
    bias a precision of :math:`G_{zz} - g^\top S^{-1} g` and a shift of
    :math:`h_z - g^\top S^{-1} h`.
    """
    rank, width = density.rank, density.rank + density.column_effects
    moments = _symmetric(sums.pairs, rank + 1)
    chosen = slice(width)  # the last coordinate is a one: of the effect, and of the bias
    system = moments[chosen, chosen] + jnp.eye(width)[..., None] / density.scale**2
    right = jnp.stack([moments[rank, chosen], sums.shift.T[chosen]], axis=1)
    upper = cholesky(jnp.concatenate([system, right], axis=1))
    upper, slope, shift = upper[:, :width], upper[:, width], upper[:, width + 1]
    precision = jnp.sum(jnp.maximum(moments[rank, rank] - jnp.sum(slope**2, axis=0), 0.0))
    precision += density.bias_scale**-2
    mean = jnp.sum(sums.shift[:, rank] - jnp.sum(slope * shift, axis=0)) / precision
    key_bias, key_columns = random.split(key)
    bias = mean + random.normal(key_bias, (), mean.dtype) * lax.rsqrt(precision)
    noise = random.normal(key_columns, shift.shape, shift.dtype)
    drawn = back_substitute(upper, shift - bias * slope + noise).T
    found = {"bias": bias, "basis": drawn[:, :rank]}
    return found | ({"column_effect": drawn[:, rank]} if density.column_effects else {})


# ---- what they share ----------------------------------------------------------------------------


def _with_ones(vectors, wanted: bool):
    """Return vectors (lines, width) with a one as the last coordinate, where wanted."""
    return jnp.pad(vectors, ((0, 0), (0, 1)), constant_values=1.0) if wanted else vectors


def _pairs(x):
    """Return the products of all pairs of coordinates k <= l of vectors (lines, width)."""
    first, second = np.triu_indices(x.shape[1])
    return x[:, first] * x[:, second]


def _symmetric(pairs, width):
    """Return sums of pairs (lines, pairs) as matrices (width, width, lines)."""
    index = np.zeros((width, width), int)
    upper = np.triu_indices(width)
    index[upper] = index.T[upper] = np.arange(len(upper[0]))
    return jnp.transpose(pairs)[index]


def _systems(sums: Sums, scale: float):
    """Return the linear systems of lines under the prior, (width, width + 1, lines)."""
    width = sums.shift.shape[1]
    matrix = _symmetric(sums.pairs, width) + jnp.eye(width)[..., None] / scale**2
    return jnp.concatenate([matrix, sums.shift.T[:, None]], axis=1)


def _draw(key, system):
    """Draw from the normals with these systems (width, width + 1, lines): (lines, width)."""
    upper = cholesky(system)
    noise = random.normal(key, upper[:, -1].shape, upper.dtype)
    return back_substitute(upper[:, :-1], upper[:, -1] + noise).T


def _likelihood(position, data, density: LogisticDensity):
    """Return the log likelihood, block by block of rows: () float."""
    offset, unpacked = _column_offset(position, density), of_block(data)

    @full_precision
    def block(at):
        packed, usage, *effect = at
        return log_likelihood(unpacked(packed), usage @ position["basis"].T + sum(effect, offset))

    blocks = (by_block(data), *_row_vectors(position, data, density))
    return jnp.sum(budget_of(data).map(block, blocks, bytes_of_block(data, 0)))
