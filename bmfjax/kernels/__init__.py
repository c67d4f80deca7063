"""Samplers as pure functions of JAX: they know neither NumPyro nor the models."""

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.iasg import Block, IASGInfo, IASGState, iasg
from bmfjax.kernels.langevin import langevin
from bmfjax.kernels.mala import reflected_mala
from bmfjax.kernels.truncated_gibbs import truncated_gibbs

__all__ = [
    "Algorithm",
    "Block",
    "IASGInfo",
    "IASGState",
    "iasg",
    "langevin",
    "reflected_mala",
    "truncated_gibbs",
]
