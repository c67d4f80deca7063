"""How long does it take from a sparse file to a report?

A Boolean product of known factors, few of whose entries are ones, with noise is written as a sparse
file. Then the command line fits it with its defaults, as a user would: `bmfjax fit FILE --rank 20
--output FOLDER`. The share of wrong entries is against the product without noise.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from benchmarks.device import HIDDEN, apart, growing, script, some
from benchmarks.form import SECONDS, named, number, page_of_one, percent, shown, table
from benchmarks.scale.scale import wrong_entries

ROWS, COLUMNS, RANK = 100_000, 2_000, 20
#: The share of ones, that of ones that are missing, and the share of zeros that became ones.
DENSITY, MISSED, STREWN = 0.05, 0.1, 0.002
FORMATS = ("npz", "mtx")


def make(seed: int):
    """Return the noisy matrix as CSR, and the factors."""
    rng = np.random.default_rng(seed)
    # P(one) = 1 - (1 - p^2)^rank
    p = np.sqrt(1 - (1 - DENSITY) ** (1 / RANK))
    usage, basis = (rng.random((size, RANK)) < p for size in (ROWS, COLUMNS))
    clean = sp.csr_array(usage.astype(np.float32)) @ sp.csr_array(basis.T.astype(np.float32))
    clean.data = np.ones(clean.nnz, np.float32)
    kept = clean.tocoo()
    some = rng.random(kept.nnz) >= MISSED
    cells = rng.integers(0, (ROWS, COLUMNS), (round(STREWN * ROWS * COLUMNS), 2))
    row = np.concatenate([kept.row[some], cells[:, 0]])
    column = np.concatenate([kept.col[some], cells[:, 1]])
    ones = np.ones(len(row), np.float32)
    noisy = sp.csr_array((ones, (row, column)), shape=clean.shape)
    noisy.data = np.ones(noisy.nnz, np.int8)
    return noisy, usage, basis


def write(matrix, path: Path) -> None:
    """Write a sparse matrix in the format of the name."""
    if path.suffix == ".npz":
        sp.save_npz(path, matrix)
    else:
        scipy.io.mmwrite(path, matrix.astype(np.int64), field="integer", symmetry="general")


def one_format(options) -> dict:
    """Fit a file of this format by the command line."""
    matrix, usage, basis = make(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / f"data.{options.one}", Path(folder) / "run"
        write(matrix, file)
        words = [sys.executable, "-m", "bmfjax", "fit", str(file), "--rank", str(RANK)]
        words += ["--output", str(output), "--quiet"]
        before, began = _spent(), time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            return {"failed": done.stderr.strip().split("\n")[-1]}
        return {
            "file_bytes": file.stat().st_size,
            "seconds": round(seconds, 1),
            "processor_seconds": round(_spent() - before, 1),
            # Of the largest child: this process has had no other.
            "peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
            "written": {p.name: p.stat().st_size for p in sorted(output.iterdir())},
            "said": done.stdout.strip().replace(f"{folder}/", "").split("\n"),
            **found_in(output, usage, basis),
        }


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def found_in(output: Path, usage, basis) -> dict:
    """Return the verdict, and how many entries of the product without noise the fit gets wrong."""
    import bmfjax

    fit = bmfjax.Fit.load(output)
    return {
        "wrong": wrong_entries(usage, basis, fit) / (ROWS * COLUMNS),
        "draws": int(fit.figures.num_draws),
        "rhat": float(fit.figures.rhat),
        "verdict": str(fit.verdict),
    }


ANSWER = """
181 s from a compressed `.npz` of 100,000 x 2,000 entries to the report, at rank 20 on two cores,
and 177 s from an `.mtx` of 117 MB. The peak is 2.5 GB of memory. It is `bmfjax fit FILE --rank 20
--output FOLDER`, at its defaults. No target was given. The verdict is "Reliable", and of 200
million entries of the product without noise none is wrong, of data of which a tenth of the ones is
missing and 0.2 % of all entries are ones by chance.
"""


@page_of_one(__doc__, notes=[("fd25565", SECONDS)])
def tables(found: dict):
    yield (
        f"`bmfjax fit` at its defaults with rank {found['rank']}, {found['threads']} cores, on a "
        f"sparse file of {number(found['rows'])} x {number(found['columns'])} entries: a Boolean "
        f"product of which {percent(found['density'], 0)} % are ones, of which "
        f"{percent(found['missed'], 0)} % are missing, and {percent(found['strewn'], 1)} % of all "
        "entries are ones by chance. Memory is that of the command. Wrong entries are counted "
        "against the product without noise."
    )
    formats = found.get("formats", {})
    yield shown(named(formats, "format"), {
        "format": "", "file, MB": "file_bytes? * 1e-6 1", "seconds": "seconds? 1",
        "processor seconds": "processor_seconds? 1", "peak, GB": "peak_bytes? * 1e-9 2",
        "draws": "draws?", "R-hat": "rhat? 3", "wrong, %": "wrong? %4",
        "verdict": lambda one: one.get("verdict") or f"failed: {one['failed']}"})  # fmt: skip
    yield "What it wrote, in bytes:"
    yield table(["format", "file", "bytes"], [
        [kind, name, number(size)]
        for kind, one in formats.items()
        for name, size in one.get("written", {}).items()])  # fmt: skip


@script(__doc__, child=one_format, only=some(FORMATS), seed=0, one=(str, HIDDEN))
def main(options):
    shape = {"rows": ROWS, "columns": COLUMNS, "rank": RANK, "seed": options.seed}
    noise = {"density": DENSITY, "missed": MISSED, "strewn": STREWN}
    figures = shape | noise | {"threads": os.cpu_count()}
    seed = "--seed", options.seed
    yield from growing(figures, "formats", options.only, lambda n: apart("--one", n, *seed))
