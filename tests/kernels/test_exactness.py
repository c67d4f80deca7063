"""Kernels are exact: Geweke's joint distribution test, uniform ranks, and copies with a fault.

A kernel is one entry of `KERNELS`: chains that know what they should find, and faults that the
tests must see, so that what they do not see is small. Its conditionals and posteriors by
enumeration or quadrature stand in the file of the kernel.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from jax import random

from bmfjax.diagnostics import ess_bulk, geweke_scores, rank_statistics, rank_uniformity
from tests.kernels import simulated

#: Draws of a chain among which the truth is ranked.
KEPT = 15


class Kernel(NamedTuple):
    """Chains of a kernel, and what its tests must see."""

    #: ``chains() -> run(key, redraw, *faults) -> (truth, draws)`` (`tests.kernels.simulated`).
    chains: Callable
    #: Names of the statistics; the first so many are ranked, which labels must not change.
    statistics: tuple[str, ...]
    ranked: int
    right: tuple[float, ...]
    #: (faults, statistic, moment, least score): what Geweke's test must show.
    of_joint: tuple = ()
    #: (faults, statistic, largest p-value): what the ranks must show.
    of_ranks: tuple = ()
    key: int = 0
    apart: int = 2  # ranked draws, in draws of a chain
    most: float = 3.8  # score of the right kernel
    effective: int = 1000  # draws, of every statistic
    smallest: float = 1e-3  # p-value of the right kernel
    marks: tuple = ()


#: One kernel of real factors, of log odds and of bits stays in the short lane.
LONG = (pytest.mark.long,)
OF_PRODUCTS = ("usage", "squared usage", "basis", "first items", "entry", "squares",
               "log precision", "fit of data")  # fmt: skip
OF_BITS = ("product", "missing", "log joint", "rate", "last rate", "usage", "basis", "densities",
           "errors", "log rate", "usage density", "datum")  # fmt: skip
MOVED = Kernel(
    functools.partial(simulated.moved, complete=True),
    (*OF_PRODUCTS, "first rows", "balance"), 0, (0.0, 1.0),
    (((1.0, 1.0), None, None, 6.0), ((0.0, 15.0), None, None, 6.0)),
    key=2, most=4.2, effective=400, marks=LONG,
)  # fmt: skip
SCALED = Kernel(
    functools.partial(simulated.scaled, 1.0),
    (*OF_PRODUCTS, "log rates", "rates", "totals"), 0, (0.0,), (((3.0,), None, None, 6.0),),
    key=3, most=4.2, effective=400, marks=LONG,
)  # fmt: skip
FEATURES = Kernel(
    functools.partial(simulated.features, "signed"),
    ("missing row", "entry", "missing", "column mean", "column precision", "row scale",
     "row effect", "number", "concerned", "squared weights", "log joint", "usage", "member",
     "intercept", "usage density", "basis density", "precisions", "squared row effects",
     "largest weight", "fit of data"),
    11, (1.0, 1.0),
    (((2.0, 1.0), None, None, 9.0), ((1.0, 0.1), "log joint", 0, 9.0)),
    (((2.0, 1.0), None, 1e-6), ((1.0, 0.1), "squared weights", 1e-6)),
    key=4, most=3.9, effective=700, marks=LONG,
)  # fmt: skip
COUNTS = Kernel(
    functools.partial(simulated.counts, "complete"),
    ("entry", "missing", "log joint", "rates", "usage", "number or squares", "log sd or spectra",
     "log rates", "squared spectra", "fit of data", "datum", "usage or concentration"),
    9, (1.0, 1.0),
    (((0.3, 1.0), None, None, 6.0), ((1.0, 3.0), None, None, 6.0)),
    (((1.0, 3.0), None, 1e-6),),
    key=5, most=3.9, effective=700, marks=LONG,
)  # fmt: skip
OF_RATINGS = ("level", "product", "missing product", "row effect", "column precision",
              "usage square", "log joint")  # fmt: skip
OF_NOISE = ("precision", "fit of data", "last level")
BOTH = (3.0, 2.5)  # means that are held more strongly, effects that are thought to be larger
RATINGS = Kernel(
    functools.partial(simulated.ratings, "identity"),
    (*OF_RATINGS, "usage mean", "trace", *OF_NOISE), 10, (1.0, 1.0),
    ((BOTH, "usage mean", 0, 6.0), (BOTH, "column precision", 0, 6.0)),
    apart=1, most=3.9, effective=300, smallest=5e-4, marks=LONG,
)  # fmt: skip
KERNELS = {
    "relaxed": Kernel(
        simulated.relaxed,
        ("entry", "missing", "log joint", "precision", "rates", "usage", "basis", "log precision",
         "log rates", "fit of data", "datum", "usage entry"),
        7, (1.0, 1.0),
        (((-1.0, 1.0), "basis", 0, 9.0), ((1.0, 1.5), "precision", 0, 6.0)),
        (((1.0, 1.5), "log joint", 1e-8),),
        most=3.7,
    ),
    "relaxed scales": SCALED,
    "nonnegative scales": SCALED._replace(
        chains=functools.partial(simulated.scaled, simulated.INF)
    ),
    "nonnegative moves": MOVED,
    "nonnegative moves, missing": MOVED._replace(
        chains=functools.partial(simulated.moved, complete=False)
    ),
    "logistic": Kernel(
        simulated.logistic,
        ("missing row", "entry", "missing", "bias", "row effect", "column effect", "usage", "basis",
         "column effects", "fit of data", "log joint"),
        0, (1.0,), (((0.3,), "bias", 1, 5.0),),
        key=1, most=3.9, effective=700,
    ),
    "counts": COUNTS,
    "counts, scattered": COUNTS._replace(
        chains=functools.partial(simulated.counts, "scattered"), of_joint=(), of_ranks=(),
    ),
    "counts, absent": COUNTS._replace(
        chains=functools.partial(simulated.counts, "absent"),
        of_joint=(((1.0, 3.0), None, None, 6.0),), of_ranks=(), effective=500,
        smallest=1e-4,  # 4e-4 with this key; of three others the smallest of nine is 0.03 to 0.16
    ),
    "ratings": RATINGS,
    "ratings, probit": RATINGS._replace(
        chains=functools.partial(simulated.ratings, "probit"), of_joint=()
    ),
    "ratings, ordered": RATINGS._replace(
        chains=functools.partial(simulated.ratings, "ordered"), of_joint=()
    ),
    # Of one link, none of which the conditionals of factors know.
    "ratings, relevance": Kernel(
        simulated.ratings_of_relevance,
        (*OF_RATINGS, "relevance", "of columns", "sums", *OF_NOISE), 0, (1.0,),
        (((1.5,), "relevance", 0, 6.0),), key=1, most=4.0, effective=300, marks=LONG,
    ),
    "ratings, attributes": Kernel(
        simulated.ratings_with_attributes,
        (*OF_RATINGS, "ridge", "trace", "coefficient", "coefficients", "effects'", "ridges",
         "explained", *OF_NOISE),
        0, (1.0,), (((3.0,), "ridge", 0, 6.0),), key=1, most=3.9, effective=300, marks=LONG,
    ),
    "features": FEATURES,
    "features, positive": FEATURES._replace(
        chains=functools.partial(simulated.features, "positive"), of_joint=(),
        of_ranks=(((1.0, 0.1), "squared weights", 1e-6),), marks=LONG,
    ),
    "ormachine": Kernel(
        functools.partial(simulated.ormachine, 1), OF_BITS, 9, (1.0, 1.0, 1.0),
        (((1.6, 1.0, 1.0), "basis", 0, 7.0), ((1.0, 0.3, 1.0), "usage", 1, 5.0)),
        (((1.0, 1.0, 0.7), "errors", 1e-6),),
    ),
    "ormachine, two rates": Kernel(
        functools.partial(simulated.ormachine, 2), OF_BITS, 0, (1.0, 1.0, 1.0), marks=LONG
    ),
    "one-hot": Kernel(
        simulated.one_hot_machine,
        ("together", "entry", "missing", "log joint", "rate", "largest weight", "basis",
         "densities", "errors", "log rate", "weight", "cluster", "datum"),
        9, (1.0,), (((0.5,), None, None, 6.0),), (((0.3,), None, 1e-6),),
        marks=LONG,
    ),
    "hamming": Kernel(
        simulated.hamming_machine,
        ("score", "missing", "log joint", "dispersion", "usage", "basis", "densities", "errors",
         "log dispersion", "usage density", "datum"),
        8, (1.0,), (((2.0,), None, None, 6.0),), (((3.0,), None, 1e-6),),
        marks=LONG,
    ),
    "effects": Kernel(
        simulated.with_effects,
        ("intercept", "dispersion", "row precision", "column precision", "logit", "missing logit",
         "log joint", "usage", "basis", "usage density", "row effect", "column effect", "bit",
         "fit of data", "log precision"),
        10, (1.0, 1.0),
        (((2.0, 1.0), "fit of data", 0, 6.0), ((1.0, 2.0), "dispersion", 0, 6.0)),
        (((1.0, 3.0), "dispersion", 1e-6),),
        apart=1, most=3.7, smallest=5e-4, marks=LONG,
    ),
    "deep": Kernel(
        simulated.deep_machine,
        ("datum", "missing", "log joint", "usage 1", "usage 2", "agreement", "bases", "rate 1",
         "rate 2", "density"),
        0, (1.0,), (((0.25,), "agreement", 0, 6.0),),
        most=3.7, effective=1500, marks=LONG,
    ),
}  # fmt: skip


def each(of=None, ranked=False):
    """The kernels, those that are ranked, or the faults of each `of` a kind, as parameters."""
    found = []
    for name, kernel in KERNELS.items():
        if ranked and not kernel.ranked:
            continue
        faults = [()] if of is None else [(fault,) for fault in getattr(kernel, of)]
        for number, fault in enumerate(faults):
            named = f"{name}-{number}" if fault else name
            found.append(pytest.param(name, *fault, marks=kernel.marks, id=named))
    return found


@functools.cache
def chains(name):
    """One program for all tests of a kernel."""
    return KERNELS[name].chains()


@functools.cache
def joint_scores(name, faults):
    """Geweke's scores (moment, statistic), and the fewest effective draws."""
    kernel = KERNELS[name]
    marginal, successive = chains(name)(random.key(kernel.key), True, *map(np.float32, faults))
    assert marginal.shape[-1] == len(kernel.statistics)
    return np.abs(geweke_scores(marginal, successive)), ess_bulk(successive).min()


def rank_p_values(name, faults):
    """P-values (statistic,) that the ranks of the truth among the draws are uniform."""
    kernel = KERNELS[name]
    truth, draws = chains(name)(random.key(2), False, *map(np.float32, faults))
    kept = draws[:, :: -kernel.apart, : kernel.ranked][:, :KEPT]
    return rank_uniformity(rank_statistics(kept, truth[:, : kernel.ranked]), KEPT)


@pytest.mark.device
@pytest.mark.parametrize("name", each())
def test_the_joint_distribution_is_that_of_the_model(name):
    kernel = KERNELS[name]
    scores, effective = joint_scores(name, kernel.right)
    assert effective > kernel.effective
    assert scores.max() < kernel.most


@pytest.mark.parametrize(("name", "fault"), each("of_joint"))
def test_the_joint_distribution_shows_a_fault(name, fault):
    faults, statistic, moment, least = fault
    scores, _ = joint_scores(name, faults)
    if statistic is not None:
        scores = scores[moment, KERNELS[name].statistics.index(statistic)]
    assert scores.max() > least


@pytest.mark.parametrize("name", each(ranked=True))
def test_ranks_of_the_truth_among_the_draws_are_uniform(name):
    kernel = KERNELS[name]
    assert rank_p_values(name, kernel.right).min() > kernel.smallest


@pytest.mark.parametrize(("name", "fault"), each("of_ranks"))
def test_the_ranks_show_a_fault(name, fault):
    faults, statistic, most = fault
    found = rank_p_values(name, faults)
    if statistic is not None:
        found = found[KERNELS[name].statistics.index(statistic)]
    assert np.min(found) < most
