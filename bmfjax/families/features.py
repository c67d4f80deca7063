"""Binary latent features, "features": sets of rows that change the log odds of some columns.

Chains start from what annealed rounds find. A feature that the data do not need is absent,
in most draws of them. Draws are put in one order and, where weights are signed, turned to one side:
what a feature adds outweighs what it takes away.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import random
from scipy.special import expit

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.data.blocks import blocks
from bmfjax.diagnostics.align import agreements, align_turned
from bmfjax.families import memory
from bmfjax.families.base import (
    FACTORS,
    Chains,
    Family,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    annealed_options,
    searches,
)
from bmfjax.families.logistic import ExactLogisticFit
from bmfjax.infer import feature_start, whole_rows
from bmfjax.infer.given_draws import given_every_draw
from bmfjax.infer.new_rows import learned_density
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.kernels.features.density import FeatureData, FeatureDensity, log_odds
from bmfjax.kernels.features.gibbs import start_at
from bmfjax.kernels.features.memberships import block_size, draw_memberships, membership_shapes
from bmfjax.kernels.features.seeds import reseeded
from bmfjax.kernels.features.weights import effects_of, row_systems
from bmfjax.kernels.logistic.polya_gamma import draw_polya_gamma
from bmfjax.kernels.numerics.budget import device_budget
from bmfjax.kernels.numerics.uniforms import draw_uniforms
from bmfjax.kernels.tempering import annealed
from bmfjax.posterior import cells, features, trust
from bmfjax.posterior.selection import without
from bmfjax.report import facts, words
from bmfjax.report.checks import agreement as agreement_section
from bmfjax.report.checks import modes, spread
from bmfjax.report.factors import SIGNED, factors
from bmfjax.report.features import common, feature_card
from bmfjax.report.number import number_of_factors, number_section
from bmfjax.report.overview import linked, matrix
from bmfjax.report.plots import traces
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING
from bmfjax.report.summaries import summaries
from bmfjax.result import ModesMixin
from bmfjax.specs import features as spec
from bmfjax.specs.base import AUTO, digest, settings_text
from bmfjax.specs.run import LARGE, LARGE_MAX_RANK, LARGE_SIDE
from bmfjax.verdict.undrawn import of_draws, warn_undrawn

#: Steps after the start before draws are kept of a run that finds its own warm-up, the least and
#: the most, which cost a part of the search. Ten let matrices whose sweep takes a second have
#: draws in a minute (`first_answer_minute`). They need not suffice: while the log density of a
#: chain has a trend, more of its first draws count as warm-up (`families.stopping.look`), and
#: chains that are still far apart have an R-hat that says so. Then the power of the likelihood at
#: the first annealed step.
WARMUP, LOWEST = (10, 50), 0.3
#: Births and deaths of a sweep, the least and the most, and the entries that all look at: chains
#: of small matrices go from mode to mode by them.
REBIRTHS, REBORN = (1, 20), 40_000
#: Beta prior of the share of the features that are there.
PRESENCE = (1.0, 1.0)
#: Share of the draws that have a feature of the result.
LEAST_USED = 0.1
#: Sweeps over new rows between two draws, and how often the first draw is visited before.
SWEEPS, SETTLE_ROWS = 2, 20
#: Bytes of memory an entry: a few arrays of numbers in each chain that runs.
BYTES_AN_ENTRY = 32.0
#: What belongs to a row alone.
ROWS = ("usage", "row_effect")

PAGE = Page(
    facts=(
        *SAMPLING,
        number_of_factors,
        functools.partial(facts.mixing, of="log odds"),
        facts.found,
        functools.partial(facts.effects, note=words.OWN_LOG_ODDS),
    ),
    sections=(
        number_section,
        functools.partial(
            matrix, shown="probability of a one", moments=functools.partial(linked, link=expit)
        ),
        common,
        functools.partial(
            factors,
            note="A feature is a set of rows, and what it changes in some columns. Columns on "
            "which it has the largest effect come first. The bar is the probability that it "
            "concerns the column; the number after it is the factor by which it changes the odds "
            "of a one, with an interval of 90 %. Blue raises them, red lowers them. Grey columns "
            "are rather not concerned, and the odds are those if they are; or the data say little: "
            "the card then gives the probability with and without data, and no odds.",
            card=feature_card,
            shades=SIGNED,
        ),
        traces,
        summaries,
        functools.partial(
            agreement_section,
            first="Log odds do not depend on the order of the features and are what counts first.",
        ),
        modes,
        spread,
    ),
    words=(
        *words.MEMBERSHIP,
        words.REAL_FEATURE,
        words.HOLDS,
        words.EMPTY,
        words.SEARCH,
        words.FALSE_DISCOVERY_RATE,
        words.EFFECT_ON_LOG_ODDS,
        words.PROBABILITY_OF_ONE_DRAWN,
        *DRAWS,
    ),
)


@dataclass(frozen=True, repr=False)
class FeaturesFit(ModesMixin, ExactLogisticFit):
    """A fit of binary features: `usage` are memberships, `basis` weights, zero where none is."""

    _models = ("features",)
    _turns = True
    _page = PAGE
    _dims: ClassVar = {
        **ExactLogisticFit._dims,
        "usage_density": ["factor"],
        "basis_density": ["factor"],
        "factor_precision": ["factor"],
        "presence": ["factor"],
    }
    _counts_as_factor = "A feature counts in a draw where it has rows and columns there."
    _shown_factors = "that at least a tenth of the draws use"
    _ranks_beforehand = "all numbers of features that are there, up to {most}, are equally probable"

    @property
    def found(self) -> features.Features:
        """What the draws say of each feature, see `bmfjax.posterior.features.Features`."""
        warn_undrawn(self)
        return self._found

    @functools.cached_property
    def _found(self) -> features.Features:
        return features.features_of(self.usage_draws, self.basis_draws)

    @property
    def usage_binary(self) -> np.ndarray:
        """Rows that rather have each feature than not, (rows, rank) bool."""
        warn_undrawn(self)
        return self._usage_binary

    @property
    def basis_binary(self) -> np.ndarray:
        """Columns that each feature rather concerns than not, (columns, rank) bool.

        It has those of which the data say little, which `summary` counts apart, as `unknown`.
        """
        warn_undrawn(self)
        return self._basis_binary

    @property
    def _usage_binary(self) -> np.ndarray:
        return without(self._found.members >= 0.5, self.data.empty_rows)

    @property
    def _basis_binary(self) -> np.ndarray:
        return without(self._found.concerned >= 0.5, self.data.empty_columns)

    @property
    def _empty(self):
        return ~(self._usage_binary.any(0) & self._basis_binary.any(0))

    @property
    def _present(self):
        return self._found.there

    @property
    def _steady(self):
        return self._found.steady

    @property
    def _other_model(self):
        priors = self.settings["priors"]
        if not priors.get("row_effects", True):
            return "let rows have effects, row_effects=True (--prior-value row_effects=true)"
        if priors.get("weights") == "positive":
            return "let features lower odds, too: weights='signed' (--weights signed)"
        return super()._other_model

    @of_draws
    def tiles(self, fdr: float = 0.05, *, all: bool = False, members: bool = False) -> pd.DataFrame:
        r"""Return the features that are kept at a false discovery rate: those that are real.

        A feature is real in a draw that has one like it: its memberships and its weights, as
        `bmfjax.posterior.features` says. By the prior any number of features is as probable, and
        one that the data do not need is absent. So its probability, the share of such draws, is
        beside the model without it. Kept are the most probable ones, as many as leave an expected
        share of false ones of at most `fdr` (Müller et al. 2004).

        Parameters
        ----------
        fdr : float
            Between 0 and 1.
        all : bool
            Return every feature, kept or not; `kept` says which.
        members : bool
            Return a line for each row and column that may belong to each feature instead, from a
            probability of 0.05 on; `member` says which rather do than not.

        Returns
        -------
        pandas.DataFrame
            By `factor`, counted from 1: `p_real`, the probability that it is real; `kept`; `rows`
            and `columns`, those that rather have it, or are rather concerned, than not; `unknown`,
            how many further columns may be concerned, of which the data say little: they do not
            raise the odds of it by a factor of three; `density`, the share of ones among the
            observed entries of `rows` and `columns`; `chains`, how many have it in at least half of
            their draws; `remarks`: "robust", "empty", "in some chains only", "in too few draws",
            "chains differ" (by the verdict it does not hold), or "changes from draw to draw" (it is
            not kept, and has no other remark); `searches`, how many of the independent searches for
            starts found it by themselves.

            With `members` these columns again, and `side`, "row" or "column"; `name`; `member`;
            `membership`, the probability that the row has the feature, or that it concerns the
            column, given that it is real; and of columns the `odds_ratio` of a one in rows with the
            feature, with `lower` and `upper` ends of an interval of 90 %, given that it is
            concerned. These are NaN for a column of which the data say little, and for a feature
            that fewer than 20 draws have (where there are fewer than twice as many in all, fewer
            than half of them). Columns with the largest effects come first. Where some features are
            known, the last column, `anchor`, is their name, "" for others.

        Raises
        ------
        InputError
            For a level that is not between 0 and 1.
        """
        tables = features.feature_table, features.member_table
        return trust.chosen_table(self, tables, self._found, fdr, all, members)

    @functools.cached_property
    def doubts(self) -> str:
        """One sentence: which features are not to be trusted; empty where all are."""
        return trust.doubts(self, features.feature_table(self, self._found))

    @property
    def _doubts(self) -> str:
        # The verdict says enough where the draws are none of the posterior.
        return "" if self.verdict.undrawn else self.doubts

    def _table(self):
        usage, basis = self._usage_binary, self._basis_binary
        known = basis & features.are_told(self)
        sizes = spread_of_rows(self.usage_draws, self.basis_draws)
        return [
            {
                "factor": k + 1,
                "size": float(sizes[k]),
                "rows": int(usage[:, k].sum()),
                "columns": int(known[:, k].sum()),
                "unknown": int((basis & ~known)[:, k].sum()),
                "agreement": float(self.agreement[k]),
                "sd": float(np.concatenate([self._usage_sd[:, k], self._basis_sd[:, k]]).mean()),
            }
            for k in range(self.rank)
        ]

    @classmethod
    def rounded(cls, usage, basis) -> tuple[np.ndarray, np.ndarray]:
        """Return memberships, and weights of one, nearest to means of bits."""
        return 1.0 * (usage >= 0.5), 1.0 * (basis >= 0.5)

    def _draws_of_new(self, new, seed: int) -> dict:
        """Draw memberships and effects of new rows given every kept draw of the rest.

        A draw sweeps over Polya-Gamma variables and effects, and memberships, from where the one
        before ended. As in the fit, no row has a feature that is absent from the draw.
        """
        data, density = signs_of(new), FeatureDensity(self.rank, presence=PRESENCE)
        known = {n: v for n, v in self._draws().items() if n not in ROWS}
        start = {"usage": jnp.zeros((new.num_rows, self.rank))}
        if "row_scale" in known:
            start["row_effect"] = jnp.zeros(new.num_rows)
        size = block_size(self.rank)
        shapes = membership_shapes(self.rank, new.num_rows, size)

        def sweep(key, drawn, known, data):
            key_augment, key_effect, key_usage = random.split(key, 3)
            psi = log_odds(known | drawn)
            if "row_effect" in drawn:
                omega = draw_polya_gamma(key_augment, psi, data.budget)
                omega = jnp.where(data.signs != 0, omega, 0.0)
                system = row_systems(drawn["row_effect"], psi, omega, 0.5 * data.signs)
                noise = random.normal(key_effect, psi.shape[1:], psi.dtype)
                effect = effects_of(noise, known["row_scale"], *system)
                psi += effect - drawn["row_effect"]
                drawn = drawn | {"row_effect": effect}
            uniforms = draw_uniforms(key_usage, psi.dtype, *shapes)
            usage, *_ = draw_memberships(uniforms, psi, known | drawn, data, density, 1.0, size)
            return drawn | usage

        return given_every_draw(
            sweep, start, known, data, sweeps=SWEEPS, settle=SETTLE_ROWS, seed=seed
        )

    def _row_terms(self, new, num_draws, chances, seed):
        density = learned_density(self.other_draws)
        chosen, complete = self._spaced_draws(num_draws), not (chances or new.num_missing)
        states = whole_rows.feature_states(
            self.basis_draws, self.other_draws, density, chosen, complete=complete
        )
        return whole_rows.by_states(new, states, chances)


class Features(Family):
    """Binary features of rows with sparse effects on the log odds of columns."""

    models: ClassVar = {"features": spec.Features}
    finds_rank = ("gibbs",)
    takes_anchors = True
    leaves_out = True

    def check_anchors(self, anchors, model):
        values = anchors.values
        if np.isinf(values).any():
            j, k = np.argwhere(np.isinf(values))[0].tolist()
            raise InputError(
                f"anchor {anchors.names[k]!r} has {values[j, k]} in column {j + 1} (counted from "
                "1); give numbers"
            )

    def most_factors(self, shape):
        least, most = LARGE
        if min(shape) >= LARGE_SIDE and least <= math.prod(shape) <= most:
            return LARGE_MAX_RANK
        return super().most_factors(shape)

    def read_start(self, problem):
        start = problem.read_start()
        if not np.isin(start["usage"], (0, 1)).all():
            raise InputError("init 'usage' has values other than 0 and 1; give memberships")
        return start

    def plan(self, problem: Problem) -> Plan:
        _check_known(problem)
        few = int(np.clip(REBORN // (problem.data.num_rows * problem.data.num_columns), *REBIRTHS))
        options, free = {"lowest": LOWEST, "rebirths": few}, problem.init is None
        options |= dict(problem.options)
        rounds, sweeps = _rounds(problem) if free else (0, 0)
        warmup = problem.warmup(feature_start.steps_of(rounds, sweeps) + _own_warmup(problem))
        options = annealed_options(problem, options, free, warmup)
        if "num_anneal" not in problem.options and free:
            options["num_anneal"] = int(feature_start.ANNEALED * min(sweeps, warmup))
        priors = {n: settings_text(v) if n == "usage" else v for n, v in problem.priors.items()}
        return Plan(
            priors,
            (StagePlan(options, warmup),),
            "annealed in rounds" if free else digest(problem.init),
            memory.dense(problem.data, BYTES_AN_ENTRY * problem.num_chains),
            f"the first {options['num_anneal']} sweeps are annealed",
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        density, (options, warmup, _) = _density(problem), plan.stages[0]
        data = _data(problem, density)
        start = None
        if problem.init is not None:
            usage, basis = (jnp.asarray(problem.init[n]) for n in FACTORS)
            start = start_at(usage, basis, data, density)
            start = problem.every_chain(jax.device_get(start))
        algorithm = problem.kernel.make(
            density, problem.data.shape,
            rebirths=options["rebirths"], known=_num_known(problem),
        )  # fmt: skip
        search = feature_start.Search(
            *_rounds(problem), options["num_anneal"], options["lowest"], apart=problem.finds_rank
        )
        # The rest of the warm-up is each chain's own.
        own = min(_own_warmup(problem), warmup // 4)
        search = search.within(max(warmup - own, search.num_anneal))
        begins = functools.partial(
            _begins, search=search, again=_reseeding(problem, density, data),
            settle=feature_start.affordable(*_size(problem)) * (problem.num_warmup == AUTO),
        )  # fmt: skip
        searches = problem.init is None and search.rounds > 0
        return Chains.of_stage(
            problem,
            plan.stages[0],
            annealed(algorithm, options["num_anneal"], lowest=options["lowest"]),
            data,
            bytes_a_draw=4 * (density.rank + 1) * sum(problem.data.shape),
            settings={"priors": plan.arguments, "init": plan.init, "sampler_options": options},
            sites=density.sites,
            trace=("log_mass",),
            num_warmup=warmup - searches * search.steps,
            start=lambda resume: start,
            search=begins if searches else None,
            resting=functools.partial(_without_unknown, number=_num_known(problem))
            if problem.init is None
            else None,
        )

    def product_draws(self, problem, drawn):
        usage, basis = super().product_draws(problem, drawn)
        return cells.with_effects(usage, basis, drawn, *map(np.arange, problem.data.shape))

    def ordered(self, problem, chains, seen):
        drawn = in_order(problem, seen)
        return Ordered(drawn, agreements(*(drawn[n].mean(1) for n in FACTORS)))

    def when_rounded(self, problem, found, seen):
        # As the fit rounds them: what most draws have, with other rows in each, is empty.
        own = features.features_of(*(found.sites[n] for n in FACTORS))
        full = (own.members >= 0.5).any(0) & (own.concerned >= 0.5).any(0)
        return {"empty": ~full, "present": own.there, "steady": own.steady}

    def origin(self, problem, chains, run, found=None):
        number = run.num_starts
        origin = {"shared_starts": number == 1, "starts": number, "found_by": number or None}
        return origin | searches(problem, run, found)


# ---- before --------------------------------------------------------------------------------------


def _density(problem: Problem) -> FeatureDensity:
    named = {n: problem.priors[n] for n in ("weights", "slab", "row_effects", "row_scale")}
    return FeatureDensity(int(problem.rank), presence=PRESENCE, **named)


def _check_known(problem: Problem) -> None:
    """Refuse memberships and weights that cannot be."""
    given, shape = problem.priors["usage"], (problem.data.num_rows, int(problem.rank))
    if given is not None:
        values = np.asarray(given, float)
        if values.shape != shape:
            raise InputError(
                f"usage has shape {values.shape}; give 0, 1 or NaN for each of {shape[0]} rows and "
                f"{shape[1]} features"
            )
        is_known, number = (~np.isnan(values)).any(0), _num_known(problem)
        is_known[: problem.num_anchors] = True
        if not is_known[:number].all():
            raise InputError(
                f"usage has known memberships of feature {number} and none of one before it; give "
                "the known features first"
            )
    known = problem.anchors
    if known is not None and problem.priors["weights"] == "positive" and (known.values < 0).any():
        raise InputError(
            "anchors have negative weights, and weights is 'positive'; give weights that are not "
            "negative, or weights='signed'"
        )


def _data(problem: Problem, density: FeatureDensity) -> FeatureData:
    """Return the matrix and what is known as the sampler takes them."""
    found, given = signs_of(problem.data), problem.priors["usage"]
    if given is not None:
        found = found._replace(known_usage=jnp.asarray(given, jnp.result_type(float)))
    if problem.anchors is None:
        return found
    values = problem.anchors.values
    whole = np.full((problem.data.num_columns, density.rank), np.nan)
    whole[:, : values.shape[1]] = values
    whole = jax.device_put(whole.astype(jnp.result_type(float)))
    if np.isin(values[~np.isnan(values)], (0, 1)).all():
        return found._replace(known_columns=whole)
    return found._replace(known_basis=whole)


def _without_unknown(snapshot, number: int):
    """Return chains that have no features but the first, known ones: shares of columns are left."""
    state, reducers = snapshot
    position = dict(state.inner.position)
    for name in (*FACTORS, "presence"):
        position[name] = position[name] * (np.arange(position[name].shape[-1]) < number)
    inner = state.inner._replace(position=position)
    return state._replace(inner=inner), reducers


def _rounds(problem: Problem) -> tuple[int, int]:
    """Return how many annealed rounds there are before chains start, and the sweeps of each."""
    rounds, sweeps = feature_start.planned(*_size(problem))
    # Where all features are known none begins anew.
    return (rounds, sweeps) if _num_known(problem) < int(problem.rank) else (1, sweeps)


def _own_warmup(problem: Problem) -> int:
    """Return the steps after the start before draws are kept."""
    return feature_start.affordable(*_size(problem), part=4, between=WARMUP)


def _size(problem: Problem) -> tuple[int, int, int]:
    """Return the numbers of entries, features and chains."""
    entries = problem.data.num_rows * problem.data.num_columns
    return entries, int(problem.rank), problem.num_chains


def _reseeding(problem: Problem, density: FeatureDensity, data: FeatureData):
    """Return what lets one feature of each chain begin anew; None where all are known."""
    known, seed = _num_known(problem), random.key_data(problem.key).tolist()
    if known >= density.rank:
        return None

    def again(snapshot, number: int):
        (state, reducers), signs = snapshot, np.asarray(data.signs)
        position = state.inner.position
        found = [
            reseeded(
                np.random.default_rng([*seed, chain, number]),
                {n: v[chain] for n, v in position.items()},
                signs, signed=density.is_signed, known=known,
            )
            for chain in range(problem.num_chains)
        ]  # fmt: skip
        position = jax.tree.map(lambda *own: np.stack(own), *found)
        return state._replace(inner=state.inner._replace(position=position)), reducers

    return again


def _begins(run, **options):
    """Return where chains begin, how many starts differ, and what each search had found."""
    found = feature_start.best_starts(run, **options)
    end = found.ends[0].inner.position
    bits, weights = np.asarray(end["usage"]) != 0, np.asarray(end["basis"], np.float32)
    return found.snapshot, found.number, SearchEnds(found.origin, bits, weights)


def _num_known(problem: Problem) -> int:
    """Return how many first features are known: by anchors, or memberships of some rows."""
    given = problem.priors["usage"]
    if given is None:
        return problem.num_anchors
    known = np.flatnonzero(~np.isnan(np.asarray(given, float)).all(0))
    return max([problem.num_anchors, *(known + 1).tolist()])


def signs_of(data: BinaryMatrix) -> FeatureData:
    """Return a matrix as the sampler takes it."""
    signs = np.empty(data.shape[::-1], np.int8)
    for some in blocks(data.num_rows, data.num_columns):
        rows = np.arange(data.num_rows)[some]
        values, hidden = data.part(rows, np.arange(data.num_columns))
        signs[:, some] = np.where(hidden, 0, np.where(np.asarray(values) > 0.5, 1, -1)).T
    return FeatureData(jax.device_put(signs), budget=device_budget())


# ---- after ---------------------------------------------------------------------------------------


def in_order(problem: Problem, seen) -> dict:
    """Return the draws with features in one order and turned to one side, and those alone kept."""
    # What is known of a feature is of this one and of this side.
    drawn, known = {n: np.asarray(v) for n, v in seen.sites.items()}, _num_known(problem)
    signed = problem.priors["weights"] == "signed"
    usage, basis = drawn["usage"], drawn["basis"]
    log_joint = seen.at_draws("log_joint")[:, : usage.shape[1]]
    order = align_turned(
        usage, basis, starts=log_joint.argmax(1), chain=seen.best[0], signed=signed, fixed=known
    )
    drawn = {n: FeaturesFit._in_order(n, v, order.permutation) for n, v in drawn.items()}
    for name in FACTORS:
        drawn[name] = np.take_along_axis(drawn[name], order.permutation[:, :, None], -1)
    sign = order.sign
    if signed:
        up = np.einsum("cdjk,cdk->k", drawn["basis"], sign, dtype=float) >= 0
        sign = sign * np.where(up | (np.arange(len(up)) < known), 1, -1)
    drawn |= turned(drawn, sign < 0)
    size = spread_of_rows(*(drawn[n] for n in FACTORS))
    chosen = np.concatenate([np.arange(known), known + np.argsort(-size[known:], kind="stable")])
    if problem.finds_rank:
        used = _used(drawn).mean((0, 1))[chosen]
        kept = (used >= LEAST_USED) | (np.arange(len(used)) < known)
        chosen = chosen[kept] if kept.any() else chosen[:1]
    for name in drawn:
        drawn[name] = FeaturesFit._in_order(name, drawn[name], chosen)
    return drawn | {n: drawn[n][..., chosen] for n in FACTORS}


def spread_of_rows(usage, basis) -> np.ndarray:
    """Return the standard deviation, over rows, of what each feature adds to log odds: (rank,).

    A root mean square over columns and draws. Which side of a feature is the one that has it makes
    no difference.

    Examples
    --------
    >>> usage, weights = np.array([1.0, 1.0, 0.0, 0.0]), np.full(3, -4.0)
    >>> spread_of_rows(usage[None, None, :, None], weights[None, None, :, None]).tolist()
    [2.0]
    """
    share = usage.mean(2, dtype=float)
    square = np.einsum("cdjk,cdjk->cdk", basis, basis, dtype=float) / basis.shape[2]
    return np.sqrt((share * (1.0 - share) * square).mean((0, 1)))


def turned(drawn: Mapping, turns) -> dict:
    """Return draws in which some features (chain, draw, rank) bool are turned round."""
    there = (drawn["basis"] != 0).any(2) | (drawn["usage"] != 0).any(2)
    turns = turns & there
    across = turns[:, :, None]
    return {
        "usage": np.where(across, 1 - drawn["usage"], drawn["usage"]),
        "basis": np.where(across, -drawn["basis"], drawn["basis"]),
        "usage_density": np.where(turns, 1 - drawn["usage_density"], drawn["usage_density"]),
        "column_effect": drawn["column_effect"] + (drawn["basis"] * across).sum(-1),
    }


def _used(drawn: Mapping) -> np.ndarray:
    """Tell which features have rows and columns in each draw, (chain, draw, rank) bool."""
    return (drawn["usage"] != 0).any(2) & (drawn["basis"] != 0).any(2)
