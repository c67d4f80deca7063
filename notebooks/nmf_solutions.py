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
# # Is this the only factorisation?
#
# A nonnegative factorisation is read for its parts. But the same matrix may be a product of other
# parts as well, and a chain that has settled on some of them looks, by every usual diagnostic, as
# if it had converged. Here are two matrices whose solutions are known, what a plain sampler sees of
# them, and what one sees that changes the basis.

# %%
import functools
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import bmfjax
from bmfjax.diagnostics import (
    coverage,
    integrated_time,
    laurberg,
    pairwise_distances,
    solution_line,
)
from bmfjax.infer import ChainRun, wall_ladder
from bmfjax.models import nmf

quick = bool(os.environ.get("BMFJAX_QUICK"))
NOISE = 1e-3

# %% [markdown]
# ## Parts, and wholes
#
# Lee and Seung (1999) showed what such parts are: of pictures, nonnegative factors are pieces that
# add up, and principal components are wholes that cancel. Here are pictures of digits with seven
# segments, each lit more or less, factorised by their updates and by a singular value
# decomposition.

# %%
SEGMENTS = ((0, slice(1, 4)), (slice(1, 4), 4), (slice(5, 8), 4), (8, slice(1, 4)),
            (slice(5, 8), 0), (slice(1, 4), 0), (4, slice(1, 4)))  # fmt: skip
LIT = ("012345", "12", "01346", "01236", "1256", "02356", "023456", "012", "0123456", "012356")

rng = np.random.default_rng(0)
pieces = np.zeros((7, 9, 5))
for piece, place in zip(pieces, SEGMENTS, strict=True):
    piece[place] = 1.0
lit = np.array([[str(k) in which for k in range(7)] for which in LIT], float)
weights = lit[rng.integers(0, 10, 300)] * rng.uniform(0.5, 1.5, (300, 7))
pixels = weights @ pieces.reshape(7, -1) + 0.02 * rng.random((300, 45))

usage, parts = rng.random((300, 7)), rng.random((7, 45))
for _ in range(500):
    usage *= pixels @ parts.T / (usage @ parts @ parts.T)
    parts *= usage.T @ pixels / (usage.T @ usage @ parts)
wholes = np.linalg.svd(pixels - pixels.mean(0), full_matrices=False)[2][:7]

figure, axes = plt.subplots(3, 7, figsize=(7, 5), dpi=80, layout="constrained")
for cells, pictures, name in zip(
    axes, (pixels, parts, wholes), ("pictures", "nonnegative parts", "principal components"),
    strict=True,
):  # fmt: skip
    for cell, picture in zip(cells, pictures, strict=False):
        most = np.abs(picture).max()
        cell.imshow(picture.reshape(9, 5), cmap="RdBu", vmin=-most, vmax=most)
        cell.axis("off")
    cells[0].set_title(name, fontsize=9, loc="left")
plt.show()

# %% [markdown]
# ## One matrix, two solutions
#
# Laurberg's 6 x 6 matrix has rank 3. Divided by their sums, its rows are six points in a plane, and
# a nonnegative factorisation is a triangle around them inside of the region that is nonnegative.
# Two triangles do it.

# %%
two = laurberg(0.5)
first, second = (two.solution(t)[0] for t in (0.0, 1.0))
corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
points = first / first.sum(1, keepdims=True) @ corners
# The corners of the other triangle, in the basis of the first: rows of the change of basis.
change = np.linalg.lstsq(second, first, rcond=None)[0]
others = change / change.sum(1, keepdims=True) @ corners

figure, axes = plt.subplots(figsize=(4.5, 4))
for triangle, colour in ((corners, "C0"), (others, "C1")):
    axes.fill(*triangle.T, fill=False, edgecolor=colour, linewidth=2)
axes.scatter(*points.T, color="black", zorder=3)
axes.set_aspect("equal")
axes.axis("off")
axes.set_title("six rows, two triangles")
plt.show()

# %% [markdown]
# The largest angle between matched columns of the two solutions:

# %%
apart = pairwise_distances(first[None], second[None])[0, 0]
assert 36 < apart < 38
apart

# %% [markdown]
# ## What the measures see
#
# Masood, Pan and Doshi-Velez (2016) compare factor matrices by the largest angle between matched
# columns. The sum of squares does not see what it sees: both matrices below are as far from the
# first by it. One has a column of its own, the other has all columns a little off.

# %%
rng = np.random.default_rng(0)
whole = rng.dirichlet(np.ones(6), 4).T
one_off, all_off = whole.copy(), rng.normal(size=whole.shape)
one_off[:, 0] = np.roll(whole[:, 0], 1)
size = np.linalg.norm(one_off - whole)
all_off = np.abs(whole + size * all_off / np.linalg.norm(all_off))
all_off = whole + (all_off - whole) * size / np.linalg.norm(all_off - whole)

figure, axes = plt.subplots(1, 3, figsize=(7, 2.6), dpi=80, layout="constrained")
for cell, other, name in zip(
    axes, (whole, one_off, all_off), ("a matrix", "one column off", "all columns off"), strict=True
):
    apart = {m: pairwise_distances(whole[None], other[None], m)[0, 0] for m in ("angle", "l1")}
    cell.imshow(other, cmap="Greys")
    cell.set_xticks([])
    cell.set_yticks([])
    cell.set_xlabel(
        f"squares {np.linalg.norm(other - whole):.2f}\n{apart['angle']:.0f} degrees, "
        f"l1 {apart['l1']:.2f}", fontsize=8,
    )  # fmt: skip
    cell.set_title(name, fontsize=9)
plt.show()

# %% [markdown]
# How much draws cover is told by the fewest of them that have every other within a radius. Of draws
# from two bumps, those of one chain lie in one bump, and those of another in both. At a radius of 1
# the first need more; at 2.5 the second do. What lasts over many radii counts.


# %%
def balls(points, radius):
    """Draws that cover all: each time that with most in its ball which nobody has."""
    near = np.linalg.norm(points[:, None] - points, axis=-1) <= radius
    left, chosen = np.ones(len(points), bool), []
    while left.any():
        chosen.append(int((near & left).sum(1).argmax()))
        left &= ~near[chosen[-1]]
    return chosen


one_bump = rng.normal([0, 0], [0.9, 0.35], (60, 2))
both = np.r_[rng.normal([-3, 0], 0.25, (30, 2)), rng.normal([3, 0], 0.25, (30, 2))]
figure, axes = plt.subplots(2, 2, figsize=(8, 4.4), sharex=True, sharey=True, dpi=80,
                            layout="constrained")  # fmt: skip
for cells, radius in zip(axes, (1.0, 2.5), strict=True):
    for cell, points, name in zip(cells, (one_bump, both), ("one bump", "both"), strict=True):
        chosen = balls(points, radius)
        cell.plot(*points.T, ".", markersize=3, color="black")
        for centre in points[chosen]:
            cell.add_patch(plt.Circle(centre, radius, fill=False, color="#2b5fa8"))
        cell.set(aspect="equal", xlim=(-6, 6), ylim=(-3, 3))
        cell.set_title(f"{name}, radius {radius:g}: {len(chosen)}", fontsize=9)
plt.show()

# %%
plt.figure(figsize=(5, 2.6), dpi=80)
for points, name in ((one_bump, "one bump"), (both, "both")):
    found = coverage(np.linalg.norm(points[:, None] - points, axis=-1))
    plt.step(found.radii, found.covering, where="post", label=name)
plt.yscale("log")
plt.xlabel("radius")
plt.ylabel("draws that cover all")
plt.legend()
plt.show()
assert len(balls(one_bump, 1.0)) > len(balls(both, 1.0))
assert len(balls(one_bump, 2.5)) < len(balls(both, 2.5))

# %% [markdown]
# ## What three samplers see
#
# All draw from the same posterior, exactly, with normal noise of 0.001 and exponential priors. All
# start at the first solution. The first is Gibbs sampling column by column (Schmidt, Winther,
# Hansen 2009). The second also changes the basis: it moves along directions in which the product
# stays what it is. The third has replicas of the chain besides, in which entries may be negative,
# at a price that falls from one to the next: behind such soft walls the triangle can turn.


# %%
def sample(problem, start, num_samples, **options):
    """Draws of the usage, (draw, rows, rank), from a start at a solution."""
    noisy = np.random.default_rng(0).normal(problem.exact, NOISE)
    model = functools.partial(nmf, rank=problem.rank, precision=NOISE**-2)
    bound = bmfjax.NMFGibbs(model, **options).bind(noisy)
    position = {n: f[None] + 1e-6 for n, f in zip(("usage", "basis"), start, strict=True)}
    run = ChainRun(
        bound.algorithm, jax.random.key(1), bound.data, num_chains=1, num_warmup=0,
        num_samples=num_samples, position=position, draws={"usage": 1},
    )  # fmt: skip
    run.finish()
    return np.asarray(run.draws()["usage"][0], float)


moves = ("basis", "lines")
walls = wall_ladder(2e4, 2.0, 20)
number = 250 if quick else 10_000
drawn = {
    "Gibbs": sample(two, two.solution(0.0), number, moves=()),
    "with changes of basis": sample(two, two.solution(0.0), number, moves=moves),
    "behind soft walls": sample(two, two.solution(0.0), number, moves=moves, walls=walls),
}
for name, draws in drawn.items():
    seen = pairwise_distances(draws[:: number // 250])
    lag = np.nanmean(integrated_time(draws[None]))
    print(f"{name}: solutions {seen.max():.2f} degrees apart, autocorrelation time {lag:.0f}")

# %% [markdown]
# Gibbs mixes slowly and within one solution. Changes of basis make it mix, still within one: no
# path of nonnegative factors leads to the other. Behind walls both are seen. In which solution each
# draw is:

# %%
figure, panels = plt.subplots(3, 1, figsize=(8, 4.5), sharex=True, layout="constrained")
for axes, (name, draws) in zip(panels, drawn.items(), strict=True):
    axes.plot(pairwise_distances(draws, first[None])[:, 0], linewidth=0.8)
    axes.set_ylim(-2, 40)
    axes.set_title(f"{name}: degrees from the first solution", fontsize=9, loc="left")
panels[-1].set_xlabel("draw")
plt.show()

# %%
assert pairwise_distances(drawn["Gibbs"][::50]).max() < 2
if not quick:
    assert pairwise_distances(drawn["behind soft walls"][::20]).max() > 36

# %% [markdown]
# The curve of covering numbers tells it at a glance: how many draws it takes to have one within a
# radius of every other. A step at 2 that lasts is two solutions.

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, draws in drawn.items():
    found = coverage(pairwise_distances(draws[:: number // 250]))
    axes.step(np.r_[found.radii, 45], np.r_[found.covering, 1], where="post", label=name)
axes.set_yscale("log")
axes.set_xlabel("radius in degrees")
axes.set_ylabel("draws that cover all")
axes.legend()
plt.show()

# %% [markdown]
# ## A line of solutions
#
# Of the second matrix, of rank 6, every delta between 0 and 1 gives a solution: the last row of the
# usage is (1 - delta) three times and delta three times. The solutions are connected, and still
# Gibbs creeps: a single entry of that row cannot move without the others. A move of the whole row
# along the direction in which the data leave it free takes it anywhere at once.

# %%
line = solution_line()


def delta(draws):
    """Where on the line each draw is, whatever the scales of its columns."""
    units = draws[:, -1] / draws[:, :-1].max(1)
    return units[:, 3:].sum(1) / units.sum(1)


number = 250 if quick else 5000
creeps = sample(line, line.solution(0.5), number, moves=())
sweeps = sample(line, line.solution(0.5), number, moves=moves)
figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
axes.plot(delta(sweeps), ".", markersize=2, label="with moves of lines")
axes.plot(delta(creeps), label="Gibbs")
axes.set_ylim(0, 1)
axes.set_ylabel("delta")
axes.set_xlabel("draw")
axes.legend(loc="upper right")
plt.show()
assert np.ptp(delta(creeps)) < 0.5 < np.ptp(delta(sweeps))

# %% [markdown]
# ## In a fit
#
# `bmfjax.fit(..., model="nmf")` runs several chains with these moves from starts of their own,
# learns the noise, and says in its table, in its verdict and on its page how far apart the
# solutions are that it holds.

# %%
noisy = np.random.default_rng(0).normal(line.exact, 0.02)
size = {"num_chains": 2, "num_warmup": 50, "num_samples": 50} if quick else {}
fit = bmfjax.fit(noisy, rank=6, model="nmf", progress=False, **size)
print(fit.verdict)
print(f"solutions up to {fit.figures.coverage_largest:.0f} degrees apart")
fit.summary()
