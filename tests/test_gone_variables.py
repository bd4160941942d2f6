"""What memory_optimize took away is not there to be asked for, on any path that Paddle offers; what is there is right."""
from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import paddle
import pytest
from paddle import inference, static
from paddle.base import core

from tests.harness import (Case, Mode, assert_same_bytes, fingerprint, fresh_scope, new_programs,
                           run_case)
from tests.scenarios import branches, loops
from transpiler import InvalidProgramError, MergedVariableError, memory_optimize
from transpiler.backends.paddle2.guard import merged_variables


def network() -> Case:
    with new_programs() as (main, startup):
        x = static.data('x', [-1, 64])
        label = static.data('label', [-1, 1], 'int64')
        first = static.nn.fc(x, 64, activation='relu')
        hidden = paddle.tanh(static.nn.fc(first, 64))
        out = static.nn.fc(static.nn.fc(hidden, 64, activation='relu'), 10)
        loss = paddle.nn.functional.cross_entropy(out, label)
        paddle.optimizer.Adam(0.01).minimize(loss)
    dice = np.random.RandomState(0)
    feed = {'x': dice.rand(32, 64).astype('float32'), 'label': dice.randint(0, 10, (32, 1))}
    # A feed of its own each: Paddle takes out of it what a pruned program does not read.
    return Case(main, startup, lambda step: dict(feed), [loss.name, hidden.name])


def optimized(runtime: str) -> Tuple[Case, Dict[str, str]]:
    case = network()
    memory_optimize(
        case.main,
        fetch_list=list(case.fetch),
        batch_size=32,
        runtime=runtime,
        budget='600KB' if runtime == 'collecting' else None)  # or it leaves all to the collector
    gone = merged_variables(case.main)
    assert len(gone) > 5
    return case, gone


def reparsed(program: static.Program) -> static.Program:
    return static.Program.parse_from_string(program.desc.serialize_to_string())


def graph_of(program: static.Program) -> static.Program:
    return paddle.base.framework.IrGraph(paddle.base.core.Graph(program.desc)).to_program()


# Each gives something that the executor runs.
COPIES: Dict[str, Callable[[static.Program], Any]] = {
    'itself': lambda program: program,
    'clone': lambda program: program.clone(),
    'shallow copy': copy.copy,
    'parsed': reparsed,
    'clone of parsed': lambda program: reparsed(program).clone(),
    'compiled': static.CompiledProgram,
    'compiled clone': lambda program: static.CompiledProgram(program.clone()),
    'compiled parsed': lambda program: static.CompiledProgram(reparsed(program)),
    'through a graph': graph_of,
    'for test': lambda program: program.clone(for_test=True),
    'parsed, for test': lambda program: reparsed(program).clone(for_test=True),
}


@pytest.fixture(scope='module', params=['collecting', 'retaining'])
def given(request: Any) -> Iterator[Tuple[Case, Dict[str, str], Dict[str, bytes], Any]]:
    """The optimized case, what is gone from it, what the untouched one gives for all that, and an executor."""
    plain = network()
    case, gone = optimized(request.param)
    with fresh_scope():
        executor = static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        yield case, gone, plain, executor


def refused(run: Callable[[], Any], name: str) -> None:
    with pytest.raises(Exception) as raised:
        run()
    assert name in str(raised.value), str(raised.value)[-600:]


def of_all_kinds(gone: Dict[str, str]) -> List[str]:
    """A few names: of the forward part, a gradient, a gradient of a parameter."""
    names = [n for n in sorted(gone) if gone[n] != n]
    forward = [n for n in names if '@GRAD' not in n]
    backward = [n for n in names if n.endswith('@GRAD')]
    of_parameters = [n for n in backward if '.w_' in n]
    assert forward and backward
    return [forward[0], forward[-1], backward[0], *of_parameters[:1]]


@pytest.mark.parametrize('way', sorted(COPIES))
def test_what_is_gone_cannot_be_fetched(given: Any, way: str) -> None:
    case, gone, _, executor = given
    for name in of_all_kinds(gone):
        program = COPIES[way](case.main)
        for return_numpy in (True, False):
            refused(
                lambda: executor.run(
                    program, feed=case.feed(0), fetch_list=[name], return_numpy=return_numpy), name)


def test_the_program_itself_and_its_clones_name_the_cause_and_the_way_out(given: Any) -> None:
    case, gone, _, _ = given
    for program in (case.main, case.main.clone(), case.main.clone(for_test=True)):
        for name in [*of_all_kinds(gone), gone[of_all_kinds(gone)[0]]]:
            with pytest.raises(MergedVariableError, match='fetch_list'):
                static.Executor(paddle.CPUPlace()).run(program,
                                                       feed=case.feed(0),
                                                       fetch_list=[name])


def test_what_is_gone_cannot_be_saved_or_pruned_to(given: Any, tmp_path: Any) -> None:
    case, gone, plain, executor = given
    name = of_all_kinds(gone)[0]
    held = plain.main.global_block().var(name)
    x = case.main.global_block().var('x')
    path = os.path.join(str(tmp_path), 'model')
    main = case.main
    for use in (lambda: static.save_inference_model(path, [x], [held], executor, program=main),
                lambda: static.normalize_program(main, [x], [held]),
                lambda: static.serialize_program([x], [held], program=main)):
        with pytest.raises(MergedVariableError, match=name):
            use()
    assert not os.path.exists(path + '.pdmodel')
    for program in (main, reparsed(main)):
        refused(lambda: program.global_block().var(name), name)
        refused(lambda: executor.run(program, feed=case.feed(0), fetch_list=[name], use_prune=True),
                name)
    with pytest.raises(MergedVariableError, match=name):
        main._prune_with_input(['x'], [name])


@pytest.mark.parametrize('read', [
    lambda v: v + 1.0, paddle.mean, lambda v: static.Print(v), lambda v: paddle.assign(v),
    lambda v: static.nn.py_func(lambda given: given, v, v)
],
                         ids=['sum', 'mean', 'Print', 'assign', 'py_func'])
def test_no_op_can_be_added_that_reads_what_is_gone(read: Callable[[Any], Any]) -> None:
    case = network()
    block = case.main.global_block()
    everything = dict(block.vars)
    memory_optimize(case.main, fetch_list=list(case.fetch), runtime='retaining', batch_size=32)
    name = of_all_kinds(merged_variables(case.main))[0]
    before = fingerprint(case.main)
    with static.program_guard(case.main,
                              case.startup), pytest.raises(MergedVariableError) as raised:
        read(everything[name])
    assert repr(name) in str(raised.value)
    assert len(before) <= len(fingerprint(case.main))


def test_gradients_cannot_be_added_to_what_is_gone() -> None:
    with new_programs() as (main, startup):
        hidden = static.data('x', [-1, 64])
        for _ in range(4):
            hidden = static.nn.fc(hidden, 64, activation='relu')
        loss = paddle.mean(hidden)
        memory_optimize(main, fetch_list=[loss], runtime='retaining', batch_size=32)
        assert merged_variables(main)
        before = [op.type for op in main.global_block().ops]
        before = [op.type for op in main.global_block().ops]
        for add in (lambda: paddle.optimizer.SGD(0.1).minimize(loss),
                    lambda: static.append_backward(loss),
                    lambda: static.gradients([loss], [main.global_block().var('x')])):
            with pytest.raises((InvalidProgramError, Exception),
                               match='before memory_optimize|str'):
                add()
            assert [op.type for op in main.global_block().ops] == before


@pytest.mark.parametrize('again', [
    lambda main: static.Program.parse_from_string(fingerprint(main)),
    lambda main: static.deserialize_program(fingerprint(main)),
    lambda main: static.Program.parse_from_string(fingerprint(main.clone()))
])
def test_a_rewritten_program_that_was_read_back_has_no_gradients(again: Any) -> None:
    """No guard is there any more; what the gradients would be made of is not, either."""
    with new_programs() as (main, startup):
        hidden = static.data('x', [-1, 64])
        for _ in range(4):
            hidden = paddle.tanh(paddle.sin(static.nn.fc(hidden, 64)))
        loss = paddle.mean(hidden)
    assert memory_optimize(main, fetch_list=[loss], runtime='retaining', batch_size=32).changed
    read = again(main)
    with static.program_guard(read, startup):
        block = read.global_block()
        weights = read.all_parameters()
        assert len(weights) == 8
        assert static.gradients([block.var(loss.name)], [block.var('x'), *weights]) == [None] * 9
        assert static.append_backward(block.var(loss.name), parameter_list=weights) == []


# ---------------------------------------------------------------------------------------------------
# What is there is right


def test_a_program_pruned_to_what_was_kept_gives_the_bytes_of_the_untouched_one(given: Any) -> None:
    case, _, plain, _ = given

    def pruned(program: static.Program) -> List[bytes]:
        with fresh_scope():
            paddle.seed(1)
            executor = static.Executor(paddle.CPUPlace())
            executor.run(case.startup)
            return [
                executor.run(program,
                             feed=case.feed(step),
                             fetch_list=[case.fetch[1]],
                             use_prune=True)[0].tobytes() for step in range(3)
            ]

    for copied in (lambda program: program, lambda program: program.clone(for_test=True)):
        expected = pruned(copied(plain.main))
        assert expected[0] and pruned(copied(case.main)) == expected


def test_a_model_saved_from_the_training_program_gives_the_bytes_of_the_untouched_one(
        given: Any, tmp_path: Any) -> None:
    case, gone, plain, executor = given
    outputs = []
    for number, (source, program) in enumerate([(plain, plain.main.clone()),
                                                (case, case.main.clone())]):
        path = os.path.join(str(tmp_path), str(number))
        block = program.global_block()
        static.save_inference_model(path, [block.var('x')], [block.var(source.fetch[1])],
                                    executor,
                                    program=program)
        loaded, feeds, fetches = static.load_inference_model(path, executor)
        feed = {name: case.feed(0)[name] for name in feeds}
        outputs.append(executor.run(loaded, feed=feed, fetch_list=fetches)[0].tobytes())
        outputs.append(predicted(path, feed['x']))
    assert not gone_names(gone) & {v.name for v in loaded.list_vars()}
    assert outputs[0] and outputs == [outputs[0]] * 4


def predicted(path: str, x: np.ndarray) -> bytes:
    config = inference.Config(path + '.pdmodel', path + '.pdiparams')
    config.disable_glog_info()
    config.switch_ir_optim(False)
    predictor = inference.create_predictor(config)
    predictor.get_input_handle('x').copy_from_cpu(x)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu().tobytes()


def test_lists_of_names_in_attributes_name_what_is_there(given: Any) -> None:
    case, gone, _, _ = given
    named = [
        name for op in case.main.global_block().ops if op.has_attr('op_role_var')
        for name in op.attr('op_role_var')
    ]
    assert named and not gone_names(gone) & set(named)
    assert all(case.main.global_block().has_var(name) for name in named)


def gone_names(gone: Dict[str, str]) -> set:
    return {name for name, instead in gone.items() if name != instead}


@pytest.mark.parametrize('runtime', ['collecting', 'retaining'])
def test_the_renamed_program_computes_the_same_bytes(runtime: str) -> None:
    case, _ = optimized(runtime)
    plain = run_case(network(), steps=3)
    for program in (case.main, reparsed(case.main), case.main.clone()):
        assert_same_bytes(plain, run_case(case, steps=3, program=program))


# ---------------------------------------------------------------------------------------------------
# What operators with blocks name, who find more by name at run time

WITH_BLOCKS = (loops.array_of_outputs, loops.array_read_one_by_one, loops.attention_at_each_step,
               loops.inside_a_branch, loops.number_of_trips_is_fed, branches.nested,
               branches.several_results)


def named_by_blocks(program: static.Program) -> List[str]:
    """Temporaries of the main block that an op with a block in it names."""
    block = program.global_block()
    names = {
        name for op in block.ops if op.has_attr('sub_block')
        for name in op.input_arg_names + op.output_arg_names
    }
    kinds = core.VarDesc.VarType
    return sorted(name for name in names - {'@EMPTY@'}
                  if not block.var(name).persistable and not block.var(name).is_data and
                  block.var(name).type in (kinds.LOD_TENSOR, kinds.LOD_TENSOR_ARRAY))


@pytest.mark.parametrize('runtime', ['collecting', 'retaining'])
@pytest.mark.parametrize('build', WITH_BLOCKS, ids=lambda build: build.__name__)
def test_names_that_loops_and_branches_use_are_right_or_gone(build: Callable[[], Case],
                                                             runtime: str) -> None:
    plain, case = build(), build()
    names = named_by_blocks(plain.main)
    assert memory_optimize(case.main, fetch_list=list(case.fetch), runtime=runtime, level=1).changed
    gone, copied = set(merged_variables(case.main)), reparsed(case.main)
    mode = Mode(collect=runtime == 'collecting', order='sequential')
    there = [n for n in names if n not in gone]
    # Joined arrays are not emptied: who joins them has their tensors, too.
    assert there and bool(set(names) & gone) is (build is not loops.array_of_outputs)
    expected = run_case(plain, steps=2, mode=mode, fetch=names)
    ways: List[Callable[[], Any]] = [
        lambda: copied, copied.clone, lambda: static.CompiledProgram(copied)
    ]
    for way in ways:
        found = run_case(replace(case, main=copied), way(), 2, mode, fetch=there)
        for step, has in zip(expected.fetched, found.fetched):
            assert {n: step[n] for n in there} == has
    for name in set(names) & gone:
        empty = all(not step[name].data for step in expected.fetched if hasattr(step[name], 'data'))
        if empty:
            continue  # untouched as well: the gradient of a branch that is not taken
        for way in ways:
            refused(lambda: run_case(replace(case, main=copied), way(), 2, mode, fetch=[name]),
                    'fetch' if copied.global_block().has_var(name) else name)


def test_what_a_loop_reads_has_another_name_in_all_blocks() -> None:
    case = loops.number_of_trips_is_fed()
    memory_optimize(case.main, fetch_list=list(case.fetch), runtime='collecting')
    block = case.main.global_block()
    renamed = [n for n in block.vars if n.endswith('@released') and block.has_var(n + '@GRAD')]
    assert renamed
    everywhere = {
        n for b in case.main.blocks for op in b.ops
        for n in op.input_arg_names + op.output_arg_names
    }
    for name in renamed:
        old = name[:-len('@released')]
        assert {name, name + '@GRAD'} <= everywhere and not {old, old + '@GRAD'} & everywhere
    listed = [
        n for op in block.ops if op.type == 'while_grad' for n in op.attr('original_output_grad')
    ]
    assert set(listed) <= everywhere
