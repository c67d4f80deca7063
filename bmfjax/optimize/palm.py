r"""Proximal alternating linearised minimisation of a function of two factor matrices.

.. math:: \min_{Y, X} H(Y, X) + \phi(Y) + \phi(X)

with a smooth H and a penalty that has a proximal operator (Bolte, Sabach, Teboulle 2014, "Proximal
alternating linearized minimization for nonconvex and nonsmooth problems", Mathematical Programming
146). Each factor in turn takes a gradient step of H, as long as the Lipschitz modulus of its
partial gradient allows, and then the proximal operator. The objective never increases. For the
squared error the modulus is the spectral norm of the Gram matrix of the other factor, which is
only rank x rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.forks import check_fork
from bmfjax.kernels.numerics.precision import full_precision

#: The published factor of the moduli; any number above one does.
GAMMA = 1.00001
#: Least modulus: a factor whose partner is zero would take an infinite step.
LEAST_MODULUS = 1e-4


class Factors(NamedTuple):
    """Two factor matrices.

    Attributes
    ----------
    usage : array, (rows, rank), float
    basis : array, (columns, rank), float
    """

    usage: jax.Array
    basis: jax.Array


class Matrix(NamedTuple):
    """A matrix to factorise, and which of its entries count.

    Attributes
    ----------
    values : array, (rows, columns), float
        Zero where not observed.
    observed : array, (rows, columns), float, or None
        One where observed, else zero. None means that all are.
    """

    values: jax.Array
    observed: jax.Array | None = None


def check_key(key) -> None:
    """Refuse what is no random key: a seed alone is none."""
    check_fork()
    is_array = isinstance(key, jax.Array)
    if is_array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
        return
    if not (is_array and key.dtype == jnp.uint32 and key.shape == (2,)):  # as before typed keys
        what = f"an array of shape {key.shape} and type {key.dtype}" if is_array else repr(key)
        raise InputError(f"key is {what}; give a random key, such as jax.random.key(0)")


def arrays_of(data: BinaryMatrix):
    """Return the ones of a matrix, bool, and which entries count, bool or None where all do."""
    if not isinstance(data, BinaryMatrix):
        kind = type(data).__name__
        raise InputError(f"data is {kind}; give a BinaryMatrix, such as bmfjax.load returns")
    ones = np.asarray(data.dense(bool, missing=False))
    return ones, None if not data.num_missing else np.asarray(data.observed(), bool)


def matrix_of(ones, counted) -> Matrix:
    """Return what :func:`arrays_of` returned as single precision numbers on the device."""
    observed = None if counted is None else np.array(counted, np.float32)
    return jax.device_put(Matrix(np.array(ones, np.float32), observed))


class Smooth(NamedTuple):
    """The smooth part H of an objective, and the Lipschitz moduli of its partial gradients.

    Attributes
    ----------
    value : callable
        ``value(factors, matrix)`` returns H.
    usage_modulus : callable
        ``usage_modulus(basis, matrix)`` bounds how fast the gradient in usage changes.
    basis_modulus : callable
        ``basis_modulus(usage, matrix)`` bounds how fast the gradient in basis changes.
    """

    value: Callable
    usage_modulus: Callable
    basis_modulus: Callable


class Penalty(NamedTuple):
    """The part of an objective that has a proximal operator; it may change with time.

    Attributes
    ----------
    value : callable
        ``value(x, time)`` returns the penalty of each entry of an array; `time` is the number of
        steps taken.
    prox : callable
        ``prox(x, step, time)`` returns the proximal operator of `step` times the penalty.
    """

    value: Callable
    prox: Callable


class PalmState(NamedTuple):
    """What PALM remembers between steps.

    Attributes
    ----------
    previous : Factors
        The factors one step before, for the inertia.
    time : array, (), int32
        Steps taken.
    """

    previous: Factors
    time: jax.Array


class Palm(NamedTuple):
    """The optimiser: three pure functions, the first two in the shape of optax.

    Attributes
    ----------
    init : callable
        ``init(factors)`` returns the state.
    update : callable
        ``update(factors, state, matrix)`` returns the new factors and the new state. optax would
        return differences; added in floating point they can leave the bounds of the factors.
    objective : callable
        ``objective(factors, state, matrix)`` returns the objective, with the penalty of the last
        step.
    """

    init: Callable
    update: Callable
    objective: Callable


class Minimum(NamedTuple):
    """Where :func:`minimise` stopped.

    Attributes
    ----------
    factors : Factors
    value : array, ()
        The objective.
    steps : array, (), int32
    """

    factors: Factors
    value: jax.Array
    steps: jax.Array


def palm(smooth: Smooth, penalty: Penalty, *, gamma: float = GAMMA, inertia: float = 0.0) -> Palm:
    """Return the optimiser of a smooth function of two factors with a penalty on their entries.

    Parameters
    ----------
    smooth : Smooth
    penalty : Penalty
    gamma : float
        A step is one over `gamma` times the modulus. Above one the objective never increases.
    inertia : float
        Share of the last step by which the point of the gradient lies ahead (Pock, Sabach 2016);
        with any of it the objective may increase.

    Returns
    -------
    Palm

    References
    ----------
    Bolte, Sabach, Teboulle (2014). Pock, Sabach (2016), "Inertial proximal alternating linearized
    minimization (iPALM) for nonconvex and nonsmooth problems", SIAM Journal on Imaging Sciences 9.

    Examples
    --------
    >>> from bmfjax.optimize.proximal import binary_penalty, prox_binary
    >>> pull = Penalty(lambda x, _: binary_penalty(x), lambda x, step, _: prox_binary(x, step))
    >>> optimiser = palm(SQUARED_ERROR, pull)
    >>> factors = Factors(jnp.array([[0.9], [0.2]]), jnp.array([[0.8], [0.7]]))
    >>> matrix = Matrix(jnp.array([[1.0, 1.0], [0.0, 0.0]]))
    >>> state, update = optimiser.init(factors), jax.jit(optimiser.update)
    >>> for _ in range(3):
    ...     factors, state = update(factors, state, matrix)
    >>> factors.usage[:, 0].tolist(), factors.basis[:, 0].tolist()
    ([1.0, 0.0], [1.0, 1.0])
    """

    def step(mine, before, modulus, gradient, time):
        ahead = mine + inertia * (mine - before)
        size = 1.0 / (gamma * jnp.maximum(modulus, LEAST_MODULUS))
        return penalty.prox(ahead - size * gradient(ahead), size, time)

    def init(factors: Factors) -> PalmState:
        return PalmState(Factors(*factors), jnp.int32(0))

    def update(factors: Factors, state: PalmState, matrix: Matrix) -> tuple[Factors, PalmState]:
        (usage, basis), before, time = factors, state.previous, state.time
        in_usage = jax.grad(lambda y: smooth.value(Factors(y, basis), matrix))
        modulus = smooth.usage_modulus(basis, matrix)
        new_usage = step(usage, before.usage, modulus, in_usage, time)
        in_basis = jax.grad(lambda x: smooth.value(Factors(new_usage, x), matrix))
        modulus = smooth.basis_modulus(new_usage, matrix)
        new_basis = step(basis, before.basis, modulus, in_basis, time)
        return Factors(new_usage, new_basis), PalmState(Factors(usage, basis), time + 1)

    def objective(factors: Factors, state: PalmState, matrix: Matrix):
        time = jnp.maximum(state.time - 1, 0)
        return smooth.value(factors, matrix) + sum(jnp.sum(penalty.value(f, time)) for f in factors)

    return Palm(init, update, objective)


@functools.partial(jax.jit, static_argnames=("optimiser", "max_steps", "window"))
def minimise(
    optimiser: Palm,
    factors: Factors,
    matrix: Matrix,
    *,
    max_steps: int = 50_000,
    tolerance: float = 0.005,
    window: int = 500,
) -> Minimum:
    """Run an optimiser until the objective changes little, in one compiled program.

    Restarts run at once under ``jax.vmap`` over `factors`.

    Parameters
    ----------
    optimiser : Palm
    factors : Factors
        The start.
    matrix : Matrix
    max_steps : int
        Steps at most, rounded up to whole windows.
    tolerance : float
        It stops where the objective changes by at most so much a step, on average over a window.
    window : int
        Steps between two looks at the objective.

    Returns
    -------
    Minimum

    Examples
    --------
    >>> from bmfjax.optimize import binary_penalty, prox_binary
    >>> pull = Penalty(lambda x, _: binary_penalty(x), lambda x, step, _: prox_binary(x, step))
    >>> factors = Factors(jnp.array([[0.9], [0.2]]), jnp.array([[0.8], [0.7]]))
    >>> matrix = Matrix(jnp.array([[1.0, 1.0], [0.0, 0.0]]))
    >>> found = minimise(palm(SQUARED_ERROR, pull), factors, matrix, window=5)
    >>> found.factors.usage[:, 0].tolist(), float(found.value), int(found.steps)
    ([1.0, 0.0], 0.0, 10)
    """

    def advance(carry):
        factors, state, _, value = carry
        factors, state = lax.fori_loop(
            0, window, lambda _, both: optimiser.update(*both, matrix), (factors, state)
        )
        return factors, state, value, optimiser.objective(factors, state, matrix)

    def unfinished(carry):
        _, state, before, value = carry
        # A difference of two infinite values is none to stop at.
        settled = jnp.abs(before - value) <= tolerance * window
        return (state.time < max_steps) & ~(settled & (state.time > 0))

    state = optimiser.init(factors)
    infinite = jnp.full((), jnp.inf, factors.usage.dtype)
    carry = (Factors(*factors), state, infinite, infinite)
    factors, state, _, value = lax.while_loop(unfinished, advance, carry)
    return Minimum(factors, value, state.time)


@full_precision
def spectral_norm(factor):
    """Return the largest eigenvalue of the Gram matrix of a factor: (rank, rank), and cheap."""
    return jnp.linalg.eigvalsh(factor.T @ factor)[-1]


@full_precision
def squared_error(factors: Factors, matrix: Matrix):
    r"""Return half the squared error over the observed entries, :math:`\tfrac12\|D - YX^T\|_F^2`.

    For a complete matrix it is written by Gram matrices, so that its gradient costs one product
    with the matrix and never forms :math:`YX^T`.
    """
    usage, basis = factors
    if matrix.observed is not None:
        # The gradient is masked with the residual, and the modulus of all entries still bounds it.
        return 0.5 * jnp.sum((matrix.observed * (matrix.values - usage @ basis.T)) ** 2)
    cross = jnp.sum((matrix.values.T @ usage) * basis)
    product = jnp.sum((usage.T @ usage) * (basis.T @ basis))
    return 0.5 * jnp.sum(matrix.values**2) - cross + 0.5 * product


def norm_of_other(other, matrix):
    """Return the modulus of the squared error in one factor, from the other."""
    return spectral_norm(other)


#: Half the squared error and its moduli.
SQUARED_ERROR = Smooth(squared_error, norm_of_other, norm_of_other)
