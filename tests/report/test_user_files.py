"""Pages are drawn whatever files of the user matplotlib and ArviZ find."""

import os
import subprocess
import sys

import pytest

from bmfjax.report import style
from bmfjax.report.section import template

DRAW = """
from bmfjax.diagnostics.arviz import _import_arviz
from bmfjax.report import style

with style.default_parameters():
    figure = style.new_figure(2, 2)
    figure.subplots().set_title(r"a_1 \\\\frac")
print(len(style.png(figure)), _import_arviz().__name__)
"""


@pytest.mark.parametrize(
    "written, home",
    [
        (b"text.usetex: True\nfont.size: 30\n", None),
        (b"\xff\xfe\x00 no text", "read-only"),
    ],
    ids=["usetex", "no text, no home"],
)
def test_a_picture_is_drawn(tmp_path, written, home):
    (tmp_path / "matplotlibrc").write_bytes(written)
    (tmp_path / "file").touch()
    own = {"XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    if home is not None:  # below a file nobody makes a folder, not even root
        own["HOME"] = str(tmp_path / "file" / "home")
    done = subprocess.run(
        [sys.executable, "-c", DRAW], cwd=tmp_path, env=os.environ | own, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "arviz"


def test_parameters_of_the_user_are_put_back():
    import matplotlib

    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        with style.default_parameters():
            assert not matplotlib.rcParams["text.usetex"]
            assert matplotlib.rcParams["font.size"] == 10
        assert matplotlib.rcParams["text.usetex"] and matplotlib.rcParams["font.size"] == 30


def test_what_makes_the_first_page_sooner_is_drawn_as_pages_are(monkeypatch):
    import matplotlib
    from matplotlib.text import Text

    drawn, svg = [], style.svg
    monkeypatch.setattr(style, "svg", lambda figure: drawn.append(figure) or svg(figure))
    with matplotlib.rc_context({"text.usetex": True}):
        style.prepare()
    assert len(drawn) == 1 and not any(text.get_usetex() for text in drawn[0].findobj(Text))


def test_a_browser_loads_nothing_for_a_page():
    source, _, _ = template("page.html").environment.loader.get_source(None, "page.html")
    policy = source.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed.pop("img-src") == "data:" and allowed.pop("style-src") == "'unsafe-inline'"
    assert allowed.pop("default-src") == "'none'" and set(allowed.values()) == {"'none'"}
    assert source.index("Content-Security-Policy") < source.index("<style>")
