"""Log densities of some observations of a NumPyro model with plates, under every draw of a run."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpyro import handlers
from numpyro.infer import log_likelihood
from numpyro.infer.mcmc import MCMC

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import model_trace


def plate_log_likelihood(mcmc: MCMC, most: int) -> Callable:
    """Return the function of `bmfjax.log_likelihood_fn` for a finished run.

    The observed site is that of the observations' name. Its axes are named by its plates, and the
    coordinates along them are the plates' indices, as `bmfjax.to_arviz` makes them: the model runs
    with these indices. A call forms at most `most` numbers.
    """
    model, args, kwargs = mcmc.sampler.model, mcmc._args, mcmc._kwargs
    trace = model_trace(model, jax.random.key(0), args, kwargs)
    plates = {n: s["args"][0] for n, s in trace.items() if s["type"] == "plate"}

    def log_lik_fn(observed, data):
        if observed.name not in trace:
            raise InputError(
                f"the model has no site {observed.name!r}; give observations of one of its sites"
            )
        indices = {axis: _places(observed, axis, plates) for axis in observed.dims}
        posterior = data.posterior
        axes = [axis for axis in ("chain", "draw") if axis in posterior.dims]
        draws = {n: v.transpose(*axes, ...).values for n, v in posterior.data_vars.items()}
        number = int(np.prod([posterior.sizes[axis] for axis in axes]))
        if number * observed.size > most:
            raise InputError(
                f"{observed.size:,} observations under {number:,} draws are "
                f"{number * observed.size:,} log densities, and {most:,} are formed at once; ask "
                "for fewer observations"
            )
        some = handlers.substitute(model, data=indices)
        found = log_likelihood(some, draws, *args, batch_ndims=len(axes), **kwargs)
        coords = {axis: posterior[axis].values for axis in axes} | dict(observed.coords)
        return xarray.DataArray(
            np.asarray(found[observed.name], float),
            dims=(*axes, *observed.dims), coords=coords, name=observed.name,
        )  # fmt: skip

    return log_lik_fn


def _places(observed, axis, plates) -> jax.Array:
    """Return the indices (observation,) of a plate that the observations are of."""
    places = observed[axis].values
    if axis not in plates or places.dtype.kind not in "iu":
        raise InputError(
            f"axis {axis!r} of {observed.name!r} is no plate of the model with its indices as "
            "coordinates; take observations from bmfjax.to_arviz(mcmc), without coords="
        )
    return jnp.asarray(places)
