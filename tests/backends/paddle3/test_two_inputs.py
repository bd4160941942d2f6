"""The tests of `tests.test_two_inputs`, on Paddle 3."""
from __future__ import annotations

from tests.test_two_inputs import test_one_may_have_a_row_where_the_other_has_many, test_ops_may_keep_them_apart

__all__ = ['test_one_may_have_a_row_where_the_other_has_many', 'test_ops_may_keep_them_apart']
