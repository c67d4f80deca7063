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
# # A model of your own, with IASG
#
# `bmfjax.IASG` samples any NumPyro model whose cases are in plates: each step looks at a minibatch,
# and a draw is an average of steps (Mandt, Hoffman, Blei 2017). This notebook takes a logistic
# regression that any NumPyro user could have written, runs IASG inside NumPyro's `MCMC`, and holds
# the answer against NUTS, first as it comes, then with its covariance calibrated.

# %%
import os
import warnings

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_breast_cancer

import bmfjax

quick = bool(os.environ.get("BMFJAX_QUICK"))
WARMUP, DRAWS, CHAINS = (50, 100, 2) if quick else (500, 2000, 4)
NAMES = ["intercept", "texture", "smoothness", "symmetry", "fractal dimension"]

cancer = load_breast_cancer()
columns = [list(cancer.feature_names).index(f"mean {name}") for name in NAMES[1:]]
values = cancer.data[:, columns]
x = np.column_stack([np.ones(len(values)), (values - values.mean(0)) / values.std(0)])
# Of JAX: the plate's indices are traced, which an array of NumPy cannot take.
x, y = jnp.asarray(x, jnp.float32), jnp.asarray(cancer.target, jnp.float32)
print(f"{len(y)} tumours, {int(y.sum())} of them benign, {x.shape[1]} coefficients")

# %% [markdown]
# The plate is full, and its indices pick the data. That is all that IASG asks of a model: with
# minibatches, the plate hands out fewer indices.


# %%
def regression(x, y):
    """Is a tumour benign, given four of its measurements?"""
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("tumours", len(y)) as i:
        numpyro.sample("benign", dist.Bernoulli(logits=x[i] @ beta), obs=y[i])


# %% [markdown]
# ## NUTS and IASG
#
# `blocks` says which sites move together, and how many cases of which plate a step sees: None
# leaves the number to IASG, which chooses batch, step and window so that a draw averages eight
# steps.


# %%
def draws_of(kernel, x):
    """Draws of several chains, for ArviZ."""
    mcmc = MCMC(
        kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), x, y)
    return bmfjax.to_arviz(mcmc)


blocks = ((("beta",), {"tumours": None}),)


def three(x):
    """NUTS, IASG without calibration, and IASG as it comes."""
    calibrated = bmfjax.IASG(regression, blocks, calibration="top-up")
    kernels = {"NUTS": NUTS(regression), "IASG": bmfjax.IASG(regression, blocks, calibration=None)}
    kernels['IASG, "top-up"'] = calibrated
    return {name: draws_of(kernel, x) for name, kernel in kernels.items()}


runs = three(x)
print({name: run["posterior"].attrs.get("window") for name, run in runs.items()})

# %% [markdown]
# ArviZ sees chains, draws and diagnostics of IASG as of any other kernel.

# %%
az.summary(runs['IASG, "top-up"'], var_names="beta", round_to=3)

# %% [markdown]
# ## Side by side


# %%
def moments(run):
    """Mean and standard deviation of every coefficient."""
    beta = run["posterior"]["beta"]
    return beta.mean(("chain", "draw")).values, beta.std(("chain", "draw")).values


def against_nuts(runs):
    """Differences of means in standard deviations of NUTS, and ratios of standard deviations."""
    mean, sd = moments(runs["NUTS"])
    rows = {}
    for name in list(runs)[1:]:
        m, s = moments(runs[name])
        rows[name] = {
            "means apart, most": np.abs((m - mean) / sd).max(), "sd ratio, least": (s / sd).min(),
            "median": np.median(s / sd), "most": (s / sd).max(),
        }  # fmt: skip
    return pd.DataFrame(rows).T


beside = against_nuts(runs)
beside.round(3)

# %% [markdown]
# Without calibration, IASG takes it that the gradients of the cases vary as the curvature says.
# Here they nearly do: standard deviations are within a tenth of those of NUTS. As it comes
# (`calibration="top-up"`) it measures both, and adds the noise that is missing.

# %%
if not quick:
    calibrated = beside.loc['IASG, "top-up"']
    assert calibrated["sd ratio, least"] > 0.95 and calibrated["most"] < 1.05
    assert beside.loc["IASG", "sd ratio, least"] > 0.9 and beside.loc["IASG", "most"] < 1.1

# %%
figure, axes = plt.subplots(1, len(NAMES), figsize=(13, 2.8), layout="constrained")
for place, (cell, name) in enumerate(zip(axes, NAMES, strict=True)):
    for label, colour in zip(runs, ("black", "#c4661f", "#2b5fa8"), strict=True):
        flat = runs[label]["posterior"]["beta"].values[..., place].ravel()
        cell.hist(flat, bins=60, density=True, histtype="step", color=colour, label=label)
    cell.set_title(name, fontsize=9, loc="left")
    cell.set_yticks([])
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
plt.show()

# %%
az.plot_rank(runs['IASG, "top-up"'], var_names="beta", figsize=(12, 6))
plt.show()

# %% [markdown]
# ## Where it goes wrong
#
# All 30 measurements, many of which say nearly the same. They almost separate the two kinds of
# tumours, so that few cases are left to say how large a coefficient is, and the prior says more.

# %%
everything = (cancer.data - cancer.data.mean(0)) / cancer.data.std(0)
everything = jnp.asarray(np.column_stack([np.ones(len(everything)), everything]), jnp.float32)
everything = x if quick else everything  # the same programs
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", UserWarning)
    wide = against_nuts(three(everything))
print(*dict.fromkeys(str(w.message) for w in caught if w.category is UserWarning), sep="\n")
wide.round(2)

# %% [markdown]
# Without calibration, IASG is now more than ten times too wide, and its means are off by many
# standard deviations. The calibrated draws are right in the median. The worst of the 31 standard
# deviations is a quarter too small, and IASG has warned: the curvature, which calibration takes as
# constant, changes within the posterior. Heed that warning, and compare with NUTS on a part of
# the data.

# %%
if not quick:
    assert wide.loc["IASG", "sd ratio, least"] > 10
    calibrated = wide.loc['IASG, "top-up"']
    assert 0.95 < calibrated["median"] < 1.05
    assert 0.7 < calibrated["sd ratio, least"] < 0.85 and calibrated["most"] < 1.15

# %% [markdown]
# At this size NUTS is the better tool. Minibatches pay where a pass over the data is long:
# [minibatch_posteriors](minibatch_posteriors.py) has a million rows, and SGLD and HMCECS beside
# IASG. Sites on an interval whose bounds are active are no place for IASG; `bmfjax.SGLD` reflects
# there.
