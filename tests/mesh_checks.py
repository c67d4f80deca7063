"""What `test_mesh.py` runs in two processes: one sampler on several meshes, and without one.

    python tests/mesh_checks.py PORT PROCESS FOLDER

Each process has two devices. The first one writes what it found to FOLDER/found.json.
"""

import functools
import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import scipy.sparse as sp

import bmfjax
from bmfjax import models
from bmfjax.data import BinaryMatrix, InputError, save, stores
from bmfjax.data.io import npz
from bmfjax.families import ask, boolean, logistic
from bmfjax.families.sampling import sampled
from bmfjax.infer import ChainRun, OrMachineGibbs
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.infer.mcmc import ormachine, truncated
from bmfjax.kernels.boolean import words
from bmfjax.kernels.numerics.mesh import ROWS as ROWS_OF_MESH
from bmfjax.kernels.numerics.mesh import Along, agreed, checked_mesh, place_whole
from bmfjax.kernels.ratings.density import PMFDensity
from bmfjax.kernels.ratings.entries import entry_blocks
from bmfjax.kernels.ratings.gibbs import pmf_gibbs
from bmfjax.kernels.relaxed import data as relaxed_data
from bmfjax.variational import stochastic

ROWS, COLUMNS, RANK, CHAINS, WARMUP, SAMPLES = 99, 40, 3, 4, 4, 12
#: Fits whose draws depend on the mesh by rounding alone: the models, and what is asked of them.
REAL = {
    "gibbs": {"model": "relaxed"},
    "minibatch": {
        "model": "relaxed", "sampler": bmfjax.Minibatch(batch_size=5), },
    "nonnegative": {"model": "nmf", "sampler": bmfjax.Gibbs(walls=[20.0], moves=["lines"])},
    "svi": {"model": "logistic", "sampler": "svi"},
    "iasg": {
        "model": "relaxed", "sampler": bmfjax.IterateAveraging(batch_size=5, report_variance=True),
        },
    "thesis": {
        "model": "relaxed", "sampler": bmfjax.ThesisAveraging(batch_size=5, num_calibration=50),
        },
    "sparse": {"model": bmfjax.Relaxed(usage="ard", basis="ard")},
}  # fmt: skip


def move(key, position, data, inverse_temperature):
    """Stands for moves, which see the whole matrix: it sets the flip rates by what it sees."""
    ones = words.count_bits(data.by_row.ones, axis=None) / (ROWS * COLUMNS)
    rates = 0.5 * position["flip_rate"] + 0.25 * ones
    return position | {"flip_rate": rates.astype(position["flip_rate"].dtype)}, ones


def mesh_of(devices, chains, rows):
    """Devices as a user may give them, with axes of JAX's default type."""
    return jax.sharding.Mesh(np.array(devices).reshape(chains, rows), ("chains", "rows"))


def problem():
    """A matrix with missing entries, and the start of every chain."""
    rng = np.random.default_rng(0)
    factors = {"usage": rng.random((ROWS, RANK)) < 0.3, "basis": rng.random((COLUMNS, RANK)) < 0.3}
    product = factors["usage"].astype(int) @ factors["basis"].T.astype(int) > 0
    values = (product ^ (rng.random(product.shape) < 0.1)).astype(float)
    values[rng.random(values.shape) < 0.05] = np.nan
    chance = rng.uniform(0.2, 0.5, (ROWS, RANK))
    return BinaryMatrix(values), factors, chance


def run_on(mesh):
    """The chains at their start: single flips and a move, bits with priors of their own."""
    data, factors, chance = problem()
    model = functools.partial(models.ormachine, rank=RANK, num_rates=2, usage=chance)
    kernel = OrMachineGibbs(model, moves=("birth",))
    bound, _ = kernel.bind_packed(data, mesh=mesh)
    start = jax.tree.map(np.asarray, bound.unconstrain(factors))
    run = ChainRun(
        bound.algorithm, jax.random.key(3), bound.data, num_chains=CHAINS, num_warmup=WARMUP,
        num_samples=SAMPLES, draws=dict.fromkeys(("usage", "basis", "flip_rate"), 1),
        trace={"log_joint": 1, "errors": 1}, mesh=mesh,
        position=jax.tree.map(lambda leaf: np.stack([leaf] * CHAINS), start),
    )  # fmt: skip
    return run, bound.data, start


def ratings_on(mesh):
    """The draws of a sampler of ratings, whose blocks of lines no mesh here divides."""
    rng = np.random.default_rng(1)
    rows, columns = np.nonzero(rng.random((70, 23)) < 0.4)
    data = entry_blocks(rows, columns, rng.normal(size=len(rows)), (70, 23))
    if mesh is not None:
        mesh = checked_mesh(mesh)
        data = place_whole(data._replace(along=Along(ROWS_OF_MESH)), mesh)
    run = ChainRun(
        pmf_gibbs(PMFDensity(2)), jax.random.key(5), data, num_chains=2, num_samples=6,
        draws={"usage": 1, "basis": 1}, trace={"log_joint": 1}, mesh=mesh,
    )  # fmt: skip
    run.finish()
    return {"draws": run.draws(), "trace": run.trace()}


def real_on(mesh, name):
    """The chains of a fit of real factors at their start; no mesh here divides their lines."""
    rng = np.random.default_rng(2)
    values = (rng.random((37, 13)) < 0.3).astype(float)
    values[rng.random(values.shape) < 0.05] = np.nan
    if name == "sparse":
        values = sp.csr_array(np.nan_to_num(values))
    request = ask(
        values, 2, num_chains=2, num_warmup=2, num_samples=6, seed=4, mesh=mesh, **REAL[name]
    )
    return request.chains().run(request)


def found_by_real(name, mesh, resumed=False):
    """What such chains have recorded after six steps, the last three without a mesh if resumed."""
    run = real_on(mesh, name)
    run.advance(3)
    if resumed:
        stored, recorded = run.snapshot(), run.recorded_between(0, 3)
        if jax.process_index() != 0:
            return None
        run = real_on(None, name)
        run.restore(stored, 3, recorded)
    run.advance(3)
    numbers = {n: v for n, v in run.trace().items() if v.dtype != bool}
    return {"draws": run.draws(), "trace": numbers}


def real_apart(process):
    """How far draws on meshes are from those without, by name: a process does its part of them."""
    # A minibatch of several chunks, an odd number.
    stochastic.CHUNK = logistic.CHUNK = 40
    # Small matrices are held sparse too, in blocks of two pieces.
    truncated.SPARSE_ENTRIES, truncated.SMALLER, relaxed_data.BLOCK = 0, 1.0, 8
    two = mesh_of(jax.local_devices(), 1, 2)
    found = {"gibbs": found_by_real("gibbs", mesh_of(jax.devices(), 2, 2), resumed=True)}
    own = (("svi", "thesis", "sparse"), ("minibatch", "nonnegative", "iasg"))[process]
    found |= {n: found_by_real(n, two) for n in own}
    return {
        n: largest_difference(f, found_by_real(n, None)) for n, f in found.items() if f is not None
    }


def same(one, other):
    """Whether two trees of arrays are equal, bit for bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def largest_difference(one, other):
    """The largest difference of two trees of arrays, beside their size."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)


def found_by(run):
    return {"draws": run.draws(), "trace": run.trace(), "state": run.state}


def rows_shared(path, folder, mesh):
    """The traces of a fit whose processes read their own rows of a file, and how many these are."""
    # Small matrices are as large ones here, of which words alone are kept.
    boolean.MEDIUM = stores.LARGE = npz.LARGE = 1
    request = ask(
        str(path), RANK, init=problem()[1], num_chains=2, num_warmup=2, num_samples=6, mesh=mesh,
        sampler=bmfjax.Gibbs(update="metropolis", moves=()),
    )  # fmt: skip
    resumes = (folder / "shared").exists()
    options = {"checkpoint": folder / "shared", "resume": resumes}
    with sampled(request, request.chains(), **options) as stage:
        found = {"draws": stage.run.draws(), "trace": stage.run.trace()}
    return found, request.data


def refused_by_one(process, mesh):
    """What is said where the second process refuses."""

    def act():
        if process == 1:
            raise InputError("process 1 has no file")

    try:
        agreed(mesh, act)
    except InputError as error:
        return str(error)


def refusal(chains):
    """What is said of a number of chains that a mesh does not divide."""
    data = problem()[0]
    model = functools.partial(models.ormachine, rank=RANK, num_rates=1)
    bound, _ = OrMachineGibbs(model).bind_packed(data)
    mesh = mesh_of(jax.local_devices(), 2, 1)
    try:
        ChainRun(bound.algorithm, jax.random.key(0), bound.data, num_chains=chains, num_samples=1,
                 mesh=mesh)  # fmt: skip
    except InputError as error:
        return str(error)


def main(port, process, folder):
    """Run on a mesh of both processes, go on with another one, and compare with no mesh."""
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
    # Few lines a block: seven blocks of rows, which no mesh here divides, and several of columns.
    words.BLOCK_LINES = 16
    ormachine.MOVES["birth"] = lambda density: move
    first, data, start = run_on(mesh_of(jax.devices(), 2, 2))
    # Of the seven blocks of rows a device has four, and no other lines.
    shards = [s.data.shape for s in data.by_row.ones.addressable_shards]
    first.advance(7)
    Checkpoint(folder / "checkpoint", {"of": "mesh"}).write(first)
    jax.experimental.multihost_utils.sync_global_devices("stored")
    second = Checkpoint(folder / "checkpoint", {"of": "mesh"}).read(
        lambda earlier: run_on(mesh_of(jax.devices(), 1, 4))[0]
    )
    second.finish()
    of_mesh = found_by(second)
    ratings = ratings_on(mesh_of(jax.devices(), 1, 4))
    path = folder / f"matrix_{process}.npz"
    packed = problem()[0].packed()
    save(path, BinaryMatrix.from_packed(packed.ones, COLUMNS, packed.observed))
    of_shared, data = rows_shared(path, folder, mesh_of(jax.devices(), 1, 4))
    own = {
        f"held_{process}": [data.is_shared, data.held_rows],
        f"refused_{process}": refused_by_one(process, mesh_of(jax.devices(), 1, 4)),
    }
    (folder / f"real_{process}.json").write_text(json.dumps(real_apart(process) | own))
    if process == 0:
        # Resumed without a mesh, and anew.
        shutil.copytree(folder / "shared", folder / "alone" / "shared")
        again = [rows_shared(path, folder / f, None)[0] for f in ("alone", "anew")]
        alone, _, start_alone = run_on(None)
        alone.finish()
        found = {
            "rows_of_a_device": shards,
            "same": same(of_mesh, found_by(alone)),
            "start": same(start, start_alone),
            "shared": [same(of_shared, found) for found in again],
            "whole": data.fingerprint() == problem()[0].fingerprint(),
            "steps": second.steps_done,
            "changes": int((np.diff(alone.trace()["errors"]) != 0).sum()),
            "refusal": refusal(3),
            "ratings_apart": largest_difference(ratings, ratings_on(None)),
        }
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
