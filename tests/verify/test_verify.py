"""The verifier rejects every rewrite that changes what somebody reads, and accepts what the passes do.

Which values interfere is decided in tests/graphs.py by listing paths; it shares no code with the verifier.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional

import pytest

from tests.graphs import (Draft, Trace, dims_of, eligible, generated, interfering, live_after,
                          same_region_pairs, traces, trained_loop)
from transpiler.analysis.dependences import dependences
from transpiler.analysis.kept import kept_bytes
from transpiler.errors import VerificationError
from transpiler.ir import Graph, Op, RegionKind, Size
from transpiler.ir.boundary import divide
from transpiler.passes.context import PassContext
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.reuse import reuse_storages
from transpiler.planning import PlanOptions, plan
from transpiler.runtime import COLLECTING, RETAINING
from transpiler.verify import verify

SEEDS = range(80)


def accepted(old: Graph, new: Graph, origins: Optional[Dict[int, int]] = None) -> bool:
    try:
        verify(old, new, origins or {op.id: op.origin for op in new.ops})
    except VerificationError:
        return False
    return True


def merged(graph: Graph, first: int, second: int) -> Graph:
    """`graph` with the two values in the storage of the first."""
    new = graph.copy()
    new.values[second].storage = new.values[first].storage
    return new


def planned(graph: Graph, level: int = 0) -> Graph:
    """What the passes make of it, whether it pays or not."""
    context = PassContext(RETAINING, dims_of(graph, 3), level, skip_grads=False)
    return reuse_storages(coalesce_in_place(graph.copy(), context), context)


# ---------------------------------------------------------------------------------------------------
# Two live values in one storage


def accepted_overlaps(graph: Graph) -> List[Any]:
    conflicts = interfering(graph, traces(graph))
    pairs = [(a, b) for a, b in same_region_pairs(graph) if frozenset((a, b)) in conflicts]
    wrong = [(a, b) for a, b in pairs if accepted(graph, merged(graph, a, b))]
    return wrong + [(b, a) for a, b in pairs if accepted(graph, merged(graph, b, a))]


@pytest.mark.parametrize('seed', SEEDS)
def test_every_merge_of_two_interfering_values_of_generated_graphs_is_rejected(seed: int) -> None:
    assert accepted_overlaps(generated(seed)) == []


@pytest.mark.parametrize('seed', SEEDS)
def test_every_further_merge_of_a_valid_plan_that_overlaps_is_rejected(seed: int) -> None:
    check_further_merges(generated(seed))


def check_further_merges(graph: Graph) -> None:
    """Mutations of the plan, not of the original: a value joins a storage that has tenants already."""
    plan = planned(graph)
    conflicts = interfering(graph, traces(graph))
    for a, b in same_region_pairs(graph):
        tenants = [v.id for v in plan.values if v.storage == plan.values[a].storage]
        if plan.values[b].storage == plan.values[a].storage:
            continue
        if any(frozenset((t, b)) in conflicts for t in tenants):
            assert not accepted(graph, merged(plan, a, b)), (a, b)


# ---------------------------------------------------------------------------------------------------
# Valid plans


@pytest.mark.parametrize('seed', SEEDS)
def test_an_unchanged_graph_is_accepted(seed: int) -> None:
    graph = generated(seed)
    assert accepted(graph, graph.copy())


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('level', [0, 1])
def test_what_the_passes_make_is_accepted_and_shares_no_memory_wrongly(seed: int,
                                                                       level: int) -> None:
    graph = generated(seed)
    plan = planned(graph, level)
    conflicts = interfering(graph, traces(graph))
    for members in plan.storage_members().values():
        for a in members:
            assert not any(frozenset((a, b)) in conflicts for b in members if b != a)
    verify(graph, plan, {op.id: op.origin for op in plan.ops})


def test_the_generated_plans_share_memory_at_all() -> None:
    assert sum(
        len(m) - 1
        for seed in SEEDS
        for m in planned(generated(seed)).storage_members().values()) > 40


# ---------------------------------------------------------------------------------------------------
# Reordering


def swapped(graph: Graph, region: int, at: int) -> Graph:
    new = graph.copy()
    ops = new.regions[region].ops
    ops[at], ops[at + 1] = ops[at + 1], ops[at]
    return new


def depend(graph: Graph, first: Op, second: Op) -> bool:
    """Whether a value written by one is named by the other, nested ops included."""
    reads = lambda op: {v for o in [op, *graph.inside(op)] for v in o.reads()}
    writes = lambda op: {v for o in [op, *graph.inside(op)] for v in o.writes()}
    return bool(writes(first) & (reads(second) | writes(second)) or reads(first) & writes(second))


def read_hazard(graph: Graph, runs: List[Trace], first: Op, second: Op) -> bool:
    """Whether swapping the two plain ops changes what a read of some run sees."""
    if set(first.writes()) & set(second.data_reads()) or set(first.data_reads()) & set(
            second.writes()):
        return True
    both = set(first.writes()) & set(second.writes())
    return any(both & live
               for run in runs
               for event, live in zip(run, live_after(run))
               if event.op == second.id)


@pytest.mark.parametrize('seed', SEEDS)
def test_swapping_neighbours_is_rejected_exactly_where_a_read_or_the_order_changes(
        seed: int) -> None:
    graph = generated(seed)
    runs = traces(graph)
    for region in graph.regions:
        for at in range(len(region.ops) - 1):
            first, second = (graph.ops[region.ops[at + i]] for i in (0, 1))
            if first.regions or second.regions:
                continue
            new = swapped(graph, region.id, at)
            both_ordered = first.facts.ordered and second.facts.ordered
            if both_ordered or read_hazard(graph, runs, first, second):
                assert not accepted(graph, new), (first, second)
            elif not depend(graph, first, second):
                assert accepted(graph, new), (first, second)


def straight() -> Draft:
    """x -> a -> b -> c (fetched) with a random op on the side."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('w', persistable=True, parameter=True)
    draft.values('a b mask noise')
    draft.value('c', fetched=True)
    draft.op('mul', 'x w', 'a')
    draft.op('dropout', 'a', 'mask', random=True)
    draft.op('uniform_random', '', 'noise', random=True)
    draft.op('add', 'a mask', 'b')
    draft.op('add', 'b noise', 'c')
    draft.op('sgd', 'w c', 'w')
    return draft


def test_an_update_before_the_last_read_of_its_parameter_is_rejected() -> None:
    draft = Draft()
    draft.value('w', persistable=True, parameter=True)
    draft.values('g a')
    draft.value('out', fetched=True)
    draft.op('fill', '', 'g')
    draft.op('mul', 'w', 'a')
    draft.op('sgd', 'w g', 'w')
    draft.op('op', 'a', 'out')
    assert accepted(draft.graph, swapped(draft.graph, 0, 0))
    assert not accepted(draft.graph, swapped(draft.graph, 0, 1))


def test_a_write_before_a_read_of_the_same_storage_is_rejected() -> None:
    """Write after read: legal as given, illegal once the second tenant is written earlier."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b')
    draft.value('c', fetched=True)
    draft.op('op', 'x', 'a')
    draft.op('free', 'a', 'c')
    draft.op('op', 'x', 'b')
    draft.op('op', 'b', 'c')
    shared = merged(draft.graph, draft.id('a'), draft.id('b'))
    assert accepted(draft.graph, shared)
    assert not accepted(draft.graph, swapped(shared, 0, 1))


# ---------------------------------------------------------------------------------------------------
# Ops that must not move, be lost or be added


@pytest.mark.parametrize('converts', [True, False])
def test_a_kernel_with_a_layout_of_its_own_reads_behind_who_may_work_in_place(
        converts: bool) -> None:
    draft = Draft()
    draft.values('a b c')
    fill = draft.op('fill', '', 'a')
    taker = draft.op('op', 'a', 'b', in_place=((0, 0),))
    reader = draft.op('op', 'a', 'c', converts=converts)
    new = draft.graph.copy()
    new.regions[0].ops[:] = [fill.id, reader.id, taker.id]
    assert accepted(draft.graph, draft.graph.copy()) and accepted(draft.graph, new) != converts


@pytest.mark.parametrize('stays', [True, False])
def test_an_op_stays_behind_those_that_it_has_to(stays: bool) -> None:
    draft = Draft()
    draft.values('a b c')
    draft.op('fill', '', 'a')
    first = draft.op('op', 'a', 'b')
    draft.op('op', 'a', 'c').behind = (first.id,) if stays else ()
    assert accepted(draft.graph, draft.graph.copy())
    assert accepted(draft.graph, swapped(draft.graph, 0, 1)) != stays


def test_moving_one_random_op_past_another_is_rejected() -> None:
    assert not accepted(straight().graph, swapped(straight().graph, 0, 1))


def with_clone(graph: Graph, op: Op, at: int) -> Graph:
    new = graph.copy()
    clone = replace(op, id=len(new.ops))
    new.ops.append(clone)
    new.regions[op.region].ops.insert(at, clone.id)
    return new


def test_running_a_random_op_twice_is_rejected_and_a_pure_one_is_not() -> None:
    graph = straight().graph
    by_kind = {op.kind: op for op in graph.ops}
    assert not accepted(graph, with_clone(graph, by_kind['dropout'], 2))
    assert not accepted(graph, with_clone(graph, by_kind['uniform_random'], 3))
    assert accepted(graph, with_clone(graph, by_kind['mul'], 2))


@pytest.mark.parametrize('fact', ['random', 'side_effect', 'collective'])
def test_ordered_ops_of_each_sort_keep_their_order(fact: str) -> None:
    draft = Draft()
    draft.values('a b')
    draft.op('one', '', 'a', **{fact: True})
    draft.op('two', '', 'b', **{fact: True})
    assert not accepted(draft.graph, swapped(draft.graph, 0, 0))


def test_unknown_operators_keep_their_order() -> None:
    draft = Draft()
    draft.values('a b')
    draft.op('one', '', 'a', known=False)
    draft.op('two', '', 'b', random=True)
    assert not accepted(draft.graph, swapped(draft.graph, 0, 0))


def test_running_an_update_twice_is_rejected() -> None:
    graph = straight().graph
    sgd = next(op for op in graph.ops if op.kind == 'sgd')
    assert not accepted(graph, with_clone(graph, sgd, len(graph.regions[0].ops)))


@pytest.mark.parametrize('seed', range(20))
def test_losing_any_op_is_rejected(seed: int) -> None:
    graph = generated(seed)
    for region in graph.regions:
        for at in range(len(region.ops)):
            new = graph.copy()
            del new.regions[region.id].ops[at]
            assert not accepted(graph, new)


def test_an_op_moved_into_a_loop_is_rejected() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a h')
    draft.op('scale', 'x', 'a')
    loop = draft.op('while', 'a h', 'h')
    body = draft.region(loop, RegionKind.LOOP)
    draft.op('op', 'a', 'h', body)
    draft.op('last', 'h', '')
    new = draft.graph.copy()
    moved = new.regions[0].ops.pop(0)
    new.regions[body].ops.insert(0, moved)
    assert not accepted(draft.graph, new)


# ---------------------------------------------------------------------------------------------------
# What the caller can see


@pytest.mark.parametrize('seed', SEEDS)
def test_no_value_may_move_in_with_a_fed_fetched_or_persistable_one_that_is_in_use(
        seed: int) -> None:
    graph = generated(seed)
    conflicts = interfering(graph, traces(graph))
    seen = [v.id for v in graph.values if v.region == 0 and not eligible(graph, v.id)]
    for protected in seen:
        for value in (v.id for v in graph.values if v.region == 0 and eligible(graph, v.id)):
            if frozenset((protected, value)) in conflicts:
                assert not accepted(graph, merged(graph, protected, value))
                assert not accepted(graph, merged(graph, value, protected))


@pytest.mark.parametrize('facts', [{'fetched': True}, {'persistable': True}, {'fed': True}])
def test_a_protected_value_may_not_be_overwritten_even_after_its_last_read(
        facts: Dict[str, bool]) -> None:
    draft = Draft()
    draft.value('kept', **facts)
    draft.values('a b')
    if 'fed' not in facts:
        draft.op('fill', '', 'kept')
    draft.op('op', 'kept', 'a')
    draft.op('op', 'a', 'b')
    draft.op('last', 'b', '')
    assert not accepted(draft.graph, merged(draft.graph, draft.id('kept'), draft.id('b')))
    assert not accepted(draft.graph, merged(draft.graph, draft.id('b'), draft.id('kept')))


# ---------------------------------------------------------------------------------------------------
# What memonger's verifier lets pass


def rewritten(graph: Graph, op: int, change: Callable[[Op], Op]) -> Graph:
    new = graph.copy()
    new.ops[op] = change(new.ops[op])
    return new


def test_an_input_that_is_overwritten_is_rejected() -> None:
    draft = straight()
    assert not accepted(draft.graph, merged(draft.graph, draft.id('a'), draft.id('mask')))


def test_an_output_under_another_name_is_rejected() -> None:
    draft = straight()
    graph = draft.graph
    new = rewritten(graph, 0, lambda op: replace(op, results=(draft.id('noise'),)))
    assert not accepted(graph, new)


def test_an_output_that_nobody_gets_any_more_is_rejected() -> None:
    """The fetched value is computed, into another variable."""
    draft = straight()
    draft.value('elsewhere')
    new = rewritten(draft.graph, 4, lambda op: replace(op, results=(draft.id('elsewhere'),)))
    assert not accepted(draft.graph, new)


def test_reading_a_different_input_is_rejected() -> None:
    draft = straight()
    new = rewritten(draft.graph, 3, lambda op: replace(op, operands=(draft.id('a'), draft.id('a'))))
    assert not accepted(draft.graph, new)


def test_inputs_in_another_order_are_rejected() -> None:
    draft = straight()
    new = rewritten(draft.graph, 3, lambda op: replace(op, operands=op.operands[::-1]))
    assert not accepted(draft.graph, new)


def test_another_operator_in_the_place_of_one_is_rejected() -> None:
    draft = straight()
    new = rewritten(draft.graph, 3, lambda op: replace(op, kind='subtract'))
    assert not accepted(draft.graph, new)


def test_an_operand_less_or_more_is_rejected() -> None:
    draft = straight()
    for operands in ((draft.id('a'),), (draft.id('a'), draft.id('mask'), draft.id('x'))):
        new = rewritten(draft.graph, 3, lambda op, to=operands: replace(op, operands=to))
        assert not accepted(draft.graph, new)


def test_an_empty_slot_that_is_filled_is_rejected() -> None:
    draft = straight()
    draft.graph.ops[3] = replace(draft.graph.ops[3], operands=(draft.id('a'), -1))
    new = rewritten(draft.graph, 3, lambda op: replace(op, operands=(draft.id('a'), draft.id('x'))))
    assert not accepted(draft.graph, new)
    filled = rewritten(draft.graph, 3,
                       lambda op: replace(op, operands=(draft.id('a'), draft.id('mask'))))
    assert not accepted(filled, draft.graph)


def test_a_result_that_is_dropped_is_rejected() -> None:
    draft = straight()
    new = rewritten(draft.graph, 0, lambda op: replace(op, results=(-1,)))
    assert not accepted(draft.graph, new)


# ---------------------------------------------------------------------------------------------------
# At one op


def two_ops(**facts: Any) -> Draft:
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b')
    draft.value('c', fetched=True)
    draft.op('fill', 'x', 'a')
    draft.op('op', 'a', 'b', **facts)
    draft.op('op', 'b', 'c')
    return draft


def test_an_output_over_an_input_needs_an_operator_that_works_in_place() -> None:
    apart, in_place = two_ops(), two_ops(in_place=((0, 0),), same_name=True)
    assert not accepted(apart.graph, merged(apart.graph, apart.id('a'), apart.id('b')))
    assert accepted(in_place.graph, merged(in_place.graph, in_place.id('a'), in_place.id('b')))


def in_other_dims(**facts: Any) -> Draft:
    """`b` has the elements of `a` in other dims."""
    draft = two_ops(in_place=((0, 0),), same_name=True, **facts)
    draft.graph.values[draft.id('b')].shape = (Size.of(32), Size.of(32))
    return draft


def test_an_output_over_an_input_of_other_dims_needs_an_operator_that_changes_nothing_else(
) -> None:
    for same_bytes in (False, True):
        draft = in_other_dims(same_bytes=same_bytes)
        over = merged(draft.graph, draft.id('a'), draft.id('b'))
        assert accepted(draft.graph, over) is same_bytes


def test_an_output_over_an_input_of_other_dims_takes_its_shape_from_nobody_who_reads_it_later(
) -> None:
    for reads, fine in (('a c', False), ('b c', True)):
        draft = in_other_dims(same_bytes=True)
        draft.value('d', fetched=True)
        draft.op('like', reads, 'd', shape_only=frozenset({0}))
        assert accepted(draft.graph, merged(draft.graph, draft.id('a'), draft.id('b'))) is fine


def test_an_output_over_an_input_that_is_named_twice_is_rejected() -> None:
    draft = two_ops(in_place=((0, 0),), same_name=True)
    draft.graph.ops[1] = replace(draft.graph.ops[1], operands=(draft.id('a'), draft.id('a')))
    assert not accepted(draft.graph, merged(draft.graph, draft.id('a'), draft.id('b')))


def test_a_name_that_the_user_reads_and_writes_at_one_op_stays_legal() -> None:
    draft = two_ops()
    draft.graph.ops[1] = replace(draft.graph.ops[1], results=(draft.id('a'),))
    draft.graph.ops[2] = replace(draft.graph.ops[2], operands=(draft.id('a'),))
    assert accepted(draft.graph, draft.graph.copy())


def test_two_outputs_of_one_op_in_one_storage_are_rejected_even_if_one_is_never_read() -> None:
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('unused used')
    draft.value('c', fetched=True)
    draft.op('op', 'x', 'unused used')
    draft.op('op', 'used', 'c')
    assert not accepted(draft.graph, merged(draft.graph, draft.id('unused'), draft.id('used')))
    assert not accepted(draft.graph, merged(draft.graph, draft.id('used'), draft.id('unused')))


# ---------------------------------------------------------------------------------------------------
# Readers of the shape


def shape_reader(rows: int, read_at: int = 2) -> Draft:
    """b may take a's storage; `like` reads a's shape after b was written."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('a')
    draft.value('b', rows)
    draft.value('c', fetched=True)
    draft.value('d', fetched=True)
    draft.op('fill', 'x', 'a')
    draft.op('op', 'x', 'b')
    draft.op('like', 'a b', 'c', shape_only=frozenset({0}))
    draft.op('op', 'b', 'd')
    return draft


def test_a_reader_of_the_shape_may_find_another_value_of_the_same_shape() -> None:
    draft = shape_reader(1024)
    assert accepted(draft.graph, merged(draft.graph, draft.id('a'), draft.id('b')))


def test_a_reader_of_the_shape_may_not_find_another_shape() -> None:
    draft = shape_reader(2048)
    assert not accepted(draft.graph, merged(draft.graph, draft.id('a'), draft.id('b')))


def test_a_reader_of_the_shape_may_not_find_an_unknown_shape() -> None:
    draft = shape_reader(1024)
    for name in 'ab':
        unknown = draft.graph.values[draft.id(name)]
        unknown.shape, unknown.size = None, None
    assert not accepted(draft.graph, merged(draft.graph, draft.id('a'), draft.id('b')))


# ---------------------------------------------------------------------------------------------------
# Loops and their gradients


def loop_and_gradient() -> Draft:
    draft, body = trained_loop('kept early late')
    draft.op('op', 'x', 'early', body)
    draft.op('op', 'early h', 'kept', body)
    draft.op('op', 'kept', 'late', body)
    draft.op('op', 'late', 'h', body)
    draft.op('fill', '', 'g')
    gradient = draft.op('while_grad', 'x h g', 'g')
    back = draft.region(gradient, RegionKind.LOOP_GRADIENT, forward=body)
    draft.op('grad', 'kept g', 'g', back)
    draft.op('last', 'g h', '')
    draft.graph.values[draft.id('g')].fetched = True
    return draft


def test_what_a_gradient_reads_may_not_be_overwritten_later_in_the_trip() -> None:
    draft = loop_and_gradient()
    body = draft.graph.regions[1].id
    early, kept, late = (draft.id(n, body) for n in ('early', 'kept', 'late'))
    assert not accepted(draft.graph, merged(draft.graph, kept, late))
    assert accepted(draft.graph, merged(draft.graph, early, late))


def test_a_body_value_may_not_take_the_storage_of_what_the_loop_carries() -> None:
    draft = loop_and_gradient()
    body = draft.graph.regions[1].id
    for name in ('early', 'kept', 'late'):
        assert not accepted(draft.graph, merged(draft.graph, draft.id('h'), draft.id(name, body)))


# ---------------------------------------------------------------------------------------------------
# Programs in two parts


def two_parts() -> Draft:
    """A chain of three, of which the second part reads all."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.values('a b c g d e', fetched=False)
    for read, write in (('x', 'a'), ('a', 'b'), ('b', 'c')):
        draft.op('exp', read, write)
    draft.op('boundary', '', 'g', boundary=True)
    draft.op('sum', 'g c b', 'd')
    draft.op('sum', 'd a', 'e')
    divide(draft.graph, frozenset({'e'}))
    return draft


@pytest.mark.parametrize('moved, behind', [(2, 3), (0, 4), (4, 0), (4, 2)])
def test_an_op_on_the_other_side_of_a_boundary_is_rejected(moved: int, behind: int) -> None:
    old = two_parts().graph
    old.ops[4].operands = old.ops[2].operands = ()  # the order of reads allows it
    new = old.copy()
    new.regions[0].ops.remove(moved)
    new.regions[0].ops.insert(behind, moved)
    assert not accepted(old, new)


def test_clones_stand_behind_a_boundary_and_less_crosses_it() -> None:
    old = two_parts().graph
    done = plan(old, COLLECTING, {}, PlanOptions(recompute='max'))
    parts = [op.facts.boundary for op in done.graph.region_ops(0)]
    clones = [
        at for at, op in enumerate(done.graph.region_ops(0)) if op.origin not in (None, op.id)
    ]
    assert clones and min(clones) > parts.index(True)
    origins = {op.id: op.origin for op in done.graph.walk() if op.origin is not None}
    assert accepted(old, done.graph, origins)
    crossing = [
        set(kept_bytes(graph, each))
        for graph, each in ((old, done.before), (done.graph, done.after))
    ]
    assert crossing[1] < crossing[0]


@pytest.mark.parametrize('written, others', [(True, False), (False, True), (False, False)])
def test_what_may_have_been_written_between_the_parts_is_not_read_again(
        written: bool, others: bool) -> None:
    """Another call of the first part may have written its state by then, or something else what it reads."""
    draft = Draft()
    draft.value('x', fed=True)
    draft.value('state', persistable=True)
    draft.values('new a b c g d', fetched=False)
    draft.op('exp', 'x', 'new')
    if written:
        draft.op('assign', 'new', 'state')
    draft.op('sum', 'x state', 'a')
    for read, write in (('a', 'b'), ('b', 'c')):
        draft.op('exp', read, write)
    draft.op('boundary', '', 'g', boundary=True)
    draft.op('sum', 'g c b a', 'd')
    divide(draft.graph, frozenset({'d'}), frozenset({'state'} if others else ()))
    old = draft.graph
    done = plan(old, COLLECTING, {}, PlanOptions(recompute='max')).graph
    made_again = {op.kind for op in done.region_ops(0) if op.origin not in (None, op.id)}
    assert made_again == ({'exp'} if written or others else {'exp', 'sum'})
    assert accepted(old, _summed_again(old, draft)) == (not (written or others))


def _summed_again(old: Graph, draft: Draft) -> Graph:
    """The last op reads a sum that is made again behind the boundary."""
    new = old.copy()
    summed = next(op for op in old.region_ops(0) if op.kind == 'sum')
    made = new.clone_value(draft.id('a'), 'again', 0).id
    clone = new.new_op('sum',
                       0,
                       operands=summed.operands,
                       results=(made,),
                       facts=summed.facts,
                       origin=summed.id,
                       backward=True)
    *before, last, _ = new.regions[0].ops
    reads = (made if v == draft.id('a') else v for v in old.ops[last].operands)
    new.ops[last] = replace(old.ops[last], operands=tuple(reads))
    new.regions[0].ops = [*before, clone.id, last]
    return new


def _going_on(fresh: bool) -> Graph:
    """The second op's result is as large as one that is dead by then."""
    draft = Draft()
    draft.values('a b c d')
    draft.op('first', 'a', 'b')
    draft.op('second', 'b', 'c')
    made = draft.op('third', 'c', 'd')
    made.facts = replace(made.facts, fresh=frozenset({0} if fresh else ()))
    return draft.graph


def test_a_kernel_that_goes_on_with_what_it_finds_gets_memory_of_its_own() -> None:
    for fresh in (False, True):
        graph = _going_on(fresh)
        first, last = graph.ops[0].results[0], graph.ops[2].results[0]
        assert accepted(graph, merged(graph, first, last)) is not fresh


def test_memory_that_it_may_work_on_is_no_other() -> None:
    graph = _going_on(fresh=True)
    graph.ops[2].facts = replace(graph.ops[2].facts, in_place=((0, 0),), same_name=True)
    assert accepted(graph, merged(graph, graph.ops[1].results[0], graph.ops[2].results[0]))


def test_two_may_go_on_with_one_variable_in_their_order() -> None:
    """Two layers that have their sums in common, as `data_norm` may: `tests.wild` 3000788."""
    draft = Draft()
    draft.value('sums', persistable=True)
    draft.values('a b c')
    for name in ('a', 'b'):
        draft.op('fill', '', name)
    for name in ('a', 'b'):
        made = draft.op('add', name, 'sums')
        made.facts = replace(made.facts, fresh=frozenset({0}))
    draft.op('fill', '', 'c')
    graph = draft.graph
    assert accepted(graph, merged(graph, draft.id('a'), draft.id('c')))
    assert not accepted(graph, swapped(graph, 0, 2))


# ---------------------------------------------------------------------------------------------------
# What an op leaves as it is


def _sent_again(leaves: bool) -> Draft:
    """A weight is sent, read, and sent again; its second reader comes behind that."""
    draft = Draft()
    draft.value('w', persistable=True, parameter=True)
    draft.value('x', fed=True)
    draft.value('a')
    draft.value('y', fetched=True)
    known = {'unchanged': ((0, 0),)} if leaves else {}
    draft.op('send', 'w', 'w', collective=True, **known)
    draft.op('op', 'w x', 'a')
    draft.op('send', 'w', 'w', collective=True, **known)
    draft.op('op', 'a w', 'y')
    return draft


def _read_behind(draft: Draft) -> Graph:
    """The first reader moved behind the second time that the weight is sent."""
    new = draft.graph.copy()
    new.regions[0].ops = [0, 2, 1, 3]
    return new


def test_who_reads_a_weight_may_do_so_behind_a_broadcast_that_leaves_it_as_it_is() -> None:
    left, written = _sent_again(leaves=True), _sent_again(leaves=False)
    assert accepted(left.graph, _read_behind(left))
    assert not accepted(written.graph, _read_behind(written))
    assert not dependences(left.graph, 0).before[2] == dependences(written.graph, 0).before[2]


def test_what_is_left_as_it_is_under_its_own_name_is_written_under_another() -> None:
    draft = _sent_again(leaves=True)
    new = draft.graph.copy()
    new.ops[2] = replace(new.ops[2], results=(draft.id('a'),))
    assert not accepted(draft.graph, new)


def test_an_update_in_front_of_a_broadcast_that_leaves_the_weight_is_refused() -> None:
    """It sends what it reads."""
    draft = _sent_again(leaves=True)
    draft.value('g', fed=True)
    draft.op('sgd', 'w g', 'w')
    new = draft.graph.copy()
    new.regions[0].ops = [0, 1, 4, 2, 3]
    assert accepted(draft.graph, draft.graph.copy()) and not accepted(draft.graph, new)
