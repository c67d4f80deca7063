"""Exact Gibbs sampling of the relaxed model as a NumPyro kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm
from bmfjax.infer.mcmc.relaxed import LATENT, relaxed_arguments, relaxed_density, relaxed_start
from bmfjax.kernels.relaxed.data import MAX_LISTED, matrix_data, sparse_matrix_data
from bmfjax.kernels.relaxed.density import log_likelihood
from bmfjax.kernels.relaxed.gibbs import TruncatedGibbsState, sweep_info, truncated_gibbs

#: Sparse products are faster below this share of ones, where the matrix is also large.
SPARSE_DENSITY, SPARSE_ENTRIES = 0.005, 2**22


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
        Number of annealed sweeps at the start, in which the power of the likelihood rises
        from `lowest` to one (`bmfjax.kernels.tempering.annealed`). Chains then find the same
        mode more often. Annealed sweeps belong to the warm-up.
    lowest : float
        Power of the likelihood at the first sweep.
    inverse_temperatures : sequence of float, optional
        Parallel tempering (`bmfjax.kernels.tempering.parallel_tempering`): copies of the
        chain run at these powers of the likelihood, from 1 downwards (see
        `geometric_ladder`), and exchange their states. The draws are those at 1. A draw
        costs one sweep for each copy. At 0, where the last may be, the prior is drawn from.
    num_adapt : int
        Number of first sweeps, after the annealed ones, in which the temperatures between the
        ends are placed such that all neighbours exchange states equally often. They belong to
        the warm-up.

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

    _sites, _statistics = LATENT, ("residual",)
    _samples, _instead = "bmfjax.models.relaxed_bmf", "IASG or NumPyro's NUTS"

    def __init__(
        self,
        model: Callable,
        *,
        num_anneal: int = 0,
        lowest: float = 0.02,
        inverse_temperatures: Sequence[float] | None = None,
        num_adapt: int = 0,
    ):
        self._model = model
        self._num_anneal, self._lowest = num_anneal, lowest
        self._set_ladder(inverse_temperatures, num_adapt=num_adapt)

    def bind(self, *args, mesh: Mesh | None = None, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`.

        On a `mesh` each device along the rows has its own rows and its own columns.
        """
        arguments = self._checked(relaxed_arguments(self._model, args, kwargs))
        density = relaxed_density(arguments)
        initial = relaxed_start(arguments)
        algorithm = self._tempered(
            truncated_gibbs(density, initial),
            lambda s, data: log_likelihood(density, s.position, data),
            describe=lambda info, s, data, b: sweep_info(density, s.position, data, b),
            likelihood_of_info=lambda info: info.log_likelihood,
            refresh=lambda key, s, data: TruncatedGibbsState(initial(key, data)),
        )
        data = relaxed_data(arguments["data"], arguments["observed"], mesh)
        return BoundAlgorithm(algorithm, data)


def relaxed_data(values, observed=None, mesh: Mesh | None = None):
    """Return the data (NaN is missing) as dense or sparse arrays, whichever makes sweeps faster."""
    if isinstance(values, jax.core.Tracer) or np.size(values) < SPARSE_ENTRIES:
        return matrix_data(values, observed, mesh)
    values = np.asarray(values)
    missing = np.isnan(values)
    if observed is not None:
        missing |= ~np.asarray(observed, bool)
    row, column = np.nonzero(np.where(missing, 0, values))
    few = len(row) + missing.sum() <= SPARSE_DENSITY * values.size
    # Lists of missing cells are as long as the longest: one empty row would make them whole.
    listed = max(missing.sum(1).max() / values.shape[1], missing.sum(0).max() / values.shape[0])
    if not few or listed > MAX_LISTED:
        return matrix_data(values, observed, mesh)
    return sparse_matrix_data(
        values.shape, row, column, values[row, column], np.stack(np.nonzero(missing)), mesh
    )
