"""Programs of two inputs that are fed as many rows as one likes, of each: for both Paddles."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import static

from benchmarks.measure import state_names
from transpiler import memory_optimize
from transpiler.backends.scopes import fresh_scope

paddle.enable_static()

WIDTH = 32
STEPS = 3
Join = Callable[[Any, Any], Any]


def _sum_of_means(a: Any, b: Any) -> Any:
    return paddle.mean(F.gelu(a) * a) + paddle.mean(F.gelu(b) * b)


def _mean_of(join: Join) -> Join:

    def loss(a: Any, b: Any) -> Any:
        joined = F.gelu(join(a, b))
        return paddle.mean(joined * joined)

    return loss


# By name: how a loss is made of both.
APART: Dict[str, Join] = {'apart': _sum_of_means}
BROADCAST: Dict[str, Join] = {
    name: _mean_of(join) for name, join in {
        'added': lambda a, b: a + b,
        'subtracted': lambda a, b: a - b,
        'multiplied': lambda a, b: a * b,
        'divided': lambda a, b: a / (b + 4.0),
        'the larger': paddle.maximum,
        'turned': lambda a, b: b + a,
        'added twice': lambda a, b: (a + b) + F.tanh(a),
    }.items()
}
OPTIONS: Sequence[Dict[str, Any]] = ({}, {'recompute': 'max'}, {'batch_size': 64})


def given_off(loss: Join,
              rows: Tuple[int, int],
              options: Optional[Dict[str, Any]] = None) -> List[bytes]:
    """What is fetched in each step, and the parameters after the last: of the untouched program, or as `options` have it."""
    paddle.seed(3)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        a, b = (static.data(name, [-1, WIDTH]) for name in 'ab')
        first, second = (F.tanh(static.nn.fc(each, WIDTH)) * 2.0 for each in (a, b))
        fetched = loss(first, second)
        paddle.optimizer.SGD(0.1).minimize(fetched)
    parameters = state_names(main)
    if options is not None:
        memory_optimize(main, fetch_list=[fetched], **options)
    with fresh_scope():
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        out = [
            executor.run(main, feed=_fed(rows, step), fetch_list=[fetched])[0]
            for step in range(STEPS)
        ]
        scope = static.global_scope()
        out += [np.array(scope.find_var(name).get_tensor()) for name in parameters]
    assert len(parameters) >= 4
    return [each.tobytes() for each in out]


def _fed(rows: Tuple[int, int], step: int) -> Dict[str, Any]:
    rng = np.random.RandomState(step)
    return {n: rng.randn(k, WIDTH).astype('float32') for n, k in zip('ab', rows)}
