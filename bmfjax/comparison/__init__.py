"""Comparisons: of fits of the same data, of ranks, and with refits without some entries."""

from bmfjax.comparison.fits import Comparison, compare
from bmfjax.comparison.ranks import RankComparison, compare_ranks
from bmfjax.comparison.refits import sampling_wrapper

__all__ = ["Comparison", "RankComparison", "compare", "compare_ranks", "sampling_wrapper"]
