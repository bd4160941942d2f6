"""When the blocks of a program run, as far as the logic that Paddle's `cond`, `case` and `Switch` write shows it."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Mapping

from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.registry import first_positions
from transpiler.ir import RELEASE, Graph, Op, When

_BRANCHES = ('conditional_block', 'conditional_block_infer', 'conditional_block_grad')


def note_conditions(graph: Graph, descs: Mapping[int, framework_pb2.OpDesc]) -> None:
    """Sets `when` of each branch of `graph`, whose ops are those of `descs`.

    A value that is written once, before the branch and in its own region, is what it was for all who read it in one trip.
    """
    branches = [op for op in graph.ops if op.kind in _BRANCHES and op.id in descs]
    if not branches:
        return
    writers = Counter(v for op in graph.walk() if op.kind != RELEASE for v in op.writes())
    known: Dict[int, When] = {
        value.id: frozenset({(value.id, True)})
        for value in graph.values
        if value.fed and not writers[value.id]
    }
    for op in graph.walk():
        if op.kind in _BRANCHES and op.id in descs:
            when = known.get(_condition(op, descs[op.id]), frozenset())
            for region in op.regions:
                graph.regions[region].when = when
        for value in op.writes() if op.kind != RELEASE and not op.regions else ():
            if writers[value] == 1 and graph.values[value].region == op.region:
                known[value] = _meaning(op, value, known)


def _condition(op: Op, desc: framework_pb2.OpDesc) -> int:
    """The value that decides whether a branch runs; -1 if that is not one boolean."""
    is_scalar = any(a.b for a in desc.attrs if a.name == 'is_scalar_condition')
    position = first_positions(desc.inputs).get('Cond')
    return op.operands[position] if is_scalar and position is not None else -1


def _meaning(op: Op, value: int, known: Mapping[int, When]) -> When:
    """What is so where `value`, the result of `op`, is true."""
    operands = [known.get(v, frozenset()) for v in op.operands]
    if op.kind == 'logical_and' and all(operands):
        return frozenset().union(*operands)
    if op.kind == 'logical_not' and [len(each) for each in operands] == [1]:
        (decided, truth), = operands[0]
        return frozenset({(decided, not truth)})
    return frozenset({(value, True)})
