"""Any algorithm with its data as a NumPyro kernel."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro import handlers
from numpyro.infer.initialization import init_to_sample
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.watch import watch
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.tempering import annealed, parallel_tempering


class BoundAlgorithm(NamedTuple):
    """An algorithm with the data that it samples for."""

    algorithm: Algorithm
    data: Any
    # Between the coordinates in which sites move and the model's own.
    constrain: Callable[[dict], dict] = dict
    unconstrain: Callable[[dict], dict] = dict
    window: int = 1  # steps that one draw takes
    windows: Mapping[str, int] = MappingProxyType({})  # iterates that it averages, by site
    caution: str = ""  # what a user should be told once
    exact: bool = True  # whether draws are from the posterior, of a sampler that can be exact
    #: ``refresh(inner, data)``: the state with what it holds of the data and of conditioned sites.
    refresh: Callable[[Any, Any], Any] = lambda inner, data: inner


class KernelState(NamedTuple):
    """State under NumPyro's MCMC; fields and statistics are names for `extra_fields`."""

    sample: dict
    potential_energy: jax.Array  # (), minus the log joint density
    statistics: dict  # read as fields too: `state.residual`
    i: jax.Array  # () int, draws so far
    inner: Any  # the algorithm's own state
    rng_key: jax.Array

    def __getattr__(self, name):
        if name in self.statistics:
            return self.statistics[name]
        raise AttributeError(f"the state has no field {name!r}")


class AlgorithmKernel(MCMCKernel):
    """Base of the kernels: from `bind`, everything that NumPyro's MCMC asks for.

    A subclass sets `_model` and what is declared below, and defines `bind`.
    """

    sample_field = "sample"
    _model: Callable
    _sample_fn = None  # MCMC runs `init` again on resume while this is None.
    #: Sites of a draw and statistics that MCMC always collects, as the algorithm observes them.
    _sites: tuple[str, ...] = ()
    _statistics: tuple[str, ...] = ()
    #: For refusals: the model that this kernel samples, and what samples other models.
    _samples = _instead = ""
    #: Powers of the likelihood of tempered copies, steps in which these are placed, and annealed
    #: first steps from the lowest power.
    _ladder, _num_adapt, _num_anneal, _lowest = None, 0, 0, 1.0
    #: Whether the start is compiled as one program: worth it where it passes over the data often.
    _compiles_start = False
    #: What to do where a draw is not finite, of kernels whose steps may leave for infinity.
    _remedy = ""

    @property
    def model(self):
        """The NumPyro model."""
        return self._model

    @property
    def default_fields(self):
        """Fields that MCMC always collects."""
        return ("sample", "potential_energy", *self._statistics)

    def get_diagnostics_str(self, state):
        """Return a few words for the progress bar."""
        return f"log joint {-float(state.potential_energy):.4g}"

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`."""
        raise NotImplementedError  # of the subclass

    def _checked(self, arguments: dict | None) -> dict:
        """Refuse arguments of another model (None), or without data."""
        name = type(self).__name__
        if arguments is None:
            raise InputError(
                f"{name} samples {self._samples} and no other model; use {self._instead} for a "
                "model of your own"
            )
        if arguments["data"] is None:
            raise InputError(f"{name} needs data, and the model was called without")
        return arguments

    def _tempered(self, algorithm, likelihood=None, **options) -> Algorithm:
        """Anneal and temper as the user asked; the options are those of `parallel_tempering`."""
        if self._ladder is not None:
            algorithm = parallel_tempering(
                algorithm, likelihood, self._ladder, num_adapt=self._num_adapt, **options
            )
        if self._num_anneal:
            algorithm = annealed(algorithm, self._num_anneal, lowest=self._lowest)
        return algorithm

    def _set_ladder(self, inverse_temperatures, **needed) -> None:
        """Keep the ladder; refuse options that are `needed` for nothing without one."""
        self._ladder = None if inverse_temperatures is None else tuple(inverse_temperatures)
        for name, value in needed.items():
            if whole(name, value, 0) and self._ladder is None:
                raise InputError(
                    f"{name} is {value}, and there is one temperature; give inverse_temperatures, "
                    f"or leave {name} out"
                )
        self._num_adapt = needed["num_adapt"]

    def _drawn(self, algorithm, inner, info) -> tuple[dict, jax.Array, dict]:
        """Return the draw, its log joint density and its statistics."""
        seen = algorithm.observe(inner, info)
        sample = {n: seen[n] for n in self._sites if n in seen}
        return sample, seen["log_joint"], {n: seen[n] for n in self._statistics}

    def _state(self, algorithm, inner, info, i, key) -> KernelState:
        sample, log_joint, statistics = self._drawn(algorithm, inner, info)
        return KernelState(sample, -log_joint, statistics, i, inner, key)

    def __getstate__(self):
        return {**self.__dict__, "_sample_fn": None}

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        """Return the first state; see `numpyro.infer.mcmc.MCMCKernel`."""
        first = self._num_anneal + self._num_adapt
        if first > num_warmup:
            raise InputError(
                f"the first {first} steps are annealed or adapt the temperatures, and num_warmup "
                f"is {num_warmup}; give a longer warm-up, or a smaller num_anneal or num_adapt"
            )
        bound = self.bind(*model_args, **(model_kwargs or {}))
        start = bound.algorithm.init
        if self._compiles_start:
            start = compiled(start, bound.data)

        def one(key, params):
            key, key_init = random.split(key)
            position = None
            if params is not None:
                position = bound.unconstrain({n: jnp.asarray(v) for n, v in params.items()})
            inner = start(key_init, position, bound.data)
            # The data closed over: a model's arguments need not all be arrays.
            step = functools.partial(bound.algorithm.step, data=bound.data)
            info = jax.eval_shape(step, key, inner)[1]
            zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), info)
            return self._state(bound.algorithm, inner, zeros, jnp.zeros((), jnp.int32), key)

        self._sample_fn = self.sample
        if is_prng_key(rng_key):
            return one(rng_key, init_params)
        # One chain after the other where a start takes much linear algebra: LAPACK runs on threads
        # of its own, and calls for several chains at once can wait for each other for ever.
        over = jax.lax.map if self._compiles_start else _over_chains
        return over(lambda given: one(*given), (rng_key, init_params))

    def sample(self, state, model_args, model_kwargs):
        """Take one step: the next draw."""
        bound = self.bind(*model_args, **(model_kwargs or {}))

        def one(state):
            key, key_step = random.split(state.rng_key)
            inner, info = bound.algorithm.step(key_step, state.inner, bound.data)
            return self._state(bound.algorithm, inner, info, state.i + 1, key)

        found = one(state) if is_prng_key(state.rng_key) else jax.vmap(one)(state)
        if self._remedy:
            watch(
                type(self).__name__, self._remedy, state.sample, found.sample, found.i,
                may_stay=self._may_stay(found), doubts=self._doubts(found),
            )  # fmt: skip
        return found

    def _may_stay(self, state) -> jax.Array | bool:
        """Tell whether the draw may be the one before it."""
        return False

    def _doubts(self, state) -> dict[str, jax.Array]:
        """Return what there is to be told of draws, and whether it is true of this one."""
        return {}

    def refresh(self, state, model_args, model_kwargs):
        """Return the state after other blocks of a composite `Gibbs` of NumPyro have moved."""
        bound = self.bind(*model_args, **(model_kwargs or {}))
        return state._replace(inner=bound.refresh(state.inner, bound.data))

    def wrap_model(self, wrapper):
        """Return a copy on the wrapped model, as a composite `Gibbs` of NumPyro asks for it."""
        kernel = copy.copy(self)
        kernel._model, kernel._sample_fn = wrapper(self._model), None
        return kernel

    def postprocess_fn(self, args, kwargs):
        """Return the map from a draw to the model's own space."""
        return self.bind(*args, **(kwargs or {})).constrain


def _over_chains(function: Callable, given):
    """Apply a function to all chains at once."""
    return jax.vmap(function)(given)


def as_jax(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Return model arguments with JAX arrays for NumPy's, which traced indices cannot index."""
    with jax.ensure_compile_time_eval():  # constants, also where a program is being traced
        return jax.tree.map(
            lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype.kind in "biuf" else x,
            (args, kwargs),
        )


def compiled(function: Callable, data) -> Callable:
    """Return ``function(key, position, data)`` as one program, for data of this form.

    Arrays of `data` are its arguments, so that it holds no copy of them. What else there is, which
    a model may take, is part of it.
    """
    leaves, form = jax.tree.flatten(data)
    is_array = [isinstance(leaf, jax.Array) for leaf in leaves]

    @jax.jit
    def program(key, position, arrays):
        rest = iter(arrays)
        return function(
            key,
            position,
            form.unflatten(
                next(rest) if a else leaf for a, leaf in zip(is_array, leaves, strict=True)
            ),
        )

    def run(key, position, data):
        given = zip(is_array, jax.tree.leaves(data), strict=True)
        return program(key, position, [leaf for a, leaf in given if a])

    return run


def arguments_of(function: Callable, model: Callable, args: tuple, kwargs: dict) -> dict | None:
    """Return the arguments of `function` by name, defaults included; None if `model` is another.

    `model` may be a partial of the function.
    """
    while isinstance(model, functools.partial):
        args, kwargs = (*model.args, *args), {**model.keywords, **kwargs}
        model = model.func
    if model is not function:
        return None
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


@full_precision
def model_trace(
    model: Callable, key: jax.Array, args: tuple, kwargs: dict, strategy: Callable = init_to_sample
) -> dict:
    """Trace a model with its latent sites at a start that a strategy of NumPyro chooses."""
    start = handlers.substitute(handlers.seed(model, key), substitute_fn=strategy)
    return handlers.trace(start).get_trace(*args, **kwargs)


def latent_values(
    model: Callable, key: jax.Array, args: tuple, kwargs: dict, strategy: Callable = init_to_sample
) -> dict:
    """Return the latent values of `model_trace`."""
    trace = model_trace(model, key, args, kwargs, strategy)
    return {
        n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]
    }
