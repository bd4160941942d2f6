"""What a loop adds up from trip to trip, and may add up where it is: the one sum takes the memory of the last.

A trip begins with what the one before has handed on, in the same memory, and nobody else has that: what the loop was given is there
for it alone, was made for it, and the trip reads it once, to add to it.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, List, Mapping, NamedTuple

from transpiler.ir import MEMORY_KINDS, Graph, Op, Region


class CarriedSum(NamedTuple):
    """What a trip begins with, and what it hands on in its place."""

    argument: int
    result: int


def carried_sums(graph: Graph) -> List[CarriedSum]:
    """All of `graph`, whether their memory is one already or not."""
    regions = [r for r in graph.regions if r.kind.is_loop and r.links and not r.keeps_scopes]
    if not regions:
        return []
    named = Counter(v for op in graph.walk() if op.kind not in MEMORY_KINDS
                    for v in op.data_reads() + op.writes())
    makers: Dict[int, Op] = {}
    for op in graph.walk():
        for value in op.writes():
            makers.setdefault(value, op)
    return [
        each for region in regions for each in _of(graph, region) if named[each.argument] == 1 and
        named[each.result] == 2 and _is_made_for(graph, region, each.argument, makers)
    ]


def _of(graph: Graph, region: Region) -> Iterator[CarriedSum]:
    ends, arguments = graph.ops[region.ops[-1]], [inner for _, inner in region.arguments]
    for op in graph.region_ops(region.id):
        for i, j in op.facts.onto:
            argument, result = op.operands[i], op.results[j]
            if argument in arguments and op.operands.count(argument) == 1:
                at = arguments.index(argument) + 1  # behind the condition
                if ends.operands[at] == result and ends.operands.count(result) == 1:
                    yield CarriedSum(argument, result)


def _is_made_for(graph: Graph, region: Region, argument: int, makers: Mapping[int, Op]) -> bool:
    """Whether what the first trip begins with was made for the loop, of nothing that could be in the same memory."""
    loop = graph.ops[region.op]
    at = [inner for _, inner in region.arguments].index(argument)
    start = loop.operands[at + 1]
    maker = makers.get(start)
    value = graph.values[start]
    if maker is None or value.may_be_asked_for:
        return False
    return ((at + 1, at) in loop.facts.in_place and loop.operands.count(start) == 1 and
            maker.region == loop.region and maker.makes_memory)
