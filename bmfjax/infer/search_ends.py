"""What independent searches found, before chains take over the end of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class SearchEnds(NamedTuple):
    """The ends of independent searches for the start of a chain, one of each.

    Attributes
    ----------
    origin : (search,) int
        The search at whose end its chain began; -1 where its draws are of no single one.
    usage : (search, rows, rank) bool
        Memberships.
    basis : (search, columns, rank) float32
        What the factors do to the columns.
    """

    origin: np.ndarray
    usage: np.ndarray
    basis: np.ndarray

    @property
    def number(self) -> int:
        """How many searches there were."""
        return len(self.origin)

    @property
    def own(self) -> np.ndarray:
        """Whether each chain began at the end of its own search, (search,) bool."""
        return self.origin == np.arange(self.number)

    @property
    def ranks(self) -> np.ndarray:
        """Number of factors with rows and columns at each end, (search,) int."""
        return (self.usage.any(1) & (self.basis != 0).any(1)).sum(-1)

    def of_chains(self, chains) -> SearchEnds:
        """Return it with the searches of some chains (int) first.

        Examples
        --------
        >>> usage, basis = np.zeros((3, 4, 1), bool), np.arange(3.0)[:, None, None]
        >>> found = SearchEnds(np.array([0, 2, 2]), usage, basis)
        >>> some = found.of_chains([2, 0])
        >>> some.origin.tolist(), some.basis.ravel().tolist()
        ([0, 1, 0], [2.0, 0.0, 1.0])
        """
        chains = np.asarray(chains, int)
        order = np.concatenate([chains, np.setdiff1d(np.arange(self.number), chains)])
        origin = np.where(self.origin < 0, -1, np.argsort(order)[self.origin])
        return SearchEnds(origin[order], self.usage[order], self.basis[order])

    def arrays(self, start: str = "") -> dict[str, np.ndarray]:
        """Return it as small arrays, whose names have a `start`; `of_arrays` reads them.

        Examples
        --------
        >>> found = SearchEnds(np.array([0]), np.eye(3, 2)[None] > 0, np.ones((1, 4, 2), "f4"))
        >>> again = SearchEnds.of_arrays(found.arrays())
        >>> all(map(np.array_equal, found, again))
        True
        """
        own = {"origin": self.origin, "usage": np.packbits(self.usage, -1), "basis": self.basis}
        return {start + name: value for name, value in own.items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], start: str = "") -> SearchEnds | None:
        """Return what `arrays`, among others, were made of; None where there are none."""
        if f"{start}origin" not in arrays:
            return None
        origin, usage, basis = (arrays[start + name] for name in cls._fields)
        return cls(origin, np.unpackbits(usage, -1, basis.shape[-1]) > 0, basis)
