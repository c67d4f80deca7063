"""What benchmarks compute for peers by itself: curves, intervals, scores and choices."""

import numpy as np
import pytest
from scipy.stats import norm

import bmfjax
from benchmarks.agreement import mnist
from benchmarks.papers.message_passing import message_passing
from benchmarks.prediction import panel_baselines, panel_ratings


def test_platts_curve_is_the_one_that_made_the_outcomes():
    rng = np.random.default_rng(0)
    told = rng.random(200_000)
    truth = 1 / (1 + np.exp(2.0 - 5.0 * told))
    found = panel_baselines.platt(told, (rng.random(told.shape) < truth).astype(float))
    assert np.abs(found(told) - truth).max() < 0.01  # standard errors are below 0.003
    # Outcomes that a threshold tells apart have a finite curve.
    apart = panel_baselines.platt(told[:50], (told[:50] > 0.5).astype(float))
    assert 0.0 < apart(np.array([0.0]))[0] < 0.1 < 0.9 < apart(np.array([1.0]))[0] < 1.0


def test_normal_draws_tell_their_predictive_density_and_interval():
    rng = np.random.default_rng(1)
    cells = 400
    test = np.column_stack([np.arange(cells), np.arange(cells), rng.normal(3.0, 1.3, cells)])
    draws = 3.0 + 0.5 * rng.standard_normal((2_000, cells))
    told = panel_ratings.of_draws(draws, 1.2, test)
    # A normal with normal noise is normal, with the sum of the variances: 0.25 + 1.44 = 1.69.
    exact = norm(3.0, 1.3)
    assert np.abs(told.log_score - exact.logpdf(test[:, 2])).max() < 0.4
    assert told.log_score.mean() == pytest.approx(exact.logpdf(test[:, 2]).mean(), abs=0.01)
    assert told.interval.mean(1) == pytest.approx(exact.interval(0.9), abs=0.02)
    found = panel_ratings.scores(panel_ratings.Problem(test, test, (cells, cells)), told)
    assert found["coverage"] == pytest.approx(0.9, abs=0.06)  # four standard errors


def test_the_choice_passes_over_what_fails():
    def loss(options):
        if options["rank"] == 1:
            raise ValueError("no such rank")
        return np.nan if options["rank"] == 2 else abs(options["rank"] - 4.2)

    chosen = panel_ratings.best_of(panel_ratings.grid(rank=(1, 2, 3, 4, 5)), loss)
    assert chosen == {"rank": 4}
    with pytest.raises(ValueError, match="no candidate"):
        panel_ratings.best_of(panel_ratings.grid(rank=(1, 2)), loss)


def test_effects_are_those_of_users_and_items():
    user, item = (a.ravel() for a in np.meshgrid(np.arange(5), np.arange(3), indexing="ij"))
    of_user, of_item = np.array([-2, -1, 0, 1, 2]), np.array([-1, 0, 1])
    train = np.column_stack([user, item, 3 + of_user[user] + of_item[item]])
    level, *found = panel_ratings.effects_of(train, (5, 3), damping=0.0)
    assert level == pytest.approx(3.0)
    np.testing.assert_allclose(found[0], of_user, atol=1e-9)
    np.testing.assert_allclose(found[1], of_item, atol=1e-9)


def completed(size, share, seed):
    """A product of rank 2, its observed part, and what message passing makes of that."""
    made = bmfjax.generate_product(size, size, 2, density=0.5, seed=seed)
    seen = np.random.default_rng(seed).random((size, size)) < share
    rows, columns = np.nonzero(seen)
    values = made.clean[rows, columns]
    usage, basis = message_passing(rows, columns, values, seen.shape, 2, 0.3, seed)
    return made.clean, seen, (usage[:, None] & basis).any(-1)


def test_message_passing_completes_a_product_of_which_half_is_seen():
    clean, seen, found = completed(80, 0.5, 0)
    assert (found == clean)[~seen].all()


def test_messages_that_shrink_still_tell_bits():
    # In 32 bits, most of them become zeros and their bits with them: 42 % are wrong, 8 % are ones.
    clean, seen, found = completed(300, 0.01, 0)
    assert (found != clean)[~seen].mean() < 0.38
    assert found.mean() > 0.15


def test_the_publishers_file_of_digits_is_read(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 784), np.uint8)
    header = b"".join(n.to_bytes(4, "big") for n in (2051, 3, 28, 28))
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(header + images.tobytes())
    assert (mnist.from_folder(tmp_path) == images).all()
    path.write_bytes(b"\0" * 40)
    with pytest.raises(bmfjax.InputError, match="no file of images"):
        mnist.from_folder(tmp_path)
    path.unlink()
    with pytest.raises(bmfjax.InputError, match="give the publisher's folder"):
        mnist.from_folder(tmp_path)
