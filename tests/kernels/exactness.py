"""Whether an algorithm on the relaxed density leaves the posterior invariant, exactly: three ways.

`uniform_scores` of one conditional, `rank_one_posterior` of a tiny matrix, and `simulator` for
Geweke's joint distribution test and for calibration, from the strictest to the most general.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax import lax, random
from numpyro import handlers
from numpyro.infer.util import log_density as numpyro_log_density

from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.relaxed.density import RelaxedDensity
from bmfjax.models import relaxed_bmf

SITES = ("usage", "basis", "precision", "rate")


def fast_jit(f, level=0, **options):
    """``jax.jit`` that compiles in a third of the time; for what is computed, not for its speed."""
    return jax.jit(f, compiler_options=_fast_options(level), **options)


@functools.cache
def _fast_options(level):
    """Less of LLVM, and XLA's older emitters where this version knows the options."""
    options = {"xla_backend_optimization_level": level}
    for more in (
        {"xla_cpu_parallel_codegen_split_count": 1},
        {"xla_cpu_use_fusion_emitters": False},
    ):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda x: x, compiler_options=options | more)(0.0)
            options |= more
    return options


def model_log_joint(model, values, sites):
    """Log joint density of a NumPyro model of `values`: one program, not one per operation."""
    return fast_jit(lambda s: numpyro_log_density(model, (values,), {}, s)[0])(sites)


class Problem(NamedTuple):
    """A model of matrices of one shape with the same cells missing.

    `draw_joint(key)` gives position and values, `data(values)` is as samplers hold them, and
    `simulate(key, position)` makes new data, of the relaxed model where it is None.
    """

    draw_joint: Callable
    data: Callable
    density: RelaxedDensity
    simulate: Callable | None = None


def new_problem(observed, **options) -> Problem:
    """Problem of `relaxed_bmf` with these options; `observed` (rows, columns) bool."""
    shape = observed.shape
    model = functools.partial(relaxed_bmf, **options)
    template = matrix_data(np.where(observed, 0.0, np.nan))
    arguments = relaxed_arguments(model, (np.zeros(shape),), {})

    def draw_joint(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=shape)
        return {n: trace[n]["value"] for n in SITES if n in trace}, trace["data"]["value"]

    def data(values):
        values = jnp.where(observed, values, 0.0)
        return template._replace(values=values, transposed=values.T)

    return Problem(draw_joint, data, relaxed_density(arguments))


# ---- chains that know what they should find ----------------------------------------------------


def simulator(problem, make_algorithm, statistics, *, num_chains, num_draws, thin):
    """A compiled ``run(key, redraw, *faults) -> (truth, draws)``: (chain, [draw,] statistic).

    ``make_algorithm(density, *faults)`` takes traced faults, so that right and wrong copies share
    a program; ``statistics(position, data)`` are taken every `thin` steps. Without `redraw` a chain
    starts at a draw from the prior and keeps the data of another, the truth; with it, it starts at
    the truth and its data are drawn anew after every draw.
    """

    joint = fast_jit(jax.vmap(problem.draw_joint))
    renew = problem.simulate or functools.partial(simulate, problem.density)

    def one(key, start, values, redraw, *faults):
        algorithm = make_algorithm(problem.density, *faults)
        key_init, key_run = random.split(key)

        def body(carry, key):
            state, values = carry
            key_steps, key_data, key_init = random.split(key, 3)
            data = problem.data(values)

            def step(state, key):
                state, info = algorithm.step(key, state, data)
                return state, algorithm.observe(state, info)

            state, seen = lax.scan(step, state, random.split(key_steps, thin))
            position = {n: seen[n][-1] for n in start}
            fresh = renew(key_data, position)
            values = jnp.where(redraw, fresh, values)
            data = problem.data(values)
            # A state may hold what depends on the data.
            state = choose(redraw, algorithm.init(key_init, position, data), state)
            return (state, values), statistics(position, data)

        state = algorithm.init(key_init, start, problem.data(values))
        return lax.scan(body, (state, values), random.split(key_run, num_draws))[1]

    @fast_jit
    def chains(keys, truth, other, values, redraw, *faults):
        def each(key, truth, other, values):
            start = choose(redraw, truth, other)
            draws = one(key, start, values, redraw, *faults)
            return statistics(truth, problem.data(values)), draws

        return jax.vmap(each)(keys, truth, other, values)

    def run(key, redraw, *faults):
        keys = random.split(key, (3, num_chains))
        truth, values = joint(keys[0])
        other, _ = joint(keys[1])
        return jax.tree.map(np.asarray, chains(keys[2], truth, other, values, redraw, *faults))

    return run


def choose(first, a, b):
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)


def simulate(density, key, position):
    """New data of the complete matrix, given the position."""
    fit = position["usage"] @ position["basis"].T
    tau = density.noise_precision(position)
    return fit + random.normal(key, fit.shape, fit.dtype) / jnp.sqrt(tau)


class WrongPrecision(RelaxedDensity):
    """A density whose conditionals of the factors take `factor` times the noise precision."""

    factor = 1.0

    def noise_precision(self, position):
        return self.factor * super().noise_precision(position)


def broken(density, slope_sign, precision_factor):
    """The density with a slope of the basis' prior and a precision as a faulty sampler has them."""
    slope, curvature = density.basis.quadratic
    basis = density.basis._replace(quadratic=(slope_sign * slope, curvature))
    wrong = type("Wrong", (WrongPrecision,), {"factor": precision_factor})
    return wrong(*density._replace(basis=basis))


# ---- one conditional ---------------------------------------------------------------------------


def bounded(s, high):
    """x in [0, high] of a coordinate in (0, 1), and the log of the derivative up to a constant.

    In this coordinate densities are finite that are infinite at a bound.
    """
    if high == float("inf"):
        return (s / (1.0 - s)) ** 2, np.log(s) - 3.0 * np.log1p(-s)
    return high * np.sin(0.5 * np.pi * s) ** 2, np.log(np.sin(np.pi * s))


def coordinate(x, high):
    """The inverse of `bounded`."""
    if high == float("inf"):
        return np.sqrt(x) / (1.0 + np.sqrt(x))
    return np.arcsin(np.sqrt(x / high)) / (0.5 * np.pi)


def uniform_scores(log_density, draws, high, grid=200):
    """P(X <= x) of `draws` by quadrature on [0, high]: uniform if they have the density.

    ``log_density(x)`` of `x` (grid, 1) is (grid,) or (grid, draw), where each draw has its own.
    """
    edges = np.linspace(0.0, 1.0, grid + 1)
    x, jacobian = bounded(0.5 * (edges[1:] + edges[:-1])[:, None], high)
    logs = np.broadcast_to(log_density(x) + jacobian, (grid, len(draws)))
    mass = np.cumsum(np.exp(logs - logs.max(0)), axis=0)
    mass = np.concatenate([np.zeros((1, len(draws))), mass]) / mass[-1]
    place = coordinate(np.asarray(draws, float), high) * grid
    below = np.minimum(place.astype(int), grid - 1)
    every = np.arange(len(draws))
    return mass[below, every] + (place - below) * (mass[below + 1, every] - mass[below, every])


def entry_scores(draws, other, values, weight, log_prior, place, high):
    """`uniform_scores` of the entry at `place` given the rest of its row, written out in float64.

    `draws` (draw, m, rank) are of one factor matrix, `other` (n, rank) is the other one, `values`
    (m, n) has NaN where missing, and `weight` is precision times inverse temperature.
    """
    row, k = place
    seen = ~np.isnan(values[row])
    other = np.asarray(other, float)[seen]
    rest = np.array(draws[:, row], float)
    rest[:, k] = 0.0
    residual = values[row, seen] - rest @ other.T  # (draw, n)

    def log_density(x):
        change = x[..., None] * other[:, k]  # (grid, 1, n)
        square = ((residual - change) ** 2).sum(-1) if len(other) else 0.0
        return -0.5 * weight * square + log_prior(x)

    return uniform_scores(log_density, draws[:, row, k], high)


def pearson_p_value(tables):
    """Of Pearson's chi-square of all tables together, each its counts and those expected."""
    statistic = freedom = 0.0
    for counts, expected in tables:
        if counts[expected == 0].any():  # what is impossible
            return 0.0
        rare = expected < 5.0  # counted together
        groups = [(counts[~rare], expected[~rare]), (counts[rare].sum(), expected[rare].sum())]
        for seen, mean in groups:
            if np.sum(mean) > 1.0:
                statistic += np.sum((seen - mean) ** 2 / mean)
                freedom += np.size(mean)
        freedom -= 1.0
    return scipy.stats.chi2.sf(statistic, freedom)


# ---- the whole posterior of a tiny matrix ------------------------------------------------------


def rank_one_posterior(values, usage_prior, basis_prior, precision, nodes=16, tau_nodes=48):
    """Means and mean squares of entries and of the precision at rank 1, by quadrature in float64.

    Given the usage and the precision the columns are independent: each is an integral over one
    basis entry, for every point of a grid of usages, `nodes` to the power rows. The priors are log
    densities that are smooth on [0, 1], and `precision` a number or shape and rate of its Gamma.
    """
    rows, columns = values.shape
    seen = ~np.isnan(values)
    filled = np.where(seen, values, 0.0)
    points, weights = np.polynomial.legendre.leggauss(nodes)
    points, weights = 0.5 * (points + 1.0), 0.5 * weights
    usage = np.stack([g.ravel() for g in np.meshgrid(*[points] * rows)])  # (rows, point)
    log_weight = np.sum(
        [np.log(g.ravel()) for g in np.meshgrid(*[weights] * rows)], axis=0
    ) + usage_prior(usage).sum(0)
    square = np.einsum("ip,ij->jp", usage**2, seen.astype(float))
    cross = np.einsum("ip,ij->jp", usage, filled)
    basis_weight = weights * np.exp(basis_prior(points))

    if np.ndim(precision) == 0:
        taus, log_tau_weight = np.array([precision]), np.zeros(1)
    else:
        shape, rate = precision
        # In log tau, where posteriors are near normal; far wider than any here.
        t, w = np.polynomial.legendre.leggauss(tau_nodes)
        taus = np.exp(5.0 * t - 1.0 + np.log(shape / rate))
        log_tau_weight = np.log(w) + shape * np.log(taus) - rate * taus

    total, moments = [], []
    for tau, log_w in zip(taus, log_tau_weight, strict=True):
        # (column, point) integrals over the basis entry of 1, x and x^2.
        integrals = np.empty((3, columns, usage.shape[1]))
        for j in range(columns):
            exponent = tau * (np.outer(cross[j], points) - 0.5 * np.outer(square[j], points**2))
            terms = np.exp(exponent) * basis_weight
            integrals[:, j] = [terms.sum(1), terms @ points, terms @ points**2]
        constant = log_w + 0.5 * seen.sum() * np.log(tau) - 0.5 * tau * (filled**2).sum()
        mass = np.exp(constant + log_weight + np.log(integrals[0]).sum(0))
        total.append(mass.sum())
        x = integrals[1:] / integrals[0]  # (2, column, point)
        y = np.stack([usage, usage**2])
        moments.append(np.einsum("p,mip,mjp->mij", mass, y, x))
    evidence = np.sum(total)
    return {
        "reconstruction": np.sum(moments, axis=0) / evidence,
        "precision": np.array([np.dot(total, taus), np.dot(total, taus**2)]) / evidence,
    }


def moment_scores(draws, moments):
    """Z-scores of the mean and of the square about the exact mean, and effective sizes."""
    from bmfjax.diagnostics import ess_bulk, mcse_mean

    mean, square = moments
    draws = np.asarray(draws, float)
    spread = (draws - mean) ** 2
    scores = np.stack(
        [
            (draws.mean((0, 1)) - mean) / mcse_mean(draws),
            (spread.mean((0, 1)) - (square - mean**2)) / mcse_mean(spread),
        ]
    )
    return scores, ess_bulk(draws)
