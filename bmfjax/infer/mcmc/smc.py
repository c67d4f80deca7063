"""Sequential Monte Carlo for the OrMachine: log evidence, and draws from all modes by weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import arguments_of
from bmfjax.infer.mcmc.ormachine import boolean_data, boolean_density, matrix_of
from bmfjax.kernels.base import Algorithm, State
from bmfjax.kernels.boolean.collapsed import collapsed_ormachine, draw_summed, log_marginal
from bmfjax.kernels.boolean.density import draw_whole_prior
from bmfjax.kernels.boolean.gibbs import OrMachineInfo, observed_state, state_info
from bmfjax.kernels.boolean.line_states import merge_lines, sides_of
from bmfjax.kernels.boolean.moves.exchange import exchange_move
from bmfjax.kernels.numerics.compiling import jit_once
from bmfjax.kernels.smc import BLOCK, smc
from bmfjax.models.ormachine import ormachine as ormachine_model
from bmfjax.specs.boolean import SMC

#: Steps of the walk of every site of rates and densities in a sweep: hot ones mix slowly.
WALKS = 6
#: Moves of whole factors in a sweep.
WHOLE_FACTORS = ("xor",) * 4 + ("rebirth",) * 2
NO_INFO = OrMachineInfo(None, None, None, {})


class BoundSMC(NamedTuple):
    """An algorithm with its data, and how its particles are observed."""

    algorithm: Algorithm
    data: object
    #: ``particles(key, state) -> dict`` of arrays (run, particle, ...): the draws, `log_joint`,
    #: `errors` and `dispersion`.
    particles: Callable


class OrMachineSMC:
    r"""Sequential Monte Carlo sampler of `bmfjax.models.ormachine` with a small rank.

    Particles are the bits of the shorter factor matrix, the densities and the flip rates, with
    the longer factor matrix summed out (`bmfjax.kernels.boolean.collapsed`). They go from the
    prior to the posterior through temperatures that the population chooses
    (`bmfjax.kernels.smc`). It is no Markov chain, and runs under `bmfjax.fit` alone, not under
    NumPyro's MCMC.

    Parameters
    ----------
    model : callable
        `bmfjax.models.ormachine`, by ``functools.partial`` with its arguments.
    num_particles : int
        Particles of a run, a multiple of `chain_length`. All of them are draws.
    chain_length : int
        Particles that descend from one of the temperature before, by one sweep after the other.
    ess : float
        Share of the particles that the effective sample keeps from one temperature to the next,
        above 0 and below 1. More makes more temperatures.

    Raises
    ------
    InputError
        For numbers out of range.

    References
    ----------
    Dau, Chopin (2022), "Waste-free sequential Monte Carlo", JRSS B 84(1).

    Examples
    --------
    >>> import functools, bmfjax
    >>> model = functools.partial(bmfjax.models.ormachine, rank=1)
    >>> sampler = OrMachineSMC(model, num_particles=64, chain_length=4)
    >>> bound = sampler.bind(np.kron(np.eye(2), np.ones((4, 3))))
    >>> population = jax.eval_shape(bound.algorithm.init, random.key(0), None, bound.data)
    >>> population.log_likelihood.shape
    (16, 4)
    """

    def __init__(
        self,
        model: Callable,
        *,
        num_particles: int = 1024,
        chain_length: int = 16,
        ess: float = 0.5,
    ):
        self._model, self.num_particles = model, num_particles
        options = SMC(num_particles=num_particles, chain_length=chain_length, ess=ess)
        self._options = options.fields()

    def bind(self, *args, **kwargs) -> BoundSMC:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`."""
        arguments = arguments_of(ormachine_model, self._model, args, kwargs)
        if arguments is None:
            raise InputError("OrMachineSMC samples bmfjax.models.ormachine and no other model")
        data, observed, shape = matrix_of(arguments)
        density, given = boolean_density(shape, **arguments)
        if density.usage.presence is not None:
            raise InputError(
                "presence_prior says that some factors may not be there, and OrMachineSMC takes "
                "all to be; take OrMachineGibbs"
            )
        packed = boolean_data(data, observed)._replace(**given)
        packed = merge_lines(packed, sides_of(density.shape, "longer"))
        moves = WHOLE_FACTORS if density.rank > 1 else ()
        collapsed = collapsed_ormachine(density, walks=WALKS, moves=moves, from_prior=False)

        def init(key, position, data):
            return State(draw_whole_prior(key, density, data))

        exchange = exchange_move(density, collapsed=True) if density.rank > 1 else None
        algorithm = smc(
            collapsed._replace(init=init), log_marginal(density),
            population_move=exchange, **self._options,
        )  # fmt: skip
        describe, complete = state_info(density), draw_summed(density)

        def observed(key, state):
            # Those summed out are no part of a particle, and hold what its last move left.
            state = State(complete(key, state.position, packed)[0])
            return observed_state(state, describe(NO_INFO, state, packed))

        def particles(key, state):
            # Chain after chain, so that draws that are next to each other are relatives.
            flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[3:]), state.particles)
            runs, count = len(state.filled), self.num_particles
            every = random.split(key, runs * count), flat
            seen = jit_once(lambda a: lax.map(lambda b: observed(*b), a, batch_size=BLOCK))(every)
            return {n: np.asarray(a).reshape(runs, count, *a.shape[1:]) for n, a in seen.items()}

        return BoundSMC(algorithm, packed, particles)
