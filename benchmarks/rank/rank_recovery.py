"""Is the number of factors found?

`bmfjax.fit(data, "auto")` of the Boolean model, in six studies:

* `shipped`: `bmfjax fit NAME --rank auto --tiles FILE` on every shipped matrix, with all defaults
  but `--max-time`: are the probabilities, the report with them and the tiles there within three
  minutes, and do the chains agree?
* `grid`: that of Rukat and Yau (2019), 200 x 500, rank 2 to 10, half of the product ones, flips of
  0, 10 and 20 %, three matrices of each: 81 fits. The authors' program finds the rank of 64 and
  boolmf of 54, by the table in the repository siddC/boolmf;
* `tiles`: 20 matrices of Gonsior (2019), algorithm 3.3, 512 x 512 with clean noise (1 % of the
  zeros and 5 % of the ones flipped), of rank 5 to 30;
* `real`: matrices whose Boolean rank is known: role mining (healthcare 14, domino 20, firewall2 10;
  Ene et al. 2008) with `--files FOLDER`. The log joint density of exact factors beside the highest
  among the draws says whether a number that is not the Boolean rank is the posterior's or the
  chains';
* `prior`: matrices drawn from the prior, 20 x 16 with at most 4 factors. The probability of the
  true number is calibrated if in every bin of P(rank = k) the share of matrices with rank k is what
  the bin says;
* `evidence`: the same probabilities from the evidence of every rank, by sequential Monte Carlo, on
  two matrices whose number of factors the data leave open: a small noisy product, and Davis' women
  and events. Used factors count in both: at a given rank some of the particles may leave a
  factor empty.

    python -m benchmarks.rank.rank_recovery [--only shipped grid tiles real prior evidence]
        [--files FOLDER]
"""

import itertools
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from numpyro.infer import Predictive
from scipy import special

import bmfjax
from benchmarks.agreement.ormachine_convergence import stored
from benchmarks.device import script, some
from benchmarks.form import SECONDS, named, number, page, settings_of, shown, table, with_error
from bmfjax.cli import main as main_of_cli

RANKS, FLIPS, REPEATS, SHAPE = range(2, 11), (0.0, 0.1, 0.2), 3, (200, 500)
TILE_RANKS, MOST_TILES = np.linspace(5, 30, 20).round().astype(int), 40
MOST_REAL = 30
KNOWN = {"healthcare": 14, "firewall2": 10, "domino": 20}
PRIOR_SHAPE, PRIOR_RANK, BINS = (20, 16), 4, 5
EVIDENCE_SHAPE, EVIDENCE_FLIPS, EVIDENCE_RANKS = (24, 14), 0.18, {"product": 5, "davis": 8}


def one_fit(data, options, **more) -> dict:
    """Fit; the probabilities of the numbers of factors, and what it cost."""
    return _fitted(data, options, **more)[1]


def _fitted(data, options, **more):
    began = time.perf_counter()
    chosen = {"max_rank": options.max_rank, "num_chains": options.chains} | more
    if "num_samples" not in chosen:
        chosen["max_time"] = options.max_time
    fit = bmfjax.fit(data, "auto", seed=options.seed, progress=False, **chosen)
    return fit, told_of(fit, began)


def told_of(fit, began: float) -> dict:
    """Return what a fit tells of the number of factors, and the seconds that it took."""
    names = ("rank", "rank_probability", "rhat_rank", "rhat", "num_draws")
    return {
        "probabilities": {str(n): round(p, 4) for n, p in fit.rank_probabilities.items()},
        **{n: fit.figures.get(n) for n in names},
        "most": int(fit.settings["max_rank"]),
        "seconds": round(time.perf_counter() - began, 1),
        "verdict": str(fit.verdict),
    }


def shipped(options) -> dict:
    """Fit every shipped matrix."""
    found, given = {}, {"max_rank": None, "chains": 4, "max_time": options.max_time}
    for dataset in bmfjax.datasets():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            output, tiles = Path(folder) / "fit", Path(folder) / "tiles.csv"
            code = main_of_cli([
                "fit", dataset.name, "--rank", "auto", "--max-time", str(options.max_time),
                "--seed", str(options.seed), "--tiles", str(tiles), "--output", str(output),
                "--quiet",
            ])  # fmt: skip
            fit = bmfjax.Fit.load(output)
            report, kept = (output / "report.html").read_text(), tiles.read_text().splitlines()
        found[dataset.name] = (
            {"shape": list(fit.data.shape)}
            | told_of(fit, began)
            | {
                "exit": int(code),
                "report_tells_the_number": "How many factors are there?" in report,
                "report_tells_the_trust": "false discovery rate" in report,
                "tiles": len({line.split(",")[0] for line in kept[1:]}),
            }
        )
        print(dataset.name, found[dataset.name]["rank"], found[dataset.name]["seconds"], flush=True)
    slowest = max(case["seconds"] for case in found.values())
    return {**given, "longest_seconds": slowest, "cases": found}


def planted(options, cases, **more) -> dict:
    """Fit matrices (name, true number of factors, data), and count how often it is found."""
    found = {}
    for name, truth, data in cases:
        found[name] = {"truth": truth} | one_fit(data, options, **more)
        print(name, found[name]["rank"], found[name]["seconds"], flush=True)
    return settings(options) | more | summary(found)


def grid(options) -> dict:
    """Fit the grid, or the part of it that was asked for."""
    every = itertools.product(options.ranks, FLIPS, range(options.repeats))
    made = (
        (f"rank {rank}, flips {flips:.0%}, {repeat}", rank,
         bmfjax.generate_product(*SHAPE, rank, flip=flips, seed=1000 * rank + repeat).data)
        for rank, flips, repeat in every
    )  # fmt: skip
    return planted(options, made)


def tiles(options) -> dict:
    """Fit matrices of tiles with clean noise."""
    made = (
        (f"rank {rank}", rank,
         bmfjax.generate_tiles(rank=rank, noise=(0.01, 0.05), seed=rank).data)
        for rank in TILE_RANKS.tolist()
    )  # fmt: skip
    return planted(options, made, max_rank=MOST_TILES)


def settings(options) -> dict:
    """Return what `one_fit` gives to a fit that is not given it otherwise."""
    return {n: getattr(options, n) for n in ("max_rank", "chains", "max_time")}


def real(options) -> dict:
    """Fit matrices whose Boolean rank is known."""
    found = {}
    for name, truth in KNOWN.items():
        data = stored(options.files / "role-mining" / f"{name}.npz")
        most = min(MOST_REAL, *data.shape)
        fit, told = _fitted(data, options, max_rank=most)
        dense, shape = data.dense() > 0.5, list(data.shape)
        with np.load(options.files / "role-mining" / "exact-factors-shared.npz") as file:
            exact = [
                np.unpackbits(file[f"{name}_{side}"], 1, size, "little").astype(bool)
                for side, size in (("Z", truth), ("U", data.num_columns))
            ]
        draws = zip(
            *(np.asarray(d[:, :]).reshape(-1, size, fit.rank)
              for d, size in zip((fit.usage_draws, fit.basis_draws), shape, strict=True)),
            strict=True,
        )  # fmt: skip
        highest = max((integrated(dense, *draw, most) for draw in draws), key=lambda one: one[0])
        joints = {
            f"{what}_{figure}": value
            for what, one in (
                ("exact", integrated(dense, exact[0], exact[1].T, most)), ("highest", highest)
            )
            for figure, value in zip(("log_joint", "errors", "factors"), one, strict=True)
        }  # fmt: skip
        found[name] = {"truth": truth, "shape": shape} | told | joints
        print(joints, flush=True)
        print(name, found[name]["rank"], found[name]["seconds"], flush=True)
    return settings(options) | {"max_rank": MOST_REAL} | summary(found)


def integrated(data, usage, basis, most: int) -> tuple[float, int, int]:
    """Return log joint of data and factors in any order, entries wrong, and number of factors.

    The densities of every factor and the flip rate, uniform on [0, 1] and [0, 1/2], are integrated
    out; every number of factors up to `most` has the same probability.
    """
    here = usage.any(0) & basis.any(0)
    usage, basis = usage[:, here], basis[:, here]
    wrong = int(np.sum((usage.astype(int) @ basis.T.astype(int) > 0) != data))
    after = wrong + 1, data.size - wrong + 1
    joint = special.betaln(*after) + np.log(2 * special.betainc(*after, 0.5))
    for side in (usage, basis):
        ones = side.sum(0)
        joint += special.betaln(ones + 1, len(side) - ones + 1).sum()
    number = int(here.sum())
    return float(joint + special.gammaln(number + 1) - np.log(most + 1)), wrong, number


def summary(found: dict) -> dict:
    """Count how often the most probable number is the true one."""
    apart = np.array([case["rank"] - case["truth"] for case in found.values()])
    return {
        "fits": len(found), "exact": int(np.sum(apart == 0)),
        "within_one": int(np.sum(np.abs(apart) <= 1)), "mean_error": float(apart.mean()),
        "longest_seconds": max(case["seconds"] for case in found.values()), "cases": found,
    }  # fmt: skip


def prior(options) -> dict:
    """Fit matrices drawn from the prior, and compare probabilities with frequencies."""
    names = ("usage", "basis", "flip_rate")
    drawn = jax.jit(Predictive(
        lambda: bmfjax.models.ormachine(
            rank=PRIOR_RANK, num_rates=1, shape=PRIOR_SHAPE, presence_prior=(1.0, 1.0)
        ),
        num_samples=options.matrices,
    ))(jax.random.key(options.seed))  # fmt: skip
    drawn = {n: np.asarray(drawn[n]) for n in (*names, "data")}
    used = (drawn["usage"].any(1) & drawn["basis"].any(1)).sum(-1)
    told, is_true = [], []
    for m, truth in enumerate(used):
        found = one_fit(drawn["data"][m].astype(float), options, max_rank=PRIOR_RANK, num_chains=2,
                        num_warmup=200, num_samples=options.draws)  # fmt: skip
        chances = [found["probabilities"].get(str(n), 0.0) for n in range(PRIOR_RANK + 1)]
        told += chances
        is_true += [n == truth for n in range(PRIOR_RANK + 1)]
    told, is_true = np.array(told), np.array(is_true)
    place = np.minimum((told * BINS).astype(int), BINS - 1)
    bins = [place == b for b in range(BINS)]
    return {
        "matrices": len(used), "max_rank": PRIOR_RANK, "chains": 2, "draws": options.draws,
        "told": [float(told[b].mean()) if b.any() else None for b in bins],
        "frequency": [float(is_true[b].mean()) if b.any() else None for b in bins],
        "numbers": [int(b.sum()) for b in bins],
        "mean_probability_of_the_truth": float(told[is_true].mean()),
    }  # fmt: skip


def evidence(options) -> dict:
    """Compare the probabilities with those from the evidence of every rank, on two matrices."""
    size = {"density": 1 - (1 - 0.35**2) ** 3, "flip": EVIDENCE_FLIPS, "seed": options.seed}
    product = bmfjax.generate_product(*EVIDENCE_SHAPE, 3, **size).data
    found = {}
    for name, data in (("product", product), ("davis", "davis")):
        found[name] = _by_evidence(data, EVIDENCE_RANKS[name], options)
        print(name, found[name], flush=True)
    return {"chains": 4, "matrices": found}


def _by_evidence(data, most: int, options) -> dict:
    logs, errors, used = [], [], []
    for rank in range(1, most + 1):
        fit = bmfjax.fit(data, rank, sampler="smc", seed=options.seed, progress=False)
        logs.append(fit.log_evidence.value)
        errors.append(fit.log_evidence.error)
        draws = (np.asarray(d[:, :].any(2)) for d in (fit.usage_draws, fit.basis_draws))
        number = np.logical_and(*draws).sum(-1).ravel()
        used.append(np.bincount(number, minlength=most + 1) / number.size)
    chance = np.exp(np.array(logs) - max(logs))
    told = chance / chance.sum() @ np.array(used)
    found = one_fit(data, options, max_rank=most, num_chains=4, num_warmup=500, num_samples=10_000)
    return {
        "max_rank": most,
        "log_evidence": logs,
        "standard_error": errors,
        "from_evidence": [float(p) for p in told],
        "from_the_fit": [found["probabilities"].get(str(n), 0.0) for n in range(len(told))],
        "rhat_rank": found["rhat_rank"],
        "seconds": found["seconds"],
    }


STUDIES = {
    "shipped": shipped, "grid": grid, "tiles": tiles, "real": real, "prior": prior,
    "evidence": evidence,
}  # fmt: skip


NOTES = [
    ("7ed84f2", SECONDS), ("9db28bd", SECONDS),
    ("5aad51d", "light work ran beside it: seconds are upper bounds"),
    ("fe8dc27", "light work ran beside it: seconds are upper bounds"),
]  # fmt: skip

ANSWER = """
Of random products, yes: on the grid of Rukat and Yau (2019), 200 x 500 with up to 20 % of the
entries flipped, the most probable number is the true one in 78 of 81 fits, and one too many in the
other three. The target was 70; the authors' program finds 64 and boolmf 54, by the table of the
repository siddC/boolmf. On 20 matrices of tiles, 512 x 512 with clean noise and of rank 5 to 30, it
is the true one in all. The probabilities are those by the evidence of every rank, from sequential
Monte Carlo: on a noisy 24 x 14 product they differ by at most 0.008, on the 18 women and 14 events
of Davis by at most 0.022. On matrices whose exact Boolean rank is known the most probable number is
that rank on one of three.

The exact Boolean rank is not the rank of the posterior: a factor that explains fewer entries than
its own prior costs is not worth having. The log joint density of each matrix, with densities and
flip rate integrated out, is far higher for fewer factors that get a few entries wrong:

| matrix | factors, exact | log joint | factors of the highest draw | its wrong entries | log joint | most probable number | R-hat of the number |
| --- | --- | --- | --- | --- | --- | --- | --- |
| healthcare | 14 | -779 | 10 | 8 | -451 | 14 (0.37) | 1.004 |
| domino | 20 | -1,336 | 14 | 12 | -1,034 | 14 (0.998) | 1.005 |
| firewall2 | 10 | -2,503 | 8 | 4 | -1,407 | 8 (0.70) | 1.939 |

The highest draw is one solution, and the probability of a number counts all of them. So the targets
of 20 factors for domino and 10 for firewall2 are missed. On domino four chains agree on 14; on
firewall2 they do not agree after 120 s of sampling.

`bmfjax fit NAME --rank auto --max-time 90 --tiles FILE` ends within three minutes on every shipped
matrix, with P(rank) and the trust in every tile in its report. The chains agree on few of them: the
fits of Davis and of the clean digits, whose seven segments are found, are reliable, and the
verdicts of the others say that they are not.

Probabilities of the number of factors are calibrated: on 200 matrices of 20 x 16 drawn from the
prior, with up to four factors, they are the true one as often as they say.
"""  # noqa: E501


@page(__doc__, "rank_recovery*", notes=NOTES)
def tables(records: dict):
    yield '`bmfjax.fit(data, "auto")`.'
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        if name.endswith("_grid"):
            yield (
                "The grid is that of Rukat and Yau (2019), 81 fits. As published, their program "
                "finds the rank of 64 of them and boolmf of 54."
            )
        yield settings_of({n: v for n, v in found.items() if not isinstance(v, list)})
        if "cases" in found:
            yield from _recovered(found)
        if "told" in found:
            yield from _prior_ranks(found)
        if name.endswith("_evidence"):
            for matrix, study in found["matrices"].items():
                yield from _evidence_ranks(matrix, study)


def _recovered(study: dict):
    """Write every fit of a study; where the true number is known, how often it is found."""
    if "exact" in study:
        yield (
            f"The most probable number is the true one in {study['exact']} of {study['fits']} "
            f"fits, and within one of it in {study['within_one']}."
        )
    if any("exit" in case for case in study["cases"].values()):
        cases = study["cases"].values()
        yield (
            "Seconds are those of the whole command, with report and tiles. The report tells "
            f"P(rank) on {sum(c['report_tells_the_number'] for c in cases)} of {len(cases)}, and "
            f"the trust in the tiles on {sum(c['report_tells_the_trust'] for c in cases)}; the "
            f"command ended with 0 on {sum(c['exit'] == 0 for c in cases)}."
        )
    yield shown(named(study["cases"], "matrix"), {
        "matrix": "", "true": "truth?", "found": "rank", "most allowed": "most?",
        "its probability": "rank_probability 3", "R-hat rank": "rhat_rank 3", "R-hat": "rhat 3",
        "draws": "num_draws", "seconds": "seconds 1", "verdict": ""})  # fmt: skip
    if any("exact_log_joint" in case for case in study["cases"].values()):
        yield from _beside_exact(study["cases"])


def _beside_exact(cases: dict):
    """Compare the exact factors with the highest draw."""
    yield (
        "Log joint density of data and factors, with densities and flip rate integrated out, of "
        "the exact factors and of the highest draw:"
    )
    yield shown(named(cases, "matrix"), {
        "matrix": "", "factors": "exact_factors", "log joint": "exact_log_joint 1",
        "factors of the draw": "highest_factors", "entries it has wrong": "highest_errors",
        "log joint of the draw": "highest_log_joint 1"})  # fmt: skip


def _prior_ranks(study: dict):
    yield (
        f"{study['matrices']} matrices drawn from the prior. The true number has a probability of"
        f" {number(study['mean_probability_of_the_truth'], 3)} in the mean. Probabilities of"
        " numbers by bin, beside how often they were the true one:"
    )
    bins = zip(study["told"], study["frequency"], study["numbers"], strict=True)
    yield table(
        ["mean probability", "frequency", "probabilities"],
        [[number(told, 3), number(share, 3), many] for told, share, many in bins],
    )


def _evidence_ranks(matrix: str, study: dict):
    yield (
        f"{matrix}, at most {study['max_rank']} factors: probability of each number of used ones,"
        " from the evidence of every rank and from the fit (R-hat of the rank"
        f" {number(study['rhat_rank'], 3)}):"
    )
    both = zip(study["from_evidence"], study["from_the_fit"], strict=True)
    yield table(
        ["factors", "from the evidence", "from the fit"],
        [[n, number(one, 3), number(other, 3)] for n, (one, other) in enumerate(both)],
    )
    pairs = zip(study["log_evidence"], study["standard_error"], strict=True)
    yield table(
        ["rank", "log evidence"],
        [[n, with_error(value, error, 2)] for n, (value, error) in enumerate(pairs, 1)],
    )


@script(__doc__, only=some(STUDIES), files=(Path, "folder of the matrices that are not shipped"),
        ranks=(list(RANKS), "of the grid"), repeats=(REPEATS, "matrices of each kind"), max_rank=20,
        chains=2, max_time=(60.0, "seconds of sampling"), matrices=(200, "drawn from the prior"),
        draws=(500, "of each of these"), seed=0)  # fmt: skip
def main(options):
    bmfjax.use_compilation_cache()  # hundreds of fits of one shape
    for name in options.only:
        if name == "real" and options.files is None:
            continue
        found = STUDIES[name](options)
        print(name, {n: v for n, v in found.items() if n != "cases"}, flush=True)
        options.record = f"rank_recovery_{name}"
        yield {"seed": options.seed, **found}
