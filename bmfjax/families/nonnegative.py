"""The nonnegative model, "nmf": nonnegative factors with exponential priors and normal noise."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bmfjax import models, verdict
from bmfjax.data import BinaryMatrix, InputError, RealMatrix
from bmfjax.data.anchors import check_weights
from bmfjax.data.names import place_text
from bmfjax.diagnostics import align
from bmfjax.diagnostics.align import agreements, apply_permutation
from bmfjax.families import memory, relevance
from bmfjax.families.base import (
    FACTORS,
    Chains,
    Family,
    NumbersFit,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    annealed_options,
    csr_of,
    matched_rows,
    mean_and_square,
    read_real,
    squared_residual,
)
from bmfjax.infer.mcmc.truncated import numbers
from bmfjax.kernels.relaxed.density import MAX_PRECISION
from bmfjax.posterior import products
from bmfjax.report import facts, words
from bmfjax.report.checks import agreement as agreement_section
from bmfjax.report.checks import modes, spread
from bmfjax.report.factors import POSITIVE, factors, signed_card
from bmfjax.report.number import number_of_factors, number_section
from bmfjax.report.overview import matrix, of_product
from bmfjax.report.plots import traces
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING
from bmfjax.report.summaries import summaries
from bmfjax.result import ModesMixin
from bmfjax.specs import NMF
from bmfjax.specs.base import digest, settings_text

RATES = ("usage_rate", "basis_rate")
#: Root mean square of the data between which float32 holds squares, and precisions of the noise.
LEAST_SIZE, MOST_SIZE = 1e-12, 1e12
#: Share of the sum of squares from which on negative values are no noise about zero.
NEGATIVE = 0.1
#: Annealed steps, before draws are kept, of a run that finds its own warm-up.
WARMUP = 500


PAGE = Page(
    facts=(
        *SAMPLING,
        number_of_factors,
        functools.partial(facts.mixing, of="fits"),
        facts.found,
        facts.replicas,
        facts.noise,
    ),
    sections=(
        number_section,
        functools.partial(
            matrix, shown="product", moments=of_product, data=BinaryMatrix | RealMatrix
        ),
        functools.partial(
            factors,
            note="A factor adds to an entry the product of its row's and its column's value, "
            "neither of which is negative. The bar is the posterior mean of a column's value, "
            "against the largest of the factor, followed by its standard deviation; a grey one is "
            "less than two standard deviations from zero. A section below shows whether other "
            "factors fit as well.",
            card=functools.partial(signed_card, scale="the data", both_ends=False),
            shades=POSITIVE,
        ),
        traces,
        summaries,
        functools.partial(
            agreement_section,
            first="Entries of the product do not depend on how factors are matched and are what "
            "counts first; entries of the factors say whether the chains hold the same solutions.",
        ),
        modes,
        functools.partial(
            spread,
            of=", or of the usage if those differ more",
        ),
    ),
    words=(*words.NONNEGATIVE, words.NOISE, words.SOLUTION, *DRAWS),
    query="predict",
)


@dataclass(frozen=True, repr=False)
class NonnegativeFit(ModesMixin, NumbersFit):
    """A fit of nonnegative factors."""

    _models = ("nmf",)
    _page = PAGE
    _dims: ClassVar = {"rate": ["factor"]}
    _is_signed = False
    _counts_as_factor, _ranks_beforehand = relevance.COUNTED, relevance.BEFOREHAND

    @functools.cached_property
    def _spread(self):
        return verdict.farther_spread(self.usage_draws, self.basis_draws)

    def _transform(self, new_rows) -> np.ndarray:
        new = matched_rows(self, new_rows, read_real)
        draws = self.basis_draws.reshape(-1, *self.basis_draws.shape[2:])
        return products.best_usage(numbers(new), draws, upper=np.inf)

    def _with_rows(self, new, seed):
        return self._with_best_usage(matched_rows(self, new, read_real), upper=np.inf)


class Nonnegative(Family):
    """Nonnegative factors with exponential priors."""

    models: ClassVar = {"nmf": NMF}
    ladder = ("walls", "[1000, 30, 2]")
    finds_rank = on_mesh = ("gibbs",)
    takes_anchors = True

    def kind(self, model):
        return RealMatrix

    def read(self, source, model):
        data = super().read(source, model)
        if isinstance(data, RealMatrix):
            check_negative(data)
        return data

    def check_anchors(self, anchors, model):
        check_weights(anchors, model, signed=False)

    def read_start(self, problem):
        return problem.read_start(0.0)

    def plan(self, problem: Problem) -> Plan:
        options, warmup = dict(problem.options), problem.warmup(WARMUP)
        # Replicas behind walls share one likelihood, which is not annealed.
        # Nor are chains that find the number of factors: weak ones would be lost on the way.
        walls = options.get("walls")
        from_prior = walls is None and problem.init is None and not problem.finds_rank
        options = annealed_options(problem, options, from_prior, warmup)
        # The residuals of every chain and replica, and with gaps lists of cells.
        each = 4 + (int(problem.rank) // 2 if problem.data.num_missing else 0)
        copies = problem.num_chains * (1 + len(walls or ()))
        csr = csr_of(problem.data, gaps=False)
        return Plan(
            nmf_arguments(problem),
            (StagePlan(options, warmup),),
            "prior",
            memory.dense(problem.data, 24 + each * copies)
            if csr is None
            else memory.nonzero(csr.nnz),
            "the warm-up is annealed" if options.get("num_anneal") else "nothing is annealed",
            csr,
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        data, rank, arguments = problem.data, int(problem.rank), plan.arguments
        options = plan.options
        model = functools.partial(models.nmf, rank=rank, **arguments)
        kernel = problem.kernel.make(model, **options)
        values = data.dense() if plan.known is None else plan.known
        start = given_start(problem, arguments, values)
        if problem.finds_rank:
            start = relevance.random_start(problem, arguments["precision"])
        bound = kernel.bind(values, anchors=inner_anchors(problem, arguments), mesh=problem.mesh)
        algorithm = bound.algorithm
        if problem.finds_rank:
            noise_sd = relevance.noise_sd(arguments["precision"])
            algorithm = relevance.with_rank_counted(algorithm, data, noise_sd)
        learned = () if isinstance(arguments["precision"], float) else ("precision",)
        replicas = ("swap_probability", "replica") if options.get("walls") is not None else ()
        return Chains.of_stage(
            problem,
            plan.stages[0],
            algorithm,
            bound.data,
            bytes_a_draw=4 * rank * sum(data.shape),
            settings={
                "priors": {n: settings_text(p) for n, p in arguments.items()},
                "init": plan.init if problem.init is None else digest(start),
                "sampler_options": {n: str(v) for n, v in options.items()},
            },
            sites=(*FACTORS, *learned, *["rate"] * problem.finds_rank),
            trace=(*learned, *replicas),
            start=lambda resume: start,
            arguments=arguments,
        )

    def ordered(self, problem, chains, seen):
        drawn = seen.sites
        if problem.finds_rank:
            drawn = _used(drawn, problem.data, chains.arguments["precision"], seen.best)
        else:
            usage, basis = _own_scale(drawn["usage"], drawn["basis"], problem, chains.arguments)
            usage, basis = _ordered(usage, basis, seen.best, problem.num_anchors)
            drawn = drawn | {"usage": usage, "basis": basis}
        return Ordered(drawn, agreements(drawn["usage"].mean(1), drawn["basis"].mean(1)))

    def at_the_end(self, problem, chains, run):
        # A learned precision is bounded by its prior, and by the arithmetic.
        data, prior = problem.data, chains.arguments["precision"]
        if isinstance(prior, float):
            return {}
        seen = data.num_rows * data.num_columns - data.num_missing
        return {"residual_floor": 2 * max(float(prior.rate), seen / max_precision(data))}


def check_negative(data: RealMatrix) -> None:
    """Refuse negative values that are no noise about zero, by the smallest and its place.

    They are noise where they have a small share of the sum of squares, and none is larger than the
    largest positive value.
    """
    low, high = data.range
    if low >= 0:
        return
    seen = data.nonzero().tocoo()
    share = np.nansum(np.minimum(seen.data, 0) ** 2) / np.nansum(seen.data**2)
    if -low <= high and share < NEGATIVE:
        return
    k = np.nanargmin(seen.data)
    where = place_text(seen.row[k], seen.col[k], data.row_names, data.column_names)
    raise InputError(
        f"value {low:g} at {where} is negative, and model 'nmf' is of numbers of at least 0; if it "
        f"means that there is none, say missing={low:g} (--missing={low:g}) where a file is read, "
        "or give NaN; for centred data choose another model, such as 'pmf'"
    )


def nmf_arguments(problem: Problem) -> dict:
    """Return keyword arguments of `bmfjax.models.nmf`; the data's scale sets what is not given."""
    data, rank = problem.data, int(problem.rank)
    given = {n: v for n, v in problem.priors.items() if v is not None}
    relevance.refuse_relevance(problem, "rate")
    mean, square = mean_and_square(data)
    if mean <= 0:
        raise InputError(
            f"the mean of the data is {mean:.4g}; model 'nmf' is of nonnegative products: give "
            "data with a positive mean, or another model"
        )
    if not LEAST_SIZE < square**0.5 < MOST_SIZE:
        raise InputError(
            f"the root mean square of the data is {square**0.5:.3g}; give the data in a unit in "
            f"which it is between {LEAST_SIZE:.0e} and {MOST_SIZE:.0e}, so that float32 holds the "
            "noise"
        )
    found = models.priors_by_scale(rank, mean, square) | given
    found["precision"] = models.resolve_precision(found["precision"])
    if problem.finds_rank:
        relevance.refuse_priors(
            problem, dict.fromkeys(RATES, "is one rate of all factors, none of which would vanish")
        )
        return {
            "precision": found["precision"],
            "rate": found.get("rate", models.relevance_by_scale(mean)),
        }
    if len(given.keys() & set(RATES)) == 1:
        # From one rate that is given the other follows: their product matters.
        one = next(iter(given.keys() & set(RATES)))
        other = next(n for n in RATES if n != one)
        if isinstance(given[one], int | float) and given[one] > 0:
            found[other] = rank / (mean * given[one])
    return found


def max_precision(data) -> float:
    """Return where a learned precision is held, in the unit of the data."""
    return MAX_PRECISION / mean_and_square(data)[1]


def anchor_scale(problem: Problem, arguments) -> np.ndarray:
    """Return what known factors are divided by inside of the sampler, (number,) float64.

    Their mean is then that of the prior of other columns of the basis. So the one rate of the usage
    expects as much of a known factor as of another, whatever the unit of its numbers. A rate that
    is given is of the usage in the user's own unit.
    """
    if problem.model.usage_rate is not None:
        return np.ones(problem.num_anchors)
    rate = arguments["basis_rate"]
    rate = rate if isinstance(rate, int | float) and rate > 0 else 1.0  # else refused later
    return problem.anchors.values.mean(0) * rate


def inner_anchors(problem: Problem, arguments) -> np.ndarray | None:
    """Return known factors as the sampler has them, (columns, number) float32."""
    if problem.anchors is None:
        return None
    return (problem.anchors.values / anchor_scale(problem, arguments)).astype(np.float32)


def _own_scale(usage, basis, problem: Problem, arguments):
    """Return draws of the sampler in the user's own unit of the known factors."""
    if problem.anchors is None:
        return usage, basis
    number, (usage, basis) = problem.num_anchors, (np.array(usage), np.array(basis))
    usage[..., :number] /= anchor_scale(problem, arguments).astype(usage.dtype)
    basis[..., :number] = problem.anchors.values
    return usage, basis


def given_start(problem: Problem, arguments, values) -> dict | None:
    """Return the position of every chain from the factors that a user gave; None without.

    `values` are the data as the sampler takes them.
    """
    start, data = problem.init, problem.data
    if start is None:
        return None
    # Above zero, where the density is that of the interval's inside.
    start = {n: np.maximum(v, np.finfo(np.float32).tiny) for n, v in start.items()}
    if problem.anchors is not None:
        number = problem.num_anchors
        start["usage"][:, :number] *= anchor_scale(problem, arguments)
        start["basis"][:, :number] = inner_anchors(problem, arguments)
    prior = arguments["precision"]
    if not isinstance(prior, float):
        # The conditional mean: a start with the wrong precision is left at the first step.
        residual = squared_residual(values, start["usage"], start["basis"])
        seen = data.num_rows * data.num_columns - data.num_missing
        mean = (prior.concentration + seen / 2) / (prior.rate + residual / 2)
        start["precision"] = np.float32(min(mean, max_precision(data)))
    return problem.every_chain(start)


def _used(drawn, data, precision, pivot) -> dict:
    """Return draws of the factors that are used, matched by their directions."""
    usage, basis = drawn["usage"], drawn["basis"]
    used = relevance.used_draws(data, usage, basis, relevance.noise_sd(precision)(drawn))
    usage, basis = relevance.handed_over(usage, basis, used)
    order = _matching(usage, basis, pivot)
    usage, basis = apply_permutation(usage, basis, order)
    kept = relevance.kept_of(usage)
    rate = np.take_along_axis(drawn["rate"], order, -1)
    found = {"usage": usage[..., kept], "basis": basis[..., kept], "rate": rate[..., kept]}
    order = _by_size(found["usage"], found["basis"])
    return drawn | {n: v[..., order] for n, v in found.items()}


def _ordered(usage, basis, pivot, held: int = 0):
    """Match the factors of draws by their directions, the largest first, after those held."""
    if held:
        known, further = ([f[..., s] for f in (usage, basis)] for s in np.s_[:held, held:])
        if further[0].shape[-1]:
            further = _ordered(*further, pivot)
        return tuple(np.concatenate(f, axis=-1) for f in zip(known, further, strict=True))
    usage, basis = apply_permutation(usage, basis, _matching(usage, basis, pivot))
    order = _by_size(usage, basis)
    return usage[..., order], basis[..., order]


def _matching(usage, basis, pivot) -> np.ndarray:
    """Return the permutations that match the factors of all draws by their directions."""
    units = (f / np.maximum(np.sqrt((f**2).sum(-2, keepdims=True)), 1e-30) for f in (usage, basis))
    return align(*units, pivot=pivot).permutation


def _by_size(usage, basis) -> np.ndarray:
    """Return the order of the factors of matched draws by their size, the largest first."""
    return np.argsort(-products.factor_sizes(usage, basis), kind="stable")
