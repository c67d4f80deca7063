"""The relaxed model and the samplers that it alone has, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bmfjax.errors import InputError
from bmfjax.specs import checks, priors
from bmfjax.specs.base import (
    AUTO,
    PRECISION,
    Flag,
    Kernel,
    Model,
    Prior,
    Sampler,
    a_choice,
    a_whole,
    parameter,
    parameters,
    value_class,
)
from bmfjax.specs.samplers import LOWEST, TEMPERED, Gibbs, power

_BATCH_SIZE = Flag("--batch-size", "rows and columns in a minibatch", {"type": int})
_PRIOR = Flag(
    "--prior",
    "prior of the factors' entries (uniform where not given)",
    {"choices": list(priors.NAMED)},
)


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


def _share_of_box(name, value) -> float:
    return checks.share(name, value, 0.0, 0.5, "a share of the box from 0 to below 0.5")


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
    num_steps: int = parameter(1, "steps of both factor matrices in one draw", a_whole(1))
    num_anchor: int = parameter(
        AUTO, "draws in which the anchor of the control variates is moved, as part of the warm-up",
        a_whole(0), kind='int or "auto"',
    )  # fmt: skip
    num_anneal: int = parameter(AUTO, "annealed sweeps", a_whole(0), kind='int or "auto"')
    lowest: float = parameter(LOWEST, "power of the likelihood at the first annealed sweep", power)


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
        "auto", 'curvature: "newton", "calibrated" or None', a_choice("newton", "calibrated", None)
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
        a_choice("clamp", "reflect", "logit"),
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
    num_calibration: int = parameter(2500, 'points for the preconditioner "calibrated"', a_whole(2))
    num_approach: int | None = parameter(
        None, "Adam steps towards a mode before the first draw", a_whole(0)
    )
    report_variance: bool = parameter(
        False, "whether the variance of the iterates is traced", checks.switch
    )
    calibration: str | None = parameter(
        "auto",
        'measure curvature and noise at the mode: "auto", "step", "sandwich" or "top-up"',
        a_choice("auto", None, "step", "sandwich", "top-up"),
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
    num_calibration: int = parameter(2500, 'points for the preconditioner "calibrated"', a_whole(2))
    report_variance: bool = parameter(
        False, "whether the variance of the iterates is traced", checks.switch
    )


@value_class
class Relaxed(Model):
    """Factors in [0, 1], with a Gaussian likelihood.

    See Gonsior (2019, equation 3.2); the density is that of `bmfjax.models.relaxed_bmf`. Where the
    number of factors is found, each has a rate that is learned, and vanishes where the data do not
    need it (automatic relevance determination). One that is near the edge of the noise may keep
    the chains apart, and the verdict says so.

    {parameters}
    """

    name: ClassVar = "relaxed"
    samplers: ClassVar = {
        Gibbs: Kernel(
            "bmfjax.infer.mcmc.truncated:TruncatedGibbs", ("log_joint", "residual"), TEMPERED
        ),
        Minibatch: Kernel(
            "bmfjax.infer.mcmc.sgmcmc:AuxiliaryGibbs", ("log_joint", "residual", "noise_share"),
            tuple(parameters(Minibatch)),
        ),
        IterateAveraging: Kernel(
            "bmfjax.infer.mcmc.iasg:IASG", ("log_joint", "clamped"),
            tuple(parameters(IterateAveraging)), exact=False,
        ),
        ThesisAveraging: Kernel(
            "bmfjax.infer.mcmc.iasg:IASG.thesis", ("log_joint", "clamped"),
            tuple(parameters(ThesisAveraging)), exact=False,
        ),
    }  # fmt: skip

    usage: Prior = parameter(
        None,
        'prior of the entries: "uniform" (default), "normal", "laplace", "beta", "ard" (always '
        'where the rank is "auto") or a NumPyro distribution on [0, 1]',
        priors.factor_prior,
        flag=_PRIOR,
        kind="str or distribution, optional",
    )
    basis: Prior = parameter(
        None, "the same of the basis", priors.factor_prior, flag=_PRIOR,
        kind="str or distribution, optional",
    )  # fmt: skip
    precision: Prior = parameter(
        None,
        "a number that fixes the noise precision; default a Gamma(1, 1) prior, and 1 for sampler "
        '"thesis"',
        priors.gamma_or_number,
        flag=PRECISION,
        kind="float or Gamma, optional",
    )
    rate: Prior = parameter(
        None,
        'Gamma prior of the rates of "ard"; default Gamma(1, 1), and with rank "auto" Gamma(1, '
        "0.01), with which factors may all but vanish",
        priors.gamma,
        kind="Gamma, optional",
    )
