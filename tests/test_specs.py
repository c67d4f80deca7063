"""Models and samplers as values: said once, equal where they say the same, refused where wrong."""

import inspect
import itertools
import pickle
import re
import subprocess
import sys
import typing

import numpy as np
import numpyro.distributions as dist
import pytest

import bmfjax
from bmfjax.data import InputError
from bmfjax.errors import checking_call
from bmfjax.families import FAMILIES, ask
from bmfjax.report.drawings import Plots
from bmfjax.sklearn import BooleanMF
from bmfjax.specs import MODELS, SAMPLERS, checked_sampler, model_of, parameters, sampler_of
from bmfjax.specs.base import AUTO, OF_RANK
from bmfjax.specs.run import UNTIL
from bmfjax.verdict import Verdict
from tests.shared_fits import davis

KINDS = pytest.mark.parametrize("kind", [*MODELS.values(), *SAMPLERS.values()])
TILES = np.kron(np.eye(2), np.ones((6, 4)))


def test_values_are_equal_where_what_they_say_is():
    known = np.full((12, 2), 0.5)
    pairs = [
        (bmfjax.OrMachine(2), bmfjax.OrMachine(rank=2, num_rates=2)),
        (bmfjax.OrMachine(usage=dist.Beta(1, 2)), bmfjax.OrMachine(usage=dist.Beta(1, 2))),
        (bmfjax.OrMachine(usage=known), bmfjax.OrMachine(usage=known.copy())),
        (bmfjax.Gibbs(moves=["birth"]), bmfjax.Gibbs(moves=("birth",))),
    ]
    for one, other in pairs:
        assert one == other and hash(one) == hash(other) and one == pickle.loads(pickle.dumps(one))
    for one, other in (
        (bmfjax.OrMachine(2), bmfjax.OrMachine(3)),
        (bmfjax.OrMachine(usage=dist.Beta(1, 2)), bmfjax.OrMachine(usage=dist.Beta(2, 2))),
        (bmfjax.OrMachine(usage=known), bmfjax.OrMachine(usage=1 - known[:, :1])),
        (bmfjax.Probit(2), bmfjax.OrderedProbit(2)),
        (bmfjax.Gibbs(inverse_temperatures=None), bmfjax.Gibbs()),
    ):
        assert one != other


def test_a_value_keeps_what_it_was_given():
    known = np.full((12, 2), 0.5)
    model = bmfjax.OrMachine(usage=known)
    known[:] = 0.0
    assert (model.usage == 0.5).all()
    with pytest.raises(ValueError, match="read-only"):
        model.usage[:] = 0.0
    with pytest.raises(AttributeError):
        model.num_rates = 1
    assert repr(bmfjax.OrMachine(4, num_rates=1)) == "OrMachine(4, num_rates=1)"
    model = bmfjax.OrMachine("auto", usage=known, flip_rate=dist.Beta(1.0, 9.0))
    assert repr(model) == (
        "OrMachine('auto', usage=<array of shape (12, 2)>, "
        "flip_rate=Beta(concentration0=9.0, concentration1=1.0))"
    )
    assert repr(bmfjax.Gibbs(update="joint", moves=["birth"])) == (
        "Gibbs(update='joint', moves=('birth',))"
    )
    assert bmfjax.Gibbs(update="joint", dispersion="sample").given() == {"update": "joint"}


@KINDS
def test_what_may_be_auto_offers_it(kind):
    for field in parameters(kind).values():
        if field.default == AUTO:
            with pytest.raises(InputError, match=f"^{field.name} is -1.5.*, or 'auto'$"):
                kind(**{field.name: -1.5})


def test_an_absurd_number_of_rounds_is_refused():
    for name in ("rebirths", "num_exchanges"):
        with pytest.raises(InputError, match=f"{name} is 10000000; give a whole number from 0 to"):
            bmfjax.Gibbs(**{name: 10_000_000})


def test_a_value_is_what_its_call_makes():
    for value in (
        bmfjax.OrMachine("auto", max_rank=6, num_rates=1),
        bmfjax.Gibbs(update="joint", moves=["birth"], inverse_temperatures=(1.0, 0.5)),
        bmfjax.Features(4, weights="positive"),
        bmfjax.Gibbs(rebirths=np.int64(3)),
        bmfjax.PMF(2, level=(3.0, 1.0)),
    ):
        assert eval(value.called, {"bmfjax": bmfjax}) == value
    assert bmfjax.OrMachine(usage=np.full((12, 2), 0.5)).called == "bmfjax.OrMachine(usage=...)"


@KINDS
def test_the_documentation_lists_every_field(kind):
    doc = inspect.getdoc(kind)
    words = " ".join(doc.split())
    assert "{parameters}" not in doc
    for field in parameters(kind).values():
        assert f"\n{field.name} : {field.kind}\n" in doc and field.sentence in words
        assert (
            field.default in (None, AUTO)
            or repr(field.default) in field.sentence
            or ("default" in field.about)
        )


@pytest.mark.parametrize("model", MODELS)
def test_options_are_those_of_the_kernels(model):
    """A default that is said in a field is that of the kernel, or set by the plan."""
    kind, family = MODELS[model], FAMILIES[model]
    assert family.models[model] is kind
    assert [s.name for s in kind.samplers] == list(family.samplers)
    for sampler, kernel in kind.samplers.items():
        options = kernel.options
        taken = list(inspect.signature(kernel.make).parameters.values())[1:]
        known = {p.name: p.default for p in taken if p.default is not p.empty}
        fields = parameters(sampler)
        if model not in ("features", "logistic", "pmf", "probit", "ordered-probit"):
            assert set(options) == known.keys()
        for name in set(options) & known.keys():
            assert fields[name].default in (AUTO, known[name]), name


def test_every_option_of_a_sampler_belongs_to_a_model():
    for name, kind in SAMPLERS.items():
        taken = [k.options for m in MODELS.values() for s, k in m.samplers.items() if s is kind]
        assert {option for options in taken for option in options} == set(parameters(kind)), name


def test_a_name_is_the_value_with_its_defaults():
    named = ask(TILES, 2, "minibatch", model="relaxed")
    said = ask(TILES, bmfjax.Relaxed(2), bmfjax.Minibatch())
    apart = ask(TILES, 2, bmfjax.Minibatch(), model=bmfjax.Relaxed())
    for one in (named, apart):
        assert (one.model, one.sampler, one.rank) == (said.model, said.sampler, 2)
    assert ask(TILES, 2).model == bmfjax.Features(2) and ask(TILES, 2).sampler == bmfjax.Gibbs()
    assert ask(TILES, bmfjax.OrMachine("auto", max_rank=3)).rank == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ask(TILES), "such as rank=4, or let the fit find it: rank='auto'$"),
        (lambda: ask(TILES, bmfjax.Hamming()), "factors is not given; give it, such as rank=4$"),
        (lambda: ask(TILES, bmfjax.OrMachine(2), model="relaxed"), "give one of them"),
        (lambda: ask(TILES, 3, model=bmfjax.OrMachine(2)), "rank is 3, and the model is OrMachine"),
        (lambda: ask(TILES, 2, model=bmfjax.OrMachine), "model is the class OrMachine; call it"),
        (lambda: ask(TILES, bmfjax.Relaxed(2), bmfjax.SMC()), "'relaxed' has .* belongs to ormach"),
        (lambda: bmfjax.OrMachine(num_rates=3), "num_rates is 3; give a whole number from 1 to 2"),
        (lambda: bmfjax.Gibbs(num_anneal=-1), "num_anneal is -1; give a whole number of at least"),
        (lambda: model_of("nmf", noise=1), "model 'nmf' has no 'noise'; it has usage_rate"),
        (
            lambda: sampler_of("gibbs", bmfjax.Relaxed, update="joint"),
            "'gibbs' of model 'relaxed' has no option 'update'; 'gibbs' has num_anneal",
        ),
        (
            lambda: checked_sampler(bmfjax.Gibbs(walls=[3.0]), bmfjax.OrMachine),
            "sampler 'gibbs' of model 'ormachine' has no option 'walls'",
        ),
    ],
)  # fmt: skip
def test_what_is_said_wrong_or_twice_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_the_docstring_of_fit_is_short_and_names_all_values():
    doc = inspect.getdoc(bmfjax.fit)
    assert len(doc.split()) <= 700 and len(doc.splitlines()) <= 100
    named = set(re.findall(r"`(\w+)`", doc))
    kinds = (*MODELS.values(), *SAMPLERS.values())
    assert {kind.__name__ for kind in kinds} <= named
    assert all(f'"{name}"' in doc for name in MODELS) and "{" not in doc.split("Examples")[0]


def test_values_and_the_help_of_fits_need_no_jax():
    code = (
        "import sys, bmfjax; bmfjax.OrMachine(4, num_rates=2), bmfjax.Gibbs()\n"
        "from bmfjax.cli import build_parser; build_parser().format_help()\n"
        "build_parser().parse_args(['fit', 'zoo', '--model', 'nmf'])\n"
        "sys.exit('jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((bmfjax.Gibbs(), bmfjax.OrMachine(2)), "rank is Gibbs.., which is a sampler; give fit"),
        ((2, bmfjax.OrMachine()), "sampler is OrMachine.., which is a model; give fit"),
        ((bmfjax.OrMachine,), r"rank is the class OrMachine; call it, as OrMachine\(\)"),
        ((2, bmfjax.Gibbs), r"sampler is the class Gibbs; call it, as Gibbs\(\)"),
    ],
)
def test_values_out_of_their_place_are_refused(given, words):
    with pytest.raises(bmfjax.InputError, match=words):
        bmfjax.fit(TILES, *given)


#: Values that a field refuses, of fields that are not refused by all of `NEVER`.
NEVER = (object(), "no such word", -1, [["?"]])
ALSO_WRONG = {
    "rank": (0, 2.5, True),
    "max_rank": (0,),
    "usage": (1.5, dist.Normal(0.0, 1.0), np.full((3, 2), 2.0), np.zeros(3)),
    "basis": (dist.Gamma(2.0, 2.0),),
    "flip_rate": (0.0, 0.7, dist.Normal(0.0, 1.0), (0.1, 0.2, 0.3)),
    "num_rates": (3, True),
    "layers": ([], [2, 0], [1] * 9),
    "weights": ([0.7, 0.7], dist.Beta(1.0, 1.0)),
    "dispersion": (0.0, dist.Normal(0.0, 1.0)),
    "precision": (0.0, np.inf, dist.HalfNormal(1.0)),
    "rate": (2.0, dist.Beta(1.0, 1.0)),
    "usage_rate": (0.0, dist.Gamma(1.0, 1.0)),
    "effects": (1,),
    "slab": ((1.0,), (0.0, 1.0)),
    "level": ((0.0, -1.0),),
    "update": (None, "auto "),
    "block_size": (0, 9),
    "moves": ("no_such_move", ["birth", "no_such_move"]),
    "inverse_temperatures": ((1.0, 1.0), (0.9, 0.5), ()),
    "walls": ((1.0, 2.0), ()),
    "lowest": (0, 1.5, True),
    "num_particles": (8, 100),
    "chain_length": (1,),
    "ess": (0.0, 1.0),
    "step_size": (0.0, np.nan),
    "batch_size": (0, {"rows": 3}, {"rows": 3, "columns": 0}),
    "blocks": ((), [3]),
    "window": (0, None),
    "delta": (0.5, -0.1),
    "replace": (1,),
    "conditionals": ({"usage": 3},),
    "num_calibration": (1,),
    "optimizer": ("adam",),
}


@KINDS
def test_every_field_refuses_at_once_and_in_one_sentence(kind):
    for name in parameters(kind):
        for wrong in (*NEVER, *ALSO_WRONG.get(name, ())):
            with pytest.raises(InputError) as refused:
                kind(**{name: wrong})
                pytest.fail(f"{kind.__name__}({name}={wrong!r}) is taken")
            assert name in str(refused.value) and "; " in str(refused.value)
            assert "\n" not in str(refused.value).replace(repr(wrong), "")


def test_arguments_of_the_numpyro_models_are_the_fields_with_their_defaults():
    same = {
        "ormachine": "ormachine", "deep-ormachine": "deep_ormachine", "one-hot": "one_hot_machine",
        "hamming": "hamming_machine", "ormachine-effects": "ormachine_effects",
    }  # fmt: skip
    for name, model in same.items():
        taken = inspect.signature(getattr(bmfjax.models, model)).parameters
        fields = {n: p for n, p in parameters(MODELS[name]).items() if n not in OF_RANK}
        for field in fields.keys() - {"layers", "flip_rate_above"}:
            assert taken[field].default == fields[field].default, (name, field)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bmfjax.fit(TILES, 2, priors={}), "any more; parameters are arguments of the mo"),
        (lambda: bmfjax.fit(TILES, 2, sampler_options={}), "options are arguments of the sampler"),
        (lambda: bmfjax.fit(TILES, 2, walls=[2]), r"walls is no .* fit; give bmfjax.Gibbs\(walls="),
        (lambda: bmfjax.fit(TILES, 2, max_times=9), "of fit; did you mean 'max_time'[?]"),
        (lambda: bmfjax.fit(TILES, samples=9), "of fit; did you mean 'num_samples'[?]$"),
        (lambda: bmfjax.fit(TILES, draws=9), "of fit; did you mean 'num_samples'[?]$"),
        (lambda: bmfjax.fit(TILES, iterations=9), "of fit; did you mean 'num_samples'[?]$"),
        (lambda: bmfjax.fit(TILES, warmup=9), "of fit; did you mean 'num_warmup'[?]$"),
        (lambda: BooleanMF(chains=2), "of BooleanMF; did you mean 'num_chains'[?]$"),
        (lambda: bmfjax.fit(TILES, k=2), "of fit; did you mean 'rank'[?]$"),
        (lambda: bmfjax.fit(TILES, K=2), "of fit; did you mean 'rank'[?]$"),
        (lambda: bmfjax.fit(TILES, n_components=2), "of fit; did you mean 'rank'[?]$"),
        (lambda: bmfjax.fit(TILES, n_factors=2), "of fit; did you mean 'rank'[?]$"),
        (lambda: bmfjax.fit(TILES, random_state=2), "of fit; did you mean 'seed'[?]$"),
        (lambda: bmfjax.OrMachine(k=2), "no 'k'; .* did you mean 'rank'[?]$"),
        (lambda: BooleanMF(k=2), "of BooleanMF; did you mean 'n_components'[?]$"),
        (lambda: BooleanMF(seed=2), "of BooleanMF; did you mean 'random_state'[?]$"),
        (lambda: bmfjax.fit("davis", rnak=3), "rnak is no argument of fit; did you mean 'rank'[?]"),
        (lambda: bmfjax.fit(), "^fit needs data; give data=[.]{3}$"),
        (lambda: bmfjax.fit(TILES, 2, "gibbs", 4), r"fit is given 4 values .* takes 3 [(]data, ra"),
        (lambda: bmfjax.fit(TILES, data=TILES), "fit is given data twice, by its place and by "),
        (lambda: bmfjax.fit(TILES, 2, max_time="3 s"), "max_time is '3 s'; give a positive number"),
        (lambda: bmfjax.fit(TILES, 2, checkpoint=3), "checkpoint is 3; give the path of a folder"),
        (lambda: bmfjax.fit(TILES, 2, progress="no"), "progress is 'no'; give True or False"),
        (lambda: bmfjax.fit(TILES, 2, resume=2), "resume is 2; give True or False"),
        (lambda: bmfjax.fit(TILES, 2, mesh=3), "mesh is an int; give a jax.sharding.Mesh"),
        (lambda: bmfjax.compare_ranks(TILES, rank=[1]), "_ranks; did you mean 'ranks'[?]"),
        (lambda: bmfjax.load("davis", ones="x"), "no option of this loader; .* mean 'one'[?]"),
        (lambda: bmfjax.Fit.load(), "^Fit.load needs directory; give directory=[.]{3}$"),
        (lambda: bmfjax.Fit.load(3), "directory is 3; give the path of a folder"),
        (lambda: bmfjax.compare_ranks(TILES, "1:2", num_rates=1), r"bmfjax.OrMachine\(num_rates"),
        (lambda: BooleanMF(rank=2), "rank is no argument of BooleanMF; give n_components=[.]{3}$"),
        (lambda: bmfjax.generate_product(9, 5, 2, densty=0.3), "did you mean 'density'[?]"),
        (lambda: bmfjax.merge(), "^merge needs folder; give folder=[.]{3}$"),
        (lambda: BooleanMF(2, priors={}), "priors is no argument of BooleanMF any more"),
        (lambda: bmfjax.OrMachine(2, num_rate=1), "no 'num_rate'; .* did you mean 'num_rates'[?]"),
        (lambda: bmfjax.OrMachine(2, usage_prior=0.5), "no 'usage_prior'; it has rank,"),
        (lambda: bmfjax.OrMachine(2, 3), "is given 2 values without a name; name all but"),
        (lambda: bmfjax.Gibbs("joint"), "Gibbs is given 1 values without a name; name all of them"),
    ],
)  # fmt: skip
def test_a_name_that_is_gone_or_elsewhere_is_refused_with_its_place(make, words):
    with pytest.raises(InputError, match=words):
        make()
    with pytest.raises(TypeError, match="no_such is no argument of fit; it has data, rank, "):
        bmfjax.fit(TILES, 2, no_such=1)


def test_methods_of_a_fit_refuse_arguments_that_they_lack():
    """All public ones, before they look at the fit; with signatures as they are written."""
    for kind in map(bmfjax.Fit._of_model, MODELS):
        fit, checked = object.__new__(kind), 0
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_"):
                continue
            of = "Fit" if name == "load" else "fit"
            with pytest.raises(InputError, match=f"^no_such is no argument of {of}.{name}; it has"):
                getattr(fit, name)(no_such=1)
            assert "no_such" not in inspect.signature(method).parameters
            checked += 1
        assert checked > 10
    with pytest.raises(TypeError, match=r"int\(\) argument must be") as raised:
        checking_call(lambda data: int(data))([])  # an error within is left as it is
    assert raised.type is TypeError
    ones = object.__new__(bmfjax.Fit._of_model("ormachine"))
    for call, words in (
        (lambda: ones.probability(row=[0]), "row is .* of fit.probability; did you mean 'rows'[?]"),
        (lambda: ones.predict_cells([0]), "^fit.predict_cells needs columns; give columns=[.]{3}$"),
        (lambda: ones.check(3), "^fit.check is given 1 value without a name, and takes none; name"),
        (
            lambda: Plots(davis())("matrix"),
            r"call one of its drawings, fit.plot.calibration\(\), fit.plot.factors\(\), .*traces",
        ),
        (lambda: Plots(ones).matrix(axx=1), "axx is no argument of fit.plot.matrix; did you mean"),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    for call, words in (
        (
            lambda: davis().predict(level="0.9", kind="interval"),
            "level is '0.9'; give a probability",
        ),
        (lambda: davis().rename(["a"]), "names is a list; give a mapping of numbers of factors"),
        (lambda: Verdict().holds("prediction"), "what is .*; did you mean 'predictions'[?]"),
    ):
        with pytest.raises(InputError, match=words):
            call()
    for call, words in (
        (lambda: davis().components_, "no attribute 'components_'; did you mean 'basis'[?]$"),
        (lambda: davis().W, "no attribute 'W'; did you mean 'usage'[?]$"),
        (lambda: davis().n_components_, "did you mean 'rank'[?]$"),
        (lambda: davis().samples, "did you mean 'draws'[?]$"),
        (lambda: davis().probabilty, "no attribute 'probabilty'; did you mean 'probability'[?]"),
        (
            lambda: Plots(davis()).matrx,
            "fit.plot has no 'matrx'; it has calibration, factors, matr",
        ),
        (lambda: bmfjax.OrMachines, "no attribute 'OrMachines'; did you mean 'OrMachine'[?]"),
    ):
        with pytest.raises(AttributeError, match=words):
            call()
    assert list(inspect.signature(ones.probability).parameters)[:3] == ["rows", "columns", "noisy"]


def test_a_name_of_earlier_fits_is_refused_with_what_replaced_it():
    fit = object.__new__(FAMILIES["ormachine"].fits)
    for name, use in {"scalars": "figures", "is_real": "binary is None"}.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; use fit.{use}"):
            getattr(fit, name)


def test_type_checkers_know_every_name():
    known = typing.get_type_hints(bmfjax.fit)
    names = {n: {*itertools.chain(*map(typing.get_args, typing.get_args(known[n])))} for n in known}
    assert names["model"] == set(MODELS) and names["sampler"] == set(SAMPLERS)
    assert names["num_samples"] == names["num_warmup"] == names["rank"] == {AUTO}
    assert typing.get_args(known["until"]) == UNTIL
