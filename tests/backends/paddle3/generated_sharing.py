"""Random programs of Paddle 3 that train nothing, in which loops and branches share what they read: a loop begins with what others read
or begin with, too, and anything may be fetched."""
from __future__ import annotations

from typing import Any, List, Tuple

import paddle
import paddle.nn.functional as F
from paddle import static

from benchmarks.programs.case import Case, Options, drafting
from tests.backends.paddle3.generated import WIDTH, Drawn

_ROWS, _DEEPEST = 6, 2


class _Sharing:

    def __init__(self, seed: int) -> None:
        self.drawn = Drawn(seed)
        self.random = self.drawn.random

    def more(self, values: List[Any], depth: int) -> List[Any]:
        """`values`, and what one more op, loop or branch makes of them."""
        kind = self.random.random()
        if kind < 0.25 and depth < _DEEPEST:
            return [*values, *self.loop(values, depth)]
        if kind < 0.45 and depth < _DEEPEST:
            return [*values, self.branch(values, depth)]
        self.drawn.values = values
        plain = (self.drawn.unary, self.drawn.binary, self.drawn.parts, self.drawn.turned)
        return [*values, self.random.choice(plain)()]

    def loop(self, values: List[Any], depth: int) -> List[Any]:
        start = [self.random.choice(values) for _ in range(self.random.randint(1, 3))]
        named = self.random.sample(values, self.random.randint(0, min(2, len(values))))
        limit, count = self.random.randint(1, 4), self.random.randint(1, 4)

        def body(index: Any, *states: Any) -> List[Any]:
            made = [*states, *named]
            for _ in range(count):
                made = self.more(made, depth + 1)
            return [index + 1, *(F.tanh(self.random.choice(made)) for _ in states)]

        first = [paddle.zeros([1], 'int64'), *start]
        return list(static.nn.while_loop(lambda index, *_: index < limit, body, first)[1:])

    def branch(self, values: List[Any], depth: int) -> Any:
        counts = [self.random.randint(1, 4) for _ in range(2)]
        bound, tested = self.random.uniform(-0.1, 0.1), self.random.choice(values)

        def way(count: int) -> Any:
            made = values[-6:]
            for _ in range(count):
                made = self.more(made, depth + 1)
            return F.tanh(made[-1])

        ways = [lambda count=count: way(count) for count in counts]
        return static.nn.cond(paddle.mean(tested) > bound, *ways)


def generated(seed: int) -> Tuple[Case, List[Any]]:
    """The same program for the same seed, which fetches some of its values; and others that it has."""
    made = _Sharing(seed)
    with drafting(Options(static_batch=True, inference=True, seed=seed % 1000 + 1),
                  batch_size=_ROWS) as draft:
        values = [static.nn.fc(draft.floats('x', [_ROWS, WIDTH]), WIDTH)]
        for _ in range(made.random.randint(3, 10)):
            values = made.more(values, 0)
        fetched = [paddle.mean(values[-1]), *made.random.sample(values, min(3, len(values)))]
        return draft.case(fetched, training=False), made.random.sample(values, min(5, len(values)))
