"""A main block in segments: the same bytes in every way to run a program, to copy and to save it, and nothing for pairs of ops."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import paddle
import pytest

from benchmarks.apart import apart
from benchmarks.measure import process_bytes
from benchmarks.programs import build, small_options
from tests.harness import (ALL_MODES, WITHOUT_INPLACE, Case, assert_same_bytes, check, fresh_scope,
                           new_programs, run_case, snapshot)
from transpiler import memory_optimize, release_memory
from transpiler.backends.paddle2.importer import import_message
from transpiler.backends.paddle2.live_program import message_of
from transpiler.backends.paddle2.programs import LivePrograms
from transpiler.backends.paddle2.run_once import RUNS_BLOCK, SEGMENTED
from transpiler.backends.settings import has_cpu_kernels_alone
from transpiler.errors import InvalidArgumentError, MergedVariableError, VerificationError
from transpiler.flow import prove

BATCH, STEPS = 4, 5


def network() -> Case:
    """Batch statistics, dropout, a schedule, shared weights, an update with state, a fetched gradient."""
    with new_programs() as (main, startup):
        image = paddle.static.data('image', [-1, 3, 8, 8])
        label = paddle.static.data('label', [-1, 1], 'int64')
        hidden = image
        for _ in range(3):
            hidden = paddle.static.nn.conv2d(hidden, 4, 3, padding=1)
            hidden = paddle.nn.functional.relu(paddle.static.nn.batch_norm(hidden))
        hidden = paddle.nn.functional.dropout(paddle.static.nn.fc(hidden, 16), 0.3)
        scores = paddle.static.nn.fc(hidden, 5)
        loss = paddle.nn.functional.cross_entropy(scores, label)
        rate = paddle.optimizer.lr.StepDecay(0.1, 2)
        paddle.optimizer.Momentum(rate, weight_decay=1e-3).minimize(loss)
    return Case(main, startup, _feed, [loss.name, scores.name])


def _feed(step: int) -> Dict[str, Any]:
    random = np.random.RandomState(step)
    return {
        'image': random.rand(BATCH + step, 3, 8, 8).astype('float32'),
        'label': random.randint(0, 5, [BATCH + step, 1])
    }


def segmented(case: Case, segments: Any = True, **options: Any) -> Case:
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             batch_size=BATCH,
                             segments=segments,
                             **options)
    assert report.segments == len(runs(case.main)) > 0 and not report.unsegmented
    return case


def runs(program: Any) -> List[Any]:
    """The ops that run segments."""
    ops = program.global_block().ops
    return [op for op in ops if op.type == RUNS_BLOCK and SEGMENTED in op.input_arg_names]


def of_benchmark(name: str, optimizer: str = 'momentum') -> Callable[[], Case]:

    def make() -> Case:
        case = build(name, small_options(name, optimizer=optimizer))
        return Case(case.main, case.startup, case.feed, list(case.fetch), case.fresh_executor)

    return make


@pytest.mark.parametrize('segments', (True, 7))
def test_a_network_computes_equal_bytes_in_every_mode(segments: Any) -> None:
    plain, cut = network(), segmented(network(), segments)
    for mode in WITHOUT_INPLACE:
        assert_same_bytes(run_case(plain, steps=STEPS, mode=mode),
                          run_case(cut, steps=STEPS, mode=mode), str(mode))


@pytest.mark.parametrize('name, optimizer, segments', [('gru_loop', 'sgd', 4),
                                                       ('loop_in_cond', 'momentum', 3),
                                                       ('cond_in_loop', 'adam', True)])
def test_programs_with_loops_and_branches_compute_equal_bytes(name: str, optimizer: str,
                                                              segments: Any) -> None:
    make = of_benchmark(name, optimizer)
    plain, cut = make(), segmented(make(), segments, trip_count=3)
    for mode in (ALL_MODES[0], *(m for m in WITHOUT_INPLACE if not m.collect)):
        assert_same_bytes(run_case(plain, steps=STEPS, mode=mode),
                          run_case(cut, steps=STEPS, mode=mode), str(mode))


def test_a_compiled_program_computes_equal_bytes() -> None:
    plain, cut = network(), segmented(network(), 7)
    for strategy in (paddle.static.BuildStrategy(), _fusing()):
        compiled = [paddle.static.CompiledProgram(c.main, strategy) for c in (plain, cut)]
        assert_same_bytes(run_case(plain, compiled[0]), run_case(cut, compiled[1]))


def _fusing() -> Any:
    strategy = paddle.static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    return strategy


def test_a_clone_for_test_evaluates_and_updates_nothing() -> None:
    plain, cut = network(), segmented(network(), 7)
    clones = [c.main.clone(for_test=True) for c in (plain, cut)]
    assert not {'momentum', 'conv2d_grad'}.intersection(
        op.type for b in clones[1].blocks for op in b.ops)
    assert_same_bytes(run_case(plain, clones[0]), run_case(cut, clones[1]))


def test_a_parsed_copy_evaluates_too() -> None:
    """That has nothing of the class of the program."""
    plain, cut = network(), segmented(network(), 7)
    copies = [
        paddle.static.Program.parse_from_string(c.main.desc.serialize_to_string())
        for c in (plain, cut)
    ]
    clones = [copy.clone(for_test=True) for copy in copies]
    assert_same_bytes(run_case(plain, clones[0]), run_case(cut, clones[1]))


def test_what_is_saved_is_what_the_untouched_program_saves(tmp_path: Path) -> None:
    plain, cut = network(), segmented(network())
    states = [_saved(case, tmp_path / name) for case, name in ((plain, 'plain'), (cut, 'cut'))]
    assert states[0] == states[1] and len(states[0]) > 20


def _saved(case: Case, path: Path) -> Dict[str, Any]:
    """Trains, saves, spoils, loads, and gives what `state_dict` has then."""
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        paddle.seed(1)
        executor.run(case.startup)
        for step in range(2):
            executor.run(case.main, feed=case.feed(step), fetch_list=list(case.fetch))
        paddle.static.save(case.main, str(path))
        executor.run(case.startup)
        paddle.static.load(case.main, str(path), executor)
        return {name: snapshot(value) for name, value in case.main.state_dict().items()}


def test_an_inference_model_saved_from_a_program_in_segments_predicts_the_same(
        tmp_path: Path) -> None:
    plain, cut = network(), segmented(network())
    outputs = [_predicted(case, tmp_path / name) for case, name in ((plain, 'plain'), (cut, 'cut'))]
    assert outputs[0] == outputs[1]


def _predicted(case: Case, path: Path) -> Any:
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        paddle.seed(1)
        executor.run(case.startup)
        executor.run(case.main, feed=case.feed(0), fetch_list=list(case.fetch))
        block = case.main.global_block()
        image, scores = block.var('image'), block.var(case.fetch[1])
        paddle.static.save_inference_model(str(path), [image], [scores],
                                           executor,
                                           program=case.main.clone(for_test=True))
        loaded, _, fetched = paddle.static.load_inference_model(str(path), executor)
        feed = {'image': case.feed(1)['image']}
        return snapshot(executor.run(loaded, feed=feed, fetch_list=fetched, return_numpy=False)[0])


def test_what_was_not_named_is_refused_with_the_way_out() -> None:
    case = network()
    hidden = next(v for v in case.main.list_vars() if v.name.startswith('relu'))
    segmented(case)
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        with pytest.raises(MergedVariableError, match='fetch_list'):
            executor.run(case.main, feed=case.feed(0), fetch_list=[hidden])


def _chain() -> Case:
    with new_programs() as (main, startup):
        hidden = paddle.static.data('x', [-1, 16])
        for _ in range(3):
            hidden = paddle.static.nn.fc(hidden, 32, activation='relu')
        loss = paddle.mean(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return Case(main, startup, _chain_feed, [loss.name])


def _chain_feed(step: int) -> Dict[str, Any]:
    return {'x': np.random.RandomState(step).rand(BATCH, 16).astype('float32')}


@pytest.mark.parametrize('segments', (True, 8, 12, 20))
def test_any_name_gives_its_bytes_or_is_refused(segments: Any) -> None:
    """Where an op works in place, the memory of one name is another's from there on."""
    plain, cut = _chain(), segmented(_chain(), segments)
    names = [
        v.name
        for v in plain.main.list_vars()
        if v.desc.type() == paddle.base.core.VarDesc.VarType.LOD_TENSOR
    ]
    refused = 0
    for name in names:
        expected = _fetched(plain, name)
        try:
            assert _fetched(cut, name) == expected, name
        except MergedVariableError:
            refused += 1
    assert 0 < refused < len(names)


def _fetched(case: Case, name: str) -> bytes:
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        found, = executor.run(case.main, feed=case.feed(0), fetch_list=[name])
    return found.tobytes()


@pytest.mark.parametrize('segments', (True, 8, False))
def test_a_program_that_is_pruned_for_a_run_is_trained_by_it(segments: Any) -> None:
    """Paddle looks for the optimizer's ops where they were before the segments were joined."""
    plain, cut = _chain(), _chain()
    if segments:
        segmented(cut, segments)
    else:
        memory_optimize(cut.main, fetch_list=list(cut.fetch), batch_size=BATCH, segments=False)
    found = [_pruned(each) for each in (plain, cut)]
    assert found[0] == found[1] and len(set(found[0])) == len(found[0]) == STEPS


def _pruned(case: Case) -> List[bytes]:
    with fresh_scope():
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        return [
            executor.run(case.main, feed=case.feed(0), fetch_list=list(case.fetch),
                         use_prune=True)[0].tobytes() for _ in range(STEPS)
        ]


def test_what_was_skipped_keeps_its_name_and_its_bytes() -> None:
    plain, cut = network(), network()
    hidden = next(v.name for v in cut.main.list_vars() if v.name.startswith('relu'))
    segmented(cut, skip_opt_set={hidden})
    fetch = [*cut.fetch, hidden]
    assert_same_bytes(run_case(plain, fetch=fetch), run_case(cut, fetch=fetch))


@pytest.mark.parametrize('again', (memory_optimize, release_memory))
def test_a_second_call_leaves_it_as_it_is(again: Callable[..., Any]) -> None:
    case = segmented(network())
    before = case.main.desc.serialize_to_string()
    report = again(case.main, fetch_list=list(case.fetch))
    assert not report.changed and 'earlier call' in report.note
    assert case.main.desc.serialize_to_string() == before


def test_ops_keep_their_objects_and_say_where_the_user_made_them() -> None:
    case = network()
    before = {id(op) for op in case.main.global_block().ops}
    segmented(case)
    inside = [op for block in case.main.blocks[1:] for op in block.ops]
    assert len(before.intersection(map(id, inside))) == len(before)
    convolution = next(op for op in inside if op.type == 'conv2d')
    assert [line for line in convolution.attr('op_callstack') if __file__ in line]
    assert all(op.block.idx == block.idx for block in case.main.blocks for op in block.ops)


@pytest.mark.parametrize('given', ('yes', 0, -1, 2.5, None))
def test_what_is_no_way_to_segment_is_refused(given: Any) -> None:
    case = network()
    before = case.main.desc.serialize_to_string()
    with pytest.raises(InvalidArgumentError, match='segments'):
        memory_optimize(case.main, segments=given)
    assert case.main.desc.serialize_to_string() == before


def test_why_there_are_none_is_said() -> None:
    for options, reason in (({
            'runtime': 'retaining'
    }, 'keeps what is dead'), ({
            'parallel': True
    }, 'parallel')):
        case = network()
        report = memory_optimize(case.main, fetch_list=list(case.fetch), segments=True, **options)
        assert not runs(case.main) and report.segments == 0
        assert reason in report.unsegmented and report.unsegmented in ' '.join(str(report).split())


@pytest.mark.skipif(not has_cpu_kernels_alone(), reason='terms are made whole on this build')
def test_sums_by_rows_are_cut_where_that_saves_what_their_ops_take() -> None:
    """Without that the ops of the parts took more of the process than the parts saved."""
    found = []
    for rate in (None, 1e-3):
        with new_programs() as (main, _):
            hidden = paddle.static.data('x', [4, 1024])
            for _ in range(3):
                hidden = paddle.static.nn.fc(hidden, 1024, activation='tanh')
            loss = paddle.mean(hidden)
            paddle.optimizer.SGD(0.1, weight_decay=rate).minimize(loss)
        found.append(memory_optimize(main, fetch_list=[loss]))
    bare, decayed = found
    assert not bare.segments and decayed.segments
    kept = decayed.upkeep_bytes[1] - bare.upkeep_bytes[1]
    assert kept < decayed.peak_bytes_before - decayed.peak_bytes_after


def test_a_short_program_is_not_cut_by_itself() -> None:
    case = network()
    report = memory_optimize(case.main, fetch_list=list(case.fetch), segments='auto')
    assert not runs(case.main) and report.unsegmented


# ---------------------------------------------------------------------------------------------------
# The proof


def _moved(message: Any) -> None:
    """The first op of a segment that reads what is made in it before goes into the segment in front."""
    for first, then in zip(message.blocks[1:], message.blocks[2:]):
        for at, op in enumerate(then.ops):
            names = {n for s in op.inputs for n in s.arguments}
            if names.intersection(v.name for v in then.vars):
                first.ops.add().CopyFrom(op)
                del then.ops[at]
                return


def _across(message: Any) -> None:
    """The first op of the second segment goes to the end of the first: the order is the same, but not who declares what."""
    message.blocks[1].ops.add().CopyFrom(message.blocks[2].ops[0])
    del message.blocks[2].ops[0]


def _swapped(message: Any) -> None:
    blocks = [[a
               for op in [r]
               for a in op.attrs
               if a.name == 'sub_block'][0]
              for r in message.blocks[0].ops[1:3]]
    blocks[0].block_idx, blocks[1].block_idx = blocks[1].block_idx, blocks[0].block_idx


def _declared_inside(message: Any) -> None:
    """What two segments touch is declared in one of them."""
    first = {v for op in message.blocks[1].ops for s in op.outputs for v in s.arguments}
    main = message.blocks[0].vars
    at = next(i for i, v in enumerate(main) if v.name in first and not v.persistable)
    message.blocks[1].vars.add().CopyFrom(main[at])
    del main[at]


def _unsaid(message: Any) -> None:
    """The main block is not told what a segment reads."""
    slot = next(s for s in message.blocks[0].ops[2].inputs if s.parameter == 'Cond')
    del slot.arguments[-1]


def _at_times(message: Any) -> None:
    """It runs if what it reads has elements."""
    slots = {s.parameter: s.arguments for s in message.blocks[0].ops[1].inputs}
    slots['Input'].append(slots['Cond'].pop())


def _asking(message: Any) -> None:
    """For what nobody has made."""
    next(a for a in message.blocks[0].ops[1].attrs if a.name == 'is_scalar_condition').b = True


def _twice(message: Any) -> None:
    message.blocks[0].ops.add().CopyFrom(message.blocks[0].ops[1])


def _lost(message: Any) -> None:
    del message.blocks[1].ops[3]


@pytest.mark.parametrize(
    'damage',
    (_moved, _across, _swapped, _declared_inside, _unsaid, _at_times, _asking, _twice, _lost))
def test_a_wrong_cut_is_not_proved(damage: Callable[[Any], None]) -> None:
    case = network()
    back_end = LivePrograms()
    with back_end.session():
        imported = back_end.read(case.main, frozenset(case.fetch), frozenset())
        count = len(imported.graph.regions[0].ops)
        spans = tuple((i, min(i + 9, count) - 1) for i in range(0, count, 9))
        written = back_end.write(imported, imported.graph, frozenset(), '', spans)
        prove(back_end, imported, written)
        damage(written.message)
        if damage is not _lost:
            with pytest.raises(VerificationError):
                prove(back_end, imported, written)
            return
        written.origins[1].pop(3)
        with pytest.raises(VerificationError):
            prove(back_end, imported, written)


def test_a_program_in_segments_is_read_as_regions_that_free_at_once() -> None:
    graph = import_message(message_of(segmented(network(), 20).main)).graph
    inner = graph.regions[1:]
    assert inner and all(region.frees_at_once and region.parent == 0 for region in inner)


# ---------------------------------------------------------------------------------------------------
# What it is for


def _growth(segments: Any) -> List[float]:
    """Bytes by which this process grows in the first run of a chain of 900 ops, and the peak of tensors in two runs."""
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        made = paddle.static.data('x', [1 << 18])
        for _ in range(900):
            made = paddle.scale(made, 1.0001)
    report = memory_optimize(main, fetch_list=[made], segments=segments)
    executor = paddle.static.Executor(paddle.CPUPlace())
    before = process_bytes('VmRSS')
    feed = {'x': np.ones(1 << 18, 'float32')}
    for _ in range(2):
        executor.run(main, feed=feed, fetch_list=[made])
    peak = paddle.base.core.host_memory_stat_peak_value('Allocated', 0)
    return [process_bytes('VmHWM') - before, peak, report.peak_bytes_after, *report.upkeep_bytes]


def test_a_long_chain_keeps_nothing_for_pairs_of_ops() -> None:
    whole, _, _, *_ = apart(_growth, False)
    cut, measured, predicted, before, after = apart(_growth, 'auto')
    assert cut < whole / 3
    assert measured == predicted
    assert before - after < whole - cut < 8 * (before - after)


def _own_gradient() -> Case:
    with new_programs() as (main, startup):
        x = paddle.static.data('x', [8, 16])
        hidden = paddle.static.nn.static_pylayer(lambda value: paddle.tanh(value),
                                                 [paddle.static.nn.fc(x, 16)],
                                                 lambda gradient: gradient * 0.5)
        for _ in range(20):
            hidden = paddle.static.nn.fc(hidden, 16, activation='tanh')
        loss = paddle.mean(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return Case(main, startup, lambda step: {'x': np.full((8, 16), 0.1 + step, 'float32')},
                [loss.name])


def test_an_operator_that_looks_for_scopes_stays_where_they_were_made() -> None:
    """The gradient of a `static_pylayer` looks for those of the forward part in the scope that this was run in."""
    made: List[Any] = []

    def optimise(case: Case) -> Any:
        made.append(segmented(case).main)

    check(_own_gradient, optimise, steps=2)
    kinds = [op.type for op in made[0].global_block().ops]
    assert {'pylayer', 'pylayer_grad'} < set(kinds) and len(runs(made[0])) > 1
