"""Which operators take rows for others of which there are 2**32 more."""
from __future__ import annotations

from typing import Dict, Tuple

from paddle.base.framework import OpProtoHolder

from tests.wild.children import in_child
from transpiler.backends.paddle2 import narrow_dims

_SECONDS = 120.0
_MOST = 2**31 - 1


def _asked_of_all() -> Dict[str, Tuple[bool, bool]]:
    kinds = filter(narrow_dims.is_of_two, OpProtoHolder.instance().op_proto_map)
    return {k: (narrow_dims.accepts(k, 7), narrow_dims.wraps(k)) for k in kinds}


def test_no_operator_ends_the_process_when_it_is_asked() -> None:
    ended = in_child(_asked_of_all, _SECONDS)
    assert not ended.failure, ended.failure
    taken = {kind for kind, (takes, _) in ended.value.items() if takes}
    wrapping = {kind for kind, (_, wraps) in ended.value.items() if wraps}
    assert {'elementwise_add', 'less_than', 'logical_and', 'grad_add'} <= wrapping
    assert {'matmul_v2', 'mul', 'minus', 'cross'} <= taken - wrapping


def test_what_stands_for_dims_has_room_and_is_nothing_else() -> None:
    dims = (3, _MOST, 2 * _MOST, 2**60, _MOST - 1000, 2 * _MOST)
    first, second = narrow_dims.stand_ins(dims)
    assert first.keys() == second.keys() == {2 * _MOST, 2**60}
    numbers = [*first.values(), *second.values(), *(d for d in {*dims} if d <= _MOST)]
    assert max(numbers) <= _MOST and len({*numbers}) == len(numbers) == 7
    assert not narrow_dims.stand_ins((3, -1, _MOST))
    replaced = narrow_dims.replaced(dims, first)
    assert max(replaced) == _MOST and narrow_dims.replaced(replaced,
                                                           narrow_dims.back(first)) == dims
