r"""Binary latent features, whose effects on the log odds of a one add, as a NumPyro model."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bmfjax.data.checks import one_of, positive, whole
from bmfjax.kernels.features.density import MOMENT
from bmfjax.models.binary_data import binary_data, sample_data


def features(
    data=None,
    observed=None,
    *,
    rank,
    weights="signed",
    row_effects=True,
    slab=(3.0, 9.0),
    row_scale=0.5,
    mean_scale=3.0,
    intercepts=(1.0, 1.0),
    presence=None,
    shape=None,
):
    r"""Draw features that rows have or lack; their effects on the log odds of columns are sparse.

    .. math::

       \operatorname{logit} P(x_{nd} = 1) &= a_d + e_n + \sum_k z_{nk} u_{dk} v_{dk}, \\
       z_{nk} &\sim \mathrm{Bernoulli}(\pi_k), \quad u_{dk} \sim \mathrm{Bernoulli}(\rho_k), \quad
       v_{dk} \sim N(0, \lambda_k^{-1}), \\
       \pi_k, \rho_k &\sim \mathrm{Beta}(1, 1), \quad \lambda_k \sim \mathrm{Gamma}(3, 9), \\
       a_d &\sim N(m, \alpha^{-1}), \quad m \sim N(0, 3^2), \quad
       \alpha \sim \mathrm{Gamma}(1, 1), \quad
       e_n \sim N(0, \tau^2), \quad \tau \sim N^+(0, 0.5^2).

    Row n has feature k, or not; the feature concerns column d, or not, and where it does its weight
    is :math:`v_{dk}`, a log odds ratio. It is a binary latent feature model (Griffiths, Ghahramani
    2011, "The Indian buffet process: an introduction and review", JMLR 12) with a logistic link and
    spike-and-slab weights; in psychometrics the main effects of the log-linear cognitive diagnosis
    model (Henson, Templin, Willse 2009, "Defining a family of cognitive diagnosis models using
    log-linear models with latent variables", Psychometrika 74) with an unknown Q-matrix.

    With `weights` "positive" the density of a weight vanishes at zero, a product moment density
    (Johnson, Rossell 2010, "On the use of non-local prior densities in Bayesian hypothesis tests",
    JRSS B 72) with the same mean square:

    .. math:: p(v \mid \lambda) \propto v^2 e^{-3 \lambda v^2 / 2}, \quad v > 0.

    Under a half normal density, which is highest at zero, a column that a feature does not concern
    is hardly told from one that it concerns a little.

    The prior of :math:`\lambda_k` keeps weights away from zero: their scale is about 1.7, an odds
    ratio of 5. With a scale that may vanish, a feature that does nothing would concern half of the
    columns. That of :math:`\tau` has 95 % of its mass below 1, for a feature that most rows have
    trades with the row effects.

    With `presence`, (a, b), feature k is there with a probability that has a Beta(a, b) prior. One
    that is not has neither rows nor columns. With (1, 1) all numbers of features up to `rank` are
    equally probable.

    Parameters
    ----------
    data : (rows, columns) array, optional
        0 or 1; NaN is missing. None: draw from the prior predictive (give `shape`).
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of features, or the most.
    weights : {"signed", "positive"}
    row_effects : bool
        Whether rows have effects of their own, :math:`e_n`.
    slab : (float, float)
        Shape and rate of the prior of :math:`\lambda_k`.
    row_scale, mean_scale : float
        Scales of the priors of :math:`\tau` and m.
    intercepts : (float, float)
        Shape and rate of the prior of :math:`\alpha`.
    presence : (float, float), optional
        None: all features are there.
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a rank below 1, unknown `weights`, a scale that is not positive, an observed entry other
        than 0 and 1, or neither data nor shape.

    Notes
    -----
    Sites: `usage` (rows, rank), `concerned` and `weight` (columns, rank), `basis`, their product,
    deterministic; `usage_density`, `basis_density`, `factor_precision` (rank,); `column_effect`
    (columns,), `column_mean`, `column_precision` (); `row_effect` (rows,) and `row_scale` () where
    asked for; `presence` (rank,) and `presence_share` () with `presence`; `data` (rows, columns).
    Plates: `rows`, `columns`.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(features, rank=2, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["usage"].shape, draws["data"].shape
    ((5, 4, 2), (5, 4, 3))
    """
    whole("rank", rank)
    one_of("weights", weights, ("signed", "positive"))
    positive("row_scale", row_scale, "scale")
    positive("mean_scale", mean_scale, "standard deviation")
    (rows, columns), values, seen = binary_data(data, observed, shape, "features")

    def each(name, distribution):
        return numpyro.sample(name, distribution.expand([rank]).to_event(1))

    there = jnp.ones(rank)
    if presence is not None:
        share = numpyro.sample("presence_share", dist.Beta(*presence))
        there = each("presence", dist.Bernoulli(share))
    usage_density = each("usage_density", dist.Beta(1.0, 1.0))
    basis_density = each("basis_density", dist.Beta(1.0, 1.0))
    precision = each("factor_precision", dist.Gamma(*slab))
    slab_of = dist.Normal if weights == "signed" else _product_moment
    bits = dist.Bernoulli(usage_density * there).expand([rows, rank]).to_event(2)
    usage = numpyro.sample("usage", bits)
    bits = dist.Bernoulli(basis_density * there).expand([columns, rank]).to_event(2)
    concerned = numpyro.sample("concerned", bits)
    own = slab_of(0.0, precision**-0.5).expand([columns, rank]).to_event(2)
    basis = numpyro.deterministic("basis", concerned * numpyro.sample("weight", own))
    mean = numpyro.sample("column_mean", dist.Normal(0.0, mean_scale))
    alpha = numpyro.sample("column_precision", dist.Gamma(*intercepts))
    intercept = dist.Normal(mean, alpha**-0.5).expand([columns]).to_event(1)
    column_effect = numpyro.sample("column_effect", intercept)
    row_effect = jnp.zeros(rows)
    if row_effects:
        scale = numpyro.sample("row_scale", dist.HalfNormal(row_scale))
        own = dist.Normal(0.0, scale).expand([rows]).to_event(1)
        row_effect = numpyro.sample("row_effect", own)

    def logits(i, j):
        return usage[i] @ basis[j].T + row_effect[i][:, None] + column_effect[j]

    sample_data(logits, (rows, columns), values, seen)


def _product_moment(_, scale):
    # The square has a Gamma distribution.
    half = 0.5 * (MOMENT + 1)
    square = dist.Gamma(half, half / scale**2)
    return dist.TransformedDistribution(square, dist.transforms.PowerTransform(jnp.asarray(0.5)))
