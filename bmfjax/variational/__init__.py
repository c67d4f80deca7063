"""Variational inference of the logistic model, from all entries or from sampled ones."""

from bmfjax.variational.batch import elbo, usage_given_basis
from bmfjax.variational.entry_sampling import EntrySampler, draw_entries, entry_sampler
from bmfjax.variational.posterior import LogisticPosterior, LogisticPrior
from bmfjax.variational.rounds import batch_fit, batch_start, batch_update, sign_blocks

__all__ = [
    "EntrySampler",
    "LogisticPosterior",
    "LogisticPrior",
    "batch_fit",
    "batch_start",
    "batch_update",
    "draw_entries",
    "elbo",
    "entry_sampler",
    "sign_blocks",
    "usage_given_basis",
]
