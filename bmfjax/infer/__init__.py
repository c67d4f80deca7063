"""Running chains: the driver, its reducers and checkpoints, and the seam to NumPyro."""

from bmfjax.infer.ascent_start import ascent_starts
from bmfjax.infer.boolean_start import boolean_starts
from bmfjax.infer.known_solutions import known_solutions
from bmfjax.infer.mcmc.iasg import IASG
from bmfjax.infer.mcmc.nonnegative import NMFGibbs
from bmfjax.infer.mcmc.ormachine import OrMachineGibbs
from bmfjax.infer.mcmc.ratings import PMFGibbs
from bmfjax.infer.mcmc.sgmcmc import SGHMC, SGLD, AuxiliaryGibbs
from bmfjax.infer.mcmc.smc import OrMachineSMC
from bmfjax.infer.mcmc.truncated import TruncatedGibbs
from bmfjax.infer.mcmc.variants import (
    DeepOrMachineGibbs,
    EffectsGibbs,
    HammingGibbs,
    OneHotGibbs,
)
from bmfjax.infer.reducers import Reducer, histogram, moments, product_mean
from bmfjax.infer.run import ChainRun
from bmfjax.kernels.ladders import (
    Communication,
    communication_barrier,
    equalised_ladder,
    geometric_ladder,
    round_trips,
    swap_rates,
)
from bmfjax.kernels.nonnegative.replicas import behind_walls, wall_ladder
from bmfjax.kernels.smc import smc
from bmfjax.kernels.tempering import annealed, parallel_tempering

__all__ = [
    "IASG",
    "SGHMC",
    "SGLD",
    "AuxiliaryGibbs",
    "ChainRun",
    "Communication",
    "DeepOrMachineGibbs",
    "EffectsGibbs",
    "HammingGibbs",
    "NMFGibbs",
    "OneHotGibbs",
    "OrMachineGibbs",
    "OrMachineSMC",
    "PMFGibbs",
    "Reducer",
    "TruncatedGibbs",
    "annealed",
    "ascent_starts",
    "behind_walls",
    "boolean_starts",
    "communication_barrier",
    "equalised_ladder",
    "geometric_ladder",
    "histogram",
    "known_solutions",
    "moments",
    "parallel_tempering",
    "product_mean",
    "round_trips",
    "smc",
    "swap_rates",
    "wall_ladder",
]
