"""What Paddle's allocator says once its collector is done.

The collector is a thread: on a busy machine it frees after the op, the run or even the step that could do without. What is read
then is too high; what is read as a difference to a rest that was too high is too low. So rest is waited for, and a peak is the
least of as many as it takes.
"""
from __future__ import annotations

import gc
from typing import Callable, List, Sequence

from paddle.base import core

from transpiler.serving.apart import settled_bytes as at_rest

MOST = 60
_LONG = 60


def long_at_rest() -> int:
    """The same where many readings are compared with this one: what Python would let go of only later goes first."""
    gc.collect()
    return at_rest(_LONG)


def peak_of(run: Callable[[], None]) -> int:
    """Bytes allocated at most while `run` runs, from rest. Paddle 3 alone can reset its peak."""
    at_rest()
    core.host_memory_stat_reset_peak_value('Allocated', 0)
    run()
    return core.host_memory_stat_peak_value('Allocated', 0)


def least(read: Callable[[], Sequence[float]],
          enough: Sequence[float],
          most: int = MOST) -> List[float]:
    """The least of each figure that `read` gives, of as many readings as it takes until none is more than `enough`."""
    found: List[float] = [float('inf')] * len(enough)
    for _ in range(most):
        found = [min(pair) for pair in zip(found, read())]
        if all(seen <= bound for seen, bound in zip(found, enough)):
            break
    return found


def assert_as_predicted(read: Callable[[], Sequence[float]],
                        predicted: Sequence[float],
                        within: float = 0.01) -> None:
    """Readings above are a late collector's, so long as one is not; of those below, each shows that the model is wrong."""
    found = least(read, [said * (1 + within) for said in predicted])
    for seen, said in zip(found, predicted):
        assert said * (1 - within) <= seen <= said * (1 + within), (found, predicted)
