"""What `accelerator.py` measures: a phase is one call of this script, in a process of its own.

A phase writes what it has found after every case, so that one that is stopped leaves the rest. A
case that fails leaves its message.

    python benchmarks/speed/accelerator_phases.py PHASE FILE
"""

import contextlib
import dataclasses
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

ROOT = Path(__file__).parents[2]
#: Rows, columns and rank of Boolean matrices of random words, and whether a CPU runs them too.
BOOLEAN = {
    "1,000 x 1,000, rank 10": (1_000, 1_000, 10, True),
    "10,000 x 1,000, rank 20": (10_000, 1_000, 20, True),
    "100,000 x 1,000, rank 20": (100_000, 1_000, 20, False),
    "300,000 x 5,000, rank 10": (300_000, 5_000, 10, False),
    "1,300,000 x 20,000, rank 10": (1_300_000, 20_000, 10, False),
}
#: Which of them run without a kernel of our own, too.
ARRAYS, LARGEST = "100,000 x 1,000, rank 20", "1,300,000 x 20,000, rank 10"
#: Seconds of sampling that a case is timed for, and rounds of these.
SECONDS, ROUNDS, CHAINS = 0.6, 3, 4


class Found:
    """What a phase has found so far, on disk after every case if there is a path."""

    def __init__(self, path: Path | None = None):
        self.path, self.figures = path, {}

    def add(self, name: str, make: Callable[[], object]) -> None:
        """Add what a case gives, or why it gives nothing."""
        try:
            self.figures[name] = make()
        except Exception as error:
            self.figures[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(name, self.figures[name], flush=True)
        if self.path is not None:
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(self.figures))
            part.replace(self.path)


def figures_of(parts: dict, chosen):
    """Yield figures after every case of some parts, each of which yields names and cases."""
    figures = {}
    for part in chosen:
        found = Found()
        for name, case in parts[part]():
            found.add(name, case)
            yield figures | {part: found.figures}
        figures[part] = found.figures


# ---- side by side ---------------------------------------------------------------------------

#: The file by which phases that run side by side take turns, and the cores that a phase may use.
TURNS, CORES = "BMFJAX_BENCHMARK_TURNS", "BMFJAX_BENCHMARK_CORES"


@contextlib.contextmanager
def timing():
    """Wait until no phase beside this one times anything.

    What others compile meanwhile is not waited for: it takes minutes where cores are few, and
    phases that wait for each other's programs time nothing in the end.
    """
    path = os.environ.get(TURNS)
    if not path or fcntl is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file gives the turn away


# ---- the device -----------------------------------------------------------------------------


def device(found: Found) -> None:
    """Tell what it is, and how fast it copies and multiplies."""
    import jax
    import jax.numpy as jnp

    from bmfjax.kernels.numerics.budget import device_budget, device_memory

    one = jax.devices()[0]
    found.add("platform", lambda: one.platform)
    found.add("kind", lambda: one.device_kind)
    found.add("memory_bytes", device_memory)
    found.add("budget_bytes", lambda: device_budget().bytes)

    def copies():
        words = jnp.zeros(2**28 if one.platform != "cpu" else 2**24, jnp.uint32)
        return round(2 * words.nbytes / _quickest(lambda x: x + 1, words) / 1e9, 1)

    def products(precision):
        n = 8192 if one.platform != "cpu" else 1024
        a = jax.random.normal(jax.random.key(0), (n, n))
        seconds = _quickest(lambda x: jnp.dot(x, x, precision=precision), a)
        return round(2 * n**3 / seconds / 1e12, 2)

    found.add("copy_gb_per_s", copies)
    found.add("full_float32_tflops", lambda: products("highest"))
    found.add("default_float32_tflops", lambda: products("default"))


def _quickest(f, x) -> float:
    import jax

    run, times = jax.jit(f), []
    jax.block_until_ready(run(x))
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(run(x))
        times.append(time.perf_counter() - began)
    return min(times)


# ---- sweeps ---------------------------------------------------------------------------------


def sweep_times(algorithm, state, data) -> dict:
    """Time the sweeps of one chain in one program."""
    import jax
    import numpy as np
    from jax import lax, random

    from bmfjax.kernels.numerics.compiling import chain_options

    def many(key, number, state, data):
        step = lambda i, s: algorithm.step(random.fold_in(key, i), s, data)[0]  # noqa: E731
        return lax.fori_loop(0, number, step, state)

    began = time.perf_counter()
    lowered = jax.jit(many).lower(random.key(0), np.int32(1), state, data)
    program = lowered.compile(compiler_options=chain_options())
    compile_seconds = time.perf_counter() - began

    def seconds(key, number):
        began = time.perf_counter()
        jax.block_until_ready(program(random.key(key), np.int32(number), state, data))
        return time.perf_counter() - began

    with timing():
        seconds(0, 1)
        number = int(np.clip(SECONDS / ROUNDS / seconds(1, 1), 1, 200))
        times = [1e3 * seconds(2 + r, number) / number for r in range(ROUNDS)]
    return {
        "sweep_ms": round(float(np.median(times)), 3),
        "sweep_ms_quickest": round(min(times), 3),
        "sweeps_a_round": number,
        "compile_seconds": round(compile_seconds, 1),
        "temporary_bytes": program.memory_analysis().temp_size_in_bytes,
    }


def boolean_case(rows: int, columns: int, rank: int, budget=None) -> dict:
    """Time sweeps over random words that are made on the device."""
    import jax
    import jax.numpy as jnp
    from jax import random

    from bmfjax.kernels.boolean.density import BooleanDensity
    from bmfjax.kernels.boolean.gibbs import ormachine
    from bmfjax.kernels.boolean.words import PackedData, PackedLines, block_shape
    from bmfjax.kernels.numerics.budget import device_budget

    budget = device_budget() if budget is None else budget
    room = _room()
    needed = 2 * rows * columns / 8
    if needed > room:
        raise MemoryError(f"needs {needed / 1e9:.1f} GB, and {room / 1e9:.1f} GB are for it")

    def lines(key, number, entries):
        words = -(-entries // 32)
        blocks, size = block_shape(number, words)
        # Block by block: random words take more memory on the way than they fill.
        make = lambda k: random.bits(k, (size, words), jnp.uint32)  # noqa: E731
        few = max(1, min(blocks, 2**24 // (size * words)))
        make_all = jax.jit(lambda k: jax.lax.map(make, random.split(k, blocks), batch_size=few))
        return PackedLines(make_all(key), None, budget)

    count = jnp.float32(rows * columns / 2)
    sides = lines(random.key(0), rows, columns), lines(random.key(1), columns, rows)
    data = PackedData(*sides, count, count)
    algorithm = ormachine(BooleanDensity((rows, columns), rank))
    state = jax.block_until_ready(jax.jit(algorithm.init)(random.key(0), None, data))
    blocks = {"blocks": [s.ones.shape[0] for s in sides], "words": sum(s.ones.size for s in sides)}
    return sweep_times(algorithm, state, data) | blocks


def _room() -> float:
    """Return the bytes that packed words may take."""
    import psutil

    from bmfjax.kernels.numerics.budget import device_memory

    memory = device_memory()
    return psutil.virtual_memory().available / 8 if memory is None else memory / 2


def boolean(found: Found, is_large: bool = False) -> None:
    """Time Boolean sweeps by size; two of them also without a kernel of our own."""
    from bmfjax.kernels.numerics.budget import device_budget

    cases = {name: size for name, (*size, is_small) in BOOLEAN.items() if is_small != is_large}
    for name, size in cases.items():
        found.add(name, functools.partial(boolean_case, *size))
    if device_budget().fused:
        array_code = dataclasses.replace(device_budget(), fused=False)
        name = LARGEST if is_large else ARRAYS
        make = functools.partial(boolean_case, *BOOLEAN[name][:3], array_code)
        found.add(f"{name}, array code", make)


def votes_case() -> dict:
    """Time a sweep of the votes at four temperatures, as `ormachine_speed.py` does."""
    import jax
    from jax import random

    from benchmarks.speed import ormachine_speed

    data, algorithm, *_ = ormachine_speed.problem(ormachine_speed.VOTES)
    state = jax.block_until_ready(jax.jit(algorithm.init)(random.key(0), None, data))
    return sweep_times(algorithm, state, data)


def _binary(rows, columns, rank):
    from bmfjax.data import generate_product

    return generate_product(rows, columns, rank, flip=0.1, seed=0).data


def _positive(rows, columns, rank):
    import numpy as np

    rng = np.random.default_rng(0)
    usage, basis = rng.gamma(1.0, 1.0, (rows, rank)), rng.gamma(1.0, 1.0, (rank, columns))
    return usage @ basis + rng.normal(0, 0.1, (rows, columns)) ** 2


def _ratings(rows, columns, number):
    import numpy as np

    import bmfjax

    rng = np.random.default_rng(0)
    cells = rng.integers(0, rows * columns, number + number // 4)
    cells = rng.permutation(np.unique(cells))[:number]
    stars = rng.integers(1, 6, len(cells)).astype(float)
    return bmfjax.Ratings(cells // columns, cells % columns, stars, shape=(rows, columns))


#: Models of numbers: data, rank, options; and whether a CPU runs them too.
MODELS = {
    "relaxed, 512 x 512, rank 30": (
        lambda: _binary(512, 512, 30), 30, {"model": "relaxed"}, True,
    ),
    "nmf, 2,000 x 1,000, rank 10": (
        lambda: _positive(2000, 1000, 10), 10, {"model": "nmf"}, True,
    ),
    "ratings, 943 x 1,682, 100,000 stars, rank 32": (
        lambda: _ratings(943, 1682, 100_000), 32, {"model": "pmf"}, True,
    ),
    "ratings, 6,040 x 3,706, a million stars, rank 32": (
        lambda: _ratings(6040, 3706, 1_000_000), 32, {"model": "pmf"}, False,
    ),
    "features, 1,000 x 200, rank 16": (
        lambda: _binary(1000, 200, 16), 16, {"model": "features"}, True,
    ),
    "features, 10,000 x 1,000, rank 16": (
        lambda: _binary(10_000, 1000, 16), 16, {"model": "features"}, False,
    ),
    "logistic, exact, 1,000 x 500, rank 8": (
        lambda: _binary(1000, 500, 8), 8, {"model": "logistic", "sampler": "gibbs"}, True,
    ),
    "relaxed, 4,096 x 4,096, rank 30": (
        lambda: _binary(4096, 4096, 30), 30, {"model": "relaxed"}, False,
    ),
}  # fmt: skip


def model_case(make, rank: int, options: dict) -> dict:
    """Time sweeps of four chains as a fit runs them, from random starts."""
    import numpy as np
    from jax import random

    from bmfjax.families import ask
    from bmfjax.infer.run import ChainRun

    chains = ask(
        make(), rank, num_chains=CHAINS, num_warmup=0, num_samples=8, seed=0, **options
    ).chains()
    run = ChainRun(chains.algorithm, random.key(0), chains.data, num_chains=CHAINS,
                   num_warmup=10**6, num_samples=1, chunk_size=1000)  # fmt: skip

    def seconds(number):
        began = time.perf_counter()
        run.advance(number)
        return time.perf_counter() - began

    compile_seconds = seconds(1)
    with timing():
        seconds(1)
        number = int(np.clip(SECONDS / ROUNDS / seconds(1), 1, 200))
        times = [1e3 * seconds(number) / number for _ in range(ROUNDS)]
    return {
        "sweep_ms": round(float(np.median(times)), 3),
        "sweep_ms_quickest": round(min(times), 3),
        "sweeps_a_round": number,
        "compile_seconds": round(compile_seconds, 1),
    }


def models(found: Found, *kinds: str, small_only: bool = False) -> None:
    """Time sweeps of the other models, or of these."""
    for name, (*case, is_small) in MODELS.items():
        if (is_small or not small_only) and name.startswith(kinds or ("",)):
            found.add(name, functools.partial(model_case, *case))


def votes(found: Found) -> None:
    """Time a sweep of the collapsed sampler."""
    found.add("votes, rank 8, four temperatures", votes_case)


def on_cpu(found: Found) -> None:
    """Time the small sizes on the CPU beside the device."""
    boolean(found)
    votes(found)
    models(found, small_only=True)


# ---- fits -----------------------------------------------------------------------------------


def first_answer(found: Found) -> None:
    """Time a fit of the house votes in a new process, with compiling and the verdict."""

    def fit():
        began = time.perf_counter()
        import bmfjax

        importing, compiled = time.perf_counter() - began, _compile_seconds()
        data = bmfjax.load("house-votes")
        answer = bmfjax.fit(data, 4, seed=0, progress=False, max_time=20)
        return {
            "seconds": round(time.perf_counter() - began, 1),
            "importing_seconds": round(importing, 1),
            "compile_seconds": round(sum(compiled), 1),
            "verdict": str(answer.verdict).split(";")[0],
        }

    found.add("votes, rank 4", fit)


def starts(found: Found) -> None:
    """Time the starts of a medium matrix, in all and in parts."""
    from jax import random

    import bmfjax.infer.boolean_start as module

    name, compiled, parts = "4,000 x 2,000, rank 20, four chains", _compile_seconds(), {}

    def seconds_so_far():
        return {part: [round(s, 1) for s in times] for part, times in parts.items()}

    def tell():
        found.add(f"{name}: parts", seconds_so_far)

    for part in ("annealed_means", "_swept", "prune"):
        setattr(module, part, _timed(getattr(module, part), parts, tell))

    def case():
        data = _binary(4000, 2000, 20)
        began = time.perf_counter()
        module.boolean_starts(random.key(0), data, 20, CHAINS, num_exchange=module.EXCHANGE)
        return {
            "seconds": round(time.perf_counter() - began, 1),
            "compile_seconds": round(sum(compiled), 1),
            "programs": len(compiled),
        }

    found.add(name, case)


def _timed(f, parts: dict, tell: Callable[[], None]):
    def timed(*given, **named):
        began = time.perf_counter()
        answer = f(*given, **named)
        parts.setdefault(f.__name__.strip("_"), []).append(time.perf_counter() - began)
        tell()
        return answer

    return timed


def _compile_seconds() -> list[float]:
    """Return a list to which the seconds of every compilation from now on are added."""
    from jax import monitoring

    found = []

    def listen(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            found.append(duration)

    monitoring.register_event_duration_secs_listener(listen)
    return found


def largest(found: Found) -> None:
    """Take sweeps of a matrix whose words fill most of the memory; a smaller one if that fails."""
    columns, rank = 20_000, 10
    for share in (0.8, 0.6, 0.4):
        rows = int(share * _room() * 8 / (2 * columns)) // 1000 * 1000 or 1000
        name = f"{rows:,} x {columns:,}, rank {rank}"
        found.add(name, functools.partial(boolean_case, rows, columns, rank))
        if "error" not in found.figures[name]:
            return


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    ask = getattr(os, "sched_getaffinity", None)
    return len(ask(0)) if ask else os.cpu_count() or 1


# ---- which phases there are -----------------------------------------------------------------


class Phase(NamedTuple):
    """A phase, the seconds it may take and should be left, and variables that it needs."""

    run: Callable[[Found], None]
    seconds: float
    least: float
    environment: Mapping[str, str] = MappingProxyType({})


def _sweeps(run: Callable[[Found], None]) -> Phase:
    """Return a phase that compiles beside others."""
    return Phase(run, 150, 100)


#: All phases.
PHASES = {
    "device": Phase(device, 40, 20),
    "boolean": _sweeps(boolean),
    "votes": _sweeps(votes),
    "relaxed": _sweeps(lambda found: models(found, "relaxed", "logistic")),
    "nonnegative": _sweeps(lambda found: models(found, "nmf")),
    "ratings": _sweeps(lambda found: models(found, "ratings, 943")),
    "large ratings": _sweeps(lambda found: models(found, "ratings, 6,040")),
    "features": _sweeps(lambda found: models(found, "features, 1,000")),
    "large features": _sweeps(lambda found: models(found, "features, 10,000")),
    "starts": Phase(starts, 90, 30),
    "first answer": Phase(first_answer, 60, 30),
    "large boolean": Phase(functools.partial(boolean, is_large=True), 100, 45),
    "largest": Phase(largest, 60, 25, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}),
    "on cpu": Phase(on_cpu, 280, 0, {"JAX_PLATFORMS": "cpu"}),
}
#: Stages come one after the other, and the phases of a stage run side by side: what they compile
#: takes longest, and begins first. What matters most comes first.
STAGES = (
    ("device",),
    ("large features", "features", "boolean", "votes", "relaxed", "large ratings", "ratings",
     "nonnegative"),
    ("starts",), ("first answer",), ("large boolean", "largest"),
)  # fmt: skip
#: Runs beside all stages but the first, on cores of its own, as many as those of the records of
#: CPUs. The phases that follow when it has ended have them too.
BESIDE, OWN_CORES = "on cpu", 2


if __name__ == "__main__":
    if os.environ.get(CORES) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, os.environ[CORES].split()))
    sys.path.insert(0, str(ROOT))
    PHASES[sys.argv[1]].run(Found(Path(sys.argv[2])))
