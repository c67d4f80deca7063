"""What a zarr store says of itself, read before zarr opens it, and which of its chunks are there.

A store names the codecs that decode its chunks. One of them is pickle, which runs whatever code a
chunk holds, so that only codecs of a list are taken.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bmfjax.data.errors import InputError

#: Codecs that make numbers, texts or bytes of bytes, and do nothing else.
CODECS = (
    frozenset(["blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", "shuffle", "pcodec", "zfpy"])
    | {"adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"}
    | {"astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize"}
    | {"bytes", "endian", "transpose", "sharding_indexed"}
    | {"json2", "msgpack2", "vlen-bytes", "vlen-utf8"}
)
#: What stands before the codecs of the package numcodecs in a store of version 3.
_PREFIX = "numcodecs."
#: Files in which a store of version 2 or 3 says what it is made of.
_METADATA = (".zarray", ".zmetadata", "zarr.json")
#: What lists codecs: of version 2, of version 3, and of a codec that uses others.
_LISTS = ("compressor", "filters", "codecs", "index_codecs")


def check_store(path: Path) -> None:
    """Refuse a store that leads to other places, or that needs a codec which is not known."""
    if not path.is_dir():
        raise InputError("it is no folder; give the folder of a zarr store, unpacked")
    root = path.resolve()
    for entry in _entries(path):
        where = Path(entry.path).relative_to(path)
        if not Path(entry.path).resolve().is_relative_to(root):
            raise InputError(
                f"its {where.as_posix()!r} is a link to another place; put what it links to into "
                "the store"
            )
        if entry.name.lower() in _METADATA:
            # As bytes, so that the encoding is found as zarr finds it.
            said = json.loads(Path(entry.path).read_bytes())
            for array, codec in _codecs_of(said, where.parent.as_posix()):
                _check_codec(array, codec)


def _entries(folder) -> Iterator[os.DirEntry]:
    """Yield the metadata and the links of a folder and of those below it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)
            elif entry.is_symlink() or entry.name.lower() in _METADATA:
                yield entry
            elif not entry.is_file(follow_symlinks=False):
                raise InputError(f"its {entry.name!r} is neither a file nor a folder; delete it")


def _codecs_of(said: Any, array: str) -> Iterator[tuple[str, Any]]:
    """Yield arrays and their codecs from the description of an array, or of many."""
    if not isinstance(said, dict):
        raise InputError(f"the metadata of {array!r} is no JSON object; check what wrote the store")
    for codec in _listed(said):
        yield array, codec
    for name, item in (said.get("metadata") or {}).items():
        yield from _codecs_of(item, name)
    if said.get("consolidated_metadata"):
        yield from _codecs_of(said["consolidated_metadata"], array)


def _listed(said: dict) -> Iterator[Any]:
    """Yield the names of codecs that a description lists, those that codecs use included."""
    for key in _LISTS:
        codecs = said.get(key) or []
        for codec in codecs if isinstance(codecs, list) else [codecs]:
            if not isinstance(codec, dict):
                yield codec
                continue
            # Version 2 goes by the id and version 3 by the name; neither is above the other.
            yield from [codec[name] for name in ("id", "name") if name in codec] or [codec]
            settings = codec.get("configuration")
            if isinstance(settings, dict):
                yield from [settings["id"]] if "id" in settings else []
                yield from _listed(settings)


def _check_codec(array, codec) -> None:
    if not isinstance(codec, str) or codec.removeprefix(_PREFIX) not in CODECS:
        raise InputError(
            f"its array {array!r} is stored with the codec {str(codec)[:60]!r}, which may run code "
            "or is not known here; have it written with another, such as 'zstd' or 'vlen-utf8'"
        )


# ---- chunks -----------------------------------------------------------------------------------


def chunk_counts(array) -> tuple[int, int]:
    """Return how many chunks of an array have no file, and how many it has."""
    # Many chunks may lie in one file, a shard; within it, what is not there was never written.
    stored = getattr(array, "shards", None) or array.chunks
    number = math.prod(-(-size // length) for size, length in zip(array.shape, stored, strict=True))
    each = math.prod(s // c for s, c in zip(stored, array.chunks, strict=True))
    return number - array.nchunks_initialized // each, number
