"""Exchange of factors in a population: exact draws stay exact draws, of every member and pair."""

import functools
import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random
from scipy.special import logit, logsumexp
from scipy.stats import chi2

from bmfjax.data import BinaryMatrix
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.moves import exchange
from bmfjax.kernels.boolean.moves.exchange import exchange_move
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data, unpack_last_axis
from tests.kernels.boolean_exactness import every
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK = 4, 2, 2
BETAS = np.array([1.0, 0.5, 0.2])
VALUES = np.array([[1, 0], [1, 1], [0, 1], [1, np.nan]])
#: Prior probabilities of single bits of the basis, (column, factor); NaN: the density holds.
OWN = np.array([[0.9, np.nan], [0.2, 0.6]])
FACTORS, RATES = ("usage", "basis"), ("usage_density", "basis_density", "flip_rate")
PRIOR_DRAWS, POPULATIONS = 200_000, 6_000


@functools.cache
def prior(own=False):
    """Draws of densities, flip rates and bits, and log likelihoods: of bits, and summed over."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, PRIOR_DRAWS, 1, RANK))
    f = rng.uniform(0, 0.5, PRIOR_DRAWS)
    usage = rng.random((PRIOR_DRAWS, ROWS, RANK)) < a
    chance = np.where(np.isnan(OWN), b, OWN) if own else b
    basis = rng.random((PRIOR_DRAWS, COLUMNS, RANK)) < chance
    rows = every(1)[:, 0]
    product = np.einsum("zk,njk->nzj", rows, basis) > 0
    right = np.where(np.isnan(VALUES), 0.5, VALUES)[None, :, None] == product[:, None]
    f4 = f[:, None, None, None]
    entry = np.where(np.isnan(VALUES)[:, None], 0.0, np.where(right, np.log1p(-f4), np.log(f4)))
    bits = np.log(np.where(rows > 0, a, 1 - a)).sum(-1)
    states = entry.sum(-1)  # draw, row, state
    number = usage @ [1, 2]
    plain = np.take_along_axis(states, number[..., None], 2).sum((1, 2))
    weights = states + bits[:, None]
    log_m = logsumexp(weights, axis=2)
    share = np.exp(weights - log_m[..., None])
    drawn = (share.cumsum(2) < rng.random((PRIOR_DRAWS, ROWS, 1))).sum(2).clip(max=3)
    return {
        "usage_density": a[:, 0], "basis_density": b[:, 0], "flip_rate": f,
        "usage": usage, "basis": basis, "conditional": drawn[..., None] >> np.arange(RANK) & 1 > 0,
        "plain": plain, "collapsed": log_m.sum(1),
    }  # fmt: skip


CASES = {
    "plain": dict(collapsed=False),
    "collapsed": dict(collapsed=True, summed="usage"),
    "own odds": dict(collapsed=True, summed="usage", reach=1.5),
}


def populations(case):
    """Indices into the prior draws of exact populations, (population, member)."""
    found, rng = prior(case == "own odds"), np.random.default_rng(1)
    value = found["plain" if case == "plain" else "collapsed"]
    chosen = []
    for beta in BETAS:
        p = np.exp(beta * (value - value.max()))
        assert p.sum() ** 2 / (p**2).sum() > 0.5 * POPULATIONS
        chosen.append(rng.choice(PRIOR_DRAWS, POPULATIONS, p=p / p.sum()))
    return np.stack(chosen, 1)


@functools.cache
def moved_by(case):
    odds = logit(OWN) if case == "own odds" else None
    data = packed_data(BinaryMatrix(VALUES), basis_log_odds=odds)
    move = exchange_move(BooleanDensity((ROWS, COLUMNS), RANK), num_rounds=2, **CASES[case])

    def one(key, position, betas, value):
        states, value, accepted = move(key, State(position), data, betas, value)
        sizes = zip(FACTORS, (ROWS, COLUMNS), strict=True)
        bits = {n: unpack_last_axis(states.position[n], size) for n, size in sizes}
        return states.position | bits, value, accepted

    return fast_jit(jax.vmap(one, (0, 0, None, 0)))


@functools.cache
def before(case):
    found, chosen = prior(case == "own odds"), populations(case)
    bits = "usage" if case == "plain" else "conditional"
    names = (*RATES, "basis", "plain", "collapsed")
    return {n: found[n][chosen] for n in names} | {"usage": found[bits][chosen]}


def moved(case, betas=BETAS):
    start = before(case)
    value = np.float32(start["plain" if case == "plain" else "collapsed"])
    packed = {n: pack_last_axis(jnp.asarray(start[n].swapaxes(-1, -2))) for n in FACTORS}
    position = packed | {n: jnp.asarray(start[n], jnp.float32) for n in RATES}
    keys = random.split(random.key(2), POPULATIONS)
    after, *rest = moved_by(case)(keys, position, jnp.asarray(betas, jnp.float32), value)
    after = {n: np.asarray(v) for n, v in after.items()}
    for n in FACTORS:
        after[n] = after[n].swapaxes(-1, -2)
    return after, *map(np.asarray, rest)


def labels(position):
    """A number below 256 for every member: the basis, and what goes with its columns."""
    basis = position["basis"].reshape(*position["basis"].shape[:2], -1) @ (1 << np.arange(4))
    high = position["usage_density"] > [0.35, 0.65]
    used = position["usage"].sum(2) > [1, 2]
    return basis + 16 * (high @ [1, 2]) + 64 * (used @ [1, 2])


def p_value(first, second):
    """Of the chi-squared test that two samples have one distribution."""
    size = max(first.max(), second.max()) + 1
    table = np.stack([np.bincount(x, minlength=size) for x in (first, second)]).astype(float)
    table = table[:, table.sum(0) > 10]
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    return chi2.sf(((table - expected) ** 2 / expected).sum(), table.shape[1] - 1)


def p_values(case, after):
    """Of every member against other exact draws, and of every pair of members' bases."""
    rng = np.random.default_rng(5)
    # The same draws in new company.
    order = np.stack([rng.permutation(POPULATIONS) for _ in BETAS], 1)
    other = {n: v[order, np.arange(len(BETAS))] for n, v in before(case).items()}
    old, new = labels(other), labels(after)
    found = [p_value(old[:, m], new[:, m]) for m in range(3)]
    for i, j in itertools.combinations(range(3), 2):
        found.append(p_value(*(x[:, i] % 16 + 16 * (x[:, j] % 16) for x in (old, new))))
    return np.array(found)


@pytest.mark.parametrize(
    "case", ["plain", "collapsed", pytest.param("own odds", marks=pytest.mark.long)]
)
def test_the_product_of_tempered_posteriors_stays(case):
    after, _, accepted = moved(case)
    assert p_values(case, after).min() > 1e-3
    assert 0.2 < accepted.mean() < 0.9
    changed = (after["basis"] != before(case)["basis"]).any((2, 3))
    assert (changed.mean(0) > 0.2).all()
    # Densities travel with their columns, and nothing is lost or doubled.
    for name in RATES[:2]:
        ordered = (np.sort(x[name].reshape(POPULATIONS, -1)) for x in (before(case), after))
        np.testing.assert_array_equal(*(np.float32(x) for x in ordered))


@pytest.mark.parametrize("case", ["plain", "collapsed"])
def test_temperatures_that_have_changed_places_are_seen(case):
    assert p_values(case, moved(case, BETAS[::-1])[0]).min() < 1e-9


def test_bits_summed_out_that_are_not_drawn_anew_are_seen():
    after = moved("collapsed")[0] | {"usage": before("collapsed")["usage"]}
    assert p_values("collapsed", after).min() < 1e-9


def test_a_prior_ratio_left_out_is_seen(monkeypatch):
    monkeypatch.setattr(exchange, "log_prior_of", lambda *_: jnp.zeros(()))
    moved_by.cache_clear()
    after, *_ = moved("own odds")
    moved_by.cache_clear()
    assert p_values("own odds", after).min() < 1e-9
