"""Samplers as pure functions of JAX: they know neither NumPyro nor the models."""

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.boolean.bits import gibbs, joint, metropolis
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import ormachine
from bmfjax.kernels.boolean.moves.birth import birth_move
from bmfjax.kernels.boolean.moves.collapsed_line import collapsed
from bmfjax.kernels.boolean.moves.rebirth import rebirth
from bmfjax.kernels.boolean.moves.split_merge import split_merge
from bmfjax.kernels.boolean.words import packed_data
from bmfjax.kernels.relaxed.gibbs import truncated_gibbs
from bmfjax.kernels.sgmcmc.iasg import Block, IASGInfo, IASGState, iasg
from bmfjax.kernels.sgmcmc.langevin import langevin
from bmfjax.kernels.variants.deep import DeepDensity, deep_data, deep_ormachine
from bmfjax.kernels.variants.effects import EffectsPrior, entry_logits, ormachine_effects
from bmfjax.kernels.variants.hamming import HammingDensity, hamming_data, hamming_machine
from bmfjax.kernels.variants.observed_entries import observed_entries
from bmfjax.kernels.variants.one_hot import OneHotDensity, one_hot_data, one_hot_machine

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
    "birth_move",
    "collapsed",
    "deep_data",
    "deep_ormachine",
    "entry_logits",
    "gibbs",
    "hamming_data",
    "hamming_machine",
    "iasg",
    "joint",
    "langevin",
    "metropolis",
    "observed_entries",
    "one_hot_data",
    "one_hot_machine",
    "ormachine",
    "ormachine_effects",
    "packed_data",
    "rebirth",
    "split_merge",
    "truncated_gibbs",
]
