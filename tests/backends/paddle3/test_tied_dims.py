"""Operators are asked which dims they take, in the process of the user."""
from __future__ import annotations

import ast
import itertools
from dataclasses import replace
from typing import Any, List, Set

from tests.backends.paddle3 import wild
from tests.wild.children import in_child
from tests.wild.recipes import CATALOGUE, recipe
from transpiler.backends.paddle3 import tied_dims
from transpiler.backends.paddle3.carried import walk

_SECONDS = 120.0


def _asked_of_all() -> List[str]:
    """Operators of the catalogue, each asked to take open dims, then all dims, of which no two are alike."""
    found: Set[str] = set()
    for name in CATALOGUE:
        drawn = replace(recipe(0), layers=(name,), rows=(4,), fixed=False, blocks=0)
        for op in walk(wild.build(drawn).main.global_block()):
            if tied_dims.can_be_asked(op) and all(map(_is_open, op.operands_source())):
                found.add(op.name())
                for keeps in (True, False):
                    tied_dims.accepts(op, _unlike(op, keeps))
    return sorted(found)


def _is_open(value: Any) -> bool:
    if not value.initialized():
        return True
    return bool(value.is_dense_tensor_type()) and min(value.shape, default=0) < 0


def _unlike(op: Any, keeps: bool) -> Any:
    numbers = itertools.count(1009)
    return [[ast.Constant(d if keeps and d >= 0 else next(numbers))
             for d in value.shape] if value.initialized() else None
            for value in op.operands_source()]


def test_no_operator_ends_the_process_whatever_dims_it_is_asked_for() -> None:
    ended = in_child(_asked_of_all, _SECONDS)
    assert not ended.failure, ended.failure
    assert len(ended.value) > 50
    assert {'pd_op.cross_entropy_with_softmax', 'pd_op.matmul', 'pd_op.where'} <= {*ended.value}
