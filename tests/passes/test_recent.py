"""What goes by itself where each value that is released takes ops of its own: what is large, and died lately."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Dict, List, Tuple

import pytest

from tests.graphs import Draft
from transpiler.analysis.timeline import Timeline
from transpiler.ir import RELEASE, Graph, Value
from transpiler.passes.context import PassContext
from transpiler.passes.releases import in_time
from transpiler.passes.releases.in_time import release_recent, release_surely
from transpiler.runtime import COLLECTING

_EACH = replace(COLLECTING, ops_per_release=2, in_place=frozenset())
_TOGETHER = replace(_EACH, ops_per_release=0)
_SMALL, _LARGE = 2048, 1 << 20  # rows; a large one takes about a millisecond
_TINY = _SMALL * 4  # bytes


def trained(seed: int, layers: int = 40) -> Graph:
    """A chain and its gradient, which reads what the chain made; some layers are tiny."""
    chance = random.Random(seed)
    rows = [chance.choice((_SMALL, _LARGE, 2 * _LARGE, 3 * _LARGE)) for _ in range(layers)]
    draft = Draft()
    draft.value('h0', fed=True)
    for i, size in enumerate(rows, 1):
        draft.value(f'h{i}', size)
        draft.op('exp', f'h{i - 1}', f'h{i}')
    grad = f'h{layers}'
    for i in range(layers, 0, -1):
        draft.value(f'g{i}', rows[i - 1])
        draft.op('mul', f'{grad} h{i}', f'g{i}')
        grad = f'g{i}'
    draft.value('loss', fetched=True)
    draft.op('mean', grad, 'loss')
    return draft.graph


def released_at(graph: Graph) -> Dict[int, int]:
    """By storage, before how many ops of the others it is released."""
    found: Dict[int, int] = {}
    others = 0
    for op in graph.region_ops(0):
        if op.kind == RELEASE:
            found.update((graph.values[v].storage, others) for v in op.writes())
        else:
            others += 1
    return found


def planned(seed: int) -> Tuple[PassContext, Graph, Graph]:
    graph = trained(seed)
    context = PassContext(_EACH, {})
    return context, graph, release_recent(graph.copy(), context)


@pytest.mark.parametrize('seed', range(10))
def test_the_peak_is_kept_by_a_collector_that_is_as_late_as_is_reckoned_with(seed: int) -> None:
    context, graph, after = planned(seed)
    timeline = Timeline(graph, _EACH, {})
    ops = list(graph.region_ops(0))
    ends: List[float] = []
    for op in ops:
        ends.append(context.cost.seconds(graph, op, {}) + (ends[-1] if ends else 0.0))
    released = released_at(after)
    there = [0] * len(ops)
    for storage, lifetime in timeline.lifetimes.by_region[0].items():
        for at in range(lifetime.first, len(ops)):
            begins = ends[at - 1] if at else 0.0
            late = begins - ends[lifetime.last] <= in_time._LATE_SECONDS
            if at <= lifetime.last or late and released.get(storage, len(ops)) > at:
                there[at] += timeline.evaluate(lifetime.size)
    tiny = sum(size for size in map(_bytes, graph.values) if size <= _TINY)
    assert max(there) <= timeline.peak_bytes + tiny
    assert released


def _bytes(value: Value) -> int:
    return value.size.evaluate({}) if value.size is not None else 0


@pytest.mark.parametrize('seed', range(10))
def test_what_is_tiny_or_died_long_ago_is_left_to_the_collector(seed: int) -> None:
    _, graph, after = planned(seed)
    all_of_them = release_surely(graph.copy(), PassContext(_EACH, {}))
    few, many = released_at(after), released_at(all_of_them)
    assert few.keys() < many.keys()
    sizes = {v.storage: _bytes(v) for v in graph.values}
    assert min(sizes[s] for s in few) > _TINY >= min(sizes[s] for s in many)


def test_of_a_runtime_that_releases_many_by_one_op_all_go() -> None:
    graph = trained(0)
    recent, surely = (rewrite(graph.copy(), PassContext(_TOGETHER, {}))
                      for rewrite in (release_recent, release_surely))
    assert released_at(recent) == released_at(surely) and released_at(surely)
