"""Coordinate ascent of a linear objective in the Boolean product of two factor matrices.

The objective is ``sum_ij gain_ij (A o B)_ij`` for a given matrix of gains, with A o B the Boolean
product. For one factor with all others fixed only the entries that no other factor covers count,
and the entries of its usage column then do not depend on each other: the whole column can be set
to its best values at once, and so can the basis column.
"""

import numpy as np

from bmfjax.data.bits import product_on_host


def objective(gain, usage, basis):
    """Return the summed gain of the entries that the Boolean product covers."""
    covered = product_on_host(usage, basis)
    return float(np.sum(gain, where=covered, dtype=float))


def coverage(usage, basis):
    """Count the factors that cover each entry: (rows, columns) int32.

    Examples
    --------
    >>> coverage(np.array([[True, True]]), np.array([[True, True], [False, True]]))
    array([[2, 1]], dtype=int32)
    """
    # Single precision counts exactly up to 2**24 factors, and its product runs in BLAS.
    return (usage.astype(np.float32) @ basis.astype(np.float32).T).astype(np.int32)


def ascend(gain, usage, basis, max_sweeps):
    """Set column after column to its best values until a sweep changes nothing.

    Returns new Boolean factors whose objective is not below that of the start. A factor that adds
    nothing, such as a copy of another, is left empty in both.
    """
    usage, basis = usage.copy(), basis.copy()
    covers = coverage(usage, basis)
    drop_ties = False
    for _ in range(max_sweeps):
        changed = False
        for k in range(usage.shape[1]):
            changed |= _flip_column(gain, covers, usage[:, k], basis[:, k], drop_ties)
            # The transposed views let the same code flip the basis.
            changed |= _flip_column(gain.T, covers.T, basis[:, k], usage[:, k], drop_ties)
        if not changed and drop_ties:
            break
        drop_ties = not changed
    return usage, basis


def _flip_column(gain, covers, mine, partner, drop_ties):
    """Set `mine` to its best values in place, and keep `covers` right; True if anything changed.

    A one on which other factors leave nothing to gain is dropped at once. A one whose gains cancel
    is kept while there is something to improve, because the partner may yet shed the bad half; it
    is dropped in the end, so that of equally good products the one with fewer ones is found.
    """
    columns = np.flatnonzero(partner)
    # With this factor taken out, an entry is uncovered where it is covered by this factor alone.
    alone = covers[:, columns] == mine[:, None]
    gains = np.sum(gain[:, columns], axis=1, where=alone)
    best = gains > 0
    if not drop_ties:
        tied = np.flatnonzero(mine & (gains == 0))
        best[tied] = alone[tied].any(axis=1)
    flipped = np.flatnonzero(best != mine)
    if not len(flipped):
        return False
    covers[np.ix_(flipped, columns)] += np.where(best[flipped], 1, -1)[:, None].astype(covers.dtype)
    mine[:] = best
    return True
