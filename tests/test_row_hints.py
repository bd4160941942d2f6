"""Rows of inputs, as the caller gives them."""

from __future__ import annotations

from typing import Any

import pytest

from transpiler.arguments import dim_values, row_hints
from transpiler.errors import InvalidArgumentError

SYMBOLS = ('N', 'L(words)', 'R(table)', 'T1')


def test_rows_by_name_go_to_the_dims_of_their_inputs_and_steps_get_their_share() -> None:
    dims, assumed = dim_values(SYMBOLS, {'words': 120, 'label': 8}, 30)
    assert dims == {'N': 8, 'L(words)': 120, 'R(table)': 4, 'T1': 30} and not assumed


def test_one_number_is_the_batch_alone() -> None:
    dims, assumed = dim_values(SYMBOLS, 8, 30)
    assert dims['N'] == 8 and assumed == ['L(words)']


def test_other_open_dims_go_by_input_and_dim_and_are_no_rows() -> None:
    dims, assumed = dim_values(('N', 'ids[1]', 'image[2]'), {'ids[1]': 40, 'ids': 8}, None)
    assert dims['N'] == 8 and dims['ids[1]'] == 40 and assumed == ['image[2]']
    dims, assumed = dim_values(('N', 'ids[1]'), {'ids[1]': 40}, None)
    assert dims['ids[1]'] == 40 and assumed == ['N']


def test_rows_of_their_own_that_no_hint_names_are_assumed_as_the_batch() -> None:
    symbols = ('N', 'N(candidates)')
    dims, assumed = dim_values(symbols, {'queries': 32}, None)
    assert dims == {'N': 32, 'N(candidates)': 32} and assumed == ['N(candidates)']
    assert dim_values(symbols, {'queries': 32}, None, otherwise=5) == (dims, assumed)
    dims, assumed = dim_values(symbols, {'queries': 32, 'candidates': 2048}, None)
    assert dims == {'N': 32, 'N(candidates)': 2048} and not assumed
    assert dim_values(symbols, 8, None) == ({'N': 8, 'N(candidates)': 8}, [])


@pytest.mark.parametrize('given', [{'x': 0}, {'x': 'many'}, {3: 4}, -1, 2.5])
def test_rows_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        row_hints(given)
