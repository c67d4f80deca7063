"""Model families: what `bmfjax.fit` can fit, one file a kind of model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bmfjax.data import InputError, Ratings, checks
from bmfjax.data.anchors import read_anchors
from bmfjax.data.attributes import read_attributes
from bmfjax.data.io.load import load_share
from bmfjax.data.memory import check_programs
from bmfjax.families.base import (
    Data,
    Family,
    Problem,
    check_structure,
)
from bmfjax.families.boolean import Boolean
from bmfjax.families.features import Features
from bmfjax.families.logistic import Logistic
from bmfjax.families.nonnegative import Nonnegative
from bmfjax.families.poisson import Poisson
from bmfjax.families.ratings import Factorisation
from bmfjax.families.relaxed import Relaxed
from bmfjax.families.variants import Deep, Effects, Hamming, OneHot
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.mesh import agreed, checked_mesh
from bmfjax.specs import checked_sampler, sampler_of
from bmfjax.specs.base import AUTO, Model, Sampler
from bmfjax.specs.default import BITS, MESH, OF_RATINGS, WEIGHTS, Default, default_model
from bmfjax.specs.run import NUM_SAMPLES, UNTIL

_ALL = (
    Boolean(),
    Effects(),
    Deep(),
    OneHot(),
    Hamming(),
    Relaxed(),
    Features(),
    Logistic(),
    Nonnegative(),
    Poisson(),
    Factorisation(),
)

#: The family of every name in ``bmfjax.fit(model=...)``.
FAMILIES: dict[str, Family] = {model: family for family in _ALL for model in family.models}


def ask(
    data,
    rank=None,
    sampler=None,
    *,
    model=None,
    max_rank=None,
    init=None,
    num_chains=4,
    num_warmup=AUTO,
    num_samples=AUTO,
    seed=0,
    anchors=None,
    row_attributes=None,
    column_attributes=None,
    chains=None,
    mesh=None,
    until=UNTIL[0],
    mc_error=None,
    check=None,
    before=None,
    rank_is_default=False,
) -> Problem:
    """Read the data and check what all models have in common; arguments as of `bmfjax.fit`.

    `before` is the model of a checkpoint that goes on, which it keeps where none is named. The rank
    may be a default of the caller (`rank_is_default`).
    """
    check_fork()
    check_programs()
    is_named = model is not None or isinstance(rank, Model)
    said = _said(sampler, init, mesh)
    # What is read does not depend on which of the two it is, but with a mesh, which is one's alone.
    first = model if is_named else first_model(data, said, before)
    model = asked_model(rank, first, max_rank)
    family = FAMILIES[model.name]
    mesh = None if mesh is None else checked_mesh(mesh)
    if mesh is not None:  # by which the data are read
        _check_number(model)
    share_of = family.share_of(mesh, model, sampler, chains)
    data = agreed(mesh, functools.partial(_read, family, data, model.name, share_of))
    check_structure(data)
    _check_number(model)  # now that there are data, and they are of this model
    default = None
    if not is_named:
        default = default_of(data, model.rank, model.max_rank, said, before)
    if default is not None:
        model = asked_model(rank, default.model, max_rank)
        family = FAMILIES[model.name]
    sampler = asked_sampler(family, model, data, sampler)
    rank_is_default |= model.rank is None
    if rank_is_default:
        model = dataclasses.replace(model, rank=_default_rank(model, data, anchors))
    if anchors is not None:
        anchors = _known_factors(family, data, model, anchors)
    attributes = _known_lines(family, data, model.name, row_attributes, column_attributes)
    rank, most = model.rank, model.max_rank
    finds_rank = isinstance(rank, str) and rank == AUTO
    if finds_rank and anchors is not None:
        raise InputError(
            "rank is 'auto', and anchors are factors that are there in any case; give a rank, "
            "which counts the anchors and the further factors, or leave anchors out"
        )
    if finds_rank:
        _check_finds_rank(family, model.name, sampler.name, init)
        rank = _most_factors(family, most, data)
    own = None if chains is None else _chain_numbers(chains, num_chains)
    if own is not None and num_samples == AUTO:
        num_samples = NUM_SAMPLES
    return Problem(
        family,
        data,
        rank,
        model,
        sampler,
        init,
        num_chains,
        num_warmup,
        num_samples,
        seed,
        finds_rank=finds_rank,
        rank_is_default=rank_is_default,
        grows=finds_rank and most is None and num_samples == AUTO and rank < min(data.shape),
        anchors=anchors,
        chain_numbers=own,
        mesh=None if mesh is None else _devices(family, model.name, sampler.name, mesh),
        attributes=attributes,
        until=until,
        mc_error=mc_error,
        check=check,
        default="" if default is None else default.why,
    )


def _said(sampler, init, mesh) -> list[str]:
    """Return what a call says that not every model has, for the choice of the default."""
    found = [MESH] * (mesh is not None)
    if isinstance(sampler, Sampler):
        found += [sampler.name, *sampler.given()]
    elif isinstance(sampler, str):
        found.append(sampler)
    if isinstance(init, Mapping):
        with contextlib.suppress(ValueError):  # what is no array is refused when it is read
            bits = np.isin(np.asarray(init.get("basis")), (0, 1)).all()
            found.append(BITS if bits else WEIGHTS)
    return found


def first_model(data, said, before) -> str:
    """Return the model by which data are read where none is named: the default, but of the size."""
    if isinstance(data, Ratings):
        return OF_RATINGS.model
    return default_model(0, 1, said, before).model


def default_of(data, rank, max_rank=None, said=(), before=None) -> Default:
    """Return the model of data where none is named (`bmfjax.specs.default`).

    Where the number of factors is found, it depends on the most that models have alike.
    """
    if isinstance(data, Ratings):
        return OF_RATINGS
    if isinstance(rank, str):
        rank = _most_factors(Family(), max_rank, data)
    return default_model(math.prod(data.shape), rank, said, before)


def _most_factors(family: Family, max_rank: int | None, data: Data) -> int:
    """Return the most factors where their number is found."""
    if max_rank is None:
        return family.most_factors(data.shape)
    return checks.whole("max_rank", max_rank, 1, min(data.shape))


def _default_rank(model: Model, data: Data, anchors: Any) -> int:
    """Return the number of factors where none is given: room for all anchors, if the data have it.

    The model may have the number of a caller that has a default of its own.
    """
    number = model.default_rank if model.rank is None else model.rank
    known = 0
    if isinstance(anchors, Mapping | pd.DataFrame):
        known = len(anchors.columns if isinstance(anchors, pd.DataFrame) else anchors)
    return min(max(number, known), *data.shape)


def asked_model(rank: Any, model: Any, max_rank: Any = None) -> Model:
    """Return the model of a call with its number of factors, each said once.

    `rank` may be the model, and `model` a model or its name.
    """
    _refuse_values_in_place("rank", rank, Sampler)
    _refuse_values_in_place("model", model, Sampler)
    if isinstance(rank, Model):
        if model is not None:
            raise InputError(f"the model is {rank}, and model is {model!r}; give one of them")
        rank, model = None, rank
    if not isinstance(model, Model):
        model = FAMILIES[checks.one_of("model", model, FAMILIES)].models[model]()
    given = {"rank": rank, "max_rank": max_rank}
    for name, value in given.items():
        own = getattr(model, name)
        if value is not None and own is not None and value != own:
            raise InputError(f"{name} is {value!r}, and the model is {model}; give one of them")
    return dataclasses.replace(model, **{n: v for n, v in given.items() if v is not None})


def _check_number(model: Model) -> None:
    """Refuse a model without a number of factors."""
    if model.rank is None and model.default_rank is None:
        found = ", or let the fit find it: rank='auto'" * bool(FAMILIES[model.name].finds_rank)
        raise InputError(f"the number of factors is not given; give it, such as rank=4{found}")


def _refuse_values_in_place(name: str, given: Any, other: type) -> None:
    """Refuse a class in the place of a value, and a model and a sampler in each other's place."""
    if isinstance(given, type) and issubclass(given, Model | Sampler):
        raise InputError(f"{name} is the class {given.__name__}; call it, as {given.__name__}()")
    if isinstance(given, other):
        kind = "model" if other is Model else "sampler"
        raise InputError(
            f"{name} is {given}, which is a {kind}; give fit(data, model, sampler) in this order"
        )


def asked_sampler(family: Family, model: Model, data: Data, sampler: Any) -> Sampler:
    """Return the sampler of a call: a sampler, its name, or None for the default."""
    _refuse_values_in_place("sampler", sampler, Model)
    if sampler is None:
        sampler = family.default_sampler(data)
    if isinstance(sampler, Sampler):
        return checked_sampler(sampler, type(model))
    return sampler_of(sampler, type(model))


def _read(family, source, model, share_of):
    """Return the data; of a large file perhaps the rows of this process alone."""
    if share_of is None or not isinstance(source, str | os.PathLike):
        return family.read(source, model)
    return load_share(source, share_of)


def _devices(family, model, sampler, mesh):
    """Return the mesh of a fit, or refuse it."""
    if sampler not in family.on_mesh:
        instead = f"choose sampler {' or '.join(map(repr, family.on_mesh))}"
        if not family.on_mesh:
            instead = f"choose model {', '.join(m for m, f in FAMILIES.items() if f.on_mesh)}"
        raise InputError(
            f"model {model!r} with sampler {sampler!r} does not run on a mesh; {instead}, or leave "
            "mesh (--mesh) out"
        )
    return mesh


def _chain_numbers(given, num_chains) -> tuple[int, ...]:
    """Return the chains that are to run, in order, or refuse numbers that are none of a chain."""
    most = checks.whole("num_chains", num_chains, 1)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(
            f"chains is {given!r}; give a list of the numbers of those to run, such as [3]; for "
            f"how many there are, num_chains={given}"
        )
    numbers = [checks.whole("a number in chains", c, 1, most) for c in given]
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(f"chains is {numbers}; give numbers from 1 to {most}, each once")
    return tuple(sorted(numbers))


def _known_factors(family, data, model, given):
    """Return known factors, read and checked, or refuse them."""
    if not family.takes_anchors:
        able = ", ".join(m for m, f in FAMILIES.items() if f.takes_anchors)
        raise InputError(
            f"model {model.name!r} takes no anchors; leave them out, or choose a model that does: "
            f"{able}"
        )
    rank = 0 if model.rank == AUTO else model.rank
    anchors = read_anchors(given, data.column_names, rank)
    family.check_anchors(anchors, model.name)
    return anchors


def _known_lines(family, data, model, of_rows, of_columns) -> dict:
    """Return the attributes of rows and columns that were given, by side, or refuse them."""
    given = {
        "row": (of_rows, data.row_names),
        "column": (of_columns, data.column_names),
    }
    given = {side: both for side, both in given.items() if both[0] is not None}
    if given and not family.takes_attributes:
        able = ", ".join(m for m, f in FAMILIES.items() if f.takes_attributes)
        raise InputError(
            f"model {model!r} takes no {next(iter(given))}_attributes; leave them out, or choose a "
            f"model that does: {able}"
        )
    return {side: read_attributes(table, side, names) for side, (table, names) in given.items()}


def _check_finds_rank(family, model, sampler, init) -> None:
    """Refuse to find the number of factors where it cannot be."""
    if sampler not in family.finds_rank:
        able = {m: f.finds_rank for m, f in FAMILIES.items() if f.finds_rank}
        which = "; ".join(f"model {m!r} with sampler {' or '.join(s)}" for m, s in able.items())
        raise InputError(
            f"rank is 'auto', and model {model!r} with sampler {sampler!r} does not find the "
            f"number of factors ({which} do); give a rank"
        )
    if init is not None:
        raise InputError("rank is 'auto', and init has a rank of its own; give that rank")
