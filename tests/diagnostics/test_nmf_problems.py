"""Problems whose solutions are known: they are solutions, and as far apart as they should be."""

import numpy as np
import pytest

from bmfjax.data import InputError
from bmfjax.diagnostics import embedded, laurberg, pairwise_distances, solution_line

PROBLEMS = {"one": laurberg(0.3), "two": laurberg(0.5), "line": solution_line()}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("large", [False, True])
def test_solutions_are_nonnegative_and_exact(name, large):
    problem = embedded(PROBLEMS[name]) if large else PROBLEMS[name]
    for t in (0.0, 0.2, 0.7, 1.0):
        usage, basis = problem.solution(t)
        assert usage.shape[1] == problem.rank and (usage >= 0).all() and (basis >= 0).all()
        np.testing.assert_allclose(usage @ basis.T, problem.exact, atol=1e-9)


def angle(problem):
    first, second = (problem.solution(t)[0] for t in (0.0, 1.0))
    return pairwise_distances(first[None], second[None])[0, 0]


def test_angles_between_solutions():
    assert angle(PROBLEMS["one"]) < 1e-5  # the arc cosine of nearly one
    assert angle(PROBLEMS["two"]) == pytest.approx(36.87, abs=0.01)
    assert angle(PROBLEMS["line"]) == pytest.approx(45.0)
    # Those of the paper's tables 7: 10.8 and 21.4 degrees.
    assert angle(embedded(PROBLEMS["two"])) == pytest.approx(10.8, abs=0.5)
    assert angle(embedded(PROBLEMS["line"])) == pytest.approx(21.4, abs=0.7)


def test_the_matrix_of_equation_8_and_the_row_that_is_printed_wrong():
    line = solution_line()
    assert line.exact[:3].tolist() == np.repeat(np.eye(3), 3, axis=1).tolist()
    assert (line.exact[6] == 1).all()
    usage, basis = line.solution(0.5)
    usage = usage.copy()
    usage[5] = [0, 1, 0, 0, 0, 1]  # as in the paper
    assert not np.allclose(usage @ basis.T, line.exact)


def test_other_matrices_of_laurberg_are_refused():
    with pytest.raises(InputError, match=r"0\.3 \(one\) and 0\.5 \(two\)"):
        laurberg(0.4)
