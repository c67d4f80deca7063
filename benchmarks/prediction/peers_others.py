"""Implicit feedback and minibatches: this library beside peers. A part of `peers.py`.

`recall`: which zeros would become ones, on one synthetic matrix of `logistic_recall.py`, with
implicit as tuned there. `regression`: a logistic regression whose posterior is known, of
`minibatch_regression.py` with fewer rows; SGLD of this library beside that of blackjax, for the
same processor seconds. All start at the mode. Steps of blackjax are those of four with the least
error against the known posterior, a choice that no user could make; ours are the defaults.
"""

import functools
import warnings

import numpy as np

from benchmarks.prediction.peers_form import Answer, Registry, clocks

RECALL, REGRESSION = Registry(), Registry()
ROWS, COVARIATES, BATCH = 20_000, 10, 256
#: Processor seconds of a chain after its first steps.
SECONDS = 5.0
#: Steps of blackjax between two draws, as of ours, and draws between two looks at the clock.
THIN, CHUNK = 10, 100
#: Of steps as long as the curvature at the mode allows in plain Langevin dynamics.
STEPS = (0.003, 0.03, 0.1, 0.3)


# ---- recall --------------------------------------------------------------------------------------


def recall_problem(seed: int):
    from benchmarks.prediction.logistic_recall import synthetic

    ones, held_out, _ = synthetic(seed)
    training = ones.copy()
    training[np.arange(len(ones)), held_out] = False
    return training, held_out


def recall_scores(asked, told) -> dict:
    from benchmarks.prediction.logistic_recall import ranked

    return {n: float(v) for n, v in ranked(*asked, told).items()}


@RECALL.add("bmfjax logistic", "bmfjax.fitting", "logistic_recall")
def logistic(asked, seed):
    import bmfjax
    from benchmarks.prediction.logistic_recall import RANK

    training = asked[0].astype(float)
    options = {"num_chains": 1, "num_samples": 100}
    fit = bmfjax.fit(training, RANK, model="logistic", seed=seed, progress=False, **options)
    return Answer(fit.probability(), {"rank": RANK} | options)


def _implicit(name):
    def run(asked, seed):
        from benchmarks.prediction.logistic_recall import IMPLICIT, implicit_scores

        scores, _ = implicit_scores(asked[0], seed, only=(name,))[name]
        return Answer(scores, IMPLICIT[name])

    return run


for _name in ("implicit ALS, tuned", "implicit LMF, tuned"):
    RECALL.add(_name, "implicit", "logistic_recall")(_implicit(_name))


@RECALL.add("popularity")
def popularity(asked, seed):
    return Answer(np.broadcast_to(asked[0].mean(0), asked[0].shape), {})


# ---- regression ----------------------------------------------------------------------------------


def regression_problem(seed: int, rows: int = ROWS):
    """Covariates, outcomes, and the posterior, as `minibatch_regression.reference` knows it."""
    from benchmarks.speed.minibatch_regression import reference, simulated

    x, y = simulated(rows, COVARIATES, seed)
    return x, y, reference(x, y)


def regression_scores(asked, draws) -> dict:
    """Return errors of means and standard deviations, and effective draws."""
    from benchmarks.speed.minibatch_regression import errors
    from bmfjax.diagnostics import ess_bulk

    exact = asked[2]
    mean, sd = errors(draws, exact)
    ratio = draws.std(0) / exact.sd
    inside = np.abs(draws - exact.mean) <= 1.6449 * exact.sd
    return {
        "mean_error": mean, "sd_error": sd, "sd_ratio_least": float(ratio.min()),
        "sd_ratio_most": float(ratio.max()), "coverage": float(inside.mean()),
        "draws": len(draws), "effective_draws": float(ess_bulk(draws[None]).min()),
    }  # fmt: skip


def _ours(asked, seed, seconds=None, **options):
    import jax.numpy as jnp

    import bmfjax
    from benchmarks.speed.minibatch_regression import BLOCKS, chain, model

    x, y, exact = asked
    mode = {"beta": jnp.asarray(exact.mode, jnp.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the gradients' noise
        kernel = bmfjax.SGLD(model, BLOCKS, num_approach=0, **options)
        data = jnp.asarray(x), jnp.asarray(y)
        trace = chain(kernel, CHUNK, data, mode, SECONDS if seconds is None else seconds, seed)
    return Answer(trace.draws, options | {"batch": BATCH})


@REGRESSION.add("bmfjax SGLD", "bmfjax.infer.mcmc", "minibatch_regression")
def sgld(asked, seed):
    return _ours(asked, seed)


@REGRESSION.add(
    "bmfjax SGLD, plain gradients and steps", "bmfjax.infer.mcmc", "minibatch_regression"
)
def plain_sgld(asked, seed):
    """Without preconditioner, control variates and topped-up noise: Welling and Teh's."""
    step = float(_longest(asked)) * STEPS[0]
    plain = {"control_variates": False, "noise": "langevin", "preconditioner": None}
    return _ours(asked, seed, step_size=step, **plain)


def _longest(asked):
    """Return the inverse of the largest eigenvalue of the curvature at the mode."""
    return 1.0 / np.linalg.eigvalsh(_curvature(asked)).max()


def _curvature(asked):
    x, _, exact = asked
    p = 1 / (1 + np.exp(-x.astype(float) @ exact.mode))
    return np.eye(x.shape[1]) + (x * (p * (1 - p))[:, None]).T.astype(float) @ x


def _blackjax(asked, seed, *, variates, whitened):
    """Tune the step against the truth with a fifth of the time, and run."""
    began = clocks()
    run = functools.partial(_chain, asked, seed, variates, whitened)
    errors = {}
    for step in STEPS:
        draws = run(step, SECONDS / 5)
        found = regression_scores(asked, draws) if np.isfinite(draws).all() else {}
        errors[step] = max(found.get("mean_error", np.inf), found.get("sd_error", np.inf))
    step = min(errors, key=errors.get)
    spent = tuple(clocks() - began)
    return Answer(run(step, SECONDS), {"step": step, "batch": BATCH, "tuned_on_truth": True}, spent)


def _chain(asked, seed, variates, whitened, step, seconds):
    """Run blackjax's SGLD from the mode for some processor seconds; return draws (draw, covariate).

    `whitened`: in coordinates in which the curvature at the mode is the identity.
    """
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator

    x, y, exact = asked
    scale = np.eye(x.shape[1])
    if whitened:
        scale = np.linalg.inv(np.linalg.cholesky(_curvature(asked))).T
    size = step if whitened else step * _longest(asked)
    turn = jnp.asarray(scale, jnp.float32)
    data = jnp.asarray(x), jnp.asarray(y)

    def log_prior(z):
        return -0.5 * jnp.sum((turn @ z) ** 2)

    def log_likelihood(z, one):
        logit = one[0] @ (turn @ z)
        return one[1] * logit - jnp.logaddexp(0.0, logit)

    gradient = grad_estimator(log_prior, log_likelihood, len(y))
    start = jnp.asarray(np.linalg.solve(scale, exact.mode), jnp.float32)
    if variates:
        gradient = control_variates(gradient, start, data)
    sampler = blackjax.sgld(gradient)

    def one(z, key):
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (BATCH,), 0, len(y))
        return sampler.step(key_noise, z, (data[0][rows], data[1][rows]), size), None

    @jax.jit
    def some(z, key):
        def draw(z, key):
            z, _ = jax.lax.scan(one, z, jax.random.split(key, THIN))
            return z, turn @ z

        return jax.lax.scan(draw, z, jax.random.split(key, CHUNK))

    key = jax.random.key(seed)
    z, _ = some(start, key)
    began, draws = clocks()[1], []
    while not draws or clocks()[1] - began < seconds:
        z, found = some(z, jax.random.fold_in(key, 1 + len(draws)))
        draws.append(np.asarray(found, float))
    return np.concatenate(draws)


for _name, _options in {
    "blackjax SGLD": {"variates": False, "whitened": False},
    "blackjax SGLD, control variates": {"variates": True, "whitened": False},
    "blackjax SGLD, control variates, whitened": {"variates": True, "whitened": True},
}.items():
    run = functools.partial(_blackjax, **_options)
    REGRESSION.add(_name, "blackjax", "minibatch_regression")(run)
