"""Running chains: the driver, its reducers and checkpoints, and the seam to NumPyro."""

from bmfjax.infer.boolean_start import boolean_starts
from bmfjax.infer.driver import ChainRun
from bmfjax.infer.gibbs import TruncatedGibbs
from bmfjax.infer.iasg import IASG
from bmfjax.infer.ladder import geometric_ladder, round_trips, swap_rates
from bmfjax.infer.nmf import NMFGibbs
from bmfjax.infer.ormachine import OrMachineGibbs
from bmfjax.infer.pmf import PMFGibbs
from bmfjax.infer.reducers import Reducer, histogram, moments, product_mean
from bmfjax.infer.tempering import annealed, parallel_tempering
from bmfjax.infer.walls import behind_walls, wall_ladder

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
