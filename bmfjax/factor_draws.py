"""Draws of aligned factors, and their means and standard deviations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bmfjax import logistic_entries
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.diagnostics import Binarized


@dataclass(frozen=True, repr=False)
class FactorDraws:
    """The part of a `bmfjax.Fit` that concerns the factors alone; its attributes are told there."""

    data: BinaryMatrix | RealMatrix | Ratings
    model: str
    sampler: str
    settings: Mapping[str, Any]
    usage_draws: np.ndarray
    basis_draws: np.ndarray
    trace: Mapping[str, np.ndarray]
    agreement: np.ndarray
    scalars: Mapping[str, Any]
    binary: Binarized | None
    versions: Mapping[str, str] = field(default_factory=dict)
    other_draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    approximation: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def precision_draws(self) -> np.ndarray | None:
        """Draws of the noise precision, (chain, draw), where it was learned."""
        return self.other_draws.get("precision")

    @property
    def rate_draws(self) -> np.ndarray | None:
        """Draws of the rates of the prior "ard", (chain, draw, rank): high where the data do not
        need a factor."""
        return self.other_draws.get("rate")

    @property
    def is_boolean(self) -> bool:
        """Whether the factors are binary, and their product Boolean."""
        return self.usage_draws.dtype == bool

    @property
    def is_real(self) -> bool:
        """Whether factors are real numbers that are not rounded to 0 and 1."""
        return self.binary is None

    @property
    def is_signed(self) -> bool:
        """Whether factors have either sign, of which a product tells nothing."""
        return self.is_real and self.model != "nmf"

    @property
    def usage_binary(self) -> np.ndarray:
        """The most probable Boolean factors, (rows, rank) bool; see `binarize`."""
        return self._rounded().usage

    @property
    def basis_binary(self) -> np.ndarray:
        """The same, (columns, rank) bool."""
        return self._rounded().basis

    def _rounded(self):
        if self.is_real:
            raise InputError(
                f"model {self.model!r} has real factors, which are not rounded to 0 and 1; use "
                "usage and basis, probability() or predict()"
            )
        return self.binary

    @property
    def rank(self) -> int:
        """Number of factors."""
        return self.usage_draws.shape[-1]

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.usage_draws.shape[0]

    @functools.cached_property
    def usage(self) -> np.ndarray:
        """Posterior means, (rows, rank) float64."""
        return self._moments("usage")[0]

    @functools.cached_property
    def basis(self) -> np.ndarray:
        """Posterior means, (columns, rank) float64."""
        return self._moments("basis")[0]

    @functools.cached_property
    def usage_sd(self) -> np.ndarray:
        """Posterior standard deviations, (rows, rank) float64."""
        return self._moments("usage")[1]

    @functools.cached_property
    def basis_sd(self) -> np.ndarray:
        """Posterior standard deviations, (columns, rank) float64."""
        return self._moments("basis")[1]

    def _moments(self, name):
        """Mean and standard deviation of a factor matrix; known without draws where approximate."""
        if self.approximation:
            mean, sd = logistic_entries.mixture(
                self.approximation[f"{name}_mean"], self.approximation[f"{name}_variance"]
            )
            return mean[:, : self.rank], sd[:, : self.rank]
        draws = self.usage_draws if name == "usage" else self.basis_draws
        return draws.mean((0, 1), dtype=np.float64), draws.std((0, 1), dtype=np.float64)

    def draws(self) -> dict[str, np.ndarray]:
        """Aligned draws, ``{site: (chain, draw, ...)}``."""
        factors = {"usage": np.asarray(self.usage_draws), "basis": np.asarray(self.basis_draws)}
        return factors | dict(self.other_draws)
