"""Factorise binary matrices on JAX and NumPyro, with uncertainty."""

from importlib.metadata import version

from bmfjax import models
from bmfjax.data import (
    BinaryMatrix,
    InputError,
    Ratings,
    RealMatrix,
    datasets,
    generate_product,
    generate_tiles,
    load,
    load_ratings,
    save,
)
from bmfjax.fit import fit
from bmfjax.infer import IASG, NMFGibbs, OrMachineGibbs, PMFGibbs, TruncatedGibbs
from bmfjax.infer.mcmc.to_arviz import to_arviz
from bmfjax.result import Fit

__version__ = version("bmfjax")

__all__ = [
    "IASG",
    "BinaryMatrix",
    "Fit",
    "InputError",
    "NMFGibbs",
    "OrMachineGibbs",
    "PMFGibbs",
    "Ratings",
    "RealMatrix",
    "TruncatedGibbs",
    "datasets",
    "fit",
    "generate_product",
    "generate_tiles",
    "load",
    "load_ratings",
    "models",
    "save",
    "to_arviz",
]
