"""Arrays of draws in, arrays of diagnostics out: alignment, convergence, binarisation, ArviZ."""

from bmfjax.diagnostics.align import (
    Alignment,
    SignedOrder,
    TurnedOrder,
    agreement,
    align,
    align_signed,
    align_turned,
    apply_permutation,
    share_agreeing,
)
from bmfjax.diagnostics.arviz import (
    group,
    load_netcdf,
    posterior_dataset,
    save_netcdf,
    summary,
    to_inference_data,
)
from bmfjax.diagnostics.binarize import (
    Binarized,
    binarize,
    expected_hamming_factors,
    expected_loss,
    factor_thresholds,
)
from bmfjax.diagnostics.calibration import geweke_scores, rank_statistics, rank_uniformity
from bmfjax.diagnostics.convergence import (
    ess_bulk,
    ess_tail,
    integrated_time,
    is_constant,
    mcse_mean,
    nested_rhat,
    split_rhat,
    summarise,
)
from bmfjax.diagnostics.coverage import Coverage, coverage, covering_number, pairwise_distances
from bmfjax.diagnostics.leave_one_out import LeaveOneOut, leave_one_out, stacking_weights
from bmfjax.diagnostics.most_probable import MostProbable, most_probable_factors
from bmfjax.diagnostics.nmf_problems import NMFProblem, embedded, laurberg, solution_line
from bmfjax.diagnostics.ranking import prediction_scores, ranking_scores, recall_at
from bmfjax.diagnostics.reconstruction import boolean_errors, boolean_product
from bmfjax.diagnostics.threshold import (
    Threshold,
    ThresholdPair,
    oracle_threshold,
    threshold,
    threshold_pairs,
)
from bmfjax.diagnostics.trust import density_bound, noise_rates, select_tiles

__all__ = [
    "Alignment",
    "Binarized",
    "Coverage",
    "LeaveOneOut",
    "MostProbable",
    "NMFProblem",
    "SignedOrder",
    "Threshold",
    "ThresholdPair",
    "TurnedOrder",
    "agreement",
    "align",
    "align_signed",
    "align_turned",
    "apply_permutation",
    "binarize",
    "boolean_errors",
    "boolean_product",
    "coverage",
    "covering_number",
    "density_bound",
    "embedded",
    "ess_bulk",
    "ess_tail",
    "expected_hamming_factors",
    "expected_loss",
    "factor_thresholds",
    "geweke_scores",
    "group",
    "integrated_time",
    "is_constant",
    "laurberg",
    "leave_one_out",
    "load_netcdf",
    "mcse_mean",
    "most_probable_factors",
    "nested_rhat",
    "noise_rates",
    "oracle_threshold",
    "pairwise_distances",
    "posterior_dataset",
    "prediction_scores",
    "rank_statistics",
    "rank_uniformity",
    "ranking_scores",
    "recall_at",
    "save_netcdf",
    "select_tiles",
    "share_agreeing",
    "solution_line",
    "split_rhat",
    "stacking_weights",
    "summarise",
    "summary",
    "threshold",
    "threshold_pairs",
    "to_inference_data",
]
