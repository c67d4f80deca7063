"""Probabilities of ones, and of whole rows of ones and zeros."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from bmfjax.data import checks
from bmfjax.data.new_rows import opened
from bmfjax.infer import whole_rows
from bmfjax.posterior import products
from bmfjax.posterior.selection import selected
from bmfjax.result import tables
from bmfjax.verdict.undrawn import of_draws

#: What is predicted of an observation that is a zero or a one: its interval says nothing.
OBSERVED_ONES = ("mean", "sd", "probability")


class OnesMixin:
    """The probability of a one, where entries are ones and zeros."""

    @of_draws
    def probability(
        self,
        rows: Sequence | None = None,
        columns: Sequence | None = None,
        *,
        noisy: bool = False,
        positions: bool = False,
        frame: bool = False,
    ):
        r"""Return the probability of a one in each entry, given the data.

        For "features", the default, and for "hamming" it is that an observation of the entry is a
        one, averaged over the kept draws. So it is for the logistic model, by sampler "gibbs";
        otherwise it is averaged over the starts (see `bmfjax.posterior.mixture.probability`).
        For the Boolean model and its variants the entry is truly a one where some factor covers it,
        whatever is observed of it; for the relaxed model where the reconstruction reaches one half,
        :math:`P(y_i^\top x_j \ge 1/2 \mid D)`.

        Parameters
        ----------
        rows, columns : sequence of int or str, or bool array, optional
            Positions, names or a mask; default all. Integers are positions, unless the names of
            the data are whole numbers.
        noisy : bool
            Return the probability that an observation of the entry is a one, with all noise of
            the model: flips, effects, or for "relaxed" the normal noise, which an observation
            of at least one half counts as a one. It is `p_observed`; without, it is `p_one`.
        positions : bool
            Whether integers are positions also where names are whole numbers.
        frame : bool
            Return a data frame with the names of rows and columns.

        Returns
        -------
        (rows, columns) float64, or pandas.DataFrame
            The fit keeps those of a whole matrix of up to 10^7 entries (8 bytes an entry) and
            returns a copy.

        Raises
        ------
        InputError
            For a name or position that the matrix does not have, or where the whole
            matrix would have more than 10^7 entries and no rows or columns are chosen.
        """
        i, j = selected(self.data, rows, columns, positions)
        if noisy:
            found = self._noisy_probability(i, j)
        elif rows is None and columns is None and self._is_small:
            found = self._whole_probability.copy()
        else:
            found = self._probability(i, j)
        return tables.of_entries(self.data, found, i, j) if checks.switch("frame", frame) else found

    # ---- what differs between families --------------------------------------------------

    _is_of_ones = True

    def _probability(self, i, j) -> np.ndarray:
        """Return the probability that an entry is truly a one, (rows, columns) float64."""
        return products.exceedance(*self._factors(i, j), level=0.5)

    def _noisy_probability(self, i, j) -> np.ndarray:
        """Return the probability that an observation is a one, (rows, columns) float64.

        Here of models whose probability is that of an observation already.
        """
        return self._probability(i, j)

    _noisy_kinds = OBSERVED_ONES

    @functools.cached_property
    def _whole_probability(self) -> np.ndarray:
        """Probabilities of all entries of a small matrix; computed once."""
        return self._probability(*map(np.arange, self.data.shape))


class RowsMixin:
    """Probabilities of whole rows, where factors are Boolean or their product is log odds."""

    @of_draws
    def score_rows(self, new, given=None, *, num_draws: int = 100, seed: int = 0) -> np.ndarray:
        r"""Return the log probability of whole new rows, or of some of their cells given others.

        It is joint over the cells of a row, not a sum over single cells. What belongs to a row
        alone, such as its usage, is summed or integrated out, and all draws are one mixture:

        .. math::
            \log p(x_Q \mid x_E) = \log \frac{1}{S} \sum_s p(x_Q, x_E \mid \theta_s)
            - \log \frac{1}{S} \sum_s p(x_E \mid \theta_s)

        For Boolean factors, their variants and features the sums over the states of a row are
        exact, which takes a rank of at most 14 (17 with up to 64 columns, 8 with layers; fewer
        with effects). Features count that a draw has. For the logistic model
        :math:`p(x \mid \theta_s)` is estimated by importance sampling, without bias; its logarithm
        is too low by half its relative variance on average, which more draws make smaller.

        Parameters
        ----------
        new : data of the fitted kind, or array
            As for `transform`. Missing cells are left out.
        given : data of the fitted kind, or array, optional
            The same rows with more cells missing: what is known of each row, the evidence E. The
            other cells that `new` observes are the query Q. Default: nothing is known, and the
            result is the log probability of all that `new` observes.
        num_draws : int
            Draws of all chains that are used, at most, evenly spaced.
        seed : int
            Seed of importance sampling.

        Returns
        -------
        (rows,) float64

        Raises
        ------
        InputError
            If `given` observes a cell that `new` does not, or another value; for models of numbers
            and stars; or if a row has too many states to sum over.

        See Also
        --------
        complete : chances of the missing cells of new rows.
        score_new : log predictive densities of single cells, for every model.

        Examples
        --------
        >>> import bmfjax, numpy as np
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> row = fit.data.dense()[:1]
        >>> known = row.copy()
        >>> known[0, 10:] = np.nan
        >>> whole, evidence = fit.score_rows(row), fit.score_rows(known)
        >>> bool(np.isclose(fit.score_rows(row, known), whole - evidence)[0])
        True
        """
        checks.whole("num_draws", num_draws)
        checks.seed_number(seed)
        new = self._new_rows(new)
        found = whole_rows.log_mean(self._row_terms(new, num_draws, False, seed))
        if given is None:
            return found
        given = self._new_rows(given)
        whole_rows.check_given(new, given)
        return found - whole_rows.log_mean(self._row_terms(given, num_draws, False, seed))

    @of_draws
    def complete(self, new, *, num_draws: int = 100, seed: int = 0, frame: bool = False):
        r"""Return new rows with the probability of a one in each missing cell.

        It is the probability that an observation of the cell would be a one, flips included, given
        the cells of the row that are observed. Every draw counts by the probability that it gives
        to these. Cells of one row depend on each other: `score_rows` has their joint probability.

        Parameters
        ----------
        new : data of the fitted kind, or array
            As for `transform`; missing cells are completed.
        num_draws, seed : int
            As for `score_rows`.
        frame : bool
            Return a data frame with the names of rows and columns.

        Returns
        -------
        (rows, columns) float64, or pandas.DataFrame
            Observed cells as they are.

        Raises
        ------
        InputError
            For models of numbers and stars, or if a row has too many states to sum over.

        Examples
        --------
        >>> import bmfjax, numpy as np
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> row = fit.data.dense()[:1].copy()
        >>> row[0, [0, 13]] = np.nan
        >>> done = fit.complete(row)[0]
        >>> bool(done[0] > 0.5), bool(done[13] < 0.5)
        (True, True)
        """
        checks.whole("num_draws", num_draws)
        checks.seed_number(seed)
        new = opened(new, self)
        names, new = tables.names_of_rows(new), self._new_rows(new)
        values = new.dense(np.float64)
        chance = whole_rows.mean_chance(self._row_terms(new, num_draws, True, seed))
        found = np.where(np.isnan(values), chance, values)
        if not checks.switch("frame", frame):
            return found
        return pd.DataFrame(found, names, list(self.data.column_names))

    def _row_terms(self, new, num_draws, chances, seed) -> Iterator[whole_rows.RowTerms]:
        """Yield what up to `num_draws` draws say of new rows, with chances of cells if wanted."""
        raise NotImplementedError
