"""The modes that draws are in: groups of draws with the same factors, and their weights.

Two groups have the same factors if every factor's tile has, after matching, a cosine similarity of
at least 0.8, as a factor that is found has in each chain and all others (`diagnostics.agreement`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform
from scipy.special import softmax

from bmfjax.data.blocks import blocks, spaced
from bmfjax.diagnostics import split_rhat, stacking_weights
from bmfjax.posterior.packed import PackedDraws, subset
from bmfjax.posterior.scores import observed_sample, scored
from bmfjax.posterior.trust import WholeTable

#: Likeness from which on two tiles are the same factor.
SAME = 0.8
#: Draws of a chain, and lines of either factor matrix, that are compared at most.
MAX_DRAWS, MOST_COMPARED = 100, 500
#: A chain is cut into at most so many segments of at least so many draws, where a split starts.
SEGMENTS, LEAST_SEGMENT, MAX_STEPS = 10, 5, 20
#: How far sums of cosines are from exact, at most.
ROUNDING = 1e-4
#: Multiplications up to which OpenBLAS starts no threads, and columns of a product at once.
UNTHREADED, COLUMNS = 2**18, 64
#: Observed entries by which chains are stacked, at most.
MAX_STACKED = 2000
#: Smaller shares of the draws are no mode, but on the way between two.
LEAST_SHARE = 0.05
EVIDENCE, VISITS, STACKING, ALONE = "evidence", "visits", "stacking, approximate", "one mode"


# ---- factors of several solutions ----------------------------------------------------------------


class Solutions(NamedTuple):
    """Factor matrices of several solutions, each (solution, lines, rank)."""

    usage: np.ndarray
    basis: np.ndarray

    def some(self, chosen) -> Solutions:
        """Return some of them."""
        return Solutions(self.usage[chosen], self.basis[chosen])

    def reordered(self, orders) -> Solutions:
        """Return them with their factors permuted by `orders` (solution, rank)."""
        return Solutions(*(np.take_along_axis(f, np.asarray(orders)[:, None], -1) for f in self))

    def mean(self, weights) -> Solutions:
        """Return their weighted mean, as one solution."""
        return Solutions(*(np.average(f, axis=0, weights=weights)[None] for f in self))


def tile_cosines(one: Solutions, other: Solutions) -> np.ndarray:
    """Return the cosine of any two tiles: (solution, rank, solution of the other, rank).

    An empty tile is unlike any other (0) and like another empty one (1).
    """
    found, empty = 1.0, []
    for f, g in zip(one, other, strict=True):
        units = []
        for factors in (f, g):
            lines_last = np.moveaxis(factors, -1, -2).reshape(-1, factors.shape[1])
            norm = np.linalg.norm(lines_last, axis=1, keepdims=True)
            units.append(lines_last / np.maximum(norm, 1e-30))
            empty.append(norm[:, 0] == 0)
        found = found * _products(*units)
    both = np.logical_and.outer(empty[0] | empty[2], empty[1] | empty[3])
    found = np.where(both, 1.0, found)
    return found.reshape(len(one.usage), one.usage.shape[2], len(other.usage), -1)


def _products(one, other) -> np.ndarray:
    """Return `one` @ `other`.T, as products too small for threads, which wait for one another.

    A busy machine spends most of its time on that waiting.
    """
    found = np.empty((len(one), len(other)), np.result_type(one, other))
    for columns in blocks(len(other), 1, most=COLUMNS):
        part = other[columns]
        lines = max(1, UNTHREADED // max(1, part.size))
        whole = len(one) // lines * lines
        stacked = one[:whole].reshape(-1, lines, one.shape[1]) @ part.T
        found[:whole, columns] = stacked.reshape(whole, len(part))
        found[whole:, columns] = one[whole:] @ part.T
    return found


def turned(found: Solutions) -> Solutions:
    """Return solutions of signed features turned round: the rows that lack one, other signs."""
    return Solutions(1.0 - found.usage, -found.basis)


def best_match(cosines) -> tuple[np.ndarray, np.ndarray]:
    """Match factors (rank, rank of another) one to one: which of the other, and how alike."""
    mine, order = linear_sum_assignment(cosines, maximize=True)
    return order, cosines[mine, order]


def _matched(one: Solutions, others: Solutions, held: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Match every solution to the first of `one`: orders and likenesses, (solution, rank) each.

    The first `held` factors are known, and each is itself.
    """
    cosines = tile_cosines(one.some(slice(0, 1)), others)[0]
    if held:
        numbers_of = np.arange(len(cosines))
        known = np.minimum.outer(numbers_of, numbers_of) < held
        cosines = np.where((known & ~np.eye(len(known), dtype=bool))[:, None], -1.0, cosines)
    found = [best_match(cosines[:, s]) for s in range(len(others.usage))]
    return tuple(np.array(part) for part in zip(*found, strict=True))


def without_empty(found: Solutions) -> Solutions:
    """Set factors in [0, 1] to zero whose tiles are empty once they are rounded.

    What is left of a factor that no line uses is noise, which no two chains share.
    """
    used = np.all([f.max(1) >= 0.5 for f in found], axis=0)
    return Solutions(*(f * used[:, None] for f in found))


# ---- which draw is in which mode -----------------------------------------------------------------


def mode_labels(usage, basis, *, in_unit: bool = False) -> np.ndarray:
    """Return the mode of every draw, (chain, draw) int, the one with most draws as 0.

    `usage` (chain, draw, rows, rank) and `basis` (chain, draw, columns, rank) are arrays. Draws
    are split in two, again and again, as long as the means of the two parts disagree about a
    factor; then parts whose means agree are joined, by complete linkage.
    """
    chains, draws = usage.shape[:2]
    number, clean = chains * draws, without_empty if in_unit else Solutions._make
    every = _Draws.of(usage, basis)
    chain = np.repeat(np.arange(chains), draws)
    labels, found, waiting = np.full(number, -1), 0, [np.arange(number)]
    while waiting:
        group = waiting.pop()
        parts = [group[part] for part in _split(every.some(group), chain[group], clean)]
        large = [part for part in parts if len(part) >= LEAST_SHARE * number]
        if len(parts) == 1 or not large:
            labels[group], found = found, found + 1
        else:
            # What is left out here goes to the mode that it is most like.
            waiting += large
    labels = _merged(every, labels, clean)
    left = np.flatnonzero(labels < 0)
    if len(left):
        some = Solutions(*(np.moveaxis(f[:, left], 0, -1) for f in every.factors))
        labels[left] = _likeness(some, _centres(every, labels, clean)).argmax(1)
    order = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(order)[labels].reshape(chains, draws)


@dataclass(frozen=True)
class _Draws:
    """Draws that are compared with their means: usage and basis are (rank, draw, lines) float32.

    `names` (draw,) says which of all draws they are. `orders` keeps, by the name of a draw, which
    factors of any draw are its factors, (all draws, rank), -1 where they were not matched yet.
    """

    factors: tuple[np.ndarray, np.ndarray]
    norms: tuple[np.ndarray, np.ndarray]
    names: np.ndarray
    orders: defaultdict[int, np.ndarray]

    @classmethod
    def of(cls, usage, basis) -> _Draws:
        """Return all draws of (chain, draw, lines, rank)."""
        flat = (np.moveaxis(f.reshape(-1, *f.shape[2:]), -1, 0) for f in (usage, basis))
        factors = tuple(np.ascontiguousarray(f, np.float32) for f in flat)
        rank, number = factors[0].shape[:2]
        orders = defaultdict(lambda: np.full((number, rank), -1))
        return cls(
            factors, tuple(np.linalg.norm(f, axis=2) for f in factors), np.arange(number), orders
        )

    def some(self, chosen) -> _Draws:
        """Return some of them."""
        # `take` keeps the order in memory, which indexing may not.
        factors, norms = (
            tuple(f.take(chosen, 1) for f in part) for part in (self.factors, self.norms)
        )
        return _Draws(factors, norms, self.names[chosen], self.orders)

    def cosines(self, centres: Solutions) -> np.ndarray:
        """Return `tile_cosines` of others and the draws: (centre, rank, rank, draw)."""
        found, empty = np.float32(1.0), []
        for own, norm, centre in zip(self.factors, self.norms, centres, strict=True):
            lines_last = np.moveaxis(centre, -1, -2).reshape(-1, centre.shape[1])
            size = np.linalg.norm(lines_last, axis=1, keepdims=True)
            units = (lines_last / np.maximum(size, 1e-30)).astype(np.float32)
            found = found * _products(own.reshape(-1, own.shape[2]), units)
            found /= np.maximum(norm.reshape(-1, 1), 1e-30)
            empty += [size[:, 0] == 0, norm == 0]
        rank, number = empty[1].shape
        found = np.ascontiguousarray(found.T).reshape(-1, rank, rank, number)
        both = (empty[0] | empty[2]).reshape(-1, rank, 1, 1), empty[1] | empty[3]
        return np.where(both[0] & both[1], np.float32(1.0), found) if both[0].any() else found

    def total(self, members, first: int) -> list[np.ndarray]:
        """Return the sums of members, (rank, lines), their factors matched to those of `first`."""
        orders = self._orders(members, first)
        return [f[orders, members].sum(1, dtype=float) for f in self.factors]

    def _orders(self, members, first: int) -> np.ndarray:
        """Match members to the draw `first`: which of their factors are its, (rank, member)."""
        known, names = self.orders[int(self.names[first])], self.names[members]
        new = members[known[names, 0] < 0]
        if len(new):
            one = Solutions(*(f[:, first].T[None] for f in self.factors))
            known[self.names[new]] = _best_orders(self.some(new).cosines(one)[0])
        return known[names].T


def _best_orders(cosines) -> np.ndarray:
    """Match factors to those of each of several draws, (rank, rank, draw): orders (draw, rank).

    Where the most alike of every factor are different ones, no other match is as good.
    """
    orders = cosines.argmax(1).T
    doubtful = np.flatnonzero((np.sort(orders, 1) != np.arange(orders.shape[1])).any(1))
    for draw, one in zip(doubtful, _one_by_one(cosines[..., doubtful]), strict=True):
        orders[draw] = best_match(one)[0]
    return orders


def _one_by_one(cosines) -> np.ndarray:
    """Put the last axis first, in memory as well, as the numbers that assignments are found of."""
    return np.ascontiguousarray(np.moveaxis(cosines, -1, 0), float)


def _split(some: _Draws, chain, clean) -> list[np.ndarray]:
    """Split draws in two by k-means, or return them whole if the parts' means agree.

    It starts at the two segments of chains that are least alike: where chains move between modes
    a segment may be a mixture, but the means of the parts become pure.
    """
    whole, pieces, leads = [np.arange(len(chain))], [], []
    for c in np.unique(chain):
        own = np.flatnonzero(chain == c)
        pieces += np.array_split(own, max(1, min(SEGMENTS, len(own) // LEAST_SEGMENT)))
        leads += [len(leads)] * (len(pieces) - len(leads))
    if len(pieces) < 2:
        return whole
    means = ([f[:, piece].mean(1).T for piece in pieces] for f in some.factors)
    means = clean(Solutions(*map(np.stack, means)))
    # A first guess at how factors match: all of a chain have the order of its first segment.
    chosen, which = np.unique(leads, return_inverse=True)
    guess = _matched(means, means.some(chosen))[0][which]
    means = means.reordered(guess)
    centres = means.some(_least_alike(means))
    orders = np.empty((2, len(some.factors[0]), len(chain)), int)
    for piece, order in zip(pieces, guess, strict=True):
        orders[:, :, piece] = order[:, None]
    sides, firsts, sums = None, [-1, -1], [None, None]
    for _ in range(MAX_STEPS):
        before, sides = sides, _sides(some.cosines(centres), orders)
        if not 0 < sides.sum() < len(sides):
            return whole
        for m in (0, 1):
            inside = sides == m
            first = inside.argmax()
            if first != firsts[m]:
                sums[m], firsts[m] = some.total(np.flatnonzero(inside), first), first
                # The centre has the order of that draw from here on.
                orders[m] = orders[m][np.argsort(orders[m][:, first])]
                continue
            was = before == m
            moved = map(np.flatnonzero, (inside > was, was > inside))
            come, gone = (some.total(members, first) for members in moved)
            sums[m] = [f + p - q for f, p, q in zip(sums[m], come, gone, strict=True)]
        centres = _mean_of(sums, np.bincount(sides), clean)
        if np.array_equal(before, sides):
            break
    if _matched(centres, centres.some([1]))[1].min() >= SAME:
        return whole
    return [np.flatnonzero(sides == m) for m in (0, 1)]


def _least_alike(means: Solutions) -> list[int]:
    """Return which two of several solutions are least alike, the sum over matched factors.

    As they are ordered bounds that from below, so that not all need to be matched.
    """
    pairs = np.stack(np.triu_indices(len(means.usage), 1))
    cosines = tile_cosines(means, means).transpose(1, 3, 0, 2)[:, :, *pairs]
    value, most = np.trace(cosines), _at_most(cosines)
    doubtful = np.flatnonzero(value <= most.min())
    value[:] = np.inf
    for pair, one in zip(doubtful, _one_by_one(cosines[..., doubtful]), strict=True):
        value[pair] = best_match(one)[1].sum()
    return pairs[:, value.argmin()].tolist()


def _sides(cosines, orders) -> np.ndarray:
    """Return which of two centres each draw is more like, its factors matched: (draw,) 0 or 1.

    `cosines` is (centre, rank, rank, draw). `orders` (centre, rank, draw) are matches that may not
    be the best: they bound from below how alike the two are. Only where the bounds do not tell,
    the best match is found; it is kept in `orders`.
    """
    value = np.take_along_axis(cosines, orders[:, :, None], 2)[:, :, 0].sum(1)
    most = np.minimum(cosines.max(1).sum(1), cosines.max(2).sum(1)) + np.float32(ROUNDING)
    doubtful = np.flatnonzero((value <= most[::-1]).all(0))
    left = cosines[..., doubtful]
    for of_centre, bound in zip(left, most, strict=True):
        bound[doubtful] = np.minimum(bound[doubtful], _at_most(of_centre))
    still = (value[:, doubtful] <= most[::-1, doubtful]).all(0)
    doubtful, left = doubtful[still], left[..., still]
    for draw, both in zip(doubtful, _one_by_one(left), strict=True):
        likely = int(value[0, draw] < value[1, draw])
        for m in (likely, 1 - likely):
            order, alike = best_match(both[m])
            orders[m, :, draw], value[m, draw] = order, alike.sum()
            if value[m, draw] > most[1 - m, draw]:
                break
    return value.argmax(0)


def _at_most(cosines, softness=0.1, steps=4) -> np.ndarray:
    r"""Bound the sum over matched factors from above: (rank, rank, draw) to (draw,).

    With any price :math:`v_i` of a factor, no match has more than
    :math:`\sum_i v_i + \sum_j \max_i (c_{ij} - v_i)`. Prices are of a few steps of Sinkhorn's
    algorithm (Cuturi, 2013), which make it nearly the largest sum.
    """
    near = np.exp((cosines - 1) / np.float32(softness)) + np.float32(1e-12)
    columns = np.ones_like(cosines[0])
    for _ in range(steps):
        rows = 1 / np.einsum("ijd,jd->id", near, columns)
        columns = 1 / np.einsum("ijd,id->jd", near, rows)
    price = np.float32(-softness) * np.log(rows)
    other = (cosines - price[:, None]).max(0)
    # The prices of one side follow from the others.
    price = np.minimum(price, (cosines - other).max(1))
    return price.sum(0) + other.sum(0) + np.float32(ROUNDING)


def _mean_of(sums, numbers, clean) -> Solutions:
    """Return means of groups, of the sums of their usage and basis, and the number of each."""
    means = [[f.T / number for f in parts] for parts, number in zip(sums, numbers, strict=True)]
    return clean(Solutions(*map(np.stack, zip(*means, strict=True))))


def _clustered(found: Solutions) -> np.ndarray:
    """Group solutions by complete linkage, so that all factors of any two of a group agree."""
    number = len(found.usage)
    if number == 1:
        return np.zeros(1, int)
    cosines, distance = tile_cosines(found, found), np.zeros((number, number))
    for a in range(number):
        for b in range(a):
            distance[a, b] = distance[b, a] = 1.0 - best_match(cosines[a, :, b])[1].min()
    tree = linkage(squareform(np.maximum(distance, 0.0)), "complete")
    return fcluster(tree, 1.0 - SAME + 1e-9, "distance") - 1


def _centres(every: _Draws, labels, clean) -> Solutions:
    """Return the mean of every group, its members matched to the first of them; -1 is no group."""
    groups = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return _mean_of([every.total(g, g[0]) for g in groups], map(len, groups), clean)


def _merged(every: _Draws, labels, clean) -> np.ndarray:
    """Merge groups whose means agree, until no two do; -1 stays."""
    while labels.max() > 0:
        groups = _clustered(_centres(every, labels, clean))
        if groups.max() == labels.max():
            break
        labels = np.where(labels < 0, -1, groups[labels])
    return labels


def _likeness(draws: Solutions, centres: Solutions) -> np.ndarray:
    """Return how alike each draw and each centre are, summed over factors: (draw, centre)."""
    cosines = tile_cosines(draws, centres)
    return np.array(
        [[best_match(one[:, m])[1].sum() for m in range(len(centres.usage))] for one in cosines]
    )


# ---- the modes of a fit --------------------------------------------------------------------------


@dataclass(frozen=True)
class Mode:
    """One mode of a fit.

    Attributes
    ----------
    weight : float
        Its share of the posterior; ``Modes.weighted_by`` says by which rule.
    chains : dict of int to int
        Kept draws of each chain that is in it, chains counted from 0.
    figures : dict of str to float
        Means over its draws: `log_joint`, `errors`, `flip_rate`, ..., as far as the fit has them.
    usage : (rows, rank) float64
        Means over its draws, factors matched to those of the fit and of the other modes.
    basis : (columns, rank) float64
    likeness : (rank,) float64
        Cosine similarity of each factor's tile to that of the first mode.
    """

    weight: float
    chains: Mapping[int, int]
    figures: Mapping[str, float]
    usage: np.ndarray
    basis: np.ndarray
    likeness: np.ndarray

    @property
    def draws(self) -> int:
        """Number of kept draws in it."""
        return sum(self.chains.values())


@dataclass(frozen=True, repr=False)
class Modes(Sequence):
    """The modes of a fit, the one with the largest weight first; a sequence of `Mode`.

    Attributes
    ----------
    weighted_by : str
        "evidence": by the evidence of independent runs of a sampler that estimates it. "visits":
        by the draws, where chains move between the modes and agree on how often, or there is one
        chain. "stacking, approximate": by the draws of each chain, times its weight in the mixture
        of chains that predicts left-out entries best (Yao, Vehtari, Gelman 2022); these are not
        posterior probabilities. "one mode": there is nothing to weigh.
    common : (rank,) bool
        Which factors all modes have.
    labels : (chain, draw) int
        The mode of each kept draw.
    permutation : (mode, chain, rank) int
        Factor k of a mode is factor ``permutation[mode, chain, k]`` of the draws of a chain.
    doubtful : float
        With stacking, the share of scores that the draws say too little of; else 0.
    remedy : str
        What to try next.
    differences : pandas.DataFrame or None
        Where the chains of a single mode do not agree: a line for each row and column, by `side`
        and `name`, in whose entries of the factors they differ (R-hat above 1.05); `entries`, in
        how many of them, and `stuck`, how many of these never change within a chain; those with
        most come first. None where the chains agree, and where there are several modes.
    """

    modes: tuple[Mode, ...]
    weighted_by: str
    common: np.ndarray
    labels: np.ndarray
    permutation: np.ndarray
    doubtful: float = 0.0
    remedy: str = ""
    differences: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.modes)

    def __getitem__(self, at):
        return self.modes[at]

    def __iter__(self) -> Iterator[Mode]:
        return iter(self.modes)

    @property
    def weights(self) -> np.ndarray:
        """Weight of every mode, (mode,) float64; they sum to 1."""
        return np.array([mode.weight for mode in self.modes])

    def rectangle(self, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return chains (chain,) and kept draws of each (chain, draw) that are in a mode.

        There are as many draws of each chain, evenly spaced, so that most draws are left in all.
        """
        inside = self.labels == mode
        counts = inside.sum(1)
        largest = np.argsort(-counts, kind="stable")
        number = 1 + int(np.argmax(counts[largest] * np.arange(1, len(counts) + 1)))
        chains = np.sort(largest[:number])
        least = counts[chains].min()
        each = (np.flatnonzero(inside[c]) for c in chains)
        return chains, np.stack([at[spaced(len(at), least)] for at in each])

    @property
    def table(self) -> pd.DataFrame:
        """One row a mode: its weight, draws, chains, mean figures, and the factors that differ.

        Chains and factors are numbered from 1; `differs` lists factors that are not alike in the
        first mode. Printed, it has all columns.
        """
        rows = [
            {
                "mode": number,
                "weight": mode.weight,
                "draws": mode.draws,
                "chains": ", ".join(str(c + 1) for c in mode.chains),
                **mode.figures,
                "differs": numbers_text(mode.likeness < SAME),
            }
            for number, mode in enumerate(self.modes, 1)
        ]
        return WholeTable(pd.DataFrame(rows).set_index("mode"))

    @property
    def shared(self) -> str:
        """Which factors the modes share; in a single mode, where the chains differ."""
        if len(self.modes) == 1:
            same = "All draws have the same factors: there is one mode."
            return same if self.differences is None else f"{same} {_differing(self.differences)}"
        number = int(self.common.sum())
        if number == 0:
            return "No factor is common to all modes."
        if number == 1:
            return f"Factor {numbers_text(self.common)} is common to all modes."
        return f"Factors {numbers_text(self.common)} are common to all modes."

    @property
    def sentence(self) -> str:
        """What the modes share, and what to do next."""
        following = f" Next, {self.remedy}." if self.remedy else ""
        if len(self.modes) == 1:
            return f"{self.shared}{following}"
        return f"{self.shared} fit.restricted(0) is the fit of the first mode alone.{following}"

    def __repr__(self) -> str:
        if len(self.modes) == 1:
            return self.sentence
        heading = f"{len(self.modes)} modes, weights by {self.weighted_by}"
        table = self.table.to_string(float_format=lambda x: f"{x:.4g}")
        return f"{heading}\n{table}\n{self.sentence}"


def numbers_text(chosen) -> str:
    """Return the numbers of chosen factors, from 1: "1, 3"."""
    return ", ".join(str(k + 1) for k in np.flatnonzero(chosen))


# ---- where the chains of one mode differ ---------------------------------------------------------


def differences_of(fit, good_rhat: float) -> pd.DataFrame:
    """Count the entries of the factors in which chains differ, by row and by column.

    They have an R-hat above `good_rhat`; see `Modes.differences`.
    """
    parts = []
    for side, names, draws in (
        ("row", fit.data.row_names, fit.usage_draws),
        ("column", fit.data.column_names, fit.basis_draws),
    ):
        rhat = entry_rhat(draws)
        entries, stuck = (rhat > good_rhat).sum(1), np.isinf(rhat).sum(1)
        lines = np.flatnonzero(entries)
        names = np.array(names, object)[lines]
        part = {"side": side, "name": names, "entries": entries[lines], "stuck": stuck[lines]}
        parts.append(pd.DataFrame(part))
    found = pd.concat(parts, ignore_index=True)
    return found.sort_values(
        ["stuck", "entries"], ascending=False, kind="stable", ignore_index=True
    )


def entry_rhat(draws) -> np.ndarray:
    r"""Return R-hat of every entry of a factor matrix, (lines, rank), of means and variances alone.

    With the mean :math:`m_c` and the variance :math:`v_c` of n draws of each chain it is
    :math:`\sqrt{(n-1)/n + \mathrm{var}(m_c) / \mathrm{mean}(v_c)}` (Gelman, Rubin 1992): infinite
    where chains differ and none of them ever changes, NaN where no draw differs from another.
    """
    chains, number = draws.shape[:2]
    if isinstance(draws, PackedDraws):
        means = draws.mean(1)
        variances = means * (1 - means) * number / max(number - 1, 1)
    else:  # a chain at a time, as memory goes
        means = np.stack([draws[c].mean(0, dtype=float) for c in range(chains)])
        variances = np.stack([draws[c].var(0, dtype=float, ddof=1) for c in range(chains)])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = means.var(0, ddof=1) / variances.mean(0)
    return np.sqrt((number - 1) / number + ratio)


def _differing(differences: pd.DataFrame, most: int = 3) -> str:
    """Say in how many entries of the factors chains differ, and in which lines most."""
    entries, stuck = int(differences["entries"].sum()), int(differences["stuck"].sum())
    if not entries:
        return "Yet the chains do not agree."
    what = f"{entries:,} entries" if entries > 1 else "1 entry"
    text = f"Yet the chains differ in {what} of these factors"
    counted = "stuck" if stuck else "entries"
    if stuck == entries:
        text += f", which never change{'s' * (stuck == 1)} within a chain"
    elif stuck:
        text += f", {stuck:,} of which never change{'s' * (stuck == 1)} within a chain"
    said = []
    for side in ("row", "column"):
        some = differences[(differences["side"] == side) & (differences[counted] > 0)]
        if len(some):
            named = (f"{line.name} ({getattr(line, counted)})" for line in _first(some, most))
            more = f" and {len(some) - most:,} more" * (len(some) > most)
            said.append(f"{side}{'s' * (len(some) > 1)} {', '.join(named)}{more}")
    return f"{text}: in {' and in '.join(said)}."


def _first(table, number):
    """Return the first lines of a table, as named tuples."""
    return table.head(number).itertuples(index=False)


# ---- modes of a fit ------------------------------------------------------------------------------


def modes_of(fit, good_rhat: float, remedy: str = "") -> Modes:
    """Group the kept draws of a fit by their factors, and weigh the groups.

    Draws count as visits where R-hat of being in each mode is at most `good_rhat`.
    """
    in_unit = fit.binary is not None
    kept = fit.usage_draws.shape[1]
    some = spaced(kept, MAX_DRAWS)
    few = (subset(f, some, _most_used(f)) for f in (fit.usage_draws, fit.basis_draws))
    labels = mode_labels(*few, in_unit=in_unit)
    # A draw that was not compared is in the mode of the nearest one that was.
    nearest = np.abs(np.arange(kept)[:, None] - some).argmin(1)
    labels = labels[:, nearest]
    weights, rule, doubtful = _weights(fit, labels, good_rhat)
    order = np.argsort(-weights, kind="stable")
    labels, weights = np.argsort(order)[labels], weights[order]
    found, permutation = _mode_factors(fit, labels, len(weights))
    clean = without_empty(found) if in_unit else found
    alike = tile_cosines(clean.some(slice(0, 1)), clean)[0].diagonal(axis1=0, axis2=2)
    alike = alike if len(weights) > 1 else np.ones((1, fit.rank))
    modes = tuple(
        Mode(
            weight=float(weights[m]),
            chains=dict(_counts(labels == m)),
            figures=_figures(fit, labels == m),
            usage=found.usage[m],
            basis=found.basis[m],
            likeness=alike[m],
        )
        for m in range(len(weights))
    )
    common = (alike >= SAME).all(0)
    disagree = len(labels) > 1 and fit.figures.get("rhat") > good_rhat
    where = differences_of(fit, good_rhat) if disagree and len(weights) == 1 else None
    return Modes(modes, rule, common, labels, permutation, doubtful, remedy, where)


def _most_used(draws) -> np.ndarray:
    """Return the lines in which the factors of a draw of each chain are largest, in order."""
    if draws.shape[2] <= MOST_COMPARED:
        return np.arange(draws.shape[2])
    size = sum(
        np.asarray(draws[c, draws.shape[1] - 1], float).__abs__().sum(1)
        for c in range(draws.shape[0])
    )
    return np.sort(np.argsort(-size, kind="stable")[:MOST_COMPARED])


def _counts(inside):
    """Yield chain and number of draws of the chains that are in a mode, (chain, draw) bool."""
    for chain, number in enumerate(inside.sum(1)):
        if number:
            yield chain, int(number)


def _weights(fit, labels, good_rhat) -> tuple[np.ndarray, str, float]:
    """Return the weights of the modes, by what rule, and the share of doubtful scores."""
    number = labels.max() + 1
    if number == 1:
        return np.ones(1), ALONE, 0.0
    inside = np.stack([labels == m for m in range(number)], -1)
    share = inside.mean(1)
    runs = fit.figures.log_evidence_runs
    if runs is not None and len(runs) == len(labels) and np.isfinite(runs).all():
        return softmax(np.asarray(runs, float)) @ share, EVIDENCE, 0.0
    # One that no chain leaves has an infinite R-hat.
    if len(labels) == 1 or np.all(split_rhat(inside.astype(float)) <= good_rhat):
        return share.mean(0), VISITS, 0.0
    scores = scored(fit, observed_sample(fit.data, MAX_STACKED))
    doubtful = np.mean([found.doubtful for found in scores])
    weights = stacking_weights([found.log_score for found in scores]) @ share
    return weights, STACKING, float(doubtful)


def _mode_factors(fit, labels, number) -> tuple[Solutions, np.ndarray]:
    """Return the mean factors of every mode, matched, and how those of its chains are ordered."""
    chains, rank = len(labels), fit.rank
    permutation = np.tile(np.arange(rank), (number, chains, 1))
    first, means = Solutions(fit._usage[None], fit._basis[None]), []
    for m in range(number):
        counts = dict(_counts(labels == m))
        parts = [_mean(fit, c, np.flatnonzero(labels[c] == m)) for c in counts]
        parts = Solutions(*map(np.stack, zip(*parts, strict=True)))
        # The chain with most draws leads: it is matched to the first mode, or to the fit.
        most = int(np.argmax(list(counts.values())))
        lead = parts.some(slice(most, most + 1))
        lead = lead.reordered(_matched(first, lead, fit._num_anchors)[0])
        orders = _matched(lead, parts, fit._num_anchors)[0]
        permutation[m, list(counts)] = orders
        means.append(parts.reordered(orders).mean(list(counts.values())))
        first = means[0]
    return Solutions(*map(np.concatenate, zip(*means, strict=True))), permutation


def _mean(fit, chain, which):
    """Return the mean usage and basis of some draws of a chain."""
    return tuple(
        f.some(which, slice(chain, chain + 1)).mean((0, 1))
        if isinstance(f, PackedDraws)
        else f[chain, which].mean(0, dtype=float)
        for f in (fit.usage_draws, fit.basis_draws)
    )


def _figures(fit, inside) -> dict[str, float]:
    """Return means over the draws of a mode, (chain, draw) bool, as far as the fit has them."""
    found = {
        name: float(fit._kept_trace(name)[inside].mean())
        for name in ("log_joint", "errors", "residual")
        if name in fit.trace
    }
    rates = fit.other_draws.get("flip_rate")
    if rates is not None:
        names = ["flip_rate"] if rates.ndim == 2 else ["flip_rate_zeros", "flip_rate_ones"]
        means = rates[inside].reshape(int(inside.sum()), -1).mean(0, dtype=float)
        found |= dict(zip(names, map(float, means), strict=True))
    if "precision" in fit.other_draws:
        found["precision"] = float(fit.other_draws["precision"][inside].mean(dtype=float))
    return found
