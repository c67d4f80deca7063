"""Bad options of `bmfjax.fit` are refused in a sentence, before anything is drawn."""

import types

import numpy as np
import numpyro
import pytest

import bmfjax
from bmfjax.data import InputError, memory
from bmfjax.families import FAMILIES, ask
from bmfjax.families.logistic import all_entries
from bmfjax.specs import MODELS, prior_names
from tests.said import said

APPROXIMATE = {"sampler": "iasg"}


@pytest.fixture(scope="module")
def product():
    return bmfjax.generate_product(40, 24, 3, density=0.4, flip=0.03, seed=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank is 0; give a whole number of factors, at least 1"),
        ({"rank": 25}, "rank is 25; give a number from 1 to 24, the smaller side of the 40 x 24"),
        ({"rank": "auto", "sampler": "thesis"}, "model 'relaxed' with sampler .* give a rank"),
        ({"model": "bmf"}, "model is 'bmf'; choose from ormachine, "),
        ({"model": "k-means"}, "model is 'k-means'; choose from ormachine, .* ordered-probit$"),
        ({"model": "feature"}, r"ordered-probit; did you mean 'features'\?$"),
        ({"sampler": "Gibs"}, r"'relaxed' has .*; did you mean 'gibbs'\?$"),
        ({"seed": -1}, "seed is -1; give a whole number from 0 to 4294967295"),
        ({"seed": 2**32 + 1}, "seed is 4294967297; give a whole number from 0 to"),
        ({"num_chains": 0}, "num_chains is 0; give a whole number of at least 1"),
        ({"num_samples": 3}, "num_samples is 3; give a whole number of at least 4"),
        ({"num_chains": 2.5}, "num_chains is 2.5; give a whole number"),
        (
            {**APPROXIMATE, "options": {"boundary": "reflect"}},
            "averages of reflected Newton steps do not follow",
        ),
        (
            {**APPROXIMATE, "options": {"scale_likelihood": False}},
            "does not fit the curvature",
        ),
        ({"max_time": -1.0}, "max_time is -1.0"),
        ({"priors": {"usage": "cauchy"}}, "usage is 'cauchy'; choose from"),
        ({"options": {"inverse_temperatures": 0.5}}, "inverse_temperatures is 0.5; give"),
        (
            {"priors": {"precision": numpyro.distributions.Gamma(np.ones(2), 1.0)}},
            "is a Gamma of shape",
        ),
        (
            {"priors": {"precision": numpyro.distributions.HalfNormal(1.0)}},
            "HalfNormal of shape .*; give a scalar numpyro.distributions.Gamma",
        ),
        (
            {"options": {"num_anneal": 301}},
            r"num_anneal is 301 and num_warmup \(--warmup\) 300",
        ),
        ({"options": {"num_anneal": 10, "lowest": 0.0}}, "lowest is 0.0"),
        ({"priors": {"rate": numpyro.distributions.Gamma(1.0)}}, 'give prior="ard" with it'),
        (
            {**APPROXIMATE, "options": {"batch_size": {"rows": 3}}},
            "must name 'rows' and 'columns'",
        ),
        ({"init": {"usage": np.zeros((40, 3))}}, "init must hold exactly"),
        (
            {"init": {"usage": np.zeros((4, 3)), "basis": np.zeros((24, 3))}},
            r"init 'usage' has shape \(4, 3\); it must be \(40, 3\)",
        ),
        (
            {"init": {"usage": np.full((40, 3), 2.0), "basis": np.zeros((24, 3))}},
            "init 'usage' has values outside 0 to 1",
        ),
        ({"resume": True}, "resume needs a checkpoint folder"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(product, options, message):
    arguments = {"rank": 3, "model": "relaxed", "num_warmup": 300, **options}
    with pytest.raises(InputError, match=message) as refused:
        bmfjax.fit(product.data, **said(**arguments))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("model", FAMILIES)
def test_no_option_takes_what_makes_no_sense(model):
    """Every option of every sampler and every prior: a sentence, and never another exception."""
    r = np.random.default_rng(0)
    i, j = np.nonzero(r.random((20, 12)) < 0.6)
    data = {
        "nmf": bmfjax.RealMatrix(r.random((20, 12)) + 0.1),
        "pmf": (stars := bmfjax.Ratings(i, j, r.integers(1, 6, len(i)))),
        "ordered-probit": stars,
    }.get(model, bmfjax.BinaryMatrix(r.random((20, 12)) < 0.5))
    kind, wrong = MODELS[model], ("nonsense", -1.5, {"a": "b"})
    asked = [{"priors": {prior: value}} for prior in prior_names(kind) for value in (*wrong, [])]
    for sampler, kernel in kind.samplers.items():
        options = [{name: value} for name in kernel.options for value in wrong]
        asked += [{"sampler": sampler.name, "options": given} for given in options]
    for given in asked:
        with pytest.raises(InputError) as refused:
            pytest.fail(f"{given} was taken: {ask(data, 2, **said(model, **given)).chains()}")
        assert "\n" not in str(refused.value), given


@pytest.mark.parametrize("name", ["replace", "scale_likelihood", "report_variance"])
def test_a_text_is_no_switch(product, name):
    with pytest.raises(InputError, match=f"{name} is 'False'; give True or False"):
        ask(product.data, 2, model="relaxed", sampler=bmfjax.IterateAveraging(**{name: "False"})
            ).chains()  # fmt: skip


def test_chains_that_need_each_other_do_not_run_alone():
    for options in ({"model": "logistic", "sampler": "batch"}, {"sampler": "smc"}):
        with pytest.raises(InputError, match="ends when all chains are done, and chains that run"):
            bmfjax.fit("davis", 2, chains=[1], **options)


def test_numbers_that_cannot_be_computed_with_are_refused():
    values = 1.0 + np.random.default_rng(0).random((8, 6))
    for given, message in (
        (1e20 * values, "a value of 2e.20, too large to compute with .* in a larger unit"),
        (
            1e8 + values,
            r"up to 1e.08 and differ by 0.9\d*, which numbers of 32 bits do not distinguish",
        ),
    ):
        with pytest.raises(InputError, match=message):
            ask(given, 2, model="pmf").chains()
    ask(1e6 * values, 2, model="pmf").chains()


def test_more_entries_than_can_be_counted_are_refused():
    data = types.SimpleNamespace(num_rows=2**16, num_columns=2**15)
    for sampler in ("batch", "gibbs"):
        with pytest.raises(InputError, match=r"2,147,483,648 entries, and .* at most 2,147,"):
            problem = types.SimpleNamespace(data=data, sampler=types.SimpleNamespace(name=sampler))
            all_entries(problem)


def test_a_matrix_too_large_to_be_dense_is_refused(monkeypatch, product):
    monkeypatch.setattr("bmfjax.families.check_programs", lambda: None)
    monkeypatch.setattr(memory, "available_memory", lambda: memory.PROGRAMS)
    said = r"a fit of 40 x 24 \(the dense matrix .* 1 MiB, programs 256 MiB\) needs about 256 MiB "
    with pytest.raises(InputError, match=said):
        ask(product.data, 2, model="relaxed").chains()


@pytest.mark.parametrize("model", FAMILIES)
def test_a_matrix_without_structure_is_refused(model):
    """Constant, one row or one column: nothing to factorise, said before anything is drawn."""
    for data in ([[1, 0, 1, 0]], [[1], [0], [1]]):
        with pytest.raises(InputError, match=r"one (row|column), .* nothing to factorise; give at"):
            ask(np.array(data, float), 1, model=model)
    hidden = np.array([[1, 1, np.nan], [np.nan, 1, 1]])
    for data in (hidden, 0 * hidden):
        with pytest.raises(InputError, match=r"(no (ones|zeros) among|value is [01],).* factorise"):
            ask(data, 1, model=model)
    with pytest.raises(InputError, match="value is 3, so there is nothing to factorise"):
        ask(bmfjax.Ratings([0, 0, 1], [0, 1, 0], [3, 3, 3]), 1, model="pmf")
    assert bmfjax.BinaryMatrix(hidden).num_zeros == 0  # as data they are as good as any
