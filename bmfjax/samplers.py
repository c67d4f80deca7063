"""The samplers that `fit` offers: how each is made, what it reports, whether it is exact."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bmfjax.data import InputError
from bmfjax.infer import IASG, NMFGibbs, OrMachineGibbs, TruncatedGibbs, logistic_chains
from bmfjax.infer.kernel import AlgorithmKernel
from bmfjax.infer.ormachine import RULES
from bmfjax.kernels.bit_blocks import MAX_JOINT
from bmfjax.kernels.pmf import pmf_gibbs


class Sampler(NamedTuple):
    """One way to sample a model.

    Attributes
    ----------
    make : callable
        ``make(model, **options) -> AlgorithmKernel``; of the logistic model a function of
        `bmfjax.infer.logistic_chains`, of matrix factorisations `bmfjax.kernels.pmf.pmf_gibbs`.
    exact : bool
        Whether its draws are from the posterior and not from an approximation.
    trace : tuple of str
        Scalars that it reports at every step.
    """

    make: Callable[..., Any]
    exact: bool
    trace: tuple[str, ...]


#: Of each model; the first is its default, but for the logistic one (`default_sampler`).
SAMPLERS = {
    "ormachine": {
        "gibbs": Sampler(OrMachineGibbs, True, ("log_joint", "errors", "dispersion")),
    },
    "relaxed": {
        "gibbs": Sampler(TruncatedGibbs, True, ("log_joint", "residual")),
        "iasg": Sampler(IASG, False, ("log_joint", "clamped")),
        "thesis": Sampler(IASG.thesis, False, ("log_joint", "clamped")),
    },
    "logistic": {
        "batch": Sampler(logistic_chains.batch, False, ("elbo", "settled")),
        "svi": Sampler(logistic_chains.stochastic, False, ("elbo", "settled")),
    },
    "nmf": {"gibbs": Sampler(NMFGibbs, True, ("log_joint", "residual"))},
    "pmf": {"gibbs": Sampler(pmf_gibbs, True, ("log_joint", "residual"))},
    "probit": {"gibbs": Sampler(pmf_gibbs, True, ("log_joint",))},
    "ordered-probit": {"gibbs": Sampler(pmf_gibbs, True, ("log_joint", "cut_acceptance"))},
}

#: Entries up to which variational inference of the logistic model looks at all of them.
BATCH = 10**8


def default_sampler(model: str, data) -> str:
    """Name of the sampler that a model has where none is asked for."""
    if model == "logistic" and data.num_rows * data.num_columns > BATCH:
        return "svi"
    return next(iter(SAMPLERS[model]))


def sampler_of(asked) -> Sampler:
    """The sampler that a request, or the settings of a fit, name."""
    if isinstance(asked, Mapping):
        return SAMPLERS[asked["model"]][asked["sampler"]]
    return SAMPLERS[asked.model][asked.sampler]


def make_kernel(request, model: Callable) -> tuple[AlgorithmKernel, dict]:
    """The kernel and the options that it was made with.

    Parameters
    ----------
    request : bmfjax.job.Request
    model : callable
        The NumPyro model.

    Returns
    -------
    kernel : AlgorithmKernel
    options : dict

    Raises
    ------
    InputError
        For an option that this sampler does not have, or annealing beyond the warm-up.
    """
    options, name = request.sampler_options, request.sampler
    sampler = sampler_of(request)
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"sampler_options is {options!r}; give a mapping of names to values")
    options = dict(options or {})
    allowed = [p for p in inspect.signature(sampler.make).parameters if p != "model"]
    for option in options:
        if option not in allowed:
            raise InputError(
                f"sampler_options name {option!r}, which sampler {name!r} does not have; "
                f"it has {', '.join(allowed)}"
            )
    if "num_anneal" in allowed:
        if request.model == "ormachine":
            options = default_options(*request.data.shape, request.rank, options) | options
        # Starts of single flips are annealed already, and who gives a start wants to keep it.
        from_prior = request.model == "relaxed" or options.get("update") == "collapsed"
        # Replicas behind walls share one likelihood, which is not annealed.
        from_prior |= request.model == "nmf" and options.get("walls") is None
        from_prior = from_prior and request.init is None
        options.setdefault("num_anneal", request.num_warmup // 2 if from_prior else 0)
        _check_gibbs(options)
        if options["num_anneal"] > (most := request.num_warmup):
            raise InputError(
                f"num_anneal is {options['num_anneal']} and num_warmup {most}; annealed "
                "sweeps are not draws from the posterior: anneal within the warm-up"
            )
    return sampler.make(model, **options), options


#: Entries up to which the Boolean sampler sums a factor matrix out, and lets factors be born.
SMALL, MEDIUM = 2**17, 2**24
#: Entries, times 4 to the power of the rank, up to which it does so for all factors at once and
#: at these inverse temperatures.
TINY, LADDER = 2**22, (1.0, 0.6, 0.36, 0.2)


def default_options(rows: int, columns: int, rank: int, given: Mapping = MappingProxyType({})):
    """Options of the Boolean sampler that a matrix of this size can afford in every sweep.

    Parameters
    ----------
    rows, columns, rank : int
    given : mapping
        Options that were asked for; those returned are for beside them.

    Returns
    -------
    dict

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


def _check_gibbs(options) -> None:
    """Types of the exact sampler's options; its ranges are checked where they are used."""
    number = options["num_anneal"]
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InputError(f"num_anneal is {number!r}; give a whole number of at least 0")
    lowest = options.get("lowest", 0.5)
    if not isinstance(lowest, int | float) or not 0 < lowest <= 1:
        raise InputError(f"lowest is {lowest!r}; give a number above 0 and at most 1")
    ladder = options.get("inverse_temperatures")
    good = ladder is None or (
        not isinstance(ladder, str)
        and hasattr(ladder, "__len__")
        and all(isinstance(b, int | float) for b in ladder)
    )
    if not good:
        raise InputError(
            f"inverse_temperatures is {ladder!r}; give numbers from 1.0 downwards, such as "
            "bmfjax.infer.geometric_ladder makes them"
        )
