"""A small matrix, held in every way, and densities over its factors."""

from unittest import mock

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse as sp

from bmfjax.infer.mcmc import relaxed as infer_relaxed
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels.relaxed.data import (
    MissingCells,
    ObservedCells,
    matrix_data,
    sparse_matrix_data,
)
from bmfjax.models import relaxed_bmf

ROWS, COLUMNS, RANK, TAU = 9, 8, 3, 20.0
EMPTY = 2  # the factor that is zero in the matrix that is given
SHAPES = {"usage": ROWS, "basis": COLUMNS}
OWN = {"Beta(2, 3)": dist.Beta(2.0, 3.0), "Kumaraswamy(2, 1.5)": dist.Kumaraswamy(2.0, 1.5)}


def small_values(missing):
    """0 or 1, and NaN: nothing missing, few cells, many or most of them."""
    r = np.random.default_rng(1)
    values = (r.random((ROWS, COLUMNS)) < 0.4).astype(np.float32)
    diagonal = np.eye(ROWS, COLUMNS, dtype=bool)
    if missing == "few":
        values[diagonal] = np.nan
    if missing == "many":
        values[r.random(values.shape) < 0.5] = np.nan
    if missing == "most":
        values = np.where(diagonal, 1.0, np.nan)
    return values


def as_data(values, held):
    """The data in lists of cells (or complete), with a mask, or sparse."""
    data = matrix_data(values)
    if held == "lists" and np.isnan(values).any():
        kind = MissingCells if np.isnan(values).mean() < 0.5 else ObservedCells
        assert isinstance(data.by_row, kind) and isinstance(data.by_column, kind)
    if held == "sparse":
        gone = np.isnan(values)
        ones = sp.csr_array(np.where(gone, 0, values))
        return sparse_matrix_data(ones, np.stack(np.nonzero(gone)))
    if held == "mask":
        return data._replace(by_row=None, by_column=None)
    return data


def density_of(prior="uniform", upper=1.0, **options):
    arguments = {"rank": RANK, "prior": OWN.get(prior, prior), "upper": upper} | options
    # Seconds of differentiation, for the preconditioners of other samplers.
    with mock.patch.object(infer_relaxed, "_constant_curvature", lambda prior: 0.0):
        return relaxed_density(relaxed_arguments(relaxed_bmf, (np.zeros((1, 1)),), arguments))


def given():
    """Usage and basis, to start from and to be given; the last factor is empty."""
    r = np.random.default_rng(2)
    used = np.arange(RANK) != EMPTY
    return {f: jnp.asarray(r.random((n, RANK)) * used, jnp.float32) for f, n in SHAPES.items()}
