"""A fit on disk: one directory, every file whole or not there."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bmfjax.data import BinaryMatrix, InputError, save
from bmfjax.data.storage import read_saved
from bmfjax.diagnostics import Binarized, load_netcdf, posterior_dataset, save_netcdf
from bmfjax.draws import PackedDraws
from bmfjax.factor_table import factor_table
from bmfjax.inference_data import inference_data
from bmfjax.result import Fit
from bmfjax.selection import MAX_ENTRIES

#: What a fit's directory holds; `probability.npz` only for matrices of up to 10^7 entries.
FILES = ("data.npz", "factors.npz", "posterior.nc", "probability.npz", "summary.json")
CHECKPOINT = "checkpoint"
FACTORS = ("usage", "basis")


def holds_fit(directory: str | os.PathLike) -> bool:
    """Whether a directory holds a fit, finished or not."""
    folder = Path(directory)
    return (folder / "summary.json").exists() or (folder / CHECKPOINT / "state.npz").exists()


def check_free(directory: str | os.PathLike, overwrite: bool) -> None:
    """Refuse a directory that holds another fit, before any work is done."""
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a directory for the output")
    if holds_fit(folder) and not overwrite:
        raise InputError(
            f"{folder} already holds a fit; give another directory, or --overwrite (overwrite=True)"
        )


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
        Replace a fit that is there.
    probability : bool
        Write `probability.npz` also for more than 10^7 entries.

    Returns
    -------
    Path
        The directory.

    Raises
    ------
    InputError
        Where the directory holds another fit.

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
    check_free(directory, overwrite)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    _put(folder / "data.npz", lambda path: save(path, fit.data, overwrite=True))
    # Made for the file, not kept with the fit: a byte a bit of the draws.
    _put(folder / "posterior.nc", lambda path: save_netcdf(inference_data(fit), path))
    _put(folder / "factors.npz", lambda path: np.savez_compressed(path, **_factors(fit)))
    small = fit.data.num_rows * fit.data.num_columns <= MAX_ENTRIES
    whole = None
    if isinstance(fit.data, BinaryMatrix) and (probability or small):
        whole = fit.probability(range(fit.data.num_rows), range(fit.data.num_columns))
        values = {"probability": whole.astype(np.float32)}
        _put(folder / "probability.npz", lambda path: np.savez_compressed(path, **values))
    else:
        (folder / "probability.npz").unlink(missing_ok=True)
    # Last: a directory with a summary is a whole fit.
    text = json.dumps(_plain(_summary(fit, whole)), indent=1, allow_nan=False)
    _put(folder / "summary.json", lambda path: path.write_text(text + "\n"))
    return folder


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


def _put(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside, then move. The suffix stays last: some writers add their own."""
    beside = path.with_name(f".unfinished-{path.name}")
    beside.unlink(missing_ok=True)
    try:
        write(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
