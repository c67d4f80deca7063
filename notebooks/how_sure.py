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
# # How sure are we?
#
# A factorisation is easily computed and easily believed. This notebook asks of one fit, in order:
# have the chains seen the same posterior, do stated probabilities hold, how many factors are
# there, which of them are real, and what does the same fit say of noise? The matrix is simulated,
# so that every answer can be checked.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bmfjax

# Small enough for a test, with one kind of move; the defaults of `fit` run until chains agree.
size, few = {}, {"max_rank": 5, "model": "ormachine"}
if os.environ.get("BMFJAX_QUICK"):
    size = {"num_chains": 2, "num_warmup": 200, "num_samples": 200}
    few |= size | {"sampler": bmfjax.Gibbs(moves=["birth"])}
    size |= {"sampler": bmfjax.Gibbs(update="collapsed")}

RANK, FLIP = 3, 0.1
made = bmfjax.generate_product(60, 40, RANK, flip=FLIP, density=0.25, seed=1)
values = made.data.dense().astype(float)
hidden = np.random.default_rng(0).random(values.shape) < 0.2
seen = np.where(hidden, np.nan, values)
print(f"{int((values != made.clean).sum())} of {values.size} entries are flipped")

# %% [markdown]
# ## Have the chains seen the same posterior?
#
# A fifth of the entries is hidden, and the fit is told the number of factors. Its verdict is the
# first thing to read. Chains start apart, and it says how far apart their predictions end: entries
# of the product have no labels to switch.

# %%
fit = bmfjax.fit(seen, bmfjax.OrMachine(RANK), seed=0, progress=False, **size)
print(fit.verdict)

# %% [markdown]
# `agreement` says of each factor how alike the chains' own versions of it are, from 0 to 1.

# %%
fit.agreement.round(3)

# %% [markdown]
# Chains that agree are no proof: all of them may have missed a solution.
# [nmf_solutions](nmf_solutions.py) has a matrix on which they do.
#
# ## Do stated probabilities hold?
#
# Of the hidden entries that are said to be one with probability 0.8, eight in ten should be. That
# can be checked on any data: hide some entries, and compare.

# %%
stated, truth = fit.probability(noisy=True)[hidden], values[hidden]
bins = pd.cut(stated, [0, 0.1, 0.3, 0.7, 0.9, 1], include_lowest=True)
held = pd.DataFrame({"stated": stated, "ones": truth}).groupby(bins, observed=True)
calibration = held.agg(stated=("stated", "mean"), ones=("ones", "mean"), entries=("ones", "size"))
calibration.round(2)

# %% [markdown]
# A share among n entries differs from its probability p by chance, with a standard deviation of
# $\sqrt{p (1 - p) / n}$. No bin is further off than four of these:

# %%
p, n = calibration["stated"], calibration["entries"]
off = (calibration["ones"] - p) / np.sqrt(p * (1 - p) / n)
assert (off.abs() < 4).all()
off.round(1)

# %% [markdown]
# ## How many factors are there?
#
# With `rank="auto"` factors are born and die while the chains run, and the draws hold a posterior
# of their number.

# %%
free = bmfjax.fit(seen, "auto", seed=0, progress=False, **few)
print(free.verdict)
most_probable = max(free.rank_probabilities, key=free.rank_probabilities.get)
assert most_probable == RANK

# %%
figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
numbers = range(few["max_rank"] + 1)
axes.bar(numbers, [free.rank_probabilities.get(k, 0.0) for k in numbers], color="#4477aa")
axes.set(xlabel="number of factors", ylabel="probability", ylim=(0, 1))
axes.set_title(f"{RANK} factors were made, {most_probable} are most probable", fontsize=10)
plt.show()

# %% [markdown]
# ## Which factors are real?
#
# Every factor is a tile: its rows and its columns. `tiles` keeps as many as it can so that at
# most 5 % of those kept are expected to be false (a Bayesian false discovery rate). `bound` is a
# check that is not Bayesian: how likely noise alone holds a tile as large and as dense.

# %%
tiles = free.tiles(fdr=0.05)
assert tiles["kept"].all() and len(tiles) == RANK
tiles[["rows", "columns", "density", "p_real", "bound", "kept"]].round(3)

# %% [markdown]
# ## And of noise?
#
# The same fit of a matrix without structure, with as many ones. A method that finds factors here
# would find them anywhere.

# %%
noise = (np.random.default_rng(2).random(values.shape) < values.mean()).astype(float)
nothing = bmfjax.fit(np.where(hidden, np.nan, noise), "auto", seed=0, progress=False, **few)
print(nothing.verdict)
assert not nothing.tiles(fdr=0.05)["kept"].any()
{number: round(p, 3) for number, p in nothing.rank_probabilities.items()}

# %% [markdown]
# No tile is kept. A single factor may stay for the level of ones, which is no finding, and the
# table of tiles says so: it is empty when rounded, or noise alone may hold it.
#
# Probabilities of the number of factors and of tiles have been checked on hundreds of simulated
# matrices: see "Is the number of factors found?" and "Are the tiles that are kept real?" in
# `benchmarks/README.md`.
