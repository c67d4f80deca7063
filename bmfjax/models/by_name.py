"""Distributions by class and arguments, so that a prior can be written to a file and read again."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpyro.distributions as dist
from numpyro.distributions import truncated

from bmfjax.data.errors import InputError
from bmfjax.models import ordered_normal, spiked_beta, truncated_beta

#: Where the classes are looked up by name.
HOMES = (dist, truncated, truncated_beta, spiked_beta, ordered_normal)


def named(distribution: dist.Distribution) -> tuple[str, dict[str, Any]]:
    """Return the name of a distribution's class, and the arguments that make it again.

    Refuse a class of another package, and one that does not keep its arguments.

    Examples
    --------
    >>> name, arguments = named(dist.Beta(1.0, 2.0))
    >>> name, float(arguments["concentration0"])
    ('Beta', 2.0)
    """
    kind = type(distribution)
    if not any(getattr(home, kind.__name__, None) is kind for home in HOMES):
        raise InputError(
            f"the prior {kind.__name__} is no distribution of NumPyro; chains that run apart are "
            "described by a file, which can name no other"
        )
    wanted = [n for n in inspect.signature(kind).parameters if n != "validate_args"]
    # The logits of a distribution that was given probabilities are computed where they are asked.
    given = {n: vars(distribution)[n] for n in wanted if n in vars(distribution)}
    missing = [
        n
        for n, p in inspect.signature(kind).parameters.items()
        if p.default is p.empty and n not in given
    ]
    if missing:
        raise InputError(
            f"the prior {kind.__name__} does not keep its {', '.join(missing)}, and cannot be "
            "written to a file; give another, or run all chains together"
        )
    again = kind(**given)
    if (again.batch_shape, again.event_shape) != (
        distribution.batch_shape, distribution.event_shape,
    ):  # fmt: skip
        raise InputError(
            f"the prior {kind.__name__} was expanded or reshaped, which its arguments do not tell; "
            "give arguments of the whole shape"
        )
    return kind.__name__, given


def from_name(name: str, arguments: Mapping[str, Any]) -> dist.Distribution:
    """Return the distribution that `named` took apart.

    Examples
    --------
    >>> float(from_name("Beta", {"concentration1": 1.0, "concentration0": 3.0}).mean)
    0.25
    """
    kind = next((getattr(home, name) for home in HOMES if hasattr(home, name)), None)
    if not (inspect.isclass(kind) and issubclass(kind, dist.Distribution)):
        raise InputError(f"{name!r} is no distribution of NumPyro; was the file written by bmfjax?")
    return kind(**arguments)
