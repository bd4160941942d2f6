from __future__ import annotations

import numpy as np
import pytest

from benchmarks.memonger_net import check_plan
from tests.assignment.generate import net_document, random_net
from transpiler.assignment import (Net, NetOp, assign, best_order, check_order, critical_path,
                                   heuristics, live_max_bytes, live_ranges, pack, predecessors,
                                   sharing_bound)
from transpiler.assignment.orders import cost_of, improved


def net_of(*ops, sizes):
    return Net(tuple(NetOp(reads, writes) for reads, writes in ops), np.array(sizes),
               np.ones(len(sizes), dtype=bool))


def test_a_reader_before_an_in_place_op_stays_before_it():
    # memonger moves the reader (op 1) behind the op that overwrites x in place (op 2).
    net = net_of(((), (0,)), ((0,), (1,)), ((0,), (0,)), ((0, 1), (2,)), sizes=[4, 4, 4])
    assert predecessors(net) == [[], [0], [0, 1], [1, 2]]


def test_rewriting_a_blob_waits_for_the_readers_of_its_old_value():
    net = net_of(((), (0,)), ((0,), (1,)), ((), (0,)), ((0,), (2,)), sizes=[4, 4, 4])
    assert predecessors(net)[2] == [0, 1]


def test_what_is_read_before_it_is_written_lives_throughout():
    net = net_of(((), (1,)), ((0,), (2,)), ((2,), (0,)), ((1,), (3,)), sizes=[4, 4, 4, 4])
    assert live_ranges(net)[1][0].tolist() == [0, 3]


@pytest.mark.parametrize("name", sorted(heuristics()))
def test_every_order_respects_every_hazard(name):
    generator = np.random.RandomState(19)
    for _ in range(60):
        net = random_net(generator, generator.randint(1, 40))
        check_order(heuristics()[name](net), predecessors(net))


def test_hill_climbing_respects_every_hazard_and_never_costs_more():
    generator = np.random.RandomState(20)
    for _ in range(10):
        net = random_net(generator, 25)
        order = improved(net, list(range(25)), sharing_bound, 150)
        check_order(order, predecessors(net))
        assert cost_of(net, order, sharing_bound) <= cost_of(net, range(25), sharing_bound)


def test_the_best_order_is_never_worse_than_any_heuristic():
    generator = np.random.RandomState(21)
    for judge in (sharing_bound, live_max_bytes):
        for _ in range(15):
            net = random_net(generator, 30)
            best = best_order(net, judge, rounds=50)
            assert best.cost == cost_of(net, best.order, judge)
            for name, heuristic in heuristics().items():
                assert best.cost <= cost_of(net, heuristic(net), judge), name


def test_plans_in_new_orders_compute_the_same():
    generator = np.random.RandomState(22)
    for _ in range(60):
        net = random_net(generator, generator.randint(2, 25))
        order = best_order(net, rounds=30).order
        blobs, ranges = live_ranges(net, order)
        ours, packing = assign(ranges, net.sizes[blobs]), pack(ranges, net.sizes[blobs])
        document = net_document(net, "random")
        # A blob that no op touches needs no memory: the checker wants every blob named.
        document["blobs"] = {
            name: info
            for i, (name, info) in enumerate(document["blobs"].items())
            if i in blobs or not net.movable[i]
        }
        names = ["blob{}".format(b) for b in blobs]
        plan = {
            "order": list(order),
            "storage": dict(zip(names, ours.storages.tolist())),
            "offset": dict(zip(names, packing.offsets.tolist())),
            "arena_bytes": packing.height
        }
        assert check_plan(document, plan) == ours.total_bytes


def test_an_order_that_breaks_a_dependence_is_refused():
    with pytest.raises(ValueError, match="depends on"):
        check_order([1, 0], [[], [0]])
    with pytest.raises(ValueError, match="exactly once"):
        check_order([0, 0], [[], [0]])


def test_sharing_lengthens_the_critical_path_where_it_serialises():
    net = net_of(((), (0,)), ((0,), (1,)), ((), (2,)), ((2,), (3,)), sizes=[4] * 4)
    assert critical_path(net, range(4), np.arange(4)) == 2
    assert critical_path(net, range(4), np.array([0, 1, 0, 2])) == 4


def test_decoding_right_before_use_needs_one_buffer_for_all_weights():
    # Eight weights decoded up front, then used one after the other.
    decode = [((), (i,)) for i in range(8)]
    use = [((i,) + ((7 + i,) if i else ()), (8 + i,)) for i in range(8)]
    net = net_of(*decode, *use, sizes=[100] * 8 + [1] * 8)
    assert cost_of(net, range(16), sharing_bound) >= 800
    assert best_order(net).cost < 210
