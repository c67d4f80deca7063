"""A fit as tables, pages and containers of other programs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd

from bmfjax.data import InputError, checks
from bmfjax.diagnostics.arviz import container, standard_attributes
from bmfjax.posterior.containers import groups_of
from bmfjax.posterior.pointwise import total_density
from bmfjax.report import interop, write_report
from bmfjax.report.drawings import Plots
from bmfjax.result import tables
from bmfjax.verdict.undrawn import of_draws, warn_undrawn


class ExportsMixin:
    """What every fit is for other programs, and for a person."""

    def _repr_html_(self) -> str:
        return interop.notebook_html(self)

    @property
    def plot(self) -> Plots:
        """Drawings by matplotlib: ``fit.plot.matrix()``, ``fit.plot.factors()`` and more.

        Each takes `ax=`, or makes a figure, and returns the axes. ``dir(fit.plot)`` lists those
        that the fit has; see `bmfjax.report.drawings.Plots`.
        """
        return Plots(self)

    def report(self, path, *, overwrite: bool = False):
        """Write one self-contained HTML page for a person.

        Parameters
        ----------
        path : path
            File to write.
        overwrite : bool
            Replace an existing file.

        Returns
        -------
        pathlib.Path
        """
        return write_report(self, path, overwrite=overwrite)

    @of_draws
    def to_frame(self, of: str = "factors") -> pd.DataFrame:
        """Return a table of the factors, with the names that the data and the factors have.

        `usage` and `basis` are attributes, which take no argument; so their tables are asked for
        here. Methods take ``frame=True``: `probability`, `predict`, `transform` and `complete`.

        Parameters
        ----------
        of : {"factors", "usage", "basis", "usage_sd", "basis_sd", "specific"}
            Both factor matrices as one long table, an array by its name, or the columns of each
            factor, the most specific first.

        Returns
        -------
        pandas.DataFrame
            "factors": `side`, "row" or "column"; `name`; `factor` (`factor_names`); `mean` and `sd`
            of the posterior; and where factors are Boolean, or are rounded to such, `member`,
            whether the row or column is in the factor. ``bmfjax fit --export csv`` writes it.

            "usage", "basis" and their standard deviations: rows or columns of the data by factors.

            "specific": `factor`; `name` of a column; `inside` and `outside`, the share of ones
            among the observed entries of the rows that have the factor, and of those that have not;
            `log2_ratio` of these, `mean` of the basis. Columns of a factor with a larger ratio come
            first. For the ratio one one is added to both, among as many entries as have one on
            average in the column, so that few entries say little. It is 0 for a column without a
            one, and where no row, or every row, has the factor.

        Raises
        ------
        InputError
            For "specific" where the model has no rows that are in a factor.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> table = fit.to_frame()
        >>> wide = table.query("side == 'row'").pivot(index="name", columns="factor", values="mean")
        >>> table.columns.tolist(), wide.shape
        (['side', 'name', 'factor', 'mean', 'sd', 'member'], (18, 2))
        """
        return tables.of_factors(self, of)

    @of_draws
    def to_anndata(
        self, adata=None, *, key: str = "bmf", obs: bool = False, overwrite: bool = False
    ):
        """Put the factors into an AnnData object, rows as observations and columns as variables.

        Rows and columns are found by name, and by their order where the fit has no names. The
        object may have further ones: there means are NaN, and Boolean factors False.

        Parameters
        ----------
        adata : anndata.AnnData, optional
            The object to add to, in place; default a new one with the data as X. Needs the extra
            ``bmfjax[h5ad]``.
        key : str
            Its part of the names below.
        obs : bool
            Also put the usage of each factor into a column of ``obs``, such as "bmf factor 1", by
            which scanpy colours its plots.
        overwrite : bool
            Replace what the object has under these names.

        Returns
        -------
        anndata.AnnData
            The object, with ``obsm["X_bmf"]`` and ``varm["bmf_basis"]``, posterior means
            (observations, rank) and (variables, rank); ``obsm["bmf_usage_sd"]`` and
            ``varm["bmf_basis_sd"]``; of Boolean factors ``obsm["bmf_usage_binary"]`` and
            ``varm["bmf_basis_binary"]``, bool; and ``uns["bmf"]`` with the model, the sampler, the
            verdict, the factors' names, figures and settings. With `obs` also its columns.

        Raises
        ------
        InputError
            If rows or columns of the fit are not in the object, if a name is taken, or if anndata
            is not installed.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> adata = fit.to_anndata()
        >>> adata.obsm["X_bmf"].shape, adata.varm["bmf_basis"].shape, adata.uns["bmf"]["model"]
        ((18, 2), (14, 2), 'ormachine')
        """
        checks.switch("obs", obs)
        return interop.to_anndata(self, adata, key, obs, overwrite)

    @property
    def idata(self) -> Any:
        """ArviZ container: `posterior`, `sample_stats`, `observed_data`; see `to_arviz`."""
        warn_undrawn(self)
        return self._idata

    @functools.cached_property
    def _idata(self) -> Any:
        return self.to_arviz()

    @of_draws
    def to_arviz(
        self,
        *,
        log_likelihood: bool = False,
        log_prior: bool = False,
        posterior_predictive: bool = False,
        entries: int | None = None,
        seed: int = 0,
    ) -> Any:
        """Return an ArviZ container with what its functions of prediction and of the prior need.

        With `log_likelihood`, ``az.loo`` and ``az.compare`` work, and with ArviZ 1.x
        ``az.loo_subsample``, see `bmfjax.log_likelihood_fn`. With `posterior_predictive` beside it
        ``az.loo_pit`` works, and with `log_prior` beside it ``az.psense`` (``az.psens`` of ArviZ
        0.23). Observed entries are then listed along the axis `entry`, and missing ones left out;
        the coordinates `row` and `column` are their positions.

        Draws of a variational fit are independent and have one axis, `sample`, with the start of
        each as a coordinate. ArviZ 0.23 and the functions above know chains alone: for these they
        are one chain.

        Parameters
        ----------
        log_likelihood : bool
            Add the log density of every listed entry under every draw. Up to 33,554,432 numbers are
            formed; of more they are formed when they are read, some entries at a time.
        log_prior : bool
            Add the log prior density of every draw, one number, hyperparameters included; see
            `log_prior`. A variational fit also has `log_p`, the log joint density, and `log_q`,
            that of the approximation, in `sample_stats`, for ``az.loo_approximate_posterior`` of
            ArviZ 1.x.
        posterior_predictive : bool
            Add an observation of every listed entry from every draw, noise included.
        entries : int, optional
            List so many observed entries, drawn at random; default all, up to 10^7.
        seed : int
            Seed of these, and of the observations that are drawn.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)

        Raises
        ------
        InputError
            More numbers than are formed, or a fit whose draws do not tell its prior.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> idata = fit.to_arviz(log_likelihood=True)
        >>> dict(idata["log_likelihood"]["data"].sizes)
        {'chain': 2, 'draw': 100, 'entry': 252}
        """
        groups = groups_of(
            self,
            self._arviz_groups(),
            log_likelihood=log_likelihood,
            log_prior=log_prior,
            posterior_predictive=posterior_predictive,
            entries=entries,
            seed=seed,
        )
        return container(groups)

    def _log_prior_of_draws(self) -> np.ndarray:
        r"""Return the log prior density of every draw, all that is drawn included.

        It is what the sampler reports as the log joint density less the log likelihood of all
        observed entries,

        .. math:: \log p(\theta_s) = \log p(\theta_s, D) - \sum_i \log p(x_i \mid \theta_s),

        of the parameters as the sampler has them: of matrix factorisations before factors are
        turned. Rounding in float32 leaves an error of about 10^-6 of the log joint density.

        It is (chain, draw) float64. Refuse draws that are not all that the prior is of: after
        ``rank="auto"``, which leaves out factors, and for new rows or columns; and more than 10^7
        entries.
        """
        left_out = {
            "rank='auto' leaves out": self._finds_rank,
            "is without": "given_new" in self.settings,
        }
        for what, is_so in left_out.items():
            if is_so:
                raise InputError(
                    f"the fit {what} some of what the prior is of, so that its draws do not tell "
                    "log_prior; fit a given rank to the data"
                )
        return self._log_prior()

    def _log_prior(self) -> np.ndarray:
        """Return what `_log_prior_of_draws` does."""
        return self._kept_trace("log_joint") - total_density(self).reshape(self._num_chains, -1)

    def _arviz_groups(self) -> dict[str, Any]:
        """Return the arguments of `to_inference_data`."""
        last = self._kept_steps
        # The trace of a variational fit is of its optimisation, and not of draws.
        trace = {} if self._is_variational else self.trace
        # Numbers, as in `summary`; names where some are known.
        factors = list(self.factor_names if self._given_names else range(1, self.rank + 1))
        return dict(
            # Draws that are packed stay so until they are read.
            posterior={"usage": self.usage_draws, "basis": self.basis_draws, **self.other_draws},
            sample_stats={("lp" if n == "log_joint" else n): t[:, last] for n, t in trace.items()},
            observed_data={"data": self.data.dense()} if self._is_small else None,
            dims={
                "usage": ["rows", "factor"],
                "basis": ["columns", "factor"],
                "data": ["rows", "columns"],
                **self._dims,
            },
            coords={
                "rows": list(self.data.row_names),
                "columns": list(self.data.column_names),
                "factor": factors,
                "other_factor": factors,
            },
            attrs={
                "model": self.model,
                "sampler": self.sampler,
                "verdict": str(self.verdict),
                **self._standard_attributes,
                # How many iterates a draw averages, of a sampler that does.
                **({} if self.figures.window is None else {"window": self.figures.window}),
            },
        )

    @property
    def _standard_attributes(self) -> dict[str, Any]:
        """Attributes of a posterior that ArviZ has names for."""
        seconds = self.figures.seconds
        version = self.versions.get("bmfjax")
        return standard_attributes("bmfjax", version, seconds)
