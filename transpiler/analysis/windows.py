"""What the peak would be if neighbouring ops of a straight line were run in parts: the search behind `--in-parts`.

The parts of a window run one after the other. All that the window reads from outside stays to its end; of what it makes, a
part exists at a time, but of what it hands out, which grows to the whole and is joined at the end.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import accumulate
from typing import Dict, FrozenSet, Iterator, List, Mapping, Sequence, Set, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph

# A window may begin, and end, where the least memory is in use: so many places of each kind are tried.
_MOST_CUTS = 24
_Values = Mapping[int, FrozenSet[int]]  # by position


@dataclass(frozen=True)
class Window:
    """Positions of the first and the last op in their region.

    `inside`: the peak while the parts run and are joined; `peak`: that of the whole program.
    """

    first: int
    last: int
    inside: int
    peak: int


class Windows:
    """Ways to run ops of one region in parts.

    Args:
        graph: the program.
        timeline: of the graph.
        region: runs straight through, as a block does.
        parts: their number.
        sliced: by position of each op that can be run in parts, the values that it would be given by parts.
        shared: by position, the other values that it reads.
        joined: positions that no window begins at, or ends before.
    """

    def __init__(self,
                 graph: Graph,
                 timeline: Timeline,
                 region: int,
                 parts: int,
                 sliced: _Values,
                 shared: _Values,
                 joined: FrozenSet[int] = frozenset()) -> None:
        self._graph = graph
        self._parts = parts
        self._ops = graph.regions[region].ops
        self._evaluate = timeline.evaluate
        self._sliced = sliced
        self._shared = shared
        self._joined = joined
        lifetimes = timeline.lifetimes
        self._spans = [(s.first, s.last, timeline.evaluate(s.size))
                       for s in lifetimes.by_region[region].values()]
        count = len(self._ops)
        self._totals = [0] * count
        for point in timeline.points:
            at = self._position(point.op, region, lifetimes.position)
            if at >= 0:
                self._totals[at] = max(self._totals[at], point.bytes)
        live = self._live(self._spans, count)
        self._beside = [total - own for total, own in zip(self._totals, live)]
        self.peak_at = max(range(count), key=self._totals.__getitem__)

    def around_peak(self) -> Iterator[Window]:
        """Windows that the peak is in; none if the op at the peak cannot be run in parts."""
        first = last = self.peak_at
        if first not in self._sliced:
            return
        while first - 1 in self._sliced:
            first -= 1
        while last + 1 in self._sliced:
            last += 1
        starts = self._cheapest_cuts(range(first, self.peak_at + 1))
        ends = self._cheapest_cuts(range(self.peak_at + 1, last + 2))
        for start in starts:
            for end in ends:
                if self._is_closed(start, end - 1):
                    yield self._window(start, end - 1)

    def _position(self, op: int, region: int, position: Mapping[int, int]) -> int:
        """Where `region` is while `op` runs; -1 if it does not run then."""
        while op >= 0 and self._graph.ops[op].region != region:
            op = self._graph.regions[self._graph.ops[op].region].op
        return position[op] if op >= 0 else -1

    @staticmethod
    def _live(spans: Sequence[Tuple[int, int, int]], count: int) -> List[int]:
        changes = [0] * (count + 1)
        for first, last, size in spans:
            changes[first] += size
            changes[last + 1] -= size
        return list(accumulate(changes))[:count]

    def _cheapest_cuts(self, around: range) -> List[int]:
        """Of places before an op, those that the fewest bytes are carried over, and both ends."""
        places = [place for place in around if place not in self._joined]
        if not places:
            return []
        carried: Dict[int, int] = {
            place: sum(size for first, last, size in self._spans if first < place <= last)
            for place in places
        }
        least = heapq.nsmallest(_MOST_CUTS, places, key=carried.__getitem__)
        return sorted({*least, places[0], places[-1]})

    def _is_closed(self, first: int, last: int) -> bool:
        """Whether nothing that the window makes is needed whole within it."""
        made = self._made(first, last)
        return not any(made & self._shared[p] for p in range(first, last + 1))

    def _made(self, first: int, last: int) -> Set[int]:
        return {v for op in self._ops[first:last + 1] for v in self._graph.ops[op].writes()}

    def _window(self, first: int, last: int) -> Window:
        outside = max(self._totals[:first] + self._totals[last + 1:], default=0)
        inside = max(self._while_parts_run(first, last), self._while_joined(first, last))
        return Window(first, last, inside, max(outside, inside))

    def _while_parts_run(self, first: int, last: int) -> int:
        """In the last part: what it makes, what all others handed out, and all that was there before."""
        carried = handed_out = 0
        own = list(self._slices(first, last))
        for start, end, size in self._spans:
            if end < first or start > last:
                continue
            if start < first:
                carried += size
                continue
            if end > last:  # the place that all parts write to, and what was copied from there
                own.append((first, last, size))
                handed_out += size
            else:
                own.append((start, end, size))
        live = self._live(own, last + 1)
        most = max(live[p] // self._parts + self._beside[p] for p in range(first, last + 1))
        return carried + handed_out * (self._parts - 1) // self._parts + most

    def _slices(self, first: int, last: int) -> Iterator[Tuple[int, int, int]]:
        """What is cut out of operands from outside, from the first to the last op that reads it."""
        used: Dict[int, List[int]] = {}
        for position in range(first, last + 1):
            for value in self._sliced[position]:
                used.setdefault(value, []).append(position)
        made = self._made(first, last)
        for value, positions in used.items():
            size = self._graph.values[value].size
            if value not in made and size is not None:
                yield positions[0], positions[-1], self._evaluate(size)

    def _while_joined(self, first: int, last: int) -> int:
        kept = [size for start, end, size in self._spans if start < first and end > last]
        handed_out = [size for start, end, size in self._spans if first <= start <= last < end]
        return sum(kept) + sum(handed_out) + max(handed_out, default=0) + self._beside[last]
