"""Gibbs sampling of the OrMachine as a NumPyro kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bmfjax.data import BinaryMatrix
from bmfjax.data.bits import PackedMatrix
from bmfjax.data.checks import one_of
from bmfjax.data.errors import InputError
from bmfjax.errors import kind_of
from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm, arguments_of
from bmfjax.kernels.boolean.bits import MAX_JOINT, gibbs, joint, metropolis
from bmfjax.kernels.boolean.collapsed import COLLAPSED_MOVES, collapsed_ormachine, log_marginal
from bmfjax.kernels.boolean.density import SITES, BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import (
    log_likelihood,
    ormachine,
    prior_refresh,
    start_from,
    state_info,
)
from bmfjax.kernels.boolean.line_states import merge_lines, sides_of
from bmfjax.kernels.boolean.moves.birth import birth_move
from bmfjax.kernels.boolean.moves.collapsed_line import collapsed
from bmfjax.kernels.boolean.moves.exchange import exchange_move
from bmfjax.kernels.boolean.moves.jump import KnownSolutions, keeping_solutions
from bmfjax.kernels.boolean.moves.rebirth import rebirth
from bmfjax.kernels.boolean.moves.split_merge import split_merge
from bmfjax.kernels.boolean.words import (
    PackedData,
    blocks_of_lines,
    pack_last_axis,
    packed_data,
    unpack_last_axis,
)
from bmfjax.kernels.numerics.budget import device_budget
from bmfjax.kernels.numerics.mesh import num_shards, over_mesh, place_whole, specs_of
from bmfjax.kernels.numerics.programs import jit_equal
from bmfjax.models.bits import resolve_bits_prior, resolve_known_bits, resolve_presence
from bmfjax.models.flip_rate import resolve_flip_rate
from bmfjax.models.ormachine import ormachine as ormachine_model
from bmfjax.specs.samplers import RULES, UPDATES

#: Temperatures between which factors are exchanged are about so many places apart.
REACH = 2.0
MOVES = {
    "collapsed": collapsed,
    "birth": birth_move,
    "rebirth": rebirth,
    "split_merge": split_merge,
}


class OrMachineGibbs(AlgorithmKernel):
    r"""Sampler of `bmfjax.models.ormachine` on packed words.

    Every draw is a sweep over all bits of both factor matrices, the densities of the
    factors and the flip rates; see `bmfjax.kernels.boolean.gibbs`. The draws are from the
    posterior (but see `dispersion`).

    Parameters
    ----------
    model : callable
        `bmfjax.models.ormachine`, by ``functools.partial`` with its arguments.
    update : {"metropolis", "gibbs", "joint", "collapsed"}
        How bits are drawn. "metropolis" always proposes the flip (Rukat et al. 2017).
        "gibbs" draws each bit from its conditional. "joint" draws `block_size` factors of a
        row or column at once. "collapsed" draws all factors at once with the longer factor
        matrix summed out (`bmfjax.kernels.boolean.collapsed`), for a rank of at most 8: it
        mixes best and costs rank times 2 to the power of the rank for every entry.
    block_size : int
        Factors that "joint" draws at once, 1 to 8, the default, and the move "collapsed", whose
        default is 4.
    dispersion : {"sample", "laplace", "mle"}
        "sample" draws the flip rates from their conditional, "laplace" sets them to
        (errors + 1) / (entries + 2), and "mle", as published, to errors / entries. The latter
        two are not draws from the posterior.
    moves : sequence of str
        Moves in every step, for what single flips cannot change. Before the sweep, "collapsed"
        draws bits of one factor matrix with the other summed out
        (`bmfjax.kernels.boolean.moves.collapsed_line`), "birth" replaces whole factors, "rebirth"
        too, with the bits of six factors in the longer matrix summed out
        (`bmfjax.kernels.boolean.moves.rebirth`), and "split_merge" splits and merges them. With
        the update "collapsed", and after the sweep, "xor" adds one factor to another, "rebirth"
        replaces one (`bmfjax.kernels.boolean.moves.whole_factors`), and "jump" goes to one of the
        `solutions` (`bmfjax.kernels.boolean.moves.jump`), each as often as it is named.
    solutions : KnownSolutions, optional
        Solutions for the move "jump", of `bmfjax.infer.known_solutions`.
    num_anneal : int
        Number of annealed sweeps at the start, in which the power of the likelihood rises
        from `lowest` to one. Annealed sweeps belong to the warm-up.
    lowest : float
        Power of the likelihood at the first sweep.
    inverse_temperatures : sequence of float, optional
        Parallel tempering, as for `TruncatedGibbs`. The update "collapsed" tempers the
        likelihood with the longer factor matrix summed out and needs few temperatures.
    num_adapt : int
        As for `TruncatedGibbs`.
    num_exchanges : int
        Rounds of every step in which replicas at neighbouring temperatures exchange factors
        (`bmfjax.kernels.boolean.moves.exchange`).

    Raises
    ------
    InputError
        For another model or an unknown option.

    Examples
    --------
    >>> import functools, bmfjax
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> data = (random.uniform(random.key(0), (30, 20)) < 0.3).astype(float)
    >>> model = functools.partial(bmfjax.models.ormachine, rank=2)
    >>> mcmc = MCMC(OrMachineGibbs(model), num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(1), data)
    >>> mcmc.get_samples()["usage"].shape
    (10, 30, 2)
    """

    _sites, _statistics = SITES, ("errors",)
    _samples, _instead = "bmfjax.models.ormachine", "IASG"

    def __init__(
        self,
        model: Callable,
        *,
        update: str = "metropolis",
        block_size: int | None = None,
        dispersion: str = "sample",
        moves: Sequence[str] = (),
        num_anneal: int = 0,
        lowest: float = 0.02,
        inverse_temperatures: Sequence[float] | None = None,
        num_adapt: int = 0,
        num_exchanges: int = 0,
        solutions: KnownSolutions | None = None,
    ):
        one_of("update", update, UPDATES)
        one_of("dispersion", dispersion, RULES)
        if not isinstance(moves, str | Sequence):
            raise InputError(f"moves is {moves!r}; give a sequence of names, () for none")
        moves = (moves,) if isinstance(moves, str) else tuple(moves)
        for move in moves:
            one_of(f"moves with the update {update!r}", move, moves_of(update))
        self._model, self._rule, self._moves = model, dispersion, moves
        self._collapsed = update == "collapsed"
        if block_size is not None and update != "joint" and "collapsed" not in moves:
            raise InputError(
                f"block_size is {block_size}, which the update {update!r} does not use; leave it "
                "out, or take the update 'joint' or the move 'collapsed'"
            )
        self._block = {} if block_size is None else {"block_size": block_size}
        size = MAX_JOINT if block_size is None else block_size
        self._update = {"metropolis": metropolis, "gibbs": gibbs}.get(update) or joint(size)
        self._num_anneal, self._lowest = num_anneal, lowest
        self._set_ladder(inverse_temperatures, num_adapt=num_adapt, num_exchanges=num_exchanges)
        self._num_exchanges = num_exchanges
        self._solutions = _checked_solutions(solutions, "jump" in moves)

    def bind(self, *args, **kwargs) -> BoundAlgorithm:
        """Return the algorithm for these model arguments, with its data, for `ChainRun`.

        The data may also be a `BinaryMatrix`, which is never made dense then.
        """
        bound, shape = self.bind_packed(*args, **kwargs)

        def observe(state, info):
            drawn = bound.algorithm.observe(state, info)
            for site, size in zip(("usage", "basis"), shape, strict=True):
                drawn[site] = unpack_last_axis(drawn[site], size).T.astype(jnp.uint8)
            return drawn

        return bound._replace(algorithm=bound.algorithm._replace(observe=observe))

    def bind_packed(
        self, *args, mesh: Mesh | None = None, **kwargs
    ) -> tuple[BoundAlgorithm, tuple[int, int]]:
        """Return what `bind` does, but observing packed words, and the matrix's shape.

        On a `mesh` each device along the rows has its own blocks, unless a matrix is summed out.
        """
        arguments = self._checked(arguments_of(ormachine_model, self._model, args, kwargs))
        data, observed, shape = matrix_of(arguments)
        density, given = boolean_density(shape, **arguments, rule=self._rule)
        spread = num_shards(mesh) > 1 and not self._collapsed
        whole = None
        if not spread or self._moves:
            whole = boolean_data(data, observed)._replace(**given)
        packed = whole
        if self._collapsed:
            packed = merge_lines(packed, sides_of(density.shape, "longer"))
        if self._solutions is not None:  # with the data: programs are of all solutions
            known = _solutions_of_model(self._solutions, density)
            kind = jnp.result_type(float)
            packed = packed._replace(solutions=jax.tree.map(lambda a: jnp.asarray(a, kind), known))
        if spread:
            packed = boolean_data(data, observed, mesh)
            packed = packed._replace(**given, whole=whole)
        if mesh is not None:
            packed = place_whole(packed, mesh)
        algorithm, place = self._algorithm(density), functools.partial(start_from, density)
        if mesh is not None:
            place = over_mesh(place, mesh, (specs_of(packed), P()), P())
        # The data are an argument: as a constant of the program a large matrix would be copied.
        place = jit_equal(place)

        def unconstrain(position):
            return place(packed, position)

        return BoundAlgorithm(algorithm, packed, unconstrain=unconstrain), shape

    def _algorithm(self, density):
        if density.usage.presence is not None:
            self._check_presence()
        options = {"describe": state_info(density)}
        if self._num_exchanges:
            options["population_move"] = exchange_move(
                density, collapsed=self._collapsed, num_rounds=self._num_exchanges, reach=REACH
            )
        if self._collapsed:
            algorithm = collapsed_ormachine(
                density, moves=self._moves, from_prior=0.0 in (self._ladder or ())
            )
            algorithm = self._tempered(algorithm, log_marginal(density), **options)
            return algorithm if self._solutions is None else keeping_solutions(algorithm)
        built = {
            name: MOVES[name](density, **(self._block if name == "collapsed" else {}))
            for name in self._moves
        }
        moves = [(name, built[name]) for name in self._moves]
        options |= {
            "refresh": prior_refresh(density),
            "likelihood_of_info": lambda info: info.log_likelihood,
        }
        algorithm = ormachine(density, update=self._update, moves=moves)
        return self._tempered(algorithm, log_likelihood(density), **options)

    def _check_presence(self):
        """Refuse what cannot bring back a factor that is not there."""
        for name, is_used in (
            ("update 'collapsed'", self._collapsed),
            ("move 'rebirth'", "rebirth" in self._moves),
            ("option num_exchanges", self._num_exchanges),
        ):
            if is_used:
                raise InputError(
                    f"the {name} takes all factors to be there, and presence_prior says that some "
                    "may not be; take another update, and the moves 'birth' and 'split_merge'"
                )


def _checked_solutions(solutions, jumps: bool) -> KnownSolutions | None:
    """Return solutions for jumps; refuse either without the other."""
    if jumps and not isinstance(solutions, KnownSolutions):
        found = "" if solutions is None else f", and solutions is {kind_of(solutions)}"
        raise InputError(
            f"the move 'jump' goes to solutions that are known{found}; in Python give "
            "solutions=bmfjax.infer.known_solutions(draws) (bmfjax.Gibbs of bmfjax.fit), or "
            "leave the move out: fits of small matrices jump by themselves"
        )
    if solutions is not None and not jumps:
        raise InputError("solutions are for the move 'jump'; name it in moves, or leave them out")
    return solutions


def _solutions_of_model(solutions: KnownSolutions, density: BooleanDensity) -> KnownSolutions:
    """Return solutions without what the model is given; refuse those of another model."""
    sides = sides_of(density.shape, "longer")
    given, wanted = solutions.use.shape[1:], (density.rank, sides.short)
    if given != wanted:
        raise InputError(
            f"solutions have {given[0]} factors of {given[1]} bits, and the model {wanted[0]} of "
            f"{wanted[1]}; give solutions of draws of this model"
        )
    learned = {
        "density": (f"{sides.summed}_density", getattr(density, sides.summed).beta is not None),
        "rate": ("flip_rate", density.flip_rate.value is None),
    }
    for part, (name, is_learned) in learned.items():
        known = getattr(solutions, part)
        if is_learned and known is None:
            raise InputError(
                f"the model learns {name!r}, which the draws of the solutions do not have; give "
                "solutions of draws of this model"
            )
        if not is_learned:
            solutions = solutions._replace(**{part: None})
    rates = 1 if solutions.rate is None or solutions.rate.mean.ndim == 1 else 2
    if solutions.rate is not None and rates != density.flip_rate.num_rates:
        raise InputError(
            f"the draws of the solutions have {rates} flip rate{'s' * (rates > 1)}, and the model "
            f"{density.flip_rate.num_rates}; give solutions of draws of this model"
        )
    return solutions


def moves_of(update: str) -> tuple[str, ...]:
    """Return the names of the moves that go with an update."""
    return tuple(COLLAPSED_MOVES if update == "collapsed" else MOVES)


def boolean_density(
    shape, *, rank, usage=None, basis=None, flip_rate=None, num_rates=1, anchors=None,
    presence_prior=None, rule: str = "sample",
) -> tuple[BooleanDensity, dict]:  # fmt: skip
    """Return the density of `ormachine` called with these arguments, and log odds of single bits.

    The prior log odds are `usage_log_odds` and `basis_log_odds`, (rank, line), where they are
    given, for `PackedData`.
    """
    priors, given = {}, {}
    for site, size, given_prior in zip(("usage", "basis"), shape, (usage, basis), strict=True):
        if given_prior is None:  # to make a distribution of NumPyro compiles programs
            priors[site] = BitPrior()
            continue
        prior = resolve_bits_prior(given_prior, site, (size, rank))
        if isinstance(prior, dist.Beta):
            beta = (float(prior.concentration1), float(prior.concentration0))
            priors[site] = BitPrior(beta)
        elif isinstance(prior, float):
            priors[site] = BitPrior(None, prior)
        else:
            priors[site] = BitPrior(None, 0.5)
            with np.errstate(divide="ignore"):
                odds = np.log(prior) - np.log1p(-prior)
            given[f"{site}_log_odds"] = jnp.asarray(odds.T, jnp.result_type(float))
    known = resolve_known_bits(anchors, basis, (shape[1], rank))
    if known is not None:
        given["basis_log_odds"] = jnp.asarray(known_log_odds(known).T, jnp.result_type(float))
    if presence_prior is not None:
        learned = priors["usage"].beta and dist.Beta(*priors["usage"].beta)
        presence = resolve_presence(presence_prior, learned, "usage")
        beta = (float(presence.concentration1), float(presence.concentration0))
        priors["usage"] = priors["usage"]._replace(presence=beta)
    rate = resolve_flip_rate(flip_rate, num_rates)
    if isinstance(rate, dist.Distribution):
        flip = FlipRatePrior(num_rates, rate.concentration1, rate.concentration0, rule)
    else:
        flip = FlipRatePrior(num_rates, value=rate)
    return BooleanDensity(tuple(shape), rank, priors["usage"], priors["basis"], flip), given


def matrix_of(arguments: dict) -> tuple[Any, Any, tuple[int, int]]:
    """Take the data of a model, what is observed and the shape out of its arguments."""
    data, observed = arguments.pop("data"), arguments.pop("observed")
    del arguments["shape"]
    return data, observed, tuple(data.shape) if hasattr(data, "shape") else np.shape(data)


def known_log_odds(known) -> np.ndarray:
    """Return the prior log odds of bits that are 0, 1 or, where NaN, not known and without any."""
    return np.where(known > 0, np.inf, np.where(np.isnan(known), np.nan, -np.inf))


def boolean_data(data, observed=None, mesh: Mesh | None = None) -> PackedData:
    """Pack a matrix, which may be a traced array with NaN for missing entries."""
    if isinstance(data, BinaryMatrix):
        return packed_data(data, mesh=mesh)
    if not isinstance(data, jax.core.Tracer):
        return packed_data(BinaryMatrix(np.asarray(data), observed), mesh=mesh)
    seen = ~jnp.isnan(data)
    if observed is not None:
        seen = seen & observed
    ones = (data > 0.5) & seen
    sides = [
        blocks_of_lines(PackedMatrix(pack_last_axis(o), pack_last_axis(s)), device_budget())
        for o, s in ((ones, seen), (ones.T, seen.T))
    ]
    counts = (jnp.sum(c, dtype=jnp.result_type(float)) for c in (ones, seen & ~ones))
    return PackedData(*sides, *counts)
