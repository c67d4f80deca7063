"""Cut points and scale of an ordered probit: derivatives, exactness, digits."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random
from scipy.special import ndtr

from bmfjax.kernels.numerics.normal_wishart import NormalWishart
from bmfjax.kernels.ratings.cutpoints import (
    draw_cuts_and_scale,
    log_prior_gain,
    scaled_position,
    slopes,
)
from bmfjax.kernels.ratings.density import PMFDensity, are_distinct, level_of, log_prior
from tests.kernels.exactness import fast_jit, moment_scores

DENSITY = PMFDensity(
    2, "ordered", categories=3, effect_gamma=(3.0, 2.0), factors=NormalWishart(2.0, 5.0, 0.4),
    level=(0.3, 1.5),
)  # fmt: skip
CUTS = np.array([-0.6, 0.4])
RNG = np.random.default_rng(0)
FIT = RNG.normal(size=14) * 1.2
VALUE = (FIT[:, None] + RNG.normal(size=(14, 1)) > CUTS).sum(1).astype(float)
SEEN = np.arange(14) != 5


def the_position():
    sizes = {"usage": (4, 2), "basis": (3, 2), "row_effect": (4,), "column_effect": (3,)}
    position = {n: jnp.asarray(RNG.normal(size=s), jnp.float32) for n, s in sizes.items()}
    for name in ("usage", "basis"):
        position |= {f"{name}_mean": jnp.array([0.3, -0.2]), f"{name}_precision": jnp.diag(
            jnp.array([1.5, 3.0]))}  # fmt: skip
    precisions = {"row_precision": jnp.float32(1.4), "column_precision": jnp.float32(0.6)}
    return position | precisions | {"cutpoints": jnp.asarray(CUTS, jnp.float32)}


def log_likelihood(cuts, fit, value, seen):
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    which = value.astype(int)
    terms = np.log(ndtr(ends[which + 1] - fit) - ndtr(ends[which] - fit))
    return terms[seen].sum()


def dimension(position):
    """Of what is scaled, and how the volume changes: the power of the scale."""
    (n, k), m = position["usage"].shape, position["basis"].shape[0]
    return n * k + k - k * (k + 1) + n + m - 2 * 2


def test_the_density_changes_by_what_the_move_says():
    position = the_position()
    density = fast_jit(log_prior, static_argnums=0)
    before = density(DENSITY, position)
    for t in (-0.7, 0.2, 0.9):
        after = density(DENSITY, scaled_position(position, jnp.exp(t)))
        gain = float(log_prior_gain(position, jnp.float32(t), DENSITY))
        assert gain == pytest.approx(float(after - before) + dimension(position) * t, abs=1e-4)


def test_derivatives_are_those_of_the_likelihood():
    value = np.where(np.arange(14) == 3, 2.0, VALUE)
    given = *(jnp.asarray(a) for a in (CUTS, FIT, value, SEEN)), jnp.zeros(14)
    found, in_chunks = slopes(*given), slopes(*given, chunk=4)  # the last has two entries
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), in_chunks, found)
    x, step = np.append(CUTS, 0.0), 1e-3

    def at(x):
        return log_likelihood(x[:-1], np.exp(x[-1]) * FIT, value, SEEN)

    def linear(x):  # in the scale itself
        return log_likelihood(x[:-1], (1 + x[-1]) * FIT, value, SEEN)

    each = step * np.eye(3)
    gradient = [(at(x + e) - at(x - e)) / (2 * step) for e in each]
    corners = list(itertools.product((1, -1), (1, -1)))
    second = [
        [sum(s * r * linear(x + s * a + r * b) for s, r in corners) / (4 * step**2) for a in each]
        for b in each
    ]
    assert float(found.gain) == pytest.approx(at(x), rel=1e-5)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-4)
    np.testing.assert_allclose(found.information, -np.array(second), atol=1e-3)


def exact_moments(position):
    """Means of cut points and log scale, and of their squares, by quadrature."""
    c, t = np.linspace(-4.5, 4.5, 91), np.linspace(-4.0, 2.5, 66)
    gain = np.array([float(log_prior_gain(position, jnp.float32(s), DENSITY)) for s in t])
    ends = ndtr(c[:, None, None] - np.exp(t)[None, :, None] * FIT)  # (cut, scale, entry)
    seen = [SEEN & (k == VALUE) for k in range(3)]
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.log(ends[..., seen[0]]).sum(-1) - 0.5 * ((c[:, None] - 0.3) / 1.5) ** 2
        high = np.log1p(-ends[..., seen[2]]).sum(-1) - 0.5 * ((c[:, None] - 0.3) / 1.5) ** 2
        between = np.log(ends[None, ..., seen[1]] - ends[:, None][..., seen[1]]).sum(-1)
    logs = np.where(c[:, None] < c, 0.0, -np.inf)[..., None] + low[:, None] + high[None]
    logs = logs + np.nan_to_num(between, nan=-np.inf) + gain
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    grids = np.meshgrid(c, c, t, indexing="ij")
    return np.array([[(mass * g**p).sum() for g in grids] for p in (1, 2)])


def test_draws_are_those_of_the_conditional():
    """Of cut points and scale given the shape of the fits, whose posterior is three-dimensional."""
    position, chains, draws = the_position(), 40, 1_000
    fit, value = jnp.asarray(FIT, jnp.float32), jnp.asarray(VALUE, jnp.float32)
    start = np.log(float(position["row_effect"][0]) ** 2) / 2

    @fast_jit
    def many(keys):
        def step(carry, key):
            position, fit, accepted, told = draw_cuts_and_scale(key, *carry, value, SEEN, DENSITY)
            scale = jnp.log(jnp.abs(position["row_effect"][0])) - start
            found = jnp.append(position["cutpoints"], scale)
            return (position, fit), (found, accepted, jnp.append(fit, told))

        def chain(key):
            return lax.scan(step, (position, fit), random.split(key, draws + 30))[1]

        return jax.vmap(chain)(keys)

    found, accepted, told = many(random.split(random.key(0), chains))
    for was in (0.0, 1.0):  # the log likelihood is that of where the chain is then
        for k in np.flatnonzero(np.asarray(accepted) == was)[:20]:
            *there, claimed = np.float64(told.reshape(-1, told.shape[-1])[k])
            cuts = np.float64(found.reshape(-1, 3)[k, :2])
            assert log_likelihood(cuts, np.array(there), VALUE, SEEN) == pytest.approx(claimed)
    scores, size = moment_scores(np.asarray(found)[:, 30:], exact_moments(position))
    assert np.abs(scores).max() < 4.2  # of six
    assert accepted.mean() > 0.5 and size.min() > 0.15 * chains * draws


@pytest.mark.parametrize("off", [0.03, 0.3, 3.0])
@pytest.mark.parametrize("cuts_too", [True, False])
def test_a_start_far_away_is_left_at_once(off, cuts_too):
    """Scale, and cut points or not, many standard deviations off, as while chains warm up."""
    rng = np.random.default_rng(1)
    fit = rng.normal(size=20_000)
    cuts = np.array([-1.0, -0.5, 0.8])
    value = (fit[:, None] + rng.normal(size=(fit.size, 1)) > cuts).sum(1)
    density = DENSITY._replace(categories=4)
    start = jnp.asarray(off * cuts if cuts_too else cuts, jnp.float32)
    fit, value = jnp.asarray(off * fit, jnp.float32), jnp.asarray(value, jnp.float32)
    position, fit = far_steps(the_position() | {"cutpoints": start}, fit, value, density)
    np.testing.assert_allclose(position["cutpoints"], cuts, atol=0.1)
    assert float(jnp.std(fit)) == pytest.approx(1.0, abs=0.06)


@functools.partial(fast_jit, static_argnums=3)
def far_steps(position, fit, value, density):
    def step(carry, key):
        return draw_cuts_and_scale(key, *carry, value, seen, density)[:2], None

    seen = jnp.ones(value.shape, bool)
    return lax.scan(step, (position, fit), random.split(random.key(0), 25))[0]


def test_cut_points_never_meet():
    """Of a category that does not occur, so far from zero that its width is a few roundings."""
    rng, far = np.random.default_rng(3), 300.0
    density = DENSITY._replace(level=(far, 1.0))
    fit = jnp.asarray(far + rng.normal(size=2_000), jnp.float32)
    value = jnp.where(fit + jnp.asarray(rng.normal(size=2_000)) > far, 2.0, 0.0)
    cuts = jnp.array([far - 0.01, far + 0.01], jnp.float32)
    seen = jnp.ones(value.size, bool)

    @fast_jit
    def many(position, fit, keys):
        def step(carry, key):
            position, fit, accepted, _ = draw_cuts_and_scale(key, *carry, value, seen, density)
            return (position, fit), (position["cutpoints"], accepted)

        return lax.scan(step, (position, fit), keys)[1]

    keys = random.split(random.key(0), 400)
    found, accepted = many(the_position() | {"cutpoints": cuts}, fit, keys)
    assert bool(jax.vmap(are_distinct)(found).all())
    # Some steps would have gone further.
    assert 0.05 < float(accepted.mean()) < 0.95


@pytest.mark.long
def test_a_sum_over_millions_of_entries_keeps_its_digits():
    rng = np.random.default_rng(2)
    number, cuts = 2_000_000, np.array([-1.5, -0.7, -0.3, 0.4, 1.2])
    fit = np.float32(np.sort(rng.normal(size=number)))  # as columns come, like with like
    value = (fit[:, None] + rng.normal(size=(number, 1)) > cuts).sum(1)
    seen = np.ones(number, bool)
    moved, scale = np.float32(cuts) + np.float32(1e-3), np.float32(1.0007)
    one = np.float32(cuts), jnp.asarray(fit)
    two = moved, scale * jnp.asarray(fit)
    rest = jnp.asarray(value, jnp.float32), seen
    sums = jax.jit(slopes)
    before = sums(*one, *rest, jnp.zeros(number)).terms
    gain = float(sums(*two, *rest, before).gain)
    exact = [log_likelihood(np.float64(c), np.float64(f), value, seen) for c, f in (one, two)]
    assert gain == pytest.approx(exact[1] - exact[0], abs=0.02)


def test_cut_points_start_apart_among_millions():
    counts = jnp.array([4e7, 0.0, 1.0, 4e7, 0.0], jnp.float32)
    assert bool(are_distinct(level_of("ordered", counts)))
