"""Fits by sequential Monte Carlo: evidence on the way to disk and page, stops and resumes."""

import numpy as np
import pytest

import bmfjax
from bmfjax.cli import _tell, build_parser
from bmfjax.data import InputError
from bmfjax.posterior.evidence import combined_evidence, rank_probabilities

VALUES = np.zeros((8, 6))
VALUES[:5, :4] = VALUES[7, 5] = 1.0
OPTIONS = {
    "sampler": bmfjax.SMC(num_particles=256, chain_length=8),
    "num_chains": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def fit():
    return bmfjax.fit(VALUES, 1, **OPTIONS)


def test_a_fit_has_particles_as_draws_and_the_evidence(fit):
    assert fit.usage_draws.shape == (2, 256, 8, 1) and fit.trace["log_joint"].shape == (2, 256)
    found = fit.log_evidence
    assert found.runs.shape == found.run_errors.shape == (2,)
    assert found[:2] == pytest.approx(combined_evidence(found.runs, found.run_errors)[:2])
    assert fit.figures.complete and fit.figures.temperatures > 3
    chance = fit.probability()
    assert chance[:5, :4].min() > 0.7 and chance[5:].max() < 0.3


def test_the_evidence_is_stored_and_shown(fit, tmp_path):
    again = bmfjax.Fit.load(fit.save(tmp_path / "fit"))
    for ours, theirs in zip(fit.log_evidence, again.log_evidence, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    page = again.report(tmp_path / "page.html").read_text()
    assert "Log evidence" in page and f"{fit.log_evidence.value:,.2f}" in page
    assert again.idata.sample_stats["lp"].shape == (2, 256)


@pytest.mark.long
def test_a_run_that_is_stopped_has_no_result_and_resumes_to_the_same(fit, tmp_path):
    stopped = OPTIONS | {"checkpoint": tmp_path}
    with pytest.raises(InputError, match=r"at inverse temperature 0\..* of 2 runs have reached 1"):
        bmfjax.fit(VALUES, 1, **stopped, max_time=1e-9)
    again = bmfjax.fit(VALUES, 1, **stopped, resume=True)
    np.testing.assert_array_equal(again.log_evidence.runs, fit.log_evidence.runs)
    np.testing.assert_array_equal(again.usage_draws[:], fit.usage_draws[:])


def test_the_command_line_knows_it_and_prints_the_evidence(fit, tmp_path, capsys):
    given = ["--sampler", "smc", "--option", "num_particles=64"]
    assert build_parser().parse_args(["fit", "zoo", *given]).sampler == "smc"
    _tell(fit, tmp_path)
    assert fit.log_evidence.sentence in capsys.readouterr().out


def test_what_it_cannot_do_is_refused():
    with pytest.raises(InputError, match="rank of at most 8, or sampler='gibbs'"):
        bmfjax.fit(np.eye(12), 9, sampler="smc")
    start = {"usage": np.ones((8, 1)), "basis": np.ones((6, 1))}
    with pytest.raises(InputError, match="starts from the prior"):
        bmfjax.fit(VALUES, 1, **OPTIONS, init=start)
    with pytest.raises(InputError, match="give a multiple of chain_length"):
        bmfjax.fit(VALUES, 2, sampler=bmfjax.SMC(num_particles=100))


# ---- evidences -------------------------------------------------------------------------------


def test_a_run_that_missed_the_mode_shows_in_the_error():
    close = combined_evidence([-10.0, -10.2, -9.9, -10.1], [0.1] * 4)
    missed = combined_evidence([-10.0, -10.2, -14.0, -10.1], [0.1] * 4)
    lone = combined_evidence([-10.0, -14.2, -14.0, -14.1], [0.1] * 4)
    assert close.sentence == f"Log evidence -10.04, standard error {close.error:.2f}."
    assert "of runs from -14.2 to -10.0: too far apart" in lone.sentence
    assert close.error < 0.1 < 0.2 < missed.error < lone.error and lone.error > 2
    assert combined_evidence([-10.0], [0.3]).error == pytest.approx(0.3)
    with pytest.raises(InputError, match="one each a run"):
        combined_evidence([1.0, 2.0], [0.1])
    with pytest.raises(InputError, match="not finite"):
        combined_evidence([np.nan], [0.1])


def test_probabilities_of_ranks_have_the_errors_of_the_evidences():
    value, error, prior = np.array([-3.0, -1.0, -1.5]), np.array([0.1, 0.05, 0.02]), [1, 2, 4]
    found = rank_probabilities(value, error, prior)
    drawn = value + error * np.random.default_rng(0).normal(size=(20_000, 3))
    weight = np.exp(drawn) * prior
    weight /= weight.sum(1, keepdims=True)
    np.testing.assert_allclose(found.probability, weight.mean(0), atol=2e-3)
    np.testing.assert_allclose(found.error, weight.std(0), rtol=0.05)
    for bad in ([value, error[:2], None], [value, -error, None], [value, error, [1, 1, 0]]):
        with pytest.raises(InputError, match="give"):
            rank_probabilities(*bad)
