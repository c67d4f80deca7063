r"""Logistic matrix factorisation of a binary matrix, as a NumPyro model."""

from __future__ import annotations

import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import positive, whole
from bmfjax.models.binary_data import binary_data, sample_data
from bmfjax.models.relaxed import gamma_parameters


def logistic(
    data=None,
    observed=None,
    *,
    rank,
    prior_scale=1.0,
    bias_scale=5.0,
    row_effects=False,
    column_effects=False,
    relevance=None,
    shape=None,
):
    r"""Real factors, whose inner product is the log odds of a one.

    .. math::

       P(d_{ij} = 1) = \sigma\Big(\sum_k u_{ik} v_{jk} + a_i + b_j + z\Big),

    all of them normal: factors and effects with mean 0 and standard deviation
    `prior_scale`, the bias z with `bias_scale`, wide since a sparse matrix needs it far below
    zero. Without effects and with `bias_scale` 1 this is the model of Hernandez-Lobato, Houlsby,
    Ghahramani (2014), "Stochastic inference for scalable probabilistic modeling of binary
    matrices", ICML, section 2.

    With `relevance` every factor k has a precision of its own,
    :math:`u_{ik}, v_{jk} \sim N(0, \alpha_k^{-1})`, :math:`\alpha_k \sim \mathrm{Gamma}(a, b)`,
    which is high where the data do not need the factor (automatic relevance determination;
    Bishop 1999, "Variational principal components", ICANN).

    For NUTS at small size, NumPyro's SVI, simulation and densities;
    `bmfjax.variational.stochastic` infers it at any size, and ``bmfjax.fit(sampler="gibbs")`` draws
    from its posterior (without `relevance`).

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    prior_scale, bias_scale : float
        Standard deviations of the priors.
    row_effects, column_effects : bool
        Whether rows and columns have biases of their own, :math:`a_i` and :math:`b_j`.
    relevance : numpyro.distributions.Gamma, optional
        Prior of the factors' precisions, in place of `prior_scale`, which the effects keep.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a rank below 1, a scale that is not positive, an observed entry other than 0
        and 1, neither data nor shape, or a `relevance` that is no scalar Gamma distribution.

    Notes
    -----
    Sites: `usage` (rows, rank), `basis` (columns, rank), `bias` (), `row_effect` (rows,)
    and `column_effect` (columns,) where asked for, `factor_precision` (rank,) with `relevance`;
    `data` (rows, columns). Plates: `rows`, `columns`.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(logistic, rank=2, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["usage"].shape, draws["data"].shape
    ((5, 4, 2), (5, 4, 3))
    """
    whole("rank", rank)
    positive("prior_scale", prior_scale, "standard deviation")
    positive("bias_scale", bias_scale, "standard deviation")
    (rows, columns), values, seen = binary_data(data, observed, shape, "logistic")
    normal = dist.Normal(0.0, prior_scale)
    bias = numpyro.sample("bias", dist.Normal(0.0, bias_scale))
    of_factors = normal
    if relevance is not None:
        own = dist.Gamma(*gamma_parameters(relevance, "relevance"))
        precision = numpyro.sample("factor_precision", own.expand([rank]).to_event(1))
        of_factors = dist.Normal(0.0, precision**-0.5)
    usage = numpyro.sample("usage", of_factors.expand([rows, rank]).to_event(2))
    basis = numpyro.sample("basis", of_factors.expand([columns, rank]).to_event(2))
    if row_effects:
        row_effect = numpyro.sample("row_effect", normal.expand([rows]).to_event(1))
    if column_effects:
        column_effect = numpyro.sample("column_effect", normal.expand([columns]).to_event(1))

    def logits(i, j):
        total = usage[i] @ basis[j].T + bias
        if row_effects:
            total = total + row_effect[i][:, None]
        return total + column_effect[j] if column_effects else total

    sample_data(logits, (rows, columns), values, seen)
