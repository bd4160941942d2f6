"""How good the order heuristics are: against exact search on small generated graphs, and on a large one for time.

    python -m benchmarks.orders [graphs of each kind]
"""
from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph, OpFacts, RegionKind, Size
from transpiler.passes.orders.exact_order import optimal_order
from transpiler.passes.orders.heuristics import HEURISTICS
from transpiler.passes.orders.order_problem import OrderProblem, region_problem
from transpiler.passes.orders.simulator import peak_bytes
from transpiler.passes.schedule import best_order
from transpiler.planning import plan
from transpiler.runtime import COLLECTING

MOST_OPS = 16
SIZES = (1, 1, 2, 4, 16)
BEST, POLISHED = 'best of them', 'with exact windows'


class Draft:
    """A graph of one block; values are numbered, sizes in units of 4 KiB."""

    def __init__(self, dice: random.Random) -> None:
        self.graph, self.dice = Graph(), dice
        self.graph.new_region(RegionKind.BLOCK)

    def value(self, **facts: object) -> int:
        size = Size.of(4096 * self.dice.choice(SIZES))
        return self.graph.new_value(f'v{len(self.graph.values)}', 0, size=size, **facts).id

    def op(self, kind: str, reads: Tuple[int, ...], writes: Tuple[int, ...]) -> None:
        in_place = ((0, 0),) if reads and self.dice.random() < 0.4 else ()
        self.graph.new_op(kind, 0, operands=reads, results=writes, facts=OpFacts(in_place=in_place))


def any_graph(dice: random.Random, ops: int) -> Graph:
    """Each op reads one to three of the values before it."""
    draft = Draft(dice)
    made = [draft.value(fed=True)]
    for _ in range(ops):
        reads = tuple(dice.sample(made, min(len(made), dice.choice((1, 1, 2, 3)))))
        made.append(draft.value())
        draft.op('op', reads, (made[-1],))
    return draft.graph


def branches(dice: random.Random, ops: int) -> Graph:
    """Branches from one input, in turns, and a sum of their ends (inference)."""
    draft = Draft(dice)
    source, width = draft.value(fed=True), dice.randint(2, 5)
    ends = [source] * width
    for i in range(ops - 1):
        made = draft.value()
        draft.op('op', (ends[i % width],), (made,))
        ends[i % width] = made
    draft.op('sum', tuple(dict.fromkeys(ends)), (draft.value(fetched=True),))
    return draft.graph


def training(dice: random.Random, ops: int) -> Graph:
    """Forward, backward, and all updates at the end, as append_backward leaves them."""
    draft = Draft(dice)
    layers = max(1, ops // 3)
    weights = [draft.value(persistable=True) for _ in range(layers)]
    kept = [draft.value(fed=True)]
    for weight in weights:
        kept.append(draft.value())
        draft.op('f', (kept[-2], weight), (kept[-1],))
    gradients, flowing = [], kept[-1]
    for weight, activation in zip(reversed(weights), reversed(kept[:-1])):
        back, own = draft.value(), draft.value()
        draft.op('f_grad', (flowing, activation, weight), (back, own))
        gradients.append(own)
        flowing = back
    for weight, gradient in zip(reversed(weights), gradients):
        draft.op('sgd', (weight, gradient), (weight,))
    return draft.graph


KINDS: Dict[str, Callable[[random.Random, int], Graph]] = {
    'any': any_graph,
    'branches': branches,
    'training': training,
}


@dataclass
class Score:
    """How often a heuristic found an optimum, and by how much of it it was off."""

    optimal: int = 0
    gaps: List[float] = field(default_factory=list)

    def add(self, peak: int, least: int) -> None:
        self.optimal += peak == least
        self.gaps.append(peak / least - 1)


def problem_of(graph: Graph) -> OrderProblem:
    return region_problem(graph, 0, Timeline(graph, COLLECTING, {}), {})


def compare(kind: str, graphs: int) -> Dict[str, Score]:
    """Scores by heuristic, of the best of them all, and of that with its windows polished."""
    scores = {name: Score() for name in (*HEURISTICS, BEST, POLISHED)}
    for seed in range(graphs):
        dice = random.Random(seed)
        problem = problem_of(KINDS[kind](dice, dice.randint(6, MOST_OPS)))
        order = optimal_order(problem)
        if order is None:
            continue
        least = peak_bytes(problem, order)
        peaks = {n: peak_bytes(problem, heuristic(problem)) for n, heuristic in HEURISTICS.items()}
        peaks[BEST] = min(peaks.values())
        peaks[POLISHED] = best_order(problem, HEURISTICS).peak
        for name, peak in peaks.items():
            scores[name].add(peak, least)
    return scores


def report(graphs: int) -> None:
    for kind in KINDS:
        scores = compare(kind, graphs)
        solved = len(scores['given'].gaps)
        print(f'{kind}: {solved} of {graphs} graphs of 6 to {MOST_OPS} ops solved exactly')
        for name, score in scores.items():
            mean, most = sum(score.gaps) / solved, max(score.gaps)
            print(f'  {name:24} optimal {score.optimal / solved:6.1%}   '
                  f'mean gap {mean:6.1%}   largest {most:6.1%}')


def time_planning(ops: int) -> None:
    """All passes on a training graph of about `ops` ops."""
    graph = training(random.Random(0), ops)
    started = time.perf_counter()
    decided = plan(graph, COLLECTING, {})
    taken = time.perf_counter() - started
    print(f'{len(graph.ops)} ops planned in {taken:.1f} s: '
          f'{decided.before.peak_bytes} to {decided.after.peak_bytes} bytes')


if __name__ == '__main__':
    report(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    time_planning(10_000)
