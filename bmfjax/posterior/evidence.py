r"""The evidence of a model: estimates of independent runs combined, and what it says of ranks.

Sequential Monte Carlo estimates :math:`Z = p(D)` almost without bias in every run (exactly so at
fixed temperatures and without exchanges), and its logarithm with one, so that runs are averaged
before the logarithm is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from bmfjax.data.errors import InputError

#: Standard error up to which an evidence distinguishes ranks: a factor of 1.6 in the odds.
USEFUL = 0.5
#: Ends of the names under which a fit keeps what it knows of every run.
EVIDENCE_OF_RUNS = ("runs", "run_errors")


class LogEvidence(NamedTuple):
    """The log evidence of a model, from independent runs."""

    value: float
    error: float  # standard error
    runs: np.ndarray  # (run,) float64: the estimate of every run
    run_errors: np.ndarray  # (run,) float64: the standard error that every run knows of itself

    @property
    def sentence(self) -> str:
        """Say what it is, and what to do where it is not known well."""
        text = f"Log evidence {self.value:,.2f}, standard error {self.error:.2f}"
        if self.error <= USEFUL:
            return f"{text}."
        if len(self.runs) > 1:
            text += f", of runs from {self.runs.min():,.1f} to {self.runs.max():,.1f}"
        return f"{text}: too far apart to compare ranks; take more particles (num_particles)."

    def scalars(self) -> dict:
        """Return plain numbers, as a fit keeps them."""
        of_runs = (self.runs.tolist(), self.run_errors.tolist())
        named = zip(EVIDENCE_OF_RUNS, of_runs, strict=True)
        whole = {"log_evidence": self.value, "log_evidence_error": self.error}
        return whole | {f"log_evidence_{name}": values for name, values in named}


class RankProbabilities(NamedTuple):
    """Posterior probabilities of ranks."""

    probability: np.ndarray  # (rank,) float64
    error: np.ndarray  # (rank,) float64: standard errors


def combined_evidence(runs: Sequence[float], errors: Sequence[float]) -> LogEvidence:
    r"""Combine the log evidences that independent runs estimate.

    The value is :math:`\log \frac{1}{R} \sum_r \hat Z_r`. Its standard error is the larger of two:
    the jackknife over runs, and what the runs know of their own errors :math:`s_r`,
    :math:`(\sum_r w_r^2 s_r^2)^{1/2}` with the weights :math:`w_r = \hat Z_r / \sum_q \hat Z_q`.
    A run that missed a mode does not know it, and the jackknife sees it if another run did not.

    `errors` are those that each run estimates.

    References
    ----------
    Efron, Stein (1981), "The jackknife estimate of variance", Annals of Statistics 9(3).

    Examples
    --------
    >>> found = combined_evidence([-100.2, -100.0, -99.9, -100.1], [0.1, 0.1, 0.1, 0.1])
    >>> round(found.value, 2), round(found.error, 2)
    (-100.04, 0.06)
    """
    runs, errors = (np.asarray(a, np.float64) for a in (runs, errors))
    if runs.ndim != 1 or not len(runs) or runs.shape != errors.shape:
        raise InputError(f"{runs.size} runs have {errors.size} errors; give one each a run")
    if not (np.isfinite(runs).all() and np.isfinite(errors).all()):
        raise InputError("a log evidence or an error is not finite; give numbers")
    number = len(runs)
    value = logsumexp(runs) - np.log(number)
    own = np.sqrt(np.sum((softmax(runs) * errors) ** 2))
    spread = 0.0
    if number > 1:
        others = np.array([logsumexp(np.delete(runs, r)) for r in range(number)])
        spread = np.sqrt((number - 1) / number * np.sum((others - others.mean()) ** 2))
    return LogEvidence(float(value), float(max(own, spread)), runs, errors)


def rank_probabilities(
    log_evidence: Sequence[float], error: Sequence[float], prior: Sequence[float] | None = None
) -> RankProbabilities:
    r"""Return the posterior probabilities of ranks from their log evidences.

    .. math:: P(r \mid D) = \frac{\pi_r Z_r}{\sum_q \pi_q Z_q},

    with standard errors by the delta method from those of the :math:`\log Z_r`. They are of use
    below about one half; where an evidence is known no better than that, nor are probabilities.

    `prior` is :math:`\pi` up to a constant; by default all ranks are alike.

    Examples
    --------
    >>> found = rank_probabilities([-110.0, -101.0, -100.0], [0.1, 0.1, 0.1])
    >>> found.probability.round(2).tolist(), found.error.round(2).tolist()
    ([0.0, 0.27, 0.73], [0.0, 0.03, 0.03])
    """
    value, error = (np.asarray(a, np.float64) for a in (log_evidence, error))
    weight = np.ones_like(value) if prior is None else np.asarray(prior, np.float64)
    if value.ndim != 1 or not len(value) or not value.shape == error.shape == weight.shape:
        raise InputError(
            f"there are {value.size} log evidences, {error.size} errors and {weight.size} prior "
            "probabilities; give one each a rank"
        )
    if not (np.isfinite(value).all() and (error >= 0).all() and (weight > 0).all()):
        raise InputError(
            "a log evidence is not finite, an error negative, or a prior probability not positive; "
            "give such numbers"
        )
    chance = softmax(value + np.log(weight))
    # dP_r / d log Z_q = P_r ([r = q] - P_q)
    slope = chance[:, None] * (np.eye(len(chance)) - chance)
    return RankProbabilities(chance, np.sqrt((slope**2) @ error**2))
