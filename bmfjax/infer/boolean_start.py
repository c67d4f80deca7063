r"""Starts of Boolean chains that reach the truth: annealed, relaxed, overcomplete, pruned.

From random bits the Boolean sampler ends in poor modes: single flips cannot move a factor whose
ones lie in two tiles. In [0, 1] factors can slide. The start of every chain is therefore

1. the relaxed model, annealed from the prior (:mod:`bmfjax.infer.relaxed_start`), with a third more
   factors than asked for: a tile that two factors share, or that none has found, is rare then;
2. its means cut at one half, and some sweeps of the Boolean sampler from there;
3. without the factors whose loss costs the likelihood least, one after the other;
4. if asked for, after some sweeps with rebirths (`bmfjax.kernels.boolean.moves.rebirth`), to which
   the factors that all chains had in step 2 are known: a chain may take over what another has
   found. A chain that then explains the data far worse than the best starts from the best: of the
   chains, and of what is left when the factors of all of them are pruned together.

Up to step 3 chains are independent of each other. After step 4 they are not: chains that agree
later have all found the best of what any of them found, and R-hat cannot speak of modes that were
given up here.

A matrix with more than a few million entries is represented by rows and columns drawn at random;
bits of the others are zero at first, and the first sweeps of the chain find them.
"""

from __future__ import annotations

import contextlib
import functools
import math
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jax import random

from bmfjax.data import BinaryMatrix
from bmfjax.data.bits import unpack_on_host
from bmfjax.infer.mcmc.ormachine import known_log_odds
from bmfjax.infer.relaxed_start import ANNEAL, annealed_means
from bmfjax.infer.run import ChainRun, finish_in_time
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import ormachine, start_from
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.boolean.moves.rebirth import rebirth
from bmfjax.kernels.boolean.words import packed_data
from bmfjax.kernels.numerics.compiling import jit_once
from bmfjax.models.bits import resolve_known_bits
from bmfjax.progress import say

#: Entries of the part that represents a larger matrix, and the least length of its shorter side.
MAX_ENTRIES, LEAST_SIDE = 2**21, 256
#: Sweeps of the Boolean sampler from the cut means.
POLISH = 100
#: Sweeps in which chains may take over factors of others, and rebirths in each; how far below the
#: highest, in nats, a chain begins again from there.
EXCHANGE, REBIRTHS, MOST_BELOW = 50, 2, 20.0


def boolean_starts(
    key: jax.Array,
    data: BinaryMatrix,
    rank: int,
    num_chains: int,
    *,
    num_anneal: int = ANNEAL,
    extra: int | None = None,
    num_exchange: int = 0,
    anchors=None,
) -> list[dict]:
    """Return Boolean factors for each chain to start from.

    Parameters
    ----------
    key : jax.Array
    data : BinaryMatrix
    rank : int
    num_chains : int
    num_anneal : int
        Annealed sweeps of the relaxed sampler; another third follows at temperature one.
    extra : int, optional
        Further factors, to be pruned; default a third, at least 2.
    num_exchange : int
        Sweeps in which a chain may take over factors that others have found, and after which one
        far below the best starts from there; by default none, and starts are independent.
    anchors : (columns, number) array, optional
        The basis of known factors, 0 or 1, NaN where it is not known: these are the first. They
        join in step 2 and are never pruned.

    Returns
    -------
    list of dict
        `usage` (rows, rank) and `basis` (columns, rank) bool, one a chain. Where only
        a part of the matrix is looked at, also `flip_rate` () float, that of the part.

    Raises
    ------
    OutOfTimeError
        Where the clock that runs (`bmfjax.clock`) leaves no time for them.

    Examples
    --------
    >>> truth = np.kron(np.eye(4, dtype=bool), np.ones((11, 11), bool))
    >>> starts = boolean_starts(random.key(0), BinaryMatrix(truth), 4, 2, num_anneal=300)
    >>> [bool(((s["usage"] @ s["basis"].T) == truth).all()) for s in starts]
    [True, True]
    """
    rows, columns = representatives(data)
    part = part_of(data, rows, columns)
    many = min(rank + (max(2, math.ceil(rank / 3)) if extra is None else extra), min(part.shape))
    key_relaxed, key_polish, key_exchange = random.split(key, 3)
    anchors = np.empty((data.num_columns, 0)) if anchors is None else np.asarray(anchors, float)
    number, of_part = anchors.shape[1], anchors[columns]
    say("searching starts", "relaxed chains are annealed")
    exchanges = num_exchange > 0 and num_chains > 1
    with _compiled_beside(part, number + many, rank, num_chains, exchanges, of_part):
        relaxed = annealed_means(key_relaxed, part, many, num_chains, num_anneal)
    start = [np.asarray(mean) > 0.5 for mean in relaxed]
    values = part.dense(missing=np.nan)
    if number:
        start = [
            np.concatenate([np.broadcast_to(known, (num_chains, *known.shape)), found], axis=2)
            for known, found in zip(_used_anchors(of_part, values), start, strict=True)
        ]
    say("searching starts", "factors are cut and pruned")
    polished = _swept(key_polish, part, *start, POLISH, FlipRatePrior(num_rates=2), (), of_part)
    pruned = [
        _filled(prune(*chain, values, rank, number), rank) for chain in zip(*polished, strict=True)
    ]
    usage, basis = map(np.stack, zip(*pruned, strict=True))
    if exchanges:
        known = dict(zip(("usage", "basis"), polished, strict=True))
        best = _filled(prune(*_all_factors(polished, number), values, rank, number), rank)
        usage, basis = _exchanged(key_exchange, part, usage, basis, known, num_exchange, of_part)
        usage, basis = _without_low(usage, basis, best, values)
    starts = []
    for used, items in zip(usage, basis, strict=True):
        whole = {
            "usage": np.zeros((data.num_rows, rank), bool),
            "basis": np.zeros((data.num_columns, rank), bool),
        }
        whole["usage"][rows], whole["basis"][columns] = used, items
        # Also of columns that stand for no others.
        whole["basis"][:, :number] |= anchors == 1
        if part.shape != data.shape:
            whole["flip_rate"] = share_of_errors(values, used, items)
        starts.append(whole)
    return starts


def share_of_errors(values, usage, basis) -> float:
    """Return the share of observed entries that a product gets wrong, under a uniform prior.

    Where factors stand for a part of the matrix, entries beside it say nothing of the flips: the
    factors cover none of them. From their share of errors a chain would start at random flips,
    which lose what the factors know.
    """
    seen = ~np.isnan(values)
    covered = usage.astype(np.float32) @ basis.astype(np.float32).T > 0.5
    wrong = np.count_nonzero(seen & (covered != (values == 1)))
    return (wrong + 1.0) / (np.count_nonzero(seen) + 2.0)


def _used_anchors(anchors, values) -> tuple[np.ndarray, np.ndarray]:
    """Return usage and basis of known factors: rows use them that have more ones than zeros there.

    Unknown bits start at zero.
    """
    basis = anchors == 1
    ones, zeros = ((values == v).astype(np.float32) @ basis.astype(np.float32) for v in (1, 0))
    return ones > zeros, basis


def _filled(factors, rank: int) -> tuple[np.ndarray, ...]:
    """Add empty factors up to `rank`."""
    return tuple(np.pad(f, ((0, 0), (0, rank - f.shape[1]))) for f in factors)


def _exchanged(key, data, usage, basis, known, num_sweeps, anchors=None):
    """Return factors after sweeps in which the vectors that all chains had may be taken over.

    The `anchors` (columns, number), which are the first factors, stay.
    """
    kept = sides_of(data.shape, "longer").kept
    vectors = np.unique(np.concatenate(np.swapaxes(known[kept], 1, 2)), axis=0)
    vectors = vectors[vectors.any(1)]
    if not len(vectors):
        return usage, basis
    if _has_cores_to_spare():  # as many as were compiled for
        vectors = np.resize(vectors, (_most_vectors(known[kept]), vectors.shape[1]))
    return _swept(
        key, data, usage, basis, num_sweeps, *_with_rebirths(data, usage), anchors, vectors
    )


def _with_rebirths(data, usage):
    """Return the prior of the rates and the moves of the sweeps with rebirths."""
    density = BooleanDensity(data.shape, usage.shape[2], flip_rate=FlipRatePrior(num_rates=2))
    return density.flip_rate, [("rebirth", rebirth(density))] * REBIRTHS


def _most_vectors(factors) -> int:
    """Return how many vectors chains may have, of factors (chain, lines, rank)."""
    return factors.shape[0] * factors.shape[2]


def _has_cores_to_spare() -> bool:
    """Tell whether the CPU has nothing to do while chains run."""
    return jax.default_backend() != "cpu"


@contextlib.contextmanager
def _compiled_beside(data, many, rank, num_chains, exchanges, anchors):
    """Trace and compile the sweeps that follow meanwhile, where a device runs the chains.

    Programs are those of any data of this shape, and of any vectors that chains may take over.
    """
    if not _has_cores_to_spare():
        yield
        return

    def empty(number):
        return [np.zeros((num_chains, size, number), bool) for size in data.shape]

    def begin(*given):
        try:
            _sweeps(random.key(0), data, *given).begin_compiling()
        except Exception as error:  # the sweeps themselves will say so
            say("searching starts", f"compiling them meanwhile has failed: {error}")

    if exchanges:
        # What takes longest to compile is traced before all else: threads share an interpreter.
        kept = empty(many)[0 if sides_of(data.shape, "longer").kept == "usage" else 1]
        vectors = np.zeros((_most_vectors(kept), kept.shape[1]), bool)
        moved = _with_rebirths(data, empty(rank)[0])
        begin(*empty(rank), EXCHANGE, *moved, anchors, vectors)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(begin, *empty(many), POLISH, FlipRatePrior(num_rates=2), (), anchors)
        yield


def _all_factors(chains, held: int) -> tuple[np.ndarray, ...]:
    """Return the factors of all chains beside each other; the first `held` are those of one."""
    return tuple(
        np.concatenate([side[0], *(of_chain[:, held:] for of_chain in side[1:])], axis=1)
        for side in chains
    )


def _without_low(usage, basis, best, values) -> tuple[np.ndarray, np.ndarray]:
    """Put the best of all where chains explain the data far worse; `best` is one more to choose."""
    each = [*zip(usage, basis, strict=True), best]
    heights = np.array([_log_likelihood(*factors, values) for factors in each])
    highest = int(heights.argmax())
    chosen = np.where(heights < heights[highest] - MOST_BELOW, highest, np.arange(len(each)))[:-1]
    return tuple(np.stack([each[c][side] for c in chosen]) for side in (0, 1))


def _log_likelihood(usage, basis, values) -> float:
    """Return the log likelihood of the observed entries at the product's flip rates."""
    covered = usage.astype(np.float32) @ basis.astype(np.float32).T > 0.5
    covers, ones, zeros = _gain(values, covered), values == 1, values == 0
    nothing = _rates(ones, zeros, covered)[0]
    base = np.sum(ones) * math.log(nothing) + np.sum(zeros) * math.log1p(-nothing)
    return float(base + np.sum(covers, where=covered, dtype=float))


def prune(usage, basis, values, rank: int, held: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Drop factors down to `rank`, each time the one whose loss costs the likelihood least.

    `usage` (rows, many) and `basis` (columns, many) are bool; NaN in `values` is missing. The
    first `held` factors stay.
    """
    covers = _number_of_covers(usage, basis)
    gain = _gain(values, covers > 0)
    lost = _alone(gain, covers, usage, basis)
    kept = np.ones(usage.shape[1], bool)
    while kept.sum() > rank:
        k = held + int(np.argmin(np.where(kept, lost, np.inf)[held:]))
        kept[k] = False
        rows, columns = usage[:, k], basis[:, k]
        cells = np.ix_(rows, columns)
        covers[cells] -= 1
        # Factors that share entries with it have more to lose now: those left to one of them.
        shares = (rows @ usage) & (columns @ basis) & kept
        own = usage[np.ix_(rows, shares)], basis[np.ix_(columns, shares)]
        lost[shares] += _alone(gain[cells], covers[cells], *own)
    return usage[:, kept], basis[:, kept]


def _number_of_covers(usage, basis):
    """Return how many factors cover each entry, int32."""
    return (usage.astype(np.float32) @ basis.astype(np.float32).T).astype(np.int32)


def _alone(gain, covers, usage, basis):
    """Return the log likelihood of what each factor alone covers."""
    alone = np.where(covers == 1, gain, 0.0).astype(float)
    return np.sum(usage * (alone @ basis.astype(float)), axis=0)


def _gain(values, covered):
    """Return what covering each entry adds to the log likelihood, at the product's flip rates."""
    ones, zeros = values == 1, values == 0
    f0, f1 = _rates(ones, zeros, covered)
    for_one, for_zero = math.log((1 - f1) / f0), math.log(f1 / (1 - f0))
    return np.where(ones, for_one, np.where(zeros, for_zero, 0.0)).astype(np.float32)


def _rates(ones, zeros, covered) -> tuple[float, float]:
    """Return the flip rates of zeros and of ones of a product, under uniform priors."""

    def rate(wrong, among):
        return float(np.clip((wrong.sum() + 1.0) / (among.sum() + 2.0), 1e-6, 0.5))

    seen = ones | zeros
    return rate(ones & ~covered, seen & ~covered), rate(zeros & covered, seen & covered)


def representatives(data: BinaryMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows and columns that stand for a large matrix; take all of a small one."""
    rows, columns = data.shape
    if rows * columns > MAX_ENTRIES:
        side = max(LEAST_SIDE, math.isqrt(MAX_ENTRIES))
        rows, columns = min(rows, side), min(columns, side)
        rows = min(data.num_rows, max(rows, MAX_ENTRIES // columns))
        columns = min(data.num_columns, max(columns, MAX_ENTRIES // rows))
    rng = np.random.default_rng(0)
    return tuple(
        np.sort(rng.choice(size, few, replace=False)) if few < size else np.arange(size)
        for size, few in zip(data.shape, (rows, columns), strict=True)
    )


def part_of(data, rows, columns) -> BinaryMatrix:
    if (len(rows), len(columns)) == data.shape:
        return data
    ones, missing = data.part(rows, columns)
    if missing.all():
        missing[:] = False  # nothing of a table with few observations may be left
    return BinaryMatrix(ones, ~missing)


def _swept(key, data, *given):
    """Return the factors, bool, after some sweeps of the Boolean sampler."""
    run = _sweeps(key, data, *given)
    finish_in_time(run)
    drawn, num_chains = run.state.position, run.num_chains
    return tuple(
        np.moveaxis(
            unpack_on_host(drawn[site].reshape(-1, drawn[site].shape[-1]), size)
            .reshape(num_chains, -1, size), 1, 2,
        )
        for site, size in zip(("usage", "basis"), data.shape, strict=True)
    )  # fmt: skip


def _sweeps(
    key, data, usage, basis, num_sweeps, flip_rate, moves=(), anchors=None, vectors=None
) -> ChainRun:
    """Return chains of the Boolean sampler; they may take over `vectors` (number, lines kept)."""
    num_chains, _, rank = usage.shape
    density = BooleanDensity(data.shape, rank, flip_rate=flip_rate)
    known = None
    if anchors is not None and anchors.shape[1]:
        known = known_log_odds(resolve_known_bits(anchors, None, (data.num_columns, rank)))
    packed = packed_data(data, basis_log_odds=known)
    if vectors is not None:
        packed = packed._replace(candidates=jax.device_put(vectors))

    @jit_once
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def start(usage, basis, packed):
        return start_from(density, packed, {"usage": usage, "basis": basis})

    position = start(usage, basis, packed)
    return ChainRun(
        ormachine(density, moves=moves), key, packed, num_chains=num_chains,
        num_samples=num_sweeps, position=position, is_short=True,
    )  # fmt: skip
