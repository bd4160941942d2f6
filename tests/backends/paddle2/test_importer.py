"""Every kind of block, variable and slot that a ProgramDesc can have becomes what the graph has for it."""
from __future__ import annotations

from typing import Any, Dict, List, Set

import paddle
import pytest
from paddle.base.proto import framework_pb2

from tests.harness import Case, new_programs
from tests.scenarios import branches, dynamic_rnn, loops, recurrent, straight
from tests.scenarios.common import append, data, fc, named, train
from transpiler.backends.paddle2.importer import ImportedProgram, import_program, parse
from transpiler.errors import InvalidProgramError
from transpiler.ir import Graph, Op, Region, RegionKind, Size, Value, ValueKind

ALL_SCENARIOS = (straight.name_written_twice, straight.chain_without_extra_fetches, branches.nested,
                 branches.without_gradient, branches.switch_case,
                 branches.captured_temporaries_of_the_main_block, loops.nested, loops.branch_inside,
                 loops.inside_a_branch, loops.array_of_outputs, loops.beam_search,
                 loops.gradient_reads_undeclared_inputs, recurrent.recurrent_operator,
                 dynamic_rnn.two_hidden_layers, dynamic_rnn.inference)


def imported(case: Case, **names: Any) -> ImportedProgram:
    return import_program(case.main.desc.serialize_to_string(), names.get('fetched', case.fetch),
                          names.get('skipped', ()))


def graph_of(main: paddle.static.Program, fetched: Any = ()) -> Graph:
    return import_program(main.desc.serialize_to_string(), fetched).graph


def ops_of(graph: Graph, kind: str) -> List[Op]:
    return [op for op in graph.walk() if op.kind == kind]


def regions_of(graph: Graph, kind: RegionKind) -> List[Region]:
    return [r for r in graph.regions if r.kind is kind]


def value(graph: Graph, name: str, region: int = 0) -> Value:
    found = [v for v in graph.values if v.name == name and v.region == region]
    assert len(found) == 1, found
    return found[0]


# ---------------------------------------------------------------------------------------------------
# What holds for every program


@pytest.mark.parametrize('scenario', ALL_SCENARIOS, ids=lambda s: f'{s.__module__}.{s.__name__}')
def test_nothing_of_the_message_is_lost_and_names_resolve_by_scope(scenario: Any) -> None:
    program = imported(scenario())
    graph = program.graph
    for index, region in program.block_regions.items():
        descs = program.message.blocks[index].ops
        ops = [graph.ops[i] for i in graph.regions[region].ops]
        assert [op.kind for op in ops] == [desc.type for desc in descs]
        for op, desc in zip(ops, descs):
            for values, slots in ((op.operands, desc.inputs), (op.results, desc.outputs)):
                names = [n for slot in slots for n in slot.arguments]
                assert [
                    n if n == '@EMPTY@' else graph.values[v].name for n, v in zip(names, values)
                ] == names
                assert all((v < 0) == (n == '@EMPTY@') for n, v in zip(names, values))
                assert all(
                    graph.values[v].region in scopes(program, index) for v in values if v >= 0)


def scopes(program: ImportedProgram, block: int) -> Set[int]:
    """Regions whose variables the runtime finds from `block`: its own, its parents', their forward ones."""
    found: Set[int] = set()
    while block >= 0:
        desc = program.message.blocks[block]
        found |= {program.block_regions.get(b, -1) for b in (block, desc.forward_block_idx)}
        block = desc.parent_idx
    return found


@pytest.mark.parametrize('scenario', ALL_SCENARIOS, ids=lambda s: f'{s.__module__}.{s.__name__}')
def test_every_block_that_an_op_runs_is_one_region(scenario: Any) -> None:
    program = imported(scenario())
    run = {
        a.block_idx
        for block in program.message.blocks
        for op in block.ops
        for a in op.attrs
        if a.type == framework_pb2.BLOCK
    }
    assert set(program.block_regions) == {0} | run
    assert len(set(program.block_regions.values())) == len(program.block_regions)


# ---------------------------------------------------------------------------------------------------
# Blocks


def test_while_and_its_gradient_are_a_loop_and_its_gradient() -> None:
    graph = imported(loops.gathered_sequence()).graph
    loop, = regions_of(graph, RegionKind.LOOP)
    back, = regions_of(graph, RegionKind.LOOP_GRADIENT)
    assert graph.ops[loop.op].kind == 'while' and graph.ops[back.op].kind == 'while_grad'
    assert back.forward == loop.id and back.trips == loop.trips
    assert len(loop.trips.dims) == 1 and loop.keeps_scopes


def test_a_gradient_block_reads_values_of_the_forward_step_scope() -> None:
    graph = imported(loops.gathered_sequence()).graph
    back, = regions_of(graph, RegionKind.LOOP_GRADIENT)
    read = {v for op in graph.region_ops(back.id) for v in op.reads()}
    assert any(graph.values[v].region == back.forward for v in read)


def test_inputs_of_a_training_loop_are_copied_into_each_trip() -> None:
    graph = imported(loops.gathered_sequence()).graph
    loop, = regions_of(graph, RegionKind.LOOP)
    assert loop.arguments
    for outer, inner in loop.arguments:
        assert graph.values[inner].region == loop.id
        assert graph.values[inner].name == graph.values[outer].name
        assert graph.values[inner].size == graph.values[outer].size
        assert not graph.values[outer].parameter


def test_parameters_and_names_that_the_body_rewrites_are_not_copied() -> None:
    graph = imported(loops.gathered_sequence()).graph
    loop, = regions_of(graph, RegionKind.LOOP)
    copied = {graph.values[outer].name for outer, _ in loop.arguments}
    assert not copied & {v.name for v in graph.values if v.parameter}
    both = {
        graph.values[v].name
        for op in graph.region_ops(loop.id)
        for v in set(op.reads()) & set(op.writes())
    }
    assert not copied & both


def test_gradients_of_a_loop_are_handed_out_under_the_names_of_the_op() -> None:
    graph = imported(loops.gathered_sequence()).graph
    back, = regions_of(graph, RegionKind.LOOP_GRADIENT)
    handed = {outer for _, outer in back.results}
    assert handed and handed <= set(graph.ops[back.op].writes())
    for inner, _ in back.results:
        assert graph.values[inner].name.endswith('@GRAD')


def test_nested_loops_have_trips_of_their_own() -> None:
    graph = imported(loops.nested()).graph
    outer, inner = regions_of(graph, RegionKind.LOOP)
    assert inner.parent == outer.id
    assert inner.trips != outer.trips
    backs = regions_of(graph, RegionKind.LOOP_GRADIENT)
    assert {b.forward: b.trips for b in backs} == {outer.id: outer.trips, inner.id: inner.trips}


def test_a_loop_that_is_not_trained_keeps_no_scopes_in_a_test_clone() -> None:
    case = loops.gathered_sequence()
    graph = graph_of(case.main.clone(for_test=True))
    loop, = regions_of(graph, RegionKind.LOOP)
    assert not loop.keeps_scopes and loop.arguments == ()


def test_cond_gives_branches_their_gradients_and_select_input() -> None:
    graph = imported(branches.captured_temporaries_of_the_main_block()).graph
    arms = regions_of(graph, RegionKind.BRANCH)
    backs = regions_of(graph, RegionKind.BRANCH_GRADIENT)
    assert len(arms) == 2 and {b.forward for b in backs} == {a.id for a in arms}
    assert {graph.ops[a.op].kind for a in arms} == {'conditional_block'}
    assert {graph.ops[b.op].kind for b in backs} == {'conditional_block_grad'}
    merge, = ops_of(graph, 'select_input')
    assert merge.facts.known and not merge.regions and len(merge.operands) == 3


def test_select_output_is_a_plain_op_with_two_results() -> None:
    graph = imported(branches.captured_temporaries_of_the_main_block()).graph
    splits = ops_of(graph, 'select_output')
    with new_programs() as (main, _):
        x, mask = data('x', 4, 4), data('mask', 1, dtype='int32')
        append('select_output', {
            'X': [x],
            'Mask': [mask]
        }, {'Out': [named('left', x), named('right', x)]})
    split, = ops_of(graph_of(main), 'select_output')
    assert split.facts.known and len(split.writes()) == 2 and not split.regions
    assert all(not op.regions for op in splits)


def test_conditional_block_infer_is_a_branch_that_keeps_no_scope() -> None:
    message = parse(branches.without_gradient().main.desc.serialize_to_string())
    for op in message.blocks[0].ops:
        if op.type == 'conditional_block':
            op.type = 'conditional_block_infer'
    graph = import_program(message.SerializeToString()).graph
    arms = regions_of(graph, RegionKind.BRANCH)
    assert arms and not any(arm.keeps_scopes for arm in arms)
    assert all(arm.ops for arm in arms)


def test_recurrent_blocks_are_opaque() -> None:
    graph = imported(recurrent.recurrent_operator()).graph
    opaque = regions_of(graph, RegionKind.OPAQUE)
    assert {graph.ops[r.op].kind for r in opaque} == {'recurrent', 'recurrent_grad'}
    assert all(r.ops for r in opaque)


def test_a_value_of_the_parent_is_the_same_value_inside_a_branch() -> None:
    graph = imported(branches.captured_temporaries_of_the_main_block()).graph
    inside = {
        v for r in regions_of(graph, RegionKind.BRANCH) for op in graph.region_ops(r.id)
        for v in op.reads()
    }
    outside = {v for op in graph.region_ops(0) for v in op.writes() if not op.regions}
    assert inside & outside


# ---------------------------------------------------------------------------------------------------
# Variables


def test_arrays_rank_tables_and_step_scopes_are_no_dense_values() -> None:
    graph = imported(dynamic_rnn.two_hidden_layers()).graph
    kinds: Dict[str, ValueKind] = {}
    for op in graph.walk():
        for v in op.writes():
            kinds[op.kind] = graph.values[v].kind
    assert kinds['lod_rank_table'] is ValueKind.OTHER
    assert kinds['lod_tensor_to_array'] is ValueKind.ARRAY
    assert kinds['write_to_array'] is ValueKind.ARRAY
    loop = ops_of(graph, 'while')[0]
    assert ValueKind.OTHER in {graph.values[v].kind for v in loop.writes()}


def test_lod_levels_are_imported() -> None:
    graph = imported(dynamic_rnn.two_hidden_layers()).graph
    assert any(v.lod_level == 1 and v.fed for v in graph.values)


@pytest.mark.parametrize('layer', ['static', 'nn'])
def test_sparse_embedding_gradients_are_selected_rows(layer: str) -> None:
    with new_programs() as (main, _):
        ids = data('ids', -1, 3, dtype='int64')
        if layer == 'static':
            embedded = paddle.static.nn.embedding(ids, [50, 8], is_sparse=True)
        else:
            embedded = paddle.nn.Embedding(50, 8, sparse=True)(ids)
        train(paddle.mean(fc(paddle.sum(embedded, axis=1), 4)))
    graph = graph_of(main)
    gradient, = [v for op in ops_of(graph, 'lookup_table_v2_grad') for v in op.writes()]
    assert graph.values[gradient].kind is ValueKind.SELECTED_ROWS
    # One row of 8 floats for each id, of which there are 3 to a row of the batch.
    assert graph.values[gradient].size == Size.dim('N') * 3 * 8 * 4


def test_persistables_and_parameters_are_marked() -> None:
    graph = imported(straight.chain_without_extra_fetches()).graph
    case = straight.chain_without_extra_fetches()
    assert {v.name for v in graph.values if v.parameter
           } == {p.name for p in case.main.all_parameters()}
    assert {v.name for v in graph.values if v.persistable
           } == {v.name for v in case.main.list_vars() if v.persistable}


def test_feeds_are_what_is_read_and_never_written() -> None:
    case = straight.chain_without_extra_fetches()
    graph = imported(case).graph
    assert {v.name for v in graph.values if v.fed} == set(case.feed(0))


def test_an_unused_declaration_is_not_taken_for_a_feed() -> None:
    case = straight.chain_without_extra_fetches()
    case.main.global_block().create_var(name='left over', shape=[100, 100], dtype='float32')
    assert not value(imported(case).graph, 'left over').fed


def test_feed_and_fetch_ops_of_a_saved_program_count() -> None:
    with new_programs() as (main, _):
        x = data('x', -1, 8)
        out = fc(x, 4)
        saved = paddle.static.normalize_program(main, [x], [out])
    with new_programs() as (main, _):
        assert [op.type for op in saved.global_block().ops][0] == 'feed'
    graph = graph_of(saved)
    assert value(graph, 'x').fed
    assert [v.name for v in graph.values if v.fetched
           ] == [graph.values[v].name for op in ops_of(graph, 'fetch') for v in op.reads()] != []
    assert all(op.facts.side_effect for op in ops_of(graph, 'feed') + ops_of(graph, 'fetch'))


def test_fetched_and_skipped_names_are_marked() -> None:
    case = straight.chain_without_extra_fetches()
    skipped = case.main.global_block().ops[0].output_arg_names[0]
    graph = imported(case, skipped=[skipped]).graph
    assert [v.name for v in graph.values if v.fetched] == list(case.fetch)
    assert [v.name for v in graph.values if v.skipped] == [skipped]


def test_a_name_written_twice_is_one_value_with_two_writers() -> None:
    case = straight.name_written_twice()
    graph = imported(case).graph
    written = [v for op in graph.region_ops(0) for v in op.writes()]
    names = [n for op in case.main.global_block().ops for n in op.output_arg_names]
    again = {n for n in names if names.count(n) > 1}
    assert again
    for name in again:
        assert written.count(value(graph, name).id) == names.count(name)


def test_empty_slots_keep_their_positions() -> None:
    with new_programs() as (main, _):
        x, y = data('x', 4, 4), data('y', 4, 4)
        dx = named('dx', x)
    op_desc = main.global_block().desc.append_op()
    op_desc.set_type('elementwise_mul_grad')
    for slot, variable in (('X', x), ('Y', y), ('Out@GRAD', x)):
        op_desc.set_input(slot, [variable.name])
    op_desc.set_output('X@GRAD', ['@EMPTY@'])
    op_desc.set_output('Y@GRAD', [dx.name])
    graph = graph_of(main)
    op, = ops_of(graph, 'elementwise_mul_grad')
    assert sorted(op.results) == [-1, value(graph, 'dx').id]
    assert op.writes() == (value(graph, 'dx').id,)


def test_optional_inputs_that_are_not_given_are_no_operands() -> None:
    with new_programs() as (main, _):
        train(paddle.mean(fc(data('x', -1, 8), 4)), paddle.optimizer.Adam(0.1))
    message = parse(main.desc.serialize_to_string())
    graph = graph_of(main)
    for op, desc in zip(graph.region_ops(0), message.blocks[0].ops):
        assert len(op.operands) == sum(len(s.arguments) for s in desc.inputs)
    assert any(not s.arguments for desc in message.blocks[0].ops for s in desc.inputs)


def test_an_unknown_operator_is_kept_and_reads_and_writes_all_that_it_names() -> None:
    with new_programs() as (main, _):
        x = data('x', 4, 4)
        y = paddle.tanh(x)
    message = parse(main.desc.serialize_to_string())
    message.blocks[0].ops[0].type = 'nobody_knows'
    graph = import_program(message.SerializeToString(), [y.name]).graph
    op, = graph.region_ops(0)
    assert not op.facts.known and op.facts.ordered
    assert op.reads() == (value(graph, 'x').id,) and op.writes() == (value(graph, y.name).id,)


def test_bytes_are_elements_times_the_width_of_the_dtype() -> None:
    with new_programs() as (main, _):
        x = data('x', 3, 5)
        doubles, halves = paddle.cast(x, 'float64'), paddle.cast(x, 'float16')
    graph = graph_of(main)
    assert [value(graph, n.name).size for n in (x, doubles, halves)
           ] == [Size.of(3 * 5 * width) for width in (4, 8, 2)]


@pytest.mark.parametrize('damaged', [b'no program', b''])
def test_bytes_that_are_no_program_are_refused(damaged: bytes) -> None:
    with pytest.raises(InvalidProgramError):
        import_program(damaged)
