"""Factors that are rounded to zeros and ones, and the tiles that can be trusted."""

from __future__ import annotations

import functools
import math

import numpy as np
import pandas as pd

from bmfjax.data import InputError, checks
from bmfjax.diagnostics import binarize, threshold, threshold_pairs
from bmfjax.posterior import trust
from bmfjax.posterior.selection import without
from bmfjax.verdict.undrawn import of_draws, warn_undrawn


class RoundedMixin:
    """Factors of zeros and ones, drawn as such or rounded."""

    @of_draws
    def binarize(self, method: str = "map") -> tuple[np.ndarray, np.ndarray]:
        """Boolean factors by one of four rules, all chosen without a known truth.

        Parameters
        ----------
        method : {"map", "expected", "threshold", "pairs"}
            "map": most probable given the matrix, under two flip rates and a density of each
            factor's own, started at every chain's means
            (`bmfjax.diagnostics.most_probable_factors`; what `usage_binary` holds). For variants of
            the Boolean model the rounded means of a chain, or of all, with the lowest expected
            loss. "expected": lowest expected number of wrong entries of the Boolean product, from
            `probability`. "threshold": one threshold for both factors against the observed matrix
            (Gonsior 2019, algorithm 4.1). "pairs": one threshold each (Hess, Morik, Piatkowski
            2017).

        Returns
        -------
        usage : (rows, rank) bool
        basis : (columns, rank) bool
        """
        if method == "map":
            return self._rounded()
        checks.one_of("method", method, ("map", "expected", "threshold", "pairs"))
        if not self._is_small:
            raise InputError(
                f"method {method!r} forms the whole matrix, of {math.prod(self.data.shape):,} "
                "entries; choose 'map'"
            )
        if method == "expected":
            found = binarize(self._usage, self._basis, self.probability())
            return found.usage, found.basis
        ones, observed = np.nan_to_num(self.data.dense()) > 0.5, self.data.observed()
        if method == "threshold":
            tau = threshold(self._usage, self._basis, ones, observed).tau
            return self._usage > tau, self._basis > tau
        best = threshold_pairs(self._usage, self._basis, ones, observed)
        return self._usage > best.tau_usage, self._basis > best.tau_basis

    @property
    def usage_binary(self) -> np.ndarray:
        """The most probable Boolean factors, (rows, rank) bool; see `binarize`."""
        warn_undrawn(self)
        return self._usage_binary

    @property
    def basis_binary(self) -> np.ndarray:
        """The same, (columns, rank) bool."""
        warn_undrawn(self)
        return self._basis_binary

    @property
    def _usage_binary(self) -> np.ndarray:
        return self._rounded()[0]

    @property
    def _basis_binary(self) -> np.ndarray:
        return self._rounded()[1]

    def _rounded(self):
        # What has no data is no member.
        usage = without(self.binary.usage, self.data.empty_rows)
        return usage, without(self.binary.basis, self.data.empty_columns)


class TilesMixin(RoundedMixin):
    """Factors as sets of rows and of columns, and which of them are real."""

    @of_draws
    def tiles(self, fdr: float = 0.05, *, all: bool = False, members: bool = False) -> pd.DataFrame:
        r"""Return the tiles that are kept at a false discovery rate: those that are real.

        For the Boolean model, its variants but "hamming", and the relaxed model. The tile
        :math:`T_k` of factor k is the rectangle of `usage_binary` and `basis_binary`. It is real if
        the matrix without noise has a factor :math:`S_l` with a Jaccard index :math:`J_{kl} = |T_k
        \cap S_l| / |T_k \cup S_l| \ge 1/2`, and the other factors, copies of the tile aside, leave
        more than a tenth of :math:`T_k \cap S_l` to it. No two tiles share a factor. The posterior
        probability of that is the share of the draws of all chains in which it holds:

        .. math:: p_k = \frac{1}{S} \sum_{s=1}^S 1[T_k \text{ is real in draw } s].

        Factors of a draw are matched to tiles by their cells, so that a factor that wanders, or
        that only one chain has, has a low probability. Real factors are cut at one half. Kept are
        the :math:`d` most probable tiles, for the largest :math:`d` with
        :math:`\frac1d \sum_{i \le d} (1 - p_{(i)}) \le` `fdr`: the expected share of false ones
        among them (Müller et al. 2004). An empty factor is never kept.

        The probabilities rest on the model and its prior: there are `rank` factors (with
        ``rank="auto"`` any number up to the most is as probable), every factor has a density of
        its own in the rows and in the columns, uniform where no prior is given, and noise flips
        entries independently of each other. They hold as far as the draws are from the posterior;
        see `verdict`.

        Parameters
        ----------
        fdr : float
            Between 0 and 1.
        all : bool
            Return every factor, whether its tile is kept or not; `kept` says which.
        members : bool
            Return a line for each row and column that may belong to each tile instead, from a
            probability of 0.05 on; `member` says which rather do than not.

        Returns
        -------
        pandas.DataFrame
            By `factor`, counted from 1: `p_real`, the probability that the tile is real; `kept`,
            bool; `rows` and `columns`, numbers of members; `density`, the share of ones among the
            observed entries; `bound`, at most how likely noise alone holds such a tile somewhere
            (`bmfjax.diagnostics.density_bound`, with the ones outside of the other tiles for
            noise), which is no posterior probability; `chains`, how many have the tile in at least
            half of their draws; `remarks`, joined by commas: "robust" (a probability of at
            least 1 - `fdr`, found by all chains, by the verdict too, and without other remarks),
            "empty", "redundant" (other factors cover it), "low support" (`bound` is above `fdr`),
            "in some chains only" (not in all, and the shares of two chains differ by at least one
            half), "in too few draws" (the verdict says so: `chains` is less than two thirds of
            them), "chains differ" (by the verdict it does not hold), "changes from draw to draw"
            (it is not kept, and has no other remark). No lines where no tile is kept.

            Printed, it has all columns.

            With `members` these columns again, and `side`, "row" or "column"; `name`; `member`,
            whether it is in the tile; `membership`, the probability that it belongs to the tile,
            given that the tile is real; `lower` and `upper`, a 90 % interval that says how well
            the draws know `membership`. Lines that are no members are listed from a membership of
            0.05 on, and with `all` an empty factor has a line without a name. Where some factors
            are known, a last column, `anchor`, is their name, "" for others. After `rename` so is
            `factor_name`.

        Raises
        ------
        InputError
            For a level that is not between 0 and 1, and for models whose factors are no tiles.

        References
        ----------
        Müller, Parmigiani, Robert, Rousseau (2004), "Optimal sample size for multiple testing: the
        case of gene expression microarrays", JASA 99(468). Hess, Piatkowski, Morik (2018), "The
        Trustworthy Pal: Controlling the False Discovery Rate in Boolean Matrix Factorization", SDM.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> fit.tiles(fdr=0.05).columns.tolist()
        ['p_real', 'kept', 'rows', 'columns', 'density', 'bound', 'chains', 'remarks']
        >>> len(fit.tiles(fdr=0.05, all=True))
        2
        >>> members = fit.tiles(all=True, members=True)
        >>> bool(members.query("member")["membership"].between(0, 1).all())
        True
        """
        tables = trust.tile_table, trust.member_table
        return trust.chosen_table(self, tables, self._trust, fdr, all, members)

    @functools.cached_property
    def doubts(self) -> str:
        """Which tiles are not kept at a false discovery rate of 0.05, and doubts about others.

        Empty where all are kept and nothing speaks against them; see `tiles`.
        """
        return trust.doubts(self, trust.tile_table(self, self._trust))

    @property
    def _doubts(self) -> str:
        # The verdict says enough where the draws are none of the posterior.
        return "" if self.verdict.undrawn else self.doubts

    @property
    def _present(self) -> np.ndarray:
        return self._trust.found.present

    @functools.cached_property
    def _steady(self) -> np.ndarray:
        return trust.steady_in((self.usage_draws, self.basis_draws))

    @functools.cached_property
    def _trust(self) -> trust.Trust:
        return trust.trust_of(self)
