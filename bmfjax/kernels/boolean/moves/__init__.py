"""Metropolis-Hastings moves between modes of the Boolean model."""
