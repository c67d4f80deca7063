"""Samplers as pure functions of JAX: they know neither NumPyro nor the models."""

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.iasg import Block, IASGInfo, IASGState, iasg

__all__ = ["Algorithm", "Block", "IASGInfo", "IASGState", "iasg"]
