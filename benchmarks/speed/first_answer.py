"""How long until the first answer? Seconds by phase, without and with compiled programs kept.

Each case is `bmfjax.fit` with its defaults, then what `bmfjax fit` writes, in a fresh process:

* import: until the data are read;
* start: checks, and where the chains start;
* sample: from the first step to the last;
* after: alignment, verdict, factors, and the fit and its report on disk;
* compile: tracing and compilation, which the other phases leave out. The programs are counted,
  whether they are compiled or read from the cache.

The cache is empty the first time ("cold") and holds the programs of that run the second
("warm"). On a machine that others use, too, the CPU seconds are those to compare. Ratings are
fitted with more and more steps of one chain until the error of those held out is at most 0.909.

    python benchmarks/speed/first_answer.py --movielens ml-100k
    python benchmarks/speed/first_answer.py --only zoo mushroom
    python benchmarks/speed/first_answer.py --only 100,000 sparse
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse

PHASES = ("import", "start", "sample", "after", "compile")
DENSE, MUSHROOM, RATINGS = "512 x 512, rank 30", "mushroom, rank 10", "MovieLens 100K, u1"
#: A tenth of the entries of a random product flipped; or few ones, of which few are wrong.
LARGE = {
    "100,000 x 1,000, rank 20": {"density": 0.5, "flip": 0.1},
    "sparse, 100,000 x 1,000, rank 20": {"density": 0.05, "flip": 0.002},
}
TARGET, STEPS = 0.909, (10, 20, 40, 80, 160)


class Watch:
    """Wall and CPU seconds of phases; those in which JAX traces or compiles are told apart."""

    def __init__(self):
        self.marks, self.compiling = [("begin", *_now())], []
        self.compilations = 0
        self._log, self._over = [_now()], threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def listen(self):
        """Look at both clocks now and then: JAX tells of a compilation when it is over."""
        from jax import monitoring

        monitoring.register_event_duration_secs_listener(self._compiled)
        self._thread.start()

    def _run(self):
        while not self._over.wait(0.005):
            self._log.append(_now())

    def _compiled(self, event, duration, **_):
        if event.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            self.compiling.append((now - duration, now))
            # A program that is read from the cache counts, too.
            self.compilations += event.endswith("backend_compile_duration")

    def mark(self, phase):
        """End a phase."""
        self.marks.append((phase, *_now()))

    def seconds(self) -> dict:
        """Return {phase: {"wall": ..., "cpu": ...}}."""
        import numpy as np

        self._over.set()
        self._thread.join()
        self._log.append(_now())
        wall, cpu = np.array(self._log).T
        busy = _joined(self.compiling)
        found = {}
        for (_, *first), (phase, *last) in zip(self.marks, self.marks[1:], strict=False):
            inside = [(max(a, first[0]), min(b, last[0])) for a, b in busy]
            inside = np.array([span for span in inside if span[1] > span[0]]).reshape(-1, 2)
            spent = np.interp(inside, wall, cpu)
            compiled = np.array([np.ptp(inside, axis=1).sum(), np.ptp(spent, axis=1).sum()])
            for name, value in (
                (phase, np.subtract(last, first) - compiled),
                ("compile", compiled),
            ):
                found[name] = found.get(name, 0.0) + value
        return {
            n: dict(zip(("wall", "cpu"), np.round(found[n], 2).tolist(), strict=True))
            for n in PHASES
        }


def _now():
    return time.perf_counter(), time.process_time()


def _joined(spans):
    """Return the union of spans: programs are traced within others."""
    found = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def run_case(options) -> dict:
    """Fit one case in this process."""
    watch = Watch()
    import bmfjax
    from bmfjax.families import sampling
    from bmfjax.report.page import write_page

    if options.cache:
        bmfjax.use_compilation_cache(options.cache)
    watch.listen()
    data, rank, given, held_out = make_case(options)
    if held_out is None:
        given["max_time"] = options.max_time
    inner, started = sampling._sample, []

    def sample(*arguments, **more):
        if not started:
            watch.mark("start")
            started.append(True)
        try:
            return inner(*arguments, **more)
        finally:
            ended[:] = _now()

    ended = []
    sampling._sample = sample
    watch.mark("import")
    fit = bmfjax.fit(data, rank, progress=False, **given)
    watch.marks.append(("sample", *ended))
    if held_out is None:
        with tempfile.TemporaryDirectory() as folder:
            fit.save(Path(folder) / "fit")
            write_page(fit, Path(folder) / "report.html")
    error = {} if held_out is None else {"error": held_out(fit)}
    watch.mark("after")
    phases = watch.seconds()
    return {
        "phases": phases,
        "total": {
            clock: round(sum(spent[clock] for spent in phases.values()), 2)
            for clock in ("wall", "cpu")
        },
        "compilations": watch.compilations,
        "draws": int(fit.figures.num_draws),
        "rhat": round(float(fit.figures.rhat), 3),
        "verdict": fit.verdict.opening.split(",")[0],
        **error,
    }


def make_case(options):
    """Data, rank, options, and for ratings the error of those held out."""
    import numpy as np

    import bmfjax

    if options.case == DENSE:
        made = bmfjax.generate_product(512, 512, 30, density=0.5, flip=0.1, seed=0)
        return made.data, 30, {}, None
    if options.case in LARGE:
        made = bmfjax.generate_product(100_000, 1_000, 20, seed=0, **LARGE[options.case])
        return made.data, 20, {}, None
    if options.case == MUSHROOM:
        return bmfjax.load("mushroom"), 10, {}, None
    if options.case != RATINGS:
        return bmfjax.load(options.case), 4, {}, None
    from benchmarks.prediction.pmf_movielens import read_folds, shape_of

    folds = read_folds(options.movielens)[2]
    train, test = folds[0]
    ratings = bmfjax.Ratings(*train.T, shape=shape_of(folds), scale=(1, 5))
    given = {"model": "pmf", "num_chains": 1}
    given |= {"num_warmup": options.steps // 2, "num_samples": options.steps}

    def error(fit):
        mean = fit.predict_cells(test[:, 0], test[:, 1], kind="mean")
        return round(float(np.sqrt(np.mean((mean - test[:, 2]) ** 2))), 4)

    return ratings, 10, given, error


def in_a_process(options, case, cache, steps=0) -> dict:
    """Fit a case in a process of its own."""
    words = [sys.executable, __file__, "--case", case, "--steps", str(steps)]
    words += ["--cache", str(cache)] if cache else []
    words += ["--max-time", str(options.max_time)] if options.max_time else []
    words += ["--movielens", str(options.movielens)] if options.movielens else []
    # The cache is the one given: JAX's own settings are left out, and where ours would be.
    # Byte code is kept, as of an installed package.
    apart = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
    kept = {n: v for n, v in os.environ.items() if n not in apart}
    done = subprocess.run(words, capture_output=True, text=True, env=kept)
    if done.returncode:
        return {"failed": done.stderr.strip().split("\n")[-1]}
    return json.loads(done.stdout.strip().split("\n")[-1])


def cold_and_warm(options, case) -> dict:
    """Fit a case without and with what was compiled for it."""
    # Python compiles the modules of an installed package before they are first imported.
    compileall.compile_dir(Path(__file__).parents[2] / "bmfjax", quiet=1)
    with tempfile.TemporaryDirectory() as cache:
        steps = STEPS[0]
        cold = in_a_process(options, case, cache, steps)
        while case == RATINGS and cold.get("error", 0) > TARGET and steps < STEPS[-1]:
            # The first of every number of steps compiles; it is the one that counts as cold.
            steps = STEPS[STEPS.index(steps) + 1]
            with tempfile.TemporaryDirectory() as empty:
                cold = in_a_process(options, case, empty, steps)
        if case == RATINGS:
            in_a_process(options, case, cache, steps)
        # Compiling is little beside the minutes of a large matrix.
        warm = {} if case in LARGE else {"warm": in_a_process(options, case, cache, steps)}
    of_ratings = {"steps": steps + steps // 2} if case == RATINGS else {}
    return of_ratings | {"cold": cold} | warm


def cases(options) -> list[str]:
    """Every shipped matrix at rank 4, the larger cases, and ratings where their folder is given."""
    import bmfjax

    names = [d.name for d in bmfjax.datasets()] + [DENSE, MUSHROOM, *LARGE]
    return names + ([RATINGS] if options.movielens else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", help="cases whose names begin with one of these")
    parser.add_argument(
        "--movielens", type=Path, help="the publisher's folder, with its five folds"
    )
    parser.add_argument(
        "--max-time", type=float, help="seconds of sampling of a matrix; default: those of the fit"
    )
    parser.add_argument("--output", type=Path)
    for name, kind in (("--case", str), ("--cache", Path), ("--steps", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parse(parser)
    if options.case:
        print(json.dumps(run_case(options)))
        return
    from benchmarks.record import write_record

    figures = {"threads": os.cpu_count(), "max_time": options.max_time, "cases": {}}
    for case in cases(options):
        if options.only and not case.startswith(tuple(options.only)):
            continue
        figures["cases"][case] = found = cold_and_warm(options, case)
        for cache in ("cold", "warm"):
            print(f"{case} ({cache})", found[cache], flush=True)
    print(write_record("first_answer", figures, options.output))


if __name__ == "__main__":
    main()
