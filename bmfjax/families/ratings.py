"""Matrix factorisations of observed entries: "pmf", "probit" and "ordered-probit".

Real factors whose mean and precision matrix are learned, and effects of rows and columns; ratings
with normal noise, or ones and zeros or stars behind a probit.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import ndtr

from bmfjax import verdict
from bmfjax.data import (
    BinaryMatrix,
    InputError,
    Ratings,
    RealMatrix,
    checks,
    load,
    load_ratings,
)
from bmfjax.data.anchors import Anchors, check_weights
from bmfjax.data.attributes import (
    Attributes,
    rated_attributes,
    read_new,
    standardised,
)
from bmfjax.data.blocks import spaced
from bmfjax.data.intake import as_table
from bmfjax.data.names import names_of_index
from bmfjax.data.new_rows import by_names, opened
from bmfjax.data.reading.door import holds_lines, is_frame
from bmfjax.diagnostics import agreement
from bmfjax.diagnostics.align import agreements
from bmfjax.families import memory, relevance
from bmfjax.families.base import (
    Chains,
    Family,
    KeptDraws,
    NumbersFit,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    alike,
    check_columns,
    data_figures,
    in_columns_of,
    kept_factors,
    read_binary,
    refuse_sparse,
)
from bmfjax.infer.given_draws import given_every_draw
from bmfjax.infer.mcmc.ratings import pmf_density
from bmfjax.kernels.numerics.mesh import ROWS, Along, place_whole
from bmfjax.kernels.ratings.attributes import Attributes as Groups
from bmfjax.kernels.ratings.attributes import decomposed, plain
from bmfjax.kernels.ratings.density import COEFFICIENTS, FACTORS, PMFDensity, check_density
from bmfjax.kernels.ratings.entries import EntryBlocks, entry_blocks
from bmfjax.kernels.ratings.vectors import draw_side
from bmfjax.models.pmf import LEVEL_SCALES, pmf_priors_by_scale
from bmfjax.models.relaxed import gamma_parameters
from bmfjax.posterior import cells, scores
from bmfjax.posterior.principal import num_needed, principal_draws
from bmfjax.posterior.recommending import positions_of, recommendations, similar
from bmfjax.posterior.selection import informed
from bmfjax.report import facts, words
from bmfjax.report.checks import agreement as agreement_section
from bmfjax.report.checks import spread
from bmfjax.report.factors import factors, signed_card
from bmfjax.report.number import number_of_factors, number_section
from bmfjax.report.overview import linked, matrix
from bmfjax.report.plots import traces
from bmfjax.report.ratings import noisy_sd, of_intervals, of_ones, of_stars, prediction, sd_of_a_bit
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING, SIGNED_BARS
from bmfjax.report.summaries import summaries
from bmfjax.result import OnesMixin
from bmfjax.specs import ratings as spec
from bmfjax.specs.priors import RELEVANCE
from bmfjax.verdict.undrawn import of_draws


class Link(NamedTuple):
    """How a rating follows from its fit."""

    name: str  # in `bmfjax.models.pmf`
    trace: tuple[str, ...]  # beside the log joint density


LINKS = {
    "pmf": Link("identity", ("residual",)),
    "probit": Link("probit", ()),
    "ordered-probit": Link("ordered", ("cut_acceptance",)),
}
#: The Normal-Wishart prior of the factors, by its names in `priors`.
WISHART = ("strength", "degrees", "scale")
#: Different ratings that ordered probit takes for stars, at most.
MAX_STARS = 100
SIDES = {"rows": "row", "columns": "column"}
_OTHER = {"rows": "column", "columns": "row"}
#: Steps before draws are kept of a run that finds its own warm-up.
WARMUP = 100
#: Sweeps over latent values and vectors between two draws of new lines that are kept.
SWEEPS = 25
#: Factors that a fit of unknown rank leaves out add at most this share of the noise's standard
#: deviation to predictions, as a root mean square, and so less than a four-hundredth to their mean
#: squared error; and observed cells of which that is asked.
LEFT_OUT, ASKED = 0.05, 2000
#: How often the first draw of a chain is visited before those that are kept.
SETTLE = 20


# ---- fits -----------------------------------------------------------------------------------


def _page(*sections, fit, of_link=(), words_of_link=()) -> Page:
    """Return the page of a link from its first sections, its facts, and its words."""
    return Page(
        facts=(
            *SAMPLING,
            facts.attributes,
            number_of_factors,
            functools.partial(facts.mixing, of="fits"),
            facts.found,
            *of_link,
            functools.partial(
                facts.effects,
                note="standard deviation of what {}s add to all of their fits; factors may hold "
                "a part of it",
            ),
        ),
        sections=(
            number_section,
            *sections,
            functools.partial(
                factors,
                note="A factor adds to the fit of an entry the product of its row's and its "
                "column's value. The data determine only the sum over the factors: shown are the "
                "factors of the singular value decomposition of every draw's product, largest "
                f"first. {SIGNED_BARS}",
                card=functools.partial(signed_card, scale="the fits"),
            ),
            functools.partial(
                traces,
                more="The log joint density has parts that no prediction depends on, such as how "
                "two factors share their scale, and may wander more slowly than the fits.",
            ),
            summaries,
            functools.partial(
                agreement_section,
                first="Fits do not depend on the order or the signs of the factors and are what "
                "counts.",
            ),
            spread,
        ),
        words=(*words.REAL, words.EFFECT, fit, *words_of_link, *DRAWS),
        query="predict",
    )


PAGES = {
    "pmf": _page(
        functools.partial(prediction, error=noisy_sd, calibration=of_intervals),
        functools.partial(
            matrix, shown="expected entry", moments=functools.partial(linked, link=None)
        ),
        fit=words.EXPECTED_ENTRY,
        of_link=(facts.noise,),
    ),
    "probit": _page(
        functools.partial(prediction, error=sd_of_a_bit, calibration=of_ones),
        functools.partial(
            matrix, shown="probability of a one", moments=functools.partial(linked, link=ndtr)
        ),
        fit=words.BEHIND_PROBIT,
    ),
    "ordered-probit": _page(
        functools.partial(prediction, error=noisy_sd, calibration=of_stars),
        fit=words.BEHIND_PROBIT,
        of_link=(facts.cut_points,),
        words_of_link=(words.CUT_POINTS,),
    ),
}


@dataclass(frozen=True, repr=False)
class RatingsFit(NumbersFit):
    """A fit of ratings with normal noise; what is expected of an entry has its effects included."""

    #: How attributes of new "row" and "column" lines are read, with their `names`.
    attributes: Mapping[str, Attributes] = field(default_factory=dict)

    _models = ("pmf",)
    _page = PAGES["pmf"]
    _dims: ClassVar = {
        "row_effect": ["rows"],
        "column_effect": ["columns"],
        "usage_mean": ["factor"],
        "basis_mean": ["factor"],
        "usage_precision": ["factor", "other_factor"],
        "basis_precision": ["factor", "other_factor"],
        "usage_coefficients": ["row_attribute", "factor"],
        "basis_coefficients": ["column_attribute", "factor"],
        "row_coefficients": ["row_attribute"],
        "column_coefficients": ["column_attribute"],
        **{f"{n}_ridge": ["row_attribute_group"] for n in ("usage", "row")},
        **{f"{n}_ridge": ["column_attribute_group"] for n in ("basis", "column")},
    }
    what = "ratings"
    _counts_as_factor, _ranks_beforehand = relevance.COUNTED, relevance.BEFOREHAND
    _shown_factors = "that at least half of the draws use, and any others that predictions need"

    @property
    def _other_model(self):
        if not self.settings["priors"].get("effects", True):
            return "let rows and columns have effects, effects=True (--effects both)"
        return super()._other_model

    @property
    def link(self) -> str:
        """How a rating follows from its fit, as `bmfjax.models.pmf` names it."""
        return LINKS[self.model].name

    def _observed_cells(self):
        """Return rows, columns and values of the observed cells as the sampler takes them.

        A fourth is the stars that were fitted, None for other links; values are then positions
        among them.
        """
        if self.link != "ordered":
            return observed(self.data, self.link)
        # By the stars that were fitted: new lines need not have all of them.
        rows, columns, values, _ = observed(self.data, "identity")
        stars = np.asarray(self.settings["stars"], float)
        return rows, columns, np.searchsorted(stars, values), stars

    @property
    def _rating_range(self) -> tuple[float, float]:
        """Lowest and highest rating: of the scale, or of what was fitted, also after new lines."""
        if self.link == "probit":
            return 0.0, 1.0
        kept = (self.settings.get(name) for name in ("scale", "rating_range", "stars"))
        known = next(filter(None, kept), None) or _range_of(self.data)
        return float(known[0]), float(known[-1])

    def _product_draws(self, rows, columns):
        usage, basis = super()._product_draws(rows, columns)
        return cells.with_effects(usage, basis, self.other_draws, rows, columns)

    @of_draws
    def coefficients(self, side: str = "rows") -> pd.DataFrame:
        """Return what the attributes of rows or columns add to effects and factors.

        For a fit of ratings with attributes (`row_attributes`, `column_attributes` or the prior
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
        own = self.attributes.get(_checked_side(side))
        if own is None:
            raise InputError(
                f"the fit has no attributes of {side}; fit with {SIDES[side]}_attributes, or the "
                "`rated`"
            )
        found = {}
        for name, draws in self._coefficients_of(SIDES[side]).items():
            found[name], found[f"{name}_sd"] = draws.mean((0, 1)), draws.std((0, 1), ddof=1)
        return pd.DataFrame(found, index=pd.Index(own.names, name="attribute"))

    def _coefficients_of(self, side) -> dict[str, np.ndarray]:
        """Return draws (chain, draw, attribute) of what attributes add, by where they do."""
        draws = {n: np.asarray(d, float) for n, d in self.other_draws.items()}
        effect, factors = COEFFICIENTS[f"{side}_effect"], COEFFICIENTS[FACTORS[side]]
        found = {"effect": draws[effect]} if effect in draws else {}
        return found | {f"factor_{k + 1}": draws[factors][..., k] for k in range(self.rank)}

    def _arviz_groups(self):
        found = super()._arviz_groups()
        for side, own in self.attributes.items():
            found["coords"][f"{side}_attribute"] = list(own.names)
        return found

    @classmethod
    def _own_fields(cls, arrays):
        sides = [side for side in ("row", "column") if f"{side}_attributes_centre" in arrays]
        return {
            "attributes": {
                side: Attributes.of_arrays(
                    {n: arrays[f"{side}_attributes_{n}"] for n in Attributes._fields}
                )
                for side in sides
            }
        }

    def _arrays(self):
        return super()._arrays() | {
            f"{side}_attributes_{n}": a
            for side, own in self.attributes.items()
            for n, a in own.arrays().items()
        }

    def _predict(self, i, j, kind, level):
        every = (a.ravel() for a in np.meshgrid(i, j, indexing="ij"))
        found = self._tell_cells(*every, (kind,), level, False)[kind]
        return found.reshape(*found.shape[:-1], len(i), len(j))

    def _block(self, i, j, kinds, level, rng):
        return cells.summaries(self, i, j, kinds, level, rng)

    @of_draws
    def recommend(
        self,
        user=None,
        k: int = 10,
        *,
        seen: bool = False,
        by: str = "mean",
        least: float | None = None,
        level: float = 0.9,
        positions: bool = False,
    ) -> pd.DataFrame:
        """Recommend items to users, the best first, and say how sure that is.

        For fits of ratings: "pmf", "ordered-probit" and "probit". Rows are users and columns items.

        Parameters
        ----------
        user : str, int, or sequence of these, optional
            Names or positions of rows. Integers are positions, unless the names of the rows are
            whole numbers. Default: all.
        k : int
            Items a user, at most.
        seen : bool
            Whether items that a user has rated are among them. For "probit" those are the ones: a
            zero is recommended where it will probably become a one.
        by : {"mean", "quantile", "probability"}
            "mean" is the expected rating. "quantile" is its `lower` end, and puts what the fit is
            sure of before what may turn out badly. "probability" takes `p_liked`, that of a
            rating of at least `least`, noise included.
        least : float, optional
            The rating that counts as high; default three quarters up the scale, 4 of 1 to 5 stars.
            The ratings of "pmf" are any numbers: 3.5 stands for those that round to 4. "probit" has
            none.
        level : float
            Probability of the central interval from `lower` to `upper`.
        positions : bool
            Whether integers are positions also where names are whole numbers.

        Returns
        -------
        pandas.DataFrame
            `user`, `item`; `mean`, `sd`, `lower` and `upper` of the expected rating (of "probit"
            the probability of a one); `p_liked`, that of a rating of at least
            ``.attrs["least"]``. A user who has rated all has no line. All draws tell them; where
            there are many items, 64 draws choose those that are looked at, ten more than twice `k`.

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
        return recommendations(
            self, user, k, seen=seen, by=by, least=least, level=level, positions=positions
        )

    @of_draws
    def similar_items(
        self, item=None, k: int = 10, *, level: float = 0.9, positions: bool = False
    ) -> pd.DataFrame:
        """Return the items that users are expected to rate alike, the most similar first.

        For fits of ratings, whose rows are users and whose columns are items.

        Parameters
        ----------
        item : str, int, or sequence of these, optional
            Names or positions of columns, as the rows of `recommend`. Default: all.
        k : int
            Similar items of each, at most.
        level : float
            Probability of the central interval from `lower` to `upper`.
        positions : bool
            Whether integers are positions also where names are whole numbers.

        Returns
        -------
        pandas.DataFrame
            `item`, `similar`; `correlation`, posterior mean of the correlation over the users of
            what the factors say of the two items, without effects; `lower` and `upper`. NaN for an
            item of which they say the same of all users.

        Raises
        ------
        InputError
            For an item that there is not, naming the closest ones, options out of range, and a fit
            of one user.
        """
        return similar(self, item, k, level=level, positions=positions)

    def _transform(self, new_rows) -> np.ndarray:
        return self.given_new(new_rows)._usage

    def _sd_of_new(self, new_rows) -> np.ndarray:
        return self.given_new(new_rows)._usage_sd

    def _with_rows(self, new, seed):
        new = _matrix(new, self, "rows")
        check_columns(self.data, new)
        sweeps = 1 if self.link == "identity" else SWEEPS
        known = _known_of_new(self, new, "row", None)
        return self._with_drawn(new, _draws_of_new(self, new, "row", sweeps, seed, known))

    @of_draws
    def given_new(
        self, new, side: str = "rows", *, attributes=None, sweeps: int | None = None, seed: int = 0
    ) -> RatingsFit:
        """Return the same fit for rows (or columns) that it has not seen, given the other side.

        For matrix factorisations ("pmf" and the probit models): for every kept draw the vectors
        of the new lines are drawn given that draw of everything else, which they do not change.

        Parameters
        ----------
        new : Ratings, RealMatrix, BinaryMatrix, array, data frame or mapping
            For "rows" with the columns of the fitted data, as for `transform`; for "columns" with
            its rows, in the same order. Or by name: the ratings of one new line, as
            ``{"Heat": 5, "Alien": 2}``, or of several, as
            ``{"ann": {"Heat": 5}, "bob": {"Alien": 4}}``. Lines without any rating follow their
            prior.
            Where the fit has attributes it may be None: new lines without any rating, which are
            predicted from `attributes` alone.
        side : {"rows", "columns"}
        attributes : array, scipy.sparse matrix or DataFrame, optional
            Those of the new lines, where the fit has attributes of this side: read as they were in
            the fit. Which cells they rated is taken from `new`.
        sweeps : int, optional
            For the probit models (default 25), whose latent values are drawn in turn with the
            vectors, from where the draw before ended: approximate, and closer the more sweeps. The
            vectors of "pmf" are drawn at once.
        seed : int

        Returns
        -------
        Fit
            Its data are `new`, of which `predict`, `predict_cells` and the verdict speak;
            ``settings["given_new"]`` is `side`.
        """
        _checked_side(side)
        if self.link == "identity":
            if sweeps is not None:
                raise InputError(f"sweeps is {sweeps}; model 'pmf' draws at once, leave it out")
            sweeps = 1
        sweeps = checks.whole("sweeps", SWEEPS if sweeps is None else sweeps)
        checks.seed_number(seed)
        if new is None:
            new = _nothing_rated(self, side, attributes)
        new = _matrix(new, self, side)
        _check_other_side(self.data, new, side)
        _check_scale(self.settings["scale"], new)
        known = _known_of_new(self, new, SIDES[side], attributes)
        drawn = _draws_of_new(self, new, SIDES[side], sweeps, seed, known)
        usage, basis = drawn.pop("usage", self.usage_draws), drawn.pop("basis", self.basis_draws)
        found = dataclasses.replace(
            self,
            data=new,
            settings=self._settings_then(f".given_new(..., side={side!r})")
            | {"given_new": side, "rating_range": list(self._rating_range)},
            usage_draws=usage,
            basis_draws=basis,
            other_draws=dict(self.other_draws) | drawn,
            anchors=_anchors_of_new(self.anchors, new, side),
            agreement=agreement(usage.mean(1), basis.mean(1)),
        )
        # What a fitted line is like is known from the fit, also where no new line observes it.
        lines = informed(self.data) | {side: informed(new)[side]}
        draws = found._product_draws(*map(np.arange, new.shape))
        chances = found._predicts_chances
        mixing = verdict.mixing(lines, *draws, predicted=found._predicts, chances=chances)
        vars(found)["_mixing"] = mixing
        return found._judged(_verdict_of_new(self, found, side, mixing))


@dataclass(frozen=True, repr=False)
class ProbitFit(OnesMixin, RatingsFit):
    """A fit of probabilities of a one behind a probit."""

    _models = ("probit",)
    _page = PAGES["probit"]
    _kinds = cells.KINDS
    _predicts_chances = True

    @classmethod
    def _predicted(cls, entries, others, priors):
        return ndtr(entries)

    def _probability(self, i, j):
        return self._predict(i, j, "mean", 0.9)

    def _chance_given(self, usage, chain: int, draw: int) -> np.ndarray:
        """Return the probability of a one given usages (rows, rank), in rows of average effect."""
        return ndtr(cells.of_average_rows(self, usage, chain, draw))

    _scored = "probabilities of ones and zeros"

    def _log_density(self, i, j, values):
        return scores.probit_density(values, cells.cell_draws(self, i, j))

    def _replicates(self, i, j, rng):
        return scores.drawn_ones(self, i, j, rng)


@dataclass(frozen=True, repr=False)
class OrderedProbitFit(RatingsFit):
    """A fit of expected stars, and the probability of each."""

    _models = ("ordered-probit",)
    _page = PAGES["ordered-probit"]
    _kinds = _noisy_kinds = cells.KINDS

    _scored = "probabilities of stars"

    @classmethod
    def _predicted(cls, entries, others, priors):
        return super()._predicted(entries, {"precision": 1.0}, priors)

    def _check_observed(self, values):
        stars = np.asarray(self.settings["stars"], float)
        if not np.isin(values, stars).all():
            raise InputError(
                "values has a number that is none of the stars that were fitted, "
                f"{', '.join(f'{s:g}' for s in stars)}; give what was observed"
            )

    def _log_density(self, i, j, values):
        return scores.star_density(*self._between_cuts(i, j, values))

    def _below(self, i, j, values):
        return scores.below_star(*self._between_cuts(i, j, values))

    def _between_cuts(self, i, j, values):
        """Return positions of stars (cell,), draws of fits (draw, cell) and of cut points."""
        fits = self._fits(i, j)
        at = np.searchsorted(np.asarray(self.settings["stars"], float), values)
        return at, fits, self.other_draws["cutpoints"].reshape(len(fits), -1)

    def _replicates(self, i, j, rng):
        stars = np.asarray(self.settings["stars"], float)
        # The probability of each star or a lower one, except for the highest.
        each = [np.exp(self._log_density(i, j, np.full(len(i), s))) for s in stars[:-1]]
        below = np.cumsum(each, 0)
        return stars[(below < rng.random(below.shape[1:])).sum(0)]

    def _cells(self, i, j, kinds, level, noisy):
        found = super()._cells(i, j, kinds, level, noisy)
        if "probability" in found:
            found["probability"] = found["probability"].T
        return found


# ---- the family -----------------------------------------------------------------------------


class Factorisation(Family):
    """Real factors with learned priors; the cost grows with the observed entries."""

    models: ClassVar = {kind.name: kind for kind in (spec.PMF, spec.Probit, spec.OrderedProbit)}

    finds_rank = on_mesh = ("gibbs",)
    shared_entries = 2**18
    chains_a_core = 1
    takes_anchors = takes_attributes = True

    def check_anchors(self, anchors, model):
        check_weights(anchors, model, signed=True)

    def kind(self, model):
        return BinaryMatrix if model == "probit" else Ratings

    def needs_each_value(self, model):
        return LINKS[model].name == "ordered"

    def read(self, source, model):
        if isinstance(source, BinaryMatrix | RealMatrix | Ratings):
            return source
        if isinstance(source, str | os.PathLike):
            return load(source) if model == "probit" else load_ratings(source)
        if model == "probit":
            return read_binary(source, model)
        refuse_sparse(source, model)
        if not is_frame(source):
            return RealMatrix(source)
        return (Ratings if holds_lines(source) else RealMatrix).from_frame(source)

    def read_start(self, problem):
        raise InputError(f"model {problem.model.name!r} finds its start itself; leave init out")

    def plan(self, problem: Problem) -> Plan:
        link = LINKS[problem.model.name].name
        known = observed(problem.data, link)
        _check_precision(known[2])
        return Plan(
            resolve_priors(problem, link, known[2]),
            (StagePlan({}, problem.warmup(WARMUP)),),
            "near zero",
            _held(len(known[2])),
            "only observed entries are looked at",
            known,
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        data, (link, traced) = problem.data, LINKS[problem.model.name]
        priors = plan.arguments
        rows, columns, values, stars = plan.known
        sides = attributes_of(problem, priors, rows, columns)
        density = density_of(int(problem.rank), link, priors, stars, tuple(sides))
        check_density(density)
        lines = sum(data.shape) + sum(len(own.unit) for own in sides.values())
        learned = ("precision",) if density.learns_precision else ()
        algorithm = problem.kernel.make(density)
        if problem.finds_rank:
            algorithm = relevance.with_rank_counted(algorithm, data, _noise_sd(density))
        scale = getattr(data, "scale", None)
        entries = _with_anchors(entry_blocks(rows, columns, values, data.shape), problem.anchors)
        groups = {f"{side}_attributes": own.groups for side, own in sides.items()}
        entries = entries._replace(**groups)
        if problem.mesh is not None:
            entries = place_whole(entries._replace(along=Along(ROWS)), problem.mesh)
        return Chains.of_stage(
            problem,
            plan.stages[0],
            algorithm,
            entries,
            bytes_a_draw=4 * density.width * lines,
            settings={
                "priors": priors,
                "stars": None if stars is None else stars.tolist(),
                "scale": None if scale is None else list(scale),
            },
            sites=tuple(density.sites),
            trace=(*traced, *learned),
            arguments={"sides": sides, "density": density},
        )

    def judged(self, problem, chains, entries, seen, agreement=None, *_, **more):
        found = verdict.of_ratings(
            entries, len(seen.trace["log_joint"]), alike(problem, agreement), seen.trace,
            seen.sites.get("cutpoints"), **more,
        )  # fmt: skip
        if agreement is None or not problem.finds_rank:
            return found
        shown = agreement.shape[-1]
        needed = shown if shown > num_counted(problem, seen) else None
        return found.changed(rank_predicting=needed)

    def product_draws(self, problem, drawn):
        usage, basis = super().product_draws(problem, drawn)
        return cells.with_effects(usage, basis, drawn, *map(np.arange, problem.data.shape))

    def ordered(self, problem, chains, seen):
        held, number = problem.num_anchors, None
        drawn = _in_given_units(seen.sites, chains.arguments["sides"])
        if problem.finds_rank:
            drawn, some = _with_matrices(drawn), _some_observed(problem)
            rest = LEFT_OUT * float(np.mean(_noise_sd(chains.arguments["density"])(drawn)))
            needed = num_needed(drawn["usage"], drawn["basis"], some, rest)
            number = max(num_counted(problem, seen), needed)
        drawn = principal_draws(drawn, seen.best, held, number)
        if held:  # bit for bit
            drawn["basis"][..., :held] = problem.anchors.values
        return Ordered(drawn, agreements(drawn["usage"].mean(1), drawn["basis"].mean(1)))

    def result(self, problem, chains, run):
        read = {side: own.read for side, own in chains.arguments["sides"].items()}
        return super().result(problem, chains, run, attributes=read)


def density_of(rank, link, priors, stars, attributes=()) -> PMFDensity:
    """Return the density of `bmfjax.models.pmf` with these priors."""
    fixed, (mean, sd) = priors.get("precision"), priors["level"]
    return pmf_density(
        rank=rank,
        link=link,
        categories=2 if stars is None else len(stars),
        effects=priors["effects"],
        precision=priors.get("precision_gamma") if fixed is None else fixed,
        effect_precision=priors["effect_gamma"],
        **{n: priors[n] for n in (*WISHART, "relevance", "usage_unit") if n in priors},
        level_mean=mean,
        level_scale=sd,
        attributes=attributes,
        ridge=priors.get("ridge"),
    )


def resolve_priors(problem: Problem, link: str, values) -> dict:
    """Return all priors by name, those that are not given in the unit of the values."""
    found, given = dict(problem.priors), problem.given_priors
    for name, instead, unused in (
        ("precision_gamma", "precision", found.get("precision") is not None),
        ("effect_gamma", "effects", not found["effects"]),
    ):
        if unused and name in given:
            raise InputError(
                f"{name} has no say where {instead!r} is {found[instead]}; leave one of them out"
            )
    if "ridge" in given and found["rated"] is None and not problem.attributes:
        raise InputError(
            "ridge is of attributes, and there are none; give row_attributes, "
            "column_attributes or rated, or leave it out"
        )
    if problem.finds_rank:
        of_all = "is of one precision matrix of all factors, under which none vanishes"
        relevance.refuse_priors(problem, dict.fromkeys(WISHART, of_all))
        found = {n: v for n, v in found.items() if n not in WISHART}
        found["relevance"] = list(found["relevance"] or RELEVANCE)
    else:
        relevance.refuse_relevance(problem, "relevance")
        del found["relevance"]
        found["scale"] = 1.0 if found["scale"] is None else found["scale"]
    unset = unset_priors(link, values)
    if given.get("scale") is not None or given.get("relevance") is not None:
        unset["usage_unit"] = 1.0  # both are of the factors as they are
    found = {n: unset.get(n) if v is None else v for n, v in found.items()}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in found.items()}


def unset_priors(link: str, values) -> dict:
    """Return the priors whose default depends on the values, by name."""
    if link != "identity":
        return {"effect_gamma": [1.0, 1.0], "level": [0.0, LEVEL_SCALES[link]]}
    found = pmf_priors_by_scale(float(np.mean(values)), float(np.std(values)))
    return {
        "precision_gamma": list(gamma_parameters(found["precision"], "precision")),
        "effect_gamma": list(gamma_parameters(found["effect_precision"], "effect_precision")),
        "usage_unit": found["usage_unit"],
        "level": [found["level_mean"], found["level_scale"]],
    }


# ---- attributes of rows and columns ----------------------------------------------------------


class Side(NamedTuple):
    """The attributes of a side: as they are read, as the sampler takes them, and on which scale."""

    read: Attributes
    groups: Groups
    unit: np.ndarray  # (attributes,): what the sampler takes for one


def _held(entries: int) -> tuple[memory.Held, ...]:
    """Return the observed entries, by row and by column, and what they are sorted from."""
    return (
        memory.Held("observed entries", (entries,), 24.0),
        memory.Held("putting them in order", (entries,), 60.0, memory.HOST),
    )


def attributes_of(problem: Problem, priors: dict, rows, columns) -> dict[str, Side]:
    """Return the sides that have attributes: those that were given, and which cells are rated."""
    rated = spec.RATED.get(priors["rated"], ())
    sides = [side for side in FACTORS if side in problem.attributes or side in rated]
    for asked, what in ((problem.finds_rank, "rank='auto'"), (problem.mesh is not None, "a mesh")):
        if sides and asked:
            raise InputError(
                f"attributes of {sides[0]}s do not go with {what}; leave one of them out"
            )
    return {side: _side(problem, side, side in rated, rows, columns) for side in sides}


def _side(problem: Problem, side: str, is_rated: bool, rows, columns) -> Side:
    table, data = problem.attributes.get(side), problem.data
    parts = [] if table is None else [standardised(table.values)]
    others = data.column_names if side == "row" else data.row_names
    if is_rated:
        if not data.num_missing:
            raise InputError(
                f"rated is {problem.model.rated!r}, and every cell of the data is "
                "observed, so that this tells nothing; leave it out"
            )
        parts.append(standardised(rated_attributes(rows, columns, data.shape, side), alike=True))
    values, centre, unit = zip(*parts, strict=True)
    fields = () if table is None else table.fields
    read = Attributes(fields, tuple(others) if is_rated else (), np.concatenate(centre))
    return Side(read, tuple(map(decomposed, values)), np.concatenate(unit))


def _in_given_units(drawn, sides: dict[str, Side]) -> dict:
    """Return draws whose coefficients are those of attributes as they were given."""
    found = dict(drawn)
    for side, own in sides.items():
        for name in (FACTORS[side], f"{side}_effect"):
            if (site := COEFFICIENTS[name]) in found:
                unit = own.unit.reshape(-1, *[1] * (found[site].ndim - 3))
                found[site] = (found[site] / unit).astype(found[site].dtype)
    return found


# ---- the number of factors -------------------------------------------------------------------


def _noise_sd(density: PMFDensity):
    """Return the standard deviation of the noise, which a fit's own error is counted in.

    For ones and zeros it is that of a normal observation that tells as much of a fit of zero as a
    one or a zero does; stars tell more, at most as much as the latent value.
    """
    if density.link == "identity":
        return relevance.noise_sd(None if density.learns_precision else density.precision)
    sd = (math.pi / 2.0) ** 0.5 if density.categories == 2 else 1.0
    return lambda found: sd


def num_counted(problem: Problem, seen: KeptDraws) -> int:
    """Return how many factors stand out of the noise in at least half of the draws; or one.

    A draw uses as many principal factors as it was counted.
    """
    used = np.arange(int(problem.rank)) < seen.at_draws("rank")[..., None]
    return len(kept_factors(used))


def _some_observed(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of some observed cells, spread evenly over all of them."""
    rows, columns, *_ = observed(problem.data, LINKS[problem.model.name].name)
    some = spaced(len(rows), ASKED)
    return rows[some], columns[some]


def _with_matrices(drawn) -> dict:
    """Return draws whose factors have means and precision matrices, as any other fit's."""
    found = dict(drawn)
    for name in FACTORS.values():
        own = found[f"{name}_precision"]
        found[f"{name}_mean"] = np.zeros_like(own)
        found[f"{name}_precision"] = own[..., None] * np.eye(own.shape[-1], dtype=own.dtype)
    return found


# ---- observed cells -------------------------------------------------------------------------


def observed(data, link: str):
    """Return rows, columns and values of the observed cells as the sampler takes them.

    A fourth is the stars that the categories of "ordered" stand for, (categories,) float, and None
    for the other links.
    """
    if isinstance(data, Ratings):
        rows, columns, values = data.rows, data.columns, data.values
    elif isinstance(data, RealMatrix):
        rows, columns = np.nonzero(data.observed())
        values = data.dense(np.float64)[rows, columns]
    else:
        rows, columns, values = _binary(data)
    if link == "probit":
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                "model 'probit' is of ones and zeros; give a BinaryMatrix, or model='pmf' or "
                "'ordered-probit' for ratings"
            )
        return rows, columns, 2.0 * values - 1.0, None
    if link == "identity":
        return rows, columns, values, None
    stars = np.unique(values)
    if not 2 <= len(stars) <= MAX_STARS:
        raise InputError(
            f"there are {len(stars)} different ratings; model 'ordered-probit' takes from 2 to "
            f"{MAX_STARS}: give model='pmf'"
        )
    return rows, columns, np.searchsorted(stars, values).astype(float), stars


def _check_precision(values) -> None:
    """Refuse numbers that the arithmetic of the sampler cannot square, or distinguish."""
    limits = jnp.finfo(jnp.result_type(float))
    largest, spread = np.abs(values).max(initial=0.0), np.ptp(values) if len(values) else 0.0
    if largest > (most := float(limits.max) ** 0.5 / 1e4):
        raise InputError(
            f"the data have a value of {largest:.2g}, too large to compute with (at most "
            f"{most:.0e}); give them in a larger unit"
        )
    if 0 < spread < 1.0 / most:
        raise InputError(
            f"the data differ by {spread:.2g}, too little to compute with (at least "
            f"{1.0 / most:.0e}); give them in a smaller unit"
        )
    if 0 < spread < 100 * float(limits.eps) * largest:
        raise InputError(
            f"the data are up to {largest:.2g} and differ by {spread:.2g}, which numbers of "
            f"{limits.bits} bits do not distinguish well; subtract their mean"
        )


def _with_anchors(blocks: EntryBlocks, anchors: Anchors | None) -> EntryBlocks:
    if anchors is None:
        return blocks
    return blocks._replace(known=jnp.asarray(anchors.values, jnp.result_type(float)))


def _binary(data: BinaryMatrix):
    if not data.num_missing:
        rows, columns = np.divmod(np.arange(data.num_rows * data.num_columns), data.num_columns)
        return rows, columns, data.dense().ravel()
    rows, columns = np.nonzero(data.observed())
    return rows, columns, data.dense()[rows, columns]


# ---- new rows or columns --------------------------------------------------------------------


def _blocks_of(data, link, stars) -> EntryBlocks:
    """Return the observed cells of new data, with the stars of the fit."""
    if link != "ordered":
        rows, columns, values, _ = observed(data, link)
    else:
        rows, columns, values, _ = observed(data, "identity")
        wrong = np.setdiff1d(values, stars)
        if len(wrong):
            raise InputError(f"rating {wrong[0]:g} is none of those that were fitted, {stars}")
        values = np.searchsorted(stars, values).astype(float)
    return entry_blocks(rows, columns, values, data.shape)


def _checked_side(side) -> str:
    if side not in SIDES:
        raise InputError(f"side is {side!r}; choose 'rows' or 'columns'")
    return SIDES[side]


def _nothing_rated(fit, side, given):
    """Return new lines of which only attributes are known, with their names if these have any."""
    own = fit.attributes.get(SIDES[side])
    if own is None or not own.fields or given is None:
        raise InputError(
            f"new is None, and there is nothing to predict new {side} from; give their ratings, "
            f"or attributes= where the fit has {SIDES[side]}_attributes"
        )
    number = len(read_new(given, SIDES[side], own.fields, None, None))
    names = names_of_index(given.index) if isinstance(given, pd.DataFrame) else None
    return _unrated(fit.data, side, number, names)


def _unrated(data, side, number: int, names) -> Ratings:
    """Return so many new lines of which nothing is rated, with their names if they have any."""
    if side == "rows":
        others = data.column_names if data.has_column_names else None
        shape, sides = (number, data.num_columns), (names, others)
    else:
        others = data.row_names if data.has_row_names else None
        shape, sides = (data.num_rows, number), (others, names)
    return Ratings.without_any(shape, row_names=sides[0], column_names=sides[1])


def _known_of_new(fit, new, side, given):
    """Return the attributes of new lines less the centre, (lines, attributes), or None."""
    own = fit.attributes.get(side)
    if own is None or not own.fields:
        if given is not None:
            raise InputError(
                f"attributes of new {side}s were given, and the fit has none; leave them out, or "
                f"fit with {side}_attributes"
            )
        if own is None:
            return None
    elif given is None:
        raise InputError(
            f"the fit has {side}_attributes, and those of the new {side}s are needed; give "
            "fit.given_new(..., attributes=...)"
        )
    size, names = (
        (new.num_rows, new.row_names if new.has_row_names else None)
        if side == "row"
        else (new.num_columns, new.column_names if new.has_column_names else None)
    )
    parts = [read_new(given, side, own.fields, size, names)] if own.fields else []
    if own.rated:
        rows, columns, *_ = observed(new, "identity")
        parts.append(rated_attributes(rows, columns, new.shape, side))
    return np.concatenate(parts, axis=1) - own.centre


def _matrix(new, fit, side):
    """Return new lines as a matrix, with the fit's columns where rows are new."""
    new = _named_matrix(new, fit, side)
    return by_names(new, fit.data) if side == "rows" else new


def _named_matrix(new, fit, side):
    """Give an array the names of the fit's lines on the side that stays."""
    new = opened(new, fit) if side == "rows" else new
    if isinstance(new, Ratings | RealMatrix | BinaryMatrix):
        return new
    if isinstance(new, Mapping):
        return _by_name(new, fit, side)
    if fit.link != "probit" and is_frame(new) and holds_lines(new):
        return Ratings.from_frame(new)
    if isinstance(new, list | tuple) and any(isinstance(line, Mapping) for line in new):
        raise InputError(
            "new is a list of mappings; give one mapping, {new line: {name: rating}}, so that each "
            "line has a name"
        )
    new = in_columns_of(fit.data, new) if side == "rows" else new
    kind, fitted = BinaryMatrix if fit.link == "probit" else RealMatrix, fit.data
    make, (table, rows, columns, _) = functools.partial(kind, new), as_table(new)
    if not sp.issparse(table) and pd.isna(table).all():
        names = {"row_names": rows, "column_names": columns}
        make = functools.partial(Ratings.without_any, **{"shape": table.shape} | names)
    bare = make()
    # Names of its own stay: whether they are those of the fit is checked next.
    own = bare.has_column_names or bare.num_columns != fitted.num_columns
    if side == "rows" and fitted.has_column_names and not own:
        return make(column_names=fitted.column_names)
    own = bare.has_row_names or bare.num_rows != fitted.num_rows
    if side == "columns" and fitted.has_row_names and not own:
        return make(row_names=fitted.row_names)
    return bare


def _by_name(new: Mapping, fit, side):
    """Return new lines whose ratings are given by the names of the other side."""
    several = [isinstance(line, Mapping) for line in new.values()]
    if any(several) != all(several) or not new:
        raise InputError(
            "new mixes ratings and lines of ratings, or has none; give {name: rating}, or "
            "{new line: {name: rating}}"
        )
    lines, other = (new if all(several) else {f"new {SIDES[side]}": new}), _OTHER[side]
    given, names = [list(line.items()) for line in lines.values()], list(map(str, lines))
    if not any(given):
        return _unrated(fit.data, side, len(given), names)
    of = positions_of([name for line in given for name, _ in line], fit.data, other)
    own = np.repeat(np.arange(len(given)), [len(line) for line in given])
    values, data = [rating for line in given for _, rating in line], fit.data
    if side == "rows":
        rows, columns, shape = own, of, (len(given), data.num_columns)
        of_names = (names, data.column_names if data.has_column_names else None)
    else:
        rows, columns, shape = of, own, (data.num_rows, len(given))
        of_names = (data.row_names if data.has_row_names else None, names)
    named = {"row_names": of_names[0], "column_names": of_names[1]}
    if fit.link != "probit":
        return Ratings(rows, columns, values, shape=shape, **named)
    ones = np.full(shape, np.nan)
    ones[rows, columns] = values
    return BinaryMatrix(ones, **named)


def _anchors_of_new(anchors, new, side):
    """Return the known factors of new lines; of new columns nothing is known but the names."""
    return anchors if anchors is None or side == "rows" else anchors.unknown(new.num_columns)


def _range_of(data):
    return (0.0, 1.0) if isinstance(data, BinaryMatrix) else data.range


def _check_scale(scale, new):
    if scale is None or new.num_missing == new.num_rows * new.num_columns:
        return
    low, high = _range_of(new)
    if low < scale[0] or high > scale[1]:
        raise InputError(
            f"new ratings are from {low:g} to {high:g}, outside of the scale that was fitted, "
            f"{scale[0]:g} to {scale[1]:g}; give them on that scale"
        )


def _check_other_side(fitted, new, side):
    hint = ", by row_names=fit.data.row_names" if isinstance(new, Ratings) else ""
    if side == "rows":
        check_columns(fitted, new)
    elif new.num_rows != fitted.num_rows:
        raise InputError(
            f"the new columns have {new.num_rows} rows and the fitted matrix {fitted.num_rows}; "
            f"give the same rows in the same order{hint}"
        )
    elif fitted.has_row_names and new.has_row_names and fitted.row_names != new.row_names:
        raise InputError(
            "the new columns name other rows than the fitted matrix, or in another order; give "
            f"rows in that order{hint}"
        )


def _draws_from_prior(fit, side, size, seed, known) -> dict:
    """Return draws of lines of which no cell is rated, as `_draws_of_new`."""
    rng, own, effect = np.random.default_rng(seed), FACTORS[side], f"{side}_effect"
    draws = {n: np.asarray(d, float) for n, d in fit.other_draws.items()}
    mean, precision = draws[f"{own}_mean"], draws[f"{own}_precision"]
    root = np.linalg.cholesky(precision).swapaxes(-1, -2)
    noise = rng.standard_normal((*mean.shape, size))
    found = {own: mean[..., None, :] + np.linalg.solve(root, noise).swapaxes(-1, -2)}
    if effect in draws:
        sd = draws[f"{side}_precision"][..., None] ** -0.5
        found[effect] = sd * rng.standard_normal((*sd.shape[:2], size))
    for name in found if known is not None else ():
        explained = np.einsum("lf,cdf...->cdl...", known, draws[COEFFICIENTS[name]])
        found[name] = found[name] + explained
    return {n: d.astype(np.float32) for n, d in found.items()}


def _draws_of_new(fit, new, side, sweeps, seed, attributes) -> dict:
    """Return draws of the new lines' factors and effects, (chain, draw, ...).

    `attributes` are those of the lines, (lines, attributes), None without.
    """
    settings, link = fit.settings, fit.link
    priors = {n: v for n, v in settings["priors"].items() if n != "relevance"}  # matrices, now
    size = new.num_rows if side == "row" else new.num_columns
    if new.num_missing == new.num_rows * new.num_columns:
        return _draws_from_prior(fit, side, size, seed, attributes)
    sides = () if attributes is None else (side,)
    density = density_of(fit.rank, link, priors, settings["stars"], sides)
    data, own = _blocks_of(new, link, settings["stars"]), FACTORS[side]
    if sides:
        data = data._replace(**{f"{side}_attributes": (plain(attributes),)})
    known = {n: v for n, v in fit._draws().items() if n not in (own, f"{side}_effect")}
    start = {own: jnp.zeros((size, fit.rank))}
    if density.effects:
        start[f"{side}_effect"] = jnp.zeros(size)

    def sweep(key, drawn, known, data):
        return draw_side(key, side, known | drawn, data, density)

    settle = 0 if link == "identity" else SETTLE
    return given_every_draw(sweep, start, known, data, sweeps=sweeps, settle=settle, seed=seed)


def _verdict_of_new(fit, found, side, mixing) -> verdict.Verdict:
    """Judge the new lines; what is said of the run itself stays."""
    other = f"{'columns' if side == 'rows' else 'rows'}_without_information"
    after = {n: t[:, fit.figures.num_warmup :] for n, t in fit.trace.items()}
    judged = verdict.of_ratings(
        mixing, found._num_chains, found.agreement, after,
        found.other_draws.get("cutpoints"),
        exact=found.link == "identity",
        tried=verdict.Tried(draws=int(fit.figures.num_draws), stopped=not fit.figures.complete),
    )  # fmt: skip
    # What was stopped goes on as the fit says.
    own = fit.verdict.remedies.get("chains", "")
    if own and (fit.verdict.undrawn or not fit.figures.complete):
        judged = dataclasses.replace(judged, remedies={"chains": own})
    # The lines of the other side were learned in the fit, whatever the new ones have of them.
    learned = {other: getattr(fit.figures, other)}
    judged = judged.changed(
        **(fit.figures.known() | data_figures(found) | learned | judged.figures.known())
    )
    if not fit.verdict.undrawn:
        return judged
    # Draws given what is none of the posterior are none either.
    return dataclasses.replace(judged.changed(converged=False), notes=(fit.verdict.undrawn,))
