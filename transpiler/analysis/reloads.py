"""Values of a loop's trip that its gradient can read again from an array, before it counts back.

A trip that writes a value at the counter, after it has counted, writes element c0 + t + 1. The gradient of trip t starts
with the counter at c0 + t + 1: there it finds that value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict

from transpiler.analysis.counters import Counter, mirrored_counters
from transpiler.analysis.positions import Positions
from transpiler.ir import ArrayAccess, Graph, Op, Region


@dataclass(frozen=True)
class Reload:
    """The op `write` put a value of the trip into `array` at `index`; read there, by an op of the gradient that comes
    before `counts_back`, it is that value again."""

    write: int
    array: int
    index: int
    counts_back: int


def reloads(graph: Graph, gradient: Region) -> Dict[int, Reload]:
    """By value of the loop's region."""
    found: Dict[int, Reload] = {}
    for counter in mirrored_counters(graph, gradient):
        for array in sorted(counter.arrays):
            writes = [
                op for op in graph.walk(gradient.forward)
                if not op.regions and any(graph.values[v].storage == array for v in op.writes())
            ]
            if len(writes) == 1:
                found.update(_reload(graph, writes[0], counter, gradient))
    return found


def reloaded(graph: Graph, op: Op, known: Dict[int, Reload], positions: Positions) -> int:
    """The value of the loop that `op`, of its gradient, reads again; -1 if it does not."""
    for value, reload in known.items():
        storages = {graph.values[v].storage for v in op.operands if v >= 0}
        if (op.facts.array is ArrayAccess.READS_ELEMENT and len(op.operands) == 2 and
                storages == {graph.values[v].storage for v in (reload.array, reload.index)} and
                positions.of[op.id] < positions.of[reload.counts_back]):
            return value
    return -1


def _reload(graph: Graph, write: Op, counter: Counter, gradient: Region) -> Dict[int, Reload]:
    index = next(v for v in write.operands if graph.values[v].storage == counter.storage)
    value = next(v for v in write.operands if v != index)
    if graph.values[value].region != gradient.forward:
        return {}
    return {value: Reload(write.id, write.results[0], index, counter.counts_back)}
