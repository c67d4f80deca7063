"""Comparing fits: factors, scores, the sentence, and what cannot be compared."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bmfjax
from bmfjax import InputError, compare
from bmfjax.cli import main
from bmfjax.comparison import fits
from bmfjax.diagnostics import Binarized
from bmfjax.posterior.packed import PackedDraws
from tests.test_cells import fit_of
from tests.test_modes import COLUMNS, DRAWS, ONE, ROWS, USAGE, VERDICT, fit_in, product

RNG = np.random.default_rng(1)
DATA = bmfjax.BinaryMatrix(product(USAGE, ONE) ^ (RNG.random((ROWS, COLUMNS)) < 0.05), name="made")


def of_rank(rank, seed=0, **figures):
    """Draws of the first factors of the truth, all chains agreeing."""
    usage, basis = (f[..., :rank] for f in truth(seed))
    return dataclasses.replace(
        fit_of("ormachine"),
        data=DATA,
        settings={"seed": seed},
        usage_draws=PackedDraws.pack(usage),
        basis_draws=PackedDraws.pack(basis),
        binary=Binarized(USAGE[:, :rank], ONE[:, :rank], 0.0),
        agreement=np.ones(rank),
        trace={"log_joint": np.zeros((2, 2 * DRAWS + 5))},
        other_draws={"flip_rate": np.full((2, DRAWS), {1: 0.3, 2: 0.2, 3: 0.06}[rank])},
        verdict=VERDICT.changed(**({"converged": True, "rhat": 1.0} | figures)),
    )


def truth(seed):
    rng = np.random.default_rng(seed)
    for f in (USAGE, ONE):
        yield np.broadcast_to(f, (2, DRAWS, *f.shape)) ^ (rng.random((2, DRAWS, *f.shape)) < 0.01)


@pytest.fixture(scope="module")
def found():
    return compare([of_rank(2), of_rank(3)], names=["two", "three"])


def test_more_factors_of_the_truth_predict_better(found):
    assert found.best == 1
    assert found.sentence.startswith("three predicts left-out entries better than two: its log")
    table = found.table
    assert (
        table["difference"].tolist()[1] == 0
        and table["difference"].iloc[0] < -2 * table["se"].iloc[0]
    )
    assert table["log_score"].diff().iloc[1] == pytest.approx(-table["difference"].iloc[0])
    assert (table["doubtful"] == 0).all()
    assert table["partners"].isna().tolist() == [True, False] and table["partners"].iloc[1] == 2
    assert found.printed.loc["partners"].tolist() == ["-", "2"]
    assert "remarks" not in found.printed.index and found.table["remarks"].tolist() == ["", ""]
    assert "log_evidence" not in table


def test_the_score_is_that_of_the_exact_predictive_probability(found):
    """Of a chain, the harmonic mean of every entry's probability over the draws."""
    fit = of_rank(3)
    i, j = np.divmod(np.arange(ROWS * COLUMNS), COLUMNS)
    density = fit._log_density(i, j, DATA.dense()[i, j])
    of_chains = 1 / np.exp(-density).reshape(2, DRAWS, -1).mean(1)
    exact = np.log(of_chains.mean(0)).sum()
    assert found.table.loc["three", "log_score"] == pytest.approx(exact)


def test_a_chain_in_a_mode_of_its_own_does_not_rule_the_score():
    """Ratios over all draws would weigh it by how badly it predicts."""
    good, apart = of_rank(3), fit_in(np.repeat([[0], [1]], DRAWS, 1))
    apart = dataclasses.replace(apart, data=DATA)
    behind = compare([good, apart]).table["difference"].iloc[1]
    # Averaged, an entry loses log 2 at most.
    assert -ROWS * COLUMNS * np.log(2) < behind < 0


def test_factors_find_their_partners(found):
    pairs = found.factors.dropna()
    assert pairs[["factor", "partner"]].to_numpy().tolist() == [[1, 1], [2, 2]]
    assert (pairs["similarity"] > 0.95).all()
    new = found.factors[found.factors["factor"].isna()]
    assert new["partner"].tolist() == [3] and new["similarity"].iloc[0] < 0.8
    assert "Factors of two in three: 1 is 1 (" in repr(found)
    assert "only in three: 3." in repr(found)
    turned = compare([of_rank(3), of_rank(2)])
    assert "Factors of fit 1 in fit 2: 1 is 1" in repr(turned)
    assert "only in fit 1: 3." in repr(turned) and turned.best == 0


def test_empty_factors_have_no_partner_and_one_that_is_taken_is_said():
    order, there = np.array([0, 1, 1]), np.array([False, True, True])
    usage, basis = (PackedDraws.pack(f[..., order]) for f in truth(0))
    binary = Binarized(USAGE[:, order] & there, ONE[:, order], 0.0)
    one = of_rank(3)
    other = dataclasses.replace(one, usage_draws=usage, basis_draws=basis, binary=binary)
    found = fits._factors([one, other], ["one", "other"])
    pairs = found.dropna(subset=["factor", "partner"])
    assert pairs["factor"].tolist() == [2] and pairs["similarity"].iloc[0] > 0.9
    left = {2, 3} - set(pairs["partner"])
    (taken,) = found[found["factor"].isna()].itertuples()
    assert {taken.partner} == left and taken.nearest == 2 and taken.similarity > 0.9
    said = fits._partners(found)
    assert "; only in one: 1, 3; " in said and "only in other" not in said
    assert f"; {taken.partner} of other is like 2 of one (" in said
    # Nor is one there that is in too few draws.
    few = one.verdict.changed(factors_in_few_draws=("2",))
    found = fits._factors([dataclasses.replace(one, verdict=few), one], ["few", "one"])
    assert found["factor"].dropna().tolist() == [1, 3]
    none = dataclasses.replace(other, binary=Binarized(0 * USAGE[:, order], ONE[:, order], 0.0))
    assert fits._factors([none, one], ["none", "one"])["partner"].tolist() == [1, 2, 3]


def test_all_that_are_alike_have_a_partner():
    """The pairs with the largest sum of all similarities would leave two alike without one."""
    cosines = np.array([[0.85, 0.7], [0.7, 0.0]])

    def cosines_of(one, other):
        return cosines[None, :, None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "tile_cosines", cosines_of)
        found = fits._factors([of_rank(2), of_rank(2)], ["one", "other"])
    assert found.dropna()[["factor", "partner"]].to_numpy().tolist() == [[1, 1]]


def test_a_feature_that_is_turned_round_is_the_same():
    """The rows that lack it have it, with weights of the other sign; of tiles that is another."""
    rng, fit = np.random.default_rng(2), fit_of("features")
    usage = rng.random((2, DRAWS, 9, 3)) < (0.2, 0.5, 0.4)
    usage[:] = usage[0, 0]
    basis = np.broadcast_to(rng.normal(size=(7, 3)), (2, DRAWS, 7, 3))

    def of(usage, basis, fit=fit):
        return dataclasses.replace(fit, usage_draws=1.0 * usage, basis_draws=basis)

    order, turns = np.array([2, 0, 1]), np.array([True, False, True])
    other = of((usage ^ turns)[..., order], np.where(turns, -basis, basis)[..., order])
    one = of(usage, basis)
    found = fits._factors([one, other], ["one", "other"])
    assert found["partner"].tolist() == [2, 3, 1] and found["turned"].tolist() == turns.tolist()
    np.testing.assert_allclose(found["similarity"], 1.0)
    assert "1 is 2 (1.00, turned round), 2 is 3 (1.00), 3" in fits._partners(found)
    tiles = fits._factors([of(usage, basis, fit_of("nmf")), other], ["one", "other"])
    assert tiles.dropna()["partner"].tolist() == [3] and not tiles["turned"].any()


def test_what_is_alike_cannot_be_told_apart():
    alike = compare([of_rank(3), of_rank(3, seed=1), of_rank(1)])
    assert alike.best is None
    assert alike.sentence.startswith("It is open which of fit ")
    assert "fit 3" not in alike.sentence and "standard error" in alike.sentence
    assert alike.table["seed"].tolist() == [0, 1, 0]
    same = compare([of_rank(3), of_rank(3)])
    assert "differ by 0.0, with" in same.sentence and "-0.0" not in repr(same)


def test_the_sentence_speaks_of_chains_that_do_not_agree_and_of_evidence():
    evidence = {"log_evidence": -500.0, "log_evidence_error": 0.3}
    fits = [
        of_rank(3, **evidence),
        of_rank(2, chains_apart=0.5, **evidence | {"log_evidence": -510}),
    ]
    found = compare(fits)
    sentence = found.sentence
    assert "but predictions of fit 2 do not hold" in sentence
    assert found.printed.loc["remarks", "fit 2"] == "predictions do not hold"
    assert [str(fit.verdict.status) for fit in fits] == found.table["status"].tolist()
    assert "higher by 10.0, with a standard error of 0.4" in sentence


def test_a_score_that_is_doubtful_is_not_sure(found):
    _, sentence = fits._sentence(found.table.assign(doubtful=[0.0, 0.3]), [True, True])
    assert sentence.startswith("three seems to predict left-out entries better than two")
    assert "up to 30% of the scores of three are doubtful: to be sure" in sentence
    assert "check=0.1, --check 0.1" in sentence
    both = "scores doubtful; predictions do not hold"
    assert fits._remarks([0.0, np.nan, 0.3], [True, False, False]) == ["", both[17:], both]


def test_entries_are_drawn_once_for_all_fits():
    few = compare([of_rank(2), of_rank(3)], max_entries=400)
    again = compare([of_rank(2), of_rank(3)], max_entries=400)
    pd.testing.assert_frame_equal(few.table, again.table)
    whole = compare([of_rank(2), of_rank(3)])
    error = few.table["se"].iloc[0]
    assert abs(few.table["difference"].iloc[0] - whole.table["difference"].iloc[0]) < 3 * error
    assert error > whole.table["se"].iloc[0]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="takes two or more fits"):
        compare([of_rank(2)])
    with pytest.raises(InputError, match="takes two or more fits"):
        compare(of_rank(2))
    with pytest.raises(InputError, match=r"give a list, such as compare\(\[fit1, fit2\]\)"):
        compare(of_rank(2), of_rank(3))
    for paths in (["g3", "n3"], [Path("g3"), of_rank(2)], "g3"):
        with pytest.raises(InputError, match=r"'g3' is a path; .*\[bmfjax.Fit.load\('g3'\), ...\]"):
            compare(paths)
    with pytest.raises(InputError, match="name is no argument of compare; did you mean 'names'"):
        compare([of_rank(2), of_rank(3)], name=["a", "b"])
    with pytest.raises(InputError, match=r"made \(60 x 30, .*not the same data"):
        compare([of_rank(2), fit_of("ormachine")])
    with pytest.raises(InputError, match="probabilities of ones and zeros and those of fit 2"):
        compare([fit_of("ormachine"), fit_of("relaxed")])
    with pytest.raises(InputError, match="a different one for each"):
        compare([of_rank(2), of_rank(3)], names=["a", "a"])
    with pytest.raises(InputError, match="max_entries"):
        compare([of_rank(2), of_rank(3)], max_entries=1)


def test_models_of_one_kind_are_compared():
    scored = compare([fit_of("ormachine"), fit_of("logistic"), fit_of("probit")])
    assert np.isfinite(scored.table["log_score"]).all() and len(scored.factors) >= 6


def test_the_command_line_says_the_same(tmp_path, capsys):
    fits = [of_rank(2), of_rank(3)]
    folders = [str(fit.save(tmp_path / f"rank {fit.rank}")) for fit in fits]
    table = tmp_path / "table.csv"
    assert main(["compare", *folders, "--output", str(table)]) == 0
    out = capsys.readouterr().out
    same = compare(fits, names=folders)
    assert (
        same.sentence in " ".join(out.split())
        and "log_score" in out
        and str(fits[1].verdict) in out
    )
    written = pd.read_csv(table)
    np.testing.assert_allclose(written["log_score"], same.table["log_score"], rtol=1e-5)
    assert main(["compare", *folders, "--output", str(table)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["compare", *folders, "--output", str(table), "--overwrite"]) == 0
    assert main(["compare", folders[0]]) == 2
    assert "takes two or more fits" in capsys.readouterr().err
