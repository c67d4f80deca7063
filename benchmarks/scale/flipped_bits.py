"""Is a flipped bit of a stored file ever read as something else?

Bits of `data.npz` and `factors.npz` of a fit, and of the states and parts of a checkpoint, are
flipped one at a time: every bit of the first and last 2,000 bytes (``--edge``), and a tenth of the
others at random. Each time the fit or the checkpoint is read. Right is the same content, the state
before, or one sentence (`InputError`); wrong is any other error, and other content.
"""

import collections
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import bmfjax
from benchmarks.device import script
from benchmarks.form import number, page_of_one, table
from bmfjax import store
from bmfjax.data.io.npz import read_stored
from bmfjax.families import sampling
from bmfjax.infer.checkpoint import Checkpoint, Stored

FIT = {"rank": 2, "num_chains": 2, "num_warmup": 40, "num_samples": 30, "progress": False}
SAME, BEFORE, SENTENCE, OTHER = "same content", "the state before", "one sentence", "other content"
RIGHT = (SAME, BEFORE, SENTENCE)


def bits_of(size: int, edge: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return which bits of a file of `size` bytes are flipped: all at its edges, some between."""
    bits = np.arange(8 * size)
    at_edge = (bits < 8 * edge) | (bits >= 8 * (size - edge))
    return bits[at_edge | (rng.random(len(bits)) < share)]


def flipped(path: Path, bits: np.ndarray) -> Iterator[int]:
    """Flip one bit of a file after the other; each is put back before the next."""
    whole = path.read_bytes()
    try:
        for bit in bits:
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            yield int(bit)
    finally:
        path.write_bytes(whole)


def outcomes(
    path: Path, bits: np.ndarray, read: Callable[[], str]
) -> tuple[collections.Counter, dict]:
    """Count what ``read()`` says of a file with one bit flipped; and the bits that go wrong."""
    counts, wrong = collections.Counter(), {}
    for bit in flipped(path, bits):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = read()
        except bmfjax.InputError as error:
            found = SENTENCE if "\n" not in str(error) else "several lines"
        except Exception as error:  # which of them is what is asked
            found = type(error).__name__
        counts[found] += 1
        if found not in RIGHT:
            wrong[bit] = found
    return counts, wrong


def data_reader(path: Path) -> Callable[[], str]:
    """Return what reads the data of a fit, and says whether they are those which are there now."""
    whole = read_stored(path)

    def read():
        found = read_stored(path)
        same = found.fingerprint() == whole.fingerprint() and _texts(found) == _texts(whole)
        return SAME if same else OTHER

    return read


def factors_reader(path: Path) -> Callable[[], str]:
    """The same of the arrays of a fit that are not draws."""
    whole = store.stored_factors(path)
    return lambda: SAME if _same(store.stored_factors(path), whole) else OTHER


def checkpoint_reader(folder: Path, identity: dict) -> Callable[[], str]:
    """The same of a checkpoint, of which the state before may be read too."""
    newest = Checkpoint(folder, identity).contents()
    hidden = (folder / "state.npz").rename(folder / "hidden")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = Checkpoint(folder, identity).contents()
    hidden.rename(folder / "state.npz")

    def read():
        found = Checkpoint(folder, identity).contents()
        return next((n for n, s in ((SAME, newest), (BEFORE, before)) if _equal(found, s)), OTHER)

    return read


def _texts(data) -> tuple:
    labels = data.row_labels
    return list(data.row_names), list(data.column_names), data.name, str(labels)


def _same(found: dict, whole: dict) -> bool:
    """Say whether arrays are the same, bit for bit."""
    return found.keys() == whole.keys() and all(
        a.dtype == whole[n].dtype
        and a.shape == whole[n].shape
        and a.tobytes() == whole[n].tobytes()
        for n, a in found.items()
    )


def _equal(found: Stored, other: Stored) -> bool:
    """Say whether two states are the same, bit for bit."""
    arrays = [
        {f"{i}": np.asarray(a) for i, a in enumerate(s.leaves)}
        | {f"{kind} {n}": a for kind, named in s.recorded.items() for n, a in named.items()}
        for s in (found, other)
    ]
    return (found.steps_done, found.earlier) == (other.steps_done, other.earlier) and _same(*arrays)


def stored(place: Path) -> tuple[Path, Path, dict]:
    """Make a small fit and the checkpoint of its run; return their folders, and whose it is."""
    sampling.CHECKPOINT_SECONDS = 0.0
    folder = place / "checkpoint"
    fit = bmfjax.fit("davis", **FIT, checkpoint=folder)
    with np.load(folder / "state.npz") as state:
        identity = json.loads(str(state["about"]))["identity"]
    return fit.save(place / "fit"), folder, identity


ANSWER = """
No. Of 161,654 bits of a fit's data and factors, and of its checkpoint, each was flipped alone and
the file read: it was the same content, the state before, or refused in one sentence.
"""


@page_of_one(__doc__)
def tables(found: dict):
    kinds = list(dict.fromkeys(kind for case in found["files"].values() for kind in case["found"]))
    yield (
        "Bits of the files of a small fit and of its checkpoint were flipped one at a time, every "
        f"bit of the first and last {number(found['edge'])} bytes and some of the others, and the "
        f"fit or the checkpoint was read. Reads that were wrong: {found['wrong']}."
    )
    yield table(["file", "bytes", "bits flipped", *kinds], [
        [name, case["bytes"], case["bits"], *(case["found"].get(kind, 0) for kind in kinds)]
        for name, case in found["files"].items()])  # fmt: skip


@script(__doc__, edge=(2000, "bytes of which every bit is flipped"),
        share=(0.1, "of the bits in the middle"), seed=(0, "of which bits these are"))  # fmt: skip
def main(options):
    rng, files = np.random.default_rng(options.seed), {}
    with tempfile.TemporaryDirectory() as place:
        fit, checkpoint, identity = stored(Path(place))
        of_checkpoint = checkpoint_reader(checkpoint, identity)
        parts = sorted(checkpoint.glob("part-*.npz"))
        data, factors = fit / "data.npz", fit / "factors.npz"
        readers = {data: data_reader(data), factors: factors_reader(factors)}
        readers |= dict.fromkeys(
            [checkpoint / "state.npz", checkpoint / "previous.npz", parts[-1]], of_checkpoint
        )
        for path, read in readers.items():
            size = path.stat().st_size
            counts, _ = outcomes(path, bits_of(size, options.edge, options.share, rng), read)
            name = f"{path.parent.name}/{path.name}"
            files[name] = {"bytes": size, "bits": counts.total(), "found": dict(counts)}
            print(name, files[name], flush=True)
    wrong = sum(n for f in files.values() for what, n in f["found"].items() if what not in RIGHT)
    return {"edge": options.edge, "wrong": wrong, "files": files}
