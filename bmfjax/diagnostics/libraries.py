"""Libraries that read or write files of the user when they are imported."""

import atexit
import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType

#: Where matplotlib and ArviZ look for the user's folders.
_FOLDERS = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")


def imported(name: str) -> ModuleType:
    """Import a library; where files of the user prevent that, as if there were none.

    Matplotlib reads a ``matplotlibrc``, which may stand in the current folder and be no text. ArviZ
    0.23 writes to the user's cache folder, which may be read-only.

    Examples
    --------
    >>> imported("matplotlib").__name__
    'matplotlib'
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise
    # What a file of any content makes a library raise is not known.
    except Exception:
        _forget_parts()
        with _without_user_files():
            return importlib.import_module(name)


def _forget_parts() -> None:
    """Forget the modules of packages whose own import failed: they are imported half."""
    for module in list(sys.modules):
        if module.partition(".")[0] not in sys.modules:
            del sys.modules[module]


@contextlib.contextmanager
def _without_user_files() -> Iterator[None]:
    """Let the current folder and those of the user be an empty one, which stays until the end."""
    folder = tempfile.mkdtemp(prefix="bmfjax-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    names = (*_FOLDERS, "MATPLOTLIBRC")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(_FOLDERS, folder))
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        for name in _FOLDERS:
            del os.environ[name]
        os.environ.update(before)
