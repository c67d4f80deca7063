"""How much of the compiler a program of one run gets."""

from unittest import mock

import jax
import pytest

from bmfjax.kernels.numerics.compiling import LEVEL, jit_once


@pytest.mark.parametrize("flags, asked", [("", 1), ("--xla_cpu_use_thunk_runtime=true", 1),
                                          (f"--{LEVEL}=3", None)])  # fmt: skip
def test_a_level_that_the_user_set_stands(flags, asked, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with mock.patch.object(jax, "jit") as jit:
        jit_once(abs)
    options = jit.call_args.kwargs.get("compiler_options", {})
    assert options.get(LEVEL) == asked
