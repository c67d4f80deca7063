"""Processes that were forked from one in which JAX runs are told so, and do not wait for ever."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

#: Forks, and lets the child do something; a child that waits for ever is ended by an alarm.
FORK = """
import os, signal, warnings
import numpy as np
import bmfjax, bmfjax.fitting
from bmfjax.infer import ChainRun

def forked(what):
    warnings.simplefilter("ignore")  # of JAX, which warns of every fork
    child = os.fork()
    if not child:
        signal.alarm(600)
        try:
            what()
            print("done", flush=True)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "it waited for ever"

data = np.kron(np.eye(2), np.ones((4, 3)))
"""
USES = (
    "bmfjax.fit(data, 2)",
    "bmfjax.compare_ranks(data, '1:2')",
    "bmfjax.merge('nowhere')",
    "ChainRun(None, None, None, num_samples=1)",
    "bmfjax.optimize.primp(key, bmfjax.BinaryMatrix(data))",
)


def lines_of(code):
    done = subprocess.run(
        [sys.executable, "-c", FORK + code], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fork_is_refused_after_jax_was_used_and_only_then():
    found = lines_of(
        "forked(lambda: jax.numpy.ones(3) + 1)\n".join(["import jax\n", ""])
        + "key = jax.random.key(0)\n"
        + "".join(f"forked(lambda: {use})\n" for use in USES)
        + "forked(lambda: bmfjax.BinaryMatrix(data).density)\n"
    )
    assert found[0] == found[-1] == "done"
    assert len(found) == len(USES) + 2
    for line in found[1:-1]:
        assert line.startswith("InputError this process was forked from one in which JAX runs")
        assert "get_context('spawn')" in line and "loky" in line
