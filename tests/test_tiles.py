"""Which tiles are in the draws, and which of them a fit trusts."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import betaln, logsumexp, softmax

import bmfjax
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.diagnostics import Binarized, select_tiles
from bmfjax.posterior import tiles, trust
from bmfjax.posterior.packed import PackedDraws
from bmfjax.posterior.tiles import membership, membership_interval, presence
from bmfjax.predictions import check_table_file
from bmfjax.report.factors import summary_with_trust, tile_card
from tests.test_cells import fit_of


def found(usage_draws, basis_draws, usage, basis):
    return presence(*map(tiles.as_bits, (usage_draws, basis_draws)), usage, basis)


def disturbed(rng, usage, basis, chains, draws, flips):
    """Draws of these factors with some bits flipped, in an order of their own."""
    out = []
    orders = rng.permuted(np.tile(np.arange(usage.shape[1]), (chains, draws, 1)), axis=-1)
    for factor in (usage, basis):
        bits = factor ^ (rng.random((chains, draws, *factor.shape)) < flips)
        out.append(np.take_along_axis(bits, orders[:, :, None], -1))
    return out


def by_hand(usage_draw, basis_draw, usage, basis):
    """Presence in one draw from sets of cells, all matchings tried."""

    def cells(u, v):
        return [set(itertools.product(np.flatnonzero(a), np.flatnonzero(b)))
                for a, b in zip(u.T, v.T, strict=True)]  # fmt: skip

    reported, drawn = cells(usage, basis), cells(usage_draw, basis_draw)
    alike = [[len(t & s) / len(t | s) if t | s else 0.0 for s in drawn] for t in reported]
    same = [[j * (j >= 0.5) for j in line] for line in alike]
    best = max(
        itertools.permutations(range(len(drawn)), len(reported)),
        key=lambda order: sum(same[k][i] for k, i in enumerate(order)),
    )
    match = [i if same[k][i] else -1 for k, i in enumerate(best)]
    present = []
    for k, i in enumerate(match):
        others = [s for m, s in enumerate(drawn)
                  if m != i and (alike[k][m] < 0.5 or m in match[:k])]  # fmt: skip
        mine = reported[k] & drawn[i]
        present.append(i >= 0 and len(mine - set().union(*others)) > 0.1 * len(mine))
    return present


# ---- presence in draws -----------------------------------------------------------------------


@pytest.mark.parametrize("flips", [0.02, 0.15, 0.3])
def test_presence_is_that_of_sets_of_cells(flips, monkeypatch):
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 500)  # in many parts
    rng = np.random.default_rng(int(100 * flips))
    usage, basis = rng.random((40, 4)) < 0.4, rng.random((9, 4)) < 0.5
    usage[:, 3], basis[:, 3] = usage[:, 2] ^ (rng.random(40) < 0.1), basis[:, 2]  # nearly a copy
    draws = disturbed(rng, usage, basis, 2, 15, flips)
    seen = found(*draws, usage, basis).present
    for c, d in np.ndindex(2, 15):
        assert seen[c, d].tolist() == by_hand(draws[0][c, d], draws[1][c, d], usage, basis)
    assert 0 < seen.mean() < 1
    numbers = [np.where(f, 0.5, 0.49).astype(np.float32) for f in draws]  # they count from one half
    np.testing.assert_array_equal(found(*numbers, usage, basis).present, seen)


def blocks(*spans, rows=12, columns=10):
    """Usage and basis of tiles (first row, last, first column, last)."""
    usage, basis = np.zeros((rows, len(spans)), bool), np.zeros((columns, len(spans)), bool)
    for k, (a, b, c, d) in enumerate(spans):
        usage[a:b, k], basis[c:d, k] = True, True
    return usage, basis


def sequence(*draws):
    """Draws of one chain from pairs (usage, basis)."""
    return [np.stack(f)[None] for f in zip(*draws, strict=True)]


A, B, NONE = (0, 6, 0, 5), (6, 10, 5, 9), (0, 0, 0, 3)


def test_large_tiles_are_told_from_some_of_their_cells(monkeypatch):
    monkeypatch.setattr(tiles, "MOST_MEMBERS", 3)
    draws = sequence(blocks(A, B), blocks(A, (0, 10, 0, 8)))
    assert found(*draws, *blocks(A, B)).present[0, :, 0].tolist() == [True, False]


def test_few_draws_are_spread_over_all(monkeypatch):
    usage, basis = (PackedDraws.pack(np.zeros((2, 90, 8, 3)) > 0) for _ in range(2))
    assert tiles.few_draws(usage, basis)[0].shape[1] == 90
    monkeypatch.setattr(tiles, "MAX_WORDS", 0)
    assert [f.shape for f in tiles.few_draws(usage, basis)] == [(2, tiles.LEAST_DRAWS, 8, 3)] * 2


# ---- members ---------------------------------------------------------------------------------


def test_membership_is_given_that_the_tile_is_real():
    rng = np.random.default_rng(3)
    usage, basis = blocks(A, B)
    draws = disturbed(rng, usage, basis, 2, 60, 0.05)
    draws[0][0, :30], draws[1][0, :30] = 0, 0  # half a chain without any tile
    packed = [tiles.as_bits(f) for f in draws]
    seen = presence(*packed, usage, basis)
    assert 0.5 < seen.probability[0] < 0.8
    for factor, bits in zip(draws, packed, strict=True):
        own = np.take_along_axis(factor, seen.match[..., 0][..., None, None] % 2, -1)[..., 0]
        expected = own[seen.present[..., 0]].mean(0)
        share = membership(bits, seen, 0)
        np.testing.assert_allclose(share, expected, atol=1e-12)
        lines = np.arange(len(share))
        lower, upper = membership_interval(bits, seen, 0, lines, share)
        assert ((lower <= share) & (share <= upper) & (lower >= 0) & (upper <= 1)).all()
        assert (upper - lower < 0.25).all() and (upper > lower).all()


def test_intervals_cover_as_often_as_they_say():
    """Independent draws of known memberships, and chains that hardly move, which know less."""
    rng = np.random.default_rng(4)
    chance = np.linspace(0.1, 0.9, 12)
    usage, basis = np.ones((12, 1), bool), np.ones((6, 1), bool)
    hit, width = np.zeros((2, 100, 12)), np.zeros(2)
    for slow, n in np.ndindex(2, 100):
        bits = rng.random((2, 40 // (1 + 9 * slow), 12, 1)) < chance[:, None]
        bits = np.repeat(bits, 1 + 9 * slow, axis=1)
        packed = [tiles.as_bits(f) for f in (bits, np.ones((2, bits.shape[1], 6, 1)))]
        seen = presence(*packed, usage, basis)
        seen = seen._replace(present=np.ones_like(seen.present), match=np.zeros_like(seen.match))
        share = membership(packed[0], seen, 0)
        lower, upper = membership_interval(packed[0], seen, 0, np.arange(12), share)
        hit[slow, n] = (lower <= chance) & (chance <= upper)
        width[slow] += (upper - lower).mean() / 100
    assert 0.86 < hit[0].mean() < 0.96 and hit[1].mean() > 0.75
    assert width[1] > 2 * width[0]


def test_a_tile_in_no_draw_has_no_members_that_are_known():
    seen = found(*sequence(blocks(NONE)), *blocks(A))
    assert np.isnan(membership(tiles.as_bits(np.zeros((1, 1, 12, 1))), seen, 0)).all()


# ---- fits ------------------------------------------------------------------------------------

C, SMALL = (10, 12, 0, 2), (2, 4, 1, 3)


def fit_with(reported, chains, data=None, model="ormachine"):
    """A fit with these tiles, whose chains have the draws given, each many times."""
    rng = np.random.default_rng(0)
    parts = [sequence(*(blocks(*spans) for spans in chain)) for chain in chains]
    usage, basis = (np.concatenate([np.repeat(p[n], 10, 1) for p in parts]) for n in (0, 1))
    u, v = blocks(*reported)
    x = (u.astype(int) @ v.T.astype(int) > 0) ^ (rng.random((12, 10)) < 0.03)
    if model == "relaxed":
        usage, basis = (np.where(f, 0.9, 0.1).astype(np.float32) for f in (usage, basis))
    else:
        usage, basis = map(PackedDraws.pack, (usage, basis))
    return dataclasses.replace(
        fit_of(model),
        data=bmfjax.BinaryMatrix(x if data is None else data),
        usage_draws=usage, basis_draws=basis, binary=Binarized(u, v, 0.0),
        agreement=np.ones(len(reported)), other_draws={},
    )  # fmt: skip


@pytest.fixture(scope="module", params=["ormachine", "relaxed"])
def fit(request):
    reported = (A, B, SMALL, C, NONE)
    both = [(A, B, NONE, C, NONE)] * 2
    return fit_with(reported, [both, [(A, NONE, NONE, C, B), (A, NONE, NONE, C, NONE)]],
                    model=request.param)  # fmt: skip


def test_remarks_and_selection(fit):
    table = fit.tiles(all=True)
    np.testing.assert_allclose(table["p_real"], [1, 0.75, 0, 1, 0])
    assert table["kept"].tolist() == [True, False, False, True, False]
    assert table["remarks"][1] == "robust"
    assert table["remarks"][3] == "redundant"
    assert table["remarks"][4] == "low support" and table["bound"][4] > 0.05  # 3 ones in 2 x 2
    assert table["remarks"][5] == "empty" and table["bound"][5] == 1.0
    assert table["chains"].tolist() == [2, 2, 0, 2, 0]
    assert np.isnan(table["density"][5])
    counts = fit.data.tile_counts(fit.usage_binary, fit.basis_binary)
    np.testing.assert_allclose(table["density"][:4], (counts[0] / counts[1].clip(1))[:4])
    # At a level that lets it in: (0 + 0 + 0.25) / 3.
    assert fit.tiles(0.1, all=True)["kept"].tolist() == [True, True, False, True, False]
    # Nothing is discovered of a factor without a tile, however many others are sure.
    assert fit.tiles(0.5, all=True)["kept"].tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("level", [0.05, 0.1])
def test_kept_tiles_alone_are_returned(fit, level):
    """By the numbers of their factors, as among all; their members too."""
    every = fit.tiles(level, all=True)
    numbers = every.index[every["kept"]].tolist()
    assert 0 < len(numbers) < fit.rank
    pd.testing.assert_frame_equal(fit.tiles(level), every.loc[numbers])
    members, of_all = fit.tiles(level, members=True), fit.tiles(level, all=True, members=True)
    assert members.index.tolist() == list(range(len(members)))
    assert members["factor"].unique().tolist() == numbers and members["kept"].all()
    assert len(members) == of_all["factor"].isin(numbers).sum() < len(of_all)
    # Which no attribute of pandas hides.
    assert every.remarks.tolist() == every["remarks"].tolist()


def test_where_no_tile_is_kept_there_are_no_lines():
    fit = fit_with((A, B), [[(A, B)], [(NONE, NONE)], [(NONE, NONE)]])
    for members in (False, True):
        none, every = fit.tiles(members=members), fit.tiles(all=True, members=members)
        assert not len(none) and len(every) and none.columns.tolist() == every.columns.tolist()
        assert "all=True has every factor" in repr(none) and "all=True" not in repr(every)


def test_a_tile_of_one_chain_says_so():
    fit = fit_with((A, B), [[(A, B)], [(A, NONE)], [(NONE, A)]])
    table = fit.tiles(all=True)
    assert table["chains"].tolist() == [3, 1]
    assert table["remarks"].tolist() == ["robust", "in some chains only"]
    assert (
        "factor 2 is real with probability 0.33 (1 of 3 chains have it in most draws)" in fit.doubts
    )
    assert fit.doubts.startswith(
        "1 of 2 factors is kept as a tile at a false discovery rate of 5 %. "
    )
    # Chains that all come and go have it all the same, less than surely.
    moving = fit_with((A, B), [[(A, B), (A, NONE), (A, B)], [(A, B), (A, NONE), (A, NONE)]])
    table = moving.tiles(all=True)
    coming = ["robust", "changes from draw to draw"]
    assert table["chains"][2] == 1 and table["remarks"].tolist() == coming
    assert "2 is real with probability 0.50 (its cells change from draw to draw)" in moving.doubts
    # One chain cannot show what another finds.
    assert fit_with((A, B), [[(A, B)]]).tiles(all=True)["remarks"].tolist() == ["", ""]


def test_the_table_says_which_factors_do_not_hold():
    """Also of one that all chains have, whose means differ, and that is kept."""
    fit = fit_with((A, B), [[(A, B)]] * 3)
    assert fit.tiles()["remarks"].tolist() == ["robust", "robust"]
    holding = fit._judged(fit.verdict.changed(factors_of_most=("2",)))
    assert holding.tiles()["remarks"].tolist() == ["robust", ""]  # it holds, not in all chains
    fit = fit._judged(fit.verdict.changed(factors_differing=("2",)))
    assert fit.tiles()["remarks"].tolist() == ["robust", "chains differ"]
    assert trust.doubts(fit, fit.tiles(all=True)).endswith(
        "Among those kept, factor 2 is real with probability 1.00, but chains differ about it."
    )


def test_what_others_cover_in_most_draws_is_redundant():
    large = (0, 10, 0, 9)
    fit = fit_with((A, B), [[(A, large), (A, large), (A, B)]] * 2)
    table = fit.tiles(all=True)
    # The large one is neither: it shares 30 of its 90 cells with the one, 16 with the other.
    np.testing.assert_allclose(table["p_real"], [1 / 3, 1 / 3])
    assert table["remarks"].tolist() == ["redundant", "changes from draw to draw"]
    assert "factor 1 is real with probability 0.33 (other factors cover it)" in fit.doubts


def test_the_sentence_names_a_few_doubtful_factors_and_counts_the_others(fit, monkeypatch):
    assert [k for k in range(1, 6) if f"factor {k} is" in fit.doubts] == [2, 3, 4, 5]
    monkeypatch.setattr(trust, "NAMED", 1)
    fit = dataclasses.replace(fit)  # its sentence is stored
    assert "factor 2 is real with probability 0.75" in fit.doubts
    assert fit.doubts.endswith(
        "; 1 more is in doubt (tiles(all=True) and the report say why); factor 5 is empty. Among"
        " those kept, factor 4 is real with probability 1.00, but noise alone may hold a tile as "
        "dense."
    )


def test_doubts_about_a_tile_that_is_kept_are_told_apart():
    """The sentence agrees with the column `kept` and the cards."""
    fit = fit_with((SMALL,), [[(SMALL,)], [(SMALL,)]])
    assert fit.tiles()["remarks"].tolist() == ["low support"]
    assert fit.doubts == (
        "1 of 1 factors is kept as a tile at a false discovery rate of 5 %. Among those kept, "
        "factor 1 is real with probability 1.00, but noise alone may hold a tile as dense."
    )


def test_there_are_no_doubts_where_all_is_well():
    fit = fit_with((A, B), [[(A, B)], [(B, A)]])
    assert fit.doubts == "" and "trust" not in repr(fit)
    doubtful = fit_with((A, B), [[(A, NONE)]])
    assert "at a false discovery rate of 5 %" in repr(doubtful)
    cut = doubtful.verdict.changed(num_warmup=1, planned_warmup=50)
    assert "false discovery" not in repr(dataclasses.replace(doubtful, verdict=cut))


def test_members_are_told_by_name(fit):
    members = fit.tiles(all=True, members=True)
    assert members.columns.tolist() == ["factor", *trust.OF_TILE, *trust.OF_MEMBER]
    for k, line in fit.tiles(all=True).iterrows():
        own = members[members["factor"] == k]
        assert (own["p_real"] == line["p_real"]).all()
        for side, size in (("row", line["rows"]), ("column", line["columns"])):
            inside = own[(own["side"] == side) & own["member"]]
            assert len(inside) == size * (line["remarks"] != "empty" or size > 0)
    first = members[(members["factor"] == 1) & (members["side"] == "row")]
    assert first["name"].tolist() == [f"row {i + 1}" for i in range(6)]
    assert (first["membership"] == 1).all() and (first["lower"] > 0.9).all()
    assert members[members["factor"] == 3]["membership"].isna().all()


def test_lines_that_may_belong_to_a_tile_are_listed_after_its_members():
    wider = (0, 7, 0, 5)
    fit = fit_with((A,), [[(A,), (wider,)]])
    rows = fit.tiles(all=True, members=True).query("side == 'row'")
    assert rows["member"].tolist() == [True] * 6 + [False]
    assert rows["membership"].tolist() == [1.0] * 6 + [0.5]


@pytest.mark.parametrize("level", [0, 1, 5, "5 %", None])
def test_a_level_that_is_none_is_refused(fit, level):
    for members in (False, True):
        with pytest.raises(InputError, match="between 0 and 1"):
            fit.tiles(level, members=members)


def test_other_arguments_and_models_are_refused(fit):
    for name in ("all", "members"):
        with pytest.raises(InputError, match=f"{name} is 1; give True or False"):
            fit.tiles(**{name: 1})
    for model in ("nmf", "logistic", "pmf", "probit", "ordered-probit"):
        with pytest.raises(InputError, match=f"model '{model}' has no tiles"):
            fit_of(model).tiles()
        assert not hasattr(fit_of(model), "doubts")


# ---- what the probabilities mean ---------------------------------------------------------------

SIDES, DRAWS, FLIPS = (10, 8), 200, (np.arange(50) + 0.5) / 100


class Exact:
    """Draws from the posterior of one Boolean factor, by enumeration of all of its bits.

    Densities are uniform and integrated out; the flip rate is uniform on a grid.
    """

    def __init__(self):
        self.sides = [(np.arange(2**n)[:, None] >> np.arange(n)) & 1 for n in SIDES]
        self.prior = sum(
            np.meshgrid(*(betaln(s.sum(1) + 1, s.shape[1] - s.sum(1) + 1) for s in self.sides),
                        indexing="ij")
        )  # fmt: skip
        self.cells = np.outer(*(s.sum(1) for s in self.sides))
        rates, wrong = np.log(FLIPS), np.arange(SIDES[0] * SIDES[1] + 1)[:, None]
        log = wrong * rates + (wrong[-1] - wrong) * np.log1p(-FLIPS)
        self.log_likelihood = logsumexp(log, axis=1)  # by the number of wrong entries

    def draws(self, ones, rng):
        """Usage and basis (1, draw, lines, 1), and those of the most probable tile."""
        hits = self.sides[0] @ ones.astype(int) @ self.sides[1].T
        wrong = int(ones.sum()) - hits + self.cells - hits
        log = (self.prior + self.log_likelihood[wrong]).ravel()
        chosen = rng.choice(log.size, DRAWS, p=softmax(log))
        at = np.unravel_index(np.append(chosen, log.argmax()), self.cells.shape)
        bits = [s[i].astype(bool) for s, i in zip(self.sides, at, strict=True)]
        return [b[:-1].reshape(1, DRAWS, -1, 1) for b in bits], [b[-1][:, None] for b in bits]

    def probability(self, ones, rng, truth=None):
        """Probability of the most probable tile, and whether it is the true one."""
        draws, tile = self.draws(ones, rng)
        is_real = truth is not None and found(*(t[None, None] for t in truth), *tile).present.all()
        return found(*draws, *tile).probability[0] if all(t.any() for t in tile) else 0.0, is_real


@pytest.fixture(scope="module")
def exact():
    return Exact()


def test_probabilities_are_those_of_the_event_under_the_prior(exact):
    """Of data drawn from the model, tiles of probability p are real with frequency p."""
    rng, runs = np.random.default_rng(5), []
    for _ in range(300):
        truth = [rng.random((n, 1)) < rng.random() for n in SIDES]
        ones = (truth[0] & truth[1].T) ^ (rng.random(SIDES) < rng.choice(FLIPS))
        runs.append(exact.probability(ones, rng, truth))
    p, real = (np.array(x, float) for x in zip(*runs, strict=True))
    for low, high in itertools.pairwise((0.01, 0.5, 0.9, 1.01)):
        some = (p >= low) & (p < high)
        error = np.sqrt((p[some] * (1 - p[some])).sum() + 1) / some.sum()
        assert some.sum() > 20 and abs(p[some].mean() - real[some].mean()) < 3 * error
    kept = select_tiles(p, 0.05)
    assert kept.sum() > 70 and 1 - real[kept].mean() < 0.05 + 3 * np.sqrt(0.05 / kept.sum())


def test_noise_has_no_tiles(exact):
    """Although it always holds a most probable tile, which may be tiny."""
    rng = np.random.default_rng(6)
    noise = [rng.random(SIDES) < p for p in np.linspace(0.05, 0.4, 60)]
    p = np.array([exact.probability(ones, rng)[0] for ones in noise])
    assert np.mean(p > 0) > 0 and np.mean(p >= 0.95) <= 0.05


# ---- files and pages ---------------------------------------------------------------------------


def run(*arguments):
    return main([str(a) for a in arguments])


QUICK = ["--rank", "2", "--chains", "2", "--warmup", "40", "--samples", "30", "--quiet"]


def test_the_table_of_the_command_line_is_that_of_the_fit(tmp_path, capsys, quick_page):
    path = tmp_path / "out" / "tiles.csv"
    words = ["fit", "davis", "--model", "relaxed", *QUICK, "--output", path.parent]
    words += ["--tiles", path, "--export", "csv"]
    assert run(*words, "--fdr", 0.2) == 0
    fit = bmfjax.Fit.load(path.parent)
    exported = pd.read_csv(path.parent / "factors.csv")
    pd.testing.assert_frame_equal(exported, fit.to_frame(), rtol=1e-6, check_dtype=False)
    check_table_file(path.parent / "factors.csv", True, "davis")  # which may be replaced
    expected = fit.tiles(0.2, all=True, members=True)
    again = pd.read_csv(path, keep_default_na=False, na_values={
        n: [""] for n in ("density", "membership", "lower", "upper")})  # fmt: skip
    text = expected.select_dtypes(object).columns
    expected[text] = expected[text].fillna("").astype(again[text].dtypes.to_dict())
    again = type(expected)(again)  # printed whole
    pd.testing.assert_frame_equal(again, expected, rtol=1e-6, check_dtype=False)
    assert (fit.doubts in " ".join(capsys.readouterr().out.split())) or not fit.doubts
    # It stays unless told, and then only a table is replaced.
    before = path.read_bytes()
    other = tmp_path / "other"
    assert run(*words[:-5], other, *words[-4:]) == 2
    assert "already exists" in capsys.readouterr().err and path.read_bytes() == before
    assert not other.exists()
    check_table_file(path, True, "davis")  # which may be replaced
    path.write_text("mine\n")
    assert run(*words, "--overwrite") == 2
    assert "no table of bmfjax" in capsys.readouterr().err and path.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tiles", "t.csv", "--model", "nmf"], "relaxed, features, and the model is nmf"),
        (["--fdr", "0.1"], "--fdr is for the table of --tiles"),
        (["--tiles", "t.txt"], "has the ending '.txt'"),
        (["--tiles", "none/t.csv"], "is not a directory"),
    ],
)
def test_bad_requests_are_one_sentence(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("fit", "davis", *QUICK, *words, "--output", "out") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_cards_and_page_say_what_to_trust(fit, monkeypatch):
    line = summary_with_trust(fit)
    cards = [tile_card(fit, line.loc[k + 1], k) for k in range(5)]
    said = [card.trust for card in cards]
    assert said[0].startswith("Real with probability 1.00. Kept") and "Robust" in said[0]
    assert said[1].startswith("Real with probability 0.75. Not kept")
    assert said[1].endswith("Its cells change from draw to draw.")
    assert "Other factors cover it." in said[2]
    assert "Noise alone may hold a tile as dense." in said[3]
    assert said[4] == "Empty: no rows or no columns."
    assert [card.shade for card in cards] == ["green", "amber", "amber", "amber", "grey"]
