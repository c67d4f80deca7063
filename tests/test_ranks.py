"""Comparing ranks: what is hidden, scores by hand, the code, the rule, and the command."""

import dataclasses
import itertools
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear
from scipy.special import expit

import bmfjax
from bmfjax.cli import main
from bmfjax.comparison import choice, held_out, ranks
from bmfjax.data import InputError, blocks
from bmfjax.data.parts import repeated, rows_of, without_cells
from bmfjax.families import ask
from bmfjax.infer import new_rows
from bmfjax.posterior import products, scores
from bmfjax.posterior.code_length import code_length
from bmfjax.posterior.held_out import hidden_cells
from bmfjax.posterior.packed import PackedDraws
from bmfjax.specs.default import MOST_WORK
from bmfjax.verdict import Figures, Verdict
from tests import small_fits
from tests.test_cells import MODELS, data_of, fit_of

RNG = np.random.default_rng(5)


# ---- parts of data -------------------------------------------------------------------------------


def kinds():
    """Data of every kind, with missing cells."""
    values = (RNG.random((7, 5)) < 0.5).astype(float)
    values[2, 3] = values[4] = np.nan
    known = np.isfinite(values)
    marks = sp.csr_array(np.nan_to_num(values)), sp.csr_array(known)
    i, j = np.nonzero(known)
    names = [f"column {c}" for c in "abcde"]
    return [
        bmfjax.BinaryMatrix(values, column_names=names),
        bmfjax.BinaryMatrix(marks[0], observed=marks[1]),
        bmfjax.RealMatrix(values + 0.5, row_names=list("tuvwxyz")),
        bmfjax.Ratings(i, j, values[i, j] + 1, shape=(7, 5), scale=(1, 2)),
    ]


@pytest.mark.parametrize("data", kinds(), ids=["dense", "sparse", "real", "ratings"])
def test_parts_are_those_of_the_table(data):
    whole, rows = data.dense(), np.array([1, 2, 5])
    i, j = np.array([1, 2, 6]), np.array([0, 4, 1])
    some = rows_of(data, rows)
    np.testing.assert_array_equal(some.dense(), whole[rows])
    assert some.column_names == data.column_names and type(some) is type(data)
    if data.has_row_names:
        assert some.row_names == ("u", "v", "y")
    hidden = whole.copy()
    hidden[i, j] = np.nan
    np.testing.assert_array_equal(without_cells(data, i, j).dense(), hidden)
    np.testing.assert_array_equal(repeated(data, 3).dense(), np.tile(whole, (3, 1)))
    np.testing.assert_array_equal(data.dense(), whole)


@pytest.mark.parametrize("model", MODELS)
def test_hidden_cells_are_missing_and_scored(model):
    data = data_of(model)
    hidden = hidden_cells(data, 0.1, seed=3)
    i, j, values = hidden.cells
    np.testing.assert_allclose(data.dense()[i, j], values)
    left = hidden.data.dense()
    assert np.isnan(left[i, j]).all() and hidden.data.num_missing - data.num_missing == len(i)
    assert len(i) == round(0.1 * data.num_rows * data.num_columns)
    again = hidden_cells(data, 0.1, seed=3)
    np.testing.assert_array_equal(again.cells, hidden.cells)


def test_the_last_of_a_star_is_not_hidden():
    values = np.array([1.0, 1, 1, 2, 2, 5])
    data = bmfjax.Ratings(np.arange(6), np.arange(6) % 3, values)
    for seed in range(20):
        hidden = hidden_cells(data, 0.6, seed, keeps_values=True)
        assert set(hidden.data.values) == {1, 2, 5}
    # Numbers that no parameter is of are hidden as they come.
    for model, always in (("ordered-probit", True), ("pmf", False)):
        asked = (ask(data, 2, model=model, seed=seed).hidden_cells(0.6) for seed in range(20))
        assert all(5 in hidden.data.values for hidden in asked) is always


@pytest.mark.parametrize("model", ["ormachine", "pmf"])
def test_rows_are_left_out_in_parts_and_columns_in_blocks(model):
    data = data_of(model)
    whole, parts = data.dense(), held_out.left_out_rows(data, seed=1)
    assert len({part.data.shape for part in parts}) == 1
    assert not set(parts[0].cell_rows) & set(parts[1].cell_rows)
    for part in parts:
        rows = np.unique(part.cell_rows)
        np.testing.assert_array_equal(part.data.dense(), np.delete(whole, rows, 0))
        i, j, values = part.cells
        new = part.new.dense()
        np.testing.assert_array_equal(whole[part.cell_rows, j], values)
        assert len(set(zip(part.cell_rows, j, strict=True))) == len(j) == 20 * 37
        for copy in range(5):
            block = np.unique(j[i // 20 == copy])
            expected = whole[rows].copy()
            expected[:, block] = np.nan
            np.testing.assert_array_equal(new[20 * copy : 20 * copy + 20], expected)
            assert 7 <= len(block) <= 8 and set(rows[i % 20]) == set(rows)
        np.testing.assert_array_equal(rows[i % 20], part.cell_rows)


# ---- scores of new rows --------------------------------------------------------------------------


def boolean_fit(rank=2, draws=3, columns=6):
    """A fit of known draws of the basis, the flip rates and the densities."""
    rng = np.random.default_rng(rank)
    basis = rng.random((1, draws, columns, rank)) < 0.5
    others = {
        "flip_rate": rng.uniform(0.05, 0.2, (1, draws, 2)).astype(np.float32),
        "usage_density": rng.uniform(0.2, 0.7, (1, draws, rank)).astype(np.float32),
    }
    fit = dataclasses.replace(
        fit_of("ormachine"),
        data=bmfjax.BinaryMatrix(rng.random((4, columns)) < 0.5),
        usage_draws=PackedDraws.pack(rng.random((1, draws, 4, rank)) < 0.5),
        basis_draws=PackedDraws.pack(basis),
        other_draws=others,
    )
    return fit, basis, others


def by_enumeration(row, j, basis, others):
    """P(cell = 1 | the observed cells of its row), summed over usage, averaged over draws."""
    found = []
    for u, (f0, f1), density in zip(
        basis[0], others["flip_rate"][0], others["usage_density"][0], strict=True
    ):
        total = one = 0.0
        for z in itertools.product([0, 1], repeat=u.shape[1]):
            cover = (u & np.array(z, bool)).any(1)
            chance = np.where(cover, 1 - f1, f0)
            prior = np.prod(np.where(z, density, 1 - density))
            seen = ~np.isnan(row)
            weight = prior * np.prod(np.where(row == 1, chance, 1 - chance)[seen])
            total, one = total + weight, one + weight * chance[j]
        found.append(one / total)
    return np.mean(found)


def test_bi_cross_validation_of_known_boolean_factors_is_the_enumeration():
    fit, basis, others = boolean_fit()
    data = bmfjax.BinaryMatrix(np.random.default_rng(9).random((8, 6)) < 0.5)
    part = held_out.left_out_rows(data, seed=0)[0]
    i, j, values = part.cells
    new = part.new.dense()
    one = np.array([by_enumeration(new[r], c, basis, others) for r, c in zip(i, j, strict=True)])
    expected = np.log(np.where(values == 1, one, 1 - one))
    np.testing.assert_allclose(part.score(fit), expected, rtol=1e-5)
    assert len(values) == 24 and np.isnan(new[i, j]).all()


def test_usage_that_is_drawn_predicts_as_usage_that_is_summed_over(monkeypatch):
    fit, basis, others = boolean_fit(draws=1)
    repeated = dataclasses.replace(
        fit,
        basis_draws=PackedDraws.pack(np.repeat(basis, 400, 1)),
        other_draws={n: np.repeat(v, 400, 1) for n, v in others.items()},
    )
    row = np.array([[1.0, 0, 1, np.nan, np.nan, 0]])
    cells = [0, 0], [3, 4], [1.0, 1.0]
    exact = np.exp(fit.score_new(row, *cells))
    monkeypatch.setattr(new_rows, "MAX_SUMMED_RANK", 1)
    drawn = np.exp(repeated.score_new(row, *cells))
    np.testing.assert_allclose(drawn, exact, atol=0.06)
    np.testing.assert_allclose(
        exact, [by_enumeration(row[0], j, basis, others) for j in (3, 4)], rtol=1e-5
    )


@pytest.mark.parametrize(("model", "upper"), [("nmf", np.inf), ("relaxed", 1.0)])
def test_usage_by_least_squares_predicts_with_the_noise_of_every_draw(model, upper):
    """Least squares within bounds by SciPy, for every draw of the basis."""
    fit, at = fit_of(model), [4, 9]
    row = (np.random.default_rng(0).random(37) < 0.4).astype(float)
    new = row.copy()
    new[at] = np.nan
    seen, densities = ~np.isnan(new), []
    for basis in fit.basis_draws.reshape(-1, 37, 3).astype(float):
        usage = lsq_linear(basis[seen], row[seen], (0, upper)).x
        gap = row[at] - basis[at] @ usage
        densities.append(-0.5 * 4.0 * gap**2 + 0.5 * np.log(4.0 / (2 * np.pi)))
    found = fit.score_new(new[None], [0, 0], at, row[at])
    np.testing.assert_allclose(found, np.log(np.exp(densities).mean(0)), rtol=1e-3)


def test_a_new_row_of_which_nothing_is_seen_has_the_prior_of_the_logistic_model():
    fit = dataclasses.replace(fit_of("logistic"), settings={"priors": {"scale": 0.5}})
    basis, spread = (fit.approximation[f"basis_{n}"][:, [3, 5]] for n in ("mean", "variance"))
    level, doubt = (fit.approximation[f"bias_{n}"][:, None] for n in ("mean", "variance"))
    variance = 0.25 * (basis**2 + spread).sum(-1) + doubt
    one = expit(level / np.sqrt(1 + np.pi * variance / 8)).mean(0)
    # The second row is there because a matrix has something observed.
    blank = without_cells(bmfjax.BinaryMatrix(np.ones((2, 37))), np.zeros(37, int), np.arange(37))
    found = fit.score_new(blank, [0, 0], [3, 5], [1.0, 0.0])
    np.testing.assert_allclose(np.exp(found), [one[0], 1 - one[1]], rtol=1e-3)
    for cells, message in (
        (([0], [3, 5], [1.0, 0.0]), r"i has shape \(1,\) and j \(2,\)"),
        (([0, 2], [3, 5], [1.0, 0.0]), "i has a value that is no position from 0 to 1"),
        (([0, 0], [3, -1], [1.0, 0.0]), "j has a value that is no position"),
        (([0, 0], [3, 5], [1.0, 7.0]), "values has a number other than 0 and 1"),
        (([0, 0], [3, 5], [1.0]), "values has shape"),
    ):
        with pytest.raises(InputError, match=message):
            fit.score_new(blank, *cells)
    with pytest.raises(InputError, match="seed is -1"):
        fit.score_new(blank, [0], [3], [1.0], seed=-1)


@pytest.mark.parametrize(
    ("model", "value", "message"),
    [
        ("ordered-probit", 3.5, "none of the stars that were fitted, 1, 2, 3, 4, 5; give what was"),
        ("ordered-probit", 6.0, "none of the stars that were fitted"),
        ("probit", 3.0, "values has a number other than 0 and 1"),
        ("pmf", np.nan, "values has numbers that are not finite"),
        ("nmf", np.inf, "values has numbers that are not finite"),
    ],
)
def test_what_no_cell_can_have_is_not_scored(model, value, message):
    fit = fit_of(model)
    new = fit.data.dense()[:1]
    with pytest.raises(InputError, match=message):
        fit.score_new(new, [0], [1], [value])


def test_new_rows_of_which_nothing_is_known_have_no_unit():
    """Usage that a row says nothing of: the middle of a bounded scale, nothing without bounds."""
    row, basis = np.array([[50.0, 50.0, np.nan]]), np.array([[[100.0, 0], [100.0, 0], [0, 9.0]]])
    for unit in (1.0, 1e3):
        found = products.best_usage(row * unit, basis * unit, upper=np.inf)
        np.testing.assert_allclose(found, [[0.5, 0.0]])
    np.testing.assert_allclose(products.best_usage(row, basis, upper=1.0), [[0.5, 0.5]])


# ---- leave one out, code length ------------------------------------------------------------------


def test_scores_streamed_over_blocks_are_those_of_arviz(monkeypatch):
    arviz = pytest.importorskip("arviz")
    fit = fit_of("nmf", draws=120)
    close = fit.usage_draws[:1, :1] + 0.05 * fit.usage_draws[:1]
    fit = dataclasses.replace(
        fit, usage_draws=close, basis_draws=np.repeat(fit.basis_draws[:1, :1], 120, 1)
    )
    cells = scores.observed_sample(fit.data, 60, seed=2)
    density = fit._log_density(*cells)
    idata = bmfjax.diagnostics.to_inference_data(
        {"a": np.zeros((1, 120))}, log_likelihood={"data": density[None]}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = arviz.loo(idata, pointwise=True, reff=1.0)
    calls = []
    whole = type(fit)._log_density
    monkeypatch.setattr(
        type(fit), "_log_density", lambda self, i, *v: calls.append(len(i)) or whole(self, i, *v)
    )
    monkeypatch.setattr(blocks, "BLOCK", 4 * 120 * 7)
    found = scores.scored_together(fit, cells)
    # A draw x cell matrix of seven cells at a time, and no larger.
    assert max(calls) == 7 and sum(calls) == 60
    np.testing.assert_allclose(found.log_score, np.asarray(theirs.loo_i), rtol=1e-6)
    shape = np.asarray(theirs.pareto_k)
    np.testing.assert_array_equal(found.doubtful, shape > 0.7)


def choose(n, k):
    return math.log2((n + 1) * math.comb(n, k))


def test_the_code_length_is_that_counted_by_hand():
    values = np.array([[1, 1, 0, 0], [1, np.nan, 0, 1], [0, 1, 1, 1]], float)
    usage = np.array([[1, 0], [1, 0], [0, 1]], bool)
    basis = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool)
    # The product has ones at 2 + 1 + 2 observed cells, none of them wrong; of six zeros two are.
    bits = choose(3, 2) + choose(3, 1) + 2 * choose(4, 2) + choose(5, 0) + choose(6, 2)
    for data in (values, sp.csr_array(np.nan_to_num(values))):
        observed = sp.csr_array(np.isfinite(values)) if sp.issparse(data) else None
        found = code_length(bmfjax.BinaryMatrix(data, observed=observed), usage, basis)
        assert found == pytest.approx(bits)
    empty = code_length(bmfjax.BinaryMatrix(values), usage & False, basis & False)
    assert empty == pytest.approx(
        2 * math.log2(4) + 2 * math.log2(5) + choose(0, 0) + choose(11, 7)
    )


def test_a_factor_of_the_truth_shortens_the_code_and_one_of_noise_lengthens_it():
    rng = np.random.default_rng(3)
    usage, basis = rng.random((60, 3)) < 0.4, rng.random((40, 3)) < 0.4
    product = (usage[:, :2].astype(int) @ basis[:, :2].T.astype(int)) > 0
    data = bmfjax.BinaryMatrix(product ^ (rng.random(product.shape) < 0.05))
    bits = [code_length(data, usage[:, :k], basis[:, :k]) for k in (1, 2, 3)]
    assert bits[1] < bits[0] and bits[1] < bits[2]


# ---- scores side by side, and the rule -----------------------------------------------------------


def test_errors_are_of_rows_and_differences_paired():
    rows = np.array([0, 0, 1, 1, 2, 2])
    one = np.array([-1.0, -1, -2, -2, -3, -3])
    found = held_out.side_by_side({2: one, 3: one + 0.5}, rows)
    assert found["mean"] == {2: -2.0, 3: -1.5}
    # Three means of rows, -1, -2 and -3, each known.
    assert found["se"][2] == pytest.approx(1 / np.sqrt(3))
    assert found["difference"] == {2: -0.5, 3: 0.0}
    assert found["difference_se"][2] == pytest.approx(0.0, abs=1e-12)
    single = held_out.side_by_side({1: one}, np.arange(6))
    assert single["se"][1] == pytest.approx(one.std(ddof=1) / np.sqrt(6))


def table_of(entries, blocks=None, loo=None, chance=None, bits=None, se=0.01):
    """A table of ranks 2, 3, ...; a score is given as its difference to the best."""
    number = len(entries)
    columns = dict.fromkeys(ranks._COLUMNS, [math.nan] * number)
    for name, behind in (("entries", entries), ("blocks", blocks), ("loo", loo)):
        if behind is not None:
            columns |= {f"{name}_difference": behind, name: [b - 0.3 for b in behind]}
            columns |= {f"{name}_difference_se": [se * (b < 0) for b in behind]}
            columns |= {f"{name}_se": [se] * number}
    columns |= {"doubtful": [0] * number, "scored": [100] * number, "seconds": [3.0] * number}
    columns |= {"verdict": ["reliable"] * number, "rhat": [1.0] * number}
    columns |= {"shared": [float(r) for r in range(2, number + 2)]}
    if chance is not None:
        columns |= {"p_rank": chance, "p_rank_se": [0.02] * number}
    if bits is not None:
        columns["code_length"] = bits
    return pd.DataFrame(columns, index=pd.RangeIndex(2, number + 2, name="rank"))


def test_the_smallest_rank_within_two_errors_is_taken():
    assert choice.recommended(table_of([-0.2, -0.019, 0.0]))[0] == 3
    assert choice.recommended(table_of([-0.2, -0.021, 0.0]))[0] == 4
    assert choice.recommended(table_of([0.0, -0.001, -0.002]))[0] == 2
    # By both, where both are known; by entries where no rank is good by both.
    assert choice.recommended(table_of([-0.2, -0.005, 0.0], [-0.2, -0.03, 0.0]))[0] == 4
    apart = choice.recommended(table_of([0.0, -0.2, -0.3], [-0.3, -0.2, 0.0]))
    assert apart[0] == 2 and "bi-cross-validation takes 4" in apart[1]
    only = choice.recommended(table_of([math.nan] * 3, loo=[-0.2, 0.0, -0.1]))
    assert only[0] == 3 and "PSIS-LOO" in only[1]


def test_the_reason_says_what_agrees_and_what_does_not():
    good = [-0.2, 0.0, -0.001]
    _, reason = choice.recommended(table_of(good, good, good, [0.01, 0.93, 0.06], [900, 800, 850]))
    assert reason == (
        "Rank 3 is the smallest within two standard errors of the best score of hidden entries and "
        "of bi-cross-validation; PSIS-LOO, P(rank) of 0.93 and code length agree."
    )
    table = table_of(good, good, [-0.3, -0.1, 0.0], [0.01, 0.09, 0.9], [700, 800, 850])
    reason = choice.recommended(table)[1]
    assert reason.endswith(
        "the criteria disagree: PSIS-LOO takes 4, P(rank) is highest at 4 (0.90) and the code is "
        "shortest at 2."
    )
    # What is not known well says nothing.
    table["p_rank_se"], table["doubtful"] = 0.4, 30
    reason = choice.recommended(table)[1]
    assert "P(rank)" not in reason and "LOO" not in reason


# ---- ranks that are asked for --------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["5:2", "0:3", "3:3", "a:b", "2:x", "", "4", "2;3", "2,2", [3], [1.5, 2], [0, 2], 3]
)
def test_ranks_that_cannot_be_are_refused(given):
    with pytest.raises(InputError, match=r"^ranks are .* such as 2:12 or 2,4,8$"):
        bmfjax.compare_ranks("davis", given)


def test_options_that_cannot_be_are_refused_before_anything_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ranks, "finish", None)
    with pytest.raises(InputError, match=r"^ranks go up to 15, .* to 14, such as 2:14$"):
        bmfjax.compare_ranks("davis", "2:15")
    with pytest.raises(InputError, match=r"^ranks go up to 40, .* to 2, such as 1:2$"):
        bmfjax.compare_ranks([[0, 1], [1, 0], [1, 1]], [1, 40])
    for given in ("2-4", "2..4", " 2 to 4"):
        with pytest.raises(InputError, match=r"2:12 or 2,4,8; did you mean '2:4'\?$"):
            bmfjax.compare_ranks("davis", given)
    with pytest.raises(InputError, match="without is 'loo'; choose from evidence, entries"):
        bmfjax.compare_ranks("davis", "2:4", without=["loo"])
    with pytest.raises(InputError, match=r"hidden is 1\.0; give a share"):
        bmfjax.compare_ranks("davis", "2:4", hidden=1.0)
    with pytest.raises(InputError, match="max_time is 0"):
        bmfjax.compare_ranks("davis", "2:4", max_time=0)
    (tmp_path / "table.csv").write_text("mine\n")
    assert main(["rank", "davis", "--ranks", "2:4", "--output", str(tmp_path)]) == 2
    assert "is in the way" in capsys.readouterr().err
    assert main(["rank", "davis", "--ranks", "5:2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ---- the whole -----------------------------------------------------------------------------------


@pytest.fixture
def no_sampling(monkeypatch):
    """Fits of numbers that were not sampled, of the shape that was asked for."""
    asked = []

    def finish(request, chains, *, max_time, patient):
        asked.append((int(request.rank), request.data.shape, request.sampler.name, max_time))
        rows, columns = request.data.shape
        fit = fit_of(
            request.model.name, request.data, rows=rows, columns=columns, rank=int(request.rank)
        )
        figures = {"factors_agreeing": 1.0, "rhat": 1.0, "complete": True, "timed_out": False}
        figures |= {"seconds": 1.0, "exact": True, "converged": True}
        if request.sampler.name == "smc":
            figures |= {"log_evidence": -float(request.rank), "log_evidence_error": 0.1}
            figures |= {"log_evidence_runs": [0.0], "log_evidence_run_errors": [0.1]}
        others = dict(fit.other_draws)
        if request.model.name == "ormachine":
            others["usage_density"] = np.full((*fit.usage_draws.shape[:2], fit.rank), 0.5)
        judged = Verdict(Figures(**figures))
        return dataclasses.replace(fit, verdict=judged, other_draws=others)

    monkeypatch.setattr(ranks, "finish", finish)
    return asked


def test_a_comparison_has_every_criterion_and_shares_its_seconds(no_sampling, tmp_path):
    found = bmfjax.compare_ranks(
        data_of("ormachine"), [2, 3], model="ormachine", max_time=60, progress=False
    )
    table = found.table
    assert no_sampling[:5] == [
        (2, (40, 37), "gibbs", pytest.approx(60 / 6)),
        (2, (40, 37), "gibbs", pytest.approx(59 / 5)),
        (2, (20, 37), "gibbs", pytest.approx(58 / 4)),
        (2, (20, 37), "gibbs", pytest.approx(57 / 3)),
        (2, (40, 37), "smc", pytest.approx(56)),
    ]
    assert table.drop(columns="verdict").notna().all().all()
    odds = table["p_rank"].loc[2] / table["p_rank"].loc[3]
    assert odds == pytest.approx(np.e) and table["p_rank"].sum() == pytest.approx(1)
    assert table["seconds"].tolist() == [5.0, 5.0] and table["shared"].tolist() == [2.0, 3.0]
    for name in ("entries", "blocks", "loo"):
        assert table[f"{name}_difference"].max() == 0 and (table[f"{name}_se"] > 0).all()
    assert found.recommended in (2, 3) and found.reason in repr(found)
    # Numbers that are seen in the files are those of the table.
    found.save(tmp_path / "made")
    written = pd.read_csv(tmp_path / "made" / "table.csv", index_col="rank")
    pd.testing.assert_frame_equal(written, table, check_dtype=False, rtol=1e-5)
    record = json.loads((tmp_path / "made" / "ranks.json").read_text())
    assert record["reason"] == found.reason and record["ranks"][1]["rank"] == 3
    assert (tmp_path / "made" / "ranks.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="already holds a comparison of ranks"):
        found.save(tmp_path / "made")
    found.save(tmp_path / "made", overwrite=True)
    (tmp_path / "made" / "table.csv").write_text("mine\n")
    with pytest.raises(InputError, match="is in the way"):
        found.save(tmp_path / "made", overwrite=True)
    assert (tmp_path / "made" / "table.csv").read_text() == "mine\n"


def test_what_cannot_be_known_is_noted(no_sampling):
    data = data_of("ormachine")
    found = bmfjax.compare_ranks(data, [2, 25], model="ormachine", progress=False)
    said = " ".join(found.notes)
    assert "No bi-cross-validation at rank 25: rank is 25; give a number from 1 to 20" in said
    assert "No evidence at rank 25: no sampler estimates it" in said
    assert found.table["blocks"].isna().tolist() == [False, True]
    for_rows = ranks._given_for_rows(
        ask(np.ones((5, 4)) - np.eye(5, 4), bmfjax.Poisson(2, offset=np.ones(5)))
    )
    assert for_rows == "offset has a value for each of the 5 rows, and the fits are of half of them"
    assert found.table["p_rank"].isna().all() and "P(rank)" not in found.printed
    real = bmfjax.compare_ranks(
        data_of("nmf"), [2, 3], model="nmf", without=["entries", "blocks"], progress=False
    )
    assert real.table[["entries", "blocks", "code_length", "p_rank"]].isna().all().all()
    assert len(real.plot().axes) == 2 and "PSIS-LOO" in real.reason
    near = dataclasses.replace(real, table=table_of([-0.5, -0.01, 0.0], chance=[0.0, 0.6, 0.4]))
    titles = [ax.get_title(loc="left") for ax in near.plot().axes]
    assert titles[1:3] == ["The same, near the best", "Probability of the rank, by the evidence"]
    assert near.plot().axes[1].get_ylim() == pytest.approx((-0.09, 0.03))
    # Green is what the verdict calls usable, though R-hat be 1.15.
    told = near.table.assign(rhat=1.15, verdict=["usable", "usable", "in part"])
    bars = dataclasses.replace(near, table=told).plot().axes[-1].patches[-3:]
    colours = [bar.get_facecolor() for bar in bars]
    assert colours[0] == colours[1] != colours[2]


def test_ctrl_c_ends_the_whole_comparison(no_sampling, monkeypatch):
    whole = ranks.finish

    def interrupted(*given, **options):
        fit = whole(*given, **options)
        return dataclasses.replace(fit, verdict=fit.verdict.changed(complete=False))

    monkeypatch.setattr(ranks, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt, match="at rank 2"):
        bmfjax.compare_ranks(data_of("ormachine"), [2, 3], progress=False)
    assert len(no_sampling) == 1


def test_all_ranks_have_the_default_model_of_the_largest(monkeypatch):
    asked = []

    def noted(request, chains, **options):
        asked.append(request.model)
        raise KeyboardInterrupt

    monkeypatch.setattr(ranks, "finish", noted)
    side = int((MOST_WORK / 20) ** 0.5)
    for most, model in ((20, bmfjax.Features(2)), (25, bmfjax.OrMachine(2))):
        with pytest.raises(KeyboardInterrupt):
            bmfjax.compare_ranks(
                np.eye(side), [2, most], progress=False, without=("entries", "blocks", "evidence")
            )
        assert asked.pop() == model


@pytest.mark.long
def test_the_command_compares_ranks_of_a_file(tmp_path, capsys):
    """Real fits, as short as they can be."""
    source, output = tmp_path / "made.csv", tmp_path / "made"
    np.savetxt(source, small_fits.ones(), delimiter=",", fmt="%.0f")
    command = [
        "rank", str(source), "--ranks", "1:2", "--model", "relaxed", "--chains", "2",
        "--warmup", "10", "--samples", "10", "--without", "blocks", "--quiet",
        "--output", str(output),
    ]  # fmt: skip
    assert main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    record = json.loads((output / "ranks.json").read_text())
    assert record["reason"] in out and "ranks.png" in out
    table = pd.read_csv(output / "table.csv", index_col="rank")
    assert table.index.tolist() == [1, 2] and np.isfinite(table["entries"]).all()
    assert main(command) == 2
    assert "already holds a comparison of ranks" in capsys.readouterr().err


def test_factors_that_some_chains_found_alone_are_warned_of():
    table = pd.DataFrame({"verdict": "in part", "shared": [2.0, 2.0, 4.0]}, index=[2, 3, 4])
    assert ranks._beware(table, 2) == []
    (said,) = ranks._beware(table, 3)
    assert said.startswith("At rank 3 all chains found 2 of 3 factors; ")
    assert ranks._beware(table.assign(verdict="unreliable"), 3)[0].startswith("Chains at rank 3")
