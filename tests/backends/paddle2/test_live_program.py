"""A program that is rewritten in place stays the program that the user holds."""
from __future__ import annotations

import gc
import os
import threading
from typing import Any, Dict, List

import numpy as np
import paddle
import pytest

from tests.harness import (Case, assert_same_bytes, fingerprint, fresh_scope, new_programs,
                           run_case)
from tests.scenarios import straight
from tests.scenarios.common import data, floats, random_feed, train
from transpiler import MergedVariableError, memory_optimize
from transpiler.backends.paddle2 import live_program
from transpiler.backends.paddle2.emitter import emit
from transpiler.backends.paddle2.guard import merged_variables
from transpiler.backends.paddle2.importer import import_program
from transpiler.passes.context import PassContext
from transpiler.passes.inplace import coalesce_in_place
from transpiler.passes.reuse import reuse_storages
from transpiler.runtime import RETAINING

CHAIN = straight.chain_without_extra_fetches


def merge_all(case: Case) -> Dict[str, str]:
    """Rewrites the case with all merges that are safe, whether they pay or not. Returns them."""
    program = import_program(fingerprint(case.main), case.fetch)
    context = PassContext(RETAINING, {s: 64 for s in program.symbols()}, skip_grads=False)
    graph = reuse_storages(coalesce_in_place(program.graph.copy(), context), context)
    emitted = emit(program, graph)
    live_program.replace_contents(case.main, emitted)
    assert emitted.merged
    return emitted.merged


def parameters(program: Any) -> List[Any]:
    return sorted((p.name, type(p).__name__, p.trainable, p.need_clip, repr(p.optimize_attr),
                   repr(p.regularizer), p.stop_gradient) for p in program.all_parameters())


def variables(program: Any) -> Dict[str, Any]:
    return {
        v.name: (v.type, v.persistable, v.stop_gradient, v.is_data, v.desc.need_check_feed())
        for v in program.list_vars()
    }


def test_parameters_stay_parameters_with_all_their_attributes() -> None:
    case = CHAIN()
    before = parameters(case.main)
    merge_all(case)
    assert before and parameters(case.main) == before


def test_variables_that_remain_keep_their_attributes() -> None:
    case = CHAIN()
    before = variables(case.main)
    merged = merge_all(case)
    after = variables(case.main)
    kept = {name: facts for name, facts in before.items() if name not in merged}
    assert {name: facts for name, facts in after.items() if name in before} == kept
    assert after.keys() - before.keys() == set(merged.values())


def test_variables_that_the_user_holds_still_name_themselves_and_can_be_fetched() -> None:
    case = CHAIN()
    held = [case.main.global_block().var(name) for name in case.fetch]
    merge_all(case)
    gc.collect()
    assert [v.name for v in held] == list(case.fetch)
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        by_variable = executor.run(case.main, feed=case.feed(0), fetch_list=held)
    assert np.asarray(by_variable[0]).tobytes() == run_case(case,
                                                            steps=1).fetched[0][case.fetch[0]].data


def test_variables_stay_the_objects_they_are_and_know_the_ops_that_make_them() -> None:
    case = CHAIN()
    before = dict(case.main.global_block().vars)
    merge_all(case)
    block = case.main.global_block()
    assert all(
        block.vars[name] is variable for name, variable in before.items() if name in block.vars)
    makers = {op.idx: op for op in block.ops}
    made = {name for op in block.ops for name in op.output_arg_names if name in block.vars}
    assert made
    for name in made:
        assert block.vars[name].op is makers[block.vars[name].op.idx]
        assert name in block.vars[name].op.output_arg_names


def test_variables_that_were_merged_away_still_name_themselves_and_cannot_be_fetched() -> None:
    case = CHAIN()
    before = dict(case.main.global_block().vars)
    merged = merge_all(case)
    gone = {n: v for n, v in before.items() if n not in case.main.global_block().vars}
    assert gone.keys() == merged.keys() and gone
    executor = paddle.static.Executor(paddle.CPUPlace())
    for name, variable in gone.items():
        assert (variable.name,
                variable.desc.type()) == (name, paddle.base.core.VarDesc.VarType.LOD_TENSOR)
        with pytest.raises(MergedVariableError, match=name):
            executor.run(case.main, feed=case.feed(0), fetch_list=[variable])


def test_the_executor_notices_even_if_the_program_ran_before() -> None:
    plain, case = CHAIN(), CHAIN()
    expected = run_case(plain, steps=3)
    with fresh_scope():
        paddle.seed(1)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        executor.run(case.main, feed=case.feed(0), fetch_list=list(case.fetch))
        merged = sorted(merge_all(case))
        executor.run(case.main, feed=case.feed(1), fetch_list=list(case.fetch))
        with pytest.raises(MergedVariableError):
            executor.run(case.main, feed=case.feed(1), fetch_list=merged[:1])
        value, = executor.run(case.main, feed=case.feed(2), fetch_list=list(case.fetch))
    assert np.asarray(value).tobytes() == expected.fetched[2][case.fetch[0]].data


@pytest.mark.parametrize('again', [
    lambda program: program,
    lambda program: program.clone(),
    lambda program: program.clone().clone(),
    lambda program: paddle.static.Program.parse_from_string(program.desc.serialize_to_string()),
],
                         ids=['itself', 'clone', 'clone of a clone', 'parsed'])
def test_copies_compute_the_same_bytes(again: Any) -> None:
    case = CHAIN()
    merge_all(case)
    assert_same_bytes(run_case(CHAIN()), run_case(case, program=again(case.main)))


def test_a_clone_for_test_computes_what_that_of_the_plain_program_does() -> None:
    plain, case = CHAIN(), CHAIN()
    merge_all(case)
    expected = run_case(plain, program=plain.main.clone(for_test=True))
    assert_same_bytes(expected, run_case(case, program=case.main.clone(for_test=True)))


def test_a_compiled_program_computes_the_same_bytes() -> None:
    case = CHAIN()
    merge_all(case)
    compiled = paddle.static.CompiledProgram(case.main)
    expected = run_case(CHAIN(), steps=2)
    with fresh_scope():
        paddle.seed(1)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        for step in range(2):
            value, = executor.run(compiled, feed=case.feed(step), fetch_list=list(case.fetch))
            assert np.asarray(value).tobytes() == expected.fetched[step][case.fetch[0]].data


def test_merged_names_are_gone_from_the_serialized_program_too() -> None:
    case = CHAIN()
    merged = merge_all(case)
    declared = {v.name() for v in case.main.desc.block(0).all_vars()}
    assert not declared & set(merged)
    reloaded = paddle.static.Program.parse_from_string(fingerprint(case.main))
    assert not {v.name for v in reloaded.list_vars()} & set(merged)


def test_state_dict_names_the_same_variables_with_the_same_values() -> None:

    def states(case: Case) -> Dict[str, bytes]:
        with fresh_scope() as scope:
            paddle.seed(1)
            paddle.static.Executor(paddle.CPUPlace()).run(case.startup)
            return {
                name: np.array(t).tobytes() for name, t in case.main.state_dict(scope=scope).items()
            }

    plain, case = CHAIN(), CHAIN()
    merge_all(case)
    assert states(case) == states(plain) != {}


def test_a_saved_inference_model_gives_the_same_bytes(tmp_path: Any) -> None:

    def output(case: Case, rewrite: bool) -> bytes:
        if rewrite:
            merge_all(case)
        path = os.path.join(str(tmp_path), str(rewrite))
        block = case.main.global_block()
        with fresh_scope():
            paddle.seed(1)
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(case.startup)
            paddle.static.save_inference_model(path, [block.var(n) for n in case.feed(0)],
                                               [block.var(n) for n in case.fetch],
                                               executor,
                                               program=case.main)
            program, feeds, fetches = paddle.static.load_inference_model(path, executor)
            values = executor.run(program,
                                  feed={n: case.feed(0)[n] for n in feeds},
                                  fetch_list=fetches)
        return b''.join(np.asarray(value).tobytes() for value in values)

    assert output(CHAIN(), rewrite=True) == output(CHAIN(), rewrite=False) != b''


# ---------------------------------------------------------------------------------------------------
# Fetching what is gone

COPIES = {
    'itself': lambda program: program,
    'clone': lambda program: program.clone(),
    'clone for test': lambda program: program.clone(for_test=True),
    'clone of a clone': lambda program: program.clone().clone(),
}


@pytest.mark.parametrize('copy', sorted(COPIES))
def test_fetching_a_merged_name_names_it_and_its_heir(copy: str) -> None:
    case = CHAIN()
    merged = merge_all(case)
    for name, heir in sorted(merged.items())[:3]:
        with pytest.raises(MergedVariableError) as raised:
            run_case(case, program=COPIES[copy](case.main), steps=1, fetch=[name])
        assert repr(name) in str(raised.value) and repr(heir) in str(raised.value)
        assert 'fetch_list' in str(raised.value)


def test_names_that_were_not_merged_can_be_fetched_and_are_right() -> None:
    """All that the plain program computes and the merged one still has under its name; nobody has another's name."""
    plain, case = CHAIN(), CHAIN()
    block = plain.main.global_block()
    everything = sorted({n for op in block.ops for n in op.output_arg_names})
    merged = merge_all(case)
    instead = {case.main.global_block().var(h).name for h in merged.values()}
    assert instead and instead.isdisjoint(everything)
    kept = [n for n in everything if n not in merged and not block.var(n).persistable]
    assert kept
    assert_same_bytes(run_case(plain, steps=2, fetch=kept), run_case(case, steps=2, fetch=kept))


@pytest.mark.parametrize('load', ['parsed', 'compiled', 'pruned'])
def test_a_merged_name_never_comes_back_as_a_silent_nothing(load: str) -> None:
    case = CHAIN()
    name = sorted(merge_all(case))[0]
    program = {
        'parsed': lambda: paddle.static.Program.parse_from_string(fingerprint(case.main)),
        'compiled': lambda: paddle.static.CompiledProgram(case.main),
        'pruned': lambda: case.main
    }[load]()
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        with pytest.raises(Exception) as raised:
            executor.run(program, feed=case.feed(0), fetch_list=[name], use_prune=load == 'pruned')
    assert name in str(raised.value)


def test_a_later_call_refuses_a_name_that_an_earlier_one_merged() -> None:
    case = CHAIN()
    name = sorted(merge_all(case))[0]
    before = fingerprint(case.main)
    with pytest.raises(MergedVariableError) as raised:
        memory_optimize(case.main, fetch_list=[name])
    assert name in str(raised.value)
    assert fingerprint(case.main) == before


def test_merges_of_two_calls_add_up() -> None:
    case = CHAIN()
    first = merge_all(case)
    live_program.replace_contents(case.main, emit(*_unchanged(case)))
    assert {n: h for n, h in merged_variables(case.main).items() if n != h} == first


def _unchanged(case: Case) -> Any:
    program = import_program(fingerprint(case.main), case.fetch)
    return program, program.graph


# ---------------------------------------------------------------------------------------------------
# Shapes that look alike and are not


def _two_towers(rows_of_second: Any) -> Case:
    """elementwise_add_grad reads the shape of a matmul's result long after its data is dead."""
    with new_programs() as (main, startup):
        x, weight = data('x', -1, 64), paddle.create_parameter([64, 64], 'float32')
        first = paddle.matmul(x[0:100], weight) + paddle.create_parameter([64], 'float32')
        other = paddle.tanh(paddle.matmul(rows_of_second(weight), weight))
        loss = paddle.mean(paddle.square(first)) + paddle.mean(paddle.matmul(other, weight))
        train(loss)
    feeds = {'x': floats(7, 64), 'y': floats(50, 64)}
    used = {n: spec for n, spec in feeds.items() if main.global_block().has_var(n)}
    return Case(main, startup, random_feed(**used), [loss.name])


@pytest.mark.parametrize('rows_of_second', [
    lambda weight: paddle.full([100, 64], 1.0) + weight[0],
    lambda weight: data('y', -1, 64) + weight[0],
],
                         ids=['a constant of as many rows', 'another input'])
def test_a_reader_of_the_shape_never_finds_that_of_a_tensor_with_other_rows(
        rows_of_second: Any) -> None:
    plain, case = _two_towers(rows_of_second), _two_towers(rows_of_second)
    merge_all(case)
    assert_same_bytes(run_case(plain, steps=3), run_case(case, steps=3))


def test_operators_that_remain_stay_the_objects_they_are() -> None:
    case = CHAIN()
    before = list(case.main.global_block().ops)
    merged = merge_all(case)
    after = case.main.global_block().ops
    assert len(after) == len(before) and all(a is b for a, b in zip(after, before))
    assert all(op.desc is not None and not merged.keys() & set(op.output_arg_names) for op in after)
    for op in after:
        for name in op.output_arg_names:
            assert case.main.global_block().var(name).op is not None


def test_threads_may_clone_one_program_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As executors of theirs do in their first runs."""
    case = CHAIN()
    memory_optimize(case.main, fetch_list=list(case.fetch))
    together, done, usual = threading.Barrier(2, timeout=60), [], paddle.static.Program.clone

    def clone(program: Any, for_test: bool = False) -> Any:
        together.wait()  # both are inside
        copy = usual(program, for_test)
        together.wait()
        return copy

    monkeypatch.setattr(paddle.static.Program, 'clone', clone)
    threads = [threading.Thread(target=lambda: done.append(case.main.clone())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 2
    assert [op.type for op in done[0].global_block().ops
           ] == [op.type for op in case.main.global_block().ops]
