"""What a verdict looks at: entries of the reconstruction, and how far apart the solutions are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from bmfjax.data.blocks import spaced
from bmfjax.diagnostics import (
    Coverage,
    coverage,
    ess_bulk,
    nested_rhat,
    pairwise_distances,
    split_rhat,
)
from bmfjax.posterior import products
from bmfjax.posterior.mixture import (
    cell_log_odds,
    probability_of_a_one,
    rhat,
)
from bmfjax.posterior.packed import subset
from bmfjax.posterior.selection import informed, sampled_positions
from bmfjax.verdict.figures import NAN

NUM_ENTRIES = 1000
#: Chains from which on the nested R-hat is reported.
MANY_CHAINS = 16
#: Draws of all chains together that `spread` compares, and columns of the matrix that it looks at.
NUM_DRAWS, MAX_LINES = 100, 500


class Mixing(NamedTuple):
    """How some entries of the reconstruction mixed."""

    rhat: np.ndarray  # (entry,), NaN where nothing moved
    ess: np.ndarray | None  # (entry,) effective draws; None where nothing is drawn
    uncertain: float = NAN  # share of Boolean entries that are neither surely a one nor a zero
    nested: np.ndarray | None = None  # (entry,) nested R-hat, of many chains
    apart: np.ndarray | None = (
        None  # (entry,) of some chains to the others, beyond Monte Carlo error
    )
    error: np.ndarray | None = None  # (entry,) two Monte Carlo standard errors of all chains


#: Entries of which nothing is known, and nothing held against the draws.
UNSEEN = Mixing(np.ones(1), np.full(1, 1e9), apart=np.zeros(1), error=np.zeros(1))
#: Standard errors that a chain is from the others by chance, of a thousand entries.
BY_CHANCE = 3.0


def mixing(
    lines: Mapping, usage, basis, number: int = NUM_ENTRIES, predicted: Callable | None = None,
    chances: bool = False,
) -> Mixing:  # fmt: skip
    """Return R-hat and effective draws of up to `number` entries of products of draws.

    For Boolean factors the entries are half as many with a mean in [0.05, 0.95]: one that is surely
    a one, or a zero, has no R-hat. `lines` holds the `rows` and `columns` that are looked at: those
    without information follow the prior alone, which IASG does not sample. `predicted` returns
    what the entries predict, by which chains are compared, too; `chances` as in
    `mixing_of_entries`.
    """
    share = NAN
    if usage.dtype == bool:
        entries, share = products.uncertain_entries(usage, basis, number // 2, **lines)
    else:
        entries = products.sampled_entries(usage, basis, number, **lines)
    return mixing_of_entries(entries, share, predicted and predicted(entries), chances=chances)


def mixing_of_entries(
    entries, uncertain: float = NAN, predicted=None, *, chances: bool = False
) -> Mixing:
    """Return R-hat and effective draws of entries (chain, draw, entry) of the reconstruction.

    `predicted` are the predictions that follow, such as probabilities where entries are log odds:
    by them chains are compared, too. Where they are `chances` of a one, entries that are surely a
    one or a zero have no R-hat: whether log odds are -10 or -20 nobody can tell.
    """
    if chances:
        unsure = are_unsure(np.mean(predicted, (0, 1), dtype=float))
        found = mixing_of_entries(entries[..., unsure], uncertain)
        placed = {n: _placed(getattr(found, n), unsure) for n in ("rhat", "ess", "nested")}
        return found._replace(**placed, **differences(predicted))
    # Chains of a fit have starts of their own, so that each is a group.
    nested = nested_rhat(entries) if len(entries) >= MANY_CHAINS else None
    found = Mixing(split_rhat(entries), ess_bulk(entries), uncertain, nested)
    return found if predicted is None else found._replace(**differences(predicted))


def are_unsure(mean) -> np.ndarray:
    """Tell which of some probabilities (entry,) are in [0.05, 0.95]; a tenth of them at least is.

    Examples
    --------
    >>> are_unsure(np.array([0.01, 0.5, 0.94, 0.99])).tolist()
    [False, True, True, False]
    """
    far = np.abs(np.asarray(mean) - 0.5)
    return far <= max(0.45, float(np.quantile(far, 0.1))) if far.size else far > 0.0


def _placed(values, where) -> np.ndarray | None:
    """Return values of some entries at their places, NaN at the others."""
    if values is None:
        return None
    found = np.full(len(where), NAN)
    found[where] = values
    return found


def differences(predicted) -> dict[str, np.ndarray]:
    """Return how far chains are `apart` in predictions, and their Monte Carlo `error`, (entry,).

    Any number of chains is compared with all others: those with the lowest means with the rest, so
    that two of four in another mode are as far as they are. The error of a chain is from its own
    draws, so that chains in different modes do not widen it.
    """
    predicted = np.asarray(predicted, np.float64)
    mean, variance = predicted.mean(1), predicted.var(1)
    # What never moves within a chain has no error there.
    size = np.stack([np.nan_to_num(ess_bulk(chain[None]), nan=np.inf) for chain in predicted])
    square, order = variance / np.maximum(size, 1.0), np.argsort(mean, 0)
    below, error_below = (np.cumsum(np.take_along_axis(of, order, 0), 0) for of in (mean, square))
    apart = np.zeros(mean.shape[1])
    for k in range(len(mean) - 1):
        low, rest = k + 1, len(mean) - k - 1
        distance = (below[-1] - below[k]) / rest - below[k] / low
        square_error = (error_below[-1] - error_below[k]) / rest**2 + error_below[k] / low**2
        apart = np.maximum(apart, distance - BY_CHANCE * np.sqrt(square_error))
    return {"apart": apart, "error": 2.0 * np.sqrt(square.sum(0)) / len(predicted)}


def mixing_of_starts(data, approximation) -> Mixing:
    """Return R-hat of the log odds of up to 1,000 entries, of normals and not of draws."""
    moments = cell_log_odds(
        approximation, *sampled_positions(*informed(data).values(), NUM_ENTRIES)
    )
    one = probability_of_a_one(*moments)
    return Mixing(rhat(*moments), None, apart=np.ptp(one, axis=0), error=np.zeros(one.shape[1]))


def spread(draws, num_draws: int = NUM_DRAWS, *, signed: bool = True) -> Coverage:
    """Cover draws of a factor matrix by the largest angle between matched factors, in degrees.

    Up to `num_draws` of `draws` (chain, draw, lines, rank), packed or not, are compared, as many
    of each chain, by up to 500 lines. `signed` is False for real factors whose signs mean nothing.
    """
    chains, kept, lines, rank = draws.shape
    chosen = spaced(kept, max(1, num_draws // chains))
    some = np.asarray(subset(draws, chosen, spaced(lines, MAX_LINES)), float)
    some = some.reshape(-1, some.shape[2], rank)
    return coverage(pairwise_distances(some, metric="angle" if signed else "line"))


def farther_spread(usage, basis) -> Coverage:
    """Return `spread` of the factor matrix whose draws are farther apart.

    Nonnegative solutions may share one of the two.
    """
    return max(spread(usage), spread(basis), key=lambda found: found.largest)
