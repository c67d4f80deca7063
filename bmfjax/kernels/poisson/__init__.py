"""Sampling of factorisations of counts."""
