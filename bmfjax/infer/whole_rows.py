r"""How probable whole new rows are, given draws of everything that rows share.

Given the shared part of a draw, :math:`\theta_s`, rows are independent. What belongs to a row alone
is summed or integrated out, so that its observed cells :math:`x_E` have a probability
:math:`p(x_E \mid \theta_s)`, jointly. All draws together are a mixture, which gives

.. math::
    p(x_Q \mid x_E) = \frac{\sum_s p(x_Q, x_E \mid \theta_s)}{\sum_s p(x_E \mid \theta_s)},

and of a single cell that is missing its chance, with draws weighted by :math:`p(x_E \mid
\theta_s)`: a row tells of the draws as the rows of the fit did.

Rows of bits have finitely many states, over which `by_states` sums. The normal coordinates of a
row of the logistic model are integrated out by importance sampling (`by_normals`), with a
multivariate t around the mode of every row; :math:`p(x_E \mid \theta_s)` is estimated without bias
(Kloek, van Dijk 1978, "Bayesian estimates of equation system parameters", Econometrica 46(1)).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from scipy.special import expit

from bmfjax.data import BinaryMatrix
from bmfjax.data.blocks import blocks
from bmfjax.data.errors import InputError
from bmfjax.infer.new_rows import EDGE, covers, independent_bits, rates_of_draws
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.precision import full_precision

#: States of a row that are summed over, at most, for every draw: of many columns, and of few; in
#: between so many that states times columns are `MAX_NUMBERS`.
STATES_OF_MANY, STATES_OF_FEW, MAX_NUMBERS = 2**14, 2**19, 2**24
#: Nodes of a row's effect reach so many standard deviations of the prior to both sides.
REACH = 6.0
#: Steps of Newton's method to the mode of a row, and the longest, in prior standard deviations.
NEWTON_STEPS, LONGEST = 8, 3.0
#: Degrees of freedom of the proposal, and points for every row and draw.
FREEDOM, NUM_POINTS = 20.0, 32
#: Rows, times points, times columns that are looked at in one go.
AT_ONCE = 8_000_000


class States(NamedTuple):
    """What a draw says of the states that a row may have.

    Attributes
    ----------
    log_prior : (states,) float64
    one : (states, columns) float64
        Probability that an observation is a one.
    """

    log_prior: np.ndarray
    one: np.ndarray


class EffectStates(NamedTuple):
    """What a draw says of the states of a row that has an effect on the log odds besides.

    Attributes
    ----------
    log_prior : (states,) float64
    level : (states, columns) float64
        Log odds of a one without the effect.
    nodes, log_weights : (nodes,) float64
        Values of the effect, and the log weights by which a sum over them is the integral.
    """

    log_prior: np.ndarray
    level: np.ndarray
    nodes: np.ndarray
    log_weights: np.ndarray

    def with_values(self) -> States:
        """Return states together with values of the effect: (values * states)."""
        one = expit(self.nodes[:, None, None] + self.level).reshape(-1, self.level.shape[1])
        return States(np.add.outer(self.log_weights, self.log_prior).ravel(), one)


class RowTerms(NamedTuple):
    """What one draw says of new rows.

    Attributes
    ----------
    log_probability : (rows,) float64
        That of all that is observed of a row, jointly.
    one : (rows, columns) float64, or None
        Probability that an observation of a cell is a one, given what is observed of its row.
    """

    log_probability: np.ndarray
    one: np.ndarray | None


# ---- draws together ------------------------------------------------------------------------------


def log_mean(terms: Iterator[RowTerms]) -> np.ndarray:
    """Return the log probability (rows,) of the mixture of all draws."""
    every = np.stack([term.log_probability for term in terms])
    return np.logaddexp.reduce(every, 0) - np.log(len(every))


def mean_chance(terms: Iterator[RowTerms]) -> np.ndarray:
    """Return the chances (rows, columns) of the mixture of all draws, each with its weight."""
    total = chance = 0.0
    highest = -np.inf
    for term in terms:
        new_highest = np.maximum(highest, term.log_probability)
        before, now = np.exp(highest - new_highest), np.exp(term.log_probability - new_highest)
        total = total * before + now
        chance = chance * np.reshape(before, (-1, 1)) + term.one * now[:, None]
        highest = new_highest
    return np.clip(chance / total[:, None], 0.0, 1.0)


def check_given(new: BinaryMatrix, given: BinaryMatrix) -> None:
    """Refuse evidence that is no part of the rows."""
    if given.num_rows != new.num_rows:
        raise InputError(
            f"given has {given.num_rows} rows and new {new.num_rows}; give the same rows, with the "
            "cells missing that are asked about"
        )
    for block in blocks(new.num_rows, new.num_columns):
        (ones, missing), (known, unknown) = _part(new, block), _part(given, block)
        wrong = (unknown == 0) & ((missing == 1) | (ones != known))
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise InputError(
                f"given says something else than new of row {block.start + i + 1}, column {j + 1} "
                "(counted from 1); what is given must be observed in new, with the same value"
            )


# ---- rows with finitely many states --------------------------------------------------------------


def by_states(
    new: BinaryMatrix, states: Iterator[States | EffectStates], chances: bool
) -> Iterator[RowTerms]:
    """Yield what every draw says of new rows, by the sum over all states of a row.

    `EffectStates` are of complete rows, and have no chances.
    """
    for own in states:
        if isinstance(own, EffectStates):
            yield RowTerms(_of_complete_rows(new, own), None)
            continue
        log_prior, one = own
        one = np.clip(one, EDGE, 1.0 - EDGE)
        log_odds, of_zeros = np.log(one) - np.log1p(-one), np.log1p(-one)
        log_probability = np.empty(new.num_rows)
        chance = np.empty(new.shape) if chances else None
        for block in blocks(new.num_rows, max(one.shape)):
            ones, missing = _part(new, block)
            score = ones @ log_odds.T + log_prior
            score += (1.0 - missing) @ of_zeros.T if missing.any() else of_zeros.sum(1)
            highest = score.max(1, keepdims=True)
            weights = np.exp(score - highest)
            total = weights.sum(1)
            log_probability[block] = np.log(total) + highest[:, 0]
            if chances:
                chance[block] = (weights @ one) / total[:, None]
        yield RowTerms(log_probability, chance)


def _of_complete_rows(new, states: EffectStates) -> np.ndarray:
    r"""Return the log probabilities (rows,) of rows without missing cells.

    With :math:`\eta_{sj}` the log odds of state s without the effect e, a row x with c ones has

    .. math:: \log p(x \mid s, e) = \sum_j x_j \eta_{sj} + c e - \sum_j \log(1 + e^{\eta_{sj} + e}),

    so that the integral over e depends on the row by c alone.
    """
    level = states.level
    rest = np.stack([_log_of_zeros(level + e) for e in states.nodes], 1)
    rest += states.log_weights
    log_probability, integrals = np.empty(new.num_rows), {}
    for block in blocks(new.num_rows, max(level.shape)):
        ones, _ = _part(new, block)
        counts, which = np.unique(ones.sum(1), return_inverse=True)
        for c in counts:
            if c not in integrals:
                integrals[c] = states.log_prior + _log_sum(rest + c * states.nodes)
        score = ones @ level.T
        score += np.stack([integrals[c] for c in counts])[which]
        log_probability[block] = _log_sum(score)
    return log_probability


def _log_of_zeros(log_odds) -> np.ndarray:
    """Return the log probability of lines of zeros."""
    size = np.abs(log_odds)
    found = np.log(1.0 + np.exp(-size))
    found += 0.5 * (size + log_odds)
    return -found.sum(1)


def _log_sum(terms) -> np.ndarray:
    """Return the log of the sum of exponentials of each line, and write over the terms."""
    highest = terms.max(1)
    terms -= highest[:, None]
    return np.log(np.exp(terms, out=terms).sum(1)) + highest


def _part(new, block):
    """Return ones and missing cells of a block of rows, (rows, columns) float64 each."""
    found = new.part(np.arange(new.num_rows)[block], np.arange(new.num_columns))
    return tuple(part.astype(float) for part in found)


def check_states(number: int, columns: int, what: str) -> None:
    """Refuse more states of a row than can be summed over; `what` they are of."""
    most = min(max(STATES_OF_MANY, MAX_NUMBERS // columns), STATES_OF_FEW)
    if number > most:
        raise InputError(
            f"whole rows are scored by a sum over the {number} states of {what}; there may be "
            f"{most}. Fit a lower rank, or score single cells by score_new()"
        )


def boolean_states(basis_draws, flip_rate, sets, log_prior: Callable, chosen) -> Iterator[States]:
    """Yield the states of rows that use `sets` (sets, rank) of Boolean factors.

    `basis_draws` (chain, draw, columns, rank), `flip_rate` (chain, draw) or (chain, draw, 2);
    ``log_prior(draw)`` (sets,), normalised or not, as `bmfjax.infer.new_rows.independent_bits`
    gives it. `chosen` are draws, by their number among those of all chains.
    """
    chains, draws = basis_draws.shape[:2]
    rates = rates_of_draws(flip_rate, chains * draws)
    for c in chosen:
        f0, f1 = rates[c]
        cover = covers(sets, basis_draws[c // draws, c % draws])
        yield States(_normalised(log_prior(c)), np.where(cover > 0.5, 1.0 - f1, f0))


def code_states(basis_draws, dispersion, sets, log_prior: Callable, chosen) -> Iterator[States]:
    """Yield the states of rows that are pulled to `sets` of codes; `dispersion` (chain, draw)."""
    draws, sizes = basis_draws.shape[1], np.ravel(dispersion).astype(float)
    for c in chosen:
        codes = 2.0 * np.asarray(basis_draws[c // draws, c % draws], float).T - 1.0
        yield States(_normalised(log_prior(c)), expit(sizes[c] * (sets @ codes)))


def effect_states(basis_draws, others, sets, log_prior: Callable, chosen) -> Iterator[States]:
    r"""Yield the states of rows that use Boolean factors and have an effect on the log odds.

    The effect, normal with precision `row_precision`, is put on evenly spaced nodes. They are not
    further apart than the standard deviation of its posterior could be small, since a cell has an
    information of at most 1/4; the trapezoidal rule is then exact to nine digits.
    """
    draws = basis_draws.shape[1]
    flat = {n: np.ravel(others[n]).astype(float) for n in ("intercept", "dispersion")}
    columns = np.reshape(others["column_effect"], (-1, basis_draws.shape[2])).astype(float)
    for c in chosen:
        nodes, of_nodes = effect_nodes(np.ravel(others["row_precision"])[c], basis_draws.shape[2])
        cover = covers(sets, basis_draws[c // draws, c % draws])
        size = flat["dispersion"][c]
        level = flat["intercept"][c] + columns[c] + np.where(cover > 0.5, size, -size)
        one = expit(nodes[:, None, None] + level).reshape(-1, cover.shape[1])
        yield States(np.add.outer(of_nodes, _normalised(log_prior(c))).ravel(), one)


def feature_states(
    basis_draws, others, density, chosen, *, complete: bool = False
) -> Iterator[States | EffectStates]:
    """Return the states of rows that have binary features, and effects where there are.

    `basis_draws` (chain, draw, columns, rank) are weights on the log odds, `density` (chain, draw,
    rank) the chances of memberships. Features that a draw does not have are left out. An effect is
    put on the nodes of `effect_states`, and counts among the states unless rows are `complete`.
    Draws with too many states are refused before the first.
    """
    basis_draws, density = (np.reshape(x, (-1, *x.shape[2:])) for x in (basis_draws, density))
    columns = np.reshape(others["column_effect"], basis_draws.shape[:2]).astype(float)
    scales = np.ravel(others["row_scale"]) if "row_scale" in others else None
    present = (basis_draws[chosen] != 0).any(1)
    present[:, 0] |= ~present.any(1)
    width, none = columns.shape[1], (np.zeros(1), np.zeros(1))
    effects = [
        none if scales is None else effect_nodes(float(scales[c]) ** -2.0, width) for c in chosen
    ]
    apart = complete and scales is not None
    number, features, nodes = max(
        ((1 if apart else len(nodes)) * 2 ** int(there.sum()), int(there.sum()), len(nodes))
        for there, (nodes, _) in zip(present, effects, strict=True)
    )
    counted = scales is not None and not apart
    and_effect = f" and {nodes} values of the effect of a row" if counted else ""
    check_states(number, width, f"{features} features{and_effect}")

    def states(c, there, effect) -> States | EffectStates:
        sets, log_prior = independent_bits(density[c, there])
        level = columns[c] + sets @ basis_draws[c][:, there].T.astype(float)
        found = EffectStates(_normalised(log_prior(0)), level, *effect)
        return found if apart else found.with_values()

    return map(states, chosen, present, effects)


def effect_nodes(precision: float, num_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes of a row's effect and their log weights, which sum to one."""
    sd = float(precision) ** -0.5
    number = 1 + int(np.ceil(2 * REACH * np.sqrt(1.0 + 0.25 * num_columns * sd**2)))
    nodes = np.linspace(-REACH, REACH, number)
    return sd * nodes, _normalised(-0.5 * nodes**2)


def _normalised(log_weights) -> np.ndarray:
    return log_weights - np.logaddexp.reduce(log_weights)


# ---- rows with normal coordinates ----------------------------------------------------------------


def by_normals(new: BinaryMatrix, draws: Iterator, chances: bool, seed: int) -> Iterator[RowTerms]:
    """Yield what every draw says of new rows, their normal coordinates integrated out.

    A draw is (loadings (columns, width), level (columns,), standard deviations (width,)): a row
    has independent normal coordinates u with these standard deviations, and the log odds
    ``loadings @ u + level``.
    """
    check_fork()
    for number, draw in enumerate(draws):
        loadings, level, sd = (jnp.asarray(part, jnp.result_type(float)) for part in draw)
        key = random.fold_in(random.key(seed), number)
        found = []
        for block in blocks(new.num_rows, max(1, NUM_POINTS * new.num_columns), most=_most(new)):
            ones, missing = _part(new, block)
            signs = jnp.asarray(np.where(missing > 0, 0.0, 2.0 * ones - 1.0), level.dtype)
            # Rows have keys of their own, so that blocks do not matter.
            rows = jnp.arange(block.start, block.start + len(ones))
            found.append(_integrated(key, rows, loadings, level, sd, signs, chances))
        log_probability, one = zip(*jax.device_get(found), strict=True)
        yield RowTerms(
            np.concatenate(log_probability).astype(float),
            np.concatenate(one).astype(float) if chances else None,
        )


def _most(new) -> int:
    return max(1, AT_ONCE // (NUM_POINTS * new.num_columns))


@functools.partial(jax.jit, static_argnames="chances")
@full_precision
def _integrated(key, rows, loadings, level, sd, signs, chances):
    """Return log probabilities (rows,) and chances (rows, columns) of rows of signs."""
    # In units of the prior's standard deviations.
    loadings = loadings * sd

    def one_row(row, signs):
        mode, factor = _mode(loadings, level, signs)
        points, log_proposal = _points(random.fold_in(key, row), mode, factor)
        log_odds = points @ loadings.T + level
        fits = jnp.where(signs != 0, jax.nn.log_sigmoid(signs * log_odds), 0.0).sum(1)
        width = loadings.shape[1]
        prior = -0.5 * (points**2).sum(1) - 0.5 * width * jnp.log(2 * jnp.pi)
        weights = fits + prior - log_proposal
        total = jax.nn.logsumexp(weights)
        one = jnp.exp(weights - total) @ jax.nn.sigmoid(log_odds) if chances else jnp.zeros(0)
        return total - jnp.log(len(points)), one

    return jax.vmap(one_row)(rows, signs)


def _mode(loadings, level, signs):
    """Return the mode of a row's coordinates, and the Cholesky factor of the precision there."""
    width = loadings.shape[1]
    seen = signs != 0

    def curvature(at):
        one = jax.nn.sigmoid(loadings @ at + level)
        weight = jnp.where(seen, one * (1.0 - one), 0.0)
        return one, jnp.linalg.cholesky(loadings.T @ (weight[:, None] * loadings) + jnp.eye(width))

    def step(_, at):
        one, factor = curvature(at)
        slope = loadings.T @ jnp.where(seen, 0.5 * (signs + 1.0) - one, 0.0) - at
        move = jax.scipy.linalg.cho_solve((factor, True), slope)
        # A long step may leave the region where the curvature holds.
        length = jnp.linalg.norm(move)
        return at + move * jnp.minimum(1.0, LONGEST / jnp.maximum(length, LONGEST))

    mode = lax.fori_loop(0, NEWTON_STEPS, step, jnp.zeros(width, loadings.dtype))
    return mode, curvature(mode)[1]


def _points(key, mode, factor):
    """Return points (point, width) of a multivariate t around a mode, and its log density."""
    width = len(mode)
    key_normal, key_gamma = random.split(key)
    normal = random.normal(key_normal, (NUM_POINTS, width), mode.dtype)
    shrink = random.gamma(key_gamma, 0.5 * FREEDOM, (NUM_POINTS,), mode.dtype) * (2.0 / FREEDOM)
    moved = normal / jnp.sqrt(shrink)[:, None]
    points = mode + jax.scipy.linalg.solve_triangular(factor, moved.T, trans=1, lower=True).T
    constant = (
        jax.scipy.special.gammaln(0.5 * (FREEDOM + width))
        - jax.scipy.special.gammaln(0.5 * FREEDOM)
        - 0.5 * width * jnp.log(FREEDOM * jnp.pi)
        + jnp.log(jnp.diag(factor)).sum()
    )
    tail = -0.5 * (FREEDOM + width) * jnp.log1p((moved**2).sum(1) / FREEDOM)
    return points, constant + tail
