"""Functionals of draws: products, entries, intervals, mixtures. NumPy only."""
