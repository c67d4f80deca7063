"""The glossary of the page: each entry said once, and listed by the families that need it."""

from __future__ import annotations

from bmfjax.posterior.features import ALIKE
from bmfjax.report.section import Word
from bmfjax.verdict import RHAT_SLOW, RHAT_USABLE


def _factors(value: str, usage: str = "") -> tuple[Word, Word]:
    return (
        Word(
            "Basis",
            f"For each column and factor, {value}: how much the column belongs to the factor.",
        ),
        Word(
            "Usage", f"For each row and factor, {usage or value}: how much the row uses the factor."
        ),
    )


def _rhat(runs: str, more: str = "") -> Word:
    return Word(
        "R-hat",
        f"How much more {runs} differ from one another than each spreads. 1 is best; above "
        f"{RHAT_USABLE} the {runs} are apart, or slow.{more}",
    )


def _fit(meaning: str) -> Word:
    text = "The sum of usage times basis over the factors, plus the intercept and the effects if "
    return Word("Fit", f"{text}the model has them: {meaning}.")


# The factors, and what they say of an entry.
IN_UNIT = _factors("a value from 0 to 1")
NONNEGATIVE = _factors("a number of at least 0")
REAL = _factors("a number of either sign")
MEMBERSHIP = _factors("a number of either sign", "the probability that the row has it, from 0 to 1")
TILE = Word(
    "Tile",
    "The rectangle of entries in the rows that use a factor and the columns that belong to it.",
)
REAL_TILE = Word(
    "Real",
    "A tile is real if the matrix without noise has a factor that shares at least half of its "
    "cells with it, counted over the cells of both, and that no other factors cover. The "
    "probability is the share of draws in which that holds.",
)
HOLDS = Word(
    "Holds",
    "A factor holds, so that it can be used by its name, if at least two thirds of the chains have "
    "it: its tile in their means is at least 0.8 alike, and it is in at least half of the draws of "
    "as many chains. Where searches are counted, half of them, two at least, found it as well, or "
    "the only one that did not end far below the best. One that comes and goes in each chain is in "
    "too few draws: it may or may not be there, and says nothing against the others.",
)
EMPTY = Word(
    "Empty",
    "A factor that no row has, or no column, once it is rounded. It explains nothing, and neither "
    "holds nor says anything against the others.",
)
SEARCH = Word(
    "Search",
    "Each chain looks for a start of its own before it draws. Chains far below the best start then "
    "go on from that, and Boolean chains may jump to what others found, so that they agree. Each "
    "search has found a factor that was there where it ended by itself.",
)
REAL_FEATURE = Word(
    "Real",
    "A feature is real in a draw that has one like it: the correlation of the rows that have it, "
    f"times the cosine of the weights, is at least {ALIKE:g}. The probability is the share of such "
    "draws.",
)
FALSE_DISCOVERY_RATE = Word(
    "False discovery rate",
    "The expected share of tiles that are not real among those that are kept. The most probable "
    "tiles are kept, as many as the rate allows.",
)
RECONSTRUCTION = Word(
    "Reconstruction",
    "The product of usage and basis: what the factors say each entry is, without the noise.",
)
BOOLEAN_PRODUCT = Word(
    "Boolean product",
    "The same with yes and no: an entry is one if some factor has both its row and its column.",
)
PROBABILITY_OF_HALF = Word(
    "Probability", "The share of draws in which the reconstruction of an entry reaches one half."
)
LOG_ODDS = Word(
    "Log odds",
    "The sum over the factors of usage times basis, plus the bias and the effects: the logarithm "
    "of the probability of a one over that of a zero.",
)
PROBABILITY_OF_ONE = Word(
    "Probability",
    "That an observation of the entry is a one, averaged over the starts and over the spread of "
    "the log odds.",
)
PROBABILITY_OF_ONE_DRAWN = Word(
    "Probability",
    "That an observation of the entry is a one, averaged over the draws of the log odds.",
)
EFFECT_ON_LOG_ODDS = Word(
    "Effect", "What a row or a column adds to the log odds of a one in all of its entries."
)
CODE = Word(
    "Code",
    "The basis of a factor: ones and zeros to which the rows that use it are pulled alike.",
)
LAYER = Word(
    "Layer",
    "The first layer has the factors of the data. The factors of a layer above say which factors "
    "of the layer below occur together in a row.",
)
EFFECT = Word("Effect", "What a row or a column adds to all of its fits.")
EXPECTED_ENTRY = _fit("the expected entry")
BEHIND_PROBIT = _fit(
    "in standard deviations of the noise, the number that thresholds turn into the entry"
)
CUT_POINTS = Word("Cut points", "Where one star gives way to the next on the scale of the fits.")
NOISE = Word(
    "Noise",
    "What the product leaves of the data: normal, with one standard deviation for all entries.",
)
MISSING = Word(
    "Missing", "An entry that was not observed. It has no say in the fit, which predicts it."
)

#: What is said of the spread of effects on log odds of rows, and of columns.
OWN_LOG_ODDS = "standard deviation of the log odds that {}s have of their own"

# The draws.
SOLUTION = Word(
    "Solution",
    "Factors whose product fits the data. A nonnegative matrix may have several, and a chain may "
    "pass between them.",
)
START = Word(
    "Start",
    "An optimisation from random factors of its own. Its result approximates the posterior near "
    "one solution by independent normals.",
)
STANDARD_DEVIATION = Word(
    "Standard deviation", "That of the approximation, which is usually narrower than the posterior."
)
CLAMPED = Word(
    "Clamped",
    "A coordinate that a step would carry outside 0 to 1 is held at the bound. The more are held, "
    "the rougher the standard deviations.",
)
RHAT_OF_STARTS = _rhat("starts")
RHAT = _rhat(
    "chains",
    f" Where all chains found the same factors, these hold up to {RHAT_SLOW} of the log joint "
    "density, which may be slow. Single entries of a reliable fit may have more: of these the "
    "verdict asks how far chains are apart in their predictions, and how exact predictions are.",
)
EFFECTIVE_DRAWS = Word(
    "Effective draws",
    "How many independent draws would be as informative as the draws at hand, which resemble their "
    "predecessors.",
)
