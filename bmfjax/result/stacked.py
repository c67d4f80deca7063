"""Predictions averaged over chains in different modes, by stacking weights."""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np

from bmfjax.data import InputError
from bmfjax.posterior.packed import chosen_draws
from bmfjax.verdict.undrawn import of_draws

#: Parts that the draws are in, each of one chain: weights are rounded to their number.
PARTS = 20


class StackingMixin:
    """The fit of draws of all chains, as many of each as it weighs."""

    @of_draws
    def stacked(self) -> Self:
        """Return the fit whose draws are those of each chain by its stacking weight.

        Chains in different modes count alike in a fit, however well they predict. Stacking weighs
        them by the mixture that predicts entries left out best (Yao, Vehtari, Gelman 2022). What
        follows from the draws is averaged so: predictions, probabilities, scores of new rows. The
        weights are no posterior probabilities, and the verdict is that of the fit.

        Returns
        -------
        Fit
            Of 20 parts, which take the place of its chains: a chain has as many of them as it
            weighs. `figures.stacking_weights` are the weights. Parts of a chain with fewer draws
            than parts share draws.

        Raises
        ------
        InputError
            For one chain, and for a variational fit, which mixes its starts in equal parts.

        References
        ----------
        Yao, Vehtari, Gelman (2022), "Stacking for non-mixing Bayesian computations: the curse and
        blessing of multimodal posteriors", JMLR 23(79).

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> fit.stacked().probability().shape
        (18, 14)
        """
        weights = self.figures.stacking_weights
        if self._is_variational:
            raise InputError("a variational fit is a mixture of its starts in equal parts")
        if weights is None:
            raise InputError("a fit of one chain has nothing to weigh; fit with num_chains=4")
        chains, places = draws_by_weight(weights, self.usage_draws.shape[1])
        at, order = chains[:, None], np.tile(np.arange(self.rank), (len(chains), 1))
        usage, basis = (
            chosen_draws(f, chains, places, order) for f in (self.usage_draws, self.basis_draws)
        )
        shares = ", ".join(f"{w:.2f}" for w in weights)
        figures = {"num_warmup": 0, "thinning": 1, "num_draws": places.shape[1]}
        judged = dataclasses.replace(
            self.verdict.changed(**figures), scope=f"Chains weighed by stacking, {shares}"
        )
        return dataclasses.replace(
            self,
            settings={**self._settings_then(".stacked()"), "stacked": list(weights)},
            usage_draws=usage,
            basis_draws=basis,
            other_draws={n: v[at, places] for n, v in self.other_draws.items()},
            trace={n: t[at, self._kept_steps[places]] for n, t in self.trace.items()},
            verdict=judged,
        )


def draws_by_weight(weights, kept: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the chain of every part (part,), and draws of it (part, draw), evenly spaced.

    Examples
    --------
    >>> chains, draws = draws_by_weight([0.74, 0.26, 0.0], 100)
    >>> np.bincount(chains, minlength=3).tolist(), draws.shape
    ([15, 5, 0], (20, 6))
    """
    share = PARTS * np.asarray(weights, float) / np.sum(weights)
    number = np.floor(share).astype(int)
    largest = np.argsort(-(share - number), kind="stable")
    number[largest[: PARTS - number.sum()]] += 1
    # As many draws as the largest share has of its own, so that none is taken twice there; where
    # there are fewer draws than parts, parts share them evenly.
    size = max(1, kept // number.max())
    draws = [(np.arange(size * n) * kept // (size * n)).reshape(size, n).T for n in number if n]
    return np.repeat(np.arange(len(number)), number), np.concatenate(draws)
