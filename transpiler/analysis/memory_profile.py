"""The judge of orders: bytes while each step of a region runs, and the memory that a step takes over instead of allocating.

Everybody who builds an order, or a run with clones in it, counts with these functions: one step with `turnover`, a whole run
with `memory_profile`. A cell is whatever has memory of its own: a storage, or one of the copies of it that clones make.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Collection, Dict, Iterable, List, Sequence, Set, Tuple

import numpy

Pair = Tuple[int, int]  # (who may give its memory up, who may take it over)


@dataclass
class MemoryProfile:
    """Bytes while each step runs, the first and the last step of each cell (-1: none), and who took over whose memory.

    `heir[i]` is the cell that took over that of i, if any did.
    """

    bytes: numpy.ndarray
    first: List[int]
    last: List[int]
    heir: Dict[int, int]

    @property
    def peak(self) -> int:
        return int(self.bytes.max()) if len(self.bytes) else 0


class Touches:
    """Which cells each step touches, as arrays: an entry for each cell of each step."""

    def __init__(self, touches: Sequence[Sequence[int]]) -> None:
        lengths = numpy.fromiter(map(len, touches), numpy.int64, len(touches))
        self.steps = len(touches)
        self.cell = numpy.fromiter(itertools.chain.from_iterable(touches), numpy.int64)
        self.step = numpy.arange(len(touches)).repeat(lengths)

    def ends(self, cells: int) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """The first and the last step of each of so many cells, -1 if there is none."""
        first = numpy.full(cells, -1)
        last = first.copy()
        # Of equal indices numpy keeps the last assignment.
        first[self.cell[::-1]] = self.step[::-1]
        last[self.cell] = self.step
        return first, last


def taken_over(pairs: Iterable[Pair], dying: Collection[int], born: Collection[int]) -> List[Pair]:
    """Of the `pairs` of a step those that share one memory: each cell once, whoever comes first.

    Paddle's executor works in place so: the operand is not used again, the result was not there before
    (`buffer_shared_inplace_pass`).
    """
    found: List[Pair] = []
    done: Set[int] = set()
    for source, target in pairs:
        if source in dying and target in born and source not in done and target not in done:
            done.update((source, target))
            found.append((source, target))
    return found


def turnover(sizes: Sequence[int], born: Collection[int], dying: Collection[int],
             pairs: Iterable[Pair]) -> Tuple[int, int]:
    """Bytes that a step allocates, and those that it frees: what is taken over is neither."""
    allocated, freed = sum([sizes[c] for c in born]), sum([sizes[c] for c in dying])
    for source, target in taken_over(pairs, dying, born) if pairs else ():
        allocated, freed = allocated - sizes[target], freed - sizes[source]
    return allocated, freed


def memory_profile(touches: Touches, sizes: numpy.ndarray, from_start: numpy.ndarray,
                   to_end: numpy.ndarray, pairs: Tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray],
                   during: numpy.ndarray, left: numpy.ndarray) -> MemoryProfile:
    """Counts a whole run. O(steps + touches).

    Args:
        touches: what each step touches.
        sizes: bytes by cell.
        from_start, to_end: by cell, whether it is there before the first step, and after the last.
        pairs: (step, source, target) of what may be taken over, by step.
        during: bytes that a step needs only while it runs.
        left: bytes that a step leaves behind outside of all cells, or, below nothing, takes away.
    """
    first, last = touches.ends(len(sizes))
    first[from_start] = 0
    last[from_start] = numpy.maximum(last[from_start], 0)
    last[to_end & (first >= 0)] = touches.steps - 1
    heir = _heirs(pairs, first, last)
    starts, ends = sizes.astype(float), sizes.astype(float)
    starts[list(heir.values())] = 0
    ends[list(heir)] = 0
    lives = first >= 0
    before = numpy.bincount(first[lives], starts[lives], touches.steps)
    after = numpy.bincount(last[lives], ends[lives], touches.steps) - left
    live = before.cumsum() - after.cumsum() + after
    return MemoryProfile(live + during, first.tolist(), last.tolist(), heir)


def _heirs(pairs: Tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray], first: numpy.ndarray,
           last: numpy.ndarray) -> Dict[int, int]:
    """As `taken_over`, for all steps. A cell is born once and dies once, so that once in a run is once at a step."""
    steps, sources, targets = pairs
    both = (last[sources] == steps) & (first[targets] == steps)
    heir: Dict[int, int] = {}
    taken: Set[int] = set()
    for source, target in zip(sources[both].tolist(), targets[both].tolist()):
        if source not in heir and target not in taken:
            heir[source] = target
            taken.add(target)
    return heir
