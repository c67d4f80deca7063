"""The arguments with which a NumPyro model of this package is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable


def arguments_of(function: Callable, model: Callable, args: tuple, kwargs: dict) -> dict | None:
    """Arguments of `function` where `model` is that function, plain or partial.

    Parameters
    ----------
    function : callable
        A model of this package.
    model : callable
        What the user gave.
    args, kwargs
        What the model is called with.

    Returns
    -------
    dict or None
        All arguments by name, defaults included; None for any other model.

    Examples
    --------
    >>> def model(data, *, rank=1): ...
    >>> arguments_of(model, functools.partial(model, rank=3), ("data",), {})
    {'data': 'data', 'rank': 3}
    >>> arguments_of(model, print, (), {}) is None
    True
    """
    while isinstance(model, functools.partial):
        args, kwargs = (*model.args, *args), {**model.keywords, **kwargs}
        model = model.func
    if model is not function:
        return None
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
