# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A thesis retold
#
# Gonsior (2019, "Probabilistic Boolean matrix factorization") relaxes Boolean factors to numbers
# between 0 and 1, puts a normal likelihood around their product, and samples with IASG: averages
# of stochastic gradient steps on minibatches. This notebook runs the sampler as published, the
# sampler corrected, and an exact one on the same matrix, and asks of each: has it arrived at the
# posterior, and does that posterior know the tiles?

# %%
import functools
import os
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpyro.infer import MCMC

import bmfjax
from bmfjax.diagnostics import oracle_threshold
from bmfjax.infer import TruncatedGibbs

quick = bool(os.environ.get("BMFJAX_QUICK"))
SIZE, RANK, DRAWS = (48, 3, 60) if quick else (128, 6, 2000)

made = bmfjax.generate_tiles(SIZE, SIZE, RANK, noise=(0.01, 0.05), seed=0)
data = made.data.dense().astype(np.float32)
print(f"{int(made.clean.sum())} ones in {RANK} tiles")
print(f"{int((data != made.clean).sum())} entries flipped")

# %% [markdown]
# ## The data
#
# The factors (the thesis's figure 3.4), their Boolean product, the noise and what is observed
# (3.5). The order of rows and columns hides the tiles; sorted by the factors they show (2.2). Each
# tile is a column of the usage times a row of the basis (2.3).

# %%
figure, axes = plt.subplots(1, 6, figsize=(12, 2.6), dpi=80, layout="constrained")
by_row, by_column = (np.lexsort(factor.T[::-1])[::-1] for factor in (made.usage, made.basis))
shuffled = np.random.default_rng(0).permutation(SIZE)
noise = data - made.clean
for cell, picture, name in zip(
    axes,
    (made.usage, made.basis.T, made.clean[shuffled][:, shuffled], noise[shuffled][:, shuffled],
     data[shuffled][:, shuffled], data[by_row][:, by_column]),
    ("usage", "basis", "product", "noise: added, taken", "observed", "observed, sorted"),
    strict=True,
):  # fmt: skip
    cell.imshow(picture, aspect="auto", cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest")
    cell.set_title(name, fontsize=9, loc="left")
    cell.set_xticks([])
    cell.set_yticks([])
plt.show()

# %% [markdown]
# ## Descent, and a step back
#
# PAL-Tiling, the optimiser that the thesis makes a sampler of, descends along the gradient of the
# squares (2.4), in steps no longer than one over the largest curvature. After each it applies a
# proximal operator: numbers below one half are pushed to 0, those above to 1, which is what a
# penalty does that is highest in the middle and infinite outside (2.5).

# %%
line = np.linspace(0, 1.2, 120)
x, y = np.meshgrid(line, line)
squares = 0.5 * (1 - x * y) ** 2
path = [np.array([0.15, 0.4])]
for _ in range(40):
    a, b = path[-1]
    # Each in turn: the curvature in one is the square of the other, here at most 1.44.
    a = a + 0.2 * (1 - a * b) * b
    b = b + 0.2 * (1 - a * b) * a
    path.append(np.array([a, b]))

figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), dpi=80, layout="constrained")
axes[0].contourf(x, y, squares, 20, cmap="Greys_r")
axes[0].plot(*np.array(path).T, ".-", color="#c4661f")
axes[0].set_title("descent on (1 - xy)²/2", fontsize=9, loc="left")
inside = np.linspace(0, 1, 200)
axes[1].plot(inside, 1 - np.abs(1 - 2 * inside), color="#2b5fa8")
axes[1].vlines([0, 1], 0, 1.5, color="#2b5fa8", linestyle="--")
axes[1].set_title("the penalty; infinite outside", fontsize=9, loc="left")
wide, step = np.linspace(-0.4, 1.4, 400), 0.1
stepped = np.where(wide <= 0.5, np.maximum(0, wide - 2 * step), np.minimum(1, wide + 2 * step))
axes[2].plot(wide, wide, "--", color="#999999")
axes[2].plot(wide, stepped, color="#2b5fa8")
axes[2].set_title("its proximal operator, step 0.1", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# ## Priors and minibatches
#
# The priors of an entry (3.1). The sampler looks at some rows of the data when it moves the basis,
# and at some columns when it moves the usage (3.3). The squares are a sum over entries (3.2), each
# of which depends on a row of either factor.

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), dpi=80, layout="constrained")
edge = np.linspace(0.005, 0.995, 200)
for name, density in {
    "flat": np.ones_like(edge),
    "Normal(0, 1)": np.exp(-0.5 * edge**2),
    "Laplace(0, 2)": np.exp(-0.5 * edge),
    "Beta(1/2, 1/2)": (edge * (1 - edge)) ** -0.5,
}.items():
    axes[0].plot(edge, density / density.mean(), label=name)
axes[0].set(ylim=(0, 3))
axes[0].legend(fontsize=7)
axes[0].set_title("densities in [0, 1]", fontsize=9, loc="left")
picked = np.sort(np.random.default_rng(0).choice(SIZE, SIZE // 4, replace=False))
for cell, of in zip(axes[1:], ("basis", "usage"), strict=True):
    shown = np.zeros((SIZE + 10, SIZE + 10))
    shown[10:, 10:] = 0.25
    rows = picked + 10
    if of == "basis":
        shown[rows, 10:] = shown[rows, :6] = 0.6
        shown[:6, 10:] = 1.0
    else:
        shown[10:, rows] = 0.6
        shown[:6, rows] = 0.6
        shown[10:, :6] = 1.0
    cell.imshow(shown, cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
    cell.set_title(f"moving the {of} (dark)", fontsize=9, loc="left")
    cell.axis("off")
plt.show()

# %% [markdown]
# The model is the thesis's, with its Normal prior. It fixes the precision of the noise at one.
# The library's default is to learn it.

# %%
model = functools.partial(bmfjax.models.relaxed_bmf, rank=RANK, prior="normal")
fixed = functools.partial(model, precision=1.0)
# One chain starts at the optimum, the other at a random point.
random_point = np.random.default_rng(0)
STARTS = ("optimum", "random start")
starts = {
    name: np.stack([np.clip(factor, 0.02, 0.98), random_point.uniform(size=factor.shape)])
    for name, factor in (("usage", made.usage), ("basis", made.basis))
}


def draws_of(kernel, learned):
    """Draws of both factors from both starts, without a warm-up: the way is to be seen."""
    mcmc = MCMC(
        kernel, num_warmup=0, num_samples=DRAWS, num_chains=2, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    at = starts | ({"precision": np.full(2, 10.0)} if learned else {})
    at = {name: np.asarray(value, np.float32) for name, value in at.items()}
    mcmc.run(jax.random.key(0), data, init_params=at)
    found = mcmc.get_samples(group_by_chain=True)
    return [{n: np.asarray(found[n][c]) for n in ("usage", "basis")} for c in range(2)]


def residual(found):
    """Root mean square difference of each draw's product from the noise-free matrix."""
    products = np.einsum("dnk,dmk->dnm", found["usage"][::10], found["basis"][::10])
    return np.sqrt(((products - made.clean) ** 2).mean((1, 2)))


# %% [markdown]
# ## Three samplers
#
# `IASG.thesis` keeps the published algorithm with its faults: step sizes measured between random
# points of the space, a prior that weighs more the smaller the batch is, and averages over one
# pass. `IASG` is the library's own form, with Newton steps and all data weighed as they should be.
# `TruncatedGibbs` draws from the posterior itself.

# %%
# What IASG warns of is what the notebook is about.
warnings.filterwarnings("ignore", message="IASG holds coordinates at their bounds")
runs = {}
for name, kernel in [
    ("published", bmfjax.IASG.thesis(fixed, batch_size=SIZE // 4)),
    ("corrected", bmfjax.IASG(fixed)),
    ("exact", TruncatedGibbs(fixed)),
    ("corrected, precision learned", bmfjax.IASG(model)),
    ("exact, precision learned", TruncatedGibbs(model)),
]:
    both = draws_of(kernel, learned="learned" in name)
    runs |= {(name, start): found for start, found in zip(STARTS, both, strict=True)}

# %% [markdown]
# ## Do they arrive?
#
# The error of each draw's product, against the matrix without noise. What comes from a random start
# should join what comes from the optimum.

# %%
figure, axes = plt.subplots(1, 5, figsize=(14, 2.8), sharey=True, layout="constrained")
names = list(dict.fromkeys(name for name, _ in runs))
for cell, name in zip(axes, names, strict=True):
    for start in STARTS:
        traced = residual(runs[name, start])
        cell.plot(np.arange(len(traced)) * 10, traced, linewidth=1, label=start)
    cell.set_title(name, fontsize=9, loc="left")
    cell.set_xlabel("draw")
axes[0].set_ylabel("rms error of the product")
axes[0].legend(fontsize=8)
plt.show()


# %% [markdown]
# All do, the published sampler last, because its steps are small. What they arrive at is not the
# same: with the precision fixed at one, the exact draws are at least three times as far from the
# matrix as those of either IASG.
#
# ## What do they know?
#
# The thesis makes Boolean factors of the posterior means by one threshold, chosen with the truth in
# hand. Wrong entries of their product, over the second half of the draws:


# %%
def summary(found):
    """What the second half of the draws says."""
    half = {name: values[len(values) // 2 :] for name, values in found.items()}
    best = oracle_threshold(half["usage"].mean(0), half["basis"].mean(0), made.clean)
    sd = np.concatenate([half[name].std(0).ravel() for name in half])
    mean = np.concatenate([half[name].mean(0).ravel() for name in half])
    return {
        "wrong at 0.5": best.error_at_half, "fewest wrong": best.error,
        "thresholds": f"{best.tau_min:.2f} to {best.tau_max:.2f}",
        "mean of entries": mean.mean(), "sd of entries": sd.mean(),
    }  # fmt: skip


table = pd.DataFrame({key: summary(found) for key, found in runs.items()}).T
table

# %% [markdown]
# With the precision at one, the posterior hardly knows the tiles: noise with a standard deviation
# of 1 is as large as a one. At the best threshold the exact means get nearly as many entries wrong
# as there are ones. Both forms of IASG find every tile, and so are not samples of this
# posterior: their draws are averages, kept inside the bounds by clamping, and have a fraction of
# its spread. What looked like an easy posterior was an optimiser's answer.
#
# With a learned precision the exact sampler finds every tile as well. The corrected IASG then has
# its spread on average, though not entry by entry, as the next plot shows.

# %%
if not quick:
    wrong = table["fewest wrong"]
    assert (wrong["exact"] > 0.9 * made.clean.sum()).all()
    assert (wrong[[name for name in names if name != "exact"]] == 0).all()
    spread = table["sd of entries"].astype(float)
    assert (spread["published"] < 0.1 * spread["exact"]).all()
    learned = spread["corrected, precision learned"] / spread["exact, precision learned"]
    assert learned.between(0.9, 1.1).all()

# %% [markdown]
# ## Means and standard deviations
#
# The thesis plots one against the other (its figure 4.7) and finds lines. In the exact draws, too,
# an entry is less certain the further its mean is from a bound. Mind the different scales.

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharex=True, layout="constrained")
for cell, name in zip(axes, [names[0], *names[-2:]], strict=True):
    for site, colour in (("usage", "#2b5fa8"), ("basis", "#c4661f")):
        late = runs[name, "random start"][site][DRAWS // 2 :]
        cell.plot(late.mean(0).ravel(), late.std(0).ravel(), ".", markersize=3, color=colour,
                  alpha=0.5, label=site)  # fmt: skip
    cell.set_title(name, fontsize=9, loc="left")
    cell.set_xlabel("mean")
axes[0].set_ylabel("standard deviation")
axes[0].legend(fontsize=8)
plt.show()

# %% [markdown]
# The corrected IASG is too sure of entries at a bound, and several times too unsure of those away
# from it; its means lie lower than the exact ones. An average of iterates that are clamped does not
# follow the density near a bound. Where the data fit into memory, sample exactly:
# `bmfjax.fit(X, rank, model="relaxed")` does, with the precision learned.
#
# `benchmarks/papers/thesis.py` has the thesis's own runs, on matrices of its size, and
# `benchmarks/papers/thesis_samplers.py` this comparison there.

# %%
table["mean of entries"].astype(float).round(3)
