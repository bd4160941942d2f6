"""Loop-invariants: values that a training loop copies into every trip's scope, and need not.

Needs: nothing. Keeps: the order of ops. Changes: drops (outer, copy) arguments of loop regions, lets the gradient read
the outer value instead, and adds an UNCOPIED op to the body for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List, Mapping, Set

from transpiler.analysis.cost import CostModel
from transpiler.analysis.writers import Writers
from transpiler.ir import UNCOPIED, Graph, OpFacts, Region, RegionKind
from transpiler.passes.context import PassContext


def drop_invariant_copies(graph: Graph, context: PassContext) -> Graph:
    """Stops the copy of every input that stays what it is until the gradient has run.

    Paddle's while op copies each input that is no parameter into each trip's scope, unless some op of the body names it
    as input and output. A sequence that is read step by step is so copied as often as it is long.
    """
    writers = Writers(graph)
    for region in _training_loops(graph):  # outer loops come first
        for outer, copy in region.arguments:
            written = _written_in(writers, graph.values[copy].storage, region)
            if not written and is_stable(graph, writers, outer, region):
                _drop(graph, region, outer, copy, seen_by_gradient(graph, outer, region))
                context.saved_seconds += copying_seconds(graph, region, outer, context.cost,
                                                         context.dims)
    return graph


def drop_unread_copies(graph: Graph, context: PassContext) -> Graph:
    """Stops the copy of every input whose copy nobody reads.

    Comes after recompute, which may read more of them.
    """
    for region in _training_loops(graph):
        read = _read(graph)
        for outer, copy in region.arguments:
            if copy not in read:
                _drop(graph, region, outer, copy, outer)
    return graph


def copying_seconds(graph: Graph, loop: Region, value: int, cost: CostModel,
                    dims: Mapping[str, int]) -> float:
    """Time that the copies of `value` take in a step, in all trips of all loops around."""
    size = graph.values[value].size
    if size is None:
        return 0.0
    copied = size * graph.runs_of(loop.id)
    return 2 * copied.evaluate(dims) / cost.bytes_per_second


def _training_loops(graph: Graph) -> List[Region]:
    return [r for r in graph.regions if r.kind is RegionKind.LOOP and r.keeps_scopes]


def _read(graph: Graph) -> Set[int]:
    """Values that some op reads, or that a region is handed or hands out."""
    found = {value for op in graph.ops for value in op.reads()}
    for region in graph.regions:
        found.update(given for given, _ in (*region.arguments, *region.results))
    return found


def is_stable(graph: Graph, writers: Writers, value: int, loop: Region) -> bool:
    """Whether the loop's gradient finds in `value` what the loop did, in each trip of all loops around.

    Induction outwards: nobody in the loop writes it, nor in an earlier trip of the gradient; then the scope around the
    loop either owns the value, and nobody there writes it after the loop (before its gradient), or holds a copy of it,
    or itself runs in a region for which the same is true.
    """
    storage = graph.values[value].storage
    while not _written_in(writers, storage, loop):
        around = graph.regions[loop.parent]
        if graph.values[value].region == around.id:
            start = writers.positions.of[loop.op]
            end = _gradient_position(graph, writers, loop, around)
            return not writers.written(storage, around.ops[start + 1:end])
        if storage not in writers.inside(around.id) and any(
                outer == value for outer, _ in around.arguments):
            return True
        loop = around
    return False


def _written_in(writers: Writers, storage: int, loop: Region) -> bool:
    """Whether an op of the loop, or of its gradient, writes `storage`."""
    both = [loop, *writers.gradients(loop.id)]
    return any(storage in writers.inside(region.id) for region in both)


def _gradient_position(graph: Graph, writers: Writers, loop: Region, around: Region) -> int:
    """Where in `around` the gradient runs; its end if it runs elsewhere, or nowhere."""
    for region in writers.gradients(loop.id):
        if graph.ops[region.op].region == around.id:
            return writers.positions.of[region.op]
    return len(around.ops)


def seen_by_gradient(graph: Graph, value: int, loop: Region) -> int:
    """What the name of `value` stands for in the gradient once `loop` has no copy: the copy of the nearest loop
    around that still makes one, else the value itself."""
    around = loop.parent
    while around >= 0 and graph.values[value].region != around:
        for outer, copy in graph.regions[around].arguments:
            if outer == value:
                return copy
        around = graph.regions[around].parent
    return value


def _drop(graph: Graph, loop: Region, outer: int, copy: int, instead: int) -> None:
    loop.arguments = tuple(pair for pair in loop.arguments if pair[1] != copy)
    for op in list(graph.ops):
        if copy in op.operands:
            operands = tuple(instead if v == copy else v for v in op.operands)
            graph.ops[op.id] = replace(op, operands=operands)
    for region in graph.regions:
        region.arguments, region.results = (tuple((instead if given == copy else given, taken)
                                                  for given, taken in pairs)
                                            for pairs in (region.arguments, region.results))
    marker = graph.new_op(UNCOPIED,
                          loop.id,
                          operands=(outer,),
                          results=(outer,),
                          facts=OpFacts(),
                          origin=None)
    loop.ops.remove(marker.id)
    loop.ops.insert(0, marker.id)
