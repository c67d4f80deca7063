"""The samplers of `bmfjax.fit`, as values. How each works is said where its kernel is.

A field whose default is "auto" is set by the plan of a fit, by the size of the matrix and the
length of the run; `Fit.settings` holds what it chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bmfjax.errors import InputError
from bmfjax.specs import checks
from bmfjax.specs.base import AUTO, Flag, Sampler, parameter, value_class, whole

_BATCH_SIZE = Flag("--batch-size", "rows and columns in a minibatch", {"type": int})
#: The power of the likelihood at the first annealed sweep.
LOWEST = 0.02


def _steps(name, value) -> int:
    return checks.whole(name, value, 0)


def _power(name, value) -> float:
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(f"{name} is {value!r}; give a number above 0 and at most 1")
    return value


def _ladder(name, value):
    listed = not isinstance(value, str) and hasattr(value, "__len__")
    if value is not None and not (listed and all(isinstance(b, int | float) for b in value)):
        raise InputError(
            f"{name} is {value!r}; give numbers from 1.0 downwards, such as "
            "bmfjax.infer.geometric_ladder makes them"
        )
    return value


def _walls(name, value):
    if isinstance(value, str) or not hasattr(value, "__len__"):
        raise InputError(f"{name} is {value!r}; give numbers that fall, such as [1000, 30, 2]")
    return value


def _moves(name, value):
    given = value if isinstance(value, Sequence) else [None]
    if not isinstance(value, str) and not all(isinstance(move, str) for move in given):
        raise InputError(f"{name} is {value!r}; give a sequence of names, () for none")
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
    )
    block_size: int | None = parameter(
        AUTO, 'of "ormachine", factors that "joint" and the move "collapsed" draw at once',
        kind='int or "auto"',
    )  # fmt: skip
    dispersion: str = parameter(
        "sample",
        'of "ormachine", how the flip rates follow from the errors: "sample" draws them; '
        '"laplace" and "mle" set them, and are not exact',
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
        _ladder,
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
        _walls,
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
        16, "particles that descend from one of the temperature before", whole(1)
    )
    ess: float = parameter(0.5, "share of effective particles from one temperature to the next")


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
        None, "rows and columns in a minibatch; default: at most 256", flag=_BATCH_SIZE
    )
    step_size: float = parameter(
        0.95, "size of a step, below 1: what is missing to 1 is room for the gradients' noise"
    )
    num_steps: int = parameter(1, "steps of both factor matrices in one draw")
    num_anchor: int = parameter(
        AUTO, "draws in which the anchor of the control variates is moved, as part of the warm-up",
        kind='int or "auto"',
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

    blocks: Sequence | None = parameter(None, "sites that are updated together")
    batch_size: int | Mapping[str, int] | None = parameter(
        None, "rows and columns in a minibatch", flag=_BATCH_SIZE
    )
    preconditioner: str | None = parameter("auto", 'curvature: "newton", "calibrated" or None')
    step_size: float | Mapping[str, float] | None = parameter(None, "size of a step")
    window: int | str = parameter(
        "matched", 'iterates in an average: a number, "matched" to the limit variance, or "pass"'
    )
    boundary: str = parameter("clamp", 'what holds sites on a box: "clamp", "reflect" or "logit"')
    delta: float = parameter(
        0.001, "share of its width that a site on a box stays away from both ends"
    )
    replace: bool = parameter(True, "whether minibatches are drawn with replacement")
    scale_likelihood: bool = parameter(
        True, "whether the likelihood of a minibatch is scaled to that of all data"
    )
    conditionals: Mapping | None = parameter(
        None, "draws of sites that are drawn exactly, once a window"
    )
    num_calibration: int = parameter(2500, 'points for the preconditioner "calibrated"')
    num_approach: int | None = parameter(None, "Adam steps towards a mode before the first draw")
    report_variance: bool = parameter(False, "whether the variance of the iterates is traced")
    calibration: str | None = parameter(
        "auto", 'measure curvature and noise at the mode: "auto", "step", "sandwich" or "top-up"'
    )
    optimizer: Any = parameter(None, "makes the steps, of Optax")


@value_class
class ThesisAveraging(Sampler):
    """Average iterates of stochastic gradients as published (Gonsior 2019); approximate.

    What ``sampler="thesis"`` builds, by `IASG.thesis`. It is `IterateAveraging` without what later
    work added, kept to compare with.

    {parameters}
    """

    name: ClassVar = "thesis"

    blocks: Sequence | None = parameter(None, "sites that are updated together")
    batch_size: int | Mapping[str, int] = parameter(
        75, "rows and columns in a minibatch", flag=_BATCH_SIZE
    )
    delta: float = parameter(
        0.001, "share of its width that a site on a box stays away from both ends"
    )
    num_calibration: int = parameter(2500, 'points for the preconditioner "calibrated"')
    report_variance: bool = parameter(False, "whether the variance of the iterates is traced")


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
        "biased", 'which entries: "biased", "balanced" or "uniform" (`variational.entry_sampler`)'
    )
    step_entries: int | None = parameter(
        None, "entries drawn in a step; default 4 for each row and column, rounded up", whole(1),
        kind="int, optional",
    )  # fmt: skip


#: Options of annealed chains, and of chains with temperatures too.
ANNEALED = ("num_anneal", "lowest")
TEMPERED = (*ANNEALED, "inverse_temperatures", "num_adapt")
