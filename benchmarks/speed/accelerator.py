"""What do the samplers do on an accelerator?

One command of at most eight minutes. Each phase is a process of its own with a limit on its time.
What compiles long compiles side by side, a phase for each core, and only one of them times at a
time. The small sizes run on the CPU beside it, on two cores that nothing else has. After each phase
the record and its page are written anew, so that a run that is cut off leaves what it has found. A
phase that fails or takes too long leaves its message, and no phase takes the seconds that those
after it need.

The record is named by the device. Tests run there by `python -m pytest -m device -n 16`, sooner
with `XLA_FLAGS=--xla_gpu_autotune_level=0`.

    python benchmarks/speed/accelerator.py --device gpu
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it runs as a file

from benchmarks.device import COMMIT, script, some
from benchmarks.form import named, number, page, shown, table
from benchmarks.record import write_record
from benchmarks.speed.accelerator_phases import (
    BESIDE,
    CORES,
    OWN_CORES,
    PHASES,
    STAGES,
    TURNS,
    num_cores,
)

PROGRAM = Path(__file__).with_name("accelerator_phases.py")
#: Seconds that a phase must have to be worth its start.
LEAST = 10


def run_phase(name: str, seconds: float, folder: Path, given: dict) -> tuple[dict, dict]:
    """Run a phase; return what it found, and how it ended."""
    folder = folder / name.replace(" ", "_")
    folder.mkdir()
    path, log = folder / "found.json", folder / "log.txt"
    # Several processes may be on the device at once.
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment |= PHASES[name].environment | given
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name, str(path)], stdout=output,
            stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # and whatever it has started
            if process.poll() is None or code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    end = {"seconds": round(time.monotonic() - began, 1), "limit_seconds": round(seconds)}
    if code is None:
        end["stopped"] = "at its limit"
    elif code != 0:
        lines = log.read_text(errors="replace").strip().splitlines()
        end["stopped"] = f"exit code {code}: {' / '.join(lines[-3:])[-400:]}"
    try:
        return json.loads(path.read_text()), end
    except (OSError, ValueError):
        return {}, end


def slug(kind: str) -> str:
    """Return a short name of a device, for its record.

    Examples
    --------
    >>> [slug(kind) for kind in ("NVIDIA H100 80GB HBM3", "cpu", "TPU v5 lite")]
    ['h100', 'cpu', 'tpu_v5_lite']
    """
    model = re.search(r"\b[A-Z]+\d+[A-Z]*\b", kind)
    return re.sub(r"\W+", "_", model[0] if model else kind).strip("_").lower()


NOTES = [
    ("46765b9",
     "in this commit the loop over factors was not unrolled below 1,048,576 words, which cost 1 "
     "to 2 ms at 1,000 and 10,000 rows: accelerator_h100_unrolled has them as they are"),
    ("cb09220", "before ratings were drawn in one batch; no test was marked for a device yet"),
    ("a3fe525", "some phases only, in the time that was left on the card"),
    ("543e6a34",
     "on six cores; counts_by_code took turns with it on the card until the starts; a million "
     "stars did not end in time; the tests did not begin, for want of files of theirs"),
]  # fmt: skip

ANSWER = """
On one NVIDIA H200 a sweep of 1,300,000 x 20,000 takes 12.6 ms with kernels of our own (64.5 ms with
arrays, in the same run), and one of 10,808,000 x 20,000, which fills the card, 98.6 ms. On an H100,
before there were kernels, the first took 69 ms.

| a sweep | H100, arrays | H200, kernels | two CPU cores |
| --- | --- | --- | --- |
| Boolean, 1,000 x 1,000, rank 10 | 0.33 ms | 0.85 ms | 1.10 ms |
| Boolean, 10,000 x 1,000, rank 20 | 0.59 ms | 1.25 ms | 13.8 ms |
| Boolean, 100,000 x 1,000, rank 20 | 1.06 ms | 0.73 ms | 85 ms |
| Boolean, 1,300,000 x 20,000, rank 10 | 69.2 ms | 12.6 ms | |
| Boolean, 10,808,000 x 20,000, rank 10 | | 98.6 ms | |
| votes, rank 8, four temperatures | 1.52 ms | 4.10 ms | 58.5 ms |
| relaxed, 512 x 512, rank 30, four chains | 1.42 ms | 1.31 ms | 4.36 ms |
| nmf, 2,000 x 1,000, rank 10, four chains | 3.46 ms | 4.27 ms | 636 ms |
| ratings, 100,000 stars, rank 32, four chains | 3.77 ms | 3.68 ms | 85.5 ms |
| ratings, a million stars, rank 32, four chains | 11.5 ms | | |
| exact logistic, 1,000 x 500, rank 8, four chains | 0.72 ms | 2.72 ms | 73.7 ms |
| binary features, 10,000 x 1,000, rank 16, four chains | | 26.6 ms | |

Sweeps below a few milliseconds were timed on the H200 while other programs compiled on the same six
cores and took turns on the card, so that these are slower than they need to be: [by
themselves](results/one_kernel.json) 1,000 x 1,000 takes 0.31 ms and 10,000 x 1,000 0.38. The CPU is
measured beside it; 100,000 rows are [of another run](results/ormachine_speed.json).

Starts of 4,000 x 2,000 at rank 20 take 11.7 s on the H200 with all compilation (15 were hoped for).
A first answer for the votes takes 15.6 s on the H100, of which 8.0 s are compiling, and 20.3 s on
the H200. Of the tests that are marked for a device 107 passed on the H100 and none failed; on the
H200 none ran in this run.
"""

#: The phases that time sweeps; the CPU beside the device has some of their cases.
SWEEPS = (
    "boolean", "large boolean", "votes", "models", "relaxed", "nonnegative", "ratings",
    "large ratings", "features", "large features", "blocks", "largest",
)  # fmt: skip


@page(__doc__, "accelerator_[!c]*", "accelerator_cpu*", notes=NOTES)
def tables(records: dict):
    yield (
        "One command, on one device. Boolean sweeps are of one chain on random words; the votes "
        "have four temperatures; the other models have four chains. Medians of three rounds. `at "
        "once` is how many blocks of rows and of columns there are; a device takes as many of "
        "them side by side as its budget of memory holds. A case without figures has its message."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        yield _device(record["device"], found.get("device", {}))
        yield table(
            ["case", "ms a sweep", "quickest", "CPU beside it, ms", "compiling, s",
             "blocks of rows, of columns", "temporaries, MB"],
            [
                _sweep(case, one, found.get("on cpu", {}).get(case))
                for phase in SWEEPS for case, one in found.get(phase, {}).items()
            ],
        )  # fmt: skip
        yield from _rest(found)
        yield "Phases, in seconds."
        yield shown(named(found["phases"], "phase"), {
            "phase": "", "seconds": "seconds?", "limit": "limit_seconds?",
            "stopped": lambda end: end.get("stopped", "")})  # fmt: skip


def _device(device: dict, found: dict) -> str:
    """Tell what the device is and does."""
    memory, budget = (found.get(n) for n in ("memory_bytes", "budget_bytes"))
    parts = [f"{device['kind']}"]
    parts += [f"{memory / 1e9:.1f} GB for programs"] if isinstance(memory, int) else []
    parts += [f"{budget / 1e9:.1f} GB of them for blocks at once"] if budget else []
    for name, what in (
        ("copy_gb_per_s", "GB/s copied"),
        ("full_float32_tflops", "TFLOP/s of full float32 products"),
        ("default_float32_tflops", "TFLOP/s of products as JAX makes them by default"),
    ):
        if isinstance(found.get(name), float):
            parts.append(f"{number(found[name])} {what}")
    return ", ".join(parts) + "."


def _sweep(case: str, one: dict, of_cpu: dict | None) -> list:
    if "error" in one:
        return [case, one["error"], *[""] * 5]
    blocks = " and ".join(number(n) for n in one.get("blocks", ()))
    temporary = one.get("temporary_bytes")
    return [
        case, number(one["sweep_ms"], 2), number(one["sweep_ms_quickest"], 2),
        number((of_cpu or {}).get("sweep_ms"), 2), number(one["compile_seconds"], 1), blocks,
        number(None if temporary is None else temporary / 1e6, 1),
    ]  # fmt: skip


def _rest(found: dict):
    """Write what is no sweep: steps of IASG, fits, tests."""
    if steps := found.get("iasg"):
        yield "Microseconds of a step of IASG, 512 x 512 at rank 30."
        kinds = ("products", "published", "with curvature")
        yield table(["batch", *kinds], [
            [batch.removeprefix("batch "), *(one.get(kind, one.get("error")) for kind in kinds)]
            for batch, one in steps.items()])  # fmt: skip
    for phase, what in (("starts", "Starts"), ("first answer", "A first answer")):
        for case, one in found.get(phase, {}).items():
            told = ", ".join(f"{n.replace('_', ' ')} {_plain(v)}" for n, v in one.items())
            yield f"{what}, {case}: {told}."
    for one in found.get("tests", {}).values():
        late = one.get("not ended", 0)  # in earlier records their names
        late = len(late) if isinstance(late, list) else late
        kinds = {kind: n for kind, n in one.items() if _is_count(n) and kind != "not ended"}
        counts = ", ".join(f"{number(n)} {kind}" for kind, n in kinds.items())
        bad = "; ".join(f"`{test}`" for test in one.get("not passed", ())) or "none"
        told = counts or one.get("error") or "none ran"
        yield f"Tests of the kernels there: {told}. Not passed: {bad}."
        if late:
            yield f"Not ended in their {number(one.get('seconds'))} s: {late}."


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _plain(value) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{n} {_plain(v)}" for n, v in value.items())
    if isinstance(value, list):
        return " + ".join(map(_plain, value))
    return value if isinstance(value, str) else number(value)


def seconds_for(name: str, later, left: float) -> float:
    """Return the seconds of a phase, of those left, so that those of the stages after it begin.

    Where too few are left for all, the last of them do not.

    Examples
    --------
    >>> seconds_for("starts", [["largest"], ["boolean"]], 305.0)
    180.0
    >>> [seconds_for("starts", [["largest"], ["boolean"]], left) for left in (100.0, 20.0)]
    [30, 20.0]
    """
    own = PHASES[name].least
    others = sum(max((PHASES[n].least for n in stage), default=0) for stage in later)
    return max(left - others, min(left, own))


def _cores() -> tuple[dict, dict]:
    """Return variables that give the phase beside the others its cores, and them the rest."""
    ask = getattr(os, "sched_getaffinity", None)
    cores = sorted(ask(0)) if ask else []
    if len(cores) < 2 * OWN_CORES:
        return {}, {}
    named = lambda cores: {CORES: " ".join(map(str, cores))}  # noqa: E731
    return named(cores[-OWN_CORES:]), named(cores[:-OWN_CORES])


def _tell(name: str, figures: dict, options) -> None:
    """Say what a phase found, and write the record and its page anew."""
    print(name, figures["phases"][name], flush=True)
    for case, figure in figures[name].items():
        print("   ", case, figure, flush=True)
    found = figures.get("device", {})
    kind = str(found.get("kind", "unknown"))
    device = {"platform": found.get("platform", "unknown"), "kind": kind}
    try:
        write_record(f"accelerator_{slug(kind)}", figures, options.output, device=device,
                     commit=options.commit)  # fmt: skip
    except Exception as error:  # the record is there, its page not: time on a card is short
        print(f"no page was written: {type(error).__name__}: {error}", flush=True)


@script(__doc__, only=some(PHASES), limit=(480.0, "seconds in all"), commit=COMMIT)
def main(options):
    end = time.monotonic() + options.limit
    # The record says on which device all is measured.
    chosen = {"device", *options.only}
    figures = {"limit_seconds": options.limit, "phases": {}}
    own, rest = _cores() if BESIDE in chosen else ({}, {})
    lock = threading.Lock()

    def one(name, seconds, given, folder):
        if seconds < LEAST:
            found, ended = {}, {"stopped": "not begun: no time was left"}
        else:
            found, ended = run_phase(name, min(PHASES[name].seconds, seconds), folder, given)
        with lock:
            figures[name], figures["phases"][name] = found, ended
            figures["phases"] = {n: figures["phases"][n] for n in PHASES if n in figures["phases"]}
            _tell(name, figures, options)

    def of_stage(name, later, folder):
        given = {} if beside is not None and beside.done() else rest
        one(name, seconds_for(name, later, end - time.monotonic()), given | turns, folder)

    # What compiles has about a core.
    few = max(1, num_cores() - (OWN_CORES if own else 0))
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(few) as threads,
        ThreadPoolExecutor(1) as other,
    ):
        beside, folder = None, Path(folder)
        turns = {TURNS: str(folder / "turns")}
        stages = [[name for name in stage if name in chosen] for stage in STAGES]
        for number, stage in enumerate(stages):
            later = stages[number + 1 :] if number else []  # the first names the record
            for phase in [threads.submit(of_stage, n, later, folder) for n in stage]:
                phase.result()
            if number == 0 and BESIDE in chosen:
                left = end - time.monotonic()
                beside = other.submit(one, BESIDE, left, own, folder)
