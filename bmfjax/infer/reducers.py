r"""Streaming reducers: what is kept of a chain when its draws are not.

Each is a triple of pure functions that the driver runs inside its compiled
loop. Sums are compensated (Neumaier): 2 million float32 draws keep the accuracy
of float64, and the result does not depend on how the run was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bmfjax.kernels.numerics.precision import full_precision


class Reducer(NamedTuple):
    """A streaming summary of the observed arrays.

    Attributes
    ----------
    init : callable
        ``init(observed) -> carry``, from a dict of arrays of the right shapes.
    update : callable
        ``update(carry, observed) -> carry``, once per draw.
    value : callable
        ``value(carry) -> dict`` of NumPy arrays, on the host.
    """

    init: Callable[[dict], Any]
    update: Callable[[Any, dict], Any]
    value: Callable[[Any], dict]


def _add(total, x):
    """Neumaier's compensated sum of ``(sum, compensation)`` and x."""
    s, c = total
    t = s + x
    lost = jnp.where(jnp.abs(s) >= jnp.abs(x), (s - t) + x, (x - t) + s)
    return t, c + lost


def _exact(total):
    return np.asarray(total[0], np.float64) + np.asarray(total[1], np.float64)


def _zero(x):
    return jnp.zeros_like(x), jnp.zeros_like(x)


def moments(*names: str) -> Reducer:
    """Return the mean and variance of the named arrays.

    Parameters
    ----------
    *names : str
        Keys of what the algorithm observes.

    Returns
    -------
    Reducer
        Its value is ``{name: {"mean": ..., "variance": ...}}`` in float64, the
        variance with divisor n - 1 (NaN for fewer than two draws).

    Examples
    --------
    >>> r = moments("x")
    >>> carry = r.init({"x": jnp.zeros(2)})
    >>> for v in ([1.0, 5.0], [3.0, 5.0]):
    ...     carry = r.update(carry, {"x": jnp.array(v)})
    >>> r.value(carry)["x"]["mean"].tolist(), r.value(carry)["x"]["variance"].tolist()
    ([2.0, 5.0], [2.0, 0.0])
    """

    def init(observed):
        zero = {n: _zero(observed[n]) for n in names}
        origin = {n: jnp.zeros_like(observed[n]) for n in names}
        return jnp.zeros((), jnp.int32), origin, zero, zero

    def update(carry, observed):
        count, origin, first, second = carry
        # Deviations from the first draw: squares of large values would cancel.
        origin = {n: jnp.where(count == 0, observed[n], origin[n]) for n in names}
        d = {n: observed[n] - origin[n] for n in names}
        first = {n: _add(first[n], d[n]) for n in names}
        second = {n: _add(second[n], d[n] * d[n]) for n in names}
        return count + 1, origin, first, second

    def value(carry):
        count, origin, first, second = carry
        n = np.asarray(count, np.float64)
        out = {}
        for name in names:
            s1, s2 = _exact(first[name]), _exact(second[name])
            k = n.reshape(n.shape + (1,) * (s1.ndim - n.ndim))
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = np.asarray(origin[name], np.float64) + s1 / k
                variance = np.where(k > 1, np.maximum(s2 - s1 * s1 / k, 0.0) / (k - 1), np.nan)
            out[name] = {"mean": mean, "variance": variance}
        return out

    return Reducer(init, update, value)


def histogram(*names: str, bins: int = 50, low: float = 0.0, high: float = 1.0) -> Reducer:
    """Marginal histogram of every element of the named arrays.

    Parameters
    ----------
    *names : str
    bins : int
        50 in Gonsior 2019, section 3.3.4.
    low, high : float
        Range; values outside are counted in the first or last bin.

    Returns
    -------
    Reducer
        Its value is ``{name: counts}``, uint32 of shape ``(..., bins)``.

    Examples
    --------
    >>> r = histogram("x", bins=2)
    >>> carry = r.update(r.init({"x": jnp.zeros(2)}), {"x": jnp.array([0.1, 1.0])})
    >>> r.value(carry)["x"].tolist()
    [[1, 0], [0, 1]]
    """

    def init(observed):
        return {n: jnp.zeros((observed[n].size, bins), jnp.uint32) for n in names}, {
            n: jnp.zeros(observed[n].shape, bool) for n in names
        }

    def update(carry, observed):
        counts, like = carry

        def one(count, x):
            x = x.reshape(-1)
            bin_of = jnp.clip(((x - low) / (high - low) * bins).astype(jnp.int32), 0, bins - 1)
            return count.at[jnp.arange(x.size), bin_of].add(jnp.uint32(1))

        return {n: one(counts[n], observed[n]) for n in names}, like

    def value(carry):
        counts, like = carry
        return {n: np.asarray(counts[n]).reshape((*like[n].shape, bins)) for n in names}

    return Reducer(init, update, value)


def product_mean(*, threshold: float | None = None) -> Reducer:
    r"""Return the mean over draws of the reconstruction :math:`YX^\top`, or of an event of it.

    Parameters
    ----------
    threshold : float, optional
        Average the event :math:`y_i^\top x_j \ge` `threshold` in place of the
        value: with 1/2 the probability that the relaxed entry is a one.

    Returns
    -------
    Reducer
        Its value is ``{"product": (rows, columns) float64}``. Needs memory for one
        matrix, and one matrix product a draw.

    Examples
    --------
    >>> r = product_mean(threshold=0.5)
    >>> draw = {"usage": jnp.array([[1.0], [0.2]]), "basis": jnp.array([[1.0]])}
    >>> r.value(r.update(r.init(draw), draw))["product"].tolist()
    [[1.0], [0.0]]
    """

    @full_precision
    def of(observed):
        p = observed["usage"] @ observed["basis"].T
        return p if threshold is None else (p >= threshold).astype(p.dtype)

    def init(observed):
        zeros = jnp.zeros_like(of(observed))
        return jnp.zeros((), jnp.int32), (zeros, zeros)

    def update(carry, observed):
        return carry[0] + 1, _add(carry[1], of(observed))

    def value(carry):
        n = np.asarray(carry[0], np.float64)
        with np.errstate(invalid="ignore"):  # NaN before the first draw
            return {"product": _exact(carry[1]) / n[..., None, None]}

    return Reducer(init, update, value)
