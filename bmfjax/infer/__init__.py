"""Running chains: the driver, its reducers and checkpoints, and the seam to NumPyro."""

from bmfjax.infer.driver import ChainRun
from bmfjax.infer.gibbs import TruncatedGibbs
from bmfjax.infer.iasg import IASG
from bmfjax.infer.reducers import Reducer, histogram, moments, product_mean
from bmfjax.infer.tempering import (
    annealed,
    geometric_ladder,
    parallel_tempering,
    round_trips,
    swap_rates,
)

__all__ = [
    "IASG",
    "ChainRun",
    "Reducer",
    "TruncatedGibbs",
    "annealed",
    "geometric_ladder",
    "histogram",
    "moments",
    "parallel_tempering",
    "product_mean",
    "round_trips",
    "swap_rates",
]
