"""What every sampler of this package is: a pair of pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp


class Algorithm(NamedTuple):
    """A Markov chain as two pure functions.

    Attributes
    ----------
    init : callable
        ``init(key, position, data) -> state``. `position` is a dict of arrays or
        None for a random start; `key` a typed key of ``jax.random.key``.
    step : callable
        ``step(key, state, data, inverse_temperature=1.0) -> (state, info)``.
        The state holds what the next step needs, the info what it does not.
        The likelihood is raised to the power `inverse_temperature`.
    observe : callable
        ``observe(state, info) -> dict`` of the named arrays that make up one
        draw and its statistics, for reducers and recorders.
    serial : bool
        Whether every chain has a program of its own on a CPU: where what a step makes fills the
        cache, two chains side by side take longer than one after the other.

    Examples
    --------
    >>> import jax
    >>> walk = Algorithm(
    ...     init=lambda key, position, data: position,
    ...     step=lambda key, x, data, inverse_temperature=1.0: (x + jax.random.normal(key), None),
    ...     observe=lambda state, info: {"x": state},
    ... )
    >>> state, info = walk.step(jax.random.key(0), walk.init(None, 0.0, None), None)
    >>> bool(state != 0.0)
    True
    """

    init: Callable[..., Any]
    step: Callable[..., tuple[Any, Any]]
    observe: Callable[[Any, Any], dict]
    serial: bool = False


class State(NamedTuple):
    """State of a sampler that needs nothing but its position, a dict of arrays."""

    position: dict


def init_from(initial: Callable) -> Callable:
    """Return the `init` of an algorithm on `State` that starts from ``initial(key, data)``."""

    def init(key, position, data):
        start = initial(key, data) if position is None else position
        return State({n: jnp.asarray(v) for n, v in start.items()})

    return init
