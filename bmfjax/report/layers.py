"""The layers above the first: which factors of the layer below their factors join."""

from __future__ import annotations

import pandas as pd

from bmfjax.report.section import Section, section, table

#: Factors below are named from this probability on.
JOINED = 0.5


def layers_section(fit) -> Section:
    """Show a line for each factor of the layers above the first."""
    return section(
        "Layers",
        "A factor of a layer above joins factors of the layer below: a row that uses it uses "
        "all of them, but for flips. The numbers in brackets are probabilities. Factors of the "
        "first layer are those above.",
        table(layers_table(fit)),
    )


def layers_table(fit) -> pd.DataFrame:
    """Return a line for each factor of the layers above the first."""
    lines = []
    for number in range(2, len(fit.ranks) + 1):
        one = fit.layer(number)
        for k in range(one.basis.shape[1]):
            joined = [f"{b + 1} ({p:.2f})" for b, p in enumerate(one.basis[:, k]) if p >= JOINED]
            lines.append(
                {
                    "layer": number,
                    "factor": k + 1,
                    "joins factors of the layer below": ", ".join(joined) or "none",
                    "rows": int((one.usage[:, k] >= JOINED).sum()),
                }
            )
    return pd.DataFrame(lines).set_index("layer")
