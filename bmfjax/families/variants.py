"""Variants of the Boolean model: row and column effects, layers, and one factor a row.

Each has a likelihood or a prior of its own, and is a model of its own. Factors are bits as those of
"ormachine", and fits have what its fits have. Chains start from the prior, annealed, or from layers
that are found one after the other. Chains that disagree go on at several temperatures.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import numpy as np
from scipy.special import expit

from bmfjax import models, verdict
from bmfjax.data import InputError, checks
from bmfjax.data.blocks import spaced
from bmfjax.diagnostics import Binarized, agreement, align, expected_loss, share_agreeing
from bmfjax.families import memory
from bmfjax.families.base import (
    FACTORS,
    Chains,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    annealed_options,
    kept_draws,
    make_fit,
    matched_rows,
    what_was_tried,
)
from bmfjax.families.boolean import (
    LOWEST,
    LOWEST_FOR,
    MAX_KEPT,
    STAGE_STREAM,
    STAGE_WARMUP,
    BooleanFit,
    agreement_of,
    align_packed,
    factor_words,
    given_bits,
)
from bmfjax.families.logistic import ExactLogisticFit
from bmfjax.families.tiles import (
    CHAINS_OF_TILES,
    TILES,
    WORDS_OF_TILES,
    TileFamily,
    tile_fit,
)
from bmfjax.infer import (
    ChainRun,
    whole_rows,
)
from bmfjax.infer.new_rows import (
    MAX_SUMMED_RANK,
    cells_by_sets,
    chance_by_codes,
    drawn_with_effects,
    independent_bits,
    layered_bits,
    learned_density,
    look_at_cells,
    look_at_usage,
    one_of_each,
    sampled_layers,
    usage_by_codes,
    usage_by_sets,
)
from bmfjax.kernels.ladders import geometric_ladder
from bmfjax.kernels.tempering import OBSERVED, position_of
from bmfjax.models.deep_ormachine import of_layers
from bmfjax.posterior import cells, products, scores
from bmfjax.posterior.packed import PackedDraws, as_packed
from bmfjax.posterior.selection import MAX_ENTRIES, informed, sampled_positions
from bmfjax.report import facts, words
from bmfjax.report.checks import agreement as agreement_section
from bmfjax.report.checks import modes, spread
from bmfjax.report.factors import UNIT, code_card, factors
from bmfjax.report.layers import layers_section
from bmfjax.report.overview import linked, matrix
from bmfjax.report.plots import traces
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING
from bmfjax.report.summaries import summaries
from bmfjax.result import Fit, ModesMixin, RoundedMixin
from bmfjax.specs import boolean as spec
from bmfjax.specs.base import digest, settings_text
from bmfjax.specs.boolean import MAX_ABOVE
from bmfjax.verdict.undrawn import of_draws

#: Steps before draws are kept of a run that finds its own warm-up: annealed, and from a start.
ANNEAL, SETTLE = 500, 100
#: Temperatures of chains that disagree: how many, and the hottest.
LADDER = (4, 0.2)
#: Draws from which the factors of layers above the first are shown in the data.
FED_DRAWS = 200


# ---- fits ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class VariantFit(BooleanFit):
    """A fit of a variant: its Boolean factors are those of the draws.

    The most probable factors given the matrix, which "ormachine" searches for, would be those of
    another model.
    """

    _models = ()

    @classmethod
    def _best_factors(cls, data, usage_draws, basis_draws, anchors=None, others=None):
        """Return rounded means with the lowest expected loss: of every chain, and of all."""
        probability = products.exceedance(usage_draws, basis_draws, level=0.5)
        draws, found = (usage_draws, basis_draws), []
        for axis in [(0, 1)] if usage_draws.shape[0] == 1 else [1, (0, 1)]:
            means = (f.mean(axis).reshape(-1, *f.shape[2:]) for f in draws)
            for usage, basis in zip(*means, strict=True):
                rounded = cls.rounded(usage, basis)
                found.append(Binarized(*rounded, expected_loss(probability, *rounded)))
        return min(found, key=lambda one: one.expected_loss), probability


EFFECTS_PAGE = Page(
    facts=(
        *SAMPLING,
        functools.partial(facts.mixing, of="log odds"),
        facts.found,
        facts.levels,
        functools.partial(facts.effects, note="spread of the log odds that {}s have of their own"),
        facts.replicas,
    ),
    sections=(*TILES, *CHAINS_OF_TILES),
    words=(*WORDS_OF_TILES, words.EFFECT_ON_LOG_ODDS, *DRAWS),
)


@dataclass(frozen=True, repr=False)
class EffectsFit(VariantFit):
    """A fit of Boolean factors beside effects of rows and columns on the log odds."""

    _models = ("ormachine-effects",)
    _page = EFFECTS_PAGE
    _has_bounded_scores = False
    _dims: ClassVar = {
        **BooleanFit._dims,
        "row_effect": ["rows"],
        "column_effect": ["columns"],
    }

    def _log_odds(self, i, j) -> np.ndarray:
        """Return draws (draw of all chains, cell) of the log odds of a one."""
        return log_odds_of(self.usage_draws, self.basis_draws, self.other_draws, i, j)

    @functools.cached_property
    def _mixing(self):
        return mixing_of_log_odds(
            self.data, self.usage_draws, self.basis_draws, self.other_draws, verdict.NUM_ENTRIES
        )

    def _noisy_probability(self, i, j):
        every = (a.ravel() for a in np.meshgrid(i, j, indexing="ij"))
        found = self._cells(*every, ("probability",), 0.9, True)["probability"]
        return found.reshape(len(i), len(j))

    def _cells(self, i, j, kinds, level, noisy):
        if not noisy:
            return super()._cells(i, j, kinds, level, noisy)
        one = np.concatenate(
            [
                expit(self._log_odds(i[some], j[some])).mean(0, dtype=float)
                for some in cells.blocks(len(i), 4 * self._width())
            ]
        )
        return dict.fromkeys(kinds, one)

    def _log_density(self, i, j, values):
        return scores.logit_density(values, self._log_odds(i, j))

    def _transform(self, new_rows) -> np.ndarray:
        return self._with_rows(new_rows, 0).usage_draws.mean((0, 1))

    def _with_rows(self, new, seed):
        new = matched_rows(self, new)
        drawn = drawn_with_effects(new, as_packed(self.basis_draws), self.other_draws, seed)
        return self._with_drawn(new, drawn | {"usage": PackedDraws(drawn["usage"], new.num_rows)})

    def _score_new(self, new, i, j, values, seed):
        return Fit._score_new(self, new, i, j, values, seed)

    def _row_states(self, chosen):
        lowest = chosen[np.argmin(np.ravel(self.other_draws["row_precision"])[chosen])]
        precision = np.ravel(self.other_draws["row_precision"])[lowest]
        nodes = len(whole_rows.effect_nodes(precision, self.data.num_columns)[0])
        whole_rows.check_states(
            nodes * 2**self.rank,
            self.data.num_columns,
            f"{self.rank} factors and {nodes} values of the effect",
        )
        sets = independent_bits(learned_density(self.other_draws))
        return whole_rows.effect_states(self.basis_draws, self.other_draws, *sets, chosen)


def log_odds_of(usage, basis, others: Mapping, i, j) -> np.ndarray:
    """Return draws (draw of all chains, cell) of the log odds of a one, of cells (cell,)."""
    hit = np.stack(list(cells.boolean_products(as_packed(usage), as_packed(basis), i, j)))
    flat = {
        n: others[n].reshape(len(hit), -1)
        for n in ("intercept", "dispersion", "row_effect", "column_effect")
    }
    effects = flat["row_effect"][:, i] + flat["column_effect"][:, j] + flat["intercept"]
    return effects + np.where(hit, flat["dispersion"], -flat["dispersion"])


def mixing_of_log_odds(
    data, usage, basis, others, number: int, log_odds: Callable = log_odds_of
) -> verdict.Mixing:
    """Return R-hat and effective draws of the log odds of up to `number` entries."""
    i, j = sampled_positions(*informed(data).values(), number)
    drawn = log_odds(usage, basis, others, i, j)
    drawn = drawn.reshape(*usage.shape[:2], -1)
    return verdict.mixing_of_entries(drawn, predicted=expit(drawn))


def _page_of_flips(*more_facts, sections=(), more_words=()) -> Page:
    return Page(
        facts=(
            *SAMPLING,
            facts.errors,
            functools.partial(facts.mixing, of="uncertain entries"),
            facts.found,
            *more_facts,
            facts.uncertain,
            facts.flip_rates,
            facts.replicas,
        ),
        sections=(*TILES, *sections, *CHAINS_OF_TILES),
        words=(*WORDS_OF_TILES, *more_words, *DRAWS),
    )


@dataclass(frozen=True, repr=False)
class OneHotFit(VariantFit):
    """A fit in which every row uses exactly one factor, its code."""

    _models = ("one-hot",)
    _page = _page_of_flips(facts.weights)
    _dims: ClassVar = {"weights": ["factor"], "basis_density": ["factor"]}

    @classmethod
    def rounded(cls, usage, basis):
        """Return the most probable code of every row, and the nearest codes."""
        return np.eye(usage.shape[1], dtype=bool)[usage.argmax(1)], basis >= 0.5

    def _chance_given(self, usage, chain, draw):
        # Factors of a row exclude each other.
        return usage @ np.asarray(self.basis_draws[chain, draw], float).T

    @of_draws
    def binarize(self, method: str = "map"):
        if method != "map":
            raise InputError(
                f"method is {method!r}, and in model 'one-hot' a row has exactly one factor, which "
                "this method does not keep; leave it out"
            )
        return self._rounded()

    def _by_sets(self):
        if "weights" not in self.other_draws:
            raise InputError(
                "the weights of the codes were given, and say nothing of new rows; fit with "
                "learned weights to transform others"
            )
        return (
            self.basis_draws,
            self.other_draws["flip_rate"],
            *one_of_each(self.other_draws["weights"]),
        )

    def _transform(self, new_rows) -> np.ndarray:
        return usage_by_sets(matched_rows(self, new_rows), *self._by_sets())

    def _score_new(self, new, i, j, values, seed):
        one = cells_by_sets(matched_rows(self, new), *self._by_sets(), i, j)
        return scores.log_chance(values, one)

    def _row_states(self, chosen):
        return whole_rows.boolean_states(*self._by_sets(), chosen)


class Layer(NamedTuple):
    """Posterior means of one layer of a fit; see `DeepFit.layer`.

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
class DeepFit(VariantFit):
    """A fit of layers: the usage of a layer is the data of the next, which is its prior.

    Usage, basis, flip rate and tiles are those of the first layer. The sites of others have the
    number of their layer.
    """

    _models = ("deep-ormachine",)
    _page = _page_of_flips(facts.layers, sections=(layers_section,), more_words=(words.LAYER,))
    _dims: ClassVar = {"basis_density": ["factor"]} | {
        name: axes
        for n in range(2, MAX_ABOVE + 2)
        for name, axes in {
            f"usage_{n}": ["rows", f"factor_{n}"],
            f"basis_{n}": ["factor" if n == 2 else f"factor_{n - 1}", f"factor_{n}"],
            f"usage_density_{n}": [f"factor_{n}"],
            f"basis_density_{n}": [f"factor_{n}"],
        }.items()
    }

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of factors of every layer, from the data upwards."""
        return (self.rank, *self.settings["layers"])

    def layer(self, number: int) -> Layer:
        """Say which factors of the layer below the factors of a layer join.

        For model "deep-ormachine", whose layers above the first are factorisations of the usage of
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
            For a layer that there is not.
        """
        checks.whole("the number of the layer", number, 1, len(self.ranks))
        if number == 1:
            return Layer(self._usage, self._basis, self._basis)
        draws = (self.other_draws[f"{site}_{number}"] for site in FACTORS)
        means = (d.mean((0, 1), dtype=float) for d in draws)
        return Layer(*means, self._fed_forward(number))

    def _fed_forward(self, number) -> np.ndarray:
        """Return how likely a column is in a factor of a layer, as it appears in the data."""
        chains, kept = self.usage_draws.shape[:2]
        chosen = spaced(chains * kept, FED_DRAWS, down=True)
        total = np.zeros((self.data.num_columns, self.ranks[number - 1]))
        for c in chosen:
            at = divmod(int(c), kept)
            product = self.other_draws[f"basis_{number}"][at]
            for below in range(number - 1, 1, -1):
                product = self.other_draws[f"basis_{below}"][at].astype(int) @ product > 0
            total += np.asarray(self.basis_draws[at], int) @ product.astype(int) > 0
        return total / len(chosen)

    @property
    def _density_of_top(self):
        name = f"usage_density_{len(self.ranks)}"
        if name not in self.other_draws:
            raise InputError(
                "the prior of the usage was given and no density was learned, so that it says "
                "nothing of new rows; fit with a learned density to transform others"
            )
        return self.other_draws[name]

    def _of_new(self, new, by_sets, look) -> np.ndarray:
        """Sum over the sets of factors where there are few, else draw the usage of all layers."""
        numbers = range(2, len(self.ranks) + 1)
        top = self._density_of_top
        if max(self.ranks) <= MAX_SUMMED_RANK:
            rates = self.other_draws["flip_rate"]
            return by_sets(new, self.basis_draws, rates, *self._sets_of_layers())
        draws = {"basis_1": self.basis_draws, "flip_rate_1": self.other_draws["flip_rate"]}
        draws |= {f"{s}_{n}": self.other_draws[f"{s}_{n}"] for n in numbers for s in OF_LAYER}
        draws["usage_density"] = top
        flat = {n: (as_packed(v).words if n.startswith("basis") else v) for n, v in draws.items()}
        flat = {n: v.reshape(-1, *v.shape[2:]) for n, v in flat.items()}
        return sampled_layers(new, self.ranks, flat, look).T

    def _transform(self, new_rows) -> np.ndarray:
        new = matched_rows(self, new_rows)
        return self._of_new(new, usage_by_sets, look_at_usage(new.num_rows))

    def _score_new(self, new, i, j, values, seed):
        new = matched_rows(self, new)
        by_sets = functools.partial(cells_by_sets, i=i, j=j)
        one = self._of_new(new, by_sets, look_at_cells(new.shape, i, j))
        return scores.log_chance(values, one)

    def _row_states(self, chosen):
        if max(self.ranks) > MAX_SUMMED_RANK:
            raise InputError(
                f"whole rows are scored by sums over the sets of factors of every layer, which may "
                f"have up to {MAX_SUMMED_RANK}, and the ranks are {self.ranks}; fit lower ranks, "
                "or score single cells by score_new()"
            )
        return whole_rows.boolean_states(
            self.basis_draws, self.other_draws["flip_rate"], *self._sets_of_layers(), chosen
        )

    def _sets_of_layers(self):
        """Return all sets of the first layer's factors, and their log prior by those above."""
        above = (
            [self.other_draws[f"{s}_{n}"] for n in range(2, len(self.ranks) + 1)]
            for s in ("basis", "flip_rate")
        )
        return layered_bits(*above, self._density_of_top)


HAMMING_PAGE = Page(
    facts=(
        *SAMPLING,
        functools.partial(facts.mixing, of="log odds"),
        facts.found,
        facts.hamming_dispersion,
        facts.replicas,
    ),
    sections=(
        functools.partial(
            matrix,
            shown="probability of a one",
            moments=functools.partial(linked, link=expit),
        ),
        functools.partial(
            factors,
            note="A factor is a code: a row that uses it is pulled to the ones and to the zeros of "
            "the code. The bar is the probability that the code has a one in a column, followed by "
            "its standard deviation.",
            card=code_card,
            shades=UNIT,
        ),
        traces,
        summaries,
        functools.partial(
            agreement_section,
            first="Log odds do not depend on the order of the factors and are what counts first.",
        ),
        modes,
        spread,
    ),
    words=(*words.IN_UNIT, words.CODE, words.PROBABILITY_OF_ONE_DRAWN, *DRAWS),
)


@dataclass(frozen=True, repr=False)
class HammingFit(RoundedMixin, ModesMixin, ExactLogisticFit):
    """A fit of codes to which rows are pulled; the log odds are a product of bits and signs."""

    _models = ("hamming",)
    _page = HAMMING_PAGE
    _dims: ClassVar = {"usage_density": ["factor"], "basis_density": ["factor"]}
    _is_boolean = True
    _is_signed = False

    @staticmethod
    def _as_kept(draws):
        return PackedDraws.pack(draws)

    def _product_draws(self, rows, columns):
        usage, basis = (
            f.lines(np.asarray(at))
            for f, at in ((self.usage_draws, rows), (self.basis_draws, columns))
        )
        size = np.asarray(self.other_draws["dispersion"], np.float32)[..., None, None]
        return usage * size, np.where(basis, np.float32(1), np.float32(-1))

    def _log_odds_at(self, at, i, j):
        usage = self.usage_draws[at][i].astype(np.float32)
        signs = np.where(self.basis_draws[at][j], np.float32(1), np.float32(-1))
        return usage @ signs.T * self.other_draws["dispersion"][at]

    def _log_odds_draws(self, i, j):
        return log_odds_of_codes(self.usage_draws, self.basis_draws, self.other_draws, i, j)

    @functools.cached_property
    def _mixing(self):
        return mixing_of_log_odds(
            self.data, self.usage_draws, self.basis_draws, self.other_draws, verdict.NUM_ENTRIES,
            log_odds_of_codes,
        )  # fmt: skip

    def _chance_given(self, usage, chain, draw):
        """Return the probability of a one given usages (rows, rank) of 0 and 1, of one draw."""
        signs = np.where(self.basis_draws[chain, draw], 1.0, -1.0)
        return expit(float(self.other_draws["dispersion"][chain, draw]) * (usage @ signs.T))

    @of_draws
    def binarize(self, method: str = "map"):
        if method != "map":
            raise InputError(
                f"method is {method!r}, which is of Boolean products, and those of model 'hamming' "
                "are log odds; leave it out"
            )
        return self._rounded()

    def _table(self):
        u, v = self._rounded()
        sd = np.concatenate([self._usage_sd, self._basis_sd]).mean(0)
        return [
            {
                "factor": k + 1,
                "rows": int(u[:, k].sum()),
                "columns": int(v[:, k].sum()),
                "agreement": float(self.agreement[k]),
                "sd": float(sd[k]),
            }
            for k in range(self.rank)
        ]

    @classmethod
    def rounded(cls, usage, basis) -> tuple[np.ndarray, np.ndarray]:
        """Return the Boolean factors nearest to means of bits."""
        return usage >= 0.5, basis >= 0.5

    def _judged_alone(self, what, agreeing):
        means = (f.mean((0, 1)) for f in (self.usage_draws, self.basis_draws))
        found = dataclasses.replace(self, binary=Binarized(*self.rounded(*means), float("nan")))
        return super(HammingFit, found)._judged_alone(what, agreeing)

    def _transform(self, new_rows) -> np.ndarray:
        return usage_by_codes(matched_rows(self, new_rows), self.basis_draws, self.other_draws)

    def _score_new(self, new, i, j, values, seed):
        new = matched_rows(self, new)
        one = chance_by_codes(new, self.basis_draws, self.other_draws, i, j)
        return scores.log_chance(values, one)

    def _row_terms(self, new, num_draws, chances, seed):
        whole_rows.check_states(2**self.rank, self.data.num_columns, f"{self.rank} factors")
        states = whole_rows.code_states(
            self.basis_draws, self.other_draws["dispersion"],
            *independent_bits(learned_density(self.other_draws)), self._spaced_draws(num_draws),
        )  # fmt: skip
        return whole_rows.by_states(new, states, chances)


def log_odds_of_codes(usage, basis, others: Mapping, i, j) -> np.ndarray:
    """Return draws (draw of all chains, cell) of the log odds of a one, of the Hamming machine."""
    chains, kept = usage.shape[:2]
    out = np.empty((chains * kept, len(i)), np.float32)
    for at, one in enumerate(out):
        draw = divmod(at, kept)
        signs = np.where(basis[draw], np.float32(1), np.float32(-1))
        np.einsum("ik,ik->i", usage[draw][i].astype(np.float32), signs[j], out=one)
    return out * others["dispersion"].reshape(-1, 1)


#: Sites of a layer above the first that new rows depend on.
OF_LAYER = ("basis", "flip_rate")


# ---- families ------------------------------------------------------------------------------------


class Variant(TileFamily):
    """What the families of the variants have in common."""

    #: The function of `bmfjax.models`.
    model: ClassVar

    def arguments(self, problem: Problem) -> dict:
        """Return keyword arguments of the model, without rank and shape, from the priors."""
        return dict(problem.priors)

    def bound(self, problem: Problem, arguments: Mapping, options: Mapping):
        """Return the algorithm and its data."""
        model = functools.partial(type(self).model, **self.sizes(problem), **arguments)
        return problem.kernel.make(model, **options).bind_packed(problem.data)

    def sizes(self, problem: Problem) -> dict:
        """Return the arguments of the model that say how large the factors are."""
        return {"rank": int(problem.rank)}

    def more_settings(self, problem: Problem) -> dict:
        """Return further settings of the fit."""
        return {}

    def more_trace(self, problem: Problem) -> tuple[str, ...]:
        """Return scalars that are traced beside those of the sampler."""
        return ()

    def sites(self, problem: Problem, arguments: Mapping) -> tuple[str, ...]:
        """Return the sites of a draw that are kept."""
        raise NotImplementedError

    def given(self, problem: Problem) -> dict | None:
        """Return the start that was given by the names of the model, or None."""
        return problem.init

    def bytes_a_draw(self, problem: Problem) -> int:
        """Return the bytes of one kept draw of a chain."""
        return int(problem.rank) * sum(problem.data.shape) // 8 + 8 * int(problem.rank)

    def read_start(self, problem):
        return given_bits(problem)

    def plan(self, problem: Problem) -> Plan:
        stages = self.stages(problem)
        return Plan(
            self.arguments(problem),
            stages,
            self.start_text(problem, stages[0].options),
            self.held(problem),
            "temperatures follow where chains disagree" if stages[1:] else "there is one stage",
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        start = self.given(problem)

        def next_stage(run):
            return self._stage(
                problem, plan, 1, "where chains that disagreed had come",
                lambda resume: position_of(run.state), stream=STAGE_STREAM,
            )  # fmt: skip

        def first(resume):
            if start is None:
                return None
            bound = self.bound(problem, plan.arguments, plan.options)
            # One program for dozens of operations.
            return problem.every_chain(jax.device_get(jax.jit(bound.unconstrain)(start)))

        later = [{n: str(v) for n, v in stage.options.items()} for stage in plan.stages[1:]]
        return self._stage(
            problem, plan, 0, plan.init, first,
            next_stage=next_stage if later else None,
            more={"next_stage": later[0]} if later else {},
        )  # fmt: skip

    def _stage(self, problem, plan: Plan, number, init, start, more=None, **of_stage) -> Chains:
        stage = plan.stages[number]
        bound = self.bound(problem, plan.arguments, stage.options)
        tempered = OBSERVED if stage.options.get("inverse_temperatures") is not None else ()
        return Chains.of_stage(
            problem,
            stage,
            bound.algorithm,
            bound.data,
            bytes_a_draw=self.bytes_a_draw(problem),
            settings={
                "priors": {n: _prior_text(p) for n, p in plan.arguments.items()},
                "init": init,
                "sampler_options": {n: str(v) for n, v in stage.options.items()},
                **self.more_settings(problem),
                **(more or {}),
            },
            most=MAX_KEPT,
            sites=self.sites(problem, plan.arguments),
            trace=(*self.more_trace(problem), *tempered),
            start=start,
            **of_stage,
        )

    def from_prior(self, problem) -> bool:
        """Tell whether chains start from the prior, annealed."""
        return problem.init is None

    def stages(self, problem) -> tuple[StagePlan, ...]:
        """Return the first stage, and that of chains that go on where the first ones disagree."""
        options = dict(problem.options)
        from_prior = self.from_prior(problem) and "num_anneal" in problem.has
        unasked = "inverse_temperatures" in problem.has and "inverse_temperatures" not in options
        if from_prior:
            data = problem.data
            observed = data.num_rows * data.num_columns - data.num_missing
            options.setdefault("lowest", LOWEST * min(1.0, LOWEST_FOR / observed))
        # For a run that may count draws as warm-up.
        warmup = problem.warmup(ANNEAL if from_prior else SETTLE)
        options = annealed_options(problem, options, from_prior, warmup)
        first = StagePlan(options, warmup)
        if not (problem.is_auto and unasked):
            return (first,)
        warmup = STAGE_WARMUP * int(problem.rank)
        heated = warmup // 2 if problem.init is None else 0
        number, hottest = LADDER
        hotter = options | {
            "inverse_temperatures": geometric_ladder(hottest, number),
            "num_anneal": heated,
            "num_adapt": warmup - heated,
        }
        return first, StagePlan(hotter, warmup, f"sampling at {number} temperatures")

    def start_text(self, problem, options) -> str:
        """Return where chains start."""
        if problem.init is not None:
            return digest(self.given(problem))
        return "annealed from the prior" if options.get("num_anneal") else "the prior"

    def held(self, problem) -> tuple[memory.Held, ...]:
        """Return the arrays that the model holds."""
        return (memory.Held("packed words", problem.data.shape, 1.0),)

    def product_draws(self, problem, drawn):
        sides = zip(FACTORS, problem.data.shape, strict=True)
        return tuple(PackedDraws(drawn[name], size) for name, size in sides)

    def aligned_sites(self, problem, drawn: dict, aligned, pivot) -> tuple[dict, dict]:
        """Return the other sites with their factors in the order of `aligned`, and figures."""
        moved = {n: self.fits._in_order(n, v, aligned.permutation) for n, v in drawn.items()}
        return moved, {}

    def ordered(self, problem, chains, seen):
        aligned = align_packed(*self.product_draws(problem, seen.sites), seen.best)
        others = {n: v for n, v in seen.sites.items() if n not in FACTORS}
        moved, figures = self.aligned_sites(problem, others, aligned, seen.best)
        return Ordered(moved | factor_words(aligned), agreement_of(aligned), aligned, figures)

    def majority(self, problem, found, seen):
        if math.prod(problem.data.shape) <= MAX_ENTRIES:
            return None
        aligned = found.aligned
        means = (f.mean(1)[seen.best_chain] for f in (aligned.usage, aligned.basis))
        return Binarized(*self.fits.rounded(*means), float("nan"))

    def result(self, problem: Problem, chains: Chains, run: ChainRun) -> Fit:
        seen = kept_draws(run)
        found = self.ordered(problem, chains, seen)
        return tile_fit(
            self.fits, problem, chains, run, found.aligned, found.agreement, run.trace(),
            {n: v for n, v in found.sites.items() if n not in FACTORS},
            binary=self.majority(problem, found, seen), figures=found.figures,
        )  # fmt: skip


class Effects(Variant):
    """Boolean factors beside effects of rows and columns."""

    fits, model = EffectsFit, models.ormachine_effects
    models: ClassVar = {"ormachine-effects": spec.OrMachineEffects}

    def bound(self, problem, arguments, options):
        model = functools.partial(
            models.ormachine_effects,
            shape=problem.data.shape, **self.sizes(problem), **arguments,
        )  # fmt: skip
        return problem.kernel.make(model, **options).bind_matrix(problem.data)

    def sites(self, problem, arguments):
        return (
            *FACTORS, "usage_density", "basis_density", "dispersion", "intercept",
            "row_effect", "column_effect", "row_precision", "column_precision",
        )  # fmt: skip

    def bytes_a_draw(self, problem):
        return super().bytes_a_draw(problem) + 4 * sum(problem.data.shape)

    def held(self, problem):
        # Lists of the entries by row and by column; of every replica a few numbers an entry.
        each = 16.0 + 16.0 * problem.num_chains * LADDER[0]
        return (memory.Held("lists of the entries", problem.data.shape, each),)

    def mixing(self, problem, drawn, number):
        return mixing_of_log_odds(problem.data, *self.product_draws(problem, drawn), drawn, number)


class OneHot(Variant):
    """Boolean factors of which a row has exactly one."""

    fits, model = OneHotFit, models.one_hot_machine
    models: ClassVar = {"one-hot": spec.OneHot}

    def sites(self, problem, arguments):
        learned = {"weights": "weights", "basis_density": "basis"}
        return (*FACTORS, "flip_rate", *(n for n, p in learned.items() if _learned(arguments[p])))

    def given(self, problem):
        start = problem.init
        if start is None:
            return None
        return {"cluster": start["usage"].argmax(1), "basis": start["basis"]}

    def read_start(self, problem):
        start = given_bits(problem)
        if (start["usage"].sum(1) != 1).any():
            raise InputError(
                "init 'usage' has a row without exactly one factor, which every row has in model "
                "'one-hot'; give one a row"
            )
        return start


class Deep(Variant):
    """Layers of Boolean factors."""

    fits, model = DeepFit, models.deep_ormachine
    models: ClassVar = {"deep-ormachine": spec.DeepOrMachine}

    def ranks(self, problem) -> tuple[int, ...]:
        """Return the number of factors of every layer."""
        given = problem.priors["layers"]
        above = [max(1, int(problem.rank) // 2)] if given is None else given
        return (int(problem.rank), *above)

    def sizes(self, problem):
        return {"ranks": self.ranks(problem)}

    def arguments(self, problem):
        given = super().arguments(problem)
        above = range(2, len(self.ranks(problem)) + 1)
        of_layers_above, _ = given.pop("flip_rate_above"), given.pop("layers")
        rates = {1: given["flip_rate"]} | dict.fromkeys(above, of_layers_above)
        basis = given["basis"]
        return given | {"flip_rate": rates, "basis": {1: basis} if np.ndim(basis) else basis}

    def more_settings(self, problem):
        return {"layers": list(self.ranks(problem)[1:])}

    def more_trace(self, problem):
        return tuple(f"dispersion_{n}" for n in range(2, len(self.ranks(problem)) + 1))

    def sites(self, problem, arguments):
        top = len(self.ranks(problem))
        found = [*FACTORS, "flip_rate"]
        for n in range(2, top + 1):
            found += [f"usage_{n}", f"basis_{n}", f"flip_rate_{n}"]
        basis = of_layers(arguments["basis"], "basis", top)
        learned = [n for n, prior in basis.items() if _learned(prior)]
        found += ["basis_density" if n == 1 else f"basis_density_{n}" for n in learned]
        found += [f"usage_density_{top}"] * _learned(arguments["usage"])
        return tuple(found)

    def given(self, problem):
        start = problem.init
        return None if start is None else {f"{n}_1": bits for n, bits in start.items()}

    def bytes_a_draw(self, problem):
        lines = (problem.data.num_rows + 32) * sum(self.ranks(problem)[1:])
        return super().bytes_a_draw(problem) + lines // 8

    def from_prior(self, problem):
        return problem.init is None and problem.sampler.num_start == 0

    def stages(self, problem):
        started = {"num_start": problem.sampler.num_start}
        found = super().stages(problem)
        return tuple(stage._replace(options={**stage.options, **started}) for stage in found)

    def start_text(self, problem, options):
        if problem.init is None and options["num_start"]:
            return "layers found one after the other, then joined"
        return super().start_text(problem, options)

    def aligned_sites(self, problem, drawn, aligned, pivot):
        packed = {f"{s}_{n}" for s in FACTORS for n in range(2, MAX_ABOVE + 2)}
        rest = {n: v for n, v in drawn.items() if n not in packed}
        moved, figures = super().aligned_sites(problem, rest, aligned, pivot)
        drawn, rows = drawn | moved, problem.data.num_rows
        order, ranks, shares = aligned.permutation, self.ranks(problem), []
        for n in range(2, len(ranks) + 1):
            # Factors of the layer below, which this one joins, have their order by now.
            basis = _unpacked(drawn[f"basis_{n}"], ranks[n - 2])
            basis = np.take_along_axis(basis, order[..., None], 2)
            found = align(_unpacked(drawn[f"usage_{n}"], rows), basis, pivot=pivot)
            order = found.permutation
            drawn |= {f"usage_{n}": found.usage, f"basis_{n}": found.basis}
            for name in (f"usage_density_{n}", f"basis_density_{n}"):
                if name in drawn:
                    drawn[name] = np.take_along_axis(drawn[name], order, -1)
            agreeing = agreement(found.usage.mean(1), found.basis.mean(1))
            number = float("nan") if problem.num_chains == 1 else share_agreeing(agreeing)
            shares.append(float(number))
        return drawn, figures | {"layers_agreeing": tuple(shares)}


class Hamming(Variant):
    """Codes to which the rows that use them are pulled."""

    fits, model = HammingFit, models.hamming_machine
    models: ClassVar = {"hamming": spec.Hamming}

    def sites(self, problem, arguments):
        learned = [n for n in FACTORS if _learned(arguments[n])]
        return (*FACTORS, "dispersion", *(f"{n}_density" for n in learned))

    def from_prior(self, problem):
        return False  # but with random rows for codes: annealing would forget them

    def start_text(self, problem, options):
        return "random rows as codes" if problem.init is None else digest(problem.init)

    def mixing(self, problem, drawn, number):
        drawn_bits = self.product_draws(problem, drawn)
        return mixing_of_log_odds(problem.data, *drawn_bits, drawn, number, log_odds_of_codes)

    def when_rounded(self, problem, found, seen):
        return {}  # codes are no tiles: their zeros count as their ones do

    def result(self, problem, chains, run):
        seen = kept_draws(run)
        found = self.ordered(problem, chains, seen)
        aligned = found.aligned
        others = {n: v for n, v in found.sites.items() if n not in FACTORS}
        order = np.argsort(-aligned.usage.mean().sum(0), kind="stable")
        agreeing = found.agreement[:, order]
        usage, basis = (f.reordered(order) for f in (aligned.usage, aligned.basis))
        binary = HammingFit.rounded(usage.mean(), basis.mean())

        def judge(fit):
            return self.judged(
                problem, chains, fit._mixing, seen, agreeing,
                tried=what_was_tried(problem, chains, run),
            )  # fmt: skip

        return make_fit(
            HammingFit, problem, chains, run,
            draws={n: HammingFit._in_order(n, v, order) for n, v in others.items()}
            | {"usage": usage, "basis": basis},
            trace=run.trace(),
            agreement=agreeing[0],
            judge=judge,
            binary=Binarized(*binary, float("nan")),
        )  # fmt: skip


def _prior_text(prior) -> str | dict:
    """Return a prior as settings hold it: of layers, that of each."""
    if isinstance(prior, Mapping):
        return {str(layer): settings_text(p) for layer, p in prior.items()}
    return str(prior) if isinstance(prior, tuple) else settings_text(prior)


def _unpacked(words, size) -> np.ndarray:
    """Return bits (chain, draw, size, factor) uint8 of words (chain, draw, factor, words)."""
    return np.asarray(PackedDraws(words, size)).astype(np.uint8)


def _learned(prior) -> bool:
    return prior is None or hasattr(prior, "arg_constraints")
