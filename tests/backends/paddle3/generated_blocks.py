"""Random programs of Paddle 3 with loops and branches that are trained: lists, dropout, branches of two ways and more, branches in loops.

Untouched Paddle 3.3 cannot train all that can be written: a loop begins with what no gradient reads later, no two loops read one
weight, and what is trained is made outside of blocks.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, List, Optional

import paddle
import paddle.nn.functional as F
from paddle import static

from benchmarks.programs.case import Case, Options, drafting, make_optimizer
from tests.backends.paddle3.generated import WIDTH, Drawn

_ROWS = 6
Branch = Callable[[Any, Any], Any]


class _Blocks:

    def __init__(self, seed: int) -> None:
        self.drawn = Drawn(seed)
        self.random = self.drawn.random

    def weight(self) -> Any:
        return paddle.create_parameter([WIDTH, WIDTH], 'float32')

    def steps(self, start: Any, others: List[Any], count: int) -> Any:
        """What some ops make of `start`, without parameters of their own."""
        self.drawn.values = [start, *others]
        plain = (self.drawn.unary, self.drawn.binary, self.drawn.parts, self.drawn.turned,
                 self.drawn.dropped, self.drawn.spread)
        for _ in range(count):
            made = self.random.choices(plain, (4, 4, 2, 1, 1, 1))[0]()
            self.drawn.values.append(made)
        return F.tanh(self.drawn.values[-1] + start)

    def loop(self, start: Any, inside: Optional[Branch] = None) -> Any:
        weight, other, count = self.weight(), self.weight(), self.random.randint(2, 7)
        limit = paddle.full([], self.random.randint(2, 5), 'int64')

        def body(index: Any, state: Any) -> List[Any]:
            mixed = paddle.matmul(state, weight)
            if inside is not None:
                return [index + 1, inside(mixed, other)]
            return [index + 1, self.steps(mixed, [state], count)]

        first = [paddle.full([], 0, 'int64'), start]
        return static.nn.while_loop(lambda index, _: index < limit, body, first)[1]

    def branch(self, value: Any, weight: Any) -> Any:
        counts = [self.random.randint(1, 5) for _ in range(2)]
        bound = self.random.uniform(-0.05, 0.05)
        ways = (lambda: self.steps(paddle.matmul(value, weight), [value], counts[0]),
                lambda: self.steps(value, [], counts[1]))
        return static.nn.cond(paddle.mean(value) > bound, *ways)

    def switch(self, value: Any, weight: Any) -> Any:
        """Of some ways, which the data chooses: each but the last two is in a branch that has nothing else in it but the next one."""
        ways = [
            partial(self.steps, each, [value], self.random.randint(1, 4))
            for each in [paddle.matmul(value, weight)] + [value] * self.random.randint(2, 4)
        ]
        at = paddle.cast(paddle.abs(paddle.sum(value)) * 100.0, 'int32') % len(ways)
        return static.nn.switch_case(at, dict(enumerate(ways)))


def generated(seed: int) -> Case:
    """The same program for the same seed."""
    made = _Blocks(seed)
    with drafting(Options(static_batch=True, seed=seed % 1000 + 1), batch_size=_ROWS) as draft:
        value = static.nn.fc(draft.floats('x', [_ROWS, WIDTH]), WIDTH)
        for _ in range(made.random.randint(1, 2)):
            branch = made.random.choice((made.branch, made.switch))
            kind = made.random.choice(('loop', 'branch', 'branch in a loop'))
            if kind == 'branch':
                value = branch(value, made.weight())
            else:
                value = made.loop(static.nn.fc(value, WIDTH), branch if kind != 'loop' else None)
        loss = paddle.mean(value * value)
        make_optimizer(made.random.choice(('sgd', 'momentum'))).minimize(loss)
        return draft.case([loss])
