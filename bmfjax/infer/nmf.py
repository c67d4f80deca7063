"""Exact sampling of nonnegative factorisations as a NumPyro kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bmfjax.data.errors import InputError
from bmfjax.infer.gibbs import TruncatedGibbs, relaxed_data, relaxed_start
from bmfjax.infer.kernel import BoundAlgorithm
from bmfjax.infer.relaxed import relaxed_arguments, relaxed_density
from bmfjax.infer.tempering import annealed
from bmfjax.infer.walls import behind_walls, checked_walls
from bmfjax.kernels.matrix_data import SparseMatrixData, matrix_data
from bmfjax.kernels.nmf import MOVES, checked_moves, nonnegative_gibbs


class NMFGibbs(TruncatedGibbs):
    r"""Exact sampler of `nmf` that changes the basis and, behind walls, the solution.

    Every draw is one sweep over both factor matrices and the noise precision, then the `moves`;
    see `bmfjax.kernels.nmf`.

    Parameters
    ----------
    model : callable
        `bmfjax.models.nmf`, by ``functools.partial`` with its arguments, or `relaxed_bmf` with
        ``upper=inf`` and exponential priors.
    moves : sequence of {"basis", "lines"}
        "basis": changes of basis, along which the product stays; "lines": every row of a factor
        matrix along its weak directions. With an empty sequence this is the sampler of Schmidt,
        Winther, Hansen (2009).
    walls : sequence of float, optional
        Hardness of the walls of further replicas of the chain, in which entries may be negative
        (`bmfjax.infer.behind_walls`): falling numbers (see `wall_ladder`). The draws are those of
        the nonnegative replica. A draw costs as many sweeps as there are replicas.
    num_anneal, lowest
        As for `TruncatedGibbs`; not beside `walls`, whose replicas share one likelihood.

    Raises
    ------
    InputError
        For another model or other priors, at the first run, and for options that are wrong.

    Examples
    --------
    >>> import functools, bmfjax
    >>> import jax.numpy as jnp
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> data = random.exponential(random.key(0), (30, 2)) @ jnp.ones((2, 20))
    >>> model = functools.partial(bmfjax.models.nmf, rank=2)
    >>> mcmc = MCMC(NMFGibbs(model), num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(1), data)
    >>> mcmc.get_samples()["basis"].shape
    (10, 20, 2)
    """

    def __init__(
        self,
        model: Callable,
        *,
        moves: Sequence[str] = MOVES,
        walls: Sequence[float] | None = None,
        num_anneal: int = 0,
        lowest: float = 0.02,
    ):
        super().__init__(model, num_anneal=num_anneal, lowest=lowest)
        self._moves = checked_moves(moves)
        self._walls = None if walls is None else checked_walls(walls)
        if walls is not None and num_anneal:
            raise InputError(
                f"num_anneal is {num_anneal} beside walls, whose replicas share one likelihood; "
                "leave one of them out"
            )

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """The algorithm for these model arguments, with its data; see `AlgorithmKernel.bind`."""
        arguments = relaxed_arguments(self._model, args, kwargs)
        if arguments is None or arguments["upper"] == 1.0:
            raise InputError(
                "NMFGibbs samples bmfjax.models.nmf, or relaxed_bmf with upper=inf, and no other "
                "model; use NumPyro's NUTS for a model of your own"
            )
        if arguments["data"] is None:
            raise InputError("NMFGibbs needs data, and the model was called without")
        density, initial = relaxed_density(arguments), relaxed_start(arguments)
        if self._walls is None:
            algorithm = nonnegative_gibbs(density, initial, self._moves)
        else:
            algorithm = behind_walls(density, initial, self._walls, self._moves)
        if self._num_anneal:
            algorithm = annealed(algorithm, self._num_anneal, lowest=self._lowest)
        return BoundAlgorithm(algorithm, self._data(arguments["data"], arguments["observed"]))

    def _data(self, values, observed):
        """Dense where lines move and cells are missing."""
        data = relaxed_data(values, observed)
        gaps = isinstance(data, SparseMatrixData) and data.by_row is not None
        return matrix_data(values, observed) if gaps and "lines" in self._moves else data
