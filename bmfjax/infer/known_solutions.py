"""Describe the solutions that chains have found, so that all of them can jump to each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logit

from bmfjax.data.errors import InputError
from bmfjax.errors import kind_of
from bmfjax.infer.feature_start import error_of_mean, near_best
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.boolean.moves.jump import KnownSolutions, Normal

#: Solutions at most: the same number of places for any draws, so that programs are the same.
PLACES = 8
#: Every chain is cut into segments, and of each so many draws are looked at, at most.
SEGMENTS, MAX_DRAWS = 2, 200
#: Segments whose mean bits differ by less, summed over both, have the same solution.
SAME = 2.0
#: Expected number of bits that a candidate has unlike every draw.
STRAY = 0.25
#: Spreads are those of the draws, times the first and plus the second: tails must be reached.
WIDER, LEAST = 1.2, 0.02
#: The logit of a density or rate, of those that are rounded to zero or one.
EXTREME = 1e-6


class _Segment(NamedTuple):
    """Draws with their factors in one order."""

    bits: np.ndarray  # (draw, rank, short) bool
    density: np.ndarray | None  # (draw, rank): logits
    rate: np.ndarray | None  # (draw, ...): logits


def known_solutions(draws: Mapping[str, np.ndarray]) -> KnownSolutions:
    """Describe the solutions among draws of `bmfjax.models.ormachine`.

    For `bmfjax.infer.OrMachineGibbs`, with the update "collapsed" and the move "jump". Chains must
    have reached their modes; draws from which solutions are described should not be kept.

    Parameters
    ----------
    draws : mapping of arrays
        As ``MCMC.get_samples(group_by_chain=True)`` returns them: `usage` (chain, draw, rows,
        rank) and `basis` (chain, draw, columns, rank), and where they are learned `usage_density`
        and `basis_density` (chain, draw, rank) and `flip_rate`. For a fit ``{"usage":
        fit.usage_draws, "basis": fit.basis_draws, **fit.other_draws}``.

    Returns
    -------
    KnownSolutions
        Up to eight solutions, those with most draws.

    Raises
    ------
    InputError
        Where a factor matrix is missing, there is no axis of chains, shapes do not agree, densities
        or rates are not in [0, 1], or there is no draw.

    Examples
    --------
    >>> r = np.random.default_rng(0)
    >>> usage, basis = np.zeros((2, 10, 6, 2), bool), np.zeros((2, 10, 4, 2), bool)
    >>> basis[0, :, :2, 0], basis[1, :, 2:, 1] = True, True
    >>> rates = r.uniform(0.1, 0.2, (2, 10))
    >>> found = known_solutions({"usage": usage, "basis": basis, "flip_rate": rates})
    >>> int(np.isfinite(found.log_chance).sum())
    2
    """
    _check(draws)
    sides = sides_of((draws["usage"].shape[2], draws["basis"].shape[2]), "longer")
    groups = []
    for segment in _segments(draws, sides):
        aligned = _aligned(segment, segment.bits[len(segment.bits) // 2].astype(float))
        for i, group in enumerate(groups):
            centre = group.bits.mean(0)
            moved = _aligned(aligned, centre)
            if np.abs(moved.bits.mean(0) - centre).sum() < SAME:
                groups[i] = _joined(group, moved)
                break
        else:
            groups.append(aligned)
    groups.sort(key=lambda group: -len(group.bits))
    return _described(groups[:PLACES])


def number_near(log_joint) -> int:
    """Return how many chains are nearly as high as the highest, by their log joint (chain, step).

    Where chains jump to solutions that were found before, so many found the best by themselves.
    Compared are the second halves: a chain may lack `NEAR` nats, and two standard errors of the
    difference, by means of batches.

    Examples
    --------
    >>> heights = np.array([[-900.0], [-905.0], [-950.0]])
    >>> number_near(heights + np.sin(np.arange(100.0)))
    2
    """
    late = np.asarray(log_joint, float)[:, np.shape(log_joint)[1] // 2 :]
    if not late.size:  # what was stored replaces it
        return 0
    return int(near_best(late.mean(1), error_of_mean(late)).sum())


def _check(draws) -> None:
    """Refuse what are no draws of the Boolean model."""
    remedy = "give those of MCMC.get_samples(group_by_chain=True)"
    if not isinstance(draws, Mapping):
        raise InputError(
            f"draws is {kind_of(draws)}; give a mapping of names to arrays, of a fit "
            "{'usage': fit.usage_draws, 'basis': fit.basis_draws, **fit.other_draws}"
        )
    shapes = {name: np.shape(values) for name, values in draws.items()}
    for name in ("usage", "basis"):
        shape = shapes.get(name, ())
        if len(shape) != 4 or 0 in shape:
            raise InputError(
                f"draws have no {name!r} of the shape (chain, draw, lines, rank), with at least "
                f"one draw; {remedy}"
            )
    chains, number, _, rank = shapes["usage"]
    wanted = {
        "basis": [(chains, number, shapes["basis"][2], rank)],
        "usage_density": [(chains, number, rank)],
        "basis_density": [(chains, number, rank)],
        "flip_rate": [(chains, number), (chains, number, 2)],
    }
    for name, known in wanted.items():
        if name in draws and shapes[name] not in known:
            raise InputError(
                f"draws of {name!r} have the shape {shapes[name]}, and those of 'usage' "
                f"{shapes['usage']}; {remedy}"
            )
        if name.endswith(("density", "rate")) and name in draws:
            values = np.asarray(draws[name], float)
            if not ((values >= 0.0) & (values <= 1.0)).all():
                raise InputError(f"draws of {name!r} are not in [0, 1]; {remedy}")


def no_solutions(shape: tuple[int, int], rank: int, num_rates: int) -> KnownSolutions:
    """Return what `known_solutions` would of a matrix of this shape, with every place empty."""
    short = sides_of(shape, "longer").short
    return KnownSolutions(
        np.full(PLACES, -np.inf, np.float32),
        np.full((PLACES, rank, short), 0.5, np.float32),
        _unknown((PLACES, rank)),
        _unknown((PLACES,) if num_rates == 1 else (PLACES, 2)),
    )


def _unknown(shape) -> Normal:
    return Normal(np.zeros(shape, np.float32), np.ones(shape, np.float32))


def _segments(draws, sides) -> Iterator[_Segment]:
    """Cut every chain into segments of evenly spaced draws."""
    kept = np.asarray(draws[sides.kept])
    if not np.isin(kept, (0, 1)).all():
        raise InputError(f"draws of {sides.kept!r} have values other than 0 and 1; give bits")
    bits = np.moveaxis(kept, 2, 3) > 0
    logits = dict.fromkeys(("density", "rate"))
    for part, name in (("density", f"{sides.summed}_density"), ("rate", "flip_rate")):
        values = draws.get(name)
        if values is not None:
            logits[part] = logit(np.clip(np.asarray(values, float), EXTREME, 1 - EXTREME))
    for chain in range(bits.shape[0]):
        for own in np.array_split(np.arange(bits.shape[1]), min(SEGMENTS, bits.shape[1])):
            some = own[np.unique(np.linspace(0, len(own) - 1, MAX_DRAWS).astype(int))]
            rest = {n: None if v is None else v[chain, some] for n, v in logits.items()}
            yield _Segment(bits[chain, some], **rest)


def _aligned(segment: _Segment, centre) -> _Segment:
    """Put the factors of every draw into the order of a solution's bits (rank, short)."""
    distances = np.abs(segment.bits[:, None].astype(float) - centre[:, None]).sum(-1)
    order = np.array([linear_sum_assignment(one)[1] for one in distances])
    density = segment.density
    if density is not None:
        density = np.take_along_axis(density, order, 1)
    return segment._replace(
        bits=np.take_along_axis(segment.bits, order[..., None], 1), density=density
    )


def _joined(one: _Segment, other: _Segment) -> _Segment:
    parts = zip(one, other, strict=True)
    return _Segment(*(a if a is None else np.concatenate([a, b]) for a, b in parts))


def _described(groups) -> KnownSolutions:
    """Describe every group of draws, and fill up the places."""
    chance = np.full(PLACES, -np.inf, np.float32)
    chance[: len(groups)] = -np.log(len(groups))
    logits = []
    for part in ("density", "rate"):
        values = [getattr(group, part) for group in groups]
        logits.append(None if values[0] is None else _normal(values))
    return KnownSolutions(chance, _filled([_chances(group.bits) for group in groups]), *logits)


def _filled(rows) -> np.ndarray:
    """Stack what is known of solutions; what fills up the places is never chosen."""
    return np.resize(np.stack(rows), (PLACES, *rows[0].shape)).astype(np.float32)


def _chances(bits) -> np.ndarray:
    least = STRAY / bits[0].size
    return np.clip((bits.sum(0) + 0.5) / (len(bits) + 1.0), least, 1.0 - least)


def _normal(values) -> Normal:
    spreads = [WIDER * v.std(0) + LEAST for v in values]
    return Normal(_filled([v.mean(0) for v in values]), _filled(spreads))
