"""Exact sampling of nonnegative factorisations as a NumPyro kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import scipy.sparse as sp
from jax.sharding import Mesh

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import BoundAlgorithm
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density, relaxed_start
from bmfjax.infer.mcmc.truncated import TruncatedGibbs, relaxed_data
from bmfjax.kernels.nonnegative.gibbs import MOVES, checked_moves, nonnegative_gibbs
from bmfjax.kernels.nonnegative.replicas import behind_walls
from bmfjax.kernels.relaxed.data import SparseMatrixData, matrix_data
from bmfjax.specs.samplers import checked_walls


class NMFGibbs(TruncatedGibbs):
    r"""Exact sampler of `nmf` that changes the basis and, behind walls, the solution.

    Every draw is one sweep over both factor matrices and the noise precision, then the `moves`;
    see `bmfjax.kernels.nonnegative.gibbs`.

    Parameters
    ----------
    model : callable
        `bmfjax.models.nmf`, by ``functools.partial`` with its arguments, or `relaxed_bmf` with
        ``upper=inf`` and exponential priors.
    moves : sequence of {"basis", "lines"}
        "basis" changes the basis and keeps the product; "lines" moves every row of a factor
        matrix along its weak directions. With an empty sequence this is the sampler of Schmidt,
        Winther, Hansen (2009).
    walls : sequence of float, optional
        Falling numbers (see `wall_ladder`), one for each further replica of the chain: how hard
        the wall is behind which its entries may be negative (`bmfjax.infer.behind_walls`). The
        draws are those of the nonnegative replica. A draw costs one sweep for each replica.
    num_anneal, lowest
        As for `TruncatedGibbs`; not with `walls`, whose replicas share one likelihood.

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

    _samples = "bmfjax.models.nmf, or relaxed_bmf with upper=inf,"
    _instead = "NumPyro's NUTS"

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
        self._walls = None if walls is None else checked_walls("walls", walls)
        if walls is not None and num_anneal:
            raise InputError(
                f"num_anneal is {num_anneal} beside walls, whose replicas share one likelihood; "
                "leave one of them out"
            )

    def bind(self, *args, anchors=None, mesh: Mesh | None = None, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`.

        `anchors` (columns, number) are the first columns of the basis where they are known, and
        stay: the draws are from the posterior given these. A start must have them too. On a `mesh`
        each device along the rows has its own rows and its own columns.
        """
        arguments = relaxed_arguments(self._model, args, kwargs)
        bounded = arguments is not None and arguments["upper"] == 1.0
        arguments = self._checked(None if bounded else arguments)
        density, initial = relaxed_density(arguments), relaxed_start(arguments)
        if anchors is not None:
            density = density._replace(anchored=anchors.shape[1])
            initial = _with_anchors(initial, jnp.asarray(anchors))
        if self._walls is None:
            algorithm = nonnegative_gibbs(density, initial, self._moves)
        else:
            algorithm = behind_walls(density, initial, self._walls, self._moves)
        data = self._data(arguments["data"], arguments["observed"], mesh)
        return BoundAlgorithm(self._tempered(algorithm), data)

    def _data(self, values, observed, mesh):
        """Return dense data where lines move and entries are missing."""
        data = relaxed_data(values, observed, mesh)
        gaps = isinstance(data, SparseMatrixData) and data.by_row is not None
        if not gaps or "lines" not in self._moves:
            return data
        values = values.toarray() if sp.issparse(values) else values
        return matrix_data(values, observed, mesh)


def _with_anchors(initial: Callable, anchors) -> Callable:
    """Return ``initial`` whose first columns of the basis are known."""

    def start(key, data):
        position = initial(key, data)
        basis = position["basis"]
        known = basis.at[:, : anchors.shape[1]].set(anchors.astype(basis.dtype))
        return position | {"basis": known}

    return start
