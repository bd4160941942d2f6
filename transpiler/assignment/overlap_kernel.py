"""First-fit loops over "what is placed already and lives together with this one".

Placed ranges hang on an implicit centred interval tree over sections (Edelsbrunner 1980): each at
the highest node whose middle it contains. A query walks the nodes that meet it, so a whole run
costs O(n log n + overlapping pairs + total length), never n^2.

Shapes: `order`, `begin`, `end`, `size` are int64 (n,); `head` is int64 (nodes,) and `following`
int64 (n,), together the nodes' linked lists; -1 ends a list.
"""
from __future__ import annotations

import numpy as np

from transpiler.assignment.jit import njit


@njit
def empty_tree(count, sections):
    """A tree without any of `count` ranges: (head, following), and room for a walk and for what it finds."""
    nodes = 4
    while nodes < 4 * max(sections, 1):
        nodes *= 2
    return (np.full(nodes, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64),
            np.empty((128, 3), dtype=np.int64), np.empty(count, dtype=np.int64))


@njit
def insert(value, begin, end, sections, head, following):
    """Hang `value` on its node."""
    node, left, right = 1, 0, sections - 1
    while True:
        middle = (left + right) // 2
        if end[value] < middle:
            node, right = 2 * node, middle - 1
        elif begin[value] > middle:
            node, left = 2 * node + 1, middle + 1
        else:
            following[value] = head[node]
            head[node] = value
            return


@njit
def overlapping(value, begin, end, sections, head, following, stack, out):
    """Fill `out` with the placed ranges that overlap `value`; returns how many."""
    found, depth = 0, 1
    stack[0, 0], stack[0, 1], stack[0, 2] = 1, 0, sections - 1
    while depth > 0:
        depth -= 1
        node, left, right = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        middle = (left + right) // 2
        other = head[node]
        while other >= 0:
            if begin[other] <= end[value] and end[other] >= begin[value]:
                out[found] = other
                found += 1
            other = following[other]
        if begin[value] < middle and left < middle:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = 2 * node, left, middle - 1
            depth += 1
        if end[value] > middle and middle < right:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = 2 * node + 1, middle + 1, right
            depth += 1
    return found


@njit
def fill_storages(order, begin, end, sections):
    """In `order`, each value into the newest storage that holds nothing alive with it.

    Returns int64 (n,) storages. With `order` by falling size the newest is the smallest that fits.
    """
    count = len(order)
    head, following, stack, out = empty_tree(count, sections)
    taken_by = np.full(count, -1, dtype=np.int64)
    storages = np.empty(count, dtype=np.int64)
    opened = 0
    for value in order:
        found = overlapping(value, begin, end, sections, head, following, stack, out)
        for k in range(found):
            taken_by[storages[out[k]]] = value
        storage = opened - 1
        while storage >= 0 and taken_by[storage] == value:
            storage -= 1
        if storage < 0:
            storage = opened
            opened += 1
        storages[value] = storage
        insert(value, begin, end, sections, head, following)
    return storages


@njit
def lowest_gap(size, tops, bottoms, found):
    """Lowest offset with `size` free bytes among obstacles [bottoms, tops) sorted by bottom."""
    reached = np.int64(0)
    for k in range(found):
        if bottoms[k] - reached >= size:
            return reached
        reached = max(reached, tops[k])
    return reached


@njit
def tightest_gap(size, tops, bottoms, found):
    """The smallest gap that holds `size`; above everything where none does."""
    reached, best, best_room = np.int64(0), np.int64(-1), np.int64(2)**62
    for k in range(found):
        room = bottoms[k] - reached
        if size <= room < best_room:
            best, best_room = reached, room
        reached = max(reached, tops[k])
    return best if best >= 0 else reached


@njit
def fill_arena(order, begin, end, size, sections, tight):
    """In `order`, each value into the lowest (or, if `tight`, the tightest) gap; int64 (n,)."""
    count = len(order)
    head, following, stack, out = empty_tree(count, sections)
    offsets = np.zeros(count, dtype=np.int64)
    for value in order:
        found = overlapping(value, begin, end, sections, head, following, stack, out)
        by_bottom = np.argsort(offsets[out[:found]])
        bottoms = offsets[out[:found]][by_bottom]
        tops = bottoms + size[out[:found]][by_bottom]
        if tight:
            offsets[value] = tightest_gap(size[value], tops, bottoms, found)
        else:
            offsets[value] = lowest_gap(size[value], tops, bottoms, found)
        insert(value, begin, end, sections, head, following)
    return offsets
