"""What a fit returns: aligned factors, their uncertainty, and whether to trust them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from bmfjax import store
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.data.anchors import Anchors
from bmfjax.data.io.stored import reading_stored
from bmfjax.diagnostics import Binarized, Coverage
from bmfjax.errors import did_you_mean, kind_of, with_calls_checked
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.posterior import cells, products
from bmfjax.posterior.held_out import HeldOut
from bmfjax.posterior.model_check import LeftOut, ModelCheck, left_out, model_check
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.scores import MAX_SCORED
from bmfjax.posterior.searches import SearchCounts, count_searches
from bmfjax.posterior.selection import MAX_ENTRIES, informed
from bmfjax.report.section import Page
from bmfjax.result.exports import ExportsMixin
from bmfjax.result.predictions import PREDICTED, PredictionsMixin
from bmfjax.result.stacked import StackingMixin
from bmfjax.result.stored import StoredMixin
from bmfjax.specs.base import AUTO
from bmfjax.verdict import FACTOR_NAMES, Figures, Mixing, Verdict, mixing, spread
from bmfjax.verdict.undrawn import of_draws, warn_undrawn


def _renamed(figures: Figures, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the factors that hold, and those that do not, by other names."""
    if figures.factors_holding is None or not names:
        return {}
    return {
        what: tuple(names.get(k, k) for k in known)
        for what in FACTOR_NAMES
        if (known := getattr(figures, what)) is not None
    }


class NotOfModelError(InputError, AttributeError):
    """A name that fits of a model lack; `hasattr` is False for it."""


#: What replaced names of earlier versions.
_REPLACED = {
    "scalars": "figures",
    "log_density": "to_arviz(log_likelihood=True), or fit.score_new()",
    "rank_draws": "plot.rank() or rank_probabilities",
    "precision_draws": "other_draws['precision']",
    "rate_draws": "other_draws['rate']",
    "is_real": "binary is None",
}
#: What to use in place of what a fit lacks.
_INSTEAD = {
    "tiles": "; use summary()",
    "modes": "; see verdict, agreement and spread",
    "recommend": "; sort predict()",
    "given_new": "; use transform()",
    "score_rows": "; use score_new() for single cells",
    "complete": "; use score_new() for single cells",
    "probability": "; use predict()",
    "usage_binary": "; use usage",
    "basis_binary": "; use basis",
    "binarize": "; use usage and basis",
    "log_proposal": " by variational inference; az.loo needs none",
}


@dataclass(frozen=True, repr=False)
class Fit(PredictionsMixin, ExportsMixin, StackingMixin, StoredMixin):
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
        Smallest cosine similarity of a factor's tile in the mean of some chains and of the others.
    verdict : bmfjax.verdict.Verdict
        Whether this run can be trusted, why, and what to try next: `status`, `reasons`, `remedy`
        and more; its `str` is one sentence.
    binary : Binarized or None
        The most probable Boolean factors, `usage_binary` and `basis_binary`; None where factors are
        real numbers of either sign.
    anchors : bmfjax.data.anchors.Anchors or None
        `names` and `values` of known factors, which are the first of all.

    Examples
    --------
    >>> import bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
    ...     progress=False,
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

    anchors: Anchors | None = None

    #: What independent searches had found before chains took over the end of another one.
    _search_ends: SearchEnds | None = None

    #: Names of the models whose fits are of this class.
    _models: ClassVar[tuple[str, ...]] = ()
    #: Axes of its sites besides `usage` and `basis`, for ArviZ.
    _dims: ClassVar[Mapping[str, Sequence[str]]] = {}
    #: Whether factors are Boolean, and whether real ones have either sign.
    _is_boolean: ClassVar[bool] = False
    _is_signed: ClassVar[bool] = True
    #: Whether the data determine the factors, and draws may be in several modes.
    _has_modes: ClassVar[bool] = False
    #: Whether a factor is the same where all rows change sides, and its weights their signs.
    _turns: ClassVar[bool] = False
    #: Whether entries of the reconstruction predict probabilities of a one, and are no bits.
    _predicts_chances: ClassVar[bool] = False
    #: What the reconstruction is, where it is on another scale than the data.
    _predicts_of: ClassVar[str | None] = None
    #: Whether log scores of entries are bounded, as those of bits that are flipped are.
    _has_bounded_scores: ClassVar[bool] = False
    #: In a fit that finds the number of factors: which of them count, and what is believed of their
    #: number beforehand, where {most} are the most.
    _counts_as_factor: ClassVar[str] = ""
    #: Which of them it has.
    _shown_factors: ClassVar[str] = "that at least half of the draws use"
    _ranks_beforehand: ClassVar[str] = ""
    #: What is predicted of a single cell, of a noisy observation of it, and of an observation whose
    #: noise is in the probability already (None where it is not).
    _kinds: ClassVar[tuple[str, ...]] = cells.KINDS
    _noisy_kinds: ClassVar[tuple[str, ...]] = PREDICTED
    #: Whether entries have a probability of a one, and draws are those of an approximation.
    _is_of_ones: ClassVar[bool] = False
    _is_variational: ClassVar[bool] = False
    #: Facts, sections and words of the report.
    _page: ClassVar[Page]

    def __init_subclass__(cls, **more) -> None:
        super().__init_subclass__(**more)
        with_calls_checked(cls, "fit")

    @classmethod
    def _in_order(cls, name: str, values: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Return draws of a site with its factors, if it has these, in an order.

        `order` is (rank,) or (chain, draw, rank), which broadcasts against the draws.

        Examples
        --------
        >>> import bmfjax
        >>> kind = bmfjax.Fit._of_model("ormachine")
        >>> kind._in_order("usage_density", np.array([[[0.1, 0.2]]]), np.array([1, 0])).tolist()
        [[[0.2, 0.1]]]
        """
        axes = list(cls._dims.get(name, ()))
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
    def _rank_draws(self) -> np.ndarray | None:
        """Draws of the number of factors, (chain, draw) int, of a fit with ``rank="auto"``.

        In the logistic model a chain is a start. Other fits count at every step after the warm-up.
        """
        if "rank" in self.other_draws:
            return self.other_draws["rank"]
        if "rank" not in self.trace:
            return None
        return self.trace["rank"][:, int(self.figures.num_warmup) :]

    @property
    def rank_probabilities(self) -> dict[int, float] | None:
        """Posterior probability of every number of factors that was drawn.

        For a fit with ``rank="auto"`` that has drawn, else None.

        In the Boolean model a factor counts where it has ones in both matrices. Beforehand all
        numbers of factors that are there, up to the most, `max_rank`, are equally probable; a few
        of these may be empty, and then do not count. So it is for "features": one that is there
        counts where it has rows and columns.

        In other models every one of `max_rank` factors is there, with a scale that is learned. It
        counts in a draw where it adds more to the product than a factor that fits noise alone
        would, noise of the size that the draw has (`bmfjax.kernels.used_factors`). So these are
        probabilities of how many factors stand out of the noise, under the one model with
        `max_rank` factors. They are not those of models of different rank, and a factor weaker than
        the noise does not count, even where it is real.

        In the logistic model the draws are of a variational approximation, and of every start as
        many. It is too narrow, and these probabilities are nearer to zero and one than those of the
        posterior: see whether the starts agree, as ``fit.plot.rank()`` shows.

        Examples
        --------
        >>> import bmfjax
        >>> data = np.kron(np.eye(3), np.ones((10, 8)))
        >>> fit = bmfjax.fit(
        ...     data, bmfjax.OrMachine("auto", max_rank=6), num_chains=2, num_warmup=150,
        ...     num_samples=150, progress=False,
        ... )  # fmt: skip
        >>> max(fit.rank_probabilities, key=fit.rank_probabilities.get)
        3
        """
        warn_undrawn(self)
        return None if self.verdict.is_of_starts else self._rank_probabilities

    @property
    def _rank_probabilities(self) -> dict[int, float] | None:
        drawn = self._rank_draws
        if drawn is None:
            return None
        numbers, counts = np.unique(drawn, return_counts=True)
        return {int(n): float(c / counts.sum()) for n, c in zip(numbers, counts, strict=True)}

    @property
    def rank(self) -> int:
        """Number of factors that the fit shows.

        With ``rank="auto"`` that is no estimate: it shows every factor that at least half of the
        draws use, of binary features a tenth, and of ratings any others that predictions need. How
        many there are say `rank_probabilities`, and the verdict in `verdict.number`.
        """
        return self.usage_draws.shape[-1]

    @property
    def _finds_rank(self) -> bool:
        """Whether the number of factors was to be found."""
        # As earlier versions stored it.
        return self.settings.get("rank") == AUTO or "finds_rank" in self.settings

    @property
    def _most_factors(self) -> int:
        """The most factors that there could be, or the number that was given."""
        return int(self.settings.get("max_rank") or self.settings["rank"])

    def _settings_then(self, then: str) -> dict[str, Any]:
        """Return the settings of what is made of the fit: its call goes on."""
        found = dict(self.settings)
        return found | ({"call": found["call"] + then} if "call" in found else {})

    @property
    def _num_anchors(self) -> int:
        """Number of known factors."""
        return 0 if self.anchors is None else self.anchors.number

    @property
    def factor_names(self) -> tuple[str, ...]:
        """A name for each factor: as `rename` or a known factor has it, else such as "factor 3"."""
        return tuple(self._given_names.get(k, f"factor {k}") for k in range(1, self.rank + 1))

    @property
    def _given_names(self) -> dict[int, str]:
        """Names of factors by their number, of those that have one."""
        known = () if self.anchors is None else self.anchors.names
        given = {int(k): name for k, name in self.settings.get("factor_names", {}).items()}
        return dict(enumerate(known, 1)) | given

    def rename(self, names: Mapping[int, str]) -> Self:
        """Return the fit with names for some of its factors.

        The report, tables, the verdict, drawings, ArviZ, AnnData and a saved fit have them. Factors
        without a name keep their number.

        Parameters
        ----------
        names : mapping of int to str
            Names by the number of the factor, counted from 1, as in `summary`.

        Returns
        -------
        Fit

        Raises
        ------
        InputError
            For a number that no factor has, or a name that is empty or that another factor has. A
            factor without a name has its number as one.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> fit.rename({1: "the elder"}).factor_names
        ('the elder', 'factor 2')
        """
        if not isinstance(names, Mapping):
            raise InputError(
                f"names is {kind_of(names)}; give a mapping of numbers of factors to "
                "names, such as {1: 'a name'}"
            )
        given = {}
        for k, name in names.items():
            if isinstance(k, bool) or k not in range(1, self.rank + 1):
                raise InputError(f"names has {k!r}; give numbers of factors, 1 to {self.rank}")
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"the name of factor {k} is {name!r}; give a text")
            given[str(int(k))] = name
        given = self.settings.get("factor_names", {}) | given
        found = dataclasses.replace(self, settings={**self.settings, "factor_names": given})
        for names in (found.factor_names, found._factor_titles):
            if len(set(names)) < self.rank:
                raise InputError(f"names gives two factors one name: {', '.join(names)}")
        before = dict(zip(self._factor_titles, found._factor_titles, strict=True))
        return found._judged(self.verdict.changed(**_renamed(self.figures, before)))

    @property
    def _factor_titles(self) -> tuple[str, ...]:
        """What stands beside a factor in a drawing: its name, or its number where it has none."""
        return tuple(self._given_names.get(k, str(k)) for k in range(1, self.rank + 1))

    def _named(self, figures: Figures) -> dict[str, tuple[str, ...]]:
        """Return the factors that hold, and those that do not, by their names if they have one."""
        return _renamed(figures, {str(k): name for k, name in self._given_names.items()})

    def _with_names(self, table: pd.DataFrame) -> pd.DataFrame:
        """Add to a table by factor in how many searches each is, and its name, "" without one.

        The columns are `searches`, where each search kept its own end, <NA> for an empty factor,
        `anchor` for known factors, and `factor_name` if any have been renamed.
        """
        numbers = table.get("factor", table.index)
        if self.figures.factors_searches is not None:
            empty = np.zeros(self.rank, bool) if self._empty is None else self._empty
            found = np.where(empty, None, self.figures.factors_searches)
            found = pd.array([found[int(k) - 1] for k in numbers], dtype="Int64")
            table = table.assign(searches=found)
        if self.anchors is not None:
            known = dict(enumerate(self.anchors.names, 1))
            table = table.assign(anchor=[known.get(k, "") for k in numbers])
        if "factor_names" in self.settings:
            table = table.assign(factor_name=[self._given_names.get(k, "") for k in numbers])
        return table

    @property
    def _num_chains(self) -> int:
        """Number of chains."""
        return self.usage_draws.shape[0]

    @property
    def usage(self) -> np.ndarray:
        """Posterior means, (rows, rank) float64."""
        warn_undrawn(self)
        return self._usage

    @functools.cached_property
    def _usage(self) -> np.ndarray:
        return self._moments("usage")[0]

    @property
    def basis(self) -> np.ndarray:
        """Posterior means, (columns, rank) float64."""
        warn_undrawn(self)
        return self._basis

    @functools.cached_property
    def _basis(self) -> np.ndarray:
        return self._moments("basis")[0]

    @property
    def usage_sd(self) -> np.ndarray:
        """Posterior standard deviations, (rows, rank) float64."""
        warn_undrawn(self)
        return self._usage_sd

    @functools.cached_property
    def _usage_sd(self) -> np.ndarray:
        return self._moments("usage")[1]

    @property
    def basis_sd(self) -> np.ndarray:
        """Posterior standard deviations, (columns, rank) float64."""
        warn_undrawn(self)
        return self._basis_sd

    @functools.cached_property
    def _basis_sd(self) -> np.ndarray:
        return self._moments("basis")[1]

    def _moments(self, name):
        """Return the mean and standard deviation of a factor matrix."""
        draws = self.usage_draws if name == "usage" else self.basis_draws
        return draws.mean((0, 1), dtype=np.float64), draws.std((0, 1), dtype=np.float64)

    @of_draws
    def draws(self) -> dict[str, np.ndarray]:
        """Return aligned draws, ``{site: (chain, draw, ...)}``."""
        return self._draws()

    def _draws(self) -> dict[str, np.ndarray]:
        factors = {"usage": np.asarray(self.usage_draws), "basis": np.asarray(self.basis_draws)}
        return factors | dict(self.other_draws)

    @functools.cached_property
    def _mixing(self) -> Mixing:
        """R-hat and effective draws of up to 1,000 entries of the reconstruction; computed once."""
        draws = self._product_draws(*map(np.arange, self.data.shape))
        chances = self._predicts_chances
        return mixing(informed(self.data), *draws, predicted=self._predicts, chances=chances)

    def _predicts(self, entries) -> np.ndarray:
        """Return what entries (chain, draw, entry) of the reconstruction predict."""
        return self._predicted(entries, self.other_draws, self.settings.get("priors", {}))

    @classmethod
    def _predicted(cls, entries, others: Mapping, priors: Mapping) -> np.ndarray:
        """Return predictions of draws (chain, draw, entry): by them chains are compared.

        They are on a scale on which a difference is one of probabilities. `others` are draws of
        other sites, and `priors` hold what is not drawn.
        """
        return entries

    @property
    def spread(self) -> Coverage:
        """How far apart the solutions in the draws are, computed once.

        Returns
        -------
        bmfjax.diagnostics.Coverage
            That of the basis (Masood, Pan, Doshi-Velez 2016), by the largest angle between matched
            factors of two draws, in degrees. Factors that are empty when rounded are left out.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> 0.0 <= fit.spread.mean <= fit.spread.largest <= 90.0
        True
        """
        warn_undrawn(self)
        return self._spread

    @functools.cached_property
    def _spread(self) -> Coverage:
        draws, empty = self.basis_draws, self._empty
        if empty is not None and empty.any() and not empty.all():
            kept = np.flatnonzero(~empty)
            is_packed = isinstance(draws, PackedDraws)
            draws = draws.reordered(kept) if is_packed else draws[..., kept]
        return spread(draws, signed=not self._is_signed)

    @property
    def _search_counts(self) -> SearchCounts | None:
        """What independent searches say of the factors, where each kept its own end."""
        if self._search_ends is None or self._search_ends.number == 1:
            return None
        means = [np.asarray(draws.mean(1)) for draws in (self.usage_draws, self.basis_draws)]
        return count_searches(self._search_ends, means, boolean=self._is_boolean)

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

    def _kept_trace(self, name: str) -> np.ndarray:
        """Return the trace of a scalar at the kept draws, (chain, draw)."""
        return self.trace[name][:, self._kept_steps]

    @property
    def _is_small(self) -> bool:
        """Whether the whole matrix is formed without being asked for."""
        return self.data.num_rows * self.data.num_columns <= MAX_ENTRIES

    #: What is doubtful about its tiles, in a sentence.
    _doubts = ""
    #: Which factors have no tile when rounded, (rank,) bool; None where none are rounded.
    _empty = None
    #: Which draws have each factor, (chain, draw, rank) bool; None where it is not looked at.
    _present = None
    #: Share of the draws of each chain, (chain, rank), that have what the chain itself has in the
    #: place of each factor.
    _steady = None

    @property
    def _in_few_draws(self) -> np.ndarray:
        """Which factors the verdict says to be in too few draws, (rank,) bool."""
        return self._is_named(self.figures.factors_in_few_draws)

    def _is_named(self, names) -> np.ndarray:
        """Which factors have these names in the verdict, (rank,) bool."""
        return np.isin(self._factor_titles, names or ())

    @property
    def _search_steps(self) -> int:
        """Steps of a given warm-up that searched for starts; 0 where that is not known."""
        asked, figures = self.settings.get("num_warmup"), self.figures
        if not isinstance(asked, int) or figures.searches is None or self.held_out is not None:
            return 0
        return max(asked - figures.num_warmup, 0) if figures.planned_warmup is None else 0

    @of_draws
    def summary(self) -> pd.DataFrame:
        """Return one row a factor, known ones first, then the largest; figures in ``.attrs``.

        Returns
        -------
        pandas.DataFrame
            `rows`, `columns`: size of the Boolean factor; `density`: share of ones
            among the observed entries of its tile; `p_one`: mean probability of
            the tile's entries; `agreement`: smallest tile similarity of some
            chains and the others (NaN for one chain, without draws, and of an empty factor); `sd`:
            mean posterior standard deviation. For real factors `size`, what one adds to an entry,
            or to its log odds, as a root mean square over draws and entries, and `rows`, `columns`:
            how many are two standard deviations from zero. For "features" `size` is the standard
            deviation over rows of what one adds to the log odds, and `unknown` is how many columns
            beside `columns` may be concerned: the data say little of them. For "poisson" `size` is
            the mean count that one adds to a row. Boolean factors come by the cells of their tiles,
            `rows` times `columns`, and codes of "hamming" by how many rows use them. `searches`,
            where each kept its own end, is how many of the independent searches for starts found
            the factor by themselves. Where some factors are known, `anchor` is their name, "" for
            others; and `factor_name` after `rename`.
        """
        return self._summary.copy()

    @functools.cached_property
    def _summary(self) -> pd.DataFrame:
        """The table of `summary`; computed once."""
        frame = self._with_names(pd.DataFrame(self._table()).set_index("factor"))
        if self.verdict.is_of_starts:  # which nothing was drawn from that could agree
            frame["agreement"] = np.nan
        elif self._empty is not None:
            frame.loc[self._empty, "agreement"] = np.nan
        frame.attrs = {k: v for k, v in self._scalars().items() if np.ndim(v) == 0}
        return frame

    @of_draws
    def check(self, *, max_entries: int = MAX_SCORED, seed: int = 0) -> ModelCheck:
        r"""Say whether the model fits the data: a verdict on the model, and not on the chains.

        These questions are asked. What is *explained*: of zeros and ones, and of stars, the share
        of the deviance that independent columns leave,

        .. math::

           1 - \frac{\sum_{ij} \log p(x_{ij} \mid x_{-ij})}
                    {\sum_{ij} \log p_0(x_{ij} \mid x_{-ij})},

        from entries left out (McFadden 1974); of numbers :math:`1 - e^{-2g}`, with g the gain in
        log density an entry over effects of rows and columns (Magee 1990). Whether probabilities of
        ones are *calibrated*; of numbers with normal noise and of stars, whether *intervals* of
        90 % hold the entries that are left out, also in rows and columns that scatter most. And
        whether *replicates*, data that the draws make, have the sums of rows and columns of the
        data, and what pairs of columns have in common (Gelman, Meng, Stern 1996), for counts
        whether these scatter as much, and for numbers whether those of a row or of a column do; the
        worst is named.

        Parameters
        ----------
        max_entries : int
            Observed entries that are scored, drawn at random where there are more.
        seed : int
            Seed of the choice of entries, and of replicates.

        Returns
        -------
        ModelCheck
            Printed in a sentence; `explained`, `explained_error`, `explains`, `calibration`,
            `is_calibrated`, `intervals`, `statistics`, `misfits` and more.

        Raises
        ------
        InputError
            With fewer than two observed entries, or where the time was up before the sampler drew.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> fit.check().explains
        False
        """
        if self.verdict.is_of_starts:
            raise InputError(
                "the time was up before the sampler drew, so that there are no draws to check; "
                f"give it more, max_time={self.figures.more_seconds}"
            )
        if (max_entries, seed) == (MAX_SCORED, 0):
            return self._model_check
        other = self._other_model
        return model_check(self, max_entries=max_entries, seed=seed, other_model=other)

    @functools.cached_property
    def _left_out(self) -> LeftOut:
        """How entries left out are predicted; computed once for the verdict and the check."""
        return left_out(self)

    @functools.cached_property
    def _model_check(self) -> ModelCheck:
        """What `check` returns; computed once for the terminal and the report."""
        return model_check(self, found=self._left_out, other_model=self._other_model)

    @property
    def _other_model(self) -> str:
        """What to fit where this model does not fit the data; empty where nothing is known."""
        # Where one is empty, more of them would be, too.
        most = self._most_factors if self._finds_rank else self.rank
        more = min(2 * most, *self.data.shape)
        if self.figures.factors_empty or more <= most:
            return ""
        name = "max_rank" if self._finds_rank else "rank"
        return f"allow more factors, {name}={more} (--{name.replace('_', '-')} {more})"

    @property
    def _can_be_checked(self) -> bool:
        """Whether there are entries that can be left out."""
        return self.data.num_rows * self.data.num_columns - self.data.num_missing > 1

    @property
    def held_out(self) -> HeldOut | None:
        """How well entries were predicted that were hidden from a first fit; None without `check`.

        The draws of this fit are of all entries.
        """
        stored = self.settings.get("held_out")
        return None if stored is None else HeldOut.of_stored(stored)

    def _scalars(self) -> dict[str, Any]:
        """Return the figures as plain values, with the words of the verdict."""
        words = {"remedy": self.verdict.remedy, "verdict": str(self.verdict)}
        return self.figures.known() | words

    def _table(self) -> list[dict]:
        """Return a line for each factor, of real numbers."""
        table, sizes = [], products.factor_sizes(self.usage_draws, self.basis_draws)
        for k in range(self.rank):
            usage, basis = self._usage[:, k], self._basis[:, k]
            sd = self._usage_sd[:, k], self._basis_sd[:, k]
            table.append(
                {
                    "factor": k + 1,
                    "size": float(sizes[k]),
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
        kept = f"{self._num_chains} chains x {self.usage_draws.shape[1]} kept draws"
        if self.verdict.is_of_starts:
            kept = f"{self._num_chains} starts, and no draws"
        return (
            f"Fit({self.model} by {self.sampler}{name}, {rows} x {columns}, rank {self.rank}, "
            f"{kept})\n{self.verdict}" + f"\n{self._doubts}" * bool(self._doubts)
        )

    @staticmethod
    def load(directory) -> Fit:
        """Read a fit that `save` or the command line wrote.

        Raises
        ------
        InputError
            Where the directory holds no fit or a file is damaged.
        """
        record = store.read(directory)
        kind = Fit._of_model(record.summary["model"])
        if kind is None:
            raise InputError(
                f"the fit in {directory} is of model {record.summary['model']!r}, which this "
                "version does not have; fit again"
            )
        with store.refusing_damaged(directory), reading_stored(Path(directory) / "summary.json"):
            return kind._of_record(record)

    def __getattr__(self, name: str):
        """Refuse a name that fits of this model lack: say which have it, and what to use."""
        if hasattr(type(self), name):  # something that it is computed from is not there
            return object.__getattribute__(self, name)
        models = [] if name.startswith("_") else Fit._models_with(name)
        if not models:
            use = f"; use fit.{_REPLACED[name]}" if name in _REPLACED else ""
            if not (use or name.startswith("_")):
                use = did_you_mean(name, [n for n in dir(type(self)) if not n.startswith("_")])
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{use}")
        instead = _INSTEAD.get(name, "")
        named = ", ".join(map(repr, models))
        raise NotOfModelError(f"model {self.model!r} has no {name}, which {named} have{instead}")

    @classmethod
    def _models_with(cls, name: str) -> list[str]:
        """Return the models whose fits have a name."""
        own = cls._models if hasattr(cls, name) or name in cls.__dataclass_fields__ else ()
        found = [*own, *(m for k in cls.__subclasses__() for m in k._models_with(name))]
        return list(dict.fromkeys(found))

    def __getstate__(self) -> dict:
        # Copies and pickles hold the fit itself, and not what was computed from it.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def _of_model(cls, model: str) -> type[Fit] | None:
        """Return the class of the fits of a model; None where there is no such model."""
        if model in cls._models:
            return cls
        return next((c for k in cls.__subclasses__() if (c := k._of_model(model))), None)
