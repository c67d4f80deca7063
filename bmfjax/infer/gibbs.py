"""Exact Gibbs sampling of the relaxed model as a NumPyro kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer.initialization import init_to_sample

from bmfjax.data.errors import InputError
from bmfjax.infer.kernel import AlgorithmKernel, BoundAlgorithm
from bmfjax.infer.relaxed import relaxed_arguments, relaxed_density
from bmfjax.infer.tempering import annealed, parallel_tempering
from bmfjax.kernels.matrix_data import MAX_LISTED, matrix_data, sparse_matrix_data
from bmfjax.kernels.relaxed import log_likelihood
from bmfjax.kernels.truncated_gibbs import sweep_info, truncated_gibbs
from bmfjax.models.relaxed import relaxed_bmf

LATENT = ("usage", "basis", "precision", "rate")
#: Sparse products are faster below this share of ones, where the matrix is also large.
SPARSE_DENSITY, SPARSE_ENTRIES = 0.005, 2**22


class TruncatedGibbsKernelState(NamedTuple):
    """State under NumPyro's MCMC; the fields can be asked for as `extra_fields`.

    Attributes
    ----------
    sample : dict
    potential_energy : () float
        Minus the log joint density.
    residual : () float
        Sum of squared residuals.
    i : () int
        Number of draws so far.
    inner : TruncatedGibbsState, or the state of a tempering around it
    rng_key : jax.Array
    """

    sample: dict
    potential_energy: jax.Array
    residual: jax.Array
    i: jax.Array
    inner: Any
    rng_key: jax.Array


class TruncatedGibbs(AlgorithmKernel):
    r"""Exact sampler of `relaxed_bmf`: truncated normal conditionals, column by column.

    Every draw is one sweep over both factor matrices, the noise precision and learned
    rates; see `bmfjax.kernels.truncated_gibbs`. The draws are from the posterior, not
    from an approximation of it.

    Parameters
    ----------
    model : callable
        `bmfjax.models.relaxed_bmf`, by ``functools.partial`` with its arguments. The
        prior of a learned precision must be a Gamma distribution.
    num_anneal : int
        Anneal the first so many sweeps, the likelihood raised from the power
        `lowest` to one (`bmfjax.infer.tempering.annealed`): a start from which
        chains find the same mode more often. Make them part of the warm-up.
    lowest : float
        Power of the likelihood at the first sweep.
    inverse_temperatures : sequence of float, optional
        Parallel tempering (`bmfjax.infer.tempering.parallel_tempering`): so many copies
        of the chain at these powers of the likelihood, from 1 downwards (see
        `geometric_ladder`), which exchange their states. The draws are those at 1. A
        draw costs as many sweeps as there are copies.

    Raises
    ------
    InputError
        For another model, or priors that are improper or cannot be drawn; at the
        first run.

    Examples
    --------
    >>> import functools, bmfjax
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> data = (random.uniform(random.key(0), (30, 20)) < 0.3).astype(float)
    >>> model = functools.partial(bmfjax.models.relaxed_bmf, rank=2)
    >>> mcmc = MCMC(TruncatedGibbs(model), num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(1), data)
    >>> mcmc.get_samples()["usage"].shape
    (10, 30, 2)
    """

    def __init__(
        self,
        model: Callable,
        *,
        num_anneal: int = 0,
        lowest: float = 0.02,
        inverse_temperatures: Sequence[float] | None = None,
    ):
        self._model = model
        self._num_anneal, self._lowest = num_anneal, lowest
        self._ladder = None if inverse_temperatures is None else tuple(inverse_temperatures)

    @property
    def default_fields(self):
        """Fields that MCMC always collects."""
        return ("sample", "potential_energy", "residual")

    def get_diagnostics_str(self, state):
        """A few words for the progress bar."""
        return f"log joint {-float(state.potential_energy):.4g}"

    def _state(self, algorithm, inner, info, i, key):
        drawn = algorithm.observe(inner, info)
        return TruncatedGibbsKernelState(
            sample={n: drawn[n] for n in LATENT if n in drawn},
            potential_energy=-drawn["log_joint"],
            residual=drawn["residual"],
            i=i,
            inner=inner,
            rng_key=key,
        )

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """The algorithm for these model arguments, with its data; see `AlgorithmKernel.bind`."""
        arguments = relaxed_arguments(self._model, args, kwargs)
        if arguments is None:
            raise InputError(
                "TruncatedGibbs samples bmfjax.models.relaxed_bmf and no other model; use IASG or "
                "NumPyro's NUTS for a model of your own"
            )
        if arguments["data"] is None:
            raise InputError("TruncatedGibbs needs data, and relaxed_bmf was called without")
        density = relaxed_density(arguments)
        algorithm = truncated_gibbs(density, relaxed_start(arguments))
        if self._ladder is not None:
            algorithm = parallel_tempering(
                algorithm,
                lambda s, data: log_likelihood(density, s.position, data),
                self._ladder,
                describe=lambda info, s, data, b: sweep_info(density, s.position, data, b),
            )
        if self._num_anneal:
            algorithm = annealed(algorithm, self._num_anneal, lowest=self._lowest)
        return BoundAlgorithm(algorithm, relaxed_data(arguments["data"], arguments["observed"]))


def relaxed_start(arguments: dict) -> Callable:
    """``initial(key, data) -> position``: a draw from the prior of `relaxed_bmf`."""
    shape = np.shape(arguments["data"])
    fixed = {n: v for n, v in arguments.items() if n not in ("data", "observed", "shape")}

    def initial(key, data):
        start = handlers.substitute(handlers.seed(relaxed_bmf, key), substitute_fn=init_to_sample)
        trace = handlers.trace(start).get_trace(shape=shape, **fixed)
        return {n: trace[n]["value"] for n in LATENT if n in trace}

    return initial


def relaxed_data(values, observed=None):
    """The data as dense or sparse arrays, whichever a sweep is faster with.

    Parameters
    ----------
    values : (rows, columns) array
        NaN is missing.
    observed : (rows, columns) bool array, optional

    Returns
    -------
    MatrixData or SparseMatrixData

    Examples
    --------
    >>> type(relaxed_data(np.eye(4000, dtype=np.float32))).__name__
    'SparseMatrixData'
    """
    if isinstance(values, jax.core.Tracer) or np.size(values) < SPARSE_ENTRIES:
        return matrix_data(values, observed)
    values = np.asarray(values)
    missing = np.isnan(values)
    if observed is not None:
        missing |= ~np.asarray(observed, bool)
    row, column = np.nonzero(np.where(missing, 0, values))
    few = len(row) + missing.sum() <= SPARSE_DENSITY * values.size
    # Lists of missing cells are as long as the longest: one empty row would make them whole.
    listed = max(missing.sum(1).max() / values.shape[1], missing.sum(0).max() / values.shape[0])
    if not few or listed > MAX_LISTED:
        return matrix_data(values, observed)
    return sparse_matrix_data(
        values.shape, row, column, values[row, column], np.stack(np.nonzero(missing))
    )
