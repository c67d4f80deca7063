"""The solutions that the draws of a fit are in, and the fit of one of them alone."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar, Self

import numpy as np

from bmfjax import verdict
from bmfjax.data import InputError
from bmfjax.diagnostics.align import agreements
from bmfjax.kernels.tempering import OBSERVED
from bmfjax.posterior.modes import SAME, Modes, modes_of
from bmfjax.posterior.packed import chosen_draws
from bmfjax.verdict import Figures
from bmfjax.verdict.undrawn import warn_undrawn

#: Traces that say nothing where steps are left out.
OF_REPLICAS = (*OBSERVED, "population_accepted")


class ModesMixin:
    """The solutions of draws, where the data determine the factors and not their product alone."""

    _has_modes: ClassVar[bool] = True

    @property
    def modes(self) -> Modes:
        """Which solutions the draws are in, and their weights; computed once.

        Draws are in one mode if their mean factors are alike: the tiles of every factor, matched,
        have a cosine similarity of at least 0.8. Weights come from the evidence where the sampler
        estimates it, from the visits where chains move between modes, and else from stacking,
        which is approximate.

        Returns
        -------
        bmfjax.posterior.modes.Modes
            A sequence with `weights`, `weighted_by`, `common`, `table` and `sentence`; one mode of
            weight 1 where all draws have the same factors.

        Raises
        ------
        InputError
            For models whose factors have either sign: of matrix factorisations the data determine
            only the product, and a variational fit is a mixture of its starts in equal parts.

        References
        ----------
        Yao, Vehtari, Gelman (2022), "Stacking for non-mixing Bayesian computations: the curse and
        blessing of multimodal posteriors", JMLR 23(79).

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> bool(abs(fit.modes.weights.sum() - 1) < 1e-12)
        True
        """
        warn_undrawn(self)
        return self._modes

    @functools.cached_property
    def _modes(self) -> Modes:
        """What `modes` returns; computed once."""
        return modes_of(self, verdict.RHAT_USABLE, self._remedy_of_chains)

    @property
    def _remedy_of_chains(self) -> str:
        """What helps chains that disagree: modes ask for no other model and no more factors."""
        return self.verdict.remedy_of("chains") if self.verdict.remedy else ""

    def restricted(self, mode: int) -> Self:
        """Return the fit of one mode alone: the draws that are in it, and what follows from them.

        Its verdict says that it is one mode only. Chains are cut to as many draws of each as leave
        most draws in all; a chain with few draws in the mode is left out.

        Parameters
        ----------
        mode : int
            Position in `modes`, from 0; those with larger weights come first.

        Returns
        -------
        Fit
            Factors in the order of the first mode. Those that differ from its factors have no name
            that `rename` gave.

        Raises
        ------
        InputError
            Where there is no such mode, or the model has no modes.

        Examples
        --------
        >>> import bmfjax
        >>> fit = bmfjax.fit(
        ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
        ...     progress=False,
        ... )
        >>> str(fit.restricted(0).verdict).startswith("One mode")
        True
        """
        modes = self.modes
        if isinstance(mode, bool) or not isinstance(mode, int | np.integer):
            raise InputError(f"mode is {mode!r}; give a whole number")
        if not 0 <= mode < len(modes):
            raise InputError(f"mode is {mode}; give one from 0 to {len(modes) - 1}, of fit.modes")
        chains, draws = modes.rectangle(mode)
        order = modes.permutation[mode, chains]
        other = {
            n: self._in_order(n, v[chains[:, None], draws], order[:, None])
            for n, v in self.other_draws.items()
        }
        usage, basis = (
            chosen_draws(f, chains, draws, order) for f in (self.usage_draws, self.basis_draws)
        )
        agreeing = agreements(usage.mean(1), basis.mean(1))
        found = dataclasses.replace(
            self,
            settings={**self._settings_of_mode(mode), "mode": f"{mode + 1} of {len(modes)}"},
            usage_draws=usage,
            basis_draws=basis,
            other_draws=other,
            trace={
                n: t[chains[:, None], self._kept_steps[draws]]
                for n, t in self.trace.items()
                if n not in OF_REPLICAS
            },
            agreement=agreeing[0],
            _search_ends=None if self._search_ends is None else self._search_ends.of_chains(chains),
        )
        return found._judged_alone(
            f"One mode of {len(modes)} alone, of weight {modes[mode].weight:.2f} "
            f"({modes.weighted_by})",
            agreeing,
        )

    def _settings_of_mode(self, mode: int) -> dict:
        """Return the settings, with the names of factors that a mode has as the first one does."""
        settings = self._settings_then(f".restricted({mode})")
        if mode and "factor_names" in settings:
            same = self.modes[mode].likeness >= SAME
            same[: self._num_anchors] = True
            names = settings["factor_names"].items()
            settings["factor_names"] = {k: name for k, name in names if same[int(k) - 1]}
        return settings

    def _judged_alone(self, what: str, agreeing: np.ndarray) -> Self:
        """Return a fit of one mode with its own figures, and `what` it is before its verdict."""
        whole = ("log_evidence", "round_trips")
        known = {n: v for n, v in self.figures.known().items() if not n.startswith(whole)}
        known |= {"num_warmup": 0, "thinning": 1, "num_draws": self.usage_draws.shape[1]}
        known |= {"coverage_largest": self._spread.largest, "coverage_mean": self._spread.mean}
        judged = verdict.of_chains(
            self._mixing, self._num_chains, self.figures.errors, agreeing, self.trace,
            exact=self.figures.exact,
            empty=self._empty,
            present=self._present,
            steady=self._steady,
            # The limit itself is not kept with the fit; whether it was reached is.
            residual_floor=np.inf if self.figures.noise_free else 0.0,
            shared_starts=bool(self.figures.shared_starts),
            given_start=bool(self.figures.given_start),
            searches=self._search_counts,
            # What helps the whole fit helps here; a mode in one chain alone is no lack of chains.
            tried=verdict.Tried(
                draws=int(self.figures.num_draws),
                rank=1 if "rank" in self.trace else self.rank,
                remedy=self._remedy_of_chains,
            ),
        )  # fmt: skip
        known |= self._left_out.figures if self._can_be_checked else {}
        figures = Figures(**(known | judged.figures.known() | self._named(judged.figures)))
        judged = dataclasses.replace(judged, scope=what, figures=figures)
        if self.figures.rank_bounded is not None:
            bound, most = self._most_factors, min(self.data.shape)
            cramped = bool(self.figures.rank_cramped)
            # Only draws of the mode, which have no warm-up.
            drawn = self._judged(judged)._rank_draws
            judged = verdict.with_bound(judged, drawn, bound, most, cramped=cramped)
        return self._judged(judged)
