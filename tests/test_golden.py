"""Golden fingerprints: the draws and figures of every model stay what they were, bit for bit.

Each case is a small fit with a fixed seed. Every quantity that follows from it (draws, traces,
summary, predictions, binary factors, verdict, ...) is hashed, and `golden.json` holds the first 16
digits of its SHA-256, so that a failure names the quantities that changed. Where a model refuses a
quantity, the fingerprint is that of the refusal, whatever its words. Figures that hold seconds are
left out.

The last bits depend on the versions of JAX, NumPy and others, on the processor, and on XLA's flags.
These are stored as well, and the test skips where they differ.

After a change that is meant to change draws or figures, record all fingerprints again, from the
root of the repository, in one process and without selecting cases:

    BMFJAX_RECORD_GOLDEN=1 python -m pytest tests/test_golden.py

Pytest does it, so that XLA's flags are those of `conftest.py`. Read the difference of `golden.json`
before you commit it: every line that changed is a quantity that users will see change.

Only public names are imported, so that modules may move.
"""

import functools
import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import pytest

import bmfjax

GOLDEN = Path(__file__).with_name("golden.json")
RECORD = bool(os.environ.get("BMFJAX_RECORD_GOLDEN"))
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "numpyro")
ROWS, COLUMNS, RANK = 12, 9, 2
#: Other tests fit `ones` at these sizes too, where any will do: programs are compiled once.
SIZES = {"num_chains": 2, "num_warmup": 40, "num_samples": 30, "progress": False}
#: Single cells to predict; the second is missing in the data.
CELLS = ([0, 3, 5, 11, 5], [1, 0, 8, 2, 8])
KINDS = ("mean", "sd", "interval", "probability")


def real(complete=False):
    """Nonnegative numbers, of which six are missing unless `complete`."""
    rng = np.random.default_rng(20)
    product = rng.gamma(1.0, size=(ROWS, RANK)) @ rng.gamma(1.0, size=(RANK, COLUMNS))
    values = product + 0.1 * rng.random(product.shape)
    missing = rng.permutation(values.size)[:6]
    if not complete:
        values.ravel()[missing] = np.nan
        values[CELLS[0][1], CELLS[1][1]] = np.nan
    return values


def ones():
    """Zeros and ones, of which some are missing."""
    values = real()
    return np.where(np.isnan(values), np.nan, values > np.nanmedian(values))


def stars(values=None):
    """Ratings from 1 to 4 of the cells that are observed."""
    values = real() if values is None else values
    rows, columns = np.nonzero(~np.isnan(values))
    marks = np.clip(np.ceil(values[rows, columns]), 1, 4)
    return bmfjax.Ratings(rows, columns, marks, shape=values.shape, scale=(1, 4))


def start(bits=False):
    rng = np.random.default_rng(21)
    usage, basis = rng.random((ROWS, RANK)), rng.random((COLUMNS, RANK))
    return (
        {"usage": usage > 0.5, "basis": basis > 0.5} if bits else {"usage": usage, "basis": basis}
    )


#: Name of a case: (data, options of the fit).
CASES = {
    "ormachine": (ones, {}),
    "ormachine, metropolis update": (
        ones,
        {"sampler_options": {"update": "metropolis", "moves": ()}},
    ),
    "ormachine from init, joint update, two rates": (
        ones,
        {
            "init": start(bits=True),
            "priors": {"num_rates": 2},
            "sampler_options": {"update": "joint", "moves": ("birth",)},
        },
    ),
    "relaxed, gibbs": (ones, {"model": "relaxed", "sampler": "gibbs"}),
    "relaxed, iasg": (ones, {"model": "relaxed", "sampler": "iasg"}),
    "relaxed, thesis": (ones, {"model": "relaxed", "sampler": "thesis"}),
    "relaxed, fixed precision": (ones, {"model": "relaxed", "priors": {"precision": 4.0}}),
    "relaxed from init": (ones, {"model": "relaxed", "init": start()}),
    "logistic, batch": (ones, {"model": "logistic", "sampler": "batch"}),
    "logistic, svi": (ones, {"model": "logistic", "sampler": "svi"}),
    "logistic with effects": (
        ones,
        {"model": "logistic", "priors": {"row_effects": True, "column_effects": True}},
    ),
    "logistic from init": (ones, {"model": "logistic", "init": start(), "num_chains": 1}),
    "nmf, missing entries": (real, {"model": "nmf"}),
    "nmf from init": (lambda: real(complete=True), {"model": "nmf", "init": start()}),
    "pmf": (stars, {"model": "pmf"}),
    "pmf without effects": (real, {"model": "pmf", "priors": {"effects": False}}),
    "probit": (ones, {"model": "probit"}),
    "ordered-probit": (stars, {"model": "ordered-probit"}),
}


def arrays(value):
    """The arrays and words that a value consists of, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [part for key in sorted(value) for part in (key, *arrays(value[key]))]
    if isinstance(value, tuple):
        return [part for item in value for part in arrays(item)]
    if hasattr(value, "columns"):  # a data frame
        return [part for name in value.columns for part in (str(name), value[name].to_numpy())]
    return [np.asarray(value)]


def fingerprint(value):
    """First digits of the SHA-256 of a value: its numbers bit for bit, their types and shapes."""
    digest = hashlib.sha256()
    for part in arrays(value):
        if isinstance(part, str):
            digest.update(f"{part}\n".encode())
            continue
        if part.dtype.kind == "f":
            part = np.where(np.isnan(part), part.dtype.type(np.nan), part)  # one NaN of many
        assert part.dtype.kind in "biuf", part.dtype
        digest.update(f"{part.dtype.str} {part.shape}\n".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def quantities(fit, new):
    """{name: function without arguments} of all that is hashed; `new` are two rows to add."""
    extended = functools.cache(lambda: fit.given_new(new))
    found = {
        "usage_draws": lambda: fit.usage_draws[:],
        "basis_draws": lambda: fit.basis_draws[:],
        "agreement": lambda: fit.agreement,
        "approximation": lambda: fit.approximation,
        "scalars": lambda: {k: v for k, v in fit.scalars.items() if "seconds" not in k},
        "summary": fit.summary,
        "verdict": lambda: fit.verdict,
        "usage": lambda: (fit.usage, fit.usage_sd),
        "basis": lambda: (fit.basis, fit.basis_sd),
        "usage_binary": lambda: fit.usage_binary,
        "basis_binary": lambda: fit.basis_binary,
        "probability": fit.probability,
        "probability, noisy": lambda: fit.probability(noisy=True),
        "transform": lambda: fit.transform(new),
        "given_new": lambda: extended().usage_draws[:],
        "given_new, predict": lambda: extended().predict(),
    }
    found |= {f"other_draws: {k}": lambda v=v: v[:] for k, v in fit.other_draws.items()}
    found |= {f"trace: {k}": lambda v=v: v for k, v in fit.trace.items()}
    for rule in ("expected", "threshold", "pairs"):
        found[f"binarize: {rule}"] = lambda rule=rule: fit.binarize(rule)
    for kind in KINDS:
        if kind != "probability":
            found[f"predict: {kind}"] = lambda kind=kind: fit.predict(kind=kind)
        for noisy in (False, True):
            found[f"predict_cells: {kind}{', noisy' * noisy}"] = lambda kind=kind, noisy=noisy: (
                fit.predict_cells(*CELLS, kind, noisy=noisy)
            )
    return found


def answer(ask):
    try:
        return ask()
    except bmfjax.InputError:
        return "refused"


def fingerprints(case):
    """{quantity: fingerprint} of a case."""
    make, options = CASES[case]
    fit = bmfjax.fit(make(), RANK, seed=3, **{**SIZES, **options})
    new = ones()[2:4] if make is ones else real()[2:4]
    if make is stars:
        new = stars(new)
    return {name: fingerprint(answer(ask)) for name, ask in sorted(quantities(fit, new).items())}


def processor():
    """Name, family and vector instructions of the processor, which choose the compiled code."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    known = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    name = [known.get(k, "") for k in ("model name", "cpu family", "model")]
    kinds = ("avx", "fma", "sse4", "amx", "asimd", "sve")
    vectors = known.get("flags", known.get("Features", "")).split()
    return " ".join(filter(None, [*name, *sorted(v for v in vectors if v.startswith(kinds))]))


def conditions():
    """All that fingerprints depend on besides the code."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        **{name: version(name) for name in PACKAGES},
        "python": python,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "backend": jax.default_backend(),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


@pytest.fixture(scope="module")
def golden():
    """{case: {quantity: fingerprint}} as stored; when recording, empty, and written at the end."""
    if RECORD:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "record in one process, without -n"
        recorded = {}
        yield recorded
        content = {"conditions": conditions(), "cases": recorded}
        GOLDEN.write_text(json.dumps(content, indent=1) + "\n")
        return
    stored = json.loads(GOLDEN.read_text())
    here, there = conditions(), stored["conditions"]
    other = [f"{k}: {there.get(k)!r}, here {v!r}" for k, v in here.items() if there.get(k) != v]
    if other:
        pytest.skip("fingerprints were recorded under other conditions: " + "; ".join(other))
    yield stored["cases"]


@pytest.mark.parametrize("case", CASES)
def test_draws_and_figures_are_those_recorded(case, golden):
    found = fingerprints(case)
    if RECORD:
        golden[case] = found
        return
    known = golden[case]
    changed = [name for name in sorted(known | found) if known.get(name) != found.get(name)]
    assert not changed, f"{case}: changed are {'; '.join(changed)}"
