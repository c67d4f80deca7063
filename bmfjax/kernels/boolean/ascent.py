r"""Climb to modes of the OrMachine's posterior while one factor matrix is summed out.

With the bits of the longer factor matrix Z summed out (:mod:`bmfjax.kernels.boolean.collapsed`) a
mode is a point :math:`x = (V, \rho, \pi, \theta)`: bits of the other matrix, the densities of its
factors, those of Z, and the flip rates. Where the states of all factors can be weighed,
expectation-maximisation climbs

.. math::

   F(x) = \sum_i \log \sum_{z} p(z \mid \pi) \prod_j p\Big(x_{ij} \Big| \bigvee_k z_k v_{jk},
       \theta\Big) + \log p(V \mid \rho) + \sum_{q \in (\rho, \pi, \theta)} \log q (1 - q)

A step weighs all states of every line, :math:`W_i(z)`, and then gives each row of V the one of its
:math:`2^r` patterns that is best given W, and each density and rate its best value given both. No
step goes down (Meng, Rubin 1993, "Maximum likelihood estimation via the ECM algorithm", Biometrika
80(2)). The last sum is a Beta(2, 2) prior, which keeps densities off 0 and 1.

Such a climb ends in the nearest mode. A population of them gets further: a member replaces one of
its vectors, climbs some steps, and stays there if it has come higher. The new vector is

* one of another member, or
* a line of the data, with what others cover or without, or what two lines have in common, or
* :math:`v_l \oplus v_m`, :math:`v_l \vee v_m`, :math:`v_l \wedge v_m` or
  :math:`v_l \wedge \neg v_m` of its own.

What a factor is worth to the likelihood decides which one goes, and what is left uncovered which
line is taken. All this looks for a start of chains. It is no sampler.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.kernels.boolean.bits import covered_by_states, states_of
from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget, device_budget

#: Members that climb side by side on a CPU.
BLOCK = 4
#: Entries to whose weight the likelihood is tempered at first, and steps until it is untempered and
#: from then on. Where much less weighs than the prior, vectors empty themselves, and stay empty.
ENTRIES, COOLING, SETTLING = 5000, 25, 10
#: What every member knows at first: densities of Z, and flip rates.
SHARE, RATE = 0.3, 0.2
#: Lines that tell what a factor is worth and what is left uncovered.
SOME = 256
#: Keeps logarithms of weights finite.
LEAST = 1e-12


class Lines(NamedTuple):
    """The distinct lines of the data, along the matrix that is summed out."""

    ones: jax.Array  # (lines, kept) float: ones that are seen
    zeros: jax.Array  # (lines, kept) float: zeros that are seen
    count: jax.Array  # (lines,) float: how often each occurs
    budget: Budget = ONE_BY_ONE

    def members_at_once(self, number: int, rank: int) -> int:
        """Return how many of so many members climb side by side."""
        size = 4 * len(self.count) * (4 * 2**rank + self.ones.shape[1])
        return max(self.budget.number(number, size), BLOCK)


class Member(NamedTuple):
    """A point of the posterior on its way to a mode; with leading axes, many."""

    vectors: jax.Array  # (kept, rank) float, 0 or 1
    density: jax.Array  # (rank,): of the vectors
    share: jax.Array  # (rank,): density of the bits summed out
    rates: jax.Array  # (2,): flips of zeros, and of ones
    value: jax.Array  # (): F where the last step began, no more than here


def distinct_lines(values: np.ndarray) -> Lines:
    """Merge equal rows of `values`, (lines, kept), in which NaN is missing."""
    codes = np.where(np.isnan(values), 2, values).astype(np.int8)
    merged, count = np.unique(codes, axis=0, return_counts=True)
    numbers = [a.astype(np.float32) for a in (merged == 1, merged == 0, count)]
    return Lines(*jax.device_put(numbers), device_budget())


def first_member(key: jax.Array, lines: Lines, rank: int, num_rates: int) -> Member:
    """Climb from lines of the data as vectors, while the posterior cools."""
    chosen = random.categorical(key, jnp.log(lines.count), shape=(rank,))
    kind = lines.ones.dtype
    start = Member(
        lines.ones[chosen].T,
        jnp.full(rank, SHARE, kind),
        jnp.full(rank, SHARE, kind),
        jnp.full(2, RATE, kind),
        jnp.asarray(-jnp.inf, kind),
    )
    seen = jnp.sum(lines.count * jnp.sum(lines.ones + lines.zeros, axis=1))
    hottest = jnp.minimum(ENTRIES / jnp.maximum(seen, 1.0), 1.0)
    betas = hottest ** jnp.linspace(1.0, 0.0, COOLING, dtype=kind)
    return climb(lines, start, jnp.append(betas, jnp.ones(SETTLING, kind)), num_rates)


def climb(lines: Lines, member: Member, inverse_temperatures, num_rates: int) -> Member:
    """Take one step at each inverse temperature; `value` is that of where the last one began."""

    def body(member, beta):
        return step(lines, member, beta, num_rates), None

    return lax.scan(body, member, inverse_temperatures)[0]


def step(lines: Lines, member: Member, inverse_temperature, num_rates: int) -> Member:
    """Take a step of expectation-maximisation; `value` is that of where it began, at most F."""
    beta = inverse_temperature
    weights, value = _weigh(lines, member, beta)
    ones, zeros = (_product(weights.T, side) for side in (lines.ones, lines.zeros))
    states = _states(member, ones.dtype)
    for_one, for_zero = _gains(member.rates)
    gain = for_one * ones + for_zero * zeros
    score = beta * covered_by_states(gain, member.vectors.shape[1])
    score += _product(states, _logit(member.density))[:, None]
    vectors = states[jnp.argmax(score, axis=0)]
    covers = _covers(states, vectors)
    found, lost = jnp.sum(covers * ones), jnp.sum(covers * zeros)
    missed, right = jnp.sum(ones) - found, jnp.sum(zeros) - lost
    return Member(
        vectors,
        _share(jnp.sum(vectors, axis=0), vectors.shape[0]),
        _share(_product(jnp.sum(weights, axis=0), states), jnp.sum(lines.count)),
        _rates(found, lost, missed, right, num_rates),
        value,
    )


def jump(key: jax.Array, lines: Lines, member: Member, others: jax.Array, steps, num_rates: int):
    """Replace a vector, climb, and stay there if that is higher.

    `others` are vectors of all members, (number, kept); `steps` the inverse temperatures.
    """
    keys = random.split(key, 6)
    some = _some_of(keys[0], lines)
    weights, _ = _weigh(some, member)
    states = _states(member, weights.dtype)
    absent = jnp.log(jnp.maximum(_product(weights, 1.0 - states), LEAST))
    k = random.categorical(keys[1], -jnp.log1p(-jnp.sum(absent, axis=0)))
    covered = _product(weights, _covers(states, member.vectors))
    known = others[random.randint(keys[2], (), 0, len(others))]
    proposals = jnp.concatenate(
        [
            jnp.stack([known] * 3),
            _of_lines(keys[3], some.ones, some.ones * (1.0 - covered)),
            _of_own(keys[4], member.vectors),
        ]
    )
    chosen = random.randint(keys[5], (), 0, len(proposals))
    moved = member._replace(
        vectors=member.vectors.at[:, k].set(proposals[chosen]),
        share=member.share.at[k].set(SHARE),
        # With rates near one half no vector would be of use.
        rates=jnp.minimum(member.rates, RATE),
    )
    moved = climb(lines, moved, steps, num_rates)
    better = moved.value > member.value
    return jax.tree.map(lambda a, b: jnp.where(better, a, b), moved, member)


def _some_of(key, lines: Lines) -> Lines:
    """Draw lines, as often as they occur, that tell what is not covered."""
    chosen = random.categorical(key, jnp.log(lines.count), shape=(SOME,))
    return Lines(lines.ones[chosen], lines.zeros[chosen], jnp.ones(SOME, lines.count.dtype))


def evolve(key, lines: Lines, members: Member, rounds: int, num_steps: int, num_rates: int):
    """Let all members jump so many times, each time with vectors of any of them at hand."""
    steps = jnp.ones(num_steps, lines.ones.dtype)
    number = len(members.value)

    def one_round(members, key):
        pool = jnp.swapaxes(members.vectors, 1, 2).reshape(-1, members.vectors.shape[1])
        return lax.map(
            lambda a: jump(a[0], lines, a[1], pool, steps, num_rates),
            (random.split(key, number), members),
            batch_size=lines.members_at_once(number, members.vectors.shape[2]),
        ), None

    return lax.scan(one_round, members, random.split(key, rounds))[0]


def draw_bits(key: jax.Array, ones, zeros, member: Member) -> jax.Array:
    """Draw the bits of a line, (rank,) bool, given its entries, (kept,) each."""
    line = Lines(ones[None], zeros[None], jnp.ones(1, ones.dtype))
    weights, _ = _weigh(line, member)
    chosen = random.categorical(key, jnp.log(weights[0]))
    return _states(member, weights.dtype)[chosen] > 0.5


def _of_lines(key, ones, left) -> jax.Array:
    """Return vectors from two lines of which much is left uncovered: (4, kept)."""
    key_first, key_second = random.split(key)
    tiny = LEAST * jnp.sum(left) + LEAST
    first = random.categorical(key_first, jnp.log(jnp.sum(left, axis=1) + tiny))
    common = jnp.sum(jnp.minimum(left, left[first]), axis=1).at[first].set(0.0)
    second = random.categorical(key_second, jnp.log(common + tiny))
    open_ = (left > 0.5).astype(left.dtype)
    return jnp.stack(
        [ones[first], open_[first], ones[first] * ones[second], open_[first] * open_[second]]
    )


def _of_own(key, vectors) -> jax.Array:
    """Return vectors from two of a member's own: (4, kept), or none for a single factor."""
    rank = vectors.shape[1]
    if rank == 1:
        return jnp.zeros((0, vectors.shape[0]), vectors.dtype)
    a, b = vectors[:, random.choice(key, rank, (2,), replace=False)].T
    return jnp.stack([jnp.abs(a - b), jnp.maximum(a, b), a * b, a * (1.0 - b)])


def _weigh(lines: Lines, member: Member, beta=1.0):
    """Return the weights of the states in every line, (lines, states), times counts; and F."""
    states = _states(member, lines.ones.dtype)
    for_one, for_zero = _gains(member.rates)
    covers = _covers(states, member.vectors)
    table = beta * _product(for_one * lines.ones + for_zero * lines.zeros, covers.T)
    table += _product(states, _logit(member.share)) + jnp.sum(jnp.log1p(-member.share))
    most = jnp.max(table, axis=1, keepdims=True)
    weights = jnp.exp(table - most)
    total = jnp.sum(weights, axis=1, keepdims=True)
    flip, _ = member.rates
    nothing = jnp.log(flip) * jnp.sum(lines.ones, 1) + jnp.log1p(-flip) * jnp.sum(lines.zeros, 1)
    value = jnp.sum(lines.count * ((most + jnp.log(total))[:, 0] + beta * nothing))
    value += jnp.sum(member.vectors * _logit(member.density) + jnp.log1p(-member.density))
    for rate in (member.density, member.share, member.rates):
        value += jnp.sum(jnp.log(rate) + jnp.log1p(-rate))
    return weights * (lines.count[:, None] / total), value


def _states(member: Member, kind):
    """Return all states of the factors of a line, (states, rank)."""
    return jnp.asarray(states_of(member.vectors.shape[1]), kind)


def _covers(states, vectors):
    """Tell what the states cover: (states, kept)."""
    return (_product(states, vectors.T) > 0.5).astype(vectors.dtype)


def _gains(rates):
    """Return what covering a one adds to the log likelihood, and covering a zero."""
    of_zero, of_one = rates
    return jnp.log1p(-of_one) - jnp.log(of_zero), jnp.log(of_one) - jnp.log1p(-of_zero)


def _rates(found, lost, missed, right, num_rates):
    """Return the best flip rates, at most 1/2, for these numbers of entries."""
    if num_rates == 1:
        wrong = missed + lost
        both = _share(wrong + 1.0, wrong + found + right + 2.0)  # of two, each with its prior
        rates = jnp.stack([both, both])
    else:
        rates = jnp.stack([_share(missed, missed + right), _share(lost, lost + found)])
    return jnp.minimum(rates, 0.5)


def _share(count, among):
    """Return the most probable share under a Beta(2, 2) prior."""
    return (count + 1.0) / (among + 2.0)


def _logit(chance):
    return jnp.log(chance) - jnp.log1p(-chance)


def _product(a, b):
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)
