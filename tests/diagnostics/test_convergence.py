"""The matrix-level estimators agree with ArviZ and behave at the edges."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from bmfjax.data.errors import InputError
from bmfjax.diagnostics import convergence
from bmfjax.diagnostics.arviz import _import_arviz, is_legacy
from bmfjax.diagnostics.convergence import (
    ess_bulk,
    ess_tail,
    is_constant,
    mcse_mean,
    nested_rhat,
    split_rhat,
    summarise,
)
from bmfjax.diagnostics.estimators import (
    normal_scores,
)

ESTIMATORS = (split_rhat, ess_bulk, ess_tail, mcse_mean)


def _autoregressive(seed, correlation, chains, draws, scalars):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(chains, draws, scalars))
    x = noise.copy()
    for t in range(1, draws):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    return x


@pytest.mark.parametrize("correlation", [-0.7, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("shape", [(2, 4), (2, 7), (4, 101), (3, 400)])
@pytest.mark.parametrize("kind", ["continuous", "ties", "boolean"])
def test_agrees_with_arviz(correlation, shape, kind):
    az = _import_arviz()
    draws = _autoregressive(1, correlation, *shape, scalars=4)
    draws = {"continuous": draws, "ties": np.round(draws, 1), "boolean": (draws > 0.4) * 1.0}[kind]
    ours = np.stack([estimate(draws) for estimate in ESTIMATORS])
    for k in np.flatnonzero(~is_constant(draws)):
        x = draws[..., k]
        # ArviZ divides by zero where the folded draws, or all half chains, are constant.
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = az.ess(x, method="tail", prob=(0.05, 0.95))
            theirs = np.array([az.rhat(x), az.ess(x), tail, az.mcse(x)], float)
        if kind == "ties" and is_legacy():
            # 0.x interpolates two equal draws to a quantile just below them, and loses both.
            theirs[2] = ours[2, k]
        np.testing.assert_allclose(ours[:, k], theirs, rtol=1e-7)


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-9, 9), sign=st.sampled_from([-1, 1]))
@settings(max_examples=20)
def test_rhat_does_not_depend_on_units_or_sign(seed, exponent, sign):
    # Powers of two: rounding would part the two middle draws, equally far from the median.
    draws = np.random.default_rng(seed).normal(size=(3, 40)).cumsum(axis=1)
    np.testing.assert_allclose(split_rhat(sign * 2.0**exponent * draws), split_rhat(draws))


@given(seed=st.integers(0, 2**32 - 1), values=st.integers(1, 30))
@settings(max_examples=20)
def test_scores_follow_the_mean_ranks(seed, values):
    from scipy.stats import norm

    draws = np.random.default_rng(seed).integers(0, values, size=(3, 2, 11)).astype(float)
    ranks = rankdata(draws.reshape(3, -1), axis=1).reshape(draws.shape)
    np.testing.assert_allclose(normal_scores(draws), norm.ppf((ranks - 0.375) / 22.25), atol=1e-12)


def test_one_chain_is_split_too():
    draws = np.random.default_rng(5).normal(size=(1, 400))
    assert split_rhat(draws) < 1.02
    assert split_rhat(draws + np.linspace(0, 5, 400)) > 1.5


def test_constants_are_marked_and_stuck_chains_are_infinite():
    draws = np.zeros((4, 10, 3), np.uint8)
    draws[0, :, 1] = 1
    draws[0, 3, 2] = 1
    np.testing.assert_array_equal(is_constant(draws), [True, False, False])
    for estimate in ESTIMATORS:
        assert np.isnan(estimate(draws))[0] and not np.isnan(estimate(draws))[1:].any()
    assert split_rhat(draws)[1] == np.inf
    assert np.isfinite(split_rhat(draws)[2])
    # A constant which a mean over draws does not give back exactly must not look like a spread.
    assert np.isnan(split_rhat(np.full((2, 7), 0.1))) and is_constant(np.full((2, 7), 0.1))
    assert split_rhat(np.stack([np.full(7, 0.1), np.full(7, 0.3)])) == np.inf


def test_a_middle_draw_that_is_left_out_is_no_silent_nan():
    draws = np.zeros((2, 5))
    draws[:, 2] = 1
    assert is_constant(draws) and np.isnan(split_rhat(draws))


def test_blocks_do_not_show(monkeypatch):
    draws = np.random.default_rng(6).normal(size=(2, 20, 3, 5))
    whole = [estimate(draws) for estimate in ESTIMATORS]
    monkeypatch.setattr(convergence, "BLOCK_ELEMENTS", 2 * 20 * 4)
    for estimate, expected in zip(ESTIMATORS, whole, strict=True):
        assert expected.shape == (3, 5)
        np.testing.assert_allclose(estimate(draws), expected, rtol=1e-12)


def test_a_matrix_takes_no_more_calls_than_a_scalar():
    """A scalar takes ArviZ 7 ms; a loop over the entries of factors would take minutes."""

    def calls(size):
        number, draws = 0, np.random.default_rng(7).random((4, 250, size), dtype=np.float32)

        def count(frame, event, arg):
            nonlocal number
            number += event == "call"

        sys.setprofile(count)
        split_rhat(draws)
        sys.setprofile(None)
        return number

    calls(1)  # what is imported at the first call is
    assert calls(512) <= calls(1) + 5


def test_summary_of_named_scalars():
    rng = np.random.default_rng(8)
    noise, stuck = rng.normal(2, 3, size=(4, 200)), np.ones((4, 200))
    table = summarise({"noise": noise, "stuck": stuck}).to_dataframe()
    assert list(table.index) == ["noise", "stuck"]
    row = table.loc["noise"]
    assert row["mean"] == pytest.approx(noise.mean()) and row["sd"] == pytest.approx(
        noise.std(ddof=1)
    )
    assert row["r_hat"] == split_rhat(noise) and row["ess_tail"] == ess_tail(noise)
    assert table["constant"].tolist() == [False, True]
    assert np.isnan(table.loc["stuck", "r_hat"]) and table.loc["stuck", "sd"] == 0


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (np.zeros((2, 3, 5)), "at least 4"),
        (np.zeros(7), "chain, draw"),
        (np.zeros((0, 7)), "chain, draw"),
        (np.array([[0.0, 1, np.nan, 2]]), "nan or inf"),
        (np.array([[0.0, 1, np.inf, 2]]), "nan or inf"),
    ],
)
def test_bad_draws_are_refused(draws, message):
    for estimate in (*ESTIMATORS, is_constant):
        with pytest.raises(InputError, match=message):
            estimate(draws)


def test_bad_summaries_are_refused():
    with pytest.raises(InputError, match="no scalar"):
        summarise({})
    with pytest.raises(InputError, match="noise has 3 axes"):
        summarise({"noise": np.zeros((2, 5, 1))})


def naive_nested(x, each):
    """Margossian et al. (2024), loop by loop, of draws (chain, draw) of one scalar."""
    groups = [x[k : k + each] for k in range(0, len(x), each)]
    centres = [g.mean() for g in groups]
    between = sum((c - np.mean(centres)) ** 2 for c in centres) / (len(groups) - 1)
    within = 0.0
    for g, centre in zip(groups, centres, strict=True):
        if each > 1:
            within += sum((chain.mean() - centre) ** 2 for chain in g) / (each - 1)
        if x.shape[1] > 1:
            squares = [sum((v - chain.mean()) ** 2 for v in chain) for chain in g]
            within += sum(squares) / (each * (x.shape[1] - 1))
    return np.sqrt(1 + between / (within / len(groups)))


@pytest.mark.parametrize("chains, length, each", [(24, 5, 6), (24, 1, 6), (24, 5, 1), (4, 3, 2)])
def test_nested_rhat_is_the_naive_one(chains, length, each):
    draws = np.random.default_rng(8).normal(size=(chains, length, 3)) * [1.0, 5.0, 0.1] + [0, 3, -1]
    draws[: 2 * each, :, 1] += 4.0
    found = nested_rhat(draws, each)
    np.testing.assert_allclose(found, [naive_nested(draws[..., k], each) for k in range(3)])


def test_nested_rhat_tells_of_starts_that_are_not_forgotten():
    """One draw of 512 chains: R-hat has nothing to go by; groups that stay apart are seen."""
    rng = np.random.default_rng(9)
    mixed, starts = rng.normal(size=(512, 1)), np.repeat(rng.normal(size=8), 64)[:, None]
    assert nested_rhat(mixed, 64) < 1.02  # (1 + 1/64)^(1/2) = 1.008 on average
    assert nested_rhat(0.5 * mixed + starts, 64) > 1.5
    # In groups of chains with starts of their own the same would be hidden.
    shuffled = rng.permutation(0.5 * mixed + starts)
    assert nested_rhat(shuffled, 64) < 1.05


def test_nested_rhat_of_what_stands_still():
    assert np.isnan(nested_rhat(np.full((4, 3), 0.1), 2))
    assert np.isinf(nested_rhat(np.repeat([[0.0], [1.0]], 3, 1)))
    for draws, each, told in (
        (np.zeros((5, 3)), 2, "5 chains and chains_each is 2"),
        (np.zeros((4, 3)), 4, "at least two groups"),
        (np.zeros((4, 1)), 1, "one draw of one chain"),
        (np.full((4, 2), np.inf), 1, "nan or inf"),
        (np.zeros(4), 1, r"as \(chain, draw"),
    ):
        with pytest.raises(InputError, match=told):
            nested_rhat(draws, each)
