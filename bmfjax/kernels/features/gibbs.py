r"""An exact sampler of binary latent features.

What it leaves invariant
------------------------
The posterior of `bmfjax.kernels.features.density`. A sweep draws in turn

* Polya-Gamma variables of all cells (`bmfjax.kernels.logistic.polya_gamma`), and given them which
  columns a feature concerns, weights, intercepts and row effects (`weights`);
* which side of a feature is the one that has it (`weights.turn`), where weights are signed;
* the bits of all rows from the likelihood itself, and row effects with some of them summed out
  (`memberships`);
* `rebirths` features anew, or away (`rebirth`);
* densities, precisions and means.

Cost
----
A sweep takes a Polya-Gamma draw and :math:`(r + 1)(r + 2) / 2` products a cell, and for each block
of four features 16 states of a row. All arrays are dense, and a few of the size of the matrix exist
at once.

Missing entries
---------------
They have no Polya-Gamma variable, and no factor of the likelihood.

Temperatures
------------
With an `inverse_temperature` other than 1 the normal likelihood of the weights is raised to that
power given Polya-Gamma variables of the likelihood itself, and below `weights.whole_below` no
weight is zero. No known density is then left invariant: it is for annealed starts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.checks import whole
from bmfjax.kernels.base import Algorithm, State, init_from
from bmfjax.kernels.features.density import (
    FeatureData,
    FeatureDensity,
    check_density,
    log_likelihood,
    log_odds,
    log_prior,
    present,
)
from bmfjax.kernels.features.memberships import block_size, draw_memberships, membership_shapes
from bmfjax.kernels.features.rebirth import rebirth_shapes, reborn
from bmfjax.kernels.features.weights import (
    column_shapes,
    column_systems,
    draw_columns,
    draw_rows,
    row_shapes,
    turn,
)
from bmfjax.kernels.logistic.polya_gamma import draw_polya_gamma
from bmfjax.kernels.numerics.beta import draw_beta_and_gamma
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.uniforms import draw_parts, normals

#: Chance of a membership at the start, and scale of the weights.
SHARE, SPREAD = 0.3, 0.5
#: Densities are kept this far from 0 and 1, where float32 has no logarithm.
LEAST = 1e-7


class FeatureInfo(NamedTuple):
    """Statistics of one sweep, of what it has drawn: () each."""

    log_joint: jax.Array
    log_likelihood: jax.Array
    reborn: jax.Array  # features that were born again or died, () float
    #: The log joint with the entropies of weights, effects and memberships given the rest added:
    #: higher where more of the posterior is about here.
    log_mass: jax.Array


def features_gibbs(
    density: FeatureDensity, shape: tuple[int, int], *, rebirths: int = 1, known: int = 0
) -> Algorithm:
    """Build the sampler of a density, for a matrix of this shape.

    The data are a `FeatureData`, of which the first `known` features have known bits or weights. It
    observes the sites of the density, `FeatureInfo`, and `rank`, the number of features that have
    rows and columns.

    Examples
    --------
    >>> signs = jnp.where(jnp.eye(4) == 1, 1, -1).astype(jnp.int8)
    >>> algorithm = features_gibbs(FeatureDensity(rank=1), (4, 4))
    >>> init, step = jax.jit(algorithm.init), jax.jit(algorithm.step)
    >>> data = FeatureData(signs)
    >>> state, info = step(random.key(1), init(random.key(0), None, data), data)
    >>> state.position["usage"].shape, bool(info.log_likelihood < 0)
    ((4, 1), True)
    """
    check_density(density)
    whole("rebirths", rebirths, 0)
    size = block_size(density.rank)
    rebirths, (rows, columns) = rebirths if known < density.rank else 0, shape
    parts = (
        column_shapes(density, columns), row_shapes(rows), [(density.rank,)],
        membership_shapes(density.rank, rows, size),
        [(rebirths, *one) for one in rebirth_shapes(density.rank, rows, columns)], [()],
    )  # fmt: skip

    def initial(key, data):
        return _random_position(key, shape, data, density)

    # Some accelerators round the factors of a float32 product to 10 bits.
    @full_precision
    def step(key, state, data, inverse_temperature=1.0):
        power, kind = inverse_temperature, state.position["basis"].dtype
        # One call of the generator for all that does not propose until it accepts.
        keys, (of_columns, of_rows, turns, bits, births, mean) = draw_parts(key, kind, parts, 2)
        position, seen = state.position, data.signs != 0
        psi = log_odds(position)
        omega = jnp.where(seen, draw_polya_gamma(keys[0], psi, data.budget), 0.0) * power
        half = 0.5 * power * data.signs.astype(psi.dtype)
        systems = column_systems(position, omega, half)
        drawn, entropy = draw_columns(of_columns, position, systems, data, density, power)
        position = position | drawn
        if density.row_effects:
            psi = log_odds(position)
            drawn, more = draw_rows(of_rows, position, psi, omega, half, density)
            position |= drawn
            entropy += more
        if density.is_signed:
            position |= turn(turns[0], position, data, density)
        psi = log_odds(position)
        drawn, psi, chance = draw_memberships(bits, psi, position, data, density, power, size)
        position |= drawn
        entropy -= chance

        def rebirth(carry, uniforms):
            *carry, changed = reborn(uniforms, *carry, data, density, power, known)
            return tuple(carry), changed

        (position, psi), changed = lax.scan(rebirth, (position, psi), births)
        count = changed.sum(dtype=psi.dtype)
        position |= draw_priors(keys[1], mean[0], position, density)
        likelihood = log_likelihood(data.signs, psi)
        joint = likelihood + log_prior(density, position)
        return State(position), FeatureInfo(joint, likelihood, count, joint + entropy)

    def observe(state, info):
        used = (state.position["usage"] != 0).any(0) & (state.position["basis"] != 0).any(0)
        return {**state.position, **info._asdict(), "rank": used.sum()}

    return Algorithm(init_from(initial), step, observe)


def draw_priors(key, uniform, position, density: FeatureDensity) -> dict:
    """Draw what is above bits, weights and intercepts; of absent features from the priors.

    The uniform number () is that of the intercepts' mean.
    """
    there, basis = present(density, position), position["basis"]
    bits, kind = (position["usage"], basis != 0), basis.dtype
    ones = jnp.stack([x.sum(0, dtype=kind) for x in bits])
    sizes = jnp.asarray([[len(x)] for x in bits], kind)
    # Nothing is known about a feature that is not there.
    ones, rest = (jnp.where(there, x, 0.0) for x in (ones, sizes - ones))
    (a, b), number = density.presence or (1.0, 1.0), there.sum(dtype=kind)
    first = jnp.append(1.0 + ones, a + number)
    second = jnp.append(1.0 + rest, b + density.rank - number)

    effect, alpha = position["column_effect"], position["column_precision"]
    precision = len(effect) * alpha + density.mean_scale**-2.0
    mean = alpha * jnp.sum(effect) / precision + normals(uniform) * lax.rsqrt(precision)
    (slab, slab_rate), (shape, rate) = density.slab, density.intercepts
    half = 0.5 * (density.moment + 1)
    shapes = jnp.append(slab + half * ones[1], shape + 0.5 * len(effect))
    rates = slab_rate + half * there * jnp.sum(basis**2, 0)
    rates = jnp.append(rates, rate + 0.5 * jnp.sum((effect - mean) ** 2))

    shares, scales = draw_beta_and_gamma(key, first, second, shapes.astype(kind))
    shares, scales = jnp.clip(shares, LEAST, 1.0 - LEAST), scales / rates
    usage, columns = shares[:-1].reshape(2, -1)
    found = {
        "usage_density": usage, "basis_density": columns, "factor_precision": scales[:-1],
        "column_mean": mean, "column_precision": scales[-1],
    }  # fmt: skip
    return found if density.presence is None else found | {"presence_share": shares[-1]}


def _random_position(key, shape, data: FeatureData, density: FeatureDensity) -> dict:
    """Return a start: memberships and weights at random, intercepts of the columns' shares."""
    (rows, columns), rank, kind = shape, density.rank, jnp.result_type(float)
    key_usage, key_basis = random.split(key)
    usage = random.bernoulli(key_usage, SHARE, (rows, rank)).astype(kind)
    basis = SPREAD * random.normal(key_basis, (columns, rank), kind)
    basis = basis if density.is_signed else jnp.abs(basis)
    if data.known_columns is not None:
        basis = jnp.where(data.known_columns < 0.5, 0.0, basis)
    return start_at(usage, basis, data, density)


def start_at(usage, basis, data: FeatureData, density: FeatureDensity) -> dict:
    """Return a start from memberships and weights, but for what of them is known."""
    (rows, rank), kind = usage.shape, usage.dtype
    if data.known_usage is not None:
        usage = jnp.where(jnp.isnan(data.known_usage), usage, data.known_usage)
    if data.known_basis is not None:
        basis = jnp.where(jnp.isnan(data.known_basis), basis, data.known_basis)
    ones, seen = (jnp.sum(x, 1) for x in (data.signs > 0, data.signs != 0))
    effect = jnp.log((ones + 0.5) / (seen - ones + 0.5)).astype(kind)
    shape, rate = density.slab
    position = {
        "usage": usage,
        "basis": basis,
        "column_effect": effect,
        "usage_density": jnp.full(rank, SHARE, kind),
        "basis_density": jnp.full(rank, 0.5, kind),
        "factor_precision": jnp.full(rank, shape / rate, kind),
        "column_mean": effect.mean(),
        "column_precision": jnp.asarray(1.0 / (0.5 + effect.var()), kind),
    }
    if density.row_effects:
        position |= {
            "row_effect": jnp.zeros(rows, kind),
            "row_scale": jnp.asarray(0.5 * density.row_scale, kind),
        }
    if density.presence is not None:
        position |= {"presence": jnp.ones(rank, kind), "presence_share": jnp.asarray(0.5, kind)}
    return position
