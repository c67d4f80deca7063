r"""Bayesian matrix factorisation of ratings, stars or binary entries, as a NumPyro model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr, ndtr

from bmfjax.data.checks import one_of, positive, whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.normal_wishart import NormalWishart
from bmfjax.kernels.ratings.density import LINKS
from bmfjax.models.missing import split_missing
from bmfjax.models.ordered_normal import OrderedNormal
from bmfjax.models.relaxed import gamma_parameters, resolve_precision
from bmfjax.specs.ratings import RIDGE

#: Standard deviation of the level's prior; behind a probit in units of the latent values' noise.
LEVEL_SCALES = {"identity": 10.0, "probit": 1.0, "ordered": 2.0}
#: How large noise, effects and factors are beforehand, beside the ratings' standard deviation.
PART = 0.5


def pmf(
    data=None,
    observed=None,
    *,
    rank,
    link="identity",
    categories=None,
    effects=True,
    precision=None,
    effect_precision=None,
    strength=None,
    degrees=None,
    scale=None,
    relevance=None,
    usage_unit=1.0,
    level_mean=0.0,
    level_scale=None,
    row_attributes=None,
    column_attributes=None,
    ridge=None,
    shape=None,
):
    r"""Real factors with a mean and a precision matrix of their own, which are learned.

    .. math::

       e_{ij} = \mu + a_i + b_j + u_i^\top v_j, \qquad
       u_i \sim N(\mu_U, \Lambda_U^{-1}),\quad \mu_U \sim N(0, (\beta_0\Lambda_U)^{-1}),\quad
       \Lambda_U \sim W(wI, \nu_0),

    the same of :math:`v_j`, and effects :math:`a_i \sim N(0, \tau_a^{-1})`,
    :math:`\tau_a \sim \mathrm{Gamma}`. With `usage_unit` s the usage is s times such a matrix,
    :math:`\Lambda_U \sim W(ws^{-2}I, \nu_0)`: the basis has no unit, and the usage that of the
    ratings. A rating is :math:`y_{ij} \sim N(e_{ij}, \tau^{-1})`
    (Salakhutdinov, Mnih 2008, "Bayesian probabilistic matrix factorization using Markov chain
    Monte Carlo", ICML, equations 1 and 5 to 7, which have no effects and fix :math:`\tau` at 2);
    a binary entry is a one with probability :math:`\Phi(e_{ij})`; a category k of stars has
    probability :math:`\Phi(c_k - e_{ij}) - \Phi(c_{k-1} - e_{ij})`, with cut points in place of
    :math:`\mu` (Albert, Chib 1993, "Bayesian analysis of binary and polychotomous response data",
    JASA 88).

    With `relevance` every column of either factor matrix has a mean of zero and a precision of its
    own, :math:`u_{ik} \sim N(0, \alpha_k^{-1})`, :math:`\alpha_k \sim \mathrm{Gamma}(a, b)`, which
    is high where the data do not need the factor (automatic relevance determination; Bishop 1999,
    "Variational principal components", ICANN).

    With `row_attributes` the prior means of the rows' factors and effects depend on what is known
    of a row, :math:`u_i \sim N(\mu_U + B^\top x_i, \Lambda_U^{-1})` and
    :math:`a_i \sim N(\beta^\top x_i, \tau_a^{-1})`, with coefficients
    :math:`b_f \sim N(0, (\lambda\Lambda_U)^{-1})` and
    :math:`\beta_f \sim N(0, (\lambda'\tau_a)^{-1})`, and :math:`\lambda, \lambda'` from Gamma
    priors, for each group of attributes its own (Simm et al. 2017, "Macau: scalable Bayesian
    factorization with high-dimensional side information using MCMC", IEEE MLSP, which has no
    effects); of columns alike.

    For NUTS at small size, simulation and densities; `bmfjax.kernels.ratings.gibbs` samples it at
    any size.

    Parameters
    ----------
    data : (rows, columns) array, optional
        Ratings; 0 and 1 for "probit"; categories from 0 for "ordered". NaN is missing. None: draw
        from the prior predictive (give `shape`). The defaults below are for ratings that spread by
        about one; `pmf_priors_by_scale` has those for others.
    observed : (rows, columns) bool array, optional
        False marks further missing entries.
    rank : int
        Number of factors.
    link : {"identity", "probit", "ordered"}
    categories : int, optional
        For "ordered"; default as many as the data have, which must not be traced then.
    effects : bool
        Whether each row and column has an effect.
    precision : float or numpyro.distributions.Distribution, optional
        For "identity": noise precision, a number fixes it. Default: Gamma(1, 1).
    effect_precision : numpyro.distributions.Gamma, optional
        Prior of the precision of either kind of effects. Default: Gamma(1, 1).
    strength, degrees, scale : float, optional
        :math:`\beta_0` (default: 2), :math:`\nu_0` (the rank) and w (1).
    relevance : numpyro.distributions.Gamma, optional
        Prior of the columns' precisions, in place of these and of the means.
    usage_unit : float
        s: so many times larger than the basis the usage is beforehand. With `relevance` the
        precisions of its columns are Gamma(a, b s^2).
    level_mean, level_scale : float
        Mean and standard deviation of the normal prior of the intercept, or of every cut point
        before they are put in order. Default: 0, and 10 for "identity", 1 for "probit" and 2 for
        "ordered" (`LEVEL_SCALES`).
    row_attributes, column_attributes : (lines, attributes) array or list of these, optional
        What is known of rows and of columns; a list holds groups. They are taken as they are:
        the default of `ridge` suits columns of mean zero, and lines with a squared norm of about
        one.
    ridge : numpyro.distributions.Gamma, optional
        Prior of the precision of the coefficients relative to that of factors or effects. Default:
        Gamma(0.5, 0.01).
    shape : (int, int), optional
        Rows and columns where `data` is None.

    Raises
    ------
    InputError
        For a rank below 1, an unknown link, neither data nor shape, values that the link does not
        have (where the data are traced, as by ``jit_model_args=True``, they are not looked at), or
        "ordered" with neither `categories` nor data that can be counted; for `relevance` beside
        `strength`, `degrees` or `scale` or of attributes, or where it is no Gamma distribution;
        for attributes of another number of lines.

    Notes
    -----
    Sites: `usage` (rows, rank), `usage_mean` (rank,), `usage_precision` (rank, rank), the same of
    `basis` (columns, rank), with `relevance` without means and with `usage_precision` (rank,);
    `row_effect` (rows,), `row_precision` (), `column_effect` (columns,), `column_precision` () with
    effects; `intercept` () or `cutpoints` (categories - 1,); `precision` () where it is learned;
    with `row_attributes` `usage_coefficients` (attributes, rank), `usage_ridge` (groups,),
    `row_coefficients` (attributes,) and `row_ridge` (groups,), and with `column_attributes` the
    same of `basis` and `column`; `data` (rows, columns). Plates: `rows`, `columns`.

    Examples
    --------
    >>> import functools, jax
    >>> from numpyro.infer import Predictive
    >>> model = functools.partial(pmf, rank=2, shape=(4, 3))
    >>> draws = jax.jit(Predictive(model, num_samples=5))(jax.random.key(0))
    >>> draws["usage"].shape, draws["usage_precision"].shape, draws["data"].shape
    ((5, 4, 2), (5, 2, 2), (5, 4, 3))
    """
    whole("rank", rank)
    if data is None and shape is None:
        raise InputError("pmf needs data, or shape=(rows, columns) to simulate some")
    rows, columns = shape if data is None else jnp.shape(data)
    categories = resolve_categories(_concrete(data, observed), link, categories)
    values, seen = split_missing(data, observed)
    wishart = resolve_wishart(strength, degrees, scale, relevance)
    unit = positive("usage_unit", usage_unit)
    of_rows = resolve_attributes("row", row_attributes, rows, relevance)
    of_columns = resolve_attributes("column", column_attributes, columns, relevance)
    level_scale = resolve_level_scale(level_scale, link)
    level = dist.Normal(level_mean, level_scale)
    if link == "ordered":
        cuts = numpyro.sample("cutpoints", OrderedNormal(categories - 1, level_mean, level_scale))
        intercept = 0.0
    else:
        intercept = numpyro.sample("intercept", level)
    ridge = dist.Gamma(*gamma_parameters(RIDGE if ridge is None else ridge, "ridge"))
    usage = _factors("usage", "rows", rows, rank, wishart, relevance, unit, of_rows, ridge)
    basis = _factors("basis", "columns", columns, rank, wishart, relevance, 1.0, of_columns, ridge)
    row_effect = column_effect = None
    if effects:
        prior = dist.Gamma(1.0, 1.0) if effect_precision is None else effect_precision
        row_effect = _effects("row", rows, prior, of_rows, ridge)
        column_effect = _effects("column", columns, prior, of_columns, ridge)
    tau = resolve_precision(precision) if link == "identity" else 1.0
    if isinstance(tau, dist.Distribution):
        tau = numpyro.sample("precision", tau)

    with numpyro.plate("rows", rows, dim=-2) as i, numpyro.plate("columns", columns, dim=-1) as j:
        fit = intercept + usage[i] @ basis[j].T
        if effects:
            fit = fit + row_effect[i][:, None] + column_effect[j]
        if link == "identity":
            noise = dist.Normal(fit, tau**-0.5)
        elif link == "probit":
            noise = dist.Bernoulli(logits=log_ndtr(fit) - log_ndtr(-fit))
        else:
            noise = dist.Categorical(probs=category_probabilities(fit, cuts))
        if seen is not None:
            noise = noise.mask(seen[i][:, j])
        obs = None if values is None else values[i][:, j]
        if link == "ordered" and obs is not None:
            obs = obs.astype(jnp.int32)
        numpyro.sample("data", noise, obs=obs)


def pmf_priors_by_scale(mean: float, sd: float) -> dict:
    """Return priors of `pmf` for ratings with normal noise, of any unit.

    Those of noise, effects and factors are the defaults of `pmf` where ratings spread by two. In
    other units they are these in that unit, so that a factor on the ratings changes nothing but
    units: the fits of c y are c times those of y. The standard deviation is taken as it is: rounded
    to a power of two, priors would be up to 1.4 times as wide or as narrow, depending on the unit.

    Parameters
    ----------
    mean, sd : float
        Those of the observed entries; the standard deviation is positive.

    Returns
    -------
    dict
        For the noise, and for either kind of effects, Gamma(1, (sd/2)^2), which counts like two
        values half as large as the ratings' spread: no part is as large as the whole as a rule,
        and of few lines a larger rate would widen intervals. The usage in units of sd/2 too, and a
        normal prior of the level with this mean, ten times as wide as the ratings.

    Examples
    --------
    >>> found = pmf_priors_by_scale(0.04, 0.02)
    >>> found["level_scale"], found["usage_unit"], float(found["precision"].mean.round())
    (0.2, 0.01, 10000.0)
    """
    part = PART * sd
    prior = dist.Gamma(1.0, part**2)
    return {
        "precision": prior,
        "effect_precision": prior,
        "usage_unit": part,
        "level_mean": mean,
        "level_scale": LEVEL_SCALES["identity"] * sd,
    }


def resolve_level_scale(scale, link) -> float:
    """Return the standard deviation of the level's prior: that given, or the link's own."""
    return LEVEL_SCALES[link] if scale is None else scale


def resolve_categories(values, link, categories):
    """Return the number of categories, after a look at the observed values (None: not known)."""
    one_of("link", link, LINKS)
    if link == "identity":
        return 2
    highest = 0
    if values is not None:
        highest = int(values.max(initial=0))
        if link == "ordered" and categories is None and values.size and values.min() >= 1:
            raise InputError(
                f"the lowest category of data is {values.min():g} and they are counted from 0; "
                "subtract it, or give categories="
            )
        counts = (values == np.round(values)).all() and values.min(initial=0) >= 0
        if not counts or (link == "probit" and highest > 1):
            have = "zeros and ones" if link == "probit" else "categories counted from 0"
            raise InputError(f"data of link {link!r} are {have}; others were given")
    if link == "probit":
        return 2
    if categories is None and values is None:
        raise InputError(
            "pmf needs categories, the number of them, to simulate stars or where data are traced"
        )
    number = highest + 1 if categories is None else categories
    if highest >= number:
        raise InputError(
            f"data hold category {highest} and categories is {number}; they are counted from 0"
        )
    if number < 2:
        raise InputError(f"categories is {number}; give at least 2")
    return number


def _concrete(data, observed):
    """Return the observed values, or None while a program is traced that gets them later."""
    if data is None or any(isinstance(a, jax.core.Tracer) for a in (data, observed)):
        return None
    values = np.asarray(data, np.float64)
    seen = ~np.isnan(values)
    return values[seen if observed is None else seen & np.asarray(observed, bool)]


def category_probabilities(fit, cutpoints):
    """Return the probabilities of the categories of an ordered probit, (..., categories) float."""
    below = ndtr(cutpoints - fit[..., None])
    ends = jnp.zeros((*fit.shape, 1)), jnp.ones((*fit.shape, 1))
    return jnp.diff(jnp.concatenate([ends[0], below, ends[1]], -1), axis=-1)


def resolve_wishart(strength, degrees, scale, relevance=None):
    """Return the parameters of the Normal-Wishart prior, the degrees None for the rank.

    Raises
    ------
    InputError
        For any of them beside `relevance`, or where that is no scalar Gamma distribution.
    """
    if relevance is not None:
        for name, value in (("strength", strength), ("degrees", degrees), ("scale", scale)):
            if value is not None:
                raise InputError(
                    f"{name} is {value}, of the Normal-Wishart prior, and relevance takes its "
                    "place; leave one of them out"
                )
        gamma_parameters(relevance, "relevance")
    return NormalWishart(
        2.0 if strength is None else strength, degrees, 1.0 if scale is None else scale
    )


def resolve_attributes(side, given, size, relevance=None) -> list[np.ndarray]:
    """Return the groups of attributes of a side, each (size, attributes).

    Raises
    ------
    InputError
        For attributes of another number of lines, or beside `relevance`.
    """
    if given is None:
        return []
    if relevance is not None:
        raise InputError(
            f"{side}_attributes go with means of factors, and relevance has none; leave one of "
            "them out"
        )
    groups = [np.asarray(g) for g in (given if isinstance(given, list | tuple) else [given])]
    for group in groups:
        if group.ndim != 2 or group.shape[0] != size or not group.shape[1]:
            raise InputError(
                f"{side}_attributes has shape {group.shape}, and there are {size} {side}s; give "
                f"one line of numbers for each {side}"
            )
    return groups


def _coefficients(name, attributes, ridge):
    """Sample relative precisions; return that of every attribute, and all attributes."""
    weight = numpyro.sample(f"{name}_ridge", ridge.expand([len(attributes)]).to_event(1))
    group = np.repeat(np.arange(len(attributes)), [x.shape[1] for x in attributes])
    return weight[group], np.concatenate(attributes, axis=1)


def _factors(name, plate, size, rank, wishart, relevance, unit, attributes, ridge):
    if relevance is not None:
        shape, rate = gamma_parameters(relevance, "relevance")
        own = dist.Gamma(shape, rate * unit**2)
        precision = numpyro.sample(f"{name}_precision", own.expand([rank]).to_event(1))
        rows = dist.Normal(0.0, precision**-0.5).expand([size, rank]).to_event(2)
        return numpyro.sample(name, rows, infer={"event_dims": [plate, "factor"]})
    strength, scale = wishart.strength, wishart.times(unit).scale
    prior = dist.Wishart(wishart.degrees_of(rank), scale_matrix=scale * jnp.eye(rank))
    precision = numpyro.sample(f"{name}_precision", prior)
    mean = numpyro.sample(
        f"{name}_mean",
        dist.MultivariateNormal(jnp.zeros(rank), precision_matrix=strength * precision),
    )
    if attributes:
        weight, x = _coefficients(name, attributes, ridge)
        own = weight[:, None, None] * precision
        prior = dist.MultivariateNormal(jnp.zeros(rank), precision_matrix=own).to_event(1)
        mean = mean + x @ numpyro.sample(f"{name}_coefficients", prior)
    rows = dist.MultivariateNormal(mean, precision_matrix=precision).expand([size]).to_event(1)
    return numpyro.sample(name, rows, infer={"event_dims": [plate, "factor"]})


def _effects(side, size, prior, attributes, ridge):
    precision, mean = numpyro.sample(f"{side}_precision", prior), 0.0
    if attributes:
        weight, x = _coefficients(side, attributes, ridge)
        own = dist.Normal(0.0, (weight * precision) ** -0.5).to_event(1)
        mean = x @ numpyro.sample(f"{side}_coefficients", own)
    return numpyro.sample(
        f"{side}_effect", dist.Normal(mean, precision**-0.5).expand([size]).to_event(1)
    )
