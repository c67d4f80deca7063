"""Probabilities of whole new rows against enumeration and quadrature."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

import bmfjax
from bmfjax.data import InputError
from bmfjax.families.logistic import ExactLogisticFit
from bmfjax.infer import whole_rows
from bmfjax.posterior.packed import PackedDraws
from tests.test_cells import fit_of
from tests.test_ranks import boolean_fit

NAN = np.nan
ROWS = np.array([[1, 0, 1, 1, 0, 0], [0, 0, 1, NAN, 1, 1]])
GIVEN = np.array([[1, 0, NAN, NAN, 0, NAN], [NAN, NAN, 1, NAN, NAN, 1]])


def completions(row):
    """Every way to fill in the missing cells of a row."""
    hidden = np.flatnonzero(np.isnan(row))
    for bits in itertools.product([0.0, 1.0], repeat=len(hidden)):
        filled = row.copy()
        filled[hidden] = bits
        yield filled


def check_against_mixture(fit, probability, rows=ROWS, given=GIVEN, tolerance=1e-6):
    """Scores and chances of the mixture of all draws, from `probability(row)` of complete rows.

    Cells that nobody observes are summed over one value after the other.
    """
    p_whole, p_given = (
        np.array([sum(probability(f) for f in completions(row)) for row in some])
        for some in (rows, given)
    )
    np.testing.assert_allclose(fit.score_rows(rows), np.log(p_whole), atol=tolerance)
    found = fit.score_rows(rows, given)
    np.testing.assert_allclose(found, np.log(p_whole / p_given), atol=tolerance)
    chance = fit.complete(given)
    for i, row in enumerate(given):
        one = sum(probability(f) * f for f in completions(row)) / p_given[i]
        np.testing.assert_allclose(chance[i], one, atol=tolerance)


def mixture_of_bits(fit, one_given, density):
    """p(row) averaged over draws and summed over the sets of factors, term by term.

    ``one_given(draw, z)`` (columns,) is the probability of a one of a row with bits z.
    """

    def probability(row):
        found = []
        for draw, p in enumerate(np.reshape(density, (-1, fit.rank))):
            total = 0.0
            for z in itertools.product([0, 1], repeat=fit.rank):
                one, prior = one_given(draw, np.array(z)), np.prod(np.where(z, p, 1 - p))
                total += prior * np.prod(np.where(row == 1, one, 1 - one))
            found.append(total)
        return np.mean(found)

    return probability


def test_whole_rows_of_boolean_factors_are_the_enumeration():
    fit, basis, others = boolean_fit()
    rates = others["flip_rate"][0].astype(float)

    def one_given(draw, z):
        f0, f1 = rates[draw]
        return np.where((basis[0, draw] & z.astype(bool)).any(1), 1 - f1, f0)

    check_against_mixture(fit, mixture_of_bits(fit, one_given, others["usage_density"]))


def test_draws_count_by_what_they_say_of_the_known_cells():
    """One draw has its only factor in the first column, the other in no column but the second."""
    basis = np.array([[[1], [1], [0]], [[0], [0], [1]]], bool)[None]
    rates = np.full((1, 2), 0.01, np.float32)
    fit = dataclasses.replace(
        boolean_fit(1, 2, 3)[0],
        basis_draws=PackedDraws.pack(basis),
        other_draws={"flip_rate": rates, "usage_density": np.full((1, 2, 1), 0.5, np.float32)},
    )
    # A one in the first column has probability 0.5 under the first draw, and 0.01 under the other.
    one = (0.5 * 0.99**2 + 0.5 * 0.01**2 + 0.01 * 0.01) / (0.5 + 0.01)
    assert fit.complete([[1, NAN, NAN]])[0, 1] == pytest.approx(one, rel=1e-5)


def test_whole_rows_of_the_hamming_machine_are_the_enumeration():
    of_bits, _, others = boolean_fit(columns=3)
    fit = fit_of("hamming", of_bits.data, rows=4, columns=3, draws=3, rank=2)
    fit = dataclasses.replace(
        fit,
        basis_draws=of_bits.basis_draws,
        usage_draws=of_bits.usage_draws,
        other_draws={
            "dispersion": fit.other_draws["dispersion"][:1],
            "usage_density": others["usage_density"],
        },
    )
    size = fit.other_draws["dispersion"][0]

    def one_given(draw, z):
        return expit(size[draw] * ((2.0 * np.asarray(fit.basis_draws[0, draw]) - 1.0) @ z))

    probability = mixture_of_bits(fit, one_given, fit.other_draws["usage_density"])
    check_against_mixture(fit, probability, ROWS[:, :3], GIVEN[:, :3])


# ---- the logistic model --------------------------------------------------------------------------


def logistic_fit(draws=40):
    """A fit of one factor and row effects with known draws, one and the same `draws` times."""
    rng = np.random.default_rng(4)
    shared = {"bias": -0.4, "column_effect": rng.normal(size=6)}
    loadings = rng.normal(size=(6, 1)) * 2
    fit = dataclasses.replace(
        fit_of("logistic"),
        data=bmfjax.BinaryMatrix(rng.random((4, 6)) < 0.5),
        usage_draws=np.zeros((1, draws, 4, 1), np.float32),
        basis_draws=np.tile(loadings.astype(np.float32), (1, draws, 1, 1)),
        other_draws={
            "bias": np.full((1, draws), shared["bias"]),
            "column_effect": np.tile(shared["column_effect"], (1, draws, 1)),
            "row_effect": np.zeros((1, draws, 4)),
        },
        settings={"priors": {"scale": 0.8}},
        approximation={},
    )
    return fit, loadings, shared["column_effect"] + shared["bias"]


def test_whole_rows_of_the_logistic_model_are_the_quadrature():
    fit, loadings, level = logistic_fit()
    grid = np.linspace(-6, 6, 161)
    u, a = np.meshgrid(0.8 * grid, 0.8 * grid)
    weights = (norm.pdf(grid)[:, None] * norm.pdf(grid)).ravel() * (grid[1] - grid[0]) ** 2
    one = expit(np.outer(u.ravel(), loadings[:, 0]) + a.reshape(-1, 1) + level)

    def probability(row):
        return weights @ np.prod(np.where(row == 1, one, 1 - one), 1)

    check_against_mixture(fit, probability, tolerance=0.04)
    estimates = [fit.score_rows(ROWS, num_draws=1, seed=s) for s in range(40)]
    assert np.std(estimates, 0).max() < 0.2  # of one draw, with 32 points
    blocked = fit.score_rows(np.repeat(ROWS, 3, 0)[[0, 4]])
    assert blocked[0] == pytest.approx(fit.score_rows(ROWS)[0], rel=1e-5)


def test_precisions_that_were_learned_are_those_of_new_rows():
    fit, _, _ = logistic_fit(2)
    learned = {"relevance_shape": np.array([[8.0]]), "relevance_rate": np.array([[2.0]])}
    assert dataclasses.replace(fit, approximation=learned)._prior_usage_sd(0) == pytest.approx(0.5)
    assert fit._prior_usage_sd(0) == pytest.approx(0.8)
    assert issubclass(ExactLogisticFit, bmfjax.Fit) and fit._loadings(0, 0)[0].shape == (6, 2)


# ---- refusals ------------------------------------------------------------------------------------


def test_evidence_that_contradicts_the_rows_is_refused():
    fit = boolean_fit()[0]
    wrong = GIVEN.copy()
    wrong[1, 2] = 0
    with pytest.raises(InputError, match="of row 2, column 3 "):
        fit.score_rows(ROWS, wrong)
    more = ROWS.copy()
    more[1, 3] = 1
    with pytest.raises(InputError, match="of row 2, column 4 "):
        fit.score_rows(ROWS, more)
    with pytest.raises(InputError, match="given has 1 rows and new 2"):
        fit.score_rows(ROWS, GIVEN[:1])
    with pytest.raises(InputError, match="num_draws"):
        fit.score_rows(ROWS, num_draws=0)


def test_features_that_a_draw_does_not_have_cost_no_states():
    """Of thirty features in all, two of which have columns."""
    rng = np.random.default_rng(0)
    basis = np.zeros((1, 1, 6, 30), np.float32)
    basis[..., [4, 29]] = rng.normal(size=(6, 2))
    density, columns = rng.uniform(0.2, 0.8, (1, 1, 30)), rng.normal(size=(1, 1, 6))
    others = {"column_effect": columns}
    (one,) = whole_rows.feature_states(basis, others, density, [0])
    (found,) = whole_rows.by_states(bmfjax.BinaryMatrix(ROWS[:1]), [one], False)
    exact = 0.0
    for z in itertools.product([0, 1], repeat=2):
        chance = expit(columns[0, 0] + basis[0, 0][:, [4, 29]] @ z)
        prior = np.where(z, density[0, 0, [4, 29]], 1 - density[0, 0, [4, 29]]).prod()
        exact += prior * np.where(ROWS[0] == 1, chance, 1 - chance).prod()
    assert found.log_probability[0] == pytest.approx(np.log(exact))
    (one,) = whole_rows.feature_states(0 * basis, others, density, [0])
    np.testing.assert_allclose(one.one, np.tile(expit(columns[0]), (2, 1)))
    with pytest.raises(InputError, match="states of 30 features; there may be 524288"):
        whole_rows.feature_states(basis + 1, others, density, [0])
    # Of two draws the later has too many, before a state is formed; with effects sooner.
    both = np.concatenate([basis, basis], 1)
    both[0, 1, 0, :15] = 1.0
    two = {n: np.concatenate([v, v], 1) for n, v in others.items()}
    density = np.concatenate([density, density], 1)
    whole_rows.feature_states(both, two, density, [0, 1])
    two["row_scale"] = np.array([[9.0, 1.0]])
    whole_rows.feature_states(both, two, density, [0])
    with pytest.raises(InputError, match="states of 16 features and 20 values of the effect of"):
        whole_rows.feature_states(both, two, density, [0, 1])


def test_effects_of_complete_rows_are_integrated_out_state_by_state():
    """Against states together with values of the effect; and of so many as these may not be."""
    rng = np.random.default_rng(2)
    basis = 2.0 * rng.normal(size=(1, 2, 6, 3)).astype(np.float32)
    density = rng.uniform(0.1, 0.9, (1, 2, 3))
    others = {"column_effect": rng.normal(size=(1, 2, 6)), "row_scale": np.array([[0.2, 3.0]])}
    rows = np.vstack([(rng.random((40, 6)) < 0.5), np.ones(6), np.zeros(6)]).astype(float)
    both = (
        whole_rows.feature_states(basis, others, density, [0, 1], complete=complete)
        for complete in (True, False)
    )
    apart, together = (
        [t.log_probability for t in whole_rows.by_states(bmfjax.BinaryMatrix(rows), s, False)]
        for s in both
    )
    np.testing.assert_allclose(apart, together, rtol=1e-9)
    # Ten features and 21 values would be 21,504 states of 2,000 columns, of which there may be
    # 16,384.
    wide = rng.normal(size=(1, 1, 2000, 10)).astype(np.float32)
    one = {"column_effect": np.zeros((1, 1, 2000)), "row_scale": np.array([[0.1]])}
    given = wide, one, np.full((1, 1, 10), 0.5), [0]
    (states,) = whole_rows.feature_states(*given, complete=True)
    assert states.level.shape == (1024, 2000)
    with pytest.raises(InputError, match=r"10 features and .* values of the effect"):
        whole_rows.feature_states(*given)
    with pytest.raises(InputError, match="the 32768 states of 15 features; there may be 16384"):
        more = np.pad(wide, ((0, 0), (0, 0), (0, 0), (0, 5)), constant_values=1.0)
        whole_rows.feature_states(more, one, np.full((1, 1, 15), 0.5), [0], complete=True)


def test_too_many_states_and_other_models_are_refused():
    fit = boolean_fit(rank=20)[0]
    with pytest.raises(InputError, match="1048576 states of 20 factors; there may be 524288"):
        fit.score_rows(ROWS)
    with pytest.raises(InputError, match="may be 16384"):
        whole_rows.check_states(2**15, 2000, "15 factors")
    for model in ("pmf", "nmf", "relaxed"):
        with pytest.raises(
            InputError, match=r"has no (score_rows|complete), which .* have; use score_new"
        ):
            fit_of(model).complete(ROWS)
