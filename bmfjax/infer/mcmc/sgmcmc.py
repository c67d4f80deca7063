"""Samplers from minibatches as NumPyro kernels: SGLD, SGHMC and auxiliary-variable Gibbs."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from numpyro.infer.initialization import init_to_uniform

from bmfjax.data.checks import one_of, positive, whole
from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm, as_jax, latent_values
from bmfjax.infer.mcmc.plates import (
    MAX_NEWTON_SIZE,
    at_bounds,
    check_blocks,
    check_minibatches,
    constrain,
    found_blocks,
    inspect_model,
    log_density,
    plate_block,
    unconstrain,
)
from bmfjax.infer.mcmc.relaxed import (
    LATENT,
    given_batches,
    relaxed_arguments,
    relaxed_density,
    relaxed_start,
)
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.sgmcmc.dynamics import stochastic_dynamics
from bmfjax.kernels.sgmcmc.langevin import NOISES, langevin
from bmfjax.specs.relaxed import blocks_of_sites

#: Cases in a minibatch where the number is not given. As many are taken whole.
USUAL_BATCH = 256
#: The same of `AuxiliaryGibbs`, where both sides have more than `USUAL_BATCH`.
AUXILIARY_BATCH = 64
#: A step that is chosen as less than this share of the usual one is told.
SHORT_STEP = 0.05
#: Shares of recent steps that are refused or shortened from which on it is told, and of refused
#: ones from which on a chain is stuck.
MOST_REFUSED, MOST_SHORTENED, STUCK = 0.8, 0.1, 0.95
#: Steps of Adam towards the anchor.
NUM_APPROACH = 1000


class StochasticDynamics(AlgorithmKernel):
    """What SGLD and SGHMC share: blocks of plates in, one algorithm of all sites out."""

    _statistics = ("noise_share", "clamped", "refused", "shortened")
    _warned = _warned_of_flat = False
    _compiles_start = True
    _remedy = "give a smaller step_size, larger batches, or init_params nearer to an optimum"
    #: Usual step without bounds and with them, in units of the recursion, and the friction.
    _usual_steps: tuple[float, float]
    _friction = 1.0

    def _set(
        self, model, blocks, *, step_size, num_steps, boundary, control_variates, noise,
        preconditioner, num_approach,
    ) -> None:  # fmt: skip
        """Keep the options, checked."""
        one_of("preconditioner", preconditioner, ("newton", None))
        one_of("noise", noise, NOISES)
        ways = boundary.values() if isinstance(boundary, Mapping) else [boundary]
        for way in ways:
            one_of("boundary", way, ("reflect", "logit"))
        if noise == "top-up" and preconditioner is None:
            raise InputError(
                "noise='top-up' needs the curvature, which preconditioner=None does not measure; "
                "give noise='langevin' with it"
            )
        most = math.inf if preconditioner is None else 2.0 * (2.0 - self._friction)
        if step_size is not None and not 0.0 < self._epsilon(step_size) < most:
            raise InputError(
                f"step_size is {step_size}; give a positive number, and with "
                "preconditioner='newton' one below 4 (SGLD) or 2 (2 - friction) (SGHMC)"
            )
        if num_approach is not None:
            whole("num_approach", num_approach, 0)
        self._model = model
        self._blocks = blocks_of_sites("blocks", blocks)
        self._step_size, self._boundary, self._noise = step_size, boundary, noise
        self._num_steps = whole("num_steps", num_steps)
        self._control_variates, self._preconditioner = control_variates, preconditioner
        self._num_approach = num_approach

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        """Return the first state; see `numpyro.infer.mcmc.MCMCKernel`."""
        state = super().init(rng_key, num_warmup, init_params, model_args, model_kwargs)
        measured = getattr(state.inner, "measured", None)
        if measured is not None and not isinstance(measured.noise_share, jax.core.Tracer):
            self._check_measured(measured)
        return state

    def _check_measured(self, measured):
        if not bool(jnp.all(jnp.isfinite(measured.log_joint))):
            raise FloatingPointError(
                "no anchor was found where the log density is finite; give init_params nearer to "
                "an optimum, or more num_approach steps"
            )
        share = float(jnp.max(measured.noise_share))
        if share > 1.0 and not self._warned:
            self._warned = True
            warnings.warn(
                f"the gradients have {share:.1f} times the noise that a step of this length can "
                "make up for, so that draws spread too widely; give a smaller step_size, larger "
                "batches, or control_variates=True",
                UserWarning,
                stacklevel=3,
            )
        step, usual = float(jnp.min(measured.step_size)), max(self._usual_steps)
        scale = usual / self._epsilon(usual)
        if self._step_size is None and step * scale < SHORT_STEP * usual and not self._warned:
            self._warned = True
            warnings.warn(
                f"the gradients' noise, or a curvature that changes much within the posterior, "
                f"leaves room for steps of {step * scale:.2g} only, instead of {usual}, so that "
                "draws follow each other slowly; look at R-hat and the effective draws, or give "
                "larger batches",
                UserWarning,
                stacklevel=3,
            )
        num_flat = int(jnp.max(measured.num_flat))
        if num_flat and not self._warned_of_flat:
            self._warned_of_flat = True
            warnings.warn(
                f"the data say nothing of {num_flat} directions at the optimum, such as rotations "
                "of factors; the chain moves along them slowly, so look at what they leave as it "
                "is, such as predictions, and not at single coordinates",
                UserWarning,
                stacklevel=3,
            )

    def _drawn(self, algorithm, inner, info):
        # Not as the algorithm observes them: a site of the model may bear any name.
        return (
            inner.position,
            info.log_joint,
            {
                # The steps of `relaxed_bmf` and `nmf` are not refused.
                n: getattr(info, n, jnp.zeros_like(info.clamped))
                for n in self._statistics
            },
        )

    def _may_stay(self, state):
        return (state.refused > 0.0) & (state.refused < STUCK)

    def _doubts(self, state):
        name = type(self).__name__
        return {
            f"{name} refuses most of its steps, so that draws follow each other slowly; look at "
            "R-hat and the effective draws, or use NUTS": state.refused > MOST_REFUSED,
            f"{name} shortens many of its steps, because gradients are far longer than about a "
            "normal posterior, and draws may be wrong; give a smaller step_size, or compare with "
            "NUTS": state.shortened > MOST_SHORTENED,
        }

    def get_diagnostics_str(self, state):
        """Return a few words for the progress bar."""
        said = super().get_diagnostics_str(state)
        share = float(state.noise_share)
        return said if math.isnan(share) else f"{said}, noise {share:.0%}"

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`."""
        args, kwargs = as_jax(args, kwargs)
        return self._bind_plates(args, kwargs)

    def postprocess_fn(self, args, kwargs):
        """Return the map from a draw to the model's own space."""
        if self._takes_standard_blocks(args, kwargs or {}):
            return dict
        # Not by `bind`: as a block of `Gibbs` this is asked for with the other blocks' sites free.
        args, kwargs = as_jax(args, kwargs or {})
        return functools.partial(constrain, self._sites_of(args, kwargs))

    def _takes_standard_blocks(self, args, kwargs):
        """Tell whether the model is one whose blocks have gradients of their own."""
        return False

    def _sites_of(self, args, kwargs):
        return at_bounds(inspect_model(self._model, args, kwargs), self._boundary)

    def _bind_plates(self, args, kwargs) -> BoundAlgorithm:
        model, newton = self._model, self._preconditioner == "newton"
        sites = self._sites_of(args, kwargs)
        blocks = self._blocks or found_blocks(model, sites, args, kwargs)
        given = tuple((n, self._with_batches(sites, plates)) for n, plates in blocks)
        top_up = self._noise == "top-up"
        check_blocks(sites, given, (), replace=True, newton=False, variance=False)
        self._check_size(sites, given)
        check_minibatches(model, sites, given, args, kwargs)
        blocks = [
            plate_block(model, sites, n, batches, newton=False, scale_likelihood=True)
            for n, batches in given
        ]
        dynamics = stochastic_dynamics(
            lambda position, indices, data: log_density(model, sites, position, indices, *data),
            blocks,
            initial=lambda key, data: unconstrain(
                sites, latent_values(model, key, *data, init_to_uniform)
            ),
            bounds=sites.boxes,
            friction=self._friction,
            step_size=self._epsilon(self._step_size),
            usual_step=self._epsilon(self._usual_steps[bool(sites.boxes)]),
            num_steps=self._num_steps,
            num_approach=NUM_APPROACH if self._num_approach is None else self._num_approach,
            top_up=top_up,
            control_variates=self._control_variates,
            preconditioned=newton,
        )
        return BoundAlgorithm(
            dynamics.algorithm,
            (args, kwargs),
            constrain=functools.partial(constrain, sites),
            unconstrain=functools.partial(unconstrain, sites),
            refresh=dynamics.refresh,
        )

    def _with_batches(self, sites, plates):
        """Return the batches with a number where None was given, at most all cases."""
        return {
            p: min(USUAL_BATCH if batch is None else batch, sites.plates.get(p, batch or 1))
            for p, batch in plates.items()
        }

    def _check_size(self, sites, blocks):
        size = sum(math.prod(shape) for shape in sites.shapes.values())
        if self._preconditioner == "newton" and size > MAX_NEWTON_SIZE:
            raise InputError(
                f"the sites have {size} coordinates, too many for a dense Hessian (at most "
                f"{MAX_NEWTON_SIZE}); give preconditioner=None, noise='langevin' and a step_size"
            )
        if self._noise == "langevin":
            if self._step_size is None:
                raise InputError(
                    "noise='langevin' does not measure the noise by which a step is chosen; give "
                    "a step_size"
                )
            return
        for names, batches in blocks:
            if len(batches) != 1:
                raise InputError(
                    f"noise='top-up' needs exactly one plate a block, and the block of "
                    f"{names[0]!r} has {len(batches)}; give noise='langevin' and a step_size"
                )

    @staticmethod
    def _epsilon(step_size):
        """Return the step of the recursion of `bmfjax.kernels.sgmcmc.dynamics`."""
        return step_size


class SGLD(StochasticDynamics):
    r"""Stochastic gradient Langevin dynamics for any NumPyro model with plates.

    Each step moves all sites by a gradient estimated from minibatches of named plates, and
    by noise (Welling and Teh 2011):

    .. math:: x \leftarrow x + \tfrac h2 P\hat g(x) + \eta,

    with the inverse curvature at an optimum as preconditioner P. One draw takes `num_steps`
    steps; see `bmfjax.kernels.sgmcmc.dynamics`. A step takes a minibatch, and a draw no pass over
    the data. Only the search for the optimum at the start takes some: about thirty curvatures.

    The draws are approximate. For a normal density their covariance is right at any step,
    with the default noise; for another the error goes to zero with the step, as does the
    error near bounds. For `relaxed_bmf` and `nmf` without `blocks` the steps are those of
    `bmfjax.kernels.langevin`; their anchor follows the chain for 256 draws, which belong to the
    warm-up.

    Parameters
    ----------
    model : callable
        A NumPyro model with full plates whose indices pick the data:
        ``with numpyro.plate("rows", n) as i: numpyro.sample(..., obs=y[i])``.
        Give static arguments by ``functools.partial``.
    blocks : sequence, optional
        ``((sites, {plate: batch}), ...)``: which sites take their gradients from which
        minibatches, drawn with replacement. A batch of None is 256 cases; one of all
        cases gives the exact gradient. Found by itself where one plate is around data and
        around no latent site, or several around different data: all sites, from the largest.
        Where plates are around the same data, factors of rows move from columns, and those of
        columns from rows. `relaxed_bmf` and `nmf` have blocks of their own.
    batch_size : int or mapping, optional
        For `relaxed_bmf` and `nmf` without `blocks`: one number, or
        ``{"rows": ..., "columns": ...}``. Default: 256, or all where there are fewer.
    step_size : float, optional
        h, in units of the covariance P: below 4. Default: 0.3, or 0.1 where sites are
        reflected, or less where the gradients' noise, or the largest curvature that the chain
        has met, leaves no room for that.
    num_steps : int
        Steps of one draw.
    boundary : {"reflect", "logit"} or mapping
        For sites on an interval: "reflect" at its ends, or move in unconstrained
        coordinates, the logit, with the Jacobian. ``{site: ...}`` chooses for the sites that
        it names; these may be on a half-line too, where "logit" stands for the logarithm,
        and the logarithm is the default. Reflection needs a density that is finite at
        the bound, and it reaches the bound, as coordinates in which it is at infinity
        do not.
    control_variates : bool
        Estimate gradients relative to those at the anchor, an optimum that is found
        before the first draw: far less noise, for two gradients of a minibatch.
    noise : {"top-up", "langevin"}
        Inject what the gradients' noise and the length of the step leave wanting, by their
        measured covariance; or all of the noise of Langevin dynamics, which then needs a
        `step_size`. "top-up" takes one plate a block.
    preconditioner : {"newton", None}
        The inverse curvature at the anchor, for up to 1000 coordinates; or plain
        gradient steps, with a `step_size` in units of the squared coordinates and
        ``noise="langevin"``.
    num_approach : int, optional
        Steps of Adam on minibatches from the start towards the anchor, before Newton's
        method. Default: 1000.

    Raises
    ------
    InputError
        For options that do not fit each other; at the first run, for blocks that
        do not fit the model.

    Warns
    -----
    UserWarning
        Once, if the gradients have more noise than a step can make up for, or leave room for very
        short steps only; if the data say nothing of some directions; and if many steps are refused
        or shortened.

    Notes
    -----
    As for `IASG`, `init_params` of ``MCMC.run`` are values in the model's own space. Chains
    look for their anchors from there, and start at draws of the normal approximation.

    The chain starts with short steps, and what it measures is the mean over its first draws, which
    are not kept. So the preconditioner fits the directions in which the data say nothing at the
    optimum, such as the rotations of two factor matrices. Their number is
    ``last_state.inner.measured.num_flat``. With all cases in every minibatch, and no reflected
    site, steps are accepted or refused: draws are then from the posterior itself.

    The field `noise_share` is the gradients' noise as a share of what can be left out for
    it: below 1 it is made up for. `clamped` is the share of coordinates with bounds that
    left them and were reflected. `refused` and `shortened` are the shares of recent steps that
    were refused, and whose gradient was too long and was shortened.
    `potential_energy` is estimated from the last minibatch of a draw.

    As a block of a composite ``Gibbs`` of NumPyro the gradient and the curvature are taken again
    on all data whenever other blocks have moved.

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
    >>> kernel = SGLD(model, ((("mu",), {"cases": 50}),))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=200, progress_bar=False)
    >>> mcmc.run(random.key(1), y)
    >>> bool(abs(mcmc.get_samples()["mu"].mean() - y.mean()) < 0.02)
    True
    """

    _usual_steps = (0.3, 0.1)

    def __init__(
        self,
        model: Callable,
        blocks: Sequence | None = None,
        *,
        batch_size: int | Mapping[str, int] | None = None,
        step_size: float | None = None,
        num_steps: int = 10,
        boundary: str | Mapping[str, str] = "reflect",
        control_variates: bool = True,
        noise: str = "top-up",
        preconditioner: str | None = "newton",
        num_approach: int | None = None,
    ):
        if blocks is not None and batch_size is not None:
            raise InputError("blocks already say the batch sizes; leave batch_size out")
        self._batch_size = batch_size
        self._set(
            model, blocks, step_size=step_size, num_steps=num_steps, boundary=boundary,
            control_variates=control_variates, noise=noise, preconditioner=preconditioner,
            num_approach=num_approach,
        )  # fmt: skip

    @staticmethod
    def _epsilon(step_size):
        return None if step_size is None else 0.5 * step_size

    def _takes_standard_blocks(self, args, kwargs):
        return self._blocks is None and relaxed_arguments(self._model, args, kwargs) is not None

    def _bind_plates(self, args, kwargs):
        arguments = relaxed_arguments(self._model, args, kwargs)
        if self._blocks is not None or arguments is None:
            if self._batch_size is not None:
                raise InputError("batch_size is for relaxed_bmf and nmf; give blocks instead")
            return super()._bind_plates(args, kwargs)
        for name, given, usual in (
            ("preconditioner", self._preconditioner, "newton"),
            ("num_approach", self._num_approach, None),
        ):
            if given != usual:
                raise InputError(
                    f"{name} is for models with blocks; relaxed_bmf and nmf have steps of their "
                    "own: leave it out, or give blocks"
                )
        if not isinstance(self._boundary, str):
            raise InputError("relaxed_bmf and nmf have one boundary; give 'reflect' or 'logit'")
        return bind_langevin(
            arguments,
            type(self).__name__,
            self._batch_size,
            boundary=self._boundary,
            step_size=self._step_size,
            num_steps=self._num_steps,
            noise=self._noise,
            control_variates=self._control_variates,
        )


class SGHMC(StochasticDynamics):
    r"""Stochastic gradient Hamiltonian Monte Carlo for any NumPyro model with plates.

    Langevin dynamics with momentum (Chen, Fox, Guestrin 2014):

    .. math:: v \leftarrow (1-\alpha)\,v + \epsilon P\hat g(x) + \eta, \qquad x \leftarrow x + v.

    What is said of `SGLD` on noise, bounds and control variates holds here; see
    `bmfjax.kernels.sgmcmc.dynamics`, also for why this and not a thermostat.

    Parameters
    ----------
    model, blocks
        As for `SGLD`, also for `relaxed_bmf` and `nmf`.
    friction : float
        :math:`\alpha`, above 0 and at most 1.
    step_size : float, optional
        :math:`\epsilon`, the squared time step, in units of P; below
        :math:`2(2-\alpha)`. Default: 0.15, or 0.03 where sites are reflected, or less where
        the gradients' noise leaves no room for that.
    num_steps, boundary, control_variates, noise, preconditioner, num_approach
        As for `SGLD`.

    Raises
    ------
    InputError
        As for `SGLD`.

    Warns
    -----
    UserWarning
        As for `SGLD`.

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
    >>> kernel = SGHMC(model, ((("mu",), {"cases": 50}),))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=200, progress_bar=False)
    >>> mcmc.run(random.key(1), y)
    >>> bool(abs(mcmc.get_samples()["mu"].mean() - y.mean()) < 0.02)
    True
    """

    _usual_steps = (0.15, 0.03)

    def __init__(
        self,
        model: Callable,
        blocks: Sequence | None = None,
        *,
        friction: float = 0.5,
        step_size: float | None = None,
        num_steps: int = 10,
        boundary: str | Mapping[str, str] = "reflect",
        control_variates: bool = True,
        noise: str = "top-up",
        preconditioner: str | None = "newton",
        num_approach: int | None = None,
    ):
        if not 0.0 < friction <= 1.0:
            raise InputError(f"friction is {friction}; give a number above 0 and at most 1")
        self._friction = friction
        self._set(
            model, blocks, step_size=step_size, num_steps=num_steps, boundary=boundary,
            control_variates=control_variates, noise=noise, preconditioner=preconditioner,
            num_approach=num_approach,
        )  # fmt: skip


class AuxiliaryGibbs(AlgorithmKernel):
    r"""Auxiliary-variable Gibbs sampler of `relaxed_bmf` and `nmf` from minibatches.

    Given the other one, a factor matrix is normal on a box. An auxiliary variable makes its
    coordinates independent truncated normal ones, which are drawn exactly; the gradients'
    noise takes the place of part of the noise that the auxiliary variable has. See
    `bmfjax.kernels.sgmcmc.boundary`, "truncate". The gradients are relative to an anchor
    (control variates), which follows the chain while it warms up.

    With all cases in every batch the draws are from the posterior. With minibatches they are
    so up to what the gradients' noise is not normal, and correlated between coordinates.

    Every draw ends with the noise precision and learned rates, from their exact conditionals.
    For complete data the sum of squared residuals is then an estimate: that at the anchor, and
    what follows from the way that the chain is from there, by a minibatch of rows. Its noise
    widens the precision by at most half a per cent; otherwise all data are looked at. The fields
    `residual` and `log_joint` are made of it.

    Parameters
    ----------
    model : callable
        `bmfjax.models.relaxed_bmf` or `nmf`, by ``functools.partial`` with its arguments. Their
        priors must be quadratic in the logarithm; that of a learned precision a Gamma
        distribution.
    batch_size : int or mapping, optional
        Cases in a minibatch, one number or ``{"rows": ..., "columns": ...}``, drawn without
        replacement. Default: all where there are at most 256, otherwise 64, and 256 where the
        other side has at most 256.
    step_size : float
        Below 1; what is missing to 1 is room for the gradients' noise.
    num_steps : int
        Steps of both factor matrices in one draw.
    num_anchor : int
        Draws in which the anchor is moved. Make them part of the warm-up: what comes after
        them is a Markov chain.
    num_anneal, lowest
        As for `TruncatedGibbs`.

    Raises
    ------
    InputError
        For another model, or priors that cannot be drawn; at the first run.

    Notes
    -----
    The field `noise_share` is the gradients' noise as a share of what can be left out for it.
    Above 1 draws spread too widely: take larger batches or a smaller `step_size`.

    Examples
    --------
    >>> import functools, bmfjax
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> data = (random.uniform(random.key(0), (30, 20)) < 0.3).astype(float)
    >>> model = functools.partial(bmfjax.models.relaxed_bmf, rank=2)
    >>> kernel = AuxiliaryGibbs(model, batch_size=10, num_anchor=20)
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(1), data)
    >>> mcmc.get_samples()["usage"].shape
    (10, 30, 2)
    """

    _sites, _statistics = LATENT, ("noise_share", "residual")
    _samples, _instead = "bmfjax.models.relaxed_bmf and nmf", "SGLD or SGHMC"

    def __init__(
        self,
        model: Callable,
        *,
        batch_size: int | Mapping[str, int] | None = None,
        step_size: float = 0.95,
        num_steps: int = 1,
        num_anchor: int = 256,
        num_anneal: int = 0,
        lowest: float = 0.02,
    ):
        self._model, self._batch_size = model, batch_size
        positive("step_size", step_size)
        self._options = {"step_size": step_size, "num_steps": num_steps, "num_anchor": num_anchor}
        self._num_anneal, self._lowest = num_anneal, lowest

    def bind(self, *args, mesh: Mesh | None = None, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`.

        On a `mesh` each device along the rows has its own rows and its own columns.
        """
        arguments = self._checked(relaxed_arguments(self._model, args, kwargs))
        bound = bind_langevin(
            arguments,
            type(self).__name__,
            self._batch_size,
            mesh=mesh,
            usual=AUXILIARY_BATCH,
            boundary="truncate",
            control_variates=True,
            **self._options,
        )
        return bound._replace(algorithm=self._tempered(bound.algorithm))


def bind_langevin(
    arguments, name, batch_size, *, mesh=None, usual: int = USUAL_BATCH, **options
) -> BoundAlgorithm:
    """Bind `bmfjax.kernels.langevin` for `relaxed_bmf` called with these arguments."""
    if arguments["data"] is None:
        raise InputError(f"{name} needs data, and the model was called without")
    data = matrix_data(arguments["data"], arguments["observed"], mesh)
    shape = np.shape(arguments["data"])
    sizes = dict(zip(("rows", "columns"), shape, strict=True))
    batches = relaxed_batches(batch_size, sizes, usual)
    algorithm = langevin(
        relaxed_density(arguments),
        shape,
        initial=relaxed_start(arguments),
        batch=(batches["rows"], batches["columns"]),
        **options,
    )
    return BoundAlgorithm(algorithm, data, exact=batches == sizes)


def relaxed_batches(batch_size, sizes: Mapping[str, int], usual: int) -> dict[str, int]:
    """Return the batch of rows and of columns: as given, or the usual one, at most all."""
    given = given_batches(batch_size, sizes)
    for plate, batch in given.items():
        if batch is not None:
            whole(f"batch of plate {plate!r}", batch)
    # The lines of a narrow matrix spread widely, and their noise with them.
    usual = usual if min(sizes.values()) > USUAL_BATCH else USUAL_BATCH
    few = {p: n if n <= USUAL_BATCH else usual for p, n in sizes.items()}
    return {p: min(few[p] if given[p] is None else given[p], n) for p, n in sizes.items()}
