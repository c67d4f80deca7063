"""The deep OrMachine is exact: enumeration, and the model's own density."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
from jax import lax, random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean.bits import gibbs
from bmfjax.kernels.boolean.density import BitPrior
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.words import pack_last_axis, unpack_last_axis
from bmfjax.kernels.variants.deep import (
    DeepDensity,
    deep_data,
    deep_ormachine,
    fed_forward,
    greedy_start,
    layer_ranks,
    log_joint,
    log_likelihood,
    reconstruction,
)
from bmfjax.models.deep_ormachine import deep_ormachine as deep_model
from tests.kernels.exactness import (
    fast_jit,
    model_log_joint,
    moment_scores,
)


def sizes_of(density):
    """Lines of every factor matrix, by name."""
    below = (density.shape[1], *density.ranks)
    found = {f"basis_{l}": below[l - 1] for l in range(1, len(below))}  # noqa: E741
    return found | {f"usage_{l}": density.shape[0] for l in range(1, len(below))}  # noqa: E741


def as_sites(density, position):
    """The model's sites from a sampler's position."""
    bits = {
        n: unpack_last_axis(position[n], size).T.astype(int)
        for n, size in sizes_of(density).items()
    }
    return dict(position) | bits


def as_position(density, sites):
    """The inverse of `as_sites`."""
    packed = {n: pack_last_axis(sites[n].T.astype(bool)) for n in sizes_of(density)}
    return {n: jnp.asarray(v) for n, v in sites.items()} | packed


# ---- the model's own density -------------------------------------------------------------------

#: More than a word of rows and of factors, and more than a block of rows.
SHAPE = (70, 5)


def prior_of_basis():
    """Probabilities of single bits, some of which fix the bit."""
    p = np.random.default_rng(1).random((34, 3))
    p[0], p[1] = (0.0, 1.0, 0.5), (1.0, 0.0, 0.25)
    return p


@pytest.mark.long
def test_the_log_joint_is_that_of_the_model():
    """Learned, fixed and bitwise priors, each in a layer of its own."""
    model = functools.partial(
        deep_model, ranks=(34, 3, 2), num_rates=2,
        flip_rate={1: dist.Beta(2.0, 5.0), 2: (0.1, 0.3)}, usage=0.3,
        basis={2: prior_of_basis(), 3: dist.Beta(0.5, 2.0)},
    )  # fmt: skip
    density = DeepDensity(
        SHAPE, (34, 3, 2), BitPrior(None, 0.3),
        (BitPrior(), BitPrior(None), BitPrior((0.5, 2.0))),
        (FlipRatePrior(2, 2.0, 5.0), FlipRatePrior(2, value=(0.1, 0.3)), FlipRatePrior(2)),
    )  # fmt: skip
    r = np.random.default_rng(7)
    values = (r.random(SHAPE) < 0.4).astype(float)
    values[r.random(SHAPE) < 0.2] = np.nan
    odds = (None, scipy.special.logit(prior_of_basis()))
    data = deep_data(BinaryMatrix(values), basis_log_odds=odds)
    algorithm = deep_ormachine(density, update=gibbs)

    @fast_jit
    def run(key, data):
        state, info = algorithm.step(key, algorithm.init(key, None, data), data)
        again = log_joint(density, state.position, data)
        sites = as_sites(density, state.position)
        return sites, info, again, log_likelihood(density)(state, data)

    sites, info, again, likelihood = run(random.key(1), data)
    expected = model_log_joint(model, values, sites)
    np.testing.assert_allclose(info.log_joint, expected, rtol=1e-5)
    np.testing.assert_allclose(again, expected, rtol=1e-5)
    np.testing.assert_allclose(likelihood, info.log_likelihood, rtol=1e-5)
    below = values
    for number, errors in enumerate(info.errors, 1):
        usage, basis = np.asarray(sites[f"usage_{number}"]), np.asarray(sites[f"basis_{number}"])
        assert errors == ((usage @ basis.T > 0) != below)[~np.isnan(below)].sum()
        below = usage
    fixed = np.isin(prior_of_basis(), (0.0, 1.0))
    assert (np.asarray(sites["basis_2"])[fixed] == prior_of_basis()[fixed]).all()


# ---- a tiny matrix by enumeration --------------------------------------------------------------

A, B = 1.5, 4.0  # the Beta prior of the flip rates
TINY = np.array([[1.0, 1.0], [0.0, np.nan]])
TINY_RANKS = (2, 1, 1)


def all_bits():
    """Every state: factor matrices by name, (state, lines, rank) each."""
    rows, columns = TINY.shape
    sizes, shapes = (columns, *TINY_RANKS), {}
    for number, rank in enumerate(TINY_RANKS, 1):
        shapes |= {f"usage_{number}": (rows, rank), f"basis_{number}": (sizes[number - 1], rank)}
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])
    bits = np.array(list(itertools.product([0, 1], repeat=ends[-1])), np.int8)
    parts = zip(shapes.items(), np.split(bits, ends[:-1], axis=1), strict=True)
    return {name: part.reshape(-1, *shape) for (name, shape), part in parts}


def statistics(bits, xp=np):
    """Of (state, lines, rank) bits; none depends on which factor is which."""
    product = xp.einsum("sik,sjk->sij", bits["usage_1"], bits["basis_1"]) > 0
    above = xp.einsum("sik,sjk->sij", bits["usage_2"], bits["basis_2"]) > 0
    found = {f"sum of {n}": b.sum((1, 2)) for n, b in bits.items()}
    return found | {
        "entry": product[:, 0, 0],
        "missing entry": product[:, 1, 1],
        "trade": bits["usage_1"][:, 0, 0] ^ bits["usage_1"][:, 0, 1],
        "row": bits["usage_1"][:, 1].sum(1),
        "differences of layers": (bits["usage_1"] != above).sum((1, 2)),
    }


def tiny_moments(power):
    """Moments (2,) of statistics, over all factors; rates and densities are integrated out."""

    def log_mass(a, b):
        return scipy.special.betaln(a, b) + np.log(scipy.special.betainc(a, b, 0.5))

    bits, below, log_p = all_bits(), TINY, 0.0
    for number in range(1, len(TINY_RANKS) + 1):
        usage, basis = bits[f"usage_{number}"], bits[f"basis_{number}"]
        product = np.einsum("sik,sjk->sij", usage, basis) > 0
        seen = ~np.isnan(below)
        wrong = ((product != below) & seen).sum((1, 2))
        right = ((product == below) & seen).sum((1, 2))
        tempered = power if number == 1 else 1.0
        log_p = log_p + log_mass(A + tempered * wrong, B + tempered * right)
        for factor in (basis,) if number < len(TINY_RANKS) else (basis, usage):
            ones = factor.sum(1)
            log_p = log_p + scipy.special.betaln(1 + ones, 1 + factor.shape[1] - ones).sum(1)
        below = usage
    p = scipy.special.softmax(log_p)
    return {n: (p @ x, p @ (x.astype(float) ** 2)) for n, x in statistics(bits).items()}


@pytest.mark.long
def test_the_posterior_of_a_tiny_matrix_is_that_by_enumeration():
    density = DeepDensity(TINY.shape, TINY_RANKS, flip_rate=FlipRatePrior(1, A, B))
    algorithm = deep_ormachine(density)
    data = deep_data(BinaryMatrix(TINY))

    def one(key, power, data):
        def body(state, key):
            state, _ = algorithm.step(key, state, data, power)
            sites = as_sites(density, state.position)
            found = statistics({n: sites[n][None] for n in sizes_of(density)}, jnp)
            return state, {n: v[0].astype(jnp.int32) for n, v in found.items()}

        return lax.scan(body, algorithm.init(key, None, data), random.split(key, 250))[1]

    many = fast_jit(jax.vmap(one, (0, None, None)))
    for power in (1.0, 0.3):
        draws = many(random.split(random.key(3), 40), jnp.float32(power), data)
        for name, expected in tiny_moments(power).items():
            scores, size = moment_scores(draws[name][:, 50:], expected)
            assert size > 1000, name
            # A binary statistic has one moment only; the second, about the mean, repeats it.
            assert np.nanmax(np.abs(scores)) < 4, (name, power)


# ---- starts, pictures, checks ------------------------------------------------------------------


@pytest.mark.long
def test_the_greedy_start_finds_a_hierarchy():
    """Four blocks of columns, of which rows use two or three; the most probable of some starts."""
    parts = np.kron(np.eye(4), np.ones(3))
    groups = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]])
    values = np.repeat(groups, 20, axis=0) @ parts > 0
    density, data = DeepDensity(values.shape, (4, 3)), deep_data(BinaryMatrix(values))
    start = greedy_start(density, 60, num_joining=30, num_starts=16)
    position = fast_jit(start)(random.key(3), data)
    assert (reconstruction(density, position) == values).all()
    used = np.asarray(fed_forward(density, position, 2)).T
    # Layer 2 explains each row by one of its pictures, or by several: no picture goes beyond them.
    assert all(any((p <= v).all() for v in values) for p in used if p.any())


def test_pictures_and_reconstruction_are_boolean_products():
    r, ranks, shape = np.random.default_rng(0), (34, 3, 2), (40, 37)
    sizes = (shape[1], *ranks)
    bases = [r.random((sizes[l], sizes[l + 1])) < 0.2 for l in range(3)]  # noqa: E741
    usage = r.random((shape[0], ranks[0])) < 0.2
    position = {f"basis_{l}": pack_last_axis(jnp.asarray(b.T)) for l, b in enumerate(bases, 1)}  # noqa: E741
    position["usage_1"] = pack_last_axis(jnp.asarray(usage.T))
    density, expected = DeepDensity(shape, ranks), np.eye(shape[1], dtype=int)
    for number, basis in enumerate(bases, 1):
        expected = expected @ basis > 0
        assert (fed_forward(density, position, number) == expected).all()
    assert (reconstruction(density, position) == (usage.astype(int) @ bases[0].T > 0)).all()


@pytest.mark.parametrize("ranks", [(), (3, 0), (-1,), (2.5,), 3])
def test_ranks_that_are_none_are_refused(ranks):
    with pytest.raises(InputError, match=r"rank"):
        deep_ormachine(DeepDensity((4, 3), ranks))


def test_a_layer_that_widens_is_warned_of():
    with pytest.warns(UserWarning, match="layer 2 has 5 factors and the layer below only 3"):
        assert layer_ranks((3, 5, 1)) == (3, 5, 1)
    assert layer_ranks((3, 3, 1)) == (3, 3, 1)


def test_numbers_and_layers_out_of_range_are_refused():
    density = DeepDensity((4, 3), (2, 2))
    with pytest.raises(InputError, match="num_sweeps is 0"):
        greedy_start(density, 0)
    with pytest.raises(InputError, match="layer is 3; give a whole number from 1 to 2"):
        fed_forward(density, {}, 3)
