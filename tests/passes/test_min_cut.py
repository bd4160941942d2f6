"""The minimum cut of small networks, against all ways to cut them."""
from __future__ import annotations

import random
from itertools import product
from typing import List, Tuple

import pytest

from transpiler.passes.min_cut import FIRST, INFINITE, SINK, SOURCE, Cut, min_cut

Arc = Tuple[int, int, int]


def network(seed: int) -> Tuple[int, List[Arc]]:
    """Up to five inner nodes; some arcs that are never cut, but no way of such arcs alone."""
    dice = random.Random(seed)
    nodes = FIRST + dice.randint(1, 5)
    inner = range(FIRST, nodes)
    arcs = [(SOURCE, n, dice.randint(1, 9)) for n in inner if dice.random() < 0.7]
    arcs += [(n, SINK, dice.randint(1, 9)) for n in inner if dice.random() < 0.7]
    arcs += [(a, b, INFINITE if dice.random() < 0.3 else dice.randint(1, 9))
             for a in inner
             for b in inner
             if a != b and dice.random() < 0.4]
    return nodes, arcs or [(SOURCE, FIRST, 1), (FIRST, SINK, 1)]


def cut_by(arcs: List[Arc], before: set) -> float:
    through = [c for a, b, c in arcs if a in before and b not in before]
    return float('inf') if INFINITE in through else sum(through)


@pytest.mark.parametrize('seed', range(60))
def test_no_way_to_cut_is_cheaper(seed: int) -> None:
    nodes, arcs = network(seed)
    found: Cut = min_cut(*zip(*arcs))
    ways = [{SOURCE, *(n for n, chosen in zip(range(FIRST, nodes), choice) if chosen)
            } for choice in product((False, True), repeat=nodes - FIRST)]
    assert found.value == min(cut_by(arcs, way) for way in ways)
    everybody = {n for arc in arcs for n in arc[:2]} | {SOURCE, SINK}
    assert cut_by(arcs, found.before) == cut_by(arcs, everybody - found.behind) == found.value
    assert not found.before & found.behind
