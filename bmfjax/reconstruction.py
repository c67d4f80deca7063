"""What a fit says of the entries of its matrix: one kind of reconstruction for every kind of model.

`Fit.probability`, `Fit.predict` and `Fit.product_draws` check rows and columns and ask the
reconstruction of their model, which `of(fit)` finds.
"""

from __future__ import annotations

import numpy as np

from bmfjax import logistic_entries, pmf_cells, posterior
from bmfjax.data import InputError
from bmfjax.draws import as_packed
from bmfjax.selection import is_all


class Reconstruction:
    r"""The product :math:`y_i^\top x_j`, over kept draws: factors in [0, 1].

    Parameters
    ----------
    fit : Fit

    Notes
    -----
    Rows `i` and columns `j` of all methods are positions, (...) int.
    """

    #: Why there are no probabilities of noisy observations, and what to do.
    no_flips = "use predict() for its reconstruction"

    def __init__(self, fit):
        self.fit = fit

    def product_draws(self, i, j):
        """Two matrices a draw: (chain, draw, rows, width), (chain, draw, columns, width)."""
        data, usage, basis = self.fit.data, self.fit.usage_draws, self.fit.basis_draws
        # Packed draws of the whole matrix stay packed, and are formed one at a time.
        if is_all(i, data.num_rows) and is_all(j, data.num_columns):
            return usage, basis
        return usage[:, :, i], basis[:, :, j]

    def _factors(self, i, j):
        """As `product_draws`, and packed draws of some rows and columns stay packed as well."""
        return self.product_draws(i, j)

    def probability(self, i, j):
        """Probability that the entry is truly a one: (rows, columns) float64."""
        return posterior.exceedance(*self._factors(i, j), level=0.5)

    def noisy_probability(self, i, j):
        """Probability that an observation of the entry is a one: (rows, columns) float64."""
        raise InputError(f"model {self.fit.model!r} has no flip rates; {self.no_flips}")

    def predict(self, i, j, kind, level):
        """Mean, standard deviation or interval: (rows, columns), (2, rows, columns) float64."""
        usage, basis = self._factors(i, j)
        if kind in ("mean", "sd"):
            return posterior.moments(usage, basis)[kind == "sd"]
        if kind == "interval":
            return posterior.interval(usage, basis, level)
        raise InputError(f"kind is {kind!r}; choose 'mean', 'sd' or 'interval'")


class BooleanProduct(Reconstruction):
    """The Boolean product, observed with flips."""

    def _factors(self, i, j):
        usage, basis = map(as_packed, (self.fit.usage_draws, self.fit.basis_draws))
        return tuple(
            draws if is_all(chosen, draws.size) else draws.packed_lines(chosen)
            for draws, chosen in ((usage, i), (basis, j))
        )

    def noisy_probability(self, i, j):
        return posterior.predictive(*self._factors(i, j), self.fit.other_draws["flip_rate"])


class _WithoutOnes:
    """Entries that are no zeros and ones refuse to tell their probability."""

    what = "numbers"

    def probability(self, i, j):
        raise InputError(
            f"model {self.fit.model!r} is of {self.what}, which have no probability of a one; use "
            "predict()"
        )

    def noisy_probability(self, i, j):
        return self.probability(i, j)


class NumbersProduct(_WithoutOnes, Reconstruction):
    """The product of nonnegative factors, of numbers that are not zero or one."""


class LogOdds(Reconstruction):
    """The log odds of a one, effects and bias included, of variational inference."""

    no_flips = "probability() is that of an observation already"

    def product_draws(self, i, j):
        usage, basis = super().product_draws(i, j)
        return logistic_entries.with_effects(usage, basis, self.fit.other_draws, i, j)

    def probability(self, i, j):
        return logistic_entries.probability(self.fit.approximation, i, j)

    def predict(self, i, j, kind, level):
        if kind in ("mean", "sd"):
            found = logistic_entries.log_odds_of_all_starts(self.fit.approximation, i, j)
            return found[kind == "sd"]
        return super().predict(i, j, kind, level)


class Cells(Reconstruction):
    """What is expected of the cells of a matrix factorisation, effects included."""

    def product_draws(self, i, j):
        usage, basis = super().product_draws(i, j)
        return pmf_cells.with_effects(usage, basis, self.fit.other_draws, i, j)

    def predict(self, i, j, kind, level):
        cells = (a.ravel() for a in np.meshgrid(i, j, indexing="ij"))
        found = pmf_cells.predict_cells(self.fit, *cells, kind, level)
        return found.reshape(*found.shape[:-1], len(i), len(j))


class ExpectedRating(_WithoutOnes, Cells):
    """Expected ratings: normal noise and stars."""

    what = "ratings"


class ChanceBehindProbit(Cells):
    """Probabilities of a one behind a probit."""

    no_flips = "probability() is that of an observation already"

    def probability(self, i, j):
        return self.predict(i, j, "mean", 0.9)


_KINDS = {
    "ormachine": BooleanProduct,
    "relaxed": Reconstruction,
    "logistic": LogOdds,
    "nmf": NumbersProduct,
    "pmf": ExpectedRating,
    "ordered-probit": ExpectedRating,
    "probit": ChanceBehindProbit,
}


def of(fit) -> Reconstruction:
    """The reconstruction of a fit's model."""
    return _KINDS[fit.model](fit)
