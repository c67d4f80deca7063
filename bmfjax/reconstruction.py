"""What a fit says of the entries of its matrix: one kind of reconstruction for every kind of model.

`Fit.probability`, `Fit.predict`, `Fit.predict_cells` and `Fit.product_draws` check rows and
columns and ask the reconstruction of their model, which `of(fit)` finds.
"""

from __future__ import annotations

import numpy as np

from bmfjax import cells, logistic_entries, pmf_cells, posterior
from bmfjax.data import InputError
from bmfjax.draws import as_packed
from bmfjax.selection import is_all

#: What `Fit.predict` tells of an entry.
PREDICTED = ("mean", "sd", "interval")


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
    #: What can be told of a single cell, and of a noisy observation of it; else why not.
    kinds = cells.KINDS
    noisy_kinds = PREDICTED
    no_noise = "model {model!r} has no flip rates; leave noisy out"

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
        _check_predicted(kind)
        usage, basis = self._factors(i, j)
        if kind == "interval":
            return posterior.interval(usage, basis, level)
        return posterior.moments(usage, basis)[kind == "sd"]

    def of_cells(self, i, j, kinds, level, noisy) -> dict[str, np.ndarray]:
        """Several kinds of predictions of single cells, each (..., cell) float64."""
        if i.shape != j.shape:
            raise InputError(f"there are {len(i)} rows and {len(j)} columns; give one each a cell")
        cells.check_level(level)
        for kind in kinds:
            self.check(kind, noisy)
        return self._cells(i, j, kinds, level, noisy)

    def check(self, kind, noisy):
        """Refuse a kind of prediction that the model does not have."""
        if kind not in cells.KINDS:
            raise InputError(f"kind is {kind!r}; choose 'mean', 'sd', 'interval' or 'probability'")
        if noisy and kind not in self.noisy_kinds:
            raise InputError(self.no_noise.format(model=self.fit.model, kind=kind))

    def _cells(self, i, j, kinds, level, noisy):
        rng = np.random.default_rng(0) if noisy else None
        parts = [
            self._block(i[some], j[some], kinds, level, rng)
            for some in cells.blocks(len(i), self._width())
        ]
        return {kind: np.concatenate([part[kind] for part in parts], -1) for kind in kinds}

    def _width(self):
        """Numbers that are formed at once for each cell."""
        return self.fit.usage_draws.shape[0] * self.fit.usage_draws.shape[1]

    def _block(self, i, j, kinds, level, rng):
        """As `of_cells`, of cells whose draws are formed at once; with normal noise from `rng`."""
        values, found = cells.cell_draws(self.fit, i, j), {}
        for kind in kinds:
            if kind == "probability":
                found[kind] = (values >= 0.5).mean(0)
            elif rng is not None:
                found[kind] = cells.with_normal_noise(self.fit, values, kind, level, rng)
            else:
                found[kind] = cells.summarised(values, kind, level)
        return found


def _check_predicted(kind):
    if kind not in PREDICTED:
        raise InputError(f"kind is {kind!r}; choose 'mean', 'sd' or 'interval'")


class BooleanProduct(Reconstruction):
    """The Boolean product, observed with flips."""

    noisy_kinds = ("mean", "probability")
    no_noise = "a binary observation has no {kind}; choose kind 'probability', or leave noisy out"

    def _factors(self, i, j):
        usage, basis = map(as_packed, (self.fit.usage_draws, self.fit.basis_draws))
        return tuple(
            draws if is_all(chosen, draws.size) else draws.packed_lines(chosen)
            for draws, chosen in ((usage, i), (basis, j))
        )

    def noisy_probability(self, i, j):
        return posterior.predictive(*self._factors(i, j), self.fit.other_draws["flip_rate"])

    def _cells(self, i, j, kinds, level, noisy):
        # Zeros and ones are told by their mean: nothing else is kept of the draws.
        usage, basis = self.fit.usage_draws, self.fit.basis_draws
        constant, weights = 0.0, np.ones(usage.shape[:2])
        if noisy:
            rates = self.fit.other_draws["flip_rate"]
            f0, f1 = (rates, rates) if rates.ndim == 2 else np.moveaxis(rates, -1, 0)
            constant, weights = f0.sum(dtype=float), 1.0 - f0.astype(float) - f1
        draws = weights.size
        total = constant + cells.covered(usage, basis, i, j, weights)
        mean = total / draws
        found = {"mean": mean, "probability": mean}
        if "sd" in kinds:
            found["sd"] = np.sqrt(mean * (1.0 - mean) * (draws / max(draws - 1, 1)))
        if "interval" in kinds:
            found["interval"] = cells.quantiles_of_bits(total, draws, level)
        return {kind: found[kind] for kind in kinds}


class _WithoutOnes:
    """Entries that are no zeros and ones refuse to tell their probability."""

    what = "numbers"
    kinds = PREDICTED

    def probability(self, i, j):
        raise InputError(self._no_ones("use predict()"))

    def noisy_probability(self, i, j):
        return self.probability(i, j)

    def check(self, kind, noisy):
        if kind == "probability" and kind not in self.kinds:
            raise InputError(self._no_ones("choose another kind"))
        super().check(kind, noisy)

    def _no_ones(self, cure):
        return (
            f"model {self.fit.model!r} is of {self.what}, which have no probability of a one; "
            f"{cure}"
        )


class NumbersProduct(_WithoutOnes, Reconstruction):
    """The product of nonnegative factors, of numbers that are not zero or one."""


class LogOdds(Reconstruction):
    """The log odds of a one, effects and bias included, of variational inference."""

    no_flips = "probability() is that of an observation already"
    noisy_kinds = ()
    no_noise = "log odds have no noise; leave noisy out: kind 'probability' is of an observation"

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

    def _width(self):
        starts, _, width = self.fit.approximation["usage_mean"].shape
        return max(super()._width(), 8 * starts * width)

    def _block(self, i, j, kinds, level, rng):
        known = logistic_entries.cell_log_odds(self.fit.approximation, i, j)
        mean, sd = logistic_entries.mixture(*known)
        found = {"mean": mean, "sd": sd}
        if "probability" in kinds:
            found["probability"] = logistic_entries.probability_of_a_one(*known).mean(0)
        if "interval" in kinds:
            found |= super()._block(i, j, ("interval",), level, rng)
        return found


class Cells(Reconstruction):
    """What is expected of the cells of a matrix factorisation, effects included."""

    def product_draws(self, i, j):
        usage, basis = super().product_draws(i, j)
        return pmf_cells.with_effects(usage, basis, self.fit.other_draws, i, j)

    def predict(self, i, j, kind, level):
        _check_predicted(kind)
        every = (a.ravel() for a in np.meshgrid(i, j, indexing="ij"))
        found = self.of_cells(*every, (kind,), level, False)[kind]
        return found.reshape(*found.shape[:-1], len(i), len(j))

    def _block(self, i, j, kinds, level, rng):
        return pmf_cells.summaries(self.fit, i, j, kinds, level, rng)


class ExpectedRating(_WithoutOnes, Cells):
    """Expected ratings with normal noise."""

    what = "ratings"


class ExpectedStars(ExpectedRating):
    """Expected stars, and the probability of each."""

    kinds = noisy_kinds = cells.KINDS

    def _cells(self, i, j, kinds, level, noisy):
        found = super()._cells(i, j, kinds, level, noisy)
        if "probability" in found:
            found["probability"] = found["probability"].T
        return found


class ChanceBehindProbit(Cells):
    """Probabilities of a one behind a probit."""

    no_flips = "probability() is that of an observation already"
    noisy_kinds = ()
    no_noise = "a binary observation has no interval; leave noisy out"

    def probability(self, i, j):
        return self.predict(i, j, "mean", 0.9)


_KINDS = {
    "ormachine": BooleanProduct,
    "relaxed": Reconstruction,
    "logistic": LogOdds,
    "nmf": NumbersProduct,
    "pmf": ExpectedRating,
    "ordered-probit": ExpectedStars,
    "probit": ChanceBehindProbit,
}


def of(fit) -> Reconstruction:
    """The reconstruction of a fit's model."""
    return _KINDS[fit.model](fit)
