"""bmfjax.fit of ratings: predictions, new lines, files and the page; what it refuses."""

import dataclasses
import functools
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_ndtr

import bmfjax
from bmfjax import verdict
from bmfjax.data import InputError
from bmfjax.families import ask
from bmfjax.families.ratings import density_of
from bmfjax.posterior import scores
from bmfjax.posterior.principal import principal_draws
from tests.kernels.exactness import moment_scores
from tests.said import has_its_summary, said
from tests.small_fits import stars

ROWS, COLUMNS, RANK, NOISE = 60, 40, 2, 0.5
SMALL = {"num_chains": 2, "num_warmup": 100, "num_samples": 120, "progress": False}


@functools.cache
def problem(model="pmf"):
    """(data of seven tenths of the cells, hidden rows and columns, hidden values, true fits)."""
    rng = np.random.default_rng(0)
    usage, basis = rng.normal(size=(ROWS, RANK)), rng.normal(size=(COLUMNS, RANK))
    fits = 3.0 + 0.5 * rng.normal(size=(ROWS, 1)) + 0.5 * rng.normal(size=COLUMNS)
    fits = fits + 0.8 * usage @ basis.T
    values = fits + NOISE * rng.normal(size=fits.shape)
    if model == "ordered-probit":
        values = np.clip(np.round(values), 1, 5)
    seen = rng.random(fits.shape) < 0.7
    if model == "probit":
        values = (values > 3).astype(float)
        data = bmfjax.BinaryMatrix(np.where(seen, values, np.nan))
    else:
        scale = (1, 5) if model == "ordered-probit" else None
        i, j = np.nonzero(seen)
        names = [f"user {k}" for k in range(ROWS)]
        data = bmfjax.Ratings(
            i, j, values[seen], row_names=names, shape=fits.shape, scale=scale, name="small"
        )
    hidden = np.nonzero(~seen)
    return data, *hidden, values[~seen], fits


@functools.cache
def fitted(model="pmf"):
    return bmfjax.fit(problem(model)[0], rank=RANK, model=model, **SMALL)


def test_hidden_ratings_are_predicted_with_right_intervals():
    fit, (_, i, j, values, fits) = fitted(), problem()
    mean = fit.predict_cells(i, j)
    assert np.sqrt(np.mean((mean - fits[i, j]) ** 2)) < 0.3
    assert np.sqrt(np.mean((mean - values) ** 2)) < 0.6
    low, high = fit.predict_cells(i, j, "interval", 0.9, noisy=True)
    assert 0.85 < np.mean((low < values) & (values < high)) < 0.95
    low, high = fit.predict_cells(i, j, "interval", 0.9)
    assert 0.82 < np.mean((low < fits[i, j]) & (fits[i, j] < high)) < 0.97
    assert fit.other_draws["precision"].mean() ** -0.5 == pytest.approx(NOISE, rel=0.1)
    assert fit.figures.converged and str(fit.verdict).startswith(("Reliable", "Usable"))
    assert abs(fit.figures.coverage - 0.9) < 0.03 and not fit.check().misfits
    assert fit.figures.coverage_error < fit.figures.coverage_by_chance


def test_a_grid_of_cells_is_the_same_cells_and_names_are_looked_up():
    fit = fitted()
    grid = fit.predict(["user 3", "user 5"], [1, 2, 4], "sd")
    cells = fit.predict_cells(["user 3", "user 5"], [2, 2], "sd")
    np.testing.assert_allclose(grid[:, 1], cells)
    assert fit.predict([0], [1], "interval").shape == (2, 1, 1)
    usage, basis = fit._product_draws(np.array([3]), np.array([2]))
    fits = np.einsum("cdik,cdjk->cdij", usage, basis)
    assert fits.mean() == pytest.approx(fit.predict([3], [2])[0, 0], abs=1e-4)


def test_factors_are_those_of_a_singular_value_decomposition():
    fit = fitted()
    u, v = fit.usage_draws[1, 7].astype(float), fit.basis_draws[1, 7].astype(float)
    for gram in (u.T @ u, v.T @ v):
        assert abs(gram[0, 1]) < 1e-3 * gram[0, 0]
    assert fit.agreement.min() > 0.9
    assert list(fit.summary().columns) == ["size", "rows", "columns", "agreement", "sd"]


@pytest.mark.parametrize(("rank", "held"), [(2, 0), (2, 2), (4, 2)])
def test_known_factors_stay_and_others_move_with_their_means_and_precisions(rank, held):
    rng = np.random.default_rng(2)
    drawn = {"usage": rng.normal(size=(2, 3, 9, rank)), "basis": rng.normal(size=(2, 3, 7, rank))}
    drawn["basis"][..., :held] = rng.normal(size=(7, held))
    for n in ("usage", "basis"):
        root = rng.normal(size=(2, 3, rank, rank))
        drawn |= {f"{n}_mean": rng.normal(size=(2, 3, rank))}
        drawn |= {f"{n}_precision": root @ root.swapaxes(-1, -2)}
    found = principal_draws(drawn, (0, 1), held=held)
    known = [d["basis"][..., :held] for d in (found, drawn)]
    np.testing.assert_allclose(*known, rtol=1e-12)
    across = known[0].swapaxes(-1, -2) @ found["basis"][..., held:]
    assert np.abs(across).max(initial=0) < 1e-9
    products = [d["usage"] @ d["basis"].swapaxes(-1, -2) for d in (drawn, found)]
    np.testing.assert_allclose(products[1], products[0], atol=1e-9)
    for n in ("usage", "basis"):
        far = [
            np.einsum("cdni,cdij,cdnj->cdn", x, d[f"{n}_precision"], x)
            for d in (drawn, found)
            for x in [d[n] - d[f"{n}_mean"][:, :, None]]
        ]
        np.testing.assert_allclose(*far, rtol=1e-6)


@pytest.mark.parametrize(
    "model", ["probit", pytest.param("ordered-probit", marks=pytest.mark.long)]
)
def test_ones_and_stars_are_predicted(model):
    fit, (data, i, j, values, _) = fitted(model), problem(model)
    mean = fit.predict_cells(i, j)
    if model == "probit":
        assert np.mean((mean > 0.5) == values) > 0.75
        np.testing.assert_allclose(fit.probability([2], [3]), fit.predict([2], [3]))
        with pytest.raises(InputError, match="0 or 1 and has no interval"):
            fit.predict_cells(i, j, "interval", noisy=True)
        return
    assert np.sqrt(np.mean((mean - values) ** 2)) < 0.65
    assert mean.min() >= 1 and mean.max() <= 5
    low, high = fit.predict_cells(i, j, "interval", 0.9, noisy=True)
    assert np.isin(low, np.arange(1, 6)).all()
    assert np.mean((low <= values) & (values <= high)) > 0.88
    assert abs(fit.figures.coverage - 0.9) < 0.03 and fit.check().intervals.holds
    assert data.scale == (1, 5)
    assert fit.figures.rhat >= fit.figures.rhat_cutpoints


@pytest.mark.parametrize(("model", "side"), [("pmf", "rows"), ("probit", "columns")])
def test_new_lines_are_predicted_given_the_other_side(model, side):
    """Lines of the fitted data as if they were new: predictions are nearly the same."""
    fit, data = fitted(model), problem(model)[0]
    if model == "pmf":
        some = data.rows < 5
        new = bmfjax.Ratings(
            data.rows[some], data.columns[some], data.values[some], shape=(5, COLUMNS)
        )
        usage = fit.transform(new)
        assert np.corrcoef(usage.ravel(), fit.usage[:5].ravel())[0, 1] > 0.98
    else:
        new = bmfjax.BinaryMatrix(data.dense()[:, :5])
    given = fit.given_new(new, side)
    at = (range(5), None) if side == "rows" else (None, range(5))
    mine, theirs = given.predict(*at), fit.predict(*at)
    assert np.abs(mine - theirs).mean() < 0.1
    if side == "rows":
        cells = new.rows[::3], new.columns[::3], new.values[::3]
        scored = scores.predictive(given, cells)
        np.testing.assert_allclose(fit.score_new(new, *cells), scored, rtol=1e-4)
        np.testing.assert_array_equal(fit.transform(new, kind="sd"), given.usage_sd)
    assert given.data.shape == new.shape


@pytest.mark.long
def test_new_lines_are_drawn_from_what_a_draw_says_of_them():
    """All draws of the fit alike: quadrature over the two factors and the effect of a new row."""
    fit = fitted("probit")
    one = {n: np.repeat(v[:1, :1], 400, 1).repeat(4, 0) for n, v in fit.draws().items()}
    usage, basis = one.pop("usage"), one.pop("basis")
    alike = dataclasses.replace(fit, usage_draws=usage, basis_draws=basis, other_draws=one)
    row = np.ones((1, COLUMNS))  # nearly all ones: latent values follow the fits slowly
    row[0, ::9] = 0.0
    found = alike.given_new(bmfjax.BinaryMatrix(row), sweeps=10)
    drawn = np.concatenate([found.usage_draws[:, :, 0], found.other_draws["row_effect"]], -1)

    grid = np.linspace(-6.0, 6.0, 45)
    w = np.stack([g.ravel() for g in np.meshgrid(grid, grid, grid)], -1)
    known = {n: v[0, 0].astype(float) for n, v in one.items()}
    fits = known["intercept"] + known["column_effect"] + w[:, :2] @ basis[0, 0].T + w[:, 2:]
    apart = w[:, :2] - known["usage_mean"]
    logs = log_ndtr(np.where(row > 0, fits, -fits)).sum(1)
    logs -= 0.5 * np.einsum("gi,ij,gj->g", apart, known["usage_precision"], apart)
    logs -= 0.5 * known["row_precision"] * w[:, 2] ** 2
    mass = np.exp(logs - logs.max())
    exact = [mass @ w**p / mass.sum() for p in (1, 2)]
    scores, size = moment_scores(drawn, exact)
    assert np.abs(scores).max() < 4 and size.min() > 100


def test_figures_of_new_lines_are_their_own():
    fit = fitted("probit")
    values = np.full((3, COLUMNS), np.nan)
    values[0, :20], values[2, 5:9] = 1.0, 0.0
    found = fit.given_new(bmfjax.BinaryMatrix(values), sweeps=2)
    assert found.figures.rows_without_information == 1
    # Columns were learned in the fit, also those of which the new rows have nothing.
    assert found.figures.columns_without_information == 0
    assert fit.figures.rows_without_information == 0
    assert found.figures.num_draws == fit.figures.num_draws
    assert found.figures.rhat_product != fit.figures.rhat_product
    assert fit.figures.exact and not found.figures.exact
    assert "new lines" in str(found.verdict).lower() or not found.figures.converged


@pytest.mark.parametrize(
    "model", ["pmf", "probit", pytest.param("ordered-probit", marks=pytest.mark.long)]
)
def test_a_fit_is_stored_and_read_and_has_a_page(model, tmp_path):
    fit = fitted(model)
    again = bmfjax.Fit.load(fit.save(tmp_path / "fit"))
    assert again.data.fingerprint() == fit.data.fingerprint() and has_its_summary(again, fit)
    np.testing.assert_allclose(again.predict([0, 1], [2]), fit.predict([0, 1], [2]), rtol=1e-6)
    assert again.verdict == fit.verdict and again.data.row_names == fit.data.row_names
    page = fit.report(tmp_path / "page.html").read_text()
    assert "How well are entries predicted?" in page and "starts" not in page
    assert "entries that are not observed" in page
    assert ("R-hat of cut points" in page) == (model == "ordered-probit")
    assert "usage_mean" in fit.idata["posterior"]


def test_the_same_seed_gives_the_same_draws_also_resumed(tmp_path):
    data, options = stars(), SMALL | {"num_warmup": 6, "num_samples": 8}
    options |= {"model": bmfjax.PMF(1, level=(7.0, 1e-3))}
    one = bmfjax.fit(data, **options)
    folder = tmp_path / "checkpoint"
    two = bmfjax.fit(data, checkpoint=folder, **options)
    again = bmfjax.fit(data, checkpoint=folder, resume=True, **options)
    for other in (two, again):
        np.testing.assert_array_equal(one.basis_draws, other.basis_draws)
    np.testing.assert_allclose(one.other_draws["intercept"], 7.0, atol=0.01)
    stored = bmfjax.Fit.load(one.save(tmp_path / "fit"))
    assert stored.settings["priors"] == one.settings["priors"]
    assert stored.settings["priors"]["level"] == [7.0, 1e-3]


@pytest.mark.parametrize(
    ("model", "link", "level"),
    [
        ("pmf", "identity", [2.25, 10 * np.std([1, 2, 2, 4])]),
        ("probit", "probit", [0.0, 1.0]),
        ("ordered-probit", "ordered", [0.0, 2.0]),
    ],
)
def test_levels_have_priors_of_their_own(model, link, level):
    values = [1.0, 0.0, 0.0, 1.0] if link == "probit" else [1.0, 2.0, 2.0, 4.0]
    data, stars = bmfjax.Ratings([0, 0, 1, 1], [0, 1, 0, 1], values), [1.0, 2.0, 4.0]
    assert ask(data, 1, model=model).chains().settings["priors"]["level"] == level
    priors = ask(data, 1, **said(model, priors={"level": (1, 3)})).chains().settings["priors"]
    assert density_of(1, link, priors, stars).level == (1.0, 3.0)


@pytest.mark.parametrize(
    ("data", "model", "options", "message"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "probit", {}, "neither 0 nor 1"),
        (bmfjax.Ratings([0, 1], [0, 1], [1, 5]), "probit", {}, "'probit' is of ones and zeros"),
        (bmfjax.Ratings([0, 1], [0, 1], [1, 5]), "relaxed", {}, "data is a Ratings, and model"),
        (bmfjax.Ratings([0, 1], [0, 1], [2, 2]), "ordered-probit", {}, "every observed value is 2"),
        ([[1.0, 2.0], [3.0, 4.0]], "pmf", {"priors": {"effects": 1}}, "give True or False"),
        ([[1.0, 2.0], [3.0, 4.0]], "pmf", {"priors": {"effect_gamma": 3}}, "give shape and rate"),
        (
            [[1, 0], [0, 1]],
            "probit",
            {"priors": {"level": (0, 0)}},
            "a positive standard deviation",
        ),
        ([[1, 0], [0, 1]], "probit", {"priors": {"level": 1}}, "level is 1; give a mean and"),
        (
            [[1.0, 2.0], [3.0, 4.0]],
            "pmf",
            {"priors": {"precision": 2, "precision_gamma": (1, 1)}},
            "precision_gamma has no say where 'precision' is 2.0; leave one of them out",
        ),
        (
            [[1, 0], [0, 1]],
            "probit",
            {"priors": {"effects": False, "effect_gamma": (1, 1)}},
            "effect_gamma has no say where 'effects' is False",
        ),
        ([[1.0, 2.0], [3.0, 4.0]], "pmf", {"init": {}}, "leave init out"),
        ([[1.0, 2.0], [3.0, 4.0]], "pmf", {"options": {"a": 1}}, "'gibbs' has none"),
    ],
)
def test_bad_options_are_refused(data, model, options, message):
    with pytest.raises(InputError, match=message):
        bmfjax.fit(data, rank=1, **said(model, **SMALL, **options))


def test_ratings_have_no_probability_of_a_one():
    with pytest.raises(InputError, match="use predict"):
        fitted().probability([0], [0])
    with pytest.raises(
        InputError, match=r"fitted matrix 40; .* by column_names=fit\.data\.column_"
    ):
        fitted().given_new(bmfjax.Ratings([0], [0], [1.0]))
    with pytest.raises(InputError, match=r"by row_names=fit\.data\.row_names"):
        fitted().given_new(bmfjax.Ratings(["x"], ["new"], [1.0]), "columns")
    with pytest.raises(InputError, match="choose 'rows' or 'columns'"):
        fitted().given_new(problem()[0], "users")
    with pytest.raises(InputError, match="model 'pmf' draws at once"):
        fitted().given_new(problem()[0], sweeps=3)


def test_new_lines_of_a_fit_without_draws_need_its_time():
    fit = fitted()
    begun = verdict.with_short_warmup(fit.verdict.changed(num_warmup=0), 300, 0)
    fit = fit._judged(begun)
    with pytest.warns(UserWarning, match="draws repeat where chains began.* fit again with more"):
        found = fit.given_new(problem()[0])
    assert found.verdict.remedy == begun.remedy and "num_samples" not in str(found.verdict)
    assert found.verdict.status == begun.status and "repeat where" in str(found.verdict)
    # One that drew until the time was up needs more of it, too; one that did not is as it was.
    ended = dataclasses.replace(fitted().verdict, remedies={"chains": "go on"})
    ended, plain = ended.changed(converged=False), fitted().given_new(problem()[0])
    for complete in (True, False):
        judged = ended.changed(complete=complete, timed_out=not complete)
        found = fitted()._judged(judged).given_new(problem()[0]).verdict
        assert found.remedies == (plain.verdict.remedies if complete else {"chains": "go on"})
    assert "go on" not in plain.verdict.remedies["chains"]


@pytest.mark.long
def test_new_lines_keep_the_scale_and_the_stars_of_the_fit():
    fit = fitted("ordered-probit")
    new = bmfjax.Ratings([0, 0, 1], [3, 7, 2], [5, 5, 5], shape=(2, COLUMNS))
    found = fit.given_new(new, sweeps=2)
    assert found.predict().max() <= 5
    from bmfjax.report.page import render

    assert "Traces" in render(found)
    with pytest.raises(InputError, match="name other rows"):
        names = fit.data.row_names[::-1]
        column = bmfjax.Ratings([0], [0], [5], shape=(ROWS, 1), row_names=names)
        fit.given_new(column, "columns")


def test_the_expected_error_is_of_cells_that_no_chain_has_seen():
    from bmfjax.report.ratings import error_figure, noisy_sd, unseen_cells

    seen = np.random.default_rng(0).random((70, 30)) < 0.6
    with mock.patch("bmfjax.report.ratings.LISTED", 0):
        drawn = unseen_cells(*np.nonzero(seen), seen.shape, 50)
    for i, j in (unseen_cells(*np.nonzero(seen), seen.shape, 10**5), drawn):
        assert len(i) == len(set(zip(i.tolist(), j.tolist(), strict=True)))
        assert not seen[i, j].any() and len(i) in (50, (~seen).sum())
    fit = fitted()
    assert len(error_figure(fit, noisy_sd).axes) == 2
    new = dataclasses.replace(fit, settings=fit.settings | {"given_new": "rows"})
    assert [a.get_xlabel() for a in error_figure(new, noisy_sd).axes] == [
        "observed entries of the row"
    ]
    whole = bmfjax.RealMatrix(np.ones((ROWS, COLUMNS)))
    assert error_figure(dataclasses.replace(fit, data=whole), noisy_sd) is None


def test_an_array_of_new_rows_has_the_names_and_the_scale_of_the_fit():
    data = problem()[0]
    values = np.tile(np.where(np.arange(COLUMNS) % 3 == 0, 4.0, np.nan), (5, 1))
    assert fitted().given_new(values).data.shape == (5, COLUMNS)
    bits = dataclasses.replace(fitted(), data=bmfjax.BinaryMatrix(np.eye(ROWS, COLUMNS)))
    assert bits.given_new(np.eye(COLUMNS)).settings["rating_range"] == [0, 1]
    of_ones = fitted().given_new(bmfjax.BinaryMatrix(np.eye(COLUMNS)))
    assert of_ones._rating_range == fitted()._rating_range == data.range
    column = fitted().given_new(np.full((ROWS, 1), 3.0), "columns")
    assert column.data.row_names == data.row_names
    items = [f"item {n}" for n in range(COLUMNS)]
    named = dataclasses.replace(fitted(), data=data.renamed(column_names=items))
    lines = pd.DataFrame({"user": ["x", "y"], "item": items[1::-1], "stars": [4, 3]})
    long = named.given_new(lines).data
    assert long.row_names == ("x", "y") and long.columns.tolist() == [1, 0]
    scaled = dataclasses.replace(fitted(), settings=fitted().settings | {"scale": [1, 5]})
    with pytest.raises(InputError, match="from 3 to 6, outside of the scale that was fitted, 1 to"):
        scaled.given_new(np.where(np.arange(COLUMNS) == 2, 6.0, 3.0)[None])


def test_a_cut_point_that_never_moves_is_not_seen_to_converge():
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.normal(size=(2, 100, 4)), -1)
    cuts[..., 3] = cuts[..., 2] + 0.25
    trace = {"log_joint": rng.normal(size=(2, 100))}
    judged = verdict.of_ratings(verdict.UNSEEN, 2, np.ones(RANK), trace, cuts)
    assert not judged.figures.converged
    assert judged.predictions.said.endswith("(chains are stuck in the cut points)")


def test_cut_points_count_in_the_verdict():
    figures = verdict.Figures(num_chains=2, chains_apart=0.0, mc_error=0.0, rhat_cutpoints=1.2)
    slow = verdict.Verdict(figures).predictions
    assert slow.said == "predictions do not hold yet (R-hat 1.20 of the cut points)"


def test_cells_that_are_not_stored_are_no_ratings():
    import scipy.sparse as sp

    with pytest.raises(InputError, match=r"give bmfjax\.Ratings"):
        bmfjax.fit(sp.csr_array(np.eye(4)), 1, model="pmf")


def test_options_for_other_files_are_refused_on_the_command_line(tmp_path, capsys):
    from bmfjax.cli import main

    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\n1,1,5\n2,1,3\n")
    assert main(["fit", str(path), "--model", "pmf", "--one", "3"]) == 2
    assert "--one is for models of ones and zeros" in capsys.readouterr().err
    assert main(["fit", "house-votes", "--model", "pmf"]) == 2
    message = "house-votes is a matrix of ones and zeros, and --model pmf is for ratings; give a "
    assert message in capsys.readouterr().err
    assert main(["fit", "none.csv", "--model", "pmf"]) == 2
    assert "none.csv is no file" in capsys.readouterr().err
    assert main(["fit", str(path), "--model", "pmf", "--effects", "rows"]) == 2
    told = capsys.readouterr()
    assert "--effects rows is for the logistic model" in told.err
    assert "value: 2 rows named by 'user' x 1 column " in told.out
    assert main(["fit", str(path), "--model", "pmf", "--probability"]) == 2
    assert "--probability is for models of ones and zeros" in capsys.readouterr().err


def test_effects_are_switched_off_on_the_command_line():
    from bmfjax.cli import build_parser, of_model

    def of(model, *words):
        return of_model(build_parser().parse_args(["fit", "--model", model, *words]))[0].priors()

    assert of("pmf", "--effects", "none")["effects"] is False
    assert of("probit", "--effects", "both")["effects"] is of("pmf")["effects"] is True
    for sides, expected in (("none", (False, False)), ("rows", (True, False))):
        found = of("logistic", "--effects", sides)
        assert (found["row_effects"], found["column_effects"]) == expected
