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
# # Layers, and entries that nobody saw
#
# Ten digits of a seven-segment display: a picture is an OR of segments, and a digit says which
# segments are lit together. The OrMachine finds segments. With layers (Rukat, Holmes, Titsias, Yau
# 2017) it also finds which of them occur together, and so may fill in a picture of which most was
# not seen. How well, and what do layers gain?

# %%
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pandas as pd

import bmfjax

quick = bool(os.environ.get("BMFJAX_QUICK"))
COPIES, MASKS = (2, 1) if quick else (5, 3)
size = {"num_warmup": 400, "num_samples": 400}
if quick:
    size = {"num_chains": 2, "num_warmup": 60, "num_samples": 60}
HIDDEN, FLIP = 0.7, 0.02

# %% [markdown]
# ## The pictures
#
# bmfjax ships the digits and their true factors: ten digits by seven segments, and seven segments
# by 54 pixels. Five copies of each digit are made. One pixel in fifty is flipped, and 70 % of the
# entries are then hidden.

# %%
digits = bmfjax.load("calculator-digits").dense()
clean = np.repeat(digits == 1, COPIES, axis=0)


def masked(seed):
    """Noisy copies, NaN where hidden; the mask; and the noisy copies whole."""
    r = np.random.default_rng(seed)
    noisy = clean ^ (r.random(clean.shape) < FLIP)
    hidden = r.random(clean.shape) < HIDDEN
    return np.where(hidden, np.nan, noisy.astype(float)), hidden, noisy


def pictures(rows, titles):
    """Draw some rows of each matrix as pictures; grey is missing."""
    figure, axes = plt.subplots(len(rows), 10, figsize=(8, 1.15 * len(rows) + 0.2))
    colours = plt.get_cmap("Blues").with_extremes(bad="0.75")
    for line, matrix, title in zip(axes, rows, titles, strict=True):
        for axis, row in zip(line, matrix[::COPIES], strict=True):
            axis.imshow(np.ma.masked_invalid(row.reshape(9, 6)), vmin=0, vmax=1, cmap=colours)
            axis.set(xticks=[], yticks=[])
        line[0].set_title(title, fontsize=9, loc="left")
    figure.tight_layout()
    plt.show()


seen, hidden, noisy = masked(0)
pictures([clean, seen], ["a copy of each digit", "what a fit sees of it (grey: missing)"])

# %% [markdown]
# ## One layer, and two
#
# Seven factors for the data. The second layer has ten, one for each digit. Ten factors over seven
# could merely copy the layer below, and bmfjax warns of that. Here it is wanted: a row uses about
# one of them. Both priors say so: one in ten is used, and flips of the second layer are rare.

# %%
layers = bmfjax.DeepOrMachine(layers=[10], usage=0.1, flip_rate_above=dist.Beta(1, 100))
# Bits one at a time: with the longer factor matrix summed out, a step costs 2^7 times the entries.
models = {
    "one layer": {"model": "ormachine", "sampler": bmfjax.Gibbs(update="gibbs")},
    "two layers": {"model": layers, "sampler": bmfjax.Gibbs(num_start=0) if quick else None},
}


def fitted(values, how, seed):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="layer 2 has")
        return bmfjax.fit(values, 7, seed=seed, progress=False, **models[how], **size)


fits = {how: fitted(seen, how, 0) for how in models}
for how, fit in fits.items():
    print(f"{how}. {fit.verdict}\n")

# %% [markdown]
# Much is hidden, and chains may find different segments: the verdict says whether they agree. What
# is filled in is the mean over all of them.

# %%
filled = {how: fit.probability() for how, fit in fits.items()}
pictures([clean, *filled.values()], ["clean", *filled])

# %% [markdown]
# ## How many entries are wrong?
#
# Of the hidden entries, in per cent, against the pictures without flips, for several masks. Beside
# it what the fit itself expects: the mean of the smaller of P(entry) and 1 - P(entry).


# %%
def scores(probability, hidden):
    wrong = ((probability > 0.5) != clean)[hidden].mean()
    expected = np.minimum(probability, 1 - probability)[hidden].mean()
    return {"wrong": 100 * wrong, "expected": 100 * expected}


table = {(how, 0): scores(filled[how], hidden) for how in models}
for mask in range(1, MASKS):
    values, away, _ = masked(mask)
    table |= {(h, mask): scores(fitted(values, h, mask).probability(), away) for h in models}
table = pd.DataFrame(table).T.rename_axis(["model", "mask"])
table.round(2)

# %%
gain = table["wrong"].unstack("mask").loc[["one layer", "two layers"]].diff().iloc[1]
print("wrong entries with two layers less those with one:", *gain.round(2), "per cent")

# %% [markdown]
# A few masks cannot tell a small gain from none. Over twenty masks it is 5.04 ± 0.29 against
# 5.26 ± 0.21 per cent of all entries on these pictures, so no gain to speak of. On pictures of
# 13 x 8 pixels, where a segment has more pixels to be known by, two layers have 2.14 ± 0.12 per
# cent wrong and one has 2.95 ± 0.10: see "What do layers gain on calculator digits?" in
# `benchmarks/README.md`.
#
# ## Do the probabilities hold?
#
# Of entries said to be a one with probability 0.8, eight in ten should be. `noisy=True` is about an
# observation, flips included, and it is compared with the noisy copies.

# %%
edges = [0, 0.1, 0.3, 0.7, 0.9, 1]
rows = {}
for how, fit in fits.items():
    stated = fit.probability(noisy=True)[hidden]
    told = pd.DataFrame({"stated": stated, "ones": noisy[hidden]})
    held = told.groupby(pd.cut(stated, edges, include_lowest=True), observed=True)
    rows[how] = held.agg(stated=("stated", "mean"), ones=("ones", "mean"), entries=("ones", "size"))
calibration = pd.concat(rows)
calibration.round(2)

# %%
figure, axes = plt.subplots(figsize=(3.6, 3.4), layout="constrained")
axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
for how in models:
    part = calibration.loc[how]
    axes.plot(part["stated"], part["ones"], "o-", markersize=4, label=how)
axes.set(xlabel="stated probability of a one", ylabel="share of ones", aspect="equal")
axes.set_title("hidden entries", fontsize=10)
axes.legend(fontsize=8)
plt.show()

# %%
truth = noisy[hidden]
constant = np.log2(np.where(truth, truth.mean(), 1 - truth.mean())).mean()
for how, fit in fits.items():
    p = np.clip(fit.probability(noisy=True)[hidden], 1e-6, 1 - 1e-6)
    score = np.log2(np.where(truth, p, 1 - p)).mean()
    print(f"{how}: {-score:.3f} bits an entry, {-constant:.3f} for the share of ones alone")
    assert score > constant

# %% [markdown]
# ## What the second layer found
#
# A factor of the second layer is a set of segments. Each drawn as what it makes in the data, with
# the number of rows that use it:

# %%
layer = fits["two layers"].layer(2)
figure, axes = plt.subplots(1, 10, figsize=(8, 1.5))
for k, axis in enumerate(axes):
    axis.imshow(layer.columns[:, k].reshape(9, 6), vmin=0, vmax=1, cmap="Blues")
    axis.set(xticks=[], yticks=[])
    axis.set_xlabel(f"{int((layer.usage[:, k] > 0.5).sum())} rows", fontsize=8)
figure.tight_layout()
plt.show()
