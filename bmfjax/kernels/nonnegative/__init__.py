"""Nonnegative factors: moves along and between solutions, and tempering of the constraint."""
