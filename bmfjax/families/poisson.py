"""The model of counts, "poisson": Gamma-Poisson factorisation, sampled by allocation."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax, random

from bmfjax import models, verdict
from bmfjax.data import BinaryMatrix, InputError, RealMatrix
from bmfjax.data.anchors import check_weights
from bmfjax.data.names import place_text
from bmfjax.data.new_rows import opened
from bmfjax.diagnostics import align
from bmfjax.diagnostics.align import agreements, apply_permutation
from bmfjax.families import memory
from bmfjax.families.base import (
    Chains,
    Family,
    NumbersFit,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    kept_factors,
    matched_rows,
    read_real,
)
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.poisson import gibbs
from bmfjax.kernels.poisson.allocation import allocate
from bmfjax.kernels.poisson.density import LEAST, MOST_SINGLE, PoissonDensity, poisson_data
from bmfjax.kernels.poisson.starts import starts
from bmfjax.posterior import cells, scores
from bmfjax.posterior.model_check import COUNTS
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
from bmfjax.specs import poisson as spec
from bmfjax.specs.base import digest, settings_text
from bmfjax.verdict.undrawn import of_draws

#: Steps before draws are kept of a run that finds its own warm-up.
WARMUP = 100
#: Counts of all entries together, at most, which 32 bits hold; of one, which float32 does; and of
#: all where the number of factors is found, so that ratios of the moves keep their digits.
MOST_COUNTS, MOST_OF_ENTRY, MOST_FOR_AUTO = 2**31 - 1, 2**24, 10**7
#: Trajectories of a sweep; numbers of a step of them, at most, and counts an entry, at least, for
#: which they are worth their time; and the most that squares of counts sum to, so that ratios of
#: densities keep their digits.
TRAJECTORIES, MOST_NUMBERS, LEAST_COUNTS, MOST_SQUARES = 4, 6e6, 0.5, 1e11
#: Sweeps over new rows between two draws, and before the first.
SWEEPS, SETTLE_ROWS = 2, 20
#: Stream of the random numbers of starts, beside those of the chains.
START_STREAM = 2**31 - 5

PAGE = Page(
    facts=(
        *SAMPLING,
        number_of_factors,
        functools.partial(facts.mixing, of="rates"),
        facts.found,
    ),
    sections=(
        number_section,
        functools.partial(
            matrix, shown="expected count", moments=of_product, data=BinaryMatrix | RealMatrix
        ),
        functools.partial(
            factors,
            note="A factor is a spectrum: shares of the columns, which sum to one. The usage of a "
            "row says how many of its counts are of the factor, for an offset of one. The bar is "
            "the posterior mean of a column's share, against the largest of the factor, followed "
            "by its standard deviation; a grey one is less than two standard deviations from zero.",
            card=functools.partial(signed_card, scale="the data", both_ends=False),
            shades=POSITIVE,
        ),
        traces,
        summaries,
        functools.partial(
            agreement_section,
            first="Rates do not depend on how factors are matched and are what counts first.",
        ),
        modes,
        functools.partial(spread, of=", or of the usage if those differ more"),
    ),
    words=(*words.NONNEGATIVE, *DRAWS),
    query="predict",
)


@dataclass(frozen=True, repr=False)
class PoissonFit(ModesMixin, NumbersFit):
    """A fit of counts: columns of the `basis` are spectra, the `usage` is in counts."""

    _models = ("poisson",)
    _page = PAGE
    _dims: ClassVar = {"rate": ["factor"]}
    _is_signed = False
    _scored = COUNTS
    what = "counts"
    _counts_as_factor = "A factor counts in a draw where it is there."
    _ranks_beforehand = "all numbers of factors that are there, up to {most}, are equally probable"

    @functools.cached_property
    def _spread(self):
        return verdict.farther_spread(self.usage_draws, self.basis_draws)

    def _table(self):
        # By how many counts factors are in order; the basis of a draw sums to one, if not known.
        used, share = self.usage_draws.mean(2, dtype=float), self.basis_draws.sum(2, dtype=float)
        sizes = (used * share).mean((0, 1))
        return [line | {"size": float(sizes[line["factor"] - 1])} for line in super()._table()]

    @property
    def _offset(self) -> np.ndarray:
        """Known multiples of the rates of the rows, (rows,)."""
        given = self.settings["offset"]
        return np.ones(self.data.num_rows) if given is None else np.asarray(given, float)

    @property
    def _other_model(self):
        if "dispersion" in self.other_draws:
            return super()._other_model
        return (
            "let counts scatter more than Poisson ones, dispersion_scale=1.0 "
            "(--prior-value dispersion_scale=1.0)"
        )

    @classmethod
    def _predicted(cls, entries, others, priors):
        """Return square roots of rates, scaled: d apart, counts differ by d in probability."""
        return np.sqrt(np.maximum(np.asarray(entries, float), 0.0) * (2.0 / math.pi))

    def _product_draws(self, rows, columns):
        usage, basis = super()._product_draws(rows, columns)
        return usage * self._offset[rows, None].astype(usage.dtype), basis

    def _rates(self, i, j) -> np.ndarray:
        """Return draws (draw of all chains, cell) of expected counts."""
        return cells.cell_draws(self, i, j).astype(float) * self._offset[i]

    def _sizes(self) -> np.ndarray | None:
        """Return the negative binomial's number in every draw (draw, 1); None for Poisson."""
        sd = self.other_draws.get("dispersion")
        return None if sd is None else np.asarray(sd, float).reshape(-1, 1) ** -2.0

    def _log_density(self, i, j, values):
        return scores.count_density(values, self._rates(i, j), self._sizes())

    def _replicates(self, i, j, rng):
        rate, size = self._rates(i, j), self._sizes()
        return rng.poisson(rate if size is None else rate * rng.gamma(size, 1.0 / size, rate.shape))

    def _block(self, i, j, kinds, level, rng):
        rate, found = self._rates(i, j), {}
        for kind in kinds:
            values = rate
            if rng is not None and kind == "interval":
                values = self._replicates(i, j, rng)
            found[kind] = cells.summarised(values, kind, level)
            if rng is not None and kind == "sd":
                size = self._sizes()
                own = rate if size is None else rate + rate**2 / size
                found[kind] = np.sqrt(found[kind] ** 2 + own.mean(0))
        return found

    def _check_observed(self, values):
        super()._check_observed(values)
        if (values < 0).any() or (values % 1 != 0).any():
            raise InputError("values has numbers that are no counts; give what was observed")

    @of_draws
    def transform(self, new_rows, offset=None, *, kind: str = "mean", frame: bool = False):
        """Return the usage of new rows, as `Fit.transform`; `offset` is theirs, (rows,)."""
        found = self._transform if self._is_mean_usage(kind) else self._sd_of_new
        new_rows = opened(new_rows, self)
        return self._as_usage(found(new_rows, offset), new_rows, frame)

    def _transform(self, new_rows, offset=None) -> np.ndarray:
        new = matched_rows(self, new_rows, _read_counts)
        return self._usage_of_new(new, 0, offset).mean((0, 1), dtype=float)

    def _sd_of_new(self, new_rows, offset=None) -> np.ndarray:
        new = matched_rows(self, new_rows, _read_counts)
        return self._usage_of_new(new, 0, offset).std((0, 1), dtype=float)

    def _with_rows(self, new, seed):
        new = matched_rows(self, new, _read_counts)
        usage, settings = self._usage_of_new(new, seed), {**self.settings, "offset": None}
        return dataclasses.replace(self, data=new, usage_draws=usage, settings=settings)

    def _usage_of_new(self, new, seed: int, offset=None) -> np.ndarray:
        """Draw the usage of new rows given every kept draw of the rest.

        Where fitted rows have an offset, the prior of the usage is of their unit, and without the
        offsets of new rows nothing is known of these.
        """
        if offset is None and self.settings["offset"] is not None:
            raise InputError(
                "the fitted rows have an offset, and that of new rows is not known; give "
                "transform(new_rows, offset=...), a positive number for each"
            )
        if offset is None:
            offset = np.ones(new.num_rows)
        offset = spec.checked_offset("offset", offset)
        if len(offset) != new.num_rows:
            raise InputError(
                f"offset has {len(offset)} numbers; give one for each of {new.num_rows} rows"
            )
        density = PoissonDensity(
            self.rank, usage_shape=float(self.settings["priors"]["usage_shape"])
        )
        overdispersed = "dispersion" in self.other_draws
        data = poisson_data(_numbers(new), offset, dense=overdispersed)
        names = ("basis", "rate", *["dispersion"] * overdispersed)
        check_fork()

        @jax.jit
        @full_precision
        def chain(key, known, data):
            def draw(usage, at):
                key, position = at
                for own in random.split(key, SWEEPS):
                    keys = random.split(own, 3)
                    position = position | {"usage": usage}
                    factors = None
                    if overdispersed:
                        factors = gibbs.draw_factors(keys[0], position, data)
                    weights = gibbs.weights_of(data, factors)
                    of_rows, _ = allocate(keys[1], usage, position["basis"], data)
                    usage = gibbs.draw_usage(keys[2], position, of_rows, weights, density)
                return usage, usage

            known = {
                n: jnp.concatenate([jnp.repeat(v[:1], SETTLE_ROWS, 0), v]) for n, v in known.items()
            }
            # Known spectra are in a unit of their own, the sampler's sum to one.
            unit = jnp.sum(known["basis"], 1)
            known["basis"] = known["basis"] / jnp.maximum(unit, LEAST)[:, None]
            known["presence"] = (unit > 0).astype(unit.dtype)
            usage = jnp.ones((new.num_rows, self.rank), known["basis"].dtype)
            keys = random.split(key, len(known["basis"]))
            return lax.scan(draw, usage, (keys, known))[1] / jnp.maximum(unit, LEAST)[:, None]

        draws = self._draws()
        return np.stack([
            np.asarray(chain(key, {n: draws[n][c] for n in names}, data))[SETTLE_ROWS:]
            for c, key in enumerate(random.split(random.key(seed), self._num_chains))
        ])  # fmt: skip


class Poisson(Family):
    """Factorisation of counts."""

    models: ClassVar = {"poisson": spec.Poisson}
    finds_rank = ("gibbs",)
    takes_anchors = True

    def kind(self, model):
        return RealMatrix

    def read(self, source, model):
        return _read_counts(source, model)

    def check_anchors(self, anchors, model):
        check_weights(anchors, model, signed=False)

    def read_start(self, problem):
        return problem.read_start(0.0)

    def plan(self, problem: Problem) -> Plan:
        offset, rows = problem.priors["offset"], problem.data.num_rows
        if offset is not None and len(offset) != rows:
            raise InputError(f"offset has {len(offset)} numbers; give one for each of {rows} rows")
        _check_spectra(problem)
        total = _counts(problem.data).sum()
        if problem.finds_rank and total > MOST_FOR_AUTO:
            raise InputError(
                f"the counts sum to {total:.3g}, and rank is 'auto', which takes up "
                f"to {MOST_FOR_AUTO:.0e} of them; give a rank, or compare ranks"
            )
        dense = problem.data.num_missing or problem.priors["dispersion_scale"] is not None
        dense = dense or _trajectories(problem)
        each = 8 + 16 * problem.num_chains if dense else 0
        return Plan(
            _arguments(problem),
            (StagePlan({}, problem.warmup(WARMUP)),),
            "ascents" if problem.init is None else digest(problem.init),
            (*memory.dense(problem.data, each), *_held(problem.data)),
            "each chain starts at the best of its ascents",
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        data, density = problem.data, _density(problem, plan.arguments)
        offset = problem.priors["offset"]
        counts = poisson_data(
            _numbers(data),
            np.ones(data.num_rows) if offset is None else offset,
            dense=density.dispersion_scale is not None or density.trajectories > 0,
        )
        learned = [n for n in density.sites if n in ("concentration", "dispersion")]
        return Chains.of_stage(
            problem,
            plan.stages[0],
            problem.kernel.make(density, data.num_columns),
            counts,
            bytes_a_draw=4 * density.rank * sum(data.shape),
            settings={
                "priors": {
                    n: v if isinstance(v, float) else settings_text(v)
                    for n, v in plan.arguments.items()
                    if n != "offset" and v is not None
                },
                "offset": None if offset is None else offset.tolist(),
                "init": plan.init,
                "sampler_options": {},
            },
            sites=("usage", "basis", "rate", *learned),
            trace=tuple(learned),
            start=functools.partial(_starts, problem, density, counts),
            arguments=plan.arguments,
        )

    def product_draws(self, problem, drawn):
        usage, basis = super().product_draws(problem, drawn)
        offset = problem.priors["offset"]
        return (usage if offset is None else usage * offset[:, None].astype(usage.dtype)), basis

    def ordered(self, problem, chains, seen):
        drawn = {n: np.asarray(v) for n, v in seen.sites.items()}
        usage, basis, held = drawn["usage"], drawn["basis"], problem.num_anchors
        order = _matching(usage, basis, seen.best, held)
        usage, basis = apply_permutation(usage, basis, order)
        rate = np.take_along_axis(drawn["rate"], order, -1)
        totals = usage.mean((0, 1, 2), dtype=float)
        chosen = np.concatenate(
            [np.arange(held), held + np.argsort(-totals[held:], kind="stable")]
        ).astype(int)
        if problem.finds_rank:
            kept = kept_factors((usage != 0).any(2))
            chosen = chosen[np.isin(chosen, kept)]
        usage, basis, rate = (x[..., chosen] for x in (usage, basis, rate))
        if held:
            # In the unit of the spectra that were given.
            unit = problem.anchors.values.sum(0)
            usage, basis = np.array(usage), np.array(basis)
            usage[..., :held] /= unit.astype(usage.dtype)
            basis[..., :held] = problem.anchors.values
        drawn = drawn | {"usage": usage, "basis": basis, "rate": rate}
        return Ordered(drawn, agreements(usage.mean(1), basis.mean(1)))


# ---- before --------------------------------------------------------------------------------------


def _read_counts(source, model: str) -> BinaryMatrix | RealMatrix:
    """Return a matrix of whole numbers of at least zero, or refuse what is none."""
    data = read_real(source, model)
    if isinstance(data, BinaryMatrix):
        return data
    values = data.nonzero().tocoo()
    wrong = (values.data < 0) | (values.data % 1 != 0)  # NaN is neither
    wrong &= ~np.isnan(values.data)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        where = place_text(values.row[at], values.col[at], data.row_names, data.column_names)
        raise InputError(
            f"value {values.data[at]:g} at {where} is no count, and model {model!r} is of whole "
            "numbers of at least 0; give counts before they are scaled, or choose model 'nmf'"
        )
    total, largest = np.nansum(values.data), np.nanmax(values.data, initial=0.0)
    if largest > MOST_OF_ENTRY:
        raise InputError(
            f"the largest count is {largest:.0f}, and model {model!r} takes up to {MOST_OF_ENTRY}; "
            "choose model 'nmf' for numbers so large"
        )
    if total > MOST_COUNTS:
        raise InputError(
            f"the counts sum to {total:.3g}, and model {model!r} takes up to {MOST_COUNTS:.3g}; "
            "choose fewer rows or columns, or model 'nmf' for numbers so large"
        )
    return data


def _numbers(data: BinaryMatrix | RealMatrix):
    """Return a matrix as the sampler takes it: a CSR, or with NaN where an entry is missing."""
    if data.num_missing:
        return data.dense(np.float64)
    found = data.nonzero() if isinstance(data, RealMatrix) else data.ones()
    return sp.csr_array(found, dtype=np.float64)


def _held(data: BinaryMatrix | RealMatrix) -> tuple[memory.Held, ...]:
    """Return the entries that are not zero, and the counts that are drawn one by one."""
    values = _counts(data)
    single = int(values[values <= MOST_SINGLE].sum())
    return (*memory.nonzero(len(values)), memory.Held("single counts", (single,), 8.0))


def _counts(data: BinaryMatrix | RealMatrix) -> np.ndarray:
    """Return the counts that are seen and not zero, (entry,)."""
    if isinstance(data, BinaryMatrix):
        return np.ones(data.num_ones)
    return np.nan_to_num(data.nonzero().data)


def _arguments(problem: Problem) -> dict:
    """Return keyword arguments of `bmfjax.models.poisson`; the data's scale sets the rates."""
    found = dict(problem.priors)
    if found["rate"] is None:
        data, offset = problem.data, found["offset"]
        size = data.num_rows * data.num_columns - data.num_missing
        total = _counts(data).sum() * (data.num_columns / size)
        total /= 1.0 if offset is None else offset.mean()
        found["rate"] = models.poisson_rate_by_scale(
            int(problem.rank), found["usage_shape"], float(total)
        )
    return found


def _density(problem: Problem, arguments) -> PoissonDensity:
    rate, scale = arguments["rate"], arguments["dispersion_scale"]
    concentration = arguments["basis_concentration"]
    return PoissonDensity(
        int(problem.rank),
        float(arguments["usage_shape"]),
        None if concentration is None else float(concentration),
        (float(rate.concentration), float(rate.rate)),
        None if scale is None else float(scale),
        anchored=problem.num_anchors,
        presence=problem.finds_rank,
        trajectories=_trajectories(problem),
    )


def _trajectories(problem: Problem) -> int:
    """Return how many trajectories a sweep follows: none where they cost more than they move."""
    data = problem.data
    entries, counts = data.num_rows * data.num_columns, _counts(data)
    few = entries * int(problem.rank) > MOST_NUMBERS or counts.sum() < LEAST_COUNTS * entries
    return 0 if few or (counts**2).sum() > MOST_SQUARES else TRAJECTORIES


def _check_spectra(problem: Problem) -> None:
    """Refuse known spectra alone, none of which has a column with counts."""
    if problem.num_anchors < int(problem.rank) or problem.anchors is None:
        return
    data = problem.data
    table = data.ones() if isinstance(data, BinaryMatrix) else data.nonzero()
    table = sp.coo_array(table)
    bare = np.flatnonzero(~problem.anchors.values.any(1))
    found = np.isin(bare, table.col[np.nan_to_num(table.data) > 0])
    if found.any():
        name = data.column_names[bare[found][0]]
        raise InputError(
            f"column {name!r} has counts, and none of the anchors has it; give a rank above "
            f"{problem.num_anchors}, for factors that are not known"
        )


def _starts(problem: Problem, density: PoissonDensity, counts, resume: bool) -> dict | None:
    """Return where chains start: at what was given, else each at the best of its ascents."""
    if problem.init is not None:
        return _given(problem, density)
    known = None
    if problem.anchors is not None:
        known = problem.anchors.values / problem.anchors.values.sum(0)
        known = jnp.asarray(known, jnp.result_type(float))
    key = random.fold_in(problem.key, START_STREAM)
    return starts(key, density, problem.data.num_columns, counts, problem.num_chains, known)


def _given(problem: Problem, density: PoissonDensity) -> dict:
    """Return the position of every chain from the factors that a user gave."""
    usage, basis = (problem.init[n].astype(float) for n in ("usage", "basis"))
    unit = np.maximum(basis.sum(0), 1e-30)
    usage = np.maximum(usage * unit, 1e-12)
    rate = (density.rate[0] + len(usage) * density.usage_shape) / (density.rate[1] + usage.sum(0))
    start = {"usage": usage, "basis": np.maximum(basis / unit, 1e-12), "rate": rate}
    if density.basis_concentration is None:
        start["concentration"] = np.asarray(0.5)
    if density.dispersion_scale is not None:
        start["dispersion"] = np.asarray(0.5 * density.dispersion_scale)
    kind = jnp.result_type(float)
    return problem.every_chain({n: np.asarray(v, kind) for n, v in start.items()})


# ---- after ---------------------------------------------------------------------------------------


def _matching(usage, basis, pivot, held: int) -> np.ndarray:
    """Return the permutations that match the factors of all draws by their directions."""
    units = [f / np.maximum(np.sqrt((f**2).sum(-2, keepdims=True)), 1e-30) for f in (usage, basis)]
    first = np.broadcast_to(np.arange(held), (*usage.shape[:2], held))
    if held == usage.shape[-1]:
        return first
    further = align(*(f[..., held:] for f in units), pivot=pivot).permutation
    return np.concatenate([first, held + further], -1)
