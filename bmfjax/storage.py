"""A fit on disk: one directory, every file whole or not there."""

from __future__ import annotations

import json
import math
import os
import zipfile
from pathlib import Path

import numpy as np

from bmfjax import reconstruction
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.data.files import OF_FIT, replacing_all
from bmfjax.data.storage import matrix_fields, read_saved
from bmfjax.diagnostics import Binarized, load_netcdf, posterior_dataset
from bmfjax.diagnostics.arviz import write_netcdf
from bmfjax.draws import PackedDraws
from bmfjax.factor_table import factor_table
from bmfjax.inference_data import inference_data
from bmfjax.output import FILES, PAGE, check_files, check_output, hold, is_of_fit
from bmfjax.result import Fit
from bmfjax.selection import MAX_ENTRIES

FACTORS = ("usage", "basis")
#: Written first, so that a file that was cut is known too.
MARK = {OF_FIT: np.array(True)}


def save_fit(
    fit: Fit, directory: str | os.PathLike, *, overwrite: bool = False, probability: bool = False
) -> Path:
    """Write a fit: data, factors, posterior draws, probabilities, summary.

    Parameters
    ----------
    fit : Fit
    directory : path
        Made where it does not exist.
    overwrite : bool
        Replace a fit that is there, its page included. Files that no fit wrote stay.
    probability : bool
        Write `probability.npz` also for more than 10^7 entries.

    Returns
    -------
    Path
        The directory.

    Raises
    ------
    InputError
        Where the directory holds another fit, a file that no fit wrote is in the way, a run writes
        to the directory, or it cannot be written to; an older fit then stays as it is.

    Examples
    --------
    >>> import tempfile, bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = bmfjax.Fit.load(fit.save(folder + "/davis"))
    >>> bool((again.usage_draws[:] == fit.usage_draws[:]).all())
    True
    """
    check_output(directory, overwrite)
    with hold(directory) as folder:
        check_files(folder, overwrite)
        write_fit(fit, folder, probability=probability)
    return folder


def write_fit(fit: Fit, folder: Path, *, probability: bool = False) -> None:
    """Write all files of a fit over those of an older one, or leave these as they are."""
    small = fit.data.num_rows * fit.data.num_columns <= MAX_ENTRIES
    # A nonnegative fit of ones and zeros has no probability of a one.
    known = isinstance(fit.data, BinaryMatrix) and "probability" in reconstruction.of(fit).kinds
    whole = known and (probability or small)
    names = [name for name in FILES if whole or name != "probability.npz"]
    # The older fit goes whole, and its summary first: where there is one, files belong together.
    older = [folder / "summary.json", folder / "probability.npz"]
    if older[0].exists() and is_of_fit(folder / PAGE):
        older.append(folder / PAGE)
    with replacing_all([folder / name for name in names], discard=older) as drafts:
        draft = dict(zip(names, drafts, strict=True))
        np.savez_compressed(draft["data.npz"], **MARK, **matrix_fields(fit.data))
        np.savez_compressed(draft["factors.npz"], **MARK, **_factors(fit))
        # Made for the file, not kept with the fit: a byte a bit of the draws.
        write_netcdf(inference_data(fit), draft["posterior.nc"])
        found = None
        if whole:
            found = fit.probability(range(fit.data.num_rows), range(fit.data.num_columns))
            values = {"probability": found.astype(np.float32)}
            np.savez_compressed(draft["probability.npz"], **MARK, **values)
        text = json.dumps(_plain(_summary(fit, found)), indent=1, allow_nan=False)
        draft["summary.json"].write_text(text + "\n")


def load_fit(directory: str | os.PathLike) -> Fit:
    """Read what `save_fit` wrote.

    Raises
    ------
    InputError
        Where the directory holds no fit or a file is damaged.
    """
    folder = Path(directory)
    if not (folder / "summary.json").is_file():
        raise InputError(f"{folder} holds no fit (no summary.json); give a directory of bmfjax fit")
    try:
        summary = json.loads((folder / "summary.json").read_text())
        posterior = posterior_dataset(load_netcdf(folder / "posterior.nc"))
        # Opened here: NumPy leaves a damaged file open.
        with open(folder / "factors.npz", "rb") as file, np.load(file) as factors:
            agreement = factors["agreement"]
            binary = None
            if "usage_binary" in factors:
                rounded = factors["usage_binary"], factors["basis_binary"]
                loss = summary["scalars"]["expected_errors"]
                binary = Binarized(*rounded, math.nan if loss is None else loss)
            trace, approximation = (
                {n.removeprefix(start): factors[n] for n in factors if n.startswith(start)}
                for start in ("trace_", "approximation_")
            )
        scalars = {n: math.nan if v is None else v for n, v in summary["scalars"].items()}
        factors = {n: posterior[n].values for n in FACTORS}
        if summary["model"] == "ormachine":
            factors = {n: PackedDraws.pack(values) for n, values in factors.items()}
        return Fit(
            data=read_saved(folder / "data.npz"),
            model=summary["model"],
            sampler=summary["sampler"],
            settings=summary["settings"],
            usage_draws=factors["usage"],
            basis_draws=factors["basis"],
            other_draws={n: posterior[n].values for n in posterior if n not in factors},
            trace=trace,
            agreement=agreement,
            scalars=scalars,
            binary=binary,
            versions=summary["versions"],
            approximation=approximation,
        )
    except InputError:
        raise
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"the fit in {folder} is incomplete or damaged; fit again") from error


def _factors(fit: Fit) -> dict:
    return {
        "usage": fit.usage,
        "basis": fit.basis,
        "usage_sd": fit.usage_sd,
        "basis_sd": fit.basis_sd,
        "agreement": fit.agreement,
        "row_names": np.array(fit.data.row_names),
        "column_names": np.array(fit.data.column_names),
        **{f"trace_{n}": t for n, t in fit.trace.items()},
        **{f"approximation_{n}": a for n, a in fit.approximation.items()},
        **{n: d.mean((0, 1)) for n, d in fit.other_draws.items() if n.endswith("_effect")},
        **({} if fit.is_real else {f"{n}_binary": getattr(fit.binary, n) for n in FACTORS}),
    }


def _summary(fit: Fit, probability) -> dict:
    rows, columns = fit.data.shape
    return {
        "verdict": fit.verdict,
        "model": fit.model,
        "sampler": fit.sampler,
        "data": {
            "name": fit.data.name,
            "rows": rows,
            "columns": columns,
            "ones": getattr(fit.data, "num_ones", None),
            "missing": fit.data.num_missing,
            "fingerprint": fit.data.fingerprint(),
        },
        "settings": fit.settings,
        "scalars": fit.scalars,
        "factors": factor_table(fit, probability).reset_index().to_dict("records"),
        "versions": fit.versions,
    }


def _plain(value):
    """NumPy scalars to Python's, numbers that JSON does not know to null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
