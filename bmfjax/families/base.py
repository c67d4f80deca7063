"""What every family of models has: the tables it is described by, and the steps of a fit.

A family reads data, turns a `Problem` into `Chains`, and the draws of these into a `Fit`. The
command line, the docstring of `bmfjax.fit` and the messages take their choices from its tables.
"""

from __future__ import annotations

import functools
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp
from jax.sharding import Mesh

from bmfjax import verdict
from bmfjax.clock import OutOfTimeError, running_clock
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, checks, load, load_real
from bmfjax.data.anchors import Anchors
from bmfjax.data.attributes import AttributeTable
from bmfjax.data.blocks import blocks
from bmfjax.data.io.load import is_there
from bmfjax.data.names import in_words
from bmfjax.data.new_rows import by_names, opened
from bmfjax.data.reading.door import as_frame, is_frame
from bmfjax.data.stores import Share
from bmfjax.diagnostics import Alignment, Binarized
from bmfjax.errors import version_of
from bmfjax.families.memory import SMALLER, Held, require_room
from bmfjax.infer import ChainRun
from bmfjax.infer.intervals import regular_interval
from bmfjax.infer.mcmc.truncated import sparse_numbers
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.kernels.numerics.mesh import agreed, chains_of_device
from bmfjax.posterior.held_out import HeldOut, Hidden, hidden_cells
from bmfjax.posterior.searches import count_searches
from bmfjax.posterior.selection import informed
from bmfjax.result import PREDICTED, Fit
from bmfjax.specs.base import AUTO, Kernel, Model, Sampler, digest
from bmfjax.specs.run import (
    ACCURATE,
    LEAST_KEPT,
    MAX_RANK,
    MAX_TIME,
    MOST_HIDDEN,
    NUM_WARMUP,
    UNTIL,
)
from bmfjax.verdict import Figures, Mixing, Tried, Verdict

Data = BinaryMatrix | RealMatrix | Ratings
FACTORS = ("usage", "basis")
PACKAGES = ("bmfjax", "jax", "jaxlib", "numpyro", "optax")
#: Draws of a chain that are kept at most, and bytes of all kept draws.
MAX_KEPT, MAX_KEPT_BYTES = 250, 512 * 2**20
#: Numbers of draws of a chain at which such a run looks whether they suffice; the last ends it.
LOOKS = (*sorted(n * 2**k for n in (250, 310, 375, 430) for k in range(9)), 128_000)
#: Steps of warm-up of chains that go on with other data, at least.
WARMUP_AGAIN = 50
#: A fit that finds the number of factors keeps those that this share of draws use.
LEAST_USED = 0.5
#: What is left to do where some of the chains ran.
OTHER_CHAINS = (
    "run the other chains and merge them, bmfjax.merge(FOLDER) (bmfjax merge FOLDER), which tells "
    "whether all agree"
)


# ---- a fit that is asked for ----------------------------------------------------------------


class RankError(InputError):
    """A number of factors that no matrix of its size has; `most` is the largest that it can."""

    def __init__(self, most: int, message: str):
        super().__init__(message)
        self.most = most


@dataclass(frozen=True)
class Problem:
    """A problem: data, model, sampler and run, read, and checked where all models are alike."""

    family: Family
    data: Data
    #: Where the number of factors is found, the most.
    rank: int
    model: Model
    sampler: Sampler
    init: Any = None
    num_chains: int = 4
    num_warmup: int | str = AUTO
    num_samples: int | str = AUTO
    seed: int = 0
    #: The number of factors is unknown, and at most `rank`.
    finds_rank: bool = False
    #: Nobody gave the number of factors, and it is the default.
    rank_is_default: bool = False
    #: Nobody said that there are at most so many: where all are used, more may follow.
    grows: bool = False
    #: Known factors: the first of all.
    anchors: Anchors | None = None
    #: The chains that run here, by their numbers from 1 to `num_chains`; None for all.
    chain_numbers: tuple[int, ...] | None = None
    #: The devices that run all of them together; None: JAX's own one. It changes no draw.
    mesh: Mesh | None = None
    #: What is known of rows and of columns, by "row" and "column".
    attributes: Mapping[str, AttributeTable] = field(default_factory=dict)
    #: Which parts of the verdict end a run that finds out itself when it is done, and the Monte
    #: Carlo error that its predictions are to have.
    until: str = UNTIL[0]
    mc_error: float | None = None
    #: Share of the observed entries that a first fit does without, and how well it predicted them.
    check: float | None = None
    held_out: HeldOut | None = None
    #: Chains go on from where those of the first fit were, these positions; None where what was
    #: stored replaces them.
    goes_on: bool = False
    positions: Any = None
    #: How many starts the chains of the first fit had, and what its searches had found.
    origin: tuple[int, SearchEnds | None] = (0, None)
    #: One clause: which model was taken, and why, where none was named.
    default: str = ""

    def __post_init__(self):
        checks.seed_number(self.seed)
        rank, rows, columns = self.rank, self.data.num_rows, self.data.num_columns
        most = min(rows, columns)
        if not 1 <= rank <= most:
            raise RankError(
                most,
                f"rank is {rank}; give a number from 1 to {most}, the smaller side of the "
                f"{rows} x {columns} matrix",
            )
        if rank < self.num_anchors:
            raise InputError(
                f"rank is {rank} and anchors has {self.num_anchors} factors; rank counts all "
                f"factors, the known ones among them: give at least {self.num_anchors}"
            )
        for name, least in (("num_chains", 1), ("num_warmup", 0), ("num_samples", LEAST_KEPT)):
            value, may_be_auto = getattr(self, name), name != "num_chains"
            if may_be_auto and isinstance(value, str) and value == AUTO:
                continue
            try:
                checks.whole(name, value, least)
            except InputError as error:
                raise InputError(f"{error}{f', or {AUTO!r}' * may_be_auto}") from None
        self._check_end()
        chains_of_device(len(self.chain_numbers or range(self.num_chains)), self.mesh)
        if self.init is not None:
            object.__setattr__(self, "init", self.family.read_start(self))

    def _check_end(self) -> None:
        """Refuse what a run cannot end by."""
        checks.one_of("until", self.until, UNTIL)
        if self.check is not None:
            if self.check is True or checks.positive("check", self.check) > MOST_HIDDEN:
                raise InputError(
                    f"check is {self.check}; give the share of the entries that is hidden, such as "
                    f"0.1 and at most {MOST_HIDDEN}"
                )
            if self.chain_numbers is not None:
                raise InputError(
                    "check hides entries from all chains of a fit, and chains (--chain) names some "
                    "of them; give one of the two"
                )
            if self.data.is_shared:
                raise InputError(
                    "check hides entries of the whole matrix, and each process reads a part of it; "
                    "leave check (--check) or the mesh out"
                )
        error = self.mc_error
        if error is not None and checks.positive("mc_error", error) > ACCURATE:
            raise InputError(
                f"mc_error is {error}; give a number above 0 and up to {ACCURATE}, which "
                "predictions of a run that ends by itself have in any case"
            )
        if self.num_samples != AUTO:
            for name, default in (("until", UNTIL[0]), ("mc_error", None)):
                if getattr(self, name) != default:
                    raise InputError(
                        f"num_samples is {self.num_samples}, and {name} ends a run by itself; give "
                        "one of them"
                    )

    @property
    def of_result(self) -> Problem:
        """The problem as what is made of the draws sees it: with the chains that ran here.

        If processes share the rows of the matrix, all are read now.
        """
        number = self.num_chains if self.chain_numbers is None else len(self.chain_numbers)
        return replace(self, data=self.data.complete(), num_chains=number)

    @property
    def wider(self) -> Problem:
        """The problem with twice the most factors, or as many as the matrix can have."""
        most = min(self.data.shape)
        found = replace(self, rank=min(2 * self.rank, most), grows=2 * self.rank < most)
        return replace(found, goes_on=False, positions=None)

    def hidden_cells(self, share: float, *, keeps_lines: bool = False) -> Hidden:
        """Hide a share of the entries, and none without which the model could not be fitted."""
        needs = self.family.needs_each_value(self.model.name)
        return hidden_cells(
            self.data, share, self.seed, keeps_lines=keeps_lines, keeps_values=needs
        )

    def without_cells(self) -> tuple[Problem, Hidden]:
        """Return the problem of the first fit, and the cells that are hidden from it."""
        hidden = self.hidden_cells(self.check, keeps_lines=True)
        # It need not tell factors.
        until = UNTIL[1] if self.is_auto else self.until
        return replace(self, data=hidden.data, check=None, until=until), hidden

    def going_on(
        self, first: Problem, found: HeldOut, positions: Any, origin: tuple = (0, None)
    ) -> Problem:
        """Return the problem of all data, whose chains go on from where those of `first` were."""
        return replace(
            self, rank=first.rank, grows=first.grows, held_out=found, positions=positions,
            goes_on=positions is not None, origin=origin,
        )  # fmt: skip

    def resumed(self, settings: Mapping) -> Problem:
        """Return the problem of a run that is resumed, with these settings, after its first fit."""
        if self.check is None or "held_out" not in settings:
            return self
        most, rank = min(self.data.shape), settings["rank"]
        return replace(
            self, rank=rank, grows=self.grows and rank < most, goes_on=settings["goes_on"],
            held_out=HeldOut.of_stored(settings["held_out"]),
        )  # fmt: skip

    @property
    def num_anchors(self) -> int:
        """Number of known factors."""
        return 0 if self.anchors is None else self.anchors.number

    @property
    def key(self) -> jax.Array:
        """Key of the chains."""
        return jax.random.key(self.seed)

    @property
    def kernel(self) -> Kernel:
        """What samples."""
        return self.model.samplers[type(self.sampler)]

    @functools.cached_property
    def priors(self) -> Mapping[str, Any]:
        """The parameters of the model, but the number of factors."""
        return MappingProxyType(self.model.priors())

    @functools.cached_property
    def given_priors(self) -> Mapping[str, Any]:
        """Those of them that differ from their defaults."""
        return MappingProxyType(self.model.given_priors())

    @functools.cached_property
    def options(self) -> Mapping[str, Any]:
        """The options of the sampler that differ from their defaults."""
        return MappingProxyType(self.sampler.given())

    @property
    def has(self) -> tuple[str, ...]:
        """Options that the sampler has for this model."""
        return self.kernel.options

    @property
    def is_auto(self) -> bool:
        """Whether the run itself finds out when it is done."""
        return self.num_samples == AUTO

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of draws at which the run looks whether they suffice; none for a given number."""
        return LOOKS if self.is_auto else ()

    @property
    def most_samples(self) -> int:
        """The number of draws of a chain, or the most."""
        return LOOKS[-1] if self.is_auto else self.num_samples

    def warmup(self, adapted: int) -> int:
        """Return the steps before draws are kept: as given, or `adapted` where the run adapts."""
        if self.num_warmup != AUTO:
            return self.num_warmup
        if not self.is_auto:
            return NUM_WARMUP
        asked = [self.options.get(name, 0) for name in ("num_anneal", "num_adapt")]
        return max(adapted, sum(asked))

    @property
    def size(self) -> str:
        """Rows x columns, for messages."""
        return f"{self.data.num_rows:,} x {self.data.num_columns:,}"

    def called(self, max_time: float | None = None) -> str:
        """Return the call that makes the fit; `...` stands for what is no text."""
        defaults = {f.name: f.default for f in fields(Problem)}
        given = {n: getattr(self, n) for n in ("num_chains", "num_warmup", "num_samples")}
        given |= {n: getattr(self, n) for n in ("until", "mc_error", "check")}
        said = [f"{n}={v!r}" for n, v in given.items() if v != defaults[n]]
        whole = {"init": self.init, "anchors": self.anchors, "mesh": self.mesh}
        whole |= {f"{side}_attributes": table for side, table in self.attributes.items()}
        said += [f"{n}=..." for n, v in whole.items() if v is not None]
        if self.chain_numbers is not None:
            said.append(f"chains={list(self.chain_numbers)}")
        if max_time is not None:
            text = f"{max_time:g}" if math.isfinite(max_time) else "float('inf')"
            said.append(f"max_time={text}")
        # Chains that run apart have the rank beside the model.
        model = replace(self.model, rank=AUTO if self.finds_rank else int(self.rank))
        parts = ["data", model.called, self.sampler.called, *said, f"seed={self.seed}"]
        return f"bmfjax.fit({', '.join(parts)})"

    def settings(self, **more) -> dict:
        """Return what determines the draws besides the data."""
        names = ("num_chains", "num_warmup", "num_samples", "seed")
        named = {"model": self.model.name, "sampler": self.sampler.name}
        found = {"finds_rank": True} if self.finds_rank else {}
        if self.anchors is not None:
            known = digest({"values": self.anchors.values})
            found["anchors"] = {"names": list(self.anchors.names), "values": known}
        for side, table in self.attributes.items():
            read = {"attributes": table.values.shape[1], "values": digest({"": table.values})}
            found[f"{side}_attributes"] = read
        if self.chain_numbers is not None:
            found["chains"] = list(self.chain_numbers)
        if self.until != UNTIL[0]:
            found["until"] = self.until
        if self.mc_error is not None:
            found["mc_error"] = self.mc_error
        if self.check is not None:
            found["check"] = self.check
        if self.held_out is not None:
            found |= {"held_out": self.held_out.stored(), "goes_on": self.goes_on}
        run = {n: getattr(self, n) for n in names}
        return {"rank": int(self.rank)} | found | named | run | more

    def chains(self) -> Chains:
        """Return the chains, or refuse what only the family can check."""
        made = self.family.chains(self)
        if not self.goes_on:
            return made
        made = made.going_on(self.positions, shorter=self.num_warmup == AUTO)
        number, ends = self.origin
        return replace(made, num_starts=number, search_ends=ends)

    def read_start(self, low: float = -np.inf, high: float = np.inf) -> dict:
        """Return the start that was given, both factor matrices as float32, or refuse it."""
        if not isinstance(self.init, Mapping) or set(self.init) != set(FACTORS):
            raise InputError("init must hold exactly 'usage' and 'basis'")
        start = {}
        for name, size in zip(FACTORS, self.data.shape, strict=True):
            shape = (size, int(self.rank))
            values = checks.numeric(f"init {name!r}", self.init[name], shape)
            if not ((values >= low) & (values <= high) & np.isfinite(values)).all():
                raise InputError(f"init {name!r} has {_outside(low, high)}")
            start[name] = values
        if self.anchors is not None:
            self._check_known(start["basis"])
        return start

    def _check_known(self, basis) -> None:
        """Refuse a start whose basis is not that of the known factors."""
        names, values = self.anchors
        own = basis[:, : self.num_anchors]
        wrong = ~np.isnan(values) & (own != values.astype(own.dtype))
        if wrong.any():
            j, k = np.argwhere(wrong)[0].tolist()
            raise InputError(
                f"init 'basis' has {own[j, k]:g} in column {self.data.column_names[j]!r} of factor "
                f"{k + 1}, which is anchor {names[k]!r} with {values[j, k]:g} there; give the "
                "anchors as the first factors of the start"
            )

    def every_chain(self, start: Mapping) -> dict:
        """Return the start with a leading axis of chains."""
        return {n: np.broadcast_to(v, (self.num_chains, *np.shape(v))) for n, v in start.items()}


def _outside(low, high):
    if high < np.inf:
        return f"values outside {low:g} to {high:g}"
    if low == 0:
        return "values that are negative or not finite"
    return "values that are not finite; give numbers"


@dataclass(frozen=True)
class Chains:
    """What will run, and what of it is kept."""

    algorithm: Any  # `bmfjax.kernels.Algorithm`
    data: Any  # as the algorithm takes them
    settings: dict  # all that determines the draws besides the data
    sites: tuple[str, ...] = ()  # kept of some draws
    trace: tuple[str, ...] = ()  # kept of every step
    thinning: tuple[int, int] = (1, 1)  # draws from one kept draw to the next, most kept ones
    num_warmup: int = 0
    num_samples: int = 0
    #: Annealed steps are over: others took them.
    is_cold: bool = False
    #: ``start(resume)``: position of every chain, None for the algorithm's own.
    start: Callable[[bool], Mapping | None] = lambda resume: None
    #: ``search(run)``: the snapshot from which chains go on, how many of them differ, and what each
    #: search had found by itself; or None.
    search: Callable[[ChainRun], Any] | None = None
    #: How many chains had found by themselves what all may take over; 0 where none is given away.
    num_starts: int = 0
    #: What each search had found before that, where the search is over.
    search_ends: SearchEnds | None = None
    #: ``resting(snapshot)``: where chains stay that have no time for a step, if not at their start.
    resting: Callable[[Any], Any] | None = None
    #: What the family wants back with the draws.
    arguments: Mapping = field(default_factory=dict)
    #: The trace that says how far a run is, and what its steps after the warm-up are.
    objective: str = "log_joint"
    counted: str = "draws a chain"
    #: Numbers of draws at which the run looks whether they suffice (`families.stopping`).
    looks: tuple[int, ...] = ()
    #: ``next_stage(run)``: what runs on from there where the chains of this run disagree.
    next_stage: Callable[[ChainRun], Chains] | None = None
    #: Draws of a chain after which the next stage may follow, and the R-hat above which it does.
    patience: tuple[int, float] = (500, verdict.RHAT_USABLE)
    #: What the draws are from, for the line of progress.
    phase: str = "sampling"
    #: Stream of the random numbers, beside those of an earlier stage.
    stream: int | None = None
    #: How far a run has come, in words; None: so many draws of all. What gives it a result sooner.
    reached: Callable[[ChainRun], str] | None = None
    sooner: str = "a smaller num_warmup"
    #: Whether a run that is to end by itself is stopped after some time, where none is given.
    limited: bool = True
    #: Whether chains without sites have a result before their first step, too.
    starts_count: bool = False
    #: Whether each chain ends by itself, and its draws do not depend on when others end.
    independent: bool = True
    #: Whether a run needs no more steps, and whether a stopped one has enough for a result.
    finished: Callable[[ChainRun], bool] = lambda run: False
    enough: Callable[[ChainRun], bool] = lambda run: (
        run.num_draws // run.thinning("usage") >= LEAST_KEPT
    )

    @classmethod
    def of_stage(
        cls, problem: Problem, stage: StagePlan, algorithm: Any, data: Any, *,
        bytes_a_draw: int, settings: Mapping, trace: tuple[str, ...] = (), most: int = MAX_KEPT,
        **more,
    ) -> Chains:  # fmt: skip
        """Return the chains of a stage of a plan.

        `bytes_a_draw` are those of a kept draw of one chain, which keeps `most` at most. `settings`
        and `trace` are what a family has beside those of every fit.
        """
        every, most_kept = thinning(problem.num_chains * bytes_a_draw, problem.most_samples, most)
        given = {
            "trace": (*problem.kernel.trace, *trace, *["rank"] * problem.finds_rank),
            "thinning": (every, most_kept),
            "num_warmup": stage.num_warmup,
            "num_samples": problem.most_samples,
            "looks": problem.looks,
            "phase": stage.phase,
        }
        return cls(algorithm, data, problem.settings(thinning=every, **settings), **(given | more))

    @property
    def can_stand(self) -> bool:
        """Whether there is a result of where chains begin."""
        return bool(self.sites) or self.starts_count

    def going_on(self, positions, *, shorter: bool = True) -> Chains:
        """Return chains that start where they were with other data; their warm-up may be `shorter`.

        Where there are no positions, what was stored replaces them.
        """
        start = self.start if positions is None else lambda resume: positions
        warmup = self.num_warmup
        if shorter and "replica" not in self.trace:  # no draw is kept of a ladder that changes
            warmup = max(min(warmup, WARMUP_AGAIN), warmup // 4)
        return replace(
            self, start=start, search=None, resting=None, is_cold=True, num_warmup=warmup
        )

    def run(
        self,
        problem: Problem,
        resume: bool = False,
        is_ready: Callable[[ChainRun], bool] = ChainRun.is_ready,
    ) -> ChainRun:
        """Return the chains at their start.

        No start is searched where the sampler is not compiled in time.
        """
        run = self._started(problem, resume, problem.chain_numbers)
        if self.is_cold and not resume:
            run.end_annealing()
        if self.search is not None and not (resume or run.timed_out):  # stored ones replace it
            # Some of the chains start where they do beside all others.
            whole = run if problem.chain_numbers is None else self._started(problem, False, None)
            run.timed_out = not is_ready(whole)
            if not run.timed_out:
                snapshot, run.num_starts, run.search_ends = self.search(whole)
                run.begin_at(snapshot)
        return run

    def stand(self, run: ChainRun) -> None:
        """Let chains stay where they are for the draws of a result."""
        if run.steps_done == 0 and self.resting is not None:
            run.restore(self.resting(run.snapshot()), 0, {})
        run.stand(self.enough)

    def _started(self, problem: Problem, resume: bool, own) -> ChainRun:
        every, most_kept = self.thinning
        key, late = problem.key, False
        try:
            position = self.start(resume)
        except OutOfTimeError:
            position, late = None, True
        run = ChainRun(
            self.algorithm,
            key if self.stream is None else jax.random.fold_in(key, self.stream),
            self.data,
            num_chains=problem.num_chains,
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            position=position,
            chains=None if own is None else [c - 1 for c in own],
            mesh=problem.mesh,
            draws=dict.fromkeys(self.sites, every),
            most_kept=most_kept if self.sites else None,
            trace=dict.fromkeys(self.trace, 1),
        )
        run.timed_out, run.num_starts, run.search_ends = late, self.num_starts, self.search_ends
        return run


class StagePlan(NamedTuple):
    """What chains run with until they end, or until the next stage follows."""

    options: Mapping[str, Any]  # of the kernel
    num_warmup: int
    phase: str = "sampling"


class Plan(NamedTuple):
    """What will run, as far as a problem decides it without computing anything.

    Later stages follow where chains of a run that ends by itself disagree.
    """

    arguments: Mapping[str, Any]  # of the model, or its priors by name
    stages: tuple[StagePlan, ...]
    init: str  # where chains start
    memory: tuple[Held, ...]  # what it holds beside its programs
    why: str  # one sentence on the options of the stages
    known: Any = None  # what was looked up in the data, for the chains
    remedy: str = SMALLER  # where memory does not suffice

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the first stage."""
        return self.stages[0].options


class KeptDraws(NamedTuple):
    """The draws of chains that count, and the traces of their steps."""

    sites: Mapping  # {name: (chain, draw, ...)}, the factors of every draw in an order of its own
    trace: Mapping  # {name: (chain, step)}, without the warm-up
    every: int = 1  # steps from one kept draw to the next

    def at_draws(self, name: str) -> np.ndarray:
        """Return a trace at the kept draws, (chain, draw)."""
        return self.trace[name][:, self.every - 1 :: self.every]

    @property
    def best(self) -> tuple[int, int]:
        """Chain and draw of the kept draw with the highest log joint density."""
        log_joint = self.at_draws("log_joint")
        return tuple(int(i) for i in np.unravel_index(np.argmax(log_joint), log_joint.shape))

    @property
    def best_chain(self) -> int:
        """The chain with the highest mean log joint density."""
        return int(np.argmax(self.trace["log_joint"].mean(1)))


class Ordered(NamedTuple):
    """Draws whose factors are in one order, and how alike each factor is in all chains."""

    sites: Mapping  # {name: (chain, draw, ...)}, as `KeptDraws` has them
    agreement: np.ndarray  # (2, rank), of `bmfjax.diagnostics.align.agreements`
    aligned: Alignment | None = None  # of bits and of numbers from 0 to 1
    figures: Mapping = MappingProxyType({})  # further scalars of the fit

    @property
    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of both factor matrices in each chain, (chain, lines, rank)."""
        of = [self.sites[n] for n in FACTORS] if self.aligned is None else self.aligned[:2]
        return tuple(np.asarray(draws.mean(1)) for draws in of)


class Family:
    """One kind of model: how it is sampled, and what its draws mean."""

    #: The class of its models by name.
    models: ClassVar[Mapping[str, type[Model]]]

    #: Samplers that can find the number of factors.
    finds_rank: ClassVar[tuple[str, ...]] = ()

    #: Samplers that run on a mesh of devices.
    on_mesh: ClassVar[tuple[str, ...]] = ()

    #: Entries, or ratings, above which the cores of a CPU share a chain by default: where it is
    #: known to pay.
    shared_entries: ClassVar[float] = math.inf

    #: Chains that a core of a CPU runs side by side without a mesh: one where algorithms are serial
    #: (`bmfjax.kernels.base.Algorithm`).
    chains_a_core: ClassVar[int] = 2

    #: Whether some factors may be known (`check_anchors`).
    takes_anchors: ClassVar[bool] = False

    #: Whether attributes of rows and columns may be given.
    takes_attributes: ClassVar[bool] = False

    #: The option that lets chains cross between modes, and a value of it as JSON.
    ladder: ClassVar[tuple[str, str]] = ("inverse_temperatures", "[1, 0.6, 0.36, 0.2]")

    #: Whether factors that the data do not need are absent where the rank is given, too.
    leaves_out: ClassVar[bool] = False

    #: Entries up to which a ladder of temperatures is advised.
    ladder_entries: ClassVar[float] = math.inf

    @property
    def samplers(self) -> dict[str, Kernel]:
        """What samples its models, by the name of a sampler; the first is the default."""
        model = next(iter(self.models.values()))
        return {sampler.name: kernel for sampler, kernel in model.samplers.items()}

    def kind(self, model: str) -> type[Data]:
        """Return the type that files and arrays are read as."""
        return BinaryMatrix

    def most_factors(self, shape: tuple[int, int]) -> int:
        """Return the most factors of a matrix where their number is found, and nobody says."""
        return min(MAX_RANK, *shape)

    def needs_each_value(self, model: str) -> bool:
        """Tell whether every value of the data has a parameter, and one of each must be fitted."""
        return False

    def read(self, source: Any, model: str) -> Data:
        """Return the data of a source, or refuse them; real numbers may be ones and zeros."""
        return (read_real if self.kind(model) is RealMatrix else read_binary)(source, model)

    def share_of(
        self, mesh: Mesh | None, model: Model, sampler: Any, chains: Any
    ) -> Callable[[tuple[int, int]], Share | None] | None:
        """Return the function from the shape of a matrix to the rows that this process reads.

        None, or a function that returns it, where it reads all. The arguments are those of
        `bmfjax.fit`.
        """
        return None

    def check_anchors(self, anchors: Anchors, model: str) -> None:
        """Refuse known factors that the model cannot have."""

    def default_sampler(self, data: Data) -> str:
        """Return the sampler that is used where none is asked for."""
        return next(iter(self.samplers))

    def pays_on_mesh(self, data: Data, sampler: str | None) -> bool:
        """Tell whether a chain of these data is known to be faster on several cores of a CPU."""
        cells = data.num_ratings if isinstance(data, Ratings) else math.prod(data.shape)
        sampler = self.default_sampler(data) if sampler is None else sampler
        return sampler in self.on_mesh and cells > self.shared_entries

    def other_sampler(self, problem: Problem) -> str | None:
        """Return a sampler to try where the chains of this one do not agree: an exact one."""
        if problem.kernel.exact:
            return None
        return next((name for name, sampler in self.samplers.items() if sampler.exact), None)

    def read_start(self, problem: Problem) -> dict:
        """Return the start that a user gave, checked."""
        return problem.read_start()

    def plan(self, problem: Problem) -> Plan:
        """Return what will run; refuse what the model alone can refuse."""
        raise NotImplementedError

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        """Return the chains of a plan."""
        raise NotImplementedError

    def chains(self, problem: Problem) -> Chains:
        """Return the chains of a problem, or refuse what there is no room for."""
        plan = self.plan(problem)
        # Processes that share the devices may have other memory each.
        agreed(problem.mesh, lambda: require_room(problem, plan.memory, plan.remedy))
        return self.chains_of(problem, plan)

    def judged(
        self, problem: Problem, chains: Chains, entries: Mixing, seen: KeptDraws,
        agreement: np.ndarray | None = None, empty: np.ndarray | None = None,
        present: np.ndarray | None = None, steady: np.ndarray | None = None, **more,
    ) -> Verdict:  # fmt: skip
        """Judge draws, also of a run that goes on.

        `agreement` is that of `ordered`, and `empty`, `present` and `steady` are those of
        `when_rounded`; as long as they are not known, nothing is held against the factors. `more`
        is known at the end of a run.
        """
        shared = {"shared_starts": chains.arguments.get("shared_starts", False)}
        return verdict.of_chains(
            entries, len(seen.trace["log_joint"]), math.nan, alike(problem, agreement), seen.trace,
            exact=is_exact(problem, chains), empty=empty, present=present,
            steady=steady,
            given_start=problem.init is not None, **(shared | more),
        )  # fmt: skip

    def product_draws(self, problem: Problem, drawn: Mapping) -> tuple:
        """Return draws of two factor matrices whose products are the entries to look at."""
        return tuple(drawn[name] for name in FACTORS)

    def mixing(self, problem: Problem, drawn: Mapping, number: int) -> Mixing:
        """Return R-hat and effective draws of up to `number` entries of these draws."""
        usage, basis = self.product_draws(problem, drawn)
        kind, predicted = Fit._of_model(problem.model.name), None
        if kind is not None:

            def predicted(entries):
                return kind._predicted(entries, drawn, problem.priors)

        chances = kind is not None and kind._predicts_chances
        return verdict.mixing(informed(problem.data), usage, basis, number, predicted, chances)

    def ordered(self, problem: Problem, chains: Chains, seen: KeptDraws) -> Ordered:
        """Return the draws of a fit: factors in one order, and those alone that it has."""
        raise NotImplementedError

    def when_rounded(self, problem: Problem, found: Ordered, seen: KeptDraws) -> dict:
        """Return what `judged` depends on that takes factors which are rounded, where they are.

        `empty`, (rank,) bool, tells which have no tile; `present`, (chain, draw, rank), which
        draws have each; and `steady`, (chain, rank), in which share of its draws a chain has what
        it has itself in its place.
        """
        return {}

    def class_of(self, problem: Problem) -> type[Fit]:
        """Return the class of the fit."""
        return Fit._of_model(problem.model.name)

    def origin(
        self, problem: Problem, chains: Chains, run: ChainRun, found: Ordered | None = None
    ) -> dict:
        """Return what `judged` depends on that says who found what the chains have.

        `found` are the draws with their factors in one order, where this is known.
        """
        return {}

    def at_the_end(self, problem: Problem, chains: Chains, run: ChainRun) -> dict:
        """Return what `judged` depends on that is known at the end of a run alone."""
        return {}

    def result(self, problem: Problem, chains: Chains, run: ChainRun, **own) -> Fit:
        """Turn the draws into a fit: factors in one order, figures, verdict.

        `own` are fields of its class.
        """
        seen = kept_draws(run)
        found = self.ordered(problem, chains, seen)

        def judge(fit):
            return self.judged(
                problem, chains, fit._mixing, seen, found.agreement, fit._empty, fit._present,
                fit._steady, tried=what_was_tried(problem, chains, run),
                **self.origin(problem, chains, run, found), **self.at_the_end(problem, chains, run),
            )  # fmt: skip

        return make_fit(
            self.class_of(problem), problem, chains, run,
            draws=found.sites, trace=run.trace(), agreement=found.agreement[0], judge=judge,
            own=own,
        )  # fmt: skip


def searches(problem: Problem, run: ChainRun, found: Ordered | None) -> dict:
    """Return what independent searches say of the factors, where each kept its own end."""
    if run.search_ends is None or run.search_ends.number == 1:
        return {}
    means = None if found is None else found.means
    boolean = Fit._of_model(problem.model.name)._is_boolean
    return {"searches": count_searches(run.search_ends, means, problem.chain_numbers, boolean)}


def alike(problem: Problem, agreement: np.ndarray | None) -> np.ndarray:
    """Return the agreements about each factor; where they are not known, all chains agree."""
    return np.ones(int(problem.rank)) if agreement is None else agreement


def is_exact(problem: Problem, chains: Chains) -> bool:
    """Tell whether the draws are from the posterior itself."""
    return problem.kernel.exact and chains.arguments.get("exact", True)


def check_structure(data: Data) -> None:
    """Refuse a matrix in which there is nothing to factorise, whatever the model.

    Chains of such a fit do not agree, or agree on the prior, and neither says what the matter is.
    """
    for side, count in (("row", data.num_rows), ("column", data.num_columns)):
        if count == 1:
            raise InputError(
                f"the matrix has one {side}, and factors are what {side}s have in common, so there "
                f"is nothing to factorise; give at least two {side}s"
            )
    if isinstance(data, BinaryMatrix):
        for name, number in (("ones", data.num_ones), ("zeros", data.num_zeros)):
            if number == 0:
                raise InputError(
                    f"the matrix has no {name} among its observed entries, so there is nothing to "
                    "factorise; look at what was read, and at the threshold (binarize) if there "
                    "is one"
                )
    elif data.range[0] == data.range[1]:
        raise InputError(
            f"every observed value is {data.range[0]:g}, so there is nothing to factorise; look "
            "at what was read"
        )


def read_binary(source: Any, model: str) -> BinaryMatrix:
    """Return a matrix of ones and zeros, or refuse what is none."""
    if isinstance(source, BinaryMatrix):
        return source
    if isinstance(source, Ratings | RealMatrix):
        raise InputError(
            f"data is a {type(source).__name__}, and model {model!r} is of ones and zeros; "
            "give a BinaryMatrix, or model='pmf'"
        )
    if isinstance(source, str | os.PathLike):
        return load(source)
    return BinaryMatrix.from_frame(source) if is_frame(source) else BinaryMatrix(source)


def read_real(source: Any, model: str) -> BinaryMatrix | RealMatrix:
    """Return a matrix of numbers, or refuse what is none."""
    if isinstance(source, BinaryMatrix | RealMatrix):
        return source
    if isinstance(source, Ratings):
        raise InputError(
            f"data is a Ratings, and model {model!r} is of matrices; give a RealMatrix or an array "
            "with NaN where an entry is missing"
        )
    if isinstance(source, str | os.PathLike):
        return load_real(source) if is_there(source) else load(source)
    return RealMatrix.from_frame(source) if is_frame(source) else RealMatrix(source)


def refuse_sparse(source: Any, model: str) -> None:
    """Refuse a sparse matrix where the cells that it does not store are not zeros."""
    if sp.issparse(source):
        raise InputError(
            f"data is a sparse matrix, of which model {model!r} would take the cells that are not "
            "stored for ratings of 0; give bmfjax.Ratings(rows, columns, values), or an array "
            "with NaN where a rating is missing"
        )


def csr_of(data: BinaryMatrix | RealMatrix, *, gaps: bool = True) -> sp.csr_array | None:
    """Return the matrix as a CSR where an exact sampler takes it so (`sparse_numbers`), or None.

    Without `gaps` one with missing entries is dense.
    """
    return sparse_numbers(data) if gaps or not data.num_missing else None


def mean_and_square(data: BinaryMatrix | RealMatrix) -> tuple[float, float]:
    """Return the mean of the observed entries, and that of their squares."""
    if isinstance(data, BinaryMatrix):
        return data.density, data.density
    if data.is_sparse:
        values, size = data.nonzero().data, data.num_rows * data.num_columns
        return float(values.sum() / size), float((values @ values) / size)
    values = data.dense(np.float64)
    return float(np.nanmean(values)), float(np.nanmean(values**2))


def squared_residual(values, usage, basis) -> float:
    """Return the sum of squared residuals of a start; `values` are dense, or a CSR."""
    if not sp.issparse(values):
        return np.nansum((values - usage @ basis.T) ** 2)
    usage, basis = usage.astype(float), basis.astype(float)
    total = ((usage.T @ usage) * (basis.T @ basis)).sum()
    entries = values.tocoo()
    row, column = entries.row, entries.col
    for some in blocks(len(row), usage.shape[1]):
        fit = np.einsum("ek,ek->e", usage[row[some]], basis[column[some]])
        own = entries.data[some].astype(float)
        total += np.where(np.isnan(own), -fit * fit, own * (own - 2 * fit)).sum()
    return max(float(total), 0.0)


def annealed_options(problem: Problem, options: Mapping, from_prior: bool, warmup: int) -> dict:
    """Return the options of an exact sampler, checked, with how many sweeps are annealed.

    By default chains from the prior are annealed in the first half of the warm-up, and
    in the other half a ladder of temperatures is adapted. Without a ladder all of the warm-up is
    annealed where the run may count draws as warm-up too.
    """
    options = dict(options)
    if "num_anneal" not in problem.has:
        return options
    ladder, number = options.get("inverse_temperatures"), warmup // 2
    if problem.is_auto and problem.num_warmup == AUTO and ladder is None:
        number = warmup
    number = min(number, max(warmup - options.get("num_adapt", 0), 0))
    options.setdefault("num_anneal", number if from_prior else 0)
    number = options["num_anneal"]
    if ladder is not None:
        options.setdefault("num_adapt", max(warmup - number, 0))
        adapted = options["num_adapt"]
        if adapted and number + adapted > warmup:
            raise InputError(
                f"num_adapt is {adapted} after {number} annealed sweeps, and num_warmup (--warmup) "
                f"{warmup}; a ladder is not exact while it is adapted: adapt it within the warm-up"
            )
    if number > warmup:
        raise InputError(
            f"num_anneal is {number} and num_warmup (--warmup) {warmup}; annealed sweeps are not "
            "draws from the posterior: anneal within the warm-up"
        )
    return options


# ---- settings -------------------------------------------------------------------------------


def versions_in_use() -> dict[str, str]:
    """Return the versions on which the draws depend."""
    found = {"python": platform.python_version()}
    found["precision"] = str(np.dtype(jax.numpy.result_type(float)))
    return found | {package: version_of(package) for package in PACKAGES}


# ---- from draws to a fit --------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class NumbersFit(Fit):
    """A fit of numbers, which have no probability of a one."""

    _kinds = PREDICTED
    what = "numbers"

    @classmethod
    def _predicted(cls, entries, others, priors):
        """Return numbers in a unit in which the noise makes differences those of probabilities."""
        precision = others["precision"] if "precision" in others else priors["precision"]
        sd = np.mean(np.asarray(precision, float) ** -0.5)
        # Normals that are d standard deviations apart are at most so far apart in probability.
        return np.asarray(entries, float) / (sd * math.sqrt(2.0 * math.pi))

    def _check_kind(self, kind, noisy):
        if kind == "probability" and kind not in self._kinds:
            raise InputError(
                f"model {self.model!r} is of {self.what}, which have no probability of a one; "
                "choose another kind"
            )
        super()._check_kind(kind, noisy)


def thinning(entries: int, num_samples: int, most: int = MAX_KEPT) -> tuple[int, int]:
    """Return how far kept draws are apart, and how many of a chain are kept at most on the way.

    `entries` are the bytes of one kept draw of all chains. A complete run keeps at most `most`
    draws of a chain; on its way half as many again, if memory allows, so that at least half of
    `most` are left where it goes on to three times the interval.

    Examples
    --------
    >>> thinning(1000, 3000), thinning(2**27, 3000)
    ((12, 375), (256, 12))
    """
    # Twelve at least: a third of them, after the widest step of the interval, are four.
    room = max(12, MAX_KEPT_BYTES // entries)
    every = regular_interval(math.ceil(num_samples / min(most, room)))
    return every, min(most + most // 2, room)


def kept_factors(used: np.ndarray) -> np.ndarray:
    """Return which factors a result has, of what every draw uses (chain, draw, rank): int.

    Those that are more probable than not; one is kept in any case.

    Examples
    --------
    >>> kept_factors(np.array([[[True, False], [True, False], [False, True]]])).tolist()
    [0]
    """
    share = used.mean((0, 1))
    kept = np.flatnonzero(share >= LEAST_USED)
    return kept if len(kept) else share.argmax()[None]


def kept_draws(run: ChainRun) -> KeptDraws:
    """Return the draws of a run that count."""
    return KeptDraws(run.draws(), after_warmup(run, run.trace()), run.thinning("usage"))


def after_warmup(run: ChainRun, trace: Mapping) -> dict:
    """Return the trace of the draws that count, {name: (chain, draw)}."""
    return {n: values[:, run.warmup_steps :] for n, values in trace.items()}


def what_was_tried(problem: Problem, chains: Chains, run: ChainRun) -> Tried:
    """Return what the verdict needs to know of a run to name what is left to try."""
    family = problem.family
    has_ladder = family.ladder[0] in problem.has
    return Tried(
        draws=run.num_draws,
        rank=1 if problem.finds_rank else int(problem.rank),  # no other one to try
        more=_larger_rank(problem) if family.leaves_out and not problem.finds_rank else 0,
        stopped=not run.is_complete,
        ended=problem.is_auto and problem.until != UNTIL[0] and run.is_enough,
        ladder="replica" in chains.trace if has_ladder else None,
        ladder_option=family.ladder,
        large=math.prod(problem.data.shape) > family.ladder_entries,
        other_sampler=family.other_sampler(problem),
        apart=family.leaves_out and problem.finds_rank,
        particles=getattr(problem.sampler, "num_particles", 0),
        remedy="" if problem.chain_numbers is None else OTHER_CHAINS,
    )


def _larger_rank(problem: Problem) -> int:
    """Return twice the rank, or the most that the matrix can have; 0 where it has that."""
    larger = min(2 * int(problem.rank), *problem.data.shape)
    return larger if larger > problem.rank else 0


def make_fit(
    kind: type[Fit],
    problem: Problem,
    chains: Chains,
    run: ChainRun,
    *,
    draws: Mapping,
    trace: Mapping,
    agreement: np.ndarray,
    judge: Callable[[Fit], Verdict],
    binary: Binarized | None = None,
    own: Mapping = MappingProxyType({}),
) -> Fit:
    """Return the fit of draws whose factors are in their final order.

    `judge` returns the verdict of the fit, which has all but this; `own` are fields
    that fits of this kind alone have.
    """
    draws = {n: _in_memory(values) for n, values in draws.items()}
    figures = Figures(
        num_warmup=run.warmup_steps,
        num_draws=run.num_draws,
        earlier_steps=run.earlier_steps,
        thinning=run.intervals().get("usage", chains.settings["thinning"]),
        complete=run.is_complete,
        timed_out=run.timed_out,
        seconds=run.seconds,
        rank_default=int(problem.rank) if problem.rank_is_default else None,
    )
    ends = run.search_ends
    if ends is not None and problem.chain_numbers is not None:
        ends = ends.of_chains([number - 1 for number in problem.chain_numbers])
    fit = kind(
        data=problem.data,
        model=problem.model.name,
        sampler=problem.sampler.name,
        settings=_used_settings(problem, chains, figures.thinning),
        usage_draws=draws["usage"],
        basis_draws=draws["basis"],
        other_draws={n: v for n, v in draws.items() if n not in FACTORS},
        trace=trace,
        agreement=agreement,
        verdict=Verdict(figures),
        binary=binary,
        versions=versions_in_use(),
        anchors=problem.anchors,
        _search_ends=ends,
        **own,
    )
    judged = judge(fit)
    known = figures.known() | data_figures(fit) | judged.figures.known()
    judged = judged.changed(**(known | fit._named(judged.figures)))
    if run.stood or run.num_warmup < run.planned_warmup:
        drawn = run.num_draws - run.stood
        judged = verdict.with_short_warmup(judged, run.planned_warmup, drawn)
    elif run.timed_out and not run.is_complete:
        judged = verdict.with_time_up(judged, how_far(chains, run))
    if not (run.is_complete or run.timed_out):
        judged = verdict.with_interruption(judged, how_far(chains, run))
    if fit._can_be_checked:
        # What was hidden says it without an estimate, if there is enough of it.
        found, hidden = fit._left_out.figures, problem.held_out
        is_surer = hidden and hidden.explained_error <= found["explained_error"]
        if hidden and (is_surer or not fit._left_out.is_told):
            found = found | hidden.figures
        judged = verdict.with_fit(judged, found, fit._judged(judged)._other_model)
    if problem.finds_rank:
        bound, most = int(problem.rank), min(problem.data.shape)
        judged = verdict.with_bound(judged, fit._rank_draws, bound, most, cramped=run.cramped)
    return fit._judged(judged)


def _in_memory(values):
    """Return draws as they are in memory when they are read again: sums of them are the same."""
    return np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values


def _used_settings(problem: Problem, chains: Chains, thinning: int) -> dict:
    """Return what determines the draws, with what the run itself found, and the call."""
    found, limit = dict(chains.settings), running_clock().limit
    if found.pop("finds_rank", False):
        found |= {"rank": AUTO, "max_rank": int(problem.rank)}
    # A part of the chains is asked for by its numbers among all of them.
    asked = replace(problem, num_chains=found["num_chains"])
    call = asked.called(None if limit == default_limit(problem, chains) else limit)
    return found | {"thinning": thinning, "max_time": limit, "call": call}


def default_limit(problem: Problem, chains: Chains) -> float | None:
    """Return the seconds that a fit may take where no limit is given."""
    return MAX_TIME if problem.is_auto and chains.limited else None


def how_far(chains: Chains, run: ChainRun) -> str:
    """Say how far a run has come: "90 of 600 draws a chain"."""
    if chains.reached is not None:
        return chains.reached(run)
    if run.steps_done < run.num_warmup:
        return f"{run.steps_done:,} of {run.num_warmup:,} steps of warm-up"
    of = "" if chains.looks else f" of {run.num_samples:,}"
    return f"{run.num_draws:,}{of} {chains.counted}"


def data_figures(fit: Fit) -> dict:
    """Return what every fit says of its data, and of how far apart its solutions are."""
    return {
        "coverage_largest": fit._spread.largest,
        "coverage_mean": fit._spread.mean,
        "rows_without_information": len(fit.data.empty_rows),
        "columns_without_information": len(fit.data.empty_columns),
    }


def matched_rows(fit: Fit, source: Any, read: Callable = read_binary) -> Data:
    """Return new rows, read as the fitted ones were, with the same columns."""
    source = opened(source, fit)
    new = by_names(read(in_columns_of(fit.data, source), fit.model), fit.data)
    check_columns(fit.data, new)
    return new


def in_columns_of(fitted: Data, source: Any) -> Any:
    """Return new rows with the fitted columns alone, in their order, if a data frame has all."""
    found = as_frame(source)
    if not isinstance(found, pd.DataFrame) or not fitted.has_column_names:
        return source
    place = {str(name): at for at, name in enumerate(found.columns)}
    if len(place) < found.shape[1] or not place.keys() >= set(fitted.column_names):
        return source
    return found.iloc[:, [place[name] for name in fitted.column_names]]


def check_columns(fitted: Data, new: Data) -> None:
    """Refuse new rows whose columns are not those of the fitted matrix; `by_names` orders them."""
    are_named = fitted.has_column_names and new.has_column_names
    if are_named and (why := _lacking(fitted.column_names, new.column_names)):
        raise InputError(f"{why}; give the same columns, those of which nothing is known with NaN")
    hint = ", by column_names=fit.data.column_names" if isinstance(new, Ratings) else ""
    if new.num_columns != fitted.num_columns:
        raise InputError(
            f"the new rows have {new.num_columns} columns and the fitted matrix "
            f"{fitted.num_columns}; give the same columns in the same order{hint}"
        )


def _lacking(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Say which names of fitted columns new rows lack, and which they have beside; else nothing.

    Examples
    --------
    >>> _lacking("abc", "bX")
    "columns 'a' and 'c' of the fitted matrix are not in the new rows, which have 'X' beside"
    >>> _lacking("ab", "baX")
    ''
    """
    gone, more = (
        [name for name in names if name not in known]
        for names, known in ((ours, set(theirs)), (theirs, set(ours)))
    )
    if not gone:
        return ""
    many = len(gone) > 1
    said = f"column{'s' * many} {_some(gone)} of the fitted matrix {'are' if many else 'is'} not in"
    return f"{said} the new rows" + (f", which have {_some(more)} beside" if more else "")


def _some(names: Sequence[str], most: int = 3) -> str:
    """List the first names, and how many there are beside."""
    listed = [repr(name) for name in names[:most]]
    rest = len(names) - most
    return in_words([*listed, f"{rest:,} more"] if rest > 0 else listed)
