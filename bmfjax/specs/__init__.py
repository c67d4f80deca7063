"""Models and samplers as values: what `bmfjax.fit` can fit, and how."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal

from bmfjax.errors import InputError, checking_call, did_you_mean, meant
from bmfjax.specs.base import Model, Sampler, parameters, prior_names
from bmfjax.specs.boolean import SMC, DeepOrMachine, Hamming, OneHot, OrMachine, OrMachineEffects
from bmfjax.specs.features import Features
from bmfjax.specs.logistic import SVI, Batch, Logistic
from bmfjax.specs.nonnegative import NMF
from bmfjax.specs.poisson import Poisson
from bmfjax.specs.ratings import PMF, OrderedProbit, Probit
from bmfjax.specs.relaxed import IterateAveraging, Minibatch, Relaxed, ThesisAveraging
from bmfjax.specs.samplers import Gibbs

__all__ = [
    "NMF",
    "PMF",
    "SMC",
    "SVI",
    "Batch",
    "DeepOrMachine",
    "Features",
    "Gibbs",
    "Hamming",
    "IterateAveraging",
    "Logistic",
    "Minibatch",
    "OneHot",
    "OrMachine",
    "OrMachineEffects",
    "OrderedProbit",
    "Poisson",
    "Probit",
    "Relaxed",
    "ThesisAveraging",
]

#: The names, for editors and type checkers, which read no code.
ModelName = Literal[
    "ormachine", "ormachine-effects", "deep-ormachine", "one-hot", "hamming", "relaxed", "features",
    "logistic", "nmf", "poisson", "pmf", "probit", "ordered-probit",
]  # fmt: skip
SamplerName = Literal["gibbs", "smc", "minibatch", "iasg", "thesis", "batch", "svi"]

#: The class of every name in ``bmfjax.fit(model=...)`` and ``bmfjax.fit(sampler=...)``.
MODELS: dict[str, type[Model]] = {
    kind.name: kind
    for kind in (
        OrMachine, OrMachineEffects, DeepOrMachine, OneHot, Hamming, Relaxed, Features, Logistic,
        NMF, Poisson, PMF, Probit, OrderedProbit,
    )
}  # fmt: skip
SAMPLERS: dict[str, type[Sampler]] = {s.name: s for m in MODELS.values() for s in m.samplers}


def model_of(name: str, **priors: Any) -> Model:
    """Return a model by its name, with these fields; refuse others."""
    kind = MODELS[name]
    for prior in priors:
        if prior not in parameters(kind):
            hint = did_you_mean(prior, parameters(kind))
            raise InputError(
                f"model {name!r} has no {prior!r}; it has {', '.join(prior_names(kind))}{hint}"
            )
    return kind(**priors)


def samplers_of(model: type[Model]) -> dict[str, type[Sampler]]:
    """Return the samplers of a class of models by name; the first is the default."""
    return {kind.name: kind for kind in model.samplers}


def sampler_of(name: str, model: type[Model], **options: Any) -> Sampler:
    """Return a sampler of a model by its name, with these options; refuse what it lacks."""
    kind = _sampler_class(name, model)
    for option in options:
        _check_option(option, kind, model)
    return kind(**options)


def checked_sampler(sampler: Sampler, model: type[Model]) -> Sampler:
    """Return a sampler that a model has, with options that it has there."""
    _sampler_class(sampler.name, model)
    for option in sampler.given():
        _check_option(option, type(sampler), model)
    return sampler


#: What replaced arguments of earlier versions.
_REPLACED = {
    "priors": "parameters are arguments of the model, such as bmfjax.OrMachine(4, num_rates=1)",
    "sampler_options": "options are arguments of the sampler, such as bmfjax.Gibbs(update='joint')",
}


def with_fields_refused(function: Callable) -> Callable:
    """Return a function that refuses fields of models and samplers: they are said in these."""
    known = inspect.signature(function).parameters
    is_new = function.__name__ == "__init__"
    name_of = function.__qualname__.split(".")[0] if is_new else function.__name__
    called = checking_call(function, name_of)

    @functools.wraps(function)
    def checked(*args, **given):
        what = type(args[0]).__name__ if is_new and args else name_of
        for name in (n for n in given if n not in known):
            # Such as `rank` of what has `ranks`.
            if (close := meant(name, known)) and close.startswith(name):
                continue
            owners = [k for k in (*MODELS.values(), *SAMPLERS.values()) if name in parameters(k)]
            if name == "rank" and "n_components" in known:
                raise InputError(f"rank is no argument of {what}; give n_components=...")
            if owners:
                made = ", ".join(f"bmfjax.{kind.__name__}({name}=...)" for kind in owners)
                raise InputError(f"{name} is no argument of {what}; give {made}")
            if name in _REPLACED:
                raise InputError(f"{name} is no argument of {what} any more; {_REPLACED[name]}")
        return called(*args, **given)

    return checked


def _sampler_class(name: str, model: type[Model]) -> type[Sampler]:
    known = samplers_of(model)
    if name in known:
        return known[name]
    owners = [m for m, kind in MODELS.items() if name in samplers_of(kind)]
    hint = f"; it belongs to {', '.join(owners)}" if owners else did_you_mean(name, known)
    raise InputError(f"sampler is {name!r}; model {model.name!r} has {', '.join(known)}{hint}")


def _check_option(option: str, sampler: type[Sampler], model: type[Model]) -> None:
    if option not in model.samplers[sampler].options:
        has = "; ".join(
            f"{s.name!r} has {', '.join(k.options) or 'none'}" for s, k in model.samplers.items()
        )
        raise InputError(
            f"sampler {sampler.name!r} of model {model.name!r} has no option {option!r}; {has}"
            f"{did_you_mean(option, model.samplers[sampler].options)}"
        )
