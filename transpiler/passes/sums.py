"""Adds up as soon as two terms are there: a sum of many values does not keep all of them until the last one is made.

Needs: nothing. Keeps: all other ops and their order; the bytes, since the operator adds from left to right and so do its
parts. Changes: sums of three and more values in the main block become sums of two, each right after its new term. A weight
or a memory that an unrolled loop reads at each step has such a sum for a gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

from transpiler.analysis.accesses import Accesses
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, Op, ValueKind
from transpiler.passes.cloning import Cloner
from transpiler.passes.context import PassContext

_MAIN = 0
_FEWEST_TERMS = 3
# A sum whose terms make up a smaller share of the peak stays as it is.
_WORTH_IT = 0.005


def sum_early(graph: Graph, context: PassContext) -> Graph:
    """Splits every sum of the main block that can be split."""
    if context.parallel:
        return graph
    peak = context.once('timeline',
                        lambda: Timeline(graph, context.runtime, context.dims)).peak_bytes
    return _Splitter(graph, context, peak * _WORTH_IT).run()


class _Splitter:

    def __init__(self, graph: Graph, context: PassContext, least: float) -> None:
        self._graph = graph
        self._dims = context.dims
        self._least = least
        self._cloner = Cloner(graph, _MAIN, '@SUM')
        self._position = {op: at for at, op in enumerate(graph.regions[_MAIN].ops)}
        self._writers: Dict[int, List[int]] = {}  # storage -> positions of the ops that write it
        accesses = Accesses(graph)
        for op in graph.region_ops(_MAIN):
            for storage in accesses.of(op)[1]:
                self._writers.setdefault(storage, []).append(self._position[op.id])
        self._closed = graph.touched_elsewhere()

    def run(self) -> Graph:
        following: Dict[int, List[int]] = {}  # position -> sums that go right after it
        for op in list(self._graph.region_ops(_MAIN)):
            if self._may_be_split(op):
                self._split(op, following)
        ops: List[int] = []
        for op, at in self._position.items():
            ops.append(op)
            ops.extend(following.get(at, ()))
        self._graph.regions[_MAIN].ops = ops
        return self._graph

    def _may_be_split(self, op: Op) -> bool:
        return (op.facts.left_fold and len(op.operands) >= _FEWEST_TERMS and op.id == op.origin and
                self._spared(op) >= self._least and len(set(op.operands)) == len(op.operands) and
                all(self._is_made_once(v, self._position[op.id]) for v in op.operands) and
                op.results[0] not in op.operands and self._is_plain(op.results[0]))

    def _spared(self, op: Op) -> int:
        """Bytes of the terms that need not be there at the end."""
        size = self._graph.values[op.results[0]].size
        return (len(op.operands) - 2) * size.evaluate(self._dims) if size is not None else 0

    def _is_made_once(self, value: int, before: int) -> bool:
        """Whether one op of the main block writes `value`, and does so before position `before`."""
        writers = self._writers.get(value, [])
        return self._is_plain(value) and len(writers) == 1 and writers[0] < before

    def _is_plain(self, value: int) -> bool:
        if value < 0 or value in self._closed:
            return False
        facts = self._graph.values[value]
        return (facts.kind is ValueKind.DENSE and facts.region == _MAIN and
                facts.storage == value and not facts.fed)

    def _split(self, op: Op, following: Dict[int, List[int]]) -> None:
        terms = op.operands
        total, ready = terms[0], self._writers[terms[0]][0]
        for term in terms[1:-1]:
            ready = max(ready, self._writers[term][0])
            result = self._cloner.value(op.results[0])
            following.setdefault(ready, []).append(self._cloner.op(op, (total, term), (result,)))
            total = result
        self._graph.ops[op.id] = replace(op, operands=(total, terms[-1]))
