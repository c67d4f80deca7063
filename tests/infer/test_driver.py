"""The driver: what the draws depend on, what is kept, what is compiled, when it stops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.data import InputError
from bmfjax.infer import ChainRun, histogram, moments
from bmfjax.infer import run as driver
from bmfjax.kernels import Algorithm

PULL = jnp.array([0.5, -0.5])
WARMUP, SAMPLES = 10, 50


def walk(calls=None):
    """An autoregression towards its data; `calls` counts how often Python runs the step."""

    def step(key, state, data, inverse_temperature=1.0):
        if calls is not None:
            calls.append(1)
        x = 0.9 * state + 0.1 * data + random.normal(key, state.shape)
        return x, jnp.sum(x)

    def init(key, position, data):
        return random.normal(key, data.shape) if position is None else position

    return Algorithm(init, step, lambda state, info: {"x": state, "total": info})


def start(chunk_size=512, *, algorithm=None, seed=0, **options):
    settings = {
        "num_chains": 2,
        "num_warmup": WARMUP,
        "num_samples": SAMPLES,
        "draws": {"x": 3},
        "trace": {"x": 1, "total": 7},
        "reducers": {"moments": moments("x", "total"), "counts": histogram("x", low=-3, high=3)},
    }
    return ChainRun(
        algorithm or walk(), random.key(seed), PULL, chunk_size=chunk_size, **(settings | options)
    )


@functools.cache
def finished():
    """One whole run, not to be changed."""
    run = start()
    run.finish()
    return run


def assert_same(a, b):
    """Every bit of draws, traces and reduced summaries."""
    for of in (ChainRun.draws, ChainRun.trace, ChainRun.reduced):
        jax.tree.map(np.testing.assert_array_equal, of(a), of(b))


# ---- what the draws depend on ------------------------------------------------------------------


@pytest.mark.device
@pytest.mark.parametrize("chunk_size", [1, 7, 64])
def test_chunk_size_changes_nothing(chunk_size):
    run = start(chunk_size)
    run.finish()
    assert_same(run, finished())


@pytest.mark.parametrize("chains", [[1], [3, 0], [0, 1, 2, 3]])
def test_chosen_chains_are_those_of_the_whole_run(chains):
    given = {"num_chains": 4, "position": np.arange(8.0).reshape(4, 2)}
    whole, own = start(**given), start(chains=chains, **given)
    for run in (whole, own):
        run.finish()
    assert own.num_chains == len(chains)
    for of in (ChainRun.draws, ChainRun.trace, ChainRun.snapshot):
        jax.tree.map(
            lambda a, b: np.testing.assert_array_equal(a, np.asarray(b)[chains]), of(own), of(whole)
        )
    np.testing.assert_array_equal(own.last_trace("x"), whole.last_trace("x")[chains])


@pytest.mark.parametrize("chains", [[], [0, 0], [2], [-1]])
def test_chosen_chains_that_are_none_are_refused(chains):
    with pytest.raises(InputError, match="from 0 to 1"):
        start(chains=chains)


# ---- what is kept ------------------------------------------------------------------------------


def test_thinned_draws_are_every_third_of_all_after_the_warmup():
    run = finished()
    every = run.trace()["x"]
    assert every.shape == (2, WARMUP + SAMPLES, 2)
    np.testing.assert_array_equal(run.draws()["x"], every[:, WARMUP:][:, 2::3])
    # To the last bit but one: the total is formed once inside the compiled loop.
    np.testing.assert_allclose(run.trace()["total"], every.sum(-1)[:, 6::7], rtol=1e-6, atol=1e-6)


def test_reducers_see_every_draw_after_the_warmup_and_no_other():
    run = finished()
    after = run.trace()["x"][:, WARMUP:].astype(float)
    found = run.reduced()
    np.testing.assert_allclose(found["moments"]["x"]["mean"], after.mean(1), rtol=1e-6)
    np.testing.assert_allclose(found["moments"]["x"]["variance"], after.var(1, ddof=1), rtol=1e-6)
    assert (found["counts"]["x"].sum(-1) == SAMPLES).all()


def test_steps_follow_the_algorithm():
    """The recorded chain is the recursion with the key of each step, from the given start."""
    position = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    run = start(position=position, num_warmup=0, num_samples=3, trace={"x": 1}, draws={})
    assert run.steps_done == 0 and run.num_draws == 0
    np.testing.assert_array_equal(run.state, position)
    run.finish()
    for chain in range(2):
        key = random.split(random.fold_in(random.key(0), chain))[1]
        x = position[chain]
        for t in range(3):
            x = 0.9 * x + 0.1 * PULL + random.normal(random.fold_in(key, t), (2,))
            np.testing.assert_allclose(run.trace()["x"][chain, t], x, rtol=1e-5)
    np.testing.assert_array_equal(run.state, run.trace()["x"][:, -1])


def test_before_the_first_draw_summaries_are_empty():
    run = start(reducers={"moments": moments("x"), "counts": histogram("x")})
    run.advance(3)
    found = run.reduced()
    assert run.draws()["x"].shape == (2, 0, 2)
    assert np.isnan(found["moments"]["x"]["mean"]).all() and not found["counts"]["x"].any()


# ---- draws of runs that are stopped early -------------------------------------------------------

#: Kept by a complete run every 12 draws; until then at most six, 1, 3 and 6 draws apart.
STOPPED = {"draws": {"x": 12}, "most_kept": 6, "trace": {"x": 1}}


@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_draws_are_kept_close_until_they_are_many(chunk_size):
    run = start(chunk_size, **STOPPED)
    every = run.trace  # of all steps
    for drawn, apart in ((1, 1), (6, 1), (7, 3), (20, 3), (21, 6), (42, 12), (49, 12)):
        while run.num_draws < drawn:
            run.advance(WARMUP + drawn - run.steps_done)
        assert run.thinning("x") == apart
        expected = every()["x"][:, WARMUP:][:, apart - 1 :: apart]
        assert min(drawn, 2) <= expected.shape[1] <= 6
        np.testing.assert_array_equal(run.draws()["x"], expected)
    run.finish()
    # The planned draws, whatever was kept on the way.
    assert run.thinning("x") == 12
    np.testing.assert_array_equal(run.draws()["x"], every()["x"][:, WARMUP + 11 :: 12])
    np.testing.assert_array_equal(run.draws()["x"], finished().draws()["x"][:, 3::4])


def test_the_last_step_gives_up_what_only_an_earlier_stop_would_keep():
    run = start(draws={"x": 2}, most_kept=100)
    run.advance(WARMUP + SAMPLES - 1)
    assert (run.thinning("x"), run.draws()["x"].shape[1]) == (1, SAMPLES - 1)
    run.finish()
    assert (run.thinning("x"), run.draws()["x"].shape[1]) == (2, SAMPLES // 2)


def test_what_was_handed_out_does_not_change_later():
    """The state's buffers are given away from chunk to chunk, and draws given up."""
    run = start(**STOPPED)
    run.advance(WARMUP + 6)
    out = (run.snapshot(), run.reduced(), run.draws(), run.trace())
    kept = jax.tree.map(np.copy, out)
    run.finish()
    jax.tree.map(np.testing.assert_array_equal, out, kept)


def test_other_intervals_are_not_compiled_again(compilations):
    run = start(chunk_size=8, **STOPPED)
    run.advance(1)
    compilations()
    run.finish()
    assert run.thinning("x") == 12 and compilations() == 0


def test_draws_on_the_device_are_bounded(monkeypatch):
    """Two chains of two floats: four draws are 64 bytes, and the chunk is cut."""
    monkeypatch.setattr(driver, "DEVICE_BYTES", 4 * 16)
    run = start(chunk_size=32, **STOPPED)
    assert run._carries[0].draws["x"].shape[0] == 4 + 1
    # Warm-up and four draws; four; then at three draws apart twelve.
    assert [run.advance(), run.advance(), run.advance()] == [WARMUP + 4, 4, 12]
    run.finish()
    np.testing.assert_array_equal(run.draws()["x"], finished().draws()["x"][:, 3::4])


def test_what_stands_is_compiled_beforehand_where_it_is_kept(monkeypatch):
    """On a mesh nothing is, and it would be compiled twice."""
    made = []
    monkeypatch.setattr(ChainRun, "_standing", lambda run: made.append(run))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("chains",))
    start(mesh=mesh).prepare_to_stand()
    assert not made
    start().prepare_to_stand()
    assert len(made) == 1


def test_chains_that_stand_repeat_what_was_traced_last(compilations):
    run = start(trace={"total": 1})
    run.advance(5)
    compilations()
    run.stand(lambda run: run.steps_done == 5)
    assert (compilations(), run.stood) == (0, 0)
    run.stand(lambda run: run.steps_done == 8)
    total = run.trace()["total"]
    assert run.stood == 3 and total[:, 4].all()
    np.testing.assert_array_equal(total[:, 5:], np.repeat(total[:, 4:5], 3, 1))


def test_a_snapshot_shares_no_memory_with_the_run():
    """Not even where JAX could use it as it is."""
    memory = np.zeros(64 + 64, np.uint8)
    first = -memory.ctypes.data % 64
    own = memory[first : first + 64].view(np.float32)
    assert not np.shares_memory(np.asarray(start()._copied(own)), own)


# ---- groups of chains, each in a thread ---------------------------------------------------------


def test_groups_in_threads_are_one_run(monkeypatch):
    """Two groups of two chains: what one group of four draws, in the same order."""

    def four(groups):
        monkeypatch.setattr(driver, "_groups", lambda num_chains, side: groups)
        return start(num_chains=4)

    whole, split = four([slice(0, 4)]), four([slice(0, 2), slice(2, 4)])
    whole.finish()
    split.advance(5)
    resumed = four([slice(0, 2), slice(2, 4)])
    resumed.restore(split.snapshot(), split.steps_done, split.recorded_between(0, 5))
    for run in (split, resumed):
        run.finish()
        for found, expected in (
            (run.draws(), whole.draws()),
            (run.trace(), whole.trace()),
            (run.reduced(), whole.reduced()),
            (run.snapshot(), whole.snapshot()),
        ):
            jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_chains_run_in_pairs_whatever_the_cores():
    sizes = {n: [s.stop - s.start for s in driver._groups(n, 2)] for n in (1, 2, 4, 40)}
    assert sizes == {1: [1], 2: [2], 4: [2, 2], 40: [2] * 20}


def test_a_chain_without_a_partner_runs_in_a_pair_too():
    three, four = start(num_chains=3), start(num_chains=4)
    for run in (three, four):
        run.finish()
    for of in (ChainRun.draws, ChainRun.trace, ChainRun.reduced, ChainRun.snapshot):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:3]), of(three), of(four))


def test_chains_of_a_serial_algorithm_are_programs_of_one_chain(compilations):
    alone, given = walk()._replace(serial=True), {"num_chains": 3}
    run, beside = start(algorithm=alone, **given), start(**given)
    assert [group.stop - group.start for group in run._groups] == [1, 1, 1]
    assert len(run._carries[0].state) == 1 and not run._padded
    compilations()
    run.finish()
    assert compilations() == 1
    beside.finish()
    for name, found in run.draws().items():
        np.testing.assert_allclose(found, beside.draws()[name], rtol=1e-5, atol=1e-5)


def test_an_interrupt_leaves_a_run_that_goes_on(monkeypatch):
    """It comes while the host waits for the device, after the old state was given away."""
    run, wait = start(num_chains=2), jax.block_until_ready

    def interrupted(value):
        monkeypatch.setattr(jax, "block_until_ready", wait)
        raise KeyboardInterrupt

    run.advance(1)
    monkeypatch.setattr(jax, "block_until_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.advance(1)
    assert np.isfinite(jax.tree.leaves(run.snapshot())[0]).all()
    run.finish()
    assert run.draws()["x"].shape == finished().draws()["x"].shape


# ---- what is compiled --------------------------------------------------------------------------


def test_python_runs_the_step_once(compilations):
    calls = []
    run = start(algorithm=walk(calls))
    run.advance(5)
    compilations()
    for taken in (5, 7, 7, 20, 3):
        run.advance(taken)
    assert compilations() == 0
    run.finish()
    assert compilations() == 0
    assert len(calls) == 1


def test_a_run_is_two_programs(compilations):
    """The start of all chains, and the loop; what is small and runs eagerly is a program too."""
    random.key(0)
    compilations()
    run = start(num_chains=4)
    run.finish()
    assert run.snapshot() and run.draws()["x"].shape[0] == 4
    assert compilations() == 2


# ---- when it stops -----------------------------------------------------------------------------


def test_it_stops_when_it_is_told_to_and_goes_on_when_asked_again():
    asked = []

    def enough(run):
        asked.append(run.steps_done)
        return len(asked) == 3

    run = start()
    run.finish(max_time=0.0)
    assert 0 < run.steps_done < run.num_steps, "one chunk at least"
    run.finish(on_chunk=enough)
    assert len(asked) == 3 and run.steps_done == asked[-1] < run.num_steps
    run.finish()
    assert_same(run, finished())


def test_the_caller_may_take_any_number_of_steps_and_look_in_between():
    run = start(chunk_size=32)
    assert [run.advance(n) for n in (0, 1, 16)] == [0, 1, 16]
    assert (run.steps_done, run.num_draws) == (WARMUP + 7, 7)
    assert run.draws()["x"].shape == (2, 2, 2) and run.trace()["x"].shape == (2, WARMUP + 7, 2)
    np.testing.assert_array_equal(run.draws()["x"], finished().draws()["x"][:, :2])
    # At most a chunk, and no more than there are.
    assert [run.advance(100), run.advance(), run.advance()] == [32, 11, 0]
    assert run.steps_done == run.num_steps == WARMUP + SAMPLES
    assert_same(run, finished())


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_chains": 0}, r"num_chains is 0; give a whole number of at least 1"),
        ({"num_warmup": -1}, r"num_warmup is -1; give a whole number of at least 0"),
        ({"num_samples": 0}, r"num_samples is 0; give a whole number of at least 1"),
        ({"chunk_size": 0}, r"chunk_size is 0; give a whole number of at least 1"),
        ({"most_kept": 0}, r"most_kept is 0; give a whole number of at least 1"),
        ({"draws": {"y": 1}}, r"draws asks for 'y'.*choose from total, x"),
        ({"trace": {"z": 1}}, r"trace asks for 'z'.*choose from total, x"),
        ({"draws": {"x": 0}}, r"the interval of draws 'x' is 0; give a whole number of at least 1"),
    ],
)
def test_bad_numbers_and_names_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        start(**options)
