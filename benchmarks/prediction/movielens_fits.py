"""Which MovieLens ratings lie above the mean? Whole fits by `bmfjax.fit`, beside published figures.

The protocol, the splits and the published figures are those of `movielens.py`. With ``--resume``
what the record holds is not found again, and stays.
"""

import os
import time
from pathlib import Path

import numpy as np
import scipy.sparse

import bmfjax
from benchmarks.device import held, script, some
from benchmarks.form import mean_and_error
from benchmarks.prediction.movielens import PERCENT, PUBLISHED, read_ratings, scores, split

#: The models, and the name of each in the tables.
MODELS = {
    "OrMachine, rank 5": bmfjax.OrMachine(5),
    "OrMachine with effects, rank 5": bmfjax.OrMachineEffects(5),
    "probit, rank 10": bmfjax.Probit(10),
    "probit of which cells are rated too, rank 10": bmfjax.Probit(10, rated="both"),
}


def one_fit(model, user, item, x, percent, seed, max_cpu) -> dict:
    """Score one fit on the ratings that it did not see."""
    seen, rest = split(len(x), percent, seed)
    shape = (int(user.max()) + 1, int(item.max()) + 1)
    if isinstance(model, bmfjax.Probit):
        data = bmfjax.Ratings(user[seen], item[seen], x[seen], shape=shape)
    else:
        at = (user[seen], item[seen])
        observed = scipy.sparse.csr_matrix((np.ones(len(seen), bool), at), shape=shape)
        ones = scipy.sparse.csr_matrix((x[seen], at), shape=shape)
        ones.eliminate_zeros()
        data = bmfjax.BinaryMatrix(ones, observed)
    began = os.times()
    fit = bmfjax.fit(data, model, seed=seed, max_time=max_cpu, progress=False)
    spent = os.times()
    chance = fit.predict_cells(user[rest], item[rest], "probability", noisy=True, positions=True)
    cpu = spent.user - began.user + spent.system - began.system
    return scores(chance, x[rest]) | {"cpu_seconds": cpu, "verdict": str(fit.verdict)}


def summed(found: list[dict]) -> dict:
    """Return means over the splits, and the verdicts."""
    numbers = [name for name in found[0] if name != "verdict"]
    table = {name: mean_and_error([one[name] for one in found], 4) for name in numbers}
    return table | {"verdicts": [one["verdict"] for one in found]}


@script(__doc__, {"folder": (Path, "folder of the ratings, as of movielens.py")},
        models=some(MODELS), percent=dict(nargs="+", type=float, default=list(PERCENT)), splits=1,
        max_cpu=(600.0, "processor seconds of a fit"),
        resume=(False, "leave what the record holds"))  # fmt: skip
def main(options):
    # The clock of a fit is a monotonic one: other work on the machine takes nothing of it then.
    time.monotonic = time.process_time
    title, user, item, x = read_ratings(options.folder)
    options.record += f"_{title.lower()}"
    shares = {}
    if options.resume and (stored := held(options)):
        if (stored["splits"], stored["max_cpu_seconds"]) != (options.splits, options.max_cpu):
            options.error(
                f"{options.record} is of other --splits or another --max-cpu: write elsewhere"
            )
        shares = stored["observed_percent"]
    for percent in options.percent:
        share = shares.setdefault(f"{percent:g}", {})
        for model in (model for model in options.models if model not in share):
            share[model] = summed([
                one_fit(MODELS[model], user, item, x, percent, seed, options.max_cpu)
                for seed in range(options.splits)
            ])  # fmt: skip
            print(percent, model, share[model], flush=True)
            figures = {
                "data": f"MovieLens {title}",
                "splits": options.splits,
                "max_cpu_seconds": options.max_cpu,
                "observed_percent": {p: shares[p] for p in sorted(shares, key=float)},
                "published_percent_right": {"observed_percent": PERCENT, **PUBLISHED[title]},
            }
            yield figures
