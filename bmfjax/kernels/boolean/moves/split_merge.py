r"""Split a factor of a Boolean product in two, or merge two, at the same rank.

Two factors that share one block of ones, or one that spans two, change bit by bit only through
states that fit worse. Two configurations of an ordered pair (k, l) are exchanged instead, given
all the others R:

* *merged*, :math:`m`: factor k is :math:`(Z, U)`, and l anything, say :math:`(z_0, u_0)`;
* *split*, :math:`s`: :math:`z_k \vee z_l = Z` and :math:`u_k \vee u_l = U`.

A merge joins both pairs of vectors, and factor l is drawn anew from the density :math:`q_0` of
`bmfjax.kernels.boolean.moves.proposals`: it empties itself, or is born elsewhere. A split forgets l
and draws the two parts by restricted Gibbs sampling (Jain, Neal 2004, "A split-merge Markov chain
Monte Carlo procedure for the Dirichlet process mixture model", JCGS 13): every row of Z belongs to
k, to l or to both, and so does every column of U; rows are drawn given columns and columns given
rows, from a random start, and the state L before the last round is set aside. The density
:math:`q(s \mid L)` of that round is a product over rows times a product over columns. Parts are
then named k and l at random, so that q is the mean over both ways round.

The ratio
    L depends on R, Z and U alone, and these are the same in m and s; what q_0 looks at (R and the
    factor (Z, U)) is too. Both directions therefore draw L in the same way and evaluate the same
    number, with :math:`p_s(k, l \mid m)` and :math:`p_m(k, l \mid s)` the probabilities that a
    split, or a merge, takes this pair (either kind of move is tried half the time):

    .. math::

       \rho = \frac{p(s \mid R)\;p_m(k, l \mid s)\;q_0(z_0, u_0 \mid R, Z, U)}
                   {p(m \mid R)\;p_s(k, l \mid m)\;q(s \mid L)}.

    A split is accepted with probability :math:`\min(1, \rho)`, a merge with
    :math:`\min(1, 1/\rho)`.

Which pair
    A split takes any k, and l as `bmfjax.kernels.boolean.moves.birth` does: one that is
    superfluous. A merge takes any pair half the time, and half the time one with much in common in
    one of its vectors: with a probability that is proportional to the square of the larger Jaccard
    index.

What it leaves invariant
    The posterior, at any inverse temperature. As in a birth, the densities of the two factors are
    integrated out of p (Beta-Bernoulli), and all densities are drawn from their conditionals
    afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.nn import log_sigmoid, log_softmax

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.boolean import flip_rates
from bmfjax.kernels.boolean.bits import as_mask
from bmfjax.kernels.boolean.density import BooleanDensity, with_shares
from bmfjax.kernels.boolean.moves import proposals
from bmfjax.kernels.boolean.moves.birth import (
    check_moved,
    decide,
    factor_bits,
    log_chances,
    with_factor,
)
from bmfjax.kernels.boolean.moves.proposals import Free, Rest, gains, log_marginal
from bmfjax.kernels.boolean.words import count_bits, pack_last_axis, unpack_last_axis

#: Rounds of restricted Gibbs sampling before the one whose density counts.
ROUNDS = 3
#: Keeps the weights of pairs that have nothing in common from summing to zero.
TINY = 1e-6


class Pair(NamedTuple):
    """Vectors of two factors: `usage` (2, rows) and `basis` (2, columns) bool."""

    usage: jax.Array
    basis: jax.Array


def split_merge(density: BooleanDensity, *, num_patterns: int = 0) -> Callable:
    """Build the move.

    Parameters
    ----------
    density : BooleanDensity
        With a rank of 2 at least.
    num_patterns : int
        Patterns looked for to give birth to the factor that a merge sets free; 0 leaves it empty,
        or drawn from the prior, which is faster.

    Returns
    -------
    callable
        ``move(key, position, data, inverse_temperature=1.0) -> (position, acceptance)``, a global
        move of `bmfjax.kernels.boolean.gibbs.ormachine`; the acceptance probability is () float.
        Bits that the data fix stay as they are.

    Raises
    ------
    InputError
        For a single factor.

    Examples
    --------
    A block whose upper and lower half are factors of their own becomes one factor:

    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
    >>> from bmfjax.kernels.boolean.words import packed_data
    >>> density = BooleanDensity((24, 24), rank=2, flip_rate=FlipRatePrior(value=0.1))
    >>> halves = {"usage": jnp.array([[0x3F], [0xFC0]], jnp.uint32), "flip_rate": jnp.float32(0.1),
    ...           "basis": jnp.array([[0xFFF], [0xFFF]], jnp.uint32),
    ...           "usage_density": jnp.full(2, 0.5), "basis_density": jnp.full(2, 0.5)}
    >>> data = packed_data(BinaryMatrix(jnp.zeros((24, 24)).at[:12, :12].set(1)))
    >>> move = jax.jit(split_merge(density))
    >>> for key in random.split(random.key(0), 20):
    ...     halves, acceptance = move(key, halves, data)
    >>> bool((halves["usage"] == 0xFFF).any())
    True
    """
    check_moved(density)
    if density.rank < 2:
        raise InputError(f"split_merge needs two factors, but the rank is {density.rank}")
    whole("num_patterns", num_patterns, 0)

    def move(key, position, data, inverse_temperature=1.0):
        keys = random.split(key, 7)
        known = with_shares(density, position)
        is_split = random.bernoulli(keys[0])
        k, l = _draw_pair(keys[1], density, position, data, is_split)  # noqa: E741
        both = zip(*(factor_bits(density, position, f) for f in (k, l)), strict=True)
        now = Pair(*map(jnp.stack, both))
        whole = Pair(*(jnp.where(is_split, v[0], v[0] | v[1]) for v in now))

        weights = flip_rates.weights(position["flip_rate"], inverse_temperature)
        rest = proposals.uncovered(density, position, data, weights, jnp.stack([k, l]))
        beside = _beside(rest, whole, data, l)
        patterns = None
        if num_patterns:
            patterns = proposals.find_patterns(keys[2], known, beside, num_patterns)
        given = Pair(*(_given_of_pair(data, site, k, l) for site in ("usage", "basis")))
        parts = _Parts(known, rest, whole, given)
        launch = parts.launch(keys[3])

        new = proposals.propose(keys[4], known, beside, patterns)
        empty = Pair(*(jnp.where(is_split, v[1], n) for v, n in zip(now, new, strict=True)))
        merged = Pair(*(jnp.stack(v) for v in zip(whole, empty, strict=True)))
        split = jax.tree.map(
            lambda a, b: jnp.where(is_split, a, b), parts.draw(keys[5], launch), now
        )

        at_split, at_merged = (_with_pair(position, k, l, pair) for pair in (split, merged))
        log_ratio = parts.log_target(split) - parts.log_target(merged)
        log_ratio += _log_merge_pair(at_split, k, l)
        log_ratio -= _log_split_pair(density, at_merged, data, l)
        log_ratio += proposals.log_proposal(known, beside, patterns, *empty)
        log_ratio -= parts.log_density(split, launch)
        log_ratio = jnp.where(is_split, log_ratio, -log_ratio)
        proposed = jax.tree.map(lambda a, b: jnp.where(is_split, a, b), at_split, at_merged)
        key_accept, key_density = random.split(keys[6])
        return decide(key_accept, key_density, density, data, position, proposed, log_ratio)

    return move


# ---- which pair --------------------------------------------------------------------------------


def _draw_pair(key, density, position, data, is_split):
    """Draw the factors k and l of a split or of a merge."""
    key_any, key_other = random.split(key)
    superfluous = random.categorical(key_other, log_chances(density, position, data))
    other = random.randint(key_any, (), 0, density.rank - 1)
    other += other >= superfluous
    alike = random.categorical(key_other, _log_pairs(position).ravel())
    k, l = jnp.divmod(alike, density.rank)  # noqa: E741
    return jnp.where(is_split, other, k), jnp.where(is_split, superfluous, l)


def _log_split_pair(density, position, data, l):  # noqa: E741
    return log_chances(density, position, data)[l] - jnp.log(density.rank - 1.0)


def _log_merge_pair(position, k, l):  # noqa: E741
    return _log_pairs(position)[k, l]


def _log_pairs(position):
    """Return the log probability that each ordered pair is merged: (rank, rank).

    Half of it is uniform, half proportional to the square of the larger Jaccard index.
    """

    def jaccard(words):
        each = words[:, None]
        both, either = count_bits(each & words), count_bits(each | words)
        return both / jnp.maximum(either, 1).astype(jnp.result_type(float))

    alike = jnp.maximum(jaccard(position["usage"]), jaccard(position["basis"])) ** 2
    other = 1.0 - jnp.eye(len(alike))
    alike = other * (alike + TINY)
    return jnp.log(0.5 * alike / alike.sum() + 0.5 * other / other.sum())


def _with_pair(position, k, l, pair: Pair):  # noqa: E741
    first, second = zip(*pair, strict=True)
    return with_factor(with_factor(position, k, first), l, second)


# ---- what the two parts are drawn from ---------------------------------------------------------


def _beside(rest: Rest, whole: Pair, data, l) -> Rest:  # noqa: E741
    """Return the rest of factor l where k is the whole."""

    def without(free, lines, partner):
        covered = as_mask(lines)[:, None] & pack_last_axis(partner)
        return Free(*(entries & ~covered for entries in free))

    usage = without(rest.usage, whole.usage, whole.basis)
    basis = without(rest.basis, whole.basis, whole.usage)
    given = {site: proposals.given_log_odds(data, site, l) for site in rest.given}
    return Rest(usage, basis, rest.weights, given)


def _given_of_pair(data, site, k, l):  # noqa: E741
    given = (proposals.given_log_odds(data, site, factor) for factor in (k, l))
    return None if getattr(data, f"{site}_log_odds") is None else jnp.stack(list(given))


class _Parts(NamedTuple):
    """The pairs of factors whose vectors join to the whole."""

    density: BooleanDensity
    rest: Rest
    whole: Pair
    given: Pair

    def launch(self, key):
        """Return the log probabilities of the rows in the last round: all that is kept of L."""
        key_kind, key_start, key_rounds = random.split(key, 3)

        def one_round(basis, key):
            pair = self._draw(key, self._log_states("usage", basis))
            return pair.basis, None

        start = self._start(key_kind, key_start)
        basis, _ = lax.scan(one_round, start, random.split(key_rounds, ROUNDS))
        return self._log_states("usage", basis)

    def _start(self, key_kind, key):
        """Draw the columns of each part: by the ones of a row, all in both, or halves."""
        key_row, key_half = random.split(key)
        rows = self.whole.usage
        row = jnp.argmax(jnp.where(rows, random.uniform(key_row, rows.shape), -1.0))
        size = self.density.shape[1]
        of_row = unpack_last_axis(self.rest.usage.ones[row], size)
        half = random.bernoulli(key_half, shape=(size,))
        kind = random.randint(key_kind, (), 0, 3)
        first = jnp.select([kind == 0, kind == 1], [of_row, jnp.ones(size, bool)], half)
        second = ~first | (kind == 1)
        return jnp.stack([first, second]) & self.whole.basis

    def _log_states(self, site, partner):
        """Return log probabilities of the first part, the second, both: (3, lines)."""
        prior, given = getattr(self.density, site), getattr(self.given, site)
        words = pack_last_axis(jnp.stack([partner[0], partner[1], partner[0] | partner[1]]))
        log_odds = gains(getattr(self.rest, site), words, self.rest.weights)
        lines = getattr(self.whole, site)
        common = proposals.guess(prior, None, jnp.zeros(lines.shape), jnp.sum(lines, dtype=float))
        odds = jnp.broadcast_to(common, (2, *common.shape))
        odds = odds if given is None else jnp.where(jnp.isnan(given), odds, given)
        one, zero = log_sigmoid(odds), log_sigmoid(-odds)
        states = jnp.stack([one[0] + zero[1], zero[0] + one[1], one[0] + one[1]])
        return log_softmax(log_odds + states, axis=0)

    def _draw(self, key, log_usage) -> Pair:
        key_usage, key_basis = random.split(key)
        usage = _draw_states(key_usage, log_usage, self.whole.usage)
        log_basis = self._log_states("basis", usage)
        return Pair(usage, _draw_states(key_basis, log_basis, self.whole.basis))

    def draw(self, key, log_usage) -> Pair:
        """Draw the last round, and name the parts at random."""
        key_round, key_name = random.split(key)
        swap = random.bernoulli(key_name)
        return Pair(*(jnp.where(swap, v[::-1], v) for v in self._draw(key_round, log_usage)))

    def log_density(self, pair: Pair, log_usage):
        """Return the log density of `draw`."""

        def one_way(pair):
            log_basis = self._log_states("basis", pair.usage)
            return _log_states_of(log_usage, pair.usage) + _log_states_of(log_basis, pair.basis)

        ways = (one_way(pair), one_way(Pair(pair.usage[::-1], pair.basis[::-1])))
        return jnp.logaddexp(*ways) - jnp.log(2.0)

    def log_target(self, pair: Pair):
        """Return the log joint of a pair's bits given the rest, up to a constant."""
        words = pack_last_axis(jnp.stack([*pair.basis, pair.basis[0] | pair.basis[1]]))
        first, second, both = gains(self.rest.usage, words, self.rest.weights)
        z = pair.usage
        gain = jnp.select([z[0] & z[1], z[0], z[1]], [both, first, second], 0.0)
        total = jnp.sum(gain)
        for site in ("usage", "basis"):
            prior, given = getattr(self.density, site), getattr(self.given, site)
            for part, bits in enumerate(getattr(pair, site)):
                own = None if given is None else given[part]
                total += log_marginal(prior, own, bits)
        return total


def _draw_states(key, log_states, lines):
    """Draw which part every line of the whole belongs to: (2, lines) bool."""
    noise = random.gumbel(key, log_states.shape, log_states.dtype)
    state = jnp.argmax(log_states + noise, axis=0)
    return jnp.stack([state != 1, state != 0]) & lines


def _log_states_of(log_states, pair):
    """Return the log probability of these lines."""
    first, second, both = log_states
    chosen = jnp.select([pair[0] & pair[1], pair[0], pair[1]], [both, first, second], 0.0)
    return jnp.sum(chosen)
