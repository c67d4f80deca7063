"""What the trial of the verdict holds to be true."""

import types

import numpy as np
import pytest

from benchmarks.calibration import verdict_trial


def fit_of(model, usage, basis):
    return types.SimpleNamespace(model=model, usage=usage, basis=basis, rank=usage.shape[1])


@pytest.mark.parametrize(("model", "same"), [("features", True), ("ormachine", False)])
def test_a_feature_that_is_turned_round_is_found_again(model, same):
    """The rows that lack it, with the other signs, say the same of every entry up to intercepts."""
    rng = np.random.default_rng(0)
    usage, basis = (rng.random((40, 2)) < 0.5).astype(float), rng.normal(size=(9, 2))
    turned = usage[:, ::-1].copy(), basis[:, ::-1].copy()
    turned[0][:, 0], turned[1][:, 0] = 1.0 - turned[0][:, 0], -turned[1][:, 0]
    pair = fit_of(model, usage, basis), fit_of(model, *turned)
    assert verdict_trial.found_again(*pair) == [True, same]
    # With its rows, and the other signs, it says something else.
    other = fit_of(model, usage, basis * (1.0, -1.0))
    assert not verdict_trial.found_again(pair[0], other)[1]


def test_predictions_that_are_held_wrongly_are_told_apart_by_what_shows_it():
    scalars = {"num_chains": 4, "chains_apart": 0.0, "mc_error": 0.02, "factors_agreeing": 1.0}
    fit = {"judged": {"scalars": scalars}, "predictions": False, "factors": {}, "by_chance": 0.05}
    cases = {
        "one": {"fits": [fit | {"calibration_error": 0.06, "apart": 0.0}]},
        "two": {"fits": 2 * [fit | {"calibration_error": 0.04, "apart": 0.2}]},
        "right": {"fits": [fit | {"predictions": True, "calibration_error": 0.0, "apart": 0.0}]},
    }
    assert [row["failed"] for row in verdict_trial.failed(cases)] == [1, 2]
    (row,) = (
        r for r in verdict_trial.counted(cases)
        if (r["matrices"], r["part"]) == ("all", "predictions")
    )  # fmt: skip
    assert (row["holds"], row["holds, wrongly"]) == (4, 3)


def test_a_mean_of_two_modes_is_found_again_and_no_chain_has_it():
    """Two of four chains have one tile, two another, as in the other fit, so that means agree."""
    first, second = np.eye(6)[:, :1] + np.eye(6)[:, 1:2], np.eye(6)[:, 2:3] + np.eye(6)[:, 3:4]
    draws = np.stack([first, first, second, second])[:, None]
    halves = fit_of("ormachine", draws.mean((0, 1)), draws.mean((0, 1)))
    halves.usage_draws = halves.basis_draws = draws
    assert verdict_trial.found_again(halves, halves) == [True]
    assert verdict_trial.in_chains(halves, halves) == [0.0]
    three = np.stack([first, first, first, second])[:, None]
    most = fit_of("ormachine", three.mean((0, 1)), three.mean((0, 1)))
    most.usage_draws = most.basis_draws = three
    assert verdict_trial.in_chains(most, most) == [0.75]
    fit = {
        "judged": {"scalars": {"num_chains": 4, "factors_holding": ["1"], "factors_differing": []}},
        "predictions": True, "factors": {"1": True}, "in_chains": {"1": 0.0},
    }  # fmt: skip
    parts = {name: (said, truth) for name, said, truth in verdict_trial.parts_of(fit)}
    assert parts["factor"] == ("holds", True)
    assert parts[verdict_trial.BY_CHAINS] == ("holds", False) and "number" not in parts
    for bounded in (False, True):  # the other fit has as many as are allowed, too, and no more
        fit["judged"]["scalars"] |= {"rank": 6, "rank_bounded": bounded}
        parts = {name for name, *_ in verdict_trial.parts_of(fit | {"number": True})}
        assert ("number" in parts) is not bounded


def test_a_number_is_held_to_the_range_that_is_said_of_it():
    rng = np.random.default_rng(0)
    wide, narrow = (rng.choice(numbers, (4, 100)) for numbers in ([3, 4, 5], [4, 4]))
    assert verdict_trial.inside(wide, narrow) == 1.0
    assert verdict_trial.inside(narrow, wide) == np.mean(wide == 4) < verdict_trial.LEAST_INSIDE
