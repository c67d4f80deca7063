r"""Boolean factors with few wrong entries, by moves that never add one.

With :math:`g_{ij}` 1 at a one, -1 at a zero and 0 where nothing is observed, the number of wrong
entries of a Boolean product is the number of ones minus :math:`\sum_{ij} g_{ij} (A \circ B)_{ij}`.
Four kinds of moves raise this sum or leave it:

* *coordinate*: a whole column of a factor matrix is set to its best values, given all else
  (`bmfjax.diagnostics.flips`);
* *block*: all bits of a line in up to `block` factors are set at once to the best of their
  :math:`2^b` states, for all lines. Columns are first summed by which of the factors hold them, so
  that two matrix products give the sum of every state of every line;
* *swap*: a factor is taken out, and the best tile of what is then uncovered is put in its place;
* *merge*: two factors are taken out, the best tile around their union or intersection is put in
  for both, and the best tile of the rest in the place that is free.

After a swap or a merge the factors that overlap with what is new adapt by block moves, and the
outcome is kept where there are not more wrong entries than before. All sums are of whole numbers
in single precision, so that they are exact for lines of up to 4,194,304 entries.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.checks import positive, seed_number, whole
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.flips import ascend
from bmfjax.diagnostics.reconstruction import check_boolean, check_factors
from bmfjax.optimize.palm import arrays_of

#: Largest block: its states are tabled for every line.
MOST_BLOCK = 12
#: Lines of what is uncovered from which a tile is grown, of either kind, and alternations of it.
SEEDS, ALTERNATIONS = 12, 6
#: Alternations of the block moves after a swap or a merge.
ADAPTATIONS = 3
#: Sweeps of coordinate moves at a time, and the largest share of factors that is perturbed.
SWEEPS, PERTURBED = 20, 0.3


class Polished(NamedTuple):
    """Boolean factors after the moves.

    Attributes
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool
        A factor that adds nothing is empty in both.
    error : int
        Wrong observed entries.
    passes : int
        Passes over all swaps and merges.
    settled : bool
        Whether it ended by itself, and not by `max_time`.
    """

    usage: np.ndarray
    basis: np.ndarray
    error: int
    passes: int
    settled: bool


def polish(
    usage,
    basis,
    data: BinaryMatrix,
    *,
    block: int = 8,
    patience: int = 2,
    perturbations: int = 0,
    max_time: float | None = None,
    seed: int = 0,
) -> Polished:
    """Lower the number of wrong entries of Boolean factors to a local optimum.

    In the end no line of either factor matrix can be changed in any of `block` factors that follow
    each other, or of all where `block` is at least the rank, to lower the number of wrong entries,
    and `patience` passes over swaps and merges have found nothing better. Empty factors are filled,
    so that a start of zeros makes it a factorisation of its own.

    Parameters
    ----------
    usage : array, (rows, rank), bool
        Start, such as ``fit.usage_binary``.
    basis : array, (columns, rank), bool
    data : BinaryMatrix
        Missing entries do not count.
    block : int
        Factors whose bits in a line change at once; from 1 to 12.
    patience : int
        It ends after so many passes over all swaps and merges in a row without a lower number.
    perturbations : int
        Further searches, each from the best factors with some replaced. What is worse is forgotten.
        None where no entry is wrong.
    max_time : float, optional
        Seconds after which no further move is begun.
    seed : int
        Seed of the order of moves and of what tiles are grown from.

    Returns
    -------
    Polished

    Raises
    ------
    InputError
        Factors that are not Boolean or of other shapes than the data, data that are no
        `BinaryMatrix`, or numbers outside their bounds.

    Notes
    -----
    `bmfjax.optimize.best_reconstruction` tries several starts and spends a given time on them.

    It holds about 20 bytes for each entry of the matrix. Where the rank is not far below the number
    of columns, the largest columns as factors of their own are a better start than none.

    Its many small matrix products are slow where the linear algebra of NumPy runs in threads on a
    busy machine; ``OPENBLAS_NUM_THREADS=1`` in the environment prevents that.

    Examples
    --------
    >>> truth = np.kron(np.eye(4, dtype=bool), np.ones((5, 7), bool))
    >>> nothing = np.zeros((20, 4), bool), np.zeros((28, 4), bool)
    >>> found = polish(*nothing, BinaryMatrix(truth))
    >>> found.error, found.settled
    (0, True)
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    ones, counted = arrays_of(data)
    check_boolean(usage, basis)
    check_factors(usage, basis)
    if (len(usage), len(basis)) != data.shape:
        raise InputError(
            f"the factors make a matrix of shape {(len(usage), len(basis))} and the data have "
            f"{data.shape}; give the matrix that was factorised"
        )
    whole("block", block, 1, MOST_BLOCK)
    whole("patience", patience)
    whole("perturbations", perturbations, 0)
    end = np.inf if max_time is None else time.monotonic() + positive("max_time", max_time)
    gain = np.where(ones, np.float32(1), np.float32(-1))
    if counted is not None:
        gain *= counted
    search = _Search(gain, usage, basis, block, np.random.default_rng(seed_number(seed)), end)
    passes = search.run(patience, perturbations)
    search.settle()
    error = int(ones.sum()) - search.value()
    return Polished(search.usage > 0, search.basis > 0, error, passes, not search.over())


class _Search:
    """Factors and how often they cover each entry, in single precision, and moves on them."""

    def __init__(self, gain, usage, basis, block, rng, end):
        self.gain, self.block, self.rng, self.end = gain, block, rng, end
        self.usage, self.basis = usage.astype(np.float32), basis.astype(np.float32)
        self.rank = usage.shape[1]
        self.covers = self.usage @ self.basis.T
        self.ones, self.zeros = gain > 0, gain < 0
        self.most = int(np.count_nonzero(self.ones))

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def value(self) -> int:
        """Return the sum of gains that is covered."""
        covered = self.covers > 0
        return int(np.count_nonzero(covered & self.ones) - np.count_nonzero(covered & self.zeros))

    def run(self, patience: int, perturbations: int) -> int:
        """Search from the start and then from perturbed best factors; return the passes."""
        passes = self.passes(patience)
        best = self.state()
        for _ in range(perturbations):
            reached = self.value()
            if self.over() or self.rank < 2 or reached == self.most:
                break
            self.perturb()
            passes += self.passes(patience)
            if self.value() < reached:
                self.restore(best)
            best = self.state()
        return passes

    def state(self):
        """Return copies of the factors and of what they cover."""
        return self.usage.copy(), self.basis.copy(), self.covers.copy()

    def restore(self, state) -> None:
        """Put the factors back, in place."""
        for mine, kept in zip((self.usage, self.basis, self.covers), state, strict=True):
            mine[:] = kept

    def passes(self, patience: int) -> int:
        """Descend, then swap and merge until nothing more is found; return the passes."""
        passes = idle = 0
        self.descend()
        while idle < patience and not self.over() and self.rank:
            before = self.value()
            for first in self.rng.permutation(self.rank):
                if self.over():
                    break
                self.attempt([first])
                if self.rank > 1:
                    self.attempt([first, self.partner(first)])
            self.descend()
            passes += 1
            idle = 0 if self.value() > before else idle + 1
        return passes

    def perturb(self) -> None:
        """Replace some factors, whatever it costs."""
        few = self.rng.integers(2, max(3, int(PERTURBED * self.rank) + 1))
        factors = self.rng.permutation(self.rank)[:few]
        self.take_out(factors)
        for factor in factors:
            self.put(factor, self.seeds())

    def descend(self) -> None:
        """Take coordinate and block moves until a sweep of both finds nothing."""
        value = -np.inf
        while value < self.value() and not self.over():
            value = self.value()
            self.coordinates()
            order = self.rng.permutation(self.rank)
            for first in range(0, self.rank, self.block):
                if self.over():
                    break
                self.adapt(order[first : first + self.block])

    def coordinates(self) -> None:
        """Set column after column of both factors to its best values."""
        usage, basis = ascend(self.gain, self.usage > 0, self.basis > 0, SWEEPS)
        self.usage[:], self.basis[:] = usage, basis
        self.covers[:] = self.usage @ self.basis.T

    def settle(self) -> None:
        """End where no coordinate and no block move from the very same factors finds anything."""
        improved = True
        while improved:
            self.coordinates()
            value, state, improved = self.value(), self.state(), False
            if self.over():
                return
            for first in range(0, self.rank, self.block):
                for side in ("usage", "basis"):
                    self.lines(range(first, min(first + self.block, self.rank)), side)
                    improved |= self.value() > value
                    if not improved:  # else its changes are kept, and it begins anew
                        self.restore(state)

    def partner(self, first: int) -> int:
        """Return another factor: one that overlaps much, or any."""
        shared = self.overlaps([first])
        shared[first] = -1
        if self.rng.random() < 0.5 or shared.max() <= 0:
            return int((first + self.rng.integers(1, self.rank)) % self.rank)
        weights = np.maximum(shared, 0)
        return int(self.rng.choice(self.rank, p=weights / weights.sum()))

    def overlaps(self, factors) -> np.ndarray:
        """Count, for every factor, the entries that it shares with some, in double precision."""
        shared = (self.usage[:, factors].T @ self.usage) * (self.basis[:, factors].T @ self.basis)
        return shared.sum(axis=0, dtype=float)

    def attempt(self, factors) -> None:
        """Take factors out, put the best tiles in, adapt; undo it where it does worse."""
        before, kept = self.value(), self.state()
        out = self.basis[:, factors].copy()
        self.take_out(factors)
        if len(factors) > 1:
            around = np.stack([out.max(axis=1), out.min(axis=1)], axis=1)
            self.put(factors[1], around)
        self.put(factors[0], self.seeds())
        shared = self.overlaps(factors)
        shared[factors] = np.inf
        self.adapt(np.argsort(-shared, kind="stable")[: max(self.block, len(factors))])
        if self.value() < before:
            self.restore(kept)

    def take_out(self, factors) -> None:
        """Empty some factors."""
        self.covers -= self.usage[:, factors] @ self.basis[:, factors].T
        self.usage[:, factors] = self.basis[:, factors] = 0

    def seeds(self) -> np.ndarray:
        """Return columns to grow a tile from: lines of the ones that are not covered."""
        bare = (self.gain > 0) & (self.covers == 0)
        rows, columns = (np.flatnonzero(bare.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            return np.zeros((len(self.basis), 0), np.float32)
        few = [
            self.rng.choice(some, min(SEEDS, len(some)), replace=False) for some in (rows, columns)
        ]
        by_column = self.free().T @ bare[:, few[1]].astype(np.float32) > 0
        return np.concatenate([bare[few[0]].T, by_column], axis=1).astype(np.float32)

    def free(self) -> np.ndarray:
        """Return the gains that nothing covers."""
        return np.where(self.covers == 0, self.gain, np.float32(0))

    def put(self, factor: int, seeds) -> None:
        """Set an empty factor to the best tile that grows from any of the seeds."""
        if not seeds.shape[1]:
            return
        free = self.free()
        bases = seeds
        for _ in range(ALTERNATIONS):
            usages = (free @ bases > 0).astype(np.float32)
            grown = (free.T @ usages > 0).astype(np.float32)
            if np.array_equal(grown, bases):
                break
            bases = grown
        sums = free @ bases
        best = int(np.argmax(np.maximum(sums, 0).sum(axis=0)))
        self.usage[:, factor], self.basis[:, factor] = sums[:, best] > 0, bases[:, best]
        self.covers += np.outer(self.usage[:, factor], self.basis[:, factor])

    def adapt(self, group) -> None:
        """Take block moves of a group of factors on both sides in turn."""
        value = -np.inf
        for _ in range(ADAPTATIONS):
            for side in ("usage", "basis"):
                for first in range(0, len(group), self.block):
                    self.lines(group[first : first + self.block], side)
            if self.value() <= value:
                break
            value = self.value()

    def lines(self, group, side: str) -> None:
        """Set the bits of some factors in every line to the best of all their states."""
        turned = side == "basis"
        gain, covers = (self.gain.T, self.covers.T) if turned else (self.gain, self.covers)
        mine, partner = (self.basis, self.usage) if turned else (self.usage, self.basis)
        old, held = mine[:, group], partner[:, group]
        held_by, states, bits = _meetings(held)
        if not len(states):
            return
        others = covers - old @ held.T
        sums = np.where(others == 0, gain, np.float32(0)) @ held_by @ states
        # Ties are broken at random, so that plateaus are crossed; sums are whole numbers.
        sums += self.rng.random(sums.shape[1], dtype=np.float32) * np.float32(0.5)
        mine[:, group] = bits[np.argmax(sums, axis=1)]
        covers[:] = others + mine[:, group] @ held.T


def _meetings(held):
    """Return which lines have which set of factors, which states meet each set, and all states.

    `held` (lines, b) are the bits of the lines of the other side. The first array is (lines, sets),
    for the sets that are there and not empty; the second (sets, 2^b); the last (2^b, b).
    """
    count = held.shape[1]
    codes = (held @ (2.0 ** np.arange(count))).astype(int)
    sets = np.unique(codes)
    sets = sets[sets > 0]
    states = np.arange(2**count)
    bits = (states[:, None] >> np.arange(count)) & 1
    held_by = (codes[:, None] == sets).astype(np.float32)
    return held_by, (sets[:, None] & states > 0).astype(np.float32), bits.astype(np.float32)
