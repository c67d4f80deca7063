"""Samplers as pure functions of JAX: they know neither NumPyro nor the models.

Where a sampler has the name of its file it is imported from there, as in
``from bmfjax.kernels.ormachine import ormachine``: `ormachine`, `deep_ormachine`,
`hamming_machine`, `birth_move`, `split_merge`.
"""

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.bit_blocks import joint
from bmfjax.kernels.bit_updates import gibbs, metropolis
from bmfjax.kernels.boolean_density import BitPrior, BooleanDensity
from bmfjax.kernels.collapsed_blocks import collapsed
from bmfjax.kernels.deep_layers import DeepDensity, deep_data
from bmfjax.kernels.effects import ormachine_effects
from bmfjax.kernels.effects_density import EffectsPrior, entry_logits
from bmfjax.kernels.flip_rates import FlipRatePrior
from bmfjax.kernels.hamming_machine import HammingDensity, hamming_data
from bmfjax.kernels.iasg import Block, IASGInfo, IASGState, iasg
from bmfjax.kernels.langevin import langevin
from bmfjax.kernels.mala import reflected_mala
from bmfjax.kernels.observed_entries import observed_entries
from bmfjax.kernels.one_hot import OneHotDensity, one_hot_data, one_hot_machine
from bmfjax.kernels.packed_lines import packed_data
from bmfjax.kernels.truncated_gibbs import truncated_gibbs

__all__ = [
    "Algorithm",
    "BitPrior",
    "Block",
    "BooleanDensity",
    "DeepDensity",
    "EffectsPrior",
    "FlipRatePrior",
    "HammingDensity",
    "IASGInfo",
    "IASGState",
    "OneHotDensity",
    "collapsed",
    "deep_data",
    "entry_logits",
    "gibbs",
    "hamming_data",
    "iasg",
    "joint",
    "langevin",
    "metropolis",
    "observed_entries",
    "one_hot_data",
    "one_hot_machine",
    "ormachine_effects",
    "packed_data",
    "reflected_mala",
    "truncated_gibbs",
]
