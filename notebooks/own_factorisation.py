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
# # A matrix factorisation of your own, from minibatches
#
# The first model that most people write after a regression is a matrix factorisation. It is also
# the first with a symmetry: both factors can turn together, and the density does not notice. This
# notebook writes one in NumPyro, draws from it by `bmfjax.SGLD` with its defaults, and holds what
# rotations leave unchanged against NUTS.

# %%
import os
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

import bmfjax

quick = bool(os.environ.get("BMFJAX_QUICK"))
ROWS, COLUMNS, RANK = 40, 25, 2
WARMUP, DRAWS = (10, 20) if quick else (300, 2000)

rng = np.random.default_rng(0)
truth = rng.normal(size=(ROWS, RANK)) @ rng.normal(size=(RANK, COLUMNS))
hidden = rng.random(truth.shape) < 0.4
i, j = map(jnp.asarray, np.nonzero(~hidden))
y = jnp.asarray((truth + 0.3 * rng.normal(size=truth.shape))[~hidden], jnp.float32)
print(f"{len(y)} ratings of a {ROWS} x {COLUMNS} matrix are seen")

# %% [markdown]
# ## The model
#
# One plate is around data, and its indices pick rows, columns and ratings. So the kernel finds the
# minibatches itself: at most 256 ratings a step.


# %%
def factorisation(i, j, y):
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([ROWS, RANK]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([COLUMNS, RANK]).to_event(2))
    with numpyro.plate("ratings", len(y)) as r:
        numpyro.sample("y", dist.Normal((u[i[r]] * v[j[r]]).sum(-1), s), obs=y[r])


# %% [markdown]
# ## SGLD and NUTS

# %%
kernels = {"SGLD": bmfjax.SGLD(factorisation), "NUTS": NUTS(factorisation)}
runs, entries, rows = {}, {}, {}
for name, kernel in kernels.items():
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the data say nothing")  # see below
        mcmc.run(jax.random.key(1), i, j, y)
    draws = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    found = np.einsum("tik,tjk->tij", draws["u"], draws["v"])
    runs[name], entries[name] = mcmc, found
    rows[name] = {
        "error of hidden entries": np.sqrt(((found.mean(0) - truth)[hidden] ** 2).mean()),
        "their standard deviation": found.std(0)[hidden].mean(),
        "noise s": draws["s"].mean(),
        "its standard deviation": draws["s"].std(),
    }
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# Each entry has the mean and the standard deviation that NUTS gives it.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4))
for axis, of, words in zip(axes, (np.mean, np.std), ("mean", "standard deviation"), strict=True):
    both = [of(entries[name], 0).ravel() for name in ("NUTS", "SGLD")]
    axis.plot(*both, ".", alpha=0.4)
    axis.axline((both[0].mean(), both[0].mean()), slope=1, color="0.5")
    axis.set(xlabel=f"{words}, NUTS", ylabel=f"{words}, SGLD")
figure.tight_layout()

# %%
if not quick:
    assert rows["SGLD"]["error of hidden entries"] < 1.1 * rows["NUTS"]["error of hidden entries"]
    ratio = entries["SGLD"].std(0) / entries["NUTS"].std(0)
    assert abs(np.median(ratio) - 1.0) < 0.1

# %% [markdown]
# ## The direction that the data leave open
#
# At the optimum the curvature is zero along the rotation of both factors. A step of the length that
# this curvature allows would leave the ridge along its tangent. `SGLD` fits its steps to where its
# first draws are, warns of such directions, and counts them.

# %%
print("directions:", int(runs["SGLD"].last_state.inner.measured.num_flat))

# %% [markdown]
# Compare predictions and scales, and never `u` alone. Where factors are to be read, use a model
# that settles them, such as those of `bmfjax.fit`, or align the draws.
