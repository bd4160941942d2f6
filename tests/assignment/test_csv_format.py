from __future__ import annotations

import io

import numpy as np
import pytest

from transpiler.assignment import CsvFormatError, pack, read_problem, write_solution

GOOD = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,5,9,5\n"


def test_upper_is_exclusive():
    problem = read_problem(io.StringIO(GOOD))
    assert problem.ranges.tolist() == [[0, 2], [3, 8], [5, 8]]
    assert pack(problem.ranges, problem.sizes).height == 9


def test_the_solution_is_the_input_with_an_offset_column():
    problem = read_problem(io.StringIO(GOOD))
    out = io.StringIO()
    write_solution(problem, np.array([0, 5, 0]), out)
    assert out.getvalue() == "id,lower,upper,size,offset\nb1,0,3,4,0\nb2,3,9,4,5\nb3,5,9,5,0\n"
    again = io.StringIO()
    write_solution(read_problem(io.StringIO(out.getvalue())), np.array([0, 5, 0]), again)
    assert again.getvalue() == out.getvalue()


def test_columns_may_come_in_any_order_and_bring_others():
    problem = read_problem(io.StringIO("size,name,id,upper,lower\n4,w,b1,3,0\n"))
    assert problem.ranges.tolist() == [[0, 2]] and problem.sizes.tolist() == [4]


def test_a_file_without_buffers_is_a_problem_without_values():
    assert read_problem(io.StringIO("id,lower,upper,size\n")).ranges.shape == (0, 2)


@pytest.mark.parametrize("text, said", [
    ("", "line 1: no column id, lower, upper, size"),
    ("id,lower,size\n", "no column upper"),
    ("id,lower,upper,size,size\n", "repeated"),
    ("id,lower,upper,size\na,1,2\n", "line 2: 3 cells under 4 columns"),
    ("id,lower,upper,size\na,x,2,3\n", "line 2: lower is not a whole number: 'x'"),
    ("id,lower,upper,size\na,0,2,3.5\n", "line 2: size is not a whole number"),
    ("id,lower,upper,size\na,2,2,3\n", "line 2: upper 2 is not above lower 2"),
    ("id,lower,upper,size\na,0,2,-3\n", "line 2: size -3 is negative"),
    ("id,lower,upper,size\na,0,2,99999999999999999999\n", "line 2: size is out of range"),
    ("id,lower,upper,size\na,0,2,3\na,0,2,3\n", "line 3: id 'a' is already on line 2"),
    ("id,lower,upper,size,gaps\na,0,9,3,2-4\n", "line 2: column gaps is not supported"),
    ("id,lower,upper,size\n\"a,0,2,3\n", "not a CSV file"),
])
def test_a_malformed_file_gives_one_clear_error(text, said):
    with pytest.raises(CsvFormatError, match=said):
        read_problem(io.StringIO(text))
