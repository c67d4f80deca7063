"""The plan of a fit, for every size, rank and model, without sampling."""

import collections
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bmfjax
from bmfjax import cli
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.families import FAMILIES, ask, boolean
from bmfjax.infer.mcmc import ormachine, smc, variants
from bmfjax.infer.mcmc.kernel import arguments_of
from bmfjax.specs.base import Model, Sampler
from bmfjax.specs.default import BITS, MESH, MOST_WORK, RULE, WEIGHTS, default_model
from tests.test_cells import data_of

#: Entries, rank, what is said, the model of a checkpoint; the default, and a part of its reason.
DEFAULTS = [
    (435 * 16, 4, (), None, "features", "the default up to 2,000,000 entries at rank 4"),
    (
        2_000_000,
        4,
        ("gibbs",),
        None,
        "features",
        "'ormachine' (--model ormachine) has Boolean prod",
    ),
    (2_000_001, 4, (), None, "ormachine", "the default above 2,000,000 entries at rank 4"),
    (2_000_000, 5, ("num_anneal",), None, "ormachine", "model='features' (--model features)"),
    (100, 2, ("smc",), None, "ormachine", "which alone has smc"),
    (100, 2, ("gibbs", "moves"), None, "ormachine", "which alone has moves"),
    (100, 2, ("num_rates",), None, "ormachine", "which alone has num_rates"),
    (100, 2, (MESH,), None, "ormachine", "which alone has a mesh"),
    (100, 2, (BITS,), None, "ormachine", "a start of zeros and ones"),
    (10**9, 2, ("rebirths",), None, "features", "which alone has rebirths"),
    (10**9, 2, ("slab",), None, "features", "which alone has slab"),
    (10**9, 2, (WEIGHTS,), None, "features", "a start of weights"),
    (100, 2, ("usage", "walls"), None, "features", "the default up to"),  # of both, of neither
    (100, 2, (), "ormachine", "ormachine", "as in the checkpoint"),
    (10**9, 2, (), "features", "features", "as in the checkpoint"),
    (100, 2, (), "logistic", "features", "the default up to"),
    (100, 0, (), None, "features", "the default up to"),  # which is refused as such
]


@pytest.mark.parametrize(("entries", "rank", "said", "before", "model", "why"), DEFAULTS)
def test_the_default_model_follows_the_size_and_what_is_said(
    entries, rank, said, before, model, why
):
    found = default_model(entries, rank, said, before)
    assert found.model == model and found.why.startswith(f"model: {model} (") and why in found.why


def test_ratings_need_neither_a_model_nor_a_number_of_factors(tmp_path, capsys):
    r = np.random.default_rng(0)
    for shape, rank in (((30, 12), 10), ((30, 4), 4)):
        rows, columns = np.divmod(np.arange(30 * shape[1]), shape[1])
        data = bmfjax.Ratings(rows, columns, r.integers(1, 6, len(rows)), shape=shape)
        found = ask(data)
        assert (found.model, found.rank) == (bmfjax.PMF(rank), rank) and not found.finds_rank
        assert "default of ratings" in found.default and found.rank_is_default
        assert not ask(data, rank).rank_is_default and not ask(data, "auto").rank_is_default
        assert ask(data, model="ordered-probit").model == bmfjax.OrderedProbit(rank)
        assert ask(data, 2).model == bmfjax.PMF(2) and ask(data, "auto").finds_rank
    with pytest.raises(InputError, match="number of factors is not given"):
        ask(np.eye(4), model="nmf")
    # The data come first: they may be of another model, which needs no number, or not there.
    for asked in ({}, {"model": "nmf"}):
        with pytest.raises(InputError, match=r"mien\.csv does not exist: no such file"):
            ask("mien.csv", **asked)
    stars = tmp_path / "mine.csv"
    stars.write_text("user,item,stars\nann,Heat,10\nann,Alien,4\nbob,Heat,2\nbob,Fargo,4.5\n")
    said = r"values are 2 \(1\), 4 \(1\), 4.5 \(1\), 10 \(1\): if they are ratings, fit .*'pmf'"
    for asked in ({}, {"rank": 2}, {"rank": "auto"}):
        with pytest.raises(InputError, match=said):
            ask(str(stars), **asked)
    assert cli.main(["fit", str(stars)]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert ask(str(stars), model="pmf").rank == 2
    with pytest.raises(TypeError, match="values is a dict, not a matrix; give an array"):
        ask({"a": [0, 1]}, 2)
    wide = tmp_path / "wide.csv"
    wide.write_text("user,Heat,Fargo,Alien\nann,5,1,3\nbob,4,2,4\n")
    with pytest.raises(InputError, match=r"1 \(1\), 2 .*or fit them as ratings .*model='pmf'"):
        ask(wide)
    ratings = tmp_path / "stars.csv"
    ratings.write_text("ann,Heat,5\nann,Alien,4\nbob,Heat,2\n")
    for words, given in ((["zoo"], cli.RANK), ([str(ratings), "--model", "pmf"], None)):
        options = cli.build_parser().parse_args(["fit", *words])
        data = cli._read(options)
        assert options.rank == given
        found = cli._asked(options, data)
        # Of four for zeros and ones: no more than the matrix can have.
        assert found.rank_is_default and found.rank == (given or 2)
    narrow = tmp_path / "narrow.csv"
    narrow.write_text("1,0,1\n0,1,1\n1,1,0\n0,0,1\n1,0,0\n")
    options = cli.build_parser().parse_args(["fit", str(narrow)])
    capsys.readouterr()
    assert cli._asked(options, cli._read(options)).rank == 3
    assert "rank 3 is the smaller side of the matrix; the default, 4," in capsys.readouterr().out
    options = cli.build_parser().parse_args(["fit", "zoo", "--rank", "4"])
    assert not cli._asked(options, cli._read(options)).rank_is_default
    # Room for all factors that are known, where nobody says how many there are.
    known = {f"known {k}": row for k, row in enumerate(np.eye(12)[:, :12])}
    rows, columns = np.divmod(np.arange(30 * 12), 12)
    data = bmfjax.Ratings(rows, columns, r.integers(1, 6, len(rows)), shape=(30, 12))
    assert ask(data, anchors=known).rank == 12
    assert ask(data, anchors=pd.DataFrame(known)).rank == 12
    with pytest.raises(InputError, match="rank is 10 and anchors has 12 factors"):
        ask(data, 10, anchors=known)


def test_a_call_that_names_no_model_has_the_default():
    """The size counts all entries, and a rank that is found the most factors."""
    bits = {"usage": np.eye(12, 2), "basis": np.ones((8, 2))}
    start = bits | {"basis": np.full((8, 2), 0.5)}
    data = np.kron(np.eye(2), np.ones((6, 4)))
    for more, model in (
        ({}, "features"),
        ({"sampler": bmfjax.Gibbs(update="joint")}, "ormachine"),
        ({"sampler": "smc"}, "ormachine"),
        ({"init": bits}, "ormachine"),
        ({"init": start}, "features"),
        ({"before": "ormachine"}, "ormachine"),
        ({"model": "ormachine", "before": "features"}, "ormachine"),
    ):
        found = ask(data, 2, **more)
        assert (found.model.name, found.family) == (model, FAMILIES[model])
        assert (found.default == "") == ("model" in more)
    assert ask(data, bmfjax.OrMachine(2)).default == ""
    side = int((MOST_WORK / 20) ** 0.5)
    for rows, rank, most, model in (
        (side, "auto", None, "features"), (side + 9, "auto", None, "ormachine"),
        (side + 9, "auto", 9, "features"), (side + 9, 9, None, "features"),
    ):  # fmt: skip
        found = ask(sparse(rows, side), rank, max_rank=most)
        assert found.model.name == model, (rows, rank)
    assert RULE in " ".join(bmfjax.fit.__doc__.split())


def test_the_command_line_follows_the_same_rule(capsys, tmp_path, monkeypatch):
    """And says so; what it is asked for is refused here before anything runs."""
    for words, said in (
        (["--rank", "99"], "model: features (binary latent features), the default up to 80,808"),
        (["--rank", "99", "--flip-rates", "2"], "which alone has num_rates"),
        (["--rank", "99", "--weights", "positive"], "which alone has weights"),
        (["--rank", "99", "--option", "update=joint"], "which alone has update"),
        (["--rank", "99", "--prior-value", "row_scale=1"], "which alone has row_scale"),
        (["--rank", "99", "--sampler", "smc"], "which alone has smc"),
        (["--rank", "99", "--mesh", "1x1"], "which alone has a mesh"),
        (["--rank", "99", "--model", "hamming"], None),
    ):
        assert main(["fit", "davis", "--output", str(tmp_path / "out"), *words]) == 2
        out, error = capsys.readouterr()
        assert "rank is 99" in error and (said in out if said else "model:" not in out)
    monkeypatch.setattr("bmfjax.infer.checkpoint.identity_in", lambda _: {"model": "ormachine"})
    assert main(["fit", "davis", "--output", str(tmp_path / "out"), "--resume"]) == 2
    assert "model: ormachine (Boolean products), as in the checkpoint" in capsys.readouterr().out
    monkeypatch.setattr("bmfjax.fitting.identity_in", lambda _: {"model": "ormachine"})
    monkeypatch.setattr("bmfjax.fitting.finish", lambda problem, *_, **__: problem.model.name)
    short = {"checkpoint": tmp_path, "num_warmup": 2, "num_samples": 4, "progress": False}
    assert bmfjax.fit("davis", 2, resume=True, **short) == "ormachine"
    assert bmfjax.fit("davis", 2, **short) == "features"
    assert main(["rank", "davis", "--ranks", "2,99"]) == 2
    assert "at rank 99" in capsys.readouterr().out


AUTO_RUN = {}
FIXED = {"num_warmup": 100, "num_samples": 100}


def plan_of(problem):
    return problem.family.plan(problem)


def sparse(rows, columns):
    """A matrix of any size with a single one."""
    return bmfjax.BinaryMatrix(sp.csr_array(([True], ([0], [0])), shape=(rows, columns)))


COLLAPSED = {"update": "collapsed"}
#: Rows, columns, rank, length, what is given; then options of the first stage, those that later
#: stages add, where chains start, and a part of the reason.
BOOLEAN = [
    (435, 16, 4, AUTO_RUN, {}, COLLAPSED | {"num_anneal": 750}, ["jump", "ladder"], "annealed from",
     "summed out: the rank is at most 8"),
    (435, 16, 6, AUTO_RUN, {}, COLLAPSED | {"moves": boolean.WHOLE_FACTORS}, ["jump", "ladder"],
     "annealed from", "summed out"),
    (435, 16, 4, FIXED, {}, COLLAPSED | {"num_exchanges": 4, "num_anneal": 50}, [],
     "annealed from", "summed out"),
    (435, 16, 4, AUTO_RUN, {"inverse_temperatures": None}, COLLAPSED, [], "annealed from",
     "summed out"),
    (435, 16, 4, AUTO_RUN, {"moves": ("xor",)}, COLLAPSED | {"moves": ("xor",)}, ["ladder"],
     "annealed from", "summed out"),
    (435, 16, 4, AUTO_RUN, {"update": "joint"}, {"moves": ("collapsed",)}, [], "population",
     "at most 131,072 entries"),
    (435, 16, 9, AUTO_RUN, {}, {"moves": ("collapsed",)}, [], "population", "131,072"),
    (512, 512, 8, AUTO_RUN, {}, {"moves": ("rebirth", "collapsed"), "block_size": 8}, [],
     "population", "4,194,304"),
    (512, 512, 12, AUTO_RUN, {}, {"moves": ("rebirth", "collapsed")}, [], "relaxed", "4,194,304"),
    (4096, 4000, 8, AUTO_RUN, {}, {"moves": ("birth",)}, [], "factors exchanged", "16,777,216"),
    (20_000, 4000, 8, AUTO_RUN, {}, {"moves": ()}, [], "factors exchanged", "too slow"),
    (200, 50, "auto", AUTO_RUN, {}, {"moves": ("collapsed", "birth", "split_merge")}, [],
     "relaxed", "empty factors and fill them"),
    (20_000, 4000, "auto", AUTO_RUN, {}, {"moves": ("birth",)}, [], "relaxed", "too slow"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "columns", "rank", "length", "given", "options", "later", "start", "why"), BOOLEAN
)
def test_the_boolean_model_is_planned_by_size_and_rank(
    rows, columns, rank, length, given, options, later, start, why
):
    found = plan_of(
        ask(sparse(rows, columns), rank, bmfjax.Gibbs(**given), model="ormachine", **length)
    )
    assert options.items() <= found.options.items()
    added = ["ladder" if "inverse_temperatures" in s.options else "jump" for s in found.stages[1:]]
    assert added == later and all(s.num_warmup > 0 for s in found.stages)
    assert start in found.init and why in found.why
    packed = 2 * rows * columns / 8
    words, *others = found.memory
    assert words.name == "packed words" and packed <= words.size < 2 * packed + 10_000
    assert all(arrays.size >= 0 for arrays in others)


#: Model, sampler, rank; options of the first stage, warm-up, stages, and a part of the reason.
OTHERS = [
    ("ormachine", "smc", 2, {}, 0, 1, "choose their temperatures"),
    ("ormachine-effects", "gibbs", 2, {"num_anneal": 500, "lowest": 0.1}, 500, 2, "disagree"),
    ("deep-ormachine", "gibbs", 2, {"num_start": 50, "num_anneal": 0}, 100, 2, "disagree"),
    ("one-hot", "gibbs", 2, {"num_anneal": 500}, 500, 2, "disagree"),
    ("hamming", "gibbs", 2, {"num_anneal": 0}, 100, 2, "disagree"),
    ("relaxed", "gibbs", 2, {"num_anneal": 500}, 500, 1, "annealed"),
    ("relaxed", "gibbs", "auto", {"num_anneal": 0}, 500, 1, "nothing is annealed"),
    ("relaxed", "minibatch", 2, {"num_anneal": 250, "num_anchor": 500}, 500, 1, "annealed"),
    ("relaxed", "iasg", 2, {}, 500, 1, "nothing is annealed"),
    ("relaxed", "thesis", 2, {}, 500, 1, "nothing is annealed"),
    ("logistic", "batch", 2, {}, 0, 1, "all entries"),
    ("logistic", "svi", 2, {"step_entries": 4096}, 0, 1, "drawn at random"),
    ("logistic", "gibbs", 2, {}, 100, 1, "all entries"),
    ("features", "gibbs", 2, {"num_anneal": 60, "rebirths": 20}, 1710, 1, "60 sweeps are annealed"),
    ("nmf", "gibbs", 2, {"num_anneal": 500}, 500, 1, "annealed"),
    ("nmf", "gibbs", "auto", {"num_anneal": 0}, 500, 1, "nothing is annealed"),
    ("poisson", "gibbs", 2, {}, 100, 1, "the best of its ascents"),
    ("pmf", "gibbs", 2, {}, 100, 1, "observed entries"),
    ("probit", "gibbs", 2, {}, 100, 1, "observed entries"),
    ("ordered-probit", "gibbs", 2, {}, 100, 1, "observed entries"),
]


def test_chains_whose_features_are_all_known_search_one_round():
    data = data_of("features")
    for number, warmup in ((2, 150), (1, 1710)):
        known = {f"known {k}": np.full(data.num_columns, k + 0.5) for k in range(number)}
        assert plan_of(ask(data, 2, model="features", anchors=known)).stages[0].num_warmup == warmup


@pytest.mark.parametrize(("model", "sampler", "rank", "options", "warmup", "stages", "why"), OTHERS)
def test_other_models_are_planned_alike(model, sampler, rank, options, warmup, stages, why):
    found = plan_of(ask(data_of(model), rank, sampler, model=model))
    assert options.items() <= dict(found.options).items()
    assert (found.stages[0].num_warmup, len(found.stages)) == (warmup, stages)
    assert why in found.why and found.memory[0].size >= 0


@pytest.mark.parametrize("model", FAMILIES)
def test_a_run_of_given_length_has_one_stage_and_its_warmup(model):
    found = plan_of(ask(data_of(model), 2, model=model, **FIXED))
    (stage,) = found.stages
    assert stage.num_warmup == (0 if model == "logistic" else 100)


def test_every_model_and_sampler_has_a_plan():
    planned = {(model, sampler) for model, sampler, *_ in OTHERS} | {("ormachine", "gibbs")}
    assert planned == {(m, s) for m, family in FAMILIES.items() for s in family.samplers}


@pytest.mark.filterwarnings("ignore:a draw of IASG averages")
@pytest.mark.parametrize(
    ("model", "sampler"), [(m, s) for m, family in FAMILIES.items() for s in family.samplers]
)
def test_what_is_said_is_read_once(model, sampler, monkeypatch):
    """Options, parameters and defaults, while the chains of a fit are built."""
    calls = collections.Counter()

    def count(home, name):
        original = getattr(home, name)

        def counted(*arguments, **more):
            calls[name] += 1
            return original(*arguments, **more)

        monkeypatch.setattr(home, name, counted)

    problem = ask(data_of(model), 2, sampler, model=model)
    count(Model, "priors")
    count(Model, "given_priors")
    count(Sampler, "given")
    count(boolean, "default_options")
    count(type(problem.family), "plan")
    problem.chains()
    assert calls["plan"] == 1 and calls["priors"] == 1
    assert max(calls.values()) == 1, calls


def test_a_start_that_is_given_is_kept():
    data = np.kron(np.eye(2), np.ones((6, 4)))
    init = {"usage": np.kron(np.eye(2), np.ones((6, 1))), "basis": np.ones((8, 2))}
    problem = ask(data, 2, init=init)
    found = plan_of(problem)
    assert found.init.startswith("given, ") and found.options["num_anneal"] == 0
    assert problem.init["usage"].dtype == bool


BOOLEAN = ("ormachine", "ormachine-effects", "deep-ormachine", "one-hot", "hamming")


@pytest.mark.parametrize(
    ("model", "sampler"),
    [("ormachine", "smc"), *((m, "gibbs") for m in BOOLEAN)],
)
def test_an_argument_of_a_model_that_its_density_does_not_take_is_refused(
    model, sampler, monkeypatch
):
    problem = ask(data_of(model), 2, sampler, model=model)
    for home in (ormachine, smc, variants):
        monkeypatch.setattr(home, "arguments_of", lambda *of: arguments_of(*of) | {"unread": 1.0})
    with pytest.raises(TypeError, match="unread"):
        problem.chains()


@pytest.mark.parametrize("model", ["one-hot", "hamming", "nmf", "relaxed"])
def test_a_sampler_without_options_is_given_none(model, monkeypatch):
    samplers = FAMILIES[model].models[model].samplers
    monkeypatch.setitem(samplers, bmfjax.Gibbs, samplers[bmfjax.Gibbs]._replace(options=()))
    problem = ask(data_of(model), 2, "gibbs", model=model)
    found = plan_of(problem)
    assert found.options == {} and len(found.stages) == 1 and "annealed from" not in found.init
    assert problem.chains().settings["sampler_options"] == {}
