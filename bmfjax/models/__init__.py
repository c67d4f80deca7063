"""NumPyro models, one a file."""

from bmfjax.models.relaxed import relaxed_bmf, resolve_precision, resolve_prior

__all__ = ["relaxed_bmf", "resolve_precision", "resolve_prior"]
