"""Optimisers of factorisations, pure JAX: `init` and `update` pairs and what runs them."""

from bmfjax.optimize.nmf import multiplicative_updates, projected_gradient

__all__ = ["multiplicative_updates", "projected_gradient"]
