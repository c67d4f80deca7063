"""Variants of the Boolean model: layers, Hamming scores, one-hot factors, effects."""
