"""How many seconds does a first answer take?

Each case is `bmfjax.fit` with its defaults, then what `bmfjax fit` writes, in a fresh process, in
phases: "import", until the data are read; "start", checks, and where the chains start; "sample",
from the first step to the last; "after", alignment, verdict, factors, and the fit and its report on
disk; and "compile", tracing and compilation, which the other phases leave out.

The cache is empty the first time ("cold") and holds the programs of that run the second ("warm").
Ratings are fitted with more and more steps of one chain until the error of those held out is at
most 0.909.

    python -m benchmarks.speed.first_answer --movielens ml-100k --data data

With `--limit 20` each case is instead `bmfjax fit --max-time 20` with an empty cache, the whole
command, `--tries` times: how long it took, and whether there was a result.

    python -m benchmarks.speed.first_answer --limit 20 --only house-votes 700 20 4,000
"""

import compileall
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.device import COMMIT, HIDDEN, apart, script
from benchmarks.form import SECONDS, number, page, shown, table

PHASES = ("import", "compile", "start", "sample", "after")
MUSHROOM, RATINGS = "mushroom, rank 10", "MovieLens 100K, u1"
DENSE, SURVEY = "512 x 512, rank 30, Boolean", "verbal aggression, rank auto"
#: A tenth of the entries of a random product flipped; or few ones, of which few are wrong.
LARGE = {
    "100,000 x 1,000, rank 20": {"density": 0.5, "flip": 0.1},
    "sparse, 100,000 x 1,000, rank 20": {"density": 0.05, "flip": 0.002},
}
#: Random products with a tenth of the entries flipped: rows, columns and rank.
PRODUCTS = {
    "700 x 765, rank 8": (700, 765, 8),
    "20 x 50,000, rank 4": (20, 50_000, 4),
    "4,000 x 2,000, rank 20": (4_000, 2_000, 20),
}
#: Share of the time by which a command may be late.
LATE = 1.25
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
        given |= {"max_time": options.max_time, "until": options.until}
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

    if options.one == DENSE:
        made = bmfjax.generate_product(512, 512, 30, density=0.5, flip=0.1, seed=0)
        return made.data, 30, {"model": "ormachine"}, None
    if options.one == SURVEY:
        from benchmarks.prediction.panel_data import SETS, read
        from bmfjax.data import BinaryMatrix

        ones, observed = read(options.data / SETS["aggression"][0])
        return BinaryMatrix(np.where(observed, ones, np.nan)), "auto", {}, None
    if options.one in PRODUCTS:
        *shape, rank = PRODUCTS[options.one]
        made = bmfjax.generate_product(*shape, rank, density=0.5, flip=0.1, seed=0)
        return made.data, rank, {}, None
    if options.one in LARGE:
        made = bmfjax.generate_product(100_000, 1_000, 20, seed=0, **LARGE[options.one])
        return made.data, 20, {}, None
    if options.one == MUSHROOM:
        return bmfjax.load("mushroom"), 10, {}, None
    if options.one != RATINGS:
        return bmfjax.load(options.one), 4, {}, None
    from benchmarks.prediction.pmf_movielens import read_folds, shape_of

    folds = read_folds(options.movielens)
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
    words = ["--one", case, "--steps", steps, "--until", options.until]
    words += ["--cache", cache] if cache else []
    words += ["--max-time", options.max_time] if options.max_time else []
    for name in ("movielens", "data"):
        words += [f"--{name}", vars(options)[name]] if vars(options)[name] else []
    # The cache is the one given: JAX's own settings are left out, and where ours would be.
    # Byte code is kept, as of an installed package.
    left_out = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
    kept = {n: v for n, v in os.environ.items() if n not in left_out}
    return apart(*words, failed="failed", environment=kept)


def cold_and_warm(options, case) -> dict:
    """Fit a case without what was compiled for it, and a small one with it, too."""
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
        once = case in LARGE or case in PRODUCTS
        warm = {} if once else {"warm": in_a_process(options, case, cache, steps)}
    about = {"steps": steps + steps // 2} if case == RATINGS else {"max_time": options.max_time}
    return about | {"load": round(os.getloadavg()[0], 1), "cold": cold} | warm


def limited(options, case) -> list[dict]:
    """Run the command on a case with a limit, some times, each with an empty cache."""
    import numpy as np

    found = []
    with tempfile.TemporaryDirectory() as folder:
        source, place = Path(folder) / "data.npy", Path(folder) / "fit"
        options.one = case
        data, rank, *_ = make_case(options)
        values, hidden = data.part(np.arange(data.num_rows), np.arange(data.num_columns))
        values = np.where(hidden, np.nan, values)
        np.save(source, values)
        words = [sys.executable, "-m", "bmfjax", "fit", str(source), "--rank", str(rank)]
        words += ["--max-time", str(options.limit), "--until", options.until]
        words += ["--output", str(place), "--overwrite"]
        home = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
        for number in range(options.tries):
            cache = {"XDG_CACHE_HOME": str(Path(folder) / f"cache-{number}"), "PYTHONPATH": path}
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            own = {n: v for n, v in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
            done = subprocess.run(words, capture_output=True, text=True, env=own | cache)
            wall = time.perf_counter() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode in (1, 2):  # it is no answer to the question
                raise SystemExit(done.stderr)
            fit = place / "summary.json"
            drawn = json.loads(fit.read_text())["scalars"] if fit.exists() else {}
            found.append(
                {
                    "wall": round(wall, 1),
                    "cpu": round(after.ru_utime + after.ru_stime - before.ru_utime
                                 - before.ru_stime, 1),
                    "load": round(os.getloadavg()[0], 1),
                    "code": done.returncode,
                    "result": fit.exists(),
                    "page": (place / "report.html").exists(),
                    "warmup": drawn.get("num_warmup"),
                    "draws": drawn.get("num_draws"),
                }
            )  # fmt: skip
            print(case, found[-1], flush=True)
            shutil.rmtree(place, ignore_errors=True)
    return found


def cases(options) -> list[str]:
    """Every shipped matrix at rank 4, the larger cases, and those whose folder is given."""
    import bmfjax

    names = [d.name for d in bmfjax.datasets()] + [*PRODUCTS, DENSE, MUSHROOM, *LARGE]
    return names + [RATINGS] * bool(options.movielens) + [SURVEY] * bool(options.data)


EARLIER = "of Boolean products, which were the default then"
NOTES = [
    ("18d7c059", "on both threads of one core, whose processor seconds count nearly twice"),
    ("492c5590", "each on one core"), ("fe743be", EARLIER), ("fa4df0e", f"the first {EARLIER}"),
    ("7d82477", f"{EARLIER}; {SECONDS}"),
    ("064a79b3", "one core of a machine of 16, of which others worked"),
    ("055c4a76", "four other processes on two threads of one core"),
]  # fmt: skip

ANSWER = """
More than were the aim. These are processor seconds of binary features, the default; `limit` is the
`--max-time`, `clock` the seconds that passed. The first three are on one core of two, the others on
both, which are two threads of one core, so that their processor seconds count nearly twice:

| matrix | limit | clock | first time | compiling | starts | sampling | after | again |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| house votes, rank 4 | | 35.7 | 35.4 | 10.1 | 6.8 | 13.2 | 4.0 | 24.9 |
| 700 x 765, rank 8 | 60 | 63.5 | 62.3 | 12.1 | 24.6 | 19.0 | 5.3 |  |
| 20 x 50,000, rank 4 | 60 | 63.2 | 62.8 | 10.3 | 18.6 | 25.7 | 6.8 |  |
| house votes, rank 4, both | 100 | 37.4 | 52.5 | 15.2 | 9.1 | 17.8 | 7.3 | 34.6 |
| 700 x 765, rank 8, both | 100 | 91.0 | 156.7 | 15.6 | 27.5 | 89.3 | 21.8 |  |
| 20 x 50,000, rank 4, both | 100 | 111.8 | 191.9 | 13.5 | 72.8 | 83.4 | 19.7 |  |
| aggression, 316 x 24, rank auto, both | 100 | 107.6 | 181.3 | 26.4 | 18.0 | 126.2 | 8.9 | 188.0 |

The fits of the votes are "Reliable", after 2,480 draws a chain; again they take 25.1 s that pass on
one core and 24.6 s on both. They are of one seed: others take up to twice as long
(`calibration/verdict_goals.py`). With 100 s, 700 x 765 ends by itself after 250 draws a chain,
"Usable in part", with an R-hat of 1.148; with 60 s it has 25 draws, 20 x 50,000 has 11, and both
say "Do not rely on this run". With 100 s the time of 20 x 50,000 was up after 39 draws (R-hat
3.063), and that of the survey after 10,426, "Usable", with an R-hat of 1.058; the clock has the
page, too. Missed are: 12 s for the votes the first time and 5 s again, where what follows the draws
alone takes 4; 30 processor seconds for the survey; an answer to rely on within a minute at 700 x
765 and 20 x 50,000; and 10 s for what follows the draws there, with draws enough.

With `--until usable` a run ends as soon as all parts of the verdict hold within the wider bounds of
a usable fit. An earlier version so took 41.1 processor seconds the first time and 20.1 again, on
one core of another machine.

Boolean products, the default before, took less: the votes 14.1 processor seconds the first time and
8.3 again, the zoo 12.1 and 6.1, calculator digits 36.9 and 14.2, and a random product, 512 x 512 at
rank 30, 91.1 and 50.9. 100,000 x 1,000 at rank 20 took 212 s on two cores, of which 87 for the
verdict, the table of tiles, the fit on disk and its report; a sparse matrix of that size 167 s. All
these are "Reliable". Ratings of MovieLens 100K (u1) reached an error of 0.908 in 19.2 processor
seconds the first time and 9.1 again, of 80 draws that are enough for the error, and not to be
trusted further.

`bmfjax fit --max-time 20`, with nothing compiled before, always ends with a result. On one core of
two, at a load of 2.2 to 2.5, all of 8 ended within the 25 s that are the aim. These results are of
the starts, or of the first step of the warm-up. The votes took 17.7 and 17.9 s, 700 x 765 at rank 8
18.7 and 19.2, 20 x 50,000 at rank 4 23.8 and 23.9, and 4,000 x 2,000 at rank 20 23.9 and 24.2 s.
All have a page. Beside four other processes on the two threads of one core, at a load of 5.0 to
6.8, all of 20 had a result, 8 a page, and none ended within 25 s: they took 25.8 to 44.0 s, of
which what must be loaded and compiled for the starts takes most.
"""


@page(__doc__, "first_answer*", notes=NOTES)
def tables(records: dict):
    yield (
        "Processor seconds of `bmfjax fit`, from start to report; warm: compiled programs are in "
        "the cache folder. `clock` has the seconds that passed, `limit` the `--max-time` that was "
        "given, `load` that of the machine at the end, and `programs` the number of programs that "
        "were compiled or read from the cache."
    )
    for name, record in records.items():
        yield f"## {name}"
        if (limit := record["figures"].get("limit")) is not None:
            yield from _in_time(limit, record["figures"]["cases"])
            continue
        rows = []
        for case, runs in record["figures"]["cases"].items():
            # Of the largest matrices there is no second run; older records repeat the first.
            again = runs.get("warm") not in (None, runs["cold"]) or "failed" in runs["cold"]
            about = [runs.get("max_time"), runs.get("load")]
            rows += [
                _answered([case, how, *about], runs[how]) for how in ("cold", "warm")[: 1 + again]
            ]
        yield table(
            ["matrix", "", "limit", "load", *PHASES, "in all", "clock", "programs", "draws",
             "R-hat", "verdict"], rows,
        )  # fmt: skip


def _in_time(limit: float, tried: dict):
    """Say which commands ended in time, and with what."""
    runs = [run for of_case in tried.values() for run in of_case]
    ended = sum(run["wall"] <= LATE * limit and run["result"] for run in runs)
    yield (
        f"`bmfjax fit --max-time {limit:g}`: {ended} of {len(runs)} ended within "
        f"{LATE * limit:g} s, with a result. Without a draw after the warm-up it is of the steps, "
        "or of the starts."
    )
    yield shown([{"matrix": case} | run for case, of_case in tried.items() for run in of_case], {
        "matrix": "", "seconds": "wall 1", "processor": "cpu 1", "load": "load 1",
        "result": "", "page": "",
        "steps of warm-up": "warmup", "draws": ""})  # fmt: skip


def _answered(about: list, run: dict) -> list:
    if "failed" in run:
        return [*about, *[""] * (len(PHASES) + 5), f"failed: {run['failed']}"]
    return [
        *about, *(number(run["phases"].get(p, {}).get("cpu"), 1) for p in PHASES),
        number(run["total"]["cpu"], 1), number(run["total"]["wall"], 1),
        run.get("compilations", ""), run.get("draws"),
        number(run.get("rhat"), 3), run.get("verdict", ""),
    ]  # fmt: skip


@script(__doc__, child=run_case,
        only=dict(nargs="+", help="cases whose names begin with one of these"),
        movielens=(Path, "the publisher's folder, with its five folds"),
        data=(Path, "folder of the sets of panel.py"),
        max_time=(float, "that of the fit; default: its own"),
        limit=(float, "run the command with this --max-time"),
        until=("all", "that of the fit; usable: the first answer that holds"),
        tries=(1, "with --limit, of each case"), commit=COMMIT, one=(str, HIDDEN),
        cache=(Path, HIDDEN), steps=(int, HIDDEN))  # fmt: skip
def main(options):
    figures = {"threads": os.cpu_count(), "cases": {}}
    figures |= {} if options.limit is None else {"limit": options.limit}
    options.record += "_usable" * (options.until == "usable")
    options.record += "_limit" * (options.limit is not None)
    for case in cases(options):
        if options.only and not case.startswith(tuple(options.only)):
            continue
        if options.limit is not None:
            figures["cases"][case] = limited(options, case)
        else:
            figures["cases"][case] = found = cold_and_warm(options, case)
            print(case, found, flush=True)
        yield figures
