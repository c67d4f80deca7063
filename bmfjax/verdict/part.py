"""What the three parts of a verdict have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from bmfjax.diagnostics.align import MOST
from bmfjax.specs.run import ACCURATE, SLIGHT
from bmfjax.verdict.figures import NAN, Figures

#: Vehtari et al. (2021) ask for 1.01; with few kept draws R-hat scatters more than that.
RHAT_GOOD, RHAT_USABLE = 1.01, 1.05
#: Up to this R-hat chains that found the same factors are slow, and not apart.
RHAT_SLOW = 1.2
ESS_PER_CHAIN = 50


class Bounds(NamedTuple):
    """What chains may differ by."""

    rhat: float  # of scalars, at most
    ess: float  # effective draws a chain of scalars, at least
    apart: float  # between the predictions of some chains and those of the others
    error: float  # of predictions, by Monte Carlo
    off: float  # of probabilities on average, surely: their error beyond what chance gives
    found: float  # share of the chains that found a factor, at least


#: By which a part holds, and by which a run of an exact sampler ends and is reliable. The mean of
#: four chains of which one or two are 0.2 from the others has a standard error of about 0.05.
WIDE = Bounds(RHAT_USABLE, ESS_PER_CHAIN / 2, 4.0 * ACCURATE, 2.0 * ACCURATE, SLIGHT, MOST)
TIGHT = Bounds(RHAT_GOOD, ESS_PER_CHAIN, ACCURATE, ACCURATE, 0.0, 1.0)
#: How slow the log joint density of factors that all chains found may be. An R-hat of 1.2, of
#: halves of chains, goes with 4.5 effective draws a chain (Vats and Knudson 2021). With fewer draws
#: R-hat itself is by chance.
SLOW = WIDE._replace(rhat=RHAT_SLOW, ess=5.0)


#: Scalars that predictions depend on besides the factors, in words.
SCALARS = {
    "precision": "the noise",
    "dispersion": "the dispersion",
    "cutpoints": "the cut points",
    "layers": "a layer above",
}
#: These and those that parts rest on, which a text about a part need not name.
_IN_WORDS = SCALARS | {
    "log_joint": "the log joint density",
    "product": "the reconstruction",
    "rank": "the number of factors",
}


class Holds(StrEnum):
    """Whether a part of a result can be used."""

    HOLDS = "holds"
    NOT_YET = "not yet"  # more draws, or chains, may show that it does
    NO = "does not hold"  # more draws do not mend it


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a verdict.

    Attributes
    ----------
    status : Holds
    said : str
        What the sentence says of it.
    remedy : str
        What to try where it does not hold, or holds and could be better.
    """

    status: Holds
    said: str
    remedy: str = ""

    @property
    def holds(self) -> bool:
        """Whether it can be used."""
        return self.status is Holds.HOLDS


def unfinished(figures: Figures) -> str:
    """Say what keeps draws from being those of the posterior, whatever chains say of each other."""
    if figures.planned_warmup is not None:
        if figures.num_warmup == figures.planned_warmup:
            return "there are too few draws"
        return "the warm-up was cut short" if figures.num_warmup else "nothing was drawn"
    return "the bound has not settled" if figures.settled is False else ""


def alone(figures: Figures) -> str:
    """Say why factors are not compared, where it is not that there is one chain."""
    return ": one chain found them for all" if figures.is_found_by_one else ""


def mixed(figures: Figures, names: Sequence[str], bounds: Bounds = WIDE) -> bool:
    """Whether scalars of the trace with these names have a good R-hat, and draws enough.

    What never moved, or is not there, is no reason against a run.

    Examples
    --------
    >>> slow = Figures(rhat_rank=1.0, ess_rank=120.0, num_chains=4)
    >>> mixed(slow, ["rank"]), mixed(slow, ["rank"], TIGHT), mixed(slow, ["precision"], TIGHT)
    (True, False, True)
    """
    least = bounds.ess * (figures.num_chains or 1)
    return not any(
        _of(figures, "rhat", name) > bounds.rhat or _of(figures, "ess", name) < least
        for name in names
    )


def _of(figures: Figures, what: str, name: str) -> float:
    """Return R-hat or effective draws of a scalar, NaN where there is none."""
    value = getattr(figures, f"{what}_{name}", None)
    return NAN if value is None else value


def slowest(figures: Figures, names: Sequence[str], bounds: Bounds = WIDE) -> str:
    """Say what is wrong with the scalar that mixed worst: its R-hat, else its effective draws.

    Examples
    --------
    >>> slowest(Figures(rhat_rank=1.2, ess_rank=120.0, num_chains=4), ["rank"])
    'R-hat 1.20'
    >>> slowest(Figures(rhat_cutpoints=1.2, rhat_precision=1.1), ["precision", "cutpoints"])
    'R-hat 1.20 of the cut points'
    >>> slowest(Figures(ess_rank=81.5, num_chains=4), ["rank"])
    '81 of 100 effective draws'
    """
    rhats = {name: 1.0 if math.isnan(r := _of(figures, "rhat", name)) else r for name in names}
    worst = max(rhats, key=rhats.get)
    if rhats[worst] > bounds.rhat:
        if math.isinf(rhats[worst]):
            return f"chains are stuck{_named(worst, 'in')}"
        digits = 2 if bounds.rhat > RHAT_GOOD else 3
        return f"R-hat {rhats[worst]:.{digits}f}{_named(worst)}"
    sizes = {name: size for name in names if not math.isnan(size := _of(figures, "ess", name))}
    fewest = min(sizes, key=sizes.get)
    # Downwards: what is just too little should not read like what is asked for.
    number, needed = math.floor(sizes[fewest]), math.ceil(bounds.ess * (figures.num_chains or 1))
    return f"{number:,} of {needed:,} effective draws{_named(fewest)}"


def short_scalars(figures: Figures, names: Sequence[str], bounds: Bounds) -> list[str]:
    """Say all that scalars of the trace are short of within these bounds, and of which.

    Examples
    --------
    >>> known = dict(rhat_log_joint=1.07, ess_log_joint=45.5, num_chains=4)
    >>> for said in short_scalars(Figures(**known), ["log_joint", "precision"], TIGHT):
    ...     print(said)
    R-hat 1.070 of the log joint density, where 1.01 is asked
    45 of 200 effective draws of the log joint density
    """
    found, digits = [], 2 if bounds.rhat > RHAT_GOOD else 3
    needed = math.ceil(bounds.ess * (figures.num_chains or 1))
    for name in names:
        rhat, size = _of(figures, "rhat", name), _of(figures, "ess", name)
        of = f" of {_IN_WORDS[name]}"
        if math.isinf(rhat):
            found.append(f"chains that are stuck{_named(name, 'in')}")
        elif rhat > bounds.rhat:
            found.append(f"R-hat {rhat:.{digits}f}{of}, where {bounds.rhat:g} is asked")
        if size < bounds.ess * (figures.num_chains or 1):
            found.append(f"{math.floor(size):,} of {needed:,} effective draws{of}")
    return found


def _named(name: str, where: str = "of") -> str:
    return f" {where} {SCALARS[name]}" if name in SCALARS else ""
