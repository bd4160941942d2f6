"""The gradients of a product one by one: for each, only one of the operands is read.

The gradient of x * y with regard to x reads y, that with regard to y reads x. An op that makes both has all three, and both
results, at once; of two ops that make one each, the second finds the operand gone that only the first has read.

Needs: an order that is held, and releases. Keeps: the bytes, as the kernel makes each by itself (`OpFacts.separate`). Changes:
ops of the main block that are among those that touch most become two. `let_go_of_unread` then adds the RELEASE ops: a runtime keeps
for an op what it names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, List, Set, Tuple

from transpiler.analysis.interference import Interference
from transpiler.analysis.positions import Span
from transpiler.ir import Graph, Op, OpFacts, ValueKind
from transpiler.passes.cloning import Cloner
from transpiler.passes.context import PassContext
from transpiler.passes.releases.unread import release_unread

_MAIN = 0
# Of the most that one op touches. Smaller ones are seldom at the peak, and an op more takes time.
_LARGE = 1 / 4


def split_products(graph: Graph, context: PassContext) -> Graph:
    """Makes the gradients of large products one by one, in the order that needs less."""
    if not context.parallel and any(op.facts.separate for op in graph.region_ops(_MAIN)):
        _Splitter(graph, context).run()
    return graph


def let_go_of_unread(graph: Graph, context: PassContext) -> Graph:
    """Releases what such an op names and does not read, where nothing reads it any more.

    Needs: releases. Keeps: the order of ops. Changes: adds SHARE and RELEASE ops to the main region.
    """
    if any(op.facts.unread_alone for op in graph.region_ops(_MAIN)):
        release_unread(graph, context.timeline(graph))
    return graph


class _Splitter:

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self._graph = graph
        self._dims = context.dims
        self._cloner = Cloner(graph, _MAIN)
        rules: Interference = context.interference(graph)
        self._spans: Dict[int, Span] = rules.spans
        self._held: FrozenSet[int] = frozenset(rules.unreleased())

    def run(self) -> None:
        region = self._graph.regions[_MAIN]
        large = _LARGE * max(
            self._bytes(op.reads() + op.writes()) for op in self._graph.region_ops(_MAIN))
        ops: List[int] = []
        for at, op in enumerate(list(self._graph.region_ops(_MAIN))):
            if self._may_be_split(op) and self._bytes(op.reads() + op.writes()) >= large:
                ops.append(self._split(op, at))
            ops.append(op.id)
        region.ops = ops

    def _may_be_split(self, op: Op) -> bool:
        facts, made = op.facts, {i for i, v in enumerate(op.results) if v >= 0}
        if not self._storages(op.reads()).isdisjoint(self._storages(op.writes())):
            return False  # what the first part makes would be read by the second
        return (
            len(facts.separate) == 2 and op.id == op.origin and not facts.ordered and
            not facts.converts and {r for r, _ in facts.separate} == made and
            all(self._graph.values[v].kind is ValueKind.DENSE for v in op.reads() + op.writes()))

    def _storages(self, values: Iterable[int]) -> Set[int]:
        return {self._graph.values[v].storage for v in values}

    def _split(self, op: Op, at: int) -> int:
        """Id of the op that makes one of the results; `op` makes the other, behind it."""
        first, second = min((self._results(op), self._results(op)[::-1]),
                            key=lambda order: self._peak(op, at, *order))
        added = self._cloner.op(op, op.operands, self._only(op, first))
        self._graph.ops[added] = replace(self._graph.ops[added],
                                         facts=self._facts(op, first),
                                         backward=op.backward)
        self._graph.ops[op.id] = replace(op,
                                         results=self._only(op, second),
                                         facts=self._facts(op, second))
        return added

    def _results(self, op: Op) -> Tuple[int, int]:
        (first, _), (second, _) = op.facts.separate
        return first, second

    def _only(self, op: Op, result: int) -> Tuple[int, ...]:
        return tuple(v if i == result else -1 for i, v in enumerate(op.results))

    def _facts(self, op: Op, result: int) -> OpFacts:
        """Of the op that makes `result` alone. What cannot be released is there for it, as if it read it."""
        held = (p for p, v in enumerate(op.operands) if v in self._held)
        return op.facts.alone(result, frozenset(held))

    def _peak(self, op: Op, at: int, first: int, second: int) -> int:
        """Bytes of what is there of the op, at most, if `first` is made first."""
        unread = {op.operands[p] for p in self._facts(op, second).unread_alone}
        gone = {v for v in unread if self._spans[v].last == at}
        made = [op.results[first]]
        return max(self._bytes([*op.reads(), *made]),
                   self._bytes([v for v in op.reads() if v not in gone] + [*op.writes()]))

    def _bytes(self, values: Iterable[int]) -> int:
        facts = (self._graph.values[v] for v in set(values))
        return sum(
            v.bound.evaluate(self._dims)
            for v in facts
            if v.bound is not None and not v.persistable)
