"""Births, splits, merges and tempered chains leave the posterior invariant: by enumeration.

All 2^16 states of a 4 x 4 matrix at rank 2. The strictest test starts from exact draws: a move that
leaves the posterior invariant changes no mean, and one in detailed balance goes from any class of
states to any other as often as back.
"""

import contextlib
import functools
from typing import NamedTuple
from unittest import mock

import jax
import numpy as np
import pytest
import scipy.stats
from jax import lax, random
from scipy.special import betaln

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.moves import birth as births
from bmfjax.kernels.boolean.moves import collapsed_line as collapsed_lines
from bmfjax.kernels.boolean.moves import proposals as factor_proposals
from bmfjax.kernels.boolean.moves import rebirth as rebirths
from bmfjax.kernels.boolean.moves import split_merge as split_merges
from bmfjax.kernels.boolean.moves import summed_group as groups
from bmfjax.kernels.boolean.words import packed_data
from tests.kernels.exactness import fast_jit
from tests.kernels.test_precision import products_of

SIZE, RANK = 4, 2
VALUES = np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1]], float)
NAN, INF = np.nan, np.inf
#: Fixed, soft and free bits of the usage.
GIVEN = np.array([[NAN, NAN], [INF, NAN], [0.7, -INF], [NAN, -1.1]])
#: Prior of the share of the factors that are there.
PRESENCE = (1.5, 1.0)


class Case(NamedTuple):
    """A density on 4 x 4, its data and its temperature."""

    density: BooleanDensity
    values: np.ndarray
    given: np.ndarray | None
    power: float

    def data(self):
        return packed_data(BinaryMatrix(self.values), self.given)


def new_case(name) -> Case:
    """The case of this name, such as "given", or "given at 0.5", another inverse temperature."""
    name, _, power = name.partition(" at ")
    if power:
        return new_case(name)._replace(power=float(power))
    if name == "fixed":
        flip = FlipRatePrior(2, value=(0.15, 0.25))
        density = density_of(BitPrior(None, 0.4), BitPrior(None, 0.3), flip)
        return Case(density, VALUES, None, 1.0)
    values = VALUES.copy()
    values[0, 0] = values[2, 3] = NAN
    usage = BitPrior((2.0, 3.0), presence=PRESENCE if name == "presence" else None)
    density = density_of(usage, BitPrior(), FlipRatePrior(value=0.15))
    return Case(density, values, GIVEN if name == "given" else None, 0.8)


def density_of(usage, basis, flip):
    return BooleanDensity((SIZE, SIZE), RANK, usage, basis, flip)


# ---- the posterior -----------------------------------------------------------------------------


@functools.cache
def bits_of_states():
    """Usage (state, rank, rows) and basis (state, rank, columns) of all states."""
    bits = (np.arange(2**16)[:, None] >> np.arange(16)) & 1
    return bits.reshape(-1, 2, RANK, SIZE).transpose(1, 0, 2, 3)


@functools.cache
def posterior(name):
    """Log probability of every state, densities integrated out, written out in float64."""
    case = new_case(name)
    usage, basis = bits_of_states()
    product = np.einsum("ski,skj->sij", usage, basis) > 0
    f0, f1 = np.broadcast_to(case.density.flip_rate.value, 2)
    of_one = np.where(product, np.log(1 - f1), np.log(f0))
    of_zero = np.where(product, np.log(f1), np.log(1 - f0))
    log = np.select([case.values == 1, case.values == 0], [of_one, of_zero], 0.0).sum((1, 2))
    log = case.power * log
    log += log_prior(case.density.usage, usage, case.given)
    log += log_prior(case.density.basis, basis, None)
    return log - scipy.special.logsumexp(log)


def log_prior(prior, bits, given):
    """(state,) of the bits (state, rank, lines) of a factor matrix."""
    free = np.ones(bits.shape[1:], bool) if given is None else np.isnan(given.T)
    ones, size = (bits * free).sum(2), free.sum(1)
    if prior.beta is None:
        return (ones * np.log(prior.density) + (size - ones) * np.log1p(-prior.density)).sum(1)
    a, b = prior.beta
    total = betaln(a + ones, b + size - ones) - betaln(a, b)
    if prior.presence is not None:
        return scipy.special.logsumexp(log_prior_there(prior, ones, total), axis=0)
    total = total.sum(1)
    if given is not None:
        odds = np.where(free, 0.0, given.T)
        own = np.where(bits == 1, 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
        with np.errstate(divide="ignore"):
            total += np.where(free, 0.0, np.log(own)).sum((1, 2))
    return total


def log_prior_there(prior, ones, log_present):
    """(4, state) for each way in which two factors are there, the share of these integrated out."""
    (a, b), total = prior.presence, []
    for there in THERE:
        number = there.sum()
        of_bits = np.where(there, log_present, np.where(ones == 0, 0.0, -np.inf)).sum(1)
        total.append(betaln(a + number, b + RANK - number) - betaln(a, b) + of_bits)
    return np.stack(total)


THERE = np.array([[False, False], [False, True], [True, False], [True, True]])


@functools.cache
def functionals(name):
    """(functional, state): what the means are taken of."""
    usage, basis = bits_of_states()
    log = posterior(name)
    product = np.einsum("ski,skj->sij", usage, basis) > 0
    return np.stack(
        [
            np.where(np.isfinite(log), log, 0.0),
            usage[:, 0].sum(1),
            basis[:, 1].sum(1),
            (usage[:, 0] & usage[:, 1]).sum(1),
            (basis[:, 0] & basis[:, 1]).sum(1),
            (usage.sum(2) * basis.sum(2) == 0).sum(1),
            product.sum((1, 2)),
            product[:, 1, 1],
            (usage * basis)[:, 0].sum(1) * usage[:, 1].sum(1),
        ]
    ).astype(float)


def state_of(position):
    """Numbers of the states of positions (..., rank, 1)."""
    usage, basis = (np.asarray(position[s])[..., 0].astype(int) for s in ("usage", "basis"))
    return usage[..., 0] + 16 * usage[..., 1] + 256 * basis[..., 0] + 4096 * basis[..., 1]


def position_of(case, states):
    """Positions of states; densities drawn from their conditionals."""
    r = np.random.default_rng(7)
    usage, basis = (b[states] for b in bits_of_states())
    words = [(b << np.arange(SIZE)).sum(2).astype(np.uint32) for b in (usage, basis)]
    position = {"usage": words[0][..., None], "basis": words[1][..., None]}
    rate = np.float32(case.density.flip_rate.value)
    position["flip_rate"] = np.broadcast_to(rate, (len(states), *rate.shape))
    for site, bits in (("usage", usage), ("basis", basis)):
        beta = getattr(case.density, site).beta
        if beta is None:
            continue
        free = np.ones(bits.shape[1:], bool)
        if site == "usage" and case.given is not None:
            free = np.isnan(case.given.T)
        ones = (bits * free).sum(2)
        drawn = r.beta(beta[0] + ones, beta[1] + free.sum(1) - ones)
        if (presence := getattr(case.density, site).presence) is not None:
            log_present = betaln(beta[0] + ones, beta[1] + SIZE - ones) - betaln(*beta)
            log = log_prior_there(getattr(case.density, site), ones, log_present)
            there = THERE[np.argmax(log + r.gumbel(size=log.shape), 0)]
            share = r.beta(presence[0] + there.sum(1), presence[1] + RANK - there.sum(1))
            position[f"{site}_presence"] = share.astype(np.float32)
            drawn = np.where(there, drawn, 0.0)
        drawn = np.where(drawn > 0, drawn.clip(1e-30, 1 - 1e-7), 0.0)
        position[f"{site}_density"] = drawn.astype(np.float32)
    return position


# ---- one move from exact draws -----------------------------------------------------------------

#: One program of this many chains serves the moves from exact draws and the long runs.
STEPS, CHAINS = 80, 200
DRAWS = STEPS * CHAINS
MOVES = {
    "birth": lambda density: births.birth_move(density, num_patterns=2),
    "split and merge": split_merges.split_merge,
    "collapsed": collapsed_lines.collapsed,
    "collapsed of basis": lambda density: collapsed_lines.collapsed(
        density, block_size=1, summed="basis"
    ),
    "collapsed of few lines": lambda density: of_few_lines(density),
    "split, merge and rebirth": lambda density: split_merges.split_merge(density, num_patterns=2),
    "collapsed rebirth": lambda density: rebirths.rebirth(density, num_patterns=2),
    "collapsed rebirth of known": lambda density: rebirths.rebirth(
        density, num_patterns=2, summed="basis"
    ),
    "collapsed rebirth of one": lambda density: rebirths.rebirth(
        density, num_patterns=2, block_size=1, candidates=VALUES[:2] == 1
    ),
}


def of_few_lines(density):
    """Visit some lines, as where all are too much work."""
    with mock.patch.object(collapsed_lines, "WORK", 1):
        return collapsed_lines.collapsed(density, summed="usage")


#: What may be left out of the acceptance ratio, and where it is computed.
TERMS = {
    "proposal": (factor_proposals, "log_proposal"),
    "target": (factor_proposals, "log_target"),
    "parts": (split_merges._Parts, "log_density"),
    "pair": (split_merges, "_log_merge_pair"),
    "collapsed proposal": (groups.Own, "log_proposal"),
    "collapsed target": (groups.Own, "log_prior"),
}


@pytest.mark.parametrize("move", ["collapsed", "split, merge and rebirth", "collapsed rebirth"])
def test_the_products_of_a_move_are_full(move):
    """A difference of two log densities by a product would be rounded on some devices."""
    case = new_case("learned")
    position = jax.tree.map(lambda a: a[0], position_of(case, np.zeros(1, int)))
    f = MOVES[move](case.density)
    assert products_of(f, random.key(0), position, case.data(), np.float32(1.0)) == []


@functools.cache
def program(name, move):
    """``run(key, position, draw, keep, power) -> (position, probability)`` of one chain.

    `keep` 0 leaves a term out of the ratio; `draw` False leaves the densities as they are.
    """
    case = new_case(name)
    data, right_draw, right_draws = case.data(), births.draw_density, groups.draw_densities

    @fast_jit
    def run(key, position, draw, keep, power):
        def densities(key, site, density, position, data):
            if getattr(density, site).beta is None:
                return {}
            f = lambda key, position: right_draw(key, site, density, position, data)  # noqa: E731
            names = (f"{site}_density", f"{site}_presence")
            kept = {n: position[n] for n in names if n in position}
            return lax.cond(draw, f, lambda *_: kept, key, position)

        def of_both(key, density, position, data):
            f = lambda key, position: right_draws(key, density, position, data)  # noqa: E731
            kept = {n: v for n, v in position.items() if n.endswith(("_density", "_presence"))}
            return lax.cond(draw, f, lambda *_: kept, key, position)

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(births, "draw_density", densities))
            stack.enter_context(mock.patch.object(groups, "draw_densities", of_both))
            for term, (owner, attribute) in TERMS.items():
                right = getattr(owner, attribute)
                wrong = functools.partial(scaled, right, keep[term])
                stack.enter_context(
                    mock.patch.object(owner, attribute, lambda *a, wrong=wrong: wrong(*a))
                )
            return MOVES[move](case.density)(key, position, data, power)

    return run


def scaled(f, factor, *arguments):
    return factor * f(*arguments)


RIGHT = {term: np.float32(1.0) for term in TERMS}


@functools.cache
def moved(name, move, fault=None):
    """States before and after one move, positions after, and acceptance probabilities."""
    before = np.random.default_rng(5).choice(2**16, DRAWS, p=np.exp(posterior(name)))
    starts = jax.tree.map(
        lambda a: a.reshape(STEPS, CHAINS, *a.shape[1:]), position_of(new_case(name), before)
    )
    keys = random.split(random.key(5), (STEPS, CHAINS))
    keep = RIGHT | ({fault: np.float32(0.0)} if fault in TERMS else {})
    run = jax.vmap(program(name.partition(" at ")[0], move), (0, 0, None, None, None))
    # Densities change no bits and no probability of one move.
    draw, power = name == "learned" and fault is None, new_case(name).power
    power *= 0.5 if fault == "power" else 1.0
    starts["flip_rate"] = starts["flip_rate"] * (1.5 if fault == "rates" else 1.0)
    found = [
        run(key, jax.tree.map(lambda a, i=i: a[i], starts), draw, keep, power)
        for i, key in enumerate(keys)
    ]
    after, accepted = jax.tree.map(lambda *a: np.concatenate(a), *found)
    return before, state_of(after), after, accepted


def invariance_scores(name, before, after):
    """How far the means of the functionals moved, in standard errors."""
    f = functionals(name)
    change = f[:, after] - f[:, before]
    error = change.std(1) / np.sqrt(DRAWS)
    return change.mean(1) / np.where(error > 0, error, 1.0)


def balance_p_value(name, before, after, classes=12):
    """Whether as many go from class to class as back; the classes are equally probable."""
    probability = np.exp(posterior(name))
    order = np.argsort(functionals(name)[6] + 1e-3 * posterior(name).clip(-500))
    place = np.empty(len(order), int)
    place[order] = (np.cumsum(probability[order]) * classes).astype(int).clip(0, classes - 1)
    flow = np.zeros((classes, classes))
    np.add.at(flow, (place[before], place[after]), 1)
    there, back = flow[np.triu_indices(classes, 1)], flow.T[np.triu_indices(classes, 1)]
    seen = there + back >= 10
    square = (there - back)[seen] ** 2 / (there + back)[seen]
    return scipy.stats.chi2.sf(square.sum(), seen.sum())


@pytest.mark.parametrize(
    ("name", "move"),
    [
        pytest.param("fixed", "split and merge", marks=pytest.mark.long),
        pytest.param("given", "split, merge and rebirth", marks=pytest.mark.long),
        ("learned", "birth"),
        ("learned", "split and merge"),
        pytest.param("presence", "birth", marks=pytest.mark.long),
        pytest.param("presence", "split and merge", marks=pytest.mark.long),
        ("presence", "collapsed"),
        ("given", "collapsed"),
        ("given", "collapsed of basis"),
        ("fixed", "collapsed of few lines"),
        pytest.param("given", "collapsed rebirth", marks=pytest.mark.long),
        pytest.param("given", "collapsed rebirth of known", marks=pytest.mark.long),
        ("learned", "collapsed rebirth of one"),
    ],
)
def test_a_move_leaves_exact_draws_exact(name, move):
    before, after, _, accepted = moved(name, move)
    assert np.isfinite(posterior(name)[after]).all()  # no fixed bit has changed
    assert (before != after).mean() > 0.02 and accepted.mean() > 0.02
    if move == "collapsed of few lines":  # one, where all are too much work
        columns = np.not_equal(*(bits_of_states()[1][states] for states in (before, after)))
        assert set(columns.any(1).sum(1)) == {0, 1}
    assert np.abs(invariance_scores(name, before, after)).max() < 4.0
    assert balance_p_value(name, before, after) > 1e-3


@pytest.mark.parametrize(
    ("move", "fault"),
    [
        ("birth", "proposal"),
        ("birth", "target"),
        ("split and merge", "proposal"),
        ("split and merge", "parts"),
        ("split and merge", "pair"),
        ("collapsed rebirth of one", "collapsed proposal"),
        ("collapsed rebirth of one", "collapsed target"),
        ("collapsed of basis", "power"),
        ("collapsed of basis", "rates"),
    ],
)
def test_a_ratio_without_one_of_its_terms_is_found_out(move, fault):
    name = "learned" if fault in TERMS else "given"
    before, after, *_ = moved(name, move, fault)
    assert np.abs(invariance_scores(name, before, after)).max() > 6.0


@pytest.mark.parametrize("move", ["birth", "split and merge", "collapsed rebirth of one"])
def test_the_densities_follow_their_factors(move):
    """Of exact draws the density times the number of ones has a mean that is known."""
    name = "learned"
    _, _, after, _ = moved(name, move)
    probability = np.exp(posterior(name))
    for site, bits in zip(("usage", "basis"), bits_of_states(), strict=True):
        a, b = getattr(new_case(name).density, site).beta
        ones = bits.sum(2)
        expected = probability @ (ones * (a + ones) / (a + b + SIZE))
        now = np.asarray(after[f"{site}_density"]) * ones[state_of(after)]
        error = now.std(0) / np.sqrt(DRAWS)
        assert (np.abs(now.mean(0) - expected) < 4.0 * error).all()


# ---- chains ------------------------------------------------------------------------------------


def test_what_cannot_be_moved_is_refused():
    single = BooleanDensity((4, 4), 1)
    with pytest.raises(InputError, match="two factors"):
        split_merges.split_merge(single)
    with pytest.raises(InputError, match="num_patterns"):
        births.birth_move(single, num_patterns=0)
    with pytest.raises(InputError, match="num_patterns"):
        split_merges.split_merge(BooleanDensity((4, 4), 2), num_patterns=-1)
    with pytest.raises(InputError, match="no bits"):
        births.birth_move(BooleanDensity((0, 4), 1))
    with pytest.raises(InputError, match="block_size is 9"):
        collapsed_lines.collapsed(single, block_size=9)
    with pytest.raises(InputError, match="summed is 'rows'"):
        collapsed_lines.collapsed(single, summed="rows")
