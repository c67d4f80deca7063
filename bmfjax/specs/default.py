"""Which model fits ones and zeros where nobody names one: by the size, and by what else is said.

Real matrices follow binary features more closely than Boolean products: rows and columns differ in
how often they are one. But a sweep of features costs entries times factors.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from bmfjax.specs.base import Model, prior_names
from bmfjax.specs.boolean import OrMachine
from bmfjax.specs.features import Features
from bmfjax.specs.ratings import PMF

#: Entries times factors up to which four chains of features have the draws of a first verdict, some
#: 350 sweeps with their starts, in the default time on one core: 25 ns each.
MOST_WORK = 8_000_000
#: What a call may say beside fields and samplers.
MESH, BITS, WEIGHTS = "a mesh", "a start of zeros and ones", "a start of weights"
_FURTHER = {OrMachine.name: {MESH, BITS}, Features.name: {WEIGHTS}}
_OF = {Features.name: "binary latent features", OrMachine.name: "Boolean products"}
#: The models that there are by default, and their samplers.
KINDS = (OrMachine, Features, *OrMachine.samplers, *Features.samplers)
#: The rule, for help texts and documentation.
RULE = (
    f"{Features.name} where entries times factors are at most {MOST_WORK:,}, else "
    f"{OrMachine.name}; an option that only one of the two has chooses that one"
)


class Default(NamedTuple):
    """The model, and one clause that says why."""

    model: str
    why: str


#: The model of `bmfjax.Ratings`.
OF_RATINGS = Default(PMF.name, f"model: {PMF.name}, the default of ratings")


def default_model(
    entries: int, rank: int, said: Collection[str] = (), before: str | None = None
) -> Default:
    """Return the model of ones and zeros where none is named.

    `rank` is the most factors; `said` are names of fields and samplers, and what else the call
    says; `before` is the model of a checkpoint that goes on.
    """
    if before in _OF:
        return Default(before, f"model: {before} ({_OF[before]}), as in the checkpoint")
    for kind, other in ((OrMachine, Features), (Features, OrMachine)):
        own = [name for name in said if name in _has(kind) - _has(other)]
        if own:
            why = f"model: {kind.name} ({_OF[kind.name]}), which alone has {own[0]}"
            return Default(kind.name, why)
    most = MOST_WORK // max(rank, 1)
    fits = entries <= most
    chosen, left = (Features, OrMachine) if fits else (OrMachine, Features)
    return Default(
        chosen.name,
        f"model: {chosen.name} ({_OF[chosen.name]}), the default {'up to' if fits else 'above'} "
        f"{most:,} entries at rank {rank}; model={left.name!r} (--model {left.name}) has "
        f"{_OF[left.name]}",
    )


def _has(kind: type[Model]) -> set[str]:
    """Return the names of what a call can say that a model has."""
    names = {name for kernel in kind.samplers.values() for name in kernel.options}
    return names | {s.name for s in kind.samplers} | {*prior_names(kind)} | _FURTHER[kind.name]
