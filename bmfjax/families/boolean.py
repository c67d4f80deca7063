"""The Boolean model, "ormachine": bits whose Boolean product is observed with flips."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import jax
import numpy as np

from bmfjax import models
from bmfjax.data import InputError, checks
from bmfjax.data.bits import WORD
from bmfjax.data.memory import require_memory, size_text
from bmfjax.diagnostics import Alignment, Binarized, agreement
from bmfjax.diagnostics.align import matched
from bmfjax.families.base import (
    FACTORS,
    Chains,
    Family,
    Flag,
    Prior,
    Request,
    Sampler,
    annealed_options,
    digest,
    matched_rows,
    most_probable,
    settings_text,
    thinning,
)
from bmfjax.families.tiles import CHAINS_OF_TILES, TILES, WORDS_OF_TILES, TileFit, tile_fit
from bmfjax.infer import ChainRun, OrMachineGibbs, boolean_starts
from bmfjax.infer.mcmc.ormachine import RULES
from bmfjax.infer.new_rows import usage_of_new_rows
from bmfjax.kernels.boolean.bits import MAX_JOINT
from bmfjax.posterior import cells, products
from bmfjax.posterior.packed import PackedDraws, as_packed
from bmfjax.posterior.selection import MAX_ENTRIES, is_all
from bmfjax.report import facts
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING

#: Draws of a chain that are kept: bits are small.
MAX_KEPT = 500
#: Rows and columns by which the factors of all draws are matched.
MAX_MATCHED = 1000
SITES = ("usage", "basis", "flip_rate", "usage_density", "basis_density")

#: Entries up to which the sampler moves single lines with the other factor matrix summed out, and
#: up to which factors are born in a sweep.
SMALL, MEDIUM = 2**17, 2**24
#: Entries, times 4 to the power of the rank, up to which a factor matrix is summed out for all
#: factors at once, at these inverse temperatures: the default number of temperatures.
TINY, LADDER = 2**22, (1.0, 0.6, 0.36, 0.2)


PAGE = Page(
    facts=(
        *SAMPLING,
        facts.errors,
        functools.partial(facts.mixing, of="uncertain entries"),
        facts.found,
        facts.uncertain,
        facts.flip_rates,
    ),
    sections=(*TILES, *CHAINS_OF_TILES),
    words=(*WORDS_OF_TILES, *DRAWS),
)


@dataclass(frozen=True, repr=False)
class BooleanFit(TileFit):
    """A fit of Boolean factors; its draws stay packed."""

    models = ("ormachine",)
    page = PAGE
    dims: ClassVar = {"usage_density": ["factor"], "basis_density": ["factor"]}
    is_boolean = True
    noisy_kinds = ("mean", "probability")
    _no_noise = "a binary observation has no {kind}; choose kind 'probability', or leave noisy out"

    @staticmethod
    def _as_kept(draws):
        return PackedDraws.pack(draws)

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

    def _cells(self, i, j, kinds, level, noisy):
        # Zeros and ones are told by their mean: nothing else is kept of the draws.
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

    def _tile_means(self):
        if self._is_small:
            return super()._tile_means()
        draws = map(as_packed, (self.usage_draws, self.basis_draws))
        return products.tile_means(*draws, self.usage_binary, self.basis_binary)

    def transform(self, new_rows) -> np.ndarray:
        new = matched_rows(self, new_rows)
        return usage_of_new_rows(new, self.basis_draws, self.other_draws)


class Boolean(Family):
    """Boolean factors, sampled on packed words."""

    models: ClassVar = {
        "ormachine": "Boolean factors, whose Boolean product is observed with flips (Rukat, "
        "Holmes, Titsias, Yau 2017), see `bmfjax.models.ormachine`"
    }
    samplers: ClassVar = {
        "gibbs": Sampler(
            OrMachineGibbs, True, ("log_joint", "errors", "dispersion"),
            "exact, on packed words (`OrMachineGibbs`)",
        )
    }  # fmt: skip
    priors: ClassVar = {
        "usage": Prior(
            "prior of the density of every factor's usage: a `numpyro.distributions.Beta` (default "
            "Beta(1, 1)), a number that fixes it, or an array of the probability of every bit, in "
            "which 0 and 1 fix it"
        ),
        "basis": Prior("the same of the basis"),
        "flip_rate": Prior(
            "a Beta prior, or a number or pair that fixes it; default Beta(1, 1), truncated to "
            "[0, 1/2]"
        ),
        "num_rates": Prior(
            "1, or 2 for flip rates of zeros and ones of their own",
            1,
            lambda name, value: checks.whole(name, value, 1, 2),
        ),
    }
    shares_prior = True
    flags = (
        Flag(
            "--flip-rates", "one flip rate, or one each for zeros and ones (one where not given)",
            priors=lambda value: {"num_rates": value},
            parse={"type": int, "choices": [1, 2]},
        ),
    )  # fmt: skip

    def chains(self, request: Request) -> Chains:
        data, rank = request.data, int(request.rank)
        arguments = boolean_arguments(request)
        given = _bits(request)
        model = functools.partial(models.ormachine, rank=rank, **arguments)
        options = sampler_options(request)
        kernel = request.made_by.make(model, **options)
        from_prior = given is None and options.get("update") == "collapsed"
        bytes_a_draw = request.num_chains * rank * sum(data.shape)
        every, most_kept = thinning(bytes_a_draw, request.num_samples, MAX_KEPT)
        kept = min(most_kept, request.num_samples)
        needed = memory_needed(data, rank, request.num_chains, kept, options)
        require_memory(
            sum(needed.values()),
            f"a fit of {request.size} "
            f"({', '.join(f'{n} {size_text(b)}' for n, b in needed.items())})",
            "choose fewer rows or columns, or a lower rank",
        )
        bound, _ = kernel.bind_packed(data)

        def start(resume):
            if from_prior:
                return None
            if given is not None:
                starts = [given] * request.num_chains
            elif resume:  # what was stored replaces it
                empty = dict(
                    zip(FACTORS, (np.zeros((s, rank), bool) for s in data.shape), strict=True)
                )
                starts = [empty] * request.num_chains
            else:
                key = jax.random.fold_in(request.key, 2**31 - 1)
                starts = boolean_starts(key, data, rank, request.num_chains)
            place = jax.jit(bound.unconstrain)
            return jax.tree.map(lambda *leaves: np.stack(leaves), *[place(s) for s in starts])

        return Chains(
            bound.algorithm,
            bound.data,
            request.settings(
                priors={n: settings_text(p) for n, p in arguments.items()},
                init=_start_text(given, from_prior, options["num_anneal"]),
                thinning=every,
                sampler_options={n: str(v) for n, v in options.items()},
            ),
            sites=tuple(sites_of(arguments)),
            trace=(*request.made_by.trace, *_traced(options)),
            thinning=(every, most_kept),
            num_warmup=request.num_warmup,
            num_samples=request.num_samples,
            start=start,
            arguments={"exact": options.get("dispersion", "sample") == "sample"},
        )

    def result(self, request: Request, chains: Chains, run: ChainRun) -> BooleanFit:
        data, drawn, trace = request.data, run.draws(), run.trace()
        usage = PackedDraws(drawn.pop("usage"), data.num_rows)
        basis = PackedDraws(drawn.pop("basis"), data.num_columns)
        aligned = align_packed(usage, basis, most_probable(run, trace))
        for name in ("usage_density", "basis_density"):
            if name in drawn:
                drawn[name] = np.take_along_axis(drawn[name], aligned.permutation, -1)
        best = int(np.argmax(trace["log_joint"][:, run.num_warmup :].mean(1)))
        return tile_fit(
            BooleanFit, request, chains, run, aligned, agreement_of(aligned), trace, drawn,
            binary=_majority(data, aligned, best),
        )  # fmt: skip


# ---- before ---------------------------------------------------------------------------------


def boolean_arguments(request: Request) -> dict:
    """Return keyword arguments of `bmfjax.models.ormachine` from what was given as priors."""
    priors = request.read_priors()
    return {f"{n}_prior" if n in FACTORS else n: value for n, value in priors.items()}


def sampler_options(request: Request) -> dict:
    """Return the options of the sampler: as given, or what a matrix of this size affords."""
    given = request.read_options()
    options = default_options(*request.data.shape, request.rank, given) | given
    # Starts of single flips are annealed already, and who gives a start wants to keep it.
    from_prior = options.get("update") == "collapsed" and request.init is None
    return annealed_options(request, options, from_prior)


def default_options(rows: int, columns: int, rank: int, given: Mapping = MappingProxyType({})):
    """Return options that a matrix of this size can afford in every sweep, beside those given.

    Examples
    --------
    >>> default_options(435, 16, 4)
    {'update': 'collapsed', 'inverse_temperatures': (1.0, 0.6, 0.36, 0.2)}
    >>> default_options(435, 16, 8), default_options(512, 512, 4), default_options(10**6, 1000, 4)
    ({'moves': ('collapsed',)}, {'moves': ('birth',)}, {'moves': ()})
    >>> default_options(435, 16, 4, {"update": "joint"})
    {'moves': ('collapsed',)}
    """
    if given.get("update") == "collapsed":
        return {}
    # Moves, and flip rates that are set, belong to the other updates.
    other = given.keys() & {"update", "moves", "block_size"} or given.get("dispersion") in RULES[1:]
    entries = rows * columns
    if rank <= MAX_JOINT and entries * 4**rank <= TINY and not other:
        return {"update": "collapsed", "inverse_temperatures": LADDER}
    if entries <= SMALL:
        return {"moves": ("collapsed",)}
    return {"moves": ("birth",) if entries <= MEDIUM else ()}


def memory_needed(data, rank: int, chains: int, kept: int, options: Mapping) -> dict[str, float]:
    """Return the bytes that a fit takes, by what takes them."""
    rows, columns = data.shape
    both_ways = 4 * (rows * -(-columns // WORD) + columns * -(-rows // WORD))
    replicas = chains * len(options.get("inverse_temperatures") or (1.0,))
    bits = rank * (rows + columns)
    needed = {
        "packed words": both_ways * (2 if data.num_missing else 1),
        # As drawn and in one order.
        "kept draws": 2 * kept * chains * bits / 8,
        # A few numbers for every bit of every chain, then means and counts of all.
        "chains": 8 * replicas * bits + 32 * bits,
    }
    if options.get("update") == "collapsed":
        # Of every state of a line, in every replica: a few numbers at a time.
        states = f"weights of {2**rank:,} states a line"
        needed[states] = 20.0 * replicas * 2**rank * max(data.shape)
    return needed


def sites_of(arguments) -> list[str]:
    """Return the names of the sites that are drawn; densities only where they are learned."""

    def learned(prior):
        return prior is None or hasattr(prior, "arg_constraints")

    fixed = [f"{s}_density" for s in FACTORS if not learned(arguments[f"{s}_prior"])]
    return [n for n in SITES if n not in fixed]


def _bits(request) -> dict | None:
    start = request.read_start()
    for name, values in (start or {}).items():
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(f"init {name!r} has values other than 0 and 1; round it first")
    return None if start is None else {n: v > 0.5 for n, v in start.items()}


def _start_text(given, from_prior, num_anneal):
    if given is not None:
        return digest(given)
    if from_prior:
        return "annealed from the prior" if num_anneal else "the prior"
    return "annealed relaxed model"


def _traced(options):
    names = [f"{m}_accepted" for m in np.atleast_1d(options.get("moves", ()))]
    if options.get("inverse_temperatures") is not None:
        names += ["swap_probability", "replica"]
    return names


# ---- after ----------------------------------------------------------------------------------


def align_packed(usage: PackedDraws, basis: PackedDraws, pivot) -> Alignment:
    """Align packed draws by up to 1,000 rows and 1,000 columns, those used most unevenly."""
    found = matched(*(f.packed_lines(_telling(f)) for f in (usage, basis)), pivot=pivot)
    moved = [f.reordered(found.permutation) for f in (usage, basis)]
    return found._replace(usage=moved[0], basis=moved[1])


def _telling(draws: PackedDraws) -> np.ndarray:
    """Return the lines whose bits differ most between factors of one draw."""
    if draws.size <= MAX_MATCHED:
        return np.arange(draws.size)
    share = draws[0, draws.shape[1] - 1].mean(-1)
    return np.sort(np.argsort(-share * (1 - share), kind="stable")[:MAX_MATCHED])


def agreement_of(aligned) -> np.ndarray:
    """Return the agreement across chains, one factor at a time: means take 64 times a bit."""
    draws, rank = (aligned.usage, aligned.basis), aligned.usage.shape[3]
    return np.concatenate(
        [agreement(*(f.reordered([k]).mean(1) for f in draws)) for k in range(rank)]
    )


def _majority(data, aligned, best) -> Binarized | None:
    """Return, of a matrix too large to be formed, the factors of the best chain by the majority."""
    if data.num_rows * data.num_columns <= MAX_ENTRIES:
        return None
    chain = (PackedDraws(f.words[best : best + 1], f.size) for f in (aligned.usage, aligned.basis))
    return Binarized(*(f.mean() >= 0.5 for f in chain), float("nan"))
