"""ArviZ fits again through the wrapper: without the entries held out, which the refit scores."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

import bmfjax
from bmfjax.data import InputError
from bmfjax.diagnostics import group
from bmfjax.diagnostics.arviz import _import_arviz, is_legacy
from tests.test_cells import MODELS, fit_of

az = _import_arviz()


@pytest.fixture(scope="module", params=MODELS)
def fit(request):
    return fit_of(request.param)


def test_held_out_entries_are_missing_in_the_refit(fit):
    seen = []

    def refit(data):
        seen.append(data)
        return fit

    wrapper = bmfjax.sampling_wrapper(fit, refit, entries=30)
    listed = group(wrapper.idata_orig, "observed_data")["data"]
    fewer, held_out = wrapper.sel_observations(np.array([4, 20]))
    i, j = (listed[n].values[[4, 20]] for n in ("row", "column"))
    assert fewer.num_missing == fit.data.num_missing + 2
    dense = fewer.dense()
    assert np.isnan(dense[i, j]).all()
    idata = wrapper.get_inference_data(wrapper.sample(fewer))
    assert seen == [fewer]
    found = wrapper.log_likelihood__i(held_out, idata)
    assert found.dims == ("chain", "draw", "entry")
    expected = fit._log_density(i, j, listed.values[[4, 20]])
    np.testing.assert_allclose(found.values.reshape(-1, 2), expected, rtol=1e-5)


def test_what_is_no_refit_is_refused():
    fit = fit_of("nmf")
    with pytest.raises(InputError, match="refit is 3; give a function"):
        bmfjax.sampling_wrapper(fit, 3)
    wrapper = bmfjax.sampling_wrapper(fit, lambda data: "fit", entries=4)
    with pytest.raises(InputError, match="refit returned a str; return a fit"):
        wrapper.sample(fit.data)


def test_doubtful_entries_are_fitted_again():
    """Draws are any numbers, so that most entries are in doubt; others keep their score."""
    fit = fit_of("pmf")
    wrapper = bmfjax.sampling_wrapper(fit, lambda data: fit_of("pmf", data, draws=21), entries=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = az.loo(wrapper.idata_orig, pointwise=True, reff=1.0)
        limit = float(np.median(before.pareto_k))
        options = (
            {"k_thresh": limit, "verbose": False}
            if is_legacy()
            else {"k_threshold": limit, "pointwise": True}
        )
        doubtful = before.pareto_k.values > limit
        scores = "loo_i" if is_legacy() else "elpd_i"
        expected = getattr(before, scores).values.copy()
        found = az.reloo(wrapper, loo_orig=before, **options)
    listed = group(wrapper.idata_orig, "observed_data")["data"]
    cells = (listed[n].values for n in ("row", "column"))
    density = fit_of("pmf", draws=21)._log_density(*cells, listed.values)
    again = logsumexp(density, 0) - np.log(len(density))
    assert doubtful.sum() == 5
    expected[doubtful] = again[doubtful]
    np.testing.assert_allclose(getattr(found, scores), expected, rtol=1e-5)


@pytest.mark.skipif(is_legacy(), reason="ArviZ 1.x has it")
def test_folds_are_scored_by_their_own_fits():
    """Refits with other draws: the score of every entry is that of the fold it is in."""
    fit, others, folds = fit_of("pmf"), [], np.tile([1, 2, 3], 8)

    def refit(data):
        others.append(fit_of("pmf", data, draws=20 + len(others)))
        return others[-1]

    wrapper = bmfjax.sampling_wrapper(fit, refit, entries=24)
    found = az.loo_kfold(wrapper.idata_orig, wrapper, folds=folds, pointwise=True)
    listed = group(wrapper.idata_orig, "observed_data")["data"]
    expected = np.empty(24)
    for fold, other in enumerate(others, start=1):
        at = folds == fold
        cells = (listed[n].values[at] for n in ("row", "column"))
        density = other._log_density(*cells, listed.values[at])
        expected[at] = logsumexp(density, 0) - np.log(len(density))
        assert other.data.num_missing == fit.data.num_missing + 8
    np.testing.assert_allclose(found.elpd_i, expected, rtol=1e-5)
