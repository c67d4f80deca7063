"""What a fit returns: aligned factors, their uncertainty, and whether to trust them."""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from bmfjax import store, verdict
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, checks
from bmfjax.data.anchors import Anchors
from bmfjax.data.attributes import Attributes
from bmfjax.data.blocks import spaced
from bmfjax.data.io.stored import reading_stored
from bmfjax.diagnostics import (
    Binarized,
    Coverage,
    agreement,
)
from bmfjax.diagnostics.arviz import container, datasets, standard_attributes
from bmfjax.infer import whole_rows
from bmfjax.infer.mcmc.truncated import numbers
from bmfjax.kernels.tempering import OBSERVED
from bmfjax.posterior import cells, products, scores, trust
from bmfjax.posterior.containers import groups_of
from bmfjax.posterior.evidence import EVIDENCE_OF_RUNS, LogEvidence
from bmfjax.posterior.modes import Modes, modes_of
from bmfjax.posterior.packed import chosen_draws
from bmfjax.posterior.pointwise import total_density
from bmfjax.posterior.selection import MAX_ENTRIES, informed, is_all, positions, selected
from bmfjax.report import interop, write_report
from bmfjax.report.section import Page
from bmfjax.verdict import Figures, Mixing, Verdict, mixing, spread

FACTORS = ("usage", "basis")
#: Traces that say nothing where steps are left out.
OF_REPLICAS = (*OBSERVED, "population_accepted")
#: What `Fit.predict` tells of an entry.
PREDICTED = ("mean", "sd", "interval")


class Layer(NamedTuple):
    """Posterior means of one layer of a fit; see `Fit.layer`.

    Attributes
    ----------
    usage : (rows, rank of the layer) float64
    basis : (columns or rank of the layer below, rank of the layer) float64
    columns : (columns, rank of the layer) float64
        Probability that a column is a one in a row that uses this factor alone, where nothing is
        flipped: the Boolean product of the bases up to the layer.
    """

    usage: np.ndarray
    basis: np.ndarray
    columns: np.ndarray


@dataclass(frozen=True, repr=False)
class Fit:
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
        (chain, draw, ...), of the model's other sites: `precision` and `rate` of the relaxed and
        the nonnegative model, the latter's `rate` with ``rank="auto"`` alone; `flip_rate`,
        `usage_density` and `basis_density` of the Boolean one, with ``rank="auto"`` also
        `usage_presence`; `bias`, `row_effect` and `column_effect` of the logistic one, and
        with ``rank="auto"`` the number of factors, `rank`; of matrix factorisations the sites of
        `bmfjax.models.pmf`; of variants of the Boolean model those of their models, where layers
        above the first have their number in the name, such as `basis_2`.
    trace : dict
        (chain, step), warm-up included: `log_joint`; of the Boolean model `errors` and
        `dispersion`; of the relaxed one, from the exact sampler, `residual` (sum of squares) and a
        learned `precision`, from IASG `clamped`, from "minibatch" `noise_share`; from
        parallel tempering `swap_probability`, `replica` and `inverse_temperatures` (chain, step,
        pair or temperature), and `population_accepted`; of a variational fit the `elbo` alone,
        (start, step of optimisation).
    agreement : (rank,) float
        Smallest cosine similarity of a factor's tile between two chains.
    verdict : bmfjax.verdict.Verdict
        Whether this run can be trusted, why, and what to try next: `status`, `reasons`, `remedy`
        and more; its `str` is one sentence.
    binary : Binarized or None
        The most probable Boolean factors, `usage_binary` and `basis_binary`; None where factors are
        real numbers of either sign.
    approximation : dict
        Of a variational fit, what its draws are drawn from; see `bmfjax.posterior.mixture`. Empty
        where the draws are those of chains.
    anchors : bmfjax.data.anchors.Anchors or None
        `names` and `values` of known factors, which are the first of all.
    attributes : dict
        Of "row" and of "column" how attributes of new lines are read, with their `names` (a
        `bmfjax.data.attributes.Attributes`); empty where none were given. Their coefficients are
        in `other_draws` (`coefficients`).

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

    data: BinaryMatrix | RealMatrix | Ratings
    model: str
    sampler: str
    settings: Mapping[str, Any]
    usage_draws: np.ndarray
    basis_draws: np.ndarray
    trace: Mapping[str, np.ndarray]
    agreement: np.ndarray
    verdict: Verdict
    binary: Binarized | None
    versions: Mapping[str, str] = field(default_factory=dict)
    other_draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    approximation: Mapping[str, np.ndarray] = field(default_factory=dict)
    anchors: Anchors | None = None
    attributes: Mapping[str, Attributes] = field(default_factory=dict)

    #: Names of the models whose fits are of this class.
    models: ClassVar[tuple[str, ...]] = ()
    #: Axes of its sites besides `usage` and `basis`, for ArviZ.
    dims: ClassVar[Mapping[str, Sequence[str]]] = {}
    #: Whether factors are Boolean, and whether real ones have either sign.
    is_boolean: ClassVar[bool] = False
    is_signed: ClassVar[bool] = True
    #: Whether log scores of entries are bounded, as those of bits that are flipped are.
    has_bounded_scores: ClassVar[bool] = False
    #: Of a fit that finds the number of factors: which of them count, and what is believed of their
    #: number beforehand, where {most} are the most.
    counts_as_factor: ClassVar[str] = ""
    ranks_beforehand: ClassVar[str] = ""
    #: Whether factors are tiles, sets of rows and of columns.
    has_tiles: ClassVar[bool] = False
    #: What can be told of a single cell, of a noisy observation of it, and of an observation whose
    #: noise is in the probability already (None where it is not).
    kinds: ClassVar[tuple[str, ...]] = cells.KINDS
    noisy_kinds: ClassVar[tuple[str, ...]] = PREDICTED
    observed_kinds: ClassVar[tuple[str, ...] | None] = None
    #: Whether entries have a probability of a one.
    _is_of_ones: ClassVar[bool] = True
    #: Facts, sections and words of the report.
    page: ClassVar[Page]

    @classmethod
    def in_order(cls, name: str, values: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Return draws of a site with its axis of factors, if it has one, permuted.

        Parameters
        ----------
        name : str
            Of the site.
        values : (chain, draw, ...)
        order : (rank,) or (chain, draw, rank) int
            The latter broadcasts against the draws.

        Returns
        -------
        (chain, draw, ...)

        Examples
        --------
        >>> import bmfjax
        >>> kind = bmfjax.Fit.of_model("ormachine")
        >>> kind.in_order("usage_density", np.array([[[0.1, 0.2]]]), np.array([1, 0])).tolist()
        [[[0.2, 0.1]]]
        """
        axes = list(cls.dims.get(name, ()))
        if "factor" not in axes:
            return values
        axis = 2 + axes.index("factor")
        if order.ndim == 1:
            return values.take(order, axis)
        shape = [*order.shape[:2], *np.ones(values.ndim - 2, int)]
        shape[axis] = order.shape[2]
        return np.take_along_axis(values, order.reshape(shape), axis)

    @property
    def figures(self) -> Figures:
        """R-hat, effective draws, seconds and other figures, which the verdict rests on."""
        return self.verdict.figures

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
    def rank_draws(self) -> np.ndarray | None:
        """Draws of the number of factors, (chain, draw) int, of a fit with ``rank="auto"``.

        Of the logistic model a chain is a start. Other fits count at every step after the warm-up.
        """
        if "rank" in self.other_draws:
            return self.other_draws["rank"]
        if "rank" not in self.trace:
            return None
        return self.trace["rank"][:, int(self.figures.num_warmup) :]

    @property
    def rank_probabilities(self) -> dict[int, float] | None:
        """Posterior probability of every number of factors that was drawn.

        Of a fit with ``rank="auto"``, else None.

        Of the Boolean model a factor counts where it has ones in both matrices. Beforehand all
        numbers of factors that are there, up to the most, `max_rank`, are equally probable; a few
        of these may be empty, and then do not count.

        Of other models every one of `max_rank` factors is there, with a scale that is learned. It
        counts in a draw where it adds more to the product than a factor that fits noise alone
        would, noise of the size that the draw has (`bmfjax.kernels.used_factors`). So these are
        probabilities of how many factors stand out of the noise, under the one model with
        `max_rank` factors. They are not those of models of different rank, and a factor weaker than
        the noise does not count, even where it is real.

        Of the logistic model the draws are of a variational approximation, and of every start as
        many. It is too narrow, and these probabilities are nearer to zero and one than those of the
        posterior: see whether the starts agree (`rank_draws`).

        Examples
        --------
        >>> import bmfjax
        >>> data = np.kron(np.eye(3), np.ones((10, 8)))
        >>> fit = bmfjax.fit(
        ...     data, "auto", max_rank=6, num_chains=2, num_warmup=150, num_samples=150,
        ...     progress=False,
        ... )  # fmt: skip
        >>> max(fit.rank_probabilities, key=fit.rank_probabilities.get)
        3
        """
        drawn = self.rank_draws
        if drawn is None:
            return None
        numbers, counts = np.unique(drawn, return_counts=True)
        return {int(n): float(c / counts.sum()) for n, c in zip(numbers, counts, strict=True)}

    @property
    def log_evidence(self) -> LogEvidence | None:
        r"""Log evidence of the model at this rank, :math:`\log p(D)`, with its standard error.

        Returns
        -------
        bmfjax.posterior.evidence.LogEvidence or None
            `value`, `error`, and of every run `runs` and `run_errors`. Of sampler "smc"; None of
            the others, which do not estimate it.
        """
        if self.figures.log_evidence is None:
            return None
        of_runs = (
            np.asarray(getattr(self.figures, f"log_evidence_{n}"), float) for n in EVIDENCE_OF_RUNS
        )
        return LogEvidence(self.figures.log_evidence, self.figures.log_evidence_error, *of_runs)

    @property
    def is_real(self) -> bool:
        """Whether factors are real numbers that are not rounded to 0 and 1."""
        return self.binary is None

    @property
    def rank(self) -> int:
        """Number of factors."""
        return self.usage_draws.shape[-1]

    @property
    def num_anchors(self) -> int:
        """Number of known factors."""
        return 0 if self.anchors is None else self.anchors.number

    @property
    def factor_names(self) -> tuple[str, ...]:
        """A name for each factor: that of a known one, and "factor 3" for others."""
        known = Anchors((), np.empty((0, 0))) if self.anchors is None else self.anchors
        return known.labels(self.rank)

    def _with_anchors(self, table: pd.DataFrame) -> pd.DataFrame:
        """Add the names of known factors to a table by factor, "" for others; none without."""
        if self.anchors is None:
            return table
        numbers = table.get("factor", table.index)
        names = [self.anchors.names[k - 1] if k <= self.num_anchors else "" for k in numbers]
        return table.assign(anchor=names)

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.usage_draws.shape[0]

    @functools.cached_property
    def usage(self) -> np.ndarray:
        """Posterior means, (rows, rank) float64."""
        return self._moments("usage")[0]

    @functools.cached_property
    def basis(self) -> np.ndarray:
        """Posterior means, (columns, rank) float64."""
        return self._moments("basis")[0]

    @functools.cached_property
    def usage_sd(self) -> np.ndarray:
        """Posterior standard deviations, (rows, rank) float64."""
        return self._moments("usage")[1]

    @functools.cached_property
    def basis_sd(self) -> np.ndarray:
        """Posterior standard deviations, (columns, rank) float64."""
        return self._moments("basis")[1]

    def _moments(self, name):
        """Return mean and standard deviation of a factor matrix."""
        draws = self.usage_draws if name == "usage" else self.basis_draws
        return draws.mean((0, 1), dtype=np.float64), draws.std((0, 1), dtype=np.float64)

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

        For the Boolean model and its variants the event is that some factor covers the entry, for
        the relaxed model that the reconstruction reaches one half,
        :math:`P(y_i^\top x_j \ge 1/2 \mid D)`; computed from the kept draws. For the
        logistic model it is that an observation is a one, averaged over the starts (see
        `bmfjax.posterior.mixture.probability`), or over the draws of sampler "gibbs"; and so it is
        for "hamming".

        Parameters
        ----------
        rows, columns : sequence of int or str, or bool array, optional
            Positions, names or a mask; default all.
        noisy : bool
            Boolean model and variants only: the probability that an observation of the entry is
            a one, flips or effects included.

        Returns
        -------
        (rows, columns) float64
            The fit keeps those of a whole matrix of up to 10^7 entries (8 bytes an entry) and
            returns a copy.

        Raises
        ------
        InputError
            For a name or position that the matrix does not have, or where the whole
            matrix would have more than 10^7 entries and no rows or columns are chosen.
        """
        if not noisy and rows is None and columns is None and self._is_small:
            return self._whole_probability.copy()
        i, j = selected(self.data, rows, columns)
        return self._noisy_probability(i, j) if noisy else self._probability(i, j)

    def predict(
        self,
        rows: Sequence | None = None,
        columns: Sequence | None = None,
        kind: str = "mean",
        level: float = 0.9,
    ):
        r"""The reconstruction :math:`y_i^\top x_j`: its mean, spread or interval.

        That of the Boolean model and its variants is 0 or 1, and its mean is `probability`; that of
        the logistic model and of "hamming" is the log odds, effects and bias included. Of "pmf" it
        is the expected rating, effects included, and so it is of "ordered-probit"; of "probit" the
        probability of a one. See `predict_cells` for single cells, and for observations with their
        noise.

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
        if kind not in PREDICTED:
            raise InputError(f"kind is {kind!r}; choose 'mean', 'sd' or 'interval'")
        return self._predict(*selected(self.data, rows, columns), kind, level)

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
            For "ormachine" and its variants flips or effects are included, and there are "mean" and
            "probability", which are the same. Not for "logistic", "probit" and "hamming", whose
            "probability" is that of an observation already.

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
        return self.tell_cells(i, j, (kind,), level, noisy)[kind]

    def tell_cells(self, i, j, kinds, level: float, noisy: bool) -> dict[str, np.ndarray]:
        """Return predictions of single cells, several kinds at once; see `predict_cells`.

        Parameters
        ----------
        i, j : (cell,) int
            Positions of rows and columns.
        kinds : sequence of str
        level : float
        noisy : bool

        Returns
        -------
        dict
            What `predict_cells` returns, by kind.
        """
        if i.shape != j.shape:
            raise InputError(f"there are {len(i)} rows and {len(j)} columns; give one each a cell")
        cells.check_level(level)
        for kind in kinds:
            self._check_kind(kind, noisy)
        return self._cells(i, j, kinds, level, noisy)

    def coefficients(self, side: str = "rows") -> pd.DataFrame:
        """Return what the attributes of rows or columns add to effects and factors.

        Of a fit of ratings with attributes (`row_attributes`, `column_attributes` or the prior
        `rated`). Each is what one unit of an attribute, as it was given, adds to the prior mean.
        Factors are those of the fit, whose signs and order are not unique.

        Parameters
        ----------
        side : {"rows", "columns"}

        Returns
        -------
        pandas.DataFrame
            One line an attribute, by name: posterior mean and standard deviation of what it adds to
            the effect, `effect` and `effect_sd`, and to every factor, `factor_1` and
            `factor_1_sd`, ..., of which known ones (`anchors`) come first.

        Raises
        ------
        InputError
            Where there are no attributes of this side.

        Examples
        --------
        >>> import bmfjax, pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> age = np.repeat([20.0, 50.0], 10)
        >>> stars = 3 + 0.05 * age[:, None] + 0.1 * rng.normal(size=(20, 6))
        >>> fit = bmfjax.fit(
        ...     stars, 1, model="pmf", row_attributes=pd.DataFrame({"age": age}), num_chains=2,
        ...     num_warmup=100, num_samples=100, progress=False,
        ... )  # fmt: skip
        >>> fit.coefficients().index.tolist(), fit.coefficients().columns.tolist()
        (['age'], ['effect', 'effect_sd', 'factor_1', 'factor_1_sd'])
        """
        raise InputError(f"model {self.model!r} takes no attributes of rows and columns")

    def given_new(
        self, new, side: str = "rows", *, attributes=None, sweeps: int | None = None, seed: int = 0
    ) -> Fit:
        """The same fit for rows (or columns) that it has not seen, given the other side.

        Of a matrix factorisation ("pmf" and the probit models): for every kept draw the vectors
        of the new lines are drawn given that draw of everything else, which they do not change.

        Parameters
        ----------
        new : Ratings, RealMatrix, BinaryMatrix or array
            For "rows" with the columns of the fitted data, in the same order; for "columns" with
            its rows.
            Where the fit has attributes it may be None: new lines without any rating, which are
            predicted from `attributes` alone.
        side : {"rows", "columns"}
        attributes : array, scipy.sparse matrix or DataFrame, optional
            Those of the new lines, where the fit has attributes of this side: read as they were in
            the fit. Which cells they rated is taken from `new`.
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
        raise InputError(f"model {self.model!r} has no given_new; use transform()")

    def recommend(
        self,
        user,
        k: int = 10,
        *,
        seen: bool = False,
        by: str = "mean",
        least: float | None = None,
        level: float = 0.9,
    ) -> pd.DataFrame:
        """Recommend items to users, the best first, and say how sure that is.

        Of fits of ratings: "pmf", "ordered-probit" and "probit". Rows are users and columns items.

        Parameters
        ----------
        user : str, int, or sequence of these
            Names or positions of rows. Integers are positions, also where names are numbers: give
            those as str.
        k : int
            Items a user, at most.
        seen : bool
            Whether items that a user has rated are among them. Of "probit" those are the ones: a
            zero is recommended where it will probably become a one.
        by : {"mean", "quantile", "probability"}
            "mean" is the expected rating. "quantile" is its `lower` end, and puts what the fit is
            sure of before what may turn out badly. "probability" is that of a rating of at least
            `least`, noise included.
        least : float, optional
            The rating that counts as high; default three quarters up the scale, 4 of 1 to 5 stars.
            Of "pmf", whose ratings are any numbers, 3.5 stands for those that round to 4. Not of
            "probit".
        level : float
            Probability of the central interval from `lower` to `upper`.

        Returns
        -------
        pandas.DataFrame
            `user`, `item`; `mean`, `sd`, `lower` and `upper` of the expected rating (of "probit"
            the probability of a one); `probability`. A user who has rated all has no line.

        Raises
        ------
        InputError
            For a user that there is not, naming the closest ones; for options out of range, and
            models that are not of ratings.

        Examples
        --------
        >>> import bmfjax
        >>> films = ["Heat", "Alien", "Fargo", "Babe"]
        >>> stars = np.array([[5, 4, 2, 1], [4, 5, 1, 2], [1, 2, 5, 4], [2, 1, 4, np.nan]])
        >>> rows, columns = np.nonzero(~np.isnan(stars))
        >>> ratings = bmfjax.Ratings(
        ...     [["ann", "bob", "cid", "dot"][i] for i in rows], [films[j] for j in columns],
        ...     stars[rows, columns], scale=(1, 5),
        ... )  # fmt: skip
        >>> fit = bmfjax.fit(
        ...     ratings, rank=1, model="pmf", num_chains=2, num_warmup=200, num_samples=200,
        ...     progress=False,
        ... )  # fmt: skip
        >>> fit.recommend("dot")["item"].tolist()  # all others she has rated
        ['Babe']
        >>> fit.recommend(["ann", "cid"], k=1, seen=True)["item"].isin(films).all().item()
        True
        """
        return self._recommend(user, k, seen=seen, by=by, least=least, level=level)

    def _recommend(self, user, k, **options) -> pd.DataFrame:
        """Return what `recommend` does."""
        raise InputError(
            f"model {self.model!r} has no recommend(), which is of ratings: models 'pmf', "
            "'ordered-probit' and 'probit'; sort probability() or predict() instead"
        )

    def log_density(self, i, j, values) -> np.ndarray:
        """Return the log density of observed cells under every draw.

        It is what `bmfjax.compare` and `modes` score by. One number for every draw and cell
        outgrows everything else: ask for some cells at a time.

        Parameters
        ----------
        i, j : (cell,) int
            Positions of rows and columns.
        values : (cell,) float
            What was observed: 0 and 1 for models of these, else numbers or stars.

        Returns
        -------
        (draw, cell) float64
            Draws of all chains, the first chain's first.
        """
        i, j, values = (np.asarray(part) for part in (i, j, values))
        return self._log_density(i, j, values)

    def score_new(self, new, i, j, values, *, seed: int = 0) -> np.ndarray:
        """Return the log predictive density of further cells of new rows.

        Each is given the cells of its row that `new` observes and the fitted data. The usage of the
        new rows is inferred for every draw of everything else: of the Boolean model summed over all
        sets of factors up to rank 8, and drawn beyond; of matrix factorisations drawn. Of the
        relaxed and the nonnegative model it is the least-squares fit to what is observed, as Owen
        and Perry (2009, section 5) have it; of the logistic model its variational posterior, and
        drawn where the fit is by sampler "gibbs".

        Parameters
        ----------
        new : data of the fitted kind, or array
            As for `transform`; the cells that are scored are missing in it.
        i, j : (cell,) int
            Positions of rows in `new`, and of columns.
        values : (cell,) float
            What was observed there.
        seed : int
            Of usage that is drawn.

        Returns
        -------
        (cell,) float64

        Raises
        ------
        InputError
            For positions outside of the matrix, lists of different lengths, or observed values
            that the model does not have.

        References
        ----------
        Owen, Perry (2009), "Bi-cross-validation of the SVD and the nonnegative matrix
        factorization", Annals of Applied Statistics 3(2).

        Examples
        --------
        >>> import bmfjax, numpy as np
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> row = fit.data.dense()[:1].copy()
        >>> row[0, 13] = np.nan
        >>> bool(fit.score_new(row, [0], [13], [0.0])[0] < 0)
        True
        """
        i, j, values = _cells_of_new(self.data, new, i, j, values)
        self._check_observed(values)
        return self._score_new(new, i, j, values, checks.seed_number(seed))

    def score_rows(self, new, given=None, *, num_draws: int = 100, seed: int = 0) -> np.ndarray:
        r"""Return the log probability of whole new rows, or of some of their cells given others.

        It is joint over the cells of a row, not a sum over single cells. What belongs to a row
        alone, such as its usage, is summed or integrated out, and all draws are one mixture:

        .. math::
            \log p(x_Q \mid x_E) = \log \frac{1}{S} \sum_s p(x_Q, x_E \mid \theta_s)
            - \log \frac{1}{S} \sum_s p(x_E \mid \theta_s)

        For Boolean factors and their variants the sums over the states of a row are exact, which
        takes a rank of at most 14 (8 with layers; fewer with effects). For the logistic model
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
            Of importance sampling.

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
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
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

    def complete(self, new, *, num_draws: int = 100, seed: int = 0) -> np.ndarray:
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

        Returns
        -------
        (rows, columns) float64
            Observed cells as they are.

        Raises
        ------
        InputError
            For models of numbers and stars, or if a row has too many states to sum over.

        Examples
        --------
        >>> import bmfjax, numpy as np
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> row = fit.data.dense()[:1].copy()
        >>> row[0, [0, 13]] = np.nan
        >>> done = fit.complete(row)[0]
        >>> bool(done[0] > 0.5), bool(done[13] < 0.5)
        (True, True)
        """
        checks.whole("num_draws", num_draws)
        checks.seed_number(seed)
        new = self._new_rows(new)
        values = new.dense(np.float64)
        chance = whole_rows.mean_chance(self._row_terms(new, num_draws, True, seed))
        return np.where(np.isnan(values), chance, values)

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
        usage, basis = self.usage_draws, self.basis_draws
        # Packed draws of the whole matrix stay packed, and are formed one at a time.
        if is_all(rows, self.data.num_rows) and is_all(columns, self.data.num_columns):
            return usage, basis
        return usage[:, :, rows], basis[:, :, columns]

    # ---- what differs between families -----------------------------------------------------
    # Rows `i` and columns `j` are positions, (...) int.

    def _factors(self, i, j):
        """Return draws of the factors of some rows and columns, packed if they can be."""
        return self.product_draws(i, j)

    def _probability(self, i, j) -> np.ndarray:
        """Return the probability that an entry is truly a one, (rows, columns) float64."""
        return products.exceedance(*self._factors(i, j), level=0.5)

    def _noisy_probability(self, i, j) -> np.ndarray:
        """Return the probability that an observation is a one, (rows, columns) float64."""
        raise InputError(f"model {self.model!r} has no flip rates; {self._no_flips}")

    _no_flips: ClassVar[str] = "use predict() for its reconstruction"

    def _log_density(self, i, j, values) -> np.ndarray:
        """Return what `log_density` does, of arrays."""
        fits = cells.cell_draws(self, i, j)
        return scores.normal_density(values, fits, cells.noise_sd(self))

    def _score_new(self, new, i, j, values, seed) -> np.ndarray:
        """Return what `score_new` does, of arrays."""
        return scores.predictive(self._with_rows(new, seed), (i, j, values))

    def _check_observed(self, values) -> None:
        """Refuse values that no cell can have."""
        if (isinstance(self.data, BinaryMatrix) or self._is_of_ones) and (
            not np.isin(values, (0, 1)).all()
        ):
            raise InputError("values has a number other than 0 and 1; give what was observed")
        if not np.isfinite(values).all():
            raise InputError("values has numbers that are not finite; give what was observed")

    def _new_rows(self, new) -> BinaryMatrix:
        """Return new rows of ones and zeros, checked."""
        raise InputError(
            f"model {self.model!r} has no probabilities of whole rows, which are of ones and "
            "zeros: the Boolean models and 'logistic'; use score_new() for single cells"
        )

    def _row_terms(self, new, num_draws, chances, seed) -> Iterator[whole_rows.RowTerms]:
        """Yield what up to `num_draws` draws say of new rows, with chances of cells if wanted."""
        raise NotImplementedError

    def _spaced_draws(self, number) -> np.ndarray:
        """Return up to `number` draws, by their number among those of all chains."""
        chains, kept = self.usage_draws.shape[:2]
        return spaced(chains * kept, number, down=True)

    def _with_rows(self, new, seed) -> Fit:
        """Return a fit whose rows are new ones, for `log_density` alone."""
        raise NotImplementedError

    def _with_best_usage(self, new, upper: float) -> Fit:
        """Return `_with_rows` of the usage in [0, `upper`] that fits best, of up to 100 draws."""
        number = self.usage_draws.shape[0] * self.usage_draws.shape[1]
        chosen = spaced(number, products.NUM_FITTED, down=True)
        basis, others = (
            {n: v.reshape(1, number, *v.shape[2:])[:, chosen] for n, v in draws.items()}
            for draws in ({"basis": self.basis_draws}, self.other_draws)
        )
        usage = np.stack(list(products.best_usages(numbers(new), basis["basis"][0], upper=upper)))
        return dataclasses.replace(
            self, data=new, usage_draws=usage[None], basis_draws=basis["basis"], other_draws=others
        )

    #: What `log_density` is of: fits are compared where it is the same.
    scored: ClassVar[str] = "densities of numbers"

    def _predict(self, i, j, kind, level) -> np.ndarray:
        """Return what `predict` does, of positions."""
        usage, basis = self._factors(i, j)
        if kind == "interval":
            return products.interval(usage, basis, level)
        return products.moments(usage, basis)[kind == "sd"]

    def _check_kind(self, kind, noisy) -> None:
        """Refuse a kind of prediction that the model does not have."""
        if kind not in cells.KINDS:
            raise InputError(f"kind is {kind!r}; choose 'mean', 'sd', 'interval' or 'probability'")
        if noisy and kind not in self.noisy_kinds:
            raise InputError(self._no_noise.format(model=self.model, kind=kind))

    _no_noise: ClassVar[str] = "model {model!r} has no flip rates; leave noisy out"

    def _cells(self, i, j, kinds, level, noisy) -> dict[str, np.ndarray]:
        """Return predictions of cells, checked, each (..., cell) float64."""
        rng = np.random.default_rng(0) if noisy else None
        parts = [
            self._block(i[some], j[some], kinds, level, rng)
            for some in cells.blocks(len(i), self._width())
        ]
        return {kind: np.concatenate([part[kind] for part in parts], -1) for kind in kinds}

    def _width(self) -> int:
        """Return how many numbers are formed at once for each cell."""
        return self.usage_draws.shape[0] * self.usage_draws.shape[1]

    def _block(self, i, j, kinds, level, rng) -> dict[str, np.ndarray]:
        """Return predictions of cells whose draws are formed at once; with noise from `rng`."""
        values, found = cells.cell_draws(self, i, j), {}
        for kind in kinds:
            if kind == "probability":
                found[kind] = (values >= 0.5).mean(0)
            elif rng is not None:
                found[kind] = cells.with_normal_noise(self, values, kind, level, rng)
            else:
                found[kind] = cells.summarised(values, kind, level)
        return found

    @functools.cached_property
    def mixing(self) -> Mixing:
        """R-hat and effective draws of some entries of the reconstruction, computed once.

        Returns
        -------
        bmfjax.verdict.Mixing
            `rhat` and `ess`, (entry,) float64 of up to 1,000 entries, NaN where nothing moved; for
            Boolean factors of up to 500 uncertain entries, and `uncertain`, the share of these.
        """
        return mixing(informed(self.data), *self.product_draws(*map(np.arange, self.data.shape)))

    @functools.cached_property
    def spread(self) -> Coverage:
        """How far apart the solutions in the draws are, computed once.

        Returns
        -------
        bmfjax.diagnostics.Coverage
            Of the basis (Masood, Pan, Doshi-Velez 2016), by the largest angle between matched
            factors of two draws, in degrees.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> 0.0 <= fit.spread.mean <= fit.spread.largest <= 90.0
        True
        """
        return spread(self.basis_draws, signed=not self.is_signed)

    @functools.cached_property
    def modes(self) -> Modes:
        """Which solutions the draws are in, and their weights; computed once.

        Draws are in one mode if their mean factors are alike: the tiles of every factor, matched,
        have a cosine similarity of at least 0.8. Weights come from the evidence where the sampler
        estimates it, from the visits where chains move between modes, and else from stacking,
        which is approximate.

        Returns
        -------
        bmfjax.posterior.modes.Modes
            A sequence with `weights`, `weighted_by`, `common`, `table` and `sentence`; one mode of
            weight 1 where all draws have the same factors.

        Raises
        ------
        InputError
            Of models whose factors have either sign: of matrix factorisations the data determine
            only the product, and a variational fit is a mixture of its starts in equal parts.

        References
        ----------
        Yao, Vehtari, Gelman (2022), "Stacking for non-mixing Bayesian computations: the curse and
        blessing of multimodal posteriors", JMLR 23(79).

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> bool(abs(fit.modes.weights.sum() - 1) < 1e-12)
        True
        """
        if self.is_signed:
            raise InputError(f"model {self.model!r} has no modes: {self._no_modes}")
        return modes_of(self, verdict.RHAT_USABLE, self.verdict.remedy)

    _no_modes: ClassVar[str] = (
        "the data determine only the product of its factors; see verdict, agreement and spread"
    )

    def restricted(self, mode: int) -> Fit:
        """The fit of one mode alone: the draws that are in it, and what follows from them.

        Its verdict says that it is one mode only. Chains are cut to as many draws of each as leave
        most draws in all; a chain with few draws in the mode is left out.

        Parameters
        ----------
        mode : int
            Position in `modes`, from 0; those with larger weights come first.

        Returns
        -------
        Fit
            Factors in the order of the first mode.

        Raises
        ------
        InputError
            Where there is no such mode, or the model has no modes.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> str(fit.restricted(0).verdict).startswith("One mode")
        True
        """
        modes = self.modes
        if isinstance(mode, bool) or not isinstance(mode, int | np.integer):
            raise InputError(f"mode is {mode!r}; give a whole number")
        if not 0 <= mode < len(modes):
            raise InputError(f"mode is {mode}; give one from 0 to {len(modes) - 1}, of fit.modes")
        chains, draws = modes.rectangle(mode)
        order = modes.permutation[mode, chains]
        other = {
            n: self.in_order(n, v[chains[:, None], draws], order[:, None])
            for n, v in self.other_draws.items()
        }
        usage, basis = (
            chosen_draws(f, chains, draws, order) for f in (self.usage_draws, self.basis_draws)
        )
        found = dataclasses.replace(
            self,
            settings={**self.settings, "mode": f"{mode + 1} of {len(modes)}"},
            usage_draws=usage,
            basis_draws=basis,
            other_draws=other,
            trace={
                n: t[chains[:, None], self._kept_steps[draws]]
                for n, t in self.trace.items()
                if n not in OF_REPLICAS
            },
            agreement=agreement(usage.mean(1), basis.mean(1)),
        )
        return found._judged_alone(
            f"One mode of {len(modes)} alone, of weight {modes[mode].weight:.2f} "
            f"({modes.weighted_by})"
        )

    def _judged_alone(self, what: str) -> Fit:
        """Return a fit of one mode with its own figures, and `what` it is before its verdict."""
        whole = ("log_evidence", "round_trips")
        known = {n: v for n, v in self.figures.known().items() if not n.startswith(whole)}
        known |= {"num_warmup": 0, "thinning": 1, "num_draws": self.usage_draws.shape[1]}
        known |= {"coverage_largest": self.spread.largest, "coverage_mean": self.spread.mean}
        judged = verdict.of_chains(
            self.mixing, self.num_chains, self.figures.errors, self.agreement, self.trace,
            exact=self.figures.exact,
            empty=self._empty,
            # The limit itself is not kept with the fit; whether it was reached is.
            residual_floor=np.inf if self.figures.noise_free else 0.0,
            shared_starts=bool(self.figures.shared_starts),
            given_start=bool(self.figures.given_start),
            # What helps the whole fit helps here; a mode in one chain alone is no lack of chains.
            tried=verdict.Tried(
                draws=int(self.figures.num_draws),
                rank=1 if "rank" in self.trace else self.rank,
                remedy=self.verdict.remedy,
            ),
        )  # fmt: skip
        figures = Figures(**(known | judged.figures.known()))
        judged = dataclasses.replace(judged, scope=what, figures=figures)
        if self.figures.rank_bounded is not None:
            bound, most = int(self.settings["rank"]), min(self.data.shape)
            cramped = bool(self.figures.rank_cramped)
            judged = verdict.with_bound(judged, self.rank_draws, bound, most, cramped=cramped)
        return self._judged(judged)

    def _judged(self, judged: Verdict) -> Fit:
        """Return the fit with another verdict, and what was computed from its draws."""
        found = dataclasses.replace(self, verdict=judged)
        computed = vars(self).keys() - {one.name for one in fields(self)} - {"_summary"}
        vars(found).update({name: vars(self)[name] for name in computed})
        return found

    @property
    def _kept_steps(self) -> np.ndarray:
        """Steps of the trace after which draws were kept, (draw,) int."""
        every = max(1, int(self.figures.thinning))
        kept = self.usage_draws.shape[1]
        return int(self.figures.num_warmup) + every * np.arange(1, kept + 1) - 1

    def kept_trace(self, name: str) -> np.ndarray:
        """Return the trace of a scalar at the kept draws, (chain, draw)."""
        return self.trace[name][:, self._kept_steps]

    @property
    def _is_small(self) -> bool:
        """Whether the whole matrix is formed without being asked for."""
        return self.data.num_rows * self.data.num_columns <= MAX_ENTRIES

    @functools.cached_property
    def _whole_probability(self) -> np.ndarray:
        """Probabilities of all entries of a small matrix; computed once."""
        return self._probability(*map(np.arange, self.data.shape))

    def transform(self, new_rows) -> np.ndarray:
        r"""Usage of new rows, given the fitted basis.

        For the Boolean model the posterior mean given draws of everything else, which the new rows
        do not change: exact for each draw up to rank 8, else from a few Gibbs sweeps. So it is for
        its variants, but for "ormachine-effects", whose rows have effects that are drawn, too. For
        the relaxed model, for every kept draw of the basis, the usage in [0, 1] that fits the new
        rows best (the mode under a uniform prior), averaged over the draws; for the nonnegative
        model the same without the upper bound. For the logistic model the mean of the variational
        posterior, averaged over the starts (zero, that of the prior, for a row of which nothing is
        observed), and by sampler "gibbs" the mean of draws given every kept draw, each from a few
        sweeps. Of "pmf" and the probit models the posterior mean, from `given_new`, which has its
        spread and predictions as well.

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
        raise NotImplementedError

    # ---- Boolean factors -------------------------------------------------------------------

    def binarize(self, method: str = "map") -> tuple[np.ndarray, np.ndarray]:
        """Boolean factors by one of four rules, all chosen without a known truth.

        Parameters
        ----------
        method : {"map", "expected", "threshold", "pairs"}
            "map": most probable given the matrix, under two flip rates and a density of each
            factor's own, started at every chain's means
            (`bmfjax.diagnostics.most_probable_factors`; what `usage_binary` holds). Of variants of
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
        return self._rounded()

    @property
    def usage_binary(self) -> np.ndarray:
        """The most probable Boolean factors, (rows, rank) bool; see `binarize`."""
        return self._rounded()[0]

    @property
    def basis_binary(self) -> np.ndarray:
        """The same, (columns, rank) bool."""
        return self._rounded()[1]

    #: Which factors have no tile when rounded, (rank,) bool; None where none are rounded.
    _empty = None

    def _rounded(self):
        raise InputError(
            f"model {self.model!r} has real factors, which are not rounded to 0 and 1; use usage "
            "and basis, probability() or predict()"
        )

    def tiles(self, fdr: float = 0.05, *, all: bool = False, members: bool = False) -> pd.DataFrame:
        r"""Return the tiles that are kept at a false discovery rate: those that are real.

        Of the Boolean model, its variants but "hamming", and the relaxed model. The tile
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
            Return a line for each row and column of each tile instead.

        Returns
        -------
        pandas.DataFrame
            By `factor`, counted from 1: `probability` that the tile is real; `kept`, bool; `rows`
            and `columns`, numbers of members; `density`, the share of ones among the observed
            entries; `bound`, at most how likely noise alone holds such a tile somewhere
            (`bmfjax.diagnostics.density_bound`, with the ones outside of the other tiles for
            noise), which is no posterior probability; `chains`, how many have the tile in at least
            half of their draws; `remarks`, joined by commas: "robust" (a probability of at
            least 1 - `fdr`, found by all chains and without other remarks), "empty", "redundant"
            (other factors cover it), "low support" (`bound` is above `fdr`), "found by some chains
            only" (not by all, and the shares of two chains differ by at least one half). No lines
            where no tile is kept.

            Printed, it has all columns.

            With `members` these columns again, and `side`, "row" or "column"; `name`; `member`,
            whether it is in the tile; `membership`, the probability that it belongs to the tile,
            given that the tile is real; `lower` and `upper`, a 90 % interval that says how well
            the draws know `membership`. Lines that are no members are listed from a membership of
            0.05 on, and with `all` an empty factor has a line without a name. Where some factors
            are known, the last column, `anchor`, is their name, "" for others.

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
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> fit.tiles(fdr=0.05).columns.tolist()
        ['probability', 'kept', 'rows', 'columns', 'density', 'bound', 'chains', 'remarks']
        >>> len(fit.tiles(fdr=0.05, all=True))
        2
        >>> members = fit.tiles(all=True, members=True)
        >>> bool(members.query("member")["membership"].between(0, 1).all())
        True
        """
        for name, value in (("all", all), ("members", members)):
            checks.switch(name, value)
        table = self._with_anchors(self._tiles(fdr, members))
        if not all:
            table = table[table["kept"]]
        # Lines of members are counted; those of tiles have the number of their factor.
        return trust.WholeTable(table.reset_index(drop=True) if members else table)

    def _tiles(self, fdr, members) -> pd.DataFrame:
        """Return what `tiles` does of all factors."""
        raise InputError(
            f"model {self.model!r} has no tiles: its factors are real numbers; use summary(), or "
            "fit model 'ormachine' or 'relaxed'"
        )

    @property
    def doubts(self) -> str:
        """One sentence: which factors are no tiles to trust at a false discovery rate of 0.05.

        Empty where all are, and of models whose factors are no tiles; see `tiles`.
        """
        return ""

    def layer(self, number: int) -> Layer:
        """Say which factors of the layer below the factors of a layer join.

        Of model "deep-ormachine", whose layers above the first are factorisations of the usage of
        the layer below.

        Parameters
        ----------
        number : int
            From 1, the layer of the data.

        Returns
        -------
        Layer
            Posterior means of its `usage` and `basis`, and of `columns`, its factors as they
            appear in the data.

        Raises
        ------
        InputError
            For a layer that there is not, and of models without layers.
        """
        raise InputError(
            f"model {self.model!r} has no layers; fit model 'deep-ormachine', or use usage "
            "and basis"
        )

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
            entries, and `rows`, `columns`: how many are two standard deviations from zero. Where
            some factors are known, `anchor` is their name, "" for others.
        """
        return self._summary.copy()

    @functools.cached_property
    def _summary(self) -> pd.DataFrame:
        """The table of `summary`; computed once."""
        frame = self._with_anchors(pd.DataFrame(self._table()).set_index("factor"))
        frame.attrs = {k: v for k, v in self._scalars().items() if np.ndim(v) == 0}
        return frame

    def _scalars(self) -> dict[str, Any]:
        """Return the figures as plain values, with the words of the verdict."""
        words = {"remedy": self.verdict.remedy, "verdict": str(self.verdict)}
        return self.figures.known() | words

    def _table(self) -> list[dict]:
        """Return a line for each factor, of real numbers."""
        table = []
        for k in range(self.rank):
            usage, basis = self.usage[:, k], self.basis[:, k]
            sd = self.usage_sd[:, k], self.basis_sd[:, k]
            table.append(
                {
                    "factor": k + 1,
                    "size": float(np.sqrt((usage**2).mean() * (basis**2).mean())),
                    "rows": int((abs(usage) > 2 * sd[0]).sum()),
                    "columns": int((abs(basis) > 2 * sd[1]).sum()),
                    "agreement": float(self.agreement[k]),
                    "sd": float(np.concatenate(sd).mean()),
                }
            )
        return table

    def __repr__(self) -> str:
        rows, columns = self.data.shape
        name = f" of {self.data.name}" if self.data.name else ""
        return (
            f"Fit({self.model} by {self.sampler}{name}, {rows} x {columns}, rank {self.rank}, "
            f"{self.num_chains} chains x {self.usage_draws.shape[1]} kept draws)\n{self.verdict}"
            + f"\n{self.doubts}"
            * bool(self.doubts)
        )

    def _repr_html_(self) -> str:
        return interop.notebook_html(self)

    # ---- for other programs ------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """Return both factor matrices as one table, a line for each name and factor.

        Returns
        -------
        pandas.DataFrame
            `side`, "row" or "column"; `name`; `factor` (`factor_names`); `mean` and `sd` of the
            posterior; and where factors are Boolean, or are rounded to such, `member`, whether the
            row or column is in the factor. ``bmfjax fit --export csv`` writes it.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> table = fit.to_frame()
        >>> wide = table.query("side == 'row'").pivot(index="name", columns="factor", values="mean")
        >>> table.columns.tolist(), wide.shape
        (['side', 'name', 'factor', 'mean', 'sd', 'member'], (18, 2))
        """
        return interop.factors_frame(self)

    def to_anndata(self, adata=None, *, key: str = "bmf", overwrite: bool = False):
        """Put the factors into an AnnData object, rows as observations and columns as variables.

        Rows and columns are found by name, and by their order where the fit has no names. The
        object may have further ones: there means are NaN, and Boolean factors False.

        Parameters
        ----------
        adata : anndata.AnnData, optional
            The object to add to, in place; default a new one with the data as X. Needs the extra
            ``bmfjax[h5ad]``.
        key : str
            Its part of the names below.
        overwrite : bool
            Replace what the object has under these names.

        Returns
        -------
        anndata.AnnData
            The object, with ``obsm["X_bmf"]`` and ``varm["bmf_basis"]``, posterior means
            (observations, rank) and (variables, rank); ``obsm["bmf_usage_sd"]`` and
            ``varm["bmf_basis_sd"]``; of Boolean factors ``obsm["bmf_usage_binary"]`` and
            ``varm["bmf_basis_binary"]``, bool; and ``uns["bmf"]`` with the model, the sampler, the
            verdict, the factors' names, figures and settings.

        Raises
        ------
        InputError
            If rows or columns of the fit are not in the object, if a name is taken, or if anndata
            is not installed.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> adata = fit.to_anndata()
        >>> adata.obsm["X_bmf"].shape, adata.varm["bmf_basis"].shape, adata.uns["bmf"]["model"]
        ((18, 2), (14, 2), 'ormachine')
        """
        return interop.to_anndata(self, adata, key, overwrite)

    @functools.cached_property
    def idata(self) -> Any:
        """ArviZ container: `posterior`, `sample_stats`, `observed_data`; see `to_arviz`."""
        return self.to_arviz()

    def to_arviz(
        self,
        *,
        log_likelihood: bool = False,
        log_prior: bool = False,
        posterior_predictive: bool = False,
        entries: int | None = None,
        seed: int = 0,
    ) -> Any:
        """Return an ArviZ container with what its functions of prediction and of the prior need.

        With `log_likelihood`, ``az.loo`` and ``az.compare`` work, and with ArviZ 1.x
        ``az.loo_subsample``, see `bmfjax.log_likelihood_fn`. With `posterior_predictive` beside it
        ``az.loo_pit`` works, and with `log_prior` beside it ``az.psense`` (``az.psens`` of ArviZ
        0.23). Observed entries are then listed along the axis `entry`, and missing ones left out;
        the coordinates `row` and `column` are their positions.

        Draws of a variational fit are independent and have one axis, `sample`, with the start of
        each as a coordinate. ArviZ 0.23 and the functions above know chains alone: for these they
        are one chain.

        Parameters
        ----------
        log_likelihood : bool
            Add the log density of every listed entry under every draw. Up to 33,554,432 numbers are
            formed; of more they are formed when they are read, some entries at a time.
        log_prior : bool
            Add the log prior density of every draw, one number, hyperparameters included; see
            `log_prior`. Of a variational fit also `log_p`, the log joint density, and `log_q`, that
            of the approximation, in `sample_stats`, for ``az.loo_approximate_posterior`` of
            ArviZ 1.x.
        posterior_predictive : bool
            Add an observation of every listed entry from every draw, noise included.
        entries : int, optional
            List so many observed entries, drawn at random; default all, up to 10^7.
        seed : int
            Of these, and of the observations that are drawn.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)

        Raises
        ------
        InputError
            More numbers than are formed, or a fit whose draws do not tell its prior.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> idata = fit.to_arviz(log_likelihood=True)
        >>> dict(idata["log_likelihood"]["data"].sizes)
        {'chain': 2, 'draw': 100, 'entry': 252}
        """
        groups = groups_of(
            self,
            self._arviz_groups(),
            log_likelihood=log_likelihood,
            log_prior=log_prior,
            posterior_predictive=posterior_predictive,
            entries=entries,
            seed=seed,
        )
        return container(groups)

    def log_prior(self) -> np.ndarray:
        r"""Return the log prior density of every draw, all that is drawn included.

        It is what the sampler reports as the log joint density less the log likelihood of all
        observed entries,

        .. math:: \log p(\theta_s) = \log p(\theta_s, D) - \sum_i \log p(x_i \mid \theta_s),

        of the parameters as the sampler has them: of matrix factorisations before factors are
        turned. Rounding in float32 leaves an error of about 10^-6 of the log joint density.

        Returns
        -------
        (chain, draw) float64

        Raises
        ------
        InputError
            Where the draws that are kept are not all that the prior is of: after ``rank="auto"``,
            which leaves out factors, and for new rows or columns; and of more than 10^7 entries.
        """
        for name, what in (("finds_rank", "rank='auto' leaves out"), ("given_new", "is without")):
            if name in self.settings:
                raise InputError(
                    f"the fit {what} some of what the prior is of, so that its draws do not tell "
                    "log_prior; fit a given rank to the data"
                )
        return self._log_prior()

    def _log_prior(self) -> np.ndarray:
        """Return what `log_prior` does."""
        return self.kept_trace("log_joint") - total_density(self).reshape(self.num_chains, -1)

    def log_proposal(self) -> np.ndarray:
        """Return the log density of every draw under what it was drawn from, (chain, draw) float64.

        Of a variational fit: the mixture of its starts. Beside `log_prior` it is what
        ``az.loo_approximate_posterior`` of ArviZ 1.x corrects by; see `to_arviz`.

        Raises
        ------
        InputError
            Of chains, which draw from the posterior, whose density is not known.
        """
        raise InputError(
            f"model {self.model!r} is sampled by chains, and the density of their draws is not "
            "known; use az.loo, which needs none"
        )

    def replicates(self, i, j, seed: int = 0) -> np.ndarray:
        """Return an observation of each of some cells from every draw, noise included.

        Parameters
        ----------
        i, j : (cell,) int
            Positions of rows and columns.
        seed : int

        Returns
        -------
        (draw, cell) float64
            Draws of all chains, the first chain's first.
        """
        rng = np.random.default_rng(checks.seed_number(seed))
        return self._replicates(np.asarray(i), np.asarray(j), rng)

    def _replicates(self, i, j, rng) -> np.ndarray:
        """Return what `replicates` does, from normal noise."""
        fits = cells.cell_draws(self, i, j)
        return fits + cells.noise_sd(self)[:, None] * rng.standard_normal(fits.shape)

    def _arviz_groups(self) -> dict[str, Any]:
        """Return the arguments of `to_inference_data`."""
        last = self._kept_steps
        # The trace of a variational fit is of its optimisation, and not of draws.
        trace = {} if self.approximation else self.trace
        # Numbers, as in `summary`; names where some are known.
        factors = list(range(1, self.rank + 1) if self.anchors is None else self.factor_names)
        return dict(
            # Draws that are packed stay so until they are read.
            posterior={"usage": self.usage_draws, "basis": self.basis_draws, **self.other_draws},
            sample_stats={("lp" if n == "log_joint" else n): t[:, last] for n, t in trace.items()},
            observed_data={"data": self.data.dense()} if self._is_small else None,
            dims={
                "usage": ["rows", "factor"],
                "basis": ["columns", "factor"],
                "data": ["rows", "columns"],
                **self.dims,
            },
            coords={
                "rows": list(self.data.row_names),
                "columns": list(self.data.column_names),
                "factor": factors,
                "other_factor": factors,
            },
            attrs={
                "model": self.model,
                "sampler": self.sampler,
                "verdict": str(self.verdict),
                **self._standard_attributes,
                # How many iterates a draw averages, of a sampler that does.
                **({} if self.figures.window is None else {"window": self.figures.window}),
            },
        )

    @property
    def _standard_attributes(self) -> dict[str, Any]:
        """Attributes of a posterior that ArviZ has names for."""
        seconds = self.figures.seconds
        version = self.versions.get("bmfjax")
        return standard_attributes("bmfjax", version, seconds)

    def __getstate__(self) -> dict:
        # Copies and pickles hold the fit itself, and not what was computed from it.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of_model(cls, model: str) -> type[Fit] | None:
        """Return the class of the fits of a model.

        Parameters
        ----------
        model : str
            As of `bmfjax.fit`.

        Returns
        -------
        type or None
            None where there is no such model.

        Examples
        --------
        >>> import bmfjax
        >>> bmfjax.Fit.of_model("nmf").__name__
        'NonnegativeFit'
        """
        if model in cls.models:
            return cls
        return next((c for k in cls.__subclasses__() if (c := k.of_model(model))), None)

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
        return write_report(self, path, overwrite=overwrite)

    def save(self, directory, *, overwrite: bool = False):
        """Write the fit: data, factors, posterior draws, probabilities, summary.

        Probabilities of all entries are written for binary matrices of up to 10^7 entries. Where
        the draws cannot be written as netCDF a warning says so, and they are in `posterior.npz`.

        Parameters
        ----------
        directory : path
            Made where it does not exist.
        overwrite : bool
            Replace a fit that is there, its page included. Files that no fit wrote stay.

        Returns
        -------
        pathlib.Path
            The directory.

        Raises
        ------
        InputError
            Where the directory has no name or holds another fit, a file that no fit wrote is in the
            way, a run writes to the directory, or it cannot be written to; an older fit then stays
            as it is.

        Examples
        --------
        >>> import tempfile, bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = bmfjax.Fit.load(fit.save(folder + "/davis"))
        >>> bool((again.usage_draws[:] == fit.usage_draws[:]).all())
        True
        """
        if not os.fspath(directory):
            raise InputError("directory is empty; give the name of a directory")
        with store.opened(directory, overwrite) as folder:
            missing = store.write(self.record(), folder)
        for said in missing:
            warnings.warn(said, stacklevel=2)
        return folder

    @staticmethod
    def load(directory) -> Fit:
        """Read a fit that `save` or the command line wrote.

        Raises
        ------
        InputError
            Where the directory holds no fit or a file is damaged.
        """
        record = store.read(directory)
        kind = Fit.of_model(record.summary["model"])
        if kind is None:
            raise InputError(
                f"the fit in {directory} is of model {record.summary['model']!r}, which this "
                "version does not have; fit again"
            )
        with store.refusing_damaged(directory), reading_stored(Path(directory) / "summary.json"):
            return kind._of_record(record)

    def record(self, *, probability: bool = False) -> store.Record:
        """Return plain values of the fit, as they are written to its directory.

        Parameters
        ----------
        probability : bool
            Include the probability of every entry also of a matrix of more than 10^7 entries.

        Returns
        -------
        bmfjax.store.Record
        """
        rows, columns = self.data.shape
        chance = None
        # A fit of ones and zeros as numbers has no probability of a one.
        if isinstance(self.data, BinaryMatrix) and self._is_of_ones:
            if self._is_small:
                chance = self._whole_probability
            elif probability:
                chance = self._probability(np.arange(rows), np.arange(columns))
        groups = datasets(**self._arviz_groups(), lazily=True)
        return store.Record(self.data, self._texts(), self._arrays(), groups, chance)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a record that are not draws."""
        means = {n: d.mean((0, 1)) for n, d in self.other_draws.items() if n.endswith("_effect")}
        binary = {} if self.is_real else {f"{n}_binary": getattr(self.binary, n) for n in FACTORS}
        return {
            "usage": self.usage,
            "basis": self.basis,
            "usage_sd": self.usage_sd,
            "basis_sd": self.basis_sd,
            "agreement": self.agreement,
            "row_names": np.array(self.data.row_names),
            "column_names": np.array(self.data.column_names),
            **{f"trace_{n}": t for n, t in self.trace.items()},
            **{f"approximation_{n}": a for n, a in self.approximation.items()},
            **means,
            **binary,
            **({} if self.anchors is None else {"anchors": self.anchors.values}),
            **{
                f"{side}_attributes_{n}": a
                for side, own in self.attributes.items()
                for n, a in own.arrays().items()
            },
        }

    def _texts(self) -> dict[str, Any]:
        """Return the texts and numbers of a record."""
        return {
            "verdict": str(self.verdict),
            "judged": self.verdict.stored(),
            "model": self.model,
            "sampler": self.sampler,
            "data": {
                "name": self.data.name,
                "rows": self.data.num_rows,
                "columns": self.data.num_columns,
                "ones": getattr(self.data, "num_ones", None),
                "missing": self.data.num_missing,
                "fingerprint": self.data.fingerprint(),
            },
            "settings": self.settings,
            "scalars": self._scalars(),
            "factors": self._summary.reset_index().to_dict("records"),
            "versions": self.versions,
        }

    @classmethod
    def _of_record(cls, record: store.Record) -> Fit:
        """Return the fit that a record was made of."""
        summary, arrays = record.summary, record.factors
        posterior = record.posterior["posterior"]
        draws = {n: posterior[n].values for n in posterior}
        usage, basis = (cls._as_kept(draws.pop(n)) for n in FACTORS)
        binary = None
        if "usage_binary" in arrays:
            rounded = (arrays[f"{n}_binary"] for n in FACTORS)
            binary = Binarized(*rounded, summary["scalars"].get("expected_errors", np.nan))
        trace, approximation = (
            {n.removeprefix(start): arrays[n] for n in arrays if n.startswith(start)}
            for start in ("trace_", "approximation_")
        )
        anchors = None
        if "anchors" in arrays:
            anchors = Anchors(tuple(summary["settings"]["anchors"]["names"]), arrays["anchors"])
        return cls(
            data=record.data,
            usage_draws=usage,
            basis_draws=basis,
            other_draws=draws,
            trace=trace,
            agreement=arrays["agreement"],
            binary=binary,
            approximation=approximation,
            anchors=anchors,
            attributes={
                side: Attributes.of_arrays(
                    {n: arrays[f"{side}_attributes_{n}"] for n in Attributes._fields}
                )
                for side in ("row", "column")
                if f"{side}_attributes_centre" in arrays
            },
            verdict=Verdict.of_stored(summary),
            **{n: summary[n] for n in ("model", "sampler", "settings", "versions")},
        )

    @staticmethod
    def _as_kept(draws: np.ndarray):
        """Return draws that were read as the fit keeps them."""
        return draws


def _cells_of_new(data, new, i, j, values) -> tuple[np.ndarray, ...]:
    """Return positions and values of cells of new rows, checked."""
    i, j = np.asarray(i), np.asarray(j)
    if i.shape != j.shape or i.ndim != 1:
        raise InputError(
            f"i has shape {i.shape} and j {j.shape}; give one list each, of a position a cell"
        )
    values = checks.numeric("values", values, i.shape, float)
    number = new.num_rows if hasattr(new, "num_rows") else np.shape(new)[0]
    for name, at, size in (("i", i, number), ("j", j, data.num_columns)):
        if at.dtype.kind not in "iu" or ((at < 0) | (at >= size)).any():
            raise InputError(f"{name} has a value that is no position from 0 to {size - 1}")
    return i, j, values
