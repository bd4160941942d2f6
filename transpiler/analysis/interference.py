"""May one value have the memory of another? The rule, with the reason where the answer is no.

Two values of one region may have one storage, one after the other, if neither must have a memory of its own, the first is
dead when the second is written, nobody can look for the first by its name later, and nobody reads the shape of the first
while the second, of another shape, is in its place. Under one name an op may also work in place. Where ops may run side by
side, all that touches the first comes before all that touches the second, in every order (`parallel.py`).
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Hashable, Mapping, Set

from transpiler.analysis.control_flow_graph import ControlFlowGraph
from transpiler.analysis.positions import Span, spans
from transpiler.analysis.timeline import Timeline
from transpiler.ir import MOVE, Graph, Op, RegionKind, Value, ValueKind

_BESIDE_ARRAYS = 'used together with a tensor array or rank table'
_MAY_CARRY_LOD = 'may carry LoD at run time'
# Paddle's executor copies what such an operator and others hand each other, and keeps one copy for each name: a second
# value of that name would be read from the copy of the first.
_COPIED_BY_NAME = 'the executor copies it to another layout or type, and finds that copy by its name'
# All that a way out of a branch ever holds is what the variable outside gets: so it is proved to stand for that.
MOVED = 'gets what a branch has moved out'
# Whose memory is that of slices, too: no other may have it, but it goes with them.
OF_SLICES = 'the buffer of several'
_FRESH = 'its operator works on what it finds under that name'
_SLICE = 'a slice of a buffer'
PASSED_BY_NAME = 'passed between a loop or branch and its gradient by name'
OUTGROWN = 'may be broadcast by an operator that works in place'
# A scalar is worth no sharing, and it is what people fetch without saying so before.
LEAST_BYTES = 256


class Interference:
    """The answers for one graph, as it is.

    Attributes:
        spans: the uses of each value.
        alone: reason by value, for each that must have a memory of its own.
        closed: values after which nobody moves in: they can be found by name. With `skip_grads`, gradients of parameters are
            among them: distributed passes look for those.
    """

    def __init__(self, graph: Graph, skip_grads: bool = True) -> None:
        self._graph = graph
        self.spans = spans(graph)
        self.alone = _alone(graph, self.spans)
        closed = named_by_regions(graph)
        if skip_grads:
            closed |= {v.id for v in graph.values if v.parameter_gradient}
        self.closed = closed

    def unreleased(self) -> Dict[int, str]:
        """Of the reasons of `alone`, those that also forbid to let go of a value after its last use.

        An array copies what is written to it, and a release leaves the LoD where it is, as the runtime's collector does.
        """
        harmless = (_BESIDE_ARRAYS, _MAY_CARRY_LOD, _COPIED_BY_NAME, MOVED, OF_SLICES, OUTGROWN,
                    _FRESH)
        return {value: reason for value, reason in self.alone.items() if reason not in harmless}

    def outlived(self, value: int) -> bool:
        """Whether another may have the memory of `value` once its last use is through."""
        return (value in self.spans and value not in self.alone and value not in self.closed and
                not self.spans[value].kept)

    def why_not_in_place(self, op: Op, operand: int, result: int, at: int) -> str:
        """Why the result of `op`, at position `at`, may not take the place of an operand, under one name; '' if it may.

        `operand` and `result` are positions. The operator works on one variable (`OpFacts.same_name`), not merely on one
        buffer under two names, as the executor's own rule asks (`in_place.py`).
        """
        if (operand, result) not in op.facts.in_place or not op.facts.same_name:
            return 'the operator can not work on one variable'
        source, target = op.operands[operand], op.results[result]
        if source < 0 or target < 0:
            return 'left out'
        if (op.operands.count(source) > 1 or op.results.count(target) > 1 or source in op.results or
                target in op.operands):
            return 'the operator names it twice'
        first, second = self._graph.values[source], self._graph.values[target]
        if not first.region == second.region == op.region:
            return 'of another block'
        if (first.dtype != second.dtype or first.extent is None or first.extent != second.extent or
                first.lod_level != second.lod_level):
            return 'of another type or shape'
        if self.spans[source].last != at or self.spans[target].first != at:
            return 'alive together'
        if not self.outlived(source):
            return self.alone.get(source, 'found by its name later')
        return self.alone.get(target, '')


def interference_of(timeline: Timeline, skip_grads: bool = True) -> Interference:
    """The answers for the graph of `timeline`, which changes no more: the same at all sizes."""
    return timeline.once_for_all_sizes(('interference', skip_grads),
                                       lambda: Interference(timeline.graph, skip_grads))


def shape_forbids(shape: Hashable, read_until: int, other: Hashable, first: int) -> bool:
    """Whether somebody reads the `shape` of a dead value when another of shape `other`, written `first`, is in its place."""
    return first <= read_until and other != shape


def _alone(graph: Graph, found: Mapping[int, Span]) -> Dict[int, str]:
    reasons = {
        value.id: 'known by its name to servers'
        for value in graph.known_by_name()
        if not value.known_outside
    }
    for value in graph.values:
        reason = reasons.get(value.id) or _own_reason(value)
        if reason:
            reasons[value.id] = reason
    for reason, values in (
        ('used by an operator whose memory rules are not known', _opaque(graph)),
        (_BESIDE_ARRAYS, _beside_arrays(graph)),
        (PASSED_BY_NAME, _linked(graph)),
        (MOVED, _moved(graph)),
        (_MAY_CARRY_LOD, carry_lod(graph)),
        ('carried from one trip to the next', _carried(graph)),
        ('state that an operator carries on', _states(graph)),
        (_COPIED_BY_NAME, _converted(graph)),
        (OF_SLICES, graph.buffers()),
        (_FRESH, _fresh(graph)),
        (OUTGROWN, _outgrown(graph)),
    ):
        for value in values:
            reasons.setdefault(value, reason)
    for value, span in found.items():
        if not span.defined:
            reasons.setdefault(value, 'not written first by a plain op of its own block')
    return reasons


def named_by_regions(graph: Graph) -> FrozenSet[int]:
    """Values that an op with regions names: the runtime finds their gradients by that name."""
    return frozenset(v for op in graph.ops if op.regions for v in op.reads() + op.writes())


def _fresh(graph: Graph) -> FrozenSet[int]:
    """What operators go on with, as they find it."""
    return frozenset(op.results[i] for op in graph.walk() for i in op.facts.fresh) - {-1}


def _outgrown(graph: Graph) -> FrozenSet[int]:
    """Operands that may be smaller than the result which a kernel makes in their memory, if that has room: it has no more than what they
    need as long as it is their own."""
    broadcast = ((op, pair) for op in graph.walk() if op.facts.broadcasts is not None
                 for pair in op.facts.in_place)
    return frozenset(op.operands[i]
                     for op, (i, j) in broadcast
                     if min(op.operands[i], op.results[j]) >= 0 and
                     graph.values[op.operands[i]].extent != graph.values[op.results[j]].extent)


def _own_reason(value: Value) -> str:
    if value.persistable:
        return 'persistable'
    if value.fed:
        return 'fed from outside'
    if value.fetched:
        return 'fetched'
    if value.skipped:
        return 'in skip_opt_set'
    if value.kind is not ValueKind.DENSE:
        return value.kind.value
    if value.size is None:
        return 'unknown size'
    if value.buffer not in (-1, value.id):
        return _SLICE
    if value.size.is_constant and value.size.evaluate({}) < LEAST_BYTES:
        return 'too small to matter'
    return ''


def _opaque(graph: Graph) -> Set[int]:
    found: Set[int] = set()
    for op in graph.ops:
        inside_opaque = any(graph.regions[r].kind is RegionKind.OPAQUE for r in op.regions)
        if not op.facts.known or inside_opaque or op.facts.side_effect or op.facts.asynchronous:
            found.update(op.reads() + op.writes())
        if inside_opaque:
            for inner in graph.inside(op):
                found.update(inner.reads() + inner.writes())
    return found


def _beside_arrays(graph: Graph) -> Set[int]:
    arrays = {v.id for v in graph.values if v.kind in (ValueKind.ARRAY, ValueKind.OTHER)}
    named = (op.reads() + op.writes() for op in graph.ops if arrays and not op.regions)
    return set().union(*(values for values in named if not arrays.isdisjoint(values)))


def _converted(graph: Graph) -> Set[int]:
    return {v for op in graph.ops if op.facts.converts for v in op.reads() + op.writes()}


def _moved(graph: Graph) -> Set[int]:
    return {v for op in graph.ops if op.kind == MOVE for v in op.reads() + op.writes()}


def _linked(graph: Graph) -> Set[int]:
    arguments = {inner for r in graph.regions for _, inner in r.arguments}
    return arguments | {inner for r in graph.regions for inner, _ in r.results}


def _carried(graph: Graph) -> FrozenSet[int]:
    return ControlFlowGraph(graph).carried() if len(graph.regions) > 1 else frozenset()


def _states(graph: Graph) -> Set[int]:
    """Values that an operator reads and writes on: a batch norm's statistics, and what stands in for them in a clone."""
    return {op.operands[i] for op in graph.ops for i, _ in op.facts.updates}


def carry_lod(graph: Graph) -> Set[int]:
    """Values that LoD can reach: everything computed, at any remove, from a LoD tensor."""
    tainted = {v.id for v in graph.values if v.lod_level > 0}
    if not tainted:
        return tainted
    before = -1
    while len(tainted) > before:
        before = len(tainted)
        for op in graph.walk():
            if tainted.intersection(op.reads()):
                tainted.update(op.writes())
        for region in graph.regions:
            for source, target in region.arguments + region.results:
                if source in tainted:
                    tainted.add(target)
    return tainted
