"""Whether to trust a fit: what its figures say of predictions, factors and their number."""

from bmfjax.verdict.entries import (
    MAX_LINES,
    NUM_DRAWS,
    NUM_ENTRIES,
    UNSEEN,
    Mixing,
    farther_spread,
    mixing,
    mixing_of_entries,
    mixing_of_starts,
    spread,
)
from bmfjax.verdict.factors import Factors, factors_differ
from bmfjax.verdict.figures import Figures
from bmfjax.verdict.judging import (
    AT_BOUND,
    number_agreeing,
    of_chains,
    of_rank,
    of_ratings,
    of_starts,
    rank_text,
    with_bound,
    with_fit,
    with_short_warmup,
)
from bmfjax.verdict.number import Number
from bmfjax.verdict.part import (
    ESS_PER_CHAIN,
    RHAT_GOOD,
    RHAT_SLOW,
    RHAT_USABLE,
    TIGHT,
    WIDE,
    Bounds,
    Holds,
    Part,
)
from bmfjax.verdict.predictions import Predictions
from bmfjax.verdict.record import (
    Status,
    Verdict,
    agrees,
    fewest_draws,
    status_of,
    suffices,
)
from bmfjax.verdict.remedies import Tried

__all__ = [
    "AT_BOUND",
    "ESS_PER_CHAIN",
    "MAX_LINES",
    "NUM_DRAWS",
    "NUM_ENTRIES",
    "RHAT_GOOD",
    "RHAT_SLOW",
    "RHAT_USABLE",
    "TIGHT",
    "UNSEEN",
    "WIDE",
    "Bounds",
    "Factors",
    "Figures",
    "Holds",
    "Mixing",
    "Number",
    "Part",
    "Predictions",
    "Status",
    "Tried",
    "Verdict",
    "agrees",
    "factors_differ",
    "farther_spread",
    "fewest_draws",
    "mixing",
    "mixing_of_entries",
    "mixing_of_starts",
    "number_agreeing",
    "of_chains",
    "of_rank",
    "of_ratings",
    "of_starts",
    "rank_text",
    "spread",
    "status_of",
    "suffices",
    "with_bound",
    "with_fit",
    "with_short_warmup",
]
