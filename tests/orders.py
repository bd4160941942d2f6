"""Small ordering problems, and what is true of them, found the slow way."""
from __future__ import annotations

import random
from itertools import permutations
from typing import Iterator, List, Sequence, Tuple

from tests.graphs import Draft
from transpiler.analysis.dependences import Dependences, dependences
from transpiler.analysis.timeline import Timeline
from transpiler.ir import Graph
from transpiler.passes.orders.order_problem import Order, OrderProblem, region_problem
from transpiler.runtime import COLLECTING


def straight_graph(seed: int, ops: int, training: bool = False) -> Graph:
    """One block of `ops` ops that read up to three earlier values; sizes of 1 to 16 units, some ops in place."""
    dice, draft = random.Random(seed), Draft()
    draft.value('x', fed=True)
    draft.value('w', persistable=True, parameter=True)
    names = ['x']
    for i in range(ops):
        name = f'v{i}'
        draft.value(name, 1024 * dice.choice((1, 1, 2, 4, 16)), fetched=i == ops - 1)
        reads = dice.sample(names, min(len(names), dice.choice((1, 1, 2, 3))))
        if training and dice.random() < 0.2:
            draft.op('sgd', f'w {reads[0]}', 'w')
            continue
        draft.op('op', ' '.join(reads), name, in_place=((0, 0),) if dice.random() < 0.4 else ())
        names.append(name)
    return draft.graph


def net_with_updates(sizes: Sequence[Tuple[int, int]], steps: int) -> Graph:
    """Layers by the units of their weights, and of what they read. To each gradient so many terms of a unit are added before the
    update, each made of the weight."""
    draft = Draft()
    draft.value('h0', sizes[0][1] * 1024, fed=True)
    for layer, (units, _) in enumerate(sizes):
        made = sizes[min(layer + 1, len(sizes) - 1)][1] * 1024
        draft.value(f'w{layer}', units * 1024, persistable=True, parameter=True)
        draft.value(f'h{layer + 1}', made)
        draft.value(f'dh{layer + 1}', made)
        draft.op('product', f'h{layer} w{layer}', f'h{layer + 1}')
    last = len(sizes)
    draft.op('loss', f'h{last}', f'dh{last}')
    for layer in reversed(range(last)):
        _update(draft, layer, sizes[layer][0] * 1024, steps)
        if layer:
            draft.op('gradient', f'w{layer} dh{layer + 1}', f'dh{layer}')
    return draft.graph


def _update(draft: Draft, layer: int, rows: int, steps: int) -> None:
    weight, total = f'w{layer}', f'dw{layer}'
    draft.value(total, rows)
    draft.op('gradient', f'h{layer} dh{layer + 1}', total)
    for step in range(steps):
        made = [f'rows{layer}.{step}', f'term{layer}.{step}', f'sum{layer}']
        draft.values(' '.join(made[:2]))
        if not step:
            draft.value(made[2], rows)
        draft.op('rows', weight, made[0])
        draft.op('scale', made[0], made[1], in_place=((0, 0),))
        draft.op('add', f'{total} {made[1]}', made[2], in_place=((0, 0),))
        total = made[2]
    draft.op('sgd', f'{weight} {total}', weight)


def allows(found: Dependences, order: Order) -> bool:
    """Whether `order` has every op once, and each after all that it depends on."""
    position = {op: at for at, op in enumerate(order)}
    if sorted(position) != list(range(len(found.ops))):
        return False
    return all(position[p] < position[i] for i, ps in enumerate(found.before) for p in ps)


def problem_of(graph: Graph, region: int = 0, **dims: int) -> OrderProblem:
    timeline = Timeline(graph, COLLECTING, dims)
    return region_problem(graph, region, timeline, {r.id: 0 for r in graph.regions})


def reordered(graph: Graph, order: Order, region: int = 0) -> Graph:
    copy = graph.copy()
    copy.regions[region].ops = [graph.regions[region].ops[i] for i in order]
    return copy


def topological_orders(before: List[List[int]]) -> Iterator[Tuple[int, ...]]:
    """All of them; for at most eight ops or so."""
    for order in permutations(range(len(before))):
        position = {op: at for at, op in enumerate(order)}
        if all(position[p] < position[op] for op, earlier in enumerate(before) for p in earlier):
            yield order


def random_order(graph: Graph, region: int, dice: random.Random) -> Order:
    """A topological order, each ready op as likely as the next."""
    found = dependences(graph, region)
    missing = [len(ops) for ops in found.before]
    ready = [op for op, count in enumerate(missing) if not count]
    order: Order = []
    while ready:
        op = ready.pop(dice.randrange(len(ready)))
        order.append(op)
        for other in found.after[op]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    return order
