"""The small real matrices that ship with the package, each with its source and licence.

`catalogue.toml` describes them, ``<name>.npz`` holds them, and `LICENCES.md` says on what terms.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Dataset:
    """What is known about a shipped matrix; `bmfjax.data.load` loads it by its name.

    Attributes
    ----------
    name, title : str
    rows, columns, labels : str
        What a row, a column and a row label stand for; `labels` is '' where there are none.
    shape : (int, int)
    num_ones, num_missing : int
    source, authors, licence, citation, notes : str
    """

    name: str
    title: str
    rows: str
    columns: str
    labels: str
    shape: tuple[int, int]
    num_ones: int
    num_missing: int
    source: str
    authors: str
    licence: str
    citation: str
    notes: str

    @property
    def density(self):
        """Ones over observed entries, float."""
        return self.num_ones / (self.shape[0] * self.shape[1] - self.num_missing)


def datasets():
    """Return the descriptions of the shipped matrices, in a fixed order.

    Returns
    -------
    list of Dataset

    Examples
    --------
    >>> for dataset in datasets()[:2]:
    ...     print(dataset.name, dataset.shape, dataset.licence)
    house-votes (435, 16) CC BY 4.0
    zoo (101, 21) CC BY 4.0
    """
    return list(_catalogue())


def dataset_names():
    """Return the names of the shipped matrices, a tuple of str."""
    return tuple(dataset.name for dataset in _catalogue())


def dataset_file(name):
    """Return the shipped file of a name, as a resource that may lie in an archive."""
    return files(__name__).joinpath(f"{name}.npz")


@cache
def _catalogue():
    text = files(__name__).joinpath("catalogue.toml").read_text(encoding="utf-8")
    return tuple(
        Dataset(**(entry | {"shape": tuple(entry["shape"])}))
        for entry in tomllib.loads(text)["dataset"]
    )
