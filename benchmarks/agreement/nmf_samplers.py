"""Ways to sample nonnegative factorisations, as the coverage study compares them.

Each returns draws of the basis matrix A (repetition, draw, rows, rank), in our terms the usage,
thinned to at most `kept`; of every draw half the squared residual over the noise variance, negative
(the log likelihood without its constant); and the seconds it took.
"""

import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.infer import HMC

from benchmarks.agreement.nmf_optimisers import multiplicative_updates, projected_gradient
from bmfjax.infer import ChainRun, NMFGibbs
from bmfjax.models import nmf

#: Multiplicative updates from a solution, for data with the noise added once more.
UPDATES = 30
#: Leapfrog steps, and steps of the warm-up in which their size is found.
LEAPFROGS, HMC_WARMUP = 100, 200
#: Entries of a start that are zero: logarithms, and conditionals, need positive numbers.
FLOOR = 1e-6
#: Where a restart stops, on small sets and on large: a relative projected gradient. The paper does
#: not say where its own stop; these bring the log likelihoods near those of its table 1.
TOLERANCES, LARGE = (5e-3, 3e-4), 1000


class Case(NamedTuple):
    """A problem with its noisy data, how many draws are wanted, and soft walls for it."""

    problem: object
    data: np.ndarray
    noise: float
    repetitions: int
    draws: int
    kept: int
    warmup: int = 0
    walls: tuple[float, ...] | None = None


class Found(NamedTuple):
    """What a sampler found."""

    usage: np.ndarray
    log_likelihood: np.ndarray
    seconds: float
    extra: dict


def every(case) -> int:
    """Draws from one that is kept to the next."""
    return max(1, case.draws // case.kept)


def baseline(case: Case, all_modes: bool, seed: int) -> Found:
    """One Mode and All Modes: a solution, fitted to the data with noise added once more."""
    rng, began = np.random.default_rng(seed), time.perf_counter()
    number = min(case.draws, case.kept)
    fit = jax.jit(jax.vmap(lambda y, x, d: multiplicative_updates(y, x, d, UPDATES)[:2]))
    data = jnp.asarray(case.data)
    usages, values = [], []
    for _ in range(case.repetitions):
        t = rng.random(number) if all_modes else np.zeros(number) + 0.25
        starts = [case.problem.solution(v) for v in t]
        usage, likelihood = [], []
        for block in np.array_split(np.arange(number), max(1, number // 100)):
            noisy = case.data + case.noise * rng.normal(size=(len(block), *case.data.shape))
            y, x = fit(*(jnp.stack([starts[i][s] for i in block]) for s in (0, 1)), noisy)
            likelihood.append(np.asarray(_log_likelihood(y, x, data, case.noise)))
            usage.append(np.asarray(y))
        usages.append(np.concatenate(usage))
        values.append(np.concatenate(likelihood))
    return Found(np.stack(usages), np.stack(values), time.perf_counter() - began, {})


def restarts(case: Case, seed: int) -> Found:
    """Lin's projected gradient from random starts, as many as draws are kept."""
    began = time.perf_counter()
    number, data = min(case.draws, case.kept), jnp.asarray(case.data)
    rank, mean = case.problem.rank, float(case.data.mean())

    tolerance = TOLERANCES[data.size > LARGE]

    def run(key):
        keys = random.split(key)
        scale = 2.0 * jnp.sqrt(mean / rank)
        start = [
            scale * random.uniform(k, (n, rank)) for k, n in zip(keys, data.shape, strict=True)
        ]
        found = projected_gradient(*start, data, tolerance=tolerance)
        return found.usage, _log_likelihood(found.usage, found.basis, data, case.noise)

    # One at a time: together, all would wait in every loop for the slowest.
    run_all = jax.jit(lambda keys: jax.lax.map(run, keys))
    keys = random.split(random.key(seed), (case.repetitions, number))
    usages, values = zip(*(jax.device_get(run_all(k)) for k in keys), strict=True)
    return Found(np.stack(usages), np.stack(values), time.perf_counter() - began, {})


def filtered(found: Found, least: float) -> list[np.ndarray]:
    """Of each repetition the restarts that fit: Frobenius error up to ten times Gibbs' largest."""
    return [u[v >= 100.0 * least] for u, v in zip(found.usage, found.log_likelihood, strict=True)]


def gibbs(case: Case, seed: int, moves=(), walls=None) -> Found:
    """Chains of `NMFGibbs`: without moves the sampler of the paper."""
    model = functools.partial(nmf, rank=case.problem.rank, precision=case.noise**-2)
    bound = NMFGibbs(model, moves=moves, walls=walls).bind(case.data)
    traces = {"residual": 1} | ({} if walls is None else {"replica": 1, "swap_probability": 1})
    run = ChainRun(bound.algorithm, random.key(seed), bound.data, num_chains=case.repetitions,
                   num_warmup=case.warmup, num_samples=case.draws, position=_starts(case, seed),
                   draws={"usage": every(case)}, trace=traces)  # fmt: skip
    began = time.perf_counter()
    run.finish()
    trace = run.trace()
    extra = {n: trace[n] for n in traces if n != "residual"}
    value = -0.5 * np.asarray(trace["residual"][:, case.warmup :], float) / case.noise**2
    return Found(np.asarray(run.draws()["usage"]), value, time.perf_counter() - began, extra)


def hmc(case: Case, seed: int, jacobian: bool = True) -> Found:
    """NumPyro's HMC on the logarithms of the entries, 100 leapfrog steps, step size adapted.

    Without the Jacobian of the logarithm the density is another, which prefers zeros.
    """
    data = jnp.asarray(case.data)
    potential = functools.partial(
        _potential, data=data, precision=case.noise**-2, jacobian=jacobian
    )
    kernel = HMC(
        potential_fn=potential, num_steps=LEAPFROGS, trajectory_length=None, adapt_mass_matrix=False
    )
    start = {n: jnp.log(v) for n, v in _starts(case, seed).items()}
    keys = random.split(random.key(seed), case.repetitions)
    began = time.perf_counter()
    state = kernel.init(keys, HMC_WARMUP, start)
    thin = every(case)

    @jax.jit
    def warm(state):
        return jax.lax.fori_loop(0, HMC_WARMUP, lambda _, s: kernel.sample(s, (), {}), state)

    @jax.jit
    def run(state):
        def several(state, _):
            def one(state, _):
                state = kernel.sample(state, (), {})
                y, x = (jnp.exp(state.z[n]) for n in ("usage", "basis"))
                return state, _log_likelihood(y, x, data, case.noise)

            state, values = jax.lax.scan(one, state, None, length=thin)
            return state, (jnp.exp(state.z["usage"]), values, state.accept_prob)

        return jax.lax.scan(several, state, None, length=case.draws // thin)[1]

    # (kept, chain, ...) and (kept, thin, chain): repetitions first.
    usage, values, accepted = jax.device_get(run(warm(state)))
    usage, values = np.swapaxes(usage, 0, 1), np.moveaxis(values, 2, 0)
    seconds = time.perf_counter() - began
    extra = {"acceptance": float(accepted.mean())}
    return Found(usage, values.reshape(case.repetitions, -1), seconds, extra)


def _potential(logs, data, precision, jacobian):
    """Return the negative log density of `nmf` at the logarithms, up to a constant."""
    usage, basis = jnp.exp(logs["usage"]), jnp.exp(logs["basis"])
    # Through Gram matrices, in a third of the time: no residual is formed.
    fit = jnp.sum(data**2) - 2.0 * jnp.sum((usage.T @ data) * basis.T)
    fit += jnp.sum((usage.T @ usage) * (basis.T @ basis))
    volume = jnp.sum(logs["usage"]) + jnp.sum(logs["basis"]) if jacobian else 0.0
    return 0.5 * precision * fit + jnp.sum(usage) + jnp.sum(basis) - volume


def _starts(case, seed) -> dict:
    """Draws of All Modes, one a repetition."""
    rng = np.random.default_rng(seed)
    factors = [case.problem.solution(t) for t in rng.random(case.repetitions)]
    return {n: np.stack([f[s] for f in factors]) + FLOOR for s, n in enumerate(("usage", "basis"))}


def _log_likelihood(usage, basis, data, noise):
    return -0.5 * jnp.sum((data - usage @ jnp.swapaxes(basis, -1, -2)) ** 2, (-2, -1)) / noise**2
