"""The logistic model, "logistic": real factors whose product is the log odds of a one.

Variational inference runs as chains of optimisation steps, one a start. The fit is a mixture of the
normals that the starts reached; its draws are drawn from these. The number of factors is found by
precisions of the factors, which are learned (`bmfjax.variational.relevance`).

Sampler "gibbs" draws from the posterior itself (`bmfjax.kernels.logistic.gibbs`). Its draws are
turned to one position (`bmfjax.posterior.rotations`), for the posterior knows factors only up to a
rotation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from bmfjax import verdict
from bmfjax.data import InputError
from bmfjax.data.blocks import blocks
from bmfjax.diagnostics import align_signed
from bmfjax.diagnostics.align import agreements
from bmfjax.families import memory, relevance
from bmfjax.families.base import (
    FACTORS,
    Chains,
    Family,
    Ordered,
    Plan,
    Problem,
    StagePlan,
    alike,
    kept_factors,
    make_fit,
    matched_rows,
    thinning,
)
from bmfjax.infer import ChainRun, whole_rows
from bmfjax.infer.given_draws import given_every_draw
from bmfjax.kernels.logistic.density import LogisticDensity
from bmfjax.kernels.logistic.gibbs import draw_rows
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.mesh import ROWS, Along
from bmfjax.posterior import cells, mixture, scores
from bmfjax.posterior.principal import by_size
from bmfjax.posterior.rotations import rotated_draws
from bmfjax.posterior.selection import informed, sampled_positions
from bmfjax.report import facts, words
from bmfjax.report.checks import agreement as agreement_section
from bmfjax.report.checks import spread, starts_figure
from bmfjax.report.factors import SIGNED, factors, signed_card
from bmfjax.report.number import number_of_factors, number_section
from bmfjax.report.overview import linked, matrix
from bmfjax.report.plots import traces
from bmfjax.report.section import Page
from bmfjax.report.shared import DRAWS, SAMPLING, SIGNED_BARS
from bmfjax.report.summaries import summaries
from bmfjax.result import Fit, OnesMixin, RowsMixin
from bmfjax.specs import logistic as spec
from bmfjax.specs.base import digest
from bmfjax.specs.priors import RELEVANCE
from bmfjax.specs.run import BATCH, NUM_WARMUP
from bmfjax.variational import LogisticPrior, entry_sampler, sign_blocks, usage_given_basis
from bmfjax.variational.chains import (
    draw_bound_entries,
    posterior_draws,
    posterior_of,
)
from bmfjax.variational.posterior import Gamma, Gaussian
from bmfjax.variational.stochastic import CHUNK
from bmfjax.verdict.undrawn import of_draws

#: Draws from the posterior of each start, where no number is given.
NUM_SAMPLES = 250
#: Steps of "gibbs" before draws are kept of a run that finds its own warm-up.
GIBBS_WARMUP = 100
#: Its sweeps over new rows between two draws, and how often the first draw is visited before.
SWEEPS, SETTLE = 5, 20
#: Entries that a step draws for each row and column.
ENTRIES_A_LINE = 4
#: Bytes of memory an entry that samplers of all entries take: words of ones and of observed
#: entries, as the matrix has them, and in blocks.
BYTES_AN_ENTRY = 0.5
#: Streams of the random numbers of a fit, beside its starts: entries of the bound, and draws.
BOUND_STREAM, DRAW_STREAM = 2**32 - 2, 2**32 - 1
#: Entries of new rows that are looked at in one go.
BLOCK = 4_000_000
#: Entries from which the noise of log odds is estimated.
NOISE_ENTRIES = 10_000


EFFECTS = functools.partial(facts.effects, note=words.OWN_LOG_ODDS)
AGREEMENT = functools.partial(
    agreement_section,
    first="Log odds do not depend on the order or the signs of the factors and are what counts "
    "first.",
)
MATRIX = functools.partial(
    matrix, shown="probability of a one", moments=functools.partial(linked, link=expit)
)


def _factors(note: str = "", **card):
    """Return the section of the factors; the note is of what their axes are."""
    return functools.partial(
        factors,
        note="A factor adds to the log odds of an entry the product of its row's and its column's "
        "value: if they have the same sign a one becomes likelier, otherwise less likely. "
        f"{note}{SIGNED_BARS}",
        card=functools.partial(signed_card, scale="log odds", **card),
        shades=SIGNED,
    )


PAGE = Page(
    facts=(
        facts.data,
        facts.starts,
        number_of_factors,
        functools.partial(facts.seconds, of="optimisation"),
        facts.bound,
        facts.rhat_of_starts,
        functools.partial(facts.found, runs="starts"),
        facts.bias,
        EFFECTS,
    ),
    sections=(
        number_section,
        MATRIX,
        _factors(runs="starts"),
        functools.partial(
            traces,
            note="The lower bound on the log probability of the data, which the fit raises, after "
            "every step. All starts should have levelled off where the shaded part ends; later "
            "steps draw from what was reached. If entries are drawn at random, the bound is an "
            "estimate, and scatters.",
            run="start",
            phase="optimisation",
        ),
        functools.partial(AGREEMENT, runs="starts", convergence=starts_figure),
        spread,
    ),
    words=(
        *words.REAL,
        words.LOG_ODDS,
        words.START,
        words.PROBABILITY_OF_ONE,
        words.STANDARD_DEVIATION,
        words.RHAT_OF_STARTS,
        words.MISSING,
    ),
    stopped=facts.stopped_optimising,
)
EXACT_PAGE = Page(
    facts=(
        *SAMPLING,
        functools.partial(facts.mixing, of="log odds"),
        facts.found,
        facts.bias,
        EFFECTS,
    ),
    sections=(
        MATRIX,
        _factors(
            "The data and the prior determine factors up to a rotation: shown are the principal "
            "axes of their mean, to which every draw is turned, largest first. "
        ),
        traces,
        summaries,
        AGREEMENT,
        spread,
    ),
    words=(*words.REAL, words.LOG_ODDS, words.PROBABILITY_OF_ONE_DRAWN, *DRAWS),
)


@dataclass(frozen=True, repr=False)
class LogOddsFit(OnesMixin, RowsMixin, Fit):
    """What fits of log odds have in common, effects and bias included."""

    _dims: ClassVar = {"row_effect": ["rows"], "column_effect": ["columns"]}
    _scored = "probabilities of ones and zeros"
    _predicts_chances = True
    _predicts_of = "log odds"

    @classmethod
    def _predicted(cls, entries, others, priors):
        return expit(entries)

    def _product_draws(self, rows, columns):
        usage, basis = super()._product_draws(rows, columns)
        return cells.with_effects(usage, basis, self.other_draws, rows, columns)

    @property
    def _other_model(self):
        priors = self.settings["priors"]
        if not (priors.get("row_effects", True) and priors.get("column_effects", True)):
            return (
                "let rows and columns have effects, row_effects=True, column_effects=True "
                "(--effects both)"
            )
        return super()._other_model

    @of_draws
    def log_odds(self, i, j) -> np.ndarray:
        """Return draws (draw of all chains, cell) of the log odds of a one, of some cells."""
        return self._log_odds_draws(i, j)

    def _log_odds_draws(self, i, j) -> np.ndarray:
        """Return what `log_odds` does."""
        return cells.cell_draws(self, i, j)

    def _chance_given(self, usage, chain: int, draw: int) -> np.ndarray:
        """Return the probability of a one, (rows, columns), in rows of average effect, of one draw.

        `usage` (rows, rank) is in place of that of the draw.
        """
        return expit(cells.of_average_rows(self, usage, chain, draw))

    def _log_density(self, i, j, values):
        return scores.logit_density(values, self._log_odds_draws(i, j))

    def _replicates(self, i, j, rng):
        return scores.drawn_ones(self, i, j, rng)

    def _new_rows(self, new):
        return matched_rows(self, new)

    def _row_terms(self, new, num_draws, chances, seed):
        draws = (
            self._loadings(*divmod(c, self.basis_draws.shape[1]))
            for c in self._spaced_draws(num_draws)
        )
        return whole_rows.by_normals(new, draws, chances, seed)

    def _loadings(self, chain: int, draw: int):
        """Return loadings, level and prior deviations of a row's coordinates, of one draw."""
        at = (chain, draw)
        loadings, level = self.basis_draws[at], np.full(self.data.num_columns, 0.0)
        level = level + self.other_draws["bias"][at]
        if "column_effect" in self.other_draws:
            level = level + self.other_draws["column_effect"][at]
        sd = self._prior_usage_sd(chain)
        if "row_effect" in self.other_draws:
            loadings = np.concatenate([loadings, np.ones_like(loadings[:, :1])], 1)
            sd = np.append(sd, self.settings["priors"]["scale"])
        return loadings, level, sd

    def _prior_usage_sd(self, chain: int) -> np.ndarray:
        """Return the prior standard deviations (rank,) of the usage of new rows."""
        return np.full(self.rank, float(self.settings["priors"]["scale"]))


@dataclass(frozen=True, repr=False)
class ExactLogisticFit(LogOddsFit):
    """A fit of log odds by draws from the posterior itself; its approximation is empty."""

    _page = EXACT_PAGE

    def _probability(self, i, j):
        # A draw at a time, by products of matrices: single cells would take each draw apart again.
        found, draws = np.zeros((len(i), len(j))), self.usage_draws.shape[:2]
        for at in np.ndindex(*draws):
            for some in blocks(len(i), len(j)):
                found[some] += expit(self._log_odds_at(at, i[some], j))
        return found / math.prod(draws)

    def _log_odds_at(self, at, i, j) -> np.ndarray:
        """Return the log odds (rows, columns) of a one in some rows and columns, of one draw."""
        found = self.usage_draws[at][i] @ self.basis_draws[at][j].T
        if "bias" in self.other_draws:
            found += self.other_draws["bias"][at]
        if "row_effect" in self.other_draws:
            found += self.other_draws["row_effect"][at][i, None]
        if "column_effect" in self.other_draws:
            found += self.other_draws["column_effect"][at][j]
        return found

    def _block(self, i, j, kinds, level, rng):
        log_odds = self._log_odds_draws(i, j)
        return {
            kind: expit(log_odds).mean(0, dtype=float)
            if kind == "probability"
            else cells.summarised(log_odds, kind, level)
            for kind in kinds
        }

    def _transform(self, new_rows) -> np.ndarray:
        drawn = self._draws_of_new(matched_rows(self, new_rows), 0)
        return drawn["usage"].mean((0, 1), dtype=float)

    def _sd_of_new(self, new_rows) -> np.ndarray:
        if self._is_boolean:
            return super()._sd_of_new(new_rows)
        drawn = self._draws_of_new(matched_rows(self, new_rows), 0)
        return drawn["usage"].std((0, 1), dtype=float)

    def _with_rows(self, new, seed):
        new = matched_rows(self, new)
        return self._with_drawn(new, self._draws_of_new(new, seed))

    def _draws_of_new(self, new, seed: int) -> dict:
        """Draw the vectors of new rows given every kept draw of the rest, (chain, draw, ...).

        A draw sweeps over Polya-Gamma variables and vectors in turn, from where the one before
        ended.
        """
        density = LogisticDensity(self.rank, **self.settings["priors"])
        data, names = sign_blocks(new), [n for n in density.sites if n in ("usage", "row_effect")]
        known = {n: v for n, v in self._draws().items() if n not in names}
        shapes = {"usage": (new.num_rows, self.rank), "row_effect": (new.num_rows,)}
        start = {n: jnp.zeros(shapes[n]) for n in names}

        def sweep(key, drawn, known, data):
            return draw_rows(key, known | drawn, data, density)[0]

        return given_every_draw(sweep, start, known, data, sweeps=SWEEPS, settle=SETTLE, seed=seed)


@dataclass(frozen=True, repr=False)
class LogisticFit(LogOddsFit):
    """A fit of log odds by variational inference; one by draws is an `ExactLogisticFit`.

    `approximation` is what its draws are drawn from; see `bmfjax.posterior.mixture`.
    """

    approximation: Mapping[str, np.ndarray] = field(default_factory=dict)

    _models = ("logistic",)
    _page = PAGE
    _is_variational = True
    _counts_as_factor = (
        f"{relevance.COUNTED} The draws are of a variational approximation, which is too narrow: "
        "starts may differ by more than the draws of each."
    )
    _ranks_beforehand = relevance.BEFOREHAND

    @classmethod
    def _of_record(cls, record):
        if Logistic().samplers[record.summary["sampler"]].exact:
            return ExactLogisticFit._of_record(record)
        return super()._of_record(record)

    @classmethod
    def _own_fields(cls, arrays):
        named = [n for n in arrays if n.startswith("approximation_")]
        return {"approximation": {n.removeprefix("approximation_"): arrays[n] for n in named}}

    def _arrays(self):
        return super()._arrays() | {f"approximation_{n}": a for n, a in self.approximation.items()}

    def _moments(self, name):
        mean, sd = mixture.mixture(
            self.approximation[f"{name}_mean"], self.approximation[f"{name}_variance"]
        )
        return mean[:, : self.rank], sd[:, : self.rank]

    @functools.cached_property
    def _mixing(self):
        return verdict.mixing_of_starts(self.data, self.approximation)

    def _probability(self, i, j):
        return mixture.probability(self.approximation, i, j)

    def _predict(self, i, j, kind, level):
        if kind in ("mean", "sd"):
            return mixture.log_odds_of_all_starts(self.approximation, i, j)[kind == "sd"]
        return super()._predict(i, j, kind, level)

    def _log_prior(self):
        priors = self.settings["priors"]
        return mixture.log_prior(self._draws(), priors["scale"], priors["bias_scale"])

    def log_proposal(self) -> np.ndarray:
        """Return the log density of every draw under what it was drawn from, (chain, draw) float64.

        The mixture of the starts of a variational fit. Beside the log prior it is what
        ``az.loo_approximate_posterior`` of ArviZ 1.x corrects by; see `to_arviz`.
        """
        return mixture.log_mixture(self.approximation, self._draws(), self.rank)

    def _width(self):
        starts, _, width = self.approximation["usage_mean"].shape
        return max(super()._width(), 8 * starts * width)

    def _block(self, i, j, kinds, level, rng):
        known = mixture.cell_log_odds(self.approximation, i, j)
        mean, sd = mixture.mixture(*known)
        found = {"mean": mean, "sd": sd}
        if "probability" in kinds:
            found["probability"] = mixture.probability_of_a_one(*known).mean(0)
        if "interval" in kinds:
            found |= super()._block(i, j, ("interval",), level, rng)
        return found

    def _transform(self, new_rows) -> np.ndarray:
        mean, _ = self._usage_of_new(matched_rows(self, new_rows))
        return mean[..., : self.rank].mean(0, dtype=float)

    def _sd_of_new(self, new_rows) -> np.ndarray:
        moments = self._usage_of_new(matched_rows(self, new_rows))
        mean, variance = (m[..., : self.rank].astype(float) for m in moments)
        return np.sqrt(variance.mean(0) + mean.var(0))

    def _prior_usage_sd(self, chain):
        if "relevance_shape" not in self.approximation:
            return super()._prior_usage_sd(chain)
        learned = Gamma(*(self.approximation[f"relevance_{n}"][chain] for n in Gamma._fields))
        return np.asarray(learned.mean, float) ** -0.5

    def _usage_of_new(self, new) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances (start, rows, width) of the vectors of new rows."""
        prior = prior_of(self.rank, self.settings["priors"])
        at, step = self.approximation, max(1, BLOCK // new.num_columns)
        check_fork()
        solve = jax.jit(usage_given_basis, static_argnames="prior")
        columns = np.arange(new.num_columns)
        shape = (self._num_chains, new.num_rows, prior.width)
        found = [np.zeros(shape, at[f"usage_{moment}"].dtype) for moment in mixture.MOMENTS]
        for start in range(self._num_chains):
            basis, bias = (
                Gaussian(
                    jnp.asarray(at[f"{n}_mean"][start]), jnp.asarray(at[f"{n}_variance"][start])
                )
                for n in ("basis", "bias")
            )
            learned = None
            if prior.relevance is not None:
                learned = Gamma(*(jnp.asarray(at[f"relevance_{n}"][start]) for n in Gamma._fields))
            for i in range(0, new.num_rows, step):
                values, hidden = new.part(np.arange(new.num_rows)[i : i + step], columns)
                solved = solve(basis, bias, prior, values, ~hidden, learned)
                for moments, of_block in zip(found, solved, strict=True):
                    moments[start, i : i + step] = np.asarray(of_block)
        return tuple(found)

    def _score_new(self, new, i, j, values, seed):
        moments = self._usage_of_new(matched_rows(self, new))
        of_rows = dict(zip(("usage_mean", "usage_variance"), moments, strict=True))
        approximation = dict(self.approximation) | of_rows
        parts = [
            mixture.probability_of_a_one(*mixture.cell_log_odds(approximation, i[some], j[some]))
            for some in cells.blocks(len(i), self._width())
        ]
        return scores.log_chance(values, np.concatenate([part.mean(0) for part in parts]))


class Logistic(Family):
    """Log odds of large sparse matrices."""

    models: ClassVar = {"logistic": spec.Logistic}

    finds_rank = ("batch", "svi")
    on_mesh = ("svi",)

    def default_sampler(self, data):
        return "svi" if data.num_rows * data.num_columns > BATCH else "batch"

    def read_start(self, problem):
        start = problem.read_start()
        if problem.sampler.name == "batch" and problem.num_chains > 1:
            raise InputError(
                f"num_chains is {problem.num_chains}, and from one init sampler 'batch' goes one "
                "way; give num_chains=1, or sampler='svi'"
            )
        return start

    def plan(self, problem: Problem) -> Plan:
        exact = problem.kernel.exact
        steps = problem.warmup(GIBBS_WARMUP if exact else NUM_WARMUP)
        if steps < 2 and not exact:
            raise InputError(
                f"num_warmup (--warmup) is {steps}; of the logistic model these are the most "
                "steps of optimisation: give at least 2"
            )
        whole = problem.sampler.name != "svi"
        return Plan(
            resolve_priors(problem),
            (StagePlan(sampler_options(problem, steps), steps if exact else 0),),
            "random" if problem.init is None else digest(problem.every_chain(problem.init)),
            (memory.Held("words of all entries", problem.data.shape, BYTES_AN_ENTRY * whole),),
            f"every step looks at {'all entries' if whole else 'entries drawn at random'}",
            remedy="choose sampler='svi'" if whole else memory.SMALLER,
        )

    def chains_of(self, problem: Problem, plan: Plan) -> Chains:
        if problem.kernel.exact:
            return gibbs_chains(problem, plan)
        data, options, steps = problem.data, plan.options, problem.warmup(NUM_WARMUP)
        prior = prior_of(int(problem.rank), plan.arguments)
        share = np.clip(data.density, 1e-6, 1 - 1e-6)
        log_odds = float(np.log(share / (1 - share)))
        make, arguments = problem.kernel.make, (prior, data.shape, log_odds)
        if problem.sampler.name == "svi":
            key = jax.random.fold_in(problem.key, BOUND_STREAM)
            sampled = draw_bound_entries(key, entry_sampler(data, options["sampling"]))
            if problem.mesh is not None:
                sampled = sampled._replace(along=Along(ROWS))
            algorithm = make(*arguments, options["step_entries"] // CHUNK)
        else:
            sampled, algorithm = all_entries(problem), make(*arguments)
        start = None if problem.init is None else problem.every_chain(problem.init)
        return Chains(
            algorithm,
            sampled,
            problem.settings(
                priors=plan.arguments, init=plan.init, thinning=1, sampler_options=options
            ),
            trace=problem.kernel.trace,
            num_samples=steps,
            start=lambda resume: start,
            arguments={"prior": prior},
            objective="elbo",
            counted="steps of optimisation",
            independent=False,
            starts_count=True,
            finished=lambda run: bool(run.last_trace("settled").all()),
            enough=lambda run: run.steps_done > 0,
        )

    def judged(self, problem, chains, entries, seen, agreement=None, *_, **more):
        # The log joint density counts: it has no wandering parts.
        return verdict.of_ratings(
            entries, len(seen.trace["log_joint"]), alike(problem, agreement), seen.trace,
            joint_counts=True, **more,
        )  # fmt: skip

    def class_of(self, problem):
        return ExactLogisticFit if problem.kernel.exact else LogisticFit

    def at_the_end(self, problem, chains, run):
        return {"given_start": problem.init is not None}

    def ordered(self, problem, chains, seen):
        drawn = rotated_draws(seen.sites, seen.best)
        return Ordered(drawn, agreements(*(drawn[n].mean(1) for n in FACTORS)))

    def product_draws(self, problem, drawn):
        usage, basis = super().product_draws(problem, drawn)
        return cells.with_effects(usage, basis, drawn, *map(np.arange, problem.data.shape))

    def result(self, problem: Problem, chains: Chains, run: ChainRun) -> LogOddsFit:
        if problem.kernel.exact:
            return super().result(problem, chains, run)
        trace = run.trace()
        settled = trace["settled"][:, -1]
        # The run may have gone on after the last start had settled, as far as its chunk went.
        steps = np.where(settled, trace["settled"].argmax(1) + 1, run.steps_done)
        elbo = trace["elbo"][:, : steps.max()]
        approximation, order, drawn = _matched(
            problem, chains, run.state, int(np.argmax(elbo[:, -1]))
        )
        drawn |= {n: order.apply(drawn[n]) for n in FACTORS}
        if problem.finds_rank:
            approximation, drawn = without_unused(problem.data, approximation, drawn)
        rank = drawn["usage"].shape[-1]
        agreeing = agreements(*(approximation[f"{n}_mean"][..., :rank] for n in FACTORS))

        def judge(fit):
            judged = verdict.of_starts(
                fit._mixing, agreeing, elbo, steps, settled, run.num_steps,
                sampled=problem.sampler.name == "svi", ranks=drawn.get("rank"),
                given_start=problem.init is not None,
                exact_sampler=None if problem.finds_rank else self.other_sampler(problem),
            )  # fmt: skip
            taken = 0 if run.stood else run.num_steps
            return judged.changed(num_warmup=taken, num_draws=drawn["bias"].shape[1])

        return make_fit(
            self.class_of(problem), problem, chains, run,
            draws=drawn,
            trace={"elbo": elbo},
            agreement=agreeing[0],
            judge=judge,
            own={"approximation": approximation},
        )  # fmt: skip


def prior_of(rank: int, priors: Mapping) -> LogisticPrior:
    """Return the prior of a fit, of its priors by name as they are stored."""
    shared = priors.get("relevance")
    of_factors = {} if shared is None else {"relevance": tuple(shared)}
    return LogisticPrior(rank, **dict(priors) | of_factors)


def resolve_priors(problem: Problem) -> dict:
    """Return all priors by name; `relevance` where the number of factors is found, and only there.

    The precision of a column that has the mean of its default prior makes log odds of a thousandth,
    as for the fits of "probit" (`bmfjax.families.ratings`).
    """
    found = dict(problem.priors)
    if not problem.finds_rank:
        relevance.refuse_relevance(problem, "relevance")
        return {n: v for n, v in found.items() if n != "relevance"}
    if not (found["row_effects"] or found["column_effects"]):
        of_all = "is of all factors alike, under which none vanishes, or of effects, of which there"
        relevance.refuse_priors(problem, {"scale": f"{of_all} are none"})
    return found | {"relevance": list(found["relevance"] or RELEVANCE)}


def all_entries(problem: Problem) -> jax.Array:
    """Return the matrix as the samplers take it that look at all of it."""
    entries, name = problem.data.num_rows * problem.data.num_columns, problem.sampler.name
    if entries >= 2**31:
        raise InputError(
            f"the matrix has {entries:,} entries, and sampler {name!r} counts at most "
            f"{2**31 - 1:,}; choose sampler='svi'"
        )
    return sign_blocks(problem.data)


def sampler_options(problem: Problem, steps: int) -> dict:
    """Return the options of a sampler that takes so many steps."""
    if problem.sampler.name != "svi":
        return {}
    options, (rows, columns) = problem.sampler.fields(), problem.data.shape
    entries = options["step_entries"]
    entries = ENTRIES_A_LINE * (rows + columns) if entries is None else entries
    if entries > (most := max(rows * columns, CHUNK)):
        raise InputError(
            f"step_entries is {entries}, more than the matrix has; give at most {most}, or "
            "sampler='batch', which looks at every entry in every step"
        )
    # Entries are drawn in chunks, of which a step has whole ones.
    chunks = math.ceil(entries / CHUNK)
    if chunks * steps >= 2**31:
        raise InputError(
            f"step_entries is {entries} and num_warmup (--warmup) {steps}, more entries than "
            "can be counted; give fewer"
        )
    return options | {"step_entries": chunks * CHUNK}


def _matched(problem, chains, state, best: int):
    """Return the starts' normals with matched factors, their order, and draws not yet matched."""
    posterior, rank = jax.device_get(posterior_of(state)), int(problem.rank)
    prior = chains.arguments["prior"]
    lines = posterior.usage.mean.shape[1] + posterior.basis.mean.shape[1]
    asked = NUM_SAMPLES if problem.is_auto else problem.num_samples
    # As many draws of each start as were asked for, or as there is room for.
    every, _ = thinning(4 * problem.num_chains * prior.width * lines, asked)
    key = jax.random.fold_in(problem.key, DRAW_STREAM)
    drawn = posterior_draws(key, posterior, prior, asked // every)
    means = [getattr(posterior, n).mean[..., :rank] for n in FACTORS]
    order = by_size(align_signed(*means, pivot=best), *(drawn[n] for n in FACTORS))
    approximation = {
        f"{name}_{moment}": _ordered(getattr(getattr(posterior, name), moment), order, rank, moment)
        for name in (*FACTORS, "bias")
        for moment in mixture.MOMENTS
    }
    if posterior.relevance is not None:
        approximation |= {
            f"relevance_{n}": order.apply(np.asarray(a), signed=False)
            for n, a in posterior.relevance._asdict().items()
        }
    return approximation, order, drawn


def noise_of_log_odds(data, approximation) -> np.ndarray:
    r"""Return the standard deviation of a log odds as one entry tells of it, for each start.

    A normal observation of the log odds with variance :math:`1 / w` tells of them as much as a one
    or a zero with probability p does where w is its Fisher information, :math:`w = p (1 - p)`,
    which is also the weight of the entry in iteratively reweighted least squares (McCullagh, Nelder
    1989, "Generalized linear models", 2nd edition, sections 2.5 and 4.4). Sums over entries add
    information, so that the noise of all is that of its mean, :math:`\bar w^{-1/2}`: 2 where ones
    and zeros are equally probable, and 7 where 2 % are ones, where as large a factor is far harder
    to tell from noise.

    The bound of the fit gives entries the weight :math:`2 \Lambda(\xi) \ge p (1 - p)`
    (`bmfjax.variational.posterior`). Its fixed point has the means of the likelihood all the same,
    which scatter by w, and only its draws are narrower. So the noise edge
    (`bmfjax.kernels.used_factors`) is not too low. It is the mean of up to `NOISE_ENTRIES` entries
    of lines of which some entry is observed; where the information differs much between lines, a
    spurious factor of few lines that tell little may pass.
    """
    at = sampled_positions(*informed(data).values(), NOISE_ENTRIES)
    chance = mixture.probability_of_a_one(*mixture.cell_log_odds(approximation, *at))
    return (chance * (1.0 - chance)).mean(-1) ** -0.5


def without_unused(data, approximation: Mapping, drawn: Mapping) -> tuple[dict, dict]:
    """Return both without the factors that most draws do not use, and `rank`, the number used."""
    used = relevance.used_draws(
        data, drawn["usage"], drawn["basis"], noise_of_log_odds(data, approximation)[:, None]
    )
    kept, rank = kept_factors(used), used.shape[-1]
    found = {n: a[..., kept] if n in FACTORS else a for n, a in drawn.items()}
    width = approximation["usage_mean"].shape[-1]
    columns = {"usage": np.append(kept, np.arange(rank, width)), "relevance": kept}
    columns["basis"] = columns["usage"]
    left = {
        name: a[..., columns[side]] if (side := name.split("_")[0]) in columns else a
        for name, a in approximation.items()
    }
    return left, found | {"rank": used.sum(-1)}


def _ordered(values, order, rank, moment):
    """Return factors in their order; effects and ones after them, and the bias, as they are."""
    values = np.asarray(values)
    if values.ndim == 1:
        return values
    moved = order.apply(values[..., :rank], signed=moment == "mean")
    return np.concatenate([moved, values[..., rank:]], -1)


# ---- the exact sampler --------------------------------------------------------------------------


def gibbs_chains(problem: Problem, plan: Plan) -> Chains:
    """Return chains that draw from the posterior itself."""
    priors, data = plan.arguments, problem.data
    density, start = LogisticDensity(int(problem.rank), **priors), problem.init
    if start is not None:
        start = problem.every_chain(start | _without_factors(density, data))
    return Chains.of_stage(
        problem,
        plan.stages[0],
        problem.kernel.make(density, data.shape),
        all_entries(problem),
        bytes_a_draw=4 * (density.rank + 1) * sum(data.shape),
        settings={"priors": priors, "init": "random" if start is None else digest(start)},
        sites=density.sites,
        start=lambda resume: start,
    )


def _without_factors(density: LogisticDensity, data) -> dict:
    """Return where chains from a given start have bias and effects: they give the share of ones."""
    share = np.clip(data.density, 1e-6, 1 - 1e-6)
    found = {"bias": np.float32(np.log(share / (1 - share)))}
    sizes = dict(zip(("row_effect", "column_effect"), data.shape, strict=True))
    return found | {n: np.zeros(m, np.float32) for n, m in sizes.items() if n in density.sites}
