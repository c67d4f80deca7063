"""NumPyro models, one a file."""

from bmfjax.models.bits import resolve_bits_prior
from bmfjax.models.deep_ormachine import deep_ormachine
from bmfjax.models.features import features
from bmfjax.models.flip_rate import resolve_flip_rate
from bmfjax.models.hamming_machine import hamming_machine
from bmfjax.models.logistic import logistic
from bmfjax.models.nmf import nmf, priors_by_scale, relevance_by_scale
from bmfjax.models.one_hot import one_hot_machine
from bmfjax.models.ordered_normal import OrderedNormal
from bmfjax.models.ormachine import ormachine
from bmfjax.models.ormachine_effects import ormachine_effects
from bmfjax.models.pmf import pmf, pmf_priors_by_scale
from bmfjax.models.poisson import poisson, poisson_rate_by_scale
from bmfjax.models.relaxed import relaxed_bmf, resolve_precision, resolve_prior, resolve_rate
from bmfjax.models.truncated_beta import TruncatedBeta

__all__ = [
    "OrderedNormal",
    "TruncatedBeta",
    "deep_ormachine",
    "features",
    "hamming_machine",
    "logistic",
    "nmf",
    "one_hot_machine",
    "ormachine",
    "ormachine_effects",
    "pmf",
    "pmf_priors_by_scale",
    "poisson",
    "poisson_rate_by_scale",
    "priors_by_scale",
    "relaxed_bmf",
    "relevance_by_scale",
    "resolve_bits_prior",
    "resolve_flip_rate",
    "resolve_precision",
    "resolve_prior",
    "resolve_rate",
]
