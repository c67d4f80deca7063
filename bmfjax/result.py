"""What a fit returns: aligned factors, their uncertainty, and whether to trust them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bmfjax import reconstruction
from bmfjax.boolean import rounded
from bmfjax.factor_draws import FactorDraws
from bmfjax.factor_table import factor_table
from bmfjax.inference_data import inference_data
from bmfjax.selection import positions, selected


@dataclass(frozen=True, repr=False)
class Fit(FactorDraws):
    """A fitted factorisation: draws of aligned factors and what follows from them.

    Returned by `bmfjax.fit` and `Fit.load`.

    Attributes
    ----------
    data : BinaryMatrix, RealMatrix or Ratings
        The matrix that was fitted.
    model, sampler : str
    settings : dict
        Everything that determines the draws besides the data.
    usage_draws : (chain, draw, rows, rank) float32, or `PackedDraws`
        Kept draws, factors aligned across draws and chains; those of Boolean factors stay packed
        and are indexed like a bool array.
    basis_draws : (chain, draw, columns, rank) float32, or `PackedDraws`
    other_draws : dict
        (chain, draw, ...), of the model's other sites: `precision` and `rate` of the relaxed model,
        `flip_rate`, `usage_density` and `basis_density` of the Boolean one, `bias`, `row_effect`
        and `column_effect` of the logistic one; of matrix factorisations the sites of
        `bmfjax.models.pmf`.
    trace : dict
        (chain, step), warm-up included: `log_joint`; of the Boolean model `errors` and
        `dispersion`; of the relaxed one, from the exact sampler, `residual` (sum of squares) and a
        learned `precision`, from IASG `clamped`; from parallel tempering
        `swap_probability` and `replica` (chain, step, pair or temperature); of the logistic model
        the `elbo` alone, (start, step of optimisation).
    agreement : (rank,) float
        Smallest cosine similarity of a factor's tile between two chains.
    scalars : dict
        Fit-level figures: R-hat, effective sample sizes, seconds; `coverage_largest` and
        `coverage_mean`, angles in degrees between the factors of two draws (see
        `bmfjax.solutions`); of the Boolean and relaxed models `errors`, observed
        entries that the Boolean product gets wrong, and `expected_errors`, entries of
        the noise-free matrix that it is expected to get wrong.
    binary : Binarized or None
        The most probable Boolean factors, `usage_binary` and `basis_binary`; None where factors are
        real numbers of either sign.
    approximation : dict
        Of a variational fit, what its draws are drawn from; see `bmfjax.logistic_entries`.

    Examples
    --------
    >>> import bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
    ... )
    >>> fit.usage.shape, fit.basis_binary.shape
    ((18, 2), (14, 2))
    >>> fit.probability(rows=[0], columns=[0, 1]).shape
    (1, 2)
    """

    # ---- entries of the matrix -----------------------------------------------------------

    def probability(
        self,
        rows: Sequence | None = None,
        columns: Sequence | None = None,
        *,
        noisy: bool = False,
    ):
        r"""Probability that an entry is truly a one, given the data.

        For the Boolean model the event is that some factor covers the entry, for the
        relaxed model that the reconstruction reaches one half,
        :math:`P(y_i^\top x_j \ge 1/2 \mid D)`; computed from the kept draws. For the
        logistic model it is that an observation is a one, averaged over the starts; see
        `bmfjax.logistic_entries.probability`.

        Parameters
        ----------
        rows, columns : sequence of int or str, or bool array, optional
            Positions, names or a mask; default all.
        noisy : bool
            Boolean model only: the probability that an observation of the entry is a
            one, flips included.

        Returns
        -------
        (rows, columns) float64

        Raises
        ------
        InputError
            For a name or position that the matrix does not have, or where the whole
            matrix would have more than 10^7 entries and no rows or columns are chosen.
        """
        entries = reconstruction.of(self)
        chance = entries.noisy_probability if noisy else entries.probability
        return chance(*selected(self.data, rows, columns))

    def predict(
        self,
        rows: Sequence | None = None,
        columns: Sequence | None = None,
        kind: str = "mean",
        level: float = 0.9,
    ):
        r"""The reconstruction :math:`y_i^\top x_j`: its mean, spread or interval.

        That of the Boolean model is 0 or 1, and its mean is `probability`; that of the
        logistic model is the log odds, effects and bias included. Of "pmf" it is the expected
        rating, effects included, and so it is of "ordered-probit"; of "probit" the probability of
        a one. See `predict_cells` for single cells, and for observations with their noise.

        Parameters
        ----------
        rows, columns : sequence of int or str, optional
            As for `probability`.
        kind : {"mean", "sd", "interval"}
        level : float
            Probability of the central interval.

        Returns
        -------
        (rows, columns) float64, or (2, rows, columns) for "interval"
            Of the noise-free reconstruction, not of a noisy observation.
        """
        return reconstruction.of(self).predict(*selected(self.data, rows, columns), kind, level)

    def predict_cells(
        self, rows, columns, kind: str = "mean", level: float = 0.9, *, noisy: bool = False
    ) -> np.ndarray:
        """Predictions of single cells, such as those that were held out.

        The same as `predict` and `probability` have for these entries. Memory grows with the
        cells alone; time with cells x draws x rank.

        Parameters
        ----------
        rows, columns : (cell,) sequences of int or str
            Positions or names, one each a cell. Integers are positions, also where names are
            numbers: give those as str.
        kind : {"mean", "sd", "interval", "probability"}
            "probability" is of a one, for models of ones and zeros, and of every star for
            "ordered-probit".
        level : float
            Probability of the central interval.
        noisy : bool
            Of an observation of the cell, for judging hidden ones; else of what is expected of
            it. For "pmf", "relaxed" and "nmf" normal noise is added with its drawn (or fixed)
            precision; only intervals need random numbers. For "ordered-probit" it is of stars.
            For "ormachine" flips are included, and there are "mean" and "probability", which are
            the same. Not for "logistic" and "probit", whose "probability" is that of an
            observation already.

        Returns
        -------
        (cell,) float64, (2, cell) for "interval", (cell, star) for "probability" of stars
            Means and intervals of ratings are held inside of their scale where they declare one;
            "sd" is of the values before that. Stars are in the order of ``settings["stars"]``,
            and their probabilities sum to 1.

        Raises
        ------
        InputError
            For cells that there are not, lists of different lengths, and kinds that the model
            does not have.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> rows, columns = ["Laura Mandeville", "Evelyn Jefferson"], [0, 13]
        >>> bool((fit.predict_cells(rows, columns, "probability") <= 1).all())
        True
        >>> fit.predict_cells(rows, columns, "interval").shape
        (2, 2)
        """
        i = positions(rows, self.data.row_names, "row")
        j = positions(columns, self.data.column_names, "column")
        return reconstruction.of(self).of_cells(i, j, (kind,), level, noisy)[kind]

    def given_new(
        self, new, side: str = "rows", *, sweeps: int | None = None, seed: int = 0
    ) -> Fit:
        """The same fit for rows (or columns) that it has not seen, given the other side.

        Of a matrix factorisation ("pmf" and the probit models): for every kept draw the vectors
        of the new lines are drawn given that draw of everything else, which they do not change.

        Parameters
        ----------
        new : Ratings, RealMatrix, BinaryMatrix or array
            For "rows" with the columns of the fitted data, in the same order; for "columns" with
            its rows.
        side : {"rows", "columns"}
        sweeps : int, optional
            Of the probit models (default 25), whose latent values are drawn in turn with the
            vectors, from where the draw before ended: approximate, and closer the more sweeps. The
            vectors of "pmf" are drawn at once.
        seed : int

        Returns
        -------
        Fit
            Its data are `new`, of which `predict`, `predict_cells` and the verdict speak;
            ``settings["given_new"]`` is `side`.
        """
        from bmfjax.pmf_new import given_new  # JAX only where it is used

        return given_new(self, new, side, sweeps, seed)

    def product_draws(self, rows, columns) -> tuple[Any, Any]:
        """Draws of two matrices, the product of which is the reconstruction.

        Parameters
        ----------
        rows, columns : (...) int
            Positions.

        Returns
        -------
        (chain, draw, rows, width), (chain, draw, columns, width)
            The factors; of the logistic model with effects and bias, so that the product is the
            log odds.
        """
        return reconstruction.of(self).product_draws(rows, columns)

    def transform(self, new_rows) -> np.ndarray:
        r"""Usage of new rows, given the fitted basis.

        For the Boolean model the posterior mean: draws of the usage of the new rows
        given draws of everything else, which the new rows do not change. For the relaxed
        model, for every kept draw of the basis, the usage in [0, 1] that fits the new
        rows best (the mode under a uniform prior), averaged over the draws; for the nonnegative
        model the same without the upper bound. For the
        logistic model the mean of the variational posterior, averaged over the starts (zero,
        that of the prior, for a row of which nothing is observed). Of "pmf" and the probit models
        the posterior mean, from `given_new`, which has its spread and predictions as well.

        Parameters
        ----------
        new_rows : BinaryMatrix, array, or what the model was fitted to
            As for `BinaryMatrix`; the same columns in the same order, which names are
            compared for (of a data frame ``new[list(fit.data.column_names)]``, of `Ratings` by
            ``column_names=fit.data.column_names``). Missing entries are left out.

        Returns
        -------
        (rows, rank) float64
        """
        from bmfjax.new_rows import usage_of  # JAX only where it is used

        return usage_of(self, new_rows)

    # ---- Boolean factors -------------------------------------------------------------------

    def binarize(self, method: str = "map") -> tuple[np.ndarray, np.ndarray]:
        """Boolean factors by one of four rules, all chosen without a known truth.

        Parameters
        ----------
        method : {"map", "expected", "threshold", "pairs"}
            "map": most probable given the matrix, under two flip rates and a density
            of each factor's own, started at every chain's means
            (`bmfjax.diagnostics.most_probable_factors`; what `usage_binary` holds).
            "expected": lowest expected number of wrong entries of the Boolean product,
            from `probability`. "threshold": one threshold for both factors against the
            observed matrix (Gonsior 2019, algorithm 4.1). "pairs": one threshold each
            (Hess, Morik, Piatkowski 2017).

        Returns
        -------
        usage : (rows, rank) bool
        basis : (columns, rank) bool
        """
        return rounded(self, method)

    # ---- for a person ----------------------------------------------------------------------

    def summary(self) -> pd.DataFrame:
        """One row a factor, largest first; fit-level figures in ``.attrs``.

        Returns
        -------
        pandas.DataFrame
            `rows`, `columns`: size of the Boolean factor; `density`: share of ones
            among the observed entries of its tile; `probability`: mean probability of
            the tile's entries; `agreement`: smallest tile similarity between two
            chains (NaN for one chain); `sd`: mean posterior standard deviation. Of real
            factors `size`, what one adds to the log odds, as a root mean square over the
            entries, and `rows`, `columns`: how many are two standard deviations from zero.
        """
        return factor_table(self)

    @property
    def verdict(self) -> str:
        """One sentence: whether this run can be trusted, and why."""
        return str(self.scalars["verdict"])

    def __repr__(self) -> str:
        rows, columns = self.data.shape
        name = f" of {self.data.name}" if self.data.name else ""
        return (
            f"Fit({self.model} by {self.sampler}{name}, {rows} x {columns}, rank {self.rank}, "
            f"{self.num_chains} chains x {self.usage_draws.shape[1]} kept draws)\n{self.verdict}"
        )

    @functools.cached_property
    def idata(self) -> Any:
        """ArviZ container: `posterior`, `sample_stats`, `observed_data`."""
        return inference_data(self)

    def report(self, path, *, overwrite: bool = False):
        """Write one self-contained HTML page for a person.

        Parameters
        ----------
        path : path
            File to write.
        overwrite : bool
            Replace an existing file.

        Returns
        -------
        pathlib.Path
        """
        from bmfjax.report import write_report  # plots are imported only when asked for

        return write_report(self, path, overwrite=overwrite)

    def save(self, directory, *, overwrite: bool = False):
        """Write the fit to a directory; see `bmfjax.storage.save_fit`."""
        from bmfjax.storage import save_fit

        return save_fit(self, directory, overwrite=overwrite)

    @staticmethod
    def load(directory) -> Fit:
        """Read a fit that `save` or the command line wrote."""
        from bmfjax.storage import load_fit

        return load_fit(directory)
