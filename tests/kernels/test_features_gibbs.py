"""Binary latent features: every conditional by enumeration and quadrature, and the log joint."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import betaln, expit

from bmfjax.data import InputError
from bmfjax.kernels.features.density import MOMENT, FeatureData, FeatureDensity, log_odds
from bmfjax.kernels.features.gibbs import features_gibbs
from bmfjax.kernels.features.memberships import (
    block_size,
    draw_memberships,
    membership_shapes,
    state_likelihood,
)
from bmfjax.kernels.features.rebirth import rebirth_shapes, reborn
from bmfjax.kernels.features.weights import (
    column_shapes,
    column_systems,
    draw_columns,
    draw_rows,
    row_shapes,
)
from bmfjax.kernels.logistic.polya_gamma import draw_polya_gamma
from bmfjax.kernels.numerics.uniforms import draw_uniforms
from bmfjax.models import features
from tests.kernels.exactness import fast_jit, moment_scores

SHAPE, RANK = (5, 4), 2
HIDDEN = np.zeros(SHAPE, bool)
HIDDEN[0] = HIDDEN[2, 1] = HIDDEN[4, 3] = True
MILD = {"slab": (4.0, 6.0), "row_scale": 0.7, "mean_scale": 1.0, "intercepts": (4.0, 3.0)}
KINDS = {"signed": {"presence": (1.0, 1.0)}, "positive": {"presence": None}}
EACH = pytest.mark.parametrize(
    "weights", ["signed", pytest.param("positive", marks=pytest.mark.long)]
)


def density_of(weights, **more):
    return FeatureDensity(RANK, weights, **MILD, **KINDS[weights] | more)


def of_bits(key, rank, rows, size):
    return draw_uniforms(key, jnp.float32, *membership_shapes(rank, rows, size))


def of_columns(key, density, columns):
    return draw_uniforms(key, jnp.float32, *column_shapes(density, columns))


def model_of(density):
    return functools.partial(features, **density._asdict())


def draw_joint(density, key, shape=SHAPE):
    trace = handlers.trace(handlers.seed(model_of(density), key)).get_trace(shape=shape)
    sites = {n: trace[n]["value"].astype(jnp.float32) for n in density.sites}
    return sites, trace["data"]["value"].astype(jnp.float32)


def data_of(values, hidden=None):
    hidden = jnp.isnan(values) if hidden is None else hidden
    signs = jnp.where(hidden, 0, 2 * jnp.nan_to_num(values) - 1)
    return FeatureData(signs.T.astype(jnp.int8))


@pytest.mark.device
@EACH
def test_the_log_joint_of_a_step_is_that_of_the_model(weights):
    """But for what it leaves out: weights of other columns, and what absent features have."""
    density = density_of(weights)
    algorithm = features_gibbs(density, SHAPE)
    model = functools.partial(model_of(density), observed=~HIDDEN)

    @fast_jit
    def step(key):
        position, values = draw_joint(density, key)
        data = data_of(values, HIDDEN)
        state, info = algorithm.step(key, algorithm.init(key, position, data), data)
        position = dict(state.position)
        basis = position.pop("basis")
        sites = position | {"concerned": 1.0 * (basis != 0), "weight": basis + 0.5 * (basis == 0)}
        return state.position, info.log_joint, log_density(model, (values,), {}, sites)[0]

    for seed in range(4):
        position, log_joint, expected = jax.device_get(step(random.key(seed)))
        there = position.get("presence", np.ones(RANK))
        active = position["basis"] != 0
        precision = position["factor_precision"]
        df, scale = (1, precision**-0.5)
        if weights == "positive":
            df, scale = MOMENT + 1, ((MOMENT + 1) * precision) ** -0.5
        slab = stats.chi(df, scale=scale).logpdf(0.5) - math.log(2) * (weights == "signed")
        expected = expected - (slab * ~active).sum()
        a, b = density.slab
        prior = a * np.log(b) - math.lgamma(a) + (a - 1) * np.log(precision) - b * precision
        expected -= prior[there == 0].sum()
        np.testing.assert_allclose(log_joint, expected, rtol=2e-5)


def test_a_sweep_calls_the_random_generator_once_and_once_in_each_loop_of_rejections():
    """Each call is a loop of its own to compile."""
    algorithm = features_gibbs(FeatureDensity(RANK, presence=(1.0, 1.0)), SHAPE, rebirths=2)
    data = data_of(jnp.ones(SHAPE))
    state = jax.eval_shape(lambda key: algorithm.init(key, None, data), random.key(0))
    traced = jax.make_jaxpr(algorithm.step)(random.key(0), state, data)
    calls = [n for n in primitives(traced.jaxpr) if n in GENERATOR]
    assert calls == ["threefry2x32"] * 3


GENERATOR = ("threefry2x32", "random_bits", "random_split", "random_fold_in")


def primitives(jaxpr):
    """The names of all operations of a traced program, those of its parts too."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                part = getattr(part, "jaxpr", part)
                if hasattr(part, "eqns"):
                    yield from primitives(part)


# ---- memberships ---------------------------------------------------------------------------------


def test_blocks_of_bits_are_few_and_about_equal():
    for rank in range(1, 20):
        size = block_size(rank)
        number = -(-rank // size)
        assert size <= 4 and number == -(-rank // 4) and number * size - rank < number


@pytest.mark.parametrize("columns", [7, 35])  # one logarithm, and several
def test_states_have_the_likelihood_of_bernoulli_cells_however_sure_they_are(columns):
    r = np.random.default_rng(0)
    signs = r.integers(-1, 2, (columns, 30)).astype(np.int8)
    rest, added = r.normal(0, 6, (columns, 30)), [0.0, 15.0, -15.0, 1.0, 30.0, -2.0, 0.3]
    added = np.append(added, r.normal(size=columns - 7))
    found = fast_jit(lambda rest, added: state_likelihood(rest, signs)(added))(
        jnp.float32(rest), jnp.float32(added)
    )
    psi = signs * (rest + added[:, None])
    exact = np.where(signs != 0, -np.logaddexp(0, -psi), 0.0).sum(0)
    kept = psi.min(0) > -41  # where no factor is cut
    assert kept.sum() > 10
    np.testing.assert_allclose(found[kept], exact[kept], rtol=1e-5, atol=1e-4)


@pytest.mark.device
@pytest.mark.parametrize("size", [1, 2, 3])
def test_memberships_have_the_chances_of_enumeration(size):
    """In blocks that divide their number and that do not; known bits, and an absent feature."""
    rank, rows, columns, draws = 3, 3, 5, 6000
    r = np.random.default_rng(1)
    values = (r.random((rows, columns)) < 0.5).astype(float)
    values[0, 1] = values[2, :3] = np.nan
    known = np.full((rows, rank), np.nan)
    known[1, 0], known[2, 2] = 1.0, 0.0
    density = FeatureDensity(rank, presence=(1.0, 1.0))
    position = {
        "usage": np.where(np.isnan(known), 0.0, known), "basis": r.normal(0, 1.5, (columns, rank)),
        "column_effect": r.normal(size=columns),
        "usage_density": np.array([0.3, 0.6, 0.5]), "presence": np.array([1.0, 0.0, 1.0]),
    }  # fmt: skip
    position = {n: jnp.float32(v) for n, v in position.items()}
    data = data_of(values)._replace(known_usage=jnp.float32(known))

    @fast_jit
    def chain(key):
        def sweep(carry, key):
            drawn, psi, chance = draw_memberships(
                of_bits(key, rank, rows, size),
                carry[1],
                position | {"usage": carry[0]},
                data,
                density,
                1.0,
                size,
            )
            return (drawn["usage"], psi), (drawn["usage"], chance)

        start = position["usage"], log_odds(position)
        (usage, psi), draws_of = lax.scan(sweep, start, random.split(key, draws))
        return draws_of, psi - log_odds(position | {"usage": usage})

    (found, told), drift = chain(random.key(0))
    assert np.abs(drift).max() < 1e-2
    log_chance = np.zeros(draws)
    for n in range(rows):
        total, chances, of = 0.0, np.zeros(rank), {}
        for bits in itertools.product([0.0, 1.0], repeat=rank):
            z = np.array(bits)
            fits = all(np.isnan(known[n, k]) or known[n, k] == z[k] for k in range(rank))
            if z[1] or not fits:
                continue
            psi = np.asarray(position["basis"] @ z + position["column_effect"])
            psi = psi * np.where(values[n] == 1, 1, -1)
            p = np.asarray(position["usage_density"])
            prior = np.where(z == 1, p, 1 - p)[[k for k in (0, 2) if np.isnan(known[n, k])]]
            mass = np.where(np.isnan(values[n]), 1.0, expit(psi)).prod() * prior.prod()
            total, chances, of[bits] = total + mass, chances + mass * z, mass
        log_chance += np.log([of[tuple(z)] / total for z in np.asarray(found)[:, n].tolist()])
        np.testing.assert_allclose(np.asarray(found)[:, n].mean(0), chances / total, atol=0.035)
    if size == rank:  # of one block
        np.testing.assert_allclose(told, log_chance, atol=1e-4)


@pytest.mark.device
@pytest.mark.parametrize("size", [1, 2])
def test_row_effects_and_memberships_are_those_of_quadrature(size):
    """Weights that a row effect can stand for; a row without entries has its prior."""
    r, scale, share = np.random.default_rng(2), 1.2, np.array([0.3, 0.6])
    basis, level = np.array([[2.0, 1.5, 2.5, 1.0], [0.0, -1.0, 2.0, 1.5]]), r.normal(size=4)
    values = np.array([[1, 1, 1, 1], [0, 1, 0, np.nan], [np.nan] * 4])
    fixed = {"basis": basis.T, "column_effect": level, "usage_density": share, "row_scale": scale}
    fixed = {n: jnp.float32(v) for n, v in fixed.items()}
    start = {"usage": jnp.zeros((3, 2)), "row_effect": jnp.zeros(3)}
    data, density = data_of(values), FeatureDensity(2)

    @fast_jit
    def chains(keys):
        def sweep(carry, key):
            drawn, psi, _ = draw_memberships(
                of_bits(key, 2, 3, size), carry[1], fixed | carry[0], data, density, 1.0, size
            )
            drift = jnp.abs(psi - log_odds(fixed | drawn)).max()
            of = jnp.concatenate([drawn["usage"].ravel(), drawn["row_effect"], drift[None]])
            return (drawn, psi), of

        return jax.vmap(
            lambda k: lax.scan(sweep, (start, log_odds(fixed | start)), random.split(k, 400))[1]
        )(keys)

    draws = np.asarray(chains(random.split(random.key(2), 50)))[:, 20:]
    assert draws[..., -1].max() < 1e-4
    x, mass = np.polynomial.hermite_e.hermegauss(61)
    bits, effects, squares = np.zeros((3, 2)), np.zeros(3), np.zeros(3)
    for n, row in enumerate(values):
        total = 0.0
        for z in itertools.product([0.0, 1.0], repeat=2):
            psi = (level + np.array(z) @ basis)[:, None] + scale * x
            cells = np.where(
                np.isnan(row)[:, None], 1.0, expit(np.where(row == 1, 1, -1)[:, None] * psi)
            )
            chance = cells.prod(0) * mass * np.where(z, share, 1 - share).prod()
            total += chance.sum()
            bits[n] += chance.sum() * np.array(z)
            effects[n] += (chance * scale * x).sum()
            squares[n] += (chance * (scale * x) ** 2).sum()
        bits[n], effects[n], squares[n] = (v[n] / total for v in (bits, effects, squares))
    exact = np.concatenate([bits.ravel(), effects]), np.concatenate([bits.ravel(), squares])
    scores, number = moment_scores(draws[..., :-1], exact)
    assert number.min() > 1000
    assert np.abs(scores).max() < 4.0


# ---- weights -------------------------------------------------------------------------------------

# So many rows that a bound which is drawn from its prior is seen.
ROWS = np.tile(np.array([[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0]], float), 4).T
COLUMN = np.tile([1, 1, 1, 0, 0, 1, 0, np.nan], 4)
FIXED = {"factor_precision": (0.5, 0.8), "basis_density": (0.4, 0.6), "column_mean": -0.4,
         "column_precision": 1.3, "row_scale": 0.7}  # fmt: skip
EFFECTS = np.tile([0.3, -0.2, 0.5, 0.0, -0.6, 0.2, 0.1, -0.3], 4)


def product_moment(grid):
    """Return the masses of a positive weight on a grid, in units of the scale of its normal part.

    Its square has the mean one over the precision of the feature.
    """
    mass = grid**MOMENT * np.exp(-0.5 * grid**2)
    np.testing.assert_allclose((mass * grid**2).sum() / mass.sum(), MOMENT + 1, rtol=1e-3)
    return mass / mass.sum()


def of_quadrature(weights, nodes=41):
    """Moments of (spikes, weights, intercept) of one column, their scales known."""
    x, mass = np.polynomial.hermite_e.hermegauss(nodes)
    mass = mass / mass.sum()
    intercept = FIXED["column_mean"] + x / FIXED["column_precision"] ** 0.5
    slabs = [x / p**0.5 for p in FIXED["factor_precision"]]
    if weights == "positive":  # on (0, inf) in place of twice one half
        grid = 0.05 * (np.arange(160) + 0.5)
        slabs = [grid / ((MOMENT + 1) * p) ** 0.5 for p in FIXED["factor_precision"]]
        of_slab = product_moment(grid)
    else:
        of_slab = mass
    total, moments = 0.0, np.zeros(5)
    for spikes in itertools.product([0, 1], repeat=2):
        chances = zip(spikes, FIXED["basis_density"], strict=True)
        prior = np.prod([p if on else 1 - p for on, p in chances])
        none = np.zeros(1), np.ones(1)
        of_both = [(s, of_slab) if on else none for on, s in zip(spikes, slabs, strict=True)]
        v, m = zip(*of_both, strict=True)
        a, v1, v2 = np.meshgrid(intercept, *v, indexing="ij")
        chance = prior * np.multiply.outer(np.multiply.outer(mass, m[0]), m[1])
        for z, e, value in zip(ROWS, EFFECTS, COLUMN, strict=True):
            psi = a + z[0] * v1 + z[1] * v2 + e
            chance = chance * (1 if np.isnan(value) else expit(psi if value else -psi))
        total += chance.sum()
        moments += chance.sum() * np.array([*spikes, 0, 0, 0])
        moments += [0, 0, (chance * v1).sum(), (chance * v2).sum(), (chance * a).sum()]
    return moments / total


@pytest.mark.device
@EACH
def test_weights_given_memberships_are_those_of_quadrature(weights):
    density = FeatureDensity(2, weights)
    fixed = {n: jnp.float32(v) for n, v in FIXED.items()}
    fixed |= {"usage": jnp.float32(ROWS), "row_effect": jnp.float32(EFFECTS)}
    data = data_of(COLUMN[:, None])
    start = {"basis": jnp.zeros((1, 2)), "column_effect": jnp.zeros(1)}

    @fast_jit
    def chains(keys):
        def sweep(free, key):
            position, (key_augment, key) = fixed | free, random.split(key)
            omega = draw_polya_gamma(key_augment, log_odds(position))
            omega = jnp.where(data.signs != 0, omega, 0.0)
            systems = column_systems(position, omega, 0.5 * data.signs)
            free, entropy = draw_columns(
                of_columns(key, density, 1), position, systems, data, density
            )
            basis = free["basis"][0]
            # Of the normal that the weights which are not zero have with the intercept.
            on = jnp.append(basis != 0, True)
            prior = jnp.append(fixed["factor_precision"], fixed["column_precision"])
            whole = systems[0][..., 0] + jnp.diag(prior)
            if density.is_signed:
                whole = jnp.where(on & on[:, None], whole, jnp.eye(3))
                own = 0.5 * (on.sum() * jnp.log(2 * jnp.pi * jnp.e) - jnp.linalg.slogdet(whole)[1])
            else:
                own = entropy
            return free, jnp.concatenate(
                [basis != 0, basis, free["column_effect"], (entropy - own)[None]]
            )

        return jax.vmap(lambda k: lax.scan(sweep, start, random.split(k, 400))[1])(keys)

    draws = np.asarray(chains(random.split(random.key(0), 50)))[:, 20:]
    np.testing.assert_allclose(draws[..., 5], 0.0, atol=1e-4)
    draws = draws[..., :5]
    exact = of_quadrature(weights)
    scores, size = moment_scores(draws, (exact, exact**2 + draws.var((0, 1))))
    assert size.min() > 2000
    assert np.abs(scores[0]).max() < 4.0


@pytest.mark.parametrize("many_rows, below", [(3, 0.5), (2, 1.0)])
def test_no_weight_is_zero_while_the_likelihood_counts_little(monkeypatch, many_rows, below):
    """Of features that are there, whatever the data say; known ones stay as they are."""
    monkeypatch.setattr("bmfjax.kernels.features.weights.MANY_ROWS", many_rows)
    density = FeatureDensity(2, presence=(1.0, 1.0))
    fixed = {n: jnp.float32(v) for n, v in FIXED.items()} | {"basis_density": jnp.full(2, 1e-6)}
    fixed |= {"basis": jnp.zeros((3, 2)), "presence": jnp.array([1.0, 0.0])}
    systems = jnp.eye(3)[..., None] * jnp.ones(3), jnp.zeros((3, 3))
    known = jnp.array([[jnp.nan, 1.0], [0.0, 0.0], [jnp.nan, jnp.nan]])
    data = data_of(np.zeros((3, 4)))._replace(known_columns=known)

    @fast_jit
    def drawn(power):
        uniforms = of_columns(random.key(0), density, 3)
        return draw_columns(uniforms, fixed, systems, data, density, power)[0]["basis"]

    for power, expected in ((below - 0.01, [1, 0, 1]), (below, [0, 0, 0])):
        found = drawn(power)
        np.testing.assert_array_equal(found[:, 0] != 0, expected)
        assert not np.any(found[1:, 1])


@pytest.mark.device
def test_row_effects_and_their_scale_are_those_of_quadrature():
    density = FeatureDensity(1, row_scale=0.8)
    values = np.array([[1.0, 1.0, np.nan], [0.0, 0.0, 0.0]])
    data, psi = data_of(values), jnp.float32([[0.2, -0.3, 0.5]]).T + jnp.zeros(2)
    fixed = {"column_effect": jnp.zeros(3), "column_mean": jnp.float32(0),
             "column_precision": jnp.float32(1e8)}  # fmt: skip
    start = {"row_effect": jnp.zeros(2), "row_scale": jnp.float32(0.4)}

    @fast_jit
    def chains(keys):
        def sweep(free, key):
            key_augment, key = random.split(key)
            whole = psi + free["row_effect"]
            omega = jnp.where(data.signs != 0, draw_polya_gamma(key_augment, whole), 0.0)
            half, uniforms = 0.5 * data.signs, draw_uniforms(key, jnp.float32, *row_shapes(2))
            drawn, entropy = draw_rows(uniforms, fixed | free, whole, omega, half, density)
            free = {n: drawn[n] for n in start}
            of_normal = 0.5 * jnp.log(2 * jnp.pi * jnp.e / (omega.sum(0) + free["row_scale"] ** -2))
            return free, jnp.stack(
                [*free["row_effect"], free["row_scale"], entropy - of_normal.sum()]
            )

        return jax.vmap(lambda k: lax.scan(sweep, start, random.split(k, 400))[1])(keys)

    draws = np.asarray(chains(random.split(random.key(1), 50)))[:, 20:]
    np.testing.assert_allclose(draws[..., 3], 0.0, atol=1e-4)
    draws = draws[..., :3]
    x, mass = np.polynomial.hermite_e.hermegauss(41)
    mass = mass / mass.sum()
    tau = np.linspace(0.0, 4.8, 2401)[1:] - 0.001
    total, moments = 0.0, np.zeros(3)
    for t in tau:
        both = []
        for row in values:
            s = np.where(row == 1, 1.0, -1.0)[:, None]
            like = expit(s * (np.asarray(psi[:, :1]) + t * x))
            both.append(np.where(np.isnan(row)[:, None], 1.0, like).prod(0) * mass)
        prior = np.exp(-0.5 * (t / 0.8) ** 2) * both[0].sum() * both[1].sum()
        total += prior
        means = [(b * t * x).sum() / b.sum() for b in both]
        moments += prior * np.array([*means, t])
    exact = moments / total
    scores, size = moment_scores(draws, (exact, exact**2 + draws.var((0, 1))))
    assert size.min() > 1000
    assert np.abs(scores[0]).max() < 4.0


# ---- a feature that is born again ----------------------------------------------------------------


@pytest.mark.device
@EACH
def test_births_and_deaths_leave_the_posterior_of_enumeration(weights):
    """Of one feature and two columns, all else known: nothing but the move."""
    rows, precision, chance, share = 5, 0.6, 0.4, 0.35
    presence = KINDS[weights]["presence"]
    density = FeatureDensity(1, weights, presence=presence)
    values = np.array([[1, 1], [1, 1], [1, np.nan], [0, 1], [0, 0.0]])
    effect, data = np.array([-0.3, 0.4]), data_of(values)
    position = {
        "usage": jnp.zeros((rows, 1)).at[0].set(1.0), "basis": jnp.ones((2, 1)),
        "factor_precision": jnp.float32([precision]), "basis_density": jnp.float32([chance]),
    }  # fmt: skip
    if presence is not None:
        position |= {"presence": jnp.ones(1), "presence_share": jnp.float32(share)}

    @fast_jit
    def chains(keys):
        def step(carry, key):
            uniforms = draw_uniforms(key, jnp.float32, *rebirth_shapes(1, rows, 2))
            position, psi, _ = reborn(uniforms, *carry, data, density, 1.0, 0)
            there = position["presence"][0] if presence else jnp.float32(1)
            basis = position["basis"][:, 0]
            seen = jnp.concatenate([there[None], position["usage"][:, 0], basis != 0, basis])
            return (position, psi), seen

        psi = position["basis"] @ position["usage"].T + jnp.float32(effect)[:, None]
        return jax.vmap(lambda k: lax.scan(step, (position, psi), random.split(k, 1500))[1])(keys)

    draws = np.asarray(chains(random.split(random.key(2), 40)))[:, 100:]
    if weights == "signed":
        grid = np.linspace(-9, 9, 3601)
        slab, v = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum(), grid / precision**0.5
    else:
        grid = np.linspace(0, 9, 1801)[1:] - 0.0025
        slab, v = product_moment(grid), grid / ((MOMENT + 1) * precision) ** 0.5

    def cells(z, j, v):
        found = np.ones_like(v)
        for n in range(rows):
            if not np.isnan(values[n, j]):
                found = found * expit((effect[j] + z[n] * v) * (1 if values[n, j] else -1))
        return found

    total, moments = 0.0, np.zeros(1 + rows + 4)
    for z in itertools.product([0, 1], repeat=rows):
        prior = math.exp(betaln(1 + sum(z), 1 + rows - sum(z))) * (share if presence else 1.0)
        off = [(1 - chance) * cells(z, j, np.zeros(1))[0] for j in (0, 1)]
        on = [chance * (slab * cells(z, j, v)).sum() for j in (0, 1)]
        mean = [chance * (slab * cells(z, j, v) * v).sum() for j in (0, 1)]
        each = [a + b for a, b in zip(on, off, strict=True)]
        mass = prior * each[0] * each[1]
        total += mass
        moments += mass * np.array(
            [1, *z, on[0] / each[0], on[1] / each[1], mean[0] / each[0], mean[1] / each[1]]
        )
    if presence:
        total += (1 - share) * np.prod([cells(np.zeros(rows), j, np.zeros(1))[0] for j in (0, 1)])
    exact = moments / total
    changes = slice(0 if presence else 1, None)
    draws, exact = draws[..., changes], exact[changes]
    scores, size = moment_scores(draws, (exact, exact**2 + draws.var((0, 1))))
    assert size.min() > 2000
    assert np.abs(scores[0]).max() < 4.0


@pytest.mark.device
def test_births_and_deaths_without_data_leave_the_prior_number_of_features():
    """Each is there with the same probability, by itself; the first is known, and is left alone."""
    share, rank, rows, columns = 0.35, 4, 3, 2
    density, data = (
        FeatureDensity(rank, presence=(1.0, 1.0)),
        data_of(jnp.full((rows, columns), jnp.nan)),
    )
    position = {
        "usage": jnp.zeros((rows, rank)), "basis": jnp.zeros((columns, rank)),
        "factor_precision": jnp.ones(rank), "basis_density": jnp.full(rank, 0.4),
        "presence": jnp.zeros(rank).at[0].set(1.0), "presence_share": jnp.float32(share),
    }  # fmt: skip

    @fast_jit
    def chains(keys):
        def step(carry, key):
            uniforms = draw_uniforms(key, jnp.float32, *rebirth_shapes(rank, rows, columns))
            position, psi, _ = reborn(uniforms, *carry, data, density, 1.0, 1)
            return (position, psi), position["presence"]

        start = position, jnp.zeros((columns, rows))
        return jax.vmap(lambda k: lax.scan(step, start, random.split(k, 1500))[1])(keys)

    draws = np.asarray(chains(random.split(random.key(3), 20)))[:, 50:]
    assert (draws[..., 0] == 1).all()
    free = draws[..., 1:]
    seen = np.concatenate([free, (free.sum(-1, keepdims=True) == [0, 1, 2, 3])], -1)
    exact = np.array(
        [share] * 3 + [math.comb(3, n) * share**n * (1 - share) ** (3 - n) for n in range(4)]
    )
    scores, size = moment_scores(seen.astype(float), (exact, exact))
    assert size.min() > 2000
    assert np.abs(scores).max() < 4.0


def test_scales_and_kinds_of_weights_are_checked():
    with pytest.raises(InputError, match="weights is 'real'; choose from signed, positive"):
        features_gibbs(FeatureDensity(1, "real"), (2, 2))
    with pytest.raises(InputError, match="row_scale is 0"):
        features_gibbs(FeatureDensity(1, row_scale=0), (2, 2))
    with pytest.raises(InputError, match="rebirths is -1"):
        features_gibbs(FeatureDensity(1), (2, 2), rebirths=-1)
