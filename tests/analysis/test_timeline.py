"""Live bytes at each op, worked out by hand on small graphs, and what must hold on all graphs."""
from __future__ import annotations

from dataclasses import replace
from operator import sub
from typing import Dict, List

import pytest

from tests.graphs import Draft, dims_of, generated
from transpiler.analysis.timeline import Timeline
from transpiler.analysis.workspace import bytes_with_workspaces
from transpiler.ir import FORGET, RELEASE, Graph, RegionKind, Size
from transpiler.runtime import COLLECTING, IDEAL, RETAINING, Runtime

COLLECTING, RETAINING, IDEAL = (COLLECTING, RETAINING, IDEAL)
UNIT = 4096  # bytes of the 1024 float32 rows that a draft's values have by default
SEEDS = range(60)


def profile(draft: Draft, model: Runtime, **dims: int) -> List[int]:
    """Live units at each op, in the order in which they run."""
    points = Timeline(draft.graph, model, dims).points
    assert all(point.bytes % UNIT == 0 for point in points)
    return [point.bytes // UNIT for point in points]


def chain(**facts: object) -> Draft:
    """a -> b -> c -> d, one op each; d is fetched."""
    draft = Draft()
    draft.values('a b c')
    draft.value('d', fetched=True)
    draft.op('fill', '', 'a')
    for source, target in ('ab', 'bc', 'cd'):
        draft.op('op', source, target, **facts)
    return draft


def test_collecting_frees_after_the_last_use() -> None:
    assert profile(chain(), COLLECTING) == [1, 2, 2, 2]


def test_retaining_holds_from_run_to_run() -> None:
    assert profile(chain(), RETAINING) == [4, 4, 4, 4]


def test_retaining_holds_two_buffers_where_the_first_of_two_names_of_one_is_emptied() -> None:
    """The other still has the older one when the first makes a new one, until that is handed on to it."""
    draft = Draft()
    draft.values('a b c d')
    draft.op('before', '', 'a')
    draft.op(FORGET, '', 'b', side_effect=True)
    draft.op('make', 'a', 'b')
    draft.op('read', 'b', 'd')
    draft.op('work', 'b', 'c', in_place=((0, 0),))
    draft.op('after', 'c', 'd')
    assert profile(draft, RETAINING) == [3, 3, 4, 4, 3, 3]


def test_ideal_holds_what_will_be_read_and_no_more() -> None:
    assert profile(chain(), IDEAL) == [1, 2, 2, 2]


def test_an_op_that_works_in_place_adds_nothing_but_to_fetched_values() -> None:
    in_place = chain(in_place=((0, 0),))
    assert profile(in_place, COLLECTING) == [1, 1, 1, 2]
    assert profile(in_place, RETAINING) == [2, 2, 2, 2]


def test_an_operand_that_is_read_again_is_not_given_away() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b', in_place=((0, 0),))
    draft.op('op', 'a b', 'c', in_place=((0, 0),))
    assert profile(draft, COLLECTING) == [1, 2, 2]


def test_a_result_that_is_released_later_gets_no_buffer_by_itself() -> None:
    draft = chain(in_place=((0, 0),))
    draft.op(RELEASE, '', 'c', side_effect=True)
    assert profile(draft, COLLECTING) == [1, 1, 2, 2, 2]


def test_a_result_that_shares_its_operands_buffer_adds_nothing() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')
    draft.op('detach', 'a', 'b', aliases=True)
    draft.op('op', 'a', 'c')
    draft.op('op', 'b', '')
    assert profile(draft, COLLECTING) == [1, 1, 2, 1]
    assert profile(draft, RETAINING) == [2, 2, 2, 2]


def test_an_operand_named_twice_is_not_given_away() -> None:
    draft = Draft()
    draft.values('a b')
    draft.op('fill', '', 'a')
    draft.op('op', 'a a', 'b', in_place=((0, 0),))
    assert profile(draft, COLLECTING) == [1, 2]


def test_a_larger_result_takes_no_smaller_operand_over() -> None:
    draft = Draft()
    draft.value('a')
    draft.value('b', 2048)
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b', in_place=((0, 0),))
    assert profile(draft, COLLECTING) == [1, 3]


def test_a_fed_value_exists_before_its_first_use() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b')
    draft.op('fill', '', 'a')
    draft.op('op', 'x', 'b')
    assert profile(draft, COLLECTING) == [2, 2]


def test_persistable_memory_is_resting_and_not_counted() -> None:
    draft = Draft()
    draft.value('w', persistable=True)
    draft.value('a')
    draft.op('op', 'w', 'a')
    draft.op('sgd', 'w a', 'w')
    assert profile(draft, COLLECTING) == [1, 1]


def test_a_reader_of_the_shape_keeps_no_data() -> None:
    draft = Draft()
    draft.values('a b c d')
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b')
    draft.op('op', 'b', 'c')
    draft.op('like', 'a c', 'd', shape_only=frozenset({0}))
    assert profile(draft, COLLECTING) == [1, 2, 2, 2]


def test_two_values_in_one_storage_count_once_at_the_size_of_the_larger() -> None:
    draft = Draft()
    draft.value('a')
    draft.value('b', 2048)
    draft.value('c', 2048)
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b')
    draft.op('op', 'b', 'c')
    draft.graph.values[draft.id('c')].storage = draft.id('a')
    assert profile(draft, COLLECTING) == [2, 4, 4]


def test_a_gap_between_tenants_is_bridged_by_collecting() -> None:
    """Why renaming can raise the peak where the executor collects (runtime-facts.md)."""
    draft = Draft()
    draft.value('a', 80 * 1024)
    draft.value('b', 200 * 1024)
    draft.value('c', 80 * 1024)
    draft.op('fill', '', 'a')
    draft.op('reduce', 'a', 'b')
    draft.op('free', 'b', '')
    draft.op('fill', '', 'c')
    plain = Timeline(draft.graph, COLLECTING, {}).peak_bytes
    draft.graph.values[draft.id('c')].storage = draft.id('a')
    assert Timeline(draft.graph, COLLECTING, {}).peak_bytes == plain == 280 * UNIT
    assert profile(draft, COLLECTING) == [80, 280, 280, 80]


# ---------------------------------------------------------------------------------------------------
# Loops


def loop(keeps_scopes: bool, gradient: bool) -> Draft:
    """h = tanh(mul(h)) for T trips; `inner` and `scratch` are the body's own, the gradient reads `inner`."""
    draft = Draft()
    draft.values('h g')
    draft.op('fill', '', 'h')
    op = draft.op('while', 'h', 'h')
    body = draft.region(op, RegionKind.LOOP, trips=Size.dim('T'), keeps_scopes=keeps_scopes)
    draft.values('inner scratch', region=body)
    draft.op('mul', 'h', 'inner', body)
    draft.op('tanh', 'inner', 'scratch', body)
    draft.op('assign', 'scratch', 'h', body)
    draft.op('fill', '', 'g')
    if gradient:
        grad = draft.op('while_grad', 'h g', 'g')
        back = draft.region(grad, RegionKind.LOOP_GRADIENT, forward=body, trips=Size.dim('T'))
        draft.value('d', region=back)
        draft.op('mul_grad', 'inner g', 'd', back)
        draft.op('assign', 'd', 'g', back)
        draft.op('last', 'g', '')
    else:
        draft.op('last', 'g h', '')
    return draft


def test_a_loop_that_keeps_nothing_needs_one_trip_of_memory() -> None:
    #                                             fill while mul tanh assign fill last
    for trips in (1, 2, 50):
        assert profile(loop(False, False), COLLECTING, T=trips) == [1, 1, 2, 3, 2, 2, 2]


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_what_the_gradient_reads_is_kept_once_a_trip(trips: int) -> None:
    earlier, all_trips = trips - 1, trips
    assert profile(loop(True, True), COLLECTING, T=trips) == [
        1,  # fill h
        1,  # while
        2 + earlier,  # mul: h, inner
        3 + earlier,  # tanh: h, inner, scratch
        3 + earlier,  # assign: inner is kept
        2 + all_trips,  # fill g: h, g and all scopes
        2 + all_trips,  # while_grad
        3 + all_trips,  # mul_grad: d beside h and g
        3 + all_trips,  # assign
        1,  # the scopes are gone
    ]


@pytest.mark.parametrize('trips', [1, 2, 5, 50])
def test_a_collector_may_be_four_trips_behind_but_not_with_what_is_released(trips: int) -> None:
    draft = loop(False, False)
    late = min(trips - 1, 4) * 2  # inner, scratch
    assert Timeline(draft.graph, COLLECTING, {'T': trips}).lagging_peak_bytes == (3 + late) * UNIT
    draft.op(RELEASE, '', 'inner scratch', 1)
    assert Timeline(draft.graph, COLLECTING, {'T': trips}).lagging_peak_bytes == 3 * UNIT


def test_kept_per_trip_is_what_the_gradient_reads() -> None:
    timeline = Timeline(loop(True, True).graph, COLLECTING, {'T': 9})
    assert timeline.kept_per_trip(1) == UNIT
    assert Timeline(loop(False, False).graph, COLLECTING, {'T': 9}).kept_per_trip(1) == 0


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_retaining_keeps_all_that_a_trip_made(trips: int) -> None:
    draft = loop(True, True)
    timeline = Timeline(draft.graph, RETAINING, {'T': trips})
    assert timeline.kept_per_trip(1) == 2 * UNIT
    at = {draft.graph.ops[point.op].kind: point.bytes // UNIT for point in timeline.points}
    assert at['while_grad'] == 2 + 2 * trips


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_scopes_that_no_gradient_takes_are_there_until_the_loop_next_begins(trips: int) -> None:
    """Whether the runtime collects or not: `tests.wild` 200299."""
    draft = Draft()
    draft.values('h early')
    draft.op('fill', '', 'h')
    draft.op('fill', '', 'early')
    draft.op('use', 'early', '')
    op = draft.op('while', 'h', 'h')
    body = draft.region(op, RegionKind.LOOP, trips=Size.dim('T'), keeps_scopes=True)
    copy = draft.value('copy', region=body)
    draft.graph.regions[body].arguments = ((draft.id('h'), copy),)
    draft.op('assign', 'copy', 'h', body)
    draft.op('last', 'h', '')
    first, later = (
        profile(draft, model, T=trips) for model in (COLLECTING.in_first_run(), COLLECTING))
    assert first == [1, 2, 2, 1, 1 + trips, 1 + trips]
    assert later == [1 + trips, 2 + trips, 2 + trips, *first[3:]]


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_the_first_run_of_a_retaining_runtime_frees_what_no_loop_makes(trips: int) -> None:
    """A body has run once by its second trip: from there on it holds what it makes. Measured: `tests.wild` 80079."""
    draft = loop(True, True)
    models = (COLLECTING, RETAINING.in_first_run(), RETAINING)
    kept = [Timeline(draft.graph, model, {'T': trips}).kept_per_trip(1) for model in models]
    assert kept == [UNIT, 2 * UNIT, 2 * UNIT]
    assert profile(chain(), RETAINING.in_first_run()) == profile(chain(), COLLECTING)


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_what_only_bodies_name_is_there_to_the_end_of_a_first_run(trips: int) -> None:
    """The executor of the main block frees what its own ops name. Measured: `tests.wild` 2002282."""
    draft = loop(True, True)
    before = profile(draft, RETAINING.in_first_run(), T=trips)
    moved = draft.graph.copy()
    moved.change(draft.id('scratch', 1), region=0)
    draft.graph = moved
    after = profile(draft, RETAINING.in_first_run(), T=trips)
    assert (before[-1], after[-1]) == (1, 2)


KEEPS_AT_ONCE = replace(RETAINING, first_run_frees=False)


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_a_first_run_that_frees_nothing_has_what_was_made_so_far(trips: int) -> None:
    """And nothing of a run before. As Paddle 3 does: `tests.backends.paddle3.wild` 230."""
    first = KEEPS_AT_ONCE.in_first_run()
    assert profile(chain(), first) == [1, 2, 3, 4]
    assert profile(chain(), KEEPS_AT_ONCE) == [4, 4, 4, 4]
    draft = loop(True, True)
    assert Timeline(draft.graph, first, {'T': trips}).kept_per_trip(1) == 2 * UNIT


def test_what_a_program_releases_is_gone_in_a_first_run_that_frees_nothing_else() -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')
    draft.op('op', 'a', 'b')
    draft.op(RELEASE, '', 'a')
    draft.op('op', 'b', 'c')
    assert profile(draft, KEEPS_AT_ONCE.in_first_run()) == [1, 2, 2, 2]


def test_a_loop_without_gradient_finds_the_scopes_of_the_run_before() -> None:
    """It takes them away itself, when it begins."""
    draft = Draft()
    draft.values('a b h')
    draft.op('first', '', 'a')
    draft.op('second', 'a', 'b')
    body = draft.region(draft.op('while', 'b', 'h'),
                        RegionKind.LOOP,
                        keeps_scopes=True,
                        trips=Size.of(3))
    draft.value('c', region=body)
    draft.op('inside', 'b', 'c', region=body)
    draft.op('last', 'b', 'h')
    kept = _by_kind(draft.graph)
    draft.graph.regions[body].keeps_scopes = False
    freed = _by_kind(draft.graph)
    more = {kind: kept[kind] - freed[kind] for kind in kept}
    assert list(more.items()) == [('first', 3), ('second', 3), ('while', 0), ('inside', 2),
                                  ('last', 3)]


def _by_kind(graph: Graph) -> Dict[str, int]:
    points = Timeline(graph, RETAINING, {}).points
    return {graph.ops[point.op].kind: point.bytes // UNIT for point in points}


@pytest.mark.parametrize('trips', [1, 2, 50])
def test_a_copied_input_is_kept_once_a_trip(trips: int) -> None:
    """The sequence that a loop reads step by step: T copies of T rows, so T squared."""
    draft = Draft()
    rows = Size.dim('T') * 1024
    draft.value('x', rows, fed=True)
    draft.value('h')
    draft.op('fill', '', 'h')
    op = draft.op('while', 'x h', 'h')
    body = draft.region(op, RegionKind.LOOP, trips=Size.dim('T'), keeps_scopes=True)
    draft.value('copy', rows, region=body)
    draft.graph.regions[body].arguments = ((draft.id('x'), draft.id('copy', body)),)
    draft.op('gather', 'x h', 'h', body)
    grad = draft.op('while_grad', 'x h', 'h')
    back = draft.region(grad, RegionKind.LOOP_GRADIENT, forward=body, trips=Size.dim('T'))
    draft.op('gather_grad', 'copy h', 'h', back)
    timeline = Timeline(draft.graph, COLLECTING, {'T': trips})
    assert timeline.kept_per_trip(body) == rows * 4
    assert timeline.peak_bytes == UNIT * (trips * trips + trips + 1)


@pytest.mark.parametrize('outer_trips,inner_trips', [(1, 1), (3, 1), (1, 4), (5, 7)])
def test_nested_loops_keep_the_product_of_their_trips(outer_trips: int, inner_trips: int) -> None:
    draft = Draft()
    draft.value('h')
    draft.op('fill', '', 'h')
    outer_op = draft.op('while', 'h', 'h')
    outer = draft.region(outer_op, RegionKind.LOOP, trips=Size.dim('A'), keeps_scopes=True)
    inner_op = draft.op('while', 'h', 'h', outer)
    inner = draft.region(inner_op, RegionKind.LOOP, trips=Size.dim('B'), keeps_scopes=True)
    draft.value('kept', region=inner)
    draft.op('mul', 'h', 'kept', inner)
    draft.op('assign', 'kept', 'h', inner)
    outer_grad = draft.op('while_grad', 'h', 'h')
    outer_back = draft.region(outer_grad,
                              RegionKind.LOOP_GRADIENT,
                              forward=outer,
                              trips=Size.dim('A'))
    inner_grad = draft.op('while_grad', 'h', 'h', outer_back)
    inner_back = draft.region(inner_grad,
                              RegionKind.LOOP_GRADIENT,
                              forward=inner,
                              trips=Size.dim('B'))
    draft.op('mul_grad', 'kept h', 'h', inner_back)
    timeline = Timeline(draft.graph, COLLECTING, {'A': outer_trips, 'B': inner_trips})
    assert timeline.kept_per_trip(inner) == UNIT
    assert timeline.kept_per_trip(outer) == Size.dim('B') * UNIT
    assert timeline.peak_bytes == UNIT * (outer_trips * inner_trips + 1)


# ---------------------------------------------------------------------------------------------------
# All graphs


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('trips', [1, 3])
def test_the_bound_is_below_collecting_which_is_below_retaining(seed: int, trips: int) -> None:
    graph = generated(seed)
    models = (IDEAL, COLLECTING, RETAINING.in_first_run(), KEEPS_AT_ONCE.in_first_run(), RETAINING)
    peaks = [Timeline(graph, model, dims_of(graph, trips)).peak_bytes for model in models]
    assert peaks == sorted(peaks)


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('model', [COLLECTING, RETAINING, IDEAL])
def test_the_peak_is_the_sum_of_its_residents(seed: int, model: Runtime) -> None:
    graph = generated(seed)
    for trips in (1, 3):
        timeline = Timeline(graph, model, dims_of(graph, trips))
        assert timeline.evaluate(timeline.peak_size()) == timeline.peak_bytes
        for point in timeline.points:
            listed = sum(
                timeline.evaluate(r.size) * timeline.evaluate(r.count)
                for r in timeline.residents(point.op))
            assert listed == point.bytes, graph.ops[point.op]


@pytest.mark.parametrize('seed', SEEDS)
def test_every_op_has_one_point_and_the_peak_is_the_highest(seed: int) -> None:
    graph = generated(seed)
    timeline = Timeline(graph, COLLECTING, dims_of(graph, 2))
    assert [point.op for point in timeline.points] == [op.id for op in graph.walk()]
    assert timeline.peak_bytes == max(point.bytes for point in timeline.points)


def test_trips_that_are_a_product_are_counted_too() -> None:
    draft = loop(True, True)
    for region in draft.graph.regions[1:]:
        region.trips = Size.dim('T') * 2
    timeline = Timeline(draft.graph, COLLECTING, {'T': 3})
    for point in timeline.points:
        listed = [(timeline.evaluate(r.size), timeline.evaluate(r.count))
                  for r in timeline.residents(point.op)]
        assert sum(size * count for size, count in listed) == point.bytes


def test_an_empty_program_needs_nothing() -> None:
    timeline = Timeline(Draft().graph, COLLECTING, {})
    assert timeline.peak_bytes == 0 and timeline.points == [] and timeline.peak_size() == 0


def after_a_loop(ops: int, rows: int) -> Draft:
    """A loop whose trips leave two units to the collector, and so many ops after it, each of a result of so many rows."""
    draft = Draft()
    draft.value('h', fed=True)
    body = draft.region(draft.op('while', 'h', 'h'), RegionKind.LOOP, trips=Size.dim('T'))
    draft.values('a b', region=body)
    draft.op('make', 'h', 'a', body)
    draft.op('make', 'a', 'b', body)
    draft.op('assign', 'b', 'h', body)
    for i in range(ops):
        draft.value(f'v{i}', rows)
        draft.op('fill', '', f'v{i}')
    return draft


@pytest.mark.parametrize('trips', [1, 3, 5, 50])
def test_what_a_loop_leaves_to_a_sleeping_collector_is_there_for_all_of_a_short_run(
        trips: int) -> None:
    graph = after_a_loop(9, 1).graph
    timeline = Timeline(graph, COLLECTING, {'T': trips})
    released = frozenset(v.storage for v in graph.values)
    left = 2 * UNIT * min(trips, 5)
    assert timeline.uncollected(released, False)[-1] == UNIT + 4  # h is fed
    assert timeline.uncollected(released, True)[-1] == UNIT + 4 + left
    assert timeline.left_inside == left
    assert Timeline(graph, IDEAL, {'T': trips}).left_inside == 0


def test_what_a_loop_leaves_is_gone_when_the_collector_has_woken_up() -> None:
    asleep = round(COLLECTING.delays.seconds / 1e-3)
    graph = after_a_loop(asleep + 5, 1 << 20).graph  # 4 MiB: a millisecond each
    timeline = Timeline(graph, COLLECTING, {'T': 3})
    released = frozenset(v.storage for v in graph.values)
    later = list(
        map(sub, timeline.uncollected(released, True), timeline.uncollected(released, False)))
    assert later[4:] == [6 * UNIT] * asleep + [0] * 5
    assert timeline.left_inside == 0


@pytest.mark.parametrize('model', [COLLECTING, RETAINING])
def test_at_another_size_it_is_that_of_the_size_and_works_out_again_only_what_sizes_decide(
        model: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: List[Graph] = []
    walk = Graph.region_ops
    for seed in SEEDS:
        graph = generated(seed)
        first, dims = Timeline(graph, model, dims_of(graph, 2)), dims_of(graph, 5)
        first.lagging(), bytes_with_workspaces(graph,
                                               first)  # what they find out of the graph stays
        alone = Timeline(graph, model, dims)
        with monkeypatch.context() as patch:
            patch.setattr(Graph, 'region_ops', lambda *told: walked.append(told[0]) or walk(*told))
            patch.setattr(Graph, 'by_storage', lambda told: walked.append(told) or {})
            there = first.at(dims)
            found = there.points, there.lagging(), bytes_with_workspaces(graph, there)
        assert found == (alone.points, alone.lagging(), bytes_with_workspaces(graph, alone))
    assert not walked
