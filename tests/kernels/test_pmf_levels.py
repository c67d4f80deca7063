"""What effects share with the level and with the factors' means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.kernels.numerics.normal_wishart import NormalWishart
from bmfjax.kernels.ratings.attributes import decomposed, num_attributes
from bmfjax.kernels.ratings.cutpoints import _translate, _translate_mean
from bmfjax.kernels.ratings.density import COEFFICIENTS, RIDGES, PMFDensity, are_distinct, log_prior
from bmfjax.kernels.ratings.entries import EntryBlocks
from tests.kernels.exactness import fast_jit

LINKS = ("identity", "probit", "ordered")
#: Entries have no part in these moves; what is known of rows and columns has.
NOTHING_KNOWN = EntryBlocks(None, None)
ATTRIBUTES = NOTHING_KNOWN._replace(
    row_attributes=(decomposed(np.array([[1, 0, 2, 0, 1], [0.5, -1, 0.3, 0, 1]]).T),),
    column_attributes=(decomposed(np.array([[1.0], [-0.5], [0.0], [0.7]])),),
)  # fmt: skip


def density_of(link, data=NOTHING_KNOWN):
    factors = NormalWishart(2.0, 4.0, 0.4)
    sides = tuple(side for side in ("row", "column") if data.attributes(side))
    return PMFDensity(2, link, categories=3, factors=factors, level=(0.3, 1.5), attributes=sides)


def the_position(link, data=NOTHING_KNOWN):
    r = np.random.default_rng(0)
    sizes = {"usage": (5, 2), "basis": (4, 2), "row_effect": (5,), "column_effect": (4,)}
    position = {n: jnp.asarray(r.normal(size=s), jnp.float32) for n, s in sizes.items()}
    position |= {f"{n}_mean": jnp.array([0.3, -0.2]) for n in ("usage", "basis")}
    precision = jnp.array([[1.5, 0.4], [0.4, 3.0]])
    position |= {f"{n}_precision": precision for n in ("usage", "basis")}
    position |= {"row_precision": jnp.float32(1.4), "column_precision": jnp.float32(0.6)}
    for side, factors in (("row", "usage"), ("column", "basis")) if data is ATTRIBUTES else ():
        count = num_attributes(data.attributes(side))
        for name, shape in ((factors, (count, 2)), (f"{side}_effect", (count,))):
            position[COEFFICIENTS[name]] = jnp.asarray(r.normal(size=shape), jnp.float32)
            position[RIDGES[name]] = jnp.ones(1)
    if link == "ordered":
        return position | {"cutpoints": jnp.array([-0.5, 0.4])}
    level = {"intercept": jnp.float32(0.7)}
    return position | level | ({"precision": jnp.float32(1.0)} if link == "identity" else {})


def fits(position):
    plain = position["row_effect"][:, None] + position["column_effect"]
    return position.get("intercept", 0.0) + plain + position["usage"] @ position["basis"].T


def assert_normal_along(move, at_distance, distance, zero, link, data=NOTHING_KNOWN):
    """Draws of a move's distance are those of the normal that the density is along it.

    Return the position, and the one that the first draw moves to.
    """
    position = the_position(link, data)

    def log_density(d):
        return log_prior(density_of(link, data), at_distance(position, d), data)

    gradient, hessian = fast_jit(lambda d: (jax.grad(log_density)(d), jax.hessian(log_density)(d)))(
        zero
    )
    precision = -np.asarray(hessian).reshape(zero.size, zero.size)
    mean = np.linalg.solve(precision, np.ravel(gradient))
    draws = fast_jit(jax.vmap(lambda key: move(key, position)))
    moved = jax.tree.map(np.asarray, draws(random.split(random.key(0), 20_000)))
    found = np.asarray(distance(moved, position), float).reshape(20_000, zero.size)
    covariance = np.linalg.inv(precision)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs(found.mean(0) - mean).max() < 4.5 * sd.max() / 20_000**0.5
    scale = np.outer(sd, sd)
    np.testing.assert_allclose(np.cov(found.T).reshape(precision.shape) / scale,
                               covariance / scale, atol=4.5 * (2 / 20_000) ** 0.5)  # fmt: skip
    return jax.tree.map(np.asarray, position), {n: v[0] for n, v in moved.items()}


@pytest.mark.parametrize("data", [NOTHING_KNOWN, ATTRIBUTES], ids=["plain", "attributes"])
@pytest.mark.parametrize("side", ["row", "column"])
def test_a_mean_moves_against_effects_by_its_conditional(side, data):
    mine, theirs = ("usage", "basis") if side == "row" else ("basis", "usage")
    other = "column" if side == "row" else "row"

    def at_distance(position, d):
        return position | {
            mine: position[mine] + d,
            f"{mine}_mean": position[f"{mine}_mean"] + d,
            f"{other}_effect": position[f"{other}_effect"] - position[theirs] @ d,
        }

    def move(key, position):
        return _translate_mean(key, side, position, density_of("identity", data), data)

    def distance(moved, position):
        return moved[f"{mine}_mean"] - position[f"{mine}_mean"]

    position, moved = assert_normal_along(
        move, at_distance, distance, np.zeros(2, np.float32), "identity", data
    )
    np.testing.assert_allclose(fits(moved), fits(position), atol=1e-5)
    assert np.abs(moved[mine] - position[mine]).min() > 1e-3


def test_a_mean_moves_where_its_factors_are_learned():
    """The first coordinate of the columns' factors is known, or both are."""
    density = density_of("identity")
    one, both = (NOTHING_KNOWN._replace(known=jnp.zeros((4, number))) for number in (1, 2))

    def at_distance(position, d):
        d = jnp.concatenate([jnp.zeros(1), d])
        return position | {
            "basis": position["basis"] + d,
            "basis_mean": position["basis_mean"] + d,
            "row_effect": position["row_effect"] - position["usage"] @ d,
        }

    def move(key, position):
        return _translate_mean(key, "column", position, density, one)

    def distance(moved, position):
        return moved["basis_mean"][:, 1:] - position["basis_mean"][1:]

    position, moved = assert_normal_along(
        move, at_distance, distance, np.zeros(1, np.float32), "identity"
    )
    np.testing.assert_allclose(fits(moved), fits(position), atol=1e-5)
    for name in ("basis", "basis_mean"):
        np.testing.assert_array_equal(moved[name][..., 0], position[name][..., 0])
    assert _translate_mean(random.key(1), "column", position, density, both) is position


@pytest.mark.parametrize("data", [NOTHING_KNOWN, ATTRIBUTES], ids=["plain", "attributes"])
@pytest.mark.parametrize("side", ["row", "column"])
@pytest.mark.parametrize("link", LINKS)
def test_a_level_moves_against_effects_by_its_conditional(link, side, data):
    site, sign = ("cutpoints", 1.0) if link == "ordered" else ("intercept", -1.0)

    def at_distance(position, d):
        effect = position[f"{side}_effect"] + sign * d
        return position | {site: position[site] + d, f"{side}_effect": effect}

    def move(key, position):
        return _translate(key, side, position, density_of(link, data), data)[0]

    def distance(moved, position):
        return (moved[site] - position[site]).reshape(len(moved[site]), -1)[:, 0]

    assert_normal_along(move, at_distance, distance, np.zeros((), np.float32), link, data)


def test_cut_points_that_would_meet_stay():
    position = the_position("ordered")
    position |= {"cutpoints": jnp.array([0.93, 0.93 + 1.5e-5], jnp.float32)}
    density = density_of("ordered")._replace(level=(0.0, 100.0))
    position |= {"row_precision": jnp.float32(1e-3)}  # long steps

    @fast_jit
    @jax.vmap
    def move(key):
        moved, by = _translate(key, "row", position, density, NOTHING_KNOWN)
        return are_distinct(position["cutpoints"]) & are_distinct(moved["cutpoints"]), by

    apart, by = move(random.split(random.key(0), 200))
    assert bool(apart.all())
    assert 0 < int((by == 0).sum()) < 200
