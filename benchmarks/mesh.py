"""Is one chain faster on several devices than on one, and how much do these tell each other?

A Boolean product with noise; single flips, one chain. On a CPU the devices are parts of one
process, as many as `--devices`; on accelerators they are the first of those that JAX finds. Each
way to run has a process of its own, and they take turns: medians over the rounds. Without a mesh
the chain runs on whatever cores the system gives it, and pinned to one of them.

    python benchmarks/mesh.py [--rows 100000] [--columns 1000] [--rank 10] [--devices 2]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from device import parse

DENSITY, NOISE = 0.2, 0.05
WAYS = ("no mesh", "no mesh, pinned to one core", "mesh")


def matrix(rows: int, columns: int, rank: int) -> np.ndarray:
    """Return a Boolean product with flipped entries."""
    rng = np.random.default_rng(0)
    usage, basis = (rng.random((n, rank), np.float32) < DENSITY for n in (rows, columns))
    product = usage.astype(np.float32) @ basis.T.astype(np.float32) > 0
    return product ^ (rng.random(product.shape, np.float32) < NOISE)


def serve(options) -> None:
    """Run one way: so many sweeps for every line that is read, and a line of what they took."""
    pinned, meshed = "pinned" in options.way, options.way == "mesh"
    if pinned:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax

    if meshed and options.device in (None, "cpu"):
        jax.config.update("jax_num_cpu_devices", options.devices)
    from bmfjax.data import BinaryMatrix
    from bmfjax.infer import ChainRun
    from bmfjax.kernels.boolean.density import BooleanDensity
    from bmfjax.kernels.boolean.gibbs import ormachine
    from bmfjax.kernels.boolean.words import packed_data
    from bmfjax.kernels.numerics.mesh import checked_mesh

    size = options.rows, options.columns
    mesh = None
    if meshed:
        devices = np.array(jax.devices()[: options.devices]).reshape(1, -1)
        mesh = checked_mesh(jax.sharding.Mesh(devices, ("chains", "rows")))
    data = packed_data(BinaryMatrix(matrix(*size, options.rank)), mesh=mesh)
    run = ChainRun(
        ormachine(BooleanDensity(size, options.rank)), jax.random.key(0), data,
        num_samples=10**6, trace={"log_joint": 1}, mesh=mesh,
    )  # fmt: skip
    run.advance(1)
    print(json.dumps(traffic(data, options)), flush=True)
    for _ in sys.stdin:
        began, busy = time.perf_counter(), time.process_time()
        run.advance(options.sweeps)
        seconds = (time.perf_counter() - began) / options.sweeps
        busy = (time.process_time() - busy) / options.sweeps
        drawn = hashlib.sha256(np.ascontiguousarray(run.trace()["log_joint"]).tobytes())
        print(
            json.dumps({"seconds": seconds, "busy": busy, "draws": drawn.hexdigest()}), flush=True
        )


def traffic(data, options) -> dict:
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


def main() -> None:
    """Take turns, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--devices", type=int, default=2, help="along the rows")
    parser.add_argument("--sweeps", type=int, default=5, help="of a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.way:
        serve(options)
        return
    from record import write_record  # which loads JAX: the processes that measure have it first

    ways = [w for w in WAYS if "pinned" not in w or hasattr(os, "sched_setaffinity")]
    command = [sys.executable, *sys.argv]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {w: subprocess.Popen([*command, "--way", w], **pipes) for w in ways}

    def answer(way):
        line = processes[way].stdout.readline()
        if not line:
            raise SystemExit(f"{way!r} ended with code {processes[way].wait()}")
        return json.loads(line)

    about = {way: answer(way) for way in ways}
    seconds, busy, draws = {way: [] for way in ways}, {way: [] for way in ways}, {}
    for number in range(options.rounds):
        for way in ways:
            print("go", file=processes[way].stdin, flush=True)
            found = answer(way)
            seconds[way].append(found["seconds"])
            busy[way].append(found["busy"])
            draws[way] = found["draws"]
        last = {w: round(1e3 * s[-1], 1) for w, s in seconds.items()}
        print(number + 1, "ms a sweep:", last, flush=True)
    for process in processes.values():
        process.communicate()
    median = {way: statistics.median(values) for way, values in seconds.items()}
    figures = {
        "rows": options.rows,
        "columns": options.columns,
        "rank": options.rank,
        "devices": options.devices,
        "rounds": options.rounds,
        "ms_a_sweep": {w: round(1e3 * s, 2) for w, s in median.items()},
        # Of all cores together: what the devices do twice, or wait for actively, shows here.
        "processor_ms_a_sweep": {w: round(1e3 * statistics.median(s), 2) for w, s in busy.items()},
        "fastest_ms_a_sweep": {w: round(1e3 * min(s), 2) for w, s in seconds.items()},
        "times_as_fast_as": {w: round(median[w] / median["mesh"], 2) for w in ways[:-1]},
        "bytes_read_by_a_device": about["mesh"]["read"],
        "bytes_from_others": round(about["mesh"]["got"]),
        "share_from_others": about["mesh"]["got"] / about["mesh"]["read"],
        "same_draws": len(set(draws.values())) == 1,
        "load": [round(n, 2) for n in os.getloadavg()],
    }
    print(figures)
    print(write_record("mesh", figures, options.output))


if __name__ == "__main__":
    main()
