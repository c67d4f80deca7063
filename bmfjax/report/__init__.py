"""Plots of a fit, and one self-contained HTML page. The only folder that imports matplotlib."""

from bmfjax.report.overview import overview_figure
from bmfjax.report.page import write_report

__all__ = ["overview_figure", "write_report"]
