"""The command line: ``bmfjax fit | generate | report | datasets``."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bmfjax.data.errors import InputError

INTERRUPTED = 130
#: Models whose data are ratings.
OF_RATINGS = ("pmf", "ordered-probit")


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option where it has one worth saying."""

    def _get_help_string(self, action):
        if action.default in (None, False, []):
            return action.help
        return super()._get_help_string(action)


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="bmfjax", description="Factorise matrices, with uncertainty."
    )
    parser.add_argument("--version", action="version", version=f"bmfjax {version('bmfjax')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_fit(commands)
    _add_generate(commands)
    _add_report(commands)
    datasets = commands.add_parser("datasets", help="list the matrices that ship with bmfjax")
    datasets.set_defaults(run=_datasets)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 for bad input, 130 when interrupted."""
    options = build_parser().parse_args(arguments)
    try:
        return options.run(options)
    except (InputError, FloatingPointError) as error:
        print(f"bmfjax: {error}", file=sys.stderr)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"bmfjax: cannot use{where}: {error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt as interrupt:
        why = str(interrupt) or "before anything was drawn"
        print(f"bmfjax: interrupted: {why}", file=sys.stderr)
        return INTERRUPTED
    return 2


# ---- fit --------------------------------------------------------------------------------


def _add_fit(commands) -> None:
    fit = commands.add_parser(
        "fit",
        help="factorise a matrix and write the result to a directory",
        formatter_class=_Help,
        description="Factorise a matrix or ratings; write factors, draws, probabilities, a report.",
    )
    fit.add_argument("data", nargs="?", default="house-votes", help="a shipped name or a file")
    fit.add_argument("--rank", type=int, default=4, help="number of factors")
    fit.add_argument(
        "--model", default="ormachine",
        choices=["ormachine", "relaxed", "logistic", "nmf", "pmf", "probit", "ordered-probit"],
        help="Boolean factors and flipped entries; factors in [0, 1] and Gaussian noise; real "
        "factors whose product is the log odds; nonnegative factors of a table of numbers; or real "
        "factors with learned priors, of ratings "
        "with normal noise (pmf), of ones and zeros (probit) or of stars (ordered-probit); the "
        "data of pmf and ordered-probit are lines of row, column and rating",
    )  # fmt: skip
    fit.add_argument(
        "--sampler", choices=["gibbs", "iasg", "thesis", "svi", "batch"],
        help="gibbs: exact; relaxed model also: iasg, thesis, approximate by stochastic gradients, "
        "improved or as published; logistic model: svi, batch, variational inference from drawn "
        "entries or from all (default: gibbs; batch for the logistic model, svi for more than "
        "100 million entries)",
    )  # fmt: skip
    fit.add_argument("--chains", type=int, default=4, help="independent chains")
    fit.add_argument("--warmup", type=int, default=1000, help="steps before draws count")
    fit.add_argument("--samples", type=int, default=3000, help="draws of each chain")
    fit.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="a further option of the sampler, such as moves=birth, sampling=uniform with "
        "--sampler svi, or walls=[1000,30,2] with --model nmf; may be given again",
    )  # fmt: skip
    fit.add_argument(
        "--prior-value", action="append", default=[], metavar="NAME=VALUE",
        help="a value of the model's priors, by its name in bmfjax.fit, such as scale=2 of the "
        "logistic model, usage_rate=0.5 of nmf or level=[3.5,2] of pmf; may be given again",
    )  # fmt: skip
    fit.add_argument("--max-time", type=float, help="stop sampling after so many seconds")
    fit.add_argument("--seed", type=int, default=0, help="the draws depend on it")
    fit.add_argument("--output", type=Path, help="directory (bmfjax-NAME where not given)")
    existing = fit.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace a fit that is there")
    existing.add_argument("--resume", action="store_true", help="continue an interrupted fit")
    fit.add_argument(
        "--probability", action="store_true", help="write probability.npz above 10^7 entries too"
    )
    fit.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_models(fit)
    _add_ratings(fit)
    _add_reading(fit)
    fit.set_defaults(run=_fit)


def _add_models(parser) -> None:
    boolean = parser.add_argument_group("the Boolean model (ormachine)")
    boolean.add_argument(
        "--flip-rates", type=int, choices=[1, 2],
        help="one flip rate, or one each for zeros and ones (one where not given)",
    )  # fmt: skip
    relaxed = parser.add_argument_group("the relaxed model")
    relaxed.add_argument(
        "--prior", choices=["uniform", "normal", "laplace", "beta", "ard"],
        help="prior of the factors' entries (uniform where not given)",
    )  # fmt: skip
    relaxed.add_argument(
        "--precision", type=float, help="fix the noise precision (else learned); nmf and pmf too"
    )
    relaxed.add_argument(
        "--batch-size", type=int, help="rows and columns in a minibatch (iasg, thesis)"
    )
    real = parser.add_argument_group("real factors")
    real.add_argument(
        "--effects", choices=["rows", "columns", "both", "none"],
        help="rows or columns have biases of their own (where not given: none of the logistic "
        "model; both of pmf, probit and ordered-probit, which have both or none)",
    )  # fmt: skip


def _add_ratings(parser) -> None:
    ratings = parser.add_argument_group("ratings (pmf, ordered-probit)")
    ratings.add_argument(
        "--scale", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="lowest and highest rating that there can be; predictions are held inside (the stars "
        "of ordered-probit are those that occur)",
    )  # fmt: skip


def _add_reading(parser) -> None:
    reading = parser.add_argument_group("how to read the file")
    reading.add_argument(
        "--missing", action="append", default=[], metavar="MARK",
        help="a further mark of missing cells, such as '?'; may be given again",
    )  # fmt: skip
    reading.add_argument("--binarize", type=float, metavar="T", help="values above T become ones")
    yes_no = argparse.BooleanOptionalAction
    reading.add_argument(
        "--header", action=yes_no, help="first line holds column names (else guessed)"
    )
    reading.add_argument(
        "--row-names", action=yes_no, help="first column holds row names (else guessed)"
    )
    reading.add_argument("--label-column", help="column that labels the rows, kept out of the fit")


def _fit(options) -> int:
    from bmfjax.cli_model import priors, sampler_options
    from bmfjax.job import prepare
    from bmfjax.storage import CHECKPOINT, check_free, save_fit

    data = _read(options)
    output = options.output or Path(f"bmfjax-{data.name or 'fit'}")
    checkpoint = output / CHECKPOINT
    if options.resume and not (checkpoint / "state.npz").is_file():
        raise InputError(f"{output} holds no interrupted fit to resume; fit without --resume")
    check_free(output, options.overwrite or options.resume)
    job = prepare(
        data,
        options.rank,
        model=options.model,
        sampler=options.sampler,
        priors=priors(options),
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.samples,
        seed=options.seed,
        sampler_options=sampler_options(options),
    )
    # Now: everything given has been checked, and a directory that cannot be made should be
    # known before the sampling. A fit that is there stays until the new one replaces it.
    checkpoint.mkdir(parents=True, exist_ok=True)
    result = job.finish(
        max_time=options.max_time,
        progress=not options.quiet,
        checkpoint=checkpoint,
        resume=options.resume,
    )
    save_fit(result, output, overwrite=True, probability=options.probability)
    result.report(output / "report.html", overwrite=True)
    return _tell(result, output, checkpoint, options.max_time)


def _read(options):
    from bmfjax.data import load, load_ratings, load_real

    if options.model in OF_RATINGS:
        for name in ("missing", "binarize", "row_names", "label_column"):
            if getattr(options, name) not in (None, []):
                raise InputError(
                    f"--{name.replace('_', '-')} means nothing for lines of ratings; leave it out"
                )
        if options.probability:
            raise InputError("--probability is for models of ones and zeros; leave it out")
        if not Path(options.data).is_file():
            raise InputError(f"{options.data} is no file; give one of lines of row, column, rating")
        header = "auto" if options.header is None else options.header
        found = load_ratings(options.data, scale=options.scale, header=header)
        low, high = found.range
        print(
            f"{options.data}: {len(found.values):,} ratings from {low:g} to {high:g}, of "
            f"{found.num_rows:,} rows and {found.num_columns:,} columns"
        )
        return found
    if options.scale is not None:
        raise InputError("--scale belongs to models of ratings; leave it out, or give --model pmf")
    reading = {
        "missing": options.missing,
        "header": "auto" if options.header is None else options.header,
        "row_names": "auto" if options.row_names is None else options.row_names,
        "label_column": options.label_column,
    }
    if options.model == "nmf" and Path(options.data).is_file():
        if options.binarize is not None:
            raise InputError("--binarize is for models of ones and zeros; leave it out")
        return load_real(options.data, **reading)
    return load(options.data, binarize=options.binarize, **reading)


def _tell(result, output, checkpoint, stop_after) -> int:
    """Print the factors, the verdict and where the files are."""
    table = result.summary().reset_index()
    what = result.data.name or output.name
    _print_table(table, f"{what}: {result.model} model, rank {result.rank}")
    print(result.verdict)
    print(f"Results are in {output}; open {output / 'report.html'}")
    if result.scalars["complete"]:
        shutil.rmtree(checkpoint, ignore_errors=True)
        return 0
    timed_out = stop_after is not None and result.scalars["seconds"] >= stop_after
    reached = (
        f"{result.scalars['num_draws']} of {result.settings['num_samples']} draws a chain; what "
        "was drawn is kept"
    )
    if result.approximation:
        reached = f"step {result.scalars['steps']} of its optimisation; what it reached is kept"
    print(
        f"bmfjax: stopped after {reached}, and the same command with --resume continues",
        file=sys.stderr,
    )
    return 0 if timed_out else INTERRUPTED


def _print_table(frame, title) -> None:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in frame.columns:
        numbers = pd.api.types.is_numeric_dtype(frame[column])
        table.add_column(str(column), justify="right" if numbers else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    Console().print(table)


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
        "--pattern-fraction", type=float, default=0.1, help="share of further rows in a tile"
    )
    tiles.add_argument("--index-size", type=int, help="rows and columns of an index block")
    tiles.add_argument("--pattern-size", type=int, help="further rows and columns of a tile")
    tiles.add_argument(
        "--noise", type=float, nargs=2, default=(0.01, 0.05), metavar=("P+", "P-"),
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
    product.add_argument("--density", type=float, default=0.5, help="expected share of ones")
    product.add_argument("--flip", type=float, default=0.0, help="probability of a flipped bit")
    product.set_defaults(run=_generate)


def _add_size(parser, rank) -> None:
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--rank", type=int, default=rank)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="file to write (.npz)")
    parser.add_argument("--overwrite", action="store_true", help="replace the file")


def _generate(options) -> int:
    from bmfjax.data import generate_product, generate_tiles, save

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
        clean=made.clean,
        overwrite=options.overwrite,
    )
    flipped = int((made.data.dense() != made.clean).sum())
    print(
        f"{path}: {options.rows} x {options.columns}, rank {options.rank}, "
        f"{int(made.clean.sum())} ones in the product, {flipped} entries flipped"
    )
    return 0


def _add_report(commands) -> None:
    report = commands.add_parser("report", help="write report.html of a fit again")
    report.add_argument("directory", type=Path, help="a directory of bmfjax fit")
    report.add_argument("--output", type=Path, help="file (default: report.html there)")
    report.add_argument("--overwrite", action="store_true", help="replace an existing file")
    report.set_defaults(run=_report)


def _report(options) -> int:
    from bmfjax.storage import load_fit

    path = options.output or options.directory / "report.html"
    print(load_fit(options.directory).report(path, overwrite=options.overwrite))
    return 0


def _datasets(options) -> int:
    from bmfjax.data import datasets

    for d in datasets():
        rows, columns = d.shape
        missing = f", {d.num_missing} missing" if d.num_missing else ""
        print(f"{d.name:<24}{rows} x {columns}, {d.density:.1%} ones{missing}")
        print(f"{'':<24}{d.title} ({d.licence})")
    print("\nFit one with: bmfjax fit NAME --rank 4")
    return 0


def run() -> None:
    """Entry point of the `bmfjax` command."""
    sys.exit(main())
