"""How long the ops of a region take on several processors, if each starts as soon as one is idle."""

from __future__ import annotations

import heapq
from typing import List, Sequence, Tuple

from transpiler.analysis.dependences import Dependences


def makespan(found: Dependences, seconds: Sequence[float], processors: int) -> float:
    """Seconds until the last op has ended; `seconds` are those of each op. Of the ops that are ready the first in program order
    starts first: list scheduling (Graham, 'Bounds on Multiprocessing Timing Anomalies', 1969), at most twice the least."""
    missing = [len(before) for before in found.before]
    ready = [at for at, count in enumerate(missing) if not count]
    running: List[Tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < processors:
            at = heapq.heappop(ready)
            heapq.heappush(running, (now + seconds[at], at))
        now, ended = heapq.heappop(running)
        for at in found.after[ended]:
            missing[at] -= 1
            if not missing[at]:
                heapq.heappush(ready, at)
    return now
