"""What options of the command line say of a model: its priors, and options of its sampler."""

from __future__ import annotations

import json

from bmfjax.data.errors import InputError

#: Models with effects of rows and of columns that come together.
FACTORISATIONS = ("pmf", "probit", "ordered-probit")


def priors(options) -> dict:
    """Priors by name, of which the chosen model has those that were given."""
    own = {
        "flip_rates": ("ormachine",),
        "prior": ("relaxed",),
        "batch_size": ("relaxed",),
        "precision": ("relaxed", "nmf", "pmf"),
        "effects": ("logistic", *FACTORISATIONS),
    }
    for name, models in own.items():
        if options.model not in models and getattr(options, name) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} belongs to the {models[0]} model"
                f"{''.join(f' and to {m}' for m in models[1:])}; leave it out"
            )
    given = {
        "num_rates": options.flip_rates,
        "usage": options.prior,
        "basis": options.prior,
        "precision": options.precision,
    }
    if options.effects is not None and options.model in FACTORISATIONS:
        if options.effects not in ("both", "none"):
            raise InputError(
                f"--effects {options.effects} is for the logistic model; model {options.model!r} "
                "has both or none"
            )
        given["effects"] = options.effects == "both"
    elif options.effects is not None:
        given["row_effects"] = options.effects in ("rows", "both")
        given["column_effects"] = options.effects in ("columns", "both")
    given = {n: v for n, v in given.items() if v is not None}
    named = _named("prior-value", options.prior_value)
    for name in sorted(given.keys() & named.keys()):
        raise InputError(f"--prior-value {name} is given by another option as well; leave one out")
    return given | named


def sampler_options(options) -> dict:
    """What --batch-size and --option name."""
    batch = {} if options.batch_size is None else {"batch_size": options.batch_size}
    return batch | _named("option", options.option)


def _named(option, given) -> dict:
    """Of every NAME=VALUE the value; numbers, lists, true and false are read as such."""
    found = {}
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--{option} {pair} has no name and value; give --{option} NAME=VALUE")
        if name in found:
            raise InputError(f"--{option} {name} is given twice; leave one out")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:  # a plain word
            found[name] = value
    return found
