"""How far is IASG from the posterior?

How far IASG's answer is from the posterior: against NUTS on the same model and data.

House votes, rank 4, uniform priors, learned precision. NUTS starts at IASG's
posterior means, so that both look at the same mode and no labels have to be
matched. Differences are in posterior standard deviations of NUTS.
"""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS, init_to_value

import bmfjax
from benchmarks.device import command_line
from benchmarks.form import Records, figures, named, number, page, shown, table
from benchmarks.record import write_record
from bmfjax.diagnostics import split_rhat


def flat(draws):
    """Chains joined."""
    return draws.reshape(-1, *draws.shape[2:])


def compare(ours, theirs) -> dict:
    """Means and spreads of (draw, ...) arrays, entry by entry, over the entries."""
    sd = theirs.std(0)
    moved = np.abs(ours.mean(0) - theirs.mean(0)) / sd
    ratio = ours.std(0) / sd
    return {
        "mean_difference_in_sd_median": round(float(np.median(moved)), 3),
        "mean_difference_in_sd_90_percent": round(float(np.quantile(moved, 0.9)), 3),
        "ratio_of_sd_median": round(float(np.median(ratio)), 3),
        "ratio_of_sd_10_percent": round(float(np.quantile(ratio, 0.1)), 3),
        "ratio_of_sd_90_percent": round(float(np.quantile(ratio, 0.9)), 3),
    }


def products(usage, basis, every: int):
    """Reconstruction of every so many entries, (draw, entries)."""
    whole = np.einsum("dik,djk->dij", usage[:, ::every], basis, dtype=np.float64)
    return whole.reshape(len(usage), -1)


ANSWER = """
Far for the factors: on the votes at rank 4 the means of the usage are 0.854 posterior standard
deviations from those of NUTS in the median, and those of the basis 0.699. The product is closer,
with 0.356 and a ratio of standard deviations of 1.047. Standard deviations of the usage are 0.767
times the posterior's in the median, and 0.103 at the 10 % quantile. The precision is far off too:
its mean is 10.318 where NUTS has 9.114 ± 0.172, which is 7.0 posterior standard deviations.
"""


@page(__doc__)
def tables(records: Records):
    found = figures(records, "iasg_vs_nuts")
    yield (
        f"Matrix `{found.get('data')}`, rank {found.get('rank')}: IASG beside NUTS. Differences of "
        "means are in posterior standard deviations, and ratios are of standard deviations."
    )
    columns = {
        "mean_difference_in_sd_median": "difference, median", "ratio_of_sd_median": "ratio, median",
        "mean_difference_in_sd_90_percent": "difference, 90 %",
        "ratio_of_sd_10_percent": "ratio, 10 %", "ratio_of_sd_90_percent": "ratio, 90 %",
    }  # fmt: skip
    yield table(
        ["entries of", *columns.values()],
        [
            [part, *(number(found[part][n], 3) for n in columns)]
            for part in ("usage", "basis", "reconstruction")
            if part in found
        ],
    )
    samplers = {n: found[n] for n in ("iasg", "nuts") if n in found}
    yield shown(
        named(samplers, "sampler"),
        {"sampler": "", "mean precision": "precision_mean 3",
         "its standard deviation": "precision_sd 3", "seconds": "seconds 1",
         "divergences": "divergences?",
         "R-hat of 99 % of the product": "rhat_product_99_percent? 3",
         "share of entries clamped": "clamped? 3"},
    )  # fmt: skip


def main() -> None:
    options = command_line(__doc__, warmup=300, samples=300, chains=2)

    data = bmfjax.load("house-votes")
    fit = bmfjax.fit(data, rank=4, model="relaxed", sampler="iasg", seed=0, progress=False)
    inside = {"usage": fit.usage, "basis": fit.basis}
    inside = {n: jnp.asarray(np.clip(v, 0.01, 0.99), jnp.float32) for n, v in inside.items()}
    inside["precision"] = jnp.asarray(fit.other_draws["precision"].mean())

    model = functools.partial(bmfjax.models.relaxed_bmf, rank=4)
    nuts = MCMC(
        NUTS(model, init_strategy=init_to_value(values=inside), max_tree_depth=8),
        num_warmup=options.warmup,
        num_samples=options.samples,
        num_chains=options.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    began = time.perf_counter()
    nuts.run(jax.random.key(1), data.dense(), extra_fields=("potential_energy", "diverging"))
    seconds = time.perf_counter() - began
    exact = {n: np.asarray(v) for n, v in nuts.get_samples(group_by_chain=True).items()}
    rhat = split_rhat(np.einsum("cdik,cdjk->cdij", exact["usage"][:, :, ::40], exact["basis"]))

    # The factors of `fit` are in the order in which NUTS started.
    usage, basis = flat(fit.usage_draws), flat(fit.basis_draws)
    table = {
        "data": "house-votes",
        "rank": 4,
        "iasg": {
            "window": fit.settings["window"],
            "clamped": round(float(fit.figures.clamped), 3),
            "seconds": round(float(fit.figures.seconds), 1),
            "precision_mean": round(float(fit.other_draws["precision"].mean()), 3),
            "precision_sd": round(float(fit.other_draws["precision"].std()), 3),
        },
        "nuts": {
            "chains": options.chains,
            "samples": options.samples,
            "seconds": round(seconds, 1),
            "divergences": int(nuts.get_extra_fields()["diverging"].sum()),
            "rhat_product_99_percent": round(float(np.nanquantile(rhat, 0.99)), 3),
            "precision_mean": round(float(exact["precision"].mean()), 3),
            "precision_sd": round(float(exact["precision"].std()), 3),
        },
        "usage": compare(usage, flat(exact["usage"])),
        "basis": compare(basis, flat(exact["basis"])),
        "reconstruction": compare(
            products(usage, basis, 8), products(flat(exact["usage"]), flat(exact["basis"]), 8)
        ),
    }
    print(table)
    print(write_record("iasg_vs_nuts", table, options.output))


if __name__ == "__main__":
    main()
