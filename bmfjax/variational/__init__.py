"""Stochastic variational inference, from sampled entries."""

from bmfjax.variational.entry_sampling import EntrySampler, draw_entries, entry_sampler
from bmfjax.variational.logistic_batch import batch_fit, batch_update, elbo, usage_given_basis
from bmfjax.variational.logistic_posterior import LogisticPosterior, LogisticPrior

__all__ = [
    "EntrySampler",
    "LogisticPosterior",
    "LogisticPrior",
    "batch_fit",
    "batch_update",
    "draw_entries",
    "elbo",
    "entry_sampler",
    "usage_given_basis",
]
