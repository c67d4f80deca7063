"""The Boolean model and its variants, as values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bmfjax.errors import InputError
from bmfjax.specs import checks, priors
from bmfjax.specs.base import (
    Flag,
    Kernel,
    Model,
    Prior,
    Sampler,
    a_positive,
    a_whole,
    gamma_pair,
    parameter,
    parameters,
    value_class,
)
from bmfjax.specs.samplers import TEMPERED, Gibbs

#: What kernels of models with flips report at every step.
OF_FLIPS = ("log_joint", "errors", "dispersion")
#: Layers above the first, at most.
MAX_ABOVE = 4
#: Rates of flips of the OrMachine, where no number is given.
NUM_RATES = 2


def beta_pair(name: str, value: Any) -> list[float]:
    """Return both parameters of a Beta prior, checked."""
    try:
        pair = [checks.positive(name, v, "number") for v in value]
    except TypeError:
        pair = []
    if len(pair) != 2:
        raise InputError(f"{name} is {value!r}; give both parameters of a Beta prior")
    return pair


def _layers(name, value) -> list[int]:
    """Return the number of factors of each layer above the first, checked."""
    given = [value] if isinstance(value, int | np.integer) else value
    if isinstance(given, str) or not hasattr(given, "__len__") or not 1 <= len(given) <= MAX_ABOVE:
        raise InputError(
            f"{name} is {value!r}; give the number of factors of every layer above the "
            f"first, at least one and at most {MAX_ABOVE} numbers, or choose model 'ormachine'"
        )
    return [checks.whole(f"a number in {name}", rank) for rank in given]


def _density_of_usage() -> Any:
    return parameter(
        None,
        "prior of the density of every factor's usage: a `numpyro.distributions.Beta` (default "
        "Beta(1, 1)), a number that fixes it, or an array of the probability of every bit, in "
        "which 0 and 1 fix it",
        priors.bits_prior,
        kind="Beta, float or array, optional",
    )


def _density_of_basis(about: str = "the same of the basis") -> Any:
    return parameter(None, about, priors.bits_prior, kind="Beta, float or array, optional")


def _flip_rate(about: str) -> Any:
    return parameter(None, about, priors.flip_prior, kind="Beta, float or pair of float, optional")


_OF_FLIPS = (
    "a Beta prior, or a number or pair that fixes it; default Beta(1, 1), truncated to [0, 1/2]"
)


class _Flipped(Model):
    """A model whose entries are observed with flips."""

    def _check(self):
        """Refuse two rates of flips where there is one."""
        super()._check()
        for name in ("flip_rate", "flip_rate_above"):
            if (value := getattr(self, name, None)) is not None:
                priors.flip_prior(name, value, self.num_rates)


def _num_rates(number: int = 1) -> Any:
    return parameter(
        number,
        "1, or 2 for flip rates of zeros and ones of their own",
        a_whole(1, 2),
        flag=Flag(
            "--flip-rates",
            "one flip rate, or one each for zeros and ones (two where not given; one with layers "
            "and clusters)",
            {"type": int, "choices": [1, 2]},
        ),
    )


@value_class
class SMC(Sampler):
    """Move independent populations of particles from the prior to the posterior (`OrMachineSMC`).

    For a rank of at most 8, and with the evidence of the model. A chain is a population, which ends
    by itself; its particles are the draws. There is no warm-up.

    {parameters}
    """

    name: ClassVar = "smc"

    num_particles: int = parameter(1024, "particles of every population", a_whole(1))
    chain_length: int = parameter(
        16, "particles that descend from one of the temperature before", a_whole(2)
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
class OrMachine(_Flipped):
    """Boolean factors, whose Boolean product is observed with flips.

    The OrMachine of Rukat, Holmes, Titsias and Yau (2017), whose density is that of
    `bmfjax.models.ormachine`, with one rate of flips for zeros and one for ones: in real data ones
    are missing far more often than zeros turn. The paper has one rate for all entries.

    Where the number of factors is found, all numbers that are there are equally probable
    beforehand, and a factor that is there has the prior that it has in a fit of given rank; entries
    leave out what factors that are not shown covered.

    {parameters}

    Examples
    --------
    >>> from bmfjax import OrMachine
    >>> OrMachine(4, num_rates=1)
    OrMachine(4, num_rates=1)
    """

    name: ClassVar = "ormachine"
    samplers: ClassVar = {
        Gibbs: Kernel(
            "bmfjax.infer.mcmc.ormachine:OrMachineGibbs", OF_FLIPS,
            ("update", "block_size", "dispersion", "moves", *TEMPERED, "num_exchanges",
             "solutions"),
        ),
        SMC: Kernel("bmfjax.infer.mcmc.smc:OrMachineSMC", OF_FLIPS, tuple(parameters(SMC))),
    }  # fmt: skip

    usage: Prior = _density_of_usage()
    basis: Prior = _density_of_basis()
    flip_rate: Prior = _flip_rate(_OF_FLIPS)
    num_rates: int = _num_rates(NUM_RATES)


@value_class
class OrMachineEffects(Model):
    """Boolean factors, and effects of rows and columns on the log odds of a one.

    For rows and columns that differ in how many ones they have. The density is that of
    `bmfjax.models.ormachine_effects`.

    {parameters}
    """

    name: ClassVar = "ormachine-effects"
    samplers: ClassVar = {
        Gibbs: Kernel(
            "bmfjax.infer.mcmc.variants:EffectsGibbs", ("log_joint", "dispersion"), TEMPERED
        )
    }

    effect_precision: Sequence[float] = parameter(
        (1.0, 1.0),
        "shape and rate of the Gamma prior of the precisions of row and column effects",
        gamma_pair,
        kind="pair of float",
    )
    intercept_sd: float = parameter(
        10.0, "standard deviation of the intercept", a_positive("standard deviation")
    )
    dispersion_rate: float = parameter(
        1.0,
        "rate of the exponential prior of the dispersion, half of what a factor adds to the log "
        "odds of its entries",
        a_positive("rate"),
    )
    density: Sequence[float] = parameter(
        (1.0, 1.0),
        "parameters of the Beta prior of every factor's densities",
        beta_pair,
        kind="pair of float",
    )


@value_class
class DeepOrMachine(_Flipped):
    """Layers of Boolean factors.

    Which factors a row uses is the Boolean product of further factors, observed with flips (Rukat,
    Holmes, Titsias, Yau 2017). The density is that of `bmfjax.models.deep_ormachine`.

    {parameters}
    """

    name: ClassVar = "deep-ormachine"
    samplers: ClassVar = {
        Gibbs: Kernel(
            "bmfjax.infer.mcmc.variants:DeepOrMachineGibbs", OF_FLIPS,
            ("update", "num_start", *TEMPERED),
        )
    }  # fmt: skip

    layers: Sequence[int] | None = parameter(
        None,
        "numbers of factors of the layers above the first, from the second upwards; default one "
        "layer of half the rank",
        _layers,
        flag=Flag(
            "--layers",
            "factors of the layers above the first, such as 4 2 (one layer of half the rank where "
            "not given)",
            {"type": int, "nargs": "+"},
        ),
        kind="int or sequence of int, optional",
    )
    usage: Prior = parameter(
        None,
        "prior of the density of every factor's usage in the top layer: a "
        "`numpyro.distributions.Beta` (default Beta(1, 1)), a number that fixes it, or an array of "
        "the probability of every bit",
        priors.bits_prior,
        kind="Beta, float or array, optional",
    )
    basis: Prior = _density_of_basis(
        "the same of the basis of every layer; an array is of the first"
    )
    flip_rate: Prior = _flip_rate(_OF_FLIPS)
    flip_rate_above: Prior = _flip_rate(
        "the same of every layer above the first; Beta(1, 100) expects them to be nearly exact"
    )
    num_rates: int = _num_rates()


@value_class
class OneHot(_Flipped):
    """Boolean factors of which every row has exactly one, so that they cluster the rows.

    Observed with flips. The density is that of `bmfjax.models.one_hot_machine`.

    {parameters}
    """

    name: ClassVar = "one-hot"
    samplers: ClassVar = {
        Gibbs: Kernel("bmfjax.infer.mcmc.variants:OneHotGibbs", OF_FLIPS, TEMPERED)
    }  # fmt: skip

    weights: Prior = parameter(
        None,
        "prior of the shares of the factors: a `numpyro.distributions.Dirichlet` (default a flat "
        "one), or probabilities (rank,) or (rows, rank) that fix them",
        priors.shares,
        kind="Dirichlet or array, optional",
    )
    basis: Prior = _density_of_basis(
        "prior of the density of every factor's basis: a `numpyro.distributions.Beta` (default "
        "Beta(1, 1)), a number that fixes it, or an array of the probability of every bit, in "
        "which 0 and 1 fix it"
    )
    flip_rate: Prior = _flip_rate(_OF_FLIPS)
    num_rates: int = _num_rates()


@value_class
class Hamming(Model):
    """Boolean factors, each a code: a row is pulled to the ones and zeros of the codes it uses.

    The density is that of `bmfjax.models.hamming_machine`.

    {parameters}
    """

    name: ClassVar = "hamming"
    samplers: ClassVar = {
        Gibbs: Kernel("bmfjax.infer.mcmc.variants:HammingGibbs", OF_FLIPS, TEMPERED)
    }  # fmt: skip

    usage: Prior = _density_of_usage()
    basis: Prior = _density_of_basis()
    dispersion: Prior = parameter(
        None,
        "a scalar `numpyro.distributions` prior on [0, inf) of what a code adds to the log odds, "
        "or a number that fixes it; default Exponential(1)",
        priors.nonnegative_or_number,
        kind="distribution or float, optional",
    )
