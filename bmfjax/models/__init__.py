"""NumPyro models, one a file."""

from bmfjax.models.relaxed import relaxed_bmf, resolve_precision, resolve_prior, resolve_rate

__all__ = ["relaxed_bmf", "resolve_precision", "resolve_prior", "resolve_rate"]
