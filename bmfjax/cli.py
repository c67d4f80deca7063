"""The command line: fit, merge, rank, predict, recommend, transform, compare, and others."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import gc
import json
import math
import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from bmfjax.clock import clock_running, running_clock
from bmfjax.errors import InputError, did_you_mean, printable, version_of
from bmfjax.progress import say, status_line

INTERRUPTED, DEFAULT_CHAINS = 130, 4
#: Exit codes from this one on, as shells have them, are of commands that a signal ended.
SIGNALLED = 128
#: The exit code where the fit is stored, and a part of the verdict that is required does not hold.
NOT_HELD = 4
#: The exit code where the fit is stored, and something beside it could not be written.
NOT_ALL_WRITTEN = 3
#: What JAX calls the devices. A CPU stands beside an accelerator, for what runs on the host.
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
#: Cores that share the rows where nobody says how many; and what --mesh says instead of devices.
MOST_SHARING, MESH_WORDS = 8, ("auto", "none")
#: CPU seconds that tables, files and page of a fit take, and those of the page.
WRITING, PAGE_SECONDS = 4.0, 3.0
#: The same of starts alone.
WRITING_STARTS, STARTS_PAGE_SECONDS = 2.0, 1.5
#: Share of the time that a command may take in which a page must be written, or is left out.
LATE = 1.25
#: Factors of a fit where their number is not given, and the model has none of its own.
RANK = 4
#: Where a fit may be stopped, besides the sampling.
BEFORE, AFTER = "before the sampling", "before all results were written"


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option where it has one worth saying, and keeps lines apart."""

    def _get_help_string(self, action):
        # No number equals what is left out here: 0 is a default worth saying.
        if action.default is None or action.default is False or action.default == []:
            return action.help
        return super()._get_help_string(action)

    def _split_lines(self, text, width):
        split = super()._split_lines
        return [line for part in text.split("\n") for line in split(part, width)]


class _Parser(argparse.ArgumentParser):
    """Its errors hold what was given, such as names of files, and what may have been meant."""

    def _check_value(self, action, value):
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = did_you_mean(value, action.choices)
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None

    def _get_value(self, action, arg_string):
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            what = {int: "whole number", float: "number"}.get(action.type)
            said = error.message if what is None else f"{arg_string!r} is no {what}; give one"
            raise argparse.ArgumentError(action, said) from None

    def parse_known_args(self, args=None, namespace=None):
        found, others = super().parse_known_args(args, namespace)
        if others:  # of a command these are looked at by its own parser, which knows its options
            known = [name for action in self._actions for name in action.option_strings]
            hint = did_you_mean(others[0].partition("=")[0], known)
            self.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return found, others

    def error(self, message):
        # One line: all options together are a screen, in which it would not be seen.
        said = f"{self.prog}: {printable(message)}; {self.prog} --help lists what there is\n"
        self.exit(2, said)


def build_parser(models: bool = True) -> argparse.ArgumentParser:
    """Return the parser with all commands; without `models` `fit` and `rank` have no options.

    Only these are worth the import of the models.
    """
    parser = _Parser(
        prog="bmfjax",
        description="Factorise matrices, with uncertainty.",
        epilog="Begin with bmfjax fit TABLE.csv: it says what it reads, and writes a folder with a "
        "page, report.html. bmfjax fit alone fits votes that ship with bmfjax. bmfjax COMMAND "
        "--help lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"bmfjax {version_of('bmfjax')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_fit(commands, models)
    _add_merge(commands)
    _add_rank(commands, models)
    _add_predict(commands)
    _add_recommend(commands)
    _add_transform(commands)
    _add_compare(commands)
    _add_generate(commands)
    _add_report(commands)
    datasets = commands.add_parser("datasets", help="list the matrices that ship with bmfjax")
    datasets.set_defaults(run=_datasets)
    return parser


def main(arguments: Sequence[str] | None = None, *, ends_process: bool = False) -> int:
    """Run the command line.

    Where it `ends_process`, a compilation that was given up may wait for the report.

    The exit code: 0, 2 for bad input, 3 where a fit is stored and something beside it was not
    written, 4 where a part of the verdict that `--require` names does not hold, 130 when
    interrupted, 143 when terminated (138 by SIGUSR1, 129 by SIGHUP).
    """
    began = time.monotonic()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        # The models are with NumPy, which takes a moment to load.
        options = build_parser(models=bool({"fit", "rank"} & set(arguments))).parse_args(arguments)
    except KeyboardInterrupt as stop:
        _say_error(_stopped(stop, argparse.Namespace()))
        return INTERRUPTED
    options.arguments, options.ends_process = arguments, ends_process
    options.again = _resuming(arguments)
    # XLA's own lines, such as that a program compiles slowly, are for whoever works on XLA.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # of characters that the terminal does not have
            stream.reconfigure(errors="backslashreplace")
    try:
        with _plain_warnings(), clock_running(began), contextlib.ExitStack() as options.line:
            _refuse_existing(options)
            # What follows loads JAX, which takes seconds.
            options.line.enter_context(status_line(not getattr(options, "quiet", True)))
            say("loading")
            from bmfjax.infer.interrupt import exit_when_terminated
            from bmfjax.kernels.numerics.compiling import use_compilation_cache

            with exit_when_terminated():
                use_compilation_cache()
                code = options.run(options)
                options.line.close()
                sys.stdout.flush()  # now, while it can be read
                return code
    except (InputError, FloatingPointError) as error:
        _say_error(error)
    except OSError as error:
        # Files that are written are named; what is left is what was printed.
        printed = error.errno == errno.ENOSPC and error.filename is None
        where = " the standard output" if printed else ""
        where = f" {error.filename}" if error.filename else where
        _say_error(f"cannot use{where}: {error.strerror or error}")
        if printed and sys.stdout is sys.__stdout__:
            # Python would try again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (KeyboardInterrupt, SystemExit) as stop:
        terminated = isinstance(stop, SystemExit)
        _say_error(_stopped(stop, options))
        return stop.code if terminated else INTERRUPTED
    return 2


def _say(*lines, error: bool = False) -> None:
    """Print lines: all that a command says goes through here, so that no name steers a terminal."""
    stream = sys.stderr if error else sys.stdout
    with _reader(stream):
        for line in lines:
            print(printable(str(line)), file=stream)


def _say_error(message) -> None:
    """Print a line to standard error; a terminal that is gone takes none."""
    with contextlib.suppress(OSError):
        _say(f"bmfjax: {message}", error=True)


@contextlib.contextmanager
def _reader(stream):
    """Print to whoever reads; where nobody does any more, such as after ``| head``, to nobody."""
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, stream.fileno())
        os.close(nobody)


def _resuming(arguments, figures=None) -> str:
    """Return the command that continues the fit of these arguments.

    Where its time was up, the command gives it as much as the `figures` say: the verdict does, too.
    """

    def is_one_of(given, *options):  # as argparse reads it, abbreviated or not
        return len(given) > 3 and any(o.startswith(given) for o in options)

    rest, words = [], iter(arguments)
    for word in words:
        name, sign, _ = word.partition("=")
        if figures is not None and len(name) > 6 and is_one_of(name, "--max-time"):
            if not sign:
                next(words, None)
        elif not is_one_of(word, "--overwrite", "--resume"):
            rest.append(word)
    time = () if figures is None else ("--max-time", figures.more_seconds)
    return _command("bmfjax", *rest[:1], "--resume", *rest[1:], *time)


def _command(*words) -> str:
    """Write a command as a shell takes it, also with names that a terminal cannot show."""

    def quoted(word):
        if printable(word) == word:
            return shlex.quote(word)
        shown = (chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in os.fsencode(word))
        return "$'" + "".join(f"\\{c}" if c in "'\\" else c for c in shown) + "'"

    return " ".join(quoted(str(word)) for word in words)


def _stopped(stop, options) -> str:
    """Say in one line what ended the command, how far it was, and how to continue."""
    when = str(stop) or getattr(options, "stage", "before anything was done")
    said = f"{'terminated' if isinstance(stop, SystemExit) else 'interrupted'} {when}"
    checkpoint = getattr(options, "checkpoint", None)
    if checkpoint is None:
        return said
    from bmfjax.store import holds_checkpoint  # only now: what it loads may be what was interrupted

    if not holds_checkpoint(checkpoint):
        return said
    # Before a new fit is sampled, what is there belongs to the fit that it will replace.
    if when == BEFORE and not options.resume:
        return said
    return f"{said}; to continue: {options.again}"


@contextlib.contextmanager
def _ended(when):
    """Say when a command was ended, where what ended it does not."""
    from bmfjax.infer.interrupt import Terminated

    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or when) from None
    except Terminated as stop:
        raise Terminated(str(stop) or when, stop.signum) from None


@contextlib.contextmanager
def _plain_warnings():
    """Print warnings of this package as lines of its own, without a place in the code."""
    with warnings.catch_warnings():
        # JAX then compiles again: a fit is none the worse.
        cache = "Error (reading|writing) persistent compilation cache entry"
        warnings.filterwarnings("ignore", cache, UserWarning)
        usual = warnings.showwarning

        def show(message, category, *place, **more):
            if category is UserWarning:
                _say_error(message)
            else:
                usual(printable(str(message)), category, *place, **more)

        warnings.showwarning = show
        yield


# ---- fit --------------------------------------------------------------------------------


def _add_fit(commands, models) -> None:
    fit = commands.add_parser(
        "fit",
        help="factorise a matrix and write the result to a directory",
        formatter_class=_Help,
        description="Factorise a matrix or ratings; write factors, draws, probabilities, a report.",
    )
    if not models:
        return
    from bmfjax.specs import MODELS, run

    ratings = {name: m.default_rank for name, m in MODELS.items() if m.default_rank}
    others = ", ".join(f"{number} of {name}" for name, number in ratings.items())
    fit.add_argument("data", nargs="?", default="house-votes", help="a shipped name or a file")
    fit.add_argument(
        "--rank", type=_number(int, *_FROM_ONE, auto=True), metavar="N",
        help="number of factors; auto: found, with the probability of every number (default: "
        f"{RANK}, {others}; at most the smaller side of the matrix)",
    )  # fmt: skip
    fit.add_argument(
        "--max-rank", type=_number(int, *_FROM_ONE), metavar="N",
        help=f"with --rank auto: the most factors that there may be ({run.MAX_RANK}, "
        f"of features {run.LARGE_MAX_RANK} for {run.LARGE[0]:,} to {run.LARGE[1]:,} entries in at "
        f"least {run.LARGE_SIDE} rows and columns; with "
        "--samples auto twice as many, and so on, where all of them are there and time is left)",
    )  # fmt: skip
    fit.add_argument(
        "--anchors", type=Path, metavar="FILE",
        help="known factors that stay as they are, the first of --rank: a .csv whose first line "
        "names them and whose others hold a column of the data and its number in each (ormachine: "
        "0, 1, or blank to learn it; features, nmf, pmf, probit, ordered-probit)",
    )  # fmt: skip
    for side in ("row", "column"):
        fit.add_argument(
            f"--{side}-attributes", type=Path, metavar="FILE",
            help=f"what is known of {side}s, in the prior means of their factors: a .csv whose "
            f"first line names the attributes and whose others hold a {side}'s name and its "
            "numbers or categories (pmf, probit, ordered-probit)",
        )  # fmt: skip
    _add_sampling(fit)
    fit.add_argument(
        "--max-time", type=_number(float, *_ABOVE_ZERO), metavar="SECONDS",
        help=f"most seconds of the whole command ({run.MAX_TIME:g} where --samples is auto, else "
        "any; any with --sampler smc); at their end the results are those of what was drawn, if "
        "need be of the starts, and without a page where there is no time for it",
    )  # fmt: skip
    fit.add_argument(
        "--until", default=run.UNTIL[0], choices=run.UNTIL,
        help="the parts of the verdict that end the run when they hold; usable: all parts, within "
        "wider bounds, for a first answer sooner",
    )  # fmt: skip
    fit.add_argument(
        "--mc-error", metavar="X",
        type=_number(float, f"above 0 and up to {run.ACCURATE:g}", lambda x: 0 < x <= run.ACCURATE),
        help="run until predictions are as exact: two Monte Carlo standard errors of probabilities "
        f"(default: {run.ACCURATE:g})",
    )  # fmt: skip
    fit.add_argument(
        "--check", metavar="SHARE",
        type=_number(
            float, f"above 0 and up to {run.MOST_HIDDEN:g}", lambda x: 0 < x <= run.MOST_HIDDEN
        ),
        help="hide this share of the entries, such as 0.1, from a first fit, say how well it "
        "predicts them, and go on with all entries",
    )  # fmt: skip
    _add_seed(fit, "the draws depend on it")
    fit.add_argument(
        "--chain", type=_chains_of, metavar="C/N",
        help="run chain C of N alone, or chains C to D by C-D/N, such as 3/8 or 3-4/8; when all "
        f"are done, on whatever machines, bmfjax merge makes the fit (--samples auto is "
        f"{run.NUM_SAMPLES}; "
        "--resume goes on where the chain is stored, and begins it where it is not)",
    )  # fmt: skip
    fit.add_argument(
        "--device", choices=list(PLATFORMS),
        help="where the chains run; without it on an accelerator, if JAX finds one",
    )  # fmt: skip
    fit.add_argument(
        "--mesh", type=_mesh_of, metavar="CxR", default="auto",
        help="run all chains on C x R devices together: C groups of devices share the chains, and "
        "the R devices of each the rows, such as 1x2 (ormachine, relaxed, nmf, models of ratings, "
        "and logistic with svi); a CPU gives as many devices as are asked for; auto: the cores of "
        "a CPU share the rows of large data (ormachine, models of ratings) where there are too few "
        "chains for all cores, with which draws of ratings change by rounding; none: they do not",
    )  # fmt: skip
    fit.add_argument(
        "--distributed", action="store_true",
        help="with --mesh: the devices are those of several processes, which all run this "
        "command; JAX finds them under Slurm, Open MPI and on TPUs, and elsewhere by "
        "JAX_COORDINATOR_ADDRESS (host:port), JAX_NUM_PROCESSES and JAX_PROCESS_ID",
    )  # fmt: skip
    fit.add_argument("--output", type=Path, help="directory (bmfjax-NAME where not given)")
    existing = fit.add_mutually_exclusive_group()
    existing.add_argument(
        "--overwrite", action="store_true", help="replace a fit that is there; files of others stay"
    )
    existing.add_argument("--resume", action="store_true", help="continue an interrupted fit")
    _add_written(fit)
    fit.add_argument("--quiet", action="store_true", help="do not tell what runs")
    _add_models(fit)
    _add_ratings(fit)
    _add_reading(fit)
    fit.set_defaults(run=_fit)


def _add_written(parser) -> None:
    """Add what a fit writes beside its own files."""
    parser.add_argument(
        "--probability", action="store_true", help="write probability.npz above 10^7 entries too"
    )
    parser.add_argument(
        "--require", choices=("all", "predictions", "factors", "number"), metavar="PART",
        help="what of the verdict is to hold: all, predictions, factors or number; else everything "
        f"is written, and the exit code is {NOT_HELD}",
    )  # fmt: skip
    parser.add_argument(
        "--tiles", type=Path, metavar="FILE",
        help="write all tiles with their probabilities and members to a .csv or .parquet "
        "(relaxed, features, ormachine and its variants but hamming); --overwrite replaces such a "
        "table, never another file",
    )  # fmt: skip
    parser.add_argument(
        "--fdr",
        type=_number(float, *_BETWEEN),
        metavar="Q",
        help="false discovery rate at which --tiles says, in column kept, which of them to keep "
        "(0.05 where not given)",
    )
    parser.add_argument(
        "--export", choices=("csv", "parquet"),
        help="write the factors as a table too, factors.csv or factors.parquet beside the fit: a "
        "line for each name and factor",
    )  # fmt: skip


def _chains_of(text):
    """Read "3/8" or "3-4/8": the numbers of the chains, and how many there are in all."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?/(\d+)", text)
    first, last, number = (int(n or 0) for n in found.groups()) if found else (0, 0, 0)
    last = first if found and found[2] is None else last
    if not 1 <= first <= last <= number:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no chain; give C/N, such as 3/8 for the third of eight, or C-D/N"
        )
    return range(first, last + 1), number


def _mesh_of(text):
    """Read "2x4": devices along the chains and along the rows."""
    if text in MESH_WORDS:
        return text
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no mesh; give CxR, such as 1x2 for two devices that share the rows, or "
            f"{' or '.join(MESH_WORDS)}"
        )
    return int(found[1]), int(found[2])


def _mesh(options):
    """Return the devices that were asked for, which run the chains together, or None."""
    if options.mesh in MESH_WORDS:
        if options.distributed:
            raise InputError(
                "--distributed joins the devices of several processes, and there is no --mesh for "
                "them; give one, such as --mesh 1x2"
            )
        return None
    import jax
    import numpy as np

    number = math.prod(options.mesh)
    if options.distributed:
        _join_processes()
    else:
        _give_cpu_devices(number)
    devices = jax.devices()
    if len(devices) < number or (options.distributed and len(devices) > number):
        raise InputError(
            f"--mesh is {options.mesh[0]}x{options.mesh[1]}, {number} devices, and there are "
            f"{len(devices)}; give a mesh that they fill"
        )
    return jax.sharding.Mesh(np.array(devices[:number]).reshape(options.mesh), ("chains", "rows"))


def _use_device(device, joins) -> None:
    """Let JAX run on a kind of device, or refuse one that is not here."""
    import jax

    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", PLATFORMS[device])
    # JAX must not start before it knows how many devices a CPU has, or what it joins.
    if device == "cpu" or joins:
        return
    try:
        found = jax.default_backend()
    except RuntimeError:
        found = None
    if found != device:
        jax.config.update("jax_platforms", before)
        cure = "install bmfjax[cuda12]" if device == "gpu" else "run where there is one"
        raise InputError(
            f"--device is {device}, and JAX finds no {device.upper()} here; {cure}, or leave "
            "--device out"
        )


def _shared_cores(options, data):
    """Return the cores of a CPU as a mesh where they should share the rows, and say so; or None."""
    import jax
    import numpy as np

    number = _cores_to_share(options, data)
    if number is None:
        return None
    _give_cpu_devices(number)
    if jax.default_backend() != "cpu" or len(jax.devices()) < number:
        return None
    if not options.quiet:
        _say(f"{number} cores share the rows of the data; --mesh none turns this off")
    return jax.sharding.Mesh(np.array(jax.devices()[:number]).reshape(1, -1), ("chains", "rows"))


def _cores_to_share(options, data) -> int | None:
    """Return how many cores should share the rows of the data, or None."""
    from bmfjax.families import FAMILIES
    from bmfjax.kernels.numerics.mesh import num_cores

    family, number = FAMILIES[options.model], min(num_cores(), MOST_SHARING)
    few = -(-options.chains // family.chains_a_core) < number
    # Options and unknown ranks may bring moves, of which every device would make all.
    plain = options.mesh == "auto" and not options.option and options.rank != "auto"
    pays = family.pays_on_mesh(data, options.sampler)
    return number if few and plain and pays else None


def _give_cpu_devices(number) -> None:
    """Let JAX see so many devices in the CPU, where nobody has said how many."""
    import jax

    if "device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # where JAX runs already, with its devices
            jax.config.update("jax_num_cpu_devices", number)


def _join_processes() -> None:
    """Let JAX find the other processes of this command."""
    import jax

    names = {"num_processes": "JAX_NUM_PROCESSES", "process_id": "JAX_PROCESS_ID"}
    try:
        given = {n: int(os.environ[name]) for n, name in names.items() if name in os.environ}
        jax.distributed.initialize(**given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"--distributed did not find the other processes: {str(error).splitlines()[0]}; set "
            "JAX_COORDINATOR_ADDRESS (host:port), JAX_NUM_PROCESSES and JAX_PROCESS_ID"
        ) from error


def _add_sampling(parser) -> None:
    """Add what every fit of a command has in common."""
    from bmfjax.specs.run import LEAST_KEPT, NUM_WARMUP

    parser.add_argument(
        "--chains", type=_number(int, *_FROM_ONE), default=DEFAULT_CHAINS,
        help="independent chains",
    )  # fmt: skip
    parser.add_argument(
        "--warmup", type=_number(int, *_FROM_ZERO, auto=True), default="auto", metavar="N",
        help="steps before draws count; auto: the model chooses "
        f"({NUM_WARMUP} with a number of --samples)",
    )  # fmt: skip
    parser.add_argument(
        "--samples", default="auto", metavar="N",
        type=_number(int, f"of at least {LEAST_KEPT}", lambda n: n >= LEAST_KEPT, auto=True),
        help="draws of each chain; auto: until R-hat and effective draws are those of a reliable "
        "fit, or --max-time is up",
    )  # fmt: skip
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="a further option of the sampler by its name in Python, such as moves=birth, "
        "sampling=uniform with --sampler svi, or walls=[1000,30,2] with --model nmf; may be given "
        "again",
    )  # fmt: skip
    parser.add_argument(
        "--prior-value", action="append", default=[], metavar="NAME=VALUE",
        help="a parameter of the model by its name in Python, such as scale=2 of the logistic "
        "model, usage_rate=0.5 of nmf or level=[3.5,2] of pmf; may be given again",
    )  # fmt: skip


#: Which numbers an option takes: how it is said, and whether a number is one.
_FROM_ONE = "of at least 1", lambda n: n >= 1
_FROM_ZERO = "of at least 0", lambda n: n >= 0
_ABOVE_ZERO = "above 0", lambda x: x > 0
_BETWEEN = "between 0 and 1", lambda x: 0 < x < 1
_PROBABILITY = "from 0 to 1", lambda x: 0 <= x <= 1


def _number(kind, which, fits, auto=False):
    """Return a reader of numbers that refuses others, before anything is loaded.

    With `auto` this word is left to the fit.
    """
    what = {int: "whole number", float: "number"}[kind]

    def read(text):
        if auto and text == "auto":
            return text
        with contextlib.suppress(ValueError):
            if fits(kind(text)):
                return kind(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no {what} {which}; give one{', or auto' * auto}"
        )

    return read


def _add_seed(parser, what) -> None:
    which = f"from 0 to {2**32 - 1}"
    kind = _number(int, which, lambda n: 0 <= n < 2**32)
    parser.add_argument("--seed", type=kind, default=0, help=what)


def _add_models(parser) -> None:
    """Add the choices of models and samplers, and the options of their fields."""
    from bmfjax.specs import MODELS, SAMPLERS
    from bmfjax.specs.default import RULE
    from bmfjax.specs.run import BATCH

    group = parser.add_argument_group("the model")
    group.add_argument(
        "--model", choices=list(MODELS),
        metavar="MODEL",
        help="\n".join(f"{name}: {_brief(kind)}" for name, kind in MODELS.items())
        + f"\n(default: {RULE})",
    )  # fmt: skip
    owners = {}
    for name, kind in MODELS.items():
        owners.setdefault(tuple(s.name for s in kind.samplers), []).append(name)
    group.add_argument(
        "--sampler", choices=list(SAMPLERS), metavar="SAMPLER",
        help="\n".join(f"{name}: {_brief(kind)}" for name, kind in SAMPLERS.items())
        + "\nwhich model has which, its default first ("
        + f"svi for more than {BATCH:,} entries):\n"
        + "\n".join(f"{', '.join(m)}: {', '.join(names)}" for names, m in owners.items()),
    )  # fmt: skip
    for name, flags in _flags().items():
        owners = {}
        for flag, kind, _ in flags:
            owners.setdefault(flag.help, []).append(kind.name)
        text = "; ".join(
            f"{', '.join(dict.fromkeys(kinds))}: {text}" for text, kinds in owners.items()
        )
        group.add_argument(name, help=text, **flags[0][0].parse)


def _brief(kind) -> str:
    """Return the head of the summary of a model or a sampler, without references."""
    return re.split(r" \(|; |: ", kind.summary())[0].replace("%", "%%")


def _flags() -> dict:
    """Return the fields with a flag, by its name: {name: [(Flag, class, name of the field)]}."""
    from bmfjax.specs import MODELS, SAMPLERS
    from bmfjax.specs.base import parameters

    found = {}
    for kind in (*MODELS.values(), *SAMPLERS.values()):
        for field in parameters(kind).values():
            if field.flag is not None:
                found.setdefault(field.flag.name, []).append((field.flag, kind, field.name))
    return found


def _given_flags(options) -> list:
    """Return the flags of fields that were given: (name, its fields, value)."""
    values = {name: getattr(options, name[2:].replace("-", "_")) for name in _flags()}
    return [(n, flags, values[n]) for n, flags in _flags().items() if values[n] is not None]


def _choose_model(options, data) -> None:
    """Choose the model where none is named, and say which it is and why."""
    from bmfjax.comparison.ranks import read_ranks
    from bmfjax.families import default_of
    from bmfjax.infer.checkpoint import identity_in
    from bmfjax.specs import OrMachine
    from bmfjax.store import CHECKPOINT

    rank, most, before = getattr(options, "rank", None), None, {}
    if options.command == "rank":
        rank = read_ranks(options.ranks)[-1]
    else:
        most = options.max_rank
        if rank is not None:
            OrMachine(rank)  # refuses what is no number of factors, before anything is said of it
        if options.resume:
            before = identity_in(_output(options, data) / CHECKPOINT)
    found = default_of(data, rank, most, _said(options), before.get("model"))
    options.model = found.model
    _say(found.why)


def _said(options) -> list[str]:
    """Return what was said of the model and the sampler, by the names of fields and samplers."""
    from bmfjax.specs.default import KINDS, MESH

    given = [field for _, flags, _ in _given_flags(options) for field in flags]
    fields = [name for _, kind, name in given if kind in KINDS]
    named = [*_named("prior-value", options.prior_value), *_named("option", options.option)]
    found = [*fields, *named, *filter(None, [options.sampler])]
    return found + [MESH] * (getattr(options, "mesh", "auto") not in MESH_WORDS)


def of_model(options):
    """Return the model, and the options of the sampler, of the flags and NAME=VALUE."""
    from bmfjax.specs import MODELS, model_of

    kind = MODELS[options.model]
    priors, sampler_options = {}, {}
    for name, flags, value in _given_flags(options):
        own = [found for found in flags if found[1] in (kind, *kind.samplers)]
        if not own:
            owners = [m for m, k in MODELS.items() if {o for _, o, _ in flags} & {k, *k.samplers}]
            raise InputError(
                f"{name} belongs to {', '.join(owners)}, and the model is {options.model}; leave "
                "it out"
            )
        for flag, owner, field in own:
            (priors if owner is kind else sampler_options)[field] = flag.read(value)
    named = _named("prior-value", options.prior_value)
    for name in sorted(priors.keys() & named.keys()):
        raise InputError(f"--prior-value {name} is given by another option as well; leave one out")
    model = model_of(options.model, **priors | named)
    return model, sampler_options | _named("option", options.option)


def _sampler(options, model, sampler_options, data=None):
    """Return the sampler, or its name where it has no options; None for the default."""
    from bmfjax.families import FAMILIES
    from bmfjax.specs import sampler_of

    if not sampler_options:
        return options.sampler
    name = options.sampler
    if name is None:
        name = FAMILIES[model.name].default_sampler(data)
    return sampler_of(name, type(model), **sampler_options)


#: What a user of Python writes, and JSON.
_OF_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _named(option, given) -> dict:
    """Return the value of every NAME=VALUE: numbers, lists, true, false and null, as in JSON.

    Words of Python for the last three are read alike.
    """
    found = {}
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--{option} {pair} has no name and value; give --{option} NAME=VALUE")
        if name in found:
            raise InputError(f"--{option} {name} is given twice; leave one out")
        try:
            found[name] = json.loads(_OF_PYTHON.get(value, value))
        except json.JSONDecodeError:  # a plain word
            found[name] = value
    return found


def _add_ratings(parser) -> None:
    ratings = parser.add_argument_group("ratings (pmf, ordered-probit)")
    ratings.add_argument(
        "--scale", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="lowest and highest rating that there can be; predictions are held inside (the stars "
        "of ordered-probit are those that occur)",
    )  # fmt: skip


#: The options of a reading.
_READING = (
    "layout", "columns", "ignore", "label_column", "one_hot", "one", "zero", "missing", "binarize",
    "header", "row_names", "duplicates", "decimal", "encoding", "layer", "use_raw", "modality",
)  # fmt: skip


def _add_reading(parser) -> None:
    reading = parser.add_argument_group("how to read the data (what was read is said)")
    several = {"action": "append"}
    reading.add_argument(
        "--layout", choices=["auto", "table", "triples", "pairs", "baskets"], default="auto",
        help="what the lines of a text are: rows of a table; row, column and value; row and column "
        "of a one; or the items of a row; auto: told by the file, where it is clear",
    )  # fmt: skip
    reading.add_argument(
        "--columns", metavar="NAMES", **several,
        help="columns that hold values, such as Q1:Q21 or a,b; of lines of row, column and value "
        "these three; may be given again",
    )  # fmt: skip
    reading.add_argument(
        "--ignore", metavar="NAMES", **several, help="columns to leave out; may be given again"
    )
    reading.add_argument(
        "--label-column", metavar="NAME", **several,
        help="column that labels the rows, kept out of the fit; may be given again",
    )  # fmt: skip
    reading.add_argument(
        "--one-hot", metavar="NAME", **several,
        help="column of categories, each of which becomes a column; may be given again",
    )  # fmt: skip
    for name, what in (("one", "a one"), ("zero", "a zero"), ("missing", "a missing cell")):
        reading.add_argument(
            f"--{name}", metavar="MARK", **several,
            help=f"a text or number that is {what}; may be given again",
        )  # fmt: skip
    reading.add_argument("--binarize", type=float, metavar="T", help="values above T become ones")
    yes_no = argparse.BooleanOptionalAction
    reading.add_argument(
        "--header", action=yes_no, help="first line holds column names (else told by the file)"
    )
    reading.add_argument(
        "--row-names", action=yes_no, help="first column holds row names (else told by the file)"
    )
    reading.add_argument(
        "--duplicates", choices=["error", "last", "mean", "sum"], default="error",
        help="what to do with a cell that is listed more than once",
    )  # fmt: skip
    reading.add_argument(
        "--decimal", choices=["auto", ".", ","], default="auto", help="the decimal sign"
    )
    reading.add_argument("--encoding", help="of texts (UTF-8 where not given)")
    reading.add_argument("--layer", metavar="NAME", help="layer of AnnData to read in place of X")
    reading.add_argument(
        "--use-raw", action="store_true", help="read the raw values of AnnData in place of X"
    )
    reading.add_argument("--modality", metavar="NAME", help="modality of MuData to read")
    parser.set_defaults(header="auto", row_names="auto")


def _fit(options) -> int:
    from bmfjax.families.sampling import estimate, remember_report, result_of, sampled
    from bmfjax.kernels.numerics.compiling import let_compilations_wait
    from bmfjax.kernels.numerics.mesh import agreed, is_first
    from bmfjax.store import (
        CHECKPOINT,
        FILES,
        PAGE,
        check_files,
        check_output,
        hold,
        holds_checkpoint,
    )

    _check_tiles(options)
    if options.device is not None:
        _use_device(options.device, joins=options.distributed)
    if options.chain is not None:
        return _fit_apart(options)
    mesh = _mesh(options)
    first = is_first(mesh)  # of the processes: it writes, and tells
    replace = options.overwrite or options.resume
    names = (*FILES, PAGE, CHECKPOINT)

    def read():
        data = _read(options, mesh)
        output = _output(options, data)
        if first:
            check_output(output, replace, names, options.data)
        if options.resume and not holds_checkpoint(output / CHECKPOINT):
            raise InputError(f"{output} holds no interrupted fit to resume; fit without --resume")
        return data, output

    clock = running_clock()
    clock.limit, clock.has_report = options.max_time, True
    clock.aside, clock.aside_of_starts = WRITING, WRITING_STARTS
    clock.meanwhile = _prepare_page if first else None
    if not first:
        options.line.close()
    with contextlib.ExitStack() as held:

        def prepare():
            # Only now: everything given has been checked. A fit that is there stays until the new
            # one replaces it.
            held.enter_context(hold(output))
            check_files(output, replace, names, options.data)
            _check_tables(options, output, replace)  # only now: they may be for this directory

        say("reading the data")
        # Where one process refuses, all do.
        data, output = agreed(mesh, read)
        say("preparing the chains")
        mesh = _shared_cores(options, data) if mesh is None else mesh
        problem = _asked(options, data, mesh=mesh)
        if first and not options.resume and (about := estimate(problem, options.max_time)):
            _say(about)
        chains = problem.chains()
        agreed(mesh, lambda: first and prepare())
        given = {
            "max_time": options.max_time,
            "checkpoint": output / CHECKPOINT,
            "resume": options.resume,
            "overwrite": replace,
        }
        options.checkpoint, options.stage = output / CHECKPOINT, BEFORE
        with sampled(problem, chains, **given) as stage:
            sampled_at = time.monotonic()
            # To which all processes add, unless they share the rows: then one reads all of them.
            made = None if data.is_shared else result_of(stage)

            def write():
                if options.ends_process:
                    let_compilations_wait()
                result = result_of(stage) if made is None else made
                with _ended(AFTER):
                    if _has_modes(result):
                        say("choosing modes")
                        _ = result.modes  # which are printed, and are on the page
                    options.line.close()
                    try:
                        _tell(result, output)
                    finally:  # whatever it costs to say what was found
                        with status_line(not options.quiet):
                            say("writing the results and the report")
                            missing = _store(result, output, options, stage.is_stored)
                    missing += _write_tables(result, options, output, replace)
                return result, missing

            # The others wait: what ends one process ends all.
            written = agreed(mesh, lambda: write() if first else None)
            if first and written[0].figures.complete:
                remember_report(problem, time.monotonic() - sampled_at, options.max_time)
    arguments = options.arguments if stage.is_stored else ()
    return _end(*written, output, arguments, options.require) if first else 0


def _refuse_existing(options) -> None:
    """Refuse a directory that plainly holds a fit, before the seconds that the rest takes to load.

    What else may be there, or in the way, is looked at where the data are read.
    """
    folder = options.output if options.command == "fit" else None
    if folder is None or options.overwrite or options.resume or options.chain is not None:
        return
    if options.distributed or (folder / "checkpoint").exists():
        return
    try:
        held = set(json.loads((folder / "summary.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return
    of_fit = Path(options.data).resolve().parent == folder.resolve()  # which is said then
    if {"verdict", "model", "sampler"} <= held and not of_fit:
        raise InputError(
            f"{folder} already holds a fit (summary.json); give another directory, or --overwrite"
        )


def _output(options, data) -> Path:
    """Return the directory of a fit; without one, in the current one, whatever data are called."""
    if options.output is not None:
        return options.output
    return Path("bmfjax-" + re.sub(r"[/\\]", "_", data.name or "fit"))


def _asked(options, data, **more):
    """Return the fit that was asked for."""
    from bmfjax.data.anchors import load_anchors
    from bmfjax.data.attributes import load_attributes
    from bmfjax.families import ask

    model, sampler_options = of_model(options)
    how = {"decimal": options.decimal, "encoding": options.encoding}
    return ask(
        data,
        options.rank,
        _sampler(options, model, sampler_options, data),
        model=model,
        max_rank=options.max_rank,
        num_warmup=options.warmup,
        num_samples=options.samples,
        seed=options.seed,
        until=options.until,
        mc_error=options.mc_error,
        check=options.check,
        anchors=None if options.anchors is None else load_anchors(options.anchors, **how),
        **{
            name: load_attributes(path, **how)
            for name in ("row_attributes", "column_attributes")
            if (path := getattr(options, name)) is not None
        },
        rank_is_default=getattr(options, "rank_is_default", False),
        **({"num_chains": options.chains} | more),
    )


def _fit_apart(options) -> int:
    """Run some of the chains, and leave them where `bmfjax merge` finds them."""
    from bmfjax.families.apart import place_of
    from bmfjax.families.sampling import sampled

    for name in ("tiles", "fdr", "export", "probability"):
        if getattr(options, name):
            raise InputError(f"--{name} is written by bmfjax merge; leave it out here")
    if options.distributed:
        raise InputError(
            "--distributed joins processes, and --chain runs chains apart; leave one of them out"
        )
    numbers, number = options.chain
    if options.chains not in (number, DEFAULT_CHAINS):
        raise InputError(
            f"--chains is {options.chains}, and --chain names {number} in all; leave --chains out"
        )
    say("reading the data")
    mesh, data = _mesh(options), _read(options)
    output = _output(options, data)
    problem = _asked(options, data, num_chains=number, chains=numbers, mesh=mesh)
    chains = problem.chains()
    place, resume = place_of(
        problem, chains, output, resume=options.resume, overwrite=options.overwrite
    )
    options.checkpoint, options.stage = place, BEFORE
    with sampled(
        problem, chains, max_time=options.max_time, checkpoint=place, resume=resume,
        overwrite=options.overwrite,
    ) as stage:  # fmt: skip
        run = stage.run
    options.line.close()
    which = f"{'chain' if len(numbers) == 1 else 'chains'} {place.name} of {number}"
    if not stage.is_stored:  # which is all that merge has
        raise InputError(
            f"{which}: the last checkpoint in {place} was not written, so the draws since the one "
            f"before are lost; check permissions and disk space; to continue: {options.again}"
        )
    if run.is_complete:
        merge = _command("bmfjax", "merge", output)
        _say(f"{which}: {run.num_draws:,} draws; when all are there: {merge}")
        return 0
    why = "the time was up (--max-time)" if run.timed_out else "interrupted"
    reached = f"{run.num_draws:,} of {run.num_samples:,} draws a chain"
    if run.num_warmup < run.planned_warmup:
        reached = f"{run.num_warmup:,} of {run.planned_warmup:,} steps of warm-up"
    _say_error(f"{which}: {why} after {reached}; to continue: {options.again}")
    return 0 if run.timed_out else INTERRUPTED


def _exported(options, output) -> Path | None:
    """Return where the table of factors goes."""
    return output / f"factors.{options.export}" if options.export else None


def _prepare_page() -> None:
    """Load what draws the page; what is wrong with it will be said of the page."""
    from bmfjax.report.style import prepare

    with contextlib.suppress(Exception):
        prepare()


def _check_tables(options, output, replace) -> None:
    """Refuse tables that cannot be written, before any work is done."""
    from bmfjax.predictions import check_export, check_table_file

    exported = _exported(options, output)
    if exported is not None:
        check_export(exported, replace, options.tiles)
    for table in filter(None, (options.tiles, exported)):
        check_table_file(table, replace, options.data)


def _write_tables(result, options, output, replace) -> list:
    """Write the tables that were asked for; one of factors of an older fit goes with it.

    Return those that could not be written, or not be deleted.
    """
    from bmfjax.data.io.files import reason
    from bmfjax.predictions import remove_exported, write_table
    from bmfjax.verdict.undrawn import said_elsewhere

    exported, missing = _exported(options, output), []
    try:
        if replace:
            remove_exported(output)
    except OSError as error:
        _say_error(
            f"{error.filename} is of an older fit and was not deleted ({reason(error)}); the fit "
            "is stored, so delete it"
        )
        missing.append(Path(error.filename))
    asked = [table for table in (options.tiles, exported) if table is not None]
    if asked and result.verdict.is_of_starts:
        names = " and ".join(map(str, asked))
        _say_error(f"nothing was drawn that {names} could tell of; not written")
        return missing + asked
    later = f"bmfjax.Fit.load({str(output)!r})"
    if options.tiles is not None:
        with _costs_itself(
            options.tiles, f"{later}.tiles(all=True, members=True) has the table", missing
        ):
            with said_elsewhere(result):
                table = result.tiles(_level(options), all=True, members=True)
            write_table(table, options.tiles, replace)
    if exported is not None:
        with _costs_itself(exported, f"{later}.to_frame() has the table", missing):
            with said_elsewhere(result):
                table = result.to_frame()
            write_table(table, exported, replace)
    return missing


@contextlib.contextmanager
def _costs_itself(path, later, missing):
    """Say what could not be written beside a fit, and how to have it later; add it to `missing`."""
    from bmfjax.data.io.files import reason

    try:
        yield
    except Exception as error:  # of the libraries that draw and write, and of files in the way
        is_ours = isinstance(error, InputError)
        said = error if is_ours else f"{type(error).__name__}: {reason(error)}"
        _say_error(f"{path} was not written ({said}); the fit is stored, and {later}")
        missing.append(path)


def _level(options) -> float:
    """Return the false discovery rate that was asked for."""
    from bmfjax.posterior.trust import LEVEL

    return LEVEL if options.fdr is None else options.fdr


def _check_tiles(options) -> None:
    """Refuse a table of tiles that there cannot be."""
    from bmfjax.fitting import Fit

    _check_level(options)
    if options.model:  # those that there are by default have tiles
        _check_has_tiles(options, Fit._of_model(options.model), options.model)


def _check_has_tiles(options, fit, model) -> None:
    """Refuse a table of tiles of a fit, or of a kind of fits, that has none."""
    if options.tiles is not None and not hasattr(fit, "tiles"):
        from bmfjax.fitting import Fit

        able = ", ".join(Fit._models_with("tiles"))
        raise InputError(f"--tiles is for models {able}, and the model is {model}; leave it out")


def _check_level(options) -> None:
    """Refuse a false discovery rate that there cannot be."""
    from bmfjax.diagnostics.trust import check_level

    if options.tiles is None:
        if options.fdr is not None:
            raise InputError(
                "--fdr is for the table of --tiles; give --tiles FILE, or leave it out"
            )
        return
    check_level(_level(options))


def _store(result, output, options, is_kept) -> list:
    """Write the fit and its page; only then is the checkpoint of a complete run deleted.

    Return what could not be written. `is_kept` is whether the checkpoint has all draws.
    """
    from bmfjax.store import CHECKPOINT, FILES, PAGE, check_files, remove_checkpoint

    try:
        # Again: files may have come during the sampling.
        check_files(output, options.overwrite or options.resume, (*FILES, PAGE))
        missing = _write(result, output, options.probability)
    except InputError as error:
        if not is_kept:
            raise InputError(
                f"{error}; nor was the last checkpoint written, so that the draws since the one "
                "before are lost"
            ) from error
        raise InputError(
            f"{error}; the draws are kept in {output / CHECKPOINT}, and --resume (without "
            "--overwrite) then writes the fit"
        ) from error
    missing += _write_page(result, output)
    if result.figures.complete:
        remove_checkpoint(output / CHECKPOINT)
    return missing


def _write(result, output, probability) -> list:
    """Write the fit, and say what of it could not be written; return it."""
    from bmfjax.store import write

    missing = write(result._record(probability=probability), output)
    for sentence in missing:
        _say_error(sentence)
    return missing


def _write_page(result, output) -> list:
    """Write the page, or say why there is none, and return it."""
    from bmfjax.report.page import write_page
    from bmfjax.store import PAGE

    missing = []
    later = f"{_command('bmfjax', 'report', output)} writes it"
    clock = running_clock()
    takes = STARTS_PAGE_SECONDS if result.verdict.is_of_starts else PAGE_SECONDS
    takes *= min(clock.slowness, clock.slowness_now)
    if clock.limit is not None and clock.spent + takes > LATE * clock.limit:
        _say_error(f"the time was up before {output / PAGE} was written; {later}")
        return [output / PAGE]
    with _costs_itself(output / PAGE, later, missing):
        write_page(result, output / PAGE)
    return missing


def _read(options, mesh=None):
    """Read the data, and say what was read, and which model is theirs where none is named."""
    from bmfjax.specs import MODELS
    from bmfjax.specs.default import default_model

    is_named = bool(options.model)
    if not is_named:  # for what follows before the size is known, which is alike for both
        options.model = default_model(0, 1, _said(options)).model
    if getattr(options, "rank", RANK) is None and MODELS[options.model].default_rank is None:
        options.rank, options.rank_is_default = RANK, True
    data = _read_data(options, mesh)
    _say(f"{options.data}: {data.reading}")
    if not is_named:
        _choose_model(options, data)
    least = min(data.shape)
    if getattr(options, "rank_is_default", False) and least < RANK:
        _say(f"rank {least} is the smaller side of the matrix; the default, {RANK}, is larger")
    return data


def _read_data(options, mesh):
    """Read the data; of a large file perhaps the rows alone that this process of a mesh needs."""
    from bmfjax.data import BinaryMatrix, Ratings, RealMatrix
    from bmfjax.data.io.load import is_there
    from bmfjax.families import FAMILIES

    kind, share_of = FAMILIES[options.model].kind(options.model), None
    if kind is Ratings:
        if options.probability:
            raise InputError("--probability is for models of ones and zeros; leave it out")
        if not Path(options.data).is_file():
            raise _no_ratings(options)
    elif options.scale:
        raise InputError("--scale belongs to models of ratings; leave it out, or give --model pmf")
    elif kind is RealMatrix and not is_there(options.data):
        kind = BinaryMatrix  # by the name of a matrix that ships
    if mesh is not None and kind is BinaryMatrix:
        model, sampler_options = of_model(options)
        asked = (
            dataclasses.replace(model, rank=options.rank),
            _sampler(options, model, sampler_options),
        )
        share_of = FAMILIES[options.model].share_of(mesh, *asked, options.chain)
    return _load(options, options.data, kind, share_of)


def _load(options, source, kind, share_of=None, fitted=None):
    """Read a source as one kind of data, by the options of `_add_reading`; new rows of a fit."""
    from bmfjax.data import BinaryMatrix, Ratings, load, load_ratings, load_real
    from bmfjax.data.datasets import dataset_names
    from bmfjax.data.io.formats import OF_BITS, is_text
    from bmfjax.data.io.load import load_share
    from bmfjax.data.new_rows import load_new

    given = {name: getattr(options, name) for name in _READING}
    beside = ("anchors", "row_attributes", "column_attributes")
    reads_text = is_text(Path(source).suffix.lower()) and source not in dataset_names()
    if not reads_text and any(getattr(options, name, None) for name in beside):
        given |= {"decimal": "auto", "encoding": None}  # which are of those files
    if kind is BinaryMatrix and fitted is None:
        return load(source, **given) if share_of is None else load_share(source, share_of, **given)
    for name in OF_BITS if kind is not BinaryMatrix else ():
        if given.pop(name) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} is for models of ones and zeros; leave it out"
            )
    if fitted is not None:
        return load_new(source, fitted, **given)
    if kind is Ratings:
        return load_ratings(source, scale=getattr(options, "scale", None), **given)
    return load_real(source, **given)


def _no_ratings(options):
    from bmfjax.data.datasets import dataset_names

    if options.data in dataset_names():
        return InputError(
            f"{options.data} is a matrix of ones and zeros, and --model {options.model} is for "
            "ratings; give a file of these, or --model probit"
        )
    return InputError(
        f"{options.data} is no file; give one of lines of row, column and rating, or of a table"
    )


def _read_new(options, fitted):
    """Read rows for a fit as its own data are read, and say what was read."""
    new = _load(options, options.new, type(fitted), fitted=fitted)
    # Beside the table, which may go to the standard output.
    _say(f"{options.new}: {new.reading}", error=True)
    return new


def _tell(result, output) -> None:
    """Print the factors and the verdict."""
    from bmfjax.verdict import and_empty, rank_given
    from bmfjax.verdict.undrawn import said_elsewhere

    with said_elsewhere(result):  # in the verdict, below
        table = result.summary().reset_index()
    what = result.data.name or output.name
    without = and_empty(result.figures)
    found = result._rank_probabilities is not None
    # The number that was found stands below, and beside it which factors the table has.
    rank = "number of factors found" if found else rank_given(result.figures, result.rank)
    title = f"{what}: {result.model} model, {rank}"
    if not result.verdict.is_of_starts:
        _print_table(table, title)
    elif not found:  # where chains began says nothing of the data
        _say(title)
    if _has_modes(result):
        _tell_modes(result.modes)
    _say(str(result.verdict))
    if result._can_be_checked and not result.verdict.is_of_starts:
        # What to fit instead may stand in the verdict already.
        check, other = result.check(), result._other_model
        _say(check.sentence if other and other in result.verdict.remedy else str(check))
    if result.held_out is not None:
        _say(str(result.held_out))
    if found and not result.verdict.is_of_starts:
        from bmfjax.report.number import number_sentence

        what = "The posterior has" if result.figures.converged else "These draws have"
        if result._is_variational:
            what = "The approximation of the posterior has"
        shown = f"the table has the {result.rank} {result._shown_factors}{without}"
        _say(f"{what} {number_sentence(result)}; {shown}.")
    if result._doubts:
        _say(result._doubts)
    if result.figures.log_evidence is not None:
        _say(result.log_evidence.sentence)
    if sampled := _sampled(result):
        _say(sampled)


def _end(result, missing, output, arguments=(), required=None) -> int:
    """Say where the files are, and how far a run went that was stopped; return the exit code.

    `arguments` are those of the command, where it can be continued, and `required` the part of the
    verdict that is to hold.
    """
    from bmfjax.store import PAGE

    page = output / PAGE
    _say(f"Results are in {output}" + ("" if page in missing else f"; open {page}"))
    code = NOT_ALL_WRITTEN if missing or result.verdict.is_of_starts else 0
    if code == 0 and required is not None and not result.verdict.holds(required):
        code = NOT_HELD
    if result.figures.complete:
        return code
    timed_out, planned = result.figures.timed_out, result.settings["num_samples"]
    of = "" if planned == "auto" else f" of {planned:,}"
    reached = f"{result.figures.num_draws:,}{of} draws a chain"
    warmup = result.figures.planned_warmup
    if warmup is not None and result.figures.num_warmup < warmup:
        reached = f"{result.figures.num_warmup:,} of {warmup:,} steps of warm-up"
    if result._is_variational:
        steps = result.figures.steps
        reached = f"{steps:,} step{'s' * (steps != 1)} of optimisation"
    why = "the time was up (--max-time)" if timed_out else "interrupted"
    more = ""
    if arguments:
        more = f"; to continue: {_resuming(arguments, result.figures if timed_out else None)}"
    how_far = f"after {reached}; the results in {output} are from these"
    if result.verdict.is_of_starts:
        how_far = f"before the sampler drew; the results in {output} are where chains began"
    kept = _kept_back(not result.verdict.is_of_starts) if timed_out else ""
    _say_error(f"{why} {how_far}{kept}{more}")
    return code if timed_out else INTERRUPTED


def _kept_back(drew: bool = True) -> str:
    """Say when sampling ended because of the limit, and what the time after it was for.

    That is what was kept for the report; of a command that took longer what it did until now. Where
    nothing was drawn there is no sampling that could have ended.
    """
    from bmfjax.families.sampling import TOLD_SECONDS
    from bmfjax.progress import minutes

    clock = running_clock()
    ended, kept = clock.ended or (0.0, 0.0)
    over = clock.ended is not None and clock.limit is not None and clock.spent - clock.limit
    if max(over, kept) < TOLD_SECONDS:
        return ""
    before = [what for begin, what in clock.works if begin <= ended]
    said = "sampling ended" if drew or not before else f"{before[-1]} was given up"
    after = f"and {kept:.0f} s were kept for the report"
    if over >= TOLD_SECONDS:
        spent = {what: s for what, s in clock.worked_on(ended).items() if s >= 1.0}
        parts = [
            f"{f'ending {what}' if what in before[-1:] else what} {s:.0f} s"
            for what, s in spent.items()
        ]
        after = f"and the command ended {minutes(over)} after the limit"
        after += f": {', '.join(parts)}" * bool(parts)
    return f" ({said} at {minutes(ended)}, {after})"


def _sampled(result) -> str:
    """Say how many chains and draws there are, given or chosen; nothing of what draws no chains."""
    if result._is_variational or result.sampler == "smc":
        return ""
    chains, figures = result._num_chains, result.figures
    if result.verdict.is_of_starts:
        return f"{chains} start{'s' * (chains > 1)}, and no draws"
    kept, drawn, steps = figures.thinning, figures.num_draws, figures.num_warmup
    searching = f" ({result._search_steps:,} before them searched for starts)"
    return (
        f"{chains} chain{'s' * (chains > 1)} of {drawn:,} draw{'s' * (drawn != 1)} after "
        f"{steps:,} step{'s' * (steps != 1)} of warm-up{searching * (result._search_steps > 0)}"
        f"{f'; one draw in {kept:,} was kept' * (kept > 1)}"
    )


def _has_modes(result) -> bool:
    """Tell whether there may be modes to look at; to search them takes long in many draws."""
    return result._has_modes and result.figures.chains_differ


def _tell_modes(modes) -> None:
    """Print the modes where there are several; of one, where its chains differ."""
    if len(modes) > 1:
        _print_table(
            modes.table.reset_index(), f"{len(modes)} modes, weights by {modes.weighted_by}"
        )
    if len(modes) > 1 or modes.differences is not None:
        _say(modes.shared)


def _print_table(frame, title) -> None:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def plain(value, style=""):  # rich would read "[red]" and ":smile:" in a str
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        return Text(printable(text), style=style)

    table = Table(title=plain(title, "table.title"), title_justify="left")
    for column in frame.columns:
        numbers = pd.api.types.is_numeric_dtype(frame[column])
        # At an underscore a narrow terminal has no place to break a line.
        heading = plain(str(column).replace("_", " "))
        table.add_column(heading, justify="right" if numbers else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*map(plain, row))
    with _reader(sys.stdout):
        Console().print(table)


# ---- merge -----------------------------------------------------------------------------------


def _add_merge(commands) -> None:
    merge = commands.add_parser(
        "merge",
        help="make one fit of chains that ran apart",
        formatter_class=_Help,
        description="Merge chains of bmfjax fit --chain: align them, judge whether they agree, and "
        "write what bmfjax fit writes. The draws are those of one run with all chains.",
    )
    merge.add_argument(
        "directory", type=Path, metavar="DIR", help="the --output of bmfjax fit --chain"
    )
    merge.add_argument(
        "--missing", action="store_true",
        help="leave out chains that are not there or not complete (else they are an error)",
    )  # fmt: skip
    merge.add_argument("--output", type=Path, help="directory (DIR where not given)")
    merge.add_argument(
        "--overwrite", action="store_true", help="replace a fit that is there; files of others stay"
    )
    _add_written(merge)
    merge.set_defaults(run=_merge)


def _merge(options) -> int:
    from bmfjax.families.apart import check_merge, data_of
    from bmfjax.fitting import merge
    from bmfjax.store import FILES, PAGE, check_files, check_output, hold

    _check_level(options)
    output, names = options.output or options.directory, (*FILES, PAGE)
    check_merge(options.directory, output)
    check_output(output, options.overwrite, names)
    result = merge(options.directory, missing=options.missing)
    options.data = data_of(options.directory)
    _check_has_tiles(options, result, result.model)
    with hold(output):
        check_files(output, options.overwrite, names)
        _check_tables(options, output, options.overwrite)
        try:
            _tell(result, output)
        finally:
            missing = _write(result, output, options.probability)
        missing += _write_page(result, output)
        missing += _write_tables(result, options, output, options.overwrite)
    return _end(result, missing, output, (), options.require)


# ---- rank ------------------------------------------------------------------------------------


def _add_rank(commands, models) -> None:
    rank = commands.add_parser(
        "rank",
        help="compare numbers of factors, and recommend one",
        formatter_class=_Help,
        description="Fit every rank, and compare them by P(rank), the log density of hidden "
        "entries and of hidden blocks (bi-cross-validation), PSIS-LOO, code length, and the "
        "agreement of chains; recommend the smallest rank whose held-out scores are within two "
        "standard errors of the best.",
    )
    if not models:
        return
    rank.add_argument("data", nargs="?", default="house-votes", help="a shipped name or a file")
    rank.add_argument(
        "--ranks", default="2:8", metavar="RANKS", help="2:12 is all from 2 to 12; 2,4,8 is these"
    )
    _add_sampling(rank)
    rank.add_argument(
        "--max-time", type=_number(float, *_ABOVE_ZERO), default=120.0, metavar="SECONDS",
        help="sampling for a rank, divided among its fits; inf is no limit",
    )  # fmt: skip
    rank.add_argument(
        "--hidden", type=_number(float, *_BETWEEN), default=0.1, metavar="SHARE",
        help="share of the observed entries that are hidden at once",
    )  # fmt: skip
    rank.add_argument(
        "--without", action="append", default=[], choices=["evidence", "entries", "blocks"],
        help="leave out P(rank), hidden entries or bi-cross-validation, and so their fits; may be "
        "given again",
    )  # fmt: skip
    _add_seed(rank, "of the fits, and of what is hidden")
    rank.add_argument(
        "--output", type=Path, metavar="FOLDER",
        help="folder for table.csv, ranks.json and the picture ranks.png (where not given: the "
        "table is only printed)",
    )  # fmt: skip
    rank.add_argument(
        "--overwrite", action="store_true", help="replace a comparison of ranks that is there"
    )
    rank.add_argument("--quiet", action="store_true", help="do not tell what runs")
    _add_models(rank)
    _add_ratings(rank)
    _add_reading(rank)
    rank.set_defaults(run=_rank, probability=False)


def _rank(options) -> int:
    from bmfjax.comparison.ranks import check_folder, compare_ranks, read_ranks

    ranks = read_ranks(options.ranks)
    if options.output is not None:
        check_folder(options.output, options.overwrite)
    data = _read(options)
    model, sampler_options = of_model(options)
    found = compare_ranks(
        data,
        ranks,
        model=model,
        sampler=_sampler(options, model, sampler_options, data),
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.samples,
        max_time=options.max_time,
        seed=options.seed,
        progress=not options.quiet,
        hidden=options.hidden,
        without=options.without,
    )
    options.line.close()
    _print_table(found.printed, f"Ranks of {data.name or options.data}: {options.model} model")
    _say(*found.lines)
    if options.output is not None:
        found.save(options.output, overwrite=options.overwrite)
        _say(f"Table and picture are in {options.output}; look at {options.output / 'ranks.png'}")
    return 0


# ---- predict, recommend, transform -----------------------------------------------------------


def _add_predict(commands) -> None:
    predict = commands.add_parser(
        "predict",
        help="predict cells with a fit",
        formatter_class=_Help,
        description="Predict cells with a fit: the mean, standard deviation and central interval "
        "of each (log_odds, log_odds_sd, ... where the model is of these, such as features); also "
        "the probability of a one, or of every star, where the model has it.",
    )
    predict.add_argument("directory", type=Path, metavar="DIR", help="a directory of bmfjax fit")
    predict.add_argument(
        "--cells", type=Path, required=True, metavar="FILE",
        help="lines that begin with the names of row and column, such as held-out ratings; further "
        "fields are left out",
    )  # fmt: skip
    predict.add_argument(
        "--header", action=argparse.BooleanOptionalAction,
        help="first line names the fields (where not given: if it names no row and no column of "
        "the fit, and holds no digit or has names such as user and movieId)",
    )  # fmt: skip
    predict.set_defaults(header="auto")
    predict.add_argument(
        "--level", type=_number(float, *_BETWEEN), default=0.9, help="probability of the interval"
    )
    predict.add_argument(
        "--noisy", action="store_true",
        help="predict observations, noise or flips included; the table then leaves out what an "
        "observation does not have, such as the interval of a zero or one",
    )  # fmt: skip
    _add_table(predict)
    predict.set_defaults(run=_predict)


def _add_recommend(commands) -> None:
    recommend = commands.add_parser(
        "recommend",
        help="recommend items to users with a fit of ratings",
        formatter_class=_Help,
        description="Recommend items that a user has not rated, the best first, with the expected "
        "rating, its standard deviation and central interval, and the probability of a high one.",
    )
    recommend.add_argument("directory", type=Path, metavar="DIR", help="a directory of bmfjax fit")
    recommend.add_argument(
        "--user", action="append", metavar="NAME",
        help="name of a row; may be given again (all rows where not given)",
    )  # fmt: skip
    recommend.add_argument(
        "-k", type=_number(int, *_FROM_ONE), default=10, metavar="N", help="items a user, at most"
    )
    recommend.add_argument(
        "--by", choices=["mean", "quantile", "probability"], default="mean",
        help="expected rating, the lower end of its interval, or the probability of at least "
        "--least",
    )  # fmt: skip
    recommend.add_argument(
        "--least", type=float, metavar="RATING",
        help="rating that counts as high (three quarters up the scale where not given: 4 of 1 to "
        "5 stars; not for probit); with pmf, 3.5 for whole stars of at least 4",
    )  # fmt: skip
    recommend.add_argument(
        "--level", type=_number(float, *_BETWEEN), default=0.9, help="probability of the interval"
    )
    recommend.add_argument("--seen", action="store_true", help="list rated items too")
    _add_table(recommend, "the table is only printed")
    recommend.set_defaults(run=_recommend)


def _recommend(options) -> int:
    from bmfjax.fitting import Fit
    from bmfjax.predictions import write_table

    _check_output(options, options.directory / "summary.json")
    fit = Fit.load(options.directory)
    table = fit.recommend(
        options.user, options.k, seen=options.seen, by=options.by, least=options.least,
        level=options.level,
    )  # fmt: skip
    if options.output is None:
        liked = "a one" if fit.link == "probit" else f"at least {table.attrs['least']:g}"
        title = f"For {', '.join(options.user or ['all'])}, by {options.by}"
        _print_table(table, f"{title}; p liked: probability of {liked}")
        return 0
    write_table(table, options.output, options.overwrite)
    _say(f"{options.output}: {len(table):,} lines")
    return 0


def _add_transform(commands) -> None:
    transform = commands.add_parser(
        "transform",
        help="find the factors of new rows with a fit",
        formatter_class=_Help,
        description="Find the usage of new rows, given the basis of a fit. NEW has the columns of "
        "the fitted data: by their names, in any order, where they have names, else in the same "
        "order.",
    )
    transform.add_argument("directory", type=Path, metavar="DIR", help="a directory of bmfjax fit")
    transform.add_argument(
        "new", metavar="NEW", help="new rows, in a file of the kind that was fitted"
    )
    transform.add_argument(
        "--kind", choices=["mean", "sd"], default="mean",
        help="posterior mean of the usage, or its standard deviation (not for relaxed and nmf)",
    )  # fmt: skip
    _add_table(transform)
    _add_reading(transform)
    transform.set_defaults(run=_transform)


def _add_table(parser, instead="a .csv to the standard output") -> None:
    parser.add_argument(
        "--output", type=Path, metavar="FILE",
        help=f".csv or .parquet to write (where not given: {instead})",
    )  # fmt: skip
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a table of bmfjax; never another file"
    )


def _predict(options) -> int:
    from bmfjax.fitting import Fit
    from bmfjax.predictions import predictions_table, read_cells

    _check_output(options, options.cells)
    fit = Fit.load(options.directory)
    cells = read_cells(options.cells, fit.data, options.header)
    table = predictions_table(fit, *cells, options.level, options.noisy)
    return _give(table, options, "cells")


def _transform(options) -> int:
    from bmfjax.fitting import Fit
    from bmfjax.predictions import usage_table

    _check_output(options, options.new)
    fit = Fit.load(options.directory)
    return _give(usage_table(fit, _read_new(options, fit.data), options.kind), options, "rows")


def _check_output(options, source) -> None:
    from bmfjax.predictions import check_table_file

    if options.output is not None:
        check_table_file(options.output, options.overwrite, source)


def _give(table, options, what) -> int:
    """Write a table to its file, or to the standard output: as it is where a program reads it."""
    from bmfjax.predictions import FLOAT_FORMAT, write_table

    if options.output is None and sys.stdout.isatty():
        text = table.to_csv(index=False, float_format=FLOAT_FORMAT, lineterminator="\n")
        _say(*text.removesuffix("\n").split("\n"))
        return 0
    if options.output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # as in a file, whatever a terminal has
        with _reader(sys.stdout):
            table.to_csv(sys.stdout, index=False, float_format=FLOAT_FORMAT)
        return 0
    write_table(table, options.output, options.overwrite)
    _say(f"{options.output}: {len(table):,} {what}")
    return 0


# ---- compare ---------------------------------------------------------------------------------


def _add_compare(commands) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare fits of the same data",
        formatter_class=_Help,
        description="Compare fits of the same data: which predicts left-out entries better and by "
        "how much, which factors they share, and their verdicts.",
    )
    compare.add_argument(
        "directories", type=Path, nargs="+", metavar="DIR", help="directories of bmfjax fit"
    )
    compare.add_argument(
        "--entries", type=_number(int, "of at least 2", lambda n: n >= 2), default=5000,
        help="observed entries that are scored, at most",
    )  # fmt: skip
    _add_seed(compare, "of the choice of entries")
    _add_table(compare, "the table is only printed")
    compare.set_defaults(run=_compare)


def _compare(options) -> int:
    from bmfjax.comparison import compare
    from bmfjax.fitting import Fit
    from bmfjax.predictions import write_table

    for directory in options.directories:
        _check_output(options, directory / "summary.json")
    fits = [Fit.load(directory) for directory in options.directories]
    names = [str(directory) for directory in options.directories]
    found = compare(fits, names=names, max_entries=options.entries, seed=options.seed)
    if options.output is not None:
        write_table(found.table.reset_index(), options.output, options.overwrite)
    _print_table(found.printed.reset_index(), f"Fits of {fits[0].data.name or 'the same data'}")
    _say(*found.lines)
    return 0


# ---- generate, report, datasets --------------------------------------------------------------


def _add_generate(commands) -> None:
    generate = commands.add_parser("generate", help="make a matrix with a known factorisation")
    kinds = generate.add_subparsers(dest="kind", required=True, metavar="KIND")
    form = _Help

    tiles = kinds.add_parser(
        "tiles",
        help="tiles with noise (Gonsior 2019, algorithm 3.3)",
        description="Index blocks and random patterns (Gonsior 2019, algorithm 3.3).",
        formatter_class=form,
    )
    _add_size(tiles, rank=30)
    tiles.add_argument(
        "--pattern-fraction", type=_number(float, *_PROBABILITY), default=0.1,
        help="share of further rows in a tile",
    )  # fmt: skip
    for name, what in (
        ("index", "rows and columns of an index block"),
        ("pattern", "further rows and columns of a tile"),
    ):
        tiles.add_argument(f"--{name}-size", type=_number(int, *_FROM_ZERO), help=what)
    tiles.add_argument(
        "--noise", type=_number(float, *_PROBABILITY), nargs=2, default=(0.01, 0.05),
        metavar=("P+", "P-"),
        help="probabilities that a zero and a one is flipped",
    )  # fmt: skip
    tiles.set_defaults(run=_generate)

    product = kinds.add_parser(
        "product",
        help="a random Boolean product with flipped bits",
        description="Random factors with a given density of the product, then bit flips.",
        formatter_class=form,
    )
    _add_size(product, rank=5)
    for name, default, what in (
        ("density", 0.5, "expected share of ones"), ("flip", 0.0, "probability of a flipped bit")
    ):  # fmt: skip
        share = _number(float, *_PROBABILITY)
        product.add_argument(f"--{name}", type=share, default=default, help=what)
    product.set_defaults(run=_generate)


def _add_size(parser, rank) -> None:
    for name, default in (("rows", 512), ("columns", 512), ("rank", rank)):
        parser.add_argument(f"--{name}", type=_number(int, *_FROM_ONE), default=default)
    _add_seed(parser, None)
    parser.add_argument("--output", type=Path, required=True, help="file to write (.npz)")
    parser.add_argument("--overwrite", action="store_true", help="replace a file of bmfjax")


def _generate(options) -> int:
    from bmfjax.data import generate_product, generate_tiles, save
    from bmfjax.data.io.npz import check_target

    check_target(options.output, options.overwrite)
    size = {"rows": options.rows, "columns": options.columns, "rank": options.rank}
    if options.kind == "tiles":
        made = generate_tiles(
            **size,
            pattern_fraction=options.pattern_fraction,
            index_size=options.index_size,
            pattern_size=options.pattern_size,
            noise=tuple(options.noise),
            seed=options.seed,
        )
    else:
        made = generate_product(
            **size, density=options.density, flip=options.flip, seed=options.seed
        )
    path = save(
        options.output,
        made.data,
        usage=made.usage,
        basis=made.basis,
        overwrite=options.overwrite,
    )
    flipped = made.data.count_errors(made.usage, made.basis)
    _say(
        f"{path}: {options.rows} x {options.columns}, rank {options.rank}, "
        f"{made.num_clean_ones} ones in the product, {flipped} entries flipped"
    )
    return 0


def _add_report(commands) -> None:
    report = commands.add_parser("report", help="write report.html of a fit again")
    report.add_argument("directory", type=Path, help="a directory of bmfjax fit")
    report.add_argument("--output", type=Path, help="file (default: report.html there)")
    report.add_argument("--overwrite", action="store_true", help="replace an existing page")
    report.set_defaults(run=_report)


def _report(options) -> int:
    from bmfjax.fitting import Fit
    from bmfjax.store import PAGE, check_page

    path = options.output or options.directory / PAGE
    if options.directory.is_dir():  # else there is no fit to load, which is said below
        check_page(path, options.overwrite)
    _say(Fit.load(options.directory).report(path, overwrite=options.overwrite))
    return 0


def _datasets(options) -> int:
    from bmfjax.data import datasets

    for d in datasets():
        rows, columns = d.shape
        missing = f", {d.num_missing} missing" if d.num_missing else ""
        _say(f"{d.name:<24}{rows} x {columns}, {d.density:.1%} ones{missing}")
        _say(f"{'':<24}{d.title} ({d.licence})")
    _say("", "Fit one with: bmfjax fit NAME --rank 4")
    return 0


def run() -> None:
    """Entry point of the `bmfjax` command."""
    code = main(ends_process=True)
    compiling = sys.modules.get("bmfjax.kernels.numerics.compiling")
    if code >= SIGNALLED or (compiling is not None and compiling.is_compiling()):
        # XLA may still compile, and its threads crash in an interpreter that takes itself apart.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    # Else the interpreter looks through all that was traced for garbage, a second or more.
    gc.disable()
    gc.freeze()
    sys.exit(code)
