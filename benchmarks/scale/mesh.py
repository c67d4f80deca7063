"""Is one chain faster on several devices?

A Boolean product with noise, by single flips, by the relaxed model (exactly, or by IASG), or by the
logistic model from minibatches; or ratings, of which one in a hundred is observed. One chain runs.
On a CPU the devices are parts of one process, as many as `--devices`; on accelerators they are the
first of those that JAX finds. Each way to run has a process of its own, and they take turns:
medians over the rounds.

    python -m benchmarks.scale.mesh [--rows 100000] [--columns 1000] [--rank 10] [--devices 2]
    python -m benchmarks.scale.mesh --model pmf --rows 10000 --columns 5000 --rank 32
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks.device import HIDDEN, script
from benchmarks.form import number, page_of_each, table

DENSITY, NOISE, OBSERVED = 0.2, 0.05, 0.01
WAYS = ("no mesh", "no mesh, pinned to one core", "mesh")


def matrix(options) -> np.ndarray:
    """Return a Boolean product with flipped entries."""
    from bmfjax.data import generate_product

    density, size = 1 - (1 - DENSITY**2) ** options.rank, (options.rows, options.columns)
    return generate_product(*size, options.rank, density=density, flip=NOISE).data.dense(np.float32)


def serve(options) -> dict:
    """Run one way: so many sweeps for every line that is read, and a line of what they took."""
    pinned, meshed = "pinned" in options.one, options.one == "mesh"
    if pinned:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax

    if meshed and options.device in (None, "cpu"):
        jax.config.update("jax_num_cpu_devices", options.devices)
    from bmfjax.infer import ChainRun
    from bmfjax.kernels.numerics.mesh import checked_mesh

    mesh = None
    if meshed:
        devices = np.array(jax.devices()[: options.devices]).reshape(1, -1)
        mesh = checked_mesh(jax.sharding.Mesh(devices, ("chains", "rows")))
    make, count, objective = MODELS[options.model]
    algorithm, data = make(options, mesh)
    run = ChainRun(
        algorithm, jax.random.key(0), data, num_samples=10**6, trace={objective: 1}, mesh=mesh
    )
    run.advance(1)
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        began, busy = time.perf_counter(), time.process_time()
        run.advance(options.sweeps)
        seconds = (time.perf_counter() - began) / options.sweeps
        busy = (time.process_time() - busy) / options.sweeps
        drawn = hashlib.sha256(np.ascontiguousarray(run.trace()[objective]).tobytes())
        print(
            json.dumps({"seconds": seconds, "busy": busy, "draws": drawn.hexdigest()}), flush=True
        )
    return count(data, options, run.state)


def boolean(options, mesh):
    """Return single flips of a Boolean product."""
    from bmfjax.data import BinaryMatrix
    from bmfjax.kernels.boolean.density import BooleanDensity
    from bmfjax.kernels.boolean.gibbs import ormachine
    from bmfjax.kernels.boolean.words import packed_data

    size = options.rows, options.columns
    data = packed_data(BinaryMatrix(matrix(options)), mesh=mesh)
    return ormachine(BooleanDensity(size, options.rank)), data


def ratings(options, mesh):
    """Return the sampler of ratings, at places drawn at random."""
    from bmfjax.kernels.numerics.mesh import ROWS, Along, place_whole
    from bmfjax.kernels.ratings.density import PMFDensity
    from bmfjax.kernels.ratings.entries import entry_blocks
    from bmfjax.kernels.ratings.gibbs import pmf_gibbs

    rng, size = np.random.default_rng(0), (options.rows, options.columns)
    cells = rng.choice(size[0] * size[1], int(OBSERVED * size[0] * size[1]), replace=False)
    data = entry_blocks(*np.unravel_index(cells, size), rng.normal(size=len(cells)), size)
    if mesh is not None:
        data = place_whole(data._replace(along=Along(ROWS)), mesh)
    return pmf_gibbs(PMFDensity(options.rank)), data


def relaxed(options, mesh):
    """Return the exact sampler of the relaxed model, on the same matrix."""
    import functools

    from bmfjax.infer import IASG, TruncatedGibbs
    from bmfjax.models import relaxed_bmf

    values = matrix(options)
    kernel = {"relaxed": TruncatedGibbs, "iasg": IASG}[options.model]
    bound = kernel(functools.partial(relaxed_bmf, rank=options.rank)).bind(values, mesh=mesh)
    return bound.algorithm, bound.data


def logistic(options, mesh):
    """Return minibatches of the logistic model, of the same matrix."""
    from bmfjax.families import ask

    how = {"model": "logistic", "sampler": "svi", "num_chains": 1, "mesh": mesh}
    chains = ask(matrix(options), options.rank, **how).chains()
    return chains.algorithm, chains.data


def traffic(data, options, state) -> dict:
    """Return the bytes that a device reads of its data in a sweep, and those it gets of others."""
    read = got = 0
    for lines in (data.by_row, data.by_column):
        shards = lines.ones.addressable_shards
        read += shards[0].data.nbytes
        blocks, per_block, _ = lines.ones.shape
        # Of every line its bits, packed by blocks, and three counts of every block.
        elsewhere = blocks * (len(shards) - 1) / len(shards)
        got += elsewhere * 4 * (options.rank * -(-per_block // 32) + 3)
    return {"read": read, "got": got}


def traffic_of_ratings(data, options, state) -> dict:
    """Return the same of ratings: every rating has a place and a value, in either order."""
    devices = len(data.by_row.count.devices())
    tables = (*data.by_row.other, *data.by_row.value, *data.by_column.other, *data.by_column.value)
    # As if it read all of them once: of the factors' own blocks, and of all fits.
    width, lines = options.rank + 1, options.rows + options.columns
    return {
        "read": sum(a.nbytes for a in tables),
        "got": 4 * width * lines * (devices - 1) / devices,
    }


def traffic_of_dense(data, options, state) -> dict:
    """Return the same of a dense matrix, which is read three times: the residual is one more."""
    own = [a.addressable_shards[0].data.nbytes for a in (data.values, data.transposed)]
    devices, lines = len(data.values.devices()), options.rows + options.columns
    return {
        "read": 2 * own[0] + own[1],
        # Factors of all lines, and two Gram matrices.
        "got": 4 * options.rank * (lines / devices + 2 * options.rank) * (devices - 1),
    }


def traffic_of_iasg(data, options, state) -> dict:
    """Return the same of a draw of IASG: a window of steps, then the residual of all entries."""
    from bmfjax.kernels.sgmcmc.step_size import ENOUGH, default_batch

    devices, lines = len(data.values.devices()), options.rows + options.columns
    own = [a.addressable_shards[0].data.nbytes for a in (data.values, data.transposed)]
    shares = [default_batch(n, options.rank) / n for n in (options.rows, options.columns)]
    return {
        "read": ENOUGH * sum(o * s for o, s in zip(own, shares, strict=True)) + own[0],
        # Both factor matrices after each step, and their averages after the last.
        "got": 4 * options.rank * lines / devices * (devices - 1) * (ENOUGH + 1),
    }


def traffic_of_entries(data, options, state) -> dict:
    """Return the same of a minibatch of the logistic model, whose size the run has chosen."""
    from bmfjax.variational.stochastic import CHUNK

    devices = options.devices if data.along.axis is not None else 1
    lines, width = options.rows + options.columns, options.rank + 1
    # Of each entry the vectors of its row and column, and what it adds to the sums of these.
    sums = width * width + 5 * width + 1
    chunks, updates = (int(n[0]) for n in (state.optimiser.chunks, state.optimiser.updates))
    entries = CHUNK * chunks / updates / devices
    return {
        "entries": CHUNK * chunks / updates,
        "read": 4 * entries * (4 * width + 2 * sums),
        # Sums of a device's own lines; then the statistics and the vectors of all others.
        "got": 4 * lines * (2 * sums + 2 * width) * (devices - 1) / devices,
    }


#: Of every model: what makes its sampler and data, what counts its traffic, and what is traced.
MODELS = {
    "ormachine": (boolean, traffic, "log_joint"),
    "pmf": (ratings, traffic_of_ratings, "log_joint"),
    "relaxed": (relaxed, traffic_of_dense, "log_joint"),
    "iasg": (relaxed, traffic_of_iasg, "log_joint"),
    "logistic": (logistic, traffic_of_entries, "elbo"),
}


NOTES = [
    ("7477f82", "other work ran beside it: compare the fastest rounds"),
    ("c9f788c", "much other work ran beside it: read the bytes, not the times"),
    ("1789783", "much other work ran beside it: read the bytes, not the times"),
]  # fmt: skip

ANSWER = """
Yes, on two devices, the two cores of a CPU: a Boolean chain is 1.79 times as fast as on one core, a
chain of ratings at rank 32 1.86 times (1.6 was asked of both), and one of the logistic model 1.92
times.

| one chain | no mesh, ms a sweep | pinned to one core | mesh 1 x 2 | fastest rounds, pinned and mesh |
| --- | --- | --- | --- | --- |
| Boolean, 100,000 x 1,000, rank 10 | 38.1 | 37.3 | 20.8 | 36.5 and 18.6 |
| ratings, 10,000 x 5,000, 1 % observed, rank 32 | 107.3 | 100.8 | 54.3 | 99.8 and 51.9 |
| logistic, minibatches, 20,000 x 2,000, rank 10 | 174.0 | 171.4 | 89.4 | 147.6 and 79.5 |

Without a mesh a single chain gains nothing from the second core. So the command line lets idle
cores share large data by itself. Boolean draws are the same on all of them; those of real models
differ by rounding. The row of ratings is of another machine.

Of the bytes that one of two devices reads, it gets from the other (at most 15 % were asked for):

| model | matrix, rank | from the other |
| --- | --- | --- |
| `ormachine` | 100,000 x 1,000, 10 | 0.6 % |
| `relaxed`, `gibbs` | 4,096 x 512, 30 | 2.3 % |
| `relaxed`, `iasg` | 20,000 x 2,000, 10 | 2.2 % |
| ratings | 10,000 x 5,000, 1 % observed, 32 | 12 % |
| `logistic`, `svi` | 20,000 x 2,000, 10 | 6.3 % |
"""  # noqa: E501


@page_of_each(__doc__, notes=NOTES)
def tables(found: dict):
    same = "the same" if found["same_draws"] else "not the same to the last bit"
    entries = ""
    if "entries" in found:
        entries = f"A minibatch had {number(found['entries'], 0)} entries on average. "
    yield (
        f"Model {found.get('model', 'ormachine')}, one chain of a matrix of "
        f"{number(found['rows'])} x {number(found['columns'])}, rank {found['rank']}; the mesh has "
        f"{found['devices']} devices along the rows. Medians of {found['rounds']} rounds that took "
        f"turns. Of the bytes that a device reads in a sweep it gets "
        f"{number(100 * found['share_from_others'], 2)} % from the others. {entries}The draws are "
        f"{same} on all of them."
    )
    columns = {
        "ms a sweep": ("ms_a_sweep", 1), "fastest": ("fastest_ms_a_sweep", 1),
        "processor ms a sweep": ("processor_ms_a_sweep", 1),
        "the mesh is faster by": ("times_as_fast_as", 2),
    }  # fmt: skip
    yield table(
        ["run", *columns],
        [[way, *(number(found[n].get(way), digits) for n, digits in columns.values())]
         for way in found["ms_a_sweep"]],
    )  # fmt: skip


@script(__doc__, child=serve, model=dict(choices=tuple(MODELS), default="ormachine"), rows=100_000,
        columns=1000, rank=10, devices=(2, "along the rows"), sweeps=(5, "of a round"), rounds=9,
        one=dict(choices=WAYS, help=HIDDEN))  # fmt: skip
def main(options):
    ways = [w for w in WAYS if "pinned" not in w or hasattr(os, "sched_setaffinity")]
    command = [sys.executable, *sys.argv]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {w: subprocess.Popen([*command, "--one", w], **pipes) for w in ways}

    def answer(way):
        line = processes[way].stdout.readline()
        if not line:
            raise SystemExit(f"{way!r} ended with code {processes[way].wait()}")
        return json.loads(line)

    for way in ways:
        answer(way)  # it has compiled
    seconds, busy, draws = {way: [] for way in ways}, {way: [] for way in ways}, {}
    for done in range(options.rounds):
        for way in ways:
            print("go", file=processes[way].stdin, flush=True)
            found = answer(way)
            seconds[way].append(found["seconds"])
            busy[way].append(found["busy"])
            draws[way] = found["draws"]
        last = {w: round(1e3 * s[-1], 1) for w, s in seconds.items()}
        print(done + 1, "ms a sweep:", last, flush=True)
    about = {way: json.loads(process.communicate()[0]) for way, process in processes.items()}
    median = {way: statistics.median(values) for way, values in seconds.items()}
    figures = {
        **{
            n: getattr(options, n)
            for n in ("model", "rows", "columns", "rank", "devices", "rounds")
        },
        "ms_a_sweep": {w: round(1e3 * s, 2) for w, s in median.items()},
        # Of all cores together: what the devices do twice, or wait for actively, shows here.
        "processor_ms_a_sweep": {w: round(1e3 * statistics.median(s), 2) for w, s in busy.items()},
        "fastest_ms_a_sweep": {w: round(1e3 * min(s), 2) for w, s in seconds.items()},
        "times_as_fast_as": {w: round(median[w] / median["mesh"], 2) for w in ways[:-1]},
        "bytes_read_by_a_device": about["mesh"]["read"],
        "bytes_from_others": round(about["mesh"]["got"]),
        "share_from_others": about["mesh"]["got"] / about["mesh"]["read"],
        **({"entries": about["mesh"]["entries"]} if "entries" in about["mesh"] else {}),
        "same_draws": len(set(draws.values())) == 1,
        "load": [round(n, 2) for n in os.getloadavg()],
    }
    options.record += "" if options.model == "ormachine" else f"_{options.model}"
    return figures
