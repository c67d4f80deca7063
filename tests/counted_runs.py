"""Runs that take no time, and a fit to be stored: for tests of what is kept on disk."""

import types

import numpy as np
import xarray

from bmfjax import store
from bmfjax.data import BinaryMatrix
from bmfjax.families.base import Chains

DATA = BinaryMatrix(np.eye(4)[:, :3])
CHUNKS, STEPS = 4, 10


class Counted:
    """A run of two chains that takes no time: its draws are the numbers of its steps."""

    num_chains, num_warmup, num_samples, num_steps = 2, 0, CHUNKS * STEPS, CHUNKS * STEPS
    earlier_steps, writes, timed_out, cramped, is_enough = 0, True, False, False, False
    stood = is_kept = False
    compile_seconds, num_starts, search_ends = 0.0, 0, None

    def __init__(self, between=lambda run: None):
        self.steps_done, self.seconds, self.between = 0, 0.0, between
        self.stored_bytes = 16, 16

    @property
    def num_draws(self):
        return self.steps_done

    def is_ready(self, left=None, meanwhile=None):
        return True

    def finish(self, on_chunk, ends):
        while self.steps_done < self.num_steps:
            self.steps_done += STEPS
            self.between(self)
            if on_chunk(self):
                return

    def together(self, *values):
        return list(values)

    def thinning(self, name):
        return 1

    def intervals(self, steps_done=None):
        return {"x": 1}

    def recorded_between(self, first, last):
        draws = np.tile(np.arange(float(first), last), (2, 1))
        return {"draws": {"x": draws}, "trace": {"log_joint": -draws}}

    def last_trace(self, name):
        return -np.full(2, float(self.steps_done))

    def snapshot(self):
        return {"state": np.full(2, self.steps_done)}

    def restore(self, snapshot, steps_done, recorded):
        assert (snapshot["state"] == steps_done).all()
        np.testing.assert_array_equal(recorded["draws"]["x"][0], np.arange(steps_done))
        self.steps_done = steps_done


class CountedChains(Chains):
    between = staticmethod(lambda run: None)

    def run(self, request, resume=False, is_ready=None):
        return Counted(self.between)


def asked(seed, between=None):
    kind = types.SimpleNamespace(name="counted")
    request = types.SimpleNamespace(
        mesh=None, is_auto=False, grows=False, data=DATA, check=None, chain_numbers=None,
        model=kind, sampler=kind,
    )  # fmt: skip
    chains = CountedChains(None, None, {"seed": seed})
    if between is not None:
        chains.between = between
    return request, chains


def record(mark, draws):
    drawn = {"usage": np.zeros((2, draws, 4, 1)), "basis": np.zeros((2, draws, 3, 1))}
    posterior = xarray.Dataset(
        {n: (("chain", "draw", f"{n}_row", "factor"), a) for n, a in drawn.items()},
        attrs={"verdict": "", "model": "", "sampler": ""},
    )
    summary = dict.fromkeys(store.SUMMARY_KEYS, "") | {"scalars": {"mark": mark, "draws": draws}}
    return store.Record(DATA, summary, {"agreement": np.zeros((2, 1))}, {"posterior": posterior})
