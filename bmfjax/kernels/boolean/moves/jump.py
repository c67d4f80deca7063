r"""Jump to another solution that is known, with the other factor matrix summed out.

Modes that differ in several factors are connected by no path of single ones: chains stay where they
started. Where some solutions are known, of which every chain may have found another, a jump
proposes to take one of them as a whole. What is known of a solution s are probabilities of its bits
:math:`\rho_{slj}`, a normal distribution of the logit of every factor's density :math:`\pi_l` in
the other matrix, and one of the logits of the flip rates f. With uniform weights of the solutions
and the order of factors drawn uniformly, a candidate has the density

.. math::

   q(V, \pi, f) = \frac1S \sum_s N(\operatorname{logit} f \mid s)\, \frac{1}{r!}
       \operatorname{perm} \Big[ N(\operatorname{logit} \pi_k \mid s, l)
       \prod_j \rho_{slj}^{v_{kj}} (1 - \rho_{slj})^{1 - v_{kj}} \Big]_{kl},

with the permanent of an r x r matrix (`bmfjax.kernels.numerics.permanent`). Several candidates are
drawn, and one of them, or the old position, is chosen with probability proportional to
:math:`p(V)\,p(\theta)\,m(V, \theta)^\beta / q(V, \theta)`.

Solutions must not change while draws are kept: they are part of the move, not of the state that it
leads to. A mode that is not among them is reached and left by other moves alone.

What it leaves invariant
    :math:`p(V)\,p(\theta)\,m(V, \theta)^\beta` with the densities of V integrated out, as iterated
    sampling importance resampling (Andrieu, Lee, Vihola 2018, Bernoulli 24(2)). The densities of V
    must be drawn given V afterwards. Jumps between modes by approximations of each are reviewed by
    Pompe, Holmes, Latuszynski (2020), "A framework for adaptive MCMC targeting multimodal
    distributions", Annals of Statistics 48(5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logit, logsumexp
from jax.scipy.stats import norm

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.boolean.density import log_prior_of_bits
from bmfjax.kernels.boolean.marginal import log_marginal_of, log_prior_of_logit
from bmfjax.kernels.boolean.words import pack_last_axis, unpack_last_axis
from bmfjax.kernels.numerics.permanent import log_permanent

#: Candidates of a jump, beside the position that is there.
CANDIDATES = 16


class Normal(NamedTuple):
    """Normal distributions, each with its mean and standard deviation."""

    mean: jax.Array
    spread: jax.Array

    def draw(self, key):
        """Draw from each."""
        return self.mean + self.spread * random.normal(key, self.mean.shape, self.mean.dtype)


class KnownSolutions(NamedTuple):
    """What is known of solutions; of logits None where a density or the flip rates are given."""

    log_chance: jax.Array  # (solutions,): log of the probability of each; -inf for none
    use: jax.Array  # (solutions, rank, short): probabilities of ones in the kept matrix
    density: Normal | None  # (solutions, rank): logits of densities in the other matrix
    rate: Normal | None  # (solutions,) or (solutions, 2): logits of the flip rates


class Candidate(NamedTuple):
    """What a jump may lead to."""

    bits: jax.Array  # (rank, short) bool
    density: jax.Array | None  # (rank,): logits
    rate: jax.Array | None  # () or (2,): logits


def jump(density, sides) -> Callable:
    """Build the move, for data with `KnownSolutions`.

    Its form is that of `bmfjax.kernels.boolean.moves.whole_factors.rebirth`.
    """
    names = {"density": f"{sides.summed}_density", "rate": "flip_rate"}

    def move(key, position, value, data, beta):
        known, (key_draw, key_choice) = data.solutions, random.split(key)
        learned = {part: name for part, name in names.items() if getattr(known, part) is not None}
        old = Candidate(unpack_last_axis(position[sides.kept], sides.short), None, None)
        old = old._replace(**{part: logit(position[name]) for part, name in learned.items()})
        drawn = jax.vmap(lambda k: draw_candidate(k, known))(random.split(key_draw, CANDIDATES))

        def led_to(candidate):
            new = {n: jax.nn.sigmoid(getattr(candidate, part)) for part, n in learned.items()}
            return position | new | {sides.kept: pack_last_axis(candidate.bits)}

        def weigh(position, candidate):
            prior = log_prior_of_bits(sides.kept, density, position, data)
            for name in learned.values():
                prior += log_prior_of_logit(density, name, position[name])
            return prior - log_density(known, candidate)

        def one(candidate):
            new = led_to(candidate)
            then = log_marginal_of(density, sides, new, data)
            return new, then, beta * then + weigh(new, candidate)

        new, then, weights = lax.map(one, drawn)
        # The old position itself: by way of its logits it would be rounded, even to one.
        weights = jnp.concatenate([(beta * value + weigh(position, old))[None], weights])
        weights = jnp.where(jnp.isnan(weights), -jnp.inf, weights)
        # Where q is zero in floating point, the position is as good as never proposed, and stays.
        lost = ~jnp.isfinite(weights[0])
        chosen = jnp.where(lost, 0, random.categorical(key_choice, weights))
        position = {
            n: jnp.where(chosen == 0, old, new[n][chosen - 1]) for n, old in position.items()
        }
        accepted = jnp.where(lost, 0.0, 1.0 - jax.nn.softmax(weights)[0])
        return position, jnp.where(chosen == 0, value, then[chosen - 1]), accepted

    return move


def draw_candidate(key, known: KnownSolutions) -> Candidate:
    """Draw a solution, and from what is known of it a candidate, its factors in random order."""
    keys = random.split(key, 5)
    chosen = random.categorical(keys[0], known.log_chance)
    _, use, density, rate = jax.tree.map(lambda leaf: leaf[chosen], known)
    order = random.permutation(keys[1], use.shape[0])
    bits = random.uniform(keys[2], use.shape, use.dtype) < use
    return Candidate(
        bits[order],
        None if density is None else density.draw(keys[3])[order],
        None if rate is None else rate.draw(keys[4]),
    )


def log_density(known: KnownSolutions, candidate: Candidate) -> jax.Array:
    """Return the log of q at a candidate: densities and rates by their logits."""
    ones = candidate.bits[:, None]

    def of_solution(known):
        log_chance, use, density, rate = known
        each = jnp.sum(jnp.where(ones, jnp.log(use), jnp.log1p(-use)), axis=-1)
        if density is not None:
            each += norm.logpdf(candidate.density[:, None], *density)
        total = log_chance + log_permanent(each) - math.lgamma(len(use) + 1.0)
        return total + (0.0 if rate is None else jnp.sum(norm.logpdf(candidate.rate, *rate)))

    return logsumexp(lax.map(of_solution, known))


class JumpState(NamedTuple):
    """State of a sampler that jumps, and the solutions that it jumps to, which do not change."""

    inner: Any
    solutions: KnownSolutions


def keeping_solutions(algorithm: Algorithm) -> Algorithm:
    """Keep the solutions of the data, as they are at the start, and store them, with the state."""

    def init(key, position, data):
        return JumpState(algorithm.init(key, position, data), data.solutions)

    def step(key, state, data, inverse_temperature=1.0):
        data = data._replace(solutions=state.solutions)
        inner, info = algorithm.step(key, state.inner, data, inverse_temperature)
        return state._replace(inner=inner), info

    return Algorithm(init, step, lambda state, info: algorithm.observe(state.inner, info))
