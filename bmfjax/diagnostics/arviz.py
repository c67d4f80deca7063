"""ArviZ: containers, files and summaries that are the same under ArviZ 0.x and 1.x.

The only file that knows the versions. ArviZ 0.x keeps groups in an ``InferenceData``, 1.x in an
``xarray.DataTree``. Here groups are plain :class:`xarray.Dataset` objects, of which both accept
and return the same; only wrapping them differs. Files are read and written group by group
through xarray, so that either version reads what the other wrote.

ArviZ itself is imported where it is used: it takes seconds, and few functions need it.
"""

import datetime
import math
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path

import h5netcdf
import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core.indexing import IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter

from bmfjax.data.blocks import blocks
from bmfjax.data.checks import one_of
from bmfjax.data.errors import InputError
from bmfjax.data.io.files import replacing
from bmfjax.data.io.stored import DamagedFile, reading_stored
from bmfjax.data.memory import require_memory
from bmfjax.diagnostics.libraries import imported
from bmfjax.diagnostics.netcdf_form import check_netcdf
from bmfjax.errors import kind_of, version_of

SUMMARY_COLUMNS = ["mean", "sd", "ess_bulk", "ess_tail", "r_hat"]
ENGINE = "h5netcdf"


def to_inference_data(
    posterior,
    *,
    sample_stats=None,
    observed_data=None,
    log_likelihood=None,
    dims=None,
    coords=None,
    attrs=None,
):
    """Put draws into the container of the installed ArviZ.

    A pointwise log-likelihood is stored only where it is given: one number for every draw and
    entry outgrows everything else.

    Parameters
    ----------
    posterior : mapping of str to array, (chain, draw, ...)
        Boolean arrays are stored as uint8, because the summaries of ArviZ 1.x refuse bool.
    sample_stats : mapping of str to array, (chain, draw, ...), optional
        Under the names of ArviZ: `lp`, `acceptance_rate`, ...
    observed_data : mapping of str to array, (...), optional
    log_likelihood : mapping of str to array, (chain, draw, ...), optional
        Pointwise, under the names of the observed data.
    dims : mapping of str to sequence of str, optional
        Names of the axes of a variable, without chain and draw; ``{name}_dim_0`` ... by default.
    coords : mapping of str to array, optional
        Labels along a named axis, such as row names; 0, 1, ... by default.
    attrs : mapping of str to str, int or float, optional
        Attributes of the posterior group.

    Returns
    -------
    arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)

    Raises
    ------
    InputError
        An empty posterior, an array without (chain, draw), groups of different numbers of chains
        or draws, dims or coords that do not fit, or an attribute of another type.

    Examples
    --------
    >>> idata = to_inference_data({"noise": np.zeros((2, 3))}, attrs={"rank": 4})
    >>> dict(posterior_dataset(idata).sizes)
    {'chain': 2, 'draw': 3}
    """
    return container(
        datasets(
            posterior,
            sample_stats=sample_stats,
            observed_data=observed_data,
            log_likelihood=log_likelihood,
            dims=dims,
            coords=coords,
            attrs=attrs,
        )
    )


def datasets(
    posterior,
    *,
    sample_stats=None,
    observed_data=None,
    log_likelihood=None,
    dims=None,
    coords=None,
    attrs=None,
    lazily=False,
):
    """Return the groups of `to_inference_data` by name, without a container and without ArviZ.

    With `lazily`, packed bits become bytes where they are read, and no sooner.
    """
    if not posterior:
        raise InputError("the posterior is empty; give at least one named array of draws")
    dims, coords = dims or {}, coords or {}
    groups = {"posterior": _dataset(posterior, dims, coords, sampled=True, lazily=lazily)}
    groups["posterior"].attrs.update(_checked_attrs(attrs or {}))
    for name, arrays in (("sample_stats", sample_stats), ("log_likelihood", log_likelihood)):
        if not arrays:
            continue
        groups[name] = _dataset(arrays, dims, coords, sampled=True)
        for axis in ("chain", "draw"):
            sizes = [groups[g].sizes[axis] for g in ("posterior", name)]
            if sizes[0] != sizes[1]:
                raise InputError(
                    f"the posterior has {sizes[0]} {axis}s and {name} {sizes[1]}; "
                    "give both for the same draws"
                )
    if observed_data:
        groups["observed_data"] = _dataset(observed_data, dims, coords, sampled=False)
    return groups


def standard_attributes(library, library_version=None, sampling_time=None):
    """Return the attributes of a posterior that ArviZ has names for.

    The version is by default the installed one.

    Examples
    --------
    >>> standard_attributes("bmfjax", "0.1.0", 2.5)["sampling_time"]
    2.5
    """
    found = {
        "inference_library": library,
        "inference_library_version": library_version or version_of(library),
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return found if sampling_time is None else found | {"sampling_time": float(sampling_time)}


def group(idata, name):
    """Return one group of a container as a dataset.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
    name : str
        Such as ``"sample_stats"``.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    InputError
        No such group.

    Examples
    --------
    >>> idata = to_inference_data({"a": np.zeros((1, 4))}, sample_stats={"lp": np.ones((1, 4))})
    >>> list(group(idata, "sample_stats"))
    ['lp']
    """
    node = idata[one_of("group", name, _group_names(idata))]
    return node.to_dataset() if hasattr(node, "to_dataset") else node


def posterior_dataset(idata):
    """Return the posterior of a container as a dataset.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree

    Returns
    -------
    xarray.Dataset
        With dimensions `chain`, `draw` and those of the variables.

    Raises
    ------
    InputError
        No posterior group.

    Examples
    --------
    >>> list(posterior_dataset(to_inference_data({"noise": np.zeros((2, 3))})))
    ['noise']
    """
    return group(idata, "posterior")


def save_netcdf(idata, path):
    """Write all groups to one netCDF file, compressed, which either version of ArviZ can read.

    The file appears only when it is complete: a run that is stopped while writing leaves an older
    file as it was.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
    path : str or path
        Overwritten where it exists.

    Raises
    ------
    InputError
        The place cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "posterior.nc"
    >>> save_netcdf(to_inference_data({"noise": np.ones((2, 3))}), path)
    >>> float(posterior_dataset(load_netcdf(path))["noise"].mean())
    1.0
    """
    with replacing(path) as draft:
        write_netcdf({name: group(idata, name) for name in _group_names(idata)}, draft)


def write_netcdf(groups, path):
    """Write named datasets in turn; a write that fails leaves a broken file and raises OSError."""
    path = Path(path)
    _check_space(path.parent, groups.values())
    for position, (name, dataset) in enumerate(groups.items()):
        pieces = [key for key in dataset if _in_pieces(dataset[key])]
        whole = dataset.drop_vars(pieces)
        packed = {key: {"zlib": True} for key in whole if whole[key].dtype.kind in "iufb"}
        mode = "a" if position else "w"
        whole.to_netcdf(path, mode=mode, group=name, engine=ENGINE, encoding=packed)
        if pieces:
            _append(path, name, {key: dataset[key].variable for key in pieces})
    if set(_attributes(path)) != set(groups):
        raise OSError("it could not be read back as it was written")


def _in_pieces(array):
    """Tell whether an array is written some draws at a time: draws of bits, a byte each."""
    return array.dtype == np.uint8 and array.dims[:2] == ("chain", "draw") and array.size > 0


def _append(path, group, variables):
    """Write variables (chain, draw, ...) to a group of a file, some draws at a time."""
    with h5netcdf.File(path, "a") as file:
        for name, variable in variables.items():
            chains, draws, *inner = variable.shape
            pieces = list(blocks(draws, math.prod(inner)))
            chunks = (1, pieces[0].stop - pieces[0].start, *inner)
            stored = file[group].create_variable(
                name, variable.dims, variable.dtype, chunks=chunks, compression="gzip"
            )
            stored.attrs.update(variable.attrs)
            for chain in range(chains):
                for some in pieces:
                    stored[chain, some] = variable[chain, some].values


def _check_space(folder, datasets):
    """Refuse a disk that is too full: HDF5 may crash there, or hide that a write has failed."""
    arrays = [array for dataset in datasets for array in dataset.variables.values()]
    # A bit is kept as a byte, and eight of them are compressed to little more than one.
    bound = sum(array.nbytes // (4 if array.dtype == np.uint8 else 1) for array in arrays)
    needed = bound + 100_000  # headers
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"it may take {needed / 1e6:,.1f} MB and {free / 1e6:,.1f} MB are free")


def load_netcdf(path):
    """Read a container back from a netCDF file, wholly into memory.

    Parameters
    ----------
    path : str or path
        Written by :func:`save_netcdf` or by ArviZ itself, of either version.

    Returns
    -------
    arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)

    Raises
    ------
    InputError
        No such file, or one that is cut short, damaged or not netCDF.

    Examples
    --------
    >>> load_netcdf("nowhere.nc")
    Traceback (most recent call last):
        ...
    bmfjax.errors.InputError: there is no file nowhere.nc; give the path of a saved posterior
    """
    return container(read_netcdf(path))


def read_netcdf(path):
    """Return the groups of `load_netcdf` by name, without a container and without ArviZ."""
    try:
        groups = stored_groups(path)
    except DamagedFile as error:
        if error.is_missing:
            raise InputError(
                f"there is no file {path}; give the path of a saved posterior"
            ) from None
        raise InputError(f"{path} is damaged or not a netCDF file; write it anew") from error
    if not groups:
        raise InputError(f"{path} holds no groups of draws; give a file written by ArviZ or bmfjax")
    return groups


def stored_groups(path):
    """Do as `read_netcdf`; raise `DamagedFile` where the file is damaged."""
    with reading_stored(path):
        try:
            size = check_netcdf(path)
        except InputError as error:
            raise DamagedFile(path, f"is damaged: {error}") from error
        # A file that is whole may be of a larger machine, and one that lies may declare anything.
        require_memory(size, "what it declares", "use a machine with more memory")
        with h5netcdf.File(path, "r") as file:
            names = list(file.groups)
        return {name: xarray.load_dataset(path, group=name, engine=ENGINE) for name in names}


def posterior_attributes(path):
    """Return the names of the posterior's attributes in a file; none where it is no such file."""
    return _attributes(path).get("posterior", set())


def _attributes(path):
    """Return the names of the attributes of each group of a file; none where it is broken."""
    try:
        with reading_stored(path):
            check_netcdf(path)
            with h5netcdf.File(path, "r") as file:
                return {name: set(group.attrs) for name, group in file.groups.items()}
    except InputError:
        return {}


def summary(idata, var_names=None):
    """Return ArviZ's summary, cut to the columns that all versions share.

    ArviZ takes about 10 ms a scalar: name a few variables, and use
    :mod:`bmfjax.diagnostics.convergence` for whole factor matrices.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
    var_names : sequence of str, optional
        All variables of the posterior by default.

    Returns
    -------
    pandas.DataFrame
        One row a scalar; columns `mean`, `sd`, `ess_bulk`, `ess_tail`, `r_hat`, float64, unrounded.

    Raises
    ------
    InputError
        A variable that the posterior does not have.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(2, 100))
    >>> list(summary(to_inference_data({"noise": draws})).columns)
    ['mean', 'sd', 'ess_bulk', 'ess_tail', 'r_hat']
    """
    dataset = posterior_dataset(idata)
    names = list(dataset) if var_names is None else list(var_names)
    for name in names:
        one_of("variable", name, dataset)
    if "sample" in dataset.dims:  # independent draws, for which ArviZ 1.x has no R-hat
        dataset = dataset.rename(sample="draw").expand_dims("chain")
    # A scalar that never moved makes ArviZ divide by zero: the nan in its row says so already.
    with np.errstate(divide="ignore", invalid="ignore"):
        # Unrounded is the text "none" in both versions; None asks for rounding.
        table = _import_arviz().summary(dataset[names], round_to="none")
    return table[SUMMARY_COLUMNS].astype(float)


def is_legacy() -> bool:
    """Say whether the installed ArviZ has InferenceData, without importing it."""
    return int(version("arviz").split(".")[0]) < 1


def _import_arviz():
    with warnings.catch_warnings():
        # 0.23 announces its refactoring at import; the range of versions we ask for answers it.
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
        return imported("arviz")


def sampling_wrapper_class() -> type:
    """Return the class that ArviZ wants functions which fit again to be derived from."""
    return _import_arviz().SamplingWrapper


def container(groups):
    """Wrap named datasets in the container of the installed ArviZ."""
    if is_legacy():
        return _import_arviz().InferenceData(**groups)
    return xarray.DataTree.from_dict(groups)


def _group_names(idata):
    return list(idata.children) if hasattr(idata, "children") else list(idata.groups())


class _Bits(BackendArray):
    """Packed bits that become bytes where they are read."""

    dtype = np.dtype(np.uint8)

    def __init__(self, bits):
        self._bits, self.shape = bits, bits.shape

    def __getitem__(self, key):
        return explicit_indexing_adapter(key, self.shape, IndexingSupport.BASIC, self._bytes)

    def _bytes(self, key):
        return np.asarray(self._bits[key]).view(np.uint8)


def _dataset(arrays, dims, coords, sampled, lazily=False):
    """Make one dataset of named arrays; `sampled` ones begin with chain and draw."""
    variables = {}
    for name, values in arrays.items():
        if lazily and not isinstance(values, np.ndarray) and values.dtype == bool:
            values = LazilyIndexedArray(_Bits(values))
        else:
            values = np.asarray(values)
            values = values.view(np.uint8) if values.dtype == bool else values
        leading = ("chain", "draw") if sampled else ()
        if values.ndim < len(leading):
            raise InputError(f"{name} has {values.ndim} axes; give draws as (chain, draw, ...)")
        inner = values.ndim - len(leading)
        names = tuple(dims.get(name, [f"{name}_dim_{axis}" for axis in range(inner)]))
        if len(names) != inner:
            raise InputError(f"{name} has {inner} axes and dims name {len(names)}; name every axis")
        variables[name] = (leading + names, values)
    try:
        dataset = xarray.Dataset(variables)
        used = {key: np.asarray(coords[key]) for key in dataset.dims if key in coords}
        counted = {key: np.arange(size) for key, size in dataset.sizes.items() if key not in used}
        return dataset.assign_coords({**used, **counted})
    except ValueError as error:
        raise InputError(f"dims or coords do not fit the arrays: {error}") from error


def _checked_attrs(attrs):
    for name, value in attrs.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float | np.number):
            raise InputError(f"attribute {name} is {kind_of(value)}; give a text or a number")
    return attrs
