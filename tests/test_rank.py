"""Fits that find the number of factors: ``rank="auto"``."""

import dataclasses
import functools
import itertools
import re
import types

import numpy as np
import pytest

import bmfjax
from bmfjax.cli import _tell
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.families import ask, sampling
from bmfjax.families.boolean import without_halves
from bmfjax.infer import ChainRun, OrMachineGibbs, OrMachineSMC
from bmfjax.posterior.packed import PackedDraws
from bmfjax.report.number import number_sentence
from bmfjax.verdict import Figures, Status, Verdict, of_rank, with_bound
from tests.shared_fits import davis, shared_fit
from tests.toy import Toy, interrupted, set_clock
from tests.toy import fitted as fitted_toy

MAX_RANK = 6


def three_tiles(flipped: float = 0.1) -> np.ndarray:
    """Three tiles that overlap, 30 x 24, with a share of the entries flipped."""
    usage, basis = np.zeros((30, 3), bool), np.zeros((24, 3), bool)
    for k in range(3):
        usage[9 * k : 9 * k + 12, k] = basis[7 * k : 7 * k + 10, k] = True
    product = (usage @ basis.T) > 0
    return (product ^ (np.random.default_rng(3).random(product.shape) < flipped)).astype(float)


SIZES = {"max_rank": MAX_RANK, "num_chains": 2, "num_warmup": 150, "num_samples": 150}


def fitted():
    """Births alone compile in a third of the time; noise, below, is fitted by all moves."""
    births = bmfjax.Gibbs(moves=["birth"])
    return shared_fit(three_tiles(), "auto", sampler=births, progress=False, **SIZES)


@functools.cache
def counted():
    """The fit of the examples, as if its draws had three factors, and now and then four."""
    fit = davis()
    drawn = np.full(fit.trace["log_joint"].shape, 3)
    drawn[:, ::10] = 4
    return dataclasses.replace(
        fit,
        settings=fit.settings | {"rank": "auto", "max_rank": MAX_RANK},
        trace=fit.trace | {"rank": drawn},
        verdict=fit.verdict.changed(**of_rank(drawn[:, fit.figures.num_warmup :])),
    )


@pytest.mark.long
def test_the_number_of_factors_is_found():
    fit = fitted()
    found = fit.rank_probabilities
    assert max(found, key=found.get) == fit.figures.rank == 3
    assert sum(found.values()) == pytest.approx(1.0)
    assert fit.figures.rank_probability == max(found.values()) > 0.5
    assert fit.summary()["rows"].tolist()[:3] == [12, 12, 12]
    assert np.abs(fit.summary()["columns"].to_numpy()[:3] - 10).max() <= 1


@pytest.mark.long
def test_the_result_has_the_factors_that_are_used():
    fit = fitted()
    used = (fit.usage_draws.words != 0).any(-1) & (fit.basis_draws.words != 0).any(-1)
    assert fit.rank == 3 and (used.mean((0, 1)) >= 0.5).all()
    assert fit.other_draws["usage_density"].shape[-1] == fit.rank
    density = fit.other_draws["usage_density"]
    empty = ~(fit.usage_draws.words != 0).any(-1)
    assert (density[~empty] > 0).all() and (density[empty] == 0).any() == empty.any()
    # The number of factors in the draws that are kept is the one that was traced, but for those
    # that the result has not.
    kept = fit.trace["rank"][:, fit.figures.num_warmup :]
    assert (used.sum(-1) <= kept).all()
    assert (used.sum(-1) == np.minimum(kept, fit.rank)).mean() > 0.9


def test_a_fit_of_unknown_rank_is_saved_and_loaded(tmp_path):
    again = bmfjax.Fit.load(counted().save(tmp_path / "fit"))
    again.rank_probabilities.clear()  # which is the user's own
    assert again.rank_probabilities == counted().rank_probabilities == {3: 0.9, 4: 0.1}
    assert again.settings["rank"] == "auto" and again.figures.rank == 3


def test_figures_of_a_number_of_factors():
    drawn = np.array([[2, 2, 3, 2, 2, 3, 2, 2], [2, 3, 2, 2, 2, 2, 3, 2]])
    found = of_rank(drawn)
    assert found["rank"] == 2 and found["rank_probability"] == 0.75
    assert found["rank_mean"] == 2.25 and found["rhat_rank"] < 1.2
    apart = of_rank(np.repeat([[2], [3]], 8, axis=1))
    assert apart["rhat_rank"] == np.inf


@pytest.mark.long
def test_noise_has_no_factors():
    noise = (np.random.default_rng(0).random((30, 24)) < 0.3).astype(float)
    fit = bmfjax.fit(noise, bmfjax.OrMachine("auto"), progress=False, **SIZES)
    assert fit.rank_probabilities.get(0, 0.0) + fit.rank_probabilities.get(1, 0.0) > 0.5
    assert fit.rank == 1  # a result has a column, which may be empty


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "smc"}, "sampler 'smc' does not find the number"),
        ({"max_rank": 25}, "max_rank is 25"),
        ({"max_rank": 0}, "max_rank is 0"),
        ({"init": {"usage": np.ones((30, 2)), "basis": np.ones((24, 2))}}, "init has a rank"),
        ({"sampler": bmfjax.Gibbs(moves=["rebirth"])}, "take all factors to be there"),
        ({"sampler": bmfjax.Gibbs(update="collapsed")}, "take all factors to be there"),
        (
            {"sampler": bmfjax.Gibbs(moves=["collapsed"])},
            "none of the moves .* brings a factor back",
        ),
        (
            {"model": bmfjax.OrMachine(usage=0.3)},
            "rank is 'auto', and usage fixes the densities of usage",
        ),
    ],
)
def test_what_cannot_find_the_number_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        bmfjax.fit(three_tiles(), "auto", progress=False, **options)


def test_a_most_rank_goes_with_a_rank_that_is_found():
    with pytest.raises(InputError, match="max_rank is 3, and rank is 2"):
        bmfjax.fit(three_tiles(), 2, max_rank=3, progress=False)
    with pytest.raises(InputError, match="rank is 'many'"):
        bmfjax.fit(three_tiles(), "many", progress=False)


@pytest.mark.parametrize(
    ("shape", "model", "most"),
    [
        ((500, 199), "features", 20),
        ((500, 200), "features", 40),
        ((99, 4000), "features", 20),
        ((500, 200), "ormachine", 20),
        ((2000, 201), "features", 20),
    ],
)
def test_a_large_matrix_may_have_more_features(shape, model, most):
    data = np.eye(*shape)
    assert ask(data, "auto", model=model).rank == most
    assert ask(data, "auto", model=model, max_rank=6).rank == 6


def test_more_features_of_a_large_matrix_do_not_change_the_default_model():
    assert ask(np.eye(2000, 200), "auto").model.name == "features"
    assert ask(np.eye(2000, 201), "auto").model.name == "ormachine"


def test_the_samplers_that_take_all_factors_to_be_there_refuse_a_prior_of_presence():
    model = functools.partial(
        bmfjax.models.ormachine, rank=2, num_rates=1, presence_prior=(1.0, 1.0)
    )
    for kernel in (
        OrMachineSMC(model),
        OrMachineGibbs(model, update="collapsed"),
        OrMachineGibbs(model, moves=["rebirth"]),
    ):
        with pytest.raises(InputError, match="presence_prior says that some"):
            kernel.bind(three_tiles())


def test_more_factors_than_were_allowed_are_told():
    fit = counted()
    at = fit.trace | {"rank": np.full_like(fit.trace["rank"], MAX_RANK)}
    said = number_sentence(dataclasses.replace(fit, trace=at))
    assert f"no more than {MAX_RANK} were allowed" in said
    assert "allowed" not in number_sentence(fit)
    side = min(fit.data.shape)
    full = dataclasses.replace(
        fit, trace={"rank": np.full((2, 300), side)}, settings={**fit.settings, "max_rank": side}
    )
    assert f"{side}, the smaller side of the matrix" in number_sentence(full)


# ---- more factors follow -----------------------------------------------------------------------

BIRTHS = {"num_chains": 2, "sampler": bmfjax.Gibbs(moves=["birth"])}


@pytest.fixture
def few_looks(monkeypatch):
    monkeypatch.setattr("bmfjax.families.base.LOOKS", (250, 500))


@pytest.mark.long
def test_more_factors_follow_where_all_that_were_allowed_are_there(few_looks, monkeypatch):
    """From two to four, of which three are there."""
    monkeypatch.setattr("bmfjax.families.base.MAX_RANK", 2)
    fit = bmfjax.fit(three_tiles(0.01), "auto", progress=False, **BIRTHS)
    assert fit.rank == fit.figures.rank == 3 and fit.settings["max_rank"] == 4
    assert fit.figures.rank_at_bound < 0.05 and "There may be more" not in str(fit.verdict)
    assert fit.figures.earlier_steps >= 250


@pytest.mark.long
def test_that_all_factors_that_were_allowed_are_there_is_said():
    request = ask(
        three_tiles(0.01), "auto", max_rank=2, num_warmup=50, num_samples=50, **BIRTHS
    )  # fmt: skip
    with sampling.sampled(request, request.chains()) as stage:
        told = sampling.result_of(stage)
        stage.run.cramped = True
        cramped = sampling.result_of(stage)
    assert told.settings["max_rank"] == 2
    assert told.verdict.number.said == "there may be more than were allowed"
    assert "allow more factors, max_rank=4 (--max-rank 4)" in told.verdict.number.remedy
    assert cramped.figures.rank_cramped and "give it more time" in str(cramped.verdict)


#: Of factors that may be there, three are: at first two may.
TOY = Toy(0.0)


def grown(**options):
    given = {"data": BinaryMatrix(np.eye(6)[:, :5]), "rank": 2, "num_chains": 2, "grows": True}
    return fitted_toy(TOY, finds_rank=True, **(given | options))


def test_a_run_that_is_stopped_with_more_factors_goes_on_alike(few_looks, tmp_path):
    whole = grown()
    assert whole.rank == 4 and whole.earlier >= 250 and (whole.trace["rank"] == 3).all()
    with interrupted(1, 100):
        part = grown(checkpoint=tmp_path / "checkpoint")
    assert part.rank == 4 and not part.complete
    again = grown(checkpoint=tmp_path / "checkpoint", resume=True)
    assert (again.settings, again.earlier) == (whole.settings, whole.earlier)
    for name in ("rank", "log_joint"):
        np.testing.assert_array_equal(again.trace[name], whole.trace[name])


def test_no_more_factors_follow_where_the_most_or_the_length_are_told():
    for told in ({"max_rank": 2}, {"num_samples": 50}, {"chains": [1]}):
        assert not ask(three_tiles(), "auto", **BIRTHS, **told).grows
    assert ask(three_tiles(), "auto", **BIRTHS).grows
    assert grown(grows=False, num_warmup=20, num_samples=50).rank == 2


def test_no_more_factors_follow_where_no_time_is_left(few_looks, monkeypatch):
    """The start took 50 s by this clock, and hardly any of the others are gone."""
    now, ready = itertools.count(0.0, 1e-3), sampling._ready

    def slow(*asked):
        nonlocal now
        now = itertools.count(50.0, 1e-3)
        return ready(*asked)

    set_clock(monkeypatch, lambda: next(now))
    monkeypatch.setattr(sampling, "_ready", slow)
    found = grown(max_time=90.0)
    assert found.rank == 2 and found.complete and found.cramped and not found.timed_out


def test_the_start_of_chains_with_more_factors_takes_time_that_was_given(few_looks, monkeypatch):
    """It takes an hour by this clock, of which 40 s were given."""
    now, wider = itertools.count(0.0, 1e-3), sampling.Stage.wider

    def slow(stage, steps=None):
        nonlocal now
        now = itertools.count(3600.0, 1e-3)
        return wider(stage, steps)

    set_clock(monkeypatch, lambda: next(now))
    monkeypatch.setattr(sampling.Stage, "wider", slow)
    found = grown(max_time=40.0)
    assert next(now) > 3600.0 and found.rank == 2 and found.cramped


def test_what_was_found_stays_where_time_is_up_before_there_are_draws_of_more(
    few_looks, monkeypatch
):
    now, advance = itertools.count(0.0, 1e-3), ChainRun.advance

    def slow(run, num_steps=None):
        nonlocal now
        if run.earlier_steps:
            now = itertools.count(3600.0, 1e-3)
        return advance(run, num_steps)

    set_clock(monkeypatch, lambda: next(now))
    monkeypatch.setattr(ChainRun, "advance", slow)
    found = grown(max_time=40.0)
    assert next(now) > 3600.0 and found.rank == 2 and found.timed_out and found.cramped


def test_what_was_found_stays_where_there_is_no_room_for_more(few_looks, monkeypatch):
    def refused(stage, steps=None):
        raise InputError("the matrix needs 3 TB")

    monkeypatch.setattr(sampling.Stage, "wider", refused)
    with pytest.warns(UserWarning, match="no fit with more: the matrix needs 3 TB"):
        found = grown()
    assert found.rank == 2 and found.complete and not found.cramped


def test_no_more_than_the_smaller_side_is_advised():
    drawn = np.full((2, 50), 9)
    good = Figures(
        num_chains=2, factors_agreeing=1.0, exact=True, rank=9, rank_probability=1.0
    )  # fmt: skip
    well = Verdict(good)
    found = with_bound(well, drawn, 9, 12)
    assert well.status == Status.RELIABLE and found.status == Status.IN_PART
    assert "; there may be more than were allowed." in str(found)
    assert str(found).endswith("Next, allow more factors, max_rank=12 (--max-rank 12).")
    cramped = str(with_bound(well, drawn, 9, 12, cramped=True))
    assert "more time" in cramped and "max_rank" not in cramped
    assert with_bound(well, drawn, 9, 9) == well
    bad = dataclasses.replace(good, factors_agreeing=0.5)
    advised = str(with_bound(Verdict(bad, (), {"chains": "try more"}), drawn, 9, 12))
    assert advised.endswith("Next, try more; and allow more factors, max_rank=12 (--max-rank 12).")


def test_a_factor_without_ones_on_one_side_is_emptied():
    usage = np.zeros((1, 2, 5, 2), bool)
    basis = np.ones((1, 2, 4, 2), bool)
    usage[0, 0, 1, 0] = True
    left = without_halves(*map(PackedDraws.pack, (usage, basis)))
    np.testing.assert_array_equal(np.asarray(left[1][:, :])[..., 0].any(2), [[True, False]])
    assert not np.asarray(left[1][:, :])[..., 1].any()


def test_many_numbers_are_told_as_a_range():
    """The shortest one that holds 90 %; of a few each is named."""
    shares = {2: 0.04, 3: 0.2, 4: 0.4, 5: 0.25, 6: 0.06, 7: 0.05}
    fit = types.SimpleNamespace(
        _rank_probabilities=shares, _most_factors=9, data=types.SimpleNamespace(shape=(20, 9))
    )
    assert number_sentence(fit) == "4 factors with probability 0.40 (3 to 6: 0.91)"
    fit._rank_probabilities = {3: 0.2, 4: 0.6, 5: 0.1, 6: 0.1}
    said = "4 factors with probability 0.60 (3: 0.20, 5: 0.10, 6: 0.10)"
    assert number_sentence(fit) == said


def test_the_probabilities_are_printed_and_shown(tmp_path, capsys):
    _tell(counted(), tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "3 factors with probability 0.90 (4: 0.10); the table has the" in said
    # Each number of factors is told once, with what it counts.
    assert "number of factors found" in said and not re.search(r"model, rank \d", said)
    assert "Number of factors" in counted().report(tmp_path / "report.html").read_text()
