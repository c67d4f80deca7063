"""Factorise binary matrices on JAX and NumPyro, with uncertainty."""

from importlib.metadata import version

from bmfjax.data import (
    BinaryMatrix,
    InputError,
    datasets,
    generate_product,
    generate_tiles,
    load,
    save,
)

__version__ = version("bmfjax")

__all__ = [
    "BinaryMatrix",
    "InputError",
    "datasets",
    "generate_product",
    "generate_tiles",
    "load",
    "save",
]
