"""memory_optimize as a caller meets it: bad input, old calls, the report."""
from __future__ import annotations

import gc
import json
from typing import Any, Callable, Dict, List

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from tests.harness import Case, assert_same_bytes, fingerprint, new_programs, run_case
from tests.scenarios import loops, straight
from tests.scenarios.common import data, fc, floats, random_feed, train
from transpiler import (InvalidArgumentError, InvalidProgramError, MemoryReport, TranspilerError,
                        UnknownVariableError, UnsupportedPaddleError, memory_optimize,
                        release_memory)
from transpiler.backends.paddle2 import environment

CHAIN = straight.chain_without_extra_fetches

MADE_WHERE = ('op_callstack', 'op_namescope')


def contents(program: Any) -> List[Any]:
    """What a program computes, whatever the order of attributes, and wherever its ops were made."""
    message = framework_pb2.ProgramDesc.FromString(fingerprint(program))
    for block in message.blocks:
        for op in block.ops:
            attributes = sorted((a for a in op.attrs if a.name not in MADE_WHERE),
                                key=lambda a: a.name)
            del op.attrs[:]
            op.attrs.extend(attributes)
    return list(message.blocks)


def optimised(case: Case, **options: Any) -> MemoryReport:
    """For a runtime that holds: there a chain always has something to merge."""
    options.setdefault('batch_size', 64)
    return memory_optimize(case.main, fetch_list=list(case.fetch), runtime='predictor', **options)


# ---------------------------------------------------------------------------------------------------
# What is no program


def dygraph_layer() -> Any:
    paddle.disable_static()
    try:
        return paddle.nn.Linear(2, 2)
    finally:
        paddle.enable_static()


@pytest.mark.parametrize('make', [
    lambda: None,
    lambda: b'\x0a\x04',
    lambda: 'main',
    lambda: 3,
    dygraph_layer,
    lambda: CHAIN().main.desc,
    lambda: CHAIN().main.global_block(),
    lambda: [CHAIN().main],
],
                         ids=['None', 'bytes', 'str', 'int', 'layer', 'desc', 'block', 'list'])
@pytest.mark.parametrize('call', [memory_optimize, release_memory])
def test_what_is_no_program_is_refused_by_its_type(make: Callable[[], Any],
                                                   call: Callable[..., Any]) -> None:
    given = make()
    with pytest.raises(InvalidProgramError) as raised:
        call(given)
    assert type(given).__name__ in str(raised.value)


@pytest.mark.parametrize('call', [memory_optimize, release_memory])
def test_a_compiled_program_is_refused_with_the_way_out(call: Callable[..., Any]) -> None:
    case = CHAIN()
    before = fingerprint(case.main)
    with pytest.raises(InvalidProgramError) as raised:
        call(paddle.static.CompiledProgram(case.main))
    assert 'CompiledProgram' in str(raised.value)
    assert fingerprint(case.main) == before


# ---------------------------------------------------------------------------------------------------
# Bad arguments


def refused(error: type, *args: Any, **options: Any) -> str:
    """The message of the one error of that type; the program is byte for byte what it was."""
    case = CHAIN()
    before = fingerprint(case.main)
    with pytest.raises(TranspilerError) as raised:
        memory_optimize(case.main, *args, **options)
    assert type(raised.value) is error
    assert fingerprint(case.main) == before
    return str(raised.value)


BAD_ARGUMENTS: Dict[str, Any] = {
    'level': [2, -1, '1', None, True, 1.0, [0], np.array([0, 1])],
    'batch_size': [0, -1, 2.0, '8', True, [8]],
    'trip_count': [0, -3, 'x', 1.5, {
        1: 0
    }, {
        'a': 3
    }, {
        99: 3
    }],
    'runtime': ['fast', None, 3, [], {}],
    'skip_grads': ['no', None, 2],
    'print_log': ['yes', None],
    'skip_opt_set': [3, b'x', {
        'x': 1
    }, [3], len],
    'fetch_list': [3, b'x', {
        'x': 1
    }, [3], len],
}


@pytest.mark.parametrize(
    'argument,given',
    [(argument, given) for argument, values in BAD_ARGUMENTS.items() for given in values],
    ids=repr)
def test_a_bad_argument_is_named_and_nothing_is_changed(argument: str, given: Any) -> None:
    assert argument in refused(InvalidArgumentError, **{argument: given})


@pytest.mark.parametrize('argument', ['fetch_list', 'skip_opt_set'])
def test_an_unknown_name_is_named_with_the_closest_known_one(argument: str) -> None:
    known = CHAIN().fetch[0]
    message = refused(UnknownVariableError, **{argument: [known + 'x']})
    assert repr(known + 'x') in message and repr(known) in message and argument in message


def test_a_name_of_an_inner_block_cannot_be_fetched() -> None:
    case = loops.gathered_sequence()
    inner = next(v.name
                 for b in case.main.blocks[1:]
                 for v in b.vars.values()
                 if v.name not in case.main.global_block().vars)
    before = fingerprint(case.main)
    with pytest.raises(UnknownVariableError) as raised:
        memory_optimize(case.main, fetch_list=[inner])
    assert inner in str(raised.value)
    assert fingerprint(case.main) == before


@pytest.mark.parametrize('version', ['2.5.2', '3.0.0', '0.0.0', '2.60.1'])
def test_an_unsupported_paddle_is_refused(version: str, monkeypatch: Any) -> None:
    check = environment.check_paddle
    monkeypatch.setattr(environment, 'check_paddle', lambda: check(version))
    message = refused(UnsupportedPaddleError)
    assert version in message and environment.SUPPORTED in message


def test_the_installed_paddle_is_supported() -> None:
    assert paddle.__version__.startswith(environment.SUPPORTED + '.')
    environment.check_paddle()


# ---------------------------------------------------------------------------------------------------
# Calls that work


def test_old_positional_calls_work() -> None:
    positional, named = CHAIN(), CHAIN()
    skipped = positional.main.global_block().ops[0].output_arg_names[0]
    first = memory_optimize(positional.main, {skipped, *positional.fetch}, False, 1, True)
    second = memory_optimize(named.main,
                             skip_opt_set={skipped, *named.fetch},
                             print_log=False,
                             level=1,
                             skip_grads=True)
    assert contents(positional.main) == contents(named.main)
    assert first.peak_bytes_after == second.peak_bytes_after


@pytest.mark.parametrize('form', [list, tuple, set, frozenset])
def test_names_and_variables_in_any_collection_mean_the_same(form: Any) -> None:
    by_name, by_variable = CHAIN(), CHAIN()
    variables = [by_variable.main.global_block().var(n) for n in by_variable.fetch]
    memory_optimize(by_name.main,
                    fetch_list=form(by_name.fetch),
                    runtime='predictor',
                    batch_size=64)
    memory_optimize(by_variable.main,
                    fetch_list=form(variables),
                    runtime='predictor',
                    batch_size=64)
    assert contents(by_name.main) == contents(by_variable.main)


def test_a_single_name_is_a_list_of_one() -> None:
    single, listed = CHAIN(), CHAIN()
    memory_optimize(single.main, fetch_list=single.fetch[0], runtime='predictor', batch_size=64)
    memory_optimize(listed.main, fetch_list=[listed.fetch[0]], runtime='predictor', batch_size=64)
    assert contents(single.main) == contents(listed.main)


def test_a_batch_size_may_be_a_numpy_integer() -> None:
    assert optimised(CHAIN(), batch_size=np.int64(64)).to_dict()['dims'] == optimised(
        CHAIN(), batch_size=64).to_dict()['dims']


def test_names_of_a_runtime_mean_the_same() -> None:
    for names in (('executor', 'collecting'), ('predictor', 'retaining')):
        peaks = {memory_optimize(CHAIN().main, runtime=name).peak_bytes_after for name in names}
        assert len(peaks) == 1


def test_an_executor_that_is_only_tried_out_is_refused_and_the_program_stays() -> None:
    flag = 'FLAGS_enable_pir_in_executor'
    case = CHAIN()
    before, contents = paddle.get_flags([flag]), fingerprint(case.main)
    try:
        paddle.set_flags({flag: True})
        with pytest.raises(UnsupportedPaddleError, match=f"set_flags.*'{flag}': False"):
            memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=64)
    finally:
        paddle.set_flags(before)
    assert fingerprint(case.main) == contents
    assert memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=64,
                           recompute='max').changed


def test_auto_follows_the_flag_in_force() -> None:
    flag = 'FLAGS_eager_delete_tensor_gb'
    before = paddle.get_flags([flag])
    try:
        for value, runtime in ((0.0, 'collecting'), (-1.0, 'retaining')):
            paddle.set_flags({flag: value})
            assert memory_optimize(CHAIN().main).runtime == runtime
    finally:
        paddle.set_flags(before)


def test_a_second_call_changes_nothing_and_says_so() -> None:
    case = CHAIN()
    assert optimised(case).changed
    once = fingerprint(case.main)
    report = optimised(case)
    assert not report.changed and 'unchanged' in str(report)
    assert report.peak_bytes_before == report.peak_bytes_after
    assert fingerprint(case.main) == once


def test_the_second_call_predicts_what_the_first_promised() -> None:
    case = CHAIN()
    promised = optimised(case).peak_bytes_after
    assert optimised(case).peak_bytes_before == promised


def test_a_program_that_cannot_be_improved_is_left_byte_for_byte() -> None:
    case = CHAIN()
    before = fingerprint(case.main)
    skipped = [v.name for v in case.main.list_vars()]
    report = memory_optimize(case.main, skipped, runtime='predictor')
    assert not report.changed and fingerprint(case.main) == before


def test_an_empty_program_is_left_alone() -> None:
    report = memory_optimize(paddle.static.Program())
    assert not report.changed and report.peak_bytes_before == 0


# ---------------------------------------------------------------------------------------------------
# The report


def test_figures_are_whole_bytes_and_in_order() -> None:
    report = optimised(CHAIN())
    figures = [report.lower_bound_bytes, report.peak_bytes_after, report.peak_bytes_before]
    assert [type(figure) for figure in figures + [report.resting_bytes]] == [int] * 4
    assert 0 < figures[0] <= figures[1] < figures[2]


def test_resting_bytes_are_those_of_the_persistables() -> None:
    case = CHAIN()
    sizes = [
        int(np.prod(v.shape)) * 4
        for v in case.main.list_vars()
        if v.persistable and v.type == paddle.base.core.VarDesc.VarType.LOD_TENSOR
    ]
    assert optimised(case).resting_bytes == sum(sizes)


@pytest.mark.parametrize('build', [CHAIN, loops.gathered_sequence])
def test_the_report_is_ready_for_json_and_says_what_it_says(build: Callable[[], Case]) -> None:
    report = optimised(build())
    data = report.to_dict()
    again = json.loads(json.dumps(data))
    for name in ('changed', 'peak_bytes_before', 'peak_bytes_after', 'lower_bound_bytes',
                 'resting_bytes', 'peak_op', 'left_alone'):
        assert again[name] == getattr(report, name)


def test_the_text_shows_the_figures() -> None:
    from transpiler.report.data import human
    report = optimised(CHAIN())
    text = str(report)
    for figure in (report.peak_bytes_before, report.peak_bytes_after, report.lower_bound_bytes,
                   report.resting_bytes):
        assert human(figure) in text


def test_print_log_prints_the_report_and_its_absence_nothing(capsys: Any) -> None:
    optimised(CHAIN())
    assert capsys.readouterr().out == ''
    report = optimised(CHAIN(), print_log=True)
    assert capsys.readouterr().out.strip() == str(report).strip()


def test_an_assumed_batch_is_said_to_be_assumed() -> None:
    assumed = memory_optimize(CHAIN().main)
    assert assumed.assumed and all(d in str(assumed) for d in assumed.assumed)
    assert memory_optimize(CHAIN().main, batch_size=8).assumed == []


def test_figures_follow_the_hinted_batch() -> None:
    small, large = (memory_optimize(CHAIN().main, batch_size=n) for n in (8, 80))
    assert large.peak_bytes_before > small.peak_bytes_before


def _sentences() -> Case:
    """Sentences of any number of words: the peak grows with the square of it."""
    with new_programs() as (main, startup):
        words = data('words', -1, -1, 64)
        weights = paddle.nn.functional.softmax(paddle.matmul(words, words, transpose_y=True))
        context = paddle.matmul(paddle.tanh(weights), words)
        loss = paddle.mean(paddle.nn.Linear(64, 64)(context)[:, 0])
        train(loss)
    return Case(main, startup, random_feed(words=floats(4, 96, 64)), [loss.name])


def test_the_length_of_sentences_can_be_hinted_by_the_name_that_the_report_gives_it() -> None:
    case = _sentences()
    unknown = optimised(_sentences(), batch_size=4)
    length, = unknown.assumed
    found = optimised(case, batch_size={'words': 4, length: 96})
    assert found.changed and not found.assumed and found.dims[length] == 96
    assert found.peak_bytes_before > unknown.peak_bytes_before
    assert_same_bytes(run_case(_sentences()), run_case(case))


def test_an_open_dim_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownVariableError,
                       match=r"no input 'words\[2\]'.*open dims 'words\[1\]'"):
        memory_optimize(_sentences().main, batch_size={'words': 4, 'words[2]': 96})


def test_what_was_left_alone_has_a_reason() -> None:
    case = CHAIN()
    skipped = case.main.global_block().ops[0].output_arg_names[0]
    report = optimised(case, skip_opt_set=[skipped])
    assert report.left_alone[skipped] == 'in skip_opt_set'
    assert all(report.left_alone[name] == 'fetched' for name in case.fetch)


def test_each_reuse_has_a_tier_and_its_waste() -> None:
    for level in (0, 1):
        reuses = optimised(loops.attention_at_each_step(), level=level).reuses
        assert {'in-place', '1', '2'} <= {reuse.tier for reuse in reuses}
        for reuse in reuses:
            assert reuse.tier in ('in-place', '1', '2', '3')[:3 + level]
            assert type(reuse.waste_bytes) is int
            assert (reuse.waste_bytes > 0) == (reuse.tier == '2')


def test_loops_are_reported_by_block_with_what_a_trip_keeps() -> None:
    case = loops.gathered_sequence()
    report = optimised(case, trip_count=5)
    loop, = report.loops
    body = next(
        op.attr('sub_block').id for op in case.main.global_block().ops if op.type == 'while')
    assert loop.block == f'block {body}' and loop.trips == 5
    assert loop.bytes_per_trip_after <= loop.bytes_per_trip_before


# ---------------------------------------------------------------------------------------------------
# A collector that is late


def forward_chain(layers: int = 6, width: int = 256) -> Case:
    with new_programs() as (main, startup):
        hidden = data('x', 512, width)
        for _ in range(layers):
            hidden = paddle.matmul(hidden, paddle.create_parameter([width, width], 'float32'))
        out = paddle.mean(hidden)
    return Case(main, startup, random_feed(x=floats(512, width)), [out.name])


def test_a_program_that_nothing_else_helps_is_kept_from_a_late_collector() -> None:
    case = forward_chain()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), runtime='executor')
    assert report.changed and report.peak_bytes_after == report.peak_bytes_before
    before, after = report.late_peak_bytes
    assert after <= report.peak_bytes_after * 1.02 < before
    assert 'which may be late' in ' '.join(str(report).split())
    for mode in case.modes():
        assert_same_bytes(run_case(forward_chain(), mode=mode, steps=3),
                          run_case(case, mode=mode, steps=3), str(mode))


def test_releases_that_take_longer_than_what_they_serve_are_not_made() -> None:
    case = forward_chain(width=2)
    report = memory_optimize(case.main, fetch_list=list(case.fetch), runtime='executor')
    assert not report.changed and report.late_peak_bytes is None


def test_the_cycle_collector_finds_old_cycles_as_soon_as_it_would_have() -> None:
    """Programs are cycles that hold memory of Paddle's: a process that optimises many must get rid of them."""
    case = CHAIN()
    gc.collect()
    gc.collect(1)
    young = gc.get_count()[2]
    assert young == 1 and gc.isenabled()
    optimised(case)
    assert gc.get_count()[2] >= young and gc.isenabled()


# ---------------------------------------------------------------------------------------------------
# What holding the order takes


def _towers() -> Case:
    """Two chains of equal layers side by side: of two processors, each could take one."""
    with new_programs() as (main, startup):
        ends = [data('x', 256, 64)] * 2
        for _ in range(6):
            ends = [paddle.tanh(fc(end, 64)) for end in ends]
        loss = paddle.mean(paddle.add(*ends))
        train(loss)
    return Case(main, startup, random_feed(x=floats(256, 64)), (loss.name,))


@pytest.mark.parametrize('processors, told', [(1, False), (2, True), (3, True)])
def test_a_held_order_says_what_it_takes_by_the_clock(monkeypatch: Any, processors: int,
                                                      told: bool) -> None:
    monkeypatch.setattr('os.sched_getaffinity', lambda process: set(range(processors)))
    case = _towers()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), recompute='max')
    assert report.recompute.clones > 0  # so the order is held
    assert (report.order is not None) is told
    assert ('The order is held' in str(report)) is told
    if told:
        assert report.order.processors == processors
        # Little is not in one of the two chains.
        assert 0.7 < report.order.share <= processors - 1
        assert f'{report.order.share:.1%}' in str(report)
        assert report.to_dict()['order']['clock_seconds'] == report.order.clock_seconds


def test_no_order_is_spoken_of_where_none_is_held(monkeypatch: Any) -> None:
    monkeypatch.setattr('os.sched_getaffinity', lambda process: {0, 1})
    case = _towers()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), parallel=True)
    assert report.order is None
    assert 'The order is held' not in str(report)
