"""The samplers of `bmfjax.fit`, as values. How each works is said where its kernel is.

A field whose default is "auto" is set by the plan of a fit, by the size of the matrix and the
length of the run; `Fit.settings` holds what it chose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

from bmfjax.errors import InputError
from bmfjax.specs import checks
from bmfjax.specs.base import AUTO, Flag, Sampler, one_of, parameter, value_class, whole

_BATCH_SIZE = Flag("--batch-size", "rows and columns in a minibatch", {"type": int})
#: The power of the likelihood at the first annealed sweep.
LOWEST = 0.02


#: How bits are drawn, how flip rates follow from errors, and the names of moves.
UPDATES = ("metropolis", "gibbs", "joint", "collapsed")
RULES = ("sample", "laplace", "mle")
MOVES = ("collapsed", "birth", "rebirth", "split_merge", "xor", "jump", "basis", "lines")
#: Factors that are drawn at once, at most: more states than their 256 cost more than they help.
MAX_JOINT = 8
#: Which entries stochastic variational inference draws.
STRATEGIES = ("uniform", "balanced", "biased")


def _steps(name, value) -> int:
    return checks.whole(name, value, 0)


def _power(name, value) -> float:
    return _above(0.0, 1.0, "a number above 0 and at most 1")(name, value)


def _above(low: float, most: float, what: str):
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


def blocks_of_sites(name, value) -> tuple | None:
    """Return blocks, as `IASG` takes them, in a form that cannot change."""
    if value is None:
        return None
    try:
        found = tuple((tuple(sites), dict(plates)) for sites, plates in value)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} is {value!r}; give a sequence of (sites, {{plate: batch}}), such as "
            "[(['basis'], {'rows': 64})]"
        ) from None
    if not found:
        raise InputError(f"{name} is empty; give at least one (sites, {{plate: batch}})")
    return found


def _batch_size(name, value) -> Any:
    if not isinstance(value, Mapping):
        return checks.whole(name, value)
    if set(value) != {"rows", "columns"}:
        raise InputError(f"{name} names {sorted(value)}; it must name 'rows' and 'columns'")
    return {p: b if b is None else checks.whole(f"{name} of {p}", b) for p, b in value.items()}


def _size_of_steps(name, value) -> Any:
    if not isinstance(value, Mapping):
        return checks.positive(name, value)
    return {site: checks.positive(f"{name} of {site!r}", step) for site, step in value.items()}


def _window(name, value) -> int | str:
    if isinstance(value, str) and value in ("matched", "pass"):
        return value
    if isinstance(value, str) or value is None:
        raise InputError(f"{name} is {value!r}; give at least 1, or 'matched' or 'pass'")
    return checks.whole(name, value)


def _conditionals(name, value) -> dict:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {value!r}; give a mapping of sites")
    for site, draw in value.items():
        if not callable(draw):
            raise InputError(f"{name} of {site!r} is {draw!r}; give a function")
    return dict(value)


def _optimizer(name, value) -> Any:
    if not all(callable(getattr(value, n, None)) for n in ("init", "update")):
        raise InputError(
            f"{name} is {value!r}; give an optimizer of Optax, such as optax.sgd(1e-4)"
        )
    return value


def _solutions(name, value) -> Any:
    if not all(hasattr(value, part) for part in ("use", "density", "rate")):
        raise InputError(
            f"{name} is a {type(value).__name__}; give bmfjax.infer.known_solutions(draws)"
        )
    return value


def _share_of_box(name, value) -> float:
    return checks.share(name, value, 0.0, 0.5, "a share of the box from 0 to below 0.5")


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
        one_of(*UPDATES),
    )
    block_size: int | None = parameter(
        AUTO, 'of "ormachine", factors that "joint" and the move "collapsed" draw at once',
        whole(1, MAX_JOINT), kind='int or "auto"',
    )  # fmt: skip
    dispersion: str = parameter(
        "sample",
        'of "ormachine", how the flip rates follow from the errors: "sample" draws them; '
        '"laplace" and "mle" set them, and are not exact',
        one_of(*RULES),
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
        _steps,
        kind='int or "auto"',
    )
    lowest: float = parameter(
        AUTO, "power of the likelihood at the first annealed sweep", _power,
        kind='float or "auto"',
    )  # fmt: skip
    inverse_temperatures: Sequence[float] | None = parameter(
        AUTO,
        "parallel tempering: powers of the likelihood from 1 downwards; None for none",
        checked_ladder,
        kind='sequence of float, None or "auto"',
    )
    num_adapt: int = parameter(
        AUTO, "sweeps of the warm-up that adapt the temperatures", _steps, kind='int or "auto"'
    )
    num_exchanges: int = parameter(
        AUTO,
        'of "ormachine", rounds of every step in which temperatures exchange factors',
        _steps,
        kind='int or "auto"',
    )
    rebirths: int = parameter(
        1, 'of "features", features that are born again, or die, in every sweep', _steps
    )
    solutions: Any = parameter(
        None,
        'of "ormachine", solutions for the move "jump", of `bmfjax.infer.known_solutions`',
        _solutions,
        kind="KnownSolutions, optional",
    )
    num_start: int = parameter(
        50, 'of "deep-ormachine", sweeps by which each layer is found alone before all are joined',
        _steps,
    )  # fmt: skip
    walls: Sequence[float] | None = parameter(
        None,
        'of "nmf", replicas behind softer walls at zero, which lets chains cross between modes: '
        "numbers that fall",
        checked_walls,
        kind="sequence of float, optional",
    )


@value_class
class SMC(Sampler):
    """Move independent populations of particles from the prior to the posterior (`OrMachineSMC`).

    For a rank of at most 8, and with the evidence of the model. A chain is a population, which ends
    by itself; its particles are the draws. There is no warm-up.

    {parameters}
    """

    name: ClassVar = "smc"

    num_particles: int = parameter(1024, "particles of every population", whole(1))
    chain_length: int = parameter(
        16, "particles that descend from one of the temperature before", whole(2)
    )
    ess: float = parameter(
        0.5,
        "share of effective particles from one temperature to the next",
        lambda name, value: checks.share(
            name, value, math.ulp(0.0), 1.0, "a share above 0 and below 1"
        ),
    )

    def _check(self):
        checks.whole("num_particles", self.num_particles, 2 * self.chain_length)
        if self.num_particles % self.chain_length:
            raise InputError(
                f"num_particles is {self.num_particles} and chain_length {self.chain_length}; "
                "give a multiple of chain_length"
            )


@value_class
class Minibatch(Sampler):
    """Draw by auxiliary-variable Gibbs from minibatches with control variates (`AuxiliaryGibbs`).

    Annealed as `Gibbs` is. Exact where a batch has all rows and columns, which it has by default
    where there are at most 256 of them; otherwise up to the noise of its gradients, which it takes
    to be normal.

    {parameters}
    """

    name: ClassVar = "minibatch"

    batch_size: int | Mapping[str, int] | None = parameter(
        None, "rows and columns in a minibatch; default: at most 256", _batch_size,
        flag=_BATCH_SIZE,
    )  # fmt: skip
    step_size: float = parameter(
        0.95,
        "size of a step, below 1: what is missing to 1 is room for the gradients' noise",
        lambda name, value: checks.share(
            name, value, math.ulp(0.0), 1.0, "a number above 0 and below 1"
        ),
    )
    num_steps: int = parameter(1, "steps of both factor matrices in one draw", whole(1))
    num_anchor: int = parameter(
        AUTO, "draws in which the anchor of the control variates is moved, as part of the warm-up",
        _steps, kind='int or "auto"',
    )  # fmt: skip
    num_anneal: int = parameter(AUTO, "annealed sweeps", _steps, kind='int or "auto"')
    lowest: float = parameter(LOWEST, "power of the likelihood at the first annealed sweep", _power)


@value_class
class IterateAveraging(Sampler):
    """Average iterates of stochastic gradients, with curvature and a learned noise; approximate.

    What ``sampler="iasg"`` builds. The kernel under NumPyro is `IASG`, where the options are
    described in full.

    {parameters}
    """

    name: ClassVar = "iasg"

    blocks: Sequence | None = parameter(None, "sites that are updated together", blocks_of_sites)
    batch_size: int | Mapping[str, int] | None = parameter(
        None, "rows and columns in a minibatch", _batch_size, flag=_BATCH_SIZE
    )
    preconditioner: str | None = parameter(
        "auto", 'curvature: "newton", "calibrated" or None', one_of("newton", "calibrated", None)
    )
    step_size: float | Mapping[str, float] | None = parameter(
        None, "size of a step", _size_of_steps
    )
    window: int | str = parameter(
        "matched",
        'iterates in an average: a number, "matched" to the limit variance, or "pass"',
        _window,
    )
    boundary: str = parameter(
        "clamp", 'what holds sites on a box: "clamp", "reflect" or "logit"',
        one_of("clamp", "reflect", "logit"),
    )  # fmt: skip
    delta: float = parameter(
        0.001, "share of its width that a site on a box stays away from both ends", _share_of_box
    )
    replace: bool = parameter(True, "whether minibatches are drawn with replacement", checks.switch)
    scale_likelihood: bool = parameter(
        True, "whether the likelihood of a minibatch is scaled to that of all data", checks.switch
    )
    conditionals: Mapping | None = parameter(
        None, "draws of sites that are drawn exactly, once a window", _conditionals
    )
    num_calibration: int = parameter(2500, 'points for the preconditioner "calibrated"', whole(2))
    num_approach: int | None = parameter(
        None, "Adam steps towards a mode before the first draw", _steps
    )
    report_variance: bool = parameter(
        False, "whether the variance of the iterates is traced", checks.switch
    )
    calibration: str | None = parameter(
        "auto",
        'measure curvature and noise at the mode: "auto", "step", "sandwich" or "top-up"',
        one_of("auto", None, "step", "sandwich", "top-up"),
    )
    optimizer: Any = parameter(None, "makes the steps, of Optax", _optimizer)

    def _check(self):
        preconditioner = self.resolved_preconditioner
        if self.optimizer is not None:
            self._check_optimizer()
        if self.calibration not in ("auto", None):
            self._check_calibration(preconditioner)
        if preconditioner is None and self.step_size is None and self.optimizer is None:
            raise InputError("plain gradient steps (preconditioner=None) need a step_size")
        if preconditioner == "newton" and not self.scale_likelihood:
            raise InputError(
                "a likelihood that is not scaled to the data does not fit the curvature of all of "
                "it; with scale_likelihood=False use preconditioner='calibrated' or None"
            )
        if preconditioner == "newton" and self.boundary == "reflect":
            raise InputError(
                "averages of reflected Newton steps do not follow a density near its bound; with "
                "boundary='reflect' use preconditioner='calibrated' or None, and with 'newton' "
                "boundary='clamp' or 'logit'; bmfjax.SGLD reflects as it should"
            )
        if self.blocks is not None and self.batch_size is not None:
            raise InputError("blocks already say the batch sizes; leave batch_size out")

    @property
    def resolved_preconditioner(self) -> str | None:
        """The preconditioner, "auto" resolved: an optimizer makes the whole step."""
        usual = "newton" if self.optimizer is None else None
        return usual if self.preconditioner == AUTO else self.preconditioner

    def _check_optimizer(self):
        if self.preconditioner not in (AUTO, None) or self.step_size is not None:
            name = "step_size" if self.step_size is not None else "preconditioner"
            raise InputError(
                f"an optimizer makes the whole step, and {name} is given as well; leave one of "
                "the two out"
            )
        if self.calibration not in ("auto", None):
            raise InputError(
                "calibration knows the covariance of steps without memory, and an optimizer may "
                "have one; leave calibration or the optimizer out"
            )

    def _check_calibration(self, preconditioner):
        if preconditioner != "newton" and self.calibration != "sandwich":
            raise InputError(
                f"calibration={self.calibration!r} chooses the step for Newton steps; use "
                "preconditioner='newton'"
            )
        if preconditioner == "calibrated" or not self.scale_likelihood:
            raise InputError(
                "calibration needs steps on the density of all data; use preconditioner='newton' "
                "and scale_likelihood=True"
            )
        if self.conditionals:
            raise InputError(
                f"calibration covers sites that move by gradients, and {sorted(self.conditionals)} "
                "are drawn exactly; put them into a block, or leave calibration out"
            )
        if self.calibration != "sandwich" and self.step_size is not None:
            raise InputError(
                f"calibration={self.calibration!r} chooses the step_size; leave step_size out"
            )


@value_class
class ThesisAveraging(Sampler):
    """Average iterates of stochastic gradients as published (Gonsior 2019); approximate.

    What ``sampler="thesis"`` builds, by `IASG.thesis`. It is `IterateAveraging` without what later
    work added, kept to compare with.

    {parameters}
    """

    name: ClassVar = "thesis"

    blocks: Sequence | None = parameter(None, "sites that are updated together", blocks_of_sites)
    batch_size: int | Mapping[str, int] = parameter(
        75, "rows and columns in a minibatch", _batch_size, flag=_BATCH_SIZE
    )
    delta: float = parameter(
        0.001, "share of its width that a site on a box stays away from both ends", _share_of_box
    )
    num_calibration: int = parameter(2500, 'points for the preconditioner "calibrated"', whole(2))
    report_variance: bool = parameter(
        False, "whether the variance of the iterates is traced", checks.switch
    )


@value_class
class Batch(Sampler):
    """Optimise a mean-field approximation of the posterior, by all entries in every step.

    In blocks of rows; a quarter of a byte of memory an entry, half where entries are missing,
    beside what grows with rows + columns. The approximation is too narrow. A chain is a start, and
    predictions average over the starts.
    """

    name: ClassVar = "batch"


@value_class
class SVI(Sampler):
    """Optimise a mean-field approximation of the posterior, by entries drawn at random.

    Memory and time grow with rows + columns and the ones. The rest is as of `Batch`.

    {parameters}
    """

    name: ClassVar = "svi"

    sampling: str = parameter(
        "biased",
        'which entries: "biased", "balanced" or "uniform" (`variational.entry_sampler`)',
        one_of(*STRATEGIES),
    )
    step_entries: int | None = parameter(
        None, "entries drawn in a step; default 4 for each row and column, rounded up", whole(1),
        kind="int, optional",
    )  # fmt: skip


#: Options of annealed chains, and of chains with temperatures too.
ANNEALED = ("num_anneal", "lowest")
TEMPERED = (*ANNEALED, "inverse_temperatures", "num_adapt")
