r"""Draws of factors that the posterior knows up to a rotation, turned to one position.

Where all factors have independent normal priors of one scale, :math:`(UQ, VQ)` is as probable as
:math:`(U, V)` for every orthogonal Q, and chains wander among them. Every draw is turned by the Q
that brings it nearest to a reference,

.. math:: Q_s = \operatorname{argmin}_{Q^\top Q = I} \| U_s Q - U_0 \|^2 + \| V_s Q - V_0 \|^2,

the orthogonal Procrustes problem (Schonemann 1966, "A generalized solution of the orthogonal
Procrustes problem", Psychometrika 31), as Assmann, Boysen-Hogrefe, Pape (2016), "Bayesian analysis
of static and dynamic factor models", Journal of Econometrics 192, do it to draws of factor models.
A turned draw is a draw all the same: the density does not change, and neither does any product.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bmfjax.posterior.products import factor_sizes

SIDES = ("usage", "basis")


def rotated_draws(drawn: Mapping, pivot: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return kept draws (chain, draw, ...) whose factors are turned to one position.

    The reference is first the draw `pivot`, then the mean of the draws turned to it, with its
    principal axes for factors: the largest first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, v = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    >>> turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> drawn = {"usage": np.stack([u, u @ turn])[None], "basis": np.stack([v, v @ turn])[None]}
    >>> found = rotated_draws(drawn, (0, 0))
    >>> bool(np.allclose(found["usage"][0, 0], found["usage"][0, 1]))
    True
    """
    sizes = [drawn[name].shape[2] for name in SIDES]
    both = np.concatenate([np.asarray(drawn[name], float) for name in SIDES], axis=2)
    mean = _nearest(both, both[pivot]).mean((0, 1))
    axes = np.linalg.eigh(mean.T @ mean)[1][:, ::-1]
    turned = np.split(_nearest(both, mean @ axes), [sizes[0]], axis=2)
    first = np.argsort(-factor_sizes(*turned), kind="stable")
    turned = [t[..., first] for t in turned]
    of_factors = {n: t.astype(drawn[n].dtype) for n, t in zip(SIDES, turned, strict=True)}
    return {**drawn, **of_factors}


def _nearest(draws, reference) -> np.ndarray:
    """Return draws (chain, draw, lines, rank) turned to be nearest to a reference (lines, rank)."""
    left, _, right = np.linalg.svd(np.einsum("cdik,il->cdkl", draws, reference))
    return draws @ (left @ right)
