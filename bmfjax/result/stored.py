"""A fit on disk."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from bmfjax import store
from bmfjax.data import BinaryMatrix, InputError, checks
from bmfjax.data.anchors import Anchors
from bmfjax.diagnostics import Binarized
from bmfjax.diagnostics.arviz import datasets
from bmfjax.errors import outside
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.verdict import Verdict

FACTORS = ("usage", "basis")
#: What the names of arrays of searches begin with.
SEARCHED = "searched_"


class StoredMixin:
    """A fit is written as plain values, and read again."""

    def save(self, directory, *, overwrite: bool = False):
        """Write the fit: data, factors, posterior draws, probabilities, summary.

        Probabilities of all entries are written for binary matrices of up to 10^7 entries. Where
        the draws cannot be written as netCDF a warning says so, and they are in `posterior.npz`.

        Parameters
        ----------
        directory : path
            Made where it does not exist.
        overwrite : bool
            Replace a fit that is there, its page included. Files that no fit wrote stay.

        Returns
        -------
        pathlib.Path
            The directory.

        Raises
        ------
        InputError
            Where the directory has no name or holds another fit, a file that no fit wrote is in the
            way, a run writes to the directory, or it cannot be written to; an older fit then stays
            as it is.

        Examples
        --------
        >>> import tempfile, bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = bmfjax.Fit.load(fit.save(folder + "/davis"))
        >>> bool((again.usage_draws[:] == fit.usage_draws[:]).all())
        True
        """
        if not checks.path_of("directory", directory):
            raise InputError("directory is empty; give the name of a directory")
        with store.opened(directory, overwrite) as folder:
            missing = store.write(self._record(), folder)
        for said in missing:
            warnings.warn(said, stacklevel=outside())
        return folder

    def _record(self, *, probability: bool = False) -> store.Record:
        """Return plain values of the fit, as they are written to its directory.

        With `probability` that of every entry is among them also for a matrix of more than 10^7.
        """
        rows, columns = self.data.shape
        chance = None
        # A fit of ones and zeros as numbers has no probability of a one.
        if isinstance(self.data, BinaryMatrix) and self._is_of_ones:
            if self._is_small:
                chance = self._whole_probability
            elif probability:
                chance = self._probability(np.arange(rows), np.arange(columns))
        groups = datasets(**self._arviz_groups(), lazily=True)
        return store.Record(self.data, self._texts(), self._arrays(), groups, chance)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a record that are not draws."""
        means = {n: d.mean((0, 1)) for n, d in self.other_draws.items() if n.endswith("_effect")}
        rounded = [] if self.binary is None else FACTORS
        return {
            "usage": self._usage,
            "basis": self._basis,
            "usage_sd": self._usage_sd,
            "basis_sd": self._basis_sd,
            "agreement": self.agreement,
            "row_names": np.array(self.data.row_names),
            "column_names": np.array(self.data.column_names),
            **{f"trace_{n}": t for n, t in self.trace.items()},
            **means,
            **{f"{n}_binary": getattr(self.binary, n) for n in rounded},
            **({} if self.anchors is None else {"anchors": self.anchors.values}),
            **({} if self._search_ends is None else self._search_ends.arrays(SEARCHED)),
        }

    def _texts(self) -> dict[str, Any]:
        """Return the texts and numbers of a record."""
        return {
            "verdict": str(self.verdict),
            "judged": self.verdict.stored(),
            "model": self.model,
            "sampler": self.sampler,
            "data": {
                "name": self.data.name,
                "rows": self.data.num_rows,
                "columns": self.data.num_columns,
                "ones": getattr(self.data, "num_ones", None),
                "missing": self.data.num_missing,
                "fingerprint": self.data.fingerprint(),
            },
            "settings": self.settings,
            "scalars": self._scalars(),
            "factors": self._summary.reset_index().to_dict("records"),
            "versions": self.versions,
        }

    @classmethod
    def _of_record(cls, record: store.Record) -> Self:
        """Return the fit that a record was made of."""
        summary, arrays = record.summary, record.factors
        posterior = record.posterior["posterior"]
        draws = {n: posterior[n].values for n in posterior}
        usage, basis = (cls._as_kept(draws.pop(n)) for n in FACTORS)
        binary = None
        if "usage_binary" in arrays:
            rounded = (arrays[f"{n}_binary"] for n in FACTORS)
            binary = Binarized(*rounded, summary["scalars"].get("expected_errors", np.nan))
        trace = {n.removeprefix("trace_"): arrays[n] for n in arrays if n.startswith("trace_")}
        anchors = None
        if "anchors" in arrays:
            anchors = Anchors(tuple(summary["settings"]["anchors"]["names"]), arrays["anchors"])
        return cls(
            data=record.data,
            usage_draws=usage,
            basis_draws=basis,
            other_draws=draws,
            trace=trace,
            agreement=arrays["agreement"],
            binary=binary,
            **cls._own_fields(arrays),
            anchors=anchors,
            _search_ends=SearchEnds.of_arrays(arrays, SEARCHED),
            verdict=Verdict.of_stored(summary),
            **{n: summary[n] for n in ("model", "sampler", "settings", "versions")},
        )

    @classmethod
    def _own_fields(cls, arrays) -> dict[str, Any]:
        """Return the fields that fits of this class alone have, from stored arrays."""
        return {}

    @staticmethod
    def _as_kept(draws: np.ndarray):
        """Return draws that were read as the fit keeps them."""
        return draws
