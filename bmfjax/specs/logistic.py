"""The logistic model and its variational samplers, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmfjax.specs import checks
from bmfjax.specs.base import (
    SIDES,
    Flag,
    Kernel,
    Model,
    Sampler,
    a_choice,
    a_positive,
    a_whole,
    gamma_pair,
    parameter,
    parameters,
    value_class,
)
from bmfjax.specs.priors import RELEVANCE
from bmfjax.specs.samplers import Gibbs

#: Which entries stochastic variational inference draws.
STRATEGIES = ("uniform", "balanced", "biased")


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
        a_choice(*STRATEGIES),
    )
    step_entries: int | None = parameter(
        None, "entries drawn in a step; default 4 for each row and column, rounded up", a_whole(1),
        kind="int, optional",
    )  # fmt: skip


@value_class
class Logistic(Model):
    """Real factors, whose product is the log odds of a one.

    For large sparse matrices and rankings of their zeros (Hernandez-Lobato, Houlsby, Ghahramani
    2014). The density is that of `bmfjax.models.logistic`. Samplers "batch" and "svi" optimise an
    approximation, which is too narrow: so are the probabilities of numbers of factors, which mix
    the starts in equal parts. "gibbs" is exact, by Polya-Gamma draws of every entry (Polson, Scott,
    Windle 2013), and takes hundreds of sweeps over all entries a chain. The default is "batch", and
    "svi" for more than {batch} entries.

    {parameters}
    """

    name: ClassVar = "logistic"
    samplers: ClassVar = {
        Batch: Kernel("bmfjax.variational.chains:batch", ("elbo", "settled"), exact=False),
        SVI: Kernel(
            "bmfjax.variational.chains:stochastic",
            ("elbo", "settled"),
            tuple(parameters(SVI)),
            exact=False,
        ),
        Gibbs: Kernel("bmfjax.kernels.logistic.gibbs:logistic_gibbs", ("log_joint",)),
    }

    scale: float = parameter(
        1.0,
        'standard deviation of factors and effects, with rank "auto" of effects alone',
        a_positive("standard deviation"),
    )
    bias_scale: float = parameter(
        5.0, "standard deviation of the bias", a_positive("standard deviation")
    )
    relevance: Sequence[float] | None = parameter(
        None,
        'with rank "auto": shape and rate of the Gamma prior of the precision that each factor has '
        f"of its own; default {RELEVANCE[0]} and {RELEVANCE[1]}",
        gamma_pair,
        kind="pair of float, optional",
    )
    row_effects: bool = parameter(
        False,
        "whether rows have biases of their own",
        checks.switch,
        flag=Flag(
            "--effects", "rows or columns have biases of their own (none where not given)", SIDES,
            lambda value: value in ("rows", "both"),
        ),
    )  # fmt: skip
    column_effects: bool = parameter(
        False,
        "whether columns have",
        checks.switch,
        flag=Flag(
            "--effects", "rows or columns have biases of their own (none where not given)", SIDES,
            lambda value: value in ("columns", "both"),
        ),
    )  # fmt: skip
