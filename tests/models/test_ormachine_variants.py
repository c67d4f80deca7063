"""The OrMachine's variants: densities by their formulas, what is missing, simulation, refusals."""

import functools

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

from bmfjax.data import InputError
from bmfjax.models import deep_ormachine, hamming_machine, one_hot_machine, ormachine
from tests.models.boolean_models import (
    BASIS,
    COLUMNS,
    DENSITIES,
    RANK,
    ROWS,
    USAGE,
    VALUES,
    bits,
    check_entries,
    check_missing,
    disjunction,
    noise,
    score,
    sites,
)

HAMMING = functools.partial(hamming_machine, rank=RANK)
ONE_HOT = functools.partial(one_hot_machine, rank=RANK)
DEEP = functools.partial(deep_ormachine, ranks=(3, 2))
TWO_RATES = functools.partial(DEEP, num_rates=2)
FACTORS = {"usage": USAGE, "basis": BASIS}
BITS = bits(USAGE, DENSITIES["usage_density"]) + bits(BASIS, DENSITIES["basis_density"])


# ---- Hamming machine -------------------------------------------------------------------------

HAMMING_POSITION = FACTORS | DENSITIES | {"dispersion": np.float32(1.3)}


def test_dispersion_takes_a_prior():
    change = score(HAMMING, HAMMING_POSITION, dispersion=dist.HalfNormal(2.0)) - score(
        HAMMING, HAMMING_POSITION
    )
    assert change == pytest.approx(stats.halfnorm.logpdf(1.3, scale=2.0) + 1.3, abs=1e-4)


def test_missing_entries_do_not_count_in_the_hamming_machine():
    assert check_missing(HAMMING, HAMMING_POSITION) == pytest.approx(BITS - 1.3, rel=1e-5)


# ---- one-hot machine -------------------------------------------------------------------------

CLUSTER = np.array([0, 1, 1, 0, 1, 1, 0], np.int32)
WEIGHTS = np.array([0.3, 0.7], np.float32)
ONE_HOT_POSITION = {
    "basis": BASIS,
    "basis_density": DENSITIES["basis_density"],
    "cluster": CLUSTER,
    "weights": WEIGHTS,
    "flip_rate": np.float32(0.2),
}
CODES = bits(BASIS, DENSITIES["basis_density"])


def test_cluster_prior_is_learned_fixed_or_a_rows_own():
    learned = score(ONE_HOT, ONE_HOT_POSITION)
    given = score(ONE_HOT, ONE_HOT_POSITION, weights=dist.Dirichlet(np.array([2.0, 3.0])))
    expected = stats.dirichlet.logpdf([0.3, 0.7], [2.0, 3.0])
    assert given - learned == pytest.approx(expected, abs=1e-4)
    without = {n: v for n, v in ONE_HOT_POSITION.items() if n != "weights"}
    assert score(ONE_HOT, without, weights=WEIGHTS) == pytest.approx(learned, rel=1e-5)
    each = np.where(CLUSTER[:, None] == np.arange(2), [0.25, 0.25], [0.75, 0.75])
    own = score(ONE_HOT, without, weights=each)
    expected = ROWS * np.log(0.25) - np.log(WEIGHTS[CLUSTER]).sum()
    assert own - learned == pytest.approx(expected, abs=1e-4)
    other = np.eye(RANK)[1 - CLUSTER]
    assert score(ONE_HOT, without, weights=other) == -np.inf


def test_missing_entries_do_not_count_in_the_one_hot_machine():
    prior = CODES + np.log(WEIGHTS[CLUSTER]).sum() + np.log(2)
    assert check_missing(ONE_HOT, ONE_HOT_POSITION) == pytest.approx(prior, rel=1e-5)


# ---- layers ----------------------------------------------------------------------------------

_rng = np.random.default_rng(7)
DEEP_POSITION = {
    "usage_2": (_rng.random((ROWS, 2)) < 0.5).astype(np.int32),
    "usage_1": (_rng.random((ROWS, 3)) < 0.5).astype(np.int32),
    "basis_2": (_rng.random((3, 2)) < 0.5).astype(np.int32),
    "basis_1": (_rng.random((COLUMNS, 3)) < 0.5).astype(np.int32),
    "usage_density": np.array([0.3, 0.6], np.float32),
    "basis_density_2": np.array([0.2, 0.7], np.float32),
    "basis_density_1": np.array([0.4, 0.5, 0.8], np.float32),
    "flip_rate_2": np.array([0.3, 0.15], np.float32),
    "flip_rate_1": np.array([0.1, 0.2], np.float32),
}


def deep_prior(position):
    """Log density of all but the data and the flat sites."""
    product = disjunction(position["usage_2"], position["basis_2"])
    return (
        bits(position["usage_2"], position["usage_density"])
        + bits(position["basis_2"], position["basis_density_2"])
        + bits(position["basis_1"], position["basis_density_1"])
        + noise(position["usage_1"], product, 0.3, 0.15)
        + 4 * np.log(2)
    )


def test_the_usage_of_a_layer_is_the_data_of_the_next():
    product = disjunction(DEEP_POSITION["usage_1"], DEEP_POSITION["basis_1"])
    expected = deep_prior(DEEP_POSITION) + noise(VALUES, product, 0.1, 0.2)
    assert score(TWO_RATES, DEEP_POSITION) == pytest.approx(expected, rel=1e-5)


def test_layers_have_options_of_their_own():
    names = ("usage_1", "usage_2", "basis_1", "basis_2", "basis_density_1")
    found = score(
        DEEP,
        {n: DEEP_POSITION[n] for n in names} | {"flip_rate_1": np.float32(0.1)},
        usage=0.4,
        basis={2: 0.6},
        flip_rate={2: 0.25, 1: dist.Beta(2.0, 8.0)},
    )
    u1, u2, b1, b2 = (DEEP_POSITION[n] for n in names[:4])
    expected = (
        bits(u2, 0.4)
        + bits(b2, 0.6)
        + bits(b1, DEEP_POSITION["basis_density_1"])
        + noise(u1, disjunction(u2, b2), 0.25, 0.25)
        + stats.beta.logpdf(0.1, 2, 8)
        - stats.beta.logcdf(0.5, 2, 8)
        + noise(VALUES, disjunction(u1, b1), 0.1, 0.1)
    )
    assert found == pytest.approx(expected, rel=1e-5)


def test_one_layer_is_the_ormachine():
    names = {"usage": "usage_1", "basis": "basis_1"}
    options = {"usage": 0.4, "basis": 0.6, "flip_rate": (0.1, 0.2), "num_rates": 2}
    deep = functools.partial(deep_ormachine, ranks=[RANK])
    found = score(deep, {names[n]: v for n, v in FACTORS.items()}, **options)
    expected = score(functools.partial(ormachine, rank=RANK), FACTORS, **options)
    assert found == pytest.approx(expected, rel=1e-6)


def test_missing_entries_do_not_count_under_layers():
    assert check_missing(TWO_RATES, DEEP_POSITION) == pytest.approx(
        deep_prior(DEEP_POSITION), rel=1e-5
    )


# ---- simulation and refusals of all ----------------------------------------------------------

ODDS = 1.3 * USAGE @ (2 * BASIS - 1).T
ENTRIES = [
    (HAMMING, HAMMING_POSITION, special.expit(ODDS)),
    (ONE_HOT, ONE_HOT_POSITION, np.where(BASIS.T[CLUSTER], 0.8, 0.2)),
    (
        TWO_RATES,
        DEEP_POSITION,
        np.where(disjunction(DEEP_POSITION["usage_1"], DEEP_POSITION["basis_1"]), 0.8, 0.1),
    ),
]


@pytest.mark.parametrize(
    ("model", "position", "probability"), ENTRIES, ids=["hamming", "one hot", "deep"]
)
def test_every_entry_is_simulated_and_scored_with_its_probability(model, position, probability):
    check_entries(model, position, probability)


def test_axes_of_the_layers_have_names():
    found = sites(DEEP, VALUES)
    dims = {n: s["infer"]["event_dims"] for n, s in found.items() if n[:5] in ("usage", "basis")}
    assert dims == {
        "usage_density": ["factor_2"],
        "usage_2": ["rows", "factor_2"],
        "basis_density_2": ["factor_2"],
        "basis_2": ["factor_1", "factor_2"],
        "usage_1": ["rows", "factor_1"],
        "basis_density_1": ["factor_1"],
        "basis_1": ["columns", "factor_1"],
    }


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (HAMMING, {"data": None}, r"hamming_machine needs data"),
        (HAMMING, {"rank": 0}, r"rank is 0"),
        (HAMMING, {"dispersion": 0.0}, r"dispersion is 0\.0; give a positive number"),
        (HAMMING, {"dispersion": float("inf")}, r"dispersion is inf"),
        (HAMMING, {"dispersion": "high"}, r"dispersion is 'high'"),
        (HAMMING, {"dispersion": dist.Normal()}, r"prior of dispersion is Normal of shape \(\)"),
        (HAMMING, {"dispersion": dist.Exponential(np.ones(2))}, r"Exponential of shape \(2,\)"),
        (HAMMING, {"dispersion": dist.Poisson(1.0)}, r"prior of dispersion is Poisson"),
        (ONE_HOT, {"data": None}, r"one_hot_machine needs data"),
        (ONE_HOT, {"weights": [0.5, 0.6]}, r"negative or do not sum to one"),
        (ONE_HOT, {"weights": [1.5, -0.5]}, r"negative or do not sum to one"),
        (ONE_HOT, {"weights": np.ones((3, 2)) / 2}, r"of shape \(2,\) or \(7, 2\)"),
        (
            ONE_HOT,
            {"weights": dist.Dirichlet(np.ones(3))},
            r"cluster has shape \(3,\); give a Dirichlet",
        ),
        (ONE_HOT, {"flip_rate": 0.0}, r"flip_rate is 0\.0"),
        (DEEP, {"data": None}, r"deep_ormachine needs data"),
        (DEEP, {"data": VALUES + 2}, r"data at row 0, column 0 is"),
        (DEEP, {"ranks": ()}, r"ranks is empty"),
        (DEEP, {"ranks": (3, 0)}, r"rank of layer 2 is 0; give a whole number"),
        (DEEP, {"flip_rate": {3: 0.1}}, r"flip_rate names layer 3; the layers are 1 to 2"),
        (DEEP, {"basis": {0: 0.1}}, r"basis names layer 0"),
        (DEEP, {"basis": np.full((COLUMNS, 3), 0.5)}, r"prior of basis_2 has shape \(4, 3\)"),
    ],
)
def test_bad_input_is_named(model, options, message):
    with pytest.raises(InputError, match=message):
        sites(functools.partial(model, **({"data": VALUES} | options)))
