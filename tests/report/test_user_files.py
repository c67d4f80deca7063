"""Pages are drawn whatever files of the user matplotlib and ArviZ find."""

import json
import os
import subprocess
import sys

import pytest

from bmfjax.report import style
from bmfjax.report.section import template

#: What is drawn in each folder with its variables, by a child: JAX is imported once for all.
DRAW = """
import json, os, sys
from bmfjax.diagnostics.arviz import _import_arviz
from bmfjax.report import style

assert not {"arviz", "matplotlib"} & set(sys.modules)
for folder, own in json.loads(sys.argv[1]).items():
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, folder
        continue
    os.chdir(folder)
    os.environ.update(own)
    with style.default_parameters():
        figure = style.new_figure(2, 2)
        figure.subplots().set_title(r"a_1 \\frac")
    print(len(style.png(figure)), _import_arviz().__name__)
    break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_picture_is_drawn(tmp_path):
    """With TeX and large letters asked for; and with no text in the file, and no home."""
    (tmp_path / "file").touch()  # below a file nobody makes a folder, not even root
    files = {
        "usetex": (b"text.usetex: True\nfont.size: 30\n", {}),
        "no text": (b"\xff\xfe\x00 no text", {"HOME": str(tmp_path / "file" / "home")}),
    }
    cases = {}
    for name, (written, own) in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "matplotlibrc").write_bytes(written)
        cases[str(tmp_path / name)] = own
    none = {"XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", DRAW, json.dumps(cases)], env=os.environ | none,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1::2] == ["arviz"] * len(cases)


def test_parameters_of_the_user_are_put_back():
    import matplotlib

    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        with style.default_parameters():
            assert not matplotlib.rcParams["text.usetex"]
            assert matplotlib.rcParams["font.size"] == 10
        assert matplotlib.rcParams["text.usetex"] and matplotlib.rcParams["font.size"] == 30


def test_a_browser_loads_nothing_for_a_page():
    source, _, _ = template("page.html").environment.loader.get_source(None, "page.html")
    policy = source.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed.pop("img-src") == "data:" and allowed.pop("style-src") == "'unsafe-inline'"
    assert allowed.pop("default-src") == "'none'" and set(allowed.values()) == {"'none'"}
    assert source.index("Content-Security-Policy") < source.index("<style>")
