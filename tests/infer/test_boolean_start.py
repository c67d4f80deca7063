"""Starts of Boolean chains: they find the truth where it can be seen, and prune what is idle."""

import functools
import itertools

import numpy as np
import pytest
from jax import random

import bmfjax
from bmfjax.clock import OutOfTimeError, clock_running
from bmfjax.data import BinaryMatrix
from bmfjax.infer import OrMachineGibbs, boolean_start, boolean_starts, relaxed_start
from bmfjax.infer import run as run_module
from bmfjax.infer.boolean_start import prune
from bmfjax.infer.relaxed_start import annealed_means
from bmfjax.models import ormachine

# Six factors on 44 rows and columns, two chains, as in the doctest: all run the same programs.


def test_starts_are_the_truth_but_for_noise():
    made = bmfjax.generate_product(44, 44, 4, density=0.3, flip=0.02, seed=1)
    for start in boolean_starts(random.key(0), made.data, 4, 2, num_anneal=300):
        wrong = ((start["usage"] @ start["basis"].T) != made.clean).mean()
        assert wrong < 0.02  # closer to the truth than the data are


def test_pruning_keeps_the_most_likely_of_all_subsets_where_factors_do_not_overlap():
    rng = np.random.default_rng(0)
    usage, basis = np.zeros((30, 5), bool), np.zeros((20, 5), bool)
    for k in range(5):
        usage[6 * k : 6 * k + 6, k] = basis[4 * k : 4 * k + 4, k] = True
    share = np.repeat([0.95, 0.9, 0.55, 0.8, 0.6], 6)[:, None]  # of ones in each tile
    values = (rng.random((30, 20)) < np.where(usage @ basis.T, share, 0.05)).astype(float)
    kept = prune(usage, basis, values, 3)
    ones = {k: values[np.ix_(usage[:, k], basis[:, k])].sum() for k in range(5)}
    best = max(itertools.combinations(range(5), 3), key=lambda s: sum(ones[k] for k in s))
    np.testing.assert_array_equal(kept[0], usage[:, list(best)])
    np.testing.assert_array_equal(kept[1], basis[:, list(best)])


def test_pruning_drops_what_costs_least_where_factors_overlap():
    rng = np.random.default_rng(1)
    usage, basis = rng.random((40, 9)) < 0.4, rng.random((30, 9)) < 0.4
    usage[:, 8], basis[:, 8] = usage[:, 2], basis[:, 2]
    chance = np.where(usage[:, :6] @ basis[:, :6].T, 0.9, 0.2)
    values = (rng.random(chance.shape) < chance).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    gain = boolean_start._gain(values, usage @ basis.T)

    def height(factors):
        return gain[usage[:, factors] @ basis[:, factors].T].sum(dtype=float)

    kept = list(range(9))
    while len(kept) > 4:
        less = [[k for k in kept if k != dropped] for dropped in kept[1:]]  # the first is held
        kept = max(less, key=height)
        found = prune(usage, basis, values, len(kept), held=1)
        np.testing.assert_array_equal(found[0], usage[:, kept])
        np.testing.assert_array_equal(found[1], basis[:, kept])


def test_a_large_matrix_is_represented_by_a_part(monkeypatch):
    monkeypatch.setattr(boolean_start, "MAX_ENTRIES", 44 * 44)
    monkeypatch.setattr(boolean_start, "LEAST_SIDE", 20)
    made = bmfjax.generate_product(400, 50, 2, density=0.4, flip=0.01, seed=3)
    for start in boolean_starts(random.key(0), made.data, 2, 2, num_anneal=300, extra=4):
        rows = start["usage"].any(1)
        assert 10 <= rows.sum() <= 50  # of 400: the chain's first sweep finds the others
        product = start["usage"][rows] @ start["basis"].T
        assert (product != made.clean[rows]).mean() < 0.12  # half of it are ones
        # Of all rows, most of which no factor covers yet, it would be 0.36.
        assert start["flip_rate"] < 0.13


@pytest.mark.parametrize("known", [None, 0.2])
def test_chains_start_at_the_flip_rate_of_the_part(known):
    data = BinaryMatrix(np.random.default_rng(0).random((40, 30)) < 0.5)
    model = functools.partial(
        ormachine, rank=1, num_rates=1, **({} if known is None else {"flip_rate": known})
    )
    bound, _ = OrMachineGibbs(model).bind_packed(data)
    start = {"usage": np.zeros((40, 1), bool), "basis": np.zeros((30, 1), bool)}
    position = bound.unconstrain(start | {"flip_rate": 0.03})
    assert position["flip_rate"] == pytest.approx(0.03 if known is None else known)


@pytest.mark.long
def test_a_chain_takes_over_a_factor_of_another():
    truth = np.kron(np.eye(3, dtype=bool), np.ones((12, 8), bool))
    usage, basis = np.repeat(np.eye(3, dtype=bool), 12, 0), np.repeat(np.eye(3, dtype=bool), 8, 0)
    lacking = [f * np.array([True, True, False]) for f in (usage, basis)]
    known = {"usage": np.stack([usage] * 2), "basis": np.stack([basis] * 2)}
    chains = [np.stack(f) for f in zip((usage, basis), lacking, strict=True)]
    found = boolean_start._exchanged(random.key(0), BinaryMatrix(truth), *chains, known, 10)
    for used, items in zip(*found, strict=True):
        np.testing.assert_array_equal(used @ items.T, truth)


@pytest.mark.parametrize("shape", [(3000, 2000), (10, 10**6), (5, 5)])
def test_representatives_are_few_and_distinct(shape):
    class Sized:
        pass

    Sized.shape, (Sized.num_rows, Sized.num_columns) = shape, shape
    rows, columns = boolean_start.representatives(Sized)
    assert len(rows) * len(columns) <= max(boolean_start.MAX_ENTRIES, 256 * 256)
    assert len(np.unique(rows)) == len(rows) and len(np.unique(columns)) == len(columns)


def test_a_part_of_which_nothing_is_observed_is_not_refused():
    values = np.full((6, 6), np.nan)
    values[5, 5] = 1
    part = boolean_start.part_of(BinaryMatrix(values), np.arange(3), np.arange(3))
    assert part.shape == (3, 3)


def test_the_likelihood_is_that_of_the_entries():
    rng = np.random.default_rng(0)
    usage, basis = rng.random((9, 3)) < 0.4, rng.random((7, 3)) < 0.4
    values = (rng.random((9, 7)) < 0.5).astype(float)
    values[rng.random((9, 7)) < 0.2] = np.nan
    product = (usage.astype(int) @ basis.T.astype(int)) > 0
    total = 0.0
    for covered in (False, True):
        entries = values[(product == covered) & ~np.isnan(values)]
        wrong = (entries != covered).sum()
        rate = min((wrong + 1) / (len(entries) + 2), 0.5)
        total += wrong * np.log(rate) + (len(entries) - wrong) * np.log1p(-rate)
    assert boolean_start._log_likelihood(usage, basis, values) == pytest.approx(total, rel=1e-5)


def test_a_chain_far_below_the_best_starts_from_there():
    truth = np.kron(np.eye(2, dtype=bool), np.ones((20, 15), bool))
    used, items = (np.kron(np.eye(2, dtype=bool), np.ones((n, 1), bool)) for n in (20, 15))
    values = truth.astype(float)
    poor = np.zeros_like(used), np.zeros_like(items)
    near = used.copy(), items.copy()
    near[0][0, 1] = True  # fifteen wrong entries of 1,200 are more than 20 nats
    usage, basis = (np.stack(side) for side in zip(poor, (used, items), near, strict=True))
    found = boolean_start._without_low(usage, basis, poor, values)
    for chain in range(3):
        assert (found[0][chain] @ found[1][chain].T == truth).all()
    # And the best may be what was made of all.
    found = boolean_start._without_low(usage[:1], basis[:1], (used, items), values)
    assert (found[0][0] @ found[1][0].T == truth).all()


@pytest.mark.long
def test_a_few_missing_entries_do_not_keep_the_starts_from_the_truth():
    truth = np.kron(np.eye(4, dtype=bool), np.ones((11, 11), bool))
    hidden = np.random.default_rng(0).random(truth.shape) < 0.15
    data = BinaryMatrix(np.where(hidden, np.nan, truth))
    for start in boolean_starts(random.key(0), data, 4, 2, num_anneal=300):
        assert (start["usage"] @ start["basis"].T == truth).all()


def test_starts_end_with_the_time():
    with clock_running() as clock:
        clock.limit = 1e-9
        with pytest.raises(OutOfTimeError):
            boolean_starts(random.key(0), BinaryMatrix(np.eye(6)), 2, 1, num_anneal=30)


def test_chains_are_not_begun_that_would_not_be_compiled_in_time(monkeypatch):
    """On a machine with other work, where to compile takes several times as long."""
    monkeypatch.setattr(relaxed_start, "ChainRun", None)  # which nobody asks for
    with clock_running() as clock:
        monkeypatch.setattr(type(clock), "slowness", 3.0)
        clock.limit = 3.0 * relaxed_start.COMPILING - 1.0
        with pytest.raises(OutOfTimeError):
            annealed_means(random.key(0), BinaryMatrix(np.eye(6)), 2, 1, num_anneal=30)
        clock.limit += 2.0
        with pytest.raises(TypeError):  # there would have been time
            annealed_means(random.key(0), BinaryMatrix(np.eye(6)), 2, 1, num_anneal=30)
        clock.limit, clock.binds = 1.0, False
        assert clock.has(relaxed_start.COMPILING)


@pytest.mark.long
def test_where_a_device_runs_the_chains_what_follows_is_compiled_meanwhile(monkeypatch):
    """Once: what was prepared with nothing in it are the programs that run."""
    monkeypatch.setattr(boolean_start, "_has_cores_to_spare", lambda: True)
    begun = []

    class Counted(run_module.Compilation):
        def __init__(self, *given):
            begun.append(given)
            super().__init__(*given)

    monkeypatch.setattr(run_module, "Compilation", Counted)
    truth = np.kron(np.eye(4, dtype=bool), np.ones((11, 13), bool))  # no other test has this shape
    starts = boolean_starts(
        random.key(0), BinaryMatrix(truth), 4, 2, num_anneal=300, num_exchange=5
    )
    assert all(((s["usage"] @ s["basis"].T) == truth).all() for s in starts)
    assert len(begun) == 3
