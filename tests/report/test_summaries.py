"""Scalars of the whole fit: values, whatever the order of the factors, and their figures."""

import dataclasses

import numpy as np
import pytest
from matplotlib import pyplot

from bmfjax import verdict
from bmfjax.diagnostics import arviz
from bmfjax.report.summaries import (
    density_of,
    rank_figure,
    ranks,
    scalars,
    scalars_figure,
    size_figure,
    sizes_by_draws,
    summaries,
)
from tests.test_cells import CHAINS, DRAWS, fit_of

DRAWN = {"noise": np.random.default_rng(0).normal(size=(2, 40))}


def reordered(fit, order):
    packed = hasattr(fit.usage_draws, "reordered")
    draws = (fit.usage_draws, fit.basis_draws)
    usage, basis = (d.reordered(order) if packed else d[..., order] for d in draws)
    return dataclasses.replace(fit, usage_draws=usage, basis_draws=basis)


@pytest.mark.parametrize(("model", "kind"), [("ormachine", "share of ones"), ("relaxed", "mean")])
def test_factors_are_as_full_as_their_draws(model, kind):
    fit = fit_of(model)
    found = scalars(fit)
    usage, basis = (np.asarray(d, float) for d in (fit.usage_draws, fit.basis_draws))
    np.testing.assert_allclose(found[f"Usage: {kind}"], usage.mean((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found[f"Basis: {kind}"], basis.mean((2, 3)), rtol=1e-5)
    again = scalars(reordered(fit, np.array([2, 0, 1])))
    for name, values in found.items():
        np.testing.assert_allclose(again[name], values, rtol=1e-6)


def test_factors_with_ones_on_one_side_alone_are_not_counted():
    fit = fit_of("ormachine")
    usage = np.asarray(fit.usage_draws).copy()
    usage[0, 3, :, 1] = False
    usage[1, 4, :, :2] = False
    emptied = dataclasses.replace(fit, usage_draws=type(fit.usage_draws).pack(usage))
    expected = np.full((CHAINS, DRAWS), 3.0)
    expected[0, 3], expected[1, 4] = 2.0, 1.0
    np.testing.assert_array_equal(scalars(emptied)["Factors with a tile"], expected)
    assert "Factors with a tile" not in scalars(fit)  # it never moves


def test_what_moves_by_rounding_alone_is_not_shown(undrawn_figures):
    fit = fit_of("ormachine", rank=4)
    chosen = np.random.default_rng(0).integers(0, 4, np.asarray(fit.usage_draws).shape[:3])
    usage = chosen[..., None] == np.arange(4)
    assert np.ptp((usage.sum(2) / usage.shape[2]).mean(-1)) > 0  # each row has one: a fourth
    clustered = dataclasses.replace(fit, usage_draws=type(fit.usage_draws).pack(usage))
    found = scalars(clustered)
    assert "Usage: share of ones" not in found
    assert "Basis: share of ones" in found
    assert summaries(clustered).html.count("<figure") == 3


def test_what_has_no_chains_to_compare_is_not_shown():
    assert summaries(fit_of("logistic")) is None  # of an approximation
    assert summaries(fit_of("ormachine", draws=10)) is None


def test_figures_are_told_and_leave_no_state(undrawn_figures):
    before = pyplot.get_fignums()
    found = summaries(fit_of("ormachine"))
    assert found.html.count("<figure") == found.html.count("aria-label=") == 3
    assert "flip rate of zeros, flip rate of ones, usage: share of ones" in found.html
    assert pyplot.get_fignums() == before


def test_effective_draws_are_those_of_arviz():
    numbers, centre, tails = sizes_by_draws(np.stack(list(DRAWN.values()), -1))
    assert numbers.tolist() == list(range(4, 41, 4))
    for number in (numbers[3], numbers[-1]):
        some = {name: values[:, :number] for name, values in DRAWN.items()}
        table = arviz.summary(arviz.to_inference_data(some))
        for found, column in ((centre, "ess_bulk"), (tails, "ess_tail")):
            np.testing.assert_allclose(found[numbers == number][0], table[column], rtol=1e-6)


def test_figures_hold_every_chain_and_what_is_expected_of_it():
    left, right = scalars_figure(DRAWN).axes
    for chain, line in zip(DRAWN["noise"], right.lines, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), chain)
    assert len(left.lines) == 2
    (axes,) = rank_figure(DRAWN).axes
    for patch in axes.patches:  # of equally long chains all have as many draws in their bars
        values, edges, baseline = patch.get_data()
        assert abs((values - baseline).sum() - 40) < 1e-9 and edges[-1] == 80
    for line, patch in zip(axes.lines, axes.patches, strict=True):
        assert abs(line.get_ydata()[0] - patch.get_data().baseline - 4.0) < 1e-9
    (axes,) = size_figure(DRAWN).axes
    assert axes.lines[-1].get_ydata()[0] == 2 * verdict.ESS_PER_CHAIN
    assert density_of(np.full(30, 2.0))[0].tolist() == [2.0, 2.0]


def test_equal_draws_have_ranks_in_a_random_order():
    values = np.random.default_rng(1).integers(0, 3, (4, 500))
    found = ranks(values)
    assert sorted(found.ravel()) == list(range(2000))
    flat = values.ravel()[np.argsort(found.ravel())]
    assert (np.diff(flat) >= 0).all()
    for value in range(3):  # as ties in order of the chains they would be far apart
        means = [found[c][values[c] == value].mean() for c in range(4)]
        assert np.ptp(means) < 150
