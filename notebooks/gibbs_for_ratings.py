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
# # From a random walk to predicted ratings
#
# A posterior is a distribution over everything that we do not know: it is large where parameters
# explain the data and agree with what we believed before. In more than a few dimensions nobody can
# tabulate it. A **Markov chain** draws from it instead: a rule that makes a new state from the
# present one, chosen such that, in the long run, the chain is in every region as often as the
# distribution says. Averages over its states are then averages over the distribution.
#
# We build two such rules on a distribution that we know, see where each is slow, and end with
# ratings of films, where one of them is all we need.

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import lax, random

import bmfjax
from bmfjax.diagnostics import ess_bulk

quick = bool(os.environ.get("BMFJAX_QUICK"))
number = 2000 if quick else 20_000

mean = jnp.array([3.0, 3.0])
covariance = jnp.array([[2.0, 1.0], [1.0, 2.0]])
precision = jnp.linalg.inv(covariance)


def log_density(z):
    """Of a normal distribution in two dimensions, but for a constant: that is all we need."""
    return -0.5 * (z - mean) @ precision @ (z - mean)


# %% [markdown]
# ## Metropolis: propose a step, then think
#
# Propose a point nearby. If the density is higher there, go; if it is lower, go with a probability
# equal to the ratio of the two densities, and otherwise **stay, and count the old point again**.
# Only the ratio enters, so that the constant which makes the density integrate to one is never
# needed. The chain visits good regions often and bad ones now and then, exactly as often as it
# should.


# %%
def metropolis(key, step_size):
    """A chain of `number` states, what was proposed, and whether it was accepted."""

    def step(z, key):
        key_move, key_accept = random.split(key)
        proposal = z + step_size * random.normal(key_move, z.shape)
        log_ratio = log_density(proposal) - log_density(z)
        accept = jnp.log(random.uniform(key_accept)) < log_ratio
        state = jnp.where(accept, proposal, z)
        return state, (state, proposal, accept)

    return lax.scan(step, jnp.zeros(2), random.split(key, number))[1]


def report(name, states, accepted):
    states = np.asarray(states[number // 10 :])  # the way in from the start is left out
    effective = ess_bulk(states[None, :, 0])
    print(
        f"{name:22s} accepted {accepted:4.0%}, mean {states.mean(0).round(2)}, "
        f"covariance {np.cov(states.T)[0].round(2)}, effective draws {effective:6.0f}"
    )
    return float(effective)


walks = {size: jax.jit(metropolis)(random.key(0), size) for size in (2.0, 0.1, 30.0)}
good, small, large = (
    report(f"steps of {size}", states, accepted.mean())
    for size, (states, _, accepted) in walks.items()
)

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharex=True, sharey=True, dpi=80)
for cell, (size, (states, proposals, accepted)) in zip(axes, walks.items(), strict=True):
    cell.plot(*proposals[:400][~accepted[:400]].T, "x", color="#c4661f", label="refused")
    cell.plot(*states[:400].T, ".-", color="#2b5fa8", linewidth=0.3, label="states")
    cell.set(title=f"400 steps of {size:g}", xlim=(-10, 15), ylim=(-5, 15))
axes[0].legend(fontsize=8)
plt.show()

# %% [markdown]
# All three walks have the right distribution in the end; what differs is how long the end takes.
# Steps of 2 go about as far as the distribution is wide. With **steps of 0.1** nearly every
# proposal is accepted, but a walk of n small steps gets only about $\sqrt{n}$ steps away, and
# successive states are almost the same. With **steps of 30** nearly every proposal lands where the
# density is nothing, and the chain stands still. The *effective draws* say how many independent
# draws the chain is worth: that number counts, and not the length of the chain.

# %%
assert good > 3 * small and good > 3 * large

# %% [markdown]
# ## Gibbs: one coordinate at a time, straight from its distribution
#
# Where the distribution of one coordinate *given the others* is known, we can draw from it and
# never reject anything. Of a normal distribution it is normal: with precision matrix $P$ and mean
# $m$, coordinate $i$ has precision $P_{ii}$ and mean $m_i - \sum_{j\ne i} P_{ij}(z_j-m_j)/P_{ii}$.


# %%
def gibbs(key):
    def step(z, key):
        for i, k in enumerate(random.split(key)):
            other = precision[i] @ (z - mean) - precision[i, i] * (z[i] - mean[i])
            centre = mean[i] - other / precision[i, i]
            z = z.at[i].set(centre + random.normal(k) / jnp.sqrt(precision[i, i]))
        return z, z

    return lax.scan(step, jnp.zeros(2), random.split(key, number))[1]


path = jax.jit(gibbs)(random.key(1))
by_gibbs = report("Gibbs", path, 1.0)
assert by_gibbs > good

# %%
# The first coordinate moves, then the second.
corners = np.repeat(np.asarray(path[:60]), 2, axis=0)
corners[1:-1:2, 0] = corners[2::2, 0]
plt.figure(figsize=(4, 3.4), dpi=80)
plt.plot(*corners[:-1].T, linewidth=0.8)
plt.plot(*path[:60].T, ".", color="black", markersize=4)
plt.title("60 sweeps of Gibbs")
plt.show()

# %% [markdown]
# ## Peskun's order
#
# Of two chains with the same distribution, that which leaves its state more often, wherever it
# goes, has means with the smaller variance (Peskun 1973). So a zero-one variable should not be
# drawn anew from its distribution, with which it may stay. **Metropolised Gibbs**, by which the
# Boolean models here are sampled, proposes to flip it and accepts with probability
# $\min(1, p(\text{new})/p(\text{old}))$. Draws of each rule, and what theory says of the variance:


# %%
def flipping(key, p, metropolised, steps=2000 if quick else 20_000):
    """Mean of a zero-one chain whose share of ones is p, and the variance of a mean over it."""
    to_one, to_zero = (p / (1 - p), 1.0) if metropolised else (p, 1 - p)

    def step(bit, u):
        bit = jnp.where(u < jnp.where(bit, to_zero, to_one), ~bit, bit)
        return bit, bit

    bits = lax.scan(step, jnp.zeros(200, bool), random.uniform(key, (steps // 100, 200)))[1]
    return bits.mean(), bits.mean(0).var() * len(bits)


shares = np.linspace(0.05, 0.5, 10)
figure, axes = plt.subplots(figsize=(5, 2.8), dpi=80)
for metropolised, colour in ((False, "#c4661f"), (True, "#2b5fa8")):
    found = [jax.jit(flipping, static_argnums=2)(random.key(5), p, metropolised) for p in shares]
    theory = shares * (1 - shares) * (1 - 2 * shares if metropolised else 1)
    axes.plot(shares, [float(v) for _, v in found], "o", color=colour, markersize=4)
    axes.plot(shares, theory, color=colour, label="Metropolised" if metropolised else "Gibbs")
axes.set(xlabel="share of ones", ylabel="variance x draws")
axes.legend()
plt.show()

# %% [markdown]
# ## In blocks, and by gradients
#
# Gibbs needed no tuning. The price: it moves parallel to the axes only, and where two coordinates
# are almost tied to each other its steps become as small as those of the timid walk above. The
# remedy is to draw what is tied **together**, as one block; remember it for the factors below.
#
# NumPyro's NUTS needs no conditional distributions, only the gradient of the density. It is the
# tool for models that no one has derived conditionals for, and a check on those where one has.

# %%
from numpyro.infer import MCMC, NUTS

nuts = MCMC(
    NUTS(potential_fn=lambda z: -log_density(z)),
    num_warmup=200,
    num_samples=300 if quick else 2000,
    progress_bar=False,
)
nuts.run(random.key(2), init_params=jnp.zeros(2))
drawn = np.asarray(nuts.get_samples())
print("NUTS:", drawn.mean(0).round(2), np.cov(drawn.T)[0].round(2))

# %% [markdown]
# ## Rejection, and Langevin
#
# Two other ways to draw. **Rejection** throws points evenly below a multiple of a density that lies
# above the one we want, and keeps those below the latter: draws are independent, and in many
# dimensions hardly any is kept. A **Langevin diffusion** drifts uphill and is shaken by noise; in
# small steps of length $h$, without a test of acceptance, its draws are nearly right.

# %%
rng = np.random.default_rng(0)


def wanted(x):
    """Two bumps, in one dimension."""
    return 0.4 * np.exp(-0.5 * ((x + 1.5) / 0.5) ** 2) + 0.3 * np.exp(-0.5 * (x - 1) ** 2)


def envelope(x):
    return 0.65 * np.exp(-0.5 * (x / 2) ** 2)


thrown = 2.0 * rng.normal(size=2000)
height = rng.uniform(size=2000) * envelope(thrown)
kept = height < wanted(thrown)
print(f"rejection keeps {kept.mean():.0%}")

h, position = 0.05, np.empty(600)
position[0] = -3.0
for t in range(1, 600):
    drift = -position[t - 1]  # of log density of a standard normal distribution
    position[t] = position[t - 1] + h * drift + np.sqrt(2 * h) * rng.normal()

grid = np.linspace(-4, 4, 200)
assert (wanted(grid) <= envelope(grid)).all()
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), dpi=80, layout="constrained")
left.plot(thrown[~kept], height[~kept], ".", markersize=2, color="#c4661f", label="refused")
left.plot(thrown[kept], height[kept], ".", markersize=2, color="#2b5fa8", label="kept")
left.plot(grid, envelope(grid), "--", color="black", linewidth=1)
left.plot(grid, wanted(grid), color="black", linewidth=1)
left.set(title="rejection: points below the envelope", xlim=(-4, 4))
left.legend(fontsize=8)
time = np.arange(600) * h
right.imshow(
    np.exp(-0.5 * grid[::-1, None] ** 2), extent=(0, time[-1], -4, 4), aspect="auto", cmap="Greys",
    alpha=0.6,
)  # fmt: skip
at_time, at = np.meshgrid(np.linspace(1, 29, 12), np.linspace(-3.5, 3.5, 8))
right.quiver(at_time, at, 0 * at, -at, color="#2b5fa8", width=0.003)
right.plot(time, position, color="#b02418", linewidth=0.8)
right.set(title="a Langevin path, and the gradient", xlabel="time")
plt.show()

# %% [markdown]
# ## Factors of a matrix of two rows and three columns
#
# Say that entry $(i, j)$ of a matrix is $u_i^\top v_j$ plus normal noise of precision $\alpha$.
# Given all $v_j$ the density of $u_i$ is the exponential of a quadratic function: it is **normal**,
# with precision matrix and mean
#
# $$\Lambda_i = \alpha\sum_j v_j v_j^\top, \qquad
#   m_i = \Lambda_i^{-1}\,\alpha\sum_j r_{ij} v_j,$$
#
# the least-squares solution and how sure it is. So a Gibbs sampler draws every $u_i$ (all its
# coordinates in one block), then every $v_j$ in the same way, and starts again.

# %%
true_usage = np.array([[1.0, 0.0], [2.0, 1.0]])
true_basis = np.array([[1.0, 2.0], [1.0, 3.0], [2.0, 1.0]])
target = jnp.asarray(true_usage @ true_basis.T)
alpha = 1000.0


def draw_factors(key, values, other, prior_precision):
    """Every row of one factor matrix, given the other."""
    posterior = alpha * other.T @ other + prior_precision * jnp.eye(2)
    lower = jnp.linalg.cholesky(posterior)
    means = jnp.linalg.solve(posterior, alpha * other.T @ values.T).T
    noise = random.normal(key, means.shape)
    return means + jax.scipy.linalg.solve_triangular(lower.T, noise.T).T


def factorise(key, prior_precision, sweeps=400):
    def sweep(state, key):
        key_usage, key_basis = random.split(key)
        usage = draw_factors(key_usage, target, state, prior_precision)
        basis = draw_factors(key_basis, target.T, usage, prior_precision)
        return basis, (usage @ basis.T, usage, basis)

    start = random.normal(key, (3, 2))
    return lax.scan(sweep, start, random.split(key, sweeps))[1]


found = {prior: jax.jit(factorise)(random.key(4), prior) for prior in (0.0, 1.0)}
for prior_precision, (products, usage, basis) in found.items():
    print(f"prior precision {prior_precision}: mean of the product")
    print(np.asarray(products[50:].mean(0)).round(2))
    sizes = [f"{float(jnp.abs(s[-1]).max()):.1f}" for s in (usage, basis)]
    print("largest entries of the factors at the end:", *sizes)
    assert np.abs(products[50:].mean(0) - target).max() < 0.1

# %% [markdown]
# The draws of both rows of the usage and of the three rows of the basis, as points in a plane:

# %%
figure, axes = plt.subplots(2, 2, figsize=(8, 6), dpi=80, layout="constrained")
for cells, (prior_precision, (_, *factors)) in zip(axes, found.items(), strict=True):
    for cell, draws, name in zip(cells, factors, ("usage", "basis"), strict=True):
        for row in range(draws.shape[1]):
            cell.plot(*draws[:, row].T, ".", markersize=3, label=f"row {row + 1}")
        cell.set_title(f"{name}, prior precision {prior_precision:g}", fontsize=9)
        cell.legend(fontsize=7)
plt.show()

# %% [markdown]
# Both find the product. But without a prior (precision 0) *nothing* keeps the factors where they
# are: double one, halve the other, and the product is the same. Nor is there anything to go by for
# a row with fewer observed entries than factors: its precision matrix has no inverse, and the
# sampler breaks down. Matrices of ratings are nearly all missing. They need a prior.
#
# ## Ratings, with the prior that was missing
#
# Salakhutdinov and Mnih (2008) say: the rows $u_i$ come from *one* normal distribution, and its
# mean and precision matrix are learned along with everything else. A user of whom we know little is
# then taken to be like the others, a user with many ratings speaks for himself, and how strongly
# the one leans on the many is decided by the data. Nobody chooses a penalty. Rows and columns
# get a level of their own besides (kind and strict users, good and bad films).
#
# Here are ratings made by such a model: 200 users, 120 films, one cell in eight rated, from 1 to 5.
# (With the MovieLens files at hand, `bmfjax.Ratings.from_frame` reads `u.data` from a data frame.)

# %%
rng = np.random.default_rng(0)
users, films, rank = (80, 50, 2) if quick else (200, 120, 3)
taste, content = rng.normal(size=(users, rank)), rng.normal(size=(films, rank))
level = 3.4 + 0.4 * rng.normal(size=(users, 1)) + 0.5 * rng.normal(size=films)
stars = np.clip(level + 0.45 * taste @ content.T + 0.6 * rng.normal(size=(users, films)), 1, 5)
rated = np.argwhere(rng.random(stars.shape) < (0.25 if quick else 0.125))
rated = rng.permutation(rated)
hidden, seen = np.split(rated, [len(rated) // 5])


def table(cells):
    return bmfjax.Ratings(*cells.T, stars[*cells.T], shape=stars.shape, scale=(1, 5), name="films")


ratings = table(seen)
ratings

# %%
size = {"num_chains": 2, "num_warmup": 80, "num_samples": 100} if quick else {}
fit = bmfjax.fit(ratings, rank=rank, model="pmf", progress=False, seed=0, **size)
print(fit.verdict)

# %% [markdown]
# The fit knows how sure it is. For every hidden rating it gives a mean, and an interval in which
# the rating should lie with a probability of 90 %. Beside it stands what the mean of all ratings
# would have said.

# %%
truth = stars[*hidden.T]
predicted = fit.predict_cells(*hidden.T)
low, high = fit.predict_cells(*hidden.T, "interval", 0.9, noisy=True)


def error(p):
    return float(np.sqrt(np.mean((p - truth) ** 2)))


print(f"error of the mean rating   {error(ratings.values.mean()):.3f}")
print(f"error of the factorisation {error(predicted):.3f} (the noise alone makes about 0.6)")
print(f"inside of 90 % intervals   {np.mean((low <= truth) & (truth <= high)):.0%}")
assert error(predicted) < 0.92 * error(ratings.values.mean())
assert np.mean((low <= truth) & (truth <= high)) > 0.8

# %% [markdown]
# A user who comes later needs no new fit: given the films' factors, her own follow from her
# ratings. One who has rated nothing gets what the prior says, and wider intervals.

# %%
new = bmfjax.Ratings([0] * 5, range(5), stars[0, :5], shape=(2, films), scale=(1, 5))
given = fit.given_new(new)
spread = given.predict(kind="sd")
print("mean standard deviation of the fits, five ratings and none:", spread.mean(1).round(2))
assert spread[0].mean() < spread[1].mean()
