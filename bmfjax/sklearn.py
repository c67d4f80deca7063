"""Matrix factorisations as scikit-learn estimators; they need the extra `sklearn`."""

from __future__ import annotations

import numbers
from typing import ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data import BinaryMatrix, InputError, RealMatrix
from bmfjax.data.blocks import blocks, spaced
from bmfjax.data.checks import one_of, whole
from bmfjax.data.names import names_of_index
from bmfjax.families import FAMILIES
from bmfjax.fitting import Fit, fit
from bmfjax.specs import with_fields_refused
from bmfjax.specs.run import MAX_TIME
from bmfjax.verdict.undrawn import warn_undrawn

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        OneToOneFeatureMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "bmfjax.sklearn needs scikit-learn 1.6 or later; pip install 'bmfjax[sklearn]'"
    ) from error

#: Models of bits that samples have or have not, which give each entry a probability of a one.
MODELS = tuple(
    name
    for name, kind in ((name, Fit._of_model(name)) for name in FAMILIES)
    if hasattr(kind, "_chance_given") and hasattr(kind, "rounded")
)
#: Draws of the basis that `inverse_transform` averages over at most.
MAX_DRAWS = 400
#: Parts of the features that `score` hides in turn.
NUM_PARTS = 5


class _Factorisation(TransformerMixin, BaseEstimator):
    """What the estimators have in common: one fit of `bmfjax.fit`."""

    #: Models that there are; the first is the default.
    _models: ClassVar[tuple[str, ...]]
    #: Those whose new samples are drawn, so that they depend on the samples beside them.
    _drawn: ClassVar[tuple[str, ...]] = ()
    #: Whether samples may be sparse.
    _takes_sparse: ClassVar[bool] = True

    @with_fields_refused
    def __init__(
        self,
        n_components=2,
        *,
        num_chains=4,
        num_warmup="auto",
        num_samples="auto",
        max_time=None,
        model=None,
        random_state=None,
    ):
        self.n_components = n_components
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.max_time = max_time
        self.model = model
        self.random_state = random_state

    def fit(self, X, y=None):
        """Sample the posterior of the components.

        Parameters
        ----------
        X : array, scipy.sparse matrix or data frame (n_samples, n_features)
        y : ignored

        Returns
        -------
        object
            Itself.

        Raises
        ------
        InputError
            For values that the model does not have, or for bad options (a ValueError).
        """
        data = self._read(X, reset=True)
        rank = min(whole("n_components", self.n_components), *data.shape)
        model, name = self._model()
        one_of("model", name, self._models)
        seed = _seed(self.random_state)
        self.fit_ = fit(
            data,
            rank,
            model=model,
            init=self._start(Fit._of_model(name), data, rank, seed),
            num_chains=self.num_chains,
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            max_time=self.max_time,
            seed=seed,
            progress=False,
        )
        self.n_components_ = rank
        warn_undrawn(self.fit_)
        self.components_ = self.fit_._basis.T
        return self

    def transform(self, X):
        """Return how much each sample uses each component, given the fitted ones.

        Parameters
        ----------
        X : array, scipy.sparse matrix or data frame (n_samples, n_features)

        Returns
        -------
        ``(n_samples, n_components_)`` float64
            Posterior means of the usage; see `Fit.transform`.
        """
        check_is_fitted(self)
        return self.fit_.transform(self._read(X, reset=False))

    def score(self, X, y=None):
        r"""Return the mean log predictive density of an observed entry.

        The features are split at random, always alike, into five parts. Each part is hidden in
        turn, and each of its entries is predicted from the other entries of its sample:

        .. math:: \log \frac{1}{S} \sum_s p(x_{ij} \mid x_{i, -\mathrm{part}}, \theta_s)

        So more components do not score better because they fit better: `GridSearchCV` can choose
        `n_components` by it. It is in nats an entry, not a sample, whatever is missing, and of ones
        and zeros the mean log probability, at most 0.

        Parameters
        ----------
        X : array, scipy.sparse matrix or data frame (n_samples, n_features)
        y : ignored

        Returns
        -------
        float

        See Also
        --------
        bmfjax.Fit.score_new : the log predictive densities of single entries.
        bmfjax.Fit.score_rows : the joint log probability of whole samples.
        """
        check_is_fitted(self)
        data = self._read(X, reset=False)
        part = np.random.default_rng(0).permutation(data.num_columns) % NUM_PARTS
        total = 0.0
        for some in blocks(data.num_rows, data.num_columns):
            values = _values(data, np.arange(data.num_rows)[some])
            for hidden in np.unique(part):
                total += self._sum_of_scores(values, part == hidden)
        return float(total / (data.num_rows * data.num_columns - data.num_missing))

    def _sum_of_scores(self, values, hidden) -> float:
        """Return the sum of the log densities of the observed entries of some features."""
        i, j = np.nonzero(~np.isnan(values) & hidden)
        # A matrix needs some entry: one row keeps all it has, and is not scored.
        known = values[~np.isnan(values).all(1)][:1]
        new = np.concatenate([np.where(hidden, np.nan, values), known])
        return self.fit_.score_new(new, i, j, values[i, j]).sum() if len(i) else 0.0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self._model()[1] in self._drawn
        return tags

    def _model(self):
        """Return the model, and its name."""
        model = self.model or self._models[0]
        return model, getattr(model, "name", model)

    def _start(self, kind, data, rank, seed):
        """Return where chains start; None leaves it to the model."""

    def _validated(self, X, reset, **options):
        least = 2 if reset else 1  # a single row can be transformed, and not factorised
        return validate_data(
            self, X, reset=reset, accept_sparse="csr" if self._takes_sparse else False,
            ensure_min_samples=least, ensure_min_features=least, **options,
        )  # fmt: skip

    def _read(self, X, reset) -> BinaryMatrix | RealMatrix:
        """Return the samples as a matrix of numbers, or refuse them."""
        values = self._validated(X, reset, dtype=np.float64, ensure_all_finite="allow-nan")
        return RealMatrix(values, **self._names(X))

    def _names(self, X) -> dict:
        """Return the names of samples, where each has one of its own, and of features."""
        names = names_of_index(X.index) if isinstance(X, pd.DataFrame) else None
        if names is not None and (pd.isna(names).any() or len({*map(str, names)}) < len(names)):
            names = None
        return {"row_names": names, "column_names": getattr(self, "feature_names_in_", None)}


class _Components(ClassNamePrefixFeaturesOutMixin, _Factorisation):
    """Estimators whose transformed samples are usages of components."""

    @property
    def _n_features_out(self):
        return self.n_components_

    def inverse_transform(self, X):
        """Return what is expected of each entry, from usages.

        Parameters
        ----------
        X : ``(n_samples, n_components_)`` array
            Usages, as `transform` returns them.

        Returns
        -------
        (n_samples, n_features) float64
        """
        check_is_fitted(self)
        usage = check_array(X, dtype=np.float64, input_name="X")
        if usage.shape[1] != self.n_components_:
            raise InputError(
                f"X has {usage.shape[1]} columns and the fit {self.n_components_} components; "
                "give what transform returns"
            )
        return self._expected(usage)

    def _expected(self, usage) -> np.ndarray:
        """Return the mean over draws of what they say of rows with these usages."""
        chains, draws = self.fit_.basis_draws.shape[:2]
        chosen = spaced(chains * draws, MAX_DRAWS, down=True)
        total = np.zeros((len(usage), self.n_features_in_))
        for c in chosen:
            total += self.fit_._chance_given(usage, c // draws, c % draws)
        return total / len(chosen)


class _Bits(_Components):
    """Estimators of ones and zeros."""

    def _read(self, X, reset) -> BinaryMatrix:
        """Return the samples as a binary matrix, or refuse them."""
        table = self._validated(X, reset, ensure_all_finite="allow-nan")
        if self.binarize is not None:
            if sp.issparse(table) and self.binarize < 0:
                raise InputError(
                    f"binarize is {self.binarize}, by which every zero that a sparse matrix leaves "
                    "out is a one; give a dense array or a threshold of at least 0"
                )
            table = _cut(table, self.binarize)
        values = table.data if sp.issparse(table) else table
        strange = values[~(np.isnan(values) | (values == 0) | (values == 1))]
        if strange.size:
            raise InputError(
                f"X has values other than 0, 1 and NaN, such as {strange[0]:g}; make it binary or "
                "give a threshold by binarize="
            )
        return BinaryMatrix(table, **self._names(X))


class BooleanMF(_Bits):
    r"""Boolean matrix factorisation with uncertainty: the OrMachine as a transformer.

    Samples are written as unions of components,
    :math:`x_{ij} \approx \bigvee_k z_{ik} u_{jk}`, observed with flips (Rukat, Holmes, Titsias,
    Yau 2017), by `bmfjax.fit`. A transformed sample holds the probability that it uses each
    component.

    Parameters
    ----------
    n_components : int
        Number of components. For a matrix with a smaller side only so many are fitted;
        see `n_components_`.
    binarize : float, optional
        Values above it count as one, others as zero. Default: values must be 0 or 1. NaN is a
        missing entry.
    num_chains : int
    num_warmup, num_samples : int or "auto"
    max_time : float, optional
        As of `bmfjax.fit`. Numbers of steps fix what a fit costs. By default chains end when they
        agree, after {max_time:g} seconds at most: so does each fit of a search over parameters.
    init : {"annealed", "random"}
        Where chains start: as those of `bmfjax.fit` do, annealed, or, faster and more often in a
        poor mode, at random bits.
    model : str or Model
        {models}, as of `bmfjax.fit`, or such a model as a value without a rank:
        ``OrMachine(num_rates=1)``.
        A sample of "one-hot" uses exactly one component, so that components are clusters. With
        a `usage` given bit by bit nothing can be transformed.
    random_state : int, RandomState or None
        An int gives the same result at every fit, that of `bmfjax.fit` with this seed.

    Attributes
    ----------
    components_ : ``(n_components_, n_features)`` float64
        Posterior means of the basis, largest component first.
    components_binary_ : ``(n_components_, n_features)`` bool
        The most probable components.
    n_components_ : int
    n_features_in_ : int
    feature_names_in_ : (n_features,) object
        Where the samples came as a data frame with names.
    fit_ : Fit
        Draws, diagnostics, and everything else: ``fit_.verdict`` says whether to trust the run.

    Notes
    -----
    `transform` is that of the fit: it sums over all sets of components, so that a sample's values
    do not depend on the samples beside it. With more than 8 components, and with effects, it
    samples, and they do by Monte Carlo error.

    Examples
    --------
    >>> import numpy as np
    >>> from bmfjax.sklearn import BooleanMF
    >>> X = np.kron(np.eye(2), np.ones((8, 5)))
    >>> bmf = BooleanMF(2, num_chains=2, num_warmup=300, num_samples=200, random_state=0)
    >>> bmf.fit_transform(X).round().sum(0).tolist()
    [8.0, 8.0]
    >>> bmf.components_binary_.sum(1).tolist()
    [5, 5]
    """

    _models = MODELS

    @with_fields_refused
    def __init__(
        self,
        n_components=2,
        *,
        binarize=None,
        num_chains=4,
        num_warmup="auto",
        num_samples="auto",
        max_time=None,
        init="annealed",
        model="ormachine",
        random_state=None,
    ):
        super().__init__(
            n_components,
            num_chains=num_chains,
            num_warmup=num_warmup,
            num_samples=num_samples,
            max_time=max_time,
            model=model,
            random_state=random_state,
        )
        self.binarize = binarize
        self.init = init

    def fit(self, X, y=None):
        super().fit(X)
        self.components_binary_ = self.fit_._basis_binary.T
        return self

    def inverse_transform(self, X):
        r"""Return the probability that each entry is truly a one, from usages.

        :math:`E_u[1 - \prod_k (1 - z_{ik} u_{jk})]` over draws of the basis: exact for usages of
        0 and 1, and for probabilities where the components of a sample are independent. For
        "one-hot" :math:`E_u[\sum_k z_{ik} u_{jk}]`, for "hamming" the probability of an observed
        one, and for "features" that in a sample of average effect.

        Parameters
        ----------
        X : ``(n_samples, n_components_)`` array
            Usages in [0, 1], as `transform` returns them.

        Returns
        -------
        (n_samples, n_features) float64
        """
        return super().inverse_transform(X)

    def _expected(self, usage):
        if usage.min() < 0 or usage.max() > 1:
            raise InputError("X has values outside [0, 1]; give usages as transform returns them")
        return super()._expected(usage)

    def _start(self, kind, data, rank, seed):
        one_of("init", self.init, ("annealed", "random"))
        return _random_bits(kind, data, rank, seed) if self.init == "random" else None


class ProbitMF(_Bits):
    r"""Factorisation of the probabilities of ones and zeros, by real components.

    :math:`P(x_{ij} = 1) = \Phi(z_i \cdot u_j + \text{effects})`, as of `bmfjax.Probit`; of
    "logistic" with a logistic function. Such components predict well, and are not unique: for
    components that can be read see `BooleanMF`.

    Parameters
    ----------
    n_components : int
        As for `BooleanMF`.
    binarize : float, optional
        As for `BooleanMF`.
    num_chains, num_warmup, num_samples, max_time
        As for `BooleanMF`.
    model : str or Model, optional
        {models}, or such a model as a value without a rank. Default: the first.
    random_state : int, RandomState or None
        As for `BooleanMF`.

    Attributes
    ----------
    components_ : ``(n_components_, n_features)`` float64
        Posterior means of the basis.
    n_components_, n_features_in_ : int
    feature_names_in_ : (n_features,) object
    fit_ : Fit

    Notes
    -----
    New samples are drawn, and have Monte Carlo error. `inverse_transform` is of samples of average
    effect.
    """

    _models = _drawn = ("probit", "logistic")

    @with_fields_refused
    def __init__(
        self,
        n_components=2,
        *,
        binarize=None,
        num_chains=4,
        num_warmup="auto",
        num_samples="auto",
        max_time=None,
        model=None,
        random_state=None,
    ):
        super().__init__(
            n_components,
            num_chains=num_chains,
            num_warmup=num_warmup,
            num_samples=num_samples,
            max_time=max_time,
            model=model,
            random_state=random_state,
        )
        self.binarize = binarize


class NonnegativeMF(_Components):
    r"""Nonnegative matrix factorisation with uncertainty.

    :math:`x_{ij} \approx z_i \cdot u_j` with nonnegative factors, as of `bmfjax.NMF`: normal noise
    and exponential priors; or counts, as of `bmfjax.Poisson`.

    Parameters
    ----------
    n_components : int
        As for `BooleanMF`.
    num_chains, num_warmup, num_samples, max_time
        As for `BooleanMF`.
    model : str or Model, optional
        {models}, or such a model as a value without a rank. Default: the first.
    random_state : int, RandomState or None
        As for `BooleanMF`.

    Attributes
    ----------
    components_ : ``(n_components_, n_features)`` float64
        Posterior means of the basis.
    n_components_, n_features_in_ : int
    feature_names_in_ : (n_features,) object
    fit_ : Fit

    Notes
    -----
    NaN is a missing entry. A new sample of "nmf" has the usages that fit it best, averaged over
    draws of the basis; those of "poisson" are drawn, and have Monte Carlo error.
    """

    _models, _drawn = ("nmf", "poisson"), ("poisson",)

    def _expected(self, usage):
        return usage @ self.components_


class MFImputer(OneToOneFeatureMixin, _Factorisation):
    """Fill in missing numbers, such as ratings, by a matrix factorisation.

    As of `bmfjax.PMF`: entries have effects of their sample and feature beside the components, and
    normal noise. `transform` returns the samples with each missing entry (NaN) replaced by its
    posterior mean, as scikit-learn's imputers do; ``fit_`` has intervals.

    Parameters
    ----------
    n_components : int
        As for `BooleanMF`.
    num_chains, num_warmup, num_samples, max_time
        As for `BooleanMF`.
    model : str or Model, optional
        {models}, or such a model as a value without a rank. Default: the first. With
        "ordered-probit" the values are steps of a scale, such as stars.
    random_state : int, RandomState or None
        As for `BooleanMF`.

    Attributes
    ----------
    components_ : ``(n_components_, n_features)`` float64
        Posterior means of the basis.
    n_components_, n_features_in_ : int
    feature_names_in_ : (n_features,) object
    fit_ : Fit

    Notes
    -----
    What new samples have beside their observed entries is drawn: filled values have Monte Carlo
    error. A star that no fitted sample has is taken for the nearest one that was fitted, in `score`
    too, so that cross-validation does not end at a rare one.
    """

    _models = _drawn = ("pmf", "ordered-probit")
    _takes_sparse = False

    def transform(self, X):
        """Return the samples with what is missing filled in.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            NaN where an entry is missing.

        Returns
        -------
        (n_samples, n_features) float64
            Observed entries as they are, and posterior means of the others.
        """
        check_is_fitted(self)
        known = self._validated(X, False, dtype=np.float64, ensure_all_finite="allow-nan")
        filled = np.array(known)
        i, j = np.nonzero(np.isnan(filled))
        if len(i):
            given = self.fit_.given_new(self._of_fitted_stars(known))
            filled[i, j] = given.predict_cells(i, j, positions=True)
        return filled

    def _sum_of_scores(self, values, hidden):
        return super()._sum_of_scores(self._of_fitted_stars(values), hidden)

    def _of_fitted_stars(self, values) -> np.ndarray:
        """Return values of which each star is the nearest one that was fitted."""
        if self.fit_.settings["stars"] is None:
            return values
        stars = np.asarray(self.fit_.settings["stars"], float)
        nearest = stars[np.searchsorted((stars[1:] + stars[:-1]) / 2, values)]
        return np.where(np.isnan(values), np.nan, nearest)


for _kind in (BooleanMF, ProbitMF, NonnegativeMF, MFImputer):
    _names = ", ".join(f'"{name}"' for name in _kind._models)
    _kind.__doc__ = (
        (_kind.__doc__ or "").replace("{models}", _names).replace("{max_time:g}", f"{MAX_TIME:g}")
    )


def _values(data, rows) -> np.ndarray:
    """Return the values of some rows, NaN where they are missing; these alone are formed."""
    part = data.part(rows, np.arange(data.num_columns))
    return np.where(part[1], np.nan, part[0]) if isinstance(data, BinaryMatrix) else part


def _cut(X, threshold):
    """Return a copy whose values above a threshold are ones, others zeros; NaN stays as it is."""
    if sp.issparse(X):
        found = X.copy()
        found.data = _cut(X.data, threshold)
        return found
    return np.where(np.isnan(X), np.nan, threshold < X)


def _seed(random_state) -> int:
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _random_bits(kind, data, rank, seed) -> dict:
    """Return bits at random, whose Boolean product is expected to have as many ones as the data.

    They are such as fits of a `kind` have.
    """
    rng = np.random.default_rng(seed)
    share = np.sqrt(1 - (1 - min(data.density, 0.95)) ** (1 / rank))
    sizes = {"usage": data.num_rows, "basis": data.num_columns}
    # Below one half where a bit is zero.
    means = [0.5 + share - rng.random((size, rank)) for size in sizes.values()]
    return dict(zip(sizes, kind.rounded(*means), strict=True))
