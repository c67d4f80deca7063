r"""Exact Gibbs sampling of the relaxed model, and of any factorisation on a box.

Given the basis :math:`X`, the rows of the usage :math:`Y` are independent, and with a
quadratic prior :math:`-\lambda y - \kappa y^2/2` on :math:`[l, u]` every entry has a
truncated normal conditional,

.. math::

   p(y_{ik} \mid \cdot) \propto \exp\Big(\big[\tau(h_{ik} - \sum_{l\ne k} G_{kl}\,y_{il})
       - \lambda\big]\,y_{ik} - \tfrac12(\tau G_{kk} + \kappa)\,y_{ik}^2\Big), \qquad
   h = DX,\quad G = X^\top X,

which follows from Gonsior 2019, equation 3.2, with noise precision :math:`\tau`; the
sampler of Schmidt, Winther and Hansen (2009) for non-negative factors is the case
:math:`u = \infty`. A sweep draws column k of the usage for all rows at once, k in
turn, then the basis in the same way, then :math:`\tau` from its Gamma conditional and
learned rates from theirs; where both sides share these, factors and rates then move together
(`bmfjax.kernels.relaxed.scales`). All rows share G, so that besides one product with the data
per factor matrix, and the residual, nothing in a sweep costs rows times columns. For sparse data
(`bmfjax.kernels.relaxed.data.SparseMatrixData`) these cost their nonzero entries times the rank.

What it leaves invariant
    The posterior, exactly (to the accuracy of the floating point numbers), at any
    inverse temperature of the likelihood. One exception is built in: a learned precision
    is held at `RelaxedDensity.max_precision`, which only data without noise and a
    prior that lets it come there ever reach.

Missing entries
    A row that misses entries has a Gram matrix of its own, G less the outer products of
    the missing columns. It is never formed: its product with the row is the fit at the
    cells, which the sweep keeps up to date. Where no line misses more than an eighth (or
    observes at most that) this takes 2 x rank x listed cells operations for each factor
    matrix; otherwise 4 x rank x rows x columns, and two arrays as large as the data.

On a mesh
    A device draws its own rows of the usage and its own columns of the basis, and gets those of
    the others. Gram matrices and sums of squares are sums over the devices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.mesh import WHOLE
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.slice import slice_sample
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile
from bmfjax.kernels.relaxed.data import (
    FACTORS,
    OTHER,
    MatrixData,
    MissingCells,
    ObservedCells,
    cross_product,
    gather_lines,
    gram_matrix,
    oriented,
    residual_sum_of_squares,
)
from bmfjax.kernels.relaxed.density import (
    EntryPrior,
    RelaxedDensity,
    check_conditionals,
    draw_factor_rate,
    draw_precision,
    log_likelihood,
    log_prior,
)
from bmfjax.kernels.relaxed.scales import has_scales, move_scales

#: Below this parameter a Beta density has visible mass where 1 - x rounds to 1 or 0.
LEAST_BETA = 0.3


class TruncatedGibbsState(NamedTuple):
    """`position`: `usage`, `basis` and, where they are learned, `precision` and `rate`."""

    position: dict


class TruncatedGibbsInfo(NamedTuple):
    """Statistics of one sweep, all () float."""

    log_joint: jax.Array  # likelihood tempered
    log_likelihood: jax.Array  # not tempered
    residual: jax.Array  # sum of squares


def truncated_gibbs(density: RelaxedDensity, initial) -> Algorithm:
    """Build the sampler of a density.

    Parameters
    ----------
    density : RelaxedDensity
    initial : callable
        ``initial(key, data) -> position``, a random start.

    Returns
    -------
    Algorithm
        For data that are a `MatrixData` or a `SparseMatrixData`.

    Raises
    ------
    InputError
        For priors that have no proper conditional, or that no step here can draw.

    Examples
    --------
    >>> from bmfjax.kernels.relaxed.data import matrix_data
    >>> uniform = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
    >>> density = RelaxedDensity(uniform, uniform, 100.0, None, None)
    >>> data = matrix_data(jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> half = {"usage": jnp.full((3, 1), 0.5), "basis": jnp.full((3, 1), 0.5)}
    >>> algorithm = truncated_gibbs(density, lambda key, data: half)
    >>> state, step = algorithm.init(random.key(0), None, data), jax.jit(algorithm.step)
    >>> for key in random.split(random.key(1), 20):
    ...     state, info = step(key, state, data)
    >>> (state.position["usage"][:, 0] > 0.5).tolist()
    [True, True, False]
    """
    for name in FACTORS:
        _check_prior(getattr(density, name), name)
    check_conditionals(density)

    def init(key, position, data):
        start = initial(key, data) if position is None else position
        return TruncatedGibbsState({n: jnp.asarray(v) for n, v in start.items()})

    # Some accelerators round the factors of a float32 product to 10 bits unless asked not to.
    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        keys = random.split(key, 4)
        position = dict(state.position)
        weight = inverse_temperature * density.noise_precision(position)
        for factor, k in zip(FACTORS, keys[:2], strict=True):
            position[factor] = update_factor(
                k, factor, position[factor], position[OTHER[factor]], data,
                getattr(density, factor), weight, position.get("rate"),
                first=density.first_free(factor),
            )  # fmt: skip
        if density.rate_gamma is not None:
            position["rate"] = draw_factor_rate(density, keys[3], position)
            if has_scales(density, data):
                key_scales = random.fold_in(keys[3], 1)
                position = move_scales(key_scales, density, position, data, inverse_temperature)
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
        if density.precision is None:
            position["precision"] = draw_precision(
                density, keys[2], position, data, inverse_temperature, rss
            )
        info = sweep_info(density, position, data, inverse_temperature, rss)
        return TruncatedGibbsState(position), info

    def observe(state, info):
        return {**state.position, **info._asdict()}

    return Algorithm(init, step, observe)


def sweep_info(
    density: RelaxedDensity, position, data, inverse_temperature=1.0, rss=None
) -> TruncatedGibbsInfo:
    """Return statistics of a position; `rss` is given where that sum is known already."""
    if rss is None:
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    likelihood = log_likelihood(density, position, data, rss)
    joint = inverse_temperature * likelihood + log_prior(density, position)
    return TruncatedGibbsInfo(joint, likelihood, rss)


def _check_prior(prior: EntryPrior, name: str) -> None:
    """Refuse a prior that the sampler cannot draw from."""
    if prior.beta is not None and min(prior.beta) < LEAST_BETA:
        raise InputError(
            f"the prior of {name} is Beta{prior.beta}, with mass that floating point numbers near "
            f"the bounds cannot hold; give parameters of at least {LEAST_BETA}"
        )
    if prior.high == float("inf") and prior.quadratic is None:
        raise InputError(
            f"the prior of {name} reaches to infinity and is neither exponential nor half-normal; "
            "exact sampling on [0, inf) takes those, or a prior on a finite interval"
        )


# ---- one factor matrix ------------------------------------------------------------------


@full_precision
def update_factor(key, factor, x, other, data, prior, weight, rate=None, draw=None, first=0):
    """Draw one factor matrix `x` (m, rank), column by column, given everything else.

    `weight` is the noise precision times the inverse temperature, `other` (n, rank), and `rate`
    (rank,) holds learned rates. ``draw(k, old, linear, precision, rate) -> (m,)`` takes the place
    of the draw of the k-th column from its conditional under `prior`: the likelihood is
    exp(linear x - precision x^2 / 2). Columns before the `first` stay. On a mesh m is the number
    of this device's own lines for `draw` and all that follows.
    """
    lines, rank = x.shape
    x = data.along.own(x)
    cross = cross_product(data, factor, other)
    product, change, start, grams = _gram_product(factor, x, other, data)
    if draw is None:
        draw = _draw_entries(key, (rank, lines), x.dtype, prior, data.along)
    # One factor a row: a column of the matrix is then contiguous.
    xt = x.T

    def column(k, carry):
        xt, cells = carry
        old = xt[k]
        own = grams[k]
        linear = weight * (cross[k] - product(k, xt, cells) + own * old)
        new = draw(k, old, linear, weight * own, None if rate is None else rate[k])
        return xt.at[k].set(new), change(k, cells, new - old)

    return data.along.join(lax.fori_loop(first, rank, column, (xt, start))[0].T, lines)


def _gram_product(factor, x, other, data):
    """Return how every line's own Gram matrix acts, over the observed cells of that line.

    These are ``product(k, xt, cells)``, row k of the Gram matrices times the lines, (m,);
    ``change(k, cells, delta)``, the fit at the cells once entry k has moved by delta; the cells
    kept at the start; and the diagonals of the Gram matrices, (rank, m) or (rank, 1).
    """
    gram = gram_matrix(other, data.along)
    listed = data.by_row if factor == "usage" else data.by_column
    mask = oriented(factor, data)[1] if isinstance(data, MatrixData) else None
    if listed is None and mask is None:
        own = jnp.diagonal(gram)[:, None]
        return lambda k, xt, cells: gram[k] @ xt, lambda k, cells, delta: cells, (), own
    if listed is not None:
        return _listed_product(x, other, gram, listed)
    return _masked_product(x, other, mask)


def _listed_product(x, other, gram, listed: MissingCells | ObservedCells):
    lines = gather_lines(other, listed.index)  # (most, rank, m)
    fit = jnp.einsum("ckm,km->cm", lines, x.T)
    squares = jnp.einsum("ckm,ckm->km", lines, lines)

    def at_cells(k, cells):
        return jnp.einsum("cm,cm->m", lines[:, k], cells)

    def change(k, cells, delta):
        return cells + lines[:, k] * delta

    if isinstance(listed, ObservedCells):
        return lambda k, xt, cells: at_cells(k, cells), change, fit, squares
    own = jnp.diagonal(gram)[:, None] - squares

    def product(k, xt, cells):
        return gram[k] @ xt - at_cells(k, cells)

    return product, change, fit, jnp.maximum(own, 0.0)


def _masked_product(x, other, mask):
    """Keep the fit of all observed entries; `mask` (n, m) is one there."""
    ot = other.T

    def product(k, xt, cells):
        return ot[k] @ cells

    def change(k, cells, delta):
        return cells + mask * (ot[k][:, None] * delta[None, :])

    return product, change, mask * (other @ x.T), (ot * ot) @ mask


# ---- one column -------------------------------------------------------------------------


def _draw_entries(key, shape, dtype, prior: EntryPrior, along=WHOLE):
    """Return ``draw`` of `update_factor` for a prior and a matrix of all lines, (rank, m)."""
    if prior.quadratic is not None:
        # Never zero: the draw would be the bound itself, where a density on (0, inf) is none.
        uniforms = along.own(random.uniform(key, shape, dtype, minval=2.0**-24), 1)
        fixed_rate, curvature = prior.quadratic

        def draw(k, old, linear, precision, rate):
            slope = rate if prior.learned_rate else fixed_rate
            return truncated_normal_quantile(
                uniforms[k], linear - slope, precision + curvature, prior.low, prior.high
            )

        return draw

    keys = random.split(key, shape[0])
    step = _slice_beta if prior.beta is not None else _slice_entries

    def draw(k, old, linear, precision, rate):
        return step(keys[k], old, linear, precision, prior, rate, size=shape[1], along=along)

    return draw


def _slice_entries(key, x, linear, precision, prior, rate, **part):
    def log_density(x):
        value = prior.log_prob(x[:, None], rate)[:, 0]
        return linear * x - 0.5 * precision * x * x + value

    return slice_sample(key, x, log_density, prior.low, prior.high, **part)


def _slice_beta(key, x, linear, precision, prior, rate, **part):
    r"""Step in the angle of :math:`x = \sin^2\varphi`, where Beta(1/2, 1/2) is uniform."""
    a, b = prior.beta
    # Away from the ends by less than float32 resolves in x: the logarithms stay finite.
    edge = 1e-6

    def log_density(angle):
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        x = sine * sine
        value = linear * x - 0.5 * precision * x * x
        if a != 0.5:
            value = value + (2.0 * a - 1.0) * jnp.log(sine)
        if b != 0.5:
            value = value + (2.0 * b - 1.0) * jnp.log(cosine)
        return value

    angle = jnp.arcsin(jnp.sqrt(jnp.clip(x, 0.0, 1.0)))
    angle = jnp.clip(angle, edge, 0.5 * jnp.pi - edge)
    angle = slice_sample(key, angle, log_density, edge, 0.5 * jnp.pi - edge, **part)
    # Not one, to which the sine rounds long before `edge`: the density there may be infinite.
    return jnp.minimum(jnp.sin(angle) ** 2, 1.0 - jnp.finfo(x.dtype).epsneg)
