"""How long XLA may take over a program."""

from __future__ import annotations

import os
from collections.abc import Callable

import jax

LEVEL = "xla_backend_optimization_level"


def jit_once(f: Callable) -> Callable:
    """``jax.jit`` of what runs once.

    On a CPU, programs that draw random numbers spend most of their compilation in LLVM's later
    passes, which one run does not give back. A level of the user's own in XLA_FLAGS stands.
    """
    if jax.default_backend() != "cpu" or LEVEL in os.environ.get("XLA_FLAGS", ""):
        return jax.jit(f)
    return jax.jit(f, compiler_options={LEVEL: 1})
