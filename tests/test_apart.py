"""Chains that run apart: merged, they are the chains of one run, bit for bit."""

import functools
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpyro.distributions as dist
import pytest

import bmfjax
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.families import apart, ask, sampling
from bmfjax.families.apart import _plain, _value
from bmfjax.models.by_name import from_name, named
from bmfjax.models.spiked_beta import SpikedBeta
from bmfjax.models.truncated_beta import TruncatedBeta
from bmfjax.specs.base import settings_text
from bmfjax.store import hold
from tests import small_fits
from tests.toy import DATA, Toy, registered

#: The Boolean sampler that takes least to compile.
QUICK = {
    "sampler": bmfjax.Gibbs(update="gibbs", moves=[]),
    "model": bmfjax.OrMachine(usage=0.3, basis=0.3),
}
OF_MODEL = {
    "toy": (lambda: DATA, {}),
    "ormachine": (small_fits.ones, QUICK),
    "relaxed": (small_fits.ones, {}),
    "features": (small_fits.ones, {}),
    "nmf": (small_fits.real, {}),
    "pmf": (small_fits.stars, {}),
}


@pytest.fixture(autouse=True)
def a_toy():
    with registered(Toy(0.0)):
        yield


def fitted(model, **more):
    data, options = OF_MODEL[model]
    settings = small_fits.SIZES | {"num_chains": 4, "model": model} | options | more
    return bmfjax.fit(data(), 1 if model == "toy" else small_fits.RANK, **settings)


def part(folder, chains, **more):
    return fitted("toy", chains=chains, checkpoint=folder, **more)


@functools.cache
def whole():
    """One run with all chains, not to be changed."""
    return fitted("toy")


def assert_same(merged, one):
    """Every draw and trace, and of a fit every figure and the verdict; only the seconds differ."""
    assert merged.settings == one.settings
    for name in one.trace:
        # Two chains are another program than one, and may add up in another order.
        np.testing.assert_allclose(merged.trace[name], one.trace[name], rtol=1e-6)
    if not isinstance(one, bmfjax.Fit):
        np.testing.assert_array_equal(merged.usage, one.usage)
        return
    pairs = [(merged.usage_draws, one.usage_draws), (merged.basis_draws, one.basis_draws)]
    pairs += [(merged.other_draws[n], one.other_draws[n]) for n in one.other_draws]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(np.asarray(ours[:, :]), np.asarray(theirs[:, :]))
    found = merged.figures.known()
    different = {
        n: (found[n], v)
        for n, v in one.figures.known().items()
        if n != "seconds" and not (found[n] == v or found[n] != v != v)
    }
    assert not different


def test_merged_chains_are_those_of_one_run(tmp_path, monkeypatch):
    for chains in ([1], [2, 4], [3]):
        part(tmp_path, chains)
    assert_same(bmfjax.merge(tmp_path), whole())

    def no_fit(*_):
        raise ValueError("all the input array dimensions must match")

    monkeypatch.setattr(apart, "_restore", no_fit)
    with pytest.raises(InputError, match="chains do not fit together; run the chains again"):
        bmfjax.merge(tmp_path)


@pytest.mark.parametrize(
    "model",
    ["relaxed", *(pytest.param(m, marks=pytest.mark.long) for m in ("features", "nmf", "pmf"))],
)
def test_two_chains_of_a_family_are_those_of_one_run(model, tmp_path):
    """Those of the Boolean family run from the command line, below."""
    for chain in (1, 2):
        found = fitted(model, num_chains=2, chains=[chain], checkpoint=tmp_path)
        assert found.figures.num_chains == 1 and found.settings["chains"] == [chain]
        assert "bmfjax merge" in str(found.verdict) or model == "pmf"
        assert "num_chains=2, " in (call := found.settings["call"]) and f"chains=[{chain}]" in call
    assert_same(bmfjax.merge(tmp_path), fitted(model, num_chains=2))


def test_chains_that_are_missing_or_running_are_named_or_left_out(tmp_path):
    part(tmp_path, [1])
    part(tmp_path, [2, 4])
    with pytest.raises(InputError, match=r"lacks chain 3 \(not there\)"):
        bmfjax.merge(tmp_path)
    with (
        hold(tmp_path / "chains" / "3"),
        pytest.raises(InputError, match=r"3 \(it is still running"),
    ):
        bmfjax.merge(tmp_path)
    found, one = bmfjax.merge(tmp_path, missing=True), whole()
    assert found.settings["chains"] == [1, 2, 4]
    np.testing.assert_array_equal(found.log_joint, one.log_joint[[0, 1, 3]])


def test_a_part_that_was_stopped_is_named_and_goes_on_with_the_same_draws(tmp_path, monkeypatch):
    looks, keep = [], sampling.keep

    def stopping(run, *rest):
        looks.append(run.steps_done)
        if len(looks) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        keep(run, *rest)

    monkeypatch.setattr(sampling, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(sampling, "keep", stopping)
    with pytest.raises(SystemExit) as stopped:
        part(tmp_path, [3])
    assert stopped.value.code == 128 + signal.SIGUSR1
    for chains in ([1], [2, 4]):
        part(tmp_path, chains)
    with pytest.raises(InputError, match=r"chain 3 \(\d+ of 70 steps are done\)"):
        bmfjax.merge(tmp_path)
    part(tmp_path, [3], resume=True)
    assert_same(bmfjax.merge(tmp_path), whole())


def asked_for(**more):
    request = ask(small_fits.ones(), small_fits.RANK, chains=[1], num_chains=4, **QUICK, **more)
    return request, request.chains()


def test_processes_that_start_at_once_do_not_refuse_each_other(tmp_path):
    request, chains = asked_for()
    barrier = threading.Barrier(6)

    def start(_):
        barrier.wait()
        return apart.place_of(request, chains, tmp_path)

    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(start, range(6))) == {(tmp_path / "chains" / "1", False)}
    assert {p.name for p in (tmp_path / "chains").iterdir()} == {
        "request.json", "data.npz", "arrays.npz",
    }  # fmt: skip


def test_what_was_asked_for_is_always_there_to_read(tmp_path, monkeypatch):
    request, chains = asked_for()
    top, replace = tmp_path / "chains", os.replace

    def seen(*names):
        replace(*names)
        assert (top / "request.json").exists()

    apart.place_of(request, chains, tmp_path)
    (top / "data.npz").unlink()
    monkeypatch.setattr(os, "replace", seen)
    apart.place_of(request, chains, tmp_path)
    assert (top / "data.npz").exists()


def test_files_of_others_stay_and_lost_ones_come_back(tmp_path):
    (top := tmp_path / "chains").mkdir()
    (top / "data.npz").write_bytes(b"mine")
    request, chains = asked_for()
    with pytest.raises(InputError, match="no fit wrote it, so it is not replaced"):
        apart.place_of(request, chains, tmp_path)
    assert (top / "data.npz").read_bytes() == b"mine"
    (top / "data.npz").unlink()
    apart.place_of(request, chains, tmp_path)
    (top / "data.npz").unlink()
    with pytest.raises(InputError, match="run one of the chains again"):
        bmfjax.merge(tmp_path)
    apart.place_of(request, chains, tmp_path)
    with pytest.raises(InputError, match="lacks chain 1"):
        bmfjax.merge(tmp_path)


def test_stored_chains_are_not_begun_anew_unasked(tmp_path):
    part(tmp_path, [1], resume=True)  # begins, where nothing is stored
    with pytest.raises(InputError, match=r"already holds chains; go on with them by resume=True"):
        part(tmp_path, [1])
    part(tmp_path, [1], resume=True)
    for name in ("state.npz", "previous.npz"):
        (tmp_path / "chains" / "1" / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"chain 1 \(its checkpoint is damaged\)"):
        bmfjax.merge(tmp_path)


def test_chains_of_another_fit_do_not_mix(tmp_path):
    part(tmp_path, [1])
    with pytest.raises(InputError, match="chains of another fit: seed is 0 there and 1 here"):
        part(tmp_path, [2], seed=1)
    part(tmp_path, [1, 2])
    with pytest.raises(InputError, match="chain 1 is in two folders"):
        bmfjax.merge(tmp_path)
    request = tmp_path / "chains" / "request.json"
    for text in (request.read_text()[:50], "[1, 2]", '{"a": 1}'):
        request.write_text(text)
        with pytest.raises(InputError, match=r"request\.json is damaged, or no fit wrote it"):
            bmfjax.merge(tmp_path)
    with pytest.raises(InputError, match="elsewhere does not exist"):
        bmfjax.merge(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "more, message",
    [
        ({"chains": [0]}, "from 1 to 4"),
        ({"chains": [5]}, "from 1 to 4"),
        ({"chains": []}, "each once"),
        ({"chains": [2, 2]}, "each once"),
        ({"chains": 3}, r"numbers of those to run, such as \[3\]; .* num_chains=3"),
    ],
)
def test_chains_that_are_none_are_refused(more, message):
    with pytest.raises(InputError, match=message):
        ask(small_fits.ones(), small_fits.RANK, num_chains=4, **more)


# ---- what was asked for, as a file -------------------------------------------------------------


@pytest.mark.parametrize(
    "prior",
    [
        dist.Beta(2.0, 3.0),
        dist.Gamma(1.0, 2.0),
        dist.HalfNormal(0.5),
        dist.Uniform(0.0, 1.0),
        dist.Exponential(0.3),
        dist.TruncatedNormal(0.1, 1.5, low=0.0, high=1.0),
        dist.TruncatedDistribution(dist.Laplace(0.0, 2.0), low=0.0, high=1.0),
        TruncatedBeta(1.0, 2.0, 0.5),
        SpikedBeta(0.3, 2.0, 2.0),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_a_prior_is_read_as_it_was_written(prior):
    arrays = {}
    written = json.loads(json.dumps(_plain("prior", prior, arrays)))
    again = _value(written, arrays)
    assert type(again) is type(prior)
    assert settings_text(again) == settings_text(prior)
    at = np.linspace(0.01, 0.49, 7)
    np.testing.assert_array_equal(again.log_prob(at), prior.log_prob(at))


def test_a_prior_of_another_package_is_refused():
    class Own(dist.Beta):
        pass

    with pytest.raises(InputError, match="Own is no distribution of NumPyro"):
        named(Own(1.0, 1.0))
    with pytest.raises(InputError, match="'cell' is no distribution"):
        from_name("cell", {})
    with pytest.raises(InputError, match="expanded or reshaped"):
        named(dist.Beta(1.0, 2.0).expand([3]))


def test_values_are_read_as_they_were_written():
    given = {"moves": ("birth", "xor"), "walls": [1, [2.5, None]], "at": np.arange(3), "is": True}
    given |= {"block_size": np.int64(2)}
    arrays = {}
    again = _value(json.loads(json.dumps(_plain("given", given, arrays))), arrays)
    np.testing.assert_array_equal(again.pop("at"), given.pop("at"))
    assert again == given and type(again["moves"]) is tuple and type(again["block_size"]) is int
    with pytest.raises(InputError, match="conditionals' is a function, which cannot be written"):
        _plain("given", {"conditionals": lambda: None}, {})


def test_start_and_known_factors_come_back(tmp_path):
    data, start = small_fits.ones(), small_fits.start()
    names = [str(j) for j in range(small_fits.COLUMNS)]
    known = {"known": [n for n, bit in zip(names, start["basis"][:, 0], strict=True) if bit]}
    data = bmfjax.BinaryMatrix(data, column_names=names)
    request = ask(
        data, 2, init=start, anchors=known, num_chains=2, chains=[2], rank_is_default=True,
        sampler=QUICK["sampler"],
        model=bmfjax.OrMachine(usage=dist.Beta(1.0, 3.0)),
    )  # fmt: skip
    chains = request.chains()
    assert request.num_samples == 1000  # "auto" needs to look at all chains
    assert apart.place_of(request, chains, tmp_path) == (tmp_path / "chains" / "2", False)
    again = apart._read(tmp_path / "chains")
    assert again.chains().settings == {n: v for n, v in chains.settings.items() if n != "chains"}
    assert again.data.fingerprint() == request.data.fingerprint()
    assert again.rank_is_default and again.rank == 2


# ---- the command line --------------------------------------------------------------------------


def test_the_command_line_runs_chains_and_merges_them(tmp_path, capsys, quick_page):
    data = bmfjax.save(tmp_path / "table.npz", bmfjax.BinaryMatrix(small_fits.ones()))
    sizes = ["--warmup", "40", "--samples", "30", "--quiet"]
    sizes += ["--option", "update=gibbs", "--option", "moves=[]"]
    sizes += ["--prior-value", "usage=0.3", "--prior-value", "basis=0.3"]
    run = ["fit", str(data), "--rank", "2", "--output", str(tmp_path), *sizes]
    assert main([*run, "--chain", "1/2"]) == 0
    assert f"chain 1 of 2: 30 draws; when all are there: bmfjax merge {tmp_path}" in (
        capsys.readouterr().out
    )
    assert main([*run, "--chain", "1/2"]) == 2
    assert "already holds chains; go on with them by resume=True (--resume)" in (
        capsys.readouterr().err
    )
    assert main([*run, "--chain", "2/4", "--chains", "3"]) == 2
    assert "--chains is 3, and --chain names 4 in all" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "chains")]) == 2
    assert "holds no chains that ran apart" in capsys.readouterr().err
    assert main(["merge", str(tmp_path), "--output", str(tmp_path / "chains" / "x")]) == 2
    assert "is where the chains are" in capsys.readouterr().err
    assert main(["merge", str(tmp_path)]) == 2
    assert "lacks chain 2 (not there)" in capsys.readouterr().err
    assert main([*run, "--chain", "2/2"]) == 0
    one = fitted("ormachine", num_chains=2)
    assert_same(bmfjax.merge(tmp_path), one)
    assert main(["merge", str(tmp_path), "--export", "csv"]) == 0
    assert "open" in capsys.readouterr().out
    written = {p.name for p in tmp_path.iterdir()}
    assert {"summary.json", "posterior.nc", "report.html", "factors.csv", "chains"} <= written
    merged = bmfjax.Fit.load(tmp_path)
    np.testing.assert_array_equal(merged.usage_draws[:, :], one.usage_draws[:, :])
    assert merged.verdict == one.verdict
    assert main(["merge", str(tmp_path)]) == 2
    assert "already holds a fit" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "3-0/4", "2-1/3", "1,2/3", "a/b"])
def test_a_chain_that_is_none_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        main(["fit", "davis", "--chain", text])
    assert "names no chain; give C/N" in capsys.readouterr().err


def test_tables_are_for_the_merged_fit(tmp_path, capsys):
    assert main(["fit", "davis", "--chain", "1/2", "--tiles", str(tmp_path / "t.csv")]) == 2
    assert "--tiles is written by bmfjax merge" in capsys.readouterr().err
