"""``python -m bmfjax``."""

from bmfjax.cli import run

run()
