"""Blocks at once: how many, and that draws do not depend on it."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.infer import ascent_start
from bmfjax.infer.run import ChainRun
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.boolean import ascent
from bmfjax.kernels.boolean import words as packed_lines
from bmfjax.kernels.boolean.bits import joint, metropolis
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.gibbs import ormachine
from bmfjax.kernels.boolean.words import packed_data
from bmfjax.kernels.logistic.density import LogisticDensity
from bmfjax.kernels.logistic.gibbs import logistic_gibbs
from bmfjax.kernels.logistic.signs import bytes_of_block
from bmfjax.kernels.numerics import budget as budgets
from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget, device_budget, divided
from bmfjax.kernels.ratings import entries, vectors
from bmfjax.kernels.ratings.density import PMFDensity
from bmfjax.kernels.ratings.entries import entry_blocks
from bmfjax.kernels.ratings.gibbs import pmf_gibbs
from bmfjax.kernels.tempering import parallel_tempering
from bmfjax.kernels.variants.deep import usage_as_data
from bmfjax.kernels.variants.one_hot import OneHotDensity, one_hot_data, one_hot_machine
from bmfjax.variational import rounds, sign_blocks
from tests.kernels.exactness import fast_jit

SHAPE, RANK = (45, 70), 3
#: One block after the other, and some at once; each makes a program of its own.
SIZES = (0, 2000)

ALGORITHMS = {
    "metropolis": (packed_data, lambda: ormachine(BooleanDensity(SHAPE, RANK), update=metropolis)),
    "joint": (packed_data, lambda: ormachine(BooleanDensity(SHAPE, RANK), update=joint(2))),
    "one-hot": (one_hot_data, lambda: one_hot_machine(OneHotDensity(SHAPE, RANK, (1.0,) * RANK))),
}


def with_budget(data, size):
    is_budget = lambda leaf: isinstance(leaf, Budget)  # noqa: E731
    return jax.tree.map(lambda x: Budget(size) if is_budget(x) else x, data, is_leaf=is_budget)


def test_as_many_blocks_as_fit_are_taken_in_rounds_of_one_length():
    found = [Budget(size).number(10, 100) for size in (0, 99, 250, 400, 700, 10**6)]
    assert found == [1, 1, 2, 4, 5, 10]


@pytest.mark.device
def test_sums_are_of_all_blocks_however_many_are_taken_at_once():
    blocks = jnp.arange(14.0).reshape(7, 2)
    for number in (1, 3, 7):  # of three there is one left
        sums, each = Budget(number).total(lambda b: (b, b[0] - b[1]), blocks[0], blocks, 1)
        np.testing.assert_array_equal(sums, blocks.sum(0))
        np.testing.assert_array_equal(each, np.full(7, -1.0))
        mapped = Budget(number).map(lambda b: b[0] * b[1], blocks, 1)
        np.testing.assert_array_equal(mapped, blocks[:, 0] * blocks[:, 1])


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.long] * (k != "one-hot")) for k in ALGORITHMS]
)
@pytest.mark.device
def test_draws_do_not_depend_on_how_many_blocks_are_taken_at_once(monkeypatch, kind):
    monkeypatch.setattr(packed_lines, "BLOCK_WORDS", 12)
    r = np.random.default_rng(0)
    values = (r.random(SHAPE) < 0.4).astype(float)
    values[r.random(SHAPE) < 0.1] = np.nan
    pack, make = ALGORITHMS[kind]
    data, algorithm = pack(BinaryMatrix(values)), make()
    state = fast_jit(algorithm.init)(random.key(0), None, data)
    step = fast_jit(algorithm.step)
    one, other = (step(random.key(1), state, with_budget(data, size)) for size in SIZES)
    assert step._cache_size() == 2

    def same(one, other):
        # Bits and counts are the same; on some devices rates and densities differ by rounding.
        tolerance = 1e-5 * jnp.issubdtype(one.dtype, jnp.floating)
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=0)

    jax.tree.map(same, one, other)


@pytest.mark.long
@pytest.mark.device
def test_logistic_draws_depend_on_it_by_rounding_alone(monkeypatch):
    monkeypatch.setattr(rounds, "BLOCK", 100)
    values = np.random.default_rng(0).random((50, 6)) < 0.4
    data = sign_blocks(BinaryMatrix(values))
    assert data.shape[0] == 4
    algorithm = logistic_gibbs(LogisticDensity(rank=2), values.shape)
    state = fast_jit(algorithm.init)(random.key(0), None, data)
    step = fast_jit(algorithm.step)
    sizes = (0, 3 * bytes_of_block(data, 3))
    one, other = (step(random.key(1), state, with_budget(data, size)) for size in sizes)
    assert step._cache_size() == 2
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), one, other)


@pytest.mark.long
@pytest.mark.device
def test_vectors_of_ratings_depend_on_it_by_rounding_alone(monkeypatch):
    monkeypatch.setattr(entries, "FEW", (0, 0))  # tables of several widths
    r = np.random.default_rng(0)
    rows, columns = np.nonzero(r.random((20, 400)) < np.linspace(0.05, 0.95, 20)[:, None])
    data = entry_blocks(rows, columns, r.normal(size=len(rows)), (20, 400), block_size=4)
    widths = [table.shape[-1] for table in data.by_row.other]
    assert len(widths) > 1 and data.by_row.number.max() > 1  # blocks of one and of several tables
    algorithm = pmf_gibbs(PMFDensity(rank=2))
    state = fast_jit(algorithm.init)(random.key(0), None, data)
    step = fast_jit(algorithm.step)
    # Of the first and the second all systems do not fit: of columns, there are more of them.
    needed = [vectors._bytes_of_systems(side, PMFDensity(rank=2)) for side in data[:2]]
    sizes = (0, 4000, 20_000)
    assert [sum(n <= vectors.SYSTEMS * size for n in needed) for size in sizes] == [0, 1, 2]
    one, *others = (step(random.key(1), state, with_budget(data, size)) for size in sizes)
    assert step._cache_size() == 3
    close = functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-3)
    for other in others:
        jax.tree.map(close, one, other)


def test_members_climb_in_groups_that_fit():
    lines = ascent.distinct_lines(np.eye(4))
    assert lines.members_at_once(12, 3) == ascent.BLOCK
    assert lines._replace(budget=Budget(2**30)).members_at_once(12, 3) == 12


def test_chains_of_one_program_find_what_chains_on_threads_find():
    f = lambda one, shift: {"x": one["x"] * 2.0 + shift}  # noqa: E731
    each, shift = {"x": jnp.arange(3.0)}, jnp.float32(1.0)
    of_threads = ascent_start._side_by_side(f, each, shift)(each, shift)
    found = ascent_start._in_one_program(f)(each, shift)
    np.testing.assert_array_equal(found["x"], of_threads["x"])


def test_the_layers_above_take_the_budget_of_the_data():
    words = jnp.ones((RANK, 2), jnp.uint32)
    lines = usage_as_data(words, 40, Budget(7))
    assert lines.by_row.budget == lines.by_column.budget == Budget(7)


def test_a_device_gives_a_share_of_its_memory(monkeypatch):
    assert device_budget() == ONE_BY_ONE or jax.default_backend() != "cpu"
    values = BinaryMatrix(np.eye(3))

    class Device:
        platform, memory_stats = "gpu", staticmethod(lambda: {"bytes_limit": 5000})
        client = types.SimpleNamespace(platform_version="rocm 60300")

    monkeypatch.setattr(budgets.jax, "local_devices", lambda: [Device])
    assert device_budget() == Budget(500)
    assert {packed_data(values).by_row.budget, packed_data(values).by_column.budget} == {
        Budget(500)
    }
    Device.client.platform_version = "PJRT C API\ncuda 13000"
    Device.compute_capability = "7.5"
    assert device_budget() == Budget(500)
    Device.compute_capability = "9.0"
    assert device_budget() == Budget(500, fused=True)
    assert divided(device_budget(), 2) == Budget(250, fused=True)
    Device.client.platform_version = ""
    Device.memory_stats = staticmethod(lambda: None)
    assert device_budget() == Budget(budgets.UNKNOWN // budgets.SHARE)


def test_chains_and_replicas_that_run_side_by_side_share_the_budget():
    def step(key, state, data, inverse_temperature=1.0):
        return state, jnp.int32(data["budget"].bytes)

    algorithm = Algorithm(
        lambda key, position, data: jnp.zeros(()),
        step,
        lambda state, info: {"bytes": info},
    )
    data = {"budget": Budget(240)}
    run = ChainRun(algorithm, random.key(0), data, num_chains=2, num_samples=1, trace={"bytes": 1})
    run.finish()
    assert run.trace()["bytes"].ravel().tolist() == [120, 120]
    tempered = parallel_tempering(algorithm, lambda state, data: 0.0 * state, (1.0, 0.5, 0.2))
    _, info = tempered.step(random.key(0), tempered.init(random.key(0), None, data), data)
    assert info.inner == 80
    assert divided({"budget": Budget(9), "other": 3}, 2) == {"budget": Budget(4), "other": 3}
