"""Single cells: the same as whole entries for every model, names, noise, memory."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import Binarized
from bmfjax.families import FAMILIES
from bmfjax.posterior.cells import cell_draws, covered, noise_sd, quantiles_of_bits
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.selection import positions
from bmfjax.verdict import Figures, Verdict

ROWS, COLUMNS, RANK, CHAINS, DRAWS = 40, 37, 3, 2, 25
NAMES = tuple(f"user {i}" for i in range(ROWS))
FIGURES = Figures(num_warmup=0, thinning=1, expected_errors=0.0)
VERDICT = Verdict(FIGURES)
MODELS = tuple(FAMILIES)
BOOLEAN = tuple(m for m in MODELS if bmfjax.Fit._of_model(m)._is_boolean)
OF_ONES = (*BOOLEAN, "relaxed", "features", "logistic", "probit")


def data_of(model, columns=COLUMNS, names=None):
    values = np.random.default_rng(1).random((ROWS, columns)).round(1)
    names = {"row_names": NAMES, "column_names": names}
    if model in ("nmf", "poisson"):
        return bmfjax.RealMatrix(values if model == "nmf" else (9 * values).round(), **names)
    if model in ("pmf", "ordered-probit"):
        stars, (i, j) = (values * 4).round() + 1, np.divmod(np.arange(values.size), columns)
        return bmfjax.Ratings(i, j, stars.ravel(), scale=(1, 5), **names)
    return bmfjax.BinaryMatrix(values > 0.5, **names)


def drawn(model, rows=ROWS, columns=COLUMNS, draws=DRAWS, rank=RANK):
    """(usage, basis, other draws, settings, approximation) of no chain: any numbers will do."""
    rng = np.random.default_rng(0)
    chains = (CHAINS, draws)

    def normal(*shape):
        return rng.normal(size=(*chains, *shape)).astype(np.float32)

    usage, basis = normal(rows, rank), normal(columns, rank)
    other, settings, approximation = {}, {"priors": {"precision": "4.0"}}, {}
    effects = {"row_effect": normal(rows), "column_effect": normal(columns)}
    if model in BOOLEAN:
        usage, basis = PackedDraws.pack(usage > 0.5), PackedDraws.pack(basis > 0.3)
        other = {"flip_rate": rng.uniform(0.05, 0.3, (*chains, 2)).astype(np.float32)}
        if model == "ormachine-effects":
            other = effects | {"intercept": normal(), "dispersion": normal() ** 2}
        if model == "hamming":
            other = {"dispersion": normal() ** 2}
    elif model in ("relaxed", "nmf", "poisson"):
        usage, basis = abs(usage), abs(basis)
        if model == "poisson":
            other = {"rate": abs(normal(rank))}
            settings = {"priors": {"usage_shape": 1.0}, "offset": None}
    elif model == "features":
        usage, basis = (usage > 0.5).astype(np.float32), np.where(basis > 0.3, basis, 0)
        density = abs(normal(rank)) / 9
        other = effects | {"row_scale": normal() ** 2, "usage_density": density}
        other["basis_density"] = np.full_like(density, 0.5)
    elif model == "logistic":
        other = effects | {"bias": normal()}
        moments = {f"{n}_mean": f[:, 0] for n, f in (("usage", usage), ("basis", basis))}
        moments |= {"bias_mean": other["bias"][:, 0]}
        variances = {n.replace("mean", "variance"): 0.1 + m**2 for n, m in moments.items()}
        approximation = moments | variances
    else:
        assert model in ("pmf", "probit", "ordered-probit"), f"give draws of {model}"
        other = effects | {"intercept": normal(), "precision": normal() ** 2 + 1}
        settings |= {"scale": None if model == "probit" else [1, 5]}
        if model == "ordered-probit":
            other["cutpoints"] = np.sort(normal(4), -1)
            settings["stars"] = [1.0, 2.0, 3.0, 4.0, 5.0]
    return usage, basis, other, settings, approximation


def fit_of(model, data=None, **sizes):
    """A fit put together from arrays, without sampling."""
    usage, basis, other, settings, approximation = drawn(model, **sizes)
    binary = None
    if model in (*BOOLEAN, "relaxed"):
        binary = Binarized(*(np.asarray(f).mean((0, 1)) >= 0.5 for f in (usage, basis)), 0.0)
    return bmfjax.Fit._of_model(model)(
        data_of(model) if data is None else data, model, "gibbs", settings, usage, basis,
        trace={}, agreement=np.ones(usage.shape[-1]), verdict=VERDICT, binary=binary,
        other_draws=other, **({"approximation": approximation} if approximation else {}),
    )  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def fit(request):
    return fit_of(request.param)


@pytest.fixture(params=[4_000_000, 300])
def block(request, monkeypatch):
    """All at once, and in many parts."""
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", request.param)


ROW, COLUMN = np.random.default_rng(2).integers(0, (ROWS, COLUMNS), (90, 2)).T


def test_cells_are_the_entries_that_predict_has(fit, block):
    for kind in ("mean", "sd", "interval"):
        whole = fit.predict(kind=kind, level=0.8)
        found = fit.predict_cells(ROW, COLUMN, kind, 0.8)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, whole[..., ROW, COLUMN], rtol=2e-5, atol=2e-6)


def test_probabilities_of_cells_are_those_of_entries(fit, block):
    if fit.model in OF_ONES:
        found = fit.predict_cells(ROW, COLUMN, "probability")
        np.testing.assert_allclose(found, fit.probability()[ROW, COLUMN], rtol=1e-6, atol=1e-12)
    elif fit.model == "ordered-probit":
        found = fit.predict_cells(ROW, COLUMN, "probability")
        assert found.shape == (90, 5) and (found >= 0).all()
        np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-12)
        stars = np.arange(1, 6)
        np.testing.assert_allclose(found @ stars, fit.predict_cells(ROW, COLUMN), rtol=1e-5)
    else:
        with pytest.raises(InputError, match=r"which have no probability of a one; choose another"):
            fit.predict_cells(ROW, COLUMN, "probability")


def test_flips_are_included_on_request(block):
    for two_rates in (True, False):
        fit = fit_of("ormachine")
        if not two_rates:
            fit.other_draws["flip_rate"] = fit.other_draws["flip_rate"][..., 0]
        entries = fit.probability(noisy=True)[ROW, COLUMN]
        for kind in ("mean", "probability"):
            found = fit.predict_cells(ROW, COLUMN, kind, noisy=True)
            np.testing.assert_allclose(found, entries, rtol=1e-6)
        sd = fit.predict_cells(ROW, COLUMN, "sd", noisy=True)
        np.testing.assert_allclose(sd**2, entries * (1 - entries), atol=1e-6)
        assert np.abs(entries - fit.predict_cells(ROW, COLUMN)).max() > 0.05


@pytest.mark.parametrize("model", OF_ONES)
def test_one_call_is_of_an_observation_for_every_model_of_ones(model):
    """Whole matrices, single cells and made observations have the same probability."""
    fit = fit_of(model)
    one = fit.predict_cells(ROW, COLUMN, noisy=model != "relaxed")
    if model == "relaxed":
        above = (cell_draws(fit, ROW, COLUMN) - 0.5) / noise_sd(fit)[:, None]
        one = ndtr(above).mean(0)
    np.testing.assert_allclose(
        fit.predict_cells(ROW, COLUMN, "probability", noisy=True), one, rtol=1e-6
    )
    np.testing.assert_allclose(fit.probability(noisy=True)[ROW, COLUMN], one, rtol=1e-5)
    if model not in ("relaxed", "logistic"):  # a density, and one that is no mean of draws
        density = fit._log_density(ROW, COLUMN, np.ones(len(ROW)))
        np.testing.assert_allclose(np.exp(density).mean(0), one, rtol=1e-4)


@pytest.mark.parametrize("model", ["relaxed", "nmf", "pmf"])
def test_normal_noise_is_added_with_its_precision(model):
    """The same fit in every draw: observations are normal about it."""
    fit = fit_of(model, draws=4000)
    fit.usage_draws[:], fit.basis_draws[:] = 1.0, 1.0
    for name, value in fit.other_draws.items():
        value[:] = 4.0 if name == "precision" else 0.0
    mean, sd = (fit.predict_cells([3, 5], [0, 1], kind, noisy=True) for kind in ("mean", "sd"))
    np.testing.assert_array_equal(mean, RANK)
    np.testing.assert_allclose(sd, 0.5, rtol=1e-6)
    ends = fit.predict_cells([3, 5], [0, 1], "interval", 0.9, noisy=True)
    np.testing.assert_allclose(ends, [[RANK - 0.822] * 2, [RANK + 0.822] * 2], atol=0.05)
    # Learned or fixed, as settings tell it, is the same.
    fit.other_draws.pop("precision", None)
    np.testing.assert_array_equal(sd, fit.predict_cells([3, 5], [0, 1], "sd", noisy=True))


def test_probabilities_of_stars_are_shares_of_drawn_stars():
    fit = fit_of("ordered-probit", draws=1)
    for site in ("usage", "basis"):
        getattr(fit, f"{site}_draws")[:] = 0.0
    for site in ("intercept", "row_effect", "column_effect"):
        fit.other_draws[site][:] = 0.0
    fit.other_draws["cutpoints"][:] = [-1.0, 0.0, 0.5, 2.0]
    below = ndtr([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf])
    found = fit.predict_cells([0], [0], "probability")
    np.testing.assert_allclose(found, [np.diff(below)], rtol=1e-5)
    # 0.16, 0.50, 0.69 and 0.98 lie at or below the first four stars.
    for level, ends in ((0.9, [1, 4]), (0.6, [2, 4]), (0.3, [2, 3])):
        interval = fit.predict_cells([0], [0], "interval", level, noisy=True)
        np.testing.assert_array_equal(interval[:, 0], ends)


@pytest.mark.parametrize("model", ["relaxed", "nmf", "pmf", "ordered-probit"])
def test_means_and_spreads_of_observations_are_no_draws(model, monkeypatch):
    """The same cell has one answer, alone or among others."""
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 100)
    fit = fit_of(model)
    mean, sd = (fit.predict_cells([3, 9, 3], [0, 1, 0], k, noisy=True) for k in ("mean", "sd"))
    np.testing.assert_allclose([mean[0], sd[0]], [mean[2], sd[2]], rtol=1e-12)
    np.testing.assert_allclose(mean, fit.predict_cells([3, 9, 3], [0, 1, 0]), rtol=1e-6)
    if model == "ordered-probit":
        p, stars = fit.predict_cells([3, 9, 3], [0, 1, 0], "probability"), np.arange(1, 6)
        np.testing.assert_allclose(sd**2, p @ stars**2 - (p @ stars) ** 2, rtol=1e-9)
    else:
        noise = np.mean(1 / fit.other_draws.get("precision", np.array(4.0)))
        clean = fit.predict_cells([3, 9, 3], [0, 1, 0], "sd")
        np.testing.assert_allclose(sd**2, clean**2 + noise, rtol=1e-5)


@pytest.mark.parametrize("model", ["relaxed", "nmf", "pmf"])
def test_spreads_divide_by_one_less_than_the_draws(model):
    fit = fit_of(model, draws=2)
    usage, basis = fit._product_draws(np.array([3]), np.array([0]))
    values = np.einsum("cdik,cdjk->cdij", usage, basis).ravel()
    sd = fit.predict_cells([3], [0], "sd")
    np.testing.assert_allclose(sd, values.std(ddof=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "kind", "noisy", "message"),
    [
        ("ormachine", "interval", True, "of model 'ormachine' is 0 or 1 and has no interval; cho"),
        ("logistic", "interval", True, "of model 'logistic' is 0 or 1 and has no interval; choose"),
        ("probit", "interval", True, "of model 'probit' is 0 or 1 and has no interval; choose"),
        ("nmf", "probability", False, "of numbers, which have no probability of a one"),
        ("pmf", "probability", True, "of ratings, which have no probability of a one"),
        ("relaxed", "median", False, "kind is 'median'; choose 'mean', 'sd', 'interval' or"),
    ],
)
def test_what_a_model_does_not_have_is_refused(model, kind, noisy, message):
    with pytest.raises(InputError, match=message):
        fit_of(model).predict_cells([0], [0], kind, noisy=noisy)


def test_wrong_cells_and_levels_are_refused():
    fit = fit_of("ormachine")
    with pytest.raises(InputError, match="there are 2 rows and 1 columns; give one each a cell"):
        fit.predict_cells([0, 1], [0])
    with pytest.raises(InputError, match="level is 90; give a probability"):
        fit.predict_cells([0], [0], "interval", 90)
    with pytest.raises(InputError, match="column 37 is outside 0 to 36"):
        fit.predict_cells([0], [COLUMNS])
    with pytest.raises(InputError, match="kind is 'probability'; choose 'mean', 'sd' or"):
        fit_of("probit").predict(kind="probability")
    assert fit.predict_cells([], [], "interval").shape == (2, 0)
    assert fit_of("relaxed").predict(columns=[], kind="interval").shape == (2, ROWS, 0)


@pytest.mark.parametrize("rank", [7, 11, 40, 70])
def test_products_of_any_rank_are_covered(rank):
    """A bit for each factor: of one byte, two, eight, and two numbers of eight."""
    rng = np.random.default_rng(rank)
    usage, basis = rng.random((2, 3, 9, rank)) < 1 / rank, rng.random((2, 3, 8, rank)) < 0.6
    i, j = np.divmod(np.arange(72), 8)
    hit = (usage[:, :, i] & basis[:, :, j]).any(-1)
    weights = rng.random((2, 3))
    for u, v in ((usage, basis), (PackedDraws.pack(usage), PackedDraws.pack(basis))):
        found = covered(u, v, i, j, weights)
        np.testing.assert_allclose(found, np.tensordot(weights, hit, 2), rtol=1e-12)


@pytest.mark.parametrize("level", [0.4, 0.9])
def test_intervals_of_bits_are_quantiles(level):
    bits = np.arange(11)[:, None] < np.arange(12)
    ends = np.quantile(bits.astype(float), [0.5 - level / 2, 0.5 + level / 2], axis=0)
    for shape in ((12,), (3, 4)):
        found = quantiles_of_bits(np.arange(12).reshape(shape), 11, level)
        np.testing.assert_allclose(found, ends.reshape(2, *shape), atol=1e-12)


# ---- names and positions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        list, np.array, pd.Series, pd.Index, lambda x: np.array(x, object),
        lambda x: list(np.array(x)), lambda x: pd.Series(x).astype("category"),
        lambda x: pd.Series(x, index=range(5, 5 + len(x))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [[3, 0, 3], ["user 3", "user 0", "user 3"]])
def test_lists_arrays_and_columns_of_frames_choose_alike(make, at):
    found = positions(make(at), NAMES, "row")
    assert found.tolist() == [3, 0, 3] and found.dtype == int


def test_a_column_of_a_frame_may_be_a_mask_and_lists_may_mix():
    mask = pd.Series(np.arange(ROWS) > 37)
    assert positions(mask, NAMES, "row").tolist() == [38, 39]
    assert positions(["user 5", 0, np.int8(2)], NAMES, "row").tolist() == [5, 0, 2]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["user 1", "nobody", "none"], "row 'nobody' is not in the matrix; rows are "),
        (np.array(["user 1", "nobody"]), "row 'nobody' is not in the matrix"),
        ([0, 40, 50], "row 40 is outside 0 to 39"),
        (np.array([0, -1]), "row -1 is outside 0 to 39"),
        ([10**30], "is outside 0 to 39"),
        ([0, True], "row True is neither a position nor a name"),
        (np.array([0, 1.5]), r"row .*0.0.* is neither a position nor a name"),
        # pandas 3 has NaN for None among texts.
        (pd.Series(["user 1", None]), "row (None|nan) is neither a position nor a name"),
        (1.5, "row 1.5 is neither a position nor a name"),
        (np.zeros((2, 2), int), r"rows have shape \(2, 2\); give one list"),
    ],
)
def test_what_is_no_line_is_refused(chosen, message):
    with pytest.raises(InputError, match=message):
        positions(chosen, NAMES, "row")


# ---- memory ------------------------------------------------------------------------------------


def peak_of(fit, i, j, kind):
    fit.predict_cells(i[:1], j[:1], kind)  # what is made once, such as names
    tracemalloc.start()
    fit.predict_cells(i, j, kind)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("model", MODELS)
def test_memory_follows_the_cells_and_not_draws_or_rank(model, monkeypatch):
    """10,000 cells x 100 draws are 4 MB of numbers, and 80 MB of factors."""
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 40_000)
    fit = fit_of(model, draws=50, rank=10)
    i, j = np.random.default_rng(3).integers(0, (ROWS, COLUMNS), (10_000, 2)).T
    for kind in ("mean", "interval"):
        assert peak_of(fit, i, j, kind) < 2e6


def test_few_draws_of_boolean_lines_are_unpacked_at_once(monkeypatch):
    """5,000 rows x 100 draws x 20 factors are 10 MB as bool."""
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 200_000)
    words = np.random.default_rng(0).integers(0, 2**32, (1, 100, 20, 157), np.uint32)
    draws, lines = PackedDraws(words, 5000), np.arange(5000)
    tracemalloc.start()
    covered(draws, draws, lines, lines, np.ones((1, 100)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
