"""What is packed comes back equal, with the types that it had, and holds none of the objects that it was made of."""
from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any, List

import pytest

from tests.graphs import generated
from transpiler.ir import Op, Size, Value
from transpiler.ir.columns import Columns


@dataclass
class Row:
    kind: str
    found: Any


def _again(found: Any) -> Any:
    return Columns(Row('', found)).again().found


def _typed(thing: Any) -> Any:
    """With the types, which `==` does not tell apart: 1, 1.0 and True."""
    if isinstance(thing, (list, tuple)):
        return type(thing), [_typed(each) for each in thing]
    if isinstance(thing, dict):
        return [_typed(each) for each in thing.items()]
    return type(thing), thing


@pytest.mark.parametrize('found', [
    None, 0, -1, 2**62, 2**63, -2**63, 2**100, True, 0.5, float('inf'), '', 'a', 'a\0b', 'ä',
    [], [[]], [1, None], [1, 1.0, True], [True, False], ['a', 'b'], ['a', 'b\0'], ['', ''],
    (), ((1, 2), ()), [(1, None), (2, 3)], [[1], (2,)], {}, {'a': [1], 'b': [2, 3]},
    [{1: 'a'}, {}], {'a': {'b': None}}, Size.dim('N'), [Size.of(3), None, Size.of(3)],
    [Row('a', 1), Row('b', (2,))], [Row('a', Row('b', 1)), None], Row, b'bytes',
    list(range(200)), [127] * 63 + [-128] * 63, [sign * 2**n + more for n in (0, 7, 15, 31, 62) for sign in (1, -1) for more in (-1, 0, 1)] * 9
], ids=lambda found: repr(found)[:40])  # yapf: disable
def test_what_is_packed_comes_back_as_it_was(found: Any) -> None:
    assert _typed(_again(found)) == _typed(found)


def test_sets_come_back() -> None:
    for found in ({1, 2}, frozenset({'a'}), [set(), {3}]):
        assert _again(found) == found and type(_again(found)) is type(found)


def test_graphs_come_back_equal_in_other_objects_each_time() -> None:
    for seed in range(20):
        graph = generated(seed)
        stored = Columns(graph)
        first, second = stored.again(), stored.again()
        assert first == graph and second == graph
        assert not {id(v) for v in first.values} & {id(v) for v in (*graph.values, *second.values)}
        assert [op.reads() for op in first.ops] == [op.reads() for op in graph.ops]


def test_no_value_and_no_op_of_a_packed_graph_is_kept() -> None:
    graph = generated(1)
    assert graph.values and graph.ops
    stored = Columns(graph)
    reached: List[Any] = [stored]
    seen = set()
    while reached:
        thing = reached.pop()
        if id(thing) not in seen and not isinstance(thing, type):
            seen.add(id(thing))
            assert not isinstance(thing, (Value, Op))
            reached += gc.get_referents(thing)


def test_fields_can_be_left_out_and_given_again() -> None:
    stored = Columns(Row('a', object()), without=('found',))
    assert stored.again(found=3) == Row('a', 3)
