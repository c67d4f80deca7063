"""The joint density of a Boolean factorisation: its prior, and draws of its densities."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.kernels import flip_rates
from bmfjax.kernels.beta import draw_beta
from bmfjax.kernels.flip_rates import FlipRatePrior
from bmfjax.kernels.packed_lines import PackedData, count_bits, pack_last_axis, unpack_last_axis

SITES = ("usage", "basis", "flip_rate", "usage_density", "basis_density")


class BitPrior(NamedTuple):
    """Prior of the bits of one factor matrix.

    Bits with prior log odds of their own in the data (`PackedData`) follow those in its place;
    where these are NaN the density of the factor holds.

    Attributes
    ----------
    beta : (float, float) or None
        Beta prior of the densities, one a factor, which are then learned.
    density : float or None
        Of all factors, where it is fixed.
    """

    beta: tuple[float, float] | None = (1.0, 1.0)
    density: float | None = None


class BooleanDensity(NamedTuple):
    """The joint density of a Boolean factorisation.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns.
    rank : int
    usage, basis : BitPrior
    flip_rate : FlipRatePrior
    """

    shape: tuple[int, int]
    rank: int
    usage: BitPrior = BitPrior()
    basis: BitPrior = BitPrior()
    flip_rate: FlipRatePrior = FlipRatePrior()


def log_odds(site, density, position, data) -> jax.Array:
    """Prior log odds of the bits of a factor matrix: (rank, 1) or (rank, lines)."""
    prior, given = getattr(density, site), getattr(data, f"{site}_log_odds")
    if prior.beta is not None:
        chance = position[f"{site}_density"]
        common = (jnp.log(chance) - jnp.log1p(-chance))[:, None]
    else:
        chance = jnp.asarray(0.5 if prior.density is None else prior.density)
        common = jnp.full((density.rank, 1), jnp.log(chance) - jnp.log1p(-chance))
    return common if given is None else jnp.where(jnp.isnan(given), common, given)


def draw_density(key, site, density, position, data) -> dict:
    """The densities of a factor matrix from their Beta conditionals: a part of the position."""
    prior = getattr(density, site)
    if prior.beta is None:
        return {}
    ones, bits = _free_ones(site, density, position, data)
    name = f"{site}_density"
    kind = position[name].dtype
    a, b = prior.beta
    drawn = draw_beta(key, a + ones.astype(kind), b + jnp.asarray(bits - ones, kind))
    # One is the nearest number to a draw very close to it, and its log odds are infinite.
    tiny = jnp.finfo(kind)
    return {name: jnp.clip(drawn, tiny.tiny, 1.0 - tiny.epsneg)}


def _free_ones(site, density, position, data):
    """Ones and bits of every factor that follow its density: (rank,) and (rank,) or ()."""
    size = density.shape[0 if site == "usage" else 1]
    given = getattr(data, f"{site}_log_odds")
    if given is None:
        return count_bits(position[site]), size
    free = jnp.isnan(given)
    ones = jnp.sum(unpack_last_axis(position[site], size) & free, -1, dtype=jnp.int32)
    return ones, jnp.sum(free, -1, dtype=jnp.int32)


def log_prior(density: BooleanDensity, position, data) -> jax.Array:
    """Log density of bits, densities and flip rates, without the data: () float."""
    total = flip_rates.log_prior(position["flip_rate"], density.flip_rate)
    return total + sum(log_prior_of(s, density, position, data) for s in ("usage", "basis"))


def log_prior_of(site, density: BooleanDensity, position, data) -> jax.Array:
    """Log density of one factor matrix's bits and densities: () float."""
    prior, given = getattr(density, site), getattr(data, f"{site}_log_odds")
    size = density.shape[0 if site == "usage" else 1]
    ones, bits = _free_ones(site, density, position, data)
    total = jnp.zeros((), jnp.result_type(float))
    if prior.beta is not None:
        a, b = prior.beta
        chance = position[f"{site}_density"]
        log_one, log_zero = jnp.log(chance), jnp.log1p(-chance)
        total += jnp.sum((a - 1.0) * log_one + (b - 1.0) * log_zero)
        total -= density.rank * jax.scipy.special.betaln(a, b)
    else:
        chance = jnp.asarray(0.5 if prior.density is None else prior.density)
        log_one, log_zero = jnp.log(chance), jnp.log1p(-chance)
    zeros = jnp.asarray(bits - ones, log_zero.dtype)
    total += jnp.sum(ones.astype(log_one.dtype) * log_one + zeros * log_zero)
    if given is not None:
        # Fixed bits, whose log odds are infinite, are certain.
        own = jnp.where(unpack_last_axis(position[site], size), given, -given)
        total += jnp.sum(jnp.where(jnp.isnan(given), 0.0, jax.nn.log_sigmoid(own)))
    return total


def draw_prior(key, density: BooleanDensity, data: PackedData) -> dict:
    """A position from the prior; a learned flip rate starts at 0.2."""
    kind = jnp.result_type(float)
    position, keys = {}, random.split(key, 4)
    for i, (site, size) in enumerate(zip(("usage", "basis"), density.shape, strict=True)):
        prior = getattr(density, site)
        if prior.beta is not None:
            a, b = (jnp.full(density.rank, c, kind) for c in prior.beta)
            chance = draw_beta(keys[2 * i], a, b)
            position[f"{site}_density"] = jnp.clip(chance, 0.01, 0.99)
        odds = log_odds(site, density, position, data)
        shape = (density.rank, size)
        position[site] = pack_last_axis(random.logistic(keys[2 * i + 1], shape, kind) < odds)
    rates = () if density.flip_rate.num_rates == 1 else (2,)
    start = 0.2 if density.flip_rate.value is None else density.flip_rate.value
    position["flip_rate"] = jnp.broadcast_to(jnp.asarray(start, kind), rates)
    return position
