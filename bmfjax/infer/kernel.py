"""Any algorithm with its data as a NumPyro kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from bmfjax.kernels.base import Algorithm


class BoundAlgorithm(NamedTuple):
    """An algorithm with the data that it samples for.

    Attributes
    ----------
    algorithm : Algorithm
    data : pytree
        What the algorithm takes as data.
    constrain, unconstrain : callable
        Between the coordinates in which sites move and the model's own.
    window : int
        Number of iterates that one draw averages.
    """

    algorithm: Algorithm
    data: Any
    constrain: Callable[[dict], dict] = dict
    unconstrain: Callable[[dict], dict] = dict
    window: int = 1


class AlgorithmKernel(MCMCKernel):
    """Base of the kernels: from `bind`, everything that NumPyro's MCMC asks for.

    A subclass sets `_model`, and defines `bind`, `_state` and `default_fields`.
    """

    sample_field = "sample"
    _model: Callable
    _sample_fn = None  # MCMC runs `init` again on resume while this is None.

    @property
    def model(self):
        """The NumPyro model."""
        return self._model

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """The algorithm for these model arguments, with its data, for `ChainRun`.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model.

        Returns
        -------
        BoundAlgorithm
        """
        raise NotImplementedError  # of the subclass

    def _state(self, algorithm, inner, info, i, key) -> NamedTuple:
        """NumPyro's state from the algorithm's."""
        raise NotImplementedError  # of the subclass

    def __getstate__(self):
        return {**self.__dict__, "_sample_fn": None}

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        """First state; see `numpyro.infer.mcmc.MCMCKernel`."""
        bound = self.bind(*model_args, **(model_kwargs or {}))

        def one(key, params):
            key, key_init = random.split(key)
            position = None
            if params is not None:
                position = bound.unconstrain({n: jnp.asarray(v) for n, v in params.items()})
            inner = bound.algorithm.init(key_init, position, bound.data)
            # The data closed over: a model's arguments need not all be arrays.
            step = functools.partial(bound.algorithm.step, data=bound.data)
            info = jax.eval_shape(step, key, inner)[1]
            zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), info)
            return self._state(bound.algorithm, inner, zeros, jnp.zeros((), jnp.int32), key)

        self._sample_fn = self.sample
        if is_prng_key(rng_key):
            return one(rng_key, init_params)
        if init_params is None:
            return jax.vmap(lambda k: one(k, None))(rng_key)
        return jax.vmap(one)(rng_key, init_params)

    def sample(self, state, model_args, model_kwargs):
        """One step: the next draw."""
        bound = self.bind(*model_args, **(model_kwargs or {}))

        def one(state):
            key, key_step = random.split(state.rng_key)
            inner, info = bound.algorithm.step(key_step, state.inner, bound.data)
            return self._state(bound.algorithm, inner, info, state.i + 1, key)

        return one(state) if is_prng_key(state.rng_key) else jax.vmap(one)(state)

    def postprocess_fn(self, args, kwargs):
        """Map a draw to the model's own space."""
        return self.bind(*args, **(kwargs or {})).constrain
