"""The whole way for a user who wants an answer: `fit`."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from bmfjax.families import FAMILIES, ask
from bmfjax.families.apart import check_apart, merge, place_of
from bmfjax.families.base import AUTO
from bmfjax.families.sampling import finish
from bmfjax.result import Fit

__all__ = ["Fit", "fit", "merge"]


def fit(
    data: Any,
    rank: int | str,
    *,
    model: str = "ormachine",
    sampler: str | None = None,
    priors: Any = None,
    init: Mapping | None = None,
    num_chains: int = 4,
    num_warmup: int | str = AUTO,
    num_samples: int | str = AUTO,
    max_time: float | None = None,
    seed: int = 0,
    progress: bool = True,
    sampler_options: Mapping | None = None,
    max_rank: int | None = None,
    anchors: Any = None,
    row_attributes: Any = None,
    column_attributes: Any = None,
    chains: Sequence[int] | None = None,
    mesh: Mesh | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
) -> Fit:
    """Factorise a binary or nonnegative matrix, or ratings, with all uncertainty.

    Parameters
    ----------
    data : BinaryMatrix, Ratings, RealMatrix, array, scipy.sparse matrix, DataFrame, or str
        The matrix: 0, 1 and missing (NaN). A str is a shipped name or a path for
        `bmfjax.load`. For "nmf" numbers of any size: a `RealMatrix`, an array or sparse matrix,
        or a path for `bmfjax.data.load_real`. What a sparse matrix does not store is 0; a large
        one stays sparse in the Boolean and the logistic models, and in "relaxed" and "nmf" with
        sampler "gibbs". For "pmf" and "ordered-probit" any numbers: `Ratings` of
        single cells, a path for `bmfjax.load_ratings`, or a `RealMatrix` or array, NaN where
        missing.
    rank : int or "auto"
        Number of factors, at most the smaller side of the matrix. "auto", with sampler "gibbs" (of
        the logistic model "batch" or "svi"), not of variants of the Boolean model: the number is
        found, at most `max_rank`.
        `Fit.rank_probabilities` is the posterior, with an R-hat that counts in the verdict (of the
        logistic model, whether the starts agree on the most probable number). The
        result has the factors that at least half of the draws use. Of the Boolean model all numbers
        of factors that are there are equally probable beforehand, and one that is there has the
        prior that it has in a fit of given rank. There is no ladder of temperatures unless one is
        given, and entries of the result leave out what other factors covered. Of "relaxed", "nmf"
        and the models of ratings there are `max_rank` factors, each with a scale that is learned
        and vanishes where the data do not need it (automatic relevance determination: `rate`, or
        `relevance`, in `priors`). A factor counts in a draw where it adds more to the product than
        the noise alone could; what other factors add is left out of the result, or added to factors
        that share a direction with them. Chains start with all factors and are not annealed; those
        of "relaxed" start where annealed chains with fixed rates have come. A factor that has
        vanished seldom comes back, so that one near the edge of the noise may keep the chains
        apart, and the verdict says so.
        Of "logistic" the same holds of the draws of each start from its variational approximation,
        which is too narrow: so are the probabilities, which mix the starts in equal parts. The
        verdict says how many starts agree on the number.
    model : str
        {models}
    sampler : str, optional
        {samplers}
    priors : mapping, or prior of the factors' entries, optional
        {priors}
    init : mapping, optional
        Where every chain starts: `usage` (rows, rank) and `basis` (columns, rank), bits for the
        Boolean model. Noise and densities then start where they fit them, and nothing is annealed.
        R-hat of such chains does not show other modes, and the verdict says so. Default: draws from
        the prior, annealed in the warm-up (in its first half, if its length is given); for the
        Boolean model beyond small matrices, factors that a population of each chain's own finds by
        climbing (`bmfjax.infer.ascent_starts`: at most ten factors, and fewer where both sides are
        long), or an annealed relaxed model from a random start (`bmfjax.infer.boolean_starts`); for
        "batch" and "svi" of the logistic model, small random factors. Variants of the Boolean model
        start from the prior, annealed; layers where they were found one after the other; codes of
        "hamming" at random rows. Beyond 131,072 entries Boolean chains share the factors they found
        before they start, and the verdict says so.
    num_chains : int
        Chains, independent but for starts that are shared. Of "batch" and "svi": starts, over
        which probabilities and predictions average. Of sampler "smc": independent runs, which end
        by themselves and have no warm-up; their particles are the draws (`num_particles` in
        `sampler_options`).
    num_warmup : int or "auto"
        Steps before draws count. "auto" with `num_samples="auto"`: annealed steps, then none, a
        quarter or half of the draws, whatever they ask for; with a number of draws 1,000. Of
        "batch" and "svi" the most steps of optimisation (1,000), which ends when the bounds of all
        starts have settled (their mean over 20 steps changes by less than 0.0002 of its size with
        "batch", and 0.00005 with "svi", from that over the 20 steps before).
        Sampler "smc" takes none.
    num_samples : int or "auto"
        Draws of each chain. "auto": chains run until they agree, or until `max_time`. They look
        after 250, 375, 500, 750, 1,000, ... draws, at most 128,000, whether the log joint
        density, the rates, the number of factors where it is found, and 99 % of the entries of the
        product have R-hat of at most 1.01 (1.05, if the sampler is approximate) and 50 effective
        draws a chain. What is the same in every draw needs neither, and the log joint density of
        "pmf", "probit" and "ordered-probit" does not count: parts of it change no prediction.
        When they look does not depend on time: unless `max_time` stops the run, or leaves none
        for more factors (`max_rank`), the draws follow from the seed. Of "batch" and "svi": draws
        from the approximate posterior of each start, at most 250. The draws of sampler "smc" are
        its particles (`num_particles` in `sampler_options`).
    max_time : float, optional
        Seconds of sampling after which to stop with what there is: by default 600, ten minutes,
        where `num_samples` is "auto", and none where it is a number; ``float("inf")`` is none.
        Looking for starts comes before and is not counted: minutes, of large Boolean matrices.
        Sampler "smc" has no result before its runs end, and no limit by default.
        The verdict says if the chains do not agree. To go on, fit with `checkpoint`, and then again
        with `resume`. "batch" and "svi" draw from what their optimisation has reached then, and
        the verdict says so.
    seed : int
        The draws depend on it, the data, and the options that change draws; on one
        CPU bit for bit.
    progress : bool
        Show a progress bar on standard error.
    sampler_options : mapping, optional
        Further options of the sampler (see `OrMachineGibbs`, `OrMachineSMC`, `TruncatedGibbs`,
        `NMFGibbs` and `IASG`; of variants of the Boolean model `bmfjax.infer.EffectsGibbs` and
        those beside it), such as ``{"update": "joint"}`` or ``{"batch_size": 64}``. The
        Boolean sampler "gibbs" sums the longer factor matrix out where the rank is at most 8 and
        entries times 2^rank are at most 2,097,152. From rank 6 on, and with temperatures, it also
        adds factors to others and replaces them in every step (`moves`). It has several
        temperatures, which exchange states and factors: where `num_samples` is "auto", only once
        chains have not agreed without (R-hat above 1.05 after 500 draws or more; from rank 6 on,
        1.2 after 1,000). Of other matrices its `moves` are ("collapsed",) for up to 131,072
        entries, ("rebirth", "collapsed") for up to 4,194,304 (there up to rank 10 with a
        `block_size` of 8), ("birth",) for up to 16,777,216, and none beyond, unless they are given.
        Of "svi":
        `sampling` ("biased", "balanced" or "uniform", see
        `bmfjax.variational.entry_sampler`) and `step_entries`, drawn in a step (default 4
        for each row and column, rounded up to multiples of 4096).
    max_rank : int, optional
        Where rank is "auto", the most factors that there may be. By default 20, or the smaller
        side of the matrix. Where `num_samples` is "auto" and all of them are there with a
        probability of at least 0.05, a fit starts anew with twice as many, and draws so far are
        dropped, if as much is left of `max_time` as the fit took until then. Not so of "logistic",
        and of chains that run apart. Time and memory are those of a fit of this rank. The verdict
        says where more may be there.
    anchors : mapping or pandas.DataFrame, optional
        Known factors, such as pathways, signatures or topics, whose basis stays as it is given;
        who uses them is learned, and further factors beside them. They are the first of the `rank`
        factors and keep their names (`Fit.factor_names`). A mapping of names to lists of columns,
        to mappings of columns to numbers (0 for other columns) or to one number a column; or a
        table of columns by factors. Of the Boolean model 0 and 1, and what is missing (NaN) is
        learned; of "nmf" and the models of ratings numbers, whose scale is kept. By default the
        usage of a known factor of "nmf" has the prior under which it explains as much of the data
        as another factor does; with `usage_rate` that prior is as given. Of ratings known numbers
        inform the mean and precision of the columns' factors, as learned ones do, and further
        factors are shown orthogonal to the known ones, which the data cannot tell from others.
    row_attributes, column_attributes : array, scipy.sparse matrix or DataFrame, optional
        What is known of rows and of columns, (lines, attributes), of the models of ratings: the
        prior means of factors and effects depend on it linearly, by coefficients that are learned
        (`Fit.coefficients`; Simm et al. 2017, "Macau"). A DataFrame is put in the order of the
        lines if its index names them; texts, categories and bools become one column of zeros and
        ones for each category. New lines can be predicted from their attributes alone
        (`Fit.given_new`). The prior `rated` adds which cells were rated. One device, and a given
        rank.
    chains : sequence of int, optional
        Run only these of the `num_chains` chains, by their numbers from 1, such as ``[3]``: one
        part of a fit whose parts run in processes or on machines that do not talk to each other.
        With `checkpoint`, a folder that is the same for all of them, `bmfjax.merge` then makes one
        fit of all chains, whose draws are those of a run with all of them, bit for bit on CPUs of
        one kind. With `resume` chains go on where they are stored, and begin where they are not.
        Chains that run apart cannot look at each other: `num_samples` "auto" is 1,000. A single
        chain costs nearly as much as two side by side, since it is run twice to have the same sums:
        give a process two or more where there are few. Not for "batch" and "svi" of the logistic
        model and sampler "smc", whose runs end together.
    mesh : jax.sharding.Mesh, optional
        Devices that run all chains together, with the axes "chains" and "rows", such as
        ``jax.make_mesh((1, 2), ("chains", "rows"))``; by default one device. For "ormachine",
        "nmf" and the models of ratings with sampler "gibbs", for "relaxed" with all its samplers,
        and for "logistic" with sampler "svi". Devices along "chains" share the
        chains, whose number they divide. Of those along "rows" each holds its own rows and columns
        of the matrix and draws their part of the factors, which are on all devices; rows need not
        divide. Not shared are, of the Boolean model, moves, the update "collapsed" and the search
        for starts, and of "nmf" changes of basis. Of ratings, and of "logistic" the ones, every
        device has all; the devices share the vectors of rows and columns, and the entries of a step
        of "svi". Draws do not depend on the mesh: on CPUs of one kind those of the Boolean model
        are those without a mesh, bit for bit, and those of other models differ by rounding alone. A
        checkpoint goes on with any mesh. The devices may belong to several processes
        (``jax.distributed.initialize``), which all call `fit` with the same arguments and get the
        same result. Of a file of more than 2^26 entries each reads its own rows alone until then,
        for "ormachine" with sampler "gibbs", a given rank and no moves (.npz of packed words,
        .parquet, .h5ad, .zarr). What one process refuses, all refuse.
    checkpoint : path, optional
        Folder in which the run is stored every ten seconds and when it stops, with the checkpoint
        before that. With `chains` each part has a folder of its own inside. A folder that holds an
        earlier run is refused without `resume`.
    resume : bool
        Continue from `checkpoint`: the draws are those of an unbroken run, unless one of them has
        time for more factors (`max_rank`) and the other has not. If the newest checkpoint is
        damaged, a warning says so and the run continues from the one before it.

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

    SIGTERM, by which clusters end a job, and SIGUSR1, by which they can warn it, stop likewise
    while chains run in the main thread. The checkpoint is written, no result is made, and
    SystemExit(143) is raised (138 for SIGUSR1 on Linux). A handler of your own is called instead;
    if it returns, the fit ends as after Ctrl-C. Before and after the sampling, and in other
    threads, these signals do what they do without `fit`.

    A complete run keeps up to 250 evenly spaced draws of each chain (500 of Boolean factors), fewer
    if they are large. Until then draws are kept at smaller intervals, so that a run that was
    stopped early has enough of them; ``figures.thinning`` is the interval that was used.

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
    request = ask(
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
        max_rank=max_rank,
        anchors=anchors,
        row_attributes=row_attributes,
        column_attributes=column_attributes,
        chains=chains,
        mesh=mesh,
    )
    made = request.chains()
    if chains is not None:
        check_apart(request, made)
    if chains is not None and checkpoint is not None:
        checkpoint, resume = place_of(request, made, checkpoint, resume=resume)
    return finish(
        request,
        made,
        max_time=max_time,
        progress=progress,
        checkpoint=checkpoint,
        resume=resume,
    )


def _default(prior) -> str:
    known = prior.default is not None and "default" not in prior.about
    return f" (default {prior.default!r})" * known


def _filled(doc: str) -> str:
    """Fill the choices that the families have into the docstring."""
    doc = inspect.cleandoc(doc)  # as Python itself leaves it from 3.13 on
    groups = list(dict.fromkeys(FAMILIES.values()))
    names = {family: " and ".join(f'"{m}"' for m in family.models) for family in groups}
    texts = {
        "models": [f'"{m}": {about}.' for f in groups for m, about in f.models.items()],
        "samplers": [
            f"Of {names[f]}: {'; '.join(f'{s!r}, {k.about}' for s, k in f.samplers.items())}."
            for f in groups
        ],
        "priors": [
            f"Of {names[f]}: "
            f"{'; '.join(f'`{p}`, {k.about}{_default(k)}' for p, k in f.priors.items())}."
            for f in groups
        ],
    }
    for name, paragraphs in texts.items():
        indent = " " * 4
        lines = [
            textwrap.fill(text, 96, initial_indent=indent, subsequent_indent=indent)
            for text in paragraphs
        ]
        doc = doc.replace(f"{indent}{{{name}}}", "\n".join(lines))
    return doc


fit.__doc__ = _filled(fit.__doc__ or "")
