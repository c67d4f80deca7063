"""The relaxed model, "relaxed": factors in [0, 1] whose product is observed with normal noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np
from scipy.special import ndtr

from bmfjax import models
from bmfjax.data import InputError
from bmfjax.diagnostics import align
from bmfjax.diagnostics.align import agreements
from bmfjax.families import memory, relevance
from bmfjax.families.base import (
    FACTORS,
    Chains,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    annealed_options,
    csr_of,
    kept_draws,
    matched_rows,
    squared_residual,
)
from bmfjax.families.tiles import (
    CHAINS_OF_TILES,
    TILES,
    WORDS_OF_TILES,
    TileFamily,
    TileFit,
    cut_means,
    tile_fit,
)
from bmfjax.infer import ChainRun
from bmfjax.infer.mcmc.truncated import numbers
from bmfjax.infer.relaxed_start import annealed_means
from bmfjax.kernels.numerics.truncated_normal import truncated_normal
from bmfjax.kernels.tempering import OBSERVED
from bmfjax.posterior import cells, products
from bmfjax.posterior.selection import MAX_ENTRIES
from bmfjax.report import facts, words
from bmfjax.report.number import number_of_factors, number_section
from bmfjax.report.plots import mean_sd
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING
from bmfjax.specs import relaxed as spec
from bmfjax.specs.base import digest, settings_text

#: Steps before draws are kept of a run that finds its own warm-up; annealed, where it is exact.
WARMUP = 500

PAGE = Page(
    facts=(
        *SAMPLING,
        number_of_factors,
        facts.errors,
        functools.partial(facts.mixing, of="reconstructed entries"),
        facts.found,
        facts.clamped,
        facts.gradient_noise,
        facts.precision,
        facts.replicas,
    ),
    # The mean of a bit tells its standard deviation; that of a number in [0, 1] does not.
    sections=(number_section, *TILES, mean_sd, *CHAINS_OF_TILES),
    words=(*WORDS_OF_TILES, words.CLAMPED, *DRAWS),
)


@dataclass(frozen=True, repr=False)
class RelaxedFit(TileFit):
    """A fit of factors in [0, 1]."""

    _models = ("relaxed",)
    _page = PAGE
    _dims: ClassVar = {"rate": ["factor"]}
    _counts_as_factor, _ranks_beforehand = relevance.COUNTED, relevance.BEFOREHAND

    _noisy_kinds = cells.KINDS

    def _noisy_probability(self, i, j):
        # As one more factor: the product is how far the entry is above one half, in noise units.
        size = (1.0 / cells.noise_sd(self)).reshape(*self.usage_draws.shape[:2], 1, 1)
        usage, basis = self.usage_draws[:, :, i], self.basis_draws[:, :, j]
        usage = np.concatenate([size * usage, np.repeat(-0.5 * size, len(i), 2)], -1)
        basis = np.concatenate([basis, np.ones((*basis.shape[:3], 1))], -1)
        return products.moments(usage, basis, link=ndtr)[0]

    def _transform(self, new_rows) -> np.ndarray:
        new = matched_rows(self, new_rows)
        draws = self.basis_draws.reshape(-1, *self.basis_draws.shape[2:])
        return products.best_usage(numbers(new), draws, upper=1.0)

    def _with_rows(self, new, seed):
        return self._with_best_usage(matched_rows(self, new), upper=1.0)


class Relaxed(TileFamily):
    """Factors in [0, 1] and a learned normal noise."""

    fits = RelaxedFit

    models: ClassVar = {"relaxed": spec.Relaxed}
    finds_rank, on_mesh = ("gibbs",), ("gibbs", "minibatch", "iasg", "thesis")

    def other_sampler(self, problem: Problem) -> str | None:
        # Gibbs is what "minibatch" is compared with, also where both are exact.
        return "gibbs" if problem.sampler.name == "minibatch" else super().other_sampler(problem)

    def read_start(self, problem):
        return problem.read_start(0.0, 1.0)

    def plan(self, problem: Problem) -> Plan:
        data, rank = problem.data, int(problem.rank)
        options, warmup = dict(problem.options), problem.warmup(WARMUP)
        # Chains that find the number of factors would lose weak ones on the way.
        from_prior = problem.init is None and not problem.finds_rank
        if "num_anchor" in problem.has:
            # The last anchor is a mean of draws of the warm-up, after those that are annealed.
            options.setdefault("num_anneal", warmup // 2 if from_prior else 0)
            options.setdefault("num_anchor", max(warmup, 1))
        options = annealed_options(problem, options, from_prior, warmup)
        # Both orientations, a mask of each, and lists of missing cells of up to rank/8 copies.
        each = 16 + (rank // 2 if data.num_missing else 0)
        csr = csr_of(data) if problem.sampler.name == "gibbs" else None
        init = "prior" if problem.init is None else digest(problem.init)
        return Plan(
            model_arguments(problem),
            (StagePlan(options, warmup),),
            "annealed, with fixed rates" if problem.finds_rank else init,
            memory.dense(data, each) if csr is None else memory.nonzero(csr.nnz),
            "the first half of the warm-up is annealed"
            if options.get("num_anneal")
            else "nothing is annealed",
            csr,
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        data, rank = problem.data, int(problem.rank)
        values = data.dense() if plan.known is None else plan.known
        options, arguments = plan.options, plan.arguments
        sites = sampled_sites(arguments)
        model = functools.partial(models.relaxed_bmf, rank=rank, **arguments)
        bound = problem.kernel.make(model, **options).bind(values, mesh=problem.mesh)
        start, algorithm = given_start(problem, arguments, values), bound.algorithm
        if problem.finds_rank:
            noise_sd = relevance.noise_sd(arguments["precision"])
            algorithm = relevance.with_rank_counted(algorithm, data, noise_sd)
        learned = ["precision"] if problem.kernel.exact and "precision" in sites else []
        tempered = OBSERVED if options.get("inverse_temperatures") is not None else ()
        return Chains.of_stage(
            problem,
            plan.stages[0],
            algorithm,
            bound.data,
            bytes_a_draw=4 * rank * sum(data.shape),
            settings={
                "priors": {n: settings_text(p) for n, p in arguments.items()},
                "init": plan.init if start is None else digest(start),
                "window": bound.window,
                "sampler_options": {n: str(v) for n, v in options.items()},
            },
            sites=sites,
            trace=(*learned, *tempered),
            start=lambda resume: (
                _annealed_start(problem, arguments, values, resume) if problem.finds_rank else start
            ),
            arguments=arguments | {"windows": bound.windows, "exact": bound.exact},
        )

    def ordered(self, problem, chains, seen):
        drawn = _with_prior_draws(problem, chains.arguments, seen.sites)
        if problem.finds_rank:
            usage, basis = drawn["usage"], drawn["basis"]
            noise_sd = relevance.noise_sd(chains.arguments["precision"])(drawn)
            used = relevance.used_draws(problem.data, usage, basis, noise_sd)
            drawn["usage"], drawn["basis"] = relevance.handed_over(usage, basis, used, upper=1.0)
        aligned = align(drawn.pop("usage"), drawn.pop("basis"), pivot=seen.best)
        if problem.finds_rank:
            kept = relevance.kept_of(aligned.usage)
            aligned = aligned._replace(
                usage=aligned.usage[..., kept],
                basis=aligned.basis[..., kept],
                permutation=aligned.permutation[..., kept],
            )
        if "rate" in drawn:
            drawn["rate"] = np.take_along_axis(drawn["rate"], aligned.permutation, -1)
        agreeing = agreements(aligned.usage.mean(1), aligned.basis.mean(1))
        factors = {"usage": aligned.usage, "basis": aligned.basis}
        return Ordered(drawn | factors, agreeing, aligned)

    def majority(self, problem, found, seen):
        if math.prod(problem.data.shape) <= MAX_ENTRIES:
            return None
        draws = found.aligned.usage, found.aligned.basis
        means = (f[seen.best_chain].mean(0, dtype=float) for f in draws)
        return cut_means(problem.data, *means)

    def result(self, problem: Problem, chains: Chains, run: ChainRun) -> RelaxedFit:
        seen = kept_draws(run)
        found = self.ordered(problem, chains, seen)
        # Rate of the Gamma prior of a learned precision; a fixed one has none.
        floor = 2 * float(getattr(chains.arguments["precision"], "rate", 0.0))
        return tile_fit(
            RelaxedFit, problem, chains, run, found.aligned, found.agreement, run.trace(),
            {n: v for n, v in found.sites.items() if n not in FACTORS},
            binary=self.majority(problem, found, seen), residual_floor=floor,
        )  # fmt: skip


def model_arguments(problem: Problem) -> dict:
    """Return keyword arguments of `bmfjax.models.relaxed_bmf` from the fields of the model."""
    given = problem.priors
    if problem.finds_rank:
        given = _of_unknown_rank(given)
    precision = given["precision"]
    if precision is None and problem.sampler.name == "thesis":
        precision = 1.0
    chosen = {site: "uniform" if given[site] is None else given[site] for site in FACTORS}
    return {
        # "ard" stays a name: its rates belong to the factors.
        **{
            site: prior if prior == "ard" else models.resolve_prior(prior, site)
            for site, prior in chosen.items()
        },
        "precision": models.resolve_precision(precision),
        "rate": models.resolve_rate(given["rate"], chosen.values()),
    }


def _of_unknown_rank(given: dict) -> dict:
    """Return the priors with those under which factors may vanish; refuse others."""
    for name in FACTORS:
        prior = "ard" if given[name] is None else given[name]
        if not (isinstance(prior, str) and prior == "ard"):
            raise InputError(
                f"rank is 'auto', and {name} is {prior!r}, under which no factor vanishes; "
                "leave it out, which is 'ard', or give a rank"
            )
    rate = models.relevance_by_scale(1.0) if given["rate"] is None else given["rate"]
    return given | dict.fromkeys(FACTORS, "ard") | {"rate": rate}


def sampled_sites(arguments) -> tuple[str, ...]:
    """Return the sites that are sampled with these arguments."""
    learned = () if isinstance(arguments["precision"], float) else ("precision",)
    return (*FACTORS, *learned, *(() if arguments["rate"] is None else ("rate",)))


def given_start(problem: Problem, arguments, values) -> dict | None:
    """Return the position of every chain from the factors that a user gave; None without.

    `values` are the data as the sampler takes them.
    """
    if problem.init is None:
        return None
    return problem.every_chain(_with_scales(problem, dict(problem.init), arguments, values))


def _annealed_start(problem: Problem, arguments, values, resume: bool) -> dict:
    """Return the positions of chains whose factors may vanish: where annealed chains have come."""
    sizes, rank = dict(zip(FACTORS, problem.data.shape, strict=True)), int(problem.rank)
    if resume:  # what was stored replaces it
        empty = {n: np.full((size, rank), 0.5, np.float32) for n, size in sizes.items()}
        return problem.every_chain(_with_scales(problem, empty, arguments, values))
    key = jax.random.fold_in(problem.key, relevance.START_STREAM)
    means = annealed_means(key, problem.data, rank, problem.num_chains)
    # An entry of zero leaves the conditional of the others no room.
    least = np.finfo(np.float32).tiny
    means = [np.clip(np.asarray(mean, np.float32), least, 1.0) for mean in means]
    each = [
        _with_scales(problem, dict(zip(FACTORS, of_chain, strict=True)), arguments, values)
        for of_chain in zip(*means, strict=True)
    ]
    return {name: np.stack([start[name] for start in each]) for name in each[0]}


def _with_scales(problem: Problem, start: dict, arguments, values) -> dict:
    """Add precision and rates to the factors of a chain: their conditional means."""
    data, usage, basis = problem.data, start["usage"], start["basis"]
    sites = sampled_sites(arguments)
    if "precision" in sites:
        # The conditional mean: a start with the wrong precision is left at the first step.
        squares = squared_residual(values, usage, basis)
        entries = data.num_rows * data.num_columns - data.num_missing
        mean = _gamma_mean(arguments["precision"], entries / 2, squares / 2)
        start["precision"] = np.asarray(mean, np.float32)
    if "rate" in sites:
        total = usage.sum(0) + basis.sum(0)
        rate = _gamma_mean(arguments["rate"], data.num_rows + data.num_columns, total)
        start["rate"] = rate.astype(np.float32)
    return start


def _gamma_mean(prior, count, total):
    """Return the mean of a Gamma conditional; sampling refuses any other prior later."""
    shape = float(getattr(prior, "concentration", 1.0))
    return (shape + count) / (float(getattr(prior, "rate", 1.0)) + total)


def _with_prior_draws(problem, arguments, drawn) -> dict:
    """Kept draws, with rows and columns of which nothing is observed drawn from the prior.

    That is their posterior; a gradient of zero would leave them where they started. The exact
    sampler has drawn them itself.
    """
    drawn = dict(drawn)
    if problem.kernel.exact:
        return drawn
    empty = {"usage": problem.data.empty_rows, "basis": problem.data.empty_columns}
    for i, (site, cases) in enumerate(empty.items()):
        if len(cases):
            chains, kept, _, rank = drawn[site].shape
            key = jax.random.fold_in(problem.key, 2**31 - 1 - i)
            prior = arguments[site]
            prior = _prior_draws(prior, key, (chains, kept, len(cases), rank), drawn)
            drawn[site] = drawn[site].copy()
            drawn[site][:, :, cases] = np.asarray(prior)
    return drawn


def _prior_draws(prior, key, shape, drawn):
    if prior != "ard":
        return prior.sample(key, shape)
    rates = jax.numpy.asarray(drawn["rate"])[:, :, None, :]
    return truncated_normal(key, jax.numpy.broadcast_to(-rates, shape), 0.0, 0.0, 1.0)
