"""What a fit returns: aligned factors, their uncertainty, and whether to trust them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bmfjax import posterior as entries
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import (
    binarize,
    threshold,
    threshold_pairs,
    to_inference_data,
)
from bmfjax.selection import positions

#: Matrices up to this many entries are formed whole without being asked for.
MAX_ENTRIES = 10_000_000


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted factorisation: draws of aligned factors and what follows from them.

    Returned by `bmfjax.fit` and `Fit.load`.

    Attributes
    ----------
    data : BinaryMatrix
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
        `flip_rate`, `usage_density` and `basis_density` of the Boolean one.
    trace : dict
        (chain, step), warm-up included: `log_joint`; of the Boolean model `errors` and
        `dispersion`; of the relaxed one, from the exact sampler, `residual` (sum of squares) and a
        learned `precision`, from IASG `clamped`; from parallel tempering
        `swap_probability` and `replica` (chain, step, pair or temperature).
    agreement : (rank,) float
        Smallest cosine similarity of a factor's tile between two chains.
    scalars : dict
        Fit-level figures: R-hat, effective sample sizes, seconds; `errors`, observed
        entries that the Boolean product gets wrong, and `expected_errors`, entries of
        the noise-free matrix that it is expected to get wrong.
    usage_binary : (rows, rank) bool
        The most probable Boolean factors; see `binarize`.
    basis_binary : (columns, rank) bool

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

    data: BinaryMatrix
    model: str
    sampler: str
    settings: Mapping[str, Any]
    usage_draws: np.ndarray
    basis_draws: np.ndarray
    trace: Mapping[str, np.ndarray]
    agreement: np.ndarray
    scalars: Mapping[str, Any]
    usage_binary: np.ndarray
    basis_binary: np.ndarray
    versions: Mapping[str, str] = field(default_factory=dict)
    other_draws: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def precision_draws(self) -> np.ndarray | None:
        """Draws of the noise precision, (chain, draw), where it was learned."""
        return self.other_draws.get("precision")

    @property
    def rate_draws(self) -> np.ndarray | None:
        """Draws of the rates of the prior "ard", (chain, draw, rank): high where the data do not
        need a factor."""
        return self.other_draws.get("rate")

    @property
    def is_boolean(self) -> bool:
        """Whether the factors are binary, and their product Boolean."""
        return self.usage_draws.dtype == bool

    @property
    def rank(self) -> int:
        """Number of factors."""
        return self.usage_draws.shape[-1]

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.usage_draws.shape[0]

    @functools.cached_property
    def usage(self) -> np.ndarray:
        """Posterior means, (rows, rank) float64."""
        return self.usage_draws.mean((0, 1), dtype=np.float64)

    @functools.cached_property
    def basis(self) -> np.ndarray:
        """Posterior means, (columns, rank) float64."""
        return self.basis_draws.mean((0, 1), dtype=np.float64)

    @functools.cached_property
    def usage_sd(self) -> np.ndarray:
        """Posterior standard deviations, (rows, rank) float64."""
        return self.usage_draws.std((0, 1), dtype=np.float64)

    @functools.cached_property
    def basis_sd(self) -> np.ndarray:
        """Posterior standard deviations, (columns, rank) float64."""
        return self.basis_draws.std((0, 1), dtype=np.float64)

    def draws(self) -> dict[str, np.ndarray]:
        """Aligned draws, ``{site: (chain, draw, ...)}``."""
        factors = {"usage": np.asarray(self.usage_draws), "basis": np.asarray(self.basis_draws)}
        return factors | dict(self.other_draws)

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
        :math:`P(y_i^\top x_j \ge 1/2 \mid D)`; computed from the kept draws.

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
        usage, basis = self._selected(rows, columns)
        if not noisy:
            return entries.exceedance(usage, basis, level=0.5)
        if "flip_rate" not in self.other_draws:
            raise InputError(
                f"model {self.model!r} has no flip rates; use predict() for its reconstruction"
            )
        return entries.predictive(usage, basis, self.other_draws["flip_rate"])

    def predict(
        self,
        rows: Sequence | None = None,
        columns: Sequence | None = None,
        kind: str = "mean",
        level: float = 0.9,
    ):
        r"""The reconstruction :math:`y_i^\top x_j`: its mean, spread or interval.

        That of the Boolean model is 0 or 1, and its mean is `probability`.

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
        usage, basis = self._selected(rows, columns)
        if kind == "mean":
            return entries.moments(usage, basis)[0]
        if kind == "sd":
            return entries.moments(usage, basis)[1]
        if kind == "interval":
            return entries.interval(usage, basis, level)
        raise InputError(f"kind is {kind!r}; choose 'mean', 'sd' or 'interval'")

    def _selected(self, rows, columns):
        i = positions(rows, self.data.row_names, "row")
        j = positions(columns, self.data.column_names, "column")
        if len(i) * len(j) > MAX_ENTRIES and rows is None and columns is None:
            raise InputError(
                f"the whole matrix has {len(i) * len(j):,} entries; choose rows and columns "
                f"(up to {MAX_ENTRIES:,} entries are formed at once by default)"
            )
        whole = rows is None and columns is None
        if whole:  # packed draws stay packed, and are formed one at a time
            return self.usage_draws, self.basis_draws
        return self.usage_draws[:, :, i], self.basis_draws[:, :, j]

    def transform(self, new_rows) -> np.ndarray:
        r"""Usage of new rows, given the fitted basis.

        For the Boolean model the posterior mean: draws of the usage of the new rows
        given draws of everything else, which the new rows do not change. For the relaxed
        model, for every kept draw of the basis, the usage in [0, 1] that fits the new
        rows best (the mode under a uniform prior), averaged over the draws.

        Parameters
        ----------
        new_rows : BinaryMatrix or array
            As for `BinaryMatrix`; the same columns in the same order, which names are
            compared for. Missing entries are left out.

        Returns
        -------
        (rows, rank) float64
        """
        new = new_rows if isinstance(new_rows, BinaryMatrix) else BinaryMatrix(new_rows)
        if new.num_columns != self.data.num_columns:
            raise InputError(
                f"the new rows have {new.num_columns} columns and the fitted matrix "
                f"{self.data.num_columns}; give the same columns in the same order"
            )
        ours, theirs = self.data.column_names, new.column_names
        named = self.data.has_column_names and new.has_column_names
        if named and ours != theirs:
            at = [a == b for a, b in zip(ours, theirs, strict=True)].index(False)
            raise InputError(
                f"column {at} of the new rows is {theirs[at]!r}, and of the fitted matrix "
                f"{ours[at]!r}; give the same columns in the same order, of a data frame "
                "new[list(fit.data.column_names)]"
            )
        if self.is_boolean:
            from bmfjax.infer.new_rows import usage_of_new_rows  # JAX only where it is used

            return usage_of_new_rows(new, self.basis_draws.words, self.other_draws)
        draws = self.basis_draws.reshape(-1, *self.basis_draws.shape[2:])
        return entries.best_usage(new.dense(), draws)

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
        if method == "map":
            return self.usage_binary, self.basis_binary
        if method == "expected":
            p = self.probability()
            found = binarize(self.usage, self.basis, p)
            return found.usage, found.basis
        if method not in ("threshold", "pairs"):
            raise InputError(
                f"method is {method!r}; choose 'map', 'expected', 'threshold' or 'pairs'"
            )
        ones = np.nan_to_num(self.data.dense()) > 0.5
        observed = self.data.observed()
        if method == "threshold":
            tau = threshold(self.usage, self.basis, ones, observed).tau
            return self.usage > tau, self.basis > tau
        best = threshold_pairs(self.usage, self.basis, ones, observed)
        return self.usage > best.tau_usage, self.basis > best.tau_basis

    # ---- for a person ----------------------------------------------------------------------

    def summary(self) -> pd.DataFrame:
        """One row a factor, largest first; fit-level figures in ``.attrs``.

        Returns
        -------
        pandas.DataFrame
            `rows`, `columns`: size of the Boolean factor; `density`: share of ones
            among the observed entries of its tile; `probability`: mean probability of
            the tile's entries; `agreement`: smallest tile similarity between two
            chains (NaN for one chain); `sd`: mean posterior standard deviation.
        """
        from bmfjax.factor_table import factor_table

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
        warmup = int(self.scalars["num_warmup"])
        kept = self.usage_draws.shape[1]
        every = max(1, int(self.scalars["thinning"]))
        last = warmup + every * np.arange(1, kept + 1) - 1
        statistics = {("lp" if n == "log_joint" else n): t[:, last] for n, t in self.trace.items()}
        observed = None
        if self.data.num_rows * self.data.num_columns <= MAX_ENTRIES:
            observed = {"data": self.data.dense()}
        return to_inference_data(
            self.draws(),
            sample_stats=statistics,
            observed_data=observed,
            dims={
                "usage": ["rows", "factor"],
                "basis": ["columns", "factor"],
                **{n: ["factor"] for n in ("rate", "usage_density", "basis_density")},
                "data": ["rows", "columns"],
            },
            coords={
                "rows": list(self.data.row_names),
                "columns": list(self.data.column_names),
                "factor": list(range(1, self.rank + 1)),
            },
            attrs={"model": self.model, "sampler": self.sampler, "verdict": self.verdict},
        )

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
