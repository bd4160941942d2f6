"""Sharing that adds no dependence: memonger's tokens, as a relation between values.

Theorem. Let two values share one storage, a first. If every op that touches a is an ancestor, in the dependence graph, of
every op that touches b, then each dependence that the sharing adds (an op that touches a stays before one that touches
b) is in the transitive closure of the graph already. So the set of topological orders is unchanged: what could run side by
side still can, and no path gets longer. Conversely, if some op that touches a is no ancestor of some op that touches b,
there is a topological order in which the latter comes first: under it a is overwritten while it is alive, or the sharing
rules that order out.

The condition on all that touch b follows from the one on the op that defines b where all the others depend on it, which
is how Caffe2's memonger and Chen et al. (2016) state it. In-place coalescing is the case where one op touches both: then
it must be a descendant of all others that touch a, and an ancestor of all others that touch b.
"""

from __future__ import annotations

from typing import Dict, Iterable

from transpiler.analysis.dependences import ancestors, dependences
from transpiler.analysis.positions import Positions
from transpiler.ir import Graph


class EveryOrder:
    """Answers for all topological orders of a graph at once. Bit sets: O(edges * ops / 64) to build."""

    def __init__(self, graph: Graph) -> None:
        self._positions = Positions(graph)
        self._ancestors = {r.id: ancestors(dependences(graph, r.id).before) for r in graph.regions}
        self._touching: Dict[int, int] = {}  # value -> the ops of its region that touch it
        self._region = {v.id: v.region for v in graph.values}
        for op in graph.walk():
            for value in dict.fromkeys(op.reads() + op.writes()):
                at, _ = self._positions.seen_from(op, self._region[value])
                if at >= 0:
                    self._touching[value] = self._touching.get(value, 0) | 1 << at

    def precedes(self, first: Iterable[int], second: Iterable[int]) -> bool:
        """Whether all that touches a value of `first` comes before all that touches one of `second`, in every order.

        All values are of one region.
        """
        earlier = 0
        for value in first:
            earlier |= self._touching.get(value, 0)
        return all(not earlier & ~self._common(value) for value in second)

    def hands_over(self, first: int, second: int, op: int) -> bool:
        """The same for two values that the op at position `op` of their region touches both, and no other does."""
        before = self._ancestors[self._region[first]]
        earlier = self._touching[first] & ~(1 << op)
        later = self._touching[second] & ~(1 << op)
        return not earlier & ~before[op] and all(before[at] >> op & 1 for at in _bits(later))

    def _common(self, value: int) -> int:
        """The ops that come before all that touch `value`, in every order."""
        before = self._ancestors[self._region[value]]
        common = -1
        for at in _bits(self._touching.get(value, 0)):
            common &= before[at]
        return common


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
