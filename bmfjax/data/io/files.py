"""What readers and writers of files share: sentences for errors, whole files, the threshold."""

import errno
import os
import re
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import scipy.sparse as sp

from bmfjax.data.checks import is_real
from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import check_archive

#: Array in the .npz files of a fit, by which they are known from a user's own.
OF_FIT = "written_by_fit"
#: What file systems say that have no fsync: there is then nothing to wait for.
NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


#: What has no end, or can be read only once, and is no file though it has a path.
_STREAMS = {
    "a device": stat.S_ISCHR,
    "a device of blocks": stat.S_ISBLK,
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
}


def check_no_stream(path):
    """Refuse a device, a pipe or a socket, also behind a link: files are read more than once."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # whoever opens it says what is wrong
        return
    for what, is_one in _STREAMS.items():
        if is_one(mode):
            raise InputError(f"{path} is {what}; write its content to a file, and give that")


@contextmanager
def reading(path):
    """Turn whatever another library raises on a broken file into one `InputError` with its path."""
    check_no_stream(path)
    try:
        yield
    except InputError as err:
        raise InputError(f"{path}: {err}") from err
    except Warning:
        raise  # not the fault of the file
    except MemoryError as err:
        raise InputError(
            f"{path} needs more memory than there is; give a smaller one, or use a machine with "
            "more memory"
        ) from err
    except Exception as err:
        # Broad with intent: on a file cut short, zipfile, zlib, h5py, pyarrow and scipy raise
        # errors of a dozen classes.
        said = " ".join(str(err).split())[:200] or type(err).__name__
        raise InputError(
            f"{path} cannot be read as {path.suffix} ({said}); check that the file is whole and "
            "that its ending is right"
        ) from err


@contextmanager
def opened_npz(path, without=()):
    """Open an .npz archive; it and the file are closed also where the archive is broken.

    Arrays named in `without`, of which parts are read, need not fit into memory.
    """
    with open(path, "rb") as stream:
        # NumPy would call another file a pickle, and say how to load it unsafely.
        if stream.read(2) != b"PK":
            raise InputError(
                "the file is no .npz archive; check that it is whole and what wrote it"
            )
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            check_archive(arrays.zip, without)
            yield arrays


def check_new_file(path, overwrite, is_ours, what):
    """Refuse a path where a file may not be written; return it as a `Path`.

    Only a file that `is_ours` knows is replaced, if `overwrite`; `what` says what such a file is.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it, or give another path")
    if not os.path.lexists(path):
        return path
    if not is_ours(path):
        raise InputError(
            f"{path} already exists and is no {what}; move it away, or give another file"
        )
    if not overwrite:
        raise InputError(
            f"{path} already exists; give another file, or replace it by --overwrite "
            "(overwrite=True)"
        )
    return path


#: A file that is being written; `name` is what it will be called.
DRAFT = re.compile(r"\.unfinished-(?P<process>\d+)-[0-9a-f]{8}-(?P<name>.+)", re.DOTALL)


@contextmanager
def replacing(path):
    """Yield a path to write to; once it is written, the file is moved to `path`."""
    with replacing_all([path]) as (draft,):
        yield draft


@contextmanager
def replacing_all(paths, discard=(), absent=()):
    """Do as `written`, and say in one sentence what failed."""
    paths = [Path(path) for path in paths]
    try:
        with written(paths, discard, absent) as drafts:
            yield drafts
    except OSError as err:
        where = paths[0] if len(paths) == 1 else _named(err) or paths[0].parent
        raise InputError(
            f"{where} cannot be written: {reason(err)}; check permissions and disk space"
        ) from err


@contextmanager
def naming(path):
    """Say which file an error of the system is about, where it does not itself."""
    try:
        yield
    except OSError as err:
        err.filename = path if err.filename is None else err.filename
        raise


def _named(err):
    """Return the file that an error names, under the name that it was to have; None if none."""
    if not isinstance(err.filename, str | os.PathLike):
        return None
    path = Path(err.filename)
    draft = DRAFT.fullmatch(path.name)
    return path.with_name(draft["name"]) if draft else path


@contextmanager
def written(paths, discard=(), absent=()):
    """Yield a draft for each path; all are moved into place, in order, once all are whole.

    A write that fails leaves every path as it was. Files in `discard` are gone once all are there.
    Paths in `absent`, which may be named on the way, need no draft.
    """
    drafts = [_draft(path) for path in paths]
    try:
        yield drafts
        pairs = [pair for pair in zip(drafts, paths, strict=True) if pair[1] not in absent]
        for draft, _ in pairs:
            flush(draft)
        _move_all(*zip(*pairs, strict=True), discard)
        for folder in {path.parent for path in paths}:
            flush_names(folder)
    finally:
        for draft in drafts:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _move_all(drafts, paths, discard):
    """Move files to their places; where one cannot be moved, put back what was there."""
    if len(paths) == 1 and not discard:
        os.replace(drafts[0], paths[0])
        return
    aside, there = [], []
    try:
        for path in dict.fromkeys((*discard, *paths)):
            if os.path.lexists(path):
                aside.append((_draft(path), path))
                os.replace(path, aside[-1][0])
        for draft, path in zip(drafts, paths, strict=True):
            there.append(path)
            os.replace(draft, path)
    except BaseException:
        for path in there:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        for older, path in reversed(aside):
            with suppress(OSError):  # the last of them may not have been moved
                os.replace(older, path)
        raise
    for older, _ in aside:
        with suppress(OSError):
            older.unlink(missing_ok=True)


def _draft(path):
    """Return a new name beside `path`; delete the drafts of it that killed processes left."""
    with suppress(OSError):  # what was left costs nothing but room
        for name in os.listdir(path.parent):
            left = DRAFT.fullmatch(name)
            if left and left["name"] == path.name and not psutil.pid_exists(int(left["process"])):
                path.with_name(name).unlink(missing_ok=True)
    # The suffix stays last: some writers add their own.
    return path.with_name(f".unfinished-{os.getpid()}-{secrets.token_hex(4)}-{path.name}")


def reason(err):
    """Return in one line what made a write fail; HDF5, LaTeX and others say it in paragraphs."""
    number = err.errno if isinstance(err, OSError) else None
    return os.strerror(number) if number else " ".join(str(err).split())[:200]


def flush(path):
    """Wait until a file is on the disk: over a network, only then is it known that it fits."""
    with naming(path), open(path, "r+b") as file:
        try:
            os.fsync(file.fileno())
        except OSError as err:
            if err.errno not in NO_SYNC:
                raise


def flush_names(folder):
    """Make the names in a folder last, too; some systems cannot."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def check_folder(folder):
    """Refuse a folder where files cannot be kept whole: before any work is done.

    A file is written, synced, renamed onto another one and read back.
    """
    older, newer, tried = _draft(folder / "trial"), _draft(folder / "trial"), "writing"
    try:
        for draft in (older, newer):
            draft.write_bytes(b"trial")
        tried = "syncing"
        flush(newer)
        tried = "renaming"
        os.replace(newer, older)
        tried = "reading back"
        if older.read_bytes() != b"trial":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    except OSError as err:
        raise InputError(
            f"{folder} cannot be written to: {reason(err)} ({tried} a file); give another directory"
        ) from err
    finally:
        for draft in (older, newer):
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def thresholded(values, binarize):
    """Return 1 where an entry of `values` exceeds the threshold, else 0; missing stays missing.

    >>> thresholded(np.array([[3.0, 0.5, np.nan]]), 1.0)
    array([[ 1.,  0., nan]])
    """
    if binarize is None:
        return values
    if isinstance(values, pd.DataFrame):
        text = [name for name, kind in values.dtypes.items() if not is_real(kind)]
        if text:
            raise InputError(f"column {text[0]!r} is not numeric; binarize= needs numbers")
        array = thresholded(values.to_numpy(dtype=float, na_value=np.nan), binarize)
        return pd.DataFrame(array, values.index, values.columns)
    if sp.issparse(values):
        if binarize < 0:
            raise InputError(
                f"binarize is {binarize:g} and the file is sparse: every entry that is not stored "
                "would become a one; give a threshold from 0 upwards"
            )
        csr = sp.csr_array(values)
        csr.sum_duplicates()
        csr.data = thresholded(csr.data, binarize)
        return csr
    values = np.asarray(values)
    if not is_real(values.dtype):
        raise InputError(f"the values have dtype {values.dtype}; binarize= needs real numbers")
    ones = (values > binarize).astype(float)
    return np.where(np.isnan(values), np.nan, ones) if values.dtype.kind == "f" else ones
