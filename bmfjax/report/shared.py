"""Facts, words and sections that the pages of several families share."""

from __future__ import annotations

from bmfjax.report import facts, words

SAMPLING = (facts.data, facts.given_new, facts.known, facts.draws, facts.seconds)
DRAWS = (words.RHAT, words.EFFECTIVE_DRAWS, words.MISSING)
SIGNED_BARS = (
    "The bar is the posterior mean of a column's value, against the largest of the factor, "
    "followed by its standard deviation; blue is above zero, red below, and grey less than two "
    "standard deviations from it. Signs of a factor's rows and columns may be exchanged together."
)
