from __future__ import annotations

import numpy as np

from tests.assignment.checker import smallest_assignment, topological_orders
from tests.assignment.generate import random_net, random_problem
from transpiler.assignment import live_max_bytes, live_ranges, parallel_safe, predecessors
from transpiler.assignment.bounds import antichain_profile, sharing_profile


def alive(ranges, sizes, position):
    return sorted((s for (f, l), s in zip(ranges.tolist(), sizes.tolist()) if f <= position <= l),
                  reverse=True)


def test_live_max_is_the_largest_sum_alive_at_a_position():
    generator = np.random.RandomState(1)
    for _ in range(200):
        ranges, sizes = random_problem(generator, generator.randint(1, 15))
        expected = max(sum(alive(ranges, sizes, t)) for t in range(ranges.max() + 1))
        assert live_max_bytes(ranges, sizes) == expected


def test_profile_is_the_kth_largest_size_alive_at_its_worst_position():
    generator = np.random.RandomState(2)
    for _ in range(200):
        ranges, sizes = random_problem(generator, generator.randint(1, 15))
        columns = [alive(ranges, sizes, t) for t in range(ranges.max() + 1)]
        longest = max(map(len, columns))
        expected = [max(c[k] for c in columns if len(c) > k) for k in range(longest)]
        assert sharing_profile(ranges, sizes).tolist() == expected


def largest_antichain(conflicts, members):
    best = 0
    for mask in range(1 << len(members)):
        chosen = [m for k, m in enumerate(members) if mask >> k & 1]
        if len(chosen) > best and all(conflicts[a, b] for a in chosen for b in chosen if a != b):
            best = len(chosen)
    return best


def test_antichain_profile_counts_what_conflicts_pairwise_at_every_size():
    generator = np.random.RandomState(3)
    for _ in range(40):
        net = random_net(generator, 9)
        blobs, ranges = live_ranges(net)
        order = np.argsort(ranges[:, 0], kind="stable")
        conflicts = ~parallel_safe(net)[np.ix_(order, order)]
        sizes = net.sizes[blobs][order]
        profile = antichain_profile(conflicts, sizes)
        for size in set(sizes.tolist()):
            members = [i for i in range(len(sizes)) if sizes[i] >= size]
            assert (profile >= size).sum() == largest_antichain(conflicts, members)


def test_the_checker_sees_every_topological_order():
    assert len(list(topological_orders([[], [], [0, 1]]))) == 2
    net = random_net(np.random.RandomState(4), 4)
    assert [0, 1, 2, 3] in list(topological_orders(predecessors(net)))


def test_the_bound_is_not_always_reached():
    # Two long and two short in a path: sharing the long ones leaves both short ones alone.
    ranges = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    sizes = np.array([10, 1, 1, 10])
    assert sharing_profile(ranges, sizes).sum() == 11
    assert smallest_assignment(ranges, sizes) == 12
