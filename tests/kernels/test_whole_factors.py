"""Moves of whole factors with the other matrix summed out leave the tempered posterior invariant.

Positions are drawn from the prior and weighed by the likelihood: the weighted mean of what a move
changes is then zero, of any function, without an error of Monte Carlo in the posterior itself.
"""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random
from scipy.special import betaln

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.kernels.boolean.collapsed import COLLAPSED_MOVES as MOVES
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.line_states import merge_lines, sides_of
from bmfjax.kernels.boolean.marginal import log_marginal_of
from bmfjax.kernels.boolean.moves import jump as jumps
from bmfjax.kernels.boolean.moves import whole_factors
from bmfjax.kernels.boolean.words import packed_data, unpack_last_axis
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK, DRAWS = 7, 3, 2, 20_000
NAN = np.nan
VALUES = np.array(
    [[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, np.nan, 0], [0, 1, 1], [1, 1, 1]]
)
SIDES = sides_of((ROWS, COLUMNS), "usage")
#: Two solutions that are not alike in anything, and a place without one.
SOLUTIONS = jumps.KnownSolutions(
    np.float32([np.log(0.5), np.log(0.5), -np.inf]),
    np.float32(
        [[[0.8, 0.6, 0.1], [0.2, 0.7, 0.9]], [[0.4, 0.3, 0.2], [0.6, 0.2, 0.1]], [[0.5] * 3] * 2]
    ),
    jumps.Normal(
        np.float32([[0.5, -0.5], [-1.0, 1.5], [0, 0]]), np.float32([[1.0, 1.5], [2, 1], [1, 1]])
    ),
    jumps.Normal(np.float32([-1.0, -2.0, 0.0]), np.float32([1.0, 1.5, 1.0])),
)
DATA = merge_lines(packed_data(BinaryMatrix(VALUES)), SIDES)
DATA = DATA._replace(solutions=jax.tree.map(jnp.asarray, SOLUTIONS))
DENSITY = BooleanDensity((ROWS, COLUMNS), RANK, basis=BitPrior((1.0, 2.0)))


def nothing(right, *arguments):
    return jnp.zeros_like(right(*arguments))


def chances_of_others(right, key, known):
    return right(key, known._replace(log_chance=jnp.array([0.0, -2.0, -9.0])))


#: What may be wrong in a move, where it is computed, and what stands in its place.
FAULTS = {
    "mixture": (whole_factors, "_log_mixture", nothing),
    "densities": (whole_factors.norm, "logpdf", nothing),
    "prior": (whole_factors, "log_prior_of_logit", nothing),
    "prior of bits": (whole_factors, "log_prior_of_bits", nothing),
    "permanent": (jumps, "log_permanent", lambda right, a: jnp.trace(a)),
    "prior of a solution": (jumps, "log_prior_of_logit", nothing),
    "chances": (jumps, "draw_candidate", chances_of_others),
}
RIGHT = dict.fromkeys(FAULTS, np.bool_(False))


def scores(move, beta, fault=None):
    """Z-scores of the mean change of functions of the position, and the share of moves taken."""
    keys, wrong = (
        random.split(random.key(0), DRAWS),
        RIGHT | ({fault: np.bool_(True)} if fault else {}),
    )
    found = compiled(move)(keys, from_prior(), beta, wrong)
    value, before, after, moved = (np.asarray(a, float) for a in found)
    weighted = np.exp(beta * (value - value.max()))[:, None] * (after - before)
    # Some functions cannot change under some moves.
    weighted = weighted[:, weighted.any(0)]
    error = weighted.std(0) / np.sqrt(DRAWS)
    return weighted.mean(0) / error, moved.mean()


@functools.cache
def from_prior():
    """Exact draws of what the moves look at, as arrays with a leading axis of draws."""
    r = np.random.default_rng(0)
    chance = r.beta(1.0, 2.0, (DRAWS, RANK, 1))
    bits = r.random((DRAWS, RANK, COLUMNS)) < chance
    position = {
        "basis": (bits << np.arange(COLUMNS)).sum(2, dtype=np.uint32)[..., None],
        "basis_density": chance[..., 0].astype(np.float32),
        "usage_density": r.random((DRAWS, RANK)).astype(np.float32),
        "flip_rate": (0.5 * r.random(DRAWS)).astype(np.float32),
    }
    return {name: jnp.asarray(leaf) for name, leaf in position.items()}


@functools.cache
def compiled(name):
    """One program of a move and all its wrong copies, which a traced number tells apart."""

    def one(key, position, beta, wrong):
        value = log_marginal_of(DENSITY, SIDES, position, DATA)
        with pytest.MonkeyPatch.context() as patch:
            for fault, (owner, attribute, other) in FAULTS.items():
                right = getattr(owner, attribute)
                patch.setattr(owner, attribute, either(right, other, wrong[fault]))
            after, then, _ = MOVES[name](DENSITY, SIDES)(key, position, value, DATA, beta)
        moved = jnp.any(after["basis"] != position["basis"])
        return value, functions(position, value), functions(after, then), moved

    return fast_jit(jax.vmap(one, (0, 0, None, None)))


def either(right, other, wrong):
    def chosen(*arguments):
        return jax.tree.map(
            lambda a, b: jnp.where(wrong, a, b), other(right, *arguments), right(*arguments)
        )

    return chosen


def functions(position, value):
    """Functions that notice where bits, densities and the likelihood go together."""
    bits = unpack_last_axis(position["basis"], COLUMNS).astype(jnp.float32)
    used = position["usage_density"]
    ones = bits.sum(1)
    return jnp.array(
        [
            value, ones.sum(), ones[0] * ones[1], (bits[0] * bits[1]).sum(), (ones == 0).sum(),
            used.sum(), used[0] * used[1], (used * ones).sum(), (used**2).sum(),
            used[0] * bits[1, 1], jnp.abs(used[0] - used[1]), (ones == COLUMNS).sum(),
            value * ones.sum(), position["flip_rate"], position["flip_rate"] * ones.sum(),
        ]
    )  # fmt: skip


#: Rebirth leaves exact draws exact in `test_boolean_moves.py` too; its program here is the largest.
REBIRTH = {"marks": pytest.mark.long}


@pytest.mark.parametrize(
    "name", [pytest.param(n, **REBIRTH if n == "rebirth" else {}) for n in MOVES]
)
def test_moves_leave_the_posterior_invariant(name):
    for beta in (1.0, 0.3, 0.0):
        found, taken = scores(name, beta)
        assert taken > 0.05
        assert np.abs(found).max() < 4 and (found**2).mean() < 2.5


@pytest.mark.parametrize(
    ("move", "fault"),
    [
        pytest.param("rebirth", "mixture", **REBIRTH),
        pytest.param("rebirth", "densities", **REBIRTH),
        pytest.param("rebirth", "prior", **REBIRTH),
        ("xor", "prior of bits"),
        ("jump", "permanent"),
        pytest.param("jump", "prior of a solution", marks=pytest.mark.long),
        pytest.param("jump", "chances", marks=pytest.mark.long),
    ],
)
def test_a_broken_move_is_noticed(move, fault):
    """Without a prior or the density of a proposal, or with factors in one order."""
    found, _ = scores(move, 1.0, fault)
    assert np.abs(found).max() > 6


def marginal(position):
    return log_marginal_of(DENSITY, SIDES, position, DATA)


def test_a_factor_that_is_kept_is_kept_as_it_is(monkeypatch):
    """To the last bit, at the ends of the densities too."""
    monkeypatch.setattr(whole_factors.random, "categorical", lambda *_: 0)
    move, value_of = fast_jit(whole_factors.rebirth(DENSITY, SIDES)), fast_jit(marginal)
    old = {name: leaf[0] for name, leaf in from_prior().items()}
    for chance in (1.0 - 2.0**-24, 0.3, 1e-30):
        old["usage_density"] = jnp.full(RANK, chance, jnp.float32)
        value = value_of(old)
        new, then, _ = move(random.key(0), old, value, DATA, 1.0)
        jax.tree.map(np.testing.assert_array_equal, (new, then), (old, value))


def test_a_position_that_is_never_proposed_stays():
    """Where the density of the proposal is rounded to zero, to the last bit."""
    old = {name: leaf[0] for name, leaf in from_prior().items()}
    old["usage_density"] = jnp.ones(RANK, jnp.float32)
    value = fast_jit(marginal)(old)
    move = fast_jit(jumps.jump(DENSITY, SIDES))
    new, then, accepted = move(random.key(0), old, value, DATA, 1.0)
    jax.tree.map(np.testing.assert_array_equal, (new, then, accepted), (old, value, 0.0))


def test_densities_of_the_kept_bits_are_integrated_out():
    position = {name: leaf[0] for name, leaf in from_prior().items()}
    ones = np.asarray(unpack_last_axis(position["basis"], COLUMNS)).sum(1)
    expected = (betaln(1 + ones, 2 + COLUMNS - ones)).sum()
    found = whole_factors.log_prior_of_bits("basis", DENSITY, position, DATA)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_one_factor_has_no_other():
    with pytest.raises(InputError, match="needs two factors"):
        whole_factors.xor(DENSITY._replace(rank=1), SIDES)
