"""IASG as a NumPyro kernel, for any model with plates."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm, as_jax
from bmfjax.infer.mcmc.plates import at_bounds, bind_plates, constrain, inspect_model
from bmfjax.infer.mcmc.relaxed import (
    bind_relaxed,
    has_standard_blocks,
    plate_conditionals,
    relaxed_arguments,
)
from bmfjax.specs.relaxed import IterateAveraging

#: What the state tells of a window, as `IASGInfo` has it.
STATISTICS = ("clamped", "gradient", "gradient_variance", "sandwich")
#: Where calibration is told to be doubtful: averages with less than this share of the posterior's
#: standard deviation, or more than its inverse, and a curvature that differs by more than this
#: within the posterior.
LEAST_RATIO = {"step": 0.8, "sandwich": 0.2}  # "top-up" adds what averages lack
MOST_DEPARTURE = {"step": 0.1, "sandwich": 0.1, "top-up": 0.3}
#: Share of a draw's bounded coordinates from which on bounds are told to be active.
MOST_CLAMPED = 0.25


class IASG(AlgorithmKernel):
    r"""Iterate averaging stochastic gradient for any NumPyro model with plates.

    Blocks of sites are moved in turn by constant-step stochastic gradients from
    minibatches of named plates; one draw is the average of a window of iterates
    (Mandt, Hoffman, Blei 2017; Gonsior 2019, algorithms 3.1 and 3.2).

    The draws are approximate. Inside the support the covariance of averages is
    :math:`A^{-1}CA^{-1}/N` (see `bmfjax.kernels.iasg`), and by default draws are calibrated to
    that of the posterior. At an active bound the method is wrong in kind, and `clamped` tells how
    many coordinates are there.

    Parameters
    ----------
    model : callable
        A NumPyro model with full plates whose indices pick the data:
        ``with numpyro.plate("rows", n) as i: numpyro.sample(..., obs=y[i])``.
        Give static arguments by ``functools.partial``.
    blocks : sequence, optional
        ``((sites, {plate: batch}), ...)``. Found by itself as for `SGLD`. A batch of None is
        chosen as in `batch_size`.
    batch_size : int or mapping, optional
        For `relaxed_bmf` without `blocks`: cases in a minibatch, one number or
        ``{"rows": ..., "columns": ...}``. Default: the largest with which a draw
        averages eight iterates and has the limit variance, at most a
        thirteenth of the cases (see `bmfjax.kernels.sgmcmc.step_size.averaging_batch`). A plate of
        less than 64 cases allows no such batch: half its cases or less are taken,
        fewer iterates are averaged, and a warning says so.
    preconditioner : {"auto", "newton", "calibrated", None}
        "auto": "newton" without an `optimizer`, and None with one. "newton": the
        inverse curvature of the block (Gram matrix for `relaxed_bmf`, Hessian
        otherwise). "calibrated": the elementwise steps of Gonsior 2019, algorithm
        3.1. None: plain gradient steps.
    step_size : float or mapping, optional
        Factor on the preconditioned gradient, for all sites or by site. Default
        with "newton": the step for which a window average has the limit variance;
        with "calibrated": 1. Needed where `preconditioner` is None.
    window : int or {"matched", "pass"}
        Iterates in an average: a number; or eight for a block with the default
        batch, and for another the most for which a step of at most one half gives
        it the limit variance; or one pass over the data, the largest N/S rounded up
        (Gonsior 2019). Blocks may have different windows: a draw takes as many
        steps as the longest. `windows` has those in use.
    boundary : {"clamp", "reflect", "logit"}
        For sites on a box: what happens to an iterate that leaves it, clamped or reflected
        (not with "newton"); or move in unconstrained coordinates, the logit, in
        which the averages are taken, too. Averages do not follow a density near its
        bound. With a normal density whose mode is a standard deviation outside, reflected
        Newton steps have a mean 0.8 standard deviations too high, and clamped ones 0.2
        too low. `SGLD` reflects and takes no averages.
    delta : float
        Sites on a box stay this share of its width away from both ends.
    replace : bool
        Draw the cases of a minibatch with replacement.
    scale_likelihood : bool
        Multiply the likelihood of S cases by N/S. False, as in the thesis, lets
        the prior weigh more the smaller the batch is; not with "newton".
    conditionals : mapping, optional
        ``{site: draw(key, sites, *args, **kwargs)}``: sites drawn exactly, once a
        window, given the average of the others. A learned precision of
        `relaxed_bmf` is drawn from its Gamma conditional without being named.
    num_calibration : int
        Points for "calibrated".
    num_approach : int, optional
        Adam steps from the start towards a mode, before the first draw. Default:
        1000 with "newton", none for `relaxed_bmf`, whose Newton steps are stable
        from any start, and none otherwise.
    report_variance : bool
        Collect the variance of the gradient over the cases of a minibatch, from
        single-case gradients by ``vmap``, in the field `gradient_variance`; of
        `relaxed_bmf` also the field `sandwich`: by how much the standard deviations
        of long averages differ from the posterior's, given the other factor matrix
        and away from bounds.
    calibration : {"auto", None, "step", "sandwich", "top-up"}
        Measure curvature A and gradient noise C at the mode, from single-case
        gradients by ``vmap``, instead of assuming C = A (see
        `bmfjax.kernels.sgmcmc.calibration`). "auto": "top-up" for Newton steps where no
        `step_size` is given. Sites on a box, several plates a block, too many coordinates and
        sites drawn exactly leave draws uncalibrated, and a warning says so. For `relaxed_bmf`
        and as a block of ``Gibbs``: None. "step": steps for which the variance of
        a draw is the posterior's, on average over the coordinates of a block.
        "sandwich": draws are moved by an affine map that gives them the covariance
        of the posterior, :math:`A^{-1}`. "top-up": the same, and normal noise is
        added to every step where the gradients have too little. Right where the density is nearly
        quadratic with constant curvature and no bounds: refused for sites on a box,
        and a warning tells of a curvature that changes. Up to 1000
        coordinates; of more than 4096 cases a block of more than 256 must be one matrix, whose C
        is then estimated as a Kronecker product.
        The field `sandwich` has the standard deviations before correction, by
        theory, over the posterior's, and ``last_state.inner.calibration`` the rest.
    optimizer : optax.GradientTransformation, optional
        Makes the steps, such as ``optax.sgd(1e-4)``, from the gradient of minus the
        log joint density of all data, as a minibatch estimates it. Its state is
        part of the kernel's. Give a constant learning rate; see the notes.

    Raises
    ------
    InputError
        For options that do not fit each other; at the first run, for blocks that
        do not fit the model.

    Warns
    -----
    UserWarning
        Once, if a window that was matched is shorter than eight iterates, or if draws are not
        calibrated and there are few cases a coordinate, or none can be. At the start of a run,
        where a calibration is doubtful; and where many coordinates are held at their bounds.

    Notes
    -----
    Unlike those of HMC, `init_params` of ``MCMC.run`` are values in the model's
    own, constrained space. Sites without a box move and are averaged in
    unconstrained coordinates.

    With ``calibration=None`` draws may be far from the posterior where a prior says more than
    the cases do, as of the parameters of a hierarchy, or where there are few cases a coordinate:
    steps may even leave for infinity.

    The covariance of long averages does not depend on the step rule as long as the
    rule is linear in the gradients and does not change: plain and preconditioned
    gradient steps, ``optax.sgd``, with momentum :math:`\beta` as well (its effective
    step is the learning rate over :math:`1-\beta`). For Adam, RMSprop and others that
    divide by a running mean of squares it holds only approximately, the better the
    longer that mean; not for clipped or signed gradients, and not for schedules:
    steps that decay leave too little spread. With an optimizer the window is one pass
    over the data, and at least eight; averages reach their spread only where
    learning rate x curvature x window is large in every direction.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     with numpyro.plate("cases", 1000) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> y = 3.0 + random.normal(random.key(0), (1000,))
    >>> mcmc = MCMC(IASG(model), num_warmup=20, num_samples=200, progress_bar=False)
    >>> mcmc.run(random.key(1), y)
    >>> bool(abs(mcmc.get_samples()["mu"].mean() - y.mean()) < 0.02)
    True
    >>> mcmc.sampler.windows
    {'mu': 8}
    """

    _statistics = ("clamped",)
    _cautioned = False
    _compiles_start = True
    _remedy = (
        "use bmfjax.SGLD, or give a smaller step_size, larger batches, or init_params nearer to a "
        "mode"
    )
    #: Iterates that a draw averages, by site; None before the first run.
    windows: dict[str, int] | None = None

    def __init__(
        self,
        model: Callable,
        blocks: Sequence | None = None,
        *,
        batch_size: int | Mapping[str, int] | None = None,
        preconditioner: str | None = "auto",
        step_size: float | Mapping[str, float] | None = None,
        window: int | str = "matched",
        boundary: str = "clamp",
        delta: float = 1e-3,
        replace: bool = True,
        scale_likelihood: bool = True,
        conditionals: Mapping[str, Callable] | None = None,
        num_calibration: int = 2500,
        num_approach: int | None = None,
        report_variance: bool = False,
        calibration: str | None = "auto",
        optimizer: optax.GradientTransformation | None = None,
    ):
        self._model = model
        settings = IterateAveraging(
            blocks=blocks,
            batch_size=batch_size,
            preconditioner=preconditioner,
            step_size=step_size,
            window=window,
            boundary=boundary,
            delta=delta,
            replace=replace,
            scale_likelihood=scale_likelihood,
            conditionals=conditionals,
            num_calibration=num_calibration,
            num_approach=num_approach,
            report_variance=report_variance,
            calibration=calibration,
            optimizer=optimizer,
        )
        self._settings = dataclasses.replace(
            settings, preconditioner=settings.resolved_preconditioner
        )

    @classmethod
    def thesis(
        cls,
        model: Callable,
        blocks: Sequence | None = None,
        *,
        batch_size: int | Mapping[str, int] = 75,
        delta: float = 1e-3,
        num_calibration: int = 2500,
        report_variance: bool = False,
    ) -> IASG:
        """Return the kernel as published: Gonsior 2019, algorithms 3.1 and 3.2.

        Calibrated elementwise steps, a likelihood that is not scaled by N/S, clamp,
        cases drawn with replacement, the longest window. The thesis also fixes the
        precision: give the model ``precision=1.0``.

        Known faults, kept on purpose: the steps are far too small (the calibration
        measures variance between random points), the prior weighs N/S times too
        much, and averaging over N/S iterates at this step leaves too little variance.

        Parameters
        ----------
        model, blocks, batch_size, delta, num_calibration, report_variance
            As for the class.

        Returns
        -------
        IASG
        """
        return cls(
            model,
            blocks,
            batch_size=None if blocks is not None else batch_size,
            preconditioner="calibrated",
            calibration=None,
            window="pass",
            boundary="clamp",
            delta=delta,
            replace=True,
            scale_likelihood=False,
            num_calibration=num_calibration,
            report_variance=report_variance,
        )

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        """Return the first state; see `numpyro.infer.mcmc.MCMCKernel`."""
        state = super().init(rng_key, num_warmup, init_params, model_args, model_kwargs)
        found = state.inner.calibration
        if found is not None and not isinstance(found.departure, jax.core.Tracer):
            kind = self._settings.calibration
            _warn_of(found, "top-up" if kind == "auto" else kind)
        return state

    def get_diagnostics_str(self, state):
        """Return a few words for the progress bar."""
        return f"{super().get_diagnostics_str(state)}, clamped {float(state.clamped):.0%}"

    def _drawn(self, algorithm, inner, info):
        # Not as the algorithm observes them: a site of the model may bear any name.
        return inner.average, info.log_joint, {n: getattr(info, n) for n in STATISTICS}

    def _doubts(self, state):
        return {
            "IASG holds coordinates at their bounds, where averages do not follow the posterior; "
            "use bmfjax.TruncatedGibbs for relaxed_bmf, which is exact, else bmfjax.SGLD, which "
            "reflects, or NUTS": state.clamped > MOST_CLAMPED
        }

    def refresh(self, state, model_args, model_kwargs):
        """Return the state, of which nothing depends on the sites of other blocks of `Gibbs`."""
        if self._settings.calibration is not None:
            raise InputError(
                "calibration measures at the start, and the other blocks of Gibbs change what it "
                "measured; leave calibration out"
            )
        return state

    def wrap_model(self, wrapper):
        """Return a copy on the wrapped model, which is not calibrated unless that was asked for."""
        kernel = super().wrap_model(wrapper)
        if self._settings.calibration == "auto":
            kernel._settings = dataclasses.replace(self._settings, calibration=None)
        return kernel

    def postprocess_fn(self, args, kwargs):
        """Return the map from a draw to the model's own space."""
        arguments = relaxed_arguments(self._model, args, kwargs or {})
        if arguments is not None and has_standard_blocks(self._settings):
            return dict
        # Not by `bind`: as a block of `Gibbs` this is asked for with the other blocks' sites free.
        args, kwargs = as_jax(args, kwargs or {})
        sites = inspect_model(self._model, args, kwargs)
        if self._settings.boundary == "logit":
            sites = at_bounds(sites, "logit")
        return functools.partial(constrain, sites)

    def bind(self, *args, mesh: Mesh | None = None, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`.

        On a `mesh` each device along the rows has its own rows and its own columns: of
        `relaxed_bmf` and `nmf`. Other models may have an argument of this name.
        """
        bound = self._bound(args, kwargs, mesh)
        self.windows = dict(bound.windows)
        if bound.caution and not self._cautioned:
            self._cautioned = True
            warnings.warn(bound.caution, UserWarning, stacklevel=2)
        return bound

    def _bound(self, args, kwargs, mesh):
        settings, arguments = self._settings, relaxed_arguments(self._model, args, kwargs)
        if arguments is not None and has_standard_blocks(settings):
            return bind_relaxed(settings, arguments, mesh)
        if arguments is not None and mesh is not None:
            raise InputError(
                "on a mesh the basis moves from rows and the usage from columns, and nothing else "
                "is drawn exactly; leave blocks, conditionals and boundary='logit' out, or mesh"
            )
        args, kwargs = as_jax(args, kwargs if mesh is None else kwargs | {"mesh": mesh})
        learned = {}
        if arguments is not None:
            learned = plate_conditionals(arguments, settings.conditionals or {})
        return bind_plates(self._model, settings, args, kwargs, learned)


def _warn_of(calibration, kind):
    """Tell where a correction rests on what does not hold, and refuse one that rests on nothing."""
    departure = float(jnp.max(calibration.departure))
    if not np.isfinite(departure):
        raise FloatingPointError(
            "calibration found no mode where the log density is finite; give init_params nearer to "
            "one, or more num_approach steps"
        )
    if not departure <= MOST_DEPARTURE[kind]:
        warnings.warn(
            f"the curvature of the log density changes by {departure:.0%} within the posterior, "
            "and calibration takes it as constant; check standard deviations against NUTS",
            UserWarning,
            stacklevel=3,
        )
    num_flat = int(jnp.max(calibration.num_flat))
    if num_flat:
        warnings.warn(
            f"the data say nothing of {num_flat} directions at the mode, such as rotations of "
            "factors, and averages do not follow what is curved about them; use bmfjax.SGLD",
            UserWarning,
            stacklevel=3,
        )
    away = {n: max(np.ravel(r), key=_distance) for n, r in calibration.ratio.items()}
    site = max(away, key=lambda n: _distance(away[n]))
    if kind in LEAST_RATIO and _distance(away[site]) > _distance(LEAST_RATIO[kind]):
        corrected = "stretches what is left" if kind == "sandwich" else "is one step for all"
        warnings.warn(
            f"averages of {site!r} have {away[site]:.0%} of the posterior's standard deviation "
            "by their gradients' noise, as where the prior says more of it than the cases do; "
            f"the correction {corrected}; use calibration='top-up'",
            UserWarning,
            stacklevel=3,
        )


def _distance(ratio):
    """Return how far a ratio is from one, to either side."""
    return abs(np.log(np.maximum(ratio, 1e-9)))
