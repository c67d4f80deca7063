"""Optimisers of factorisations: nonnegative and Boolean factors to compare samplers with.

The nonnegative and the relaxed ones are pure JAX, compiled whole; `polish` improves Boolean
factors on the host, `best_reconstruction` does so from several starts, and `trusted` keeps the
tiles that are not noise.
"""

from bmfjax.optimize.best import Reconstruction, best_reconstruction
from bmfjax.optimize.costs import regularised_error, tile_code_length
from bmfjax.optimize.palm import (
    SQUARED_ERROR,
    Factors,
    Matrix,
    Minimum,
    Palm,
    PalmState,
    Penalty,
    Smooth,
    minimise,
    palm,
)
from bmfjax.optimize.polish import Polished, polish
from bmfjax.optimize.proximal import binary_penalty, prox_binary
from bmfjax.optimize.tiling import Tiling, panpal, primp
from bmfjax.optimize.trust import Trusted, trusted

__all__ = [
    "SQUARED_ERROR",
    "Factors",
    "Matrix",
    "Minimum",
    "Palm",
    "PalmState",
    "Penalty",
    "Polished",
    "Reconstruction",
    "Smooth",
    "Tiling",
    "Trusted",
    "best_reconstruction",
    "binary_penalty",
    "minimise",
    "palm",
    "panpal",
    "polish",
    "primp",
    "prox_binary",
    "regularised_error",
    "tile_code_length",
    "trusted",
]
