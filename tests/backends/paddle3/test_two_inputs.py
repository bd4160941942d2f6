"""The tests of `tests.test_two_inputs`, on Paddle 3, and which operators broadcast what they may work on."""
from __future__ import annotations

import subprocess
import sys

from tests.backends.paddle3 import broadcasting
from tests.test_two_inputs import test_one_may_have_a_row_where_the_other_has_many, test_ops_may_keep_them_apart
from transpiler.backends.extents import extents_of
from transpiler.backends.paddle3.operators import EACH_ELEMENT_ALONE

__all__ = ['test_one_may_have_a_row_where_the_other_has_many', 'test_ops_may_keep_them_apart']


def test_all_operators_are_known_that_may_work_in_place_on_what_they_broadcast() -> None:
    said = subprocess.run([sys.executable, broadcasting.__file__],
                          check=True,
                          stdout=subprocess.PIPE,
                          text=True)
    found = said.stdout.split()
    assert len(found) > 10 and 'add' in found
    assert [kind for kind in found if _broadcasts(kind) is None] == []
    assert _broadcasts('sum') is None  # over dims, where that of Paddle 2 is of several terms


def _broadcasts(kind: str) -> object:
    return extents_of(kind, (), (), (), (), '_grad', kind in EACH_ELEMENT_ALONE)['broadcasts']
