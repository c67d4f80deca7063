"""Which factors of a draw are used, against singular values and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.kernels import used_factors as kernel
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.used_factors import counting, edge_in_noise
from tests.kernels.exactness import fast_jit

used_factors = fast_jit(kernel.used_factors)


def factors(seed, rows=40, columns=25, rank=4, sizes=(8.0, 4.0, 2.0, 1.0)):
    """Return factors of these sizes, with orthonormal directions."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n, rank)))[0] for n in (rows, columns))
    return left * np.array(sizes), right


@pytest.mark.parametrize("edge", [0.5, 1.5, 3.0, 6.0, 9.0])
def test_orthogonal_factors_are_counted_by_their_singular_values(edge):
    usage, basis = factors(0)
    order = np.random.default_rng(1).permutation(4)
    used = used_factors(jnp.asarray(usage[:, order]), jnp.asarray(basis[:, order]), edge)
    np.testing.assert_array_equal(used, np.array([8.0, 4.0, 2.0, 1.0])[order] > edge)


@pytest.mark.parametrize("side", [0, 1])
def test_halves_that_share_a_direction_count_once_and_push_out_no_third(side):
    """The two largest factors are halves of one; the third and the fourth are others."""
    pair = factors(2, sizes=(10.0, 9.0, 4.0, 3.0))
    length = np.linalg.norm(pair[side], axis=0)
    pair[side][:, 1] = pair[side][:, 0] * length[1] / length[0]
    used = np.asarray(used_factors(*map(jnp.asarray, pair), 2.0))
    assert int(used[:2].sum()) == 1 and used[2:].all()


def test_halves_below_the_edge_count_once_where_their_sum_is_above():
    usage, basis = factors(3, sizes=(0.8, 0.0, 0.0, 0.0))
    usage[:, 1], basis[:, 1] = usage[:, 0], basis[:, 0]
    assert np.sum(used_factors(jnp.asarray(usage), jnp.asarray(basis), 1.0)) == 1
    usage[:, 1] *= -1.0  # they cancel
    assert np.sum(used_factors(jnp.asarray(usage), jnp.asarray(basis), 1.0)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_number_lies_where_singular_values_leave_no_doubt(seed):
    """Correlated factors: singular values far above the edge count, those far below do not."""
    rng = np.random.default_rng(seed)
    mix = np.eye(6) + 0.3 * rng.normal(size=(6, 6))
    usage, basis = factors(seed, rank=6, sizes=(90.0, 60.0, 40.0, 0.2, 0.1, 0.05))
    usage, basis = usage @ mix, basis @ np.linalg.inv(mix).T
    used = used_factors(*(jnp.asarray(x, jnp.float32) for x in (usage, basis)), 3.0)
    assert np.sum(used) == 3


def test_a_small_factor_is_told_beside_one_a_hundred_thousand_times_as_large():
    usage, basis = factors(4, sizes=(1e5, 1e2, 1.0, 1e-3))
    usage, basis = (f / np.linalg.norm(f, axis=0) for f in (usage, basis))
    lean = np.eye(4) + np.triu(np.full((4, 4), 0.5), 1)  # each on those before it
    sizes = np.array([1e5, 1e2, 1.0, 1e-3])
    x = [jnp.asarray(f, jnp.float32) for f in (usage @ lean * sizes, basis @ lean)]
    product = np.asarray(x[0], float) @ np.asarray(x[1], float).T
    above = (np.linalg.svd(product, compute_uv=False) > 10.0).sum()
    assert np.sum(used_factors(*x, 10.0)) == above == 2


def own_edge(rows, columns, observed):
    """The noise edge without the scatter of a draw."""
    whole = edge_in_noise(rows, columns, observed)
    return (whole**2 - (rows + columns) * rows * columns / observed) ** 0.5


def test_noise_has_no_singular_value_much_above_the_edge():
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(200, 60))
    seen = rng.random(noise.shape) < 0.3
    edge = own_edge(*noise.shape, noise.size)
    assert 0.9 * edge < np.linalg.norm(noise, 2) < 1.05 * edge
    # Filled with zeros, and put on the scale of the whole matrix.
    filled = np.linalg.norm(noise * seen, 2) / seen.mean()
    edge = own_edge(*noise.shape, seen.sum())
    assert 0.9 * edge < filled < 1.05 * edge


def test_an_edge_holds_a_factor_that_fits_noise_and_scatters():
    """Draws of a factor of which nothing is known beforehand, started at its best fit to noise."""
    rng, above = np.random.default_rng(7), []
    for _ in range(20):
        noise = rng.normal(size=(60, 40))
        left, size, right = np.linalg.svd(noise)
        y, x = left[:, 0] * size[0] ** 0.5, right[0] * size[0] ** 0.5
        for _ in range(3):
            y = noise @ x / (x @ x) + rng.normal(size=60) / np.linalg.norm(x)
            x = noise.T @ y / (y @ y) + rng.normal(size=40) / np.linalg.norm(y)
        above.append(np.linalg.norm(y) * np.linalg.norm(x) > edge_in_noise(60, 40, noise.size))
    assert np.mean(above) <= 0.5


def test_nothing_is_used_of_nothing():
    zeros = np.zeros((5, 3), np.float32), np.zeros((4, 3), np.float32)
    assert not np.any([used_factors(*zeros, edge) for edge in (0.0, 1.0)])


def test_an_algorithm_counts_lines_that_are_looked_at_in_units_of_its_noise():
    usage, basis = (jnp.asarray(x) for x in factors(6))
    still = Algorithm(
        init=lambda key, position, data: position,
        step=lambda key, state, data, inverse_temperature=1.0: (state, None),
        observe=lambda state, info: dict(state),
    )
    state = {"usage": usage, "basis": basis, "precision": jnp.asarray(0.25)}
    algorithm = counting(still, 1.5, lambda found: found["precision"] ** -0.5)
    state = algorithm.init(random.key(0), state, None)
    assert int(jax.jit(algorithm.observe)(state, None)["rank"]) == 2  # above 3
    none = counting(still, 1.5, lambda found: 2.0, (np.zeros(0, int), None))
    assert int(none.observe(state, None)["rank"]) == 0
