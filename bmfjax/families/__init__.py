"""Model families: what `bmfjax.fit` can fit, one file a kind of model."""

from __future__ import annotations

from bmfjax.data import InputError, checks
from bmfjax.families.base import AUTO, Family, Request, check_structure
from bmfjax.families.boolean import Boolean
from bmfjax.families.logistic import Logistic
from bmfjax.families.nonnegative import Nonnegative
from bmfjax.families.ratings import Factorisation
from bmfjax.families.relaxed import Relaxed

_ALL = (Boolean(), Relaxed(), Logistic(), Nonnegative(), Factorisation())

#: The family of every name in ``bmfjax.fit(model=...)``.
FAMILIES: dict[str, Family] = {model: family for family in _ALL for model in family.models}


def ask(
    data,
    rank,
    *,
    model="ormachine",
    sampler=None,
    priors=None,
    init=None,
    num_chains=4,
    num_warmup=AUTO,
    num_samples=AUTO,
    seed=0,
    sampler_options=None,
) -> Request:
    """Read the data and check what all models have in common; arguments as of `bmfjax.fit`."""
    family = FAMILIES[checks.one_of("model", model, FAMILIES)]
    data = family.read(data, model)
    check_structure(data)
    sampler = family.default_sampler(data) if sampler is None else sampler
    if sampler not in tuple(family.samplers):
        owners = [name for name, other in FAMILIES.items() if sampler in tuple(other.samplers)]
        hint = f"; it belongs to {', '.join(owners)}" if owners else ""
        raise InputError(
            f"sampler is {sampler!r}; model {model!r} has {', '.join(family.samplers)}{hint}"
        )
    return Request(
        family, data, rank, model, sampler, priors, init,
        num_chains, num_warmup, num_samples, seed, sampler_options,
    )  # fmt: skip
