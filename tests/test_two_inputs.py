"""Two inputs of a program may have other numbers of rows, also where it leaves open how many and names both alike."""
from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.two_inputs import APART, BROADCAST, OPTIONS, given_off

ROWS = [(1, 64), (64, 1)]


@pytest.mark.parametrize('options', OPTIONS, ids=str)
@pytest.mark.parametrize('rows', ROWS, ids=str)
@pytest.mark.parametrize('name', BROADCAST)
def test_one_may_have_a_row_where_the_other_has_many(name: str, rows: Any,
                                                     options: Dict[str, Any]) -> None:
    plain = given_off(BROADCAST[name], rows)
    assert given_off(BROADCAST[name], rows) == plain
    assert given_off(BROADCAST[name], rows, options) == plain


@pytest.mark.parametrize('options', OPTIONS, ids=str)
@pytest.mark.parametrize('rows', [(3, 64), (64, 3)], ids=str)
def test_ops_may_keep_them_apart(rows: Any, options: Dict[str, Any]) -> None:
    assert given_off(APART['apart'], rows, options) == given_off(APART['apart'], rows)
