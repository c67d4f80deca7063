"""The joint density of a Boolean factorisation: its prior, and draws from it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import betaln

from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.words import PackedData, count_bits, pack_last_axis, unpack_last_axis
from bmfjax.kernels.numerics.beta import draw_beta, draw_same_beta
from bmfjax.kernels.numerics.control import log_uniform, run_if

#: Said by what takes all factors to be there.
_NO_PRESENCE = (
    "presence_prior says that some factors may not be there, and this sampler takes all to be; "
    "take OrMachineGibbs with the moves 'birth' and 'split_merge'"
)
SITES = ("usage", "basis", "flip_rate", "usage_density", "basis_density", "usage_presence")


class BitPrior(NamedTuple):
    """Prior of the bits of one factor matrix.

    Bits with prior log odds of their own in the data (`PackedData`) follow those instead. Where
    these log odds are NaN the density of the factor holds.

    Attributes
    ----------
    beta : (float, float) or None
        Beta prior of the densities, one a factor, which are then learned.
    density : float or None
        Fixed density of all factors; None: 1/2. Without `beta` only.
    presence : (float, float) or None
        Beta prior of the share of the factors that are there at all, with `beta` only: the density
        of a factor that is not there is zero. None: all are there.
    share : () float or None
        That share, once it is known: see `with_shares`.
    """

    beta: tuple[float, float] | None = (1.0, 1.0)
    density: float | None = None
    presence: tuple[float, float] | None = None
    share: jax.Array | None = None

    @property
    def chance(self) -> jax.Array:
        """The fixed density, () float."""
        return jnp.asarray(0.5 if self.density is None else self.density)


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


def with_shares(density: BooleanDensity, position) -> BooleanDensity:
    """Return the density with the shares of factors that are there, where these are learned."""
    known = {
        site: prior._replace(share=position[f"{site}_presence"])
        for site, prior in (("usage", density.usage), ("basis", density.basis))
        if prior.presence is not None
    }
    return density._replace(**known) if known else density


def log_presence(prior: BitPrior, ones, log_present) -> jax.Array:
    """Return the log probability of factors with so many ones, whether they are there or not.

    `log_present` is that of a factor that is there; without ones it may also not be.
    """
    if prior.presence is None:
        return log_present
    there = jnp.log(prior.share) + log_present
    return jnp.where(ones > 0, there, jnp.logaddexp(there, jnp.log1p(-prior.share)))


def orientations(density, data: PackedData):
    """Yield for each factor matrix its name, the other's, the data's lines and their number."""
    rows, columns = density.shape
    yield "usage", "basis", data.by_row, rows
    yield "basis", "usage", data.by_column, columns


def log_odds(site, density, position, data) -> jax.Array:
    """Return the prior log odds of the bits of a factor matrix: (rank, 1) or (rank, lines)."""
    prior, given = getattr(density, site), getattr(data, f"{site}_log_odds")
    if prior.beta is not None:
        chance = position[f"{site}_density"]
        common = (jnp.log(chance) - jnp.log1p(-chance))[:, None]
    else:
        common = jnp.full((density.rank, 1), jnp.log(prior.chance) - jnp.log1p(-prior.chance))
    return common if given is None else jnp.where(jnp.isnan(given), common, given)


def draw_density(key, site, density, position, data) -> dict:
    """Draw the densities of a factor matrix from their Beta conditionals: part of a position."""
    prior = getattr(density, site)
    if prior.beta is None:
        return {}
    ones, bits = _free_ones(site, density, position, data)
    name = f"{site}_density"
    kind = position[name].dtype
    a, b = prior.beta
    drawn = _inside(draw_beta(key, a + ones.astype(kind), b + jnp.asarray(bits - ones, kind)))
    if prior.presence is None:
        return {name: drawn}
    there, share = _draw_presence(random.fold_in(key, 1), site, prior, position, ones, bits)
    return {name: jnp.where(there, drawn, 0.0), f"{site}_presence": share}


def draw_densities(key, density, position, data) -> dict:
    """Draw the densities of both factor matrices, by one loop where no factor may be absent."""
    sites = ("usage", "basis")
    priors = [getattr(density, site) for site in sites]
    if any(prior.beta is None or prior.presence is not None for prior in priors):
        found = {}
        for site, own in zip(sites, random.split(key), strict=True):
            found |= draw_density(own, site, density, position, data)
        return found
    kind, shapes = position["usage_density"].dtype, []
    for site, prior in zip(sites, priors, strict=True):
        ones, bits = _free_ones(site, density, position, data)
        a, b = prior.beta
        shapes.append((a + ones.astype(kind), b + jnp.asarray(bits - ones, kind)))
    drawn = _inside(draw_beta(key, *map(jnp.stack, zip(*shapes, strict=True))))
    return dict(zip((f"{site}_density" for site in sites), drawn, strict=True))


def draw_unused(key, density, position, data) -> dict:
    """Draw what the likelihood does not know: factors of which a matrix is empty.

    The bits of the other matrix are drawn from the prior, together with their density: one after
    the other they would take thousands of sweeps to get from one density to another, and the joint
    density follows them. Then it may become the other matrix that is empty. Returns the position.
    Factors that are not there stay so.
    """
    key_usage, key_basis, key_turn = random.split(key, 3)
    position = _redraw_unused(key_usage, "usage", "basis", density, position, data)
    position = _redraw_unused(key_basis, "basis", "usage", density, position, data)
    if density.usage.presence is None and density.basis.presence is None:
        position = _turn_unused(key_turn, density, position, data)
    return position


def _redraw_unused(key, site, other, density, position, data) -> dict:
    """Draw the factors of one matrix that the other leaves empty: a Gibbs step."""
    prior = getattr(density, site)
    if prior.beta is None:  # their bits are drawn from the prior in every sweep
        return position
    unused = is_empty(position[other])
    if prior.presence is not None:
        unused &= position[f"{site}_density"] > 0
    return redraw_factors(key, site, unused, density, position, data)


def _turn_unused(key, density, position, data) -> dict:
    r"""Let the other matrix be the one that is empty.

    A usage from the prior and an empty basis are proposed for an empty usage and its basis, with
    densities, and the other way round. All but the probabilities :math:`e` that the prior has no
    ones cancels: the first is accepted with probability :math:`\min\{1, e_v / e_u\}`. A proposal
    without any ones is refused, and both being empty stays.
    """
    usage, basis = is_empty(position["usage"]), is_empty(position["basis"])
    gain = log_empty("basis", density, data) - log_empty("usage", density, data)
    gain = jnp.where(usage, gain, -gain)
    key_accept, *keys = random.split(key, 3)
    turned = (usage ^ basis) & (log_uniform(key_accept, usage.shape, gain.dtype) < gain)

    def turn(position):
        new = position
        for of_site, site, was_empty in zip(keys, ("usage", "basis"), (usage, basis), strict=True):
            key_filled, key_emptied = random.split(of_site)
            new = redraw_factors(key_filled, site, turned & was_empty, density, new, data)
            new = _emptied(key_emptied, site, turned & ~was_empty, density, new, data)
        # Where both matrices of a factor are empty now, what came from the prior had no ones.
        refused = is_empty(new["usage"]) & is_empty(new["basis"]) & turned
        for name in ("usage", "basis", "usage_density", "basis_density"):
            if name in new:
                of_factor = jnp.expand_dims(refused, range(1, new[name].ndim))
                new = new | {name: jnp.where(of_factor, position[name], new[name])}
        return new

    return run_if(jnp.any(turned), turn, position)


def is_empty(words) -> jax.Array:
    """Tell which factors have no ones in a matrix: (rank,) bool."""
    return ~jnp.any(words != 0, axis=-1)


def log_empty(site, density, data) -> jax.Array:
    """Return the log probability, beforehand, of a factor without ones in a matrix: (rank,)."""
    prior, given = getattr(density, site), getattr(data, f"{site}_log_odds")
    kind = jnp.result_type(float)
    free = jnp.full(density.rank, density.shape[0 if site == "usage" else 1], kind)
    known = jnp.zeros(density.rank, kind)
    if given is not None:
        free = jnp.sum(jnp.isnan(given), -1).astype(kind)
        known = jnp.sum(jnp.where(jnp.isnan(given), 0.0, jax.nn.log_sigmoid(-given)), -1)
    if prior.beta is None:
        return free * jnp.log1p(-prior.chance) + known
    a, b = prior.beta
    return betaln(a, b + free) - betaln(a, b) + known


def redraw_factors(key, site, chosen, density, position, data) -> dict:
    """Draw density and bits of the chosen factors (rank,) of a matrix from the prior."""
    prior, name = getattr(density, site), f"{site}_density"
    key_density, key_bits = random.split(key)
    size = density.shape[0 if site == "usage" else 1]

    def redraw(position):
        if prior.beta is not None:
            kind = position[name].dtype
            chance = draw_same_beta(key_density, *prior.beta, chosen.shape, kind)
            position = position | {name: jnp.where(chosen, _inside(chance), position[name])}
        odds = log_odds(site, density, position, data)
        keys = random.split(key_bits, density.rank)

        def factor(k, bits):
            def drawn(bits):
                noise = random.logistic(keys[k], (size,), odds.dtype)
                return bits.at[k].set(pack_last_axis(noise < odds[k]))

            return run_if(chosen[k], drawn, bits)

        return position | {site: lax.fori_loop(0, density.rank, factor, position[site])}

    return run_if(jnp.any(chosen), redraw, position)


def _emptied(key, site, chosen, density, position, data) -> dict:
    """Take the ones of the chosen factors (rank,) of a matrix, and draw their density then."""
    empty = jnp.where(chosen[:, None], 0, position[site]).astype(position[site].dtype)
    position = position | {site: empty}
    drawn = draw_density(key, site, density, position, data)
    return position | {n: jnp.where(chosen, new, position[n]) for n, new in drawn.items()}


def _inside(chance) -> jax.Array:
    """Keep densities off zero and one, the nearest numbers to draws very close to these.

    Log odds are infinite there.
    """
    tiny = jnp.finfo(chance.dtype)
    return jnp.clip(chance, tiny.tiny, 1.0 - tiny.epsneg)


def _draw_presence(key, site, prior, position, ones, bits):
    """Draw which factors are there, given their bits alone, and then the share of those: bool, ().

    One with a one is there; one without may be, and happen to have none.
    """
    key_there, key_share = random.split(key)
    share, (a, b) = position[f"{site}_presence"], prior.beta
    log_empty = betaln(a, b + jnp.asarray(bits, share.dtype)) - betaln(a, b)
    odds = jnp.log(share) - jnp.log1p(-share) + log_empty
    there = (ones > 0) | (random.logistic(key_there, ones.shape, share.dtype) < odds)
    number = jnp.sum(there).astype(share.dtype)
    a, b = prior.presence
    drawn = draw_beta(key_share, a + number[None], b + (len(ones) - number)[None])[0]
    return there, _inside(drawn)


def _free_ones(site, density, position, data):
    """Count the ones and bits of every factor that follow its density: (rank,), (rank,) or ()."""
    size = density.shape[0 if site == "usage" else 1]
    given = getattr(data, f"{site}_log_odds")
    if given is None:
        return count_bits(position[site]), size
    free = jnp.isnan(given)
    ones = jnp.sum(unpack_last_axis(position[site], size) & free, -1, dtype=jnp.int32)
    return ones, jnp.sum(free, -1, dtype=jnp.int32)


def log_prior(density: BooleanDensity, position, data) -> jax.Array:
    """Return the log density of bits, densities and flip rates, without the data."""
    total = flip_rates.log_prior(position["flip_rate"], density.flip_rate)
    return total + sum(log_prior_of(s, density, position, data) for s in ("usage", "basis"))


def log_prior_of(site, density: BooleanDensity, position, data) -> jax.Array:
    """Return the log density of one factor matrix's bits and densities."""
    prior, given = getattr(density, site), getattr(data, f"{site}_log_odds")
    size = density.shape[0 if site == "usage" else 1]
    ones, bits = _free_ones(site, density, position, data)
    total = jnp.zeros((), jnp.result_type(float))
    if prior.presence is not None:
        return _log_prior_with_absent(site, prior, position, ones, bits)
    if prior.beta is not None:
        a, b = prior.beta
        chance = position[f"{site}_density"]
        log_one, log_zero = jnp.log(chance), jnp.log1p(-chance)
        total += jnp.sum((a - 1.0) * log_one + (b - 1.0) * log_zero)
        total -= density.rank * betaln(a, b)
    else:
        log_one, log_zero = jnp.log(prior.chance), jnp.log1p(-prior.chance)
    zeros = jnp.asarray(bits - ones, log_zero.dtype)
    total += jnp.sum(ones.astype(log_one.dtype) * log_one + zeros * log_zero)
    if given is not None:
        # Fixed bits, whose log odds are infinite, are certain.
        own = jnp.where(unpack_last_axis(position[site], size), given, -given)
        total += jnp.sum(jnp.where(jnp.isnan(given), 0.0, jax.nn.log_sigmoid(own)))
    return total


def _log_prior_with_absent(site, prior, position, ones, bits):
    """Return `log_prior_of` where factors may not be there; their density has a mass at zero."""
    chance, share = position[f"{site}_density"], position[f"{site}_presence"]
    there, (a, b), (c, d) = chance > 0, prior.beta, prior.presence
    chance = jnp.where(there, chance, 0.5)
    ones = ones.astype(chance.dtype)
    present = (a - 1.0 + ones) * jnp.log(chance) + (b - 1.0 + bits - ones) * jnp.log1p(-chance)
    present += jnp.log(share) - betaln(a, b)
    absent = jnp.where(ones == 0, jnp.log1p(-share), -jnp.inf)
    total = jnp.sum(jnp.where(there, present, absent))
    return total + (c - 1.0) * jnp.log(share) + (d - 1.0) * jnp.log1p(-share) - betaln(c, d)


def log_prior_of_bits(site, density: BooleanDensity, position, data) -> jax.Array:
    """Return the log probability of one factor matrix's bits, learned densities integrated out."""
    prior, given = getattr(density, site), getattr(data, f"{site}_log_odds")
    if prior.presence is not None:
        raise InputError(_NO_PRESENCE)
    if prior.beta is None:
        return log_prior_of(site, density, position, data)
    a, b = prior.beta
    ones, bits = _free_ones(site, density, position, data)
    zeros = jnp.asarray(bits - ones, jnp.result_type(float))
    total = jnp.sum(betaln(a + ones, b + zeros))
    if given is None:
        return total
    size = density.shape[0 if site == "usage" else 1]
    own = jnp.where(unpack_last_axis(position[site], size), given, -given)
    return total + jnp.sum(jnp.where(jnp.isnan(given), 0.0, jax.nn.log_sigmoid(own)))


def draw_prior(key, density: BooleanDensity, data: PackedData) -> dict:
    """Draw a position from the prior; a learned flip rate starts at 0.2."""
    keys = random.split(key, 4)
    position = draw_prior_of("usage", keys[:2], density, data)
    position |= draw_prior_of("basis", keys[2:], density, data)
    return position | {"flip_rate": flip_rates.start_rate(density.flip_rate)}


def draw_independent(key, density: BooleanDensity, position, data: PackedData) -> dict:
    """Draw everything from the prior, flip rates too, for a likelihood of power zero."""
    keys = random.split(key, 5)
    least = jnp.finfo(jnp.result_type(float))
    bounds = (least.tiny, 1.0 - least.epsneg)
    new = draw_prior_of("usage", keys[:2], density, data, bounds)
    new |= draw_prior_of("basis", keys[2:4], density, data, bounds)
    rate = flip_rates.draw_from_prior(keys[4], position["flip_rate"], density.flip_rate)
    return new | {"flip_rate": rate}


def draw_whole_prior(key, density: BooleanDensity, data: PackedData) -> dict:
    """Draw a position from the prior itself, flip rates included."""
    key_rate, key_rest = random.split(key)
    start = {"flip_rate": flip_rates.prior_rate(key_rate, density.flip_rate)}
    return draw_independent(key_rest, density, start, data)


def draw_prior_of(site, keys, density, data: PackedData, bounds=(0.01, 0.99)) -> dict:
    """Draw the densities and bits of one factor matrix from their prior: part of a position.

    Densities outside of `bounds` are set to these: by default no factor starts empty or full.
    """
    kind, prior, drawn = jnp.result_type(float), getattr(density, site), {}
    if prior.beta is not None:
        chance = jnp.clip(draw_same_beta(keys[0], *prior.beta, (density.rank,), kind), *bounds)
        if prior.presence is not None:
            key_share, key_there = random.split(random.fold_in(keys[0], 1))
            share = draw_same_beta(key_share, *prior.presence, (1,), kind)[0]
            drawn[f"{site}_presence"] = jnp.clip(share, *bounds)
            there = random.bernoulli(key_there, drawn[f"{site}_presence"], chance.shape)
            chance = jnp.where(there, chance, 0.0)
        drawn[f"{site}_density"] = chance
    odds = log_odds(site, density, drawn, data)
    shape = (density.rank, density.shape[0 if site == "usage" else 1])
    drawn[site] = pack_last_axis(random.logistic(keys[1], shape, kind) < odds)
    return drawn
