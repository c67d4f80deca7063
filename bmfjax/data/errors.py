"""`InputError`, for the rooms of the package; its home loads nothing else."""

from bmfjax.errors import InputError

__all__ = ["InputError"]
