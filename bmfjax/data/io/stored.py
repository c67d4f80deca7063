"""Read the files that this package wrote: what is damaged is known, whatever the damage is.

All stored files are read through `reading_stored`; archives of arrays through `opened_stored`,
which looks at every byte first. Their checksums are of the packed arrays alone, so that names,
sizes and headers are compared with each other here.
"""

import errno
import os
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path

from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import array_header, array_size
from bmfjax.data.io.files import opened_npz

#: What the system says where the file may well be whole: it cannot be read by us, or not now.
NO_DAMAGE = {
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOLCK,
}  # fmt: skip
#: The last record of an archive: how it begins, and its bytes where there is no comment after it.
END, END_BYTES = b"PK\x05\x06", 22
#: Most bytes that one byte of Deflate unpacks to.
MOST_PACKED = 1032


class DamagedFile(InputError):
    """A file that this package wrote is missing, or is not as it was written.

    `said`, what is wrong with it, is the end of a sentence.
    """

    def __init__(self, path, said="is damaged", is_missing=False):
        super().__init__(f"{path} {said}")
        self.path, self.said, self.is_missing = Path(path), said, is_missing


@contextmanager
def reading_stored(path):
    """Read a file that this package wrote: all that damage can raise becomes `DamagedFile`.

    What may not be read, needs more memory, or is of another version is no damage: it is an
    `InputError` that says so.
    """
    try:
        yield
    except DamagedFile:
        raise
    except InputError as err:
        raise InputError(f"{path}: {err}") from err
    except Warning:
        raise  # not the fault of the file
    except OSError as err:
        if err.errno in NO_DAMAGE:
            raise InputError(
                f"{path} cannot be read: {os.strerror(err.errno)}; the file may be whole, so "
                "check permissions"
            ) from err
        if isinstance(err, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            raise DamagedFile(path, "is missing", is_missing=True) from err
        raise DamagedFile(path) from err
    except MemoryError as err:
        raise InputError(
            f"{path} needs more memory than there is; use a machine with more memory"
        ) from err
    except Exception as err:
        # Broad with intent: a single bit decides which of a dozen classes zipfile, zlib, NumPy,
        # json and HDF5 raise.
        raise DamagedFile(path) from err


@contextmanager
def opened_stored(path, is_known):
    """Open an .npz that this package wrote, once every byte of every array is found whole.

    Arrays that `is_known` does not know by name are damage: a format has no others.
    """
    with reading_stored(path):
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            if not (_is_complete(file, archive) and _is_whole(archive, os.path.getsize(path))):
                raise DamagedFile(path)
        with opened_npz(path) as arrays:
            for name in arrays:
                if not is_known(name):
                    raise DamagedFile(path, f"holds {name!r}, which no such file has")
            yield arrays


def _is_complete(file, archive):
    """Say whether an archive lists as many arrays as its end says: one may hide the next."""
    file.seek(-END_BYTES, os.SEEK_END)
    end = file.read()
    number = int.from_bytes(end[10:12], "little")
    return end.startswith(END) and number == len(archive.infolist())


def _is_whole(archive, size):
    """Say whether the arrays of an archive of `size` bytes are as they were written."""
    members = archive.infolist()
    # Before anything is unpacked: the list of members may be what is damaged.
    if sum(info.compress_size for info in members) > size:
        return False
    if len({info.filename for info in members}) < len(members):
        return False
    for info in members:
        if not info.filename.endswith(".npy"):
            return False
        if info.file_size > MOST_PACKED * (info.compress_size + 1):
            return False
        # It raises where the name before the array is another, and where the checksum is.
        with archive.open(info) as member:
            left = array_size(*array_header(member))
            while block := member.read(1 << 20):
                left -= len(block)
        if left:
            return False
    return True


def npz_names(path):
    """Return the names of the arrays in an .npz file; of one that is damaged, at least the first.

    The set is empty where the path is a link, or leads to no file.
    """
    path = Path(path)
    if path.is_symlink() or not path.is_file():
        return set()
    # The table of names is at the end; each name stands before its array too.
    with reading_stored(path), open(path, "rb") as file:
        start = file.read(1000)
    whole = start.startswith(b"PK\x03\x04")
    length = int.from_bytes(start[26:28], "little") if whole else 0
    names = {start[30 : 30 + length].decode(errors="replace")}
    with suppress(DamagedFile), reading_stored(path), zipfile.ZipFile(path) as archive:
        names.update(archive.namelist())
    return {name.removesuffix(".npy") for name in names if name}


def is_damaged_npz(path):
    """Say whether a file is no .npz archive, or one that is not as it was written."""
    try:
        with opened_stored(path, lambda name: True):
            return False
    except DamagedFile:
        return True
