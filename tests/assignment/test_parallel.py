from __future__ import annotations

import numpy as np

from tests.assignment.checker import check_storages, smallest_assignment, topological_orders
from tests.assignment.generate import random_net
from transpiler.assignment import (assign, critical_path, live_ranges, parallel_safe,
                                   parallel_safe_bound, predecessors)


def uses(net, blob):
    return [i for i, op in enumerate(net.ops) if blob in op.reads + op.writes]


def safe_by_brute_force(net, blobs):
    """Pairs whose uses are all on the same side of each other in every topological order."""
    orders = list(topological_orders(predecessors(net)))
    result = np.zeros((len(blobs), len(blobs)), dtype=bool)
    for i, a in enumerate(blobs):
        for j, b in enumerate(blobs):
            result[i, j] = i != j and all(
                max(order.index(op)
                    for op in uses(net, a)) < min(order.index(op)
                                                  for op in uses(net, b))
                for order in orders)
    return result | result.T


def test_the_relation_is_what_every_topological_order_allows():
    generator = np.random.RandomState(23)
    for _ in range(60):
        net = random_net(generator, generator.randint(2, 8))
        blobs, _ = live_ranges(net)
        assert (parallel_safe(net) == safe_by_brute_force(net, blobs.tolist())).all()


def test_sharing_never_lengthens_the_critical_path():
    generator = np.random.RandomState(24)
    for _ in range(60):
        net = random_net(generator, 25)
        blobs, ranges = live_ranges(net)
        result = assign(ranges, net.sizes[blobs], may_share=parallel_safe(net), seconds=1)
        labels = np.arange(len(net.sizes)) + len(net.sizes)
        before = critical_path(net, range(25), labels)
        labels[blobs] = result.storages
        assert critical_path(net, range(25), labels) == before


def test_the_bound_holds_and_the_result_is_optimal_on_small_nets():
    generator = np.random.RandomState(25)
    reached = 0
    for _ in range(60):
        net = random_net(generator, 8)
        blobs, ranges = live_ranges(net)
        sizes, safe = net.sizes[blobs], parallel_safe(net)
        forbidden = {(int(i), int(j)) for i, j in zip(*np.nonzero(~safe)) if i != j}
        bound = parallel_safe_bound(net)
        result = assign(ranges, sizes, may_share=safe, bound=bound)
        smallest = smallest_assignment(ranges, sizes, forbidden)
        assert check_storages(ranges, sizes, result.storages, forbidden) == smallest
        assert bound <= smallest == result.total_bytes and result.proved
        reached += bound == smallest
    assert reached > 50
