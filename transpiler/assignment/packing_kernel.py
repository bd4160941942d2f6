"""Depth-first search for offsets within a fixed capacity: the inner loops of `packing_exact`.

The search space is the one of minimalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023), written from the paper's description:

* *Canonical solutions.* Every solution can be pushed down until each buffer rests on another or on
  offset 0. Buffers are placed in increasing (offset, rank), each at `low[i]`, the lowest offset
  that clears what overlaps it and is placed already.
* *Dominance.* A buffer placed at or above the top that another unplaced one would reach leaves a
  hole that the other could have filled, so the solution was not pushed down.
* *Sections.* Time is cut where buffers begin. In each section the unplaced bytes must fit between
  the lowest offset that any of them can still take and the capacity.
* *Decomposition.* Where no unplaced buffer crosses a section boundary the two sides are solved one
  after the other, and a failure on one side never re-searches the other.

Shapes: `begin`, `end` (first and last section, inclusive), `size`, `rank`, `low` are int64 (n,),
`placed` is bool (n,), `remaining` (unplaced bytes of a section) is int64 (sections,), `trail` is
int64 (rows, 2) of (buffer, its old low) and `counters` holds [trail length, nodes left].
"""
from __future__ import annotations

import numpy as np

from transpiler.assignment.jit import njit

SOLVED, INFEASIBLE, OUT_OF_NODES = 1, 0, -1


@njit
def place(chosen, members, begin, end, size, low, placed, remaining, trail, counters):
    """Place `chosen` at `low[chosen]` and raise the unplaced members that overlap it."""
    placed[chosen] = True
    top = low[chosen] + size[chosen]
    for s in range(begin[chosen], end[chosen] + 1):
        remaining[s] -= size[chosen]
    for j in members:
        if low[j] < top and not placed[j] and begin[j] <= end[chosen] and end[j] >= begin[chosen]:
            trail[counters[0], 0] = j
            trail[counters[0], 1] = low[j]
            counters[0] += 1
            low[j] = top


@njit
def undo(chosen, mark, begin, end, size, low, placed, remaining, trail, counters):
    """Take back `place(chosen)`, which began when the trail held `mark` rows."""
    while counters[0] > mark:
        counters[0] -= 1
        low[trail[counters[0], 0]] = trail[counters[0], 1]
    placed[chosen] = False
    for s in range(begin[chosen], end[chosen] + 1):
        remaining[s] += size[chosen]


@njit
def sections_fit(left, right, members, begin, end, size, rank, low, remaining, last_offset,
                 last_rank, capacity):
    """Whether every section can still hold its unplaced bytes above its lowest usable offset.

    A member that comes too late for its `low` must rest on another one that is still unplaced.
    """
    floor = np.full(right - left + 1, capacity, dtype=np.int64)
    for i in members:
        lowest = low[i]
        if lowest < last_offset or (lowest == last_offset and rank[i] <= last_rank):
            lowest = capacity
            for k in members:
                if k != i and begin[k] <= end[i] and end[k] >= begin[i]:
                    lowest = min(lowest, max(low[k], last_offset) + size[k])
            if lowest + size[i] > capacity:
                return False
        for s in range(begin[i] - left, end[i] - left + 1):
            if lowest < floor[s]:
                floor[s] = lowest
    for s in range(left, right + 1):
        if floor[s - left] + remaining[s] > capacity:
            return False
    return True


@njit
def candidates(members, size, low, last_offset, last_rank, rank):
    """Members that may be placed next, in (low, rank) order."""
    ceiling = np.int64(2)**62
    for i in members:
        ceiling = min(ceiling, low[i] + size[i])
    out = np.empty(len(members), dtype=np.int64)
    found = 0
    for i in members:
        if low[i] >= ceiling or low[i] < last_offset:
            continue
        if low[i] == last_offset and rank[i] <= last_rank:
            continue
        at = found
        while at > 0 and (low[out[at - 1]] > low[i] or
                          (low[out[at - 1]] == low[i] and rank[out[at - 1]] > rank[i])):
            out[at] = out[at - 1]
            at -= 1
        out[at] = i
        found += 1
    return out[:found]


@njit
def boundaries(left, right, members, begin, end):
    """First sections of the parts that no member crosses out of (left first, then each cut)."""
    crossing = np.zeros(right - left + 2, dtype=np.int64)
    for i in members:
        crossing[begin[i] - left + 1] += 1
        crossing[end[i] - left + 1] -= 1
    cuts = np.empty(right - left + 2, dtype=np.int64)
    cuts[0] = left
    found = 1
    open_members = 0
    for s in range(left + 1, right + 1):
        open_members += crossing[s - left]
        if open_members == 0:
            cuts[found] = s
            found += 1
    cuts[found] = right + 1
    return cuts[:found + 1]


@njit
def unplaced_within(left, right, members, begin, end, placed):
    """The members that are unplaced and lie within sections left..right."""
    out = np.empty(len(members), dtype=np.int64)
    found = 0
    for i in members:
        if not placed[i] and begin[i] >= left and end[i] <= right:
            out[found] = i
            found += 1
    return out[:found]


@njit
def search(left, right, members, last_offset, last_rank, begin, end, size, rank, low, placed,
           remaining, trail, counters, capacity):
    """Place all `members` (unplaced, within sections left..right, nothing crossing out of them).

    Returns SOLVED with `low` holding the offsets, or INFEASIBLE / OUT_OF_NODES with everything
    as it was found.
    """
    if len(members) == 0:
        return SOLVED
    counters[1] -= 1
    if counters[1] < 0:
        return OUT_OF_NODES
    if not sections_fit(left, right, members, begin, end, size, rank, low, remaining, last_offset,
                        last_rank, capacity):
        return INFEASIBLE
    for chosen in candidates(members, size, low, last_offset, last_rank, rank):
        mark = counters[0]
        offset = low[chosen]
        place(chosen, members, begin, end, size, low, placed, remaining, trail, counters)
        rest = unplaced_within(left, right, members, begin, end, placed)
        cuts = boundaries(left, right, rest, begin, end)
        status = SOLVED
        solved_parts = 0
        for k in range(len(cuts) - 1):
            part = unplaced_within(cuts[k], cuts[k + 1] - 1, rest, begin, end, placed)
            status = search(cuts[k], cuts[k + 1] - 1, part, offset, rank[chosen], begin, end, size,
                            rank, low, placed, remaining, trail, counters, capacity)
            if status != SOLVED:
                break
            solved_parts += 1
        if status == SOLVED:
            return SOLVED
        for i in rest:
            if placed[i]:
                placed[i] = False
                for s in range(begin[i], end[i] + 1):
                    remaining[s] += size[i]
        undo(chosen, mark, begin, end, size, low, placed, remaining, trail, counters)
        if status == OUT_OF_NODES:
            return OUT_OF_NODES
    return INFEASIBLE
