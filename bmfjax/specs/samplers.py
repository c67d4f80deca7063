"""`Gibbs`, the sampler that every model has; the others stand beside their models.

A field whose default is "auto" is set by the plan of a fit, by the size of the matrix and the
length of the run; `Fit.settings` holds what it chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

from bmfjax.errors import InputError, kind_of
from bmfjax.specs import checks
from bmfjax.specs.base import AUTO, Sampler, a_choice, a_whole, parameter, value_class

#: The power of the likelihood at the first annealed sweep.
LOWEST = 0.02


#: How bits are drawn, how flip rates follow from errors, and the names of moves.
UPDATES = ("metropolis", "gibbs", "joint", "collapsed")
RULES = ("sample", "laplace", "mle")
MOVES = ("collapsed", "birth", "rebirth", "split_merge", "xor", "jump", "basis", "lines")
#: Births of a sweep, and rounds in which temperatures exchange, at most: each takes time.
MOST_ROUNDS = 100
#: Factors that are drawn at once, at most: more states than their 256 cost more than they help.
MAX_JOINT = 8


def power(name, value) -> float:
    return number_above(0.0, 1.0, "a number above 0 and at most 1")(name, value)


def number_above(low: float, most: float, what: str):
    """Return a check of a number above `low` and at most `most`."""

    def check(name, value) -> float:
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low < value <= most:
            raise InputError(f"{name} is {value!r}; give {what}")
        return value

    return check


def checked_ladder(name, value) -> tuple[float, ...] | None:
    """Return inverse temperatures as floats that fall from one, or refuse them."""
    if value is None:
        return None
    try:
        betas = () if isinstance(value, str) else tuple(float(b) for b in value)
    except (TypeError, ValueError):
        betas = ()
    falling = all(a > b for a, b in pairwise(betas))
    if not (betas and betas[0] == 1.0 and falling and betas[-1] >= 0):
        raise InputError(
            f"{name} is {value!r}; give numbers that fall strictly from 1.0 to 0 or more, such as "
            "bmfjax.infer.geometric_ladder makes them"
        )
    return betas


def checked_walls(name, value) -> tuple[float, ...]:
    """Return the hardness of soft walls: positive numbers that fall, or refuse them."""
    try:
        found = () if isinstance(value, str) else tuple(float(wall) for wall in value)
    except (TypeError, ValueError):
        found = ()
    falling = all(a > b for a, b in pairwise(found))
    if not found or not falling or not 0 < found[-1] <= found[0] < 1e12:
        raise InputError(
            f"{name} is {value!r}; give positive numbers below 1e12 that fall, such as "
            "[1000, 30, 2]"
        )
    return found


def _moves(name, value) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, Sequence):
        raise InputError(f"{name} is {value!r}; give a sequence of names, () for none")
    return tuple(checks.one_of(name, move, MOVES) for move in found)


def _solutions(name, value) -> Any:
    if not all(hasattr(value, part) for part in ("use", "density", "rate")):
        raise InputError(f"{name} is {kind_of(value)}; give bmfjax.infer.known_solutions(draws)")
    return value


@value_class
class Gibbs(Sampler):
    """Draw from the posterior, some unknowns at a time given all others.

    Every model has it, and some of its options. Its kernels under NumPyro are `OrMachineGibbs`,
    `TruncatedGibbs`, `NMFGibbs`, `PMFGibbs`, and those of `bmfjax.infer` for the variants of the
    Boolean model; the options are described there in full.

    {parameters}

    Examples
    --------
    >>> from bmfjax import Gibbs
    >>> Gibbs(update="joint") == Gibbs(update="joint"), Gibbs(moves=["birth"]).moves
    (True, ('birth',))
    """

    name: ClassVar = "gibbs"

    update: str = parameter(
        AUTO,
        'of Boolean factors, how bits are drawn: "metropolis", "gibbs", "joint" or, of "ormachine" '
        'alone, "collapsed", with the longer factor matrix summed out, which small matrices of '
        'a low rank have by "auto"',
        a_choice(*UPDATES),
    )
    block_size: int | None = parameter(
        AUTO, 'of "ormachine", factors that "joint" and the move "collapsed" draw at once',
        a_whole(1, MAX_JOINT), kind='int or "auto"',
    )  # fmt: skip
    dispersion: str = parameter(
        "sample",
        'of "ormachine", how the flip rates follow from the errors: "sample" draws them; '
        '"laplace" and "mle" set them, and are not exact',
        a_choice(*RULES),
    )
    moves: Sequence[str] = parameter(
        AUTO, 'of "ormachine" and "nmf", moves in every step for what single draws cannot change',
        _moves,
        kind='sequence of str, or "auto"',
    )  # fmt: skip
    num_anneal: int = parameter(
        AUTO,
        "annealed sweeps, in which the power of the likelihood rises to one; they are part of the "
        "warm-up",
        a_whole(0),
        kind='int or "auto"',
    )
    lowest: float = parameter(
        AUTO, "power of the likelihood at the first annealed sweep", power,
        kind='float or "auto"',
    )  # fmt: skip
    inverse_temperatures: Sequence[float] | None = parameter(
        AUTO,
        "parallel tempering: powers of the likelihood from 1 downwards; None for none",
        checked_ladder,
        kind='sequence of float, None or "auto"',
    )
    num_adapt: int = parameter(
        AUTO, "sweeps of the warm-up that adapt the temperatures", a_whole(0), kind='int or "auto"'
    )
    num_exchanges: int = parameter(
        AUTO,
        'of "ormachine", rounds of every step in which temperatures exchange factors',
        a_whole(0, MOST_ROUNDS),
        kind='int or "auto"',
    )
    rebirths: int = parameter(
        AUTO,
        'of "features", features that are born again, or die, in every sweep: more of small '
        "matrices",
        a_whole(0, MOST_ROUNDS),
        kind='int or "auto"',
    )
    solutions: Any = parameter(
        None,
        'of "ormachine", solutions for the move "jump", of `bmfjax.infer.known_solutions`',
        _solutions,
        kind="KnownSolutions, optional",
    )
    num_start: int = parameter(
        50, 'of "deep-ormachine", sweeps by which each layer is found alone before all are joined',
        a_whole(0),
    )  # fmt: skip
    walls: Sequence[float] | None = parameter(
        None,
        'of "nmf", replicas behind softer walls at zero, which lets chains cross between modes: '
        "numbers that fall",
        checked_walls,
        kind="sequence of float, optional",
    )


#: Options of annealed chains, and of chains with temperatures too.
ANNEALED = ("num_anneal", "lowest")
TEMPERED = (*ANNEALED, "inverse_temperatures", "num_adapt")
