"""Small branchy programs that train nothing, and the least that any way to run them needs, found by trying all of them.

An op may run again at any time, and what is in memory may go at any time. Nothing here is shared with `transpiler`, but the
graphs and the price of an op.
"""
from __future__ import annotations

import heapq
import random
from typing import Dict, FrozenSet, Iterator, List, Optional, Tuple

from tests.graphs import Draft
from transpiler.ir import Graph, Op

Values = FrozenSet[int]
# What is in memory after one more run of an op, and what that needs.
_Run = Tuple[Values, int]


def branchy(seed: int, ops: int) -> Graph:
    """Ops that read up to three of what is there, mostly of what was made last; some work in place. What nobody reads is fetched."""
    draw, draft = random.Random(seed), Draft()
    draft.value('x', 1024 * draw.choice((1, 1, 2)), fed=True)
    names = ['x']
    for number in range(ops):
        pool = names[-4:] if draw.random() < 0.6 else names
        reads = draw.sample(pool, min(len(pool), draw.choice((1, 1, 2, 2, 3))))
        rows, facts = 1024 * draw.choice((1, 1, 2, 3, 4)), {}
        same = draft.graph.values[draft.id(reads[0])]
        if draw.random() < 0.3 and not same.fed:
            rows, facts = same.shape[0].evaluate({}), {'in_place': ((0, 0),)}
        draft.value(f'v{number}', rows)
        draft.op(draw.choice(('exp', 'sin', 'cos')), ' '.join(reads), f'v{number}', **facts)
        names.append(f'v{number}')
    read = {v for op in draft.graph.ops for v in op.operands}
    for value in draft.graph.values:
        value.fetched = value.id not in read and not value.fed
    return draft.graph


class Trial:
    """All ways to run `graph`. What is fed stays, and so does what is fetched once it is there."""

    def __init__(self, graph: Graph) -> None:
        self.ops: List[Op] = list(graph.region_ops(0))
        self._sizes = {v.id: v.size.evaluate({}) for v in graph.values}
        self._stays = frozenset(v.id for v in graph.values if v.fed or v.fetched)
        self._wanted = frozenset(v.id for v in graph.values if v.fetched)
        self._fed = frozenset(v.id for v in graph.values if v.fed)

    def least_peak(self) -> int:
        """Bytes, in whichever order, with whatever runs again."""
        best = {self._fed: self._bytes(self._fed)}
        queue = [(best[self._fed], 0, self._fed)]
        while queue:
            peak, _, live = heapq.heappop(queue)
            if self._wanted <= live:
                return peak
            steps = [(after, max(peak, during))
                     for op in self.ops
                     for after, during in self._runs(op, live)]
            steps += [(live - {v}, peak) for v in live - self._stays]
            for after, reached in steps:
                if reached < best.get(after, reached + 1):
                    best[after] = reached
                    heapq.heappush(queue, (reached, len(best), after))
        raise AssertionError('what is fetched can be made')

    def least_seconds(self, limit: int, seconds: Dict[int, float]) -> Optional[float]:
        """What takes least extra time in at most `limit` bytes, in the order that the program has; None if nothing does.

        `seconds` are by position of an op."""
        start = (0, self._fed)
        best, queue = {start: 0.0}, [(0.0, 0, start)]
        while queue:
            spent, _, (at, live) = heapq.heappop(queue)
            if at == len(self.ops):
                return spent
            steps = [((at, live - {v}), spent) for v in live - self._stays]
            for position in range(at + 1):
                price = seconds[position] if position < at else 0.0
                steps += [((at + (position == at), after), spent + price)
                          for after, during in self._runs(self.ops[position], live)
                          if during <= limit]
            for state, price in steps:
                if price < best.get(state, price + 1):
                    best[state] = price
                    heapq.heappush(queue, (price, len(best), state))
        return None

    def _runs(self, op: Op, live: Values) -> Iterator[_Run]:
        (result,) = op.results
        if result in live or not live.issuperset(op.operands):
            return
        made = self._bytes(live) + self._sizes[result]
        yield live | {result}, made
        for operand, _ in op.facts.in_place:
            source = op.operands[operand]
            if source not in self._stays and result not in self._stays:  # nor is what is fetched
                yield live - {source} | {result}, made - self._sizes[source]

    def _bytes(self, live: Values) -> int:
        return sum(self._sizes[v] for v in live)
