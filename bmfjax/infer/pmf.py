"""Gibbs sampling of `pmf` as a NumPyro kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from bmfjax.data.errors import InputError
from bmfjax.infer.arguments import arguments_of
from bmfjax.infer.kernel import AlgorithmKernel, BoundAlgorithm
from bmfjax.kernels.entry_blocks import entry_blocks
from bmfjax.kernels.normal_wishart import NormalWishart
from bmfjax.kernels.pmf import pmf_gibbs
from bmfjax.kernels.pmf_density import PMFDensity
from bmfjax.models.pmf import pmf, resolve_categories, resolve_level_scale
from bmfjax.models.relaxed import resolve_precision


class PMFGibbsKernelState(NamedTuple):
    """State under NumPyro's MCMC; the fields can be asked for as `extra_fields`.

    Attributes
    ----------
    sample : dict
    potential_energy : () float
        Minus the log joint density.
    residual : () float
        Sum of squared residuals; 0 for the probit links.
    i : () int
        Number of draws so far.
    inner : PMFState
    rng_key : jax.Array
    """

    sample: dict
    potential_energy: jax.Array
    residual: jax.Array
    i: jax.Array
    inner: Any
    rng_key: jax.Array


class PMFGibbs(AlgorithmKernel):
    r"""Exact sampler of `pmf`: a vector of every row, then of every column, from its conditional.

    Salakhutdinov, Mnih (2008), and Albert, Chib (1993) for the probit links; see
    `bmfjax.kernels.pmf`. The observed cells alone cost time and memory.

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

    def __init__(self, model: Callable):
        self._model = model

    @property
    def default_fields(self):
        """Fields that MCMC always collects."""
        return ("sample", "potential_energy", "residual")

    def get_diagnostics_str(self, state):
        """A few words for the progress bar."""
        return f"log joint {-float(state.potential_energy):.4g}"

    def _state(self, algorithm, inner, info, i, key):
        return PMFGibbsKernelState(
            sample=dict(inner.position),
            potential_energy=-info.log_joint,
            residual=info.residual,
            i=i,
            inner=inner,
            rng_key=key,
        )

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """The algorithm for these model arguments, with its data; see `AlgorithmKernel.bind`."""
        arguments = arguments_of(pmf, self._model, args, kwargs)
        if arguments is None:
            raise InputError(
                "PMFGibbs samples bmfjax.models.pmf and no other model; use NumPyro's NUTS for a "
                "model of your own"
            )
        if arguments["data"] is None:
            raise InputError("PMFGibbs needs data, and pmf was called without")
        values = np.array(arguments["data"], np.float64)
        seen = ~np.isnan(values)
        if arguments["observed"] is not None:
            seen &= np.asarray(arguments["observed"], bool)
        rows, columns = np.nonzero(seen)
        density = pmf_density(arguments, values[seen])
        held = 2.0 * values[seen] - 1.0 if density.link == "probit" else values[seen]
        return BoundAlgorithm(pmf_gibbs(density), entry_blocks(rows, columns, held, values.shape))


def pmf_density(arguments: dict, values) -> PMFDensity:
    """The density of `pmf` called with these arguments, for these observed values.

    Raises
    ------
    InputError
        For priors that are not Gamma, or values that the link does not have.
    """
    link = arguments["link"]
    categories = resolve_categories(values, link, arguments["categories"])
    precision = resolve_precision(arguments["precision"])
    learned = isinstance(precision, dist.Distribution)
    return PMFDensity(
        arguments["rank"],
        link,
        categories=categories,
        effects=arguments["effects"],
        precision=None if learned else precision,
        precision_gamma=_gamma(precision, "precision") if learned else (1.0, 1.0),
        effect_gamma=_gamma(arguments["effect_precision"], "effect_precision"),
        factors=NormalWishart(arguments["strength"], arguments["degrees"], arguments["scale"]),
        level=(arguments["level_mean"], resolve_level_scale(arguments["level_scale"], link)),
    )


def _gamma(prior, name) -> tuple[float, float]:
    if prior is None:
        return 1.0, 1.0
    if not isinstance(prior, dist.Gamma) or prior.batch_shape:
        raise InputError(
            f"the prior of {name} is {type(prior).__name__}; it is drawn from its Gamma "
            "conditional: give a scalar Gamma prior"
        )
    return float(prior.concentration), float(prior.rate)
