"""The run of a script, its command, where it runs (``--device``), and its other processes.

JAX is not imported here: scripts that measure its start, or that measure in processes of their
own, must not load it, nor take the memory of an accelerator, before these do.
"""

import argparse
import inspect
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.pages import RESULTS

#: What JAX calls the platforms. A CPU stands beside an accelerator, for what runs on the host.
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
_PROBE = "import jax; print(jax.default_backend())"


#: What helps with an option that the script gives itself, in a process of its own.
HIDDEN = argparse.SUPPRESS
#: The option of scripts that run where there is no repository.
COMMIT = (str, "of the code, where there is no repository to ask")


def script(doc: str, given: dict | None = None, /, *, child=None, **options):
    """Make the function below it the run of a script, which begins where the script is the command.

    It takes the options (`command_line`) and returns the figures of the record, or yields them
    whenever there are more: what has been found stays if the rest is cut off. Of the options it may
    change `record`, by default the name of the script; `results` is the folder. With the option
    ``--one`` the command prints in JSON what `child` makes of the options, and writes no record.
    """

    def begun(run):
        def main() -> None:
            chosen = command_line(doc, given, **options)
            if child is not None and chosen.one:
                print(json.dumps(child(chosen)))
                return
            chosen.record = Path(inspect.getfile(run)).stem
            chosen.results = RESULTS if chosen.output is None else chosen.output
            chosen.results.mkdir(parents=True, exist_ok=True)
            found, commit = run(chosen), getattr(chosen, "commit", None)
            for figures in [found] if isinstance(found, dict) else found or ():
                from benchmarks.record import write_record  # which loads JAX

                path = write_record(chosen.record, figures, chosen.results, commit=commit)
                print(path, flush=True)

        if run.__module__ == "__main__":
            main()
        return main

    return begun


def growing(figures: dict, table: str, cases, one):
    """Yield figures whenever ``one(case)`` has come into their table, by the name of the case."""
    found = figures.setdefault(table, {})
    for case in cases:
        found[str(case)] = one(case)
        print(case, found[str(case)], flush=True)
        yield figures


def held(options: argparse.Namespace) -> dict:
    """Return the figures of the record that an earlier run of a script has written, if any."""
    path = options.results / f"{options.record}.json"
    return json.loads(path.read_text())["figures"] if path.exists() else {}


def command_line(doc: str, given: dict | None = None, /, **options) -> argparse.Namespace:
    """Return the options of a script: its own, ``--output``, and ``--device``.

    An option is its default, of which it has the type; or its type, where it has none; or either
    and a help; or keywords of `add_argument`. Those of `given` come first, and without their name.
    `error` of what is returned ends the script with a message.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (given or {}).items():
        parser.add_argument(name, **_keywords(value))
    for name, value in options.items():
        parser.add_argument("--" + name.replace("_", "-"), **_keywords(value))
    if "output" not in options:
        parser.add_argument("--output", type=Path, help="folder of the record")
    found = parse(parser)
    found.error = parser.error
    return found


def _keywords(value) -> dict:
    """Return what `add_argument` is told of an option."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        return _keywords(value[0]) | {"help": value[1]}
    if isinstance(value, type):
        return {"type": value}
    if isinstance(value, bool):
        return {"action": "store_true"}
    if isinstance(value, list):
        return {"nargs": "+", "type": type(value[0]), "default": value}
    return {"type": type(value), "default": value}


def some(choices) -> dict:
    """Return the keywords of an option that takes some of several; by default it has all."""
    return {"nargs": "+", "choices": list(choices), "default": list(choices)}


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options of a script, ``--device`` among them, which holds from then on.

    Call it before anything runs in JAX. Processes that the script starts run on the device too.
    """
    parser.add_argument(
        "--device", choices=list(PLATFORMS), help="where JAX runs; default: where JAX chooses"
    )
    options = parser.parse_args()
    # What the script starts in processes of their own finds the repository, as this one does.
    known = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, known)))
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


def apart(*words, failed: str = "", patience: float | None = None, environment=None):
    """Run this script with other options in a process of its own; return the JSON it prints last.

    One that fails ends the script, or gives its last message by the name that is told for that. One
    that is given up after some seconds says so.
    """
    words = [sys.executable, sys.argv[0], *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE if failed else None}
    try:
        done = subprocess.run(words, **pipes, text=True, timeout=patience, env=environment)
    except subprocess.TimeoutExpired:
        return {"not_run": f"given up after {patience:g} s"}
    if done.returncode:
        if failed:
            return {failed: " / ".join(done.stderr.strip().splitlines()[-2:])[-300:]}
        raise SystemExit(done.returncode)
    return json.loads(done.stdout.strip().splitlines()[-1])


def keep_to(cores: int) -> None:
    """Run this process on the last so many cores: before JAX, which makes a thread for each."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def reset_peak() -> float:
    """Let the peak of the resident memory start anew; return what is resident now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def resident(name: str) -> float:
    """Return the resident memory of this process, or its peak, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(s.split()[1]) for s in lines if s.startswith(f"{name}:")) / 1024


def processor() -> str:
    """Return the model of the processor, as its maker calls it."""
    try:
        found = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text())
    except OSError:  # not Linux
        found = None
    return found[1] if found else platform.processor() or platform.machine()
