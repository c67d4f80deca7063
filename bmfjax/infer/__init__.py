"""Running chains: the driver, its reducers and checkpoints, and the seam to NumPyro."""

from bmfjax.infer.driver import ChainRun
from bmfjax.infer.gibbs import TruncatedGibbs
from bmfjax.infer.iasg import IASG
from bmfjax.infer.reducers import Reducer, histogram, moments, product_mean

__all__ = ["IASG", "ChainRun", "Reducer", "TruncatedGibbs", "histogram", "moments", "product_mean"]
