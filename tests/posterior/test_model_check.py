"""Whether a model fits: against brute force, and by chance where it is true."""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from bmfjax.data import BinaryMatrix, Ratings, RealMatrix
from bmfjax.posterior.model_check import (
    FEW_A_FACTOR,
    MOST_LEFT,
    UNLIKELY,
    _bits_of_columns,
    _counted,
    _statistics,
    calibration,
    coverage,
    effects_left_out,
    explained_share,
    left_out,
    model_check,
    scatter_of_lines,
    shares_left_out,
    worst_of,
)
from bmfjax.posterior.scores import below_star, star_density
from bmfjax.verdict import Figures, Verdict, with_fit
from bmfjax.verdict.predictions import ONE_NOISE


@dataclass(frozen=True)
class Bernoulli:
    """A fit that gives entries a `chance` that its draws agree on, or (draw, row, column)."""

    data: BinaryMatrix
    chance: np.ndarray
    usage_draws: np.ndarray = field(default_factory=lambda: np.zeros((2, 60, 1, 1)))
    basis_draws: np.ndarray = field(default_factory=lambda: np.zeros((2, 60, 1, 1)))
    other_draws: dict = field(default_factory=dict)
    _scored: ClassVar[str] = "probabilities of ones and zeros"
    _has_bounded_scores: ClassVar[bool] = True

    @property
    def number(self):
        return self.usage_draws.shape[0] * self.usage_draws.shape[1]

    def _log_density(self, i, j, values):
        one = np.broadcast_to(self.chance[..., i, j], (self.number, len(i)))
        return np.log(np.where(values > 0.5, one, 1 - one))

    def _replicates(self, i, j, rng):
        return (rng.random((self.number, len(i))) < self.chance[i, j]).astype(float)


@dataclass(frozen=True)
class Normal:
    """A fit with normal noise whose draws agree on a product, or (draw, row, column)."""

    data: RealMatrix
    product: np.ndarray
    noise: float = 0.5
    usage_draws: np.ndarray = field(default_factory=lambda: np.zeros((2, 30, 1, 1)))
    basis_draws: np.ndarray = field(default_factory=lambda: np.zeros((2, 30, 1, 1)))
    other_draws: dict = field(default_factory=dict)
    _scored: ClassVar[str] = "densities of numbers"
    _has_bounded_scores: ClassVar[bool] = False

    def _fits(self, i, j):
        return np.broadcast_to(self.product[..., i, j], (60, len(i)))

    def _log_density(self, i, j, values):
        return scipy.stats.norm.logpdf(values, self._fits(i, j), self.noise)

    def _below(self, i, j, values):
        return scipy.stats.norm.cdf(values, self._fits(i, j), self.noise)[None]

    def _replicates(self, i, j, rng):
        return self._fits(i, j) + rng.normal(0, self.noise, (60, len(i)))


def chances(seed=0, shape=(60, 12)):
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, 1.5, (shape[0], 1)) * rng.normal(0, 1, (1, shape[1]))
    return 1 / (1 + np.exp(-effects - rng.normal(0, 1, (1, shape[1]))))


def drawn(chance, seed, missing=0.1):
    rng = np.random.default_rng(seed)
    ones = (rng.random(chance.shape) < chance).astype(float)
    ones[rng.random(chance.shape) < missing] = np.nan
    return BinaryMatrix(ones)


# ---- what is explained -------------------------------------------------------------------------


def test_shares_of_columns_leave_the_entry_itself_out():
    columns, values = np.array([0, 0, 0, 1, 1]), np.array([1, 0, 1, 1, 1])
    found = np.exp(shares_left_out(np.array([[1, 2], [0, 2]]), columns, values))
    # Two values share one prior entry: (others alike + 1/2) / (others + 1).
    np.testing.assert_allclose(found, [1.5 / 3, 0.5 / 3, 1.5 / 3, 1.5 / 2, 1.5 / 2])


@pytest.mark.parametrize("kind", ["dense", "sparse", "packed"])
def test_columns_are_counted_whole_however_they_are_kept(kind):
    rng = np.random.default_rng(0)
    values = (rng.random((70, 5)) < 0.2).astype(float)
    hidden = rng.random(values.shape) < 0.3
    data = BinaryMatrix(np.where(hidden, np.nan, values))
    if kind == "sparse":
        data = BinaryMatrix(scipy.sparse.csr_array(values * ~hidden), observed=~hidden)
    if kind == "packed":
        words = data.packed()
        data = BinaryMatrix.from_packed(words.ones, 5, words.observed)
    assert data.is_sparse == (kind == "sparse") and data.is_packed == (kind != "sparse")
    zeros, ones = _bits_of_columns(data).T
    np.testing.assert_array_equal(ones, ((values == 1) & ~hidden).sum(0))
    np.testing.assert_array_equal(zeros, ((values == 0) & ~hidden).sum(0))


def test_stars_of_columns_are_counted_by_their_kind():
    rows, columns = [0, 1, 2, 0, 2], [0, 0, 0, 2, 2]
    ratings = Ratings(rows, columns, [5.0, 1.0, 5.0, 3.0, 1.0], shape=(3, 3))
    counts, kind = _counted(ratings, np.array([5.0, 3.0]))
    np.testing.assert_array_equal(counts, [[1, 0, 2], [0, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(kind, [2, 1])


def test_effects_of_rows_and_columns_leave_the_entry_itself_out():
    """In a complete table an entry's residual is that of a fit without it."""
    rng = np.random.default_rng(0)
    values = rng.normal(0, 2, (8, 1)) + rng.normal(0, 3, (1, 6)) + rng.normal(0, 1, (8, 6))
    values, (i, j) = values.ravel(), np.divmod(np.arange(48), 6)
    found = effects_left_out(i, j, values, (8, 6), i, j, values)
    design = np.hstack([np.eye(8)[i], np.eye(6)[j]])
    residual = np.empty(48)
    for cell in range(48):
        others = np.arange(48) != cell
        fitted = np.linalg.lstsq(design[others], values[others], rcond=None)[0]
        residual[cell] = values[cell] - design[cell] @ fitted
    expected = scipy.stats.norm.logpdf(residual, scale=np.sqrt(np.mean(residual**2)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_share_that_is_explained_is_that_of_the_deviance():
    chance = chances()
    data = drawn(chance, 1)
    found = model_check(Bernoulli(data, chance))
    i, j = np.nonzero(data.observed())
    values = data.dense()[i, j]
    own = np.log(np.where(values > 0.5, chance[i, j], 1 - chance[i, j]))
    dense = data.dense()
    counts = np.stack([(dense == 0).sum(0), (dense == 1).sum(0)], 1)
    plain = shares_left_out(counts, j, values.astype(int))
    assert found.explained == pytest.approx(1 - own.sum() / plain.sum(), rel=1e-6)
    assert found.explains and found.num_entries == len(i)
    rng = np.random.default_rng(0)
    again = [rng.integers(0, len(i), len(i)) for _ in range(2000)]
    shares = [1 - own[some].sum() / plain[some].sum() for some in again]
    assert found.explained_error == pytest.approx(np.std(shares), rel=0.1)


def test_a_model_that_is_far_off_leaves_a_number():
    """The density of a number under no factors at all may be that of a rounding error."""
    scores = np.array([-1e6, -1.0, -3e7, -2.0])
    assert explained_share(scores, np.zeros(4), False) == (
        pytest.approx(1.0 - MOST_LEFT),
        MOST_LEFT,
    )
    # Others are what they are.
    assert explained_share(scores / 1e7, np.zeros(4), False)[0] == pytest.approx(1 - np.exp(1.55))


def test_a_model_of_columns_alone_explains_nothing_and_a_wrong_one_less():
    busy = 1 / (1 + np.exp(-np.random.default_rng(0).normal(0, 1.5, (60, 1)) - np.zeros(12)))
    data = drawn(busy, 2)
    means = np.broadcast_to(np.nanmean(data.dense(), axis=0), data.shape)
    plain = model_check(Bernoulli(data, means))
    assert abs(plain.explained) < 0.05
    # What no column knows is in the sums of rows.
    assert "row sums" in plain.misfits and "column sums" not in plain.misfits
    wrong = model_check(Bernoulli(data, np.full(data.shape, 0.9)))
    assert not wrong.explains and wrong.explained < 0 and not wrong.is_calibrated
    assert str(wrong).startswith("The model does not explain the data: -")
    assert "column sums" in wrong.misfits


def test_numbers_are_compared_with_effects_of_rows_and_columns():
    """Of normal errors the share is that of the variance."""
    rng = np.random.default_rng(3)
    product = rng.normal(0, 1, (70, 2)) @ rng.normal(0, 1, (2, 30))
    values = product + rng.normal(0, 0.5, product.shape)
    found = model_check(Normal(RealMatrix(values), product))
    rest = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    of_effects = rest.var() / (1 - 1 / 70 - 1 / 30 + 1 / 2100) ** 2
    assert found.explained == pytest.approx(1 - 0.25 / of_effects, abs=0.01)
    assert np.isnan(found.calibration_error) and found.is_calibrated and not found.misfits
    inside = np.abs(values - product) < 0.5 * scipy.stats.norm.ppf(0.95)
    assert found.intervals.coverage == pytest.approx(inside.mean()) and found.intervals.holds
    narrow = model_check(Normal(RealMatrix(values), product, 0.3)).intervals
    assert narrow.coverage == pytest.approx(2 * scipy.stats.norm.cdf(0.987) - 1, abs=0.02)
    assert not narrow.holds and model_check(Normal(RealMatrix(values), product, 2.0)).fits is False
    assert found.doubtful == 0.0 and "doubtful" not in str(found)

    class Restless(Normal):
        """Entries of some rows have densities with heavy tails over the draws."""

        def _log_density(self, i, j, values):
            tails = 5 * np.random.default_rng(0).standard_cauchy((60, len(i)))
            return super()._log_density(i, j, values) - np.abs(tails) * (i < 21)

    restless = model_check(Restless(RealMatrix(values), product))
    assert restless.doubtful == pytest.approx(21 / 70, abs=0.03)
    share = f"{restless.doubtful:.0%} of the scores of entries left out are doubtful (Pareto k"
    assert share in str(restless) and "check=0.1" in str(restless)
    assert "doubtful" not in str(dataclasses.replace(restless, doubtful=0.1))


# ---- by chance ---------------------------------------------------------------------------------


def test_the_true_model_is_refused_as_rarely_as_it_says():
    chance, calm, misfits = chances(), 0, np.zeros(3)
    for seed in range(60):
        found = model_check(Bernoulli(drawn(chance, seed), chance), seed=seed)
        calm += found.is_calibrated
        misfits += found.statistics["p_value"].to_numpy() < UNLIKELY
    assert scipy.stats.binomtest(60 - calm, 60, 0.05, alternative="greater").pvalue > 1e-3
    for number in misfits.astype(int):
        assert scipy.stats.binomtest(number, 60, UNLIKELY, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize(("shape", "least"), [((20, 16), 0), ((100, 16), 15)])
def test_a_true_model_is_calibrated_though_entries_share_probabilities(shape, least):
    """Of columns that differ in their rates: a one that is left out makes the rate smaller."""
    refused, sharper = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        data = drawn(np.broadcast_to(rng.beta(2, 2, shape[1]), shape), seed, missing=0.0)
        ones = data.dense().sum(0)
        rates = rng.beta(2 + ones, 2 + shape[0] - ones, (120, 16))[:, None]
        rates = np.broadcast_to(rates, (120, *shape))
        refused += not left_out(Bernoulli(data, rates)).is_calibrated
        too_sure = 1 / (1 + (1 / rates - 1) ** 2)
        sharper += not left_out(Bernoulli(data, too_sure)).is_calibrated
    assert scipy.stats.binomtest(refused, 20, 0.05, alternative="greater").pvalue > 1e-2
    assert sharper >= least


def test_a_slight_error_is_no_reason_against_a_model_however_sure():
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.1, 0.9, (400, 60))
    data = drawn(chance, 1, missing=0.0)
    odds = np.log(chance / (1 - chance))
    for more, calibrated in ((0.0, True), (0.6, False)):
        shifted = np.clip(1 / (1 + np.exp(-odds - more)), 0.01, 0.99)
        found = left_out(Bernoulli(data, shifted), max_entries=24_000)
        assert found.is_calibrated is calibrated
    found = dataclasses.replace(found, calibration_error=0.009, error_by_chance=0.001)
    assert found.is_calibrated and found.calibration_text == "nearly calibrated"
    true = dataclasses.replace(found, calibration_error=0.009, error_by_chance=0.009)
    assert true.calibration_text == "calibrated"


def test_the_worst_sum_is_named_and_its_probability_is_a_rank():
    rng, names = np.random.default_rng(0), list("abcdefg")
    values = [worst_of(rng.poisson(5.0, (40, 7)), names)["p_value"] for _ in range(400)]
    spread = values - rng.uniform(0, 1, 400) / 40
    assert scipy.stats.kstest(spread, "uniform").pvalue > 1e-3
    sums = rng.poisson(5.0, (40, 7))
    sums[0, 4] = 25
    found = worst_of(sums, names)
    assert found["worst"] == "e" and found["observed"] == 25 and found["p_value"] == 1 / 40
    assert found["expected"] == pytest.approx(sums[1:, 4].mean())


@dataclass(frozen=True)
class Counts:
    """A fit of counts whose draws have these `rates` (draw, row), alike in all columns."""

    data: RealMatrix
    rates: np.ndarray
    scatter: float = 0.0
    usage_draws: np.ndarray = field(default_factory=lambda: np.zeros((2, 50, 1, 1)))
    basis_draws: np.ndarray = field(default_factory=lambda: np.zeros((2, 50, 1, 1)))
    other_draws: dict = field(default_factory=dict)
    _scored: ClassVar[str] = "probabilities of counts"

    def _rates(self, i, j):
        return self.rates[:, i]

    def _replicates(self, i, j, rng):
        return scattered(rng, self._rates(i, j), self.scatter)


def scattered(rng, rates, scatter):
    """Draw counts, negative binomial if rates scatter by a relative standard deviation."""
    return rng.poisson(
        rates * rng.gamma(scatter**-2, scatter**2, rates.shape) if scatter else rates
    )


def checked_counts(scatter, seed, known=0.0, shape=(30, 8)):
    """The statistics of counts that scatter, under the posterior of rows' rates if they do not."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(2.0, 5.0, (shape[0], 1))
    values = scattered(rng, np.tile(rates, shape[1]), scatter).astype(float)
    drawn = rng.gamma(2.0 + values.sum(1), 1.0 / (0.2 + shape[1]), (100, shape[0]))
    drawn = np.tile(rates[:, 0], (100, 1)) if known else drawn
    return _statistics(Counts(RealMatrix(values), drawn, known), seed)


def test_counts_scatter_as_their_model_has_it():
    """Rates that are not sure make replicates and the data differ from them alike."""
    values = [
        checked_counts(0.0, seed, shape=(60, 2)).loc["dispersions", "p_value"] for seed in range(40)
    ]
    assert np.mean(np.array(values) < UNLIKELY) < 0.1 and np.mean(values) > 0.3
    found = checked_counts(0.3, 0)
    assert found.loc["dispersions", "p_value"] < UNLIKELY < found.loc["row sums", "p_value"]
    worst = found.loc["dispersions"]
    assert worst["worst"] == "all columns" and worst["expected"] == pytest.approx(1.0, abs=0.1)
    assert worst["observed"] == pytest.approx(1 + 0.3**2 * 10.0 * 1.5, abs=0.5)
    assert checked_counts(0.3, 0, known=0.3).loc["dispersions", "p_value"] > 0.1


def checked_numbers(sd, seed, columns, unit=1.0):
    """A fit of numbers about means of rows, whose noise is `sd` (row,), as if it were one for all.

    Draws are those of the posterior under a flat prior of the means.
    """
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 2, (len(sd), 1)) + sd[:, None] * rng.normal(size=(len(sd), columns))
    noise = np.sqrt(np.mean(sd**2))
    means = values.mean(1) + noise / np.sqrt(columns) * rng.normal(size=(60, len(sd)))
    fits = np.broadcast_to(unit * means[..., None], (60, *values.shape))
    return Normal(RealMatrix(unit * values), fits, unit * noise)


def test_numbers_spread_as_their_model_has_it():
    """Means that are not sure make replicates and the data differ from them alike."""
    names, quiet = ["spreads of rows", "spreads of columns"], np.full(40, 0.6)
    values = [
        _statistics(checked_numbers(quiet, seed, 4), seed).loc[names, "p_value"]
        for seed in range(40)
    ]
    assert np.mean(np.array(values) < UNLIKELY) < 0.1 and np.mean(values) > 0.3
    mixed = np.where(np.arange(40) % 2, 0.9, 0.25)
    for unit in (1.0, 1e-3):
        found = _statistics(checked_numbers(mixed, 0, 30, unit), 0)
        worst = found.loc["spreads of rows"]
        assert worst["p_value"] < UNLIKELY < found.loc["spreads of columns", "p_value"]
        noisy = int(worst["worst"].split()[-1]) - 1
        assert noisy % 2 and 0.9 < worst["observed"] / unit < 1.3
        assert worst["expected"] / unit == pytest.approx(np.sqrt(np.mean(mixed**2)), rel=0.05)
        # A root mean square of n normal numbers has a standard deviation of 1 / sqrt(2 n) of it.
        assert worst["sd"] / worst["expected"] == pytest.approx(60**-0.5, rel=0.4)


def test_intervals_of_rows_that_scatter_more_hold_too_little():
    """Though those of all hold as much as they say; and not where the noise is one for all."""
    even, mixed = np.full(60, 0.6), np.where(np.arange(60) % 2, 0.9, 0.25)
    beyond = 0
    for seed in range(20):
        found = left_out(checked_numbers(even, seed, 20)).intervals
        assert found.holds and abs(found.coverage - 0.9) < 0.04
        beyond += found.coverage_error > found.coverage_by_chance
    assert scipy.stats.binomtest(beyond, 20, 0.05, alternative="greater").pvalue > 1e-2
    found = left_out(checked_numbers(mixed, 0, 20))
    noise = np.sqrt(np.mean(mixed**2))
    noisy = 2 * scipy.stats.norm.cdf(1.645 * noise / 0.9) - 1
    assert found.intervals.coverage_scattered == pytest.approx(noisy, abs=0.06)
    assert found.intervals.coverage == pytest.approx((1 + noisy) / 2, abs=0.03)
    assert not found.intervals.holds and "scatter most" in str(found.intervals)
    said = str(with_fit(Verdict(AGREEING), found.figures, "fit another"))
    assert f"hold {100 * found.intervals.coverage_scattered:.0f} % where rows" in said
    told = with_fit(Verdict(AGREEING), found.figures, "fit another").predictions
    assert not told.holds and told.remedy == ONE_NOISE


def test_rows_that_factors_nearly_fill_say_nothing_of_their_scatter():
    """Exact places of entries left out, ten known factors to twelve entries of a row."""
    rng, rows, columns, rank = np.random.default_rng(0), 150, 60, 10
    basis, usage = rng.normal(0, 3, (columns, rank)), rng.normal(size=(rows, rank))
    j = np.argsort(rng.random((rows, columns)), 1)[:, :12]
    values = np.einsum("ik,ijk->ij", usage, basis[j]) + rng.normal(size=j.shape)
    inverse = np.linalg.inv(basis[j] @ basis[j].swapaxes(1, 2) + np.eye(12))
    residual = np.einsum("ijk,ik->ij", inverse, values)
    places = scipy.stats.norm.cdf(residual / np.sqrt(np.diagonal(inverse, axis1=1, axis2=2)))
    lines = np.repeat(np.arange(rows), 12), j.ravel()
    few = FEW_A_FACTOR * (1 + rank)
    found = [
        coverage(places.reshape(1, -1), scatter_of_lines(places.reshape(1, -1), lines, few=number))
        for number in (1, few)
    ]
    assert found[0].coverage == found[1].coverage == pytest.approx(0.9, abs=0.02)
    assert found[0].coverage_error > 2 * found[0].coverage_by_chance
    assert found[1].coverage_error < found[1].coverage_by_chance


def test_a_star_has_its_probability_between_its_ends():
    """So a random place in it lies in an interval of 90 % with that probability."""
    rng = np.random.default_rng(0)
    fits, cuts = rng.normal(0, 1, (3, 400)), np.sort(rng.normal(0, 1, (3, 4)), 1)
    every = np.stack([below_star(np.full(400, s), fits, cuts) for s in range(5)])
    dense = np.stack([star_density(np.full(400, s), fits, cuts) for s in range(5)])
    np.testing.assert_allclose(every[:, 1] - every[:, 0], np.exp(dense), atol=1e-12)
    ends = every.mean(2)
    shares = np.diff(ends, axis=1)[:, 0]
    held = [[coverage(star[:, [at]], np.zeros(1)).coverage for at in range(5)] for star in ends]
    np.testing.assert_allclose((shares[:, :5] * held).sum(0), 0.9)


def test_bins_hold_what_was_predicted_and_seen():
    one = np.array([0.05, 0.05, 0.55, 0.55, 0.95])
    table, wrong, by_chance = calibration(one, np.array([False, True, True, False, True]))
    assert table.index.tolist() == [0.0, 0.5, 0.9]
    np.testing.assert_allclose(table["observed"], [0.5, 0.5, 1.0])
    assert wrong == pytest.approx((0.9 + 0.1 + 0.05) / 5) and 0.05 < by_chance < 1


# ---- in the verdict ------------------------------------------------------------------------------

AGREEING = Figures(
    num_chains=4, exact=True, factors_agreeing=1.0, factors_holding=("1",), factors_differing=(),
    chains_apart=0.0, mc_error=0.02,
)  # fmt: skip


def judged(data, chance) -> Verdict:
    """The verdict of chains that agree on these probabilities."""
    other = "fit with model='features'"
    return with_fit(Verdict(AGREEING), left_out(Bernoulli(data, chance)).figures, other)


def test_effects_without_a_tile_are_said_to_be_unexplained_first():
    """Rows and columns differ in how many ones they have: one rate for all says less than that."""
    rng = np.random.default_rng(7)
    effects = rng.normal(0, 1.0, 150)[:, None] + rng.normal(0, 1.5, 30) - 1.0
    truth = 1 / (1 + np.exp(-effects))
    data = BinaryMatrix((rng.random(truth.shape) < truth).astype(float))
    wrong = judged(data, np.full(truth.shape, data.density))
    assert str(wrong).startswith("The model explains nothing (-")
    assert wrong.status == "in part" and wrong.predictions.status == "does not hold"
    assert str(wrong).endswith("Next, fit with model='features'.")
    right = judged(data, truth)
    assert right.status == "reliable" and not right.remedy and right.predictions.lead == ""


def test_chains_that_agree_on_little_more_than_column_means_say_so_first():
    """Probabilities that lie a third of the way from the means of columns to the truth."""
    rng = np.random.default_rng(8)
    usage = rng.random((400, 1)) < 0.3
    truth = np.where(usage, rng.uniform(0.2, 0.9, 40), rng.uniform(0.02, 0.2, 40))
    data = BinaryMatrix((rng.random(truth.shape) < truth).astype(float))
    means = data.dense().mean(0)
    found = judged(data, means + 0.08 * (truth - means))
    assert 0 < found.predictions.explained < 0.05
    assert str(found).startswith(
        f"The model explains little ({found.predictions.explained:.0%}"[:27]
    )
    assert found.status != "unreliable"
    assert judged(data, truth).predictions.lead == ""


def test_the_check_names_what_to_fit_instead():
    rng = np.random.default_rng(9)
    rates = np.linspace(0.1, 0.9, 12)
    data = BinaryMatrix((rng.random((200, 12)) < rates).astype(float))
    wrong = model_check(Bernoulli(data, np.full(data.shape, 0.5)), other_model="fit another")
    assert not wrong.fits and wrong.sentence.endswith(").")
    assert wrong.advice.startswith("Next, as it explains nothing and probabilities are off and ")
    assert str(wrong) == f"{wrong.sentence} {wrong.advice}"
    # Where all else is right, the replicates are what it is advised for.
    right = model_check(Bernoulli(data, np.broadcast_to(rates, data.shape)), other_model="another")
    right = dataclasses.replace(right, explained=0.5, explained_error=0.01)
    assert right.fits and not right.advice
    off = right.statistics.assign(p_value=[0.0, 1.0, 0.0])
    off = dataclasses.replace(right, statistics=off)
    assert off.is_calibrated and off.advice == (
        "Next, as row sums and pairs of columns of its replicates are off, another."
    )
    # Nothing is told of entries that could not be left out, nor advised because of them.
    few = dataclasses.replace(right, doubtful=1.0)
    assert not few.is_calibrated and not few.fits and not few.advice
    assert "calibrated (error" in str(right) and "calibrated (error" not in str(few)
    assert "may explain 50 ± 1 %" in str(few) and "is not known: too few draws" in str(few)
    assert "Next" not in str(model_check(Bernoulli(data, np.full(data.shape, 0.5))))
