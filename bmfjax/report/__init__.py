"""One self-contained HTML page about a fit. The only folder that imports matplotlib."""

from bmfjax.report.page import write_page, write_report
from bmfjax.report.section import Page

__all__ = ["Page", "write_page", "write_report"]
