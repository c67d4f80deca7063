"""The whole way for a user who wants an answer: `fit`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bmfjax.job import prepare
from bmfjax.result import Fit


def fit(
    data: Any,
    rank: int,
    *,
    model: str = "ormachine",
    sampler: str | None = None,
    priors: Any = None,
    init: Mapping | None = None,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 3000,
    max_time: float | None = None,
    seed: int = 0,
    progress: bool = True,
    sampler_options: Mapping | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
) -> Fit:
    """Factorise a binary or nonnegative matrix, or ratings, with all uncertainty.

    Parameters
    ----------
    data : BinaryMatrix, Ratings, RealMatrix, array, scipy.sparse matrix, DataFrame, or str
        The matrix: 0, 1 and missing (NaN). A str is a shipped name or a path for
        `bmfjax.load`. For "nmf" numbers of any size: a `RealMatrix`, an array, or a path for
        `bmfjax.data.load_real`. For "pmf" and "ordered-probit" any numbers: `Ratings` of
        single cells, a path for `bmfjax.load_ratings`, or a `RealMatrix` or array, NaN where
        missing.
    rank : int
        Number of factors, at most the smaller side of the matrix.
    model : {"ormachine", "relaxed", "logistic", "nmf", "pmf", "probit", "ordered-probit"}
        "ormachine" (default): Boolean factors, whose Boolean product is observed with
        flips (Rukat, Holmes, Titsias, Yau 2017), see `bmfjax.models.ormachine`.
        "relaxed": factors in [0, 1], Gaussian likelihood (Gonsior 2019, equation
        3.2), see `bmfjax.models.relaxed_bmf`. "logistic": real factors, whose product
        is the log odds of a one (Hernandez-Lobato, Houlsby, Ghahramani 2014), see
        `bmfjax.models.logistic`; for large sparse matrices and rankings of their zeros.
        "nmf": nonnegative factors with exponential priors and normal noise (Schmidt, Winther,
        Hansen 2009), see `bmfjax.models.nmf`.
        "pmf": ratings with normal noise, real factors whose mean and precision matrix are
        learned, and effects of rows and columns (Salakhutdinov, Mnih 2008); "probit" and
        "ordered-probit" the same behind a probit for ones and zeros, and for stars (Albert,
        Chib 1993), see `bmfjax.models.pmf`. Their cost grows with the observed cells.
    sampler : {"gibbs", "iasg", "thesis", "svi", "batch"}, optional
        "gibbs" (default): exact, for the Boolean model on packed words
        (`OrMachineGibbs`), for the relaxed one by truncated normal conditionals,
        annealed in the first half of the warm-up (`TruncatedGibbs`). For the relaxed
        model also "iasg": iterate averaging stochastic gradient with curvature and a
        learned noise; "thesis": the same as published. The latter two are approximate.
        The nonnegative model by `NMFGibbs`, annealed likewise, ratings by `PMFGibbs`, both exact.
        The logistic model is inferred by mean-field variational inference, approximate
        as well. "batch" looks at all entries in every step, in blocks of rows: one byte of
        memory an entry beside what grows with rows + columns, three while the matrix is
        unpacked. "svi" looks at random entries, and its memory and time grow with rows +
        columns and the ones. The default is "batch" for up to 100 million entries, where it
        reaches better bounds and predictions for its time, and "svi" above.
    priors : mapping, or prior of the factors' entries, optional
        Boolean model: any of `usage`, `basis` (a `numpyro.distributions.Beta`, the prior
        of every factor's density, default Beta(1, 1); a number, their fixed density; or
        an array of the probability of every bit, 0 and 1 fix it), `flip_rate` (a Beta
        prior, or a number or pair that fixes it; default Beta(1, 1), truncated to [0,
        1/2]) and `num_rates` (1, or 2 for flip rates of zeros and ones of their own).
        Relaxed model: `usage` and `basis`, each "uniform" (default), "normal",
        "laplace", "beta", "ard" or a NumPyro distribution on [0, 1] (see
        `bmfjax.models.relaxed_bmf`), `precision` (a number fixes the noise precision;
        default a Gamma(1, 1) prior; for "thesis" fixed at 1) and `rate` (Gamma prior of
        the rates of "ard"). Logistic model: `scale` and `bias_scale` (standard deviations
        of factors and effects, and of the bias; default 1 and 5), `row_effects` and
        `column_effects` (bool, default False). "nmf": `usage_rate` and `basis_rate` of the
        exponential priors and `precision` (a number fixes it, a distribution is its prior); by
        default as `bmfjax.models.priors_by_scale` has them. "pmf" and the probit models:
        `effects` (bool, default True), `strength`, `degrees` and `scale` of the Normal-Wishart
        prior (2, the rank, 1), `effect_gamma` (shape and rate of the prior of the effects'
        precisions; 1 and 1), `level` (mean and standard deviation of a normal prior: of the
        intercept of "pmf", by default the mean of the values and 10; of the intercept of "probit",
        0 and 1; of every cut point of "ordered-probit" before they are put in order, 0 and 2), and
        of "pmf" `precision` (fixes the noise precision; 2 in the paper) or `precision_gamma` (1 and
        1); they suit values that spread by about one, as stars do.
    init : mapping, optional
        Where every chain starts: `usage` (rows, rank) and `basis` (columns, rank), bits
        for the Boolean model. Noise and densities then start where they fit them, and
        nothing is annealed. Default: draws from the prior, annealed in the first half of the
        warm-up; for the Boolean model beyond small matrices, factors that an annealed
        relaxed model finds from a random start of each chain's own
        (`bmfjax.infer.boolean_starts`); for the logistic model, small random factors.
    num_chains, num_warmup, num_samples : int
        Independent chains; steps before draws count; draws of each chain. Of the logistic
        model: starts, over which probabilities and predictions average (4 by default); the
        most steps of optimisation, which ends when the bounds of all starts have settled
        (their mean over 20 steps changes by less than 0.0002 of its size with "batch", and
        0.00005 with "svi", from that over the 20 steps before); draws from the approximate
        posterior, of which at most 250 of each start are made.
    max_time : float, optional
        Seconds of sampling after which to stop with what there is. The logistic model then
        draws from what its optimisation has reached, and the verdict says so.
    seed : int
        The draws depend on it, the data, and the options that change draws; on one
        CPU bit for bit.
    progress : bool
        Show a progress bar on standard error.
    sampler_options : mapping, optional
        Further options of the sampler (see `OrMachineGibbs`, `TruncatedGibbs`, `NMFGibbs` and
        `IASG`), such as ``{"update": "joint"}`` or ``{"batch_size": 64}``. The Boolean
        sampler sums the longer factor matrix out at four temperatures where entries times
        4^rank are at most 2^22; its `moves` are ("collapsed",) for up to 2^17 entries,
        ("birth",) for up to 2^24, and none beyond, unless they are given. Of "svi":
        `sampling` ("biased", "balanced" or "uniform", see
        `bmfjax.variational.entry_sampler`) and `step_entries`, drawn in a step (default 4
        for each row and column, rounded up to multiples of 4096).
    checkpoint : path, optional
        Folder in which the run is stored every ten seconds and when it stops, with the checkpoint
        before that.
    resume : bool
        Continue from `checkpoint`: the draws are those of an unbroken run. If the newest
        checkpoint is damaged, a warning says so and the run continues from the one before it.

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        For bad data or options (a ValueError).
    FloatingPointError
        Where the sampler leaves the finite numbers.

    Notes
    -----
    The Boolean model keeps the matrix as packed words, both ways round: a quarter of a
    byte an entry, half where entries are missing. Missing entries are left out of every
    likelihood.

    Ctrl-C stops after the steps that run, about half a second; draws taken so far make the
    result. With fewer than four of each chain, KeyboardInterrupt is raised, after the checkpoint
    is written.

    SIGTERM, by which clusters end a job, stops likewise while chains run in the main thread. The
    checkpoint is written, no result is made, and SystemExit(143) is raised. A handler of your own
    is called instead; if it returns, the fit ends as after Ctrl-C. Before and after the sampling,
    and in other threads, SIGTERM does what it does without `fit`.

    A complete run keeps up to 250 evenly spaced draws of each chain (500 of Boolean factors), fewer
    if they are large. Until then draws are kept at smaller intervals, so that a run that was
    stopped early has enough of them; ``scalars["thinning"]`` is the interval that was used.

    Examples
    --------
    >>> import bmfjax, numpy as np
    >>> fit = bmfjax.fit(
    ...     np.kron(np.eye(2), np.ones((8, 5))),
    ...     rank=2,
    ...     num_chains=2,
    ...     num_warmup=300,
    ...     num_samples=200,
    ...     progress=False,
    ... )
    >>> fit.summary()[["rows", "columns"]].to_numpy().tolist()
    [[8, 5], [8, 5]]
    """
    job = prepare(
        data,
        rank,
        model=model,
        sampler=sampler,
        priors=priors,
        init=init,
        num_chains=num_chains,
        num_warmup=num_warmup,
        num_samples=num_samples,
        seed=seed,
        sampler_options=sampler_options,
    )
    return job.finish(max_time=max_time, progress=progress, checkpoint=checkpoint, resume=resume)
