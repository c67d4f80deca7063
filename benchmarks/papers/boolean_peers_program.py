"""Run the authors' program of the OrMachine on one matrix: the child of `boolean_peers.py`.

The program (github.com/TammoR/LogicalFactorisationMachines) is not ours and not a package: its
folder `lom` lies in the folder that is given. It wants numba, and nothing of ours.

    python -m benchmarks.papers.boolean_peers_program FOLDER GIVEN.npz MADE.npz
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import numpy as np

#: Sweeps before draws are kept, at least and at most, and draws that are kept.
BURN_IN, KEPT = (100, 300), 100


def machine_of(values, rank: int):
    """The program's machine on a matrix of -1, 0 and 1, and its layer of factors."""
    import lom

    machine = lom.Machine()
    data = machine.add_matrix(values, fixed=True)
    return machine, machine.add_layer(latent_size=rank, child=data, model="OR-AND")


def posterior_mean(values, rank: int) -> np.ndarray:
    """Mean of the Boolean product over the draws that the program keeps."""
    machine, layer = machine_of(values, rank)
    machine.anneal, layer.lbda.val = True, 3.0  # as its README does
    machine.infer(burn_in_min=BURN_IN[0], burn_in_max=BURN_IN[1], no_samples=KEPT)
    traces = [factor.trace == 1 for factor in layer.factors]
    total = np.zeros(values.shape, np.float32)
    for usage, basis in zip(*traces, strict=True):
        total += usage.astype(np.float32) @ basis.T.astype(np.float32) > 0.5
    return total / KEPT


def milliseconds(values, rank: int, number: int, rounds: int) -> float:
    """Of the processor for a sweep, the least of some rounds: both factors, and the dispersion."""
    machine, layer = machine_of(values, rank)
    machine.infer(burn_in_min=1, burn_in_max=1, no_samples=1)  # compiles
    updated = [*layer.factors, layer.lbda]
    times = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(number):
            for part in updated:
                part.sampling_fct(part)
        times.append(time.process_time() - began)
    return 1e3 * min(times) / number


def main() -> None:
    folder, given, made = map(Path, sys.argv[1:4])
    os.environ["NUMBA_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    sys.path.insert(0, str(folder))
    with np.load(given) as stored:
        values, rank = np.ascontiguousarray(stored["values"], np.int8), int(stored["rank"])
        number, rounds = int(stored["sweeps"]), int(stored["rounds"])
        np.random.seed(int(stored["seed"]))  # noqa: NPY002 the program draws from this
    with contextlib.redirect_stdout(sys.stderr):
        if number:
            found = {"milliseconds": milliseconds(values, rank, number, rounds)}
        else:
            found = {"mean": posterior_mean(values, rank)}
    np.savez(made, **found)


if __name__ == "__main__":
    main()
