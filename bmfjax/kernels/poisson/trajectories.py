r"""Moves of the usage and the spectra together, along trajectories: Hamiltonian Monte Carlo.

Where spectra overlap, allocation moves slowly: counts follow the factors, and these follow the
counts. A trajectory (Neal 2011, "MCMC using Hamiltonian dynamics", Handbook of MCMC) goes along
the gradient of the log density with the allocation summed out, and ends far off.

*Coordinates.* Roots of expected counts, which have about the same curvature everywhere:
:math:`u_{ik} = \sqrt{w_i y_{ik}}`, w the exposure of the row, and
:math:`v_{jk} = \sqrt{s_k x_{jk}}`. Here s is an auxiliary sum, drawn from
:math:`\mathrm{Gamma}(t_k, 1)` with :math:`t_k = a \sum_i w_i / \beta_k`, so that x is free of its
constraint. The rates are not moved, and give t.

*What moves.* The density of a root can have no bound at zero. Before a trajectory each root q is
chosen to move with probability :math:`m(q) = q^4 / (q^4 + b^4)`, others rest until the next. Given
the choice the density of those that move has m(q) as a factor more, and vanishes at zero. What
rests has few counts, and is moved well by allocation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.beta import draw_gamma
from bmfjax.kernels.poisson.density import LEAST, PoissonData, PoissonDensity

#: Steps of a trajectory; their size, times the fourth root of how many numbers there are, and at
#: most; the root that moves as often as not.
STEPS, SIZE, MOST_SIZE, MIDDLE = 24, 1.4, 0.4, 1.0


class Roots(NamedTuple):
    """What a trajectory is in: roots (rows + columns, rank), and what stays on it."""

    counts: jax.Array  # (rows, columns)
    weights: jax.Array  # (rows, columns) or (rows, 1)
    unit: jax.Array  # (rows, 1) exposure
    moves: jax.Array  # (rows + columns, rank) bool
    power: jax.Array  # (rows + columns, 1): the prior is this power of a root,
    slope: jax.Array  # (rows, rank): falls so with the squares of those of the usage,
    lack: jax.Array  # (rank,): and has this power of the sums of those of the spectra

    def factors(self, roots) -> tuple:
        """Return usage, basis and the sums of the basis before it is scaled."""
        squares, rows = roots**2, len(self.unit)
        sums = jnp.maximum(jnp.sum(squares[rows:], 0), LEAST)
        return squares[:rows] / self.unit, squares[rows:] / sums, sums

    def gradient(self, roots) -> jax.Array:
        """Return the gradient of the log density, zero where a root rests."""
        usage, basis, sums = self.factors(roots)
        left = self.counts / jnp.maximum(usage @ basis.T, LEAST**2) - self.weights
        of_basis = left.T @ usage
        of_basis += self.lack - jnp.sum(of_basis * basis, 0)
        of_squares = jnp.concatenate([left @ basis / self.unit - self.slope, of_basis / sums - 1.0])
        of_powers = self.power + 4.0 * (1.0 - _chance(roots))
        found = 2.0 * roots * of_squares + of_powers / jnp.where(self.moves, roots, 1.0)
        return jnp.where(self.moves, found, 0.0)

    def rise(self, before, after) -> jax.Array:
        """Return by how much the log density rises, summed by entries, which keeps its digits."""
        (*first, sums), (*second, _) = self.factors(before), self.factors(after)
        rates, higher = (usage @ basis.T for usage, basis in (first, second))
        ratio = jnp.where(self.counts > 0, higher / rates, 1.0)
        total = jnp.sum(self.counts * jnp.log(ratio) - self.weights * (higher - rates))
        ratio = jnp.where(self.moves, jnp.abs(after / before), 1.0)
        chances = jnp.where(self.moves, _chance(after) / _chance(before), 1.0)
        total += jnp.sum(self.power * jnp.log(ratio) + jnp.log(chances))
        gained, rows = (after - before) * (after + before), len(self.unit)
        total -= jnp.sum(self.slope * gained[:rows])
        gained = jnp.sum(gained[rows:], 0)
        return total + jnp.sum(self.lack * jnp.log1p(gained / sums) - gained)


def roots_of(key, position: dict, weights, density: PoissonDensity, data: PoissonData) -> tuple:
    """Return the roots of a position, and what a trajectory from them is in."""
    key_sums, key_moves = random.split(key)
    usage, basis, rate = (position[name] for name in ("usage", "basis", "rate"))
    (rows, rank), columns, kind = usage.shape, len(basis), usage.dtype
    a, c = density.usage_shape, density.concentration(position)
    there = position["presence"] > 0 if density.presence else jnp.ones(rank, bool)
    free = there & (jnp.arange(rank) >= density.anchored)
    weights = weights[:, None] if weights.ndim == 1 else weights
    exposure = jnp.max(weights, 1, keepdims=True)
    unit = jnp.where(exposure > 0, exposure, 1.0)
    total = jnp.sum(exposure) * a / rate
    sums = jnp.where(free, draw_gamma(key_sums, total), 1.0)
    start = jnp.concatenate([jnp.sqrt(unit * usage), jnp.sqrt(sums * basis)])
    can = jnp.concatenate([there & (exposure > 0), jnp.broadcast_to(free, basis.shape)])
    moves = can & (random.uniform(key_moves, start.shape, kind) < _chance(start))
    power = jnp.concatenate([
        jnp.full((rows, 1), 2.0 * a - 1.0, kind), jnp.broadcast_to(2.0 * c - 1.0, (columns, 1))
    ])  # fmt: skip
    slope = jnp.where(there, rate / unit, 0.0)
    lack = jnp.where(free, total - columns * c, 0.0)
    return start, Roots(data.dense, weights, unit, moves, power, slope, lack)


def follow(key, position: dict, weights, density: PoissonDensity, data: PoissonData) -> dict:
    """Move usage and basis along one trajectory, and accept by Metropolis and Hastings.

    The data have their counts as a matrix. `weights` are as in `exposures`.
    """
    key_roots, key_momentum, key_uniforms = random.split(key, 3)
    start, roots = roots_of(key_roots, position, weights, density, data)
    uniforms = random.uniform(key_uniforms, (2,), start.dtype, minval=1e-7)
    size = min(SIZE * start.size**-0.25, MOST_SIZE) * (0.7 + 0.3 * uniforms[0])

    def leap(_, at):
        q, p, gradient = at
        p = p + 0.5 * size * gradient
        q = q + size * p
        gradient = roots.gradient(q)
        return q, p + 0.5 * size * gradient, gradient

    drawn = random.normal(key_momentum, start.shape, start.dtype)
    momentum = jnp.where(roots.moves, drawn, 0.0)
    begin = start, momentum, roots.gradient(start)
    end, last, _ = lax.fori_loop(0, STEPS, leap, begin)
    log_ratio = roots.rise(start, end) - 0.5 * jnp.sum((last - momentum) * (last + momentum))
    accepted = jnp.log(uniforms[1]) < log_ratio
    usage, basis, _ = roots.factors(end)
    moved = jnp.any(roots.moves[len(usage) :], 0)  # else the sums of its spectrum are as they were
    return {
        "usage": jnp.where(accepted & roots.moves[: len(usage)], usage, position["usage"]),
        "basis": jnp.where(accepted & moved, jnp.maximum(basis, LEAST), position["basis"]),
    }


def _chance(root) -> jax.Array:
    """Return the probability that a root moves."""
    power = (root / MIDDLE) ** 4
    return power / (1.0 + power)
