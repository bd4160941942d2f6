"""Emission writes the difference and nothing else."""
from __future__ import annotations

from typing import Any, List

import pytest
from paddle.base.proto import framework_pb2

from benchmarks.programs import PROGRAMS, build, small_options
from tests.scenarios import branches, dynamic_rnn, loops, recurrent, straight
from transpiler.backends.paddle2.emitter import emit
from transpiler.backends.paddle2.importer import ImportedProgram, import_program
from transpiler.backends.paddle2.naming import SHARED, names_of, rename_lists
from transpiler.backends.paddle2.programs import SerializedPrograms
from transpiler.flow import prove
from transpiler.ir import Graph
from transpiler.passes.context import PassContext
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.reuse import reuse_storages
from transpiler.runtime import RETAINING

SCENARIOS = (straight.name_written_twice, branches.nested, branches.switch_case, loops.nested,
             loops.branch_inside, loops.array_of_outputs, recurrent.recurrent_operator,
             dynamic_rnn.two_hidden_layers)
SMALL_PROGRAMS = ('resnet18', 'transformer', 'lstm', 'loop', 'cond_in_loop', 'nested_loops')


def imported(case: Any) -> ImportedProgram:
    return import_program(case.main.desc.serialize_to_string(), case.fetch)


def reused(program: ImportedProgram) -> Graph:
    dims = {symbol: 3 for symbol in program.symbols()}
    context = PassContext(RETAINING, dims, skip_grads=False)
    return reuse_storages(coalesce_in_place(program.graph.copy(), context), context)


def names_in(message: framework_pb2.ProgramDesc) -> List[str]:
    return [
        n for block in message.blocks for op in block.ops
        for slot in list(op.inputs) + list(op.outputs) for n in slot.arguments
    ]


@pytest.mark.parametrize('scenario', SCENARIOS, ids=lambda s: s.__name__)
def test_an_unchanged_graph_gives_an_equal_message(scenario: Any) -> None:
    program = imported(scenario())
    emitted = emit(program, program.graph)
    assert emitted.message == program.message
    assert emitted.merged == {}


@pytest.mark.parametrize('name', SMALL_PROGRAMS)
def test_an_unchanged_benchmark_program_gives_an_equal_message(name: str) -> None:
    assert name in PROGRAMS
    program = imported(build(name, small_options(name)))
    assert emit(program, program.graph.copy()).message == program.message


@pytest.mark.parametrize('name', SMALL_PROGRAMS)
def test_a_reused_graph_comes_back_from_its_message_and_is_proved_equal(name: str) -> None:
    program = imported(build(name, small_options(name)))
    emitted = emit(program, reused(program))
    assert emitted.merged
    prove(SerializedPrograms(), program, emitted)


@pytest.mark.parametrize('name', SMALL_PROGRAMS)
def test_merged_names_are_in_no_op_and_in_no_block(name: str) -> None:
    program = imported(build(name, small_options(name)))
    emitted = emit(program, reused(program))
    declared = {v.name for block in emitted.message.blocks for v in block.vars}
    assert emitted.merged and set(emitted.merged.values()) <= declared
    inner = {v.name for v in program.graph.values if v.region}
    gone = set(emitted.merged) - inner
    assert not gone & set(names_in(emitted.message))
    assert not gone & declared
    main = emitted.message.blocks[0]
    in_main = {v.name for v in main.vars
              }.union(n for op in main.ops for s in (*op.inputs, *op.outputs) for n in s.arguments)
    assert not set(emitted.merged) & in_main


def test_a_storage_is_called_after_its_last_tenant_and_nobody_asks_for_it_by_that_name() -> None:
    program = imported(straight.chain_without_extra_fetches())
    graph = reused(program)
    names = names_of(program, graph)
    position = {v: i for i, op in enumerate(graph.walk()) for v in reversed(op.writes())}
    assert graph.storage_members()
    for members in graph.storage_members().values():
        last = graph.values[max(members, key=lambda v: position[v])].name
        assert {names[v] for v in members} == {last + SHARED}
        assert names.stands_for[last + SHARED] == last


def test_emission_leaves_the_imported_message_alone() -> None:
    program = imported(straight.chain_without_extra_fetches())
    before = program.message.SerializeToString(deterministic=True)
    emit(program, reused(program))
    assert program.message.SerializeToString(deterministic=True) == before


def test_only_arguments_of_ops_and_lists_of_variables_change() -> None:
    program = imported(build('transformer', small_options('transformer')))
    emitted = emit(program, reused(program))
    for old, new in zip(program.message.blocks, emitted.message.blocks):
        assert [op.type for op in old.ops] == [op.type for op in new.ops]
        for op in old.ops:  # op_role_var names a parameter and its gradient
            rename_lists(op, emitted.renamed)
        assert [list(op.attrs) for op in old.ops] == [list(op.attrs) for op in new.ops]
        known = {v.name for v in old.vars}
        kept = [v for v in new.vars if v.name in known]
        assert kept and kept == [v for v in old.vars if v in kept]
        assert {v.name for v in new.vars} - known <= set(emitted.stands_for)


def test_origins_list_every_op_of_every_block_in_order() -> None:
    program = imported(loops.nested())
    emitted = emit(program, program.graph)
    assert [len(ops) for ops in emitted.origins] == [len(b.ops) for b in program.message.blocks]
    for block, region in program.block_regions.items():
        assert emitted.origins[block] == program.graph.regions[region].ops
