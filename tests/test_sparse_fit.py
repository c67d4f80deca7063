"""Fits of sparse matrices that are never formed: their draws are those of dense ones."""

import warnings

import jax
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import bmfjax
from bmfjax.data import BinaryMatrix, RealMatrix
from bmfjax.families import ask, base
from bmfjax.families import tiles as family_tiles
from bmfjax.infer.mcmc import truncated
from bmfjax.kernels.relaxed.data import SparseMatrixData, num_observed
from bmfjax.posterior import scores

ROWS, COLUMNS, RANK = 61, 47, 2
SIZES = {"num_chains": 2, "num_warmup": 6, "num_samples": 8, "seed": 3}
CASES = {
    "relaxed": {"model": "relaxed"},
    "relaxed, unknown rank": {"model": bmfjax.Relaxed(usage="ard", basis="ard")},
    "nmf": {"model": "nmf"},
    "nmf, walls": {"model": "nmf", "sampler": bmfjax.Gibbs(walls=[20.0])},
}
#: Lines of this many entries would be whole rows, or whole columns, of a dense matrix.
DENSE = {(ROWS, COLUMNS), (COLUMNS, ROWS)}


def values_of(model):
    """Two tiles in an otherwise empty matrix, with a row and a column that are empty."""
    r = np.random.default_rng(0)
    values = np.zeros((ROWS, COLUMNS))
    values[:15, :12], values[10:30, 20:30] = 1.0, 1.0
    if model == "nmf":
        values *= r.poisson(4.0, values.shape)
    values[5], values[:, 7] = 0.0, 0.0
    return values


@pytest.fixture
def any_size(monkeypatch):
    """Hold small matrices sparse, too."""
    monkeypatch.setattr(truncated, "SPARSE_ENTRIES", 0)


def run_of(values, case):
    request = ask(values, RANK, **CASES[case], **SIZES)
    run = request.chains().run(request)
    run.advance(SIZES["num_warmup"] + SIZES["num_samples"])
    return run


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] * (case != "relaxed")) for case in CASES]
)
def test_draws_of_a_sparse_matrix_are_those_of_the_dense_one(case, any_size):
    """Up to rounding, which few sweeps hardly enlarge."""
    values = values_of(CASES[case]["model"])
    sparse = run_of(sp.csr_array(values), case)
    assert isinstance(sparse._data, SparseMatrixData)
    dense = run_of(values, case)
    for name, draws in dense.draws().items():
        np.testing.assert_allclose(sparse.draws()[name], draws, rtol=2e-2, atol=2e-3)
    joint = dense.trace()["log_joint"]
    np.testing.assert_allclose(sparse.trace()["log_joint"], joint, rtol=1e-3, atol=0.5)


@pytest.mark.parametrize(("model", "is_sparse"), [("relaxed", True), ("nmf", False)])
def test_few_missing_entries_stay_sparse_where_the_sampler_can(model, is_sparse, any_size):
    """Moves of lines cannot; a dense matrix is then checked as such before it is formed."""
    values = sp.coo_array(values_of("relaxed"))
    values.data[:3] = np.nan
    data = ask(values, RANK, model=model, **SIZES).chains().data
    assert isinstance(data, SparseMatrixData) == is_sparse
    assert float(num_observed(data)) == ROWS * COLUMNS - 3
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(bmfjax.InputError, match="nonzero" if is_sparse else "the dense matrix"),
    ):
        patch.setattr("bmfjax.families.check_programs", lambda: None)
        patch.setattr("bmfjax.data.memory.available_memory", lambda: 50_000)
        ask(values, RANK, model=model, **SIZES).chains()


@pytest.mark.parametrize("case", CASES)
def test_a_step_forms_no_array_of_rows_times_columns(case, any_size):
    request = ask(sp.csr_array(values_of(CASES[case]["model"])), RANK, **CASES[case], **SIZES)
    chains = request.chains()
    algorithm, data = chains.algorithm, chains.data
    state = jax.eval_shape(lambda key: algorithm.init(key, None, data), jax.random.key(0))
    step = jax.make_jaxpr(algorithm.step)(jax.random.key(0), state, data)
    shapes = set(shapes_of(step.jaxpr))
    assert (ROWS, RANK) in shapes and not shapes & DENSE


def shapes_of(jaxpr):
    """Yield the last two axes of all that a program computes, in its loops too."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield tuple(variable.aval.shape[-2:])
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from shapes_of(getattr(inner, "jaxpr", inner))


def is_program(value):
    return hasattr(value, "jaxpr") or hasattr(value, "eqns")


@pytest.mark.parametrize("case", ["relaxed", pytest.param("nmf", marks=pytest.mark.long)])
def test_a_large_sparse_matrix_is_never_formed(case, any_size, tmp_path, monkeypatch):
    """From the input to the report, the file, and what is asked of it."""
    for name in ("result.fit", "families.tiles", "families.relaxed", "posterior.scores"):
        monkeypatch.setattr(f"bmfjax.{name}.MAX_ENTRIES", 500)
    model = CASES[case]["model"]
    values = sp.csr_array(values_of(model))

    def refuse(*_, **__):
        raise AssertionError("the dense matrix was formed")

    for kind in (BinaryMatrix, RealMatrix):
        monkeypatch.setattr(kind, "dense", refuse)
        monkeypatch.setattr(kind, "observed", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        fit = bmfjax.fit(values, RANK, model=model, progress=False, **SIZES)
        fit.report(tmp_path / "page.html")
    again = bmfjax.Fit.load(fit.save(tmp_path / "fit"))
    assert again.data.is_sparse and again.data.fingerprint() == fit.data.fingerprint()
    assert fit.predict(rows=range(3), columns=range(4)).shape == (3, 4)
    cells = scores.observed_sample(fit.data)
    assert np.isfinite(fit._log_density(*cells)).all()
    np.testing.assert_array_equal(cells[2], np.asarray(values[cells[:2]]).ravel())
    found = fit.transform(values[:7])
    monkeypatch.undo()
    np.testing.assert_allclose(found, fit.transform(values[:7].toarray()), atol=1e-8)


@pytest.mark.parametrize("ending", ["mtx", "zarr"])
def test_files_of_numbers_are_read_by_their_path(ending, tmp_path):
    path, values = tmp_path / f"m.{ending}", values_of("nmf")
    if ending == "mtx":
        scipy.io.mmwrite(path, sp.coo_array(values))
    else:
        zarr = pytest.importorskip("zarr")
        array = zarr.open(str(path), mode="w", shape=values.shape, dtype=values.dtype)
        array[:] = values
    data = ask(str(path), RANK, model="nmf", **SIZES).data
    assert data.is_sparse == (ending == "mtx")
    assert data.fingerprint() == RealMatrix(values).fingerprint()


def test_means_are_cut_where_they_err_least():
    usage, basis = np.array([[0.45], [0.2], [0.0]]), np.array([[0.7], [0.35]])
    cut = family_tiles.cut_means(BinaryMatrix([[1, 1], [0, 0], [0, 0]]), usage, basis)
    assert cut.usage[:, 0].tolist() == [True, False, False] and cut.basis.all()


def test_tiles_of_large_matrices_have_the_same_means(monkeypatch):
    ones = np.kron(np.eye(2), np.ones((6, 5)))
    fit = bmfjax.fit(ones, 2, model="relaxed", progress=False, **SIZES | {"num_warmup": 100})
    small = fit._tile_means()
    monkeypatch.setattr("bmfjax.result.fit.MAX_ENTRIES", 50)
    monkeypatch.setattr(family_tiles, "MAX_ENTRIES", 10)
    np.testing.assert_allclose(fit._tile_means(), small)


def test_a_start_has_the_residual_of_the_dense_matrix():
    r = np.random.default_rng(1)
    values = sp.random_array((30, 20), density=0.2, rng=1, format="csr")
    usage, basis = r.random((30, 3)), r.random((20, 3))
    with_gap = values.copy()
    with_gap.data[3] = np.nan
    for given in (values, with_gap):
        expected = np.nansum((given.toarray() - usage @ basis.T) ** 2)
        assert base.squared_residual(given, usage, basis) == pytest.approx(expected, rel=1e-12)
