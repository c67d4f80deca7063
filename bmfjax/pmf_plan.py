"""The matrix factorisations' part of a fit: "pmf", "probit" and "ordered-probit"."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import numpy as np

from bmfjax import pmf_trust
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.diagnostics import agreement
from bmfjax.infer import ChainRun
from bmfjax.kernels.entry_blocks import EntryBlocks, entry_blocks
from bmfjax.kernels.normal_wishart import NormalWishart
from bmfjax.kernels.pmf_density import PMFDensity, check_density
from bmfjax.models.pmf import LEVEL_SCALES
from bmfjax.outcome import after_warmup, fit_of, most_probable, thinning
from bmfjax.pmf_cells import LINKS, with_effects
from bmfjax.pmf_factors import principal_draws
from bmfjax.request import Plan, Request
from bmfjax.result import Fit
from bmfjax.samplers import sampler_of
from bmfjax.solutions import solutions

#: What `priors` may name, and what holds where it does not; None where that takes a word more.
PRIORS = {
    "precision": None, "precision_gamma": (1.0, 1.0), "effects": True, "effect_gamma": (1.0, 1.0),
    "strength": 2.0, "degrees": None, "scale": 1.0, "level": None,
}  # fmt: skip
#: Different ratings that ordered probit takes for stars, at most.
MAX_STARS = 100


def pmf_plan(request: Request) -> Plan:
    """Chains of a matrix factorisation."""
    data, link = request.data, LINKS[request.model]
    if request.sampler_options:
        raise InputError(f"sampler_options is {request.sampler_options!r}; this sampler has none")
    if request.init is not None:
        raise InputError(f"model {request.model!r} finds its start itself; leave init out")
    rows, columns, values, stars = observed(data, link)
    priors = resolve_priors(request.priors, link, values)
    density = density_of(request.rank, link, priors, stars)
    check_density(density)
    lines = data.num_rows + data.num_columns
    every, most_kept = thinning(4 * request.num_chains * density.width * lines, request.num_samples)
    sampler = sampler_of(request)
    traced = ("precision",) if density.learns_precision else ()
    run = ChainRun(
        sampler.make(density),
        jax.random.key(request.seed),
        entry_blocks(rows, columns, values, data.shape),
        num_chains=request.num_chains,
        num_warmup=request.num_warmup,
        num_samples=request.num_samples,
        draws=dict.fromkeys(density.sites, every),
        most_kept=most_kept,
        trace=dict.fromkeys((*sampler.trace, *traced), 1),
    )
    settings = request.settings() | {
        "priors": priors,
        "stars": None if stars is None else stars.tolist(),
        "scale": None if (scale := getattr(data, "scale", None)) is None else list(scale),
        "thinning": every,
    }
    return Plan(data, settings, lambda resume: run, _assemble)


def density_of(rank, link, priors, stars) -> PMFDensity:
    """The model's density, as `bmfjax.models.pmf` has it."""
    return PMFDensity(
        rank,
        link,
        categories=2 if stars is None else len(stars),
        effects=priors["effects"],
        precision=priors["precision"] if link == "identity" else None,
        precision_gamma=tuple(priors["precision_gamma"]),
        effect_gamma=tuple(priors["effect_gamma"]),
        factors=NormalWishart(priors["strength"], priors["degrees"], priors["scale"]),
        level=tuple(priors["level"]),
    )


def observed(data, link: str):
    """Rows, columns and values of the observed cells as the sampler takes them, and the stars.

    Parameters
    ----------
    data : Ratings, RealMatrix or BinaryMatrix
    link : {"identity", "probit", "ordered"}

    Returns
    -------
    rows, columns : (entry,) int
    values : (entry,) float
    stars : (categories,) float or None
        Of "ordered", the ratings that the categories stand for.
    """
    if isinstance(data, Ratings):
        rows, columns, values = data.rows, data.columns, data.values
    elif isinstance(data, RealMatrix):
        rows, columns = np.nonzero(data.observed())
        values = data.dense(np.float64)[rows, columns]
    else:
        rows, columns, values = _binary(data)
    if link == "probit":
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                "model 'probit' is of ones and zeros; give a BinaryMatrix, or model='pmf' or "
                "'ordered-probit' for ratings"
            )
        return rows, columns, 2.0 * values - 1.0, None
    if link == "identity":
        return rows, columns, values, None
    stars = np.unique(values)
    if not 2 <= len(stars) <= MAX_STARS:
        raise InputError(
            f"there are {len(stars)} different ratings; model 'ordered-probit' takes from 2 to "
            f"{MAX_STARS}: give model='pmf'"
        )
    return rows, columns, np.searchsorted(stars, values).astype(float), stars


def _binary(data: BinaryMatrix):
    if not data.num_missing:
        rows, columns = np.divmod(np.arange(data.num_rows * data.num_columns), data.num_columns)
        return rows, columns, data.dense().ravel()
    rows, columns = np.nonzero(data.observed())
    return rows, columns, data.dense()[rows, columns]


def blocks_of(data, link, stars=None) -> EntryBlocks:
    """The observed cells of new data, with stars of a fit."""
    if stars is None:
        rows, columns, values, _ = observed(data, link)
    else:
        rows, columns, values, _ = observed(data, "identity")
        wrong = np.setdiff1d(values, stars)
        if len(wrong):
            raise InputError(f"rating {wrong[0]:g} is none of those that were fitted, {stars}")
        values = np.searchsorted(stars, values).astype(float)
    return entry_blocks(rows, columns, values, data.shape)


def resolve_priors(given, link, values) -> dict:
    """All priors by name: those given, checked, and what holds of the others.

    Parameters
    ----------
    given : mapping or None
        As of `bmfjax.fit`.
    link : {"identity", "probit", "ordered"}
    values : (entry,) float
        Ratings, which have a level of their own.

    Returns
    -------
    dict

    Examples
    --------
    >>> resolve_priors(None, "identity", [1.0, 4.0])["level"]
    [2.5, 10.0]
    """
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"priors is {given!r}; give a mapping of any of {', '.join(PRIORS)}")
    names = [n for n in PRIORS if link == "identity" or not n.startswith("precision")]
    unknown = sorted(set(given or {}) - set(names))
    if unknown:
        raise InputError(f"priors name {unknown[0]!r}; this model has {', '.join(names)}")
    found = PRIORS | dict(given or {})
    if not isinstance(found["effects"], bool):
        raise InputError(f"prior 'effects' is {found['effects']!r}; give True or False")
    for name, instead, unused in (
        ("precision_gamma", "precision", found["precision"] is not None),
        ("effect_gamma", "effects", not found["effects"]),
    ):
        if unused and name in (given or {}):
            raise InputError(
                f"prior {name!r} has no say where {instead!r} is {found[instead]}; leave one of "
                "them out"
            )
        found[name] = _pair(name, found[name])
    if found["level"] is None:
        mean = float(np.mean(values)) if link == "identity" else 0.0
        found["level"] = mean, LEVEL_SCALES[link]
    found["level"] = _level(found["level"])
    for name in ("precision", "strength", "degrees", "scale"):
        value = found[name]
        if value is None and PRIORS[name] is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise InputError(f"prior {name!r} is {value!r}; give a positive number")
        found[name] = float(value)
    return found


def _pair(name, value):
    try:
        shape, rate = map(float, value)
    except (TypeError, ValueError):
        raise InputError(f"prior {name!r} is {value!r}; give shape and rate") from None
    if not (0 < shape < math.inf and 0 < rate < math.inf):
        raise InputError(f"prior {name!r} is {value!r}; give a positive shape and rate")
    return [shape, rate]


def _level(value):
    try:
        mean, sd = map(float, value)
    except (TypeError, ValueError):
        mean = sd = math.nan
    if not (math.isfinite(mean) and 0 < sd < math.inf):
        raise InputError(
            f"prior 'level' is {value!r}; give a mean and a positive standard "
            "deviation, such as [3.5, 2]"
        )
    return [mean, sd]


def _assemble(plan, run, versions, seconds) -> Fit:
    data, trace = plan.data, run.trace()
    drawn = principal_draws(run.draws(), most_probable(run, trace))
    usage, basis = drawn["usage"], drawn["basis"]
    agreeing = agreement(usage.mean(1), basis.mean(1))
    sides = np.arange(data.num_rows), np.arange(data.num_columns)
    judged = pmf_trust.assess(
        pmf_trust.informed(data), *with_effects(usage, basis, drawn, *sides), agreeing,
        after_warmup(run, trace), drawn.get("cutpoints"),
    )  # fmt: skip
    return fit_of(
        plan,
        run,
        drawn,
        seconds,
        versions,
        trace=trace,
        agreement=agreeing,
        apart=solutions(basis, signed=False),
        judged=judged,
    )
