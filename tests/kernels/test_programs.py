"""Functions that are equal, and the programs that they share."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bmfjax
from bmfjax.data import BinaryMatrix
from bmfjax.families import ask
from bmfjax.families.features import signs_of
from bmfjax.kernels.base import init_from
from bmfjax.kernels.boolean.words import packed_data
from bmfjax.kernels.numerics import programs
from bmfjax.kernels.numerics.programs import form_of, made_once, value_of
from bmfjax.kernels.poisson.density import poisson_data
from bmfjax.kernels.ratings.entries import entry_blocks
from bmfjax.kernels.relaxed.data import matrix_data, sparse_matrix_data
from bmfjax.kernels.variants.observed_entries import observed_entries
from bmfjax.variational import sign_blocks


def ours(value):
    """Make a function of the package that encloses a value."""
    return init_from(functools.partial(max, value))


EQUAL = [
    (1, 1), (1.5, 1.5), (np.nan, np.nan), ("a", "a"), ((1, [2.0]), (1, [2.0])),
    ({"a": np.arange(3)}, {"a": np.arange(3)}), (jnp.arange(3), jnp.arange(3)),
    (jax.random.key(1), jax.random.key(1)),
]  # fmt: skip
DIFFERENT = [
    (1, 1.0), (1, True), (0.0, -0.0), ((1,), [1]), (np.arange(3), np.arange(3.0)),
    (np.arange(3), np.arange(1, 4)), (np.zeros(2), np.zeros((2, 1))), ({"a": 1}, {"b": 1}),
    (jnp.arange(3), np.arange(3)), (jax.random.key(1), jax.random.key(2)),
    (lambda: 1, lambda: 1), (jnp.sin, jnp.cos), (jnp.asarray(2.0), jnp.float32(2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("pairs", "equal"), [(EQUAL, True), (DIFFERENT, False)])
def test_functions_are_equal_where_all_is_that_they_enclose(pairs, equal):
    for one, other in pairs:
        assert (value_of(ours(one)) == value_of(ours(other))) is equal, (one, other)
        if equal:
            assert hash(value_of(ours(one))) == hash(value_of(ours(other)))


def test_functions_of_files_beside_the_package_are_equal_to_themselves_alone():
    """Their globals may differ: of a package whose name begins with ours, too."""
    beside = Path(bmfjax.__file__).parent.with_name("bmfjax_study") / "study.py"

    def of_study(shift):
        own = {"SHIFT": shift}
        exec(compile("def shifted(x): return x + SHIFT", beside, "exec"), own)
        return own["shifted"]

    one, other = of_study(1), of_study(2)
    assert value_of(one) == value_of(one) and value_of(one) != value_of(other)


def test_a_function_that_encloses_itself_has_a_value():
    def closure():
        held = []
        found = ours(held)
        held.append(found)
        return found

    assert value_of(closure()) == value_of(closure())


def test_what_is_made_depends_on_the_settings_of_jax_and_on_the_form_of_arguments(x64):
    key = "a key of this test"
    assert made_once(key, list) is made_once(key, list)
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        other = made_once(key, list)
    assert other is not made_once(key, list)
    assert form_of({"a": np.zeros(2), "b": 1}) == form_of({"a": np.ones(2), "b": 1})
    for different in ({"a": np.zeros(3)}, {"a": np.zeros(2, int)}, {"b": np.zeros(2)}):
        assert form_of({"a": np.zeros(2)}) != form_of(different)


def test_programs_that_were_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 2)
    first, second = made_once("first", list), made_once("second", list)
    assert made_once("first", list) is first
    made_once("third", list)
    assert made_once("first", list) is first and made_once("second", list) is not second


def test_the_second_run_of_a_kind_compiles_and_traces_nothing(programs_asked):
    """Another seed, and other data of the same shape."""
    values, told = np.kron(np.eye(2), np.ones((3, 2))), []
    quick = {"sampler": bmfjax.Gibbs(update="gibbs", moves=[]), "num_chains": 2}
    for seed in range(2):
        init = {"usage": np.ones((6, 1)), "basis": np.ones((4, 1)) * seed}
        lengths = {"num_warmup": 3, "num_samples": 9, "seed": seed, "init": init}
        problem = ask(values, 1, **quick, **lengths)
        values = values[::-1]
        programs_asked()
        run = problem.chains().run(problem)
        run.finish()
        told.append(programs_asked())
        assert np.isfinite(run.trace()["log_joint"]).all()
    assert told[0] > 0 and told[1] == 0


def triples(values):
    rows, columns = np.nonzero(~np.isnan(values))
    return rows, columns, values[rows, columns]


@pytest.mark.parametrize(
    "made",
    [
        lambda values: packed_data(BinaryMatrix(values)),
        lambda values: sign_blocks(BinaryMatrix(values)),
        lambda values: signs_of(BinaryMatrix(values)),
        lambda values: observed_entries(*triples(values)),
        lambda values: entry_blocks(*triples(values), values.shape),
        matrix_data,
        lambda values: sparse_matrix_data(sp.csr_array(np.nan_to_num(values)), [[0], [0]]),
        lambda values: poisson_data(values, np.ones(len(values)), dense=True),
    ],
    ids=["words", "sign words", "signs", "lists", "blocks", "numbers", "sparse", "counts"],
)
def test_data_of_any_shape_are_put_on_the_device_without_a_program(made, compilations):
    """JAX compiles one for each array of a new shape that `jnp.asarray` is given."""
    values = (np.random.default_rng(0).random((37, 23)) < 0.4).astype(float)
    values[0, 0] = np.nan
    made(values)
    assert compilations() == 0
