"""The shipped matrices: the catalogue says what the files hold."""

from importlib.resources import files

import numpy as np
import pytest

from bmfjax.data import datasets, load, load_truth

NAMES = [
    "house-votes",
    "zoo",
    "mushroom",
    "bob-ross",
    "davis",
    "calculator-digits",
    "calculator-digits-noisy",
]


def test_all_are_listed_and_nothing_else_lies_there():
    assert [dataset.name for dataset in datasets()] == NAMES
    folder = files("bmfjax.data.datasets")
    assert {f.name for f in folder.iterdir() if f.name.endswith(".npz")} == {
        f"{name}.npz" for name in NAMES
    }
    terms = (folder / "LICENCES.md").read_text(encoding="utf-8")
    assert all(name in terms for name in NAMES)


@pytest.mark.parametrize("dataset", datasets(), ids=lambda dataset: dataset.name)
def test_the_catalogue_tells_the_truth(dataset):
    matrix = load(dataset.name)
    assert matrix.name == dataset.name
    assert matrix.shape == dataset.shape
    assert (matrix.num_ones, matrix.num_missing) == (dataset.num_ones, dataset.num_missing)
    assert matrix.density == pytest.approx(dataset.density)
    assert (matrix.row_labels is None) == (dataset.labels == "")
    assert dataset.licence and dataset.citation and dataset.source and dataset.authors


def test_known_facts_about_the_matrices():
    votes = load("house-votes")
    assert sorted(set(votes.row_labels)) == ["democrat", "republican"]
    assert votes.row_labels.count("democrat") == 267
    assert votes.column_names[0] == "handicapped-infants"
    # One member voted on none of the sixteen.
    assert len(votes.empty_rows) == 1 and len(votes.empty_columns) == 0
    zoo = load("zoo")
    legs = [j for j, name in enumerate(zoo.column_names) if name.startswith("legs=")]
    assert (zoo.dense()[:, legs].sum(axis=1) == 1).all() and len(set(zoo.row_labels)) == 7
    mushroom = load("mushroom")
    assert (mushroom.dense().sum(axis=1) == 22).all()  # one value of each attribute
    assert mushroom.row_labels.count("edible") == 4208
    assert load("davis").row_names[0] == "Evelyn Jefferson"


def test_the_digits_are_the_product_of_their_factors():
    digits, truth = load("calculator-digits"), load_truth("calculator-digits")
    np.testing.assert_array_equal(digits.dense(bool), truth.clean)
    assert truth.usage.sum(axis=1).tolist()[8] == 7  # the eight lights every segment
    noisy, copies = load("calculator-digits-noisy"), load_truth("calculator-digits-noisy")
    np.testing.assert_array_equal(copies.clean, truth.clean[np.array(noisy.row_labels, int)])
    flips = noisy.dense(bool) != copies.clean
    assert abs(flips.mean() - 0.1) < 5 * np.sqrt(0.09 / flips.size)
