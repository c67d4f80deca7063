"""Objects that carry names beside their values: AnnData and MuData, and arrays of xarray."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bmfjax.data.checks import check_axes
from bmfjax.data.errors import InputError
from bmfjax.data.names import names_of_index


def is_annotated(values: Any) -> bool:
    """Say whether values are an AnnData or a MuData object."""
    return hasattr(values, "obs_names") and (hasattr(values, "mod") or hasattr(values, "layers"))


def modality_of(held: Iterable[str], asked: str | None) -> str | None:
    """Return which of some modalities is read; None where there are none, as in AnnData."""
    held = sorted(held)
    if asked is None and len(held) < 2:
        return held[0] if held else None
    if asked in held:
        return asked
    said = f"modality is {asked!r}, and it" if asked is not None else "it"
    if not held:
        raise InputError(f"{said} holds no modalities; leave modality out")
    raise InputError(
        f"{said} holds the modalities {', '.join(held)}; say which by modality= (--modality NAME)"
    )


def key_of(held: Iterable[str], layers: Iterable[str], layer: str | None, use_raw: bool) -> str:
    """Return where the matrix is that was asked for, of those `held`, or refuse it."""
    if layer is not None and use_raw:
        raise InputError("layer and use_raw name two matrices; give one of them")
    key = "raw/X" if use_raw else "X" if layer is None else f"layers/{layer}"
    if key in {*held, *(f"layers/{name}" for name in layers)}:
        return key
    known = ", ".join(sorted(layers)) or "none"
    if layer is not None:
        raise InputError(f"layer is {layer!r}, and the layers of it are {known}")
    if use_raw:
        raise InputError("it holds no raw values; leave use_raw (--use-raw) out")
    raise InputError(
        f"it holds no matrix X; store the values as X, or say layer= (--layer): its layers are "
        f"{known}"
    )


def matrix_in(values: Any, layer=None, use_raw=False, modality=None):
    """Return (matrix, names of rows, of columns, table of rows) of an AnnData or MuData object."""
    chosen = modality_of(getattr(values, "mod", ()), modality)
    own = values if chosen is None else values.mod[chosen]
    held = ["X"] * (own.X is not None) + ["raw/X"] * (own.raw is not None)
    layers = [name for name in own.layers if name is not None]  # that would be X
    key_of(held, layers, layer, use_raw)  # which refuses what is not there
    of_columns = own.raw if use_raw else own
    matrix = of_columns.X if layer is None else own.layers[layer]
    return matrix, list(own.obs_names), list(of_columns.var_names), own.obs


def unwrapped(values):
    """Return (values, names of rows, of columns) of what carries names beside its values."""
    if is_annotated(values):
        matrix, *names, _ = matrix_in(values)
        return (matrix.to_memory() if hasattr(matrix, "to_memory") else matrix), *names
    if hasattr(values, "dims") and hasattr(values, "coords") and hasattr(values, "indexes"):
        check_axes(values)
        sides = [
            names_of_index(values.indexes[dim]) if dim in values.indexes else None
            for dim in values.dims
        ]
        return values.to_numpy(), *sides
    return values, None, None
