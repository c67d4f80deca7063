"""Boolean matrix factorisation as a scikit-learn transformer; needs the extra `sklearn`."""

from __future__ import annotations

import numbers

import numpy as np
import scipy.sparse as sp

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.data.blocks import spaced
from bmfjax.data.checks import one_of, whole
from bmfjax.families import FAMILIES
from bmfjax.fitting import Fit, fit
from bmfjax.specs import with_fields_refused

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.preprocessing import binarize as cut
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "bmfjax.sklearn needs scikit-learn 1.6 or later; pip install 'bmfjax[sklearn]'"
    ) from error

#: Models of bits that samples have or have not.
MODELS = tuple(m for m in FAMILIES if hasattr(Fit._of_model(m), "_chance_given"))
#: Draws of the basis that `inverse_transform` averages over at most.
MAX_DRAWS = 400


class BooleanMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
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
        Values above it count as one, others as zero. Default: values must be 0 or 1, and NaN is a
        missing entry.
    num_chains : int
    num_warmup, num_samples : int or "auto"
    max_time : float, optional
        As of `bmfjax.fit`: by default chains end when they agree, after ten minutes at most.
    init : {"annealed", "random"}
        Where chains start: as those of `bmfjax.fit` do, annealed, or, faster and more often in a
        poor mode, at random bits.
    model : str or Model
        "ormachine", "ormachine-effects", "deep-ormachine", "one-hot", "hamming" or "features", as
        of `bmfjax.fit`, or such a model as a value without a rank: ``OrMachine(num_rates=1)``.
        Of "one-hot" a sample uses exactly one component, so that the components are clusters. With
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
        self.n_components = n_components
        self.binarize = binarize
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.max_time = max_time
        self.init = init
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
        BooleanMF
            Itself.

        Raises
        ------
        InputError
            Where values are neither 0, 1 nor missing and no threshold is given, or for bad
            options (a ValueError).
        """
        data = self._read(X, reset=True)
        rank = min(whole("n_components", self.n_components), *data.shape)
        one_of("init", self.init, ("annealed", "random"))
        name = getattr(self.model, "name", self.model)
        kind = Fit._of_model(one_of("model", name, MODELS))
        seed = _seed(self.random_state)
        self.fit_ = fit(
            data,
            rank,
            model=self.model,
            init=_random_bits(kind, data, rank, seed) if self.init == "random" else None,
            num_chains=self.num_chains,
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            max_time=self.max_time,
            seed=seed,
            progress=False,
        )
        self.n_components_ = rank
        self.components_ = self.fit_.basis.T
        self.components_binary_ = self.fit_.basis_binary.T
        return self

    def transform(self, X):
        """Probability that each sample uses each component, given the fitted ones.

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

    def inverse_transform(self, X):
        r"""Probability that each entry is truly a one, from usages.

        :math:`E_u[1 - \prod_k (1 - z_{ik} u_{jk})]` over draws of the basis: exact for usages of
        0 and 1, and for probabilities where the components of a sample are independent. Of
        "one-hot" :math:`E_u[\sum_k z_{ik} u_{jk}]`, of "hamming" the probability of an observed
        one, and of "features" that in a sample of average effect.

        Parameters
        ----------
        X : ``(n_samples, n_components_)`` array
            Usages in [0, 1], as `transform` returns them.

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
        if usage.min() < 0 or usage.max() > 1:
            raise InputError("X has values outside [0, 1]; give usages as transform returns them")
        chains, draws = self.fit_.basis_draws.shape[:2]
        chosen = spaced(chains * draws, MAX_DRAWS, down=True)
        total = np.zeros((len(usage), self.n_features_in_))
        for c in chosen:
            total += self.fit_._chance_given(usage, c // draws, c % draws)
        return total / len(chosen)

    @property
    def _n_features_out(self):
        return self.n_components_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.binarize is None
        return tags

    def _read(self, X, reset) -> BinaryMatrix:
        """Return the samples as a binary matrix, or refuse them."""
        finite = "allow-nan" if self.binarize is None else True
        least = 2 if reset else 1  # a single row can be transformed, and not factorised
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", ensure_all_finite=finite,
            ensure_min_samples=least, ensure_min_features=least,
        )  # fmt: skip
        if self.binarize is not None:
            if sp.issparse(X) and self.binarize < 0:
                raise InputError(
                    f"binarize is {self.binarize}, by which every zero that a sparse matrix leaves "
                    "out is a one; give a dense array or a threshold of at least 0"
                )
            X = cut(X, threshold=self.binarize)
        values = X.data if sp.issparse(X) else X
        strange = values[~(np.isnan(values) | (values == 0) | (values == 1))]
        if strange.size:
            raise InputError(
                f"X has values other than 0, 1 and NaN, such as {strange[0]:g}; make it binary or "
                "give a threshold by binarize="
            )
        return BinaryMatrix(X, column_names=getattr(self, "feature_names_in_", None))


def _seed(random_state) -> int:
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _random_bits(kind, data, rank, seed) -> dict:
    """Bits at random, whose Boolean product is expected to have as many ones as the data.

    They are such as fits of a `kind` have.
    """
    rng = np.random.default_rng(seed)
    share = np.sqrt(1 - (1 - min(data.density, 0.95)) ** (1 / rank))
    sizes = {"usage": data.num_rows, "basis": data.num_columns}
    # Below one half where a bit is zero.
    means = [0.5 + share - rng.random((size, rank)) for size in sizes.values()]
    return dict(zip(sizes, kind.rounded(*means), strict=True))
