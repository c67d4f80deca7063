"""Samplers of the variants of the OrMachine as NumPyro kernels: effects, layers, one-hot, Hamming.

Each has the posterior of one model of `bmfjax.models`, by the algorithm of the same name in
`bmfjax.kernels.variants`. `bind` observes the sites of the model, for NumPyro; `bind_packed`
observes packed words, for `bmfjax.fit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bmfjax.data import BinaryMatrix
from bmfjax.data.checks import one_of, whole
from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm, arguments_of
from bmfjax.infer.mcmc.ormachine import boolean_data, boolean_density, matrix_of
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean.bits import MAX_JOINT, gibbs, joint, metropolis
from bmfjax.kernels.boolean.words import pack_last_axis, unpack_last_axis
from bmfjax.kernels.variants import deep, effects, hamming, one_hot
from bmfjax.kernels.variants.observed_entries import ObservedEntries, observed_entries
from bmfjax.models.deep_ormachine import deep_ormachine as deep_model
from bmfjax.models.deep_ormachine import of_layers
from bmfjax.models.hamming_machine import hamming_machine as hamming_model
from bmfjax.models.hamming_machine import resolve_dispersion
from bmfjax.models.one_hot import one_hot_machine as one_hot_model
from bmfjax.models.one_hot import resolve_cluster_prior
from bmfjax.models.ormachine_effects import ormachine_effects as effects_model

UPDATES = ("metropolis", "gibbs", "joint")
#: Sweeps in which layers are joined, for each in which one is found alone. Joining too fast ends in
#: wrong modes.
JOINING = 16


class VariantKernel(AlgorithmKernel):
    """Base of the kernels: their model, and their temperatures."""

    #: The model, a function of `bmfjax.models`.
    _function: ClassVar[Callable]
    _statistics = ()

    def __init__(
        self,
        model: Callable,
        *,
        num_anneal: int = 0,
        lowest: float = 0.02,
        inverse_temperatures: Sequence[float] | None = None,
        num_adapt: int = 0,
    ):
        self._model, self._num_anneal, self._lowest = model, num_anneal, lowest
        self._set_ladder(inverse_temperatures, num_adapt=num_adapt)

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`."""
        return self._bound(args, kwargs)[0]

    def bind_packed(self, *args, **kwargs) -> BoundAlgorithm:
        """Return what `bind` does, but observing packed words by the names that a fit has."""
        bound, packed = self._bound(args, kwargs)
        return bound._replace(algorithm=bound.algorithm._replace(observe=packed))

    def _bound(self, args, kwargs) -> tuple[BoundAlgorithm, Callable]:
        """Return what `bind` does, and the `observe` of `bind_packed`."""
        arguments = arguments_of(type(self)._function, self._model, args, kwargs)
        return self._of(self._checked(arguments))

    def _of(self, arguments: dict) -> tuple[BoundAlgorithm, Callable]:
        raise NotImplementedError  # of the subclass

    def _both(self, algorithm, sites: Callable, packed: Callable, likelihood, **options):
        """Temper an algorithm that observes `sites`, and one that observes them `packed`.

        Both are ``(observed) -> observed``.
        """

        def seen_by(named):
            observe = algorithm.observe
            own = algorithm._replace(observe=lambda state, info: named(observe(state, info)))
            return self._tempered(
                own, likelihood, likelihood_of_info=lambda info: info.log_likelihood, **options
            )

        return seen_by(sites), seen_by(packed).observe


def _as_bits(words, size):
    """Return bits (line, factor) of packed words (factor, words)."""
    return unpack_last_axis(words, size).T.astype(jnp.uint8)


def _as_words(bits):
    """Return packed words (factor, words) of bits (line, factor)."""
    return pack_last_axis(jnp.asarray(bits).T > 0.5)


# ---- row and column effects ----------------------------------------------------------------------


class EffectsGibbs(VariantKernel):
    r"""Sampler of `bmfjax.models.ormachine_effects`, over the observed entries only.

    Every draw is a sweep over the bits of both factor matrices, the effects, the levels, the
    precisions and the densities; see `bmfjax.kernels.variants.effects`. The draws are from the
    posterior.

    Parameters
    ----------
    model : callable
        `bmfjax.models.ormachine_effects`, by ``functools.partial`` with its arguments. It is
        called with the rows, columns and values of the observed entries.
    num_anneal : int
        Number of annealed sweeps at the start, in which the power of the likelihood rises from
        `lowest` to one. Annealed sweeps belong to the warm-up.
    lowest : float
        Power of the likelihood at the first sweep.
    inverse_temperatures : sequence of float, optional
        Parallel tempering, as for `TruncatedGibbs`.
    num_adapt : int
        Steps in which the temperatures are adapted, as for `TruncatedGibbs`.

    Examples
    --------
    >>> import functools, bmfjax, jax, numpy as np
    >>> from numpyro.infer import MCMC
    >>> rows, columns = np.divmod(np.arange(80), 8)
    >>> model = functools.partial(bmfjax.models.ormachine_effects, shape=(10, 8), rank=2)
    >>> kernel = bmfjax.infer.EffectsGibbs(model)
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), rows, columns, rows < 5)
    >>> mcmc.get_samples()["row_effect"].shape
    (10, 10)
    """

    _function = staticmethod(effects_model)
    _samples, _instead = "bmfjax.models.ormachine_effects", "IASG"
    _sites = (
        "usage", "basis", "usage_density", "basis_density", "dispersion", "intercept",
        "row_effect", "column_effect", "row_precision", "column_precision",
    )  # fmt: skip

    def _checked(self, arguments):
        if arguments is not None:
            arguments = arguments | {"data": arguments["values"]}
        return super()._checked(arguments)

    def bind_matrix(self, data: BinaryMatrix) -> BoundAlgorithm:
        """Return `bind_packed` of the observed entries of a matrix."""
        i, j = np.nonzero(data.observed())
        return self.bind_packed(i, j, data.dense()[i, j] > 0.5)

    def _of(self, arguments):
        names = ("rows", "columns", "values", "shape", "rank", "effects", "data")
        *places, shape, rank, sides, _ = map(arguments.pop, names)
        precision, density = map(tuple, map(arguments.pop, ("effect_precision", "density")))
        prior = effects.EffectsPrior(precision, density=density, **arguments)
        if any(isinstance(a, jax.core.Tracer) for a in places):
            raise InputError(
                f"{type(self).__name__} sorts the observed entries and needs to know them; leave "
                "jit_model_args out"
            )
        data = observed_entries(*map(np.asarray, places), tuple(shape))
        algorithm = effects.ormachine_effects(rank, effects=sides, prior=prior)

        def describe(info, state: State, data: ObservedEntries, inverse_temperature=1.0):
            likelihood = effects.log_likelihood(state.position, data)
            joint = inverse_temperature * likelihood + effects.log_prior(state.position, prior)
            return info._replace(log_joint=joint, log_likelihood=likelihood)

        def packed(seen):
            return seen | {n: _as_words(seen[n]) for n in ("usage", "basis") if n in seen}

        tempered, observe = self._both(
            algorithm, dict, packed,
            lambda state, data: effects.log_likelihood(state.position, data), describe=describe,
        )  # fmt: skip
        start = functools.partial(effects.position_from, shape=data.shape, effects=sides)
        return BoundAlgorithm(tempered, data, unconstrain=start), observe


# ---- layers --------------------------------------------------------------------------------------


class DeepOrMachineGibbs(VariantKernel):
    r"""Sampler of `bmfjax.models.deep_ormachine` on packed words.

    Every draw is a sweep over all layers, from the data upwards; see
    `bmfjax.kernels.variants.deep`. The draws are from the posterior.

    Parameters
    ----------
    model : callable
        `bmfjax.models.deep_ormachine`, by ``functools.partial`` with its arguments.
    update : {"metropolis", "gibbs", "joint"}
        How bits are drawn, as for `OrMachineGibbs`.
    num_start : int
        Annealed sweeps of each layer alone before the first draw; then 16 times as many of all
        layers, which join slowly (`bmfjax.kernels.variants.deep.greedy_start`). 0: a chain starts
        at a draw from the prior.
    num_anneal, lowest, inverse_temperatures, num_adapt : optional
        As for `EffectsGibbs`. They temper the likelihood of the data alone: the layers above are
        the prior of the first.

    Examples
    --------
    >>> import functools, bmfjax, jax, numpy as np
    >>> from numpyro.infer import MCMC
    >>> model = functools.partial(bmfjax.models.deep_ormachine, ranks=(3, 2))
    >>> kernel = bmfjax.infer.DeepOrMachineGibbs(model, num_start=0)
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), np.kron(np.eye(3), np.ones((5, 4))))
    >>> mcmc.get_samples()["usage_1"].shape, mcmc.get_samples()["basis_2"].shape
    ((10, 15, 3), (10, 3, 2))
    """

    _function = staticmethod(deep_model)
    _samples, _instead = "bmfjax.models.deep_ormachine", "IASG"
    _statistics = ("errors",)

    def __init__(
        self,
        model: Callable,
        *,
        update: str = "metropolis",
        num_start: int = 50,
        num_anneal: int = 0,
        lowest: float = 0.02,
        inverse_temperatures: Sequence[float] | None = None,
        num_adapt: int = 0,
    ):
        super().__init__(
            model, num_anneal=num_anneal, lowest=lowest,
            inverse_temperatures=inverse_temperatures, num_adapt=num_adapt,
        )  # fmt: skip
        one_of("update", update, UPDATES)
        self._update = {"metropolis": metropolis, "gibbs": gibbs}.get(update) or joint(MAX_JOINT)
        self._num_start = whole("num_start", num_start, 0)

    def _drawn(self, algorithm, inner, info):
        # The number of layers, and with it the sites, is that of the model.
        seen = algorithm.observe(inner, info)
        scalars = ("log_joint", "errors", "dispersion", "swap", "replica", "inverse")
        sample = {n: v for n, v in seen.items() if not n.startswith(scalars)}
        return sample, seen["log_joint"], {n: seen[n] for n in self._statistics}

    def _of(self, arguments):
        density, data = deep_density(*matrix_of(arguments), **arguments)
        initial = None
        if self._num_start:
            joining = JOINING * self._num_start
            initial = deep.greedy_start(
                density, self._num_start, num_joining=joining, update=self._update
            )
        algorithm = deep.deep_ormachine(density, update=self._update, initial=initial)
        likelihood = deep.log_likelihood(density)

        def describe(info, state: State, data, inverse_temperature=1.0):
            numbers = range(1, len(density.ranks) + 1)
            errors = tuple(deep.errors_of(density, state.position, data, n)[1] for n in numbers)
            joint = deep.log_joint(density, state.position, data)
            return deep.DeepOrMachineInfo(joint, likelihood(state, data), errors)

        tempered, packed = self._both(
            algorithm, functools.partial(_deep_sites, density),
            functools.partial(_deep_packed, density), likelihood, describe=describe,
        )  # fmt: skip
        start = functools.partial(deep.position_from, density, data)
        return BoundAlgorithm(tempered, data, unconstrain=start), packed


def deep_density(
    matrix, observed, shape, *, ranks, usage, basis, flip_rate, num_rates
) -> tuple[deep.DeepDensity, deep.PackedData]:
    """Return the density of `deep_ormachine` called with these arguments, and its data."""
    rows, columns = shape
    ranks = deep.layer_ranks(ranks)
    basis_priors = of_layers(basis, "basis", len(ranks))
    rates = of_layers(flip_rate, "flip_rate", len(ranks))
    layers, odds = [], []
    for number, (below, rank) in enumerate(zip((columns, *ranks), ranks, strict=False), 1):
        is_top = number == len(ranks)
        one, given = boolean_density(
            (rows, below), rank=rank, usage=usage if is_top else None, basis=basis_priors[number],
            flip_rate=rates[number], num_rates=num_rates,
        )  # fmt: skip
        layers.append(one)
        odds.append(given)
    density = deep.DeepDensity(
        shape, ranks, layers[-1].usage,
        tuple(one.basis for one in layers), tuple(one.flip_rate for one in layers),
    )  # fmt: skip
    data = boolean_data(matrix, observed)
    return density, data._replace(
        usage_log_odds=odds[-1].get("usage_log_odds"),
        basis_log_odds=tuple(given.get("basis_log_odds") for given in odds),
    )


def _deep_sites(density, seen) -> dict:
    """Return what NumPyro sees: the sites of `bmfjax.models.deep_ormachine`."""
    sizes = (density.shape[1], *density.ranks)
    bits = {}
    for number in range(1, len(density.ranks) + 1):
        bits[f"usage_{number}"] = _as_bits(seen[f"usage_{number}"], density.shape[0])
        bits[f"basis_{number}"] = _as_bits(seen[f"basis_{number}"], sizes[number - 1])
    return dict(seen) | bits


def _deep_packed(density, seen) -> dict:
    """Return what a fit sees: the first layer by the names of an OrMachine."""
    first = {n: f"{n}_1" for n in ("usage", "basis", "flip_rate", "basis_density")}
    found = {n: seen[name] for n, name in first.items() if name in seen}
    rest = {n: v for n, v in seen.items() if n not in first.values()}
    if "usage_density" in rest:
        rest[f"usage_density_{len(density.ranks)}"] = rest.pop("usage_density")
    return rest | found


# ---- one factor a row ----------------------------------------------------------------------------


class OneHotGibbs(VariantKernel):
    r"""Sampler of `bmfjax.models.one_hot_machine` on packed words.

    Every draw is a sweep over the code of each row, the bits of the codes, the weights, the
    densities and the flip rates; see `bmfjax.kernels.variants.one_hot`. The draws are from the
    posterior.

    Parameters
    ----------
    model : callable
        `bmfjax.models.one_hot_machine`, by ``functools.partial`` with its arguments.
    num_anneal, lowest, inverse_temperatures, num_adapt : optional
        As for `EffectsGibbs`.

    Examples
    --------
    >>> import functools, bmfjax, jax, numpy as np
    >>> from numpyro.infer import MCMC
    >>> model = functools.partial(bmfjax.models.one_hot_machine, rank=2)
    >>> kernel = bmfjax.infer.OneHotGibbs(model)
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), np.kron(np.eye(2), np.ones((5, 4))))
    >>> mcmc.get_samples()["cluster"].shape, mcmc.get_samples()["weights"].shape
    ((10, 10), (10, 2))
    """

    _function = staticmethod(one_hot_model)
    _samples, _instead = "bmfjax.models.one_hot_machine", "IASG"
    _sites = ("cluster", "basis", "flip_rate", "weights", "basis_density")
    _statistics = ("errors",)

    def _of(self, arguments):
        density, data = one_hot_density(*matrix_of(arguments), **arguments)
        columns = density.shape[1]
        likelihood = one_hot.log_likelihood(density)

        def describe(info, state: State, data, inverse_temperature=1.0):
            return one_hot.info_of(density, state.position, data)

        def sites(seen):
            return seen | {"basis": _as_bits(seen["basis"], columns)}

        def packed(seen):
            return seen | {"usage": one_hot.members(seen["cluster"], density.rank)}

        tempered, observe = self._both(
            one_hot.one_hot_machine(density), sites, packed, likelihood, describe=describe
        )
        start = functools.partial(one_hot.position_from, density, data)
        return BoundAlgorithm(tempered, data, unconstrain=start), observe


def one_hot_density(
    matrix, observed, shape, *, rank, weights, **of_bits
) -> tuple[one_hot.OneHotDensity, one_hot.OneHotData]:
    """Return the density of `one_hot_machine` called with these arguments, and its data."""
    concentration = None
    if weights is None:  # to make a distribution of NumPyro compiles programs
        concentration = (1.0,) * rank
    else:
        weights = resolve_cluster_prior(weights, (shape[0], rank))
        if isinstance(weights, dist.Dirichlet):
            concentration = tuple(np.asarray(weights.concentration, float).tolist())
    one, given = boolean_density(shape, rank=rank, **of_bits)
    density = one_hot.OneHotDensity(shape, rank, concentration, one.basis, one.flip_rate)
    data = boolean_data(matrix, observed)._replace(**given)
    log_weights = None if concentration is not None else one_hot.log_weights_of(weights)
    return density, one_hot.OneHotData(data, log_weights)


# ---- the Hamming machine -------------------------------------------------------------------------


class HammingGibbs(VariantKernel):
    r"""Sampler of `bmfjax.models.hamming_machine` on packed words.

    Every draw is a sweep over the bits of both factor matrices, the densities and the dispersion;
    see `bmfjax.kernels.variants.hamming`. The draws are from the posterior. A chain starts with
    random rows of the data for codes.

    Parameters
    ----------
    model : callable
        `bmfjax.models.hamming_machine`, by ``functools.partial`` with its arguments.
    num_anneal, lowest, inverse_temperatures, num_adapt : optional
        As for `EffectsGibbs`.

    Examples
    --------
    >>> import functools, bmfjax, jax, numpy as np
    >>> from numpyro.infer import MCMC
    >>> model = functools.partial(bmfjax.models.hamming_machine, rank=2)
    >>> kernel = bmfjax.infer.HammingGibbs(model)
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), np.kron(np.eye(2), np.ones((5, 4))))
    >>> mcmc.get_samples()["dispersion"].shape, mcmc.get_samples()["basis"].shape
    ((10,), (10, 8, 2))
    """

    _function = staticmethod(hamming_model)
    _samples, _instead = "bmfjax.models.hamming_machine", "IASG"
    _sites = ("usage", "basis", "dispersion", "usage_density", "basis_density")
    _statistics = ("errors",)

    def _of(self, arguments):
        density, data = hamming_density(*matrix_of(arguments), **arguments)

        def describe(info, state: State, data, inverse_temperature=1.0):
            return hamming.info_of(density, state.position, data)

        def sites(seen):
            bits = zip(("usage", "basis"), density.shape, strict=True)
            return seen | {n: _as_bits(seen[n], size) for n, size in bits}

        algorithm = hamming.hamming_machine(
            density, initial=lambda key, data: hamming.rows_as_codes(key, density, data)
        )
        tempered, observe = self._both(
            algorithm, sites, dict, hamming.log_likelihood(density), describe=describe
        )
        start = functools.partial(hamming.position_from, density, data)
        return BoundAlgorithm(tempered, data, unconstrain=start), observe


def hamming_density(
    matrix, observed, shape, *, rank, usage, basis, dispersion
) -> tuple[hamming.HammingDensity, hamming.PackedData]:
    """Return the density of `hamming_machine` called with these arguments, and its data."""
    strength = hamming.DispersionPrior()
    if dispersion is not None:
        prior = resolve_dispersion(dispersion)
        learned = isinstance(prior, dist.Distribution)
        strength = strength._replace(
            **{"log_prob": prior.log_prob} if learned else {"value": prior}
        )
    one, given = boolean_density(shape, rank=rank, usage=usage, basis=basis)
    data = boolean_data(matrix, observed)._replace(**given)
    density = hamming.HammingDensity(shape, rank, one.usage, one.basis, strength)
    return density, hamming.with_mask(data, shape)
