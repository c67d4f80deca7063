"""The page: what it says, that it stands alone, and that nothing half-written is left."""

import base64
import dataclasses
import html
import io
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import bmfjax
from bmfjax import cli
from bmfjax.diagnostics.leave_one_out import percent
from bmfjax.families import FAMILIES
from bmfjax.posterior.features import features_of
from bmfjax.report import factors, features, number, overview, page, plots, style, write_report
from bmfjax.report.factors import Bar, Card
from bmfjax.report.section import template
from bmfjax.report.style import label_colours, plain, png
from bmfjax.verdict import Figures, Verdict, of_rank
from tests.test_cells import fit_of

VISION = (
    [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
)
AWKWARD = "<b>&\"'$x_1$ {{ fit }}"


@pytest.fixture(scope="module")
def fit():
    """Two blocks of 6 x 4 with labels, awkward names, a missing cell and a mute row."""
    values = np.kron(np.eye(2), np.ones((6, 4)))
    values[0, 1] = np.nan
    values[11] = np.nan
    data = bmfjax.BinaryMatrix(
        values,
        row_names=[f"row <{i}>" for i in range(12)],
        column_names=[AWKWARD, "_hidden", *(f"vote {j}" for j in range(6))],
        row_labels=["<left>"] * 6 + ["right & wrong"] * 5 + [""],
        name="<i>blocks</i>",
    )
    few = {"num_chains": 2, "num_warmup": 100, "num_samples": 40, "progress": False}
    return bmfjax.fit(data, 2, model="relaxed", **few)


@pytest.fixture(scope="module")
def text(fit):
    return page.render(fit)


def test_the_page_starts_with_the_verdict(fit, text):
    """The three parts, what is explained, and the matrix; the figures are behind a summary."""
    shown = html.unescape(text)
    parts = re.findall(r'<li class="([a-z-]+)">(.*?)\.</li>', shown)
    assert [said.lower() for _, said in parts] == [p.said.lower() for p in fit.verdict.parts]
    assert [of.replace("-", " ") for of, _ in parts] == [p.status for p in fit.verdict.parts]
    assert f"<b>{fit.verdict.opening}.</b>" in shown and fit.verdict.remedy in shown
    bar = f"Explained: {percent(fit.check().explained, fit.check().explained_error)}</b>"
    marks = ['class="verdict', bar, '<details class="figures">', "<h2>The matrix", "<h2>Does the"]
    places = [shown.index(mark) for mark in marks]
    assert places == sorted(places) and shown.index("<svg") > places[3]
    assert text.count("<h1>") == 1


def test_the_page_says_which_factors_to_trust(fit, text):
    """On the card of each, and below the matrix where not all of them are; misfit is said first."""
    shown = html.unescape(text)
    for k, line in fit.tiles(all=True).iterrows():
        card = shown[shown.index(f"<h3>Factor {k} ") :]
        told = re.search(r'<p class="trust (\w+)">(.*?)</p>', card)
        assert told[1] == ("green" if line["kept"] else "amber")
        assert told[2].startswith(f"Real with probability {line['p_real']:.2f}. ")
    assert "False discovery rate" in shown
    doubted = dataclasses.replace(
        fit, usage_draws=np.zeros_like(fit.usage_draws), basis_draws=np.zeros_like(fit.basis_draws)
    )
    assert doubted.doubts.startswith("No factor is kept as a tile")
    judged = fit.verdict.changed(explained=-0.01, explained_error=0.001)
    doubted = page.render(dataclasses.replace(doubted, verdict=judged))
    places = [doubted.index(part) for part in (
        f"<b>{judged.predictions.lead}</b>", f"<b>{judged.opening}.</b>", "<h2>The matrix",
        '<p class="verdict amber">No factor', "<h2>Does the model",
    )]  # fmt: skip
    assert places == sorted(places)
    assert bool(re.search("kept as (a tile|tiles) at", shown)) == bool(fit.doubts)
    assert fit.doubts in shown


def test_the_call_that_the_page_shows_runs_whatever_the_names(fit, text):
    call = re.search(r"^fit\.\w+\(rows=.*?\)", text, re.MULTILINE)[0]
    names = [str(100 + i) for i in range(12)]
    data = bmfjax.BinaryMatrix(fit.data.dense(), row_names=names, column_names=names[:8])
    assert eval(call, {"fit": dataclasses.replace(fit, data=data)}).shape == (1, 1)


def test_tiles_are_printed_with_all_columns(fit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    for members in (False, True):
        tiles = fit.tiles(all=True, members=members)
        assert all(name in repr(tiles).splitlines()[0] for name in tiles.columns)
        assert "..." not in repr(tiles)
    many = type(tiles)(pd.concat([tiles] * 20))
    assert f"[{len(many)} rows x {len(tiles.columns)} columns]" in repr(many)


def test_names_and_labels_are_escaped(fit, text):
    for name in (*fit.data.column_names, "<left>", "right & wrong", fit.data.name):
        assert name in html.unescape(text)
    assert "<b>&" not in text
    assert "<left>" not in text
    assert "<i>blocks" not in text


def test_the_page_needs_nothing_from_elsewhere(text):
    page_alone = re.sub(r"base64,[^\"]+", "", text)  # an image may spell anything
    assert not re.search(r"""(?:src|href)\s*=\s*(?!["']?(?:data:|#))""", text)
    for outside in ("http:", "https:", "//", "<script", "@import", "<link"):
        assert outside not in page_alone
    assert re.findall(r"url\((.)", page_alone) and set(re.findall(r"url\((.)", page_alone)) == {"#"}
    assert len(text) < 800_000


def test_every_picture_can_be_saved(text):
    """The link holds a file that stands alone, and its name says what is in it."""
    pictures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert len(pictures) == 12
    for picture in pictures:
        name, stored = re.search(
            r'download="([a-z0-9-]+)\.svg" href="data:image/svg\+xml;base64,([^"]+)"', picture
        ).groups()
        file = ElementTree.fromstring(base64.b64decode(stored))
        assert min(float(x) for x in file.get("viewBox").split()[2:]) > 100
        shown = html.unescape(re.search('aria-label="(.*?)"', picture)[1])
        assert re.sub("[^a-z]", "", name) == re.sub("[^a-z]", "", shown.lower())


def test_pictures_follow_a_dark_page(text):
    """No text, line or ground of a picture has a colour of its own that a dark page would hide."""
    drawn = "".join(re.findall(r"<svg.*?</svg>", re.sub(r"base64,[^\"]+", "", text), re.DOTALL))
    assert not re.search("[:] (#000000|#1d2433|#ffffff|#d9dde5)", drawn)
    used = set(re.findall(r"var\(--(\w+)\)", drawn))
    assert used == {"ink", "line", "shade", "page"}
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    for name in used:
        assert f"--{name}:" in light and f"--{name}:" in dark


def test_the_sections_come_in_order(fit, text):
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert [t.split()[0] for t in titles] == [
        "The",
        "Does",
        "The",
        "How",
        "Traces",
        "Do",
        "Do",
        *["Modes"] * (fit.modes.differences is not None),
        "How",
        "Words",
        "To",
    ]


def test_a_run_that_was_not_stopped_does_not_say_so(text):
    assert "was stopped" not in text


def test_settings_and_fingerprint_are_told(fit, text):
    assert fit.data.fingerprint() in text
    assert "num_warmup" in text
    assert fit.versions["jax"] in text


def test_the_thinning_is_that_of_the_draws(fit, undrawn_figures):
    """A run that ends by itself keeps more draws than its longest would have kept."""
    told = page.render(dataclasses.replace(fit, settings=fit.settings | {"thinning": 512}))
    assert re.search(r"thinning\D*(\d+)", told)[1] == "1"


def test_a_rank_that_is_found_is_told_as_asked_for():
    found = [("rank", "auto"), ("max_rank", "8")]
    assert page._flat({"rank": "auto", "max_rank": 8, "call": "fit()"}) == found
    assert page._flat({"rank": 8, "finds_rank": True}) == found  # of an earlier version
    assert page._flat({"rank": 8}) == [("rank", "8")]


def test_no_page_explains_a_word_twice():
    for model in FAMILIES:
        terms = [word.term for word in bmfjax.Fit._of_model(model)._page.words]
        assert len(terms) == len(set(terms))


def test_the_word_r_hat_says_by_which_factors_hold():
    """A page that calls factors with 1.15 usable does not call their chains apart elsewhere."""
    of_chains, of_starts = (
        next(word.meaning for word in bmfjax.Fit._of_model(model)._page.words
             if word.term == "R-hat")
        for model in ("ormachine", "logistic")
    )  # fmt: skip
    assert "above 1.05 the chains are apart, or slow. Where all chains found" in of_chains
    assert "hold up to 1.2 of the log joint density" in of_chains
    assert of_starts.endswith("above 1.05 the starts are apart, or slow.")


def test_facts_are_those_of_the_fit(fit):
    told = {name: value for tell in fit._page.facts for name, value, _ in tell(fit)}
    assert told["Size"] == "12 x 8"
    assert told["Without information"] == "1 row, 0 columns"
    assert told["Missing"].startswith("9 ")
    assert told["Entries unlike the data"].startswith(f"{fit.figures.errors} ")


def test_a_page_that_ends_in_another_name_is_refused(fit, tmp_path):
    with pytest.raises(bmfjax.InputError, match=r"ends in \.pdf, and the page is HTML"):
        fit.report(tmp_path / "page.pdf")
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(fit, tmp_path):
    with pytest.raises(bmfjax.InputError, match="is a directory"):
        write_report(fit, tmp_path, overwrite=True)
    with pytest.raises(bmfjax.InputError, match="not a directory"):
        write_report(fit, tmp_path / "none" / "page.html")


def test_nothing_half_written_is_left(fit, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text(page.PAGE_MARK)

    def broken(_):
        raise RuntimeError("template")

    monkeypatch.setattr(page, "template", broken)
    with pytest.raises(RuntimeError, match="template"):
        write_report(fit, path, overwrite=True)
    monkeypatch.setattr(page, "render", lambda _: "\ud800")  # fails in the middle of the writing
    with pytest.raises(UnicodeEncodeError):
        write_report(fit, path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == page.PAGE_MARK


@pytest.mark.parametrize(
    ("changes", "shade"),
    [
        ({}, "green"),
        ({"rhat_log_joint": 1.03}, "amber"),
        ({"noise_free": True}, "amber"),
        ({"exact": False}, "amber"),
        ({"chains_apart": 0.3}, "amber"),
        ({"chains_apart": 0.3, "factors_agreeing": 0.5}, "red"),
        ({"factors_agreeing": np.nan}, "grey"),
    ],
)
def test_the_verdict_is_green_only_for_exact_draws_of_which_all_parts_hold(fit, changes, shade):
    known = {"num_chains": 4, "exact": True, "factors_agreeing": 1.0, "noise_free": False}
    judged = Verdict(Figures(**(known | changes)))
    assert page._shade(dataclasses.replace(fit, verdict=judged)) == shade


def test_a_stopped_run_says_so(fit, undrawn_figures):
    stopped = dataclasses.replace(fit, verdict=fit.verdict.changed(complete=False, num_draws=17))
    assert "after 17 of 40 draws" in page.render(stopped)


def test_the_page_of_starts_has_no_card_or_figure_that_says_nothing(fit, undrawn_figures):
    starts = fit.verdict.changed(num_warmup=0, planned_warmup=300)
    for kept in ([True, True], [False, True], [False, False]):
        usage = fit.binary.usage & kept
        found = dataclasses.replace(fit, verdict=starts, binary=fit.binary._replace(usage=usage))
        shown = page.render(found)
        numbers = re.findall(r"<h3>Factor (\d)", shown)
        assert numbers == [str(k) for k in (1, 2) if kept[k - 1]]
        assert ("No factor is shown" in shown) is not any(kept)
        assert ("One more has no rows" in shown) is (kept == [False, True])
        assert "is the reconstruction where chains began. Both" in shown
        for absent in ("Real with", "each tile is real", "Empty: ", "ncertainty,", "How far apart"):
            assert absent not in shown
    found = dataclasses.replace(found, usage_draws=0 * fit.usage_draws)
    drawn = overview.picture(found)
    assert overview.panels_of(found, drawn) == ("matrix",)
    axes = overview.overview_figure(found, drawn).axes
    assert {a.get_title() for a in axes} & set(overview.PANELS.values()) == {"Observed matrix"}
    for spread in (0.0, 1.0):
        with_effects = fit_of("features")
        effect = spread * np.arange(40.0) + np.zeros((2, 10, 1))
        others = with_effects.other_draws | {"row_effect": effect}
        with_effects = dataclasses.replace(with_effects, other_draws=others)
        assert len(features._busy_rows(with_effects)) == 2 * spread


def test_starts_have_no_probability_of_a_number_of_factors(fit, monkeypatch):
    for name, value in (("_rank_probabilities", {0: 1.0}), ("_most_factors", 5)):
        monkeypatch.setattr(type(fit), name, value)
    known = {"rank": 0, "rank_probability": 1.0, "rhat_rank": np.nan}
    starts = fit.verdict.changed(num_warmup=0, planned_warmup=300, **known)
    found = dataclasses.replace(fit, verdict=starts)
    assert number.rank_line(found).startswith("Number of factors: not known, there are no draws")
    assert not list(number.number_of_factors(found)) and number.number_section(found) is None
    drew = dataclasses.replace(found, verdict=starts.changed(planned_warmup=None))
    assert "0 with probability 1.00" in number.rank_line(drew)
    assert list(number.number_of_factors(drew))


def test_one_chain_few_draws_no_labels_no_names(fit):
    dense = np.tile(fit.data.dense(), (1, 4))
    one = dataclasses.replace(
        fit,
        data=bmfjax.BinaryMatrix(dense),
        usage_draws=fit.usage_draws[:1],
        basis_draws=np.tile(fit.basis_draws[:1], (1, 1, 4, 1)),
        binary=fit.binary._replace(basis=np.tile(fit.basis_binary, (4, 1))),
        other_draws={n: v[:1] for n, v in fit.other_draws.items()},
        trace={n: t[:1] for n, t in fit.trace.items()},
        agreement=np.full(2, np.nan),
        verdict=fit.verdict.changed(
            num_chains=1,
            factors_agreeing=np.nan,
            rhat_product=np.nan,
            converged=False,
            num_warmup=0,
        ),
    )
    few = dataclasses.replace(
        one,
        usage_draws=one.usage_draws[:, :3],
        basis_draws=one.basis_draws[:, :3],
        other_draws={n: v[:, :3] for n, v in one.other_draws.items()},
    )
    for chain in (one, few):
        text = page.render(chain)
        assert "binary matrix in 2 factors<" in text
        assert "With one chain" in text
        assert 'class="verdict grey"' in text
        assert "more columns" in text
        assert "not checked" in text
        assert "Rows, highest usage first" not in text
    assert "Too few draws" in text
    assert factors.usage_by_label_figure(one) is None


def test_a_number_of_factors_that_nobody_gave_is_said_to_be_by_default(
    fit, undrawn_figures, tmp_path, capsys
):
    """On the page, whose tick is of what holds, and in the terminal; with how many are empty."""
    line, default = "Rank 2 by default, 1 of them empty", {"rank_default": 2, "factors_empty": 1}
    told = dataclasses.replace(
        fit, verdict=fit.verdict.changed(**default), settings=fit.settings | {"rank": 2}
    )
    text = page.render(told)
    assert line in text and '<li class="by-default">Their number is 2 by default.' in text
    assert "the default: none was given" in text
    cli._tell(told, tmp_path)
    assert f"model, {line[0].lower()}{line[1:]}" in capsys.readouterr().out
    cut = told.verdict.changed(num_warmup=0, planned_warmup=300)
    cli._tell(dataclasses.replace(told, verdict=cut), tmp_path)
    assert "agreement" not in capsys.readouterr().out  # no table of starts
    assert number.rank_line(fit) == "Rank 2" and page._about(fit, "rank") == ""
    assert [page._mark(part) for part in fit.verdict.parts][2] == "holds"


@pytest.mark.parametrize(
    ("changes", "words"),
    [({}, "0.93"), ({"chains": 1}, "there is one chain"), ({"starts": True}, "nothing was drawn")],
)
def test_a_card_says_why_agreement_is_not_known(fit, changes, words):
    line = {"agreement": np.nan if changes else 0.93}
    if changes.get("chains"):
        fit = dataclasses.replace(fit, usage_draws=fit.usage_draws[:1])
    if changes.get("starts"):
        cut = fit.verdict.changed(num_warmup=0, planned_warmup=300)
        fit = dataclasses.replace(fit, verdict=cut)
    said = factors.agreement_of(fit, line)
    assert said.endswith(f"{words}.") and ("not known, because" in said) is bool(changes)


def test_factors_that_are_empty_when_rounded_are_not_told_as_found(
    fit, undrawn_figures, tmp_path, capsys
):
    """They are in the title, the figures at the top, and where the number of factors is found."""
    usage = fit.usage_binary & [True, False]
    empty = dataclasses.replace(
        fit,
        binary=fit.binary._replace(usage=usage),
        trace=fit.trace | {"rank": np.full_like(fit.trace["log_joint"], 2, dtype=int)},
    )
    judged = empty.restricted(0)
    assert judged.figures.factors_empty == 0  # rounded anew
    empty = dataclasses.replace(
        empty,
        verdict=empty.verdict.changed(
            **of_rank(np.full((2, 40), 2)), factors_empty=1, factors_found=1, factors_agreeing=1.0
        ),
    )
    shown = html.unescape(page.render(empty))
    assert "</i>: 2 factors shown, 1 of them empty</h1>" in shown.replace("<i>blocks", "")
    line = "Number of factors: 2 with probability 1.00. The page shows the 2 that at least half of"
    assert line in shown and "half of the draws use, 1 of them empty." in shown
    # The terminal tells the same.
    cli._tell(empty, tmp_path)
    assert "half of the draws use, 1 of them empty." in " ".join(capsys.readouterr().out.split())
    assert "<dd>1 of 2<small>at least 0.8 alike in all chains; 1 is empty" in shown
    assert "When rounded, 1 of them is empty" in shown
    assert empty._empty.tolist() == [False, True]


def test_a_big_matrix_is_pooled_and_thinned(fit, monkeypatch):
    monkeypatch.setattr(overview, "MAX_ENTRIES", 7 * 6)
    monkeypatch.setattr(overview, "MAX_COLUMNS", 6)
    monkeypatch.setattr(overview, "MAX_PIXELS", (4, 3))
    monkeypatch.setattr(overview, "MAX_WORK", 10 * 7 * 6 * 2)
    drawn = overview.picture(fit)
    assert (len(drawn.rows), len(drawn.columns)) == (7, 6)
    assert drawn.mean.shape == drawn.sd.shape == drawn.matrix.shape[:2] == (4, 3)
    assert drawn.labels.shape == (4, 1, 3)
    assert drawn.num_draws == 20
    note = overview.describe(fit, drawn)
    assert "7 evenly spaced rows of 12" in note
    assert "average of up to 2 x 2" in note
    assert "20 of the 80 kept draws" in note
    figure = overview.overview_figure(fit, drawn)
    titles = {axes.get_title() for axes in figure.axes}
    assert titles >= set(overview.PANELS.values())
    assert len(png(figure)) > 1000
    assert figure.legends[0].get_title().get_text().endswith("the colour of their label:")
    labelled = dataclasses.replace(fit.data.reading, labels=("party", "x"))
    monkeypatch.setattr(fit.data, "_reading", labelled)
    named = overview.overview_figure(fit, drawn).legends[0].get_title().get_text()
    assert named.endswith("their label (party / x):")


def test_many_entries_are_binned_and_many_columns_left_out(fit, monkeypatch):
    monkeypatch.setattr(plots, "MAX_POINTS", 5)
    monkeypatch.setattr(factors, "MAX_BASIS_COLUMNS", 5)
    monkeypatch.setattr(plots, "MAX_STEPS", 30)
    png(plots.mean_sd_figure(fit))
    figure = factors.basis_figure(fit)
    assert len(figure.axes[0].get_yticks()) == 5
    assert figure.axes[0].get_ylabel() == "the 5 most specific of 8 columns"
    assert figure.axes[1].get_xlabel() == "mean of the basis"
    assert len(plots.trace_figure(fit).axes[0].lines[0].get_xdata()) == 30


def test_the_overview_shows_the_entries(fit):
    drawn = overview.picture(fit)
    mean = fit.predict()
    np.testing.assert_allclose(drawn.mean, mean[drawn.rows][:, drawn.columns], atol=1e-6)
    missing = ~fit.data.observed()[drawn.rows][:, drawn.columns]
    yellow = np.array(overview.rgb(overview.MISSING))
    np.testing.assert_array_equal((np.abs(drawn.matrix - yellow) < 1e-6).all(-1), missing)


def test_label_shares_count_rows(fit):
    shares = factors.label_shares(fit)
    np.testing.assert_allclose(shares["<left>"], fit.usage_binary[:6].mean(0))
    assert set(shares) == {"<left>", "right & wrong", "unknown"}


def test_rare_labels_share_grey():
    labels = [f"label {i}" for i in range(24) for _ in range(24 - i)]
    colours = label_colours(labels)
    assert len(colours) == 24
    assert len({colours[f"label {i}"] for i in range(20)}) == 20
    assert len({colours[f"label {i}"] for i in range(20, 24)}) == 1


@pytest.mark.parametrize("colours, least", [(style.COLOURS, 16.0), (style.LABEL_COLOURS, 12.0)])
def test_colours_are_distinct_to_colour_blind_eyes(colours, least):
    """Distances in CIELAB as protanopes, deuteranopes and tritanopes see them (Machado 2009)."""
    linear = np.array([style.rgb(colour) for colour in colours])
    linear = np.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    for seen in (np.eye(3), *VISION):
        lab = _lab(np.clip(linear @ np.transpose(seen), 0, 1))
        apart = np.linalg.norm(lab[:, None] - lab, axis=2) + 100 * np.eye(len(lab))
        assert apart.min() > least


def _lab(linear):
    xyz = linear @ np.transpose(
        [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0178, 0.1095, 0.8727]]
    )
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def test_a_png_keeps_the_frequent_colours():
    figure = overview.new_figure(2, 2)
    image = np.asarray(Image.open(io.BytesIO(png(figure, 50))).convert("RGB"))
    assert image.shape == (100, 100, 3)
    assert (image == 255).all()


def test_names_in_figures_are_no_formulas():
    assert plain("$a$\n b") == r"\$a\$ b"
    assert plain("_x") == " _x"
    assert len(plain("word " * 20)) <= 28


def test_a_column_of_which_it_is_not_known_has_no_odds_and_an_interval_stays_in_one_line():
    fit = fit_of("features")
    found = features_of(fit.usage_draws, fit.basis_draws)
    found.concerned[:2, 0], found.log_odds[:, :2, 0] = (0.5, 1.0), np.log(4.0)
    told = [features._bar(fit, found, j, 0, known).number for j, known in enumerate((False, True))]
    before = fit.other_draws["basis_density"][..., 0].mean()
    unknown = f"0.50; the data say little ({before:.2f} without them)"
    assert told == [unknown, "1.00; odds x 4 (4\xa0to\xa04)"]
    found.concerned[1, 0] = 0.12
    assert features._bar(fit, found, 1, 0, True).number == "0.12; if so odds x 4 (4\xa0to\xa04)"
    found.concerned[1, 0] = 1.0
    found.log_odds[:, 1, 0] = np.log(1e-6)
    assert features._bar(fit, found, 1, 0, True).number == "1.00; odds x < 0.001"
    found.log_odds[2, 1, 0] = np.log(0.25)
    assert (
        features._bar(fit, found, 1, 0, True).number
        == "1.00; odds x < 0.001 (<\xa00.001\xa0to\xa00.25)"
    )


def test_cards_have_room_for_long_numbers_and_an_empty_one_no_columns():
    full = Card("", "Agreement", [], [Bar("a", 1.0, "1.00; odds x 4 (3 to 5)")], [], "", [])
    for cards, roomy in (([full], True), ([full._replace(first=[])], False), ([], False)):
        text = template("cards.html").render(cards=cards, numbers=[0])
        assert ('class="cards roomy"' in text) is ("Columns" in text) is roomy


def test_odds_beyond_what_data_tell_are_said_to_be_beyond():
    assert [features._ratio(np.log(x)) for x in (1e-6, 0.25, 20.0, 999.0, 1e6)] == [
        "< 0.001", "0.25", "20", "999", "> 1,000",
    ]  # fmt: skip
