"""What holds for every family: its tables, its class of fits, and what users read of them."""

import copy
import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest

import bmfjax
from bmfjax.cli import build_parser, main
from bmfjax.data import InputError
from bmfjax.families import FAMILIES, ask
from bmfjax.families.tiles import TileFit
from bmfjax.infer import ChainRun
from bmfjax.posterior import products
from bmfjax.specs import MODELS, model_of, parameters, prior_names
from bmfjax.verdict import entries, judging
from tests.test_cells import COLUMN, ROW, data_of, fit_of

OF_BITS = ("ormachine", "ormachine-effects", "deep-ormachine", "one-hot", "hamming")
EVERY = pytest.mark.parametrize("model", FAMILIES)


@EVERY
def test_a_model_has_a_family_and_a_class_of_fits(model):
    family, kind = FAMILIES[model], bmfjax.Fit._of_model(model)
    assert model in family.models and model in kind._models and kind is not bmfjax.Fit
    assert family.default_sampler(data_of(model)) == next(iter(family.samplers))
    assert bmfjax.Fit._of_model("bmf") is None
    fit = fit_of(model)
    assert fit._is_boolean == (model in OF_BITS)
    assert (fit.binary is None) == (model not in (*OF_BITS, "relaxed"))
    assert fit._is_signed == ((fit.binary is None) and model not in ("nmf", "poisson"))


@EVERY
def test_the_command_line_offers_what_the_fields_have(model):
    kind = MODELS[model]
    flags = [p.flag.name for k in (kind, *kind.samplers) for p in parameters(k).values() if p.flag]
    for sampler in kind.samplers:
        options = build_parser().parse_args(["fit", "--model", model, "--sampler", sampler.name])
        assert all(hasattr(options, flag[2:].replace("-", "_")) for flag in flags)


@EVERY
def test_unknown_names_are_refused_with_those_there_are(model):
    family, data = FAMILIES[model], data_of(model)
    with pytest.raises(InputError, match=f"has {', '.join(family.samplers)}$"):
        ask(data, 2, model=model, sampler="nuts")
    with pytest.raises(InputError, match=f"has {', '.join(prior_names(MODELS[model]))}$"):
        model_of(model, noise=1.0)


@EVERY
def test_none_and_strange_values_of_priors_and_seeds_are_refused(model):
    data = data_of(model)
    kind = MODELS[model]
    for name in prior_names(kind):
        if parameters(kind)[name].default is not None:
            for value in (None, object()):
                with pytest.raises((InputError, TypeError), match=name):
                    kind(2, **{name: value})
    for seed in (1.5, "0", None):
        with pytest.raises(InputError, match=f"seed is {seed!r}; give a whole number"):
            ask(data, 2, model=model, seed=seed)


@EVERY
def test_rows_of_another_kind_are_refused_by_transform(model):
    if model not in ("pmf", "ordered-probit", "probit"):
        with pytest.raises(InputError, match="data is a Ratings"):
            fit_of(model).transform(data_of("pmf"))


@EVERY
def test_chains_start_with_what_they_record(model):
    request = ask(data_of(model), 2, model=model, num_chains=1, num_warmup=2, num_samples=4)
    chains = request.chains()
    assert {"model", "rank", "seed", "thinning", "priors"} <= set(chains.settings)
    if model == "nmf":  # one that compiles little
        assert isinstance(chains.run(request), ChainRun)


@EVERY
def test_copies_and_pickles_are_the_fit_without_what_was_computed(model):
    fit = fit_of(model)
    known = fit.predict_cells(ROW, COLUMN), fit.usage
    for again in (copy.copy(fit), copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
        assert type(again) is type(fit) and "_usage" not in vars(again)
        np.testing.assert_array_equal(again.predict_cells(ROW, COLUMN), known[0])
        np.testing.assert_array_equal(again.usage, known[1])


@EVERY
def test_a_fit_is_stored_and_read(model, tmp_path):
    fit = fit_of(model)
    # Of the logistic model another sampler has another class of fits.
    fit = dataclasses.replace(fit, sampler=FAMILIES[model].default_sampler(fit.data))
    again = bmfjax.Fit.load(fit.save(tmp_path / "fit"))
    assert type(again) is type(fit) and again.verdict == fit.verdict
    assert again.settings == fit.settings
    pd.testing.assert_frame_equal(again.summary(), fit.summary(), check_exact=True)
    assert again.data.fingerprint() == fit.data.fingerprint()
    for site, values in fit.draws().items():
        np.testing.assert_array_equal(again.draws()[site], values)


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def test_what_every_fit_has_can_be_learned():
    """The names that fits of all models have, counted; what some have is more."""
    names = [public(fit_of(model)) for model in FAMILIES]
    assert {"usage", "predict_cells", "verdict", "report"} <= set.intersection(*names)
    assert len(set.intersection(*names)) <= 40


@EVERY
def test_a_name_that_a_fit_lacks_is_refused_by_one_sentence(model):
    """`dir` has what works, whatever asks for a name sees that it is not there, and copies work."""
    fit = fit_of(model)
    some = set.union(*(public(fit_of(other)) for other in FAMILIES)) - public(fit)
    assert some
    for name in some:
        assert not hasattr(fit, name)
        with pytest.raises(InputError, match=f"^model {model!r} has no {name}, which '"):
            getattr(fit, name)
    for name in ("_ipython_display_", "__array__", "tile"):
        with pytest.raises(AttributeError, match="object has no attribute") as caught:
            getattr(fit, name)
        assert not isinstance(caught.value, InputError)
    for again in (copy.copy(fit), pickle.loads(pickle.dumps(fit))):
        assert public(again) == public(fit) and again.verdict == fit.verdict


@EVERY
def test_what_only_some_fits_have_is_refused_by_the_others(model):
    fit = fit_of(model)
    if not hasattr(fit, "link"):
        with pytest.raises(
            InputError, match=r"has no given_new, which 'pmf', .* have; use transform"
        ):
            fit.given_new(data_of(model))
    if fit.binary is None:
        with pytest.raises(InputError, match=r"has no .*, which 'ormachine', "):
            fit.binarize()
    if model != "deep-ormachine":
        with pytest.raises(InputError, match="has no layer, which 'deep-ormachine' have"):
            fit.layer(2)


def test_one_run_of_the_command_line_computes_nothing_twice(tmp_path, monkeypatch):
    counts = {}

    def counted(owner, name):
        usual = getattr(owner, name)

        def call(*args, **kwargs):
            counts[name] = counts.get(name, 0) + 1
            return usual(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(products, "exceedance")  # the probability of every entry
    counted(TileFit, "_table")  # the summary
    for module in (entries, judging):
        counted(module, "split_rhat")
    counted(entries, "coverage")  # the spread of the solutions
    few = ["--rank", "2", "--chains", "2", "--warmup", "40", "--samples", "30", "--quiet"]
    assert main(["fit", "davis", "--model", "relaxed", *few, "--output", str(tmp_path)]) == 0
    # R-hat: of the entries, the log joint density and the dispersion.
    assert counts == {"exceedance": 1, "_table": 1, "split_rhat": 3, "coverage": 1}


def test_stars_of_two_kinds_are_saved_without_a_probability_of_a_one(tmp_path):
    zeros_and_ones = bmfjax.BinaryMatrix(data_of("probit").dense())
    stars = fit_of("ordered-probit", zeros_and_ones)
    again = bmfjax.Fit.load(stars.save(tmp_path / "stars"))
    np.testing.assert_array_equal(again.usage, stars.usage)
    assert not (tmp_path / "stars" / "probability.npz").exists()


def test_what_fails_while_a_name_is_computed_is_said(monkeypatch):
    fit = fit_of("pmf")
    monkeypatch.setattr(type(fit), "usage", property(lambda self: self.gone))
    with pytest.raises(AttributeError, match="no attribute 'gone'"):
        _ = fit.usage
