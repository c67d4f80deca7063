"""Fits with known factors: these stay, by name, and the rest has its posterior."""

import itertools

import numpy as np
import pandas as pd
import pytest
from jax import random
from scipy.special import betaln, logsumexp

import bmfjax
from bmfjax import cli
from bmfjax.data import InputError
from bmfjax.diagnostics.arviz import posterior_dataset
from bmfjax.families import ask
from bmfjax.families.nonnegative import inner_anchors, nmf_arguments
from bmfjax.infer import boolean_starts
from bmfjax.models.bits import resolve_known_bits

# ---- the Boolean model ---------------------------------------------------------------------------

NAMES, RATE = ["corn", "olive", "palm"], 0.2
VALUES = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, np.nan]])
#: Corn is in the known factor, palm is not, and olive may be.
KNOWN = {"staple": {"corn": 1, "olive": np.nan}}
TABLE = pd.DataFrame(VALUES, index=list("abcd"), columns=NAMES)


@pytest.fixture(scope="module")
def boolean():
    return bmfjax.fit(
        TABLE,
        2,
        anchors=KNOWN,
        model=bmfjax.OrMachine(flip_rate=RATE),
        num_chains=4,
        num_warmup=100,
        num_samples=2000,
        progress=False,
        sampler=bmfjax.Gibbs(update="collapsed", moves=("xor", "rebirth")),
    )


def enumerated():
    """Probabilities of the bits of usage (4, 2) and basis (3, 2), of all that are not known."""
    bits = np.array(list(itertools.product([0, 1], repeat=12)))
    usage = bits[:, :8].reshape(-1, 4, 2)
    basis = np.zeros((len(bits), 3, 2), int)
    basis[:, 0, 0], basis[:, 1, 0], basis[:, :, 1] = 1, bits[:, 8], bits[:, 9:]
    product = (usage @ basis.swapaxes(1, 2)) > 0
    log = np.where(product == VALUES, np.log(1 - RATE), np.log(RATE))
    log = np.where(np.isnan(VALUES), 0.0, log).sum((1, 2))
    ones = usage.sum(1)
    log += betaln(1 + ones, 5 - ones).sum(1)
    # Of the known factor one bit follows its density, of the other one three.
    for count, size in ((bits[:, 8], 1), (basis[:, :, 1].sum(1), 3)):
        log += betaln(1 + count, 1 + size - count)
    weight = np.exp(log - logsumexp(log))
    return tuple(np.einsum("s,sik->ik", weight, f) for f in (usage, basis))


def test_the_rest_of_a_boolean_fit_has_its_posterior(boolean):
    for found, exact in zip((boolean.usage, boolean.basis), enumerated(), strict=True):
        np.testing.assert_allclose(found, exact, atol=0.05)


def test_known_bits_stay_and_names_are_kept(boolean):
    told = boolean.verdict.factors
    named = set(told.holding) | set(told.differing)
    assert named <= {"staple", "2"} and len(named) == 2 - boolean.figures.factors_empty
    assert boolean.basis_draws[:][..., 0, 0].all()
    assert not boolean.basis_draws[:][..., 2, 0].any()
    assert 0 < boolean.basis_draws[:][..., 1, 0].mean() < 1
    assert boolean.basis_binary[[0, 2], 0].tolist() == [True, False]
    assert boolean.factor_names == ("staple", "factor 2")
    assert boolean.summary()["anchor"].tolist() == ["staple", ""]
    assert boolean.tiles(all=True)["anchor"].tolist() == ["staple", ""]
    members = boolean.tiles(all=True, members=True)
    assert (members["anchor"] == np.where(members["factor"] == 1, "staple", "")).all()
    draws = posterior_dataset(boolean.idata)["basis"]
    assert draws.coords["factor"].values.tolist() == ["staple", "factor 2"]
    assert draws.sel(factor="staple", columns="corn").values.all()
    for fit in (boolean, boolean.restricted(0)):
        assert "1" not in fit.verdict.factors.holding + fit.verdict.factors.differing
        assert fit.basis_draws[:][..., 0, 0].all()
        assert fit.basis_binary[[0, 2], 0].tolist() == [True, False]


def test_a_fit_with_known_factors_is_saved(boolean, tmp_path):
    again = bmfjax.Fit.load(boolean.save(tmp_path / "fit"))
    assert again.anchors.names == ("staple",)
    np.testing.assert_array_equal(again.anchors.values, [[1.0], [np.nan], [0.0]])
    np.testing.assert_array_equal(again.basis_draws[:], boolean.basis_draws[:])
    pd.testing.assert_frame_equal(again.summary(), boolean.summary())
    page = again.report(tmp_path / "page.html").read_text()
    assert "Factor 1: staple" in page and "Known factors" in page


@pytest.mark.long
def test_starts_have_the_known_factors_and_find_the_others():
    """Two of four are known; the relaxed program is that of the other starts."""
    made = bmfjax.generate_product(44, 44, 4, density=0.3, flip=0.02, seed=1)
    known = made.basis[:, [2, 0]].astype(float)
    known[np.flatnonzero(known[:, 0] == 0)[:3], 0] = np.nan
    starts = boolean_starts(random.key(0), made.data, 4, 2, num_anneal=300, anchors=known)
    for start in starts:
        given = ~np.isnan(known)
        np.testing.assert_array_equal(start["basis"][:, :2][given], known[given] == 1)
        assert ((start["usage"] @ start["basis"].T) != made.clean).mean() < 0.02
        assert (start["usage"][:, :2] != made.usage[:, [2, 0]]).mean() < 0.1


# ---- the nonnegative model -----------------------------------------------------------------------

RNG = np.random.default_rng(3)
WEIGHTS = RNG.dirichlet(np.full(9, 0.4), 3).T
WEIGHTS[:2, 1] = 0.0
USAGE = 300.0 * RNG.gamma(1.0, size=(14, 3))
# Rows that lack a factor: without them others could hold a part of it.
USAGE[:4, 0] = USAGE[4:8, 1] = USAGE[8:12, 2] = 0.0
SPECTRA = pd.DataFrame(
    USAGE @ WEIGHTS.T + 0.3 * RNG.normal(size=(14, 9)),
    columns=[f"c{j}" for j in range(9)],
    index=[f"r{i}" for i in range(14)],
)
SIGNATURES = pd.DataFrame(WEIGHTS[:, :2], index=SPECTRA.columns, columns=["flat", "sharp"])
SHORT = {"num_chains": 2, "num_warmup": 300, "num_samples": 200}


@pytest.fixture(scope="module")
def nonnegative():
    return bmfjax.fit(
        SPECTRA, 3, model="nmf", anchors=SIGNATURES.iloc[::-1], progress=False, **SHORT
    )


def test_signatures_keep_their_values_and_their_scale(nonnegative):
    known = np.broadcast_to(WEIGHTS[:, :2].astype(np.float32), (2, 200, 9, 2))
    np.testing.assert_array_equal(nonnegative.basis_draws[..., :2], known)
    assert nonnegative.summary()["anchor"].tolist() == ["flat", "sharp", ""]
    away = np.abs(nonnegative.usage - USAGE)[:, :2] / np.maximum(nonnegative.usage_sd[:, :2], 1.0)
    assert away.max() < 5
    with pytest.raises(InputError, match="has no tiles"):
        nonnegative.tiles()


def test_a_further_factor_is_found_beside_two_known_ones(nonnegative):
    found = nonnegative.basis[:, 2]
    cosine = found @ WEIGHTS[:, 2] / np.linalg.norm(found) / np.linalg.norm(WEIGHTS[:, 2])
    assert cosine > 0.999


def test_the_prior_expects_as_much_of_a_known_factor_in_any_unit():
    for unit in (1.0, 1024.0):
        request = ask(SPECTRA, 3, model="nmf", anchors=SIGNATURES * unit)
        arguments = nmf_arguments(request)
        inside = inner_anchors(request, arguments)
        np.testing.assert_allclose(inside.mean(0), 1 / arguments["basis_rate"], rtol=1e-6)
        own = WEIGHTS[:, :2] / WEIGHTS[:, :2].mean(0)
        np.testing.assert_allclose(inside / inside.mean(0), own, rtol=1e-5)
    request = ask(SPECTRA, 3, model=bmfjax.NMF(usage_rate=0.01), anchors=SIGNATURES)
    inside = inner_anchors(request, nmf_arguments(request))
    np.testing.assert_array_equal(inside, WEIGHTS[:, :2].astype(np.float32))


def test_the_command_line_reads_known_factors(nonnegative, tmp_path):
    SPECTRA.to_csv(tmp_path / "spectra.csv")
    SIGNATURES.to_csv(tmp_path / "known.csv")
    fitted = [
        "fit", str(tmp_path / "spectra.csv"), "--model", "nmf", "--rank", "3",
        "--anchors", str(tmp_path / "known.csv"), "--output", str(tmp_path / "fit"), "--quiet",
        "--chains", "2", "--warmup", "300", "--samples", "200",
    ]  # fmt: skip
    assert cli.main(fitted) == 0
    again = bmfjax.Fit.load(tmp_path / "fit")
    assert again.factor_names == ("flat", "sharp", "factor 3")
    np.testing.assert_array_equal(again.usage_draws, nonnegative.usage_draws)


# ---- ratings -------------------------------------------------------------------------------------


@pytest.mark.long
def test_known_factors_of_ratings_stay_also_for_new_lines():
    rng = np.random.default_rng(4)
    usage, basis = rng.normal(size=(20, 2)), rng.normal(size=(9, 2))
    stars = 3.0 + usage @ basis.T + 0.2 * rng.normal(size=(20, 9))
    fit = bmfjax.fit(
        stars, 2, model="pmf", anchors={"known": basis[:, 1]}, progress=False,
        num_chains=2, num_warmup=100, num_samples=100,
    )  # fmt: skip
    known = np.broadcast_to(basis[:, 1].astype(np.float32), (2, 100, 9))
    np.testing.assert_array_equal(fit.basis_draws[..., 0], known)
    assert np.corrcoef(fit.usage[:, 0], usage[:, 1])[0, 1] > 0.8
    across = np.einsum("cdj,cdj->cd", *np.moveaxis(fit.basis_draws.astype(float), -1, 0))
    assert np.abs(across).max() < 1e-3
    rows = fit.given_new(stars[:4])
    np.testing.assert_array_equal(rows.basis_draws, fit.basis_draws)
    columns = fit.given_new(stars[:, :3], side="columns")
    assert columns.anchors.names == ("known",) and np.isnan(columns.anchors.values).all()
    # What a column is like is learned from its ratings alone.
    assert np.abs(columns.basis[:, 0] - basis[:3, 1]).max() < 0.6


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "options", "message"),
    [
        (2, {"model": "relaxed"}, "model 'relaxed' takes no anchors; .*: ormachine, .*nmf, .*pmf"),
        (2, {"model": "logistic"}, "model 'logistic' takes no anchors"),
        ("auto", {}, "rank is 'auto', and anchors are factors that are there in any case"),
        (1, {"anchors": {"a": ["corn"], "b": ["palm"]}}, "rank is 1 and anchors has 2 factors"),
        (2, {"anchors": {"a": [0.5, 0, 1]}, "model": "ormachine"}, "has the value 0.5"),
        (2, {"anchors": {"a": ["tea"]}}, "names 'tea'"),
        (2, {"model": "nmf"}, "missing values, which only model 'ormachine' learns"),
        (
            None,  # the model's own number of factors
            {"model": "pmf", "anchors": {"a": [0.5, 0, 1], "1": [1, 0, 1]}},
            "is named '1', as factor 1 is called",
        ),
        (2, {"model": "pmf"}, "missing values, which only model 'ormachine' learns"),
        (
            2,
            {"model": bmfjax.OrMachine(basis=np.full((3, 2), 0.5))},
            "which is an array; put all of them",
        ),
        (
            2,
            {"init": {"usage": np.ones((4, 2)), "basis": np.ones((3, 2))}},
            "init 'basis' has 1 in column 'palm' of factor 1, which is anchor 'staple' with 0",
        ),
    ],
)
def test_what_does_not_go_with_known_factors_is_refused(rank, options, message):
    options = {"anchors": KNOWN, "progress": False} | options
    with pytest.raises(InputError, match=message):
        bmfjax.fit(TABLE, rank, **options)


@pytest.mark.parametrize(
    ("anchors", "message"),
    [(np.ones((2, 1)), "anchors has shape"), (np.full((3, 1), 0.5), "other than 0, 1 and NaN")],
)
def test_the_model_refuses_what_are_no_known_bits(anchors, message):
    with pytest.raises(InputError, match=message):
        resolve_known_bits(anchors, None, (3, 2))
