"""Do Boolean chains from random starts find the truth?

The four kinds of matrix of Gonsior 2019 (512 x 512, rank 30), ten matrices of each. Every chain
starts at factors that an annealed relaxed model found from a random start of its own, and may have
taken over some of another (`bmfjax.infer.boolean_starts`); one more starts at the truth. Wrong
entries against the noise-free matrix, of the posterior mean of the product cut at one half, chain
by chain.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

import bmfjax
from benchmarks.agreement.relaxed_starts import KINDS, RANK
from benchmarks.device import growing, script, some
from benchmarks.form import listed, named, number, page_of_each, settings_of, shown, table
from bmfjax.diagnostics import split_rhat
from bmfjax.families.boolean import default_options
from bmfjax.infer import ChainRun, boolean_starts
from bmfjax.infer.boolean_start import EXCHANGE
from bmfjax.infer.mcmc.ormachine import MOVES
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import ormachine, start_from
from bmfjax.kernels.boolean.words import packed_data, unpack_last_axis


def one_matrix(kind: str, seed: int, options) -> dict:
    """Chains from random starts and one from the truth, on one matrix."""
    made = bmfjax.generate_tiles(options.size, options.size, RANK, seed=seed, **KINDS[kind])
    began = time.perf_counter()
    starts = boolean_starts(
        random.key(seed), made.data, RANK, options.chains, num_exchange=EXCHANGE
    )
    seconds_start = time.perf_counter() - began
    starts.append({"usage": made.usage, "basis": made.basis})
    data = packed_data(made.data)
    density = BooleanDensity(made.data.shape, RANK, flip_rate=FlipRatePrior(num_rates=2))
    moves = [
        (name, MOVES[name](density)) for name in default_options(*made.data.shape, RANK)[0]["moves"]
    ]
    place = jax.jit(lambda s: start_from(density, data, s))
    position = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(place, starts))
    run = ChainRun(ormachine(density, moves=moves), random.key(seed), data, num_chains=len(starts),
                   num_warmup=options.warmup, num_samples=options.samples, position=position,
                   draws={"usage": 5, "basis": 5}, trace={"log_joint": 1})  # fmt: skip
    began = time.perf_counter()
    run.finish()
    joint = run.trace()["log_joint"][:, options.warmup :]
    wrong = [wrong_entries(*chain, made.clean) for chain in zip(*bits(run), strict=True)]
    return {
        "errors_of_the_starts": [
            int((np.asarray(s["usage"] @ s["basis"].T) != made.clean).sum()) for s in starts[:-1]
        ],
        "errors": wrong[:-1],
        "errors_from_the_truth": wrong[-1],
        "errors_of_the_data": int((made.data.dense() != made.clean).sum()),
        "log_joint": [round(float(v), 1) for v in joint[:-1].mean(1)],
        "log_joint_from_the_truth": round(float(joint[-1].mean()), 1),
        "rhat_log_joint": round(float(split_rhat(joint[:-1])), 3),
        "seconds_of_the_starts": round(seconds_start, 1),
        "seconds_of_the_chains": round(time.perf_counter() - began, 1),
    }


def bits(run):
    """Draws of both factors, (chain, draw, rank, lines) bool."""
    drawn, size = run.draws(), run.state.position
    for site in ("usage", "basis"):
        yield np.asarray(unpack_last_axis(jnp.asarray(drawn[site]), 32 * size[site].shape[-1]))


def wrong_entries(usage, basis, clean) -> int:
    """Of one chain: (draw, rank, rows) and (draw, rank, columns)."""
    rows, columns = clean.shape
    mean = np.zeros(clean.shape)
    for u, v in zip(usage[..., :rows], basis[..., :columns], strict=True):
        mean += u.astype(np.float32).T @ v.astype(np.float32) > 0
    return int(((mean >= 0.5 * len(usage)) != clean).sum())


ANSWER = """
Yes where tiles are large or noise is low: no entry is wrong in any chain on 15 of 15 such matrices,
with earlier code. Where about 13,000 entries of the data are wrong and tiles are 8 x 8, chains have
103.2 wrong entries on average and the chain from the truth has 103.5. The matrices are those of
Gonsior (2019), 512 x 512 with 30 tiles.

The target, no chain more than 10 % above the chain from the truth, is missed: it holds on 4 of 10
noisy 8 x 8 matrices. The log joint of the chains agrees (R-hat at most 1.003). Part of the rest may
be chance, because few draws decide on which side of one half an uncertain entry falls.
"""


@page_of_each(
    __doc__,
    notes=[("b6308ea", "earlier: half the draws, births, no exchange of factors")],
    intro=(
        "Wrong entries against the noise-free matrix, of the posterior mean cut at one half. "
        "Chains start at annealed relaxed fits from random starts of their own, and one starts "
        "at the truth. The last table of each record has the means over its matrices. A matrix "
        "meets the target where no chain has more than 10 % more wrong entries than the chain "
        "from the truth."
    ),
)
def tables(found: dict):
    yield settings_of(found, "matrices")
    yield shown(named(dict(sorted(found["matrices"].items())), "matrix"), {
        "matrix": "", "wrong, each chain": lambda case: listed(case["errors"]),
        "from the truth": "errors_from_the_truth",
        "at the starts": lambda case: listed(case["errors_of_the_starts"]),
        "R-hat log joint": "rhat_log_joint 3", "log joint, from the truth first": _joints,
        "wrong in the data": "errors_of_the_data"})  # fmt: skip
    yield table(
        ["matrices", "wrong, mean", "from the truth, mean", "meet the target"],
        [_starts_of_kind(kind, found["matrices"]) for kind in _kinds(found["matrices"])],
    )


def _joints(case: dict) -> str:
    return listed([case["log_joint_from_the_truth"], *case["log_joint"]], 1)


def _kinds(matrices: dict) -> list[str]:
    return sorted({name.rpartition(",")[0] for name in matrices})


def _starts_of_kind(kind: str, matrices: dict) -> list:
    cases = [case for name, case in matrices.items() if name.rpartition(",")[0] == kind]
    errors = [error for case in cases for error in case["errors"]]
    truth = [case["errors_from_the_truth"] for case in cases]
    met = sum(10 * max(case["errors"]) <= 11 * case["errors_from_the_truth"] for case in cases)
    return [
        kind, number(sum(errors) / len(errors), 1), number(sum(truth) / len(truth), 1),
        f"{met} of {len(cases)}",
    ]  # fmt: skip


@script(__doc__, size=512, chains=4, warmup=200, samples=400, seeds=(10, "matrices of each kind"),
        kinds=some(KINDS))  # fmt: skip
def main(options):
    cases = {f"{kind}, {n}": (kind, n) for n in range(options.seeds) for kind in options.kinds}
    figures = {n: getattr(options, n) for n in ("size", "chains", "warmup", "samples")}
    yield from growing(figures, "matrices", cases, lambda c: one_matrix(*cases[c], options))
