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
# # Minibatch posteriors of a NumPyro model
#
# A regression with a million rows. NUTS looks at all of them some times for every draw. The
# samplers here look at a few hundred or a few thousand. How far are they from the posterior, and
# what do they cost?

# %%
import functools
import os
import time
import warnings

import arviz as az
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import xarray
from jax import random
from numpyro.infer import HMCECS, MCMC, NUTS, SVI, Trace_ELBO, autoguide, init_to_value
from numpyro.optim import Adam

import bmfjax
from bmfjax.diagnostics import ess_bulk

quick = bool(os.environ.get("BMFJAX_QUICK"))
ROWS, SUBSET, DIM = (2000, 2000, 5) if quick else (1_000_000, 20_000, 8)

# %% [markdown]
# ## The model and the data
#
# The covariates are correlated: what approximations with independent coordinates get wrong. The
# plate has all rows, and the data are picked by its indices. So a kernel can choose minibatches,
# and NUTS sees all rows of the same model. `batch` is for NumPyro's HMCECS and SVI, which want the
# size of minibatches in the plate.


# %%
def model(x, y, batch=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=batch) as i:
        numpyro.sample("y", dist.Bernoulli(logits=x[i] @ beta), obs=y[i])


r = np.random.default_rng(0)
x = 0.7**0.5 * r.normal(size=(ROWS, 1)) + 0.3**0.5 * r.normal(size=(ROWS, DIM - 1))
x = np.column_stack([np.ones(ROWS), x]).astype(np.float32)
y = (r.random(ROWS) < 1 / (1 + np.exp(-x @ r.normal(0, 0.5, DIM)))).astype(np.float32)
everything = jnp.asarray(x), jnp.asarray(y)
subset = everything[0][:SUBSET], everything[1][:SUBSET]

# %% [markdown]
# ## The samplers
#
# * `SGLD`, Langevin dynamics with gradients relative to an optimum that is found first. By default
#   a draw takes ten short steps. A posterior that is nearly normal, as with far more rows than
#   coordinates, allows long ones; two make a draw then.
# * `IASG` averages iterates of constant-step gradients. A draw takes most of a pass over the data.
#   `calibration="top-up"` measures the gradients' noise and adds what is missing.
# * `HMCECS` of NumPyro: Hamiltonian dynamics on a subsample that is drawn anew, some rows at a
#   time, with the likelihood expanded about the mode.
# * SVI with `AutoNormal`.
#
# The auxiliary-variable step (`bmfjax.AuxiliaryGibbs`) is not here. It draws normal variables on a
# box exactly, and needs a model whose sites are that, given the others: the factor matrices of
# `relaxed_bmf` and `nmf`. The coefficients of a logistic regression are not. Asked for one, it says
# so.

# %%
BLOCKS = ((("beta",), {"rows": None}),)
LONG = {"step_size": 2.0, "num_steps": 2}
try:
    bmfjax.AuxiliaryGibbs(model).bind(*subset)
except ValueError as error:
    print(error)


def svi(guide_of, data, steps):
    """A fitted guide, from minibatches of 1,000 rows."""
    guide = guide_of(functools.partial(model, batch=1000))
    optimiser = Adam(lambda i: 1e-2 * 1e-3 ** (i / steps))
    run = SVI(functools.partial(model, batch=1000), guide, optimiser, Trace_ELBO())
    return guide, run.run(random.key(0), steps, *data, progress_bar=False).params


def hmcecs(data):
    """About the mode that SVI finds."""
    _, found = svi(autoguide.AutoDelta, data, 300 if quick else 5000)
    mode = {"beta": found["beta_auto_loc"]}
    sized = functools.partial(model, batch=300)
    inner = NUTS(sized, dense_mass=True, init_strategy=init_to_value(values=mode))
    return HMCECS(inner, num_blocks=30, proxy=HMCECS.taylor_proxy(mode))


def nuts(data):
    return NUTS(model, dense_mass=True)


# Name: the kernel, and steps of warm-up and of sampling of each of two chains.
kernels = {
    "HMCECS": (hmcecs, 300, 4000),
    "SGLD": (lambda data: bmfjax.SGLD(model, BLOCKS), 50, 4000),
    "SGLD, long steps": (lambda data: bmfjax.SGLD(model, BLOCKS, **LONG), 50, 8000),
    "IASG": (lambda data: bmfjax.IASG(model, BLOCKS, calibration=None), 20, 100),
    "IASG, top-up": (lambda data: bmfjax.IASG(model, BLOCKS, calibration="top-up"), 5, 250),
}
if quick:  # one of each kind
    kernels = {name: kernels[name] for name in ("HMCECS", "SGLD", "IASG, top-up")}


def sample(make, data, warmup, draws):
    """Draws (chain, draw, coefficient) of two chains, the run, and seconds in all."""
    began = time.perf_counter()
    if quick:
        warmup, draws = min(warmup, 20), min(draws, 40)
    mcmc = MCMC(
        make(data), num_warmup=warmup, num_samples=draws, num_chains=1 if quick else 2,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(random.key(1), *data)
    found = np.asarray(mcmc.get_samples(group_by_chain=True)["beta"], float)
    return found, mcmc, time.perf_counter() - began


def mean_field(data):
    """Draws (1, draw, coefficient) of AutoNormal, and seconds."""
    began = time.perf_counter()
    guide, params = svi(autoguide.AutoNormal, data, 300 if quick else 30_000)
    found = guide.sample_posterior(random.key(1), params, sample_shape=(8000,))["beta"]
    return np.asarray(found, float)[None], None, time.perf_counter() - began


# %% [markdown]
# ## Against NUTS, on a part of the rows
#
# 20,000 rows are few enough for NUTS. All get the same rows. The table has the largest difference
# of a mean, in posterior standard deviations; the least and the largest ratio of standard
# deviations; and what Monte Carlo error alone would leave of the first.

# %%
exact, _, _ = sample(nuts, subset, 300, 1500)
sd = exact.std((0, 1))


def bias(drawn, exact_mean, exact_sd, exact_ess=np.inf):
    """One row a sampler."""
    table = {}
    for name, (draws, _, seconds) in drawn.items():
        ratio = draws.std((0, 1)) / exact_sd
        ess = draws.shape[1] if len(draws) == 1 else ess_bulk(draws).min()
        table[name] = {
            "mean off": np.abs((draws.mean((0, 1)) - exact_mean) / exact_sd).max(),
            "Monte Carlo": (1 / ess + 1 / exact_ess) ** 0.5,
            "least ratio": ratio.min(),
            "largest ratio": ratio.max(),
            "effective draws": ess,
            "seconds": seconds,
            "effective draws a second": ess / seconds,
        }
    return pd.DataFrame(table).T.round(3)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # of IASG in `quick`, whose plate is small
    small = {n: sample(make, subset, *sizes) for n, (make, *sizes) in kernels.items()}
small["SVI, AutoNormal"] = mean_field(subset)
on_subset = bias(small, exact.mean((0, 1)), sd, ess_bulk(exact).min())
on_subset

# %% [markdown]
# `SGLD` with either step, HMCECS and the topped-up `IASG` are as close as Monte Carlo error lets
# one see. `IASG` as it stands has few draws here. The standard deviations of AutoNormal are too
# small by what the correlation of the covariates says: each is that of one coefficient with all
# others held.

# %%
if not quick:
    for name in ("HMCECS", "SGLD", "SGLD, long steps"):
        row = on_subset.loc[name]
        assert row["least ratio"] > 0.93 and row["largest ratio"] < 1.07, name
        assert row["mean off"] < 5 * row["Monte Carlo"], name
    assert on_subset.loc["SVI, AutoNormal", "least ratio"] < 0.8

# %% [markdown]
# ## A million rows
#
# The posterior is so close to normal now that the mode and the curvature tell it: ten steps of
# Newton's method on all rows, and the reference is there. AutoNormal is not in this table: thirty
# passes over the rows, by minibatches of 1,000, do not let it converge. Its optimum is in the table
# above.

# %%
mode = np.zeros(DIM)
for _ in range(10):
    p = 1 / (1 + np.exp(-x @ mode))
    curvature = np.eye(DIM) + (x * (p * (1 - p))[:, None]).T.astype(float) @ x
    mode = mode + np.linalg.solve(curvature, x.T.astype(float) @ (y - p) - mode)
exact_sd = np.sqrt(np.diag(np.linalg.inv(curvature)))

large = small
if not quick:
    large = {n: sample(make, everything, *sizes) for n, (make, *sizes) in kernels.items()}
bias(large, mode, exact_sd)

# %% [markdown]
# The seconds hold everything, programs compiled for this run included. Those come once. What a draw
# costs after them is in `benchmarks/speed/minibatch_regression.py`.
#
# ## In ArviZ
#
# `bmfjax.to_arviz` and `az.from_numpyro` take the runs of all kernels. First the traces and the
# ranks of SGLD:

# %%
idata = bmfjax.to_arviz(large["SGLD"][1])
coefficients = {"beta_dim_0": [0, 1]}
az.plot_trace(idata, var_names=["beta"], coords=coefficients)
plt.gcf().set_layout_engine("constrained")
plt.show()

# %%
az.plot_rank(idata, var_names=["beta"], coords=coefficients)
plt.show()
az.summary(idata, var_names=["beta"], round_to=4)

# %% [markdown]
# How effective draws grow with their number, and where they are fewest in the marginals:

# %%
az.plot_ess(idata, var_names=["beta"], coords={"beta_dim_0": [1]}, kind="evolution")
plt.show()

# %% [markdown]
# All approximations in one picture: two coefficients, by the posterior's standard deviations.

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for place, (draws, _, _) in enumerate(large.values()):
    scaled = (draws.reshape(-1, DIM)[:, 1:3] - mode[1:3]) / exact_sd[1:3]
    low, high = np.quantile(scaled, [0.05, 0.95], axis=0)
    for k in range(2):
        axes.plot([low[k], high[k]], [place + 0.2 * k] * 2, color=f"C{k}", linewidth=3)
for edge in (-1.645, 1.645):
    axes.axvline(edge, color="black", linewidth=0.8, linestyle=":")
axes.set_yticks(range(len(large)), list(large))
axes.set_xlabel("90 % intervals of two coefficients, in posterior standard deviations")
plt.show()

# %% [markdown]
# Leave-one-out of some rows: `bmfjax.log_likelihood_fn` forms the log densities of the rows that
# are asked for, and no matrix of draws x rows.

# %%
fn = bmfjax.log_likelihood_fn(large["SGLD"][1])
observed = idata["observed_data"]["y"][:500]
densities = fn(observed, idata)
print(dict(densities.sizes))
scores = bmfjax.diagnostics.leave_one_out(densities.values.reshape(-1, densities.shape[-1]))
xarray.DataArray(scores.log_score).mean().item()
