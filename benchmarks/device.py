"""Where a benchmark runs: the option ``--device`` of every script that runs JAX.

JAX is not imported here: scripts that measure its start, or that measure in processes of their
own, must not load it, nor take the memory of an accelerator, before these do.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

#: What JAX calls the platforms. A CPU stands beside an accelerator, for what runs on the host.
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
_PROBE = "import jax; print(jax.default_backend())"


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options of a script, ``--device`` among them, which holds from then on.

    Call it before anything runs in JAX. Processes that the script starts run on the device too.
    """
    parser.add_argument(
        "--device", choices=list(PLATFORMS), help="where JAX runs; default: where JAX chooses"
    )
    options = parser.parse_args()
    if options.device is not None:
        try:
            use(options.device)
        except RuntimeError as error:
            parser.error(str(error))
    return options


def use(device: str) -> None:
    """Run JAX on a device from now on; raise RuntimeError where JAX finds none of the kind."""
    environment = {**os.environ, "JAX_PLATFORMS": PLATFORMS[device]}
    # In a process of its own: to look takes most of the memory of a GPU.
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, env=environment
    )
    if probe.stdout.strip() != device:
        cure = "install bmfjax[cuda12]" if device == "gpu" else "run where there is one"
        raise RuntimeError(
            f"--device is {device}, and JAX finds no {device.upper()} here; {cure}, or leave "
            "--device out"
        )
    os.environ["JAX_PLATFORMS"] = PLATFORMS[device]
    if "jax" in sys.modules:  # which has read the variable already
        sys.modules["jax"].config.update("jax_platforms", PLATFORMS[device])


def processor() -> str:
    """Return the model of the processor, as its maker calls it."""
    try:
        found = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text())
    except OSError:  # not Linux
        found = None
    return found[1] if found else platform.processor() or platform.machine()
