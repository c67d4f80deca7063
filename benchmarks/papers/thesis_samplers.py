"""What does the posterior of the thesis know?

The thesis fixes the precision of the noise at one and samples with too small steps. What each of
the two costs is told apart: IASG as published, IASG corrected and the exact sampler run with the
precision at one, and the latter two with a learned precision too, from the optimum and from a
random start, for the same time. The exact sampler runs twice: what differs between its two runs is
Monte Carlo error.
"""

import functools
import time

import jax
import numpy as np

import bmfjax
from benchmarks.device import script
from benchmarks.form import number, page_of_one, shown
from benchmarks.papers.thesis import lowest_error
from bmfjax.data import thesis_matrix
from bmfjax.diagnostics import oracle_threshold
from bmfjax.infer import ChainRun, TruncatedGibbs, moments

RANK = 30
FACTORS = ("usage", "basis")
#: Steps by which the time of a step is measured, after as many that hold the compilation.
PILOT = 64
EXACT, AGAIN, PUBLISHED, CORRECTED = "exact", "exact, again", "IASG published", "IASG corrected"


def kernels(learned: bool, data):
    """Name and bound kernel of every sampler of one posterior."""
    fixed = {} if learned else {"precision": 1.0}
    model = functools.partial(bmfjax.models.relaxed_bmf, rank=RANK, prior="normal", **fixed)
    yield EXACT, TruncatedGibbs(model).bind(data)
    yield AGAIN, TruncatedGibbs(model).bind(data)
    yield CORRECTED, bmfjax.IASG(model).bind(data)
    if not learned:
        yield PUBLISHED, bmfjax.IASG.thesis(model, batch_size=512).bind(data)


def start_of(truth, learned: bool) -> dict:
    """The truth, a little inside the bounds."""
    position = {
        name: np.clip(np.asarray(getattr(truth, name), np.float32), 0.02, 0.98)[None]
        for name in FACTORS
    }
    return position | ({"precision": np.full(1, 10.0, np.float32)} if learned else {})


def sample(bound, position, seconds: float, key) -> dict:
    """Moments over as many draws as fit into the time, after as many that are left out."""
    run_of = functools.partial(
        ChainRun, bound.algorithm, key, bound.data, position=position, chunk_size=PILOT,
        reducers={"moments": moments(*FACTORS)}, trace={"log_joint": 1},
    )  # fmt: skip
    pilot = run_of(num_samples=4 * PILOT)
    pilot.advance(PILOT)
    pilot.advance(PILOT)
    began = time.perf_counter()
    pilot.advance(PILOT)
    number = max(PILOT, round(0.5 * seconds * PILOT / (time.perf_counter() - began)))
    run = run_of(num_warmup=number, num_samples=number)
    run.advance(1)  # which compiles
    began = time.perf_counter()
    run.finish()
    spent = time.perf_counter() - began
    found = run.reduced()["moments"]
    return {
        "draws": number,
        "seconds": round(spent, 1),
        "log_joint": round(float(run.trace()["log_joint"][0, number:].mean()), 1),
        "precision": _precision(run.state),
        **{
            of: np.concatenate([found[n][of][0].ravel() for n in FACTORS], dtype=float)
            for of in ("mean", "variance")
        },
        **{n: found[n]["mean"][0] for n in FACTORS},
    }


def _precision(state) -> float | None:
    """The last value of a learned precision."""
    precision = state.position.get("precision")
    return None if precision is None else round(float(np.asarray(precision)[0]), 2)


def row_of(found: dict, exact: dict | None, truth) -> dict:
    """The figures of one sampler, beside the exact one's where labels match."""
    best = oracle_threshold(found["usage"], found["basis"], truth.clean)
    sd = np.sqrt(found["variance"])
    row = {n: found[n] for n in ("draws", "seconds", "log_joint", "precision")} | {
        "error_at_half": int(best.error_at_half),
        "error": int(best.error),
        "tau_min": round(float(best.tau_min), 2),
        "tau_max": round(float(best.tau_max), 2),
        "mean_entry": round(float(found["mean"].mean()), 4),
        "mean_sd": round(float(sd.mean()), 4),
    }
    if exact is None:
        return row
    reference = np.sqrt(exact["variance"])
    shift = (found["mean"] - exact["mean"]) / reference
    return row | {
        "mean_difference": round(float(np.sqrt(np.mean(shift**2))), 3),
        "sd_ratio": round(float(np.median(sd / reference)), 3),
    }


def study(seconds: float):
    """All rows, as they are made."""
    for name in ("clean", "noisy"):
        truth = thesis_matrix(name, tiles="8x8")
        data = truth.data.dense()
        for learned in (False, True):
            for start in ("optimum", "random"):
                position = start_of(truth, learned) if start == "optimum" else None
                exact = None
                for place, (sampler, bound) in enumerate(kernels(learned, data)):
                    found = sample(bound, position, seconds, jax.random.key(place))
                    row = row_of(found, exact, truth)
                    if sampler == EXACT and start == "optimum":
                        exact = found
                    about = {"data": name, "precision_is": "learned" if learned else "1"}
                    yield about | {"start": start, "sampler": sampler} | row


NOTES = [("a0cd576", "other work ran beside it: draws are fewer than on a free core")]

ANSWER = """
Nothing of the tiles. With the precision fixed at 1, as in the thesis, the exact sampler gets all
1,920 ones wrong at any threshold, on both matrices and from both starts. IASG as published keeps
the tiles where it starts at the optimum, because its steps are small: its standard deviations are
less than a thousandth of the posterior's in the median.

| Normal prior, wrong entries at the best threshold | clean, optimum | clean, random | noisy, optimum | noisy, random |
| --- | --- | --- | --- | --- |
| precision 1: exact | 1,920 | 1,920 | 1,920 | 1,920 |
| precision 1: IASG published | 0 | 934 | 78 | 1,815 |
| precision 1: IASG corrected | 570 | 395 | 1,920 | 1,920 |
| precision learned: exact | 0 | 0 | 63 | 157 |
| precision learned: IASG corrected | 780 | 555 | 1,920 | 1,920 |

At precision 1 the corrected form is close to the posterior, which has lost them: its means are 0.40
posterior standard deviations from the exact sampler's and its standard deviations 0.93 times as
large.

With a learned precision, the library's default, the exact sampler has no wrong entry on the clean
matrix from either start, in 30 seconds, and 63 on the noisy one. There IASG is at fault: its
standard deviations are 2.9 times too large, and it loses the noisy tiles altogether. It warns that
coordinates are held at their bounds, and names the exact sampler. Use that for such data.
"""  # noqa: E501


@page_of_one(__doc__, notes=NOTES)
def tables(found: dict):
    yield (
        f"The matrices of the tables of Gonsior (2019), rank {found.get('rank')}, Normal prior, "
        f"about {number(found.get('seconds'))} seconds of sampling each, of which the first half "
        "is left out. IASG as published has batch 512, IASG corrected its defaults. `difference` "
        "(root mean square of the differences of means, in posterior standard deviations) and "
        "`ratio` (median, of standard deviations) are from the exact sampler, from the optimum, "
        "where labels match. Wrong entries are against the noise-free matrix."
    )
    for given, title in (("1", "Precision fixed at 1, as in the thesis"),
                         ("learned", "Precision learned")):  # fmt: skip
        yield f"## {title}"
        yield shown([row for row in found.get("rows", ()) if row["precision_is"] == given], {
            "data": "", "from": "start", "sampler": "", "draws": "",
            "error at 0.5": "error_at_half",
            "lowest error (thresholds)": lambda row: lowest_error(row, ""),
            "precision": "precision 1", "mean entry": "mean_entry 3", "mean sd": "mean_sd 4",
            "difference": "mean_difference? 2", "ratio": "sd_ratio? 3", "log joint": "log_joint 0",
            "seconds": "seconds 0"})  # fmt: skip


@script(__doc__, seconds=(60.0, "of sampling, for every run"))
def main(options):
    rows = []
    for row in study(options.seconds):
        print(row, flush=True)
        rows.append(row)
    return {"rank": RANK, "seconds": options.seconds, "rows": rows}
