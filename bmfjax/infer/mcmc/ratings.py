"""Gibbs sampling of `pmf` as a NumPyro kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm, arguments_of
from bmfjax.kernels.ratings.attributes import decomposed
from bmfjax.kernels.ratings.density import FACTORS, PMFDensity
from bmfjax.kernels.ratings.entries import entry_blocks
from bmfjax.kernels.ratings.gibbs import pmf_gibbs
from bmfjax.models.pmf import (
    pmf,
    resolve_attributes,
    resolve_categories,
    resolve_level_scale,
    resolve_wishart,
)
from bmfjax.models.relaxed import gamma_parameters, resolve_precision
from bmfjax.specs.ratings import RIDGE


class PMFGibbs(AlgorithmKernel):
    r"""Exact sampler of `pmf`: a vector of every row, then of every column, from its conditional.

    Salakhutdinov, Mnih (2008), and Albert, Chib (1993) for the probit links; see
    `bmfjax.kernels.ratings.gibbs`. Only observed entries cost time and memory.

    Parameters
    ----------
    model : callable
        `bmfjax.models.pmf`, by ``functools.partial`` with its arguments. Priors of a learned
        noise precision and of the effects' precisions must be Gamma distributions.

    Raises
    ------
    InputError
        For another model or other priors, or without data; at the first run.

    Examples
    --------
    >>> import functools, bmfjax
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> stars = random.randint(random.key(0), (30, 20), 1, 6).astype(float)
    >>> model = functools.partial(bmfjax.models.pmf, rank=2)
    >>> mcmc = MCMC(PMFGibbs(model), num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(1), stars)
    >>> mcmc.get_samples()["basis"].shape
    (10, 20, 2)
    """

    _sites = (*PMFDensity(1, attributes=tuple(FACTORS)).sites, "cutpoints")
    _statistics = ("residual",)
    _samples, _instead = "bmfjax.models.pmf", "NumPyro's NUTS"

    def __init__(self, model: Callable):
        self._model = model

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`."""
        arguments = self._checked(arguments_of(pmf, self._model, args, kwargs))
        values = np.array(arguments["data"], np.float64)
        seen = ~np.isnan(values)
        if arguments["observed"] is not None:
            seen &= np.asarray(arguments["observed"], bool)
        rows, columns = np.nonzero(seen)
        categories = resolve_categories(values[seen], arguments["link"], arguments["categories"])
        own = {n: v for n, v in arguments.items() if n not in ("data", "observed", "shape")}
        sides = {
            side: resolve_attributes(side, own.pop(f"{side}_attributes"), size, own["relevance"])
            for side, size in zip(FACTORS, values.shape, strict=True)
        }
        known = tuple(side for side, groups in sides.items() if groups)
        density = pmf_density(**own | {"categories": categories}, attributes=known)
        held = 2.0 * values[seen] - 1.0 if density.link == "probit" else values[seen]
        blocks = entry_blocks(rows, columns, held, values.shape)
        groups = {f"{side}_attributes": tuple(map(decomposed, sides[side])) for side in known}
        return BoundAlgorithm(pmf_gibbs(density), blocks._replace(**groups))


def pmf_density(
    *,
    rank,
    link="identity",
    categories=2,
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
    attributes=(),
    ridge=None,
) -> PMFDensity:
    """Return the density of `pmf` called with these arguments.

    Gamma priors may also be given as (shape, rate); `categories` must be known. `attributes` are
    the sides that have any.
    """
    fixed, gamma = None, (1.0, 1.0)
    if link == "identity":
        prior = precision if isinstance(precision, Sequence) else resolve_precision(precision)
        if isinstance(prior, float):
            fixed = prior
        else:
            gamma = gamma_parameters(prior, "precision")
    return PMFDensity(
        rank,
        link,
        categories=categories,
        effects=effects,
        precision=fixed,
        precision_gamma=gamma,
        effect_gamma=gamma_parameters(effect_precision, "effect_precision"),
        factors=resolve_wishart(strength, degrees, scale, relevance),
        relevance=None if relevance is None else gamma_parameters(relevance, "relevance"),
        usage_unit=usage_unit,
        level=(level_mean, resolve_level_scale(level_scale, link)),
        attributes=attributes,
        ridge=gamma_parameters(RIDGE if ridge is None else ridge, "ridge"),
    )
