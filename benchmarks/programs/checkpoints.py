"""Paddle's own RecomputeOptimizer with checkpoints chosen as one would by hand: sqrt(n) of them, where little is alive."""
from __future__ import annotations

import math
from typing import Any, Dict, List, Set

from paddle.incubate.optimizer import RecomputeOptimizer


def minimize_with_checkpoints(optimizer: Any, loss: Any) -> None:
    """`optimizer.minimize(loss)` with recomputation between the checkpoints of the program so far."""
    recomputing = RecomputeOptimizer(optimizer)
    recomputing._set_checkpoints(choose(loss.block))
    recomputing.minimize(loss)


def choose(block: Any) -> List[Any]:
    """What is alive at about sqrt(ops) positions, each where fewest variables are in its part of the forward program."""
    alive = _alive_after_each_op(block)
    count = math.isqrt(len(alive))
    width = len(alive) / (count + 1)
    chosen: Dict[str, None] = {}
    for number in range(1, count + 1):
        middle = number * width
        near = range(int(middle - width / 2), int(middle + width / 2))
        at = min(near, key=lambda i: (len(alive[i]), abs(i - middle)))
        chosen.update(dict.fromkeys(sorted(alive[at])))
    return [block.var(name) for name in chosen]


def _alive_after_each_op(block: Any) -> List[Set[str]]:
    """Names that an op up to there makes and a later one reads."""
    last = {name: at for at, op in enumerate(block.ops) for name in op.input_arg_names}
    alive: Set[str] = set()
    found = []
    for at, op in enumerate(block.ops):
        alive.update(n for n in op.output_arg_names if not block.var(n).persistable)
        alive = {n for n in alive if last.get(n, -1) > at}
        found.append(set(alive))
    return found
