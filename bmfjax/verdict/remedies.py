"""What to try next, in Python and on the command line: it follows from what a run has tried."""

from __future__ import annotations

import math
from typing import NamedTuple

from bmfjax.diagnostics import split_rhat
from bmfjax.specs.run import ACCURATE
from bmfjax.verdict.factors import factors_differ
from bmfjax.verdict.figures import Figures
from bmfjax.verdict.part import ESS_PER_CHAIN, RHAT_SLOW, TIGHT
from bmfjax.verdict.predictions import predictions_agree
from bmfjax.verdict.record import agrees, fewest_draws


class Tried(NamedTuple):
    """What a run has tried, and what is left to try."""

    draws: int = 0  # of each chain
    rank: int = 1
    #: A larger rank that is worth trying before a smaller one; 0: none is.
    more: int = 0
    stopped: bool = False  # before all draws were taken
    ended: bool = False  # by itself, because nothing but predictions was asked for
    #: Temperatures (or walls) were used; None where the sampler has none.
    ladder: bool | None = None
    #: The matrix is so large that temperatures have not been seen to help.
    large: bool = False
    #: The option that turns temperatures on: its name, and a value as JSON.
    ladder_option: tuple[str, str] = ("inverse_temperatures", "[1, 0.6, 0.36, 0.2]")
    #: A sampler that is left to try: one that estimates the evidence, or an exact one.
    other_sampler: str | None = None
    #: Chains looked for modes apart: the mean of more of them is more exact.
    apart: bool = False
    particles: int = 0  # of each run, of a sampler that has them
    remedy: str = ""  # what is known already to be the next thing to try


UNKNOWN = Tried()


def remedy_of_chains(figures: Figures, log_joint, tried: Tried) -> str:
    """Say what to try next where chains over nonnegative factors do not agree; else nothing."""
    chains = figures.num_chains
    if figures.converged:
        return ""
    if tried.remedy:
        return tried.remedy
    if chains == 1:
        return FOUR_CHAINS
    if figures.is_alone:
        return more_chains(figures, tried)
    if tried.ended and predictions_agree(figures):
        return UNTIL_ALL
    if tried.particles:
        more = 4 * tried.particles
        return (
            f"take more particles, sampler=bmfjax.SMC(num_particles={more}) (--option "
            f"num_particles={more})"
        )
    if 0 < tried.draws < LEAST_DRAWS:  # from which modes cannot be told
        return RESUME if tried.stopped else UNTIL_AGREED
    differ = factors_differ(figures) or figures.rhat > RHAT_SLOW
    if tried.stopped and (not differ or _comes_together(log_joint)):
        return RESUME
    if not differ:
        return _more_draws(figures, chains, tried)
    if tried.ladder is False and not tried.large:
        name, value = tried.ladder_option
        return (
            f"let the chains cross between modes, sampler=bmfjax.Gibbs({name}={value}) (--option "
            f"{name}={value.replace(' ', '')})"
        )
    if tried.other_sampler is not None:
        return f"fit with sampler='{tried.other_sampler}' (--sampler {tried.other_sampler})"
    if tried.apart:
        return more_chains(figures, tried)
    if tried.large:
        return _where_large(figures, tried)
    if tried.rank > 1:
        return f"fit with {_other_rank(tried)}, or use one mode alone"
    return RESUME if tried.stopped else _more_draws(figures, chains, tried)


def more_chains(figures: Figures, tried: Tried = UNKNOWN) -> str:
    """Say what to try where too few searches found something: more draws do not tell."""
    number = 2 * figures.num_chains
    return tried.remedy or f"ask more chains, num_chains={number} (--chains {number})"


#: Fewer draws of a chain say little of where it would go.
LEAST_DRAWS = 250
UNTIL_AGREED = "leave num_samples out (--samples auto), so that chains run until they agree"
UNTIL_ALL = "leave until out (--until all), so that chains run until factors agree, too"
FOUR_CHAINS = "fit with num_chains=4 (--chains 4)"
#: Where nothing was drawn, which leaves nothing to resume. A verdict puts a number in the place of
#: SECONDS, from what the run took.
AGAIN = "fit again with more time, max_time=SECONDS (--overwrite --max-time SECONDS)"
RESUME = (
    "give it more time, max_time=SECONDS; with checkpoint= also resume=True (--resume --max-time "
    "SECONDS)"
)
#: Whoever interrupted a run lets it go on so, whatever its chains say.
GO_ON = (
    "let it go on, by the same checkpoint= and resume=True (--resume); without a checkpoint fit "
    "again"
)


def remedy_of_usable(figures: Figures, tried: Tried) -> str:
    """Say what to try next where all parts hold, and something is short of "reliable".

    Examples
    --------
    >>> good = dict(num_chains=4, factors_agreeing=1.0, chains_apart=0.0, mc_error=0.06)
    >>> remedy_of_usable(Figures(**good, exact=True), Tried(draws=1000))
    'take more draws, num_samples=3000 (--samples 3000)'
    >>> remedy_of_usable(Figures(**good, exact=False), Tried(other_sampler="gibbs"))
    "draw from the posterior itself, sampler='gibbs' (--sampler gibbs)"
    >>> remedy_of_usable(Figures(**good, exact=True, given_start=True), Tried())
    'leave init out, so that chains begin apart'
    """
    if tried.remedy:
        return tried.remedy
    if figures.exact is False:
        return EXACT.format(name=tried.other_sampler) if tried.other_sampler else ""
    if figures.given_start:
        return "leave init out, so that chains begin apart"
    if figures.shared_starts:
        return OTHER_SEED
    if figures.num_chains == 1 or agrees(figures, TIGHT):
        return ""
    if tried.ended:
        return "leave until out (--until all), so that chains run until all of it is reliable"
    return RESUME if tried.stopped else _more_draws(figures, figures.num_chains, tried)


#: Where an approximation holds.
EXACT = "draw from the posterior itself, sampler='{name}' (--sampler {name})"
#: Where one search found what all chains began with.
OTHER_SEED = (
    "fit with another seed (seed, --seed), and compare both, bmfjax.compare([fit, other]) (bmfjax "
    "compare DIR DIR)"
)


def _where_large(figures: Figures, tried: Tried) -> str:
    """Say what helps where chains are apart and temperatures cost more than they are known to."""
    more = _more_draws(figures, figures.num_chains, tried)
    if tried.stopped:
        more = "give it more time, max_time=SECONDS (--max-time SECONDS)"
    other = f" {_other_rank(tried)}," * (tried.rank > 1)
    return f"{more},{other} or use the factors that all modes share (fit.modes.common)"


def _other_rank(tried) -> str:
    """Name the rank to try where chains are in modes that differ in their factors.

    Too many factors that are all there have many arrangements that fit alike. Too few of which some
    may be absent are a choice among those that the data hold, and chains choose differently.
    """
    if tried.more:
        return f"a larger rank, rank={tried.more} (--rank {tried.more})"
    return f"a smaller rank, rank={tried.rank - 1} (--rank {tried.rank - 1})"


def _comes_together(log_joint) -> bool:
    """Say whether the chains were closer in the second half of the draws than in the first."""
    half = log_joint.shape[1] // 2
    if half < 4:
        return True
    return bool(split_rhat(log_joint[:, half:]) < split_rhat(log_joint[:, :half]))


def _more_draws(figures: Figures, chains: int, tried: Tried) -> str:
    """Say how many draws may be enough: at most ten times as many, in round numbers."""
    short = ESS_PER_CHAIN * chains / max(fewest_draws(figures)[1], 1.0)
    if figures.mc_error is not None:
        short = max(short, (figures.mc_error / ACCURATE) ** 2)
    wanted = min(max(2.0, 1.5 * short), 10.0) * max(tried.draws, 100)
    digit = 10.0 ** math.floor(math.log10(wanted))
    number = int(math.ceil(wanted / digit) * digit)
    return f"take more draws, num_samples={number} (--samples {number})"


def remedy_of_ratings(figures: Figures, tried: Tried) -> str:
    """Say what to try next: chains of a matrix factorisation are slow rather than apart."""
    if figures.num_chains == 1:
        return FOUR_CHAINS
    if figures.converged:
        return ""
    if tried.ended and predictions_agree(figures):
        return UNTIL_ALL
    return RESUME if tried.stopped else _more_draws(figures, figures.num_chains, tried)
