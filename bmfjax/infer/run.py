"""Run chains of any algorithm in constant memory: one compiled loop, fed in chunks.

Chains run side by side by ``vmap``: on a CPU in pairs, as many at a time as there are cores, in
threads of their own, since XLA runs small programs on one core; elsewhere all at once. On a CPU the
chains of some algorithms run one by one in such threads (`Algorithm.serial`). The state is donated
from chunk to chunk. Summaries are reduced inside the loop; only thinned draws and traces leave the
device. The number of steps of a chunk is an argument of the compiled loop, so that one compilation
serves all chunks. Every random number depends on the seed, the chain and the step alone, and on a
CPU every pair runs the same program: the draws do not depend on the chunk size, on other chains, on
the number of cores, or on a resume. (XLA may sum in another order for another number of chains side
by side; a run of a single chain is compiled for one.)

On a mesh (:mod:`bmfjax.kernels.numerics.mesh`) all chains are one program. A device runs its own
chains one after the other, each compiled for one, and shares them with the devices along the rows.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bmfjax.clock import OutOfTimeError, running_clock
from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.infer.interrupt import is_interrupted
from bmfjax.infer.intervals import interval_after
from bmfjax.infer.reducers import Reducer
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.budget import divided
from bmfjax.kernels.numerics.compiling import (
    Compilation,
    chain_options,
    once_options,
    quick_random,
)
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.kept_programs import (
    compiled_and_kept,
    file_of,
    read_program,
    write_program,
)
from bmfjax.kernels.numerics.mesh import (
    CHAINS,
    chains_of_device,
    is_first,
    num_cores,
    over_mesh,
    place_whole,
    several_processes,
    specs_of,
)
from bmfjax.kernels.numerics.programs import form_of, is_made, made_once, value_of
from bmfjax.kernels.tempering import past_annealing

#: Most bytes of draws on the device between two returns to the host; one draw always fits.
DEVICE_BYTES = 64 * 2**20
#: Steps for which there is room in a trace at first.
TRACE_STEPS = 4096
#: Seconds of a chunk, after which whoever runs it is asked.
CHUNK_SECONDS = 0.5


class _Carry(NamedTuple):
    state: Any
    reducers: dict
    draws: dict
    trace: dict


class ChainRun:
    """Chains in progress: advance them, look at them, store them, resume them.

    Parameters
    ----------
    algorithm : Algorithm
    key : jax.Array
        A typed key (``jax.random.key``).
    data : pytree of arrays
        Handed to the algorithm; lives on the device once.
    num_chains, num_warmup, num_samples : int
        Draws of the warm-up are not recorded as draws and enter no reducer.
    draws : mapping, optional
        ``{name: every}``: of that observed array, record one in `every` draws.
    most_kept : int, optional
        Until the run is complete, keep draws at the smallest interval at which they are at most
        this many, or as many as a complete run keeps; see `bmfjax.infer.intervals`. Default: one in
        `every` draws from the start.
    trace : mapping, optional
        The same for scalars, warm-up included.
    reducers : mapping, optional
        ``{name: Reducer}``, updated with every draw after the warm-up.
    position : pytree, optional
        Start of each chain, with a leading axis of length `num_chains`.
    chains : sequence of int, optional
        Run only these of the chains, by their numbers from 0 to `num_chains` - 1: their draws are
        those which they have beside all others. `num_chains` of the run is then their number.
    mesh : jax.sharding.Mesh, optional
        Devices that run the chains together, with the axes "chains", whose length divides the
        number of chains, and "rows", along which `data` may lie. Its devices may belong to several
        processes, which all make this run and call its methods in the same order.
    chunk_size : int
        Most steps between two returns to the host. Changes no result.
    is_short : bool
        Whether compiling takes longer than running, so that it is to be quick.

    Raises
    ------
    InputError
        For numbers out of range.

    Examples
    --------
    >>> walk = Algorithm(
    ...     init=lambda key, position, data: jnp.zeros(()),
    ...     step=lambda key, x, data, inverse_temperature=1.0: (0.5 * x + random.normal(key), None),
    ...     observe=lambda state, info: {"x": state},
    ... )
    >>> run = ChainRun(
    ...     walk, random.key(0), None, num_chains=2, num_warmup=10, num_samples=100, draws={"x": 10}
    ... )
    >>> run.finish()
    >>> run.draws()["x"].shape
    (2, 10)
    """

    def __init__(
        self,
        algorithm: Algorithm,
        key: jax.Array,
        data: Any,
        *,
        num_chains: int = 1,
        num_warmup: int = 0,
        num_samples: int,
        draws: Mapping[str, int] | None = None,
        most_kept: int | None = None,
        trace: Mapping[str, int] | None = None,
        reducers: Mapping[str, Reducer] | None = None,
        position: Any = None,
        chains: Sequence[int] | None = None,
        mesh: Mesh | None = None,
        chunk_size: int = 512,
        is_short: bool = False,
    ):
        check_fork()
        for name, value, least in (
            ("num_chains", num_chains, 1),
            ("num_warmup", num_warmup, 0),
            ("num_samples", num_samples, 1),
            ("chunk_size", chunk_size, 1),
            ("most_kept", 1 if most_kept is None else most_kept, 1),
        ):
            whole(name, value, least)
        numbers = _chosen(chains, num_chains)
        self._numbers = numbers
        self.num_chains, self.num_warmup, self.num_samples = len(numbers), num_warmup, num_samples
        self._mesh = mesh
        # The last chain runs twice where it has no partner.
        side = 1 if num_chains == 1 or _are_serial(algorithm) else 2
        pairs = mesh is None and side == 2 and jax.default_backend() == "cpu"
        self._padded = pairs and len(numbers) % 2 == 1
        numbers = np.append(numbers, numbers[-1:]) if self._padded else numbers
        self.num_steps = num_warmup + num_samples
        #: Steps of warm-up that were planned; `num_warmup` are fewer after `end_warmup`.
        self.planned_warmup = num_warmup
        self.steps_done = 0
        self.timed_out = False
        #: Draws that repeat where the chains were, since there was no time for steps.
        self.stood = 0
        #: Whether whoever runs it has found that it needs no more steps.
        self.is_enough = False
        self._discarded = 0
        #: Seconds of the run, as far as whoever ran it measured them; and steps of runs before it.
        self.seconds, self.earlier_steps = 0.0, 0
        #: What it took to trace and compile the loop.
        self.compile_seconds = 0.0
        self.cramped = False  # no time was left for more factors
        self.num_starts = 0  # at which the chains began, all chains together; 0: not searched
        self.search_ends: SearchEnds | None = None  # own ends of the searches, of all chains
        data = data if mesh is None else place_whole(data, mesh)
        if position is not None and several_processes(mesh):
            # Other kinds of processors may have found others.
            position = multihost_utils.broadcast_one_to_all(position)
        self._chunk, self._most_kept = chunk_size, most_kept
        self._reducers = dict(reducers or {})
        self._every = {"draws": dict(draws or {}), "trace": dict(trace or {})}
        self._groups = groups = [slice(0, len(numbers))] if mesh else _groups(len(numbers), side)
        #: Chains that a device runs in one program.
        self._side = chains_of_device(len(numbers[groups[0]]), mesh)
        # On a mesh they take turns.
        self._data = data if mesh is not None else divided(data, self._side)
        words, kind = np.asarray(random.key_data(key)), random.key_impl(key)
        self._is_short = is_short
        own = value_of((algorithm, self._reducers, is_short)) if mesh is None else object()
        self._whose = own, str(kind), mesh is None, position is None
        self._loop = self._made("loop", (), lambda: _Loop(algorithm, self._reducers, kind, mesh))

        def of_group(group):
            own = numbers[group]
            is_all = position is None or np.array_equal(own, np.arange(num_chains))
            # To take some of a leaf is a program of its own, for each form of a leaf.
            there = position if is_all else jax.tree.map(lambda leaf: leaf[own], position)
            return words, own.astype(np.int32), there, self._data

        given, first = (P(), P(CHAINS), P(CHAINS)), of_group(groups[0])
        seen = self._on_mesh(self._loop.first_observed, given, P(CHAINS))
        with quick_random(is_short):
            of_first = self._made("observed", first, lambda: self._seen(seen, first))
        observed = {
            n: jax.ShapeDtypeStruct((len(numbers), *s.shape[1:]), s.dtype)
            for n, s in of_first.items()
        }
        self._check_names(observed)
        self._host = {
            kind: {n: self._allocate(kind, n, observed[n]) for n in every}
            for kind, every in self._every.items()
        }
        self._lent = False
        self._slots = self._device_slots(observed)
        # One program for all of it: each takes a while to compile, however small. What a program
        # returns can be donated, which leaves that share a buffer cannot.
        start = functools.partial(
            self._loop.started, side=self._side, slots=self._slots, observed=dict(of_first)
        )
        slots = tuple((kind, *sorted(number.items())) for kind, number in self._slots.items())
        start = self._on_mesh(start, given, (_PARTS, P(CHAINS)))
        start = self._made("start", (first, slots), lambda: self._starting(start, first, slots))
        with quick_random(is_short):
            started = [start(*of_group(group)) for group in groups]
        self._carries, self._keys = map(list, zip(*started, strict=True))
        self._advance = None

    def _made(self, name, arguments, make):
        """Return what ``make()`` returned for an equal algorithm, and arguments of this form."""
        if self._mesh is not None:
            return make()
        return made_once((*self._whose, name, form_of(arguments)), make)

    def _file(self, name, arguments):
        """Return where what is made for an equal algorithm is kept for later processes, or None."""
        if self._mesh is not None:
            return None
        return file_of((*self._whose, name, form_of(arguments)))

    def _seen(self, seen, first) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the form of what is observed of a group of chains."""
        file = self._file("observed", first)
        if (kept := read_program(file)) is not None:
            return {n: jax.ShapeDtypeStruct(*form) for n, form in kept[1].items()}
        found = jax.eval_shape(seen, *first)
        write_program(file, None, {n: (s.shape, s.dtype) for n, s in found.items()})
        return found

    def _starting(self, start, first, slots) -> Callable:
        """Return the compiled start of a group of chains."""
        jitted = jax.jit(start, compiler_options=once_options())
        if (file := self._file("start", (first, slots))) is None:
            return jitted
        if (kept := read_program(file)) is not None:
            return kept[0]
        return compiled_and_kept(file, jitted.lower(*first).compile)

    def _is_made(self, name, arguments) -> bool:
        return self._mesh is None and is_made((*self._whose, name, form_of(arguments)))

    # ---- the compiled loop -------------------------------------------------------------

    def _copied(self, array):
        """Return what is stored of a group of chains, on its devices, to be donated."""
        if self._mesh is None:
            return jax.device_put(np.array(array))  # which may use the memory that it is given
        lies = NamedSharding(self._mesh, P(CHAINS))
        return jax.jit(jnp.copy, out_shardings=lies)(np.asarray(array))

    def _on_mesh(self, f, in_specs, out_specs) -> Callable:
        """Let the devices of the mesh run ``f``, whose last argument are the data."""
        if self._mesh is None:
            return f
        return over_mesh(f, self._mesh, (*in_specs, specs_of(self._data)), out_specs)

    def _device_slots(self, observed) -> dict[str, dict[str, int]]:
        """Return how many records of every site the device holds, {kind: {name: number}}."""
        steps = {
            "draws": min(self._chunk, self.num_samples),
            "trace": min(self._chunk, self.num_steps),
        }
        finest = {"draws": self.intervals(0), "trace": self._every["trace"]}
        slots = {
            kind: {n: steps[kind] // every + 1 for n, every in finest[kind].items()}
            for kind in steps
        }
        size = sum(
            math.prod(observed[n].shape) * observed[n].dtype.itemsize for n in finest["draws"]
        )
        most = max(1, DEVICE_BYTES // max(size, 1))
        return slots | {"draws": {n: min(number, most) for n, number in slots["draws"].items()}}

    def _joined(self, take: Callable[[_Carry], Any], axis: int = 0) -> Any:
        """Join a part of the carry on the host; `axis`, that of the chains, becomes the first."""
        parts = [jax.tree.map(_on_host, take(c)) for c in self._carries]

        def join(*leaves):
            return np.moveaxis(np.concatenate(leaves, axis), axis, 0)[: self.num_chains]

        return jax.tree.map(join, *parts)

    def _advance_groups(self, first: int, last: int) -> None:
        steps, keys = self._steps(first, last), self._keys
        self.is_ready()

        def one(group):
            # In place at once: the old arrays are gone, and an interrupt may come while we wait.
            carry = self._advance(self._carries[group], *steps, keys[group], self._data)
            self._carries[group] = carry
            jax.block_until_ready(carry)

        if len(keys) == 1:
            one(0)
        else:
            with ThreadPoolExecutor(min(len(keys), num_cores())) as threads:
                list(threads.map(one, range(len(keys))))

    def _steps(self, first: int, last: int) -> tuple:
        # Arguments too, so that other intervals are not compiled again.
        every_of = {n: np.int32(every) for n, every in self.intervals(first).items()}
        return np.int32(first), np.int32(last), np.int32(self.num_warmup), every_of

    def is_ready(
        self,
        left: Callable[[], float] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> bool:
        """Compile the loop, once for all groups; say whether it is there in time.

        What is late is compiled on, for this run or another of its form.

        Parameters
        ----------
        left : callable, optional
            Returns the seconds for which to wait from now on, and is asked several times a second.
            Ctrl-C ends the wait, too. Default: wait until it is there, as all do on a mesh of
            several processes.
        meanwhile : callable, optional
            Is called once where there is something to wait for.
        """
        if self._advance is not None:
            return True
        if several_processes(self._mesh):
            left = None
        if left is not None and left() <= 0 and not self._is_made(*self._asked()):
            return False  # it takes a while to trace it, too
        began = time.monotonic()
        made = self._compiling()
        if meanwhile is not None and not made.is_over:
            meanwhile()
        try:
            with contextlib.suppress(TimeoutError):
                stops = None if left is None else functools.partial(_stops, left)
                self._advance = made.program(stops=stops)
        finally:
            self.compile_seconds += time.monotonic() - began
        return self._advance is not None

    def begin_compiling(self) -> None:
        """Let the loop be compiled aside, so that there is less to wait for when it is needed."""
        self._compiling()

    def _compiling(self) -> Compilation:
        """Return the compilation of the loop, which begins now where it has not before."""
        given, asked = self._given(), self._asked()
        # Traced here: another thread knows nothing of the settings of this one, such as its
        # precision.
        return self._made(*asked, lambda: self._compilation(given, self._file(*asked)))

    @property
    def is_kept(self) -> bool:
        """Whether the compiled loop is there, here or on disk, and need only be read."""
        if self._advance is not None:
            return True
        asked = self._asked()
        file = self._file(*asked)
        return self._is_made(*asked) or (file is not None and file.exists())

    def _given(self) -> tuple:
        return self._carries[0], *self._steps(0, 0), self._keys[0], self._data

    def _asked(self) -> tuple:
        """Return what the compiled loop is known by."""
        return "advance", (self._given(), tuple(self._every["trace"].items()))

    def _compilation(self, given, file) -> Compilation:
        """Begin to compile the loop for arguments like these, or read it where it is kept."""
        if (kept := read_program(file)) is not None:
            return Compilation.over(kept[0])
        placed = (_PARTS, P(), P(), P(), P(), P(CHAINS))
        chunk = functools.partial(self._loop.chunk, traced=dict(self._every["trace"]))
        run = jax.jit(self._on_mesh(chunk, placed, _PARTS), donate_argnums=(0,))
        with quick_random(self._is_short):
            lowered = run.lower(*given)
        compile = functools.partial(lowered.compile, compiler_options=chain_options(self._is_short))
        return Compilation(lambda: compiled_and_kept(file, compile))

    def _offset(self, kind):
        return self.num_warmup if kind == "draws" else 0

    def _kept(self, kind, every, step):
        """Return how many records the first `step` steps leave."""
        return max(step - self._offset(kind), 0) // every

    def _allocate(self, kind, name, shape):
        every = self._every[kind][name]
        whole(f"the interval of {kind} {name!r}", every)
        count = self._kept(kind, every, self.num_steps)
        if kind == "draws" and self._most_kept is not None:
            count = max(count, min(self._most_kept, self.num_samples))
        if kind == "trace":  # grows with the run, which may end long before its last step
            count = min(count, TRACE_STEPS)
        return np.empty((shape.shape[0], count, *shape.shape[1:]), shape.dtype)

    def _grown(self, kind, name, count):
        """Return the array on the host, with room for so many records."""
        old = self._host[kind][name]
        if count > old.shape[1]:
            new = np.empty((len(old), max(count, 2 * old.shape[1]), *old.shape[2:]), old.dtype)
            new[:, : old.shape[1]] = old
            self._host[kind][name] = old = new
        return old

    def _check_names(self, observed):
        for kind, every in self._every.items():
            for name in every:
                if name not in observed:
                    raise InputError(
                        f"{kind} asks for {name!r}, which the algorithm does not observe; "
                        f"choose from {', '.join(sorted(observed))}"
                    )

    # ---- for the caller ----------------------------------------------------------------

    def advance(self, num_steps: int | None = None) -> int:
        """Take up to `num_steps` steps (at most `chunk_size`); return how many were taken.

        Fewer are taken where the draws of so many would not fit into `DEVICE_BYTES`.
        """
        first = self.steps_done
        most = self._chunk if num_steps is None else min(num_steps, self._chunk)
        room = [self._slots["draws"][n] * every for n, every in self.intervals(first).items()]
        fitting = max(first, self.num_warmup) + min(room, default=self.num_steps)
        last = min(first + most, fitting, self.num_steps)
        if last == first:
            return 0
        self._advance_groups(first, last)
        for name, every in self._every["trace"].items():
            self._fetch("trace", name, every, every, first, last)
        after = self.intervals(last)
        for name, every in self.intervals(first).items():
            if after[name] > every:
                self._thin(name, after[name] // every, self._kept("draws", after[name], first))
            self._fetch("draws", name, every, after[name], first, last)
        self.steps_done = last
        return last - first

    def rehearse(
        self, num_steps: int, number: int, is_late: Callable[[], bool] | None = None
    ) -> dict[str, np.ndarray]:
        """Take steps that do not count, from where the chains are.

        Their random numbers belong to the `number` of this rehearsal alone. Nothing is recorded,
        and reducers there must be none. Returned is the trace, (chain, step), of every step. With
        `is_late`, which is asked now and then, first after one step, they may be fewer.
        """
        counted, other = self._keys, jax.vmap(random.fold_in, (0, None))
        self._keys = [other(keys, 2**32 - 1 - number) for keys in counted]
        parts, most, done, late = [], min(self._chunk, self.num_steps), 0, False
        size = most if is_late is None else 1
        while done < num_steps and not late:
            began, last = time.monotonic(), min(done + size, num_steps)
            self._advance_groups(done, last)
            # The device has room for the steps of a chunk.
            own = self._joined(lambda c: c.trace, axis=1)
            parts.append({name: of[:, : last - done] for name, of in own.items()})
            if is_late is not None:
                wanted = (last - done) * CHUNK_SECONDS / max(time.monotonic() - began, 1e-6)
                size, late = self.together(min(max(wanted, 1), 4 * size, most), is_late())
            done = last
        self._keys = counted
        return {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]}

    def stand(self, is_enough: Callable[[ChainRun], bool]) -> None:
        """Let every chain stay where it is, for as many draws as are enough, without a step.

        Their trace is that of the last step. Before the first one its statistics, such as the log
        joint density, are not known: zero.
        """
        if is_enough(self):
            return
        of = self._standing()
        parts = [
            jax.tree.map(_on_host, of(carry.state, keys, self._data))
            for carry, keys in zip(self._carries, self._keys, strict=True)
        ]
        while not is_enough(self):
            self.stood += 1
            first, self.steps_done = self.steps_done, self.steps_done + 1
            after = {"draws": self.intervals(), "trace": self._every["trace"]}
            for kind, named in after.items():
                for name, every in named.items():
                    count = self._kept(kind, every, self.steps_done)
                    if count > self._kept(kind, every, first):
                        kept = self._grown(kind, name, count)
                        if kind == "trace" and count > 1:
                            kept[:, count - 1] = kept[:, count - 2]
                        else:
                            kept[:, count - 1] = np.concatenate([part[name] for part in parts])

    def prepare_to_stand(self) -> None:
        """Compile what `stand` runs, which would wait for a larger program that XLA works on.

        On a mesh nothing is made once, and it would be compiled again.
        """
        if self._mesh is None:
            self._standing()

    def _standing(self) -> Callable:
        given = self._carries[0].state, self._keys[0], self._data
        placed = (P(CHAINS), P(CHAINS))

        def make():
            of = jax.jit(
                self._on_mesh(self._loop.standing, placed, P(CHAINS)),
                compiler_options=once_options(),
            )
            return of.lower(*given).compile()

        return self._made("standing", given, make)

    def begin_at(self, snapshot: Any) -> None:
        """Let chains begin where those of a snapshot of all chains, by their numbers, were."""
        self.restore(jax.tree.map(lambda leaf: leaf[self._numbers], snapshot), 0, {})

    def end_annealing(self) -> None:
        """Let chains at their start begin as after all annealed steps of their algorithm."""
        state, reducers = self.snapshot()
        self.restore((past_annealing(state), reducers), 0, {})

    def _fetch(self, kind, name, recorded, wanted, first, last):
        """Take records from the device that are `recorded` steps apart there, `wanted` here."""
        low, high = self._kept(kind, wanted, first), self._kept(kind, wanted, last)
        if high == low:
            return
        step, host = wanted // recorded, self._grown(kind, name, high)
        slot = step * (low + 1) - self._kept(kind, recorded, first) - 1
        for group, carry in zip(self._groups, self._carries, strict=True):
            # Cut on the host: on the device every new length would be compiled.
            new = _on_host(getattr(carry, kind)[name])[slot::step][: high - low]
            host[group, low:high] = np.moveaxis(new, 0, 1)

    def _thin(self, name, step, count):
        """Keep every `step`-th of the draws on the host, `count` of them."""
        old = self._host["draws"][name]
        # In place, one by one, since memory may not suffice for both; but not what was handed out.
        new = np.empty_like(old) if self._lent else old
        for i in range(count):
            new[:, i] = old[:, (i + 1) * step - 1]
        self._host["draws"][name] = new

    def finish(
        self,
        *,
        max_time: float | None = None,
        on_chunk: Callable[[ChainRun], bool | None] | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        """Advance to the end, or until `max_time` seconds or `on_chunk` says to stop.

        Chunks are of about `CHUNK_SECONDS`, so that the caller is asked often.

        Parameters
        ----------
        max_time : float, optional
            Seconds, counted after the first step, which holds the compilation.
        on_chunk : callable, optional
            Called after every chunk with this object; True stops the run.
        ends : sequence of int
            Steps, in order, with which a chunk ends, whatever its length.
        """
        start = None
        size = 1
        self.timed_out = False
        while self.steps_done < self.num_steps:
            began = time.monotonic()
            end = next((end for end in ends if end > self.steps_done), self.num_steps)
            taken = self.advance(min(size, end - self.steps_done))
            now = time.monotonic()
            start = now if start is None else start
            # Grow by at most four: the first chunk holds the compilation.
            wanted = taken * CHUNK_SECONDS / max(now - began, 1e-6)
            late = max_time is not None and now - start >= max_time
            size, late = self.together(min(max(wanted, 1), 4 * size, self._chunk), late)
            if on_chunk is not None and on_chunk(self):
                return
            if late:
                self.timed_out = self.steps_done < self.num_steps
                return

    def together(self, *values: float) -> list[int]:
        """Return whole numbers on which all processes of the mesh agree: the largest of each.

        They make the same steps only if they decide alike, and clocks and signals differ.
        """
        if several_processes(self._mesh):
            values = multihost_utils.process_allgather(np.array(values, np.int32)).max(0)
        return [int(v) for v in values]

    @property
    def writes(self) -> bool:
        """Whether it is for this process to write files."""
        return is_first(self._mesh)

    def discard(self, number: int) -> None:
        """Count so many of the first draws that are kept as warm-up.

        They stay in the checkpoint, so that a resumed run may decide otherwise.
        """
        self._discarded = number

    def end_warmup(self) -> None:
        """Count all further steps as draws, whatever the warm-up was to do in them."""
        self.num_warmup = min(self.num_warmup, self.steps_done)

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to do."""
        return self.is_enough or self.steps_done == self.num_steps

    @property
    def warmup_steps(self) -> int:
        """Number of steps before the first draw that counts: `num_warmup`, and those discarded."""
        return self.num_warmup + self._discarded * max(self.intervals().values(), default=1)

    @property
    def num_draws(self) -> int:
        """Number of draws after the warm-up so far, per chain."""
        return max(self.steps_done - self.warmup_steps, 0)

    def thinning(self, name: str) -> int:
        """Return of how many draws of `name` one is recorded now."""
        return self.intervals()[name]

    def intervals(self, steps_done: int | None = None) -> dict[str, int]:
        """Return `thinning` of every site, after so many steps (default: now)."""
        steps = self.steps_done if steps_done is None else steps_done
        if self._most_kept is None or steps >= self.num_steps:
            return dict(self._every["draws"])
        drawn = max(steps - self.num_warmup, 0)
        return {
            n: interval_after(drawn, every, max(self._most_kept, self.num_samples // every))
            for n, every in self._every["draws"].items()
        }

    def last_trace(self, name: str) -> np.ndarray:
        """Return the newest recorded values of a trace, (chain, ...)."""
        return self.trace()[name][:, -1]

    def draws(self) -> dict[str, np.ndarray]:
        """Return the recorded draws so far that count: ``{name: (chain, draw, ...)}``."""
        self._lent = True
        kept = self.recorded_between(0, self.steps_done)["draws"]
        return {name: values[:, self._discarded :] for name, values in kept.items()}

    def trace(self) -> dict[str, np.ndarray]:
        """Return the traces so far, warm-up included: ``{name: (chain, step, ...)}``."""
        return self.recorded_between(0, self.steps_done)["trace"]

    def reduced(self) -> dict[str, dict]:
        """Return the values of the reducers so far, with a leading axis of chains."""
        host = self._joined(lambda c: c.reducers)
        return {n: r.value(host[n]) for n, r in self._reducers.items()}

    @property
    def state(self) -> Any:
        """The algorithm's state after the last step, on the host, a leading axis of chains."""
        return self._joined(lambda c: c.state)

    # ---- what a checkpoint stores ------------------------------------------------------

    @property
    def stored_bytes(self) -> tuple[int, int]:
        """Bytes of a snapshot, and of the draws that a complete run keeps."""
        state = jax.tree.leaves([(c.state, c.reducers) for c in self._carries])
        draws = self._host["draws"].values()
        return sum(leaf.nbytes for leaf in state), sum(kept.nbytes for kept in draws)

    def recorded_between(self, first: int, last: int) -> dict[str, dict[str, np.ndarray]]:
        """Return what steps `first` to `last` recorded: ``{"draws": {name: array}, "trace": ...}``.

        Only draws that are kept now; the arrays are the run's own.
        """
        every_of = {"draws": self.intervals(), "trace": self._every["trace"]}
        return {
            kind: {
                n: self._host[kind][n][
                    : self.num_chains,
                    self._kept(kind, every, first) : self._kept(kind, every, last),
                ]
                for n, every in named.items()
            }
            for kind, named in every_of.items()
        }

    def snapshot(self) -> Any:
        """Return the arrays from which `restore` continues: state and reducers."""
        return self._joined(lambda c: (c.state, c.reducers))

    def restore(self, snapshot: Any, steps_done: int, recorded: Mapping[str, Mapping]) -> None:
        """Continue from a snapshot taken after `steps_done` steps.

        Parameters
        ----------
        snapshot : pytree
            As `snapshot` returned it, from a run with the same settings.
        steps_done : int
        recorded : mapping
            ``{"draws": {name: array}, "trace": ...}``, what was kept then.
        """
        if self._padded:
            snapshot = jax.tree.map(lambda a: np.concatenate([a, a[-1:]]), snapshot)
        for i, group in enumerate(self._groups):
            own = jax.tree.map(lambda a, g=group: self._copied(a[g]), snapshot)
            self._carries[i] = self._carries[i]._replace(state=own[0], reducers=own[1])
        self.steps_done = steps_done
        for kind, arrays in recorded.items():
            for name, values in arrays.items():
                kept = self._grown(kind, name, values.shape[1])
                kept[: self.num_chains, : values.shape[1]] = values


def _stops(left: Callable[[], float]) -> bool:
    """Tell whether nobody waits for what takes longer than is left."""
    return is_interrupted() or left() <= 0


def finish_in_time(run: ChainRun) -> None:
    """Advance to the end, or raise OutOfTimeError where the clock that runs leaves no time."""
    clock = running_clock()
    # Where there is no time for starts, there is none for draws.
    left = functools.partial(clock.left, drawn=False)
    if run.is_ready(left if clock.binds else None):
        run.finish(on_chunk=lambda run: clock.binds and left() <= 0.0)
    if not run.is_complete:
        clock.note_end(drawn=False)
        raise OutOfTimeError


class _Loop:
    """What is compiled of a run: it knows the algorithm and the reducers, and no data."""

    def __init__(self, algorithm: Algorithm, reducers: Mapping[str, Reducer], kind, mesh):
        # What is jitted is traced once and its trace reused: of a step that of a whole group,
        # whose loops take long to batch.
        self._each = _in_turn if mesh is not None or _are_serial(algorithm) else jax.vmap
        self._begin, self._kind = jax.jit(algorithm.init), kind
        self._step = jax.jit(self._each(algorithm.step, in_axes=(0, 0, None)))
        self._observe = jax.vmap(algorithm.observe)
        self._reducers = reducers

    def _first(self, words, numbers, position, data):
        key = random.wrap_key_data(words, impl=self._kind)
        chain_keys = jax.vmap(lambda c: random.fold_in(key, c))(numbers)
        start_keys, keys = jax.vmap(lambda k: tuple(random.split(k)))(chain_keys)
        axes = (0, None if position is None else 0, None)
        return self._each(self._begin, in_axes=axes)(start_keys, position, data), keys

    def first_observed(self, *given):
        """Return what is observed of the first step of a group of chains."""
        state, keys = self._first(*given)
        return self._observe(*self._step(keys, state, given[-1]))

    def standing(self, state, keys, data):
        """Return what is observed of a group of chains that took no step."""
        _, info = jax.eval_shape(self._step, keys, state, data)
        return self._observe(state, jax.tree.map(lambda of: jnp.zeros(of.shape, of.dtype), info))

    def started(self, *given, side, slots, observed):
        """Return what a group of chains carries at its start, and the keys of its steps.

        `observed` are shapes, with the chains first; `side` of these share a program.
        """
        state, keys = self._first(*given)
        first = {n: jnp.zeros(s.shape[1:], s.dtype) for n, s in observed.items()}
        reducers = {
            name: jax.tree.map(lambda a: jnp.broadcast_to(a, (side, *a.shape)), r.init(first))
            for name, r in self._reducers.items()
        }
        buffers = {
            kind: {
                # One slot more than can be kept in a chunk takes what is thinned away.
                n: jnp.zeros((number + 1, side, *first[n].shape), first[n].dtype)
                for n, number in of_kind.items()
            }
            for kind, of_kind in slots.items()
        }
        return _Carry(state, reducers, buffers["draws"], buffers["trace"]), keys

    def chunk(self, carry, first, last, warmup, every_of, chain_keys, data, *, traced):
        """Take the steps from `first` to `last`."""

        def body(t, carry):
            keys = jax.vmap(random.fold_in, (0, None))(chain_keys, t)
            state, info = self._step(keys, carry.state, data)
            observed = self._observe(state, info)
            reducers = lax.cond(
                t >= warmup,
                lambda r: {
                    n: jax.vmap(self._reducers[n].update)(c, observed) for n, c in r.items()
                },
                lambda r: r,
                carry.reducers,
            )
            draws = _recorded(carry.draws, every_of, observed, t, first, warmup)
            trace = _recorded(carry.trace, traced, observed, t, first, 0)
            return _Carry(state, reducers, draws, trace)

        return lax.fori_loop(first, last, body, carry)


def _recorded(buffers, every_of, observed, t, first, offset):
    """Put what is observed of step `t` into the buffers, where it is to be kept."""
    out = {}
    for name, every in every_of.items():
        buffer = buffers[name]
        draw = t - offset
        slot = (draw + 1) // every - 1 - jnp.maximum(first - offset, 0) // every
        keep = (draw >= 0) & ((draw + 1) % every == 0)
        slot = jnp.where(keep, slot, buffer.shape[0] - 1)
        out[name] = lax.dynamic_update_index_in_dim(buffer, observed[name], slot, 0)
    return out


#: How what a group of chains carries lies on a mesh.
_PARTS = _Carry(P(CHAINS), P(CHAINS), P(None, CHAINS), P(None, CHAINS))


def _in_turn(f: Callable, in_axes: Sequence[int | None]) -> Callable:
    """Do what ``jax.vmap`` does, in a loop."""

    def mapped(*given):
        def one(own):
            rest = iter(own)
            return f(*(a if axis is None else next(rest) for a, axis in each))

        each = list(zip(given, in_axes, strict=True))
        return lax.map(one, tuple(a for a, axis in each if axis is not None))

    return mapped


def _on_host(array: jax.Array) -> np.ndarray:
    """Return an array, parts of which may lie with other processes; all of these take part."""
    if array.is_fully_addressable:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


def _chosen(chains: Sequence[int] | None, num_chains: int) -> np.ndarray:
    """Return the numbers of the chains that run, or refuse those that are none."""
    if chains is None:
        return np.arange(num_chains)
    numbers = [whole("a number in chains", c, 0, num_chains - 1) for c in chains]
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(
            f"chains is {list(chains)}; give numbers from 0 to {num_chains - 1}, each once"
        )
    return np.array(numbers)


def _are_serial(algorithm: Algorithm) -> bool:
    """Whether chains are not run side by side in one program."""
    return algorithm.serial and jax.default_backend() == "cpu"


def _groups(num_chains: int, side: int) -> list[slice]:
    """Part the chains that run into those that run side by side: so many on a CPU."""
    if jax.default_backend() != "cpu" or num_chains == 1:
        return [slice(0, num_chains)]
    return [slice(first, first + side) for first in range(0, num_chains, side)]
