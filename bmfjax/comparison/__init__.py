"""Comparisons: of fits of the same data, and of ranks."""

from bmfjax.comparison.fits import Comparison, compare
from bmfjax.comparison.ranks import RankComparison, compare_ranks

__all__ = ["Comparison", "RankComparison", "compare", "compare_ranks"]
