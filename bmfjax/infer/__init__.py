"""Running chains: the driver, its reducers and checkpoints, and the seam to NumPyro."""

from bmfjax.infer.boolean_start import boolean_starts
from bmfjax.infer.mcmc.iasg import IASG
from bmfjax.infer.mcmc.nonnegative import NMFGibbs
from bmfjax.infer.mcmc.ormachine import OrMachineGibbs
from bmfjax.infer.mcmc.ratings import PMFGibbs
from bmfjax.infer.mcmc.truncated import TruncatedGibbs
from bmfjax.infer.reducers import Reducer, histogram, moments, product_mean
from bmfjax.infer.run import ChainRun
from bmfjax.kernels.nonnegative.replicas import behind_walls, wall_ladder
from bmfjax.kernels.tempering import (
    annealed,
    geometric_ladder,
    parallel_tempering,
    round_trips,
    swap_rates,
)

__all__ = [
    "IASG",
    "ChainRun",
    "NMFGibbs",
    "OrMachineGibbs",
    "PMFGibbs",
    "Reducer",
    "TruncatedGibbs",
    "annealed",
    "behind_walls",
    "boolean_starts",
    "geometric_ladder",
    "histogram",
    "moments",
    "parallel_tempering",
    "product_mean",
    "round_trips",
    "swap_rates",
    "wall_ladder",
]
