"""What a fit returns: a class for what every fit has, and mixins for what some have."""

from bmfjax.result.fit import Fit
from bmfjax.result.modes import ModesMixin
from bmfjax.result.ones import OnesMixin, RowsMixin
from bmfjax.result.predictions import PREDICTED
from bmfjax.result.tiles import RoundedMixin, TilesMixin

__all__ = ["PREDICTED", "Fit", "ModesMixin", "OnesMixin", "RoundedMixin", "RowsMixin", "TilesMixin"]
