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
# # Two parties in a matrix of votes
#
# 435 members of the US House of Representatives, 16 votes of 1984, one means yea. 392 votes are
# missing. The party of each member comes with the data and is **not** shown to the fit.

# %%
import os

import numpy as np
import pandas as pd

import bmfjax

# Small enough for a test, and without the hotter chains; the defaults of `fit` are 4 chains of
# 1000 and 3000 steps.
quick = {"num_chains": 2, "num_warmup": 50, "num_samples": 30}
quick |= {"sampler": bmfjax.Gibbs(update="collapsed")}
size = quick if os.environ.get("BMFJAX_QUICK") else {}

votes = bmfjax.load("house-votes")
votes

# %% [markdown]
# ## Fit, and read the verdict first
#
# The model is Boolean: a member uses factors, a factor has votes, and a vote is a yea where some
# factor of the member has it, but for a few that are flipped. Four chains start at independent
# draws from the prior and cool down, and run until they agree.
# The sentence says how many of the factors all of them found and how well the *uncertain entries*
# of the product mixed (which needs no matching of factors). The sampler is exact: once the chains
# have mixed, its draws are draws from the posterior.

# %%
fit = bmfjax.fit(votes, bmfjax.OrMachine(4), seed=0, progress=False, **size)
print(fit.verdict)
fit.summary()

# %% [markdown]
# ## Which votes belong to which factor

# %%
pd.DataFrame(fit.basis, index=votes.column_names).round(2)

# %% [markdown]
# ## The parties
#
# The mean usage of the factors by party: the two largest factors are the parties' programmes.

# %%
party = np.asarray(votes.row_labels)
by_party = pd.DataFrame(fit.usage).groupby(party).mean()
by_party.round(2)

# %%
first, second = by_party.to_numpy()
assert np.abs(first - second).max() > 0.4, "no factor separates the parties"

# %% [markdown]
# ## Entries that were never observed
#
# For a missing vote the probability is a prediction. Hide a tenth of the observed votes, fit again,
# and look whether the stated probabilities hold: of the entries given 80 to 100 per cent, how many
# were yeas?

# %%
values = votes.dense().copy()
hidden = (np.random.default_rng(0).random(values.shape) < 0.1) & ~np.isnan(values)
masked = np.where(hidden, np.nan, values)
again = bmfjax.fit(masked, bmfjax.OrMachine(4), seed=1, progress=False, **size)
stated = again.probability(noisy=True)[hidden]
table = pd.DataFrame({"stated": stated, "yea": values[hidden]})
calibration = (
    table.groupby(
        pd.cut(table.stated, [0, 0.2, 0.4, 0.6, 0.8, 1], include_lowest=True), observed=True
    )
    .agg(["mean", "count"])
    .round(2)
)
calibration

# %% [markdown]
# `noisy=True` asks for the probability of an *observation*, flips included. Without it the event
# is that the entry of the product is a one, which is more certain than a single vote can be. Which
# side of one half a vote falls on is predicted well:

# %%
right = ((stated > 0.5) == values[hidden]).mean()
assert right > 0.75
right

# %% [markdown]
# ## With ArviZ

# %%
from bmfjax.diagnostics import posterior_dataset

posterior = posterior_dataset(fit.idata)
posterior["basis"].sel(columns="physician-fee-freeze").mean(("chain", "draw"))
