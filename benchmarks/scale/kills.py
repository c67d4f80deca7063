"""What does a fit that is killed lose?

`bmfjax fit` of the zoo is killed (SIGKILL) after a random number of seconds, and resumed, until it
has been killed so often; a run that ends before goes on in another folder. After every kill the
checkpoint is read. At the end the draws are compared with those of a run that nobody killed.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import bmfjax
from benchmarks.device import script
from benchmarks.form import number, page_of_one, shown
from bmfjax.families.sampling import CHECKPOINT_SECONDS
from bmfjax.infer.checkpoint import Checkpoint

FIT = ["fit", "zoo", "--rank", "4", "--option", "update=joint", "--warmup", "100", "--quiet"]
#: Seconds after the start before which no kill comes, and after which it has come.
SOONEST, LATEST = 2.0, 30.0


def begin(output: Path, samples: int) -> subprocess.Popen:
    """Start the fit, or go on with it."""
    held = (output / "checkpoint" / "state.npz").is_file()
    command = [sys.executable, "-m", "bmfjax", *FIT, "--samples", str(samples)]
    more = ["--output", str(output), *(["--resume"] if held else [])]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def stored_steps(folder: Path) -> tuple[int, bool]:
    """Return how many steps a checkpoint holds, and whether one of its files was damaged."""
    state = folder / "state.npz"
    if not state.is_file():
        return 0, False
    with np.load(state, allow_pickle=False) as held:
        identity = json.loads(str(held["about"]))["identity"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = Checkpoint(folder, identity).contents().steps_done
    return steps, bool(said)


def killed(output: Path, samples: int, wait: float) -> dict | None:
    """Run until the kill; None where the command ended before it."""
    before, _ = stored_steps(output / "checkpoint")
    began, process = time.time(), begin(output, samples)
    try:
        _, said = process.communicate(timeout=wait)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        at = time.time()
        steps, damaged = stored_steps(output / "checkpoint")
        # Beside what a stored fit is shown by, such as its page, a kill costs nothing.
        stored = not steps and (output / "summary.json").is_file()
        state = output / "checkpoint" / "state.npz"
        written = state.stat().st_mtime if state.is_file() else began
        return {
            "after_seconds": at - began, "seconds_since_checkpoint": at - max(written, began),
            "steps_before": before, "steps_after": before if stored else steps, "damaged": damaged,
            "stored": stored,
        }  # fmt: skip
    if process.returncode:
        raise SystemExit(said.decode())
    return None


def same_draws(output: Path, whole: bmfjax.Fit) -> bool:
    """Say whether a fit in a folder has the draws and traces of the unbroken one."""
    found = bmfjax.Fit.load(output)
    pairs = [(found.usage_draws, whole.usage_draws), (found.basis_draws, whole.basis_draws)]
    pairs += [(found.trace[n], whole.trace[n]) for n in whole.trace]
    return all(np.array_equal(np.asarray(a[:]), np.asarray(b[:])) for a, b in pairs)


ANSWER = """
At most what it did since its last checkpoint, which it writes every ten seconds. A fit was killed
20 times at random moments, and resumed each time: no file was damaged, and its draws and traces are
those of an unbroken run, bit for bit. The last checkpoint was at most 10.4 s old.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield (
        f"A fit of the zoo was killed {found['kills']} times in {found['runs']} runs and resumed "
        f"each time. It stores a checkpoint every {number(found['interval'])} seconds. Damaged "
        f"files: {found['damaged']}. Runs that ended with the draws and traces of a run that "
        f"nobody killed, bit for bit: {found['runs_with_the_draws_of_the_unbroken']} of "
        f"{found['runs']}. The last column counts from the start where there was none since."
    )
    yield shown(found["cases"], {
        "killed after, seconds": "after_seconds 1", "steps stored before": "steps_before",
        "steps stored after": "steps_after",
        "seconds since the last checkpoint": "seconds_since_checkpoint 1"})  # fmt: skip


@script(__doc__, kills=20, samples=200_000, seed=(0, "of the seconds before a kill"))
def main(options):
    rng, kills, runs = np.random.default_rng(options.seed), [], 0
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / "unbroken"]
        began = time.time()
        process = begin(folders[0], options.samples)
        _, said = process.communicate()
        if process.returncode:
            raise SystemExit(said.decode())
        seconds = time.time() - began
        whole, same = bmfjax.Fit.load(folders[0]), []
        while len(kills) < options.kills:
            folder, runs, ended = Path(place) / f"killed-{runs}", runs + 1, False
            while not ended and len(kills) < options.kills:
                found = killed(folder, options.samples, rng.uniform(SOONEST, LATEST))
                ended = found is None or found["stored"]
                kills += [] if found is None else [found]
                print(len(kills), found, flush=True)
            if not ended:
                begin(folder, options.samples).communicate()
            same.append(same_draws(folder, whole))
    figures = {
        "kills": len(kills),
        "runs": runs,
        "interval": CHECKPOINT_SECONDS,
        "unbroken_seconds": seconds,
        "longest_seconds_since_checkpoint": max(k["seconds_since_checkpoint"] for k in kills),
        "steps_lost_of_earlier_checkpoints": sum(
            max(k["steps_before"] - k["steps_after"], 0) for k in kills
        ),
        "damaged": sum(k["damaged"] for k in kills),
        "runs_with_the_draws_of_the_unbroken": sum(same),
        "cases": [{n: round(v, 2) if isinstance(v, float) else v for n, v in k.items()}
                  for k in kills],
    }  # fmt: skip
    print({n: v for n, v in figures.items() if n != "cases"})
    return figures
