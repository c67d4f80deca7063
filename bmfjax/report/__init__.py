"""One self-contained HTML page about a fit, and a fit for other programs.

The only folder that imports matplotlib.
"""

from bmfjax.report.page import write_report

__all__ = ["write_report"]
