"""Solutions that chains have found, and the jumps between them."""

import functools

import jax
import numpy as np
import pytest
from scipy.special import logit

import bmfjax
from bmfjax.data import InputError
from bmfjax.families import ask
from bmfjax.infer import OrMachineGibbs, known_solutions
from bmfjax.infer.known_solutions import PLACES, no_solutions

ROWS, COLUMNS, RANK, DRAWS = 12, 5, 2, 20


def drawn(seed=0, chains=2):
    """Draws of two chains that have solutions of their own, with factors in changing order."""
    r = np.random.default_rng(seed)
    truth = np.array([[[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], [[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]]], bool)
    basis = np.empty((chains, DRAWS, COLUMNS, RANK), bool)
    density = np.empty((chains, DRAWS, RANK))
    for c, d in np.ndindex(chains, DRAWS):
        order = r.permutation(RANK)
        basis[c, d] = truth[c % 2, order].T
        density[c, d] = np.array([0.2, 0.7])[order] + r.normal(0, 0.01, RANK)
    usage = r.random((chains, DRAWS, ROWS, RANK)) < density[:, :, None]
    rates = r.uniform(0.05, 0.1, (chains, DRAWS))
    return truth, {"usage": usage, "basis": basis, "usage_density": density, "flip_rate": rates}


def test_solutions_are_found_whatever_the_order_of_their_factors():
    truth, draws = drawn(chains=4)
    found = known_solutions(draws)
    assert np.isfinite(found.log_chance).tolist() == [True, True] + [False] * (PLACES - 2)
    expected = {
        tuple(bits): logit(p) for one in truth for bits, p in zip(one, (0.2, 0.7), strict=True)
    }
    solutions = set()
    for use, means in zip(found.use[:2], found.density.mean[:2], strict=True):
        bits = [tuple(factor > 0.5) for factor in use]
        solutions.add(frozenset(bits))
        np.testing.assert_allclose(means, [expected[b] for b in bits], atol=0.05)
    assert solutions == {frozenset(map(tuple, one)) for one in truth}
    # A bit that never changed is nearly certain, and not quite.
    assert 0 < found.use.min() < 0.05 and np.all(found.density.spread[:2] < 0.2)


def test_places_have_the_same_shapes_whatever_was_found():
    found, empty = known_solutions(drawn()[1]), no_solutions((ROWS, COLUMNS), RANK, 1)
    shapes = [jax.tree.map(lambda a: (a.shape, a.dtype), s) for s in (found, empty)]
    assert shapes[0] == shapes[1]
    given = known_solutions({n: v for n, v in drawn()[1].items() if n in ("usage", "basis")})
    assert given.rate is given.density is None


@pytest.mark.long
def test_a_fit_jumps_to_solutions_that_are_given():
    truth, draws = drawn()
    r = np.random.default_rng(1)
    draws["usage_density"] = r.beta(8.0, 8.0, draws["usage_density"].shape)
    data = np.repeat(truth[0], 8, axis=0) ^ (r.random((16, COLUMNS)) < 0.07)
    given = bmfjax.Gibbs(
        moves=["jump"], solutions=known_solutions(draws), inverse_temperatures=None
    )
    fit = bmfjax.fit(
        data.astype(float), bmfjax.OrMachine(RANK, num_rates=1), given, num_warmup=30,
        num_samples=40, num_chains=2, progress=False,
    )  # fmt: skip
    assert fit.trace["jump_accepted"].mean() > 0.1
    assert fit.settings["sampler_options"]["solutions"].startswith("given, ")
    found = {tuple(column) for column in fit.basis_binary.T}
    assert found == {tuple(column) for column in truth[0]}


def test_refusals():
    model = functools.partial(bmfjax.models.ormachine, rank=RANK, num_rates=1)
    found = known_solutions(drawn()[1])
    with pytest.raises(InputError, match="goes to solutions that are known"):
        OrMachineGibbs(model, update="collapsed", moves="jump")
    with pytest.raises(InputError, match="are for the move 'jump'"):
        OrMachineGibbs(model, update="collapsed", solutions=found)
    kernel = OrMachineGibbs(model, update="collapsed", moves="jump", solutions=found)
    with pytest.raises(InputError, match="have 2 factors of 5 bits, and the model 2 of 4"):
        kernel.bind(np.eye(8)[:, :4])
    less = known_solutions({n: v for n, v in drawn()[1].items() if n != "flip_rate"})
    kernel = OrMachineGibbs(model, update="collapsed", moves="jump", solutions=less)
    with pytest.raises(InputError, match="learns 'flip_rate', which the draws"):
        kernel.bind(np.eye(8)[:, :5])
    # What is given in the model need not be in the draws, and is not looked at.
    fixed = functools.partial(model, flip_rate=0.1)
    for some in (less, found):
        OrMachineGibbs(fixed, update="collapsed", moves="jump", solutions=some).bind(
            np.eye(8)[:, :5]
        )
    two = functools.partial(model, num_rates=2)
    kernel = OrMachineGibbs(two, update="collapsed", moves="jump", solutions=found)
    with pytest.raises(InputError, match="have 1 flip rate, and the model 2"):
        kernel.bind(np.eye(8)[:, :5])
    with pytest.raises(InputError, match="and solutions is a dict; in Python give"):
        OrMachineGibbs(model, update="collapsed", moves="jump", solutions=drawn()[1])


def test_what_are_no_draws_is_refused():
    draws = drawn()[1]
    density = draws["usage_density"]
    for given, said in (
        ("zoo", "draws is a str; give a mapping"),
        ({"usage": draws["usage"]}, "no 'basis' of the shape"),
        (draws | {"basis": draws["basis"][..., :1]}, r"'basis' have the shape \(2, 20, 5, 1\)"),
        (draws | {"usage_density": density[0]}, r"'usage_density' have the shape \(20, 2\)"),
        (draws | {"flip_rate": draws["flip_rate"] * np.nan}, "'flip_rate' are not in"),
        (draws | {"basis": draws["basis"] * np.nan}, "'basis' have values other than 0 and 1"),
    ):
        with pytest.raises(InputError, match=said):
            known_solutions(given)


def test_given_solutions_stay_where_chains_disagree():
    """The next stage jumps to what was given, and is stored under its fingerprint."""
    data = (np.random.default_rng(0).random((30, 5)) < 0.5).astype(float)
    jumps = bmfjax.Gibbs(moves=["jump"], solutions=known_solutions(drawn()[1]), num_anneal=0)
    request = ask(data, bmfjax.OrMachine(RANK, num_rates=1), num_chains=2, sampler=jumps)
    first = request.chains()
    hotter = first.next_stage(first.run(request))
    assert "inverse_temperatures" in hotter.settings["sampler_options"]
    (told,) = first.settings["next_stage"]
    assert told["solutions"] == first.settings["sampler_options"]["solutions"]
    assert told["solutions"].startswith("given, ")
