"""Refits without some entries, as ArviZ asks for them: exact leave-some-out scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray

from bmfjax.data import InputError
from bmfjax.data.parts import without_cells
from bmfjax.diagnostics.arviz import sampling_wrapper_class
from bmfjax.errors import kind_of
from bmfjax.posterior.pointwise import cell_list, densities
from bmfjax.result import Fit


def sampling_wrapper(
    fit: Fit, refit: Callable[[Any], Fit], *, entries: int | None = None, seed: int = 0
):
    """Return an ArviZ `SamplingWrapper`, which fits again with some entries held out.

    ``az.loo_kfold(wrapper.idata_orig, wrapper, k=5)`` of ArviZ 1.x fits k times, each time without
    a part of the listed entries, and scores these. ``az.reloo(wrapper)`` fits again without each
    entry whose leave-one-out score is in doubt.

    Parameters
    ----------
    fit : Fit
        To all of the data.
    refit : callable
        ``refit(data) -> Fit``, to data in which the held-out entries are missing, such as
        ``lambda data: bmfjax.fit(data, rank=3, seed=1)``. Give it the options of `fit`: a fit
        keeps its priors as text alone.
    entries : int, optional
        Hold out so many observed entries at most, drawn at random; the others are always fitted.
        Default all.
    seed : int
        Seed of these.

    Returns
    -------
    arviz.SamplingWrapper
        Its `idata_orig` lists the entries and has their log densities.

    Raises
    ------
    InputError
        Where `refit` is not callable; and when it runs, where it returns no fit.

    Examples
    --------
    >>> import bmfjax
    >>> options = {"num_chains": 2, "num_warmup": 200, "num_samples": 100, "progress": False}
    >>> model = bmfjax.OrMachine(2)
    >>> fit = bmfjax.fit("davis", model, **options)
    >>> wrapper = sampling_wrapper(fit, lambda data: bmfjax.fit(data, model, **options))
    >>> fewer, held_out = wrapper.sel_observations([0, 1, 2])
    >>> fewer.num_missing
    3
    """
    if not callable(refit):
        raise InputError(f"refit is {refit!r}; give a function that takes data and returns a fit")
    kind = type("FitWrapper", (_Refits, sampling_wrapper_class()), {})
    wrapper = kind(
        model=None, idata_orig=fit.to_arviz(log_likelihood=True, entries=entries, seed=seed)
    )
    wrapper.data, wrapper.cells, wrapper.refit = fit.data, cell_list(fit.data, entries, seed), refit
    return wrapper


class _Refits:
    """What ArviZ calls, in this order."""

    data: Any
    cells: tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns, values of listed entries
    refit: Callable[[Any], Fit]
    fitted: Fit

    def sel_observations(self, idx):
        """Return data without some listed entries, and these (rows, columns, values)."""
        i, j, values = (part[np.atleast_1d(idx)] for part in self.cells)
        return without_cells(self.data, i, j), (i, j, values)

    def sample(self, modified_observed_data):
        """Return a fit to data."""
        found = self.refit(modified_observed_data)
        if not isinstance(found, Fit):
            raise InputError(f"refit returned {kind_of(found)}; return a fit of bmfjax")
        self.fitted = found
        return found

    def get_inference_data(self, fitted_model):
        """Return the container of a fit."""
        return fitted_model._idata

    def log_likelihood__i(self, excluded_obs, idata__i):
        """Return log densities (chain, draw, entry) of entries that the last fit did not have."""
        found = densities(self.fitted, excluded_obs)
        shape = self.fitted.usage_draws.shape[:2]
        return xarray.DataArray(found.reshape(*shape, -1), dims=("chain", "draw", "entry"))
