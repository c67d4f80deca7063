"""Processes that were forked from one in which JAX runs.

They inherit the locks of its threads and not the threads, so that JAX waits for ever.
"""

from __future__ import annotations

import os
import sys

from bmfjax.errors import InputError

_FORKED = {"while JAX ran": False}


def check_fork() -> None:
    """Refuse to use JAX where it would wait for ever.

    A process that was forked from one in which JAX ran would.

    Examples
    --------
    >>> check_fork()
    """
    if _FORKED["while JAX ran"]:
        raise InputError(
            "this process was forked from one in which JAX runs, and JAX would wait here for ever; "
            "start processes by multiprocessing.get_context('spawn'), or by joblib's loky, its "
            "default"
        )


def _after_fork() -> None:
    # JAX has no public way to tell whether it runs that does not start it.
    bridge = sys.modules.get("jax._src.xla_bridge")
    _FORKED["while JAX ran"] |= bool(getattr(bridge, "_backends", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
