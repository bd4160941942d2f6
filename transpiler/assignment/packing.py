"""`pack`: a byte offset in one arena for every value.

A portfolio again: first-fit and tightest-fit greedy in several orders, the exact search for a moment, a local search that
moves what sticks out to the front, and the exact search for the rest of the time; whichever reaches the bound first ends it.
"""
from __future__ import annotations

import time
from typing import Iterator, List, Optional, Tuple

import numpy as np

from transpiler.assignment import packing_exact
from transpiler.assignment.bounds import live_max_bytes
from transpiler.assignment.jit import compiled
from transpiler.assignment.ranges import ArrayLike, Packing, checked, sections

MOMENT = 0.3  # seconds in which the exact search decides most problems, sooner than a local search
LOCAL_SEARCH_ROUNDS = 60
LOCAL_SEARCH_COUNT = 5_000
LOCAL_SEARCH = "local_search"
UNCOMPILED_COUNT = 3_000
_MOST_BYTES = 1 << 62  # sums of offsets and sizes are numbers of the machine
SMALL_COUNT = 200  # of which some orders are placed sooner than kernels are loaded


class CapacityError(ValueError):
    """No packing within the capacity was found; `best` is the lowest one that was.

    `proved` says whether none exists.
    """

    def __init__(self, capacity: int, best: Packing) -> None:
        self.capacity = capacity
        self.best = best
        self.proved = best.bound > capacity
        verdict = "cannot exist" if self.proved else "was not found"
        super().__init__(f"a packing within {capacity} bytes {verdict}: lowest found {best.height},"
                         f" lower bound {best.bound}")


def pack(ranges: ArrayLike,
         sizes: ArrayLike,
         alignment: int = 1,
         capacity: Optional[int] = None,
         seconds: float = 20.0,
         clock: packing_exact.Clock = time.monotonic) -> Packing:
    """Place values in one arena so that values alive together never overlap.

    Args:
        ranges: int (n, 2), inclusive [first, last] positions (see `ranges.py`).
        sizes: int (n,), bytes.
        alignment: every offset is a multiple of it; sizes are rounded up to it in the bound.
        capacity: bytes; stop at the first packing that fits. None: as low as possible.
        seconds: time box; greedy runs may overstep it on very large inputs. Compiling the kernels of the exact search,
            once on a machine, is not counted.
        clock: what counts them, `time.process_time` for those of processors.

    Returns:
        A `Packing`; offsets int64 (n,) in bytes.

    Raises:
        ValueError: for malformed input, or more than 2**62 bytes.
        CapacityError: if `capacity` is given and nothing within it was found.
    """
    started = clock()
    range_array, size_array = checked(ranges, sizes)
    if alignment < 1:
        raise ValueError(f"alignment must be at least 1, not {alignment}")
    solid = np.flatnonzero(size_array)
    together = sum(-(-size // alignment) * alignment for size in size_array[solid].tolist())
    if together > _MOST_BYTES:
        raise ValueError(
            f"of {len(solid)} values, each rounded up to a multiple of {alignment}, are {together} bytes, "
            f"more than {_MOST_BYTES}")
    rounded = -(-size_array[solid] // alignment) * alignment
    # Counting in the greatest common unit keeps offsets aligned and makes bounds tighter.
    unit = int(np.gcd.reduce(rounded)) if len(solid) else 1
    goal = None if capacity is None else capacity // unit
    offsets, bound, name = _best(range_array[solid], rounded // unit, goal, started + seconds,
                                 clock)
    everyone = np.zeros(len(size_array), dtype=np.int64)
    everyone[solid] = offsets * unit
    height = int((everyone + size_array).max()) if len(solid) else 0
    # The last value need not be padded to the alignment.
    slack = int((rounded - size_array[solid]).max()) if len(solid) else 0
    packing = Packing(everyone, height, min(height, bound * unit - slack), name, clock() - started)
    if capacity is not None and height > capacity:
        raise CapacityError(capacity, packing)
    return packing


def _best(ranges: np.ndarray, sizes: np.ndarray, goal: Optional[int], deadline: float,
          clock: packing_exact.Clock) -> Tuple[np.ndarray, int, str]:
    """(offsets, bound, strategy); ends as soon as the height is at most `goal` or the bound."""
    if not len(sizes):
        return np.zeros(0, dtype=np.int64), 0, "none"
    bound = live_max_bytes(ranges, sizes)
    enough = bound if goal is None else max(bound, goal)
    best, height, best_name = _stacked(sizes), int(sizes.sum()), "none"
    tried = False
    for name, offsets in _greedy(ranges, sizes, enough) if height > enough else ():
        top = int((offsets + sizes).max())
        if top < height:
            best, height, best_name = offsets, top, name
        if height <= enough:
            return best, bound, best_name
        if name == LOCAL_SEARCH and not tried:
            tried = True
            deadline += packing_exact.loading_seconds(clock)
            found, _ = packing_exact.fit(ranges, sizes, enough, min(deadline,
                                                                    clock() + MOMENT), clock, best)
            if found is not None:
                return found, bound, "exact"
    if height <= enough or clock() >= deadline:
        return best, bound, best_name
    if goal is not None:
        found, decided = packing_exact.fit(ranges, sizes, goal, deadline, clock, best)
        if found is None:
            return best, goal + 1 if decided else bound, best_name
        return found, bound, "exact"
    improved, bound = packing_exact.lowest(ranges, sizes, best, bound, deadline, clock)
    return improved, bound, best_name if improved is best else "exact"


def _stacked(sizes: np.ndarray) -> np.ndarray:
    """Every value above all others: always valid."""
    return np.cumsum(sizes) - sizes


def _greedy(ranges: np.ndarray, sizes: np.ndarray, enough: int) -> Iterator[Tuple[str, np.ndarray]]:
    """(name, offsets) of the greedy members, then of the local search from the lowest order."""
    if len(sizes) <= SMALL_COUNT:
        for name, order in orders(ranges, sizes):
            yield f"{name}_first_fit", _first_fit(ranges, sizes, order)
    from transpiler.assignment.overlap_kernel import fill_arena
    if not compiled() and len(sizes) > UNCOMPILED_COUNT:
        yield "arrival", arrival_first_fit(ranges, sizes)
        return
    begin, end, count = sections(ranges)
    lowest, lowest_order = None, None
    for name, order in orders(ranges, sizes):
        for kind, tight in (("first", False), ("tight", True)):
            offsets = fill_arena(order, begin, end, sizes, count, tight)
            height = int((offsets + sizes).max())
            if lowest is None or height < lowest:
                lowest, lowest_order = height, order
            yield f"{name}_{kind}_fit", offsets
    if len(sizes) <= LOCAL_SEARCH_COUNT and lowest_order is not None and lowest > enough:
        for offsets in _moved_to_front(lowest_order, begin, end, sizes, count, enough):
            yield LOCAL_SEARCH, offsets


def orders(ranges: np.ndarray, sizes: np.ndarray) -> List[Tuple[str, np.ndarray]]:
    """Named placement orders, int64 (n,) each: large, long, or crowded values first."""
    width = ranges[:, 1] - ranges[:, 0] + 1
    first = ranges[:, 0]
    return [("largest", np.lexsort((first, -width, -sizes))),
            ("largest_in_time_order", np.lexsort((first, -sizes))),
            ("area", np.lexsort((first, -(sizes * width)))),
            ("longest", np.lexsort((first, -sizes, -width))),
            ("arrival", np.lexsort((-sizes, first)))]


def _first_fit(ranges: np.ndarray, sizes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The lowest gap for each value in turn, of `order`; O(n^2 log n). Returns int64 (n,) offsets."""
    first, last, size = ranges[:, 0].tolist(), ranges[:, 1].tolist(), sizes.tolist()
    offsets, placed = [0] * len(size), []
    for value in order.tolist():
        taken = sorted((offsets[other], offsets[other] + size[other])
                       for other in placed
                       if first[other] <= last[value] and first[value] <= last[other])
        low = 0
        for bottom, top in taken:
            if bottom - low >= size[value]:
                break
            low = max(low, top)
        offsets[value] = low
        placed.append(value)
    return np.asarray(offsets, dtype=np.int64)


def _moved_to_front(order: np.ndarray, begin: np.ndarray, end: np.ndarray, sizes: np.ndarray,
                    count: int, enough: int) -> Iterator[np.ndarray]:
    """Squeaky wheel (Joslin and Clements 1999): what ends too high is placed earlier next time.

    Ends at the first height of at most `enough`, or after a fixed number of rounds, so that the
    result does not depend on the machine's speed.
    """
    from transpiler.assignment.overlap_kernel import fill_arena
    generator = np.random.RandomState(0)
    priority = np.empty(len(order))
    priority[order] = np.arange(len(order))
    for _ in range(LOCAL_SEARCH_ROUNDS):
        offsets = fill_arena(np.argsort(priority, kind="stable"), begin, end, sizes, count, False)
        yield offsets
        too_high = np.flatnonzero(offsets + sizes > enough)
        if not len(too_high):
            return
        shift = generator.uniform(0.1, 0.6, len(too_high)) * len(order)
        priority[too_high] -= np.maximum(1.0, shift)


def arrival_first_fit(ranges: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """First fit as an allocator at run time would, on a list of holes; for uncompiled use.

    O(n holes). Returns int64 (n,) offsets.
    """
    events = sorted([(first, 1, i) for i, first in enumerate(ranges[:, 0].tolist())] +
                    [(last + 1, 0, i) for i, last in enumerate(ranges[:, 1].tolist())])
    holes: List[List[int]] = [[0, 2**62]]
    offsets = np.zeros(len(sizes), dtype=np.int64)
    for _, born, value in events:
        size = int(sizes[value])
        if born:
            at = next(k for k, (low, high) in enumerate(holes) if high - low >= size)
            offsets[value] = holes[at][0]
            holes[at][0] += size
            if holes[at][0] == holes[at][1]:
                del holes[at]
        else:
            _release(holes, int(offsets[value]), size)
    return offsets


def _release(holes: List[List[int]], low: int, size: int) -> None:
    """Give [low, low + size) back to the sorted, disjoint `holes`, merging neighbours."""
    at = 0
    while holes[at][0] < low:
        at += 1
    holes.insert(at, [low, low + size])
    if holes[at][1] == holes[at + 1][0]:
        holes[at][1] = holes.pop(at + 1)[1]
    if at and holes[at - 1][1] == holes[at][0]:
        holes[at - 1][1] = holes.pop(at)[1]
