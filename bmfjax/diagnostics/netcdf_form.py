"""Check what HDF5 takes on trust in a netCDF file: before h5netcdf or xarray opens it.

The high-level functions of HDF5 read the attributes of dimension scales into buffers that have the
size which the standard gives them. Where an attribute is larger they write beyond the buffer, and
the process ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bmfjax.data.errors import InputError

#: Attributes of one text each by which a dimension scale is known.
SCALE_TEXTS = ("CLASS", "NAME")
SIGNATURE = b"\x89HDF\r\n\x1a\n"


def check_netcdf(path: Path) -> int:
    """Refuse a file that could make HDF5 crash, or read other files.

    Return the bytes that its variables have in memory, as the file declares them.
    """
    import h5py

    with open(path, "rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            raise InputError("it is no HDF5 file")
    with h5py.File(path, "r") as file:
        total = 0
        for name, variable in _variables(file, h5py):
            if variable.external or variable.is_virtual:
                raise InputError(f"its variable {name!r} keeps its values in another file")
            _check_scales(file, name, variable, h5py)
            total += math.prod(variable.shape or ()) * variable.dtype.itemsize
    return total


def _variables(file: Any, h5py: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of all groups by name; a group that is within itself is refused."""
    waiting, seen = [file], set()
    while waiting:
        group = waiting.pop()
        place = h5py.h5o.get_info(group.id).addr
        if place in seen:
            raise InputError(f"its group {group.name!r} is there twice")
        seen.add(place)
        for name in group:
            where = f"{group.name.rstrip('/')}/{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise InputError(f"{where!r} is a link to elsewhere")
            found = group[name]
            if isinstance(found, h5py.Group):
                waiting.append(found)
            elif isinstance(found, h5py.Dataset):
                yield where, found


def _check_scales(file: Any, name: str, variable: Any, h5py: Any) -> None:
    """Compare the attributes that tie a variable to its dimensions with its number of axes."""
    axes = (len(variable.shape or ()),)
    attributes = variable.attrs
    wrong = InputError(f"its variable {name!r} has dimensions that do not fit its axes")
    for key in SCALE_TEXTS:
        if key in attributes and not _is_text(attributes.get_id(key)):
            raise wrong
    if "DIMENSION_LABELS" in attributes:
        labels = attributes.get_id("DIMENSION_LABELS")
        text = h5py.check_string_dtype(labels.dtype)
        if labels.shape != axes or text is None or text.length is not None:
            raise wrong
    if "DIMENSION_LIST" not in attributes:
        return
    scales = attributes.get_id("DIMENSION_LIST")
    kind = h5py.check_vlen_dtype(scales.dtype)
    if scales.shape != axes or kind is None or h5py.check_ref_dtype(kind) is not h5py.Reference:
        raise wrong
    for of_axis in attributes["DIMENSION_LIST"]:
        for reference in of_axis:
            scale = file[reference] if reference else None
            if not isinstance(scale, h5py.Dataset) or not h5py.h5ds.is_scale(scale.id):
                raise wrong


def _is_text(attribute: Any) -> bool:
    """Say whether an attribute is one text of a fixed length."""
    return attribute.shape == () and attribute.dtype.kind == "S"
