"""What the samplers do on one accelerator, in one command of at most eight minutes.

Phases run one after the other, each in a process of its own with a limit on its time: what the
device is, Boolean sweeps by size and by blocks at once, the tests that are marked for a device,
sweeps of the other models, starts, a first answer, IASG, the small sizes on the CPU beside it, and
the largest matrix that fits. After each phase the record and its page are written anew, so that a
run that is cut off leaves what it has found. A phase that fails or takes too long leaves its
message. Data are made on the device or in a moment; nothing is fetched.

It needs what bmfjax needs, and pytest. The record is named by the device.

    python benchmarks/speed/accelerator.py --device gpu
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
from benchmarks.record import write_record
from benchmarks.speed.accelerator_phases import PHASES

PROGRAM = Path(__file__).with_name("accelerator_phases.py")
#: Seconds that a phase must have to be worth its start.
LEAST = 10


def run_phase(name: str, seconds: float, folder: Path) -> tuple[dict, dict]:
    """Run a phase; return what it found, and how it ended."""
    path, log = folder / "found.json", folder / "log.txt"
    path.unlink(missing_ok=True)
    # Several processes may be on the device at once.
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment |= PHASES[name].environment
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name, str(path)], stdout=output,
            stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # and whatever it has started
            if process.poll() is None or code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    end = {"seconds": round(time.monotonic() - began, 1), "limit_seconds": round(seconds)}
    if code is None:
        end["stopped"] = "at its limit"
    elif code != 0:
        lines = log.read_text(errors="replace").strip().splitlines()
        end["stopped"] = f"exit code {code}: {' / '.join(lines[-3:])[-400:]}"
    try:
        return json.loads(path.read_text()), end
    except (OSError, ValueError):
        return {}, end


def slug(kind: str) -> str:
    """Return a short name of a device, for its record.

    Examples
    --------
    >>> [slug(kind) for kind in ("NVIDIA H100 80GB HBM3", "cpu", "TPU v5 lite")]
    ['h100', 'cpu', 'tpu_v5_lite']
    """
    model = re.search(r"\b[A-Z]+\d+[A-Z]*\b", kind)
    return re.sub(r"\W+", "_", model[0] if model else kind).strip("_").lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(PHASES), default=list(PHASES))
    parser.add_argument("--limit", type=float, default=480, help="seconds in all")
    parser.add_argument("--commit", help="of the code, where there is no repository to ask")
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    end = time.monotonic() + options.limit
    # The record says on which device all is measured.
    chosen = [name for name in PHASES if name == "device" or name in options.only]
    figures = {"limit_seconds": options.limit, "phases": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            left = end - time.monotonic()
            if left < LEAST:
                figures["phases"][name] = {"stopped": "not begun: no time was left"}
                found = {}
            else:
                seconds = min(PHASES[name].seconds, left)
                found, figures["phases"][name] = run_phase(name, seconds, Path(folder))
            figures[name] = found
            print(name, figures["phases"][name], flush=True)
            for case, figure in found.items():
                print("   ", case, figure, flush=True)
            kind = str(figures["device"].get("kind", "unknown"))
            device = {"platform": figures["device"].get("platform", "unknown"), "kind": kind}
            try:
                write_record(
                    f"accelerator_{slug(kind)}", figures, options.output, device=device,
                    commit=options.commit,
                )  # fmt: skip
            except Exception as error:  # the record is there, its page not: time on a card is short
                print(f"no page was written: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
