"""Pages in a browser: Chromium shows them without a word, on a phone, on a dark screen, offline."""

import base64
import dataclasses
import json
import shutil
import time

import numpy as np
import pytest

from bmfjax.families import FAMILIES
from bmfjax.report import page, style
from bmfjax.verdict import Figures, Verdict
from tests.test_cells import CHAINS, COLUMNS, DRAWS, data_of, fit_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")

driver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
exceptions = pytest.importorskip("selenium.common.exceptions")
# Long together, and run where `.ci/run` has installed Chromium beside the other tests.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="no Chromium with chromedriver on the PATH"
    ),
]

#: Width of a phone in pixels that a page is laid out in.
PHONE = 400
#: Contrast of text that people with weak eyes can read (WCAG 2.2, level AA).
READABLE = 4.5
#: Names that are longer than a phone is wide, and one that is not.
LONG = ["a name", *(f"{j}-{'long' * 20}" for j in range(1, COLUMNS))]
#: Of a run that ended as planned; all numbers are one.
ONES = {f.name: 1 for f in dataclasses.fields(Figures) if f.type in ("float | None", "int | None")}
FIGURES = Figures(**ONES | {"num_draws": DRAWS, "num_warmup": 0, "log_evidence": None})
FIGURES = dataclasses.replace(FIGURES, complete=True, exact=True, layers_agreeing=(1.0,))
#: Seconds until a file must be there.
PATIENCE = 600

#: Texts whose contrast with what is behind them is below the first argument. Texts in the colours
#: of the second stand on an image, and have one of these by how dark it is.
FAINT = """
const [least, onImages] = arguments;
const rgb = (text) => text.match(/[0-9.]+/g).map(Number);
const over = ([r, g, b, a = 1], below) => [r, g, b].map((v, i) => a * v + (1 - a) * below[i]);
const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) =>
  0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const ground = (element) =>
  element === null
    ? [255, 255, 255]
    : over(rgb(getComputedStyle(element).backgroundColor), ground(element.parentElement));
const said = (element) =>
  [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
return [...document.querySelectorAll("body *")].flatMap((element) => {
  if (!said(element) || !element.getClientRects().length) return [];
  const style = getComputedStyle(element);
  const colour = rgb(element.closest("svg") ? style.fill : style.color);
  if (onImages.some((known) => String(known) === String(colour))) return [];
  const behind = ground(element);
  const [low, high] = [over(colour, behind), behind].map(light).sort((a, b) => a - b);
  const contrast = (high + 0.05) / (low + 0.05);
  return contrast < least ? [`${contrast.toFixed(2)}: ${said(element)}`] : [];
});
"""
#: Links to places that the page does not have.
ASTRAY = """
return [...document.querySelectorAll("a")]
  .map((link) => link.getAttribute("href"))
  .filter((at) => !at.startsWith("data:") && !document.getElementById(at.slice(1)));
"""
OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser for all pages, without a network, and the folder that it saves into."""
    folder, options = tmp_path_factory.mktemp("saved"), driver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Root has no sandbox, and many containers have little shared memory.
    for flag in ("headless", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{flag}")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        chromium = driver.Chrome(options, driver.ChromeService(DRIVER))
    except exceptions.WebDriverException as wrong:
        pytest.skip(f"Chromium does not start here: {wrong.msg}")
    with chromium:
        chromium.execute_cdp_cmd("Network.emulateNetworkConditions", OFFLINE)
        yield chromium, folder


def drawn(model) -> str:
    """Return the page of a fit that is put together from arrays, with long names."""
    fit = fit_of(model, data_of(model, names=LONG))
    steps = np.random.default_rng(3).normal(size=(CHAINS, DRAWS))
    fit = dataclasses.replace(
        fit, verdict=Verdict(FIGURES), trace={"log_joint": steps, "cut_acceptance": abs(steps)}
    )
    if model == "deep-ormachine":
        fit.settings["layers"] = [fit.rank]
        square = fit.basis_draws[..., : fit.rank, :]
        fit.other_draws.update(usage_2=fit.usage_draws, basis_2=square)
    return page.render(fit)


def asked_for(chromium) -> set[str]:
    """Return the addresses that the browser has asked for since the last question."""
    events = (json.loads(line["message"])["message"] for line in chromium.get_log("performance"))
    sent = (e["params"]["request"] for e in events if e["method"] == "Network.requestWillBeSent")
    return {request["url"].partition(",")[0] for request in sent}


@pytest.mark.parametrize("model", FAMILIES)
def test_a_page_in_a_browser(browser, model, tmp_path):
    """Silent, complete by itself, as wide as a phone, readable, with links that lead somewhere."""
    chromium, folder = browser
    path = tmp_path / "page.html"
    path.write_text(drawn(model), encoding="utf-8")
    asked_for(chromium)
    chromium.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": PHONE, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    chromium.get(path.as_uri())
    chromium.execute_script("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert chromium.get_log("browser") == []
    assert {url for url in asked_for(chromium) if not url.startswith("data:")} == {path.as_uri()}
    assert chromium.execute_script("return document.documentElement.scrollWidth") == PHONE
    for scheme in ("light", "dark"):
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
        on_images = [list(bytes.fromhex(colour[1:])) for colour in (style.ON_PALE, style.ON_DARK)]
        assert chromium.execute_script(FAINT, READABLE, on_images) == [], scheme
    assert chromium.execute_script(ASTRAY) == []
    saves(chromium, folder)


def saves(chromium, folder) -> None:
    """Save the first picture of the page."""
    link = chromium.find_element("css selector", "figcaption a")
    name, stored = link.get_attribute("download"), link.get_attribute("href").partition(",")[2]
    link.click()
    saved, until = folder / name, time.monotonic() + PATIENCE
    while not saved.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert saved.read_bytes() == base64.b64decode(stored)
    saved.unlink()
