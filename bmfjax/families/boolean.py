"""The Boolean model, "ormachine": bits whose Boolean product is observed with flips."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import jax
import numpy as np

from bmfjax import models, verdict
from bmfjax.data import InputError
from bmfjax.data.anchors import check_bits
from bmfjax.data.bits import WORD
from bmfjax.diagnostics import Alignment, Binarized
from bmfjax.diagnostics.align import agreements, matched
from bmfjax.families.base import (
    FACTORS,
    Chains,
    KeptDraws,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    after_warmup,
    annealed_options,
    kept_draws,
    kept_factors,
    matched_rows,
    thinning,
)
from bmfjax.families.memory import HOST, PARTS, Held
from bmfjax.families.particles import chains_of_particles, particles
from bmfjax.families.tiles import (
    CHAINS_OF_TILES,
    TILES,
    WORDS_OF_TILES,
    TileFamily,
    TileFit,
    known_first,
    tile_fit,
)
from bmfjax.infer import ChainRun, ascent_starts, boolean_starts, whole_rows
from bmfjax.infer.ascent_start import MAX_CLIMB_RANK, can_climb
from bmfjax.infer.boolean_start import EXCHANGE
from bmfjax.infer.known_solutions import known_solutions, no_solutions, number_near
from bmfjax.infer.mcmc.ormachine import MOVES
from bmfjax.infer.new_rows import (
    chance_in_new_rows,
    independent_bits,
    learned_density,
    usage_of_new_rows,
)
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.kernels.boolean.bits import MAX_JOINT
from bmfjax.kernels.boolean.collapsed import COLLAPSED_MOVES
from bmfjax.kernels.boolean.moves.jump import KnownSolutions
from bmfjax.kernels.boolean.moves.whole_factors import CANDIDATES
from bmfjax.kernels.boolean.words import share_of_rows
from bmfjax.kernels.ladders import geometric_ladder
from bmfjax.kernels.numerics.mesh import num_shards, several_processes
from bmfjax.kernels.smc import BLOCK
from bmfjax.kernels.tempering import OBSERVED, position_of
from bmfjax.posterior import cells, products, scores
from bmfjax.posterior.evidence import EVIDENCE_OF_RUNS, LogEvidence
from bmfjax.posterior.packed import PackedDraws, as_packed
from bmfjax.posterior.selection import MAX_ENTRIES, is_all
from bmfjax.report import facts, words
from bmfjax.report.number import number_of_factors, number_section
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING
from bmfjax.result import RowsMixin
from bmfjax.specs import OrMachine
from bmfjax.specs.base import Sampler, digest, settings_text
from bmfjax.specs.samplers import RULES
from bmfjax.verdict import RHAT_SLOW

#: Draws of a chain that are kept: bits are small.
MAX_KEPT = 500
#: Rows and columns by which the factors of all draws are matched.
MAX_MATCHED = 1000
SITES = ("usage", "basis", "flip_rate", "usage_density", "basis_density", "usage_presence")
#: Prior of the share of factors that are there, in a fit that finds their number.
PRESENCE = (1.0, 1.0)

#: Entries up to which the sampler only moves lines with the other factor matrix summed out, up to
#: which factors are reborn with a matrix of gains, too, and up to which they are born in a sweep.
SMALL, DENSE, MEDIUM = 2**17, 2**22, 2**24
#: Entries, times 2 to the power of the rank, up to which a factor matrix is summed out for all
#: factors at once.
FEW_STATES = 2**21
#: Ladders of temperatures, how many and the hottest: for low ranks, and from `WHOLE_RANK` on.
LADDER, WHOLE_LADDER = (4, 0.2), (5, 0.4)
#: Rounds of a step in which temperatures exchange factors: they cost little beside a sweep.
EXCHANGES = 4
#: Moves of whole factors that go with a ladder, and from rank `WHOLE_RANK` on also before it: modes
#: often differ by a factor that hardly any line uses.
WHOLE_FACTORS, WHOLE_RANK = ("rebirth",) * 4 + ("xor",) * 4, 6
#: From rank `WHOLE_RANK` on: draws before a ladder may start, and the R-hat above which it does.
PATIENCE = (1000, RHAT_SLOW)
#: Moves that only the update "collapsed" has.
ONLY_COLLAPSED = COLLAPSED_MOVES.keys() - MOVES.keys()
#: Options of the ladder.
OF_LADDER = ("inverse_temperatures", "num_exchanges", "num_adapt")

#: Steps before draws are kept of a run that finds its own warm-up: annealed from the prior; from
#: other starts; and for every factor with temperatures, where chains without disagree.
ANNEAL, SETTLE, STAGE_WARMUP = 750, 100, 50
#: Power of the likelihood at which annealing starts, for up to `LOWEST_FOR` observed entries; for
#: more it falls in proportion. From a higher power chains end in poor modes.
LOWEST, LOWEST_FOR = 0.1, 7000
#: Streams of the random numbers of a fit, beside those of its chains: starts, and the last stage.
START_STREAM, STAGE_STREAM = 2**31 - 1, 2**31 - 2


PAGE = Page(
    facts=(
        *SAMPLING,
        number_of_factors,
        facts.errors,
        functools.partial(facts.mixing, of="uncertain entries"),
        facts.found,
        facts.uncertain,
        facts.flip_rates,
        facts.replicas,
    ),
    sections=(number_section, *TILES, *CHAINS_OF_TILES),
    words=(*WORDS_OF_TILES, words.SEARCH, *DRAWS),
)


@dataclass(frozen=True, repr=False)
class BooleanFit(RowsMixin, TileFit):
    """A fit of Boolean factors; its draws stay packed."""

    _models = ("ormachine",)
    _page = PAGE
    _dims: ClassVar = {"usage_density": ["factor"], "basis_density": ["factor"]}
    _is_boolean = _has_bounded_scores = _adds_flips = True
    _counts_as_factor = "A factor counts in a draw where it has ones in both matrices there."
    _ranks_beforehand = "all numbers of factors that are there, up to {most}, are equally probable"

    @staticmethod
    def _as_kept(draws):
        return PackedDraws.pack(draws)

    @property
    def log_evidence(self) -> LogEvidence | None:
        r"""Log evidence of the model at this rank, :math:`\log p(D)`, with its standard error.

        Returns
        -------
        bmfjax.posterior.evidence.LogEvidence or None
            `value`, `error`, and of every run `runs` and `run_errors`, by sampler "smc"; None
            by the others, which do not estimate it.
        """
        if self.figures.log_evidence is None:
            return None
        of_runs = (
            np.asarray(getattr(self.figures, f"log_evidence_{n}"), float) for n in EVIDENCE_OF_RUNS
        )
        return LogEvidence(self.figures.log_evidence, self.figures.log_evidence_error, *of_runs)

    def _factors(self, i, j):
        usage, basis = map(as_packed, (self.usage_draws, self.basis_draws))
        return tuple(
            draws if is_all(chosen, draws.size) else draws.packed_lines(chosen)
            for draws, chosen in ((usage, i), (basis, j))
        )

    def _probability(self, i, j):
        known = vars(self).get("_whole_probability")
        return super()._probability(i, j) if known is None else known[np.ix_(i, j)]

    def _noisy_probability(self, i, j):
        return products.predictive(*self._factors(i, j), self.other_draws["flip_rate"])

    _scored = "probabilities of ones and zeros"

    def _log_density(self, i, j, values):
        draws = map(as_packed, (self.usage_draws, self.basis_draws))
        products = np.stack(list(cells.boolean_products(*draws, i, j)))
        rates = self.other_draws["flip_rate"]
        rates = np.stack([rates, rates], -1) if rates.ndim == 2 else rates
        return scores.flipped_density(values, products, rates.reshape(-1, 2))

    def _replicates(self, i, j, rng):
        return scores.drawn_ones(self, i, j, rng)

    def _cells(self, i, j, kinds, level, noisy):
        # The mean says all of zeros and ones: nothing else is kept of the draws.
        constant, weights = 0.0, np.ones(self.usage_draws.shape[:2])
        if noisy:
            rates = self.other_draws["flip_rate"]
            f0, f1 = (rates, rates) if rates.ndim == 2 else np.moveaxis(rates, -1, 0)
            constant, weights = f0.sum(dtype=float), 1.0 - f0.astype(float) - f1
        draws = weights.size
        total = constant + cells.covered(self.usage_draws, self.basis_draws, i, j, weights)
        mean = total / draws
        found = {"mean": mean, "probability": mean}
        if "sd" in kinds:
            found["sd"] = products.moments_of_bits(mean, draws)[1]
        if "interval" in kinds:
            found["interval"] = cells.quantiles_of_bits(total, draws, level)
        return {kind: found[kind] for kind in kinds}

    def _chance_given(self, usage, chain: int, draw: int) -> np.ndarray:
        """Return the probability of a one that `probability` tells, (rows, columns), of one draw.

        `usage` (rows, rank) are probabilities of independent bits, in place of those of the draw.
        """
        basis = np.asarray(self.basis_draws[chain, draw], float)
        return -np.expm1(np.log1p(-np.minimum(usage, 1 - 1e-15)) @ basis.T)

    @staticmethod
    def _num_rates(others):
        # What is shown has the rates of what was sampled.
        return 1 if np.ndim(others["flip_rate"]) == 2 else 2

    def _tile_means(self):
        if self._is_small:
            return super()._tile_means()
        draws = map(as_packed, (self.usage_draws, self.basis_draws))
        return products.tile_means(*draws, self._usage_binary, self._basis_binary)

    def _transform(self, new_rows) -> np.ndarray:
        new = matched_rows(self, new_rows)
        return usage_of_new_rows(new, self.basis_draws, self.other_draws)

    def _score_new(self, new, i, j, values, seed):
        new = matched_rows(self, new)
        one = chance_in_new_rows(new, self.basis_draws, self.other_draws, i, j)
        return scores.log_chance(values, one)

    def _new_rows(self, new):
        return matched_rows(self, new)

    def _row_terms(self, new, num_draws, chances, seed):
        states = self._row_states(self._spaced_draws(num_draws))
        return whole_rows.by_states(new, states, chances)

    def _row_states(self, chosen):
        """Yield the states that a row may have, of some draws."""
        whole_rows.check_states(2**self.rank, self.data.num_columns, f"{self.rank} factors")
        sets = independent_bits(learned_density(self.other_draws))
        return whole_rows.boolean_states(
            self.basis_draws, self.other_draws["flip_rate"], *sets, chosen
        )


class Boolean(TileFamily):
    """Boolean factors, sampled on packed words."""

    fits = BooleanFit

    models: ClassVar = {"ormachine": OrMachine}
    finds_rank = on_mesh = ("gibbs",)
    # Up to here there are moves, of which every device makes all.
    shared_entries = MEDIUM
    takes_anchors = True
    # Beyond, temperatures take four times the time, and have not been seen to help.
    ladder_entries = SMALL

    def share_of(self, mesh, model, sampler, chains):
        """Return the rows of the process's devices, where no device needs others.

        Moves, and a factor matrix that is summed out, look at the whole matrix.
        """
        given = sampler.given() if isinstance(sampler, Sampler) else {}
        needs_all = given.get("moves") or given.get("update") == "collapsed"
        needs_all = (
            needs_all or isinstance(model.rank, str) or getattr(sampler, "name", sampler) == "smc"
        )
        # Chains that run apart leave the data for the merge.
        needs_all = needs_all or chains is not None
        if needs_all or not several_processes(mesh) or num_shards(mesh) == 1:
            return None
        return lambda shape: share_of_rows(shape, mesh) if math.prod(shape) > MEDIUM else None

    def check_anchors(self, anchors, model):
        check_bits(anchors)

    def read_start(self, problem):
        if problem.sampler.name == "smc":
            raise InputError(
                "sampler 'smc' starts from the prior; leave init out, or choose 'gibbs'"
            )
        return given_bits(problem)

    def plan(self, problem: Problem) -> Plan:
        if problem.sampler.name == "smc":
            return _plan_of_populations(problem)
        given, priors = problem.options, problem.priors
        defaults, why = _defaults(problem, given)
        if problem.finds_rank:
            _check_unknown_rank(priors["usage"], defaults | given)
        later = _later_stages(problem, priors, given, defaults)
        first = _first_stage(problem, given, defaults, later)
        from_prior = problem.init is None and first.options.get("update") == "collapsed"
        stages = (first, *later)
        drawn, most = problem.num_chains * _bytes_a_draw(problem), problem.most_samples
        kept = min(thinning(drawn, most, MAX_KEPT)[1], most)
        size = int(problem.rank), problem.num_chains, kept
        return Plan(
            boolean_arguments(priors, problem.finds_rank),
            stages,
            _start_text(problem, from_prior, first.options["num_anneal"]),
            held_by(problem.data, *size, stages[-1].options),
            why,
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        if problem.sampler.name == "smc":
            return _populations(problem, plan)
        free = problem.init is None
        from_prior = free and plan.options.get("update") == "collapsed"
        later = [_option_texts(stage.options) for stage in plan.stages[1:]]
        return _chains(
            problem, plan, 0, plan.init,
            lambda bound, resume: None if from_prior else _starts(problem, bound, resume),
            shared_starts=free and not from_prior and _exchanges(problem.data.shape),
            more={"next_stage": later} if later else {},
        )  # fmt: skip

    def other_sampler(self, problem):
        states = problem.data.num_rows * problem.data.num_columns * 2 ** int(problem.rank)
        small = int(problem.rank) <= MAX_JOINT and states <= FEW_STATES and not problem.finds_rank
        return "smc" if small and problem.sampler.name != "smc" else None

    def product_draws(self, problem, drawn):
        sides = zip(FACTORS, problem.data.shape, strict=True)
        return tuple(PackedDraws(drawn[name], size) for name, size in sides)

    def ordered(self, problem, chains, seen):
        usage, basis = self.product_draws(problem, seen.sites)
        if problem.finds_rank:
            usage, basis = without_halves(usage, basis)
        aligned = align_packed(usage, basis, seen.best, problem.num_anchors)
        if problem.finds_rank:
            aligned = without_improbable(aligned)
        sites = dict(seen.sites) | factor_words(aligned)
        for name in ("usage_density", "basis_density"):
            if name in sites:
                sites[name] = np.take_along_axis(sites[name], aligned.permutation, -1)
        _tell_known_densities(sites, problem)
        return Ordered(sites, agreement_of(aligned), aligned)

    def majority(self, problem, found, seen):
        if math.prod(problem.data.shape) <= MAX_ENTRIES:
            return None
        return _majority_of_best(found, seen)

    def result(self, problem: Problem, chains: Chains, run: ChainRun) -> BooleanFit:
        figures = {}
        if problem.sampler.name == "smc":
            drawn, trace, figures = particles(problem, chains, run)
            seen = KeptDraws(drawn, after_warmup(run, trace), figures["thinning"])
        else:
            trace, seen = run.trace(), kept_draws(run)
        found = self.ordered(problem, chains, seen)
        if problem.finds_rank:
            figures = verdict.of_rank(seen.trace["rank"])
        # Draws that repeat a start are bits already, for a better start there was no time.
        binary = (
            _majority_of_best(found, seen) if run.stood else self.majority(problem, found, seen)
        )
        return tile_fit(
            BooleanFit, problem, chains, run, found.aligned, found.agreement, trace,
            {n: v for n, v in found.sites.items() if n not in FACTORS},
            binary=binary, figures=figures,
        )  # fmt: skip


# ---- before ---------------------------------------------------------------------------------


def _chains(
    problem, plan: Plan, number: int, init: str, start: Callable, more=MappingProxyType({}),
    shared_starts=False, found=MappingProxyType({}), **of_stage
) -> Chains:  # fmt: skip
    """Return the chains of a stage of a plan; ``start(bound, resume)`` gives their positions.

    `more` settings determine the draws of later stages; `shared_starts` tells whether chains knew
    of each other before they started; `found` are options that chains before these have found.
    """
    stage, arguments = plan.stages[number], plan.arguments
    kernel = problem.kernel.make(_model(problem, arguments), **stage.options, **found)
    bound, _ = kernel.bind_packed(problem.data, mesh=problem.mesh)
    follows = _following(problem, plan, number + 1)
    return Chains.of_stage(
        problem,
        stage,
        bound.algorithm,
        bound.data,
        bytes_a_draw=_bytes_a_draw(problem),
        settings={
            "priors": {n: settings_text(p) for n, p in arguments.items()},
            "init": init,
            "sampler_options": _option_texts(stage.options),
            **more,
        },
        most=MAX_KEPT,
        sites=tuple(sites_of(arguments)),
        trace=tuple(_traced(stage.options)),
        start=functools.partial(start, bound),
        arguments={
            "exact": stage.options.get("dispersion", "sample") == "sample",
            "shared_starts": shared_starts,
        },
        # Random bits would differ from chain to chain, which takes long to look into.
        resting=_without_factors if problem.init is problem.anchors is None else None,
        next_stage=follows,
        **(_patience(problem, plan.stages[number + 1]) if follows else {}),
        **of_stage,
    )


def _without_factors(snapshot):
    """Return chains of which no factor has a row or a column."""

    def empty(path, leaf):
        of_factors = {getattr(key, "key", None) for key in path} & set(FACTORS)
        return np.zeros_like(leaf) if of_factors else leaf

    return jax.tree_util.tree_map_with_path(empty, snapshot)


def _option_texts(options: Mapping) -> dict[str, str]:
    """Tell options; solutions that were given by a fingerprint."""

    def text(value):
        if isinstance(value, KnownSolutions):
            return digest({str(i): leaf for i, leaf in enumerate(jax.tree.leaves(value))})
        return str(value)

    return {name: text(value) for name, value in options.items()}


def _following(problem, plan: Plan, number: int) -> Callable | None:
    """Return ``next_stage(run)`` of a stage of a plan, after which the rest follow."""
    if number == len(plan.stages):
        return None

    def next_stage(run):
        return _chains(
            problem, plan, number, "where chains that disagreed had come",
            lambda bound, resume: position_of(run.state),
            stream=STAGE_STREAM - (len(plan.stages) - 1 - number),
            found=_solutions_for(problem, plan.stages[number].options, run),
            num_starts=_number_alone(plan.stages[number].options, run),
            search_ends=_ends(problem, plan.stages[number].options, run),
        )  # fmt: skip

    return next_stage


def _patience(problem, following: StagePlan) -> dict:
    """Return the patience of chains before temperatures, which cost much at higher ranks."""
    tempered = "inverse_temperatures" in following.options
    return {"patience": PATIENCE} if tempered and int(problem.rank) >= WHOLE_RANK else {}


def _solutions_for(problem, options, run) -> dict:
    """Return the solutions that a run has found, as an option, where jumps need them."""
    if "jump" not in options.get("moves", ()) or "solutions" in options:
        return {}
    data = problem.data
    if not run.steps_done:  # what was stored replaces them
        rates = problem.model.num_rates
        return {"solutions": no_solutions(data.shape, int(problem.rank), rates)}
    drawn = dict(run.draws())
    for name, size in zip(FACTORS, data.shape, strict=True):
        drawn[name] = PackedDraws(drawn[name], size)
    return {"solutions": known_solutions(drawn)}


def _number_alone(options, run) -> int:
    """Return how many chains found by themselves the best solution that jumps lead to, else 0."""
    if "jump" not in options.get("moves", ()):
        return 0
    number = number_near(run.trace()["log_joint"][:, run.num_warmup :])
    return min(number, run.num_starts or number)


def _ends(problem, options, run) -> SearchEnds | None:
    """Return what each chain had found by itself before it jumps to what others had."""
    # What was stored replaces it.
    if run.search_ends is not None or "jump" not in options.get("moves", ()) or not run.num_draws:
        return run.search_ends
    seen = kept_draws(run)
    draws = problem.family.product_draws(problem, seen.sites)
    aligned = align_packed(*draws, seen.best, problem.num_anchors)
    usage, basis = (np.asarray(f.mean(1)) >= 0.5 for f in (aligned.usage, aligned.basis))
    return SearchEnds(np.full(len(usage), -1), usage, basis.astype(np.float32))


def _model(problem, arguments):
    """Return the model with its arguments, as samplers take it."""
    anchors = None if problem.anchors is None else problem.anchors.values
    return functools.partial(models.ormachine, rank=int(problem.rank), anchors=anchors, **arguments)


def _bytes_a_draw(problem) -> int:
    return 4 * int(problem.rank) * sum(-(-size // WORD) for size in problem.data.shape)


def _majority_of_best(found: Ordered, seen: KeptDraws) -> Binarized:
    """Return what most draws of the best chain have."""
    chain, aligned = slice(seen.best_chain, seen.best_chain + 1), found.aligned
    bits = (PackedDraws(f.words[chain], f.size) for f in (aligned.usage, aligned.basis))
    return Binarized(*(f.mean() >= 0.5 for f in bits), float("nan"))


def _starts(problem, bound, resume):
    """Return the positions of chains that do not start from the prior."""
    data, rank = problem.data, int(problem.rank)
    if problem.init is not None:
        starts = [problem.init] * problem.num_chains
    elif resume:  # what was stored replaces it
        empty = {n: np.zeros((s, rank), bool) for n, s in zip(FACTORS, data.shape, strict=True)}
        starts = [empty] * problem.num_chains
    else:
        key = jax.random.fold_in(problem.key, START_STREAM)
        starts = _found_starts(problem, key)
    placed = [bound.unconstrain(s) for s in starts]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *placed)


def _found_starts(problem, key) -> list[dict]:
    """Return factors for every chain to start from."""
    data, rank = problem.data, int(problem.rank)
    exchange = _exchanges(data.shape)
    if _climbs(problem):
        return ascent_starts(
            key, data, rank, problem.num_chains,
            num_rates=problem.model.num_rates, exchange=exchange,
        )  # fmt: skip
    return boolean_starts(
        key, data, rank, problem.num_chains, num_exchange=EXCHANGE if exchange else 0,
        anchors=None if problem.anchors is None else problem.anchors.values,
    )  # fmt: skip


def boolean_arguments(priors: Mapping, finds_rank: bool) -> dict:
    """Return keyword arguments of `bmfjax.models.ormachine` from the fields of the model."""
    found = {"presence_prior": PRESENCE} if finds_rank else {}
    return dict(priors) | found


def _first_stage(problem: Problem, given: Mapping, defaults: Mapping, later) -> StagePlan:
    """Return the first stage: options as given, or what a matrix of this size affords."""
    options = {**defaults, **given}
    if later:
        whole = "moves" in given or int(problem.rank) >= WHOLE_RANK
        for name in OF_LADDER if whole else (*OF_LADDER, "moves"):
            options.pop(name, None)
    # Starts of single flips are annealed already, and who gives a start wants to keep it.
    from_prior = options.get("update") == "collapsed" and problem.init is None
    if problem.is_auto and from_prior:
        data = problem.data
        observed = data.num_rows * data.num_columns - data.num_missing
        options.setdefault("lowest", LOWEST * min(1.0, LOWEST_FOR / observed))
    # For a run that may count draws as warm-up.
    warmup = problem.warmup(ANNEAL if from_prior else SETTLE)
    return StagePlan(annealed_options(problem, options, from_prior, warmup), warmup)


def _later_stages(problem: Problem, priors, given: Mapping, defaults: Mapping) -> list[StagePlan]:
    """Return the chains that go on where those before them disagree.

    First they jump between the solutions that they have found, where these are known well enough
    to be proposed; then there are temperatures too. A run of a given length has these temperatures
    from the start, and so has one whose temperatures are given: no stage follows.
    """
    unasked = "inverse_temperatures" in defaults.keys() - given.keys()
    if not problem.is_auto or not unasked:
        return []
    # Chains that disagree are heated again: a ladder alone takes long to move what is stuck.
    warmup = STAGE_WARMUP * int(problem.rank)
    heated = min(given.get("num_anneal", warmup), warmup // 2) if problem.init is None else 0
    left = warmup - heated
    # No draw is kept of a ladder that still changes.
    adapted = min(given.get("num_adapt", left), left)
    options = {**defaults, **given}
    hotter = options | {"num_anneal": heated, "num_adapt": adapted}
    phase = f"sampling at {len(options['inverse_temperatures'])} temperatures"
    if not _can_jump(problem, priors, given):
        return [StagePlan(hotter, heated + adapted, phase)]
    moves = {"moves": (*WHOLE_FACTORS, "jump")}
    plain = {n: v for n, v in options.items() if n not in (*OF_LADDER, "num_anneal")}
    return [
        StagePlan(plain | moves, SETTLE, "sampling with jumps between solutions"),
        StagePlan(hotter | moves, heated + adapted, phase),
    ]


def _can_jump(problem: Problem, priors: Mapping, given: Mapping) -> bool:
    """Tell whether chains may jump to solutions, whose factors come in any order.

    Not where factors are known or have priors of their own, or where other moves are asked for.
    """
    alike = all(priors[n] is None or np.ndim(priors[n]) == 0 for n in FACTORS)
    return alike and problem.anchors is None and "moves" not in given and int(problem.rank) > 1


def _check_unknown_rank(usage, options: Mapping) -> None:
    """Refuse what cannot empty and fill factors."""
    if usage is not None and not hasattr(usage, "sample"):
        raise InputError(
            "rank is 'auto', and usage fixes the densities of usage, which are zero where a "
            "factor is not there; give a Beta prior or none, or give a rank"
        )
    moves = np.atleast_1d(options.get("moves", ())).tolist()
    whole = options.get("update") == "collapsed" or "rebirth" in moves
    if whole or options.get("num_exchanges"):
        raise InputError(
            "rank is 'auto', and the update 'collapsed', the move 'rebirth' and num_exchanges take "
            "all factors to be there; leave them out, or give a rank"
        )
    if not {"birth", "split_merge"} & set(moves):
        raise InputError(
            f"rank is 'auto', and none of the moves {moves} brings a factor back; add 'birth' or "
            "'split_merge', or give a rank"
        )


def _defaults(problem: Problem, given: Mapping) -> tuple[dict, str]:
    """Return the options that are not given, and why they are these."""
    if problem.finds_rank and given.get("update") != "collapsed":
        return options_of_unknown_rank(*problem.data.shape)
    return default_options(*problem.data.shape, problem.rank, given)


def options_of_unknown_rank(rows: int, columns: int) -> tuple[dict, str]:
    """Return the options of a fit that finds the number of factors, and why.

    Examples
    --------
    >>> options_of_unknown_rank(200, 500)[0]
    {'moves': ('collapsed', 'birth', 'split_merge')}
    """
    entries = rows * columns
    if entries > MEDIUM:
        why = f"splits and merges of factors are too slow for more than {MEDIUM:,} entries"
        return {"moves": ("birth",)}, why
    found = {"moves": ("collapsed",) * (entries <= SMALL) + ("birth", "split_merge")}
    return found, "the number of factors is found by moves that empty factors and fill them"


def default_options(
    rows: int, columns: int, rank: int, given: Mapping = MappingProxyType({})
) -> tuple[dict, str]:
    """Return options that a matrix of this size can afford in every sweep, beside those given.

    The second is the reason, as a sentence.

    Examples
    --------
    >>> small, why = default_options(435, 16, 4)
    >>> small["update"], len(small["inverse_temperatures"])
    ('collapsed', 4)
    >>> [default_options(n, 512, 8)[0] for n in (200, 512, 10**6)]
    [{'moves': ('collapsed',)}, {'moves': ('rebirth', 'collapsed'), 'block_size': 8}, {'moves': ()}]
    >>> default_options(435, 16, 4, {"update": "joint"})[0]
    {'moves': ('collapsed',)}
    >>> default_options(512, 512, 8, {"moves": ("birth",)})[0]
    {'moves': ('rebirth', 'collapsed')}
    """
    if given.get("update") == "collapsed":
        return {}, "the update 'collapsed' is given, and moves and temperatures with it"
    # Most moves, and flip rates that are set, belong to the other updates.
    other = given.keys() & {"update", "block_size"} or given.get("dispersion") in RULES[1:]
    moves = np.atleast_1d(given.get("moves", ()))
    other = other or (len(moves) and not ONLY_COLLAPSED & set(moves.tolist()))
    entries = rows * columns
    if rank <= MAX_JOINT and entries * 2**rank <= FEW_STATES and not other:
        number, hottest = LADDER if rank < WHOLE_RANK else WHOLE_LADDER
        ladder = geometric_ladder(hottest, number)
        tempered = given.get("inverse_temperatures", ladder) is not None
        more = {"num_exchanges": EXCHANGES} if tempered else {}
        if rank >= WHOLE_RANK or (tempered and rank > 1):
            more["moves"] = WHOLE_FACTORS
        why = (
            f"the longer factor matrix is summed out: the rank is at most {MAX_JOINT}, and entries "
            f"times 2^rank are at most {FEW_STATES:,}"
        )
        return {"update": "collapsed", "inverse_temperatures": ladder, **more}, why
    if entries <= SMALL:
        return {"moves": ("collapsed",)}, f"there are at most {SMALL:,} entries"
    if entries <= DENSE:
        # Rebirths cross between modes, and what is left of a column moves with rows summed out.
        # Where there are few factors their bits depend on each other: most are drawn at once.
        is_used = rank <= MAX_CLIMB_RANK and ("moves" not in given or "collapsed" in moves)
        block = {"block_size": MAX_JOINT} if is_used else {}
        return {"moves": ("rebirth", "collapsed")} | block, f"there are at most {DENSE:,} entries"
    if entries <= MEDIUM:
        return {"moves": ("birth",)}, f"there are at most {MEDIUM:,} entries"
    return {"moves": ()}, f"moves are too slow for more than {MEDIUM:,} entries"


def held_by(data, rank: int, chains: int, kept: int, options: Mapping) -> tuple[Held, ...]:
    """Return the arrays that a fit holds."""
    rows, columns = data.shape
    words = (data.held_rows * -(-columns // WORD), columns * -(-data.held_rows // WORD))
    replicas = chains * len(options.get("inverse_temperatures") or (1.0,))
    bits = rank, rows + columns
    found = [
        Held("packed words", (sum(words),), 8 if data.num_missing else 4, PARTS),
        # As drawn and in one order.
        Held("kept draws", (kept, chains, *bits), 2 / 8, HOST),
        # A few numbers for every bit of every chain, then means and counts of all.
        Held("chains", bits, 8 * replicas + 32),
    ]
    is_collapsed = options.get("update") == "collapsed"
    if is_collapsed:
        found.append(weights_of_states(data, rank, replicas))
    if "rebirth" in np.atleast_1d(options.get("moves", ())):
        # Gains, what the others leave of them, and two products on the way; four tables of states.
        found.append(
            candidates(data, replicas)
            if is_collapsed
            else Held("gains of entries", (rows * columns + 2**6 * max(data.shape),), 16 * replicas)
        )
    return tuple(found)


def weights_of_states(data, rank: int, replicas: int) -> Held:
    """Return a few numbers at a time for every state of a line, in every replica."""
    return Held(f"weights of {2**rank:,} states a line", (2**rank, max(data.shape)), 20 * replicas)


def candidates(data, replicas: int) -> Held:
    """Return what rebirths hold: templates and gains of entries, and candidates of lines."""
    number = math.prod(data.shape) + CANDIDATES * max(data.shape)
    return Held("candidates", (number,), 50 * replicas)


def held_by_particles(data, rank: int, runs: int, num_particles: int) -> tuple[Held, ...]:
    """Return what populations hold; few particles are moved side by side."""
    found = [
        # As moved, as observed, and in one order.
        Held("particles", (runs, num_particles, rank, sum(data.shape)), 3 / 8),
        weights_of_states(data, rank, runs * BLOCK),
    ]
    return tuple(found + [candidates(data, runs * BLOCK)] * (rank > 1))


def _plan_of_populations(problem: Problem) -> Plan:
    """Return the plan of runs of sequential Monte Carlo."""
    if int(problem.rank) > MAX_JOINT:
        raise InputError(
            f"rank is {problem.rank}, and sampler 'smc' weighs all states of the factors of a row; "
            f"choose a rank of at most {MAX_JOINT}, or sampler='gibbs'"
        )
    size = int(problem.rank), problem.num_chains, problem.sampler.num_particles
    return Plan(
        boolean_arguments(problem.priors, False),
        (StagePlan(problem.options, 0, "tempering"),),
        "the prior",
        held_by_particles(problem.data, *size),
        "populations of particles choose their temperatures themselves",
        remedy="choose fewer particles (num_particles) or chains",
    )


def _populations(problem: Problem, plan: Plan) -> Chains:
    """Return runs of sequential Monte Carlo."""
    sampler = problem.kernel.make(_model(problem, plan.arguments), **plan.options)
    settings = {
        "priors": {n: settings_text(p) for n, p in plan.arguments.items()},
        "thinning": 1,
        "sampler_options": {n: str(v) for n, v in plan.options.items()},
    }
    return chains_of_particles(problem, sampler.bind(problem.data), settings)


def sites_of(arguments) -> list[str]:
    """Return the names of the sites that are drawn; densities only where they are learned."""

    def learned(prior):
        return prior is None or hasattr(prior, "arg_constraints")

    fixed = [f"{s}_density" for s in FACTORS if not learned(arguments[s])]
    fixed += [] if "presence_prior" in arguments else ["usage_presence"]
    return [n for n in SITES if n not in fixed]


def given_bits(problem: Problem) -> dict:
    """Return the start that was given, as bits."""
    start = problem.read_start()
    for name, values in start.items():
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(f"init {name!r} has values other than 0 and 1; round it first")
    return {n: v > 0.5 for n, v in start.items()}


def _climbs(problem) -> bool:
    """Tell whether chains start where a population climbed to.

    It takes all factors to be there, and none to be known.
    """
    free = not problem.finds_rank and problem.anchors is None
    return free and can_climb(problem.data.shape, int(problem.rank))


def _exchanges(shape) -> bool:
    """Tell whether chains may take over each other's factors before they start."""
    return shape[0] * shape[1] > SMALL


def _start_text(problem, from_prior, num_anneal):
    if problem.init is not None:
        return digest(problem.init)
    if from_prior:
        return "annealed from the prior" if num_anneal else "the prior"
    found = "population that climbs to modes" if _climbs(problem) else "annealed relaxed model"
    exchanged = ", factors exchanged between chains" if _exchanges(problem.data.shape) else ""
    return f"{found}{exchanged}"


def _traced(options):
    # A move that is made several times a step is named several times.
    moves = np.atleast_1d(options.get("moves") or ())
    names = [f"{m}_accepted" for m in dict.fromkeys(moves.tolist())]
    if options.get("inverse_temperatures") is not None:
        names += OBSERVED
        if options.get("num_exchanges"):
            names.append("population_accepted")
    return names


# ---- after ----------------------------------------------------------------------------------


def align_packed(usage: PackedDraws, basis: PackedDraws, pivot, held: int = 0) -> Alignment:
    """Align packed draws by up to 1,000 rows and 1,000 columns, those used most unevenly.

    The first `held` factors stay in their places.
    """
    further = np.arange(held, usage.shape[-1])
    learned = (f.reordered(further) for f in (usage, basis)) if len(further) else (usage, basis)
    found = matched(*(f.packed_lines(_telling(f)) for f in learned), pivot=pivot)
    order = found.permutation if len(further) else found.permutation[..., :0]
    order = known_first(order, held)
    moved = [f.reordered(order) for f in (usage, basis)]
    return found._replace(usage=moved[0], basis=moved[1], permutation=order)


def _tell_known_densities(drawn, problem: Problem) -> None:
    """Set densities of factors whose basis is known to the share of its ones, in place.

    No bit follows them, and what was drawn is the prior.
    """
    if problem.anchors is None or "basis_density" not in drawn:
        return
    whole = np.flatnonzero(problem.anchors.whole)
    drawn["basis_density"] = np.array(drawn["basis_density"])
    drawn["basis_density"][..., whole] = problem.anchors.values[:, whole].mean(0)


def without_halves(usage: PackedDraws, basis: PackedDraws) -> tuple[PackedDraws, PackedDraws]:
    """Empty a factor that has no ones in the other matrix: what it has are draws of the prior."""
    used = [(f.words != 0).any(-1, keepdims=True) for f in (usage, basis)]
    both = used[0] & used[1]
    return tuple(PackedDraws(np.where(both, f.words, 0), f.size) for f in (usage, basis))


def factors_in_use(aligned) -> np.ndarray:
    """Tell in which draws every factor has ones in both matrices: (chain, draw, rank) bool."""
    return (aligned.usage.words != 0).any(-1) & (aligned.basis.words != 0).any(-1)


def without_improbable(aligned: Alignment) -> Alignment:
    """Leave out the factors that are less probable than not; one is kept in any case."""
    kept = kept_factors(factors_in_use(aligned))
    return aligned._replace(
        usage=aligned.usage.reordered(kept),
        basis=aligned.basis.reordered(kept),
        permutation=aligned.permutation[..., kept],
    )


def _telling(draws: PackedDraws) -> np.ndarray:
    """Return the lines whose bits differ most between factors of one draw."""
    if draws.size <= MAX_MATCHED:
        return np.arange(draws.size)
    share = draws[0, draws.shape[1] - 1].mean(-1)
    return np.sort(np.argsort(-share * (1 - share), kind="stable")[:MAX_MATCHED])


def agreement_of(aligned) -> np.ndarray:
    """Return the agreements (2, rank), one factor at a time: means take 64 times a bit."""
    draws, rank = (aligned.usage, aligned.basis), aligned.usage.shape[3]
    return np.concatenate(
        [agreements(*(f.reordered([k]).mean(1) for f in draws)) for k in range(rank)], 1
    )


def factor_words(aligned) -> dict[str, np.ndarray]:
    """Return the words of aligned factors, as a run draws them."""
    return {"usage": aligned.usage.words, "basis": aligned.basis.words}
