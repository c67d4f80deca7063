"""`Fit.plot`: which drawings a fit has, where they are drawn, and that the report has the same."""

from types import SimpleNamespace

import matplotlib
import matplotlib.style
import numpy as np
import pytest
from matplotlib.figure import Figure

import bmfjax
from bmfjax.posterior.model_check import BINARY, COUNTS
from bmfjax.report import drawings, factors, overview, plots
from bmfjax.report.style import _FONT, DARK_SHADE, colour_scale
from tests.shared_fits import davis
from tests.test_cells import data_of, fit_of


@pytest.fixture(autouse=True)
def own_figures():
    """Draw without a screen, and close what was drawn."""
    from matplotlib import pyplot

    with matplotlib.rc_context({"backend": "agg"}):
        yield
    pyplot.close("all")


def axes():
    return Figure().subplots()


def test_dir_has_what_works_and_the_others_say_why():
    plot = davis().plot
    assert dir(plot) == ["calibration", "factors", "matrix", "modes", "tiles", "traces"]
    for name in dir(plot):
        ax = axes()
        assert getattr(plot, name)(ax=ax) is ax and ax.has_data()
    with pytest.raises(bmfjax.InputError, match=r"plot.rank\(\) .* fit with rank='auto'"):
        plot.rank()
    with pytest.raises(bmfjax.InputError, match="of is 'wrong'"):
        plot.matrix(of="wrong")
    with pytest.raises(bmfjax.InputError, match="the rows have no labels"):
        plot.factors(of="labels")


@pytest.mark.parametrize("model", bmfjax.specs.MODELS)
def test_every_model_has_drawings_or_refuses_them(model):
    fit = fit_of(model)
    names = dir(fit.plot)
    assert {"factors", "traces"} <= set(names) and "rank" not in names
    for name in ("tiles", "modes"):
        assert (name in names) == hasattr(type(fit), name)
    for name in {"factors", "matrix"} & set(names):
        assert getattr(fit.plot, name)(ax=axes()).has_data()
    for name in {"matrix", "tiles", "modes", "calibration", "rank"} - set(names):
        with pytest.raises(bmfjax.InputError, match=rf"there is no plot.{name}\(\) of this fit: "):
            getattr(fit.plot, name)()


def test_fits_of_all_models_have_few_names_in_common():
    kinds = {type(fit_of(model)) for model in bmfjax.specs.MODELS}
    names = set.intersection(*({*dir(k), *k.__dataclass_fields__} for k in kinds))
    assert len([name for name in names if not name.startswith("_")]) <= 40


def test_panels_of_a_new_figure_are_returned():
    plot = davis().plot
    panels = plot.matrix()
    assert len(panels) == 3 and len({panel.figure for panel in panels}) == 1
    assert len(plot.traces()) == len(plots.traced(davis()))
    with matplotlib.style.context("dark_background"):
        shade = plot.traces()[0].patches[0].get_facecolor()[:3]
    assert shade == matplotlib.colors.to_rgb(DARK_SHADE)
    assert plot.traces(of="errors").get_title("left") == plots.TRACES["errors"]


def test_the_report_draws_the_same(monkeypatch):
    """Both call one function: what it draws is changed for both."""
    drawn = []
    monkeypatch.setattr(overview, "draw_panels", lambda panels, *_: drawn.append(len(panels)))
    fit = davis()
    fit.plot.matrix()
    overview.overview_figure(fit, overview.picture(fit))
    assert drawn == [3, 3]
    for name in ("draw_number", "draw_modes", "draw_tiles", "draw_basis", "draw_calibration"):
        function = getattr(drawings, name)
        assert function.__globals__[name] is function and f"{name}(" in source_of(function)


def source_of(function):
    """The module of a drawing, without the line that defines it."""
    with open(function.__code__.co_filename) as file:
        return file.read().replace(f"def {function.__name__}(", "")


def test_text_follows_the_style_of_the_user():
    with matplotlib.rc_context({"axes.labelcolor": "red", "axes.titlecolor": "red"}):
        ax = davis().plot.calibration()
    assert ax.xaxis.label.get_color() == "red"
    assert ax._left_title.get_color() == "red"


def test_names_do_not_overlap_and_specific_ones_come_first():
    first = np.arange(1000.0)[::-1]
    shown, size = overview._fitting(first, 300.0, True)
    assert shown[0] == 0 and (np.diff(shown) * 300.0 / 1000 >= 1.2 * size).all()
    assert 20 < len(shown) < 45
    everything, size = overview._fitting(first[:20], 300.0, True)
    assert len(everything) == 20 and size == 8.0
    assert not len(overview._fitting(first, 300.0, False)[0])


def test_a_line_is_specific_of_a_factor_that_has_it_alone():
    basis = np.array([[0.9, 0.9], [0.9, 0.1], [0.2, 0.8], [0.1, 0.1]])
    usage = np.ones((3, 2))
    scores = overview.ordering.specificity(basis, usage)
    np.testing.assert_allclose(scores[1], [0.8, -0.8])
    assert overview.ordering.most_specific(scores, 2).tolist() == [1, 2]
    assert overview.ordering.most_specific(scores, 3).tolist() == [1, 2]  # no factor has the others
    assert overview.ordering.most_specific(np.zeros((4, 2)), 3).tolist() == [0, 1, 2]
    # The scale of a factor is that of its usage and basis together.
    np.testing.assert_allclose(
        overview.ordering.specificity(basis / 4.0, 4.0 * usage), scores, atol=1e-12
    )


def test_a_font_ends_with_its_style():
    drawn = """<text style=" font-family: 'A', serif; x: 1"/><text style=" font-family: B"/>"""
    drawn += '<text style="x: 1;"/>'
    assert _FONT.sub("", drawn) == '<text style=" x: 1"/><text style=""/><text style="x: 1;"/>'


@pytest.mark.parametrize("shift", [-0.5, -2, 0])
def test_numbers_below_zero_have_colours_of_their_own(shift):
    values = data_of("nmf").dense() + shift
    fit, top = fit_of("nmf", bmfjax.RealMatrix(values)), abs(values).max()
    drawn = overview.picture(fit)
    assert (drawn.low, drawn.top) == pytest.approx((-top if shift else 0, top))
    at = (values[np.ix_(drawn.rows, drawn.columns)] - drawn.low) / (top - drawn.low)
    scale = colour_scale("signed" if shift else "values")
    np.testing.assert_allclose(drawn.matrix, scale(at)[..., :3], atol=0.05)
    figure = Figure()
    for of, low in (("reconstruction", drawn.low), ("uncertainty", 0)):
        panel = figure.add_subplot()
        overview.draw_panel(panel, fit, drawn, of)
        assert panel.images[0].get_clim()[0] == low


def test_a_legend_names_twenty_labels_in_columns_that_fit():
    labels = [f"a label of some length {k}" for k in range(23)]
    fit = type("", (), {"data": type("", (), {"row_labels": labels})})
    legend = overview._legend(fit, 140)
    assert len(legend["handles"]) == 21
    assert legend["handles"][-1].get_label() == "and 3 more"
    assert legend["ncols"] * (len("a label of some length 12") + 6) <= 140


def test_counts_have_colours_by_their_roots_and_spectra_few_digits():
    """One count of hundreds would leave all others white; digits that differ leave their column."""
    norms = [overview._norm(SimpleNamespace(_scored=of), 0.0, 400.0) for of in (COUNTS, BINARY)]
    assert [float(norm(100.0)) for norm in norms] == [0.5, 0.25]
    texts = [f"{0.0123:{factors._decimals(top)}}" for top in (0.5, 0.0479, 0.004, 2e-6)]
    assert texts == ["0.01", "0.012", "0.0123", "0.0123"]
