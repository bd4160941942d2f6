"""How long the ops of a program take on several processors, if each starts as soon as one is idle."""

from __future__ import annotations

import heapq
from typing import Callable, Collection, List, Sequence, Tuple

from transpiler.analysis.dependences import Dependences, dependences
from transpiler.ir import Graph, Op

OpSeconds = Callable[[Op, Callable[[int], float]], float]

# From the end of an op to the start of the next one on a processor that was idle meanwhile: a thread has to be woken. Measured
# with the bodies of three loops, Paddle 3.3.1, 2 processors (benchmarks/README.md).
WAKING_SECONDS = 50e-6


def clock_seconds(graph: Graph, held: Collection[int], op_seconds: OpSeconds,
                  processors: int) -> float:
    """Of one run of the main block, by the clock, if all `processors` are idle. The ops of the regions in `held` run one after the
    other, those of all others side by side where that is faster; a trip of a loop starts when the one before has ended.

    Args:
        op_seconds: of one run of an op, given how long one run of a region that it runs takes.
    """

    def of_region(region: int) -> float:
        seconds = [op_seconds(op, of_region) for op in graph.region_ops(region)]
        in_turn = sum(seconds)
        if region in held:
            return in_turn
        found = dependences(graph, region)
        return min(in_turn, makespan(found, seconds, processors, WAKING_SECONDS))

    return of_region(0)


def makespan(found: Dependences, seconds: Sequence[float], processors: int, waking: float) -> float:
    """Seconds until the last op has ended.

    A processor that ends an op goes on with the first op that waited for it alone, or else with the first in program order that is
    ready. What is ready then, idle processors take: list scheduling (Graham, 'Bounds on Multiprocessing Timing Anomalies', 1969),
    at most twice the least.

    Args:
        seconds: of each op.
        waking: seconds that a processor which was idle needs to start.
    """
    missing = [len(before) for before in found.before]
    ready = [at for at, count in enumerate(missing) if not count]
    running: List[Tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < processors:
            at = heapq.heappop(ready)
            # The first op of all starts where the program does.
            woken = waking if now or running else 0.0
            heapq.heappush(running, (now + woken + seconds[at], at))
        now, ended = heapq.heappop(running)
        freed = [at for at in found.after[ended] if _is_last(missing, at)]
        for at in freed[1:]:
            heapq.heappush(ready, at)
        if freed or ready:
            at = freed[0] if freed else heapq.heappop(ready)
            heapq.heappush(running, (now + seconds[at], at))
    return now


def _is_last(missing: List[int], at: int) -> bool:
    """Whether op `at` now waits for nothing more."""
    missing[at] -= 1
    return not missing[at]
