"""Chains of every kernel that know what they should find: see `simulator` of `exactness`.

Each function returns ``run(key, redraw, *faults) -> (truth, draws)``, one program for right and
wrong copies. The statistics do not depend on which factor is which, but for the last ones.
"""

import functools
from dataclasses import replace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from numpyro import handlers

from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.base import State
from bmfjax.kernels.boolean import gibbs as boolean
from bmfjax.kernels.boolean.bits import joint, metropolis
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.words import unpack_last_axis
from bmfjax.kernels.features.density import log_odds as log_odds_of_features
from bmfjax.kernels.features.density import log_prior as log_prior_of_features
from bmfjax.kernels.features.gibbs import features_gibbs
from bmfjax.kernels.logistic.density import log_prior as log_prior_of_logits
from bmfjax.kernels.logistic.gibbs import logistic_gibbs
from bmfjax.kernels.nonnegative import basis_change
from bmfjax.kernels.nonnegative import gibbs as nonnegative
from bmfjax.kernels.poisson.density import log_likelihood as log_likelihood_of_counts
from bmfjax.kernels.poisson.density import log_prior as log_prior_of_counts
from bmfjax.kernels.poisson.gibbs import poisson_gibbs
from bmfjax.kernels.ratings.attributes import decomposed
from bmfjax.kernels.ratings.density import log_prior as log_prior_of_ratings
from bmfjax.kernels.ratings.density import log_probabilities
from bmfjax.kernels.ratings.gibbs import pmf_gibbs
from bmfjax.kernels.relaxed import scales
from bmfjax.kernels.relaxed.density import log_joint
from bmfjax.kernels.relaxed.gibbs import truncated_gibbs
from bmfjax.kernels.variants import deep, effects, hamming, one_hot
from bmfjax.kernels.variants.observed_entries import observed_entries
from bmfjax.models.deep_ormachine import deep_ormachine as deep_model
from bmfjax.models.hamming_machine import hamming_machine as hamming_model
from bmfjax.models.one_hot import one_hot_machine as one_hot_model
from bmfjax.models.ormachine import ormachine as ormachine_model
from tests.kernels import test_deep_ormachine as of_layers
from tests.kernels import test_effects as of_effects
from tests.kernels import test_features_gibbs as of_features
from tests.kernels import test_logistic_gibbs as of_signs
from tests.kernels import test_pmf as of_ratings
from tests.kernels import test_pmf_attributes as of_attributes
from tests.kernels import test_pmf_relevance as of_relevance
from tests.kernels import test_poisson_gibbs as of_counts
from tests.kernels.boolean_exactness import as_sites, boolean_problem, with_values
from tests.kernels.exactness import Problem, broken, new_problem, simulator

INF = float("inf")


def cells_but(shape, *missing):
    """Which cells of a matrix are observed: all but these."""
    observed = np.ones(shape, bool)
    observed[tuple(zip(*missing, strict=True))] = False
    return observed


#: Of the Boolean models, of the relaxed one with missing cells, and of its moves.
OBSERVED = cells_but((5, 4), (1, 1), (3, 0), (4, 3))
FEW = cells_but((4, 3), (1, 1), (3, 0))
OF_MOVES = cells_but((5, 4), (0, 1), (2, 2), (3, 0))


def numbers(*found):
    return jnp.stack([jnp.asarray(x, jnp.float32) for x in found])


def stretched(right, site, scale):
    """The algorithm with a number that every step stretches first; right where the scale is 1."""

    def step(key, state, data):
        return right.step(key, State(state.position | {site: scale * state.position[site]}), data)

    return right._replace(step=step)


# ---- real factors ------------------------------------------------------------------------------


def relaxed():
    """Faults: the sign of one prior's slope, and a factor on the precision (`broken`)."""
    problem = new_problem(
        FEW, rank=2, usage="ard", basis="laplace", precision=dist.Gamma(5.0, 0.2),
        rate=dist.Gamma(3.0, 2.0),
    )  # fmt: skip

    def statistics(position, data):
        usage, basis, tau, rate = (position[n] for n in ("usage", "basis", "precision", "rate"))
        fit = usage @ basis.T
        return numbers(
            fit[0, 0], fit[1, 1], log_joint(problem.density, position, data), tau, rate.sum(),
            usage.mean(), basis.mean(), jnp.log(tau), jnp.log(rate).sum(),
            (fit * data.values).sum(), data.values[0, 0], usage[2, 1],
        )  # fmt: skip

    def make(density, *faults):
        return truncated_gibbs(broken(density, *faults), None)

    return simulator(problem, make, statistics, num_chains=320, num_draws=45, thin=3)


def of_products(position, data):
    """Numbers of two factor matrices, their product and its precision."""
    usage, basis = position["usage"], position["basis"]
    product = usage @ basis.T
    return [
        usage.sum(), (usage**2).sum(), basis.sum(), (basis[0] * basis[1]).sum(), product[0, 0],
        (product**2).sum(), jnp.log(position["precision"]), (data.values * product).sum(),
    ]  # fmt: skip


def scaled(upper):
    """Factors that move with their rates; the fault: a power of the Jacobian."""
    box = upper < INF
    problem = new_problem(
        OF_MOVES if box else np.ones_like(OF_MOVES), rank=2, prior="ard", upper=upper,
        precision=dist.Gamma(5.0, 1.0), rate=dist.Gamma(6.0, 3.0),
    )  # fmt: skip

    def statistics(position, data):
        rate = position["rate"]
        of_rates = jnp.log(rate).sum(), rate.sum(), jnp.log(position["usage"].sum(0) * rate).sum()
        return numbers(*of_products(position, data), *of_rates)

    def make(density, power):
        plain = (truncated_gibbs if box else nonnegative.nonnegative_gibbs)(density, None)
        right = scales._log_prior

        def faulty(density, t, *others):
            return right(density, t, *others) + power * t

        def step(*arguments):
            with mock.patch.object(scales, "_log_prior", faulty):
                return plain.step(*arguments)

        return plain._replace(step=step)

    return simulator(problem, make, statistics, num_chains=300, num_draws=30, thin=2)


def moved(complete):
    """Moves of nonnegative factors; faults: a power of the scales' Jacobian, and the precision."""
    problem = new_problem(
        np.ones_like(OF_MOVES) if complete else OF_MOVES, rank=2, upper=INF,
        usage=dist.Exponential(1.5), basis=dist.Exponential(0.7),
        precision=dist.Gamma(4.0, 2.0),
    )  # fmt: skip

    def statistics(position, data):
        usage, basis = position["usage"], position["basis"]
        more = (usage[0] * usage[1]).sum(), jnp.log(usage.sum() / basis.sum())
        return numbers(*of_products(position, data), *more)

    def make(density, power, factor):
        plain = nonnegative.nonnegative_gibbs(density, None, ())
        right = basis_change.slice_sample

        def faulty(key, x, log_density, low, high):
            return right(key, x, lambda x: log_density(x) + power * x, low, high)

        def step(key, state, data):
            key_sweep, key_move = random.split(key)
            position = plain.step(key_sweep, state, data)[0].position
            weight = factor * position["precision"]
            with mock.patch.object(basis_change, "slice_sample", faulty):
                position = nonnegative.move(
                    key_move, density, position, data, weight, nonnegative.MOVES
                )
            return type(state)(position), nonnegative.sweep_info(density, position, data)

        return plain._replace(step=step)

    return simulator(problem, make, statistics, num_chains=300, num_draws=30, thin=2)


def logistic():
    """The fault: the scale of the bias."""
    problem = Problem(
        of_signs.draw_joint,
        lambda values: (of_signs.signs_of_seen(values), values),
        of_signs.DENSITY,
        lambda key, position: 1.0 * random.bernoulli(
            key, jax.nn.sigmoid(of_signs.log_odds(position))
        ),
    )  # fmt: skip

    def statistics(position, data):
        psi, values = of_signs.log_odds(position), data[1]
        likelihood = jax.nn.log_sigmoid((2 * values - 1) * psi)
        return numbers(
            psi[0, 0], psi[1, 2], psi[2, 1], position["bias"], position["row_effect"][1],
            position["column_effect"][2], (position["usage"] ** 2).sum(),
            (position["basis"] ** 2).sum(), (position["column_effect"] ** 2).sum(),
            (psi * values)[1:].sum(),
            jnp.where(of_signs.HIDDEN, 0.0, likelihood).sum()
            + log_prior_of_logits(of_signs.DENSITY, position),
        )  # fmt: skip

    def make(density, scale):
        algorithm = stretched(logistic_gibbs(density, of_signs.SHAPE), "bias", scale)
        return algorithm._replace(
            init=lambda key, position, data: algorithm.init(key, position, data[0]),
            step=lambda key, state, data: algorithm.step(key, state, data[0]),
        )

    return simulator(problem, make, statistics, num_chains=300, num_draws=16, thin=4)


def features(weights):
    """Faults: the power of the likelihood, and the precision of weights that each sweep starts at.

    Features that may be absent with signed weights, and positive weights without.
    """
    density = of_features.density_of(weights)
    problem = Problem(
        functools.partial(of_features.draw_joint, density),
        lambda values: (of_features.data_of(values, of_features.HIDDEN), values),
        density,
        lambda key, position: 1.0 * random.bernoulli(
            key, jax.nn.sigmoid(log_odds_of_features(position).T)
        ),
    )  # fmt: skip

    def statistics(position, data):
        psi, values = log_odds_of_features(position).T, data[1]
        likelihood = jax.nn.log_sigmoid((2 * values - 1) * psi)
        there = position.get("presence", jnp.ones(density.rank)) > 0
        number = there.sum() if "presence" in position else position["usage"][:, 0].sum()
        return numbers(
            psi[0, 0], psi[1, 2], psi[2, 1], position["column_mean"], position["column_precision"],
            position["row_scale"], position["row_effect"][1], number,
            (position["basis"] != 0).sum(), (position["basis"] ** 2).sum(),
            jnp.where(of_features.HIDDEN, 0.0, likelihood).sum()
            + log_prior_of_features(density, position),
            position["usage"].sum(), position["usage"][3, 1], position["column_effect"][2],
            (position["usage_density"] * there).sum(), (position["basis_density"] * there).sum(),
            (position["factor_precision"] * there).sum(), (position["row_effect"] ** 2).sum(),
            jnp.abs(position["basis"]).max(), (psi * values)[1:].sum(),
        )  # fmt: skip

    def make(density, power, scale):
        algorithm = features_gibbs(density, of_features.SHAPE, rebirths=2)

        def step(key, state, data):
            changed = {"factor_precision": scale * state.position["factor_precision"]}
            return algorithm.step(key, State(state.position | changed), data[0], power)

        return algorithm._replace(
            init=lambda key, position, data: algorithm.init(key, position, data[0]), step=step
        )

    return simulator(problem, make, statistics, num_chains=300, num_draws=31, thin=3)


# ---- counts ------------------------------------------------------------------------------------


def counts(kind):
    """Faults: the power that each sweep first raises spectra to, and what it stretches rates by.

    Missing entries, overdispersed ones, or factors that may be absent.
    """
    density = of_counts.density_of(kind)
    complete = kind == "absent"
    problem = Problem(
        functools.partial(of_counts.draw_joint, density),
        lambda values: (of_counts.data_of(values, complete), values),
        density,
        of_counts.draw_counts,
    )

    def statistics(position, data):
        usage, basis, rate = (position[n] for n in ("usage", "basis", "rate"))
        product = usage @ basis.T
        there = position.get("presence", jnp.ones(density.rank)) > 0
        joint = log_likelihood_of_counts(density, position, data[0])
        joint += log_prior_of_counts(density, position)
        number = there.sum() if "presence" in position else (usage**2).sum()
        sd = jnp.log(position["dispersion"]) if "dispersion" in position else (basis**2).sum()
        learned = position.get("concentration", usage.max())
        return numbers(
            product[0, 0], product[0, 1], joint, (there * rate).sum(), usage.sum(), number, sd,
            jnp.log(jnp.where(there, rate, 1.0)).sum(), (basis**2).sum(), (data[1] * product).sum(),
            data[1][1, 0], learned,
        )  # fmt: skip

    def make(density, power, scale):
        algorithm = poisson_gibbs(density, of_counts.SHAPE[1])

        def step(key, state, data):
            basis, rate = state.position["basis"] ** power, scale * state.position["rate"]
            whole = jnp.maximum(basis.sum(0), 1e-30)
            changed = {"basis": basis / whole, "rate": rate}
            return algorithm.step(key, State(state.position | changed), data[0])

        return algorithm._replace(
            init=lambda key, position, data: algorithm.init(key, position, data[0]), step=step
        )

    return simulator(problem, make, statistics, num_chains=300, num_draws=31, thin=3)


# ---- ratings -----------------------------------------------------------------------------------


def ratings(link):
    """Faults: factors on the strength of the prior of means, and on the rate of that of effects."""

    def wrong(density, strength, rate):
        prior = density.factors._replace(strength=strength * density.factors.strength)
        return density._replace(factors=prior, effect_gamma=(6.0, 3.0 * rate))

    def more(position):
        return (position["usage_mean"] ** 2).sum(), jnp.trace(position["basis_precision"])

    density = of_ratings.DENSITY._replace(link=link)
    return chains_of_ratings(
        density, of_ratings.the_model(link), of_ratings.template(), wrong, more
    )


def ratings_of_relevance():
    """The fault: a factor on the shape of the prior of the factors' precisions."""

    def wrong(density, factor):
        shape, rate = of_relevance.RELEVANCE
        return density._replace(relevance=(factor * shape, rate))

    def more(position):
        usage, precision = position["usage"], position["usage_precision"]
        sums = position["basis_precision"].sum(), (usage.sum(0) ** 2).sum()
        return jnp.log(precision).sum(), *sums

    density, model = of_relevance.density_of("ordered"), of_relevance.the_model("ordered")
    return chains_of_ratings(density, model, of_ratings.template(), wrong, more)


def ratings_with_attributes():
    """The fault: a factor on the rate of the prior of ridges."""
    ridge, groups = of_attributes.RIDGE, of_attributes.OF_ROWS
    x = jnp.asarray(np.concatenate(groups, 1), jnp.float32)

    def wrong(density, factor):
        return density._replace(ridge=(ridge[0], factor * ridge[1]))

    def more(position):
        coefficients = position["usage_coefficients"]
        return (
            jnp.log(position["row_ridge"][0]), jnp.trace(position["usage_precision"]),
            coefficients[0, 0] * position["basis"][0, 0], (coefficients**2).sum(),
            (position["row_coefficients"] ** 2).sum(),
            position["usage_ridge"][1] * position["row_ridge"][1],
            (x @ coefficients * position["usage"]).sum(),
        )  # fmt: skip

    density = of_ratings.DENSITY._replace(link="ordered", attributes=("row",), ridge=ridge)
    data = of_ratings.template()._replace(row_attributes=tuple(map(decomposed, groups)))
    return chains_of_ratings(density, of_attributes.with_attributes("ordered"), data, wrong, more)


def chains_of_ratings(density, model, template, wrong, more):
    """`wrong(density, *faults)` is that of the sampler; `more(position)` are statistics of it."""

    def draw_joint(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=of_ratings.SHAPE)
        full = trace["data"]["value"].astype(jnp.float32)
        full = 2 * full - 1 if density.link == "probit" else full
        return {n: trace[n]["value"] for n in density.sites}, full

    def statistics(position, data):
        observed, full = data
        e, product = of_ratings.fits(position), position["usage"] @ position["basis"].T
        terms = log_probabilities(
            density.link, full, e, position.get("precision", 1.0), position.get("cutpoints")
        )
        joint = jnp.where(of_ratings.SEEN, terms, 0.0).sum()
        level = position["cutpoints"] if "cutpoints" in position else position["intercept"][None]
        return numbers(
            level[0], product[0, 0], product[4, 1], position["row_effect"][1],
            jnp.log(position["column_precision"]), (position["usage"] ** 2).sum(),
            joint + log_prior_of_ratings(density, position, observed), *more(position),
            jnp.log(position.get("precision", position["row_precision"])),
            jnp.where(of_ratings.SEEN, full * e, 0.0).sum(), level[-1] ** 2,
        )  # fmt: skip

    def make(density, *faults):
        # The faults are traced numbers.
        with mock.patch("bmfjax.kernels.ratings.gibbs.check_density"):
            algorithm = pmf_gibbs(wrong(density, *faults))
        return algorithm._replace(
            init=lambda key, position, data: algorithm.init(key, position, data[0]),
            step=lambda key, state, data: algorithm.step(key, state, data[0]),
        )

    problem = Problem(
        draw_joint,
        lambda full: (of_ratings.with_values(template, full), full),
        density,
        lambda key, position: of_ratings.simulate(key, position, density),
    )
    return simulator(problem, make, statistics, num_chains=160, num_draws=20, thin=4)


# ---- Boolean factors ---------------------------------------------------------------------------


def ormachine(num_rates):
    """Faults: the weight of ones, the odds of the prior, rates that shrink before each sweep."""
    update = metropolis if num_rates == 1 else joint(2)
    model = functools.partial(
        ormachine_model, rank=2, flip_rate=dist.Beta(1.0, 3.0), num_rates=num_rates
    )
    rate = FlipRatePrior(num_rates, 1.0, 3.0)
    problem = boolean_problem(model, BooleanDensity(OBSERVED.shape, 2, flip_rate=rate), OBSERVED)
    log_likelihood = boolean.log_likelihood(problem.density)

    def statistics(position, data):
        sites = as_sites(position, OBSERVED.shape)
        product = sites["usage"] @ sites["basis"].T > 0
        ones = unpack_last_axis(data.by_row.ones[0], OBSERVED.shape[1])
        rates = jnp.ravel(position["flip_rate"])
        likelihood = log_likelihood(State(position), data)
        return numbers(
            product[0, 0], product[1, 1],
            likelihood + boolean.log_prior(problem.density, position, data), rates[0], rates[-1],
            sites["usage"].sum(), sites["basis"].sum(),
            position["usage_density"].sum() - position["basis_density"].sum(),
            ((product != ones) & OBSERVED).sum(), jnp.log(rates[0]), position["usage_density"][0],
            ones[0, 0],
        )  # fmt: skip

    def make(density, weight, odds, shrinks):
        def wrong(key, lines, partner, weights):
            weights = weights._replace(one=weights.one * weight)
            return update(key, replace(lines, log_odds=odds * lines.log_odds), partner, weights)

        def shrink(key, position, data, power):
            return position | {"flip_rate": shrinks * position["flip_rate"]}, jnp.float32(1.0)

        return boolean.ormachine(density, update=wrong, moves=[("shrink", shrink)])

    return simulator(problem, make, statistics, num_chains=300, num_draws=31, thin=2)


def one_hot_machine():
    """The fault: the scale of the flip rate. Labels are not exchangeable under this prior."""
    model = functools.partial(
        one_hot_model, rank=2, flip_rate=dist.Beta(1.0, 3.0),
        weights=dist.Dirichlet(jnp.array([2.0, 1.0])),
    )  # fmt: skip
    flips = FlipRatePrior(1, 1.0, 3.0)
    density = one_hot.OneHotDensity(OBSERVED.shape, 2, (2.0, 1.0), flip_rate=flips)
    problem = boolean_problem(model, density, OBSERVED, one_hot.one_hot_data)
    log_likelihood = one_hot.log_likelihood(density)

    def statistics(position, data):
        basis = unpack_last_axis(position["basis"], OBSERVED.shape[1])
        cluster, rate, w = (position[n] for n in ("cluster", "flip_rate", "weights"))
        product = basis[cluster]
        ones = unpack_last_axis(data.packed.by_row.ones[0], OBSERVED.shape[1])
        likelihood = log_likelihood(State(position), data)
        return numbers(
            cluster[0] == cluster[1], product[0, 0], product[1, 1],
            likelihood + one_hot.log_prior(density, position, data), rate, w.max(), basis.sum(),
            position["basis_density"].sum(), ((product != ones) & OBSERVED).sum(), jnp.log(rate),
            w[0], cluster[2], ones[0, 0],
        )  # fmt: skip

    def make(density, scale):
        return stretched(one_hot.one_hot_machine(density), "flip_rate", scale)

    return simulator(problem, make, statistics, num_chains=300, num_draws=31, thin=2)


def hamming_machine():
    """The fault: the scale of the dispersion."""
    model = functools.partial(hamming_model, rank=2)
    density = hamming.HammingDensity(OBSERVED.shape, 2)
    problem = boolean_problem(model, density, OBSERVED, hamming.hamming_data)
    log_likelihood = hamming.log_likelihood(density)

    def statistics(position, data):
        sites = as_sites(position, OBSERVED.shape)
        votes = sites["usage"] @ (2 * sites["basis"] - 1).T
        ones = unpack_last_axis(data.by_row.ones[0], OBSERVED.shape[1])
        likelihood = log_likelihood(State(position), data)
        return numbers(
            votes[0, 0], votes[1, 1], likelihood + hamming.log_prior(density, position, data),
            position["dispersion"], sites["usage"].sum(), sites["basis"].sum(),
            position["usage_density"].sum() - position["basis_density"].sum(),
            ((votes * jnp.where(ones, 1, -1) < 0) & OBSERVED).sum(),
            jnp.log(position["dispersion"]), position["usage_density"][0], ones[0, 0],
        )  # fmt: skip

    def make(density, scale):
        return stretched(hamming.hamming_machine(density), "dispersion", scale)

    return simulator(problem, make, statistics, num_chains=300, num_draws=31, thin=2)


def deep_machine():
    """The fault: a share of the prior log odds from the layer above."""
    density = deep.DeepDensity(FEW.shape, (2, 2), flip_rate=FlipRatePrior(1, 2.0, 6.0))
    model = functools.partial(deep_model, ranks=(2, 2), flip_rate=dist.Beta(2.0, 6.0))
    shape, kind = FEW.shape, jnp.result_type(float)
    template = deep.deep_data(BinaryMatrix(np.where(FEW, 0.0, np.nan)))

    def draw_joint(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=shape)
        sites = {n: s["value"] for n, s in trace.items() if s["type"] == "sample"}
        values = sites.pop("data")
        return of_layers.as_position(density, sites), values.astype(kind)

    def simulate(key, position):
        fixed = handlers.substitute(model, data=of_layers.as_sites(density, position))
        trace = handlers.trace(handlers.seed(fixed, key)).get_trace(shape=shape)
        return trace["data"]["value"].astype(kind)

    data = functools.partial(with_values, template, jnp.asarray(FEW))

    def statistics(position, data):
        sites = of_layers.as_sites(density, position)
        bits = {n: sites[n].astype(jnp.float32) for n in of_layers.sizes_of(density)}
        above = bits["usage_2"] @ bits["basis_2"].T > 0
        return numbers(
            data.by_row.ones[0, 0, 0] & 1, deep.reconstruction(density, position)[1, 1],
            deep.log_joint(density, position, data), bits["usage_1"].mean(), bits["usage_2"].mean(),
            ((bits["usage_1"] == 1) == above).mean(),
            bits["basis_1"].mean() * bits["basis_2"].sum(),
            position["flip_rate_1"], position["flip_rate_2"],
            position["usage_density"].mean() + position["basis_density_2"].mean(),
        )  # fmt: skip

    def make(density, share):
        algorithm, right = deep.deep_ormachine(density), deep.log_odds_from_above

        def step(*args):
            broken = lambda *a: share * right(*a)  # noqa: E731
            with mock.patch.object(deep, "log_odds_from_above", broken):
                state, info = algorithm.step(*args)
            return state, info

        return algorithm._replace(step=step)

    problem = Problem(draw_joint, data, density, simulate)
    return simulator(problem, make, statistics, num_chains=300, num_draws=40, thin=3)


def with_effects():
    """Faults: the inverse temperature, and a factor on the rate of the dispersion's prior."""
    rows, columns, shape = of_effects.ROWS, of_effects.COLUMNS, of_effects.SHAPE
    template = observed_entries(rows, columns, np.zeros(len(rows), int), shape)

    def data(values):
        """The lists of entries, and the values as they are."""
        full = jnp.zeros(shape).at[rows, columns].set(2.0 * values - 1.0)
        row, column = template
        seen_row, seen_column = row.sign != 0, column.sign != 0
        lists = template._replace(
            by_row=row._replace(sign=jnp.where(seen_row, full[row.line[:, None], row.other], 0.0)),
            by_column=column._replace(
                sign=jnp.where(seen_column, full[column.other, column.line[:, None]], 0.0)
            ),
        )
        return lists, values

    def simulate(key, position):
        logits = effects.entry_logits(position, rows, columns)
        return 1 * (random.uniform(key, logits.shape) < jax.nn.sigmoid(logits))

    def statistics(position, data):
        lists, values = data
        # The second of these entries is missing.
        logits = effects.entry_logits(position, jnp.array([0, 1]), jnp.array([0, 1]))
        prior = effects.log_prior(position, of_effects.PRIOR)
        precisions = [position[f"{side}_precision"] for side in ("row", "column")]
        return numbers(
            position["intercept"], position["dispersion"], *precisions, *logits,
            effects.log_likelihood(position, lists) + prior,
            position["usage"].mean(), position["basis"].mean(), position["usage_density"].sum(),
            position["row_effect"][1], position["column_effect"][2], position["usage"][2, 1],
            (effects.entry_logits(position, rows, columns) * (2 * values - 1)).sum(),
            jnp.log(precisions[0] * precisions[1]),
        )  # fmt: skip

    def make(_, power, rate):
        prior = of_effects.PRIOR
        prior = prior._replace(dispersion_rate=rate * prior.dispersion_rate)
        algorithm = effects.ormachine_effects(of_effects.RANK, prior=prior)

        def step(key, state, data):
            return algorithm.step(key, state, data[0], power)

        return algorithm._replace(step=step)

    problem = Problem(of_effects.draw_joint, data, None, simulate)
    return simulator(problem, make, statistics, num_chains=300, num_draws=24, thin=3)
